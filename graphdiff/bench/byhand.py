"""The networks of steps.py in NumPy, by hand, the way one would write them: (weights, x, t) -> (loss, gradients)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .contractions import _columns, _pool_back, _scatter
from .streams import _attention_back, _entropy_back, _gelu_back, _norm_back, _normalised, _sigmoid

Result = tuple[Any, list[Any]]


def _squares(y: Any, t: Any) -> tuple[Any, Any]:
    """Mean squared error and its gradient."""
    e = y - t
    return np.mean(e * e), e * np.float32(2 / e.size)


def _dense_back(g: Any, x: Any, w: Any) -> list[Any]:
    rows = g.reshape(-1, g.shape[-1])
    return [x.reshape(-1, x.shape[-1]).T @ rows, rows.sum(0)]


def xor(w: Sequence[Any], x: Any, t: Any) -> Result:
    h = np.tanh(x @ w[0] + w[1])
    loss, g = _squares(h @ w[2] + w[3], t)
    gh = g @ w[2].T * (1 - h * h)
    return loss, [x.T @ gh, gh.sum(0), h.T @ g, g.sum(0)]


def _classify(w: Sequence[Any], x: Any, t: Any) -> tuple[Any, list[Any], Any]:
    """Dense layers with relu between them and cross entropy: loss, gradients to the weights and to x."""
    hs = [x]
    for i in range(0, len(w) - 2, 2):
        hs.append(np.maximum(hs[-1] @ w[i] + w[i + 1], 0))
    loss, g = _entropy_back(np.float32(1), hs[-1] @ w[-2] + w[-1], t)
    gradients: list[Any] = []
    for i in range(len(hs) - 1, -1, -1):
        gradients[:0] = [hs[i].T @ g, g.sum(0)]
        g = g @ w[2 * i].T
        if i:
            g *= hs[i] > 0
    return loss, gradients, g


def mlp(w: Sequence[Any], x: Any, t: Any) -> Result:
    return _classify(w, x, t)[:2]


def lenet(w: Sequence[Any], x: Any, t: Any) -> Result:
    def conv(x: Any, w: Any, b: Any, pad: int) -> tuple[Any, Any]:
        columns, (h, v) = _columns(x, (5, 5), 1, pad)
        y = columns @ w.reshape(len(w), -1).T + b
        return np.maximum(y, 0).reshape(len(x), h, v, len(w)).transpose(0, 3, 1, 2), columns

    def pool(x: Any) -> Any:
        n, c, h, v = x.shape
        return x.reshape(n, c, h // 2, 2, v // 2, 2).max(axis=(3, 5))

    def back(g: Any, y: Any, columns: Any) -> tuple[Any, Any, Any]:
        rows = (_pool_back(g, np.ascontiguousarray(y))[1] * (y > 0)).transpose(0, 2, 3, 1).reshape(len(columns), -1)
        return rows, rows.T @ columns, rows.sum(0)
    y1, c1 = conv(x, w[0], w[1], 2)
    p1 = pool(y1)
    y2, c2 = conv(p1, w[2], w[3], 0)
    p2 = pool(y2)
    loss, gradients, g = _classify(w[4:], p2.reshape(len(x), -1), t)
    rows, gw2, gb2 = back(g.reshape(p2.shape), y2, c2)
    g1 = _scatter((rows @ w[2].reshape(16, -1)).reshape(len(x), 10, 10, 6, 5, 5), p1.shape, 1, 0)
    _, gw1, gb1 = back(g1, y1, c1)
    return loss, [gw1.reshape(w[0].shape), gb1, gw2.reshape(w[2].shape), gb2, *gradients]


def transformer(w: Sequence[Any], x: Any, t: Any) -> Result:
    def heads(x: Any) -> Any:
        return x.reshape(8, 128, 8, 32).swapaxes(1, 2)

    def joined(x: Any) -> Any:
        return x.swapaxes(1, 2).reshape(8, 128, 256)

    def norm_back(g: Any, x: Any, gamma: Any, beta: Any) -> list[Any]:
        gx, gg, gb = _norm_back(g.reshape(-1, 256), x.reshape(-1, 256), gamma, beta, (1,), (1, -1))[1:]
        return [gx.reshape(x.shape), gg, gb]
    n = _normalised(x, w[0], w[1], (-1,), (-1,))
    q, k, v = (heads(n @ w[i] + w[i + 1]) for i in (2, 4, 6))
    s = q @ k.swapaxes(-1, -2) / np.float32(32 ** 0.5)
    p = np.exp(s - s.max(-1, keepdims=True))
    a = joined(p / p.sum(-1, keepdims=True) @ v)
    y = x + a @ w[8] + w[9]
    n2 = _normalised(y, w[10], w[11], (-1,), (-1,))
    u = n2 @ w[12] + w[13]
    z, slope = _gelu_back(np.float32(1), u)
    loss, g = _squares(y + z @ w[14] + w[15], t)
    gu = g @ w[14].T * slope
    gy, *norm2 = norm_back(gu @ w[12].T, y, w[10], w[11])
    gy += g
    qkv = [joined(h) for h in _attention_back(heads(gy @ w[8].T), q, k, v)[1:]]
    gn = sum(h @ w[i].T for h, i in zip(qkv, (2, 4, 6), strict=True))
    return loss, [*norm_back(gn, x, w[0], w[1])[1:], *[part for h in qkv for part in _dense_back(h, n, None)], *_dense_back(gy, a, w[8]),
                  *norm2, *_dense_back(gu, n2, w[12]), *_dense_back(g, z, w[14])]


def lstm(w: Sequence[Any], x: Any, t: Any) -> Result:
    """Gates i, f, g, o side by side, as in gd.nn.LSTM."""
    wx, u, b = w
    n, steps, size = len(x), x.shape[1], len(u)
    xw = x @ wx + b
    hs, cs = np.zeros((steps + 1, n, size), x.dtype), np.zeros((steps + 1, n, size), x.dtype)
    gates = []
    for k in range(steps):
        a = xw[:, k] + hs[k] @ u
        i, f, o = _sigmoid(a[:, :size]), _sigmoid(a[:, size:2 * size]), _sigmoid(a[:, 3 * size:])
        g = np.tanh(a[:, 2 * size:3 * size])
        cs[k + 1] = f * cs[k] + i * g
        tc = np.tanh(cs[k + 1])
        hs[k + 1] = o * tc
        gates.append((i, f, g, o, tc))
    loss, gy = _squares(hs[1:].swapaxes(0, 1), t)
    ga = np.empty((steps, n, 4 * size), x.dtype)
    gh = gc = np.zeros((n, size), x.dtype)
    for k in range(steps - 1, -1, -1):
        i, f, g, o, tc = gates[k]
        gh = gh + gy[:, k]
        gc = gc + gh * o * (1 - tc * tc)
        np.concatenate([gc * g * i * (1 - i), gc * cs[k] * f * (1 - f), gc * i * (1 - g * g), gh * tc * o * (1 - o)], 1, out=ga[k])
        gc = gc * f
        gh = ga[k] @ u.T
    rows = ga.reshape(-1, 4 * size)
    return loss, [x.swapaxes(0, 1).reshape(-1, x.shape[2]).T @ rows, hs[:-1].reshape(-1, size).T @ rows, rows.sum(0)]


def gru(w: Sequence[Any], x: Any, t: Any) -> Result:
    """Gates r, z, n side by side, as in gd.nn.GRU; r resets inside the state's product."""
    wx, u, b, bu = w
    n, steps, size = len(x), x.shape[1], len(u)
    xw = x @ wx + b
    hs = np.zeros((steps + 1, n, size), x.dtype)
    gates = []
    for k in range(steps):
        hu = hs[k] @ u + bu
        r, z = _sigmoid(xw[:, k, :size] + hu[:, :size]), _sigmoid(xw[:, k, size:2 * size] + hu[:, size:2 * size])
        new = np.tanh(xw[:, k, 2 * size:] + r * hu[:, 2 * size:])
        hs[k + 1] = new + z * (hs[k] - new)
        gates.append((r, z, new, hu[:, 2 * size:]))
    loss, gy = _squares(hs[1:].swapaxes(0, 1), t)
    gx, ghu = np.empty((steps, n, 3 * size), x.dtype), np.empty((steps, n, 3 * size), x.dtype)
    gh = np.zeros((n, size), x.dtype)
    for k in range(steps - 1, -1, -1):
        r, z, new, hn = gates[k]
        gh = gh + gy[:, k]
        gn = gh * (1 - z) * (1 - new * new)
        np.concatenate([gn * hn * r * (1 - r), gh * (hs[k] - new) * z * (1 - z), gn], 1, out=gx[k])
        ghu[k] = gx[k]
        ghu[k, :, 2 * size:] *= r
        gh = gh * z + ghu[k] @ u.T
    rows, states = gx.reshape(-1, 3 * size), ghu.reshape(-1, 3 * size)
    return loss, [x.swapaxes(0, 1).reshape(-1, x.shape[2]).T @ rows, hs[:-1].reshape(-1, size).T @ states, rows.sum(0), states.sum(0)]
