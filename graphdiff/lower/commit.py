"""Updates in place: the elementwise instruction that makes a variable's new value writes it where the old one lies.

Takes instructions with updates as copies after the commit mark, and gives them with producers moved behind the mark in
the place of copies; what is computed stays the same. Behind the mark nothing is interrupted, and elementwise instructions
and matrix products cannot fail, so a call is still all or nothing. It saves a second array for every parameter and every
moment of an optimiser, and writing and reading it.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..plan.memory import SCATTERS, unread
from .program import CONSTANTS
from .view import View, contiguous_strides, count

# Multiply-adds of all products moved behind the mark, where nothing is interrupted: some ten milliseconds.
PRODUCTS = 1 << 29


def update_in_place(instrs: Sequence[Any], commit: int, groups: Mapping[int, Any], buffers: list[int], fixed: Mapping[int, int],
                    elementwise: Container[str], inputs: Container[int]) -> tuple[list[Any], int, dict[int, Any]]:
    """(instructions, commit, groups) with producers behind the commit mark where that is safe.

    A producer moves when each of its results is a whole array that one update takes and nobody else reads, and when the only
    variables about to change that it reads are those it writes itself, element by element. It may not read `inputs`: an
    array the caller gives may be a view of a variable's own memory.
    """
    instrs, commit, groups = _slices_in_place(instrs, commit, groups, buffers, fixed, inputs)
    times = Counter([outs[0].buffer for _, outs, _, _, _ in instrs[commit:]])
    copies = {ins[0].buffer: outs[0] for op, outs, ins, _, _ in instrs[commit:] if times[outs[0].buffer] == 1
              and op == "copy" and ins[0].buffer >= 0 and ins[0].offset == 0 and ins[0].contiguous}      # not one that turns or flips it
    if not copies:
        return instrs, commit, groups
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
        return instrs, commit, groups
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


def _slices_in_place(instrs: Sequence[Any], commit: int, groups: Mapping[int, Any], buffers: list[int], fixed: Mapping[int, int],
                     inputs: Container[int]) -> tuple[list[Any], int, dict[int, Any]]:
    """The same where a variable's new value is its old one but for slices, or but for places that are known: behind the mark these alone
    are written. What is written there from an array of the caller's or from a variable about to change is copied before the mark."""
    touching: dict[int, list[int]] = {}
    for i, (_, outs, ins, _, _) in enumerate(instrs):
        for b in {v.buffer for v in (*outs, *ins)}:
            touching.setdefault(b, []).append(i)
    changing = {outs[0].buffer for _, outs, _, _, _ in instrs[commit:]}
    gone: set[int] = set()
    before: dict[int, Any] = {}                 # in the place of an instruction
    tail: list[Any] = []
    for last in range(commit, len(instrs)):
        found = _slices_of(instrs, last, touching, buffers, fixed)
        if found is None:
            tail.append((instrs[last], last))
            continue
        gone.update(found[0])
        variable = instrs[last][1][0].buffer
        for i in found[1]:
            op, (out,), (*x, v), attrs, node = instrs[i]
            if v.buffer in inputs or v.buffer in changing:
                buffers.append(count(v.shape) * v.dtype.itemsize)
                staged = View(len(buffers) - 1, 0, v.shape, contiguous_strides(v.shape), v.dtype)
                before[i] = ("copy", (staged,), (v,), (), node)
                v = staged
            to = View(variable, out.offset, out.shape, out.strides, out.dtype)
            tail.append(((op, (to,), (*[to, *x[1:]][:len(x)], v), attrs, node), last))       # what is put into, or added to, is the place itself
    if not gone:
        return list(instrs), commit, dict(groups)
    head = [(before.get(i, instrs[i]), i) for i in range(commit) if i not in gone or i in before]
    result = [*head, *tail]
    return [instr for instr, _ in result], len(head), {k: groups[i] for k, (_, i) in enumerate(result) if i in groups}


def _slices_of(instrs: Sequence[Any], last: int, touching: Mapping[int, list[int]], buffers: Sequence[int],
               fixed: Mapping[int, int]) -> tuple[list[int], list[int]] | None:
    """Does instruction `last` copy to a variable what is a copy of it but for slices or known places, which nobody else reads? (All that make
    it, those that write the slices), in order, or None."""
    op, (variable,), (whole, *_), _, _ = instrs[last]
    makers: list[int] = []
    slices: list[int] = []
    end = last
    while op == "copy" and whole.buffer >= 0:
        b = whole.buffer
        if b in fixed or not whole.contiguous or whole.offset or count(whole.shape) * whole.dtype.itemsize != buffers[b]:
            return None
        *mine, reader = touching[b]
        if reader != end or not mine or instrs[mine[0]][0] == "add" or any(not _writes_alone(instrs[i], b) for i in mine):
            return None
        first, *others = mine
        name, (out,), (source, *rest), _, _ = instrs[first]
        if source.buffer >= 0 and any(v.buffer == source.buffer for v in rest):          # what it puts there is of that as well
            return None
        if out.offset or out.shape != source.shape or out.strides != source.strides or count(out.shape) * out.dtype.itemsize != buffers[b]:
            return None
        makers = [*mine, *makers]
        slices = [*(others if name == "copy" else mine), *slices]
        whole, end = source, first
    if op != "copy" or whole.buffer != variable.buffer or not slices or whole.offset or not whole.contiguous:
        return None
    return makers, slices


def _writes_alone(instr: Any, b: int) -> bool:
    """Does it write to a buffer what it can't fail to, without reading it, but for an element that it adds to?"""
    op, outs, ins, _, _ = instr
    if op == "add" and len(ins) == 2 and _same_place(outs[0], ins[0]):
        ins, op = ins[1:], "copy"
    known = op == "copy" or (op in SCATTERS and ins[1].buffer == -1 - CONSTANTS)         # places that are numbers were checked
    return known and outs[0].buffer == b and all(v.buffer != b for v in ins)


def _same_place(a: View, b: View) -> bool:
    return a.buffer == b.buffer and a.offset == b.offset and a.shape == b.shape and a.strides == b.strides and a.dtype is b.dtype


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
    if not _same_place(v, t):
        return False
    return op != "fused" or any(w is v for w in unread(number, outs, ins, attrs))
