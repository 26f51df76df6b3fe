"""Normalisations of rows that are long or in pieces, one row at a time (norm_row_t.inc): the bits of the operations one by one."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.runtime.native import isa, lib

UNFUSED = ("merge", "algebra", "stable_forms", "fold", "in_place")


def draw(rng, inputs):
    return [rng.standard_normal(x.shape).astype(x.dtype) for x in inputs]


def same_bits(inputs, outputs, arrays, dtype, *, norms=1):
    """Unfused, on one thread and on two the same bits; as many instructions as said run as normalisations."""
    want = gd.function(inputs, outputs, passes=UNFUSED, threads=1)(*arrays)
    for threads in (1, 2):
        f = gd.function(inputs, outputs, threads=threads)
        for a, b in zip(f(*arrays), want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
            checked()
        own = isa() == "avx512" or (isa() == "avx2" and dtype == "float32")
        assert lib.gd_program_norms(f._static.handle.c) == norms * own
    return want


# Pieces that blocks of a sum (4096 elements) end within, at the end of, and that have several; one piece; rows of a block and a bit; short rows
# in pieces; pieces that are brought together, as they are no multiple of 16.
SHAPES = [(3, 4, 16, 16), (32, 3, 7, 7), (6, 3, 14, 14), (40, 2, 14, 15), (900, 2, 5, 1), (3, 2, 1, 1001), (6, 3, 28, 28), (3, 2, 64, 64),
          (2, 5, 128, 72), (1, 4, 99, 101), (300, 2, 4, 4), (5, 1, 30, 32), (17, 3, 16, 16), (1, 2, 1, 4097)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_of_long_rows(shape, dtype):
    rng = np.random.default_rng(sum(shape))
    x, w, b, g = inputs = [gd.input(n, s, dtype) for n, s in (("x", shape), ("w", shape[1:2]), ("b", shape[1:2]), ("g", shape))]
    arrays = draw(rng, inputs)
    y = gd.batch_norm(x, w, b)
    gradients = gd.grad(y, [x, w, b], cotangent=g)
    one = shape[1] > 1                                     # sums of everything are no rows
    forward = same_bits(inputs[:3], [y], arrays[:3], dtype, norms=one)
    x64, axes = arrays[0].astype("float64"), (0, 2, 3)
    hat = (x64 - x64.mean(axes, keepdims=True)) / np.sqrt(x64.var(axes, keepdims=True) + 1e-5)
    want = hat * arrays[1].reshape(1, -1, 1, 1) + arrays[2].reshape(1, -1, 1, 1)
    np.testing.assert_allclose(forward[0], want, rtol=1e-5, atol=1e-5 if dtype == "float32" else 1e-13)
    same_bits(inputs, [y, *gradients], arrays, dtype, norms=one)
    same_bits(inputs, gradients[:2], arrays, dtype, norms=one)
    same_bits(inputs, [gradients[2], gradients[0], y, gradients[1]], arrays, dtype, norms=one)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms_of_long_norms(dtype):
    """By hand: squares alone, a mean without its correction, divided by the root; with scale and shift or without."""
    rng = np.random.default_rng(3)
    x = gd.input("x", (9, 4, 32, 40), dtype)
    s, t = gd.input("s", (1, 4, 1, 1), dtype), gd.input("t", (1, 4, 1, 1), dtype)
    axes = (0, 2, 3)
    arrays = draw(rng, [x, s, t])
    arrays[0][0, 0, 0, :3] = 0.0, -0.0, np.nan
    arrays[1][:] = np.abs(arrays[1])
    m = gd.mean(x, axis=axes, keepdims=True)
    for d in (x, x - m):
        v = gd.mean(gd.square(d), axis=axes, keepdims=True)
        for y in (d / gd.sqrt(v + 1e-5), d * gd.reciprocal(gd.sqrt(v + 1e-5))):
            for inputs, z in (([x], y), ([x, s], y * s), ([x, t], t + y), ([x, s, t], s * y + t)):
                same_bits(inputs, [z], [arrays["xst".index(i.name)] for i in inputs], dtype)
    same_bits([x], [gd.batch_norm(x)], arrays[:1], dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_meets_infinity_in_long_rows(dtype):
    rng = np.random.default_rng(4)
    shape = (5, 6, 24, 46)
    x, w, b, g = inputs = [gd.input(n, s, dtype) for n, s in (("x", shape), ("w", shape[1:2]), ("b", shape[1:2]), ("g", shape))]
    arrays = draw(rng, inputs)
    arrays[3][:, :, ::3] = 0
    arrays[3][:, 4] = 0
    arrays[1][:2] = np.inf
    arrays[0][2, 3, 5, 7], arrays[0][0, 4, 0, 0], arrays[0][4, 5, 23, 45] = np.inf, np.inf, np.nan
    y = gd.batch_norm(x, w, b)
    same_bits(inputs, [y, *gd.grad(y, [x, w, b], cotangent=g)], arrays, dtype)
    same_bits(inputs, gd.grad(y, [x, w, b], cotangent=g), arrays, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, columns", [(40, 32), (40, 33), (7, 19)])
def test_rows_of_parts_of_arrays(rows, columns, dtype):
    """Pieces of x, of g and of the results lie unlike; channels in reverse order; arrays at odd addresses."""
    rng = np.random.default_rng(5)
    wide, high = gd.input("x", (7, 5, rows, columns), dtype), gd.input("g", (9, 4, rows, columns), dtype)
    w, b = gd.input("w", (4,), dtype), gd.input("b", (4,), dtype)
    inputs = [wide, high, w, b]
    arrays = draw(rng, inputs)
    x, g = wide[::2, 1:], high[1::2, ::-1]
    y = gd.batch_norm(x, w, b)
    outputs = [y, *gd.grad(y, [x, w, b], cotangent=g)]
    want = same_bits(inputs, outputs, arrays, dtype)
    f = gd.function(inputs, outputs, threads=1)
    for odd in (1, 3, 16):                                 # elements
        spread = [np.empty(a.size + odd, dtype)[odd:].reshape(a.shape) for a in arrays]
        for to, value in zip(spread, arrays, strict=True):
            to[...] = value
        for got, value in zip(f(*spread), want, strict=True):
            np.testing.assert_array_equal(got, value)
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_three_axes(dtype):
    """Every other line of an image: pieces of pieces. And results in the memory of operands that nothing reads any more."""
    rng = np.random.default_rng(6)
    wide, g = gd.input("x", (6, 3, 44, 37), dtype), gd.input("g", (6, 3, 22, 37), dtype)
    w, b = gd.input("w", (3,), dtype), gd.input("b", (3,), dtype)
    inputs = [wide, g, w, b]
    arrays = draw(rng, inputs)
    x = wide[:, :, ::2]
    y = gd.batch_norm(x, w, b)
    same_bits(inputs, [y, *gd.grad(y, [x, w, b], cotangent=g)], arrays, dtype)
    same_bits([wide, w, b], [y], [arrays[0], *arrays[2:]], dtype)
    made, cotangent = gd.sort(gd.reshape(g, (6, 3, 814))), gd.sort(gd.reshape(x, (6, 3, 814)))
    y = gd.batch_norm(made, w, b)
    for outputs in ([y], [y, *gd.grad(y, [made, w, b], cotangent=cotangent)], gd.grad(y, [made, w], cotangent=cotangent)):
        used = [gd.sort(v) if v.ndim == 3 else v for v in outputs]           # so that they lie in the arena
        same_bits(inputs, used, arrays, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, n", [(1, 40), (2, 512), (16, 33), (17, 16), (33, 17), (40, 100), (50, 64), (96, 129), (100, 1024), (520, 48), (1030, 31)])
def test_gradients_of_short_rows(rows, n, dtype):
    """So many rows that a lane of the sums of columns has one, two, three and more, of which the last ones have another number than others."""
    rng = np.random.default_rng(rows)
    x, w, b, g = inputs = [gd.input(k, s, dtype) for k, s in (("x", (rows, n)), ("w", (n,)), ("b", (n,)), ("g", (rows, n)))]
    arrays = draw(rng, inputs)
    y = gd.layer_norm(x, w, b)
    gradients = gd.grad(y, [x, w, b], cotangent=g)
    own = rows > 1
    same_bits(inputs, [y, *gradients], arrays, dtype, norms=own)
    same_bits(inputs, gradients, arrays, dtype, norms=own)
    # Derivatives of zero beside what is not finite: rows of zeros, zeros in a row, infinite scales of columns, rows that have no root or no mean.
    arrays[3][:, ::3] = 0
    arrays[3][rows // 2] = 0
    arrays[1][0] = np.inf
    arrays[3][:, 0] = 0
    same_bits(inputs, [y, *gradients], arrays, dtype, norms=own)
    arrays[0][rows // 2, 0] = np.inf
    arrays[0][rows // 3, n // 2] = np.nan
    arrays[0][rows - 1] = 1e30 if dtype == "float32" else 1e300
    arrays[3][0, n - 1] = np.inf
    same_bits(inputs, [y, *gradients], arrays, dtype, norms=own)
    arrays[1][n - 1] = np.nan
    arrays[0][rows // 4] = 2.5
    z = gd.layer_norm(x, w, b, eps=0.0)                                     # nothing added: the root of rows of one value is 0
    same_bits(inputs, [z, *gd.grad(z, [x, w, b], cotangent=g)], arrays, dtype, norms=own)
