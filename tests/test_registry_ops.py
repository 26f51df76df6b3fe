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


# Whole numbers for the operands of ops that are not defined, or not meant, for all of them.
SMALL_ORDER = (np.array([1, 0, 2, 3]), np.array([1, 2, 5, 3, 7]))
INTEGER_OPERANDS = {
    "left_shift": (None, np.array([0, 1, 2, 3, 5])), "right_shift": (None, np.array([0, 1, 2, 3, 5])),
    "remainder": (None, np.array([3, 5, 1, 2, 7, 11])), "floor_divide": (None, np.array([3, 5, 1, 2, 7, 11])),
    "polygamma": SMALL_ORDER, "sinc_derivative": SMALL_ORDER,
}
TIES = ("maximum", "minimum", "fmax", "fmin")      # differentiated away from ties here
# Functions with roots: near one the promise is absolute, relative to this value.
ROOTS = {"gelu_grad": 0.2, "lgamma": 1.0, "digamma": 1.0, "logaddexp": 1.0, "sinc": 1.0, "sinc_derivative": 1.0}


def operands(name, shapes, dtype):
    """Arrays of these shapes filled from the op's sample points (from a table of integers for integer dtypes)."""
    result = []
    for k in range(REGISTRY[name].arity):
        n = int(np.prod(shapes[k]))
        special = INTEGER_OPERANDS.get(name, (None, None))[k]
        if np.dtype(dtype).kind == "f":
            column = points(name)[k] + (0.0137 * k if name in TIES else 0)
        elif dtype == "bool":
            column = np.array([True, False, False, True][k:])
        elif special is not None:
            column = special
        else:
            column = np.array([5, 0, 1, 250, 17, 3, 2]) if dtype == "uint8" else np.array([5, -3, 0, 2**31 - 1, -2**31, 17, -1])
        result.append(np.resize(column, n).reshape(shapes[k]).astype(dtype))
    return result


def ulps(got, want, dtype, floor):
    """Distance in units of the last place of `want` (at least of `floor`); 0 where both are the same or both NaN."""
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        unit = np.spacing(np.maximum(np.abs(want), floor).astype(dtype)).astype(np.float64)
        return np.where(same, 0, np.abs(got.astype(np.float64) - want.astype(np.float64)) / unit)


def compare(name, got, arrays):
    """One result of the C program against the reference, on contiguous arrays, within the op's promise."""
    dtype, ulp, floor = got.dtype, REGISTRY[name].ulp, ROOTS.get(name, 0)
    ns = [gd.input(f"x{k}", x.shape, x.dtype) for k, x in enumerate(arrays)]
    y = PUBLIC[name](*ns)
    want = reference([y], dict(zip(ns, arrays, strict=True)))[0]
    assert got.shape == y.shape and got.dtype == y.dtype
    if dtype.kind != "f":
        assert np.array_equal(got, want), (name, arrays, got, want)
    elif dtype == np.float64:
        # NumPy's own float64 functions are right to 4 ULP; products and quotients must be the same bits.
        assert (ulps(got, want, dtype, floor) <= (ulp + 4 if ulp else 0)).all(), (name, arrays, got, want)
    elif ulp == 0 and dtype == np.float32:
        assert (ulps(got, want, dtype, 0) == 0).all(), (name, arrays, got, want)
    else:
        # The exact value from float64, rounded; float16 is computed in float32 and rounded once more.
        wide = [gd.input(n.name, n.shape, "float64") for n in ns]
        exact = reference([PUBLIC[name](*wide)], dict(zip(wide, [a.astype(np.float64) for a in arrays], strict=True)))[0]
        with np.errstate(all="ignore"):
            exact = exact.astype(dtype)
        assert (ulps(got, exact, dtype, floor) <= (ulp + 1 if dtype == np.float32 else 1 if ulp else 0)).all(), (name, arrays, got, exact)
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
    nodes, arrays, outputs, ops, operand_views = [], [], [], [], []
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
            operand_views.append([view(n) if n.ndim else n for n in ns])
            outputs.append(PUBLIC[name](*operand_views[-1]))
            ops.append((ns, xs))
    results = run(outputs, dict(zip(nodes, arrays, strict=True)))
    for views, got, (ns, xs) in zip(operand_views, results, ops, strict=True):
        compare(name, got, reference(views, dict(zip(ns, xs, strict=True))))


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if REGISTRY[n].ulp != 0])
def test_bits_do_not_depend_on_place_or_layout(name):
    """An element's bits depend on nothing but itself: alone, at the end of a long array, in a strided view."""
    for dtype in ("float64", "float32"):
        if accepts(name, dtype) is None:
            continue
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

    def expect(node, want, label, atol=1e-300):
        outputs.append(node)
        wants.append((want, atol))
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
            # Near a root of the second derivative its terms cancel: 8 eps of the first derivative.
            near = 8 * np.finfo(float).eps * np.abs(c * first)
            for mode, d in (("reverse", gd.grad(g, ns[j], cotangent=np.ones(y.shape), unconnected="zero")),
                            ("forward", gd.jvp(g, ns[j], np.ones(y.shape))),
                            ("reverse of forward", gd.grad(t, ns[j], cotangent=np.ones(y.shape), unconnected="zero"))):
                expect(d, second, f"second order, {mode} in operands {i}, {j}", near)
    for got, (want, atol), label in zip(run(outputs, feeds), wants, labels, strict=True):
        assert (np.abs(got - want) <= 1e-12 * np.abs(want) + atol).all(), f"{name}: {label}: {got} instead of {want}"
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
