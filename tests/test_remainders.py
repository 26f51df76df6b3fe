"""fmod, remainder and floor division of floats: a register at a time where the quotient is small, one by one elsewhere; NumPy's bits."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

OPS = ("fmod", "remainder", "floor_divide")
MOST = {"float32": 22, "float64": 51, "float16": 22}     # log2 of the quotients that are done together, remainder_t.inc


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    real = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[real], np.signbit(want)[real])
    checked()


def both(op, x, y):
    """On one thread and on two; in the place of an operand."""
    a, b = gd.input("x", x.shape, x.dtype.name), gd.input("y", y.shape, y.dtype.name)
    with np.errstate(all="ignore"):
        want = getattr(np, op)(x, y)
        for threads in (1, 2):
            same(gd.function([a, b], getattr(gd, op)(a, b), threads=threads)(x, y), want)
        same(gd.function([a, b], getattr(gd, op)(-a, b))(-x, y), want)
        same(gd.function([a, b], getattr(gd, op)(a, -b))(x, -y), want)


def numbers(n, dtype, seed=0, lowest=-6, highest=12):
    rng = np.random.default_rng(seed)
    return (rng.choice([-1, 1], n) * 2.0 ** rng.uniform(lowest, highest, n)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", OPS)
def test_every_length(op, dtype):
    for n in (*range(1, 40), 127, 128, 129, 255, 256, 257, 300, 511, 513, 1000):
        both(op, numbers(n, dtype), numbers(n, dtype, 1, -4, 4))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_multiples_and_their_neighbours(op, dtype):
    """Where the rounded quotient is a whole number that the exact one does not reach, or just passes."""
    y = numbers(4000, dtype, 2, -3, 3)
    whole = np.random.default_rng(3).integers(1, 2 ** (MOST[dtype] - 1), 4000) >> np.arange(4000) % MOST[dtype]
    x = (y * whole.astype(dtype)).astype(dtype)
    for near in (x, np.nextafter(x, np.array(np.inf, dtype)), np.nextafter(x, np.array(-np.inf, dtype))):
        both(op, near, y)
        both(op, -near, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_quotients_about_the_largest_that_are_done_together(op, dtype):
    y = numbers(2000, dtype, 4, -2, 2)
    for power in (MOST[dtype] - 1, MOST[dtype], MOST[dtype] + 1, MOST[dtype] + 9, 100):
        x = (y * 2.0**power * np.random.default_rng(5).uniform(0.98, 1.02, 2000)).astype(dtype)
        both(op, x, y)
        both(op, np.where(np.arange(2000) % 7 == 0, x, y / 3).astype(dtype), y)     # some of each block


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", OPS)
def test_values_at_the_edges(op, dtype):
    info = np.finfo(dtype)
    edge = np.array([0, 1, 1.5, 2, 3, np.inf, np.nan, info.max, info.max / 2, info.tiny, info.tiny / 2, info.smallest_subnormal, info.eps], dtype)
    edge = np.concatenate([edge, -edge])
    x, y = np.meshgrid(edge, edge)
    both(op, x.ravel(), y.ravel())
    for k in range(x.size):                              # one among others that are done together
        if k % 5 == 0:
            u, v = numbers(40, dtype), numbers(40, dtype, 1, -4, 4)
            u[k % 40], v[k % 40] = x.ravel()[k], y.ravel()[k]
            both(op, u, v)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_small_numbers(op, dtype):
    """Subnormal operands: nothing of what is left is lost."""
    info = np.finfo(dtype)
    x = (numbers(1000, dtype, 6, 0, 20) * info.smallest_subnormal).astype(dtype)
    y = (numbers(1000, dtype, 7, 0, 8) * info.smallest_subnormal).astype(dtype)
    both(op, x, y)
    both(op, x * np.array(1024, dtype), y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_layouts_and_one_value_for_all(op, dtype):
    x, y = numbers(60_000, dtype).reshape(200, 300), numbers(60_000, dtype, 1, -4, 4).reshape(200, 300)
    both(op, x, y)
    both(op, x, y[:1])
    both(op, x, y[:, :1])
    both(op, x[:1, :1], y)
    both(op, x, np.array([[0.7]], dtype))
    a, b = gd.input("x", x.shape, dtype), gd.input("y", y.shape, dtype)
    for u, v, p, q in ((a[:, ::2], b[:, 1::2], x[:, ::2], y[:, 1::2]), (a[:, ::-1], b, x[:, ::-1], y), (a.T, b.T, x.T, y.T)):
        same(gd.function([a, b], getattr(gd, op)(u, v))(x, y), getattr(np, op)(p, q))
    p, q = gd.input("p", (), dtype), gd.input("q", (), dtype)
    one = gd.function([p, q], getattr(gd, op)(p, q))     # an element alone, by another loop
    for i in range(0, 300, 7):
        same(np.asarray(one(x[0, i], y[0, i])), np.asarray(getattr(np, op)(x[0, i], y[0, i])))
