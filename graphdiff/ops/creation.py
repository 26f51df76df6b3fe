"""Arrays made of sizes and numbers: full and kin, ranges, triangles and identities. Sizes may be named."""
from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ..dims import Dim
from ..dtypes import BOOL, FLOAT64, INT64, as_dtype, converted, weak
from ..errors import GraphdiffError, NodeTypeError, ShapeError
from ..graph.build import as_node, checked_array, make_constant, public, scalar
from ..graph.node import Node
from ..specs import as_shape, check_memory, nelements, normalize_axis
from .families import cast, flag
from .movement import expand_to, whole_diagonal


def _filled(value: Any, dtype: Any) -> Node:
    if dtype is None:
        return as_node(value)
    dtype = as_dtype(dtype)
    if isinstance(value, Node):
        return cast(value, dtype)
    if type(value) in (bool, int) or (type(value) is float and dtype.kind == "f"):
        return scalar(value, dtype)
    return make_constant(converted(checked_array(value, "fill_value"), dtype))


# -- constants -----------------------------------------------------------------------------------------------------

@public
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """Every element fill_value; sizes may be named."""
    return expand_to(_filled(fill_value, dtype), as_shape(shape))


@public
def zeros(shape: Any, dtype: Any = "float64") -> Node:
    """Zeros; sizes may be named."""
    return full(shape, 0, dtype)


@public
def ones(shape: Any, dtype: Any = "float64") -> Node:
    """Ones; sizes may be named."""
    return full(shape, 1, dtype)


empty = zeros


@public
def zeros_like(x: Any, dtype: Any = None, *, shape: Any = None) -> Node:
    """Zeros of x's shape and dtype, where others are not given."""
    return full_like(x, 0, dtype, shape=shape)


@public
def ones_like(x: Any, dtype: Any = None, *, shape: Any = None) -> Node:
    """Ones of x's shape and dtype, where others are not given."""
    return full_like(x, 1, dtype, shape=shape)


@public
def full_like(x: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Node:
    """fill_value in x's shape and dtype, where others are not given."""
    x = as_node(x)
    return full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype)


def _count(n: Any, shape: Any) -> Node:
    """0, 1, .. n - 1, in a shape with one axis of size n and others of size 1."""
    from .scan import cumsum
    axis = next(i for i, s in enumerate(shape) if not isinstance(s, int) or s != 1) if n != 1 or isinstance(n, Dim) else 0
    return cumsum(ones(shape, "int64"), axis) - 1


@public
def arange(*args: Any, start: Any = None, stop: Any = None, step: Any = None, dtype: Any = None) -> Node:
    """numpy.arange as a constant, (stop), (start, stop) or (start, stop, step), which may also be given by name. stop may be a named
    size, if the others are integers and step is above 0: then they are counted when a function runs."""
    args = _bounds(args, start, stop, step)
    if any(isinstance(v, Dim) for v in args):
        n = _sized(*((0, *args, 1) if len(args) == 1 else args))
        return n if dtype is None else cast(n, as_dtype(dtype))
    a = _ranged(args)
    return make_constant(converted(a, as_dtype(a.dtype if dtype is None else dtype)))


def _sized(start: Any, stop: Any, step: Any) -> Node:
    """start, start + step, .. below a named size."""
    for v, name in ((start, "start"), (step, "step")):
        if isinstance(v, bool) or not isinstance(v, (int, np.integer)) or (name == "step" and v < 1):
            raise NodeTypeError(f"with a named size as a bound, {name} is an int{' above 0' if name == 'step' else ''}, not {v}"
                                "\nhint: compute with gd.arange(size) instead")
    n = as_shape(((stop - int(start) + int(step) - 1) // int(step),))[0]
    count = _count(n, (n,))
    count = count * int(step) if step != 1 else count
    return count + int(start) if start != 0 else count


def _ranged(args: tuple[Any, ...]) -> Any:
    if any(isinstance(v, Node) for v in args):
        raise NodeTypeError("bounds must be numbers, the length of an array is part of its shape")
    if len(args) == 3 and args[2] == 0:
        raise ShapeError("the step is 0")
    try:
        _check_range(args)
        return np.arange(*args)
    except GraphdiffError:
        raise
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{error}") from None


def _bounds(args: tuple[Any, ...], start: Any, stop: Any, step: Any) -> tuple[Any, ...]:
    """What is given by name put in its place; a single bound is where the range stops."""
    places = [start, stop, step]
    for i, v in enumerate(args[:3]):
        if places[i] is not None:
            raise NodeTypeError(f"{('start', 'stop', 'step')[i]} is given twice")
        places[i] = v
    start, stop, step = places
    if stop is None and args:
        start, stop = None, start
    if stop is None or len(args) > 3:
        raise NodeTypeError("takes one to three bounds: stop, or start, stop and step")
    return (stop,) if start is None and step is None else (0 if start is None else start, stop, 1 if step is None else step)


def _check_range(args: tuple[Any, ...]) -> None:
    """Is there memory for numpy.arange(*args)? Arguments that it refuses are left to it."""
    if not 1 <= len(args) <= 3 or not builtins.all(isinstance(v, (int, float, np.number)) for v in args):
        return
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if start == start and stop == stop and step and builtins.abs(start) != np.inf and builtins.abs(stop) != np.inf:
        if builtins.all(isinstance(v, int) for v in (start, stop, step)):
            length = -((start - stop) // step)
            for v in (start, stop):
                weak(v, INT64)
        else:
            length = builtins.int((float(stop) - float(start)) / float(step))
        check_memory((builtins.max(length, 0),), FLOAT64)


def _bound(value: Any, what: str) -> Any:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise NodeTypeError(f"{what} must be a number or an array of numbers, not {value!r}")
    return value if type(value) in (int, float) else array


@public
def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0) -> Any:
    """numpy.linspace as a constant: start and stop are numbers. retstep: (the node, the distance between its elements)."""
    if isinstance(start, Node) or isinstance(stop, Node):
        raise NodeTypeError("start and stop must be numbers, not nodes\nhint: start + (stop - start) * gd.linspace(0, 1, num)")
    start, stop = [_bound(v, what) for v, what in ((start, "start"), (stop, "stop"))]
    axis = normalize_axis(axis, 1 + len(np.broadcast_shapes(np.shape(start), np.shape(stop))))
    if isinstance(num, (Node, bool)) or not hasattr(num, "__index__") or num < 0:
        raise ShapeError(f"num must be a whole number, at least 0, not {num!r}")
    check_memory((num.__index__(), *np.broadcast_shapes(np.shape(start), np.shape(stop))), FLOAT64)
    wanted = FLOAT64 if dtype is None else as_dtype(dtype)
    values, step = np.linspace(start, stop, num, endpoint=flag(endpoint, "endpoint"), retstep=True, dtype=wanted, axis=axis)
    node = make_constant(values)
    return (node, step) if flag(retstep, "retstep") else node


@public
def eye(n: Any, m: Any = None, k: int = 0, dtype: Any = "float64") -> Node:
    """Ones on the k-th diagonal, as a constant (of a named size, made when a function runs)."""
    m = n if m is None else m
    if isinstance(n, Dim) or isinstance(m, Dim):
        from .binary import equal
        return cast(equal(_count(n, (n, 1)) + k, _count(m, (1, m))), as_dtype(dtype))
    if not (hasattr(n, "__index__") and hasattr(m, "__index__")) or n < 0 or m < 0:
        raise ShapeError(f"sizes must be whole numbers, at least 0, not {n!r} and {m!r}")
    n, m = check_memory((n.__index__(), m.__index__()), as_dtype(dtype))
    return make_constant(np.eye(n, m, _offset(k, n, m), dtype=as_dtype(dtype)))


@public
def identity(n: int, dtype: Any = "float64") -> Node:
    """The matrix with ones on its diagonal, as a constant."""
    return eye(n, dtype=dtype)


@public
def size(x: Any, axis: int | None = None) -> Node:
    """The number of elements, or the size along an axis, as an int64 node (also when sizes are named)."""
    from ..dtypes import INT64
    from ..graph.build import _dim_node
    x = as_node(x)
    n = nelements(x.shape) if axis is None else x.shape[normalize_axis(axis, x.ndim)]
    return scalar(n, INT64) if isinstance(n, int) else _dim_node(n)


# -- triangles -------------------------------------------------------------------------------------------------------

def _offset(k: Any, n: int, m: int) -> int:
    """The number k of a diagonal of an n by m matrix; one far outside is as good as the nearest one outside."""
    return builtins.max(-n - 1, builtins.min(m + 1, whole_diagonal(k)))


def _triangle(x: Node, k: int, lower: bool) -> Node:
    from .binary import greater_equal, where
    if x.ndim == 0:
        raise ShapeError("an array of at least one axis is needed")
    n, m = x.shape[-1 if x.ndim == 1 else -2], x.shape[-1]      # of a vector, every row is the vector
    zero, k = scalar(0, x.dtype), whole_diagonal(k)
    if not (isinstance(n, int) and isinstance(m, int)):
        below = greater_equal(_count(n, (n, 1)) + (k if lower else k - 1), _count(m, (1, m)))
    else:
        check_memory((n, m), BOOL)
        below = make_constant(np.tri(n, m, _offset(k if lower else k - 1, n, m), dtype=bool))
    return where(below, x, zero) if lower else where(below, zero, x)


@public
def tril(x: Any, k: int = 0) -> Node:
    """x with the elements above the k-th diagonal set to 0; of a vector, the matrix whose rows it is."""
    return _triangle(as_node(x), k, True)


@public
def triu(x: Any, k: int = 0) -> Node:
    """x with the elements below the k-th diagonal set to 0; of a vector, the matrix whose rows it is."""
    return _triangle(as_node(x), k, False)
