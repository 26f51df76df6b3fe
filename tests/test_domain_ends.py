"""First and second derivatives at the ends of domains, beside them, at 0 and far out: against closed forms by mpmath.

At an end of the domain the limit from inside counts; at infinity the limit.
"""
import mpmath
import numpy as np
import pytest
from counting import checked
from mpmath import mpf

import graphdiff as gd

FINE = (0.0, 1e-310, 1e-300, 1e-160, 1e-20, 1e-8, 1e-4, 0.3, 0.5, 0.9, 1 - 2.0**-30, 1 - 2.0**-53)
FAR = (1.0, 1 + 2.0**-52, 1 + 2.0**-30, 1.3, 2.0, 30.0, 1e4, 1e8, 1e17, 1e50, 1e100, 1e150, 1e160, 1e200, 1e300, 1.7e308, np.inf)
BOTH = tuple(s * v for s in (1, -1) for v in (*FINE, *FAR))
UNIT = tuple(s * v for s in (1, -1) for v in (*FINE, 1.0))
WAVES = tuple(s * v for s in (1, -1) for v in (1e-300, 1e-8, 0.3, 1.0, 5.0, 100.0, 709.7, 700.0, 1e4, 1e8, 1e15, 2.0**51 + 0.5, 1e17, 1e100, 1e300))


def root(x):
    return mpmath.sqrt((1 - x) * (1 + x))


def far(x):
    return mpmath.sqrt(1 + x * x)


def near(x):
    return mpmath.sqrt((x - 1) * (x + 1))


def wave(x):
    """sin(pi x), cos(pi x), pi x."""
    return mpmath.sinpi(x), mpmath.cospi(x), mpmath.pi * x


def sinc_slope(x):
    s, c, y = wave(x)
    return mpmath.pi * (c / y - s / y**2) if abs(x) > 1e-6 else -mpmath.pi**2 * x / 3


def sinc_bend(x):
    s, c, y = wave(x)
    return mpmath.pi**2 * (2 * s / y**3 - 2 * c / y**2 - s / y) if abs(x) > 1e-6 else mpmath.pi**2 * (-mpf(1) / 3 + (mpmath.pi * x)**2 / 10)


# name: first derivative, second, arguments
CASES = {
    "arcsin": (lambda x: 1 / root(x), lambda x: x / root(x)**3, UNIT),
    "arccos": (lambda x: -1 / root(x), lambda x: -x / root(x)**3, UNIT),
    "arctanh": (lambda x: 1 / root(x)**2, lambda x: 2 * x / root(x)**4, UNIT),
    "arccosh": (lambda x: 1 / near(x), lambda x: -x / near(x)**3, FAR),
    "arctan": (lambda x: 1 / far(x)**2, lambda x: -2 * x / far(x)**4, BOTH),
    "arcsinh": (lambda x: 1 / far(x), lambda x: -x / far(x)**3, BOTH),
    "sinc": (sinc_slope, sinc_bend, WAVES),
}


def limit(f, x):
    """f(x), rounded; beside an end of the domain from inside, far out for infinity."""
    end = abs(x) == 1
    with mpmath.workdps(1600 if end else 400):
        v = mpf(10)**400 * np.sign(x) if np.isinf(x) else mpf(x)
        if end:
            v *= 1 - mpf(10)**-700 if f not in CASES["arccosh"] else 1 + mpf(10)**-700
        return float(f(v))


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives(name):
    first, second, points = CASES[name]
    x = gd.input("x", (len(points),))
    y, one = getattr(gd, name)(x), np.ones(len(points))
    g, t = gd.grad(y, x, cotangent=one), gd.jvp(y, x, one)
    outputs = gd.function([x], [g, t, gd.grad(g, x, cotangent=one), gd.jvp(g, x, one), gd.grad(t, x, cotangent=one), gd.jvp(t, x, one)])(points)
    for values, f in zip(outputs, (first, first, *[second] * 4), strict=True):
        for p, v in zip(points, values, strict=True):
            want = limit(f, p)
            # sinc: near a root of its derivative an error of 8 eps times the greatest term
            slack = 2e-15 * min(10, 10 / abs(p)) if name == "sinc" else 0
            assert v == want or abs(v - want) <= 4e-15 * abs(want) + slack + 2.3e-308, (p, v, want)
            checked()


SMOOTH = ("silu", "gelu", "gelu_tanh", "erf", "erfc", "softplus", "sigmoid", "log_sigmoid", "tanh", "exp", "sin", "lgamma", "sinc", *CASES)


@pytest.mark.parametrize("name", SMOOTH)
def test_nan_stays_nan_in_every_derivative(name):
    """Also where the rule keeps its argument inside bounds, beyond which a derivative is constant."""
    x = gd.input("x", (3,))
    y, orders = getattr(gd, name)(x), []
    for _ in range(3):
        y = gd.grad(gd.sum(y), x)
        orders.append(y)
    for passes in (None, ()):
        for got in gd.function([x], orders, passes=passes)([np.nan, 0.5 if name != "arccosh" else 1.5, np.nan]):
            assert np.isnan(got[[0, 2]]).all() and not np.isnan(got[1])
            checked()
