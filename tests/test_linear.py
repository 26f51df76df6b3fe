"""Sums of products, in gradients, as products of sums: as right as the gradient without passes, and of one row in place of all."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def numbers(f):
    """How many numbers the program's matrix products make."""
    return sum(int(np.prod(outs[0].shape)) for op, outs, *_ in f.program.instrs if op == "matmul")


def drawn(shape, dtype, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def compared(inputs, outputs, saved):
    """Close to the program without passes, on which products make `saved` numbers more; and the same bits on two threads."""
    f, plain = gd.function(inputs, outputs, threads=1), gd.function(inputs, outputs, threads=1, passes=("merge",))
    values = [drawn(x.shape, "float64", k) for k, x in enumerate(inputs)]
    results = f(*values)
    for got, want, again in zip(results, plain(*values), gd.function(inputs, outputs, threads=2)(*values), strict=True):
        assert got.dtype == want.dtype == np.float64 and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * max(1, np.abs(want).max()))
        assert got.tobytes() == again.tobytes()
        checked(2)
    assert numbers(plain) - numbers(f) == saved


@pytest.mark.parametrize("n, d, k", [(30, 4, 5), (300, 17, 3), (2, 1, 40), (1000, 33, 64)])
def test_the_gradient_of_an_offset_before_a_product_takes_one_row(n, d, k):
    x, b, w = gd.input("x", (n, d)), gd.input("b", (d,)), gd.input("w", (d, k))
    for z in ((x - b) @ w, (x + b) @ w, x @ w * 2 + (b - x) @ w):
        y = gd.sum(gd.square(z))
        compared([x, b, w], [y, gd.grad(y, b)], (n - 1) * d)


def test_terms_of_which_each_is_linear_in_what_is_summed():
    """The gradient of the means of a mixture, with covariances as triangular factors: a product, a scale and both signs."""
    x, m, q, lower = gd.input("x", (200, 6)), gd.input("m", (7, 6)), gd.input("q", (7, 6)), gd.input("l", (7, 6, 6))
    c = x - m[:, None, :]
    z = c * gd.exp(q)[:, None, :] + c @ gd.swapaxes(lower, 1, 2)
    y = gd.sum(gd.logsumexp(-0.5 * gd.sum(z * z, axis=2), axis=0))
    compared([x, m, q, lower], [y, *gd.grad(y, [m, q, lower])], 7 * 199 * 6)
    z = c * 3.0 - c @ lower
    y = gd.sum(gd.square(z))
    compared([x, m, lower], [gd.grad(y, m)], 7 * 199 * 6)


def test_sums_of_columns_and_of_batches():
    a, w, b = gd.input("a", (9, 5, 6)), gd.input("w", (6, 4)), gd.input("b", (6,))
    y = gd.sum(gd.tanh((a + b) @ w))
    compared([a, w, b], [gd.grad(y, b)], 9 * 5 * 6 - 6)                     # rows and batch at once
    d, x = gd.input("d", (6, 1)), gd.input("x", (6, 30))
    y = gd.sum(gd.sin(w.T @ (x - d)))
    compared([w, d, x], [gd.grad(y, d)], 6 * 29)                            # one column
    v = gd.input("v", (9, 6, 4))
    e = gd.input("e", (5, 6))
    y = gd.sum(gd.tanh((a * 0 + e) @ v))
    compared([a, v, e], [gd.grad(y, e)], 0)                                 # another matrix for every one that is summed
    y = gd.sum(gd.tanh((a * 0 + e) @ w))
    compared([a, w, e], [gd.grad(y, e)], 9 * 5 * 6 - 5 * 6)                 # the same one
    y = gd.sum(gd.tanh((a * 0 + b) @ v))
    compared([a, v, b], [gd.grad(y, b)], 0)                                 # nor for rows and batch at once


def test_other_terms_are_summed_by_themselves():
    x, b, w = gd.input("x", (30, 4)), gd.input("b", (4,)), gd.input("w", (4, 5))
    z = x - b
    for y in (gd.sum(gd.square(z @ w)) + gd.sum(z * x * z), gd.sum(gd.square(z @ w)) + gd.sum(gd.tanh(z)) - gd.sum(z * b)):
        compared([x, b, w], [y, gd.grad(y, b)], 29 * 4)
    v = gd.input("v", (4, 4))
    y = gd.sum(gd.square(z @ w)) + gd.sum(gd.sin(z @ v))
    compared([x, b, w, v], [gd.grad(y, b)], 2 * 29 * 4)
    compared([x, b, w, v], [gd.grad(gd.sum(gd.square(gd.grad(y, b))), b)], 4 * 29 * 4)


def test_what_something_else_reads_stays():
    x, b, w = gd.input("x", (30, 4)), gd.input("b", (4,)), gd.input("w", (4, 5))
    y = gd.sum(gd.square((x - b) @ w))
    compared([x, b, w], [*gd.grad(y, [x, b, w])], 0)                        # the gradient to x is the product itself
    compared([x, w], [gd.sum(x @ w, axis=0)], 0)                            # no gradient
    for dtype in ("float16", "float32"):                                    # whose sum may be too large
        h, c, v = gd.input("h", (30, 4), dtype), gd.input("c", (4,), dtype), gd.input("v", (4, 5), dtype)
        f = gd.function([h, c, v], gd.grad(gd.sum(gd.square((h - c) @ v)), c), threads=1)
        assert numbers(f) == 30 * 5 + 30 * 4
        checked()


def test_infinite_slopes():
    """g s with s infinite is zero where g is, and NaN where it cancels out, as without passes."""
    x, b, w, s, g = gd.input("x", (2, 2)), gd.input("b", (2,)), gd.input("w", (2, 2)), gd.input("s", (2,)), gd.input("g", (2, 1))
    c = x - b
    for y in (gd.sum(gd.where(x > 0, c @ w + c * gd.exp(s), 0.0)), gd.sum(g * (c @ w)) + gd.sum(g * (c / s))):
        for first in (-1.0, 1.0):
            values = [np.full((2, 2), first), np.zeros(2), np.ones((2, 2)), np.array([1000.0, 0.0]), np.array([[1.0], [-1.0]])]
            got, want = [gd.function([x, b, w, s, g], gd.grad(y, b), passes=p)(*values) for p in (None, ("merge",))]
            np.testing.assert_array_equal(got, want)
            checked()
