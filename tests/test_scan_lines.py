"""Scans of all layouts against NumPy: several lines at once, lines that lie side by side, integers eight at once."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphdiff as gd

SHAPES = ((0,), (1,), (7,), (8,), (9,), (1003,), (5, 0), (1, 9), (3, 17), (4, 16), (5, 33), (9, 8), (70, 5), (2, 3, 5), (3, 5, 4, 7))
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": lambda x: x, "T": lambda x: x.T, "reversed": lambda x: x[..., ::-1], "every second": lambda x: x[..., ::2]}




def products_from_the_end(x: Any, axis: int, dtype: str) -> Any:
    return np.flip(np.cumprod(np.flip(x, axis), axis=axis, dtype=dtype), axis)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_scans_have_the_bits_of_one_element_after_the_other(dtype: str, layout: str) -> None:
    random, turn = np.random.default_rng(0), LAYOUTS[layout]
    for shape in SHAPES:
        x = (random.integers(-2**31, 2**31, shape) * (2**31 if dtype == "int64" else 1) if not dtype.startswith("float")
             else random.standard_normal(shape)).astype(dtype)
        n = gd.input("x", x.shape, dtype)
        for axis in range(len(shape)):
            v = turn(n)
            sums, products, back = gd.function([n], [gd.cumsum(v, axis, dtype), gd.cumprod(v, axis, dtype), gd.cumprod(v, axis, dtype, reverse=True)])(x)
            with np.errstate(all="ignore"):
                assert np.array_equal(sums, np.cumsum(turn(x), axis=axis, dtype=dtype)), (shape, axis)
                assert np.array_equal(products, np.cumprod(turn(x), axis=axis, dtype=dtype)), (shape, axis)
                assert np.array_equal(back, products_from_the_end(turn(x), axis, dtype)), (shape, axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_of_running_products_is_that_of_a_recurrence_along_the_lines(layout: str, axis: int) -> None:
    """The recurrence behind it, with two operands: of products of x the gradient of their sum is (from the end) known in closed form."""
    x = np.random.default_rng(1).uniform(0.5, 1.5, (7, 10))
    n, turn = gd.input("x", x.shape), LAYOUTS[layout]
    grad = gd.function([n], gd.grad(gd.sum(gd.cumprod(turn(n), axis)), n))(x)
    p = np.cumprod(turn(x), axis=axis)
    expected = np.zeros_like(x)
    turn(expected)[...] = np.flip(np.cumsum(np.flip(p, axis), axis=axis), axis) / turn(x)
    assert np.allclose(grad, expected, rtol=1e-12, atol=0)


def test_running_sums_begin_with_the_first_element_whatever_its_zero() -> None:
    for shape, axis in (((5,), 0), ((3, 4), 0), ((3, 4), 1)):
        x = np.full(shape, -0.0)
        assert np.signbit(gd.evaluate(gd.cumsum(gd.constant(x), axis=axis))).all()
        assert np.signbit(np.cumsum(x, axis=axis)).all()
