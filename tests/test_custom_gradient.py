"""A custom gradient says nothing about what its function closes over, and says so: never a silent zero."""
import copy
from typing import NamedTuple

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import GradientError, ShapeError


def scaled(w):
    return gd.custom_gradient(lambda a: a * w, lambda g, out, a: g * w)


@pytest.mark.parametrize("closed", ["input", "variable", "node", "constant", "view of the argument"])
@pytest.mark.parametrize("also", [False, True])
def test_a_gradient_with_respect_to_what_is_closed_over_is_refused(closed, also):
    x, u = gd.inputs("x u")
    w = {"input": lambda: gd.input("w"), "variable": lambda: gd.variable(2.0, "w"), "node": lambda: (u * 2.0).named("w"),
         "constant": lambda: gd.constant(2.0, "w"), "view of the argument": lambda: (x * 3.0).named("w")}[closed]()
    y = scaled(w)(x)
    if also:
        y = y * w
    for ask in (lambda: gd.grad(y, w), lambda: gd.jvp(y, w, 1.0), lambda: gd.vjp(y, w, 1.0), lambda: gd.grad(gd.checkpoint(lambda a: a * y)(u), w)):
        with pytest.raises(GradientError, match="gives nothing for 'w', which its function uses without taking it"):
            ask()


def test_the_error_names_the_line_of_the_call():
    x, w = gd.inputs("x w")
    y = scaled(w)(x)      # the line
    with pytest.raises(GradientError) as caught:
        gd.grad(y, w)
    assert "scaled(w)(x)      # the line" in str(caught.value) and "hint" in str(caught.value) and "closed over" in str(caught.value)


def test_closing_over_constants_of_a_derivative_is_fine():
    x, w = gd.inputs("x w")
    label = gd.input("label", (), "int64")
    y = gd.custom_gradient(lambda a: a * w * label, lambda g, out, a: g * 10.0)(x)
    assert gd.evaluate(gd.grad(y, x), {x: 2.0, w: 3.0, label: 1}) == 10
    z = gd.custom_gradient(lambda a: a * gd.stop_gradient(w) + gd.floor(w), lambda g, out, a: g * 10.0)(x) * w
    assert gd.evaluate(gd.grad(z, w), {x: 2.0, w: 3.0}) == 9.0


def test_a_variable_made_inside_is_closed_over_too():
    x = gd.input("x")
    made = []

    def forward(a):
        made.append(gd.variable(2.0, "inner"))
        return a * made[0]
    y = gd.custom_gradient(forward, lambda g, out, a: g * 2.0)(x)
    with pytest.raises(GradientError, match="gives nothing for 'inner'"):
        gd.grad(y, made[0])


def test_copies_and_passes_keep_the_refusal():
    x, w = gd.inputs("x w")
    x2, w2, y2 = copy.deepcopy([x, w, gd.custom_gradient(lambda a: a * w, lambda g, out, a: g * 5.0)(x)])
    with pytest.raises(GradientError, match="gives nothing for 'w'"):
        gd.grad(y2, w2)
    f = gd.function([x2, w2], [y2, gd.grad(y2, x2)])
    assert [float(v) for v in f(3.0, 7.0)] == [21.0, 5.0]


def test_one_function_with_several_numbers_of_arguments():
    x, z = gd.inputs("x z")
    f = gd.custom_gradient(lambda *a: sum(a[1:], a[0]), lambda g, out, *a: tuple(g * (i + 2.0) for i in range(len(a))))
    assert gd.evaluate(gd.grad(f(x), x), {x: 1.0}) == 2
    assert [float(v) for v in gd.evaluate(gd.grad(f(x, z), [x, z]), {x: 1.0, z: 1.0})] == [2, 3]
    assert np.array_equal(gd.evaluate(gd.jvp(f(x, z), [x, z], [1.0, 1.0]), {x: 1.0, z: 1.0}), 5.0)


@pytest.mark.parametrize("closed", ["input", "variable", "node", "constant"])
def test_what_a_checkpoint_closes_over_has_its_gradient(closed):
    x, u = gd.inputs("x u")
    w = {"input": lambda: gd.input("w"), "variable": lambda: gd.variable(2.0, "w"), "node": lambda: gd.exp(u) * 2.0,
         "constant": lambda: gd.constant(2.0)}[closed]()
    y = gd.checkpoint(lambda a: gd.sin(a * w) * gd.exp(w))(x)
    at = {x: 0.3, u: 0.0} if closed != "input" else {x: 0.3, w: 2.0}
    want = 0.3 * np.cos(0.6) * np.exp(2.0) + np.sin(0.6) * np.exp(2.0)
    for g in (gd.grad(y, w), gd.jvp(y, w, 1.0)):
        assert abs(gd.evaluate(g, {k: v for k, v in at.items() if k is not u or closed == "node"}) - want) < 1e-14 * want
    assert abs(gd.evaluate(gd.grad(y, x), {k: v for k, v in at.items() if k is not u or closed == "node"})
               - 2 * np.cos(0.6) * np.exp(2.0)) < 1e-13


# -- checkpoints of several results ------------------------------------------------------------------------------------------------


class State(NamedTuple):
    h: gd.graph.node.Node
    c: gd.graph.node.Node


A = np.random.default_rng(3).standard_normal((4, 3))


def cell(state, x, w, scale=1.0):
    """One step with two results, one of them nested, and a flag that is no float."""
    c = gd.tanh(state.h @ w) * scale + state.c
    return {"state": State(gd.sin(c) * x, c), "parts": [gd.sum(c), None, (c > 0,)]}


@pytest.mark.parametrize("named", [False, True])
def test_checkpoints_take_and_give_nested_results(named):
    shape = ("n", 3) if named else (4, 3)
    x, w = gd.input("x", shape), gd.variable(np.eye(3) * 0.7, "w")

    def rolled(step):
        state = State(x, x * 0.5)
        total = 0.0
        for _ in range(3):
            out = step(state, x, w, scale=1.5)
            state = out["state"]
            total = total + out["parts"][0] * 0.1
            assert out["parts"][1] is None and type(state) is State
        return [state.h, state.c, total + gd.sum(state.h * state.c), out["parts"][2][0]]

    plain, kept = rolled(cell), rolled(gd.checkpoint(cell))
    for ys in (plain, kept):
        ys += [*gd.grad(ys[2], [x, w]), gd.jvp(ys[2], x, np.ones((4, 3)) if not named else gd.ones_like(x)),
               gd.grad(gd.sum(gd.square(gd.grad(ys[2], x))), w)]
    got, want = gd.function([x], kept)(A), gd.function([x], plain)(A)
    for g, v in zip(got, want, strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-12)


def test_results_of_one_checkpoint_share_one_recomputation():
    x = gd.input("x", (3,))
    body = gd.checkpoint(lambda v: (gd.exp(gd.sin(v)), gd.cos(gd.sin(v)), gd.sum(v)))
    a, b, c = body(x)
    g = gd.grad(gd.sum(a * b) * c, x)
    from graphdiff.graph.walk import toposort
    assert sum(n.op.name == "custom" for n in toposort([g])) == 1
    assert sum(n.op.name == "barrier" for n in toposort([g])) == 1
    gd.check_grads([a, b, c], x, A[0])


def test_checkpoints_of_several_dtypes_and_of_arrays():
    x, y = gd.input("x", (3,)), gd.input("y", (3,), "float32")
    a, b, i = gd.checkpoint(lambda u, v: (gd.exp(u), gd.exp(v), gd.argmax(u)))(x, y)
    assert (a.dtype, b.dtype, i.dtype) == ("float64", "float32", "int64")
    f = gd.function([x, y], [*gd.grad(gd.sum(a) + gd.sum(b), [x, y]), i])
    got = f(A[0], A[1].astype("float32"))
    np.testing.assert_allclose(got[0], np.exp(A[0]), rtol=1e-14)
    np.testing.assert_allclose(got[1], np.exp(A[1]), rtol=1e-6)
    assert got[2] == np.argmax(A[0])
    z = gd.checkpoint(lambda u, v: u * v)(x, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(gd.evaluate(gd.grad(gd.sum(z), x), {x: A[0]}), [1.0, 2.0, 3.0])


def test_functions_that_give_no_node_are_refused_by_name():
    x = gd.input("x", (3,))

    def nothing(v):
        return None

    for call, message in ((lambda: gd.checkpoint(nothing)(x), "nothing: nothing gives no node"), (lambda: gd.checkpoint(lambda v: {})(x), "gives no node"),
                          (lambda: gd.custom_gradient(lambda v: (v, v), lambda g, o, v: g)(x), "forward must give one node, not tuple"),
                          (lambda: gd.custom_gradient(nothing, lambda g, o, v: g)(x), "forward must give one node, not NoneType")):
        with pytest.raises(gd.errors.NodeTypeError, match=rf"(?s){message}.*test_custom_gradient.py"):
            call()
    loop = []
    loop.append(loop)
    loop.append(x)
    with pytest.raises(gd.errors.NodeTypeError, match="nest more than 50 levels"):
        gd.checkpoint(lambda v: loop)(x)


def _line(text):
    """How an error's message names the line of this file that ends in a mark."""
    with open(__file__) as source:
        number = next(i for i, line in enumerate(source, 1) if line.rstrip().endswith(f"# {text}"))
    return f"\n  at      test_custom_gradient.py:{number} "


def test_errors_in_callbacks_are_at_their_own_line():
    x, w = gd.input("x", (3,)), gd.variable(np.ones(3), "w")

    def unfit(g, out, a):
        return gd.multiply(g, gd.ones(7))           # unfit

    def loss(g, out, a):
        return gd.losses.mse(g, gd.ones(8))         # loss

    def asks(g, *rest):
        return g if gd.sum(g) > 0 else -g           # asks

    def writes(a, *rest):
        a[0] = 1                                    # writes

    class Strange(gd.nn.Layer):
        def forward(self, a, training):
            return a if a[0] > 0 else -a            # layer

    def square(backward):
        return gd.custom_gradient(lambda a: a * a, backward)

    for mark, error, call in [
            ("unfit", ShapeError, lambda: gd.grad(gd.sum(square(unfit)(x)), x)),
            ("unfit", ShapeError, lambda: gd.jvp(square(unfit)(x), x, x)),
            ("loss", ShapeError, lambda: gd.hessian(gd.sum(square(loss)(x)), x)),
            ("asks", TypeError, lambda: gd.grad(gd.sum(square(asks)(x)), x)),
            ("writes", TypeError, lambda: gd.grad(gd.sum(square(writes)(x)), x)),
            ("asks", TypeError, lambda: gd.custom_gradient(asks, lambda g, out, a: g)(x)),
            ("writes", TypeError, lambda: gd.checkpoint(writes)(x)),
            ("layer", TypeError, lambda: Strange()(x)),
            ("asks", TypeError, lambda: gd.optim.Adam(asks).updates(gd.sum(w), [w]))]:
        with pytest.raises(error) as info:
            call()
        assert _line(mark) in str(info.value) and str(info.value).count("\n  at ") == 1
        checked(2)
    # What backward makes belongs to the line of the node it differentiates, as all adjoints do.
    y = square(lambda g, out, a: 2 * a * g)(x)
    assert gd.grad(gd.sum(y), x).site.line == y.site.line


def test_a_backward_that_returns_nothing_is_refused():
    """A forgotten return would be a gradient of zeros without a word; a None among several is one."""
    x, y = gd.input("x", (3,)), gd.input("y", (3,))
    with pytest.raises(GradientError, match="returned nothing"):
        gd.grad(gd.sum(gd.custom_gradient(lambda a: a * 2, lambda g, out, a: None)(x)), x)
    part = gd.custom_gradient(lambda a, b: a * b, lambda g, out, a, b: (g * b, None))
    got = gd.function([x, y], gd.grad(gd.sum(part(x, y)), [x, y]))(np.ones(3), np.full(3, 4.0))
    assert got[0].tolist() == [4, 4, 4] and got[1].tolist() == [0, 0, 0]
    checked(2)
