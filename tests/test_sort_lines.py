"""Sorts of lines, whose values are cut by pivots until what is left is sorted in registers, against NumPy's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphdiff as gd

SIZES = (1025, 2048, 2049, 4097, 8193, 16385, 16400, 33000, 131073, 300_001)
LEVELS = 50
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


def parted(items: Any, below: Any, lanes: int) -> Any:
    """What the kernel makes of items: four registers at a time, from the end where less has been read than written."""
    step, n = 4 * lanes, len(items)
    out, low, high, left, right = items.copy(), 0, n, step, n - step

    def put(some: Any) -> None:
        nonlocal low, high
        for v in np.split(some, range(lanes, len(some), lanes)):
            under, over = v[below[v]], v[~below[v]]
            out[low:low + len(under)] = under
            out[high - len(over):high] = over
            low, high = low + len(under), high - len(over)

    held = items[n - step:]
    while right - left >= step:
        if left - low > high - right:
            right -= step
            some = items[right:right + step]
        else:
            some = items[left:left + step]
            left += step
        put(held)
        held = some
    for some in (held, items[:step], items[left:right]):
        put(some)
    return out[low:]


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_a_line_whose_pivots_are_all_bad_is_sorted_all_the_same(dtype: str) -> None:
    """Where pivots are looked for there are the lowest values left, so that every cut takes off only some of them."""
    size, lanes = 60_000, 64 // np.dtype(dtype).itemsize
    x, left, value = np.full(size, -1), np.arange(size), 0
    for _ in range(LEVELS):
        looked = np.add.outer((len(left) - lanes) // 7 * np.arange(8), np.arange(lanes))
        new = left[np.unique(looked)]
        new = new[x[new] < 0]
        x[new] = value + np.arange(len(new))
        value += len(new)
        pivot = np.sort(np.sort(x[left[looked]], axis=0)[4])[lanes // 2 - 1]
        left = parted(left, (x >= 0) & (x < pivot), lanes)
    rest = x < 0
    assert rest.sum() > size // 2
    x[rest] = value + np.random.default_rng(0).permutation(rest.sum())
    rising, falling = sorts(x.astype(dtype))
    assert np.array_equal(rising, np.arange(size))
    assert np.array_equal(falling, np.arange(size)[::-1])


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "float16", "uint8"])
def test_the_largest_of_a_line_are_those_of_its_sort(dtype: str) -> None:
    random = np.random.default_rng(1)
    for size in (1, 16, 65, 100, 257, 512, 513, 1030, 5000, 140_000, 300_000):
        for values in (9, 10**6):
            x = random.integers(0, values, (2, size)).astype("float64") % (250 if dtype in ("uint8", "float16") else values)
            x = x.astype(dtype)
            if dtype.startswith("float") and values == 9:
                x[0, random.random(size) < 0.05] = np.nan
                x[0, random.random(size) < 0.05] = -0.0
            n = gd.input("n", x.shape, dtype)
            order = size - 1 - np.argsort(x[:, ::-1], axis=-1, kind="stable")[:, ::-1]
            want = np.take_along_axis(x, order, axis=-1)
            for k in sorted({0, 1, min(5, size), size // 2, size}):
                top, = gd.function([n], [gd.top_k(n, k)])(x)
                assert np.asarray(top).tobytes() == want[:, :k].tobytes(), (size, k)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_every_short_length_is_sorted(dtype: str) -> None:
    random = np.random.default_rng(2)
    for size in [*range(1, 140), *range(250, 264), *range(505, 530), 777]:
        x = np.stack([random.integers(-10**9, 10**9, size), random.integers(-2, 3, size), np.full(size, 2**31 - 1)]).astype(dtype)
        rising, falling = sorts(x)
        assert np.array_equal(rising, np.sort(x)), size
        assert np.array_equal(falling, np.sort(x)[:, ::-1]), size
