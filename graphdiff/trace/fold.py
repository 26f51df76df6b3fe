"""Which nodes share a box: how a graph of any size becomes a picture that can be read.

A call of a composed function (layer_norm, cross_entropy) is one box, unless somebody asks to see inside. Then four steps, each
only as far as it is needed: sibling scopes with the same structure are drawn once, with their number;
runs of equal blocks without scopes likewise; scopes are collapsed to one box, the deepest first; and when that is not
enough, the middle is left out. Blocks are compared by a structural hash: ops, shapes, options and wiring, not values.
"""
from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import NodeTypeError, show_name
from ..graph.build import called
from ..graph.node import Node

NAME = 60                      # characters of a name in a label
PERIOD = 512                   # longest block of nodes that is recognised when it repeats
READABLE = 100                 # up to this many nodes nothing is folded: everything can be seen at once
FEW = 40                       # boxes at both ends of a long chain that has no structure
OFTEN = 4                      # repetitions that are folded although the picture would be small enough without
# Options that say where, not what: step 3 of a loop reads row 3, and is the same block as step 4 all the same.
PLACES = frozenset(("starts", "start", "offset", "index", "site"))
Path = tuple[str, ...]


def is_adjoint(node: Node) -> bool:
    """Was the node made by differentiation?"""
    return node.origin is not None and node.origin.kind == "adjoint"


def primal_of(node: Node, within: Mapping[int, Any]) -> Node | None:
    """The primal node beside which an adjoint node is drawn; None when it is not in the picture."""
    steps = 0
    while node.origin is not None and steps < 100:
        node, steps = node.origin.primal, steps + 1
    return node if steps and id(node) in within else None


def homes(order: Sequence[Node]) -> dict[int, Path]:
    """id(node) -> the scopes it is drawn in, outermost first. Variables and constants made outside every scope live where all
    their users do. Adjoint nodes live with their primal; what a consumer gives to a shared variable lives with the consumer."""
    here = {id(n): n for n in order}
    paths: dict[str, Path] = {"": ()}
    home: dict[int, Path] = {}
    if not any(n.scope for n in order):
        return {id(n): () for n in order}
    for n in order:
        path = paths.get(n.scope)
        if path is None:
            path = paths[n.scope] = tuple(n.scope.split("/"))
        home[id(n)] = path
    shared: dict[int, Path] = {}
    for n in order:
        if is_adjoint(n):
            continue
        for x in n.inputs:
            if x.op.name in ("variable", "constant") and not x.scope:
                old = shared.get(id(x))
                shared[id(x)] = home[id(n)] if old is None else _common(old, home[id(n)])
    home.update(shared)
    for n in order:
        if not is_adjoint(n):
            continue
        primal = primal_of(n, here)
        if primal is None:
            continue
        home[id(n)] = home[id(primal)]
        consumer = None if n.origin is None else n.origin.consumer
        if primal.op.family == "leaf" and consumer is not None and id(consumer) in here and not is_adjoint(consumer):
            home[id(n)] = home[id(consumer)]
    return home


def _common(a: Path, b: Path) -> Path:
    if a == b:
        return a
    k = 0
    while k < len(a) and k < len(b) and a[k] == b[k]:
        k += 1
    return a[:k]


def _unnumbered(path: Path) -> Path:
    """A path in which all calls of one function are called the same."""
    return tuple([called(part) or part for part in path])


def _shown(part: str) -> str:
    return show_name(called(part) or part, NAME)


def _stem(word: str) -> str:
    """A name without the number at its end: block3 and block4 have the same."""
    return word.rstrip("0123456789").rstrip("_-. ")


class Fold:
    """The boxes of a graph. key(node) is the same for nodes that share one."""

    def __init__(self, order: Sequence[Node], *, fold: bool = True, max_nodes: int | None = 200, expand: Any = (), often: bool = True,
                 keep: Collection[int] = (), calls: bool = True, pairs: bool = False) -> None:
        self._keep = keep                            # ids of results: these get a box of their own where the rest of a block has one
        self.home = homes(order)
        self.hidden: set[int] = set()                # nodes drawn by another node's box
        self._order = order
        self._keys: dict[int, Any] = {}
        self._sizes: Counter[Any] = Counter()
        self._times: dict[int, int] = {}
        self._names: dict[Path, str] = {}            # what a scope is called when it stands for several
        self._expand = _expanded(expand)
        self._check_expand()
        self._pairs: dict[int, Node] = {}            # id of a primal node whose adjoint nodes share a box -> that node
        self._calls: dict[Path, Node] = {}           # a call drawn as one box -> its result
        self._no_calls(calls)
        self._scoped = any(self.home.values())
        self._kinds: dict[Any, int] = {}
        self._cut: Counter[str] = Counter()
        self._blocks: list[tuple[int, set[int], bool]] = []      # (times, ids of the nodes drawn for a block, adjoint?)
        self.active = False
        size = len(order) if not (fold and calls) else self._size()
        few = max_nodes is None or size <= max_nodes
        if fold and max_nodes is not None and size > READABLE and (often or not few):
            at_least = OFTEN if few else 2
            if self._scoped:
                self._siblings(at_least)
            self._repeats(at_least)
            self.active = bool(self.hidden)
        if fold and calls and max_nodes is not None:
            self._close_calls()
            if pairs:
                self._pair_up()
            few = few or len(self._drawn()) <= max_nodes
        if few:
            self._count()
            return
        assert max_nodes is not None
        self.active = True
        if fold and self._scoped:
            self._collapse(max_nodes)
        self._leave_out(max_nodes, fold)
        self._count()

    # -- what the picture asks -------------------------------------------------------------------------------------

    def key(self, node: Node) -> Any:
        return self._keys.get(id(node)) or ("node", id(node))

    def summary(self, key: Any) -> tuple[str, ...] | None:
        """Label lines of a box that stands for several nodes of different kinds; None for an ordinary box."""
        if key[0] == "scope":
            n = self._sizes[key]
            if key[1] in self._calls and key[2]:
                return (f"{self.called(key[1])} (adjoint)",)
            return (self.called(key[1]) + (" (adjoint)" if key[2] else ""), f"{n:,} node{'s' if n > 1 else ''}")
        if key[0] == "block":
            times, _, adjoint = self._blocks[key[1]]
            n = self._sizes[key]
            return (f"block  × {times}" + (" (adjoint)" if adjoint else ""), f"{n:,} nodes")
        if key[0] == "cut":
            n = self._sizes[key]
            kinds = ", ".join(f"{op} ×{k}" for op, k in self._cut.most_common(3))
            return (f"… {n:,} nodes more", kinds) if kinds else (f"… {n:,} nodes more",)
        return None

    def called(self, path: Path) -> str:
        """The label of a scope."""
        return self._names.get(path) or _shown(path[-1])

    def is_call(self, key: Any) -> bool:
        """Does the box stand for the call of a function, or for its adjoint?"""
        return key[0] == "scope" and key[1] in self._calls

    def result(self, key: Any) -> Node | None:
        """The node whose value a box that stands for the call of a function shows; None for other boxes."""
        return self._calls.get(key[1]) if key[0] == "scope" and not key[2] else None

    def cluster(self, node: Node, key: Any) -> tuple[str, ...]:
        """Labels of the groups around a node's box, outermost first."""
        if key[0] in ("cut", "block"):
            return ()
        path = key[1][:-1] if key[0] == "scope" else self.home[id(node)]
        labels = tuple([self.called(path[:k]) for k in range(1, len(path) + 1)])
        drawn = node if key[0] == "node" else self._calls.get(key[1]) if key[0] == "scope" else None
        times = 1 if drawn is None else self._times.get(id(drawn), 1)
        return (*labels, f"× {times}") if times > 1 else labels

    def _opened(self, path: Path) -> bool:
        """Did the user ask to see inside of this scope?"""
        if not self._expand:
            return False
        plain = tuple([called(part) or part for part in path])
        return any(plain[k - 1] in self._expand or "/".join(plain[:k]) in self._expand for k in range(1, len(path) + 1))

    def _check_expand(self) -> None:
        """A name that no scope has is a mistake in spelling."""
        if not self._expand:
            return
        known: dict[str, None] = {}
        for path in dict.fromkeys(self.home.values()):
            plain = [called(part) or part for part in path]
            for k in range(1, len(plain) + 1):
                known[plain[k - 1]] = known["/".join(plain[:k])] = None
        missing = sorted(self._expand - known.keys())
        if missing:
            there = ", ".join([show_name(k, NAME) for k in known if "/" not in k][:12]) or "none"
            raise NodeTypeError(f"draw: expand names {show_name(repr(missing[0]), NAME)}, which is no scope of this graph; there are: {there}")

    # -- calls of composed functions -------------------------------------------------------------------------------

    def _no_calls(self, calls: bool) -> None:
        """Take the calls out of all paths whose function built one node only, or all calls where they are not wanted."""
        count: Counter[Path] = Counter()
        if not any(called(part) is not None for path in set(self.home.values()) for part in path):
            return
        for n in self._order:
            path = self.home[id(n)]
            if n.op.family != "leaf" and not is_adjoint(n):
                for k in range(1, len(path) + 1):
                    count[path[:k]] += 1
        new: dict[Path, Path] = {}
        for i, path in self.home.items():
            if path not in new:
                new[path] = tuple([part for k, part in enumerate(path) if called(part) is None or (calls and count[path[:k + 1]] > 1)])
            self.home[i] = new[path]

    def _call_of(self, path: Path) -> Path | None:
        """The outermost call around a path."""
        for k, part in enumerate(path):
            if called(part) is not None:
                return path[:k + 1]
        return None

    def _size(self) -> int:
        """How many boxes there are when every call is one, and its adjoint another."""
        known = {path: c for path in set(self.home.values()) if (c := self._call_of(path)) is not None and not self._opened(c)}
        if not known:
            return len(self._order)
        inside = [(known[self.home[id(n)]], is_adjoint(n)) for n in self._order if n.op.name not in ("variable", "input") and self.home[id(n)] in known]
        return len(self._order) - len(inside) + len(set(inside))

    def _close_calls(self) -> None:
        """One box for a call, one for what its adjoint is made of. Variables, inputs and results that are gradients keep theirs;
        constants that only the call reads vanish into it."""
        calls = {path: c for path in set(self.home.values()) if (c := self._call_of(path)) is not None and not self._opened(c)}
        if not calls:
            return
        moved: dict[int, Any] = {}
        for n in self._order:
            call = calls.get(self.home[id(n)])
            if call is not None:
                name = n.op.name
                if name in ("variable", "input") or (is_adjoint(n) and id(n) in self._keep):
                    self.home[id(n)] = call[:-1]
                elif n.op.family != "leaf":
                    moved[id(n)] = ("scope", call, is_adjoint(n))
                    if not is_adjoint(n):
                        self._calls[call] = n
        self._move(moved)
        for n in self._order:
            if n.op.name in ("constant", "dim") and self.home[id(n)] in calls:
                self.home[id(n)] = calls[self.home[id(n)]][:-1]
        self._swallow()
        self.active = True

    def _swallow(self) -> None:
        """Constants vanish into the box that reads them when that stands for several nodes: a call, an adjoint, or both of one call."""
        readers: dict[int, set[Any]] = {}
        for n in self._order:
            for x in n.inputs:
                if x.op.name in ("constant", "dim"):
                    readers.setdefault(id(x), set()).add(self.key(n))
        for i, boxes in readers.items():
            first = min(boxes, key=repr)                # of a call and its adjoint the call
            own = {(*k[:2], False) if k[0] == "scope" else k for k in boxes}
            if len(own) == 1 and (first[0] == "adjoint" or (first[0] == "scope" and first[1] in self._calls)) and i not in self._keep:
                self._keys[i] = first

    def _pair_up(self) -> None:
        """One box for all adjoint nodes of one primal node: the picture of the reverse pass mirrors that of the forward pass."""
        here = {id(n): n for n in self._order}
        moved: dict[int, Any] = {}
        for n in self._order:
            if is_adjoint(n) and id(n) not in self._keys and id(n) not in self._keep and not self._opened(self.home[id(n)]):
                primal = primal_of(n, here)
                if primal is not None:
                    key = self._keys.get(id(primal))
                    if key is None or (key[0] == "node" and key[1] in here):
                        moved[id(n)] = ("adjoint", id(primal) if key is None else key[1])
                        self._pairs[moved[id(n)][1]] = primal if key is None else here[key[1]]
        self._move(moved)
        self._swallow()
        self.active = self.active or bool(moved)

    def paired(self, key: Any) -> Node | None:
        """The primal of a box that stands for all adjoint nodes of one primal node; None for other boxes."""
        return self._pairs[key[1]] if key[0] == "adjoint" else None

    def _move(self, moved: Mapping[int, Any]) -> None:
        """New boxes for nodes that have one of their own, and for all that are drawn by these."""
        for n in self._order:
            key = self._keys.get(id(n))
            new = moved.get(id(n) if key is None else key[1] if key[0] == "node" else 0)
            if new is not None:
                self._keys[id(n)] = new

    def folded(self, node: Node) -> bool:
        return id(node) in self.hidden

    def _count(self) -> None:
        self._sizes.clear()
        for n in self._order:
            key = self._keys.get(id(n))
            if key is not None:
                self._sizes[key] += 1

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

    def _siblings(self, at_least: int) -> None:
        """Draw scopes of one structure under one parent once."""
        members: dict[Path, tuple[list[Node], list[Node]]] = {}
        children: dict[Path, list[Path]] = {(): []}
        for n in self._order:
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
        for n in self._order:
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
                if self._opened(child):
                    stack.append(child)
                    continue
                primal, _ = members[child]
                if len(primal) < 2:
                    stack.append(child)
                    continue
                alike.setdefault((_stem(child[-1]), self._signature(primal, {}, len(child))), []).append(child)
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
            parts.append(tuple([_stem(s) for s in self.home[id(n)][depth:]]))
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
                        kept = id(m) in self._keep and m.origin is not None and self.home.get(id(m.origin.primal), ())[:len(path)] != path
                        if not kept and self.home[id(m)][:len(path)] == path:
                            self._keys[id(m)] = ("scope", path, True)
                            self.hidden.add(id(m))
        names = [show_name(p[-1], NAME) for p in group]
        span = names[0] if len(set(names)) == 1 else f"{names[0]} … {names[-1]}"
        self._names[chosen] = f"{span}  × {len(group)}"
        return chosen

    def _map(self, targets: Sequence[Node], nodes: Sequence[Node], chosen: Path, path: Path, uses: Mapping[int, set[Path]]) -> None:
        depth = len(path)
        for a, b in zip(targets, nodes, strict=True):
            self._keys[id(b)] = ("node", id(a))
            self.hidden.add(id(b))
            for x, y in zip(a.inputs, b.inputs, strict=True):
                if x is y:
                    continue
                if x.op.family == "leaf" and y.op.family != "leaf" and self.home[id(x)][:len(chosen)] == chosen:
                    self.home[id(x)] = chosen[:-1]
                if y.op.family != "leaf" or id(y) in self._keys:
                    continue
                if x.op is y.op and all(u[:depth] == path for u in uses[id(y)]):         # x_3, read by step 3 alone
                    self._keys[id(y)] = ("node", id(x))
                    self.hidden.add(id(y))
                elif self.home[id(y)][:depth] == path:         # where a loop starts: outside the scope that is drawn for all
                    self.home[id(y)] = path[:-1]

    # -- runs of equal blocks --------------------------------------------------------------------------------------

    def _repeats(self, at_least: int) -> None:
        """Fold runs of equal consecutive blocks onto their first block."""
        seq = [n for n in self._order if n.op.family != "leaf" and id(n) not in self._keys and not self._opened(self.home[id(n)])]
        at = {id(n): i for i, n in enumerate(seq)}
        scopes: dict[Path, int] = {}
        kinds: dict[Any, int] = {}
        static = [kinds.setdefault((self._static(n), scopes.setdefault(_unnumbered(self.home[id(n)]), len(scopes))), len(kinds)) for n in seq]
        # Four nodes in a row tell where in a block they are; one alone, such as one of many products, does not.
        words = list(zip(static, static[1:], static[2:], static[3:], strict=False))
        rep: dict[int, int] = {}            # id -> id of the node that is drawn for it
        keys = self._keys
        taken = bytearray(len(seq))
        backward = [is_adjoint(n) for n in seq]

        def drawn(n: Node) -> int:
            known = keys.get(id(n))
            return rep.get(id(n), known[1] if known is not None and known[0] == "node" else id(n))

        def same(i: int, j: int) -> bool:
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
                    if a.op.family != "leaf" or (a.op.name == "input" and _stem(a.name or "") != _stem(b.name or "")):
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
            self._blocks.append((times, block, backward[start]))
            for i in range(start, start + period):
                self._times[id(seq[i])] = times
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
                            self._times[id(a)] = times
                            block.add(id(a))
        for n in self._order:
            if id(n) in rep:
                keys[id(n)] = ("node", rep[id(n)])
        for n in self._order:                       # a node that stood for others may itself be drawn by another now
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

    # -- collapsing and leaving out --------------------------------------------------------------------------------

    def _drawn(self) -> list[Any]:
        return list(dict.fromkeys([self.key(n) for n in self._order]))

    def _collapse(self, max_nodes: int) -> None:
        """Scopes as single boxes; as many as fit are opened again, outer ones and small ones first."""
        drawn = set(self._drawn())
        if len(drawn) <= max_nodes:
            return
        visible = [n for n in self._order if self._keys.get(id(n)) is None and ("node", id(n)) in drawn]
        direct: Counter[Path] = Counter()
        inside: Counter[Path] = Counter()
        kinds: dict[Path, set[bool]] = {}
        children: dict[Path, set[Path]] = {}
        for n in visible:
            path = self.home[id(n)]
            direct[path] += 1
            for k in range(1, len(path) + 1):
                inside[path[:k]] += 1
                kinds.setdefault(path[:k], set()).add(is_adjoint(n))
                children.setdefault(path[:k - 1], set()).add(path[:k])
        others = sum(1 for key in drawn if key[0] != "node")
        top = children.get((), set())
        count = others + direct[()] + sum(len(kinds[p]) for p in top)
        wanted = {p[:k] for p in inside if self._opened(p) for k in range(1, len(p) + 1)}
        heap = [(p not in wanted, len(p), inside[p], p) for p in top]
        heapq.heapify(heap)
        opened: set[Path] = set()
        while heap:
            fits, _, _, path = heapq.heappop(heap)
            more = direct[path] + sum(len(kinds[c]) for c in children.get(path, ())) - len(kinds[path])
            if fits and count + more > max_nodes:
                continue
            count += more
            opened.add(path)
            for c in children.get(path, ()):
                heapq.heappush(heap, (c not in wanted, len(c), inside[c], c))
        moved: dict[int, Any] = {}
        for n in visible:
            path = self.home[id(n)]
            for k in range(1, len(path) + 1):
                if path[:k] not in opened:
                    moved[id(n)] = ("scope", path[:k], is_adjoint(n))
                    break
        self._move(moved)
        for n in self._order:                           # calls inside of scopes that are closed now
            key = self._keys.get(id(n))
            if key is not None and key[0] == "scope" and key[1] in self._calls:
                for k in range(1, len(key[1])):
                    if key[1][:k] in inside and key[1][:k] not in opened:
                        self._keys[id(n)] = ("scope", key[1][:k], key[2])
                        break

    def _leave_out(self, max_nodes: int, fold: bool) -> None:
        """Blocks that repeat as one box each, the largest first; then leave the middle out."""
        for k, (_, block, adjoint) in sorted(enumerate(self._blocks), key=lambda item: -len(item[1][1])):
            if len(self._drawn()) <= max_nodes:
                return
            for n in self._order:
                key = self.key(n)
                if key[0] == "node" and key[1] in block:
                    self._keys[id(n)] = ("block", k, adjoint)
        drawn = self._drawn()
        if len(drawn) <= max_nodes:
            return
        if fold:
            max_nodes = shown_of(len(drawn), max_nodes)
        front = max(0, (max_nodes - 1) // 2)
        back = max(0, max_nodes - 1 - front)
        middle = set(drawn[front:len(drawn) - back])
        for n in self._order:
            if self.key(n) in middle:
                self._keys[id(n)] = ("cut",)
                self._cut[n.op.symbol or n.op.name] += 1


def shown_of(count: int, max_nodes: int) -> int:
    """How many of `count` boxes without structure are drawn: where most are left out anyway, few enough to be read."""
    return max_nodes if count <= 2 * max_nodes else min(max_nodes, FEW)


def _expanded(expand: Any) -> frozenset[str]:
    names: Collection[str] = (expand,) if isinstance(expand, str) else expand
    return frozenset(names)
