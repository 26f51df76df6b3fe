"""The rewriting of a graph over values that have scales: every node as parts, from those of its operands, by the rules of its op."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..diff.forms import MEETING, SAME, divisors
from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .scales import Joined, Moved, Part, Scale, Value, is_one, like, long_axes, positives, second_bodies, softmax_over, unsigned
from .simplify import Ordered, renewed

_MOST = 4               # parts of a value
_BITS = 4096            # of more scales, some share one: they may have a round that is not needed
_EVEN = sum(1 << 2 * k for k in range(_BITS))
_INVERTING = frozenset(("divide", "reciprocal"))        # by the last operand
_LOGARITHMS = frozenset(("log", "log2", "log10", "xlogy"))
JOINING = frozenset(("concatenate", "slice_add", "slice_set"))      # each operand keeps its own scale
_FACTORS = 8            # of a product, that are looked at


def _factors(x: Node) -> tuple[bool, list[int]]:
    """Is a product negative, and the ids of its factors; of the first few, the others as one."""
    minus, stack = False, [x]
    found: list[int] = []
    while stack:
        x = stack.pop()
        name = x.op.name
        if name == "negative":
            minus = not minus
            stack.append(x.inputs[0])
        elif name in ("multiply", "zmul", "zmul_either") and len(found) < _FACTORS and all(y.shape == x.shape for y in x.inputs):
            stack.extend(x.inputs)
        elif not is_one(x):
            found.append(id(x))
    return minus, found


def _signed(x: Node, minus: bool = False) -> tuple[int, bool]:
    """x, or minus that, by what it is without its sign."""
    return unsigned(x), (x.op.name == "negative") is not minus


def _opposite(bits: int) -> int:
    return (bits & _EVEN) << 1 | bits >> 1 & _EVEN


class Rewriting:
    def __init__(self, found: dict[int, Scale], rules: Mapping[str, Callable[..., Value | None]], order: Sequence[Node]) -> None:
        self.found, self.rules = found, rules
        self.positive = positives(order)
        for scale in found.values():
            scale.shift, scale.powers, scale.twin = None, {}, None
        # s (1 - s), by its argument or minus that, is the derivative of each of these sigmoids, and of 1 minus it.
        self.slopes = {unsigned(scale.e.inputs[0]): scale for scale in found.values() if scale.e.op.name == "sigmoid" or scale.is_softplus}
        # sigmoid(-x) is the inverse of 1 + exp(x).
        self.inverses = {_signed(scale.e.inputs[0]): scale for scale in found.values() if scale.is_softplus}
        self.again = False              # a scale was not one-sided, and has to be
        self.changed = False
        self.crowded = False            # there are no more serials between those of two nodes
        # Two bits a scale: of its powers above 0, and below.
        self.bits = {e: 1 << 2 * (k % _BITS) for k, e in enumerate(found)}
        self.dropped: dict[int, int] = {}                   # by node: bits of what was not kept on the way to it
        self.met = 0                                        # those that would have cancelled later
        self.apart: dict[int, set[int]] = {}                # ids of the exponentials of scales that met
        self.factored: dict[int, tuple[bool, list[int]]] = {}
        self.moved: dict[Any, Scale] = {}                   # scales by how they came from others
        self.pieces: dict[Any, Scale] = {}                  # those put together of several, by each of these and where it went
        self.new: dict[int, Node] = {}
        self.values: dict[int, Value] = {}
        self.kept: list[Node] = []
        self.cut: set[Any] = set()                          # where something was put, and in what shape
        self.divisors: set[int] | None = None               # made when they are needed; loose: through products of any kind
        self.loose: set[int] | None = None
        self.order: Sequence[Node] = ()
        self.by_serial: dict[float, Node] = {}
        self.node: Any = None           # the one that others are made for
        self.here: Any = None           # the same over rewritten operands

    def run(self, order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
        before = -1.0
        self.order = order
        again, bodies = second_bodies(order, self.found)
        for node in order:
            written = renewed(node, self.new)
            self.node, self.here, first = node, written, len(self.kept)
            scale = self.found.get(id(node))
            if scale is not None:
                self.values[id(node)] = self.start(scale)
            elif again and id(node) in again:
                self.values[id(node)] = self.start(again[id(node)])
            elif node.dtype.kind == "f" and node.op.name in self.rules:
                if any(id(x) in self.values for x in node.inputs):
                    self.follow()
                if self.dropped:
                    self.pass_on()
            elif node.op.name == "sigmoid" and self.inverses and _signed(node.inputs[0], True) in self.inverses:
                places = long_axes(node.shape, range(len(node.shape)))
                scale = self.inverses[_signed(node.inputs[0], True)]
                self.values[id(node)] = Value(scale, places, (Part(-1, self.ones(node.shape), written, True),))
            elif node.op.name == "sigmoid_grad" and self.slopes:
                x = unsigned(node.inputs[0])
                scale = self.slopes.get(bodies.get(x, x))
                if scale is not None:
                    self.values[id(node)] = self.as_slope(scale)
            made = self.kept[first:]
            step = (node.serial - before) / (len(made) + 1)
            for k, m in enumerate(made, 1):         # serials are the order: between that of the node before and its own
                object.__setattr__(m, "serial", before + step * k)
            self.crowded = self.crowded or (bool(made) and step < 4 * math.ulp(node.serial))
            before = node.serial
            self.kept.append(written)
            self.new[id(node)] = self.here
            self.changed = self.changed or self.here is not written
        return self.kept, [self.new[id(o)] for o in outputs]

    def make(self, op: str, inputs: tuple[Node, ...], shape: tuple[int, ...], attrs: tuple[Any, ...] = (), dtype: Any = None) -> Node:
        n = self.node
        if dtype is None:               # that of its operands: a scale's nodes may be made for one of another dtype
            dtype = next((x.dtype for x in inputs if x.dtype.kind == "f"), n.dtype)
        made = new_node(lookup(op), inputs, attrs, shape, dtype, n._site, n.origin, None, n.scope, n.serial)
        self.kept.append(made)
        return made

    def number(self, value: float, like: Node | None = None) -> Node:
        array = np.array(value, (self.node if like is None else like).dtype)
        array.flags.writeable = False
        return self.make("constant", (), (), (array,), array.dtype)

    def recast(self, x: Node) -> Node:
        """x in the node's dtype."""
        dtype = self.node.dtype
        return x if x.dtype is dtype else self.make("cast", (x,), x.shape, (dtype,), dtype)

    def ones(self, shape: tuple[int, ...]) -> Node:
        return self.make("broadcast_to", (self.number(1.0),), shape, (shape,)) if shape else self.number(1.0)

    def start(self, scale: Scale) -> Value:
        e = self.here
        (x,), axes, shape = e.inputs, scale.axes, e.shape
        places = long_axes(shape, [a for a in range(len(shape)) if a not in axes])
        steps = softmax_over(axes, shape) if axes else []
        if scale.falls:
            twin = self.ones(shape)
        elif not axes:
            twin = scale.twin = self.make("sigmoid", (x,), shape)
        elif steps and not scale.one_sided:
            twin = x
            for step in steps:
                twin = self.make(step.op, (twin,), step.shape, step.attrs)
        else:
            twin = self.make("exp", (self.make("subtract", (x, self.shift(scale)), shape),), shape)
        return Value(scale, places, (Part(1, twin, e, divides=not axes),))

    def argument(self, scale: Scale) -> Node:
        """What the scale's function is of. A slope by the same argument, or minus that, can come before the function: it may not be there yet."""
        (x,) = scale.e.inputs
        here = self.new.get(id(x))
        return self.make("negative", (self.new[id(x.inputs[0])],), x.shape) if here is None else here

    def shift(self, scale: Scale) -> Node:
        """m: a logarithm of the sum or, where it must not be below 0, the largest x of the sum, or 0."""
        stack = [scale]
        while stack:
            s = stack[-1]
            moved = s.moved
            before = [] if moved is None else [moved.scale] if isinstance(moved, Moved) else [p[0] for p in moved.pieces if p is not None]
            before = [b for b in before if b.shift is None]
            if before and s.shift is None:
                stack += before
                continue
            stack.pop()
            if s.shift is None:
                s.shift = self.first_shift(s) if moved is None else self.move(moved) if isinstance(moved, Moved) else self.put_together(moved)
        assert scale.shift is not None
        return scale.shift

    def spread(self, m: Node, places: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        """A node of a scale's shape as large as the values of that scale."""
        m = self.along(m, places, len(shape))
        return m if m.shape == shape else self.make("broadcast_to", (m,), shape, (shape,))

    def put_together(self, joined: Joined) -> Node:
        """The m of a scale that was put together of several."""
        parts = []
        for piece, shape in zip(joined.pieces, joined.shapes, strict=True):
            if piece is None:
                array = np.zeros((), joined.dtype)
                array.flags.writeable = False
                m = self.make("constant", (), (), (array,), joined.dtype)
                parts.append(self.make("broadcast_to", (m,), shape, (shape,)) if shape else m)
            else:
                assert piece[0].shift is not None
                m = self.spread(piece[0].shift, piece[1], shape)
                parts.append(m if m.dtype is joined.dtype else self.make("cast", (m,), shape, (joined.dtype,), joined.dtype))
        return self.make(joined.op, tuple(parts), joined.after, joined.attrs)

    def move(self, moved: Moved) -> Node:
        """The m of a scale, moved as that was."""
        assert moved.scale.shift is not None
        m = self.spread(moved.scale.shift, moved.places, moved.before)
        others = [self.new[id(x)] for x in moved.others]
        if moved.op == "where":                     # where the scale's value is not taken, m is 0
            cond, first = others[0], moved.attrs[0]
            zero = self.number(0.0, m)
            return self.make("where", (cond, m, zero) if first else (cond, zero, m), moved.after)
        return self.make(moved.op, (m, *others), moved.after, moved.attrs)

    def first_shift(self, scale: Scale) -> Node:
        if scale.shift is None:
            x, axes, shape = self.argument(scale), scale.axes, scale.e.shape
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
                scale.shift = self.make("maximum", (self.make("max", (x,), kept, (axes, True)), self.number(0.0, x)), kept)
        return scale.shift

    def along(self, m: Node, places: tuple[int, ...], ndim: int) -> Node:
        """A node of the scale's shape (m, or a power) as one that fits beside twins."""
        lengths = [n for n in m.shape if n != 1]
        if list(places) != sorted(places):
            order = tuple(sorted(range(len(places)), key=places.__getitem__))
            if m.shape != tuple(lengths):
                m = self.make("reshape", (m,), tuple(lengths), (tuple(lengths),))
            places, lengths = tuple([places[i] for i in order]), [lengths[i] for i in order]
            m = self.make("transpose", (m,), tuple(lengths), (order,))
        shape = [1] * ndim
        for place, n in zip(places, lengths, strict=True):
            shape[place] = n
        return m if m.shape == tuple(shape) else self.make("reshape", (m,), tuple(shape), (tuple(shape),))

    def scaled(self, v: Value, twin: Node, power: int, shape: tuple[int, ...]) -> Node:
        """twin * exp(power m), of a shape."""
        scale = v.scale
        factor = scale.powers.get(power)
        if factor is None:
            factor = scale.powers[power] = self.power_of(scale, power)
        return self.make("zmul_either" if v.silent else "multiply", (twin, self.recast(self.along(factor, v.places, len(shape)))), shape)

    def power_of(self, scale: Scale, power: int) -> Node:
        """exp(power m). Of 1 + exp(x) the inverse is sigmoid(-x), which keeps its digits, and is a scale itself if it is divided by."""
        if power in (-1, -2) and scale.is_softplus:
            x = self.argument(scale)
            inverse = self.make("sigmoid", (x.inputs[0] if x.op.name == "negative" else self.make("negative", (x,), x.shape),), x.shape)
            return inverse if power == -1 else self.make("square", (inverse,), x.shape)
        if power in (1, 2) and scale.falls and not scale.moved:
            e = self.new[id(scale.e)]
            return e if power == 1 else self.make("square", (e,), e.shape)
        m = self.shift(scale)
        return self.make("exp", (self.make("multiply", (m, self.number(power, m)), m.shape),), m.shape)

    @property
    def lost(self) -> list[int]:
        """Ids of the exponentials whose scales must have another round."""
        both = self.met | _opposite(self.met)
        return [e for e, bit in self.bits.items() if bit & both and e in self.apart]

    def signs(self, v: Value | None, k: int = 0) -> int:
        """The bits of a value's powers, as operand k of the node."""
        if v is None:
            return 0
        bit, found = 0, 0
        for root in v.scale.roots:
            bit |= self.bits[id(root.e)]
        for p in v.parts:
            if p.power:
                found |= bit if (p.power > 0) is not (self.node.op.name in _INVERTING and k == len(self.node.inputs) - 1) else bit << 1
        return found

    def kept_of(self, values: Sequence[Value | None]) -> Value:
        """That of some values whose scale the node is to have; the other scales are dropped."""
        some = [v for v in values if v is not None]
        best = some[-1]
        for v in some[-2::-1]:
            if v.overflows and not best.overflows:
                best = v
        mine, dropped = best.scale.roots, 0
        for k, value in enumerate(values):
            if value is None or value.scale.roots is mine:
                continue
            others = [root for root in value.scale.roots if root not in mine]
            if others:
                dropped |= self.signs(value, k)
            for other in others:
                for one in mine:
                    self.apart.setdefault(id(one.e), set()).add(id(other.e))
                    self.apart.setdefault(id(other.e), set()).add(id(one.e))
        if dropped:
            self.dropped[id(self.node)] = dropped
        return best

    def pass_on(self) -> None:
        """What was dropped from the operands is dropped here. It is missed by what has the opposite power, and by a logarithm."""
        node, dropped = self.node, 0
        if not any(id(x) in self.dropped for x in node.inputs):
            return
        for k, x in enumerate(node.inputs):
            bits = self.dropped.get(id(x), 0)
            if bits and node.op.name in _INVERTING and k == len(node.inputs) - 1:
                bits = _opposite(bits)
            if bits and node.op.name in MEETING:
                self.met |= bits & _opposite(dropped)
            dropped |= bits
        if dropped:
            here = self.dropped.get(id(node), 0)
            if node.op.name in MEETING:
                self.met |= dropped & _opposite(here | self.signs(self.values.get(id(node))))
            elif node.op.name in _LOGARITHMS:
                self.met |= dropped
            self.dropped[id(node)] = here | dropped

    def follow(self) -> None:
        """The node as parts, from those of its inputs, and what takes its place. Other nodes take the values of theirs."""
        node = self.node
        rule = self.rules[node.op.name]
        values = [self.values.get(id(x)) for x in node.inputs]
        if node.op.name in SAME:
            values[1:] = [None] * (len(values) - 1)
        some = [v for v in values if v is not None]
        if not some:
            return
        if node.op.name in JOINING:
            self.note(rule(self, *values), node.origin is not None or any(v.silent for v in some))
            return
        base = some[0]
        if any(v.scale is not base.scale or v.places != base.places for v in some):
            base = self.kept_of(values)
        silent = node.origin is not None or any(v.silent for v in some)
        operands = []
        for v, x in zip(values, node.inputs, strict=True):
            if v is None or v.scale is not base.scale or v.places != base.places:       # one of power 0, at the same places
                here = self.new[id(x)]
                v = Value(base.scale, base.places, (Part(0, here, here, id(x) in self.positive),), silent)
            operands.append(v if v.silent is silent else v._replace(silent=silent))
        self.note(rule(self, *operands), silent)

    def note(self, found: Value | None, silent: bool) -> None:
        """What a rule made of the node takes its place where it may be inf / inf, and is kept for what is made of it."""
        if found is None or len(found.parts) > _MOST:
            return
        found = found if found.silent is silent else found._replace(silent=silent)
        if any(p.crossed for p in found.parts):
            self.replace(found)
        # Of sigmoid(x), a twin, the rest to 1 may be needed.
        if any(p.power or (p.crossed and found.scale.is_softplus) for p in found.parts):
            self.values[id(self.node)] = found

    def is_divisor(self, node: Node) -> bool:
        """Does the node divide, or is a logarithm taken of it?"""
        if self.loose is None:
            self.loose = divisors(self.order, None)
        if id(node) not in self.loose:
            return False
        if self.divisors is None:
            self.divisors = divisors(self.order, like(self.order, list(self.found)))
        return id(node) in self.divisors

    def scale_before(self) -> Scale | None:
        """The scale of what the node's operand was once cut out of, if it is a cotangent, or of what the node is a tangent of."""
        origin = self.node.origin
        if origin is None or not origin.primal.inputs:
            return None
        if not self.by_serial:
            self.by_serial = {n.serial: n for n in self.order}
        stack = [origin.primal if origin.kind == "tangent" else origin.primal.inputs[0]]
        for _ in range(_FACTORS):
            if not stack:
                break
            node = stack.pop()
            here = self.by_serial.get(node.serial)
            v = None if here is None else self.values.get(id(here))
            if v is not None:
                return v.scale
            if here is None or here.op is not node.op:          # simplified: its operands
                stack += node.inputs
        return None

    def as_slope(self, scale: Scale) -> Value:
        """The node, s (1 - s) of a sigmoid that is exp(m): 1 - s is sigmoid(-x). Of one that is exp(-m), it is sigmoid(x)."""
        x = self.argument(scale)
        if scale.is_softplus:
            twin = self.make("sigmoid", (x,), x.shape) if scale.twin is None else scale.twin
            return Value(scale, long_axes(x.shape, range(len(x.shape))), (Part(-1, twin, self.here),))
        rest = self.make("sigmoid", (x.inputs[0] if x.op.name == "negative" else self.make("negative", (x,), x.shape),), x.shape)
        return Value(scale, long_axes(x.shape, range(len(x.shape))), (Part(1, rest, self.here),))

    def replace(self, v: Value) -> None:
        """Twins in the place of what may be inf / inf: those that are the value, and those that a factor below 1 makes the value."""
        shape = self.node.shape
        falls = 0 if not v.scale.one_sided else 1 if v.scale.falls else -1
        terms = [p.twin if p.crossed and not p.power else self.scaled(v, p.twin, p.power, shape) if p.crossed and p.power * falls > 0 else p.written
                 for p in v.parts]
        self.here = terms[0]
        for term in terms[1:]:
            self.here = self.make("add", (self.here, term), shape)

    def joined(self, v: Value, parts: Sequence[Part]) -> Value:
        """Parts of one power as one. Where a term is a multiple of sigmoid(x) they are kept apart for a while: others may be the rest to 1."""
        found: list[Part] = []
        for p in parts:
            k = 0
            while k < len(found):
                q = found[k]
                rest = self.without_sigmoid(v.scale, q.twin, p.twin) if p.power == q.power else None
                if rest is not None:
                    p = Part(p.power - 1, rest, self.make("add", (q.written, p.written), self.node.shape), False, p.crossed or q.crossed)
                    del found[k]
                    k = -1
                k += 1
            found.append(p)
        most = _MOST if v.scale.is_softplus and any(id(v.scale.twin) in self.factors(p.twin)[1] for p in found) else 0
        k = len(found) - 1
        while k > 0 and len(found) > most:
            q = found[k]
            for i in range(k):
                p = found[i]
                if p.power == q.power:
                    twin, written = [self.make("add", (a, b), self.node.shape) for a, b in ((p.twin, q.twin), (p.written, q.written))]
                    found[i] = Part(p.power, twin, written, p.divides and q.divides, p.crossed or q.crossed)
                    del found[k]
                    break
            k -= 1
        return v._replace(parts=tuple(found))

    def factors(self, x: Node) -> tuple[bool, list[int]]:
        known = self.factored.get(id(x))
        if known is None:
            known = self.factored[id(x)] = _factors(x)
        return known

    def without_sigmoid(self, scale: Scale, a: Node, b: Node) -> Node | None:
        """p where one of two nodes is p and the other -p sigmoid(x), with the sigmoid of 1 + exp(x): their sum is p exp(-m), with all its digits."""
        if not scale.is_softplus:
            return None
        (minus, some), (other, more) = self.factors(a), self.factors(b)
        if minus == other or abs(len(some) - len(more)) != 1:
            return None
        p, fewer, more = (a, some, list(more)) if len(some) < len(more) else (b, more, list(some))
        for f in fewer:
            if f not in more:
                return None
            more.remove(f)
        return p if more[0] == id(scale.twin) else None

    def over(self, op: str, a: Node, b: Node, shape: tuple[int, ...]) -> Node:
        """op of two twins, of which one may be 1."""
        kept = a if is_one(b) else b if is_one(a) and op != "divide" else None
        if kept is None:
            return self.make(op, (a, b), shape)
        return kept if kept.shape == shape else self.make("broadcast_to", (kept,), shape, (shape,))
