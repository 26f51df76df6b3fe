"""Jacobians of what is put together: a sweep for every equation goes through that equation alone."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import GradientError
from graphdiff.graph.walk import toposort

PUT = {
    "stack": lambda x: gd.stack([x[i] * (1.0 - x[(i + 1) % 5]) - 0.1 * x[i - 1] for i in range(5)]),
    "stack along the last axis": lambda x: gd.stack([gd.sin(x[:3]), x[2:] * x[0]], axis=1),
    "concatenate": lambda x: gd.concatenate([x[:2] ** 3, gd.sum(x).reshape(1), gd.exp(x[1:])]),
    "an empty part": lambda x: gd.concatenate([x[:0], x[3:], x[2:2], x[:1] * x[4:]]),
    "parts of parts": lambda x: gd.concatenate([gd.stack([gd.stack([x[0], x[1]]), x[2:4] * x[4]]), gd.reshape(gd.cumsum(x)[:4], (2, 2))], axis=1),
    "reshape": lambda x: gd.reshape(gd.stack([x * x[0], gd.cos(x)]), (5, 2)),
    "x itself": lambda x: gd.concatenate([x, x[::-1], 2.0 * x]),
    "no part has x": lambda x: gd.stack([gd.sum(x), gd.zeros((), x.dtype), gd.constant(3.0, dtype=x.dtype)]),
    "no parts": lambda x: x * gd.sum(x),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("put", PUT)
def test_jacobians_by_both_modes_and_by_differences(put, dtype):
    x = gd.input("x", (5,), dtype)
    y = PUT[put](x)
    a = np.random.default_rng(0).uniform(0.5, 1.5, 5)
    by_reverse, by_forward = gd.function([x], [gd.jacobian(y, x, mode="reverse"), gd.jacobian(y, x, mode="forward")])(a.astype(dtype))
    assert by_reverse.shape == (*y.shape, 5) and by_reverse.dtype == dtype
    z = gd.input("z", (5,))
    f, h = gd.function([z], PUT[put](z)), 1e-6
    want = np.stack([(f(a + h * e) - f(a - h * e)) / (2 * h) for e in np.eye(5)], axis=-1)
    for got in (by_reverse, by_forward):
        np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "float32" else 1e-7, atol=1e-5 if dtype == "float32" else 1e-7)
        checked(got.size)


def test_one_equation_is_swept_for_one_row():
    """The graph of the Jacobian grows as the equations do, not as their square."""
    def nodes(n):
        x = gd.input("x", (n,))
        j = gd.jacobian(gd.stack([x[i] * (1.0 - x[(i + 1) % n]) for i in range(n)]), x)
        return len(toposort([j]))
    assert nodes(40) < 2.2 * nodes(20)
    x = gd.input("x", (30,))
    a = np.linspace(0.0, 2.0, 30)
    j = gd.function([x], gd.jacobian(gd.stack([x[i] * (1.0 - x[(i + 1) % 30]) for i in range(30)]), x))(a)
    want, i = np.zeros((30, 30)), np.arange(30)
    want[i, i] += 1 - a[(i + 1) % 30]
    want[i, (i + 1) % 30] -= a
    np.testing.assert_array_equal(j, want)
    checked(j.size)


def test_a_part_that_is_what_one_differentiates_by():
    x = gd.input("x", (3,))
    s = gd.sin(x)
    y = gd.concatenate([s, s * s, gd.stack([gd.sum(s)])])
    a = np.array([0.3, -0.5, 2.0])
    for target, want in ((s, np.concatenate([np.eye(3), np.diag(2 * np.sin(a)), np.ones((1, 3))])), (y, np.eye(7))):
        got = gd.evaluate(gd.jacobian(y, target, mode="reverse"), {x: a})
        np.testing.assert_allclose(got, want, rtol=1e-15)
        checked(got.size)
    h = gd.evaluate(gd.hessian(gd.sum(y * y), x), {x: a})
    t = np.sin(a)
    u = 2 * t * (1 + 2 * t * t) + 2 * t.sum()
    outer = 2 * np.ones((3, 3)) + np.diag(2 + 12 * t * t)
    np.testing.assert_allclose(h, np.cos(a)[:, None] * outer * np.cos(a) - np.diag(u * t), rtol=1e-12)
    checked(h.size)


def test_named_sizes_and_integers():
    x = gd.input("x", ("n",))
    y = gd.stack([gd.sum(x * x), gd.max(x), gd.reshape(x, (3,))[1]])
    j = gd.jacobian(y, x)
    np.testing.assert_array_equal(gd.evaluate(j, {x: np.array([1.0, 3.0, 2.0])}), [[2, 6, 4], [0, 1, 0], [0, 1, 0]])
    checked(9)
    i = gd.input("i", (4,), "int64")
    with pytest.raises(GradientError, match="concatenate"):
        gd.jacobian(gd.concatenate([i, i]), gd.input("z", (2,)), mode="reverse")
