"""gd.check_grads: right derivatives pass, wrong rules are found in both modes and both orders, and named with their line."""
import sys

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.errors import DTypeError, GradientError, NodeTypeError, ShapeError
from graphdiff.graph.opdef import REGISTRY

AT = np.array([0.3, -0.7, 1.2])


@pytest.fixture
def x():
    return gd.input("x", (3,))


def here():
    return f"test_check_grads.py:{sys._getframe(1).f_lineno}"


@pytest.mark.parametrize("make", [
    lambda x: gd.sum(gd.exp(x) * gd.sin(x)), lambda x: x * x, lambda x: gd.softmax(x), lambda x: gd.logsumexp(x),
    lambda x: gd.erf(x) + gd.gelu(x),
    lambda x: gd.lgamma(x * x + 1), lambda x: gd.prod(x), lambda x: gd.cumsum(x) @ x, lambda x: gd.sort(x), lambda x: gd.max(x),
    lambda x: gd.stop_gradient(x) * x, lambda x: gd.stop_gradient(x) * gd.erf(x), lambda x: gd.floor(x) * x,
    lambda x: gd.where(x > 0, x * x, -x),
    lambda x: gd.layer_norm(x), lambda x: gd.norm(x), lambda x: gd.checkpoint(lambda a: gd.tanh(gd.exp(a)))(x), lambda x: gd.std(x),
    lambda x: 2.0 * x,
    lambda x: gd.constant(1.0) * 2, lambda x: x[::-1], lambda x: gd.dropout(x, 0.5, gd.random.key(3)),
])
def test_right_derivatives_pass(x, make):
    y = make(x)
    assert gd.check_grads(y, x, {x: AT}) is None
    gd.check_grads([y, x], [x], [AT], order=3, modes=("reverse",))


def test_forms_of_at(x):
    y = gd.sum(x * x)
    for at in ({x: AT}, [AT], AT, list(AT), {x: [1, 2, 3]}):
        gd.check_grads(y, x, at)
    a = gd.input("a")
    gd.check_grads(y * a, [x, a], [AT, 2.0])
    gd.check_grads(y * a, x, {x: AT, a: 2.0})
    gd.check_grads(y * a, a, {x: AT, a: 2.0}, modes="forward")


def test_interior_nodes_variables_named_sizes_and_dtypes(x):
    h = gd.exp(x)
    gd.check_grads(gd.sum(h * h + x), h, {x: AT})
    gd.check_grads(gd.sum(h * h), h, {h: AT})
    w = gd.variable(np.array([1.0, 2.0, 3.0]))
    gd.check_grads(w * gd.sin(w * x), [w, x], {x: AT})
    gd.check_grads(w * gd.sin(w * x), w, {x: AT, w: AT})
    b = gd.input("b", ("batch", "n"))
    gd.check_grads(gd.reshape(gd.concatenate([b, b * b], axis=1), -1), b, np.ones((2, 3)))
    f, g = gd.input("f", (4,), "float32"), gd.input("g", (4,), "float16")
    gd.check_grads(gd.tanh(f) * gd.erf(f), f, np.array([0.1, -0.2, 0.3, 2], "float32"))
    gd.check_grads(gd.sum(gd.exp(g)), g, np.array([0.1, -0.2, 0.3, 1], "float16"))
    gd.check_grads(x[:0], x, AT)


def test_a_wrong_custom_gradient_is_named(x):
    def crooked(a, b):
        return gd.sin(a) * b
    f = gd.custom_gradient(crooked, lambda g, out, a, b: (g * gd.cos(a) * b, g * gd.cos(a)))
    right = gd.custom_gradient(crooked, lambda g, out, a, b: (g * gd.cos(a) * b, g * gd.sin(a)))
    gd.check_grads(gd.exp(right(x, x * 2)), x, AT)
    y = f(x, x * 2); line = here()      # noqa: E702
    for outer in (lambda v: v, gd.exp, lambda v: right(v, gd.exp(v)), gd.checkpoint(lambda v: v * v)):
        for modes in ("forward", "reverse"):
            with pytest.raises(GradientError) as caught:
                gd.check_grads(gd.sum(outer(y)), x, AT, modes=modes)
            assert "custom gradient of 'crooked' is wrong in operand 1" in str(caught.value) and line in str(caught.value)
    with pytest.raises(GradientError, match="'crooked' is wrong in operand 0"):
        gd.check_grads(gd.checkpoint(lambda a: gd.exp(f(a, a)))(x), x, AT)


def test_a_custom_gradient_that_forgets_what_it_closes_over_is_named(x):
    w = gd.input("w")
    f = gd.custom_gradient(lambda a: a * w, lambda g, out, a: g * w)
    gd.check_grads(f(x), x, {x: AT, w: 2.0})
    with pytest.raises(GradientError, match="gives nothing for 'w', which its function uses"):
        gd.check_grads(f(x), w, {x: AT, w: 2.0})


def test_a_custom_gradient_right_to_first_order_only(x):
    f = gd.custom_gradient(lambda a: a * a, lambda g, out, a: g * 2 * gd.stop_gradient(a))
    gd.check_grads(f(x), x, AT, order=1)
    with pytest.raises(GradientError, match="order 2"):
        gd.check_grads(f(x), x, AT)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name,bad", [("sin", lambda x, y: -gd.cos(x)), ("cosh", lambda x, y: -gd.sinh(x)),
                                      ("exp", lambda x, y: y * (1 + 1e-7)),
                                      ("erf", lambda x, y: gd.exp(-x * x))])
def test_a_wrong_partial_is_named(x, monkeypatch, name, bad, mode):
    op = REGISTRY[name]
    old = op.partials
    try:
        object.__setattr__(op, "partials", (bad,))
        h = getattr(gd, name)(x); line = here()      # noqa: E702
        with pytest.raises(GradientError) as caught:
            gd.check_grads(gd.tanh(h * x) + gd.log(x * x), x, AT, order=1, modes=(mode,))
    finally:
        object.__setattr__(op, "partials", old)
    text = str(caught.value)
    assert f"derivative rule of {name} is wrong in operand 0" in text and line in text and "operand 0" in text and "float64[3]" in text


def test_a_wrong_rule_of_the_second_order_names_the_op_that_has_it(x):
    op = REGISTRY["cos"]
    old = op.partials
    try:
        object.__setattr__(op, "partials", (lambda x, y: gd.sin(x),))
        with pytest.raises(GradientError, match="derivative rule of cos is wrong") as caught:
            gd.check_grads(gd.sin(x), x, AT)
        gd.check_grads(gd.sin(x), x, AT, order=1)
    finally:
        object.__setattr__(op, "partials", old)
    assert "order 2" in str(caught.value)


def test_a_wrong_structural_vjp_is_named(x):
    op = REGISTRY["cumsum"]
    old = op.vjp
    try:
        object.__setattr__(op, "vjp", lambda g, node, needs: (gd.cumsum(g),))
        with pytest.raises(GradientError, match="derivative rule of cumsum is wrong in operand 0"):
            gd.check_grads(gd.exp(gd.cumsum(x)), x, AT, modes=("reverse",))
    finally:
        object.__setattr__(op, "vjp", old)


def test_misuse(x):
    y, k = gd.sum(x), gd.input("k")
    n = gd.input("n", (), "int64")
    for error, what, call in [
        (NodeTypeError, "no value for input 'k'", lambda: gd.check_grads(y * k, x, AT)),
        (ShapeError, r"shape \[2\] given, \[3\] wanted", lambda: gd.check_grads(y, x, AT[:2])),
        (ShapeError, "shape", lambda: gd.check_grads(y, x, {x: 1.0})),
        (DTypeError, "complex128 given", lambda: gd.check_grads(y, x, AT * 1j)),
        (NodeTypeError, "modes are", lambda: gd.check_grads(y, x, AT, modes=("backward",))),
        (NodeTypeError, "modes are", lambda: gd.check_grads(y, x, AT, modes=())),
        (NodeTypeError, "whole number", lambda: gd.check_grads(y, x, AT, order=0)),
        (NodeTypeError, "keys of at", lambda: gd.check_grads(y, x, {"x": AT})),
        (NodeTypeError, "2 values for", lambda: gd.check_grads(y * k, [x, k, y], [AT, 1.0])),
        (NodeTypeError, "nodes only", lambda: gd.check_grads(y, [3.0], [1.0])),
        (GradientError, "no derivative", lambda: gd.check_grads(y * n, n, {x: AT, n: 1})),
    ]:
        with pytest.raises(error, match=what) as caught:
            call()
        assert "test_check_grads.py" in str(caught.value)


def test_pickled_checkpoints(x):
    """A checkpoint's rule pickles with the body it recomputes, also in a row, nested, and inside a compiled function."""
    import copy
    import pickle
    w = gd.variable(np.eye(3) * 0.5)
    y = x
    for _ in range(30):
        y = gd.checkpoint(lambda a: gd.tanh(a @ w) + a * 0.1)(y)
    y = gd.checkpoint(lambda a: gd.checkpoint(lambda b: gd.sin(b @ w))(a) * 2)(y)
    f = gd.function([x], [y, gd.grad(gd.sum(y), w)])
    want = f(AT)
    for copied in (pickle.loads(pickle.dumps([y, x, w])), copy.deepcopy([y, x, w])):
        y2, x2, w2 = copied
        assert np.array_equal(gd.evaluate(gd.grad(gd.sum(y2), w2), {x2: AT}), want[1])
    for g in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert np.array_equal(g(AT)[1], want[1])
    gd.check_grads(y, [x, w], {x: AT})
