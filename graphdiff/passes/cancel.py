"""Exponentials that cancel: exp(x) / sum(exp(x)), exp(x) / (1 + exp(x)), and what both modes make of such quotients and of the logarithms of
their divisors, to any order. As they are written they are inf / inf where an exponential overflows, although they have a value.

exp(x) of which there is a sum is that sum, exp(m), times softmax(x), which cannot overflow; exp(x) to which 1 is added is 1 + exp(x) times
sigmoid(x); a softmax or a sigmoid that divides, or of which the logarithm is taken, is exp(m) itself. So is all that is made of them by
products, quotients and sums, each term with a power of exp(m) of its own: a `Part`. Where the powers cancel, the twin takes the place of
the value. It divides only by twins that are near zero only where the value is, so that nothing is lost by the scale that was not lost
without it.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import VIEWS, Ordered, renewed


class Scale:
    """exp(m) of e, which is exp(x) whose sums go over `axes`; exp(x) to which something is added, without axes; or a softmax or a sigmoid
    that divides, with its logarithm for m."""

    __slots__ = ("axes", "e", "one_sided", "powers", "shift")

    def __init__(self, e: Node, axes: tuple[int, ...]) -> None:
        self.e, self.axes = e, axes
        self.one_sided = not axes                   # m >= 0 (where it falls: m <= 0): parts of different powers can divide together
        self.shift: Node | None = None              # m, of e's shape, 1 along axes; made when it is needed
        self.powers: dict[int, Node] = {}           # exp(power m)

    @property
    def falls(self) -> bool:
        return self.e.op.name in ("softmax", "sigmoid")


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


def _positive(node: Node) -> bool:
    return node.op.name == "constant" and node.dtype.kind == "f" and bool((node._attrs[0] > 0).all())


def _is_one(node: Node) -> bool:
    if node.op.name == "broadcast_to":
        node = node.inputs[0]
    return node.op.name == "constant" and node.shape == () and bool(node._attrs[0] == 1)


def _unsigned(x: Node) -> int:
    return id(x.inputs[0] if x.op.name == "negative" else x)


def scales(order: Sequence[Node]) -> dict[Any, dict[int, Scale]]:
    """By what is rewritten together, then by id: exponentials of which there are sums, by axes; those to which a constant is added, and
    softmaxes that divide; sigmoids that divide, those of -x by themselves: they share their derivative with those of x."""
    found: dict[Any, dict[int, Scale]] = {}

    def note(e: Node, axes: tuple[int, ...]) -> None:
        if e.dtype.kind == "f":
            key = ("sigmoid", e.inputs[0].op.name == "negative") if e.op.name == "sigmoid" else axes
            found.setdefault(key, {}).setdefault(id(e), Scale(e, axes))

    for node in order:
        name = node.op.name
        if name == "sum" and node.inputs[0].op.name == "exp":
            note(node.inputs[0], node._attrs[0])
        elif name == "add":
            for x, other in (node.inputs, node.inputs[::-1]):
                if x.op.name == "exp" and x.shape == node.shape and _positive(other):
                    note(x, ())
        elif (name in ("divide", "reciprocal") and node.inputs[-1].op.name in ("softmax", "sigmoid")) or (
                name == "log" and node.inputs[0].op.name == "sigmoid"):
            note(node.inputs[-1], ())
    return found


def cancelled(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """The graph with such quotients as those of their twins. Expects equal nodes to be merged."""
    result = _turned_sigmoids(order, outputs)
    done: set[Any] = set()
    while True:                         # softmaxes come into being, which may divide: those without axes go last
        found = {axes: by_id for axes, by_id in scales(result[0]).items() if axes not in done}
        if not found:
            return result
        axes = max(found, key=lambda key: (key[:1] != ("sigmoid",), len(key)))
        done.add(axes)
        again = True
        while again:
            rewriting = _Rewriting(found[axes])
            rewritten = rewriting.run(*result)
            again = rewriting.again
        result = rewritten


def _turned_sigmoids(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """1 - sigmoid(x) that divides, or of which the logarithm is taken, as sigmoid(-x), which does not lose its digits."""
    turned = {id(x) for node in order if node.op.name in ("log", "divide", "reciprocal") and node.dtype.kind == "f"
              for x in node.inputs[-1:]
              if x.op.name == "subtract" and _is_one(x.inputs[0]) and x.inputs[1].op.name == "sigmoid" and x.shape == x.inputs[1].shape}
    if not turned:
        return list(order), list(outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    before = -1.0
    for node in order:
        here = renewed(node, new)
        if id(node) in turned:
            x = new[id(node.inputs[1].inputs[0])]
            minus = new_node(lookup("negative"), (x,), (), x.shape, x.dtype, node._site, node.origin, None, node.scope, (before + node.serial) / 2)
            here = new_node(lookup("sigmoid"), (minus,), (), node.shape, node.dtype, node._site, node.origin, node.name, node.scope, node.serial)
            kept.append(minus)
        before = node.serial
        kept.append(here)
        new[id(node)] = here
    return kept, [new[id(o)] for o in outputs]


def _long(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Those of the axes that are longer than 1, counted from the end."""
    return tuple([a - len(shape) for a in axes if shape[a] != 1])


class _Rewriting:
    def __init__(self, found: dict[int, Scale]) -> None:
        self.found = found
        # s (1 - s), by its argument or minus that, is the derivative of each of these sigmoids, and of 1 minus it.
        self.slopes = {_unsigned(scale.e.inputs[0]): scale for scale in found.values() if scale.e.op.name == "sigmoid"}
        self.again = False              # a scale was not one-sided, and has to be
        self.new: dict[int, Node] = {}
        self.values: dict[int, Value] = {}
        self.kept: list[Node] = []
        self.node: Any = None           # the one that others are made for
        self.here: Any = None           # the same over rewritten operands

    def run(self, order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
        before = -1.0
        for node in order:
            written = renewed(node, self.new)
            self.node, self.here, first = node, written, len(self.kept)
            scale = self.found.get(id(node))
            if scale is not None:
                self.values[id(node)] = self.start(scale)
            elif node.dtype.kind == "f" and any(id(x) in self.values for x in node.inputs):
                self.follow()
            elif node.op.name == "sigmoid_grad" and _unsigned(node.inputs[0]) in self.slopes:
                self.values[id(node)] = self.as_slope(self.slopes[_unsigned(node.inputs[0])])
            made = self.kept[first:]
            for k, m in enumerate(made, 1):         # serials are the order: between that of the node before and its own
                object.__setattr__(m, "serial", before + (node.serial - before) * k / (len(made) + 1))
            before = node.serial
            self.kept.append(written)
            self.new[id(node)] = self.here
        return self.kept, [self.new[id(o)] for o in outputs]

    def make(self, op: str, inputs: tuple[Node, ...], shape: tuple[int, ...], attrs: tuple[Any, ...] = ()) -> Node:
        n = self.node
        made = new_node(lookup(op), inputs, attrs, shape, n.dtype, n._site, n.origin, None, n.scope, n.serial)
        self.kept.append(made)
        return made

    def number(self, value: float) -> Node:
        array = np.array(value, self.node.dtype)
        array.flags.writeable = False
        return self.make("constant", (), (), (array,))

    def ones(self, shape: tuple[int, ...]) -> Node:
        return self.make("broadcast_to", (self.number(1.0),), shape, (shape,)) if shape else self.number(1.0)

    def start(self, scale: Scale) -> Value:
        e = self.here
        (x,), axes, shape = e.inputs, scale.axes, e.shape
        places = _long(shape, [a for a in range(len(shape)) if a not in axes])
        scale.powers, scale.shift = {}, None
        if scale.falls:
            twin = self.ones(shape)
        elif not axes:
            twin = self.make("sigmoid", (x,), shape)
        elif len(axes) == 1 and not scale.one_sided:
            twin = self.make("softmax", (x,), shape, axes)
        else:
            twin = self.make("exp", (self.make("subtract", (x, self.shift(scale)), shape),), shape)
        return Value(scale, places, (Part(1, twin, e, divides=not axes),))

    def shift(self, scale: Scale) -> Node:
        """m: a logarithm of the sum or, where it must not be below 0, the largest x of the sum, or 0."""
        if scale.shift is None:
            x, axes, shape = self.new[id(scale.e.inputs[0])], scale.axes, scale.e.shape
            kept = tuple([1 if a in axes else n for a, n in enumerate(shape)])
            if scale.e.op.name == "sigmoid":
                opposite = self.make("softplus", (self.make("negative", (x,), shape),), shape)
                scale.shift = self.make("negative", (opposite,), shape)
            elif scale.falls:
                scale.shift = self.make("log_softmax", (x,), shape, scale.e._attrs)
            elif not axes:
                scale.shift = self.make("softplus", (x,), shape)
            elif not scale.one_sided:
                scale.shift = self.make("logsumexp", (x,), kept, (axes, True))
            else:
                scale.shift = self.make("maximum", (self.make("max", (x,), kept, (axes, True)), self.number(0.0)), kept)
        return scale.shift

    def along(self, m: Node, places: tuple[int, ...], ndim: int) -> Node | None:
        """A node of the scale's shape (m, or a power) as one that fits beside twins; None where its axes stand in another order."""
        if list(places) != sorted(places):
            return None
        shape = [1] * ndim
        for place, n in zip(places, [n for n in m.shape if n != 1], strict=True):
            shape[place] = n
        return m if m.shape == tuple(shape) else self.make("reshape", (m,), tuple(shape), (tuple(shape),))

    def scaled(self, v: Value, twin: Node, power: int, shape: tuple[int, ...]) -> Node | None:
        """twin * exp(power m), of a shape."""
        scale = v.scale
        factor = scale.powers.get(power)
        if factor is None:
            m = self.shift(scale)
            factor = scale.powers[power] = self.make("exp", (self.make("multiply", (m, self.number(power)), m.shape),), m.shape)
        factor = self.along(factor, v.places, len(shape))
        return None if factor is None else self.make("zmul" if v.silent else "multiply", (twin, factor), shape)

    def follow(self) -> None:
        """The node as parts, from those of its inputs, and what takes its place. Other nodes take the values of theirs."""
        node = self.node
        rule = _RULES.get(node.op.name)
        values = [self.values.get(id(x)) for x in node.inputs]
        some = [v for v in values if v is not None]
        if rule is None or any(v.scale is not some[0].scale or v.places != some[0].places for v in some):
            return
        # What has no parts is one of power 0, at the same places.
        operands = [some[0]._replace(parts=(Part(0, self.new[id(x)], self.new[id(x)], _positive(x)),)) if v is None else v
                    for v, x in zip(values, node.inputs, strict=True)]
        silent = node.origin is not None or any(v.silent for v in operands)
        found = rule(self, *[v._replace(silent=silent) for v in operands])
        if found is None or len(found.parts) > _MOST:
            return
        found = found._replace(silent=silent)
        if any(p.crossed for p in found.parts):
            self.replace(found)
        if any(p.power for p in found.parts):
            self.values[id(node)] = found

    def as_slope(self, scale: Scale) -> Value:
        """The node, s (1 - s) of a sigmoid that is exp(m): 1 - s is sigmoid(-x)."""
        x = self.new[id(scale.e.inputs[0])]
        rest = self.make("sigmoid", (x.inputs[0] if x.op.name == "negative" else self.make("negative", (x,), x.shape),), x.shape)
        return Value(scale, _long(x.shape, range(len(x.shape))), (Part(1, rest, self.here),))

    def replace(self, v: Value) -> None:
        """Twins in the place of what may be inf / inf: those that are the value, and those that a factor below 1 makes the value."""
        shape = self.node.shape
        falls = 0 if not v.scale.one_sided else 1 if v.scale.falls else -1
        terms = [p.twin if p.crossed and not p.power else self.scaled(v, p.twin, p.power, shape) if p.crossed and p.power * falls > 0 else p.written
                 for p in v.parts]
        total = terms[0]
        for term in terms[1:]:
            total = None if total is None or term is None else self.make("add", (total, term), shape)
        if total is not None:
            self.here = total

    def joined(self, v: Value, parts: Sequence[Part]) -> Value:
        """Parts of one power as one."""
        by_power: dict[int, Part] = {}
        shape = self.node.shape
        for p in parts:
            q = by_power.get(p.power)
            by_power[p.power] = p if q is None else Part(
                p.power, self.make("add", (q.twin, p.twin), shape), self.make("add", (q.written, p.written), shape), p.divides and q.divides,
                p.crossed or q.crossed)
        return v._replace(parts=tuple(by_power.values()))

    def over(self, op: str, a: Node, b: Node, shape: tuple[int, ...]) -> Node:
        """op of two twins, of which one may be 1."""
        kept = a if _is_one(b) else b if _is_one(a) and op != "divide" else None
        if kept is None:
            return self.make(op, (a, b), shape)
        return kept if kept.shape == shape else self.make("broadcast_to", (kept,), shape, (shape,))

    def each(self, v: Value, divides: bool = True, places: Any = None) -> Value:
        """A linear op of one operand, of every part."""
        op, attrs, shape = self.node.op.name, self.node._attrs, self.node.shape
        alone = len(v.parts) == 1
        parts = [Part(p.power, self.ones(shape) if op in VIEWS and _is_one(p.twin) else self.make(op, (p.twin,), shape, attrs),
                      self.here if alone else self.make(op, (p.written,), shape, attrs), divides and p.divides, p.crossed) for p in v.parts]
        return Value(v.scale, v.places if places is None else places, tuple(parts))

    def times(self, v: Value, a: Sequence[Part], b: Sequence[Part], sign: int = 1) -> Value:
        """Each part of a by (sign -1: divided by) each of b."""
        op, shape = self.node.op.name, self.node.shape
        alone = len(a) == len(b) == 1
        return self.joined(v, [Part(
            p.power + sign * q.power, self.over(op, p.twin, q.twin, shape), self.here if alone else self.make(op, (p.written, q.written), shape),
            p.divides and q.divides, p.crossed or q.crossed or sign * p.power * q.power < 0) for p in a for q in b])

    def product(self, a: Value, b: Value) -> Value | None:
        return self.times(a, a.parts, b.parts)

    def quotient(self, a: Value, b: Value) -> Value | None:
        by = self.divisor(b, self.node.inputs[1])
        return None if by is None else self.times(a, a.parts, (by,), -1)

    def inverse(self, a: Value) -> Value | None:
        by = self.divisor(a, self.node.inputs[0])
        if by is None:
            return None
        twin = by.twin if _is_one(by.twin) else self.make("reciprocal", (by.twin,), self.node.shape)
        return a._replace(parts=(Part(-by.power, twin, self.here, True, by.crossed),))

    def square(self, a: Value) -> Value | None:
        p = a.parts[0] if len(a.parts) == 1 else self.divisor(a, self.node.inputs[0])
        if p is None:
            return None
        twin = p.twin if _is_one(p.twin) else self.make("square", (p.twin,), self.node.shape)
        return a._replace(parts=(Part(2 * p.power, twin, self.here, p.divides, p.crossed),))

    def negative(self, a: Value) -> Value | None:
        return self.each(a, divides=False)

    def add(self, a: Value, b: Value) -> Value | None:
        shape = self.node.shape
        parts = []
        for v, sign in ((a, 1), (b, -1 if self.node.op.name == "subtract" else 1)):
            for p in v.parts:
                twin, written = (p.twin, p.written) if sign > 0 else [self.make("negative", (x,), x.shape) for x in (p.twin, p.written)]
                if twin.shape != shape:
                    twin, written = [self.make("broadcast_to", (x,), shape, (shape,)) for x in (twin, written)]
                parts.append(Part(p.power, twin, written, p.divides and sign > 0, p.crossed))
        return self.joined(a, parts)

    def divisor(self, v: Value, node: Node) -> Part | None:
        """All parts as one, if it can divide. Where exp(m) is at least 1 (of a softmax: at most) nothing overflows on the way."""
        if len(v.parts) == 1 and not v.parts[0].power:              # no scale, nothing to lose
            return v.parts[0]
        if not all(p.divides for p in v.parts):
            return None
        if len(v.parts) == 1:
            return v.parts[0]
        if not v.scale.one_sided:
            v.scale.one_sided = self.again = True
            return None
        powers = [p.power for p in v.parts]
        scale = v.scale
        power = min(powers) if scale.falls else max(powers)
        total = self.ones(node.shape) if not scale.axes and node.op.name == "add" and any(_is_one(x) for x in node.inputs) and any(
            x is scale.e for x in node.inputs) else None            # 1 + exp(x) is the scale itself
        for p in v.parts if total is None else ():
            term = p.twin if p.power == power else self.scaled(v, p.twin, p.power - power, node.shape)
            if term is None:
                return None
            total = term if total is None else self.make("add", (total, term), node.shape)
        assert total is not None
        return Part(power, total, self.new[id(node)], True, any(p.crossed for p in v.parts))

    def total(self, a: Value) -> Value | None:
        axes, keepdims = self.node._attrs
        x, at = self.node.inputs[0], [p + len(self.node.inputs[0].shape) for p in a.places]
        if any(i in axes for i in at):
            return None
        if not keepdims:
            at = [i - sum([k < i for k in axes]) for i in at]
        places = tuple([i - len(self.node.shape) for i in at])
        v = self.each(a, places=places)
        if x is a.scale.e and axes == a.scale.axes:                 # the scale itself or, one-sided, of which one term is 1
            v = v._replace(parts=tuple([p._replace(divides=True, twin=p.twin if a.scale.one_sided else self.ones(self.node.shape)) for p in v.parts]))
        return v

    def repeated(self, a: Value) -> Value | None:
        return self.each(a)

    def turned(self, a: Value) -> Value | None:
        order, n = self.node._attrs[0], len(self.node.shape)
        return self.each(a, places=tuple([order.index(p + n) - n for p in a.places]))

    def reshaped(self, a: Value) -> Value | None:
        before, after = self.node.inputs[0].shape, self.node.shape
        if [n for n in before if n != 1] != [n for n in after if n != 1]:
            return None
        to = dict(zip(_long(before, range(len(before))), _long(after, range(len(after))), strict=True))
        return self.each(a, places=tuple([to[p] for p in a.places]))

    def log(self, a: Value) -> Value | None:
        by, shape = self.divisor(a, self.node.inputs[0]), self.node.shape
        m = None if by is None or not by.power else self.along(self.shift(a.scale), a.places, len(shape))
        if by is None or m is None:
            return None
        value = m if by.power == 1 else self.make("multiply", (m, self.number(by.power)), m.shape)
        if not _is_one(by.twin) or value.shape != shape:
            value = self.make("add", (self.make("log", (by.twin,), shape), value), shape)
        return a._replace(parts=(Part(0, value, self.here, crossed=True),))


_MOST = 4               # parts of a value
_RULES: dict[str, Any] = {
    "multiply": _Rewriting.product, "zmul": _Rewriting.product, "zmul_either": _Rewriting.product, "divide": _Rewriting.quotient,
    "reciprocal": _Rewriting.inverse, "square": _Rewriting.square, "negative": _Rewriting.negative, "add": _Rewriting.add, "subtract": _Rewriting.add,
    "sum": _Rewriting.total, "broadcast_to": _Rewriting.repeated, "transpose": _Rewriting.turned, "reshape": _Rewriting.reshaped,
    "log": _Rewriting.log,
}
