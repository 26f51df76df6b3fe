"""gd.draw: pictures of graphs, of both passes, of compiled programs and of traces; and who renders them.

Order of renderers: the system's Graphviz, the executable of the package graphviz-pure, pygraphviz, and the layout of our
own (SVG only). Executables get an argument list and the text on stdin, and a time limit.
"""
from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, GraphdiffError, NodeTypeError, ShapeError, show_name
from ..graph.node import Node
from ..graph.walk import toposort
from ..specs import format_shape
from .picture import Box, Edge, Labels, Picture, build, is_adjoint

TIME_LIMIT_S = 20
LARGEST = 1500           # boxes given to Graphviz: above, dot takes from seconds to minutes, our own layout does not
DIRECTIONS = ("LR", "TB", "RL", "BT")
STYLES = ("operations", "variables")


class Drawing:
    """A picture: `.dot` is its Graphviz text, `.svg` its SVG; `.save(path)` writes by suffix. Shows itself in notebooks."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._svg: str | None = None
        self._dot: str | None = None

    @property
    def dot(self) -> str:
        """Graphviz text."""
        if self._dot is None:
            from .dot import to_dot
            self._dot = to_dot(self.picture)
        return self._dot

    @property
    def svg(self) -> str:
        """SVG text, by the first renderer that works; the layout of our own always does."""
        if self._svg is None:
            self._svg = self._render_svg()
        return self._svg

    def _render_svg(self) -> str:
        if len(self.picture.boxes) <= LARGEST:
            for _, render in _renderers():
                data = _try(render, self.dot, "svg")
                if data is not None:
                    return _clean(data.decode("utf-8", "replace"))
        from .layout import to_svg
        return to_svg(self.picture)

    def render(self, form: str) -> bytes:
        """The picture as bytes in a form: svg, png, pdf. FormatError says what to install when nobody can make it."""
        form = form.lower()
        if form == "svg":
            return self.svg.encode()
        if form not in ("png", "pdf"):
            raise FormatError(f"render: no renderer for {show_name(form)!r}; there are svg, png, pdf")
        tried = []
        for name, render in _renderers():
            if form == "pdf" and name == "graphviz-pure":
                continue
            data = _try(render, self.dot, form)
            if data:
                return data
            tried.append(name)
        what = "Graphviz (apt install graphviz)" + ("" if form == "pdf" else " or pip install 'graphdiff[viz]'")
        raise FormatError(f"save: {form.upper()} needs a renderer, and {'none was found' if not tried else 'failed with ' + ', '.join(tried)}"
                          f"; install {what}. SVG, HTML and DOT need none")

    def save(self, path: Any) -> None:
        """Write by suffix: .svg .html .dot .gv .png .pdf."""
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix in (".dot", ".gv"):
            target.write_text(self.dot, encoding="utf-8", newline="")
        elif suffix == ".svg":
            target.write_text(self.svg, encoding="utf-8", newline="")
        elif suffix in (".html", ".htm"):
            from .html import picture_page
            target.write_text(picture_page(self.svg), encoding="utf-8", newline="")
        elif suffix in (".png", ".pdf"):
            target.write_bytes(self.render(suffix[1:]))
        else:
            raise FormatError(f"save: no format for the suffix {show_name(target.suffix)!r}; there are .svg .html .png .pdf .dot")

    def __repr__(self) -> str:
        p = self.picture
        more = f", {p.hidden} nodes folded" if p.hidden else ""
        return f"<drawing: {len(p.boxes)} boxes, {len(p.edges)} edges{more}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "image/svg+xml": self.svg}


# -- what is drawn -----------------------------------------------------------------------------------------------------

def draw(y: Any, *, wrt: Any = None, style: str = "operations", fold: bool = True, max_nodes: int | None = 200,
         direction: str = "LR") -> Drawing:
    """A picture of a node, of a list of nodes or of a compiled function.

    wrt: nodes to differentiate with respect to; each adjoint node is drawn beside the primal it belongs to. style:
    "operations" (boxes are ops) or "variables" (boxes are v1, v2, ... with their formulas). Above max_nodes boxes, with
    fold, scopes are collapsed and blocks that repeat are drawn once; what is still too much is left out in the middle.
    max_nodes=None draws everything. direction: "LR", "TB", "RL" or "BT".
    """
    if style not in STYLES:
        raise NodeTypeError(f"draw: style must be 'operations' or 'variables', not {style!r}")
    if direction not in DIRECTIONS:
        raise NodeTypeError(f"draw: direction must be one of {', '.join(DIRECTIONS)}, not {direction!r}")
    if max_nodes is not None and (isinstance(max_nodes, bool) or not isinstance(max_nodes, int) or max_nodes < 1):
        raise ShapeError(f"draw: max_nodes must be a positive int or None, not {max_nodes!r}")
    if not isinstance(y, (Node, list, tuple, dict)) and hasattr(type(y), "program") and hasattr(y, "outputs"):
        if wrt is not None:
            raise NodeTypeError("draw: a compiled function is drawn as it is; wrt goes with nodes")
        return Drawing(_function_picture(y, direction, max_nodes, fold, style))
    outputs = list(y.values()) if isinstance(y, dict) else [y] if isinstance(y, Node) else list(y) if isinstance(y, (list, tuple)) else None
    if outputs is None or not all(isinstance(o, Node) for o in outputs):
        raise NodeTypeError(f"draw: a node, a list of nodes or a function is drawn, not {type(y).__name__}")
    names: dict[int, Any] = {}
    gradients: list[Node] = []
    targets: list[Node] = [] if wrt is None else [wrt] if isinstance(wrt, Node) else list(wrt)
    if targets:
        gradients = _gradients(outputs, targets)
    primal = toposort(outputs)
    if style == "variables":
        from .record import names as name_nodes
        from .record import number
        names = name_nodes(number(primal, ()))
        here = {id(n) for n in toposort([*outputs, *gradients])} if gradients else set()
        for t, g in zip(targets, gradients, strict=True):
            if id(t) in names and id(g) in here and id(g) not in names:
                names[id(g)] = names[id(t)].bar()
    labels = Labels(style, names).of
    known = {id(g): t for t, g in zip(targets, gradients, strict=True)}

    def label(node: Node) -> tuple[str, ...]:
        lines = labels(node)
        target = known.get(id(node))
        if target is None or style == "variables":
            return lines
        word = target.label if len(target.label) <= 40 else target.label[:40] + "…"
        return (f"d/d{word} = {lines[0]}", *lines[1:])

    return Drawing(build([*outputs, *gradients], direction=direction, fold=fold, max_nodes=max_nodes, style=style, names=names,
                         label=label if known else None))


def _gradients(outputs: Sequence[Node], targets: Sequence[Node]) -> list[Node]:
    """The gradients of the sum of all outputs."""
    from ..diff.reverse import grad
    from ..ops.binary import add
    from ..ops.movement import ones_like
    total: list[Node] | None = None
    for y in outputs:
        gs = grad(y, list(targets), cotangent=None if y.shape == () else ones_like(y), unconnected="zero")
        total = gs if total is None else [add(a, b) for a, b in zip(total, gs, strict=True)]
    return total or []


def draw_trace(trace: Any, *, fold: bool = True, max_nodes: int | None = 200, direction: str = "LR") -> Drawing:
    """A trace: values on forward edges, contributions to adjoints on reverse edges, NaN and Inf in red."""
    from .table import short
    theirs = {id(r.node): r for r in trace.rows}

    def lines(node: Node) -> tuple[str, ...]:
        row = theirs.get(id(node))
        if row is None:
            return (short(trace.value(node)),)
        own = row.node
        first = f"{row.name} = {row.formula}"
        more = [] if id(node) in used else [f"= {short(row.value)}"]
        if row.adjoint is not None and (row.index is None or row.index <= 0 or own is trace.y):
            more.append(f"{row.label.bar().text()} = {short(row.adjoint)}")
        return (show_name(first, 60), *[show_name(m, 80) for m in more])

    def value_of(node: Node) -> str:
        try:
            return show_name(short(trace.value(node)), 60)
        except KeyError:
            return ""

    def bad(node: Node) -> bool:
        row = theirs.get(id(node))
        arrays = [row.value, row.adjoint] if row is not None else []
        return any(a is not None and a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays)

    used = {id(x) for n in trace.order if id(n) not in trace.given for x in n.inputs}
    reverse = []
    for row, c, _ in trace.arrivals():
        reverse.append((c.consumer, row.node, show_name(short(c.value), 60)))
    names = {id(r.node): r.label for r in trace.rows}
    return Drawing(build([trace.y], direction=direction, fold=fold, max_nodes=max_nodes, names=names, label=lines, edge_label=value_of,
                         reverse=reverse, bad=bad, stop=trace.given))


# -- compiled programs -------------------------------------------------------------------------------------------------

def _function_picture(f: Any, direction: str, max_nodes: int | None, fold: bool, style: str) -> Picture:
    """Instructions, and the memory they read and write: what runs, after all passes."""
    try:
        program = f.program
    except GraphdiffError:             # named sizes, never called: there is no program yet
        return build([*f.outputs, *[n for _, n in f.updates]], direction=direction, fold=fold, max_nodes=max_nodes, style=style)
    p = Picture(direction=direction)
    instrs = program.instrs
    if max_nodes is not None and len(instrs) > max_nodes:
        front = max_nodes // 2
        shown = {*range(front), *range(len(instrs) - (max_nodes - front), len(instrs))}
        p.hidden = len(instrs) - len(shown)
    else:
        shown = set(range(len(instrs)))
    ids: dict[Any, str] = {}

    def box(key: Any, label: tuple[str, ...], kind: str, tip: str, cluster: tuple[str, ...] = ()) -> str:
        if key not in ids:
            ids[key] = f"n{len(ids)}"
            p.boxes.append(Box(ids[key], label, kind, tip, cluster))
        return ids[key]

    inputs = [x.label for x in f.inputs]
    base_names: dict[int, tuple[str, str]] = {}
    counts: dict[str, int] = {}
    for i, (kind, name, nbytes, _) in enumerate(program.bases):
        k = counts[kind] = counts.get(kind, -1) + 1
        shown_name = inputs[k] if kind == "input" and k < len(inputs) else name
        base_names[2 + i] = (kind, f"{shown_name}: {nbytes} B")
    for i, v in enumerate(program.inputs):
        name = base_names[2 + i][1]
        box(("base", -1 - v.buffer), (show_name(name, 60),), "input", "argument")
    writers: dict[Any, list[str]] = {}
    edges: set[Any] = set()
    for i, (op, outs, ins, attrs, node) in enumerate(instrs):
        if i in shown:
            spec = f"{outs[0].dtype.name}{format_shape(outs[0].shape)}" if outs else ""
            where = ", ".join(_place(program, v, base_names) for v in outs)
            ops = ", ".join([name for name, _ in program.members(i)])
            tip = f"instruction {i}" + (f": {ops}" if op == "fused" else f" {list(attrs)}" if attrs else "") + ("" if node is None or node.site is None else f" at {node.site}")
            kind = "adjoint" if node is not None and is_adjoint(node) else "op"
            me = box(("instr", i), (f"{i}: {op}", *([show_name(ops, 60)] if op == "fused" else []), spec, f"→ {where}"), kind, show_name(tip, 200))
        else:
            me = box("cut", (f"… {p.hidden} instructions more",), "summary", "left out")
        for v in ins:
            base, _ = program.where(v)
            key = ("buffer", v.buffer) if v.buffer >= 0 else ("base", base)
            sources = writers.get(key)
            if sources is None:
                if base == 1:
                    sources = [box(("constant", v.offset), (_constant(program, v),), "constant", "constant")]
                elif base >= 2 and v.buffer < 0:
                    kind, name = base_names[base]
                    sources = [box(("base", base), (show_name(name, 60),), "variable" if kind == "variable" else "input", kind)]
                else:
                    continue
            for s in sources:
                if s != me and (s, me) not in edges:
                    edges.add((s, me))
                    p.edges.append(Edge(s, me, "forward"))
        for v in outs:
            key = ("buffer", v.buffer) if v.buffer >= 0 else ("base", -1 - v.buffer)
            whole = v.buffer >= 0 and v.size * v.dtype.itemsize == program.buffers[v.buffer] if hasattr(v, "size") else True
            if whole or key not in writers:
                writers[key] = [me]
            elif me not in writers[key]:
                writers[key].append(me)
    for i, (kind, name, nbytes, _) in enumerate(program.bases):
        if kind != "output":
            continue
        me = ""
        for key, who in list(writers.items()):
            base = -1 - key[1] if key[0] == "buffer" and program.places[key[1]] < 0 else None
            real = -1 - program.places[key[1]] if base is not None else key[1] if key[0] == "base" else None
            if real == 2 + i:
                me = box(("base", 2 + i), (f"{name}: {nbytes} B",), "memory", "result")
                for s in who:
                    if (s, me) not in edges:
                        edges.add((s, me))
                        p.edges.append(Edge(s, me, "forward"))
        if not me:
            box(("base", 2 + i), (f"{name}: {nbytes} B",), "memory", "result")
    return p


def _place(program: Any, view: Any, base_names: dict[int, tuple[str, str]]) -> str:
    base, offset = program.where(view)
    if base == 0:
        return f"arena[{offset}]"
    return "constants" if base == 1 else show_name(base_names[base][1].partition(":")[0], 40)


def _constant(program: Any, view: Any) -> str:
    if view.shape == () or all(s == 0 for s in view.strides):
        from .formula import number_text
        size = view.dtype.itemsize
        return number_text(np.frombuffer(bytes(program.constants[view.offset:view.offset + size]), view.dtype)[0])
    return f"constant {format_shape(view.shape)}"


# -- renderers ---------------------------------------------------------------------------------------------------------

@lru_cache(maxsize=8)
def _executables(path: str) -> tuple[str | None, str | None]:
    del path                                      # the cache key: PATH as it is now
    pure = shutil.which("graphviz-pure")
    if pure is None:
        beside = os.path.join(os.path.dirname(sys.executable), "graphviz-pure")
        pure = beside if os.access(beside, os.X_OK) else None
    return shutil.which("dot"), pure


def _renderers() -> list[tuple[str, Callable[[str, str], bytes]]]:
    dot, pure = _executables(os.environ.get("PATH", ""))
    out: list[tuple[str, Callable[[str, str], bytes]]] = []
    if dot is not None:
        out.append(("dot", lambda text, form: _run([dot, f"-T{form}"], text)))
    if pure is not None:
        out.append(("graphviz-pure", lambda text, form: _run([pure, f"-T{form}"], text)))
    from importlib.util import find_spec
    if find_spec("pygraphviz") is not None:
        out.append(("pygraphviz", _pygraphviz))
    return out


def renderer() -> str:
    """The renderer that pictures will use, as `graphdiff info` shows it."""
    dot, pure = _executables(os.environ.get("PATH", ""))
    found = _renderers()
    if not found:
        return "built-in layout (SVG only; PNG needs Graphviz or graphdiff[viz])"
    name = found[0][0]
    return f"{name} ({dot if name == 'dot' else pure})" if name != "pygraphviz" else name


def _run(command: list[str], text: str) -> bytes:
    import subprocess
    done = subprocess.run(command, input=text.encode("utf-8", "replace"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIME_LIMIT_S,
                          check=True)
    return done.stdout


def _pygraphviz(text: str, form: str) -> bytes:
    from importlib import import_module
    pygraphviz = import_module("pygraphviz")
    data = pygraphviz.AGraph(string=text).draw(format=form, prog="dot")
    return data if isinstance(data, bytes) else bytes(data, "utf-8")


def _try(render: Callable[[str, str], bytes], text: str, form: str) -> bytes | None:
    """A renderer's bytes, or None: a missing font, an old version or a time limit must not stop the next one."""
    import subprocess
    try:
        return render(text, form) or None
    except (OSError, subprocess.SubprocessError, ImportError, ValueError):
        return None


def _clean(svg: str) -> str:
    """From the <svg> on: XML and DOCTYPE headers would be wrong inside a page."""
    start = svg.find("<svg")
    return svg[start:] if start >= 0 else svg


__all__ = ["Drawing", "draw", "draw_trace", "renderer"]
