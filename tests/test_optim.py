"""Optimisers step by step against their published updates in NumPy; schedules, clipping, groups, state, bad input."""
from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import FormatError, GradientError, NodeTypeError, ShapeError

A = np.array([[3.0, 0.5], [0.5, 1.0]])      # a small quadratic: w A w / 2 - b w
B = np.array([1.0, -2.0])
START = np.array([2.0, -1.0])


def descend(opt, steps, dtype="float64", parameters=None):
    """The parameter after every step, the whole step in one call."""
    w = gd.variable(START.astype(dtype), "w")
    loss = 0.5 * (w @ (A.astype(dtype) @ w)) - w @ B.astype(dtype)
    step = gd.function([], loss, updates=opt.updates(loss, [w] if parameters is None else parameters(w)))
    path = []
    for _ in range(steps):
        step()
        path.append(np.array(w.value))
    return path


def by_hand(rule, steps):
    w, state, path = START.copy(), {}, []
    for t in range(1, steps + 1):
        w = rule(w, A @ w - B, state, t)
        path.append(w.copy())
    return path


def get(state, name):
    return state.setdefault(name, np.zeros(2))


def _momentum(w, g, s, t):
    s["v"] = 0.9 * get(s, "v") - 0.05 * g
    return w + s["v"]


def _averaged(w, g, s, t):
    s["v"] = 0.8 * get(s, "v") + 0.2 * g
    return w - 0.05 * s["v"]


def _nesterov(w, g, s, t):
    s["v"] = 0.9 * get(s, "v") - 0.05 * g
    return w + 0.9 * s["v"] - 0.05 * g


def _adagrad(w, g, s, t):
    s["G"] = get(s, "G") + g * g
    return w - 0.1 * g / (np.sqrt(s["G"]) + 1e-10)


def _adadelta(w, g, s, t):
    s["g"] = 0.95 * get(s, "g") + 0.05 * g * g
    d = np.sqrt(get(s, "d") + 1e-6) / np.sqrt(s["g"] + 1e-6) * g
    s["d"] = 0.95 * get(s, "d") + 0.05 * d * d
    return w - d


def _rmsprop(w, g, s, t):
    s["g"] = 0.9 * get(s, "g") + 0.1 * g * g
    return w - 0.01 * g / (np.sqrt(s["g"]) + 1e-8)


def _moments(g, s):
    s["m"] = 0.9 * get(s, "m") + 0.1 * g
    s["v"] = 0.999 * get(s, "v") + 0.001 * g * g
    return s["m"], s["v"]


def _adam(w, g, s, t):
    m, v = _moments(g, s)
    return w - 0.001 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


def _adamw(w, g, s, t):
    m, v = _moments(g, s)
    return w - 0.01 * ((m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8) + 0.1 * w)


def _nadam(w, g, s, t):
    m, v = _moments(g, s)

    def mu(i):
        return 0.9 * (1 - 0.5 * 0.96 ** (i * 0.004))
    product = math.prod(mu(i) for i in range(1, t + 1))
    mean = mu(t + 1) * m / (1 - product * mu(t + 1)) + (1 - mu(t)) * g / (1 - product)
    return w - 0.002 * mean / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


def _amsgrad(w, g, s, t):
    m, v = _moments(g, s)
    s["top"] = np.maximum(get(s, "top"), v)
    return w - 0.001 * (m / (1 - 0.9 ** t)) / (np.sqrt(s["top"] / (1 - 0.999 ** t)) + 1e-8)


def _amsgrad_published(w, g, s, t):
    m, v = _moments(g, s)
    s["top"] = np.maximum(get(s, "top"), v)
    return w - 0.001 * m / (np.sqrt(s["top"]) + 1e-8)


optim = gd.optim
METHODS = {
    "GradientDescent": (lambda: optim.GradientDescent(0.1), lambda w, g, s, t: w - 0.1 * g),
    "Momentum": (lambda: optim.Momentum(0.05), _momentum),
    "Momentum averaged": (lambda: optim.Momentum(0.05, 0.8, averaged=True), _averaged),
    "Nesterov": (lambda: optim.Nesterov(0.05), _nesterov),
    "Adagrad": (lambda: optim.Adagrad(0.1), _adagrad),
    "Adadelta": (lambda: optim.Adadelta(), _adadelta),
    "RMSprop": (lambda: optim.RMSprop(0.01), _rmsprop),
    "Adam": (lambda: optim.Adam(), _adam),
    "AdamW": (lambda: optim.AdamW(0.01, weight_decay=0.1), _adamw),
    "NAdam": (lambda: optim.NAdam(), _nadam),
    "AMSGrad": (lambda: optim.AMSGrad(), _amsgrad),
    "AMSGrad as published": (lambda: optim.AMSGrad(corrected=False), _amsgrad_published),
    "weight decay": (lambda: optim.GradientDescent(0.1, weight_decay=0.5), lambda w, g, s, t: w - 0.1 * (g + 0.5 * w)),
}


@pytest.mark.parametrize("name", METHODS)
def test_method_follows_its_published_update(name):
    make, rule = METHODS[name]
    for mine, theirs in zip(descend(make(), 25), by_hand(rule, 25), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_method_keeps_float32(name):
    path = descend(METHODS[name][0](), 10, "float32")
    assert path[-1].dtype == np.float32
    np.testing.assert_allclose(path[-1], by_hand(METHODS[name][1], 10)[-1], rtol=2e-5)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "AMSGrad", "Adadelta", "Momentum"])
def test_state_saved_and_restored_continues_bit_for_bit(name):
    w = gd.variable(START, "w")
    loss = 0.5 * (w @ (A @ w)) - w @ B
    opt = METHODS[name][0]()
    step = gd.function([], loss, updates=opt.updates(loss, [w]))
    for _ in range(5):
        step()
    saved, weights = opt.state(), np.array(w.value)
    for _ in range(5):
        step()
    expected = np.array(w.value)
    opt.load_state(saved)
    w.value = weights
    for _ in range(5):
        step()
    np.testing.assert_array_equal(w.value, expected)
    other = METHODS[name][0]()
    with pytest.raises(FormatError, match="other parameters"):
        other.load_state(saved)


def test_load_state_is_all_or_nothing():
    w = gd.variable(START, "w")
    opt = optim.Adam()
    opt.updates(w @ w, [w])
    good = opt.state()
    bad = {**good, next(n for n in good if n.endswith("squares")): np.zeros(3), "step": np.array(7)}
    with pytest.raises(FormatError, match="squares"):
        opt.load_state(bad)
    assert int(opt.step.value) == 0


def test_groups_have_rates_of_their_own():
    a, b = gd.variable([1.0], "a"), gd.variable([1.0], "b")
    loss = gd.sum(a * a + b * b)
    opt = optim.GradientDescent(0.1)
    gd.function([], loss, updates=opt.updates(loss, [a, {"parameters": [b], "learning_rate": 0.25, "weight_decay": 1.0}]))()
    np.testing.assert_allclose(a.value, [0.8])
    np.testing.assert_allclose(b.value, [1 - 0.25 * 3])


def test_learning_rate_as_a_node():
    w, rate = gd.variable([1.0], "w"), gd.input("rate")
    loss = gd.sum(w * w)
    step = gd.function([rate], loss, updates=optim.GradientDescent(rate).updates(loss, [w]))
    step(0.25)
    np.testing.assert_allclose(w.value, [0.5])
    step(0.0)
    np.testing.assert_allclose(w.value, [0.5])


S = optim.schedules
SCHEDULES = {
    "constant": (S.constant(0.3), lambda t: 0.3),
    "piecewise": (S.piecewise([1.0, 0.5, 0.1], [3, 6]), lambda t: 1.0 if t < 3 else 0.5 if t < 6 else 0.1),
    "step": (S.step_decay(0.8, 0.5, 3), lambda t: 0.8 * 0.5 ** (t // 3)),
    "exponential": (S.exponential(0.8, 0.9), lambda t: 0.8 * 0.9 ** t),
    "inverse": (S.inverse_time(0.8, 0.1), lambda t: 0.8 / (1 + 0.1 * t)),
    "linear": (S.linear(0.8, 5, 0.1), lambda t: 0.8 + (0.1 - 0.8) * min(t / 5, 1)),
    "cosine": (S.cosine(0.8, 5, 0.1), lambda t: 0.1 + 0.35 * (1 + math.cos(math.pi * min(t / 5, 1)))),
    "warmup": (S.warmup(S.exponential(0.8, 0.9), 4), lambda t: 0.8 * 0.9 ** max(t - 4, 0) * min((t + 1) / 4, 1)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_as_number_and_inside_the_step(name):
    schedule, expected = SCHEDULES[name]
    w = gd.variable(0.0, "w")
    opt = optim.GradientDescent(schedule)
    step = gd.function([], w, updates=opt.updates(-w, [w]))      # gradient -1: w grows by the rate
    before = 0.0
    for t in range(9):
        step()
        assert abs(float(w.value) - before - expected(t)) < 1e-14
        assert abs(float(schedule(t)) - expected(t)) < 1e-14
        before = float(w.value)


def test_growing_batches():
    size = S.growing_batch(16, 2, 3, 100)
    assert [size(e) for e in range(10)] == [16, 16, 16, 32, 32, 32, 64, 64, 64, 100]


def test_clipping():
    a, b = gd.input("a", (2,)), gd.input("b")
    f = gd.function([a, b], [*optim.clip_by_norm([a, b], 1.0), *optim.clip_by_value([a, b], 0.5), optim.clip_by_norm(a, 100.0)])
    na, nb, va, vb, same = f([3.0, 0.0], 4.0)
    np.testing.assert_allclose(na, [0.6, 0.0])
    np.testing.assert_allclose([float(nb), float(vb)], [0.8, 0.5])
    np.testing.assert_array_equal(va, [0.5, 0.0])
    np.testing.assert_array_equal(same, [3.0, 0.0])
    zero = f([0.0, 0.0], 0.0)
    assert not any(np.any(z) for z in zero)


def test_clipping_inside_an_optimiser():
    w = gd.variable([30.0, 40.0], "w")
    loss = 0.5 * gd.sum(w * w)
    gd.function([], loss, updates=optim.GradientDescent(1.0, clip_norm=5.0).updates(loss, [w]))()
    np.testing.assert_allclose(w.value, [27.0, 36.0])
    gd.function([], loss, updates=optim.GradientDescent(1.0, clip_value=1.0).updates(loss, [w]))()
    np.testing.assert_allclose(w.value, [26.0, 35.0])


def test_parameter_without_gradient_is_named():
    a, b = gd.variable([1.0], "alpha"), gd.variable([1.0], "beta")
    with pytest.raises(GradientError, match="beta"):
        optim.Adam().updates(gd.sum(a), [a, b])


def test_bad_input_is_named():
    a = gd.variable([1.0], "a")
    loss = gd.sum(a)
    with pytest.raises(NodeTypeError, match="a parameter is a variable"):
        optim.Adam().updates(loss, [loss])
    with pytest.raises(ShapeError, match="given twice"):
        optim.Adam().updates(loss, [a, a])
    with pytest.raises(ShapeError, match="no parameters"):
        optim.Adam().updates(loss, [])
    with pytest.raises(NodeTypeError, match="a group has"):
        optim.Adam().updates(loss, [{"params": [a]}])
    with pytest.raises(ShapeError, match="learning_rate"):
        optim.Adam(-1.0)
    with pytest.raises(ShapeError, match="beta1"):
        optim.Adam(beta1=1.0)
    with pytest.raises(ShapeError, match="scalar node"):
        optim.Adam(gd.input("r", (2,)))
    with pytest.raises(ShapeError, match="limit"):
        optim.clip_by_norm([a], 0)
    with pytest.raises(ShapeError, match="steps"):
        S.cosine(0.1, 0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 500.0])
@pytest.mark.parametrize("name", METHODS)
def test_float16_parameters_are_stepped_in_float32(name, scale):
    """Squares of small or large float16 gradients vanish or overflow, and eps is 0 there: NaN from the first step on."""
    paths = []
    for dtype in ("float16", "float32"):
        w = gd.variable(np.array([1.0, 2.0, 0.0], dtype), "w")
        opt = METHODS[name][0]()
        step = gd.function([], w, updates=opt.updates(gd.sum(w * np.array([scale, scale, 0.0], dtype)), [w]))
        for _ in range(3):
            step()
        assert w.value.dtype == dtype
        paths.append(np.array(w.value, "float64"))
    np.testing.assert_allclose(*paths, rtol=3e-3, atol=1e-6)


def test_norm_of_float16_gradients_does_not_overflow():
    g = gd.constant(np.array([300.0, 400.0], "float16"))
    np.testing.assert_allclose(gd.evaluate(optim.clip_by_norm(g, 1.0), {}), [0.6, 0.8], rtol=1e-3)


@pytest.mark.parametrize("dtype, size", [("float16", 6e4), ("float32", 1e20), ("float32", 3e38), ("float32", 1e-30),
                                         ("float64", 1e200), ("float64", 1e300), ("float64", 1e-200), ("float64", 1.0)])
def test_clipping_by_a_norm_whose_squares_do_not_fit(dtype, size):
    a, b = np.full(100, size / 2, dtype), np.array(size, dtype)
    want = size / np.sqrt(26.0)
    for limit in (1.0, 1e-5):
        x, y = gd.input("x", (100,), dtype), gd.input("y", (), dtype)
        u, v = gd.function([x, y], optim.clip_by_norm([x, y], limit))(a, b)
        assert u.dtype == v.dtype == dtype
        clipped = want * 26 > limit
        tol = 2e-3 if dtype == "float16" else 1e-6 if dtype == "float32" else 1e-13
        tiny = float(np.finfo(dtype).smallest_subnormal)
        np.testing.assert_allclose(float(v), limit / np.sqrt(26.0) if clipped else size, rtol=tol, atol=tiny)
        np.testing.assert_allclose(u.astype(float), limit / np.sqrt(26.0) / 2 if clipped else size / 2, rtol=tol, atol=tiny)
    if dtype == "float64":
        n = gd.evaluate(optim.global_norm([gd.constant(a), gd.constant(b)]), {})
        np.testing.assert_allclose(float(n), size * np.sqrt(26.0), rtol=1e-14)
        g = gd.function([x, y], gd.grad(optim.global_norm([x, y]), y))(a, b)
        np.testing.assert_allclose(float(g), 1 / np.sqrt(26.0), rtol=1e-13)


def test_clipping_of_gradients_that_are_not_finite_or_empty():
    x = gd.input("x", (3,))
    f = gd.function([x], [optim.global_norm(x), optim.clip_by_norm(x, 1.0)])
    for bad in (np.nan, np.inf, -np.inf):
        norm, clipped = f([1.0, bad, 2.0])
        assert not np.isfinite(norm) and not np.isfinite(clipped[1])
    e = gd.constant(np.zeros((0, 3)))
    assert gd.evaluate(optim.clip_by_norm([e, gd.constant(3.0)], 1.0)[1], {}) == 1.0


def test_a_copied_or_pickled_optimiser_belongs_to_the_copied_parameters():
    import copy
    import pickle
    w = gd.variable(START, "w")
    opt = optim.Adam()
    loss = gd.sum(w * w)
    gd.function([], loss, updates=opt.updates(loss, [w]))()
    for v, other in (copy.deepcopy((w, opt)), pickle.loads(pickle.dumps((w, opt)))):
        assert all(np.array_equal(a, opt.state()[k]) for k, a in other.state().items())
        again = gd.sum(v * v)
        gd.function([], again, updates=other.updates(again, [v]))()
        assert int(other.step.value) == 2 and len(other.state()) == 3
    assert int(opt.step.value) == 1


def test_numbers_may_be_numpys_and_eps_is_checked():
    assert optim.Adam(np.float32(0.5), np.float32(0.5)).learning_rate == 0.5
    assert S.cosine(np.float32(0.5), np.int64(4))(0) == 0.5
    with pytest.raises(ShapeError, match="eps is"):
        optim.RMSprop(eps=-1.0)
    with pytest.raises(ShapeError, match="momentum_decay is"):
        optim.NAdam(momentum_decay="x")
    layer = gd.nn.Dense(1, 1)
    with pytest.raises(NodeTypeError, match=r"such as layer\.parameters"):
        optim.Adam().updates(gd.sum(layer.w), layer)


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda w: optim.Adam("fast"), NodeTypeError, "^Adam: learning_rate is a number, .* not 'fast'"),
    (lambda w: optim.AdamW(-1.0), ShapeError, "^AdamW: learning_rate"),
    (lambda w: optim.Momentum(0.1, "a"), NodeTypeError, "^Momentum: momentum is a number"),
    (lambda w: optim.Momentum(0.1, nesterov=True), NodeTypeError, "^Momentum: there is no option 'nesterov'"),
    (lambda w: optim.RMSprop(clip_norm="a"), NodeTypeError, "^RMSprop: clip_norm"),
    (lambda w: S.cosine("a", 10), NodeTypeError, "^cosine: rate is a finite number"),
    (lambda w: S.linear(0.1, 0), ShapeError, "^linear: .*steps is a whole number"),
    (lambda w: S.piecewise([0.1], [3]), ShapeError, "^piecewise: needs ascending"),
    (lambda w: optim.Adam().updates(gd.sum(w), []), ShapeError, "^updates: there are no parameters"),
    (lambda w: optim.Adam().updates(gd.sum(w), [gd.input("x")]), NodeTypeError, "^updates: a parameter is a variable"),
    (lambda w: optim.Adam().updates(gd.sum(w), [{"parameters": [w], "weight_decay": "a"}]), NodeTypeError, "^updates: weight_decay"),
    (lambda w: optim.Adam().updates(3.0, [w]), NodeTypeError, "^updates: the loss is a node, not float"),
    (lambda w: optim.Adam().load_state({}), FormatError, "^load_state: this state belongs to other"),
    (lambda w: gd.nn.Dropout("a"), NodeTypeError, "^dropout: p is a number from 0 to 1"),
])
def test_errors_of_optimisers_name_the_line_and_tell_kinds_from_ranges(call, kind, message):
    w = gd.variable(np.ones(3), "weight")
    with pytest.raises(kind, match=rf"(?s){message}.*\n  at +test_optim\.py:\d+") as info:
        call(w)
    assert isinstance(info.value, TypeError) == (kind is NodeTypeError)
    checked(2)


def test_hints_of_updates_can_be_followed():
    w, v = gd.variable(np.ones(3), "weight"), gd.variable(np.ones(3), "other")
    with pytest.raises(GradientError, match=r"(?s)^updates: 'sum' does not depend on 'other'.*\n  hint +leave it out of the parameters$"):
        optim.Adam().updates(gd.sum(w), [w, v])
    with pytest.raises(GradientError, match=r"(?s)^updates: no derivative flows .*\n  hint +leave it out of the parameters$"):
        optim.Adam().updates(gd.sum(gd.stop_gradient(w)), [w])
    with pytest.raises(GradientError, match=r"(?s)^updates: the loss has shape \[3\], one number is needed.*test_optim.*\n  hint +gd\.mean\(loss\)"):
        optim.Adam().updates(w * w, [w])
    with pytest.raises(GradientError, match=r"(?s)^grad: 'sum' does not depend on 'other'.*\n  hint +unconnected="):
        gd.grad(gd.sum(w), v)
    checked(4)


def test_given_gradients_belong_to_their_parameters():
    w = gd.variable(np.ones(3), "weight")
    with pytest.raises(GradientError, match="weight has no gradient"):
        gd.optim.Adam().updates(None, [w], gradients=[None])
    with pytest.raises(ShapeError, match=r"gradient of weight is float64\[4\], \[3\] is needed"):
        gd.optim.Adam().updates(None, [w], gradients=[np.ones(4)])


@pytest.mark.parametrize("rate", [None, -1.0, "fast", np.ones(2)])
def test_a_schedule_gives_a_rate(rate):
    w = gd.variable(np.ones(3), "weight")
    with pytest.raises(ShapeError, match="what the schedule gives"):
        gd.optim.Adam(lambda step: rate).updates(gd.sum(w * w), [w])


def test_a_growing_batch_stops_at_its_maximum_however_late():
    at = gd.optim.schedules.growing_batch(32, 2.0, 1, 512)
    assert [at(k) for k in (0, 1, 4, 5, 1024, 10**6)] == [32, 64, 512, 512, 512, 512]
    with pytest.raises(ShapeError, match="power"):
        gd.optim.schedules.polynomial(0.1, 10, power=0)


def test_schedules_are_pickled_with_their_optimiser():
    s = gd.optim.schedules
    for schedule in (s.constant(0.1), s.cosine(0.1, 5), s.warmup(s.cosine(0.1, 5), 3), s.warmup(0.1, 3), s.piecewise([1.0, 0.5], [3]),
                     s.step_decay(0.1, 0.5, 3), s.exponential(0.1, 0.9), s.inverse_time(0.1, 0.1), s.linear(0.1, 4), s.growing_batch(4, 2, 3, 99)):
        again = pickle.loads(pickle.dumps(schedule))
        assert [again(i) for i in range(9)] == [schedule(i) for i in range(9)]
        checked(9)
    w = gd.variable(np.ones(3), "w")
    optimiser = gd.optim.Adam(s.warmup(s.cosine(0.1, 5), 2))
    w2, again = pickle.loads(pickle.dumps((w, optimiser)))
    for v, o in ((w, optimiser), (w2, again)):
        loss = gd.sum(v * v)
        step = gd.function([], loss, updates=o.updates(loss, [v]))
        for _ in range(4):
            step()
    assert w.value.tobytes() == w2.value.tobytes() and (w.value != 1).all()
