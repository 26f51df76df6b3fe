"""Odd input: numbers beyond a dtype, impossible sizes, axes of scalars, empty arrays. NumPy's answer, or a located error."""
import operator
import warnings

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import BadValue, GraphdiffError, NodeTypeError, NoMemory, OutOfRange, ShapeError


def same(f, *arrays):
    """f(gd, *nodes) has the values, shape and dtype of f(np, *arrays)."""
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    got = gd.function(nodes, f(gd, *nodes))(*arrays)
    with np.errstate(all="ignore"):
        want = np.asarray(f(np, *arrays))
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
    checked(1)


# -- numbers beyond a dtype --------------------------------------------------------------------------------------------------------

U = gd.input("u", (2,), "uint8")


@pytest.mark.parametrize(("call", "message"), [
    (lambda: U + 300, "add: the right operand: Python integer 300 out of bounds for uint8 (0 to 255)"),
    (lambda: -1 - U, "subtract: the left operand: Python integer -1 out of bounds for uint8 (0 to 255)"),
    (lambda: gd.clip(U, 300, 400), "clip: a_min: Python integer 300"), (lambda: gd.clip(U, 0, -1), "clip: a_max: Python integer -1"),
    (lambda: np.clip(U, 300, 400), "clip: a_min: Python integer 300"), (lambda: U ** 300, "power: the exponent: Python integer 300"),
    (lambda: gd.fmax(U, -1), "fmax: the right operand: Python integer -1"), (lambda: gd.where(U > 1, U, 300), "where: y: Python integer 300"),
    (lambda: gd.full(3, 300, "uint8"), "full: Python integer 300"), (lambda: U.at[0].set(300), "x.at[...].set: Python integer 300"),
    (lambda: gd.pad(U, 1, constant_values=300), "pad: Python integer 300"), (lambda: gd.exp(2**70), "exp: Python integer 1180591620717411303424"),
    (lambda: gd.constant(2**70), "constant: Python integer 1180591620717411303424"),
    (lambda: gd.constant(300, dtype="uint8"), "constant: 300 is out of bounds for uint8 (0 to 255)"),
    (lambda: gd.constant([0.5, np.nan], dtype="int64"), "constant: nan is out of bounds for int64"),
    (lambda: gd.constant([2.0**31], dtype="int32"), "constant: 2147483648.0 is out of bounds for int32"),
    (lambda: gd.input("x") + 10**400, "add: the right operand: Python integer of 1329 bits out of bounds for float64"),
])
def test_a_number_beyond_the_dtype_is_a_located_overflow(call, message):
    with pytest.raises(OutOfRange) as caught:
        call()
    assert isinstance(caught.value, GraphdiffError) and isinstance(caught.value, OverflowError)
    assert message in str(caught.value) and "test_odd_input.py:" in str(caught.value)


@pytest.mark.parametrize("number", [300, -1, 2**70, -2**70, 2**63, 255])
def test_comparisons_with_a_number_beyond_the_dtype_are_numpys(number):
    for test in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        for dtype in ("uint8", "int32", "int64"):
            same(lambda m, x, t=test: t(x, number), np.array([0, 1, 255], dtype))
            same(lambda m, x, t=test: t(number, x), np.array([0, 1, 255], dtype))


def test_constants_are_converted_up_to_the_ends_of_the_dtype():
    for values, dtype in (([0, 255], "uint8"), ([-2.0**63, 1.7], "int64"), ([2**63 - 1], "int64"), ([300, 0], "bool")):
        with np.errstate(all="ignore"):
            want = np.array(values).astype(dtype)
        got = gd.evaluate(gd.constant(values, dtype=dtype), {})
        assert got.dtype == want.dtype and np.array_equal(got, want)


def test_an_integer_to_a_negative_power_is_a_value_error_when_built_and_when_it_runs():
    i = gd.input("i", (2,), "int64")
    with pytest.raises(ValueError, match=r"(?s)power: integers to negative integer powers.*test_odd_input.py") as built:
        i ** -2
    y = i ** i
    with pytest.raises(ValueError, match=r"(?s)negative integer powers are not allowed \(exponent -3\).*test_odd_input.py") as ran:
        gd.evaluate(y, {i: [2, -3]})
    assert type(built.value) is type(ran.value) is gd.errors.BadValue


# -- sizes no machine has ----------------------------------------------------------------------------------------------------------

ROW, HUGE = gd.constant([1.0, 2.0]), 2**40


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda: gd.eye(2**33), ShapeError, "eye: float64[8589934592, 8589934592] is too large"),
    (lambda: gd.identity(2**63), ShapeError, "is too large"), (lambda: gd.eye(2**22, dtype="bool"), NoMemory, "eye: bool[4194304, 4194304] takes"),
    (lambda: gd.eye(10**400), ShapeError, "about 2**1328"), (lambda: gd.linspace(0, 1, 2**70), ShapeError, "linspace: float64["),
    (lambda: gd.linspace(0, 1, HUGE), NoMemory, "linspace: float64[1099511627776] takes"), (lambda: gd.arange(HUGE), NoMemory, "arange: float64["),
    (lambda: gd.arange(0, 1e6, 1e-9), NoMemory, "arange: float64["), (lambda: gd.arange(2**63), OutOfRange, "arange: Python integer"),
    (lambda: gd.arange(0, 300, 299, dtype="uint8"), OutOfRange, "arange: 299 is out of bounds for uint8"),
    (lambda: gd.tril(gd.input("x", (2**22, 2**22))), NoMemory, "tril: bool["), (lambda: gd.one_hot([1], HUGE), NoMemory, "one_hot: int64["),
    (lambda: gd.full(2**63, 1.0), ShapeError, "full: a size must be below 2**63"), (lambda: gd.pad(ROW, HUGE, mode="edge"), NoMemory, "pad: int64["),
    (lambda: gd.pad(ROW, 2**70), ShapeError, "is too large"), (lambda: gd.repeat(ROW, [HUGE, 1]), NoMemory, "repeat: int64["),
    (lambda: gd.tile(ROW, 2**63), ShapeError, "is too large"), (lambda: gd.array_split(ROW, HUGE), ShapeError, "array_split: the number of sections"),
    (lambda: gd.evaluate(gd.full(HUGE, 1.0), {}), NoMemory, "no memory for a result, float64[1099511627776]"),
    (lambda: gd.attention(*[gd.input("q", (2**22, 4))] * 3, gd.input("m", (1, 2**22), "bool"), causal=True), NoMemory, "attention: bool["),
])
def test_sizes_no_machine_has_are_refused_before_anything_is_allocated(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, GraphdiffError) and message in str(caught.value)
    assert "test_odd_input.py:" in str(caught.value)
    if kind is NoMemory:
        assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("call", [
    lambda: gd.tile(ROW, 2.5), lambda: gd.repeat(ROW, 2.5), lambda: gd.pad(ROW, 1.5),
    lambda: gd.eye(2, k="a"), lambda: gd.tril(np.ones((2, 2)), 1.5), lambda: gd.repeat(ROW, [1.5, 2]), lambda: gd.linspace(0, 1, 2.0),
])
def test_numbers_that_must_be_whole_are_refused_when_they_are_not(call):
    with pytest.raises(GraphdiffError, match=r"(?s)whole number.*test_odd_input.py"):
        call()


@pytest.mark.parametrize("k", [-2**70, -9, -3, 0, 2, 9, 2**70])
def test_diagonals_far_outside_are_empty_or_everything(k):
    a, near = np.arange(6.0).reshape(2, 3), max(-9, min(9, k))
    for got, want in ((gd.tril(a, k), np.tril(a, near)), (gd.triu(a, k), np.triu(a, near)), (gd.eye(2, 3, k), np.eye(2, 3, near))):
        np.testing.assert_array_equal(gd.evaluate(got, {}), want)


@pytest.mark.parametrize("bounds", [(5,), (2.5,), (-3,), (1, 2, -1), (5, 1, -2), (0, 1, 0.25), (np.int32(5),), (True, 4), (0, 0), (1e3, 1e3 + 1)])
def test_ranges_are_numpys(bounds):
    want, got = np.arange(*bounds), gd.evaluate(gd.arange(*bounds), {})
    assert got.dtype == want.dtype and np.array_equal(got, want)


# -- axes of scalars, axes given twice, empty arrays --------------------------------------------------------------------------------

SCALAR = np.array(3.0)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "ptp", "count_nonzero", "argmax", "argmin", "cumsum", "cumprod", "argsort",
                                  "squeeze", "cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_axis_of_a_scalar_is_numpys(name, axis):
    same(lambda m, x: getattr(m, name)(x, axis=axis), SCALAR)
    for wrong in (1, -2, (0,)):
        if not (wrong == (0,) and name.startswith("cumul")):       # there NumPy takes the tuple of one axis, and nowhere else
            with pytest.raises(Exception):  # noqa: B017 -- NumPy has AxisError, TypeError and IndexError here
                getattr(np, name)(SCALAR, axis=wrong)
        with pytest.raises(GraphdiffError, match=r"(?s)axis.*test_odd_input.py"):
            getattr(gd, name)(gd.input("s"), axis=wrong)


def test_a_scalar_has_no_axis_where_numpy_has_none():
    for name in ("mean", "var", "std", "median", "sort", "flip", "average", "roll"):
        with pytest.raises(np.exceptions.AxisError):
            getattr(np, name)(SCALAR, **({"shift": 1} if name == "roll" else {}), axis=0)
        with pytest.raises(gd.errors.AxisError, match=r"(?s)test_odd_input.py"):
            getattr(gd, name)(gd.input("s"), *([1] if name == "roll" else []), axis=0)
    same(lambda m, x: m.argsort(x), SCALAR)
    same(lambda m, x: m.sort(x, axis=None), SCALAR)
    same(lambda m, x: m.cumulative_sum(x, include_initial=True), SCALAR)
    s = gd.input("s")
    for y in (gd.sum(s, axis=0), gd.prod(s, axis=-1), gd.max(s, axis=0), gd.cumsum(s, axis=0)[0], gd.logsumexp(s, axis=-1)):
        assert gd.evaluate(gd.grad(y, s), {s: 3.0}) == 1.0


@pytest.mark.parametrize(("shift", "axis"), [((1, 2), (0, 0)), (1, (0, 0)), ((1, 2), 0), ((1, 1, 1), (0, -2, 1)), ((1, 2), None), ((-1, 1), (1, 1)),
                                             (2, (0, 1)), ((1,), (0, 1)), ((), 0), (1, ())])
def test_shifts_of_an_axis_given_twice_add_up(shift, axis):
    same(lambda m, x: m.roll(x, shift, axis), np.arange(12.0).reshape(3, 4))


def test_vectors_of_one_component_do_not_stretch():
    for a, b in (((2, 3), (2, 1)), ((2, 1), (3,))):
        with pytest.raises(ValueError, match="core dimension"):
            np.vecdot(np.ones(a), np.ones(b))
        with pytest.raises(ShapeError, match=r"(?s)vecdot: the vectors have \d and \d components along axis -1.*test_odd_input.py"):
            gd.vecdot(gd.input("a", a), gd.input("b", b))
    with pytest.raises(ShapeError, match="the vectors have n and 1 components"):
        gd.vecdot(gd.input("a", ("n",)), gd.input("b", (1,)))
    same(lambda m, x, y: m.vecdot(x, y), np.ones((2, 3)), np.ones((1, 3)))
    a, b = gd.input("a", ("n",)), gd.input("b", (3,))
    assert gd.evaluate(gd.vecdot(a, b), {a: np.ones(3), b: np.ones(3)}) == 3.0


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_norms_and_medians_of_nothing_are_numpys(dtype, shape):
    a = np.zeros(shape, dtype)
    for axis in (None, *range(len(shape))):
        for keep in (False, True):
            for order in (np.inf, 1, 2, 0):
                same(lambda m, x, o=order, i=axis, k=keep: (m if m is gd else m.linalg).vector_norm(x, ord=o, axis=i, keepdims=k), a)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same(lambda m, x, i=axis, k=keep: m.median(x, axis=i, keepdims=k), a)
    if len(shape) == 2:
        for order in ("fro", 1, np.inf):
            same(lambda m, x, o=order: (m if m is gd else m.linalg).norm(x, ord=o), a)
    with pytest.raises(ShapeError, match=r"(?s)empty.*test_odd_input.py"):
        gd.vector_norm(gd.input("x", shape, dtype), ord=-np.inf)


# -- dtypes of results -------------------------------------------------------------------------------------------------------------

KINDS = {"bool": [True, False, True], "uint8": [1, 2, 4], "int32": [1, -2, 4], "int64": [1, -2, 4], "float16": [0.5, 2, 4], "float32": [0.5, 2, 4],
         "float64": [0.5, 2, 4]}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_dtypes_of_weighted_means_and_integrals_are_numpys(first, second):
    a, w = np.array(KINDS[first], first), np.array(KINDS[second], second)
    w[1] = 3 if second != "bool" else w[1]
    y, v = gd.input("y", (3,), first), gd.input("v", (3,), second)
    f = gd.function([y, v], [gd.average(y, weights=v), gd.trapezoid(y, v), gd.average(gd.stack([y, y]), weights=v, axis=1)])
    mean, area, means = f(a, w)
    want = np.average(a, weights=w)
    assert mean.dtype == want.dtype == means.dtype
    np.testing.assert_allclose(mean, want, rtol=1e-2 if want.dtype == "float16" else 1e-6)
    np.testing.assert_allclose(means, [want, want], rtol=1e-2 if want.dtype == "float16" else 1e-6)
    exact = np.trapezoid(a.astype(float), w.astype(float))
    np.testing.assert_allclose(area, exact, rtol=1e-2 if area.dtype == "float16" else 1e-6)
    if first != "bool" and second != "bool":        # NumPy adds and subtracts bools as bools
        assert area.dtype == np.trapezoid(a, w).dtype


def test_weights_along_several_axes():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 3, 4))
    for axes in ((0, 2), (2, 0), (1,), (-1, 1, 0)):
        w = rng.random(tuple(a.shape[i] for i in axes))
        x, v = gd.input("x", a.shape), gd.input("v", w.shape)
        np.testing.assert_allclose(gd.evaluate(gd.average(x, axes, v), {x: a, v: w}), np.average(a, axes, w), rtol=1e-14)
    with pytest.raises(ShapeError, match=r"(?s)average: weights have shape \[2\], x has \[3\] along the axes.*test_odd_input.py"):
        gd.average(gd.input("x", (2, 3)), 1, gd.input("w", (2,)))
    with pytest.raises(ShapeError, match="need axis="):
        gd.average(gd.input("x", (2, 3)), None, gd.input("w", (3,)))


def test_bools_in_abs_square_fmod_and_rint():
    a = np.array([True, False])
    same(lambda m, x: m.abs(x), a)
    same(lambda m, x: abs(x), a)
    b = gd.input("b", (2,), "bool")
    got = gd.evaluate(gd.square(b), {b: a})
    assert got.dtype == "int64" and got.tolist() == np.square(a).tolist()       # NumPy's int8, which graphdiff has not
    with pytest.raises(gd.errors.DTypeError, match=r"(?s)fmod: not defined for two bools.*test_odd_input.py"):
        gd.fmod(b, b)
    for dtype in ("int32", "int64"):
        for name in ("rint", "floor", "ceil", "trunc", "abs", "square"):
            same(lambda m, x, n=name: getattr(m, n)(x), np.array([-3, 0, 5], dtype))
    with pytest.raises(GraphdiffError, match=r"(?s)floor: .*test_odd_input.py"):
        gd.floor("a")
    with pytest.raises(GraphdiffError, match=r"(?s)trunc: .*unexpected keyword.*test_odd_input.py"):
        gd.trunc(b, out=None)


# -- layers, optimisers, data --------------------------------------------------------------------------------------------------------

nn = gd.nn
X = gd.input("x", ("n", 3), "float32")


@pytest.mark.parametrize(("make", "message"), [
    (lambda: nn.MaxPool(0), "max_pool: window must be at least 1, not 0"), (lambda: nn.MaxPool((2, -1)), "window must be at least 1, not -1"),
    (lambda: nn.MaxPool(2, stride=0), "stride must be at least 1"), (lambda: nn.MaxPool(2, foo=1), "unexpected keyword argument 'foo'"),
    (lambda: nn.MaxPool(2, padding=5), "padding 5 is not less than the window"), (lambda: nn.MaxPool((2, 2, 2, 2)), "spatial axes"),
    (lambda: nn.MaxPool((2, 2), stride=(1, 2, 3)), "2 entries for 3 spatial axes"), (lambda: nn.AvgPool("a"), "window is a whole number"),
    (lambda: nn.MaxPool(2, ceil_mode="x"), "ceil_mode must be True or False"),
    (lambda: nn.AvgPool(2, count_include_pad=None), "count_include_pad must be"),
    (lambda: nn.Conv(3, 4, 3, stride=0), "stride must be at least 1"), (lambda: nn.Conv(3, 4, 3, padding="sam"), "padding is numbers, 'same' or 'valid'"),
    (lambda: nn.Conv(3, 4, 3, dilation=-1), "dilation must be at least 1"), (lambda: nn.ConvTranspose(3, 4, 3, output_padding=7), "output_padding 7"),
    (lambda: nn.Dense(3, 2, None, "glorot"), "bias must be True or False, not 'glorot'"), (lambda: nn.LayerNorm(()), "shape names no axis"),
    (lambda: nn.Dense(3, 2, key=gd.input("k")), "a key is int64[2], not float64[]"), (lambda: nn.Dropout(0.5, key=gd.input("k")), "a key is int64[2]"),
    (lambda: nn.LSTM(2, 3, reverse="yes"), "reverse must be True or False"), (lambda: nn.BatchNorm(3, scale=[]), "scale must be True or False"),
    (lambda: nn.GraphLayer(2, 3, how=["sum"]), "how is one of sum, mean, max"), (lambda: nn.functional.aggregate(X, [0], 1, how="last"), "how is one of"),
    (lambda: gd.optim.Adam(clip_norm=-1), "clip_norm is a number above 0"), (lambda: gd.optim.Adam(clip_value=0), "clip_value is a number above 0"),
    (lambda: gd.optim.Adam(clip_norm=float("nan")), "clip_norm is a number above 0"),
    (lambda: gd.optim.Adam(clip_value=X), "a scalar node, not float32[n, 3]"),
    (lambda: gd.optim.Adam().updates(X, [{"parameters": gd.variable(1.0, "w"), "clip_norm": -1}], gradients=[gd.input("g")]),
     "clip_norm is a number above 0"),
    (lambda: gd.optim.Momentum(averaged="a"), "averaged must be True or False"), (lambda: gd.optim.AMSGrad(corrected=None), "corrected must be True"),
    (lambda: gd.optim.clip_by_norm([X], None), "limit is a number above 0"), (lambda: gd.optim.clip_by_value([X], X), "a scalar node, not float32[n, 3]"),
    (lambda: gd.optim.schedules.piecewise([1, 2], ["a"]), "a boundary is a whole number"), (lambda: gd.optim.schedules.piecewise(1, 2), "a list of rates"),
    (lambda: gd.optim.schedules.warmup("a", 5), "rate is a finite number"), (lambda: gd.optim.schedules.warmup(X, 5), "rate is a finite number"),
    (lambda: gd.data.batches([np.ones(3)], 2, shuffle="no"), "shuffle must be True or False"),
    (lambda: gd.losses.hinge(X, X, margin="a"), "margin is a number"),
    (lambda: gd.data.batches([np.ones(3)], 2, drop_last=2), "drop_last must be True or False"),
    (lambda: gd.losses.hinge(X, X, margin=np.nan), "margin is"),
    (lambda: gd.fit(lambda: 0, [], epochs=1, validate=5), "validate is a function"), (lambda: gd.sort(X, descending="yes"), "descending must be True"),
])
def test_options_are_refused_where_they_are_given(make, message):
    with pytest.raises(GraphdiffError) as caught:
        make()
    assert message in str(caught.value)


def test_pools_and_convolutions_with_options_that_fit_are_made_and_work():
    for layer in (nn.MaxPool(2, stride=2, padding=1), nn.MaxPool(2, stride=(2, 1)), nn.AvgPool((2, 3), ceil_mode=True),
                  nn.Conv(3, 4, (3, 3), padding="same"),
                  nn.ConvTranspose(3, 4, 3, stride=2, output_padding=1), nn.Conv(3, 6, 5, padding=((0, 1), 2), dilation=2, groups=3)):
        x = gd.input("x", (2, 3, 9, 10), "float32")
        assert np.isfinite(gd.evaluate(layer(x), {x: np.ones((2, 3, 9, 10), "float32")})).all()


def test_an_error_inside_a_layer_names_the_line_that_called_it():
    with pytest.raises(ShapeError, match=r"(?s)dense: the input is float32\[n, 3\], 4 numbers are needed along axis -1\n  at +test_odd_input.py:\d+ "):
        nn.Dense(4, 2)(X)


def test_layers_of_one_name_in_different_parts_of_a_network_are_told_by_their_path():
    net = nn.Sequential(nn.Sequential(nn.Dense(3, 4), gd.relu, nn.Dense(4, 4)), nn.Sequential(nn.Dense(4, 4)))

    class Pair(nn.Layer):
        def __init__(self):
            super().__init__("pair")
            self.left, self.right, self.only = nn.Dense(3, 2), nn.Dense(3, 2), nn.LayerNorm(3)

        def forward(self, x, training):
            return self.left(x)

    pair = Pair()
    with pytest.raises(gd.errors.GradientError, match=r"does not depend on 'dense\.w' \(sequential\.steps\.1\.steps\.0\.w\)"):
        gd.optim.Adam().updates(gd.mean(net[0](X)), net.parameters())
    with pytest.raises(gd.errors.GradientError, match=r"does not depend on 'dense\.w' \(pair\.right\.w\)"):
        gd.optim.Adam().updates(gd.mean(pair(X)), pair.parameters())
    labels = [p._attrs[0] for p in pair.parameters()]
    with pytest.raises(gd.errors.GradientError, match=r"no derivative flows from .* to 'dense\.w' \(pair\.left\.w\): argmax cuts the path"):
        gd.optim.Adam().updates(gd.sum(gd.argmax(pair(X), axis=1).astype("float32")), pair.parameters()[:1])
    alone = nn.Dense(3, 2)
    with pytest.raises(gd.errors.GradientError, match=r"does not depend on 'dense\.w'\n"):
        gd.optim.Adam().updates(gd.mean(X), alone.parameters())
    assert [s.path for s in labels] == [f"pair.{k}" for k in pair.variables()]


LABELS = [-1, -5, -2**31, -2**40 - 7, -2**41, -2**50, -2**60, -2**63, 3, 2**40, 2**62, 2**63 - 1]


@pytest.mark.parametrize("label", LABELS)
def test_errors_name_a_label_of_any_size_as_it_was_written(label):
    i, logits = gd.input("i", (1,), "int64"), np.ones((1, 3))
    for f in (gd.losses.cross_entropy(gd.constant(logits), i), gd.nn.Embedding(3, 2)(i)):
        with pytest.raises(gd.errors.OutOfBounds, match=rf"index {label} is out of bounds for axis \d with size 3"):
            gd.evaluate(f, {i: [label]})
    if not -3 <= label < 3:
        with pytest.raises(gd.errors.OutOfBounds, match=rf"index {label} is out of bounds for axis 0 with size 3"):
            gd.evaluate(gd.take(gd.constant(np.ones(3)), i), {i: [label]})
        with pytest.raises(gd.errors.OutOfBounds, match=rf"index {label} is out of bounds for axis 0 with size 3"):
            gd.take(gd.constant(np.ones(3)), [label])
    with pytest.raises(gd.errors.OutOfBounds, match=rf"index {label} is out of bounds for axis 0 with size 3"):
        gd.nn.Embedding(3, 2)(gd.constant([label]))


# -- derivatives of named sizes ----------------------------------------------------------------------------------------------------

def test_jacobians_need_known_sizes_on_the_side_they_sweep_alone():
    x, w = gd.input("x", ("n", 3)), gd.input("w", (3,))
    a, b = np.arange(12.0).reshape(4, 3) / 7, np.array([0.5, -1.0, 2.0])
    values = {x: a, w: b}
    y, s = gd.sin(x @ w), gd.stack([gd.sum(gd.square(x) @ w), gd.mean(x)])
    j = gd.jacobian(y, w)                                   # forward: one sweep an element of w
    assert str(j.shape) == "(n, 3)"
    np.testing.assert_allclose(gd.evaluate(j, values), np.cos(a @ b)[:, None] * a, rtol=1e-14)
    k = gd.jacobian(s, x)                                   # reverse: one an element of s
    assert str(k.shape) == "(2, n, 3)"
    np.testing.assert_allclose(gd.evaluate(k, values), [2 * a * b, np.full((4, 3), 1 / 12)], rtol=1e-14)
    np.testing.assert_allclose(gd.evaluate(gd.hessian(gd.sum(y), w), values), -(a * np.sin(a @ b)[:, None]).T @ a, rtol=1e-13)
    assert gd.evaluate(gd.jacobian(y, gd.input("e", (0,))), values).shape == (4, 0)
    for call, message in ((lambda: gd.jacobian(y, x), r"neither y, \[n\], nor x, \[n, 3\], has known sizes"),
                          (lambda: gd.jacobian(y, w, mode="reverse"), r"mode 'reverse' takes one sweep an element of y, \[n\], whose size must be known"),
                          (lambda: gd.jacobian(s, x, mode="forward"), r"mode 'forward' takes one sweep an element of x, \[n, 3\]"),
                          (lambda: gd.hessian(gd.sum(y), x), r"neither y, \[n, 3\], nor x")):
        with pytest.raises(ShapeError, match=rf"(?s)jacobian: {message}.*test_odd_input.py.*hint .*gd.hvp"):
            call()


# -- one element of a named axis ---------------------------------------------------------------------------------------------------

ONE_OF_NAMED = [
    lambda m, x: x - x[:1], lambda m, x: x[-1:] * x, lambda m, x: x[5:6] + x[:1], lambda m, x: m.where(x > 3, x[:1], x), lambda m, x: x[-6:-5] + 0.0,
    lambda m, x: m.concatenate([x[:1], x, x[-1:]]), lambda m, x: m.broadcast_to(x[:1], x.shape) * x, lambda m, x: m.cumsum(x[:1] + x, axis=0),
    lambda m, x: m.sum(x[:1], axis=0), lambda m, x: x[:1] @ m.ones((2, 3)), lambda m, x: (x[:1, None] * x[None, :1])[..., 0],
    lambda m, x: m.maximum(x[::-1][:1], x),
]


@pytest.mark.parametrize("f", ONE_OF_NAMED, ids=range(len(ONE_OF_NAMED)))
def test_one_element_of_a_named_axis_stretches_and_may_be_missing(f):
    x = gd.input("x", ("n", 2))
    y = f(gd, x)
    run = gd.function([x], [y, gd.grad(gd.sum(gd.square(y)), x), gd.jvp(y, x, gd.ones_like(x))])
    for n in (1, 2, 6, 0):
        a = np.arange(2.0 * n).reshape(n, 2) + 1
        value, gradient, tangent = run(a)
        np.testing.assert_allclose(value, f(np, a), rtol=1e-14)
        z = gd.input("z", (n, 2))                           # the same with a known size
        w = f(gd, z)
        for got, want in ((gradient, gd.grad(gd.sum(gd.square(w)), z)), (tangent, gd.jvp(w, z, gd.ones_like(z)))):
            np.testing.assert_allclose(got, gd.evaluate(want, {z: a}), rtol=1e-14)
        checked(3)


def test_the_rest_of_what_takes_one_element_of_a_named_axis():
    x, k = gd.input("x", ("n", 2)), gd.constant(np.ones((5, 2)))
    a = np.arange(6.0).reshape(3, 2)
    first = x[:1]
    assert str(first.shape[0]) == "min(n, 1)" and (first + k).shape == (5, 2) and gd.squeeze(first).shape == (2,)
    for y, want in ((first + k, a[:1] + 1), (gd.squeeze(first), a[0]), (gd.einsum("ij,ij->j", first, x), np.einsum("ij,ij->j", a[:1], a)),
                    (gd.einsum("ij,kj->k", first, k), np.full(5, 1.0)), (gd.losses.mse(first, k[:1]), 0.5), (gd.attention(first, x, x), None)):
        got = gd.evaluate(y, {x: a})
        assert got.shape == y.shape or str(y.shape[0]) == "min(n, 1)"
        if want is not None:
            np.testing.assert_allclose(got, np.broadcast_to(want, got.shape), rtol=1e-14)
        gd.check_grads(y, x, a, order=1)
    with pytest.raises(ShapeError, match=r"(?s)squeeze|reshape.*test_odd_input.py"):
        gd.evaluate(gd.squeeze(first), {x: a[:0]})
    with pytest.raises(ShapeError, match=r"(?s)test_odd_input.py"):
        gd.evaluate(first + k, {x: a[:0]})                  # NumPy refuses 0 beside 5 too


# -- NumPy's names and options -----------------------------------------------------------------------------------------------------

M34 = np.random.default_rng(5).standard_normal((3, 4))


@pytest.mark.parametrize("f", [
    lambda m, x: m.sum(a=x, axis=0), lambda m, x: m.stack(arrays=(x, x)), lambda m, x: m.vstack(tup=[x, x]), lambda m, x: m.flip(m=x),
    lambda m, x: m.dot(a=x, b=x.T), lambda m, x: m.tile(A=x, reps=2), lambda m, x: m.tril(m=x, k=1), lambda m, x: m.clip(a=x, a_min=0, a_max=1),
    lambda m, x: m.take(a=x, indices=[1, 5], axis=0, mode="wrap"), lambda m, x: m.take(x, [-7, 9, 1], mode="clip"),
    lambda m, x: m.take(x, [-7, 30], mode="wrap"), lambda m, x: m.concatenate([x, x], dtype="float32"),
    lambda m, x: m.hstack([x, x], dtype="float32"), lambda m, x: m.std(x, axis=1, ddof=1, dtype="float32"), lambda m, x: m.var(x, correction=1),
    lambda m, x: m.sort(x, kind="stable"), lambda m, x: m.argsort(x, axis=0, stable=True), lambda m, x: m.ravel(x, order="C"),
    lambda m, x: m.reshape(x, (2, 6), order="C"),
    lambda m, x: m.zeros_like(x, shape=(2, 2)) + m.ones_like(x, dtype="float32", shape=2) + m.full_like(x, 3, shape=()),
    lambda m, x: m.average(x, axis=1, returned=True)[1], lambda m, x: m.average(x, axis=0, weights=[1, 2, 3], returned=True)[1],
    lambda m, x: m.diag(v=x, k=-1), lambda m, x: m.average(x, returned=True)[0], lambda m, x: m.atleast_2d(x[0], x)[0],
    lambda m, x: x + m.linspace(0, 1, 4, retstep=True)[1], lambda m, x: x + m.linspace(0, 1, 3, False)[:, None],
    lambda m, x: x + m.eye(N=3, M=4, k=1), lambda m, x: m.repeat(a=x, repeats=2), lambda m, x: m.expand_dims(a=x, axis=0),
])
def test_numpys_names_and_options_are_known(f):
    x = gd.input("x", M34.shape)
    got, want = gd.evaluate(f(gd, x), {x: M34}), f(np, M34)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6 if got.dtype == "float32" else 1e-13)


@pytest.mark.parametrize("f", [lambda m: m.arange(stop=5), lambda m: m.arange(start=2, stop=5), lambda m: m.arange(5, step=2),
                               lambda m: m.arange(1, stop=9, step=3), lambda m: m.arange(2, 9, step=2.5), lambda m: m.arange(5, dtype="float32")])
def test_ranges_by_name(f):
    got, want = gd.evaluate(f(gd), {}), f(np)
    assert got.dtype == want.dtype and np.array_equal(got, want)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: gd.sum(x, a=x), "unexpected keyword argument 'a'|multiple values"),
    (lambda x: gd.sum(b=x), "unexpected keyword argument 'b'|missing"), (lambda x: gd.hstack([x], out=None), "unexpected keyword argument 'out'"),
    (lambda x: gd.hstack(["a"]), "dtype <U1 is not supported"), (lambda x: gd.fliplr(x[0]), "axis 1 is out of bounds"),
    (lambda x: gd.fliplr("a"), "dtype <U1 is not supported"), (lambda x: gd.zeros("a b"), "cannot name a size"),
    (lambda x: gd.identity("a"), "whole numbers"), (lambda x: gd.count_nonzero(x, axis=7), "axis 7 is out of bounds"),
    (lambda x: gd.zeros_like(None), "type NoneType is neither a node"), (lambda x: gd.reshape(x, (6, 2), order="F"), "order must be 'C', not 'F'"),
    (lambda x: gd.sort(x, kind="bubble"), "kind 'bubble' is not one of"),
    (lambda x: gd.take(x, [0], mode="x"), "mode 'x' is not one of raise, wrap, clip"),
    (lambda x: gd.var(x, ddof=1, correction=1), "ddof and correction are the same"), (lambda x: gd.arange(), "one to three bounds"),
    (lambda x: gd.arange(start=4), "one to three"),
    (lambda x: gd.arange(1, 2, 3, 4), "one to three bounds"), (lambda x: gd.arange(1, start=2), "start is given twice"),
    (lambda x: gd.broadcast_arrays(x, gd.ones(3)), "do not broadcast"), (lambda x: gd.column_stack([x, "a"]), "dtype <U1 is not supported"),
    (lambda x: gd.positive(x > 0), "positive: not defined for bool"), (lambda x: +(x > 0), "positive: not defined for bool"),
    (lambda x: gd.positive("a"), "dtype <U1"),
])
def test_wrong_names_and_options_are_located(call, message):
    with pytest.raises(GraphdiffError, match=rf"(?s)({message}).*test_odd_input.py"):
        call(gd.input("x", (3, 4)))


V3, I3 = np.array([0.5, -1.5, 2.0]), np.array([1, -2, 40])


@pytest.mark.parametrize("f", [
    lambda m, x: m.take(x[0], 0, axis=0), lambda m, x: m.take(x[0], [0, 0], axis=-1), lambda m, x: m.repeat(x[0], 3, axis=0),
    lambda m, x: m.repeat(x, [2]),
    lambda m, x: m.repeat(x, np.array([2]), axis=0), lambda m, x: m.take(x, []), lambda m, x: m.transpose(x, 0), lambda m, x: m.transpose(x, [-1]),
    lambda m, x: m.array_split(x, np.array([1, 2]))[1], lambda m, x: m.round(x, True), lambda m, x: m.pad(x[0], 3),
    lambda m, x: m.pad(x, 1, constant_values=(3, 4)),
    lambda m, x: m.diag(x, True), lambda m, x: m.round(x, -1), lambda m, x: m.round(x, np.int64(1)),
])
@pytest.mark.parametrize("a", [V3, I3], ids=["float", "int"])
def test_arguments_numpy_takes_are_taken(f, a):
    same(f, a)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool"])
@pytest.mark.parametrize("number", [-1, 300, 2**40, 2**70])
def test_functions_of_floats_take_any_whole_number_beside_integers(dtype, number):
    a = np.array([1, 0, 3], dtype)
    x = gd.input("x", (3,), dtype)
    for f in (lambda v: v / number, lambda v: number / v, lambda v: gd.hypot(v, number), lambda v: gd.arctan2(number, v)):
        got = gd.evaluate(f(x), {x: a})
        assert got.dtype == "float64"
        y = gd.input("y", (3,))
        np.testing.assert_array_equal(got, gd.evaluate(f(y), {y: a.astype(float)}))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(gd.evaluate(x / number, {x: a}), a / number)
    with pytest.raises(OutOfRange, match=r"(?s)divide: the right operand: Python integer of 1329 bits"):
        x / 10**400


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: gd.split(x, 1.5), "a number of sections or a list of positions"), (lambda x: gd.split(x, [1.5]), "whole numbers"),
    (lambda x: gd.transpose(x, "a"), "an axis is a whole number"), (lambda x: gd.transpose(x, 5), "axis 5 is out of bounds"),
    (lambda x: gd.round(x, None), "round: decimals must"),
    (lambda x: x.round(1.5), "round: decimals must be a whole number, not 1.5"), (lambda x: gd.pad(x[0], -1), "must not be negative"),
    (lambda x: gd.pad(x[0], (1, 2, 3)), "pad_width is an int"), (lambda x: gd.pad(x, 1, constant_values="a"), "constant_values must be numbers"),
    (lambda x: gd.pad(x, 1, constant_values=((1, 2), (3, 4))), "constant_values is a number"), (lambda x: gd.diag(x, 1.5), "number of a diagonal"),
    (lambda x: gd.diagonal(x[None], 1.5), "number of a diagonal"), (lambda x: gd.triu(x, None), "number of a diagonal"),
    (lambda x: gd.repeat(x, "a"), "whole numbers"),
])
def test_arguments_of_wrong_kinds_are_located(call, message):
    with pytest.raises(GraphdiffError, match=rf"(?s){message}.*test_odd_input.py"):
        call(gd.input("x", (3,)))


def test_rounding_to_more_digits_than_a_number_has_keeps_it():
    for decimals, want in ((400, V3), (309, V3), (-309, V3 * 0), (-400, V3 * 0)):
        np.testing.assert_array_equal(gd.evaluate(gd.round(gd.constant(V3), decimals), {}), want)
    assert gd.evaluate(gd.round(gd.constant(I3), -400), {}).tolist() == [0, 0, 0]


# -- what takes nodes --------------------------------------------------------------------------------------------------------------

NOT_NODES = [None, "a", 1.5, 3, (1, 2), np.ones(2), {"x": 1}, True]


@pytest.mark.parametrize("value", NOT_NODES, ids=repr)
@pytest.mark.parametrize("name", ["check_grads", "trace", "draw", "explain", "to_networkx", "clip_by_norm", "l2"])
def test_what_takes_nodes_says_what_it_was_given(name, value):
    x = gd.input("x", (3,))
    y, at = gd.sum(x), {x: np.ones(3)}
    call = {"check_grads": lambda: gd.check_grads(y, value, at), "trace": lambda: gd.trace(y, at=at, wrt=value), "draw": lambda: gd.draw(y, wrt=value),
            "explain": lambda: gd.explain(y, value), "to_networkx": lambda: gd.to_networkx(value),
            "clip_by_norm": lambda: gd.optim.clip_by_norm(value, 1.0),
            "l2": lambda: gd.losses.l2(value)}[name]
    if value is None and name in ("trace", "draw"):
        call()                  # as if it were not there
        return
    kind = type(value[0] if isinstance(value, tuple) else value).__name__
    with pytest.raises(gd.errors.NodeTypeError, match=rf"is a node or a list of nodes, not {kind}"):
        call()


def test_a_set_or_a_generator_of_nodes_is_a_list():
    x, y = gd.inputs("x y")
    assert len(gd.to_networkx(n for n in (x * y, x + y))) == 4
    gd.check_grads(x * y, {x, y}, {x: 2.0, y: 3.0})


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: gd.check_grads(x, x, np.ones(3), order=2**70), "order must be a whole number from 1 to 10"),
    (lambda x: gd.check_grads(x, x, np.ones(3), modes=3), "modes are 'forward' and 'reverse'"),
    (lambda x: gd.nn.save(3, gd.nn.Dense(1, 1)), "save: a path is"),
    (lambda x: gd.nn.load(None), "load: a path is needed first, not NoneType"), (lambda x: gd.nn.BatchNorm(2**70), "is too large"),
    (lambda x: gd.nn.LayerNorm(2**45), "takes 140737488355328 bytes"), (lambda x: gd.segment_mean(x, [0, 0, 1], -1), "a size cannot be negative"),
    (lambda x: gd.segment_mean(x, [0, 0, 1], "n n"), "cannot name a size"), (lambda x: gd.segment_sum(x, [0, 0, 1], 1.5), "a size is a whole number"),
])
def test_more_options_are_refused_where_they_are_given(call, message):
    with pytest.raises(GraphdiffError) as caught:
        call(gd.input("x", (3,)))
    assert message in str(caught.value)


def test_a_quoted_argument_of_any_length_leaves_a_message_short():
    x, long = gd.input("x", (3,)), "a\n" + "z" * 10_000
    for call in (lambda: gd.pad(x, 1, mode=long), lambda: gd.round(x, long), lambda: gd.eye(long), lambda: gd.tile(x, np.zeros(5000)),
                 lambda: gd.sum(x, keepdims=long),
                 lambda: gd.top_k(x, long), lambda: gd.einsum(long, x), lambda: gd.jacobian(x, x, long)):
        with pytest.raises(GraphdiffError, match=r"(?s)test_odd_input.py") as caught:
            call()
        assert max(len(line) for line in str(caught.value).split("\n")) < 600
    for name in (long, "a\x1b[31m", "\u202e"):
        with pytest.raises(ShapeError, match="name is one line of at most 100 characters") as caught:
            nn.Dense(1, 1, name=name)
        assert str(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("f", [lambda m, x: m.roll(x, (1, 2), (0, 0)), lambda m, x: m.diag(x[:, 0], 1),
                               lambda m, x: m.diagonal(m.outer(x[:, 0], x[:, 1]), -2),
                               lambda m, x: m.diagonal(x), lambda m, x: m.diagonal(x, 1, 1, 0), lambda m, x: m.std(x, axis=0, ddof=1),
                               lambda m, x: m.var(x, axis=0, ddof=3),
                               lambda m, x: m.take(x, [0, 1, 2, -1], axis=1), lambda m, x: m.rot90(x), lambda m, x: m.tril(x, -1)])
def test_named_sizes_and_numbers_give_the_same(f):
    x = gd.input("x", ("n", 3))
    y = f(gd, x)
    run = gd.function([x], [y, gd.grad(gd.sum(gd.square(y)), x)])
    for n in (4, 3, 1, 0):
        a = np.random.default_rng(n).standard_normal((n, 3))
        z = gd.input("z", (n, 3))
        w = f(gd, z)
        for got, want in zip(run(a), gd.function([z], [w, gd.grad(gd.sum(gd.square(w)), z)])(a), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            np.testing.assert_allclose(run(a)[0], f(np, a), rtol=1e-13)


def test_numpys_functions_take_its_names_and_an_out_that_is_none():
    x = gd.input("x", (2, 3))
    a = np.arange(6.0).reshape(2, 3)
    for f in (lambda v: np.sum(a=v, axis=0, out=None), lambda v: np.cumsum(v, axis=1, out=None), lambda v: np.take(v, [1], axis=1, out=None, mode="wrap"),
              lambda v: np.stack(arrays=[v, v]), lambda v: np.round(v, decimals=1, out=None), lambda v: np.std(v, ddof=1, axis=0, out=None)):
        np.testing.assert_allclose(gd.evaluate(f(x), {x: a}), f(a), rtol=1e-14)
    with pytest.raises(gd.errors.NodeTypeError, match=r"(?s)sum: out: a node cannot be written into an array.*test_odd_input.py"):
        np.sum(x, out=np.zeros(3))


@pytest.mark.parametrize("make", [gd.constant, gd.variable])
def test_a_dtype_is_no_name(make):
    for name in ("float32", "bool", "int64"):
        with pytest.raises(NodeTypeError, match="stands where the name is"):
            make([1.0, 2.0], name)
    with pytest.raises(NodeTypeError, match="a name is a str"):
        make([1.0, 2.0], np.float32)
    assert make([1.0], "float").name == "float"


@pytest.mark.parametrize("join", [gd.stack, gd.concatenate, gd.hstack, gd.vstack, gd.dstack, gd.column_stack])
def test_what_is_joined_is_a_list(join):
    for odd in (3, None):
        with pytest.raises(NodeTypeError, match="a list of operands is needed"):
            join(odd)
    x = gd.input("x", (3,))
    assert join(part for part in (x, x)).shape == join([x, x]).shape


def test_single_bools_and_ragged_lists_are_no_index():
    x = gd.input("x", (4, 3))
    for index in (lambda: x[np.array(True)], lambda: x.at[np.array(False)].set(1.0)):
        with pytest.raises(NodeTypeError, match="a single bool is not an index"):
            index()
    with pytest.raises(ShapeError, match="different lengths"):
        x[[[0, 1], [0]]]


def test_derivatives_where_a_factor_is_0_and_another_infinite():
    x = gd.input("x", (3,))
    at = {x: np.array([np.inf, -np.inf, 1.0])}
    s = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(gd.evaluate(gd.grad(gd.silu(x).sum(), x), at), [1, 0, s * (1 + 1 - s)], rtol=1e-15)
    g = gd.evaluate(gd.grad(gd.norm(x, ord=0.5), x), {x: np.array([0.0, 1.0, 2.0])})
    np.testing.assert_allclose(g, [0, 1 + 2 ** 0.5, (1 + 2 ** 0.5) / 2 ** 0.5], rtol=1e-14)


def test_what_goes_wrong_elsewhere_is_told_as_it_is():
    x = gd.input("x", (3,))

    class Odd:
        def __array__(self, dtype=None, copy=None):
            raise ValueError("boo")
    with pytest.raises(ValueError, match=r"^boo$"):
        gd.function([x], x)(Odd())
    with pytest.raises(BadValue, match="NaN or infinities"):
        gd.check_grads(x * 2, [x], {x: np.array([np.nan, 1.0, 2.0])})
    with pytest.raises(NodeTypeError, match="y is one node, not a list"):
        gd.grad([x.sum(), x.mean()], x)


# -- values to fill with, masks, dtypes that are asked for ----------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float64", "int64", "uint8"])
def test_full_takes_its_value_through_the_gate(dtype):
    x = gd.input("x", (2, 3))
    for value in ([1, 2], [], [[1, 2]], "3", np.datetime64("2020"), None, 1j, object(), [[1], [2, 3]], np.ma.masked_array([1, 2, 3], [0, 1, 0]), ...):
        for f in (lambda v=value: gd.full((2, 3), v, dtype), lambda v=value: gd.full_like(x, v, dtype)):
            with pytest.raises(GraphdiffError, match="test_odd_input"):
                f()
            checked(1)
    same(lambda m, a: m.full((2, 3), [1, 2, 3], dtype) + a, np.zeros((2, 3), dtype))
    same(lambda m, a: m.full_like(a, np.float32(2.5)), np.zeros((2, 3), dtype))
    with pytest.raises(ShapeError):
        gd.full((), [1.0, 2.0], dtype)


def random_index(rng, shape):
    """Slices, numbers, new axes, an ellipsis, position arrays, and masks that mostly fit where they stand."""
    kinds = list(rng.choice(["none", "ellipsis", "mask", "plane", "slice", "int", "array"], rng.integers(1, 5)))
    width = {"none": 0, "ellipsis": 0, "plane": 2}
    index, axis = [], 0
    for k, kind in enumerate(kinds):
        if kind == "ellipsis" and kind in kinds[:k]:
            kind = kinds[k] = "slice"
        if kind in ("mask", "plane"):
            n = width.get(kind, 1)
            index.append(rng.random(shape[axis:axis + n] if axis + n <= len(shape) and rng.random() < .8 else (2,) * n) < .5)
        else:
            index.append({"none": None, "ellipsis": Ellipsis, "slice": slice(None, None, int(rng.choice([1, -1, 2]))),
                          "int": int(rng.choice([0, -1])), "array": np.zeros(2, int)}[kind])
        axis = max(axis, len(shape) - sum(width.get(q, 1) for q in kinds[k + 1:])) if kind == "ellipsis" else axis + width.get(kind, 1)
    return tuple(index)


def test_masks_among_other_indices():
    rng = np.random.default_rng(11)
    fits = 0
    for _ in range(1200):
        a = rng.standard_normal(tuple(rng.integers(1, 5, rng.integers(1, 5))))
        index = random_index(rng, a.shape)
        x = gd.input("x", a.shape)
        try:
            want = a[index]
        except IndexError:
            with pytest.raises(GraphdiffError):
                gd.evaluate(x[index], {x: a})
            checked(1)
            continue
        changed = a.copy()
        changed[index] = 7
        fits += 1
        np.testing.assert_array_equal(gd.evaluate(x[index], {x: a}), want)
        np.testing.assert_array_equal(gd.evaluate(x.at[index].set(7.0), {x: a}), changed)
        checked(2)
    assert fits > 300


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_sums_and_products_in_bool(name):
    rng = np.random.default_rng(2)
    for a in (rng.integers(0, 2, (3, 4)) * 0.5, rng.integers(-2, 2, (3, 4)), rng.random((3, 4)) < 0.5):
        for axis in (None, 0, 1):
            same(lambda m, x, axis=axis: getattr(m, name)(x, axis=axis, dtype=bool), a)
            if not name.startswith("cum"):
                mask, first = rng.random((3, 4)) < 0.5, name == "prod"
                same(lambda m, x, axis=axis, k=mask, f=first: getattr(m, name)(x, axis=axis, dtype=bool, where=k, initial=f), a)


def test_means_in_integers_and_what_has_no_spread():
    a = np.array([[1.7, 2.2, -3.9], [4, -5.5, 6]])
    for dtype in ("int32", "int64"):
        same(lambda m, x, d=dtype: m.mean(x, axis=0, dtype=d), a)
    x = gd.input("x", (2, 3))
    for f in (lambda: gd.mean(x, dtype=bool), lambda: gd.var(x, dtype="int64"), lambda: gd.std(x, dtype=bool)):
        with pytest.raises(GraphdiffError, match="dtype="):
            f()


def test_sizes_and_values_that_are_not_there():
    x = gd.input("x", ("n", 3))
    for f in (lambda: gd.evaluate(x.shape[0]), lambda: gd.function([], x.shape[0])()):
        with pytest.raises(ShapeError, match=r"size n needs 'n', which no argument gives.*\n.*test_odd_input"):
            f()
    assert gd.function([x], x.shape[0] * 2)(np.zeros((4, 3))) == 8
    with pytest.raises(NodeTypeError, match="evaluate: input 'x' is needed by the outputs but has no value"):
        gd.evaluate(gd.sin(x), {})
    assert not hasattr(x, "value")
    assert gd.evaluate(gd.repeat(gd.constant(np.zeros(0)), [])).shape == (0,)
    assert gd.evaluate(gd.diff(3.0, n=0)) == 3
    with pytest.raises(NodeTypeError, match="immutable"):
        del x[0]
    y = gd.sin(gd.input("a"))
    with pytest.raises(GraphdiffError, match="no row for 5"):
        gd.trace(y, at={y.inputs[0]: 1.0}).run_to(5)
    for seed in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(OutOfRange):
            gd.random.key(seed)


# What nobody means: an array, a list, an object, a number beyond all sizes in the place of an option.
ODD = (np.array([1, 2]), [1], {}, object(), 1.5, "s", -1, np.nan, (1, "n"), 2**70)
X23 = gd.input("x", (2, 3))


@pytest.mark.parametrize("call", [
    *[lambda a, layer=layer: layer(2, 3, activation=a) for layer in (gd.nn.RNN, gd.nn.LSTM, gd.nn.GRU)],
    lambda a: gd.draw(X23 * 2, style=a), lambda a: gd.draw(X23 * 2, direction=a),
    *[lambda a, make=make: make(0, (2, 3), a) for make in (gd.nn.init.zeros, gd.nn.init.normal, gd.nn.init.orthogonal)],
])
def test_odd_options_of_layers_and_pictures(call):
    for odd in ODD:
        with pytest.raises(GraphdiffError, match="test_odd_input"):
            call(odd)
        checked(1)


@pytest.mark.parametrize("name", ["zeros", "ones", "normal", "uniform", "glorot", "he", "orthogonal"])
def test_odd_shapes_of_initialisers(name):
    make = getattr(gd.nn.init, name)
    for odd in (np.array([1, -2]), {}, object(), 1.5, "n", -1, np.nan, (1, "n"), 2**70, ([2], 3)):
        with pytest.raises(GraphdiffError):
            make(0, odd)
        checked(1)
    for odd in (np.array([1, 2]), "s", None, -1, np.nan, np.inf):
        if name in ("normal", "uniform"):
            with pytest.raises(GraphdiffError, match=r"deviation|limit"):
                make(0, (2, 3), "float32", odd)
