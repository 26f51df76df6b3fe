"""Logarithms of what softmaxes and sigmoids were put together to: as if the logarithms had been taken first, to second order."""
import random

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

L = gd.log
SPREADS = [("float32", 8.0), ("float32", 120.0), ("float64", 30.0), ("float64", 1400.0)]
WIDE = SPREADS[1::2]
MASK = np.array([[True, False, True], [True, True, False], [False, True, True]])
TAKEN = np.array([[0], [2], [1]])


def by_hand(z):
    e = gd.exp(z)
    return e / gd.sum(e, axis=-1, keepdims=True)


# (p, log p) and, of sigmoids, (1 - p, log(1 - p))
SOFTMAXES = {"softmax": gd.softmax, "e / sum e": by_hand, "checkpoint": gd.checkpoint(gd.softmax)}
SIGMOIDS = {"sigmoid": gd.sigmoid, "1 / (1 + exp -z)": lambda z: 1 / (1 + gd.exp(-z)), "exp z / (1 + exp z)": lambda z: gd.exp(z) / (1 + gd.exp(z))}
# Of p, q and what fills the rest (1, of which the logarithm is 0).
JOINED = {
    "stack": lambda p, q, one: gd.stack([p, q], axis=-1), "stack, first": lambda p, q, one: gd.stack([p, q]),
    "concatenate": lambda p, q, one: gd.concatenate([p, q], axis=1), "vstack": lambda p, q, one: gd.vstack([p, q, p]),
    "hstack of parts": lambda p, q, one: gd.hstack([p[:, 1:], q[:, :1]]), "columns": lambda p, q, one: gd.column_stack([p[:, 0], q[:, 1]]),
    "append": lambda p, q, one: gd.append(p, q[:1], axis=0),
    "with numbers": lambda p, q, one: gd.concatenate([p, np.full((3, 2), one, p.dtype.name)], axis=1),
    "roll": lambda p, q, one: gd.roll(p, 1, 1), "roll, two axes": lambda p, q, one: gd.roll(p, (1, -1), (0, 1)),
    "roll, flat": lambda p, q, one: gd.roll(p, 4),
    "pad": lambda p, q, one: gd.pad(p, ((0, 0), (1, 2)), constant_values=one), "set": lambda p, q, one: p.at[:, 1].set(one),
    "set another": lambda p, q, one: p.at[1:].set(q[:2]),
    "set in numbers": lambda p, q, one: gd.full((5, 4), one, p.dtype.name).at[1:4, ::2].set(q[:, :2]),
    "steps": lambda p, q, one: gd.stack([p[0], q[1], p[2]]), "stack picked": lambda p, q, one: gd.stack([p, q], axis=-1)[..., 1],
    "stack taken": lambda p, q, one: gd.take_along_axis(gd.stack([p[:, 0], q[:, 1], p[:, 2]], axis=-1), TAKEN, axis=1)[:, 0],
    "twice": lambda p, q, one: gd.concatenate([gd.concatenate([p, q], axis=1), q], axis=1),
    "of rolls": lambda p, q, one: gd.vstack([gd.roll(p, 1, 1), gd.roll(q, 1, 0)]),
    "edges": lambda p, q, one: gd.concatenate([p[:, :1], p, p[:, -1:]], axis=1), "turned": lambda p, q, one: gd.concatenate([p, q], axis=1).T[1:],
    "where": lambda p, q, one: gd.where(MASK, p, q),
}
SOME = ["stack", "steps", "roll", "pad", "set another", "stack taken"]


def outputs(v, zs):
    """Value, gradients, a tangent and products with the Hessian, by all pairs of modes."""
    c = gd.constant(np.cos(np.arange(v.size)).reshape(v.shape).astype(zs[0].dtype))
    t = [gd.constant(np.linspace(-1, 1.5 + k, 9).reshape(3, 3).astype(zs[0].dtype)) for k in range(len(zs))]
    s = gd.sum(v * c)
    g = gd.grad(s, zs, unconnected="zero")
    j = gd.jvp(v, zs, t)
    alone = gd.jvp(v, zs[0], t[0])              # the tangents of the other are zeros
    h = gd.grad(sum(gd.sum(x * u) for x, u in zip(g, t, strict=True)), zs, unconnected="zero")
    return [v, *g, j, alone, *[gd.jvp(x, zs, t) for x in g], *h, gd.jvp(j, zs, t)]


def compare(written, good, dtype, scale, seed=0, second=True, alone=True):
    """All in one function and (alone) one by one, against the same from good forms in float64."""
    draw = np.random.default_rng(seed)
    at = [(scale * draw.standard_normal((3, 3))).astype(dtype) for _ in range(2)]
    zs, exact = [[gd.input(f"z{i}", (3, 3), d) for i in range(2)] for d in (dtype, "float64")]
    asked, right = outputs(written(*zs), zs), outputs(good(*exact), exact)
    want = gd.function(exact, right)(*[a.astype("float64") for a in at])
    together = gd.function(zs, asked)(*at)
    for k, (node, a, b) in enumerate(zip(asked, together, want, strict=True)):
        if k > 4 and not second:
            break
        for got in (a, gd.function(zs, node)(*at)) if alone else (a,):
            np.testing.assert_allclose(got, b, rtol=0, atol=(2e-5 if dtype == "float32" else 1e-13) * max(1, np.abs(b).max()), err_msg=f"output {k}")
            checked()


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("join", JOINED)
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_the_logarithm_of_what_was_put_together(kind, join, dtype, scale):
    f = JOINED[join]
    p, log = (gd.softmax, gd.log_softmax) if kind == "softmax" else (gd.sigmoid, gd.log_sigmoid)
    compare(lambda x, y: L(f(p(x), p(y), 1.0)), lambda x, y: f(log(x), log(y), 0.0), dtype, scale)


# What is put takes the place of all.
WHOLE = {
    "set in ones": lambda p, q: gd.ones((3, 3), p.dtype.name).at[:].set(p), "set in itself": lambda p, q: p.at[0:3].set(p),
    "set in another": lambda p, q: q.at[:].set(p), "nothing behind": lambda p, q: gd.concatenate([p, q[:0]]),
    "nothing before": lambda p, q: gd.concatenate([q[:, :0], p], axis=1), "of one": lambda p, q: gd.concatenate([p]),
    "a batch of one": lambda p, q: gd.zeros((1, 3, 3), p.dtype.name).at[0].set(p)[0], "backwards": lambda p, q: q.at[::-1].set(p)[::-1],
    "twice": lambda p, q: gd.ones((1, 3, 3), p.dtype.name).at[0].set(p).at[0].set(p)[0], "no roll": lambda p, q: gd.roll(p, 3, 1),
    "no pad": lambda p, q: gd.pad(p, ((0, 0), (0, 0)), constant_values=1),
}


@pytest.mark.parametrize(("dtype", "scale"), WIDE)
@pytest.mark.parametrize("join", WHOLE)
@pytest.mark.parametrize("kind", [*SOFTMAXES, *SIGMOIDS])
def test_a_piece_that_is_all(kind, join, dtype, scale):
    """The value was right, and the gradient zeros or NaN: nothing cuts the cotangent of such a piece out."""
    f = WHOLE[join]
    p, log = (SOFTMAXES[kind], gd.log_softmax) if kind in SOFTMAXES else (SIGMOIDS[kind], gd.log_sigmoid)
    compare(lambda x, y: L(f(p(x), p(y))), lambda x, y: log(x), dtype, scale, alone=False)


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("join", SOME)
@pytest.mark.parametrize("kind", [*SOFTMAXES, *SIGMOIDS])
def test_other_spellings(kind, join, dtype, scale):
    f = JOINED[join]
    p, log = (SOFTMAXES[kind], gd.log_softmax) if kind in SOFTMAXES else (SIGMOIDS[kind], gd.log_sigmoid)
    compare(lambda x, y: L(f(p(x), p(y), 1.0)), lambda x, y: f(log(x), log(y), 0.0), dtype, scale, alone=False)


@pytest.mark.parametrize(("dtype", "scale"), WIDE)
@pytest.mark.parametrize("join", JOINED)
@pytest.mark.parametrize("kind", ["sigmoid", "1 / (1 + exp -z)"])
def test_both_of_two_classes(kind, join, dtype, scale):
    """stack([1 - p, p]) and its like."""
    f, p = JOINED[join], SIGMOIDS[kind]
    compare(lambda x, y: L(f(1 - p(x), p(x), 1.0)) + L(f(p(y), 1 - p(x), 1.0)),
            lambda x, y: f(gd.log_sigmoid(-x), gd.log_sigmoid(x), 0.0) + f(gd.log_sigmoid(y), gd.log_sigmoid(-x), 0.0), dtype, scale, alone=False,
            second=(kind, join) != ("1 / (1 + exp -z)", "where"))


@pytest.mark.parametrize(("dtype", "scale"), SPREADS)
@pytest.mark.parametrize("kind", SIGMOIDS)
def test_the_rest_of_what_was_rolled(kind, dtype, scale):
    p = SIGMOIDS[kind]
    compare(lambda x, y: L(1 - gd.roll(p(x), 1, 0)) + gd.log1p(-gd.roll(p(y), 1, 1)),
            lambda x, y: gd.roll(gd.log_sigmoid(-x), 1, 0) + gd.roll(gd.log_sigmoid(-y), 1, 1), dtype, scale, alone=False)


def program(choose, zs, good):
    """A logarithm of what one to three things of a kind were put together to, some of them after others."""
    kind = choose.choice([*SOFTMAXES, *SIGMOIDS])
    made = []
    for _ in range(choose.randint(2, 3)):
        z = choose.choice(zs)
        rest = kind in SIGMOIDS and choose.random() < 0.4
        if good:
            made.append(gd.log_softmax(z) if kind in SOFTMAXES else gd.log_sigmoid(-z if rest else z))
        else:
            p = (SOFTMAXES.get(kind) or SIGMOIDS[kind])(z)
            made.append(1 - p if rest else p)
    one = 0.0 if good else 1.0
    square = ["roll", "roll, two axes", "roll, flat", "set", "set another", "steps", "stack picked"]
    for _ in range(choose.randint(0, 2)):
        a, b = choose.choice(made), choose.choice(made)
        made.append(JOINED[choose.choice(square)](a, b, one))
    y = JOINED[choose.choice(list(JOINED))](made[-1], choose.choice(made), one)
    if choose.random() < 0.3:
        y = y[::-1] if choose.random() < 0.5 else y.T
    c = round(choose.random() + 0.5, 2)
    return c * (y if good else L(y))


@pytest.mark.parametrize("seed", range(120))
def test_random_programs(seed):
    dtype, scale = SPREADS[seed % 4]
    compare(lambda *zs: program(random.Random(seed), zs, False), lambda *zs: program(random.Random(seed), zs, True), dtype, scale, seed,
            second=random.Random(seed).choice([*SOFTMAXES, *SIGMOIDS]) != "exp z / (1 + exp z)")


def test_what_does_not_cancel_stays_as_it_is_written():
    """Arrays put together without a logarithm: the same bits with and without the pass."""
    x, y = gd.input("x", (3, 3)), gd.input("y", (3, 3))
    draw = np.random.default_rng(1)
    at = draw.standard_normal((3, 3)), draw.standard_normal((3, 3))
    for f in JOINED.values():
        v = f(gd.softmax(x), gd.sigmoid(y), 1.0)
        nodes = [v, *gd.grad(gd.sum(v * v), [x, y], unconnected="zero"), gd.jvp(v, [x, y], [gd.ones_like(x), gd.ones_like(y)])]
        for a, b in zip(gd.function([x, y], nodes)(*at), gd.function([x, y], nodes, passes=("merge", "algebra", "fold", "fuse", "in_place"))(*at),
                        strict=True):
            np.testing.assert_array_equal(a, b)
            checked()


def test_hundreds_of_steps():
    """The probabilities of the steps of a recurrence, stacked, and appended one by one."""
    x = gd.input("x", (3, 400), "float32")
    at = np.linspace(-150, 150, 1200, dtype="float32").reshape(3, 400)
    rows = [gd.softmax(x[:, i] * 3.0) for i in range(400)]
    want = gd.log_softmax(x.T * 3.0)
    grown = rows[0][None]
    for p in rows[1:]:
        grown = gd.concatenate([grown, p[None]])
    for y in (gd.log(gd.stack(rows)), gd.log(grown)):
        results = [gd.function([x], [v, gd.grad(gd.sum(v * v), x)])(at) for v in (y, want)]
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * np.abs(b).max())
            checked()
