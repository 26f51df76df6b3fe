"""Updates in place: the elementwise instruction that makes a variable's new value writes it where the old one lies.

Takes instructions with updates as copies after the commit mark, and gives them with producers moved behind the mark in
the place of copies; what is computed stays the same. Behind the mark nothing is interrupted, and elementwise instructions
and matrix products cannot fail, so a call is still all or nothing. It saves a second array for every parameter and every
moment of an optimiser, and writing and reading it.
"""
from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..plan.memory import unread
from .view import View, contiguous_strides, count

# Multiply-adds of all products moved behind the mark, where nothing is interrupted: some ten milliseconds.
PRODUCTS = 1 << 29


def update_in_place(instrs: Sequence[Any], commit: int, groups: Mapping[int, Any], buffers: Sequence[int], fixed: Mapping[int, int],
                    elementwise: Container[str], inputs: Container[int]) -> tuple[list[Any], int, dict[int, Any]]:
    """(instructions, commit, groups) with producers behind the commit mark where that is safe.

    A producer moves when each of its results is a whole array that one update takes and nobody else reads, and when the only
    variables about to change that it reads are those it writes itself, element by element. It may not read `inputs`: an
    array the caller gives may be a view of a variable's own memory.
    """
    copies = {ins[0].buffer: outs[0] for op, outs, ins, _, _ in instrs[commit:]
              if op == "copy" and ins[0].buffer >= 0 and ins[0].offset == 0 and ins[0].contiguous}      # not one that turns or flips it
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

    maker = {outs[0].buffer: i for i, (_, outs, _, _, _) in enumerate(instrs[:commit])}
    moved: dict[int, Any] = {}
    late: dict[int, list[int]] = {}         # products that move too, by the producer that alone reads them
    spare = PRODUCTS
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
            for b in {v.buffer for v in ins if v.buffer in maker and readers[v.buffer] == 1 and writers[v.buffer] == 1}:
                work = _late_product(instrs[maker[b]], buffers)
                if 0 < work <= spare and b not in fixed:
                    spare -= work
                    late.setdefault(i, []).append(maker[b])
    if not moved:
        return list(instrs), commit, dict(groups)
    result: list[Any] = []
    numbers: dict[int, Any] = {}
    away = {*moved, *(j for products in late.values() for j in products)}
    rest = [i for i in range(len(instrs)) if i not in away and not (i >= commit and instrs[i][2][0].buffer in gone)]
    behind = [i for i in moved if i not in late] + [j for i in late for j in (*late[i], i)]
    order = [i for i in rest if i < commit] + behind + [i for i in rest if i >= commit]
    for i in order:
        if i in groups:
            numbers[len(result)] = groups[i]
        result.append(moved.get(i, instrs[i]))
    return result, commit - len(away), numbers


def _late_product(instr: Any, buffers: Sequence[int]) -> int:
    """Multiply-adds of a matrix product that may be made right before the update that reads it, and takes more memory than its
    operands, which stay alive for it meanwhile: gradients of weights are then not all there at once. Else 0."""
    op, (out, *_), ins, _, _ = instr
    if op != "matmul" or any(v.buffer < 0 for v in ins):       # not from the caller's arrays, which may be views of variables
        return 0
    if buffers[out.buffer] <= sum(buffers[b] for b in {v.buffer for v in ins}):
        return 0
    return count(out.shape) * ins[0].shape[-1]


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
