"""Elementwise ops of two operands, and where: formula, reference, both partials.

At ties and corners: the midpoint of the one-sided derivatives (each rule says so where it matters).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import BOOL, TWO_BOOLS
from ..errors import BadValue, DTypeError, ShapeError
from ..graph.build import located, make, public, scalar
from ..graph.node import Node
from ..graph.opdef import MINUS_ONE, ONE, ZERO, OpDef, register
from ..specs import broadcast, check_shape
from . import special
from .families import MISSING, Binary, _infer_binary, binary, lift, misfit, operands, pair
from .unary import isinf, log, logical_not, reciprocal, sigmoid, sign, square, trunc_, unary

add = binary("add", "x + y", np.add, (ONE, ONE), kind="any", ulp=0, symbol="+", latex="{0} + {1}")
subtract = binary("subtract", "x - y", np.subtract, (ONE, MINUS_ONE), kind="any", bools=False, ulp=0, symbol="-", latex="{0} - {1}")
multiply = binary("multiply", "x y", np.multiply, (lambda x, y, z: y, lambda x, y, z: x), kind="any", ulp=0, symbol="×",
                  latex=r"{0} \cdot {1}")
divide = binary("divide", "x / y", np.true_divide, (lambda x, y, z: reciprocal(y), lambda x, y, z: -(z / y)), ulp=0,
                domain=((-2, 2), (0.4, 3)), symbol="÷", latex=r"{0} / {1}")
# Bilinear: forward mode takes zmul(x, t) and not t x, so that where x is 0 an infinite tangent of y is silent too.
zmul = binary("zmul", "x y, but 0 where x is 0", special.zmul, (lambda x, y, z: y, lambda x, y, z: x), linear=(0, 1), ulp=0, symbol="×₀",
              latex=r"{0} \cdot {1}", analytic=np.multiply)
# Of two cotangents (or tangents): whichever is exactly 0 stays 0.
zmul_either = binary("zmul_either", "x y, but 0 where x or y is 0", special.zmul_either, (lambda x, y, z: y, lambda x, y, z: x), linear=(0, 1),
                     ulp=0, symbol="×₀", latex=r"{0} \cdot {1}", analytic=np.multiply)


def _number_of(x: Node) -> float | None:
    """What a constant of one element is."""
    return float(x._attrs[0].reshape(())[()]) if x.op.name == "constant" and x.size == 1 else None


def _power_dx(x: Node, y: Node, z: Node) -> Any:
    """y x^(y-1) by its limit: 0 where y = 0, also at x = 0. Beside x = 0 by zmul, which keeps the slope in y: a `where` would cut it off."""
    p = _number_of(y)
    if p is not None:
        if p == 0:
            return ZERO
        if p == 1:
            return ONE
        return y / z if p == 0.5 else y * (x if p == 2 else power(x, p - 1.0))       # a number: squares and roots are told
    return where(logical_and(equal(x, 0.0), equal(y, 0.0)), 0.0, zmul(y, power(x, y - 1.0)))


def _power_dy(x: Node, y: Node, z: Node) -> Node:
    """x^y log x; 0 at x = 0 for y >= 0, which a number above 0 as x cannot meet."""
    base = _number_of(x)
    if base is not None and base > 0:
        return z * log(x)
    return where(logical_and(equal(x, 0.0), greater_equal(y, 0.0)), 0.0, z * log(x))


_power = binary("power", "x^y", np.power, (_power_dx, _power_dy), domain=((0.3, 2.5), (-2, 2)), symbol="^", latex="{0}^{{{1}}}",
                source="special cases as C99 pow")
INT_POWER = register(OpDef("int_power", "x^y of integers, wrapping; y < 0 is an error", _infer_binary, np.power, arity=2,
                           family="elementwise", cuts="it is defined for integers only", lower="int_power", symbol="^"))


def power(x: Any, y: Any) -> Node:
    """x^y. Integers stay integers; an integer to a negative power is an error (use a float base).

    x**2 is square(x) and x**-1 is reciprocal(x), which are correctly rounded; so is x**0.5.
    """
    if type(y) in (int, float) and isinstance(x, Node):
        if y == 2 and x.dtype is not BOOL and (x.dtype.kind == "f" or type(y) is int):
            return square(x)
        if y == -1 and x.dtype.kind == "f":
            return reciprocal(x)
    x, y = operands(x, y, "power", ("the base", "the exponent"))
    if x.dtype.kind == "f":
        return _power(x, y)
    if x.dtype is BOOL:
        raise located(DTypeError(TWO_BOOLS), "power", (x, y))
    if y.op.name == "constant" and bool(np.any(y._attrs[0] < 0)):
        raise located(BadValue("integers to negative integer powers are not allowed\nhint: make the base a float"), "power", (x, y))
    return make(INT_POWER, (x, y))


def _pick(p: Any, q: Any) -> Any:
    """1 where p holds, else 1/2 where q does, else 0: a tie shares evenly. Both operands' partials of a maximum ask for the same ties."""
    def partial(x: Node, y: Node, z: Node) -> Node:
        return where(p(x, y), scalar(1, x.dtype), where(q(x, y), scalar(0.5, x.dtype), scalar(0, x.dtype)))
    return partial


def _gt(x: Any, y: Any) -> Node: return greater(x, y)
def _lt(x: Any, y: Any) -> Node: return less(x, y)
def _eq(x: Any, y: Any) -> Node: return equal(x, y)


def _real_max(x: Any, y: Any) -> Any:
    return np.where(np.real(x) > np.real(y), x, y)


def _real_min(x: Any, y: Any) -> Any:
    return np.where(np.real(x) < np.real(y), x, y)


maximum = binary("maximum", "the larger; NaN wins; a tie shares the derivative", np.maximum, (_pick(_gt, _eq), _pick(_lt, _eq)),
                 kind="any", picks=True, ulp=0, symbol="max", latex=r"\max({0}, {1})", analytic=_real_max)
minimum = binary("minimum", "the smaller; NaN wins; a tie shares the derivative", np.minimum, (_pick(_lt, _eq), _pick(_gt, _eq)),
                 kind="any", picks=True, ulp=0, symbol="min", latex=r"\min({0}, {1})", analytic=_real_min)


def _or_nan(test: Any) -> Any:
    """The comparison, and also where the other operand is NaN and this one is not."""
    return lambda x, y: logical_or(test(x, y), logical_and(equal(x, x), not_equal(y, y)))


def _swap(test: Any) -> Any:
    return lambda x, y: test(y, x)


_fmax = binary("fmax", "the larger; NaN loses", np.fmax,
               (_pick(_or_nan(_gt), _eq), _pick(_swap(_or_nan(_gt)), _eq)), picks=True, ulp=0, analytic=_real_max)
_fmin = binary("fmin", "the smaller; NaN loses", np.fmin,
               (_pick(_or_nan(_lt), _eq), _pick(_swap(_or_nan(_lt)), _eq)), picks=True, ulp=0, analytic=_real_min)


def fmax(x: Any, y: Any) -> Node:
    """The larger of two; a NaN loses against a number. Integers have no NaN: maximum."""
    x, y = operands(x, y, "fmax")
    return _fmax(x, y) if x.dtype.kind == "f" else maximum(x, y)


def fmin(x: Any, y: Any) -> Node:
    """The smaller of two; a NaN loses against a number. Integers have no NaN: minimum."""
    x, y = operands(x, y, "fmin")
    return _fmin(x, y) if x.dtype.kind == "f" else minimum(x, y)


def _unit(x: Node, h: Node) -> Node:
    """x / h, 0 at the origin."""
    return where(equal(h, 0.0), 0.0, x / h)


hypot = binary("hypot", "sqrt(x x + y y) without overflow", np.hypot,
               (lambda x, y, z: _unit(x, z), lambda x, y, z: _unit(y, z)), analytic=lambda x, y: np.sqrt(x * x + y * y))


def _atan2_dx(y: Node, x: Node, z: Node) -> Node:
    h = hypot(y, x)
    return where(equal(h, 0.0), 0.0, (x / h) / h)


def _atan2_dy(y: Node, x: Node, z: Node) -> Node:
    h = hypot(y, x)
    return where(equal(h, 0.0), 0.0, -((y / h) / h))


def _atan2_analytic(y: Any, x: Any) -> Any:
    real = np.arctan2(np.real(y), np.real(x))
    return real + 1j * np.imag(np.arctan((np.real(x) * y - np.real(y) * x) / (np.real(x) * x + np.real(y) * y)))


arctan2 = binary("arctan2", "the angle of the point (y, x); gradient 0 at the origin", np.arctan2, (_atan2_dx, _atan2_dy),
                 analytic=_atan2_analytic)
copysign = binary("copysign", "|x| with the sign of y", np.copysign,
                  (lambda x, y, z: sign(x) * _b_sign(y), ZERO), ulp=0,
                  analytic=lambda x, y: np.where(np.real(x) < 0, -x, x) * np.copysign(1, np.real(y)))


def _b_sign(y: Node) -> Node:
    return _copysign_one(y)


def _copysign_one(y: Node) -> Node:
    return copysign(1.0, y)


logaddexp = binary("logaddexp", "log(e^x + e^y)", np.logaddexp, (lambda x, y, z: _share(x, y, 1), lambda x, y, z: _share(x, y, -1)), ulp=4,
                   analytic=lambda x, y: np.log(np.exp(x) + np.exp(y)))


def _share(x: Node, y: Node, sign: int) -> Node:
    """sigmoid(x - y), or of y - x; two equal infinities share evenly, 0 when both are -inf (nothing flows through log 0). Both partials ask
    for the same tests and the same difference."""
    alike = equal(x, y)
    d = where(logical_and(alike, isinf(x)), 0.0, x - y)        # two numbers alike are a point like any other, with a slope
    return where(logical_and(alike, equal(x, -np.inf)), 0.0, sigmoid(d if sign > 0 else -d))


xlogy = binary("xlogy", "x log y, 0 where x is 0", special.xlogy, (lambda x, y, z: log(y), lambda x, y, z: x / y), ulp=4,
               domain=((-2, 2), (0.2, 3)), analytic=lambda x, y: x * np.log(y))
_poly: Binary = binary("polygamma", "the x-th derivative of digamma, at y", special.polygamma,
               (ZERO, lambda n, x, z: _poly(n + 1.0, x)), domain=((1, 1), (0.4, 4)), ulp=16, source="DLMF 25.11.28")
sinc_derivative: Binary = binary("sinc_derivative", "the x-th derivative of sinc, at y", special.sinc_derivative,
                         (ZERO, lambda n, x, z: sinc_derivative(n + 1.0, x)), domain=((1, 1), (-2, 2)), ulp=64)


@public
def polygamma(n: Any, x: Any) -> Node:
    """The n-th derivative of digamma at x: n a whole number >= 0 (n = 0 is digamma itself).

    At the poles 0, -1, -2 ... it is inf for odd n and -inf for even n > 0 (the limit from the right); at -inf, NaN.
    """
    orders = np.asarray(n._attrs[0] if isinstance(n, Node) and n.op.name == "constant" else 0 if isinstance(n, Node) else n)
    if orders.dtype.kind not in "biuf" or not np.all((orders >= 0) & (orders == np.floor(orders))):
        raise ShapeError(f"n must be whole numbers, at least 0, not {n!r}")
    return _poly(n, x)


_fmod = binary("fmod", "the remainder with the sign of x", np.fmod, (ONE, lambda x, y, z: -trunc_(x / y)), ulp=0,
              domain=((0.3, 2), (0.7, 0.9)), analytic=lambda x, y: x - y * np.trunc(np.real(x) / np.real(y)))
remainder = binary("remainder", "x - y floor(x / y), the sign of y", np.remainder,
                   (ONE, lambda x, y, z: -floor_divide(x, y)), kind="any", bools=False, ulp=0, domain=((0.3, 2), (0.7, 0.9)),
                   symbol="%", analytic=lambda x, y: x - y * np.floor(np.real(x) / np.real(y)))
@public
def fmod(x: Any, y: Any) -> Node:
    """The remainder of x / y rounded towards 0: it has the sign of x. Integers stay integers; by 0 they give 0."""
    x, y = pair(x, y)
    if x.dtype.kind == "f":
        return _fmod(x, y)
    if x.dtype is BOOL:
        raise DTypeError(TWO_BOOLS)
    r = remainder(x, y)
    return where(logical_and(not_equal(r, 0), not_equal(less(x, 0), less(y, 0))), subtract(r, y), r)


floor_divide: Binary = binary("floor_divide", "floor(x / y)", np.floor_divide, kind="any", bools=False, zero=True, ulp=0, symbol="//")

_WHOLE = "it is defined for integers only"
bitwise_and = binary("bitwise_and", "bits set in both", np.bitwise_and, kind="int", cuts=_WHOLE, symbol="&")
bitwise_or = binary("bitwise_or", "bits set in either", np.bitwise_or, kind="int", cuts=_WHOLE, symbol="|")
bitwise_xor = binary("bitwise_xor", "bits set in one", np.bitwise_xor, kind="int", cuts=_WHOLE, symbol="^")
left_shift = binary("left_shift", "x 2^y, wrapping", np.left_shift, kind="int", bools=False, cuts=_WHOLE, symbol="<<")
right_shift = binary("right_shift", "floor(x / 2^y)", np.right_shift, kind="int", bools=False, cuts=_WHOLE, symbol=">>")

_BOOLEAN = "its result is a bool"
equal = binary("equal", "x = y", np.equal, kind="test", cuts=_BOOLEAN, symbol="=")
not_equal = binary("not_equal", "x differs from y", np.not_equal, kind="test", cuts=_BOOLEAN, symbol="≠")
less = binary("less", "x < y", np.less, kind="test", cuts=_BOOLEAN, symbol="<")
less_equal = binary("less_equal", "x <= y", np.less_equal, kind="test", cuts=_BOOLEAN, symbol="≤")
greater = binary("greater", "x > y", np.greater, kind="test", cuts=_BOOLEAN, symbol=">")
greater_equal = binary("greater_equal", "x >= y", np.greater_equal, kind="test", cuts=_BOOLEAN, symbol="≥")
logical_and = binary("logical_and", "both are nonzero", np.logical_and, kind="test", cuts=_BOOLEAN, symbol="∧")
logical_or = binary("logical_or", "one is nonzero", np.logical_or, kind="test", cuts=_BOOLEAN, symbol="∨")
logical_xor = binary("logical_xor", "exactly one is nonzero", np.logical_xor, kind="test", cuts=_BOOLEAN, symbol="⊻")


def _where_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return check_shape(broadcast(*[x.shape for x in inputs]), inputs[1].dtype), inputs[1].dtype


def _where_vjp(g: Node, node: Node, needs: Any) -> Any:
    c = node.inputs[0]
    return (None, where(c, g, 0.0) if needs[1] else None, where(c, 0.0, g) if needs[2] else None)


def _where_jvp(tangents: Any, node: Node) -> Node:
    _, tx, ty = tangents
    return where(node.inputs[0], 0.0 if tx is None else tx, 0.0 if ty is None else ty)


WHERE = register(OpDef("where", "x where the condition holds, else y", _where_infer, np.where, arity=3, family="elementwise",
                       vjp=_where_vjp, jvp=_where_jvp, symbol="where", ulp=0))


def where(condition: Any, x: Any = MISSING, y: Any = MISSING) -> Node:
    """x where the condition is true (nonzero), else y; the branch not taken never touches the derivative.

    Shapes broadcast. The cotangent of each branch is the incoming one, 0 where the other branch is taken.
    """
    if y is MISSING:
        raise misfit("where", 3, 1 if x is MISSING else 2)
    c = lift(condition, "where")
    if c.dtype is not BOOL:
        c = not_equal(c, 0)
    x, y = operands(x, y, "where", ("x", "y"))
    return make(WHERE, (c, x, y))


def _three(condition: Any, x: Any, y: Any) -> Any: ...


where.__wrapped__ = _three      # type: ignore[attr-defined]     # what signatures and help show

__all__ = ["logical_not", "unary"]
