"""Sums of products, in gradients, as products of sums: as right as the gradient without passes, and of one row in place of all."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

RTOL = {"float32": 2e-5, "float64": 1e-12}


def numbers(f):
    """How many numbers the program's matrix products make."""
    return sum(int(np.prod(outs[0].shape)) for op, outs, *_ in f.program.instrs if op == "matmul")


def drawn(shape, dtype, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def compared(inputs, outputs, saved, *, dtype="float64"):
    """Close to the program without passes, on which products make `saved` numbers more; and the same bits on two threads."""
    f, plain = gd.function(inputs, outputs, threads=1), gd.function(inputs, outputs, threads=1, passes=("merge",))
    values = [drawn(x.shape, dtype, k) for k, x in enumerate(inputs)]
    results = f(*values)
    for got, want, again in zip(results, plain(*values), gd.function(inputs, outputs, threads=2)(*values), strict=True):
        assert got.dtype == want.dtype == np.dtype(dtype) and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=RTOL[dtype], atol=RTOL[dtype] * max(1, np.abs(want).max()))
        assert got.tobytes() == again.tobytes()
        checked(2)
    assert numbers(plain) - numbers(f) == saved


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n, d, k", [(30, 4, 5), (300, 17, 3), (2, 1, 40), (1000, 33, 64)])
def test_the_gradient_of_an_offset_before_a_product_takes_one_row(n, d, k, dtype):
    x, b, w = gd.input("x", (n, d), dtype), gd.input("b", (d,), dtype), gd.input("w", (d, k), dtype)
    for z in ((x - b) @ w, (x + b) @ w, x @ w * 2 + (b - x) @ w):
        y = gd.sum(gd.square(z))
        compared([x, b, w], [y, gd.grad(y, b)], (n - 1) * d, dtype=dtype)


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


def test_what_something_else_reads_or_is_not_linear_stays():
    x, b, w = gd.input("x", (30, 4)), gd.input("b", (4,)), gd.input("w", (4, 5))
    y = gd.sum(gd.square((x - b) @ w))
    compared([x, b, w], [*gd.grad(y, [x, b, w])], 0)                        # the gradient to x is the product itself
    z = x - b
    y = gd.sum(gd.square(z @ w)) + gd.sum(z * x * z)
    compared([x, b, w], [gd.grad(y, b)], 0)                                 # a term that is not
    s = gd.sum(x @ w, axis=0)
    compared([x, w], [s], 0)                                                # no gradient
    for dtype in ("float16", "float32"):                                    # of float16, the sum would be rounded, and may be too large
        h, c, v = gd.input("h", (30, 4), dtype), gd.input("c", (4,), dtype), gd.input("v", (4, 5), dtype)
        f = gd.function([h, c, v], gd.grad(gd.sum(gd.square((h - c) @ v)), c), threads=1)
        assert numbers(f) == 30 * 5 + (30 * 4 if dtype == "float16" else 4)
        checked()


def test_a_cotangent_of_zero_meets_no_infinity():
    """g s with s infinite and g all zeros is zero, as without passes."""
    x, b, w, s = gd.input("x", (3, 2)), gd.input("b", (2,)), gd.input("w", (2, 2)), gd.input("s", (2,))
    c = x - b
    y = gd.sum(gd.where(x > 0, c @ w + c * gd.exp(s), 0.0))
    values = [np.full((3, 2), -1.0), np.zeros(2), np.ones((2, 2)), np.full(2, 1000.0)]
    for passes in (None, ("merge",)):
        np.testing.assert_array_equal(gd.function([x, b, w, s], gd.grad(y, b), passes=passes)(*values), np.zeros(2))
        checked()
