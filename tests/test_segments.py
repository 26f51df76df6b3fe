"""Indices of which none may count from the end: the kernels refuse negative ones while they read them (gathers.written()), under the name
that the user called, and everything before that is left out of the program. Largest elements of segments, with and without many in a row."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.nn.functional import embedding

FUNCTIONS = {"segment_sum": gd.segment_sum, "segment_mean": gd.segment_mean, "segment_max": gd.segment_max}


def by_hand(name: str, x: Any, ids: Any, n: int) -> Any:
    out = np.full((n, *x.shape[1:]), -np.inf if name == "segment_max" else 0, x.dtype)
    (np.maximum if name == "segment_max" else np.add).at(out, ids, x)
    if name == "segment_mean":
        out /= np.maximum(np.bincount(ids, minlength=n), 1).reshape(n, *[1] * (x.ndim - 1)).astype(x.dtype)
    return out


def named(f: Any) -> list[str]:
    return [line.split()[1] for line in str(f.program).splitlines() if line[:4].strip().isdigit()]


@pytest.mark.parametrize("ids_dtype", ("int32", "int64", "uint8"))
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_negative_ids_are_refused_by_the_kernel(name: str, ids_dtype: str) -> None:
    random = np.random.default_rng(1)
    for rows, shape, n in ((5, (5,), 3), (1000, (1000,), 7), (600, (600, 3), 11), (40, (40, 2, 2), 5)):
        x, good = random.standard_normal(shape), random.integers(0, n, rows).astype(ids_dtype)
        v, i = gd.input("v", shape, "float64"), gd.input("i", (rows,), ids_dtype)
        for threads in (1, 2):
            f = gd.function([v, i], FUNCTIONS[name](v, i, n), threads=threads)
            assert not {"where", "less", "subtract"} & set(named(f)) and "where r" not in str(f.program), str(f.program)
            np.testing.assert_allclose(f(x, good), by_hand(name, x, good, n), rtol=1e-12)
            checked(2)
            for at, value in ((0, -1), (rows - 1, -n), (rows // 2, n), (rows // 2, -n - 5), (1, np.iinfo(ids_dtype).min)):
                if value < 0 and ids_dtype == "uint8":
                    continue
                bad = good.copy()
                bad[at] = value
                if 0 <= value < n:
                    continue
                with pytest.raises(gd.errors.OutOfBounds, match=rf"{name}: index {value} is out of bounds for axis 0 with size {n} \(at \[{at}\]"):
                    f(x, bad)
                checked()


def test_gathers_and_gradients_refuse_them_too() -> None:
    """The gradient of a segment_sum reads the cotangent by the same ids; an embedding reads rows by its labels."""
    table, ids = np.arange(12.0).reshape(4, 3), np.array([0, 3, 3, 1])
    w, i, x = gd.input("w", (4, 3), "float64"), gd.input("i", (4,), "int64"), gd.input("x", (4,), "float64")
    rows = gd.function([w, i], embedding(i, w), threads=1)
    slope = gd.function([x, i, w], gd.grad(gd.sum(gd.segment_sum(x, i, 4) * w[:, 1]), x), threads=1)
    for f, args, want in ((rows, (table, ids), table[ids]), (slope, (np.ones(4), ids, table), table[ids, 1])):
        np.testing.assert_array_equal(f(*args), want)
        for value in (-1, 4):
            bad = ids.copy()
            bad[2] = value
            with pytest.raises(gd.errors.OutOfBounds, match=f"index {value} is out of bounds"):
                f(*[bad if a is ids else a for a in args])
            checked()
    plain = gd.function([w, i], gd.take(w, i, axis=0), threads=1)           # here -1 is the last
    np.testing.assert_array_equal(plain(table, ids - 1), table[ids - 1])
    checked(3)


@pytest.mark.parametrize("dtype", ("bool", "uint8", "int32", "int64", "float32", "float64"))
def test_the_largest_of_segments_in_any_order(dtype: str) -> None:
    """Few and many segments, ids at random and in order, lone elements and rows; NaN wins, -0 does not replace 0."""
    random = np.random.default_rng(2)
    for rows, n in ((1, 1), (50, 7), (3000, 5), (3000, 2000), (3000, 9000), (700, 3)):
        for width in (None, 1, 3):
            for in_order in (False, True):
                ids = random.integers(0, n, rows)
                ids = np.sort(ids) if in_order else ids
                shape = (rows,) if width is None else (rows, width)
                x = random.integers(-100 if dtype[0] != "u" and dtype != "bool" else 0, 100 if dtype != "bool" else 2, shape).astype(dtype)
                if dtype[0] == "f":
                    x.reshape(-1)[random.integers(0, x.size, 2)] = np.nan
                    x.reshape(-1)[random.integers(0, x.size, 4)] = -0.0
                low = -np.inf if dtype[0] == "f" else 0 if dtype == "bool" else np.iinfo(dtype).min
                want = np.full((n, *shape[1:]), low, dtype)
                with np.errstate(invalid="ignore"):
                    np.maximum.at(want, ids, x)
                v, i = gd.input("v", shape, dtype), gd.input("i", (rows,), "int64")
                for threads in (1, 2):
                    got = gd.function([v, i], gd.segment_max(v, i, n), threads=threads)(x, ids)
                    np.testing.assert_array_equal(got, want, err_msg=f"{rows} {n} {width} {in_order}")
                    checked()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
def test_sums_of_segments_count_as_sums_do(dtype):
    x = (np.arange(900) % 2 == 0).astype(dtype) if dtype == "bool" else np.full(900, 100).astype(dtype)
    ids = np.arange(900) % 2
    got = gd.evaluate(gd.segment_sum(gd.constant(x), ids, 3))
    assert got.dtype == np.int64 and got.tolist() == [int(x[ids == k].astype(int).sum()) for k in range(3)]
    checked(3)
