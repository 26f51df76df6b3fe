"""Losses: values of the worked examples, an independent NumPy form of each, gradients by checker, bad input."""
from __future__ import annotations

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.errors import DTypeError, GradientError, OutOfBounds, ShapeError

L = gd.losses
RNG = np.random.default_rng(5)


def value(node, **at):
    return float(gd.evaluate(node, {}))


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_cross_entropy_of_the_worked_example():
    z = gd.input("z", (4,))
    logits = [0.1, -0.8, 1.4, 1.1]
    for label, expected in ((1, 2.95337322), (2, 0.75337322)):
        loss = L.cross_entropy(z, gd.constant(label))
        y, g = gd.function([z], [loss, gd.grad(loss, z)])(logits)
        assert abs(y - expected) < 1e-8
        np.testing.assert_allclose(g, softmax(np.array(logits)) - np.eye(4)[label], rtol=1e-13)


def test_squared_error_of_two_equally_wrong_predictions():
    target = [0.0, 0.0, 1.0]
    assert abs(value(L.mse(gd.constant([0.8, 0.0, 0.2]), target, reduction="sum")) - 1.28) < 1e-15
    assert abs(value(L.mse(gd.constant([0.4, 0.4, 0.2]), target, reduction="sum")) - 0.96) < 1e-15


def test_distances_between_distributions():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    assert value(L.total_variation(gd.constant(p), q)) == 0.5
    assert value(L.lp(gd.constant(p), q, 1)) == 1.0
    assert abs(value(L.lp(gd.constant(p), q)) - np.sqrt(0.0625 * 2 + 0.25)) < 1e-15
    assert abs(value(L.lp(gd.constant(p), q, 3)) - (2 * 0.25 ** 3 + 0.125) ** (1 / 3)) < 1e-15
    assert value(L.lp(gd.constant(p), q, float("inf"))) == 0.5
    for order in (1, 2, 3, float("inf")):                # of nothing 0, as norms are
        assert value(L.lp(gd.constant(np.zeros((0, 3))), np.zeros((0, 3)), order, axis=0)) == 0
    assert abs(value(L.kl(gd.constant(p), q)) - np.log(2)) < 1e-15
    assert value(L.kl(gd.constant(q), p)) == np.inf      # q puts 1/2 where p has nothing
    assert value(L.kl(gd.constant(p), p)) == 0.0


def test_kl_with_zeros_has_finite_gradients():
    p, q = gd.input("p", (3,)), gd.input("q", (3,))
    loss = L.kl(p, q)
    y, gp, gq = gd.function([p, q], [loss, *gd.grad(loss, [p, q])])([0.5, 0.5, 0.0], [0.25, 0.25, 0.5])
    np.testing.assert_allclose(gq, [-2.0, -2.0, 0.0], rtol=1e-15)
    assert np.isfinite(gp).all() and abs(y - np.log(2)) < 1e-15


@pytest.mark.parametrize("order", [1, 1.5, 2, 3, float("inf")])
def test_lp_of_equal_distributions_has_zero_gradient(order):
    p = gd.input("p", (3,))
    loss = L.lp(p, [0.2, 0.3, 0.5], order)
    y, g = gd.function([p], [loss, gd.grad(loss, p)])([0.2, 0.3, 0.5])
    assert y == 0 and not g.any()


def test_lp_has_the_curvature_of_a_length_where_one_difference_is_0():
    p = gd.input("p", (3,))
    h = gd.evaluate(gd.hessian(L.lp(p, [1.0, 2.0, 3.0]), p), {p: [1.0, 5.0, 7.0]})
    u = np.array([0, 3, 4]) / 5
    np.testing.assert_allclose(h, (np.eye(3) - np.outer(u, u)) / 5, atol=1e-15)


SAMPLES = {
    "mse": (lambda a, b: L.mse(a, b), lambda a, b: np.mean((a - b) ** 2)),
    "mae": (lambda a, b: L.mae(a, b), lambda a, b: np.mean(np.abs(a - b))),
    "lp": (lambda a, b: L.lp(a, b, 3), lambda a, b: np.mean((np.abs(a - b) ** 3).sum(-1) ** (1 / 3))),
    "total_variation": (lambda a, b: L.total_variation(a, b), lambda a, b: np.mean(0.5 * np.abs(a - b).sum(-1))),
    "kl": (lambda a, b: L.kl(gd.softmax(a), gd.softmax(b)),
           lambda a, b: np.mean((softmax(a) * np.log(softmax(a) / softmax(b))).sum(-1))),
    "cross_entropy of probabilities": (lambda a, b: L.cross_entropy(a, gd.softmax(b)),
                                       lambda a, b: np.mean(-(softmax(b) * np.log(softmax(a))).sum(-1))),
    "binary": (lambda a, b: L.binary_cross_entropy_with_logits(a, gd.sigmoid(b)),
               lambda a, b: np.mean(-(1 / (1 + np.exp(-b))) * np.log(1 / (1 + np.exp(-a))) - (1 / (1 + np.exp(b))) * np.log(1 / (1 + np.exp(a))))),
    "hinge": (lambda a, b: L.hinge(a, gd.sign(b)), lambda a, b: np.mean(np.maximum(0, 1 - np.sign(b) * a))),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_loss_against_numpy_and_its_gradients(name):
    build, reference = SAMPLES[name]
    a, b = RNG.standard_normal((5, 4)), RNG.standard_normal((5, 4))
    x, y = gd.input("x", (5, 4)), gd.input("y", (5, 4))
    loss = build(x, y)
    assert abs(gd.evaluate(loss, {x: a, y: b}) - reference(a, b)) < 1e-13
    gd.check_grads(loss, [x], {x: a, y: b}, order=2)


LABELLED = {
    "cross_entropy": (lambda z, t: L.cross_entropy(z, t), lambda z, t: np.mean(-np.log(softmax(z))[np.arange(6), t])),
    "smoothed": (lambda z, t: L.cross_entropy(z, t, label_smoothing=0.1),
                 lambda z, t: np.mean(-(np.log(softmax(z)) * (0.9 * np.eye(4)[t] + 0.1 / 4)).sum(-1))),
    "nll": (lambda z, t: L.nll(gd.log_softmax(z), t), lambda z, t: np.mean(-np.log(softmax(z))[np.arange(6), t])),
    "hinge": (lambda z, t: L.hinge(z, t), lambda z, t: np.mean([max(0, 1 + max(np.delete(r, k)) - r[k]) for r, k in zip(z, t, strict=True)])),
}


@pytest.mark.parametrize("name", LABELLED)
def test_loss_of_labels_against_numpy(name):
    build, reference = LABELLED[name]
    z, t = RNG.standard_normal((6, 4)), np.array([0, 3, 1, 1, 2, 0])
    x, labels = gd.input("x", (6, 4)), gd.input("t", (6,), "int64")
    loss = build(x, labels)
    assert abs(gd.evaluate(loss, {x: z, labels: t}) - reference(z, t)) < 1e-13
    gd.check_grads(loss, [x], {x: z, labels: t}, order=2)


@pytest.mark.parametrize("label", [4, -1, 10 ** 9])
@pytest.mark.parametrize("loss", [L.cross_entropy, L.nll, L.hinge])
def test_a_label_that_is_no_class_is_an_error(loss, label):
    x, labels = gd.input("x", (2, 4)), gd.input("t", (2,), "int64")
    f = gd.function([x, labels], loss(x, labels))
    assert np.isfinite(f(np.zeros((2, 4)), [0, 3]))
    with pytest.raises(OutOfBounds, match=f"index {label} is out of bounds for axis 1 with size 4"):
        f(np.zeros((2, 4)), [0, label])
    assert np.isfinite(f(np.zeros((2, 4)), [0, 3]))      # the function goes on working


def test_binary_cross_entropy_is_stable_and_its_gradient_is_the_difference():
    z = gd.input("z", (4,))
    loss = L.binary_cross_entropy_with_logits(z, gd.constant([1, 0, 1, 0]), reduction="sum")
    y, g = gd.function([z], [loss, gd.grad(loss, z)])([800.0, -800.0, -800.0, 1.5])
    assert abs(y - (800 + np.log1p(np.exp(1.5)))) < 1e-12
    np.testing.assert_allclose(g, [0, 0, -1, 1 / (1 + np.exp(-1.5))], atol=1e-15)


def test_classes_on_another_axis():
    z, t = RNG.standard_normal((2, 3, 5)), RNG.integers(0, 3, (2, 5))
    x = gd.input("x", (2, 3, 5))
    expected = np.mean([-np.log(softmax(z.transpose(0, 2, 1)))[i, j, t[i, j]] for i in range(2) for j in range(5)])
    assert abs(gd.evaluate(L.cross_entropy(x, gd.constant(t), axis=1), {x: z}) - expected) < 1e-13


def test_zero_one_counts_wrong_predictions_and_has_no_derivative():
    x = gd.input("x", (3, 2))
    loss = L.zero_one(x, gd.constant([0, 1, 1]))
    assert gd.evaluate(loss, {x: [[1, 0], [1, 0], [0, 1]]}) == pytest.approx(1 / 3)
    with pytest.raises(GradientError):
        gd.grad(loss, x)


def test_reductions():
    x = gd.constant([[1.0, 2.0], [3.0, 5.0]])
    t = np.zeros((2, 2))
    assert value(L.mse(x, t, reduction="sum")) == 39.0 and value(L.mse(x, t)) == 39 / 4
    np.testing.assert_array_equal(gd.evaluate(L.mse(x, t, reduction="none"), {}), [[1, 4], [9, 25]])
    with pytest.raises(ShapeError, match="reduction is"):
        L.mse(x, t, reduction="avg")


def test_regularisers():
    w = gd.input("w", (3,))
    l1, l2 = L.l1([w]), L.l2(w)
    a, b, ga, gb = gd.function([w], [l1, l2, gd.grad(l1, w), gd.grad(l2, w)])([1.0, -2.0, 0.0])
    assert (a, b) == (3.0, 5.0)
    np.testing.assert_array_equal(ga, [1, -1, 0])
    np.testing.assert_array_equal(gb, [2, -4, 0])


def test_bad_input_is_named():
    x = gd.input("x", (2, 4))
    with pytest.raises(ShapeError, match=r"labels have shape \[3\]"):
        L.cross_entropy(x, gd.constant([0, 1, 2]))
    with pytest.raises(ShapeError, match="the prediction has shape"):
        L.mse(x, gd.constant([1.0, 2.0, 3.0, 4.0]))      # would broadcast
    with pytest.raises(DTypeError, match="labels are float64"):
        L.nll(x, gd.constant([0.0, 1.0]))
    with pytest.raises(DTypeError, match="bool"):
        L.cross_entropy(x, gd.constant([True, False]))
    with pytest.raises(ShapeError, match="order is"):
        L.lp(x, x, 0.5)
    with pytest.raises(ShapeError, match="label_smoothing"):
        L.cross_entropy(x, gd.constant([0, 1]), label_smoothing=2)


def test_two_layer_classifier_with_l2():
    w1, w2 = gd.variable([[0.5, 0.0], [0.0, 1.0]], "W1"), gd.variable([1.0, 0.0], "W2")
    h = gd.relu(w1 @ np.array([1.0, 1.0]))
    loss = L.binary_cross_entropy_with_logits(w2 @ h, gd.constant(0.0)) + 0.01 * L.l2([w1, w2])
    y, g1, g2 = gd.function([], [loss, *gd.grad(loss, [w1, w2])])()
    assert abs(y - 0.9965769841801067) < 1e-15
    np.testing.assert_allclose(g1, [[0.6324593312018546, 0.6224593312018546], [0, 0.02]], rtol=1e-14)
    np.testing.assert_allclose(g2, [0.3312296656009273, 0.6224593312018546], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_cross_entropy_of_infinite_logits(dtype):
    inf = np.inf
    logits = np.array([-inf, inf, -inf, inf, -inf, inf, np.nan, 800.0, -800.0, 40.0, 0.0, -0.0], dtype)
    target = np.array([0, 1, 1, 0, 0.25, 0.25, 0, 1, 0, 1, 0.25, 0.25], dtype)
    z, t = gd.input("z", (12,), dtype), gd.input("t", (12,), dtype)
    loss = L.binary_cross_entropy_with_logits(z, t, reduction="none")
    g = gd.grad(gd.sum(loss), z)
    value, first, second = gd.function([z, t], [loss, g, gd.grad(gd.sum(g), z)])(logits, target)
    np.testing.assert_allclose(value, [0, 0, inf, inf, inf, inf, np.nan, 0, 0, np.exp(-40.0), np.log(2), np.log(2)], rtol=1e-6)
    s = 1 / (1 + np.exp(-np.clip(logits.astype(float), -700, 700)))
    want = s - target
    want[[7, 9]] = [0, -np.exp(-40.0)]      # nothing cancels
    np.testing.assert_allclose(first, want, rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(second[:6], 0, atol=1e-30)
    np.testing.assert_allclose(second[9:], [np.exp(-40.0), 0.25, 0.25], rtol=1e-6)


def test_a_class_that_logits_and_target_rule_out_costs_nothing():
    z, t = gd.input("z", (2, 3)), gd.input("t", (2, 3))
    loss = L.cross_entropy(z, t, reduction="none")
    y, g = gd.function([z, t], [loss, gd.grad(gd.sum(loss), z)])([[0.0, 0.0, -np.inf], [0.0, -np.inf, 1.0]], [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(y, [np.log(2), np.inf], rtol=1e-15)
    np.testing.assert_allclose(g[0], [0, 0, 0], atol=1e-15)
    assert float(gd.evaluate(L.lp(gd.constant([1.0]), [0.0], np.int64(3)), {})) == 1.0


def test_losses_keep_the_dtype_of_their_operands():
    for dtype in ("float32", "float16"):
        z = gd.input("z", (4,), dtype)
        assert gd.losses.binary_cross_entropy_with_logits(z, z).dtype.name == dtype
        assert gd.losses.lp(z, z, 3).dtype.name == dtype


@pytest.mark.parametrize("order", [1, 1.5, 2, 3, 7, np.inf])
def test_distances_neither_overflow_nor_vanish(order):
    d = np.array([3.0, -4.0, 0.5])
    want = np.linalg.norm(d, order)
    x = gd.input("x", (3,))
    y = gd.losses.lp(x, np.zeros(3), order)
    f = gd.function([x], [y, gd.grad(y, x)])
    slope = f(d)[1]
    for scale in (1e-200, 1.0, 1e200):
        value, g = f(d * scale)
        np.testing.assert_allclose(value, want * scale, rtol=1e-14)
        np.testing.assert_allclose(g, slope, rtol=1e-13)
    assert f([np.inf, 1.0, 2.0])[0] == np.inf and np.isnan(f([np.nan, 1.0, 2.0])[0])
    assert f(np.zeros(3))[0] == 0 and not f(np.zeros(3))[1].any()


def test_labels_0_and_1_are_no_target_of_hinge():
    with pytest.raises(ShapeError, match="-1 or 1 everywhere"):
        gd.losses.hinge(np.ones(3), np.array([0, 1, 1]))
    assert gd.evaluate(gd.losses.hinge(np.ones(3), np.array([-1, 1, 1])), {}) == pytest.approx(2 / 3)
