"""Products of odd kinds: what einsum makes of a vector and the middle of an array, sums across the last axis, and many small, narrow
or integer products. Values against NumPy, bits against those of operands that lie otherwise."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

SIZE = {"a": 2, "b": 5, "i": 13, "j": 11, "k": 17, "l": 3, "o": 1}
EXACT = {"float32": "float64", "float16": "float64"}
CLOSE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}


def drawn(shape, dtype, seed=0):
    random = np.random.default_rng([seed, *shape])
    return random.standard_normal(shape).astype(dtype) if dtype.startswith("float") else random.integers(-99, 99, shape).astype(dtype)


def called(f, *feeds, **options):
    xs = [gd.input(f"x{k}", x.shape, x.dtype.name) for k, x in enumerate(feeds)]
    return gd.function(xs, f(*xs), **options)(*feeds)


def apart(x):
    """The same values in memory of another order, with gaps."""
    y = np.zeros([2 * n + 1 for n in x.shape[::-1]], x.dtype).T
    view = y[tuple([slice(1, 2 * n + 1, 2) for n in x.shape])]
    view[...] = x
    return view


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("equation", [
    "ij,ij->j", "ji,ij->j", "ijk,ijk->k", "ijk,kji->jk", "ijk,jik->k", "ijk,jik->ki", "ijk,ijk->i", "ij,ij->i", "oj,oj->j", "ij,jj->j",
    "ijk,j->ik", "ijk,j->ki", "j,ijk->ik", "ijkl,k->ijl", "ijkl,k->lji", "ijkl,jk->il", "aijk,aj->aik", "aijk,aj->kia", "ijk,jk->i", "iojk,j->iok"])
def test_einsum_along_the_middle_and_across_the_last_axis(equation, dtype):
    feeds = [drawn(tuple([SIZE[c] for c in term]), dtype, k) for k, term in enumerate(equation.split("->")[0].split(","))]
    if equation == "ij,jj->j":
        feeds[0], feeds[1] = drawn((13, 11), dtype), drawn((11, 11), dtype)
    want = np.einsum(equation, *[x.astype(EXACT.get(dtype, dtype)) for x in feeds])
    got = called(lambda *xs: gd.einsum(equation, *xs), *feeds)
    assert got.dtype == dtype
    if dtype.startswith("float"):
        np.testing.assert_allclose(got, want, rtol=CLOSE[dtype], atol=30 * CLOSE[dtype])
    else:
        np.testing.assert_array_equal(got, want)
    assert called(lambda *xs: gd.einsum(equation, *xs), *[apart(x) for x in feeds]).tobytes() == got.tobytes()
    assert called(lambda *xs: gd.einsum(equation, *xs), *feeds, threads=2).tobytes() == got.tobytes()


def test_a_vector_by_the_middle_of_an_array_moves_nothing():
    x, v = gd.input("x", (9, 30, 20), "float64"), gd.input("v", (30,), "float64")
    assert "copy" not in str(gd.function([x, v], gd.einsum("ijk,j->ik", x, v)).program)


@pytest.mark.parametrize("equation", ["ij,ij->j", "ijk,jik->k", "ijk,j->ik", "aijk,aj->kia"])
def test_gradients_along_the_middle_and_across_the_last_axis(equation):
    feeds = [drawn(tuple([SIZE[c] for c in term]), "float64", k) for k, term in enumerate(equation.split("->")[0].split(","))]
    xs = [gd.input(f"x{k}", x.shape, x.dtype.name) for k, x in enumerate(feeds)]
    gd.check_grads(gd.square(gd.einsum(equation, *xs)), xs, dict(zip(xs, feeds, strict=True)))


# Few rows by few or many columns: read as the right operand lies, or the other way round; whole registers of columns, parts of one, and
# whole pieces of 128 bits of terms, or parts of one.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [2, 3, 5, 9, 24, 50, 131, 1030])
def test_few_rows_have_the_bits_of_many_whichever_way_operands_lie(terms, dtype):
    for columns in (2, 3, 5, 9, 13, 16, 24, 25, 66):
        a, b = drawn((70 if columns > 16 else min(70, 8192 // terms), terms), dtype), drawn((terms, columns), dtype, 1)
        many = called(gd.matmul, a, b)
        bound = np.abs(a.astype("longdouble")) @ np.abs(b.astype("longdouble")) * np.finfo(dtype).eps * terms
        assert (np.abs(many - a.astype("longdouble") @ b.astype("longdouble")) <= bound).all()
        for rows in (2, 3, 6, 9, 11, 12, 13, 14, 15, 16, 17, 24, 25, 36, 40):
            if len(a) < rows or (min(rows, columns) <= 16 and terms * max(rows, columns) > 8192):
                continue                                            # read in lanes where they lie turned: see gemm_t.inc
            few = np.full((rows, terms + 3), np.nan, dtype)
            few[:, :terms] = a[:rows]
            turned = np.full((columns, terms + 5), np.nan, dtype)
            turned[:, :terms] = b.T
            want = many[:rows].tobytes()
            for x in (few[:, :terms], np.asfortranarray(a[:rows])):
                for y in (b, turned[:, :terms].T):
                    for f, p, q in ((gd.matmul, x, y), (lambda u, v: u.T @ v, x.T, y), (lambda u, v: u @ v.T, x, y.T)):
                        assert called(f, p, q).tobytes() == want, (rows, columns)
                    assert np.ascontiguousarray(called(lambda u, v: gd.swapaxes(v @ u, 0, 1), x.T, y.T)).tobytes() == want, (rows, columns)
                    checked(4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left, right, turn", [
    ((40, 3, 129), (40, 36, 129), "right"), ((9, 100), (40, 25, 100), "right"), ((50, 24), (33, 50, 2), "left"), ((99, 5), (33, 24, 99), "both"),
    ((33, 150, 40), (33, 150, 3), "left"), ((33, 18, 5), (33, 5, 24), ""), ((33, 9, 2), (33, 9, 150), "left"), ((33, 50, 24), (33, 24, 2), ""),
    ((33, 20, 96), (33, 96, 18), ""), ((21, 15), (33, 72, 21), "both"), ((33, 11, 11), (33, 90, 11), "both"), ((300, 33), (2, 9, 33), "right")])
def test_batches_of_few_rows_or_columns_have_the_bits_of_each_alone(left, right, turn, dtype):
    a, b = drawn(left, dtype), drawn(right, dtype, 1)

    def product(x, y):
        return (gd.swapaxes(x, -1, -2) if turn in ("left", "both") else x) @ (gd.swapaxes(y, -1, -2) if turn in ("right", "both") else y)

    got = called(product, a, b, threads=1)
    assert called(product, a, b, threads=2).tobytes() == got.tobytes()
    for n in range(got.shape[0]):
        x, y = a[n] if a.ndim == 3 else a, b[n] if b.ndim == 3 else b
        assert called(product, x, y).tobytes() == got[n].tobytes()
        p, q = [v.astype("float64").T if turn in (side, "both") else v.astype("float64") for v, side in ((x, "left"), (y, "right"))]
        np.testing.assert_allclose(got[n], p @ q, rtol=0, atol=CLOSE[dtype] * p.shape[1])
        checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_one_sum_of_elements_that_lie_apart_has_the_bits_of_one_of_neighbours(dtype):
    for terms in (1, 2, 7, 8, 15, 16, 17, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1025, 4095, 4096, 4097, 4300, 9001):
        a, b = drawn((terms,), dtype), drawn((terms,), dtype, 1)
        want = called(gd.dot, a, b)
        if not dtype.startswith("float"):
            assert want == a @ b
        for s, t in ((2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (3, 3), (2, 3), (4, 7), (1, 5), (-1, 1), (-2, 1), (5, -3)):
            x, y = (np.ones((terms - 1) * abs(step) + 1, dtype) for step in (s, t))       # ends with the last element that counts
            x[::s], y[::t] = a, b
            assert called(lambda u, v, s=s, t=t: gd.dot(u[::s], v[::t]), x, y).tobytes() == want.tobytes(), (terms, s, t)
            checked()


def test_one_sum_of_elements_that_lie_apart_copies_nothing():
    x, y = gd.input("x", (2000,), "float64"), gd.input("y", (1000,), "float64")
    assert "copy" not in str(gd.function([x, y], gd.dot(x[::2], y)).program)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integer_products_whichever_way_operands_lie(dtype):
    """Few columns of a matrix by columns, a few terms, and bools of which the first true term comes late, or never."""
    for m, k, n in ((3, 3, 1), (35, 9, 1), (28, 150, 2), (127, 11, 1), (150, 127, 2), (77, 5, 1), (16, 40, 15), (15, 40, 3), (1, 9, 5),
                    (1, 300, 1), (20, 700, 3), (5, 33, 2), (64, 1, 3)):
        a, b = drawn((m, k), dtype), drawn((k, n), dtype, 1)
        cases = [(a, b)]
        if dtype == "bool":
            for first in (31, 32, 33, 255, 300, 699):
                x, y = np.zeros_like(a), np.ones_like(b)
                x[::2, first:first + 1] = True
                cases += [(x, y), (np.ones_like(a), y & (np.arange(k) == first)[:, None] & (np.arange(n) % 2 == 0))]
        for x, y in cases:
            want = x @ y
            for got in laid(x, y):
                np.testing.assert_array_equal(got, want, str((m, k, n)))
            batch = called(lambda u, v: gd.swapaxes(u, 1, 2) @ v, np.stack([x.T.copy()] * 3), np.stack([y, np.zeros_like(y), y]))
            np.testing.assert_array_equal(batch, np.stack([want, np.zeros_like(want), want]))
            checked(2)


# Many columns and at most 16 terms; one vector by rows that are short, few or very many; and few rows by few columns of a long K.
NARROW = [*[(1, k, n) for k in (1, 2, 3, 5, 7, 8, 9, 10, 13, 15, 16, 17, 31, 200) for n in (1, 2, 5, 8, 9, 16, 17, 40, 333)],
          (1, 9001, 5), (1, 4097, 16), (1, 12289, 3), (1, 9001, 1),
          *[(m, k, n) for m in (2, 3, 4) for n in (2, 3, 4) for k in (9, 30, 511, 700, 1024, 1500, 2048, 3000, 4100, 9001)], (5, 3000, 3), (3, 3000, 5)]
# Many rows of 2 to 4 numbers, which are joined or taken apart in registers, around the number of rows, and of terms, where that begins.
THIN = [*[(m, k, n) for m in (31, 32, 33, 64, 65, 79, 96, 131, 1000) for n in (1, 2, 3, 4, 5) for k in (2, 3, 4, 5)],
        *[(m, k, n) for m in (64, 100) for n in (2, 3, 4) for k in (31, 32, 33)]]
# Few terms by wide rows, and deep matrices by columns.
WIDE = [*[(m, k, n) for m in (5, 9, 16, 20) for k in (2, 3, 4, 5) for n in (31, 64, 65, 129, 300)], (70, 200, 7), (130, 129, 16), (64, 300, 3)]
# Two rows by a matrix of long or many rows.
TWO = [(2, k, n) for k in (16, 33, 64, 127, 500) for n in (4, 7, 8, 9, 15, 63, 64, 127, 128, 129, 300)]


def laid(a, b):
    """a b with operands that lie in every way: as they are, turned, with gaps."""
    plain, turned, gaps = (lambda x: x), (lambda x: gd.swapaxes(x, 0, 1)), (lambda x: x[1::2, 1::2])
    ways = [(plain, lambda v: v.copy()), (turned, lambda v: v.T.copy()), (gaps, lambda v: apart(v).base.T.copy())]
    for f, x in ways:
        for g, y in ways:
            yield called(lambda u, v, f=f, g=g: f(u) @ g(v), x(a), y(b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
def test_narrow_products_have_the_same_bits_whichever_way_they_lie(turned, dtype):
    for m, k, n in NARROW + THIN + WIDE + TWO:
        a, b = drawn((m, k), dtype), drawn((k, n), dtype, 1)
        if turned:
            a, b = b.T, a.T
        want = a.astype("float64") @ b.astype("float64")
        scale = np.abs(a).astype("float64") @ np.abs(b).astype("float64")
        results = list(laid(a, b))
        for got in results:
            assert np.all(np.abs(got - want) <= 40 * np.finfo(dtype).eps * scale), (m, k, n)
        few = min(m, n) > 1 and k * max(m, n) > 8192              # read in lanes where they lie turned: see gemm_t.inc
        assert few or len({got.tobytes() for got in results}) == 1, (m, k, n)
        many = called(gd.matmul, np.stack([a] * 3), np.stack([b, b * 0, b]))
        assert many[0].tobytes() == many[2].tobytes() == results[0].tobytes(), (m, k, n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [7, 16, 17, 32, 63, 64, 100, 129])
def test_one_row_has_the_same_bits_wherever_in_a_line_the_matrix_begins(terms, dtype):
    for columns in (1, 3, 8, 20, 31, 48, 49, 64, 80, 96, 100, 150, 300):
        a, b = drawn((1, terms), dtype), drawn((terms, columns), dtype, 1)
        turned = called(lambda x, y: x @ y.T, a, b.T.copy())
        for first in (0, 1, 3, 4, 13):
            wide = np.full((3, terms, 320), np.nan, dtype)
            wide[:, :, first:first + columns] = b
            for got in (called(lambda x, y, n=columns, k=first: x @ y[0, :, k:k + n], a, wide),
                        *called(lambda x, y, n=columns, k=first: x @ y[:, :, k:k + n], a, wide)):
                assert got.tobytes() == turned.tobytes(), (columns, first)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_that_vanish_have_one_sign_whichever_way_they_lie(dtype):
    tiny = np.finfo(dtype).tiny
    for k in (1, 2, 4, 8, 16):                  # whole registers, or parts of one, of any ISA
        a, b = np.full((1, k), -tiny, dtype), np.full((k, 33), tiny, dtype)
        outs = list(laid(a, b))
        assert not outs[0].any() and len({y.tobytes() for y in outs}) == 1, k


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integer_products_of_few_columns_and_few_terms(dtype):
    for m in (1, 2, 3, 20):
        for k in (1, 2, 5, 15, 16, 33):
            for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 70):
                a, b = drawn((3, m, k), dtype), drawn((3, k, n), dtype, 1)
                if dtype == "bool":
                    a[:, :, 1:] = False
                want = a @ b
                np.testing.assert_array_equal(called(gd.matmul, a, b), want, str((m, k, n)))
                for got in laid(a[0], b[0]):
                    np.testing.assert_array_equal(got, want[0], str((m, k, n)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_deep_products_have_the_same_bits_whatever_the_first_cache_holds(dtype):
    from graphdiff.runtime.native import lib
    rng = np.random.default_rng(5)
    shapes = [(int(rng.integers(7, 230)), int(rng.integers(130, 2300)), int(rng.integers(20, 420))) for _ in range(40)]
    try:
        for m, k, n in [*shapes, (72, 1024, 512), (73, 1025, 352), (145, 2048, 320), (97, 1151, 330), (200, 256, 64), (65, 129, 321),
                        (300, 1031, 352), (436, 515, 421), (289, 1026, 97)]:     # several blocks of packed rows, of 144 each
            a, b = drawn((m, k), dtype), drawn((k, n), dtype, 1)
            want = a.astype("float64") @ b.astype("float64")
            scale = np.abs(a).astype("float64") @ np.abs(b).astype("float64")
            seen = set()
            for nbytes in (32 << 10, 48 << 10):         # tiles that read strips as they come, and that ask for them ahead
                lib.gd_force_l1(nbytes)
                results = [called(gd.matmul, a, b), called(lambda u, v: u.T @ v, a.T.copy(), b), called(lambda u, v: u @ v.T, a, b.T.copy())]
                assert np.all(np.abs(results[0] - want) <= k * np.finfo(dtype).eps * scale), (m, k, n)
                seen |= {got.tobytes() for got in results[:2 if m <= 16 else 3]}
            assert len(seen) == 1, (m, k, n)
    finally:
        lib.gd_force_l1(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolutions_have_the_same_bits_whatever_the_first_cache_holds(dtype, conv_kernels):
    """Tiles of 8 x 2 and 8 x 3 registers, inside rows and across them, of planes and of patches, added to what is there or not; filters left over."""
    from graphdiff.runtime.native import lib
    cases = [((2, 5, 9, 58), (16, 5, 3, 3), 1), ((1, 64, 7, 40), (20, 64, 3, 3), 1), ((2, 9, 11, 24), (8, 9, 5, 5), 2),
             ((1, 100, 5, 64), (9, 100, 3, 3), 1),
             ((3, 120, 1, 150), (24, 120, 1, 1), 0), ((4, 33, 5, 5), (40, 33, 3, 3), 1), ((1, 3, 30, 100), (17, 3, 7, 7), 3),
             ((2, 4, 6, 130), (8, 4, 3, 2), 1), ((2, 11, 5, 70), (3, 11, 3, 3), 1), ((3, 3, 6, 6), (19, 3, 3, 3), 1), ((2, 7, 9, 25), (11, 7, 2, 5), 2),
             ((70, 3, 2, 3), (7, 3, 2, 2), 0)]
    try:
        for shape, window, padding in cases:
            x, w = drawn(shape, dtype), drawn(window, dtype, 1)
            a, b = gd.input("a", shape, dtype), gd.input("b", window, dtype)
            y = gd.conv(a, b, padding=padding)
            f = gd.function([a, b], [y, gd.grad(gd.sum(y * y), a)], threads=1)
            wide = np.pad(x.astype("float64"), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
            seen = np.lib.stride_tricks.sliding_window_view(wide, window[2:], (2, 3))
            want = np.einsum("nchwij,ocij->nohw", seen, w.astype("float64"))
            results = []
            for nbytes in (32 << 10, 48 << 10):
                lib.gd_force_l1(nbytes)
                results.append([r.copy() for r in f(x, w)])
            np.testing.assert_allclose(results[0][0], want, rtol=0, atol=30 * np.prod(window[1:]) * np.finfo(dtype).eps)
            for one, other in zip(*results, strict=True):
                assert one.tobytes() == other.tobytes(), (shape, window)
    finally:
        lib.gd_force_l1(-1)


# Steps that part the taps into phases: more channels than one pass of a phase takes, fewer taps in some phases, phases by the hundred.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, window, stride, padding", [
    ((3, 210, 5, 6), (210, 9, 4, 4), 2, 1), ((2, 300, 4, 40), (300, 8, 3, 3), 2, 1), ((2, 70, 3, 33), (70, 17, 5, 2), 3, 0),
    ((2, 130, 3, 4), (130, 3, 30, 40), 15, 3), ((2, 90, 2, 3), (90, 2, 60, 70), 40, 0)])
def test_transposed_convolutions_of_many_channels(shape, window, stride, padding, dtype):
    x, w = drawn(shape, dtype), drawn(window, dtype, 1)
    got = called(lambda a, b: gd.conv_transpose(a, b, stride=stride, padding=padding), x, w)
    height, width = [(n - 1) * stride + k for n, k in zip(shape[2:], window[2:], strict=True)]
    want = np.zeros((shape[0], window[1], height, width))
    for i, j in np.ndindex(*window[2:]):
        want[:, :, i:height - window[2] + i + 1:stride, j:width - window[3] + j + 1:stride] += np.einsum(
            "ncyx,cm->nmyx", x.astype("float64"), w[:, :, i, j], optimize=True)
    want = want[:, :, padding:height - padding, padding:width - padding]
    taps = np.prod([-(-k // stride) for k in window[2:]])
    np.testing.assert_allclose(got, want, rtol=0, atol=20 * np.finfo(dtype).eps * np.sqrt(shape[1] * taps) * np.abs(want).max())
    for n in range(shape[0]):                                       # positions of one image stand otherwise in tiles
        one = called(lambda a, b: gd.conv_transpose(a, b, stride=stride, padding=padding), x[n:n + 1], w, threads=1)
        assert one.tobytes() == got[n:n + 1].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("columns", [1, 3, 4, 7, 8, 9, 16, 31, 32, 33, 64, 100, 127, 128, 129, 250, 256, 257, 500, 513, 600])
def test_outer_products_of_short_rows(columns, dtype):
    """One value a row by a row that is the same for all: NumPy's bits, in either order of factors, whatever is in the column."""
    row = drawn((columns,), dtype)
    for rows in (1, 2, 5, 40, 77):
        column = drawn((rows,), dtype, 1)
        if dtype != "int32":
            column[::3] *= -0.0
            column[1::7], row[1:2] = np.inf, np.nan
        wide = np.repeat(column, 3)[::3]                            # the same with gaps
        for x in (column, column[::-1].copy()[::-1], wide):
            for y, want in ((lambda u, v: u[:, None] * v, x[:, None] * row), (lambda u, v: v * u[:, None], row * x[:, None])):
                for threads in (1, 2):
                    got = called(y, x, row, threads=threads)
                    np.testing.assert_array_equal(got, want)
                    assert np.array_equal(np.signbit(got), np.signbit(want)) or np.isnan(want).any()
        block = drawn((3, rows, columns), dtype, 2)
        np.testing.assert_array_equal(called(lambda u, v, w: (u[:, None] * v)[::-1] * w, column, row, block), (column[:, None] * row)[::-1] * block)
        turned = called(lambda u, v: gd.swapaxes(u[:, None] * v, 0, 1), column, row)
        np.testing.assert_array_equal(turned, (column[:, None] * row).T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(5, 6, 7), (64, 3, 40), (9, 17, 64), (3, 50, 300), (1, 8, 33), (4, 1, 65), (300, 300, 100)])
def test_outer_products_of_three_vectors(sizes, dtype):
    """The last of these is of a size that goes past the caches."""
    x, y, z = [drawn((n,), dtype, k) for k, n in enumerate(sizes)]
    want = (x[:, None] * y)[:, :, None] * z
    for threads in (1, 2):
        got = called(lambda *v: gd.einsum("i,j,k->ijk", *v), x, y, z, threads=threads)
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)
    turned = called(lambda *v: gd.einsum("i,j,k->kij", *v), x, y, z)
    np.testing.assert_allclose(turned, np.moveaxis(want, 2, 0), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40])
def test_many_dot_products_have_the_bits_of_each_alone(terms, dtype):
    for shape in ((1,), (7,), (8,), (9,), (33,), (3, 5), (2, 17)):
        a, b = drawn((*shape, 1, terms), dtype), drawn((*shape, terms, 1), dtype, 1)
        a.reshape(-1)[:terms] = 0.0
        b.reshape(-1)[:terms] = -1.0                                # products -0 whose sum is 0
        a.reshape(-1, terms)[-1, 0] = np.inf
        for threads in (1, 2):
            got = called(gd.matmul, a, b, threads=threads)
            each = [called(gd.matmul, x[None], y[:, None]) for x, y in zip(a.reshape(-1, terms), b.reshape(-1, terms), strict=True)]
            assert got.tobytes() == np.array(each).tobytes(), shape
        gaps = called(lambda x, y: gd.matmul(x[..., ::2], y[..., ::2, :]), np.repeat(a, 2, -1), np.repeat(b, 2, -2))
        assert gaps.tobytes() == got.tobytes(), shape


# Sizes on both sides of whole tiles, strips and registers; rows of the right operand few and many sets of a first cache apart.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [5, 6, 7, 13, 31, 32, 33, 64, 100, 129])
@pytest.mark.parametrize("terms, columns", [(33, 64), (64, 64), (40, 100), (70, 96), (100, 100), (65, 128), (64, 33), (130, 129), (128, 128), (257, 128),
                                            (129, 256), (140, 257), (300, 65), (64, 20), (70, 60), (530, 115), (300, 50)])
def test_products_of_middle_sizes_have_the_same_bits_wherever_rows_lie(rows, terms, columns, dtype):
    a, b = drawn((rows, terms), dtype), drawn((terms, columns), dtype, 1)
    got = called(gd.matmul, a, b)
    want = a.astype("longdouble") @ b.astype("longdouble")
    bound = np.abs(a.astype("longdouble")) @ np.abs(b.astype("longdouble")) * np.finfo(dtype).eps * terms
    assert (np.abs(got - want) <= bound).all()
    for width in (columns + 1, columns + 3, -(-columns // 128) * 128, -(-columns // 512) * 512):
        wide = np.full((terms, width), np.nan, dtype)
        wide[:, :columns] = b
        assert called(gd.matmul, a, wide[:, :columns]).tobytes() == got.tobytes()
    many = called(gd.matmul, np.stack([a, a[::-1], a]), np.stack([b, b, b[:, ::-1]]))
    assert many[0].tobytes() == got.tobytes() and many[1, ::-1].tobytes() == got.tobytes() and many[2, :, ::-1].tobytes() == got.tobytes()


# A matrix that no second cache holds, read in pieces by few rows: rows of a product of more, which is computed strip by strip.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms, columns", [(1100, 513), (1057, 640), (70, 9001), (64, 17409), (1030, 160), (300, 477)])
def test_few_rows_by_a_large_matrix_have_the_bits_of_many(terms, columns, dtype):
    a, b = drawn((80, terms), dtype), drawn((terms, columns), dtype, 1)
    many = called(gd.matmul, a, b)
    assert (np.abs(many - a.astype("float64") @ b) <= 40 * np.finfo(dtype).eps * (np.abs(a).astype("float64") @ np.abs(b))).all()
    wide = np.full((terms, columns + 3), np.nan, dtype)
    wide[:, :columns] = b
    for rows in (2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 23, 32, 33, 47, 64, 65):
        few = np.ascontiguousarray(a[80 - rows:])
        for got in (called(gd.matmul, few, b), called(gd.matmul, few, b, threads=2), called(gd.matmul, few, wide[:, :columns]),
                    called(lambda x, y: y.T @ x.T, few, b).T, called(lambda x, y: (y.T @ x).T, np.ascontiguousarray(few.T), b)):
            assert got.tobytes() == many[80 - rows:].tobytes(), rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(30, 96), (200, 97), (17, 130), (16, 400), (700, 200), (600, 300), (4096, 101), (5000, 99), (3, 300), (64, 95)])
def test_a_matrix_times_its_own_transpose_has_the_bits_of_any_product(shape, dtype):
    """Half of it is computed, the other half copied: it is symmetric, and what two equal matrices give."""
    x, y = gd.input("x", shape, dtype), gd.input("y", shape, dtype)
    a = np.random.default_rng(5).standard_normal(shape).astype(dtype)
    a[0, :2] = np.nan, np.inf
    for first, second, value in ((x.T, x, a), (x.T[::-1], x[:, ::-1], a), (x[1:-1].T, x[1:-1], a)):
        f = gd.function([x], first @ second, threads=1)
        (panel,) = [attrs for op, _, _, attrs, _ in f.program.instrs if op == "matmul"]
        assert bool(panel) == (shape[1] >= 96 and 16 <= first.shape[1] <= 4096)
        got = f(value)
        assert np.array_equal(got, got.T, equal_nan=True)
        assert got.tobytes() == gd.function([x], first @ second, threads=2)(value).tobytes()
        other = gd.function([x, y], first @ _of(y, second), threads=1)(value, value)
        np.testing.assert_array_equal(got, other)
        checked(3)
    g = gd.grad(gd.sum((x.T @ x) ** 2), x)
    a = np.random.default_rng(6).standard_normal(shape).astype(dtype)
    want = 4 * a.astype("float64") @ (a.T.astype("float64") @ a.astype("float64"))
    close = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(gd.evaluate(g, {x: a}), want, rtol=100 * close, atol=abs(want).max() * close)
    checked()


def _of(y, node):
    """The view of x that a node is, of y."""
    return y if node.op.name == "input" else node._replace((_of(y, node.inputs[0]),))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_matrices_without_neighbours_in_memory_have_the_bits_of_those_with(dtype):
    views = {"columns apart": lambda v: v[:, ::2], "both apart": lambda v: v[::2, ::3], "backwards": lambda v: v[:, ::-1], "few": lambda v: v[:3, ::5]}
    for name, view in views.items():
        x, y = gd.input("x", (60, 66), dtype), gd.input("y", (66, 60), dtype)
        a, b = ((np.random.default_rng(k).standard_normal(s) * 9).astype(dtype) for k, s in enumerate([(60, 66), (66, 60)]))
        left = view(x)
        right = y[:left.shape[1], ::2]
        for p, q in ((left, right), (right.T, left.T), (left, right[:, 3]), (right[:, 3], left.T)):
            got = gd.function([x, y], p @ q)(a, b)
            u, v = (gd.input("u", p.shape, dtype), gd.input("v", q.shape, dtype))
            dense = [np.ascontiguousarray(r) for r in gd.function([x, y], [p, q])(a, b)]
            want = gd.function([u, v], u @ v)(*dense)
            np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "float32" else 1e-12, err_msg=name)
            checked()


def test_bools_by_a_vector_whatever_the_bytes():
    """The first terms are tested as one word, the others in blocks: where the only true pair is does not matter."""
    rng = np.random.default_rng(0)
    for terms in (1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 72, 73, 200, 1000):
        a = np.zeros((terms + 4, terms), bool)
        a[:terms] = np.eye(terms, dtype=bool)
        a[terms:] = rng.random((4, terms)) < [[0.0], [0.01], [0.5], [1.0]]
        for v in (np.ones(terms, bool), np.zeros(terms, bool), np.eye(1, terms, terms - 1, dtype=bool)[0], rng.random(terms) < 0.3):
            x, y = gd.input("x", a.shape, "bool"), gd.input("y", v.shape, "bool")
            got = gd.function([x, y], [x @ y, y @ x.T, x @ gd.stack([y, y], 1), x[:, ::-1] @ y[::-1]])(a, v)
            want = (a & v).any(1)
            for part in (got[0], got[1], got[2][:, 0], got[2][:, 1], got[3]):
                assert np.array_equal(part, want), terms
                checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [2, 3, 4])
def test_few_rows_by_columns_of_two_to_four_numbers_that_lie_together(terms, dtype):
    """As they lie, with numbers between them that are no part of them, and as rows."""
    for columns in (31, 32, 33, 39, 40, 63, 65, 100, 1001):
        b = drawn((columns, terms), dtype, 1)
        b[0, 0], b[-1, -1], b[5] = -0.0, np.inf, np.nan
        wide = np.full((columns, terms + 2), np.nan, dtype)
        wide[:, 1:-1] = b
        for rows in (2, 3, 5, 16, 17):
            a = drawn((rows, terms), dtype)
            a[1] = 0.0
            want = called(gd.matmul, a, np.ascontiguousarray(b.T))
            for got in (called(lambda x, y: x @ y.T, a, b), called(lambda x, y: x @ y[:, 1:-1].T, a, wide),
                        called(lambda x, y: x.T @ y.T, np.ascontiguousarray(a.T), b), called(lambda x, y: (y @ x.T).T, a, b)):
                assert np.array_equal(np.isnan(got), np.isnan(want))
                assert got[~np.isnan(want)].tobytes() == want[~np.isnan(want)].tobytes(), (rows, columns)
                checked()
