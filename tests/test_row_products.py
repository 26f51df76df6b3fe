"""One row by a matrix: narrow ones without gaps, which are read as they lie, and wide ones of few terms, whose rows are read four or
eight apart at a time. The bits are those of the same matrix lying transposed, which is read in lanes (see gemm_t.inc)."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def drawn(shape, dtype, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def called(f, *feeds, **options):
    xs = [gd.input(f"x{k}", x.shape, x.dtype.name) for k, x in enumerate(feeds)]
    return gd.function(xs, f(*xs), **options)(*feeds)


def placed(x, first):
    """The same array, `first` elements into a line of 64 bytes."""
    memory = np.empty(x.size + first + 64 // x.itemsize, x.dtype)
    at = -memory.ctypes.data % 64 // x.itemsize + first
    view = memory[at:at + x.size].reshape(x.shape)
    view[...] = x
    return view


def product_with_gaps(a, b, before, width, first=0):
    """The product with b amid NaN, in rows of `width`."""
    wide = np.full((len(b), width), np.nan, b.dtype)
    wide[:, before:before + b.shape[1]] = b
    return called(lambda x, y: x @ y[:, before:before + b.shape[1]], a, placed(wide, first))


def same(got, want, case):
    assert got.dtype == want.dtype and got.shape == want.shape
    there = ~np.isnan(want)                                         # which NaN comes out is not promised
    assert np.array_equal(np.isnan(got), ~there) and got[there].tobytes() == want[there].tobytes(), case
    checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [127, 128, 129, 255, 256, 257, 271, 1000, 4095, 4097, 4353, 9001])
def test_one_row_by_a_narrow_matrix_without_gaps_has_the_bits_of_any_other(terms, dtype):
    for columns in (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17, 18, 20, 23, 24, 25):
        a, b = drawn((1, terms), dtype), drawn((terms, columns), dtype, 1)
        want = called(lambda x, y: x @ y.T, a, b.T.copy())
        bound = np.abs(a.astype("longdouble")) @ np.abs(b.astype("longdouble")) * np.finfo(dtype).eps * 16
        assert (np.abs(want - a.astype("longdouble") @ b.astype("longdouble")) <= bound).all()
        same(called(gd.matmul, a, b), want, columns)
        for first in (0, 1, 5):
            same(called(gd.matmul, a, placed(b, first)), want, (columns, first))
        same(product_with_gaps(a, b, 1, columns + 1), want, (columns, "gaps"))
        same(called(lambda x, y: x[:, ::2] @ y, np.repeat(a, 2, axis=1), b), want, (columns, "apart"))
        same(called(lambda x, y: (y.T @ x.T).T, a, b), want, (columns, "turned"))
        many = called(gd.matmul, a, np.stack([b, b[::-1], b]))
        same(many[2], want, (columns, "last"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_row_by_a_narrow_matrix_keeps_signs_of_zeros_infinities_and_nans(dtype):
    for terms in (256, 259, 300, 4100):
        for columns in (2, 5, 9, 17, 24):
            a, b = np.abs(drawn((1, terms), dtype)), drawn((terms, columns), dtype, 1)
            b[:, 0] = -0.0                                          # sums of -0 from 0 on are 0
            a[0, -1], b[-1, 1] = -np.inf, 2.0                       # in the last terms, which are no whole register
            if columns > 2:
                b[terms // 2, 2], b[-2, 3] = np.nan, np.inf
                a[0, 7], b[7, 4] = 0.0, np.inf
            a[0, -1] = 1.0 if columns % 2 else -np.inf
            with np.errstate(invalid="ignore"):
                same(called(gd.matmul, a, b), called(lambda x, y: x @ y.T, a, b.T.copy()), (terms, columns))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [9, 16, 17, 23, 24, 25, 31, 32, 33, 48, 50, 63, 64, 65])
def test_one_row_of_few_terms_has_the_bits_of_any_other(terms, dtype):
    for columns in (64, 128, 129, 255, 257, 513, 1000, 1025, 2100, 4099):
        a, b = drawn((1, terms), dtype), drawn((terms, columns), dtype, 1)
        a[0, terms // 2], b[3, 5], b[:, 7] = -0.0, np.inf, -0.0
        b[terms - 1, 9] = np.nan
        want = called(lambda x, y: x @ y.T, a, b.T.copy())
        for first in (0, 1, 4):
            for width in (columns, columns // 16 * 16 + 32):        # all rows begin as far into a line, or not
                same(product_with_gaps(a, b, 0, width, first), want, (columns, first, width))
        same(called(lambda x, y: x[:, ::3] @ y, np.repeat(a, 3, axis=1), b), want, (columns, "apart"))
        same(called(gd.matmul, a, np.stack([b * 2, b]))[1], want, (columns, "last"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms, columns", [(20, 150_000), (61, 90_000), (100_000, 24), (70_000, 5), (300_000, 11)])
def test_one_row_has_the_same_bits_on_two_threads(terms, columns, dtype):
    a, b = drawn((1, terms), dtype), drawn((terms, columns), dtype, 1)
    one = called(gd.matmul, a, b, threads=1)
    same(called(gd.matmul, a, b, threads=2), one, "threads")
    few = min(columns, 40)                                          # the first columns, by other ways
    same(called(lambda x, y: x @ y.T, a, np.ascontiguousarray(b[:, :few].T)), one[:, :few], "turned")


# Rows of the matrix begin at every one, second, fourth, ... place of a line, the first of them anywhere.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms, columns", [(255, 40), (256, 131), (257, 77), (300, 300), (301, 129), (500, 64), (502, 65), (504, 33), (512, 70),
                                            (1000, 9), (1024, 35), (4099, 21), (4100, 130)])
def test_two_and_three_rows_by_rows_anywhere_in_lines_have_the_bits_of_one(terms, columns, dtype):
    a, b = drawn((7, terms), dtype), drawn((columns, terms), dtype, 1)
    want = np.concatenate([called(lambda x, y: x @ y.T, a[i:i + 1].copy(), b) for i in range(7)])
    bound = np.abs(a.astype("longdouble")) @ np.abs(b.T.astype("longdouble")) * np.finfo(dtype).eps * 16
    assert (np.abs(want - a.astype("longdouble") @ b.T.astype("longdouble")) <= bound).all()
    for rows in (2, 3, 7):
        few = a[:rows].copy()
        for first in (0, 1, 2, 64 // few.itemsize - 1):
            same(called(lambda x, y: x @ y.T, few, placed(b, first)), want[:rows], (rows, first))
        for width in (terms + 1, terms + 2, terms + 8):
            wide = np.full((columns, width), np.nan, dtype)
            wide[:, 1:1 + terms] = b
            same(called(lambda x, y, n=terms: x @ y[:, 1:1 + n].T, few, placed(wide, 3)), want[:rows], (rows, width))
        turned = called(lambda x, y: y @ x.T, few, b)               # whether in lanes depends on how long a register is
        assert (np.abs(turned.T - want[:rows]) <= 2 * bound[:rows]).all()
        same(called(lambda x, y: y @ x.T, few, placed(b, 5)), turned, (rows, "turned"))
        same(called(lambda x, y: x.T @ y.T, few.T.copy(), b), want[:rows], (rows, "columns"))
        same(called(lambda x, y: x @ y[::-1].T, few, b[::-1].copy()), want[:rows], (rows, "backwards"))
        same(called(lambda x, y: x @ y.T, few, b, threads=2), want[:rows], (rows, "threads"))


def test_two_rows_by_no_rows_or_no_terms():
    for dtype in ("float32", "float64"):
        assert called(lambda x, y: x @ y.T, drawn((2, 300), dtype), np.empty((0, 300), dtype)).shape == (2, 0)
        assert called(lambda x, y: x @ y.T, np.empty((3, 0), dtype), np.empty((40, 0), dtype)).tobytes() == np.zeros((3, 40), dtype).tobytes()
        checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_by_matrices_of_a_batch(dtype):
    """In whatever way a matrix is read, by itself or as one of many, and with what follows done to it while it is in the caches."""
    for count, terms, columns in [(3, 1, 40), (70, 5, 100), (5, 7, 33), (5, 8, 127), (4, 9, 200), (6, 11, 257), (4, 12, 64), (40, 16, 500), (3, 17, 129),
                                  (3, 31, 130), (4, 32, 512), (2, 33, 1025), (3, 47, 257), (2, 64, 512), (2, 64, 1111), (2, 65, 300), (9, 24, 5000)]:
        a, b = drawn((1, terms), dtype), drawn((count, terms, columns), dtype, 1)
        many = called(gd.matmul, a, b)
        each = drawn((count, 1, terms), dtype, 2)
        of_each = called(gd.matmul, each, b)
        bias = drawn((columns,), dtype, 3)
        done = called(lambda x, y, z: gd.tanh(2 * (x @ y) + z), each, b, bias)
        plain = called(lambda p, z: gd.tanh(2 * p + z), of_each, bias)
        same(done, plain, (count, terms, columns, "followed"))
        for i in (0, count // 2, count - 1):
            turned = b[i].T.copy()
            same(many[i], called(lambda x, y: x @ y.T, a, turned), (count, terms, columns))
            same(of_each[i], called(lambda x, y: x @ y.T, each[i], turned), (count, terms, columns, "each"))
            for first in (0, 3):
                same(called(gd.matmul, a, placed(b[i], first)), many[i], (terms, columns, first))
            same(product_with_gaps(a, b[i], 1, columns + 7), many[i], (terms, columns, "gaps"))
        two = called(gd.matmul, each, b, threads=2)
        same(two, of_each, (count, terms, columns, "threads"))
