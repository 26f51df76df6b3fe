"""Updates written in place behind the commit mark: the same bits as through copies, all or nothing, old values for all readers."""
from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import OutOfBounds, ShapeError

RNG = np.random.default_rng(2)


def both(build, steps=3, start=None):
    """The variables after some steps, with every pass and with none: (values, program with passes)."""
    results = []
    for passes in (None, ()):
        variables = [gd.variable(np.array(a), f"v{i}") for i, a in enumerate(start)]
        inputs, arrays, outputs, updates = build(*variables)
        f = gd.function(inputs, outputs, updates=updates, passes=passes, threads=1)
        got = [[np.array(r) for r in f(*arrays)] for _ in range(steps)]
        results.append((got, [np.array(v.value) for v in variables], f))
    (a, va, f), (b, vb, _) = results
    for x, y in zip(a, b, strict=True):
        for p, q in zip(x, y, strict=True):
            np.testing.assert_array_equal(p, q)
    for x, y in zip(va, vb, strict=True):
        np.testing.assert_array_equal(x, y)
    return va, f


def copies_behind_the_mark(f):
    return sum(op == "copy" for op, *_ in f.program.instrs[f.program.commit:])


def test_an_optimiser_writes_where_the_old_values_lie():
    def build(w, m, v):
        g = gd.sin(w)
        m2, v2 = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return [], [], [gd.sum(w)], {w: w - 0.1 * m2 / (gd.sqrt(v2) + 1e-8), m: m2, v: v2}
    _, f = both(build, start=[RNG.standard_normal(5000), np.zeros(5000), np.ones(5000)])
    assert copies_behind_the_mark(f) == 0
    assert f.plan.arena_nbytes < 5000 * 8 * 2


def test_variables_may_change_places():
    def build(a, b):
        return [], [], [a, b], {a: b, b: a}
    values, _ = both(build, steps=3, start=[np.arange(4.0), -np.arange(4.0)])
    np.testing.assert_array_equal(values[0], -np.arange(4.0))


def test_every_update_sees_the_old_values():
    def build(a, b, c):
        return [], [], [a + b + c], {a: a + 1.0, b: b + a, c: c + b * a}
    values, _ = both(build, steps=4, start=[np.arange(300.0), np.zeros(300), np.zeros(300)])
    n = np.arange(300.0)
    a, b, c = n.copy(), 0 * n, 0 * n
    for _ in range(4):
        a, b, c = a + 1, b + a, c + b * a
    for mine, theirs in zip(values, (a, b, c), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_turned_and_shifted_reads_of_the_variable_itself():
    def build(a, b):
        return [], [], [gd.sum(a)], {a: a + a[::-1], b: gd.roll(b, 1) * 1.5}
    both(build, steps=3, start=[RNG.standard_normal(400), RNG.standard_normal(400)])

    def square(a):
        return [], [], [gd.sum(a)], {a: a + a.T}
    both(square, steps=2, start=[RNG.standard_normal((30, 30))])


def test_values_that_are_results_too():
    def build(a):
        new = gd.tanh(a) * 2.0
        return [], [], [new, new + 1.0], {a: new}
    both(build, steps=3, start=[RNG.standard_normal(500)])


def test_two_variables_with_one_new_value():
    def build(a, b):
        new = a + b
        return [], [], [gd.sum(new)], {a: new, b: new}
    both(build, steps=3, start=[RNG.standard_normal(500), RNG.standard_normal(500)])


def products_behind_the_mark(f):
    return [outs[0].shape for op, outs, *_ in f.program.instrs[f.program.commit:] if op == "matmul"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_weights_are_not_all_there_at_once(dtype):
    sizes, weights = (90, 84, 70, 66), []
    for i, (m, n) in enumerate(itertools.pairwise(sizes)):
        weights.append(np.random.default_rng(i).standard_normal((m, n)).astype(dtype) / 9)
    batch = RNG.standard_normal((5, 90)).astype(dtype)

    def build(*w):
        x = y = gd.input("x", (5, 90), dtype)
        for v in w:
            y = gd.tanh(y @ v)
        loss = gd.sum(y * y)
        return [x], [batch], [loss], {v: v - 0.1 * g for v, g in zip(w, gd.grad(loss, w), strict=True)}
    _, f = both(build, start=weights)
    # the first gradient reads the caller's array, which could be a view of a variable
    assert sorted(products_behind_the_mark(f)) == [(70, 66), (84, 70)]
    itemsize = np.dtype(dtype).itemsize
    assert f.plan.arena_nbytes < itemsize * (90 * 84 + 84 * 70)


def test_a_product_stays_before_the_mark_where_somebody_else_reads_it_or_its_operands_are_larger():
    few, many = RNG.standard_normal((4, 80)), RNG.standard_normal((200, 20))

    def read_twice(w):
        h = gd.constant(few) @ w
        g = gd.tanh(h).T @ gd.sin(h)
        return [], [], [gd.sum(g)], {w: w - 0.1 * g}
    _, f = both(read_twice, start=[np.eye(80)])
    assert not products_behind_the_mark(f)

    def of_variables(w, v):
        return [], [], [gd.sum(v)], {w: w - 0.1 * (v.T @ v), v: v + 1.0}
    values, f = both(of_variables, start=[np.eye(80), np.ones((4, 80))], steps=1)
    assert not products_behind_the_mark(f)
    np.testing.assert_allclose(values[0], np.eye(80) - 0.4)

    def long(w):
        h = gd.constant(many) @ w
        return [], [], [gd.sum(h)], {w: w - 1e-3 * (gd.tanh(h).T @ gd.sin(h))}
    _, f = both(long, start=[np.eye(20)])
    assert not products_behind_the_mark(f)


def test_an_argument_may_be_a_view_of_a_variable():
    x = gd.input("x", (500,))
    a, b = gd.variable(np.arange(500.0), "a"), gd.variable(np.zeros(500), "b")
    f = gd.function([x], x + 0.0, updates={a: a * 2.0 + x, b: b + x * 3.0})
    old = np.arange(500.0)
    np.testing.assert_array_equal(f(a.value), old)
    np.testing.assert_array_equal(a.value, 3 * old)
    np.testing.assert_array_equal(b.value, 3 * old)


def test_an_error_leaves_every_variable_as_it_was():
    i = gd.input("i", (2,), "int64")
    w, m = gd.variable(RNG.standard_normal(600), "w"), gd.variable(np.zeros(600), "m")
    picked = gd.take(w, i, axis=0)
    new = m * 0.9 + gd.cos(w)
    step = gd.function([i], gd.sum(picked), updates={w: w - 0.1 * new, m: new})
    before = np.array(w.value)
    with pytest.raises(OutOfBounds):
        step([0, 600])
    np.testing.assert_array_equal(w.value, before)
    assert not m.value.any()
    step([0, 599])
    assert m.value.all()


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("method", ["Adam", "AdamW", "AMSGrad", "NAdam", "Nesterov", "Adadelta", "RMSprop", "Adagrad", "Momentum"])
def test_optimisers_with_and_without_passes(method, threads):
    paths = []
    for passes in (None, ()):
        w, b = gd.variable(np.linspace(-1, 1, 700, dtype="float32").reshape(70, 10), "w"), gd.variable(np.zeros(10, "float32"), "b")
        x = gd.input("x", ("n", 70), "float32")
        loss = gd.losses.mse(gd.tanh(x @ w + b), gd.zeros((x.shape[0], 10), "float32"))
        opt = getattr(gd.optim, method)()
        step = gd.function([x], loss, updates=opt.updates(loss, [w, b]), passes=passes, threads=threads)
        data = np.random.default_rng(0).standard_normal((16, 70)).astype("float32")
        losses = [float(step(data)) for _ in range(4)]
        paths.append((losses, np.array(w.value), np.array(b.value), opt.state()))
    (la, wa, ba, sa), (lb, wb, bb, sb) = paths
    assert la == lb
    np.testing.assert_array_equal(wa, wb)
    np.testing.assert_array_equal(ba, bb)
    for name in sa:
        np.testing.assert_array_equal(sa[name], sb[name])


@pytest.mark.parametrize("passes", [None, ()])
@pytest.mark.parametrize("n", [3, 70_000])
def test_a_variables_own_array_as_an_argument_is_what_it_was_before_the_call(n, passes):
    """`value` is a live view: what a call reads of it must not be what the call has just written."""
    start = RNG.standard_normal(n)
    for turned in (False, True):
        a, b, c = gd.variable(start), gd.variable(np.zeros(n)), gd.variable(np.ones(2 * n))
        x = gd.input("x", (n,))
        seen = x[::-1] if turned else x
        f = gd.function([x], [gd.exp(x) + a, x * 1.5], updates={a: a + 10, b: seen, c: c + 1}, passes=passes)
        first, second = f(a.value)
        np.testing.assert_array_equal(b.value, start[::-1] if turned else start)
        np.testing.assert_array_equal(second, start * 1.5)
        np.testing.assert_allclose(first, np.exp(start) + start, rtol=1e-12, atol=1e-14)
        f(c.value[1:n + 1])
        np.testing.assert_array_equal(b.value, np.full(n, 2.0))
        with pytest.raises(ShapeError, match="argument x: it is the memory of a variable"):
            f.bind(a.value)
    g = gd.function([x], a + x)                     # nothing is written: the view is read where it lies
    np.testing.assert_array_equal(g.bind(a.value)(), a.value * 2)


TURNS = {"flipped": lambda x: x[::-1], "turned": lambda x: x.T, "swapped": lambda x: gd.swapaxes(x, 0, 1), "rotated": gd.rot90,
         "flat and flipped": lambda x: gd.reshape(gd.reshape(x, (9,))[::-1], (3, 3)), "as it is": lambda x: x,
         "both": lambda x: x.T[::-1], "a part again": lambda x: gd.concatenate([x[1:], x[:1]])}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("how", TURNS)
def test_new_values_that_are_turned_or_flipped(how, dtype):
    """The elementwise work before must not be written in the place of what turns it."""
    turn = TURNS[how]
    start = np.arange(9).reshape(3, 3).astype(dtype), np.arange(9, 18).reshape(3, 3).astype(dtype)

    def build(a, b):
        made = a * 2 + b
        return [], [], [gd.sum(a)], {a: turn(a * 2), b: turn(turn(made + 1))}

    (a, b), _ = both(build, 1, start)
    got = gd.evaluate(turn(gd.constant(start[0] * 2)), {})
    np.testing.assert_array_equal(a, got)
    np.testing.assert_array_equal(b, gd.evaluate(turn(turn(gd.constant(start[0] * 2 + start[1] + 1))), {}))


def test_an_update_by_what_is_read_in_an_empty_slice_only():
    v, x = gd.variable(np.zeros(4)), gd.input("x", (4,))
    c = gd.concatenate([(x * 2 + 1)[4:], x])
    f = gd.function([x], c, updates={v: c})
    np.testing.assert_array_equal(f(np.arange(4.0)), np.arange(4.0))
    np.testing.assert_array_equal(v.value, np.arange(4.0))


SLICES = {
    "one element": (lambda w, s: w.at[3, 4].set(s), 1), "row": (lambda w, s: w.at[2].set(s * w[1]), 1),
    "every other": (lambda w, s: w.at[::2, ::-1].set(w[1::2]), 2),          # read from what is about to change: copied before the mark
    "added": (lambda w, s: w.at[1:3].add(s), 1), "row onto row": (lambda w, s: w.at[0].set(w[5]), 2),
    "one after the other": (lambda w, s: w.at[0].set(s).at[:, 0].set(s + 1).at[0, 0].set(7.0), 3),
    "known places": (lambda w, s: w.at[np.array([1, 1, 4])].add(s), 1), "known places set": (lambda w, s: w.at[np.array([4, 0, 1])].set(s), 1),
}


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("shown", [False, True])
def test_of_a_slice_only_the_slice_is_written(name, shown):
    """The rest of the variable stays where it is; outputs see what was there before."""
    update, moved = SLICES[name]

    def build(w):
        s = gd.input("s")
        return [s], [np.float64(2.5)], [w * 1.0, w[3]] if shown else [], {w: update(w, s)}

    start = RNG.standard_normal((6, 6))
    (value,), f = both(build, start=[start])
    assert not np.array_equal(value, start)
    behind = f.program.instrs[f.program.commit:]
    assert len(behind) == (moved if name == "one after the other" else 1)
    if not name.startswith("known"):
        assert all(np.prod(outs[0].shape) < 36 for _, outs, *_ in behind)
    assert f.program.arena_nbytes < (1 + shown) * 6 * 6 * 8
    checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [4, 50])
def test_elements_put_where_others_of_the_same_array_lie(n, dtype):
    """The array that is written to is also what is written: its first slice must be there by then."""
    def build(w, update):
        s = gd.input("s", (), dtype)
        return [s], [np.dtype(dtype).type(2.0)], [gd.exp(s) * 3], {w: update(w.at[0].set(s))}

    for update in (lambda a: a.at[np.array([1, 3, 0])].set(a[:3]), lambda a: a.at[np.array([1, 3, 0])].add(a[1:4]),
                   lambda a: a.at[np.array([2, 2, 1])].add(a[0]), lambda a: a.at[1:3].set(a[:2]), lambda a: a.at[::2].add(a[::-2][:(n + 1) // 2])):
        both(partial(build, update=update), start=[np.arange(1, n + 1, dtype=dtype)])


def test_slices_of_two_variables_from_each_other():
    def build(a, b):
        return [], [], [], {a: a.at[:2].set(b[2:]), b: b.at[1:3].set(a[:2])}

    both(build, start=[RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))])


def test_a_slice_from_an_array_that_is_the_variable_s_own_memory():
    for passes in (None, ()):
        w = gd.variable(np.arange(6.0), "w")
        x = gd.input("x", (3,))
        f = gd.function([x], [], updates={w: w.at[2:5].set(x)}, passes=passes)
        f(w.value[1:4])
        assert w.value.tolist() == [0, 1, 1, 2, 3, 5]
        checked()


@pytest.mark.parametrize("at", [slice(None), slice(0, 2), [0, 1], np.array([1, 0]), (Ellipsis,)], ids=str)
def test_an_array_that_is_replaced_whole_has_a_gradient_of_zeros(at):
    x, v = gd.input("x", (2, 3)), gd.input("v", (2, 3))
    y = x.at[at].set(v * 2)
    f = gd.function([x, v], [y, *gd.grad(gd.sum(y), [x, v]), gd.jvp(y, [x, v], [x, v])])
    a, b = RNG.standard_normal((2, 2, 3))
    want = a.copy()
    want[at] = b * 2
    for got, right in zip(f(a, b), [want, np.zeros((2, 3)), np.full((2, 3), 2.0), want], strict=True):
        np.testing.assert_array_equal(got, right)
        checked()


def test_places_that_an_input_tells_are_checked_before_anything_is_written():
    w, i = gd.variable(np.zeros(5), "w"), gd.input("i", (2,), "int64")
    f = gd.function([i], [], updates={w: w.at[i].add(1.0)})
    f([1, 1])
    with pytest.raises(OutOfBounds):
        f([0, 9])
    assert w.value.tolist() == [0, 2, 0, 0, 0]
    checked()


def test_a_result_is_made_where_it_is_wanted_instead_of_copied_there():
    x = gd.input("x", (50, 40))
    y = gd.sin(x)
    f = gd.function([x], [y.at[3].set(0.0), gd.cumsum(y, axis=1)], threads=1)
    a = RNG.standard_normal((50, 40))
    want = np.sin(a)
    want[3] = 0
    got = f(a)
    np.testing.assert_allclose(got[0], want, rtol=1e-15)
    np.testing.assert_allclose(got[1], np.cumsum(np.sin(a), axis=1), rtol=1e-12, atol=1e-13)
    g = gd.function([x], y.at[3].set(0.0), threads=1)
    assert [op for op, *_ in g.program.instrs] == ["sin", "copy"] and g.program.arena_nbytes == 0
    h = gd.function([x], [y.at[3].set(0.0), y], threads=1)              # y is wanted too: two arrays
    np.testing.assert_allclose(h(a)[1], np.sin(a), rtol=1e-15)
    np.testing.assert_array_equal(h(a)[0], got[0])
    checked(5)
