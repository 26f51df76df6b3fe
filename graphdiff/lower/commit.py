"""Updates in place: the elementwise instruction that makes a variable's new value writes it where the old one lies.

Takes instructions with updates as copies after the commit mark, and gives them with producers moved behind the mark in
the place of copies; what is computed stays the same. Behind the mark nothing is interrupted and elementwise instructions
cannot fail, so a call is still all or nothing. It saves a second array for every parameter and every moment of an
optimiser, and writing and reading it.
"""
from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..plan.memory import unread
from .view import View, contiguous_strides, count


def update_in_place(instrs: Sequence[Any], commit: int, groups: Mapping[int, Any], buffers: Sequence[int], fixed: Mapping[int, int],
                    elementwise: Container[str], inputs: Container[int]) -> tuple[list[Any], int, dict[int, Any]]:
    """(instructions, commit, groups) with producers behind the commit mark where that is safe.

    A producer moves when each of its results is a whole array that one update takes and nobody else reads, and when the only
    variables about to change that it reads are those it writes itself, element by element. It may not read `inputs`: an
    array the caller gives may be a view of a variable's own memory.
    """
    copies = {ins[0].buffer: outs[0] for op, outs, ins, _, _ in instrs[commit:] if op == "copy" and ins[0].buffer >= 0}
    if not copies:
        return list(instrs), commit, dict(groups)
    written = {outs[0].buffer for _, outs, _, _, _ in instrs[commit:]}
    readers: dict[int, int] = {}
    writers: dict[int, int] = {}
    for _, outs, ins, _, _ in instrs:
        for b in {v.buffer for v in ins}:
            readers[b] = readers.get(b, 0) + 1
        for b in {v.buffer for v in outs}:
            writers[b] = writers.get(b, 0) + 1

    def target(out: View) -> View | None:
        """The variable's view that a result may be written through, or None."""
        b = out.buffer
        if b not in copies or readers.get(b) != 1 or writers.get(b) != 1 or b in fixed or out.offset:
            return None
        to = copies[b]
        whole = out.contiguous and count(out.shape) * out.dtype.itemsize == buffers[b]
        if not (whole and to.contiguous and to.offset == 0 and to.dtype is out.dtype and count(to.shape) == count(out.shape)):
            return None
        return View(to.buffer, 0, out.shape, contiguous_strides(out.shape), out.dtype)

    moved: dict[int, Any] = {}
    gone: set[int] = set()
    for i, (op, outs, ins, attrs, node) in enumerate(instrs[:commit]):
        if op != "fused" and op not in elementwise:
            continue
        if any(v.buffer in inputs for v in ins):
            continue
        targets = [target(out) for out in outs]
        if any(t is None for t in targets):
            continue
        mine = {t.buffer: (k, t) for k, t in enumerate(targets) if t is not None}
        if len(mine) == len(outs) and all(_may_read(v, k, mine, written, op, outs, ins, attrs) for k, v in enumerate(ins)):
            moved[i] = (op, tuple(targets), ins, attrs, node)
            gone.update(out.buffer for out in outs)
    if not moved:
        return list(instrs), commit, dict(groups)
    result: list[Any] = []
    numbers: dict[int, Any] = {}
    rest = [i for i in range(len(instrs)) if i not in moved and not (i >= commit and instrs[i][2][0].buffer in gone)]
    order = [i for i in rest if i < commit] + list(moved) + [i for i in rest if i >= commit]
    for i in order:
        if i in groups:
            numbers[len(result)] = groups[i]
        result.append(moved.get(i, instrs[i]))
    return result, commit - len(moved), numbers


def _may_read(v: View, k: int, mine: Mapping[int, tuple[int, View]], written: Container[int], op: str, outs: Sequence[View],
              ins: Sequence[View], attrs: Any) -> bool:
    """May the producer read operand k behind the mark? A variable about to change only if it writes that one itself, in the
    same layout, and reads no element after it has written it."""
    if v.buffer not in written:
        return True
    if v.buffer not in mine:
        return False
    number, t = mine[v.buffer]
    if v.offset != t.offset or v.dtype is not t.dtype or v.shape != t.shape or v.strides != t.strides:
        return False
    return op != "fused" or any(w is v for w in unread(number, outs, ins, attrs))
