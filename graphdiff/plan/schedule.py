"""The order in which nodes run: as they were made or, where that needs clearly less memory, depth first."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

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
    if sum(nbytes) < LEAST:
        return made
    graph = _Numbered(made, outputs, nbytes)
    needed = graph.peak(range(len(made)))
    if needed < LEAST:
        return made
    deep = graph.depth_first()
    return [made[i] for i in deep] if graph.peak(deep) < CLEARLY * needed else made


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


class _Numbered:
    """Nodes by their number in the order in which they were made."""

    def __init__(self, made: Sequence[Node], outputs: Sequence[Node], nbytes: Sequence[int]) -> None:
        self.made, self.outputs, self.nbytes = made, outputs, nbytes
        self.elementwise = [n.op.family == "elementwise" for n in made]
        self.reads: list[Sequence[int]] = []     # the memory in the arena that a node reads, each once
        owner: dict[Node, int] = {}              # whose memory it is: a node's own, or of a view that of what it shows
        own = owner.__getitem__
        for i, n in enumerate(made):
            inputs = n.inputs
            owner[n] = i
            if len(inputs) == 1:
                b = owner[inputs[0]]
                self.reads.append((b,) if nbytes[b] else ())
                if n.op.name in SHOWN:
                    owner[n] = b
            else:
                self.reads.append([b for b in set(map(own, inputs)) if nbytes[b]] if inputs else ())

    def peak(self, order: Sequence[int]) -> int:
        """The bytes that are there at once at most, about: an elementwise operation may write over an operand that dies with it."""
        nbytes, reads, elementwise = self.nbytes, self.reads, self.elementwise
        last = [-1] * len(order)
        for at, i in enumerate(order):
            for b in reads[i]:
                last[b] = at
        now = most = 0
        for at, i in enumerate(order):
            own, dying = nbytes[i], 0
            for b in reads[i]:
                if last[b] == at:
                    dying += nbytes[b]
            here = now + own
            now = here - dying
            if elementwise[i] and dying:
                here = max(now, here - own)
            if here > most:
                most = here
            if own and last[i] < 0:              # nobody reads it
                now -= own
        return most

    def depth_first(self) -> list[int]:
        """Operands right before what uses them; of several, first the one that needs most beside what it leaves (Sethi, Ullman 1970)."""
        nbytes = self.nbytes
        number = dict(zip(self.made, range(len(self.made)), strict=True))
        get = number.__getitem__
        needs: list[int] = []
        frees: list[int] = []                    # what it needs beside what it leaves
        first: list[list[int]] = []
        for own, n in zip(nbytes, self.made, strict=True):
            operands = list(map(get, n.inputs))
            if len(operands) == 1:
                x, = operands
                most, held = needs[x], nbytes[x]
            else:
                if len(operands) == 2:
                    a, b = operands
                    operands = [a] if a == b else [b, a] if frees[b] > frees[a] else operands
                elif operands:
                    operands = sorted(dict.fromkeys(operands), key=frees.__getitem__, reverse=True)
                held = most = 0
                for x in operands:
                    if held + needs[x] > most:
                        most = held + needs[x]
                    held += nbytes[x]
            if held + own > most:
                most = held + own
            needs.append(most)
            frees.append(most - own)
            first.append(operands)
        done = bytearray(len(needs))
        order: list[int] = []
        stack = [number[o] for o in reversed(self.outputs)]
        while stack:
            i = stack.pop()
            if i < 0:                            # its operands are done
                i = ~i
            elif done[i]:
                continue
            elif first[i]:
                stack.append(~i)
                stack.extend([x for x in reversed(first[i]) if not done[x]])
                continue
            if not done[i]:
                done[i] = 1
                order.append(i)
        return order
