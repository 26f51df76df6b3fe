"""Functions of every float16 there is, against NumPy's float64 rounded once."""
import numpy as np
import pytest

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
