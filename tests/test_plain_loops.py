"""Elementwise loops against NumPy, bit for bit: one value for a row or for all, integer division in its several ways, operands that are
reversed, spread or turned."""
import itertools

import numpy as np
import pytest

import graphdiff as gd

DTYPES = ["float32", "float64", "int32", "int64", "uint8"]
SINGLE = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "copysign", "equal", "not_equal", "less", "less_equal",
          "greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift",
          "right_shift"]
FLOATS_ONLY, INTEGERS_ONLY = {"divide", "fmax", "fmin", "copysign"}, {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}


def numbers(n, dtype, seed=0):
    """Of every size, with the edges among them."""
    r = np.random.default_rng([seed, n])
    if dtype.startswith("float"):
        x = (r.standard_normal(n) * 10.0 ** r.integers(-3, 4, n)).astype(dtype)
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1], dtype)
    else:
        info = np.iinfo(dtype)
        x = (r.integers(info.min, info.max, n, dtype, endpoint=True) >> r.integers(0, info.bits, n).astype(dtype)).astype(dtype)
        edges = np.array([info.min, info.max, 0, 1, info.max // 2, *([-1] if info.min else [])]).astype(dtype)
    x[r.integers(0, n, n // 7)] = r.choice(edges, n // 7)
    return x


def same(value, want):
    assert value.dtype == want.dtype and value.shape == want.shape
    if value.dtype.kind == "f":                         # a NaN is a NaN
        assert (np.isnan(value) == np.isnan(want)).all()
        value, want = (np.where(np.isnan(a), 0, a) for a in (value, want))
    assert value.tobytes() == want.tobytes()


def both(f, *arrays):
    """f of graphdiff and of NumPy on these arrays, on one thread and on two."""
    x = [gd.input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
    with np.errstate(all="ignore"):
        want = f(np, *arrays)
    y = f(gd, *x)
    for threads in (1, 2):
        same(gd.function(x, y, threads=threads)(*arrays), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", SINGLE)
def test_one_value_for_all_or_for_a_row(op, dtype):
    if op in (INTEGERS_ONLY if dtype.startswith("float") else FLOATS_ONLY):
        x = gd.input("x", (3,), dtype)
        if op not in FLOATS_ONLY:
            with pytest.raises(gd.errors.DTypeError):
                getattr(gd, op)(x, x)
        return
    short, long, rows = numbers(37, dtype), numbers(40_001, dtype, 1), numbers(7 * 300, dtype, 2).reshape(7, 300)
    ones = numbers(7, dtype, 3)
    if op.endswith("shift"):
        ones = np.array([0, 1, 7, 8, 31, 64, 2], dtype)

    def apply(m, x, y):
        return getattr(m, op)(x, y)

    for one in ones:
        both(apply, short, one.reshape(1))
        both(apply, one.reshape(1), short)
    both(apply, long, ones[:1])
    both(apply, ones[:1], long)
    both(apply, rows, ones.reshape(7, 1))
    both(apply, ones.reshape(7, 1), rows)
    both(apply, rows[:, ::2], ones.reshape(7, 1))       # a row of its own at a time
    both(apply, ones[:1], ones[1:2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_clip_between_values_rows_and_arrays(dtype):
    x, low, high = (numbers(40_001, dtype, i) for i in range(3))

    def clip(m, x, low, high):
        return m.minimum(m.maximum(x, low), high)

    both(clip, x, low, high)
    for i, j in itertools.product(range(12), repeat=2):
        both(clip, x[:203], low[i:i + 1], high[j:j + 1])
    both(clip, x, low[:1], high[:1])
    both(clip, x, low, high[:1])
    both(clip, x[:2100].reshape(7, 300), low[:7].reshape(7, 1), high[:7].reshape(7, 1))
    both(clip, x[:300], x[:300], low[:1])


EXACT = [*SINGLE, "negative", "abs", "sign", "square", "floor", "ceil", "rint", "trunc", "sqrt", "reciprocal", "isnan", "isfinite", "signbit",
         "invert", "logical_not"]
REAL = FLOATS_ONLY | {"floor", "ceil", "rint", "trunc", "sqrt", "reciprocal", "isnan", "isfinite", "signbit"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", EXACT)
def test_arrays_that_no_cache_near_holds(op, dtype):
    """Loops of another width may do them: the bits are the same, and those of pieces."""
    if op in (INTEGERS_ONLY | {"invert"} if dtype.startswith("float") else REAL):
        return
    n = 1_100_003 if dtype == "uint8" else 300_007
    arrays = [numbers(n, dtype), numbers(n, dtype, 1)][:2 if op in SINGLE else 1]

    def apply(m, *x):
        return getattr(m, op)(*x)

    both(apply, *arrays)
    if len(arrays) == 2:
        both(apply, arrays[0], arrays[1][:1])
        both(apply, arrays[0][:1], arrays[1])


DIVISORS = [0, 1, 2, 3, 5, 7, 10, 16, 100, 127, 128, 200, 255, 641, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32 + 1, 2**53 - 1, 2**53 + 1,
            2**62 - 1, 2**62 + 1, 2**63 - 1]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["floor_divide", "remainder"])
def test_integer_division(op, dtype):
    info = np.iinfo(dtype)
    x = numbers(3001, dtype)

    def apply(m, x, y):
        return getattr(m, op)(x, y)

    signed = sorted({d * s for d in DIVISORS for s in (1, -1)} | {info.min, info.min + 1})
    for d in (d for d in signed if info.min <= d <= info.max):
        one = np.array([d], dtype)
        near = x.copy()                                 # multiples of d and their neighbours
        with np.errstate(over="ignore"):
            near[:1000] = x[:1000] // one * one if d else 0
        near[1000:2000] = near[:1000] + np.array(1, dtype)
        near[2000:] = near[:1001] - np.array(1, dtype)
        for a in (x, near, (x >> 33 if info.bits == 64 else x >> 1)):
            both(apply, a, one)                         # a value for all
        both(apply, near, np.full(3001, d, dtype))      # an array that has one value only
    y = numbers(3001, dtype, 1)
    both(apply, x, y)
    both(apply, (x >> 11 if info.bits == 64 else x), (y >> 11 if info.bits == 64 else y))    # what float64 holds
    both(apply, np.multiply(x, y), y)
    both(apply, x[:1], y)
    both(apply, x[:2100].reshape(7, 300), y[:7].reshape(7, 1))


@pytest.mark.parametrize("op", ["floor_divide", "remainder"])
def test_integers_that_are_divided_as_floats(op):
    """Around what a sum with 1.5 x 2^52 converts and what float64 holds; quotients that are whole, or next to it, of either sign."""
    def apply(m, x, y):
        return getattr(m, op)(x, y)

    r = np.random.default_rng(5)
    for n in (*range(1, 12), 127, 128, 129, 131, 1000):
        for bits in (7, 20, 50, 51, 52, 53):
            y = r.integers(-2**(bits // 2), 2**(bits // 2) + 1, n)
            x = np.clip(r.integers(-2**bits, 2**bits, n) // np.where(y == 0, 1, y) * y + r.integers(-1, 2, n), -2**bits, 2**bits)
            x[r.integers(n)], y[r.integers(n)] = r.choice([2**51 - 1, 2**51, -2**51, 0]), r.choice([0, 1, -1, 2**51 - 1, -2**51])
            both(apply, x, y)
            both(apply, y, x)


@pytest.mark.parametrize("to", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_to_integers_of_every_length(dtype, to):
    """Cut off; what int32 (of uint8 too) or int64 does not hold, and NaN, is its minimum."""
    x = np.concatenate([numbers(300, dtype), np.array([255.9, -0.9, 256, 2.0**31, 2.0**31 - 0.5, -2.0**31 - 1, -2.0**31 - 0.5, 2.0**63, -2.0**63,
                                                       1e30, -1e30]).astype(dtype)])
    end = 2.0**63 if to == "int64" else 2.0**31
    whole = np.trunc(x.astype(np.float64))
    held = (whole >= -end) & (whole < end)
    want = np.where(held, np.where(held, whole, 0).astype(np.int64), -int(end)).astype(to)
    node = gd.input("x", ("n",), dtype)
    f = gd.function([node], node.astype(to))
    for n in range(70):
        same(f(x[-n:] if n else x[:0]), want[-n:] if n else want[:0])
    same(f(x), want)
    same(f(x[::-3]), want[::-3])


VIEWS = {"reversed": lambda x: x[:, ::-1], "rows reversed": lambda x: x[::-1], "every second": lambda x: x[:, 1::2], "every third": lambda x: x[:, ::3],
         "every fourth": lambda x: x[:, 3::4], "every fifth back": lambda x: x[:, ::-5], "turned": lambda x: x.T,
         "turned and reversed": lambda x: x.T[::-1, ::-1],
         "some turned rows": lambda x: x.T[::2], "inside": lambda x: x[1:-1, 2:-3]}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("view", VIEWS)
def test_operands_of_every_stride(view, dtype):
    f = VIEWS[view]
    for rows, columns in ((5, 9), (40, 31), (150, 403), (403, 150), (1, 3000), (300, 2)):
        # Whole numbers: float16 sums are exact, or rounded once.
        x = numbers(rows * columns, "uint8", rows).reshape(rows, columns).astype(dtype)
        if 0 in f(x).shape:
            continue
        both(lambda m, x: f(x) + f(x) * 2 if dtype != "uint8" else f(x) ^ 1, x)
        both(lambda m, x: f(x) + 1, x)
        both(lambda m, x: f(x) - f(x[::-1]), x)
        both(lambda m, x: m.maximum(f(x)[:, :1], f(x)), x)
        both(lambda m, x, y: f(x) - y, x, np.ascontiguousarray(f(x))[::-1].copy())
        both(lambda m, x: f(x) < f(x)[..., :1], x)
        if rows == columns or view.startswith("row"):
            both(lambda m, x: x + f(x), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_even_and_odd_columns(dtype):
    """Both halves of an array by one loop, of every length, up to the array's last element."""
    x = numbers(3 * 330, dtype, 4)
    if dtype.startswith("float"):
        x[5::31], x[7::37], x[11::41], x[13::43] = np.inf, np.nan, 1e-40, -0.0
    for columns in range(256, 330):
        y = x[-3 * columns:].reshape(3, columns)
        n = columns // 2 * 2
        both(lambda m, y, n=n: y[:, :n:2] + y[:, 1::2], y)
        if columns % 9 == 0:
            both(lambda m, y, n=n: y[:, 1::2] - y[:, :n:2], y)
            both(lambda m, y, n=n: m.maximum(y[:, :n:2], y[:, 1::2]), y)
            both(lambda m, y, n=n: y[:, :n:2] * y[::-1, 1::2], y)


def test_signs_of_float16_are_bits():
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    for op in ("abs", "negative", "square"):
        both(lambda m, x, op=op: getattr(m, op)(x), x)
    y = x.reshape(256, 256)
    for view in VIEWS.values():
        both(lambda m, x, view=view: m.abs(view(x)), y)
        both(lambda m, x, view=view: -view(x), y)
    node = gd.input("x", x.shape, "float16")
    signs = gd.function([node], [abs(node), -node])(x)
    assert not (signs[0].view(np.uint16) >> 15).any() and ((signs[1].view(np.uint16) ^ x.view(np.uint16)) == 0x8000).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_sums_straight_from_memory_have_the_bits_of_sums_of_an_array(dtype):
    """Squares of floats, and integers in float64: as if the array to be summed had been written first."""
    for shape in ((1,), (15,), (4095,), (4096,), (4097,), (5 * 4096 + 33,), (70_000,), (3, 10), (5, 4096), (2, 9000), (3, 20_000)):
        if dtype.startswith("float"):
            x = np.random.default_rng(shape).standard_normal(shape).astype(dtype)
        else:
            x = np.random.default_rng(shape).integers(0, 2, shape).astype(dtype) if dtype == "bool" else numbers(int(np.prod(shape)), dtype).reshape(shape)
        node = gd.input("x", x.shape, dtype)

        def total(x):
            return gd.sum(gd.square(x), axis=-1) if dtype.startswith("float") else gd.sum(x.astype("float64"), axis=-1)

        for a in (x, x[..., ::-1]):
            node = gd.input("x", a.shape, dtype)
            view = total(node) if a is x else total(node[..., ::-1])
            plain = gd.function([node], view, passes=(), threads=1)(x)
            for threads in (1, 2):
                assert gd.function([node], view, threads=threads)(x).tobytes() == plain.tobytes()
            wide = a.astype(np.float64)
            np.testing.assert_allclose(plain, (wide * wide if dtype.startswith("float") else wide).sum(-1), rtol=1e-6, atol=1e-6 * np.abs(wide).max())
