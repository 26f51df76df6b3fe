"""The kernels and lowerings that special shapes take: b packed once for all rows, 10 and 12 rows at a time, depthwise 3 x 3,
convolution of one tap, pooling of a whole plane. Values against NumPy, and the same bits for any number of threads."""
import itertools

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.ops import conv_products
from graphdiff.runtime.reference import reference


def rand(*shape, dtype="float64", seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def nodes(*arrays):
    return [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]


def same_bits_by_threads(outputs, feeds):
    """The values, after a look that two threads give the bits of one."""
    one, two = (gd.function(list(feeds), outputs, threads=n)(*feeds.values()) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert a.tobytes() == b.tobytes()
    return one


TOLERANCE = {"float32": 2e-5, "float64": 2e-14}

# Many rows share a packed b; b beyond 64 MB is not asked for. 1100 columns are two blocks, 5000 are several.
PRODUCTS = [(300, 700, 600), (513, 31, 2000), (257, 1100, 530), (1030, 515, 90), (130, 5000, 64), (8, 300, 8300), (700, 9, 600),
            (520, 104, 330), (300, 77, 1), (40, 3000, 1), (5, 100, 1),
            # one tile of 10 or 12 rows, and the rows around them; powers of two apart or not; with and without a tail
            *itertools.product((9, 10, 11, 12, 13, 18, 20), (64, 70), (40, 512)), (64, 10, 512), (100, 5, 700), (90, 9, 333),
            # few rows, whose first tile packs b for the others
            (64, 530, 784), (16, 1030, 1100), (9, 700, 2060), (41, 1000, 1200),
            # and rows of a b that comes from memory, read in their order; 2 to 4 rows
            (5, 1030, 1100), (7, 523, 2100), (11, 1600, 2000), (16, 3100, 1030), (2, 131, 70), (3, 200, 1030), (4, 64, 9)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, n, k", PRODUCTS)
def test_products_of_every_layout(m, n, k, dtype):
    a, b = rand(m, k, dtype=dtype), rand(k, n, dtype=dtype, seed=1)
    want = a.astype(float) @ b.astype(float)
    bound = TOLERANCE[dtype] * (np.abs(a).astype(float) @ np.abs(b).astype(float))
    for turn_a, turn_b, turn_c in itertools.product((False, True), repeat=3):
        feeds = [a.T.copy() if turn_a else a, b.T.copy() if turn_b else b]
        x, y = nodes(*feeds)
        product = (x.T if turn_a else x) @ (y.T if turn_b else y)
        (value,) = same_bits_by_threads([product.T if turn_c else product], {x: feeds[0], y: feeds[1]})
        assert (np.abs((value.T if turn_c else value) - want) <= bound).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [5, 6, 7, 9, 14, 16, 20, 31, 64])
def test_rows_have_the_bits_they_have_alone(m, dtype):
    a, b = rand(m, 1500, dtype=dtype), rand(1500, 1100, dtype=dtype, seed=1)
    x, w = nodes(a, b)
    f = gd.function([x, w], gd.matmul(x, w))
    some = gd.function([x, w], gd.matmul(x[:4], w))(a, b)
    assert f(a, b)[:4].tobytes() == some.tobytes()
    assert f(a[::-1], b)[::-1][:4].tobytes() == some.tobytes()
    columns = gd.function([x, w], gd.matmul(x, w[:, :40]))(a, b)        # not as large
    assert f(a, b)[:, :40].tobytes() == columns.tobytes()


@pytest.mark.parametrize("batch, n", [((3,), 40), ((2, 3), 600)])
def test_a_batch_of_products_shares_nothing_it_should_not(batch, n):
    a, b = rand(*batch, 260, 300), rand(*batch, 300, n, seed=1)
    x, y = nodes(a, b)
    (value,) = same_bits_by_threads([x @ y], {x: a, y: b})
    for at in np.ndindex(*batch):                       # every product by itself, bit for bit
        p, q = nodes(a[at], b[at])
        assert value[at].tobytes() == gd.function([p, q], p @ q)(a[at], b[at]).tobytes()


TINY = [(4, 4, 4), (3, 3, 3), (4, 4, 1), (1, 4, 4), (2, 2, 2), (5, 5, 5), (5, 3, 6), (2, 1, 7), (1, 8, 3), (7, 8, 1), (16, 2, 2), (4, 9, 4), (6, 6, 6),
        (1, 5, 1), (8, 8, 8)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_bits_do_not_depend_on_where_in_a_line_of_memory_a_matrix_starts(m, dtype):
    a, b = rand(m, 300, dtype=dtype), rand(300, 272, dtype=dtype, seed=1)          # rows of whole lines
    room = np.empty(b.size + 32, dtype)
    first = -room.ctypes.data % 64 // b.itemsize
    for columns in (272, 261, 130, 70):
        x, w = nodes(a, b)
        f = gd.function([x, w], x @ w[:, :columns])
        values = []
        for start in range(first, first + 64 // b.itemsize):
            moved = room[start:start + b.size].reshape(b.shape)
            moved[...] = b
            values.append(f(a, moved))
        np.testing.assert_allclose(values[0], a.astype(float) @ b[:, :columns].astype(float), rtol=0, atol=1e-3 if dtype == "float32" else 1e-11)
        assert all(v.tobytes() == values[0].tobytes() for v in values)


def odd_values(*shape, dtype, seed):
    """Some of them infinite, no number, or zeros of either sign."""
    x, where = rand(*shape, dtype=dtype, seed=seed), np.random.default_rng([seed, 1]).random(shape)
    for value, least in ((np.inf, 0.98), (-np.inf, 0.97), (np.nan, 0.96), (-0.0, 0.8)):
        x[(where > least) & (where < least + 0.02)] = value
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, k, n", TINY)
def test_many_tiny_products_have_the_bits_of_each_alone(m, k, n, dtype):
    """Whichever way the operands lie: turned, backwards, with gaps, one of them the same for all, the result turned."""
    batch = 67
    a, b = odd_values(batch, m, k, dtype=dtype, seed=1), odd_values(batch, k, n, dtype=dtype, seed=2)
    p, q = nodes(a[0], b[0])
    alone = gd.function([p, q], p @ q)
    want = np.stack([alone(s, t) for s, t in zip(a, b, strict=True)])
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(want, a @ b, rtol=1e-4, atol=1e-5)
    ways = [(lambda x: x, lambda x: x), (lambda x: x.swapaxes(1, 2).copy(), lambda x: x.swapaxes(1, 2)),
            (lambda x: x[::-1, ::-1, ::-1].copy(), lambda x: x[::-1, ::-1, ::-1]), (lambda x: np.repeat(x, 2, axis=2), lambda x: x[:, :, ::2])]
    for (put_a, get_a), (put_b, get_b) in itertools.product(ways, repeat=2):
        feeds = [put_a(a), put_b(b)]
        x, y = nodes(*feeds)
        product = get_a(x) @ get_b(y)
        dense, turned = same_bits_by_threads([product, product.swapaxes(1, 2)], {x: feeds[0], y: feeds[1]})
        for value in (dense, turned.swapaxes(1, 2)):
            np.testing.assert_array_equal(value, want)
            assert (np.signbit(value) == np.signbit(want))[~np.isnan(want)].all()
    x, y = nodes(a[3], b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(gd.function([x, y], gd.broadcast_to(x, (batch, m, k)) @ y)(a[3], b), a[3] @ b, rtol=1e-4, atol=1e-5)


def gradients(y, x, w, cotangent):
    return [y, *gd.grad(y, [x, w], cotangent=cotangent)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spatial, padding", [((9, 21), 1), ((1, 1), 1), ((1, 40), 1), ((2, 33), 1), ((3, 16), 0), ((7, 17), 2),
                                              ((6, 5), ((2, 0), (0, 1)))])
def test_depthwise(spatial, padding, dtype, conv_kernels):
    x, w = rand(2, 5, *spatial, dtype=dtype), rand(5, 1, 3, 3, dtype=dtype, seed=1)
    p, q = nodes(x, w)
    y = gd.conv(p, q, padding=padding, groups=5)
    c = rand(*y.shape, dtype=dtype, seed=2)
    outputs = gradients(y, p, q, gd.constant(c))
    got = same_bits_by_threads(outputs, {p: x, q: w})
    for value, want in zip(got, reference(outputs, {p: x.astype(dtype), q: w}), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e3 * TOLERANCE[dtype], atol=30 * TOLERANCE[dtype])


def test_depthwise_has_the_bits_of_the_general_kernel(conv_kernels):
    x, w = rand(2, 1, 11, 37, dtype="float32"), rand(2, 1, 3, 3, dtype="float32", seed=1)
    p, q = nodes(x, w)
    both = gd.function([p, q], gd.conv(p, q, padding=1))(x, w)
    for m in range(2):
        one = gd.function([p, q], gd.conv(p, q[m:m + 1], padding=1))(x, w)
        assert one[:, 0].tobytes() == both[:, m].tobytes()


def test_depthwise_weights_see_infinities_where_they_stand_only(conv_kernels):
    x, w = np.ones((1, 1, 6, 20)), np.ones((1, 1, 3, 3))
    x[0, 0, 0, 0] = x[0, 0, 5, 19] = np.inf             # corners: each is seen by four of the taps
    p, q = nodes(x, w)
    value = gd.function([p, q], gd.grad(gd.sum(gd.conv(p, q, padding=1)), q))(x, w)[0, 0]
    infinite = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert np.isinf(value).tolist() == np.array(infinite, bool).tolist() and not np.isnan(value).any()


def listing(outputs, *inputs):
    return str(gd.function(list(inputs), outputs).program)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape, filters", [((3, 5, 9, 10), 7), ((1, 3, 70), 4), ((2, 3, 4, 5, 6), 4), ((2, 40, 8, 8), 24)])
def test_convolution_of_one_tap_is_a_product(shape, filters, dtype):
    x, w = rand(*shape, dtype=dtype), rand(filters, shape[1], *(1,) * (len(shape) - 2), dtype=dtype, seed=1)
    p, q = nodes(x, w)
    y = gd.conv(p, q)
    outputs = gradients(y, p, q, gd.constant(rand(*y.shape, dtype=dtype, seed=2)))
    assert listing(outputs, p, q).count("matmul") == 3
    tolerance = 2e-2 if dtype == "float16" else 1e3 * TOLERANCE[dtype]
    for value, want in zip(same_bits_by_threads(outputs, {p: x, q: w}), reference(outputs, {p: x, q: w}), strict=True):
        assert value.dtype == dtype
        np.testing.assert_allclose(value.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 1}, {"groups": 2}, {"kernel": 2}])
def test_other_convolutions_are_no_product_of_every_image(options, monkeypatch):
    monkeypatch.setattr(conv_products, "_images", lambda *_: 0)      # nor one of all images with columns
    x, w = gd.input("x", (2, 4, 10, 10)), gd.input("w", (4, 4 // options.get("groups", 1), *(options.pop("kernel", 1),) * 2))
    y = gd.conv(x, w, **options)
    assert "matmul" not in listing(gradients(y, x, w, gd.constant(np.ones(y.shape))), x, w)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("plane", [(7, 7), (8, 8), (5,), (2, 3, 4), (1, 1)])
def test_pooling_of_a_whole_plane_is_a_reduction(plane, dtype):
    x = np.random.default_rng(0).integers(-3, 4, (2, 3, *plane)).astype(dtype)      # many equals: the first one counts
    x[1, 2].flat[x[1, 2].size // 2:] = np.nan
    (p,) = nodes(x)
    flat, c = x.reshape(2, 3, -1), rand(2, 3, dtype=dtype)
    first = np.arange(flat.shape[-1]) == flat.argmax(-1)[..., None]
    for pool, words, value, share in ((gd.max_pool, ("max ", "argmax"), flat.max(-1), first),
                                      (gd.avg_pool, ("sum",), flat.mean(-1), np.full(flat.shape, 1 / flat.shape[-1]))):
        y = pool(p, plane)
        outputs = [y, gd.grad(y, p, cotangent=gd.constant(c.reshape(y.shape)))]
        text = listing(outputs, p)
        assert "pool " not in text and "pool_" not in text.replace("pool_index", "") and all(word in text for word in words)
        got, gradient = same_bits_by_threads(outputs, {p: x})
        np.testing.assert_allclose(got.reshape(2, 3), value, rtol=1e-6)
        np.testing.assert_allclose(gradient.reshape(flat.shape), c[..., None] * share, rtol=1e-6)


@pytest.mark.parametrize("pool, options", [(gd.max_pool, {"padding": 1}), (gd.avg_pool, {"padding": 1}), (gd.max_pool, {"stride": 1})])
def test_pooling_of_a_padded_plane_is_none(pool, options):
    (p,) = nodes(np.zeros((2, 3, 4, 4)))
    assert "pool" in listing([pool(p, 4 if "padding" in options else 3, **options)], p).split(";")[0]


@pytest.mark.parametrize("columns", [16, 32, 48, 100, 128, 256, 300, 1024])
def test_rows_taken_by_index(columns):
    table, index = rand(50, columns, dtype="float32"), np.random.default_rng(1).integers(-50, 50, 77)
    t, i = nodes(table, index)
    (value,) = same_bits_by_threads([gd.take(t, i, axis=0)], {t: table, i: index})
    assert np.array_equal(value, table[index])


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_to_a_constant_power_are_products(dtype):
    a = np.array([0, 1, 2, 3, 7, 100, 255], dtype) if dtype == "uint8" else np.array([0, 1, -1, 2, -3, 12345, np.iinfo(dtype).min], dtype)
    x = gd.input("x", a.shape, dtype)
    for n in (0, 1, 2, 3, 4, 5, 7, 31, 32, 63, 64, 100):
        for exponent in (n, np.array(n, dtype), np.full((2, 1), n, dtype), np.full((1, 1), n, dtype)):
            y = x ** exponent
            for passes in (None, ()):
                f = gd.function([x], y, passes=passes)
                assert np.array_equal(f(a), a ** exponent) and f(a).shape == (a ** exponent).shape, (n, passes)
    assert "int_power" not in str(gd.function([x], x ** 3).program)
    s = gd.input("s", (), dtype)
    assert gd.evaluate(s ** 5, {s: a[3]}) == a[3] ** 5


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("n", [1, 5, 8, 9, 15, 16, 17, 31, 33, 40, 49, 63, 65, 100, 1000, 20_000, 300_000])
def test_extremes_and_their_places(n, dtype):
    """A scan that stops early, or leaves NaNs out first, sees what one to the end sees."""
    r = np.random.default_rng(n)
    rows = [r.integers(0, 2, n), np.zeros(n), np.ones(n), r.integers(0, 200, n), r.integers(0, 256, n)]
    for at in (0, n // 3, n - 1):
        for low, edge in ((0, 1), (1, 0), (7, 255), (7, 0)):
            rows.append(np.full(n, low))
            rows[-1][at] = edge
    x = np.array(rows).astype(dtype)
    if dtype.startswith("float"):
        odd = [np.full(n, v) for v in (0.0, 1.0, -np.inf, np.inf)]
        for y, (at, v) in itertools.product(list(odd), itertools.product((0, n // 2, n - 1), (np.nan, -np.inf, np.inf, -0.0, -np.nan))):
            odd.append(y.copy())
            odd[-1][at] = v
            odd.append(odd[-1].copy())
            odd[-1][n - 1 - at // 2] = np.nan
        x = np.concatenate([x, np.array(odd, dtype)])
    node = gd.input("x", x.shape, dtype)
    with np.errstate(all="ignore"):
        for op in ("argmax", "argmin", "max", "min", "any", "all"):
            (value,) = same_bits_by_threads([getattr(gd, op)(node, axis=1)], {node: x})
            np.testing.assert_array_equal(value, getattr(np, op)(x, axis=1))
            for i in range(0, len(x), 7):
                line = gd.input("x", (n,), dtype)
                np.testing.assert_array_equal(gd.function([line], getattr(gd, op)(line))(x[i]), getattr(np, op)(x[i]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, n, k", [(2, 17, 17), (1, 33, 5), (3, 7, 100), (4, 64, 64), (1, 64, 64)])
def test_no_pass_changes_the_order_in_which_a_product_of_few_rows_adds(m, n, k, dtype):
    """Such a product adds in lanes along a right operand that lies transposed, so that layouts show in its last bits."""
    a, b = rand(m, k, dtype=dtype), rand(n, k, dtype=dtype, seed=1)
    x, w = nodes(a, b)
    constant, one = gd.constant(b), gd.constant(np.ones((), dtype))
    rights = [w.T, 1.0 * w.T, gd.zmul(one, w.T), gd.negative(-w.T), w.T / 1, w.T - 0.0, gd.reshape(gd.reshape(w.T, (-1,)), (k, n)), constant.T,
              2.0 * constant.T, gd.swapaxes(gd.swapaxes(w.T, 0, 1) * 1.0, 0, 1)]
    outputs = [x @ right for right in rights] + [gd.einsum("ij,kj->ik", x, 1.0 * w)]
    plain = gd.function([x, w], outputs, passes=())(a, b)
    for passes in (("merge", "algebra", "fold", "in_place", "fuse"), ("algebra",), ("fold",)):
        for value, want in zip(gd.function([x, w], outputs, passes=passes)(a, b), plain, strict=True):
            assert value.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17])
def test_sums_of_few_long_rows_have_the_bits_of_sums_of_many_short_ones(rows, dtype):
    x = (100 * rand(rows, 301)).astype(dtype)
    if x.dtype.kind == "f":
        x[:, 3], x[:, 4] = -0.0, 0.0
        x[-1, 5] = np.nan
    flat = x.T.copy()
    for name in ("sum", "prod"):
        (p,), (q,) = nodes(x), nodes(flat)
        (down,) = same_bits_by_threads([getattr(gd, name)(p, axis=0, dtype=dtype)], {p: x})
        along = gd.function([q], getattr(gd, name)(q, axis=1, dtype=dtype))(flat)
        sliced = gd.function([p], getattr(gd, name)(p[:, 1:290:3], axis=0, dtype=dtype))(x)
        assert down.tobytes() == along.tobytes() and down[1:290:3].tobytes() == sliced.tobytes()
        wide = x.astype("float64") if dtype == "float32" else x
        np.testing.assert_allclose(down, getattr(np, name)(wide, axis=0, dtype=wide.dtype).astype(dtype), rtol=2e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("n", [*range(1, 35), 47, 100])
def test_short_lines_have_the_bits_of_columns_and_of_gathered_lines(n, dtype):
    """Whether lines are turned, read under masks or gathered: one order of additions, and the sign of zero that it gives."""
    a = (100 * rand(37, n)).astype(dtype)
    a[3] = 0
    if a.dtype.kind == "f":
        a[4] = -0.0
        a[5, n // 2], a[6, -1] = np.inf, np.nan
    wide = np.zeros((37, 2 * n), dtype)
    wide[:, ::2] = a
    x, across, apart = gd.input("x", a.shape, dtype), gd.input("y", a.T.shape, dtype), gd.input("z", wide.shape, dtype)
    for op in (gd.sum, gd.prod, gd.max, gd.min) if dtype != "uint8" else (gd.sum, gd.max, gd.min):
        f = gd.function([x, across, apart], [op(x, axis=1), op(across, axis=0), op(apart[:, ::2], axis=1)])
        one, two, three = f(a, np.ascontiguousarray(a.T), wide)
        assert one.tobytes() == two.tobytes() == three.tobytes()
        with np.errstate(invalid="ignore", over="ignore"):
            want = getattr(np, op.__name__)(a.astype(one.dtype), axis=1)
        np.testing.assert_allclose(one, want, rtol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(300, 5000), (5000, 300), (2, (1 << 20) + 77), (1100, 1024)])
def test_sums_of_arrays_beyond_the_caches_have_the_bits_of_sums_of_pieces(shape, dtype):
    x = (100 * rand(*shape)).astype(dtype)
    (p,), (q,) = nodes(x), nodes(x.T.copy())
    along, all_of_it = same_bits_by_threads([gd.sum(p, axis=1), gd.sum(p)], {p: x})
    down = gd.function([q], gd.sum(q, axis=0))(x.T.copy())
    few = np.concatenate([gd.function([r], gd.sum(r, axis=1))(x[i:i + 40]) for i in range(0, len(x), 40) for r in nodes(x[i:i + 40])])
    assert along.tobytes() == down.tobytes() == few.tobytes()
    exact = x.astype("float64").ravel()
    assert abs(float(all_of_it) - exact.sum()) <= (1e-6 if dtype == "float32" else 1e-13) * np.abs(exact).sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(128, 128), (300, 257), (129, 512), (4100, 130), (640, 2100)])
def test_sums_of_columns_have_the_bits_of_sums_of_rows_wherever_in_a_line_they_start(shape, dtype):
    a = rand(*shape, dtype=dtype)
    x, t = nodes(a, np.ascontiguousarray(a.T))
    want = gd.function([t], [gd.sum(t, axis=1), gd.prod(t, axis=1)], threads=1)(np.ascontiguousarray(a.T))
    columns = [gd.function([x], [gd.sum(x, axis=0), gd.prod(x, axis=0)], threads=n) for n in (1, 2)]
    memory = np.empty(a.size + 16, dtype)
    for start in range(16):
        here = memory[start:start + a.size].reshape(shape)
        here[...] = a
        for f in columns:
            for one, two in zip(f(here), want, strict=True):
                assert one.tobytes() == two.tobytes()
    np.testing.assert_allclose(want[0], a.astype(np.longdouble).sum(0).astype(dtype), rtol=0, atol=1e-3 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(70_000,), (300, 1000), (2, 40_000), (20_000, 3), (9, 5, 70), (0, 4), (600, 64)])
def test_counts_and_sums_of_small_integers(shape, dtype):
    """Lanes of a byte overflow after 255 rows; NaN is no zero, -0 is one."""
    r = np.random.default_rng(7)
    full = np.full(shape, 255 if dtype == "uint8" else -np.iinfo(dtype).max if dtype.startswith("int") else 1).astype(dtype)
    mixed = r.integers(0, 3, shape).astype(dtype)
    if dtype.startswith("float"):
        mixed[mixed == 2] = np.nan
        mixed *= -1
    for x, axis in itertools.product((full, mixed), (None, 0, -1)):
        node = gd.input("x", x.shape, dtype)
        flipped = node[::-1, ..., ::2] if len(shape) > 1 else node[::-1]
        view = x[::-1, ..., ::2] if len(shape) > 1 else x[::-1]
        wanted = [(gd.count_nonzero(node, axis), np.count_nonzero(x, axis)), (gd.count_nonzero(flipped, axis), np.count_nonzero(view, axis))]
        if not dtype.startswith("float"):
            wanted += [(gd.sum(node, axis), np.sum(x, axis, dtype="int64")), (gd.sum(flipped, axis), np.sum(view, axis, dtype="int64"))]
        for got, (_, want) in zip(same_bits_by_threads([n for n, _ in wanted], {node: x}), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
@pytest.mark.parametrize("shape", [(70_000,), (300, 1000), (2, 40_000), (20_000, 3), (9, 5, 70), (50, 60, 70), (0, 4), (600, 64),
                                   (3, 9000), (700, 2, 16), (11, 20_000)])
def test_means_of_integers_are_exact_sums_rounded_once(shape, dtype):
    """Totals beyond int64 and beyond 2**53, whatever the layout; a float64 sum would round at every step."""
    r = np.random.default_rng(5)
    low, high = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, int(np.iinfo(dtype).max) + 1)
    for x in (r.integers(low, high, shape, endpoint=False, dtype=dtype), np.full(shape, high - 1).astype(dtype), np.full(shape, low).astype(dtype)):
        axes = [a for a in [None, *range(len(shape)), *[(0, k) for k in range(1, len(shape))]] if x.size]
        node = gd.input("x", shape, dtype)
        views = [lambda v: v, lambda v: v.T, lambda v: v[::-1, ..., ::2] if v.ndim > 1 else v[::-2]]
        means = [gd.mean(view(node), axis=a) for view in views for a in axes]
        want = []
        for view in views:
            whole = view(x).astype(object)
            for a in axes:
                total = np.asarray(np.sum(whole, axis=a)).astype("float64")
                want.append(total / (whole.size // max(total.size, 1)))
        for got, exact in zip(same_bits_by_threads(means, {node: x}), want, strict=True):
            np.testing.assert_array_equal(got, exact)


def test_a_mean_of_integers_reads_them_as_they_are_and_cuts_as_before():
    x, y = gd.input("x", (30, 40), "int32"), gd.input("y", (30, 40))
    n = gd.Dim.name("n")
    z = gd.input("z", (n, 4), "int64")
    text = str(gd.function([x], gd.mean(x, axis=0)).program)
    assert "exact_sum" in text and "cast" not in text
    with pytest.raises(gd.errors.GradientError, match="cast cuts the path"):
        gd.grad(gd.mean((y * 3.0).astype("int32")), y)
    assert np.all(gd.function([y], gd.grad(gd.mean(y > 0.0), y, unconnected="zero"))(np.ones((30, 40))) == 0.0)
    a = np.full((5, 4), 2**62, "int64")
    assert gd.function([z], gd.mean(z, where=z > 0))(a) == 2.0**62
    assert np.isnan(gd.function([z], gd.mean(z))(a[:0]))
    assert gd.function([x], gd.mean(x, dtype="float32"))(np.ones((30, 40), "int32")).dtype == "float32"


def test_a_sum_of_what_was_just_made_int64_reads_it_as_it_was():
    x = gd.input("x", (30, 40), "int32")
    for node, kernel in ((gd.sum(x > 0), "count_nonzero"), (gd.sum(x, axis=0), "wide_sum"), (gd.sum(x.astype("uint8")), "wide_sum")):
        text = str(gd.function([x], node).program)
        assert kernel in text and "sum  " not in text.replace("wide_sum", "") and "cast int64" not in text


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 7, 512, 513, 600, 5001, 70_000])
def test_medians(n, dtype):
    """Sorted by networks, or searched for; the middle is in a crowd, between two crowds, beyond int32, or NaN."""
    r = np.random.default_rng(n)
    rows = [r.standard_normal(n) * 40, np.zeros(n), np.arange(n) % 2 * 100.0, np.arange(n) >= (n + 1) // 2, np.arange(n) >= n // 2,
            np.exp(20 * r.standard_normal(n)) % 60_000]
    x = np.array(rows).astype(dtype) if dtype != "uint8" else np.array(rows).astype("int64").astype(dtype)
    if dtype == "int64":
        x = x * 2**40 + r.integers(0, 3, x.shape)
    if x.dtype.kind == "f":
        odd = x.copy()
        odd[:, n // 3] = np.nan
        infinite = x.copy()
        infinite[:, ::2], infinite[:, 1::3] = np.inf, -np.inf
        x = np.concatenate([x, odd, infinite])
    node, turned = gd.input("x", x.shape, dtype), gd.input("y", x.T.shape, dtype)
    with np.errstate(all="ignore"):
        along, down, all_of_it = same_bits_by_threads([gd.median(node, axis=1), gd.median(turned, axis=0), gd.median(node[:2])],
                                                      {node: x, turned: x.T.copy()})
        want = np.median(x.astype("float64") if dtype != "float16" else x, axis=1)
        np.testing.assert_array_equal(along, want.astype(along.dtype))
        np.testing.assert_array_equal(down, along)
        np.testing.assert_array_equal(all_of_it, np.median(x[:2].astype(along.dtype)))


def test_the_derivative_of_a_searched_median():
    x = rand(3, 900)
    node = gd.input("x", x.shape)
    (g,) = same_bits_by_threads([gd.grad(gd.sum(gd.median(node, axis=1)), node)], {node: x})
    order = np.argsort(x, axis=1)
    want = np.zeros_like(x)
    np.put_along_axis(want, order[:, 449:451], 0.5, axis=1)
    np.testing.assert_array_equal(g, want)


# Rows, depth, columns: small ones, and one row or column of every plan and length, beyond a block of depth too.
TURNED = [(2, 17, 17), (1, 33, 5), (3, 100, 7), (4, 64, 64), (1, 1, 9), (1, 2, 1), (1, 5000, 1), (1, 300, 700), (1, 130, 17), (9, 77, 1),
          (700, 300, 1), (1, 9001, 40), (16, 90, 90), (1, 127, 1100),
          # lanes in registers; one strip of a packed b; two terms row by row
          (1, 5, 7), (1, 16, 40), (1, 700, 30), (16, 20, 30), (31, 250, 4), (100, 2, 256), (33, 2, 71), (1, 1000, 1000)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, k, n", TURNED)
def test_products_have_the_same_bits_whichever_way_operands_lie(m, k, n, dtype):
    """A pass that puts a view in the place of a copy changes nothing."""
    a, b = rand(m, k, dtype=dtype), rand(k, n, dtype=dtype, seed=1)
    x, y = nodes(a, b)
    (want,) = same_bits_by_threads([x @ y], {x: a, y: b})
    feeds = [a.T.copy(), b.T.copy(), np.repeat(a, 2, axis=1), np.repeat(np.repeat(b, 2, axis=1), 3, axis=0)]
    at, bt, wide, spread = nodes(*feeds)
    dense, turned, stepped = [(x, y), [(at.T, y), (x, bt.T), (at.T, bt.T)], [(wide[:, ::2], y), (x, spread[::3, ::2]), (wide[:, ::2], bt.T)]]
    for p, q in (dense, *turned, *stepped):
        f = gd.function([x, y, at, bt, wide, spread], [p @ q, (p @ q).T])
        value, back = f(a, b, *feeds)
        assert value.tobytes() == want.tobytes() and back.tobytes() == want.T.tobytes()


def test_a_long_product_is_cut_the_same_whichever_way_it_lies():
    a, b = rand(1, 30_000, dtype="float32"), rand(30_000, 512, dtype="float32", seed=1)
    x, y = nodes(a, b)
    z = gd.input("z", b.T.shape, "float32")
    (want,) = same_bits_by_threads([x @ y], {x: a, y: b})
    assert gd.function([x, z], x @ z.T)(a, b.T.copy()).tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("n", [2, 31, 64, 65, 129, 256, 257, 500, 512, 1000, 1025, 4097, 8192, 16385])
def test_lines_alone_and_side_by_side_are_sorted_stably(n, dtype):
    for lines in (1, 3, 21) if n <= 1025 else (2,):
        x = 20 * rand(lines, n)
        if dtype.startswith("float"):
            x = np.where(np.abs(x) < 30, np.rint(x), x).astype(dtype)
            x[x == 3] = np.nan
            x[x == 5] = -np.inf
            x[x == 7] = -0.0
        else:
            x = x > 0 if dtype == "bool" else x.astype("int64").astype(dtype)
            x[:, ::7] = 1 if dtype == "bool" else np.iinfo(dtype).max
            x[:, ::9] = 0 if dtype == "bool" else np.iinfo(dtype).min
        spread = np.repeat(x, 3, axis=1)
        node, wide = nodes(x, spread)
        outputs = [gd.sort(node), gd.argsort(node), gd.sort(wide[:, ::3]), gd.sort(node, descending=True), gd.argsort(node, descending=True)]
        up, at, strided, down, back = same_bits_by_threads(outputs, {node: x, wide: spread})
        want = np.argsort(x, axis=1, kind="stable")
        np.testing.assert_array_equal(at, want)
        assert up.tobytes() == strided.tobytes() == np.take_along_axis(x, want, axis=1).tobytes()
        want = n - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
        np.testing.assert_array_equal(back, want)
        assert down.tobytes() == np.take_along_axis(x, want, axis=1).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", [((5, 10), 1), ((64, 10), 1), ((9, 1000), 1), ((70, 40), 0), ((33, 300), 0), ((3, 5000), 1), ((5000, 6), 0),
                                         ((2, 300_000), 1), ((6, 7, 9), 1), ((1, 1), 1), ((3, 4096), 1)])
def test_log_softmax_and_softmax_of_one_operand_share_an_instruction(shape, axis, dtype):
    """As in the gradient of cross entropy; the bits are those of each alone."""
    x = 3 * rand(*shape, dtype=dtype)
    if x.size > 40:
        lines = np.moveaxis(x, axis, -1)
        lines[(0,) * (x.ndim - 1)][::3] = -np.inf
        lines[(-1,) * (x.ndim - 1)][:] = -np.inf
    (p,) = nodes(x)
    for view in (lambda x: x, lambda x: x[::-1, ...], lambda x: x[..., ::2]):
        part = view(p)
        both = [gd.log_softmax(part, axis=axis) * 1.0, gd.softmax(part, axis=axis) * 1.0]
        for values in (x, np.where(x > 1, np.nan, x), np.where(x > 2, np.inf, x)):
            got = same_bits_by_threads(both, {p: values})
            for node, value in zip((gd.log_softmax(part, axis=axis), gd.softmax(part, axis=axis)), got, strict=True):
                np.testing.assert_array_equal(value, gd.function([p], node)(values))
        listing = str(gd.function([p], both, passes=()).program)
        assert listing.count("softmax") == 1, listing
    alone = str(gd.function([p], [gd.log_softmax(p, axis=axis), gd.softmax(p, axis=axis)]).program)
    assert alone.count(" softmax") == alone.count("log_softmax") == 1


def test_cross_entropy_with_its_gradient_makes_exponentials_once():
    x, labels = 2 * rand(17, 130, dtype="float32"), np.arange(17) % 130
    (p,) = nodes(x)
    loss = gd.losses.cross_entropy(p, gd.constant(labels))
    f = gd.function([p], [loss, gd.grad(loss, p)])
    value, slope = f(x)
    e = np.exp(x.astype("float64") - x.max(axis=1, keepdims=True))
    q = e / e.sum(axis=1, keepdims=True)
    want = q.copy()
    want[np.arange(17), labels] -= 1
    np.testing.assert_allclose(value, -np.log(q[np.arange(17), labels]).mean(), rtol=1e-6)
    np.testing.assert_allclose(slope, want / 17, atol=1e-8)
    assert " softmax" not in str(f.program)


SHORT_ROWS = {"multiply": np.multiply, "subtract": np.subtract, "maximum": np.maximum, "less": np.less, "divide": np.divide}


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("n", [3, 7, 8, 12, 16, 17, 31, 32, 33, 63, 64, 100, 127])
def test_short_rows_are_done_as_they_lie(n, dtype):
    """A column and a row either way round, a row that repeats, slices of wider rows, more rows than one item has."""
    for rows in (37, 6007):
        feeds = [(rand(*shape, seed=seed) * 9).astype(dtype) for seed, shape in enumerate([(rows, 1), (n,), (rows, n), (rows, n + 5)])]
        column, row, whole, wide = xs = nodes(*feeds)
        pairs = [(column, row), (row, column), (column, whole), (whole, row), (row, wide[:, 2:-3]), (wide[:, 2:-3], column), (whole, wide[:, :n])]
        c, r, w, v = feeds
        arrays = [(c, r), (r, c), (c, w), (w, r), (r, v[:, 2:-3]), (v[:, 2:-3], c), (w, v[:, :n])]
        names = [name for name in SHORT_ROWS if name != "divide" or dtype.startswith("float")]
        outputs = [getattr(gd, name)(*p) for name in names for p in pairs]
        outputs += [gd.exp(wide[:, 2:-3]), -wide[:, :n]] if dtype.startswith("float") else [-wide[:, :n]]
        with np.errstate(all="ignore"):
            want = [SHORT_ROWS[name](*p) for name in names for p in arrays]
        values, twos = (gd.function(xs, outputs, threads=t, passes=())(*feeds) for t in (1, 2))     # one by one: not fused
        for got, two in zip(values, twos, strict=True):
            assert got.tobytes() == two.tobytes()
        for got, expected in zip(values, want, strict=False):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(values[-1], -v[:, :n])
        if dtype.startswith("float"):
            np.testing.assert_allclose(values[-2], np.exp(v[:, 2:-3]), rtol=1e-6)


@pytest.mark.parametrize("equation", ["ijk,i,k->j", "ijk,j,k->i", "k,ijk,i->j", "ijk,i,j->k", "hijk,k,i->hj"])
def test_an_array_and_two_vectors_are_summed_without_a_copy_of_the_array(equation):
    size = {"h": 3, "i": 9, "j": 11, "k": 17}
    feeds = [rand(*[size[c] for c in term], seed=k) for k, term in enumerate(equation.split("->")[0].split(","))]
    xs = nodes(*feeds)
    f = gd.function(xs, gd.einsum(equation, *xs))
    assert equation[0] == "h" or "copy" not in str(f.program)     # of hij, which is small, there is one
    np.testing.assert_allclose(f(*feeds), np.einsum(equation, *feeds), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 4, 5), (2, 2, 2, 2, 2), (4, 7), (6,)])
def test_softmax_beside_log_softmax_along_any_axis(shape, dtype):
    """The second half of log_softmax's buffer lies with the axis last; one softmax takes it, others are made anew."""
    a = rand(*shape, dtype=dtype)
    (x,) = nodes(a)
    for axis in range(len(shape)):
        log, soft = gd.log_softmax(x, axis=axis), gd.softmax(x, axis=axis)
        total = gd.sum(log ** 2)
        outputs = [total, *gd.grad(total, [x]), gd.sum(-soft * log, axis=axis), gd.sum(gd.softmax(x * 1, axis=axis) * 5), soft * 2]
        got = gd.function([x], outputs)(a)
        for value, plain, node in zip(got, gd.function([x], outputs, passes=())(a), outputs, strict=True):
            want = reference([node], {x: a})[0]
            tolerance = 3e-2 if dtype == "float16" else 2e-5 if dtype == "float32" else 1e-12
            np.testing.assert_allclose(value, want, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(plain, want, rtol=tolerance, atol=tolerance)
    t = gd.grad(gd.grad(gd.sum(log ** 2), x).sum(), x)
    np.testing.assert_allclose(gd.function([x], [total, *gd.grad(total, [x]), t], passes=())(a)[2], reference([t], {x: a})[0], rtol=0.1, atol=0.1)
