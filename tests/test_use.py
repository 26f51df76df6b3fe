"""Bugs a new user met: named sizes in slices and constants, located messages of wrong arguments, forward mode through checkpoints."""
import itertools
import warnings

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import GraphdiffError, NodeTypeError, OutOfBounds, ShapeError
from graphdiff.graph.walk import toposort

N = np.random.default_rng(1).standard_normal((5, 6))


@pytest.mark.parametrize("make,want", [
    (lambda n: n[::-1], N[::-1]), (lambda n: gd.flip(n), N[::-1, ::-1]), (lambda n: gd.arange(n.shape[0])[:, None] * n, np.arange(5)[:, None] * N),
    (lambda n: gd.eye(n.shape[0]) @ n, N), (lambda n: gd.eye(n.shape[0], n.shape[0] + 1, 1).sum(1), np.ones(5)),
    (lambda n: gd.tril(n @ n.T), np.tril(N @ N.T)), (lambda n: gd.triu(n @ n.T, 1), np.triu(N @ N.T, 1)),
    (lambda n: n[gd.arange(n.shape[0]), gd.constant([0, 2, 1, 1, 5])], N[np.arange(5), [0, 2, 1, 1, 5]]),
])
def test_named_sizes(make, want):
    n = gd.input("n", ("batch", 6))
    y = make(n)
    np.testing.assert_allclose(gd.evaluate(y, {n: N}), want, rtol=1e-13)
    gd.check_grads(y, n, N)


def test_attention_with_a_named_vector_size():
    a, b = gd.input("a", ("t", "d")), gd.input("b", (5, 6))
    np.testing.assert_allclose(gd.evaluate(gd.attention(a, a, a), {a: N}), gd.evaluate(gd.attention(b, b, b), {b: N}), rtol=1e-14)


def test_slices_of_a_named_size_are_clipped_like_numpys():
    x = gd.input("x", ("n", 2))
    bounds, steps = (None, 0, 1, 2, 5, -1, -2, -6), (None, 2, 3, -1, -2)
    cuts = [slice(*c) for c in [*itertools.product(bounds, bounds, steps), (5, 6, 5), (-6, -5), (2, 3), (3, 2, -1)]]
    assert len(cuts) > 320
    f = gd.function([x], [x[c] for c in cuts] + [gd.grad(gd.sum(gd.square(x[c])), x) for c in cuts])
    for n in (0, 1, 2, 4, 7):
        a = np.arange(1.0, 2 * n + 1).reshape(n, 2)
        got = f(a)
        for c, value, gradient in zip(cuts, got, got[len(cuts):], strict=False):
            want = np.zeros_like(a)
            want[c] = 2 * a[c]
            np.testing.assert_array_equal(value, a[c], err_msg=f"{c} of {n}")
            np.testing.assert_array_equal(gradient, want, err_msg=f"{c} of {n}")
        checked(2 * len(cuts))


def test_many_slices_of_a_named_size_keep_its_text_short():
    y = x = gd.input("x", ("n", 2))
    for i in range(200):
        y = y[1:-1][:900 - i]
    assert len(str(y.shape[0])) < 60
    assert gd.function([x], y)(np.ones((600, 2))).shape == (200, 2)


def test_a_slice_beyond_a_named_size_is_a_located_error():
    n = gd.input("n", ("batch", 6))
    for y, i in ((n[7], 7), (n[-7], -7), (n[5, 2], 5)):
        with pytest.raises(OutOfBounds, match=rf"(?s)index {i} is out of bounds for axis 0 with size 5.*test_use.py"):
            gd.evaluate(y, {n: N})


@pytest.mark.parametrize("label", [5, 7, -1, -6])
def test_a_label_that_is_no_row_of_an_embedding_is_found_when_built_if_it_is_constant(label):
    table, i = gd.nn.Embedding(5, 3, key=gd.random.key(0)), gd.input("i", (2,), "int64")
    with pytest.raises(OutOfBounds, match=rf"(?s)index {label} is out of bounds for axis 0 with size 5.*test_use.py"):
        table(gd.constant([0, label]))
    f = gd.function([i], table(i))
    with pytest.raises(OutOfBounds, match=rf"(?s)index {label} is out of bounds for axis 0 with size 5.*test_use.py"):
        f([0, label])
    np.testing.assert_array_equal(f([0, 4]), gd.function([], table(gd.constant([0, 4])))())


def test_a_number_format_of_a_node_says_that_it_is_symbolic():
    x = gd.input("x")
    for spec in (".3f", "8.2e", "d", ".3", "+.1%"):
        with pytest.raises(NodeTypeError, match=r"(?s)node 'x' .*test_use.py:\d+.*symbolic.*value exists only when a function runs.*gd.trace"):
            format(x, spec)
    assert f"{x}" == repr(x) and f"{x:>90}" == f"{x!r:>90}"


def test_wrong_arguments_are_located_at_the_users_line():
    x, u, w = gd.input("x", (2, 3)), gd.input("u", (3,), "uint8"), gd.variable(np.zeros(3))
    for call in (lambda: gd.exp("a"), lambda: x + None, lambda: x * 1j, lambda: x.astype("foo"), lambda: gd.sum(x, foo=1), lambda: gd.sum(),
                 lambda: gd.pad(x, (1, 2, 3)), lambda: gd.eye(-1), lambda: gd.arange(1, 2, 0), lambda: gd.linspace(0, 1, -1), lambda: x.var(ddof="a"),
                 lambda: gd.grad(gd.sum(x), None), lambda: gd.jacobian(x, "a"), lambda: gd.checkpoint(5), lambda: gd.custom_gradient(5, 5),
                 lambda: gd.function([x], x, updates=5), lambda: gd.function([x], x, passes=5), lambda: gd.evaluate(x, 5), lambda: gd.stop_gradient("a"),
                 lambda: gd.exp(x, foo=1), lambda: gd.exp(x, axis=0), lambda: gd.negative(x, foo=1), lambda: gd.isnan(x, foo=1),
                 lambda: gd.invert(u, foo=1), lambda: gd.add(x, x, foo=1), lambda: gd.arctan2(x, x, foo=1), lambda: gd.bitwise_and(u, u, foo=1),
                 lambda: gd.exp(), lambda: gd.exp(x, x), lambda: gd.add(x), lambda: gd.add(x, x, x), lambda: gd.where(x), lambda: gd.subtract(),
                 lambda: gd.elu(x, "a"), lambda: gd.input(5), lambda: gd.inputs(5), lambda: x.named(5), lambda: gd.size(x, 7),
                 lambda: setattr(w, "value", np.zeros(4)), lambda: setattr(w, "value", "a")):
        with pytest.raises(GraphdiffError, match=r"test_use.py:\d+"):
            call()
    with pytest.raises(OverflowError, match=r"(?s)add: the right operand: Python integer 300 out of bounds for uint8 \(0 to 255\).*test_use.py"):
        u + 300
    with pytest.raises(NodeTypeError, match="unexpected keyword argument 'where'"):
        np.logaddexp.reduce(x, where=N[:2, :3] > 0)


def test_numpy_accumulate_goes_along_the_first_axis():
    x = gd.input("x", (5, 6))
    np.testing.assert_allclose(gd.evaluate(np.add.accumulate(x), {x: N}), np.add.accumulate(N), rtol=1e-14)
    assert np.shape(x) == (5, 6) and np.ndim(x) == 2


def test_forward_mode_through_a_row_of_checkpoints_is_linear_work():
    x, w = gd.input("x", (3,)), gd.variable(np.eye(3) * 0.5)
    y = x
    for _ in range(60):
        y = gd.checkpoint(lambda a: gd.tanh(a @ w) + a * 0.1)(y)
    assert len(toposort([gd.jvp(y, [x, w], [np.ones(3), np.ones((3, 3))])])) < 60 * 40
    f = gd.custom_gradient(lambda a: a * a, lambda g, out, a: gd.grad(gd.checkpoint(lambda b: b * b)(a), a, cotangent=g))
    np.testing.assert_allclose(gd.evaluate(gd.jvp(f(x), x, [1.0, 2.0, 3.0]), {x: np.ones(3)}), [2, 4, 6])


def test_a_tangent_of_what_depends_on_another_adds_to_what_comes_from_there():
    """<u, J v> = <J^T u, v> for any list of nodes, in any order, twice named ones included."""
    x, b = gd.input("x"), gd.input("b")
    h = 3 * x
    k = h * b
    y = h ** 2 + x * k
    at = {x: 2.0, b: 0.5}
    for nodes in ([x, h], [h, x], [x, h, k, b], [k, x, h], [h, x, h], [b, h]):
        slopes = gd.evaluate(gd.grad(y, nodes), at)
        for v in ([1.0, 0.0, 0.0, 0.0], [1.0, -2.0, 3.0, 0.5]):
            got = gd.evaluate(gd.jvp(y, nodes, v[:len(nodes)]), at)
            np.testing.assert_allclose(got, np.dot(slopes, v[:len(nodes)]), rtol=1e-14)


def test_a_jacobian_has_its_variables_dtype_in_both_modes():
    for n in (0, 2, 5):
        x = gd.input("x", (n,))
        y = gd.stack([gd.sum(x), gd.sum(x * x)]).astype("float32")
        for mode in ("auto", "forward", "reverse"):
            assert gd.jacobian(y, x, mode).dtype == "float64"


def test_a_checkpoint_given_one_node_twice_counts_its_tangent_once():
    x = gd.input("x", (3,))
    y = gd.checkpoint(lambda a, b: a * b)(x, x)
    np.testing.assert_allclose(gd.evaluate(gd.jvp(y, x, np.ones(3)), {x: N[0, :3]}), 2 * N[0, :3], rtol=1e-14)
    gd.check_grads(y, x, N[0, :3])


@pytest.mark.parametrize("options", [{}, {"n": 2}, {"n": 0}, {"n": 9}, {"axis": 0}, {"prepend": 1, "append": 2.5}, {"append": np.ones((5, 2))}])
def test_differences_of_neighbours_are_numpys(options):
    for a in (N, np.round(N * 10).astype("int64"), N > 0):
        if "append" in options and a.dtype != N.dtype:
            continue
        x = gd.input("x", a.shape, a.dtype)
        for make in (gd.diff, np.diff):
            got, want = gd.evaluate(make(x, **options), {x: a}), np.diff(a, **options)
            assert got.dtype == want.dtype and np.array_equal(got, want) and got.shape == want.shape
    with pytest.raises(ShapeError, match="diff: x needs"):
        gd.diff(gd.input("s"))
    with pytest.raises(ShapeError, match="diff: n must"):
        gd.diff(gd.input("x", (3,)), -1)


def test_options_of_ufuncs_that_nodes_lack_are_refused_by_name():
    x = gd.input("x", (3,))
    with pytest.raises(NodeTypeError, match=r"np.add: where= is not supported"):
        np.add(x, 1.0, where=np.array([True, False, True]))


# -- the same as NumPy, to the dtype -----------------------------------------------------------------------------------------------

def same(f, *arrays):
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    got = gd.function(nodes, f(gd, *nodes))(*arrays)
    with np.errstate(all="ignore"):
        want = f(np, *arrays)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_remainders_and_roundings_of_integers_are_exact(dtype):
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    a, b = (rng.integers(info.min, info.max, 500, dtype=dtype, endpoint=True) for _ in range(2))
    b[::7], b[1::7] = 0, 3
    if info.min < 0:
        a[:5], b[:3] = info.min, np.array(-1, dtype)
    same(lambda m, x, y: m.fmod(x, y), a, b)
    same(lambda m, x: m.fmod(x, 10), a)
    for decimals in (2, 0, -1, -2, -3):
        same(lambda m, x, d=decimals: m.round(x, d), rng.integers(0 if dtype == "uint8" else -5000, 100 if dtype == "uint8" else 5000, 500).astype(dtype))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32"])
@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3, 3), (0, 2)])
def test_triangles_keep_the_dtype(dtype, shape):
    a = (np.random.default_rng(0).random(shape) * 9).astype(dtype)
    for k in (-1, 0, 1):
        same(lambda m, x, k=k: m.tril(x, k), a)
        same(lambda m, x, k=k: m.triu(x, k), a)


def test_small_differences_from_numpy():
    same(lambda m, x: m.diagonal(x, -1, 0, 2), np.zeros((4, 0, 4)))
    for low, high in ((-1, 2), (3, 300), (-5, 1000)):
        same(lambda m, x, low=low, high=high: m.clip(x, low, high), np.arange(9, dtype="u1"))
    x = gd.input("x", (4,), "float32")
    assert gd.float_power(x, 2).dtype == "float64" and np.float_power(x, 2).dtype == "float64"
    with pytest.raises(gd.errors.NodeTypeError, match="linspace: start and stop must be numbers"):
        np.linspace(x[0], 1)
    with pytest.raises(gd.errors.ShapeError, match="tril: an array of at least one axis"):
        gd.tril(gd.input("s"))


@pytest.mark.parametrize("ord", [1.5, 2, 3, 4])
def test_norms_are_smooth_at_the_origin(ord):
    x = gd.input("x", (3,))
    y = gd.vector_norm(x, ord=ord)
    f = gd.function([x], [y, gd.grad(y, x)])
    assert [r.tolist() for r in f(np.zeros(3))] == [0.0, [0.0] * 3]
    a = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(f(a)[0], np.linalg.norm(a, ord), rtol=1e-14)


def test_a_softmax_with_a_temperature_is_one_function_in_float16():
    x = gd.input("x", (2,), "float16")
    y = gd.softmax(x, temperature=1e-4)
    p, g = gd.function([x], [y, gd.grad(y[1], x)])(np.array([10, 12], "f2"))
    np.testing.assert_array_equal(p, np.array([0, 1], "f2"))
    np.testing.assert_array_equal(g, np.zeros(2, "f2"))
    a = np.array([20, 20.015625], "f2")
    for t in (0.01, np.float16(0.25), 3):
        e = np.exp((a.astype(float) - a.max()) / float(t))
        got = gd.function([x], gd.softmax(x, temperature=t))(a)
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.astype(float), e / e.sum(), rtol=1e-3)
        checked()
    for dtype in ("float16", "float32", "float64"):           # as of x / t
        assert gd.softmax(x, temperature=gd.input("t", (), dtype)).dtype == dtype
        checked()
    assert gd.softmax(x, temperature=np.float32([2, 3])).dtype == np.float32


def test_linspace_of_integers_rounds_down():
    for a in ((-5, 5, 4), (0, -3, 5), (0.5, 9.9, 7), (3, 3, 2)):
        for dtype in (int, "int32", "float32", "float16"):
            want = np.linspace(*a, dtype=dtype)
            got = gd.evaluate(gd.linspace(*a, dtype=dtype))
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
            checked(2)


def test_einsum_casts_what_it_may():
    x, i = gd.input("x", (2,)), gd.input("i", (2,), "int32")
    for casting in ("safe", "no", "equiv", "same_kind"):
        with pytest.raises(gd.errors.DTypeError, match=f"operand 0 is float64, which is not cast to dtype='int32' by casting='{casting}'"):
            gd.einsum("i,i->", x, x, dtype="int32", casting=casting)
        checked()
    assert gd.evaluate(gd.einsum("i,i->", x, x, dtype="int32", casting="unsafe"), {x: [1.7, 2.7]}) == 5
    assert gd.einsum("i,i->", i, i, dtype="float64").dtype == np.float64
    assert gd.einsum("i,i->", x, x, dtype="float32", casting="same_kind").dtype == np.float32


def test_values_of_inputs_that_a_trace_does_not_need():
    x, t = gd.input("x"), gd.input("t", ("batch",))
    made = gd.trace(x * 2, at={x: 1.0, t: np.ones(3)})
    assert "2" in str(made)
    assert gd.draw(x * 2, at={x: 1.0, t: np.ones(3)}).svg.startswith("<")


def test_a_point_without_a_derivative_is_no_wrong_rule():
    x = gd.input("x", (3,))
    for f, a in ((gd.max, [1, 1, 1]), (lambda x: gd.sum(x ** 1.5), [0, 0, 1]), (lambda x: gd.sum(gd.where(x > 0, gd.log(x), 0.0)), [0, 1, 2]),
                 (lambda x: gd.sum(gd.log(x)), [-1, 1, 2]), (lambda x: gd.sum(gd.sqrt(x)), [0, 1, 2]), (lambda x: gd.sum(gd.cbrt(x)), [0, 1, 2]),
                 (lambda x: gd.sum(gd.arcsin(x)), [1, 0, 0])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(gd.errors.GradientError, match=r"is at a kink, or at the edge of its domain(.|\n)*test_use\.py"):
                gd.check_grads(f(x), x, {x: np.array(a, float)})
        checked()
    for f in (gd.abs, gd.relu, lambda x: gd.clip(x, 0, 1)):                     # the convention is what a central difference says
        gd.check_grads(gd.sum(f(x)), x, {x: np.array([0.0, 1, 2])}, order=1)


def test_errors_name_what_was_given():
    attention = gd.nn.MultiHeadAttention(4, 2)
    with pytest.raises(gd.errors.ShapeError, match=r"the context is float32\[2, 6, 3\], 4 numbers are needed along axis -1"):
        attention(gd.input("q", (2, 5, 4), "float32"), gd.input("c", (2, 6, 3), "float32"))
    with pytest.raises(gd.errors.DTypeError, match=r"the target is float64\[3\], without an axis of classes: labels are integers"):
        gd.losses.cross_entropy(gd.input("z", (3, 4)), gd.input("t", (3,)))
    x = gd.input("x", (2,))
    f = gd.function([x], {"loss": gd.sum(x), "twice": 2 * x})
    with pytest.raises(gd.errors.ShapeError, match=r"out\['loss'\]: shape \[2\] given, \[\] needed"):
        f(np.ones(2), out={"loss": np.ones(2), "twice": np.ones(2)})
    a = np.ones(3)
    with pytest.raises(gd.errors.ShapeError, match=r"out\['v'\] and out\['u'\] overlap in memory"):
        gd.function([x], {"u": x, "v": 2 * x})(np.ones(2), out={"u": a[:2], "v": a[1:]})


def test_a_blank_name_has_a_slot_too():
    a = gd.input("a")
    for name in (" ", "  ", ""):
        dot = str(gd.draw(gd.function([a], gd.sin(a).named(name) * 2)))
        assert "></FONT>" not in dot
        checked()


def test_the_names_of_the_library_are_its_own():
    names = {}
    exec("from graphdiff import *", names)
    for name in ("input", "function", "grad", "sum", "exp", "Node", "errors", "random", "nn", "draw", "trace", "pi", "float32", "Function"):
        assert name in gd.__all__ and name in names
    assert not {"Any", "annotations", "public", "named_input", "lower", "plan", "ops", "runtime", "graph"} & {*gd.__all__, *dir(gd)}
    assert all(hasattr(gd, name) for name in gd.__all__)
    with pytest.raises(NodeTypeError, match="trace: values of inputs go by name"):
        gd.trace(gd.input("x") * 2, {})
    checked(20)


def test_a_mean_of_squares_beyond_float16():
    p, t = gd.input("p", (3,), "float16"), gd.input("t", (3,), "float16")
    loss = gd.losses.mse(p, t)
    value, g = gd.function([p, t], [loss, gd.grad(loss, p)])(np.array([365, 1, 2], "f2"), np.zeros(3, "f2"))
    assert loss.dtype == np.float16
    np.testing.assert_allclose(value, (365**2 + 5) / 3, rtol=1e-3)
    np.testing.assert_allclose(g.astype(float), 2 / 3 * np.array([365, 1, 2]), rtol=1e-3)
