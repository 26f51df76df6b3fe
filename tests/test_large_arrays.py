"""Arrays of more bytes than caches hold, whose results are stored past them, piece by piece: at any alignment, on one thread and on two."""
from __future__ import annotations

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

rng = np.random.default_rng(0)


def behind(shape, dtype, skip):
    """Numbers that every dtype has, whose first element lies `skip` elements behind that of an array of its own."""
    n = int(np.prod(shape))
    return (rng.integers(0, 200, n + skip)).astype(dtype)[skip:].reshape(shape)


def compare(y, inputs, arrays, want):
    for threads in (1, 2):
        f = gd.function(inputs, y, threads=threads)
        out = np.empty(want.size + 1, want.dtype)[1:].reshape(want.shape)
        assert f(*arrays).tobytes() == want.tobytes()
        f(*arrays, out=out)
        assert out.tobytes() == want.tobytes()
        checked(2)


@pytest.mark.parametrize("source, target, n", [("float32", "float64", 3_000_017), ("float64", "float32", 3_000_017), ("uint8", "float32", 7_000_003),
                                               ("int64", "float16", 4_000_001), ("float16", "int64", 4_000_001), ("int32", "uint8", 7_000_003),
                                               ("float64", "bool", 4_000_001), ("bool", "int64", 4_000_001)])
def test_conversions(source, target, n):
    x = gd.input("x", (n,), source)
    a = behind((n,), source, 3)
    compare(x.astype(target), [x], [a], a.astype(target))


def test_conversions_of_rows_that_lie_apart():
    x = gd.input("x", (1500, 3000), "float32")
    a = behind((1500, 3000), "float32", 1)
    compare(x[:, 5:2900].astype("float64"), [x], [a], a[:, 5:2900].astype("float64"))
    compare(x[::-1].astype("int64"), [x], [a], a[::-1].astype("int64"))


MOVES = {"concatenate": lambda m, x, y: m.concatenate([x, y]), "concatenate axis=1": lambda m, x, y: m.concatenate([x, y], axis=1),
         "stack axis=1": lambda m, x, y: m.stack([x, y], axis=1), "flip": lambda m, x, y: m.flip(x, 0), "roll": lambda m, x, y: m.roll(x, 7, axis=1),
         "tile": lambda m, x, y: m.tile(x, (2, 3)), "pad": lambda m, x, y: m.pad(x, 3)}


@pytest.mark.parametrize("dtype, shape", [("float32", (2111, 2029)), ("uint8", (4003, 4201)), ("float64", (1031, 2053))])
@pytest.mark.parametrize("name", MOVES)
def test_moves(name, dtype, shape):
    x, y = gd.input("x", shape, dtype), gd.input("y", shape, dtype)
    a, b = behind(shape, dtype, 3), behind(shape, dtype, 0)
    compare(MOVES[name](gd, x, y), [x, y], [a, b], MOVES[name](np, a, b))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_small_results(dtype):
    n = 5_000_011
    x, y = gd.input("x", (n,), dtype), gd.input("y", (n,), dtype)
    a, b = behind((n,), dtype, 1), behind((n,), dtype, 0)
    compare(x > y, [x, y], [a, b], a > b)
    compare(x * 3, [x], [a], a * a.dtype.type(3))
