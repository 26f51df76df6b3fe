"""Sorts that need not compare everything: few values, many equal ones, lines in order or reversed, short lines, ranks."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting import checked
from test_sort_lines import with_bad_pivots

import graphdiff as gd

DTYPES = ("int32", "int64", "float32", "float64")
FEW = (1, 2, 3, 4, 5, 8, 9, 12, 13, 16, 17, 40, 200)


def orders(x: Any) -> tuple[Any, Any]:
    """Positions in rising and in falling order along the last axis."""
    return np.argsort(x, axis=-1, kind="stable"), x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)


def check(x: Any, threads: int = 1) -> None:
    """Both sorts and both argsorts, bit by bit."""
    n = gd.input("n", x.shape, x.dtype.name)
    got = gd.function([n], [gd.sort(n), gd.sort(n, descending=True), gd.argsort(n), gd.argsort(n, descending=True)], threads=threads)(x)
    for i, order in enumerate(orders(x)):
        assert np.array_equal(got[2 + i], order)
        assert np.asarray(got[i]).tobytes() == np.take_along_axis(x, order, -1).tobytes()


def drawn(dtype: str, size: Any, few: int, random: Any) -> Any:
    """So many values at most."""
    values = random.integers(-2**31, 2**31, few) * (2**31 if dtype == "int64" else 1)
    return random.choice((values / 3 if dtype.startswith("float") else values).astype(dtype), size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_of_few_values_are_in_order(dtype: str) -> None:
    random = np.random.default_rng(0)
    for size in (257, 600, 1023, 1024, 1500, 2049, 5000, 16_384, 33_001):
        for few in FEW:
            check(drawn(dtype, size, few, random))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_lines_of_few_values_are_in_order(dtype: str, threads: int) -> None:
    random = np.random.default_rng(1)
    for few in (1, 2, 9, 30, 300):
        check(drawn(dtype, 270_001, few, random), threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_no_sample_sees_is_sorted_as_well(dtype: str) -> None:
    """A few values and then some others, the lowest and the highest there are among them; half of all equal and no others."""
    random = np.random.default_rng(2)
    info: Any = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    for size in (700, 3000, 20_000, 140_000, 270_000):
        for few in (2, 7, 15):
            x = drawn(dtype, size, few, random)
            x[size // 3 + 1] = 5
            check(x)
            x[[1, size // 2 + 3, size - 2]] = info.max, info.min, info.max
            check(x)
        check(np.where(random.random(size) < 0.5, 7, np.arange(size)).astype(dtype))
        check(random.choice(np.array([info.max, info.max - 1 if dtype.startswith("int") else 0, info.min], dtype), size))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_of_both_signs_and_nans_among_few_values(dtype: str) -> None:
    random = np.random.default_rng(3)
    nans = np.array([np.nan, -np.nan], dtype)
    for size in (300, 1100, 5000, 20_000, 140_000):
        for values in ([0.0, -0.0], [-0.0], [1.0, 0.0, -0.0, -1.0], [np.inf, -np.inf, -0.0], [*nans, 1.0], [*nans, 0.0, -0.0, 3.0, np.inf], [*nans]):
            check(random.choice(np.array(values, dtype), size))
        x = random.choice(np.array([0.0, 1.0, 2.0], dtype), size)
        x[size // 2 + 1] = -0.0
        check(x)
        x[size // 2 + 2] = -nans[0]
        check(x)


def test_more_keys_than_a_table_holds_and_keys_whose_slots_collide() -> None:
    random = np.random.default_rng(4)
    for dtype in DTYPES:
        for keys in (50, 1000, 4095, 4096, 4097, 9000):
            x = np.where(random.random(60_000) < 0.7, 3, random.integers(0, keys, 60_000)) * (2**40 if dtype == "int64" else 1)
            check(x.astype(dtype))
    check(random.choice(np.arange(64) * 2**26, 30_000).astype("int32"))
    check(random.choice(np.arange(64) * 2**56, 30_000))


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_in_order_but_for_one_element(dtype: str) -> None:
    for size in (2, 17, 100, 513, 1025, 4100, 140_000):
        for step in (1, 0.5):
            line = np.floor(np.arange(size) * step - size // 3).astype(dtype)
            for x in (line, line[::-1].copy()):
                check(x)
                for at in sorted({0, 1, 16 % size, size // 2, size - 2, size - 1}):
                    y = x.copy()
                    y[at] = y[size // 4]
                    check(y)
                    if dtype.startswith("float"):
                        y[at] = np.nan
                        check(y)
                        y[at] = -0.0
                        check(y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_in_order_but_for_a_short_end(dtype: str) -> None:
    """Ends of elements among the others, before all, after all, equal to some; of one in 32 and of one more."""
    random = np.random.default_rng(9)
    for size in (32, 700, 1056, 5000, 50_000, 140_000, 300_000):
        for last in (1, 2, size // 200, size // 32, size // 32 + 1):
            for values in (9, size, 10**6):
                x = np.sort(random.integers(-values, values, size)).astype(dtype)
                ends = [random.integers(-values, values, last), np.full(last, x[size // 3]), np.arange(last)[::-1] - 3 * values,
                        np.arange(last) + 3 * values]
                for end in ends[:4 if size < 10_000 else 1]:
                    if last:
                        x[-last:] = end
                    check(x)
                    check(-x)
                    if last and dtype.startswith("float"):
                        x[-last // 2] = np.nan
                        x[-last] = -0.0
                        check(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_across_rows(dtype: str) -> None:
    """Networks' worth of columns: whole ones, several, some left over; some with NaN and -0."""
    random = np.random.default_rng(10)
    for rows in (2, 5, 16, 33, 64, 100, 512, 513):
        for columns in (1, 8, 15, 16, 17, 31, 32, 64, 79, 130, 200):
            x = (random.standard_normal((rows, columns)) * 1e8).astype(dtype)
            if dtype.startswith("float") and columns % 2:
                x[random.random(x.shape) < 0.02] = np.nan
                x[random.random(x.shape) < 0.02] = -0.0
            n = gd.input("n", x.shape, dtype)
            up, down, every = gd.function([n], [gd.sort(n, axis=0), gd.sort(n, axis=0, descending=True), gd.sort(n[:, ::2], axis=0)])(x)
            first, last = (order.T for order in orders(x.T.copy()))
            assert np.asarray(up).tobytes() == np.take_along_axis(x, first, 0).tobytes(), (rows, columns)
            assert np.asarray(down).tobytes() == np.take_along_axis(x, last, 0).tobytes(), (rows, columns)
            assert np.asarray(every).tobytes() == np.take_along_axis(x, first, 0)[:, ::2].tobytes(), (rows, columns)


@pytest.mark.parametrize("dtype", DTYPES)
def test_short_lines_next_to_each_other(dtype: str) -> None:
    """Two at a time, one that is left over, some with what cannot be sorted as it is; every other one; top_k of them."""
    random = np.random.default_rng(5)
    for size in (17, 33, 63, 64, 65, 66, 100, 127, 128, 129, 200, 256, 257, 300, 512, 513):
        for lines in (1, 2, 3, 10):
            x = (random.standard_normal((lines, size)) * 1e8).astype(dtype)
            check(x)
            if dtype.startswith("float"):
                x[random.integers(lines), random.integers(size)] = np.nan
                x[random.integers(lines), random.integers(size)] = -0.0
                check(x)
            n = gd.input("n", x.shape, dtype)
            view, top = gd.function([n], [gd.sort(n[::2, ::-1]), gd.top_k(n, 5)])(x)
            assert np.array_equal(view, np.sort(x[::2]), equal_nan=True)
            assert np.asarray(top).tobytes() == np.take_along_axis(x, orders(x)[1][:, :5], -1).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_where_pivots_are_near_them(dtype: str) -> None:
    random = np.random.default_rng(6)
    for size in (600, 5000, 17_000, 140_000, 300_000):
        line = (random.standard_normal(size) * 1e6).astype(dtype)
        for x in (line, np.sort(line), np.sort(line)[::-1].copy(), drawn(dtype, size, 3, random), drawn(dtype, size, 10, random)):
            n = gd.input("n", x.shape, dtype)
            for k in (1, 7, size // 100, size // 3, size // 2):
                top, = gd.function([n], [gd.top_k(n, k)])(x)
                assert np.array_equal(top, np.sort(x)[::-1][:k]), (size, k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_medians_of_any_line(dtype: str) -> None:
    random = np.random.default_rng(7)
    for size in (513, 514, 1000, 4097, 16_385, 20_000, 100_001):
        line = (random.standard_normal(size) * 1e6).astype(dtype)
        kinds = [line, np.sort(line), np.sort(line)[::-1].copy(), np.where(random.random(size) < 0.5, 3, line).astype(dtype)]
        kinds += [drawn(dtype, size, few, random) for few in (1, 2, 4, 5, 16, 17)]
        both = np.stack(kinds)
        if dtype.startswith("float"):
            both = np.concatenate([both, np.where(np.arange(size) < size * 2 // 3, -0.0, line)[None].astype(dtype)])
        n = gd.input("n", both.shape, dtype)
        views = [n, n[:, ::-1], n[:, 1:]]
        got = gd.function([n], [gd.median(v, axis=1) for v in views] + [gd.median(n.T[::2], axis=0)])(both)
        for value, x in zip(got, [both, both, both[:, 1:], both[:, ::2]], strict=True):
            want = np.sort(x, axis=1).astype("float64" if dtype.startswith("int") else dtype)
            k = x.shape[1]
            want = want[:, k // 2] if k % 2 else 0.5 * (want[:, k // 2 - 1] + want[:, k // 2])
            assert np.array_equal(value, want), size
            assert k <= 512 or not np.signbit(np.asarray(value)[want == 0]).any()
        if dtype.startswith("float"):
            both[::2, size // 3] = -np.nan
            assert np.array_equal(np.isnan(gd.function([n], gd.median(n, axis=1))(both)), np.arange(len(both)) % 2 == 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_median_is_found_where_all_pivots_are_bad(dtype: str) -> None:
    size, lanes = 16_000, 64 // np.dtype(dtype).itemsize

    def row(gone: int, left: int) -> int:
        at = int(((size - 1) // 2 - gone) / left * 8)
        off = 1 + min(at, 8 - at) // 8
        return at + off if at < 4 else at - off

    x = with_bad_pivots(size, lanes, 8, False, row).astype(dtype)
    n = gd.input("n", x.shape, dtype)
    assert gd.function([n], gd.median(n))(x) == (size - 1) / 2


def test_places_of_extremes_of_rows_of_float64() -> None:
    random = np.random.default_rng(8)
    for size in (31, 32, 33, 63, 64, 65, 100, 1000, 2047, 2048, 2049, 5000):
        x = random.integers(-3, 4, (12, size)).astype("float64")
        x[3:6] *= random.choice([1.0, -1.0], size)
        x[6] = np.inf
        x[7] = -np.inf
        x[8, random.integers(size, size=2)] = np.nan
        x[9:11] = random.standard_normal((2, size))
        x[10, -1] = np.nan
        x[11] = np.nan
        n = gd.input("n", x.shape, "float64")
        high, low = gd.function([n], [gd.argmax(n, axis=1), gd.argmin(n, axis=1)])(x)
        assert np.array_equal(high, np.argmax(x, axis=1)), size
        assert np.array_equal(low, np.argmin(x, axis=1)), size


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 1), 1), ((3, 1, 4), 1), ((1, 6), 0), ((1,), 0), ((0, 1), 1)])
def test_one_element_is_in_order(dtype, shape, axis):
    """Nothing is sorted; the result is an array of its own, and NaN stays."""
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    if x.dtype.kind == "f" and x.size:
        x.reshape(-1)[0] = np.nan
    n = gd.input("x", shape, dtype)
    outputs = [gd.sort(n, axis=axis), gd.argsort(n, axis=axis), gd.top_k(gd.moveaxis(n, axis, -1), 1), gd.median(n, axis=axis)]
    f = gd.function([n], outputs)
    got = f(x)
    with np.errstate(all="ignore"):
        wants = [np.sort(x, axis), np.argsort(x, axis, kind="stable"), np.moveaxis(x, axis, -1),
                 np.median(x, axis) if x.size else np.zeros(0)]
    for a, want in zip(got, wants, strict=True):
        assert a.shape == want.shape and not np.shares_memory(a, x)
        np.testing.assert_array_equal(a, want)
        checked()
    assert not {"sort", "argsort"} & {op for op, *_ in f.program.instrs}
    if dtype == "float64" and x.size:
        g = gd.grad(gd.sum(gd.sort(n, axis=axis) * 3 + gd.top_k(gd.moveaxis(n, axis, -1), 1).reshape(shape)) + gd.sum(gd.median(n, axis=axis)), n)
        np.testing.assert_array_equal(gd.evaluate(g, {n: np.ones(shape)}), np.full(shape, 5.0))
        checked()
