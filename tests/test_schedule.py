"""The order of nodes: the user's own unless another one needs clearly less memory; values do not depend on it."""
import numpy as np
from counting import checked

import graphdiff as gd
from graphdiff.graph.walk import toposort
from graphdiff.plan.schedule import schedule

NONE = ("merge", "algebra", "stable_forms", "fold")


def arrays(nodes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n.shape).astype(n.dtype) for n in nodes]


def ids(nodes):
    return [id(n) for n in nodes]


MAKE = [lambda a, b: gd.tanh(a @ b), lambda a, b: a + b, lambda a, b: a * gd.sigmoid(b), lambda a, b: gd.softmax(a.T, axis=0) - b,
        lambda a, b: gd.concatenate([a[:100], b[100:]]), lambda a, b: gd.maximum(a, b[::-1])]


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
