"""Every allocation fails in turn: a MemoryError, nothing leaked, and the function works afterwards. Calls do not grow.

The allocator of the C core is told to fail from the n-th allocation on; Python's own is told by _testcapi, in a process
of its own, to fail the n-th alone, or the n-th and all after it.
"""
import dis
import gc
import os
import pathlib
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
from conftest import LONG
from counting import checked

import graphdiff as gd
from graphdiff.runtime import native


def network(threads):
    x, w = gd.input("x", ("n", 30)), gd.variable(np.linspace(-1, 1, 600).reshape(30, 20), "w")
    h = gd.softmax(gd.layer_norm(gd.tanh(x @ w)), axis=1)
    y = gd.sum(gd.sort(h, 0) * gd.cumsum(h, 1))
    f = gd.function([x], [y, gd.grad(y, x)], updates={w: w - 0.0 * gd.grad(y, w)}, threads=threads)
    return f, w


def failing_from(n, act):
    """The result of act() when the C core's allocations fail from the n-th on, or None after a MemoryError."""
    native.lib.gd_alloc_fail_after(n)
    try:
        return act()
    except MemoryError:
        return None
    finally:
        native.lib.gd_alloc_fail_after(-1)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_allocation_of_building_and_calling_fails_once(threads):
    a = np.random.default_rng(0).standard_normal((50, 30))
    want = [r.tobytes() for r in network(1)[0](a)]
    gc.collect()
    live = native.lib.gd_alloc_live()
    failures = 0
    for n in range(1000):
        got = failing_from(n, lambda: network(threads)[0](a))
        gc.collect()
        assert native.lib.gd_alloc_live() == live, n
        checked()
        if got is not None:
            assert [r.tobytes() for r in got] == want
            break
        failures += 1
    assert failures >= 4, failures      # a program, its copy of constants, a workspace, its arena


@pytest.mark.parametrize("threads", [1, 2])
def test_a_function_whose_allocation_failed_works_afterwards(threads):
    a, b = np.random.default_rng(1).standard_normal((2, 50, 30))
    f, w = network(threads)
    want, before = [r.tobytes() for r in f(a)], w.value.tobytes()
    failures = 0
    for n in range(1000):
        fresh = np.concatenate([b[:n % 40 + 1], a])      # sizes it has not seen: a program and a workspace are made
        got = failing_from(n % 12, lambda: f(fresh))     # noqa: B023
        failures += got is None
        assert w.value.tobytes() == before
        assert [r.tobytes() for r in f(a)] == want
        checked(2)
        if n >= 40:
            break
    assert failures >= 8


def test_bind_and_evaluate_give_a_memory_error():
    x = gd.input("x", (40,))
    f = gd.function([x], gd.sort(gd.exp(x)) + 1)
    a = np.linspace(-1, 1, 40)
    want = f(a)
    live = native.lib.gd_alloc_live()
    for act in (lambda: f.bind(a)(), lambda: gd.evaluate(gd.sort(gd.exp(x)) + 1, {x: a})):
        results = [failing_from(n, act) for n in range(40)]
        assert results[0] is None and results[-1] is not None, [r is None for r in results]
        for r in results:
            assert r is None or r.tobytes() == want.tobytes()
        checked(40)
        del results
        gc.collect()
    assert native.lib.gd_alloc_live() == live


PYTHON = """
    import gc, sys
    import numpy as np, graphdiff as gd
    import _testcapi
    x, y = gd.input("x", (3,)), gd.input("y")
    v = gd.variable(np.zeros(3), "v")
    out = np.empty(3)
    plain = gd.function([x, y], [gd.exp(x) * y, y * 2], threads=1)
    step = gd.function([x, y], v, updates={v: v + x * y}, threads=1)
    named = gd.function([gd.input("n", ("k",))], gd.constant(1.0) * 2, threads=1)
    a = np.ones(3)
    bound = plain.bind(a, 2.0)
    calls = [lambda: plain(a, 2.0), lambda: plain([1, 1, 1], 2), lambda: bound(), lambda: step(a, 0.0), lambda: named(a)]
    for call in calls:
        call()
    wants = [[np.asarray(r).tobytes() for r in (call() if type(call()) is tuple else [call()])] for call in calls]
    failures = 0
    last = (lambda n: 0) if sys.argv[2] == "ever" else (lambda n: n + 1)
    for call, want in zip(calls, wants):
        for n in range(1, int(sys.argv[1])):
            failed, stop = False, last(n)
            _testcapi.set_nomemory(n, stop)
            try:
                r = call()
            except MemoryError:
                failed = True
            _testcapi.remove_mem_hooks()
            failures += failed
            r = call()
            got = [np.asarray(q).tobytes() for q in (r if type(r) is tuple else [r])]
            assert got == want, n
            assert v.value.tolist() == [0.0] * 3
    print(failures)
"""


@pytest.mark.parametrize("fails", ["once", "ever"])
def test_failing_allocations_of_python_itself(fails):
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PYTHON), "200" if LONG else "60", fails], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    assert int(done.stdout) > 20
    checked(5 * 59)


BUILDING = """
    import sys
    import numpy as np, graphdiff as gd
    import _testcapi
    def build():
        x, w = gd.input("x", ("k", 3)), gd.constant(np.ones((3, 2)))
        h = gd.tanh(x @ w)
        y = gd.sum(gd.softmax(h) * gd.tensordot(h, np.ones((2, 2)), 1))
        return gd.function([x], [y, gd.grad(y, x), gd.jvp(y, x, x)], threads=1)
    a = np.ones((4, 3))
    want = [r.tobytes() for r in build()(a)]
    failures = 0
    for n in [*range(1, 40), *range(40, 9000, int(sys.argv[1]))]:
        results = None
        _testcapi.set_nomemory(n, 0)
        try:
            results = build()(a)
        except MemoryError:
            pass
        _testcapi.remove_mem_hooks()
        failures += results is None
        for got in (results, build()(a)):
            assert got is None or [r.tobytes() for r in got] == want, n
    print(failures)
"""


def test_memory_that_fails_for_ever_while_a_graph_is_built_and_compiled():
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(BUILDING), "7" if LONG else "97"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    assert int(done.stdout) > 60
    checked(100)


def _codes(code):
    yield code
    for k in code.co_consts:
        if isinstance(k, types.CodeType):
            yield from _codes(k)


@pytest.mark.skipif(not hasattr(dis, "_parse_exception_table"), reason="needs a list of exception handlers")
def test_no_handler_stands_where_cpython_never_leaves_it_without_memory():
    """Beyond instruction 256 CPython makes an int to enter some handlers, and tries again when that fails, for ever."""
    root = pathlib.Path(gd.__file__).parent
    files = [*(f for d in ("graph", "ops", "diff", "passes", "plan", "lower") for f in (root / d).glob("*.py")), root / "specs.py",
             root / "errors.py", root / "runtime" / "execute.py", root / "runtime" / "native.py", *(root / "api" / f for f in (
                 "function.py", "transforms.py", "numpy_bridge.py"))]
    late = [c.co_qualname for f in files for c in _codes(compile(f.read_text(), str(f), "exec")) for e in dis._parse_exception_table(c)
            if e.lasti and e.end > 2 * 257]
    assert not [name for name in late if "reference" not in name and name != "threefry"], late      # those only answer tests
    checked(len(files))


GROWTH = """
    import gc, sys
    import numpy as np, graphdiff as gd
    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    x, n, s = gd.input("x", (40,)), gd.input("n", ("k",)), gd.input("s")
    v = gd.variable(np.zeros(40))
    f = gd.function([x], [gd.exp(x), gd.sum(x)], updates={v: v + x})
    g = gd.function([n], gd.sin(n))
    h = gd.function([s], [s * 2, gd.grad(s * s, s)])
    arrays = [np.ones(k) for k in range(1, 60)]
    a, out = np.ones(40), [np.empty(40), np.empty(())]
    bound = g.bind(arrays[4])
    def work(calls):
        for i in range(calls):
            f(a)
            f(a, out=out)
            h(2.0)
            bound()
            g(arrays[i % 3])
            if i % 500 == 0:
                g(arrays[i // 500 % 59])            # a program made, another dropped
                try:
                    f(arrays[0])
                except ValueError:
                    pass
    work(3000 if int(sys.argv[1]) < 100000 else 40000)
    before = resident()
    work(int(sys.argv[1]) // 5)
    print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_calls_do_not_grow_the_process():
    env = {**os.environ, "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:quarantine_size_mb=0"}     # which keeps what is freed
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(GROWTH), "1000000" if LONG else "50000"], capture_output=True, text=True,
                          timeout=900, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) <= 1 << 20, done.stdout
