"""where by a comparison that nothing else reads is one loop with it: the bits are those of the two one after the other."""
import itertools

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

rng = np.random.default_rng(31)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
ODD = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0)


def draw(n, dtype):
    """Few values, so that many are equal; NaN, infinities and zeros of both signs."""
    x = rng.integers(-3, 4, n).astype(dtype)
    x[rng.integers(0, n, max(n // 4, 1))] = rng.choice(ODD, max(n // 4, 1))
    return x


def bits(a):
    return np.ascontiguousarray(a).view({2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize])


def together(inputs, outputs, arrays, want=None):
    """One instruction on one thread, on two and not in place; operation by operation: the same bits. Returns the results."""
    alone = gd.function(inputs, outputs, passes=("merge",), threads=1)(*arrays) if want is None else want
    for options in ({"threads": 1}, {"threads": 2}, {"threads": 1, "passes": ("merge", "fuse")}):
        for a, b in zip(gd.function(inputs, outputs, **options)(*arrays), alone, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(bits(a), bits(b))
            checked()
    return alone


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_every_comparison_with_every_operand_one_value_or_many(op, dtype):
    n = 1003
    for single in itertools.product((0, 1), repeat=4):
        if single[0] and single[1]:
            continue
        arrays = [draw(1 if s else n, dtype) for s in single]
        inputs = [gd.input(f"x{k}", a.shape, dtype) for k, a in enumerate(arrays)]
        x, y, s, t = inputs
        got, = together(inputs, [gd.where(getattr(gd, op)(x, y), s, t)], arrays)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(bits(got), bits(np.where(getattr(np, op)(arrays[0], arrays[1]), arrays[2], arrays[3])))
        u, = together(inputs, [gd.where(getattr(gd, op)(-x, y), s * 2, -t) - s], arrays)       # in the middle of others
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(u, np.where(getattr(np, op)(-arrays[0], arrays[1]), arrays[2] * 2, -arrays[3]) - arrays[2])
        checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_length(dtype):
    for n in (*range(1, 70), 127, 129, 1023, 1025, 5000, 70_001):
        x, y = gd.input("x", (n,), dtype), gd.input("y", (n,), dtype)
        a = [draw(n, dtype), draw(n, dtype)]
        together([x, y], [gd.where(x > y, x, 1.5), gd.where(gd.isnan(x), 0.0, y), gd.leaky_relu(x), gd.where(x <= 1.0, y, x)], a)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(gd.function([x], gd.nan_to_num(x))(a[0]), np.nan_to_num(a[0]))
            np.testing.assert_array_equal(gd.function([x], gd.leaky_relu(x, 0.25))(a[0]), np.where(a[0] > 0, a[0], np.array(0.25, dtype) * a[0]))
        checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(7, 5), (40, 33), (129, 300), (3, 2000)])
def test_rows_columns_and_spread_operands(shape, dtype):
    x, wide = gd.input("x", shape, dtype), gd.input("wide", (shape[0], 2 * shape[1]), dtype)
    row, column = gd.input("row", shape[1:], dtype), gd.input("column", (shape[0], 1), dtype)
    inputs = [x, wide, row, column]
    arrays = [draw(int(np.prod(v.shape)), dtype).reshape(v.shape) for v in inputs]
    turned = wide[:, ::2]
    back = wide[:, shape[1]:]
    together(inputs, [gd.where(x < row, x, column), gd.where(x == column, row, x), gd.where(turned >= x, back, 2.0), gd.where(row > column, x, turned),
                      gd.where(back != 0.0, back, row), gd.where(x[::-1] > 0.0, x[::-1], column), gd.where(gd.isnan(turned), 7.0, turned)], arrays)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_comparisons_that_others_read_too(dtype):
    x, y = gd.input("x", (3000,), dtype), gd.input("y", (3000,), dtype)
    a = [draw(3000, dtype), draw(3000, dtype)]
    more = x > y
    outputs = [gd.where(more, x, y), gd.where(more, y, x), gd.where(x > 0.0, x, y) + (x > 0.0).astype(dtype)]
    together([x, y], outputs, a)
    together([x, y], [gd.where(x == y, x + 1.0, y * x), gd.where(y < x * y, y, x)], a)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_compared_and_chosen(dtype):
    """Of another type than what is chosen from, or of integers: by two loops, as ever."""
    x, y, z = gd.input("x", (2000,), dtype), gd.input("y", (2000,), dtype), gd.input("z", (2000,), "float32")
    a, b = (rng.integers(0, 9, 2000).astype(dtype) for _ in range(2))
    c = draw(2000, "float32")
    for got, want in zip(gd.function([x, y, z], [gd.where(x > y, x, y), gd.where(x == y, z, 0.5), gd.where(z > 0.5, x, y)])(a, b, c),
                         [np.where(a > b, a, b), np.where(a == b, c, np.float32(0.5)), np.where(c > 0.5, a, b)], strict=True):
        np.testing.assert_array_equal(got, want)
        checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_what_chooses(dtype):
    x = gd.input("x", (501,), dtype)
    a = [draw(501, dtype)]
    for f in (gd.nan_to_num, gd.leaky_relu, gd.elu, gd.selu, gd.abs):
        together([x], [f(x), gd.grad(gd.sum(f(x)), x)], a)
