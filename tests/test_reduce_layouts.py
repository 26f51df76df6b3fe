"""Reductions whose shapes take paths of their own: few rows of many columns, rows that end inside a register, short runs far apart,
transposed operands; against NumPy, and with the same bits whatever the layout."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

EXACT = ("merge", "algebra", "fold", "fuse", "in_place")        # without stable_forms, which takes sums of a transpose in the order of memory
DTYPES = ("uint8", "int32", "int64", "float32", "float64")
CASES: tuple[tuple[tuple[int, ...], Any], ...] = (
    *[((n, w), 0) for n in (1, 2, 3, 4, 5, 8, 11, 16, 17, 35, 50, 128, 129) for w in (130, 2100)],
    *[((n, w), 0) for n in (32, 33, 48, 64, 65) for w in (127, 131, 1024)],          # rows read two lanes at a time, from 128 columns on
    *[((n, w), 0) for n in (17, 18, 19, 20, 21, 24, 25, 27, 31) for w in (129, 143, 2049)],     # four lanes of one or two rows at a time
    *[((n, w), 0) for n in (13, 14, 15, 16) for w in (1023, 1024, 1029, 2309)],        # eight of them at a time, from 1024 columns on
    *[((n, w), 0) for n in (66, 79, 80, 81, 95, 97, 111, 112, 113, 127, 128) for w in (127, 131, 519)],       # one lane after the other
    *[((n, 37, 9), 0) for n in (3, 50)],
    *[((5, n), 1) for n in (1, 7, 8, 15, 16, 17, 23, 31, 32, 33, 63, 65, 70, 257, 4097)],
    ((20, 2, 20, 2), (1, 3)), ((9, 3, 7, 5), (1, 3)), ((5, 3, 4, 2, 4, 2), (1, 3, 5)), ((6, 4, 130, 2), (1, 3)),      # short lines along several axes
    ((40, 6, 7), (0, 2)), ((40, 6, 70), (0, 2)), ((3, 5, 7), (0, 1)), ((50, 6, 70), 2), ((30, 41), None))


def sample(shape: tuple[int, ...], dtype: str) -> Any:
    """Integers that wrap when added or multiplied; floats near 1 of both signs, with zeros of both signs."""
    random = np.random.default_rng(len(shape))
    if not dtype.startswith("float"):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    x = (random.uniform(0.9, 1.1, shape) * random.choice([-1, 1], shape)).astype(dtype)
    x[random.random(shape) < 0.1] = -0.0
    x[random.random(shape) < 0.1] = 0.0
    return x


def spread(x: Any) -> Any:
    """x with elements between that would win, or make a NaN of, every result they got into; none behind the last."""
    out = np.full((*x.shape[:-1], 2 * x.shape[-1] - 1), np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).max, x.dtype)
    if x.dtype.kind != "f":
        out[..., 1::4] = np.iinfo(x.dtype).min
    out[..., ::2] = x
    return out


def run(name: str, x: Any, axis: Any) -> Any:
    """The reduction of x as it lies, of x stored with its axes reversed, and of every second element of a wider array, forwards and
    backwards: they have the same bits; one of them."""
    f, results = partial(getattr(gd, name), axis=axis), []
    for stored, view in ((x, lambda n: n), (np.ascontiguousarray(x.T), lambda n: n.T), (spread(x), lambda n: n[..., ::2]),
                         (spread(x[..., ::-1]), lambda n: n[..., ::-2])):
        n = gd.input("n", stored.shape, x.dtype.name)
        results.append(np.asarray(gd.function([n], f(view(n)), threads=1, passes=EXACT)(stored)))
    assert len({r.tobytes() for r in results}) == 1, (name, x.shape, axis)
    return results[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_of_few_rows_and_ragged_ends(dtype: str) -> None:
    for shape, axis in CASES:
        x = sample(shape, dtype)
        for special in (False, True) if dtype.startswith("float") else (False,):
            if special:
                x[np.random.default_rng(0).random(shape) < 0.02] = np.nan
                x[np.random.default_rng(1).random(shape) < 0.02] = -np.inf
            for name in ("max", "min"):
                got = run(name, x, axis)
                want = getattr(np, name)(x, axis=axis)
                assert np.array_equal(got, want, equal_nan=special), (name, shape, axis)
                if not special and dtype.startswith("float"):          # of zeros alone, max is 0 if there is one, min is -0
                    zeros = run(name, x * 0, axis)
                    signs = np.signbit(x * 0)
                    assert np.array_equal(np.signbit(zeros), (np.all if name == "max" else np.any)(signs, axis=axis)), (name, shape, axis)
            if not isinstance(axis, tuple):
                for name in ("argmax", "argmin"):
                    assert np.array_equal(run(name, x, axis), getattr(np, name)(x, axis=axis)), (name, shape, axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_products_and_counts_of_few_rows_and_ragged_ends(dtype: str) -> None:
    real = dtype.startswith("float")
    for shape, axis in CASES:
        x = sample(shape, dtype)
        assert np.array_equal(run("count_nonzero", x, axis), np.count_nonzero(x, axis=axis)), (shape, axis)
        if real:
            assert not np.signbit(run("sum", np.full_like(x, -0.0), axis)).any(), (shape, axis)        # from 0 on, in every layout
        for name in ("sum", "prod"):
            got = run(name, x, axis)
            if real:
                want = getattr(np, name)(x.astype("float64"), axis=axis)
                assert np.allclose(got, want, rtol=1e-3 if dtype == "float32" else 1e-11, atol=1e-4 if dtype == "float32" else 1e-11), (name, shape, axis)
            else:
                with np.errstate(over="ignore"):
                    assert np.array_equal(got, getattr(np, name)(x, axis=axis, dtype="int64")), (name, shape, axis)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 20, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_negative_zeros_is_zero_and_a_product_keeps_its_sign(dtype: str, n: int) -> None:
    x = np.full((n, 200), -0.0, dtype)
    assert not np.signbit(run("sum", x, 0)).any()
    assert not np.signbit(run("sum", np.ascontiguousarray(x.T), 1)).any()
    assert (np.signbit(run("prod", x, 0)) == n % 2).all()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_the_first_of_equal_extremes_wins_wherever_it_stands(dtype: str) -> None:
    """Rows longer than four registers, also of the type's own lowest value only."""
    for n in (32, 33, 40, 63, 64, 65, 71, 80, 95, 100, 127, 129, 255, 257, 300):
        x = np.zeros((n, n), dtype)
        x[np.arange(n), np.arange(n)] = 5                     # row i has its extreme at i, and again after it
        x[:, -1] = 5
        for sign, name in ((1, "argmax"), (-1, "argmin")):
            assert np.array_equal(run(name, x * sign, 1), np.arange(n))
            lowest = np.full((3, n), -np.inf * sign if dtype[0] == "f" else np.iinfo(dtype).min if sign == 1 else np.iinfo(dtype).max, dtype)
            assert not run(name, lowest, 1).any()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_places_of_extremes_of_rows_that_begin_anywhere(dtype: str) -> None:
    """Rows of registers and more, contiguous and parts of longer ones: few values, all different ones, NaNs and zeros of both signs."""
    random = np.random.default_rng(8)
    for n in (*range(30, 72), 127, 128, 129, 257, 511, 512, 513, 1001, 5003):
        for top in (2, 1_000_000):
            wide = random.integers(0, top, (17, n + 3)).astype(dtype)
            for first in range(4):
                x = wide[:, first:first + n]
                for ours, theirs in ((gd.argmin, np.argmin), (gd.argmax, np.argmax)):
                    v = gd.input("v", wide.shape, dtype)
                    f = gd.function([v], ours(v[:, first:first + n], axis=1), threads=1)
                    assert np.array_equal(f(wide), theirs(x, axis=1)), (n, top, first, ours.__name__)
                    checked()
            if dtype[0] == "f":
                x = wide.copy()
                x[::2, random.integers(0, n, 3)] = np.nan
                x[1] = np.where(random.random(n + 3) < 0.5, -0.0, 0.0)
                for name in ("argmin", "argmax"):
                    assert np.array_equal(run(name, x, 1), getattr(np, name)(x, axis=1)), (n, top, name)


@pytest.mark.parametrize("dtype", ("bool", "uint8"))
@pytest.mark.parametrize("n", (1, 2, 8, 127, 128, 129, 300))
def test_places_of_extremes_of_bytes_in_tiles_of_columns(n: int, dtype: str) -> None:
    """Ties everywhere, few values, whole range; more rows than a batch, tiles narrower and wider than a register."""
    for w in (1, 5, 16, 63, 64, 65, 200, 256, 257):
        random = np.random.default_rng(n * w)
        for top in ((2,) if dtype == "bool" else (1, 3, 256)):
            x = random.integers(0, top, (3, n, w)).astype(dtype)
            x[1] = top - 1                                    # all equal, at either end of the range
            x[2, :, ::2] = 0
            v = gd.input("v", x.shape, dtype)
            for ours, theirs in ((gd.argmin, np.argmin), (gd.argmax, np.argmax)):
                for view in (lambda a: a, lambda a: a[:, ::-1, 1:], lambda a: a[:, :, ::2]):
                    if view(x).size:
                        got = gd.function([v], ours(view(v), axis=1), threads=1)(x)
                        assert np.array_equal(got, theirs(view(x), axis=1)), (w, top, ours.__name__)


@pytest.mark.parametrize("dtype", ("bool", *DTYPES))
def test_places_of_extremes_of_narrow_blocks(dtype: str) -> None:
    """Few columns of few rows, as many blocks as fill registers and one more: ties, NaNs, zeros of both signs, infinities; views of them."""
    random = np.random.default_rng(12)
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1]) if dtype[0] == "f" else np.array([0, 1, *([127, 200, 255] if dtype == "uint8" else [])])
    for blocks, n, w in ((1, 2, 2), (3, 2, 2), (9, 4, 3), (17, 16, 2), (33, 33, 5), (40, 5, 8), (7, 64, 4), (5, 129, 2), (50, 3, 7), (5, 3, 8), (6, 5, 9),
                         (4, 7, 13), (3, 300, 6), (3, 9, 16), (2, 6, 17), (3, 8, 25), (2, 257, 8), (2, 256, 7), (2, 5, 32), (2, 5, 33)):
        for some in (values, values[1:], values[:2]):
            x = random.choice(some, (2, blocks, n, w)).astype(dtype)
            v = gd.input("v", x.shape, dtype)
            for ours, theirs in ((gd.argmin, np.argmin), (gd.argmax, np.argmax)):
                for view in (lambda a: a, lambda a: a[:, ::-1, ::-1], lambda a: a[:, ::2, :, 1:], lambda a: a[..., ::2]):
                    got = gd.function([v], ours(view(v), axis=2), threads=1)(x)
                    assert np.array_equal(got, theirs(view(x), axis=2)), (blocks, n, w, ours.__name__)
                    checked()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (17, 31, 40, 64))
def test_sums_and_products_of_rows_that_caches_do_not_hold(n: int, dtype: str) -> None:
    """Rows of more columns than a tile and of a few more, whose results are those of every second element and of the first columns alone."""
    x = sample((n, (5 << 20) // np.dtype(dtype).itemsize // n), dtype)
    for name in ("sum", "prod"):
        all_of, first = run(name, x, 0), run(name, x[:, :300].copy(), 0)
        assert all_of[:300].tobytes() == first.tobytes(), (name, n)
        with np.errstate(over="ignore"):
            want = getattr(np, name)(x, axis=0, dtype="float64" if dtype[0] == "f" else all_of.dtype)
        assert np.allclose(all_of, want, rtol=1e-5, atol=1e-5) if dtype[0] == "f" else np.array_equal(all_of, want), (name, n)
        checked(2)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize(("n", "w"), ((2, 5), (15, 513), (16, 70), (17, 512), (18, 700), (33, 513), (300, 1030), (4113, 40)))
def test_softmax_of_columns_has_the_bits_of_rows(n: int, w: int, dtype: str) -> None:
    """Whether the exponentials of every row are ordinary numbers, or no longer from some row on: lanes go on from what they were."""
    for hidden in (n, 0, 1, n - 1, min(n - 1, 20)):
        x = np.random.default_rng(n).uniform(-3, 3, (n, w)).astype(dtype)
        x[hidden:, 1::3] = -np.inf
        x[hidden // 2:, 2::7] -= 1000 if dtype == "float64" else 120
        columns, rows = gd.input("columns", (n, w), dtype), gd.input("rows", (w, n), dtype)
        for f in (gd.softmax, gd.log_softmax, gd.logsumexp):
            got = gd.function([columns], f(columns, axis=0), threads=2)(x)
            want = gd.function([rows], f(rows, axis=1), threads=1)(np.ascontiguousarray(x.T))
            assert np.asarray(got).tobytes() == np.ascontiguousarray(np.asarray(want).T).tobytes(), (f.__name__, hidden)
        with np.errstate(divide="ignore"):
            top = np.where(np.isfinite(x.max(axis=0)), x.max(axis=0), 0).astype("float64")
            e = np.exp(x - top)
            want = e / np.where(e.sum(axis=0) == 0, 1, e.sum(axis=0))
        got = gd.function([columns], gd.softmax(columns, axis=0), threads=1)(x)
        np.testing.assert_allclose(got, want, rtol=4e-6 if dtype == "float32" else 1e-14, atol=np.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, -1, -2, -5])
def test_rows_apart_are_added_as_they_lie(step: int, dtype: str) -> None:
    """From 64 elements on none is brought together before it is added; nothing behind the last one taken counts."""
    for n in (63, 64, 65, 79, 80, 81, 96, 257, 4095, 4096, 4097, 8193):
        x = sample((3, n), dtype)
        wide = np.full((3, (n - 1) * abs(step) + 1), np.nan if dtype[0] == "f" else 1, dtype)
        wide[:, ::abs(step)] = x if step > 0 else x[:, ::-1]
        stored, copy = gd.input("s", wide.shape, dtype), gd.input("c", x.shape, dtype)
        for f in (gd.sum, gd.prod):
            for axis in (1, None):
                want = np.asarray(gd.function([copy], f(copy, axis=axis), threads=1)(x))
                for threads in (1, 2):
                    got = np.asarray(gd.function([stored], f(stored[:, ::step], axis=axis), threads=threads)(wide))
                    assert got.tobytes() == want.tobytes(), (f, n, axis)
                    checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 16, 17, 40, 511, 513])
def test_logsumexp_of_short_lines_wherever_they_lie(n, dtype):
    """In rows, in columns, apart, backwards; lines of infinities and with NaN: the same bits, which are NumPy's number."""
    for w in (1, 15, 16, 17, 255, 256, 257, 600, 2050):
        x = np.random.default_rng(n * w).uniform(-8, 8, (w, n)).astype(dtype)
        for line, value in ((3, -np.inf), (5, np.inf), (7, np.nan), (9, -np.inf)):
            if w > 10:
                x[line, n // 2] = value
        if w > 10:
            x[9], x[11] = -np.inf, -1000
        with np.errstate(all="ignore"):
            want = np.logaddexp.reduce(x.astype("float64"), axis=1)
        wide = np.zeros((2 * w, 3 * n), dtype)
        wide[::2, ::3] = x
        bits = None
        for array, lines, axis in ((x, lambda v: v, 1), (x.T, lambda v: v, 0), (wide, lambda v: v[::2, ::3], 1), (wide.T, lambda v: v[::3, ::2], 0),
                                   (x[::-1, ::-1], lambda v: v[::-1, ::-1], 1)):
            array = np.ascontiguousarray(array)
            v = gd.input("v", array.shape, dtype)
            got = gd.function([v], gd.logsumexp(lines(v), axis=axis), threads=2)(array)
            np.testing.assert_allclose(got, want, rtol=2e-6 if dtype == "float32" else 1e-14, atol=2e-6 if dtype == "float32" else 1e-14)
            bits = bits or got.tobytes()
            assert got.tobytes() == bits, (w, axis)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", [((4096,), None), ((1000,), None), ((100_003,), None), ((3, 5000), 1), ((5000, 3), 0), ((40, 50, 60), (0, 2))])
def test_spread_of_numbers_that_hardly_differ(shape, axis, dtype):
    """The mean's rounding is no part of the spread: none for equal numbers, and few digits are lost beside a large offset."""
    x = gd.input("x", shape, dtype)
    f = gd.function([x], [gd.var(x, axis=axis), gd.std(x, axis=axis)])
    large = 1234567.0 if dtype == "float32" else 1234567.0 * 2**29
    same = f(np.full(shape, large, dtype))
    assert not same[0].any() and not same[1].any()
    values = (np.random.default_rng(1).standard_normal(shape) * (1 if dtype == "float32" else 2**29) + large).astype(dtype)
    exact = values.astype("longdouble")
    np.testing.assert_allclose(f(values)[0], exact.var(axis=axis), rtol=4e-3)
    np.testing.assert_allclose(f(values)[1], exact.std(axis=axis), rtol=2e-3)
    g, h = gd.grad(gd.sum(gd.var(x, axis=axis)), x), gd.jvp(gd.var(x, axis=axis), x, gd.ones_like(x))
    first, along = gd.function([x], [g, h])(values - np.asarray(large, dtype))
    small = values - np.asarray(large, dtype)
    want = 2 * (small - small.mean(axis=axis, keepdims=True)) * (exact.var(axis=axis).size / exact.size)
    scale = np.abs(want).max()
    assert np.all(np.abs(first - want) <= 1e-5 * scale) and np.all(np.abs(along) <= 1e-4 * np.abs(small).max())


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("name", ("sum", "prod"))
def test_few_rows_that_come_from_memory(name: str, threads: int) -> None:
    """Long pieces, with the next rows asked for meanwhile: the bits of the same columns in small arrays, NaN, infinities and -0 among them."""
    for n, w in ((14, 80_003), (15, 80_003), (16, 70_000), (65, 18_001), (100, 12_000), (113, 10_000), (128, 9000)):
        for dtype in ("float32", "float64"):
            x = sample((n, w), dtype)
            x[n // 2, ::577], x[n - 1, ::1013], x[0, ::1979], x[:, 5] = np.nan, np.inf, -np.inf, -0.0
            node, part = gd.input("x", x.shape, dtype), gd.input("p", (n, 700), dtype)
            got = np.asarray(gd.function([node], getattr(gd, name)(node, axis=0), threads=threads)(x))
            f = gd.function([part], getattr(gd, name)(part, axis=0), threads=1)
            for first in (0, w // 2, w - 700):
                want = np.asarray(f(np.ascontiguousarray(x[:, first:first + 700])))
                mine = got[first:first + 700]
                assert np.isnan(mine).any() and np.array_equal(np.isnan(mine), np.isnan(want)), (n, w, dtype, first)
                assert np.where(np.isnan(mine), 0, mine).tobytes() == np.where(np.isnan(want), 0, want).tobytes(), (n, w, dtype, first)
                checked()
            assert not np.signbit(got[5]) or (name == "prod" and n % 2)


@pytest.mark.parametrize("dtype", ("bool", "uint8"))
def test_positions_among_few_bytes_side_by_side(dtype: str) -> None:
    """Lines of up to eight neighbours, row by row: the first of equals, whatever lies around them."""
    random = np.random.default_rng(3)
    for shape in ((129, 33, 5), (7, 8, 8), (300, 7, 3), (2, 128, 2), (40, 31, 8), (3, 51, 5), (1, 36, 7), (9, 20, 1), (64, 85, 3), (0, 9, 4)):
        few = random.integers(0, 2 if dtype == "bool" else 4, shape).astype(dtype)
        wide = random.integers(0, 2 if dtype == "bool" else 256, shape).astype(dtype)
        for x in (few, wide, np.zeros_like(few), np.ones_like(few), ~few):
            for stored, view in ((x, lambda n: n), (np.repeat(x, 2, 1), lambda n: n[:, ::2]), (np.ascontiguousarray(x[:, ::-1]), lambda n: n[:, ::-1]),
                                 (np.ascontiguousarray(x.swapaxes(0, 2)), lambda n: n.swapaxes(0, 2))):
                n = gd.input("n", stored.shape, dtype)
                for name in ("argmax", "argmin"):
                    got = np.asarray(gd.function([n], getattr(gd, name)(view(n), axis=1), threads=1)(stored))
                    assert np.array_equal(got, getattr(np, name)(x, axis=1)), (name, shape)
                    checked()


@pytest.mark.parametrize("name", ("sum", "prod"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_some_elements_apart(dtype: str, name: str) -> None:
    """What lies between is added up in lanes of its own, or left out: the bits of a copy, and no trace of the NaN there."""
    for rows, columns in ((17, 40), (40, 16), (65, 15), (129, 700), (33, 2100), (300, 101), (4099, 33), (1000, 1100), (20, 0)):
        x = sample((rows, columns), dtype)
        copy = gd.input("c", x.shape, dtype)
        f = gd.function([copy], getattr(gd, name)(copy, axis=0), threads=1)
        for step in (2, 3, 4, 5, 6, 7, 16) if rows < 1000 else (3, 6):
            wide = np.full((rows, max(step * (columns - 1), 0) + 1), np.nan if dtype.startswith("float") else np.iinfo(dtype).max, dtype)
            wide[:, ::step][:, :columns] = x
            wide = wide[:, :max(step * (columns - 1) + 1, 0)]           # nothing behind the last
            n = gd.input("n", wide.shape, dtype)
            for threads in (1, 2):
                got = np.asarray(gd.function([n], getattr(gd, name)(n[:, ::step], axis=0), threads=threads)(wide))
                assert got.tobytes() == np.asarray(f(x)).tobytes(), (rows, columns, step, threads)
                checked()


@pytest.mark.parametrize("dtype", ("int32", "int64", "float32", "float64"))
def test_argsort_of_some_runs(dtype: str) -> None:
    """Five to eight runs, of lines from 200 to 520 elements: merged from 256 on. Ties keep their order, both ways round."""
    random = np.random.default_rng(4)
    for n in (200, 255, 256, 257, 300, 511, 512, 520):
        for runs in (5, 6, 8):
            for falls in (False, True):
                cuts = np.sort(random.choice(np.arange(20, n - 20), runs - 1, replace=False))
                lines = []
                for _ in range(3):
                    parts = [np.sort(random.integers(-50, 50, len(p))) for p in np.split(np.arange(n), cuts)]
                    lines.append(np.concatenate([p[::-1] if falls and k % 2 else p for k, p in enumerate(parts)]))
                x = np.array(lines).astype(dtype)
                node = gd.input("x", x.shape, dtype)
                assert np.array_equal(gd.function([node], gd.argsort(node), threads=1)(x), np.argsort(x, kind="stable")), (n, runs, falls)
                checked()


@pytest.mark.parametrize("dtype", ("int32", "float32", "float64"))
def test_extremes_of_rows_that_begin_anywhere_in_a_cache_line(dtype: str) -> None:
    """Eight rows at a time, of every 128 those 16 apart; registers at the ends overlap. NaN wins, of zeros the one of the right sign."""
    for rows, columns in ((8, 70), (127, 50), (128, 33), (136, 300), (257, 519)):
        x = sample((rows, columns), dtype)
        if dtype.startswith("float"):
            x[:, ::3] *= 0
            x[rows // 2, 4::7] = np.nan
            x[3, 5::11] = -np.inf
        n = gd.input("n", x.shape, dtype)
        for first in range(18):
            part = x[:, first:]
            f = gd.function([n], [gd.max(n[:, first:], axis=0), gd.min(n[:, first:], axis=0)], threads=1)
            for got, name in zip(f(x), ("max", "min"), strict=True):
                want = getattr(np, name)(part, axis=0)
                assert np.array_equal(got, want, equal_nan=dtype != "int32"), (name, x.shape, first)
                if dtype != "int32":
                    zeros = part == 0                       # -0 is the largest if there is no +0, the smallest if there is one
                    minus = np.any(zeros & np.signbit(part), axis=0) if name == "min" else ~np.any(zeros & ~np.signbit(part), axis=0)
                    assert np.array_equal(np.signbit(got[want == 0]), minus[want == 0]), (name, x.shape, first)
                checked()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_extremes_of_short_rows(dtype):
    """Four rows at a time where registers allow it: the values and the one NaN of any other way, in rows side by side or apart."""
    rng = np.random.default_rng(3)
    for n in (7, 8, 9, 15, 16, 17, 24, 31, 33, 49, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257):
        for rows in (1, 3, 4, 5, 11):
            a = rng.standard_normal((rows, n + 3)) * 100
            if dtype.startswith("float"):
                a[rng.random(a.shape) < 0.02] = np.nan
                a[rows // 2] = np.where(rng.random(n + 3) < 0.5, 0.0, -0.0)
                a[-1, :n // 2] = -np.inf
            a = a.astype(dtype)
            for part in (a[:, :n], a[:, 3:], np.ascontiguousarray(a[:, :n])):
                x = gd.input("x", a.shape if part.base is a else part.shape, dtype)
                first = 3 if part.base is a and part.ctypes.data != a.ctypes.data else 0
                y = x[:, first:first + n] if part.base is a else x
                f = gd.function([x], [gd.max(y, axis=1), gd.min(y, axis=1), gd.stack([gd.max(y, axis=1), gd.min(y, axis=1)], axis=1)])
                high, low, both = f(a if part.base is a else part)
                assert np.array_equal(high, part.max(1), equal_nan=True) and np.array_equal(low, part.min(1), equal_nan=True), (n, rows)
                assert np.array_equal(both, np.stack([high, low], 1), equal_nan=True)
                if dtype.startswith("float"):
                    kept = ~np.isnan(high)
                    zeros = kept & (high == 0)
                    assert not np.signbit(high[zeros & (part == 0).all(1) & ~np.signbit(part).all(1)]).any()
                    assert np.signbit(low[zeros & (low == 0) & np.signbit(part).any(1)]).all()
                    assert len({v.tobytes() for v in high[~kept]}) <= 1
                checked()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_extremes_three_apart(dtype):
    """Registers of lines and of columns of which every third lane counts: the bits of a copy, and no trace of what lies between or behind."""
    rng = np.random.default_rng(5)
    real = dtype.startswith("float")
    for n in (2, 7, 8, 9, 10, 15, 16, 17, 18, 19, 32, 33, 34, 49, 50, 100, 513):
        for rows in (1, 3, 9):
            a = (rng.standard_normal((rows, n)) * 100).astype(dtype)
            if real:
                a[rows // 2] = np.where(rng.random(n) < 0.5, 0.0, -0.0)
                a[rng.random(a.shape) < 0.02] = np.nan
                a[-1, :n // 2] = np.inf
            odd = [np.nan] if real else [np.iinfo(dtype).max, np.iinfo(dtype).min]
            wide = rng.choice(np.array(odd, dtype), (rows, 3 * n - 2))
            wide[:, ::3] = a
            x, copy = gd.input("x", wide.shape, dtype), gd.input("copy", a.shape, dtype)
            for axis in (0, 1, None):
                for back in (1, -1):
                    f = gd.function([x], [gd.max(x[:, ::3 * back], axis=axis), gd.min(x[:, ::3 * back], axis=axis)], threads=1)
                    g = gd.function([copy], [gd.max(copy[:, ::back], axis=axis), gd.min(copy[:, ::back], axis=axis)], threads=1)
                    for got, want, name in zip(f(wide), g(a), ("max", "min"), strict=True):
                        assert np.asarray(got).tobytes() == np.asarray(want).tobytes(), (n, rows, axis, back, name)
                        assert np.array_equal(got, getattr(a[:, ::back], name)(axis=axis), equal_nan=True)
                        checked(2)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_any_and_all_of_few_rows(dtype):
    """Columns of two to four rows and of more, of one element that decides, of none; NaN is true, -0 is not."""
    rng = np.random.default_rng(6)
    for n in (1, 2, 3, 4, 5, 8):
        for w in (2, 5, 31, 33, 64, 257, 2048, 2051, 4100):
            for share in (0.02, 0.5, 0.98):
                a = (rng.random((n, w)) < share).astype(dtype)
                if dtype.startswith("float"):
                    a[a == 0] = rng.choice([0.0, -0.0], a.shape)[a == 0]
                    a[a == 1] = rng.choice(np.array([np.nan, 1e-40, -np.inf], dtype), a.shape)[a == 1]
                if dtype.startswith("int"):
                    a[a == 1] = rng.choice(np.array([np.iinfo(dtype).min, 256, 1], dtype), a.shape)[a == 1]
                x = gd.input("x", a.shape, dtype)
                for view in (lambda v: v, lambda v: v[::-1], lambda v: v[:, 1:], lambda v: v[:, ::2]):
                    got = gd.function([x], [gd.any(view(x), axis=0), gd.all(view(x), axis=0)], threads=1)(a)
                    assert np.array_equal(got[0], view(a).any(0)) and np.array_equal(got[1], view(a).all(0)), (n, w, share)
                    checked(2)
