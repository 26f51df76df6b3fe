"""Reductions: sum, prod, max, min, any, all, argmax, argmin, logsumexp, count_nonzero. What is composed of them stands in moments.py.

A reduction's attrs are its axes (normalised, ascending) and keepdims. When lowered the kept axes come first and the reduced
ones last; the kernel adds in one fixed tree, the same for every layout and thread count.
"""
from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from ..dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, INT64, asked_dtype
from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import nelements, normalize_axes, normalize_axis
from .creation import zeros_like
from .families import cast, flag, floating
from .movement import expand_to, permute, reshape_to
from .selected import NONE, extended, first_of, mask_of, masked, no_out


def reduced_shape(x: Node, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    if keepdims:
        return tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    return tuple([n for i, n in enumerate(x.shape) if i not in axes])


def _infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return reduced_shape(inputs[0], *attrs), inputs[0].dtype


def _infer_nonempty(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    x, axes = inputs[0], attrs[0]
    for a in axes:
        if isinstance(x.shape[a], int) and x.shape[a] == 0:
            raise ShapeError(f"max, min and their positions of an empty array have no identity: axis {a} has size 0")
    return _infer(inputs, attrs)


def _infer_bool(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return reduced_shape(inputs[0], *attrs), BOOL


def _infer_count(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return reduced_shape(inputs[0], *attrs), INT64


def _infer_exact(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return reduced_shape(inputs[0], *attrs), FLOAT64


def _infer_position(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return _infer_nonempty(inputs, attrs)[0], INT64


# Kernels that read few lines along the innermost kept axis together with the next one where memory goes on from one to the other.
JOINING = frozenset(("sum", "prod", "max", "min", "logsumexp"))


def _lower(kernel: str) -> Any:
    def rule(ctx: Any, node: Node) -> Any:
        axes, _ = node._attrs
        v = ctx.view(node.inputs[0])
        kept = [i for i in range(len(v.shape)) if i not in axes]
        v = v.transpose([*kept, *axes])
        dtype = node.dtype if node.dtype is not FLOAT16 else FLOAT32
        if kernel in JOINING:
            return ctx.reshape(ctx.emit(kernel, ctx.new(v.shape[:len(kept)], dtype), [v], [len(axes)]), node.shape)
        order = v.stored_order(len(kept))
        v = v.transpose([*order, *range(len(kept), len(v.shape))])
        out = ctx.emit(kernel, ctx.new(v.shape[:len(kept)], dtype), [v], [len(axes)])
        return ctx.reshape(out.transpose([order.index(i) for i in range(len(kept))]), node.shape)
    return rule


def _lower_exact(ctx: Any, node: Node) -> Any:
    """The kernel's lanes hold 2**32 elements; what is longer is added up as float64."""
    x = node.inputs[0]
    if math.prod(x.shape[a] for a in node._attrs[0]) < 2**32:
        return _lower("exact_sum")(ctx, node)
    v = ctx.cast(ctx.view(x), FLOAT64)
    kept = [i for i in range(len(v.shape)) if i not in node._attrs[0]]
    out = ctx.emit("sum", ctx.new([v.shape[i] for i in kept], FLOAT64), [v.transpose([*kept, *node._attrs[0]])], [len(node._attrs[0])])
    return ctx.reshape(out, node.shape)


def spread(g: Node, node: Node) -> Node:
    """g, shaped like the reduction `node`, repeated over the axes it reduced."""
    x = node.inputs[0]
    return expand_to(reshape_to(g, reduced_shape(x, node._attrs[0], True)), x.shape)


def _reference(f: Any) -> Any:
    return lambda x, *, axes, keepdims: f(np.asarray(x), axis=axes, keepdims=keepdims)


def _wide_reference(x: Any, *, axes: Any, keepdims: bool) -> Any:
    return np.sum(np.asarray(x), axis=axes, keepdims=keepdims, dtype=np.int64)


def _exact_reference(x: Any, *, axes: Any, keepdims: bool) -> Any:
    """The halves of int64 add up in int64, their totals as numbers of any length, whose float is the nearest."""
    x = np.real(x).astype(np.int64)
    high = np.asarray(np.sum(x >> 32, axis=axes, keepdims=keepdims, dtype=np.int64)).astype(object)
    low = np.asarray(np.sum(x & 0xFFFFFFFF, axis=axes, keepdims=keepdims, dtype=np.int64)).astype(object)
    return np.asarray(high * 2**32 + low).astype(np.float64)


def _position(f: Any) -> Any:
    """argmax over several axes: the position in C order over the reduced axes."""
    def reference(x: Any, *, axes: Any, keepdims: bool) -> Any:
        x = np.asarray(x)
        kept = [i for i in range(x.ndim) if i not in axes]
        flat = np.transpose(x, [*kept, *axes]).reshape([x.shape[i] for i in kept] + [math.prod(x.shape[i] for i in axes)])
        r = f(flat, axis=-1)
        return r.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdims else r
    return reference


def _logsumexp_reference(x: Any, *, axes: Any, keepdims: bool) -> Any:
    x = np.asarray(x)
    if x.size == 0:
        return np.log(np.sum(np.exp(x), axis=axes, keepdims=keepdims))
    m = np.max(np.real(x), axis=axes, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    with np.errstate(all="ignore"):
        r = np.log(np.sum(np.exp(x - m), axis=axes, keepdims=True)) + m
    return r if keepdims else np.squeeze(r, axis=axes)


def _extreme_vjp(g: Node, node: Node, needs: Any) -> Any:
    """A k-way tie shares the cotangent, 1/k each; NaN ties with NaN."""
    from .binary import equal, logical_or, not_equal, where
    x = node.inputs[0]
    top = spread(node, node)
    hit = equal(x, top)
    if x.dtype.kind == "f":
        hit = logical_or(hit, not_equal(x, x))
    count = cast(make(COUNT_NONZERO, (hit,), (node._attrs[0], True)), x.dtype if x.dtype is not FLOAT16 else FLOAT32)
    share = cast(reshape_to(g, count.shape) / count, g.dtype)
    return (where(hit, expand_to(share, x.shape), 0.0),)


def _prod_vjp(g: Node, node: Node, needs: Any) -> Any:
    """g times the product of all other elements: exclusive prefix times exclusive suffix products, right with zeros."""
    from .binary import zmul
    from .scan import cumprod, shifted
    x = node.inputs[0]
    axes = node._attrs[0]
    kept = [i for i in range(x.ndim) if i not in axes]
    order = [*kept, *axes]
    n = nelements(tuple(x.shape[a] for a in axes))
    if isinstance(n, int) and n == 0:
        return (zeros_like(x),)
    # float32 products are taken in float64: a zero among large numbers must not meet an overflow.
    flat = cast(reshape_to(permute(x, order), (*[x.shape[i] for i in kept], n)), FLOAT64)
    last = flat.ndim - 1
    before, after = shifted(cumprod(flat, axis=last), last, True, 1), shifted(cumprod(flat, axis=last, reverse=True), last, False, 1)
    rest = reshape_to(cast(before * after, x.dtype), tuple(x.shape[i] for i in order))
    back = [0] * len(order)
    for i, a in enumerate(order):
        back[a] = i
    return (zmul(spread(g, node), permute(rest, back)),)


def _logsumexp_vjp(g: Node, node: Node, needs: Any) -> Any:
    """softmax over the reduced axes, not exp(x - result): the result's rounding is far more than that of a difference of large elements.
    Where every element is -inf nothing flows."""
    from .binary import zmul
    from .scan import softmax
    x, axes = node.inputs[0], node._attrs[0]
    if len(axes) == 1:
        return (zmul(spread(g, node), softmax(x, axes[0])),)
    order = [*(i for i in range(x.ndim) if i not in axes), *axes]
    moved = tuple(x.shape[i] for i in order)
    weight = softmax(reshape_to(permute(x, order), (*moved[:x.ndim - len(axes)], nelements(moved[x.ndim - len(axes):]))))
    return (zmul(spread(g, node), permute(reshape_to(weight, moved), [order.index(i) for i in range(x.ndim)])),)


def _reduction(name: str, formula: str, reference: Any, infer: Any = _infer, **facts: Any) -> OpDef:
    return register(OpDef(name, formula, infer, reference, attr_names=("axes", "keepdims"), arity=1, family="reduction",
                          lower=facts.pop("lower", _lower(name)), cost=lambda node: nelements(node.inputs[0].shape), **facts))


def _position_note(what: str) -> str:
    return f"its result is the position of the {what}, an integer"


SUM = _reduction("sum", "the sum over axes", _reference(np.sum), linear=(0,), symbol="Σ",
                 vjp=lambda g, node, needs: (spread(g, node),))
PROD = _reduction("prod", "the product over axes", _reference(np.prod), vjp=_prod_vjp, symbol="Π")
MAX = _reduction("max", "the largest over axes; NaN wins; a tie shares the derivative", _reference(np.max), _infer_nonempty,
                 vjp=_extreme_vjp)
MIN = _reduction("min", "the smallest over axes; NaN wins; a tie shares the derivative", _reference(np.min), _infer_nonempty,
                 vjp=_extreme_vjp)
ANY = _reduction("any", "some element is nonzero", _reference(np.any), _infer_bool, cuts="its result is a bool")
ALL = _reduction("all", "every element is nonzero", _reference(np.all), _infer_bool, cuts="its result is a bool")
ARGMAX = _reduction("argmax", "the position of the first largest, NaN first", _position(np.argmax), _infer_position,
                    cuts=_position_note("largest"))
ARGMIN = _reduction("argmin", "the position of the first smallest, NaN first", _position(np.argmin), _infer_position,
                    cuts=_position_note("smallest"))
COUNT_NONZERO = _reduction("count_nonzero", "how many elements are nonzero", _reference(np.count_nonzero), _infer_count,
                           cuts="its result is a count, an integer")
WIDE_SUM = _reduction("wide_sum", "the sum of uint8 or int32 over axes, in int64", _wide_reference, _infer_count,
                      cuts="its result is an integer")
EXACT_SUM = _reduction("exact_sum", "the sum of bools or integers over axes as a float64, rounded once", _exact_reference, _infer_exact,
                       lower=_lower_exact, cuts="its operand is an integer or a bool")
def _lower_logsumexp(ctx: Any, node: Node) -> Any:
    """Of one element, it is that."""
    x = node.inputs[0]
    if builtins.all(x.shape[a] == 1 for a in node._attrs[0]):
        return ctx.reshape(ctx.raw(x), node.shape)
    return _lower("logsumexp")(ctx, node)


LOGSUMEXP = _reduction("logsumexp", "log of the sum of exponentials over axes", _logsumexp_reference, vjp=_logsumexp_vjp, lower=_lower_logsumexp)


def axes_of(x: Node, axis: Any, scalars: bool = False) -> tuple[int, ...]:
    """The axes to reduce, ascending. scalars: a scalar counts as if it had one axis, as in what NumPy makes of a ufunc."""
    if scalars and x.ndim == 0 and isinstance(axis, (int, np.integer)):
        normalize_axis(axis, 1)
        return ()
    return tuple(range(x.ndim)) if axis is None else tuple(sorted(normalize_axes(axis, x.ndim)))


def is_kept(keepdims: Any) -> bool:
    return keepdims is not NONE and flag(keepdims, "keepdims")


def sum_axes(x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """The sum primitive over normalised axes, in x's own dtype."""
    return make(SUM, (x,), (axes, keepdims)) if axes else x


def _accumulator(x: Node, dtype: Any = None) -> Node:
    """Sums and products of bools and small integers are int64, as NumPy's. Of bools asked for as bool: as well, see _as_asked."""
    if dtype is not None:
        found = asked_dtype(dtype)
        return cast(cast(x, BOOL), INT64) if found is BOOL else cast(x, found)
    return cast(x, INT64) if x.dtype.kind in "biu" else x


def _as_asked(y: Node, dtype: Any) -> Node:
    """What was added or multiplied up as int64, as a bool where that is the dtype asked for: did some, or did all count?"""
    from .binary import not_equal
    return not_equal(y, 0) if dtype is not None and asked_dtype(dtype) is BOOL else y


def _first_of(initial: Any, y: Node, dtype: Any) -> Node | None:
    first = first_of(initial, BOOL if dtype is not None and asked_dtype(dtype) is BOOL else y.dtype)
    return None if first is None else cast(first, y.dtype)


def known_empty(x: Node, axes: tuple[int, ...]) -> bool:
    return builtins.any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes)


@public
def sum(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node:
    """The sum over axes (all by default); an empty sum is 0. bool and integers give int64, uint8 as well (NumPy: uint64, which is none of
    the dtypes here). where: a mask of the elements that count, broadcast to x; initial: a number that is added. out must be None."""
    no_out(out)
    x = masked(_accumulator(as_node(x), dtype), where, 0)
    y = make(SUM, (x,), (axes_of(x, axis, True), is_kept(keepdims)))
    first = _first_of(initial, y, dtype)
    return _as_asked(y if first is None else y + first, dtype)


@public
def prod(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node:
    """The product over axes. An empty product is 1; the derivative is right when elements are 0. bool and integers give int64, uint8 as
    well (NumPy: uint64). where: a mask of the elements that count; initial: a factor more. out must be None."""
    no_out(out)
    x = masked(_accumulator(as_node(x), dtype), where, 1)
    y = make(PROD, (x,), (axes_of(x, axis, True), is_kept(keepdims)))
    first = _first_of(initial, y, dtype)
    return _as_asked(y if first is None else y * first, dtype)


@public
def max(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node:
    """The largest over axes; NaN wins. initial: a number that takes part, and is what an empty axis gives, which is a ShapeError
    without it. where: a mask of the elements that count (needs initial). out must be None."""
    from .binary import maximum
    return _extreme(MAX, maximum, x, axis, out, keepdims, initial, where)


@public
def min(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node:
    """The smallest over axes; NaN wins. initial, where and out as for max."""
    from .binary import minimum
    return _extreme(MIN, minimum, x, axis, out, keepdims, initial, where)


def _extreme(op: OpDef, both: Any, x: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Node:
    no_out(out)
    x = as_node(x)
    axes, keep = axes_of(x, axis, True), is_kept(keepdims)
    first = first_of(initial, x.dtype)
    if first is None:
        if mask_of(where, x) is not None:
            raise NodeTypeError("where needs initial: the result where no element counts")
        return make(op, (x,), (axes, keep))
    if known_empty(x, axes):
        return expand_to(first, reduced_shape(x, axes, keep))
    x = extended(masked(x, where, first), axes, first)
    return both(make(op, (x,), (axes, keep)), first)


amax, amin = max, min


@public
def any(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Node:
    """True where some element over the axes is nonzero (NaN is). where: a mask of the elements that count. out must be None."""
    no_out(out)
    x = masked(as_node(x), where, False)
    return make(ANY, (x,), (axes_of(x, axis, True), is_kept(keepdims)))


@public
def all(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Node:
    """True where every element over the axes is nonzero. where: a mask of the elements that count. out must be None."""
    no_out(out)
    x = masked(as_node(x), where, True)
    return make(ALL, (x,), (axes_of(x, axis, True), is_kept(keepdims)))


def _arg(op: OpDef, x: Any, axis: Any, out: Any, keepdims: bool) -> Node:
    no_out(out)
    x = as_node(x)
    if isinstance(axis, (tuple, list)):
        raise NodeTypeError(f"axis is one axis or None (the position in all of them), not {axis!r}")
    if x.ndim == 0:
        x = reshape_to(x, (1,))
        keepdims = False
    return make(op, (x,), (axes_of(x, axis), is_kept(keepdims)))


@public
def argmax(x: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Node:
    """int64 position of the first largest element; over all axes the position in C order. out must be None."""
    return _arg(ARGMAX, x, axis, out, keepdims)


@public
def argmin(x: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Node:
    """int64 position of the first smallest element. out must be None."""
    return _arg(ARGMIN, x, axis, out, keepdims)


@public
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """log(sum(exp(x))) without overflow; -inf where every element is -inf."""
    x = floating(x)
    return make(LOGSUMEXP, (x,), (axes_of(x, axis, True), is_kept(keepdims)))


@public
def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> Node:
    """How many elements are nonzero, int64."""
    x = as_node(x)
    return make(COUNT_NONZERO, (x,), (axes_of(x, axis, True), is_kept(keepdims)))
