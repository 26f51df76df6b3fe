"""unturned: what is computed elementwise from transposed arrays, and then reduced in whatever order, is computed as the arrays lie.

    any(x.T > 9)    is    any((x > 9).T)

An elementwise kernel writes its result in the order of its axes, and would read such operands across memory. Reductions whose result does
not depend on the order of the elements read theirs as it lies. Every bit stays: sums of floats, whose order is that of the axes, are no such
reductions, and nodes that anything else reads are left as they are.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed

ANY_ORDER = frozenset(("all", "any", "count_nonzero", "exact_sum", "max", "min", "wide_sum"))
WHOLE_NUMBERS = frozenset(("prod", "sum"))              # in any order where they are integers


def _in_any_order(node: Node) -> bool:
    """Sums and products of integers where everything is reduced: of some axes, casts are all there mostly is to turn, which take less time
    across memory than additions of lines apart."""
    whole = node.op.name in WHOLE_NUMBERS and node.dtype.kind != "f" and len(node._attrs[0]) == node.inputs[0].ndim
    return whole or node.op.name in ANY_ORDER


def _free(order: Sequence[Node], outputs: Sequence[Node]) -> set[int]:
    """Ids of the elementwise nodes that only such reductions read, or other such nodes."""
    seen, bound = set(), {id(o) for o in outputs}
    for node in reversed(order):
        name = id(node)
        if _in_any_order(node):
            seen.update([id(x) for x in node.inputs])
        elif node.op.family == "elementwise" and name in seen and name not in bound:
            seen.update([id(x) for x in node.inputs])
        else:
            bound.update([id(x) for x in node.inputs])
    return {id(node) for node in order if node.op.family == "elementwise" and id(node) in seen and id(node) not in bound}


def single(x: Node) -> Node | None:
    """What is the same for every element: an array of one element, or the broadcast of one; else None."""
    while x.op.name == "broadcast_to" and x.size != 1:
        x = x.inputs[0]
    return x if x.size == 1 else None


def _turn(node: Node) -> tuple[Node, Node] | None:
    """The node made of operands as they lie, and its transpose; None where they are not all transposed in one way."""
    axes, inputs = None, []
    for x in node.inputs:
        if x.op.name == "transpose" and x.shape == node.shape and axes in (None, x._attrs[0]):
            axes = x._attrs[0]
            inputs.append(x.inputs[0])
        else:
            number = single(x)
            if number is None:
                return None
            inputs.append(number)
    if axes is None or node.size == 1:
        return None
    shape = next(x.shape for x, y in zip(inputs, node.inputs, strict=True) if y.op.name == "transpose" and y.inputs[0] is x)
    facts = (node.dtype, node._site, node.origin, node.name, node.scope, node.serial)
    made = new_node(node.op, tuple(inputs), node._attrs, shape, *facts)
    return made, new_node(lookup("transpose"), (made,), (axes,), node.shape, *facts)


def unturned(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Transposes behind the free elementwise nodes that they come before."""
    if not any(_in_any_order(node) for node in order) or not any(node.op.name == "transpose" for node in order):
        return list(order), list(outputs)
    free = _free(order, outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    for node in order:
        here = renewed(node, new)
        better = _turn(here) if id(node) in free else None
        if better is not None:
            kept.extend(better)
            here = better[1]
        else:
            kept.append(here)
        new[id(node)] = here
    return kept, [new[id(o)] for o in outputs]
