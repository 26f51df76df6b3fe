"""Initialisers: arrays from an explicit key. `fans` says how many numbers go into and out of a unit.

Shapes: a matrix is [in, out]; anything longer is a convolution's [out, in, *kernel].
"""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..api.function import Function, evaluate, function
from ..dtypes import INT64, as_dtype
from ..errors import NodeTypeError, ShapeError
from ..graph.build import CONSTANT, named_input, public
from ..graph.node import Node
from ..ops import random
from ..ops.families import number
from ..specs import as_shape, check_memory, format_shape
from .layer import unique_seed

Initialiser = Callable[[Any, tuple[int, ...], Any], Any]


def as_key(key: Any) -> Node:
    """A key node: given, made from an int seed, or (None) of the number of layers made so far without one."""
    if key is None:
        return random.key(unique_seed())
    if isinstance(key, Node):
        if key.shape != (2,) or key.dtype.kind not in "iu":
            raise ShapeError(f"a key is int64[2], not {key.spec}\nhint: gd.random.key(seed) makes one, gd.random.split(key, n)[i] picks one")
        return key
    return random.key(key)


def split(key: Any, n: int) -> list[Node]:
    """n keys from one (a node, an int seed or None)."""
    keys = random.split(as_key(key), n)
    return [keys[i] for i in range(n)]


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = as_shape(shape)
    if not all(isinstance(n, int) for n in sizes):
        raise ShapeError(f"init: an array has sizes that are known, not {format_shape(sizes)}")
    return sizes  # type: ignore[return-value]


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """(numbers into a unit, numbers out of it)."""
    shape = _sizes(shape)
    if len(shape) < 2:
        raise ShapeError(f"init: {list(shape)} has no inputs and outputs; zeros or ones suit it")
    if len(shape) == 2:
        return shape[0], shape[1]
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


@lru_cache(maxsize=256)
def _drawing(draw: Callable[..., Node], shape: tuple[int, ...]) -> Function:
    """Layers of one size, of which a net has many, are drawn by one program."""
    key = named_input("key", (2,), "int64")
    return function([key], draw(key, shape, "float64"), threads=1)


def _drawn(draw: Callable[..., Node], key: Any, shape: tuple[int, ...]) -> Any:
    node = as_key(key)
    if node.op is CONSTANT and node.dtype is INT64:
        return _drawing(draw, _sizes(shape))(node._attrs[0])
    return evaluate(draw(node, shape, "float64"), {})


def _uniform(key: Any, shape: tuple[int, ...], dtype: Any, limit: float) -> Any:
    return ((_drawn(random.uniform, key, shape) * 2.0 - 1.0) * limit).astype(as_dtype(dtype))


def _normal(key: Any, shape: tuple[int, ...], dtype: Any, deviation: float) -> Any:
    return (_drawn(random.normal, key, shape) * deviation).astype(as_dtype(dtype))


def _filled(value: int, shape: tuple[int, ...], dtype: Any) -> Any:
    sizes, kind = _sizes(shape), as_dtype(dtype)
    check_memory(sizes, kind)
    return np.full(sizes, value, kind)


@public
def zeros(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    return _filled(0, shape, dtype)


@public
def ones(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    return _filled(1, shape, dtype)


@public
def normal(key: Any, shape: tuple[int, ...], dtype: Any = "float32", deviation: float = 1.0) -> Any:
    """Normal, mean 0."""
    return _normal(key, _sizes(shape), dtype, number(deviation, "deviation", 0))


@public
def uniform(key: Any, shape: tuple[int, ...], dtype: Any = "float32", limit: float = 1.0) -> Any:
    """Uniform in [-limit, limit)."""
    return _uniform(key, _sizes(shape), dtype, number(limit, "limit", 0))


@public
def glorot(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    """Uniform with variance 2 / (in + out). Source: Glorot, Bengio 2010."""
    n_in, n_out = fans(shape)
    return _uniform(key, shape, dtype, math.sqrt(6.0 / max(1, n_in + n_out)))


@public
def glorot_normal(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    """Normal with variance 2 / (in + out). Source: Glorot, Bengio 2010."""
    n_in, n_out = fans(shape)
    return _normal(key, shape, dtype, math.sqrt(2.0 / max(1, n_in + n_out)))


@public
def he(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    """Normal with variance 2 / in, for relu. Source: He et al. 2015."""
    return _normal(key, shape, dtype, math.sqrt(2.0 / max(1, fans(shape)[0])))


@public
def he_uniform(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    """Uniform with variance 2 / in. Source: He et al. 2015."""
    return _uniform(key, shape, dtype, math.sqrt(6.0 / max(1, fans(shape)[0])))


@public
def orthogonal(key: Any, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    """Rows or columns (whichever are fewer) orthonormal; a convolution as [out, in kernel]. Source: Saxe et al. 2014."""
    shape = _sizes(shape)
    if len(shape) < 2:
        raise ShapeError(f"init: orthogonal needs a matrix, not {list(shape)}")
    rows, columns = shape[0], math.prod(shape[1:])
    tall = _normal(key, (max(rows, columns), min(rows, columns)), "float64", 1.0)
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)      # makes the factorisation unique, and q uniformly distributed
    return np.ascontiguousarray((q if rows >= columns else q.T).reshape(shape)).astype(as_dtype(dtype))


_NAMED: dict[str, Initialiser] = {"zeros": zeros, "ones": ones, "normal": normal, "uniform": uniform, "glorot": glorot,
                                  "glorot_normal": glorot_normal, "he": he, "he_uniform": he_uniform, "orthogonal": orthogonal}


def make_transposed(init: str, key: Any, shape: tuple[int, ...], dtype: Any, groups: int = 1) -> Any:
    """The weight [c_in, c_out / groups, *kernel] of a transposed convolution by an initialiser's name: that of a convolution with as many
    inputs and outputs, [c_out, c_in / groups, *kernel], with both exchanged in every group."""
    c_in, c_out, kernel = shape[0], shape[1] * groups, shape[2:]
    w = make(init, key, (c_out, c_in // groups, *kernel), dtype)
    return np.ascontiguousarray(w.reshape(groups, c_out // groups, c_in // groups, *kernel).swapaxes(1, 2)).reshape(shape)


def make(init: Any, key: Any, shape: tuple[int, ...], dtype: Any, groups: int = 1) -> Any:
    """An array by an initialiser's name, a function (key, shape, dtype), or a ready array of that shape."""
    if isinstance(init, str):
        if init not in _NAMED:
            raise NodeTypeError(f"init: {init!r} is not one of {', '.join(_NAMED)}")
        return _NAMED[init](key, shape, dtype)
    given = init(key, shape, dtype) if callable(init) else init
    try:
        array = np.array(given, as_dtype(dtype))
    except (TypeError, ValueError):
        raise NodeTypeError(f"init: a name, a function or an array is needed, not {type(given).__name__}") from None
    if array.shape != shape:
        raise ShapeError(f"init: an array of shape {list(shape)} is needed, not of {list(array.shape)}")
    return array
