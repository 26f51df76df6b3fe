"""Functions of NumPy that are written in terms of others: no op, no kernel and no derivative rule of their own.

Names, signatures and edge cases are NumPy's; float16 is kept, integers become float64 where NumPy makes them so.
"""
from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import as_node, composed, public
from ..graph.node import Node
from ..specs import broadcast, nelements, normalize_axes, normalize_axis
from .binary import add, bitwise_and, bitwise_or, equal, less_equal, multiply, power, subtract, where
from .creation import full
from .einsum import einsum
from .families import argument, cast, flag, floating, number, pair, reals
from .joining import concatenate, stack
from .moments import norm
from .movement import cut, flip, moveaxis, permute, ravel, reshape_to, swapaxes
from .reduction import all, sum
from .scan import cumprod, cumsum
from .unary import abs, isfinite, isnan, negative, sign

# -- angles --------------------------------------------------------------------------------------------------------


@public
def degrees(x: Any) -> Node:
    """Radians to degrees: x 180 / pi."""
    return _scaled(x, 180.0 / pi)


@public
def radians(x: Any) -> Node:
    """Degrees to radians: x pi / 180."""
    return _scaled(x, pi / 180.0)


def _scaled(x: Any, factor: float) -> Node:
    x = floating(x)
    # Rounded to float16 the factor itself would cost as much as the result may be off.
    return multiply(x, factor) if x.dtype is not FLOAT16 else cast(multiply(cast(x, FLOAT32), factor), FLOAT16)


# -- elementwise ---------------------------------------------------------------------------------------------------

@composed
def heaviside(x1: Any, x2: Any) -> Node:
    """The step function: 0 for x1 < 0, x2 for x1 = 0, 1 for x1 > 0, NaN for NaN. Derivatives: 0 in x1, and in x2 where x1 is 0."""
    x, y = map(floating, reals(x1, x2, "heaviside"))
    return where(equal(x, 0.0), y, multiply(add(sign(x), 1.0), 0.5))


@composed
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Node:
    """x with numbers in the place of NaN, inf and -inf (by default 0 and the largest finite numbers of x's dtype).

    Derivative: 1 where x is finite, else 0; in the numbers, where they stand. Integers and bools are x itself. copy means nothing here.
    """
    x = as_node(x)
    if x.dtype.kind != "f":
        return x
    largest = float(np.finfo(x.dtype).max)
    out = where(isnan(x), nan, x)
    out = where(equal(x, np.inf), largest if posinf is None else posinf, out)
    return cast(where(equal(x, -np.inf), -largest if neginf is None else neginf, out), x.dtype)


@composed
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Node:
    """|a - b| <= atol + rtol |b|, element by element: a bool node. Infinities are close to themselves alone, NaN to nothing,
    or with equal_nan to NaN."""
    x, y = map(floating, reals(a, b, "isclose"))
    rtol, atol = _tolerance(rtol, "rtol"), _tolerance(atol, "atol")
    near = less_equal(abs(subtract(x, y)), add(multiply(abs(y), rtol), atol))
    out = bitwise_or(bitwise_and(near, isfinite(y)), equal(x, y))
    return bitwise_or(out, bitwise_and(isnan(x), isnan(y))) if flag(equal_nan, "equal_nan") else out


def _tolerance(value: Any, what: str) -> Any:
    """A number, or numbers for every element, as NumPy takes them; a single one must be one that something can be close by."""
    if isinstance(value, (Node, np.ndarray, list, tuple)):
        return argument(value, what)
    return number(value, what, 0)


@public
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Node:
    """Are all elements close, in the sense of isclose? A bool node: its value exists when a function runs."""
    return all(isclose(a, b, rtol, atol, equal_nan))


# -- arrangement ---------------------------------------------------------------------------------------------------

@public
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Node:
    """m turned by k right angles, from the first towards the second of two axes."""
    x = as_node(m)
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ShapeError(f"axes must be two axes, not {axes!r}")
    first, second = normalize_axes(tuple(axes), x.ndim)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise NodeTypeError(f"k must be a whole number, not {type(k).__name__}")
    turn = int(k) % 4
    if turn == 0:
        return x
    if turn == 2:
        return flip(x, (first, second))
    return swapaxes(flip(x, second), first, second) if turn == 1 else flip(swapaxes(x, first, second), second)


@public
def append(arr: Any, values: Any, axis: Any = None) -> Node:
    """values behind arr along an axis; without one both are flattened first."""
    x, values = as_node(arr), as_node(values)
    return concatenate([ravel(x), ravel(values)], 0) if axis is None else concatenate([x, values], normalize_axis(axis, x.ndim))


# -- products, sums ------------------------------------------------------------------------------------------------

@public
def vecdot(x1: Any, x2: Any, axis: int = -1) -> Node:
    """The dot products of vectors along an axis; the other axes broadcast. Dtypes: all, as matmul."""
    x, y = pair(x1, x2)
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError("both operands need at least one axis")
    i, j = normalize_axis(axis, x.ndim), normalize_axis(axis, y.ndim)
    n, m = x.shape[i], y.shape[j]
    broadcast((*x.shape[:i], *x.shape[i + 1:]), (*y.shape[:j], *y.shape[j + 1:]))
    if unify(n, m) is None or (n == 1) != (m == 1):        # vectors of one component do not stretch
        raise ShapeError(f"the vectors have {n} and {m} components along axis {axis}")
    return einsum("...i,...i->...", moveaxis(x, axis, -1), moveaxis(y, axis, -1))


def _component(x: Node, i: int) -> Node:
    return reshape_to(cut(x, x.ndim - 1, i, 1), x.shape[:-1])


@composed
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Node:
    """The vector product. axisa, axisb: where the vectors of 2 or 3 components lie; axisc: where those of the result go.

    Two vectors of 2 components give the third component of the product alone. axis stands for all three axes.
    """
    x, y = pair(a, b)
    if x.dtype is BOOL:
        raise DTypeError("not defined for two bools\nhint: use astype('int64')")
    if axis is not None:
        axisa = axisb = axisc = axis
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError("both operands need an axis of 2 or 3 components")
    x, y = moveaxis(x, normalize_axis(axisa, x.ndim), -1), moveaxis(y, normalize_axis(axisb, y.ndim), -1)
    n, k = x.shape[-1], y.shape[-1]
    for size in (n, k):
        if size not in (2, 3):
            raise ShapeError(f"vectors have 2 or 3 components, not {size}")
    xs, ys = [_component(x, i) for i in range(n)], [_component(y, i) for i in range(k)]

    def turned(i: int, j: int) -> Node:
        "x_i y_j - x_j y_i, where a component that is not there is 0."
        if i >= n or j >= k:
            return negative(multiply(xs[j], ys[i]))
        if j >= n or i >= k:
            return multiply(xs[i], ys[j])
        return subtract(multiply(xs[i], ys[j]), multiply(xs[j], ys[i]))

    if n == 2 and k == 2:
        return turned(0, 1)
    out = stack([turned(1, 2), turned(2, 0), turned(0, 1)], -1)
    return moveaxis(out, -1, normalize_axis(axisc, out.ndim))


def _cumulative(x: Any, axis: Any, dtype: Any, include_initial: bool, scan: Any, first: float) -> Node:
    x = as_node(x)
    x = ravel(x) if x.ndim == 0 else x
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"an array of {x.ndim} axes needs axis=")
        axis = 0
    axis = normalize_axis(axis, x.ndim)
    out: Node = scan(x, axis, dtype)
    if not flag(include_initial, "include_initial"):
        return out
    start = full((*x.shape[:axis], 1, *x.shape[axis + 1:]), first, out.dtype)
    return concatenate([start, out], axis)


@public
def cumulative_sum(x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Node:
    """Sums of the elements up to each along an axis, which only a vector may leave out; include_initial puts a 0 in front."""
    return _cumulative(x, axis, dtype, include_initial, cumsum, 0)


@public
def cumulative_prod(x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Node:
    """Products of the elements up to each along an axis, which only a vector may leave out; include_initial puts a 1 in front."""
    return _cumulative(x, axis, dtype, include_initial, cumprod, 1)


@composed
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """The integral of y along an axis by the trapezoidal rule: sum of (y_i + y_i+1) / 2 (x_i+1 - x_i).

    x: positions, a vector or of y's shape; without them dx is the distance. Integers are added up as float64, and beside floats
    in their dtype; bools and unsigned integers are numbers like any other, so their differences may be negative.
    """
    if x is not None:
        y, x = pair(y, x)
    y = floating(y)
    axis = normalize_axis(axis, y.ndim)
    low, high = _without(y, axis, -1), _without(y, axis, 0)
    if x is None:
        step: Any = dx
    else:
        positions = floating(x)
        at = 0 if positions.ndim == 1 else axis
        step = subtract(_without(positions, at, 0), _without(positions, at, -1))
        if positions.ndim == 1:
            step = reshape_to(step, tuple(step.shape[0] if i == axis else 1 for i in range(y.ndim)))
    return sum(multiply(step, multiply(add(low, high), 0.5)), axis)


def _without(x: Node, axis: int, which: int) -> Node:
    """x without its first (0) or last (-1) element of an axis."""
    before = (slice(None),) * axis
    return x[(*before, slice(1, None) if which == 0 else slice(None, -1))]


@public
def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Node:
    """The norm of the vectors along an axis, or of all elements along several (axis=None: along all); ord as for norm. Derivative
    0 at the origin for ord > 1."""
    x = floating(x)
    axes, keepdims = normalize_axes(axis, x.ndim), flag(keepdims, "keepdims")
    if len(axes) == 1:
        return norm(x, ord, axes[0], keepdims)
    others = [i for i in range(x.ndim) if i not in axes]
    flat = reshape_to(permute(x, (*others, *axes)), (*[x.shape[i] for i in others], nelements(tuple(x.shape[i] for i in axes))))
    out = norm(flat, ord, flat.ndim - 1)
    return reshape_to(out, tuple(1 if i in axes else n for i, n in enumerate(x.shape))) if keepdims else out


@public
def float_power(x: Any, y: Any) -> Node:
    """x to the power y in float64, whatever the operands are."""
    x, y = reals(x, y, "float_power")
    return power(cast(x, FLOAT64), cast(y, FLOAT64))


__all__ = ["allclose", "append", "cross", "cumulative_prod", "cumulative_sum", "degrees", "float_power", "heaviside", "isclose", "nan_to_num", "radians",
           "rot90", "trapezoid", "vecdot", "vector_norm"]
