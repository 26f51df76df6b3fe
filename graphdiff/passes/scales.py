"""What exponentials can be scaled by, exp(m), and the values that are made of them, each term with a power of exp(m) of its own: a `Part`."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import VIEWS, Ordered, renewed

GATHERS = frozenset(("gather", "gather_along"))


class Moved(NamedTuple):
    """How a scale's m was moved: by an op, beside other operands, from where its axes were in an array of a shape."""

    scale: Scale
    places: tuple[int, ...]
    before: tuple[int, ...]
    op: str
    attrs: tuple[Any, ...]
    others: tuple[Node, ...]        # as they were before the rewriting
    after: tuple[int, ...]


class Scale:
    """exp(m) of e, which is exp(x) whose sums go over `axes`; exp(x) to which something is added, without axes; or a softmax or a sigmoid
    that divides, with its logarithm for m. Or one of these, elements of which were picked."""

    __slots__ = ("axes", "e", "falls", "moved", "one_sided", "powers", "root", "shift", "twin")

    def __init__(self, e: Node, axes: tuple[int, ...], moved: Moved | None = None) -> None:
        self.e, self.axes, self.moved = e, axes, moved
        self.root: Scale = self if moved is None else moved.scale.root
        self.falls = e.op.name in ("softmax", "sigmoid")            # m <= 0
        self.one_sided = not axes                   # m >= 0 (where it falls: m <= 0): parts of different powers can divide together
        self.shift: Node | None = None              # m, of e's shape, 1 along axes; made when it is needed
        self.powers: dict[int, Node] = {}           # exp(power m)
        self.twin: Node | None = None               # sigmoid(x), if e is exp(x) to which something is added

    @property
    def is_softplus(self) -> bool:
        """m is softplus(x)."""
        return not (self.axes or self.falls or self.moved)


class Part(NamedTuple):
    """One term of a value: twin * exp(power * m)."""

    power: int
    twin: Node
    written: Node               # the term without scale
    divides: bool = False       # the twin is positive, and near zero only where the value is
    crossed: bool = False       # what is written may be inf / inf or 0 * inf


class Value(NamedTuple):
    """A node as a sum of parts, of different powers."""

    scale: Scale
    places: tuple[int, ...]     # where the axes of m are, of those longer than 1; counted from the end
    parts: tuple[Part, ...]
    silent: bool = False        # a derivative, or made of one: a twin that is exactly 0 is a cotangent that stays 0

    @property
    def overflows(self) -> bool:
        """What is written may be infinite: it must not lose its scale. (What is 0 instead does no harm by itself.)"""
        scale = self.scale
        return any(p.power * (-1 if scale.falls else 1) > 0 for p in self.parts) if scale.one_sided else any(p.power for p in self.parts)


def long_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Those of the axes that are longer than 1, counted from the end."""
    return tuple([a - len(shape) for a in axes if shape[a] != 1])


def is_one(node: Node) -> bool:
    if node.op.name == "broadcast_to":
        node = node.inputs[0]
    return node.op.name == "constant" and node.shape == () and bool(node._attrs[0] == 1)


def is_zero(node: Node) -> bool:
    if node.op.name == "broadcast_to":
        node = node.inputs[0]
    return node.op.name == "constant" and node.dtype.kind == "f" and not node._attrs[0].any()


def is_positive(node: Node) -> bool:
    return node.op.name == "constant" and node.dtype.kind == "f" and bool((node._attrs[0] > 0).all())


def unsigned(x: Node) -> int:
    return id(x.inputs[0] if x.op.name == "negative" else x)


_DIVIDING = frozenset(("divide", "reciprocal", "log", "log2", "log10", "xlogy"))
_PASSED = VIEWS | GATHERS | frozenset(("cast", "concatenate", "divide", "multiply", "reciprocal", "square", "where", "zmul", "zmul_either"))
_FACTORS = VIEWS | GATHERS | frozenset(("add", "cast", "concatenate", "divide", "multiply", "reciprocal", "square", "sum", "where"))
MEETING = frozenset(("divide", "multiply", "zmul", "zmul_either"))
_MADE = _PASSED | frozenset(("add", "negative", "subtract", "sum"))
_POSITIVE = frozenset(("exp", "exp2", "sigmoid", "softmax", "softplus"))


def _like(order: Sequence[Node], exponentials: Sequence[int]) -> set[int]:
    """Ids of what is made of such values and of constants alone."""
    found = set(exponentials)
    for node in order:
        name = node.op.name
        if name in ("constant", "sigmoid", "softmax") or (
                name in _MADE and all(id(x) in found for x in node.inputs if x.dtype.kind == "f")):
            found.add(id(node))
    return found


def _divisors(order: Sequence[Node], like: set[int]) -> set[int]:
    """Ids of what divides, or of which a logarithm is taken, and of the factors of that, also before elements of them were picked. Not where
    a factor is of another kind: its square, by which the derivative of a quotient divides, may be too small for what is not."""
    found: set[int] = set()
    for node in reversed(order):
        name = node.op.name
        if name in _DIVIDING:
            x = node.inputs[-1]
            if name != "log" or x.op.name != "softmax":         # that is log_softmax
                found.add(id(x))
        if name in _PASSED and id(node) in found and (name not in MEETING or id(node) in like):
            found.update([id(x) for x in node.inputs])
    return found


def scales(order: Sequence[Node]) -> dict[Any, dict[int, Scale]]:
    """By what is rewritten together, then by id: exponentials of which there are sums, by axes; those to which a constant is added;
    softmaxes that divide; sigmoids that divide, those of -x by themselves: they share their derivative with those of x."""
    found: dict[Any, dict[int, Scale]] = {}

    def note(e: Node, key: Any, axes: tuple[int, ...]) -> None:
        if e.dtype.kind == "f":
            found.setdefault(key, {}).setdefault(id(e), Scale(e, axes))

    falling = False
    for node in order:
        name = node.op.name
        if name == "sum" and node.inputs[0].op.name == "exp":
            note(node.inputs[0], node._attrs[0], node._attrs[0])
        elif name == "add":
            for x, other in (node.inputs, node.inputs[::-1]):
                if x.op.name == "exp" and x.shape == node.shape and is_positive(other):
                    note(x, (), ())
        elif name in ("sigmoid", "softmax"):
            falling = True
    dividing = _divisors(order, _like(order, [e for by_id in found.values() for e in by_id])) if falling else ()
    for node in order if dividing else ():
        if id(node) in dividing:
            if node.op.name == "softmax":
                note(node, ("softmax",), ())
            elif node.op.name == "sigmoid":
                note(node, ("sigmoid", node.inputs[0].op.name == "negative"), ())
    return found


def positives(order: Sequence[Node]) -> set[int]:
    """Ids of what is known to be positive, or 0 only by rounding."""
    found: set[int] = set()
    for node in order:
        name = node.op.name
        if name in _POSITIVE or (name == "constant" and is_positive(node)) or (
                name in _FACTORS and all(id(x) in found for x in node.inputs if x.dtype.kind == "f")):
            if node.dtype.kind == "f":
                found.add(id(node))
    return found


def _as_sigmoid(node: Node) -> tuple[Node, bool] | None:
    """x, and whether it is minus that, of what is sigmoid(x) = exp(x) / (1 + exp(x)) or sigmoid(-x) = 1 / (1 + exp(x))."""
    name = node.op.name
    if name == "sigmoid":
        return node.inputs[0], False
    if name == "reciprocal":
        top, below = None, node.inputs[0]
    elif name == "divide":
        top, below = node.inputs
    elif name == "multiply":
        top, below = node.inputs if node.inputs[0].op.name == "exp" else node.inputs[::-1]
        inverse = below
        if inverse.op.name == "reciprocal" or (inverse.op.name == "divide" and is_one(inverse.inputs[0])):
            below = inverse.inputs[-1]
        else:
            return None
    else:
        return None
    if below.op.name != "add" or below.shape != node.shape:
        return None
    for e, one in (below.inputs, below.inputs[::-1]):
        if e.op.name == "exp" and is_one(one) and e.shape == node.shape and (top is None or is_one(top) or top is e):
            return e.inputs[0], top is not e
    return None


class Step(NamedTuple):
    """An op of the node before it, beside others."""

    op: str
    attrs: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: Any = None               # None: that of the node before it
    others: tuple[Node, ...] = ()


def _in_a_row(start: Node, steps: Sequence[Step], node: Node, before: float, kept: list[Node]) -> Node:
    """What steps make of a node in the place of another one, behind serial `before`."""
    here = start
    for k, step in enumerate(steps, 1):
        here = new_node(lookup(step.op), (here, *step.others), step.attrs, step.shape, step.dtype or here.dtype, node._site, node.origin,
                        node.name if k == len(steps) else None, node.scope, before + (node.serial - before) * k / len(steps))
        kept.append(here)
    return here


def _rest_of(x: Node) -> tuple[list[Node], tuple[Node, bool]] | None:
    """Of p, of which it is 1 - p that is wanted: how elements of a sigmoid were picked, the last first, and what the sigmoid is of."""
    picks: list[Node] = []
    while x.op.name in VIEWS or x.op.name in GATHERS or (x.op.name == "cast" and x.inputs[0].dtype.kind == "f"):
        picks.append(x)
        x = x.inputs[0]
    of = _as_sigmoid(x)
    return None if of is None else (picks, of)


def turned_sigmoids(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """1 - sigmoid(x) that divides, or of which the logarithm is taken, as sigmoid(-x), which does not lose its digits; also of elements that were
    picked before."""
    turned: dict[int, tuple[list[Node], tuple[Node, bool]]] = {}
    for node in order:
        if node.dtype.kind != "f":
            continue
        x = node.inputs[-1] if node.inputs else node
        if node.op.name in _DIVIDING and x.op.name == "subtract" and is_one(x.inputs[0]) and x.shape == x.inputs[1].shape:
            found = _rest_of(x.inputs[1])
        elif node.op.name == "log1p" and x.op.name == "negative":
            x, found = node, _rest_of(x.inputs[0])
        else:
            continue
        if found is not None:
            turned[id(x)] = found
    if not turned:
        return list(order), list(outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    before = -1.0
    for node in order:
        here = renewed(node, new)
        rest = turned.get(id(node))
        if rest is not None:
            picks, (x, minus) = rest
            here = new[id(x)]
            steps = [Step("sigmoid", (), x.shape)]
            if here.op.name == "negative" and not minus:
                here = here.inputs[0]
            elif not minus:                                     # 1 - sigmoid(-x) is sigmoid(x)
                steps.insert(0, Step("negative", (), x.shape))
            steps += [Step(p.op.name, p._attrs, p.shape, p.dtype, tuple([new[id(y)] for y in p.inputs[1:]])) for p in reversed(picks)]
            if node.op.name == "log1p":
                steps.append(Step("log", (), node.shape))
            here = _in_a_row(here, steps, node, before, kept)
        else:
            kept.append(here)
        before = node.serial
        new[id(node)] = here
    return kept, [new[id(o)] for o in outputs]


def _as_softmax(node: Node) -> tuple[Node, tuple[int, ...]] | None:
    """e = exp(x) and the axes of the sum, of what is e / sum(e)."""
    if node.op.name == "divide":
        e, below = node.inputs
    elif node.op.name == "multiply":
        e, inverse = node.inputs if node.inputs[0].op.name == "exp" else node.inputs[::-1]
        if inverse.op.name == "broadcast_to":
            inverse = inverse.inputs[0]
        if inverse.op.name != "reciprocal" and not (inverse.op.name == "divide" and is_one(inverse.inputs[0])):
            return None
        below = inverse.inputs[-1]
    else:
        return None
    if e.op.name != "exp" or e.shape != node.shape:
        return None
    if below.op.name == "broadcast_to":
        below = below.inputs[0]
    total = below.inputs[0] if below.op.name == "reshape" else below
    if total.op.name != "sum" or total.inputs[0] is not e:
        return None
    axes = total._attrs[0]
    kept = tuple([1 if a in axes else n for a, n in enumerate(e.shape)])
    return (e, axes) if (1,) * (len(kept) - len(below.shape)) + below.shape == kept else None


def softmax_over(axes: tuple[int, ...], shape: tuple[int, ...]) -> list[Step]:
    """The steps that make a softmax of x; none if the axes are not side by side."""
    if len(axes) == 1:
        return [Step("softmax", axes, shape)]
    if axes != tuple(range(axes[0], axes[-1] + 1)):
        return []
    flat = (*shape[:axes[0]], math.prod([shape[a] for a in axes]), *shape[axes[-1] + 1:])
    return [Step("reshape", (flat,), flat), Step("softmax", axes[:1], flat), Step("reshape", (shape,), shape)]


def made_softmaxes(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """e / sum(e) as a softmax, e / (1 + e) as a sigmoid, where e = exp(x) can be scaled in more ways than one, and softmaxes over axes side by side.

    In the gradient of a product of two of them the e of one would cancel with the divisor of the other, and leave a divisor that nothing cancels
    with. Over several axes the logarithm would be that of what may be 0.
    """
    kinds: dict[int, int] = {}
    several = False
    for key, by_id in scales(order).items():
        several = several or (len(key) > 1 and not isinstance(key[0], str))
        for e in by_id:
            kinds[e] = kinds.get(e, 0) + 1
    if not several and all(n < 2 for n in kinds.values()):
        return list(order), list(outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    before = -1.0
    for node in order:
        here = renewed(node, new)
        found = _softmax_steps(node, kinds)
        if found is not None:
            here = _in_a_row(new[id(found[0])], found[1], node, before, kept)
        else:
            kept.append(here)
        before = node.serial
        new[id(node)] = here
    return kept, [new[id(o)] for o in outputs]


def _softmax_steps(node: Node, kinds: dict[int, int]) -> tuple[Node, list[Step]] | None:
    """What takes the place of a node: where it begins, and the ops, each of the one before."""
    softmax = _as_softmax(node)
    if softmax is not None:
        e, axes = softmax
        steps = softmax_over(axes, node.shape)
        return (e.inputs[0], steps) if steps and (len(axes) > 1 or kinds.get(id(e), 0) > 1) else None
    if node.op.name == "divide" and kinds.get(id(node.inputs[0]), 0) > 1:
        sigmoid = _as_sigmoid(node)
        if sigmoid is not None and not sigmoid[1]:
            return sigmoid[0], [Step("sigmoid", (), node.shape)]
    return None
