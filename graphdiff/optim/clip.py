"""Gradient clipping, as expressions."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import FLOAT16, FLOAT32, is_number
from ..errors import NodeTypeError, ShapeError
from ..graph.build import public
from ..graph.node import Node
from ..ops.binary import divide, maximum, minimum, multiply
from ..ops.families import cast
from ..ops.reduction import sum as sum_of
from ..ops.unary import sqrt, square


def _nodes(gradients: Any) -> list[Node]:
    nodes = [gradients] if isinstance(gradients, Node) else list(gradients)
    for g in nodes:
        if not isinstance(g, Node):
            raise NodeTypeError(f"gradients are nodes, not {type(g).__name__}")
    return nodes


def _positive(value: Any, what: str) -> Any:
    if not isinstance(value, Node) and not (is_number(value) and value > 0):
        raise ShapeError(f"{what} is a number above 0, or a node, not {value!r}")
    return value


@public
def global_norm(gradients: Any) -> Node:
    """The Euclidean norm of all gradients taken as one vector."""
    nodes = _nodes(gradients)
    if not nodes:
        raise ShapeError("there are no gradients")
    total: Any = None
    for g in nodes:
        s = sum_of(square(cast(g, FLOAT32) if g.dtype is FLOAT16 else g))      # squares of float16 overflow from 256 on
        total = s if total is None else total + s
    return sqrt(total)


@public
def clip_by_norm(gradients: Any, limit: Any) -> Any:
    """Gradients scaled together so that their common norm is at most `limit`; unchanged when it is less.

    gradients: a node or a list of nodes; the answer is alike. Source: Pascanu, Mikolov, Bengio 2013.
    """
    _positive(limit, "limit")
    nodes = _nodes(gradients)
    if not nodes:
        return []
    norm = global_norm(nodes)
    scale = divide(limit, maximum(norm, limit))      # 1 up to the limit; a norm of 0 divides nothing
    clipped = [multiply(g, cast(scale, g.dtype)) for g in nodes]
    return clipped[0] if isinstance(gradients, Node) else clipped


@public
def clip_by_value(gradients: Any, limit: Any) -> Any:
    """Gradients with every element held to [-limit, limit]. A node or a list of nodes; the answer is alike."""
    _positive(limit, "limit")
    clipped = [maximum(minimum(g, limit), -limit) for g in _nodes(gradients)]
    return clipped[0] if isinstance(gradients, Node) else clipped


def clipped(gradients: Sequence[Node], by_norm: Any, by_value: Any) -> Sequence[Node]:
    """Gradients clipped as an optimiser was told to."""
    if by_value is not None:
        gradients = clip_by_value(list(gradients), by_value)
    if by_norm is not None:
        gradients = clip_by_norm(list(gradients), by_norm)
    return gradients
