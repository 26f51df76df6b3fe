"""Activations by name."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import NodeTypeError
from ..graph.node import Node
from ..ops import activations, scan, unary

NAMED: dict[str, Callable[[Any], Node]] = {
    "relu": unary.relu, "tanh": unary.tanh, "sigmoid": unary.sigmoid, "softplus": unary.softplus, "silu": unary.silu,
    "log_sigmoid": unary.log_sigmoid, "exp": unary.exp, "leaky_relu": activations.leaky_relu, "elu": activations.elu,
    "selu": activations.selu, "celu": activations.celu, "gelu": activations.gelu, "hard_tanh": activations.hard_tanh,
    "softmax": scan.softmax, "log_softmax": scan.log_softmax,
}


def find(activation: Any) -> Callable[[Any], Any] | None:
    """None, a name, or a function of one node."""
    if activation is None or callable(activation):
        return activation
    if isinstance(activation, str):
        if activation in ("identity", "linear"):
            return None
        if activation in NAMED:
            return NAMED[activation]
    raise NodeTypeError(f"activation: {activation!r} is not a function, None, or one of {', '.join(NAMED)}")
