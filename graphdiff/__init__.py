"""graphdiff: explicit compute graphs, their adjoints in the same graph, one C program for both passes.

>>> import graphdiff as gd
>>> x1, x2 = gd.inputs("x1 x2")
>>> y = gd.log(x1) + x1 * x2 - gd.sin(x2)
>>> f = gd.function([x1, x2], [y, *gd.grad(y, [x1, x2])])
>>> [float(v) for v in f(2.0, 5.0)]
[11.652071455223084, 5.5, 1.7163378145367738]

The public names are listed here, once. Modules that few calls need (pictures, networkx) load when first used.
"""
from __future__ import annotations

from math import e, inf, nan, pi
from typing import Any

from . import errors
from .dtypes import BOOL as bool_
from .dtypes import FLOAT16 as float16
from .dtypes import FLOAT32 as float32
from .dtypes import FLOAT64 as float64
from .dtypes import INT32 as int32
from .dtypes import INT64 as int64
from .dtypes import UINT8 as uint8
from .graph.build import checked_array as _checked_array
from .graph.build import check_name as _check_name
from .graph.build import make_constant as _make_constant
from .graph.build import named_input, public
from .graph.node import Node
from .graph.state import variable
from .dims import Dim
from .ops.unary import (abs, arccos, arccosh, arcsin, arcsinh, arctan, arctanh, cbrt, cos, cosh, digamma, entr, erf, erfc, exp, exp2, expm1,
                        gaussian, gelu_tanh, invert, isfinite, isinf, isnan, lgamma, log, log1p, log2, log10, log_sigmoid, logical_not,
                        negative, reciprocal, relu, sigmoid, sign, signbit, silu, sin, sinc, sinh, softplus, sqrt, square, tan, tanh)
from .ops.binary import (add, arctan2, bitwise_and, bitwise_or, bitwise_xor, copysign, divide, equal, floor_divide, fmax, fmin, fmod, greater,
                         greater_equal, hypot, left_shift, less, less_equal, logaddexp, logical_and, logical_or, logical_xor, maximum,
                         minimum, multiply, not_equal, polygamma, power, remainder, right_shift, subtract, where, xlogy, zmul)
from .ops.creation import (arange, empty, eye, full, full_like, identity, linspace, ones, ones_like, size, tril, triu, zeros,
                           zeros_like)
from .ops.joining import (array_split, column_stack, concat, concatenate, dstack, hstack, pad, repeat, roll, split, stack, tile,
                          vstack)
from .ops.movement import (atleast_1d, atleast_2d, broadcast_arrays, broadcast_to, diag, diagonal, expand_dims, flip, fliplr,
                           flipud, matrix_transpose, moveaxis, permute_dims, ravel, reshape, squeeze, swapaxes,
                           trace as trace_of, transpose)
from .ops.reduction import all, amax, amin, any, argmax, argmin, count_nonzero, logsumexp, max, min, prod, sum
from .ops.moments import average, mean, norm, ptp, std, var
from .ops.scan import argsort, cumprod, cumsum, log_softmax, median, softmax, sort, top_k
from .ops.indexing import one_hot, segment_max, segment_mean, segment_sum, take, take_along_axis
from .ops.linalg import dot, inner, kron, matmul, outer, tensordot, vdot
from .ops.einsum import einsum
from .ops.conv import conv, conv_transpose
from .ops.pool import avg_pool, max_pool
from .ops.activations import (batch_norm, celu, clip, elu, gelu, group_norm, hard_tanh, layer_norm, leaky_relu, rms_norm, selu)
from .ops.attention import attention
from .ops.derived import (allclose, append, cross, cumulative_prod, cumulative_sum, degrees, float_power, heaviside, isclose, nan_to_num, radians, rot90,
                          trapezoid, vecdot, vector_norm)
from .ops.gradient import stop_gradient
from .ops import methods as _methods
from .ops import random
from .ops import sequence as _sequence
from .ops.random import dropout
from .ops.methods import around, ceil, fix, floor, positive, rint, trunc
from .ops.methods import _round as round
from .api import numpy_bridge as _numpy_bridge
from .api.function import Function, evaluate, function
from .api.transforms import checkpoint, custom_gradient, hessian, hvp, jacobian, vjp
from .diff.forward import jvp
from .diff.reverse import grad
from .scope import scope

__version__ = "0.1.0"
newaxis = None
absolute, acos, acosh, asin, asinh, atan, atan2, atanh = abs, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh
true_divide, mod, pow, bitwise_not = divide, remainder, power, invert
rad2deg, deg2rad = degrees, radians
random = random
diff = _methods.diff      # NumPy's function; the package of that name is reached by import only


@public
def input(name: str, shape: Any = (), dtype: Any = "float64") -> Node:
    """An input of the graph: sizes are ints or names, float64 and scalar by default. Raises ShapeError for impossible sizes."""
    return named_input(name, shape, dtype)


@public
def inputs(names: Any, shape: Any = (), dtype: Any = "float64") -> tuple[Node, ...]:
    """Several inputs of one shape and dtype: names as a list, or in one string separated by spaces or commas."""
    if not isinstance(names, (str, list, tuple)):
        raise errors.NodeTypeError(f"names are a list, or one string, not {type(names).__name__}")
    parts = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    return tuple(named_input(n, shape, dtype) for n in parts)


@public
def constant(value: Any, name: str | None = None, *, dtype: Any = None) -> Node:
    """An array (copied) as a node that never changes. Objects, text, dates and complex numbers are a DTypeError."""
    if isinstance(value, Node):
        return value
    _check_name(name)
    array = _checked_array(value, "value")
    if dtype is not None:
        from .dtypes import as_dtype, converted
        array = converted(array, as_dtype(dtype))
    return _make_constant(array, name)


# Loaded when first asked for: name -> (module, attribute; None is the module itself).
_LAZY: dict[str, tuple[str, str | None]] = {
    "draw": ("graphdiff.trace.draw", "draw"), "trace": ("graphdiff.trace.make", "trace"),
    "to_networkx": ("graphdiff.trace.networkx", "to_networkx"), "explain": ("graphdiff.trace.explain", "explain"),
    "nn": ("graphdiff.nn", None), "losses": ("graphdiff.losses", None), "optim": ("graphdiff.optim", None), "data": ("graphdiff.data", None),
    "fit": ("graphdiff.training", "fit"), "rule": ("graphdiff.trace.explain", "rule"), "check_grads": ("graphdiff.api.check_grads", "check_grads"),
}


def _node_in_a_notebook(node: Node, include: Any = None, exclude: Any = None) -> dict[str, str]:
    """A node shows itself as the picture of its graph."""
    from .trace.draw import draw
    return {"text/plain": repr(node), "image/svg+xml": draw(node).svg}


# Here, since nodes know nothing of the pictures made of them.
_node_in_a_notebook.__name__, _node_in_a_notebook.__qualname__ = "_repr_mimebundle_", "Node._repr_mimebundle_"
Node._repr_mimebundle_ = _node_in_a_notebook      # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib
        module, attribute = _LAZY[name]
        loaded = importlib.import_module(module)
        value = loaded if attribute is None else getattr(loaded, attribute)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'graphdiff' has no attribute {name!r}")


# What is imported here to be used here, or stands in the package as every module of it does, is no name of the library's.
_OWN = {"annotations", "Any", "named_input", "public", "trace_of"}
__all__ = sorted({*_LAZY, *[name for name, value in globals().items() if not name.startswith("_") and name not in _OWN
                            and (name in ("errors", "random") or not isinstance(value, type(errors)))]})


def __dir__() -> list[str]:
    return sorted({*__all__, *[name for name in globals() if name.startswith("__")]})
