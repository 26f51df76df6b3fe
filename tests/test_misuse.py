"""What a new user does wrong: messages name the function that was called and its line, and nothing is silently another thing."""
import copy
import inspect
import pickle
import re
import types

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import BadValue, GraphdiffError, NodeTypeError, OutOfBounds, ShapeError

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
    (lambda x, i: gd.expand_dims(x, 1)[i[:, None], :, i], OutOfBounds, r"^x\[\.\.\.\]: index 5 is out of bounds for axis 2 with size 4 \(at \[1\] of"),
    (lambda x, i: x.T[i, 0 * i], OutOfBounds, r"^x\[\.\.\.\]: index 5 is out of bounds for axis 0 with size 4 \(at \[1\] of"),
    (lambda x, i: gd.reshape(x.T, -1)[i * 3], OutOfBounds, r"^x\[\.\.\.\]: index 15 is out of bounds for axis 0 with size 12 \(at \[1\] of"),
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
], ids=range(21))
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


@pytest.mark.parametrize("build", [
    gd.losses.nll, lambda d, t: gd.losses.cross_entropy(d, t, axis=1), lambda d, t: gd.segment_sum(d, t, 3), lambda d, t: gd.segment_mean(d, t, 3),
    lambda d, t: gd.segment_max(d, t, 3), lambda d, t: gd.nn.Embedding(3, 2)(t), lambda d, t: d.T[t], lambda d, t: d.T[t.astype("int32")],
    lambda d, t: gd.grad(gd.sum(d.T[t] ** 2), d), lambda d, t: gd.nn.GraphLayer(3, 2, dtype="float64")(d, t, np.array([0, 1]))[1],
    lambda d, t: d.T.at[t].add(1.0), lambda d, t: d[t - t, t]], ids=range(12))
def test_an_index_out_of_bounds_names_the_array_the_user_gave(build):
    d, t = gd.input("scores", (2, 3)), gd.input("answers", (2,), "int64")
    y = build(d, t)
    at = {d: np.ones((2, 3)), t: [1, 3]}
    for call in (lambda: gd.evaluate(y, at), lambda: gd.trace(y, at=at), lambda: gd.function([d, t], y)(*at.values())):
        with pytest.raises(OutOfBounds, match=r"(?m)^  indices  answers +int(64|32)\[2\]") as info:
            call()
        assert "where" not in str(info.value) and "reshape" not in str(info.value)
        assert len(re.findall(r"(?m)^  at ", str(info.value))) == 1
        checked(3)


@pytest.mark.parametrize(("shape", "axis", "index", "fits"), [
    ((3, 0), 0, [0, 9], False), ((3, 0), 0, [0, -4], False), ((3, 0), 0, [2, -3], True), ((0, 3), 1, [9], False), ((0, 3), 1, [-3, 2], True),
    ((0, 0), 0, [0], False), ((0, 0), 1, [0], False), ((2, 3, 0), 1, [3], False), ((3, 0), 0, [], True)])
def test_indices_are_looked_at_where_there_is_nothing_to_take(shape, axis, index, fits):
    a, at = np.zeros(shape), np.array(index, np.int64)
    place = (slice(None),) * axis
    for sizes in (shape, tuple("abc"[:len(shape)])):
        x, i = gd.input("x", sizes), gd.input("i", at.shape, "int64")
        for y in (x[(*place, i)], gd.take(x, i, axis=axis)):
            for passes in (None, ()):
                f = gd.function([x, i], y, passes=passes)
                if fits:
                    assert f(a, at).shape == a[(*place, at)].shape
                else:
                    with pytest.raises(OutOfBounds, match=rf"is out of bounds for axis {axis} with size {shape[axis]}"):
                        f(a, at)
                    with pytest.raises(IndexError):
                        a[(*place, at)]
                checked(1)


def test_a_missing_value_has_one_place():
    x, q = gd.input("x"), gd.input("q")
    for call in (lambda: gd.evaluate(x * q, {x: 1.0}), lambda: gd.trace(x * q, at={x: 1.0}), lambda: gd.evaluate(x * q, {x: 1.0, q: "a"})):
        with pytest.raises(TypeError) as info:
            call()
        assert len(re.findall(r"(?m)^  at ", str(info.value))) == 1 and "  operand" not in str(info.value)
        checked(2)


N = gd.input("x", ("b",)).shape[0]


@pytest.mark.parametrize("call", [
    lambda: np.sqrt(N), lambda: 1 / N**0.5, lambda: np.ones(2) * N, lambda: N - np.arange(3), lambda: np.maximum(N, 3), lambda: np.add.reduce(N),
    lambda: np.float32(2) * N, lambda: gd.constant(N), lambda: gd.constant([N, 1]), lambda: gd.variable(N), lambda: gd.add(gd.input("y", (2,)), [N, N])],
    ids=range(11))
def test_a_named_size_where_numbers_are_needed_is_told_to_be_one(call):
    with pytest.raises(NodeTypeError, match=r"the size b\b.*as a value in the graph, write gd\.size\(x, axis\)"):
        call()
    checked(1)


def test_numpys_integers_compute_with_named_sizes():
    assert str([np.int64(3) * N, np.uint8(2) - N, np.int32(7) // N, N ** np.int64(2), np.array(3) + N]) == "[b*3, 2 - b, 7//b, b**2, b + 3]"
    assert np.int64(-1) < N and (np.int64(3) == N) is False and (np.ones(2) != N) is True
    s = gd.input("s")
    assert [y.op.name for y in (np.add(N, s), np.multiply(s, N), N * s)] == ["add", "multiply", "multiply"]
    checked(3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x, f: np.array([x, x]), r"or gd\.stack\(\[node, \.\.\.\]\) for a list of nodes"),
    (lambda x, f: gd.constant([x[0], x[1]]), r"(?s)^constant: .*a list that holds nodes.*hint    gd\.stack"),
    (lambda x, f: f([x[0], x[1]]), "^argument x: a list that holds nodes was given"),
    (lambda x, f: gd.vecdot(gd.input("a", (5, 4)), gd.input("b", (6, 4))), r"^vecdot: shapes \[5\] and \[6\] do not broadcast"),
    (lambda x, f: gd.vecdot(gd.input("a", (4, 2, 5)), gd.input("b", (4, 3, 6)), axis=0), r"^vecdot: shapes \[2, 5\] and \[3, 6\] do not broadcast"),
    (lambda x, f: f(out=np.ones(2)), r"(?s)^function takes 1 arguments \(x\), 0 given; missing: x$"),
    (lambda x, f: gd.function([gd.input("out")], gd.constant(1.0))(out=3.0), r"missing: out\n  hint    out= takes arrays for the results: an"),
    (lambda x, f: gd.function([gd.input("out")], gd.constant(1.0)).bind(out=3.0), r"(?s)missing: out\n  hint    out= takes arrays"),
], ids=range(8))
def test_messages_name_what_the_user_gave(call, message):
    x = gd.input("x", (2,))
    with pytest.raises(GraphdiffError, match=message):
        call(x, gd.function([x], x))
    checked(1)


def test_hints_about_a_dtype_are_given_where_a_dtype_was():
    for make in (gd.variable, gd.constant):
        for name, hint in ((3, False), ([1], False), (np.float32, True), (np.dtype("f4"), True), (float, True), ("float32", True)):
            with pytest.raises(NodeTypeError) as info:
                make([1, 2], name)
            assert ("array of th" in str(info.value)) == hint
            checked(1)


def test_a_segment_does_not_count_from_the_end():
    x, i = gd.input("x", (3, 2)), gd.input("i", (3,), "int64")
    for f in (gd.segment_sum, gd.segment_mean, gd.segment_max):
        with pytest.raises(OutOfBounds, match=rf"{f.__name__}: index -1 is out of bounds for axis 0 with size 3 \(at \[1\] of the indices\)"):
            gd.evaluate(f(x, i, 3), {x: np.ones((3, 2)), i: [0, -1, 2]})
        with pytest.raises(OutOfBounds, match=rf"{f.__name__}: .*index -1 is out of bounds"):
            f(np.ones((3, 2)), [0, -1, 2], 3)
        checked(2)


def test_a_function_inside_another_is_named_after_it_when_built():
    with pytest.raises(ShapeError, match=r"(?s)^append: concatenate: operand 0 has 2 axes, operand 1 has 1" + HERE):
        gd.append(gd.input("x", ("n", 4)), gd.input("y", ("m",)), axis=0)
    x, y = gd.input("x", (3, 4)), gd.input("y", (3,))
    with pytest.raises(ShapeError, match=r"(?s)^trapezoid: multiply: shapes \[1, 2\] and \[3, 3\] do not broadcast" + HERE):
        gd.trapezoid(x, y, axis=1)
    with pytest.raises(ShapeError, match=r"(?s)^isclose: subtract: shapes \[3, 4\] and \[3\] do not broadcast" + HERE):
        gd.isclose(x, y)
    checked(4)
    with pytest.raises(ShapeError, match=r"(?s)^matmul: " + HERE):
        rows_of(3) @ gd.input("y", (3, 4))


def test_helpers_inside_are_not_named():
    x, i = gd.input("x", (3, 4)), gd.input("i", (2,), "int64")
    for call, start in ((lambda: x + "a", "add: the right operand: dtype <U1"),
                        (lambda: gd.maximum(x, None), "maximum: .*type NoneType is neither a node nor"),
                        (lambda: x < object(), "less: .*type object is neither"),
                        (lambda: gd.where(x > 0, x, "a"), "where: y: dtype <U1"), (lambda: gd.exp("a"), "exp: dtype <U1"),
                        (lambda: x @ "a", "matmul: y: dtype <U1"),
                        (lambda: x + np.ones(3), r"add: shapes \[3, 4\] and \[3\]"), (lambda: gd.mean("a"), "mean: x: dtype <U1"),
                        (lambda: -x[5], r"x\[\.\.\.\]: index 5"), (lambda: gd.take(x, [99]), "take: index 99"),
                        (lambda: x.at[9].set(1.0), r"x\.at\[\.\.\.\]\.set: index 9"),
                        (lambda: x.at[i].add(np.ones((5, 5))), r"x\.at\[\.\.\.\]\.add: value"),
                        (lambda: x / "a", "divide: the right operand: dtype"), (lambda: x ** "a", "power: the exponent: dtype"),
                        (lambda: i % "a", "remainder: the right operand: dtype"), (lambda: gd.floor("a"), "floor: x: dtype"),
                        (lambda: gd.arctan2(x, i[:1][:, None][:, :, None] + "a"), "add: the right operand: dtype"),
                        (lambda: gd.random.normal(3.5, (3,)), "normal: a key is"), (lambda: gd.nn.Dense(3, 4)(x), "dense: "),
                        (lambda: gd.sum(x, 5), "sum: axis 5")):
        with pytest.raises(GraphdiffError, match=f"(?s)^{start}" + HERE):
            call()
        checked()


def test_the_called_function_survives_a_pickle():
    x, i = gd.input("x", (3, 4)), gd.input("i", (2,), "int64")
    f = pickle.loads(pickle.dumps(gd.function([x, i], gd.take(x, i, axis=0))))
    with pytest.raises(OutOfBounds, match="(?s)^take: index 5" + HERE):
        f(rows_of(3), [0, 5])


@pytest.mark.parametrize(("build", "message"), [
    (lambda x, v, i: gd.attention(x[:2], x, v), "^attention: there are 4 keys and 5 values"),
    (lambda x, v, i: gd.grad(gd.sum(gd.attention(x[:2], x, v)), x), "^attention: there are 4 keys and 5 values"),
    (lambda x, v, i: gd.attention(x.T, v, v), "^attention: q has vectors of 4 elements, k of 3"),
    (lambda x, v, i: gd.segment_max(x, i, 3), r"^segment_max: segment_ids must be one id a row: 5 for data of 4 rows"),
    (lambda x, v, i: gd.segment_sum(x, i, 3), "^segment_sum: segment_ids must be one id a row: 5 for data of 4 rows")])
def test_named_sizes_that_turn_out_different_are_told_as_what_they_are(build, message):
    x, v, i = gd.input("x", ("n", 3)), gd.input("v", ("m", 3)), gd.input("i", ("m",), "int64")
    f = gd.function([x, v, i], build(x, v, i))
    with pytest.raises(ShapeError, match="(?s)" + message + HERE):
        f(np.ones((4, 3)), np.ones((5, 3)), np.zeros(5, "int64"))
    checked()


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


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.parametrize("name", NOTHING)
def test_derivatives_over_a_slice_of_a_named_size(name, rows):
    """x[2:] has no row where x has two or fewer; where it has some, it is what a slice of so many rows is."""
    f, want = NOTHING[name]
    a = np.random.default_rng(rows).normal(size=(rows, 4))
    values = []
    for n in ("n", rows):
        x, v = gd.input("x", (n, 4)), gd.input("v", (n, 4))
        if n != "n" and rows <= 2:
            continue
        y = f(x[2:])
        wanted = [y]
        if name != "median of integers":
            g = gd.grad(gd.sum(y), x)
            wanted += [g, gd.jvp(y, x, v), gd.grad(gd.sum(g * v), x, unconnected="zero")]
        values.append(gd.evaluate(wanted, {x: a, v: a[::-1]}))
    if rows <= 2:
        (named,) = values
        np.testing.assert_array_equal(named[0], want)
        for got in named[1:]:
            assert not got.any()
    else:
        for named, known in zip(*values, strict=True):
            np.testing.assert_allclose(named, known, rtol=1e-13, atol=1e-13)
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
    trace = gd.trace(gd.sum(x * 2), at={x: rows_of(3)})
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="trace cannot be pickled or copied"):
            attempt(trace)
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


# -- options -------------------------------------------------------------------------------------------------------

def _norms(**options):
    x = gd.input("x", (4, 6))
    return (lambda: gd.layer_norm(x, **options), lambda: gd.batch_norm(x, **options), lambda: gd.group_norm(x, 2, **options),
            lambda: gd.rms_norm(x, **options))


@pytest.mark.parametrize("eps", ["a", None, np.nan, True, -1.0, np.inf, [1e-5], -1e-300, 1j, np.bool_(True)])
def test_eps_is_a_number_of_at_least_0(eps):
    for call in _norms(eps=eps):
        with pytest.raises(GraphdiffError, match=r"(?s)_norm: eps must be" + HERE):
            call()
    for layer in (gd.nn.BatchNorm, gd.nn.LayerNorm, gd.nn.RMSNorm):
        with pytest.raises(GraphdiffError, match="eps is a number above 0"):
            layer(3, eps=eps)
    checked(7)


def test_eps_may_be_0_and_numpys():
    for eps in (0, 0.0, np.float32(1e-3), np.int64(1), 1e-30):
        for call in _norms(eps=eps):
            assert call().dtype == np.float64
    x = gd.input("x", (4,), "float32")
    assert gd.layer_norm(x, eps=np.float64(1e-5)).dtype == np.float32
    np.testing.assert_allclose(gd.evaluate(gd.layer_norm(x, eps=0), {x: np.array([1, 2, 3, 4], "float32")}),
        (np.arange(4) - 1.5) / np.sqrt(1.25), rtol=1e-6)
    checked(22)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: gd.top_k(x, 2, indices=3), "top_k: indices must be True or False, not 3"), (lambda x: gd.top_k(x, True), "top_k: k must be"),
    (lambda x: gd.top_k(x, 2, indices="no"), "top_k: indices must be"), (lambda x: gd.gelu(x, approximate=3), "gelu: approximate must be"),
    (lambda x: gd.gelu(x, approximate="erf"), "gelu: approximate must be"), (lambda x: gd.gelu(x, approximate=None), "gelu: approximate must be"),
    (lambda x: gd.einsum("ij,ij->i", x, x, optimize="nonsense"), "einsum: optimize is"),
    (lambda x: gd.einsum("ij->i", x, optimize=3), "einsum: optimize is"),
    (lambda x: gd.einsum("ij->i", x, order="Z"), "einsum: order is"), (lambda x: gd.einsum("ij->i", x, casting=0), "einsum: casting is"),
    (lambda x: gd.function([x], x + 1, threads=10**9), "function: threads must be an int from 1 to 1,024"),
    (lambda x: gd.function([x], x + 1, threads=-1), "function: threads must be"),
    (lambda x: gd.function([x], x + 1, threads=0), "function: threads must be"),
    (lambda x: gd.std(x, ddof=np.nan), "std: ddof must be"), (lambda x: gd.var(x, ddof=np.inf), "var: ddof must be"),
    (lambda x: gd.var(x, correction="a"), "var: correction must be"), (lambda x: gd.sort(x, stable="no"), "sort: stable must be"),
    (lambda x: gd.argsort(x, stable=3), "argsort: stable must be"), (lambda x: gd.isclose(x, x, rtol=np.nan), "isclose: rtol must be"),
    (lambda x: gd.isclose(x, x, atol=-1), "isclose: atol must be"), (lambda x: gd.allclose(x, x, rtol="a"), "allclose: isclose: rtol must be"),
    (lambda x: gd.isclose(x, x, equal_nan="no"), "isclose: equal_nan must be"), (lambda x: gd.celu(x, alpha=0), "celu: alpha must be"),
    (lambda x: gd.celu(x, alpha=-1.0), "celu: alpha must be"), (lambda x: gd.elu(x, alpha=np.nan), "elu: alpha must be"),
    (lambda x: gd.elu(x, alpha="a"), "elu: alpha must be"), (lambda x: gd.leaky_relu(x, slope=True), "leaky_relu: slope must be"),
    (lambda x: gd.cumulative_sum(x[0], include_initial="no"), "cumulative_sum: include_initial must be"),
    (lambda x: gd.vector_norm(x, keepdims=2), "vector_norm: keepdims must be"),
    (lambda x: gd.softmax(x, temperature=True), "softmax: temperature must be"),
    (lambda x: gd.linspace("a", 1), "linspace: start must be"), (lambda x: gd.linspace(0, None), "linspace: stop must be"),
    (lambda x: gd.linspace(0, 1j), "linspace: stop must be"), (lambda x: gd.linspace(0, 1, axis=2.0), "linspace: an axis is a whole number"),
    (lambda x: gd.linspace(0, 1, axis=10**30), "linspace: axis .* is out of bounds"), (lambda x: gd.rot90(x, axes=None), "rot90: axes must be"),
    (lambda x: gd.random.normal(np.ones(2), (3,)), "normal: a key is int64"), (lambda x: gd.dropout(x, 0.5, 3.7), "dropout: .*a key is int64"),
    (lambda x: gd.random.split(gd.random.key(0), True), "split: n must be"),
    (lambda x: gd.conv(x[None, None], x[None, None], bias="a"), "conv: bias: dtype"),
    (lambda x: gd.layer_norm(x, gamma="a"), "layer_norm: gamma: dtype"), (lambda x: gd.layer_norm(x, beta=object()), "layer_norm: beta: .*type object is"),
    (lambda x: gd.losses.hinge(x, gd.sign(x), margin=-1.0), "hinge: margin is"), (lambda x: gd.draw(x, fold="no"), "draw: fold must be"),
], ids=range(44))
def test_options_that_cannot_be_meant_are_refused_by_name(call, message):
    with pytest.raises(GraphdiffError, match=rf"(?s)^{message}") as info:
        call(gd.input("x", (4, 6)))
    assert "draw:" in message or re.search(HERE, str(info.value), re.DOTALL)


def test_options_of_optimisers_and_layers_are_refused_when_they_are_made():
    for method in ("GradientDescent", "Momentum", "Nesterov", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "NAdam", "AMSGrad"):
        with pytest.raises(NodeTypeError, match=f"^{method}: there is no option 'decay'"):
            getattr(gd.optim, method)(decay=0.1)
    for wrong in ({"window": 0}, {"window": 2, "stride": -1}, {"window": 2, "padding": "a"}, {"window": 2, "ceil_mode": 3}, {"window": 2,
        "nonsense": 1}):
        for pool in (gd.nn.MaxPool, gd.nn.AvgPool):
            with pytest.raises(GraphdiffError):
                pool(**wrong)
    for layer in (gd.nn.Dense, gd.nn.LSTM):
        with pytest.raises(NodeTypeError, match="init: a name, a function or an array is needed, not object"):
            layer(2, 3, init=object())
    with pytest.raises(ShapeError, match=r"init: an array of shape \[2, 3\] is needed, not of \[2\]"):
        gd.nn.Dense(2, 3, init=[1.0, 2.0])
    checked(23)


def test_options_at_the_border_are_taken():
    a = np.linspace(-3, 3, 24).reshape(4, 6)
    x = gd.input("x", (4, 6))
    for option, same in ((True, "tanh"), (False, "none")):
        np.testing.assert_array_equal(gd.evaluate(gd.gelu(x, approximate=option), {x: a}), gd.evaluate(gd.gelu(x, approximate=same), {x: a}))
    for optimize in (True, False, None, "greedy", "optimal", ["einsum_path", (0, 1)]):
        np.testing.assert_allclose(gd.evaluate(gd.einsum("ij,kj->ik", x, x, optimize=optimize), {x: a}), a @ a.T, rtol=1e-12)
    np.testing.assert_array_equal(gd.evaluate(gd.isclose(x, x + 1, rtol=np.full(6, 0.5), atol=0.1), {x: a}), np.isclose(a, a + 1,
        np.full(6, 0.5), 0.1))
    np.testing.assert_allclose(gd.evaluate(gd.var(x, ddof=np.int64(1)), {x: a}), a.var(ddof=1), rtol=1e-13)
    np.testing.assert_allclose(gd.evaluate(gd.linspace([0, 1], 2.0, 3, axis=-1), {}), np.linspace([0, 1], 2.0, 3, axis=-1))
    assert gd.function([x], x + 1, threads=1024)(a).shape == (4, 6)
    alpha = gd.input("alpha")
    assert gd.evaluate(gd.celu(x, alpha), {x: a, alpha: 2.0}).shape == (4, 6)
    assert gd.diff(x, 10**30).shape == (4, 0) and gd.diff(x, 6).shape == (4, 0)
    checked(12)


# -- NumPy's signatures --------------------------------------------------------------------------------------------

A = np.array([[3.0, -1.0, 2.0, 0.5], [1.0, 7.0, -2.0, 4.0], [-3.0, 0.25, 5.0, 6.0]])
MASK = np.array([[True, False, True, True], [False, True, True, False], [True, True, False, True]])

SIGNATURES = [
    lambda f, a: f.sum(a, 0, None), lambda f, a: f.sum(a, 0, None, None, True), lambda f, a: f.sum(a, 0, None, None, True, 5.0, MASK),
    lambda f, a: f.sum(a, where=MASK), lambda f, a: f.sum(a, 1, initial=2), lambda f, a: f.sum(a, where=MASK[0], initial=0.5),
    lambda f, a: f.prod(a, 1, None, None, True, 2.0, MASK), lambda f, a: f.prod(a, initial=0.5, where=MASK),
    lambda f, a: f.max(a, 0, None, True, -9.0, MASK), lambda f, a: f.max(a, initial=6.5), lambda f, a: f.min(a, 1, initial=0.0, where=MASK[:, :1]),
    lambda f, a: f.min(a, (0, 1), None, True), lambda f, a: f.max(a[:0], 0, initial=-1.0), lambda f, a: f.max(a[:, :0], 1, None, True, 3.0),
    lambda f, a: f.mean(a, 1, None, None, True), lambda f, a: f.mean(a, 0, where=MASK), lambda f, a: f.mean(a, where=MASK, keepdims=True),
    lambda f, a: f.any(a > 5, 0, None, True), lambda f, a: f.any(a > 5, 1, where=MASK), lambda f, a: f.all(a > -2, 0, None, where=MASK),
    lambda f, a: f.std(a, 0, None, None, 1), lambda f, a: f.std(a, 1, where=MASK), lambda f, a: f.var(a, 1, None, None, 1, True, where=MASK),
    lambda f, a: f.var(a, (0, 1), correction=1, where=MASK), lambda f, a: f.var(a, 1, None, None, 1.5, where=MASK), lambda f, a: f.argmax(a, 1, None),
    lambda f, a: f.argmin(a, 0, None, keepdims=True), lambda f, a: f.ptp(a, 1, None, True), lambda f, a: f.median(a, 0, None, False, True),
    lambda f, a: f.cumsum(a, 1, None, None), lambda f, a: f.cumprod(a, 1, None, None), lambda f, a: f.count_nonzero(a > 1, 0, keepdims=True),
    lambda f, a: f.average(a, 0, None, False), lambda f, a: a.sum(0, None, None, True, 1.0, MASK), lambda f, a: a.mean(1, None, None, True),
    lambda f, a: a.std(0, None, None, 1), lambda f, a: a.max(1, None, True, 6.5), lambda f, a: f.sum(a > 1, 0, initial=3)]


@pytest.mark.parametrize("call", SIGNATURES, ids=range(len(SIGNATURES)))
def test_reductions_take_what_numpys_take(call):
    with np.errstate(all="ignore"):
        want = call(np, A)
    x = gd.input("x", A.shape)
    for built in (call(gd, x), call(np, x)):
        got = gd.evaluate(built, {x: A})
        assert got.dtype == np.asarray(want).dtype and got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-13)
    checked(6)


def test_more_calls_of_numpys_go_through_its_protocol():
    x, i = gd.input("x", A.shape), np.array([0, 5, -9])
    for call in (lambda a: np.take(a, i, 1, None, "clip"), lambda a: np.clip(a, 0, 3, None), lambda a: np.add.reduce(a, 0, where=MASK, initial=2.0),
                 lambda a: np.maximum.reduce(a, axis=1, initial=4.0), lambda a: np.round(a, 1, None), lambda a: np.divmod(a, 2.0)[0],
                 lambda a: np.divmod(a, 2.0)[1], lambda a: np.sum(a, 0, keepdims=np._NoValue)):
        np.testing.assert_allclose(gd.evaluate(call(x), {x: A}), call(A), rtol=1e-14)
    checked(8)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: gd.sum(x, 0, None, np.zeros(4)), r"sum: out: a node cannot be written"),
    (lambda x: np.sum(x, 0, out=np.zeros(4)), r"np\.sum: out: a node"),
    (lambda x: np.sum(x, 0, None, np.zeros(4)), r"np\.sum: out: a node"), (lambda x: gd.max(x, 0, True), r"max: out: a node"),
    (lambda x: gd.cumsum(x, 0, None, np.zeros(4)), "cumsum: out: "), (lambda x: gd.median(x, 0, True), "median: out: "),
    (lambda x: gd.max(x, where=MASK), "max: where needs initial"), (lambda x: gd.sum(x, where=np.ones(3, bool)), r"sum: where has shape \[3\]"),
    (lambda x: gd.sum(x[0], where=MASK), r"sum: where has shape \[3, 4\]"), (lambda x: gd.mean(x, where=x), "mean: where must be a mask of bools"),
    (lambda x: gd.sum(x, where=None), "sum: where: "), (lambda x: gd.sum(x, where="a"), "sum: where: "),
    (lambda x: gd.sum(x, initial="a"), "sum: initial: "), (lambda x: gd.sum(x, initial=np.ones(2)), "sum: initial is one number"),
    (lambda x: gd.sum(x > 0, initial=0.5), "sum: initial is 0.5, the result int64"),
    (lambda x: gd.max(x.astype("uint8"), initial=300), "max: Python integer 300 out of bounds"), (lambda x: gd.std(x, mean=0.0), "std: .*'mean'"),
    (lambda x: np.std(x, mean=0.0), "std: .*'mean'"), (lambda x: gd.argmax(x, where=MASK), "argmax: .*'where'")], ids=range(19))
def test_arguments_of_reductions_that_are_refused_are_named(call, message):
    with pytest.raises(GraphdiffError, match=rf"(?s)^{message}" + HERE):
        call(gd.input("x", A.shape))


def test_masked_elements_have_no_derivative_whatever_they_are():
    x, m = gd.input("x", ("n", 4)), gd.input("m", (4,), "bool")
    bad = A.copy()
    bad[:, 1] = np.nan
    bad[0, 3] = np.inf
    at = {x: bad, m: [True, False, True, False]}
    good = A[:, [0, 2]]
    for f, want in ((gd.sum, np.ones((3, 2))), (gd.mean, np.full((3, 2), 1 / 6)), (gd.prod, good.prod() / good),
                    (gd.var, 2 * (good - good.mean()) / 6), (gd.std, (good - good.mean()) / 6 / good.std())):
        g = gd.evaluate(gd.grad(f(x, where=m), x), at)
        np.testing.assert_allclose(g[:, [0, 2]], want, rtol=1e-12, atol=1e-15)
        assert not g[:, [1, 3]].any()
    with pytest.raises(NodeTypeError, match=r"hint .*keepdims is given by name"):
        gd.max(x, 0, True)
    g = gd.evaluate(gd.grad(gd.max(x, where=m, initial=-9.0), x), at)
    assert g[2, 2] == 1 and g.sum() == 1
    for n in (0, 2):
        assert gd.evaluate(gd.max(x, 0, initial=1.5), {x: A[:n]}).tolist() == A[:n].max(0, initial=1.5).tolist()
        assert gd.evaluate(gd.min(x, initial=9), {x: A[:n]}) == A[:n].min(initial=9)
    first = gd.input("first")
    assert gd.evaluate(gd.grad(gd.sum(x, initial=first), first), {x: A, first: 3.0}) == 1
    checked(16)


# -- dtypes NumPy has and the library has not ------------------------------------------------------------------------

def test_operations_numpy_does_in_int8_say_what_to_write():
    p = gd.input("p", (3,), "bool")
    for call in (lambda: p // p, lambda: p % p, lambda: p ** p, lambda: p << p, lambda: p >> p, lambda: gd.fmod(p, p)):
        with pytest.raises(gd.errors.DTypeError, match=r"(?s)two bools: NumPy computes it in int8.*x\.astype\('int64'\)"):
            call()
    with pytest.raises(gd.errors.DTypeError, match="logical_xor"):
        p - p
    a = np.array([True, False, True])
    assert gd.evaluate(p.astype("int64") ** p.astype("int64"), {p: a}).tolist() == (a.astype(int) ** a.astype(int)).tolist() == [1, 1, 1]
    for name in ("sum", "prod", "cumsum", "cumprod"):
        u = gd.input("u", (3,), "uint8")
        assert getattr(gd, name)(u).dtype == np.int64 and "uint64" in getattr(gd, name).__doc__
        np.testing.assert_array_equal(gd.evaluate(getattr(gd, name)(u), {u: np.array([200, 100, 7], "uint8")}), getattr(np, name)([200, 100, 7]))
    checked(16)


# -- what help() shows ---------------------------------------------------------------------------------------------

ALIASES = {"absolute", "acos", "acosh", "amax", "amin", "around", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_not", "concat", "deg2rad", "empty",
           "fix", "mod", "permute_dims", "pow", "rad2deg", "true_divide", "trace_of"}


def test_methods_and_functions_show_their_public_names():
    x = gd.input("x", (3,))
    for name in dir(type(x)):
        method = inspect.getattr_static(type(x), name)
        if isinstance(method, types.FunctionType) and method.__module__.startswith("graphdiff") and name not in ("__repr__", "__init__"):
            assert (method.__name__, method.__qualname__.split(".")[-1]) == (name, name) and "<" not in method.__qualname__, name
            assert name.startswith("_") or method.__doc__, name
            assert not any(p.startswith("_") for p in inspect.signature(method).parameters), name
            checked(3)
    for name in dir(gd):
        f = getattr(gd, name)
        if not name.startswith("_") and isinstance(f, types.FunctionType) and name not in ALIASES:
            assert f.__name__ == f.__qualname__ == name and f.__doc__, name
            shown = inspect.signature(f).parameters
            assert "self" not in shown and not any(p.startswith("_") for p in shown) and "not given" not in str(inspect.signature(f)), name
            checked(2)
    assert str(inspect.signature(x.sum)).startswith("(axis: 'Any' = None, dtype: 'Any' = None, out: 'Any' = None, keepdims:")
    assert list(inspect.signature(x.clip).parameters) == ["min", "max", "out"] and list(inspect.signature(gd.where).parameters) == ["condition", "x", "y"]
    assert str(inspect.signature(x.astype)) == "(dtype: 'Any', copy: 'bool' = True) -> 'Node'"


# -- calls that slip -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("call", "message"), [
    (lambda x: gd.function([x], {x, x + 1}), "function: outputs are .* not set"),
    (lambda x: gd.function([x], None), "function: outputs are .* not NoneType"),
    (lambda x: gd.function([x], (o for o in [x])), "function: outputs are .* not generator"),
    (lambda x: gd.function([x], "x"), "function: outputs are .* not str"),
    (lambda x: gd.function([x], [x, None]), "function: outputs are .* not NoneType"),
    (lambda x: gd.function([x], [object()]), "function: outputs: .*type object is neither"),
    (lambda x: gd.function([x], x, updates={gd.variable(1.0, "w"): None}), "function: updates: the new value of w: .*type NoneType is neither"),
    (lambda x: gd.jacobian([x], x), "jacobian: y is one node, not a list"),
    (lambda x: gd.input("x", "float32"), "input: 'float32' stands where the shape is"),
    (lambda x: gd.input("x", np.float32), "input: .*float32.* stands where the shape is"),
    (lambda x: gd.inputs("a b", "int64"), "inputs: .*stands where the shape")],
    ids=range(11))
def test_arguments_in_the_wrong_place_are_named(call, message):
    with pytest.raises(GraphdiffError, match=rf"(?s)^{message}" + HERE):
        call(gd.input("x", (2, 3)))


def test_inputs_may_be_called_anything():
    me, batch = gd.input("self"), gd.input("x", "batch")
    f = gd.function([me], me + 1)
    assert f(self=1.0) == 2 and f.bind(self=np.array(1.0))() == 2 and len(f.profile(self=1.0)) == 1
    assert gd.evaluate(batch * 2, {batch: [1.0, 2.0]}).tolist() == [2, 4]
    checked(3)


# -- an array, a list or a type where an option is wanted: Python's or NumPy's own error names neither ---------------

@pytest.mark.parametrize(("name", "call"), [
    ("n", lambda x, y, odd: gd.eye(odd)), ("unconnected", lambda x, y, odd: gd.grad(y, x, unconnected=odd)),
    ("mode", lambda x, y, odd: gd.jacobian(y, x, mode=odd)), ("ord", lambda x, y, odd: gd.norm(x, odd)),
    ("order", lambda x, y, odd: gd.ravel(x, odd)), ("reps", lambda x, y, odd: gd.tile(3, odd)),
    ("casting", lambda x, y, odd: gd.einsum("ij->i", x, casting=odd)), ("optimize", lambda x, y, odd: gd.einsum("ij->i", x, optimize=odd)),
    ("k", lambda x, y, odd: gd.tril(x, odd)), ("shift", lambda x, y, odd: gd.roll(x, odd)), ("decimals", lambda x, y, odd: gd.round(x, odd)),
], ids=lambda p: p if isinstance(p, str) else "")
def test_arrays_in_the_place_of_options(name, call):
    x = gd.input("x", (2, 3))
    with pytest.raises(GraphdiffError, match=rf"(?s)\b{name} is of type ndarray.*{HERE}"):
        call(x, gd.sum(x * x), np.zeros((2, 3)))


def test_odd_values_elsewhere():
    x = gd.input("x", (2, 3))
    for call in (lambda: x.take([[1, 2], [3]]), lambda: gd.trace(np.zeros((2, 2)), int), lambda: gd.to_networkx(x, at=5),
                 lambda: gd.nn.init.he(5, 5), lambda: gd.nn.Dense(np.array([3]), 3), lambda: gd.nn.Dense(2.5, 3)):
        with pytest.raises(GraphdiffError):
            call()
        checked(1)


def test_errors_of_the_callers_own_code_stay_as_they_are():
    class Size:
        def __index__(self):
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$") as caught:
        gd.zeros((Size(), 2))
    assert not isinstance(caught.value, GraphdiffError)


def test_looking_for_a_node_in_a_list():
    """== is an operation: `in` and index ask for its truth, and the error says how a node is found."""
    a, b = gd.input("a"), gd.input("b")
    for look in (lambda: a in [b], lambda: [b].index(a), lambda: [b, b].remove(a)):
        with pytest.raises(TypeError, match="any\\(n is node for n in nodes\\)"):
            look()
        checked()
    with pytest.raises(TypeError, match=r"gd\.where") as error:
        bool(a > b)
    assert "any(n is" not in str(error.value)
    checked()
