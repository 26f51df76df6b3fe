"""What a picture shows, before anybody draws it: boxes, edges, groups; and the graph made into that.

Dot text (dot.py) and the layout of our own (layout.py) both draw a Picture. Labels here are plain text, already made
visible by show_name; each drawer escapes them for its language. Boxes are called n0, n1, ...: no name of the user's is an
identifier anywhere.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import show_name
from ..graph.node import Node
from ..graph.walk import toposort
from ..specs import format_spec
from .formula import TEXT, formula, number_text

NAME = 60                      # characters of a name in a label
PERIOD = 512                   # longest block of nodes that is recognised when it repeats
LETTERS = "xyzuvw"             # operands, as the formulas of ops call them
# Operands of these may be swapped: their edges carry no letter. Only for looks.
SYMMETRIC = frozenset(("add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
                       "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "hypot", "fmax", "fmin", "concatenate"))


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


@dataclass(slots=True)
class Edge:
    """forward; adjoint: the reverse pass; use: a value used by the reverse pass; carry: to the next repetition."""

    src: str
    dst: str
    kind: str = "forward"
    label: str = ""

    @property
    def ranks(self) -> bool:
        """Does the edge decide the order of columns?"""
        return self.kind == "forward"


@dataclass(slots=True)
class Picture:
    """Boxes in running order, edges, and how the flow is drawn: LR, TB, RL or BT."""

    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    direction: str = "LR"
    hidden: int = 0            # nodes that are not boxes of their own


def symbol(node: Node) -> str:
    """The short label of an op."""
    op = node.op
    if op.symbol == "-" and len(node.inputs) == 1:
        return "-x"
    return op.symbol or op.name


def is_adjoint(node: Node) -> bool:
    """Was the node made by differentiation?"""
    return node.origin is not None and node.origin.kind == "adjoint"


def primal_of(node: Node, within: Mapping[int, Any]) -> Node | None:
    """The primal node beside which an adjoint node is drawn; None when it is not in the picture."""
    steps = 0
    while node.origin is not None and steps < 100:
        node, steps = node.origin.primal, steps + 1
    return node if steps and id(node) in within else None


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
    parts = [f"{k}={getattr(v, 'name', v)}" for k, v in zip(node.op.attr_names, node._attrs, strict=True)]
    return show_name(", ".join(parts), 200) if parts and node.op.family != "leaf" else ""


def tip(node: Node) -> str:
    """The text shown when the pointer rests on a box: op, spec, options, line."""
    text = f"{node.op.name} {format_spec(node.shape, node.dtype)}"
    options = options_text(node)
    site = node.site
    return text + (f" {options}" if options else "") + (f" at {show_name(str(site))}" if site is not None else "")


def kind_of(node: Node) -> str:
    if is_adjoint(node):
        return "adjoint"
    name = node.op.name
    return name if name in ("input", "variable", "constant") else "constant" if name == "dim" else "op"


def build(outputs: Sequence[Node], *, direction: str = "LR", fold: bool = True, max_nodes: int | None = 200, style: str = "operations",
          names: Mapping[int, Any] | None = None, label: Callable[[Node], tuple[str, ...]] | None = None,
          edge_label: Callable[[Node], str] | None = None, reverse: Sequence[tuple[Node, Node, str]] = (),
          bad: Callable[[Node], bool] | None = None, stop: Any = ()) -> Picture:
    """The picture of everything the outputs depend on.

    label, edge_label, reverse (consumer, operand, text) and bad are for traces: what is written on boxes, on the edges that
    leave a node, and on reverse edges; nothing behind the nodes in stop (ids) is drawn. Above max_nodes boxes, scopes are
    collapsed, then blocks that repeat, then the middle is left out.
    """
    order = toposort(outputs, stop=stop)
    groups = _Groups(order, fold, max_nodes)
    lines = label or Labels(style, names or {}).of
    picture = Picture(direction=direction)
    ids: dict[Any, str] = {}
    primal: dict[int, Node | None] = {}
    ends = {id(o) for o in outputs}
    here = {id(n): n for n in order}
    boxes: dict[str, Box] = {}
    position: dict[str, int] = {}
    for node in order:
        key = groups.key(node)
        if key in ids:
            picture.hidden += 1
            box = boxes[ids[key]]
            box.output = box.output or id(node) in ends
            if bad is not None and not box.bad:
                box.bad = bad(node)
            continue
        name = ids[key] = f"n{len(ids)}"
        position[name] = len(position)
        adjoint = is_adjoint(node)
        anchor = primal_of(node, here) if adjoint else None
        primal[id(node)] = anchor
        home = node if anchor is None else anchor
        scope = tuple(show_name(s, NAME) for s in home.scope.split("/")) if home.scope else ()
        told = groups.summary(key)
        if told is None:
            kind = "input" if id(node) in stop else kind_of(node)
            box = Box(name, lines(node), kind, tip(node), scope, None, id(node) in ends, bad is not None and bad(node))
            times = groups.times(node)
            if times > 1:
                box.cluster = (*scope, f"× {times}")
        else:
            box = Box(name, told, "adjoint" if adjoint and key[0] == "scope" else "summary", "several nodes", groups.cluster(key), None,
                      id(node) in ends)
        boxes[name] = box
        picture.boxes.append(box)
        if anchor is not None and told is None:
            box.anchor = ids.get(groups.key(anchor))
        elif told is not None and box.kind == "adjoint":
            box.anchor = ids.get((*key[:2], False))
    seen: set[Any] = set()
    summarised = groups.active
    for node in order:
        dst = ids[groups.key(node)]
        letters = edge_label is None and 1 < len(node.inputs) <= len(LETTERS) and node.op.name not in SYMMETRIC
        for k, x in enumerate(() if id(node) in stop else node.inputs):
            src = ids[groups.key(x)]
            kind = "forward" if not is_adjoint(node) or boxes[dst].kind == "summary" else "adjoint" if is_adjoint(x) else "use"
            text = edge_label(x) if edge_label is not None else LETTERS[k] if letters else ""
            if summarised:
                if src == dst and not groups.folded(node):
                    continue
                if position[src] >= position[dst] and groups.folded(node):
                    kind, text = "carry", "next"
                several = groups.folded(node) or any(groups.summary(groups.key(n)) is not None for n in (node, x))
                if (src, dst, kind) in seen and (several or src == dst):
                    continue
                seen.add((src, dst, kind))
            picture.edges.append(Edge(src, dst, kind, text))
    for consumer, operand, text in reverse:
        src, dst = ids[groups.key(consumer)], ids[groups.key(operand)]
        if src != dst and (not summarised or (src, dst, "adjoint") not in seen):
            if summarised:
                seen.add((src, dst, "adjoint"))
            picture.edges.append(Edge(src, dst, "adjoint", text))
    if summarised:
        picture.boxes = _running_order(picture)
    return picture


def _running_order(p: Picture) -> list[Box]:
    """Boxes so that forward edges lead onwards, but for those that close a cycle (groups may depend on each other)."""
    into: dict[str, list[str]] = {b.id: [] for b in p.boxes}
    for e in p.edges:
        if e.ranks:
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


class _Groups:
    """Which nodes share a box: key(node) is the same for them."""

    def __init__(self, order: Sequence[Node], fold: bool, max_nodes: int | None) -> None:
        self._keys: dict[int, Any] = {}
        self._sizes: Counter[Any] = Counter()
        self._times: dict[int, int] = {}
        self._hidden: set[int] = set()
        self.active = False
        if max_nodes is None or len(order) <= max_nodes:
            return
        self.active = True
        if fold:
            if any(n.scope for n in order) and self._scopes(order, max_nodes):
                return
            self._repeats(order)
        self._cut(order, max_nodes)
        for n in order:
            key = self._keys.get(id(n))
            if key is not None:
                self._sizes[key] += 1

    def key(self, node: Node) -> Any:
        return self._keys.get(id(node)) or ("node", id(node))

    def summary(self, key: Any) -> tuple[str, ...] | None:
        """Label lines of a box that stands for several nodes of different kinds; None for an ordinary box."""
        if key[0] == "scope":
            n = self._sizes[key]
            name = show_name(key[1].rsplit("/", 1)[-1], NAME)
            return (name + (" (adjoint)" if key[2] else ""), f"{n} node{'s' if n > 1 else ''}")
        if key[0] == "cut":
            return (f"… {self._sizes[key]} nodes more",)
        return None

    def cluster(self, key: Any) -> tuple[str, ...]:
        return tuple(show_name(s, NAME) for s in key[1].split("/")[:-1]) if key[0] == "scope" else ()

    def times(self, node: Node) -> int:
        return self._times.get(id(node), 1)

    def folded(self, node: Node) -> bool:
        return id(node) in self._hidden

    def _scopes(self, order: Sequence[Node], max_nodes: int) -> bool:
        """Collapse scopes, the innermost first, until the picture is small enough."""
        here = {id(n): n for n in order}
        scope = {}
        for n in order:
            home = primal_of(n, here) if is_adjoint(n) else None
            scope[id(n)] = (n if home is None else home).scope
        depth = max(s.count("/") for s in scope.values()) + 1
        for d in range(depth, 0, -1):
            keys: dict[int, Any] = {}
            for n in order:
                parts = scope[id(n)].split("/") if scope[id(n)] else []
                if len(parts) >= d:
                    keys[id(n)] = ("scope", "/".join(parts[:d]), is_adjoint(n))
            count = len(order) - len(keys) + len(set(keys.values()))
            if count <= max_nodes or d == 1:
                self._keys, self._sizes = keys, Counter(keys.values())
                return count <= max_nodes
        return False

    def _repeats(self, order: Sequence[Node]) -> None:
        """Fold runs of equal consecutive blocks onto their first block."""
        if any(k[0] == "scope" for k in self._keys.values()):
            return
        seq = [n for n in order if n.op.family != "leaf"]
        at = {id(n): i for i, n in enumerate(seq)}
        kinds: dict[Any, int] = {}
        static = [kinds.setdefault((n.op.name, n.shape, n.dtype, len(n.inputs), n._attrs, is_adjoint(n)), len(kinds)) for n in seq]
        rep: dict[int, int] = {}            # id -> id of the node that is drawn for it
        taken = bytearray(len(seq))

        def drawn(n: Node) -> int:
            return rep.get(id(n), id(n))

        def same(i: int, j: int) -> bool:
            if static[i] != static[j] or taken[i] or taken[j]:
                return False
            for a, b in zip(seq[i].inputs, seq[j].inputs, strict=True):
                if a is b or drawn(a) == drawn(b):
                    continue
                p, q = at.get(id(a)), at.get(id(b))
                if p is None or q is None:
                    if p is not q or a.op is not b.op or a.shape != b.shape or a.op.name == "input":
                        return False
                elif p - q != i - j:
                    return False
            return True

        for _ in range(8 if len(seq) < 200_000 else 2):      # each round is a few walks over everything
            best = (0, 0, 0)
            last: dict[int, int] = {}
            gaps: Counter[int] = Counter()
            for i, s in enumerate(static):
                if not taken[i]:
                    if s in last and i - last[s] <= PERIOD:
                        gaps[i - last[s]] += 1
                    last[s] = i
            for period, _ in gaps.most_common(6):
                run = 0
                for i in range(len(seq) - period + 1):
                    if i < len(seq) - period and same(i, i + period):
                        run += 1
                        continue
                    saved = run // period * period
                    if saved > best[0]:
                        best = (saved, i - run, period)
                    run = 0
            saved, start, period = best
            if saved < max(4, period):
                break
            times = saved // period + 1
            for i in range(start, start + period):
                self._times[id(seq[i])] = times
                taken[i] = 1
                for k in range(1, times):
                    j = i + k * period
                    taken[j] = 1
                    rep[id(seq[j])] = id(seq[i])
                    self._hidden.add(id(seq[j]))
                    for a, b in zip(seq[i].inputs, seq[j].inputs, strict=True):
                        if a is not b and id(a) not in at and id(b) not in at and id(b) not in rep:
                            rep[id(b)] = drawn(a)
                            self._hidden.add(id(b))
                            self._times[id(a)] = times
        for n in order:
            if id(n) in rep:
                self._keys[id(n)] = ("node", rep[id(n)])

    def _cut(self, order: Sequence[Node], max_nodes: int) -> None:
        """Leave the middle out."""
        drawn: list[Any] = list(dict.fromkeys(self.key(n) for n in order))
        if len(drawn) <= max_nodes:
            return
        front = max(0, (max_nodes - 1) // 2)
        back = max(0, max_nodes - 1 - front)
        middle = set(drawn[front:len(drawn) - back])
        for n in order:
            if self.key(n) in middle:
                self._keys[id(n)] = ("cut",)
