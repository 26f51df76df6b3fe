"""Random graphs: the C program against the NumPy interpreter, and exact passes, in-place and threads against none of them, bit by bit.

A seed names a graph: one that fails is found again by `random_graphs.graph(seed, ...)`, and kept in REGRESSIONS.
"""
import os

import numpy as np
import pytest
from counting import checked
from in_order import reads_what_was_written
from random_graphs import JUMPS, ROUNDED, graph
from registry_cases import check_derivatives

import graphdiff as gd
from graphdiff.graph.walk import toposort
from graphdiff.runtime.reference import reference, reference_values

LONG = os.environ.get("GRAPHDIFF_LONG", "") not in ("", "0")
TOTAL = 20_000 if LONG else 1_500
BATCH = TOTAL // 15
EXACT = ("merge", "algebra", "fold", "in_place", "fuse")     # every pass but stable_forms
REGRESSIONS = [                                       # (seed, wild, floats) of graphs that were wrong once
    (809, True, ("float64",)),                        # zmul lost the sign of a zero that the algebra pass kept
    (3418, False, ("float64",)),                      # two pads, with 0.0 and with -0.0, were merged
    (411, True, ("float64",)),                        # an empty operand without a place in the arena
]


def same(a, b):
    """Equal bits, NaN equal to NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind != "f":
        return False
    nan = np.isnan(a) & np.isnan(b)
    return np.where(nan, 0, a).tobytes() == np.where(nan, 0, b).tobytes()


def bits(seed, wild, floats):
    """All ways to run a graph give the same bits."""
    outputs, feeds = graph(seed, wild=wild, floats=floats)
    if wild and seed % 3 == 0:
        # Gradients make graphs no user would write: shared adjoints, selects, sums over broadcast axes.
        y = outputs[0]
        if y.dtype.kind == "f":
            outputs = [*outputs, *gd.grad(y, list(feeds), cotangent=gd.ones_like(y), unconnected="zero")]
    plain = gd.function(list(feeds), outputs, passes=(), threads=1)(*feeds.values())
    for options in ({"passes": EXACT, "threads": 1},
                    {"passes": ("fuse",), "threads": 1}, {"passes": ("in_place", "fuse"), "threads": 2},
                    {"passes": EXACT[:3], "threads": 1}, {"passes": ("in_place",), "threads": 2}):
        f = gd.function(list(feeds), outputs, **options)
        reads_what_was_written(f)
        for a, b in zip(plain, f(*feeds.values()), strict=True):
            assert same(a, b), f"seed {seed}, wild {wild}, {floats}, {options}: {a} and {b}"
            checked()
    return outputs, feeds, plain


def agrees(outputs, feeds, plain, seed):
    """The interpreter's value: the same bits where no rounded op came before, within 1e-10 (float64) where nothing jumps."""
    for y, got in zip(outputs, plain, strict=True):
        order = toposort([y])
        names = {n.op.name for n in order}
        rounded = names & ROUNDED
        if rounded and names & JUMPS:
            continue
        values = reference_values([y], feeds)
        want = values[y]
        floats = [v for n, v in values.items() if n.dtype.kind == "f"]
        # Nobody's promise: the sign of a NaN, and which of 0.0 and -0.0 is the larger.
        if "copysign" in names and any(np.isnan(v).any() for v in floats):
            continue
        if names & {"max", "min", "maximum", "minimum", "fmax", "fmin"} and any((np.signbit(v) & (v == 0)).any() for v in floats):
            continue
        if not rounded:
            assert same(got, want), f"seed {seed}: {got} instead of {want}"
        else:
            # Cancellation magnifies rounding: measured against the largest value on the way.
            if not all(np.isfinite(v).all() for v in floats):
                continue
            largest = max(1.0, *[float(np.abs(v).max(initial=0)) for v in floats])
            if largest > 1e6:
                continue
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * largest, err_msg=f"seed {seed}")
        checked()


@pytest.mark.parametrize("batch", range(10))
def test_bits_and_values(batch):
    """Odd constants (NaN, Inf, -0, subnormals) and empty axes included."""
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        outputs, feeds, plain = bits(seed, True, ("float64",) if seed % 2 else ("float64", "float32"))
        if seed % 2:
            agrees(outputs, feeds, plain, seed)


@pytest.mark.parametrize("batch", range(3))
def test_tame_graphs_agree_with_the_interpreter(batch):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        agrees(*bits(seed, False, ("float64",)), seed)


@pytest.mark.parametrize("batch", range(2))
def test_derivatives_of_random_graphs(batch):
    """Both modes against the complex step, where the graph is smooth at its point."""
    rough = {"abs", "sign", "floor", "rint", "maximum", "minimum", "fmax", "max", "min", "remainder", "floor_divide", "copysign", "sort", "relu", "prod",
             "cumprod", "hypot", "reciprocal", "divide", "sqrt", "log", "log1p"}
    ran = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        outputs, feeds = graph(seed, wild=False, nodes=6)
        y = outputs[0]
        names = {n.op.name for n in toposort([y])}
        if y.dtype.kind != "f" or names & rough or not y.size or y.op == "input":
            continue
        if not all(np.isfinite(v).all() and np.abs(v).max(initial=0) < 1e3 for v in reference(outputs, feeds)):
            continue
        used = {n for n in toposort([y]) if n in feeds}
        check_derivatives(y, {n: a for n, a in feeds.items() if n in used}, rtol=1e-9)
        ran += 1
    assert ran >= BATCH // 12
    checked(ran)


@pytest.mark.parametrize("seed, wild, floats", REGRESSIONS)
def test_graphs_that_were_wrong_once(seed, wild, floats):
    bits(seed, wild, floats)
