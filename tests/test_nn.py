"""Layers against independent NumPy forms, values and gradients; parameters, state, names, bad input; saved and loaded."""
from __future__ import annotations

import json

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import DTypeError, FormatError, NodeTypeError, OutOfBounds, ShapeError

nn = gd.nn
RNG = np.random.default_rng(11)


def run(layer, *arrays, training=False, **options):
    """The layer applied to float64 arrays."""
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = layer(*nodes, training=training, **options)
    outputs = [v for v in (y if isinstance(y, tuple) else (y,)) if v is not None]
    results = gd.function(nodes, outputs)(*arrays)
    return results if isinstance(y, tuple) else results[0]


def check(layer, *arrays, **options):
    """Gradients of a weighted sum of the outputs to inputs and parameters, both modes, two orders."""
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = layer(*nodes, **options)
    outputs = [v for v in (y if isinstance(y, tuple) else (y,)) if v is not None]
    loss = sum((gd.sum(v * np.cos(np.arange(np.prod(v.shape)).reshape(v.shape))) for v in outputs), gd.constant(0.0))
    floats = [n for n in nodes if n.dtype.kind == "f"]
    gd.check_grads(loss, [*floats, *layer.parameters()], dict(zip(nodes, arrays, strict=True)), order=2)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def v(node):
    return np.array(node.value)


# -- dense, embedding, dropout --------------------------------------------------------------------------------------------

def test_dense():
    layer = nn.Dense(3, 4, activation="tanh", key=1, dtype="float64")
    layer.b.value = RNG.standard_normal(4)
    x = RNG.standard_normal((2, 5, 3))
    np.testing.assert_allclose(run(layer, x), np.tanh(x @ v(layer.w) + v(layer.b)), rtol=1e-13)
    check(layer, x)
    assert [p.name for p in layer.parameters()] == ["dense.w", "dense.b"]
    assert nn.Dense(3, 4, bias=False).b is None
    with pytest.raises(ShapeError, match="3 numbers are needed along axis -1"):
        layer(gd.input("x", (2, 4)))


def test_layers_without_a_key_differ_and_keys_repeat():
    a, b = nn.Dense(4, 4), nn.Dense(4, 4)
    assert not np.array_equal(a.w.value, b.w.value)
    np.testing.assert_array_equal(nn.Dense(4, 4, key=3).w.value, nn.Dense(4, 4, key=gd.random.key(3)).w.value)


def test_embedding():
    layer = nn.Embedding(7, 3, key=1, dtype="float64")
    ids = np.array([[1, 1], [6, 0]])
    np.testing.assert_array_equal(run(layer, ids), v(layer.w)[ids])
    check(layer, ids)
    with pytest.raises(OutOfBounds):
        run(layer, np.array([7]))
    with pytest.raises(DTypeError, match="ids are float64"):
        layer(gd.input("x", (2,)))


def test_dropout_is_identity_outside_training_and_another_mask_each_step():
    layer = nn.Dropout(0.25, key=5)
    x = gd.input("x", (1000,), "float32")
    assert layer(x) is x
    y = layer(x, training=True)
    for threads in (1, 3):
        layer.counter.value = 0
        step = gd.function([x], y, updates=layer.updates(), threads=threads)
        one = np.ones(1000, "float32")
        masks = [np.array(step(one)) for _ in range(3)]
        assert int(layer.counter.value) == 3
        assert set(np.unique(masks[0])) == {np.float32(0), np.float32(4 / 3)}
        assert 650 < (masks[0] > 0).sum() < 850
        assert not np.array_equal(masks[0], masks[1])
        if threads == 1:
            kept = masks
        else:
            np.testing.assert_array_equal(kept, masks)
    with pytest.raises(ShapeError, match="p is a number"):
        nn.Dropout(1.5)


# -- convolution ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kernel", [(3,), (3, 2), (2, 2, 2)])
def test_conv_of_every_dimension(kernel):
    layer = nn.Conv(2, 4, kernel, key=1, dtype="float64", padding=1, groups=2)
    layer.b.value = RNG.standard_normal(4)
    x = RNG.standard_normal((2, 2, *(4,) * len(kernel)))
    padded = np.pad(x, [(0, 0), (0, 0)] + [(1, 1)] * len(kernel))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=tuple(range(2, x.ndim)))
    w, axes = v(layer.w), tuple(range(-len(kernel), 0))
    expected = np.stack([(windows[:, o // 2] * w[o, 0]).sum(axes) + v(layer.b)[o] for o in range(4)], 1)
    np.testing.assert_allclose(run(layer, x), expected, rtol=1e-12, atol=1e-13)
    check(layer, x)
    with pytest.raises(ShapeError, match="2 numbers are needed along axis 1"):
        layer(gd.input("x", (1, 3, *(4,) * len(kernel))))


def test_conv_transpose_is_the_adjoint_of_conv():
    forward = nn.Conv(3, 2, 3, key=1, dtype="float64", stride=2, bias=False)
    back = nn.ConvTranspose(2, 3, 3, init=v(forward.w), dtype="float64", stride=2, bias=False)
    x, y = RNG.standard_normal((1, 3, 7, 7)), RNG.standard_normal((1, 2, 3, 3))
    assert abs(np.sum(run(forward, x) * y) - np.sum(x * run(back, y))) < 1e-11
    check(nn.ConvTranspose(2, 3, 3, key=2, dtype="float64", stride=2), y)


def test_pooling_and_flatten():
    x = RNG.standard_normal((2, 3, 4, 4))
    blocks = x.reshape(2, 3, 2, 2, 2, 2)
    np.testing.assert_array_equal(run(nn.MaxPool(2), x), blocks.max((3, 5)))
    np.testing.assert_allclose(run(nn.AvgPool(2), x), blocks.mean((3, 5)), rtol=1e-14)
    assert run(nn.Flatten(), x).shape == (2, 48)


# -- normalisation --------------------------------------------------------------------------------------------------------

def test_batch_norm_trains_and_remembers():
    layer = nn.BatchNorm(3, dtype="float64", momentum=0.2)
    layer.gamma.value, layer.beta.value = RNG.standard_normal(3), RNG.standard_normal(3)
    x = gd.input("x", (4, 3, 5))
    y = layer(x, training=True)
    step = gd.function([x], y, updates=layer.updates())
    mean, var = np.zeros(3), np.ones(3)
    for _ in range(3):
        a = 2 + 3 * RNG.standard_normal((4, 3, 5))
        m, s = a.mean((0, 2)), a.var((0, 2))
        shape = (1, 3, 1)
        expected = (a - m.reshape(shape)) / np.sqrt(s.reshape(shape) + 1e-5) * v(layer.gamma).reshape(shape) + v(layer.beta).reshape(shape)
        np.testing.assert_allclose(step(a), expected, rtol=1e-11, atol=1e-12)
        mean, var = 0.8 * mean + 0.2 * m, 0.8 * var + 0.2 * a.var((0, 2), ddof=1)
    np.testing.assert_allclose(v(layer.mean), mean, rtol=1e-12)
    np.testing.assert_allclose(v(layer.var), var, rtol=1e-12)
    a = RNG.standard_normal((2, 3, 5))
    expected = (a - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5) * v(layer.gamma).reshape(shape) + v(layer.beta).reshape(shape)
    np.testing.assert_allclose(run(layer, a), expected, rtol=1e-12, atol=1e-13)
    assert [p.name for p in layer.parameters()] == ["batchnorm.gamma", "batchnorm.beta"]
    assert set(layer.variables()) == {"gamma", "beta", "mean", "var"}
    check(layer, RNG.standard_normal((4, 3)), training=True)
    with pytest.raises(ShapeError, match="at least two numbers"):
        layer(gd.input("one", (1, 3)), training=True)


def test_layer_group_rms_norm():
    x = RNG.standard_normal((4, 6))
    c = x - x.mean(-1, keepdims=True)
    np.testing.assert_allclose(run(nn.LayerNorm(6, dtype="float64"), x), c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5), rtol=1e-12)
    np.testing.assert_allclose(run(nn.RMSNorm(6, dtype="float64"), x), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5), rtol=1e-13)
    g = RNG.standard_normal((2, 4, 3))
    blocks = g.reshape(2, 2, 6)
    c = blocks - blocks.mean(-1, keepdims=True)
    np.testing.assert_allclose(run(nn.GroupNorm(2, 4, dtype="float64"), g), (c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)).reshape(g.shape),
                               rtol=1e-12)
    for layer, a in ((nn.LayerNorm(6, dtype="float64"), x), (nn.LayerNorm((2, 3), dtype="float64"), x.reshape(4, 2, 3)),
                     (nn.RMSNorm(6, dtype="float64"), x), (nn.GroupNorm(2, 4, dtype="float64"), g)):
        check(layer, a)


# -- recurrent ------------------------------------------------------------------------------------------------------------

def by_hand(layer, x, reverse=False):
    """The sequence in plain NumPy: every h, and every c of an LSTM."""
    w, u = v(layer.w), v(layer.u)
    b = 0 if layer.b is None else v(layer.b)
    n = layer.n_hidden
    h, c = np.zeros((len(x), n)), np.zeros((len(x), n))
    hs, cs = np.zeros((*x.shape[:2], n)), np.zeros((*x.shape[:2], n))
    for t in range(x.shape[1])[::-1 if reverse else 1]:
        a = x[:, t] @ w + b
        if isinstance(layer, nn.LSTM):
            a = a + h @ u
            i, f, g, o = (a[:, k * n:(k + 1) * n] for k in range(4))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif isinstance(layer, nn.GRU):
            hu = h @ u + v(layer.c)
            r, z = sigmoid(a[:, :n] + hu[:, :n]), sigmoid(a[:, n:2 * n] + hu[:, n:2 * n])
            new = np.tanh(a[:, 2 * n:] + r * hu[:, 2 * n:])
            h = (1 - z) * new + z * h
        else:
            h = np.tanh(a + h @ u)
        hs[:, t], cs[:, t] = h, c
    return hs, cs


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("reverse", [False, True])
def test_sequence_against_numpy(kind, reverse):
    layer = kind(3, 4, key=2, dtype="float64", reverse=reverse)
    layer.b.value = RNG.standard_normal(layer.b.shape)
    if kind is nn.GRU:
        layer.c.value = RNG.standard_normal(layer.c.shape)
    x = RNG.standard_normal((2, 5, 3))
    hs, cs = by_hand(layer, x, reverse)
    np.testing.assert_allclose(run(layer, x), hs, rtol=1e-12, atol=1e-14)
    if kind is nn.LSTM:
        h, c = run(layer, x, states=True)
        np.testing.assert_allclose(h, hs, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(c, cs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_sequence_gradients(kind):
    check(kind(2, 3, key=2, dtype="float64"), RNG.standard_normal((2, 3, 2)))


@pytest.mark.parametrize(("kind", "cell"), [(nn.RNN, nn.RNNCell), (nn.GRU, nn.GRUCell), (nn.LSTM, nn.LSTMCell)])
def test_cells_are_the_steps_of_the_sequence(kind, cell):
    layer, step = kind(3, 4, key=2, dtype="float64"), cell(3, 4, key=2, dtype="float64")
    x = RNG.standard_normal((2, 3, 3))
    whole = run(layer, x)
    state = (np.zeros((2, 4)),) * (2 if kind is nn.LSTM else 1)
    for t in range(3):
        result = run(step, x[:, t], *state)
        state = result if isinstance(result, tuple) else (result,)
        np.testing.assert_allclose(state[0], whole[:, t], rtol=1e-12, atol=1e-14)


def test_forget_gates_start_open():
    np.testing.assert_array_equal(nn.LSTM(2, 3).b.value, [0] * 3 + [1] * 3 + [0] * 6)


# -- attention ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention(causal):
    layer = nn.MultiHeadAttention(6, 2, key=1, dtype="float64")
    x = RNG.standard_normal((2, 5, 6))
    q, k, u = (x @ v(getattr(layer, f"w_{p}")) + v(getattr(layer, f"b_{p}")) for p in "qkv")
    heads = []
    for i in range(2):
        part = slice(3 * i, 3 * i + 3)
        scores = q[..., part] @ k[..., part].swapaxes(1, 2) / np.sqrt(3)
        if causal:
            scores = np.where(np.tri(5, dtype=bool), scores, -np.inf)
        heads.append(softmax(scores) @ u[..., part])
    expected = np.concatenate(heads, -1) @ v(layer.w_o) + v(layer.b_o)
    np.testing.assert_allclose(run(layer, x, causal=causal), expected, rtol=1e-11, atol=1e-13)
    check(layer, x, causal=causal)


def test_cross_attention_with_a_mask():
    layer = nn.MultiHeadAttention(4, 2, key=1, dtype="float64", n_context=3)
    x, context = RNG.standard_normal((1, 2, 4)), RNG.standard_normal((1, 3, 3))
    a, b = gd.input("x", x.shape), gd.input("c", context.shape)
    full = gd.function([a, b], layer(a, b, mask=np.array([[[True, True, False]] * 2])))
    changed = context.copy()
    changed[0, 2] = 99.0      # nobody may look there
    np.testing.assert_array_equal(full(x, context), full(x, changed))
    with pytest.raises(ShapeError, match="3 numbers are needed"):
        layer(a, a)
    with pytest.raises(ShapeError, match="do not divide"):
        nn.MultiHeadAttention(4, 3)


# -- graphs ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_graph_layer(how):
    layer = nn.GraphLayer(3, 2, activation="tanh", key=1, dtype="float64", n_edge=2, n_global=1, how=how)
    nodes, edges, u = RNG.standard_normal((4, 3)), RNG.standard_normal((5, 2)), RNG.standard_normal(1)
    senders, receivers = np.array([0, 1, 2, 2, 0]), np.array([1, 2, 0, 1, 2])      # node 3 is alone
    pool = {"sum": np.sum, "mean": np.mean, "max": np.max}[how]

    def dense(part, x):
        return np.tanh(x @ v(part.w) + v(part.b))
    e = dense(layer.edge, np.concatenate([edges, nodes[senders], nodes[receivers], np.repeat(u[None], 5, 0)], 1))
    got = np.array([pool(e[receivers == i], axis=0) if (receivers == i).any() else np.zeros(2) for i in range(4)])
    new = dense(layer.node, np.concatenate([nodes, got, np.repeat(u[None], 4, 0)], 1))
    g = dense(layer.globals, np.concatenate([u, pool(e, axis=0), pool(new, axis=0)]))
    for mine, theirs in zip(run(layer, nodes, senders, receivers, edges, u), (new, e, g), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-13)
    check(layer, nodes, senders, receivers, edges, u)


def test_graph_layer_refuses():
    layer = nn.GraphLayer(3, 2)
    x, i = gd.input("x", (4, 3)), gd.input("i", (5,), "int64")
    with pytest.raises(ShapeError, match="missing or too much"):
        layer(x, i, i, gd.input("e", (5, 2), "float32"))
    with pytest.raises(DTypeError, match="senders are float64"):
        layer(x, gd.input("f", (5,)), i)
    with pytest.raises(NodeTypeError, match="how is one of"):
        nn.GraphLayer(3, 2, how="median")


# -- containers -----------------------------------------------------------------------------------------------------------

def test_sequential_and_residual():
    net = nn.Sequential(nn.Dense(3, 3, key=1, dtype="float64"), gd.relu, nn.Residual(nn.Dense(3, 3, key=2, dtype="float64")),
                        nn.Dense(3, 2, key=3, dtype="float64"))
    x = RNG.standard_normal((4, 3))
    h = np.maximum(x @ v(net[0].w), 0)
    h = h + h @ v(net[2].inner.w)
    np.testing.assert_allclose(run(net, x), h @ v(net[3].w), rtol=1e-13)
    assert len(net.parameters()) == 6 and len(net) == 4
    assert list(net.variables())[:3] == ["steps.0.w", "steps.0.b", "steps.2.inner.w"]
    with pytest.raises(ShapeError, match="shortcut"):
        nn.Residual(nn.Dense(3, 2))(gd.input("x", (1, 3), "float32"))


def test_shared_layers_count_once():
    layer = nn.Dense(2, 2)
    assert len(nn.Sequential(layer, layer).parameters()) == 2


def test_parameter_count_of_the_worked_example():
    net = nn.Sequential(*[nn.Dense(a, b) for a, b in ((2, 5), (5, 10), (10, 5), (5, 2))])
    assert sum(int(np.prod(p.shape)) for p in net.parameters()) == 15 + 60 + 55 + 12
    assert "142 parameters" in repr(net)


def test_layers_are_scopes():
    net = nn.Sequential(nn.Dense(2, 2, name="first"), name="net")
    y = net(gd.input("x", (1, 2), "float32"))
    assert y.scope == "net/first"


def test_updates_of_the_last_training_call_only():
    net = nn.Sequential(nn.BatchNorm(2), nn.Dropout(0.5, key=1))
    x = gd.input("x", (3, 2), "float32")
    assert net.updates() == {}
    net(x, training=True)
    first = net.updates()
    net(x, training=True)
    second = net.updates()
    assert len(first) == len(second) == 3
    assert all(first[k] is not second[k] for k in first)


# -- initialisers ---------------------------------------------------------------------------------------------------------

def test_initialisers():
    w = nn.init.orthogonal(1, (40, 30), "float64")
    np.testing.assert_allclose(w.T @ w, np.eye(30), atol=1e-13)
    w = nn.init.orthogonal(1, (8, 2, 3, 3), "float64").reshape(8, 18)
    np.testing.assert_allclose(w @ w.T, np.eye(8), atol=1e-13)
    for f, shape, variance in ((nn.init.glorot, (300, 200), 2 / 500), (nn.init.glorot_normal, (300, 200), 2 / 500), (nn.init.he, (300, 200), 2 / 300),
                               (nn.init.he_uniform, (64, 32, 3, 3), 2 / 288)):
        w = f(1, shape, "float64")
        assert abs(w.var() / variance - 1) < 0.05 and abs(w.mean()) < 0.01
        assert w.dtype == np.float64
    assert nn.init.fans((64, 32, 3, 3)) == (288, 576)
    with pytest.raises(NodeTypeError, match="'glorotto'"):
        nn.Dense(2, 2, init="glorotto")
    with pytest.raises(ShapeError, match=r"\[2, 3\] is needed"):
        nn.Dense(2, 3, init=np.zeros((3, 2)))


# -- saving ---------------------------------------------------------------------------------------------------------------

def network():
    return nn.Sequential(nn.Dense(3, 4), nn.BatchNorm(4), nn.Dropout(0.5), nn.Dense(4, 2, dtype="float64"))


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_saved_and_loaded(tmp_path, suffix):
    a, b = network(), network()
    a[2].counter.value = 7
    nn.save(tmp_path / f"w{suffix}", a)
    nn.load(tmp_path / f"w{suffix}", b)
    for name, variable in a.variables().items():
        np.testing.assert_array_equal(variable.value, b.variables()[name].value)
    assert int(b[2].counter.value) == 7
    assert [p.name for p in tmp_path.iterdir()] == [f"w{suffix}"]
    with pytest.raises(FormatError, match="another layer"):
        nn.load(tmp_path / f"w{suffix}", nn.Dense(3, 4))
    other = nn.Sequential(nn.Dense(3, 5), nn.BatchNorm(5), nn.Dropout(0.5), nn.Dense(5, 2, dtype="float64"))
    before = v(other[0].w)
    with pytest.raises(FormatError, match="in the file"):
        nn.load(tmp_path / f"w{suffix}", other)
    np.testing.assert_array_equal(other[0].w.value, before)


def test_optimiser_state_is_saved_too(tmp_path):
    w = gd.variable([1.0, 2.0], "w")
    opt = gd.optim.Adam()
    gd.function([], gd.sum(w), updates=opt.updates(gd.sum(w * w), [w]))()
    nn.save(tmp_path / "opt.safetensors", opt.state())
    restored = nn.load(tmp_path / "opt.safetensors")
    opt.load_state(restored)
    assert set(restored) == set(opt.state())


def test_file_is_of_the_published_format(tmp_path):
    nn.save(tmp_path / "a.safetensors", {"x": np.array([[1, 2]], "float32"), "flag": np.array(True)})
    raw = (tmp_path / "a.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    assert n % 8 == 0
    header = json.loads(raw[8:8 + n])
    assert list(header.pop("__metadata__")) == ["crc32"]
    assert header == {"x": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
                      "flag": {"dtype": "BOOL", "shape": [], "data_offsets": [8, 9]}}
    assert raw[8 + n:] == np.array([1, 2], "<f4").tobytes() + b"\x01"


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_damaged_files_are_refused_or_read_the_same(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    nn.save(path, {"x": np.arange(3, dtype="float32"), "y": np.array([[1, 2]], "int64")})
    good, raw = nn.load(path), path.read_bytes()
    refused = 0
    for cut in range(len(raw)):
        path.write_bytes(raw[:cut])
        with pytest.raises(FormatError):
            nn.load(path)
        refused += 1
    for place in range(len(raw)):
        for bit in range(8) if suffix == ".safetensors" else [place % 8]:
            damaged = bytearray(raw)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                found = nn.load(path)
            except FormatError:
                refused += 1
                continue
            assert list(found) == list(good) and all(found[k].dtype == a.dtype and found[k].tobytes() == a.tobytes() for k, a in good.items())
    assert refused > len(raw)


def test_no_pickle_is_read(tmp_path):
    np.savez(tmp_path / "p.npz", x=np.array([{"a": 1}], object))
    with pytest.raises(FormatError):
        nn.load(tmp_path / "p.npz")
    with pytest.raises(FormatError, match="suffix"):
        nn.save(tmp_path / "p.pkl", {})
    for suffix in ("npz", "safetensors"):
        with pytest.raises(FileNotFoundError) as info:
            nn.save(tmp_path / "nowhere" / f"p.{suffix}", {})
        assert info.value.filename == str(tmp_path / "nowhere" / f"p.{suffix}") and "unfinished" not in str(info.value)
        checked(2)
    with pytest.raises(FileNotFoundError):
        nn.load(tmp_path / "none.npz")


def test_bad_arguments_are_named():
    with pytest.raises(NodeTypeError, match="activation"):
        nn.Dense(2, 2, activation="swoosh")
    with pytest.raises(ShapeError, match="n_in is at least 1"):
        nn.Dense(0, 2)
    with pytest.raises(NodeTypeError, match="n_out is a whole number"):
        nn.Dense(2, 2.5)
    with pytest.raises(NodeTypeError, match="training is True or False"):
        nn.Dense(2, 2)(gd.input("x", (1, 2), "float32"), training=1)
    with pytest.raises(NodeTypeError, match="step 1 is a layer"):
        nn.Sequential(nn.Dense(2, 2), 3)
    with pytest.raises(DTypeError, match="dtype is a float"):
        nn.Dense(2, 2, dtype="int64")


# -- layers used in unusual ways --------------------------------------------------------------------------------------------

def test_constructors_take_sizes_activation_bias_init_key_dtype_name_in_that_order():
    for kind, sizes in ((nn.Dense, (4, 6)), (nn.Conv, (4, 6, 3)), (nn.ConvTranspose, (4, 6, 3)), (nn.RNN, (4, 6)), (nn.GRU, (4, 6)), (nn.LSTM, (4, 6)),
                        (nn.RNNCell, (4, 6)), (nn.GRUCell, (4, 6)), (nn.LSTMCell, (4, 6)), (nn.MultiHeadAttention, (4, 2)), (nn.GraphLayer, (4, 6))):
        layer = kind(*sizes, None, False, "he", 3, "float64", "mine")
        assert layer.name == "mine" and all(p.dtype == "float64" for p in layer.parameters())
        assert not any(p.name.rsplit(".", 1)[1].startswith("b") for p in layer.parameters())
    with pytest.raises(NodeTypeError, match="activation is None or 'tanh', not 'relu'"):
        nn.LSTM(2, 3, "relu")
    x = gd.input("x", (2, 3, 4))
    values = [gd.evaluate(nn.RNN(4, 5, a, key=1, dtype="float64")(x), {x: np.ones((2, 3, 4))}) for a in (None, "tanh")]
    np.testing.assert_array_equal(*values)


def test_copies_of_a_layer_know_what_is_no_parameter():
    import copy
    import pickle
    net = nn.Sequential(nn.Dense(2, 2), nn.BatchNorm(2), nn.Dropout(0.5, key=1))
    net(gd.input("x", (3, 2), "float32"), training=True)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert [p.name for p in other.parameters()] == [p.name for p in net.parameters()]
        assert list(other.variables()) == list(net.variables())
        other[0].b.value = np.ones(2, "float32")
    assert not net[0].b.value.any()


def test_nested_lists_and_dicts_of_layers_and_variables_are_found():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.blocks = [[nn.Dense(2, 2)], (nn.Dense(2, 2), {"deep": nn.Dense(2, 2)})]
            self.scales = [gd.variable([1.0], "scale")]
    assert list(Net().variables()) == ["scales.0", "blocks.0.0.w", "blocks.0.0.b", "blocks.1.0.w", "blocks.1.0.b", "blocks.1.1.deep.w",
                                       "blocks.1.1.deep.b"]
    net = Net()
    net.blocks = {"a": {"b": nn.Dense(2, 2)}, "a.b": nn.Dense(2, 2)}
    with pytest.raises(ShapeError, match=r"two variables have the path blocks\.a\.b\.w"):
        net.variables()


def test_a_layer_that_stands_in_a_network_twice():
    drop = nn.Dropout(0.5, key=1)
    x = gd.input("x", (4000,), "float32")
    net = nn.Sequential(drop, gd.relu, drop)
    share = (gd.evaluate(net(x, training=True), {x: np.ones(4000, "float32")}) > 0).mean()
    assert abs(share - 0.25) < 0.05      # other elements the second time
    assert len(net.updates()) == 1
    norm = nn.BatchNorm(1, dtype="float64")
    y = gd.input("y", (2, 1))
    net = nn.Sequential(norm, lambda h: h + 7.0, norm)
    net(y, training=True)
    gd.function([y], [], updates=net.updates())(np.array([[1.0], [5.0]]))
    np.testing.assert_allclose(norm.mean.value, [0.9 * (0.1 * 3.0) + 0.1 * 7.0])


def test_a_key_that_is_a_variable_is_saved_but_no_parameter():
    key = gd.variable(np.array(gd.evaluate(gd.random.key(1), {})), "key")
    net = nn.Sequential(nn.Dense(2, 2), nn.Dropout(0.5, key=key))
    assert len(net.parameters()) == 2 and "steps.1.key" in net.variables()


def test_two_layers_of_one_kind_have_variables_of_two_names():
    net = nn.Sequential(nn.Dense(2, 2), nn.Dense(2, 2))
    assert [p.name for p in net.parameters()] == ["dense.w", "dense.b", "dense2.w", "dense2.b"]
    with pytest.raises(gd.errors.GradientError, match=r"dense2\.w"):
        gd.optim.Adam().updates(gd.sum(net[0](gd.input("x", (1, 2), "float32"))), net.parameters())


def test_a_last_batch_of_one_or_none_does_not_spoil_the_running_averages():
    layer = nn.BatchNorm(2, dtype="float64")
    x = gd.input("x", ("batch", 2))
    y = layer(x, training=True)
    layer.beta.value = np.array([0.25, -0.5])
    step = gd.function([x], [y, gd.grad(gd.sum(y), x)], updates=layer.updates())
    for n in (1, 0):
        value, gradient = step(np.ones((n, 2)) * 7)
        np.testing.assert_array_equal(value, [[0.25, -0.5]] * n if n else np.zeros((0, 2)))       # as documented
        np.testing.assert_array_equal(gradient, np.zeros((n, 2)))
        np.testing.assert_array_equal(layer.mean.value, [0, 0])
        np.testing.assert_array_equal(layer.var.value, [1, 1])
    step(np.array([[1.0, 0.0], [3.0, 0.0]]))
    np.testing.assert_allclose(layer.mean.value, [0.2, 0.0])


def test_batch_norm_of_another_dtype_keeps_its_running_averages():
    layer = nn.BatchNorm(2)
    x = gd.input("x", (3, 2), "float64")
    gd.function([x], layer(x, training=True), updates=layer.updates())(np.ones((3, 2)))
    np.testing.assert_allclose(layer.mean.value, [0.1, 0.1], rtol=1e-6)


def test_negative_ids_are_no_ids():
    with pytest.raises(OutOfBounds, match="index -1"):
        run(nn.Embedding(4, 2), np.array([-1]))
    layer = nn.GraphLayer(3, 2, key=1, dtype="float64")
    for senders, receivers in (([-1], [0]), ([0], [-1])):
        with pytest.raises(OutOfBounds, match="index -1"):
            run(layer, np.ones((3, 3)), np.array(senders), np.array(receivers))


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_graphs_of_named_sizes_without_edges_or_nodes(how):
    layer = nn.GraphLayer(3, 2, key=1, dtype="float64", n_global=1, how=how)
    given = [gd.input("v", ("nodes", 3)), gd.input("s", ("edges",), "int64"), gd.input("r", ("edges",), "int64"), gd.input("u", (1,))]
    outputs = layer(*given[:3], u=given[3])
    f = gd.function(given, [*outputs, *gd.grad(sum((gd.sum(y) for y in outputs), gd.constant(0.0)), layer.parameters())])
    none, u = np.zeros(0, int), np.ones(1)
    for results in (f(np.ones((4, 3)), none, none, u), f(np.ones((0, 3)), none, none, u)):
        assert all(np.isfinite(a).all() for a in results)
    nodes, ends = RNG.standard_normal((4, 3)), (np.array([0, 1, 2]), np.array([1, 2, 1]))
    fixed = [gd.input("v", (4, 3)), gd.input("s", (3,), "int64"), gd.input("r", (3,), "int64")]
    want = gd.function([*fixed, given[3]], list(layer(*fixed, u=given[3])))(nodes, *ends, u)
    for a, b in zip(f(nodes, *ends, u), want, strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_graph_layer_names_operands_that_do_not_fit():
    layer = nn.GraphLayer(3, 2, n_edge=2, n_global=2, dtype="float64")
    v, i = gd.input("v", (4, 3)), gd.input("i", (5,), "int64")
    e, u = gd.input("e", (5, 2)), gd.input("u", (2,))
    for change, text in (({"receivers": gd.input("r", (4,), "int64")}, "5 senders and 4 receivers"), ({"e": gd.input("e", (4, 2))}, "e is"),
                         ({"u": gd.input("u", (1, 2))}, "u is")):
        with pytest.raises(ShapeError, match=text):
            layer(v, i, **{"receivers": i, "e": e, "u": u, **change})
    with pytest.raises(ShapeError, match="heads is at least 1"):
        nn.functional.multi_head_attention(gd.input("x", (1, 2, 4)), gd.input("x", (1, 2, 4)), gd.input("x", (1, 2, 4)), 0)


def test_numbers_may_be_numpys():
    assert nn.Dropout(np.float32(0.5)).p == 0.5 and nn.BatchNorm(np.int64(2), momentum=np.float32(0.5)).momentum == 0.5
    with pytest.raises(ShapeError, match="p is a number"):
        nn.Dropout(np.bool_(True))


# -- hostile files ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("dtype", "shape"), [(["F32"], []), ("F32", [0, 1 << 61]), ("F32", [1 << 61, 1 << 61, 0]), ({}, 0)])
def test_hostile_safetensors_headers(tmp_path, dtype, shape):
    text = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(FormatError, match="damaged"):
        nn.load(tmp_path / "x.safetensors")


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_names_of_any_kind_come_back_as_they_were(tmp_path, suffix):
    arrays = {name: np.array([i]) for i, name in enumerate(["a", "a.npy", "", "../../x", "/etc/x", "file", "é\n", "c\\d", "dir/", "a.npy.npy"])}
    path = str(tmp_path / f"a{suffix}").encode()      # a path of bytes
    nn.save(path, arrays)
    found = nn.load(path)
    assert {k: int(v[0]) for k, v in found.items()} == {k: int(v[0]) for k, v in arrays.items()}
    assert [p.name for p in tmp_path.iterdir()] == [f"a{suffix}"]
    with pytest.raises(FormatError, match="__metadata__"):
        nn.save(path, {"__metadata__": np.zeros(1)})
    with pytest.raises(NodeTypeError, match="a name is a str, not 1"):
        nn.save(path, {1: np.zeros(1)})
    assert set(nn.load(path)) == set(arrays)
    with pytest.raises(NodeTypeError, match="a layer is needed, not dict"):
        nn.load(path, {})


def test_archives_with_other_members_or_one_twice(tmp_path):
    import zipfile
    layer = nn.Dense(2, 2)
    nn.save(tmp_path / "a.npz", layer)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(FormatError, match=r"readme\.txt is no array"):
        nn.load(tmp_path / "a.npz", layer)
    with pytest.raises(FormatError, match="cannot be a name"):
        nn.save(tmp_path / "b.npz", {"a\0b": np.zeros(1)})
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_two_dropouts_of_one_key_drop_different_elements():
    net = gd.nn.Sequential(gd.nn.Dropout(0.5, key=1), gd.nn.Dropout(0.5, key=1))
    kept = gd.evaluate(net(np.ones(10_000, "float32"), training=True), {}) != 0
    assert abs(kept.mean() - 0.25) < 0.03


def test_a_network_that_stands_twice_in_a_step_drops_different_elements_and_the_first_again_in_the_next_graph():
    net, ones = gd.nn.Sequential(gd.nn.Dropout(0.5, key=1)), np.ones(10_000, "float32")

    def step():
        both = net(ones, training=True), net(ones, training=True)
        return [y != 0 for y in gd.function([], both, updates=net.updates())()]
    first, second = step()
    assert abs((first & second).mean() - 0.25) < 0.03
    next(v for path, v in net.variables().items() if path.endswith("counter")).value = 0
    assert all(np.array_equal(a, b) for a, b in zip(step(), (first, second), strict=True))
    drop = gd.nn.Dropout(0.5, key=1)
    kept = gd.evaluate(drop(drop(ones, training=True), training=True), {}) != 0
    assert abs(kept.mean() - 0.25) < 0.03


def test_the_functions_of_graph_layer_and_embedding():
    layer = nn.GraphLayer(3, 4, "tanh", key=1, n_edge=2, n_global=5, how="mean")
    rng = np.random.default_rng(0)
    v, e, u = (rng.standard_normal(s).astype("float32") for s in ((6, 3), (7, 2), (5,)))
    senders, receivers = rng.integers(0, 6, 7), rng.integers(0, 6, 7)

    def dense(part):
        return lambda x: nn.functional.dense(x, part.w, part.b, activation="tanh")
    mine = nn.functional.graph_layer(v, senders, receivers, dense(layer.edge), dense(layer.node), dense(layer.globals), e=e, u=u, how="mean")
    theirs = layer(v, senders, receivers, e, u)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(gd.evaluate(a, {}), gd.evaluate(b, {}))
    table = nn.Embedding(10, 3, key=2)
    np.testing.assert_array_equal(gd.evaluate(nn.functional.embedding(np.array([[1, 9]]), table.w), {}), table.w.value[[[1, 9]]])
    with pytest.raises(gd.errors.OutOfBounds):
        gd.evaluate(nn.functional.embedding(np.array([-1]), table.w), {})


def test_layers_of_ones_own_say_what_they_lack():
    class Bare(gd.nn.Layer):
        def __init__(self):
            self.w = 1

        def forward(self, x, training):
            return x

    class Deaf(gd.nn.Layer):
        def forward(self, x):
            return x

    class Open(gd.nn.Layer):
        def forward(self, x, flag, **options):
            assert flag is True and options == {"training": False}
            return x

    with pytest.raises(NodeTypeError, match=r"Bare.__init__ does not call super\(\).__init__\(\)"):
        Bare()(np.ones(3))
    with pytest.raises(NodeTypeError, match=r"Deaf.forward has no parameter `training`"):
        Deaf()(np.ones(3))
    with pytest.raises(NodeTypeError, match="training is given by name"):
        gd.nn.Dense(3, 4)(np.ones((2, 3)), True)
    assert Open()(np.ones(3), True).shape == (3,)


def test_layers_with_activations_are_pickled():
    import pickle
    x = np.ones((1, 2), "float32")
    net = gd.nn.Sequential(gd.nn.Dense(2, 8, "tanh", key=1), gd.nn.Dense(8, 1, "sigmoid", key=2))
    again = pickle.loads(pickle.dumps(net))
    assert gd.evaluate(net(x), {}).tobytes() == gd.evaluate(again(x), {}).tobytes()
    assert pickle.loads(pickle.dumps(gd.tanh)) is gd.tanh


def test_masks_that_are_added_are_not_those_that_allow():
    q = np.ones((3, 4))
    with pytest.raises(DTypeError, match=r"hint +mask == 0"):
        gd.attention(q, q, q, np.zeros((3, 3)))
    with pytest.raises(DTypeError, match=r"hint +mask != 0"):
        gd.attention(q, q, q, np.ones((3, 3), int))


def test_a_dtype_that_is_not_supported_is_no_damage(tmp_path):
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(FormatError, match="w is BF16, which is not supported"):
        gd.nn.load(tmp_path / "a.safetensors")


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_starts_from_as_many_inputs_as_a_convolution(groups):
    for name, gain in (("he", 2.0), ("he_uniform", 2.0)):
        for make, c_in, c_out in ((gd.nn.Conv, 64, 8), (gd.nn.ConvTranspose, 64, 8), (gd.nn.ConvTranspose, 8, 64)):
            w = make(c_in, c_out, 5, init=name, key=3, groups=groups).w.value
            assert abs(w.var() / (gain / (c_in // groups * 25)) - 1) < 0.06
    # The variance of what comes out, away from the edges, is that of the formula.
    layer = gd.nn.ConvTranspose(32, 16, 3, init="he", key=1, groups=groups)
    x = gd.input("x", (4, 32, 12, 12), "float32")
    out = gd.evaluate(layer(x), {x: np.random.default_rng(0).normal(size=(4, 32, 12, 12)).astype("float32")})[:, :, 2:-2, 2:-2]
    assert abs(out.var() / 2 - 1) < 0.1
    w = gd.nn.ConvTranspose(4, 6, 3, init="orthogonal", key=2, groups=groups).w.value.reshape(groups, 4 // groups, 6 // groups, 9)
    for g in w:        # what goes into an output is of length 1
        rows = g.swapaxes(0, 1).reshape(6 // groups, -1)
        np.testing.assert_allclose(rows @ rows.T, np.eye(6 // groups), atol=1e-6)
    given = np.arange(4 * 6 // groups * 9.0, dtype="float32").reshape(4, 6 // groups, 3, 3)
    np.testing.assert_array_equal(gd.nn.ConvTranspose(4, 6, 3, init=given, groups=groups).w.value, given)
    ones = gd.nn.ConvTranspose(4, 6, 3, init=lambda key, shape, dtype: np.ones(shape, dtype), groups=groups).w.value
    np.testing.assert_array_equal(ones, np.ones_like(given))
