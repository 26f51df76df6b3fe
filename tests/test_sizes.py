"""Hostile sizes: an error when the graph is built, in the blink of an eye, with nothing allocated."""
import time
import tracemalloc

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import GraphdiffError

TOO_LARGE = [(2**62, 4), (2**31,) * 3, (4194305, 4194305, 211106198978564), (0, 2**62, 8), (2**63,), (2**64,), (10**30,), (-1,), (3, -2), (1,) * 33,
             (-2**63,), (2**60 * 8,)]
INT_MIN = -2**63


@pytest.fixture(scope="module", autouse=True)
def traced():
    """Once, not at every call: to stop while another thread allocates can end the process (CPython 3.11, gh-128679)."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def refused(build):
    """A GraphdiffError that is a ValueError, TypeError or IndexError, at once and without memory."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    start = time.process_time()
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        build()
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1] - before
    assert isinstance(caught.value, GraphdiffError), caught.value
    assert seconds < 1, seconds       # milliseconds, unless the size is walked through
    assert peak < 1 << 20, peak
    checked(3)


@pytest.mark.parametrize("shape", TOO_LARGE, ids=str)
def test_impossible_shapes(shape):
    x = gd.input("x", (2, 3))
    one = gd.input("s")
    for build in (lambda: gd.input("y", shape), lambda: gd.zeros(shape), lambda: gd.ones(shape), lambda: gd.full(shape, 1.0),
                  lambda: gd.broadcast_to(one, shape), lambda: gd.random.normal(gd.random.key(0), shape),
                  lambda: gd.random.uniform(gd.random.key(0), shape)):
        refused(build)
    if not all(n == -1 for n in shape):
        refused(lambda: gd.reshape(x, shape))


def test_the_limit_itself():
    assert gd.input("x", (2**60 - 1,)).size == 2**60 - 1
    refused(lambda: gd.input("x", (2**60,)))
    assert gd.input("x", (2**62,), "uint8").shape == (2**62,)
    refused(lambda: gd.input("x", (2**63,), "uint8"))
    assert gd.input("x", (1,) * 32).ndim == 32
    assert gd.input("x", (0, 2**40)).size == 0


def test_results_too_large():
    a, b = gd.input("a", (2**31, 1)), gd.input("b", (1, 2**31))
    c = gd.input("c", (2**40,))
    for build in (lambda: a @ b, lambda: a + b, lambda: gd.outer(c, c), lambda: gd.einsum("i,j->ij", c, c), lambda: gd.kron(c, c), lambda: gd.diag(c),
                  lambda: gd.tile(c, 2**30), lambda: gd.repeat(c, 2**30), lambda: gd.pad(c, 2**62), lambda: gd.broadcast_to(c, (2**40, 2**40)),
                  lambda: gd.stack([c] * 2, axis=5), lambda: gd.concatenate([c] * 2, axis=3), lambda: gd.one_hot(gd.input("i", (2**40,), "int64"), 2**40),
                  lambda: gd.conv(gd.input("x", (1, 1, 3)), gd.input("w", (1, 1, 3)), padding=2**62),
                  lambda: gd.conv_transpose(gd.input("x", (1, 1, 2**40)), gd.input("w", (1, 1, 3)), stride=2**40),
                  lambda: gd.segment_sum(gd.input("d", (3, 4)), gd.input("i", (3,), "int64"), 2**62), lambda: gd.jacobian(c * 2.0, c, mode="reverse")):
        refused(build)


def test_a_large_matmul_builds_and_asks_for_memory_only_when_run():
    a, b = gd.input("a", (2**20, 1)), gd.input("b", (1, 2**20))
    y = a @ b
    assert y.shape == (2**20, 2**20)
    f = gd.function([a, b], gd.sum(y))
    with pytest.raises(MemoryError):
        f(np.zeros((2**20, 1)), np.zeros((1, 2**20)))


def test_impossible_reshapes():
    x = gd.input("x", (2, 3))
    for shape in ((-1, -1), (0, -1), (7,), (-2, 3), (2.0, 3), (INT_MIN,), (2, 3, 0), (2**32, 2**32), None):
        refused(lambda shape=shape: gd.reshape(x, shape))
    e = gd.input("e", (0, 3))
    assert gd.reshape(e, (3, -1)).shape == (3, 0)
    refused(lambda: gd.reshape(e, (0, -1)))


BAD_AXES = (2, -3, INT_MIN, 2**63, 10**30, 1.0, "0", (0, 0), (0, 2), None)


@pytest.mark.parametrize("axis", BAD_AXES, ids=repr)
def test_impossible_axes(axis):
    x = gd.input("x", (2, 3))
    functions = [gd.softmax, gd.log_softmax, gd.take_along_axis] if axis is None else [
        gd.sum, gd.max, gd.prod, gd.argmax, gd.mean, gd.logsumexp, gd.any, gd.softmax, gd.log_softmax, gd.cumsum, gd.sort, gd.argsort, gd.squeeze,
        gd.flip, gd.std]
    for f in functions:
        if f is gd.take_along_axis:
            continue
        refused(lambda f=f: f(x, axis=axis))
    if axis is not None and not isinstance(axis, tuple):
        for build in (lambda: gd.stack([x, x], axis=axis if axis not in (2, -3) else 5), lambda: gd.concatenate([x, x], axis=axis),
                      lambda: gd.swapaxes(x, 0, axis), lambda: gd.take(x, np.array([0]), axis=axis), lambda: gd.roll(x, 1, axis=axis),
                      lambda: gd.repeat(x, 2, axis=axis), lambda: gd.split(x, 1, axis=axis),
                      lambda: gd.moveaxis(x, 0, axis), lambda: gd.transpose(x, (0, axis))):
            refused(build)
        if axis == -3:
            assert gd.expand_dims(x, -3).shape == (1, 2, 3)
        elif axis == 2:
            assert gd.expand_dims(x, 2).shape == (2, 3, 1)
        else:
            refused(lambda: gd.expand_dims(x, axis))


@pytest.mark.parametrize("bad", [0, -1, INT_MIN, 2**63, 1.5, "same ", None, (1, 0), (1, 2, 3)], ids=repr)
def test_impossible_windows_strides_and_dilations(bad):
    x, w = gd.input("x", (1, 2, 5, 5)), gd.input("w", (2, 2, 3, 3))
    refused(lambda: gd.max_pool(x, bad))
    refused(lambda: gd.avg_pool(x, bad))
    if bad is not None:
        refused(lambda: gd.max_pool(x, 2, stride=bad))
        refused(lambda: gd.avg_pool(x, 2, stride=bad))
    refused(lambda: gd.max_pool(x, 2, dilation=bad))
    refused(lambda: gd.conv(x, w, stride=bad))
    refused(lambda: gd.conv(x, w, dilation=bad))
    refused(lambda: gd.conv_transpose(x, w, stride=bad))
    refused(lambda: gd.conv(x, w, groups=bad))
    if bad not in (0, (1, 0)):
        refused(lambda: gd.conv(x, w, padding=bad))
        refused(lambda: gd.max_pool(x, 3, padding=bad))


def test_windows_larger_than_the_input():
    x = gd.input("x", (1, 1, 3))
    for build in (lambda: gd.max_pool(x, 4), lambda: gd.avg_pool(x, 2**40), lambda: gd.conv(x, gd.input("w", (1, 1, 4))),
                  lambda: gd.conv(x, gd.input("w", (1, 1, 2)), dilation=2**40), lambda: gd.conv(x, gd.input("w", (1, 1, 0))),
                  lambda: gd.conv(x, gd.input("w", (1, 2, 2))), lambda: gd.conv(x, gd.input("w", (3, 1, 2)), groups=2),
                  lambda: gd.max_pool(gd.input("y", (3,)), 2), lambda: gd.conv(x, gd.input("w", (1, 1, 2, 2)))):
        refused(build)


@pytest.mark.parametrize("index", [3, -4, 2**63, INT_MIN, 10**30, 1.5, "0", (0, 0, 0), np.array([3]), np.array([-4]), np.array([0.0]),
                                   (Ellipsis, Ellipsis), np.zeros((2, 2), bool), slice(None, None, 0), slice(1.0, 2), {}], ids=repr)
def test_impossible_indices(index):
    x = gd.input("x", (3, 2))
    if (isinstance(index, np.ndarray) and index.dtype == bool) or not isinstance(index, np.ndarray):
        refused(lambda: x[index])
        refused(lambda: x.at[index].set(1.0))
        refused(lambda: x.at[index].add(1.0))
    else:
        with pytest.raises((IndexError, TypeError)):
            gd.evaluate(x[index], {x: np.zeros((3, 2))})


def test_slices_are_clipped_like_numpy():
    x = gd.input("x", (5,))
    a = np.arange(5.0)
    ends = (None, 0, 2, -2, 7, -9, 2**62, INT_MIN)
    for start in ends:
        for stop in ends:
            for step in (None, 1, -1, 2, 2**62, INT_MIN):
                y = x[start:stop:step]
                want = a[start:stop:step]
                assert y.shape == want.shape
                checked()
    got = gd.function([x], [x[i:j:k] for i in (None, 1, -9) for j in (None, -1, 9) for k in (1, -2)])(a)
    for v, w in zip(got, [a[i:j:k] for i in (None, 1, -9) for j in (None, -1, 9) for k in (1, -2)], strict=True):
        assert v.tolist() == w.tolist()
        checked()


@pytest.mark.parametrize("index", [3, -4, 2**62, INT_MIN, 10**6])
def test_indices_that_arrive_with_the_call(index):
    x, i = gd.input("x", (3, 2)), gd.input("i", (), "int64")
    v = gd.input("v", (4,), "int64")
    a = np.zeros((3, 2))
    for y in (gd.take(x, i, axis=0), x[i], x.at[i].set(1.0), x.at[i].add(1.0), x[:, gd.constant(1)][i]):
        with pytest.raises(IndexError, match=str(index)):
            gd.function([x, i], y)(a, index)
        checked()
    for y in (x[v], gd.take_along_axis(x, gd.reshape(v, (2, 2)), axis=0)):
        with pytest.raises(IndexError):
            gd.function([x, v], y)(a, np.array([0, 1, index, 0]))
        checked()


def test_empty_arrays_run_everywhere():
    x = gd.input("x", (0, 3))
    outs = [gd.exp(x), gd.sum(x), gd.sum(x, axis=0), gd.prod(x), x @ np.ones((3, 2)), np.ones((2, 0)) @ x, gd.softmax(x), gd.sort(x, axis=0),
            gd.cumsum(x, axis=0), gd.concatenate([x, x]), x.T, gd.mean(x, axis=1), gd.logsumexp(x, axis=1), gd.einsum("ij,ik->jk", x, x),
            gd.any(x), gd.all(x)]
    r = gd.function([x], outs)(np.zeros((0, 3)))
    assert [v.shape for v in r] == [o.shape for o in outs]
    assert float(r[1]) == 0 and r[2].tolist() == [0, 0, 0] and float(r[3]) == 1 and not r[5].any() and not r[14] and r[15]
    for o in outs[:14]:
        g = gd.evaluate(gd.grad(o, x, cotangent=gd.ones_like(o), unconnected="zero"), {x: np.zeros((0, 3))})
        assert g.shape == (0, 3)
        checked()
    for build in (lambda: gd.max(x), lambda: gd.argmin(x, axis=0), lambda: gd.min(x, axis=0)):
        refused(build)
    assert np.isnan(gd.evaluate(gd.mean(x), {x: np.zeros((0, 3))}))


MAKERS = {"fused": lambda s: s * 2 + 1, "one": lambda s: gd.exp(s), "chosen": lambda s: gd.where(s > 0, s, -s * 2),
          "product": lambda s: gd.relu(s @ np.ones((4, 4))), "softmax": lambda s: gd.softmax(s * 3),
          "sums": lambda s: (s * s + 1) / gd.sum(s), "sorted": lambda s: gd.sort(s * 2)}


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_read_in_an_empty_slice_only_is_not_made(make):
    s, b = gd.input("s", (4,)), gd.input("b", ("n",))
    v = np.array([0.5, -1.0, 2.0, 3.0])
    t = MAKERS[make](s)
    for build in (lambda: gd.concatenate([s, t[5:]]), lambda: gd.concatenate([*gd.split(t, [4])[1:], s]), lambda: gd.append(t[4:], s)):
        y = build()
        np.testing.assert_array_equal(gd.function([s], y)(v), v)
        g, j = gd.function([s], [gd.grad(gd.sum(y * y), s), gd.jvp(y, s, gd.ones_like(s))])(v)
        np.testing.assert_array_equal(g, 2 * v)
        np.testing.assert_array_equal(j, np.ones(4))
        checked(3)
    if make not in ("product", "sums"):
        named = gd.concatenate([b, MAKERS[make](b)[4:]])
        np.testing.assert_array_equal(gd.function([b], named)(v), v)
        assert gd.function([b], named)(np.ones(6)).shape == (8,)


def test_named_sizes_as_indices_from_the_end():
    x = gd.input("x", ("n",))
    (n,), v = x.shape, np.arange(5.0)
    for build, want in ((lambda: x[-n], 0.0), (lambda: x[-(n // 2)], 3.0), (lambda: x[n - 1], 4.0)):
        assert gd.function([x], build())(v) == want
        checked()
    np.testing.assert_array_equal(gd.function([x], x.at[-n].set(7.0))(v), [7, 1, 2, 3, 4])
    for build in (lambda: x.at[-(n // 2):].set(9.0), lambda: x.at[n - 10:].set(1.0)):
        with pytest.raises(gd.errors.ShapeError, match=r"x\.at\[\.\.\.\]\.set: element -\d of axis 0 is asked for(.|\n)*test_sizes\.py:\d+"):
            gd.function([x], build())(v)
        checked()


PUT = [(np.s_[1:], "set", lambda v, w: v), (np.s_[1:], "add", lambda v, w: v * v), (np.s_[:3], "add", lambda v, w: v[:3]),
       (np.s_[:2], "set", lambda v, w: w), ([0, 2], "set", lambda v, w: w)]


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize(("item", "how", "value"), PUT)
def test_what_may_fit_a_part_of_a_named_size_is_put_there(item, how, value, n):
    def made(*sizes):
        nodes = [gd.input(name, (size,)) for name, size in zip("xvw", sizes, strict=True)]
        x, v, w = nodes
        y = getattr(x.at[item], how)(value(v, w))
        return gd.function(nodes, [y, *gd.grad(gd.sum(y * y), nodes, unconnected="zero")])

    arrays = np.arange(1.0, n + 1), np.arange(2.0, 6), np.array([3.0, 4.0])
    named = made("n", 4, "m")
    part = arrays[0][item].shape if isinstance(item, slice) or n > 2 else ()
    if part != value(*arrays[1:]).shape:                                    # it fits, or is refused when the function runs
        with pytest.raises(gd.errors.GraphdiffError, match=r"x\.at\[\.\.\.\]\.(set|add): (.|\n)*test_sizes\.py:\d+"):
            named(*arrays)
    else:
        for got, want in zip(named(*arrays), made(n, 4, 2)(*arrays), strict=True):
            np.testing.assert_array_equal(got, want)
    checked(4)


@pytest.mark.parametrize("how", ["set", "add"])
@pytest.mark.parametrize(("sizes", "at", "item"), [
    (("n",), ("k",), lambda i: i), (("n",), (2, "k"), lambda i: i), (("n", 3), ("k",), lambda i: i), (("n", 3), ("k",), lambda i: (slice(1), i)),
    ((4, "m", 2), ("k", 1), lambda i: (i, slice(None), i * 0)), (("n", 3), ("k",), lambda i: (i, 2 * i % 3))], ids=range(6))
def test_derivatives_of_values_put_where_a_named_number_of_indices_says(how, sizes, at, item):
    def made(shape, at_shape, u_shape):
        x, i, u = gd.input("x", shape), gd.input("i", at_shape, "int64"), gd.input("u", u_shape)
        y = getattr(x.at[item(i)], how)(u * u)
        gx, gu = gd.grad(gd.sum(y * y * y), [x, u])
        t = gd.jvp(y, [x, u], [x, u])
        return gd.function([x, i, u], [y, gx, gu, t, *gd.grad(gd.sum(gu * gu), [x, u])])

    def numbers(shape, n):
        return tuple([s if isinstance(s, int) else n for s in shape])

    named_u = gd.input("x", sizes)[item(gd.input("i", at, "int64"))].shape
    named = made(sizes, at, named_u)
    for k in (1, 3, 5):
        shape, at_shape = numbers(sizes, 4), numbers(at, k)
        i = np.arange(np.prod(at_shape)).reshape(at_shape) ** 2 % min(shape[:2])     # 0 1 0 1 0, 0 1 1 0 1
        x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        u = 1 + np.random.default_rng(k).random(np.zeros(shape)[item(i)].shape)
        got, want = named(x, i, u), made(shape, at_shape, u.shape)(x, i, u)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-13)
            checked()
        if how == "set":
            last = np.full(shape, -1)
            last[item(i)] = np.arange(u.size).reshape(u.shape)
            np.testing.assert_array_equal(got[2] != 0, np.isin(np.arange(u.size), last).reshape(u.shape))
            checked()


def test_sizes_that_may_be_equal_spread():
    x, w = gd.input("x", ("n",)), gd.input("w", ("m",))
    y, i = gd.input("y", ("n", 4)), gd.input("i", ("m", 1), "int64")
    along = gd.function([y, i], gd.take_along_axis(y, i, 1))
    np.testing.assert_array_equal(along(np.arange(12.0).reshape(3, 4), [[3], [0], [1]]), [[3], [4], [9]])
    for rows in (1, 2):
        with pytest.raises(gd.errors.ShapeError, match=r"^take_along_axis: (.|\n)*test_sizes\.py:\d+"):
            along(np.ones((3, 4)), np.zeros((rows, 1), int))
        checked()
    y = gd.broadcast_to(w, (2, "n"))                                        # one element beside several: m was taken for n
    np.testing.assert_array_equal(gd.function([x, w], x + y)(np.ones(3), np.arange(3.0)), [[1, 2, 3]] * 2)
    with pytest.raises(gd.errors.ShapeError, match=r"size m was taken for n while building, but is 1 beside 3"):
        gd.function([x, w], x + y)(np.ones(3), np.ones(1))
    with pytest.raises(gd.errors.ShapeError, match=r"value of shape \[5\] does not fit the indexed part \[min\(n, 3\)\]"):
        x.at[:3].set(np.ones(5))
    for build in (lambda: gd.broadcast_to(gd.input("y", (5,)), (1,)), lambda: gd.broadcast_to(x[None], ("n",)), lambda: gd.broadcast_to(x[:0], (2,))):
        with pytest.raises(gd.errors.ShapeError, match="cannot broadcast"):
            build()
        checked()


def summed(x):
    return gd.sum(x * x)


X, LABELS = np.ones((5, 3)), np.zeros(4, "int64")


@pytest.mark.parametrize(("build", "arrays", "message"), [
    (lambda x: gd.split(x, 3), [X], "split: 5 elements along axis 0 do not divide into 3 equal parts"),
    (lambda x: gd.split(x, 2, -1), [X], "split: 3 elements along axis 1 do not divide into 2 equal parts"),
    (lambda x: gd.squeeze(x, 1), [X], "squeeze: cannot squeeze axis 1 of size 3"),
    (lambda x: x.squeeze((0, 1)), [X[:1]], "squeeze: cannot squeeze axis 1 of size 3"),
    (lambda x, w: gd.layer_norm(x, w), [X, np.ones(4)], "layer_norm: gamma has 4 elements along axis 0, 3 are needed"),
    (lambda x, w: gd.layer_norm(x, w, axis=(0, 1)), [X, np.ones((5, 1))], "layer_norm: gamma has 1 elements along axis 1, 3 are needed"),
    (lambda x, w: gd.layer_norm(x, None, w), [X, np.ones(1)], "layer_norm: beta has 1 elements along axis 0, 3 are needed"),
    (lambda x, w: gd.rms_norm(x, w), [X, np.ones(4)], "rms_norm: gamma has 4 elements along axis 0, 3 are needed"),
    (lambda x, w: gd.batch_norm(x, w), [X, np.ones(5)], "batch_norm: gamma has 5 elements along axis 0, 3 are needed"),
    (lambda x, w: gd.group_norm(x, 3, None, w), [X, np.ones(5)], "group_norm: beta has 5 elements along axis 0, 3 are needed"),
    (lambda x: gd.group_norm(x, 2), [X], "group_norm: 3 channels do not divide into 2 groups"),
    (lambda x, w: gd.average(x, 1, w), [X, np.ones(2)], "average: weights have 2 elements along axis 0, x has 3 there"),
    (lambda x, t: gd.losses.mse(x, t), [X, X[:, :2]], "mse: the prediction: 3 elements along axis 1, the target: 2"),
    (lambda x, t: gd.losses.cross_entropy(x, t), [X, LABELS], "cross_entropy: labels have 4 elements along axis 0, the scores have 5"),
    (lambda x, t: gd.segment_sum(x, t, 2), [X, LABELS], "segment_sum: segment_ids must be one id a row: 4 for data of 5 rows"),
    (lambda x, y: gd.tensordot(x, y, 1), [X, X], "tensordot: summed sizes differ: left has 3, right has 5 (axis 0)"),
    (lambda x: gd.einsum("ii->i", x), [X], "einsum: label i has lengths 3 and 5 in operand 0"),
    (lambda x: x[np.array([True, False])], [X], "x[...]: boolean index has size 2 along axis 0, the array has 5"),
])
def test_sizes_that_do_not_fit_are_told_as_the_function_called_knows_them(build, arrays, message):
    names = iter("abcdefgh")
    nodes = [gd.input(f"x{i}", tuple(next(names) for _ in a.shape), a.dtype) for i, a in enumerate(arrays)]
    y = build(*nodes)
    floats = [x for x in nodes if x.dtype.kind == "f"]
    total = summed(y) if isinstance(y, gd.Node) else sum(map(summed, y))
    for outputs in (y, gd.grad(total, floats[-1]), gd.jvp(total, floats[:1], floats[:1])):
        with pytest.raises(gd.errors.ShapeError) as info:
            gd.function(nodes, outputs)(*arrays)
        assert str(info.value).startswith(message) and "test_sizes.py" in str(info.value)
        checked(2)


@pytest.mark.parametrize("f", [gd.subtract, gd.arctan2, gd.xlogy, gd.maximum, gd.power, gd.dot])
def test_a_derivative_alone_names_the_operation_whose_sizes_do_not_fit(f):
    x, y = gd.input("x", ("n",)), gd.input("y", ("m",))
    g = gd.grad(gd.sum(f(x, y)), [x, y])
    with pytest.raises(gd.errors.ShapeError, match=rf"^{f.__name__}: .*(sizes differ|do not broadcast)") as info:
        gd.function([x, y], g)(np.ones(4), np.ones(3))
    assert "reshape" not in str(info.value) and "test_sizes.py" in str(info.value)
    checked(2)


@pytest.mark.parametrize("build", [
    lambda x, w: gd.split(x, 2)[1] * w[0], lambda x, w: gd.squeeze(x[:1] * w, 0), lambda x, w: gd.squeeze(gd.sum(x, axis=0, keepdims=True), 0) * w,
    lambda x, w: gd.layer_norm(x, w, w), lambda x, w: gd.batch_norm(x, w, w), lambda x, w: gd.group_norm(x, 3, w, w), lambda x, w: gd.rms_norm(x, w),
    lambda x, w: gd.average(x, 1, w), lambda x, w: gd.losses.mse(x[0], w), lambda x, w: gd.losses.kl(gd.softmax(x[1]), gd.softmax(w))],
    ids=range(10))
def test_sizes_that_fit_change_nothing(build):
    arrays = np.arange(24.0).reshape(4, 6) % 7 + 0.5, np.arange(6.0) + 1
    results = []
    for shapes in ((("n", "m"), ("k",)), ((4, 6), (6,))):
        x, w = gd.input("x", shapes[0]), gd.input("w", shapes[1])
        y = build(x, w)
        g = gd.grad(summed(y), [x, w])
        results.append(gd.function([x, w], [y, *g, gd.jvp(y, [x, w], [x, w]), *gd.grad(summed(g[1]), [x, w])])(*arrays))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-12)
        checked()


PADS = [(2, ("n", "m")), (((0, 0), (1, 3)), ("n", "m")), (((4, 1), (2, 0)), ("n", 3)), (((0, 2), (0, 0), (5, 5), (1, 1)), ("n", 2, "m", "k"))]


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize(("width", "sizes"), PADS, ids=range(4))
def test_pads_by_what_is_there_of_named_sizes(mode, width, sizes):
    def made(shape):
        x = gd.input("x", shape)
        y = gd.pad(x, width, mode=mode)
        g = gd.grad(gd.sum(y * y * y), x)
        return y, gd.function([x], [y, g, gd.grad(gd.sum(g * g), x), gd.jvp(y, x, x * x)])

    y, named = made(sizes)
    assert y.shape == tuple(n + a + b for n, (a, b) in zip(gd.input("x", sizes).shape, np.broadcast_to(width, (len(sizes), 2)).tolist(), strict=True))
    for extent in ((1, 1, 1, 1), (2, 3, 2, 4), (7, 3, 4, 1), (3, 3, 9, 2)):
        shape = tuple(size if isinstance(size, int) else n for size, n in zip(sizes, extent, strict=False))
        x = np.random.default_rng(7).normal(size=shape)
        got, want = named(x), made(shape)[1](x)
        np.testing.assert_array_equal(got[0], np.pad(x, width, mode=mode))
        np.testing.assert_array_equal(got[3], want[3])
        for g, w in zip(got[1:3], want[1:3], strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12)
        checked(4)
    for at, x in ((0, np.ones((0, 3))), (1, np.ones((3, 0)))):
        f = gd.function([e := gd.input("e", ("n", "m"))], gd.pad(e, 1, mode=mode))
        with pytest.raises(gd.errors.ShapeError, match=rf"^pad: mode '{mode}' cannot extend axis {at} of size 0(.|\n)*test_sizes\.py:\d+"):
            f(x)
        checked()


def test_ranges_and_labels_of_named_sizes():
    x = gd.input("x", ("b", 3))
    labels = gd.input("labels", (3,), "int64")
    b = x.shape[0]
    f = gd.function([x, labels], [gd.arange(b), gd.arange(1, b + 1), gd.arange(2, b, 3), gd.arange(start=5, stop=b),
                                  gd.arange(0, b, 2, dtype="float32"), gd.one_hot(labels, b)])
    for n in (7, 9, 5):
        got = f(np.zeros((n, 3)), np.array([0, 4, n]))
        want = [np.arange(n), np.arange(1, n + 1), np.arange(2, n, 3), np.arange(5, n), np.arange(0, n, 2, dtype="float32"),
                np.eye(n + 1)[[0, 4, n], :n]]
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype and np.array_equal(g, w)
            checked()
    with pytest.raises(ValueError, match=r"arange: size b - 5 .* is negative: -3"):
        f(np.zeros((2, 3)), np.array([0, 1, 2]))
    for bad in (lambda: gd.arange(0.5, b), lambda: gd.arange(b, 0, -1), lambda: gd.arange(b, b + 3), lambda: gd.arange(0, b, 0)):
        with pytest.raises(TypeError, match=r"arange: with a named size as a bound, (start|step) is an int"):
            bad()
        checked()


def test_sizes_and_fractions():
    b = gd.input("x", ("b", 3)).shape[0]
    for bad in (lambda: b * 1.5, lambda: 1.5 + b, lambda: b - np.float32(2), lambda: b / 2, lambda: 1 / b, lambda: b // 0.5):
        with pytest.raises(TypeError, match=r"as a value in the graph, write gd\.size\(x, axis\)"):
            bad()
        checked()


MASK = np.array([True, False, True])


@pytest.mark.parametrize(("sizes", "make", "fits", "differs"), [
    (("a", "b"), lambda x: gd.einsum("ii->i", x), (3, 3), [(2, 3), (1, 3), (3, 0)]),
    (("a", "b"), lambda x: gd.einsum("ii->", x), (0, 0), [(0, 1)]),
    (("a", "b"), lambda x: gd.einsum("ij,jj->i", x, x), (2, 2), [(2, 3)]),
    (("a", "b", 2), lambda x: gd.einsum("iij->j", x), (4, 4, 2), [(3, 4, 2), (4, 1, 2)]),
    (("a", "b", 2), lambda x: gd.tensordot(x, x.transpose(1, 0, 2), ((0, 1), (0, 1))), (2, 2, 2), [(2, 6, 2), (1, 3, 2)]),
    (("n", 3), lambda x: gd.einsum("ii->i", x), (3, 3), [(5, 3), (1, 3)]),
    (("n", 3), lambda x: x[MASK], (3, 3), [(5, 3), (2, 3), (1, 3), (0, 3)]),
    (("n", 3), lambda x: x.at[MASK].set(0.0), (3, 3), [(5, 3), (2, 3), (1, 3)]),
    (("n", 3), lambda x: x.at[np.array([True])].add(1.0), (1, 3), [(5, 3), (0, 3)]),
])
def test_named_sizes_that_one_label_or_one_mask_makes_equal_are_checked(sizes, make, fits, differs):
    def compiled(shape):
        x = gd.input("x", shape)
        y = make(x)
        return gd.function([x], [y, gd.grad(gd.sum(y * y), x)])
    f = compiled(sizes)
    x = np.arange(1.0, 1 + np.prod(fits)).reshape(fits)
    for got, want in zip(f(x), compiled(fits)(x), strict=True):
        np.testing.assert_array_equal(got, want)
        checked()
    for shape in differs:
        with pytest.raises(GraphdiffError, match="test_sizes"):
            f(np.ones(shape))
        checked()


def test_arenas_of_sizes_called_long_ago_are_given_back(monkeypatch):
    from graphdiff.api import function as module
    x = gd.input("x", ("n", 64))
    f = gd.function([x], gd.sum(gd.sort(gd.sin(x), axis=0), axis=0))
    sizes = range(100, 160, 5)
    want = [f(np.full((n, 64), 0.5)) for n in sizes]
    held = [loaded for loaded in f._cache.values() if loaded.pool]
    assert len(held) == len(sizes)
    monkeypatch.setattr(module, "IDLE_NBYTES", 4 * max(loaded.idle_nbytes for loaded in held))
    for n, value in zip(sizes, want, strict=True):
        np.testing.assert_array_equal(f(np.full((n, 64), 0.5)), value)
        checked()
    f(np.ones((7, 64)))
    assert 1 <= sum(bool(loaded.pool) for loaded in f._cache.values()) < len(sizes) and len(f._cache) == len(sizes) + 1
    for n, value in zip(sizes, want, strict=True):
        np.testing.assert_array_equal(f(np.full((n, 64), 0.5)), value)
    assert sum(bool(loaded.pool) for loaded in f._cache.values()) < len(sizes)
