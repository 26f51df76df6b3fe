"""Softmaxes and sigmoids that meet: where a logarithm of one is right, so are its derivatives, whatever else is in the function; also of
elements that were picked before the logarithm was taken."""
import random

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.passes import cancel

L, E = gd.log, gd.exp
LABELS, MASK = np.array([0, 2, 1]), np.array([[True, False, True], [True, True, False], [False, True, True]])


class Written:
    """A softmax or a sigmoid as one writes it, and its logarithms."""

    def __init__(self, p):
        self.p, self.rest = p, 1 - p

    @property
    def log(self):
        return L(self.p)

    @property
    def log_rest(self):
        return L(1 - self.p)


class Good:
    """The same by the functions that are right everywhere."""

    def __init__(self, p, rest, log, log_rest=None):
        self.p, self.rest, self.log, self.log_rest = p, rest, log, log_rest


def softmax(z):
    return Good(gd.softmax(z), 1 - gd.softmax(z), gd.log_softmax(z))


def sigmoid(z):
    return Good(gd.sigmoid(z), gd.sigmoid(-z), gd.log_sigmoid(z), gd.log_sigmoid(-z))


KINDS = {
    "softmax": (gd.softmax, softmax), "hand softmax": (lambda z: E(z) / gd.sum(E(z), axis=-1, keepdims=True), softmax),
    "sigmoid": (gd.sigmoid, sigmoid), "1 / (1 + exp -z)": (lambda z: 1 / (1 + E(-z)), sigmoid),
    "exp z / (1 + exp z)": (lambda z: E(z) / (1 + E(z)), sigmoid),
}
PICKS = {
    "[rows, labels]": lambda p, fill: p[np.arange(3), LABELS], "[:, 0]": lambda p, fill: p[:, 0], "[::-1, 1:]": lambda p, fill: p[::-1, 1:],
    "take": lambda p, fill: gd.take(p, np.array([0, 0, 2]), axis=1), "take_along_axis": lambda p, fill: gd.take_along_axis(p, LABELS[:, None], axis=1),
    "reshape": lambda p, fill: gd.reshape(p, (9,))[2:], "T": lambda p, fill: p.T, "where": lambda p, fill: gd.where(MASK, p, fill),
    "where not": lambda p, fill: gd.where(MASK, fill, p), "split": lambda p, fill: gd.split(p, 3, axis=1)[1],
}
# Of two things of a kind p and q, a weight and a logarithm for the quotients.
TERMS = {
    "p log q": lambda p, q, c: p.p * q.log, "relative entropy": lambda p, q, c: p.p * (p.log - q.log), "(1 - p) log q": lambda p, q, c: p.rest * q.log,
    "c log q": lambda p, q, c: c * q.log, "log p log q": lambda p, q, c: 0.01 * p.log * q.log, "p q": lambda p, q, c: p.p * q.p,
    "(p - q)^2 log q": lambda p, q, c: gd.square(p.p - q.p) * q.log,
    "log(p q)": lambda p, q, c: c * (L(p.p * q.p) if isinstance(p, Written) else p.log + q.log),
    "log(p / q)": lambda p, q, c: c * (L(p.p / q.p) if isinstance(p, Written) else p.log - q.log),
    "kl": lambda p, q, c: gd.losses.kl(p.p, q.p) if isinstance(p, Written) else gd.sum(p.p * (p.log - q.log)) / 3,
}


def outputs(v, zs, second):
    """The value, gradients, a tangent and, by both modes over reverse, products with the Hessian."""
    v, zs = gd.sum(v), list(zs)
    t = [gd.constant(np.linspace(-1, 1.5 + k, 9).reshape(3, 3).astype(zs[0].dtype)) for k in range(len(zs))]
    g = gd.grad(v, zs, unconnected="zero")
    some = [v, *g, gd.jvp(v, zs, t)]
    if second:
        some += [gd.jvp(x, zs, t) for x in g] + gd.grad(sum(gd.sum(x * u) for x, u in zip(g, t, strict=True)), zs, unconnected="zero")
    return some


def compare(written, good, dtype, at, second=True):
    """All in one function and one by one, against the same from good forms in float64."""
    zs, exact = [[gd.input(f"z{i}", (3, 3), d) for i in range(len(at))] for d in (dtype, "float64")]
    asked, right = outputs(written(*zs), zs, second), outputs(good(*exact), exact, second)
    want = gd.function(exact, right)(*[a.astype("float64") for a in at])
    together = gd.function(zs, asked)(*at)
    for k, (node, a, b) in enumerate(zip(asked, together, want, strict=True)):
        for got in (a, gd.function(zs, node)(*at)):
            np.testing.assert_allclose(got, b, rtol=0, atol=(2e-4 if dtype == "float32" else 1e-11) * max(1, np.abs(b).max()), err_msg=f"output {k}")
            checked()


def drawn(dtype, scale, n=2, seed=0):
    draw = np.random.default_rng(seed)
    return [(scale * draw.standard_normal((3, 3))).astype(dtype) for _ in range(n)]


SPREADS = [("float32", 20.0), ("float32", 120.0), ("float64", 700.0), ("float64", 1400.0)]


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("kind", KINDS)
def test_two_of_a_kind(kind, term, dtype, scale):
    p, good = KINDS[kind]
    c = np.linspace(0.2, 1, 9).reshape(3, 3).astype(dtype)
    compare(lambda x, y: TERMS[term](Written(p(x)), Written(p(y)), c), lambda x, y: TERMS[term](good(x), good(y), c.astype("float64")), dtype,
            drawn(dtype, scale))


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_logarithm_of_what_was_picked(kind, pick, dtype, scale):
    p, good = KINDS[kind]
    f = PICKS[pick]
    compare(lambda x: -L(f(p(x), 1.0)) * 0.5, lambda x: -f(good(x).log, 0.0) * 0.5, dtype, drawn(dtype, scale, 1))
    compare(lambda x, y: f(p(y), 0.0) * L(f(p(x), 1.0)), lambda x, y: f(good(y).p, 0.0) * f(good(x).log, 0.0), dtype, drawn(dtype, scale))


@pytest.mark.parametrize("base", ["log2", "log10"])
def test_other_bases(base):
    f = getattr(gd, base)
    compare(lambda x: f(gd.softmax(x)[:, 0]) + f(gd.sigmoid(x[:, 1])),
            lambda x: (gd.log_softmax(x)[:, 0] + gd.log_sigmoid(x[:, 1])) / np.log(int(base[3:])), "float64", drawn("float64", 900.0, 1))


WEIGHTS = {"1 + exp": lambda x: 1 + E(x), "gate": lambda x: 1 / (1 + E(-x)), "softplus": lambda x: L(1 + E(x))}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_exponentials_with_1_beside_a_logarithm(kind, weight):
    """The gradient of the logarithm's argument was 0."""
    p, good = KINDS[kind]
    w = WEIGHTS[weight]
    right = {"1 + exp": w, "gate": gd.sigmoid, "softplus": gd.softplus}[weight]
    at = [np.array([[0, -5, 2]] * 3, "float32"), np.array([[-120, 0, 60]] * 3, "float32")]
    compare(lambda x, y: w(x) * L(p(y)), lambda x, y: right(x) * good(y).log, "float32", at)
    compare(lambda x, y: w(x) * L(1 + E(-y)), lambda x, y: right(x) * gd.softplus(-y), "float32", at)


@pytest.mark.parametrize("kind", ["sigmoid", "1 / (1 + exp -z)", "exp z / (1 + exp z)"])
@pytest.mark.parametrize(("dtype", "scale"), [("float32", 20.0), ("float32", 90.0), ("float64", 40.0), ("float64", 900.0)])
def test_binary_cross_entropy_as_one_writes_it(kind, dtype, scale):
    p = KINDS[kind][0]
    t = np.linspace(0, 1, 9).reshape(3, 3).astype(dtype)
    compare(lambda x: -(t * L(p(x)) + (1 - t) * L(1 - p(x))), lambda x: gd.softplus(x) - t.astype("float64") * x, dtype, drawn(dtype, scale, 1),
            second="/ (1 + exp z)" not in kind)
    compare(lambda x, y: -(p(y) * L(p(x)) + (1 - p(y)) * L(1 - p(x))), lambda x, y: gd.softplus(x) - gd.sigmoid(y) * x, dtype, drawn(dtype, scale),
            second="/ (1 + exp z)" not in kind)


def program(choose, zs, good):
    """A sum of one to three terms over one to three softmaxes and sigmoids."""
    some = []
    for _ in range(choose.randint(1, 3)):
        kind, z = choose.choice(list(KINDS)), choose.choice(zs)
        some.append(KINDS[kind][1](z) if good else Written(KINDS[kind][0](z)))
    v = 0.0
    for _ in range(choose.randint(1, 3)):
        c = np.round(np.random.default_rng(choose.randint(0, 99)).random((3, 3)) + 0.1, 2).astype(zs[0].dtype)
        v = v + choose.choice([1, 1, -1]) * gd.sum(TERMS[choose.choice(list(TERMS))](choose.choice(some), choose.choice(some), c))
    return v


@pytest.mark.parametrize("seed", range(80))
def test_random_programs(seed):
    dtype, scale = SPREADS[seed % 4]
    n = 1 + seed % 3
    compare(lambda *zs: program(random.Random(seed), zs, False), lambda *zs: program(random.Random(seed), zs, True), dtype, drawn(dtype, scale, n, seed),
            second=False)


def test_gates_that_only_meet_take_one_round(monkeypatch):
    """What was dropped does no harm where nothing would have cancelled: a recurrence of hand-written gates is walked once."""
    rounds = []
    run = cancel.Rewriting.run
    monkeypatch.setattr(cancel.Rewriting, "run", lambda self, *graph: rounds.append(self) or run(self, *graph))
    x, w = gd.input("x", (4,)), gd.input("w", (3, 4))
    h = c = x
    for _ in range(10):
        f, i, o = [1 / (1 + E(-(w[k] * h + x))) for k in range(3)]
        c = f * c + i * gd.tanh(h)
        h = o * gd.tanh(c)
    gd.function([x, w], [gd.sum(h), gd.grad(gd.sum(h), w)])
    assert len(rounds) == 1
    rounds.clear()
    zs = [gd.input(f"z{i}", (4,)) for i in range(12)]
    p = [gd.softmax(z) for z in zs]
    v = sum(gd.sum(a * (L(a) - L(b))) for a in p for b in p if a is not b)
    gd.function(zs, [v, *gd.grad(v, zs)])
    assert len(rounds) == 1
    checked(2)


def test_xlogy_keeps_what_is_missing():
    """x log y is 0 where x is 0, but NaN where y is; a choice of the finite ones has a silent gradient."""
    x, y = gd.input("x", (3, 3)), gd.input("y", (3, 3))
    v = gd.xlogy(x, gd.softmax(y))
    at = np.array([[0.0, 0.5, 1], [0, 1, 2], [0, 0, 1]]), np.array([[-900.0, 0, 900], [np.nan, 0, 1], [0, -np.inf, 2]])
    got, g = gd.function([x, y], [v, gd.grad(gd.sum(gd.where(gd.isfinite(v), v, 0.0)), y)])(*at)
    want = gd.function([x, y], v, passes=())(*at)
    assert np.isnan(got[1]).all() and np.isnan(want[1]).all() and (got[2, :2] == 0).all()
    np.testing.assert_array_equal(got[0], [0, -450, 0])
    np.testing.assert_allclose(g[0], [0, 0.5, -0.5], atol=1e-12)
    checked(3)


@pytest.mark.parametrize("argument", [lambda y: y, lambda y: 2.0 * y, lambda y: 1.0 - y, lambda y: -y])
@pytest.mark.parametrize("make", [lambda p: gd.log1p(-p), lambda p: gd.log(p) - gd.log1p(-p), lambda p: -p * gd.log(p) + gd.log1p(-p)])
def test_a_slope_that_comes_before_its_sigmoid(make, argument):
    """Forward mode alone: the slope of sigmoid(x) runs before sigmoid(-x), which divides."""
    y = gd.input("y")
    v = make(gd.sigmoid(argument(y)))
    j = gd.jvp(v, y, 1.0)
    second = gd.jvp(j, y, 1.0)
    for at in (2.0, -3.0, 0.5):
        got = [float(gd.function([y], n)(at)) for n in (j, second)]
        h = 1e-5
        plain = gd.function([y], v, passes=())
        slope = (float(plain(at + h)) - float(plain(at - h))) / (2 * h)
        assert abs(got[0] - slope) < 1e-6 * max(1.0, abs(slope))
        assert abs(got[0] - float(gd.function([y], gd.grad(v, y))(at))) < 1e-12 * max(1.0, abs(got[0]))
        curve = gd.function([y], j, passes=())
        assert abs(got[1] - (float(curve(at + h)) - float(curve(at - h))) / (2 * h)) < 1e-5 * max(1.0, abs(got[1]))
        checked(3)


@pytest.mark.parametrize("dtype, low", [("float32", -46.0), ("float64", -360.0)])
def test_a_factor_of_another_kind_keeps_a_quotient_as_it_is_written(dtype, low):
    """The logarithm of a sigmoid over what is small in its own way: the derivative must not divide by the square of that."""
    y = gd.input("y", (4,), dtype)
    p = gd.exp(y - gd.logsumexp(y))
    for q in (gd.sigmoid(y), gd.exp(y) / (1 + gd.exp(y)), gd.softmax(y)):
        g = gd.grad(gd.sum(gd.log(q / p)), y)
        a = np.array([low, 0, 1, -20], dtype)
        got, want = gd.function([y], g)(a), gd.function([y], g, passes=())(a)
        assert np.isfinite(want).all()
        np.testing.assert_allclose(got, want, rtol=1e-4 if dtype == "float32" else 1e-10, atol=1e-4 if dtype == "float32" else 1e-12)
        checked(4)


def over(axis):
    """A softmax over an axis or all, by hand and from good forms."""
    def good(z):
        if axis is None:
            return Good(gd.softmax(z.reshape(9)).reshape(3, 3), 1 - gd.softmax(z.reshape(9)).reshape(3, 3), gd.log_softmax(z.reshape(9)).reshape(3, 3))
        return Good(gd.softmax(z, axis=axis), 1 - gd.softmax(z, axis=axis), gd.log_softmax(z, axis=axis))

    def by_hand(z, e=None):
        e = E(z) if e is None else e
        return e / gd.sum(e, axis=axis, keepdims=True)
    return by_hand, good


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("axes", [(0, 1), (1, None), (None, None)])
def test_softmaxes_over_different_axes_of_the_same_scores(axes, term, dtype, scale):
    """The exponentials of one must not cancel with the sums of the other: what is left would be a finite gradient that is wrong."""
    (p, good_p), (q, good_q) = map(over, axes)
    c = np.linspace(0.2, 1, 9).reshape(3, 3).astype(dtype)

    def written(x):
        e = E(x)
        return TERMS[term](Written(p(x, e)), Written(q(x, e)), c)
    compare(written, lambda x: TERMS[term](good_p(x), good_q(x), c.astype("float64")), dtype, drawn(dtype, scale, 1), second=axes[0] == axes[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_softmax_and_a_sigmoid_of_the_same_scores(dtype):
    c = np.linspace(0.2, 1, 9).reshape(3, 3).astype(dtype)
    for axis in (0, 1, None):
        p, good = over(axis)

        def written(x, p=p):
            e = E(x)
            return c * p(x, e) * (e / (1 + e)) + gd.sum(c * L(e / (1 + e)))
        compare(written, lambda x, good=good: c.astype("float64") * good(x).p * gd.sigmoid(x) + gd.sum(c.astype("float64") * gd.log_sigmoid(x)), dtype,
                drawn(dtype, 120.0 if dtype == "float32" else 1400.0, 1), second=False)


BEFORE = {
    "[:, 0]": lambda p: p[:, 0], "reshape": lambda p: p.reshape(-1), "T": lambda p: p.T, "[::-1, 1:]": lambda p: p[::-1, 1:],
    "broadcast": lambda p: gd.broadcast_to(p, (2, 3, 3)), "take": lambda p: gd.take(p, np.array([0, 0, 2]), axis=1),
    "[rows, labels]": lambda p: p[np.arange(3), LABELS], "as it is": lambda p: p, "T[0]": lambda p: p.T[0],
}


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("pick", BEFORE)
@pytest.mark.parametrize("kind", ["sigmoid", "1 / (1 + exp -z)", "exp z / (1 + exp z)"])
def test_the_rest_to_one_of_what_was_picked(kind, pick, dtype, scale):
    """The output of a net, (batch, 1), is reshaped before somebody writes the binary cross entropy."""
    p, pick = KINDS[kind][0], BEFORE[pick]
    c = 0.7

    def written(z, y):
        a, b = pick(p(z)), pick(p(-y))
        return gd.sum(c * L(1 - a)) + gd.sum(gd.log1p(-b)) - gd.sum((1 - c) * L(a) + c * L(1 - a))

    def good(z, y):
        a, b = pick(gd.log_sigmoid(-z)), pick(gd.log_sigmoid(y))
        return gd.sum(c * a) + gd.sum(b) - gd.sum((1 - c) * pick(gd.log_sigmoid(z)) + c * a)
    compare(written, good, dtype, drawn(dtype, scale), second=False)


CASTS = {
    "log of a cast": lambda p, c: c * L(p), "relative entropy": lambda p, c: c * L(c / p), "p log p": lambda p, c: p * L(p),
    "1 - p": lambda p, c: c * L(1 - p), "log1p": lambda p, c: c * gd.log1p(-p), "picked": lambda p, c: c[:, 0] * L(p[np.arange(3), LABELS]),
    "a quotient": lambda p, c: c / p * gd.stop_gradient(p), "xlogy": lambda p, c: gd.xlogy(c, p),
}


@pytest.mark.parametrize(("kind", "term"), [(k, t) for k in KINDS for t in CASTS if "softmax" not in k or t not in ("1 - p", "log1p")])
def test_targets_of_another_dtype(kind, term):
    """NumPy's float64 targets make the probabilities of float32 logits float64 before the logarithm."""
    (a,) = drawn("float32", 6.0 if term == "a quotient" else 60.0, 1)
    c = np.linspace(0.2, 1, 9).reshape(3, 3)
    z, w = gd.input("z", (3, 3), "float32"), gd.input("w", (3, 3))
    v, exact = [gd.sum(CASTS[term](p, c)) for p in (KINDS[kind][0](z).astype("float64"), KINDS[kind][0](w))]
    got = gd.function([z], [v, gd.grad(v, z), gd.jvp(v, z, gd.constant(c.astype("float32")))])(a)
    want = gd.function([w], [exact, gd.grad(exact, w), gd.jvp(exact, w, gd.constant(c.astype("float32").astype("float64")))])(a.astype("float64"))
    assert [x.dtype for x in got][:2] == ["float64", "float32"]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5 * max(1, np.abs(y).max()))
        checked(x.size)


@pytest.mark.parametrize("pick", [gd.diagonal, gd.diag, lambda p: gd.einsum("ii->i", p), lambda p: gd.diagonal(p[:, ::-1], 1)])
def test_a_diagonal_is_picked_too(pick):
    """The loss of pairs that belong together, -log(diagonal(softmax)): as if the logarithm had been taken first."""
    s = gd.input("s", (3, 3), "float32")
    e = gd.exp(s)
    for p in (gd.softmax(s, axis=1), e / gd.sum(e, axis=1, keepdims=True)):
        results = []
        for y in (-gd.log(pick(p)), -pick(gd.log_softmax(s, axis=1))):
            g = gd.grad(gd.sum(y), s)
            results.append(gd.function([s], [y, g, gd.jvp(y, s, gd.constant(np.eye(3, dtype="f4"))), gd.grad(gd.sum(g * g), s)]))
        for scale in (1, 40, 200):
            d = (np.random.default_rng(3).standard_normal((3, 3)) * scale).astype("f4")
            for got, want in zip(results[0](d), results[1](d), strict=True):
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
                checked()


@pytest.mark.parametrize("log", [gd.log, gd.log2, gd.log10])
@pytest.mark.parametrize("inner", [gd.softmax, gd.checkpoint(gd.softmax)])
def test_second_derivatives_of_logarithms_of_any_base_out_of_a_checkpoint(inner, log):
    """The logarithms are those of log_softmax over its rows, whose second derivatives were NaN by base 2 and 10 behind a checkpoint."""
    x = gd.input("x", (3, 2))
    at = np.array([[508.8, 83.3], [0.17, -2152.7], [-617.9, -835.0]])
    base = log(gd.constant(np.e))
    results = []
    for y in (gd.log(gd.softmax(log(inner(x)), axis=0)), gd.log_softmax(gd.log_softmax(x) * base, axis=0)):
        g = gd.grad(gd.sum(y * np.cos(np.arange(6)).reshape(3, 2)), x)
        results.append(gd.function([x], [y, g, gd.grad(gd.sum(g * np.linspace(0.5, 1.5, 6).reshape(3, 2)), x)])(at))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15 * np.abs(at).max())
        checked()


def test_scales_that_meet_all_along_a_loop_have_rounds_while_the_graph_is_small():
    """Probabilities of a step from those before, normalised again: eight rounds made five times the operations."""
    x = gd.input("x", (40, 4))
    p, total = gd.softmax(x[0]), 0.0
    for i in range(1, 40):
        e = gd.exp(x[i])
        q = e / gd.sum(e)
        p = gd.where(x[i] > 0, q * p, gd.roll(p, 1) * q)
        p = p / gd.sum(p)
        total = total + gd.log(p[i % 4])
    outputs = [total, gd.grad(total, x)]
    counts = [sum(len(attrs) if op == "fused" else 1 for op, _, _, attrs, *_ in gd.function([x], outputs, passes=passes).program.instrs)
              for passes in (None, ("merge", "algebra", "fold", "fuse", "in_place"))]
    assert counts[0] < 3 * counts[1]
    at = np.random.default_rng(0).standard_normal((40, 4))
    for a, b in zip(gd.function([x], outputs)(at), gd.function([x], outputs, passes=())(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
        checked()
