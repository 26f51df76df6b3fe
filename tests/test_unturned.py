"""Transposed operands of what is reduced in any order: elementwise work is done as they lie (passes/turned.py), and no bit changes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

FREE: dict[str, Callable[[Any, Any], Any]] = {
    "any": lambda x, y: gd.any(x.T > 9),
    "all of an axis": lambda x, y: gd.all(x.T * x.T + y.T > -1, axis=0),
    "max": lambda x, y: gd.max(gd.abs(x.T)),
    "min of an axis": lambda x, y: gd.min(gd.sin(x.T) * 2.0, axis=1),
    "count": lambda x, y: gd.count_nonzero(gd.logical_and(x.T > 0, y.T > 0)),
    "sum of integers": lambda x, y: gd.sum((x.T * 3).astype("int64")),
    "mean of bools": lambda x, y: gd.mean(x.T > y.T, axis=0),
    "a number from the graph": lambda x, y: gd.max(x.T * y[0, 0] + y[0, :1], axis=0),
}
BOUND: dict[str, Callable[[Any, Any], Any]] = {
    "a sum of floats": lambda x, y: gd.sum(gd.square(x.T)),
    "a product of integers over an axis": lambda x, y: gd.prod((x.T * 3).astype("int64"), axis=0),
    "the first place": lambda x, y: gd.argmax(gd.abs(x.T)),
    "another operand": lambda x, y: gd.max(x.T + gd.reshape(y, x.T.shape)),
    "two readers": lambda x, y: [gd.max(m := gd.abs(x.T)), m],
    "an output": lambda x, y: [gd.abs(x.T), gd.max(gd.abs(x.T))],
}


def turned(f: Any) -> bool:
    """Does an elementwise instruction read across memory?"""
    lines = [line for line in str(f.program).splitlines() if line[:4].strip().isdigit()]
    return any(":1,17" in line.split("<-")[1] for line in lines if line.split()[1] not in ("any", "all", "max", "min", "count_nonzero", "wide_sum",
                                                                                           "exact_sum", "sum", "argmax", "copy"))


def values(f: Any, *arrays: Any) -> list[bytes]:
    got = f(*arrays)
    return [np.asarray(v).tobytes() for v in (got if isinstance(got, list | tuple) else [got])]


def cases(name: str, graph: Callable[[Any, Any], Any], dtype: str) -> tuple[Any, Any, list[Any]]:
    x, y = gd.input("x", (13, 17), dtype), gd.input("y", (13, 17), dtype)
    random = np.random.default_rng(len(name))
    arrays = [random.standard_normal((13, 17)).astype(dtype) for _ in range(2)]
    arrays[0][3, 4] = np.nan if "max" in name else -0.0
    out = graph(x, y)
    return gd.function([x, y], out, threads=1), gd.function([x, y], out, passes=(), threads=1), arrays


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
@pytest.mark.parametrize("name", list(FREE))
def test_operands_are_read_as_they_lie(name: str, dtype: str) -> None:
    f, plain, arrays = cases(name, FREE[name], dtype)
    assert values(f, *arrays) == values(plain, *arrays)
    assert dtype == "float16" or (not turned(f) and turned(plain)), str(f.program)       # reductions of float16 read a copy in float32
    checked(3)


@pytest.mark.parametrize("name", list(BOUND))
def test_what_goes_by_an_order_or_has_other_readers_is_left_alone(name: str) -> None:
    f, plain, arrays = cases(name, BOUND[name], "float64")
    assert values(f, *arrays) == values(plain, *arrays)
    assert turned(f), str(f.program)
    checked(2)


def test_axes_in_any_order() -> None:
    a = np.random.default_rng(5).standard_normal((4, 5, 6)).astype("float32")
    x = gd.input("x", a.shape, "float32")
    for order in ((2, 0, 1), (0, 2, 1), (2, 1, 0)):
        for axis in (None, 0, (0, 2)):
            y = gd.transpose(x, order)
            got = gd.function([x], [gd.max(gd.exp(y) - 1.0, axis=axis), gd.any((y > 1) | (y < -2), axis=axis)], threads=1)(a)
            b = np.transpose(a, order)
            np.testing.assert_allclose(got[0], np.max(np.exp(b) - 1, axis=axis), rtol=1e-5)
            np.testing.assert_array_equal(got[1], np.any((b > 1) | (b < -2), axis=axis))
            checked(2)
