"""matmul and its kin, einsum, convolution, pooling, activations, normalisation, attention, stop_gradient.

Values: the C program and the reference interpreter against NumPy or a plain loop. Derivatives: both modes and both orders
against the complex step of the reference interpreter, and the adjoint identity <c, J t> = <J^T c, t>.
"""
import itertools
import math

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import DTypeError, GradientError, NodeTypeError, ShapeError
from graphdiff.ops import conv_products
from graphdiff.runtime.reference import reference

STEP = 1e-200      # of the complex step: its square vanishes, so the derivative is exact


def rand(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def run(outputs, feeds):
    return gd.function(list(feeds), outputs)(*feeds.values())


def inputs(arrays):
    return [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]


def check(build, want, *arrays, tol=1e-12, derivatives=True):
    """build(*nodes) has the value `want`, in C and in the reference, and right derivatives."""
    nodes = inputs(arrays)
    y = build(*nodes)
    feeds = dict(zip(nodes, arrays, strict=True))
    want = np.asarray(want)
    for value in (run(y, feeds), reference([y], feeds)[0]):
        assert value.shape == want.shape == y.shape
        assert value.dtype == want.dtype == y.dtype
        np.testing.assert_allclose(value.astype(float), want.astype(float), rtol=tol, atol=tol)
    if derivatives and all(a.dtype == np.float64 for a in arrays):
        check_derivatives(y, nodes, arrays)


def check_derivatives(y, nodes, arrays):
    feeds = dict(zip(nodes, arrays, strict=True))
    ts = [rand(*a.shape, seed=1 + i) for i, a in enumerate(arrays)]
    stepped = {n: a + 1j * STEP * t for n, a, t in zip(nodes, arrays, ts, strict=True)}
    constants = [gd.constant(t) for t in ts]
    c = rand(*y.shape, seed=7)
    for order in (1, 2):
        grads = gd.grad(y, nodes, cotangent=gd.constant(c), unconnected="zero")
        tangent = gd.jvp(y, nodes, constants)
        want = np.imag(reference([y], stepped, complex_ok=True)[0]) / STEP
        forward, *reverse = run([tangent, *grads], feeds)
        scale = 1 + np.abs(want).max(initial=0)
        np.testing.assert_allclose(forward, want, rtol=1e-10, atol=1e-10 * scale)
        assert [g.shape for g in reverse] == [a.shape for a in arrays]
        left, right = sum(float((g * t).sum()) for g, t in zip(reverse, ts, strict=True)), float((want * c).sum())
        assert left == pytest.approx(right, rel=1e-9, abs=1e-9 * scale), f"order {order}"
        y = sum(gd.sum(g * gd.constant(rand(*g.shape, seed=9 + i))) for i, g in enumerate(grads))
        c = np.float64(1.25)




# -- products of matrices ------------------------------------------------------------------------------------------

SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
          ((5, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((1, 2, 2, 3), (3, 1, 3, 2)),
          ((4, 1, 2, 3), (1, 5, 3, 2)), ((1, 2, 3), (5, 3, 4)), ((2, 5, 2, 3), (3, 4))]
EMPTY = [((2, 0), (0, 3)), ((3, 4), (4, 0)), ((0, 2, 3), (3, 4))]


@pytest.mark.parametrize("left, right", SHAPES)
def test_matmul(left, right):
    a, b = rand(*left), rand(*right, seed=1)
    check(gd.matmul, a @ b, a, b)


@pytest.mark.parametrize("left, right", EMPTY)
def test_matmul_of_empty_arrays(left, right):
    a, b = rand(*left), rand(*right, seed=1)
    check(gd.matmul, a @ b, a, b)
    nodes = inputs([a, b])
    grads = gd.grad(gd.sum(nodes[0] @ nodes[1]), nodes)
    for g, x in zip(reference(grads, dict(zip(nodes, (a, b), strict=True))), (a, b), strict=True):
        np.testing.assert_array_equal(g, np.zeros(x.shape))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float16", "float32"])
def test_matmul_dtypes(dtype):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2 if dtype == "bool" else 99, (4, 5)).astype(dtype), rng.integers(0, 3, (5, 3)).astype(dtype)
    check(gd.matmul, a @ b, a, b)


def test_one_matrix_for_a_batch_gets_its_gradient_in_one_product():
    x, w = gd.input("x", (64, 7, 5)), gd.input("w", (5, 3))
    g = gd.grad(gd.sum(gd.square(x @ w)), w)
    feeds = {x: rand(64, 7, 5), w: rand(5, 3)}
    want = np.einsum("bmk,bmn->kn", feeds[x], 2 * (feeds[x] @ feeds[w]))
    np.testing.assert_allclose(run(g, feeds), want, rtol=1e-12)
    products = [i[1][0].shape for i in gd.function([x, w], g).program.instrs if i[0] == "matmul"]
    assert products[-1] == (5, 3)


def test_products_with_named_sizes():
    x, w = gd.input("x", ("b", "t", 4)), gd.input("w", ("t", "k"))
    y, z, u = gd.einsum("bti,tk->bik", x, w), gd.tensordot(x, w, ([1], [0])), x @ gd.constant(rand(4, 2))
    loss = gd.sum(y * y) + gd.sum(z) + gd.sum(u)
    f = gd.function([x, w], [y, z, u, *gd.grad(loss, [x, w])])
    for b, t, k in [(2, 3, 6), (1, 5, 2)]:
        a, c = rand(b, t, 4), rand(t, k)
        out = f(a, c)
        np.testing.assert_allclose(out[0], np.einsum("bti,tk->bik", a, c), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(out[1], np.tensordot(a, c, ([1], [0])), rtol=1e-12, atol=1e-13)
        assert out[3].shape == a.shape and out[4].shape == c.shape
    assert str(y.op.cost(y)) == "b*k*t*8"


@pytest.mark.parametrize("left, right", [((), (3,)), ((3,), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 2, 3), (2, 3, 2)),
                                         ((2, 2, 3), (3,)), ((3,), (3, 2)), ((3,), (4, 3, 2))])
def test_dot(left, right):
    a, b = rand(*left), rand(*right, seed=1)
    check(gd.dot, np.dot(a, b), a, b)


@pytest.mark.parametrize("left, right", [((3,), (3,)), ((2, 3), (4, 3)), ((2, 2, 3), (3,)), ((), (2, 2))])
def test_inner(left, right):
    a, b = rand(*left), rand(*right, seed=1)
    check(gd.inner, np.inner(a, b), a, b)


def test_vdot_and_outer():
    a, b = rand(2, 3), rand(3, 2)
    check(gd.vdot, np.vdot(a, b), a, b)
    check(gd.outer, np.outer(a, b), a, b)


@pytest.mark.parametrize("left, right, axes", [
    ((2, 3, 4), (3, 4, 5), 2), ((2, 3, 4), (4, 3, 5), ([1, 2], [1, 0])), ((2, 3), (4,), 0), ((2, 3, 4), (5, 4), (-1, 1)),
    ((2, 3), (2, 3), 2)])
def test_tensordot(left, right, axes):
    a, b = rand(*left), rand(*right, seed=1)
    check(lambda x, y: gd.tensordot(x, y, axes), np.tensordot(a, b, axes), a, b)


@pytest.mark.parametrize("left, right", [((2, 3), (3, 2)), ((3,), (2, 2)), ((2, 2, 2), (2,)), ((), (2,))])
def test_kron(left, right):
    a, b = rand(*left), rand(*right, seed=1)
    check(gd.kron, np.kron(a, b), a, b)


def test_matmul_errors():
    x, w = gd.input("x", (32, 784)), gd.input("w", (10, 784))
    with pytest.raises(ShapeError, match=r"inner sizes differ: left has 784 \(axis 1\), right has 10 \(axis 0\)") as info:
        x @ w
    assert "x @ w.T has shape [32, 10]" in str(info.value) and "test_ops_linalg_conv.py" in str(info.value)
    with pytest.raises(ShapeError, match=r"left has 784 \(axis 1\), right has 3 \(axis 0\)"):
        x @ gd.input("v", (3,))
    with pytest.raises(ShapeError, match="leading axes"):
        gd.matmul(gd.input("a", (5, 2, 3)), gd.input("b", (4, 3, 2)))
    with pytest.raises(ShapeError, match="scalar"):
        gd.matmul(x, 2.0)
    with pytest.raises(ShapeError, match=r"left has 784 \(axis 1\), right has 10 \(axis 0\)"):
        gd.tensordot(x, w, 1)
    with pytest.raises(ShapeError, match="2 axes of the left operand and 1 of the right"):
        gd.tensordot(x, w, ([0, 1], [0]))


# -- einsum --------------------------------------------------------------------------------------------------------

EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij , jk -> ki", (2, 3), (3, 4)), ("ii->", (3, 3)), ("ii", (3, 3)),
    ("ii->i", (3, 3)), ("iij->ij", (2, 2, 3)), ("iii->i", (3, 3, 3)), ("abba,cab,bb->ca", (2, 3, 3, 2), (2, 2, 3), (3, 3)),
    ("ba", (2, 3)), ("ki,kj", (2, 3), (2, 4)), ("...ij,...jk->...ik", (1, 2, 3), (2, 3, 2)), ("i...,i->...", (2, 2, 3), (2,)),
    ("...a,...a", (2, 1, 3), (4, 3)), ("...,...", (2, 3), (3,)), ("i...i->...i", (3, 2, 3)), ("...", (2, 3)),
    ("ij,k->k", (2, 3), (4,)), ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)), (",ij->ij", (), (2, 3)),
    ("i,ij,j->", (3,), (3, 4), (4,)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("ikl,klj->ij", (2, 3, 4), (3, 4, 5)), ("i,j,k->ijk", (2,), (3,), (4,)),
    ("bij,bjk,bkl->bil", (2, 3, 4), (2, 4, 5), (2, 5, 3)), ("i,i->i", (3,), (3,)), ("i,i->", (3,), (3,)), ("ij->", (2, 3)),
    ("ij->j", (2, 3)), ("ijk->kj", (2, 3, 4)), ("ij,ij->", (2, 3), (2, 3)), ("abc,cd,db->a", (2, 3, 4), (4, 5), (5, 3)),
    ("ij,jk->ik", (2, 1), (3, 4)), ("ijk,ljk->il", (2, 1, 3), (4, 5, 3)), ("aib,cjb->acij", (2, 3, 4), (5, 6, 4)),
    ("aib,cjb->icaj", (2, 3, 4), (5, 6, 4)), ("abcd,dcef->abef", (2, 3, 4, 5), (5, 4, 2, 3)), ("ij,ji->ij", (2, 3), (3, 2)),
    ("ab,bc,cd,de,ef->af", (2, 3), (3, 4), (4, 5), (5, 3), (3, 2)), ("a,b,c,d,e,f->", (2,), (2,), (2,), (2,), (2,), (2,)),
    ("ij,kj,lj->ikl", (2, 3), (4, 3), (5, 3)), ("bi,bi,bj->bj", (2, 3), (2, 3), (2, 4)),
    ("a,ab,abc->abc", (2,), (2, 3), (2, 3, 4)),
]


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EQUATIONS],
                         ids=[f"{e}-{i}" for i, (e, *_) in enumerate(EQUATIONS)])
def test_einsum(equation, shapes):
    arrays = [rand(*s, seed=i) for i, s in enumerate(shapes)]
    check(lambda *xs: gd.einsum(equation, *xs), np.einsum(equation, *arrays), *arrays)


@pytest.mark.parametrize("equation, shapes", [("ij,jk->ik", [(2, 0), (0, 4)]), ("ij,jk->ik", [(0, 3), (3, 4)]),
                                              ("ij->j", [(0, 3)])])
def test_einsum_of_empty_arrays(equation, shapes):
    arrays = [rand(*s) for s in shapes]
    check(lambda *xs: gd.einsum(equation, *xs), np.einsum(equation, *arrays), *arrays)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float16", "float32"])
@pytest.mark.parametrize("equation, shapes", [("ij,jk->ik", [(2, 3), (3, 4)]), ("ij->i", [(3, 40)]), ("i,j->ij", [(3,), (4,)]),
                                              ("ij,k->k", [(2, 3), (2,)]), ("ii->", [(3, 3)])])
def test_einsum_dtypes(dtype, equation, shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2 if dtype == "bool" else 9, s).astype(dtype) for s in shapes]
    check(lambda *xs: gd.einsum(equation, *xs), np.einsum(equation, *arrays), *arrays, tol=1e-3)


def test_einsum_promotes():
    x, y = gd.input("x", (3,), "int32"), gd.input("y", (3,), "float32")
    assert gd.einsum("i,i->", x, y).dtype == np.float64
    assert gd.einsum("i,i->", y, [1, 2, 3], dtype="float32").dtype == np.float32


def test_einsum_writes_diagonals():
    x, m = rand(3), rand(2, 3)
    check(lambda a: gd.einsum("i->ii", a), np.diag(x), x)
    cube = np.zeros((3, 3, 3))
    cube[range(3), range(3), range(3)] = x
    check(lambda a: gd.einsum("i->iii", a), cube, x)
    want = np.zeros((2, 3, 2))
    want[range(2), :, range(2)] = m
    check(lambda a: gd.einsum("ij->iji", a), want, m)


def test_einsum_by_lists_and_through_numpy():
    a, b = rand(2, 3), rand(3, 4)
    check(lambda x, y: gd.einsum(x, [0, 1], y, [1, 2], [2, 0]), (a @ b).T, a, b)
    check(lambda x, y: gd.einsum(x, [..., 1], y, [1, 2]), np.einsum(a, [..., 1], b, [1, 2]), a, b)
    check(lambda x: np.einsum("ij,jk", x, b), a @ b, a)


def test_einsum_reads_a_diagonal_without_a_copy():
    x = gd.input("x", (512, 512))
    assert [i[0] for i in gd.function([x], gd.einsum("ii->", x)).program.instrs] == ["sum"]


def test_einsum_transposes_without_a_copy():
    q, k = gd.input("q", (2, 3, 4, 5)), gd.input("k", (2, 3, 6, 5))
    assert [i[0] for i in gd.function([q, k], gd.einsum("bhqd,bhkd->bhqk", q, k)).program.instrs] == ["matmul"]
    assert [i[0] for i in gd.function([q, k], gd.einsum("bhqd,bhkd->bhkq", q, k)).program.instrs] == ["matmul"]


def test_einsum_chooses_the_cheap_order():
    a, b, c = gd.input("a", (10, 2)), gd.input("b", (2, 10)), gd.input("c", (10, 3))
    y = gd.einsum("ij,jk,kl->il", a, b, c)
    assert y.op.cost(y) == 2 * (2 * 10 * 3) + 2 * (10 * 2 * 3)


@pytest.mark.parametrize("args, error, match", [
    (("ij,jk->ik", (2, 3), (4, 2)), ShapeError, "label j has length 3 in operand 0 and 4 in operand 1"),
    (("ii->i", (2, 3)), ShapeError, "label i has lengths 2 and 3 in operand 0"),
    (("ij->ik", (2, 3)), ShapeError, "label k of the output is in no operand"),
    (("ijk->i", (2, 3)), ShapeError, "operand 0 has 2 axes, its subscripts 'ijk' name 3"),
    (("ij", (2, 3), (3, 2)), ShapeError, "subscripts for 1 operands, 2 given"),
    (("i!", (2, 3)), ShapeError, "holds '!'"), (("i->i->i", (2,)), ShapeError, "holds '-'"),
    (("i.j", (2,)), ShapeError, r"holds '\.'"),
    (("...i->i", (2, 3)), ShapeError, "ellipsis"), (((2,),), NodeTypeError, "equation"), ((), NodeTypeError, "equation"),
])
def test_einsum_errors(args, error, match):
    nodes = [gd.input("x", a) if isinstance(a, tuple) else a for a in args]
    with pytest.raises(error, match=match):
        gd.einsum(*nodes)


# -- convolution -----------------------------------------------------------------------------------------------------

def _axes(value, n):
    return value if isinstance(value, tuple) else (value,) * n


def _pairs(padding, n):
    return [(p, p) if isinstance(p, int) else p for p in _axes(padding, n)]


def plain_conv(x, w, *, stride=1, padding=0, dilation=1, groups=1):
    """The definition, over an explicitly padded array."""
    n = x.ndim - 2
    s, d = _axes(stride, n), _axes(dilation, n)
    x = np.pad(x, [(0, 0), (0, 0), *_pairs(padding, n)])
    out = [(x.shape[2 + i] - d[i] * (w.shape[2 + i] - 1) - 1) // s[i] + 1 for i in range(n)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per, each = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        channels = slice(o // each * per, (o // each + 1) * per)
        for pos in np.ndindex(*out):
            at = tuple(slice(p * a, p * a + b * (k - 1) + 1, b) for p, a, b, k in zip(pos, s, d, w.shape[2:], strict=True))
            y[(slice(None), o, *pos)] = (x[(slice(None), channels, *at)] * w[o]).sum(axis=tuple(range(1, n + 2)))
    return y


def plain_transpose(x, w, *, stride=1, padding=0, output_padding=0, dilation=1, groups=1):
    """Every element spreads over the output, which is then cropped."""
    n = x.ndim - 2
    s, d, e = _axes(stride, n), _axes(dilation, n), _axes(output_padding, n)
    full = [(x.shape[2 + i] - 1) * s[i] + d[i] * (w.shape[2 + i] - 1) + 1 + e[i] for i in range(n)]
    per, each = w.shape[1], x.shape[1] // groups
    y = np.zeros((x.shape[0], per * groups, *full))
    for c in range(x.shape[1]):
        channels = slice(c // each * per, (c // each + 1) * per)
        for pos in np.ndindex(*x.shape[2:]):
            at = tuple(slice(p * a, p * a + b * (k - 1) + 1, b) for p, a, b, k in zip(pos, s, d, w.shape[2:], strict=True))
            y[(slice(None), channels, *at)] += x[(slice(None), c, *pos)].reshape(-1, *(1,) * (n + 1)) * w[c]
    crop = tuple(slice(lo, m - hi) for m, (lo, hi) in zip(full, _pairs(padding, n), strict=True))
    return y[(slice(None), slice(None), *crop)]


CONVS = [
    ((1, 1, 6, 6), (1, 1, 3, 3), {"stride": 2}), ((1, 4, 3, 3), (2, 2, 2, 2), {"groups": 2}),
    ((1, 1, 5, 7), (1, 1, 2, 3), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 3)}),
    ((2, 3, 3, 3), (2, 3, 1, 1), {"stride": 2}), ((2, 3, 9), (4, 3, 3), {"padding": 1}),
    ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"padding": ((0, 1), (1, 0), (2, 1)), "stride": (1, 2, 3)}),
    ((2, 4, 7), (8, 1, 3), {"groups": 4, "dilation": 2}), ((2, 3, 5, 5), (2, 3, 3, 3), {"stride": 3, "padding": 1}),
    ((1, 2, 8), (2, 2, 2), {"dilation": 3, "padding": ((2, 3),)}),
]


@pytest.fixture(params=["chosen", "kernels", "columns"])
def way(request, monkeypatch):
    """Convolutions by their own kernels, as products with columns, and as it is chosen by their sizes."""
    if request.param == "kernels":
        monkeypatch.setattr(conv_products, "lower", lambda *_: False)
    if request.param == "columns":
        monkeypatch.setattr(conv_products, "_images", lambda kernel, s, itemsize, stored: s.n if s.taps else 0)


@pytest.mark.parametrize("x, w, options", CONVS)
def test_conv(x, w, options, way):
    a, b = rand(*x), rand(*w, seed=1)
    check(lambda p, q: gd.conv(p, q, **options), plain_conv(a, b, **options), a, b)


@pytest.mark.parametrize("x, w, options", [
    ((1, 2, 2, 2), (2, 1, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}), ((1, 1, 1, 2), (1, 1, 1, 1), {"stride": 2}),
    ((2, 4, 5), (4, 3, 3), {"groups": 2, "stride": 3, "output_padding": 2}),
    ((2, 3, 2, 3, 2), (3, 2, 2, 2, 3), {"stride": (1, 2, 2), "dilation": (2, 1, 1), "padding": ((0, 1), (1, 0), (0, 0))}),
    ((1, 2, 4), (2, 2, 3), {"dilation": 3, "output_padding": 2})])
def test_conv_transpose(x, w, options, way):
    a, b = rand(*x), rand(*w, seed=1)
    check(lambda p, q: gd.conv_transpose(p, q, **options), plain_transpose(a, b, **options), a, b)


def test_conv_of_an_empty_batch():
    x, w = gd.input("x", (0, 1, 4, 4)), gd.input("w", (2, 1, 3, 3))
    y = gd.conv(x, w)
    values = run([y, *gd.grad(gd.sum(y), [x, w])], {x: np.zeros(x.shape), w: rand(*w.shape)})
    assert [v.shape for v in values] == [(0, 2, 2, 2), (0, 1, 4, 4), (2, 1, 3, 3)] and not values[2].any()


def test_conv_same_and_bias():
    x, w, b = rand(2, 3, 5), rand(4, 3, 3), rand(4)
    check(lambda p, q, r: gd.conv(p, q, bias=r, padding="same"), plain_conv(x, w, padding=1) + b[:, None], x, w, b)
    check(lambda p, q: gd.conv(p, q, padding="valid"), plain_conv(x, w), x, w)
    v = rand(3, 4, 3)
    check(lambda p, q, r: gd.conv_transpose(p, q, bias=r, padding="same", stride=2),
          plain_transpose(x, v, stride=2, padding=((0, 1),)) + b[:, None], x, v, b)
    for n, k, s in itertools.product((5, 6), (2, 3, 4), (1, 2, 3)):
        y = gd.conv(gd.input("x", (1, 1, n)), gd.input("w", (1, 1, k)), padding="same", stride=s)
        assert y.shape == (1, 1, -(-n // s))


@pytest.mark.parametrize("dtype, tol", [("float32", 1e-4), ("float16", 2e-2)])
def test_conv_dtypes(dtype, tol, way):
    x, w = rand(2, 3, 6, 6).astype(dtype), rand(4, 3, 3, 3).astype(dtype)
    check(gd.conv, plain_conv(x.astype(float), w.astype(float)).astype(dtype), x, w, tol=tol)


def test_convolution_and_pooling_with_named_sizes():
    x = gd.input("x", ("n", 2, "l"))
    y = gd.conv(x, gd.constant(rand(3, 2, 3)), padding="same", stride=2)
    z = gd.max_pool(y, 2, ceil_mode=True)
    a = gd.avg_pool(z, 2, stride=1, padding=1)
    f = gd.function([x], [y, z, a, gd.grad(gd.sum(a * a), x)])
    assert [o.shape for o in f(rand(2, 2, 9))] == [(2, 3, 5), (2, 3, 3), (2, 3, 4), (2, 2, 9)]
    assert [o.shape for o in f(rand(1, 2, 12))] == [(1, 3, 6), (1, 3, 3), (1, 3, 4), (1, 2, 12)]
    g = gd.function([x], gd.conv(x, gd.constant(rand(3, 2, 3))))
    with pytest.raises(ShapeError, match=r"kernel \[3\] is larger than the padded input \[2\]|negative"):
        g(rand(1, 2, 2))


@pytest.mark.parametrize("x, w, options, error, match", [
    ((1, 1, 2, 2), (1, 1, 3, 3), {}, ShapeError, r"conv: kernel \[3, 3\] is larger than the padded input \[2, 2\]"),
    ((1, 4, 5, 5), (1, 3, 3, 3), {}, ShapeError, "x has 4 channels, the weights take 3"),
    ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, ShapeError, "output channels 3 do not divide into 2 groups"),
    ((1, 4, 5), (3, 4, 3), {"padding": (1, 2)}, ShapeError, r"padding=\(\(1, 2\),\)"),
    ((1, 4, 5, 5), (3, 4, 3, 3), {"padding": -1}, ShapeError, "at least 0"),
    ((1, 4, 5, 5), (3, 4, 3, 3), {"padding": "some"}, NodeTypeError, "'same' or 'valid'"),
    ((1, 4, 5, 5), (3, 4, 3, 3), {"stride": 0}, ShapeError, "stride must be at least 1"),
    ((1, 4, 5, 5), (3, 4, 3, 3), {"stride": 1.5}, NodeTypeError, "whole number"),
    ((1, 4, 5, 5), (3, 4, 3, 3), {"bias": np.zeros(2)}, ShapeError, r"bias has shape \[2\], the result has 3 channels"),
    ((1, 4), (3, 4), {}, ShapeError, "spatial axes is needed"), ((1, 4, 4), (3, 4, 1, 1), {}, ShapeError, "the weights have 2"),
])
def test_conv_errors(x, w, options, error, match):
    with pytest.raises(error, match=match):
        gd.conv(gd.input("x", x), gd.input("w", w), **options)


def test_conv_refuses_integers():
    with pytest.raises(DTypeError, match="floats"):
        gd.conv(gd.input("x", (1, 1, 3), "int64"), gd.input("w", (1, 1, 2), "int32"))


def test_conv_transpose_errors_name_it():
    x = gd.input("x", (1, 4, 4))
    with pytest.raises(ShapeError, match="conv_transpose: x has 4 channels, the weights have 3"):
        gd.conv_transpose(x, gd.input("w", (3, 4, 2)))
    with pytest.raises(ShapeError, match="output_padding 1 must be less than"):
        gd.conv_transpose(x, gd.input("w", (4, 4, 2)), output_padding=1)


@pytest.mark.parametrize("wrt", [0, 1])
def test_a_kernel_too_far_spread_for_the_local_memory(wrt, way):
    """Two taps, 600,000 elements apart: every element of a result is computed by itself, the weight's from 20,000 terms."""
    far, n = 600_000, 20_000
    a, w, g = rand(1, 1, far + n), rand(1, 1, 2), rand(1, 1, n)
    nodes = inputs((a, w, g))
    y = gd.conv(nodes[0], nodes[1], dilation=far)
    got = run([y, gd.grad(y, nodes[wrt], cotangent=nodes[2])], dict(zip(nodes, (a, w, g), strict=True)))
    head, tail = a[0, 0, :n], a[0, 0, far:]
    np.testing.assert_allclose(got[0][0, 0], w[0, 0, 0] * head + w[0, 0, 1] * tail, rtol=1e-12, atol=1e-12)
    want = np.concatenate([w[0, 0, 0] * g[0, 0], np.zeros(far - n), w[0, 0, 1] * g[0, 0]]) if wrt == 0 else [
        head @ g[0, 0], tail @ g[0, 0]]
    np.testing.assert_allclose(got[1][0, 0], want, rtol=1e-11, atol=1e-11)


def test_gradient_of_a_filter_over_more_positions_than_32_partial_sums_take():
    n = 8192
    s, w = gd.input("s"), gd.input("w", (1, 1, 3, 3))
    y = gd.sum(gd.conv(gd.broadcast_to(s, (1, 1, n + 2, n + 2)), w))
    assert (gd.function([s, w], gd.grad(y, w))(1.5, np.ones((1, 1, 3, 3))) == 1.5 * n * n).all()


# -- pooling ---------------------------------------------------------------------------------------------------------

def windows(x, window, *, stride=None, padding=0, dilation=1, ceil_mode=False):
    """(position in the output, indices in the plane, positions in the padded input) of every window."""
    n = x.ndim - 2
    k, p, d = _axes(window, n), _axes(padding, n), _axes(dilation, n)
    s = k if stride is None else _axes(stride, n)
    out = []
    for i in range(n):
        room = x.shape[2 + i] + 2 * p[i] - d[i] * (k[i] - 1) - 1
        o = (-(-room // s[i]) if ceil_mode else room // s[i]) + 1
        out.append(o - (ceil_mode and (o - 1) * s[i] >= x.shape[2 + i] + p[i]))
    for pos in np.ndindex(*out):
        inside, padded = [], 0
        for tap in np.ndindex(*k):
            at = tuple(pos[i] * s[i] - p[i] + tap[i] * d[i] for i in range(n))
            padded += all(-p[i] <= at[i] < x.shape[2 + i] + p[i] for i in range(n))
            if all(0 <= at[i] < x.shape[2 + i] for i in range(n)):
                inside.append(at)
        yield out, pos, inside, padded


def plain_pool(x, window, reduce, **options):
    y = None
    for out, pos, inside, padded in windows(x, window, **options):
        if y is None:
            y = np.zeros((*x.shape[:2], *out))
        y[(slice(None), slice(None), *pos)] = reduce(np.stack([x[(slice(None), slice(None), *at)] for at in inside]), padded)
    return y


POOLS = [
    ((2, 2, 6, 6), 2, {}), ((1, 2, 7, 7), 3, {"stride": 2, "padding": 1}),
    ((1, 1, 5, 6), (2, 3), {"stride": (2, 2), "ceil_mode": True}), ((1, 1, 4), 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    ((2, 1, 4, 5, 3), 2, {"padding": 1}),
    ((1, 1, 2), 3, {"stride": 2, "ceil_mode": True}), ((1, 1, 9), 2, {"stride": 4}),
]


@pytest.mark.parametrize("x, window, options", [*POOLS, ((1, 1, 5), 2, {"stride": 1, "dilation": 2}),
                                                ((1, 1, 7, 5), 2, {"stride": 3, "padding": 1, "dilation": 2})])
def test_max_pool(x, window, options):
    a = rand(*x)
    check(lambda p: gd.max_pool(p, window, **options), plain_pool(a, window, lambda v, _: v.max(0), **options), a)


@pytest.mark.parametrize("x, window, options", POOLS)
def test_avg_pool(x, window, options):
    a = rand(*x)
    check(lambda p: gd.avg_pool(p, window, **options), plain_pool(a, window, lambda v, n: v.sum(0) / n, **options), a)
    check(lambda p: gd.avg_pool(p, window, count_include_pad=False, **options),
          plain_pool(a, window, lambda v, _: v.mean(0), **options), a)


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 6, 7, 100])
@pytest.mark.parametrize("window, padding", [(1, 0), (3, 1), (5, 2)])
def test_gradient_of_avg_pool_with_strides_beyond_the_window(stride, window, padding):
    x = gd.input("x", (1, 1, 2, 6))
    y = gd.avg_pool(x, (1, window), stride=(1, stride), padding=(0, padding))
    g = gd.input("g", y.shape)
    dx = gd.grad(y, x, cotangent=g)
    feeds = {x: rand(1, 1, 2, 6), g: rand(*y.shape)}
    want = np.zeros((1, 1, 2, 6))
    for j in range(y.shape[3]):
        lo = j * stride - padding
        want[..., max(lo, 0):lo + window] += feeds[g][..., j:j + 1] / window
    np.testing.assert_allclose(run(dx, feeds), want, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "float32", "float16"])
def test_max_pool_dtypes(dtype):
    x = np.random.default_rng(0).integers(0, 200, (2, 2, 5, 5)).astype(dtype)
    want = plain_pool(x, 2, lambda v, _: v.max(0), stride=1, padding=1).astype(dtype)
    check(lambda p: gd.max_pool(p, 2, stride=1, padding=1), want, x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("plane", "window"), [((7,), 3), ((6,), 3), ((4, 4), 2), ((5, 7), (2, 1)), ((6, 6), (1, 3)), ((33, 9), (4, 3)), ((4, 5, 6), 2),
                                               ((3, 3, 4), (1, 1, 2)), ((2, 5, 5), (1, 1, 1)), ((3, 3), 2)])
def test_gradient_of_windows_side_by_side(plane, window, dtype):
    """Each element is repeated over its window; what no window covers gets 0."""
    shape = (2, 3, *plane)
    x = gd.input("x", shape, dtype)
    y = gd.avg_pool(x, window)
    g = gd.input("g", y.shape, dtype)
    f = gd.function([g], gd.grad(y, x, cotangent=g))
    assert "avg_pool_grad" not in [op for op, *_ in f.program.instrs]
    a = rand(*y.shape).astype(dtype)
    sizes = [window] * len(plane) if isinstance(window, int) else window
    want = (a.astype("float32" if dtype == "float16" else dtype) / np.prod(sizes).astype(dtype)).astype(dtype)
    for axis, w in enumerate(sizes):
        want = np.repeat(want, w, axis=axis + 2)
    want = np.pad(want, [(0, n - m) for n, m in zip(shape, want.shape, strict=True)])
    np.testing.assert_array_equal(f(a), want)
    checked()
    second = gd.grad(gd.sum(gd.grad(gd.sum(y * y), x) ** 2), x)                    # through the adjoint of the adjoint
    b = rand(*shape).astype(dtype)
    tolerance = {"float64": 1e-13, "float32": 1e-5, "float16": 3e-2}[dtype]
    np.testing.assert_allclose(gd.evaluate(second, {x: b}), gd.function([x], second, passes=())(b), rtol=tolerance, atol=tolerance)
    checked()


def test_avg_pool_of_integers_is_float64():
    assert gd.avg_pool(gd.input("x", (1, 1, 4), "uint8"), 2).dtype == np.float64


@pytest.mark.parametrize("x, window, options, value, gradient", [
    ([0, 0, 0, 0], 2, {}, [0, 0], [1, 0, 1, 0]),
    ([1, np.nan, 5, 2, np.nan, np.nan], 2, {}, [np.nan, 5, np.nan], [0, 1, 1, 0, 1, 0]),
    ([-5, -3], 2, {"padding": 1, "stride": 2}, [-5, -3], [1, 1]),
    ([3], 2, {"padding": ((1, 2),), "stride": 1, "dilation": 3}, [-np.inf], [0]),
], ids=["ties", "nan", "padding-never-wins", "a-window-with-a-hole"])
def test_max_pool_edges(x, window, options, value, gradient):
    node = gd.input("x", (1, 1, len(x)))
    y = gd.max_pool(node, window, **options)
    feeds = {node: np.array(x, float).reshape(node.shape)}
    for got in (run([y, gd.grad(gd.sum(y), node)], feeds), reference([y, gd.grad(gd.sum(y), node)], feeds)):
        np.testing.assert_array_equal(got[0].ravel(), value)
        np.testing.assert_array_equal(got[1].ravel(), gradient)


@pytest.mark.parametrize("shape, window, options, match", [
    ((1, 1, 2, 2), 3, {}, r"window \[3, 3\] is larger than the padded input \[2, 2\]"),
    ((1, 1, 4, 4), 2, {"padding": 2}, "nothing but padding"),
    ((1, 1, 4, 4), (2, 2, 2), {}, "window has 3 entries for 2 spatial axes"),
    ((1, 1, 0, 4), 2, {}, "no elements to pool"), ((4, 4), 2, {}, "spatial axes is needed"), ((1, 1, 4), 0, {}, "at least 1")])
@pytest.mark.parametrize("pool", [gd.max_pool, gd.avg_pool])
def test_pool_errors(pool, shape, window, options, match):
    with pytest.raises(ShapeError, match=match):
        pool(gd.input("x", shape), window, **options)


# -- activations -----------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "leaky_relu": (gd.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), 0.01),
    "elu": (lambda x: gd.elu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), 1.5),
    "selu": (gd.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), 1.7580993408473766),
    "celu": (lambda x: gd.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)), 1.0),
    "hard_tanh": (gd.hard_tanh, lambda x: np.clip(x, -1, 1), 1.0),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    f, plain_f, at_zero = ACTIVATIONS[name]
    x = np.array([-3.0, -0.5, 0.25, 2.5])
    check(f, plain_f(x), x)
    node = gd.input("x", (6,))
    y = f(node)
    g = gd.grad(gd.sum(y), node)
    edges = np.array([0.0, 1000.0, -1000.0, np.inf, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        value, slope = run([y, g], {node: edges})
        np.testing.assert_allclose(value, np.where(np.isnan(edges), np.nan, plain_f(edges)))
    assert slope[0] == pytest.approx(at_zero, rel=1e-15)
    assert np.isfinite(slope[:5]).all()
    assert f(gd.input("i", (), "int32")).dtype == np.float64 and f(gd.input("h", (), "float16")).dtype == np.float16


def test_gelu():
    x = np.array([-12.0, -3.0, -0.5, 0.0, 0.25, 2.5])
    check(gd.gelu, [0.5 * t * math.erfc(-t / math.sqrt(2)) for t in x], x, tol=1e-14, derivatives=False)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    check(lambda t: gd.gelu(t, approximate=True), 0.5 * x * (1 + np.tanh(inner)), x, tol=1e-14, derivatives=False)


def test_hard_tanh_has_derivative_zero_at_both_corners():
    x = gd.input("x", (2,))
    np.testing.assert_array_equal(run(gd.grad(gd.sum(gd.hard_tanh(x)), x), {x: [-1.0, 1.0]}), [0, 0])


def test_clip():
    x = gd.input("x", (7,))
    a = np.array([-3, -1, -0.5, 0, 0.25, 1, 2.5])
    values = run([gd.clip(x, -1, 1), gd.clip(x, None, 1.0), x.clip(0.0), np.clip(x, -1, 1), gd.clip(x, min=0),
                  gd.grad(gd.sum(gd.clip(x, -1, 1)), x)], {x: a})
    wants = [np.clip(a, -1, 1), np.minimum(a, 1), np.maximum(a, 0), np.clip(a, -1, 1), np.maximum(a, 0),
             [0, 0.5, 1, 1, 1, 0.5, 0]]
    for value, want in zip(values, wants, strict=True):
        np.testing.assert_array_equal(value, want)
    assert gd.clip(x) is x
    assert gd.clip(gd.input("i", (), "int32"), 0, 9).dtype == np.int32
    with pytest.raises(NodeTypeError, match="twice"):
        gd.clip(x, 1, min=2)


# -- normalisation ---------------------------------------------------------------------------------------------------

def normalised(x, axes, eps=1e-5):
    x = x.astype(float)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_layer_norm():
    x, g, b = rand(3, 4, 5), rand(5), rand(5, seed=1)
    check(gd.layer_norm, normalised(x, -1) * g + b, x, g, b, tol=1e-10)
    check(gd.layer_norm, normalised(x, -1), x, tol=1e-10)
    g, b = rand(4, 5), rand(4, 5, seed=1)
    check(lambda *a: gd.layer_norm(*a, axis=(-1, -2)), normalised(x, (1, 2)) * g + b, x, g, b, tol=1e-10)
    g = rand(4)
    check(lambda *a: gd.layer_norm(*a, axis=1, eps=0.1), normalised(x, 1, 0.1) * g[:, None], x, g, tol=1e-10)


def test_batch_and_group_norm():
    x, g, b = rand(3, 4, 5, 2), rand(4), rand(4, seed=1)
    scale, shift = g[:, None, None], b[:, None, None]
    check(gd.batch_norm, normalised(x, (0, 2, 3)) * scale + shift, x, g, b, tol=1e-10)
    grouped = normalised(x.reshape(3, 2, -1), 2).reshape(x.shape)
    check(lambda *a: gd.group_norm(a[0], 2, *a[1:]), grouped * scale + shift, x, g, b, tol=1e-10)


def test_rms_norm():
    x, g = rand(3, 4, 5), rand(5)
    check(gd.rms_norm, x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g, x, g, tol=1e-10)


@pytest.mark.parametrize("x", [
    [[60000, 60001, 60002, 60003]], [[1e7, 1e7 + 1, 1e7 + 2, 1e7 + 3]],
    1e6 + np.random.default_rng(0).standard_normal((2, 10000)),
    np.full((1, 7), 12345.678)], ids=["60000", "mean-not-representable", "many", "constant"])
def test_a_large_mean_costs_no_digits_in_float32(x):
    x = np.asarray(x, np.float32)
    node = gd.input("x", x.shape, "float32")
    value = run(gd.layer_norm(node), {node: x})
    assert value.dtype == np.float32
    np.testing.assert_allclose(value, normalised(x, -1), atol=2e-6)
    turned = gd.input("x", x.T.shape, "float32")
    np.testing.assert_allclose(run(gd.batch_norm(turned), {turned: x.T}), normalised(x, -1).T, atol=2e-6)


def test_float16_is_normalised_in_float32():
    x = (100 + np.arange(12).reshape(3, 4) / 8).astype(np.float16)
    node = gd.input("x", x.shape, "float16")
    value = run(gd.layer_norm(node), {node: x})
    assert value.dtype == np.float16
    np.testing.assert_allclose(value, normalised(x, -1), atol=1e-3)


def test_norm_errors():
    x = gd.input("x", (2, 3))
    for norm in (gd.layer_norm, gd.batch_norm, gd.rms_norm):
        with pytest.raises(ShapeError, match=r"gamma has shape \[2\], \[3\] is needed"):
            norm(x, np.ones(2))
    with pytest.raises(ShapeError, match="3 channels do not divide into 2 groups"):
        gd.group_norm(x, 2)
    with pytest.raises(ShapeError, match=r"\[N, C, \.\.\]"):
        gd.batch_norm(gd.input("v", (3,)))


# -- attention -------------------------------------------------------------------------------------------------------

def plain_attention(q, k, v, mask=None):
    s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    top = np.max(s, -1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


MASKS = {
    "none": (None, False), "causal": (None, True), "row": (np.array([1, 0, 1, 1, 0], bool), False),
    "row-causal": (np.array([1, 0, 1, 1, 0], bool), True),
    "batched": (np.array([[[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]],
                          [[0, 1, 0, 0, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]]], bool), False),
}


@pytest.mark.parametrize("name", MASKS)
def test_attention(name):
    mask, causal = MASKS[name]
    q, k, v = rand(2, 3, 4), rand(2, 5, 4, seed=1), rand(2, 5, 3, seed=2)
    look = mask
    if causal:
        past = np.tri(3, 5, dtype=bool)
        look = past if mask is None else mask & past
    check(lambda *a: gd.attention(*a, mask, causal=causal), plain_attention(q, k, v, look), q, k, v)


@pytest.mark.parametrize("as_input", [True, False])
def test_what_nobody_may_look_at_has_no_influence(as_input):
    q, k, v = rand(2, 3, 4), rand(2, 5, 4, seed=1), rand(2, 5, 3, seed=2)
    look = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 1, 1]], bool)
    nodes = inputs([q, k, v])
    mask = gd.input("mask", (3, 5), "bool") if as_input else look
    y = gd.attention(*nodes, mask)
    f = gd.function([*nodes, mask] if as_input else nodes, [y, *gd.grad(gd.sum(y * y), nodes)])
    extra = [look] if as_input else []
    clean = f(q, k, v, *extra)
    q[:, 1], k[:, 2], v[:, 2] = np.nan, np.nan, np.inf
    for a, b in zip(clean, f(q, k, v, *extra), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(b).all()
    assert not clean[0][:, 1].any() and not clean[1][:, 1].any() and not clean[2][:, 2].any()


def test_attention_to_itself_with_named_sizes():
    x = gd.input("x", ("b", "t", 4))
    y = gd.attention(x, x, x, causal=True)
    f = gd.function([x], [y, gd.grad(gd.sum(y * y), x)])
    a = rand(2, 5, 4)
    value, slope = f(a)
    np.testing.assert_allclose(value, plain_attention(a, a, a, np.tri(5, dtype=bool)), rtol=1e-12, atol=1e-13)
    assert slope.shape == a.shape


def test_attention_with_huge_scores():
    q, k, v = np.array([[2000.0, 0]]), np.array([[1000.0, 1], [-1000, 1]]), np.array([[1.0, 2], [3, 4]])
    nodes = inputs([q, k, v])
    y = gd.attention(*nodes)
    value, *slopes = run([y, *gd.grad(gd.sum(y), nodes)], dict(zip(nodes, (q, k, v), strict=True)))
    np.testing.assert_array_equal(value, [[1, 2]])
    assert not slopes[0].any() and not slopes[1].any()
    np.testing.assert_array_equal(slopes[2], [[1, 1], [0, 0]])


def test_attention_errors():
    q, k, v = gd.input("q", (3, 4)), gd.input("k", (5, 4)), gd.input("v", (5, 2))
    with pytest.raises(DTypeError, match="the mask is float64, bool is needed"):
        gd.attention(q, k, v, np.ones((3, 5)))
    with pytest.raises(ShapeError, match=r"the mask has shape \[3, 4\], there are 5 keys"):
        gd.attention(q, k, v, np.ones((3, 4), bool))
    with pytest.raises(ShapeError, match="q has vectors of 4 elements, k of 2"):
        gd.attention(q, v, v)
    with pytest.raises(ShapeError, match="there are 5 keys and 3 values"):
        gd.attention(q, k, q)


# -- stop_gradient ---------------------------------------------------------------------------------------------------

def test_stop_gradient():
    x = gd.input("x")
    y = x * gd.stop_gradient(x)
    np.testing.assert_array_equal(run([y, gd.grad(y, x), gd.jvp(y, x, 1.0)], {x: 3.0}), [9, 3, 3])
    with pytest.raises(GradientError, match="stop_gradient cuts"):
        gd.grad(gd.stop_gradient(x), x)
    assert run(gd.grad(gd.stop_gradient(x), x, unconnected="zero"), {x: 3.0}) == 0
    assert gd.stop_gradient(gd.input("i", (2,), "int32")).dtype == np.int32


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_sum_of_products_with_a_large_turned_matrix_makes_no_copy_of_it(dtype):
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-50, 50, shape).astype(dtype) for shape in ((1100, 1300), (1300, 1100)))
    x, y = gd.input("x", a.shape, dtype), gd.input("y", b.shape, dtype)
    for node in (gd.einsum("ij,ji->", x, y), gd.einsum("ij,ij->", x, y.T)):
        f = gd.function([x, y], node, threads=1)
        assert f(a, b) == np.einsum("ij,ji->", a.astype("int64"), b.astype("int64")) == gd.function([x, y], node, threads=2)(a, b)
        if dtype != "int64":
            assert f.plan.arena_nbytes < a.nbytes / 8
        checked(2)
