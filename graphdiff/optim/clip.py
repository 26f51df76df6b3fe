"""Gradient clipping, as expressions."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import FLOAT32, FLOAT64, PROMOTE, is_number, outside
from ..errors import ShapeError
from ..graph.build import node_list, public
from ..graph.node import Node
from ..ops.binary import divide, greater, less, logical_and, logical_or, maximum, minimum, multiply, where
from ..ops.families import cast
from ..ops.gradient import stop_gradient
from ..ops.reduction import max as max_of
from ..ops.reduction import sum as sum_of
from ..ops.unary import abs as absolute
from ..ops.unary import sqrt, square


def _nodes(gradients: Any) -> list[Node]:
    return node_list(gradients, "gradients")


def positive(value: Any, what: str) -> Any:
    """A number above 0 or a scalar node, as it is; None, where nothing is clipped, too."""
    if isinstance(value, Node):
        if value.shape != ():
            raise ShapeError(f"{what} is a number above 0, or a scalar node, not {value.spec}")
    elif value is not None and not (is_number(value) and value > 0):
        raise outside(value, f"{what} is a number above 0, or a scalar node, not {value!r}")
    return value


def _limit(value: Any) -> Any:
    if value is None:
        raise ShapeError("limit is a number above 0, or a scalar node, not None")
    return positive(value, "limit")


@public
def global_norm(gradients: Any) -> Node:
    """The Euclidean norm of all gradients taken as one vector, in their common dtype (float32 for float16)."""
    nodes = _nodes(gradients)
    if not nodes:
        raise ShapeError("there are no gradients")
    dtype = FLOAT32
    for g in nodes:
        dtype = PROMOTE[dtype, g.dtype]
    return cast(_norm(nodes), dtype)


def _norm(nodes: list[Node]) -> Node:
    """In float64, where squares of the smaller dtypes cannot overflow; those of float64 are scaled first if they would."""
    wide = [cast(g, FLOAT64) for g in nodes]
    largest: Any = None
    for g in nodes:
        if g.dtype is FLOAT64 and 0 not in g.shape:
            m = max_of(absolute(g)) if g.shape else absolute(g)
            largest = m if largest is None else maximum(largest, m)
    scale: Any = None
    if largest is not None:
        extreme = logical_or(logical_and(greater(largest, 1e145), less(largest, float("inf"))), logical_and(less(largest, 1e-145), greater(largest, 0.0)))
        scale = stop_gradient(where(extreme, largest, 1.0))      # the norm does not depend on it
    total: Any = None
    for g in wide:
        s = sum_of(square(g if scale is None else divide(g, scale)))
        total = s if total is None else total + s
    return sqrt(total) if scale is None else multiply(scale, sqrt(total))


@public
def clip_by_norm(gradients: Any, limit: Any) -> Any:
    """Gradients scaled together so that their common norm is at most `limit`; unchanged when it is less.

    gradients: a node or a list of nodes; the answer is alike. Source: Pascanu, Mikolov, Bengio 2013.
    """
    _limit(limit)
    nodes = _nodes(gradients)
    if not nodes:
        return []
    scale = divide(limit, maximum(_norm(nodes), limit))      # 1 up to the limit; a norm of 0 divides nothing
    clipped = [cast(multiply(cast(g, FLOAT64), scale), g.dtype) for g in nodes]      # the factor may be none of g's dtype
    return clipped[0] if isinstance(gradients, Node) else clipped


@public
def clip_by_value(gradients: Any, limit: Any) -> Any:
    """Gradients with every element held to [-limit, limit]. A node or a list of nodes; the answer is alike."""
    _limit(limit)
    clipped = [maximum(minimum(g, limit), -limit) for g in _nodes(gradients)]
    return clipped[0] if isinstance(gradients, Node) else clipped


def clipped(gradients: Sequence[Node], by_norm: Any, by_value: Any) -> Sequence[Node]:
    """Gradients clipped as an optimiser was told to."""
    if by_value is not None:
        gradients = clip_by_value(list(gradients), by_value)
    if by_norm is not None:
        gradients = clip_by_norm(list(gradients), by_norm)
    return gradients
