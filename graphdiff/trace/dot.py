"""A Picture as Graphviz text.

Quoting: every label is a quoted string in which \\ and " are escaped (so \\N and the like stay text) and & is an
entity, since Graphviz reads entities inside labels. Identifiers are n0, n1, ... and cluster numbers. The edges of the
reverse pass are written from their target to their source with the arrow at its tail (dir=back): dot then lays the reverse
pass out from right to left, below or above the forward pass, and each adjoint in the column of its primal.
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
ROOM = ', margin="0.14,0.11"'      # text stands clear of the inner lines of a box3d
SHAPES = {"input": "ellipse", "variable": "ellipse", "summary": "box3d", "memory": "cylinder"}


@lru_cache(maxsize=4096)
def escape(text: str) -> str:
    """Inside a quoted string of a label or tooltip."""
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


def quote(text: str) -> str:
    return f'"{escape(text)}"'


def markup(text: str) -> str:
    """Inside an HTML-like label."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _label(lines: tuple[str, ...]) -> str:
    return '"' + "\\n".join([escape(s) for s in lines]) + '"'


def _box(b: Box) -> str:
    attrs = [f"label={_label(b.label)}", f'id="{b.id}"']
    if b.kind != "op":
        fill, border = COLORS[b.kind]
        attrs.append(f'fillcolor="{b.fill or fill}", color="{border}"')
    elif b.fill:
        attrs.append(f'fillcolor="{b.fill}"')
    if b.kind in SHAPES:
        attrs.append(f"shape={SHAPES[b.kind]}" + (ROOM if b.kind == "summary" else ""))
    elif b.oval:
        attrs.append("shape=ellipse, margin=\"0.03,0.02\"")
    if b.kind == "constant":
        attrs.append('fontsize=9, width=0.3, height=0.2, margin="0.05,0.02"')
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
    legend = "" if not p.legend else f", label={quote(p.legend)}"
    if p.memory is not None:             # below the graph, where nothing has to be laid out around it
        legend = f", label=<{p.memory.table(p.legend)}>"
    out = ["digraph graphdiff {",
           f'  graph [rankdir={p.direction}, bgcolor="transparent", fontname="{FONT}", fontsize=11, fontcolor="{GROUP_COLOR}", '
           f'color="{GROUP_COLOR}", nodesep=0.25, ranksep=0.45, style="rounded,dashed", labelloc=b{legend}];',
           f'  node [shape=box, style="rounded,filled", fillcolor="{COLORS["op"][0]}", color="{COLORS["op"][1]}", '
           f'fontname="{FONT}", fontsize=11, fontcolor="{TEXT_COLOR}", height=0.3, margin="0.1,0.05"];',
           f'  edge [color="{EDGES["forward"]}", fontname="{FONT}", fontsize=9, fontcolor="{EDGES["forward"]}", arrowsize=0.6];']
    _clusters(p, out)
    styles = {k: f'color="{c}", fontcolor="{c}"' for k, c in EDGES.items()}
    styles["adjoint"] += ", dir=back, arrowtail=empty"
    styles["use"] += ", style=dotted, constraint=false"
    styles["carry"] += ", style=dashed, constraint=false"
    for e in p.edges:
        attrs = [] if not e.label else [f"label={quote(e.label)}"]
        if e.kind != "forward":
            attrs.append(styles[e.kind])
        a, b = (e.dst, e.src) if e.back else (e.src, e.dst)
        out.append(f"  {a} -> {b}{' [' + ', '.join(attrs) + ']' if attrs else ''};")
    if p.direction in ("TB", "BT"):
        out += [f"  {a} -> {b} [style=invis];" for a, b in _stacked(p)]
    out.append("}")
    return "\n".join(out) + "\n"


def _stacked(p: Picture) -> list[tuple[str, str]]:
    """Pairs (above, below) that put groups of groups one under the other: what starts inside of one, such as a weight, stands below all
    that enters it. Groups that share a rank would have to stand side by side."""
    boxes = {b.id: b for b in p.boxes}
    fed = {e.dst for e in p.edges if e.kind == "forward"}
    outer = {b.cluster[:k] for b in p.boxes for k in range(1, len(b.cluster))}
    enter: dict[Any, dict[str, None]] = {}
    for e in p.edges:
        if e.kind == "forward":
            a, b = boxes[e.src].cluster, boxes[e.dst].cluster
            for k in range(1, len(b)):
                if b[:k] in outer and a[:k] != b[:k]:
                    enter.setdefault(b[:k], {})[e.src] = None
    out = []
    for box in p.boxes:
        if box.kind in ("variable", "constant") and box.id not in fed:
            for k in range(1, len(box.cluster)):
                out += [(a, box.id) for a in enter.get(box.cluster[:k], ())]
    return list(dict.fromkeys(out))


def _clusters(p: Picture, out: list[str]) -> None:
    """Boxes inside their groups; an adjoint box in the rank of its primal, and next to it."""
    boxes = {b.id: b for b in p.boxes}
    heads = p.heads()
    # A rank that spans two groups tears both apart: only pairs of one group are tied together.
    heads = {a: b for a, b in heads.items() if boxes[a].cluster == boxes[b].cluster}
    placed = set(heads.values())
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
            out.append(f"{pad}label={quote(name)}; labelloc=t;")
            count += 1
            stack.append(("close", None, None, depth))
        for b in level.get("boxes", ()):
            other = heads.get(b.id)
            if other is not None:
                out.append(f"{pad}subgraph pair_{b.id} {{ rank=same; {_box(b)} {_box(boxes[other])} {b.id} -> {other} [style=invis, weight=4]; }}")
            else:
                out.append(pad + _box(b))
        for key, inner in reversed([item for item in level.items() if item[0] != "boxes"]):
            stack.append(("open", key[1], inner, depth + 1))
