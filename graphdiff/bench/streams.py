"""Workloads: elementwise chains, reductions, softmax and kin, normalisation, indexing, scalar graphs."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .workload import add, normal


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# -- elementwise ----------------------------------------------------------------------------------------------------------

for _n, _text in ((1000, "1e3"), (100_000, "1e5"), (10_000_000, "1e7")):
    add(f"relu_{_text}", lambda n=_n: [normal(n)], lambda m, x: m.relu(x), lambda x: np.maximum(x, 0),
        lambda g, x: [np.maximum(x, 0), g * (x > 0)], bound="bytes")


def _chain_back(g: Any, x: Any, y: Any, z: Any) -> list[Any]:
    t, s, e = np.tanh(x), _sigmoid(y), np.exp(-z * z)
    return [t * s + e, g * (1 - t * t) * s, g * t * s * (1 - s), g * -2 * z * e]


for _n, _text in ((1000, "1e3"), (100_000, "1e5"), (10_000_000, "1e7")):
    add(f"chain3_{_text}", lambda n=_n: [normal(n, seed=k) for k in range(3)],
        lambda m, x, y, z: m.tanh(x) * m.sigmoid(y) + m.exp(-z * z), lambda x, y, z: np.tanh(x) * _sigmoid(y) + np.exp(-z * z), _chain_back)


def _normal_cdf(x: Any) -> Any:
    return 0.5 * (1 + _erf(x * np.float32(math.sqrt(0.5))))


def _erf(x: Any) -> Any:
    try:
        from scipy.special import erf
    except ImportError:      # NumPy has none: Abramowitz and Stegun 7.1.26, absolute error 1.5e-7
        t = 1 / (1 + 0.3275911 * np.abs(x))
        tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
        return np.copysign(1 - tail * np.exp(-x * x), x)
    return erf(x)


def _gelu_back(g: Any, x: Any) -> list[Any]:
    cdf = _normal_cdf(x)
    return [x * cdf, g * (cdf + x * np.exp(-0.5 * x * x) * np.float32(1 / math.sqrt(2 * math.pi)))]


add("gelu_1e6", lambda: [normal(1_000_000)], lambda m, x: m.gelu(x), lambda x: x * _normal_cdf(x), _gelu_back)
for _f in ("exp", "log", "log1p", "sin", "tanh", "tan", "arctan", "sinh"):
    for _dtype in ("float32", "float64"):
        add(f"{_f}_1e5_{_dtype[0]}{_dtype[5:]}", lambda d=_dtype: [np.abs(normal(100_000, dtype=d))],
            lambda m, x, f=_f: getattr(m, f)(x), getattr(np, _f))
for _dtype in ("float32", "float64"):
    add(f"pow_1e5_{_dtype[0]}{_dtype[5:]}", lambda d=_dtype: [np.abs(normal(100_000, dtype=d)), normal(100_000, dtype=d, seed=1)],
        lambda m, x, y: x ** y, np.power)


# -- reductions -----------------------------------------------------------------------------------------------------------

def _sum_back(axis: int | None) -> Any:
    def back(g: Any, x: Any) -> list[Any]:
        return [np.sum(x, axis=axis), np.broadcast_to(g if axis is None else np.expand_dims(g, axis), x.shape).copy()]
    return back


for _axis, _text in ((None, "all"), (0, "ax0"), (1, "ax1")):
    add(f"sum_{_text}_2048", lambda: [normal(2048, 2048)], lambda m, x, a=_axis: m.sum(x, axis=a), lambda x, a=_axis: np.sum(x, axis=a),
        _sum_back(_axis), bound="bytes")


# -- whole numbers, strides, squares, short rows --------------------------------------------------------------------------

def _whole(n: int, dtype: str) -> Any:
    return np.random.default_rng(n).integers(0, 250, n).astype(dtype)


for _dtype in ("uint8", "int32", "int64"):
    add(f"floordiv7_1e6_{_dtype[0]}{_dtype.lstrip('uint')}", lambda d=_dtype: [_whole(1_000_000, d)], lambda m, x: x // 7, lambda x: x // 7)
add("stripes_1000x1000", lambda: [normal(1000, 1000)], lambda m, x: x[:, ::2] + x[:, 1::2], lambda x: x[:, ::2] + x[:, 1::2])
for _dtype in ("float32", "float64"):
    add(f"squares_1e6_f{_dtype[5:]}", lambda d=_dtype: [normal(1_000_000, dtype=d)], lambda m, x: m.sqrt(m.sum(x ** 2)),
        lambda x: np.linalg.norm(x), bound="bytes")
for _columns in (16, 100, 500):
    add(f"sort_100x{_columns}", lambda c=_columns: [normal(100, c)], lambda m, x: m.sort(x), lambda x: np.sort(x, axis=-1))


# -- softmax and kin ------------------------------------------------------------------------------------------------------

def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _softmax_back(g: Any, x: Any, axis: int = -1) -> list[Any]:
    s = _softmax(x, axis)
    return [s, s * (g - (g * s).sum(axis=axis, keepdims=True))]


for _rows, _columns in ((64, 10), (128, 1024), (1024, 32768)):
    add(f"softmax_{_rows}x{_columns}", lambda r=_rows, c=_columns: [normal(r, c)], lambda m, x: m.softmax(x, axis=-1), _softmax,
        _softmax_back, bound="bytes")
add("softmax_1024x1024_ax0", lambda: [normal(1024, 1024)], lambda m, x: m.softmax(x, axis=0), lambda x: _softmax(x, 0),
    lambda g, x: _softmax_back(g, x, 0), bound="bytes")


def _entropy(x: Any, t: Any) -> Any:
    top = x.max(axis=1)
    return np.mean(top + np.log(np.exp(x - top[:, None]).sum(axis=1)) - x[np.arange(len(t)), t])


def _entropy_back(g: Any, x: Any, t: Any) -> list[Any]:
    s = _softmax(x)
    s[np.arange(len(t)), t] -= 1
    return [_entropy(x, t), s * (g / len(t))]


add("xent_128x1000", lambda: [normal(128, 1000)], lambda m, x, t: m.cross_entropy(x, t), _entropy, _entropy_back,
    fixed=lambda: [np.random.default_rng(1).integers(0, 1000, 128)])


def _norm_back(g: Any, x: Any, gamma: Any, beta: Any, axes: Any, shape: Any) -> list[Any]:
    c = x - x.mean(axis=axes, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(axis=axes, keepdims=True) + np.float32(1e-5))
    xhat = c * r
    others = tuple(i for i, n in enumerate(shape) if n == 1)
    h = g * gamma.reshape(shape)
    gx = r * (h - h.mean(axis=axes, keepdims=True) - xhat * (h * xhat).mean(axis=axes, keepdims=True))
    return [xhat * gamma.reshape(shape) + beta.reshape(shape), gx, (g * xhat).sum(axis=others), g.sum(axis=others)]


def _normalised(x: Any, gamma: Any, beta: Any, axes: Any, shape: Any) -> Any:
    c = x - x.mean(axis=axes, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=axes, keepdims=True) + np.float32(1e-5)) * gamma.reshape(shape) + beta.reshape(shape)


for _name, _shape, _axes, _view, _word in (("layernorm_512x1024", (512, 1024), (1,), (1, -1), "layer_norm"),
                                           ("batchnorm_64x32x28x28", (64, 32, 28, 28), (0, 2, 3), (1, -1, 1, 1), "batch_norm")):
    add(_name, lambda s=_shape: [normal(*s), normal(s[1], seed=1), normal(s[1], seed=2)],
        lambda m, x, gamma, beta, w=_word: getattr(m, w)(x, gamma, beta),
        lambda x, gamma, beta, a=_axes, v=_view: _normalised(x, gamma, beta, a, v),
        lambda g, x, gamma, beta, a=_axes, v=_view: _norm_back(g, x, gamma, beta, a, v), bound="bytes")


# -- attention, indexing, sorting -----------------------------------------------------------------------------------------

def _attention(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(q.shape[-1]))) @ v


def _attention_back(g: Any, q: Any, k: Any, v: Any) -> list[Any]:
    scale = np.float32(1 / math.sqrt(q.shape[-1]))
    p = _softmax(q @ k.swapaxes(-1, -2) * scale)
    gp = g @ v.swapaxes(-1, -2)
    gs = p * (gp - (gp * p).sum(axis=-1, keepdims=True)) * scale
    return [p @ v, gs @ k, gs.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g]


for _n, _heads in ((128, 64), (1024, 16)):
    add(f"attention_{_heads}x{_n}x64", lambda n=_n, h=_heads: [normal(1, h, n, 64, seed=s) for s in range(3)],
        lambda m, q, k, v: m.attention(q, k, v), _attention, _attention_back, bound="flops")


def _embedding_back(g: Any, w: Any, i: Any) -> list[Any]:
    gw = np.zeros_like(w)
    np.add.at(gw, i, g)
    return [w[i], gw]


add("embedding_10000x64_4096", lambda: [normal(10_000, 64)],
    lambda m, w, i: m.take(w, i), lambda w, i: w[i], _embedding_back,
    fixed=lambda: [np.random.default_rng(1).integers(0, 10_000, 4096)], bound="bytes")
add("sort_1e5", lambda: [normal(100_000)], lambda m, x: m.sort(x), lambda x: np.sort(x, kind="stable"))


# -- graphs of scalars ----------------------------------------------------------------------------------------------------

add("baydin_f64", lambda: [np.array(2.0), np.array(5.0)], lambda m, a, b: m.log(a) + a * b - m.sin(b),
    lambda a, b: math.log(a) + a * b - math.sin(b),
    lambda g, a, b: [math.log(a) + a * b - math.sin(b), g * (1 / a + b), g * (a - math.cos(b))])


def _scalar_chain(m: Any, x: Any) -> Any:
    for _ in range(1000):
        x = m.sin(x) * 1.0001 + 0.1
    return x


def _scalar_chain_back(g: Any, x: Any) -> list[Any]:
    x, slopes = float(x), []
    for _ in range(1000):
        slopes.append(math.cos(x) * 1.0001)
        x = math.sin(x) * 1.0001 + 0.1
    for slope in reversed(slopes):
        g = g * slope
    return [x, g]


add("scalar_chain_1000_f64", lambda: [np.array(0.5)], _scalar_chain, lambda x: _scalar_chain_back(0.0, x)[0], _scalar_chain_back)
def _rosenbrock_back(g: Any, x: Any) -> list[Any]:
    d, e = x[1:] - x[:-1] ** 2, 1.0 - x[:-1]
    gx = np.zeros_like(x)
    gx[1:] += 200.0 * d
    gx[:-1] += -400.0 * d * x[:-1] - 2.0 * e
    return [np.sum(100.0 * d ** 2 + e ** 2), g * gx]


add("rosenbrock_1000_f64", lambda: [normal(1000, dtype="float64")],
    lambda m, x: m.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2),
    lambda x: np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2), _rosenbrock_back)
