"""Rows: sums of rows and the work around them become one instruction, which changes no bit, whatever the layout."""
import re

import numpy as np
import pytest
from counting import checked
from in_order import reads_what_was_written

import graphdiff as gd

UNFUSED = ("merge", "algebra", "stable_forms", "fold", "in_place")
rng = np.random.default_rng(11)


def same_bits(inputs, outputs, arrays):
    """As rows on one thread and on two, not in place, and unfused: the same bits. Returns the function on one thread."""
    want = gd.function(inputs, outputs, passes=UNFUSED, threads=1)(*arrays)
    functions = [gd.function(inputs, outputs, threads=1), gd.function(inputs, outputs, threads=2),
                 gd.function(inputs, outputs, passes=(*UNFUSED[:4], "fuse"), threads=1)]
    for f in functions:
        reads_what_was_written(f)
        for a, b in zip(f(*arrays), want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
            checked()
    return functions[0]


def names(f):
    return [op for op, *_ in f.program.instrs]


def draw(inputs):
    return [rng.standard_normal(x.shape).astype(x.dtype) for x in inputs]


def with_gradients(build, *shapes, dtype="float32"):
    inputs = [gd.input(f"x{i}", s, dtype) for i, s in enumerate(shapes)]
    y = build(*inputs)
    g = gd.input("g", y.shape, y.dtype)
    return [*inputs, g], [y, *gd.grad(y, inputs, cotangent=g)]


# A row is one block up to 4096 elements of float32 (2048 of float64), has tails after every 16, 128 and 4096, and lanes of
# columns after every 16 and 4096 rows.
SIZES = [(2, 16), (3, 17), (16, 33), (17, 100), (31, 128), (40, 257), (15, 1024), (7, 1000), (4, 2048), (5, 2049), (3, 4096), (3, 4099),
         (4, 9000), (4097, 20), (5000, 16)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, n", SIZES)
def test_layer_norm_is_one_instruction(rows, n, dtype):
    inputs, outputs = with_gradients(gd.layer_norm, (rows, n), (n,), (n,), dtype=dtype)
    f = same_bits(inputs, outputs, draw(inputs))
    assert names(f) == ["rows"] if n <= 8192 else names(f).count("rows") == 1
    forward = gd.function(inputs[:3], outputs[0])
    assert names(forward) == ["rows"] and forward.plan.arena_nbytes == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (2, 4, 16, 16), (3, 2, 40, 50), (2, 3, 64, 65), (9, 5, 4), (70, 6, 3, 3)])
def test_batch_norm_has_its_rows_in_many_pieces(shape, dtype):
    inputs, outputs = with_gradients(gd.batch_norm, shape, (shape[1],), (shape[1],), dtype=dtype)
    f = same_bits(inputs, outputs, draw(inputs))
    assert names(f).count("rows") == 1 and len(names(f)) <= 2


@pytest.mark.parametrize("build", [
    lambda x: gd.rms_norm(x),
    lambda x: x / gd.std(x, axis=-1, keepdims=True),
    lambda x: gd.group_norm(x, 2),
    lambda x: gd.square(x - gd.mean(x, axis=(1, 2), keepdims=True)),
    lambda x: gd.exp(x) / gd.sum(gd.exp(x), axis=(1, 2), keepdims=True),
    lambda x: gd.tanh(x * gd.sum(gd.exp(x), axis=2, keepdims=True)),
    lambda x: gd.where(x > gd.mean(x, axis=2, keepdims=True), x, 0.0),
    lambda x: x - gd.sum(gd.square(x), axis=-1, keepdims=True) + gd.sum(x * x, axis=(1, 2), keepdims=True),
    lambda x: gd.layer_norm(gd.relu(gd.layer_norm(x)) + x),
    lambda x: gd.layer_norm(x, axis=(0, 1, 2)),
    lambda x: gd.layer_norm(x, axis=0),
], ids=range(11))
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(3, 4, 33), (20, 2, 300)])
def test_other_norms(build, shape, dtype):
    inputs, outputs = with_gradients(build, shape, dtype=dtype)
    same_bits(inputs, outputs, draw(inputs))


def handmade(x, scale, shift, *, how, affine):
    """Normalised rows as a user writes them: `how` the variance and the root are, and in which order the factors."""
    m = gd.mean(x, axis=-1, keepdims=True)
    d = x if how == "mean square" else x - m
    v = gd.mean(d * d, axis=-1, keepdims=True) if how != "var" else gd.var(x, axis=-1, keepdims=True)
    root = gd.sqrt(v + 1e-5)
    y = d / root if how == "divided" else gd.reciprocal(root) * d
    return {"": y, "scale": scale * y, "both": y * scale + shift, "shift": shift + y}[affine]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("affine", ["", "scale", "shift", "both"])
@pytest.mark.parametrize("how", ["var", "divided", "multiplied", "mean square"])
def test_norms_written_by_hand(how, affine, dtype):
    for rows, n in [(1, 40), (2, 16), (3, 17), (5, 1000), (33, 257), (6, 4096), (3, 4099)]:
        x, scale, shift = gd.input("x", (rows, n), dtype), gd.input("s", (n,), dtype), gd.input("t", (n,), dtype)
        inputs = [x, *([scale] if affine in ("scale", "both") else []), *([shift] if affine in ("shift", "both") else [])]
        f = same_bits(inputs, [handmade(x, scale, shift, how=how, affine=affine)], draw(inputs))
        assert names(f) == ["rows"] or rows * n < 5000       # few elements are not worth it


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalisations_have_their_own_loop(dtype):
    """Those of the library and those of a user, and the gradients of a whole layer norm; rows of something else have none."""
    from graphdiff.runtime.native import isa, lib
    own = isa() == "avx512" or (isa() == "avx2" and dtype == "float32")

    def found(inputs, outputs):
        return lib.gd_program_norms(gd.function(inputs, outputs)._static.handle.c)

    for build, shapes in [(gd.layer_norm, ((64, 512),)), (gd.rms_norm, ((64, 512),)), (gd.layer_norm, ((64, 512), (512,), (512,)))]:
        inputs, outputs = with_gradients(build, *shapes, dtype=dtype)
        assert found(inputs[:-1], outputs[0]) == own, shapes
    assert found(inputs, outputs) == own and found(inputs, outputs[1:]) == own
    for how in ("var", "divided", "multiplied", "mean square"):
        for affine in ("", "scale", "shift", "both"):
            x, scale, shift = gd.input("x", (64, 512), dtype), gd.input("s", (512,), dtype), gd.input("t", (512,), dtype)
            inputs = [x, *([scale] if affine in ("scale", "both") else []), *([shift] if affine in ("shift", "both") else [])]
            # A variance corrects its mean, and a hand that divides by it does not: those are rows like any other.
            assert found(inputs, handmade(x, scale, shift, how=how, affine=affine)) == (own and how != "var"), (how, affine)
    x = gd.input("x", (64, 512), dtype)
    assert found([x], gd.exp(x) / gd.sum(gd.exp(x), axis=1, keepdims=True) + gd.mean(x, axis=1, keepdims=True)) == 0
    checked(22)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalised_rows_against_numpy_where_operands_are_spread(dtype):
    x, w, b = gd.input("x", (37, 150), dtype), gd.input("w", (150,), dtype), gd.input("b", (150,), dtype)
    f = gd.function([x, w, b], gd.layer_norm(x, w, b))
    values = draw([x, w, b])
    want = (values[0] - values[0].mean(-1, keepdims=True)) / np.sqrt(values[0].var(-1, keepdims=True) + 1e-5) * values[1] + values[2]
    spread = np.zeros((37, 300), dtype)[:, ::2], np.zeros(450, dtype)[::3], values[2][::-1].copy()[::-1]
    for to, value in zip(spread, values, strict=True):
        to[...] = value
    near = f(*values)
    np.testing.assert_allclose(near, want, rtol=2e-5 if dtype == "float32" else 1e-12, atol=1e-5 if dtype == "float32" else 1e-12)
    np.testing.assert_array_equal(f(*spread), near)
    checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_normalised_rows_where_zero_meets_infinity(dtype):
    for forward in (False, True):
        inputs, outputs = with_gradients(gd.layer_norm, (40, 70), (70,), (70,), dtype=dtype)
        x, w, b, g = draw(inputs)
        g[::2, ::3] = 0
        g[7] = 0
        w[:9] = np.inf
        x[4, 5], x[11, 0] = np.inf, np.nan
        same_bits(inputs, outputs if forward else outputs[1:], [x, w, b, g])


def test_values():
    """Against NumPy in float64: the value, and the gradients by hand."""
    inputs, outputs = with_gradients(gd.layer_norm, (37, 130), (130,), (130,), dtype="float64")
    x, gamma, beta, g = arrays = draw(inputs)
    c = x - x.mean(1, keepdims=True)
    r = 1 / np.sqrt(np.square(c).mean(1, keepdims=True) + 1e-5)
    h = g * gamma
    want = [c * r * gamma + beta, r * (h - h.mean(1, keepdims=True) - c * r * (h * c * r).mean(1, keepdims=True)), (g * c * r).sum(0), g.sum(0)]
    for a, b in zip(gd.function(inputs, outputs)(*arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_times_infinity_stays_zero(dtype):
    """The strong zero of cotangents, in whole tiles and in tails, from either side; other NaN stay."""
    x, y, s, r = (gd.input(name, shape, dtype) for name, shape in (("x", (5, 301)), ("y", (5, 301)), ("s", (5, 1)), ("r", (301,))))
    zmul = gd.ops.binary.zmul
    m = gd.sum(x, axis=1, keepdims=True)
    outputs = [zmul(x - m, y) * 2.0, zmul(y, x - m), zmul(s, x - m), zmul(x - m, s), gd.sum(zmul(zmul(x, y), m), axis=1),
               zmul(r, x - m), zmul(x - m, r), gd.sum(zmul(x, r) - m, axis=1)]
    arrays = draw([x, y, s, r])
    arrays[0][:, ::3] = 0
    arrays[0][1] = 0
    arrays[1][1, ::2] = np.inf
    arrays[1][3, 299:] = np.nan
    arrays[1][4, ::7] = 0
    arrays[2][2:] = [[np.inf], [np.nan], [0.0]]
    arrays[3][:6] = arrays[3][-3:] = np.inf
    arrays[3][7:30] = 0
    same_bits([x, y, s, r], outputs, arrays)


def random_value(values, small, rows_axes, depth):
    """A random expression of whole values, small ones and sums."""
    for _ in range(depth):
        kind = rng.integers(8)
        a = values[rng.integers(len(values))]
        if kind == 0:
            small.append(gd.sum(a, axis=rows_axes, keepdims=True))
        elif kind == 1 and small:
            s = small[rng.integers(len(small))]
            small.append([gd.tanh(s), s * 0.5, s / 3.0, s + small[0], gd.sqrt(gd.square(s) + 1.0)][rng.integers(5)])
        elif kind <= 4 and small:
            s = small[rng.integers(len(small))]
            values.append([a - s, s - a, a * gd.tanh(s), a / (2.0 + gd.cos(s)), gd.where(a > s, a, s), gd.maximum(a, s)][rng.integers(6)])
        else:
            b = values[rng.integers(len(values))]
            values.append([a + b, a - b, a * gd.tanh(b), gd.square(a) * 0.1, -a, gd.sin(a), gd.abs(a), a * 0.25][rng.integers(8)])


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions(seed):
    """Random work on rows of a random array: its operands turned, sliced, broadcast; columns summed; some results used later."""
    global rng
    rng = np.random.default_rng(seed)
    dtype = ["float32", "float64"][seed % 2]
    shape = [(6, 40), (3, 5, 37), (4, 3, 6, 9), (2, 3, 70, 70), (33, 130), (19, 700), (4100, 18)][rng.integers(7)]
    ndim = len(shape)
    axes = [(1,), (1,), (2,), (1, 2), (0, 2), (2, 3), (0, 2, 3), (1, 2, 3)]
    axes = [a for a in axes if max(a) == ndim - 1]
    axis = axes[rng.integers(len(axes))]
    x = gd.input("x", shape, dtype)
    turned = gd.input("t", shape[::-1], dtype)
    wide = gd.input("w", (*shape[:-1], 2 * shape[-1]), dtype)
    row = gd.input("r", (1,) * (ndim - 1) + shape[-1:], dtype)
    first = gd.input("f", shape[:1] + (1,) * (ndim - 1), dtype)
    inputs = [x, turned, wide, row, first]
    values = [x, x * 1.5, gd.transpose(turned) + 0.5 * x, x + wide[..., ::2], x * row, x - first, wide[..., ::-2] * 0.5 + x]
    small = [gd.sum(values[rng.integers(len(values))], axis=axis, keepdims=True)]
    random_value(values, small, axis, 14)
    others = tuple(i for i in range(ndim) if i not in axis)
    picks = [values[i] for i in rng.integers(0, len(values), 3)] + [small[rng.integers(len(small))]]
    outputs = [*picks, gd.sum(values[-1], axis=others), gd.sum(values[rng.integers(len(values))], axis=others), gd.exp(-gd.square(values[-1]))]
    outputs.append(gd.sum(outputs[0]))
    loss = gd.sum(gd.sin(values[-1])) + gd.sum(gd.sin(outputs[-4]))
    outputs += gd.grad(loss, inputs, unconnected="zero")
    same_bits(inputs, outputs, draw(inputs))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_results_that_take_the_place_of_an_operand_read_before(rows, dtype):
    """y in the memory of x, of the cotangent or of a parameter, which no later operation reads: nor may a loop that does them all."""
    a, c, s, t = (gd.input(name, (rows, 300), dtype) for name in "acst")
    for made in ((0, 1, 2, 3), (0,), (1,), (2, 3)):
        x, g, scale, shift = (gd.sort(v, axis=-1) if i in made else v for i, v in enumerate((a, c, s, t)))
        if rows > 1:
            scale, shift = scale[0], shift[0]
        y = gd.layer_norm(x, scale[0] if rows == 1 else scale, shift[0] if rows == 1 else shift)
        gradients = gd.grad(y, [x, scale, shift], cotangent=g)
        for outputs in ([y], [y, *gradients], [y, gradients[1], gradients[2], gradients[0]], [gradients[0], y]):
            used = [gd.sort(v, axis=0) if v.shape == (rows, 300) else v for v in outputs]        # so that y lies in the arena
            same_bits([a, c, s, t], used, draw([a, c, s, t]))


# Rows of an input that lies turned are brought together a cache line of them at a time, along the last kept axis to its end.
LAYOUTS = {
    "turned": lambda x: (np.ascontiguousarray(x.T), lambda n: gd.transpose(n)),
    "first axis last": lambda x: (np.ascontiguousarray(np.moveaxis(x, -2, -1)), lambda n: gd.swapaxes(n, -1, -2)),
    "every second": lambda x: (np.repeat(x, 2, axis=-1), lambda n: n[..., ::2]),
    "backwards": lambda x: (np.ascontiguousarray(x[..., ::-1]), lambda n: n[..., ::-1]),
    "rows backwards": lambda x: (np.ascontiguousarray(x[..., ::-1, :]), lambda n: n[..., ::-1, :]),
    "a part": lambda x: (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(2, 3)]), lambda n: n[..., 2:-3]),
    "turned backwards": lambda x: (np.ascontiguousarray(x.T[::-1, ::-1]), lambda n: gd.transpose(n[::-1, ::-1])),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 16), (7, 17), (8, 16), (33, 130), (40, 300), (5, 2048), (19, 1000), (3, 4096), (3, 5, 37), (4, 18, 40),
                                   (2, 21, 19)])
def test_rows_of_any_layout_have_the_same_bits(shape, dtype):
    """A variance and a norm, which read their input in several sections, of rows that lie in every way."""
    x = rng.standard_normal(shape).astype(dtype)

    def outputs(n):
        return [gd.var(n, axis=-1), gd.layer_norm(n), gd.sum(gd.square(n - gd.sum(gd.abs(n), axis=-1, keepdims=True)) * n, axis=-1)]

    plain = gd.input("x", shape, dtype)
    want = gd.function([plain], outputs(plain), threads=1)(x)
    np.testing.assert_allclose(want[0], np.var(x.astype("float64"), axis=-1), rtol=1e-4 if dtype == "float32" else 1e-12)
    for name, layout in LAYOUTS.items():
        stored, view = layout(x)
        n = gd.input("x", stored.shape, dtype)
        for threads in (1, 2):
            f = gd.function([n], outputs(view(n)), threads=threads)
            assert "rows" in names(f), name
            for a, b in zip(f(stored), want, strict=True):
                assert a.tobytes() == b.tobytes(), name
                checked()


@pytest.mark.parametrize("shape", [(2, 16), (16, 24), (300, 40)])
@pytest.mark.parametrize("told", [True, False])
def test_a_sum_that_a_member_reads_is_made_before_the_group(shape, told):
    """It can join no more, though it sums up what a later member reads: the member would read it before it is there."""
    x, v = gd.input("x", shape), gd.input("v", shape)
    m, s = gd.sum(x, 1), gd.sum(v, 1)
    same_bits([x, v], [gd.sin(m) * s, x * m[:, None] * v, *[s] * told], draw([x, v]))
    n = gd.input("n", ("rows", "rows"))
    y = gd.sum(gd.sin(gd.sum(n, 1))) + gd.sum(gd.sin(gd.attention(n, n, gd.sin(n))))
    a = rng.standard_normal((16, 16))
    outputs = [gd.grad(y, n), gd.jvp(gd.grad(y, n), n, n)]
    for p, q in zip(gd.function([n], outputs)(a), gd.function([n], outputs, passes=())(a), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12)
        checked()


def test_between_other_instructions():
    """Two norms around a product of matrices, with gradients: several groups of rows, and everything in order."""
    w = gd.input("w", (48, 48), "float32")

    def net(x, w):
        h = gd.layer_norm(gd.relu(gd.layer_norm(x) @ w) + x)
        return gd.concatenate([h, gd.layer_norm(h * 2.0)], 0) @ w

    inputs, outputs = with_gradients(net, (70, 48), (48, 48))
    f = same_bits(inputs, outputs, draw(inputs))
    assert names(f).count("rows") >= 3
    x = gd.input("x", (70, 48), "float32")
    v = gd.variable(np.ones((70, 48), "float32"))
    y = gd.layer_norm(x * v)
    step = gd.function([x], [gd.sum(y)], updates={v: v - 0.1 * y})
    a = draw([x])[0]
    want = 1.0 - np.float32(0.1) * gd.function([x], gd.layer_norm(x * 1.0))(a)
    step(a)
    np.testing.assert_array_equal(v.value, want)
    assert w.shape == (48, 48)


LARGE = (2048, 300)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [LARGE, (70, 8000), (5000, 128), (16, 128, 300), (2051, 259), (4161, 257)])
def test_sums_of_columns_of_products_need_no_array_of_them(shape, dtype):
    axis = tuple(range(len(shape) - 1))
    x, y = gd.input("x", shape, dtype), gd.input("y", shape, dtype)
    a = draw([x, y])
    f = same_bits([x, y], [gd.sum(x * y, axis=axis)], a)
    assert names(f) == ["rows"] and f.plan.arena_nbytes == 0
    np.testing.assert_allclose(f(*a)[0], np.sum(a[0].astype("f8") * a[1], axis=axis), rtol=0, atol=1e-3 if dtype == "float32" else 1e-11)
    # factors with one value for every row or for every column
    b, c = gd.input("b", shape[-1:], dtype), gd.input("c", (shape[0], *[1] * (len(shape) - 1)), dtype)
    for product in (x * b, x * c, x - 0.5):
        assert names(same_bits([x, y, b, c], [gd.sum(product, axis=axis)], draw([x, y, b, c]))) == ["rows"]
    # whoever else reads the products element by element makes them again
    p = x * y
    s = gd.sum(p, axis=axis, keepdims=True)
    f = same_bits([x, y], [p - y * s, s], a)
    assert names(f) == ["rows", "fused"] and f.plan.arena_nbytes <= s.size * s.dtype.itemsize
    inputs, outputs = with_gradients(lambda x: gd.softmax(x, axis=axis[-1]), shape, dtype=dtype)
    f = same_bits(inputs, outputs, draw(inputs))
    assert names(f) == ["softmax", "rows", "fused"] if len(shape) == 2 else "rows" not in names(f)


# Rows that follow each other are taken 16 lanes at a time, eight of those together: a last one of fewer lanes, fewer than eight, blocks of
# 4096 rows and one row more; widths of less than a register and with a rest.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, n", [(4096, 8), (4097, 9), (8191, 17), (8192, 31), (12345, 16), (2048, 33), (2063, 100), (400, 127), (1031, 64),
                                     (129 + 512, 77)])
def test_sums_of_narrow_columns_of_products(rows, n, dtype):
    x, y = gd.input("x", (rows, n), dtype), gd.input("y", (rows, n), dtype)
    a = draw([x, y])
    for product in (x * y, x * x):
        f = same_bits([x, y], [gd.sum(product, axis=0)], a)
        assert names(f) == ["rows"] and f.plan.arena_nbytes == 0
        want = np.sum((a[0].astype("f8") * a[1]) if product.inputs[1] is y else np.square(a[0].astype("f8")), axis=0)
        np.testing.assert_allclose(f(*a)[0], want, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-3 if dtype == "float32" else 1e-11)
        checked()
    # rows that do not follow each other, and what else narrow arrays are multiplied with, have arrays of products
    wide = gd.input("wide", (rows, n + 3), dtype)
    f = same_bits([wide, y], [gd.sum(wide[:, :n] * y, axis=0)], draw([wide, y]))
    assert "rows" not in names(f)


# What is done to an array before its columns are summed up: one or two operations, with a row that is the same for all.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, n", [(70, 500), (64, 2048), (100, 4097), (65, 16384), (64, 65536), (1000, 100), (2063, 17), (4097, 9), (4096, 64),
                                     (4161, 131), (5000, 8), (8200, 300)])
def test_sums_of_columns_of_two_operations(rows, n, dtype):
    x, y, m, c = gd.input("x", (rows, n), dtype), gd.input("y", (rows, n), dtype), gd.input("m", (n,), dtype), gd.input("c", (rows, 1), dtype)
    a = draw([x, y, m, c])
    a[0][::7, ::3] *= 1e3
    p, q, r = (v.astype("f8") for v in a[:3])
    for node, want in ((gd.square(x - m), (p - r) ** 2), (x - m, p - r), (gd.square(x - y), (p - q) ** 2), (3.0 * x * y, 3 * p * q),
                       ((x - y) * x, (p - q) * p), ((x - m) * (-2.0), -2 * (p - r)), (gd.negative(x) + m, r - p), ((x - y) / m, (p - q) / r)):
        f = same_bits([x, y, m, c], [gd.sum(node, axis=0)], a)
        if rows * n * x.dtype.itemsize >= 1 << 17:
            assert names(f) == ["rows"] and f.plan.arena_nbytes == 0
        np.testing.assert_allclose(f(*a)[0], want.sum(axis=0), rtol=1e-5 if dtype == "float32" else 1e-12,
                                   atol=1e-6 * np.abs(want).sum(axis=0).max() if dtype == "float32" else 1e-14 * np.abs(want).sum(axis=0).max())
        checked()
    for f, g in ((gd.var, np.var), (gd.std, np.std)):
        h = same_bits([x], [f(x, axis=0)], a[:1])
        np.testing.assert_allclose(h(a[0])[0], g(p, axis=0), rtol=1e-5 if dtype == "float32" else 1e-12)
        assert h.plan.arena_nbytes <= 4 * (n * x.dtype.itemsize + 64) or rows * n * x.dtype.itemsize < 1 << 17
    same_bits([x], [gd.var(x, axis=0), gd.grad(gd.sum(gd.var(x, axis=0)), x)], a[:1])
    # NaN, infinities and zeros stay in their columns
    a[0][rows // 2, 0], a[0][rows - 1, 1], a[0][:, 2] = np.nan, np.inf, -0.0
    got, = same_bits([x, y, m, c], [gd.sum(gd.square(x - m), axis=0)], a)(*a)
    assert np.isnan(got[0]) and np.isinf(got[1]) and np.isfinite(got[2:]).all()


# Sums of rows by themselves: batches and a rest of them, tails after every 16 and 128 elements, rows in pieces of 4096 elements.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, n", [(9, 64), (17, 100), (33, 65), (100, 127), (16, 128), (301, 200), (40, 511), (31, 1000), (2000, 129), (20_000, 60),
                                     (12_001, 100), (10_001, 64), (10_001, 128)])
def test_sums_of_rows_of_two_operations(rows, n, dtype):
    shape = (rows, n)
    x, y, m, c = gd.input("x", shape, dtype), gd.input("y", shape, dtype), gd.input("m", (n,), dtype), gd.input("c", (rows, 1), dtype)
    a = draw([x, y, m, c])
    p, q, r = (v.astype("f8") for v in a[:3])
    row, large = n * x.dtype.itemsize, rows * n * x.dtype.itemsize > 4 << 20
    middling = 256 <= row < (513 if large else 4096)
    for node, want, least in ((x * x, p * p, 256), (x * y, p * q, 256), (gd.square(x - y), (p - q) ** 2, 256), ((x + y) * y, (p + q) * q, 256),
                              (x * m, p * r, 400), (gd.square(x - m), (p - r) ** 2, 400), (gd.negative(x) / m, -p / r, 400)):
        f = same_bits([x, y, m, c], [gd.sum(node, axis=1)], a)
        if middling and row >= least:
            assert names(f) == ["rows"] and f.plan.arena_nbytes == 0
        size = np.abs(want).sum(axis=1).max()
        np.testing.assert_allclose(f(*a)[0], want.sum(axis=1), rtol=1e-5 if dtype == "float32" else 1e-13,
                                   atol=1e-6 * size if dtype == "float32" else 1e-15 * size)
        checked()
    same_bits([x, y, m, c], [gd.sum(x * c, axis=1), gd.sum(gd.square(x - c), axis=1, keepdims=True), gd.sum(x[:, ::2] * y[:, ::2], axis=1),
                             gd.sum(x[:, ::-1] * y, axis=1), gd.sum(3.0 * x * y, axis=1), gd.sum(x - 0.5, axis=1)], a)
    same_bits([x, y], [gd.norm(x, axis=1), gd.sum(x * y, axis=1) / (gd.norm(x, axis=1) * gd.norm(y, axis=1)), x * y], a[:2])
    same_bits([x, y], gd.grad(gd.sum(gd.norm(x - y, axis=1)), [x, y]), a[:2])
    a[0][rows // 2, 0], a[0][rows - 1, n - 1], a[0][0] = np.nan, np.inf, -0.0
    got, = same_bits([x], [gd.sum(x * x, axis=1)], a[:1])(a[0])
    assert np.isnan(got[rows // 2]) and np.isinf(got[rows - 1]) and got[0] == 0 and not np.signbit(got[0])


def test_sums_of_columns_of_what_has_an_array_anyway():
    x, y, w = gd.input("x", LARGE), gd.input("y", LARGE), gd.input("w", (300, 40))
    small, turned = gd.input("small", (100, 150)), gd.input("turned", (300, 2048))
    p = x * y
    for outputs in ([gd.sum(p, axis=0), p],                              # it is a result
                    [gd.sum(p, axis=0), p @ w],                          # or the operand of something else
                    [gd.sum(gd.exp(x), axis=0)],                         # or dear to make
                    [gd.sum(gd.exp(x) * y, axis=0)],                     # or the end of a chain
                    [gd.sum(gd.square(gd.square(x) - y), axis=0)],
                    [gd.sum(gd.square(x - y) * gd.square(x + y), axis=0)],
                    [gd.sum(x * turned.T, axis=0)],                      # or of what lies across, or in pieces
                    [gd.sum(x[:, 1:] * y[:, 1:], axis=0)],
                    [gd.sum(small * small, axis=0)]):                    # or stays in cache
        inputs = [x, y, w, small, turned]
        f = same_bits(inputs, outputs, draw(inputs))
        assert "rows" not in names(f)
    # made again only where it is large, and where what it is made of stays in the last cache
    for shape in ((1024, 300), (4096, 1024)):
        a, b = gd.input("a", shape, "float32"), gd.input("b", shape, "float32")
        p = a * b
        s = gd.sum(p, axis=0)
        assert names(gd.function([a, b], s)) == ["rows"]
        assert "rows" not in names(gd.function([a, b], [s, p - b * s]))
    # two arrays that would wait in the place of one
    m, n = gd.input("m", (300, 300)), gd.input("n", (300, 300))
    p = (x @ m) * (y @ n)
    inputs = [x, y, m, n]
    f = same_bits(inputs, [p - gd.sum(p, axis=0)], draw(inputs))
    assert "rows" not in names(f)


def test_listing():
    x = gd.input("x", (4, 32), "float32")
    y = gd.tanh(x)
    got = re.sub(r" +;.*", "", str(gd.function([x], y - gd.mean(y, axis=1, keepdims=True)).program))
    assert got.splitlines()[1:] == [
        "   0  rows           out0:float32[4, 32] <- c[0]:float32[4]:0, in0:float32[4, 32]",
        "      sweep", "        h0  = tanh i1", "        s0  = sum h0", "      stats", "        s0  = divide s0, i0",
        "      sweep", "        o0  = subtract h0, s0"]


def test_what_stays_as_it_was():
    """Sums that nothing of their rows uses, rows across memory, short rows, and rows beyond the longest."""
    x = gd.input("x", (8, 64), "float32")
    for y in (gd.sum(gd.exp(x), axis=1), gd.sum(x, axis=1) * 2.0, x - gd.sum(x, axis=0), x - gd.sum(x),
              gd.maximum(x, gd.mean(x, axis=1, keepdims=True))):
        assert "rows" not in names(gd.function([x], y))
        checked()
    for shape in ((8, 8), (2, (1 << 20) + 1)):
        x = gd.input("x", shape, "float32")
        assert "rows" not in names(gd.function([x], x - gd.sum(x, axis=1, keepdims=True)))
        checked()
    assert "rows" not in names(gd.function([x], gd.layer_norm(x), passes=UNFUSED))


@pytest.mark.parametrize("norm", [gd.layer_norm, gd.batch_norm])
def test_derivatives_of_a_norm_at_the_edges(norm):
    """A cotangent of zeros stays zero beside rows that are not finite; forward mode, reverse mode and their second derivatives agree."""
    x = gd.input("x", (4, 6), "float64")
    g, t = gd.input("g", (4, 6), "float64"), gd.input("t", (4, 6), "float64")
    y = norm(x)
    gx = gd.grad(y, x, cotangent=g)
    a, b, c = draw([x, g, t])
    bad, none = a.copy(), b.copy()
    axis = 1 if norm is gd.layer_norm else 0
    bad[2, 2] = np.inf
    none[2 if axis else slice(None), slice(None) if axis else 2] = 0.0
    got = gd.function([x, g], gx)(bad, none)
    np.testing.assert_array_equal(got[2] if axis else got[:, 2], 0.0)
    assert np.isfinite(got).all()
    along = gd.jvp(y, x, t)
    left, right = gd.function([x, g, t], [gd.sum(g * along), gd.sum(gx * t)])(a, b, c)
    np.testing.assert_allclose(left, right, rtol=1e-12)
    second = [gd.jvp(gx, x, t), gd.grad(gd.sum(gd.jvp(y, x, t) * g), x), gd.grad(gd.sum(gx * t), x)]
    one, two, three = gd.function([x, g, t], second)(a, b, c)
    np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(one, three, rtol=1e-11, atol=1e-13)
    checked(4)


def test_groups_beyond_the_limits_are_cut():
    """A chain of norms, of which nothing but the limits of an instruction ends a group: few instructions, and the bits of the operations."""
    x = gd.input("x", (6, 30))
    for step in (lambda y: gd.layer_norm(y) + gd.tanh(y), lambda y: y + gd.relu(gd.rms_norm(y) * 1.1 - 0.2)):
        y = x
        for _ in range(40):
            y = step(y)
        outputs = [y, gd.grad(gd.sum(y * y), x)]
        f, plain = gd.function([x], outputs, threads=1), gd.function([x], outputs, threads=1, passes=UNFUSED)
        assert len(f.program.instrs) < 60 < len(plain.program.instrs) / 10
        a = np.random.default_rng(0).standard_normal((6, 30))
        for got, want in zip(f(a), plain(a), strict=True):
            assert got.tobytes() == want.tobytes()
            checked()


@pytest.mark.parametrize("activation", ["tanh", "gelu", "silu"])
def test_derivatives_of_other_layers_do_not_fill_the_groups_of_a_deep_net(activation):
    """What only leads to the sums of another layer stays with these: the gradient of each norm is one instruction, however deep the net."""
    x = gd.input("x", (6, 30))
    ws = [gd.input(f"w{i}", (30, 30)) for i in range(30)]
    counts = []
    for n in (6, 30):
        y = x
        for w in ws[:n]:
            y = y + getattr(gd, activation)(gd.layer_norm(y @ w))
        outputs = [y, *gd.grad(gd.sum(y * y), ws[:n])]
        f = gd.function([x, *ws[:n]], outputs, threads=1)
        counts.append(names(f).count("rows"))
        assert counts[-1] <= 2 * n
        for i, (op, _, _, lines, _) in enumerate(f.program.instrs):
            assert op != "rows" or 0 < sum(line[0] == "sum" for line in lines) <= 5, i
        a = draw([x, *ws[:n]])
        plain = gd.function([x, *ws[:n]], outputs, threads=1, passes=UNFUSED)
        for got, want in zip(f(*a), plain(*a), strict=True):
            assert got.tobytes() == want.tobytes()
            checked()
    assert counts[1] - counts[0] == 2 * 24
    checked()
