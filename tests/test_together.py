"""What follows a product or a convolution, and what a reduction or a softmax takes, done part by part with it: the bits of one after the
other, and that it happens at all."""
import itertools

import numpy as np
import pytest
from counting import checked
from graphdiff.runtime._native import lib

import graphdiff as gd

RNG = np.random.default_rng(8)


def tails(f):
    return lib.gd_program_tails(f._static.handle.c)


def heads(f):
    return lib.gd_program_heads(f._static.handle.c)


def array(shape, dtype="float32"):
    return (RNG.standard_normal(shape) * 3).astype(dtype)


def both(result, then, arrays, others, count=1, threads=1):
    """then(result(*arrays), *others) as one function, with `count` tails, and as two."""
    nodes = [gd.input(f"x{k}", a.shape, a.dtype) for k, a in enumerate(arrays)]
    more = [gd.input(f"o{k}", a.shape, a.dtype) for k, a in enumerate(others)]
    together = then(result(*nodes), *more)
    outputs = together if isinstance(together, list) else [together]
    f = gd.function([*nodes, *more], outputs, threads=threads)
    got = f(*arrays, *others)
    made = gd.function(nodes, result(*nodes), threads=1)(*arrays)
    assert count is None or tails(f) == (count if made.nbytes >= 8192 else 0), f.program
    y = gd.input("y", made.shape, made.dtype)
    apart = then(y, *more)
    want = gd.function([y, *more], apart if isinstance(apart, list) else [apart], threads=1)(made, *others)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
        checked(2)


DENSE = [
    (lambda y, b: gd.relu(y + b), "row"), (lambda y, b: gd.tanh(y), None), (lambda y, b: y + b, "all"), (lambda y, b: 2 * y + 0.5 * b, "all"),
    (lambda y, b: y * b, "column"), (lambda y, b: gd.where(y > 0, y, b), "all"), (lambda y, b: [y + b, gd.relu(y + b)], "row"),
    (lambda y, b: [y, gd.sigmoid(y)], None), (lambda y, b: (y + b) > 0, "row"), (lambda y, b: gd.gelu(y + b) * y, "row"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(3, 5, 7), (31, 5, 701), (640, 33, 10), (10, 17, 2000), (1, 30, 5000), (5000, 40, 1), (130, 257, 131), (700, 64, 300),
                                   (50, 70000, 60), (2, 9, 5000)])
def test_products(sizes, dtype):
    m, k, n = sizes
    for then, shape in DENSE:
        others = [] if shape is None else [array({"row": (n,), "all": (m, n), "column": (m, 1)}[shape], dtype)]
        both(gd.matmul, lambda y, b=None, then=then: then(y, b), [array((m, k), dtype), array((k, n), dtype)], others)


@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)))
def test_turned_operands(turned):
    for m, k, n in ((131, 12, 41), (400, 300, 257), (3, 400, 900), (900, 400, 3)):
        a, b = array((k, m) if turned[0] else (m, k)), array((n, k) if turned[1] else (k, n))
        both(lambda x, w: (x.T if turned[0] else x) @ (w.T if turned[1] else w), lambda y, b: gd.relu(y + b), [a, b], [array((n,))])


@pytest.mark.parametrize("batch", [(1,), (70,), (400,), (31, 50)])
@pytest.mark.parametrize("sizes", [(1, 8, 1), (4, 4, 4), (5, 3, 9), (40, 30, 20)])
def test_batches(batch, sizes):
    m, k, n = sizes
    for shared in (False, True):
        a, b = array((*batch, m, k)), array((k, n) if shared else (*batch, k, n))
        for then, others in ((lambda y, b: gd.tanh(y * b), [array((*batch, 1, n))]), (lambda y, b: y - b, [array((n,))]), (lambda y: gd.exp(-y * y), [])):
            both(gd.matmul, then, [a, b], others)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_on_several_threads(threads):
    for m, k, n in ((1000, 200, 300), (64, 3000, 1000), (4, 70000, 4)):
        both(gd.matmul, lambda y, b: gd.relu(y + b), [array((m, k)), array((k, n))], [array((n,))], threads=threads)


def test_integers():
    for dtype in ("int32", "int64", "uint8"):
        both(gd.matmul, lambda y, b: y + b, [RNG.integers(0, 9, s).astype(dtype) for s in ((120, 30), (30, 140))], [RNG.integers(0, 9, 140).astype(dtype)])


CONVS = [    # x, w, options; all have parts to report where registers are wide, the first, in float32, everywhere
    ((32, 3, 32, 32), (64, 3, 3, 3), {"padding": 1}), ((2, 3, 9, 9), (5, 3, 3, 3), {"padding": 1}), ((2, 4, 8, 8), (6, 2, 3, 3), {"groups": 2}),
    ((1, 3, 224, 224), (8, 3, 7, 7), {"stride": 2, "padding": 3}), ((2, 16, 20, 20), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    ((3, 8, 28, 28), (40, 8, 1, 1), {}), ((2, 3, 300), (7, 3, 5), {"padding": 2}), ((1, 2, 6, 20, 21), (3, 2, 3, 3, 3), {"padding": 1}),
    ((1, 130, 60, 60), (9, 130, 3, 3), {"padding": 1}), ((2, 5, 40, 33), (70, 5, 3, 2), {"dilation": 2}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("x", "w", "options"), CONVS)
def test_convolutions(x, w, options, dtype):
    arrays, axes = [array(x, dtype), array(w, dtype)], (1,) * (len(x) - 2)
    bias = array((w[0], *axes), dtype)
    count = 1 if x == CONVS[0][0] and dtype == "float32" else None
    both(lambda x, w: gd.conv(x, w, **options), lambda y, b: gd.relu(y + b), arrays, [bias], count)
    both(lambda x, w: gd.conv(x, w, **options), lambda y, b: [y * b, gd.tanh(y * b)], arrays, [bias], count, threads=2)
    both(lambda x, w: gd.conv(x, w, **options), gd.sigmoid, arrays, [], count)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"stride": 3, "padding": 1, "output_padding": 1}])
def test_transposed_convolutions(options):
    for x, w in (((2, 6, 14, 14), (6, 5, 4, 4)), ((2, 6, 14, 14), (6, 5, 1, 1)), ((3, 16, 9, 30), (16, 20, 3, 3))):
        both(lambda x, w: gd.conv_transpose(x, w, **options), lambda y, b: gd.relu(y + b), [array(x), array(w)], [array((w[1], 1, 1))], None)


def test_what_is_no_tail():
    x, w, v, b = gd.input("x", (40, 40)), gd.input("w", (40, 40)), gd.input("v", (40, 40)), gd.input("b", (40,))
    y = x @ w
    for outputs in ([y.T + b], [gd.sum(y * y, axis=1)], [y[:20] * 2], [y + y.T], [y[:, :1] * x], [(x @ v) @ w], [gd.softmax(y)], [x @ w @ v]):
        f = gd.function([x, w, v, b], outputs)
        a = [RNG.standard_normal(n.shape) for n in (x, w, v, b)]
        np.testing.assert_allclose(f(*a)[0], gd.function([x, w, v, b], outputs, passes=())(*a)[0], rtol=1e-12, atol=1e-12)
        assert tails(f) == 0, f.program
        checked(2)


def test_the_result_may_not_lie_where_an_operand_of_the_product_is():
    """Of a chain of products arrays are used again as soon as they are free: the sum of one may lie where its operand was."""
    x = gd.input("x", (50, 50), "float32")
    ws = [gd.input(f"w{k}", (50, 50), "float32") for k in range(6)]
    h = x
    for w in ws:
        h = gd.tanh(h @ w + 1.0) * 0.5 + h
    f = gd.function([x, *ws], h)
    arrays = [array((50, 50)) for _ in range(7)]
    want = gd.function([x, *ws], h, passes=("merge", "algebra", "stable_forms", "fold", "fuse"))(*arrays)
    assert f(*arrays).tobytes() == want.tobytes()
    checked()


def test_an_update_behind_the_commit_mark_is_no_tail():
    w, x = gd.variable(np.eye(30, dtype="f4"), "w"), gd.input("x", (30, 30), "float32")
    f = gd.function([x], [], updates={w: w + 0.5 * (x.T @ x)})
    a = array((30, 30))
    f(a)
    np.testing.assert_allclose(w.value, np.eye(30) + 0.5 * (a.T @ a), rtol=1e-5, atol=1e-5)
    assert tails(f) == 0
    checked(2)


def test_a_call_that_is_interrupted_goes_on(monkeypatch):
    """With a small budget a call returns to Python many times on its way."""
    from graphdiff.runtime import execute
    a, w, b = array((900, 500)), array((500, 700)), array((700,))
    nodes = [gd.input(n, v.shape, v.dtype) for n, v in zip("awb", (a, w, b), strict=True)]
    y = gd.relu(nodes[0] @ nodes[1] + nodes[2])
    want = gd.function(nodes, y)(a, w, b)
    monkeypatch.setattr(execute, "SLICE_NS", 1000)
    assert gd.function(nodes, y)(a, w, b).tobytes() == want.tobytes()
    checked()


# -- heads ---------------------------------------------------------------------------------------------------------------

TAKEN = {
    "max": gd.max, "min": gd.min, "argmax": gd.argmax, "argmin": gd.argmin, "prod": gd.prod, "logsumexp": gd.logsumexp, "softmax": gd.softmax,
    "log_softmax": gd.log_softmax,
}


def made_before(before, taker, arrays, count=1, threads=1):
    """taker(before(*arrays)) as one function, with `count` heads, and as two: the same bits."""
    nodes = [gd.input(f"x{k}", a.shape, a.dtype) for k, a in enumerate(arrays)]
    made = before(*nodes)
    f = gd.function(nodes, taker(made), threads=threads)
    got = f(*arrays)
    assert count is None or heads(f) == count, f.program
    values = gd.function(nodes, made, threads=1)(*arrays)
    y = gd.input("y", values.shape, values.dtype)
    want = gd.function([y], taker(y), threads=1)(values)
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes()
    assert f(*arrays).tobytes() == want.tobytes()
    checked(4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(300, 257), (3, 30000), (2, 3, 5, 4001), (2000, 64), (1, 4096 * 33), (129, 1000)])
@pytest.mark.parametrize("name", TAKEN)
def test_lines_that_are_taken(name, shape, dtype):
    x, y, row, column = array(shape, dtype), array(shape, dtype), array(shape[-1:], dtype), array((*shape[:-1], 1), dtype)
    count = None if shape[-1] > 65536 else 1            # of lines as long as that, few are worth it
    for before, arrays in ((lambda x, y: x * y, [x, y]), (lambda x, r: gd.tanh(x + r) * 0.5, [x, row]), (lambda x, c: x - c, [x, column]),
                           (lambda x: -gd.abs(x), [x])):
        made_before(before, lambda v: TAKEN[name](v, axis=-1), arrays, count)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_everything_and_several_axes_on_several_threads(threads):
    x, y = array((40, 50, 333)), array((40, 50, 333))
    for name, axes in (("max", None), ("max", (1, 2)), ("min", (-1,)), ("argmax", None), ("logsumexp", (1, 2)), ("prod", None)):
        made_before(lambda x, y: x * y + 1.0, lambda v, name=name, axes=axes: TAKEN[name](v, axis=axes), [x, y], threads=threads)
    made_before(lambda x, y: gd.exp(x) > y, lambda v: gd.any(v, axis=2), [x, y], threads=threads)
    made_before(lambda x, y: x < y + 20, lambda v: gd.all(v, axis=2), [x, y], threads=threads)
    made_before(lambda x, y: x < y, lambda v: gd.count_nonzero(v, axis=(1, 2)), [x, y], threads=threads)


def test_integers_that_are_taken():
    x, y = (RNG.integers(-1000, 1000, (200, 501)).astype("int64") for _ in range(2))
    for take in (lambda v: gd.max(v, axis=1), lambda v: gd.argmin(v, axis=1), lambda v: gd.min(v)):
        made_before(lambda x, y: x * y - 3, take, [x, y])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1 << 18,), (1 << 19,), (1024, 1025)])
def test_comparisons_of_every_dtype_that_are_taken(shape, dtype):
    """Of float16, operands are widened block by block: a piece is no longer than that, however small its elements are."""
    a, b = [RNG.integers(0, 9, shape).astype(dtype) for _ in range(2)]
    x, y = gd.input("x", shape, dtype), gd.input("y", shape, dtype)
    for name, made, want in (("greater", x > y, a > b), ("equal", gd.equal(x, x), a == a), ("less", gd.less(x + x, y), a + a < b),
                             ("both", gd.logical_and(x > y, y), (a > b) & (b != 0)), ("not", gd.logical_not(x), a == 0)):
        for axis in (None, -1):
            outputs = [gd.any(made, axis=axis), gd.all(made, axis=axis), gd.count_nonzero(made, axis=axis), gd.max(made, axis=axis),
                       gd.argmax(made, axis=axis), gd.sum(made, axis=axis)]
            wants = [want.any(axis), want.all(axis), np.count_nonzero(want, axis), want.max(axis), want.argmax(axis), want.sum(axis)]
            for output, expected in zip(outputs, wants, strict=True):
                for threads in (1, 2):
                    np.testing.assert_array_equal(gd.function([x, y], output, threads=threads)(a, b), expected, name)
                    checked()


def test_what_is_no_head():
    x, y = gd.input("x", (400, 500)), gd.input("y", (400, 500))
    a, b = RNG.standard_normal((2, 400, 500))
    v = x * y
    for outputs in ([v, gd.max(v, axis=1)], [gd.max(v, axis=0)], [gd.max(v, axis=1), gd.sum(v * v)],
                    [gd.softmax(v, axis=1), gd.argmax(v, axis=1)], [gd.max(v[:, ::2], axis=1)], [gd.max(x[:10] * y[:10], axis=1)],
                    [gd.max(v, axis=1), gd.grad(gd.sum(gd.max(v, axis=1)), x)]):
        f = gd.function([x, y], outputs)
        want = gd.function([x, y], outputs, passes=())(a, b)
        for got, other in zip(f(a, b), want, strict=True):
            np.testing.assert_allclose(got, other, rtol=1e-13)
        assert heads(f) == 0, f.program
        checked(1 + len(outputs))


def test_a_result_may_not_lie_where_an_operand_of_the_head_is():
    """Arrays are used again as soon as they are free: the softmax may be planned where what its head reads lies."""
    x, y = gd.input("x", (300, 400), "float32"), gd.input("y", (300, 400), "float32")
    h = gd.softmax(x, axis=1)
    for k in range(5):
        h = gd.softmax(gd.sin(h * (k + 1.0)) + y, axis=1)
    out = gd.max(h * h - y, axis=1)
    f = gd.function([x, y], out)
    a, b = array((300, 400)), array((300, 400))
    want = gd.function([x, y], out, passes=("merge", "algebra", "stable_forms", "fold", "fuse"))(a, b)
    assert f(a, b).tobytes() == want.tobytes()
    assert f(a, b).tobytes() == want.tobytes()
    checked(2)


def test_times_are_of_one_after_the_other():
    """Profiled, every instruction runs by itself: with the same results."""
    x, w = gd.input("x", (300, 400), "float32"), gd.input("w", (400, 400), "float32")
    f = gd.function([x, w], gd.max(gd.tanh(gd.relu(x @ w + 1.0) * x[:, :1]), axis=1))
    a, b = array((300, 400)), array((400, 400))
    want = f(a, b)
    assert (tails(f), heads(f)) in ((1, 0), (0, 1), (1, 1))
    f.profile(a, b)
    assert f(a, b).tobytes() == want.tobytes()
    x, y = gd.input("x", (3000, 4000), "float32"), gd.input("y", (3000, 4000), "float32")
    for make in (lambda: gd.max(x * y, axis=1), lambda: gd.argmin(gd.sqrt(x * x + 1.0) - y[:1], axis=1), lambda: gd.any(x > y + 4.0, axis=1)):
        f, arrays = gd.function([x, y], make()), [array((3000, 4000)), array((3000, 4000))]
        want = f(*arrays)
        assert heads(f) == 1
        f.profile(*arrays)
        assert f(*arrays).tobytes() == want.tobytes()
        checked(2)
