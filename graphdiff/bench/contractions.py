"""Workloads: matrix products, einsum, convolution, pooling."""
from __future__ import annotations

from typing import Any

import numpy as np

from .workload import add, normal

# -- matrix products ------------------------------------------------------------------------------------------------------


def _product_back(g: Any, a: Any, b: Any) -> list[Any]:
    return [a @ b, g @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ g]


def _product(m: Any, a: Any, b: Any) -> Any:
    return m.matmul(a, b)


for _n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048):
    add(f"matmul_{_n}", lambda n=_n: [normal(n, n), normal(n, n, seed=1)], _product, np.matmul, _product_back, bound="flops")
for _n in (16, 32, 64, 256, 1024):
    add(f"matmul_{_n}_f64", lambda n=_n: [normal(n, n, dtype="float64"), normal(n, n, dtype="float64", seed=1)], _product, np.matmul,
        _product_back, bound="flops")
for _m, _k, _n, _dtype in ((64, 784, 512, "float32"), (1024, 10, 64, "float32"), (64, 512, 10, "float64"), (1024, 64, 10, "float64"),
                           (64, 512, 10, "float32"), (1024, 64, 10, "float32")):
    add(f"matmul_{_m}x{_k}x{_n}{'_f64' if _dtype == 'float64' else ''}",
        lambda m=_m, k=_k, n=_n, d=_dtype: [normal(m, k, dtype=d), normal(k, n, dtype=d, seed=1)], _product, np.matmul, _product_back,
        bound="flops")
for _letters, _f, _b in (
        ("nt", lambda a, b: a @ b.T, lambda g, a, b: [a @ b.T, g @ b, g.T @ a]),
        ("tn", lambda a, b: a.T @ b, lambda g, a, b: [a.T @ b, b @ g.T, a @ g]),
        ("tt", lambda a, b: a.T @ b.T, lambda g, a, b: [a.T @ b.T, b.T @ g.T, g.T @ a.T])):
    def _transposed(m: Any, a: Any, b: Any, letters: str = _letters) -> Any:
        return m.matmul(m.transpose(a) if letters[0] == "t" else a, m.transpose(b) if letters[1] == "t" else b)
    add(f"matmul_512_{_letters}", lambda: [normal(512, 512), normal(512, 512, seed=1)], _transposed, _f, _b, bound="flops")
add("matvec_1024", lambda: [normal(1024, 1024), normal(1024, seed=1)], _product, np.matmul,
    lambda g, a, x: [a @ x, np.outer(g, x), a.T @ g], bound="bytes")
add("vecmat_1024", lambda: [normal(1024, seed=1), normal(1024, 1024)], _product, np.matmul,
    lambda g, x, a: [x @ a, a @ g, np.outer(x, g)], bound="bytes")
add("bmm_64x64x64", lambda: [normal(64, 64, 64), normal(64, 64, 64, seed=1)], _product, np.matmul, _product_back, bound="flops")


def _dense_back(g: Any, x: Any, w: Any, b: Any) -> list[Any]:
    y = np.maximum(x @ w + b, 0)
    g = g * (y > 0)
    return [y, g @ w.T, x.T @ g, g.sum(0)]


add("dense_relu_64x784x512", lambda: [normal(64, 784), normal(784, 512, seed=1) / 28, normal(512, seed=2)],
    lambda m, x, w, b: m.relu(m.matmul(x, w) + b), lambda x, w, b: np.maximum(x @ w + b, 0), _dense_back, bound="flops")


# -- einsum ---------------------------------------------------------------------------------------------------------------

def _einsum(name: str, equation: str, arrays: Any, backward: Any, bound: str = "") -> None:
    add(f"einsum_{name}", arrays, lambda m, *xs: m.einsum(equation, *xs), lambda *xs: np.einsum(equation, *xs, optimize=True), backward,
        bound=bound)


_einsum("ij,jk->ik_256", "ij,jk->ik", lambda: [normal(256, 256), normal(256, 256, seed=1)], _product_back, "flops")
_einsum("bhqd,bhkd->bhqk", "bhqd,bhkd->bhqk", lambda: [normal(8, 8, 128, 64), normal(8, 8, 128, 64, seed=1)],
        lambda g, q, k: [q @ k.swapaxes(2, 3), g @ k, g.swapaxes(2, 3) @ q], "flops")
_einsum("ikl,klj->ij", "ikl,klj->ij", lambda: [normal(64, 32, 32), normal(32, 32, 64, seed=1)],
        lambda g, a, b: [a.reshape(64, -1) @ b.reshape(-1, 64), (g @ b.reshape(-1, 64).T).reshape(a.shape),
                         (a.reshape(64, -1).T @ g).reshape(b.shape)], "flops")
_einsum("ii->_512", "ii->", lambda: [normal(512, 512)], lambda g, x: [np.einsum("ii->", x), g * np.eye(512, dtype=x.dtype)])


def _outer_back(g: Any, a: Any, b: Any, c: Any) -> list[Any]:
    gc = g @ c
    return [a[:, None, None] * b[:, None] * c, gc @ b, a @ gc, np.tensordot(np.outer(a, b), g)]


_einsum("i,j,k->ijk_64", "i,j,k->ijk", lambda: [normal(64), normal(64, seed=1), normal(64, seed=2)], _outer_back)
_einsum("bij,bjk,bkl->bil", "bij,bjk,bkl->bil", lambda: [normal(16, 64, 64, seed=s) / 8 for s in range(3)],
        lambda g, a, b, c: [a @ b @ c, g @ (b @ c).swapaxes(1, 2), a.swapaxes(1, 2) @ g @ c.swapaxes(1, 2), (a @ b).swapaxes(1, 2) @ g],
        "flops")


# -- convolution ----------------------------------------------------------------------------------------------------------

def _columns(x: Any, kernel: tuple[int, ...], stride: int, pad: int) -> tuple[Any, tuple[int, int]]:
    """im2col by a strided view: (N oH oW, C kH kW)."""
    if pad:
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))[:, :, ::stride, ::stride]
    n, _, h, v = view.shape[:4]
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * v, -1), (h, v)


def _conv(x: Any, w: Any, stride: int, pad: int) -> Any:
    columns, (h, v) = _columns(x, w.shape[2:], stride, pad)
    y = columns @ w.reshape(len(w), -1).T
    return np.ascontiguousarray(y.reshape(len(x), h, v, len(w)).transpose(0, 3, 1, 2))


def _scatter(gc: Any, shape: tuple[int, ...], stride: int, pad: int) -> Any:
    """The adjoint of _columns: gc (N, oH, oW, C, kH, kW) added up into an image."""
    n, c, h, v = shape
    out = np.zeros((n, c, h + 2 * pad, v + 2 * pad), gc.dtype)
    for i in range(gc.shape[4]):
        for j in range(gc.shape[5]):
            out[:, :, i:i + gc.shape[1] * stride:stride, j:j + gc.shape[2] * stride:stride] += gc[..., i, j].transpose(0, 3, 1, 2)
    return out[:, :, pad:pad + h, pad:pad + v]


def _conv_back(g: Any, x: Any, w: Any, stride: int, pad: int) -> list[Any]:
    columns, (h, v) = _columns(x, w.shape[2:], stride, pad)
    matrix = w.reshape(len(w), -1)
    y = np.ascontiguousarray((columns @ matrix.T).reshape(len(x), h, v, len(w)).transpose(0, 3, 1, 2))
    rows = g.transpose(0, 2, 3, 1).reshape(-1, len(w))
    return [y, _scatter((rows @ matrix).reshape(len(x), h, v, *w.shape[1:]), x.shape, stride, pad), (rows.T @ columns).reshape(w.shape)]


for _name, _x, _w, _s, _p in (("conv2d_32x3x32_64c3", (32, 3, 32, 32), (64, 3, 3, 3), 1, 1),
                              ("conv2d_16x64x56_64c3", (16, 64, 56, 56), (64, 64, 3, 3), 1, 1),
                              ("conv2d_16x256x28_64c1", (16, 256, 28, 28), (64, 256, 1, 1), 1, 0),
                              ("conv2d_4x3x224_64c7s2", (4, 3, 224, 224), (64, 3, 7, 7), 2, 3)):
    add(_name, lambda x=_x, w=_w: [normal(*x), normal(*w, seed=1) / 8],
        lambda m, x, w, s=_s, p=_p: m.conv(x, w, stride=s, padding=p), lambda x, w, s=_s, p=_p: _conv(x, w, s, p),
        lambda g, x, w, s=_s, p=_p: _conv_back(g, x, w, s, p), bound="flops")


def _depthwise(x: Any, w: Any) -> Any:
    view = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return np.einsum("nchwij,cij->nchw", view, w[:, 0])


def _depthwise_back(g: Any, x: Any, w: Any) -> list[Any]:
    view = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    back = np.lib.stride_tricks.sliding_window_view(np.pad(g, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return [np.einsum("nchwij,cij->nchw", view, w[:, 0]), np.einsum("nchwij,cij->nchw", back, w[:, 0, ::-1, ::-1]),
            np.einsum("nchwij,nchw->cij", view, g)[:, None]]


add("conv2d_dw_16x64x56_c3", lambda: [normal(16, 64, 56, 56), normal(64, 1, 3, 3, seed=1) / 3],
    lambda m, x, w: m.conv(x, w, padding=1, groups=64), _depthwise, _depthwise_back, bound="flops")


def _columns1(x: Any) -> Any:
    view = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (2, 2))), 5, axis=2)
    return view.transpose(0, 2, 1, 3).reshape(x.shape[0] * x.shape[2], -1)


def _conv1(x: Any, w: Any) -> Any:
    return np.ascontiguousarray((_columns1(x) @ w.reshape(len(w), -1).T).reshape(len(x), -1, len(w)).transpose(0, 2, 1))


def _conv1_back(g: Any, x: Any, w: Any) -> list[Any]:
    rows = g.transpose(0, 2, 1).reshape(-1, len(w))
    gc = (rows @ w.reshape(len(w), -1)).reshape(len(x), -1, *w.shape[1:])
    gx = np.zeros((*x.shape[:2], x.shape[2] + 4), x.dtype)
    for k in range(5):
        gx[:, :, k:k + x.shape[2]] += gc[..., k].transpose(0, 2, 1)
    return [_conv1(x, w), gx[:, :, 2:-2], (rows.T @ _columns1(x)).reshape(w.shape)]


add("conv1d_32x64x512_64c5", lambda: [normal(32, 64, 512), normal(64, 64, 5, seed=1) / 16], lambda m, x, w: m.conv(x, w, padding=2),
    _conv1, _conv1_back, bound="flops")


def _transposed_conv(x: Any, w: Any) -> Any:
    n, c, h, v = x.shape
    gc = (x.transpose(0, 2, 3, 1).reshape(-1, c) @ w.reshape(c, -1)).reshape(n, h, v, *w.shape[1:])
    return _scatter(gc, (n, w.shape[1], 2 * h, 2 * v), 2, 1)


def _transposed_conv_back(g: Any, x: Any, w: Any) -> list[Any]:
    columns, _ = _columns(g, w.shape[2:], 2, 1)
    rows = x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1])
    gx = (columns @ w.reshape(len(w), -1).T).reshape(len(x), *x.shape[2:], -1).transpose(0, 3, 1, 2)
    return [_transposed_conv(x, w), np.ascontiguousarray(gx), (rows.T @ columns).reshape(w.shape)]


add("convT2d_16x64x14_32c4s2", lambda: [normal(16, 64, 14, 14), normal(64, 32, 4, 4, seed=1) / 8],
    lambda m, x, w: m.conv_transpose(x, w, stride=2, padding=1), _transposed_conv, _transposed_conv_back, bound="flops")


def _pool(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


def _pool_back(g: Any, x: Any) -> list[Any]:
    n, c, h, w = x.shape
    windows = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    first = windows.argmax(-1)
    gx = np.zeros_like(windows)
    np.put_along_axis(gx, first[..., None], g[..., None], -1)
    return [windows.max(-1), gx.reshape(n, c, h // 2, w // 2, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(x.shape)]


add("maxpool2_32x64x56", lambda: [normal(32, 64, 56, 56)], lambda m, x: m.max_pool(x, 2), _pool, _pool_back, bound="bytes")
add("maxpool7_plane", lambda: [normal(64, 512, 7, 7)], lambda m, x: m.max_pool(x, 7), lambda x: x.max(axis=(2, 3), keepdims=True),
    None, bound="bytes")
