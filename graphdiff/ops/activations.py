"""Activations and normalisations: functions of nodes, composed of other ops.

At the kink of an activation the derivative is the left one (hard_tanh: 0 at both corners). Normalisations centre twice, so
that a mean much larger than the spread costs no digits; float16 is computed in float32 inside.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dims import shown, unify
from ..dtypes import FLOAT16, FLOAT32, PROMOTE
from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node, composed, make
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import format_shape, nelements, normalize_axes
from .binary import add, equal, greater, maximum, minimum, multiply, where, zmul
from .families import argument, cast, flag, floating, number, operands
from .families import slope as factor
from .gradient import stop_gradient
from .moments import mean
from .movement import reshape_to, taken_for
from .selected import no_out
from .unary import expm1, gelu_erf, gelu_tanh, hard_tanh, reciprocal, relu, sqrt, square

# -- elementwise -----------------------------------------------------------------------------------------------------

SELU_ALPHA = 1.6732632423543772848170429916717      # Klambauer et al. 2017, fixed point of mean 0, variance 1
SELU_SCALE = 1.0507009873554804934193349852946


@composed
def leaky_relu(x: Any, slope: Any = 0.01) -> Node:
    """x where x > 0, else slope x. Any shape; integers become float64. Derivative at 0: slope (the left one).

    Source: Maas, Hannun, Ng 2013.
    """
    x, slope = floating(x), factor(slope, "slope")
    if type(slope) in (int, float) and slope == 0:
        return relu(x)              # 0 times -inf is not wanted
    return where(greater(x, 0.0), x, slope * x)


@composed
def elu(x: Any, alpha: Any = 1.0) -> Node:
    """x where x > 0, else alpha (e^x - 1). Any shape. Derivative at 0: alpha (the left one).

    Source: Clevert, Unterthiner, Hochreiter 2016.
    """
    x, alpha = floating(x), factor(alpha, "alpha")
    return where(greater(x, 0.0), x, alpha * expm1(x))


@composed
def selu(x: Any) -> Node:
    """1.0507 elu(x, 1.67326): keeps mean 0 and variance 1 over layers. Any shape. Derivative at 0: the left one.

    Source: Klambauer et al. 2017.
    """
    x = floating(x)
    return where(greater(x, 0.0), multiply(SELU_SCALE, x), multiply(SELU_SCALE * SELU_ALPHA, expm1(x)))


@composed
def celu(x: Any, alpha: Any = 1.0) -> Node:
    """x where x > 0, else alpha (e^(x/alpha) - 1): smooth for every alpha > 0. Any shape.

    Source: Barron 2017.
    """
    x, alpha = floating(x), factor(alpha, "alpha")
    if not isinstance(alpha, (Node, np.ndarray)):
        number(alpha, "alpha", above=0)
    return where(greater(x, 0.0), x, alpha * expm1(x / alpha))


@composed
def gelu(x: Any, *, approximate: bool | str = False) -> Node:
    """x Phi(x), Phi the normal distribution; approximate: by tanh ("tanh" and "none" say the same as True and False). Any shape;
    accurate in the tails.

    Source: Hendrycks, Gimpel 2016.
    """
    by_tanh = approximate == "tanh" if isinstance(approximate, str) and approximate in ("tanh", "none") else flag(approximate, "approximate")
    return (gelu_tanh if by_tanh else gelu_erf)(x)


@composed
def clip(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Node:
    """minimum(maximum(x, a_min), a_max), as numpy.clip; a bound that is None is left out. Bounds broadcast; out must be None.

    Dtypes: all, promoted. Derivative: 1 between the bounds, 1/2 at one (a tie), 0 outside and where both bounds are the same.
    """
    if (min is not None and a_min is not None) or (max is not None and a_max is not None):
        raise NodeTypeError("a bound is given twice")
    no_out(out)
    low, high = a_min if min is None else min, a_max if max is None else max
    y = as_node(x)
    if y.dtype.kind in "iu":      # a number beyond the dtype is no bound
        info = np.iinfo(y.dtype)
        low = None if type(low) is int and low < info.min else low
        high = None if type(high) is int and high > info.max else high
    if y.dtype.kind == "f" and low is not None and high is not None:
        y = _still(y, low, high)
    if low is not None:
        y = maximum(*operands(y, low, "clip", ("x", "a_min")))
    return y if high is None else minimum(*operands(y, high, "clip", ("x", "a_max")))


def _still(x: Node, low: Any, high: Any) -> Node:
    """x, without its derivative where no room is left between the bounds: there a tie with both would leave it 1/4."""
    if type(low) in (int, float) and type(high) in (int, float) and low != high:
        return x
    low, high = argument(low, "a_min", x.dtype), argument(high, "a_max", x.dtype)
    same = equal(low, high)
    if low.op.name == high.op.name == "constant":       # decided now
        touching = low.value == high.value
        if not touching.any():
            return x
        same = as_node(touching)
    return where(same, stop_gradient(x), x)


# -- normalisation ---------------------------------------------------------------------------------------------------

def entered(x: Any, *scales: Any) -> tuple[Node, Any]:
    """x as computed with (float16 in float32), and the dtype of the result: x's promoted with gamma's and beta's."""
    x = floating(x)
    dtype = x.dtype
    for s in scales:
        if isinstance(s, Node) or isinstance(s, (np.ndarray, np.generic)):
            dtype = PROMOTE[dtype, argument(s, "gamma or beta").dtype]
    return (cast(x, FLOAT32) if x.dtype is FLOAT16 else x), dtype


def _known_vjp(g: Node, node: Node, needs: Any) -> Any:
    """(g - y mean(g y) - mean(g)) r for x: two sums of g at once, where the chain rule would add up what it has just made."""
    _, _, r = node.inputs
    axes = node._attrs[0]
    along, level = mean(zmul(g, node), axes, keepdims=True), mean(g, axes, keepdims=True)
    return None, zmul(g - zmul(along, node) - level, r), None


# x is the value, and already has the derivatives of forward mode.
NORMALISED = register(OpDef("normalised", "x, which is (y - mean(y)) z with z = 1 / sqrt(var(y) + eps) over axes",
                            lambda inputs, attrs: (inputs[0].shape, inputs[0].dtype), lambda y, x, r, *, axes: y,
                            attr_names=("axes",), arity=3, family="movement", vjp=_known_vjp, jvp=lambda tangents, node: tangents[0],
                            lower=lambda ctx, node: ctx.raw(node.inputs[0]), cost=lambda node: 0, source="Ioffe, Szegedy 2015"))


def moments(x: Node, axes: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """x - mean, the mean and the (biased) variance over the axes, which are kept, in two passes.

    The mean is rounded to x's dtype, which shifts numbers far from 0 by more than they differ: the mean of what is left
    takes the shift back. As a function of x it is 0, so differentiation need not see it.
    """
    m = mean(x, axes, keepdims=True)
    c = x - m
    rest = stop_gradient(mean(c, axes, keepdims=True))
    c = c - rest
    return c, m + rest, mean(square(c), axes, keepdims=True)


def _normalised(x: Node, axes: tuple[int, ...], eps: float) -> Node:
    """(x - mean) / sqrt(var + eps)."""
    c, _, v = moments(x, axes)
    r = reciprocal(sqrt(v + eps))
    return make(NORMALISED, (c * r, x, r), (axes,))


def _scale(y: Node, gamma: Any, beta: Any, shape: tuple[Any, ...], into: tuple[Any, ...], dtype: Any) -> Node:
    """y gamma + beta, both of `shape` and laid out as `into`; cast to the result's dtype."""
    for name, s in (("gamma", gamma), ("beta", beta)):
        if s is None:
            continue
        s = argument(s, name, y.dtype)
        if s.shape not in ((), shape) and (s.ndim != len(shape) or any(unify(a, b) is None for a, b in zip(s.shape, shape, strict=True))):
            raise ShapeError(f"{name} has shape {format_shape(s.shape)}, {format_shape(shape)} is needed")
        if s.shape != ():
            s = reshape_to(taken_for(s, dict(enumerate(shape)), f"{name} has {{have}} elements along axis {{axis}}, {{size}} are needed"), into)
        y = multiply(y, s) if name == "gamma" else add(y, s)
    return cast(y, dtype)


def _along(x: Node, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """x's shape with 1 outside the axes."""
    return tuple([n if i in axes else 1 for i, n in enumerate(x.shape)])


@composed
def layer_norm(x: Any, gamma: Any = None, beta: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Node:
    """(x - mean) / sqrt(var + eps) gamma + beta, mean and (biased) variance over the axis or axes.

    Shapes: gamma and beta have the sizes of those axes, in ascending order. Dtypes: floats; integers become float64.
    Raises ShapeError when gamma or beta has another shape. Source: Ba, Kiros, Hinton 2016.
    """
    x, dtype = entered(x, gamma, beta)
    eps = number(eps, "eps", 0)
    axes = tuple(sorted(normalize_axes(axis, x.ndim)))
    return _scale(_normalised(x, axes, eps), gamma, beta, tuple(x.shape[a] for a in axes), _along(x, axes), dtype)


@composed
def batch_norm(x: Any, gamma: Any = None, beta: Any = None, *, eps: float = 1e-5) -> Node:
    """(x - mean) / sqrt(var + eps) gamma + beta with this batch's statistics, over every axis but 1.

    Shapes: x [N, C, ..], gamma and beta [C]. Dtypes: floats. Raises ShapeError for fewer than two axes or another gamma.
    Source: Ioffe, Szegedy 2015.
    """
    x, dtype = entered(x, gamma, beta)
    if x.ndim < 2:
        raise ShapeError(f"needs [N, C, ..], not {format_shape(x.shape)}")
    axes, eps = (0, *range(2, x.ndim)), number(eps, "eps", 0)
    return _scale(_normalised(x, axes, eps), gamma, beta, (x.shape[1],), _along(x, (1,)), dtype)


@composed
def group_norm(x: Any, groups: int, gamma: Any = None, beta: Any = None, *, eps: float = 1e-5) -> Node:
    """As layer_norm, over each of `groups` groups of channels and all spatial axes of one sample.

    Shapes: x [N, C, ..] with C a multiple of groups; gamma and beta [C]. Raises ShapeError otherwise.
    Source: Wu, He 2018.
    """
    x, dtype = entered(x, gamma, beta)
    if x.ndim < 2:
        raise ShapeError(f"needs [N, C, ..], not {format_shape(x.shape)}")
    if isinstance(groups, bool) or not isinstance(groups, (int, np.integer)):
        raise NodeTypeError(f"groups is a whole number, not {type(groups).__name__}")
    channels, groups = x.shape[1], int(groups)
    refusal = f"{{have}} channels do not divide into {groups} groups"
    if groups < 1:
        raise ShapeError(refusal.format(have=shown(channels)))
    x = taken_for(x, {1: channels // groups * groups}, refusal)
    eps = number(eps, "eps", 0)
    rest = channels // groups * nelements(x.shape[2:])
    y = reshape_to(_normalised(reshape_to(x, (x.shape[0], groups, rest)), (2,), eps), x.shape)
    return _scale(y, gamma, beta, (x.shape[1],), _along(x, (1,)), dtype)


@composed
def rms_norm(x: Any, gamma: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Node:
    """x / sqrt(mean(x x) + eps) gamma over the axis or axes; gamma has their sizes. A row of zeros stays zeros.

    Raises ShapeError when gamma has another shape. Source: Zhang, Sennrich 2019.
    """
    x, dtype = entered(x, gamma)
    eps = number(eps, "eps", 0)
    axes = tuple(sorted(normalize_axes(axis, x.ndim)))
    y = x * reciprocal(sqrt(mean(square(x), axes, keepdims=True) + eps))
    return _scale(y, gamma, None, tuple(x.shape[a] for a in axes), _along(x, axes), dtype)


__all__ = ["batch_norm", "celu", "clip", "elu", "gelu", "group_norm", "hard_tanh", "layer_norm", "leaky_relu",
           "rms_norm", "selu"]
