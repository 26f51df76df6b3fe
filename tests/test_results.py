"""Results of calls: fresh to the caller, though memory of large ones that the caller has dropped is used again."""
from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import graphdiff as gd

N = 1 << 15      # float64: 256 KiB, large enough to be used again


@pytest.fixture
def double():
    x = gd.input("x", (N,))
    return gd.function([x], 2.0 * x)


def test_held_results_are_never_written_again(double):
    held = [double(np.full(N, float(k))) for k in range(6)]
    for k, r in enumerate(held):
        np.testing.assert_array_equal(r, np.full(N, 2.0 * k))
    assert len({r.__array_interface__["data"][0] for r in held}) == 6


def test_a_view_holds_its_result(double):
    views = [double(np.full(N, float(k)))[5:9] for k in range(6)]
    for k, v in enumerate(views):
        np.testing.assert_array_equal(v, [2.0 * k] * 4)


def test_a_buffer_holds_its_result(double):
    buffers = [memoryview(double(np.full(N, float(k)))) for k in range(6)]
    assert [b[7] for b in buffers] == [2.0 * k for k in range(6)]


def test_dropped_memory_is_used_again(double):
    places = set()
    for k in range(20):
        r = double(np.full(N, float(k)))
        assert r[0] == 2.0 * k
        places.add(r.__array_interface__["data"][0])
    assert len(places) <= 3


@pytest.mark.parametrize("change", [
    lambda r: r.setflags(write=False),
    lambda r: setattr(r, "shape", (N // 2, 2)),
    lambda r: setattr(r, "dtype", "int64"),
])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_result_changed_and_dropped_does_not_come_back_changed(double, change):
    for k in range(4):
        r = double(np.full(N, float(k)))
        change(r)
        del r
    for k in range(4):
        r = double(np.full(N, float(k)))
        assert r.shape == (N,) and r.dtype == np.float64 and r.flags.writeable and r.flags.c_contiguous
        np.testing.assert_array_equal(r, np.full(N, 2.0 * k))


def test_arguments_are_not_held_after_the_call(double):
    a = np.ones(N)
    alive = weakref.ref(a)
    double(a)
    double(a, out=np.empty(N))
    del a
    gc.collect()
    assert alive() is None


def test_out_arrays_are_not_held_and_not_written_later(double):
    out = np.empty(N)
    double(np.ones(N), out=out)
    alive = weakref.ref(out)
    double(np.full(N, 3.0))
    assert out[0] == 2.0
    del out
    gc.collect()
    assert alive() is None


def test_scalar_results_are_independent():
    x, y = gd.inputs("x y")
    f = gd.function([x, y], [x + y, x * y, x - y])
    first = f(3.0, 4.0)
    second = f(5.0, 6.0)
    assert [float(r) for r in first] == [7.0, 12.0, -1.0] and [float(r) for r in second] == [11.0, 30.0, -1.0]
    first[0][...] = 99.0
    assert float(first[1]) == 12.0 and float(f(3.0, 4.0)[0]) == 7.0
    assert all(isinstance(r, np.ndarray) and r.shape == () for r in first)


def test_scalars_of_several_dtypes_and_arrays_together():
    x, y = gd.input("x"), gd.input("y", (3,), "float32")
    f = gd.function([x, y], {"a": x * 2.0, "b": y * 2.0, "c": gd.sum(y), "d": x > 0.0, "e": gd.argmax(y), "f": x + 1.0})
    r = f(1.5, np.array([1, 5, 2], "float32"))
    assert r["a"] == 3.0 and r["c"] == 8.0 and bool(r["d"]) and r["e"] == 1 and r["f"] == 2.5
    assert [v.dtype.name for v in r.values()] == ["float64", "float32", "float32", "bool", "int64", "float64"]
    np.testing.assert_array_equal(r["b"], np.array([2, 10, 4], "float32"))
    mixed = f(np.float32(1.5), np.array([1, 5, 2], "float32"))
    assert mixed["a"] == 3.0


def test_numbers_after_arrays_for_the_same_argument():
    x = gd.input("x")
    f = gd.function([x], x * x)
    assert f(np.array(3.0)) == 9.0 and f(2.0) == 4.0 and f(np.float64(5.0)) == 25.0 and f(7) == 49.0 and f(2.0) == 4.0


def test_threads_get_results_of_their_own(double):
    wrong = []

    start = threading.Barrier(6)

    def work(k: int) -> None:
        start.wait()
        for _ in range(50):
            r = double(np.full(N, float(k)))
            if not (r == 2.0 * k).all():
                wrong.append(k)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert not wrong
