"""What is put together is made where it is put: no copies of parts, and the same bits as with them."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.passes.pipeline import NAMES

COPIED = tuple(name for name in NAMES if name != "in_place")


def same(inputs, outputs, *arrays, threads=1):
    """The function, whose results are those of one that copies."""
    f = gd.function(inputs, outputs, threads=threads)
    got, want = f(*arrays), gd.function(inputs, outputs, passes=COPIED, threads=1)(*arrays)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w, strict=True)
        checked(g.size)
    return f


def copies(f):
    return [op for op, *_ in f.program.instrs].count("copy")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("shape", [(1,), (7,), (40, 3), (2, 30, 17), (1, 5000)])
def test_parts_of_a_concatenation_are_made_in_it(shape, dtype):
    x, y = gd.input("x", shape, dtype), gd.input("y", shape, dtype)
    a, b = np.random.default_rng(0).uniform(-2, 2, (2, *shape)).astype(dtype)
    f = same([x, y], [gd.concatenate([gd.sin(x), gd.cos(y), x * y])], a, b)
    assert copies(f) == 0 and f.plan.arena_nbytes == 0, f.program
    np.testing.assert_allclose(f(a, b)[0], np.concatenate([np.sin(a), np.cos(b), a * b]), rtol=2e-3 if dtype == "float16" else 1e-6)
    f = same([x, y], [gd.stack([gd.sin(x), gd.stack([gd.cos(y), x * y])[1], gd.sort(x)])], a, b)
    f = same([x, y], [gd.stack([gd.stack([gd.sin(x), gd.cos(y)]), gd.stack([x * y, gd.exp(y)])])], a, b)          # parts of parts
    assert copies(f) == 0 and f.plan.arena_nbytes <= x.size * x.dtype.itemsize + 64, f.program


def test_what_is_read_elsewhere_too_is_read_there():
    x = gd.input("x", (50, 4))
    a = np.random.default_rng(1).standard_normal((50, 4))
    s, t = gd.sin(x), gd.matmul(gd.cos(x).T, x)
    c = gd.concatenate([s, t])
    assert copies(same([x], [c, gd.exp(s) + gd.sum(c), t * 2.0, gd.cumsum(s, 0)], a)) == 0
    same([x], [c, s, t], a)                                      # two places: one of them is a copy
    same([x], [gd.concatenate([s, s]), gd.concatenate([s[::-1], s.reshape(100, 2).reshape(50, 4)])], a)
    same([x], [c.at[:20].add(1.0), s * 3.0, c], a)               # the array is written over, or a copy of it
    same([x], [c.at[:20].set(s[:20] * 2.0), s * 3.0], a)
    same([x], [gd.concatenate([gd.sum(c) * s, t]), c], a)        # read before it is whole
    same([x], [gd.pad(s, ((3, 2), (0, 0)), constant_values=-1), gd.pad(t, ((0, 1), (0, 0)))], a)
    same([x], [gd.pad(gd.sin(x[0, :3]), (1, 1)), gd.pad(gd.sum(x), (0, 3)) if x.ndim == 0 else gd.stack([gd.sum(x), gd.max(x)])], a)


def test_gradients_of_slices_are_made_in_the_whole():
    x = gd.input("x", (1000,))
    a = np.linspace(-2, 2, 1000)
    y = gd.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
    f = same([x], [y, gd.grad(y, x)], a)
    assert len(f.program.instrs) <= 3, f.program
    d, e = a[1:] - a[:-1] ** 2, 1 - a[:-1]
    want = np.zeros(1000)
    want[1:] += 200 * d
    want[:-1] += -400 * d * a[:-1] - 2 * e
    np.testing.assert_allclose(f(a)[1], want, rtol=1e-13)
    checked(want.size)
    x = gd.input("x", (20, 30))
    u = gd.sin(x[1:] - x[:-1]) * 0.5
    y = gd.sum(u[:, 1:] * u[:, :-1]) + gd.sum(gd.abs(x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]))
    same([x], [y, gd.grad(y, x)], np.random.default_rng(2).standard_normal((20, 30)))


def test_a_variable_keeps_its_value_when_a_part_of_the_new_one_fails():
    w = gd.variable(np.arange(6.0), "w")
    x, i = gd.input("x", (3,)), gd.input("i", (3,), "int64")
    f = gd.function([x, i], gd.sum(w), updates={w: gd.concatenate([gd.exp(x), gd.take(x, i)])})
    with pytest.raises(IndexError):
        f(np.ones(3), np.array([0, 1, 3]))
    np.testing.assert_array_equal(w.value, np.arange(6.0))
    f(np.zeros(3), np.array([0, 1, 2]))
    np.testing.assert_array_equal(w.value, [1, 1, 1, 0, 0, 0])
    checked(12)


def test_many_parts_compile_in_proportion():
    """A thousand rows put together, and as many that overlap: places are compared in a time that grows as they do."""
    x = gd.input("x", (1000, 3))
    a = np.random.default_rng(3).standard_normal((1000, 3))
    f = same([x], [gd.stack([gd.sin(x[i]) * i for i in range(1000)])], a)
    assert copies(f) == 0
    np.testing.assert_allclose(f(a)[0], np.sin(a) * np.arange(1000.0)[:, None], rtol=1e-14)


@pytest.mark.parametrize("seed", range(200))
def test_random_programs_have_the_same_bits(seed):
    """Concatenations, pads and slices of one another, some of them written to, some results."""
    random = np.random.default_rng(seed)
    dtype = ("float64", "float32")[seed % 2]
    x = gd.input("x", (6, 4), dtype)
    pool = [x, gd.sin(x), x * 2.0]

    def one():
        return pool[random.integers(len(pool))]

    def rows(v, n):
        missing = n - v.shape[0]
        before = random.integers(missing + 1) if missing > 0 else 0
        return v[:n] if missing <= 0 else gd.pad(v, ((before, missing - before), (0, 0)))

    for _ in range(14):
        kind = random.integers(7)
        v = one()
        if kind == 0:
            v = gd.concatenate([v, one(), gd.exp(-gd.abs(one()))])
        elif kind == 1:
            v = gd.pad(v * 1.5, ((random.integers(3), random.integers(3)), (0, 0)), constant_values=float(random.integers(2)))
        elif kind == 2:
            v = rows(v, 3).at[:2].add(rows(one(), 2))
        elif kind == 3:
            v = rows(v, 5).at[random.integers(3):][:2].set(rows(one(), 2)) if random.integers(2) else gd.flip(v, 0) + 1.0
        elif kind == 4:
            v = v[random.integers(v.shape[0]):] * 0.5
        elif kind == 5:
            v = gd.matmul(v, np.float32(0.25) * rows(one(), 4) if dtype == "float32" else 0.25 * rows(one(), 4))
        else:
            v = gd.tanh(rows(v, 5)) * rows(one(), 5)
        pool.append(rows(v, 12) if v.shape[0] > 12 else v)
    outputs = [pool[k] for k in random.choice(np.arange(3, len(pool)), 4, replace=False)]
    y = gd.sum(outputs[0] * 1.0) + gd.sum(gd.sin(outputs[1]))
    same([x], [*outputs, gd.grad(y, x, unconnected="zero")], random.uniform(-1, 1, (6, 4)).astype(dtype), threads=1 + seed % 2)
