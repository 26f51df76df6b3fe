"""Convolution over one, two or three spatial axes. Arrays are [N, C, *spatial], weights [O, C/groups, *kernel].

With o = conv(x, w): conv, conv_input (x from o and w) and conv_weight (w from x and o) are the three ways to leave one
operand out of the same trilinear form, so each one's derivatives are the other two; a transposed convolution is
conv_input. Kernels always see three spatial axes.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dims import unify
from ..errors import DTypeError, ShapeError
from ..graph.build import make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import check_shape, format_shape, nelements
from . import conv_products
from .binary import add
from .families import argument, pair
from .movement import reshape_to
from .windows import Pairs, check_fits, in_three, needed_strides, paddings, per_axis, spans, spatial_axes, tap_slices, three_axes, widened

# -- references ------------------------------------------------------------------------------------------------------


def _grouped(a: Any, axis: int, groups: int) -> Any:
    """The axis as [groups, rest]."""
    return a.reshape(*a.shape[:axis], groups, a.shape[axis] // groups, *a.shape[axis + 1:])


def _flat(a: Any) -> Any:
    """The spatial axes (from the fourth on) as one."""
    return a.reshape(*a.shape[:3], int(np.prod(a.shape[3:])))


def _conv_reference(x: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    x, w = widened(x, w)
    xs, ws = _grouped(x, 1, groups), _grouped(w, 0, groups)
    y = np.zeros((x.shape[0], groups, w.shape[0] // groups, *size), np.result_type(x, w))
    for tap, o, i in tap_slices(x.shape[2:], w.shape[2:], size, stride, padding, dilation):
        part = y[(slice(None),) * 3 + o]
        part += np.einsum("ngcp,goc->ngop", _flat(xs[(slice(None),) * 3 + i]), ws[(slice(None),) * 3 + tap]).reshape(part.shape)
    return y.reshape(x.shape[0], w.shape[0], *size)


def _conv_input_reference(g: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    g, w = widened(g, w)
    gs, ws = _grouped(g, 1, groups), _grouped(w, 0, groups)
    x = np.zeros((g.shape[0], groups, w.shape[1], *size), np.result_type(g, w))
    for tap, o, i in tap_slices(size, w.shape[2:], g.shape[2:], stride, padding, dilation):
        part = x[(slice(None),) * 3 + i]
        part += np.einsum("ngop,goc->ngcp", _flat(gs[(slice(None),) * 3 + o]), ws[(slice(None),) * 3 + tap]).reshape(part.shape)
    return x.reshape(g.shape[0], w.shape[1] * groups, *size)


def _conv_weight_reference(x: Any, g: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    x, g = widened(x, g)
    xs, gs = _grouped(x, 1, groups), _grouped(g, 1, groups)
    w = np.zeros((groups, g.shape[1] // groups, x.shape[1] // groups, *size), np.result_type(x, g))
    for tap, o, i in tap_slices(x.shape[2:], size, g.shape[2:], stride, padding, dilation):
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


def _conv_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x, w), (_, padding, dilation, groups, size) = inputs, attrs
    _channels("x", x.shape[1], w.shape[1], groups)
    _divides("output channels", w.shape[0], groups)
    check_fits(size, w.shape[2:], x.shape[2:], padding, dilation, "kernel")
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


def _conv_lower(kernel: str) -> Callable[..., Any]:
    def rule(ctx: Any, node: Node) -> Any:
        stride, padding, dilation, groups, _ = node._attrs
        a, b = (ctx.view(x) for x in node.inputs)
        out = ctx.new(node.shape, a.dtype)
        if conv_products.lower(ctx, kernel, node, a, b, out):
            return out
        a, b = three_axes(ctx, a), three_axes(ctx, b)
        results = {"conv": node, "conv_input": node.inputs[0], "conv_weight": node.inputs[1]}[kernel]
        options = [*in_three(needed_strides(stride, results), 1), *in_three([lo for lo, _ in padding], 0), *in_three(dilation, 1), groups]
        ctx.emit(kernel, three_axes(ctx, out), [a, b], options)
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


# -- as they are called ----------------------------------------------------------------------------------------------

def _operands(x: Any, w: Any, groups: Any) -> tuple[Node, Node, int, int]:
    x, w = pair(x, w)
    if x.dtype.kind != "f":
        raise DTypeError(f"is defined for floats, not {x.dtype}\nhint: x.astype('float32')")
    n = spatial_axes(x)
    if w.ndim != x.ndim:
        raise ShapeError(f"x has {n} spatial axes, the weights have {w.ndim - 2}")
    (groups,) = per_axis(groups, 1, "groups")
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
    stride, dilation = per_axis(stride, n, "stride"), per_axis(dilation, n, "dilation")
    sizes, kernel = x.shape[2:], w.shape[2:]
    span = spans(kernel, dilation)
    pads = paddings(padding, sizes, span, stride)
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
    stride, dilation = per_axis(stride, n, "stride"), per_axis(dilation, n, "dilation")
    extra = per_axis(output_padding, n, "output_padding", 0)
    for p, s, d in zip(extra, stride, dilation, strict=True):
        if p >= max(s, d):
            raise ShapeError(f"output_padding {p} must be less than the stride {s} or the dilation {d}")
    span = spans(w.shape[2:], dilation)
    if padding == "same":
        surplus = [e - s for e, s in zip(span, stride, strict=True)]
        pads: Pairs = tuple((max(t, 0) // 2, max(t, 0) - max(t, 0) // 2) for t in surplus)
        extra = tuple(p + max(-t, 0) for p, t in zip(extra, surplus, strict=True))
    else:
        pads = paddings(padding, x.shape[2:], span, stride)
    size = tuple((m - 1) * s - lo - hi + e + p
                 for m, s, (lo, hi), e, p in zip(x.shape[2:], stride, pads, span, extra, strict=True))
    attrs = (stride, pads, dilation, groups, size)
    _conv_input_infer((x, w), attrs)          # here, so that what it refuses is told of conv_transpose
    return _add_bias(make(CONV_INPUT, (x, w), attrs), bias)
