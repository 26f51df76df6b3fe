"""The input gate: whatever array is given, the result is that of its contiguous native copy, or a clear error before any pointer
is taken. Inputs, cotangents, out= and bind, on several ops."""
import array
import ctypes

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import DTypeError, ShapeError

SHAPE = (4, 6)
OPS = {
    "add": lambda x: x + 1.0, "multiply": lambda x: x * x, "exp": gd.exp, "sum": lambda x: gd.sum(x, axis=0), "max": lambda x: gd.max(x, axis=1),
    "matmul": lambda x: x @ x.T, "einsum": lambda x: gd.einsum("ij,ij->i", x, x), "softmax": gd.softmax, "take": lambda x: x[np.array([2, 0])],
    "transpose": lambda x: x.T, "concatenate": lambda x: gd.concatenate([x, x]), "sort": gd.sort, "cumsum": lambda x: gd.cumsum(x, axis=0),
    "conv": lambda x: gd.conv(gd.reshape(x, (1, 4, 6)), np.ones((2, 4, 3))),
}


def values():
    return np.random.default_rng(0).standard_normal(SHAPE)


def misaligned(a):
    raw = np.zeros(a.nbytes + 8, np.uint8)
    view = raw[1:1 + a.nbytes].view(a.dtype).reshape(a.shape)
    view[...] = a
    assert not view.flags.aligned
    return view


class Subclass(np.ndarray):
    pass


def padded(a, where):
    """a as a view into a larger array, of the same values."""
    big = np.full([3 * n for n in a.shape], np.nan)
    big[where] = a
    return big[where]


LAYOUTS = {
    "contiguous": lambda a: a,
    "F-order": lambda a: np.asfortranarray(a),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "sliced": lambda a: padded(a, tuple(slice(1, 1 + 2 * n, 2) for n in a.shape)),
    "negative stride": lambda a: np.ascontiguousarray(np.flip(a))[(slice(None, None, -1),) * a.ndim],
    "misaligned": misaligned,
    "big-endian": lambda a: a.astype(">f8"),
    "big-endian strided": lambda a: np.asfortranarray(a.astype(">f8")),
    "subclass": lambda a: a.view(Subclass),
    "list": lambda a: a.tolist(),
    "list of rows": lambda a: list(a),
}


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("name", OPS)
def test_layouts_give_the_bits_of_the_contiguous_copy(name, tmp_path):
    x = gd.input("x", SHAPE)
    y = OPS[name](x)
    c = gd.input("c", y.shape)
    f = gd.function([x, c], [y, gd.grad(y, x, cotangent=c)])
    a = values()
    b = np.random.default_rng(1).standard_normal(y.shape)
    want = [v.tobytes() for v in f(a, b)]
    for layout, make in LAYOUTS.items():
        for given in ((make(a), b), (a, make(b))):
            before = [np.array(g).tobytes() for g in given]
            got = f(*given)
            assert [v.tobytes() for v in got] == want, layout
            assert all(type(v) is np.ndarray for v in got)
            assert [np.array(g).tobytes() for g in given] == before
            checked(2)
    assert [v.tobytes() for v in f(read_only(a), read_only(b))] == want
    path = tmp_path / "x.bin"
    path.write_bytes(a.tobytes())
    mapped = np.memmap(path, dtype="float64", mode="r", shape=SHAPE)
    assert [v.tobytes() for v in f(mapped, b)] == want
    assert path.read_bytes() == a.tobytes()
    del mapped
    # float32 values are exact in float64; integers and bools are too.
    for given in (a.astype("float32"), np.arange(24).reshape(SHAPE), np.arange(24, dtype="uint8").reshape(SHAPE), np.ones(SHAPE, bool),
                  np.arange(24, dtype=">i4").reshape(SHAPE), np.arange(24, dtype="int16").reshape(SHAPE), a.astype("float16")):
        assert [v.tobytes() for v in f(given, b)] == [v.tobytes() for v in f(given.astype("float64"), b)]
        checked(2)
    # A broadcast view: stride 0.
    row = np.broadcast_to(a[0], SHAPE)
    assert [v.tobytes() for v in f(row, b)] == [v.tobytes() for v in f(row.copy(), b)]
    assert [v.tobytes() for v in f(a, np.broadcast_to(1.0, y.shape))] == [v.tobytes() for v in f(a, np.ones(y.shape))]
    checked(4)


REFUSED = {
    "object": np.full(SHAPE, None), "object numbers": np.ones(SHAPE, object), "str": np.full(SHAPE, "1"), "bytes": np.full(SHAPE, b"1"),
    "datetime": np.zeros(SHAPE, "M8[s]"), "timedelta": np.zeros(SHAPE, "m8[s]"), "structured": np.zeros(SHAPE, "f8,i4"),
    "complex": np.zeros(SHAPE, complex), "complex64": np.zeros(SHAPE, "complex64"), "longdouble": np.zeros(SHAPE, np.longdouble),
    "masked": np.ma.masked_array(np.zeros(SHAPE)), "uint64": np.zeros(SHAPE, "uint64"), "ragged": [[1.0], [1.0, 2.0]], "none": None,
    "text": "text", "dict": {}, "complex number": 1j, "set": {1.0},
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
@pytest.mark.parametrize("kind", REFUSED)
def test_other_kinds_of_arrays_are_refused(kind, dtype):
    x, first = gd.input("weights", SHAPE, dtype), gd.input("first")
    f = gd.function([first, x], [x, first])
    for call in (lambda v: f(1.0, v), lambda v: f.bind(1.0, v), lambda v: gd.evaluate(x, {x: v})):
        with pytest.raises(TypeError, match="weights"):
            call(REFUSED[kind])
        checked()
    with pytest.raises(TypeError):
        gd.constant(REFUSED[kind])
    with pytest.raises(TypeError):
        gd.variable(REFUSED[kind])
    if dtype == "float64":
        if kind != "none":          # the default: a scalar is wanted then
            with pytest.raises(TypeError):
                gd.grad(x * 1.0, x, cotangent=REFUSED[kind])
        with pytest.raises(TypeError):
            gd.jvp(x * 1.0, x, REFUSED[kind])


CASTS = {      # (given, declared): accepted?
    ("float64", "float32"): False, ("float64", "float16"): False, ("float32", "float16"): False, ("float32", "float64"): True,
    ("float16", "float32"): True, ("int64", "float32"): True, ("int64", "float64"): True, ("int64", "float16"): True, ("bool", "float32"): True,
    ("uint8", "float64"): True, ("float64", "int64"): False, ("int64", "int32"): False, ("int32", "int64"): True, ("uint8", "int32"): True,
    ("int64", "uint8"): False, ("int64", "bool"): False, ("float64", "bool"): False, ("bool", "int64"): True, ("bool", "uint8"): True,
    ("int8", "int32"): True, ("int8", "uint8"): False, ("uint16", "int64"): True, ("uint32", "int64"): True,
}


@pytest.mark.parametrize("given, declared", CASTS)
def test_only_safe_casts_happen(given, declared):
    x = gd.input("x", (3,), declared)
    f = gd.function([x], x)
    a = np.array([0, 1, 1]).astype(given)
    if CASTS[given, declared]:
        r = f(a)
        assert r.dtype == declared and r.tolist() == a.astype(declared).tolist()
    else:
        with pytest.raises(DTypeError, match="argument x"):
            f(a)
    with pytest.raises(DTypeError, match="argument x"):      # bind never converts
        f.bind(a)
    checked(2)


def test_python_numbers_and_lists_are_weak():
    for dtype, good, bad in [("float32", (1, 1.5, True, 0.1), (1j, "1", None)), ("float64", (1, True), (1j,)), ("int64", (1, True), (1.5, "1")),
                             ("int32", (7,), (1.5, 2**40)), ("uint8", (255, True), (1.5, 256, -1)), ("bool", (True, False), (1.5, "x"))]:
        x = gd.input("x", (), dtype)
        f = gd.function([x], x)
        for value in good:
            assert f(value) == np.dtype(dtype).type(value) and f(value).dtype == dtype
            checked()
        for value in bad:
            with pytest.raises((TypeError, ValueError), match="x"):
                f(value)
            checked()
        v = gd.function([gd.input("v", (2,), dtype)], gd.constant(0))
        v([good[0], good[0]])
    x = gd.input("x", (), "float32")
    with pytest.raises(DTypeError):
        gd.function([x], x)(np.float64(0.1))       # a NumPy scalar has a dtype of its own
    assert gd.function([x], x)(np.float16(0.5)) == 0.5


def test_wrong_shapes_are_named():
    x = gd.input("weights", SHAPE)
    f = gd.function([x], x)
    for bad in (np.zeros(24), np.zeros((6, 4)), np.zeros((4, 6, 1)), 1.0, np.zeros((0, 6))):
        with pytest.raises(ValueError, match="weights"):
            f(bad)
        with pytest.raises(ValueError, match="weights"):
            f.bind(bad)
        checked(2)


def test_zero_sizes_scalars_and_numpy_scalars():
    x, s = gd.input("x", (0, 3)), gd.input("s")
    y = gd.sum(x * s) + s
    f = gd.function([x, s], [y, *gd.grad(y, [x, s])])
    for scalar in (2.0, np.float64(2.0), np.array(2.0), np.int32(2), 2, True + 1, np.float32(2.0), np.array(2.0).view(Subclass)):
        value, gx, gs = f(np.zeros((0, 3)), scalar)
        assert float(value) == 2.0 and gx.shape == (0, 3) and float(gs) == 1.0
        checked(3)


def test_claims_of_more_memory_than_there_is_fail_before_a_copy():
    x = gd.input("x", ("n",), "float64")
    f = gd.function([x], gd.sum(x))
    for dtype in ("float64", "float32", "uint8"):
        huge = np.lib.stride_tricks.as_strided(np.zeros(1, dtype), (2**40,), (0,))
        with pytest.raises(MemoryError, match="x"):
            f(huge)
        checked()
    w = gd.variable(np.zeros(3, np.int32), "w")
    for dtype in (*gd.dtypes.DTYPES, ">f8", "int16"):
        huge = np.lib.stride_tricks.as_strided(np.zeros(1, dtype), (2**46,), (0,))
        for make in (gd.constant, gd.variable, lambda a: x + a, lambda a: gd.concatenate([x, a]), gd.sum, lambda a: gd.grad(gd.sum(x), x, cotangent=a)):
            with pytest.raises(MemoryError, match=r"(?s)takes \d+ bytes, more than this machine has.*test_gate\.py"):
                make(huge)
        if np.dtype(dtype).kind in "iu":
            with pytest.raises(gd.errors.ShapeError, match="the variable has"):      # before a look at its elements
                w.value = huge
        checked(6)


# -- out= -------------------------------------------------------------------------------------------------------------------------

def test_out_must_fit():
    x = gd.input("x", SHAPE)
    f = gd.function([x], [x * 2.0, gd.sum(x)])
    a = values()
    for bad, error in [([read_only(a), np.empty(())], ValueError), ([np.empty(SHAPE, "float32"), np.empty(())], TypeError),
                       ([np.empty(SHAPE, ">f8"), np.empty(())], TypeError), ([np.empty((6, 4)), np.empty(())], ValueError),
                       ([np.empty(SHAPE), np.empty((), int)], TypeError), ([np.empty(SHAPE), 3.0], TypeError), ([np.empty(SHAPE), None], TypeError),
                       ([a.tolist(), np.empty(())], TypeError), ([np.ma.masked_array(np.empty(SHAPE)), np.empty(())], TypeError)]:
        with pytest.raises(error, match=r"out\["):
            f(a, out=bad)
        checked()


def test_strided_and_misaligned_out_is_written_right():
    x = gd.input("x", SHAPE)
    f = gd.function([x], x * 2.0)
    a = values()
    for make in (lambda: np.full((8, 12), -1.0)[::2, ::2], lambda: np.empty(SHAPE, order="F"), lambda: np.empty(SHAPE)[::-1],
                 lambda: misaligned(np.zeros(SHAPE)), lambda: np.empty(SHAPE).view(Subclass)):
        out = make()
        base = out.base
        assert f(a, out=out) is out and np.array_equal(out, a * 2.0)
        if base is not None and base.shape == (8, 12):
            assert (base[1::2] == -1).all() and (base[:, 1::2] == -1).all()
        checked()


@pytest.mark.parametrize("name", ["add", "transpose", "matmul square", "cumsum", "reverse", "conv"])
def test_overlapping_out_gives_the_copy_first_result(name):
    n = 5
    x = gd.input("x", (n, n))
    y = {"add": x + x.T, "transpose": x.T, "matmul square": x @ x, "cumsum": gd.cumsum(x, axis=0), "reverse": x[::-1],
         "conv": gd.reshape(gd.conv(gd.reshape(x, (1, 1, n, n)), np.ones((1, 1, 3, 3)), padding="same"), (n, n))}[name]
    f = gd.function([x], y)
    memory = np.random.default_rng(0).standard_normal(3 * n * n)
    for shift in (0, 1, 7, n * n - 1, -3):
        m = memory.copy()
        a = m[n * n: 2 * n * n].reshape(n, n)
        out = m[n * n + shift: 2 * n * n + shift].reshape(n, n)
        want = f(a.copy())
        f(a, out=out)
        assert out.tobytes() == want.tobytes(), shift
        checked()
    a = memory[:n * n].reshape(n, n).copy()
    want = f(a.copy())
    f(a, out=a.T)
    assert np.array_equal(a.T, want)


def test_overlapping_outs_are_refused():
    x = gd.input("x", (4,))
    f = gd.function([x], [x + 1.0, x + 2.0])
    m = np.empty(6)
    with pytest.raises(ValueError, match="overlap"):
        f(np.zeros(4), out=[m[:4], m[2:]])
    with pytest.raises(ValueError, match="overlap"):
        f(np.zeros(4), out=[m[:4], m[:4]])
    m = np.empty(8)
    f(np.zeros(4), out=[m[::2], m[1::2]])        # interleaved: no byte in common
    assert m.tolist() == [1, 2] * 4
    checked()


def test_many_outs_are_compared_by_what_they_span():
    """Of hundreds of results two that meet are named, whichever they are; and one that meets an argument, or a variable, is written last."""
    n, k = 4, 60
    x, w = gd.input("x", (n,)), gd.variable(np.arange(float(n)), "w")
    f = gd.function([x], [x * float(i) + w for i in range(k)])
    m = np.empty((k + 1) * n)
    a = np.arange(float(n))
    want = [a * i + a for i in range(k)]
    apart = [m[i * n:i * n + n] for i in range(k)]
    f(a, out=apart)
    assert all(np.array_equal(g, e) for g, e in zip(apart, want, strict=True))
    for i, j in ((0, 1), (3, 59), (57, 20)):
        outs = list(apart)
        outs[i] = m[j * n + 2:j * n + n + 2] if j == k - 1 else m[j * n:j * n + n]
        with pytest.raises(ValueError, match=rf"out\[{max(i, j)}\] and out\[{min(i, j)}\] overlap"):
            f(a, out=outs)
        checked()
    for shift in (-3, 0, 3):                     # the argument meets several results, which are written as it is read
        m[:] = 7.0
        at = 20 * n + shift
        here = m[at:at + n]
        here[:] = a
        f(here, out=apart)
        assert all(np.array_equal(g, e) for g, e in zip(apart, want, strict=True)), shift
        checked()
    columns = np.empty((n, k))
    f(a, out=[columns[:, i] for i in range(k)])          # what they span meets, their elements do not
    assert np.array_equal(columns.T, want)
    bound = f.bind(a, out=apart)
    assert bound() is not None and all(np.array_equal(g, e) for g, e in zip(apart, want, strict=True))
    with pytest.raises(ValueError, match="overlap"):
        f.bind(m[5:5 + n], out=apart)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8"])
def test_arguments_that_are_converted_on_the_way(dtype):
    """Small ones by a short way, large ones and those that lose something by the long one: the same values and the same refusals."""
    x = gd.input("x", ("n",), dtype)
    f = gd.function([x], x)
    for n in (5, 9000):
        for have in ("float64", "float32", "float16", "int64", "int32", "uint8", "bool"):
            base = (np.arange(2 * n) % 7).astype(have)
            for a in (base[::2], base[n:0:-1], base[:n], base[:n].byteswap().view(base.dtype.newbyteorder())):
                if np.can_cast(have, dtype) or (np.dtype(dtype).kind == "f" and np.dtype(have).kind in "iub"):
                    got = f(a)
                    assert got.dtype == dtype and np.array_equal(got, a) and not np.shares_memory(got, a)
                else:
                    with pytest.raises(TypeError, match="argument x"):
                        f(a)
                checked()


def test_numbers_that_are_converted_on_the_way():
    for dtype, good, bad in (("float64", [2, -3.5, 2**53, np.float64(0.1), np.float32(0.1), True, float("nan"), -0.0], [1j, "1", None]),
                             ("float32", [2, 0.1, 3e38, float("inf")], [1e39, 2**200]), ("float16", [0.1, 65504, -4], [65600.0, 1e6]),
                             ("int64", [2, -2**63, True], [2**63, 0.5]), ("uint8", [255, False], [256, -1])):
        x = gd.input("x", (), dtype)
        f = gd.function([x], x.reshape((1,)))
        for value in good:
            assert f(value).tobytes() == np.array([value]).astype(dtype).tobytes(), (dtype, value)
            checked()
        for value in bad:
            with pytest.raises((TypeError, ValueError), match="argument x"):
                f(value)
            checked()


def test_out_whose_elements_overlap_is_refused():
    strided = np.lib.stride_tricks.as_strided
    x = gd.input("x", (2, 3))
    f = gd.function([x], x + 1.0)
    m = np.zeros(21)
    for strides in ((0, 0), (8, 8), (24, 0), (-8, 8), (24, 4)):
        with pytest.raises(ValueError, match=r"out\[0\]: elements of the array share memory"):
            f(np.zeros((2, 3)), out=strided(m[8:], (2, 3), strides))
        assert not m.any()
        checked()
    for strides in ((24, 16), (16, 40), (8, 16), (-24, 8)):       # no byte twice
        out = strided(m[8:], (2, 3), strides)
        f(np.arange(6.0).reshape(2, 3), out=out)
        assert out.tolist() == [[1, 2, 3], [4, 5, 6]]
        checked()
    y = gd.input("y", (0, 3))
    gd.function([y], y + 1.0)(np.zeros((0, 3)), out=strided(m, (0, 3), (0, 0)))


def test_out_that_is_the_memory_of_a_variable():
    w = gd.variable(np.arange(4.0), "w")
    with pytest.raises(ValueError, match="read-only"):
        gd.function([], w * 2.0)(out=w.value)
    assert w.value.tolist() == [0, 1, 2, 3]


def test_one_array_as_two_inputs():
    x, y = gd.inputs("x y", (3, 3))
    f = gd.function([x, y], [x @ y, x - y.T])
    a = np.arange(9.0).reshape(3, 3)
    assert [v.tolist() for v in f(a, a)] == [(a @ a).tolist(), (a - a.T).tolist()]
    assert np.array_equal(f(a, a[::-1])[0], a @ a[::-1])


# -- __array__ that misbehaves --------------------------------------------------------------------------------------------------

def test_the_exception_of_array_passes():
    class Raises:
        def __array__(self, dtype=None, copy=None):
            raise KeyError("mine")

    x = gd.input("x", (3,))
    f = gd.function([x], x)
    with pytest.raises(KeyError, match="mine"):
        f(Raises())


def test_array_that_lies_about_its_size():
    class Lies:
        shape = (3,)
        dtype = np.dtype("float64")

        def __init__(self, result):
            self.result = result

        def __len__(self):
            return 3

        def __array__(self, dtype=None, copy=None):
            return self.result

    x = gd.input("x", (3,))
    f = gd.function([x], x * 1.0)
    assert f(Lies(np.arange(3.0))).tolist() == [0, 1, 2]
    for result, error in [(np.zeros(2), ValueError), (np.zeros((3, 1)), ValueError), (np.zeros(3, complex), TypeError)]:
        with pytest.raises(error, match="x"):
            f(Lies(result))
        checked()
    with pytest.raises((TypeError, ValueError)):
        f(Lies("no array"))


def test_arrays_resized_while_a_later_argument_is_converted():
    """refcheck=False makes NumPy move memory that others point to: pointers are taken after all code of the caller's has run."""
    x, y = gd.inputs("x y", (1000,))
    f = gd.function([x, y], x + y)
    for size in (0, 10, 100_000):
        first, out = np.zeros(1000), np.zeros(1000)

        class Resizes:
            def __init__(self, target):
                self.target = target

            def __array__(self, dtype=None, copy=None, size=size):
                self.target.resize(size, refcheck=False)
                return np.ones(1000)

        with pytest.raises(ValueError, match="shape"):
            f(first, Resizes(first))
        with pytest.raises(ValueError, match="shape"):
            f(np.zeros(1000), Resizes(out), out=out)
        checked(2)


def test_bound_arrays_stay_alive():
    x = gd.input("x", (1000,))
    call = gd.function([x], gd.sum(x)).bind(np.ones(1000))
    junk = [np.full(1000, np.nan) for _ in range(50)]
    assert float(call()) == 1000.0 and len(junk) == 50


def test_buffers_have_a_dtype_of_their_own():
    x = gd.input("x", (2,), "float32")
    f = gd.function([x], x * 2)
    for value in (array.array("d", [1, 2]), memoryview(np.array([1.0, 2.0])), (ctypes.c_double * 2)(1, 2)):
        with pytest.raises(DTypeError, match="argument x: float64 given, float32 wanted"):
            f(value)
    for value in (array.array("f", [1, 2]), memoryview(np.array([1, 2], "float32")), (ctypes.c_float * 2)(1, 2), array.array("b", [1, 2])):
        assert f(value).tolist() == [2.0, 4.0]


def test_memory_of_a_ctypes_buffer():
    buffer = (ctypes.c_double * 4)(1, 2, 3, 4)
    x = gd.input("x", (4,))
    assert float(gd.function([x], gd.sum(x))(np.frombuffer(buffer))) == 10.0
    assert float(gd.function([x], gd.sum(x))(buffer)) == 10.0


def test_bools_of_other_bytes_than_0_and_1_are_what_numpy_takes_them_for():
    """A view of flags as bool is ordinary; kernels add, compare and sort the bytes."""
    odd = np.array([2, 0, 255, 1, 4, 0], "u1").view(bool)
    plain = odd.view("u1") != 0
    b, x = gd.input("b", (6,), "bool"), gd.input("x", (6,))
    s = gd.variable(odd)
    outputs = [gd.mean(b), b == True, b & True, b | False, b ^ True, b * True, gd.argmax(b), gd.argsort(b), gd.sort(b), gd.concatenate([b, ~b]), b,   # noqa: E712
               gd.maximum(b, False), gd.cumsum(b), x + b, gd.mean(s), s ^ b, gd.mean(gd.constant(odd)), gd.where(b, x, 0.0)]
    f = gd.function([b, x], outputs)
    want = f(plain, np.arange(6.0))
    for given in (odd, np.stack([odd, odd], 1)[:, 0], odd[::-1][::-1], list(odd)):
        for got, w in zip(f(given, np.arange(6.0)), want, strict=True):
            assert got.tobytes() == w.tobytes() and got.dtype == w.dtype
            checked()
    np.testing.assert_array_equal(want[0], plain.mean())
    np.testing.assert_array_equal(f(odd, odd)[13], plain + plain.astype(float))             # converted
    assert s.value.view("u1").tolist() == [1, 0, 1, 1, 1, 0]
    s.value = odd[::-1]
    assert s.value.view("u1").tolist() == [0, 1, 1, 1, 0, 1]
    with pytest.raises(gd.errors.DTypeError, match=r"argument b: bytes of bools"):
        f.bind(odd, np.arange(6.0))
    out = np.empty(6, bool)
    out.view("u1")[:] = 9                                                                    # what results overwrite is not looked at
    flip = gd.function([b], ~b)
    flip.bind(plain, out=out)()
    assert out.view("u1").tolist() == [0, 1, 0, 0, 0, 1]
    out.view("u1")[:] = 9
    flip(odd, out=out)
    assert out.view("u1").tolist() == [0, 1, 0, 0, 0, 1]
    checked(6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_python_numbers_that_a_float_does_not_hold_are_named(dtype):
    f = gd.function([x := gd.input("x", (2,), dtype)], x * 1)
    with np.errstate(all="raise"), pytest.raises(gd.errors.DTypeError, match="argument x"):
        f([1e300, 1.0])
    v = gd.variable(np.zeros(2, dtype), "v")
    for wrong in ([1e300, 1.0], np.array([2**62, 1]) if dtype == "float16" else [1e39, 0]):
        with np.errstate(all="raise"), pytest.raises(gd.errors.DTypeError, match="value"):
            v.value = wrong
    if dtype == "float16":
        for wrong in ([-2**63, 1], [10**6, 1]):
            with pytest.raises(gd.errors.DTypeError, match="argument x"):
                f(wrong)
        assert f([65519.0, 1])[0] == 65504
    v.value = [np.inf, 3]
    assert f([float("inf"), 6e4])[0] == np.inf and v.value[1] == 3 and gd.function([y := gd.input("y")], y + 1)(1e300) == 1e300
    checked(2)


@pytest.mark.parametrize("value", [2**70, -2**70, 2**63, 2**64 - 1, [2**70, 1, -3], [2**70, 1.5, -3], [[2**63], [2**64]]])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_python_integers_beyond_int64_are_floats_where_floats_are_wanted(value, dtype):
    want = np.array(value, "float64").astype(dtype)
    x, w = gd.input("x", want.shape, dtype), gd.variable(np.zeros(want.shape, dtype), "w")
    f = gd.function([x], x + 0)
    w.value = value
    got = [f(value), f(x=value), gd.evaluate(x + 0, {x: value}), gd.trace(gd.sum(x), at={x: value}).rows[0].value, w.value]
    if want.shape == ():
        got += [f.bind(value)(), gd.evaluate(x + value, {x: 0})]
    for a in got:
        assert a.dtype == dtype and np.array_equal(a, want)
    checked(len(got))


@pytest.mark.parametrize(("dtype", "value", "message"), [
    ("uint8", 300, "Python integer 300 out of bounds for uint8 (0 to 255)"), ("uint8", [7, -1], "Python integer -1 out of bounds for uint8 (0 to 255)"),
    ("int32", 2**40, "Python integer 1099511627776 out of bounds for int32"), ("int64", 2**63, "Python integer 9223372036854775808 out of"),
    ("int64", [2**70, 1], "Python integer 1180591620717411303424 out of"), ("bool", 2, "Python integer 2 out of bounds for bool (0 to 1)"),
    ("float64", 10**400, "Python integer of 1329 bits out of bounds for float64"), ("float32", 1e300, "1e+300 is beyond what float32 holds"),
    ("float16", [1, 1e5], "100000.0 is beyond what float16 holds"), ("float16", 2**70, "1.1805916207174113e+21 is beyond what float16 holds"),
    ("uint8", 1.5, "float64 given, uint8 wanted\n  hint    np.asarray(value).astype('uint8') if"), ("int64", [2**70, 1.5], "object given, int64 wanted"),
    ("float32", np.ones(2), "float64 given, float32 wanted\n  hint    array.astype('float32') if"),
])
def test_numbers_that_do_not_fit_are_told_as_numbers(dtype, value, message):
    x = gd.input("x", np.shape(value), dtype)
    with pytest.raises(DTypeError) as info:
        gd.function([x], x)(value)
    assert str(info.value).startswith(f"argument x: {message}") and ("hint" in str(info.value)) == ("hint" in message)
    with pytest.raises(DTypeError) as info:
        gd.evaluate(x, {x: value})
    if type(value) is int and abs(value) >= 2**63:
        w = gd.variable(np.zeros((), dtype), "w")
        with pytest.raises(DTypeError, match=r"(?s)^w: value: .*test_gate\.py"):
            w.value = value
    lines = str(info.value).split("\n")
    assert lines[0].startswith(f"evaluate: argument x: {message.partition(chr(10))[0]}") and lines[1].startswith("  at      test_gate.py")
    assert [line[:8] for line in lines[2:]] == ["  hint  "] * ("hint" in message)
    checked(4)


def test_subclasses_are_bound_as_they_are(tmp_path):
    """A memory map and other subclasses: read where they lie, anew at every call; results are plain arrays."""
    np.save(tmp_path / "a.npy", np.arange(10.0).reshape(2, 5))
    x = gd.input("x", (2, 5))
    f = gd.function([x], x * 2.0)
    for a in (np.load(tmp_path / "a.npy", mmap_mode="r+"), np.arange(10.0).reshape(2, 5).view(Subclass)):
        call = f.bind(a)
        assert call().tolist() == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
        a[0, 0] = 7.0
        assert call()[0, 0] == 14 and f(a)[0, 0] == 14 and type(call()) is np.ndarray
        checked(3)


class Lying(np.ndarray):
    """Says that it is larger than it is, and may be written to."""

    shape = property(lambda self: (1000, 1000))
    flags = property(lambda self: np.empty((1000, 1000)).flags)
    strides = property(lambda self: (8000, 8))


def test_what_a_subclass_says_of_its_memory_is_not_believed():
    x = gd.input("x", (1000, 1000))
    f, g = gd.function([x], x * 2), gd.function([x], [x * 2, x + 1])
    whole, small = np.ones((1000, 1000)), np.zeros((2, 2))
    for bad in (small.view(Lying), np.broadcast_to(0.0, (1000, 1000)).view(Lying)):
        with pytest.raises((ShapeError, DTypeError), match=r"out\[0\]"):
            f.bind(whole, out=bad)
        with pytest.raises((ShapeError, DTypeError), match=r"out\[1\]"):
            g.bind(whole, out=[np.empty_like(whole), bad])
        with pytest.raises((ShapeError, ValueError)):
            f(whole, out=bad)
        checked(3)
    assert not small.any()
    honest = np.zeros((1000, 1000)).view(Lying)
    out = f.bind(whole, out=honest)()
    assert out is honest and (np.asarray(out) == 2).all()
    with pytest.raises(ValueError, match="resize"):
        honest.resize((3000, 3000), refcheck=False)
    checked(2)


class Converts:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_no_mask_is_dropped():
    """NumPy drops the masks of arrays in a list, and of what an object turns into."""
    m = np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    x, y = gd.input("x", (3,)), gd.input("weights", (2, 3))
    f, g = gd.function([x], x * 2), gd.function([y], y * 2)
    at = np.ma.masked_array([0, 1], mask=[0, 1])
    v = gd.variable(np.zeros(3), "v")
    for call, name in ((lambda: g([m, m]), "argument weights"), (lambda: g([[1.0, 2.0, 3.0], m]), "argument weights"),
                       (lambda: f([1.0, np.ma.masked, 2.0]), "argument x"), (lambda: f(Converts(m)), "argument x"),
                       (lambda: f.bind(Converts(m)), "argument x"), (lambda: gd.constant([m, m]), "value"),
                       (lambda: gd.constant(Converts(m)), "value"), (lambda: setattr(v, "value", [1.0, np.ma.masked, 2.0]), "value"),
                       (lambda: setattr(v, "value", Converts(m)), "value"), (lambda: x[at], r"x\[\.\.\.\]"),
                       (lambda: x[[0, np.ma.masked]], r"x\[\.\.\.\]"),
                       (lambda: gd.take(x, [0, np.ma.masked]), "indices"), (lambda: gd.data.batches([m], 2), "batches: array 0"),
                       (lambda: gd.nn.save("unused.npz", {"a": m}), "save: a"), (lambda: gd.add(x, [1.0, np.ma.masked, 2.0]), "operand")):
        with pytest.raises(TypeError, match=f"{name}.*masked arrays are not supported"):
            call()
        checked()
    assert f(Converts(m.data)).tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(DTypeError, match="argument x"):         # it makes an array at every call, which a bound one would not see
        f.bind([1.0, 2.0, 3.0])
