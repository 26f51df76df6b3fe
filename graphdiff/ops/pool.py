"""Pooling over one, two or three spatial axes: max_pool and avg_pool. Arrays are [N, C, *spatial].

The derivative of max_pool goes by max_pool_index, the position of each window's first maximum; avg_pool and avg_pool_grad are
each other's adjoints. A plane that is one window is a reduction, windows side by side are spread by copies.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dims import dim_min
from ..dtypes import INT64
from ..errors import ShapeError
from ..graph.build import as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import format_shape, nelements
from .binary import less, maximum, where
from .creation import zeros_like
from .families import flag, floating
from .movement import reshape_to, rims
from .windows import check_fits, in_three, needed_strides, paddings, per_axis, spans, spatial_axes, tap_slices, three_axes, widened

# -- max_pool --------------------------------------------------------------------------------------------------------

MAX_ATTRS = ("window", "stride", "padding", "dilation", "size")
AVG_ATTRS = ("window", "stride", "padding", "include", "size")


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind in "fc" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _max_index_reference(x: Any, *, window: Any, stride: Any, padding: Any, dilation: Any, size: Any) -> Any:
    """Position in the plane of the first maximum (first NaN) in row order; -1 where a window holds nothing."""
    x = np.real(np.asarray(x))
    best = np.zeros((*x.shape[:2], *size), x.dtype)
    index = np.full(best.shape, -1, INT64)
    planes = np.arange(int(np.prod(x.shape[2:])), dtype=INT64).reshape(x.shape[2:])
    for _, o, i in tap_slices(x.shape[2:], window, size, stride, padding, dilation):
        at = (slice(None),) * 2 + o
        value, old = x[(slice(None),) * 2 + i], best[at]
        better = (index[at] < 0) | (value > old) | ((value != value) & (old == old))
        best[at] = np.where(better, value, old)
        index[at] = np.where(better, planes[i], index[at])
    return index


def _max_reference(x: Any, **attrs: Any) -> Any:
    x = np.asarray(x)
    index = _max_index_reference(x, **attrs)
    flat = x.reshape(*x.shape[:2], int(np.prod(x.shape[2:])))
    at = index.reshape(*index.shape[:2], int(np.prod(index.shape[2:])))
    value = np.take_along_axis(flat, np.maximum(at, 0), -1) if flat.size else np.zeros(at.shape, x.dtype)
    return np.where(at < 0, np.asarray(_lowest(x.dtype), x.dtype), value).reshape(index.shape)


def _pool_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (window, _, padding, dilation, size) = inputs, attrs
    if any(isinstance(n, int) and n == 0 for n in x.shape[2:]):
        raise ShapeError(f"x has no elements to pool: its spatial sizes are {format_shape(x.shape[2:])}")
    spread = dilation if isinstance(dilation, tuple) else (1,) * len(window)
    check_fits(size, window, x.shape[2:], padding, spread, "window")
    return (*x.shape[:2], *size), x.dtype


def _max_vjp(g: Node, node: Node, needs: Any) -> Any:
    """Each window's cotangent goes to the first maximum in it."""
    from .indexing import scatter_along
    x = node.inputs[0]
    index, empty = _winners(node)
    flat = reshape_to(g, index.shape)
    if empty is not None:
        flat = where(empty, 0.0, flat)
    lead = x.shape[:2]
    return (reshape_to(scatter_along(zeros_like(reshape_to(x, (*lead, nelements(x.shape[2:])))), index, flat, 2), x.shape),)


def _max_jvp(tangents: Any, node: Node) -> Node:
    from .indexing import gather_along
    x = node.inputs[0]
    index, empty = _winners(node)
    t = gather_along(reshape_to(tangents[0], (*x.shape[:2], nelements(x.shape[2:]))), index, 2)
    if empty is not None:
        t = where(empty, 0.0, t)
    return reshape_to(t, node.shape)


def _winners(node: Node) -> tuple[Node, Node | None]:
    """Flat positions of the maxima, [N, C, windows], and where a window holds nothing (None: surely nowhere)."""
    _, _, padding, dilation, _ = node._attrs
    index = make(MAX_POOL_INDEX, node.inputs, node._attrs)
    index = reshape_to(index, (*node.shape[:2], nelements(node.shape[2:])))
    # A window hangs over an edge by at most its span, so only one with holes can miss x altogether.
    if all(d == 1 for d in dilation) or not any(p for pair_ in padding for p in pair_):
        return index, None
    return maximum(index, 0), less(index, 0)


def _one_window(node: Node, plane: Any, size: Any) -> bool:
    """Is the plane one window? Then pooling is a reduction, whose kernels have long rows to work with."""
    window, _, padding, spread, _ = node._attrs
    return (tuple(window) == tuple(plane) and all(n == 1 for n in size) and not any(p for both in padding for p in both)
            and (not isinstance(spread, tuple) or all(d == 1 for d in spread)))


def _reduced(ctx: Any, kernel: str, node: Node, v: Any) -> Any:
    """A reduction of x's spatial axes, as the pooled array."""
    out = ctx.new(node.shape, INT64 if kernel == "argmax" else v.dtype)
    ctx.emit(kernel, out.reshape(node.shape[:2]), [v], (len(v.shape) - 2,))
    return out


_FEW_TAPS = 4               # of a window along an axis; of more the kernel is as fast
_NEAR_NBYTES = 4 << 20      # and of a larger array, whose rows joined along one axis go to memory and back


def _joined(ctx: Any, op: str, node: Node, v: Any) -> Any:
    """Windows that lie side by side and leave nothing out, joined tap by tap along one axis after the other, as elementwise steps over all
    planes at once: twice to four times as fast as the kernel, which goes row by row, up to rows of 28. None where that does not hold.

    The kernel joins in the same order, so that sums have the same bits: rows first, and those of a box one after the other.
    """
    window, stride, padding, spread, _ = node._attrs
    wide = [d for d, w in enumerate(window) if w > 1]
    if (not wide or max(window) > _FEW_TAPS or tuple(window) != tuple(stride) or any(p for both in padding for p in both)
            or (isinstance(spread, tuple) and any(d != 1 for d in spread)) or (op == "add" and len([d for d in wide if d < len(window) - 1]) > 1)
            or any(n * w != m for n, w, m in zip(node.shape[2:], window, v.shape[2:], strict=True))
            or v.dtype.kind != "f" or not 0 < nelements(v.shape) * v.dtype.itemsize <= _NEAR_NBYTES):
        return None
    for d in wide:
        axis, w = d + 2, window[d]
        steps = v.strides[axis]
        part = v.with_layout([*v.shape[:axis], w, node.shape[axis], *v.shape[axis + 1:]],
                             [*v.strides[:axis], steps, w * steps, *v.strides[axis + 1:]])
        taps = [part.slice([i if a == axis else 0 for a in range(len(part.shape))], [1] * len(part.shape),
                           [1 if a == axis else n for a, n in enumerate(part.shape)]) for i in range(w)]
        taps = [q.with_layout([*q.shape[:axis], *q.shape[axis + 1:]], [*q.strides[:axis], *q.strides[axis + 1:]]) for q in taps]
        v = taps[0]
        for tap in taps[1:]:
            v = ctx.map(op, tap, v)                  # of equals the second stays: the first of a window, as in the kernel
    return v


def _max_lower(kernel: str, reduction: str) -> Callable[..., Any]:
    def rule(ctx: Any, node: Node) -> Any:
        window, stride, padding, dilation, _ = node._attrs
        if _one_window(node, node.inputs[0].shape[2:], node.shape[2:]):
            return _reduced(ctx, reduction, node, ctx.view(node.inputs[0]))
        joined = _joined(ctx, "maximum", node, ctx.view(node.inputs[0])) if kernel == "max_pool" else None
        if joined is not None:
            return joined
        v = three_axes(ctx, ctx.view(node.inputs[0]))
        out = ctx.new(node.shape, INT64 if kernel == "max_pool_index" else v.dtype)
        ctx.emit(kernel, three_axes(ctx, out), [v],
                 [*in_three(window, 1), *in_three(stride, 1), *in_three([lo for lo, _ in padding], 0), *in_three(dilation, 1)])
        return out
    return rule


def _window_cost(node: Node) -> Any:
    return node.size * nelements(node._attrs[0])


MAX_POOL = register(OpDef("max_pool", "the largest of every window; the first of equals takes the derivative", _pool_infer,
                          _max_reference, attr_names=MAX_ATTRS, arity=1, vjp=_max_vjp, jvp=_max_jvp, lower=_max_lower("max_pool", "max"),
                          cost=_window_cost))
MAX_POOL_INDEX = register(OpDef("max_pool_index", "the flat position of the first largest of every window",
                                lambda inputs, attrs: (_pool_infer(inputs, attrs)[0], INT64), _max_index_reference,
                                attr_names=MAX_ATTRS, arity=1, cuts="its result is a position, an integer",
                                lower=_max_lower("max_pool_index", "argmax"), cost=_window_cost))


# -- avg_pool --------------------------------------------------------------------------------------------------------

def _divisors(sizes: Any, window: Any, stride: Any, padding: Any, include: bool, out: Any) -> Any:
    """How many positions each window divides by: those in the padded input, or in the input; at least 1."""
    total: Any = np.ones((), np.int64)
    for n, k, s, (lo, hi), m in zip(sizes, window, stride, padding, out, strict=True):
        first = np.arange(m) * s - lo
        low, high = (-lo, n + hi) if include else (0, n)
        total = total[..., None] * np.maximum(np.minimum(first + k, high) - np.maximum(first, low), 0)
    return np.maximum(total, 1)


def _avg_reference(x: Any, *, window: Any, stride: Any, padding: Any, include: bool, size: Any) -> Any:
    (x,) = widened(x)
    y = np.zeros((*x.shape[:2], *size), x.dtype)
    for _, o, i in tap_slices(x.shape[2:], window, size, stride, padding, (1,) * len(window)):
        y[(slice(None),) * 2 + o] += x[(slice(None),) * 2 + i]
    return y / _divisors(x.shape[2:], window, stride, padding, include, size).astype(np.real(y).dtype)


def _avg_grad_reference(g: Any, *, window: Any, stride: Any, padding: Any, include: bool, size: Any) -> Any:
    (g,) = widened(g)
    share = g / _divisors(size, window, stride, padding, include, g.shape[2:]).astype(np.real(g).dtype)
    x = np.zeros((*g.shape[:2], *size), g.dtype)
    for _, o, i in tap_slices(size, window, g.shape[2:], stride, padding, (1,) * len(window)):
        x[(slice(None),) * 2 + i] += share[(slice(None),) * 2 + o]
    return x


def _avg_grad_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return (*inputs[0].shape[:2], *attrs[4]), inputs[0].dtype


def _side_by_side(node: Node, size: Any) -> bool:
    """Do windows follow each other without gaps, overlaps or padding?"""
    window, stride, padding, _, plane = node._attrs
    return (tuple(window) == tuple(stride) and not any(p for both in padding for p in both)
            and all(n * w <= m for n, w, m in zip(size, window, plane, strict=True)))


def _spread(ctx: Any, node: Node, v: Any) -> Any:
    """Each element all over its window, where windows lie side by side: repeated along one axis after the other, which takes a tenth of the
    time of a sum over the windows that cover each element where planes are small."""
    window = node._attrs[0]
    share = ctx.map("divide", v, ctx.constant(np.asarray(nelements(window), v.dtype)))
    out = ctx.new(node.shape, v.dtype)
    covered = (*v.shape[:2], *[n * w for n, w in zip(v.shape[2:], window, strict=True)])
    begin, step = [0] * node.ndim, [1] * node.ndim
    for rim in rims(node.shape, begin, step, covered) or ():
        ctx.fill(out.slice(*rim), 0.0)
    axes = [axis for axis in range(node.ndim - 1, 1, -1) if window[axis - 2] > 1] or [node.ndim - 1]
    for axis in axes:
        n, w = v.shape[axis], window[axis - 2]
        shape = (*share.shape[:axis], n * w, *share.shape[axis + 1:])
        to = out.slice(begin, step, covered) if axis == axes[-1] else ctx.new(shape, v.dtype)
        split = (*shape[:axis], n, w, *shape[axis + 1:])
        ctx.emit("copy", to.reshape(split), [share.reshape((*split[:axis + 1], 1, *split[axis + 2:])).broadcast(split)])
        share = to
    return out


def _avg_lower(kernel: str) -> Callable[..., Any]:
    def rule(ctx: Any, node: Node) -> Any:
        window, stride, padding, include, _ = node._attrs
        v, grad = ctx.view(node.inputs[0]), kernel == "avg_pool_grad"
        plane, size = (node.shape, v.shape) if grad else (v.shape, node.shape)
        if _one_window(node, plane[2:], size[2:]):
            divisor = ctx.constant(np.asarray(nelements(window), v.dtype))
            if not grad:
                return ctx.map("divide", _reduced(ctx, "sum", node, v), divisor)
            return ctx.emit("copy", ctx.new(node.shape, v.dtype), [ctx.map("divide", v, divisor).broadcast(node.shape)])
        if grad and _side_by_side(node, v.shape[2:]) and node.size:
            return _spread(ctx, node, v)
        joined = None if grad else _joined(ctx, "add", node, v)
        if joined is not None:
            return ctx.map("divide", joined, ctx.constant(np.asarray(nelements(window), v.dtype)))
        v = three_axes(ctx, v)
        out = ctx.new(node.shape, v.dtype)
        results = node if kernel == "avg_pool" else node.inputs[0]
        ctx.emit(kernel, three_axes(ctx, out), [v],
                 [*in_three(window, 1), *in_three(needed_strides(stride, results), 1), *in_three([lo for lo, _ in padding], 0),
                  *in_three([hi for _, hi in padding], 0), int(include)])
        return out
    return rule


def _avg_vjp(g: Node, node: Node, needs: Any) -> Any:
    """The other one of the two."""
    other = AVG_POOL_GRAD if node.op is AVG_POOL else AVG_POOL
    return (make(other, (g,), (*node._attrs[:4], node.inputs[0].shape[2:])),)


AVG_POOL: OpDef = register(OpDef(
    "avg_pool", "the mean of every window", _pool_infer, _avg_reference, attr_names=AVG_ATTRS, arity=1, linear=(0,), vjp=_avg_vjp,
    lower=_avg_lower("avg_pool"), cost=_window_cost))
AVG_POOL_GRAD: OpDef = register(OpDef(
    "avg_pool_grad", "the adjoint of avg_pool: each element spread evenly over its window", _avg_grad_infer, _avg_grad_reference,
    attr_names=AVG_ATTRS, arity=1, linear=(0,), vjp=_avg_vjp, lower=_avg_lower("avg_pool_grad"),
    cost=lambda node: node.inputs[0].size * nelements(node._attrs[0])))


def _pool_options(x: Node, window: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[Any, ...]:
    n = spatial_axes(x)
    window, dilation = per_axis(window, n, "window"), per_axis(dilation, n, "dilation")
    stride = window if stride is None else per_axis(stride, n, "stride")
    span = spans(window, dilation)
    sizes = x.shape[2:]
    pads = paddings(padding, sizes, span, stride)
    size = []
    for m, e, s, (lo, hi) in zip(sizes, span, stride, pads, strict=True):
        for p in (lo, hi):
            if isinstance(p, int) and p >= e:
                raise ShapeError(f"padding {p} is not less than the window's span {e}: a window would hold nothing but padding")
        room = m + lo + hi - e
        if ceil_mode:                   # the last window must start inside the input or the padding before it
            size.append(dim_min((room + s - 1) // s + 1, (m + lo - 1) // s + 1))
        else:
            size.append(room // s + 1)
    return window, stride, pads, dilation, tuple(size)


@public
def max_pool(x: Any, window: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Node:
    """The largest element of every window; NaN wins, padding never does.

    Shapes: x [N, C, *spatial], 1 to 3 spatial axes; window, stride (default: the window) and dilation an int or one an axis;
    padding as for conv. ceil_mode: windows may hang over the end. Dtypes: all. Derivative: the first maximum in row order
    takes all. Raises ShapeError when the window is larger than the padded input.
    """
    x = as_node(x)
    return make(MAX_POOL, (x,), _pool_options(x, window, stride, padding, dilation, flag(ceil_mode, "ceil_mode")))


@public
def avg_pool(x: Any, window: Any, *, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True) -> Node:
    """The mean of every window.

    Shapes and options as max_pool. count_include_pad: padding counts as zeros in the mean (what hangs over the end in
    ceil_mode never counts). Dtypes: floats; integers become float64. Raises ShapeError as max_pool.
    """
    x = floating(x)
    window, stride, pads, _, size = _pool_options(x, window, stride, padding, 1, flag(ceil_mode, "ceil_mode"))
    return make(AVG_POOL, (x,), (window, stride, pads, flag(count_include_pad, "count_include_pad"), size))
