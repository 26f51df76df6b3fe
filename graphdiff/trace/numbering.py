"""The rows of a trace: which nodes have one, in which order, and what they are called."""
from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from ..graph.node import Node
from .formula import Name, inlined


def number(order: Sequence[Node], first: Sequence[Node], root: Node | None = None) -> list[tuple[Node, int | None]]:
    """Nodes with rows (root always has one), in the order of rows, with their index: leaves first (`first` before others), then level by level.

    Consumers of one node keep the order in which the sweep meets them, so that reading the table upwards is reading
    the contributions in the order in which they were added.
    """
    here = {id(n) for n in order}
    rank = {id(n): i for i, n in enumerate(first)}
    leaves = [n for n in order if n.op.name in ("input", "variable")]
    leaves.sort(key=lambda n: rank.get(id(n), len(rank)))
    out: list[tuple[Node, int | None]] = [(n, None) for n in order if (n.op.name == "constant" and not inlined(n))
                                             or (n is root and inlined(n))]
    out += [(n, i + 1 - len(leaves)) for i, n in enumerate(leaves)]
    level: dict[int, int] = {}
    position = {id(n): i for i, n in enumerate(order)}
    after: dict[int, list[Node]] = {}
    waits = dict.fromkeys(here, 0)
    for n in order:
        level[id(n)] = 1 + max([level[id(x)] for x in n.inputs], default=-1)
        for x in {id(x): x for x in n.inputs}.values():
            after.setdefault(id(x), []).append(n)
            waits[id(n)] += 1
    for follow in [list(f) for f in after.values()]:
        for a, b in pairwise(follow):
            after.setdefault(id(a), []).append(b)
            waits[id(b)] += 1
    heap = [(level[id(n)], position[id(n)], n) for n in order if waits[id(n)] == 0]
    heapq.heapify(heap)
    index = 1
    while heap:
        _, _, n = heapq.heappop(heap)
        if n.op.family != "leaf":
            out.append((n, index))
            index += 1
        for m in after.get(id(n), ()):
            waits[id(m)] -= 1
            if waits[id(m)] == 0:
                heapq.heappush(heap, (level[id(m)], position[id(m)], m))
    return out


def names(numbered: Sequence[tuple[Node, int | None]]) -> dict[int, Name]:
    """id(node) -> its name: a letter, v if no input has such a name, and the index, or the user's name of an interior node when it is unmistakable."""
    count: dict[str, int] = {}
    for n, _ in numbered:
        if n.name is not None:
            count[n.name] = count.get(n.name, 0) + 1
    table: dict[int, Name] = {}
    constants = 0
    # A user's own v1 would be taken for the value of that number.
    theirs = {n.name[0] for n, _ in numbered if n.name is not None and n.op.family == "leaf" and _looks_numbered(n.name)}
    letter, constant = [next((c for c in letters if c not in theirs), letters[0]) for letters in ("vwuts", "ckq")]
    for n, index in numbered:
        word = n.name
        plain = word is not None and count[word] == 1 and bool(word.strip()) and not word.endswith("bar") and not (
            _looks_numbered(word) and word[0] in (letter, constant))
        if n.op.name in ("constant", "dim"):
            constants += 1
            table[id(n)] = Name(None, word if plain else f"{constant}{constants}")  # type: ignore[arg-type]
        elif plain and n.op.family != "leaf":
            table[id(n)] = Name(None, word)                     # type: ignore[arg-type]
        else:
            table[id(n)] = Name(index, letter=letter)
    return table


def _looks_numbered(word: str) -> bool:
    return word[:1].isalpha() and word[1:].lstrip("-").isdigit()
