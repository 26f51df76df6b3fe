"""Indexing: x[index], take, take_along_axis, x.at[index], one_hot, segments.

An index is split once into a basic part (ints, slices, None: views) and an advanced part (integer arrays: gather). Several
index arrays become one linear index over merged axes, checked per axis. Constant indices are checked when built,
others when they run; both are OutOfBounds. NumPy's rule for the place of the gathered axes holds.
"""
from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ..dims import Dim
from ..dtypes import BOOL, FLOAT16, FLOAT32, INT64, as_dtype
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import SLICING, as_node, make, make_constant, public, unmasked
from ..graph.node import Node, known_as
from ..graph.opdef import NEVER, OpDef, register
from ..specs import as_shape, broadcast, check_memory, check_shape, format_shape, nelements, normalize_axis, spreads
from .creation import arange, full, zeros, zeros_like
from .families import cast, floating
from .gathers import moved_inside, written
from .movement import cut, expand_to, is_whole, permute, reshape_to, slice_axes, taken_for
from .points import check_index, flat_index, gathered, is_few, ravel_reference, raveled, turned_index
from .subscripts import Parsed, Run, as_run, index_node
from .writing import slice_add, slice_set

# -- primitives: a gather along one axis, its two scatters, and the same along the last axis -----------------------


def _gather_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x, i), (axis,) = inputs, attrs
    check_index(i, x.shape[axis], axis)
    shape = (*x.shape[:axis], *i.shape, *x.shape[axis + 1:])
    check_shape(shape, x.dtype)
    return shape, x.dtype


def _three(v: Any, ctx: Any, axis: int, width: int) -> Any:
    """[before, axes, after]: axis .. axis + width merged, the rest merged on both sides."""
    s = v.shape
    return ctx.reshape(v, (int(np.prod(s[:axis])), int(np.prod(s[axis:axis + width])), int(np.prod(s[axis + width:]))))


def _gather_lower(ctx: Any, node: Node) -> Any:
    (axis,) = node._attrs
    apart = gathered(ctx, node)
    if apart is not None:
        return apart
    index, mode = moved_inside(node.inputs[1], node.inputs[0].shape[axis])
    x, i = _three(ctx.raw(node.inputs[0]), ctx, axis, 1), ctx.raw(index)
    out = ctx.new(node.shape, node.dtype)
    if not node.size and node.inputs[1].size:           # the kernel looks at no index then, and one may be out of bounds
        at = ctx.reshape(ctx.raw(node.inputs[1]), (node.inputs[1].size,))
        i = ctx.emit("ravel_index", ctx.new(at.shape, INT64), [at], [node.inputs[0].shape[axis], axis])
    ctx.emit("gather", _three(out, ctx, axis, node.inputs[1].ndim), [x, ctx.reshape(i, (int(np.prod(i.shape)),))], [axis, mode] if mode else [axis])
    return out


def _scatter_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x, i, v), (axis,) = inputs, attrs
    check_index(i, x.shape[axis], axis)
    want = (*x.shape[:axis], *i.shape, *x.shape[axis + 1:])
    if len(want) != len(v.shape) or broadcast(want, v.shape) != want:
        raise ShapeError(f"values have shape {format_shape(v.shape)}, the indexed part has {format_shape(want)}")
    return x.shape, x.dtype


def _scatter_lower(kernel: str) -> Any:
    def rule(ctx: Any, node: Node) -> Any:
        (axis,) = node._attrs
        index, mode = written(node.inputs[1])
        x, v = [(ctx.raw if kernel == "scatter_set" else ctx.view)(y) for y in (node.inputs[0], node.inputs[2])]
        i = ctx.raw(index)
        out = ctx.new(node.shape, x.dtype)
        ctx.emit(kernel, _three(out, ctx, axis, 1), [_three(x, ctx, axis, 1), ctx.reshape(i, (int(np.prod(i.shape)),)),
                                                      _three(v, ctx, axis, len(i.shape))], [axis, mode] if mode else [axis])
        return out
    return rule


def _scatter_reference(add: bool) -> Any:
    def reference(x: Any, i: Any, v: Any, *, axis: int) -> Any:
        out = np.array(x, np.result_type(x, v) if np.iscomplexobj(v) else None)
        at = (builtins.slice(None),) * axis + (i,)
        if add:
            np.add.at(out, at, v)
        else:
            flat = out.reshape(-1)
            flat[np.arange(out.size).reshape(out.shape)[at].reshape(-1)] = np.broadcast_to(v, out[at].shape).reshape(-1)
        return out
    return reference


def _scattered(g: Node, x: Node, i: Node, axis: int) -> Node:
    turned = turned_index(x, i, axis)
    if turned is None:
        return make(SCATTER_ADD, (zeros_like(x), i, g), (axis,))
    array, at, order = turned
    total = make(SCATTER_ADD, (zeros((array.size,), x.dtype), at, g), (0,))
    return reshape_to(permute(reshape_to(total, array.shape), order), x.shape)


GATHER = register(OpDef("gather", "x at positions y of an axis", _gather_infer,
                        lambda x, i, *, axis: np.take(x, i, axis, mode="raise") if np.size(i) else np.take(x, i, axis, mode="clip"),
                        attr_names=("axis",), arity=2, family="indexing", linear=(0,), lower=_gather_lower,
                        vjp=lambda g, node, needs: (_scattered(g, *node.inputs, *node._attrs), None)))


def _scatter_add_vjp(g: Node, node: Node, needs: Any) -> Any:
    return (g if needs[0] else None, None, make(GATHER, (g, node.inputs[1]), node._attrs) if needs[2] else None)


def _scatter_add_jvp(ts: Any, node: Node) -> Node:
    x, i, _ = node.inputs
    tx = zeros_like(x) if ts[0] is None else ts[0]
    return tx if ts[2] is None else make(SCATTER_ADD, (tx, i, ts[2]), node._attrs)


SCATTER_ADD: OpDef = register(OpDef("scatter_add", "x with z added at positions y of an axis, duplicates accumulated in order", _scatter_infer,
                             _scatter_reference(True), attr_names=("axis",), arity=3, family="indexing", vjp=_scatter_add_vjp,
                             jvp=_scatter_add_jvp, lower=_scatter_lower("scatter_add"), cost=lambda node: node.inputs[2].size))


def _winners(node: Node) -> Node:
    """Which of the values are the last at their position: the others are overwritten and get no gradient."""
    from .binary import equal
    x, i, v = node.inputs
    (axis,) = node._attrs
    number = reshape_to(arange(nelements(i.shape)), i.shape)
    board = full((x.shape[axis],), -1, "int64")
    board = make(SCATTER_SET, (board, i, number), (0,))
    won = equal(make(GATHER, (board, i), (0,)), number)
    return expand_to(reshape_to(won, (*[1] * axis, *i.shape, *[1] * (x.ndim - axis - 1))), v.shape)


def _scatter_set_vjp(g: Node, node: Node, needs: Any) -> Any:
    from .binary import where
    x, i, v = node.inputs
    zero = expand_to(zeros_like(cut_scalar(v)), v.shape)
    gx = make(SCATTER_SET, (g, i, zero), node._attrs) if needs[0] else None
    gv = None
    if needs[2]:
        gv = make(GATHER, (g, i), node._attrs)
        if not _distinct(i, x.shape[node._attrs[0]]):
            gv = where(_winners(node), gv, 0.0)
    return (gx, None, gv)


def cut_scalar(v: Node) -> Node:
    from ..graph.build import scalar
    return scalar(0, v.dtype)


def _distinct(i: Node, size: Any) -> bool:
    if i.op.name != "constant" or not isinstance(size, int):
        return False
    v = i._attrs[0].reshape(-1)
    return bool(np.unique(np.where(v < 0, v + size, v)).size == v.size)


def _scatter_set_jvp(ts: Any, node: Node) -> Node:
    x, i, v = node.inputs
    tx = zeros_like(x) if ts[0] is None else ts[0]
    return make(SCATTER_SET, (tx, i, zeros_like(v) if ts[2] is None else ts[2]), node._attrs)


SCATTER_SET = register(OpDef("scatter_set", "x with z put at positions y of an axis, the last of duplicates stays", _scatter_infer,
                             _scatter_reference(False), attr_names=("axis",), arity=3, family="indexing", vjp=_scatter_set_vjp,
                             jvp=_scatter_set_jvp, lower=_scatter_lower("scatter_set")))


def _along_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x, i, *v), (axis,) = inputs, attrs
    check_index(i, x.shape[axis], axis)
    for a, (n, m) in enumerate(zip(x.shape, i.shape, strict=True)):
        if a != axis and n != m:
            raise ShapeError(f"sizes differ along axis {a}: {n} and {m}")
    return (x.shape if v else i.shape), x.dtype


def _along_lower(kernel: str) -> Any:
    def rule(ctx: Any, node: Node) -> Any:
        (axis,) = node._attrs
        order = list(range(node.ndim))
        order[axis], order[-1] = order[-1], order[axis]
        ins = [ctx.view(x) if x.dtype is not INT64 else ctx.raw(x) for x in node.inputs]
        out = ctx.new(node.shape, ins[0].dtype)
        ctx.emit(kernel, out.transpose(order), [v.transpose(order) for v in ins], [axis])
        return out
    return rule


def _scatter_along_reference(x: Any, i: Any, v: Any, *, axis: int) -> Any:
    out = np.moveaxis(np.array(x, np.result_type(x, v) if np.iscomplexobj(v) else None), axis, -1)
    if out.size == 0:
        return np.asarray(x)
    flat, i, v = out.reshape(-1, out.shape[-1]).copy(), np.moveaxis(i, axis, -1), np.moveaxis(v, axis, -1)
    rows = np.arange(flat.shape[0])[:, None]
    np.add.at(flat, (rows, i.reshape(flat.shape[0], i.shape[-1])), v.reshape(flat.shape[0], i.shape[-1]))
    return np.moveaxis(flat.reshape(out.shape), -1, axis)


GATHER_ALONG = register(OpDef("gather_along", "x at positions y, slice by slice along an axis", _along_infer,
                              lambda x, i, *, axis: np.take_along_axis(x, i, axis), attr_names=("axis",), arity=2, family="indexing",
                              linear=(0,), lower=_along_lower("gather_along"),
                              vjp=lambda g, node, needs: (scatter_along(zeros_like(node.inputs[0]), node.inputs[1], g, node._attrs[0]), None)))
SCATTER_ALONG = register(OpDef("scatter_along", "x with z added at positions y, slice by slice along an axis", _along_infer,
                               _scatter_along_reference, attr_names=("axis",), arity=3, family="indexing",
                               vjp=lambda g, node, needs: (g if needs[0] else None, None,
                                                           gather_along(g, node.inputs[1], node._attrs[0]) if needs[2] else None),
                               jvp=lambda ts, node: scatter_along(zeros_like(node.inputs[0]) if ts[0] is None else ts[0], node.inputs[1],
                                                                  zeros_like(node.inputs[2]) if ts[2] is None else ts[2], node._attrs[0]),
                               lower=_along_lower("scatter_along"), cost=lambda node: node.inputs[2].size))


def gather_along(x: Node, i: Node, axis: int) -> Node:
    return make(GATHER_ALONG, (x, i), (axis,))


def scatter_along(x: Node, i: Node, v: Node, axis: int) -> Node:
    return make(SCATTER_ALONG, (x, i, v), (axis,))


# -- index expressions ---------------------------------------------------------------------------------------------

@public
def index(x: Any, item: Any) -> Node:
    """x[item] by NumPy's rules. A mask computed in the graph is refused: its result would have no known size."""
    x = as_node(x)
    p = Parsed(x, item)
    return _gathered(_basic(p.array, p), p)


known_as(index.__wrapped__, SLICING)       # type: ignore[attr-defined]


def _basic(x: Node, p: Parsed) -> Node:
    return reshape_to(slice_axes(x, p.starts, p.steps, p.sizes), p.shape)


def _plan(p: Parsed, ndim: int) -> tuple[list[int], int, Any, list[int]]:
    """(axis order that makes the indexed axes adjacent, their first position, index shape, indexed axes)."""
    axes = [a for a, _, _ in p.arrays]
    first = 0 if p.apart else axes[0]
    rest = [a for a in range(ndim) if a not in axes]
    order = [*rest[:first], *axes, *rest[first:]]
    return order, first, broadcast(*[i.shape for _, i, _ in p.arrays]), axes


def _linear(p: Parsed, sizes: tuple[Any, ...]) -> Node:
    if len(p.arrays) == 1:
        check_index(p.arrays[0][1], sizes[0], p.arrays[0][2])
        return p.arrays[0][1]
    constants = builtins.all(i.op.name == "constant" for _, i, _ in p.arrays) and builtins.all(isinstance(n, int) for n in sizes)
    for (_, i, axis), n in zip(p.arrays, sizes, strict=True):
        check_index(i, n, axis)
    if constants:
        return make_constant(ravel_reference(*[i._attrs[0] for _, i, _ in p.arrays], sizes=sizes, axis=p.arrays[0][2]))
    return raveled([(i, n, axis) for (_, i, axis), n in zip(p.arrays, sizes, strict=True)])


def _merged(x: Node, p: Parsed) -> tuple[Node, int, Node, list[int]]:
    """x with its indexed axes moved together and merged to one; that axis; the linear index; the order of axes."""
    order, first, _, axes = _plan(p, x.ndim)
    moved = permute(x, order)
    sizes = tuple(x.shape[a] for a in axes)
    shape = (*moved.shape[:first], nelements(sizes), *moved.shape[first + len(axes):])
    return reshape_to(moved, shape), first, _linear(p, sizes), order


def _gathered(x: Node, p: Parsed) -> Node:
    if not p.arrays:
        return x
    merged, axis, linear, _ = _merged(x, p)
    return make(GATHER, (merged, linear), (axis,))


def _update(x: Node, item: Any, value: Any, op: OpDef) -> Node:
    x = as_node(x)
    value = as_node(value, x.dtype)
    mask = as_node(item) if isinstance(item, Node) and item.dtype is BOOL and item.op.name != "constant" else None
    if mask is not None:
        value = cast(value, x.dtype)
        if mask.ndim > x.ndim:
            raise ShapeError(f"mask has shape {format_shape(mask.shape)}, x has {format_shape(x.shape)}")
        wide = reshape_to(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))
        if value.shape != () and value.ndim > x.ndim - mask.ndim:
            raise ShapeError("with a mask computed in the graph the value must be a scalar, or broadcast over the trailing axes")
        from .binary import where
        return where(wide, x + value if op is SCATTER_ADD else value, x)
    if value.dtype is not x.dtype and not np.can_cast(value.dtype, x.dtype, "same_kind"):
        raise DTypeError(f"cannot put {value.dtype} into {x.dtype}\nhint: use astype")
    value = cast(value, x.dtype)
    p = Parsed(x, item)
    x = p.array
    part = _basic(x, p)
    order, first, shape, axes = _plan(p, part.ndim) if p.arrays else ([], 0, (), [])
    if p.arrays and is_few(part, order, shape, axes):
        linear = flat_index(part, p.arrays, first, shape)
        new = reshape_to(make(op, (reshape_to(part, (part.size,)), linear, _fit(value, linear.shape)), (0,)), part.shape)
    elif p.arrays:
        merged, axis, linear, order = _merged(part, p)
        want = (*merged.shape[:axis], *linear.shape, *merged.shape[axis + 1:])
        value = _fit(value, want)
        new = make(op, (merged, linear, value), (axis,))
        moved = reshape_to(new, tuple(part.shape[a] for a in order))
        back = [0] * len(order)
        for k, a in enumerate(order):
            back[a] = k
        new = permute(moved, back)
    else:
        new = _fit(value, part.shape)
    new = reshape_to(new, tuple(p.sizes))
    if p.arrays and is_whole(x.shape, p.starts, p.steps, new.shape):         # x with something put into it
        return new
    write = slice_add if op is SCATTER_ADD and not p.arrays else slice_set
    return write(x, new, p.starts, p.steps)


def _exact(value: Any, dtype: Any) -> Any:
    """A Python number as a bool or an int where the dtype is one and holds it exactly: 1 for True, 2.0 for 2. Others as they are."""
    if type(value) not in (int, float) or dtype.kind == "f" or value != value // 1:
        return value
    if dtype is BOOL:
        return builtins.bool(value) if value in (0, 1) else value
    info = np.iinfo(dtype)
    return int(value) if info.min <= value <= info.max else value


def _fit(value: Node, shape: tuple[Any, ...]) -> Node:
    if value.shape == shape:
        return value
    while len(value.shape) > len(shape) and value.shape[0] == 1:
        value = reshape_to(value, value.shape[1:])
    if not spreads(value.shape, shape):
        raise ShapeError(f"value of shape {format_shape(value.shape)} does not fit the indexed part {format_shape(shape)}")
    return expand_to(value, shape)


@public
def set_at(x: Any, item: Any, value: Any) -> Node:
    """x.at[item].set(value): of positions given twice the last counts. A Python number may be of another kind if x's dtype holds it exactly."""
    x = as_node(x)
    return _update(x, item, _exact(value, x.dtype), SCATTER_SET)


@public
def add_at(x: Any, item: Any, value: Any) -> Node:
    """x.at[item].add(value): positions given twice accumulate."""
    return _update(x, item, value, SCATTER_ADD)


@public
def take(x: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Node:
    """x at integer positions of an axis (of the flattened operand by default). Positions outside are OutOfBounds (mode "raise"), counted
    on from the other end ("wrap") or those of the ends ("clip", where negative ones are the first)."""
    x = as_node(x)
    if axis is None or (x.ndim == 0 and isinstance(axis, (int, np.integer))):      # a scalar counts as a vector of one element
        x, axis = reshape_to(x, (nelements(x.shape),)), 0 if axis is None else normalize_axis(axis, 1)
    axis = normalize_axis(axis, x.ndim)
    if isinstance(indices, (list, tuple)):
        indices = np.asarray(unmasked(indices, "indices")) if len(indices) else np.zeros(0, np.int64)
    i = index_node(indices)
    if mode not in ("raise", "wrap", "clip"):
        raise NodeTypeError(f"mode {mode!r} is not one of raise, wrap, clip")
    run = as_run(i, x.shape[axis]) if mode == "raise" else i
    if isinstance(run, Run):
        return cut(x, axis, run.start, run.size, run.step)
    if mode != "raise":
        from .binary import maximum, minimum, remainder
        n = as_node(x.shape[axis])
        i = remainder(i, n) if mode == "wrap" else maximum(minimum(i, n - 1), 0)
    return make(GATHER, (x, i), (axis,))


@public
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Node:
    """x at positions that differ from slice to slice; other axes broadcast."""
    x, i = as_node(x), index_node(indices)
    if axis is None:
        x, axis = reshape_to(x, (nelements(x.shape),)), 0
    axis = normalize_axis(axis, x.ndim)
    if i.ndim != x.ndim:
        raise ShapeError(f"indices have {i.ndim} axes, x has {x.ndim}")
    rest = broadcast((*x.shape[:axis], *x.shape[axis + 1:]), (*i.shape[:axis], *i.shape[axis + 1:]))
    x = expand_to(x, (*rest[:axis], x.shape[axis], *rest[axis:]))
    i = expand_to(i, (*rest[:axis], i.shape[axis], *rest[axis:]))
    return gather_along(x, i, axis)


def from_zero(i: Node) -> Node:
    """Integer indices of which none may count from the end: a negative one is refused when it is used, and named as it was."""
    from .binary import less, where
    if i.op.name == "constant":
        v = i._attrs[0].astype(np.int64)
        return make_constant(np.where(v < 0, v - NEVER, v))
    i = cast(i, INT64)
    return where(less(i, 0), i - NEVER, i)


@public
def one_hot(labels: Any, n: Any, dtype: Any = "float64") -> Node:
    """A new last axis of size n with 1 at the label, zeros elsewhere (all zeros for a label outside 0 .. n-1)."""
    from .binary import equal
    labels = as_node(labels)
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"labels must be integers, not {labels.dtype}")
    named = isinstance(n, Dim)
    if not named and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0):
        raise ShapeError(f"n must be an int >= 0 or a named size, not {n!r}")
    n = n if named else int(n)
    check_shape((*labels.shape, n), INT64)
    if not named:
        check_memory((n,), INT64)
    column = reshape_to(labels, (*labels.shape, 1))
    return cast(equal(cast(column, INT64), arange(n) if named else np.arange(n)), as_dtype(dtype))


# -- segments ------------------------------------------------------------------------------------------------------

def _segment_max_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    x, ids = inputs
    check_index(ids, attrs[0], 0)
    _check_rows(x, ids)
    return (attrs[0], *x.shape[1:]), x.dtype


def _segment_max_reference(x: Any, ids: Any, *, num_segments: int) -> Any:
    low = -np.inf if x.dtype.kind in "fc" else (False if x.dtype == bool else np.iinfo(x.dtype).min)
    out = np.full((num_segments, *x.shape[1:]), low, x.dtype)
    np.maximum.at(out, ids, x)
    return out


def _segment_max_vjp(g: Node, node: Node, needs: Any) -> Any:
    from .binary import equal, logical_or, not_equal, where
    x, ids = node.inputs
    hit = equal(x, make(GATHER, (node, ids), (0,)))
    if x.dtype.kind == "f":
        hit = logical_or(hit, not_equal(x, x))
    count = _summed(cast(hit, FLOAT32 if x.dtype is FLOAT16 else x.dtype), ids, node._attrs[0])
    share = cast(g / where(equal(count, 0.0), 1.0, count), x.dtype)
    return (where(hit, make(GATHER, (share, ids), (0,)), 0.0), None)


def _segment_max_lower(ctx: Any, node: Node) -> Any:
    index, mode = written(node.inputs[1])
    x, ids = ctx.view(node.inputs[0]), ctx.raw(index)
    out = ctx.new(node.shape, x.dtype)
    ctx.emit("segment_max", ctx.reshape(out, (out.shape[0], int(np.prod(out.shape[1:])))),
             [ctx.reshape(x, (x.shape[0], int(np.prod(x.shape[1:])))), ids], [0, mode] if mode else [0])
    return out


SEGMENT_MAX = register(OpDef("segment_max", "the largest of each segment, -inf of none", _segment_max_infer, _segment_max_reference,
                             attr_names=("num_segments",), arity=2, family="indexing", vjp=_segment_max_vjp, lower=_segment_max_lower,
                             cost=lambda node: node.inputs[0].size))


def _segments(data: Any, segment_ids: Any) -> tuple[Node, Node]:
    x, ids = as_node(data), index_node(segment_ids)
    _check_rows(x, ids)
    return x, from_zero(taken_for(ids, {0: x.shape[0]}, "segment_ids must be one id a row: {have} for data of {size} rows"))


def _check_rows(x: Node, ids: Node) -> None:
    if ids.ndim != 1 or x.ndim < 1 or (x.shape[0] != ids.shape[0] and isinstance(x.shape[0], int) and isinstance(ids.shape[0], int)):
        raise ShapeError(f"segment_ids must be one id a row: {format_shape(ids.shape)} for data of {format_shape(x.shape)}")


def _summed(x: Node, ids: Node, num_segments: Any) -> Node:
    return make(SCATTER_ADD, (zeros((num_segments, *x.shape[1:]), x.dtype), ids, x), (0,))


@public
def segment_sum(data: Any, segment_ids: Any, num_segments: Any) -> Node:
    """Rows of data summed by their segment id (0 .. num_segments - 1), in order; an empty segment gives 0. Integers and bools
    are counted in int64, as by sum."""
    x, ids = _segments(data, segment_ids)
    x = x if x.dtype.kind == "f" else cast(x, INT64)
    return _summed(x, ids, as_shape((num_segments,))[0])


@public
def segment_mean(data: Any, segment_ids: Any, num_segments: Any) -> Node:
    """The mean of the rows of each segment; an empty segment gives 0."""
    from .binary import maximum
    x, ids = _segments(data, segment_ids)
    (num_segments,) = as_shape((num_segments,))
    x = floating(x)
    wide = cast(x, FLOAT32 if x.dtype is FLOAT16 else x.dtype)
    count = _summed(full((ids.shape[0],), 1, wide.dtype), ids, num_segments)
    count = reshape_to(maximum(count, 1.0), (num_segments, *[1] * (x.ndim - 1)))
    return cast(_summed(wide, ids, num_segments) / count, x.dtype)


@public
def segment_max(data: Any, segment_ids: Any, num_segments: int) -> Node:
    """The largest row element of each segment; NaN wins; an empty segment gives -inf (the lowest integer)."""
    x, ids = _segments(data, segment_ids)
    return make(SEGMENT_MAX, (x, ids), as_shape((num_segments,)))


