"""Functions written in terms of others against NumPy: values for every dtype, NumPy's protocols, both modes and orders of derivatives
against the complex step, edges."""
import numpy as np
import pytest
from counting import checked
from test_ops_linalg_conv import check, rand

import graphdiff as gd
from graphdiff.errors import DTypeError, NodeTypeError, ShapeError

F = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


def same(got, want, dtype="float64"):
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.astype(float), np.asarray(want, float), rtol=F.get(dtype, 0), atol=F.get(dtype, 0))
    checked()


# name, call(np or gd, *arrays), arrays, is it differentiable
CASES = [
    ("cross", lambda m, a, b: m.cross(a, b), ((4, 3), (4, 3))),
    ("cross", lambda m, a, b: m.cross(a, b, axisa=0, axisb=1, axisc=0), ((3, 5), (5, 3))),
    ("cross", lambda m, a, b: m.cross(a, b, axis=1), ((2, 3, 4), (1, 3, 4))),
    ("cross", lambda m, a, b: m.cross(a, b), ((3,), (2, 1, 3))),
    ("rot90", lambda m, a: m.rot90(a), ((3, 4, 2),)),
    ("rot90", lambda m, a: m.rot90(a, 2, (0, 2)), ((3, 4, 2),)),
    ("rot90", lambda m, a: m.rot90(a, -1, axes=(2, 1)), ((3, 4, 2),)),
    ("rot90", lambda m, a: m.rot90(a, 4), ((2, 2),)),
    ("append", lambda m, a, b: m.append(a, b), ((2, 3), (4,))),
    ("append", lambda m, a, b: m.append(a, b, axis=-1), ((2, 3), (2, 1))),
    ("vecdot", lambda m, a, b: m.vecdot(a, b), ((2, 3), (4, 1, 3))),
    ("vecdot", lambda m, a, b: m.vecdot(a, b, axis=0), ((3, 2), (3, 2))),
    ("cumulative_sum", lambda m, a: m.cumulative_sum(a), ((5,),)),
    ("cumulative_sum", lambda m, a: m.cumulative_sum(a, axis=1, include_initial=True), ((2, 5),)),
    ("cumulative_prod", lambda m, a: m.cumulative_prod(a, axis=-2), ((4, 2),)),
    ("cumulative_prod", lambda m, a: m.cumulative_prod(a, axis=0, include_initial=True), ((4, 2),)),
    ("degrees", lambda m, a: m.degrees(a), ((5,),)), ("radians", lambda m, a: m.radians(a), ((5,),)),
    ("rad2deg", lambda m, a: m.rad2deg(a), ((2, 2),)), ("deg2rad", lambda m, a: m.deg2rad(a), ((),)),
    ("trapezoid", lambda m, a: m.trapezoid(a), ((5,),)), ("trapezoid", lambda m, a: m.trapezoid(a, dx=0.5, axis=0), ((5, 2),)),
    ("trapezoid", lambda m, a, x: m.trapezoid(a, x, axis=0), ((5, 2), (5,))),
    ("trapezoid", lambda m, a, x: m.trapezoid(a, x), ((2, 5), (2, 5))),
    ("nan_to_num", lambda m, a: m.nan_to_num(a), ((5,),)),
    ("heaviside", lambda m, a, b: m.heaviside(a, b), ((5,), (2, 5))),
    ("vector_norm", lambda m, a: (m.linalg if m is np else m).vector_norm(a), ((2, 3),)),
    ("vector_norm", lambda m, a: (m.linalg if m is np else m).vector_norm(a, axis=(0, 2), keepdims=True), ((2, 3, 2),)),
    ("vector_norm", lambda m, a: (m.linalg if m is np else m).vector_norm(a, axis=1, ord=3), ((2, 3),)),
    ("vector_norm", lambda m, a: (m.linalg if m is np else m).vector_norm(a, axis=(0, 1), ord=1), ((2, 3),)),
    ("diff", lambda m, a: m.diff(a, 2), ((2, 6),)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_values_and_derivatives(case):
    _, call, shapes = CASES[case]
    arrays = [rand(*s, seed=i) for i, s in enumerate(shapes)]
    check(lambda *xs: call(gd, *xs), call(np, *arrays), *arrays, tol=1e-11)
    check(lambda *xs: call(np, *xs), call(np, *arrays), *arrays, derivatives=False)      # NumPy's own function, of nodes


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_dtypes(case, dtype):
    name, call, shapes = CASES[case]
    r = np.random.default_rng(case)
    arrays = [r.integers(0, 2 if dtype == "bool" else 4, s).astype(dtype) for s in shapes]
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    if dtype == "bool" and name == "cross":
        with pytest.raises(DTypeError, match="bools"):
            call(gd, *nodes)
        return
    got = gd.function(nodes, call(gd, *nodes))(*arrays)
    wide = [a.astype(float) for a in arrays] if name in ("trapezoid", "degrees", "radians", "rad2deg", "deg2rad", "heaviside", "vector_norm") else arrays
    want = call(np, *wide)
    same(got, want, got.dtype.name)
    if dtype.startswith("float"):
        assert got.dtype == dtype
    elif wide is arrays:
        assert got.dtype == (np.int64 if want.dtype == np.uint64 else want.dtype)      # sums of unsigned numbers are int64 here
    else:
        assert got.dtype == np.float64


def test_cross_of_two_components():
    a, b, c = rand(4, 2), rand(4, 2, seed=1), rand(4, 3, seed=2)
    check(gd.cross, a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], a, b)
    wide = np.concatenate([a, np.zeros((4, 1))], 1)
    check(gd.cross, np.cross(wide, c), a, c)
    check(gd.cross, np.cross(c, wide), c, a)
    check(gd.cross, np.cross(np.arange(6).reshape(2, 3), [[1, 2, 3]]), np.arange(6).reshape(2, 3), np.array([[1, 2, 3]]), derivatives=False)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_to_num_of_what_is_no_number(dtype):
    a = SPECIAL.astype(dtype)
    x = gd.input("x", a.shape, dtype)
    for options in ({}, {"nan": 2.0}, {"posinf": 3.0, "neginf": -4.0}):
        y = gd.nan_to_num(x, **options)
        got, g = gd.function([x], [y, gd.grad(gd.sum(y * y), x)])(a)
        want = np.nan_to_num(a, **options)
        assert got.dtype == dtype and got.tobytes() == want.tobytes()
        np.testing.assert_array_equal(g, [0, 0, 0, 0, 0, 3])
        checked(2)
    p = gd.input("p")
    y = gd.nan_to_num(gd.constant(SPECIAL), nan=p, posinf=2 * p, neginf=p)
    assert gd.function([p], gd.grad(gd.sum(y), p))(1.0) == 4


def test_heaviside_at_its_step():
    a, b = np.array([-1.0, -0.0, 0.0, 2.0, np.nan, np.inf, -np.inf]), np.linspace(0.1, 0.7, 7)
    x, h = gd.inputs("x h", (7,))
    y = gd.heaviside(x, h)
    got, gx, gh = gd.function([x, h], [y, *gd.grad(gd.sum(y), [x, h])])(a, b)
    np.testing.assert_array_equal(got, np.heaviside(a, b))
    np.testing.assert_array_equal(gx, np.zeros(7))
    np.testing.assert_array_equal(gh, [0, 1, 1, 0, 0, 0, 0])


def test_a_negative_number_beside_unsigned_integers():
    a = np.array([0, 1, 200], np.uint8)
    x = gd.input("x", (3,), "uint8")
    for f in (lambda m, x: m.float_power(-1, x), lambda m, x: m.float_power(x, -1), lambda m, x: m.heaviside(x, -1), lambda m, x: m.heaviside(-1, x),
              lambda m, x: m.isclose(x, -1), lambda m, x: m.isclose(-1, x), lambda m, x: m.isclose(x, 300)):
        with np.errstate(divide="ignore"):
            want = f(np, a)
        got = gd.evaluate(f(gd, x), {x: a})
        np.testing.assert_array_equal(got, want)
        assert got.dtype == (bool if want.dtype == bool else np.float64)
        checked(2)


def test_isclose_and_allclose():
    a = np.array([1.0, 1.0 + 1e-6, 1.1, np.nan, np.inf, np.inf, -np.inf, 0.0, 1e-9])
    b = np.array([1.0, 1.0, 1.0, np.nan, np.inf, -np.inf, 1.0, 1e-9, 0.0])
    x, y = gd.inputs("x y", (9,))
    for options in ({}, {"equal_nan": True}, {"rtol": 0.2}, {"atol": 0.0}, {"rtol": 0.0, "atol": 1e-5}):
        for m in (gd, np):
            got, every = gd.function([x, y], [m.isclose(x, y, **options), m.allclose(x, y, **options)])(a, b)
            np.testing.assert_array_equal(got, np.isclose(a, b, **options))
            assert every == np.allclose(a, b, **options)
            checked(2)
    assert gd.function([x], gd.allclose(x, x, equal_nan=True))(a)
    i = gd.input("i", (3,), "int32")
    np.testing.assert_array_equal(gd.evaluate(gd.isclose(i, [1.0, 2.1, 3.0]), {i: np.array([1, 2, 3], "int32")}), [True, False, True])


def test_named_sizes():
    n = gd.input("n", ("k", 3))
    a = rand(4, 3)
    for y, want in ((gd.cross(n, n + 1.0), np.cross(a, a + 1)), (gd.rot90(n), np.rot90(a)), (gd.trapezoid(n, axis=0), np.trapezoid(a, axis=0)),
                    (gd.append(n, n, 0), np.append(a, a, 0)), (gd.vecdot(n, n, axis=0), np.vecdot(a, a, axis=0)),
                    (gd.cumulative_sum(n, axis=0, include_initial=True), np.cumulative_sum(a, axis=0, include_initial=True)),
                    (gd.vector_norm(n), np.linalg.vector_norm(a))):
        np.testing.assert_allclose(gd.evaluate(y, {n: a}), want, rtol=1e-14)
        checked()


def test_numpys_linalg_trace_and_diagonal_are_of_the_last_two_axes():
    x, a = gd.input("x", (2, 3, 4)), rand(2, 3, 4)
    for f in (np.trace, np.diagonal, np.linalg.trace, np.linalg.diagonal):
        for options in ({}, {"offset": 1}):
            np.testing.assert_allclose(gd.evaluate(f(x, **options), {x: a}), f(a, **options), rtol=1e-14)


def test_gradient_of_a_norm_at_the_origin_is_zero():
    x = gd.input("x", (2, 2))
    assert not gd.function([x], gd.grad(gd.vector_norm(x), x))(np.zeros((2, 2))).any()


@pytest.mark.parametrize("call, match", [
    (lambda x: gd.cross(x, x), "2 or 3 components, not 4"), (lambda x: gd.cross(2.0, x), "need an axis"), (lambda x: gd.rot90(x, 1.5), "whole number"),
    (lambda x: gd.rot90(x, 1, (0, 0)), "given twice"), (lambda x: gd.rot90(x, 1, 0), "two axes"), (lambda x: gd.append(x, x[0], 0), "operand 1 has 1"),
    (lambda x: gd.cumulative_sum(x), "needs axis="), (lambda x: gd.vecdot(x, 1.0), "at least one axis"), (lambda x: gd.vecdot(x, x[:, :3]), "vecdot"),
    (lambda x: gd.trapezoid(x, axis=2), "trapezoid: axis 2"), (lambda x: gd.isclose(x, "a"), "isclose"), (lambda x: gd.degrees("a"), "degrees"),
    (lambda x: gd.heaviside(x, foo=1), "unexpected keyword"), (lambda x: gd.vector_norm(x, axis=5), "axis 5"),
])
def test_errors_name_the_function_and_the_line(call, match):
    with pytest.raises((ShapeError, DTypeError, NodeTypeError), match=rf"(?s)(?=.*{match}).*test_derived.py:\d+"):
        call(gd.input("x", (3, 4)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_powers_that_are_other_functions(dtype):
    """x**2, x**-1 and x**0.5 are rounded once; a root has a power's values of -0.0 and -inf, and its slopes."""
    x = gd.input("x", (8,), dtype)
    a = np.array([0.0, -0.0, 4.0, 2.0, 3.0, np.inf, -np.inf, -1.0], dtype)
    with np.errstate(all="ignore"):
        root = np.where(a == -np.inf, np.inf, np.sqrt(a + 0)).astype(dtype)
        for y, want in ((x ** 2, np.square(a)), (x ** -1, np.reciprocal(a)), (x ** 0.5, root), (gd.power(x, 0.5), root), (abs(x) ** 0.5, np.sqrt(abs(a)))):
            got = gd.evaluate(y, {x: a})
            np.testing.assert_array_equal(got, want)
            assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()
            checked()
        slopes = gd.evaluate(gd.grad(gd.sum(x ** 0.5), x), {x: a})
        np.testing.assert_allclose(slopes, (0.5 / root).astype(dtype), rtol=1e-3 if dtype == "float16" else 1e-6)
        second = gd.evaluate(gd.grad(gd.sum(gd.grad(gd.sum(x ** 1.5), x)), x), {x: a})
        np.testing.assert_allclose(second, (0.75 / root).astype(dtype), rtol=1e-3 if dtype == "float16" else 1e-6)
    ops = [str(gd.function([x], y).program) for y in (x ** 0.5, abs(x) ** 0.5, gd.grad(gd.sum(x ** 1.5), x))]
    assert all("sqrt" in text and "power" not in text for text in ops)
    i = gd.input("i", (2,), "int64")
    assert gd.evaluate(i ** 0.5, {i: [4, 9]}).tolist() == [2.0, 3.0]
    checked(4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_cubes_are_products(dtype):
    """x**3 within the 2 ULP of a power, with its signs, infinities and underflow; so is the slope of x**4."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.normal(size=5000) * 10.0 ** rng.uniform(info.minexp / 9, info.maxexp / 9, 5000),
                        [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3]]).astype(dtype)
    x = gd.input("x", a.shape, dtype)
    f = gd.function([x], [x ** 3, gd.grad(gd.sum(x ** 4), x)])
    assert "power" not in str(f.program)
    with np.errstate(all="ignore"):
        for got, exact in zip(f(a), (a.astype(np.longdouble) ** 3, 4 * a.astype(np.longdouble) ** 3), strict=True):
            want = exact.astype(dtype)
            inside = np.isfinite(want) & (abs(want) >= 8 * info.tiny)          # 4 times what is subnormal has few digits
            assert (abs((got[inside] - exact[inside]) / np.spacing(abs(want[inside]))) < 2).all()
            assert (abs(got[~inside & (abs(want) < 1)]) <= 8 * info.tiny).all()
            assert np.array_equal(got[~np.isfinite(want)], want[~np.isfinite(want)], equal_nan=True)
            assert np.array_equal(np.signbit(got), np.signbit(want))
            checked(a.size)
