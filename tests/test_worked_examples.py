"""The constructions of the course texts, with their published values: what the library must express in a few lines."""
from __future__ import annotations

import math

import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def near(got, want, rtol=1e-12, atol=1e-15):
    np.testing.assert_allclose(np.asarray(got), want, rtol=rtol, atol=atol)
    checked()


def test_survey_function_values_and_derivatives():
    """Baydin et al. 2018, tables 2 and 3."""
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    f = gd.function([x1, x2], [y, *gd.grad(y, [x1, x2])])
    value, d1, d2 = f(2.0, 5.0)
    near(value, 11.652071455223084)
    near(d1, 5.5)
    near(d2, 1.7163378145367738)
    near(gd.evaluate(gd.jvp(y, [x1, x2], [1.0, 0.0]), {x1: 2.0, x2: 5.0}), 5.5)


def test_logistic_unit():
    u = gd.input("u")
    near(gd.evaluate(gd.grad(gd.sigmoid(u), u), {u: 0.0}), 0.25)
    y = u
    for _ in range(6):
        y = gd.tanh(y)
    slope, local = 1.0, 0.3
    for _ in range(6):
        slope *= 1 - math.tanh(local) ** 2
        local = math.tanh(local)
    near(gd.evaluate(gd.grad(y, u), {u: 0.3}), slope)


def test_multiple_use_sums_adjoints():
    x = gd.input("x")
    h = gd.exp(x)
    y = h * h + 3.0 * h + gd.sin(h)
    at = 0.4
    e = math.exp(at)
    gh, gx = gd.grad(y, [h, x])
    near(gd.evaluate(gh, {x: at}), 2 * e + 3 + math.cos(e))
    near(gd.evaluate(gx, {x: at}), e * (2 * e + 3 + math.cos(e)))


def test_every_edge_has_a_gradient():
    x = gd.input("x", (3,))
    a = gd.sin(x)
    b = a * x
    c = gd.sum(b)
    grads = gd.function([x], gd.grad(c, [c, b, a, x]))(np.array([0.1, 0.2, 0.3]))
    near(grads[0], 1.0)
    near(grads[1], np.ones(3))
    near(grads[2], [0.1, 0.2, 0.3])


def test_two_layer_classifier_with_l2():
    x, t = np.array([1.0, 1.0]), 0.0
    w1 = gd.input("W1", (2, 2))
    w2 = gd.input("W2", (2,))
    h = gd.relu(w1 @ x)
    z = w2 @ h
    loss = gd.softplus(z) - t * z + 0.01 * (gd.sum(w1 * w1) + gd.sum(w2 * w2))
    f = gd.function([w1, w2], [loss, *gd.grad(loss, [w1, w2])])
    j, g1, g2 = f([[0.5, 0.0], [0.0, 1.0]], [1.0, 0.0])
    near(j, 0.9965769841801067)
    near(g1, [[0.6324593312018546, 0.6224593312018546], [0.0, 0.02]])
    near(g2, [0.3312296656009273, 0.6224593312018546])


def test_descent_in_one_variable():
    x = gd.variable(2.0, "x")
    y = x**4 - x**3 - 2.0 * x**2 + 3.0
    step = gd.function([], y, updates={x: x - 0.13 * gd.grad(y, x)})
    path = []
    for _ in range(100):
        step()
        path.append(float(x.value))
    near(path[:2], [0.44, 0.70000832], rtol=1e-9)
    near(path[2], 1.07675, rtol=1e-5)
    near(path[-1], 1.443000468, rtol=1e-9)


def test_layer_recipe_equals_jacobian_recipe():
    rng = np.random.default_rng(0)
    w, h, g = rng.standard_normal((4, 3)), rng.standard_normal(3), rng.standard_normal(4)
    W = gd.input("W", (4, 3))
    y = gd.tanh(W @ h)
    full = gd.evaluate(gd.jacobian(y, W), {W: w})
    layer = gd.evaluate(gd.grad(y, W, cotangent=g), {W: w})
    near(np.einsum("i,ijk->jk", g, full), layer)
    near(layer, np.outer(g * (1 - np.tanh(w @ h) ** 2), h))


def test_einstein_sums():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    c, d = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4, 5))
    for equation, arrays in (("ik,kj->ij", (a, b)), ("ii->", (a,)), ("ij,jk->ik", (a, b)), ("ikl,klj->ij", (c, d)), ("ij,j->i", (a, b[0])),
                             ("i,j,k->ijk", (a[0], a[1], a[2])), ("ri,rj,rk->ijk", (a, b, a))):
        nodes = [gd.input(f"x{i}", v.shape) for i, v in enumerate(arrays)]
        y = gd.einsum(equation, *nodes)
        f = gd.function(nodes, [y, *gd.grad(gd.sum(y), nodes)])
        got = f(*arrays)
        near(got[0], np.einsum(equation, *arrays), rtol=1e-12, atol=1e-13)
        for k, v in enumerate(arrays):
            step = 1e-6 * rng.standard_normal(v.shape)
            lifted = [u + (step if i == k else 0) for i, u in enumerate(arrays)], [u - (step if i == k else 0) for i, u in enumerate(arrays)]
            change = np.einsum(equation, *lifted[0]).sum() - np.einsum(equation, *lifted[1]).sum()
            near(np.sum(got[1 + k] * step) * 2, change, rtol=1e-7, atol=1e-13)


def test_convolution_is_a_banded_layer():
    rng = np.random.default_rng(2)
    signal, kernel = rng.standard_normal(9), rng.standard_normal(3)
    band = np.zeros((7, 9))
    for i in range(7):
        band[i, i:i + 3] = kernel
    x, w = gd.input("x", (1, 1, 9)), gd.input("w", (1, 1, 3))
    y = gd.conv(x, w)
    got, gx, gw = gd.function([x, w], [y, *gd.grad(gd.sum(y), [x, w])])(signal[None, None], kernel[None, None])
    near(got[0, 0], band @ signal)
    near(gx[0, 0], band.sum(axis=0))
    near(gw[0, 0], [signal[k:k + 7].sum() for k in range(3)])
    back = gd.function([x, w], gd.conv_transpose(gd.conv(x, w), w))(signal[None, None], kernel[None, None])
    assert back.shape == (1, 1, 9)
    near(back[0, 0], band.T @ band @ signal)


def test_xor_network():
    x = gd.input("x", (4, 2))
    h = gd.relu(x @ np.array([[1.0, 1.0], [1.0, 1.0]]) + np.array([0.0, -1.0]))
    f = gd.function([x], h @ np.array([1.0, -2.0]))
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    near(f(corners), [0, 1, 1, 0])
    w, b = gd.variable(np.array([0.3, -0.2])), gd.variable(0.1)
    loss = gd.mean((x @ w + b - np.array([0.0, 1, 1, 0])) ** 2)
    gw, gb = gd.grad(loss, [w, b])
    step = gd.function([x], loss, updates={w: w - 0.5 * gw, b: b - 0.5 * gb})
    for _ in range(500):
        step(corners)
    near(w.value, [0, 0], atol=1e-9)
    near(b.value, 0.5, atol=1e-9)


def test_piecewise_linear_function():
    x = gd.input("x", (9,))
    y = gd.relu(x) - gd.relu(x - 1.0) + 2.0 * gd.relu(x - 2.0) - 3.0 * gd.relu(x - 3.0) + gd.relu(x - 6.0)
    near(gd.evaluate(y, {x: np.arange(9.0)}), [0, 1, 1, 3, 2, 1, 0, 0, 0])


@pytest.mark.parametrize(("temperature", "want"), [
    (1, [0.84379473, 0.04201007, 0.11419520]), (0.5, [0.97962921, 0.00242826, 0.01794253]), (2, [0.62853172, 0.14024438, 0.23122390])])
def test_softmax_temperatures(temperature, want):
    x = gd.input("x", (3,))
    f = gd.function([x], gd.softmax(x, temperature=temperature))
    near(f([3.0, 0.0, 1.0]), want, rtol=0, atol=5e-9)
    near(f([1003.0, 1000.0, 1001.0]), want, rtol=0, atol=5e-9)


def test_cross_entropy_of_logits():
    z = gd.input("z", (4,))
    logits = [0.1, -0.8, 1.4, 1.1]
    for label, want in ((1, 2.95337322), (2, 0.75337322)):
        loss = -gd.log_softmax(z)[label]
        value, g, s = gd.function([z], [loss, gd.grad(loss, z), gd.softmax(z)])(logits)
        near(value, want, rtol=0, atol=5e-9)
        near(g, s - np.eye(4)[label], atol=1e-15)


def test_activations():
    x = gd.input("x", (5,))
    v = np.array([-2.0, -0.5, 0.0, 0.5, 2.0])
    near(gd.evaluate(gd.tanh(x), {x: v}), 2 / (1 + np.exp(-2 * v)) - 1, atol=1e-15)
    near(gd.evaluate(gd.leaky_relu(x, 0.1), {x: v}), np.where(v > 0, v, 0.1 * v))
    near(gd.evaluate(gd.elu(x), {x: v}), np.where(v > 0, v, np.expm1(v)))
    near(gd.evaluate(gd.gelu(x), {x: v}), [0.5 * a * (1 + math.erf(a / math.sqrt(2))) for a in v], atol=1e-15)
    near(gd.evaluate(gd.softplus(x), {x: v}), np.log1p(np.exp(v)))
