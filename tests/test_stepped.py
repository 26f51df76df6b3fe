"""Elementwise operations on operands, and into results, whose neighbours lie apart or backwards; one value against bools; relu beside its
gradient; groups of many arrays. Bit for bit what contiguous arrays, NumPy or pieces of the arrays give, by one thread and by two."""
import itertools

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

VIEWS = {"even": np.s_[:, ::2], "odd": np.s_[:, 1::2], "back": np.s_[:, ::-1], "third": np.s_[:, ::3], "fourth": np.s_[1:, ::4],
         "back even": np.s_[::-1, ::-2], "cut": np.s_[1:, 1:], "rows": np.s_[::2]}
WIDTHS = [1, 2, 15, 16, 17, 40, 129, 256, 700]
DTYPES = ["float32", "float64", "int32", "int64"]


def rand(*shape, dtype="float64", seed=0):
    rng = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 200, shape).astype(dtype) - np.asarray(100 if dtype.startswith("i") else 0, dtype)
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    odd = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], dtype)
    return np.where(rng.random(shape) < 0.2, odd[rng.integers(0, odd.size, shape)], x)


def run(build, *arrays):
    """What one thread and two give, which is the same."""
    xs = [gd.input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
    one, two = (gd.function(xs, build(*xs), threads=n)(*arrays) for n in (1, 2))
    for a, b in zip(*[r if isinstance(r, (list, tuple)) else [r] for r in (one, two)], strict=True):
        assert same(a, b)
    return one


def same(a, b):
    """The same bits, but for those of NaNs."""
    return a.dtype == b.dtype and a.shape == b.shape and (
        a.tobytes() == b.tobytes() or (a.dtype.kind == "f" and np.array_equal(np.isnan(a), np.isnan(b))
                                       and a[~np.isnan(a)].tobytes() == b[~np.isnan(b)].tobytes()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["negative", "abs", "sign", "square", "relu", "reciprocal", "sqrt", "floor", "ceil", "rint", "trunc"])
def test_of_one_operand_that_lies_apart(name, dtype):
    if dtype.startswith("int") and name not in ("negative", "abs", "sign", "square", "relu"):
        return
    op = getattr(gd, name)
    for width, view in itertools.product(WIDTHS, VIEWS.values()):
        x = rand(7, width, dtype=dtype)
        apart = run(lambda v: op(v[view]), x)                      # noqa: B023  called at once
        assert same(apart, run(op, np.ascontiguousarray(x[view])))
        checked()


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("name", ["negative", "abs", "sign", "square", "relu", "reciprocal", "sqrt", "floor", "ceil", "rint", "trunc"])
def test_of_every_other_element_of_many(name, dtype):
    """From 4096 elements of a call on they are loaded one by one: at lengths around that, and around calls of 8192, of rows of their own, too;
    the last one may be the last of the array."""
    if dtype == "int64" and name not in ("negative", "abs", "sign", "square", "relu"):
        return
    op = getattr(gd, name)
    for shape in ((4095,), (4096,), (4097,), (4103,), (8191,), (8193,), (12_289,), (20_480,), (3, 4099), (2, 5, 4104)):
        for first in (0, 1):
            x = rand(*shape[:-1], 2 * shape[-1] - 1 + first, dtype=dtype, seed=first)
            apart = run(lambda v, first=first: op(v[..., first::2]), x)
            assert apart.shape == shape and same(apart, run(op, np.ascontiguousarray(x[..., first::2])))
            checked()


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "uint8"])
@pytest.mark.parametrize("view", VIEWS)
def test_added_to_what_lies_apart(view, dtype):
    at = VIEWS[view]
    for width in WIDTHS:
        x = rand(6, width, dtype=dtype)
        part = x[at].shape
        for shape in (part, (1, part[1]), (part[0], 1), ()):
            v = rand(*shape, dtype=dtype, seed=1)
            want = x.copy()
            with np.errstate(all="ignore"):
                want[at] += v
            assert same(run(lambda x, v: x.at[at].add(v), x, v), want)
            assert same(run(lambda x, v: (x.at[at].add(v) * 2).at[at].add(v), x, v), run(lambda x, v: x.at[at].add(v), want * 2, v))
            checked(2)


def test_added_to_a_part_by_what_the_same_array_has_elsewhere():
    x = rand(8, 300)
    for build in (lambda m, x: m(x, np.s_[:, ::2], x[:, 1::2]), lambda m, x: m(x, np.s_[1:], x[:-1]), lambda m, x: m(x, np.s_[:, ::-1], x),
                  lambda m, x: m(m(x, np.s_[:, ::2], x[:, 1::2]), np.s_[:, 1::2], x[:, ::2])):
        def numpy(x, at, v):
            out = x.copy()
            with np.errstate(all="ignore"):
                out[at] += v
            return out
        assert same(run(lambda x: build(lambda x, at, v: x.at[at].add(v), x), x), build(numpy, x))  # noqa: B023
        assert same(run(lambda x: build(lambda x, at, v: x.at[at].add(v), x * 1.0), x), build(numpy, x))  # noqa: B023
        w = gd.variable(x)
        gd.function([], [], updates={w: build(lambda w, at, v: w.at[at].add(v), w)})()
        assert same(np.asarray(w.value), build(numpy, x))
        checked(3)


BOOLS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "bitwise_and": np.bitwise_and,
         "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
         "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal, "logical_and": np.logical_and,
         "logical_or": np.logical_or, "logical_xor": np.logical_xor}


@pytest.mark.parametrize("name", BOOLS)
def test_bools_against_one_for_each_row(name):
    for width in (3, 64, 127, 128, 200, 1000):
        full, column, row, one = rand(5, width, dtype="bool"), rand(5, 1, dtype="bool"), rand(1, width, dtype="bool", seed=1), rand(1, 1, dtype="bool")
        for x, y in itertools.permutations((full, column, row, one), 2):
            assert same(run(getattr(gd, name), x, y), BOOLS[name](x, y))
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_relu_beside_its_gradient(dtype):
    """One loop does both where the cotangent is known: what each gives by itself."""
    for shape in ((1,), (31,), (64,), (65,), (1000,), (33000,), (9, 130), (3, 4097)):
        x, g = rand(*shape, dtype=dtype), rand(*shape, dtype=dtype, seed=1)
        calm = np.nan_to_num(g)
        for cotangent, at in itertools.product((g, calm), (np.s_[...], np.s_[..., ::-1])):
            def gradient(x, g, at=at):
                y = gd.relu(x[at])
                return y, gd.grad(y, [x], cotangent=g)[0]
            value, slope = run(lambda x, g: list(gradient(x, g)), x, cotangent)
            assert same(value, run(lambda x: gd.relu(x[at]), x))  # noqa: B023
            assert same(slope, run(lambda x, g: gradient(x, g)[1], x, cotangent))
            checked(2)


def test_relu_that_is_read_before_its_gradient():
    x, g = rand(500, dtype="float32"), rand(500, dtype="float32", seed=1)

    def build(x, g):
        y = gd.relu(x)
        return [y, gd.grad(y, [x], cotangent=y * g)[0], gd.grad(y, [x], cotangent=g + y)[0] + y]
    value, first, second = run(build, x, g)
    with np.errstate(all="ignore"):
        passed = x > 0
        assert same(value, np.where(x <= 0, np.float32(0), x))
        assert np.array_equal(first[passed], (value * g)[passed], equal_nan=True)
        assert np.array_equal(second[passed], (g + value + value)[passed], equal_nan=True)


@pytest.mark.parametrize("n", [1 << 10, 120_001, 400_003])
def test_groups_of_many_arrays_have_the_bits_of_pieces(n):
    """From some size on, what comes next is asked of memory meanwhile."""
    def build(x, y, z, g):
        out = gd.tanh(x) * gd.sigmoid(y) + gd.exp(-z * z)
        return [out, *gd.grad(out, [x, y, z], cotangent=g)]
    arrays = [rand(n, dtype="float32", seed=k) for k in range(4)]
    whole = run(build, *arrays)
    for lo, hi in ((0, 512), (n // 2, n // 2 + 777), (max(0, n - 1000), n)):
        lo, hi = min(lo, n), min(hi, n)
        for a, b in zip(whole, run(build, *[x[lo:hi].copy() for x in arrays]), strict=True):
            assert same(a[lo:hi], b)
            checked()


@pytest.mark.parametrize("start, end", [("bool", "float64"), ("uint8", "float32"), ("uint8", "float16"), ("float64", "uint8"), ("float32", "bool"),
                                        ("int64", "bool"), ("bool", "uint8"), ("uint8", "int64")])
def test_casts_of_rows_cut_out_of_longer_ones(start, end):
    for width in (1, 63, 64, 65, 72, 79, 80, 87, 95, 127, 129, 136, 255, 700):
        x = np.abs(rand(5, width + 9, dtype=start)) if start in ("int64", "float64") else rand(5, width + 9, dtype=start)
        x = np.nan_to_num(x, posinf=100).astype(start) % 100 if start in ("float32", "float64") else x
        for at in (np.s_[1:, 3:width + 3], np.s_[::2, 9:]):
            assert same(run(lambda v: v[at].astype(end), x), x[at].astype(end))          # noqa: B023
            checked()


def test_large_results_begin_where_operands_of_numpy_do_not():
    """Half a page on, at the beginning of a cache line."""
    for n in (100, 1 << 14, 100_000, 10 ** 6):
        x = gd.input("x", (n,), "float32")
        f = gd.function([x], [x + 1, gd.relu(x)])
        held = [*f(np.zeros(n, "float32")), *f.bind(np.zeros(n, "float32"))()]
        for r in held:
            at = r.ctypes.data
            assert r.nbytes < 1 << 16 or at % 4096 == 2048 + 64
            checked()


def test_the_gradient_of_logaddexp_at_infinities_and_ties():
    values = np.array([-np.inf, -1e3, -1.0, 0.0, 2.0, 1e3, np.inf, np.nan])
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    p, q = gd.input("p", x.shape), gd.input("q", x.shape)
    total = gd.sum(gd.logaddexp(p, q))
    dp, dq = gd.function([p, q], gd.grad(total, [p, q]))(x, y)
    with np.errstate(all="ignore"):
        d = np.where(x == y, 0.0, x - y)
        want_p, want_q = 1 / (1 + np.exp(-d)), 1 / (1 + np.exp(d))
    nothing = (x == -np.inf) & (y == -np.inf)
    want_p[nothing] = want_q[nothing] = 0
    np.testing.assert_allclose(dp, want_p, rtol=1e-14)
    np.testing.assert_allclose(dq, want_q, rtol=1e-14)
    (second,) = gd.grad(gd.sum(gd.grad(total, [p])[0]), [p])
    s = gd.function([p, q], second)(np.array([0.5] * x.size), np.array([0.5] * x.size))
    np.testing.assert_allclose(s, 0.25, rtol=1e-14)                    # two alike are a point like any other
    checked(3)
