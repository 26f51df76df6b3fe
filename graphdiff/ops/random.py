"""Random numbers as graph ops: counter-based, so that every element depends on the key and its own position only.

A key is two integers in a node: a constant draws the same numbers at every call; an input or a variable lets them change.
Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import FLOAT16, FLOAT32, FLOAT64, INT64, as_dtype
from ..errors import DTypeError, NodeTypeError, OutOfRange, ShapeError
from ..graph.build import as_node, make, make_constant, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import as_shape, check_shape
from .families import argument, cast, floating

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_CUT = "random numbers do not depend smoothly on their key"


def threefry(key: Any, counter: Any) -> Any:
    """The cipher of 64-bit counters [m] under the low 32 bits of two key integers: uint32 [m, 2]."""
    k0, k1 = (np.uint32(int(k) & 0xFFFFFFFF) for k in key)
    ks = (k0, k1, np.uint32(0x1BD11BDA) ^ k0 ^ k1)
    counter = np.asarray(counter, np.uint64)
    with np.errstate(over="ignore"):
        x0 = (counter & np.uint64(0xFFFFFFFF)).astype(np.uint32) + ks[0]
        x1 = (counter >> np.uint64(32)).astype(np.uint32) + ks[1]
        for group in range(5):
            for r in _ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
            x0 = x0 + ks[(group + 1) % 3]
            x1 = x1 + ks[(group + 2) % 3] + np.uint32(group + 1)
    return np.stack([x0, x1], axis=-1)


def _words(key: Any, n: int) -> Any:
    return threefry(key, np.arange((n + 1) // 2, dtype=np.uint64)).reshape(-1)[:n]


def _bits_reference(key: Any, *, shape: Any, dtype: Any) -> Any:
    return _words(key, int(np.prod(shape))).astype(np.int64).reshape(shape)


def _uniform(key: Any, n: int, dtype: Any) -> Any:
    """24 bits of one word for float32, 53 bits of two for float64: in [0, 1)."""
    if dtype == FLOAT32:
        return (_words(key, n) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    w = _words(key, 2 * n).reshape(-1, 2)
    return ((w[:, 0] >> 5) * 2.0**26 + (w[:, 1] >> 6)) * 2.0**-53


def _uniform_reference(key: Any, *, shape: Any, dtype: Any) -> Any:
    return _uniform(key, int(np.prod(shape)), dtype).reshape(shape)


def _normal_reference(key: Any, *, shape: Any, dtype: Any) -> Any:
    """Box-Muller on the uniforms of elements 2p and 2p + 1."""
    n = int(np.prod(shape))
    u = _uniform(key, (n + 1) // 2 * 2, dtype).astype(np.float64).reshape(-1, 2)
    r, a = np.sqrt(-2.0 * np.log(1.0 - u[:, 0])), 2 * np.pi * u[:, 1]
    return np.stack([r * np.cos(a), r * np.sin(a)], axis=-1).reshape(-1)[:n].astype(dtype).reshape(shape)


def _infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (k,), (shape, dtype) = inputs, attrs
    if k.shape != (2,) or k.dtype is not INT64:
        raise ShapeError(f"a key is int64[2], not {k.spec}\nhint: gd.random.key(seed) makes one, split(key, n)[i] picks one")
    check_shape(shape, dtype)
    return shape, dtype


def _draw(kernel: str, reference: Any, formula: str) -> OpDef:
    return register(OpDef(kernel, formula, _infer, reference, attr_names=("shape", "dtype"), arity=1, cuts=_CUT,
                          lower=lambda ctx, node: ctx.emit(kernel, ctx.new(node.shape, node.dtype), [ctx.raw(node.inputs[0])])))


BITS = _draw("random_bits", _bits_reference, "32 random bits an element")
UNIFORM = _draw("random_uniform", _uniform_reference, "uniform in [0, 1)")
NORMAL = _draw("random_normal", _normal_reference, "normal, mean 0, variance 1")


@public
def key(seed: int) -> Node:
    """A key from a seed, an int of 64 bits, with or without a sign: a constant int64[2]."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise NodeTypeError(f"a seed is an int, not {type(seed).__name__}")
    if not -1 << 63 <= int(seed) < 1 << 64:
        raise OutOfRange(f"a seed has 64 bits: {int(seed)} is not within -2**63 to 2**64 - 1")
    seed = int(seed) & 0xFFFFFFFFFFFFFFFF
    return make_constant(np.array([seed & 0xFFFFFFFF, seed >> 32], np.int64))


def _key(k: Any) -> Node:
    k = argument(k, "key")
    if k.dtype.kind not in "iu":
        raise DTypeError(f"a key is int64[2], not {k.spec}\nhint: gd.random.key(seed) makes one, split(key, n)[i] picks one")
    return cast(k, INT64)


@public
def split(key: Any, n: int = 2) -> Node:
    """n independent keys from one: int64[n, 2]; split(key, n)[i] is a key."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise ShapeError(f"n must be an int >= 0, not {n!r}")
    return make(BITS, (_key(key),), ((int(n), 2), INT64))


@public
def fold_in(key: Any, data: Any) -> Node:
    """A key that depends on another key and an integer (a number or a scalar node), such as a step count."""
    from .binary import bitwise_and, bitwise_xor, right_shift
    from .joining import stack
    from .movement import reshape_to
    data = as_node(data)
    if data.dtype.kind not in "iu" or data.shape != ():
        raise DTypeError(f"data must be one integer, not {data.spec}")
    data = cast(data, INT64)
    low = bitwise_and(data, 0xFFFFFFFF)
    high = bitwise_and(right_shift(data, 32), 0xFFFFFFFF)
    # Two draws, so that keys of neighbouring integers share nothing but the parent.
    mixed = bitwise_xor(make(BITS, (_key(key),), ((2,), INT64)), stack([low, high]))
    return reshape_to(make(BITS, (mixed,), ((2,), INT64)), (2,))


def _sizes(shape: Any, dtype: Any) -> tuple[Any, Any]:
    d = as_dtype(dtype)
    if d.kind != "f":
        raise DTypeError(f"dtype must be a float, not {d}")
    return as_shape(shape), d


def _half(op: OpDef, key: Any, shape: Any, dtype: Any) -> Node:
    sizes, d = _sizes(shape, dtype)
    return cast(make(op, (_key(key),), (sizes, FLOAT32 if d is FLOAT16 else d)), d)


@public
def uniform(key: Any, shape: Any = (), dtype: Any = "float64") -> Node:
    """Uniform in [0, 1): 11 bits for float16, 24 for float32, 53 for float64."""
    u = _half(UNIFORM, key, shape, dtype)
    if u.dtype is not FLOAT16:
        return u
    from .unary import floor_
    return cast(floor_(u.inputs[0] * 2048.0) * (1 / 2048), FLOAT16)       # rounded, the largest would be 1


@public
def normal(key: Any, shape: Any = (), dtype: Any = "float64") -> Node:
    """Normal, mean 0 and variance 1 (Box-Muller)."""
    return _half(NORMAL, key, shape, dtype)


@public
def bernoulli(key: Any, shape: Any = (), p: Any = 0.5) -> Node:
    """bool, True with probability p: a number from 0 to 1, or numbers (also a node) that broadcast to shape."""
    from .binary import less
    if not isinstance(p, Node):
        ps = np.asarray(p)
        if ps.dtype.kind not in "biuf" or not np.all((ps >= 0) & (ps <= 1)):
            raise ShapeError(f"p must be from 0 to 1, not {p!r}")
    return less(make(UNIFORM, (_key(key),), (as_shape(shape), FLOAT64)), p)


@public
def dropout(x: Any, p: float, key: Any) -> Node:
    """x with elements set to 0 with probability p, the rest divided by 1 - p (training mode). p = 0 is x itself.

    p: a number in [0, 1]. The mask depends on the key alone, so it changes only when the key does.
    """
    from .binary import where
    x = floating(x)
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ShapeError(f"p must be a number from 0 to 1, not {p!r}")
    if p == 0:
        return x
    if p == 1:
        return where(False, x, 0.0)
    keep = bernoulli(key, x.shape, 1.0 - p)
    return where(keep, x * (1.0 / (1.0 - p)), 0.0)


__all__ = ["bernoulli", "fold_in", "key", "normal", "split", "uniform"]
