"""Softmax and its kin along an axis behind which few elements or many follow: the bits of rows side by side, and the gradient's own loop."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

UNFUSED = ("merge", "algebra", "stable_forms", "fold", "in_place")
OPS = {"softmax": gd.softmax, "log_softmax": gd.log_softmax, "logsumexp": gd.logsumexp}

# (shape, axis): groups of 1 to 63 lines side by side, as few as one group, more than a tile has; lines of 2 elements to more than a block.
NARROW = [((97, 4, 2), 1), ((50, 3, 4), 1), ((1000, 2, 3), 1), ((31, 10, 5), 1), ((9, 17, 31), 1), ((9, 17, 32), 1), ((5, 6, 63), 1), ((5, 6, 64), 1),
          ((2, 4, 3), 1), ((3, 700, 2), 1), ((3, 1500, 7), 1), ((2, 4097, 2), 1), ((2, 600, 5), 1), ((7, 3, 4, 6), 2), ((7, 3, 4, 6), 1),
          ((40, 5, 1, 2), 1)]


def run(op, x, axis, threads=1):
    n = gd.input("x", x.shape, x.dtype)
    return gd.function([n], OPS[op](n, axis=axis), threads=threads)(x)


def special(x, axis):
    """Lines of -inf alone, with a NaN, with +inf, with a large spread."""
    x = np.moveaxis(x, axis, -1).copy()
    lines = x.reshape(-1, x.shape[-1])
    lines[0] = -np.inf
    lines[1, 0] = np.nan
    lines[2, -1] = np.inf
    lines[3, 0] = -np.inf
    lines[4 % len(lines)] *= 300
    lines[-1] *= 1e4
    return np.ascontiguousarray(np.moveaxis(x, -1, axis))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", list(OPS))
def test_lines_have_the_same_bits_wherever_they_lie(op, dtype):
    rng = np.random.default_rng(1)
    for shape, axis in NARROW:
        x = special(rng.standard_normal(shape).astype(dtype), axis)
        rows = run(op, np.ascontiguousarray(np.moveaxis(x, axis, -1)), -1)
        want = rows if op == "logsumexp" else np.moveaxis(rows, -1, axis)
        for threads in (1, 2):
            np.testing.assert_array_equal(run(op, x, axis, threads), want, err_msg=str(shape))
            checked()
        odd = np.empty(x.size + 3, dtype)[3:].reshape(shape)
        odd[...] = x
        np.testing.assert_array_equal(run(op, odd, axis), want, err_msg=str(shape))
        checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_groups_that_do_not_follow_each_other(dtype):
    """Parts of larger arrays, groups in another order, and results that lie unlike."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 9, 6, 2)).astype(dtype)
    n = gd.input("x", x.shape, dtype)
    views = [lambda a: a[::2], lambda a: a[::-1, :, :, :], lambda a: a[:, 2:7], lambda a: a[..., :1], lambda a: a[:, :, ::2], lambda a: a[:, :, 1:4]]
    for view in views:
        for op, axis in (("softmax", 2), ("log_softmax", 2), ("logsumexp", 2), ("softmax", 1), ("logsumexp", 1), ("softmax", 0)):
            got = gd.function([n], OPS[op](view(n), axis=axis), threads=1)(x)
            rows = run(op, np.ascontiguousarray(np.moveaxis(view(x), axis, -1)), -1)
            np.testing.assert_array_equal(got, rows if op == "logsumexp" else np.moveaxis(rows, -1, axis))
            checked()
    for op in ("softmax", "logsumexp"):
        axes = (1, 0, 2, 3) if op == "softmax" else (1, 0, 2)
        got = gd.function([n], gd.transpose(OPS[op](n, axis=2), axes), threads=1)(x)
        rows = run(op, np.ascontiguousarray(np.moveaxis(x, 2, -1)), -1)
        np.testing.assert_array_equal(got, np.transpose(rows if op == "logsumexp" else np.moveaxis(rows, -1, 2), axes))
        checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", [((130, 4, 2), 1), ((40, 10, 5), 1), ((128, 300), 0), ((70, 127), 0), ((600, 1024), 0), ((70, 8000), 0),
                                         ((3, 70, 33), 1)])
def test_gradients_of_columns(shape, axis, dtype):
    """Against float64 by hand, and unfused the same bits; where a cotangent is 0, what is not finite does not matter."""
    rng = np.random.default_rng(3)
    x, g = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    n, c = gd.input("x", shape, dtype), gd.input("g", shape, dtype)
    y = gd.softmax(n, axis=axis)
    outputs = [y, gd.grad(y, n, cotangent=c)]
    e = np.exp(x.astype("float64") - x.max(axis, keepdims=True))
    s = e / e.sum(axis, keepdims=True)
    got = gd.function([n, c], outputs, threads=1)(x, g)
    np.testing.assert_allclose(got[1], s * (g - (g * s).sum(axis, keepdims=True)), rtol=1e-4, atol=1e-6 if dtype == "float32" else 1e-14)
    h = g.copy()
    h.reshape(-1)[::7] = 0
    h.reshape(-1)[5] = np.inf
    z = x.copy()
    z.reshape(-1)[::14] = np.nan
    for a, b in ((x, g), (x, h), (z, h)):
        want = gd.function([n, c], outputs, passes=UNFUSED, threads=1)(a, b)
        for threads in (1, 2):
            for p, q in zip(gd.function([n, c], outputs, threads=threads)(a, b), want, strict=True):
                np.testing.assert_array_equal(p, q)
                checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 15, 64, 127, 128, 129, 1000, 5000])
def test_difference_of_products_is_one_loop(n, dtype):
    """x y - z w with the zeros of zmul_either, rounded after every operation, NaN in a tail or in the middle."""
    rng = np.random.default_rng(n)
    x, y, z, w = inputs = [gd.input(k, (n,), dtype) for k in "xyzw"]
    arrays = [rng.standard_normal(n).astype(dtype) for _ in inputs]
    product = gd.ops.binary.zmul_either
    f = gd.function(inputs, product(x, y) - product(z, w), threads=1)
    assert [op for op, *_ in f.program.instrs] == (["fused"] if n > 1 else ["zmul_either", "zmul_either", "subtract"])
    for case in range(4):
        a, b, c, d = (v.copy() for v in arrays)
        if case == 1:
            a[n // 2], b[n // 2] = 0, np.inf
        if case == 2:
            a[-1], b[-1], c[0] = 0, np.nan, np.inf
            d[n // 2] = 0
        if case == 3:
            a[::3] = 0
            b[::6] = -np.inf
            d[n // 3] = np.nan
        with np.errstate(invalid="ignore"):
            p, q = a * b, c * d
            want = np.where(np.isnan(p) & ((a == 0) | (b == 0)), 0, p) - np.where(np.isnan(q) & ((c == 0) | (d == 0)), 0, q)
        np.testing.assert_array_equal(f(a, b, c, d), want)
        checked()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 1, 4), 1), ((1,), 0), ((1, 1), None), ((), None), ((0, 1), 1), ((2, 1, 1), (1, 2))])
def test_one_element_is_its_own_logsumexp(shape, axis, dtype):
    n = gd.input("x", shape, dtype)
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    if x.size > 2:
        x.flat[0], x.flat[1] = np.nan, -np.inf
    for keepdims in (False, True):
        y = gd.logsumexp(n, axis=axis, keepdims=keepdims)
        f = gd.function([n], [y, gd.grad(gd.sum(y), n)])
        assert "logsumexp" not in [op for op, *_ in f.program.instrs]
        got, _ = f(x)
        assert got.shape == y.shape and got.dtype == dtype
        np.testing.assert_array_equal(got.ravel(), x.ravel())
        np.testing.assert_array_equal(f(np.ones(shape, dtype))[1], np.ones(shape))
        checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_of_one_element_is_1(dtype):
    """But for NaN and infinities, as in longer lines."""
    x = np.array([0.0, -3.0, 1e30, np.nan, np.inf, -np.inf], dtype)
    for shape, axis in (((6, 1), 1), ((1, 6), 0), ((2, 1, 3), 1)):
        n = gd.input("x", shape, dtype)
        soft, log, grad = gd.function([n], [gd.softmax(n, axis=axis), gd.log_softmax(n, axis=axis), gd.grad(gd.sum(gd.softmax(n, axis=axis)), n)])(
            x.reshape(shape))
        np.testing.assert_array_equal(soft.ravel(), [1, 1, 1, np.nan, np.nan, 0])
        np.testing.assert_array_equal(log.ravel()[:5], [0, 0, 0, np.nan, np.nan])
        np.testing.assert_array_equal(grad.ravel()[:3], 0)
        checked(3)
