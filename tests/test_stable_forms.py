"""Saturating functions over their whole range: values, first and second derivatives against mpmath.

8 ULP, and near a root of the derivative an absolute error of 8 eps times its largest term.
"""
import itertools

import mpmath
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

EPS = np.finfo(float).eps
TINY = 2.2250738585072014e-308       # the smallest normal number: subnormal results have fewer digits


def s(x):
    return 1 / (1 + mpmath.exp(-x))


def sech2(x):
    return 1 / mpmath.cosh(x) ** 2


def phi(x):
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


# name: (value, derivative, second derivative, points); derivatives in closed form, so that they are exact at 1e-300 too
EVERYWHERE = (-745.2, -710.0, -100.0, -37.5, -20.0, -2.3, -0.7, -1e-3, -1e-8, -1e-300, 0.0, 1e-300, 1e-8, 1e-3, 0.7, 2.3, 20.0, 37.42994775023705, 100.0,
              710.0, 745.2)
FORMS = {
    "sigmoid": (s, lambda x: s(x) * s(-x), lambda x: -s(x) * s(-x) * mpmath.tanh(x / 2), EVERYWHERE),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), s, lambda x: s(x) * s(-x), EVERYWHERE),
    "log_sigmoid": (lambda x: -mpmath.log1p(mpmath.exp(-x)), lambda x: s(-x), lambda x: -s(x) * s(-x), EVERYWHERE),
    "tanh": (mpmath.tanh, sech2, lambda x: -2 * mpmath.tanh(x) * sech2(x), EVERYWHERE),
    "expm1": (mpmath.expm1, mpmath.exp, mpmath.exp, EVERYWHERE[:-2]),
    "log1p": (mpmath.log1p, lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2,
              (-0.999999, -0.7, -1e-8, -1e-300, 0.0, 1e-300, 1e-8, 0.7, 20.0, 1e10, 1e300)),
    "gelu": (lambda x: x * mpmath.ncdf(x), lambda x: mpmath.ncdf(x) + x * phi(x), lambda x: (2 - x * x) * phi(x),
             (-37.0, -20.0, -8.0, -2.3, -0.7517915246935645, -0.7, -1e-8, 0.0, 1e-300, 1e-8, 0.7, 1.4142135623730951, 2.3, 8.0, 20.0, 38.0, 1e10)),
    "elu": (lambda x: x if x > 0 else mpmath.expm1(x), lambda x: 1 if x > 0 else mpmath.exp(x), lambda x: 0 if x > 0 else mpmath.exp(x),
            (-745.0, -100.0, -2.3, -1e-8, -1e-300, 1e-300, 0.7, 20.0, 1e10)),
    "silu": (lambda x: x * s(x), lambda x: s(x) * (1 + x * s(-x)), lambda x: s(x) * s(-x) * (2 - x * mpmath.tanh(x / 2)), EVERYWHERE[1:]),
}


def exact(f, points):
    with mpmath.workdps(400):
        return np.array([float(f(mpmath.mpf(p))) for p in points])


@pytest.mark.parametrize("name", FORMS)
def test_stable_form(name):
    *functions, at = FORMS[name]
    x = gd.input("x", (len(at),))
    y = getattr(gd, name)(x)
    ones = np.ones(len(at))
    g = gd.grad(y, x, cotangent=ones)
    outputs = {"value": [y], "first": [g, gd.jvp(y, x, ones)],
               "second": [gd.grad(g, x, cotangent=ones, unconnected="zero"), gd.jvp(g, x, ones),
                          gd.grad(gd.jvp(y, x, ones), x, cotangent=ones, unconnected="zero")]}
    nodes = [n for ns in outputs.values() for n in ns]
    got = dict(zip(nodes, gd.function([x], nodes)(np.array(at)), strict=True))
    wants = [exact(f, at) for f in functions]
    # The largest term of a derivative that is a sum: about the size of the one before it, at most of order 1.
    terms = [np.zeros(len(at)), np.zeros(len(at)), np.zeros(len(at))]
    if name in ("gelu", "silu"):
        terms = [np.abs(wants[0]) * 0, np.abs(wants[1]) + np.abs(wants[0]), np.abs(wants[1]) + np.abs(wants[2])]
    for (what, ns), want, term in zip(outputs.items(), wants, terms, strict=True):
        for n in ns:
            error = np.abs(got[n] - want)
            allowed = 8 * np.spacing(np.maximum(np.abs(want), TINY)) + 8 * EPS * term
            assert (error <= allowed).all(), (name, what, np.array(at)[error > allowed], got[n][error > allowed], want[error > allowed])
            checked(len(at))


@pytest.mark.parametrize("shift", [0.0, 700.0, -700.0, 1e300, -1e15])
def test_softmax_family_over_the_whole_range(shift):
    rows = np.array([[0.0, 1.0, -2.0], [-800.0, 0.0, 0.5], [3.0, 3.0, 3.0], [-40.0, -1e-8, 0.0]]) + shift
    x = gd.input("x", rows.shape)
    outs = [gd.softmax(x), gd.log_softmax(x), gd.logsumexp(x, axis=1)]
    c = np.array([[1.0, -2.0, 0.5]] * 4)
    g = gd.grad(outs[1], x, cotangent=c)
    soft, log, lse, dx = gd.function([x], [*outs, g])(rows)
    with mpmath.workdps(50):
        for i, row in enumerate(rows):
            v = [mpmath.mpf(float(a)) for a in row]
            total = mpmath.fsum(mpmath.exp(a - v[2]) for a in v)
            want = [mpmath.exp(a - v[2]) / total for a in v]
            assert abs(lse[i] - float(mpmath.log(total) + v[2])) <= 8 * np.spacing(abs(lse[i]))
            for j in range(3):
                assert abs(soft[i, j] - float(want[j])) <= 8 * np.spacing(max(float(want[j]), TINY))
                lp = float(v[j] - v[2] - mpmath.log(total))
                # log p near 0 is a difference: absolute error of its terms.
                assert abs(log[i, j] - lp) <= 8 * np.spacing(abs(lp)) + 8 * EPS
                d = float(c[i, j] - mpmath.fsum(c[i]) * want[j])
                assert abs(dx[i, j] - d) <= 8 * EPS * 3
                checked(3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [31, 33, 63, 64, 65, 200, 1000, 4096, 5000])
def test_softmax_of_lines_that_leave_the_ordinary(n, dtype):
    """Lines whose exponentials are normal numbers take a short form: others lie before, between and behind them, in rows and columns."""
    draw = np.random.default_rng(n)
    far = {"float32": 87.0, "float64": 707.0}[dtype]
    a = draw.standard_normal((12, n)).astype(dtype)
    a[2, n // 2:] = -np.inf
    a[4] -= np.linspace(0, 1.3 * far, n)
    a[5, -1] += 1.5 * far
    a[7] = -np.inf
    a[8, n // 3], a[9, 0] = np.nan, np.inf
    a[11, ::3] = -far
    x, t = gd.input("x", a.shape, dtype), gd.input("t", a.T.shape, dtype)
    soft, log, soft_t, log_t = gd.function([x, t], [gd.softmax(x), gd.log_softmax(x), gd.softmax(t, axis=0), gd.log_softmax(t, axis=0)])(a, a.T)
    np.testing.assert_array_equal(soft, soft_t.T)
    np.testing.assert_array_equal(log, log_t.T)
    with np.errstate(all="ignore"):
        top = a.max(1, keepdims=True)
        v = (a - np.where(top == -np.inf, 0, top).astype(dtype)).astype(np.longdouble)       # the difference is rounded, as it has to be
        s = np.exp(v).sum(1, keepdims=True)
        want, want_log = np.exp(v) / np.where(s == 0, 1, s), v - np.log(np.where(s == 0, 1, s))
    info = np.finfo(dtype)
    np.testing.assert_allclose(soft, want.astype(dtype), rtol=8 * info.eps, atol=4 * info.smallest_subnormal)
    np.testing.assert_allclose(log, want_log.astype(dtype), rtol=8 * info.eps, atol=8 * info.eps)
    checked(4)


def test_the_pass_of_stable_forms_saves_what_was_written_naively():
    """log(softmax), log(sum(exp)), log(1 + exp), 1 / (1 + exp(-x)): with the pass right at 1000, without it inf or NaN."""
    x = gd.input("x", (3,))
    at = np.array([1000.0, 0.0, -1000.0])
    naive = {"log softmax": gd.log(gd.softmax(x)), "log sum exp": gd.log(gd.sum(gd.exp(x))), "softplus": gd.log(1.0 + gd.exp(x)),
             "log1p exp": gd.log1p(gd.exp(x)), "sigmoid": 1.0 / (1.0 + gd.exp(-x))}
    want = {"log softmax": at - 1000.0, "log sum exp": 1000.0, "softplus": [1000.0, np.log(2.0), 0.0], "log1p exp": [1000.0, np.log(2.0), 0.0],
            "sigmoid": [1.0, 0.5, 0.0]}
    slopes = {"softplus": [1.0, 0.5, 0.0], "log1p exp": [1.0, 0.5, 0.0], "sigmoid": [0.0, 0.25, 0.0]}
    for name, y in naive.items():
        np.testing.assert_allclose(gd.function([x], y)(at), want[name], rtol=1e-15)
        checked()
        if name in slopes:
            g = gd.grad(y, x, cotangent=np.ones(3))
            np.testing.assert_allclose(gd.function([x], g)(at), slopes[name], rtol=1e-14, err_msg=name)
            checked()
    plain = gd.function([x], list(naive.values())[:3], passes=("merge", "algebra", "fold", "in_place"))(at)
    assert not all(np.isfinite(v).all() for v in plain)


def weights(v, axis):
    e = np.exp(v - v.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


# value, and its gradient by hand for the cotangent c (of the value's shape)
COMPOSED = [
    ("log sum exp, all", lambda x: gd.log(gd.sum(gd.exp(x))), lambda v, c: c * weights(v, None)),
    ("log sum exp, last", lambda x: gd.log(gd.sum(gd.exp(x), axis=-1)), lambda v, c: c[:, None] * weights(v, 1)),
    ("log sum exp, first", lambda x: gd.log(gd.sum(gd.exp(x), axis=0, keepdims=True)), lambda v, c: c * weights(v, 0)),
    ("logsumexp, all", gd.logsumexp, lambda v, c: c * weights(v, None)),
    ("logsumexp, first", lambda x: gd.logsumexp(x, axis=0), lambda v, c: c * weights(v, 0)),
    ("log softmax", lambda x: gd.log(gd.softmax(x)), lambda v, c: c - weights(v, 1) * c.sum(axis=1, keepdims=True)),
    ("log(1 + exp)", lambda x: gd.log(1 + gd.exp(x)), lambda v, c: c * np.exp(-np.logaddexp(0, -v))),
    ("log1p(exp)", lambda x: gd.log1p(gd.exp(x)), lambda v, c: c * np.exp(-np.logaddexp(0, -v))),
]


@pytest.mark.parametrize("scale", [1e-3, 1, 30, 1e3, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "f", "want"), COMPOSED, ids=[c[0] for c in COMPOSED])
def test_derivatives_of_forms_whose_exponentials_overflow(name, f, want, dtype, scale):
    rng = np.random.default_rng(3)
    v = (scale * rng.standard_normal((4, 5))).astype(dtype)
    v[1] = v[1, 0]                                       # ties
    t = rng.standard_normal((4, 5)).astype(dtype)
    x = gd.input("x", (4, 5), dtype)
    y = f(x)
    c = rng.standard_normal(y.shape).astype(dtype)
    g, j = gd.function([x], [gd.vjp(y, x, gd.constant(c)), gd.jvp(y, x, gd.constant(t))])(v)
    by_hand = want(v.astype("float64"), np.asarray(c, "float64"))
    tolerance = 100 * np.finfo(dtype).eps
    assert np.allclose(g, by_hand, rtol=tolerance, atol=tolerance), name
    # each element of the jvp is the sum of t times the gradient for a cotangent that is 1 there
    for i in np.ndindex(y.shape):
        one = np.zeros(y.shape)
        one[i] = 1
        assert np.isclose(j[i], np.sum(want(v.astype("float64"), one) * t), rtol=10 * tolerance, atol=10 * tolerance), name


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e4), ("float32", 1e8), ("float64", 1e12), ("float64", 1e16)])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (1, 2)])
def test_the_derivative_of_logsumexp_does_not_see_its_rounding(axis, dtype, size):
    x = gd.input("x", (2, 3, 4), dtype)
    y = gd.logsumexp(x, axis=axis)
    g, j = gd.function([x], [gd.grad(gd.sum(y), x), gd.jvp(y, x, gd.ones_like(x))])(np.full((2, 3, 4), size, dtype))
    axes = range(3) if axis is None else np.atleast_1d(axis)
    n = np.prod([x.shape[a] for a in axes])
    assert np.allclose(g, 1 / n, rtol=4 * np.finfo(dtype).eps) and np.allclose(j, 1, rtol=8 * np.finfo(dtype).eps)
    gone = gd.function([x], gd.grad(gd.sum(y), x))(np.full((2, 3, 4), -np.inf, dtype))
    assert not gone.any()


def test_quotients_that_only_look_like_a_softmax():
    """A square array divided by sums that stand along another axis, products over broadcast operands: the value as it is written."""
    rng = np.random.default_rng(8)
    v, w, t = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal((3, 3, 3))
    x = gd.input("x", (3, 3))

    def cases(m, x, softmax):
        e = m.exp(x)
        for axis in (0, 1, (0, 1)):
            s = m.sum(e, axis=axis)
            yield e * m.broadcast_to(2 / s, (3, 3))
            yield w * e * m.broadcast_to(1 / s, (3, 3))
            if axis != (0, 1):
                for shape in ((3, 1), (1, 3)):
                    yield e * m.broadcast_to(m.reshape(w / s, shape), (3, 3))
                    yield m.transpose(m.broadcast_to(m.reshape(1 / s, shape), (3, 3))) * e
                yield m.sum(t * e, axis=axis) * (1 / s)
                yield m.sum(w * e, axis=axis) * (w / s)
        yield softmax * (w / softmax)
        yield w * softmax * (1 / softmax)
        yield (1 / softmax) * (softmax * 1)
        yield e * (w / (1 + e))
        yield m.exp(w) * (x / (1 + m.exp(w)))

    got = gd.function([x], list(cases(gd, x, gd.softmax(x))))(v)
    want = list(cases(np, v, weights(v, 1)))
    assert len(got) == len(want) == 23
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape and np.allclose(a, b, rtol=1e-12), i
        checked()


def test_powers_of_what_is_rewritten_are_not_taken_for_one_another():
    """What a rule makes on the operands as written is made again on the rewritten ones, and must not give its id to what comes after it."""
    x = gd.input("x", (6,))
    a = np.linspace(0.2, 6.0, 6)
    softplus, sigmoid = np.log1p(np.exp(a)), 1 / (1 + np.exp(-a))
    for s, value in ((gd.log1p(gd.exp(x)), softplus), (1 / (1 + gd.exp(-x)), sigmoid), (gd.exp(x) / (1 + gd.exp(x)), sigmoid)):
        for powers in itertools.permutations((0.5, 3.0, 2.0, -1.0, 1.5)):
            outputs = [s ** p for p in powers]
            for y, p in zip(gd.function([x], outputs)(a), powers, strict=True):
                np.testing.assert_allclose(y, value ** p, rtol=1e-13)
                checked()
        ratio = s ** 0.5 / s ** 3.0 + s ** 0.5 * s ** 3.0
        np.testing.assert_allclose(gd.function([x], ratio)(a), value ** -2.5 + value ** 3.5, rtol=1e-13)
    z = gd.input("z", (5, 3))
    b = np.random.default_rng(0).standard_normal((5, 3))
    p = np.exp(b) / np.exp(b).sum(1, keepdims=True)
    outputs = [gd.log1p(-gd.softmax(z)[:, k]) ** 3.0 for k in range(3)] + [gd.log(1 - gd.softmax(z)[:, k]) for k in range(3)]
    for y, want in zip(gd.function([z], outputs)(b), [np.log1p(-p[:, k]) ** n for n in (3, 1) for k in range(3)], strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-12)
        checked()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("build", [
    lambda z: gd.log(1 - gd.softmax(z)[:, 0]), lambda z: gd.log(1 - gd.softmax(z)[:, 2]), lambda z: gd.log1p(-gd.softmax(z)[:, 1]),
    lambda z: gd.log1p(-gd.softmax(z[:, :2])), lambda z: gd.log1p(-gd.softmax(z[:, :2])[:, 1])], ids=range(5))
def test_the_rest_to_a_probability_of_a_row_without_any(build, dtype):
    """softmax gives zeros there, and the logarithm of 1 is 0, which nothing changes; a NaN stays."""
    rows = np.array([[-np.inf] * 4, [0.0, 1.0, 2.0, -1.0], [-np.inf] * 4, [0.5, 0.0, -1.0, 800.0]], dtype)
    for sizes in ((4, 4), ("n", "m")):
        x = gd.input("x", sizes, dtype)
        y = build(x)
        g = gd.grad(gd.sum(y), x)
        for passes in (None, ()):
            f = gd.function([x], [y, g, gd.jvp(y, x, gd.ones_like(x)), gd.grad(gd.sum(g * g), x)], passes=passes)
            for result in f(rows):
                np.testing.assert_array_equal(result[::2], np.zeros_like(result[::2]))
                checked()
            assert np.isnan(f(np.where(np.eye(4) == 1, np.nan, rows).astype(dtype))[0][0]).any()
            checked()
