"""sigmoid(x) and sigmoid(-x) of one group: one loop makes both, with the bits that each has alone, and the derivatives that ask for both
(of logaddexp, silu, gelu_tanh) have the bits of their operations one by one."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

UNFUSED = ("merge", "algebra", "stable_forms", "fold", "in_place")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 7.79, 7.81, -7.81, 84.0, -84.5, 104.0, -104.0, 699.0, -701.0, 745.0, -760.0, 1e30, -1e30]


def sample(n, dtype, spread=6.0):
    """Ordinary numbers, and, from 30 on, special ones among them."""
    x = np.random.default_rng(n).uniform(-spread, spread, n)
    if n > 30:
        x[3:3 + len(SPECIAL)] = SPECIAL
    return x.astype(dtype)


def lines(f):
    return [[line[0] for line in attrs] for op, _, _, attrs, *_ in f.program.instrs if op == "fused"]


def has_bits_of_operations(inputs, outputs, arrays):
    """The fused function, whose results are those of the operations one by one, to the last bit (but for signs of NaN)."""
    f = gd.function(inputs, outputs, threads=1)
    want = gd.function(inputs, outputs, passes=UNFUSED, threads=1)(*arrays)
    for a, b in zip(f(*arrays), want, strict=True):
        assert np.where(np.isnan(a), np.nan, a).tobytes() == np.where(np.isnan(b), np.nan, b).tobytes() and a.dtype == b.dtype
        checked()
    return f


def stand_together(ops):
    return any(ops[i:i + 3] == ["sigmoid", "negative", "sigmoid"] for i in range(len(ops)))


@pytest.mark.parametrize("spread", [6.0, 900.0])
@pytest.mark.parametrize("n", [2, 7, 17, 513, 3001, 100_003])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoids_of_x_and_of_minus_x_stand_together(n, dtype, spread):
    """Whichever is written first, with other operations between them, whether x is an input or is written over by one of them."""
    x, y = gd.input("x", (n,), dtype), gd.input("y", (n,), dtype)
    a, b = sample(n, dtype, spread), sample(n + 1, dtype)[:-1]
    for z in (x, x * y):
        minus = -z
        plus_first = gd.sigmoid(z)
        for outputs in ([gd.tanh(plus_first) + y, gd.sigmoid(minus) * y], [gd.sigmoid(minus) * y, gd.tanh(gd.sigmoid(z)) - x],
                        [gd.sigmoid(z), gd.sigmoid(minus)]):
            (ops,) = lines(has_bits_of_operations([x, y], outputs, [a, b]))
            assert stand_together(ops)
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minus_x_that_others_read_is_made(dtype):
    x, y = gd.input("x", (1000,), dtype), gd.input("y", (1000,), dtype)
    a, b = sample(1000, dtype), sample(1001, dtype)[1:]
    minus = -(x * y)
    for outputs in ([gd.sigmoid(x * y), gd.sigmoid(minus), minus], [gd.sigmoid(x * y) + gd.sigmoid(minus) * gd.exp(minus)],
                    [gd.sigmoid(minus), *gd.grad(gd.sum(gd.sigmoid(minus) + gd.sigmoid(x * y) * y), [x, y])]):
        has_bits_of_operations([x, y], outputs, [a, b])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sigmoid_stands_with_one_other(dtype):
    """sigmoid(-x) beside sigmoid(x) and, behind what hides it, sigmoid(-(-x)): it was there twice, and the function could not be made."""
    x = gd.input("x", (1000,), dtype)
    minus = -x
    for again in (-gd.stop_gradient(minus), -gd.reshape(minus, (10, 100)), -gd.checkpoint(gd.exp)(minus)):
        has_bits_of_operations([x], [gd.sigmoid(x), gd.sigmoid(minus), gd.sigmoid(again)], [sample(1000, dtype)])
        has_bits_of_operations([x], [gd.sigmoid(again), gd.sigmoid(x) * again.reshape(1000), gd.sigmoid(minus)], [sample(1000, dtype)])
    p = gd.checkpoint(lambda z: gd.exp(z) / (1 + gd.exp(z)))(x)
    y = gd.sum(gd.log(p / (1 - p)))
    g = gd.grad(y, x)
    for a, want in zip(gd.function([x], [y, g, gd.grad(gd.sum(g * x), x)])(np.linspace(-2, 3, 1000).astype(dtype)), [500, 1, 1], strict=True):
        np.testing.assert_allclose(a, want, rtol=1e-5, atol=1e-5)
        checked()


@pytest.mark.parametrize("n", [5, 1000, 20_011])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_that_ask_for_both_sigmoids(n, dtype):
    x, y, g = (gd.input(c, (n,), dtype) for c in "xyg")
    a, b, c = sample(n, dtype), sample(n + 2, dtype)[2:], sample(n + 3, dtype)[3:]
    slopes = gd.grad(gd.logaddexp(x, y), [x, y], cotangent=g)
    for outputs in (slopes, [slopes[0] - slopes[1]], gd.grad(gd.silu(x), [x], cotangent=g), gd.grad(gd.gelu_tanh(x), [x], cotangent=g)):
        used = [x, y, g] if len(outputs) == 2 or outputs[0].op.name == "subtract" else [x, g]
        (ops,) = lines(has_bits_of_operations(used, outputs, [a, b, c] if len(used) == 3 else [a, c]))
        assert stand_together(ops)
        checked()


def test_sigmoids_of_a_chain_of_negatives():
    """x, -x and -(-x), kept apart by stop_gradient, or by a checkpoint: no sigmoid belongs to two pairs."""
    x = gd.input("x", (6,))
    n = -x
    far = -gd.stop_gradient(n)
    a = np.linspace(-3, 3, 6)
    for ys in ([x, n, far], [far, n, x], [n, far, x], [x, n, far, -gd.stop_gradient(far)]):
        got = gd.function([x], [gd.sigmoid(y) for y in ys])(a)
        for y, v in zip(ys, got, strict=True):
            assert np.array_equal(v, gd.function([x], gd.sigmoid(y), passes=())(a))
            checked()
