"""Loops that take registers of elements, and what is rare in one differently: integers that no float holds, floats that no integer
does, several extremes or NaNs in a line; lines and arrays that end anywhere in a register."""
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

LENGTHS = (*range(1, 36, 2), 16, 32, 63, 64, 65, 70, 127, 128, 129, 300, 1000)
WHOLE = (0, 1, -1, 2**24 + 1, 2**31, -2**31 - 1, 2**52, 2**53 - 1, 2**53, 2**53 + 1, -2**53 - 1, 2**54 + 2, 2**60 + 2**36, 2**60 + 2**36 + 1,
         2**60 + 2**36 - 1, -2**60 - 2**36 - 1, 2**63 - 1, 2**63 - 512, -2**63)
REAL = (0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.0**51, -2.0**51, 2.0**51 - 0.5, -2.0**51 + 0.25, 2.0**52 + 1, 2.0**63, -2.0**63, 2.0**31,
        -2.0**31 - 1, 255.9, -255.9, np.inf, -np.inf, np.nan)


def cast(x: Any, dtype: str) -> Any:
    n = gd.input("n", x.shape, x.dtype.name)
    return np.asarray(gd.function([n], n.astype(dtype), threads=1)(x))


def with_some(x: Any, some: Any, random: Any) -> Any:
    """x with up to three elements of `some` in odd places."""
    for _ in range(min(3, x.size)):
        x[random.integers(x.size)] = random.choice(np.array(some).astype(x.dtype))
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_int64_is_rounded_once(dtype: str) -> None:
    random = np.random.default_rng(0)
    for n in LENGTHS:
        for bits in (8, 30, 52, 53, 54, 62):
            x = with_some(random.integers(-2**bits, 2**bits, n), WHOLE, random)
            assert cast(x, dtype).tobytes() == x.astype(dtype).tobytes()
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_cut_off(dtype: str) -> None:
    random = np.random.default_rng(0)
    for n in LENGTHS:
        for size in (1, 300, 1e6, 1e10, 2.0**51, 2.0**53, 1e19):
            with np.errstate(invalid="ignore", over="ignore"):
                x = with_some((random.standard_normal(n) * size).astype(dtype), REAL, random)
                whole = np.where(np.abs(x) < 2.0**63, x, 0).astype("int64")
                whole[~(np.abs(x) < 2.0**63)] = -2**63
            assert np.array_equal(cast(x, "int64"), whole)
            checked()
            small = np.where(np.abs(x) < 2.0**31, whole, 0)
            assert np.array_equal(cast(x, "uint8"), small.astype("uint8"))
            checked()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_places_of_extremes_are_the_first(dtype: str) -> None:
    random = np.random.default_rng(0)
    for n in LENGTHS:
        for values in (2, 5, 2**30):
            x = random.integers(0, 2 if dtype == "bool" else min(values, 256) if dtype == "uint8" else values, (7, n)).astype(dtype)
            if dtype.startswith("float"):
                x -= x.dtype.type(2)
                x[x == 0] *= -1
                x[random.integers(0, 7, 3), random.integers(0, n, 3)] = np.nan
            elif dtype.startswith("int"):
                x[random.integers(0, 7, 4), random.integers(0, n, 4)] = [np.iinfo(dtype).min, np.iinfo(dtype).max] * 2
            node = gd.input("x", x.shape, dtype)
            got = gd.function([node], [gd.argmin(node, axis=1), gd.argmax(node, axis=1), gd.argmin(node[:, ::-1], axis=1)], threads=1)(x)
            for place, wanted in zip(got, [np.argmin(x, 1), np.argmax(x, 1), np.argmin(x[:, ::-1], 1)], strict=True):
                assert np.array_equal(place, wanted)
                checked()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_sizes_and_signs_of_integers(dtype: str) -> None:
    random = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    for n in LENGTHS:
        x = with_some(random.integers(limits.min, limits.max, n, dtype), (limits.min, limits.max, 0, 1), random)
        node = gd.input("x", x.shape, dtype)
        size, sign = gd.function([node], [gd.abs(node), gd.sign(node)], threads=1)(x)
        assert np.array_equal(size, np.abs(x))
        checked()
        assert np.array_equal(sign, np.sign(x))
        checked()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32", "int64"])
def test_counts_of_short_lines(dtype: str) -> None:
    random = np.random.default_rng(0)
    for n in (*LENGTHS, 255, 256, 257):
        x = random.integers(0, 2, (5, n)).astype(dtype)
        node = gd.input("x", x.shape, dtype)
        assert np.array_equal(gd.function([node], gd.count_nonzero(node, axis=1), threads=1)(x), np.count_nonzero(x, axis=1))
        checked()


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
def test_sums_of_some_rows_whatever_their_width(dtype: str) -> None:
    random = np.random.default_rng(0)
    for rows in (17, 24, 31, 33, 48, 64, 65, 96, 100, 112):
        for width in (128, 129, 135, 143, 256, 300, 1000):
            x = random.integers(-1000, 1000, (rows, width)).astype(dtype)
            node = gd.input("x", x.shape, dtype)
            assert np.array_equal(gd.function([node], gd.sum(node, axis=0), threads=1)(x), x.sum(axis=0))
            checked()


@pytest.mark.parametrize("source", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_conversions_of_every_length(source: str) -> None:
    """To bool, from zeros, NaNs and infinities, too."""
    random = np.random.default_rng(0)
    for n in (*range(1, 75), 127, 129, 1000):
        x = random.integers(0, 256, n).astype(source)
        for target in ("bool", "uint8", "int32", "int64", "float16", "float32", "float64"):
            if target != source:
                assert cast(x, target).tobytes() == x.astype(target).tobytes()
                checked()
        with np.errstate(over="ignore"):
            x = random.choice(np.array(REAL if source.startswith("float") else (0, 1, 128)).astype(source), n)
        if source != "bool":
            assert cast(x, "bool").tobytes() == x.astype("bool").tobytes()
            checked()


TESTS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor")
TESTS_OF_ONE = ("logical_not", "isnan", "isinf", "isfinite", "signbit")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_comparisons_and_tests_of_every_length(dtype: str) -> None:
    """Of arrays, of an array and one number either way round, and of what begins amid a register."""
    random = np.random.default_rng(0)
    odd = REAL if dtype.startswith("float") else (0, 1) if dtype in ("bool", "uint8") else (0, 1, -1, 2**31 - 1, -2**31)
    for n in (*range(1, 75), 127, 128, 129, 1000):
        x, y = (random.choice(np.array(odd).astype(dtype), n + 1)[1:] for _ in range(2))
        for name in TESTS:
            for a, b in ((x, y), (x, y[:1]), (x[:1], y), (x, x)):
                assert np.array_equal(call(name, a, b), getattr(np, name)(a, b)), (name, n)
                checked()
        for name in TESTS_OF_ONE[:None if dtype.startswith("float") else 1]:
            assert np.array_equal(call(name, x), getattr(np, name)(x)), (name, n)
            checked()


def call(name: str, *arrays: Any) -> Any:
    return np.asarray(of_any_length(name, tuple((a.size > 1, a.dtype.name) for a in arrays))(*arrays))


@cache
def of_any_length(name: str, operands: tuple[tuple[bool, str], ...]) -> Any:
    nodes = [gd.input(f"x{k}", ("n",) if many else (1,), dtype) for k, (many, dtype) in enumerate(operands)]
    return gd.function(nodes, getattr(gd, name)(*nodes), threads=1)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_brief_loops_write_where_their_operands_lie(dtype: str) -> None:
    """They load several registers before they store the first."""
    random = np.random.default_rng(1)
    for n in (*range(1, 140, 3), 200, 1000):
        x, y = (random.integers(0, 9, n).astype(dtype) for _ in range(2))
        for f in (lambda v, w: abs(v), lambda v, w: v + w, lambda v, w: w - v, lambda v, w: v * 3, lambda v, w: v + v):
            v, w = gd.variable(x.copy(), "v"), gd.input("w", (n,), dtype)
            step = gd.function([w], [], updates={v: f(v, w)}, threads=1)
            step(y)
            assert np.array_equal(np.asarray(v.value), f(x, y))
            checked()
