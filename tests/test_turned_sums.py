"""Whole sums of arrays that do not lie in the order of their elements: columns of memory are brought together a few cache lines at a
time, alone (csrc/kernels/reduce_line_t.inc) or inside a group (map.c), those longer than a block of 4096 are added where they lie
(reduce_tall_t.inc), and every other element is shuffled out of registers. The bits are those of a contiguous copy, and the value is that of
an exact sum."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

EXACT = ("merge", "algebra", "fold", "fuse", "in_place")        # without stable_forms, which takes sums of a transpose in the order of memory
# Rows and columns in memory: whole tiles and not, columns shorter than a tile or than a block of 4096, few columns, several segments of 64
# blocks that begin inside a column. Of 4096 rows or 7168 and more, columns are added where they lie, in strips: blocks end at rows of their
# own, or all at one row, or with a column; in a second pass some columns have nothing to add; registers are not full, or overlap.
SHAPES = ((16, 32), (17, 31), (15, 40), (300, 401), (33, 1000), (1000, 33), (520, 7), (2048, 17), (2049, 18),
        (4095, 18), (4096, 9), (4097, 66), (5000, 61),
          (33_000, 3), (700, 800), (2, 600), (600, 2), (1, 700), (700, 1), (7167, 19), (7168, 19), (8192, 9), (8209, 70), (12_288, 4), (20_001, 5))
# Beyond a cache; strips of a pair of lines, and of whole rows or as many columns as a strip has.
LARGE = ((1100, 1000), (50_003, 40), (100_001, 8), (8200, 530), (12_304, 290))
TURNS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x.T, "inside": lambda x: x[1:, 1:].T, "backwards": lambda x: x[::-1].T, "columns backwards": lambda x: x[:, ::-1].T,
    "every other row": lambda x: x[::2].T, "every other column": lambda x: x[:, ::2].T,
}


def sample(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers of both signs and of different sizes, with zeros of both signs: an order of additions shows in the bits."""
    random = np.random.default_rng(shape[0])
    x = random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape)
    x[random.random(shape) < 0.05] = -0.0
    return x.astype(dtype)


def same(f: Callable[..., Any], view: Callable[[Any], Any], x: Any, *others: Any, threads: int = 1) -> Any:
    """f of the view of x, which must have the bits of f of a contiguous copy of it."""
    results = []
    for stored, taken in ((x, view), (np.ascontiguousarray(view(x)), lambda n: n)):
        nodes = [gd.input(f"n{i}", a.shape, a.dtype.name) for i, a in enumerate((stored, *others))]
        got = gd.function(nodes, f(taken(nodes[0]), *nodes[1:]), threads=threads, passes=EXACT)(stored, *others)
        results.append(tuple(np.asarray(r) for r in (got if isinstance(got, list | tuple) else [got])))
    assert [r.tobytes() for r in results[0]] == [r.tobytes() for r in results[1]], (x.shape, x.dtype)
    return results[0][0]


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("turn", TURNS)
def test_sums_and_products_of_turned_arrays_have_the_bits_of_a_copy(turn: str, dtype: str) -> None:
    for shape in SHAPES:
        x, view = sample(shape, dtype), TURNS[turn]
        if view(x).size == 0:
            continue
        got = same(gd.sum, view, x)
        exact = math.fsum(view(x).astype("float64").ravel())
        assert abs(float(got) - exact) <= 4 * float(np.finfo(dtype).eps) * float(np.abs(view(x).astype("float64")).sum()), shape
        same(gd.prod, view, (1 + x * 1e-8).astype(dtype))
        same(lambda n: gd.sum(n * n), view, x)
        same(gd.var, view, x)
        same(gd.norm, view, x)


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_several_segments_of_a_turned_array(dtype: str, threads: int) -> None:
    for shape in LARGE:
        x = sample(shape, dtype)
        for view in (TURNS[""], TURNS["inside"]):
            for f in (gd.sum, gd.var, gd.norm):
                same(f, view, x, threads=threads)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_turned_axes_under_others(dtype: str) -> None:
    """The last two of three or four axes turned, of which all or the last two are summed up."""
    for shape in ((3, 40, 33), (2, 300, 17), (5, 16, 40), (60, 20, 30), (2, 3, 50, 21)):
        x = sample(shape, dtype)
        for axis in (None, (-2, -1)):
            same(lambda n, axis=axis: gd.sum(n, axis=axis), lambda a: a.swapaxes(-1, -2) if isinstance(a, np.ndarray) else gd.swapaxes(a, -1, -2), x)
            same(lambda n, axis=axis: gd.var(n, axis=axis), lambda a: a.swapaxes(-1, -2) if isinstance(a, np.ndarray) else gd.swapaxes(a, -1, -2), x)
        same(gd.sum, lambda a: a.T, x)
        same(gd.var, lambda a: a.T, x)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_a_group_sums_turned_and_contiguous_operands(dtype: str) -> None:
    """Results that are arrays next to the sum, two turned operands, one that stands still, bools."""
    for shape in ((300, 401), (17, 33), (2048, 19), (2049, 19), (15, 50), (8200, 18)):
        x, y = sample(shape, dtype), sample(shape[::-1], dtype)
        same(lambda a, b: gd.sum(gd.tanh(a) * b), TURNS[""], x, y)
        same(lambda a, b: [gd.sum(gd.abs(a) + b), gd.abs(a) + b], TURNS[""], x, y)
        same(lambda a, b: gd.sum(gd.where(a > 0, b, -b)), TURNS[""], x, y)
        same(lambda a, b: gd.sum(gd.square(a.T * b.T)), TURNS[""], x, y)
        same(lambda a, b: gd.sum(gd.square(a - b[0, 0])), TURNS[""], x, y, threads=2)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_sums_less_a_number_are_those_of_the_array_of_differences(dtype: str) -> None:
    """Straight from memory, turned or not, whole or a row: the bits of a group that writes the differences as well, infinite ones too."""
    for shape in ((4096,), (4097,), (8191,), (5 * 4096 + 13,), (300, 401), (401, 300), (17, 33), (2049, 19), (8200, 18), (8201, 19), (12_288, 4)):
        x = sample(shape, dtype)
        node, m = gd.input("x", shape, dtype), gd.input("m", (), dtype)
        for less in (0.75, -1e3, np.inf, np.nan):
            for view in (lambda n: n, lambda n: n.T):
                for f in (lambda n: n, gd.square):
                    alone = gd.function([node, m], gd.sum(f(view(node) - m)), threads=2, passes=EXACT)(x, np.asarray(less, dtype))
                    both = gd.function([node, m], [gd.sum(f(view(node) - m)), view(node) - m], threads=1, passes=EXACT)(x, np.asarray(less, dtype))
                    assert np.asarray(alone).tobytes() == np.asarray(both[0]).tobytes(), (shape, less)
                    checked()


def test_variance_of_the_columns_of_a_turned_matrix_is_one_instruction() -> None:
    """They are rows of memory: the listing, and the bits, of the matrix as it lies."""
    x = sample((300, 401), "float64")
    n = gd.input("n", x.shape, "float64")
    turned, plain = (gd.function([n], f, threads=1) for f in (gd.var(n.T, axis=0), gd.var(n, axis=1)))
    assert "program  1 instructions" in str(turned.program)
    assert np.asarray(turned(x)).tobytes() == np.asarray(plain(x)).tobytes()
    scaled = gd.function([n], (n.T - gd.mean(n.T, axis=0)) * gd.mean(n.T, axis=0), threads=1)
    assert np.allclose(scaled(x), (x.T - x.T.mean(0)) * x.T.mean(0), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_what_is_not_finite_comes_through(dtype: str) -> None:
    for shape, where in (((300, 401), (0, 0)), ((300, 401), (-1, -1)), ((300, 401), (150, 200)), ((9000, 21), (4500, 11))):
        for value in (np.nan, np.inf, -np.inf):
            x = np.ones(shape, dtype)
            x[where] = value
            for f in (gd.sum, gd.prod, gd.var, gd.norm):
                same(f, TURNS[""], x)
            assert np.array_equal(same(gd.sum, TURNS[""], x), np.asarray(value, dtype), equal_nan=True)


def test_what_a_column_is_read_over_again_for_stays_in_its_own_sum() -> None:
    """Rows that columns pass before a block begins in them are added to lanes that are thrown away: infinities there make no NaN of others."""
    x = np.ones((9000, 40))
    x[:3000, 20] = np.inf
    x[3000:, 20] = -np.inf
    assert np.isnan(same(gd.sum, TURNS[""], x))
    x[3000:, 20] = 1
    assert same(gd.sum, TURNS[""], x) == np.inf


@pytest.mark.parametrize(("f", "shape"), ((gd.var, (300, 400)), (gd.var, (9000, 30)), (gd.norm, (300, 400)), (gd.norm, (20_000, 30))))
def test_no_array_is_made_for_the_variance_or_norm_of_a_turned_array(f: Callable[..., Any], shape: tuple[int, int]) -> None:
    n = gd.input("n", shape, "float64")
    for passes in (EXACT, None):
        text = str(gd.function([n], f(n.T), threads=1, passes=passes).program)
        assert "fused" in text
        assert "arena 16 bytes" in text


@pytest.mark.parametrize("dtype", ("float32", "float64", "int32", "int64", "uint8"))
def test_every_other_element(dtype: str) -> None:
    """Blocks that are whole or not; a last element that is the last of memory, where a register would reach beyond."""
    for n in (2, 31, 4095, 4096, 4097, 8191, 8192, 8193, 5 * 4096, 9 * 4096 + 1, 70 * 4096 + 3):
        for size in (2 * n - 1, 2 * n):
            x = (sample((size,), "float64") % 100).astype(dtype)
            for step in (2, -2, 3):
                for f in (gd.sum, gd.prod):
                    same(f, lambda a, step=step: a[::step], x)
    for shape in ((300, 400), (41, 999)):
        x = (sample(shape, "float64") % 100).astype(dtype)
        same(gd.sum, lambda a: a[:, ::2], x)
        same(gd.sum, lambda a: a[:, ::2].T, x)
