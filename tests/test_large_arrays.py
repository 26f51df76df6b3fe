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


@pytest.mark.parametrize("source, target", [("int64", "float64"), ("float64", "int64"), ("float64", "float32")])
def test_conversions_of_elements_that_lie_apart(source, target):
    """They are gathered in pieces: rows of 1 and 2 pieces and some more elements, and many rows to a piece."""
    for shape in ((601, 1229), (511, 1999), (9001, 85)):
        x = gd.input("x", shape, source)
        a = behind(shape, source, 1)
        for at in (np.s_[:, ::2], np.s_[:, 1::3], np.s_[:, ::-1], np.s_[::2, ::-2]):
            compare(x[at].astype(target), [x], [a], a[at].astype(target))
        compare(x.T.astype(target), [x], [a], np.ascontiguousarray(a.T).astype(target))


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


SINGLE = {"1/x": (1, lambda m, x: 1 / x), "sqrt": (1, lambda m, x: m.sqrt(x)), "by a number": (1, lambda m, x: x * 3),
          "less a number": (1, lambda m, x: 7 - x), "divide": (2, lambda m, x, y: x / y), "add": (2, lambda m, x, y: x + y),
          "same array": (1, lambda m, x: x + x), "clip": (1, lambda m, x: m.clip(x, 20, 100)), "where": (3, lambda m, x, y, z: m.where(x != 0, y, z))}
EVERY = {"by a number", "less a number", "add", "same array", "clip", "where"}


@pytest.mark.parametrize("name, dtype", [(name, dtype) for name in SINGLE for dtype in ("float32", "float64", "int64", "uint8")
                                         if dtype.startswith("float") or name in EVERY])
def test_single_operations(name, dtype):
    """Pieces begin with a cache line of the result, whatever its place in one, and the last is any number of elements."""
    count, operation = SINGLE[name]
    n = {"float32": 4_300_007, "float64": 2_150_003, "int64": 2_150_003, "uint8": 17_000_001}[dtype]
    inputs = [gd.input("xyz"[k], (n,), dtype) for k in range(count)]
    arrays = [behind((n,), dtype, 3 * k + 1) + np.ones((), dtype) for k in range(count)]
    compare(operation(gd, *inputs), inputs, arrays, operation(np, *arrays))


@pytest.mark.parametrize("name", ["exp", "log2", "tan", "cbrt", "exp of the opposite", "of rows", "and a row", "turned"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_have_the_bits_of_pieces(name, dtype):
    n = 2113 if dtype == "float32" else 1511
    forms = {"exp of the opposite": lambda x, y: gd.exp(-x * x) + 1, "of rows": lambda x, y: gd.exp(x[1:, 3:]), "and a row": lambda x, y: gd.sin(x) * y,
             "turned": lambda x, y: gd.tanh(x.T) + 1}
    form = forms.get(name, lambda x, y: getattr(gd, name)(x))
    x, y, rows = gd.input("x", (n, n), dtype), gd.input("y", (n,), dtype), gd.input("rows", (5, n), dtype)
    a, b = behind((n, n), dtype, 1) / np.array(64, dtype) + np.array(0.01, dtype), behind((n,), dtype, 2)
    for threads in (1, 2):
        whole = gd.function([x, y], form(x, y), threads=threads)(a, b)
        for at in (0, n // 2, n - 5):
            piece = gd.function([rows, y], form(rows, y))(a[at:at + 5], b)
            same = {"of rows": whole[at:at + 4], "turned": whole[:, at:at + 5]}.get(name, whole[at:at + 5])
            assert same.tobytes() == piece.tobytes()
            checked()
