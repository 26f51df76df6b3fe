"""Convolutions whose tiles have channels for lanes: rows that leave registers of positions half empty, and channels that fill them.

Values are small whole numbers, so every sum is exact and the kernels, whatever their tiles, give what the NumPy interpreter gives.
"""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.runtime.reference import reference

pytestmark = pytest.mark.usefixtures("conv_kernels")


def drawn(rng, axes):
    """Shapes of x and w and options: 9 to 70 channels on each side, rows of 1 to 33 positions."""
    groups = int(rng.choice((1, 1, 1, 2)))
    c, o = (int(v) for v in rng.integers(9, 71, 2))
    k, s, d = (rng.integers(1, n, axes).tolist() for n in (5, 4, 3))
    out = [int(rng.integers(1, 4)) for _ in range(axes - 1)] + [int(rng.integers(1, 34))]
    pads = [tuple(int(v) for v in rng.integers(0, 3, 2)) for _ in range(axes)]
    x = [max((m - 1) * t + (b - 1) * e + 1 - lo - hi + int(rng.integers(t)), 1)
         for m, t, b, e, (lo, hi) in zip(out, s, k, d, pads, strict=True)]
    if any(a + lo + hi < (b - 1) * e + 1 for a, (lo, hi), b, e in zip(x, pads, k, d, strict=True)):
        return drawn(rng, axes)
    options = {"stride": tuple(s), "padding": tuple(pads), "dilation": tuple(d), "groups": groups}
    return (int(rng.integers(1, 4)), c * groups, *x), (o * groups, c, *k), options


def results(x_shape, w_shape, dtype, options):
    x, w = gd.input("x", x_shape, dtype), gd.input("w", w_shape, dtype)
    y = gd.conv(x, w, **options)
    g = gd.input("g", y.shape, dtype)
    return [x, w, g], [y, *gd.grad(y, [x, w], cotangent=g)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_same_as_the_interpreter(axes, dtype):
    rng = np.random.default_rng([axes, len(dtype), dtype == "float64"])
    for _ in range(25):
        x_shape, w_shape, options = drawn(rng, axes)
        inputs, outputs = results(x_shape, w_shape, dtype, options)
        values = [rng.integers(-3, 4, n.shape).astype(dtype) for n in inputs]
        got = gd.function(inputs, outputs, threads=1)(*values)
        want = reference(outputs, dict(zip(inputs, values, strict=True)))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{x_shape} {w_shape} {options}")
            checked()


@pytest.mark.parametrize("x_shape, w_shape", [((1, 32, 24, 64), (96, 32, 3, 3)), ((1, 130, 14, 14), (150, 130, 3, 3)), ((2, 64, 500), (40, 64, 7))])
def test_one_image_is_shared_by_channels(x_shape, w_shape):
    rng = np.random.default_rng(w_shape[0])
    inputs, outputs = results(x_shape, w_shape, "float32", {"padding": 1})
    values = [rng.integers(-3, 4, n.shape).astype("float32") for n in inputs]
    want = reference(outputs, dict(zip(inputs, values, strict=True)))
    for threads in (1, 2):
        for a, b in zip(gd.function(inputs, outputs, threads=threads)(*values), want, strict=True):
            np.testing.assert_array_equal(a, b)
            checked()


@pytest.mark.parametrize("x_shape, w_shape, options", [
    ((3, 40, 14, 14), (48, 40, 3, 3), {"padding": 1}),                   # one channel block
    ((2, 130, 9, 13), (70, 130, 3, 3), {"padding": 1}),                  # sums go on in the result, of two blocks of channels
    ((2, 70, 28, 28), (33, 70, 4, 4), {"stride": 2, "padding": 1}),      # phases, every second column of the gradient
    ((2, 24, 7, 31), (150, 24, 3, 3), {"stride": (1, 3)})])              # two blocks of filters, every third column
def test_threads_and_layouts_do_not_change_a_bit(x_shape, w_shape, options):
    rng = np.random.default_rng(len(x_shape) + w_shape[0])
    inputs, outputs = results(x_shape, w_shape, "float32", options)
    values = [rng.standard_normal(n.shape, dtype=np.float32) for n in inputs]
    one, two = (gd.function(inputs, outputs, threads=n)(*values) for n in (1, 2))
    # weights whose taps do not lie side by side are packed one element after the other
    w = gd.input("wt", (*w_shape[2:], *w_shape[:2]), "float32")
    turned = [inputs[0], w, inputs[2]]
    y = gd.conv(inputs[0], gd.transpose(w, (2, 3, 0, 1)), **options)
    apart = gd.function(turned, [y, gd.grad(y, inputs[0], cotangent=inputs[2])], threads=1)(
        values[0], np.ascontiguousarray(values[1].transpose(2, 3, 0, 1)), values[2])
    for a, b in zip((*one, *one[:2]), (*two, *apart), strict=True):
        assert a.tobytes() == b.tobytes()
        checked()
