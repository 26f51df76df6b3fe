"""NumPy references of functions NumPy lacks, from textbook formulas: slow, plain, and independent of the C kernels."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _each(f: Callable[..., float]) -> Callable[..., Any]:
    """A scalar float function applied to every element, in float64, cast back to the operands' dtype."""
    loop = np.vectorize(f, otypes=[np.float64])

    def reference(*xs: Any) -> Any:
        dtype = np.result_type(*xs)
        with np.errstate(all="ignore"):
            return np.asarray(loop(*[np.asarray(x, np.float64) for x in xs])).astype(dtype)
    return reference


def _lgamma(x: float) -> float:
    if x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def _digamma(x: float) -> float:
    """Recurrence up to x >= 10, then Stirling's series (DLMF 5.11.2); reflection below 0 (DLMF 5.5.4)."""
    if x == 0:
        return math.copysign(math.inf, -x) if math.copysign(1, x) > 0 else math.inf
    if math.isnan(x) or x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    if x == math.inf:
        return math.inf
    if x < 0:       # x - round(x) is exact: near a pole the distance to it is all that counts
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    s = 0.0
    while x < 10:
        s -= 1 / x
        x += 1
    z = 1 / (x * x)
    tail = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12))))))
    return s + math.log(x) - 0.5 / x - tail


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def _zeta(s: float, q: float) -> float:
    """sum of (q + k)^-s over k >= 0, q > 0, by Euler-Maclaurin after a recurrence (DLMF 25.11.28)."""
    if q == math.inf:
        return 0.0
    total, y = 0.0, q
    try:
        while y < 20 + s:
            total += y ** -s
            y += 1
    except OverflowError:
        return math.inf
    total += y ** (1 - s) / (s - 1) + 0.5 * y ** -s
    factor = s / 2 * y ** (-s - 1)
    for k, b in enumerate(_BERNOULLI, 1):
        total += b * factor
        factor *= (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2)) / (y * y)
    return total


def _gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf


def _polygamma(n: float, x: float) -> float:
    """(-1)^(n+1) n! zeta(n+1, x), whole n >= 0; for x < 0 the sum over all integers less the terms below x. At a pole the limit
    from either side where they agree (odd n); for even n, whose sides differ, that from the right, as zeta has it."""
    if n == 0:
        return _digamma(x)
    if n < 0 or n != math.floor(n) or math.isnan(x) or x == -math.inf:
        return math.nan
    s, sign = n + 1.0, -1.0 if n % 2 == 0 else 1.0
    if x > 0:
        total = _zeta(s, x)
    elif x == math.floor(x):
        total = math.inf
    else:
        total = _zeta(s, x - math.floor(x)) + sign * _zeta(s, math.ceil(x) - x) - sign * _zeta(s, 1 - x)
    return sign * _gamma(n + 1) * total if total else sign * 0.0


def _sinc_derivative(n: float, x: float) -> float:
    """The n-th derivative of sin(pi x)/(pi x): series near 0, the recurrence y f(n) + n f(n-1) = sin(n)(y) elsewhere."""
    n, y = int(n), math.pi * x
    if abs(y) < n + 1.5:
        total, k = 0.0, (n + 1) // 2
        term = math.inf
        while abs(term) > 1e-19 * abs(total) or k < n + 3:
            term = (-1.0) ** k * math.factorial(2 * k) / math.factorial(2 * k + 1) / math.factorial(2 * k - n) * y ** (2 * k - n)
            total += term
            k += 1
            if term == 0 and k > n + 3:
                break
        return math.pi ** n * total
    if math.isinf(x):
        return 0.0
    turn = math.fmod(x, 2.0)                              # pi x itself is off by more the greater it is
    quarter = round(2 * turn)
    r = math.pi * (turn - quarter / 2)
    waves = (math.sin(r), math.cos(r), -math.sin(r), -math.cos(r))
    f = waves[quarter % 4] / y
    for k in range(1, n + 1):
        f = (waves[(quarter + k) % 4] - k * f) / y
    return math.pi ** n * f


def _gelu_grad(x: float) -> float:
    if abs(x) > 38:
        return 1.0 if x > 0 else -0.0
    return 0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(np.asarray(x) < 0, e, np.ones_like(e)) / (1 + e)


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def log_sigmoid(x: Any) -> Any:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def sigmoid_grad(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return e / ((1 + e) * (1 + e))


def tanh_grad(x: Any) -> Any:
    return 4 * sigmoid_grad(2 * np.asarray(x))


def gelu_tanh(x: Any) -> Any:
    x = np.asarray(x)
    c = x.dtype.type(math.sqrt(2 / math.pi))
    return x * sigmoid(2 * c * (x + x.dtype.type(0.044715) * x * x * x))


def xlogy(x: Any, y: Any) -> Any:
    x, y = np.broadcast_arrays(x, y)
    zero = (x == 0) & ~np.isnan(y)
    with np.errstate(all="ignore"):
        return np.where(zero, np.zeros_like(x), x * np.log(np.where(zero, np.ones_like(y), y)))


def entr(x: Any) -> Any:
    x = np.asarray(x)
    return np.where(x < 0, x.dtype.type(-np.inf), -xlogy(x, x))


def zmul(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        product = np.multiply(x, y)
        return np.where(np.equal(x, 0) & np.isnan(product), np.zeros((), product.dtype), product)     # keeps the sign of a zero


def zmul_either(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        product = np.multiply(x, y)
        return np.where((np.equal(x, 0) | np.equal(y, 0)) & np.isnan(product), np.zeros((), product.dtype), product)


erf = _each(math.erf)
erfc = _each(math.erfc)
lgamma = _each(_lgamma)
digamma = _each(_digamma)
polygamma = _each(_polygamma)
sinc_derivative = _each(_sinc_derivative)
gelu = _each(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)) if x != -math.inf else -0.0)
gelu_grad = _each(_gelu_grad)
exp_neg_square = _each(lambda x: math.exp(-x * x) if abs(x) < 40 else 0.0 if x == x else x)
gaussian = _each(lambda x: math.exp(-0.5 * x * x) if abs(x) < 60 else 0.0 if x == x else x)
