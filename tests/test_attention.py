"""Attention in blocks: equal to the composed form over block borders, masks, broadcasting and dtypes, without its n x n matrix."""
import math

import numpy as np
import pytest
from counting import checked
from registry_cases import check_derivatives, check_value, close, run

import graphdiff as gd
from graphdiff.graph.opdef import REGISTRY


def composed(q, k, v, mask=None, causal=False):
    """By ordinary ops: the whole matrix of scores."""
    s = q @ k.mT / math.sqrt(max(q.shape[-1], 1))
    if causal:
        past = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
        mask = past if mask is None else gd.logical_and(mask, past)
    if mask is not None:
        s = gd.where(mask, s, -np.inf)
    return gd.softmax(s, -1) @ v


def draw(q, k, v, dtype="float64", seed=0):
    rng = np.random.default_rng([seed, *q, *k, *v])
    return [rng.normal(size=s).astype(dtype) for s in (q, k, v)]


def both(given, mask=None, causal=False, **options):
    """Value and gradients, by the op and composed."""
    n = [gd.input(name, a.shape, a.dtype) for name, a in zip("qkv", given, strict=True)]
    results = []
    for f in (gd.attention, composed):
        y = f(*n, mask, causal=causal)
        weights = np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype)
        results.append(run([y, *gd.grad(gd.sum(y * weights), n)], dict(zip(n, given, strict=True)), **options))
    return results


def agree(given, mask=None, causal=False, rtol=1e-12, **options):
    """Gradients are compared on the scale of their terms: where these cancel, e.g. for a single key, rounding is left over."""
    results = both(given, mask, causal, **options)
    floor = rtol * max([np.abs(a).max(initial=0) for a in given])
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max(initial=0) + floor)
        checked(one.size or 1)


# Lengths on both sides of the blocks of 64 queries and 256 keys, of a strip of columns and of a register.
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("m, n", [(1, 1), (63, 257), (64, 256), (65, 255), (130, 7), (3, 600), (200, 513)])
@pytest.mark.parametrize("d, e", [(1, 1), (8, 3), (17, 33)])
def test_blocks(m, n, d, e, causal):
    agree(draw((m, d), (n, d), (n, e)), None, causal)
    agree(draw((5, m, d), (5, n, d), (5, n, e)), None, causal)          # several batch elements: the other way backward


# Few queries: keys are read where they lie, rows of them long or short; values past several queries at once. 1027 keys are several blocks.
@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 9, 16, 17])
@pytest.mark.parametrize("d, e", [(64, 64), (70, 33), (16, 130), (5, 64), (32, 7)])
def test_few_queries(m, d, e, dtype, rtol):
    for n in (1, 17, 300, 1027):
        given = draw((2, m, d), (2, n, d), (2, n, e), dtype, n)
        agree(given, None, n % 2 == 1, rtol)
        agree(given, np.random.default_rng(n).random((m, n)) < 0.7, False, rtol)
    turned = [np.ascontiguousarray(x.mT) for x in given]              # no row is one piece
    n = [gd.input(name, x.shape, x.dtype) for name, x in zip("qkv", turned, strict=True)]
    got = run([gd.attention(*[x.mT for x in n])], dict(zip(n, turned, strict=True)))[0]
    close(got, both(given)[1][0], 10 * rtol)


# Heads cut from rows: results are rows again without a copy. Few batch elements and many are different ways backward.
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch, heads", [((), 3), ((2,), 1), ((2, 3), 5), ((1,), 2), ((0,), 2)])
@pytest.mark.parametrize("m, n, d, e", [(70, 270, 9, 20), (5, 3, 2, 17)])
def test_heads_cut_from_rows(batch, heads, m, n, d, e, causal):
    given = draw((*batch, m, heads * d), (*batch, n, heads * d), (*batch, n, heads * e), "float32")
    rows = [gd.input(name, a.shape, a.dtype) for name, a in zip("qkv", given, strict=True)]
    feeds = dict(zip(rows, given, strict=True))

    def of_rows(as_they_lie):
        heads_of = [x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads)).swapaxes(-2, -3) for x in rows]
        q, k, v = heads_of if as_they_lie else [x + 0.0 for x in heads_of]         # a sum's result lies head by head
        y = gd.attention(q, k, v, causal=causal).swapaxes(-2, -3).reshape((*batch, m, heads * e))
        weights = np.cos(np.arange(y.size)).reshape(y.shape).astype("float32")
        return [y, *gd.grad(gd.sum(y * weights), rows)]
    if not causal:
        instrs = gd.function(rows, of_rows(True), threads=1).program.instrs
        assert all(op != "copy" or ins[0].contiguous for op, _, ins, *_ in instrs)      # into the caller's arrays only
    wanted = run(of_rows(False), feeds, threads=1)
    for threads in (1, 2):
        for a, b in zip(run(of_rows(True), feeds, threads=threads), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
            checked(a.size or 1)


@pytest.mark.parametrize("shape", [(65, 300), (1, 300), (65, 1), (300,)])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_masks(shape, batch):
    mask = np.random.default_rng(3).random(shape) < 0.5
    given = draw((*batch, 65, 9), (*batch, 300, 9), (*batch, 300, 4))
    for causal in (False, True):
        agree(given, mask, causal)
    node = gd.input("mask", shape, "bool")
    n = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
    close(run([gd.attention(*n, node)], {**dict(zip(n, given, strict=True)), node: mask})[0], both(given, mask)[1][0], 1e-12)


def test_leading_axes_broadcast():
    agree(draw((4, 1, 5, 3), (2, 7, 3), (7, 6)))
    agree(draw((5, 3), (3, 1, 7, 3), (2, 7, 6)), np.random.default_rng(0).random((2, 1, 7)) < 0.7)


@pytest.mark.parametrize("sizes", [(0, 3, 2, 2), (3, 0, 2, 2), (3, 4, 0, 2), (3, 4, 2, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize("batch", [(), (0,), (5,)])
def test_sizes_of_zero(sizes, batch):
    m, n, d, e = sizes
    got = both(draw((*batch, m, d), (*batch, n, d), (*batch, n, e)))
    for one, other in zip(*got, strict=True):
        assert one.shape == other.shape and np.isfinite(one).all()
        close(one, other, 1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_derivatives_of_both_orders(causal):
    given = draw((2, 3, 2), (2, 4, 2), (2, 4, 3))
    n = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    for m in (None, mask):
        y = gd.attention(*n, m, causal=causal)
        feeds = dict(zip(n, given, strict=True))
        check_value(y, feeds, 1e-13)
        check_derivatives(y, feeds, (1, 2))
        gd.check_grads(gd.sum(y * y), n, feeds)
        checked()


def test_dtypes():
    for dtype, rtol in (("float32", 2e-5), ("float16", 2e-2)):
        given = draw((3, 70, 8), (3, 300, 8), (3, 300, 8), dtype)
        want = both([a.astype(float) for a in given])[1]
        for one, other in zip(both(given)[0], want, strict=True):
            assert one.dtype == dtype
            close(one.astype(float), other, rtol)


@pytest.mark.parametrize("batch", [(), (6,)])
def test_bits_do_not_depend_on_threads(batch):
    given = draw((*batch, 150, 24), (*batch, 520, 24), (*batch, 520, 20), "float32")
    n = [gd.input(name, a.shape, a.dtype) for name, a in zip("qkv", given, strict=True)]
    y = gd.attention(*n, causal=True)
    outputs, feeds = [y, *gd.grad(gd.sum(y * y), n)], dict(zip(n, given, strict=True))
    one = run(outputs, feeds, threads=1)
    for threads in (2, 3):
        for a, b in zip(one, run(outputs, feeds, threads=threads), strict=True):
            assert a.tobytes() == b.tobytes()
            checked(a.size)


def test_views_as_operands():
    """Heads cut out of one array: queries, keys and values that lie in any order in memory."""
    x = np.random.default_rng(1).normal(size=(2, 70, 3, 4, 8))
    node = gd.input("x", x.shape)
    results = []
    for f in (gd.attention, composed):
        q, k, v = [gd.transpose(node[:, :, i], (0, 2, 1, 3)) for i in range(3)]
        y = f(q, k[..., ::-1, :], gd.flip(v, -1))
        results.append(run([y, gd.grad(gd.sum(y * y), node)], {node: x}))
    for one, other in zip(*results, strict=True):
        close(one, other, 1e-12)


@pytest.mark.parametrize("batch", [(), (5,)])
def test_who_sees_nothing_has_no_influence_even_with_nan(batch):
    given = draw((*batch, 70, 4), (*batch, 300, 4), (*batch, 300, 5))
    mask = np.random.default_rng(2).random((70, 300)) < 0.3
    mask[[3, 69]] = False
    mask[:, [0, 299]] = False
    clean = both(given, mask)[0]
    given[0][..., [3, 69], :] = np.nan
    given[1][..., [0, 299], :] = np.inf
    given[2][..., [0, 299], :] = np.nan
    got = both(given, mask)[0]
    for a, b in zip(got, clean, strict=True):
        close(a, b, 1e-14)
    assert not got[0][..., [3, 69], :].any() and not got[1][..., [3, 69], :].any() and not got[2][..., [0, 299], :].any()


def test_causal_with_more_keys_than_queries_ignores_the_rest():
    given = draw((3, 2), (6, 2), (6, 2))
    clean = both(given, causal=True)[0]
    given[1][3:], given[2][3:] = np.nan, np.nan
    for a, b in zip(both(given, causal=True)[0], clean, strict=True):
        close(a, b, 1e-15)


def test_huge_scores_and_infinities():
    given = draw((70, 3), (300, 3), (300, 2))
    agree([given[0] * 1e4, given[1] * 1e4, given[2]], rtol=1e-10)
    given[1][5] = np.inf
    n = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
    feeds = dict(zip(n, given, strict=True))
    one, other = (run([f(*n)], feeds)[0] for f in (gd.attention, composed))
    assert np.array_equal(np.isnan(one), np.isnan(other))
    checked()


def test_named_sizes():
    names = {"q": ("b", "m", "d"), "k": ("b", "n", "d"), "v": ("b", "n", "e")}
    n = [gd.input(k, s) for k, s in names.items()]
    for causal in (False, True):
        y = gd.attention(*n, causal=causal)
        f = gd.function(n, [y, *gd.grad(gd.sum(y * y), n)])
        for shapes in (((2, 5, 3), (2, 4, 3), (2, 4, 6)), ((1, 2, 3), (1, 90, 3), (1, 90, 1)), ((5, 3, 4), (5, 0, 4), (5, 0, 2))):
            given = draw(*shapes)
            m = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
            z = composed(*m, causal=causal)
            want = run([z, *gd.grad(gd.sum(z * z), m)], dict(zip(m, given, strict=True)))
            for a, b in zip(f(*given), want, strict=True):
                close(a, b, 1e-12)


def test_memory_grows_with_the_length_not_its_square():
    nbytes = []
    for n in (1024, 4096):
        x = [gd.input(k, (n, 16), "float32") for k in "qkv"]
        y = gd.attention(*x, causal=True)
        f = gd.function(x, [y, *gd.grad(gd.sum(y * y), x)])
        nbytes.append(f.plan.arena_nbytes)
        checked()
    assert nbytes[1] <= 4.1 * nbytes[0] and nbytes[1] < 4096 * 4096 * 4 / 8


def test_second_derivative_through_a_mask_that_is_an_input():
    given = draw((3, 2), (4, 2), (4, 2))
    n = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
    mask = gd.input("mask", (3, 4), "bool")
    feeds = {**dict(zip(n, given, strict=True)), mask: np.random.default_rng(0).random((3, 4)) < 0.6}
    values = []
    for f in (gd.attention, composed):
        g = gd.grad(gd.sum(f(*n, mask) ** 2), n)
        values.append(run(gd.grad(sum(gd.sum(a ** 2) for a in g), n), feeds))
    for a, b in zip(*values, strict=True):
        close(a, b, 1e-12)


def test_records():
    assert REGISTRY["attention"].expand is not None and REGISTRY["attention_grad"].expand is not None
    checked()


@pytest.mark.parametrize("dtype, rtol", [("float32", 2e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("shift", [0.0, 4096.0, -4096.0])
def test_scores_of_thousands(dtype, rtol, shift):
    """Their logarithm of a sum has three digits fewer behind the point; the weights made again have not."""
    q, k, v = draw((5, 4), (300, 4), (300, 3), dtype)
    q, k = np.round(q * 8) / 8, np.round(k * 8) / 8                     # the scores have no rounding, shifted or not
    q[:, 0], k[:, 0] = 4, shift / 2
    n = [gd.input(name, a.shape, a.dtype) for name, a in zip("qkv", (q, k, v), strict=True)]
    weights = np.cos(np.arange(15.0)).reshape(5, 3).astype(dtype)
    found = run(gd.grad(gd.sum(gd.attention(*n) * weights), n), dict(zip(n, (q, k, v), strict=True)))
    q, k, v, g = (np.asarray(a, "longdouble") for a in (q, k, v, weights))
    s = q @ k.T / 2
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    t = w * (g @ v.T)
    t = (t - w * t.sum(-1, keepdims=True)) / 2
    for a, x, y in zip(found, (t, t.T, w.T), (k, q, g), strict=True):
        np.testing.assert_allclose(a, (x @ y).astype(dtype), rtol=0, atol=float((np.abs(x) @ np.abs(y)).max()) * rtol)
        checked(a.size)


def test_what_is_kept_for_the_way_back_has_a_derivative_too():
    """Maxima and inverse sums beside the result: nobody is given them, but the rule of the op holds for all it gives."""
    given = draw((3, 2), (4, 2), (4, 2))
    n = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
    y = gd.attention(*n, causal=True)
    while y.op != "attention":
        y = y.inputs[0]
    check_derivatives(y, dict(zip(n, given, strict=True)), (1, 2))


def test_a_mask_of_fixed_sizes_beside_named_lengths():
    q, k, v = gd.input("q", ("m", 4)), gd.input("k", ("n", 4)), gd.input("v", ("n", 5))
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s) for s in ((3, 4), (6, 4), (6, 5))]
    for mask in (rng.random((3, 6)) < 0.7, np.ones((1, 6), bool), rng.random((3, 1)) < 0.9):
        y = gd.attention(q, k, v, mask)
        f = gd.function([q, k, v], [y, *gd.grad(gd.sum(y * np.arange(5.0)), [q, k, v])])
        fixed = [gd.input(name, a.shape) for name, a in zip("qkv", given, strict=True)]
        z = gd.attention(*fixed, mask)
        for a, b in zip(f(*given), run([z, *gd.grad(gd.sum(z * np.arange(5.0)), fixed)], dict(zip(fixed, given, strict=True))), strict=True):
            np.testing.assert_array_equal(a, b)
            checked(a.size)
        with pytest.raises(ValueError, match=r"attention: .*\n  at "):
            f(rng.normal(size=(2, 4)), rng.normal(size=(5, 4)), rng.normal(size=(5, 5)))
