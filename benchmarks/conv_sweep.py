"""Convolutions and their gradients against NumPy's own way: windows by a strided view, a copy of them, a product, a copy of the result.

All that NumPy does is counted, its copies too; convolutions of one channel along one axis have np.correlate and np.convolve as well.
Shapes are those of networks, and those whose results are a few positions or many channels: kernels as large as the image, patches
(stride = kernel), 1 x 1 maps spread by a transposed convolution. Set OPENBLAS_NUM_THREADS=1, or large products run on every core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/conv_sweep.py                    # everything, some minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/conv_sweep.py '^to x.*float32'   # by name
"""
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sweep import Row, main, sample

import graphdiff as gd

# Images, channels, side (or sides), filters, taps a side, stride, padding.
SHAPES: tuple[tuple[int, int, int | tuple[int, ...], int, int, int, int], ...] = (
    # the kernel is the image
    (64, 8, 5, 8, 5, 1, 0), (64, 16, 5, 32, 5, 1, 0), (64, 16, 5, 120, 5, 1, 0), (1, 16, 5, 120, 5, 1, 0), (64, 16, 4, 120, 4, 1, 0),
    (1, 256, 6, 512, 6, 1, 0), (32, 3, 8, 16, 8, 1, 0), (8, 64, 3, 64, 3, 1, 0), (16, 512, 2, 512, 2, 1, 0), (256, 64, 4, 128, 4, 1, 0),
    (1, 1, 16, 64, 16, 1, 0), (8, 64, (5,), 64, 5, 1, 0), (1, 512, (3,), 512, 3, 1, 0),
    # a few positions
    (8, 64, 4, 64, 3, 1, 0), (16, 256, 4, 256, 3, 1, 0), (1, 512, 4, 512, 3, 1, 0), (16, 512, 3, 512, 2, 1, 0), (128, 4, 4, 8, 2, 1, 0),
    (128, 1, 6, 4, 3, 1, 0), (4, 100, 9, 50, 7, 1, 0), (16, 128, 6, 128, 3, 1, 0), (1, 256, 8, 256, 3, 1, 0), (1, 512, 7, 512, 3, 1, 0),
    (1, 512, 7, 512, 3, 1, 1), (1, 512, 2, 512, 3, 1, 1), (8, 512, 4, 512, 3, 2, 1), (1, 3, 33, 100, 16, 1, 0), (8, 64, (8,), 64, 3, 1, 0),
    (32, 128, (4,), 128, 3, 1, 0), (1, 256, (16,), 256, 3, 1, 0), (2, 16, (4, 4, 4), 16, 3, 1, 0), (2, 16, (4, 4, 4), 16, 2, 2, 0),
    # one tap
    (1, 1024, 7, 256, 1, 1, 0), (8, 256, 7, 128, 1, 1, 0), (16, 64, 7, 64, 1, 1, 0), (64, 32, 7, 32, 1, 1, 0), (16, 64, 5, 64, 1, 1, 0),
    (64, 128, 3, 128, 1, 1, 0), (2, 2048, 2, 512, 1, 1, 0), (8, 64, 28, 128, 1, 1, 0), (8, 64, 28, 128, 1, 2, 0),
    # patches
    (1, 3, 224, 192, 16, 16, 0), (8, 3, 224, 192, 16, 16, 0), (64, 3, 32, 64, 4, 4, 0), (16, 1, 28, 64, 7, 7, 0), (16, 1, 28, 64, 4, 4, 0),
    (8, 64, 28, 128, 2, 2, 0), (8, 96, 14, 192, 2, 2, 0), (64, 8, 20, 8, 5, 5, 0), (1, 256, 12, 512, 6, 6, 0), (128, 1, 12, 4, 3, 3, 0),
    (1, 256, 16, 256, 3, 3, 0), (64, 1, (64,), 32, 8, 8, 0),
    # planes
    (8, 1, 28, 8, 5, 1, 0), (32, 16, 14, 32, 5, 1, 0), (32, 64, 8, 64, 3, 1, 0), (32, 32, 10, 32, 3, 1, 0), (8, 64, 14, 64, 3, 1, 1),
    (1, 256, 14, 256, 3, 1, 1), (8, 128, 14, 128, 3, 2, 1), (8, 32, 8, 32, 3, 1, 1), (16, 64, 28, 64, 3, 1, 1), (32, 3, 32, 64, 3, 1, 1),
    (4, 17, 13, 19, 3, 1, 0), (64, 1, (64,), 32, 8, 1, 0), (16, 32, (64,), 32, 3, 1, 1), (1, 32, (6, 6, 6), 32, 3, 1, 1))
# Images, channels, side, channels of the result, taps a side, stride, padding of the convolution whose adjoint it is.
TRANSPOSED = ((16, 64, 1, 32, 4, 4, 0), (64, 100, 1, 64, 4, 1, 0), (64, 256, 4, 128, 4, 2, 1), (4, 128, 4, 64, 2, 2, 0), (1, 64, 7, 32, 2, 2, 0),
              (8, 16, 14, 8, 2, 2, 0), (1, 8, 64, 3, 4, 4, 0), (8, 32, 16, 16, 2, 2, 0))
SIGNALS = ((10, 3), (100, 3), (1000, 5), (1000, 31), (10_000, 3), (10_000, 7), (10_000, 101), (100_000, 9), (1000, 500))


def windows(x: Any, kernel: tuple[int, ...], stride: int, pad: int) -> Any:
    """[N, *positions, C, *taps], a view."""
    n = len(kernel)
    if pad:
        x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * n])
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=tuple(range(2, 2 + n)))
    view = view[(slice(None), slice(None), *[slice(None, None, stride)] * n)]
    return view.transpose(0, *range(2, 2 + n), 1, *range(2 + n, 2 + 2 * n))


def forward(x: Any, w: Any, stride: int, pad: int) -> Any:
    view = windows(x, w.shape[2:], stride, pad)
    positions = view.shape[:x.ndim - 1]
    y = np.ascontiguousarray(view).reshape(int(np.prod(positions)), -1) @ w.reshape(len(w), -1).T
    return np.moveaxis(y.reshape(*positions, len(w)), -1, 1).copy()


def to_weights(x: Any, g: Any, w: Any, stride: int, pad: int) -> Any:
    columns = np.ascontiguousarray(windows(x, w.shape[2:], stride, pad)).reshape(-1, w[0].size)
    return (np.moveaxis(g, 1, 0).reshape(len(w), -1) @ columns).reshape(w.shape)


def spread(g: Any, w: Any, size: tuple[int, ...], stride: int, pad: int) -> Any:
    """The gradient to x: a product, and every tap added where it belongs."""
    n, (o, c, *kernel) = len(size), w.shape
    parts = (np.moveaxis(g, 1, -1).reshape(-1, o) @ w.reshape(o, -1)).reshape(len(g), *g.shape[2:], c, *kernel)
    x = np.zeros((len(g), *[m + 2 * pad for m in size], c), g.dtype)
    for tap in itertools.product(*map(range, kernel)):
        places = [slice(t, t + (m - 1) * stride + 1, stride) for t, m in zip(tap, g.shape[2:], strict=True)]
        x[(slice(None), *places)] += parts[(..., *tap)]
    if pad:
        x = x[(slice(None), *[slice(pad, -pad)] * n)]
    return np.moveaxis(x, -1, 1).copy()


def to_input(x: Any, g: Any, w: Any, stride: int, pad: int) -> Any:
    return spread(g, w, x.shape[2:], stride, pad)


def gradient(wrt: int, stride: int, pad: int) -> Callable[..., Any]:
    def build(x: Any, g: Any, w: Any) -> Any:
        return gd.grad(gd.conv(x, w, stride=stride, padding=pad), (x, w)[wrt], cotangent=g)
    return build


def convolutions(dtype: str) -> Iterator[Row]:
    close = 1e-2 if dtype == "float32" else 1e-9
    for n, c, side, o, k, stride, pad in SHAPES:
        sides = side if isinstance(side, tuple) else (side, side)
        x, w = (n, c, *sides), (o, c, *[k] * len(sides))
        y = (n, o, *[(m + 2 * pad - k) // stride + 1 for m in sides])
        name = f"{'x'.join(map(str, x))} {o}k{k}{f' s{stride}' * (stride > 1)}{f' p{pad}' * (pad > 0)} {dtype}"
        options = {"stride": stride, "padding": pad}
        yield Row(f"conv {name}", partial(lambda *shapes: [sample(s, dtype, i) for i, s in enumerate(shapes)], x, w),
                  partial(gd.conv, **options), partial(forward, stride=stride, pad=pad), tolerance=close)
        operands = partial(lambda *shapes: [sample(s, dtype, i) for i, s in enumerate(shapes)], x, y, w)
        if (sides[0] + 2 * pad - k) % stride == 0:           # what is left over would be one more slice in NumPy
            yield Row(f"to x {name}", operands, gradient(0, stride, pad), partial(to_input, stride=stride, pad=pad), tolerance=close)
        yield Row(f"to w {name}", operands, gradient(1, stride, pad), partial(to_weights, stride=stride, pad=pad), tolerance=close)


def transposed(dtype: str) -> Iterator[Row]:
    for n, c, side, o, k, stride, pad in TRANSPOSED:
        size = (side - 1) * stride - 2 * pad + k
        yield Row(f"transposed {n}x{c}x{side}x{side} {o}k{k} s{stride}{f' p{pad}' * (pad > 0)} {dtype}",
                  partial(lambda *shapes: [sample(s, dtype, i) for i, s in enumerate(shapes)], (n, c, side, side), (c, o, k, k)),
                  partial(gd.conv_transpose, stride=stride, padding=pad), partial(spread, size=(size, size), stride=stride, pad=pad),
                  tolerance=1e-2 if dtype == "float32" else 1e-9)


def signals(dtype: str) -> Iterator[Row]:
    close = 1e-3 if dtype == "float32" else 1e-9
    for n, k in SIGNALS:
        operands = partial(lambda n, k: [sample(n, dtype), sample(k, dtype, 1)], n, k)
        yield Row(f"correlate {n} {k} {dtype}", operands, lambda x, w: gd.conv(x[None, None], w[None, None])[0, 0],
                  lambda x, w: np.correlate(x, w, "valid"), tolerance=close)
        yield Row(f"convolve {n} {k} {dtype}", operands, partial(lambda x, w, k: gd.conv(x[None, None], w[None, None], padding=k - 1)[0, 0], k=k),
                  lambda x, w: np.convolve(x, w[::-1], "full"), tolerance=close)


def rows() -> Iterator[Row]:
    for dtype in ("float32", "float64"):
        for part in (convolutions, transposed, signals):
            yield from part(dtype)


if __name__ == "__main__":
    sys.exit(main(__doc__, rows()))
