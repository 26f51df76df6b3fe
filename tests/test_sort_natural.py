"""Positions of lines in runs at the limits of what is merged as words, and values of lines that are cut level by level."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting import checked
from positions import check_positions

import graphdiff as gd

NUMBERS = ("int32", "int64", "float32", "float64")


def typed(x: Any, dtype: str) -> Any:
    """Integers in keys as wide as the type's."""
    return (x * (2**33 + 1 if dtype == "int64" else 1) / (3 if dtype[0] == "f" else 1)).astype(dtype)


def runs_of(count: int, size: int, random: Any, kinds: str = "ud") -> Any:
    """u: rising, d: falling, s: strictly falling, o: equal."""
    parts = []
    for part in np.array_split(random.integers(-3 * size, 3 * size, size), count):
        kind = kinds[random.integers(len(kinds))]
        up = np.sort(part // (5 if kind == "d" else 1))
        parts.append({"u": up, "d": up[::-1], "s": np.cumsum(np.abs(part) % 3 + 1)[::-1], "o": 0 * part + 7}[kind])
    return np.concatenate(parts)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("size", [65, 66, 70, 127, 128, 129, 300, 1023, 1024, 1025, 5000, 66_000, 132_000])
def test_as_many_runs_as_are_merged_and_more(size: int, dtype: str) -> None:
    random = np.random.default_rng(size)
    for count in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33) if size < 60_000 else (2, 3, 16):
        for kinds in ("u", "d", "s", "uds", "udso") if size < 60_000 else ("uds",):
            check_positions(typed(runs_of(count, size, random, kinds), dtype), 1 + count % 2)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_runs_in_batches_among_lines_of_other_data(dtype: str) -> None:
    random = np.random.default_rng(3)
    for size in (12, 13, 16, 33, 64, 65, 300, 513, 1100):
        for lines in (1, 3, 8, 9, 30):
            x = np.stack([runs_of(int(random.integers(1, 9)), size, random, "udso") if random.random() < 0.7 else random.integers(0, 99, size)
                          for _ in range(lines)])
            check_positions(typed(x, dtype))
            check_positions(typed(x.reshape(lines, 1, size), dtype).reshape(lines, size))
            if dtype[0] == "f":
                y = typed(x, dtype)
                for value in (0.0, -0.0, np.inf, -np.inf):
                    y[random.integers(lines), random.integers(size)] = value
                check_positions(y)
                y[random.integers(lines), random.integers(size)] = np.nan
                y[random.integers(lines), -1] = np.nan
                check_positions(y)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_short_lines_with_a_few_elements_out_of_order(dtype: str) -> None:
    """Ends, neighbours, equal elements; as many as are put in their place one by one and more."""
    random = np.random.default_rng(4)
    for size in (12, 15, 16, 17, 31, 33, 48, 63, 64):
        for some in (1, 2, 3, 4, 5, 8):
            x = np.sort(random.integers(-size, size, (24, size)), axis=-1)
            for line in x:
                line[random.integers(0, size, some)] = random.integers(-2 * size, 2 * size, some)
            x[0, :2] = x[0, -2:]
            x[1, -1] = x[1, 0]
            x[2] = np.roll(x[2], size // 2)
            check_positions(typed(x, dtype))
            check_positions(typed(-x, dtype))
    x = np.arange(60) % 30
    for y in (x, -x, x // 2, -(x // 2), np.minimum(x, x[::-1]), np.where(x < 29, -x, 5), np.repeat([3, 2, 1], 20), np.repeat([1, 3, 2], 20)):
        check_positions(np.tile(y, (9, 1)).astype(dtype))


@pytest.mark.parametrize("size", [80, 1000, 5000, 70_001])
def test_keys_that_words_do_not_hold(size: int) -> None:
    """Doubles, and integers of all bits, of which many share what a word has of them."""
    random = np.random.default_rng(size)
    for count in (2, 3, 8):
        for spread in (2, 16, 2**20):
            near = np.concatenate([np.sort(p) for p in np.array_split(random.integers(0, spread, size), count)])
            x = 1 + near * 2.0**-52
            check_positions(x)
            x[0], x[-1] = -1e308, 1e308
            check_positions(x)
            x[::size // 7] = -x[::size // 7]
            check_positions(x)
            y = near.astype("int64")
            y[0], y[-1] = np.iinfo("int64").min, np.iinfo("int64").max
            check_positions(y)
        wide = np.concatenate([np.sort(p) for p in np.array_split(random.standard_normal(size) * 10.0 ** random.integers(-200, 200, size), count)])
        check_positions(wide)
        check_positions(wide[::-1].copy())
    for ends in ((0, 2**63 - 1), (-(2**63), 2**63 - 1), (-(2**63), -(2**63) + 1)):
        x = np.resize(np.array([ends[0]] * 40 + [ends[1]] * 40 + [ends[0] + 1] * 3), size).astype("int64")
        check_positions(x)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("size", [131_072, 131_073, 262_145, 700_001])
def test_values_of_long_lines(size: int, dtype: str) -> None:
    """Longer than one item takes: random, of few values, in order, the other way round, with what keys lose; side by side and apart."""
    random = np.random.default_rng(size)
    few = random.integers(0, 3, size)
    rows = [typed(x, dtype) for x in (random.integers(-(2**29), 2**29, size), few, np.sort(few), np.arange(size), np.arange(size)[::-1],
                                      np.minimum(np.arange(size), np.arange(size)[::-1]), np.zeros(size))]
    if dtype[0] == "f":
        odd = rows[0].copy()
        odd[::7], odd[1::1000], odd[2::999], odd[3], odd[4] = 0.0, -0.0, np.nan, np.inf, -np.inf
        rows += [odd, np.where(few == 1, np.nan, -np.inf).astype(dtype), np.where(few == 1, -0.0, 0.0).astype(dtype)]
    for k, x in enumerate(rows):
        n = gd.input("n", x.shape, dtype)
        up, down = gd.function([n], [gd.sort(n), gd.sort(n, descending=True)], threads=1 + k % 2)(x)
        want = np.sort(x)
        assert np.array_equal(up, want, equal_nan=dtype[0] == "f")
        assert np.array_equal(down, want[::-1], equal_nan=dtype[0] == "f")
        checked(2)
    x = np.stack(rows[:2], axis=1)
    n = gd.input("n", x.shape, dtype)
    assert np.array_equal(gd.function([n], gd.sort(n, axis=0))(x), np.sort(x, axis=0))
    assert np.array_equal(gd.function([n], gd.sort(n[::-2, 0]))(x), np.sort(x[::-2, 0]))
    checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signs_of_zeros_in_long_lines_keep_their_order(dtype: str) -> None:
    random = np.random.default_rng(9)
    for size in (100, 5000, 300_000):
        x = np.where(random.random(size) < 0.5, np.where(random.random(size) < 0.5, -0.0, 0.0), random.standard_normal(size)).astype(dtype)
        n = gd.input("n", x.shape, dtype)
        got = gd.function([n], gd.sort(n))(x)
        assert np.array_equal(np.signbit(got), np.signbit(x[np.argsort(x, kind="stable")]))
        checked()
