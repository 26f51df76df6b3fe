"""What a new user does wrong: messages name the function that was called and its line, and nothing is silently another thing."""
import copy
import pickle
import re

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import BadValue, OutOfBounds, ShapeError

HERE = r".*test_misuse\.py:\d+"


def rows_of(n):
    return np.arange(n * 4.0).reshape(n, 4) + 1


# -- errors when it runs -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("build", "kind", "message"), [
    (lambda x, i: gd.take(x, i, axis=0), OutOfBounds, r"^take: index 5 is out of bounds for axis 0 with size 3 \(at \[1\] of the indices\)"),
    (lambda x, i: gd.grad(gd.take(x, i, axis=0).sum(), x), OutOfBounds, r"^take: index 5 is"),
    (lambda x, i: gd.jvp(gd.take(x, i, axis=0), x, x), OutOfBounds, r"^take: index 5 is"),
    (lambda x, i: x[i], OutOfBounds, r"^x\[\.\.\.\]: index 5 is .* \(at \[1\] of the indices\)"),
    (lambda x, i: x[:, 1][i], OutOfBounds, r"^x\[\.\.\.\]: index 5 is"),
    (lambda x, i: x[i[:, None], i], OutOfBounds, r"^x\[\.\.\.\]: index 5 is out of bounds for axis 1 with size 4 \(at \[1\] of the indices\)"),
    (lambda x, i: x[3], OutOfBounds, r"^x\[\.\.\.\]: index 3 is out of bounds for axis 0 with size 3"),
    (lambda x, i: x.at[i].set(1.0), OutOfBounds, r"^x\.at\[\.\.\.\]\.set: index 5 is"),
    (lambda x, i: x.at[i].add(1.0), OutOfBounds, r"^x\.at\[\.\.\.\]\.add: index 5 is"),
    (lambda x, i: gd.take_along_axis(x, gd.broadcast_to(i, (3, 2)), 1), OutOfBounds, r"^take_along_axis: index 5 is .* \(at \[0, 1\] of the ind"),
    (lambda x, i: gd.segment_sum(gd.stack([i, i]), i, 4), OutOfBounds, r"^segment_sum: index 5 is out of bounds for axis 0 with size 4"),
    (lambda x, i: gd.top_k(x, 5, axis=0), ShapeError, r"^top_k: element 4 of axis 0 is asked for, which has size 3"),
    (lambda x, i: gd.max(x[3:], axis=0), ShapeError, r"^max: .* axis 0 has size 0"),
    (lambda x, i: x.reshape(5, -1), ShapeError, r"^reshape: cannot reshape \[3, 4\]"),
    (lambda x, i: gd.reshape(x, ("q", 2)), ShapeError, r"^reshape: .*'q'"),
    (lambda x, i: gd.broadcast_to(x, ("z", "n", 4)), ShapeError, r"^broadcast_to: .*'z'"),
    (lambda x, i: gd.ones(("z", 2)) + 1, ShapeError, r"'z'"),
    (lambda x, i: i ** -i, BadValue, r"^power: integers to negative"),
], ids=range(18))
def test_errors_of_a_call_name_the_function_and_line_the_user_wrote(build, kind, message):
    x, i = gd.input("x", ("n", 4)), gd.input("i", (2,), "int64")
    y = build(x, i)
    f = gd.function([x, i], y)
    with pytest.raises(kind, match=message) as info:
        f(rows_of(3), [2, 5])
    assert re.search(HERE, str(info.value), re.DOTALL)
    checked(2)


def test_a_wrong_label_is_named_with_its_sample():
    z, t = gd.input("z", (4, 3)), gd.input("t", (4,), "int64")
    for loss in (gd.losses.cross_entropy, gd.losses.nll):
        f = gd.function([z, t], loss(z, t))
        with pytest.raises(OutOfBounds, match=rf"^{loss.__name__}: index 7 is out of bounds for axis 1 with size 3 \(at \[2\] of the indices\)"):
            f(np.ones((4, 3)), [0, 1, 7, 9])
        with pytest.raises(OutOfBounds, match=rf"{loss.__name__}.*index -1 is out of bounds for axis 1 with size 3 \(at \[3\] of the indices\)"):
            gd.evaluate(loss(z, np.array([0, 1, 2, -1])), {z: np.ones((4, 3))})
    image, u = gd.input("z", (2, 3, 4, 5)), gd.input("t", (2, 4, 5), "int64")
    labels = np.zeros((2, 4, 5), int)
    labels[1, 2, 3] = 3
    with pytest.raises(OutOfBounds, match=r"index 3 .*\(at \[1, 2, 3\] of the indices\)"):
        gd.evaluate(gd.losses.cross_entropy(image, u, axis=1), {image: np.ones((2, 3, 4, 5)), u: labels})
    checked(5)


def test_a_function_inside_another_is_named_after_it_when_built():
    x, i = gd.input("x", ("n", 4)), gd.input("i", ("m", 1), "int64")
    with pytest.raises(ShapeError, match=r"(?s)^take_along_axis: broadcast_to: cannot broadcast \[m, 1\] to \[n, 1\]" + HERE):
        gd.take_along_axis(x, i, 1)
    with pytest.raises(ShapeError, match=r"(?s)^matmul: " + HERE):
        rows_of(3) @ gd.input("y", (3, 4))


def test_the_called_function_survives_a_pickle():
    x, i = gd.input("x", (3, 4)), gd.input("i", (2,), "int64")
    f = pickle.loads(pickle.dumps(gd.function([x, i], gd.take(x, i, axis=0))))
    with pytest.raises(OutOfBounds, match="(?s)^take: index 5" + HERE):
        f(rows_of(3), [0, 5])


# -- named sizes that turn out 0 -----------------------------------------------------------------------------------

NOTHING = {
    "median": (lambda x: gd.median(x, axis=0), np.full(4, np.nan)), "median of all": (lambda x: gd.median(x), np.array(np.nan)),
    "median of integers": (lambda x: gd.median(x.astype("int64"), axis=0), np.full(4, np.nan)),
    "cumprod": (lambda x: gd.cumprod(x, axis=0), np.zeros((0, 4))), "prod": (lambda x: gd.prod(x, axis=0), np.ones(4)),
    "vector_norm": (lambda x: gd.vector_norm(x, axis=0), np.zeros(4)), "norm inf": (lambda x: gd.vector_norm(x, axis=0, ord=np.inf), np.zeros(4)),
    "matrix inf": (lambda x: gd.norm(x, np.inf), np.array(0.0)), "norm -1": (lambda x: gd.vector_norm(x, axis=0, ord=-1), np.full(4, np.inf)),
    "sort": (lambda x: gd.sort(x, axis=0), np.zeros((0, 4))), "cumsum": (lambda x: gd.cumsum(x, axis=0), np.zeros((0, 4)))}


@pytest.mark.parametrize("name", NOTHING)
def test_derivatives_over_a_named_size_that_turns_out_0(name):
    f, want = NOTHING[name]
    x, v, w = gd.input("x", ("n", 4)), gd.input("v", ("n", 4)), gd.input("w", (4,))
    y = f(x * w)
    at = {x: np.zeros((0, 4)), v: np.zeros((0, 4)), w: np.ones(4)}
    np.testing.assert_array_equal(gd.evaluate(y, at), want)
    if name != "median of integers":
        g = gd.grad(gd.sum(y), x)
        assert gd.evaluate(g, at).shape == (0, 4)
        assert gd.evaluate(gd.grad(gd.sum(y), w), at).tolist() == [0.0] * 4
        assert gd.evaluate(gd.jvp(y, x, v), at).shape == want.shape
        if name not in ("sort", "cumsum", "median", "median of all"):
            assert gd.evaluate(gd.grad(gd.sum(g * v), w, unconnected="zero"), at).tolist() == [0.0] * 4
    checked(4)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
@pytest.mark.parametrize("name", ["median", "norm inf", "matrix inf", "median of all"])
def test_a_named_size_gives_what_its_number_gives(name, size):
    f, _ = NOTHING[name]
    a = np.random.default_rng(size).normal(size=(size, 4))
    values = []
    for n in ("n", size):
        x, v = gd.input("x", (n, 4)), gd.input("v", (n, 4))
        y = f(x)
        values.append(gd.evaluate([y, gd.grad(gd.sum(y), x), gd.jvp(y, x, v)], {x: a, v: a[::-1]}))
    for named, known in zip(*values, strict=True):
        np.testing.assert_array_equal(named, known)
    checked(3)


def test_sizes_that_differ_are_refused_beside_an_empty_one():
    x, y = gd.input("x", ("n", 4)), gd.input("y", ("n", 4))
    f = gd.function([x, y], gd.grad(gd.sum(x * y), x))
    with pytest.raises(ShapeError):
        f(np.zeros((0, 4)), np.zeros((2, 4)))


# -- pickles and copies --------------------------------------------------------------------------------------------

def test_a_bound_call_says_what_to_pickle_and_copy():
    x = gd.input("x", (3, 4))
    call = gd.function([x], x * 2).bind(rows_of(3))
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, lambda c: pickle.dumps([c])):
        with pytest.raises(TypeError, match=r"bound call cannot be pickled or copied.*call\.function"):
            attempt(call)
    again = pickle.loads(pickle.dumps(call.function)).bind(rows_of(3))
    np.testing.assert_array_equal(again(), call())
    checked(5)


# -- arrays handed out ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (3, 2), (0, 2), (1,)])
def test_arrays_that_are_read_only_stay_so(shape, dtype):
    a = np.ones(shape, dtype)
    w, c = gd.variable(a), gd.constant(a)
    x = gd.input("x", shape, dtype)
    t = gd.trace(x, at={x: a})
    for shown in (w.value, c.value, c.attrs["value"], w.value[...], w.value.view(), t[x].value):
        assert shown.dtype is w.dtype and shown.shape == shape and not shown.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            shown.flags.writeable = True
        np.testing.assert_array_equal(shown, a)
    held = w.value
    w.value = np.zeros(shape, dtype)
    assert not held.any() and not pickle.loads(pickle.dumps(w)).value.any() and copy.deepcopy(w).value.shape == shape
    checked(15)
