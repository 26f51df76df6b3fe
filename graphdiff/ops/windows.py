"""Windows over one, two or three spatial axes, which convolution and pooling share: their options, what a tap of the kernel
connects, and three axes of whatever there is, as kernels take them. Arrays are [N, C, *spatial].
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..dims import Dim, dim_max
from ..dtypes import FLOAT16, FLOAT32
from ..errors import NodeTypeError, ShapeError
from ..graph.node import Node
from ..specs import format_shape

Pairs = tuple[tuple[Any, Any], ...]

# -- geometry, for references -----------------------------------------------------------------------------------------------


def tap_slices(x_shape: Any, kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(kernel position, slices of the output, slices of x) for every position of the kernel that meets x."""
    for tap in itertools.product(*map(range, kernel)):
        ys, xs = [], []
        for n, m, s, (lo, _), d, k in zip(x_shape, out, stride, padding, dilation, tap, strict=True):
            shift = k * d - lo                              # the output at p reads x at p s + shift
            first = max(0, -(shift // s))
            last = min(m - 1, (n - 1 - shift) // s)
            if last < first:
                break
            ys.append(slice(first, last + 1))
            xs.append(slice(first * s + shift, last * s + shift + 1, s))
        else:
            yield tap, tuple(ys), tuple(xs)


def widened(*arrays: Any) -> list[Any]:
    """float16 is added up in float32."""
    return [a.astype(FLOAT32) if a.dtype == FLOAT16 else a for a in map(np.asarray, arrays)]


# -- options ---------------------------------------------------------------------------------------------------------


def per_axis(value: Any, n: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One whole number an axis."""
    values = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else (value,) * n
    if len(values) != n:
        raise ShapeError(f"{what} has {len(values)} entries for {n} spatial axes")
    for v in values:
        if isinstance(v, bool) or not isinstance(v, (int, np.integer)):
            raise NodeTypeError(f"{what} is a whole number, or one an axis, not {type(v).__name__}")
        if v < least:
            raise ShapeError(f"{what} must be at least {least}, not {v}")
        if v >= 2**31:        # kernels take products of these with sizes, up to 2**52; no array needs more
            raise ShapeError(f"{what} {v} is too large, the limit is 2**31 - 1")
    return tuple(int(v) for v in values)


def _numbered_pads(padding: Any, n: int) -> Pairs:
    """(before, after) for every axis from an int, or one int or pair an axis."""
    if not isinstance(padding, (tuple, list, np.ndarray)):
        return tuple((p, p) for p in per_axis(padding, n, "padding", 0))
    if len(padding) != n:
        hint = f"\nhint: padding=(({padding[0]}, {padding[1]}),)" if n == 1 and len(padding) == 2 else ""
        raise ShapeError(f"padding has {len(padding)} entries for {n} spatial axes{hint}")
    out = []
    for p in padding:
        if isinstance(p, (tuple, list, np.ndarray)) and len(p) != 2:
            raise ShapeError(f"padding of an axis is a number or (before, after), not {len(p)} numbers")
        before, after = per_axis(p, 2, "padding", 0)
        out.append((before, after))
    return tuple(out)


def _named_pads(padding: str, sizes: tuple[Any, ...], span: list[int], stride: tuple[int, ...]) -> Pairs:
    """ "valid": none; "same": ceil(size / stride) results, the odd element after."""
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding != "same":
        raise NodeTypeError(f"padding is numbers, 'same' or 'valid', not {padding!r}")
    out = []
    for n, e, s in zip(sizes, span, stride, strict=True):
        total = e - 1 if s == 1 else dim_max(((n + s - 1) // s - 1) * s + e - n, 0)
        out.append((total // 2, total - total // 2))
    return tuple(out)


def paddings(padding: Any, sizes: tuple[Any, ...], span: list[int], stride: tuple[int, ...]) -> Pairs:
    """(before, after) for every axis, of numbers or of a name."""
    return _named_pads(padding, sizes, span, stride) if isinstance(padding, str) else _numbered_pads(padding, len(sizes))


def spatial_axes(x: Node, what: str = "x") -> int:
    n = x.ndim - 2
    if not 1 <= n <= 3:
        raise ShapeError(f"{what} has {x.ndim} axes; [N, C, *spatial] with one, two or three spatial axes is needed")
    return n


def spans(kernel: tuple[Any, ...], dilation: tuple[int, ...]) -> list[Any]:
    """Elements from the first to the last position of the kernel."""
    for axis, k in enumerate(kernel):
        if isinstance(k, Dim):
            raise ShapeError(f"the kernel's size {k} (spatial axis {axis}) must be a number")
        if k < 1:
            raise ShapeError(f"the kernel has no elements along spatial axis {axis}")
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]


def check_fits(size: tuple[Any, ...], kernel: tuple[Any, ...], x: tuple[Any, ...], padding: Pairs, dilation: tuple[int, ...],
               what: str) -> None:
    """Refuse a result without elements: the kernel does not fit anywhere."""
    if any(isinstance(n, int) and n < 1 for n in size):
        padded = tuple(n + lo + hi for n, (lo, hi) in zip(x, padding, strict=True))
        spaced = f" (dilation {format_shape(dilation)})" if any(d != 1 for d in dilation) else ""
        raise ShapeError(f"{what} {format_shape(kernel)}{spaced} is larger than the padded input {format_shape(padded)}")


# -- for kernels, which see three axes ---------------------------------------------------------------------------------------


def three_axes(ctx: Any, v: Any) -> Any:
    """The view with unit axes before its spatial ones, up to three."""
    return ctx.reshape(v, (*v.shape[:2], *(1,) * (5 - len(v.shape)), *v.shape[2:]))


def in_three(values: Any, unit: int) -> list[int]:
    """One number an axis, for three axes."""
    return [unit] * (3 - len(values)) + list(values)


def needed_strides(stride: Any, results: Node) -> list[int]:
    """Strides as kernels get them: one result has no next one, but the adjoints would make a sweep for each phase of a stride."""
    return [s if n > 1 else 1 for s, n in zip(stride, results.shape[2:], strict=True)]
