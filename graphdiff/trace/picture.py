"""What a picture shows, before anybody draws it: boxes, edges, groups; and the graph made into that.

Dot text (dot.py) and the layout of our own (layout.py) both draw a Picture. Labels here are plain text, already made
visible by show_name; each drawer escapes them for its language. Boxes are called n0, n1, ...: no name of the user's is an
identifier anywhere.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import show_name
from ..graph.node import Node
from ..graph.walk import toposort
from ..specs import format_spec
from .alike import NAME
from .fold import Fold
from .formula import TEXT, formula, number_text
from .scopes import is_adjoint, primal_of

LETTERS = "xyzuvw"             # operands, as the formulas of ops call them
# Operands of these may be swapped: their edges carry no letter. Only for looks.
SYMMETRIC = frozenset(("add", "multiply", "zmul", "zmul_either", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
                       "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "hypot", "fmax", "fmin", "concatenate"))
# What a reader expects where the op's own symbol is made for tables: zmul is a product whose strong zero the tip explains.
SHOWN = {"zmul": "×", "zmul_either": "×", "negative": "neg", "subtract": "−"}


@dataclass(slots=True)
class Box:
    """One box: input, variable, constant, op, adjoint, summary, memory. `anchor`: the box of the primal it is drawn beside."""

    id: str
    label: tuple[str, ...]
    kind: str
    tip: str = ""
    cluster: tuple[str, ...] = ()
    anchor: str | None = None
    output: bool = False
    bad: bool = False          # holds NaN or Inf
    fill: str = ""             # a colour of a scale, instead of that of the kind
    oval: bool = False         # drawn as a variable


@dataclass(slots=True)
class Edge:
    """forward; adjoint: the reverse pass; use: a value used by the reverse pass; carry: to the next repetition.

    back: the arrow leads against the flow of the picture, from right to left; its target stands in an earlier column.
    """

    src: str
    dst: str
    kind: str = "forward"
    label: str = ""

    @property
    def back(self) -> bool:
        return self.kind == "adjoint"

    @property
    def ranks(self) -> bool:
        """Does the edge decide the order of columns?"""
        return self.kind in ("forward", "adjoint")


@dataclass(slots=True)
class Picture:
    """Boxes in running order, edges, and how the flow is drawn: LR, TB, RL or BT."""

    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    direction: str = "LR"
    hidden: int = 0            # nodes that are not boxes of their own
    legend: str = ""           # what the colours mean
    memory: Any = None         # a memory.Map, drawn below

    def heads(self) -> dict[str, str]:
        """{id of a primal box: id of the box of its adjoint}: pairs that stand side by side. Of several adjoint boxes of one
        primal the last is taken, the sum of the others."""
        known = {b.id for b in self.boxes}
        return {b.anchor: b.id for b in self.boxes if b.anchor is not None and b.anchor in known and b.anchor != b.id}


def symbol(node: Node) -> str:
    """The short label of an op."""
    op = node.op
    return SHOWN.get(op.name) or op.symbol or op.name


class Labels:
    """Label lines of nodes; specs are cached, since large graphs have few of them."""

    def __init__(self, style: str, names: Mapping[int, Any]) -> None:
        self.style = style
        self.names = names
        self._specs: dict[Any, str] = {}

    def spec(self, node: Node) -> str:
        key = node.shape, node.dtype
        text = self._specs.get(key)
        if text is None:
            plain = node.shape == () and node.dtype.name == "float64"
            text = self._specs[key] = "" if plain else format_spec(node.shape, node.dtype)
        return text

    def of(self, node: Node) -> tuple[str, ...]:
        """The lines of a box."""
        name = node.op.name
        spec = self.spec(node)
        label = self.names.get(id(node))
        shown = None if node.name is None else show_name(node.name, NAME)
        if name == "constant" and node.shape == ():
            number = number_text(node._attrs[0][()])
            return (number,) if shown is None else (f"{shown} = {number}",)
        if node.op.family == "leaf":
            first = shown if shown is not None else show_name(str(node._attrs[0]), NAME) if name == "dim" else name
            if self.style == "variables" and label is not None and label.text() != first:
                first = f"{label.text()} = {first}"
            return (first, spec) if spec else (first,)
        if self.style == "variables":
            text = show_name(formula(node, lambda n: self.names.get(id(n)), TEXT, 3, top=True).text, NAME)
            lines = (label.text(), f"= {text}") if label is not None else (text,)
        else:
            lines = (symbol(node),) if shown is None else (f"{shown} = {symbol(node)}",)
        return (*lines, spec) if spec else lines


def options_text(node: Node) -> str:
    """The options of an op on one line."""
    parts = [f"{k}={getattr(v, 'name', v)}" for k, v in zip(node.op.attr_names, node._attrs, strict=True) if k != "refusal"]
    return show_name(", ".join(parts), 200) if parts and node.op.family != "leaf" else ""


def tip(node: Node) -> str:
    """The text shown when the pointer rests on a box: op, spec, options, line."""
    text = f"{node.op.name} {format_spec(node.shape, node.dtype)}"
    options = options_text(node)
    site = node.site
    return text + (f" {options}" if options else "") + (f" at {show_name(str(site))}" if site is not None else "")


def call_lines(result: Node, function: str, specs: Labels) -> tuple[str, ...]:
    """A box for the call of a composed function: its name, and what comes out."""
    first = function if result.name is None else f"{show_name(result.name, NAME)} = {function}"
    spec = specs.spec(result)
    return (first, spec) if spec else (first,)


def call_tip(result: Node, function: str) -> str:
    site = result.site
    return f"{function} {format_spec(result.shape, result.dtype)}, several nodes" + (f" at {show_name(str(site))}" if site is not None else "")


def kind_of(node: Node) -> str:
    if is_adjoint(node):
        return "adjoint"
    name = node.op.name
    return name if name in ("input", "variable", "constant") else "constant" if name == "dim" else "op"


def build(outputs: Sequence[Node], *, direction: str = "LR", fold: bool = True, max_nodes: int | None = 200, style: str = "operations",
          names: Mapping[int, Any] | None = None, label: Callable[[Node], tuple[str, ...]] | None = None,
          edge_label: Callable[[Node], str] | None = None, reverse: Sequence[tuple[Node, Node, str]] = (),
          bad: Callable[[Node], bool] | None = None, stop: Any = (), expand: Any = (), colors: Any = None,
          often: bool = True, calls: bool = True, pairs: bool = False) -> Picture:
    """The picture of everything the outputs depend on.

    label, edge_label, reverse (consumer, operand, text), bad and colors (color.Colors) are for traces: what is written on boxes, on the edges
    that leave a node, on reverse edges, and how boxes are filled; nothing behind the nodes in stop (ids) is drawn. Which nodes
    share a box: see fold.py; often=False leaves small pictures as they are, calls=False opens every call of a composed function, pairs=True
    draws one adjoint box for a primal one.
    """
    order = toposort(outputs, stop=stop)
    groups = Fold(order, fold=fold, max_nodes=max_nodes, expand=expand, often=often, keep={id(o) for o in outputs},
                  calls=calls, pairs=pairs)
    lines_of_specs = Labels(style, names or {})
    lines = label or lines_of_specs.of
    picture = Picture(direction=direction)
    ids: dict[Any, str] = {}
    ends = {id(o) for o in outputs}
    here = {id(n): n for n in order}
    boxes: dict[str, Box] = {}
    position: dict[str, int] = {}
    shared: set[Any] = set()
    members: dict[str, list[Node]] = {}
    for node in order:
        key = groups.key(node)
        if colors is not None:
            members.setdefault(ids.get(key) or f"n{len(ids)}", []).append(node)
        if key in ids:
            picture.hidden += 1
            shared.add(key)
            box = boxes[ids[key]]
            if node.op.family == "leaf" and node.name is not None and key[0] == "node" and box.kind in ("input", "variable"):
                first = here[key[1]].name
                if first is not None and first != node.name:          # one box for x0, x1, ...: from the first to the last
                    box.label = (f"{show_name(first, NAME)} … {show_name(node.name, NAME)}", *box.label[1:])
            if id(node) in ends:
                box.output = True
                if key[0] == "node":
                    box.label = lines(node)
            if bad is not None and not box.bad:
                box.bad = bad(node)
            continue
        name = ids[key] = f"n{len(ids)}"
        position[name] = len(position)
        adjoint = is_adjoint(node)
        anchor = primal_of(node, here) if adjoint else None
        told = groups.summary(key)
        result = groups.result(key)
        if result is not None:
            told = call_lines(result, groups.called(key[1]), lines_of_specs)
        drawn = node
        if key[0] == "node" and key[1] != id(node):        # the node that stands for this one comes later in the order
            drawn = here[key[1]]
            anchor = primal_of(drawn, here) if adjoint else None
        primal = groups.paired(key)
        if primal is not None:
            told = (f"{lines(primal)[0]} (adjoint)",)
        group = groups.cluster(drawn, key)
        if told is None:
            kind = "input" if id(drawn) in stop else kind_of(drawn)
            box = Box(name, lines(drawn), kind, tip(drawn), group, None, id(node) in ends,
                      bad is not None and bad(node), "", style == "variables" and kind != "constant")
        else:
            backward = primal is not None or (key[0] in ("scope", "block") and key[2])
            box = Box(name, told, "op" if result is not None else "adjoint" if backward else "summary",
                      "several nodes" if result is None else call_tip(result, groups.called(key[1])), group, None,
                      id(node) in ends, bad is not None and bad(node))
        if calls and group and box.label[0].startswith((f"{group[-1]}.", f"d/d{group[-1]}.")):      # the frame says it
            box.label = (box.label[0].replace(f"{group[-1]}.", "", 1), *box.label[1:])
        boxes[name] = box
        picture.boxes.append(box)
        if anchor is not None and told is None:
            box.anchor = ids.get(groups.key(anchor))
        elif told is not None and box.kind == "adjoint":
            pair = None if primal is not None else ids.get((*key[:2], False))
            anchor = anchor if primal is None else primal
            box.anchor = pair or (None if anchor is None else ids.get(groups.key(anchor)))
    seen: set[Any] = set()
    summarised = groups.active
    for node in order:
        dst = ids[groups.key(node)]
        letters = edge_label is None and groups.key(node)[0] == "node" and 1 < len(node.inputs) <= len(LETTERS) and node.op.name not in SYMMETRIC
        for k, x in enumerate(() if id(node) in stop else node.inputs):
            src = ids[groups.key(x)]
            kind = "forward" if not is_adjoint(node) or boxes[dst].kind == "summary" else "adjoint" if is_adjoint(x) else "use"
            text = edge_label(x) if edge_label is not None else LETTERS[k] if letters else ""
            if summarised:
                repeated = groups.folded(node) or groups.folded(x)
                if src == dst and not (repeated and groups.key(node)[0] == "node"):
                    continue
                if repeated and position[src] >= position[dst]:
                    kind, text = "carry", "next"
                several = groups.key(node) in shared or groups.key(x) in shared
                if (src, dst, kind) in seen and (several or src == dst):
                    continue
                if kind == "carry" and ((src, dst, "forward") in seen or (src, dst, "adjoint") in seen):
                    continue
                seen.add((src, dst, kind))
                if several and kind != "carry":
                    true = edge_label is None or all(k not in shared or groups.is_call(k) for k in (groups.key(node), groups.key(x)))
                    text = text if true and not repeated else ""
            picture.edges.append(Edge(src, dst, kind, text))
    for consumer, operand, text in reverse:
        src, dst = ids[groups.key(consumer)], ids[groups.key(operand)]
        if not summarised:
            picture.edges.append(Edge(src, dst, "adjoint", text))
            continue
        repeated = groups.folded(consumer) or groups.folded(operand)
        onward = repeated and operand.op.family != "leaf" and position[dst] >= position[src]      # the dashed edge says it
        if src != dst and not onward and (src, dst, "adjoint") not in seen:
            seen.add((src, dst, "adjoint"))
            several = repeated or groups.key(consumer) in shared or groups.key(operand) in shared
            picture.edges.append(Edge(src, dst, "adjoint", "" if several else text))
    if colors is not None:
        colors.paint(picture, members)
    if summarised:
        picture.boxes = _running_order(picture, backwards=bool(reverse))
    return picture


def _running_order(p: Picture, backwards: bool) -> list[Box]:
    """Boxes so that forward edges lead onwards, but for those that close a cycle (groups may depend on each other). backwards: edges of
    the reverse pass lead back to boxes of the forward pass, and not on to boxes of their own."""
    into: dict[str, list[str]] = {b.id: [] for b in p.boxes}
    for e in p.edges:
        if e.ranks and not (backwards and e.back):
            into[e.dst].append(e.src)
    boxes = {b.id: b for b in p.boxes}
    out: list[Box] = []
    state: dict[str, int] = {}           # 1: entered, 2: done
    for b in p.boxes:
        stack = [b.id]
        while stack:
            name = stack[-1]
            if state.get(name) is None:
                state[name] = 1
                stack += [s for s in into[name] if s not in state]
            else:
                stack.pop()
                if state[name] == 1:
                    state[name] = 2
                    out.append(boxes[name])
    return out
