"""Inside: what is copied into a part of an array is made there.

Takes instructions, and gives them with the views of such a buffer as views of the array: the copy then goes from a place to the same
place, and is dropped with others of that kind once places are known. What concatenate, stack and pad put together, and gradients of
slices, need neither the copies nor the memory of their parts. And cotangents of gates take the place of these. The bits stay.
"""
from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from .view import View, count

OVER = {"gru_grad": 2, "lstm_grad": 2}               # the operand that what an op gives may be written over, as it lies
FEW = 64             # writes to one array that are compared with one another where some of them go to the same place


def _extent(v: View) -> tuple[int, int]:
    """The bytes of the buffer that a view lies in: first, and one beyond the last. Nothing of an empty one."""
    if 0 in v.shape:
        return v.offset, v.offset
    low = high = 0
    for n, s in zip(v.shape, v.strides, strict=True):
        low, high = low + min(0, (n - 1) * s), high + max(0, (n - 1) * s)
    return v.offset + low * v.dtype.itemsize, v.offset + (high + 1) * v.dtype.itemsize


def _is_alone(i: int, part: tuple[int, int], writes: Sequence[tuple[int, View]], until: int) -> bool:
    """Does no other instruction up to `until` write to the part?"""
    for j, v in writes:
        low, high = _extent(v)
        if j != i and j <= until and low < part[1] and part[0] < high:
            return False
    return True


def _are_apart(writes: Sequence[tuple[int, View]]) -> bool:
    """Does no instruction write where another one does?"""
    end = 0
    for low, high in sorted([_extent(v) for _, v in writes]):
        if low < end:
            return False
        end = max(end, high)
    return True


def _with_moved(instrs: Sequence[Any], moved: Mapping[int, tuple[int, int]], done: Container[int] = ()) -> list[Any]:
    """The instructions with buffers that moved into others, by (buffer, place). `done`: copies that go from a place to the same one now."""
    if not moved:
        return list(instrs)

    def there(v: View) -> View:
        place = moved.get(v.buffer)
        return v if place is None else View(place[0], place[1] + v.offset, v.shape, v.strides, v.dtype)

    result = []
    for i, (op, outs, ins, attrs, node) in enumerate(instrs):
        ins = tuple([there(v) for v in ins])
        result.append((op, ins if i in done else tuple([there(v) for v in outs]), ins, attrs, node))
    return result


def made_over(instrs: Sequence[Any], buffers: Sequence[int], fixed: Container[int]) -> list[Any]:
    """The instructions with what OVER tells made in the place of an operand, part of an array, which nobody needs afterwards."""
    over = {i: (outs[0], ins[OVER[op]]) for i, (op, outs, ins, _, _) in enumerate(instrs) if op in OVER}
    if not over:
        return list(instrs)
    uses: dict[int, list[tuple[int, View]]] = {v.buffer: [] for pair in over.values() for v in pair}
    for i, (_, outs, ins, _, _) in enumerate(instrs):
        for v in (*outs, *ins):
            if v.buffer in uses:
                uses[v.buffer].append((i, v))
    moved: dict[int, tuple[int, int]] = {}
    for i, (out, v) in over.items():
        b, nbytes, (low, high) = v.buffer, count(v.shape) * v.dtype.itemsize, _extent(v)
        if (min(b, out.buffer) >= 0 and not (b in fixed or out.buffer in fixed) and buffers[out.buffer] == nbytes > 0 and out.offset == 0
                and v.contiguous and out.contiguous and v.shape == out.shape and v.dtype is out.dtype
                and not any(w is not v and j >= i and _extent(w)[0] < high and low < _extent(w)[1] for j, w in uses[b])
                and not any(j < i for j, _ in uses[out.buffer])):
            moved[out.buffer] = b, v.offset
    return _with_moved(instrs, moved)


def made_inside(instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Container[int]) -> list[Any]:
    """The instructions with results made where they are copied to.

    A buffer of the arena moves if it is copied whole, as it lies, to neighbours in another one, which nobody reads before, and if nobody
    else writes to that part: not before the copy, nor after it if the buffer is read on. Copies behind the commit mark go to variables.
    """
    copies = [i for i, (op, outs, _, _, _) in enumerate(instrs[:commit]) if op == "copy" and outs[0].buffer >= 0]
    if not copies:
        return list(instrs)
    writes: dict[int, list[tuple[int, View]]] = {}
    first_read: dict[int, int] = {}
    last_read: dict[int, int] = {}
    for i, (_, outs, ins, _, _) in enumerate(instrs):
        for v in ins:
            first_read.setdefault(v.buffer, i)
            last_read[v.buffer] = i
        for v in outs:
            writes.setdefault(v.buffer, []).append((i, v))
    apart: dict[int, bool] = {}
    kept: dict[int, bool] = {}                           # of those that move: does nobody write to their place later
    done: set[int] = set()                               # copies to where the elements are
    moved: dict[int, tuple[int, int]] = {}               # buffer -> the outermost one it moves into, and where
    for i in reversed(copies):                           # the outer array first: its parts may have parts
        to, v = instrs[i][1][0], instrs[i][2][0]
        b, nbytes = v.buffer, count(v.shape) * v.dtype.itemsize
        whole = b >= 0 and v.offset == 0 and v.contiguous and nbytes == buffers[b] > 0
        if not (whole and b != to.buffer and b not in fixed and b not in moved and b in writes and to.contiguous and to.shape == v.shape
                and to.dtype is v.dtype and buffers[to.buffer] > nbytes):
            continue
        if not writes[b][-1][0] < i <= first_read.get(to.buffer, i):
            continue
        others, part = writes[to.buffer], (to.offset, to.offset + nbytes)
        if to.buffer not in apart:
            apart[to.buffer] = _are_apart(others)
        stays = apart[to.buffer] or (len(others) <= FEW and _is_alone(i, part, others, len(instrs)))
        stays = stays and kept.get(to.buffer, True)
        if stays or (last_read[b] == i and len(others) <= FEW and _is_alone(i, part, others, i)):
            kept[b] = stays
            outer, offset = moved.get(to.buffer, (to.buffer, 0))
            moved[b] = outer, offset + to.offset
            done.add(i)
    return _with_moved(instrs, moved, done)
