"""Kinks, zeros and saturation: the values of the numerical contract."""
from __future__ import annotations

import math

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

INF, NAN = math.inf, math.nan


def slope(build, *at, order=1, which=0):
    """A derivative of a scalar function at a point, in both modes, which must agree."""
    xs = [gd.input(f"x{i}") for i in range(len(at))]
    y = build(*xs)
    for _ in range(order - 1):
        y = gd.grad(y, xs[which], unconnected="zero")
    reverse = gd.grad(y, xs[which], unconnected="zero")
    forward = gd.jvp(y, xs[which], 1.0)
    r, f = gd.function(xs, [reverse, forward])(*at)
    assert float(r) == float(f) or (math.isnan(r) and math.isnan(f)), (float(r), float(f))
    checked()
    return float(r)


@pytest.mark.parametrize(("build", "at", "want"), [
    (gd.abs, (0.0,), 0.0), (gd.sign, (0.0,), 0.0), (gd.relu, (0.0,), 0.0), (gd.relu, (-0.0,), 0.0), (gd.hard_tanh, (1.0,), 0.0),
    (gd.hard_tanh, (-1.0,), 0.0), (gd.leaky_relu, (0.0,), 0.01), (gd.elu, (0.0,), 1.0), (gd.floor, (0.3,), 0.0), (gd.ceil, (1.0,), 0.0),
    (gd.trunc, (2.5,), 0.0), (gd.rint, (0.5,), 0.0), (lambda x: gd.clip(x, -1.0, 1.0), (1.0,), 0.5), (lambda x: gd.clip(x, -1.0, 1.0), (-1.0,), 0.5),
    (lambda x: gd.clip(x, -1.0, 1.0), (0.3,), 1.0), (gd.sqrt, (0.0,), INF), (gd.sinc, (0.0,), 0.0), (gd.entr, (0.0,), INF),
    (gd.softplus, (1000.0,), 1.0), (gd.softplus, (-1000.0,), 0.0), (gd.sigmoid, (800.0,), 0.0), (gd.gelu, (INF,), 1.0), (gd.gelu, (-INF,), 0.0),
])
def test_kinks_and_ends(build, at, want):
    assert slope(build, *at) == want


@pytest.mark.parametrize("f", [gd.maximum, gd.minimum])
def test_ties_share(f):
    assert [slope(f, 2.0, 2.0, which=k) for k in (0, 1)] == [0.5, 0.5]
    assert slope(lambda x: f(x, 0.0), 0.0) == 0.5


@pytest.mark.parametrize(("f", "values", "want"), [
    (gd.max, [3.0, 3.0, 1.0], [0.5, 0.5, 0.0]), (gd.min, [1.0, 2.0, 1.0, 1.0], [1 / 3, 0.0, 1 / 3, 1 / 3]), (gd.norm, [0.0, 0.0], [0.0, 0.0]),
    (gd.std, [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]), (gd.prod, [2.0, 3.0, 0.0], [0.0, 0.0, 6.0]), (gd.prod, [2.0, 0.0, 0.0, 3.0], [0.0] * 4),
    (gd.logsumexp, [-INF, -INF], [0.0, 0.0]), (gd.median, [4.0, 1.0, 3.0, 10.0], [0.5, 0.0, 0.5, 0.0]),
])
def test_reductions(f, values, want):
    x = gd.input("x", (len(values),))
    got = gd.evaluate(gd.grad(f(x), x), {x: values})
    np.testing.assert_allclose(got, want, rtol=1e-15)
    second = gd.evaluate(gd.hessian(f(x), x), {x: values})
    assert not np.isnan(second).any()
    checked(2)


@pytest.mark.parametrize(("x", "y", "dx", "dy"), [
    (0.0, 2.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, 0.5, INF, 0.0), (0.0, 0.0, 0.0, 0.0), (2.0, 3.0, 12.0, 8 * math.log(2)),
])
def test_powers(x, y, dx, dy):
    assert slope(gd.power, x, y, which=0) == pytest.approx(dx)
    assert slope(gd.power, x, y, which=1) == pytest.approx(dy)


def test_power_of_a_negative_base():
    assert slope(lambda x: x**3, -2.0) == 12.0
    assert slope(lambda x: x ** gd.constant(3.0), -2.0) == 12.0
    assert slope(lambda x: x**2.0, 0.0, order=2) == 2.0


def test_origin_of_two_variables():
    for f in (gd.hypot, gd.arctan2):
        assert [slope(f, 0.0, 0.0, which=k) for k in (0, 1)] == [0.0, 0.0]


def test_strong_zero():
    """The branch not taken, and a factor that is exactly zero, never poison a derivative."""
    assert slope(lambda x: gd.where(x > 0.0, gd.sqrt(x), 0.0), -1.0) == 0.0
    assert slope(lambda x: gd.where(x > 0.0, gd.log(x), x), 0.0) == 1.0
    v = gd.input("v")         # reverse mode only: forward mode meets the true tangent, +inf, before the zero
    assert float(gd.evaluate(gd.grad(gd.sqrt(v) ** 2, v), {v: 0.0})) == 0.0
    assert slope(lambda x: (gd.sqrt(x) - 1.0) ** 2, 1.0, order=2) == 0.5
    x = gd.input("x", (4,))
    y = gd.sum((1.0 / x)[1:])
    np.testing.assert_array_equal(gd.evaluate(gd.grad(y, x), {x: [0.0, 1.0, 2.0, 4.0]}), [0.0, -1.0, -0.25, -0.0625])


def test_second_derivatives_in_the_tails():
    assert slope(gd.softplus, 37.42994775023705, order=2) == pytest.approx(5.551115123125775e-17, rel=1e-14)
    assert slope(gd.tanh, 1e-300, order=2) == -2e-300
    assert slope(gd.sinc, 0.0, order=2) == pytest.approx(-math.pi**2 / 3, rel=1e-14)


def test_pooling_tie_goes_to_the_first():
    x = gd.input("x", (1, 1, 2, 2))
    g = gd.evaluate(gd.grad(gd.sum(gd.max_pool(x, 2)), x), {x: np.zeros((1, 1, 2, 2))})
    np.testing.assert_array_equal(g[0, 0], [[1, 0], [0, 0]])


@pytest.mark.parametrize("build", [lambda x: x > 0.0, lambda x: gd.argmax(x), lambda x: x.astype("int64"), lambda x: gd.stop_gradient(x)])
def test_cut_paths_are_named(build):
    x = gd.input("x", (3,))
    y = gd.sum(build(x).astype("float64"))
    with pytest.raises(gd.errors.GradientError, match=r"cuts|cut by"):
        gd.grad(y, x)
    assert not gd.evaluate(gd.grad(y, x, unconnected="zero"), {x: [1.0, 2.0, 3.0]}).any()
    checked(2)


def test_nan_in_extremes():
    x = gd.input("x", (3,))
    values = [1.0, NAN, 3.0]
    got = gd.function([x], [gd.max(x), gd.min(x), gd.argmax(x), gd.fmax(x, 0.0)])(values)
    assert math.isnan(got[0]) and math.isnan(got[1]) and int(got[2]) == 1
    np.testing.assert_array_equal(got[3], [1.0, 0.0, 3.0])


def test_rows_of_minus_infinity():
    x = gd.input("x", (2, 2))
    values = [[-INF, -INF], [-INF, 0.0]]
    s, logs, e, g = gd.function([x], [gd.softmax(x), gd.log_softmax(x), gd.logsumexp(x, axis=1), gd.grad(gd.sum(gd.softmax(x) * x[:, ::-1]), x)])(values)
    np.testing.assert_array_equal(s, [[0, 0], [0, 1]])
    np.testing.assert_array_equal(logs, [[-INF, -INF], [-INF, 0]])
    np.testing.assert_array_equal(e, [-INF, 0])
    del g
    checked(3)


def test_float32_counts():
    n = 2**24 + 4096
    ones = np.ones((n, 2), np.float32)
    x = gd.input("x", ones.shape, "float32")
    f = gd.function([x], [gd.sum(x, axis=0), gd.sum(x), gd.sum(x, axis=1)], threads=1)
    columns, total, rows = f(ones)
    np.testing.assert_array_equal(columns, [n, n])
    assert float(total) == float(np.float32(2 * n)) and rows[0] == 2
    checked(3)


def test_a_clip_between_equal_bounds_is_constant_in_x():
    x, lo, hi = gd.input("x", (6,)), gd.input("lo"), gd.input("hi")
    a = np.array([0.0, 1.0, 1.0 + 2.0**-52, 2.0, 3.0, np.nan])
    for y, at in ((gd.clip(x, 1, 1), {}), (gd.clip(x, 1.0, np.float64(1)), {}), (gd.clip(x, lo, hi), {lo: 1.0, hi: 1.0}), (x.clip(1, 1), {}),
                  (gd.clip(x, np.ones(6), 1.0), {}), (gd.clip(x, lo, lo), {lo: 1.0})):
        g = gd.grad(gd.sum(y), x)
        for d in (g, gd.jvp(y, x, gd.ones_like(x)), gd.grad(gd.sum(g), x, unconnected="zero")):
            np.testing.assert_array_equal(gd.evaluate(d, {x: a, **at}), np.zeros(6))
        np.testing.assert_array_equal(gd.evaluate(y, {x: a, **at}), np.clip(a, 1, 1))
        checked(4)
    for y, at in ((gd.clip(x, 1, 2), {}), (gd.clip(x, lo, hi), {lo: 1.0, hi: 2.0}), (gd.clip(x, [1.0] * 6, 2), {})):
        np.testing.assert_array_equal(gd.evaluate(gd.grad(gd.sum(y), x), {x: a, **at})[:5], [0, 0.5, 1, 0.5, 0])
    mixed = gd.clip(x, np.array([1.0, 1, 1, 2, 2, 1]), 2.0)
    np.testing.assert_array_equal(gd.evaluate(gd.grad(gd.sum(mixed), x), {x: a})[:5], [0, 0.5, 1, 0, 0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "selu", "celu", "gelu", "gelu by tanh", "silu", "sigmoid", "softplus", "log_sigmoid",
                                  "hard_tanh", "tanh", "erf", "erfc", "gaussian", "exp"])
def test_derivatives_far_out_are_no_nan(name, dtype):
    """Up to the third, in both modes: an infinite x beside a tail that is 0."""
    f = (lambda x: gd.gelu(x, approximate=True)) if name == "gelu by tanh" else getattr(gd, name)
    with np.errstate(all="ignore"):
        a = np.array([-np.inf, -1e300, -1e30, -6e4, -900.0, -90.0, -0.0, 0.0, 90.0, 900.0, 6e4, 1e30, 1e300, np.inf]).astype(dtype)
    x = gd.input("x", a.shape, dtype)
    y = f(x)
    first = gd.grad(gd.sum(y), x)
    second = gd.grad(gd.sum(first), x, unconnected="zero")
    one = gd.ones_like(x)
    for d in (first, second, gd.grad(gd.sum(second), x, unconnected="zero"), gd.jvp(gd.jvp(y, x, one), x, one)):
        value = gd.evaluate(d, {x: a})
        assert not np.isnan(value).any()
        assert d is first or name == "exp" or (np.abs(value[np.abs(a) > 80]) <= 1e-30).all()
        checked(2)


PICKED = {"relu": lambda x: gd.sqrt(gd.relu(x)), "maximum": lambda x: gd.log(gd.maximum(x, 0)), "minimum": lambda x: gd.sqrt(-gd.minimum(-x, 0)),
          "fmax": lambda x: gd.fmax(x, 0) ** 0.5, "fmin": lambda x: 1 / gd.fmin(-x, 0),
          "clip": lambda x: gd.arccos(gd.clip(2.5 - x, -1, 1)), "quotient": lambda x: gd.relu(x) / gd.relu(x + 1),
          "xlogy": lambda x: gd.xlogy(gd.relu(x), gd.relu(x))}


@pytest.mark.parametrize("name", PICKED)
def test_where_a_choice_has_slope_0_an_infinite_cotangent_is_silent(name):
    """In both modes, and in second derivatives: what is chosen does not change with x there."""
    x = gd.input("x", (2,))
    y = gd.sum(PICKED[name](x))
    got = gd.evaluate([gd.grad(y, x), gd.jvp(y, x, np.ones(2)), gd.hessian(y, x), gd.hvp(y, x, np.ones(2))], {x: np.array([-1.5, -2.0])})
    for value in got:
        assert not np.any(value)
        checked()


UNTAKEN = {"x log x": lambda x: x * gd.log(x), "x sqrt x": lambda x: x * gd.sqrt(x), "log log": lambda x: gd.log(gd.log(x)),
           "sin 1/x": lambda x: x * gd.sin(1 / x),
           "exp sqrt": lambda x: gd.exp(gd.sqrt(x)), "quotient": lambda x: gd.tanh(1 / x) / x, "arccosh": lambda x: gd.arccosh(x) * x,
           "log^2": lambda x: gd.square(gd.log(x))}


@pytest.mark.parametrize("name", UNTAKEN)
def test_the_branch_not_taken_is_silent_in_higher_derivatives(name):
    """Reverse over reverse (over reverse), where the branch's own derivatives are infinite or NaN."""
    x = gd.input("x", (3,))
    y = gd.sum(gd.where(x > 0.1, UNTAKEN[name](x), x ** 3))
    first = gd.grad(y, x)
    second = gd.grad(gd.sum(first), x)
    third = gd.grad(gd.sum(second), x)
    a = np.array([0.0, -1.0, 2.0])
    at = {x: a}
    got = gd.evaluate([first, second, third], at)
    np.testing.assert_array_equal(got[0][:2], [0, 3])
    np.testing.assert_array_equal(got[1][:2], [0, -6])
    np.testing.assert_array_equal(got[2][:2], [6, 6])
    along = gd.evaluate([gd.hvp(y, x, np.ones(3)), gd.jvp(second, x, np.ones(3))], at)
    np.testing.assert_allclose(got[1], along[0], rtol=1e-13)
    np.testing.assert_allclose(got[2], along[1], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gd.evaluate(gd.hessian(y, x), at), np.diag(got[1]), rtol=1e-13)
    checked(6)


CHOSEN = {"where": lambda u: gd.where(u > -5, u, 0.0), "leaky_relu": gd.leaky_relu, "elu": gd.elu, "selu": gd.selu, "nan_to_num": gd.nan_to_num,
          "hard_tanh": lambda u: 10 * gd.hard_tanh(u / 10), "logaddexp": lambda u: gd.logaddexp(u, -2.0), "arctan2": lambda u: gd.arctan2(u, 2.0)}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_cotangent_that_happens_to_be_0_behind_a_choice_still_has_a_slope(name):
    """A residual of exactly 0, as of a fit that has arrived, in derivatives to fourth order of its square: as in forward mode, and as beside it."""
    for inner, at in ((gd.sqrt, 1.0), (gd.log, 1.5), (lambda x: x ** 3, 1.0)):
        x = gd.input("x")
        u = CHOSEN[name](inner(x))
        y = gd.square(u - float(gd.evaluate(u, {x: at})))
        reverse, forward = [gd.grad(y, x)], [gd.jvp(y, x, 1.0)]
        for _ in range(3):
            reverse.append(gd.grad(reverse[-1], x))
            forward.append(gd.jvp(forward[-1], x, 1.0))
        f = gd.function([x], reverse)
        assert f(at)[0] == 0
        np.testing.assert_allclose(f(at), gd.evaluate(forward, {x: at}), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(f(at), f(at * (1 + 1e-9)), rtol=1e-6, atol=1e-6)
        checked(3)


def test_powers_to_the_0_and_ties_of_logaddexp_have_a_slope():
    """y x^(y-1) where y is 0, and e^x / (e^x + e^y) where x is y, are points of smooth functions: derivatives to fourth order, in both modes."""
    w, t, x = gd.input("w", (2,)), gd.input("t"), gd.input("x")
    np.testing.assert_allclose(gd.evaluate(gd.hessian(w[0] ** w[1], w), {w: [2.0, 0.0]}), [[0, 0.5], [0.5, np.log(2) ** 2]], rtol=1e-14)
    np.testing.assert_array_equal(gd.evaluate(gd.hessian(w[0] ** w[1], w), {w: [0.0, 0.0]}), np.zeros((2, 2)))
    for y, v, at, want in ((t ** t, t, 1.0, [1, 2, 3, 8]), ((2 + t) ** t, t, 0.0, [np.log(2), np.log(2) ** 2 + 1]),
                           (gd.logaddexp(x, 0.5), x, 0.5, [0.5, 0.25, 0, -0.125]), (gd.logaddexp(0.5, 2 * x), x, 0.25, [1, 1, 0, -2])):
        reverse, forward = [gd.grad(y, v)], [gd.jvp(y, v, 1.0)]
        for _ in want[1:]:
            reverse.append(gd.grad(reverse[-1], v))
            forward.append(gd.jvp(forward[-1], v, 1.0))
        np.testing.assert_allclose(gd.evaluate(reverse, {v: at}), want, rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(gd.evaluate(forward, {v: at}), want, rtol=1e-14, atol=1e-15)
        checked(2)
    z = gd.input("z")
    y = gd.logaddexp(x, z)
    first = gd.grad(y, [x, z])
    for end, share in ((np.inf, 0.5), (-np.inf, 0.0)):
        assert [float(d) for d in gd.evaluate([*first, gd.grad(first[0], x)], {x: end, z: end})] == [share, share, 0]


@pytest.mark.parametrize("name", ["relu", "maximum", "fmax", "clip", "leaky_relu"])
def test_what_is_not_chosen_is_silent_in_both_modes_and_beside_others(name):
    """An infinite slope where nothing is chosen, of one element among others that a product mixes: second derivatives of all four kinds."""
    f = {"relu": gd.relu, "maximum": lambda u: gd.maximum(u, 0), "fmax": lambda u: gd.fmax(u, 0), "clip": lambda u: gd.clip(u, 0, 9),
         "leaky_relu": lambda u: gd.leaky_relu(u, 0.0)}[name]
    x, one = gd.input("x", (2,)), np.ones(2)
    y = gd.sum(gd.sin(np.array([[1, 0.5], [0.3, -0.7]]) @ f(gd.sqrt(x) - 1)))
    reverse, forward = gd.grad(y, x), gd.jvp(y, x, one)
    seconds = [gd.grad(gd.sum(reverse), x), gd.jvp(reverse, x, one), gd.grad(forward, x), gd.jvp(forward, x, one)]
    got = gd.evaluate([reverse, forward, *seconds], {x: [0.0, 4.0]})
    r = (np.sqrt(4.0) - 1) * np.array([0.5, -0.7])
    first = (np.cos(r) @ np.array([0.5, -0.7])) / 4
    second = -np.sin(r) @ np.array([0.25, 0.49]) / 16 - first / 8
    np.testing.assert_allclose(got[0], [0, first], rtol=1e-14)
    np.testing.assert_allclose(got[1], first, rtol=1e-14)
    for value in got[2:5]:
        np.testing.assert_allclose(value, [0, second], rtol=1e-13)
    np.testing.assert_allclose(got[5], second, rtol=1e-13)
    checked(6)


LEFT_OUT = {
    "slice": lambda y: y[1:], "take": lambda y: gd.take(y, [1, 2]), "boolean": lambda y: y[np.array([False, True, True])],
    "split": lambda y: gd.split(y, [1])[1], "pad": lambda y: gd.pad(y, 1)[2:], "roll": lambda y: gd.roll(y, -1)[:2],
    "flip": lambda y: y[::-1][:2], "concatenate": lambda y: gd.concatenate([y, y])[1:3], "segment": lambda y: gd.segment_sum(y, [0, 1, 1], 2)[1],
    "along": lambda y: gd.take_along_axis(y, np.array([2, 1]), 0), "sort": lambda y: gd.sort(y)[1:], "top_k": lambda y: gd.top_k(y, 2),
    "at": lambda y: y.at[0].set(0.0), "where=": lambda y: gd.sum(y, where=np.array([False, True, True])), "diff": lambda y: gd.diff(y)[1:],
    "relu": gd.relu, "clip": lambda y: gd.clip(y, -1.0, 9.0), "maximum": lambda y: gd.maximum(y, 0.0), "minimum": lambda y: gd.minimum(-y, 5.0),
    "max": gd.max, "median": gd.median,
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_result_leaves_out_is_silent_in_second_derivatives(name):
    """log(x) / x and its derivatives are infinite at 0, which the result does not read: reverse over reverse says what forward over
    reverse says, and what is left out has no part in it."""
    at = np.array([0.0, 1.3, 2.0])
    x = gd.input("x", (3,))
    for f in (lambda x: gd.log(x) / x, lambda x: gd.sqrt(x) * gd.log(x), lambda x: gd.exp(1 / x) * -1e-9, lambda x: 1 / x ** 3):
        if name in ("sort", "top_k", "median", "relu", "clip", "maximum", "minimum", "max") and not np.isneginf(gd.evaluate(f(x), {x: at})[0]):
            continue                    # where the order decides, 0 has to be the least
        s = gd.sum(LEFT_OUT[name](f(x)))
        v = np.array([1.0, -0.5, 2.0])
        d, h, hv, push = gd.function([x], [gd.grad(s, x), gd.hessian(s, x), gd.hvp(s, x, v), gd.jvp(s, x, v)])(at)
        third = gd.evaluate(gd.grad(gd.sum(gd.hessian(s, x) * np.outer(v, v)), x), {x: at})
        assert d[0] == 0 and (h[0] == 0).all() and (h[:, 0] == 0).all() and np.isfinite(h).all() and np.isfinite(third).all() and third[0] == 0
        np.testing.assert_allclose(h @ v, hv, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(d @ v, push, rtol=1e-12, atol=1e-12)
        checked(4)


SLICES = {"softmax": lambda y: gd.softmax(y), "log_softmax": lambda y: gd.log_softmax(y), "temperature": lambda y: gd.softmax(y, temperature=0.5),
          "logsumexp": lambda y: gd.logsumexp(y, axis=-1, keepdims=True), "prod": lambda y: gd.prod(y, axis=-1, keepdims=True),
          "cumprod": lambda y: gd.cumprod(y, axis=-1),
          "cross entropy": lambda y: gd.losses.cross_entropy(y, np.array([0, 2, 1]), reduction="none")[:, None]}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SLICES)
def test_rows_that_a_loss_leaves_out_are_silent_whatever_is_in_them(name, dtype):
    """A row of infinities or NaN behind a `where` that takes another: no derivative of the others hears of it, in no mode."""
    x = gd.input("x", (3, 3), dtype)
    used = np.array([[False], [True], [False]])
    fine = np.array([[0.7, 1.5, -0.4]] * 3, dtype)
    s = gd.sum(gd.where(used, SLICES[name](x), 0.0))
    g = gd.grad(s, x)
    v = np.ones((3, 3), dtype)
    f = gd.function([x], [g, gd.grad(gd.sum(g * np.arange(9.0).reshape(3, 3).astype(dtype)), x), gd.hvp(s, x, v), gd.jvp(s, x, v)])
    want = f(fine)
    for bad in ([np.nan] * 3, [np.inf, 1.0, 2.0], [-np.inf, np.inf, 0.0], [0.0, np.inf, -np.inf], [np.inf] * 3, [1.0, np.nan, 0.0]):
        at = fine.copy()
        at[0] = at[2] = bad
        got = f(at)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a[1] if a.ndim else a, b[1] if b.ndim else b)
            assert a.ndim == 0 or (a[[0, 2]] == 0).all(), (name, bad, a)
            checked()


WRITTEN = {
    "sigmoid": lambda x: 1 / (1 + gd.exp(-x)), "reciprocal": lambda x: gd.reciprocal(1 + gd.exp(-x)), "quotient": lambda x: gd.exp(x) / (gd.exp(x) + 1),
    "slope": lambda x: gd.exp(x) / (1 + gd.exp(x)) ** 2, "square": lambda x: 1 / (1 + gd.exp(x)) ** 2, "softplus": lambda x: gd.log(1 + gd.exp(x)),
    "scaled": lambda x: 1 / (2 + 3 * gd.exp(x)), "bump": lambda x: 1 / (1 + gd.exp(x * x)), "secant": lambda x: 1 / (gd.exp(x) + gd.exp(-x)),
    "log1p": lambda x: gd.log1p(gd.exp(x)), "swish": lambda x: x / (1 + gd.exp(-x)), "cosh": lambda x: gd.log(gd.exp(x) + gd.exp(-x)),
    "softmax": lambda x: gd.exp(x) / gd.sum(gd.exp(x), axis=-1, keepdims=True),
    "logsumexp": lambda x: gd.log(gd.sum(gd.exp(x), axis=-1, keepdims=True)) - x,
}


@pytest.mark.parametrize("passes", ["default", "none"])
@pytest.mark.parametrize("name", WRITTEN)
def test_missing_numbers_behind_a_choice_are_silent_in_what_exponentials_are_rewritten_to(name, passes):
    x = gd.input("x", (4, 1))
    s = gd.sum(gd.where(gd.isfinite(x), WRITTEN[name](x), 0.0))
    g = gd.grad(s, x)
    v = np.array([[1.0], [0], [-1], [0.5]])
    f = gd.function([x], [s, g, gd.grad(gd.sum(g), x), gd.hvp(s, x, v), gd.jvp(s, x, v)], **({} if passes == "default" else {"passes": ()}))
    got, want = f(np.array([[np.nan], [0.5], [np.nan], [-2.0]])), f(np.array([[3.0], [0.5], [-1.0], [-2.0]]))
    for a, b in zip(got[1:4], want[1:4], strict=True):
        assert (a[[0, 2]] == 0).all(), (name, a)
        np.testing.assert_allclose(a[[1, 3]], b[[1, 3]], rtol=1e-12)
        checked()
    assert np.isfinite(got[0]) and np.isfinite(got[4])
    # What the user makes of a gradient is no derivative by itself.
    made = [2 * g, -g, g / 3, g[None], gd.stack([g, g * v]), gd.broadcast_to(g, (2, 4, 1)), gd.square(g), g + g, gd.norm(g), gd.hessian(s, x)]
    f = gd.function([x], made, **({} if passes == "default" else {"passes": ()}))
    for y in f(np.array([[np.nan], [0.5], [np.nan], [-2.0]])):
        assert np.isfinite(y).all(), (name, y)
        checked()
