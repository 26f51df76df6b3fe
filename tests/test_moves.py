"""Copies that have a loop of their own, and operands that an operation reads transposed or backwards: NumPy's bits, of every dtype,
around the sizes where loops change, for one thread and two."""
import itertools

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
import graphdiff.errors

DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]
NUMBERS = DTYPES[2:]


def draw(*shape, dtype, seed=0):
    """Any bits at all, so that what is moved is seen to be moved; of bool the two that there are."""
    random = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return random.random(shape) < 0.5
    size = np.dtype(dtype).itemsize
    return random.integers(0, 256, (*shape, size), "uint8").view(dtype).reshape(shape)


def small(*shape, dtype, seed=0):
    """Whole numbers whose sums and products are exact in every dtype."""
    return np.random.default_rng([seed, *shape]).integers(0, 8, shape).astype(dtype)


def check(build, *arrays, same=lambda a, b: a.tobytes() == b.tobytes()):
    """The listed outputs of `build` have NumPy's bits."""
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    want = build(np, *arrays)
    for threads in (1, 2):
        got = gd.function(nodes, build(gd, *nodes), threads=threads)(*arrays)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype and same(a, np.ascontiguousarray(b)), (threads, a.shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nbytes", [8, 64, 120, 128, 136, 200, 1000, 8192, 8200])
def test_rows_repeated(nbytes, dtype):
    n = nbytes // np.dtype(dtype).itemsize
    for shape, times in (((5, 7, n), 2), ((2, 3, n), 5), ((1, 9, n + 1), 3), ((3, 1, n), 4)):
        x = draw(*shape, dtype=dtype)
        check(lambda m, x, r=times: [m.repeat(x, r, axis=0), m.repeat(x, r, axis=1), m.tile(x, (r, 2, 1)), m.tile(x, (1, r, 2)),
                                     m.repeat(m.flip(x, (0, 1)), r, axis=1), m.repeat(m.swapaxes(x, 0, 1), r, axis=1),
                                     m.concatenate([m.repeat(x, r, axis=1), x], axis=1)], x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_repeated_by_many(dtype):
    """More copies of a row than a block holds; and rows in so many items that two threads share them."""
    check(lambda m, x: [m.repeat(x, 700, axis=1)], draw(3, 2, 300, dtype=dtype))
    check(lambda m, x: [m.repeat(x, 3, axis=1), m.repeat(x[:, ::-1], 2, axis=1)], draw(40, 100, 150, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("times", [2, 3, 4, 5])
def test_elements_repeated(times, dtype):
    for n in (1, 2, 7, 15, 16, 17, 63, 64, 65, 130, 50_000):
        x = draw(n, dtype=dtype)
        check(lambda m, x: [m.repeat(x, times), m.repeat(x[::-1], times)], x)
    check(lambda m, x: [m.repeat(x, times, axis=1), m.repeat(m.swapaxes(x, 0, 1), times, axis=1)], draw(33, 21, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("times", [5, 6, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 100, 513])
def test_elements_repeated_often(times, dtype):
    """By registers that reach into the next element's place, up to the last rows, which have no room for that."""
    for n in (1, 2, 3, 5, 31, 200):
        x = draw(n, 3, dtype=dtype)
        check(lambda m, x: [m.repeat(x, times, axis=1), m.repeat(x[::-1, ::-1], times, axis=1), m.repeat(x[:, 1], times),
                            m.concatenate([m.repeat(x, times, axis=1), x], axis=1), m.repeat(x.T, times, axis=-1)], x)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("n", [1, 3, 17, 127, 128, 129, 255, 1000, 1031, 20_011])
def test_operands_read_backwards(n, dtype):
    x, y = small(n, dtype=dtype), small(n, dtype=dtype, seed=1)
    check(lambda m, x, y: [x[::-1] - y, x - y[::-1], x[::-1] - y[::-1], m.maximum(x[::-1], y), x[::-1] * x, x[::-1] + y[:1],
                           m.exp(x[::-1] * 0) + y[::-1]], x, y)
    square, other = small(9, n, dtype=dtype), small(9, n, dtype=dtype, seed=1)
    check(lambda m, x, y: [m.flip(x, 1) - y, x - m.flip(y), m.flip(x, 0) - m.flip(y, 1), x[:, ::-1] + y[:1, ::-1]], square, other)


TURNED = [(2, 130), (31, 129), (32, 512), (33, 513), (64, 300), (65, 1025), (100, 1100), (600, 140), (1030, 200)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n", TURNED)
def test_operands_read_transposed(m, n, dtype):
    """Whole tiles, tiles that stick out, one operation and several, outputs that are slices."""
    x, y = small(n, m, dtype=dtype), small(m, n, dtype=dtype, seed=1)
    check(lambda np_or_gd, x, y: [np_or_gd.maximum(x.T, y), np_or_gd.equal(y, x.T), np_or_gd.where(x.T > y, y, x.T), np_or_gd.maximum(x.T, y[:1])], x, y)
    if dtype not in ("bool", "uint8"):
        check(lambda m, x, y: [x.T + y, y - x.T, x.T - x.T[:, ::-1], x.T * 3, (x.T + y) * y - x.T, x.T[1:, 1:] - y[1:, 1:],
                               m.concatenate([x.T + y, y], axis=1)], x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_axes_in_any_order(dtype):
    x = small(35, 40, 150, dtype=dtype)
    for order in itertools.permutations(range(3)):
        y = small(*[x.shape[a] for a in order], dtype=dtype, seed=1)
        check(lambda m, x, y, order=order: [m.transpose(x, order), m.maximum(m.transpose(x, order), y), m.transpose(m.flip(x, 1), order)], x, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (16, 16), (17, 33), (129, 67), (31, 1000), (1000, 31), (515, 70), (70, 515), (1030, 130), (4, 3000),
                                   (7, 9, 11), (20, 30, 40), (100, 3, 100), (70, 5, 600), (5, 6, 7, 40), (8, 16, 32, 4), (7, 6, 5, 4, 3), (40, 9, 3),
                                   (9, 700, 2), (8, 3, 7), (300, 5, 2), (16, 3, 5, 2)])
def test_axes_turned_round(shape, dtype):
    """Blocks of tiles, one after the other and with axes before them, the last one so short that it is joined with the one before; the same with
    gaps between all elements."""
    x = draw(*shape, dtype=dtype)
    apart = np.zeros([2 * n for n in shape], dtype)[tuple([slice(None, None, 2)] * len(shape))]
    apart[...] = x
    for y in (x, apart):
        check(lambda m, y: [m.transpose(y)], y)
        check(lambda m, y: [m.swapaxes(y, 0, 1), m.flip(m.transpose(y), 0)], y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n", [(64, 64), (61, 128), (128, 130), (200, 320), (520, 256), (256, 1000)])
def test_rows_turned_round_that_all_begin_amid_a_line(m, n, dtype):
    """Whole lines of memory from row to row, of the operand and of the result: the first tiles overlap the second."""
    wide = draw(m, 1024, dtype=dtype)
    for first in (0, 1, 4, 9, 24):
        check(lambda a, x, first=first: [a.transpose(x[:, first:first + n])], wide)
        side = draw(n, -(m + first) % 64 + first, dtype=dtype)
        check(lambda a, x, y: [a.concatenate([y, a.transpose(x[:, :n])], axis=1)], wide, side)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_operand_transposed_of_a_result_past_the_caches(dtype):
    n = 1500 if dtype == "float64" else 2100
    x = small(n, n, dtype=dtype)
    check(lambda m, x: [x.T - x * 2, x.T - x], x)


def test_a_variable_less_another_transposed():
    v = gd.variable(small(70, 600, dtype="float64"), name="v")
    w = small(600, 70, dtype="float64", seed=1)
    x = gd.input("x", w.shape)
    f = gd.function([x], v + 0, updates={v: v - x.T})
    before = np.asarray(f(w))
    assert np.array_equal(np.asarray(f(w)), before - w.T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 9, 15, 16, 17])
def test_elements_put_apart(count, dtype):
    """Stacked along the last axis, rows of every length modulo a register: elements go `count` apart and leave alone what lies between."""
    for n in (1, 15, 63, 64, 65, 71, 72, 79, 80, 81, 127, 1000):
        arrays = [draw(2, n, dtype=dtype, seed=k) for k in range(count)]
        check(lambda m, *xs: [m.stack(xs, axis=-1), m.stack(xs[::-1], axis=2), m.stack([m.flip(x, 1) for x in xs], axis=-1)], *arrays)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_groups_of_few_elements_taken_apart(count, dtype):
    """The colours of an image become planes; groups that lie apart, in either direction, of every number modulo a register."""
    for n in (1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 100):
        x, y = draw(n, 5, count, dtype=dtype), draw(2 * n, 3, count + 2, dtype=dtype)
        check(lambda m, x, y, n=n: [m.transpose(x, (2, 1, 0)), m.transpose(m.flip(x, 0), (2, 1, 0)), m.transpose(m.flip(x, 2), (1, 2, 0)),
                                    m.transpose(y[::2, :, 1:-1], (2, 1, 0)), m.transpose(y[:, :, :count], (2, 0, 1))], x, y)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "bool"])
@pytest.mark.parametrize(("shape", "widths"), [((2001,), ((1, 0),)), ((2001,), ((0, 3),)), ((2001,), ((2, 1),)), ((60, 70), ((0, 0), (1, 2))),
                                               ((60, 70), ((3, 1), (0, 0))), ((60, 70), ((1, 1), (2, 2))), ((7, 60, 30), ((1, 2), (0, 1), (1, 0))),
                                               ((3, 4), ((1, 1), (1, 1))), ((0, 500), ((1, 1), (1, 1))), ((1, 5000), ((0, 0), (1, 0)))])
def test_what_is_put_round_an_array(shape, widths, dtype):
    """Only the rim of a large block is filled; pieces of it that would stay as they were, of an arena that held other things, show."""
    r = np.random.default_rng(len(shape))
    a = (r.standard_normal(shape) * 9).astype(dtype)
    x = gd.input("x", shape, dtype)
    used = gd.function([x], [gd.pad(x * x if dtype != "bool" else ~x, widths), gd.pad(x, widths, constant_values=1),
                             gd.pad(gd.flip(x), widths)[tuple(slice(None, None, -1) for _ in shape)]])
    for _ in range(2):
        got = used(a)
        b = a * a if dtype != "bool" else ~a
        for y, want in zip(got, (np.pad(b, widths), np.pad(a, widths, constant_values=1), np.flip(np.pad(np.flip(a), widths))), strict=True):
            assert y.dtype == want.dtype and y.tobytes() == want.tobytes()
    if dtype.startswith("f"):
        g = gd.input("g", tuple(n - lo - hi for n, (lo, hi) in zip(shape, widths, strict=True))) if min(shape) > 8 else None
        if g is not None:                   # the cotangent of a slice
            part = gd.grad(x[tuple(slice(lo, n - hi) for n, (lo, hi) in zip(shape, widths, strict=True))], x, cotangent=g.astype(dtype))
            c = r.standard_normal(g.shape)
            assert gd.function([g], part)(c).tobytes() == np.pad(c.astype(dtype), widths).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 13, 41])
def test_short_rows_repeated_often(n, dtype):
    """In two steps where the number has a small factor, else in one."""
    x = draw(17, n, dtype=dtype)
    check(lambda m, x: [m.tile(x, (a, r)) for a in (1, 2) for r in (11, 12, 13, 14, 15, 48, 50, 1001)]
          + [m.tile(x.T, (1, 24)), m.tile(x[:, None], (30, 1)), m.tile(x[None], (24, 1, 1)), m.tile(x[:, :0], (1, 24)), m.tile(x, (0, 24))], x)
    named = gd.input("x", ("rows", n), dtype)
    assert gd.function([named], gd.tile(named, (1, 24)))(x).tobytes() == np.tile(x, (1, 24)).tobytes()
    assert gd.function([named], gd.tile(named, (1, named.shape[0])))(x).tobytes() == np.tile(x, (1, 17)).tobytes()


# -- several indices, into arrays whose elements lie apart -----------------------------------------------------------

TAKEN = {
    "axis between": ((60, 9, 50), lambda m, x, i, j: x[i, :, j]),
    "axes before and between": ((9, 30, 8, 20), lambda m, x, i, j: x[:4, i % 30, :, j % 20]),
    "two axes between": ((30, 5, 6, 40), lambda m, x, i, j: x[i % 30, :, ::-1, j % 40]),
    "rows": ((30, 5, 40, 7), lambda m, x, i, j: x[i % 30, :, j % 40]),
    "outer": ((60, 9, 50), lambda m, x, i, j: x[i[:, None], :, j]),
    "transposed": ((150, 160), lambda m, x, i, j: x.T[i, j]),
    "transposed, negative": ((150, 160), lambda m, x, i, j: x.T[i - 50, -1 - j]),
    "every second": ((300, 160), lambda m, x, i, j: x[::2, ::-1][i, j]),
    "backwards": ((150, 160), lambda m, x, i, j: x[::-1][i, j]),
    "three": ((40, 30, 50), lambda m, x, i, j: m.transpose(x, (2, 0, 1))[i, j % 40, i % 30]),
    "new axis": ((60, 9, 50), lambda m, x, i, j: x[:, None][i, 0, :, j]),
    "repeated rows": ((60, 50), lambda m, x, i, j: m.broadcast_to(x[:, None], (60, 30, 50))[i, :, j]),
    "one, of turned axes": ((30, 40, 20), lambda m, x, i, j: m.transpose(x, (1, 0, 2))[..., i % 20][:, :, :2]),
    "flat, of a matrix turned": ((150, 160), lambda m, x, i, j: m.take(m.reshape(x.T, (-1,)), i * 300 - j)),
    "numbers": ((60, 9, 50), lambda m, x, i, j: x[np.array([3, -1, 59]), :, np.array([0, 2, -50])]),
    "numbers, transposed": ((150, 160), lambda m, x, i, j: x.T[[3, -1, 59], [0, 2, -50]]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TAKEN)
def test_several_indices_read_what_they_take(name, dtype):
    """No copy of the array is made: what a call needs beside its operands and results is small."""
    shape, build = TAKEN[name]
    x = draw(*shape, dtype=dtype)
    i, j = np.array([3, 49, 0, 3]), np.array([7, 0, 49, 7])
    check(lambda m, *xs: [build(m, *xs)], x, i, j)
    nodes = [gd.input("x", shape, dtype), gd.input("i", i.shape, "int64"), gd.input("j", j.shape, "int64")]
    f = gd.function(nodes, build(gd, *nodes))
    f(x, i, j)
    assert f.plan.arena_nbytes < x.nbytes / 2 or name == "one, of turned axes"
    named = gd.input("x", tuple(f"n{k}" for k in range(x.ndim)) if name in ("axis between", "outer", "transposed") else shape, dtype)
    g = gd.function([named, *nodes[1:]], build(gd, named, *nodes[1:]))
    assert g(x, i, j).tobytes() == f(x, i, j).tobytes()
    assert g.plan.arena_nbytes == f.plan.arena_nbytes


@pytest.mark.parametrize("name", TAKEN)
def test_several_indices_have_derivatives_of_every_order(name):
    shape, build = TAKEN[name]
    x, v = small(*shape, dtype="float64"), small(*shape, dtype="float64", seed=1)
    i, j = np.array([3, 49, 0, 3]), np.array([7, 0, 49, 7])
    where = build(np, np.arange(x.size).reshape(shape), i, j)        # which elements are taken
    c = small(*where.shape, dtype="float64", seed=2)
    a, b, d = gd.input("a", shape), gd.input("b", shape), gd.input("d", where.shape)
    h, k = gd.input("h", i.shape, "int64"), gd.input("k", j.shape, "int64")
    y = build(gd, a, h, k)
    first = gd.grad(y * y * y, a, cotangent=d)
    outs = [first, gd.jvp(y * y, a, b), gd.grad(gd.sum(first * b), a), gd.jvp(first, a, b)]

    def added(values):
        out = np.zeros(x.size)
        np.add.at(out, where.reshape(-1), values.reshape(-1))
        return out.reshape(shape)

    z, t = x.reshape(-1)[where], v.reshape(-1)[where]
    got = gd.function([a, b, d, h, k], outs)(x, v, c, i, j)
    for have, want in zip(got, (added(c * 3 * z * z), 2 * z * t, added(c * 6 * z * t), added(c * 6 * z * t)), strict=True):
        assert np.array_equal(have, want)


PUT = {
    "axis between": ((60, 9, 50), lambda i, j: (i, slice(None), j)),
    "axis before too": ((3, 60, 9, 50), lambda i, j: (slice(None), i, slice(None), j)),
    "of a slice": ((60, 18, 50), lambda i, j: (i, slice(None, None, -2), j)),
    "outer": ((60, 9, 50), lambda i, j: (i[:2, None], slice(None), j)),
    "numbers": ((60, 9, 50), lambda i, j: (np.array([3, -1, 59]), slice(None), np.array([0, 2, -50]))),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PUT)
def test_few_elements_put_where_others_lie_between(name, dtype):
    """x is copied once, as NumPy does, and not turned: of what a call needs beside its result little is as large as x."""
    shape, at = PUT[name]
    x, i, j = small(*shape, dtype=dtype), np.array([3, -11, 0, 3]), np.array([7, 0, 49, 7])
    v = small(*x[at(i, j)].shape, dtype=dtype, seed=1)
    nodes = [gd.input("x", shape, dtype), gd.input("v", v.shape, dtype), gd.input("i", i.shape, "int64"), gd.input("j", j.shape, "int64")]
    f = gd.function(nodes, nodes[0].at[at(*nodes[2:])].set(nodes[1]))
    want = x.copy()
    want[at(i, j)] = v
    assert f(x, v, i, j).tobytes() == want.tobytes()
    assert f.plan.arena_nbytes < x.nbytes / 2 or name == "of a slice"
    if dtype != "bool":
        want = x.copy()
        np.add.at(want, at(i, j), v)
        assert gd.function(nodes, nodes[0].at[at(*nodes[2:])].add(nodes[1]))(x, v, i, j).tobytes() == want.tobytes()


# -- blocks side by side ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (1, 9), (5, 6), (64, 100), (3, 4, 5), (2, 3, 40, 7)])
def test_padded_by_what_is_there(shape, dtype):
    """By nothing, by less than there is, and by several times as much; more blocks than one op takes; axes turned first."""
    x = draw(*shape, dtype=dtype)
    widths = [[(0, 3)] * x.ndim, [(2 * n, 1) for n in shape], [(1, 0)] + [(0, 0)] * (x.ndim - 1), [(33, 34)] + [(1, 2)] * (x.ndim - 1)]
    check(lambda m, x: [m.pad(y, w if y is x else w[::-1], mode=mode) for mode in ("edge", "reflect", "symmetric", "wrap")
                        for w in widths for y in (x, m.transpose(x))], x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (1, 9), (0, 3), (64, 100), (3, 4, 5), (2, 3, 40, 7)])
def test_rolled_over_several_axes(shape, dtype):
    x, n = draw(*shape, dtype=dtype), len(shape)
    check(lambda m, x: [m.roll(x, tuple(range(1, n + 1)), tuple(range(n))), m.roll(x, -1, tuple(range(n))), m.roll(x, (3, 4), (0, 0)),
                        m.roll(m.transpose(x), (5, -2), (0, -1)), m.roll(x, 11), m.roll(x[::-1], 2, 0)], x)
    named = gd.input("x", tuple(f"n{k}" for k in range(n)), dtype)
    rolled = gd.roll(named, tuple(range(1, n + 1)), tuple(range(n)))
    assert rolled.shape == named.shape
    assert np.array_equal(gd.function([named], rolled)(x).view("uint8"), np.roll(x, tuple(range(1, n + 1)), tuple(range(n))).view("uint8"))


def test_one_result_is_written_once():
    """However many axes are padded or rolled, and in the derivative of a roll, which is one: no array in between."""
    x, c = gd.input("x", (20, 30, 40)), gd.input("c", (20, 30, 40))
    y = gd.roll(x, (1, 2, 3), (0, 1, 2))
    for f in (gd.function([x], y), gd.function([x], gd.pad(x, 2, mode="reflect")), gd.function([x, c], gd.grad(y, x, cotangent=c))):
        f(*[np.ones((20, 30, 40)) for _ in f.inputs])
        assert f.plan.arena_nbytes == 0


# -- Python numbers put into arrays of other kinds -------------------------------------------------------------------

def test_a_number_is_put_where_the_dtype_holds_it():
    q, k = gd.input("q", (4,), "bool"), gd.input("k", (4,), "uint8")
    a, b = np.array([True, False, False, True]), np.array([1, 2, 3, 250], "uint8")
    for value in (1, 0, True, 1.0, 0.0):
        for at in (2, slice(1, 3), [0, 3, 0]):
            got = gd.function([q, k], [q.at[at].set(value), k.at[at].set(value)])(a, b)
            want = a.copy(), b.copy()
            want[0][at], want[1][at] = value, value
            assert all(g.dtype == w.dtype and np.array_equal(g, w) for g, w in zip(got, want, strict=True))
    assert gd.evaluate(k.at[1].set(255.0), {k: b})[1] == 255
    for x, value in ((q, 2), (q, -1), (q, 0.5), (k, 1.5), (k, 256.0), (k, float("nan")), (k, float("inf")), (q, np.int64(1))):
        with pytest.raises(gd.errors.DTypeError, match="cannot put"):
            x.at[1].set(value)
    with pytest.raises(gd.errors.DTypeError, match="cannot put"):
        q.at[1].add(1)


@pytest.mark.parametrize("name", ["axis between", "axes before and between", "outer", "transposed", "three", "numbers", "numbers, transposed"])
def test_what_few_elements_give_back_is_put_where_they_came_from(name):
    """Their gradient is one array of zeros with it added, not one whose axes are turned back."""
    shape, build = TAKEN[name]
    x, i, j = gd.input("x", shape), gd.input("i", (4,), "int64"), gd.input("j", (4,), "int64")
    f = gd.function([x, i, j], gd.grad(gd.sum(build(gd, x, i, j)), x))
    at = np.array([3, 49, 0, 3]), np.array([7, 0, 49, 7])
    want = np.zeros(np.prod(shape))
    np.add.at(want, build(np, np.arange(want.size).reshape(shape), *at).reshape(-1), 1.0)
    assert np.array_equal(f(np.ones(shape), *at), want.reshape(shape))
    assert f.plan.arena_nbytes < want.nbytes / 2 or name == "axes before and between"


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_columns_taken(dtype):
    x, i = draw(70, 40, dtype=dtype), np.random.default_rng(1).integers(-40, 40, 40)
    for count in (1, 2, 3, 4, 5, 31, 32, 33, 40):
        check(lambda m, x, i: [x[:, i], m.take(x, i, axis=1), x[:, ::-1][:, i], x.T[i], x[::2, i].T, x[3:, 1:39][:, m.maximum(i % 38, 0)]], x, i[:count])


@pytest.mark.parametrize("dtype", DTYPES)
def test_positions_outside_are_moved_inside(dtype):
    x, random = draw(37, 21, dtype=dtype), np.random.default_rng(2)
    for count in (1, 3, 600):
        for far in (40, 100, 2000):
            i = random.integers(-far, far, count)
            check(lambda m, x, i: [m.take(x, i, axis=a, mode=mode) for a in (0, 1, None) for mode in ("clip", "wrap")], x, i)
    i = random.integers(-2**62, 2**62, 40)                    # NumPy would count on for ever
    n, k = gd.input("x", x.shape, dtype), gd.input("i", i.shape, "int64")
    assert gd.function([n, k], gd.take(n, k, axis=0, mode="wrap"))(x, i).tobytes() == x[i % 37].tobytes()
    i = np.array([[0, 36, 37], [-1, -37, -38]])
    check(lambda m, x, i: [m.take(x, i, axis=0, mode="clip"), m.take(x, i, axis=0, mode="wrap"), m.take(x, m.clip(i, 0, 36), axis=0)], x, i)


def test_positions_that_are_clipped_otherwise_are_still_checked():
    x, i = np.arange(5.0), np.array([11, -9])
    n, k = gd.input("x", x.shape), gd.input("i", i.shape, "int64")
    for at in (gd.maximum(gd.minimum(k, 5), 0), gd.maximum(gd.minimum(k, 4), -6), k % 6):
        with pytest.raises(gd.errors.OutOfBounds):
            gd.function([n, k], gd.take(n, at))(x, i)


@pytest.mark.parametrize("dtype", DTYPES)
def test_axes_indexed_that_do_not_merge(dtype):
    """Read where they lie if that is less than a copy; positions from either end, arrays of any shape, known when built or not."""
    x, random = draw(6, 7, 8, dtype=dtype), np.random.default_rng(3)
    for count in (1, 2, 5, 300):
        i, j, k = (random.integers(-n, n, count) for n in (6, 7, 8))
        check(lambda m, x, i, j, k: [x[i, :, k], x[:, j, k], x.T[k, :, i], x[:, ::-1, :][i, :, k], x[::2][:, j, k], x.T[k, j],
                                     x[1:5, :, 2:][i % 4, :, k % 6], m.swapaxes(x, 0, 1)[j, i], x[i, 2:, k][:, ::-1], x[i[:, None], :, k]], x, i, j, k)
        check(lambda m, x, i=i, k=k: [x[i, :, k], x.T[k, :, i], m.swapaxes(x, 1, 2)[i, k]], x)


def test_axes_indexed_that_do_not_merge_are_checked_one_by_one():
    x, i, j = gd.input("x", (50, 60, 70)), gd.input("i", (2,), "int64"), gd.input("j", (2,), "int64")
    f = gd.function([x, i, j], x[i, :, j])
    a = np.arange(210_000.0).reshape(50, 60, 70)
    np.testing.assert_array_equal(f(a, [-50, 49], [-70, 69]), a[[0, 49], :, [0, 69]])
    for bad in (([0, 50], [0, 0]), ([-51, 0], [0, 0]), ([0, 0], [70, 0]), ([0, 0], [0, -71])):
        with pytest.raises(gd.errors.OutOfBounds):
            f(a, *bad)
    assert "copy" not in str(f.program)
    g = gd.function([x, i, j], gd.grad(gd.sum(x[i, :, j] ** 2), x))(a, [3, -1], [5, 5])
    want = np.zeros_like(a)
    want[[3, 49], :, [5, 5]] = 2 * a[[3, 49], :, [5, 5]]
    np.testing.assert_array_equal(g, want)


def hot(i, n, dtype):
    return (np.asarray(i)[..., None] == np.arange(n)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_hot_writes_zeros_and_ones(dtype):
    random = np.random.default_rng(4)
    for n in (0, 1, 2, 10, 257):
        for shape in ((), (1,), (3, 5), (0,), (700,)):
            for kind in ("int64", "int32", "uint8"):
                i = random.integers(0 if kind == "uint8" else -2, n + 3, shape).astype(kind)
                node = gd.input("i", shape, kind)
                for threads in (1, 2):
                    y, late = gd.function([node], [gd.one_hot(node, n, dtype), gd.one_hot(node, n, dtype).T.astype("float64")], threads=threads)(i)
                    assert y.dtype == dtype and y.tobytes() == hot(i, n, dtype).tobytes()
                    np.testing.assert_array_equal(late, hot(i, n, dtype).T)
    i = gd.input("i", (40,), "int64")
    assert "one_hot" in str(gd.function([i], gd.one_hot(i, 50, dtype)).program)


def test_one_hot_that_is_part_of_more_and_comparisons_that_are_not_one():
    i, x = np.arange(-1, 9), np.arange(50.0).reshape(10, 5)
    n, m = gd.input("i", i.shape, "int64"), gd.input("x", x.shape)
    h = gd.one_hot(n, 5, "float64")
    outs = [h * m, gd.sum(h * m, axis=1), gd.equal(n[:, None], np.array([0, 1, 2, 4, 3])), gd.equal(n[:, None], np.arange(1, 6)), h, gd.where(h > 0, m, 0),
            gd.equal(np.arange(5), n[::-1, None]), gd.equal(n, np.arange(10)), gd.one_hot(n[::2], 5, "bool")]
    w = hot(i, 5, "float64")
    want = [w * x, (w * x).sum(1), i[:, None] == np.array([0, 1, 2, 4, 3]), i[:, None] == np.arange(1, 6), w, np.where(w > 0, x, 0),
            np.arange(5) == i[::-1, None], i == np.arange(10), hot(i[::2], 5, "bool")]
    for got, right in zip(gd.function([n, m], outs)(i, x), want, strict=True):
        assert got.dtype == right.dtype and np.array_equal(got, right)
    for out, right in zip(outs, want, strict=True):
        assert np.array_equal(gd.function([n, m], out)(i, x), right)
    np.testing.assert_array_equal(gd.function([n, m], gd.grad(gd.sum(h * m), m))(i, x), w)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_the_median_of_one_element(dtype):
    x = draw(30, 1, 4, dtype=dtype) if dtype[0] == "f" else small(30, 1, 4, dtype=dtype)
    node = gd.input("x", x.shape, dtype)
    for y in gd.function([node], [gd.median(node, axis=1), gd.median(gd.swapaxes(node, 0, 2)[:, 0], axis=())])(x):
        assert y.dtype == np.median(np.ones(1, dtype), axis=0).dtype
    y = gd.function([node], gd.median(node, axis=1))(x)
    np.testing.assert_array_equal(y, x[:, 0])
    if dtype[0] == "f":
        np.testing.assert_array_equal(gd.function([node], gd.grad(gd.sum(gd.median(node, axis=1)), node))(np.zeros_like(x)), np.ones_like(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_of_what_lies_apart(dtype):
    """Of one operation, gathered to where the result is; conversions piece by piece, and rows from the first whole cache line on."""
    for shape in ((3, 1030), (40, 300), (9, 2100), (130, 70), (1, 5000), (300, 7)):
        x, y = small(*shape, dtype=dtype), small(*shape, dtype=dtype, seed=1)
        for view in (lambda x: x[:, ::2], lambda x: x[:, ::-1], lambda x: x[1:, 1:], lambda x: x[:, ::3][::2], lambda x: x[:, 1:]):
            check(lambda m, x, y, view=view: [view(x).astype(to) for to in DTYPES] + [
                m.abs(view(x)) if dtype != "bool" else m.logical_not(view(x)), m.maximum(view(x), view(y)), m.maximum(view(x), view(y)[:1])], x, y)
    if dtype[0] == "f":
        for n in (300, 1030):
            x = np.abs(small(40, n, dtype=dtype)) + 1
            check(lambda m, x: [m.sqrt(x[:, ::2]), -x[:, ::3], x[:, ::2] * x[:, :1]], x)


def test_repeats_and_kronecker_products_of_many_axes():
    """Operands and results have at most 32 axes, whatever is made on the way."""
    v = np.arange(6.0).reshape((1,) * 18 + (2, 3))
    x = gd.input("x", v.shape)
    for reps in (2, (3, 1), (2,) + (1,) * 19, (1,) * 20 + (2,)):
        np.testing.assert_array_equal(gd.function([x], gd.tile(x, reps))(v), np.tile(v, reps))
    np.testing.assert_array_equal(gd.function([x], gd.kron(x, x))(v), np.kron(v, v))
    slope = gd.function([x], gd.grad(gd.sum(gd.kron(x, x)), x))(v)
    np.testing.assert_allclose(slope, np.full(v.shape, 2 * v.sum()))
    checked(6)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (4, 4, 0)])
def test_index_arrays_of_several_axes_into_arrays_without_elements(shape):
    x = gd.input("x", shape)
    i = np.array([[0, 1], [1, 0]])
    node = gd.input("i", i.shape, "int64")
    axis = 1 if shape[0] == 0 else 0
    empty = np.ones(shape)
    assert gd.function([x], gd.take(x, i, axis=axis))(empty).shape == np.take(empty, i, axis=axis).shape
    assert gd.function([x, node], gd.take(x, node, axis=axis))(empty, i).shape == np.take(empty, i, axis=axis).shape
    y = gd.take(x, i, axis=axis)
    assert gd.function([x], gd.grad(gd.sum(y * y), x))(empty).shape == shape
    with pytest.raises(gd.errors.OutOfBounds):
        gd.function([x, node], gd.take(x, node, axis=axis))(empty, i + 5)
    if len(shape) == 3:
        assert gd.function([x, node], x[node, node])(empty, i).shape == empty[i, i].shape
        assert gd.function([x], x.at[i, i].set(x[i, i] * 2))(empty).shape == shape
    checked(4)
