"""Sorts of lines, whose values are cut by pivots until what is left is sorted in registers, against NumPy's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.runtime.native import isa

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


def parted(items: Any, below: Any, lanes: int, side: int, first_cut: bool) -> Any:
    """What the kernel makes of items. The first cut of values takes registers one after the other, after what is left over at the end;
    others take `side` registers at a time from the end where less has been read than written. With AVX2 what fills no register goes one by
    one."""
    step, n = side * lanes, len(items)
    out, low, high, left, right = items.copy(), 0, n, step, n - step

    def put(some: Any) -> None:
        nonlocal low, high
        for v in np.split(some, range(lanes, len(some), lanes)):
            under, over = v[below[v]], v[~below[v]]
            out[low:low + len(under)] = under
            out[high - len(over):high] = over
            low, high = low + len(under), high - len(over)

    whole = n // lanes * lanes
    if first_cut:
        put(items[whole:])
        put(items[:whole])
        return out[low:]
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
    whole = left + (right - left) // lanes * lanes
    early = items[lanes:step] if side == 8 else items[:0]
    ragged = np.split(items[whole:right], right - whole) if isa() == "avx2" and right > whole else [items[whole:right]]
    for some in (held, items[left:whole], early, *ragged, items[:step - len(early)]):
        put(some)
    return out[low:]


def with_bad_pivots(size: int, lanes: int, side: int, first_cut: bool, row: Callable[[int, int], int] = lambda gone, left: 4) -> Any:
    """Where pivots are looked for there are the lowest values left, so that every cut takes off only some of them. row: of eight
    sorted ones the one whose middle is the pivot, where so many items are gone and left."""
    x, left, value = np.full(size, -1), np.arange(size), 0
    for level in range(LEVELS):
        looked = np.add.outer((len(left) - lanes) // 7 * np.arange(8), np.arange(lanes))
        new = left[np.unique(looked)]
        new = new[x[new] < 0]
        x[new] = value + np.arange(len(new))
        value += len(new)
        pivot = np.sort(np.sort(x[left[looked]], axis=0)[row(size - len(left), len(left))])[lanes // 2 - 1]
        before = len(left)
        left = parted(left, (x >= 0) & (x < pivot), lanes, side, first_cut and level == 0)
        if isa() == "avx2" and side == 4:    # the network of what was taken off sorts what comes after it, too
            off = before - len(left)
            assert off <= 16 * lanes
            after = left[:(8 if off <= 8 * lanes else 16) * lanes - off]
            new = after[x[after] < 0]
            x[new] = value + np.arange(len(new))
            value += len(new)
            left[:len(after)] = after[np.argsort(x[after])]
    rest = x < 0
    assert rest.sum() > size // 2
    x[rest] = value + np.random.default_rng(0).permutation(rest.sum())
    return x


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_a_line_whose_pivots_are_all_bad_is_sorted_all_the_same(dtype: str) -> None:
    width = np.dtype(dtype).itemsize
    x = with_bad_pivots(16_000, 32 // width, 4, False) if isa() == "avx2" else with_bad_pivots(16_000, 64 // width, 8, True)
    rising, falling = sorts(x.astype(dtype))
    assert np.array_equal(rising, np.arange(len(x)))
    assert np.array_equal(falling, np.arange(len(x))[::-1])


def test_positions_are_found_where_all_pivots_are_bad() -> None:
    x = with_bad_pivots(16_000, 8, 4, False)
    rising, = orders(x * (2**49 + 1))
    assert np.array_equal(x[rising], np.arange(len(x)))


def orders(x: Any, view: Callable[[Any], Any] = lambda x: x, **options: Any) -> Any:
    n = gd.input("n", x.shape, x.dtype.name)
    return [np.asarray(a) for a in gd.function([n], [gd.argsort(view(n), **options)])(x)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_positions_of_equal_elements_stay_in_order_in_lines_of_any_length(dtype: str, kind: str) -> None:
    """Elements of 8 bytes twice: as they are, and so that key and position do not fit one word."""
    for size in (129, 257, 600, *SIZES):
        for wide in (False, True) if dtype in ("int64", "float64") else (False,):
            x = KINDS[kind](np.random.default_rng(size), size).astype(dtype)
            if wide and dtype == "float64":
                x /= 3
            if wide:
                x[[0, size // 2, -1]] = 2**62 + 1, -2**62, 1
            assert np.array_equal(orders(x)[0], np.argsort(x, kind="stable")), size
            falling = size - 1 - np.argsort(x[::-1], kind="stable")[::-1]
            assert np.array_equal(orders(x, descending=True)[0], falling), size


def test_positions_of_keys_that_share_their_low_bits_are_found() -> None:
    random = np.random.default_rng(5)
    for size in (100, 1000, 200_000):
        steps = random.integers(-2**20, 2**20, size)
        for x in (steps * 2**40, steps * 2**40 + 2**39, steps / 1024, steps * 2.0**300, np.where(steps > 0, np.inf, -1.5),
                  np.where(steps > 0, np.nan, steps)):
            assert np.array_equal(orders(x)[0], np.argsort(x, kind="stable")), size


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_positions_of_keys_that_share_their_high_bits_are_found(dtype: str) -> None:
    """What a word has no room for decides among a few keys or among many."""
    random = np.random.default_rng(6)
    for size in (49, 100, 1000, 5000, 70_000):
        for groups in (3, size // 4, size):
            x = random.integers(-groups, groups, size) * (2**62 // groups) + random.integers(0, 40, size)
            if dtype == "float64":
                x = (x & 0x3fffffffffffffff).view("float64") * np.where(random.random(size) < 0.3, -1, 1)
            assert np.array_equal(orders(x)[0], np.argsort(x, kind="stable")), size
            falling = size - 1 - np.argsort(x[::-1], kind="stable")[::-1]
            assert np.array_equal(orders(x, descending=True)[0], falling), size


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_long_lines_of_unequal_pieces_are_merged(dtype: Any) -> None:
    """Pieces of a long line: alike, one above the other, and with ends that no register is full of."""
    random = np.random.default_rng(7)
    piece = 2**20 // np.dtype(dtype).itemsize
    for size in (piece + 1, piece + 9, 2 * piece + 5, 3 * piece - 3):
        for x in (random.integers(-2**31, 2**31, size), random.integers(0, 3, size), np.arange(size) // piece * 2**20 + random.integers(0, 2**20, size),
                  -(np.arange(size) // piece) * 2**20 + random.integers(0, 2**20, size)):
            x = x.astype(dtype)
            rising, falling = sorts(x)
            assert np.array_equal(rising, np.sort(x)), size
            assert np.array_equal(falling, np.sort(x)[::-1]), size


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_positions_of_the_highest_keys_are_found_whatever_fills_the_registers(dtype: str) -> None:
    random = np.random.default_rng(3)
    highest = np.array([2**63 - 1, -2**63, 2**63 - 2, 5]) if dtype == "int64" else np.array([np.nan, -np.nan, np.inf, -0.0, 0.0, -np.inf])
    for size in [*range(1, 140), 1000, 70_000]:
        x = random.choice(highest, (2, size))
        assert np.array_equal(orders(x)[0], np.argsort(x, axis=-1, kind="stable")), size
        falling = size - 1 - np.argsort(x[:, ::-1], axis=-1, kind="stable")[:, ::-1]
        assert np.array_equal(orders(x, descending=True)[0], falling), size


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_long_lines_of_any_layout_are_sorted_alike_by_any_number_of_threads(dtype: str) -> None:
    random = np.random.default_rng(4)
    x = (random.standard_normal((150_000, 2)) * 3e8).astype(dtype)
    x[::7] = x[5]
    if dtype.startswith("float"):
        for value in (np.nan, -np.nan, 0.0, -0.0):
            x[random.random(x.shape) < 0.02] = value
    n = gd.input("n", x.shape, dtype)
    for view in (lambda x: x, lambda x: x[::-1], lambda x: x.T):
        axis = int(np.argmax(view(x).shape))
        want = np.argsort(view(x), axis=axis, kind="stable")
        for threads in (1, 2):
            values, order = gd.function([n], [gd.sort(view(n), axis=axis), gd.argsort(view(n), axis=axis)], threads=threads)(x)
            assert np.array_equal(order, want)
            assert np.asarray(values).tobytes() == np.take_along_axis(view(x), want, axis).tobytes()


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
