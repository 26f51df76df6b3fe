"""Functions of every float16 there is, against NumPy's float64 rounded once."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

FUNCTIONS = ("sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh "
             "reciprocal square abs negative floor ceil rint trunc sign").split()
EVERY = np.arange(65536, dtype=np.uint16).view(np.float16)


def bits(x):
    """As whole numbers, next to each other where the numbers are; -0 before 0."""
    i = x.view(np.int16).astype(int)
    return np.where(i < 0, -32769 - i, i)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_float16(name):
    """At most 1 ULP off and hardly ever off at all; NaN, infinities and signs of zeros as NumPy has them."""
    def call(x):
        return gd.function([n := gd.input("x", x.shape, "float16")], getattr(gd, name)(n), threads=1)(x)

    value = call(EVERY)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(EVERY.astype(np.float64)).astype(np.float16)
    assert value.dtype == np.float16 and (np.isnan(value) == np.isnan(want)).all()
    number = ~np.isnan(want)
    off = np.abs(bits(value[number]) - bits(want[number]))
    assert off.max() <= 1 and np.mean(off > 0) < 0.005
    assert (np.signbit(value[number]) == np.signbit(want[number])).all()
    for n in (1, 2, 15, 16, 17, 31, 33, 2049):           # pieces of every length modulo a register
        for start in (0, 15353, 31744 - n, 48121):
            assert call(EVERY[start:start + n]).tobytes() == value[start:start + n].tobytes()
    assert call(EVERY[::3]).tobytes() == value[::3].tobytes()
    assert call(EVERY.reshape(256, 256).T).tobytes() == value.reshape(256, 256).T.tobytes()


def value_and_gradient(make, x):
    n = gd.input("x", x.shape, "float16")
    y = make(n)
    assert y.dtype == np.float16
    return gd.function([n], [y, gd.grad(gd.sum(y.astype("float32")), n)], threads=1)(x)


@pytest.mark.parametrize("ord", [None, 2, 3, 0.5, -2, "fro"])
@pytest.mark.parametrize("scale", [30.0, 1e-4])
def test_norms_of_float16_do_not_leave_its_range_on_the_way(ord, scale):
    """Squares and powers of these overflow or underflow float16; a norm that it has is right, and so is its gradient."""
    x = np.random.default_rng(0).uniform(0.5, 1, (3, 20)).astype(np.float16) * np.float16(scale)
    axis = None if ord == "fro" else 1
    if ord == 0.5 and scale > 1:
        x /= 16                                             # or the norm itself is beyond 65504
    value, gradient = value_and_gradient(lambda n: gd.norm(n, ord, axis=axis), x)
    n = gd.input("x", x.shape)
    want = gd.function([n], [y := gd.norm(n, ord, axis=axis), gd.grad(gd.sum(y), n)])(x.astype(float))
    for got, right in zip((value, gradient), want, strict=True):
        np.testing.assert_allclose(got.astype(float), right, rtol=2e-3, atol=2e-7)
        assert (got != 0).all()
        checked()


def test_segments_of_float16_accumulate_in_float32():
    ids = np.arange(3000) % 2
    x = np.where(ids, 100, 50).astype(np.float16)
    value, gradient = value_and_gradient(lambda n: gd.segment_mean(n, ids, 2), x)
    assert value.tolist() == [50, 100] and np.allclose(gradient, 1 / 1500, rtol=1e-3)
    checked()
    _, gradient = value_and_gradient(lambda n: gd.segment_max(n, np.zeros(70000, int), 1), np.ones(70000, np.float16))
    assert np.allclose(gradient, 1 / 70000, rtol=1e-2)      # that many ties are no float16
    checked()
