"""The order in which nodes run: as they were made or, where that needs clearly less memory, depth first."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from math import prod
from typing import Any

from ..graph.node import Node
from ..graph.opdef import OpDef
from ..graph.walk import toposort
from ..passes.simplify import VIEWS

SHOWN = VIEWS | {"stop_gradient"}       # the memory of their operand
LEAST = 1 << 20          # bytes at once, from which on another order is looked for
BEYOND = 1 << 40         # bytes that no machine has: nothing is looked for there
MOST = 50_000            # nodes up to which it is
ORDER_VIEW, ORDER_ELEMENTWISE = 1, 2     # csrc/include/graphdiff.h
CLEARLY = 0.9            # of the bytes at once: the user's own order stays unless another one needs no more than that part

# Called with first, operands, bytes, flags, outputs, least bytes; gives the bytes at once in the order given, another order or None, and its
# bytes at once.
Find = Callable[[list[int], list[int], list[int], bytes, list[int], int], tuple[int, Sequence[int] | None, int]]


def schedule(outputs: Sequence[Node], find: Find) -> list[Node]:
    """Nodes in running order: inputs before users. find: the core's search for another order (runtime.native.order).

    The order in which they were made is the one the user wrote, and of a gradient it frees what it has used. But of
    parts that are made first and added up later all are there at once; depth first, each is used as soon as it is made.
    """
    made = toposort(outputs)
    if len(made) > MOST:
        return made
    nbytes = _sizes(made, outputs)
    if not LEAST <= sum(nbytes) < BEYOND:
        return made
    number = dict(zip(made, range(len(made)), strict=True))
    inputs = [n.inputs for n in made]
    needed, deep, deep_needed = find([*accumulate(map(len, inputs), initial=0)], [*map(number.__getitem__, chain.from_iterable(inputs))], nbytes,
                                     bytes([_flags(n.op) for n in made]), [number[o] for o in outputs], LEAST)
    return [made[i] for i in deep] if deep is not None and deep_needed < CLEARLY * needed else made


def _flags(op: OpDef) -> int:
    """What the core knows of an op: whether its result is its operand's memory, and whether it may write over an operand."""
    return (ORDER_VIEW if op.name in SHOWN else 0) | (ORDER_ELEMENTWISE if op.family == "elementwise" else 0)


def _sizes(order: Sequence[Node], outputs: Sequence[Node]) -> list[int]:
    """Bytes of the arena that nodes take: none for views of others, what the caller has, and results, which lie in his arrays."""
    outside = set(outputs)
    counts: dict[Any, int] = {}              # a graph has few shapes
    found = []
    for n in order:
        op, shape = n.op, n.shape
        if op.family == "leaf" or op.name in SHOWN or n in outside:
            found.append(0)
            continue
        count = counts.get(shape)
        if count is None:
            count = counts[shape] = int(prod(shape))
        found.append(count * n.dtype.itemsize)
    return found
