"""Loops for what comes from beyond the caches, rows done where they lie, and rows copied by aligned stores: values against NumPy
at lengths around registers, the same bits as in small pieces and with any number of threads."""
import numpy as np
import pytest

import graphdiff as gd
from graphdiff.errors import OutOfBounds

DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


def sample(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype in ("uint8", "int32", "int64"):
        return random.integers(0, 200, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def run(f, *arrays, threads=1):
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    return gd.function(nodes, f(*nodes), threads=threads)(*arrays)


def agree(f, plain, *arrays):
    """graphdiff's and NumPy's results are the same bits, with one thread and with two."""
    want = np.asarray(plain(*arrays))
    for threads in (1, 2):
        got = np.asarray(run(f, *arrays, threads=threads))
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("source, to", [("float32", "float64"), ("int32", "float64"), ("float64", "float32"), ("float64", "int32"),
                                        ("uint8", "int32"), ("int64", "float64")])
@pytest.mark.parametrize("n", [400_001, 400_006, 400_007])
def test_conversions_from_memory_are_those_of_small_arrays(source, to, n):
    x = np.random.default_rng(n).standard_normal(n) * 1e9
    if source.startswith("float"):
        x[::1001] = np.nan
        x[1::1003] = np.inf
        x[2::1007] = -3e300
        x[3::1009] = -0.0
        x[-5:] = [np.nan, 2.0 ** 31, -2.0 ** 31 - 0.5, 1e-310, -1.5]
    with np.errstate(all="ignore"):
        x = x.astype(source)
    whole = run(lambda x: x.astype(to), x)
    piece = gd.function([p := gd.input("p", (1001,), source)], p.astype(to))
    for i in (0, 1000, 123_457, n - 1001):
        assert whole[i:i + 1001].tobytes() == piece(x[i:i + 1001]).tobytes()
    assert whole.tobytes() == run(lambda x: x.astype(to), x, threads=2).tobytes()
    turned = np.resize(x, (777, 516)).T
    assert run(lambda x: x.astype(to), turned).tobytes() == run(lambda x: x.astype(to), turned.copy()).tobytes()


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_bytes_from_memory(dtype):
    x, y = sample(1_700_003, dtype), sample(1_700_003, dtype, 1)
    agree(gd.logical_not, np.logical_not, x)
    agree(gd.equal, np.equal, x, y)
    agree(gd.logical_xor, np.logical_xor, x, y)
    if dtype == "uint8":
        agree(gd.sign, np.sign, x)
        agree(lambda x: x * 3, lambda x: x * np.uint8(3), x)
        agree(lambda x: gd.less(x, 77), lambda x: np.less(x, np.uint8(77)), x)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("shape", [(3, 130), (40, 1000), (2, 3, 257), (5, 1, 8192), (7, 9001), (300, 300)])
def test_whole_rows_where_they_lie(shape, dtype):
    x, y, c = sample(shape, dtype), sample(shape, dtype, 1), sample(shape, "bool", 2)
    agree(lambda x, y: x[::-1] + y, lambda x, y: x[::-1] + y, x, y)
    agree(lambda x, y: x[..., 1:] * y[..., :-1], lambda x, y: x[..., 1:] * y[..., :-1], x, y)
    agree(lambda x, y: x[..., ::-1] - y[::-1], lambda x, y: x[..., ::-1] - y[::-1], x, y)
    agree(lambda x: abs(x[..., 1:]), lambda x: abs(x[..., 1:]), x)
    agree(lambda c, x, y: gd.where(c[::-1], x, y[::-1]), lambda c, x, y: np.where(c[::-1], x, y[::-1]), c, x, y)
    agree(lambda x, y: gd.clip(x[::-1], 1, 2) + y, lambda x, y: np.clip(x[::-1], x.dtype.type(1), x.dtype.type(2)) + y, x, y)
    agree(lambda x, y: gd.equal(x[..., :130:2], y[..., :130:2]), lambda x, y: np.equal(x[..., :130:2], y[..., :130:2]), x, y)


@pytest.mark.parametrize("n", [31, 32, 33, 40, 63, 64, 65, 95, 100, 1000, 2047, 2048, 2049, 5000])
@pytest.mark.parametrize("span", [1, 2, 50, 10 ** 12])
def test_places_of_extremes_of_int64_are_the_first(n, span):
    x = np.random.default_rng(n).integers(-span, span, (60, n))
    x[0] = 5
    x[1] = np.iinfo("int64").max
    x[2] = np.iinfo("int64").min
    x[3, -1], x[4, -1] = 2 * span, -2 * span
    x[5, n // 2:], x[6, n // 2:] = 2 * span, -2 * span
    for f, plain in ((gd.argmax, np.argmax), (gd.argmin, np.argmin)):
        agree(lambda x, f=f: f(x, axis=1), lambda x, plain=plain: plain(x, axis=1), x)
        agree(lambda x, f=f: f(x[::2, ::-1], axis=1), lambda x, plain=plain: plain(x[::2, ::-1], axis=1), x)


@pytest.mark.parametrize("hit", [None, 0, 5, 262_143, 262_144, 700_001, 799_999])
@pytest.mark.parametrize("value", [True, False])
def test_the_first_of_many_bools(hit, value):
    x = np.full(800_000, not value)
    if hit is not None:
        x[hit] = x[-1] = value
    for f, plain in ((gd.argmax, np.argmax), (gd.argmin, np.argmin)):
        agree(f, plain, x)
        agree(lambda x, f=f: f(x[::3]), lambda x, plain=plain: plain(x[::3]), x)
        agree(lambda x, f=f: f(x, axis=0), lambda x, plain=plain: plain(x, axis=0), x.reshape(400_000, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 512, 513, 70_001])
def test_elements_taken_one_by_one(n, dtype):
    x, i = sample(n, dtype), np.random.default_rng(n).integers(-n, n, 3 * n + 5)
    agree(lambda x, i: gd.take(x, i, axis=0), lambda x, i: np.take(x, i, axis=0), x, i)
    agree(lambda x, i: gd.take(x[::-1], i[::2], axis=0), lambda x, i: np.take(x[::-1], i[::2], axis=0), x, i)
    for bad, said in ((n, n), (-n - 1, -n - 1), (1 << 61, 1 << 61), (-1 << 63, "")):
        wrong = i.copy()
        wrong[n + 3] = bad
        wrong[-1] = n + 100
        for threads in (1, 2):
            with pytest.raises(OutOfBounds, match=f"index {said}"):
                run(lambda x, i: gd.take(x, i, axis=0), x, wrong, threads=threads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nbytes", [56, 64, 72, 120, 128, 136, 192, 200, 256, 264, 320, 500, 512, 1000, 1024, 1032, 4000, 8184, 8192, 8200])
def test_rows_copied_to_any_address(nbytes, dtype):
    n = nbytes // np.dtype(dtype).itemsize
    x, y = sample((9, n), dtype), sample((9, 3), dtype, 1)
    agree(lambda x: gd.repeat(x, 3, axis=0), lambda x: np.repeat(x, 3, axis=0), x)
    agree(lambda x, y: gd.concatenate([y, x], axis=1), lambda x, y: np.concatenate([y, x], axis=1), x, y)
    agree(lambda x: gd.roll(x, 4, axis=0), lambda x: np.roll(x, 4, axis=0), x)
    agree(lambda x: gd.pad(x, 1), lambda x: np.pad(x, 1), x)


@pytest.mark.parametrize("shape", [(4300, 1000), (130, 33_001), (15, 300_001)])
def test_softmax_past_the_caches_has_the_bits_of_softmax_of_pieces(shape):
    """At any alignment, alone and with log_softmax beside it, on two threads."""
    x = np.random.default_rng(3).standard_normal((shape[0] * shape[1] + 3,)).astype("float32")[3:].reshape(shape)
    a, b = gd.input("a", shape, "float32"), gd.input("b", (2, shape[1]), "float32")
    for make in (lambda x: [gd.softmax(x)], lambda x: [gd.log_softmax(x)], lambda x: [gd.log_softmax(x), gd.softmax(x)]):
        few = gd.function([b], make(b), threads=1)
        outs = [np.empty(x.size + 1, "float32")[1:].reshape(shape) for _ in make(a)]
        gd.function([a], make(a), threads=2)(x, out=outs)
        again = gd.function([a], make(a), threads=1)(x)
        for i in (0, shape[0] // 2, shape[0] - 2):
            for out, want in zip(outs, few(x[i:i + 2]), strict=True):
                assert out[i:i + 2].tobytes() == want.tobytes()
        assert all(o.tobytes() == r.tobytes() for o, r in zip(outs, again, strict=True))
