"""Convolutions and pooling."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph.build import named_input
from ..graph.node import Node
from ..ops import conv, pool
from . import activation as activations
from . import checks
from .init import make, make_transposed
from .layer import Layer


class _Convolution(Layer):
    """What the two convolutions have in common: channels, groups, kernel, weight, bias, activation."""

    op: Callable[..., Node]         # gd.conv or gd.conv_transpose
    transposed: bool                # the weight is [c_in, c_out / groups, ...] instead of [c_out, c_in / groups, ...]

    def _set_up(self, c_in: int, c_out: int, kernel: Any, activation: Any, bias: bool, init: Any, key: Any, dtype: Any, ndim: int,
                groups: int, options: dict[str, Any]) -> None:
        self.c_in, self.c_out, self.groups = checks.size(c_in, "c_in"), checks.size(c_out, "c_out"), checks.size(groups, "groups")
        if self.c_in % self.groups or self.c_out % self.groups:
            raise ShapeError(f"{c_in} and {c_out} channels do not divide into {groups} groups")
        self.kernel = _kernel(kernel, ndim)
        self.options = {**options, "groups": self.groups}
        self.activation = activations.find(activation)
        dtype = checks.floating(dtype)
        first, second = (self.c_in, self.c_out) if self.transposed else (self.c_out, self.c_in)
        weight = make_transposed if self.transposed and isinstance(init, str) else make
        self.w = self.parameter(weight(init, key, (first, second // self.groups, *self.kernel), dtype, groups=self.groups), "w")
        self.b = self.parameter(np.zeros(self.c_out, dtype), "b") if checks.flag(bias, "bias") else None
        self.op(_sample(self.c_in, len(self.kernel), dtype), self.w, **self.options)      # options that no input fits are refused now

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, 1, self.c_in, self.name)
        y = self.op(x, self.w, bias=self.b, **self.options)
        return y if self.activation is None else self.activation(y)


class Conv(_Convolution):
    """Convolution of 1, 2 or 3 spatial axes (cross-correlation): x [N, c_in, *spatial] -> [N, c_out, *spatial'].

    kernel: one number for each spatial axis; a single one means `ndim` equal axes (2). Options as in gd.conv.
    """

    op, transposed = staticmethod(conv.conv), False

    def __init__(self, c_in: int, c_out: int, kernel: Any, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
                 ndim: int = 2) -> None:
        super().__init__(name)
        self._set_up(c_in, c_out, kernel, activation, bias, init, key, dtype, ndim, groups,
                     {"stride": stride, "padding": padding, "dilation": dilation})


class ConvTranspose(_Convolution):
    """Transposed convolution, the adjoint of Conv in its input: x [N, c_in, *spatial] -> [N, c_out, *larger].

    Options as in gd.conv_transpose. The weight is [c_in, c_out / groups, *kernel]; an initialiser by name takes c_in / groups times the
    kernel for what goes into a unit, as for Conv, whatever the stride (PyTorch takes c_out / groups times the kernel).
    """

    op, transposed = staticmethod(conv.conv_transpose), True

    def __init__(self, c_in: int, c_out: int, kernel: Any, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, ndim: int = 2) -> None:
        super().__init__(name)
        self._set_up(c_in, c_out, kernel, activation, bias, init, key, dtype, ndim, groups,
                     {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation})


class _Pool(Layer):
    op: Callable[..., Node]         # gd.max_pool or gd.avg_pool

    def __init__(self, window: Any, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name)
        self.window, self.options = window, options
        n = max([len(v) for v in (window, *options.values()) if isinstance(v, (tuple, list))], default=1)
        self.op(_sample(1, n, "float32"), window, **options)

    def forward(self, x: Node, training: bool) -> Node:
        return self.op(x, self.window, **self.options)


class MaxPool(_Pool):
    """gd.max_pool as a layer. Options no input fits are refused when the layer is made."""

    op = staticmethod(pool.max_pool)


class AvgPool(_Pool):
    """gd.avg_pool as a layer. Options no input fits are refused when the layer is made."""

    op = staticmethod(pool.avg_pool)


def _sample(channels: int, n: int, dtype: Any) -> Node:
    """An input of n axes of any size: what an op refuses here it refuses always."""
    return named_input("x", (1, channels, *[f"size{i}" for i in range(n)]), dtype)


def _kernel(kernel: Any, ndim: int) -> tuple[int, ...]:
    n = len(kernel) if isinstance(kernel, (tuple, list)) else checks.size(ndim, "ndim")
    if not 1 <= n <= 3:
        raise ShapeError(f"kernel: 1, 2 or 3 spatial axes, not {n}")
    return checks.sizes(kernel, n, "kernel")
