"""unturned: what is computed elementwise from transposed arrays, and then reduced in whatever order, is computed as the arrays lie.

    any(x.T > 9)    is    any((x > 9).T)
    sum(x.T ** 2)   is    sum(x ** 2)         with summed=True

An elementwise kernel writes its result in the order of its axes, and would read such operands across memory. Reductions whose result does
not depend on the order of the elements read theirs as it lies: every bit stays, and nodes that anything else reads are left as they are.
Sums of floats go by the order of their axes. One order is as right as another, but not the same bits, so that those are a part of
stable_forms: they are then taken in the order of memory, where what is kept stays in its own.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed, sooner

ANY_ORDER = frozenset(("all", "any", "count_nonzero", "exact_sum", "max", "min", "wide_sum"))
WHOLE_NUMBERS = frozenset(("prod", "sum"))              # in any order where they are integers
IN_ORDER = frozenset(("logsumexp", "prod", "sum"))      # of floats
REDUCED = ANY_ORDER | WHOLE_NUMBERS


def _in_any_order(node: Node) -> bool:
    """Sums and products of integers where everything is reduced: of some axes, casts are all there mostly is to turn, which take less time
    across memory than additions of lines apart."""
    whole = node.op.name in WHOLE_NUMBERS and node.dtype.kind != "f" and len(node._attrs[0]) == node.inputs[0].ndim
    return whole or node.op.name in ANY_ORDER


def _in_memory(node: Node, order: tuple[int, ...]) -> bool:
    """Does a reduction of floats go by another order than that of memory, if its operand is a transpose by `order`, and what it keeps not?"""
    axes, shape = node._attrs[0], node.inputs[0].shape
    reduced = [order[a] for a in axes if shape[a] != 1]
    kept = [a for k, a in enumerate(order) if k not in axes and shape[k] != 1]
    return reduced != sorted(reduced) and kept == sorted(kept)


def _summed(order: Sequence[Node]) -> set[int]:
    """Ids of the reductions of floats of transposes, or of what is elementwise made of them, that are to be taken in the order of memory."""
    turns: dict[Node, tuple[int, ...]] = {}
    found = set()
    for node in order:
        if node.op.name == "transpose":
            turns[node] = node._attrs[0]
        elif node.op.family == "elementwise":
            for x in node.inputs:
                if x in turns and x.shape == node.shape:
                    turns[node] = turns[x]
                    break
        elif node.op.name in IN_ORDER and node.dtype.kind == "f":
            turn = turns.get(node.inputs[0])
            if turn is not None and _in_memory(node, turn):
                found.add(id(node))
    return found


def _free(order: Sequence[Node], outputs: Sequence[Node], summed: Collection[int]) -> set[int]:
    """Ids of the elementwise nodes that only such reductions read, or other such nodes."""
    seen, bound = set(), {id(o) for o in outputs}
    for node in reversed(order):
        name = id(node)
        if name in summed or _in_any_order(node):
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


def _facts(node: Node, serial: float | None = None) -> tuple[Any, ...]:
    return node.dtype, node._site, node.origin, node.name, node.scope, node.serial if serial is None else serial


def _turn(node: Node) -> list[Node]:
    """The node made of operands as they lie, after those that are turned back, and its transpose; none where not all are transposed in one way.
    What is spread along axes, like means that are taken off, may lie in whatever way."""
    axes = next((x._attrs[0] for x in node.inputs if x.op.name == "transpose" and x.shape == node.shape), None)
    if axes is None or node.size == 1:
        return []
    back, made, inputs = tuple(sorted(range(len(axes)), key=axes.__getitem__)), [], []
    for x in node.inputs:
        if x.op.name == "transpose" and x.shape == node.shape and x._attrs[0] == axes:
            inputs.append(x.inputs[0])
            continue
        number = single(x)
        if number is None:
            if x.shape == node.shape or len(x.shape) != len(axes):
                return []
            shape = tuple([x.shape[a] for a in back])
            number = new_node(lookup("transpose"), (x,), (back,), shape, x.dtype, node._site, node.origin, None, node.scope, sooner(node, node.inputs))
            made.append(number)
        inputs.append(number)
    made.append(new_node(node.op, tuple(inputs), node._attrs, tuple([node.shape[a] for a in back]), *_facts(node, sooner(node, [*node.inputs, *made]))))
    made.append(new_node(lookup("transpose"), (made[-1],), (axes,), node.shape, *_facts(node)))
    return made


def _reduce(node: Node) -> list[Node]:
    """A reduction of a transpose as one of what lies in memory, and its shape if that is another."""
    (x,) = node.inputs
    if x.op.name != "transpose" or not _in_memory(node, x._attrs[0]):
        return []
    y, axes = x.inputs[0], tuple(sorted([x._attrs[0][a] for a in node._attrs[0]]))
    kept = tuple([n for a, n in enumerate(y.shape) if a not in axes])
    made = [new_node(node.op, (y,), (axes, False), kept, *_facts(node, None if kept == node.shape else sooner(node, node.inputs)))]
    if kept != node.shape:
        made.append(new_node(lookup("reshape"), (made[0],), (node.shape,), node.shape, *_facts(node)))
    return made


def unturned(order: Sequence[Node], outputs: Sequence[Node], *, summed: bool = False) -> Ordered:
    """Transposes behind the free elementwise nodes that they come before. summed: out of sums of floats as well, which changes bits."""
    if not any(node.op.name == "transpose" for node in order):
        return list(order), list(outputs)
    floats = _summed(order) if summed else set()
    if not floats and (summed or not any(_in_any_order(node) for node in order if node.op.name in REDUCED)):
        return list(order), list(outputs)
    free = _free(order, outputs, floats)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    for node in order:
        here = renewed(node, new)
        made = _turn(here) if id(node) in free else _reduce(here) if id(node) in floats else []
        kept.extend(made or [here])
        new[id(node)] = kept[-1]
    return kept, [new[id(o)] for o in outputs]
