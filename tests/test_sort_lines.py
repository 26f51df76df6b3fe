"""Sorts of long lines, whose values are cut by pivots until a network sorts what is left, against NumPy's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphdiff as gd

SIZES = (1025, 2048, 2049, 4097, 8193, 16385, 16400, 33000, 131073, 300_001)
LEVELS, SAMPLED = 40, 32
KINDS: dict[str, Callable[[Any, int], Any]] = {
    "random": lambda random, n: random.integers(-2**31, 2**31, n),
    "few values": lambda random, n: random.integers(-2, 3, n),
    "one value": lambda random, n: np.full(n, 7),
    "mostly the lowest": lambda random, n: np.where(random.random(n) < 0.01, random.integers(0, 99, n), -2**31),
    "mostly the highest": lambda random, n: np.where(random.random(n) < 0.01, random.integers(0, 99, n), 2**31 - 1),
    "falling": lambda random, n: np.arange(n)[::-1],
    "up and down": lambda random, n: np.minimum(np.arange(n), np.arange(n)[::-1])}


def sorts(x: Any, view: Callable[[Any], Any] = lambda x: x) -> tuple[Any, Any]:
    n = gd.input("n", x.shape, x.dtype.name)
    rising, falling = gd.function([n], [gd.sort(view(n)), gd.sort(view(n), descending=True)])(x)
    return np.asarray(rising), np.asarray(falling)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_values_of_long_lines_are_in_order(dtype: str, kind: str) -> None:
    for size in SIZES:
        x = (KINDS[kind](np.random.default_rng(size), size) * (2**31 if dtype == "int64" else 1)).astype(dtype)
        rising, falling = sorts(x)
        assert np.array_equal(rising, np.sort(x)), size
        assert np.array_equal(falling, np.sort(x)[::-1]), size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nans_come_last_and_zeros_keep_their_signs_in_long_lines(dtype: str) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((3, 40_000)).astype(dtype)
    for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        x[random.random(x.shape) < 0.05] = value
    for view in (lambda x: x, lambda x: x[:, ::3], lambda x: x[:, ::-1]):
        rising, falling = sorts(x, view)
        assert np.array_equal(rising, np.sort(view(x)), equal_nan=True)
        assert np.array_equal(falling, np.sort(view(x))[:, ::-1], equal_nan=True) or np.isnan(falling).any()
        order = np.argsort(view(x), axis=-1, kind="stable")
        assert np.array_equal(np.signbit(rising), np.signbit(np.take_along_axis(view(x), order, axis=-1)))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_line_whose_pivots_are_all_bad_is_sorted_all_the_same(dtype: str) -> None:
    """Where pivots are looked for there are the lowest values left, so that every cut takes off only some of them."""
    size = 60_000
    x, left, value = np.full(size, -1), np.arange(size), 0
    for _ in range(LEVELS):
        step = len(left) // SAMPLED
        looked = left[step // 2 + step * np.arange(SAMPLED)]
        new = looked[x[looked] < 0]
        x[new] = value + np.arange(len(new))
        value += len(new)
        pivot = np.sort(x[looked])[SAMPLED // 2]
        left = left[(x[left] < 0) | (x[left] >= pivot)]
    rest = x < 0
    assert rest.sum() > size // 2
    x[rest] = value + np.random.default_rng(0).permutation(rest.sum())
    rising, falling = sorts(x.astype(dtype))
    assert np.array_equal(rising, np.arange(size))
    assert np.array_equal(falling, np.arange(size)[::-1])
