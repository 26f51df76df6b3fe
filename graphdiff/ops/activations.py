"""Activations, normalisations and attention: functions of nodes, composed of other ops.

At the kink of an activation the derivative is the left one (hard_tanh: 0 at both corners). Normalisations centre twice, so
that a mean much larger than the spread costs no digits; float16 is computed in float32 inside.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import BOOL, FLOAT16, FLOAT32, PROMOTE
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import as_node, make_constant, public
from ..graph.node import Node
from ..specs import format_shape, nelements, normalize_axes, unify
from .binary import add, greater, greater_equal, less_equal, logical_and, maximum, minimum, multiply, where
from .families import cast, floating, pair
from .gradient import stop_gradient
from .linalg import matmul
from .movement import matrix_transpose, reshape_to
from .reduction import any as any_of
from .reduction import mean
from .scan import softmax
from .unary import expm1, gelu_erf, gelu_tanh, reciprocal, relu, sqrt, square

# -- elementwise -----------------------------------------------------------------------------------------------------

SELU_ALPHA = 1.6732632423543772848170429916717      # Klambauer et al. 2017, fixed point of mean 0, variance 1
SELU_SCALE = 1.0507009873554804934193349852946


@public
def leaky_relu(x: Any, slope: Any = 0.01) -> Node:
    """x where x > 0, else slope x. Any shape; integers become float64. Derivative at 0: slope (the left one).

    Source: Maas, Hannun, Ng 2013.
    """
    x = floating(x)
    if type(slope) in (int, float) and slope == 0:
        return relu(x)              # 0 times -inf is not wanted
    return where(greater(x, 0.0), x, slope * x)


@public
def elu(x: Any, alpha: Any = 1.0) -> Node:
    """x where x > 0, else alpha (e^x - 1). Any shape. Derivative at 0: alpha (the left one).

    Source: Clevert, Unterthiner, Hochreiter 2016.
    """
    x = floating(x)
    return where(greater(x, 0.0), x, alpha * expm1(x))


@public
def selu(x: Any) -> Node:
    """1.0507 elu(x, 1.67326): keeps mean 0 and variance 1 over layers. Any shape. Derivative at 0: the left one.

    Source: Klambauer et al. 2017.
    """
    x = floating(x)
    return where(greater(x, 0.0), multiply(SELU_SCALE, x), multiply(SELU_SCALE * SELU_ALPHA, expm1(x)))


@public
def celu(x: Any, alpha: Any = 1.0) -> Node:
    """x where x > 0, else alpha (e^(x/alpha) - 1): smooth for every alpha. Any shape.

    Source: Barron 2017.
    """
    x = floating(x)
    return where(greater(x, 0.0), x, alpha * expm1(x / alpha))


@public
def gelu(x: Any, *, approximate: bool = False) -> Node:
    """x Phi(x), Phi the normal distribution; approximate: by tanh. Any shape; accurate in the tails.

    Source: Hendrycks, Gimpel 2016.
    """
    return (gelu_tanh if approximate else gelu_erf)(x)


@public
def hard_tanh(x: Any) -> Node:
    """x between -1 and 1, else the nearer of the two. Any shape. Derivative 0 at both corners; NaN stays."""
    x = floating(x)
    return where(greater_equal(x, 1.0), 1.0, where(less_equal(x, -1.0), -1.0, x))


@public
def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Node:
    """minimum(maximum(x, a_min), a_max), as numpy.clip; a bound that is None is left out. Bounds broadcast.

    Dtypes: all, promoted. Derivative: 1 between the bounds, 1/2 at one (a tie), 0 outside.
    """
    if (min is not None and a_min is not None) or (max is not None and a_max is not None):
        raise NodeTypeError("a bound is given twice")
    low, high = a_min if min is None else min, a_max if max is None else max
    y = as_node(x)
    if low is not None:
        y = maximum(y, low)
    return y if high is None else minimum(y, high)


# -- normalisation ---------------------------------------------------------------------------------------------------

def _enter(x: Any, *scales: Any) -> tuple[Node, Any]:
    """x as computed with (float16 in float32), and the dtype of the result: x's promoted with gamma's and beta's."""
    x = floating(x)
    dtype = x.dtype
    for s in scales:
        if isinstance(s, Node) or isinstance(s, (np.ndarray, np.generic)):
            dtype = PROMOTE[dtype, as_node(s).dtype]
    return (cast(x, FLOAT32) if x.dtype is FLOAT16 else x), dtype


def _normalised(x: Node, axes: tuple[int, ...], eps: float) -> Node:
    """(x - mean) / sqrt(var + eps), in two passes.

    The mean is rounded to x's dtype, which shifts numbers far from 0 by more than they differ: the mean of what is left
    takes the shift back. As a function of x it is 0, so differentiation need not see it.
    """
    c = x - mean(x, axes, keepdims=True)
    c = c - stop_gradient(mean(c, axes, keepdims=True))
    return c * reciprocal(sqrt(mean(square(c), axes, keepdims=True) + eps))


def _scale(y: Node, gamma: Any, beta: Any, shape: tuple[Any, ...], into: tuple[Any, ...], dtype: Any) -> Node:
    """y gamma + beta, both of `shape` and laid out as `into`; cast to the result's dtype."""
    for name, s in (("gamma", gamma), ("beta", beta)):
        if s is None:
            continue
        s = as_node(s, y.dtype)
        if s.shape != () and (s.ndim != len(shape) or any(unify(a, b) is None for a, b in zip(s.shape, shape, strict=True))):
            raise ShapeError(f"{name} has shape {format_shape(s.shape)}, {format_shape(shape)} is needed")
        s = s if s.shape == () else reshape_to(s, into)
        y = multiply(y, s) if name == "gamma" else add(y, s)
    return cast(y, dtype)


def _along(x: Node, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """x's shape with 1 outside the axes."""
    return tuple(n if i in axes else 1 for i, n in enumerate(x.shape))


@public
def layer_norm(x: Any, gamma: Any = None, beta: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Node:
    """(x - mean) / sqrt(var + eps) gamma + beta, mean and (biased) variance over the axis or axes.

    Shapes: gamma and beta have the sizes of those axes, in ascending order. Dtypes: floats; integers become float64.
    Raises ShapeError when gamma or beta has another shape. Source: Ba, Kiros, Hinton 2016.
    """
    x, dtype = _enter(x, gamma, beta)
    axes = tuple(sorted(normalize_axes(axis, x.ndim)))
    return _scale(_normalised(x, axes, eps), gamma, beta, tuple(x.shape[a] for a in axes), _along(x, axes), dtype)


@public
def batch_norm(x: Any, gamma: Any = None, beta: Any = None, *, eps: float = 1e-5) -> Node:
    """(x - mean) / sqrt(var + eps) gamma + beta with this batch's statistics, over every axis but 1.

    Shapes: x [N, C, ..], gamma and beta [C]. Dtypes: floats. Raises ShapeError for fewer than two axes or another gamma.
    Source: Ioffe, Szegedy 2015.
    """
    x, dtype = _enter(x, gamma, beta)
    if x.ndim < 2:
        raise ShapeError(f"needs [N, C, ..], not {format_shape(x.shape)}")
    axes = (0, *range(2, x.ndim))
    return _scale(_normalised(x, axes, eps), gamma, beta, (x.shape[1],), _along(x, (1,)), dtype)


@public
def group_norm(x: Any, groups: int, gamma: Any = None, beta: Any = None, *, eps: float = 1e-5) -> Node:
    """As layer_norm, over each of `groups` groups of channels and all spatial axes of one sample.

    Shapes: x [N, C, ..] with C a multiple of groups; gamma and beta [C]. Raises ShapeError otherwise.
    Source: Wu, He 2018.
    """
    x, dtype = _enter(x, gamma, beta)
    if x.ndim < 2:
        raise ShapeError(f"needs [N, C, ..], not {format_shape(x.shape)}")
    if isinstance(groups, bool) or not isinstance(groups, (int, np.integer)):
        raise NodeTypeError(f"groups is a whole number, not {type(groups).__name__}")
    if groups < 1 or (isinstance(x.shape[1], int) and x.shape[1] % groups):
        raise ShapeError(f"{x.shape[1]} channels do not divide into {groups} groups")
    rest = x.shape[1] // int(groups) * nelements(x.shape[2:])
    y = reshape_to(_normalised(reshape_to(x, (x.shape[0], int(groups), rest)), (2,), eps), x.shape)
    return _scale(y, gamma, beta, (x.shape[1],), _along(x, (1,)), dtype)


@public
def rms_norm(x: Any, gamma: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Node:
    """x / sqrt(mean(x x) + eps) gamma over the axis or axes; gamma has their sizes. A row of zeros stays zeros.

    Raises ShapeError when gamma has another shape. Source: Zhang, Sennrich 2019.
    """
    x, dtype = _enter(x, gamma)
    axes = tuple(sorted(normalize_axes(axis, x.ndim)))
    y = x * reciprocal(sqrt(mean(square(x), axes, keepdims=True) + eps))
    return _scale(y, gamma, None, tuple(x.shape[a] for a in axes), _along(x, axes), dtype)


# -- attention -------------------------------------------------------------------------------------------------------

@public
def attention(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False) -> Node:
    """softmax(q k^T / sqrt(d)) v.

    Shapes: q [.., m, d], k [.., n, d], v [.., n, e] -> [.., m, e]; leading axes broadcast. mask: bool, broadcasts to
    [.., m, n], True = may look. causal: query i may look at keys 0 .. i. Dtypes: floats; float16 is computed in float32.
    A query that may look at nothing gives zeros and has zero gradients. Keys and values nobody may look at, and queries
    that may look at nothing, have no influence at all, not even when they hold NaN. Raises ShapeError and DTypeError (mask
    not bool). Source: Vaswani et al. 2017.
    """
    q, k = pair(q, k)
    q, v = pair(q, v)
    k = cast(k, q.dtype)
    q, k, v = floating(q), floating(k), floating(v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim < 2:
            raise ShapeError(f"{name} has shape {format_shape(x.shape)}, [.., length, size] is needed")
    if unify(q.shape[-1], k.shape[-1]) is None:
        raise ShapeError(f"q has vectors of {q.shape[-1]} elements, k of {k.shape[-1]}")
    if unify(k.shape[-2], v.shape[-2]) is None:
        raise ShapeError(f"there are {k.shape[-2]} keys and {v.shape[-2]} values")
    dtype = q.dtype
    if dtype is FLOAT16:
        q, k, v = cast(q, FLOAT32), cast(k, FLOAT32), cast(v, FLOAT32)
    look = _mask(mask, causal, q.shape[-2], k.shape[-2])
    if look is not None:
        q, k, v = _only_seen(q, k, v, look)
    d = q.shape[-1]
    if isinstance(d, int):
        scores = matmul(q, matrix_transpose(k)) * (1.0 / math.sqrt(d) if d else 1.0)
    else:
        scores = matmul(q, matrix_transpose(k)) / sqrt(cast(maximum(as_node(d), 1), q.dtype))
    if look is not None:
        scores = where(look, scores, -np.inf)
    return cast(matmul(softmax(scores, axis=-1), v), dtype)


def _mask(mask: Any, causal: bool, m: Any, n: Any) -> Node | None:
    """Who may look at whom, as a bool node with at least two axes; None: everybody at everything."""
    look: Node | None = None
    if mask is not None:
        look = as_node(mask)
        if look.dtype is not BOOL:
            raise DTypeError(f"the mask is {look.dtype}, bool is needed: True = may look\nhint: mask != 0")
        if look.ndim < 2:
            look = reshape_to(look, (1,) * (2 - look.ndim) + look.shape)
        for size, have, what in ((m, look.shape[-2], "queries"), (n, look.shape[-1], "keys")):
            if have != 1 and unify(have, size) is None:
                raise ShapeError(f"the mask has shape {format_shape(look.shape)}, there are {size} {what}")
    if causal:
        past = _past(m, n)
        look = past if look is None else logical_and(look, past)
    return look


def _past(m: Any, n: Any) -> Node:
    """[m, n], True where the key is not after the query."""
    if isinstance(m, int) and isinstance(n, int):
        return make_constant(np.tri(m, n, dtype=bool))
    from .movement import ones
    from .scan import cumsum
    rows, columns = cumsum(ones((m, 1), "int64"), 0), cumsum(ones((1, n), "int64"), 1)
    return less_equal(columns, rows)


def _only_seen(q: Node, k: Node, v: Node, look: Node) -> tuple[Node, Node, Node]:
    """Zeros in the place of queries that may look at nothing and of keys and values nobody may look at.

    Their scores are masked anyway; zeros keep a NaN or an infinity in them out of the products of both passes.
    """
    if look.op.name == "constant":
        value = look._attrs[0]
        looks, seen = value.any(-1, keepdims=True), np.swapaxes(value.any(-2, keepdims=True), -1, -2)
        return _keep(q, looks), _keep(k, seen), _keep(v, seen)
    keys = matrix_transpose(any_of(look, -2, keepdims=True))
    return where(any_of(look, -1, keepdims=True), q, 0.0), where(keys, k, 0.0), where(keys, v, 0.0)


def _keep(x: Node, flags: Any) -> Node:
    """x where the constant flags [.., length, 1] hold, else 0."""
    return x if flags.all() else where(flags, x, 0.0)


__all__ = ["attention", "batch_norm", "celu", "clip", "elu", "gelu", "group_norm", "hard_tanh", "layer_norm", "leaky_relu",
           "rms_norm", "selu"]
