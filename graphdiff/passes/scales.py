"""What exponentials can be scaled by, exp(m), and the values that are made of them, each term with a power of exp(m) of its own: a `Part`."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..diff.forms import DIVIDING, PASSED, PLACED, SAME, Form, divisors, log_rest, picked, sigmoid_by_hand, softmax_by_hand
from ..graph.build import CONTEXT
from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from ..graph.walk import toposort
from .simplify import Ordered, merge, renewed


class Moved(NamedTuple):
    """How a scale's m was moved: by an op, beside other operands, from where its axes were in an array of a shape."""

    scale: Scale
    places: tuple[int, ...]
    before: tuple[int, ...]
    op: str
    attrs: tuple[Any, ...]
    others: tuple[Node, ...]        # as they were before the rewriting
    after: tuple[int, ...]


class Joined(NamedTuple):
    """How the m of several scales were put together by an op, each from where its axes were in an operand; None: its m is 0."""

    pieces: tuple[tuple[Scale, tuple[int, ...]] | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    cuts: dict[Any, int]            # by the attrs of the slice that gives it back: which of them it is
    op: str
    attrs: tuple[Any, ...]
    after: tuple[int, ...]
    dtype: Any


class Scale:
    """exp(m) of e, which is exp(x) whose sums go over `axes`; exp(x) to which something is added, without axes; or a softmax or a sigmoid
    that divides, with its logarithm for m. Or one of these, elements of which were picked, or several of a kind put together."""

    __slots__ = ("axes", "e", "falls", "moved", "one_sided", "powers", "roots", "shift", "twin")

    def __init__(self, e: Node, axes: tuple[int, ...], moved: Moved | Joined | None = None) -> None:
        self.e, self.axes, self.moved = e, axes, moved
        self.roots: tuple[Scale, ...] = (self,)
        if isinstance(moved, Moved):
            self.roots = moved.scale.roots
        elif moved is not None:
            self.roots = tuple({id(r): r for piece in moved.pieces if piece is not None for r in piece[0].roots}.values())
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


def everywhere(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The places of an m as large as the value."""
    return long_axes(shape, range(len(shape)))


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


_FACTORS = PLACED | frozenset(("add", "divide", "multiply", "reciprocal", "square", "sum"))
_MADE = PASSED | frozenset(("add", "negative", "subtract", "sum"))
_POSITIVE = frozenset(("exp", "exp2", "sigmoid", "softmax", "softplus"))


def like(order: Sequence[Node], exponentials: Sequence[int]) -> set[int]:
    """Ids of what is made of such values and of constants alone."""
    found = set(exponentials)
    for node in order:
        name = node.op.name
        if name in ("constant", "sigmoid", "softmax") or (
                name in _MADE and all(id(x) in found for x in (node.inputs[:1] if name in SAME else node.inputs) if x.dtype.kind == "f")):
            found.add(id(node))
    return found


def scales(order: Sequence[Node]) -> dict[Any, dict[int, Scale]]:
    """By what is rewritten together, then by id: exponentials of which there are sums, by axes; those to which a constant is added;
    softmaxes that divide; sigmoids that divide, those of -x by themselves: they share their derivative with those of x."""
    found: dict[Any, dict[int, Scale]] = {}

    def note(e: Node, key: Any, axes: tuple[int, ...]) -> None:
        if e.dtype.kind == "f":
            found.setdefault(key, {}).setdefault(id(e), Scale(e, axes))

    falling: list[Node] = []
    for node in order:
        name = node.op.name
        if name == "sum" and node.inputs[0].op.name == "exp":
            note(node.inputs[0], node._attrs[0], node._attrs[0])
        elif name == "add":
            a, b = node.inputs
            for x, other in ((a, b), (b, a)) if a.op.name == "exp" or b.op.name == "exp" else ():
                if x.op.name == "exp" and x.shape == node.shape and is_positive(other):
                    note(x, (), ())
        elif name in ("sigmoid", "softmax"):
            falling.append(node)
    loose = divisors(order, None) if falling else ()
    if any(id(node) in loose for node in falling):          # few have any, and what is alike is more to find
        dividing = divisors(order, like(order, [e for by_id in found.values() for e in by_id]))
        for node in falling:
            if id(node) in dividing and node.op.name == "softmax":
                note(node, ("softmax",), ())
            elif id(node) in dividing:
                note(node, ("sigmoid", node.inputs[0].op.name == "negative"), ())
    return found


def second_bodies(order: Sequence[Node], found: Mapping[int, Scale]) -> tuple[dict[int, Scale], dict[int, int]]:
    """By id, what a checkpoint computes again of softmaxes and sigmoids with a scale; and of every node of such a body, the id of the first."""
    if not any(s.falls or s.is_softplus for s in found.values()) or all(node.op.name != "barrier" for node in order):
        return {}, {}
    table: dict[Any, int] = {}
    first: dict[int, int] = {}
    again: dict[int, Scale] = {}
    for node in order:
        inputs = [first.get(id(x), id(x)) for x in node.inputs]
        if node.op.name == "barrier":
            known = inputs[0]
        elif node.inputs:
            known = table.setdefault((node.op.name, node._attrs, tuple(inputs)), id(node))
        else:
            continue
        if known != id(node):
            first[id(node)] = known
            if known in found and node.op.name in ("sigmoid", "softmax"):
                again[id(node)] = found[known]
    return again, first


def positives(order: Sequence[Node]) -> set[int]:
    """Ids of what is known to be positive, or 0 only by rounding."""
    found: set[int] = set()
    for node in order:
        name = node.op.name
        if name in _POSITIVE or (name == "constant" and is_positive(node)) or (
                name in _FACTORS and all(id(x) in found for x in (node.inputs[:1] if name in SAME else node.inputs) if x.dtype.kind == "f") and
                (name != "place" or node._attrs[3] >= 0)):
            if node.dtype.kind == "f":
                found.add(id(node))
    return found


def _as_sigmoid(node: Node) -> tuple[Node, bool] | None:
    """x, and whether it is minus that, of what is a sigmoid, as an op or by hand."""
    if node.op.name == "sigmoid":
        return node.inputs[0], False
    found = sigmoid_by_hand(node)
    return None if found is None else found[:2]


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


def _rest_of(x: Node) -> tuple[list[Node], tuple[Node, bool | int]] | None:
    """Of p, of which it is 1 - p that is wanted: how elements of a sigmoid, or a softmax of two classes, were picked, the last first, and what
    that is of; and whether it is a sigmoid of minus that, or the axis of the classes."""
    picks, x = picked(x)
    picks = [p for p in picks if p.op.name not in SAME]
    of: tuple[Node, bool | int] | None = _as_sigmoid(x)
    if of is None:
        hand = softmax_by_hand(x)
        z, axes = (x.inputs[0], x._attrs) if x.op.name == "softmax" else (x, ()) if hand is None else (hand[0].inputs[0], hand[1])
        of = (z, int(axes[0])) if len(axes) == 1 and z.shape[axes[0]] == 2 else None
    return None if of is None else (picks, of)


def _built(form: Form, node: Node, before: float, new: dict[int, Node], kept: list[Node], held: list[Node]) -> Node:
    """A form in the place of a node, behind serial `before`. What it is built of is held: a node made after one that was dropped may have its id."""
    now = CONTEXT.now
    CONTEXT.now = (node._site, node.origin, node.scope)
    made = toposort([form.build()], stop=new)
    CONTEXT.now = now
    made = [m for m in made if id(m) not in new]
    held += made
    for k, m in enumerate(made, 1):
        object.__setattr__(m, "serial", before + (node.serial - before) * k / len(made))
        new[id(m)] = renewed(m, new)
        kept.append(new[id(m)])
    return kept[-1]


_LOOKED_AT = PLACED | DIVIDING | {"log1p"}


def turned_sigmoids(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """1 - sigmoid(x) that divides, or of which the logarithm is taken, as sigmoid(-x), which does not lose its digits, and 1 - softmax(x) of two
    classes as that of the other one; also of elements that were picked before, and where it is picked or put together with others first."""
    turned: dict[int, tuple[list[Node], tuple[Node, bool | int]]] = {}
    later: list[Node] = []              # 1 - x that something moves
    logarithms: list[Node] = []
    for node in order:
        name = node.op.name
        if name not in _LOOKED_AT:
            continue
        if name in PLACED:
            later += [x for x in node.inputs if x.op.name == "subtract" and is_one(x.inputs[0]) and x.dtype.kind == "f"]
            continue
        if node.dtype.kind != "f":
            continue
        x = node.inputs[-1]
        if name in DIVIDING and x.op.name == "subtract" and is_one(x.inputs[0]) and x.shape == x.inputs[1].shape:
            found = _rest_of(x.inputs[1])
        elif name == "log1p" and x.op.name == "negative":
            x, found = node, _rest_of(x.inputs[0])
            if found is not None and not isinstance(found[1][1], bool):     # of two classes, which would lose the digits that log1p has
                found = None
        else:
            continue
        if found is not None:
            turned[id(x)] = found
        elif name in ("log", "log1p"):
            logarithms.append(node)
    many = {id(node): form for node in logarithms if (form := log_rest(node)) is not None}
    later = [x for x in later if id(x) not in turned and x.shape == x.inputs[1].shape and _rest_of(x.inputs[1]) is not None]
    if later:
        dividing = divisors(order, set())
        turned.update([(id(x), _rest_of(x.inputs[1])) for x in later if id(x) in dividing])     # type: ignore[misc]
    if not turned and not many:
        return list(order), list(outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    held: list[Node] = []
    before = -1.0
    for node in order:
        if id(node) in many:
            new[id(node)] = _built(many[id(node)], node, before, new, kept, held)
            before = node.serial
            continue
        here = renewed(node, new)
        rest = turned.get(id(node))
        if rest is not None:
            picks, (x, minus) = rest
            here = new[id(x)]
            steps = [Step("sigmoid", (), x.shape)]
            if not isinstance(minus, bool):                     # the other class
                n, axis = len(x.shape), minus
                turned_round = (tuple([int(a == axis) for a in range(n)]), tuple([-1 if a == axis else 1 for a in range(n)]), x.shape)
                steps = [Step("softmax", (axis,), x.shape), Step("slice", turned_round, x.shape)]
            elif here.op.name == "negative" and not minus:
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
    return merge(kept, [new[id(o)] for o in outputs])           # the softmax, and what is differentiated in the place of 1 - it, are there already


def softmax_over(axes: tuple[int, ...], shape: tuple[int, ...]) -> list[Step]:
    """The steps that make a softmax of x; none if the axes are not side by side."""
    if len(axes) == 1:
        return [Step("softmax", axes, shape)]
    if axes != tuple(range(axes[0], axes[-1] + 1)):
        return []
    flat = (*shape[:axes[0]], math.prod([shape[a] for a in axes]), *shape[axes[-1] + 1:])
    return [Step("reshape", (flat,), flat), Step("softmax", axes[:1], flat), Step("reshape", (shape,), shape)]


def made_softmaxes(order: Sequence[Node], outputs: Sequence[Node], scales: Mapping[Any, Mapping[int, Scale]]) -> Ordered:
    """e / sum(e) as a softmax, e / (1 + e) as a sigmoid, where e = exp(x) can be scaled in more ways than one, and softmaxes over axes side by side.

    In the gradient of a product of two of them the e of one would cancel with the divisor of the other, and leave a divisor that nothing cancels
    with. Over several axes the logarithm would be that of what may be 0.
    """
    kinds: dict[int, int] = {}
    several = False
    for key, by_id in scales.items():
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
    softmax = softmax_by_hand(node)
    if softmax is not None:
        e, axes, _ = softmax
        steps = softmax_over(axes, node.shape)
        return (e.inputs[0], steps) if steps and (len(axes) > 1 or kinds.get(id(e), 0) > 1) else None
    if node.op.name == "divide" and kinds.get(id(node.inputs[0]), 0) > 1:
        sigmoid = _as_sigmoid(node)
        if sigmoid is not None and not sigmoid[1]:
            return sigmoid[0], [Step("sigmoid", (), node.shape)]
    return None
