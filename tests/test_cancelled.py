"""Quotients in which exponentials cancel, written by hand: right where the exponentials overflow, in both modes, to any order."""
import random

import mpmath
import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.graph.walk import toposort

WITHOUT = ("merge", "algebra", "fold", "fuse", "in_place")
EXACT = {"exp": mpmath.exp, "log": mpmath.log, "log1p": mpmath.log1p, "sin": mpmath.sin, "cos": mpmath.cos, "negative": lambda a: -a,
         "reciprocal": lambda a: 1 / a, "square": lambda a: a * a, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b,
         "multiply": lambda a, b: a * b, "zmul": lambda a, b: a * b, "zmul_either": lambda a, b: a * b, "divide": lambda a, b: a / b,
         "tanh": mpmath.tanh, "sigmoid": lambda a: 1 / (1 + mpmath.exp(-a)), "sigmoid_grad": lambda a: 1 / (1 + mpmath.exp(-a)) / (1 + mpmath.exp(a))}


def exact(outputs, x, value, digits=400):
    """The nodes' values for an input, in so many digits, as float64."""
    values = {}
    lift = np.frompyfunc(lambda v: mpmath.mpf(float(v)), 1, 1)
    with mpmath.workdps(digits):
        for node in toposort(outputs):
            name, inputs = node.op.name, [values[id(i)] for i in node.inputs]
            if node is x or name == "constant":
                result = lift(value if node is x else node.attrs["value"])
            elif name in EXACT:
                result = np.frompyfunc(EXACT[name], len(inputs), 1)(*inputs)
            elif name == "sum":
                result = np.sum(inputs[0], axis=node.attrs["axes"], keepdims=node.attrs["keepdims"])
            elif name == "broadcast_to":
                result = np.broadcast_to(inputs[0], node.shape)
            elif name == "reshape":
                result = np.reshape(inputs[0], node.shape)
            else:
                result = {"transpose": np.transpose}[name](inputs[0], node.attrs["axes"])
            values[id(node)] = np.asarray(result, object).reshape(node.shape)
        return [values[id(o)].astype("float64") for o in outputs]


def softmax(x, axis=-1):
    e = gd.exp(x)
    return e / gd.sum(e, axis=axis, keepdims=True)


def expected(x):
    e = gd.exp(x)
    return gd.sum(gd.constant(np.array([[0.5, -1.0, 2.0]], x.dtype)) * e, axis=1) / gd.sum(e, axis=1)


FORMS = {
    "softmax of rows": softmax, "softmax of columns": lambda x: softmax(x, 0), "softmax of all": lambda x: softmax(x, None),
    "softmax by a product": lambda x: gd.exp(x) * (1 / gd.sum(gd.exp(x), axis=1, keepdims=True)),
    "softmax of turned rows": lambda x: (gd.exp(x).T / gd.sum(gd.exp(x), axis=1)).T,
    "softmax beside something small": lambda x: gd.exp(x) / (gd.sum(gd.exp(x), axis=1, keepdims=True) + 1e-3),
    "its square": lambda x: softmax(x) ** 2,
    "expected value": expected, "by something else on the way": lambda x: gd.exp(x) / (x * x + 1) / gd.sum(gd.exp(x), axis=1, keepdims=True),
    "log sum exp": lambda x: gd.log(gd.sum(gd.exp(x), axis=1)), "log mean exp": lambda x: gd.log(gd.mean(gd.exp(x), axis=0)),
    "log of a sum and something small": lambda x: gd.log(gd.sum(gd.exp(x), axis=1) + 1e-3),
    "softplus": lambda x: gd.log(1 + gd.exp(x)), "log1p": lambda x: gd.log1p(gd.exp(x)),
    "sigmoid": lambda x: gd.exp(x) / (1 + gd.exp(x)), "sigmoid of 2 x": lambda x: gd.exp(2 * x) / (gd.exp(2 * x) + 3.0),
    "logistic density": lambda x: gd.exp(x) / (1 + gd.exp(x)) ** 2,
}


def derivatives(y, x, shape):
    """The value, a gradient, products with the Hessian in two ways, and a tangent."""
    ramp = np.linspace(-1.0, 2.0, int(np.prod(shape))).reshape(shape).astype(x.dtype)
    t, c = gd.constant(ramp), gd.constant(np.linspace(0.5, 1.5, int(np.prod(y.shape))).reshape(y.shape).astype(x.dtype))
    g = gd.grad(gd.sum(y * c), x)
    return [y, g, gd.grad(gd.sum(g * t), x), gd.jvp(g, x, t), gd.jvp(y, x, t)]


@pytest.mark.parametrize("scale", [1.0, 40.0, 300.0, 3000.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMS)
def test_forms_written_by_hand(name, dtype, scale):
    shape = (2, 3)
    value = (scale * np.array([[1.0, -0.3, 0.7], [-0.2, -0.9, -0.5]])).astype(dtype)
    x = gd.input("x", shape, dtype)
    outputs = derivatives(FORMS[name](x), x, shape)
    got, want = gd.function([x], outputs)(value), exact(outputs, x, value, 3000 if scale > 300 else 400)
    eps = np.finfo(dtype).eps
    for order, (a, b) in enumerate(zip(got, want, strict=True)):
        assert np.all(np.abs(a - b) <= 300 * eps * (1 + np.abs(b).max())), (order, a, b)
        checked()


@pytest.mark.parametrize("scale", [1.0, 300.0, 3000.0])
def test_the_third_derivative(scale):
    value = scale * np.array([1.0, -0.3, 0.7])
    x = gd.input("x", (3,))
    for y in (gd.log(gd.sum(gd.exp(x))), gd.sum(gd.log(1 + gd.exp(x)))):
        g = y
        for _ in range(3):
            g = gd.grad(gd.sum(g * gd.constant(np.array([0.3, -1.0, 0.8])) if g.shape else g), x)
        np.testing.assert_allclose(gd.function([x], g)(value), exact([g], x, value, 4000)[0], rtol=1e-12, atol=1e-12)
        checked()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_naive_cross_entropy(dtype):
    """-log(softmax) where the softmax of other elements is zero: its gradient is softmax - target."""
    x = gd.input("x", (2, 3), dtype)
    target = np.array([[0, 1, 0], [1, 0, 0]], dtype)
    value = np.array([[20, 1, 2], [900, 0, -900]], dtype)
    loss = -gd.sum(gd.constant(target) * gd.log(softmax(x)))
    g = gd.function([x], gd.grad(loss, x))(value)
    v = value.astype("float64")
    e = np.exp(v - v.max(axis=1, keepdims=True))
    np.testing.assert_allclose(g, e / e.sum(axis=1, keepdims=True) - target, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)
    checked()


def test_programs_of_forms_written_by_hand():
    x = gd.input("x", (4, 50))
    for y, names in [(softmax(x), ["softmax"]), (softmax(x, 0), ["softmax"]), (gd.log(softmax(x)), ["log_softmax"]),
                     (gd.log(gd.sum(gd.exp(x), axis=1)), ["logsumexp"]), (gd.exp(x) / (gd.exp(x) + 1), ["sigmoid"]),
                     (gd.log(1 + gd.exp(x)), ["softplus"])]:
        assert [op for op, *_ in gd.function([x], y).program.instrs] == names
        checked()


def test_what_does_not_cancel_stays_as_it_is_written():
    """Sums along another axis, weights, differences, one exponential under two sums: values as without the pass, whatever lies where."""
    rng = np.random.default_rng(4)
    v, w = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    x = gd.input("x", (3, 3))
    e, rows, columns = gd.exp(x), gd.sum(gd.exp(x), axis=1), gd.sum(gd.exp(x), axis=0)
    outputs = [e / rows, e / columns, e.T / rows, (e / rows).T / columns, e * e / rows, e / (rows - columns), e / (1 - e), 1 / e, gd.log(e),
               e / gd.sum(e * w, axis=1), gd.sum(e / columns, axis=0), gd.sum(e.T / columns, axis=1), e[0] / rows, e / rows[0], e / e.T, rows / columns,
               gd.sqrt(e) / rows, gd.maximum(e, 1) / rows, gd.reshape(e, (9,)) / gd.sum(e), gd.reshape(gd.reshape(e, (9,)) / gd.sum(e), (3, 3)),
               (e + w) / rows, (w - e) / (2 + e), (e + w) * (1 / rows) * (e + 1), e / (e + rows), (1 + e) / (1 + rows), e / (1e-3 + rows) + e / rows]
    for got, want in zip(gd.function([x], outputs)(v), gd.function([x], outputs, passes=WITHOUT)(v), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
        checked()


def drawn_program(choose, shape, x, weights):
    """A random number made of exponentials, one kind of divisor, and elementwise work beside them."""
    axis = choose.choice([None, *range(len(shape))])
    e = gd.exp(x)
    weighted = gd.sum(e * weights[0], axis=axis, keepdims=True)
    divisor = choose.choice([gd.sum(e, axis=axis, keepdims=True), 1 + e, gd.sum(e, axis=axis, keepdims=True) + 1e-3])
    pool = [weights[1], x * 0.01]
    for _ in range(choose.randint(1, 4)):
        top, other = choose.choice([e, e, weighted]), choose.choice(pool)
        pool.append(choose.choice([lambda: top / divisor, lambda: top * (1 / divisor), lambda: (other * top) / divisor,  # noqa: B023
                                   lambda: other * (1 / divisor) * top, lambda: (1 / divisor) * (other * e + e)])())  # noqa: B023
        pool.append(choose.choice([pool[-1] * other, pool[-1] - other, gd.sin(pool[-1]), gd.sum(pool[-1], axis=axis, keepdims=True)]))
    y = gd.sum(pool[-1] * choose.choice(pool))
    return y + gd.sum(gd.log(divisor)) if choose.random() < 0.4 else y


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    """In float32, where exponentials overflow, against many digits: what was right stays right, and at ordinary values all is."""
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    shape = tuple(choose.choice([1, 2, 3, 3]) for _ in range(choose.randint(1, 3)))
    x = gd.input("x", shape, "float32")
    y = drawn_program(choose, shape, x, [gd.constant(rng.standard_normal(shape).astype("float32")) for _ in range(2)])
    g = gd.grad(y, x)
    outputs = [y, g, gd.jvp(y, x, gd.ones_like(x)), gd.grad(gd.sum(g * weights_of(shape)), x)]
    for scale in (1, 30, 150):
        value = (scale * rng.standard_normal(shape)).astype("float32")
        want = exact(outputs, x, value)
        with_pass, without = gd.function([x], outputs)(value), gd.function([x], outputs, passes=WITHOUT)(value)
        for new, old, right in zip(with_pass, without, want, strict=True):
            asked = np.abs(right) < 1e15
            close = 2e-3 * (1 + np.abs(right[asked]).max(initial=0))
            was_right = np.abs(old - right) <= close
            assert np.all((np.abs(new - right) <= close)[asked & was_right]), (scale, new, old, right)
            checked()


def weights_of(shape):
    return gd.constant(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype("float32"))


SIGMOIDS = {
    "log": (lambda x, t: gd.log(gd.sigmoid(x)), lambda x, t: gd.log_sigmoid(x)),
    "log of the rest": (lambda x, t: gd.log(1 - gd.sigmoid(x)), lambda x, t: gd.log_sigmoid(-x)),
    "cross entropy": (lambda x, t: -(t * gd.log(gd.sigmoid(x)) + (1 - t) * gd.log(1 - gd.sigmoid(x))), lambda x, t: gd.softplus(x) - t * x),
    "focal": (lambda x, t: -(1 - gd.sigmoid(x)) ** 2 * gd.log(gd.sigmoid(x)), lambda x, t: -gd.sigmoid(-x) ** 2 * gd.log_sigmoid(x)),
    "of minus": (lambda x, t: gd.log(gd.sigmoid(-x)) * t, lambda x, t: -gd.softplus(x) * t),
    "masked": (lambda x, t: gd.where(t > 0.2, gd.log(gd.sigmoid(x)), 0.0), lambda x, t: gd.where(t > 0.2, gd.log_sigmoid(x), 0.0)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SIGMOIDS)
def test_logarithms_of_sigmoids_and_of_the_rest_to_1(name, dtype):
    """As one writes them, against the built-in forms: value, both modes, and second derivatives in all three ways."""
    written, good = SIGMOIDS[name]
    big = 700.0 if dtype == "float64" else 90.0
    x, t = gd.input("x", (11,), dtype), gd.input("t", (11,), dtype)
    at = np.array([-2 * big, -big, -40, -17.5, -1, 0, 0.5, 20, 40, big, 2 * big], dtype)
    targets = np.array([1, 0, 0.3, 1, 0, 0.5, 1, 0.25, 1, 0, 0], dtype)
    v = np.linspace(-1, 2, 11).astype(dtype)
    results = []
    for f in (written, good):
        y = f(x, t)
        s = gd.sum(y)
        g = gd.grad(s, x)
        h = gd.grad(gd.sum(g * v), x)
        results.append(gd.function([x, t], [y, g, gd.jvp(y, x, v), h, gd.hvp(s, x, v), gd.jvp(gd.jvp(y, x, v), x, v)])(at, targets))
    for got, want in zip(*results, strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got, want, rtol=2e-13 if dtype == "float64" else 2e-5, atol=1e-15 if dtype == "float64" else 1e-6)
        checked()


def test_a_sigmoid_that_neither_divides_nor_has_a_logarithm_stays_as_it_is():
    x = gd.input("x", (5,))
    f = gd.function([x], [1 - gd.sigmoid(x), gd.grad(gd.sum(gd.sigmoid(x) ** 2), x)])
    listing = str(f.program)
    assert "subtract" in listing and "softplus" not in listing and listing.count("= sigmoid i") == 1
    checked()
