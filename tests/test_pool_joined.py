"""Pooling whose windows lie side by side and leave nothing out is joined by elementwise steps; others, and larger ones, have a kernel.

Both give the same bits: sums go on in the same order, and of equal elements, zeros of both signs among them, the first one stays.
"""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.ops import pool

SHAPES = [((32, 5, 4, 4), 2), ((3, 7, 6, 9), 3), ((2, 3, 8, 12), (2, 4)), ((5, 4, 6, 5), (3, 1)), ((5, 4, 5, 6), (1, 2)), ((9, 2, 30), 3), ((1, 1, 4), 2),
          ((2, 3, 4, 4, 6), 2), ((2, 3, 2, 8, 4), (1, 4, 2)), ((1, 2, 4, 3, 4), (4, 1, 2)), ((4, 3, 28, 26), 2)]


def pooled(op, shape, window, dtype, **options):
    x = gd.input("x", shape, dtype)
    return gd.function([x], getattr(gd, op)(x, window, **options), threads=1)


def ops(f):
    return {name for name, *_ in f.program.instrs}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("shape, window", SHAPES)
def test_joined_and_by_the_kernel_are_the_same_bits(shape, window, op, dtype, monkeypatch):
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-2, 3, shape).astype(dtype) * rng.standard_normal(shape).astype(dtype)
    x[rng.random(shape) < 0.03] = np.nan
    x[rng.random(shape) < 0.2] = -0.0
    joined = pooled(op, shape, window, dtype)
    monkeypatch.setattr(pool, "_joined", lambda *_: None)
    kernel = pooled(op, shape, window, dtype)
    assert joined(x).tobytes() == kernel(x).tobytes()
    assert op in ops(kernel)
    checked(2)
    boxes = op == "avg_pool" and len(shape) == 5 and window == 2         # of 3 axes, the kernel adds up the rows of a box in one chain
    assert (op in ops(joined)) == boxes


@pytest.mark.parametrize("shape, window, options", [
    ((2, 3, 8, 8), 2, {"stride": 1}), ((2, 3, 8, 8), 2, {"padding": 1}), ((2, 3, 9, 8), 2, {}), ((2, 3, 10, 10), 5, {}),
    ((2, 3, 8, 8), 2, {"stride": 3}), ((1, 17, 256, 256), 2, {}), ((0, 3, 4, 4), 2, {})])
def test_others_keep_the_kernel(shape, window, options):
    for op in ("max_pool", "avg_pool"):
        assert shape[0] == 0 or op in ops(pooled(op, shape, window, "float32", **options))
        checked()
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    assert pooled("max_pool", shape, window, "float32", **options)(x).shape[:2] == shape[:2]


def test_a_turned_array():
    x = gd.input("x", (4, 6, 3, 2), "float64")
    value = np.random.default_rng(2).standard_normal((4, 6, 3, 2))
    flat = value.transpose(3, 2, 0, 1).reshape(2, 3, 2, 2, 3, 2)
    for op, want in (("max_pool", flat.max((3, 5))), ("avg_pool", flat.mean((3, 5)))):
        y = getattr(gd, op)(gd.transpose(x, (3, 2, 0, 1)), 2)
        np.testing.assert_allclose(gd.function([x], y)(value), want, rtol=1e-14)
        checked()
