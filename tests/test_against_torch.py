"""Layers, losses and optimisers against PyTorch: values and gradients. Skipped where it is not installed."""
from __future__ import annotations

import numpy as np
import pytest
from counting import checked

import graphdiff as gd

torch = pytest.importorskip("torch")
T = torch.nn.functional
nn, L, optim = gd.nn, gd.losses, gd.optim
RNG = np.random.default_rng(7)


def draw(*shape):
    return RNG.standard_normal(shape)


def tensor(a, trained=True):
    t = torch.tensor(np.asarray(a))
    return t.requires_grad_() if trained and t.dtype.is_floating_point else t


def randomise(layer):
    """Every parameter another number, biases and scales too."""
    for p in layer.parameters():
        p.value = 0.5 * draw(*p.shape) + (1.0 if (p.name or "").endswith("gamma") else 0.0)
    return layer


def agree(build, reference, arrays, parameters=(), rtol=1e-9):
    """build(*nodes) and reference(*tensors, *parameters as tensors): values, and gradients of a weighted sum of the result."""
    nodes = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = build(*nodes)
    weights = np.cos(np.arange(y.size)).reshape(y.shape)
    wrt = [n for n in nodes if n.dtype.kind == "f"] + list(parameters)
    mine = gd.function(nodes, [y, *gd.grad(gd.sum(y * weights), wrt)])(*arrays)
    given, own = [tensor(a) for a in arrays], [tensor(p.value) for p in parameters]
    z = reference(*given, *own)
    (z * torch.tensor(weights)).sum().backward()
    theirs = [z.detach(), *[t.grad for t in [*[t for t in given if t.dtype.is_floating_point], *own]]]
    for a, b in zip(mine, theirs, strict=True):
        b = b.numpy()
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max(initial=1e-3))
        checked(max(1, a.size))


def of_layer(layer, reference, *arrays, **options):
    agree(lambda *n: layer(*n, **options), reference, arrays, layer.parameters())


# -- layers ---------------------------------------------------------------------------------------------------------------

ACTIVATIONS = {"relu": T.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": T.softplus, "silu": T.silu, "exp": torch.exp,
               "log_sigmoid": T.logsigmoid, "leaky_relu": T.leaky_relu, "elu": T.elu, "selu": T.selu, "celu": T.celu, "gelu": T.gelu,
               "hard_tanh": T.hardtanh, "softmax": lambda x: T.softmax(x, -1), "log_softmax": lambda x: T.log_softmax(x, -1)}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_dense_with_every_activation(name):
    layer = randomise(nn.Dense(5, 4, name, dtype="float64", key=1))
    of_layer(layer, lambda x, w, b: ACTIVATIONS[name](T.linear(x, w.T, b)), 2 * draw(3, 2, 5))


def test_gelu_by_tanh():
    agree(lambda x: gd.gelu(x, approximate=True), lambda x: T.gelu(x, approximate="tanh"), [3 * draw(40)])


def test_embedding():
    of_layer(nn.Embedding(6, 3, key=1, dtype="float64"), T.embedding, np.array([[0, 5, 5], [2, 0, 1]]))


CONV = (T.conv1d, T.conv2d, T.conv3d)
BACK = (T.conv_transpose1d, T.conv_transpose2d, T.conv_transpose3d)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2, "padding": 1}])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_conv_and_its_transpose(ndim, options):
    layer = randomise(nn.Conv(4, 6, 3, dtype="float64", key=1, ndim=ndim, **options))
    of_layer(layer, lambda x, w, b: CONV[ndim - 1](x, w, b, **options), draw(2, 4, *(7, 6, 5)[:ndim]))
    if "stride" in options:
        options = {**options, "output_padding": 1}
    layer = randomise(nn.ConvTranspose(4, 6, 3, dtype="float64", key=1, ndim=ndim, **options))
    of_layer(layer, lambda x, w, b: BACK[ndim - 1](x, w, b, **options), draw(2, 4, *(5, 4, 3)[:ndim]))


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"stride": 2, "padding": 1}, {"ceil_mode": True}])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_pooling(ndim, options):
    x = draw(2, 3, *(8, 7, 6)[:ndim])
    names = (T.max_pool1d, T.max_pool2d, T.max_pool3d), (T.avg_pool1d, T.avg_pool2d, T.avg_pool3d)
    of_layer(nn.MaxPool(3, **options), lambda x: names[0][ndim - 1](x, 3, **options), x)
    of_layer(nn.AvgPool(3, **options), lambda x: names[1][ndim - 1](x, 3, **options), x)
    of_layer(nn.AvgPool(3, count_include_pad=False, **options), lambda x: names[1][ndim - 1](x, 3, count_include_pad=False, **options), x)


def test_normalisation():
    x = 3 * draw(4, 6, 5) + 1
    of_layer(randomise(nn.LayerNorm(5, dtype="float64")), lambda x, g, b: T.layer_norm(x, (5,), g, b), x)
    of_layer(randomise(nn.LayerNorm((6, 5), dtype="float64")), lambda x, g, b: T.layer_norm(x, (6, 5), g, b), x)
    of_layer(randomise(nn.GroupNorm(3, 6, dtype="float64")), lambda x, g, b: T.group_norm(x, 3, g, b), x)
    of_layer(randomise(nn.RMSNorm(5, dtype="float64")), lambda x, g: T.rms_norm(x, (5,), g, 1e-5), x)
    of_layer(randomise(nn.BatchNorm(6, dtype="float64")), lambda x, g, b: T.batch_norm(x, None, None, g, b, True), x, training=True)


@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5), (2, 3, 4, 5)])
def test_batch_norm_remembers_what_torch_remembers(shape):
    layer = nn.BatchNorm(3, dtype="float64")
    kind = (torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)[len(shape) - 2]
    other = kind(3).double()
    x = gd.input("x", ("batch", *shape[1:]))      # the size of the batch is known only when it runs
    y = layer(x, training=True)
    step = gd.function([x], y, updates=layer.updates())
    for _ in range(3):
        a = 2 * draw(*shape) + 1
        np.testing.assert_allclose(step(a), other(torch.tensor(a)).detach().numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layer.mean.value, other.running_mean.numpy(), rtol=1e-12)
    np.testing.assert_allclose(layer.var.value, other.running_var.numpy(), rtol=1e-12)
    other.eval()
    of_layer(layer, lambda x, g, b: T.batch_norm(x, other.running_mean, other.running_var, g, b), draw(*shape))
    checked(2)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent(kind):
    layer = randomise(getattr(nn, kind)(3, 5, dtype="float64", key=1))
    other = getattr(torch.nn, kind)(3, 5, batch_first=True).double()

    def reference(x, w, u, b, c=None):
        names = {"weight_ih_l0": w.T, "weight_hh_l0": u.T, "bias_ih_l0": b, "bias_hh_l0": torch.zeros_like(b) if c is None else c}
        return torch.func.functional_call(other, names, (x,))[0]
    of_layer(layer, reference, draw(4, 6, 3))


def test_recurrent_relu():
    layer = randomise(nn.RNN(3, 5, "relu", dtype="float64", key=1))
    other = torch.nn.RNN(3, 5, batch_first=True, nonlinearity="relu").double()

    def reference(x, w, u, b):
        return torch.func.functional_call(other, {"weight_ih_l0": w.T, "weight_hh_l0": u.T, "bias_ih_l0": b, "bias_hh_l0": 0 * b}, (x,))[0]
    of_layer(layer, reference, draw(2, 4, 3))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, masked):
    mask = (RNG.random((5, 7)) < 0.6) | np.eye(5, 7, dtype=bool) if masked else None
    look = np.tri(5, 7, dtype=bool) if causal else np.ones((5, 7), bool)
    look = torch.tensor(look if mask is None else look & mask)
    agree(lambda q, k, v: gd.attention(q, k, v, mask, causal=causal), lambda q, k, v: T.scaled_dot_product_attention(q, k, v, look),
          [draw(2, 3, 5, 4), draw(2, 3, 7, 4), draw(2, 3, 7, 6)])


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention(causal):
    layer = randomise(nn.MultiHeadAttention(8, 2, dtype="float64", key=1))
    barred = torch.tensor(~np.tri(5, dtype=bool)) if causal else None

    def reference(x, wq, bq, wk, bk, wv, bv, wo, bo):
        x = x.transpose(0, 1)
        y = T.multi_head_attention_forward(x, x, x, 8, 2, torch.cat([wq.T, wk.T, wv.T]), torch.cat([bq, bk, bv]), None, None, False, 0.0,
                                           wo.T, bo, attn_mask=barred)[0]
        return y.transpose(0, 1)
    of_layer(layer, reference, draw(3, 5, 8), causal=causal)


@pytest.mark.filterwarnings("ignore:.*is in beta")
@pytest.mark.parametrize("how", ["sum", "mean", "amax"])
def test_aggregation(how):
    ids = np.array([0, 2, 2, 1, 0, 2])

    def reference(x, i):
        return torch.zeros(4, 3, dtype=x.dtype).index_reduce(0, i, x, how, include_self=False) if how != "sum" else \
            torch.zeros(4, 3, dtype=x.dtype).index_add(0, i, x)
    agree(lambda x, i: nn.functional.aggregate(x, i, 4, {"amax": "max"}.get(how, how)), reference, [draw(6, 3), ids])


# -- losses ---------------------------------------------------------------------------------------------------------------

LABELS = np.array([0, 3, 1, 1, 2, 0])
PAIRS = {
    "mse": (L.mse, T.mse_loss), "mae": (L.mae, T.l1_loss),
    "lp 1": (lambda a, b: L.lp(a, b, 1), lambda a, b: torch.linalg.vector_norm(a - b, 1, -1).mean()),
    "lp 2": (L.lp, lambda a, b: torch.linalg.vector_norm(a - b, 2, -1).mean()),
    "lp 3": (lambda a, b: L.lp(a, b, 3), lambda a, b: torch.linalg.vector_norm(a - b, 3, -1).mean()),
    "lp inf": (lambda a, b: L.lp(a, b, np.inf), lambda a, b: torch.linalg.vector_norm(a - b, np.inf, -1).mean()),
    "total variation": (L.total_variation, lambda a, b: 0.5 * (a - b).abs().sum(-1).mean()),
    "kl": (lambda a, b: L.kl(gd.softmax(a), gd.softmax(b)),
           lambda a, b: T.kl_div(T.log_softmax(b, -1), T.softmax(a, -1), reduction="batchmean")),
    "cross entropy": (lambda a, b: L.cross_entropy(a, gd.softmax(b)), lambda a, b: T.cross_entropy(a, T.softmax(b, -1))),
    "smoothed": (lambda a, b: L.cross_entropy(a, gd.softmax(b), label_smoothing=0.2),
                 lambda a, b: T.cross_entropy(a, T.softmax(b, -1), label_smoothing=0.2)),
    "binary": (lambda a, b: L.binary_cross_entropy_with_logits(a, gd.sigmoid(b)),
               lambda a, b: T.binary_cross_entropy_with_logits(a, torch.sigmoid(b))),
    "hinge": (lambda a, b: L.hinge(a, gd.sign(b)), lambda a, b: T.relu(1 - torch.sign(b) * a).mean() + 0 * b.sum()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_loss(name):
    mine, theirs = PAIRS[name]
    agree((lambda a, b: mine(a, b) + 0.0 * gd.sum(b)) if name == "hinge" else mine, theirs, [draw(6, 4), draw(6, 4)])


LABELLED = {
    "cross entropy": (L.cross_entropy, T.cross_entropy),
    "smoothed": (lambda z, t: L.cross_entropy(z, t, label_smoothing=0.1), lambda z, t: T.cross_entropy(z, t, label_smoothing=0.1)),
    "sum": (lambda z, t: L.cross_entropy(z, t, reduction="sum"), lambda z, t: T.cross_entropy(z, t, reduction="sum")),
    "none": (lambda z, t: L.cross_entropy(z, t, reduction="none"), lambda z, t: T.cross_entropy(z, t, reduction="none")),
    "nll": (lambda z, t: L.nll(gd.log_softmax(z), t), lambda z, t: T.nll_loss(T.log_softmax(z, -1), t)),
}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_loss_of_labels(name, scale):
    agree(*LABELLED[name], [scale * draw(6, 4), LABELS])


def test_classes_on_axis_1_and_impossible_classes():
    agree(lambda z, t: L.cross_entropy(z, t, axis=1), T.cross_entropy, [draw(2, 3, 5), RNG.integers(0, 3, (2, 5))])
    z = draw(6, 4)
    z[np.arange(6), (LABELS + 1) % 4] = -np.inf
    agree(L.cross_entropy, T.cross_entropy, [z, LABELS])


# -- optimisers -----------------------------------------------------------------------------------------------------------

METHODS = {
    "GradientDescent": (lambda: optim.GradientDescent(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "weight decay": (lambda: optim.GradientDescent(0.1, weight_decay=0.3), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.3)),
    "Momentum": (lambda: optim.Momentum(0.05, 0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "Nesterov": (lambda: optim.Nesterov(0.05, 0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True)),
    "Adagrad": (lambda: optim.Adagrad(0.1), lambda p: torch.optim.Adagrad(p, 0.1)),
    "Adadelta": (lambda: optim.Adadelta(), lambda p: torch.optim.Adadelta(p, 1.0, rho=0.95)),
    "RMSprop": (lambda: optim.RMSprop(0.01), lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9)),
    "Adam": (lambda: optim.Adam(), lambda p: torch.optim.Adam(p)),
    "Adam with weight decay": (lambda: optim.Adam(0.01, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
    "AdamW": (lambda: optim.AdamW(0.01), lambda p: torch.optim.AdamW(p, 0.01)),
    "NAdam": (lambda: optim.NAdam(), lambda p: torch.optim.NAdam(p)),
    "AMSGrad": (lambda: optim.AMSGrad(), lambda p: torch.optim.Adam(p, amsgrad=True)),
}


@pytest.mark.parametrize("name", METHODS)
def test_optimiser(name):
    mine, theirs = METHODS[name]
    x, t, start = draw(12, 4), draw(12, 3), draw(4, 3)
    w = gd.variable(start, "w")
    loss = L.mse(gd.tanh(gd.constant(x) @ w), t)
    step = gd.function([], loss, updates=mine().updates(loss, [w]))
    v = tensor(start)
    opt = theirs([v])
    for _ in range(30):
        opt.zero_grad()
        other = T.mse_loss(torch.tanh(torch.tensor(x) @ v), torch.tensor(t))
        other.backward()
        opt.step()
        assert abs(float(step()) - other.item()) < 1e-10
        np.testing.assert_allclose(w.value, v.detach().numpy(), rtol=1e-9, atol=1e-11)
        checked()


def test_clipping():
    a, b = 3 * draw(4, 3), 3 * draw(5)
    ta, tb = torch.nn.Parameter(torch.tensor(a)), torch.nn.Parameter(torch.tensor(b))
    ta.grad, tb.grad = torch.tensor(a), torch.tensor(b)
    torch.nn.utils.clip_grad_norm_([ta, tb], 1.0)
    for mine, theirs in zip(gd.evaluate(optim.clip_by_norm([gd.constant(a), gd.constant(b)], 1.0), {}), (ta.grad, tb.grad), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5)      # theirs divides by the norm + 1e-6
        checked()
