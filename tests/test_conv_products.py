"""Convolutions as products of matrices: which they are, that they are right whatever the shape, and what they may cost.

Values: a plain loop over every product, written here. Derivatives of both orders, by all three ways, stand in
test_ops_linalg_conv.py; here the gradients are compared with the same loop.
"""
import itertools

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.ops import conv_products

KERNELS = {"conv", "conv_input", "conv_weight"}


def terms(x_shape, w_shape, stride, padding, dilation, groups):
    """(position of y, position of x, tap) of everything that is multiplied, and the spatial sizes of y."""
    sizes = [(n + lo + hi - d * (k - 1) - 1) // s + 1
             for n, k, s, (lo, hi), d in zip(x_shape[2:], w_shape[2:], stride, padding, dilation, strict=True)]
    found = []
    for p in itertools.product(*map(range, sizes)):
        for t in itertools.product(*map(range, w_shape[2:])):
            i = tuple(a * s + b * d - lo for a, s, b, d, (lo, _) in zip(p, stride, t, dilation, padding, strict=True))
            if all(0 <= a < n for a, n in zip(i, x_shape[2:], strict=True)):
                found.append((p, i, t))
    return found, sizes


def by_loop(x, w, g, found, groups):
    """y, and the gradients to x and w for the cotangent g of y (its values do not matter for y)."""
    y, dx, dw = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    c, o = w.shape[1], len(w) // groups
    for k in range(groups):
        xs, ys = slice(k * c, (k + 1) * c), slice(k * o, (k + 1) * o)
        for p, i, t in found:
            weight = w[(ys, slice(None), *t)]
            y[(slice(None), ys, *p)] += x[(slice(None), xs, *i)] @ weight.T
            dx[(slice(None), xs, *i)] += g[(slice(None), ys, *p)] @ weight
            dw[(ys, slice(None), *t)] += g[(slice(None), ys, *p)].T @ x[(slice(None), xs, *i)]
    return y, dx, dw


def functions(x_shape, w_shape, dtype="float64", threads=1, **options):
    """f(x, w, g) -> [y, gradient to x, gradient to w], each of a function of its own."""
    x, w = gd.input("x", x_shape, dtype), gd.input("w", w_shape, dtype)
    y = gd.conv(x, w, **options)
    g = gd.input("g", y.shape, dtype)
    dx, dw = gd.grad(y, [x, w], cotangent=g)
    return [gd.function([x, w], y, threads=threads), gd.function([g, w], dx, threads=threads), gd.function([x, g], dw, threads=threads)], y.shape


def kernels(f):
    return KERNELS & {op for op, *_ in f.program.instrs}


def drawn(rng, most_axes=3):
    """A random convolution that has a result: shapes and options."""
    while True:
        n = int(rng.integers(1, most_axes + 1))
        groups = int(rng.integers(1, 3))
        x = rng.integers(1, 7, n)
        k, s, d = rng.integers(1, 4, n), rng.integers(1, 4, n), rng.integers(1, 4, n)
        pads = rng.integers(0, 4, (n, 2))
        if all(a + p.sum() >= (b - 1) * c + 1 for a, p, b, c in zip(x, pads, k, d, strict=True)):
            break
    images, c, o = (int(v) for v in rng.integers(1, 4, 3))
    options = {"stride": tuple(s.tolist()), "padding": tuple(tuple(p) for p in pads.tolist()), "dilation": tuple(d.tolist()), "groups": groups}
    return (images, c * groups, *x.tolist()), (o * groups, c, *k.tolist()), options


def compare(x_shape, w_shape, options, dtype, rng, tolerance):
    fs, y_shape = functions(x_shape, w_shape, dtype, **options)
    x, w, g = (rng.standard_normal(s).astype(dtype) for s in (x_shape, w_shape, y_shape))
    found, sizes = terms(x_shape, w_shape, **options)
    assert list(y_shape[2:]) == sizes
    want = by_loop(*(a.astype(float) for a in (x, w, g)), found, options["groups"])
    for f, args, value in zip(fs, ((x, w), (g, w), (x, g)), want, strict=True):
        got = f(*args)
        assert got.shape == value.shape and got.dtype == np.dtype(dtype)
        np.testing.assert_allclose(got.astype(float), value, rtol=tolerance, atol=tolerance * (1 + np.abs(value).max(initial=0)))
        checked()
    return fs, bool(found)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-13), ("float32", 1e-5), ("float16", 1e-2)])
def test_any_convolution_by_columns(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(conv_products, "_images", lambda kernel, s, itemsize, stored: s.n if s.taps else 0)
    rng = np.random.default_rng(5)
    for _ in range(150):
        fs, any_term = compare(*drawn(rng), dtype, rng, tolerance)
        assert not any_term or not any(kernels(f) for f in fs)


def test_columns_of_some_images_at_a_time(monkeypatch):
    """A part of the images after the other, where columns of all would be too large; the last part may be smaller."""
    monkeypatch.setattr(conv_products, "_images",
                        lambda kernel, s, itemsize, stored: 0 if not s.taps else s.n if kernel == "conv_weight" else -(-s.n // 2))
    rng = np.random.default_rng(8)
    for _ in range(60):
        fs, any_term = compare(*drawn(rng), "float64", rng, 1e-13)
        assert not any_term or not any(kernels(f) for f in fs)


def test_any_convolution_as_it_is_chosen():
    rng = np.random.default_rng(6)
    chosen = []
    for _ in range(150):
        fs, _ = compare(*drawn(rng), "float64", rng, 1e-13)
        chosen += [bool(kernels(f)) for f in fs]
    assert 0 < sum(chosen) < len(chosen)            # both ways are among them


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-13), ("float32", 1e-5)])
def test_signals_of_one_channel(dtype, tolerance, monkeypatch):
    """In a loop over shifted reads, whatever the length: else only long ones are."""
    monkeypatch.setattr(conv_products, "_LONG", 1)
    rng = np.random.default_rng(7)
    loops = 0
    for _ in range(150):
        x_shape, w_shape, options = drawn(rng, 1)
        before, after = (1,) * int(rng.integers(2)), (1,) * int(rng.integers(2))       # axes of one element beside it
        one = ((0, 0),)
        x_shape, w_shape = (1, 1, *before, *x_shape[2:], *after), (1, 1, *before, *w_shape[2:], *after)
        options = {"stride": (1,) * (len(x_shape) - 2), "padding": one * len(before) + options["padding"] + one * len(after),
                   "dilation": before + options["dilation"] + after, "groups": 1}
        fs, _ = compare(x_shape, w_shape, options, dtype, rng, tolerance)
        loops += sum(not {"matmul", *KERNELS} & {op for op, *_ in f.program.instrs} for f in fs[:2])
    assert loops > 150


FEW_POSITIONS = [((64, 8, 5, 5), (8, 8, 5, 5)), ((64, 16, 5, 5), (32, 16, 5, 5)), ((1, 256, 6, 6), (512, 256, 6, 6)),
                 ((1, 512, 4, 4), (512, 512, 3, 3)), ((16, 256, 4, 4), (256, 256, 3, 3)), ((8, 64, 4, 4), (64, 64, 3, 3)),
                 ((2, 2048, 2, 2), (512, 2048, 1, 1)), ((1, 512, 3), (512, 512, 3)), ((2, 16, 4, 4, 4), (16, 16, 3, 3, 3))]


@pytest.mark.parametrize("x, w", FEW_POSITIONS)
def test_few_positions_are_products(x, w):
    for dtype in ("float64", "float32"):
        for f in functions(x, w, dtype)[0]:
            assert not kernels(f)
            checked()


@pytest.mark.parametrize("x, w, options", [
    ((16, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}), ((32, 3, 32, 32), (64, 3, 3, 3), {"padding": 1}),
    ((16, 64, 56, 56), (64, 1, 3, 3), {"padding": 1, "groups": 64}), ((32, 64, 512), (64, 64, 5), {"padding": 2}),
    ((4, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3})])
def test_planes_keep_their_kernels(x, w, options):
    for dtype in ("float64", "float32"):
        for f in functions(x, w, dtype, **options)[0]:
            assert kernels(f)
            checked()


def test_a_window_that_is_the_image_is_one_product_without_a_copy():
    for f in functions((64, 16, 5, 5), (120, 16, 5, 5))[0]:
        assert [op for op, *_ in f.program.instrs] == ["matmul"] and f.plan.arena_nbytes == 0
        checked()


def test_columns_are_no_larger_than_what_is_there():
    rng = np.random.default_rng(8)
    for _ in range(40):
        c, o = (int(2 ** v) for v in rng.integers(0, 8, 2))
        n, side, k = (int(v) for v in rng.integers((1, 1, 1), (200, 16, 6)))
        if side < k:
            continue
        fs, y = functions((n, c, side, side), (o, c, k, k))
        nbytes = 8 * (n * c * side * side + o * c * k * k + int(np.prod(y)))
        for f in fs:
            assert f.plan.arena_nbytes <= 4 * max(nbytes, conv_products._LARGE_NBYTES)
            checked()


def test_a_broadcast_image_makes_no_columns_larger_than_itself():
    """Its sizes cost no memory, so they allow none."""
    x, w = gd.input("x", (1, 1, 1, 1)), gd.input("w", (2, 1, 64, 64))
    f = gd.function([x, w], gd.conv(gd.broadcast_to(x, (4096, 1, 64, 64)), w))
    assert f.plan.arena_nbytes <= conv_products._LARGE_NBYTES
    value = f(np.full(x.shape, 2.0), np.ones(w.shape))
    assert (value == 8192).all() and value.shape == (4096, 2, 1, 1)
    checked(2)


def test_taps_that_meet_nothing_but_padding():
    """They are left out: their gradients are zeros, and what they would multiply with zero may be anything."""
    x, w, g = np.ones((2, 3, 1, 1)), np.full((4, 3, 3, 3), np.inf), np.ones((2, 4, 1, 1))
    w[:, :, 1, 1] = 2
    y, dx, dw = (f(*args) for f, args in zip(functions(x.shape, w.shape, padding=1)[0], ((x, w), (g, w), (x, g)), strict=True))
    assert (y == 6).all() and (dx == 8).all() and (dw[:, :, 1, 1] == 2).all() and dw.sum() == 24
    checked(4)


@pytest.mark.parametrize("x, w, options", [*[(x, w, {}) for x, w in FEW_POSITIONS], ((8, 3, 96, 96), (64, 3, 16, 16), {"stride": 16}),
                                           ((1, 1, 100_000), (1, 1, 3), {}), ((16, 64, 7, 7), (64, 64, 1, 1), {})])
def test_the_same_bits_on_any_number_of_threads(x, w, options):
    rng = np.random.default_rng(9)
    for dtype in ("float64", "float32"):
        one, y_shape = functions(x, w, dtype, **options)
        three, _ = functions(x, w, dtype, threads=3, **options)
        a, b, g = (rng.standard_normal(s).astype(dtype) for s in (x, w, y_shape))
        for f, h, args in zip(one, three, ((a, b), (g, b), (a, g)), strict=True):
            assert f(*args).tobytes() == h(*args).tobytes()
            checked()


def test_named_sizes():
    x, w = gd.input("x", ("n", 4, "m", "m")), gd.input("w", (8, 4, 3, 3))
    y = gd.conv(x, w)
    f = gd.function([x, w], [y, *gd.grad(gd.sum(y * y), [x, w])])
    rng = np.random.default_rng(10)
    for images, side in ((64, 3), (1, 4), (3, 5), (2, 40)):
        a, b = rng.standard_normal((images, 4, side, side)), rng.standard_normal(w.shape)
        found, sizes = terms(a.shape, b.shape, (1, 1), ((0, 0),) * 2, (1, 1), 1)
        value = by_loop(a, b, np.zeros((images, 8, *sizes)), found, 1)[0]
        for got, want in zip(f(a, b), (value, *by_loop(a, b, 2 * value, found, 1)[1:]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-10)
            checked()
