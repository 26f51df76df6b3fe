"""Where buffers live: one arena, offsets from lifetimes, in place where that is safe.

Takes instructions that name buffers and returns an offset for each. A buffer lives from the first instruction that
writes it to the last that touches it. An elementwise instruction or a fused group may write over an operand that dies with
it, when both cover whole buffers of one size in the same layout. So may a scatter, and a copy, which is then none. Free space is
kept as sorted disjoint ranges; the smallest that fits is taken.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Sequence
from typing import Any

ALIGN = 64          # a cache line, and what vector loads like; scalars are packed densely instead
SMALL = 16
GROUPS = frozenset(("fused", "rows"))     # instructions of several operations, a line each
SCATTERS = frozenset(("scatter_add", "scatter_set"))      # write over their first operand, or over a copy of it


class _Free:
    """Free ranges below `top`: by offset for joining, by size for finding."""

    def __init__(self) -> None:
        self.start: dict[int, int] = {}      # offset -> size
        self.end: dict[int, int] = {}        # end -> offset
        self.sizes: list[tuple[int, int]] = []
        self.exact: dict[int, list[int]] = {}
        self.top = 0

    def take(self, size: int) -> int:
        stack = self.exact.get(size)
        if stack:
            return stack.pop()
        i = bisect_left(self.sizes, (size, -1))
        if i < len(self.sizes):
            have, offset = self.sizes.pop(i)
            del self.start[offset]
            del self.end[offset + have]
            if have > size:
                self._add(offset + size, have - size)
            return offset
        offset = self.top
        if offset in self.end and size > SMALL:         # the last free range reaches the top: extend it
            first = self.end.pop(offset)
            have = self.start.pop(first)
            self.sizes.remove((have, first))
            self.top = first + size
            return first
        self.top = offset + size
        return offset

    def _add(self, offset: int, size: int) -> None:
        self.start[offset] = size
        self.end[offset + size] = offset
        insort(self.sizes, (size, offset))

    def give(self, offset: int, size: int) -> None:
        if size <= SMALL:
            # Scalars come and go by the million: keep them by exact size, never joined.
            self.exact.setdefault(size, []).append(offset)
            return
        before = self.end.pop(offset, None)
        if before is not None:
            have = self.start.pop(before)
            self.sizes.remove((have, before))
            offset, size = before, size + have
        after = self.start.pop(offset + size, None)
        if after is not None:
            del self.end[offset + size + after]
            self.sizes.remove((after, offset + size))
            size += after
        self._add(offset, size)


def plan_memory(instrs: Sequence[Any], nbytes: Sequence[int], fixed: dict[int, int], elementwise: Container[str], *,
                in_place: bool = True) -> tuple[list[int], int]:
    """(place of every buffer, arena bytes). `fixed` gives the places of buffers that live outside the arena."""
    last = [-1] * len(nbytes)
    for i, (_, outs, ins, _, _) in enumerate(instrs):
        for v in ins:
            if v.buffer >= 0:
                last[v.buffer] = i
        for v in outs:
            if v.buffer >= 0:
                last[v.buffer] = i
    places: list[Any] = [None] * len(nbytes)
    if in_place:
        fixed = {**fixed, **_made_there(instrs, nbytes, fixed, last, elementwise)}
    for buffer, place in fixed.items():
        places[buffer] = place
    free = _Free()
    size_of = [(n + 7) // 8 * 8 if n <= SMALL else (n + ALIGN - 1) // ALIGN * ALIGN for n in nbytes]
    for i, (op, outs, ins, attrs, _) in enumerate(instrs):
        reused: set[int] = set()
        usable = ins if in_place and (op in elementwise or op in GROUPS or op == "copy") else ins[:1] if in_place and op in SCATTERS else ()
        for v in usable:                         # where none of them dies, the rest need not be asked
            if v.buffer >= 0 and last[v.buffer] == i:
                break
        else:
            usable = ()
        for k, out in enumerate(outs):
            b = out.buffer
            if b < 0 or places[b] is not None:
                continue
            if usable:
                over = _dying(out, unread(k, outs, ins, attrs) if op in GROUPS else usable, ins, i, last, places, nbytes, reused)
                if over >= 0:
                    reused.add(over)
                    places[b] = places[over]
                    continue
            places[b] = free.take(size_of[b]) if size_of[b] else 0
        for some in (ins, outs):
            for v in some:
                b = v.buffer
                if b >= 0 and last[b] == i:
                    last[b] = -1                 # dealt with
                    if b not in reused and b not in fixed and size_of[b]:
                        free.give(places[b], size_of[b])
    return [0 if p is None else p for p in places], free.top


def _made_there(instrs: Sequence[Any], nbytes: Sequence[int], fixed: dict[int, int], last: Sequence[int], elementwise: Container[str]) -> dict[int, int]:
    """Buffers of the arena that die where they are copied, or worked on element by element, to a place outside of it that nothing has
    touched before: they live there."""
    touched: set[int] = set()
    there: dict[int, int] = {}
    for i, (op, outs, ins, attrs, _) in enumerate(instrs):
        if op == "copy" or op in elementwise or op in GROUPS:
            for k, out in enumerate(outs):
                if out.buffer in fixed and out.buffer not in touched:
                    candidates = unread(k, outs, ins, attrs) if op in GROUPS else ins
                    for v in candidates:
                        b = v.buffer
                        if (b >= 0 and b not in fixed and b not in there and last[b] == i and is_same(out, v, nbytes)
                                and _is_alone(v, candidates, ins)):
                            there[b] = fixed[out.buffer]
                            break
        for out in outs:
            touched.add(out.buffer)
    return there


def _is_alone(v: Any, candidates: Any, ins: Any) -> bool:
    """Is what is read of a view's buffer the view, by operands that are candidates too?"""
    for w in ins:
        if w is not v and w.buffer == v.buffer and not (w.offset == v.offset and w.strides == v.strides and w in candidates):
            return False
    return True


def is_same(out: Any, v: Any, nbytes: Sequence[int]) -> bool:
    """Are two views the same part of two buffers of one size?"""
    return bool(nbytes[v.buffer] == nbytes[out.buffer] and v.offset == out.offset and v.dtype.itemsize == out.dtype.itemsize
                and v.shape == out.shape and v.strides == out.strides)


def unread(k: int, outs: Any, ins: Any, lines: Any) -> list[Any]:
    """The operands of a group that no operation reads after the one that writes output k."""
    later: set[int] = set()
    for line in reversed(lines):
        if line[2] == k:
            break
        later.update(line[3:])
    return [v for i, v in enumerate(ins, len(outs)) if i not in later]


def _dying(out: Any, candidates: Any, ins: Any, i: int, last: list[int], places: list[Any], nbytes: Sequence[int], reused: set[int]) -> int:
    """The arena buffer of an operand, of the candidates, that out may overwrite, or -1."""
    for v in candidates:
        b: int = v.buffer
        if (b >= 0 and nbytes[b] and last[b] == i and places[b] >= 0 and b not in reused and is_same(out, v, nbytes)
                and _is_alone(v, candidates, ins)):
            return b
    return -1
