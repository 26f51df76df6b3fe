"""gd.draw: pictures of graphs, of both passes, of compiled programs and of traces."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, NodeTypeError, ShapeError, show_name
from ..graph.build import node_list, public
from ..graph.node import Node
from ..graph.walk import toposort
from ..ops.families import flag
from . import render as rendering
from .picture import Labels, Picture, build
from .render import renderer

SECONDS = 2.5            # for dot to lay out an SVG, before the layout of our own is taken
SAVE_SECONDS = 20.0      # the same for PNG and PDF, which somebody asked for and waits for
LARGEST = 800            # boxes, and half as many edges again, given to Graphviz: above, dot takes from seconds to minutes
WIDE = 2000              # pixels: what is wider cannot be read on a screen or a slide
FORMULA = 40             # characters of a formula in a box of a trace; the table has all of it
DIRECTIONS = ("LR", "TB", "RL", "BT")
STYLES = ("operations", "variables")


class Drawing:
    """A picture: `.dot` is its Graphviz text, `.svg` its SVG; `.save(path)` writes by suffix. Shows itself in notebooks."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._svg: str | None = None
        self._dot: str | None = None
        self._slow = len(picture.boxes) > LARGEST or len(picture.edges) > LARGEST * 3 // 2

    @property
    def dot(self) -> str:
        """Graphviz text."""
        if self._dot is None:
            from .dot import to_dot
            self._dot = to_dot(self.picture)
        return self._dot

    @property
    def svg(self) -> str:
        """SVG text, by the first renderer that works in time; the layout of our own always does."""
        if self._svg is None:
            self._svg = self._render_svg()
        return self._svg

    def _render_svg(self) -> str:
        for _, render in [] if self._slow else rendering.renderers():
            data, self._slow = rendering.attempt(render, self.dot, "svg", seconds=SECONDS)
            if data is not None:
                return rendering.clean(data.decode("utf-8", "replace"))
            if self._slow:
                break
        from .layout import to_svg
        return to_svg(self.picture)

    @public
    def render(self, form: str) -> bytes:
        """The picture as bytes in a form: svg, png, pdf. FormatError says what to install when nobody can make it."""
        if not isinstance(form, str):
            raise NodeTypeError(f"a form is a str, not {type(form).__name__}")
        return self._rendered(form.lower())

    def _rendered(self, form: str) -> bytes:
        if form == "svg":
            return self.svg.encode()
        if form not in ("png", "pdf"):
            raise FormatError(f"render: no renderer for {show_name(form)!r}; there are svg, png, pdf")
        tried = []
        for placed in (True,) if self._slow else (False, True):
            text = self.dot
            if placed:                           # dot takes too long, or fails: our own layout, drawn by Graphviz
                from .layout import to_placed_dot
                text = to_placed_dot(self.picture)
            for name, render in rendering.renderers():
                if form == "pdf" and name == "graphviz-pure":
                    continue
                data, slow = rendering.attempt(render, text, form, placed=placed, seconds=SAVE_SECONDS)
                if data:
                    return data
                tried.append(name)
                if slow:
                    break
        what = rendering.INSTALL + ("" if form == "pdf" else " or pip install 'graphdiff[viz]'")
        problem = "none was found" if not tried else "failed with " + ", ".join(dict.fromkeys(tried))
        raise FormatError(f"save: {form.upper()} needs a renderer, and {problem}; install {what}. SVG, HTML and DOT need none")

    @public
    def save(self, path: Any) -> None:
        """Write by suffix: .svg .html .dot .gv .png .pdf. Where PNG or PDF cannot be made, the DOT text is written beside, and the
        error says so."""
        target = rendering.path_of(path)
        suffix = target.suffix.lower()
        if suffix in (".dot", ".gv"):
            target.write_text(self.dot, encoding="utf-8", newline="")
        elif suffix == ".svg":
            target.write_text(self.svg, encoding="utf-8", newline="")
        elif suffix in (".html", ".htm"):
            from .html import picture_page
            target.write_text(picture_page(self.svg), encoding="utf-8", newline="")
        elif suffix in (".png", ".pdf"):
            try:
                data = self._rendered(suffix[1:])
            except FormatError as error:
                beside = target.with_suffix(".dot")
                if beside.exists() and not _ours(beside):
                    raise
                beside.write_text(self.dot, encoding="utf-8", newline="")
                raise FormatError(f"{error}. Its DOT text is in {show_name(str(beside), 200)}: dot -T{suffix[1:]} draws it") from None
            target.write_bytes(data)
        else:
            raise FormatError(f"save: {rendering.no_format(target)}; there are .svg .html .png .pdf .dot")

    def __repr__(self) -> str:
        p = self.picture
        more = f", {p.hidden} nodes folded" if p.hidden else ""
        return f"<drawing: {len(p.boxes)} boxes, {len(p.edges)} edges{more}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "image/svg+xml": self.svg}


def _ours(path: Path) -> bool:
    """Is the file a DOT text that was written here?"""
    with path.open("rb") as f:
        return f.read(18) == b"digraph graphdiff "


def _check_look(style: Any, direction: Any) -> None:
    if not isinstance(style, str) or style not in STYLES:
        raise NodeTypeError(f"draw: style must be 'operations' or 'variables', not {style!r}")
    if not isinstance(direction, str) or direction not in DIRECTIONS:
        raise NodeTypeError(f"draw: direction must be one of {', '.join(DIRECTIONS)}, not {direction!r}")


# -- what is drawn -----------------------------------------------------------------------------------------------------

@public
def draw(y: Any, *, wrt: Any = None, at: Any = None, style: str = "operations", fold: bool = True, expand: Any = (),
         max_nodes: int | None = 200, direction: str = "LR", color: Any = None) -> Drawing:
    """A picture of a node, of a list of nodes or of a compiled function.

    wrt: nodes to differentiate with respect to; each adjoint node is drawn beside the primal it belongs to, and the reverse
    pass runs against the forward pass. at: {input: value}; edges then carry values forward and adjoints back, and what is not
    finite is red. style: "operations" (boxes are ops) or "variables" (ovals are v1, v2, ... with their formulas).

    fold: a call of a composed function such as gd.layer_norm is one box; a picture wider than about 2,000 pixels runs from top
    to bottom instead, with one box for the adjoint of an operation; blocks that repeat, found by their structure, are drawn
    once, marked "× N"; above max_nodes boxes, scopes are collapsed as well, and what is still too much is left out in the
    middle. expand: names of scopes and functions that are neither folded nor collapsed (NodeTypeError for a name that none
    has); fold=False folds nothing, max_nodes=None draws everything. direction: "LR", "TB", "RL" or "BT".

    color: "cost" (FLOPs), "value" or "adjoint" (largest absolute value, with at=), rows of f.cost() or f.profile(...), or a
    dict {node: number}.
    """
    _check_look(style, direction)
    if max_nodes is not None and (isinstance(max_nodes, bool) or not isinstance(max_nodes, int) or max_nodes < 1):
        raise ShapeError(f"draw: max_nodes must be a positive int or None, not {max_nodes!r}")
    if not isinstance(expand, (str, list, tuple, set, frozenset)) or not all(isinstance(e, str) for e in expand):
        raise NodeTypeError("draw: expand must be the name of a scope or a list of names")
    fold = flag(fold, "draw: fold")
    if not isinstance(y, (Node, list, tuple, dict)) and hasattr(type(y), "program") and hasattr(y, "outputs"):
        if wrt is not None or at is not None:
            raise NodeTypeError("draw: a compiled function is drawn as it is; wrt and at go with nodes")
        from .compiled import function_picture
        return Drawing(function_picture(y, direction=direction, max_nodes=max_nodes, fold=fold, style=style, expand=expand, color=color))
    outputs = list(y.values()) if isinstance(y, dict) else [y] if isinstance(y, Node) else list(y) if isinstance(y, (list, tuple)) else None
    if outputs is None or not all(isinstance(o, Node) for o in outputs):
        raise NodeTypeError(f"draw: a node, a list of nodes or a function is drawn, not {type(y).__name__}")
    if at is not None and not isinstance(at, Mapping):
        raise NodeTypeError(f"draw: at is a dict {{input: value}}, not {type(at).__name__}")
    names: dict[int, Any] = {}
    gradients: list[Node] = []
    targets: list[Node] = [] if wrt is None else node_list(wrt, "draw: wrt")
    if targets:
        gradients = _gradients(outputs, targets)
    if style == "variables":
        names = _variable_names(outputs, targets, gradients)
    labels = Labels(style, names).of
    single = True
    known = {id(g): t for t, g in zip(targets, gradients, strict=True)}

    def label(node: Node) -> tuple[str, ...]:
        lines = labels(node)
        target = known.get(id(node))
        if target is None or style == "variables":
            return lines
        name = f"d/d{show_name(target.label, 40)}"
        return (f"{name} = {lines[0]}" if single else name, *lines[1:])

    drawn = [*outputs, *gradients]
    options: dict[str, Any] = {}
    if at is not None:
        options = _value_options(drawn, at)
    if color is not None:
        options["colors"] = _colors(drawn, color, options.get("arrays", {}))
    options.pop("arrays", None)

    def view(direction: str, pairs: bool = False) -> Picture:
        nonlocal single
        single = not pairs                       # else the op of such a box is one of several
        return build(drawn, direction=direction, fold=fold, max_nodes=max_nodes, style=style, names=names, label=label if known else None,
                     expand=expand, calls=style != "variables", pairs=pairs, **options)

    picture = view(direction)
    if fold and max_nodes is not None and direction == "LR" and len(picture.boxes) <= LARGEST:
        picture = _readable(picture, view, bool(gradients) and at is None and color is None and style == "operations")
    return Drawing(picture)


def _readable(picture: Picture, view: Callable[..., Picture], both: bool) -> Picture:
    """The picture, or where it is a long strip another view of the same: from top to bottom, and with one box for all that belongs to the
    adjoint of a node."""
    from .layout import extent
    if extent(picture)[0] <= WIDE:
        return picture
    if both:
        picture = view("LR", True)
        if extent(picture)[0] <= WIDE:
            return picture
    turned = view("TB", both)
    return turned if extent(turned)[0] < extent(picture)[0] else picture


def _variable_names(outputs: Sequence[Node], targets: Sequence[Node], gradients: Sequence[Node]) -> dict[int, Any]:
    """v1, v2, ... as in a trace; v1bar for the gradients asked for."""
    from .numbering import names as name_nodes
    from .numbering import number
    names = name_nodes(number(toposort(outputs), ()))
    here = {id(n) for n in toposort([*outputs, *gradients])} if gradients else set()
    for t, g in zip(targets, gradients, strict=True):
        if id(t) in names and id(g) in here and id(g) not in names:
            names[id(g)] = names[id(t)].bar()
    return names


def _value_options(drawn: Sequence[Node], at: Mapping[Node, Any]) -> dict[str, Any]:
    """What build() needs to write values on edges and mark what is not finite."""
    from .run import values
    from .table import brief
    order = toposort(drawn)
    arrays = values(order, at)

    def text(node: Node) -> str:
        return "" if node.op.name == "constant" and node.shape == () else show_name(brief(arrays[id(node)]), 60)

    def bad(node: Node) -> bool:
        a = arrays[id(node)]
        return a.dtype.kind == "f" and not bool(np.isfinite(a).all())

    return {"edge_label": text, "bad": bad, "arrays": arrays, "often": False}


def _colors(drawn: Sequence[Node], color: Any, arrays: Mapping[int, Any]) -> Any:
    """The numbers that color= asks for."""
    from .color import Colors, magnitude, node_numbers
    from .scopes import is_adjoint
    order = toposort(drawn)
    if isinstance(color, str) and color in ("value", "adjoint"):
        if not arrays:
            raise NodeTypeError(f"draw: color={color!r} needs values: at={{input: value, ...}}")
        numbers = {id(n): magnitude(arrays[id(n)]) for n in order if is_adjoint(n) == (color == "adjoint")}
        return Colors(numbers, f"largest absolute {color}", add=False)
    return Colors(*node_numbers(order, color))


def _gradients(outputs: Sequence[Node], targets: Sequence[Node]) -> list[Node]:
    """The gradients of the sum of all outputs."""
    from ..diff.reverse import grad
    from ..ops.binary import add
    from ..ops.creation import ones_like
    total: list[Node] | None = None
    for y in outputs:
        gs = grad(y, list(targets), cotangent=None if y.shape == () else ones_like(y), unconnected="zero")
        total = gs if total is None else [add(a, b) for a, b in zip(total, gs, strict=True)]
    return total or []


def draw_trace(trace: Any, *, fold: bool = True, expand: Any = (), max_nodes: int | None = 200, direction: str = "LR",
               color: Any = None, style: str = "operations") -> Drawing:
    """A trace: values on forward edges, contributions to adjoints on reverse edges, NaN and Inf in red.

    style: "operations" or "variables" (ovals). color: "value" or "adjoint" (largest absolute value), or as in gd.draw.
    """
    _check_look(style, direction)
    from .table import brief
    theirs = {id(r.node): r for r in trace.rows}

    def lines(node: Node) -> tuple[str, ...]:
        row = theirs.get(id(node))
        if row is None:
            return (brief(trace.value(node)),)
        own = row.node
        first = f"{row.name} = {row.formula}"
        more = [] if id(node) in used else [f"= {brief(row.value)}"]
        if row.adjoint is not None and (row.index is None or row.index <= 0 or own is trace.y):
            more.append(f"{row.label.bar().text()} = {brief(row.adjoint)}")
        return (show_name(first, FORMULA), *[show_name(m, 80) for m in more])

    def value_of(node: Node) -> str:
        try:
            return show_name(brief(trace.value(node)), 60)
        except KeyError:
            return ""

    def bad(node: Node) -> bool:
        row = theirs.get(id(node))
        arrays = [row.value, row.adjoint] if row is not None else []
        return any(a is not None and a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays)

    used = {id(x) for n in trace.order if id(n) not in trace.given for x in n.inputs}
    reverse = []
    for row, c, _ in trace.arrivals():
        reverse.append((c.consumer, row.node, show_name(brief(c.value), 60)))
    names = {id(r.node): r.label for r in trace.rows}
    colors = None
    if isinstance(color, str) and color in ("value", "adjoint"):
        from .color import Colors, magnitude
        arrays = [(r.node, r.adjoint if color == "adjoint" else r.value) for r in trace.rows]
        colors = Colors({id(n): magnitude(a) for n, a in arrays if a is not None}, f"largest absolute {color}", add=False)
    elif color is not None:
        colors = _colors([trace.y], color, {})
    picture = build([trace.y], direction=direction, fold=fold, max_nodes=max_nodes, style=style, names=names, label=lines, edge_label=value_of,
                    reverse=reverse, bad=bad, stop=trace.given, expand=expand, often=False, colors=colors,
                    calls=False)
    return Drawing(picture)


__all__ = ["Drawing", "draw", "draw_trace", "renderer"]
