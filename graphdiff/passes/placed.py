"""placed: what is zero but for a part is added where that part is.

    x + place(y)    is    x.at[part].add(y)

The gradient of an array that is read part by part is such a sum: a term for every part, each of the size of the whole. So it costs as much as
the parts do, since nobody else needs the sum before, which the memory plan lets be written over. Only the sign of zeros outside of the part
can differ: -0.0 stays what it is.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed, sooner

# The whole is at least so many times as large as the part, or both terms are about as quickly added: of runs in memory, or of single elements.
# Beside another part, which is put among zeros anyway, runs of any size are.
RUNS, APART, RUN_NBYTES = 2, 16, 64


def _is_sooner(part: Node, other: Node) -> bool:
    """Is a part sooner added where it is than as an array of the size of the other term?"""
    x, step = part.inputs[0], part._attrs[2]
    run = x.shape[-1] * x.dtype.itemsize if x.shape and abs(step[-1]) == 1 else x.dtype.itemsize
    least = APART if run < RUN_NBYTES and x.size > 1 else 1 if other.op.name == "place" else RUNS
    return bool(x.size * least <= part.size)


def placed(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Sums with such a term as additions to a part of the other term; two of the same part are added before. Sizes are numbers."""
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

    def made(op: str, inputs: tuple[Node, ...], attrs: tuple[Any, ...], shape: Any, node: Node, serial: float | None = None) -> Node:
        serial = node.serial if serial is None else serial
        kept.append(new_node(lookup(op), inputs, attrs, shape, node.dtype, node._site, node.origin, node.name, node.scope, serial))
        return kept[-1]

    def is_part(x: Node) -> bool:
        """Is it a part among zeros, which this node alone reads?"""
        here = new[id(x)]
        return here.op.name == "place" and here._attrs[-1] == 0 and uses[id(x)] == 1

    for node in order:
        if node.op.name != "add" or node.dtype.kind != "f" or not node.inputs[0].shape == node.shape == node.inputs[1].shape:
            new[id(node)] = renewed(node, new)
            kept.append(new[id(node)])
            continue
        x, y = [new[id(x)] for x in node.inputs]
        x_is, y_is = [is_part(x) for x in node.inputs]
        if x_is and y_is and x._attrs == y._attrs and x.inputs[0].shape == y.inputs[0].shape:
            part = x.inputs[0]
            new[id(node)] = made("place", (made("add", (part, y.inputs[0]), (), part.shape, node, sooner(node, (x, y))),), x._attrs, node.shape, node)
            continue
        if x_is and not (y_is and y.inputs[0].size <= x.inputs[0].size):
            x, y, y_is = y, x, True
        if y_is and _is_sooner(y, x):
            _, starts, steps, _ = y._attrs
            new[id(node)] = made("slice_add", (x, y.inputs[0]), (starts, steps), node.shape, node)
        else:
            new[id(node)] = renewed(node, new)
            kept.append(new[id(node)])
    return kept, [new[id(o)] for o in outputs]
