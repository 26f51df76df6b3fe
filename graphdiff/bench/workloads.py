"""What is timed: for each workload the graphdiff call and the same computation written for NumPy the usual way.

Each entry makes (bound graphdiff call, NumPy callable); both give the same list of arrays. f: forward, fb: value and gradients.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphdiff as gd

Made = tuple[Callable[[], Any], Callable[[], list[Any]]]
WORKLOADS: dict[str, Callable[[int], Made]] = {}


def _random(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _function(arrays: list[Any], build: Callable[..., Any], gradients: bool, threads: int) -> Callable[[], Any]:
    inputs = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = build(*inputs)
    outputs = [y]
    if gradients:
        outputs += gd.grad(y, inputs, cotangent=gd.ones_like(y))
    return gd.function(inputs, outputs, threads=threads).bind(*arrays)


def workload(name: str, arrays: Any, build: Any, forward: Any,
             backward: Any) -> None:
    """Two entries, `name f` and `name fb`; backward(*arrays) gives value and gradients for a cotangent of ones."""
    def make(gradients: bool, numpy: Callable[..., Any]) -> Callable[[int], Made]:
        def entry(threads: int) -> Made:
            data = arrays()
            def peer() -> list[Any]:
                r = numpy(*data)
                return r if isinstance(r, list) else [r]
            return _function(data, build, gradients, threads), peer
        return entry
    WORKLOADS[f"{name} f"] = make(False, forward)
    if backward is not None:
        WORKLOADS[f"{name} fb"] = make(True, backward)


def _matmul_grad(a: Any, b: Any) -> list[Any]:
    y = a @ b
    g = np.ones_like(y)
    return [y, g @ b.T, a.T @ g]


for _n in (16, 64, 256, 1024):
    workload(f"matmul_{_n}", lambda n=_n: [_random(n, n), _random(n, n, seed=1)], gd.matmul, np.matmul, _matmul_grad)
for _n in (256, 1024):
    workload(f"matmul_{_n}_f64", lambda n=_n: [_random(n, n, dtype="float64"), _random(n, n, dtype="float64", seed=1)], gd.matmul,
             np.matmul, _matmul_grad)
workload("matvec_1024", lambda: [_random(1024, 1024), _random(1024, seed=1)], gd.matmul, np.matmul,
         lambda a, x: [a @ x, np.outer(np.ones(len(a), a.dtype), x), a.T @ np.ones(len(a), a.dtype)])
workload("matmul_64x784x512", lambda: [_random(64, 784), _random(784, 512, seed=1)], gd.matmul, np.matmul, _matmul_grad)
workload("bmm_64x64x64", lambda: [_random(64, 64, 64), _random(64, 64, 64, seed=1)], gd.matmul, np.matmul,
         lambda a, b: [a @ b, np.ones_like(a) @ b.swapaxes(1, 2), a.swapaxes(1, 2) @ np.ones_like(b)])


def _einsum(equation: str, arrays: Callable[[], list[Any]], backward: Callable[..., list[Any]] | None) -> None:
    workload(f"einsum_{equation}", arrays, lambda *xs: gd.einsum(equation, *xs), lambda *xs: np.einsum(equation, *xs, optimize=True), backward)


_einsum("ij,jk->ik", lambda: [_random(256, 256), _random(256, 256, seed=1)], _matmul_grad)
_einsum("bhqd,bhkd->bhqk", lambda: [_random(8, 8, 64, 64), _random(8, 8, 64, 64, seed=1)],
        lambda q, k: [q @ k.swapaxes(2, 3), np.ones((8, 8, 64, 64), q.dtype) @ k, np.ones((8, 8, 64, 64), q.dtype) @ q])
_einsum("ikl,klj->ij", lambda: [_random(64, 32, 32), _random(32, 32, 64, seed=1)], None)
_einsum("ii->", lambda: [_random(512, 512)], lambda x: [np.einsum("ii->", x), np.eye(512, dtype=x.dtype)])
_einsum("i,j,k->ijk", lambda: [_random(64), _random(64, seed=1), _random(64, seed=2)],
        lambda a, b, c: [np.einsum("i,j,k->ijk", a, b, c), np.full_like(a, b.sum() * c.sum()), np.full_like(b, a.sum() * c.sum()),
                         np.full_like(c, a.sum() * b.sum())])


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _softmax_grad(x: Any, axis: int = -1) -> list[Any]:
    s = _softmax(x, axis)
    g = np.ones_like(s)
    return [s, s * (g - (g * s).sum(axis=axis, keepdims=True))]


for _shape in ((64, 10), (128, 1024), (1024, 8192)):
    workload(f"softmax_{_shape[0]}x{_shape[1]}", lambda s=_shape: [_random(*s)], gd.softmax, _softmax, _softmax_grad)
workload("softmax_1024x1024_axis0", lambda: [_random(1024, 1024)], lambda x: gd.softmax(x, axis=0), lambda x: _softmax(x, 0),
         lambda x: _softmax_grad(x, 0))
for _n in (1000, 100_000, 4_000_000):
    workload(f"relu_{_n}", lambda n=_n: [_random(n)], gd.relu, lambda x: np.maximum(x, 0),
             lambda x: [np.maximum(x, 0), (x > 0).astype(x.dtype)])


def _sig(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _chain(x: Any, y: Any, z: Any) -> Any:
    return np.tanh(x) * _sig(y) + np.exp(-z * z)


def _chain_grad(x: Any, y: Any, z: Any) -> list[Any]:
    t, s, e = np.tanh(x), _sig(y), np.exp(-z * z)
    return [t * s + e, (1 - t * t) * s, t * s * (1 - s), -2 * z * e]


for _n in (1000, 100_000):
    workload(f"chain_{_n}", lambda n=_n: [_random(n, seed=k) for k in range(3)],
             lambda x, y, z: gd.tanh(x) * gd.sigmoid(y) + gd.exp(-z * z), _chain, _chain_grad)
for _axis in (None, 0, 1):
    workload(f"sum_2048x2048_axis_{_axis}", lambda: [_random(2048, 2048)], lambda x, a=_axis: gd.sum(x, axis=a),
             lambda x, a=_axis: np.sum(x, axis=a), None)
for _f in ("exp", "log1p", "sin", "tanh"):
    for _dtype in ("float32", "float64"):
        workload(f"{_f}_1e5_{_dtype}", lambda d=_dtype: [np.abs(_random(100_000, dtype=d))], lambda x, f=_f: getattr(gd, f)(x),
                 getattr(np, _f), None)


def _columns(x: Any, w: Any, stride: int, pad: int) -> tuple[Any, tuple[int, int]]:
    """im2col by a strided view: (N, oH, oW, C kH kW)."""
    if pad:
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    view = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    n, _, h, v = view.shape[:4]
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * v, -1), (h, v)


def _conv(x: Any, w: Any, stride: int = 1, pad: int = 0) -> Any:
    cols, (h, v) = _columns(x, w, stride, pad)
    y = cols @ w.reshape(len(w), -1).T
    return np.ascontiguousarray(y.reshape(len(x), h, v, len(w)).transpose(0, 3, 1, 2))


def _conv_grad(x: Any, w: Any, stride: int = 1, pad: int = 0) -> list[Any]:
    cols, (h, v) = _columns(x, w, stride, pad)
    wm = w.reshape(len(w), -1)
    y = np.ascontiguousarray((cols @ wm.T).reshape(len(x), h, v, len(w)).transpose(0, 3, 1, 2))
    g = np.ones((len(x) * h * v, len(w)), x.dtype)
    gw = (g.T @ cols).reshape(w.shape)
    gc = (g @ wm).reshape(len(x), h, v, *w.shape[1:])
    gx = np.zeros((*x.shape[:2], x.shape[2] + 2 * pad, x.shape[3] + 2 * pad), x.dtype)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            gx[:, :, i:i + h * stride:stride, j:j + v * stride:stride] += gc[..., i, j].transpose(0, 3, 1, 2)
    return [y, gx[:, :, pad:pad + x.shape[2], pad:pad + x.shape[3]], gw]


for _name, _x, _w, _s, _p in (("conv_32x3x32x32_64x3x3x3", (32, 3, 32, 32), (64, 3, 3, 3), 1, 1),
                              ("conv_16x64x28x28_64x64x3x3", (16, 64, 28, 28), (64, 64, 3, 3), 1, 1),
                              ("conv_1x1_16x256x28x28_64", (16, 256, 28, 28), (64, 256, 1, 1), 1, 0),
                              ("conv_7x7_s2_4x3x112x112", (4, 3, 112, 112), (64, 3, 7, 7), 2, 3)):
    workload(_name, lambda x=_x, w=_w: [_random(*x), _random(*w, seed=1) / 8],
             lambda x, w, s=_s, p=_p: gd.conv(x, w, stride=s, padding=p), lambda x, w, s=_s, p=_p: _conv(x, w, s, p),
             lambda x, w, s=_s, p=_p: _conv_grad(x, w, s, p))
workload("max_pool2_32x16x56x56", lambda: [_random(32, 16, 56, 56)], lambda x: gd.max_pool(x, 2),
         lambda x: x.reshape(32, 16, 28, 2, 28, 2).max(axis=(3, 5)), None)
workload("sort_1e5", lambda: [_random(100_000)], gd.sort, lambda x: np.sort(x, kind="stable"), None)
_ROWS = np.random.default_rng(1).integers(0, 10_000, 8192)
workload("embedding_10000x128_8192", lambda: [_random(10_000, 128)],
         lambda w: gd.take(w, _ROWS, axis=0), lambda w: w[_ROWS], None)
