"""Positions: several indices as one, gathers out of arrays whose elements lie apart, and elements put one by one.

The kernel of a gather takes x[A, n, B], evenly spaced along each axis. Where several axes are indexed that cannot be seen as one, or axes
before or after them cannot, its n is what distances the elements have in memory: its rows overlap, and a position is the distance of an
element from the first. So x[i, :, j] and x.T[i, j] read what they take, without a copy of x with its axes merged.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import INT64
from ..errors import DTypeError, OutOfBounds
from ..graph.build import make, make_constant
from ..graph.node import Node
from ..graph.opdef import OpDef, as_written, register, whereabouts
from ..specs import broadcast, nelements
from .movement import reshape_to

# A copy of an array takes 1 to 4 ns an element, a position 5 ns, an element that lies apart 1 to 2 ns.
COPIED_NBYTES = 1 << 14              # of arrays smaller than that is not worth the instructions that compute positions
SMALLER = 5                          # times a result has to be smaller
FEW = 12                             # an element put on its own takes 4 to 8 ns, one of an array that is turned, and turned back, 0.5

# -- indices -------------------------------------------------------------------------------------------------------


def check_index(i: Node, size: Any, axis: int) -> None:
    """A constant index is checked at once."""
    if i.dtype is not INT64:
        raise DTypeError(f"an index must be integers, not {i.dtype}")
    if i.op.name == "constant" and isinstance(size, int):
        v = i._attrs[0]
        bad = (v < -size) | (v >= size)
        if bad.any():
            raise OutOfBounds(f"index {as_written(int(v[bad][0]))} is out of bounds for axis {axis} with size {size}{whereabouts(bad)}")


def _ravel_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    for j, (i, n) in enumerate(zip(inputs, attrs[0], strict=True)):
        check_index(i, n, attrs[1] + j)
    return broadcast(*[i.shape for i in inputs]), INT64


def ravel_reference(*xs: Any, sizes: Any, axis: int) -> Any:
    total: Any = 0
    for j, (i, n) in enumerate(zip(xs, sizes, strict=True)):
        bad = i[(i < -n) | (i >= n)]
        if bad.size:
            raise IndexError(f"index {bad.flat[0]} is out of bounds for axis {axis + j} with size {n}")
        total = total * n + np.where(i < 0, i + n, i)
    return np.asarray(total, np.int64)


RAVEL_INDEX = register(OpDef("ravel_index", "several indices as one, over merged axes", _ravel_infer, ravel_reference,
                             attr_names=("sizes", "axis"), family="indexing", cuts="its result is an index",
                             lower=lambda ctx, node: ctx.emit("ravel_index", ctx.new(node.shape, INT64),
                                                              [ctx.raw(x).broadcast(node.shape) for x in node.inputs],
                                                              [*node._attrs[0], node._attrs[1]])))


def raveled(parts: list[tuple[Node, Any, int]]) -> Node:
    """One index for several, each of them (index, size, axis): the last ones first where others lie between, so that each is refused by its axis."""
    for k in range(len(parts) - 1, 0, -1):
        if parts[k][2] - parts[k - 1][2] != 1:
            indices, sizes, axes = zip(*parts[k:], strict=True)
            parts = [*parts[:k], (make(RAVEL_INDEX, indices, (sizes, axes[0])), nelements(sizes), parts[k - 1][2] + 1)]
    indices, sizes, axes = zip(*parts, strict=True)
    return make(RAVEL_INDEX, indices, (sizes, axes[0]))


# -- gathers -------------------------------------------------------------------------------------------------------

def _joined(v: Any, first: int, end: int) -> bool:
    """Are axes first .. end - 1 of a view evenly spaced, as one?"""
    axes = [(n, s) for n, s in zip(v.shape[first:end], v.strides[first:end], strict=True) if n != 1]
    return all(a == n * b for (_, a), (n, b) in itertools.pairwise(axes))


def _one(v: Any, first: int, end: int) -> tuple[int, int]:
    """(size, stride) of joined axes."""
    return math.prod(v.shape[first:end]), next((v.strides[a] for a in range(end - 1, first - 1, -1) if v.shape[a] != 1), 0)


def _source(ctx: Any, x: Node, axis: int) -> tuple[Any, int]:
    """(x as it lies, how many of its axes are merged to `axis` of x): what a reshape that merges axes had to copy is seen before that."""
    if x.op.name == "reshape":
        v = ctx.raw(x.inputs[0])
        k = len(v.shape) - x.ndim + 1
        if k > 1 and v.shape == (*x.shape[:axis], *v.shape[axis:axis + k], *x.shape[axis + 1:]) and v.reshape(x.shape) is None:
            return v, k
    return ctx.raw(x), 1


def _numbers(ctx: Any, i: Node, sizes: Sequence[int], steps: Sequence[int], axis: int) -> Any:
    """sum of position times step for indices that count through axes of these sizes as one: an array if they are known, else a view."""
    n = math.prod(sizes)
    if i.op.name == "constant":
        at = i._attrs[0].reshape(-1)
        places = np.unravel_index(np.where(at < 0, at + n, at), sizes)
        return sum((p * s for p, s in zip(places, steps, strict=True)), np.zeros(at.size, np.int64))
    at = ctx.reshape(ctx.raw(i), (i.size,))
    if i.op.name != "ravel_index":       # not checked yet, and it may count from the end
        at = ctx.emit("ravel_index", ctx.new(at.shape, at.dtype), [at], [n, axis])
    total = _times(ctx, at, steps[-1])
    inner = 1
    for k in range(len(sizes) - 2, -1, -1):
        inner *= sizes[k + 1]
        more = steps[k] - sizes[k + 1] * steps[k + 1]
        if more:
            total = ctx.map("add", total, _times(ctx, ctx.map("floor_divide", at, _number(ctx, inner)), more))
    return total


def _number(ctx: Any, value: int) -> Any:
    return ctx.constant(np.asarray(value, np.int64))


def _times(ctx: Any, v: Any, factor: int) -> Any:
    return v if factor == 1 else ctx.map("multiply", v, _number(ctx, factor))


def gathered(ctx: Any, node: Node) -> Any:
    """The view of a gather's result where the kernel would need a copy of x that is larger than the result; else None."""
    (axis,) = node._attrs
    x, i = node.inputs
    size = node.size
    if not size or size * SMALLER >= x.size or x.size * node.dtype.itemsize < COPIED_NBYTES:
        return None
    v, k = _source(ctx, x, axis)
    end, ndim = axis + k, len(v.shape)
    if k == 1 and _joined(v, 0, axis) and _joined(v, end, ndim):
        return None
    lead = next(a for a in range(axis, -1, -1) if _joined(v, 0, a))             # axes that are A of the kernel, and from `tail` on B
    tail = next(a for a in range(end, ndim + 1) if _joined(v, a, ndim))
    steps = list(v.strides)
    inside = [a for a in range(lead, tail) if v.shape[a] > 1]
    others = [a for a in inside if not axis <= a < end]
    if others and i.size * math.prod([v.shape[a] for a in others]) * 16 > x.size * node.dtype.itemsize:
        return None                              # as many positions as half of x: where it has many axes that cannot be seen as one
    unit = math.gcd(*[steps[a] for a in inside]) or 1
    first = sum((v.shape[a] - 1) * steps[a] for a in inside if steps[a] < 0)
    reach = sum((v.shape[a] - 1) * abs(steps[a]) for a in inside) // unit + 1
    steps = [s // unit if a in inside else 0 for a, s in enumerate(steps)]
    places = _numbers(ctx, i, v.shape[axis:end], steps[axis:end], axis)
    offset = np.asarray(-first // unit, np.int64)
    for a in others:
        line = np.arange(v.shape[a]) * steps[a]
        offset = offset + line.reshape([-1 if b == a else 1 for b in range(lead, tail) if not axis < b < end])
    if others:
        shape = (*v.shape[lead:axis], i.size, *v.shape[end:tail])
        offset = np.broadcast_to(offset, (*v.shape[lead:axis], 1, *v.shape[end:tail]))
        column = (*[1] * (axis - lead), i.size, *[1] * (tail - end))
        places = places.reshape(column)
    else:
        shape = (i.size,)
    if isinstance(places, np.ndarray):
        places = ctx.constant(np.ascontiguousarray(np.broadcast_to(places + offset, shape), np.int64))
    elif others or offset:
        places = ctx.map("add", places, ctx.constant(np.ascontiguousarray(offset)))
    places = ctx.reshape(places, (math.prod(shape),))
    (a, far), (b, near) = _one(v, 0, lead), _one(v, tail, ndim)
    out = ctx.new(node.shape, node.dtype)
    ctx.emit("gather", ctx.reshape(out, (a, math.prod(shape), b)), [v.with_layout((a, reach, b), (far, unit, near), first), places], [axis])
    return out


# -- elements put one by one ---------------------------------------------------------------------------------------

def is_few(x: Node, order: Sequence[int], shape: tuple[Any, ...], axes: Sequence[int]) -> bool:
    """Are the elements that index arrays of this common shape pick, on these axes of x, so few that they are better put one by one than in an
    array whose axes are in this order, which has to be turned and turned back?"""
    if list(order) == list(range(x.ndim)) or not all(isinstance(n, int) for n in (*x.shape, *shape)):
        return False
    return nelements((*shape, *[n for a, n in enumerate(x.shape) if a not in axes])) * FEW < x.size


def flat_index(x: Node, arrays: Sequence[tuple[int, Node, int]], first: int, shape: tuple[Any, ...]) -> Node:
    """Where the elements that `arrays` of (axis of x, index, axis that messages name) pick are, counted in C order, in the shape that indexing
    gives: the common `shape` of the indices after `first` other axes."""
    index = {a: (i, axis) for a, i, axis in arrays}
    rest = x.ndim - len(index)
    places = []
    seen = 0                                     # axes without an index
    for a, n in enumerate(x.shape):
        if a in index:
            i, axis = index[a]
            check_index(i, n, axis)
            if i.op.name != "constant":          # refused here, where it has the shape that the caller gave it
                i = make(RAVEL_INDEX, (i,), ((n,), axis))
            after = rest - first
        else:
            i = make_constant(np.arange(n))
            seen += 1
            after = rest - seen + (len(shape) if seen <= first else 0)
        wide = (*i.shape, *[1] * after)
        places.append(make_constant(i._attrs[0].reshape(wide)) if i.op.name == "constant" else reshape_to(i, wide))
    if all(i.op.name == "constant" for i in places):
        return make_constant(ravel_reference(*[i._attrs[0] for i in places], sizes=x.shape, axis=0))
    return make(RAVEL_INDEX, tuple(places), (x.shape, 0))


def turned_index(x: Node, i: Node, axis: int) -> tuple[Node, Node, tuple[int, ...]] | None:
    """(array, positions, order) of a gather of few elements from x = reshape(transpose(array, order)), which merged several axes to `axis`: where
    in the array, counted in C order, the elements are, in the shape of the result. What is added there need not be turned back. Else None."""
    k = x.inputs[0].ndim - x.ndim + 1 if x.op.name == "reshape" else 0
    if k < 2 or x.inputs[0].op.name != "transpose" or i.op.name not in ("constant", "ravel_index"):
        return None
    turned = x.inputs[0]
    array, order = turned.inputs[0], turned._attrs[0]
    shape = (*x.shape[:axis], *i.shape, *x.shape[axis + 1:])
    merged = turned.shape[axis:axis + k]
    if not all(isinstance(n, int) for n in (*array.shape, *shape)) or turned.shape != (*x.shape[:axis], *merged, *x.shape[axis + 1:]):
        return None
    if nelements(shape) * FEW >= array.size:
        return None
    places: list[Any] = [None] * array.ndim
    after = len(shape) - axis
    for a, n in enumerate(turned.shape):
        if not axis <= a < axis + k:
            places[order[a]] = make_constant(np.arange(n).reshape((n, *[1] * (turned.ndim - a - 1 if a > axis else len(shape) - a - 1))))
    for a, digit in zip(range(axis, axis + k), _digits(i, merged), strict=True):
        places[order[a]] = reshape_to(digit, (*i.shape, *[1] * (after - i.ndim)))
    if i.op.name == "constant":
        arrays = [p._attrs[0] if p.op.name == "constant" else p.inputs[0]._attrs[0].reshape(p.shape) for p in places]
        return array, make_constant(ravel_reference(*arrays, sizes=array.shape, axis=0)), order
    return array, make(RAVEL_INDEX, tuple(places), (array.shape, 0)), order


def _digits(i: Node, sizes: tuple[Any, ...]) -> list[Node]:
    """The positions along each of some axes of an index that counts through them as one."""
    if i.op.name == "constant":
        v = i._attrs[0]
        return [make_constant(np.asarray(d, np.int64)) for d in np.unravel_index(np.where(v < 0, v + nelements(sizes), v), sizes)]
    from .binary import floor_divide, remainder
    digits = []
    for n in sizes[:0:-1]:
        digits.append(remainder(i, n))
        i = floor_divide(i, n)
    return [i, *digits[::-1]]
