"""What cannot be meant is refused when it is built, at the user's line; and the borders of that: what is meant works."""
import inspect
import sys

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import GraphdiffError, NodeTypeError, ShapeError

X = np.arange(12.0).reshape(3, 4) - 5
HUGE = 2**62 - 1


@pytest.mark.parametrize("wrong", [lambda: gd.exp(), lambda: gd.exp(1.0, 2.0), lambda: gd.isnan(1.0, 2.0), lambda: gd.negative(), lambda: gd.invert(),
                                   lambda: gd.add(1.0), lambda: gd.add(), lambda: gd.maximum(1.0, 2.0, 3.0), lambda: gd.bitwise_and(1),
                                   lambda: gd.less(1.0), lambda: gd.remainder(1.0), lambda: gd.where(True), lambda: gd.where(True, 1.0),
                                   lambda: gd.polygamma(1)], ids=range(14))
def test_a_wrong_number_of_operands_is_located(wrong):
    with pytest.raises(NodeTypeError, match=r"(?s)(takes \d operands?, \d given|missing 1 required).*test_refusals.py:\d+"):
        wrong()


def test_signatures_show_the_operands():
    assert str(inspect.signature(gd.exp)) == "(x: 'Any') -> 'Any'" and list(inspect.signature(gd.add).parameters) == ["x", "y"]


@pytest.mark.parametrize("wrong", [
    lambda x, k: gd.random.bernoulli(k, (3,), p=3), lambda x, k: gd.random.bernoulli(k, (3,), p=-0.1), lambda x, k: gd.random.bernoulli(k, (3,), p=np.nan),
    lambda x, k: gd.random.bernoulli(k, (3,), p="a"), lambda x, k: gd.random.bernoulli(k, (3,), p=[0.1, 0.2, 1.1]), lambda x, k: gd.polygamma(-1, x),
    lambda x, k: gd.polygamma(1.5, x), lambda x, k: gd.polygamma([0, 1, np.nan, 2], x), lambda x, k: gd.polygamma(gd.constant(-2.0), x),
    lambda x, k: gd.roll(x, 1.5), lambda x, k: gd.roll(x, "a"), lambda x, k: gd.roll(x, x), lambda x, k: gd.softmax(x, temperature=0),
    lambda x, k: gd.softmax(x, temperature=np.nan), lambda x, k: gd.softmax(x, temperature=-1), lambda x, k: gd.softmax(x, temperature="a"),
    lambda x, k: x.sum(dtype="int8"), lambda x, k: gd.prod(x, dtype="uint16"), lambda x, k: gd.mean(x, dtype=np.int16),
    lambda x, k: gd.cumsum(x, dtype="int8"), lambda x, k: x.astype("int8"), lambda x, k: x.astype(np.uint32),
    lambda x, k: gd.concatenate([x, x], dtype="int16"),
    lambda x, k: gd.argmax(x, axis=(0, 1)), lambda x, k: gd.argmin(x, axis=[0]), lambda x, k: gd.sum(x, keepdims="a"), lambda x, k: gd.max(x, keepdims=2),
    lambda x, k: gd.median(x, keepdims="no"), lambda x, k: gd.argmax(x, keepdims=None), lambda x, k: gd.scope(5), lambda x, k: gd.where(True, "a", x),
    lambda x, k: gd.norm(x, "nuc"), lambda x, k: gd.norm(x, 2), lambda x, k: gd.norm(x, -2), lambda x, k: gd.norm(x, 3), lambda x, k: gd.norm(x, 0),
    lambda x, k: gd.norm(x, "fro", axis=0), lambda x, k: gd.norm(gd.stack([x, x]), 1), lambda x, k: gd.norm(x, np.nan, axis=0)], ids=range(39))
def test_arguments_that_cannot_be_meant_are_refused_when_built(wrong):
    x, k = gd.input("x", (3, 4)), gd.random.key(0)
    with pytest.raises(GraphdiffError, match=r"(?s): .*test_refusals.py:\d+"):
        wrong(x, k)


def test_arguments_at_the_border_are_taken():
    x, k = gd.input("x", (3, 4)), gd.random.key(0)
    assert not gd.evaluate(gd.random.bernoulli(k, (9,), p=0), {}).any() and gd.evaluate(gd.random.bernoulli(k, (9,), p=1), {}).all()
    assert gd.evaluate(gd.random.bernoulli(k, (2,), p=[0.0, 1.0]), {}).tolist() == [False, True]
    assert gd.random.bernoulli(k, (2,), p=gd.input("p")).shape == (2,)
    np.testing.assert_array_equal(gd.evaluate(gd.roll(x, np.int64(-5)), {x: X}), np.roll(X, -5))
    np.testing.assert_array_equal(gd.evaluate(gd.roll(x, 2**70, 1), {x: X}), np.roll(X, 2**70 % 4, 1))
    t = np.array([[0.5], [1.0], [2.0]])
    e = np.exp(X / t - (X / t).max(1, keepdims=True))
    np.testing.assert_allclose(gd.evaluate(gd.softmax(x, temperature=t), {x: X}), e / e.sum(1, keepdims=True), rtol=1e-14)
    for dtype in ("float32", ">f8", float, np.int64, "uint8"):
        assert x.sum(dtype=dtype).dtype == np.dtype(dtype).newbyteorder("=")
    assert gd.sum(x, keepdims=np.True_).shape == gd.sum(x, keepdims=1).shape == (1, 1)
    checked(8)


@pytest.mark.parametrize("build", [
    lambda x, w: gd.conv(x, w, stride=HUGE), lambda x, w: gd.conv(x, w[:, :, :1, :1], dilation=HUGE), lambda x, w: gd.conv(x, w, padding=HUGE),
    lambda x, w: gd.max_pool(x, 2, stride=HUGE), lambda x, w: gd.max_pool(x, 1, dilation=HUGE), lambda x, w: gd.avg_pool(x, 2, stride=HUGE),
    lambda x, w: gd.conv_transpose(x, w, stride=HUGE), lambda x, w: gd.conv(x, w, stride=2**31)], ids=range(8))
def test_strides_and_dilations_beyond_the_kernels_are_refused_when_built(build):
    with pytest.raises(ShapeError, match=r"(?s)too large.*test_refusals.py"):
        build(gd.input("x", (1, 1, 8, 8)), gd.input("w", (1, 1, 3, 3)))


def test_the_largest_strides_and_dilations_run():
    x, w = gd.input("x", (1, 1, 8, 8)), gd.input("w", (1, 1, 3, 3))
    a, b, top = np.arange(64.0).reshape(1, 1, 8, 8), np.ones((1, 1, 3, 3)), 2**31 - 1
    for y, want in ((gd.conv(x, w, stride=top), a[..., :3, :3].sum()), (gd.conv(x, w[:, :, :1, :1], stride=top, dilation=top), 0.0),
                    (gd.max_pool(x, 2, stride=top), a[0, 0, 1, 1]), (gd.max_pool(x, 1, stride=top, dilation=top), 0.0),
                    (gd.avg_pool(x, 2, stride=top), 4.5)):
        f = gd.function([x, w], [y, gd.grad(gd.sum(y), x)])
        value, g = f(a, b)
        assert value.shape == (1, 1, 1, 1) and value.item() == want and np.count_nonzero(g) in (1, 4, 9)
        checked(2)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), (1, 0)])
@pytest.mark.parametrize("ord", [None, "fro", 1, -1, 2, -2, np.inf, -np.inf, 0, 3, 1.5])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_are_numpys(ord, axis, keepdims):
    x = gd.input("x", (3, 4))
    a = X + 0.5
    try:
        want = np.linalg.norm(a, ord, axis, keepdims)
    except ValueError:
        want = None
    if want is None or (axis not in (0, 1, -1) and ord in (2, -2)):
        with pytest.raises(GraphdiffError):
            gd.norm(x, ord, axis, keepdims)
        return
    y = gd.norm(x, ord, axis, keepdims)
    np.testing.assert_allclose(gd.evaluate(y, {x: a}), want, rtol=1e-14)
    assert y.shape == np.shape(want)
    checked(2)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_the_median_and_parts_of_a_named_axis(size):
    n = gd.input("n", ("k", 3))
    a = np.random.default_rng(size).standard_normal((size, 3))
    for y, want in ((gd.median(n, 0), np.median(a, 0)), (gd.median(n), np.median(a)), (gd.median(n, 0, keepdims=True), np.median(a, 0, keepdims=True))):
        np.testing.assert_allclose(gd.evaluate(y, {n: a}), want, rtol=1e-15)
        gd.check_grads(y, n, a)
        checked()
    for k in (1, 2, 3, 4):
        for y, want in zip(gd.array_split(n, k), np.array_split(a, k), strict=True):
            np.testing.assert_array_equal(gd.evaluate(y, {n: a}), want)
            checked()
        if size % k == 0:
            parts = gd.split(n, k)
            assert len(parts) == k
            for y, want in zip(parts, np.split(a, k), strict=True):
                np.testing.assert_array_equal(gd.evaluate(y, {n: a}), want)
                checked()
        else:
            with pytest.raises(ShapeError, match=r"(?s)test_refusals.py"):
                gd.evaluate(gd.split(n, k)[0], {n: a})
    for y, want in zip(gd.split(n, [1]), np.split(a, [1]), strict=True):
        np.testing.assert_array_equal(gd.evaluate(y, {n: a}), want)


def test_a_slice_past_the_end_of_a_named_axis_is_clipped_or_names_its_own_line():
    n = gd.input("n", ("k",))
    a = np.arange(5.0)
    for c in (slice(7, None), slice(None, -7), slice(None, 100), slice(-7, None), slice(7, 2, -1), slice(7, 8), slice(-7, -6), slice(5, 6, 5)):
        np.testing.assert_array_equal(gd.evaluate(n[c], {n: a}), a[c])
    for at in ([7], [2, 9], [-9, 3, -1], [4, 2], [7, 8]):
        for y, want in zip(gd.split(n, at), np.split(a, at), strict=True):
            np.testing.assert_array_equal(gd.evaluate(y, {n: a}), want)
    k = n.shape[0]
    for y, what in ((n[7:k], "negative"), (n[:k + 2], "element 6"), (n[k - 9:], "element -4")):
        with pytest.raises(ShapeError, match=f"(?s){what}.*test_refusals.py.*what in.*hint .*numbers are clipped to the axis; sizes are not"):
            gd.evaluate(y, {n: a})
    assert n[3:1].shape == (0,) and gd.evaluate(n[3:1], {n: a}).shape == (0,)
    assert gd.evaluate(n[5:], {n: a}).shape == gd.evaluate(n[:-5], {n: a}).shape == (0,)


def test_a_step_larger_than_any_stride():
    x = gd.input("x", (3, 4))
    y = x[::HUGE, 1::2**70]
    np.testing.assert_array_equal(gd.evaluate(y, {x: X}), X[::HUGE, 1::2**70])
    np.testing.assert_array_equal(gd.evaluate(gd.grad(y.sum(), x), {x: X}), np.eye(12)[1].reshape(3, 4))


def test_a_bound_array_cannot_be_resized_under_the_pointer():
    v = gd.input("v", (5,))
    f = gd.function([v], v * 2)
    a, out = np.ones(5), np.empty(5)
    call = f.bind(a, out=out)
    for array in (a, out):
        with pytest.raises(ValueError, match="resize"):
            array.resize(1_000_000, refcheck=False)
    assert call().tolist() == [2.0] * 5
    del call
    a.resize(7, refcheck=False)


def test_a_call_into_arrays_does_not_walk_the_graph(monkeypatch):
    x, w = gd.input("x", (3,)), gd.variable(np.ones(3))
    f = gd.function([x], x * w, updates={w: w + 1})
    out = np.empty(3)
    import graphdiff.api.function as module
    monkeypatch.setattr(module, "toposort", None)
    f(np.ones(3), out=out)
    assert out.tolist() == [1.0] * 3


def test_layers_take_nodes_and_arrays_and_numpys_complex_functions_take_no_nodes():
    x = gd.input("x", (3,))
    for call in (lambda: gd.nn.Dense(3, 2)([[1.0, 2, 3]]), lambda: gd.nn.Dense(3, 2)((x, x)), lambda: gd.nn.LayerNorm(3)([1.0, 2, 3]),
                 lambda: gd.nn.BatchNorm(3)([[1.0, 2, 3]]), lambda: gd.nn.Flatten()([x, 1.0, "a"]), lambda: gd.nn.MultiHeadAttention(4, 2)("a"),
                 lambda: np.emath.sqrt(x), lambda: np.emath.log(x), lambda: np.emath.power(x, 2)):
        with pytest.raises(GraphdiffError, match=r"at +test_refusals\.py:\d+"):
            call()
        checked()
    with pytest.raises(ShapeError, match="dense: the input is float32"):
        gd.nn.Dense(3, 2)(np.ones((2, 4), "float32"))
    assert gd.nn.Flatten()([[[1.0, 2]]]).shape == (1, 2) and gd.nn.Dense(3, 2)(np.ones((2, 3), "float32")).shape == (2, 2)


def test_numpys_own_code_is_no_line_of_the_users():
    """Methods of arrays and functions written in Python call back with nodes: the line is the one that called NumPy."""
    x, y = gd.input("x", (3,)), gd.input("y", (4,))
    made = [np.ones(3).clip(x, 2), np.ones(3).sum(where=x > 0), np.polynomial.chebyshev.chebval(x, [1, 2, 3])]
    here = sys._getframe().f_lineno - 1
    assert [(n.site.file, n.site.line) for n in made] == [(__file__, here)] * 3
    with pytest.raises(gd.errors.ShapeError, match=r"at +test_refusals\.py:\d+ +np\.ones\(3\)\.clip"):
        np.ones(3).clip(y, 2)
    checked(4)
