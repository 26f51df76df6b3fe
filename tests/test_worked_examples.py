"""The worked examples of the course texts this project grew from: a few lines of public interface, exact values."""
import itertools
import math

import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def exactly(got, want):
    for a, b in zip(np.ravel(got), np.ravel(want), strict=True):
        assert float(a) == float(b)
        checked()


def near(got, want, rtol=1e-14, atol=0.0):
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    checked(np.size(want))


# -- 1: the trace of Baydin, Pearlmutter, Radul, Siskind (2018), table 3 ---------------------------------------------------------

def test_1_the_trace_of_the_survey():
    x1, x2 = gd.inputs("x1 x2")
    v1 = gd.log(x1)
    v2 = x1 * x2
    v3 = gd.sin(x2)
    v4 = v1 + v2
    y = v4 - v3
    nodes = [x1, x2, v1, v2, v3, v4, y]
    f = gd.function([x1, x2], [*nodes, *gd.grad(y, nodes)])
    r = f(2.0, 5.0)
    exactly(r[:2], [2, 5])
    near(r[2:6], [0.6931471805599453, 10.0, -0.9589242746631385, 10.693147180559945], rtol=1e-15)
    exactly(r[6], 11.652071455223084)
    exactly(r[7:], [5.5, 1.7163378145367738, 1, 1, -1, 1, 1])
    exactly(gd.evaluate(gd.jvp(y, [x1, x2], [1.0, 0.0]), {x1: 2.0, x2: 5.0}), 5.5)
    exactly(gd.evaluate(gd.jvp(y, [x1, x2], [0.0, 1.0]), {x1: 2.0, x2: 5.0}), 1.7163378145367738)
    near(gd.evaluate(gd.hessian(y, [x1, x2])[0][1], {x1: 2.0, x2: 5.0}), 1.0)


# -- 2 to 4 ----------------------------------------------------------------------------------------------------------------------

def test_2_logistic_unit_and_a_chain():
    u = gd.input("u")
    for y in (gd.sigmoid(u), 1.0 / (1.0 + gd.exp(-u))):
        exactly(gd.evaluate(gd.grad(y, u), {u: 0.0}), 0.25)
    chain = [u]
    for f in (gd.sin, gd.exp, gd.tanh, gd.square, gd.cos) * 3:
        chain.append(f(chain[-1]))
    local = [gd.grad(b, a) for a, b in itertools.pairwise(chain)]
    r = gd.function([u], [gd.grad(chain[-1], u), *local])(0.3)
    near(r[0], math.prod(float(v) for v in r[1:]), rtol=1e-13)


def test_3_several_inputs_outputs_and_uses():
    w, x, b = gd.inputs("w x b")
    exactly(gd.function([w, x, b], gd.grad(w * x + b, [w, x, b]))(3.0, 4.0, 5.0), [4, 3, 1])
    outputs = [w * w, gd.sin(w), 3.0 * w]
    whole = gd.grad(outputs[0] + outputs[1] + outputs[2], w)
    parts = [gd.grad(o, w) for o in outputs]
    r = gd.function([w], [whole, *parts])(0.7)
    near(r[0], sum(float(p) for p in r[1:]))
    h = gd.exp(w)
    for n in (1, 2, 5, 100):
        y = h
        for _ in range(n - 1):
            y = y + h
        g = gd.grad(y, w)
        near(gd.evaluate(g, {w: 0.7}), n * math.exp(0.7))
        # The incoming adjoints are summed first and multiplied once: one product with exp's derivative.
        from graphdiff.graph.walk import toposort
        assert sum(node.op in ("multiply", "zmul") for node in toposort([g])) <= 1
        checked()


def test_4_gradients_on_every_edge():
    x = gd.input("x", (3,))
    h = gd.tanh(x)
    p = h * h
    y = gd.sum(p)
    gx, gh, gp, gy = gd.function([x], gd.grad(y, [x, h, p, y]))(np.array([0.1, 0.2, 0.3]))
    t = np.tanh([0.1, 0.2, 0.3])
    exactly(gp, [1, 1, 1])
    exactly(gy, 1)
    near(gh, 2 * t)
    near(gx, 2 * t * (1 - t * t))


def test_5_two_layer_classifier_with_weight_decay():
    x, t = gd.constant([1.0, 1.0]), 0.0
    w1, w2 = gd.input("w1", (2, 2)), gd.input("w2", (2,))
    z = gd.dot(w2, gd.relu(w1 @ x))
    loss = gd.softplus(z) - t * z
    total = loss + 0.01 * (gd.sum(w1 * w1) + gd.sum(w2 * w2))
    j, d1, d2 = gd.function([w1, w2], [total, *gd.grad(total, [w1, w2])])(np.array([[0.5, 0], [0, 1.0]]), np.array([1.0, 0]))
    near(j, 0.9965769841801067, rtol=1e-15)
    near(d1, [[0.6324593312018546, 0.6224593312018546], [0, 0.02]], rtol=1e-15)
    near(d2, [0.3312296656009273, 0.6224593312018546], rtol=1e-15)


def test_6_descent_in_one_variable():
    x = gd.variable(2.0, "x")
    y = x ** 4 - x ** 3 - 2 * x ** 2 + 3
    step = gd.function([], x, updates={x: x - 0.13 * gd.grad(y, x)})
    path = []
    for _ in range(100):
        step()
        path.append(float(x.value))
    near(path[:2], [0.44, 0.70000832], rtol=1e-9)
    near(path[2], 1.07675, rtol=1e-5)
    near(path[-1], 1.443000468, rtol=1e-9)


def test_7_the_layer_recipe_equals_the_jacobian_recipe():
    rng = np.random.default_rng(0)
    h0, w, target = gd.input("h0", (4,)), gd.input("w", (3, 4)), gd.input("t", (3,))
    h = w @ h0
    loss = gd.sum(gd.square(h - target))
    at = [rng.standard_normal(s) for s in ((4,), (3, 4), (3,))]
    dw, dh, jacobian = gd.function([h0, w, target], [gd.grad(loss, w), gd.grad(loss, h), gd.jacobian(h, w)])(*at)
    near(dw, np.outer(dh, at[0]), rtol=1e-14)
    near(dw, np.tensordot(dh, jacobian, 1), rtol=1e-13)


def test_7_the_cost_of_reverse_mode_is_linear_in_the_layers():
    def flops(k, m=16):
        x = gd.input("x", (m,))
        ws = [gd.input(f"w{i}", (m, m)) for i in range(k)]
        h = x
        for w in ws:
            h = gd.tanh(w @ h)
        y = gd.sum(h)
        cost = gd.function([x, *ws], [y, *gd.grad(y, ws)]).cost()
        return (sum(r["flops"] for r in cost if r["pass"] == p) for p in ("forward", "reverse"))

    (f5, r5), (f10, r10), (f20, r20) = flops(5), flops(10), flops(20)
    assert f20 - f10 == 2 * (f10 - f5) and r20 - r10 == 2 * (r10 - r5)
    assert r20 < 5 * f20


# -- 8, 9: tensors -------------------------------------------------------------------------------------------------------------------

def test_8_einstein_sums():
    rng = np.random.default_rng(1)
    cases = [("ik,kj->ij", (2, 3), (3, 4)), ("ii", (3, 3)), ("ij,jk->ik", (2, 3), (3, 2)), ("ikl,klj->ij", (2, 3, 4), (3, 4, 2)),
             ("ij,j->i", (2, 3), (3,)), ("i,j,k->ijk", (2,), (3,), (4,)), ("ri,rj,rk->ijk", (2, 3), (2, 2), (2, 4))]
    for equation, *shapes in cases:
        xs = [gd.input(f"x{i}", s) for i, s in enumerate(shapes)]
        arrays = [rng.standard_normal(s) for s in shapes]
        y = gd.einsum(equation, *xs)
        c = rng.standard_normal(y.shape)
        value, *grads = gd.function(xs, [y, *gd.grad(y, xs, cotangent=c)])(*arrays)
        near(value, np.einsum(equation, *arrays), rtol=1e-13, atol=1e-15)
        for i, g in enumerate(grads):        # linear in each operand: the gradient against a unit is the sum with that unit
            want = np.empty(shapes[i])
            for at in np.ndindex(*shapes[i]):
                unit = np.zeros(shapes[i])
                unit[at] = 1
                want[at] = (np.einsum(equation, *[unit if j == i else a for j, a in enumerate(arrays)]) * c).sum()
            near(g, want, rtol=1e-12, atol=1e-14)


def test_8_tensor_product_and_its_rank():
    vs = [gd.input(f"v{i}", (2,)) for i in range(5)]
    pure = gd.einsum("i,j,k,l,m->ijklm", *vs)
    arrays = [np.array([1.0, i + 2.0]) for i in range(5)]
    value = gd.evaluate(pure, dict(zip(vs, arrays, strict=True)))
    want = arrays[0]
    for a in arrays[1:]:
        want = np.multiply.outer(want, a)
    exactly(value, want)
    assert np.linalg.matrix_rank(value.reshape(4, 8)) == 1


@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2)])
def test_9_convolution_is_a_banded_dense_layer(stride, dilation):
    n, k = 9, 3
    rng = np.random.default_rng(2)
    a, kernel = rng.standard_normal(n), rng.standard_normal(k)
    x, w = gd.input("x", (n,)), gd.input("w", (k,))
    y = gd.conv(x[None, None], w[None, None], stride=stride, dilation=dilation)[0, 0]
    m = y.shape[0]
    toeplitz = np.zeros((m, n))
    for i in range(m):
        for j in range(k):
            toeplitz[i, i * stride + j * dilation] = kernel[j]
    c = rng.standard_normal(m)
    value, dx, dw = gd.function([x, w], [y, *gd.grad(y, [x, w], cotangent=c)])(a, kernel)
    near(value, toeplitz @ a, rtol=1e-13)
    near(dx, toeplitz.T @ c, rtol=1e-13)
    near(dw, [sum(c[i] * a[i * stride + j * dilation] for i in range(m)) for j in range(k)], rtol=1e-13)      # one shared gradient
    near(value[0], (a[:k * dilation:dilation] * kernel).sum(), rtol=1e-13)                                    # cross-correlation


def test_9_transposed_convolution_is_the_adjoint():
    rng = np.random.default_rng(3)
    h, k = 7, 3
    x, w, g = gd.input("x", (1, 2, h)), gd.input("w", (4, 2, k)), gd.input("g", (1, 4, h - k + 1))
    y = gd.conv(x, w)
    back = gd.conv_transpose(g, w)
    assert y.shape == (1, 4, h - k + 1) and back.shape == (1, 2, h)
    up = gd.conv_transpose(gd.input("z", (1, 4, h)), w)
    assert up.shape == (1, 2, h + k - 1)
    arrays = [rng.standard_normal(n.shape) for n in (x, w, g)]
    value, b, dx = gd.function([x, w, g], [y, back, gd.grad(y, x, cotangent=g)])(*arrays)
    near((value * arrays[2]).sum(), (arrays[0] * b).sum(), rtol=1e-12)
    exactly(b, dx)


# -- 10, 11: networks ------------------------------------------------------------------------------------------------------------------

X = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
XOR = np.array([0.0, 1, 1, 0])


def test_10_no_linear_model_fits_xor():
    w, b = gd.variable(np.array([0.3, -0.2]), "w"), gd.variable(0.1, "b")
    loss = gd.mean(gd.square(gd.constant(X) @ w + b - XOR))
    dw, db = gd.grad(loss, [w, b])
    step = gd.function([], loss, updates={w: w - 0.3 * dw, b: b - 0.3 * db})
    for _ in range(800):
        step()
    near(w.value, [0, 0], atol=1e-12)
    near(b.value, 0.5, rtol=1e-12)


def test_10_a_hidden_layer_solves_xor():
    h = gd.relu(gd.constant(X) @ np.array([[1.0, 1], [1, 1]]) + np.array([0.0, -1]))
    exactly(gd.evaluate(h @ np.array([1.0, -2])), XOR)


def test_10_training_finds_xor():
    rng = np.random.default_rng(4)
    w1, b1 = gd.variable(rng.standard_normal((2, 8)), "w1"), gd.variable(np.zeros(8), "b1")
    w2, b2 = gd.variable(rng.standard_normal(8), "w2"), gd.variable(0.0, "b2")
    z = gd.tanh(gd.constant(X) @ w1 + b1) @ w2 + b2
    loss = gd.mean(gd.softplus(z) - XOR * z)
    parameters = [w1, b1, w2, b2]
    updates = {p: p - 0.5 * g for p, g in zip(parameters, gd.grad(loss, parameters), strict=True)}
    step = gd.function([], [loss, z], updates=updates)
    for _ in range(500):
        value, logits = step()
    assert value < 0.02
    assert ((logits > 0) == XOR.astype(bool)).all()
    checked(2)


def test_11_piecewise_linear_functions_are_relu_networks():
    x = gd.input("x", (9,))
    y = gd.relu(x) - gd.relu(x - 1) + 2 * gd.relu(x - 2) - 3 * gd.relu(x - 3) + gd.relu(x - 6)
    exactly(gd.evaluate(y, {x: np.arange(9.0)}), [0, 1, 1, 3, 2, 1, 0, 0, 0])


# -- 19 to 22: functions and losses ----------------------------------------------------------------------------------------------------

def test_19_activations():
    x = gd.input("x", (5,))
    a = np.array([-2.0, -0.5, 0.0, 0.5, 2.0])
    got = gd.function([x], {
        "relu": gd.relu(x), "leaky": gd.leaky_relu(x), "elu": gd.elu(x), "selu": gd.selu(x), "gelu": gd.gelu(x), "tanh": gd.tanh(x),
        "from sigmoid": 2 * gd.sigmoid(2 * x) - 1, "sigmoid": gd.sigmoid(x), "softplus": gd.softplus(x),
        "threshold": gd.where(x > 0, 1.0, 0.0)})(a)
    exactly(got["relu"], [0, 0, 0, 0.5, 2])
    near(got["leaky"], [-0.02, -0.005, 0, 0.5, 2])
    near(got["elu"], np.where(a > 0, a, np.expm1(a)))
    near(got["selu"], 1.0507009873554805 * np.where(a > 0, a, 1.6732632423543772 * np.expm1(a)))
    near(got["gelu"], [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in a], atol=1e-16)
    near(got["tanh"], np.tanh(a))
    near(got["from sigmoid"], np.tanh(a), atol=1e-15)
    near(got["sigmoid"], 1 / (1 + np.exp(-a)))
    near(got["softplus"], np.log1p(np.exp(a)))
    exactly(got["threshold"], [0, 0, 0, 1, 1])


def test_19_stochastic_binary_units_follow_their_key():
    p = gd.constant(np.full(20_000, 0.3))
    key = gd.input("key", (2,), "int64")
    draw = gd.function([key], gd.random.bernoulli(key, p.shape, p))
    a, b = draw(np.array([1, 2])), draw(np.array([1, 3]))
    assert a.dtype == bool and abs(a.mean() - 0.3) < 0.02 and (a == draw(np.array([1, 2]))).all() and (a != b).any()
    checked(4)


def test_20_softmax_and_temperature():
    z = gd.input("z", (3,))
    a = np.array([3.0, 0, 1])
    for t, want in [(1, (0.84379473, 0.04201007, 0.11419520)), (0.5, (0.97962921, 0.00242826, 0.01794253)), (2, (0.62853172, 0.14024438, 0.23122390))]:
        near(gd.evaluate(gd.softmax(z, temperature=t), {z: a}), want, rtol=0, atol=5.1e-9)
    near(gd.evaluate(gd.softmax(z), {z: a + 1000.0}), gd.evaluate(gd.softmax(z), {z: a}), rtol=1e-12)
    near(gd.evaluate(gd.softmax(z, temperature=1e-3), {z: a}), [1, 0, 0], atol=1e-300)


def test_21_cross_entropy():
    z = gd.input("z", (4,))
    a = np.array([0.1, -0.8, 1.4, 1.1])
    softmax = np.exp(a) / np.exp(a).sum()
    for label, want in [(2, 2.95337322), (3, 0.75337322)]:
        loss = -gd.log_softmax(z)[label - 1]
        value, g = gd.function([z], [loss, gd.grad(loss, z)])(a)
        near(value, want, rtol=2e-8)
        near(g, softmax - np.eye(4)[label - 1], rtol=1e-14)
    u = gd.input("u")
    for target in (0.0, 1.0):
        loss = gd.softplus(u) - target * u
        near(gd.evaluate(gd.grad(loss, u), {u: 0.7}), 1 / (1 + math.exp(-0.7)) - target)
    p = gd.input("p", (3,))
    squared = gd.sum(gd.square(p - np.array([0.0, 0, 1])))
    near(gd.evaluate(squared, {p: np.array([0.8, 0, 0.2])}), 1.28)
    near(gd.evaluate(squared, {p: np.array([0.4, 0.4, 0.2])}), 0.96)


def test_22_distances_between_distributions():
    p, q = gd.inputs("p q", (3,))
    kl = gd.sum(gd.xlogy(p, p) - gd.xlogy(p, q))
    l1 = gd.sum(gd.abs(p - q))
    f = gd.function([p, q], [kl, l1, 0.5 * l1])
    r = f([0.5, 0.5, 0.0], [0.25, 0.5, 0.25])
    near(r, [0.5 * math.log(2), 0.5, 0.25])
    exactly(f([0.5, 0.5, 0.0], [0.5, 0.5, 0.0])[0], 0.0)       # 0 log 0 = 0
    exactly(f([0.5, 0.5, 0.0], [1.0, 0.0, 0.0])[0], math.inf)  # q = 0 < p
