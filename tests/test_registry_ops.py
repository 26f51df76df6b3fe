"""Every elementwise op of the registry, without anyone writing a test for it: values, both modes, two orders.

A rule broken on purpose (sign, factor, dropped, swapped, taken at another place) must be found: that is tested too.
"""
import numpy as np
import pytest
from counting import checked
from registry_cases import DISCRETE, ELEMENTWISE, FLOATS, INTEGERS, MP, PUBLIC, SMOOTH, check_derivatives, mp_derivative, points, run, step

import graphdiff as gd
from graphdiff.errors import DTypeError
from graphdiff.graph.opdef import REGISTRY, ZERO
from graphdiff.runtime.reference import reference

SHAPES = [((), ()), ((1,), (1,)), ((3,), (3,)), ((2, 3), (2, 3)), ((1, 3), (2, 1)), ((0, 3), (0, 3)), ((17,), (17,)), ((5, 1, 7), (5, 1, 7)),
          ((4, 3), ()), ((), (67,))]


def operands(name, shapes, dtype):
    """Arrays of these shapes filled from the op's sample points (from a table of integers for integer dtypes)."""
    op = REGISTRY[name]
    result = []
    for k in range(op.arity):
        n = int(np.prod(shapes[k]))
        if np.dtype(dtype).kind == "f":
            column = points(name)[k]
        elif dtype == "bool":
            column = np.array([True, False, False, True][k:])
        elif "shift" in name and k == 1:
            column = np.array([0, 1, 2, 3, 5])
        elif name in ("remainder", "floor_divide") and k == 1:
            column = np.array([3, 5, 1, 2, 7, 11])
        else:
            column = np.array([5, 0, 1, 250, 17, 3, 2]) if dtype == "uint8" else np.array([5, -3, 0, 2**31 - 1, -2**31, 17, -1])
        result.append(np.resize(column, n).reshape(shapes[k]).astype(dtype))
    return result


def ulps(got, want, dtype):
    """Distance in units of the last place of `want`; 0 where both are the same or both NaN."""
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        unit = np.spacing(np.abs(want).astype(dtype)).astype(np.float64)
        return np.where(same, 0, np.abs(got.astype(np.float64) - want.astype(np.float64)) / unit)


def compare(name, got, nodes, arrays, y):
    """One result of the C program against the reference within the op's promise."""
    feeds = dict(zip(nodes, arrays, strict=True))
    assert got.shape == y.shape and got.dtype == y.dtype
    dtype = got.dtype
    want = reference([y], feeds)[0]
    if dtype.kind != "f":
        assert np.array_equal(got, want), (name, arrays, got, want)
    elif dtype == np.float64:
        # NumPy's own float64 functions are right to 4 ULP; products and quotients must be the same bits.
        limit = 0 if REGISTRY[name].ulp == 0 else REGISTRY[name].ulp + 4
        assert (ulps(got, want, dtype) <= limit).all(), (name, arrays, got, want)
    elif REGISTRY[name].ulp == 0 and dtype == np.float32:
        assert (ulps(got, want, dtype) == 0).all(), (name, arrays, got, want)
    else:
        wide = [gd.input(n.name, n.shape, "float64") for n in nodes]
        exact = reference([PUBLIC[name](*wide)], dict(zip(wide, [a.astype(np.float64) for a in arrays], strict=True)))[0]
        limit = (REGISTRY[name].ulp if dtype == np.float32 else 0) + 0.51
        with np.errstate(all="ignore"):
            assert (ulps(got, exact.astype(dtype), dtype) <= np.ceil(limit)).all(), (name, arrays, got, exact)
    checked(got.size or 1)


def accepts(name, dtype):
    xs = [gd.input("x", (), dtype) for _ in range(REGISTRY[name].arity)]
    try:
        return PUBLIC[name](*xs)
    except DTypeError:
        return None


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_value(name, dtype):
    """Every shape, and operands that are transposed, reversed, strided and broadcast views inside the program."""
    if accepts(name, dtype) is None:
        assert np.dtype(dtype).kind != "f" or REGISTRY[name].cuts
        return
    nodes, arrays, outputs, ops = [], [], [], []
    for shapes in SHAPES:
        xs = operands(name, shapes, dtype)
        ns = [gd.input(f"x{len(nodes) + k}", x.shape, dtype) for k, x in enumerate(xs)]
        nodes += ns
        arrays += xs
        views = [lambda v: v]
        if len(shapes[0]) == 2:
            views += [lambda v: v.T, lambda v: v[::-1], lambda v: v[:, ::2], lambda v: gd.broadcast_to(v[:1], (4, v.shape[1])) if v.shape[0] else v]
        elif shapes[0] == (17,):
            views += [lambda v: v[::-3], lambda v: v[5:6]]
        for view in views:
            outputs.append(PUBLIC[name](*[view(n) if n.ndim else n for n in ns]))
            ops.append((ns, xs))
    results = run(outputs, dict(zip(nodes, arrays, strict=True)))
    for y, got, (ns, xs) in zip(outputs, results, ops, strict=True):
        if y.op.name == name:
            wide = [n for n in ns]
            if all(x.op.name == "input" for x in y.inputs) or got.dtype == np.float64 or got.dtype.kind != "f" or REGISTRY[name].ulp == 0:
                compare(name, got, wide, xs, y)
            else:      # a view of the inputs: compare with the same op on the contiguous copies
                copies = [reference([x], dict(zip(ns, xs, strict=True)))[0] for x in y.inputs]
                ins = [gd.input(f"c{k}", c.shape, dtype) for k, c in enumerate(copies)]
                compare(name, got, ins, copies, PUBLIC[name](*ins))


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if REGISTRY[n].ulp != 0])
def test_bits_do_not_depend_on_place_or_layout(name):
    """An element's bits depend on nothing but itself: alone, at the end of a long array, in a strided view."""
    for dtype in ("float64", "float32"):
        xs = operands(name, [(67,)] * REGISTRY[name].arity, dtype)
        ns = [gd.input(f"x{k}", x.shape, dtype) for k, x in enumerate(xs)]
        whole = PUBLIC[name](*ns)
        parts = [PUBLIC[name](*[n[i] for n in ns]) for i in (0, 1, 33, 66)]
        strided = PUBLIC[name](*[n[::-2] for n in ns])
        w, s, *alone = run([whole, strided, *parts], dict(zip(ns, xs, strict=True)), passes=())
        assert w[::-2].tobytes() == s.tobytes()
        assert [a.tobytes() for a in alone] == [w[i].tobytes() for i in (0, 1, 33, 66)]
        checked(5)


# -- derivatives ---------------------------------------------------------------------------------------------------------

def derivative(name, operand, xs, order, also=None):
    """The partial derivative by complex step or mpmath: order 1 in `operand`, order 2 in `operand` and then `also`."""
    if name in MP and order == 1:
        return mp_derivative(name, operand, xs, 1)
    if name in MP:
        return mp_derivative(name, operand, xs, 2)
    ns = [gd.input(f"x{k}", x.shape) for k, x in enumerate(xs)]
    feeds = dict(zip(ns, xs, strict=True))
    y = PUBLIC[name](*ns)
    if order == 1:
        return step([y], feeds, ns[operand])[0]
    g = gd.grad(y, ns[operand], cotangent=np.ones(y.shape), unconnected="zero")
    return step([g], feeds, ns[also])[0]


def check_rule(name):
    """Both modes, orders 1 and 2, elementwise, relative 1e-12."""
    xs = points(name)
    ns = [gd.input(f"x{k}", x.shape) for k, x in enumerate(xs)]
    feeds = dict(zip(ns, xs, strict=True))
    y = PUBLIC[name](*ns)
    c = np.linspace(0.5, 1.5, y.size)
    outputs, wants, labels = [], [], []
    arity = len(xs)

    def expect(node, want, label):
        outputs.append(node)
        wants.append(want)
        labels.append(label)

    for i in range(arity):
        if DISCRETE.get(name) == i:
            continue
        first = derivative(name, i, xs, 1)
        g = gd.grad(y, ns[i], cotangent=gd.constant(c), unconnected="zero")
        t = gd.jvp(y, ns[i], gd.constant(c))
        expect(g, c * first, f"reverse in operand {i}")
        expect(t, c * first, f"forward in operand {i}")
        for j in range(arity):
            if DISCRETE.get(name) == j:
                continue
            second = c * derivative(name, i, xs, 2, j)
            for mode, d in (("reverse", gd.grad(g, ns[j], cotangent=np.ones(y.shape), unconnected="zero")),
                            ("forward", gd.jvp(g, ns[j], np.ones(y.shape))),
                            ("reverse of forward", gd.grad(t, ns[j], cotangent=np.ones(y.shape), unconnected="zero"))):
                expect(d, second, f"second order, {mode} in operands {i}, {j}")
    for got, want, label in zip(run(outputs, feeds), wants, labels, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-300, err_msg=f"{name}: {label}")
        checked(got.size)


@pytest.mark.parametrize("name", SMOOTH)
def test_derivative(name):
    check_rule(name)


@pytest.mark.parametrize("name", [n for n in SMOOTH if n not in MP])
def test_derivative_over_shapes(name):
    """The adjoint identity and both orders with broadcast operands, empty ones and scalars."""
    for shapes in SHAPES:
        xs = operands(name, shapes, "float64")
        ns = [gd.input(f"x{k}", x.shape) for k, x in enumerate(xs)]
        check_derivatives(PUBLIC[name](*ns), dict(zip(ns, xs, strict=True)))


@pytest.mark.parametrize("name", SMOOTH)
def test_float32_derivative_follows_float64(name):
    xs = points(name)
    results = []
    for dtype in ("float64", "float32"):
        ns = [gd.input(f"x{k}", x.shape, dtype) for k, x in enumerate(xs)]
        y = PUBLIC[name](*ns)
        gs = gd.grad(y, ns, cotangent=np.ones(y.shape, dtype), unconnected="zero")
        assert all(g.dtype == dtype for g in gs)
        # The float64 run gets the rounded arguments, so that only the arithmetic differs.
        results.append(run(gs, {n: x.astype("float32").astype(dtype) for n, x in zip(ns, xs, strict=True)}))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6 * np.abs(a).max(initial=0), err_msg=name)
        checked(a.size)


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if REGISTRY[n].zero])
def test_zero_derivative_is_connected(name):
    xs = points(name)
    ns = [gd.input(f"x{k}", x.shape) for k, x in enumerate(xs)]
    y = PUBLIC[name](*ns)
    for n, g in zip(ns, gd.grad(y, ns, cotangent=np.ones(y.shape)), strict=True):
        assert not np.any(run([g], dict(zip(ns, xs, strict=True)))[0]) and g.shape == n.shape
        checked()


# -- rules broken on purpose -----------------------------------------------------------------------------------------------

def mutations(op):
    """(what, changed partials): sign, factor, dropped, swapped, of another operand."""
    from graphdiff.graph.opdef import MINUS_ONE, ONE

    def as_node(p, args):
        if callable(p):
            p = p(*args)
        return gd.constant(1.0) if p is ONE else gd.constant(-1.0) if p is MINUS_ONE else gd.constant(0.0) if p is ZERO else p

    for i, p in enumerate(op.partials):
        if p is ZERO:
            continue
        others = list(op.partials)

        def with_(q, i=i, others=others):
            return tuple(q if k == i else r for k, r in enumerate(others))

        yield f"sign of {i}", with_(lambda *a, p=p: -as_node(p, a))
        yield f"factor of {i}", with_(lambda *a, p=p: 1.0000001 * as_node(p, a))
        yield f"dropped {i}", with_(ZERO)
        yield f"shifted {i}", with_(lambda *a, p=p: as_node(p, a) + 1e-6)
        if len(others) == 2:
            yield f"swapped {i}", with_(lambda *a, q=others[1 - i]: as_node(q, a))
        else:
            yield f"times x {i}", with_(lambda *a, p=p: as_node(p, a) * a[0])


@pytest.mark.parametrize("name", SMOOTH)
def test_a_broken_rule_is_found(name):
    op = REGISTRY[name]
    right = op.partials
    try:
        for what, wrong in mutations(op):
            if name == "add" and what.startswith("swapped"):
                continue          # 1 and 1: the same rule
            object.__setattr__(op, "partials", wrong)
            with pytest.raises(AssertionError):
                check_rule(name)
            checked()
    finally:
        object.__setattr__(op, "partials", right)
    check_rule(name)


def test_every_elementwise_op_has_a_public_function():
    assert not set(ELEMENTWISE) - set(PUBLIC)
