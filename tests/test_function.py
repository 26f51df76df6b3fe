"""gd.function: structures, keywords, out=, bind, updates, named sizes, the cache of programs, threads, passes, pickling."""
import copy
import gc
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.api.function import CACHE
from graphdiff.errors import DTypeError, GradientError, NodeTypeError, OutOfBounds, ShapeError


def survey():
    """y = log x1 + x1 x2 - sin x2 and its gradient, at (2, 5)."""
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    return [x1, x2], [y, *gd.grad(y, [x1, x2])], (11.652071455223084, 5.5, 1.7163378145367738)


def network(dtype="float64"):
    """A graph with matmuls, reductions, softmax, indexing and its gradient: (inputs, outputs, arrays)."""
    x, w, v = gd.input("x", (17, 9), dtype), gd.input("w", (9, 12), dtype), gd.input("v", (12,), dtype)
    h = gd.tanh(x @ w + v)
    y = gd.mean(gd.log_softmax(h)[np.arange(17), np.arange(17) % 12]) + 0.1 * gd.sum(w * w) + gd.max(h)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype(dtype) for s in ((17, 9), (9, 12), (12,))]
    return [x, w, v], [y, h, *gd.grad(y, [x, w, v])], arrays


def same_bits(a, b):
    for p, q in zip(a, b, strict=True):
        assert p.dtype == q.dtype and p.shape == q.shape and p.tobytes() == q.tobytes()
        checked()


# -- structure of outputs and arguments ---------------------------------------------------------------------------------------

def test_outputs_keep_their_structure():
    ins, outs, want = survey()
    one = gd.function(ins, outs[0])(2.0, 5.0)
    assert type(one) is np.ndarray and one.shape == () and float(one) == want[0]
    for kind in (list, tuple):
        several = gd.function(ins, kind(outs))(2.0, 5.0)
        assert type(several) is tuple and tuple(float(v) for v in several) == want
    names = {"value": outs[0], ("d", 1): outs[1]}
    table = gd.function(ins, names)(2.0, 5.0)
    assert list(table) == list(names) and float(table["d", 1]) == 5.5
    assert gd.function(ins, [])(2.0, 5.0) == ()
    assert len(gd.function(ins, [outs[0]])(2.0, 5.0)) == 1


def test_one_node_twice_and_inputs_and_constants_as_outputs():
    x = gd.input("x", (3,))
    a = np.arange(3.0)
    r = gd.function([x], [x, x, gd.constant([1.0]), x * 2, x.T])(a)
    assert [v.tolist() for v in r] == [[0, 1, 2], [0, 1, 2], [1.0], [0, 2, 4], [0, 1, 2]]
    assert not any(np.shares_memory(p, q) for i, p in enumerate(r) for q in [a, *r[:i]])
    r[0][:] = 9        # fresh arrays: writing to one changes nothing else
    assert a.tolist() == [0, 1, 2]


def test_results_of_two_calls_are_different_arrays():
    x = gd.input("x", (3,))
    f = gd.function([x], x + 1.0)
    first = f(np.zeros(3))
    second = f(np.ones(3))
    assert first.tolist() == [1, 1, 1] and second.tolist() == [2, 2, 2] and not np.shares_memory(first, second)


def test_keywords():
    ins, outs, want = survey()
    f = gd.function(ins, outs)
    for result in (f(x1=2.0, x2=5.0), f(x2=5.0, x1=2.0), f(2.0, x2=5.0)):
        assert tuple(float(v) for v in result) == want
    for args, named, says in [((2.0,), {}, "missing: x2"), ((2.0, 5.0, 1.0), {}, "takes 2 arguments"), ((2.0,), {"x1": 1.0}, "two values"),
                              ((2.0,), {"y": 1.0}, "unexpected keyword 'y'"), ((), {}, "missing: x1, x2")]:
        with pytest.raises(TypeError, match=says):
            f(*args, **named)
        checked()


def test_two_inputs_of_one_name_are_positional_only():
    a, b = gd.input("a"), gd.input("a")
    f = gd.function([a, b], a - b)
    assert float(f(3.0, 1.0)) == 2.0
    with pytest.raises(NodeTypeError, match="two inputs have that name"):
        f(3.0, a=1.0)


def test_an_interior_node_can_be_an_input():
    x = gd.input("x")
    h = x * 2.0
    y = h + x
    assert float(gd.function([x, h], y)(1.0, 10.0)) == 11.0
    assert float(gd.function([h], h * h)(3.0)) == 9.0
    with pytest.raises(NodeTypeError, match="'x' is needed"):
        gd.function([h], y)


def test_impossible_inputs_are_refused():
    x = gd.input("x")
    for bad, says in [([x, x], "twice"), ([gd.constant(1.0)], "constant"), ([gd.variable(1.0)], "variable"), (["x"], "must be a node")]:
        with pytest.raises((TypeError, ValueError), match=says):
            gd.function(bad, x)
        checked()


# -- out= -----------------------------------------------------------------------------------------------------------------------

def test_out_writes_into_the_arrays_given():
    ins, outs, want = survey()
    f = gd.function(ins, outs)
    out = [np.empty(()) for _ in outs]
    assert f(2.0, 5.0, out=out) is out and tuple(float(v) for v in out) == want
    g = gd.function(ins, outs[0])
    one = np.empty(())
    assert g(2.0, 5.0, out=one) is one and float(one) == want[0]
    h = gd.function(ins, {"a": outs[0], "b": outs[1]})
    table = {"b": np.empty(()), "a": np.empty(())}
    h(2.0, 5.0, out=table)
    assert float(table["a"]) == want[0] and float(table["b"]) == want[1]
    for bad in ([np.empty(())], {"a": np.empty(())}, 3):
        with pytest.raises((TypeError, ValueError)):
            h(2.0, 5.0, out=bad)
    with pytest.raises(ValueError, match="3 arrays needed"):
        f(2.0, 5.0, out=[np.empty(())])


# -- bind ------------------------------------------------------------------------------------------------------------------------

def test_bind_reads_the_arrays_anew_and_writes_the_same_outputs():
    x, w = gd.input("x", (4,)), gd.input("w", (4,))
    y = gd.sum(x * w)
    f = gd.function([x, w], [y, *gd.grad(y, [x, w])])
    a, b = np.arange(4.0), np.ones(4)
    call = f.bind(a, b)
    first = call()
    assert first is call.outputs and float(first[0]) == 6.0 and first[1].tolist() == [1, 1, 1, 1]
    a += 1
    assert call() is first and float(first[0]) == 10.0 and first[2].tolist() == [1, 2, 3, 4]
    named = f.bind(w=b, x=a)
    named()
    same_bits(named.outputs, call.outputs)
    table = gd.function([x, w], {"y": y}).bind(a, b)
    assert float(table()["y"]) == 10.0


def test_bind_refuses_what_it_would_have_to_convert():
    x = gd.input("x", (4,), "float32")
    f = gd.function([x], x + 1)
    for bad in (np.arange(4), np.arange(8, dtype="float32")[::2], np.arange(4, dtype=">f4"), [1.0, 2.0, 3.0, 4.0]):
        with pytest.raises(DTypeError, match="argument x"):
            f.bind(bad)
        checked()
    with pytest.raises(ShapeError, match="argument x"):
        f.bind(np.zeros(5, "float32"))


def test_bind_into_given_outputs():
    x = gd.input("x", (4,))
    f = gd.function([x], x * 2.0)
    a, out = np.arange(4.0), np.empty(4)
    assert f.bind(a, out=out)() is out and out.tolist() == [0, 2, 4, 6]
    for bad in (a, np.empty(5), np.empty(4, "float32"), np.empty(8)[::2]):
        with pytest.raises((TypeError, ValueError)):
            f.bind(a, out=bad)
        checked()


def test_bind_with_updates():
    w = gd.variable(0.0, "w")
    x = gd.input("x")
    call = gd.function([x], w, updates={w: w + x}).bind(np.array(2.0))
    assert [float(call()) for _ in range(3)] == [0, 2, 4] and float(w.value) == 6


def test_a_bound_call_takes_nothing_and_raises_what_its_run_does():
    x, i = gd.input("x", (4,)), gd.input("i", (2,), "int64")
    a, at = np.arange(4.0), np.array([1, 3])
    call = gd.function([x, i], gd.take(x, i, axis=0)).bind(a, at)
    for args, named in (((a,), {}), ((), {"x": a}), ((), {"out": None})):
        with pytest.raises(TypeError, match="a bound call takes no arguments"):
            call(*args, **named)
        checked()
    assert call().tolist() == [1, 3]
    at[1] = 4
    with pytest.raises(OutOfBounds, match="index 4 is out of bounds for axis 0 with size 4"):
        call()
    at[1] = 0
    assert call().tolist() == [1, 0]
    with pytest.raises(AttributeError):
        call.outputs = a
    with pytest.raises(TypeError, match="never bound"):
        type(call).__new__(type(call))()
    checked()


def test_a_bound_call_holds_what_it_needs_and_no_more():
    x = gd.input("x", (100,))
    f = gd.function([x], {"y": x + 1, "z": x * 2})
    a = np.arange(100.0)
    call = f.bind(a)
    results = call()
    held = sys.getrefcount(results), sys.getrefcount(results["y"])
    for _ in range(1000):
        call()
    assert (sys.getrefcount(results), sys.getrefcount(results["y"])) == held
    gone = weakref.ref(a)
    del a
    assert gone() is not None and call()["y"][99] == 100
    results["self"] = call                   # a cycle, which the garbage collector has to see through
    del call, results
    gc.collect()
    assert gone() is None
    checked()


# -- updates ---------------------------------------------------------------------------------------------------------------------

def test_outputs_and_updates_see_the_old_values():
    a, b = gd.variable(1.0, "a"), gd.variable(10.0, "b")
    f = gd.function([], [a, b, a + b], updates={a: b, b: a})      # a swap
    assert [float(v) for v in f()] == [1, 10, 11] and (float(a.value), float(b.value)) == (10, 1)
    assert [float(v) for v in f()] == [10, 1, 11] and (float(a.value), float(b.value)) == (1, 10)


@pytest.mark.parametrize("passes", [None, ()])
def test_swap_of_two_arrays_through_views(passes):
    a, b = gd.variable(np.arange(6.0).reshape(2, 3), "a"), gd.variable(np.ones((3, 2)), "b")
    f = gd.function([], [], updates={a: b.T, b: a.T + 0.0}, passes=passes)
    f()
    assert a.value.tolist() == np.ones((2, 3)).tolist() and b.value.tolist() == np.arange(6.0).reshape(2, 3).T.tolist()


def test_update_by_a_reversed_view_of_itself():
    a = gd.variable(np.arange(5.0), "a")
    gd.function([], [], updates={a: a[::-1]})()
    assert a.value.tolist() == [4, 3, 2, 1, 0]


def test_update_without_use_in_outputs_and_constant_update():
    a = gd.variable(np.zeros(2), "a")
    x = gd.input("x", (2,))
    gd.function([x], x, updates={a: x})(np.array([1.0, 2.0]))
    assert a.value.tolist() == [1, 2]
    gd.function([], [], updates={a: np.array([7.0, 8.0])})()
    assert a.value.tolist() == [7, 8]


def test_an_error_leaves_every_variable_as_it_was():
    a = gd.variable(np.arange(3.0), "a")
    b = gd.variable(np.arange(3.0), "b")
    i = gd.input("i", (), "int64")
    f = gd.function([i], a * 2.0, updates={a: a + 1.0, b: gd.take(a, i) + b})
    with pytest.raises(OutOfBounds, match="index 3"):
        f(3)
    assert a.value.tolist() == [0, 1, 2] and b.value.tolist() == [0, 1, 2]
    f(2)
    assert a.value.tolist() == [1, 2, 3] and b.value.tolist() == [2, 3, 4]


def test_wrong_updates_are_refused():
    a = gd.variable(np.zeros(2), "a")
    for updates, says in [({gd.input("x", (2,)): a}, "must be a variable"), ({a: gd.input("x", (3,))}, "shape"),
                          ({a: gd.constant(np.zeros(2, "float32"))}, "float32")]:
        with pytest.raises((TypeError, ValueError), match=says):
            gd.function([n for n in updates.values() if n.op == "input"], [], updates=updates)
        checked()


def test_value_of_a_variable():
    a = gd.variable([1.0, 2.0], "a")
    view = a.value
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5
    a.value = [3.0, 4.0]
    assert view.tolist() == [3, 4]
    f = gd.function([], a * 1.0)
    a.value = np.array([5, 6])
    assert f().tolist() == [5, 6]
    for bad in (np.zeros(3), np.zeros(2, complex), "text", np.array([1, None])):
        with pytest.raises((TypeError, ValueError)):
            a.value = bad
        checked()
    assert a.value.tolist() == [5, 6]


def test_training_reaches_the_least_squares_solution():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((40, 3))
    target = data @ [1.0, -2.0, 0.5]
    x, t, w = gd.input("x", ("n", 3)), gd.input("t", ("n",)), gd.variable(np.zeros(3), "w")
    loss = gd.mean(gd.square(x @ w - t))
    step = gd.function([x, t], loss, updates={w: w - 0.1 * gd.grad(loss, w)})
    losses = [float(step(data, target)) for _ in range(300)]
    assert losses[-1] < 1e-12 and np.allclose(w.value, [1.0, -2.0, 0.5], atol=1e-6)


# -- named sizes -----------------------------------------------------------------------------------------------------------------

def test_named_sizes_change_from_call_to_call():
    x, w = gd.input("x", ("n", 3)), gd.input("w", (3, "m"))
    y = gd.mean(gd.softmax(x @ w), axis=0)
    f = gd.function([x, w], [y, gd.grad(gd.sum(y * y), w), gd.size(x, 0)])
    rng = np.random.default_rng(1)
    for n, m in [(4, 2), (1, 1), (7, 2), (4, 2), (17, 5), (2, 3)]:
        a, b = rng.standard_normal((n, 3)), rng.standard_normal((3, m))
        e = np.exp(a @ b)
        got, g, size = f(a, b)
        np.testing.assert_allclose(got, (e / e.sum(1, keepdims=True)).mean(0), rtol=1e-13)
        assert g.shape == (3, m) and int(size) == n
        checked(3)


def test_size_arithmetic():
    x = gd.input("x", ("n",))
    n = x.shape[0]
    y = [gd.concatenate([x, x]), gd.reshape(gd.stack([x, x]), (2 * n,)), x[: n - 1] + x[1:], gd.broadcast_to(gd.sum(x), (n, 2)), x / gd.size(x, 0)]
    f = gd.function([x], y)
    for size in (2, 5, 1):
        r = f(np.arange(float(size)))
        assert [v.shape for v in r] == [(2 * size,), (2 * size,), (size - 1,), (size, 2), (size,)]
        checked(5)


def test_sizes_that_disagree_are_named():
    x, t = gd.input("x", ("n", 3)), gd.input("t", ("n",))
    f = gd.function([x, t], gd.sum(x, axis=1) - t)
    with pytest.raises(ShapeError, match="n"):
        f(np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(ShapeError):
        f(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(ShapeError):
        f(np.zeros(2), np.zeros(2))


@pytest.mark.parametrize("shape", [("m",), (3,)])
def test_a_size_that_was_taken_for_another_is_not_broadcast(shape):
    """Its derivative would not sum over the axis. What has size 1 from the beginning is."""
    p, q = gd.input("p", ("n",)), gd.input("q", shape)
    for y in (p * q, gd.grad(gd.sum(p * q), [p, q])):
        f = gd.function([p, q], y)
        assert np.shape(f(np.ones(3), np.ones(3))[0]) in ((), (3,))
        with pytest.raises(ShapeError):
            f(np.ones(1), np.ones(3))
        if shape == ("m",):
            with pytest.raises(ShapeError, match="size m was taken for n while building, but is 1 beside 3"):
                f(np.ones(3), np.ones(1))
    if shape == (3,):
        with pytest.raises(ShapeError, match="size n was taken for 3 while building, but is 1 beside 3"):
            gd.function([p, q], p * q)(np.ones(1), np.ones(3))
    one = gd.input("one", (1,))
    value, d = gd.evaluate([p * one, gd.grad(gd.sum(p * one), one)], {p: np.ones(3), one: np.ones(1)})
    assert value.shape == (3,) and d.tolist() == [3.0]
    checked(6)


def test_the_cache_of_programs_is_bounded_and_used():
    x = gd.input("x", ("n",))
    f = gd.function([x], gd.sum(x * x))
    for n in range(2 * CACHE):
        assert float(f(np.ones(n))) == n
    assert len(f._cache) == CACHE
    before = dict(f._cache)
    f(np.ones(2 * CACHE - 1))
    assert dict(f._cache) == before
    fixed = gd.function([gd.input("y", (3,))], gd.constant(1.0))
    assert fixed._static is not None and not fixed._cache


def test_calls_from_many_threads_with_mixed_sizes():
    x = gd.input("x", ("n",))
    y = gd.sum(gd.sin(x) * gd.exp(-x))
    f = gd.function([x], [y, gd.grad(y, x)], threads=1)
    arrays = [np.linspace(0, 1, n) for n in (1, 3, 17, 100, 1000)]
    want = [f(a) for a in arrays]
    failures = []

    start = threading.Barrier(8)

    def work(k):
        start.wait()
        for i in range(60):
            j = (i + k) % len(arrays)
            got = f(arrays[j])
            if any(p.tobytes() != q.tobytes() for p, q in zip(got, want[j], strict=True)):
                failures.append((k, i))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert not failures
    checked(480)


# -- bits --------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_and_passes_keep_every_bit(dtype):
    ins, outs, arrays = network(dtype)
    want = gd.function(ins, outs, threads=1)(*arrays)
    for options in ({"threads": 1}, {"threads": 2}, {"threads": 3}, {"passes": ()}, {"passes": ["merge"]}, {"passes": ["algebra"]},
                    {"passes": ["fold"]}, {"passes": ["in_place"]}, {"passes": ["merge", "algebra", "fold", "in_place"], "threads": 2}):
        f = gd.function(ins, outs, **options)
        same_bits(f(*arrays), want)
        same_bits(f(*arrays), want)       # a second call


def test_threads_keep_the_bits_of_large_arrays():
    x, y = gd.input("x", (300, 257), "float32"), gd.input("y", (257, 190), "float32")
    outs = [x @ y, gd.sum(x), gd.sum(x, axis=0), gd.exp(x), gd.softmax(x, axis=0), gd.cumsum(x), gd.sort(x, axis=0), gd.max(x, axis=1)]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n.shape).astype("float32") for n in (x, y)]
    want = gd.function([x, y], outs, threads=1)(*arrays)
    for threads in (2, 4):
        same_bits(gd.function([x, y], outs, threads=threads)(*arrays), want)


def test_impossible_threads_and_passes():
    x = gd.input("x")
    for threads in (0, -1, 1.5, True, "2"):
        with pytest.raises(TypeError):
            gd.function([x], x, threads=threads)
        checked()
    with pytest.raises(TypeError, match="no pass is called 'nonsense'"):
        gd.function([x], x, passes=["nonsense"])


def test_constants_are_told_apart_by_dtype_and_bits():
    x = gd.input("x")
    five = [gd.constant(0.0), gd.constant(-0.0), gd.constant(1), gd.constant(1.0), gd.constant(True)]
    nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    outs = [*five, gd.copysign(1.0, five[0]), gd.copysign(1.0, five[1]), x / five[0], x / five[1], gd.constant(np.nan), gd.constant(nan),
            x * five[2], x * five[3]]
    for passes in (None, ()):
        r = gd.function([x], outs, passes=passes)(1.0)
        assert [v.dtype.name for v in r[:5]] == ["float64", "float64", "int64", "float64", "bool"]
        assert [bool(np.signbit(v)) for v in r[:2]] == [False, True]
        assert [float(v) for v in r[5:9]] == [1, -1, np.inf, -np.inf]
        assert r[10].tobytes() == np.float64(nan).tobytes() and r[9].tobytes() != r[10].tobytes()
        checked(9)


def test_algebra_never_drops_a_nan_an_infinity_or_a_signed_zero():
    x = gd.input("x")
    outs = [x * 0.0, x - x, x + 0.0, 0.0 + x, x - 0.0, 0.0 - x, x / x, gd.log(gd.exp(x)), x * 1.0, gd.negative(-x), x / 1.0]
    for value in (np.inf, -np.inf, np.nan, -0.0, 0.0, 1e308, 5e-324, 800.0):
        with np.errstate(all="ignore"):
            v = np.float64(value)
            want = [v * 0.0, v - v, v + 0.0, 0.0 + v, v - 0.0, 0.0 - v, v / v, np.log(np.exp(v)), v, v, v]
        got = gd.function([x], outs)(value)
        for a, b in zip(got, want, strict=True):
            assert (np.isnan(a) and np.isnan(b)) or (float(a) == float(b) and np.signbit(a) == np.signbit(b)), value
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_and_its_negative_are_twice_the_number_bit_for_bit(dtype):
    """Also where the sign is a factor's: what remains is one multiplication."""
    zmul = gd.ops.binary.zmul
    x, y = gd.input("x", (9, 9), dtype), gd.input("y", (9, 9), dtype)
    outs = [-x - x, x - -x, x * -y - x * y, zmul(x, -y) - zmul(x, y), zmul(x, y) - zmul(-x, y), -zmul(x, y) - zmul(x, y),
            gd.grad(gd.exp(-x * x), x, cotangent=gd.ones_like(x)), -x - y, x * y - -y * y, zmul(x, y) - x * -y]
    values = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-40, 3e38], dtype)
    arrays = np.meshgrid(values, values)
    f, plain = gd.function([x, y], outs), gd.function([x, y], outs, passes=())
    with np.errstate(all="ignore"):
        for a, b in zip(f(*arrays), plain(*arrays), strict=True):
            fine = ~np.isnan(b)
            np.testing.assert_array_equal(a, b)
            assert a[fine].tobytes() == b[fine].tobytes()
            checked()
    for k, y_ in enumerate(outs):
        ops = [line[0] for op, _, _, lines, *_ in gd.function([x, y], y_).program.instrs if op == "fused" for line in lines]
        assert ("subtract" in ops) == (k > 6), (k, ops)
        checked()


def test_pads_with_zeros_of_two_signs_are_two_nodes():
    x = gd.input("x", (1,))
    a, b = gd.function([x], [gd.pad(x, 1, constant_values=0.0), gd.pad(x, 1, constant_values=-0.0)])([1.0])
    assert np.signbit(a).tolist() == [False] * 3 and np.signbit(b).tolist() == [True, False, True]


def test_an_infinite_tangent_times_a_zero_of_a_branch_not_taken():
    x = gd.input("x")
    y = gd.where(x > 0.0, x, gd.exp(x))
    second = gd.jvp(gd.grad(y, x), x, 1.0)
    assert float(gd.evaluate(second, {x: 1e10})) == 0.0


# -- pickling, copying -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("again", [lambda f: pickle.loads(pickle.dumps(f)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_functions_pickle_and_copy(again):
    ins, outs, arrays = network()
    for outputs in (outs[0], outs, {"y": outs[0], "g": outs[3]}):
        f = gd.function(ins, outputs, threads=1)
        g = again(f)
        a, b = f(*arrays), g(*arrays)
        if isinstance(outputs, dict):
            assert list(a) == list(b)
            a, b = a.values(), b.values()
        elif not isinstance(outputs, list):
            a, b = [a], [b]
        same_bits(a, b)
    n = gd.input("x", ("n",))
    assert again(gd.function([n], gd.sum(n)))(np.ones(5)) == 5.0


@pytest.mark.parametrize("again", [lambda f: pickle.loads(pickle.dumps(f)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copied_function_has_variables_of_its_own(again):
    a, b = gd.variable(1.0, "a"), gd.variable(2.0, "b")
    f = gd.function([], [a, b], updates={a: b, b: a})
    g = again(f)
    g()
    assert (float(a.value), float(b.value)) == (1, 2)
    assert [float(v) for v in g()] == [2, 1] and [float(v) for v in f()] == [1, 2]


@pytest.mark.parametrize("again", [lambda f: pickle.loads(pickle.dumps(f)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_lists_of_nodes_copy_as_one_object(again):
    x = gd.input("x", (3,))
    h = gd.exp(x)
    nodes = [x, h, h * x, gd.sum(h)]
    x2, h2, p2, s2 = again(nodes)
    r = gd.function([x2], [h2, p2, s2])(np.zeros(3))
    assert [v.tolist() for v in r] == [[1, 1, 1], [0, 0, 0], 3.0]
    assert x2 is not x


def test_a_copied_node_keeps_its_facts():
    with gd.scope("encoder"):
        h = gd.exp(gd.input("x", ("n", 2), "float32")).named("h")
    (k,) = pickle.loads(pickle.dumps([h]))
    assert (k.op, k.name, k.shape, k.dtype, k.site) == (h.op, h.name, h.shape, h.dtype, h.site)
    assert k.scope == h.scope


def test_gradients_of_copied_graphs():
    ins, outs, want = survey()
    x1, x2, y = copy.deepcopy([*ins, outs[0]])
    f = gd.function([x1, x2], gd.grad(y, [x1, x2]))
    assert tuple(float(v) for v in f(2.0, 5.0)) == want[1:]


# -- looking -------------------------------------------------------------------------------------------------------------------------

def test_program_plan_cost_profile():
    ins, outs, arrays = network()
    f = gd.function(ins, outs)
    assert "matmul" in str(f.program) and "arena" in str(f.plan)
    assert f.plan.arena_nbytes >= 0 and f.plan.input_nbytes == sum(a.nbytes for a in arrays)
    rows = f.cost()
    assert {r["pass"] for r in rows} == {"forward", "reverse"} and all(r["nbytes"] > 0 for r in rows)
    (forward,) = [r for r in rows if r["op"] == "matmul" and r["pass"] == "forward"]
    assert forward["flops"] == 2 * 17 * 9 * 12
    assert f.profile(*arrays)
    same_bits(f(*arrays), f(*arrays))


def test_cost_counts_what_is_computed():
    """Elements that are only moved are no FLOPs; what is added to an array counts, not the array; attention's scores have a softmax."""
    x, w, i, q = gd.input("x", (3, 4)), gd.input("w", ("n", 4)), gd.input("i", (2,), "int64"), gd.input("q", (2, 5, 4))
    moved = [x.reshape(12), x.T, x[1:], gd.broadcast_to(x, (2, 3, 4)), gd.concatenate([x, x]), x[i], x.at[i].set(1.0), gd.diagonal(x), gd.pad(x, 1),
             gd.take_along_axis(x, gd.argmax(x, axis=1, keepdims=True), 1), gd.checkpoint(lambda a: a.T)(x)]
    for y in moved:
        rows = gd.function([x, w, i], y).cost()
        assert sum(r["flops"] for r in rows if r["op"] not in ("argmax", "argmin")) == 0 and all(r["nbytes"] > 0 for r in rows)
    for y, flops in ((x.at[i].add(gd.stack([x[0], x[0]])), 8), (gd.segment_sum(x[:2], np.array([0, 1]), 100), 8), (x.at[1:].add(x[1:]), 8),
                     (gd.segment_max(x[:2], np.array([0, 1]), 100), 8), (gd.exp(x.T), 12), (gd.attention(q, q, q), 2 * 2 * 5 * 5 * 8 + 5 * 2 * 5 * 5)):
        assert sum(r["flops"] for r in gd.function([x, i, q], y).cost()) == flops
    assert str([r["flops"] for r in gd.function([w], gd.exp(w.T)).cost()]) == "[0, n*4]"
    net = gd.function([w], gd.sum(gd.tanh(gd.exp(w) @ w.T), axis=1))
    assert [r["op"] for r in net.cost()] == ["exp", "transpose", "matmul", "tanh", "sum"] and str(net.cost()[2]["flops"]) == "n**2*8"
    checked(len(moved) + 7)


def test_evaluate():
    ins, outs, want = survey()
    assert float(gd.evaluate(outs[0], {ins[0]: 2.0, ins[1]: 5.0})) == want[0]
    assert gd.evaluate({"a": outs[1]}, {ins[0]: 2.0, ins[1]: 5.0})["a"] == 5.5
    assert float(gd.evaluate(gd.constant(2.0) * 3.0)) == 6.0


def test_gradient_errors_name_the_nodes():
    x, z = gd.input("x", (3,)), gd.input("unused", (3,))
    y = gd.sum(gd.stop_gradient(x) * 2.0)
    with pytest.raises(GradientError, match="does not depend on 'unused'"):
        gd.grad(y, z)
    with pytest.raises(GradientError, match="stop_gradient cuts the path"):
        gd.grad(y, x)
    for cut, name in ((gd.stop_gradient(gd.where(x > 0, x, -x)), "stop_gradient"), (gd.argmax(gd.where(x > 0, x, -x)) * 1.0, "argmax"),
                      (gd.stop_gradient(x * gd.stop_gradient(x)), "stop_gradient")):        # a path that is cut twice
        with pytest.raises(GradientError, match=f"{name} cuts the path"):
            gd.grad(gd.sum(cut), x)
    assert not gd.evaluate(gd.grad(y, x, unconnected="zero")).any()
    with pytest.raises(GradientError, match="scalar"):
        gd.grad(x * 2.0, x)
    with pytest.raises(GradientError, match="integers and bools"):
        gd.grad(gd.sum(x), gd.input("i", (), "int64"))
    with pytest.raises(ShapeError, match="cotangent"):
        gd.grad(x * 2.0, x, cotangent=np.ones(2))


@pytest.mark.parametrize("again", [lambda f: pickle.loads(pickle.dumps(f)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_functions_copied_together_share_their_variables(again):
    w = gd.variable(1.0, "w")
    x = gd.input("x")
    step, show, node = again((gd.function([x], [], updates={w: w + x}), gd.function([], w * 1.0), w))
    step(2.0)
    assert float(show()) == 3.0 and float(node.value) == 3.0 and float(w.value) == 1.0


def test_copied_graphs_of_casts_custom_rules_and_named_sizes():
    x = gd.input("x", ("n",), "float32")
    y = gd.sum(x.astype("float64")) + gd.size(x, 0)
    f = gd.function([x], [y, gd.grad(y, x)])
    for g in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        same_bits(g(np.ones(3, "float32")), f(np.ones(3, "float32")))
    nodes = copy.deepcopy([x, gd.custom_gradient(lambda v: v * 2, lambda g, out, v: 5 * g)(x)])
    assert gd.evaluate(gd.grad(nodes[1], nodes[0], cotangent=gd.ones_like(nodes[1])), {nodes[0]: np.zeros(2, "float32")}).tolist() == [5, 5]


def test_pickles_of_many_nodes_grow_linearly_and_do_not_recurse():
    x = gd.input("x")
    nodes = [x]
    for _ in range(3000):
        nodes.append(nodes[-1] * 0.5 + 1.0)
    for order in (nodes, nodes[::-1]):
        data = pickle.dumps(order)
        assert len(data) < 600 * 2 * len(nodes)
        copied = pickle.loads(data)
        f = gd.function([copied[0 if order is nodes else -1]], [copied[3], copied[2900]])
        assert [v.tobytes() for v in f(1.0)] == [v.tobytes() for v in gd.function([x], [order[3], order[2900]])(1.0)]
    assert len(copy.deepcopy(nodes)) == len(nodes)


def test_sizes_that_were_there_are_found_by_their_shapes():
    x, y = gd.input("x", ("n", 3)), gd.input("y", ("n",))
    f = gd.function([x, y], gd.sum(x, axis=1) * y)
    for n in (2, 5, 2, 0, 5):
        np.testing.assert_array_equal(f(np.ones((n, 3)), np.full(n, 2.0)), np.full(n, 6.0))
    assert len(f._cache) == 3
    np.testing.assert_array_equal(f([[1.0] * 3] * 2, [1, 2]), [3.0, 6.0])      # lists, and integers for floats
    np.testing.assert_array_equal(f(np.ones((2, 3), "float32"), np.ones(2, int)), [3.0, 3.0])
    assert len(f._cache) == 3
    for bad in ((np.ones((2, 3)), np.ones(5)), (np.ones((2, 4)), np.ones(2)), (np.ones(2), np.ones(2))):
        with pytest.raises(ShapeError):
            f(*bad)
    with pytest.raises(DTypeError):
        f(np.ones((2, 3), complex), np.ones(2))


def test_profile_takes_what_a_call_takes():
    q = gd.input("q", (300, 200))
    w = gd.variable(np.zeros((300, 200)))
    f = gd.function([q], gd.sum(q), updates={w: q})
    for bad in (1.0, np.ones((3, 2)), np.ones((200, 300)), np.ones((1, 300, 200))):
        with pytest.raises(ShapeError, match="argument q: shape"):
            f.profile(bad)
    assert not w.value.any()
    assert f.profile(np.ones((300, 200))) and not w.value.any()
    s, t = gd.input("s", ()), gd.input("t", (2,))
    assert [r["op"] for r in gd.function([s, t], [gd.exp(s), t * s]).profile(2, [1.0, 2.0])]


@pytest.mark.parametrize("name", ["concatenate", "concat", "stack", "vstack", "hstack", "dstack", "column_stack"])
def test_nothing_cannot_be_joined(name):
    with pytest.raises(ShapeError, match="needs at least one operand"):
        getattr(gd, name)([])


def test_sizes_that_disagree_name_the_argument():
    f = gd.function([x := gd.input("x", ("b", 4)), i := gd.input("i", ("b",))], x[:, 0] + i)
    with pytest.raises(ShapeError, match=r"argument x: expected size 4, not 3"):
        f(np.ones((3, 3)), np.ones(3))
    with pytest.raises(ShapeError, match=r"argument i: size b is 3 elsewhere, but 2 here"):
        f(np.ones((3, 4)), np.ones(2))


def test_tests_of_integers_for_what_only_floats_can_be():
    """They are constants, but where a cast overflows."""
    for dtype in ("bool", "uint8", "int32", "int64"):
        x, a = gd.input("x", (3, 2), dtype), np.array([[0, 1], [1, 0], [1, 1]], dtype)
        f = gd.function([x], [gd.isnan(x), gd.isinf(x), gd.isfinite(x), gd.isfinite(x[0, 0])])
        assert not any("isnan" in line or "isfinite" in line for line in str(f.program).splitlines())
        assert [np.asarray(v).tolist() for v in f(a)] == [np.isnan(a).tolist(), np.isinf(a).tolist(), np.isfinite(a).tolist(), True]
        checked(4)
    x = gd.input("x", (2,), "int64")
    f = gd.function([x], [gd.isinf(x.astype("float16")), gd.isinf(x)])
    assert [v.tolist() for v in f(np.array([1, 70000]))] == [[False, True], [False, False]]


def test_profile_leaves_variables_as_they_are():
    w, x = gd.variable(np.arange(3.0), "w"), gd.input("x", (3,))
    f = gd.function([x], gd.sum(w * x), updates={w: w - 0.5 * x})
    f.profile(np.ones(3))
    np.testing.assert_array_equal(w.value, np.arange(3.0))
    f(np.ones(3))
    np.testing.assert_array_equal(w.value, np.arange(3.0) - 0.5)
    checked(2)
