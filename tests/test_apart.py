"""Conversions, reductions and choices of elements that lie apart or backwards, and sums of squares of arrays beyond the caches, which go
through them as two streams: what contiguous arrays, NumPy and the tree of sums written out give, by one thread and by two."""
import itertools

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

VIEWS = {"even": np.s_[:, ::2], "odd": np.s_[:, 1::2], "third": np.s_[:, ::3], "back": np.s_[:, ::-1], "back even": np.s_[::-1, ::-2],
         "ninth": np.s_[:, 2::9]}
WIDTHS = [1, 3, 16, 63, 64, 65, 127, 129, 130, 257, 1031, 2050]
TARGETS = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


def some(shape, dtype, seed=0):
    rng = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return (100 * rng.standard_normal(shape)).astype(dtype) if dtype.startswith("float") else rng.integers(0, 120, shape).astype(dtype)


def run(build, *arrays):
    """What one thread and two give, which is the same."""
    xs = [gd.input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
    one, two = (np.asarray(gd.function(xs, build(*xs), threads=n)(*arrays)) for n in (1, 2))
    assert one.dtype == two.dtype and one.tobytes() == two.tobytes()
    return one


@pytest.mark.parametrize("source", ["int32", "int64", "float32", "float64"])
def test_conversions_of_what_lies_apart(source):
    """The last element taken may be the last of the array; rows are of one to some vectors, and of what is left of one."""
    for width, view, target in itertools.product(WIDTHS, VIEWS.values(), TARGETS):
        x = some((4, width), source)
        if target == "uint8":
            x = np.abs(x) % x.dtype.type(100)
        if target != source and x[view].size:
            got = run(lambda v: v[view].astype(target), x)             # noqa: B023  called at once
            assert got.dtype == target and got.tobytes() == np.ascontiguousarray(x[view]).astype(target).tobytes()
            checked()


@pytest.mark.parametrize("source, target", [("int64", "float64"), ("int64", "float32"), ("int64", "bool"), ("float64", "float32"), ("int32", "float64")])
def test_conversions_of_many_that_lie_apart(source, target):
    x = some((700, 1500), source)
    for view in VIEWS.values():
        assert run(lambda v: v[view].astype(target), x).tobytes() == np.ascontiguousarray(x[view]).astype(target).tobytes()   # noqa: B023
        checked()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("name", ["any", "all", "count_nonzero", "max", "min"])
def test_reductions_of_what_lies_apart(name, dtype):
    """One element alone decides: the first taken, the last, one in between, or none."""
    ours, theirs = getattr(gd, name), getattr(np, name)
    for width, view, axis in itertools.product(WIDTHS, VIEWS.values(), (1, None)):
        x = np.zeros((3, width), dtype) if name in ("any", "count_nonzero") else np.ones((3, width), dtype) if name == "all" else some((3, width), dtype)
        odd = np.asarray(name != "all" if name in ("any", "all", "count_nonzero") else name == "max", dtype)
        odd = odd * np.asarray(121 if dtype == "uint8" else 1, dtype)
        if x[view].size == 0:
            continue
        places = np.arange(x.size).reshape(x.shape)[view]
        for at in (None, places[0, 0], places[-1, -1], places[1, places.shape[1] // 2]):
            y = x.copy()
            if at is not None:
                y.reshape(-1)[at] = np.nan if dtype.startswith("float") and name in ("max", "min") else odd
            got, want = run(lambda v: ours(v[view], axis=axis), y), np.asarray(theirs(y[view], axis=axis))     # noqa: B023
            np.testing.assert_array_equal(got, want)
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_one_of_two_that_lie_apart(name, dtype):
    ours, theirs = getattr(gd, name), getattr(np, name)
    everything = np.s_[:, ::1]
    for width, one, two in itertools.product((7, 130, 133, 1000), [*VIEWS.values(), everything], [*VIEWS.values(), everything]):
        x, y = some((5, width), dtype), some((5, width), dtype, 1)
        x[:, ::5], y[:, ::7], x[:, 3::11] = np.nan, np.nan, y[:, 3::11]
        n = min(x[one].shape[1], y[two].shape[1])
        got = run(lambda a, b: ours(a[one][:, :n], b[two][:, :n]), x, y)               # noqa: B023
        np.testing.assert_array_equal(got, theirs(x[one][:, :n], y[two][:, :n]))
        checked()


@pytest.mark.parametrize("dtype", ["int64", "float64", "float32", "int32"])
@pytest.mark.parametrize("name", ["equal", "less", "add", "maximum", "logical_and"])
def test_two_operands_from_memory_of_which_one_lies_apart(name, dtype):
    x = some((610, 1001), dtype)
    for view in (np.s_[:, ::2], np.s_[:, ::-2], np.s_[:, ::3], np.s_[:, ::-1]):
        wide = some((610, 3003), dtype, 1)
        part = wide[view][:, :1001]
        got = run(lambda a, b: getattr(gd, name)(a, b[view][:, :1001]), x, wide)       # noqa: B023
        np.testing.assert_array_equal(got, getattr(np, name)(x, part))
        checked()


def tree(x):
    """Squares of x, added as documented: element i of a block of 4096 to lane i mod 16; lanes by halving in double, blocks pairwise."""
    padded = np.zeros(-(-x.size // 4096) * 4096, x.dtype)
    padded[:x.size] = x * x
    lanes = np.zeros((padded.size // 4096, 16), x.dtype)
    for k in range(256):
        lanes += padded.reshape(-1, 256, 16)[:, k]
    q = lanes.astype("float64").reshape(-1, 4, 4)
    h = (q[:, 0] + q[:, 2]) + (q[:, 1] + q[:, 3])
    parts = list((h[:, 0] + h[:, 2]) + (h[:, 1] + h[:, 3]))
    while len(parts) > 1:
        parts = [sum(parts[i:i + 2]) for i in range(0, len(parts), 2)]
    return np.asarray(parts[0], x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_squares_are_the_tree_of_sums(dtype):
    """Below a megabyte and above; an even and an odd number of blocks, and a piece of one; wherever in a cache line they begin."""
    for n in (4096, 12_345, 131_072, 139_300, 262_144, 262_145, 266_240, 270_336, 274_433, 540_700, 1_100_001):
        base = np.random.default_rng(n).standard_normal(n + 16).astype(dtype)
        for first in (0, 1, 5):
            x = base[first:first + n]
            want = tree(x)
            assert run(lambda v: gd.sum(gd.square(v)), x).tobytes() == want.tobytes()
            assert run(gd.norm, x).tobytes() == np.sqrt(want).tobytes()
            plain = gd.function([v := gd.input("x", x.shape, dtype)], gd.sum(gd.square(v)), passes=(), threads=1)(x)
            assert plain.tobytes() == want.tobytes()
            checked(3)
