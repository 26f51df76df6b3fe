"""What is drawn once for several nodes: sibling scopes of one structure, and runs of equal blocks without scopes.

Blocks are compared by a structural hash: ops, shapes, options and wiring, not values.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..errors import show_name
from ..graph.build import called
from ..graph.node import Node
from .scopes import Path, is_adjoint, stem, unnumbered

NAME = 60                      # characters of a name in a label
PERIOD = 512                   # longest block of nodes that is recognised when it repeats
# Options that say where, not what: step 3 of a loop reads row 3, and is the same block as step 4 all the same.
PLACES = frozenset(("starts", "start", "offset", "index", "site"))


class Alike:
    """Nodes drawn by others: their boxes are put into `keys`, and their ids into `hidden`.

    home: the scopes of every node, from which nodes are taken that would be outside of what is drawn. keep: ids of results. opened(path): is
    what is inside of these scopes to be seen?
    """

    def __init__(self, order: Sequence[Node], home: dict[int, Path], keep: Collection[int], keys: dict[int, Any], opened: Callable[[Path], bool]) -> None:
        self.order, self.home, self.keep, self.keys, self.opened = order, home, keep, keys, opened
        self.hidden: set[int] = set()
        self.times: dict[int, int] = {}             # how many nodes one stands for
        self.names: dict[Path, str] = {}            # what a scope is called when it stands for several
        self.blocks: list[tuple[int, set[int], bool]] = []      # (times, ids of the nodes drawn for a block, adjoint?)
        self._kinds: dict[Any, int] = {}

    # -- sibling scopes --------------------------------------------------------------------------------------------

    def _static(self, n: Node) -> int:
        """A number for what a node does, whatever it does it to."""
        op = n.op
        attrs: Any = n._attrs
        if op.family == "leaf":
            attrs = () if op.name != "dim" else attrs
        elif attrs and not PLACES.isdisjoint(op.attr_names):
            attrs = tuple([a for name, a in zip(op.attr_names, attrs, strict=True) if name not in PLACES])
        key = (op.name, n.shape, n.dtype, len(n.inputs), attrs, is_adjoint(n))
        return self._kinds.setdefault(key, len(self._kinds))

    def siblings(self, at_least: int) -> None:
        """Draw scopes of one structure under one parent once."""
        members: dict[Path, tuple[list[Node], list[Node]]] = {}
        children: dict[Path, list[Path]] = {(): []}
        for n in self.order:
            path = self.home[id(n)]
            for k in range(1, len(path) + 1):
                part = path[:k]
                found = members.get(part)
                if found is None:
                    found = members[part] = ([], [])
                    children[part] = []
                    children[part[:-1]].append(part)
                if n.op.family != "leaf":
                    found[is_adjoint(n)].append(n)
        uses: dict[int, set[Path]] = {}
        for n in self.order:
            for x in n.inputs:
                if x.op.family == "leaf":
                    uses.setdefault(id(x), set()).add(self.home[id(n)])
        stack: list[Path] = [()]
        while stack:
            parent = stack.pop()
            alike: dict[Any, list[Path]] = {}
            for child in children[parent]:
                if called(child[-1]) is not None:          # found with the nodes around it
                    continue
                if self.opened(child):
                    stack.append(child)
                    continue
                primal, _ = members[child]
                if len(primal) < 2:
                    stack.append(child)
                    continue
                alike.setdefault((stem(child[-1]), self._signature(primal, {}, len(child))), []).append(child)
            for group in alike.values():
                if len(group) < at_least:
                    stack += group
                    continue
                stack.append(self._one_of(group, members, uses))

    def _signature(self, nodes: Sequence[Node], primal: Mapping[int, int], depth: int) -> int:
        """A number for the structure of some nodes. Of operands outside only shape and dtype count: the first step of a loop
        starts from a constant, the others from the step before."""
        at = {id(n): i for i, n in enumerate(nodes)}
        parts: list[Any] = []
        for n in nodes:
            parts.append(self._static(n))
            parts.append(tuple([stem(s) for s in self.home[id(n)][depth:]]))
            for x in n.inputs:
                k = at.get(id(x))
                if k is not None:
                    parts.append(k)
                else:
                    p = primal.get(id(x))
                    parts.append((x.shape, x.dtype) if p is None else (p,))
        return self._kinds.setdefault(tuple(parts), len(self._kinds))

    def _one_of(self, group: list[Path], members: Any, uses: Mapping[int, set[Path]]) -> Path:
        """Draw one scope for all of a group; returns it. The one whose adjoint is like most others' is taken: the ends of a
        chain often have fewer adjoint nodes."""
        by_adjoint: dict[int, list[Path]] = {}
        for path in group:
            primal, adjoint = members[path]
            place = {id(n): i for i, n in enumerate(primal)}
            by_adjoint.setdefault(self._signature(adjoint, place, len(path)), []).append(path)
        first = max(by_adjoint.values(), key=len)
        chosen = first[0]
        like = set(first)
        for path in group:
            if path == chosen:
                continue
            self._map(members[chosen][0], members[path][0], chosen, path, uses)
            if path in like:
                self._map(members[chosen][1], members[path][1], chosen, path, uses)
            else:
                for n in members[path][1]:
                    for m in (n, *[x for x in n.inputs if x.op.family == "leaf" and is_adjoint(x)]):
                        kept = id(m) in self.keep and m.origin is not None and self.home.get(id(m.origin.primal), ())[:len(path)] != path
                        if not kept and self.home[id(m)][:len(path)] == path:
                            self.keys[id(m)] = ("scope", path, True)
                            self.hidden.add(id(m))
        names = [show_name(p[-1], NAME) for p in group]
        span = names[0] if len(set(names)) == 1 else f"{names[0]} … {names[-1]}"
        self.names[chosen] = f"{span}  × {len(group)}"
        return chosen

    def _map(self, targets: Sequence[Node], nodes: Sequence[Node], chosen: Path, path: Path, uses: Mapping[int, set[Path]]) -> None:
        depth = len(path)
        for a, b in zip(targets, nodes, strict=True):
            self.keys[id(b)] = ("node", id(a))
            self.hidden.add(id(b))
            for x, y in zip(a.inputs, b.inputs, strict=True):
                if x is y:
                    continue
                if x.op.family == "leaf" and y.op.family != "leaf" and self.home[id(x)][:len(chosen)] == chosen:
                    self.home[id(x)] = chosen[:-1]
                if y.op.family != "leaf" or id(y) in self.keys:
                    continue
                if x.op is y.op and all(u[:depth] == path for u in uses[id(y)]):         # x_3, read by step 3 alone
                    self.keys[id(y)] = ("node", id(x))
                    self.hidden.add(id(y))
                elif self.home[id(y)][:depth] == path:         # where a loop starts: outside the scope that is drawn for all
                    self.home[id(y)] = path[:-1]

    # -- runs of equal blocks --------------------------------------------------------------------------------------

    def repeats(self, at_least: int) -> None:
        """Fold runs of equal consecutive blocks onto their first block."""
        seq = [n for n in self.order if n.op.family != "leaf" and id(n) not in self.keys and not self.opened(self.home[id(n)])]
        at = {id(n): i for i, n in enumerate(seq)}
        scopes: dict[Path, int] = {}
        kinds: dict[Any, int] = {}
        static = [kinds.setdefault((self._static(n), scopes.setdefault(unnumbered(self.home[id(n)]), len(scopes))), len(kinds)) for n in seq]
        # Four nodes in a row tell where in a block they are; one alone, such as one of many products, does not.
        words = list(zip(static, static[1:], static[2:], static[3:], strict=False))
        rep: dict[int, int] = {}            # id -> id of the node that is drawn for it
        keys = self.keys
        taken = bytearray(len(seq))
        backward = [is_adjoint(n) for n in seq]

        def drawn(n: Node) -> int:
            known = keys.get(id(n))
            return rep.get(id(n), known[1] if known is not None and known[0] == "node" else id(n))

        def same(i: int, j: int) -> bool:
            if backward[j] and (id(seq[i]) in self.keep) != (id(seq[j]) in self.keep):   # a gradient among others has a box of its own
                return False
            for a, b in zip(seq[i].inputs, seq[j].inputs, strict=True):
                if a is b or drawn(a) == drawn(b):
                    continue
                p, q = at.get(id(a)), at.get(id(b))
                if backward[i] and not is_adjoint(a) and not is_adjoint(b):      # values of the forward pass: alike is enough
                    if a.op is not b.op or a.shape != b.shape:
                        return False
                    continue
                if p is None or q is None:
                    if p is not q or a.op is not b.op or a.shape != b.shape:
                        return False
                    if a.op.family != "leaf" or (a.op.name == "input" and stem(a.name or "") != stem(b.name or "")):
                        return False
                elif p - q != i - j:
                    return False
            return True

        for _ in range(8 if len(seq) < 200_000 else 2):      # each round is a few walks over everything
            best = (0, 0, 0, 0)
            last: dict[Any, int] = {}
            gaps: Counter[int] = Counter()
            for i, s in enumerate(words):
                if not taken[i]:
                    if s in last and i - last[s] <= PERIOD:
                        gaps[i - last[s]] += 1
                    last[s] = i
            for period, _ in gaps.most_common(4):
                run = 0
                for i in range(len(seq) - period + 1):
                    j = i + period
                    if j < len(seq) and static[i] == static[j] and not taken[i] and not taken[j] and same(i, j):
                        run += 1
                        continue
                    saved = run // period * period
                    if saved > best[0]:
                        best = (saved, i - run, period, run - saved)
                    run = 0
            saved, start, period, slack = best
            if saved < max(4, (at_least - 1) * period, len(seq) // 100):        # less than a hundredth is not worth another round
                break
            times = saved // period + 1
            start = self._best_start(seq, at, start, period, slack)
            block: set[int] = set()
            self.blocks.append((times, block, backward[start]))
            for i in range(start, start + period):
                self.times[id(seq[i])] = times
                block.add(id(seq[i]))
                taken[i] = 1
                for k in range(1, times):
                    j = i + k * period
                    taken[j] = 1
                    rep[id(seq[j])] = id(seq[i])
                    self.hidden.add(id(seq[j]))
                    for a, b in zip(seq[i].inputs, seq[j].inputs, strict=True):
                        if a is not b and id(a) not in at and id(b) not in at and id(b) not in rep and id(b) not in keys:
                            rep[id(b)] = drawn(a)
                            self.hidden.add(id(b))
                            self.times[id(a)] = times
                            block.add(id(a))
        for n in self.order:
            if id(n) in rep:
                keys[id(n)] = ("node", rep[id(n)])
        for n in self.order:                       # a node that stood for others may itself be drawn by another now
            key = keys.get(id(n))
            seen = {id(n)}
            while key is not None and key[0] == "node" and key[1] in keys and key[1] not in seen:
                seen.add(key[1])
                key = keys[id(n)] = keys[key[1]]

    def _best_start(self, seq: Sequence[Node], at: Mapping[int, int], start: int, period: int, slack: int) -> int:
        """Where in the run the blocks begin: there, where the fewest values are handed from one block to the next."""
        if period == 1:
            return start
        best = (period + 1, start)
        for s in range(start, start + min(slack, period - 1) + 1):
            carried = set()
            for j in range(s + period, s + 2 * period):
                for x in seq[j].inputs:
                    k = at.get(id(x), -1)
                    if s <= k < s + period:
                        carried.add(k)
            best = min(best, (len(carried), s))
        return best[1]
