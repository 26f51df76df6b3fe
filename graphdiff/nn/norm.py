"""Normalisation layers: scale gamma starts at 1, shift beta at 0."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import is_number, outside
from ..errors import ShapeError
from ..graph.node import Node
from ..ops import activations as ops
from ..ops.binary import greater, where
from ..ops.creation import size
from ..ops.families import cast
from ..ops.joining import concatenate
from ..ops.movement import expand_dims, reshape_to
from ..ops.reduction import prod
from ..ops.unary import reciprocal, sqrt
from ..specs import check_memory, nelements
from . import checks
from .layer import Layer


class _Norm(Layer):
    def __init__(self, shape: tuple[int, ...], scale: bool, shift: bool, eps: float, dtype: Any, name: str | None) -> None:
        super().__init__(name)
        if not is_number(eps) or not 0 < eps < float("inf"):
            raise outside(eps, f"eps is a number above 0, not {eps!r}")
        self.eps = float(eps)
        dtype = checks.floating(dtype)
        check_memory(shape, dtype)
        self.gamma = self.parameter(np.ones(shape, dtype), "gamma") if checks.flag(scale, "scale") else None
        self.beta = self.parameter(np.zeros(shape, dtype), "beta") if checks.flag(shift, "shift") else None


class BatchNorm(_Norm):
    """(x - mean) / sqrt(var + eps) gamma + beta over every axis but 1: x [N, n, ..].

    Training uses this batch's statistics and asks, through `updates()`, for running averages: momentum is the share of the
    new batch (its variance unbiased, as PyTorch's). Otherwise the running averages are used. Source: Ioffe, Szegedy 2015.

    Of one number a channel nothing can be learned. A training batch that is known to have no more is a ShapeError. One of a named
    size that turns out so, such as the last batch of an epoch, leaves the averages as they are and gives beta, with no
    derivative (PyTorch raises there): `drop_last=True` of gd.data.batches keeps such batches out.
    """

    def __init__(self, n: int, *, momentum: float = 0.1, eps: float = 1e-5, scale: bool = True, shift: bool = True, dtype: Any = "float32",
                 name: str | None = None) -> None:
        self.n = checks.size(n, "n")
        super().__init__((self.n,), scale, shift, eps, dtype, name)
        if not is_number(momentum) or not 0 <= momentum <= 1:
            raise outside(momentum, f"momentum is a number from 0 to 1, not {momentum!r}")
        self.momentum = float(momentum)
        self.mean = self.state(np.zeros(self.n, checks.floating(dtype)), "mean")
        self.var = self.state(np.ones(self.n, checks.floating(dtype)), "var")

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, 1, self.n, self.name)
        if training:
            axes = (0, *range(2, x.ndim))
            count = nelements(tuple(x.shape[a] for a in axes))
            if isinstance(count, int) and count < 2:
                raise ShapeError(f"{self.name}: training needs at least two numbers a channel, the input is {x.spec}")
            # The moments that batch_norm takes: equal nodes, of which a program has one.
            inner, _ = ops.entered(x)
            _, m, v = ops.moments(inner, axes)
            n = count if isinstance(count, int) else cast(prod(concatenate([expand_dims(size(x, a), 0) for a in axes], 0)), inner.dtype)
            v = v * (n / (n - 1))
            for state, new in ((self.mean, m), (self.var, v)):
                old = self.latest(state)
                new = (1.0 - self.momentum) * old + self.momentum * cast(reshape_to(new, (self.n,)), state.dtype)
                # The spread of one number is unknown: a batch whose size is only known when it runs may not spoil the averages.
                self.later(state, new if isinstance(n, int) else where(greater(n, 1), new, old))
            return ops.batch_norm(x, self.gamma, self.beta, eps=self.eps)
        shape = (1, self.n, *(1,) * (x.ndim - 2))
        y = (x - reshape_to(self.mean, shape)) * reshape_to(reciprocal(sqrt(self.var + self.eps)), shape)
        if self.gamma is not None:
            y = y * reshape_to(self.gamma, shape)
        return y if self.beta is None else y + reshape_to(self.beta, shape)


class LayerNorm(_Norm):
    """Mean and variance over the last axis, or the last axes of the given sizes. Source: Ba, Kiros, Hinton 2016."""

    def __init__(self, shape: Any, *, eps: float = 1e-5, scale: bool = True, shift: bool = True, dtype: Any = "float32",
                 name: str | None = None) -> None:
        if isinstance(shape, (tuple, list)) and not shape:
            raise ShapeError("shape names no axis")
        self.shape = checks.sizes(shape, len(shape) if isinstance(shape, (tuple, list)) else 1, "shape")
        super().__init__(self.shape, scale, shift, eps, dtype, name)

    def forward(self, x: Node, training: bool) -> Node:
        for i, n in enumerate(self.shape):
            checks.features(x, i - len(self.shape), n, self.name)
        return ops.layer_norm(x, self.gamma, self.beta, axis=tuple(range(-len(self.shape), 0)), eps=self.eps)


class GroupNorm(_Norm):
    """gd.group_norm with scale and shift: x [N, n, ..] in `groups` groups of channels. Source: Wu, He 2018."""

    def __init__(self, groups: int, n: int, *, eps: float = 1e-5, scale: bool = True, shift: bool = True, dtype: Any = "float32",
                 name: str | None = None) -> None:
        self.groups, self.n = checks.size(groups, "groups"), checks.size(n, "n")
        if self.n % self.groups:
            raise ShapeError(f"{n} channels do not divide into {groups} groups")
        super().__init__((self.n,), scale, shift, eps, dtype, name)

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, 1, self.n, self.name)
        return ops.group_norm(x, self.groups, self.gamma, self.beta, eps=self.eps)


class RMSNorm(_Norm):
    """x / sqrt(mean(x x) + eps) gamma over the last axis. Source: Zhang, Sennrich 2019."""

    def __init__(self, n: int, *, eps: float = 1e-5, scale: bool = True, dtype: Any = "float32", name: str | None = None) -> None:
        self.n = checks.size(n, "n")
        super().__init__((self.n,), scale, False, eps, dtype, name)

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, -1, self.n, self.name)
        return ops.rms_norm(x, self.gamma, eps=self.eps)
