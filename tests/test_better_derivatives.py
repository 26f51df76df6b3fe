"""Expressions whose derivatives are those of others of the same value: kinks that cancel, roots of sigmoids, 1 - softmax of two classes."""
import random

import mpmath
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

A = gd.abs


def derivatives(y, x, order):
    """y and its derivatives with respect to x, elementwise, by reverse mode."""
    found = [y]
    for _ in range(order):
        found.append(gd.grad(gd.sum(found[-1]), x, unconnected="zero"))
    return found


def second_ways(y, x):
    """Second derivatives by the other modes."""
    ones = gd.ones_like(x)
    j, g = gd.jvp(y, x, ones), gd.grad(gd.sum(y), x)
    return [gd.jvp(j, x, ones), gd.grad(gd.sum(j), x), gd.jvp(g, x, ones)]


# As written, the same without kinks.
SMOOTH = {
    "max(z, 0) + log1p(exp(-|z|))": (lambda z: gd.maximum(z, 0) + gd.log1p(gd.exp(-A(z))), gd.softplus),
    "log1p(exp(-|z|)) + max(0, z)": (lambda z: gd.log1p(gd.exp(-A(z))) + gd.maximum(0, z), gd.softplus),
    "max(z, 0) + log(1 + exp(-|z|))": (lambda z: gd.maximum(z, 0) + gd.log(1 + gd.exp(-A(z))), gd.softplus),
    "max(z, 0) + softplus(-|z|)": (lambda z: gd.maximum(z, 0) + gd.softplus(-A(z)), gd.softplus),
    "cross entropy": (lambda z: gd.maximum(z, 0) - 0.3 * z + gd.log1p(gd.exp(-A(z))), lambda z: gd.softplus(z) - 0.3 * z),
    "log cosh": (lambda z: A(z) + gd.log1p(gd.exp(-2 * A(z))) - np.log(2), lambda z: gd.softplus(2 * z) - z - np.log(2)),
    "log cosh, 2 behind": (lambda z: A(z) + gd.log1p(gd.exp(-(A(z) * 2.0))), lambda z: gd.softplus(2 * z) - z),
    "log cosh of 2 z": (lambda z: 2 * A(z) + gd.log1p(gd.exp(-4 * A(z))), lambda z: gd.softplus(4 * z) - 2 * z),
    "of 3 z": (lambda z: gd.maximum(3 * z, 0) + gd.log1p(gd.exp(-A(3 * z))), lambda z: gd.softplus(3 * z)),
    "of sin z": (lambda z: gd.maximum(gd.sin(z), 0) + gd.log1p(gd.exp(-A(gd.sin(z)))), lambda z: gd.softplus(gd.sin(z))),
    "its square": (lambda z: gd.square(gd.maximum(z, 0) + gd.log1p(gd.exp(-A(z)))), lambda z: gd.square(gd.softplus(z))),
    "log sigmoid": (lambda z: gd.minimum(z, 0) - gd.log1p(gd.exp(-A(z))), gd.log_sigmoid),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
def test_two_kinks_that_cancel(name, dtype):
    """All derivatives up to the fourth, at 0, at -0.0 and where the exponential has underflowed; second ones by all pairs of modes."""
    written, smooth = SMOOTH[name]
    at = np.array([0.0, -0.0, 1e-30, -1e-9, 0.7, -1.3, 5, -20, 90, -800, 3000, -3000], dtype)
    x = gd.input("x", (12,), dtype)
    y, want = written(x), smooth(x)
    # Terms cancel: errors are those of the largest.
    tolerance = {"float64": 1e-13, "float32": 2e-5}[dtype]
    for passes in (None, ("merge", "algebra", "fold")):
        nodes, right = [*derivatives(y, x, 4), *second_ways(y, x)], [*derivatives(want, x, 4), *second_ways(want, x)]
        for k, (a, b) in enumerate(zip(gd.function([x], nodes, passes=passes)(at), gd.function([x], right)(at), strict=True)):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 100, err_msg=f"{k}")
            checked()


def test_hessians_of_a_regression_that_starts_at_zero():
    """X.T X / 4 at w = 0: Newton's method had nothing to divide by."""
    rng = np.random.default_rng(2)
    features, targets = rng.standard_normal((6, 3)), rng.integers(0, 2, 6).astype(float)
    w, v = gd.input("w", (3,)), gd.input("v", (3,))
    z = gd.constant(features) @ w
    loss = gd.sum(gd.maximum(z, 0) - z * targets + gd.log1p(gd.exp(-A(z))))
    h, p = gd.function([w, v], [gd.hessian(loss, w), gd.hvp(loss, w, v)])(np.zeros(3), np.arange(3.0))
    np.testing.assert_allclose(h, features.T @ features / 4, rtol=1e-13)
    np.testing.assert_allclose(p, h @ np.arange(3.0), rtol=1e-13)
    a, b = gd.input("a", (2,)), gd.input("b", (2,))
    both = gd.maximum(a, b) + gd.log1p(gd.exp(-A(a - b)))
    ga, gb = gd.grad(gd.sum(both), [a, b])
    got = gd.function([a, b], [both, ga, gb, gd.grad(gd.sum(ga), a), gd.grad(gd.sum(ga), b), gd.grad(gd.sum(gb), b)])([1.0, 2.0], [1.0, 0.5])
    s = 1 / (1 + np.exp(-1.5))
    right = ([1 + np.log(2), np.logaddexp(2, 0.5)], [0.5, s], [0.5, 1 - s], *([q * 0.25, q * s * (1 - s)] for q in (1, -1, 1)))
    for x, want in zip(got, right, strict=True):
        np.testing.assert_allclose(x, want, rtol=1e-13)
        checked()
    checked(2)


def test_what_is_asked_for_on_the_way_is_not_passed_by():
    x = gd.input("x", (3,))
    at = np.array([0.5, -1.0, 2.0])
    e = gd.exp(-A(x))
    y = gd.sum(gd.log1p(e))
    gx, ge = gd.function([x], gd.grad(y, [x, e]))(at)
    np.testing.assert_allclose(ge, 1 / (1 + np.exp(-np.abs(at))))
    np.testing.assert_allclose(gx, -np.sign(at) / (1 + np.exp(np.abs(at))))
    t = gd.function([x], gd.jvp(y, [x, e], [gd.ones_like(x), gd.zeros_like(e)]))(at)
    np.testing.assert_allclose(t, gx.sum(), rtol=1e-12)
    np.testing.assert_array_equal(gd.function([x], gd.grad(gd.sum(gd.log1p(gd.exp(-A(gd.stop_gradient(x)))) + x), x))(at), 1)
    own = gd.custom_gradient(lambda z: gd.exp(z), lambda g, out, z: 7.0 * g)
    np.testing.assert_allclose(gd.function([x], gd.grad(gd.sum(gd.log(own(x))), x))(at), 7 / np.exp(at))
    z = gd.input("z", (3, 2))
    own = gd.custom_gradient(lambda z: gd.softmax(z), lambda g, out, z: 7.0 * g)
    p = 1 / (1 + np.exp(at))
    got = gd.function([z], gd.grad(gd.sum(gd.log(1 - own(z)[:, 1])), z))(np.stack([at, 0 * at], 1))
    np.testing.assert_allclose(got, np.stack([0 * at, -7 / (1 - p)], 1), rtol=1e-12)
    checked(6)


PASSED = {
    "log(1 - p)": (lambda x: gd.log(1 - gd.softmax(x))[1:], 2, [1.0, 92.0]), "log1p(-p)": (lambda x: gd.log1p(-gd.softmax(x))[1:], 2, [1.0, 92.0]),
    "by hand": (lambda x: gd.log(1 - by_hand(x))[1:], 2, [1.0, 92.0]), "of many": (lambda x: gd.log(1 - gd.softmax(x)[1]), 3, [1.0, 92.0, 3.0]),
    "written twice": (lambda x: gd.log(1 - gd.exp(x - 1.0) / gd.sum(gd.exp(x - 1.0)))[1:], 2, [1.0, 92.0]),
    "sqrt sigmoid": (lambda x: gd.sqrt(gd.sigmoid(x)), 2, [-800.0, 0.3]), "log p": (lambda x: gd.log(gd.exp(gd.log_softmax(x))), 2, [-800.0, 0.3]),
    "(1 - p) of a quotient": (lambda x: gd.softmax(x)[1:] / (1 - gd.softmax(x))[1:], 2, [1.0, 92.0]),
    "one in another": (lambda x: gd.log(1 - gd.softmax(gd.log(gd.exp(gd.log_softmax(x)))))[1:], 2, [1.0, 92.0]),
    "kinks": (lambda x: gd.maximum(x, 0) + gd.log1p(gd.exp(-A(x))), 2, [0.0, 1.0]),
}


@pytest.mark.parametrize("name", PASSED)
def test_a_gradient_does_not_depend_on_what_else_is_asked_for(name):
    """A node on the way of such a form, asked for too, took it from all others: [1, 0] for [1, -1], NaN for 1e-174."""
    f, n, at = PASSED[name]
    x = gd.input("x", (n,))
    y = gd.sum(f(x))
    inner = [v for v in gd.graph.walk.toposort([y]) if v.dtype.kind == "f" and v.inputs]
    t = [gd.constant(np.linspace(-1, 0.5, v.size).reshape(v.shape)) for v in (x, *inner)]
    zero = [gd.zeros_like(v) for v in inner]
    want = gd.function([x], gd.grad(y, x))(at)
    assert np.isfinite(want).all()
    for some in (inner, inner[::-1], *[[v] for v in inner]):
        np.testing.assert_array_equal(gd.function([x], gd.grad(y, [*some, x])[-1])(at), want)
        checked()
    np.testing.assert_array_equal(gd.function([x], gd.jvp(y, [x, *inner], [t[0], *zero]))(at), gd.function([x], gd.jvp(y, x, t[0]))(at))
    # What they have themselves is as it is written, and a tangent is the sum of what each target has.
    at = np.linspace(0.5, 1.0, n)
    written = [gd.grad(y, v) for v in inner]
    both = gd.function([x], [*gd.grad(y, [*inner, x]), gd.grad(y, [x, *inner])[0], gd.jvp(y, [x, *inner], t)])(at)
    for a, b in zip(both, gd.function([x], [*written, gd.grad(y, x)])(at), strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        checked()
    np.testing.assert_allclose(both[-1], sum(np.vdot(g, np.linspace(-1, 0.5, g.size)) for g in (*both[:len(inner)], both[-2])), rtol=1e-11)
    checked()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("power", ["sqrt", 0.5, 0.3, 0.9])
@pytest.mark.parametrize("sigmoid", [gd.sigmoid, lambda z: 1 / (1 + gd.exp(-z)), lambda z: gd.reciprocal(gd.exp(-z) + 1)])
def test_roots_of_sigmoids(sigmoid, power, dtype):
    """Their gradients were NaN where the sigmoid is 0."""
    at = np.array([-2000, -800, -110, -30, -1, 0, 2, 40, 2000], dtype)
    x = gd.input("x", (9,), dtype)
    y = gd.sqrt(sigmoid(x)) if power == "sqrt" else sigmoid(x) ** power
    c = mpmath.mpf(0.5 if power == "sqrt" else float(np.dtype(dtype).type(power)))
    with mpmath.workdps(60):
        p = [1 / (1 + mpmath.exp(-mpmath.mpf(float(v)))) for v in at]
        want = [[float(q ** c) for q in p], [float(c * q ** c * (1 - q)) for q in p], [float(c * q ** c * (1 - q) * (c * (1 - q) - q)) for q in p]]
    tiny = np.finfo(dtype).tiny ** 0.25
    for a, b in zip(gd.function([x], [*derivatives(y, x, 2), *second_ways(y, x)])(at), [*want, *want[2:] * 3], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5 if dtype == "float32" else 1e-12, atol=tiny)
        checked()


def quotient(z):
    e = gd.exp(z)
    return e / (1 + e)


SIGMOIDS = {
    "e / (1 + e)": quotient, "e * (1 / (1 + e))": lambda z: gd.exp(z) * (1 / (1 + gd.exp(z))), "1 / (1 + exp(-z))": lambda z: 1 / (1 + gd.exp(-z)),
    "exp(z) / (exp(z) + 1)": lambda z: gd.exp(z) / (gd.exp(z) + 1), "reciprocal": lambda z: gd.reciprocal(1 + gd.exp(-z)),
    "checkpoint": gd.checkpoint(quotient), "checkpoint, 1 / (1 + exp(-z))": gd.checkpoint(lambda z: 1 / (1 + gd.exp(-z))),
}
OF_A_SIGMOID = {
    "cross entropy": (lambda p: -(0.3 * gd.log(p) + 0.7 * gd.log(1 - p)), lambda z: gd.softplus(z) - 0.3 * z),
    "log of the rest": (lambda p: gd.log1p(-p), lambda z: -gd.softplus(z)),
    "log odds": (lambda p: gd.square(gd.log(p / (1 - p))) / 1000, lambda z: z * z / 1000),
    "focal": (lambda p: -gd.square(1 - p) * gd.log(p), lambda z: gd.exp(-2 * gd.softplus(z)) * gd.softplus(-z)),
    "itself": (lambda p: p * 2.0, lambda z: 2 * gd.sigmoid(z)),
}


@pytest.mark.parametrize("term", OF_A_SIGMOID)
@pytest.mark.parametrize("kind", SIGMOIDS)
def test_sigmoids_by_hand(kind, term):
    """All derivatives to the second, by all modes. Hessians of a cross entropy were 1 or -1 where they are 1e-16, as differences of two terms of
    1e16; out of a checkpoint gradients were 0."""
    written, good = OF_A_SIGMOID[term]
    at = np.array([-800.0, -37.0, -20.0, -1.0, 0.0, 0.5, 10.0, 30.0, 36.0, 36.5, 37.0, 40.0, 300.0])
    compare_over(lambda z: written(SIGMOIDS[kind](z)), good, "float64", at)


def test_an_exact_zero_stays_zero():
    """x^2 / (1 + x^2) as it is fitted to doses: the slope at 0 was 0 times infinity."""
    x = gd.input("x", (3,))
    hill, at = np.array([0, 0.5, 0.16]), [0.0, 1.0, 2.0]
    inverse = np.array([0, 0.19661193324148185, 0.25 * 0.6224593312018546 * 0.3775406687981454])
    for f, want in ((lambda x: 1 / (1 + gd.exp(-2 * gd.log(x))), hill), (lambda x: 1 / (1 + gd.exp(1 / x)), inverse),
                    (lambda x: 1 / (3 + gd.exp(-2 * gd.log(x))), np.array([0, 2 / 16, 4 / 169])),
                    (lambda x: 1 / gd.square(1 + gd.exp(-2 * gd.log(x))), 2 * hill * [0, 0.5, 0.8]),
                    (lambda x: gd.exp(2 * gd.log(x)) / (1 + gd.exp(2 * gd.log(x))), hill)):
        for passes in (None, ()):
            np.testing.assert_allclose(gd.function([x], gd.grad(gd.sum(f(x)), x), passes=passes)(at), want)
            checked()


def by_hand(z, axis=-1):
    e = gd.exp(z)
    return e / gd.sum(e, axis=axis, keepdims=True)


def shifted(z, axis=-1):
    e = gd.exp(z - gd.stop_gradient(gd.max(z, axis=axis, keepdims=True)))
    return e / gd.sum(e, axis=axis, keepdims=True)


LABELS = np.array([0, 1, 1, 0, 1, 0, 1])
SOFTMAXES = {"softmax": gd.softmax, "e / sum e": by_hand, "shifted": shifted, "checkpoint": gd.checkpoint(gd.softmax)}
# Of p, a softmax of two classes over the last axis, and of its logarithm.
OF_TWO = {
    "log(1 - p[:, 1])": (lambda p: gd.log(1 - p[:, 1]), lambda v: v[:, 0]), "log1p(-p[:, 0])": (lambda p: gd.log1p(-p[:, 0]), lambda v: v[:, 1]),
    "log(1 - p)": (lambda p: gd.log(1 - p), lambda v: v[:, ::-1]), "log(1 - p.T[0])": (lambda p: gd.log(1 - p.T[0]), lambda v: v.T[1]),
    "labels": (lambda p: gd.log(1 - p[np.arange(7), LABELS]), lambda v: v[np.arange(7), 1 - LABELS]),
    "(1 - p)[:, 1]": (lambda p: gd.log((1 - p)[:, 1]), lambda v: v[:, 0]), "-p reversed": (lambda p: gd.log1p(-p[::-1, :1]), lambda v: v[::-1, 1:]),
    "stack": (lambda p: gd.log(gd.stack([1 - p[:, 1], p[:, 1]], axis=-1)), lambda v: v),
    "cross entropy": (lambda p: 0.3 * gd.log(p[:, 1]) + 0.7 * gd.log(1 - p[:, 1]), lambda v: 0.3 * v[:, 1] + 0.7 * v[:, 0]),
    "focal": (lambda p: gd.square(1 - p[:, 1]) * gd.log(p[:, 1]), lambda v: gd.exp(2 * v[:, 0]) * v[:, 1]),
    "log odds": (lambda p: gd.log(1 - p[:, 1]) - gd.log(p[:, 1]), lambda v: v[:, 0] - v[:, 1]),
}


def compare_over(written, good, dtype, at):
    """Value, gradient, tangent and second derivatives, together and one by one, with those from good forms in float64."""
    results = []
    for d, f in ((dtype, written), ("float64", good)):
        z = gd.input("z", at.shape, d)
        y, t = f(z), gd.constant(np.linspace(-1, 1, at.size).reshape(at.shape).astype(d))
        g = gd.grad(gd.sum(y * np.cos(np.arange(y.size)).reshape(y.shape).astype(d)), z)
        nodes = [y, g, gd.jvp(y, z, t), gd.jvp(g, z, t), gd.grad(gd.sum(g * t), z), gd.jvp(gd.jvp(y, z, t), z, t)]
        results.append([gd.function([z], nodes)(at.astype(d)), [gd.function([z], n)(at.astype(d)) for n in nodes]])
    tolerance = 3e-6 if dtype == "float32" else 2e-14
    for got, want in zip(*results, strict=True):
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 5, err_msg=f"output {k}")
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("term", OF_TWO)
@pytest.mark.parametrize("kind", SOFTMAXES)
def test_the_rest_of_two_classes(kind, term, dtype):
    """log(1 - softmax(z)[:, 1]) is log(softmax(z)[:, 0]): values, gradients, tangents and second derivatives."""
    written, good = OF_TWO[term]
    big = 1 if dtype == "float32" else 10
    at = (np.array([[0, 12], [0, 16], [0, 30], [0, -30], [0, 120], [-120, 0], [1, 1.5]]) * big).astype(dtype)
    compare_over(lambda z: written(SOFTMAXES[kind](z)), lambda z: good(gd.log_softmax(z)), dtype, at)


SPELLINGS = {
    "e * (1 / sum)": lambda z, e: e * (1 / gd.sum(e, axis=-1, keepdims=True)), "sum[..., None]": lambda z, e: e / gd.sum(e, axis=-1)[..., None],
    "(1 / sum)[:, None] * e": lambda z, e: (1 / gd.sum(e, axis=-1))[:, None] * e, "twice": lambda z, e: e / gd.sum(gd.exp(z), axis=-1, keepdims=True),
    "reciprocal": lambda z, e: gd.reshape(gd.reciprocal(gd.sum(e, axis=-1)), (7, 1)) * e,
    "broadcast": lambda z, e: e / gd.broadcast_to(gd.reshape(gd.sum(e, axis=1), (7, 1)), z.shape),
    "all shifted twice": lambda z, e: gd.exp(z - gd.max(z, axis=1, keepdims=True)) / gd.sum(
        gd.exp(z - gd.max(z, axis=1, keepdims=True)), axis=1, keepdims=True),
    "columns": lambda z, e: (gd.exp(z.T) / gd.sum(gd.exp(z.T), axis=0)).T,
}
RESTS = {"1 - p": lambda p: gd.log(1 - p), "log1p(-p)": lambda p: gd.log1p(-p), "1 + -p": lambda p: gd.log(1 + -p), "-p + 1": lambda p: gd.log(-p + 1.0)}


@pytest.mark.parametrize("term", RESTS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_softmaxes_by_hand_however_they_are_spelled(spelling, term):
    """The value was that of a softmax, and the gradient that of something else: [1, 0] for [1, -1]."""
    at = np.array([[0, 12], [0, 16], [0, 300], [0, -300], [0, 1200], [-1200, 0], [1, 1.5]])
    written, log = SPELLINGS[spelling], RESTS[term]
    compare_over(lambda z: log(written(z, gd.exp(z))), lambda z: gd.log_softmax(z)[:, ::-1], "float64", at)
    compare_over(lambda z: log(written(gd.concatenate([z, 0 * z[:, :1]], 1), gd.exp(gd.concatenate([z, 0 * z[:, :1]], 1)))[:, :1]),
                 lambda z: others(gd.concatenate([z, 0 * z[:, :1]], 1), 0)[:, None], "float64", at)


@pytest.mark.parametrize("n", [2, 3])
def test_a_vector_by_its_sum(n):
    """e / sum(e) of a vector, where nothing has to be kept."""
    for at in ([37.0, 0.0, -1e4], [30.0, 0.0, -1e4], [800.0, 0.0, 790.0], [1.0, 2.0, 3.0]):
        def good(x):
            return 0.7 * (gd.logsumexp(x[1:]) - gd.logsumexp(x)) + 0.3 * gd.log_softmax(x)[0]

        def written(x):
            p = gd.exp(x) / gd.sum(gd.exp(x))
            return 0.7 * gd.log(1 - p[0]) + 0.3 * gd.log(p[0])
        compare_over(written, good, "float64", np.array(at[:n]))


def others(z, k):
    """The logarithm of the probability of all classes but one."""
    rest = [j for j in range(3) if j != k]
    return gd.logsumexp(z[:, rest], axis=1) - gd.logsumexp(z, axis=1)


# Of p, a softmax of three classes over the last axis, and of its argument.
OF_THREE = {
    "log(1 - p[:, 1])": (lambda p: gd.log(1 - p[:, 1]), lambda z: others(z, 1)), "log1p(-p[:, 0])": (lambda p: gd.log1p(-p[:, 0]), lambda z: others(z, 0)),
    "log(1 - p[1:5, 2])": (lambda p: gd.log(1 - p[1:5, 2]), lambda z: others(z, 2)[1:5]),
    "an element": (lambda p: gd.log(1 - p[4, 1]), lambda z: others(z, 1)[4]),
    "kept": (lambda p: gd.log(1 - p[:, 2:]), lambda z: others(z, 2)[:, None]),
    "cross entropy": (lambda p: 0.3 * gd.log(p[:, 1]) + 0.7 * gd.log(1 - p[:, 1]), lambda z: 0.3 * gd.log_softmax(z)[:, 1] + 0.7 * others(z, 1)),
    "all": (lambda p: gd.log(1 - p[:, 0]) + gd.log(1 - p[:, 1]) + gd.log(1 - p[:, 2]), lambda z: others(z, 0) + others(z, 1) + others(z, 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("term", OF_THREE)
@pytest.mark.parametrize("kind", SOFTMAXES)
def test_the_rest_of_one_class_of_many(kind, term, dtype):
    """log(1 - softmax(z)[:, k]) is logsumexp of the others, less logsumexp of all."""
    written, good = OF_THREE[term]
    at = np.array([[0, 12, 1], [0, 16, -3], [0, 30, 2], [0, -30, 0], [0, 120, 1], [-120, 0, 20], [1, 1.5, 1]]) * (1 if dtype == "float32" else 10)
    compare_over(lambda z: written(SOFTMAXES[kind](z)), good, dtype, at.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", SOFTMAXES)
def test_the_rest_of_a_class_that_is_hardly_there_keeps_its_digits(kind, dtype):
    """log1p(-softmax(x)[k]) is -p where p is small: as a difference of two logarithms of sums it was off by 0.5 %, or 0."""
    at = np.array([[1000, 990, 1000], [10, 2, 10.3], [0, -50, 0], [-3, -70, 2], [800, 1, 0]], dtype)
    x = gd.input("x", (5, 3), dtype)
    y = gd.log1p(-SOFTMAXES[kind](x)[:, 1])
    t = np.array([0.3, -1.0, 0.7], dtype)
    with mpmath.workdps(120):
        want = [[], [], []]
        for row in at:
            e = [mpmath.exp(mpmath.mpf(float(v))) for v in row]
            p, rest = e[1] / sum(e), e[0] + e[2]
            want[0].append(float(mpmath.log(rest / sum(e))))
            want[1].append([float(p * e[0] / rest), float(-p), float(p * e[2] / rest)])
            want[2].append(sum(float(v) * a for v, a in zip(t, want[1][-1], strict=True)))
    rtol, tiny = (3e-5, 1e-36) if dtype == "float32" else (1e-12, 1e-300)
    for a, b in zip(gd.function([x], [y, gd.grad(gd.sum(y), x), gd.jvp(y, x, np.tile(t, (5, 1)))])(at), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=tiny)
        checked()


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_rest_of_one_class_of_a_named_number(n):
    """The value, of a size that was known by then, was right, and the gradient was not."""
    at = np.zeros((3, n))
    at[0, 0], at[1, 1], at[2, -1] = 110, 120, 3
    for f in (lambda x: gd.log(1 - gd.softmax(x)[:, 0]), lambda x: gd.log1p(-gd.softmax(x)[:, 1]), lambda x: gd.log(1 - gd.softmax(x.T, axis=0)[1]),
              lambda x: gd.log(1 - by_hand(x)[:, -1]), lambda x: gd.log(1 - by_hand(x)[:, -2])):
        results = []
        for shape in ((3, "n"), (3, n)):
            x = gd.input("x", shape)
            y = gd.sum(f(x) * np.array([1.0, -0.5, 2.0]))
            g = gd.grad(y, x)
            results.append(gd.function([x], [y, g, gd.jvp(y, x, gd.square(x)), gd.grad(gd.sum(g * gd.sin(x)), x)])(at))
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
            checked()


def test_1_minus_a_softmax_that_is_no_divisor_stays_as_it_is_written():
    z = gd.input("z", (3, 2))
    p = gd.softmax(z)
    assert "slice" not in str(gd.function([z], gd.grad(gd.sum(gd.square(1 - p)), z)).program)
    at = np.random.default_rng(0).standard_normal((3, 2))
    three = gd.input("three", (3, 3))
    y = gd.log(1 - gd.softmax(three)[:, 0])
    v = np.random.default_rng(1).standard_normal((3, 3))
    e = np.exp(v)
    np.testing.assert_allclose(gd.function([three], y)(v), np.log(e[:, 1:].sum(1) / e.sum(1)), rtol=1e-12)
    x = gd.function([z], gd.log(1 - gd.softmax(z, axis=0)[0]))(at)         # three classes, two columns
    e = np.exp(at)
    np.testing.assert_allclose(x, np.log(e[1:].sum(0) / e.sum(0)), rtol=1e-12)
    checked(3)


PICKS = {"as it is": lambda v: v, "[::-1]": lambda v: v[::-1], "labels": lambda v: v[np.arange(3), [0, 2, 1]], "T[0]": lambda v: v.T[0],
         "reshape": lambda v: gd.reshape(v, (9,))[2:], "roll": lambda v: gd.roll(v, 1, 1)}


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("inner", [lambda x: gd.log_softmax(x), lambda x: x - gd.logsumexp(x, axis=1, keepdims=True), gd.log_sigmoid,
                                   lambda x: -gd.softplus(x)])
def test_logarithms_of_exponentials(inner, pick):
    """log(exp(log_softmax(x))), as where probabilities are handed on: -inf and NaN where they underflow."""
    x = gd.input("x", (3, 3), "float32")
    at = np.array([[0, -300, 3], [200, 1, -5], [0, 0, 1e3]], "float32")
    f = PICKS[pick]
    results = []
    for y in (gd.log(f(gd.exp(inner(x)))), f(inner(x))):
        g = gd.grad(gd.sum(y * y), x)
        results.append(gd.function([x], [y, g, gd.jvp(y, x, gd.ones_like(x)), gd.grad(gd.sum(g), x)])(at))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())
        checked()


LOGARITHMS = {
    "log_softmax": gd.log_softmax, "less logsumexp": lambda x: x - gd.logsumexp(x, axis=1, keepdims=True), "log_sigmoid": gd.log_sigmoid,
    "-softplus": lambda x: -gd.softplus(x),
}


@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_of_one_exponential_add_up(name):
    """log(exp(y)) is differentiated as y: what other logarithms of it, picks of it and y's own consumers contribute was lost."""
    v, w = np.random.default_rng(0).standard_normal((2, 3, 2))
    for uses in (lambda y, p: gd.log(p) * v + gd.log(p) * w, lambda y, p: gd.log(p) * v + y * w, lambda y, p: y * w + gd.log(p) * v,
                 lambda y, p: gd.log(p) * v + gd.log(gd.exp(y) * 1.0) * w, lambda y, p: gd.sum(gd.log(p)) + gd.log(p[0]) * v[0] + p * w,
                 lambda y, p: gd.log(p)[:, :1] * gd.log(p)[:, 1:] * y + 0.0 * gd.log(p)):
        x = gd.input("x", (3, 2))
        y = LOGARITHMS[name](x)
        z = gd.sum(uses(y, gd.exp(y)))
        plain = gd.sum(uses(y, gd.exp(y) + 1e-300))           # no such form
        at = np.random.default_rng(1).standard_normal((3, 2))
        t = gd.constant(np.arange(6.0).reshape(3, 2))
        g, h = gd.grad(z, x), gd.grad(plain, x)
        want = gd.function([x], [h, gd.grad(gd.sum(h * h), x), gd.jvp(plain, x, t)], passes=())(at)
        for passes in (None, ()):
            for a, b in zip(gd.function([x], [g, gd.grad(gd.sum(g * g), x), gd.jvp(z, x, t)], passes=passes)(at), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
                checked()


def kinked(choose, z):
    """A random function of z of such forms, as written and smooth."""
    some = [choose.choice(list(SMOOTH.values())) for _ in range(choose.randint(1, 3))]
    c, shift = choose.choice([1.0, -2.0, 0.5]), choose.choice([0.0, 0.0, 0.25])

    def of(k):
        y = 0.0
        for pair in some:
            y = y + pair[k](c * (z - shift)) * gd.cos(0.3 * z)
        return gd.tanh(0.1 * y) + y
    return of(0), of(1)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed):
    """Sums and products of such forms inside others, at points many of which are kinks."""
    x = gd.input("x", (6,))
    y, want = kinked(random.Random(seed), x)
    at = np.array([0.0, 0.25, -0.0, 1.0, -3.0, 12.0])
    for a, b in zip(gd.function([x], [*derivatives(y, x, 3), *second_ways(y, x)])(at),
                    gd.function([x], [*derivatives(want, x, 3), *second_ways(want, x)])(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
        checked()
