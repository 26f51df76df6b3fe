"""Random programs of logarithms, softmaxes and sigmoids however they are written, with shared nodes, pieces put together and targets on the way.

Derivatives of such forms are those of others, and values of them are rewritten: what is right as it is written (passes=()) has to stay right, and
the modes have to agree. GRAPHDIFF_LONG=1 draws more of them.
"""
import os
import random

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

LONG = os.environ.get("GRAPHDIFF_LONG") == "1"
PROGRAMS = 3000 if LONG else 90
ROWS = 2


def kept(z):
    e = gd.exp(z)
    return e / gd.sum(e, axis=-1, keepdims=True)


def quotient(z):
    e = gd.exp(z)
    return e / (1 + e)


SOFTMAXES = [
    gd.softmax, kept, gd.checkpoint(gd.softmax), lambda z: gd.exp(z) * (1 / gd.sum(gd.exp(z), axis=-1))[:, None],
    lambda z: gd.exp(z - gd.max(z, axis=-1, keepdims=True)) / gd.sum(gd.exp(z - gd.max(z, axis=-1, keepdims=True)), axis=-1, keepdims=True),
    lambda z: gd.stack([gd.exp(z[i]) / gd.sum(gd.exp(z[i])) for i in range(ROWS)]), lambda z: gd.softmax(z.T, axis=0).T,
]
OF_LOGARITHMS = [gd.log_softmax, lambda z: z - gd.logsumexp(z, axis=-1, keepdims=True), gd.log_sigmoid, lambda z: -gd.softplus(-z)]
SIGMOIDS = [gd.sigmoid, quotient, gd.checkpoint(quotient), lambda z: 1 / (1 + gd.exp(-z)), lambda z: gd.exp(z) * (1 / (gd.exp(z) + 1)),
            lambda z: gd.reciprocal(1 + gd.exp(-z))]
# Of probabilities p and q of one shape.
MOVES = [
    lambda p, q: p[::-1], lambda p, q: gd.roll(p, 1, 1), lambda p, q: gd.stack([p, q])[0], lambda p, q: gd.concatenate([p, q], axis=1)[:, -p.shape[1]:],
    lambda p, q: gd.concatenate([p, q[:0]]), lambda p, q: gd.ones(p.shape).at[:].set(p), lambda p, q: p.at[0:1].set(q[:1]),
    lambda p, q: p.at[:, 0].set(0.5), lambda p, q: gd.stack([p[0], q[1]]), lambda p, q: gd.where(np.arange(p.shape[1]) > 0, p, 1.0),
    lambda p, q: gd.take(p, [1, 0], axis=0), lambda p, q: p.at[0].set(p[0]), lambda p, q: gd.concatenate([p[:1], q[1:]]),
]
LOGARITHMS = [gd.log, gd.log, lambda p: gd.log(1 - p), lambda p: gd.log1p(-p), gd.log2, lambda p: gd.log(p / (1 - p)), lambda p: gd.log(-p + 1.0),
              gd.sqrt, lambda p: p ** 0.3, lambda p: 1 / (1 - 0.5 * p), lambda p: gd.xlogy(p, p)]


def draw(choose, x, w):
    """A scalar made of two inputs of one shape."""
    reals, odds = [x, w, x + 0.5 * w], []
    for _ in range(choose.randint(2, 6)):
        z = choose.choice(reals)
        kind = choose.random()
        if kind < 0.3 or not odds:
            odds.append(choose.choice(SOFTMAXES if choose.random() < 0.6 else SIGMOIDS)(z))
        elif kind < 0.5:
            y = choose.choice(OF_LOGARITHMS)(z)
            reals.append(y)
            odds.append(gd.exp(y))
        elif kind < 0.75:
            odds.append(choose.choice(MOVES)(choose.choice(odds), choose.choice(odds)))
        elif kind < 0.9:
            reals.append(choose.choice(LOGARITHMS)(choose.choice(odds)))
        else:
            odds.append(choose.choice(odds) * choose.choice(odds))
    total = 0.0
    for _ in range(choose.randint(1, 3)):
        y = choose.choice(LOGARITHMS)(choose.choice(odds))
        if choose.random() < 0.4:
            y = y[:, choose.randrange(y.shape[1]):]
        weights = np.array([choose.choice([1.0, -0.7, 0.3, 2.0]) for _ in range(y.size)]).reshape(y.shape)
        total = total + gd.sum(y * weights)
        if choose.random() < 0.3:
            total = total + gd.sum(choose.choice(reals) * choose.choice(reals)) * 0.1
    return total


def near(a, b, size, tolerance):
    return np.isfinite(a).all() and np.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, size))


def compare(seed):
    choose = random.Random(seed)
    n = choose.choice([2, 2, 3])
    xs = [gd.input(name, (ROWS, n)) for name in "xw"]
    y = draw(choose, *xs)
    inner = [v for v in gd.graph.walk.toposort([y]) if v.dtype.kind == "f" and v.inputs]
    inner = choose.sample(inner, min(len(inner), 3))
    ts = [gd.constant(np.array([choose.uniform(-1, 1) for _ in range(ROWS * n)]).reshape(ROWS, n)) for _ in xs]
    gs = gd.grad(y, xs, unconnected="zero")
    slope = sum(gd.sum(g * t) for g, t in zip(gs, ts, strict=True))
    size = sum(gd.sum(gd.abs(g * t)) for g, t in zip(gs, ts, strict=True))
    hs = gd.grad(slope, xs, unconnected="zero")
    both = gd.grad(y, [*inner, *xs], unconnected="zero")
    zeros = [gd.zeros_like(v) for v in inner]
    tangents = [gd.jvp(y, xs, ts), gd.jvp(y, [*inner, *xs], [*zeros, *ts])]
    outputs = [y, *gs, *hs, *both, *tangents, slope, size, gd.jvp(slope, xs, ts), sum(gd.sum(h * t) for h, t in zip(hs, ts, strict=True)),
               sum(gd.sum(gd.abs(h * t)) for h, t in zip(hs, ts, strict=True))]
    rewritten, written = gd.function(xs, outputs), gd.function(xs, outputs, passes=())
    for scale, tolerance in ((1.0, 1e-9), (6.0, 1e-6), (300.0, None)):
        at = [scale * np.array([choose.gauss(0, 1) for _ in range(ROWS * n)]).reshape(ROWS, n) for _ in xs]
        got, plain = rewritten(*at), written(*at)
        *_, j, ji, slope_at, size_at, jj, hh, size_of_second = got
        with np.errstate(all="ignore"):
            assert not np.isfinite(got[0]) or not np.isfinite(j) or near(slope_at, j, size_at, tolerance or 1e-8), ("modes", scale, slope_at, j)
            assert not np.isfinite(j) or near(ji, j, size_at, 1e-9), ("tangents of nodes on the way", scale, ji, j)
            for a, b in zip(got[1:3], got[5 + len(inner):7 + len(inner)], strict=True):
                assert np.array_equal(a, b, equal_nan=True) or near(b, a, np.abs(a).max(initial=0), 1e-12), ("asked for with others", scale, a, b)
            checked(3)
            if tolerance is None:
                continue
            assert near(jj, hh, size_of_second, tolerance), ("modes, second", scale, jj, hh)
            for k, (a, b) in enumerate(zip(got, plain, strict=True)):
                assert not np.isfinite(b).all() or near(a, b, np.abs(b).max(initial=0), tolerance), ("passes", scale, k, a, b)
                checked()


@pytest.mark.parametrize("block", range(10))
def test_random_programs(block):
    for seed in range(block, PROGRAMS, 10):
        try:
            compare(seed)
        except AssertionError as error:
            raise AssertionError(f"program {seed}: {error}") from None
