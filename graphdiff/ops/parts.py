"""Ops with several results: a node has one, so theirs is flat, the parts one after the other, each in C order.

The parts are cut out again as views, which cost nothing. Backward, what a consumer of one part sends arrives as a `place`
into zeros; `cotangents` takes it out of there, so that the zeros are never made.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.node import Node
from ..specs import nelements
from .binary import add
from .creation import zeros
from .joining import concatenate
from .movement import cut, ravel, reshape_to

Shapes = Sequence[tuple[Any, ...]]


def flat_size(shapes: Shapes) -> Any:
    total: Any = 0
    for shape in shapes:
        total = total + nelements(shape)
    return total


def flat(xs: Sequence[Node]) -> Node:
    """The parts as one flat node."""
    return concatenate([ravel(x) for x in xs], 0)


def parts(y: Node, shapes: Shapes) -> list[Node]:
    """The parts of a flat node."""
    result: list[Node] = []
    start: Any = 0
    for shape in shapes:
        n = nelements(shape)
        result.append(reshape_to(cut(y, 0, start, n), shape))
        start = start + n
    return result


def cotangents(g: Node, shapes: Shapes) -> list[Node | None]:
    """The parts of the cotangent of a flat node; None for one to which nothing was sent."""
    starts: list[Any] = []
    start: Any = 0
    for shape in shapes:
        starts.append(start)
        start = start + nelements(shape)
    result: list[Node | None] = [None] * len(shapes)
    stack = [g]
    while stack:
        node = stack.pop()
        if node.op == "add" and all(x.shape == g.shape for x in node.inputs):
            stack += reversed(node.inputs)
            continue
        found = _placed(node, starts, shapes)
        for i, shape in enumerate(shapes) if found is None else [found]:
            piece = node.inputs[0] if found is not None else cut(node, 0, starts[i], nelements(shape))
            piece = reshape_to(piece, shape)
            old = result[i]
            result[i] = piece if old is None else add(old, piece)
    return result


def _placed(node: Node, starts: Sequence[Any], shapes: Shapes) -> tuple[int, tuple[Any, ...]] | None:
    """The number and shape of the part that `node` is, among zeros."""
    if node.op != "place":
        return None
    _, at, steps, fill = node._attrs
    if fill != 0 or steps != (1,):
        return None
    for i, (start, shape) in enumerate(zip(starts, shapes, strict=True)):
        if at[0] == start and node.inputs[0].shape[0] == nelements(shape):
            return i, shape
    return None


def or_zeros(x: Node | None, shape: tuple[Any, ...], dtype: Any) -> Node:
    return zeros(shape, dtype) if x is None else x
