"""Positions of lines with an order of their own: runs that are merged, one run but for some elements, short lines that rise or fall."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting import checked
from positions import check_positions

import graphdiff as gd

DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")
NUMBERS = DTYPES[2:]


def odd(x: Any, random: Any) -> Any:
    """The same with zeros of both signs, infinities, NaN."""
    y = x.copy()
    for value in (0.0, -0.0, np.inf, -np.inf, np.nan):
        y[..., random.integers(x.shape[-1])] = value
    return y


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 8, 9, 20])
def test_runs_that_rise_or_fall(runs: int, dtype: str) -> None:
    random = np.random.default_rng(runs)
    for size in (65, 100, 1000, 5003, 40_000, 140_001):
        if size > 40_000 and runs not in (2, 5, 8):
            continue
        for values in (5, size, 10**6) if size < 40_000 else (10**6,):
            x = random.integers(-values, values, size)
            cuts = np.sort(random.integers(0, size, runs - 1))
            for k, part in enumerate(np.split(x, cuts)):
                part[:] = np.sort(part)[::1 if random.random() < 0.5 or k == 0 else -1]
            x = (x * (2**33 if dtype == "int64" else 1) / (3 if dtype[0] == "f" else 1)).astype(dtype)
            check_positions(x, 1 + size % 2)
            if dtype[0] == "f" and size < 40_000:
                check_positions(odd(x, random))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_runs_that_follow_each_other_and_that_alternate(dtype: str) -> None:
    for size in (66, 999, 40_000):
        a = np.arange(size)
        for x in (np.roll(a, size // 3), np.minimum(a, a[::-1]), np.maximum(a, a[::-1]), a % (size // 2), a % (size // 8 + 1), -(a % (size // 3 + 1)),
                  np.abs(a - size // 4), np.concatenate([a[::2], a[1::2]]), a // 7 % 1000, -(a // 5), np.where(a < size // 2, -a, a)):
            check_positions(x.astype(dtype))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_one_run_but_for_some_elements(dtype: str) -> None:
    """Peaks and dips, equal to others or not, side by side, at the ends; up to one in 16 and more."""
    random = np.random.default_rng(5)
    for size in (65, 200, 1000, 5003, 140_001):
        for some in (1, 2, 5, size // 100, size // 17, size // 16 + 1, size // 8) if size < 100_000 else (3, size // 100):
            for values in (9, size, 10**6) if size < 100_000 else (10**6,):
                x = np.sort(random.integers(-values, values, size))
                x[random.integers(0, size, some)] = random.integers(-2 * values, 2 * values, some)
                x = (x * (2**33 if dtype == "int64" else 1)).astype(dtype)
                check_positions(x)
                check_positions(-x)
                if dtype[0] == "f" and size < 6000:
                    check_positions(odd(x, random))
    x = np.arange(400)
    for at, value in ((0, 500), (0, 200), (1, 500), (399, -1), (398, 1000), (200, 500), (200, -1), (slice(200, 202), 500), (slice(200, 214), -7),
                      (slice(100, 300, 40), 100), (slice(100, 300, 25), 300), (slice(10, 30), 5), (slice(0, 20), 399)):
        y = x.astype(dtype)
        y[at] = value
        check_positions(y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_short_lines_of_every_length(dtype: str) -> None:
    """Groups in which all lines are in order, or fall, or have one break, and groups in which one has not."""
    random = np.random.default_rng(6)
    for size in (1, 2, 4, 5, 11, 12, 13, 16, 17, 31, 32, 33, 63, 64, 65):
        for lines in (1, 8, 21):
            x = random.integers(-50, 50, (lines, size)) if dtype in NUMBERS else random.integers(0, 2 if dtype == "bool" else 200, (lines, size))
            rising = np.sort(x, axis=-1)
            strict = np.cumsum(np.abs(x) % 3 + 1, axis=-1)
            broken = np.where(np.arange(size) < random.integers(0, size + 1, (lines, 1)), rising, np.roll(rising, size // 2, -1))
            mixed = np.where(random.random((lines, 1)) < 0.3, x, np.where(random.random((lines, 1)) < 0.5, rising, strict[:, ::-1]))
            mixed[0] = rising[0]
            for y in (x, rising, rising[:, ::-1], strict, strict[:, ::-1], broken, broken[:, ::-1], mixed, x[:1] + 0 * x):
                y = np.ascontiguousarray(y).astype(dtype)
                check_positions(y)
                if dtype[0] == "f" and size > 4:
                    check_positions(odd(y, random))


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_bytes_by_counting(dtype: str) -> None:
    random = np.random.default_rng(7)
    for size in (1, 7, 8, 9, 15, 255, 256, 257, 1000, 70_001):
        for few in (1, 2, 256):
            x = random.integers(0, min(few, 2 if dtype == "bool" else 256), (3, size)).astype(dtype)
            for y in (x, np.sort(x, axis=-1), np.sort(x, axis=-1)[:, ::-1].copy()):
                check_positions(y)
            n = gd.input("n", x.shape, dtype)
            got = gd.function([n], [gd.argsort(n[:, ::-1]), gd.argsort(n[:, ::2]), gd.argsort(n, axis=0)])(x)
            for y, (view, axis) in zip(got, ((x[:, ::-1], 1), (x[:, ::2], 1), (x, 0)), strict=True):
                assert np.array_equal(y, np.argsort(view, axis=axis, kind="stable"))
            checked(3)


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_bytes_of_a_rank(dtype: str) -> None:
    """Medians and the first few of any data, wherever it lies: found bit by bit, without counters."""
    random = np.random.default_rng(8)
    for size in (1, 2, 63, 64, 65, 127, 128, 255, 500, 1001, 16_384, 16_385):
        for few in (1, 2, 3, 256):
            x = (random.integers(0, min(few, 2 if dtype == "bool" else 256), (4, size)) * (1 if few > 3 or dtype == "bool" else 127)).astype(dtype)
            x[1:3] = np.sort(x[1:3], axis=-1)
            x[2] = x[2, ::-1]
            n = gd.input("n", x.shape, dtype)
            views = [(lambda a: a), (lambda a: a[:, ::-1]), (lambda a: a[:, ::2])]
            if dtype == "uint8":
                for view, y in zip(views, gd.function([n], [gd.median(v(n), axis=1) for v in views])(x), strict=True):
                    assert np.array_equal(y, np.median(view(x), axis=1)), (size, few)
                assert np.array_equal(gd.function([n], gd.median(n.T, axis=0))(x), np.median(x, axis=1))
                checked(4)
                for k in (k for k in (1, 2, 3, 4, 5) if k <= size):
                    assert np.array_equal(gd.function([n], gd.top_k(n, k))(x), np.sort(x, axis=1)[:, ::-1][:, :k]), (size, few, k)
                    checked()


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_lines_of_bytes_in_order_and_some_that_are_not(dtype: str) -> None:
    """A group of lines is looked at one by one where its first is in order; bools up to 64 are looked at as the bits of a word."""
    random = np.random.default_rng(9)
    for size in (12, 16, 33, 63, 64, 65, 100, 300, 512, 513):
        x = np.sort(random.integers(0, 2 if dtype == "bool" else 256, (70, size)), axis=-1).astype(dtype)
        for others in (0, 1, 20):
            for line in random.integers(1, 70, others):
                x[line] = random.permutation(x[line])
            check_positions(x)
            check_positions(x[:, ::-1].copy())
