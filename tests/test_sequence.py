"""Recurrent layers as one op: equal to the unrolled cells, in values and in both orders of derivative, for any sizes and threads."""
import numpy as np
import pytest
from counting import checked
from registry_cases import check_derivatives, check_value, close, run

import graphdiff as gd
from graphdiff.errors import GradientError, NodeTypeError, ShapeError
from graphdiff.graph.opdef import REGISTRY
from graphdiff.ops import sequence as sq

GATES = {"rnn": 1, "relu": 1, "gru": 3, "lstm": 4}
KINDS = list(GATES)


def arrays(kind, N, T, n_in, H, dtype="float64", seed=0):
    rng = np.random.default_rng([seed, N, T, n_in, H])
    g = GATES[kind]
    shapes = {"x": (N, T, n_in), "h0": (N, H), "w": (n_in, g * H), "u": (H, g * H), "b": (g * H,)}
    if kind == "gru":
        shapes["b_u"] = (g * H,)
    if kind == "lstm":
        shapes["c0"] = (N, H)
    return {k: (rng.normal(size=s) * 0.6).astype(dtype) for k, s in shapes.items()}


def nodes(given):
    return {k: gd.input(k, v.shape, v.dtype) for k, v in given.items()}


def layer(kind, n, reverse=False):
    """One node: h, and for an LSTM h and c side by side."""
    if kind == "gru":
        return sq.gru(n["x"], n["h0"], n["w"], n["u"], n["b"], n["b_u"], reverse=reverse)
    if kind == "lstm":
        return gd.concatenate(sq.lstm(n["x"], n["h0"], n["c0"], n["w"], n["u"], n["b"], reverse=reverse), -1)
    return sq.rnn(n["x"], n["h0"], n["w"], n["u"], n["b"], activation="relu" if kind == "relu" else "tanh", reverse=reverse)


def unrolled(kind, n, reverse=False):
    """The same by cells."""
    x, h, c = n["x"], n["h0"], n.get("c0")
    T = x.shape[1]
    steps = [None] * T
    for t in (range(T - 1, -1, -1) if reverse else range(T)):
        if kind == "gru":
            h = sq.gru_cell(x[:, t], h, n["w"], n["u"], n["b"], n["b_u"])
        elif kind == "lstm":
            h, c = sq.lstm_cell(x[:, t], h, c, n["w"], n["u"], n["b"])
        else:
            h = sq.rnn_cell(x[:, t], h, n["w"], n["u"], n["b"], activation="relu" if kind == "relu" else "tanh")
        steps[t] = h if c is None else gd.concatenate([h, c], -1)
    return gd.stack(steps, 1)


def weighted(y):
    return gd.sum(y * np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 4, 2, 5), (17, 3, 5, 16), (50, 2, 3, 33), (2, 5, 1, 70)])
def test_equals_the_unrolled_cells(kind, sizes, reverse):
    given = arrays(kind, *sizes)
    n = nodes(given)
    feeds = dict(zip(n.values(), given.values(), strict=True))
    results = [run([y, *gd.grad(weighted(y), list(n.values()))], feeds) for y in (layer(kind, n, reverse), unrolled(kind, n, reverse))]
    for name, one, many in zip(["h", *given], *results, strict=True):
        close(one, many, 2e-13, name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_derivatives_against_the_complex_step(kind, reverse):
    given = arrays(kind, 2, 3, 2, 3)
    n = nodes(given)
    feeds = dict(zip(n.values(), given.values(), strict=True))
    y = layer(kind, n, reverse)
    check_value(y, feeds, 1e-13)
    check_derivatives(y, feeds, (1, 2))
    gd.check_grads(weighted(y * y), list(n.values()), feeds)
    checked()


def test_float32_and_float16():
    for kind in KINDS:
        given = arrays(kind, 4, 6, 3, 20)
        n = nodes(given)
        want = run([layer(kind, n)], dict(zip(n.values(), given.values(), strict=True)))[0]
        for dtype, rtol in (("float32", 3e-6), ("float16", 4e-3)):
            low = {k: v.astype(dtype) for k, v in given.items()}
            m = nodes(low)
            got = run([layer(kind, m)], dict(zip(m.values(), low.values(), strict=True)))[0]
            assert got.dtype == dtype
            close(got.astype(float), want, rtol, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_threads(kind):
    given = arrays(kind, 70, 4, 3, 40, "float32")
    n = nodes(given)
    y = layer(kind, n)
    outputs = [y, *gd.grad(weighted(y), list(n.values()))]
    feeds = dict(zip(n.values(), given.values(), strict=True))
    one = run(outputs, feeds, threads=1)
    for threads in (2, 3):
        for a, b in zip(one, run(outputs, feeds, threads=threads), strict=True):
            assert a.tobytes() == b.tobytes()
            checked(a.size)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_does_not_depend_on_its_neighbours(kind):
    given = arrays(kind, 21, 4, 3, 9)
    given["x"][20] = np.nan
    few = {k: v[:3] if k in ("x", "h0", "c0") else v for k, v in given.items()}
    results = [run([layer(kind, n)], dict(zip(n.values(), a.values(), strict=True)))[0] for a in (given, few) for n in [nodes(a)]]
    close(results[0][:3], results[1], 1e-14)
    assert np.isfinite(results[0][:20]).all() and np.isnan(results[0][20]).all()


@pytest.mark.parametrize("sizes", [(0, 3, 2, 2), (2, 0, 2, 2), (2, 3, 0, 2), (2, 3, 2, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_zero(kind, sizes):
    given = arrays(kind, *sizes)
    n = nodes(given)
    y = layer(kind, n)
    feeds = dict(zip(n.values(), given.values(), strict=True))
    loss = gd.sum(y * y)
    first = gd.grad(loss, list(n.values()))
    assert y.shape == (sizes[0], sizes[1], sizes[3] * (1 + (kind == "lstm")))
    for a, (k, v) in zip(run(first, feeds), given.items(), strict=True):
        assert a.shape == v.shape and np.isfinite(a).all(), k
        checked()
    if sizes[2] == 0 or sizes[1] == 0:
        second = gd.grad(gd.sum(gd.grad(loss, n["u"]) ** 2), n["u"], unconnected="zero")
        assert np.isfinite(run([second], feeds)[0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_named_sizes(kind):
    given = arrays(kind, 4, 5, 3, 6)
    n = nodes(given)
    want = run([layer(kind, n), *gd.grad(weighted(layer(kind, n)), list(n.values()))], dict(zip(n.values(), given.values(), strict=True)))
    names = {"x": ("batch", "time", 3), "h0": ("batch", 6), "c0": ("batch", 6)}
    m = {k: gd.input(k, names.get(k, v.shape)) for k, v in given.items()}
    y, weights = layer(kind, m), gd.input("weights", ("batch", "time", 6 * (1 + (kind == "lstm"))))
    f = gd.function([*m.values(), weights], [y, *gd.grad(gd.sum(y * weights), list(m.values()))])
    got = f(*given.values(), np.cos(np.arange(want[0].size)).reshape(want[0].shape))
    for a, b in zip(got, want, strict=True):
        close(a, b, 1e-13)
    longer = arrays(kind, 2, 9, 3, 6)
    assert f(*longer.values(), np.ones((2, 9, y.shape[2])))[0].shape[:2] == (2, 9)
    empty = arrays(kind, 2, 0, 3, 6)
    assert all(np.isfinite(a).all() for a in f(*empty.values(), np.ones((2, 0, y.shape[2]))))
    with pytest.raises(GradientError, match="unroll its steps, and their number time is not known"):
        gd.grad(gd.sum(gd.grad(gd.sum(y * y), m["u"]) ** 2), m["u"])
    with pytest.raises(GradientError, match="give the time axis as an int"):
        gd.jvp(y, m["x"], gd.ones_like(m["x"]))


def test_states_and_biases_may_be_left_out():
    for kind in KINDS:
        given = arrays(kind, 3, 4, 2, 5)
        full = {k: v * 0 if k in ("h0", "c0", "b", "b_u") else v for k, v in given.items()}
        n = nodes(full)
        want = run([layer(kind, n)], dict(zip(n.values(), full.values(), strict=True)))[0]
        m = {k: n.get(k) if k in ("x", "w", "u") else None for k in n}
        got = run([layer(kind, m)], {n[k]: full[k] for k in ("x", "w", "u")})[0]
        close(got, want, 1e-15, kind)


def test_only_the_last_state_counts():
    """A gradient that arrives at one step and one result only: what the other parts get is zero, not left over."""
    given = arrays("lstm", 3, 4, 2, 5)
    n = nodes(given)
    feeds = dict(zip(n.values(), given.values(), strict=True))
    results = []
    for y in (layer("lstm", n), unrolled("lstm", n)):
        results += [run(gd.grad(gd.sum(part), list(n.values())), feeds) for part in (y[:, -1, :5], y[:, 0, 5:], y[:, 2, 3:7])]
    for one, many in zip(results[:3], results[3:], strict=True):
        for a, b in zip(one, many, strict=True):
            close(a, b, 1e-13)


def test_no_copy_of_the_graph_for_each_step():
    """The program of a long sequence has as many instructions as that of a short one."""
    counts = []
    for T in (3, 300):
        n = nodes(arrays("lstm", 2, T, 3, 4))
        y = layer("lstm", n)
        f = gd.function(list(n.values()), gd.grad(gd.sum(y), list(n.values())))
        counts.append(len(str(f.program).splitlines()))
    assert counts[0] == counts[1]
    checked()


def test_relu_keeps_nan_and_has_derivative_zero_at_zero():
    given = arrays("relu", 1, 2, 1, 2)
    for k in given:
        given[k][...] = 0
    n = nodes(given)
    y = layer("relu", n)
    feeds = dict(zip(n.values(), given.values(), strict=True))
    assert not run(gd.grad(gd.sum(y), [n["x"], n["b"]]), feeds)[1].any()
    given["x"][0, 0, 0], given["w"][0, 0] = np.nan, 1
    assert np.isnan(run([y], feeds)[0][0, 0, 0])
    checked(2)


def test_refusals_name_the_argument():
    n = nodes(arrays("lstm", 2, 3, 4, 5))
    for change, text in (({"u": gd.input("u", (5, 15))}, r"u has shape \[5, 15\], \[5, 20\] is needed"),
                         ({"w": gd.input("w", (3, 20))}, r"w has shape \[3, 20\], \[4, 20\] is needed"),
                         ({"c0": gd.input("c0", (3, 5))}, r"c0 has shape \[3, 5\], \[2, 5\] is needed"),
                         ({"b": gd.input("b", (5,))}, r"b has shape \[5\], \[20\] is needed"),
                         ({"x": gd.input("x", (3, 4))}, r"x has shape \[3, 4\], \[samples, steps, size\] is needed")):
        with pytest.raises(ShapeError, match=text) as error:
            layer("lstm", {**n, **change})
        assert "test_sequence.py" in str(error.value)
        checked()
    with pytest.raises(NodeTypeError, match="activation is 'tanh' or 'relu', not 'gelu'"):
        sq.rnn(n["x"], None, n["w"], n["u"], activation="gelu")


def test_records():
    for name in ("rnn", "gru", "lstm"):
        assert REGISTRY[name].expand is not None and REGISTRY[name + "_grad"].expand is not None
        assert REGISTRY[name].reference is not None and REGISTRY[name + "_grad"].reference is not None
        checked()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_for_the_way_back_has_a_derivative_too(kind):
    """The gates beside the states: nobody is given them, but the rule of the op holds for all it gives."""
    given = arrays(kind, 2, 2, 2, 2)
    n = nodes(given)
    y = sq.lstm(n["x"], n["h0"], n["c0"], n["w"], n["u"], n["b"])[0] if kind == "lstm" else layer(kind, n)
    while y.op not in ("rnn", "gru", "lstm"):
        y = y.inputs[0]
    check_derivatives(y, dict(zip(n.values(), given.values(), strict=True)), (1, 2))


def _program(kind, passes=None, twice=False):
    given = arrays(kind, 5, 7, 3, 6, "float32")
    n = nodes(given)
    y = layer(kind, n)
    losses = [weighted(y), weighted(y * y)][:1 + twice]
    outputs = [g for loss in losses for g in gd.grad(loss, list(n.values()))]
    f = gd.function(list(n.values()), outputs, passes=passes)
    return f, f(*given.values())


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_cotangents_take_the_place_of_gates(kind):
    without = ("merge", "algebra", "stable_forms", "fold", "fuse")
    for twice in (False, True):             # two losses of one sequence: the first cotangents must leave the gates
        (f, got), (g, want) = _program(kind, None, twice), _program(kind, without, twice)
        for a, b in zip(got, want, strict=True):
            assert a.tobytes() == b.tobytes()
        lines = [line for line in str(f.program).splitlines() if f"{kind}_grad" in line]
        places = [line.split()[2] for line in lines]
        assert [place in line.split(" <- ")[1] for place, line in zip(places, lines, strict=True)] == [False, True][-len(lines):]
        assert f.plan.arena_nbytes < g.plan.arena_nbytes
        checked(len(got) + 2)
