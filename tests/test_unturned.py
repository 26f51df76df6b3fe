"""Transposed operands of what is reduced: elementwise work is done as they lie (passes/turned.py). Of what is reduced in any order no bit changes;
sums of floats, with stable_forms, are taken in the order of memory."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

EXACT = ("merge", "algebra", "fold", "fuse", "in_place")        # without stable_forms, which takes sums of a transpose in the order of memory
FREE: dict[str, Callable[[Any, Any], Any]] = {
    "any": lambda x, y: gd.any(x.T > 9),
    "all of an axis": lambda x, y: gd.all(x.T * x.T + y.T > -1, axis=0),
    "max": lambda x, y: gd.max(gd.abs(x.T)),
    "min of an axis": lambda x, y: gd.min(gd.sin(x.T) * 2.0, axis=1),
    "count": lambda x, y: gd.count_nonzero(gd.logical_and(x.T > 0, y.T > 0)),
    "sum of integers": lambda x, y: gd.sum((x.T * 3).astype("int64")),
    "mean of bools": lambda x, y: gd.mean(x.T > y.T, axis=0),
    "a number from the graph": lambda x, y: gd.max(x.T * y[0, 0] + y[0, :1], axis=0),
    "spread along an axis": lambda x, y: gd.max(x.T * y[:, :1].T - y[:1].T, axis=1),
    "less its largest": lambda x, y: gd.any(x.T - gd.max(x.T, axis=0, keepdims=True) < -2),
}
BOUND: dict[str, Callable[[Any, Any], Any]] = {
    "a sum of floats": lambda x, y: gd.sum(gd.square(x.T)),
    "logsumexp": lambda x, y: gd.logsumexp(gd.square(x.T)),
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


def cases(name: str, graph: Callable[[Any, Any], Any], dtype: str, passes: Any = None) -> tuple[Any, Any, list[Any]]:
    x, y = gd.input("x", (13, 17), dtype), gd.input("y", (13, 17), dtype)
    random = np.random.default_rng(len(name))
    arrays = [random.standard_normal((13, 17)).astype(dtype) for _ in range(2)]
    arrays[0][3, 4] = np.nan if "max" in name else -0.0
    out = graph(x, y)
    return gd.function([x, y], out, threads=1, passes=passes), gd.function([x, y], out, passes=(), threads=1), arrays


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
@pytest.mark.parametrize("name", list(FREE))
def test_operands_are_read_as_they_lie(name: str, dtype: str) -> None:
    f, plain, arrays = cases(name, FREE[name], dtype)
    assert values(f, *arrays) == values(plain, *arrays)
    assert dtype == "float16" or (not turned(f) and turned(plain)), str(f.program)       # reductions of float16 read a copy in float32
    checked(3)


@pytest.mark.parametrize("name", list(BOUND))
def test_what_goes_by_an_order_or_has_other_readers_is_left_alone(name: str) -> None:
    f, plain, arrays = cases(name, BOUND[name], "float64", EXACT)
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


SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...], Any], ...] = (
    ((13, 17), (1, 0), None), ((300, 41), (1, 0), None), ((5, 6, 7), (1, 0, 2), (0, 1)), ((5, 6, 7), (2, 1, 0), None), ((5, 6, 7), (0, 2, 1), (1, 2)),
    ((4, 5, 6, 7), (0, 2, 1, 3), (1, 2)), ((4, 1, 6, 7), (1, 2, 0, 3), (1, 2)), ((4, 6, 7), (2, 1, 0), (-2, -1)), ((3, 5, 7, 9), (3, 0, 2, 1), (0, 2, 3)),
    ((1, 9, 1, 8), (3, 2, 1, 0), (0, 2)))
SUMS: dict[str, Callable[..., Any]] = {
    "sum": gd.sum, "mean": gd.mean, "var": gd.var, "std": gd.std, "logsumexp": gd.logsumexp, "prod": gd.prod,
    "norm": lambda x, axis, keepdims: gd.sqrt(gd.sum(x * x, axis=axis, keepdims=keepdims)),
    "less a mean": lambda x, axis, keepdims: gd.sum(gd.abs(x - gd.mean(x, axis=axis, keepdims=True)) * 0.5, axis=axis, keepdims=keepdims)}


def read_apart(f: Any) -> list[str]:
    """The instructions that add up along axes which do not go on in memory one after the other."""
    found = []
    for line in str(f.program).splitlines():
        instr = re.match(r" *\d+  (sum|prod|logsumexp|fused) .*<- \S+\[[^]]*\](?::([-\d,]+))?", line)
        if instr is None or instr[2] is None:
            continue
        last = re.search(r" \[(\d+)\] ", line)               # how many axes are reduced; all, in a group
        strides = [int(s) for s in instr[2].split(",")][-int(last[1]) if last else 0:]
        if strides != sorted(strides, reverse=True):
            found.append(line)
    return found


@pytest.mark.parametrize("keepdims", (False, True))
@pytest.mark.parametrize("name", list(SUMS))
def test_sums_of_a_transpose_are_taken_in_the_order_of_memory(name: str, keepdims: bool) -> None:
    """Their values and gradients, on one thread and two, with every size known or named; and in the order of their axes without the pass."""
    for shape, order, axis in SHAPES:
        a = np.random.default_rng(len(name)).standard_normal(shape) * 0.7
        x, named = gd.input("x", shape, "float64"), gd.input("x", tuple("abcd"[:len(shape)]), "float64")
        made = [[y := SUMS[name](gd.transpose(n, order), axis=axis, keepdims=keepdims), *gd.grad(gd.sum(y), [n])] for n in (x, named)]
        f = gd.function([x], made[0], threads=1)
        got = values(f, a)
        plain, exact = gd.function([x], made[0], passes=()), gd.function([x], made[0], passes=EXACT)
        assert values(plain, a) == values(exact, a), (shape, order)
        assert got == values(gd.function([x], made[0], threads=2), a), (shape, order)
        for ours, named_too, theirs in zip(f(a), gd.function([named], made[1], threads=1)(a), plain(a), strict=True):
            assert ours.shape == named_too.shape == theirs.shape, (shape, order)
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(ours, named_too, rtol=1e-12, atol=1e-13)      # a mean of few is corrected where their number is named
        alone = gd.function([x], made[0][0], threads=1)
        assert read_apart(alone) == [], (shape, order)
        if name in ("sum", "mean", "logsumexp", "prod"):
            assert read_apart(gd.function([x], made[0][0], threads=1, passes=EXACT)), (shape, order)
        checked(7)


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_a_whole_sum_of_a_transpose_is_that_of_the_array(dtype: str) -> None:
    """Bit for bit, with NaN, infinities and -0 among the elements, or no elements at all."""
    for shape in ((300, 41), (17, 3), (0, 5), (3, 0), (1, 7), (5000, 3)):
        a = np.random.default_rng(1).standard_normal(shape).astype(dtype)
        x = gd.input("x", shape, dtype)
        for special in (0.5, -0.0, np.nan, np.inf):
            if a.size:
                a[-1, 1] = special
            for name in ("sum", "prod", "mean", "var", "norm", "logsumexp"):
                f = getattr(gd, name)
                got, want = (values(gd.function([x], f(n), threads=1), a) for n in (x.T, x))
                assert got == want, (name, shape, special)
                checked()
    zeros = np.full((20, 30), -0.0, dtype)
    n = gd.input("n", zeros.shape, dtype)
    assert not np.signbit(gd.function([n], gd.sum(n.T))(zeros))


def test_what_keeps_its_axes_in_another_order_or_goes_by_the_order_is_left_alone() -> None:
    a = np.random.default_rng(2).standard_normal((4, 5, 6, 7))
    x = gd.input("x", a.shape, "float64")
    turned = gd.transpose(x, (3, 1, 0, 2))                  # its last three are reduced in this order, its first two are kept in that
    for y in (gd.sum(turned, axis=(1, 2)), gd.cumsum(turned.T, axis=0), gd.argmax(gd.abs(x.T)), gd.sum(gd.cumsum(x.T, axis=1))):
        f, plain = gd.function([x], y, threads=1), gd.function([x], y, passes=())
        assert values(f, a) == values(plain, a)
        checked()
    both = gd.abs(x.T) + 1.0                                # another reader: the array is made in the order of its axes anyway
    f, plain = gd.function([x], [gd.sum(both), both], threads=1), gd.function([x], [gd.sum(both), both], passes=())
    assert values(f, a) == values(plain, a)


def test_the_line_of_a_sum_and_its_name_stay() -> None:
    x = gd.input("x", (30, 40), "float32")
    total = gd.sum(gd.square(x.T) + 1.0).named("total")
    program = str(gd.function([x], total).program)
    assert program.count(f":{total.site.line}") >= 1 and "40" in program, program
    assert read_apart(gd.function([x], total)) == []
