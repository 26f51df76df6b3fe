"""Elementwise operations over spans: operands that repeat along the last axes but one, where the last one is short. Bits as NumPy's."""
import itertools

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

# The result's shape, and of each operand the axes along which it is spread.
SHAPES = [((25, 300, 10), (), (1,)), ((25, 300, 10), (0,), (1,)), ((7, 500, 3), (1,), (0,)), ((3, 2000, 2), (0, 2), (1,)),
          ((4, 5, 130, 9), (2,), (1,)), ((4, 5, 130, 9), (1, 2), (0, 2)), ((6, 1100, 1, 5), (1,), (3,)), ((2, 3, 400, 12), (0, 2), (3,)),
          ((5, 1024, 16), (1,), (1, 2)), ((9, 257, 33), (0, 1), (1,)), ((2, 3001, 7), (1,), (0, 1)), ((40, 60, 4), (1,), ()), ((3, 700, 31), (1,), (2,))]
DTYPES = ["uint8", "int32", "int64", "float16", "float32", "float64"]


def drawn(shape, dtype, seed):
    random = np.random.default_rng([seed, *shape])
    return (random.integers(0, 100, shape) if np.dtype(dtype).kind in "iu" else random.standard_normal(shape)).astype(dtype)


def operand(shape, spread, dtype, seed, how="plain"):
    kept = tuple([1 if a in spread else n for a, n in enumerate(shape)])
    if how == "turned":
        return np.ascontiguousarray(drawn(kept, dtype, seed).swapaxes(-1, -2)).swapaxes(-1, -2)
    return drawn(kept, dtype, seed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, left, right", SHAPES)
def test_one_operation(shape, left, right, dtype):
    a, b = operand(shape, left, dtype, 1), operand(shape, right, dtype, 2)
    x, y = gd.input("x", a.shape, dtype), gd.input("y", b.shape, dtype)
    for op, numpy in ((gd.subtract, np.subtract), (gd.multiply, np.multiply), (gd.maximum, np.maximum), (gd.less, np.less)):
        want = numpy(a, b)
        for threads in (1, 2):
            got = gd.function([x, y], op(x, y), threads=threads)(a, b)
            assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
            checked()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape, left, right", SHAPES)
def test_groups_with_several_results(shape, left, right, dtype):
    """Operands of every kind beside those that repeat: whole, turned, one number a span, one for all."""
    rows = tuple(range(1, len(shape)))
    arrays = [operand(shape, left, dtype, 1), operand(shape, right, dtype, 2), operand(shape, (), dtype, 3, "turned"), operand(shape, rows, dtype, 4),
              operand(shape, tuple(range(len(shape))), dtype, 5), operand(shape, tuple(range(len(shape) - 1)), dtype, 6)]
    nodes = [gd.input(f"x{k}", a.shape, dtype) for k, a in enumerate(arrays)]

    def build(m, a, b, c, d, e, f):
        first = (a - b) * c
        return [first * first + d, m.where(first > e, b * f, -a)]

    want = [np.broadcast_to(w, shape) for w in build(np, *arrays)]
    for threads, passes in itertools.product((1, 2), (None, ("merge",))):
        f = gd.function(nodes, [gd.broadcast_to(y, shape) for y in build(gd, *nodes)], threads=threads, passes=passes)
        for got, w in zip(f(*arrays), want, strict=True):
            assert got.dtype == w.dtype and got.tobytes() == w.tobytes()
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_made_in_parts(dtype):
    """Behind a product, and before reductions, which take it in pieces that begin anywhere in a span."""
    a, b, w = drawn((50, 9), dtype, 1), drawn((700, 9), dtype, 2), drawn((9, 9), dtype, 3)
    x, y, v = gd.input("x", a.shape, dtype), gd.input("y", b.shape, dtype), gd.input("v", w.shape, dtype)
    d = gd.abs(x[:, None, :] - y[None, :, :])
    want = np.abs(a[:, None, :] - b[None, :, :])
    for threads in (1, 2):
        f = gd.function([x, y], [gd.max(d), gd.argmax(d), gd.any(d > 5), gd.min(d, axis=2), gd.max(d, axis=(1, 2))], threads=threads)
        for got, expected in zip(f(a, b), [want.max(), want.argmax(), (want > 5).any(), want.min(axis=2), want.max(axis=(1, 2))], strict=True):
            np.testing.assert_array_equal(got, expected)
            checked()
        z = gd.broadcast_to(y, (50, 700, 9)) @ v
        plain = gd.function([y, v], z, threads=1)(b, w)
        got = gd.function([x, y, v], gd.maximum(z + x[:, None, :], 0), threads=threads)(a, b, w)
        np.testing.assert_array_equal(got, np.maximum(plain + a[:, None, :], 0))
        checked()
