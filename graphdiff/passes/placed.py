"""placed: what is zero but for a part is added where that part is.

    x + place(y)    is    x.at[part].add(y)

The gradient of an array that is read part by part is such a sum: a term for every part, each of the size of the whole. So it costs as much as
the parts do, since nobody else needs the sum before, which the memory plan lets be written over. Only the sign of zeros outside of the part
can differ: -0.0 stays what it is.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed

# The whole is at least so many times as large as the part, or both terms are about as quickly added: of runs in memory, or of single elements.
RUNS, APART, RUN_NBYTES = 2, 16, 64


def _is_placed(node: Node, uses: dict[int, int]) -> bool:
    """A part among zeros, which one node reads."""
    if node.op.name != "place" or node._attrs[-1] != 0 or uses[id(node)] != 1:
        return False
    part = node.inputs[0]
    run = part.shape[-1] * part.dtype.itemsize if part.shape and abs(node._attrs[2][-1]) == 1 else part.dtype.itemsize
    return bool(part.size * (RUNS if run >= RUN_NBYTES or part.size == 1 else APART) <= node.size)


def placed(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Sums with such a term as additions to a part of the other term. Sizes are numbers."""
    if not any(node.op.name == "place" for node in order):
        return list(order), list(outputs)
    uses: dict[int, int] = {}
    for node in order:
        for x in node.inputs:
            uses[id(x)] = uses.get(id(x), 0) + 1
    for o in outputs:
        uses[id(o)] = uses.get(id(o), 0) + 1
    new: dict[int, Node] = {}
    kept: list[Node] = []
    for node in order:
        here = renewed(node, new)
        if node.op.name == "add" and node.dtype.kind == "f":
            x, y = node.inputs
            if _is_placed(x, uses) and not _is_placed(y, uses):
                x, y = y, x
            if x is not y and x.shape == node.shape == y.shape and _is_placed(y, uses):
                _, starts, steps, _ = y._attrs
                here = new_node(lookup("slice_add"), (new[id(x)], new[id(y)].inputs[0]), (starts, steps), node.shape, node.dtype, node._site,
                                node.origin, node.name, node.scope, node.serial)
        new[id(node)] = here
        kept.append(here)
    return kept, [new[id(o)] for o in outputs]
