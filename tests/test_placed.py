"""Gradients of arrays that are read part by part: added where the parts are, so that they cost what the parts do."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def gradients(make, shape, dtype="float64"):
    """With all passes and without, which are the same but for the sign of zeros."""
    x = gd.input("x", shape, dtype)
    y = make(x)
    a = np.random.default_rng(0).uniform(-2, 2, shape).astype(dtype)
    f = gd.function([x], [y, gd.grad(y, x)], threads=1)
    got, want = f(a), gd.function([x], [y, gd.grad(y, x)], passes=("merge",), threads=1)(a)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-6 if dtype == "float32" else 1e-14)
        checked(g.size)
    return f


def recurrence(x):
    h = gd.zeros(x.shape[1:], x.dtype)
    for i in range(x.shape[0]):
        h = gd.tanh(0.5 * h + x[i])
    return gd.sum(h * h)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("make, shape", [
    (recurrence, (40, 8)),
    (lambda x: sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(x.shape[0] - 1)), (50,)),
    (lambda x: gd.sum(gd.sin(x[:, :30]) * x[:, 30:60] + gd.exp(-x[:, 60:] ** 2)), (9, 90)),
    (lambda x: gd.sum(x[2] * gd.sin(x[1]) * gd.exp(x[2, ::-1])), (7, 33)),               # parts that overlap
    (lambda x: gd.sum(x[::7]) * gd.sum(x[3] ** 2) + gd.sum(x * x) * x[0, 0], (20, 17)),  # a whole term beside
    (lambda x: gd.sum(x[0] * x[1]) + gd.sum(gd.stop_gradient(x[2]) * x[3]), (5, 40)),
])
def test_parts_are_added_where_they_are(make, shape, dtype):
    f = gradients(make, shape, dtype)
    assert "out1" in str(f.program)


def test_the_gradient_of_a_loop_over_rows_is_written_row_by_row():
    """No array of the size of the whole for every row: instructions that touch it are few."""
    n, width = 60, 16
    f = gradients(recurrence, (n, width))
    whole = [i for i in f.program.instrs if any(v.shape and np.prod(v.shape) == n * width for v in i[1])]
    assert len(whole) < 6, f.program
    g = gradients(lambda x: gd.sum(recurrence(x) * x[3] + x[3]), (n, width))
    assert g.plan.arena_nbytes < 12 * n * width * 8


def test_second_derivatives_and_zeros():
    x = gd.input("x", (20, 8))
    y = recurrence(x)
    g = gd.grad(y, x)
    h = gd.grad(gd.sum(g * np.arange(160.0).reshape(20, 8)), x)
    a = np.random.default_rng(1).uniform(-1, 1, (20, 8))
    np.testing.assert_allclose(*[gd.function([x], h, passes=p)(a) for p in (None, ())], rtol=1e-12, atol=1e-15)
    checked(h.size)
    z = gd.grad(gd.sum(x[1]) + gd.sum(x[3] * 0.0), x)
    assert gd.evaluate(z, {x: a}).sum() == 8


def test_parts_that_begin_together_need_not_end_together():
    x = gd.input("x", (6, 40))
    for make in (lambda x: gd.sum(gd.sin(x[:5]) * x[0]) + gd.sum(gd.exp(x[:4])), lambda x: gd.sum(x[:, :30] ** 2) * gd.sum(x[:, :20] ** 3),
                 lambda x: gd.sum(x[1:] - x[:-1] * x[1:]) + gd.sum(gd.cos(x[1:]))):
        gradients(make, x.shape)
