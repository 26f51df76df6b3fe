"""Elementwise ops of one operand: formula, reference, derivative.

Partials are written in public ops, so that they can be differentiated again, and in forms that stay accurate in the
tails: s(x) s(-x), never s (1 - s).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import INT64
from ..graph.node import Node
from ..graph.opdef import MINUS_ONE
from . import special
from .families import Unary, cast, unary

A_S = "Abramowitz & Stegun, Handbook of Mathematical Functions"


def _b() -> Any:
    from . import binary
    return binary


def where_zero(condition: Any, x: Any) -> Node:
    """x, but 0 where the condition holds."""
    return _b().where(condition, 0.0, x)


def _within(x: Node, bound: float) -> Node:
    """x between -bound and bound, for derivatives that are exactly constant outside: no infinite factor meets a 0, at any order. NaN stays
    NaN in derivatives, too (those of maximum are 0 there)."""
    b = _b()
    return b.where(isnan(x), x, b.minimum(b.maximum(x, -bound), bound))


def _of_inside(t: Node, x: Node) -> Node:
    """t, but 0 where hard_tanh(x) is flat; its corners are."""
    return where_zero(_b().greater_equal(abs(x), 1.0), t)


def _hard_tanh_lower(ctx: Any, node: Node) -> Any:
    """As clip(x, -1, 1), which shares its derivative at the corners."""
    low, high = [ctx.constant(np.asarray(v, node.dtype)) for v in (-1, 1)]
    return ctx.map("minimum", ctx.map("maximum", ctx.near(ctx.raw(node.inputs[0])), low), high)


def _slope(name: str, formula: str, inverse: str, reference: Any, kernels: Any, partial: Any, **facts: Any) -> Unary:
    """The derivative of an inverse function as an op: from x and its own value its derivative neither cancels at 0 nor is inf times 0 at the
    ends of the domain, which that of a quotient of sums does. `kernels` makes it of elementwise kernels, in float32 for float16."""
    def lower(ctx: Any, node: Node) -> Any:
        x = ctx.near(ctx.view(node.inputs[0]))
        y = kernels(ctx.map, x, ctx.constant(np.asarray(1, x.dtype)))
        return ctx.cast(y, node.dtype) if y.dtype is not node.dtype else y
    return unary(name, f"{formula}, the derivative of {inverse}", reference, partial, lower=lower, ulp=4, symbol=inverse + "'", **facts)


negative = unary("negative", "-x", np.negative, MINUS_ONE, kind="any", ulp=0, symbol="-", latex="-{0}")
abs = unary("abs", "|x|", np.abs, lambda x, y: sign(x), kind="any", of_bool=lambda x: x, ulp=0, symbol="|.|",
            latex=r"\left|{0}\right|", analytic=lambda x: np.where(np.real(x) < 0, -x, x))
sign: Unary = unary("sign", "-1, 0 or 1; NaN stays", np.sign, kind="any", zero=True, ulp=0)
square: Unary = unary("square", "x x", np.square, lambda x, y: 2.0 * x, kind="any", of_bool=lambda x: square(cast(x, INT64)), ulp=0,
                      symbol="x²", latex="{0}^2")
relu = unary("relu", "max(x, 0)", lambda x: np.where(x <= 0, np.zeros_like(x), x),
             lambda x, y: cast(_b().greater(x, 0.0), x.dtype), kind="any", picks=True, ulp=0, latex=r"\mathrm{{relu}}({0})",
             analytic=lambda x: np.where(np.real(x) <= 0, 0 * x, x))
hard_tanh = unary("hard_tanh", "x between -1 and 1, else the nearer of the two", lambda x: np.clip(x, -1, 1), ulp=0, lower=_hard_tanh_lower,
                  vjp=lambda g, node, needs: (_of_inside(g, node.inputs[0]),), jvp=lambda ts, node: _of_inside(ts[0], node.inputs[0]),
                  doc="x between -1 and 1, else the nearer of the two. Any shape; integers become float64. Derivative 0 at both corners; NaN stays.",
                  analytic=lambda x: np.where(np.abs(np.real(x)) >= 1, np.sign(np.real(x)), x))
reciprocal = unary("reciprocal", "1 / x", np.reciprocal, lambda x, y: -square(y), ulp=0, domain=((0.3, 3.0),), symbol="1/x",
                   latex="1/{0}")
sqrt = unary("sqrt", "the root >= 0", np.sqrt, lambda x, y: 0.5 / y, ulp=0, domain=((0.1, 4.0),), symbol="√",
             latex=r"\sqrt{{{0}}}")
cbrt = unary("cbrt", "the real cube root", np.cbrt, lambda x, y: 1.0 / (3.0 * square(y)), domain=((0.1, 4.0),),
             analytic=lambda x: np.sign(np.real(x)) * np.power(np.where(np.real(x) < 0, -x, x), 1 / 3))
exp = unary("exp", "e^x", np.exp, lambda x, y: y, latex="e^{{{0}}}")
exp2 = unary("exp2", "2^x", np.exp2, lambda x, y: math.log(2) * y, latex="2^{{{0}}}")
expm1 = unary("expm1", "e^x - 1", np.expm1, lambda x, y: exp(x), latex="e^{{{0}}} - 1")
log = unary("log", "the natural logarithm", np.log, lambda x, y: 1.0 / x, domain=((0.1, 4.0),), symbol="ln", latex=r"\ln {0}")
log2 = unary("log2", "the logarithm to base 2", np.log2, lambda x, y: 1.0 / (math.log(2) * x), domain=((0.1, 4.0),))
log10 = unary("log10", "the logarithm to base 10", np.log10, lambda x, y: 1.0 / (math.log(10) * x), domain=((0.1, 4.0),))
log1p = unary("log1p", "log(1 + x)", np.log1p, lambda x, y: 1.0 / (1.0 + x), domain=((-0.7, 3.0),))
sin = unary("sin", "sine, x in radians", np.sin, lambda x, y: cos(x), latex=r"\sin {0}")
cos: Unary = unary("cos", "cosine, x in radians", np.cos, lambda x, y: -sin(x), latex=r"\cos {0}")
tan = unary("tan", "tangent, x in radians", np.tan, lambda x, y: 1.0 / square(cos(x)), domain=((-1.2, 1.2),), latex=r"\tan {0}")
sinh = unary("sinh", "(e^x - e^-x) / 2", np.sinh, lambda x, y: cosh(x))
cosh: Unary = unary("cosh", "(e^x + e^-x) / 2", np.cosh, lambda x, y: sinh(x))
tanh = unary("tanh", "sinh x / cosh x", np.tanh, lambda x, y: tanh_grad(x), latex=r"\tanh {0}")
tanh_grad: Unary = unary("tanh_grad", "1 - tanh(x)^2, the derivative of tanh", special.tanh_grad, lambda x, y: -2.0 * (y * tanh(x)), ulp=4,
                  symbol="tanh'", analytic=lambda x: 1 / np.square(np.cosh(x)))
arcsin = unary("arcsin", "angle in [-pi/2, pi/2] with sine x", np.arcsin, lambda x, y: arcsin_grad(x), domain=((-0.9, 0.9),))
arccos = unary("arccos", "angle in [0, pi] with cosine x", np.arccos, lambda x, y: -arcsin_grad(x), domain=((-0.9, 0.9),))
arctan = unary("arctan", "angle in [-pi/2, pi/2] with tangent x", np.arctan, lambda x, y: arctan_grad(x))
arcsinh = unary("arcsinh", "log(x + sqrt(x x + 1))", np.arcsinh, lambda x, y: arcsinh_grad(x))
arccosh = unary("arccosh", "log(x + sqrt(x x - 1)), x >= 1", np.arccosh, lambda x, y: arccosh_grad(x), domain=((1.2, 4.0),))
arctanh = unary("arctanh", "log((1 + x) / (1 - x)) / 2", np.arctanh, lambda x, y: arctanh_grad(x), domain=((-0.9, 0.9),))
# x y first: far out it is near 1, where y y would underflow; at infinity y is 0, and so is all.
arcsin_grad: Unary = _slope("arcsin_grad", "1 / sqrt(1 - x x)", "arcsin", lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
                            lambda m, x, one: m("reciprocal", m("sqrt", m("multiply", m("subtract", one, x), m("add", one, x)))),
                            lambda x, y: (x * y) * square(y), domain=((-0.9, 0.9),), analytic=lambda x: 1 / np.sqrt(1 - x * x))
arctan_grad: Unary = _slope("arctan_grad", "1 / (1 + x x)", "arctan", lambda x: 1 / (1 + x * x),
                            lambda m, x, one: m("reciprocal", m("add", one, m("square", x))), lambda x, y: -2.0 * (_b().zmul(y, x) * y))
arcsinh_grad: Unary = _slope("arcsinh_grad", "1 / sqrt(x x + 1)", "arcsinh", lambda x: 1 / np.hypot(x, np.ones_like(x)),
                             lambda m, x, one: m("reciprocal", m("hypot", x, one)), lambda x, y: -(_b().zmul(y, x) * square(y)),
                             analytic=lambda x: 1 / np.sqrt(x * x + 1))
arccosh_grad: Unary = _slope("arccosh_grad", "1 / sqrt(x x - 1), x >= 1", "arccosh", lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
                             lambda m, x, one: m("reciprocal", m("multiply", m("sqrt", m("subtract", x, one)), m("sqrt", m("add", x, one)))),
                             lambda x, y: -(_b().zmul(y, x) * square(y)), domain=((1.2, 4.0),))
arctanh_grad: Unary = _slope("arctanh_grad", "1 / (1 - x x)", "arctanh", lambda x: 1 / ((1 - x) * (1 + x)),
                             lambda m, x, one: m("reciprocal", m("multiply", m("subtract", one, x), m("add", one, x))),
                             lambda x, y: 2.0 * ((x * y) * y), domain=((-0.9, 0.9),), analytic=lambda x: 1 / (1 - x * x))
erf = unary("erf", "2/sqrt(pi) times the integral of exp(-t t) from 0 to x", special.erf,
            lambda x, y: (2.0 / math.sqrt(math.pi)) * exp_neg_square(x), source=f"{A_S}, 7.1.1")
erfc = unary("erfc", "1 - erf(x), accurate in the right tail", special.erfc,
             lambda x, y: (-2.0 / math.sqrt(math.pi)) * exp_neg_square(x), ulp=4, source=f"{A_S}, 7.1.2")
exp_neg_square: Unary = unary("exp_neg_square", "exp(-x x)", special.exp_neg_square, lambda x, y: -2.0 * _within(x, 30.0) * y, ulp=4,
                       analytic=lambda x: np.exp(-x * x))
gaussian = unary("gaussian", "exp(-x x / 2)", special.gaussian, lambda x, y: -_within(x, 60.0) * y, ulp=4, analytic=lambda x: np.exp(-x * x / 2))
lgamma = unary("lgamma", "log |Gamma(x)|", special.lgamma, lambda x, y: digamma(x), domain=((0.3, 4.0),), source=f"{A_S}, 6.1")
digamma: Unary = unary("digamma", "d log Gamma(x) / dx", special.digamma, lambda x, y: _b().polygamma(1, x), domain=((0.3, 4.0),),
                source=f"{A_S}, 6.3")
sinc = unary("sinc", "sin(pi x) / (pi x), 1 at 0", np.sinc, lambda x, y: _b().sinc_derivative(1.0, x))
sigmoid = unary("sigmoid", "1 / (1 + e^-x)", special.sigmoid, lambda x, y: sigmoid_grad(x), symbol="σ", latex=r"\sigma({0})",
                analytic=lambda x: 1 / (1 + np.exp(-x)))
sigmoid_grad: Unary = unary("sigmoid_grad", "s(x) s(-x), the derivative of sigmoid", special.sigmoid_grad,
                     lambda x, y: -(y * tanh(0.5 * x)), ulp=4, symbol="σ'", analytic=lambda x: 0.25 / np.square(np.cosh(x / 2)))
softplus = unary("softplus", "log(1 + e^x)", special.softplus, lambda x, y: sigmoid(x), analytic=lambda x: np.log(1 + np.exp(x)))
log_sigmoid = unary("log_sigmoid", "-log(1 + e^-x)", special.log_sigmoid, lambda x, y: sigmoid(-x),
                    analytic=lambda x: -np.log(1 + np.exp(-x)))


def _silu_slope(x: Node) -> Node:
    # Beyond 746 sigmoid is 0 or 1 in float64, to the last bit.
    x = _within(x, 800.0)
    return sigmoid(x) * (1.0 + sigmoid(-x) * x)


silu = unary("silu", "x sigmoid(x)", lambda x: x * special.sigmoid(x), lambda x, y: _silu_slope(x), ulp=4,
             analytic=lambda x: x / (1 + np.exp(-x)), source="Elfwing, Uchibe, Doya 2018")


def _gelu_grad_partial(x: Node, y: Node) -> Node:
    # Beyond 39 the density is 0 in float64.
    x = _within(x, 60.0)
    return gaussian(x) * (1 / math.sqrt(2 * math.pi)) * (2.0 - square(x))


def _gelu_tanh_partial(x: Node, y: Node) -> Node:
    c = math.sqrt(2 / math.pi)
    x = _within(x, 22.0)        # there u is 795, and sigmoid 0 or 1 from 746 on; float16 holds the cube
    u = (2.0 * c) * (x + 0.044715 * (x * square(x)))
    s = sigmoid(u)
    return s * (1.0 + sigmoid(-u) * (x * ((2.0 * c) * (1.0 + 3 * 0.044715 * square(x)))))


gelu_erf = unary("gelu", "x Phi(x), Phi the normal distribution", special.gelu, lambda x, y: gelu_grad(x), ulp=4,
                 source="Hendrycks, Gimpel 2016")
gelu_grad: Unary = unary("gelu_grad", "Phi(x) + x phi(x), the derivative of gelu", special.gelu_grad, _gelu_grad_partial, ulp=4)
gelu_tanh = unary("gelu_tanh", "x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2", special.gelu_tanh, _gelu_tanh_partial, ulp=8,
                  source="Hendrycks, Gimpel 2016")
entr = unary("entr", "-x log x, 0 at 0, -inf below", special.entr, lambda x, y: -(log(x) + 1.0), domain=((0.1, 4.0),), ulp=4,
             analytic=lambda x: -x * np.log(x))

floor_ = unary("floor", "the largest whole number <= x", np.floor, zero=True, ulp=0)
ceil_ = unary("ceil", "the smallest whole number >= x", np.ceil, zero=True, ulp=0)
rint_ = unary("rint", "the nearest whole number, ties to even", np.rint, zero=True, ulp=0)
trunc_ = unary("trunc", "the whole part", np.trunc, zero=True, ulp=0)

BOOLEAN = "its result is a bool"
isnan = unary("isnan", "x is NaN", np.isnan, kind="ftest", cuts=BOOLEAN)
isinf = unary("isinf", "x is +inf or -inf", np.isinf, kind="ftest", cuts=BOOLEAN)
isfinite = unary("isfinite", "x is a finite number", np.isfinite, kind="ftest", cuts=BOOLEAN)
signbit = unary("signbit", "x has its sign bit set", np.signbit, kind="ftest", cuts=BOOLEAN)
logical_not = unary("logical_not", "x == 0", np.logical_not, kind="test", cuts=BOOLEAN)
invert = unary("invert", "bitwise not", np.invert, kind="int", cuts="it is defined for integers only")
