"""Exponentials that cancel: exp(x) / sum(exp(x)), exp(x) / (1 + exp(x)), and what both modes make of such quotients and of the logarithms of
their divisors, to any order. As they are written they are inf / inf where an exponential overflows, although they have a value.

exp(x) of which there is a sum is that sum, exp(m), times softmax(x), which cannot overflow; exp(x) to which 1 is added is 1 + exp(x) times
sigmoid(x); a softmax or a sigmoid that divides, or of which the logarithm is taken, is exp(m) itself. So is all that is made of them by
products, quotients and sums, each term with a power of exp(m) of its own: a `Part`. Where the powers cancel, the twin takes the place of
the value. It divides only by twins that are near zero only where the value is, so that nothing is lost by the scale that was not lost
without it.

A value has one scale. Where two meet, the one that may overflow as it is written is kept, and the other is an operand like any. If it would
have cancelled later it has its turn in another round, over what the first has become, so that a logarithm and its derivative are made stable
together. What is picked from a value (elements, a choice by a condition) has m picked likewise, and gives it back where it is scattered; so
has what is put together of several values (joined.py). What a checkpoint computes again has the scale of what it computed first.

Of quotients by 1 + exp(x), whose derivatives are written as differences, what multiplies 1 - sigmoid(x) is found in sums of few terms: in first
derivatives, not in all second ones. (Those that are a sigmoid are differentiated as one, diff/forms.py.)
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..dtypes import BOOL
from ..graph.node import Node
from ..graph.walk import toposort
from .joined import added, cut_out, each_over, joined, put_back, rolled_back
from .rewriting import Rewriting
from .scales import Joined, Moved, Part, Scale, Value, everywhere, is_one, is_zero, long_axes, made_softmaxes, scales, turned_sigmoids
from .simplify import VIEWS, Ordered, merge

_FROM = frozenset(("exp", "sigmoid", "softmax"))        # what all of it is made of
_KEEPING = VIEWS | {"cast"}      # a 1 stays 1
_ROUNDS = 8             # of one kind of scales: two for most, one more for each that all others are multiplied with; a walk each
_GROWN = 256            # and none in which the nodes are twice as many as at first, and so many more: scales that meet all along a loop do so again


def cancelled(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """The graph with such quotients as those of their twins. Expects equal nodes to be merged."""
    if {node.op.name for node in order}.isdisjoint(_FROM):      # nothing is found in most graphs, and this costs a tenth of looking for it
        return list(order), list(outputs)
    order, outputs = turned_sigmoids(order, outputs)
    first = scales(order)
    if not first:
        return order, outputs
    result = made_softmaxes(order, outputs, first)
    done: set[Any] = set()
    while True:                         # softmaxes come into being, which may divide: those without axes go last
        found = {key: by_id for key, by_id in scales(result[0]).items() if key not in done}
        if not found:
            return result
        key = max(found, key=_turn)
        done.add(key)
        result = _rounds(result, key, found[key])


def _turn(key: Any) -> tuple[int, int]:
    kind = key[0] if key and isinstance(key[0], str) else ""
    return ("sigmoid", "softmax", "").index(kind), len(key)


def _rounds(result: Ordered, key: Any, found: dict[int, Scale]) -> Ordered:
    """The graph with all scales of a kind rewritten: together and, those that met others and were missed, again without these."""
    finished: list[Node] = []                   # exponentials that need no other round
    waiting: list[Node] = []
    apart: dict[int, set[int]] = {}             # ids of those that met
    most = 2 * len(result[0]) + _GROWN
    for _ in range(_ROUNDS):
        again = True
        while again:
            rewriting = Rewriting(found, RULES, result[0])
            rewritten = rewriting.run(*result)
            again = rewriting.again
        if rewriting.crowded:
            return result
        lost = set(rewriting.lost)
        for e, others in rewriting.apart.items():
            apart.setdefault(e, set()).update(others)
        finished += [s.e for e, s in found.items() if e not in lost]
        waiting += [s.e for e, s in found.items() if e in lost]
        if rewriting.changed:
            new, order = rewriting.new, toposort(rewritten[1])
            alive = {id(node) for node in order}
            tracked = [e for e in (*finished, *waiting) if id(new[id(e)]) in alive]
            order, outputs = merge(order, [*[new[id(e)] for e in tracked], *rewritten[1]])
            now = {id(e): n for e, n in zip(tracked, outputs, strict=False)}
            finished, waiting = [[now[id(e)] for e in es if id(e) in now] for es in (finished, waiting)]
            apart = {id(now[e]): {id(now[o]) for o in others if o in now} for e, others in apart.items() if e in now}
            result = order, outputs[len(tracked):]
        if not waiting or len(result[0]) > most:
            break
        together: set[int] = set()              # in the next round: no two that met
        for node in waiting:
            if not apart.get(id(node), together) & together:
                together.add(id(node))
        waiting = [node for node in waiting if id(node) not in together]
        without = {id(e) for e in (*finished, *waiting)}
        found = {e: s for e, s in scales(result[0]).get(key, {}).items() if e not in without}
        if not found:
            break
    return result


def each(r: Rewriting, v: Value, divides: bool = True, places: Any = None) -> Value:
    """A linear op of one operand, of every part."""
    op, attrs, shape = r.node.op.name, r.node._attrs, r.node.shape
    alone = len(v.parts) == 1
    dtype = r.node.dtype
    parts = [Part(p.power, r.ones(shape) if op in _KEEPING and is_one(p.twin) else r.make(op, (p.twin,), shape, attrs, dtype),
                  r.here if alone else r.make(op, (p.written,), shape, attrs, dtype), divides and p.divides, p.crossed) for p in v.parts]
    return Value(v.scale, v.places if places is None else places, tuple(parts))


def times(r: Rewriting, v: Value, a: Sequence[Part], b: Sequence[Part], sign: int = 1) -> Value:
    """Each part of a by (sign -1: divided by) each of b."""
    op, shape = r.node.op.name, r.node.shape
    alone = len(a) == len(b) == 1
    return r.joined(v, [Part(
        p.power + sign * q.power, r.over(op, p.twin, q.twin, shape), r.here if alone else r.make(op, (p.written, q.written), shape),
        p.divides and q.divides, p.crossed or q.crossed or sign * p.power * q.power < 0) for p in a for q in b])


def product(r: Rewriting, a: Value, b: Value) -> Value | None:
    return times(r, a, a.parts, b.parts)


def quotient(r: Rewriting, a: Value, b: Value) -> Value | None:
    by = divisor(r, b, r.node.inputs[1])
    return None if by is None else times(r, a, a.parts, (by,), -1)


def inverse(r: Rewriting, a: Value) -> Value | None:
    by = divisor(r, a, r.node.inputs[0])
    if by is None:
        return None
    twin = by.twin if is_one(by.twin) else r.make("reciprocal", (by.twin,), r.node.shape)
    return a._replace(parts=(Part(-by.power, twin, r.here, True, by.crossed),))


def square(r: Rewriting, a: Value) -> Value | None:
    p = a.parts[0] if len(a.parts) == 1 else divisor(r, a, r.node.inputs[0])
    if p is None:
        return None
    twin = p.twin if is_one(p.twin) else r.make("square", (p.twin,), r.node.shape)
    return a._replace(parts=(Part(2 * p.power, twin, r.here, p.divides, p.crossed),))


def negative(r: Rewriting, a: Value) -> Value | None:
    return each(r, a, divides=False)


def add(r: Rewriting, a: Value, b: Value) -> Value | None:
    shape = r.node.shape
    parts = []
    for v, sign in ((a, 1), (b, -1 if r.node.op.name == "subtract" else 1)):
        for p in v.parts:
            twin, written = (p.twin, p.written) if sign > 0 else [r.make("negative", (x,), x.shape) for x in (p.twin, p.written)]
            if twin.shape != shape:
                twin, written = [r.make("broadcast_to", (x,), shape, (shape,)) for x in (twin, written)]
            parts.append(Part(p.power, twin, written, p.divides and sign > 0, p.crossed))
    return r.joined(a, parts)


def divisor(r: Rewriting, v: Value, node: Node) -> Part | None:
    """All parts as one, if it can divide. Where exp(m) is at least 1 (of a softmax: at most) nothing overflows on the way."""
    if len(v.parts) == 1 and not v.parts[0].power:              # no scale, nothing to lose
        return v.parts[0]
    if not all(p.divides for p in v.parts):
        return None
    if len(v.parts) == 1:
        return v.parts[0]
    if not v.scale.one_sided:
        for root in v.scale.roots:
            root.one_sided = r.again = True
        return None
    powers = [p.power for p in v.parts]
    scale = v.scale
    power = min(powers) if scale.falls else max(powers)
    total = r.ones(node.shape) if not (scale.axes or scale.moved) and node.op.name == "add" and any(is_one(x) for x in node.inputs) and any(
        x is scale.e for x in node.inputs) else None            # 1 + exp(x) is the scale itself
    for p in v.parts if total is None else ():
        term = p.twin if p.power == power else r.scaled(v, p.twin, p.power - power, node.shape)
        total = term if total is None else r.make("add", (total, term), node.shape)
    assert total is not None
    return Part(power, total, r.new[id(node)], True, any(p.crossed for p in v.parts))


def total(r: Rewriting, a: Value) -> Value | None:
    axes, keepdims = r.node._attrs
    x, at = r.node.inputs[0], [p + len(r.node.inputs[0].shape) for p in a.places]
    if any(i in axes for i in at):
        return None
    if not keepdims:
        at = [i - sum([k < i for k in axes]) for i in at]
    places = tuple([i - len(r.node.shape) for i in at])
    v = each(r, a, places=places)
    if x is a.scale.e and axes == a.scale.axes:                 # the scale itself or, one-sided, of which one term is 1
        v = v._replace(parts=tuple([p._replace(divides=True, twin=p.twin if a.scale.one_sided else r.ones(r.node.shape)) for p in v.parts]))
    return v


def repeated(r: Rewriting, a: Value) -> Value | None:
    return each(r, a)


def turned(r: Rewriting, a: Value) -> Value | None:
    order, n = r.node._attrs[0], len(r.node.shape)
    return each(r, a, places=tuple([order.index(p + n) - n for p in a.places]))


def reshaped(r: Rewriting, a: Value) -> Value | None:
    before, after = r.node.inputs[0].shape, r.node.shape
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return returned(r, a, "reshape", None, ()) or picked(r, a)
    to = dict(zip(long_axes(before, range(len(before))), long_axes(after, range(len(after))), strict=True))
    return each(r, a, places=tuple([to[p] for p in a.places]))


def _logarithm(r: Rewriting, a: Value, node: Node, op: str) -> Node | None:
    """The logarithm of a node with parts, from that of its scale."""
    by, shape = divisor(r, a, node), r.node.shape
    if by is None or not by.power:
        return None
    m = r.recast(r.along(r.shift(a.scale), a.places, len(shape)))
    factor = by.power * _BASES[op]
    value = m if factor == 1 else r.make("multiply", (m, r.number(factor)), m.shape)
    if not is_one(by.twin) or value.shape != shape:
        value = r.make("add", (r.make(op, (by.twin,), node.shape), value), shape)
    return value


def log(r: Rewriting, a: Value) -> Value | None:
    value = _logarithm(r, a, r.node.inputs[0], r.node.op.name)
    return None if value is None else a._replace(parts=(Part(0, value, r.here, crossed=True),))


def xlogy(r: Rewriting, a: Value, b: Value) -> Value | None:
    """x log y, 0 where x is 0."""
    x, y = r.node.inputs
    shape = r.node.shape
    value = _logarithm(r, b, y, "log") if x.shape == y.shape == shape else None
    if value is None:
        return None
    zero = r.make("equal", (r.new[id(x)], r.number(0.0)), shape, dtype=BOOL)
    written = r.make("xlogy", (r.new[id(x)], r.new[id(y)]), shape)              # 0 log NaN is NaN
    value = r.make("where", (zero, written, r.make("multiply", (r.new[id(x)], value), shape)), shape)
    return a._replace(parts=(Part(0, value, r.here, crossed=True),))


def _key(r: Rewriting, a: Value, op: str, attrs: tuple[Any, ...], others: tuple[Node, ...], before: tuple[int, ...]) -> Any:
    return id(a.scale), a.places, before, op, attrs, tuple([id(x) for x in others]), r.node.shape


def _moved(r: Rewriting, a: Value, op: str, attrs: tuple[Any, ...], others: tuple[Node, ...], before: tuple[int, ...]) -> Scale:
    """The scale of what was picked from a value, one for all that was picked in the same way."""
    key = _key(r, a, op, attrs, others, before)
    scale = r.moved.get(key)
    if scale is None:
        scale = r.moved[key] = Scale(a.scale.e, (), Moved(a.scale, a.places, before, op, attrs, others, r.node.shape))
        scale.one_sided = a.scale.one_sided
    return scale


def same(r: Rewriting, v: Value, *_: Value) -> Value | None:
    """The first operand, kept apart."""
    return v if len(v.parts) > 1 else v._replace(parts=(v.parts[0]._replace(written=r.here, crossed=False),))


def picked(r: Rewriting, a: Value, *_: Value) -> Value | None:
    """Elements of an array, in another shape: so are those of m."""
    back = cut_out(r, a) if r.node.op.name == "slice" else rolled_back(r, a) if r.node.op.name == "runs" else None
    if back is not None:
        return back if back.parts else None
    node = r.node
    scale = _moved(r, a, node.op.name, node._attrs, node.inputs[1:], node.inputs[0].shape)
    others = tuple([r.new[id(x)] for x in node.inputs[1:]])
    v = each_over(r, a, lambda x: (x, *others), scale, everywhere(node.shape), True)
    return v._replace(parts=tuple([p._replace(twin=r.ones(node.shape)) if is_one(q.twin) else p for p, q in zip(v.parts, a.parts, strict=True)]))


def returned(r: Rewriting, v: Value, op: str, attrs: Any, others: tuple[Node, ...]) -> Value | None:
    """Elements that were picked by op, back where they came from, among zeros."""
    node, moved = r.node, v.scale.moved
    shape = node.inputs[-1].shape       # of those that were picked; a reshape may have got axes of 1 since
    if (not isinstance(moved, Moved) or moved.op != op or moved.before != node.shape or v.places != everywhere(shape) or
            [n for n in shape if n != 1] != [n for n in moved.after if n != 1] or
            (attrs is not None and moved.attrs != attrs) or any(x is not y for x, y in zip(moved.others, others, strict=True))):
        return None
    before = [r.new[id(x)] for x in node.inputs[:-1]]
    return each_over(r, v, lambda x: (*before, x), moved.scale, moved.places, op == "reshape")


def scattered(r: Rewriting, x: Value, at: Value, v: Value) -> Value | None:
    node = r.node
    moved = v.scale.moved
    if not isinstance(moved, Moved) or moved.after != node.inputs[2].shape or not is_zero(node.inputs[0]):
        return None
    return returned(r, v, "gather" if node.op.name == "scatter_add" else "gather_along", node._attrs, node.inputs[1:2])


def placed(r: Rewriting, v: Value) -> Value | None:
    _shape, start, step, fill = r.node._attrs
    x = r.node.inputs[0]
    if fill != 0:
        return joined(r, v)
    back = returned(r, v, "slice", (start, step, x.shape), ())
    if r.node.origin is None:
        return back or joined(r, v)
    if ((start, step, x.shape), r.node.shape) not in r.cut:
        return back
    before = r.scale_before()           # what was picked and what was put together may be of one shape: which of them is the cotangent of?
    if back is not None and (before is None or before is back.scale):
        return back
    return put_back(r, v, before) or (back if before is None or not isinstance(before.moved, Joined) else None)


def on_diagonal(r: Rewriting, v: Value) -> Value | None:
    return returned(r, v, "diagonal", r.node._attrs[1:], ())


def where(r: Rewriting, cond: Value, a: Value, b: Value) -> Value | None:
    """A value where a condition holds, or where it does not: elsewhere m is 0, unless the value is."""
    node = r.node
    first = any(p.power for p in a.parts)
    if first and any(p.power for p in b.parts):                 # the tangent of one that has the scale of the other taken for a number
        known = [k for k, v in ((True, a), (False, b)) if _key(r, v, "where", (k,), node.inputs[:1], node.shape) in r.moved and len(v.parts) == 1]
        if not known:
            (p, *more), (q, *others) = a.parts, b.parts
            if more or others or p.power != q.power or not node.inputs[1].shape == node.inputs[2].shape == node.shape:
                return None
            twin = r.make("where", (r.new[id(node.inputs[0])], p.twin, q.twin), node.shape)
            return a._replace(parts=(Part(p.power, twin, r.here, p.divides and q.divides),))
        first = known[0]
    v, other, k = (a, b, 1) if first else (b, a, 2)
    if node.inputs[k].shape != node.shape:
        return None
    inputs = [r.new[id(x)] for x in node.inputs]
    zero, moved = is_zero(node.inputs[3 - k]), v.scale.moved
    scale, places = v.scale, v.places
    if zero and isinstance(moved, Moved) and moved.op == "where" and moved.others[0] is node.inputs[0] and (
            places == everywhere(moved.after) and moved.after == node.shape):
        if moved.attrs != (first,):
            return None                                         # of the others, where m is 0
        scale, places = moved.scale, moved.places               # as it was before the others were put in the place of the elements that are 0 now
    elif not zero or _key(r, v, "where", (first,), node.inputs[:1], node.shape) in r.moved:        # the tangent of one that is
        if not zero and len(v.parts) > 1:
            return None
        scale, places = _moved(r, v, "where", (first,), node.inputs[:1], node.shape), everywhere(node.shape)
    return each_over(r, v, lambda x: (inputs[0], x, inputs[2]) if first else (inputs[0], inputs[1], x), scale, places, other.parts[0].divides)


_BASES = {"log": 1.0, "log2": 1 / math.log(2), "log10": 1 / math.log(10)}
RULES: dict[str, Callable[..., Value | None]] = {
    "multiply": product, "zmul": product, "zmul_either": product, "divide": quotient, "reciprocal": inverse, "square": square, "negative": negative,
    "add": add, "subtract": add, "sum": total, "broadcast_to": repeated, "transpose": turned, "reshape": reshaped, "log": log, "log2": log,
    "log10": log, "xlogy": xlogy, "gather": picked, "gather_along": picked, "slice": picked, "diagonal": picked,
    "undiagonal": on_diagonal, "scatter_add": scattered, "scatter_along": scattered,
    "place": placed, "where": where, "cast": repeated, "concatenate": joined, "slice_set": joined, "slice_add": added, "runs": picked,
    "custom": same, "barrier": same,
}
