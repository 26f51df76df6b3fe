"""Convolution and pooling over one, two or three spatial axes. Arrays are [N, C, *spatial], weights [O, C/groups, *kernel].

With o = conv(x, w): conv, conv_input (x from o and w) and conv_weight (w from x and o) are the three ways to leave one
operand out of the same trilinear form, so each one's derivatives are the other two; a transposed convolution is
conv_input. avg_pool and avg_pool_grad are each other's adjoints. Kernels always see three spatial axes.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..dims import Dim, dim_max, dim_min, unify
from ..dtypes import FLOAT16, FLOAT32, INT64
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import check_shape, format_shape, nelements
from . import conv_products
from .binary import add, less, maximum, where
from .creation import zeros_like
from .families import argument, flag, floating, pair
from .movement import reshape_to, rims

Pairs = tuple[tuple[Any, Any], ...]

# -- geometry, for references: which outputs and inputs a tap of the kernel connects ---------------------------------


def _taps(x_shape: Any, kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(kernel position, slices of the output, slices of x) for every position of the kernel that meets x."""
    for tap in itertools.product(*map(range, kernel)):
        ys, xs = [], []
        for n, m, s, (lo, _), d, k in zip(x_shape, out, stride, padding, dilation, tap, strict=True):
            shift = k * d - lo                              # the output at p reads x at p s + shift
            first = max(0, -(shift // s))
            last = min(m - 1, (n - 1 - shift) // s)
            if last < first:
                break
            ys.append(slice(first, last + 1))
            xs.append(slice(first * s + shift, last * s + shift + 1, s))
        else:
            yield tap, tuple(ys), tuple(xs)


def _wide(*arrays: Any) -> list[Any]:
    """float16 is added up in float32."""
    return [a.astype(FLOAT32) if a.dtype == FLOAT16 else a for a in map(np.asarray, arrays)]


def _grouped(a: Any, axis: int, groups: int) -> Any:
    """The axis as [groups, rest]."""
    return a.reshape(*a.shape[:axis], groups, a.shape[axis] // groups, *a.shape[axis + 1:])


def _flat(a: Any) -> Any:
    """The spatial axes (from the fourth on) as one."""
    return a.reshape(*a.shape[:3], int(np.prod(a.shape[3:])))


def _conv_reference(x: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    x, w = _wide(x, w)
    xs, ws = _grouped(x, 1, groups), _grouped(w, 0, groups)
    y = np.zeros((x.shape[0], groups, w.shape[0] // groups, *size), np.result_type(x, w))
    for tap, o, i in _taps(x.shape[2:], w.shape[2:], size, stride, padding, dilation):
        part = y[(slice(None),) * 3 + o]
        part += np.einsum("ngcp,goc->ngop", _flat(xs[(slice(None),) * 3 + i]), ws[(slice(None),) * 3 + tap]).reshape(part.shape)
    return y.reshape(x.shape[0], w.shape[0], *size)


def _conv_input_reference(g: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    g, w = _wide(g, w)
    gs, ws = _grouped(g, 1, groups), _grouped(w, 0, groups)
    x = np.zeros((g.shape[0], groups, w.shape[1], *size), np.result_type(g, w))
    for tap, o, i in _taps(size, w.shape[2:], g.shape[2:], stride, padding, dilation):
        part = x[(slice(None),) * 3 + i]
        part += np.einsum("ngop,goc->ngcp", _flat(gs[(slice(None),) * 3 + o]), ws[(slice(None),) * 3 + tap]).reshape(part.shape)
    return x.reshape(g.shape[0], w.shape[1] * groups, *size)


def _conv_weight_reference(x: Any, g: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    x, g = _wide(x, g)
    xs, gs = _grouped(x, 1, groups), _grouped(g, 1, groups)
    w = np.zeros((groups, g.shape[1] // groups, x.shape[1] // groups, *size), np.result_type(x, g))
    for tap, o, i in _taps(x.shape[2:], size, g.shape[2:], stride, padding, dilation):
        w[(slice(None),) * 3 + tap] = np.einsum(
            "ngcp,ngop->goc", _flat(xs[(slice(None),) * 3 + i]), _flat(gs[(slice(None),) * 3 + o]))
    return w.reshape(g.shape[1], x.shape[1] // groups, *size)


# -- the three convolutions ------------------------------------------------------------------------------------------

CONV_ATTRS = ("stride", "padding", "dilation", "groups", "size")     # size: the spatial sizes of the result


def _channels(what: str, x: Any, per_group: Any, groups: int) -> None:
    if isinstance(x, int) and isinstance(per_group, int) and x != per_group * groups:
        each = f" in each of {groups} groups" if groups != 1 else ""
        raise ShapeError(f"{what} has {x} channels, the weights take {per_group}{each}")


def _divides(what: str, n: Any, groups: int) -> None:
    if isinstance(n, int) and n % groups:
        raise ShapeError(f"{what} {n} do not divide into {groups} groups")


def _positive(size: tuple[Any, ...], kernel: tuple[Any, ...], x: tuple[Any, ...], padding: Pairs, dilation: tuple[int, ...],
              what: str) -> None:
    """Refuse a result without elements: the kernel does not fit anywhere."""
    if any(isinstance(n, int) and n < 1 for n in size):
        padded = tuple(n + lo + hi for n, (lo, hi) in zip(x, padding, strict=True))
        spaced = f" (dilation {format_shape(dilation)})" if any(d != 1 for d in dilation) else ""
        raise ShapeError(f"{what} {format_shape(kernel)}{spaced} is larger than the padded input {format_shape(padded)}")


def _conv_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x, w), (_, padding, dilation, groups, size) = inputs, attrs
    _channels("x", x.shape[1], w.shape[1], groups)
    _divides("output channels", w.shape[0], groups)
    _positive(size, w.shape[2:], x.shape[2:], padding, dilation, "kernel")
    shape = (x.shape[0], w.shape[0], *size)
    check_shape(shape, x.dtype)
    return shape, x.dtype


def _conv_input_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (g, w), (_, _, _, groups, size) = inputs, attrs
    if unify(g.shape[1], w.shape[0]) is None:
        raise ShapeError(f"x has {g.shape[1]} channels, the weights have {w.shape[0]}")
    _divides("input channels", w.shape[0], groups)
    if any(isinstance(n, int) and n < 0 for n in size):
        raise ShapeError(f"padding takes more than there is: the result would have spatial sizes {format_shape(size)}")
    shape = (g.shape[0], w.shape[1] * groups, *size)
    check_shape(shape, g.dtype)
    return shape, g.dtype


def _conv_weight_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x, g), (_, _, _, groups, size) = inputs, attrs
    return (g.shape[1], x.shape[1] // groups, *size), x.dtype


def _conv_vjp(g: Node, node: Node, needs: Any) -> Any:
    x, w = node.inputs
    same = node._attrs[:4]
    return (make(CONV_INPUT, (g, w), (*same, x.shape[2:])) if needs[0] else None,
            make(CONV_WEIGHT, (x, g), (*same, w.shape[2:])) if needs[1] else None)


def _conv_input_vjp(g: Node, node: Node, needs: Any) -> Any:
    y, w = node.inputs
    same = node._attrs[:4]
    return (make(CONV, (g, w), (*same, y.shape[2:])) if needs[0] else None,
            make(CONV_WEIGHT, (g, y), (*same, w.shape[2:])) if needs[1] else None)


def _conv_weight_vjp(g: Node, node: Node, needs: Any) -> Any:
    x, y = node.inputs
    same = node._attrs[:4]
    return (make(CONV_INPUT, (y, g), (*same, x.shape[2:])) if needs[0] else None,
            make(CONV, (x, g), (*same, y.shape[2:])) if needs[1] else None)


def _three(ctx: Any, v: Any) -> Any:
    """The view with unit axes before its spatial ones, up to three."""
    return ctx.reshape(v, (*v.shape[:2], *(1,) * (5 - len(v.shape)), *v.shape[2:]))


def _fill(values: Any, unit: int) -> list[int]:
    """One number an axis, for three axes."""
    return [unit] * (3 - len(values)) + list(values)


def _needed(stride: Any, results: Node) -> list[int]:
    """Strides as kernels get them: one result has no next one, but the adjoints would make a sweep for each phase of a stride."""
    return [s if n > 1 else 1 for s, n in zip(stride, results.shape[2:], strict=True)]


def _conv_lower(kernel: str) -> Callable[..., Any]:
    def rule(ctx: Any, node: Node) -> Any:
        stride, padding, dilation, groups, _ = node._attrs
        a, b = (ctx.view(x) for x in node.inputs)
        out = ctx.new(node.shape, a.dtype)
        if conv_products.lower(ctx, kernel, node, a, b, out):
            return out
        a, b = _three(ctx, a), _three(ctx, b)
        results = {"conv": node, "conv_input": node.inputs[0], "conv_weight": node.inputs[1]}[kernel]
        options = [*_fill(_needed(stride, results), 1), *_fill([lo for lo, _ in padding], 0), *_fill(dilation, 1), groups]
        ctx.emit(kernel, _three(ctx, out), [a, b], options)
        return out
    return rule


def _conv_cost(weights: int, result: int | None) -> Callable[[Node], Any]:
    """Two operations a product: outputs of conv times channels of a group times kernel positions."""
    def cost(node: Node) -> Any:
        w = node.shape if weights < 0 else node.inputs[weights].shape
        y = node if result is None else node.inputs[result]
        return 2 * y.size * nelements(w[1:])
    return cost


CONV = register(OpDef("conv", "cross-correlation of x with the weights y", _conv_infer, _conv_reference,
                      attr_names=CONV_ATTRS, arity=2, vjp=_conv_vjp, linear=(0, 1), lower=_conv_lower("conv"),
                      cost=_conv_cost(1, None), symbol="*"))
CONV_INPUT = register(OpDef("conv_input", "the adjoint of conv in its input: x spread by the weights y", _conv_input_infer,
                            _conv_input_reference, attr_names=CONV_ATTRS, arity=2, vjp=_conv_input_vjp, linear=(0, 1),
                            lower=_conv_lower("conv_input"), cost=_conv_cost(1, 0), symbol="*ᵀ"))
CONV_WEIGHT = register(OpDef("conv_weight", "the adjoint of conv in its weights: x correlated with y", _conv_weight_infer,
                             _conv_weight_reference, attr_names=CONV_ATTRS, arity=2, vjp=_conv_weight_vjp, linear=(0, 1),
                             lower=_conv_lower("conv_weight"), cost=_conv_cost(-1, 1), symbol="*ʷ"))


# -- options ---------------------------------------------------------------------------------------------------------

def _each(value: Any, n: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One whole number an axis."""
    values = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else (value,) * n
    if len(values) != n:
        raise ShapeError(f"{what} has {len(values)} entries for {n} spatial axes")
    for v in values:
        if isinstance(v, bool) or not isinstance(v, (int, np.integer)):
            raise NodeTypeError(f"{what} is a whole number, or one an axis, not {type(v).__name__}")
        if v < least:
            raise ShapeError(f"{what} must be at least {least}, not {v}")
        if v >= 2**31:        # kernels take products of these with sizes, up to 2**52; no array needs more
            raise ShapeError(f"{what} {v} is too large, the limit is 2**31 - 1")
    return tuple(int(v) for v in values)


def _pads(padding: Any, n: int) -> Pairs:
    """(before, after) for every axis from an int, or one int or pair an axis."""
    if not isinstance(padding, (tuple, list, np.ndarray)):
        return tuple((p, p) for p in _each(padding, n, "padding", 0))
    if len(padding) != n:
        hint = f"\nhint: padding=(({padding[0]}, {padding[1]}),)" if n == 1 and len(padding) == 2 else ""
        raise ShapeError(f"padding has {len(padding)} entries for {n} spatial axes{hint}")
    out = []
    for p in padding:
        if isinstance(p, (tuple, list, np.ndarray)) and len(p) != 2:
            raise ShapeError(f"padding of an axis is a number or (before, after), not {len(p)} numbers")
        before, after = _each(p, 2, "padding", 0)
        out.append((before, after))
    return tuple(out)


def _named(padding: str, sizes: tuple[Any, ...], span: list[int], stride: tuple[int, ...]) -> Pairs:
    """ "valid": none; "same": ceil(size / stride) results, the odd element after."""
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding != "same":
        raise NodeTypeError(f"padding is numbers, 'same' or 'valid', not {padding!r}")
    out = []
    for n, e, s in zip(sizes, span, stride, strict=True):
        total = e - 1 if s == 1 else dim_max(((n + s - 1) // s - 1) * s + e - n, 0)
        out.append((total // 2, total - total // 2))
    return tuple(out)


def _spatial(x: Node, what: str = "x") -> int:
    n = x.ndim - 2
    if not 1 <= n <= 3:
        raise ShapeError(f"{what} has {x.ndim} axes; [N, C, *spatial] with one, two or three spatial axes is needed")
    return n


def _span(kernel: tuple[Any, ...], dilation: tuple[int, ...]) -> list[Any]:
    """Elements from the first to the last position of the kernel."""
    for axis, k in enumerate(kernel):
        if isinstance(k, Dim):
            raise ShapeError(f"the kernel's size {k} (spatial axis {axis}) must be a number")
        if k < 1:
            raise ShapeError(f"the kernel has no elements along spatial axis {axis}")
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]


def _operands(x: Any, w: Any, groups: Any) -> tuple[Node, Node, int, int]:
    x, w = pair(x, w)
    if x.dtype.kind != "f":
        raise DTypeError(f"is defined for floats, not {x.dtype}\nhint: x.astype('float32')")
    n = _spatial(x)
    if w.ndim != x.ndim:
        raise ShapeError(f"x has {n} spatial axes, the weights have {w.ndim - 2}")
    (groups,) = _each(groups, 1, "groups")
    return x, w, n, groups


def _add_bias(y: Node, bias: Any) -> Node:
    if bias is None:
        return y
    b = argument(bias, "bias", y.dtype)
    if b.ndim != 1 or unify(b.shape[0], y.shape[1]) is None:
        raise ShapeError(f"bias has shape {format_shape(b.shape)}, the result has {y.shape[1]} channels")
    return add(*pair(y, reshape_to(b, (b.shape[0],) + (1,) * (y.ndim - 2))))


@public
def conv(x: Any, w: Any, *, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Node:
    """Cross-correlation: out[n, o, p] = sum over c, k of x[n, c, p stride + k dilation - padding] w[o, c, k].

    Shapes: x [N, C, *spatial], w [O, C/groups, *kernel], bias [O] -> [N, O, *(spatial + padding - span) // stride + 1]; 1 to 3
    spatial axes; positions outside x count as 0. padding: an int, one int or (before, after) an axis, "same" (result of size
    ceil(size / stride)) or "valid". Dtypes: floats. Raises ShapeError for channels that do not fit or a kernel larger
    than the padded input, DTypeError for integers.
    """
    x, w, n, groups = _operands(x, w, groups)
    stride, dilation = _each(stride, n, "stride"), _each(dilation, n, "dilation")
    sizes, kernel = x.shape[2:], w.shape[2:]
    span = _span(kernel, dilation)
    pads = _named(padding, sizes, span, stride) if isinstance(padding, str) else _pads(padding, n)
    size = tuple((m + lo + hi - e) // s + 1 for m, (lo, hi), e, s in zip(sizes, pads, span, stride, strict=True))
    return _add_bias(make(CONV, (x, w), (stride, pads, dilation, groups, size)), bias)


@public
def conv_transpose(x: Any, w: Any, *, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                   dilation: Any = 1, groups: int = 1) -> Node:
    """The adjoint of conv: every element of x spreads over the output by the weights.

    Shapes: x [N, C, *spatial], w [C, O/groups, *kernel], bias [O] -> [N, O, *(size - 1) stride - padding + span +
    output_padding]. padding crops the result ("same" makes it size * stride); output_padding, less than the stride or
    the dilation, extends it at its end. Dtypes: floats. Raises ShapeError and DTypeError as conv.
    """
    x, w, n, groups = _operands(x, w, groups)
    stride, dilation = _each(stride, n, "stride"), _each(dilation, n, "dilation")
    extra = _each(output_padding, n, "output_padding", 0)
    for p, s, d in zip(extra, stride, dilation, strict=True):
        if p >= max(s, d):
            raise ShapeError(f"output_padding {p} must be less than the stride {s} or the dilation {d}")
    span = _span(w.shape[2:], dilation)
    if padding == "same":
        surplus = [e - s for e, s in zip(span, stride, strict=True)]
        pads: Pairs = tuple((max(t, 0) // 2, max(t, 0) - max(t, 0) // 2) for t in surplus)
        extra = tuple(p + max(-t, 0) for p, t in zip(extra, surplus, strict=True))
    else:
        pads = _named(padding, x.shape[2:], span, stride) if isinstance(padding, str) else _pads(padding, n)
    size = tuple((m - 1) * s - lo - hi + e + p
                 for m, s, (lo, hi), e, p in zip(x.shape[2:], stride, pads, span, extra, strict=True))
    attrs = (stride, pads, dilation, groups, size)
    _conv_input_infer((x, w), attrs)          # here, so that what it refuses is told of conv_transpose
    return _add_bias(make(CONV_INPUT, (x, w), attrs), bias)


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
    for _, o, i in _taps(x.shape[2:], window, size, stride, padding, dilation):
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
    _positive(size, window, x.shape[2:], padding, spread, "window")
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


def _max_lower(kernel: str, reduction: str) -> Callable[..., Any]:
    def rule(ctx: Any, node: Node) -> Any:
        window, stride, padding, dilation, _ = node._attrs
        if _one_window(node, node.inputs[0].shape[2:], node.shape[2:]):
            return _reduced(ctx, reduction, node, ctx.view(node.inputs[0]))
        v = _three(ctx, ctx.view(node.inputs[0]))
        out = ctx.new(node.shape, INT64 if kernel == "max_pool_index" else v.dtype)
        ctx.emit(kernel, _three(ctx, out), [v],
                 [*_fill(window, 1), *_fill(stride, 1), *_fill([lo for lo, _ in padding], 0), *_fill(dilation, 1)])
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
    (x,) = _wide(x)
    y = np.zeros((*x.shape[:2], *size), x.dtype)
    for _, o, i in _taps(x.shape[2:], window, size, stride, padding, (1,) * len(window)):
        y[(slice(None),) * 2 + o] += x[(slice(None),) * 2 + i]
    return y / _divisors(x.shape[2:], window, stride, padding, include, size).astype(np.real(y).dtype)


def _avg_grad_reference(g: Any, *, window: Any, stride: Any, padding: Any, include: bool, size: Any) -> Any:
    (g,) = _wide(g)
    share = g / _divisors(size, window, stride, padding, include, g.shape[2:]).astype(np.real(g).dtype)
    x = np.zeros((*g.shape[:2], *size), g.dtype)
    for _, o, i in _taps(size, window, g.shape[2:], stride, padding, (1,) * len(window)):
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
        v = _three(ctx, v)
        out = ctx.new(node.shape, v.dtype)
        results = node if kernel == "avg_pool" else node.inputs[0]
        ctx.emit(kernel, _three(ctx, out), [v],
                 [*_fill(window, 1), *_fill(_needed(stride, results), 1), *_fill([lo for lo, _ in padding], 0),
                  *_fill([hi for _, hi in padding], 0), int(include)])
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
    n = _spatial(x)
    window, dilation = _each(window, n, "window"), _each(dilation, n, "dilation")
    stride = window if stride is None else _each(stride, n, "stride")
    span = _span(window, dilation)
    sizes = x.shape[2:]
    pads = _named(padding, sizes, span, stride) if isinstance(padding, str) else _pads(padding, n)
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
