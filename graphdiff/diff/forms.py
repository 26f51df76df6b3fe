"""Expressions that are differentiated as others of the same value, whose derivatives are right where theirs are not.

    log1p(exp(-c |u|))          kinks where |u| does, and its slope with it: two kinks of max(z, 0) + log1p(exp(-|z|)) that cancel. Piece by piece
                                the second derivative at 0 is that of a product of signs, 0; from both sides it is c^2 / 4.
    exp(z) / (1 + exp(z))       sigmoid(z), whose slope is no difference; so of what else a sigmoid is written as
    sigmoid(z)^c, 0 < c < 1     its slope is c p^(c - 1) p (1 - p), infinity times 0 where p underflows; that of exp(-c softplus(-z)) is not
    log(exp(y)[..])             y, where exp(y) underflows too; of y = log_softmax(z) and its like: what may overflow stays as it is written
    log(1 - softmax(z)[..])     of two classes: of the other one, which does not lose its digits; so of what 1 - softmax(z) is put together to
    log(1 - softmax(z)[:, k])   of more classes: -softplus(z[:, k] - logsumexp of the others), which keeps its digits where p is 0 and where it is 1

The user's nodes give the value; a derivative passes them by, from the last one to what it is made of. Not past a user's own gradient, nor out
of a larger checkpoint. Those on the way that are asked for themselves have what is sent to them as it is written; the others do not see it.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ..graph.build import CONTEXT, make
from ..graph.node import Node, Origin
from ..graph.walk import toposort
from ..ops.binary import equal, maximum, multiply, subtract, where
from ..ops.creation import arange
from ..ops.families import cast
from ..ops.joining import concatenate
from ..ops.movement import cut, reshape, slice_axes
from ..ops.reduction import logsumexp
from ..ops.scan import log_softmax, softmax
from ..ops.unary import exp, negative, sigmoid, softplus

DIVIDING = frozenset(("divide", "reciprocal", "log", "log2", "log10", "xlogy"))
GATHERS = frozenset(("gather", "gather_along"))
MEETING = frozenset(("divide", "multiply", "zmul", "zmul_either"))
SAME = frozenset(("barrier", "custom"))             # their first operand
PICKS = GATHERS | frozenset(("broadcast_to", "cast", "diagonal", "reshape", "runs", "slice", "taken_for", "transpose"))
PLACED = PICKS | SAME | frozenset(("concatenate", "place", "slice_set", "where"))             # elements, only moved
PASSED = PLACED | frozenset(("divide", "multiply", "reciprocal", "square", "zmul", "zmul_either"))


def divisors(order: Sequence[Node], alike: Collection[int] | None) -> set[int]:
    """Ids of what divides, or of which a logarithm is taken, and of the factors of that, also before elements of them were picked. Not where
    a factor is of another kind (not in alike; None: they all are): its square, by which the derivative of a quotient divides, may be too small
    for what is not."""
    found: set[int] = set()
    for node in reversed(order):
        name = node.op.name
        if name in DIVIDING:
            x = node.inputs[-1]
            if name != "log" or x.op.name != "softmax":         # that is log_softmax
                found.add(id(x))
        if name in PASSED and id(node) in found and (name not in MEETING or alike is None or id(node) in alike):
            found.update([id(x) for x in (node.inputs[:1] if name in SAME else node.inputs)])
    return found


class Form(NamedTuple):
    """What an expression is made of, the nodes on the way, and the other expression."""

    leaf: Node
    between: Sequence[Node]
    build: Callable[[], Node]


def number(x: Node) -> float | None:
    """What a constant of one element holds everywhere."""
    while x.op.name in ("broadcast_to", "reshape"):
        x = x.inputs[0]
    return float(x._attrs[0].reshape(())[()]) if x.op.name == "constant" and x.size == 1 and x.dtype.kind == "f" else None


def _minus_abs(x: Node) -> tuple[Node, float, list[Node]] | None:
    """u and c > 0 of what is -c |u|, and the nodes it is made of."""
    factor, between = 1.0, []
    while x.op.name != "abs":
        between.append(x)
        if x.op.name == "negative":
            factor, x = -factor, x.inputs[0]
        elif x.op.name == "multiply" and x.shape in (x.inputs[0].shape, x.inputs[1].shape):
            a, b = x.inputs
            c = number(b) if a.shape == x.shape else None
            c, x = (c, a) if c is not None else (number(a), b)
            if c is None or x.shape != between[-1].shape:
                return None
            factor *= c
        else:
            return None
    return (x.inputs[0], -factor, [*between, x]) if factor < 0 else None


def _softplus_of_minus_abs(x: Node, between: list[Node]) -> Form | None:
    found = _minus_abs(x)
    if found is None:
        return None
    u, c, inside = found

    def build() -> Node:
        """With one sign for u = 0, where the slope it has too many is taken away."""
        cu = u if c == 1 else multiply(u, c)
        return subtract(softplus(multiply(where(u > 0, -1.0, 1.0), cu)), where(equal(u, 0), multiply(cu, 0.5), 0.0))
    return Form(u, [*between, *inside], build)


def _is_one(x: Node) -> bool:
    return number(x) == 1


def _plus_one(x: Node) -> Node | None:
    """y of 1 + y."""
    if x.op.name != "add":
        return None
    a, b = x.inputs
    y = b if _is_one(a) else a if _is_one(b) else None
    return y if y is not None and y.shape == x.shape else None


_MOST_ALIKE = 32        # nodes that are looked at


def _written_again(a: Node, b: Node) -> list[Node] | None:
    """The nodes of which b is another a: equal ops on equal operands, as far as that is soon known. Graphs that are differentiated are not
    merged yet."""
    stack = [(a, b)]
    found: list[Node] = []
    for _ in range(_MOST_ALIKE):
        if not stack:
            return found
        a, b = stack.pop()
        if a is b:
            continue
        if a.op is not b.op or a.shape != b.shape or a.dtype is not b.dtype or a.op.name in ("barrier", "custom", "input"):
            return None
        if a.op.name == "constant":
            if a.size != 1 or a._attrs[0].tobytes() != b._attrs[0].tobytes():
                return None
        elif a._attrs != b._attrs or len(a.inputs) != len(b.inputs):
            return None
        found.append(b)
        stack += zip(a.inputs, b.inputs, strict=True)
    return None


def softmax_by_hand(p: Node) -> tuple[Node, tuple[int, ...], list[Node]] | None:
    """e = exp(z), the axes of the sum and the nodes on the way, of what is e / sum(e) or e times the inverse of the sum. What takes such a
    value for a softmax and what differentiates it as one ask here: values of one and slopes of the other do not fit."""
    if p.op.name == "divide":
        e, below = p.inputs
    elif p.op.name == "multiply":
        e, below = p.inputs if p.inputs[0].op.name == "exp" else p.inputs[::-1]
    else:
        return None
    if e.op.name != "exp" or e.shape != p.shape:
        return None
    inside, shape, inverted = [p, e], None, p.op.name == "divide"       # shape: before it is broadcast
    while below.op.name != "sum":
        name = below.op.name
        inside.append(below)
        if name == "reshape" and shape is None:
            shape = below.shape
        elif not inverted and (name == "reciprocal" or (name == "divide" and _is_one(below.inputs[0]) and below.shape == below.inputs[1].shape)):
            inverted = True
        elif name != "reshape" and (name != "broadcast_to" or shape is not None):
            return None
        below = below.inputs[-1]
    again = _written_again(e, below.inputs[0]) if inverted else None
    if again is None:
        return None
    axes = below._attrs[0]
    kept = tuple([1 if a in axes else n for a, n in enumerate(e.shape)])
    shape = below.shape if shape is None else shape
    return (e, axes, [*inside, below, *again]) if (1,) * (len(kept) - len(shape)) + shape == kept else None


def _softmax(p: Node) -> tuple[Node, int, list[Node]] | None:
    """z and the axis of a softmax, as an op or by hand."""
    if p.op.name == "softmax":
        return p.inputs[0], p._attrs[0], [p]
    found = softmax_by_hand(p)
    return None if found is None or len(found[1]) != 1 else (found[0].inputs[0], found[1][0], found[2])


def picked(x: Node) -> tuple[list[Node], Node]:
    """How elements were picked, the last first, and of what; with the nodes that only give their first operand."""
    picks: list[Node] = []
    while x.op.name in SAME or (x.op.name in PICKS and x.inputs[0].dtype.kind == "f"):
        picks.append(x)
        x = x.inputs[0]
    return picks, x


def _is_passed(x: Node, leaf: Node) -> bool:
    """May a derivative pass a node by? A checkpoint of nothing but what is passed by with it, not the gradient that a user gave."""
    return x.op.name not in SAME or (x.op.name == "custom" and x._attrs[0].transparent and any(y is leaf for y in x.inputs[1:]))


def is_probability(e: Node) -> bool:
    """Is it exp(y) of what is known to be a logarithm of a probability?"""
    if e.op.name != "exp":
        return False
    (y,) = e.inputs
    if y.op.name == "negative":
        return y.inputs[0].op.name == "softplus"
    if y.op.name != "subtract":
        return y.op.name in ("log_sigmoid", "log_softmax")
    x, s = y.inputs
    while s.op.name in ("broadcast_to", "reshape"):
        s = s.inputs[0]
    return s.op.name == "logsumexp" and s.inputs[0] is x and y.shape == x.shape


def _again(picks: Sequence[Node], x: Node) -> Node:
    """Elements of x, picked likewise."""
    for pick in reversed(picks):
        if pick.op.name not in SAME:
            x = make(pick.op, (x, *pick.inputs[1:]), pick._attrs)
    return x


def rest(x: Node) -> tuple[Node, list[Node]] | None:
    """p of what is 1 - p, and the nodes it is made of."""
    if x.op.name == "subtract":
        p, found = (x.inputs[1], [x]) if _is_one(x.inputs[0]) else (None, [])
    else:
        y = _plus_one(x)
        p, found = (None, []) if y is None or y.op.name != "negative" else (y.inputs[0], [x, y])
    return None if p is None or p.shape != x.shape else (p, found)


def _turned_round(x: Node, axis: int) -> Node:
    return slice_axes(x, [int(a == axis) for a in range(x.ndim)], [-1 if a == axis else 1 for a in range(x.ndim)], x.shape)


def _log_of_rest(z: Node, others: Node) -> Node:
    """log(1 - p) of the class z by a logarithm of the sum of all others. In a row that is -inf everywhere p is 0."""
    nothing = equal(maximum(z, others), -math.inf)
    return negative(softplus(where(nothing, -math.inf, subtract(z, others))))


def _log_of_two(z: Node, axis: int) -> Node:
    """log_softmax of two classes, with all digits of what is nearly 0; as the logarithm of 1 minus the other one, where both are -inf."""
    return _log_of_rest(_turned_round(z, axis), z)


def _rest_of_two(p: Node, between: list[Node], op: Callable[..., Node]) -> Form | None:
    """log(1 - p), or 1 - p, of elements of a softmax of two classes; by a log_softmax, or softmax."""
    picks, p = picked(p)
    found = _softmax(p)
    if found is None or found[0].shape[found[1]] != 2:
        return None
    z, axis, inside = found
    return Form(z, [*between, *picks, *inside], lambda: _again(picks, _turned_round(op(z, axis), axis)))


def _rest_of_many(p: Node, between: list[Node]) -> Form | None:
    """log(1 - p) of one class of a softmax of more than two, by the logarithm of the sum of all others."""
    passed, p = picked(p)
    picks = [pick for pick in passed if pick.op.name not in SAME]
    found = _softmax(p) if picks and picks[-1].op.name == "slice" else None
    if found is None:
        return None
    (z, axis, inside), (starts, steps, sizes) = found, picks[-1]._attrs
    n, k = z.shape[axis], starts[axis]
    if sizes[axis] != 1 or (isinstance(n, int) and (n < 3 or not isinstance(k, int))):
        return None

    def build() -> Node:
        rows = slice_axes(z, [0 if a == axis else i for a, i in enumerate(starts)], [1 if a == axis else i for a, i in enumerate(steps)],
                          [n if a == axis else i for a, i in enumerate(sizes)])
        if isinstance(n, int):
            others = concatenate([part for part in (cut(rows, axis, 0, k), cut(rows, axis, k + 1, n - k - 1)) if part.shape[axis] != 0], axis)
        else:                           # of a named size
            count = reshape(arange(n), (n, *[1] * (z.ndim - 1 - axis)))
            others = where(equal(count, cut(count, 0, k, 1)), -math.inf, rows)
        return _again(picks[:-1], _log_of_rest(cut(rows, axis, k, 1), logsumexp(others, axis, True)))
    return Form(z, [*between, *passed, *inside], build)


def log_rest(node: Node) -> Form | None:
    """log(1 - p) and log1p(-p) of a softmax: of two classes, or of one class of more."""
    (x,) = node.inputs
    log1p = node.op.name == "log1p"
    found = rest(x) if not log1p else (x.inputs[0], [x]) if x.op.name == "negative" else None
    return None if found is None else _rest_of_two(*found, _log_of_two if log1p else log_softmax) or _rest_of_many(*found)


def _log1p(node: Node) -> Form | None:
    (x,) = node.inputs
    if x.op.name == "exp":
        return _softplus_of_minus_abs(x.inputs[0], [x])
    return log_rest(node)


def _log(node: Node) -> Form | None:
    (x,) = node.inputs
    picks, e = picked(x)
    if is_probability(e):
        return Form(e.inputs[0], [*picks, e], lambda: _again(picks, e.inputs[0]))
    y = _plus_one(x)
    return _softplus_of_minus_abs(y.inputs[0], [x, y]) if y is not None and y.op.name == "exp" else log_rest(node)


def _rest(node: Node) -> Form | None:
    """1 - softmax(z) of two classes."""
    found = rest(node)
    return None if found is None else _rest_of_two(found[0], found[1][1:], softmax)


def sigmoid_by_hand(p: Node) -> tuple[Node, bool, list[Node]] | None:
    """z, whether it is minus that, and the nodes on the way, of what is exp(z) / (1 + exp(z)) or 1 / (1 + exp(z)); of either by a product."""
    name = p.op.name
    if name == "reciprocal":
        top, below = None, p.inputs[0]
    elif name == "divide":
        top, below = p.inputs
    elif name == "multiply":
        top, below = p.inputs if p.inputs[0].op.name == "exp" else p.inputs[::-1]
        if top.op.name != "exp" or not (below.op.name == "reciprocal" or (below.op.name == "divide" and _is_one(below.inputs[0]))):
            return None
        below = below.inputs[-1]
    else:
        return None
    e = _plus_one(below)
    if e is None or e.op.name != "exp" or e.shape != p.shape:
        return None
    again = [] if top is None or _is_one(top) else _written_again(e, top)
    if again is None:
        return None
    inside = [p, below, e, *again] if name != "multiply" else [p, *p.inputs, below, e, *again]
    return e.inputs[0], top is None or _is_one(top), inside


def _sigmoid(p: Node) -> Form | None:
    """A sigmoid by hand."""
    found = sigmoid_by_hand(p)
    if found is None:
        return None
    z, minus, inside = found
    if minus and z.op.name == "negative":
        return Form(z.inputs[0], [*inside, z], lambda: sigmoid(z.inputs[0]))
    return Form(z, inside, lambda: sigmoid(negative(z) if minus else z))


def _root(node: Node) -> Form | None:
    """sqrt(sigmoid(z)) and powers between 0 and 1."""
    c = 0.5 if node.op.name == "sqrt" else number(node.inputs[1])
    (p, *_) = node.inputs
    if c is None or not 0 < c < 1 or p.shape != node.shape:
        return None
    found = (p.inputs[0], False, [p]) if p.op.name == "sigmoid" else sigmoid_by_hand(p)
    if found is None:
        return None
    z, minus, inside = found
    return Form(z, inside, lambda: exp(multiply(softplus(z if minus else negative(z)), -c)))


FORMS: dict[str, Callable[[Node], Form | None]] = {
    "log": _log, "log1p": _log1p, "softplus": lambda node: _softplus_of_minus_abs(node.inputs[0], []), "sqrt": _root, "power": _root,
    "subtract": _rest, "add": _rest, "divide": _sigmoid, "multiply": _sigmoid, "reciprocal": _sigmoid,
}


MADE_OF = frozenset(("abs", "exp", "sigmoid", "softmax"))        # each of them has one of these in it


class Better(NamedTuple):
    """What a node is differentiated as, and the targets that are passed by."""

    other: Node
    leaf: Node
    passed: list[Node]


def better(order: list[Node], reach: set[int], targets: set[int], kind: str) -> tuple[list[Node], dict[int, Better]]:
    """The order with the other expressions in it, each before the node whose derivatives it gives; and these by the node's id.

    reach: ids of what depends on a target. kind: as of an Origin.
    """
    forms: dict[int, Better] = {}
    made: dict[int, list[Node]] = {}
    known: set[int] = set()
    dividing: set[int] | None = None
    for node in order:
        rule = FORMS.get(node.op.name)
        if rule is None or id(node) not in reach:
            continue
        form = rule(node)
        if form is not None and rule is _rest:      # where it does not divide nothing is lost
            dividing = divisors(order, ()) if dividing is None else dividing
            form = form if id(node) in dividing else None
        if form is None or id(form.leaf) not in reach or not all(_is_passed(x, form.leaf) for x in form.between):
            continue
        known = known or {id(n) for n in order}
        CONTEXT.now = (node._site, Origin(node, node if kind == "adjoint" else None, kind), CONTEXT.now[2])
        other = cast(form.build(), node.dtype)
        passed = {id(x): x for x in form.between if id(x) in targets}
        forms[id(node)] = Better(other, form.leaf, list(passed.values()))
        made[id(node)] = [n for n in toposort([other], stop=known) if id(n) not in known]
    if not forms:
        return order, forms
    return [n for node in order for n in (*made.get(id(node), ()), node)], forms
