"""What is put together of several values, each with a scale of its own, has the scales put together: rolled, padded, stacked, written into.

    log(concatenate(p, q))    is    log(concatenate(twin of p, twin of q)) + concatenate(m of p, m of q)

m is 0 where an operand has no scale. What is cut out of such a value or of its derivatives, just where an operand was put, has the scale of
that operand again, so that it cancels with what the operand was made of.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.node import Node
from ..ops.movement import is_whole
from ..ops.runs import turned_back
from .rewriting import Rewriting
from .scales import Joined, Moved, Part, Scale, Value, everywhere, is_zero

_MOST_ROOTS = 4096      # of one value: what is appended to itself a thousand times has them all each time
Place = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]        # starts, steps and sizes, as the attrs of a slice


def each_over(r: Rewriting, v: Value, inputs: Callable[[Node], tuple[Node, ...]], scale: Scale, places: tuple[int, ...], divides: bool) -> Value:
    """The node's op on every part, beside other operands."""
    op, attrs, shape = r.node.op.name, r.node._attrs, r.node.shape
    alone = len(v.parts) == 1           # then it is made of what took the place of the operand already
    return Value(scale, places, tuple([Part(
        p.power, r.make(op, inputs(p.twin), shape, attrs), r.here if alone else r.make(op, inputs(p.written), shape, attrs), divides and p.divides,
        p.crossed and not alone) for p in v.parts]))


def _scaled(v: Value | None) -> bool:
    return v is not None and any(p.power for p in v.parts)


def _where(node: Node) -> list[Place | None]:
    """Where each operand is put; None: everywhere else."""
    shapes = [x.shape for x in node.inputs]
    if node.op.name == "concatenate":
        (axis,), at = node._attrs, 0
        found: list[Place | None] = []
        for shape in shapes:
            starts = [0] * len(shape)
            starts[axis], at = at, at + shape[axis]
            found.append((tuple(starts), (1,) * len(shape), shape))
        return found
    if node.op.name == "place":
        return [(node._attrs[1], node._attrs[2], shapes[0])]
    return [None, (node._attrs[0], node._attrs[1], shapes[1])]


def _scale_of(r: Rewriting, values: Sequence[Value | None], at: Sequence[Place | None]) -> Scale | None:
    """The scale of what is put together; a derivative has that of what it is a derivative of, or none."""
    node = r.node
    pieces = tuple([(v.scale, v.places) if v is not None and _scaled(v) else None for v in values])
    ids = [None if p is None else (id(p[0]), p[1]) for p in pieces]
    attrs = node._attrs[:3] if node.op.name == "place" else node._attrs             # whatever fills the rest
    key = ("joined", node.op.name, attrs, tuple(ids), tuple([x.shape for x in node.inputs]), node.shape)
    scale = r.moved.get(key)
    if scale is None and node.origin is not None:
        for one, place in zip(ids, at, strict=True):
            scale = r.pieces.get((one, place, node.shape)) if one is not None else None
            if scale is not None:
                break
        return scale
    if scale is None:
        if not r.is_divisor(node):
            return None
        cuts = {place: k for k, place in enumerate(at) if place is not None}
        joined = Joined(pieces, tuple([x.shape for x in node.inputs]), cuts, node.op.name, (*attrs, 0.0) if node.op.name == "place" else attrs,
                        node.shape, node.dtype)
        first = next(p[0] for p in pieces if p is not None)
        scale = Scale(first.e, (), joined)
        if len(scale.roots) > _MOST_ROOTS or any(root.falls is not first.falls for root in scale.roots):
            return None
        scale.one_sided = all(root.one_sided for root in scale.roots)
        r.moved[key] = scale
        for one, place in zip(ids, at, strict=True):
            r.cut.add((place, node.shape))
            if one is not None:
                r.pieces.setdefault((one, place, node.shape), scale)
    return scale


def _piece(scale: Scale, k: int, place: Place | None, shape: tuple[int, ...]) -> tuple[bool, Any]:
    """Was something put where operand k is now, and from which scale."""
    joined = scale.moved
    assert isinstance(joined, Joined)
    at = joined.cuts.get(place) if place is not None else k if joined.op == "slice_set" else None
    return (False, None) if at is None or joined.shapes[at] != shape else (True, joined.pieces[at])


def joined(r: Rewriting, *values: Value | None) -> Value | None:
    """Operands one after the other, or written into each other or into a number."""
    node = r.node
    at = _where(node)
    if any(place is not None and is_whole(node.shape, *place) for place in at):         # nothing is cut out of its derivative (see simplify.py)
        return None
    if node.op.name == "slice_set":
        back = _back_to_the_first(r, values)
        before = r.scale_before() if back is not None else None
        if back is not None and (before is None or before is back.scale or not isinstance(before.moved, Joined)):
            return back if back.parts else None
    if not any(_scaled(v) for v in values):
        return None
    scale = _scale_of(r, values, at)
    if scale is None:
        return None
    terms: list[tuple[Part, ...]] = []                  # of each operand; one that has another scale is an operand like any
    own = []
    for k, (v, place, x) in enumerate(zip(values, at, node.inputs, strict=True)):
        there, piece = _piece(scale, k, place, x.shape)
        own.append((v if v is not None and piece is not None and piece == (v.scale, v.places) and _scaled(v) else None, there and piece is None))
    powers = list(dict.fromkeys([p.power for v, _ in own if v is not None for p in v.parts]))
    if not powers:
        return None
    divides = True
    for (v, is_free), x in zip(own, node.inputs, strict=True):
        if v is not None:
            terms.append(v.parts)
        else:
            here = r.new[id(x)]
            power = powers[0] if is_free or is_zero(x) else 0           # where m is 0, or the operand, it is of any power
            if power not in powers:
                powers.append(power)
            terms.append((Part(power, here, here, id(x) in r.positive),))
        divides = divides and all(p.divides for p in terms[-1])
    if node.op.name == "place":
        divides = divides and node._attrs[3] > 0
    alone = len(powers) == 1 and all(len(t) == 1 for t in terms)
    return Value(scale, everywhere(node.shape), tuple([_part(r, power, terms, divides and alone, alone, power == powers[0]) for power in powers]))


def _part(r: Rewriting, power: int, terms: Sequence[Sequence[Part]], divides: bool, alone: bool, first: bool) -> Part:
    """The terms of one power, put together; zeros where an operand has none. What a place is filled with is in the first power."""
    node = r.node
    attrs = node._attrs if node.op.name != "place" or first else (*node._attrs[:3], 0.0)
    twins: list[Node] = []
    written: list[Node] = []
    crossed = False
    for parts, x in zip(terms, node.inputs, strict=True):
        some = [p for p in parts if p.power == power]
        crossed = crossed or any(p.crossed for p in some)
        for nodes, own in ((twins, [p.twin for p in some]), (written, [p.written for p in some])):
            nodes.append(_total(r, own, x.shape))
    return Part(power, r.make(node.op.name, tuple(twins), node.shape, attrs),
                r.here if alone else r.make(node.op.name, tuple(written), node.shape, attrs), divides, crossed and not alone)


def _total(r: Rewriting, nodes: Sequence[Node], shape: tuple[int, ...]) -> Node:
    if not nodes:
        zero = r.number(0.0)
        return r.make("broadcast_to", (zero,), shape, (shape,)) if shape else zero
    total = nodes[0]
    for x in nodes[1:]:
        total = r.make("add", (total, x), shape)
    return total


def _back_to_the_first(r: Rewriting, values: Sequence[Value | None]) -> Value | None:
    """What was written into has its scale again where zeros take the place of what was written; it is as it is written if it had none."""
    v, moved = values[0], None if values[0] is None else values[0].scale.moved
    node = r.node
    if v is None or not isinstance(moved, Joined) or moved.op != "slice_set" or moved.attrs != node._attrs or moved.after != node.shape or (
            v.places != everywhere(node.shape) or not is_zero(node.inputs[1])):
        return None
    zeros, piece = r.new[id(node.inputs[1])], moved.pieces[0]
    return Value(v.scale, v.places, ()) if piece is None else each_over(r, v, lambda x: (x, zeros), *piece, False)


def cut_out(r: Rewriting, v: Value) -> Value | None:
    """An operand again, of what it was put together with, one without a scale as it is written; None if the slice is none of them."""
    moved, node = v.scale.moved, r.node
    if not isinstance(moved, Joined) or moved.after != node.inputs[0].shape or v.places != everywhere(moved.after):
        return None
    k = moved.cuts.get(node._attrs)
    if k is None:
        return None
    piece = moved.pieces[k]
    return Value(v.scale, v.places, ()) if piece is None else each_over(r, v, lambda x: (x,), *piece, True)


def put_back(r: Rewriting, v: Value, before: Scale | None) -> Value | None:
    """The derivative of what was cut out so, among zeros. before: the scale of what it was cut out of, if that is known."""
    node = r.node
    place = (*node._attrs[1:3], node.inputs[0].shape)
    if (place, node.shape) not in r.cut:
        return None
    scale = _before(before, place, v, node.shape) or r.pieces.get(((id(v.scale), v.places), place, node.shape))
    return None if scale is None else each_over(r, v, lambda x: (x,), scale, everywhere(node.shape), False)


def _before(scale: Scale | None, place: Place, v: Value, shape: tuple[int, ...]) -> Scale | None:
    """The scale, if such a value is one of its pieces."""
    joined = None if scale is None else scale.moved
    if not isinstance(joined, Joined) or joined.after != shape:
        return None
    k = joined.cuts.get(place)
    return scale if k is not None and joined.pieces[k] == (v.scale, v.places) else None


def added(r: Rewriting, a: Value | None, b: Value | None) -> Value | None:
    """x with y added to a part of it: both of one scale, after y is put back among zeros."""
    node = r.node
    x, y = node.inputs
    if b is None or not _scaled(b):
        return None
    place = (node._attrs[0], node._attrs[1], y.shape)
    moved = b.scale.moved
    fitting: list[tuple[Scale, tuple[int, ...]]] = []
    if isinstance(moved, Moved) and moved.op == "slice" and moved.attrs == place and moved.before == node.shape and b.places == everywhere(y.shape):
        fitting.append((moved.scale, moved.places))
    other = r.pieces.get(((id(b.scale), b.places), place, node.shape))
    if other is not None:
        fitting.append((other, everywhere(node.shape)))
    if a is not None and _scaled(a):
        fitting = [s for s in fitting if s == (a.scale, a.places)]
    if not fitting:
        return None
    scale, places = fitting[0]
    if len(fitting) > 1 and r.scale_before() is fitting[1][0]:
        scale, places = fitting[1]
    here = r.new[id(x)]
    mine = list(a.parts) if a is not None and _scaled(a) else [Part(0, here, here)]
    found = []
    for power in dict.fromkeys([p.power for p in (*mine, *b.parts)]):
        to, more = [[p for p in parts if p.power == power] for parts in (mine, b.parts)]
        if not more:
            found += [p._replace(divides=False) for p in to]
            continue
        nodes = []
        for own, extra in (([p.twin for p in to], [p.twin for p in more]), ([p.written for p in to], [p.written for p in more])):
            part = _total(r, extra, y.shape)
            nodes.append(r.make("slice_add", (_total(r, own, x.shape), part), node.shape, node._attrs) if own else
                         r.make("place", (part,), node.shape, (node.shape, *node._attrs, 0.0)))
        found.append(Part(power, nodes[0], nodes[1], False, any(p.crossed for p in (*to, *more))))
    return r.joined(Value(scale, places, ()), found)


def rolled_back(r: Rewriting, v: Value) -> Value | None:
    """What was rolled, where it was before."""
    node, moved = r.node, v.scale.moved
    if not isinstance(moved, Moved) or moved.op != "runs" or moved.before != node.shape or v.places != everywhere(moved.after):
        return None
    back = [turned_back(parts, n) for parts, n in zip(moved.attrs[0], moved.before, strict=True)]
    return each_over(r, v, lambda x: (x,), moved.scale, moved.places, True) if tuple(back) == node._attrs[0] else None
