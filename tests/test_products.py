"""Products of odd kinds: what einsum makes of a vector and the middle of an array, sums across the last axis, and many small, narrow
or integer products. Values against NumPy, bits against those of operands that lie otherwise."""
import numpy as np
import pytest

import graphdiff as gd

SIZE = {"a": 2, "b": 5, "i": 13, "j": 11, "k": 17, "l": 3, "o": 1}
EXACT = {"float32": "float64", "float16": "float64"}
CLOSE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}


def drawn(shape, dtype, seed=0):
    random = np.random.default_rng([seed, *shape])
    return random.standard_normal(shape).astype(dtype) if dtype.startswith("float") else random.integers(-99, 99, shape).astype(dtype)


def called(f, *feeds, **options):
    xs = [gd.input(f"x{k}", x.shape, x.dtype.name) for k, x in enumerate(feeds)]
    return gd.function(xs, f(*xs), **options)(*feeds)


def apart(x):
    """The same values in memory of another order, with gaps."""
    y = np.zeros([2 * n + 1 for n in x.shape[::-1]], x.dtype).T
    view = y[tuple([slice(1, 2 * n + 1, 2) for n in x.shape])]
    view[...] = x
    return view


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("equation", [
    "ij,ij->j", "ji,ij->j", "ijk,ijk->k", "ijk,kji->jk", "ijk,jik->k", "ijk,jik->ki", "ijk,ijk->i", "ij,ij->i", "oj,oj->j", "ij,jj->j",
    "ijk,j->ik", "ijk,j->ki", "j,ijk->ik", "ijkl,k->ijl", "ijkl,k->lji", "ijkl,jk->il", "aijk,aj->aik", "aijk,aj->kia", "ijk,jk->i", "iojk,j->iok"])
def test_einsum_along_the_middle_and_across_the_last_axis(equation, dtype):
    feeds = [drawn(tuple([SIZE[c] for c in term]), dtype, k) for k, term in enumerate(equation.split("->")[0].split(","))]
    if equation == "ij,jj->j":
        feeds[0], feeds[1] = drawn((13, 11), dtype), drawn((11, 11), dtype)
    want = np.einsum(equation, *[x.astype(EXACT.get(dtype, dtype)) for x in feeds])
    got = called(lambda *xs: gd.einsum(equation, *xs), *feeds)
    assert got.dtype == dtype
    if dtype.startswith("float"):
        np.testing.assert_allclose(got, want, rtol=CLOSE[dtype], atol=30 * CLOSE[dtype])
    else:
        np.testing.assert_array_equal(got, want)
    assert called(lambda *xs: gd.einsum(equation, *xs), *[apart(x) for x in feeds]).tobytes() == got.tobytes()
    assert called(lambda *xs: gd.einsum(equation, *xs), *feeds, threads=2).tobytes() == got.tobytes()


def test_a_vector_by_the_middle_of_an_array_moves_nothing():
    x, v = gd.input("x", (9, 30, 20), "float64"), gd.input("v", (30,), "float64")
    assert "copy" not in str(gd.function([x, v], gd.einsum("ijk,j->ik", x, v)).program)


@pytest.mark.parametrize("equation", ["ij,ij->j", "ijk,jik->k", "ijk,j->ik", "aijk,aj->kia"])
def test_gradients_along_the_middle_and_across_the_last_axis(equation):
    feeds = [drawn(tuple([SIZE[c] for c in term]), "float64", k) for k, term in enumerate(equation.split("->")[0].split(","))]
    xs = [gd.input(f"x{k}", x.shape, x.dtype.name) for k, x in enumerate(feeds)]
    gd.check_grads(gd.square(gd.einsum(equation, *xs)), xs, dict(zip(xs, feeds, strict=True)))
