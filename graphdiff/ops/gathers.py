"""Indices that are moved inside before a gather, or of which none may count from the end: the kernel sees to it while it reads them.

What the nodes before it made then has no reader and is left out of the program.
"""
from __future__ import annotations

from ..dtypes import INT64
from ..graph.node import Node
from ..graph.opdef import NEVER

CLIP, WRAP, FROM_ZERO = 1, 2, 3          # what the kernel does with indices outside: to the ends, on from the other end; refuse negative ones


def moved_inside(i: Node, size: int) -> tuple[Node, int]:
    """What i is before take(mode=..) moves it to the positions of an axis, and how it does; else as written()."""
    if size > 0 and i.dtype is INT64:
        if i.op.name == "maximum" and _is(i.inputs[1], 0) and i.inputs[0].op.name == "minimum" and _is(i.inputs[0].inputs[1], size - 1):
            return i.inputs[0].inputs[0], CLIP
        if i.op.name == "remainder" and _is(i.inputs[1], size):
            return i.inputs[0], WRAP
    return written(i)


def written(i: Node) -> tuple[Node, int]:
    """What i is before from_zero (indexing.py) makes negative ones unfit, and FROM_ZERO; else itself and 0."""
    if i.op.name == "where" and i.dtype is INT64:
        negative, unfit, j = i.inputs
        if (negative.op.name == "less" and negative.inputs[0] is j and _is(negative.inputs[1], 0)
                and unfit.op.name == "subtract" and unfit.inputs[0] is j and _is(unfit.inputs[1], NEVER)):
            return j, FROM_ZERO
    return i, 0


def _is(x: Node, value: int) -> bool:
    return x.op.name == "constant" and x.shape == () and bool(x._attrs[0] == value)
