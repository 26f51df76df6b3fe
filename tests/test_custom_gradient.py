"""A custom gradient says nothing about what its function closes over, and says so: never a silent zero."""
import copy

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.errors import GradientError


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
