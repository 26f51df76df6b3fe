"""Moments and lengths: mean, var, std, norm, ptp, average. Each is composed of reductions (reduction.py) and elementwise operations."""
from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, PROMOTE, asked_dtype
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import as_node, make, public, scalar
from ..graph.node import Node
from ..specs import format_shape, nelements, normalize_axes
from .creation import zeros
from .families import cast, flag, floating, number
from .gradient import stop_gradient
from .movement import expand_to, permute, reshape_to, taken_for
from .reduction import COUNT_NONZERO, EXACT_SUM, MAX, MIN, SUM, axes_of, is_kept, known_empty, max, min, reduced_shape, sum
from .selected import NONE, mask_of, no_out


def _count(x: Node, axes: tuple[int, ...], dtype: Any) -> Any:
    """The number of reduced elements: a Python number, or a node of `dtype` when sizes are named."""
    from ..graph.build import _dim_node
    n = nelements(tuple([x.shape[a] for a in axes]))
    return float(n) if isinstance(n, int) else cast(_dim_node(n), dtype)


def _wide(x: Node) -> tuple[Node, Any]:
    """float16 sums and means accumulate in float32; the dtype to come back to."""
    x = floating(x)
    return (cast(x, FLOAT32), FLOAT16) if x.dtype is FLOAT16 else (x, x.dtype)


@public
def mean(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Node:
    """The mean over axes; integers give float64, their exact sum rounded once, then divided; of nothing, NaN. dtype: a float to compute
    in, or an integer dtype: elements and the mean are cut to it, as NumPy does it. where: a mask of the elements that count. out must
    be None."""
    no_out(out)
    x = as_node(x) if dtype is None else cast(as_node(x), asked_dtype(dtype))
    if dtype is not None and x.dtype is BOOL:
        raise DTypeError("dtype=bool: a mean is a number\nhint: gd.any tells whether some element counts")
    x, back = _wide(x) if x.dtype.kind == "f" else (x, FLOAT64 if dtype is None else x.dtype)
    axes, keep, mask = axes_of(x, axis), is_kept(keepdims), mask_of(where, x)
    total = _sum_where(x, mask, axes, keep)
    return cast(total / _counted(x, mask, axes, keep, total.dtype), back)


def _sum_where(x: Node, mask: Node | None, axes: tuple[int, ...], keep: bool) -> Node:
    """The sum of the elements that count, as a float."""
    if mask is not None:
        from .binary import where
        x = where(mask, x, x.dtype.type(0))
    return make(SUM if x.dtype.kind == "f" else EXACT_SUM, (x,), (axes, keep))


def _counted(x: Node, mask: Node | None, axes: tuple[int, ...], keep: bool, dtype: Any) -> Any:
    """How many elements count: a number, or where there is a mask a node of `dtype`."""
    return _count(x, axes, dtype) if mask is None else cast(make(COUNT_NONZERO, (mask,), (axes, keep)), dtype)


@public
def var(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *, where: Any = True,
        correction: Any = None) -> Node:
    """The mean squared distance from the mean, divided by n - ddof, in two passes. correction: another name of ddof. dtype: computed
    in, x's if it is a float. where: a mask of the elements that count. out must be None."""
    no_out(out)
    x, back = _spread_of(x, dtype)
    return cast(_var(x, axis, _ddof(ddof, correction), keepdims, where), back)


def _spread_of(x: Any, dtype: Any) -> tuple[Node, Any]:
    if dtype is not None and asked_dtype(dtype).kind != "f":
        raise DTypeError(f"dtype={asked_dtype(dtype).name}: a spread is computed in a float")
    return _wide(as_node(x) if dtype is None else cast(as_node(x), asked_dtype(dtype)))


def _ddof(ddof: Any, correction: Any) -> float:
    ddof = number(ddof, "ddof")
    if correction is None or correction is NONE:
        return ddof
    if ddof != 0:
        raise NodeTypeError("ddof and correction are the same; one of them is enough")
    return number(correction, "correction")


FEW = 64            # elements whose mean is as good as rounded once


def _var(x: Node, axis: Any, ddof: float, keepdims: bool, where: Any) -> Node:
    from .unary import square
    axes, keep, mask = axes_of(x, axis), is_kept(keepdims), mask_of(where, x)
    n = _counted(x, mask, axes, True, x.dtype)
    center = _sum_where(x, mask, axes, True) / n
    of = nelements(tuple([x.shape[a] for a in axes]))
    if not isinstance(of, int) or of > FEW:             # what the mean's rounding left; the derivative is the same
        center = center + stop_gradient(_sum_where(x - center, mask, axes, True) / n)
    total = _sum_where(square(x - center), mask, axes, keep)
    rest = _counted(x, mask, axes, keep, x.dtype) - ddof
    if ddof > 0:
        from .binary import maximum
        rest = maximum(rest, 0.0) if isinstance(rest, Node) else builtins.max(rest, 0.0)
    return total / rest


def root(v: Node) -> Node:
    """sqrt with derivative 0 at 0, to every order: for lengths, whose kink is a minimum."""
    from .binary import equal, where
    from .unary import sqrt
    flat = equal(v, 0.0)
    return where(flat, 0.0, sqrt(where(flat, 1.0, v)))


@public
def std(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *, where: Any = True,
        correction: Any = None) -> Node:
    """sqrt(var), with the same options; its derivative is 0 where all elements are equal."""
    no_out(out)
    x, back = _spread_of(x, dtype)
    return cast(root(_var(x, axis, _ddof(ddof, correction), keepdims, where)), back)


@public
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Node:
    """numpy.linalg.norm: the 2-norm of all elements by default. Derivative 0 at the origin.

    Over one axis (or of a vector) ord is 2, 1, inf, -inf, 0 or any p; over two axes (or of a matrix) "fro", 1, -1, inf or
    -inf: the largest or smallest sum of absolute values of a column (1, -1) or row. What needs singular values ("nuc", 2
    and -2 of a matrix) is refused.
    """
    x, back = _wide(x)             # of float16, squares and powers would leave its range long before their root does
    axes = axes_of(x, axis)
    keep = is_kept(keepdims)
    order = range(x.ndim) if axis is None else normalize_axes(axis, x.ndim)
    if ord is None or (ord == 2 and len(order) == 1):
        from .unary import square
        return cast(root(make(SUM, (square(x),), (axes, keep))), back)
    if len(order) == 1:
        return cast(_vector_norm(x, ord, axes, keep), back)
    if len(order) != 2:
        raise ShapeError(f"ord={ord!r} needs one axis (a vector) or two (a matrix), not {len(order)}\nhint: gd.norm(gd.ravel(x), ord)")
    return cast(_matrix_norm(x, ord, order[0], order[1], keep), back)


def _with_zero(x: Node, axis: int) -> Node:
    """x >= 0 with a 0 at the end of an axis of a named size, which may turn out to be none: the largest is still the same."""
    if isinstance(x.shape[axis], int):
        return x
    from .joining import concatenate
    return concatenate([x, zeros((*x.shape[:axis], 1, *x.shape[axis + 1:]), x.dtype)], axis)


def _vector_norm(x: Node, ord: Any, axes: tuple[int, ...], keep: bool) -> Node:
    from .binary import equal, not_equal, power, where
    from .unary import abs
    if isinstance(ord, bool) or not isinstance(ord, (int, float, np.number)) or ord != ord:
        raise DTypeError(f"ord must be a number for a vector, not {ord!r}")
    if ord == 1:
        return make(SUM, (abs(x),), (axes, keep))
    if ord == np.inf:
        if known_empty(x, axes):
            return zeros(reduced_shape(x, axes, keep), x.dtype)
        return make(MAX, (_with_zero(abs(x), axes[0]),), (axes, keep))
    if ord == -np.inf:
        return make(MIN, (abs(x),), (axes, keep))
    if ord == 0:
        return make(SUM, (cast(not_equal(x, 0.0), x.dtype),), (axes, keep))
    size = abs(x)
    if 0 < ord < 1:                # its slope at 0 has no bound: a kink like the others, with the derivative 0
        still = equal(size, 0.0)
        size = where(still, 0.0, power(where(still, 1.0, size), float(ord)))
    else:
        size = power(size, float(ord))
    total = make(SUM, (size,), (axes, keep))
    if ord < 0:
        return power(total, 1.0 / float(ord))
    flat = equal(total, 0.0)       # a minimum, like that of every norm: see root
    return where(flat, 0.0, power(where(flat, 1.0, total), 1.0 / float(ord)))


def _matrix_norm(x: Node, ord: Any, row: int, column: int, keep: bool) -> Node:
    from .unary import abs, square
    if ord == "fro":
        return root(make(SUM, (square(x),), (tuple(sorted((row, column))), keep)))
    if ord in ("nuc", 2, -2):
        raise NodeTypeError(f"ord={ord!r} of a matrix needs singular values, which have no counterpart for nodes")
    if isinstance(ord, bool) or ord not in (1, -1, np.inf, -np.inf):
        raise ShapeError(f"ord={ord!r} is not a norm of a matrix: 'fro', 1, -1, inf or -inf")
    along = row if ord in (1, -1) else column            # sums run down the columns for 1, along the rows for inf
    if ord > 0 and known_empty(x, (row + column - along,)):
        return zeros(reduced_shape(x, (row, column), keep), x.dtype)
    sums = make(SUM, (abs(x),), ((along,), True))
    sums = _with_zero(sums, row + column - along) if ord > 0 else sums
    extreme = make(MAX if ord > 0 else MIN, (sums,), (tuple(sorted((row, column))), True))
    return extreme if keep else reshape_to(extreme, reduced_shape(x, (row, column), False))


@public
def ptp(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Node:
    """The largest minus the smallest. out must be None."""
    return max(x, axis, out, keepdims) - min(x, axis, out, keepdims)


@public
def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """The weighted mean; weights have x's shape, or the lengths of the axes given. Integers and bools give float64, else the
    dtype is that of a product with the weights. returned: (the mean, the sum of the weights)."""
    x = as_node(x)
    if weights is None:
        y = mean(x, axis, keepdims=keepdims)
        return (y, expand_to(_as_scalar(_count(x, axes_of(x, axis), y.dtype), y.dtype), y.shape)) if flag(returned, "returned") else y
    w = as_node(weights)
    dtype = PROMOTE[x.dtype, w.dtype] if x.dtype.kind == "f" else FLOAT64
    if w.shape != x.shape:
        if axis is None:
            raise ShapeError(f"weights of shape {format_shape(w.shape)} beside x of {format_shape(x.shape)} need axis=")
        axes = normalize_axes(axis, x.ndim)
        lengths = tuple(x.shape[a] for a in axes)
        if len(w.shape) != len(lengths) or builtins.any(unify(m, n) is None for m, n in zip(w.shape, lengths, strict=True)):
            raise ShapeError(f"weights have shape {format_shape(w.shape)}, x has {format_shape(lengths)} along the axes {axes}")
        w = taken_for(w, dict(enumerate(lengths)), "weights have {have} elements along axis {axis}, x has {size} there")
        w = permute(w, sorted(range(len(axes)), key=lambda i: axes[i]))
        w = expand_to(reshape_to(w, tuple(n if a in axes else 1 for a, n in enumerate(x.shape))), x.shape)
    x, back = _wide(cast(x, dtype))
    w = cast(w, x.dtype)
    total = sum(w, axis, keepdims=keepdims)
    y = cast(sum(x * w, axis, keepdims=keepdims) / total, back)
    return (y, cast(total, back)) if flag(returned, "returned") else y


def _as_scalar(n: Any, dtype: Any) -> Node:
    return n if isinstance(n, Node) else scalar(n, dtype)
