"""A Picture as Graphviz text.

Quoting: every label is a quoted string in which \\ and " are escaped (so \\N and the like stay text) and & is an
entity, since Graphviz reads entities inside labels. Identifiers are n0, n1, ... and cluster numbers.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any

from .picture import Box, Picture

# Fill, border. Text is near-black on every fill; edges and group labels are mid-tones: readable on white and on black.
COLORS = {"input": ("#cfe3ff", "#3b6fb5"), "variable": ("#ffe6b3", "#b07d1a"), "constant": ("#eceff1", "#8a949c"),
          "op": ("#f7f9fa", "#5b6770"), "adjoint": ("#fde0e6", "#c0395a"), "summary": ("#e6e0f5", "#6a55a8"),
          "memory": ("#e3f2e1", "#4a8a43"), "bad": ("#ff6b6b", "#b00000")}
EDGES = {"forward": "#6f7d8a", "adjoint": "#d0506f", "use": "#a98bb0", "carry": "#7a67b8"}
TEXT_COLOR, GROUP_COLOR = "#14181b", "#7d8894"
FONT = "Helvetica,Arial,sans-serif"
SHAPES = {"input": "ellipse", "variable": "ellipse", "constant": "plain", "summary": "box3d", "memory": "cylinder"}


@lru_cache(maxsize=4096)
def escape(text: str) -> str:
    """Inside a quoted string of a label or tooltip."""
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


def quote(text: str) -> str:
    return f'"{escape(text)}"'


def _label(lines: tuple[str, ...]) -> str:
    return '"' + "\\n".join([escape(s) for s in lines]) + '"'


def _box(b: Box) -> str:
    attrs = [f"label={_label(b.label)}", f'id="{b.id}"']
    if b.kind != "op":
        fill, border = COLORS[b.kind]
        attrs.append(f'fillcolor="{fill}", color="{border}"')
        if b.kind in SHAPES:
            attrs.append(f"shape={SHAPES[b.kind]}")
    if b.kind == "constant":
        attrs.append("fontsize=9")
    if b.bad:
        fill, border = COLORS["bad"]
        attrs.append(f'fillcolor="{fill}", color="{border}", penwidth=2')
    if b.output:
        attrs.append("penwidth=2.5")
    if b.tip:
        attrs.append(f"tooltip={quote(b.tip)}")
    return f"{b.id} [{', '.join(attrs)}];"


def to_dot(p: Picture) -> str:
    """The text of the picture."""
    out = ["digraph graphdiff {",
           f'  graph [rankdir={p.direction}, bgcolor="transparent", fontname="{FONT}", fontsize=11, fontcolor="{GROUP_COLOR}", '
           f'color="{GROUP_COLOR}", nodesep=0.25, ranksep=0.45, style="rounded,dashed"];',
           f'  node [shape=box, style="rounded,filled", fillcolor="{COLORS["op"][0]}", color="{COLORS["op"][1]}", '
           f'fontname="{FONT}", fontsize=11, fontcolor="{TEXT_COLOR}", height=0.3, margin="0.1,0.05"];',
           f'  edge [color="{EDGES["forward"]}", fontname="{FONT}", fontsize=9, fontcolor="{EDGES["forward"]}", arrowsize=0.6];']
    _clusters(p, out)
    styles = {k: f'color="{c}", fontcolor="{c}"' for k, c in EDGES.items()}
    styles["adjoint"] += ", constraint=false"
    styles["use"] += ", style=dotted, constraint=false"
    styles["carry"] += ", style=dashed, constraint=false"
    for e in p.edges:
        attrs = [] if not e.label else [f"label={quote(e.label)}"]
        if e.kind != "forward":
            attrs.append(styles[e.kind])
        out.append(f"  {e.src} -> {e.dst}{' [' + ', '.join(attrs) + ']' if attrs else ''};")
    out.append("}")
    return "\n".join(out) + "\n"


def _clusters(p: Picture, out: list[str]) -> None:
    """Boxes inside their groups; adjoint boxes in the rank of their primal."""
    beside: dict[str, list[Box]] = {}
    known = {b.id for b in p.boxes}
    for b in p.boxes:
        if b.anchor is not None and b.anchor in known and b.anchor != b.id:
            beside.setdefault(b.anchor, []).append(b)
    placed = {b.id for group in beside.values() for b in group}
    tree: dict[Any, Any] = {}
    for b in p.boxes:
        if b.id in placed:
            continue
        level = tree
        for part in b.cluster:
            level = level.setdefault(("group", part), {})
        level.setdefault("boxes", []).append(b)
    stack: list[Any] = [("open", None, tree, 0)]
    count = 0
    while stack:
        what, name, level, depth = stack.pop()
        pad = "  " * (depth + 1)
        if what == "close":
            out.append("  " * depth + "}")
            continue
        if name is not None:
            out.append("  " * depth + f"subgraph cluster_{count} {{")
            out.append(f"{pad}label={quote(name)};")
            count += 1
            stack.append(("close", None, None, depth))
        for b in level.get("boxes", ()):
            group = beside.get(b.id)
            if group:
                out.append(f"{pad}subgraph pair_{b.id} {{ rank=same; {' '.join(_box(x) for x in [b, *group])} }}")
            else:
                out.append(pad + _box(b))
        for key, inner in reversed([item for item in level.items() if item[0] != "boxes"]):
            stack.append(("open", key[1], inner, depth + 1))
