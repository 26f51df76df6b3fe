"""Indices that are moved inside before a gather: the kernel does it while it reads them.

What the nodes before the gather made then has no reader and is left out of the program.
"""
from __future__ import annotations

from ..dtypes import INT64
from ..graph.node import Node

CLIP, WRAP = 1, 2                        # what the kernel does with indices outside


def moved_inside(i: Node, size: int) -> tuple[Node, int]:
    """What i is before take(mode=..) moves it to the positions of an axis, and how it does; else itself and 0."""
    if size > 0 and i.dtype is INT64:
        if i.op.name == "maximum" and _is(i.inputs[1], 0) and i.inputs[0].op.name == "minimum" and _is(i.inputs[0].inputs[1], size - 1):
            return i.inputs[0].inputs[0], CLIP
        if i.op.name == "remainder" and _is(i.inputs[1], size):
            return i.inputs[0], WRAP
    return i, 0


def _is(x: Node, value: int) -> bool:
    return x.op.name == "constant" and x.shape == () and bool(x._attrs[0] == value)
