"""Products with symmetric matrices that are each other's transposes: one of them is computed, and every bit stays."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def products(f):
    """Products of the program; one of which half is copied, as x.T @ x is, is one."""
    return sum(op == "matmul" for op, *_ in f.program.instrs)


def same_without(inputs, outputs, values, saved):
    """The bits are those without passes, and so many products fewer are computed."""
    f, plain = gd.function(inputs, outputs, threads=1), gd.function(inputs, outputs, threads=1, passes=("merge",))
    for got, want in zip(f(*values), plain(*values), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
        checked()
    assert products(plain) - products(f) == saved


def drawn(shape, dtype, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(17, 17), (40, 33), (300, 40), (95, 64), (64, 130), (4200, 18), (18, 1100)])
def test_the_gradient_of_a_function_of_all_inner_products_needs_one_product(shape, dtype):
    x, c = gd.input("x", shape, dtype), gd.input("c", (), dtype)
    for s in (x.T @ x, x @ x.T):
        for y in (gd.sum(s ** 2), gd.sum(gd.tanh(c * s / shape[0]) + 1), gd.mean(gd.where(s > 0.5, s * s, -s)), gd.sum(gd.abs(s) * gd.exp(-s * s))):
            same_without([x, c], [*gd.grad(y, [x])], [drawn(shape, dtype), np.array(0.3, dtype)], 1)


@pytest.mark.parametrize("shape", [(9, 40), (40, 9), (16, 50), (2, 9000), (1, 30), (0, 40), (40, 0)])
def test_of_few_rows_both_products_stay(shape):
    x = gd.input("x", shape)
    for s in (x.T @ x, x @ x.T):
        f = gd.function([x], gd.grad(gd.sum(s ** 2), x), threads=1)
        a = drawn(shape, "float64")
        np.testing.assert_allclose(f(a), 4 * a @ (a.T @ a), rtol=1e-11, atol=1e-11 * shape[0] * shape[1] * 10)
        assert a.size == 0 or sum(op == "matmul" for op, *_ in f.program.instrs) >= 2
        checked(2)


def test_which_of_the_two_comes_first_and_what_else_reads_them():
    x = gd.input("x", (50, 30))
    a = drawn((50, 30), "float64")
    s = gd.exp(-(x.T @ x))
    for outputs in ([(s @ x.T).T, x @ s], [x @ s, (s @ x.T).T], [(s @ x.T).T + x @ s, (s @ x.T).T * 2], [gd.exp((s @ x.T).T), gd.sum(x @ s)]):
        same_without([x], outputs, [a], 1)
    same_without([x], [(s @ x.T).T, x @ s, s @ x.T], [a], 0)               # the one that is transposed is wanted too
    t = gd.exp(-(x @ x.T))
    same_without([x], [(x.T @ t).T, t @ x, (t @ t).T], [a], 1)


def test_what_is_not_symmetric_or_not_the_same_is_left_alone():
    x, z, g = gd.input("x", (50, 30)), gd.input("z", (50, 30)), gd.input("g", (30, 30))
    values = [drawn((50, 30), "float64"), drawn((50, 30), "float64", 1), drawn((30, 30), "float64", 2)]
    s = x.T @ x
    for m in (s * g, gd.triu(s), s + gd.arange(30), s[:, ::-1], x.T @ z, s @ (z.T @ z), gd.where(g > 0, s, -s), gd.cumsum(s, axis=0)):
        same_without([x, z, g], [(m @ x.T).T + x @ m], values, 0)
    same_without([x, z, g], [(s @ z.T).T + x @ s], values, 0)
    same_without([x, z, g], [(s @ z.T).T + z @ s], values, 1)
    same_without([x, z, g], gd.grad(s, [x], cotangent=g), values, 0)


def test_gradients_through_inner_products_are_right():
    x, w = gd.input("x", (20, 18)), gd.input("w", (20, 18))
    y = gd.sum(gd.log(1 + (x.T @ x) ** 2)) + gd.sum(gd.sin((x * w) @ (x * w).T))
    gd.check_grads(y, [x, w], {x: 0.3 * drawn((20, 18), "float64"), w: drawn((20, 18), "float64", 1)})
    checked()
