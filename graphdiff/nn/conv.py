"""Convolutions and pooling."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph.node import Node
from ..ops import conv as ops
from . import activation as activations
from . import checks, init
from .layer import Layer


class Conv(Layer):
    """Convolution of 1, 2 or 3 spatial axes (cross-correlation): x [N, c_in, *spatial] -> [N, c_out, *spatial'].

    kernel: one number for each spatial axis; a single one means `ndim` equal axes (2). Options as in gd.conv.
    """

    def __init__(self, c_in: int, c_out: int, kernel: Any, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
                 ndim: int = 2) -> None:
        super().__init__(name)
        self.c_in, self.c_out, self.groups = checks.size(c_in, "c_in"), checks.size(c_out, "c_out"), checks.size(groups, "groups")
        if self.c_in % self.groups or self.c_out % self.groups:
            raise ShapeError(f"{c_in} and {c_out} channels do not divide into {groups} groups")
        self.kernel = _kernel(kernel, ndim)
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": self.groups}
        self.activation = activations.find(activation)
        dtype = checks.floating(dtype)
        self.w = self.parameter(_make(init, key, (self.c_out, self.c_in // self.groups, *self.kernel), dtype), "w")
        self.b = self.parameter(np.zeros(self.c_out, dtype), "b") if bias else None

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, 1, self.c_in, self.name)
        y = ops.conv(x, self.w, bias=self.b, **self.options)
        return y if self.activation is None else self.activation(y)


class ConvTranspose(Layer):
    """Transposed convolution, the adjoint of Conv in its input: x [N, c_in, *spatial] -> [N, c_out, *larger].

    Options as in gd.conv_transpose.
    """

    def __init__(self, c_in: int, c_out: int, kernel: Any, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, ndim: int = 2) -> None:
        super().__init__(name)
        self.c_in, self.c_out, self.groups = checks.size(c_in, "c_in"), checks.size(c_out, "c_out"), checks.size(groups, "groups")
        if self.c_in % self.groups or self.c_out % self.groups:
            raise ShapeError(f"{c_in} and {c_out} channels do not divide into {groups} groups")
        self.kernel = _kernel(kernel, ndim)
        self.options = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation, "groups": self.groups}
        self.activation = activations.find(activation)
        dtype = checks.floating(dtype)
        self.w = self.parameter(_make(init, key, (self.c_in, self.c_out // self.groups, *self.kernel), dtype), "w")
        self.b = self.parameter(np.zeros(self.c_out, dtype), "b") if bias else None

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, 1, self.c_in, self.name)
        y = ops.conv_transpose(x, self.w, bias=self.b, **self.options)
        return y if self.activation is None else self.activation(y)


class MaxPool(Layer):
    """gd.max_pool as a layer."""

    def __init__(self, window: Any, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name)
        self.window, self.options = window, options

    def forward(self, x: Node, training: bool) -> Node:
        return ops.max_pool(x, self.window, **self.options)


class AvgPool(Layer):
    """gd.avg_pool as a layer."""

    def __init__(self, window: Any, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name)
        self.window, self.options = window, options

    def forward(self, x: Node, training: bool) -> Node:
        return ops.avg_pool(x, self.window, **self.options)


_make = init.make


def _kernel(kernel: Any, ndim: int) -> tuple[int, ...]:
    n = len(kernel) if isinstance(kernel, (tuple, list)) else checks.size(ndim, "ndim")
    if not 1 <= n <= 3:
        raise ShapeError(f"kernel: 1, 2 or 3 spatial axes, not {n}")
    return checks.sizes(kernel, n, "kernel")
