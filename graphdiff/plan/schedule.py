"""The order in which nodes run: as they were made or, where that needs clearly less memory, depth first."""
from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Node
from ..graph.walk import toposort
from ..passes.simplify import VIEWS

SHOWN = VIEWS | {"stop_gradient"}       # the memory of their operand
LEAST = 1 << 20          # bytes at once, from which on another order is looked for
MOST = 50_000            # nodes up to which it is
CLEARLY = 0.9            # of the bytes at once: the user's own order stays unless another one needs no more than that part


def schedule(outputs: Sequence[Node]) -> list[Node]:
    """Nodes in running order: inputs before users.

    The order in which they were made is the one the user wrote, and of a gradient it frees what it has used. But of
    parts that are made first and added up later all are there at once; depth first, each is used as soon as it is made.
    """
    made = toposort(outputs)
    if len(made) > MOST:
        return made
    nbytes = _sizes(made, outputs)
    most = sum(nbytes.values())
    if most < LEAST:
        return made
    needed = _peak(made, nbytes)
    if needed < LEAST:
        return made
    deep = _depth_first(outputs, made, nbytes)
    return deep if _peak(deep, nbytes) < CLEARLY * needed else made


def _sizes(order: Sequence[Node], outputs: Sequence[Node]) -> dict[int, int]:
    """id(node) -> bytes of the arena it takes: none for views of others, what the caller has, and results, which lie in his arrays."""
    outside = {id(o) for o in outputs}
    return {id(n): 0 if n.op.family == "leaf" or n.op.name in SHOWN or id(n) in outside else int(n.size) * n.dtype.itemsize for n in order}


def _owners(order: Sequence[Node]) -> dict[int, int]:
    """id(node) -> id of the node whose memory it is: its own, or of a view that of what it shows."""
    owner: dict[int, int] = {}
    for n in order:
        owner[id(n)] = owner[id(n.inputs[0])] if n.op.name in SHOWN and n.inputs else id(n)
    return owner


def _peak(order: Sequence[Node], nbytes: dict[int, int]) -> int:
    """The bytes that are there at once at most, about: an elementwise operation may write over an operand that dies with it."""
    owner = _owners(order)
    last: dict[int, int] = {}
    for i, n in enumerate(order):
        for x in n.inputs:
            last[owner[id(x)]] = i
    now = most = 0
    for i, n in enumerate(order):
        dying = sum([nbytes[b] for b in {owner[id(x)] for x in n.inputs} if last[b] == i])
        own = nbytes[id(n)]
        if n.op.family == "elementwise":
            now -= dying
            most = max(most, now + max(own, dying))
            now += own
        else:
            now += own
            most = max(most, now)
            now -= dying
        if own and id(n) not in last:        # nobody reads it
            now -= own
    return most


def _depth_first(outputs: Sequence[Node], made: Sequence[Node], nbytes: dict[int, int]) -> list[Node]:
    """Operands right before what uses them; of several, first the one that needs most beside what it leaves (Sethi, Ullman 1970)."""
    needs: dict[int, int] = {}
    first: dict[int, list[Node]] = {}
    for n in made:
        operands = list({id(x): x for x in n.inputs}.values())
        if len(operands) > 1:
            operands.sort(key=lambda x: nbytes[id(x)] - needs[id(x)])
        held = most = 0
        for x in operands:
            most = max(most, held + needs[id(x)])
            held += nbytes[id(x)]
        needs[id(n)] = max(most, held + nbytes[id(n)])
        first[id(n)] = operands
    done: set[int] = set()
    order: list[Node] = []
    stack = [(n, False) for n in reversed(outputs)]
    while stack:
        n, ready = stack.pop()
        if id(n) in done:
            continue
        if ready or not n.inputs:
            done.add(id(n))
            order.append(n)
            continue
        stack.append((n, True))
        stack.extend([(x, False) for x in reversed(first[id(n)]) if id(x) not in done])
    return order
