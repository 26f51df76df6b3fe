"""The order of nodes: the user's own unless another one needs clearly less memory; values do not depend on it."""
import numpy as np
import pytest
from counting import checked
from plain_order import Numbered

import graphdiff as gd
from graphdiff.errors import NoMemory
from graphdiff.graph.walk import toposort
from graphdiff.plan import schedule as planning
from graphdiff.runtime import native

NONE = ("merge", "algebra", "stable_forms", "fold")


def arrays(nodes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n.shape).astype(n.dtype) for n in nodes]


def ids(nodes):
    return [id(n) for n in nodes]


MAKE = [lambda a, b: gd.tanh(a @ b), lambda a, b: a + b, lambda a, b: a * gd.sigmoid(b), lambda a, b: gd.softmax(a.T, axis=0) - b,
        lambda a, b: gd.concatenate([a[:100], b[100:]]), lambda a, b: gd.maximum(a, b[::-1])]


def schedule(outputs):
    return planning.schedule(outputs, native.order)


def is_order(order, outputs):
    place = {id(n): i for i, n in enumerate(order)}
    assert len(place) == len(order) == len(toposort(outputs))
    assert all(place[id(x)] < place[id(n)] for n in order for x in n.inputs)
    checked(len(order))


def test_parts_that_are_made_first_and_added_up_later_are_not_all_there_at_once():
    x = gd.input("x", (400, 400))
    ws = [gd.input(f"w{k}", (400, 400)) for k in range(8)]
    parts = [gd.tanh(x @ w) for w in ws]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    f = gd.function([x, *ws], [total, gd.sum(total * total)])
    values = arrays([x, *ws])
    got = f(*values)
    assert f.plan.arena_nbytes <= 3 * 400 * 400 * 8
    made = gd.function([x, *ws], [total, gd.sum(total * total)], passes=NONE)
    for a, b in zip(got, made(*values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    order = schedule([total])
    is_order(order, [total])
    assert ids(order) != ids(toposort([total]))
    checked(3)


def test_the_branch_that_needs_more_goes_first():
    x = gd.input("x", (300, 300))
    small, big = gd.sin(x @ x), x
    for _ in range(2):
        big = gd.concatenate([gd.softmax((big + j) @ x, axis=1) for j in range(4)])[::4]
    y = small * big
    order = schedule([y])
    is_order(order, [y])
    assert ids(order).index(id(small)) > ids(order).index(id(big))
    f, g = gd.function([x], y), gd.function([x], y, passes=NONE)
    a = arrays([x])
    np.testing.assert_allclose(f(*a), g(*a), rtol=1e-12)
    checked()


def test_a_training_step_keeps_the_order_it_was_made_in():
    """Of a gradient every part is used as soon as it is there; depth first from the first weights all would wait for the last."""
    x, t = gd.input("x", (256, 300), "float32"), gd.input("t", (256, 300), "float32")
    ws = [gd.variable(w, f"w{k}") for k, w in enumerate(arrays([gd.input("w", (300, 300), "float32")] * 6, 3))]
    h = x
    for w in ws:
        h = gd.tanh(h @ w * 0.05)
    loss = gd.sum(gd.square(h - t))
    grads = gd.grad(loss, ws)
    assert ids(schedule([loss, *grads])) == ids(toposort([loss, *grads]))
    f = gd.function([x, t], loss, updates={w: w - 1e-4 * g for w, g in zip(ws, grads, strict=True)})
    before = [np.array(w.value) for w in ws]
    a = arrays([x, t])
    f(*a)
    fixed = [gd.variable(b) for b in before]
    h = x
    for w in fixed:
        h = gd.tanh(h @ w * 0.05)
    want = gd.function([x, t], gd.grad(gd.sum(gd.square(h - t)), fixed), passes=NONE)(*a)
    for w, b, g in zip(ws, before, want, strict=True):
        np.testing.assert_allclose(w.value, b - np.float32(1e-4) * g, rtol=1e-5, atol=1e-6)
        checked()


def test_small_and_huge_graphs_are_left_alone():
    x = gd.input("x", (8, 8))
    parts = [gd.sin(x + k) for k in range(10)]
    total = sum(parts[1:], parts[0])
    assert ids(schedule([total])) == ids(toposort([total]))
    assert ids(schedule([x])) == [id(x)]
    s = gd.input("s")
    y = s
    for _ in range(60_000):
        y = y + s
    assert len(schedule([y])) == 60_001
    checked(3)


def test_random_graphs_have_the_same_values_in_another_order():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = gd.input("x", (200, 200))
        pool = [x]
        for _ in range(25):
            a, b = (pool[int(k)] for k in rng.integers(0, len(pool), 2))
            pool.append(MAKE[int(rng.integers(6))](a, b))
        outputs = [pool[-1], gd.sum(pool[-2] * pool[-3])]
        is_order(schedule(outputs), outputs)
        values = [rng.standard_normal((200, 200)) * 0.1]
        got = gd.function([x], outputs)(*values)
        want = gd.function([x], outputs, passes=NONE)(*values)
        for p, q in zip(got, want, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-10, atol=1e-10)
        checked(2)


def found(nodes, outputs, least):
    """What the core is asked, and what it answers."""
    asked = []
    planning.schedule(outputs, lambda *args: asked.append(args) or (0, None, -1))
    (first, operands, nbytes, flags, roots, _), = asked
    return nbytes, native.order(first, operands, nbytes, flags, roots, least)


def test_the_core_finds_the_order_that_the_plain_version_finds():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        pool = [gd.input("x", (200, 200)), gd.input("y", (200, 200))]
        for _ in range(40):
            a, b = (pool[int(k)] for k in rng.integers(0, len(pool), 2))
            several = [pool[int(k)] for k in rng.integers(0, len(pool), 5)]
            pool.append(gd.concatenate(several)[::5] if rng.random() < 0.2 else gd.reshape(a.T, (200, 200)) if rng.random() < 0.2
                        else gd.stop_gradient(a) if rng.random() < 0.1 else MAKE[int(rng.integers(6))](a, b))
        outputs = [pool[-1], pool[-3] * pool[-3], pool[-1], pool[20]]
        made = toposort(outputs)
        nbytes, (own, deep, deep_nbytes) = found(made, outputs, 0)
        plain = Numbered(made, outputs, nbytes)
        assert own == plain.peak(range(len(made)))
        assert list(deep) == plain.depth_first()
        assert deep_nbytes == plain.peak(deep)
        assert found(made, outputs, own + 1)[1] == (own, None, -1)
        checked(4)


def test_no_order_is_looked_for_of_arrays_that_no_machine_holds():
    x = gd.input("x", (1 << 20, 1 << 20))
    parts = [x + k for k in range(4)]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    assert ids(schedule([total])) == ids(toposort([total]))
    checked()


@pytest.mark.parametrize(("first", "operands", "nbytes", "outputs"), [
    ([0, 0, 1], [1], [8, 8], [1]),                       # reads itself
    ([0, 0, 1], [-1], [8, 8], [1]),
    ([0, 1, 0], [0], [8, 8], [1]),                       # lists that go back
    ([1, 1, 1], [0], [8, 8], [1]),
    ([0, 0, 1], [0], [8, -8], [1]),
    ([0, 0, 1], [0], [1 << 62, 1 << 62], [1]),           # sums that no number holds
    ([0, 0, 1], [0], [8, 8], [2]),
    ([0, 0, 1], [0], [8, 8], [-1]),
])
def test_the_core_refuses_numbers_that_are_no_graph(first, operands, nbytes, outputs):
    with pytest.raises(AssertionError):
        native.order(first, operands, nbytes, bytes(2), outputs, 0)
    assert native.order([0, 0, 1], [0], [8, 8], bytes(2), [1], 0) == (16, native.array("i", [0, 1]), 16)
    checked(2)


def test_no_memory_for_the_search():
    native.lib.gd_alloc_fail_after(0)
    try:
        with pytest.raises(NoMemory, match="no memory for the order"):
            native.order([0, 0, 1], [0], [8, 8], bytes(2), [1], 0)
    finally:
        native.lib.gd_alloc_fail_after(-1)
    checked()
