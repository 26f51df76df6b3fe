"""Which nodes share a box: how a graph of any size becomes a picture that can be read.

A call of a composed function (layer_norm, cross_entropy) is one box, unless somebody asks to see inside. Then four steps, each
only as far as it is needed: sibling scopes with the same structure are drawn once, with their number;
runs of equal blocks without scopes likewise; scopes are collapsed to one box, the deepest first; and when that is not
enough, the middle is left out.
"""
from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import NodeTypeError, show_name
from ..graph.build import called
from ..graph.node import Node
from .alike import NAME, Alike
from .scopes import Path, homes, is_adjoint, primal_of

READABLE = 100                 # up to this many nodes nothing is folded: everything can be seen at once
FEW = 40                       # boxes at both ends of a long chain that has no structure
OFTEN = 4                      # repetitions that are folded although the picture would be small enough without


def _shown(part: str) -> str:
    return show_name(called(part) or part, NAME)


class Fold:
    """The boxes of a graph. key(node) is the same for nodes that share one."""

    def __init__(self, order: Sequence[Node], *, fold: bool = True, max_nodes: int | None = 200, expand: Any = (), often: bool = True,
                 keep: Collection[int] = (), calls: bool = True, pairs: bool = False) -> None:
        self._keep = keep                            # ids of results: these get a box of their own where the rest of a block has one
        self.home = homes(order)
        self._order = order
        self._keys: dict[int, Any] = {}
        self._sizes: Counter[Any] = Counter()
        self._expand = _expanded(expand)
        self._check_expand()
        self._pairs: dict[int, Node] = {}            # id of a primal node whose adjoint nodes share a box -> that node
        self._calls: dict[Path, Node] = {}           # a call drawn as one box -> its result
        self._no_calls(calls)
        self._scoped = any(self.home.values())
        self._cut: Counter[str] = Counter()
        self._alike = Alike(order, self.home, keep, self._keys, self._opened)
        self.hidden = self._alike.hidden             # nodes drawn by another node's box
        self.active = False
        size = len(order) if not (fold and calls) else self._size()
        few = max_nodes is None or size <= max_nodes
        if fold and max_nodes is not None and size > READABLE and (often or not few):
            at_least = OFTEN if few else 2
            if self._scoped:
                self._alike.siblings(at_least)
            self._alike.repeats(at_least)
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
            times, _, adjoint = self._alike.blocks[key[1]]
            n = self._sizes[key]
            return (f"block  × {times}" + (" (adjoint)" if adjoint else ""), f"{n:,} nodes")
        if key[0] == "cut":
            n = self._sizes[key]
            kinds = ", ".join(f"{op} ×{k}" for op, k in self._cut.most_common(3))
            return (f"… {n:,} nodes more", kinds) if kinds else (f"… {n:,} nodes more",)
        return None

    def called(self, path: Path) -> str:
        """The label of a scope."""
        return self._alike.names.get(path) or _shown(path[-1])

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
        times = 1 if drawn is None else self._alike.times.get(id(drawn), 1)
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
        for _, block, adjoint in self._alike.blocks:            # there are no such blocks left around the constants they read
            if adjoint:
                for i in block:
                    self._alike.times.pop(i, None)
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
        for k, (_, block, adjoint) in sorted(enumerate(self._alike.blocks), key=lambda item: -len(item[1][1])):
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
