"""Reductions of arrays whose axes lie in memory in another order: several axes are brought together box by box (red_box() in
csrc/kernels/reduce_t.inc), neighbouring kept axes are read as one where memory goes on from one to the other (reduce_join_kept()), and rows of
several tiles are read whole (reduce_widen()). The bits are those of a contiguous copy, on one thread or two."""
from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import graphdiff as gd

EXACT = ("merge", "algebra", "fold", "fuse", "in_place")        # without stable_forms, which takes sums of a transpose in the order of memory
FUNCTIONS = {"sum": gd.sum, "prod": gd.prod, "max": gd.max, "min": gd.min, "mean": gd.mean, "any": gd.any, "all": gd.all, "argmax": gd.argmax,
             "logsumexp": gd.logsumexp}


def sample(shape: tuple[int, ...], dtype: str) -> Any:
    random = np.random.default_rng(len(shape))
    if not dtype.startswith("float"):
        return random.integers(0, 100, shape, dtype)
    x = random.standard_normal(shape) * 10.0 ** random.integers(-3, 3, shape)
    x[random.random(shape) < 0.05] = -0.0
    return x.astype(dtype)


def check(name: str, x: Any, order: tuple[int, ...], axis: Any) -> None:
    """A reduction of x with its axes in another order has the bits of that of a copy, whatever the threads, and NumPy's value."""
    given, stored = gd.input("x", x.shape, x.dtype.name), np.ascontiguousarray(np.transpose(x, order))
    copy = gd.input("y", stored.shape, stored.dtype.name)
    want = np.asarray(gd.function([copy], FUNCTIONS[name](copy, axis=axis), threads=1)(stored))
    for threads in (1, 2):
        got = np.asarray(gd.function([given], FUNCTIONS[name](gd.transpose(given, order), axis=axis), threads=threads, passes=EXACT)(x))
        assert got.shape == want.shape and got.tobytes() == want.tobytes(), (name, x.shape, x.dtype, order, axis, threads)
    if name in ("sum", "max", "min", "any"):
        exact = getattr(np, name)(np.asarray(stored, "float64" if x.dtype.kind == "f" else x.dtype), axis=axis)
        size = np.abs(np.asarray(stored, "float64")).sum(axis=axis)
        assert np.all(np.abs(np.asarray(want, "float64") - exact) <= 1e-5 * size), (name, x.shape, x.dtype, order, axis)


@pytest.mark.parametrize("dtype", ("float32", "float64", "int64"))
@pytest.mark.parametrize("shape", ((3, 17, 5, 40), (2, 9, 70, 2), (16, 3, 11, 18), (1, 40, 2, 33)))
def test_sums_over_any_axes_in_any_order(shape: tuple[int, ...], dtype: str) -> None:
    x = sample(shape, dtype)
    for order in permutations(range(4)):
        for axis in (None, 0, 3, (1, 2), (0, 2, 3)):
            check("sum", x, order, axis)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("shape", ((2, 17, 3755, 2), (69, 70, 2, 14), (6, 298, 6, 12), (3, 21, 1200), (5, 2, 2, 6001)))
def test_long_sums_in_any_order(shape: tuple[int, ...], dtype: str) -> None:
    """Boxes of several pieces: a piece of a line that is brought together at once ends within an axis."""
    x = sample(shape, dtype)
    for order in permutations(range(len(shape))):
        check("sum", x, order, None)
    check("prod", x, (2, 1, 0, *range(3, len(shape))), None)


@pytest.mark.parametrize("dtype", ("uint8", "int32", "int64", "float32", "float64"))
@pytest.mark.parametrize("shape", ((13, 624, 2), (2, 4200, 3), (70, 40, 63), (90, 33, 64), (5000, 11, 7), (9, 700, 5), (1, 40, 3),
                                   (4, 1, 3), (3, 0, 2), (0, 5, 3)))
def test_kept_axes_that_are_exchanged(shape: tuple[int, ...], dtype: str) -> None:
    """Few columns and many, thin and not, with several segments, of odd numbers; the other of the two axes may be short, too."""
    x = sample(shape, dtype)
    for name in FUNCTIONS:
        if (name == "logsumexp" and not dtype.startswith("float")) or (name in ("max", "min", "argmax") and shape[0] == 0):
            continue
        check(name, x, (0, 2, 1), 0)
        check(name, x, (2, 0, 1), 1)
        check(name, x, (2, 1, 0), 2)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_kept_axes_with_more_beside_them(dtype: str) -> None:
    for shape in ((3, 20, 50, 4), (2, 40, 2100, 3), (3, 5, 6, 7)):
        x = sample(shape, dtype)
        for order in ((0, 1, 3, 2), (3, 2, 0, 1), (3, 0, 1, 2), (2, 3, 1, 0)):
            for axis in range(4):
                check("sum", x, order, axis)
                check("max", x, order, axis)


@pytest.mark.parametrize("dtype", ("uint8", "int32", "float32", "float64"))
@pytest.mark.parametrize("width", (2049, 2500, 4095, 4096, 4097))
def test_rows_of_several_tiles(width: int, dtype: str) -> None:
    """Large enough not to be in a cache, a few rows and several segments; whole rows and parts of longer ones."""
    x = sample((4300 if dtype == "uint8" else 2100, width), dtype)
    for name in ("sum", "max"):
        check(name, x, (0, 1), 0)
    if dtype == "float64":
        inside = x[:, 5:-3]
        y = gd.input("y", x.shape, x.dtype.name)
        got = gd.function([y], gd.sum(y[:, 5:-3], axis=0), threads=1)(x)
        assert np.asarray(got).tobytes() == np.asarray(gd.function([y], gd.sum(y, axis=0), threads=1)(x))[5:-3].tobytes()
        assert np.allclose(got, inside.sum(axis=0))


def test_elementwise_of_scattered_operands() -> None:
    """Axes in an order in which nothing goes on from one to the other, of short rows or of elements apart: copied first, once for all."""
    for dtype in ("bool", "uint8", "int64", "float16", "float32", "float64"):
        for shape in ((12, 47, 4), (20, 31, 9), (7, 2, 11, 13), (3, 0, 5), (2, 3, 4)):
            x = sample(shape, "uint8" if dtype == "bool" else dtype)
            x = (x > 50) if dtype == "bool" else x
            given = gd.input("x", shape, dtype)
            for order in permutations(range(len(shape))):
                y, want = gd.transpose(given, order)[:, ::-1], np.transpose(x, order)[:, ::-1]
                got = gd.function([given], gd.where(y == y, y, y) if dtype == "bool" else y * y + y)(x)
                with np.errstate(all="ignore"):
                    exact = want if dtype == "bool" else want * want + want
                assert np.array_equal(got, exact.astype(x.dtype), equal_nan=x.dtype.kind == "f"), (shape, dtype, order)


def test_a_scattered_operand_is_copied_once() -> None:
    x = gd.input("x", (12, 47, 4), "float32")
    y = gd.transpose(x, (2, 1, 0))
    listing = str(gd.function([x], [gd.exp(y), gd.sum(y * y, axis=0), gd.log_softmax(y, axis=1)]).program)
    assert listing.count("copy ") == 1, listing
    straight = str(gd.function([x], gd.exp(gd.transpose(x, (1, 0, 2))[:, :, ::1])).program)
    assert "copy" in straight                                        # rows of 16 bytes
    z = gd.input("z", (12, 47, 8), "float32")
    assert "copy" not in str(gd.function([z], gd.exp(gd.transpose(z, (1, 0, 2)))).program)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_softmax_and_norms_of_scattered_operands(dtype: str) -> None:
    for shape in ((12, 47, 4), (34, 9, 11, 5), (10, 680, 4)):
        x = sample(shape, dtype)
        given = gd.input("x", shape, dtype)
        for order in permutations(range(len(shape))):
            stored = np.ascontiguousarray(np.transpose(x, order))
            copy = gd.input("y", stored.shape, dtype)
            for axis in range(len(shape)):
                def made(n: Any, axis: int = axis) -> Any:
                    s = gd.sum(gd.log_softmax(n, axis=axis) * 0.5)
                    return [gd.softmax(n, axis=axis), gd.vector_norm(n, axis=axis), gd.std(n, axis=axis), gd.grad(s, n)]
                got = gd.function([given], made(gd.transpose(given, order)))(x)
                want = gd.function([copy], made(copy))(stored)
                assert [np.asarray(g).tobytes() for g in got] == [np.asarray(w).tobytes() for w in want], (shape, order, axis)


@pytest.mark.parametrize("dtype", ("uint8", "int32", "int64", "float32", "float64"))
@pytest.mark.parametrize("shape", ((20, 2, 20, 2), (7, 3, 5, 3), (9, 4, 700, 2), (2, 5, 3, 4), (300, 2, 2, 16)))
def test_short_lines_along_several_axes(shape: tuple[int, ...], dtype: str) -> None:
    """They are turned into columns, some at a time (fold_turn_short()): few lines and more than a strip or a tile, up to 64 elements and more."""
    x = sample(shape, dtype)
    for order in ((0, 1, 2, 3), (2, 3, 0, 1), (3, 0, 1, 2)):
        for axis in ((1, 3), (0, 2), (0, 3)):
            for name in ("sum", "prod"):
                check(name, x, order, axis)
