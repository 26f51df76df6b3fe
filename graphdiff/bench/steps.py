"""Training steps as benchmarks: forward, reverse and update of one network on one batch, with the state each library keeps.

A step says three times what it computes: `net` in gd.nn and gd.losses, `loss(m, w, x, t)` in the vocabulary m of another
library (trainers.py), and `by_hand` in NumPy (byhand.py). All start from the same weights; the losses of the first three
steps must agree before anything is timed.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import byhand
from .workload import normal


class Step(NamedTuple):
    """weights(), batch() -> arrays. net(*batch nodes) -> (loss, parameters in the order of weights).
    method: "descent", "momentum" or "adam", at `rate`. tolerance: of a loss, relative."""

    name: str
    weights: Callable[[], Sequence[Any]]
    batch: Callable[[], Sequence[Any]]
    net: Callable[..., tuple[Any, Sequence[Any]]]
    loss: Callable[..., Any]
    by_hand: Callable[..., tuple[Any, Sequence[Any]]]
    method: str
    rate: float
    tolerance: float = 1e-4


STEPS: dict[str, Step] = {}


def add(name: str, *facts: Any, **more: Any) -> None:
    if name in STEPS:
        raise ValueError(f"two steps are called {name!r}")
    STEPS[name] = Step(name, *facts, **more)


def matrices(*shapes: tuple[int, ...], seed: int = 7) -> list[Any]:
    """Weights: normal numbers of a variance that keeps activations in range, and small ones for vectors."""
    rng = np.random.default_rng(seed)
    fans = [1 if len(s) == 1 else s[0] if len(s) == 2 else int(np.prod(s[1:])) for s in shapes]
    return [(rng.standard_normal(s) * (0.05 if len(s) == 1 else fan ** -0.5)).astype("float32") for s, fan in zip(shapes, fans, strict=True)]


def labels(n: int, classes: int) -> Any:
    return np.random.default_rng(11).integers(0, classes, n)


# -- dense networks -------------------------------------------------------------------------------------------------------

def _dense_layers(sizes: Sequence[int], activation: str) -> Any:
    import graphdiff as gd
    last = len(sizes) - 2
    return gd.nn.Sequential(*[gd.nn.Dense(a, b, activation=activation if i < last else None)
                              for i, (a, b) in enumerate(itertools.pairwise(sizes))])


def _dense_shapes(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    return [s for a, b in itertools.pairwise(sizes) for s in ((a, b), (b,))]


def _xor_net(x: Any, t: Any) -> Any:
    import graphdiff as gd
    net = _dense_layers((2, 8, 1), "tanh")
    return gd.losses.mse(net(x, training=True), t), net.parameters()


def _xor_loss(m: Any, w: Any, x: Any, t: Any) -> Any:
    return m.mse(m.dense(m.tanh(m.dense(x, w[0], w[1])), w[2], w[3]), t)


add("xor_2_8_1_descent", lambda: matrices(*_dense_shapes((2, 8, 1))),
    lambda: [np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32"), np.array([[0], [1], [1], [0]], "float32")],
    _xor_net, _xor_loss, byhand.xor, "descent", 0.1)


def _classifier(net: Any, x: Any, t: Any) -> Any:
    import graphdiff as gd
    return gd.losses.cross_entropy(net(x, training=True), t), net.parameters()


def _mlp_loss(m: Any, w: Any, x: Any, t: Any) -> Any:
    x = m.relu(m.dense(x, w[0], w[1]))
    x = m.relu(m.dense(x, w[2], w[3]))
    return m.cross_entropy(m.dense(x, w[4], w[5]), t)


_MLP = (784, 512, 256, 10)
add("mlp_784_512_256_10_adam", lambda: matrices(*_dense_shapes(_MLP)), lambda: [normal(64, 784), labels(64, 10)],
    lambda x, t: _classifier(_dense_layers(_MLP, "relu"), x, t), _mlp_loss, byhand.mlp, "adam", 0.001)


# -- convolutions ---------------------------------------------------------------------------------------------------------

def _lenet(x: Any, t: Any) -> Any:
    from graphdiff.nn import Conv, Dense, Flatten, MaxPool, Sequential
    return _classifier(Sequential(Conv(1, 6, 5, "relu", padding=2), MaxPool(2), Conv(6, 16, 5, "relu"), MaxPool(2), Flatten(),
                                  Dense(400, 120, "relu"), Dense(120, 84, "relu"), Dense(84, 10)), x, t)


def _lenet_loss(m: Any, w: Any, x: Any, t: Any) -> Any:
    x = m.max_pool(m.relu(m.conv_bias(x, w[0], w[1], 2)), 2)
    x = m.max_pool(m.relu(m.conv_bias(x, w[2], w[3], 0)), 2)
    x = m.relu(m.dense(x.reshape(len(t), 400), w[4], w[5]))
    x = m.relu(m.dense(x, w[6], w[7]))
    return m.cross_entropy(m.dense(x, w[8], w[9]), t)


add("lenet5_b64_momentum", lambda: matrices((6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,), *_dense_shapes((400, 120, 84, 10))),
    lambda: [normal(64, 1, 28, 28), labels(64, 10)], _lenet, _lenet_loss, byhand.lenet, "momentum", 0.01)


# -- attention ------------------------------------------------------------------------------------------------------------

def _transformer(x: Any, t: Any) -> Any:
    import graphdiff as gd
    from graphdiff.nn import Dense, LayerNorm, MultiHeadAttention, Residual, Sequential
    net = Sequential(Residual(Sequential(LayerNorm(256), MultiHeadAttention(256, 8))),
                     Residual(Sequential(LayerNorm(256), Dense(256, 1024, "gelu"), Dense(1024, 256))))
    return gd.losses.mse(net(x, training=True), t), net.parameters()


def _transformer_loss(m: Any, w: Any, x: Any, t: Any) -> Any:
    def heads(x: Any) -> Any:
        return x.reshape(8, 128, 8, 32).swapaxes(1, 2)
    n = m.layer_norm(x, w[0], w[1])
    a = m.attention(heads(m.dense(n, w[2], w[3])), heads(m.dense(n, w[4], w[5])), heads(m.dense(n, w[6], w[7])))
    x = x + m.dense(a.swapaxes(1, 2).reshape(8, 128, 256), w[8], w[9])
    n = m.layer_norm(x, w[10], w[11])
    return m.mse(x + m.dense(m.gelu(m.dense(n, w[12], w[13])), w[14], w[15]), t)


def _transformer_weights() -> list[Any]:
    w = matrices((256,), (256,), *_dense_shapes((256, 256)) * 4, (256,), (256,), *_dense_shapes((256, 1024, 256)))
    w[0] += 1
    w[10] += 1
    return w


add("transformer_d256_h8_s128_b8_adam", _transformer_weights, lambda: [normal(8, 128, 256), normal(8, 128, 256, seed=1)],
    _transformer, _transformer_loss, byhand.transformer, "adam", 0.001)


# -- recurrent ------------------------------------------------------------------------------------------------------------

def _recurrent(kind: str, x: Any, t: Any) -> Any:
    import graphdiff as gd
    layer = {"lstm": gd.nn.LSTM, "gru": gd.nn.GRU}[kind](128, 128)
    return gd.losses.mse(layer(x, training=True), t), layer.parameters()


for _kind, _biases in (("lstm", [(512,)]), ("gru", [(384,), (384,)])):
    _n = _biases[0][0]
    # The mean is over 262,144 elements: a rate of 50 moves the loss by a per cent a step
    add(f"{_kind}_t64_b32_h128_descent", lambda n=_n, biases=_biases: matrices((128, n), (128, n), *biases),
        lambda: [normal(32, 64, 128), normal(32, 64, 128, seed=1)], lambda x, t, kind=_kind: _recurrent(kind, x, t),
        lambda m, w, x, t, kind=_kind: m.mse(getattr(m, kind)(x, *w), t), getattr(byhand, _kind), "descent", 50.0)
