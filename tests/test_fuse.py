"""Fusion: which operations become one instruction, that it changes no bit, and that every node can still be named."""
import re
from pathlib import Path

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

GOLDEN = Path(__file__).parent / "golden" / "fused.txt"
UNFUSED = ("merge", "algebra", "stable_forms", "fold", "in_place")
rng = np.random.default_rng(5)


def same_bits(inputs, outputs, arrays, **options):
    """Fused, unfused, in place or not: the same bits. Returns the fused function."""
    f = gd.function(inputs, outputs, **options)
    want = gd.function(inputs, outputs, passes=UNFUSED, threads=1)(*arrays)
    for g in (f, gd.function(inputs, outputs, passes=(*UNFUSED[:4], "fuse"), threads=1)):
        for a, b in zip(g(*arrays), want, strict=True):
            assert a.tobytes() == b.tobytes() and a.dtype == b.dtype and a.shape == b.shape
            checked()
    return f


def names(f):
    return [op for op, *_ in f.program.instrs]


def chain(n, dtype="float32"):
    x, y, z = (gd.input(c, (n,), dtype) for c in "xyz")
    return [x, y, z], gd.tanh(x) * gd.sigmoid(y) + gd.exp(-z * z)


def layer(rows, columns, dtype="float32"):
    x, gamma, beta = gd.input("x", (rows, columns), dtype), gd.input("gamma", (columns,), dtype), gd.input("beta", (columns,), dtype)
    y = gd.layer_norm(x, gamma, beta)
    return [x, gamma, beta], [y, *gd.grad(y, [x, gamma, beta], cotangent=gd.cos(y))]


def draw_arrays(inputs):
    return [rng.standard_normal(x.shape).astype(x.dtype) for x in inputs]


@pytest.mark.parametrize("n", [2, 3, 511, 512, 513, 1000, 100_000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_chain_with_its_gradients_is_one_instruction(n, dtype):
    inputs, y = chain(n, dtype)
    f = same_bits(inputs, [y, *gd.grad(y, inputs, cotangent=gd.ones_like(y))], draw_arrays(inputs))
    assert names(f) == ["fused"] and f.plan.arena_nbytes == 0 and len(f.program.nodes(0)) == len(f.program.instrs[0][3]) > 12


def test_listing():
    """One line an operation; the same text as in golden/fused.txt (without the lines of this file)."""
    inputs, y = chain(1000)
    texts = [gd.function(inputs, [y, *gd.grad(y, inputs, cotangent=gd.ones_like(y))]).program]
    x = gd.input("x", (4, 1000), "float32")
    texts.append(gd.function([x], [gd.sum(gd.relu(x)), gd.grad(gd.sum(gd.relu(x)), x)]).program)
    got = "\n\n".join(re.sub(r" +;.*", "", str(t)) for t in texts) + "\n"
    assert got == GOLDEN.read_text(encoding="utf-8")


def test_fusion_is_turned_off_by_name():
    inputs, y = chain(100)
    assert "fused" not in names(gd.function(inputs, y, passes=UNFUSED)) + names(gd.function(inputs, y, passes=()))
    assert names(gd.function(inputs, y, passes=("fuse",))) == ["fused"]
    assert gd.function(inputs, y).times["fuse"] > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, columns", [(5, 3), (7, 200), (64, 1024), (300, 10), (1, 700), (700, 1)])
def test_rows_and_columns_are_broadcast(rows, columns, dtype):
    inputs, outputs = layer(rows, columns, dtype)
    same_bits(inputs, outputs, draw_arrays(inputs))
    x, a, b = gd.input("x", (rows, columns), dtype), gd.input("a", (rows, 1), dtype), gd.input("b", (columns,), dtype)
    f = same_bits([x, a, b], [(x - a) * b, gd.exp(-gd.square((x - a) * b)), (a + x > b).astype("float32")], draw_arrays([x, a, b]), threads=2)
    assert names(f) == ["fused"] if rows * columns > 1 else True


def test_turned_strided_and_reversed_operands():
    x, y = gd.input("x", (150, 210)), gd.input("y", (210, 150))
    z = gd.tanh(x) + y.T * gd.flip(x) - x[::-1] * 2
    f = same_bits([x, y], [z, gd.exp(z) * gd.transpose(y)], draw_arrays([x, y]), threads=2)
    assert names(f) == ["fused"]
    v = gd.input("v", (3, 300, 2))
    same_bits([v], [gd.sin(gd.transpose(v, (2, 0, 1))) * gd.transpose(v, (2, 0, 1)) + 1, gd.exp(v) * 2 + v], draw_arrays([v]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
def test_repeated_runs_against_numpy(dtype):
    """Operands that repeat along any of the axes, start anywhere, and are runs of memory or turned: each alone and as a group."""
    draw = np.random.default_rng(8)
    for shape in [(25, 100, 10), (3, 70, 7, 5), (40, 1, 33), (6, 5, 300), (2, 3, 4, 5, 6), (9, 2000, 2), (1, 9000, 3)]:
        arrays = []
        for _ in range(3):
            part = tuple(int(n) if draw.random() < 0.6 else 1 for n in shape)
            arrays.append(draw.integers(1, 9, part).astype(dtype))
        arrays.append(draw.integers(1, 9, shape[::-1]).astype(dtype))
        a, b, c, t = (gd.input(f"x{i}", v.shape, dtype) for i, v in enumerate(arrays))
        outputs = [a + b, (a + b) * c - t.T, t.T[1:] + b[-1:], t.T[:, 1:] * b[:, -1:] + a[:, -1:]]
        x, y, z, u = arrays
        want = [x + y, (x + y) * z - u.T, u.T[1:] + y[-1:], u.T[:, 1:] * y[:, -1:] + x[:, -1:]]
        for passes in (UNFUSED, (*UNFUSED, "fuse")):
            for threads in (1, 2):
                for got, w in zip(gd.function([a, b, c, t], outputs, passes=passes, threads=threads)(*arrays), want, strict=True):
                    np.testing.assert_array_equal(got, w.astype(dtype))
                    checked()


def test_a_value_used_in_another_layout_ends_the_group():
    x = gd.input("x", (40, 40), "float32")
    h = gd.tanh(x) * 2
    f = same_bits([x], [h + h.T, gd.sum(h[1:] * h[:-1])], draw_arrays([x]))
    assert names(f) == ["fused", "add", "fused"]


def test_reshapes_of_whole_arrays_stay_in_the_group():
    x = gd.input("x", (6, 50), "float32")
    y = gd.exp(gd.reshape(gd.tanh(x), (300,))) + gd.reshape(x, (300,))
    assert names(same_bits([x], [gd.reshape(y, (2, 150)) * 3], draw_arrays([x]))) == ["fused"]


def test_dtypes_meet_in_a_group():
    x, k = gd.input("x", (600,), "float32"), gd.input("k", (600,), "int32")
    b = gd.logical_and(x > 0, k > 2)
    y = gd.where(b, x * k.astype("float32"), gd.exp(x)).astype("float64") + 1
    f = same_bits([x, k], [y, (k * 3).astype("uint8"), b, gd.logical_not(b)], [rng.standard_normal(600).astype("float32"),
                                                                               rng.integers(-9, 9, 600).astype("int32")])
    assert names(f) == ["fused"]


def test_half_precision_is_rounded_after_every_operation():
    x = gd.input("x", (600,), "float16")
    f = same_bits([x], [gd.exp(x * x) + x, gd.tanh(x.astype("float32") * 2) + 1], draw_arrays([x]))
    halves = [op for op, outs, *_ in f.program.instrs if outs[0].dtype == np.float16]
    assert halves and "fused" not in halves


@pytest.mark.parametrize("n", [2, 17, 513, 3001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_one_value_stand_side_by_side(n, dtype):
    """However far apart they are written: the interpreter does them by one loop, with the bits of two."""
    x, y = gd.input("x", (n,), dtype), gd.input("y", (n,), dtype)
    z = x * y
    outputs = [gd.tanh(z), gd.sin(x) + y, gd.sigmoid(y) * z]
    outputs += [gd.cos(x) - z, *gd.grad(gd.tanh(z), [x], cotangent=y), *gd.grad(gd.sigmoid(y), [y], cotangent=z)]
    a, b = draw_arrays([x, y])
    a[0], b[-1], a[n // 2] = np.inf, np.nan, -200
    f = same_bits([x, y], outputs, [a, b])
    (ops,) = [[line[0] for line in lines] for op, _, _, lines, *_ in f.program.instrs if op == "fused"]
    for first, second in (("tanh", "tanh_grad"), ("sin", "cos"), ("sigmoid", "sigmoid_grad")):
        assert abs(ops.index(first) - ops.index(second)) == 1
        checked()


def test_functions_of_one_value_stay_apart_where_registers_would_not_do():
    x = gd.input("x", (1000,), "float32")
    xs = [x * float(k) for k in range(2, 42)]
    total = gd.sigmoid(xs[0])
    for v in xs[1:]:
        total = total * gd.sigmoid(v)
    same_bits([x], [total, *gd.grad(total, [x], cotangent=gd.ones_like(x))], draw_arrays([x]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_zeros_in_the_middle_of_a_group(dtype):
    """Every cheap pair with zmul: a zero cotangent wins over what is not finite, whichever operand it meets."""
    g, p, q = (gd.input(c, (9, 9, 9), dtype) for c in "gpq")
    values = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-40, 3e38], dtype)
    arrays = [np.ascontiguousarray(a) for a in np.meshgrid(values, values, values)]
    zmul = gd.ops.binary.zmul
    pairs = [zmul(zmul(g, p), q), zmul(q, zmul(g, p)), zmul(g + p, q), zmul(q, g - p), zmul(g, p) + q, zmul(g, p) * q, q - zmul(g, p),
             zmul(g, p) - q, zmul(g * p, q), zmul(q, g * p)]
    with np.errstate(all="ignore"):
        def z(x, y):
            return np.where((x == 0) & np.isnan(x * y), 0, x * y).astype(dtype)

        a, b, c = arrays
        for y, want in zip(pairs, [z(z(a, b), c), z(c, z(a, b)), z(a + b, c), z(c, a - b), z(a, b) + c, z(a, b) * c, c - z(a, b), z(a, b) - c,
                                   z(a * b, c), z(c, a * b)], strict=True):
            f = gd.function([g, p, q], y)
            got = f(*arrays)
            np.testing.assert_array_equal(got, want)
            fine = ~np.isnan(want)
            assert names(f) == ["fused"] and got[fine].tobytes() == want[fine].tobytes()     # signs of zeros too
            checked()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 17, 63, 64, 65, 200, 513])
def test_one_zero_among_ordinary_products(dtype, n):
    """Registers are looked at together: wherever the one zero that meets infinity or NaN stands, it is found."""
    zmul = gd.ops.binary.zmul
    g, p, q = (gd.input(c, (n,), dtype) for c in "gpq")
    one = gd.input("one", (), dtype)
    rng = np.random.default_rng(n)
    a, b, c = (rng.standard_normal(n).astype(dtype) for _ in range(3))

    def z(x, y):
        return np.where((x == 0) & np.isnan(x * y), 0, x * y).astype(dtype)

    graphs = [zmul(g, p), zmul(zmul(g, p), q), zmul(g, p) - q, zmul(q, g * p), zmul(one, p), zmul(g, one), zmul(one, p) * one,
              zmul(zmul(g, one), one)]
    f = [gd.function([g, p, q, one], y) for y in graphs]
    for place in sorted({0, n // 2, n - 1}):
        for odd in (np.inf, -np.inf, np.nan):
            for zero in (0.0, -0.0):
                a[place], b[place], single = zero, odd, np.array(odd if place else zero, dtype)
                with np.errstate(all="ignore"):
                    want = [z(a, b), z(z(a, b), c), z(a, b) - c, z(c, a * b), z(single, b), z(a, single), z(single, b) * single,
                            z(z(a, single), single)]
                    for i, w in enumerate(want):
                        got = f[i](a, b, c, single)
                        np.testing.assert_array_equal(got, w)
                        fine = ~np.isnan(w)
                        assert got[fine].tobytes() == w[fine].tobytes(), (i, place, odd, zero)
                        checked()
        a[place], b[place] = 1.5, -2.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 15, 64, 130, 1000, 5003])
def test_what_relu_lets_through(n, dtype):
    """A comparison, its cast and zmul are one loop where all are of one dtype and nobody else reads them: zeros keep their signs, what is not
    finite is silent where nothing passes."""
    zmul = gd.ops.binary.zmul
    other = "float32" if dtype == "float64" else "float64"
    x, g, s = gd.input("x", (n,), dtype), gd.input("g", (n,), dtype), gd.input("s", (), dtype)
    u, k = gd.input("u", (n,), other), gd.input("k", (n,), "int32")
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.5, -2.5]
    arrays = [np.where(rng.random(n) < p, rng.choice(odd, n), rng.standard_normal(n)).astype(dtype) for p in (0.3, 0.3 if n > 64 else 0.0)]
    arrays += [np.array(2.5, dtype), arrays[0][::-1].astype(other), rng.integers(-2, 3, n).astype("int32")]
    mask = (x > 0).astype(dtype)
    graphs = {"relu": gd.grad(gd.relu(x), x, cotangent=g), "limit": zmul((x > s).astype(dtype), g), "wide": zmul((u > 0).astype(dtype), g),
              "whole": zmul((k > 0).astype(dtype), g), "turned": zmul(g, mask), "twice": zmul(mask, g) - mask, "itself": zmul(mask, x)}
    inputs = [x, g, s, u, k]
    with np.errstate(all="ignore"):
        def z(a, b):
            return np.where((a == 0) & np.isnan(a * b), 0, a * b).astype(dtype)

        a, b, t, c, i = arrays
        passed = (a > 0).astype(dtype)
        wants = {"relu": z(passed, b), "limit": z((a > t).astype(dtype), b), "wide": z((c > 0).astype(dtype), b),
                 "whole": z((i > 0).astype(dtype), b), "turned": z(b, passed), "twice": z(passed, b) - passed, "itself": z(passed, a)}
    for name, y in graphs.items():
        got, want = same_bits(inputs, [y], arrays)(*arrays)[0], wants[name]
        np.testing.assert_array_equal(got, want, name)
        fine = ~np.isnan(want)
        assert got[fine].tobytes() == want[fine].tobytes(), name                          # signs of zeros too
        checked()
    same_bits(inputs, [gd.relu(x), *graphs.values()], arrays)


def test_reductions_wait_behind_a_group():
    """The loss is summed after the gradient was computed in the same pass, not before."""
    x = gd.input("x", (40, 1000), "float32")
    y = gd.mean(gd.square(gd.tanh(x)) + gd.relu(x))
    f = same_bits([x], [y, gd.grad(y, x)], draw_arrays([x]))
    assert names(f) == ["fused", "divide"]
    z = gd.max(gd.square(gd.tanh(x)) + gd.relu(x), axis=0)
    f = same_bits([x], [z, gd.tanh(x) * 3 + gd.relu(x)], draw_arrays([x]))
    assert names(f) == ["fused", "max"]


def test_many_short_rows_are_summed_up_apart():
    for shape, dtype, fused in (((4000, 10), "float32", False), ((900, 511), "float64", False), ((900, 1024), "float32", True),
                                ((20_000, 64), "float64", True), ((20_000, 60), "float64", False), ((8, 10), "float32", True)):
        x = gd.input("x", shape, dtype)
        f = same_bits([x], [gd.sum(gd.square(x) * x - x, axis=1)], draw_arrays([x]))
        assert names(f) == ["fused", *([] if fused else ["sum"])]
        # of two operations or one, an instruction of rows sums up what it makes
        row = shape[1] * x.dtype.itemsize
        rows = (not fused and row >= 256) or row == 512
        f = same_bits([x], [gd.sum(gd.square(x) * x, axis=1)], draw_arrays([x]))
        assert names(f) == (["rows"] if rows else ["fused"] if fused else ["fused", "sum"])
        f = same_bits([x], [gd.sum(gd.square(x), axis=1)], draw_arrays([x]))
        assert names(f) == (["rows"] if rows else ["fused"] if fused else ["square", "sum"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1,), (5, 7), (3, 512), (4, 513), (2, 4096), (3, 4097), (1, 20_000), (2, 3, 9000), (700, 3), (1, 1, 5)])
def test_sums_of_rows_and_of_everything_are_taken_on_the_way(shape, dtype, monkeypatch):
    monkeypatch.setattr("graphdiff.lower.fuse.SHORT_ROW", 0)      # short rows too: they are right, if slower
    x, row, column = gd.input("x", shape, dtype), gd.input("row", shape[-1:], dtype), gd.input("column", (*shape[:-1], 1), dtype)
    y, z = gd.tanh(x) * row, gd.exp(x - column)
    inputs, arrays = [x, row, column], draw_arrays([x, row, column])
    for threads in (1, 2):
        same_bits(inputs, [gd.sum(y, axis=-1), gd.sum(z, axis=-1, keepdims=True), y], arrays, threads=threads)
        same_bits(inputs, [gd.sum(y), gd.sum(z), gd.sum(y * z, axis=0)], arrays, threads=threads)
        f = same_bits([x], [gd.mean(gd.square(x)), gd.grad(gd.mean(gd.square(x)), x)], arrays[:1], threads=threads)
    if x.size >= 8:                              # smaller ones are not worth waiting behind
        assert names(f) == ["fused", "divide"]
    mean = gd.mean(x, axis=-1, keepdims=True)
    same_bits([x], [(x - mean) / gd.sqrt(gd.mean(gd.square(x - mean), axis=-1, keepdims=True) + 1e-5)], arrays[:1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40_000,), (300, 301), (3, 100, 200)])
def test_what_waits_for_a_sum_is_computed_behind_it(shape, dtype):
    """Factors of a product with a number that a sum gives are not stored until it is known: nothing as large as an array is."""
    x, y = gd.input("x", shape, dtype), gd.input("y", shape, dtype)
    for z in (gd.norm(x), gd.norm(x) * gd.norm(y), gd.norm(x) / gd.norm(y)):
        used = [x] if z.op.name == "where" else [x, y]
        f = same_bits([x, y], gd.grad(z, used), draw_arrays([x, y]))
        assert f.plan.arena_nbytes < 1000
    kept = same_bits([x, y], [gd.grad(gd.norm(x), x), 2.0 * x, gd.sum(gd.exp(y)) * (3.0 * y)], draw_arrays([x, y]))
    assert kept.plan.arena_nbytes < 1000
    turned = gd.input("t", (150, 250), dtype)
    g = gd.grad(gd.norm(turned.T.reshape(-1)), turned)
    same_bits([turned], [g, gd.norm(turned) * (turned * 3.0).T], draw_arrays([turned]))
    product = gd.sum(square := turned * turned) * gd.sum(gd.matmul(2.0 * turned, turned.T), axis=1)[:, None] + 3.0 * square
    same_bits([turned], product, draw_arrays([turned]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
def test_a_product_with_itself_is_a_square(dtype):
    """Of floats it is told as one, so that a sum of x x has the loop of a sum of squares; the bits are those of the product."""
    for n in (1, 7, 1000, 30_000):
        x = gd.input("x", (n,), dtype)
        a = (rng.standard_normal(n) * 9).astype(dtype)
        a[:3] = np.array([0, -0.0, 3]).astype(dtype)[:n]
        f = same_bits([x], [x * x, gd.sum(x * x), x * x + x * 2], [a])
        assert f(a)[0].tobytes() == (a * a).tobytes()
        if dtype in ("float32", "float64"):
            total = gd.sum(x * x)
            g, h = gd.function([x], total), gd.function([x], gd.sum(gd.square(x)))
            assert g(a).tobytes() == h(a).tobytes()
            assert [instr[0] for instr in g.program.instrs] == [instr[0] for instr in h.program.instrs]
            assert "square" in str(g.program) and "multiply" not in str(g.program)


def test_both_derivatives_of_a_maximum_share_the_ties():
    x, y = gd.input("x", (1000,)), gd.input("y", (1000,))
    for f in (gd.maximum, gd.minimum):
        got = same_bits([x, y], gd.grad(gd.sum(f(x, y)), [x, y]), [np.round(a) for a in draw_arrays([x, y])])
        assert names(got) == ["fused"] and len(got.program.instrs[0][3]) == 6


def test_what_counts_ties_is_a_mask():
    x = gd.input("x", (300, 300), "float32")
    for axis in (0, 1, None):
        f = same_bits([x], gd.grad(gd.sum(gd.max(x, axis=axis)), x), [np.round(a) for a in draw_arrays([x])])
        assert f.plan.arena_nbytes < 2 * 300 * 300


def test_large_groups_are_split():
    """More values than the C core has room for, and more operations."""
    x = gd.input("x", (64,))
    many = [gd.sin(x * float(i)) for i in range(70)]
    f = same_bits([x], [*many, sum(many)], draw_arrays([x]))
    assert names(f).count("fused") > 2
    y = x
    for i in range(900):
        y = y * 1.001 if i % 2 else gd.sin(y)
    f = same_bits([x], [y], draw_arrays([x]))
    assert 4 <= names(f).count("fused") <= 6
    wide = [gd.input(f"x{i}", (50,)) for i in range(60)]
    same_bits(wide, [sum(w * float(i) for i, w in enumerate(wide)), *[gd.exp(w) for w in wide[::3]]], draw_arrays(wide))


def test_a_group_runs_in_place_where_nobody_reads_later():
    x = gd.input("x", (1000,))
    h = gd.cumsum(x)                              # a value that lives in the arena
    f = same_bits([x], [gd.cumsum(gd.exp(h) * 2 + h)], draw_arrays([x]))
    assert names(f) == ["cumsum", "fused", "cumsum"] and f.plan.arena_nbytes == 8000
    k = gd.cumsum(x)
    same_bits([x], [gd.cumsum(gd.tanh(k) * 2) - gd.cumsum(k * gd.tanh(k))], draw_arrays([x]))


def test_scattered_writes_are_not_overtaken():
    x = gd.input("x", (30,))
    h = gd.exp(x) * 2
    y = gd.concatenate([h, gd.sin(h) + 1, h * h])
    same_bits([x], [y * y + 1, gd.sum(y), y.at[3:5].set(0.0) * 2], draw_arrays([x]))


def test_updates_of_variables_see_the_old_values():
    w, v = gd.variable(np.arange(500.0), "w"), gd.variable(np.ones(500), "v")
    x = gd.input("x", (500,))
    g = gd.grad(gd.sum(gd.square(w * x)), w)
    step = gd.function([x], gd.sum(w), updates={v: 0.9 * v + g, w: w - 0.1 * (0.9 * v + g)})
    assert "fused" in names(step)
    data = rng.standard_normal(500)
    a, b = np.arange(500.0), np.ones(500)
    for _ in range(3):
        step(data)
        b = 0.9 * b + 2 * a * data * data
        a = a - 0.1 * b
    np.testing.assert_allclose(w.value, a, rtol=1e-12)
    np.testing.assert_allclose(v.value, b, rtol=1e-12)


@pytest.mark.parametrize("n", [900_000, 800_003])
def test_lines_of_the_next_block_are_asked_for(n):
    """Groups of functions over more than the last cache holds, whose last block is short."""
    inputs, y = chain(n)
    f = same_bits(inputs, [y, *gd.grad(y, inputs, cotangent=gd.ones_like(y))], draw_arrays(inputs))
    assert names(f) == ["fused"]
    x = gd.input("x", (n, 2, 3), "float32")
    same_bits([x], [gd.sin(x[:, ::-1]) * gd.cos(x), gd.tanh(x[::-1])], draw_arrays([x]))


def test_bits_do_not_depend_on_threads():
    inputs, outputs = layer(500, 1000)
    arrays = draw_arrays(inputs)
    one, two = (gd.function(inputs, outputs, threads=t)(*arrays) for t in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert a.tobytes() == b.tobytes()


def test_profile_and_picture_name_every_node():
    inputs, y = chain(100)
    f = gd.function(inputs, y)
    (row,) = f.profile(*draw_arrays(inputs))
    assert row["op"] == "fused" and {n.op.name for n in row["nodes"]} == {"tanh", "sigmoid", "multiply", "negative", "exp", "add"}
    assert all(n.site.file == __file__ for n in row["nodes"])
    assert f.program.nodes(0) == row["nodes"] and next(op for op, _ in f.program.members(0)) == "tanh"
    assert len(f.plan.order) == len(row["nodes"])
    assert "tanh" in gd.draw(f).dot and "sigmoid" in gd.draw(f).dot
    total = gd.function(inputs, gd.sum(y))
    assert names(total) == ["fused"] and "sum" in gd.draw(total).dot and total.profile(*draw_arrays(inputs))[0]["nodes"][-1].op == "sum"


@pytest.mark.parametrize("n", [8_000_000, 8_000_013])
def test_large_results_are_streamed(n):
    """Results of more bytes than caches hold are written past them: arrays at any alignment, threads, one op or a group."""
    x = gd.input("x", (n,), "float32")
    a = rng.standard_normal(n + 5).astype("float32")[5:]
    out = np.empty(n + 1, "float32")[1:]
    for y in (gd.relu(x), gd.relu(x) * 2 + x):
        for threads in (1, 2):
            f = gd.function([x], y, threads=threads)
            want = np.maximum(a, 0) if y.op == "relu" else np.maximum(a, 0) * np.float32(2) + a
            np.testing.assert_array_equal(f(a), want)
            f(a, out=out)
            np.testing.assert_array_equal(out, want)
            checked(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "arctan2"])
def test_large_results_of_functions_are_streamed(name, dtype):
    """Functions by themselves ask for what they read ahead: the bits are those of pieces."""
    n = 5_000_011 if dtype == "float32" else 2_500_011
    inputs = [gd.input(k, ("n",), dtype) for k in ("x", "y")[:1 + (name == "arctan2")]]
    arrays = [rng.standard_normal(n + 1).astype(dtype)[1:] for _ in inputs]
    for threads in (1, 2):
        f = gd.function(inputs, getattr(gd, name)(*inputs), threads=threads)
        whole = f(*arrays)
        for at in (0, n // 2 - 511, n - 1000):
            assert whole[at:at + 1000].tobytes() == f(*[a[at:at + 1000] for a in arrays]).tobytes()
            checked()


@pytest.mark.parametrize("n", [2_000_000, 2_000_013])
def test_several_large_results_are_streamed(n):
    """So are several of one group, whatever their alignment, but not one that is written over an operand; the bits are those of
    small pieces of the arrays, which no cache is too small for."""
    inputs, y = chain(n)
    g = gd.input("g", (n,), "float32")
    outputs = [y, *gd.grad(y, inputs, cotangent=g)]
    arrays = [rng.standard_normal(n + 3).astype("float32")[3:] for _ in range(4)]
    small, outputs_small = chain(1000)
    h = gd.input("g", (1000,), "float32")
    piece = gd.function([*small, h], [outputs_small, *gd.grad(outputs_small, small, cotangent=h)])
    for threads in (1, 2):
        f = gd.function([*inputs, g], outputs, threads=threads)
        assert names(f) == ["fused"]
        out = [np.empty(n + 1, "float32")[1:] for _ in outputs]
        f(*arrays, out=out)
        for at in (0, n // 2 - 511, n - 1000):
            want = piece(*[a[at:at + 1000] for a in arrays])
            for mine, theirs in zip(out, want, strict=True):
                assert mine[at:at + 1000].tobytes() == theirs.tobytes()
                checked()
        for mine, theirs in zip(f(*arrays), out, strict=True):
            assert mine.tobytes() == theirs.tobytes()


def test_large_states_are_updated_in_place_beside_streamed_results():
    n = 3_000_007
    w, v = gd.variable(rng.standard_normal(n).astype("float32")), gd.variable(np.zeros(n, "float32"))
    x = gd.input("x", (n,), "float32")
    a, b, c = w.value.copy(), v.value.copy(), rng.standard_normal(n).astype("float32")
    moved = 0.5 * v + x
    step = gd.function([x], gd.tanh(w) * x, updates={v: moved, w: w - 0.25 * moved}, threads=2)
    for _ in range(2):
        y = step(c)
        np.testing.assert_allclose(y, np.tanh(a.astype("float64")) * c, rtol=3e-7)
        b = np.float32(0.5) * b + c
        a = a - np.float32(0.25) * b
        np.testing.assert_array_equal(v.value, b)
        np.testing.assert_array_equal(w.value, a)
        checked(3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "float16"])
@pytest.mark.parametrize("n", [1, 63, 1000, 70_001])
def test_loops_that_take_one_value_have_the_bits_of_those_that_take_blocks(n, dtype):
    """Numbers and scalar inputs beside arrays: in every place of one or two operations, twice in one place, and where one is
    wanted as a block too."""
    x, y = gd.input("x", (n,), dtype), gd.input("y", (n,), dtype)
    s, t = gd.input("s", (), dtype), gd.input("t", (), dtype)
    outputs = [2 * x + 1, x * 2 - 1, 1 - x * 3, (x + 1) * 2, 3 - (1 - x), (x - 1) - 2, (2 - x) * 3, s * x + t, (x * s) * t, t - (s + x),
               s * x + s, (s + x) * (s - y), x * y + t, (s * t) + x, gd.maximum(s, t) + x, (x * s + t) * (y * s + t), gd.clip(x, s, t) * s]
    if dtype == "uint8":
        outputs = [y for y in outputs if y.dtype == "uint8"][:3]
    arrays = [(rng.standard_normal(n) * 9).astype(dtype), (rng.standard_normal(n) * 9).astype(dtype), np.array(3, dtype), np.array(5, dtype)]
    for y_ in outputs:
        same_bits([x, y, s, t], [y_], arrays)
    same_bits([x, y, s, t], outputs, arrays)
    rows, column = gd.input("r", (40, max(n // 40, 1)), dtype), gd.input("c", (40, 1), dtype)
    same_bits([rows, column], [rows * column + column, 1 - rows * column, (rows + 2) * column],
              [(rng.standard_normal(rows.shape) * 9).astype(dtype), (rng.standard_normal((40, 1)) * 9).astype(dtype)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, some", [(7, 3), (100, 60), (4000, 1), (4000, 3999)])
def test_sums_of_slices_of_a_group_are_sums_of_slices(rows, some, dtype):
    """A slice from the beginning has the buffer, the offset and the strides of the whole, but is not what the group runs over."""
    x, y = gd.input("x", (rows, 8), dtype), gd.input("y", (2, rows, 8), dtype)
    d = gd.exp(x) * x
    total = gd.sum(d[:some])
    outputs = [total, *gd.grad(total, [x]), gd.sum(d[some:]), gd.sum(d[:some], axis=1), d * 2, gd.sum((x * y)[0]), gd.mean((x * y)[:1]),
               gd.sum(d.reshape(-1)[:some])]
    arrays = [rng.standard_normal(s.shape).astype(dtype) for s in (x, y)]
    f = same_bits([x, y], outputs, arrays)
    a = arrays[0].astype("float64")
    want, got = np.exp(a) * a, f(*arrays)
    np.testing.assert_allclose(got[0], want[:some].sum(), rtol=1e-5)
    np.testing.assert_allclose(got[2], want[some:].sum(), rtol=1e-5)
    np.testing.assert_allclose(got[1][:some], (np.exp(a) * (1 + a))[:some], rtol=1e-4, atol=1e-5)
    assert not got[1][some:].any()
    checked(4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loops_of_many_values_on_rows_that_lie_apart(dtype):
    """One operand in several places of an expression that is one loop, row by row."""
    whole, s = gd.input("x", (300, 64), dtype), gd.input("s", (), dtype)
    x = whole[:, :40]
    zmul_either = gd.ops.binary.zmul_either
    a = [np.abs(rng.standard_normal((300, 64))).astype(dtype), np.array(0.25, dtype)]
    for y in (x - (s * x) / (gd.sqrt(x) + s), s * x + s * gd.square(x), zmul_either(x, x) - zmul_either(x, x + 0), zmul_either(x, whole[:, 1:41])
              - zmul_either(x, whole[:, 2:42]), gd.relu(x) * s, gd.grad(gd.relu(x), x, cotangent=whole[:, 3:43])):
        same_bits([whole, s], [y], a)
