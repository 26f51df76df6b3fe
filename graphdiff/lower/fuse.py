"""Fusion: elementwise instructions of one size become one instruction that does them all on a block while it is in cache.

Takes instructions in running order and returns them with groups in place of their members; nothing else changes, and a
group gives the bits of its members. A group runs where its last member could: an instruction that needs one of its values
and cannot join ends it. Sums of its values along last axes are part of it where every operand is one run along them, and
sums over all axes also where operands lie turned. Other reductions, and small work on the results of reductions, wait behind
an open group instead.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

from ..dtypes import FLOAT16, FLOAT32, FLOAT64
from .fuse_lines import TWO, fused, side_by_side, tail
from .rows import rows
from .sums import CROWD, FAR, FEW_ROWS, SHORT_ROW, SHORT_ROW_FAR
from .view import View, count, usage

# The C core (program.h) allows 32 operands, 32 registers and 256 operations. Values still to be used are counted as
# outputs, which bounds registers too, but for operands that die in a line and cannot be written over: at most three.
OPERANDS, LINES, REGISTERS = 29, 256, 32
# Reading one value: their results are small, and they may run right after the group.
REDUCTIONS = frozenset(("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "logsumexp"))
# What waits behind a group is small compared with it, and no group waits for ever: its operands stay alive meanwhile.
SMALLER, WAITING, OPEN, STALE = 8, 64, 8, 64
# Bytes of arrays that stay in a core's cache with several others: there any two operations of one size are better off in
# one group. Larger ones only where a group saves reading or writing an array.
LITTLE = 1 << 16
# An instruction that makes so many bytes does not run before an open group that leaves half as many less than it reads.
HEAVY = 1 << 20
COLUMN = (16, 12288)                 # elements of the columns of a turned operand that a sum reads in order (GDI_FLOW, program.h)
SQUARES = 32768                      # the same where it is a sum of squares and nothing else, which adds them where they lie


class Group:
    """An open group over `n` elements. `shape` is None while every member may be taken as flat.

    With sums, `row` is the number of elements that one adds up.
    """

    __slots__ = ("followers", "inputs", "kept", "last", "members", "n", "pending", "row", "shape", "values")

    def __init__(self, n: int) -> None:
        self.n = n
        self.shape: tuple[int, ...] | None = None
        self.members: list[Any] = []
        self.values: dict[int, View] = {}        # buffer -> the view its member writes
        self.pending: dict[int, int] = {}        # of these: uses that are still to come
        self.inputs: dict[Any, View] = {}
        self.followers: list[Any] = []
        self.kept = 0                            # values still to be used or wanted outside, and sums
        self.last = 0
        self.row = 0


def _is_flat(v: View) -> bool:
    """One run of elements, or one element for all."""
    return len(v.layout) == 4


def _is_run(v: View, axes: int) -> bool:
    """The last axes are one run of elements, or one element again and again."""
    step = None
    for n, s in zip(reversed(v.shape[len(v.shape) - axes:]), reversed(v.strides[len(v.shape) - axes:]), strict=True):
        if n != 1:
            if step is not None and s != step:
                return False
            step = s * n
    return True


def _is_turned(v: View, longest: int) -> bool:
    """Two axes, of which the first has neighbours side by side: the C core brings it into order while a sum of all goes on."""
    axes: list[tuple[int, int]] = []
    for n, s in zip(v.shape, v.strides, strict=True):
        if n != 1 and axes and axes[-1][1] == s * n:
            axes[-1] = axes[-1][0] * n, s
        elif n != 1:
            axes.append((n, s))
    return len(axes) == 2 and axes[0][1] == 1 and axes[1][1] != 0 and COLUMN[0] <= axes[1][0] <= longest


def _can_be_summed(v: View, axes: int, row: int, longest: int = COLUMN[1]) -> bool:
    """May a group that sums up rows of so many elements, its last axes, read it?"""
    return _is_run(v, axes) or (count(v.shape) == row and _is_turned(v, longest))


class _Fuser:
    def __init__(self, instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Mapping[int, int], elementwise: Container[str],
                 used: tuple[list[int], list[int]]) -> None:
        self.queue = deque(instrs[:commit])
        self.buffers = buffers
        self.fixed = fixed
        self.elementwise = elementwise
        self.uses, self.writes = used
        self.shared = {b for b, n in enumerate(self.writes) if n > 1}      # buffers with several writers
        self.result: list[Any] = []
        self.groups: dict[int, tuple[Any, ...]] = {}
        self.open: list[Group] = []
        self.owner: dict[int, tuple[Group, bool]] = {}          # buffer -> its open group, and whether a follower makes it
        self.clock = 0
        self.instrs = instrs
        self._reader: dict[int, Any] | None = None

    def run(self) -> None:
        queue, result, elementwise = self.queue, self.result, self.elementwise
        while queue:
            while queue:
                instr = queue.popleft()
                self.clock += 1
                n = self._fusable(instr) if instr[0] in elementwise or instr[0] == "cast" else 0
                if (n == 0 and not self.open) or not self._place(instr, n):
                    result.append(instr)
            for g in list(self.open):
                self._close(g)
                queue.extend(g.followers)

    def _fusable(self, instr: Any) -> int:
        """The elements of what makes a whole buffer of several, once; else 0. float16 is rounded after every operation and stays apart."""
        _, (out,), ins, _, _ = instr
        b = out.buffer
        if not out.shape or b < 0 or out.offset or self.writes[b] != 1 or out.dtype is FLOAT16:
            return 0
        for v in ins:
            if v.dtype is FLOAT16:
                return 0
        n = count(out.shape)
        return n if n > 1 and n * out.dtype.itemsize == self.buffers[b] and out.contiguous else 0

    def _place(self, instr: Any, n: int) -> bool:
        """Into a group, behind one, or back into the queue after what must come first; False: it may run now. n: elements if it can be fused."""
        op, outs, ins, _, _ = instr
        if op == "sum" and self._sums(instr):
            return True
        touched: list[Group] = []
        inside: list[Group] = []                # those of which it reads values
        behind = True                            # every value of a group that it reads comes from a follower
        for v in ins:
            owner = self.owner.get(v.buffer)
            if owner is not None:
                g, follows = owner
                if g not in touched:
                    touched.append(g)
                if not follows:
                    behind = False
                    inside.append(g)
        target = None
        if n:
            mine = [g for g in touched if g.n == n and g in inside] if inside else inside
            target = self._first(instr, mine, touched) if mine else self._alike(instr, n, touched) if self.open else None
        others = [g for g in touched if g is not target] if touched else touched
        if len(others) == 1 and len(touched) == 1 and self._waits(instr, others[0], behind):
            return True
        if n == 0 and self.shared and not self.shared.isdisjoint([v.buffer for v in outs]):
            others = list(self.open)             # parts of one buffer: what reads it must not be pushed past a writer
        stale = self.clock - STALE
        for g in self.open:
            if g.last < stale and g is not target and g not in others:
                others = [*others, g]
        if n == 0 and self._makes(outs) >= HEAVY:
            others = [*others, *[g for g in self.open if g not in others and self._frees(g) >= HEAVY // 2]]
        if others:
            return self._again(others, instr)
        if n == 0:
            return False                         # depends on no open group
        if target is None:
            if len(self.open) >= OPEN:
                return self._again([min(self.open, key=lambda g: g.last)], instr)
            target = Group(n)
            self.open.append(target)
        self._join(instr, target)
        return True

    def _makes(self, outs: Sequence[View]) -> int:
        """Bytes of the arena."""
        nbytes = 0
        for v in outs:
            if v.buffer >= 0 and v.buffer not in self.fixed:
                nbytes += self.buffers[v.buffer]
        return nbytes

    def _frees(self, g: Group) -> int:
        """Bytes of the arena that nobody needs once a group has run, less those that it leaves."""
        read: dict[int, int] = {}
        for _, _, ins, _, _ in (*g.members, *g.followers):
            for v in ins:
                if v.buffer >= 0 and v.buffer not in g.values and v.buffer not in self.fixed:
                    read[v.buffer] = read.get(v.buffer, 0) + 1
        left = sum([self.buffers[b] for b, n in g.pending.items() if n and b not in self.fixed])
        return sum([self.buffers[b] for b, n in read.items() if n == self.uses[b]]) - left

    def _first(self, instr: Any, mine: list[Group], touched: list[Group]) -> Group | None:
        """The open group to join, of those whose values it reads; several are made one."""
        target = mine[0]
        for g in mine[1:]:
            if self._merges(target, g):
                self._merge(target, g)
                touched.remove(g)
        return target if self._joins(instr, target) else None

    def _alike(self, instr: Any, n: int, touched: list[Group]) -> Group | None:
        """The open group to join where it reads values of none: one that reads an operand too, or, where arrays are small, any of that size."""
        groups = [g for g in self.open if g.n == n and g not in touched]
        if not groups:
            return None
        _, (out,), ins, _, _ = instr
        keys = {v.layout for v in ins if v.contiguous}
        nbytes = n * max([v.dtype.itemsize for v in (out, *ins)])
        for g in groups:
            if nbytes > LITTLE and g.inputs.keys().isdisjoint(keys):
                continue
            arrays = 1 + sum([v.contiguous for v in g.inputs.values()]) + g.kept
            if (nbytes > CROWD // 2 or arrays * nbytes <= CROWD) and self._joins(instr, g):
                return g
        return None

    def _merges(self, a: Group, b: Group) -> bool:
        """May two open groups of one size, neither of which needs the other, be one?"""
        if (a.shape and b.shape and a.shape != b.shape) or (a.row and b.row and a.row != b.row) or len(a.members) + len(b.members) >= LINES:
            return False
        shape, row = a.shape or b.shape, a.row or b.row
        inputs = {**a.inputs, **b.inputs}
        if row and shape is not None:
            axes = tail(shape, row)
            if axes < 0 or not all(_can_be_summed(v, axes, row) for v in inputs.values() if v.shape == shape):
                return False
        return len(inputs) + a.kept + b.kept + 1 <= OPERANDS

    def _merge(self, a: Group, b: Group) -> None:
        """b's members after a's."""
        self.open.remove(b)
        a.members += b.members
        a.followers += b.followers
        a.inputs.update(b.inputs)
        a.values.update(b.values)
        a.pending.update(b.pending)
        a.kept += b.kept
        a.shape, a.row = a.shape or b.shape, a.row or b.row
        for instr in (*b.members, *b.followers):
            for v in instr[1]:
                self.owner[v.buffer] = a, self.owner[v.buffer][1]

    def _joins(self, instr: Any, g: Group) -> bool:
        """May it become a member of an open group of its size?"""
        _, (out,), ins, _, _ = instr
        flat = True
        for v in ins:
            value = g.values.get(v.buffer)
            if value is not None:
                if v.offset or not v.contiguous or v.dtype is not value.dtype:
                    return False
                continue
            owner = self.owner.get(v.buffer)
            if owner is not None and owner[0] is g:
                return False                     # needs what runs after the group
            if flat and not _is_flat(v):
                flat = False
        if not flat and g.shape is not None and g.shape != out.shape:
            return False
        if not flat and g.row:
            axes = tail(out.shape, g.row)
            if axes < 0 or not all(_can_be_summed(v, axes, g.row) for v in ins if v.buffer not in g.values):
                return False
        if len(g.members) >= LINES:
            return False
        room = OPERANDS - 1 - len(g.inputs) - g.kept
        return len(ins) <= room or self._operands(ins, g) <= room

    def _operands(self, ins: Sequence[View], g: Group) -> int:
        """How many more operands the group has with an instruction that reads these: its inputs less values that nobody needs any more."""
        new = {v.layout for v in ins if v.buffer not in g.values and v.layout not in g.inputs}
        read = [v.buffer for v in ins if v.buffer in g.values]
        done = {b for b in read if g.pending[b] == read.count(b) and b not in self.fixed}
        return len(new) - len(done)

    def _join(self, instr: Any, g: Group) -> None:
        _, (out,), ins, _, _ = instr
        flat = True
        for v in ins:
            if v.buffer in g.values:
                self._used(g, v.buffer)
                continue
            key = v.layout
            if key not in g.inputs:
                g.inputs[key] = v
            if flat and not _is_flat(v):
                flat = False
        if not flat:
            g.shape = out.shape
        b = out.buffer
        uses = self.uses[b]
        g.members.append(instr)
        g.values[b] = out
        g.pending[b] = uses
        g.kept += uses > 0 or b in self.fixed
        g.last = self.clock
        self.owner[b] = g, False

    def _used(self, g: Group, buffer: int) -> None:
        """A member reads a value of the group."""
        g.pending[buffer] -= 1
        g.kept -= g.pending[buffer] == 0 and buffer not in self.fixed

    def _sums(self, instr: Any) -> bool:
        """Into the group, if it sums values of one open group over rows that the group can be cut into."""
        _, (out,), (v,), (axes,), _ = instr
        owner = self.owner.get(v.buffer)
        if owner is None or owner[1] or v.dtype not in (FLOAT32, FLOAT64) or v.offset or not v.contiguous or count(v.shape) != owner[0].n:
            return False                         # a slice is not what the group runs over
        g = owner[0]
        row = count(v.shape[len(v.shape) - axes:])
        nbytes = g.n * v.dtype.itemsize
        if row * v.dtype.itemsize < (SHORT_ROW if nbytes <= FAR else SHORT_ROW_FAR) and g.n > FEW_ROWS * row:
            return False
        if row < 2 or (g.row and g.row != row) or self.writes[out.buffer] != 1 or len(g.members) >= LINES:
            return False
        if g.shape is None:
            g.shape = v.shape                    # flat so far: any shape will do
        else:
            axes, longest = tail(g.shape, row), SQUARES if [m[0] for m in g.members] == ["square"] else COLUMN[1]
            if axes < 0 or not all(_can_be_summed(w, axes, row, longest) for w in g.inputs.values() if w.shape == g.shape):
                return False
        if len(g.inputs) + g.kept + 1 > OPERANDS:
            return False
        g.row = row
        g.members.append(instr)
        g.kept += 1
        self._used(g, v.buffer)
        g.last = self.clock
        self.owner[out.buffer] = g, True         # what needs it runs after the group
        return True

    def _waits(self, instr: Any, g: Group, behind: bool) -> bool:
        """Put behind the group if it is a reduction of its values or small work on what waits already."""
        op, outs, _, _, _ = instr
        if len(g.followers) >= WAITING or not (op in REDUCTIONS or (behind and count(outs[0].shape) * SMALLER <= g.n)):
            return False
        if any(v.buffer < 0 or self.writes[v.buffer] > 1 for v in outs):
            return False
        g.followers.append(instr)
        for v in outs:
            self.owner[v.buffer] = g, True
        return True

    def _again(self, groups: Collection[Group], instr: Any) -> bool:
        """End groups; then what waited behind them, then this instruction."""
        waiting = []
        for g in groups:
            self._close(g)
            waiting += g.followers
        self.queue.extendleft([instr, *reversed(waiting)])
        return True

    def _close(self, g: Group) -> None:
        self.open.remove(g)
        for instr in (*g.members, *g.followers):
            for v in instr[1]:
                del self.owner[v.buffer]
        if g.row:
            self._put_off(g)
        if len(g.members) == 1:
            self.result.append(g.members[0])
            return
        order = side_by_side(g.members)
        instr, registers = fused(g, order, self.fixed)
        if registers > REGISTERS:
            order = g.members
            instr, _ = fused(g, order, self.fixed)
        self.groups[len(self.result)] = tuple([(m[0], m[4]) for m in order])
        self.result.append(instr)

    def _put_off(self, g: Group) -> None:
        """Out of a group with sums and behind it: what is computed from one array, for one later operation of that size. Beside that it costs
        reading the array once more, in the group writing the value and reading it. (The gradient of a norm is x times a number that the sum
        gives; 2 x was stored meanwhile: 300 x 300 float32 33 us, now 18.)"""
        late = []
        for m in g.members:
            op, (out,), ins, _, _ = m
            b = out.buffer
            if op == "sum" or op in TWO or count(out.shape) * out.dtype.itemsize <= LITTLE:
                continue
            if b in self.fixed or self.uses[b] != 1 or g.pending.get(b) != 1:
                continue
            arrays = {v.layout: v for v in ins if any(t for t, n in zip(v.strides, v.shape, strict=True) if n != 1)}
            if len(arrays) != 1 or any(v.dtype.itemsize > out.dtype.itemsize or not v.contiguous for v in arrays.values()):
                continue
            if any(v.buffer in g.values or (v.buffer >= 0 and self.writes[v.buffer] > 1) for v in ins):
                continue
            reader = self._readers().get(b)
            if reader is not None and (reader[0] in self.elementwise or reader[0] == "cast") and count(reader[1][0].shape) == g.n:
                late.append(m)
        if not late or len(late) == len(g.members):
            return
        g.members = [m for m in g.members if not any(m is other for other in late)]
        g.followers[:0] = late
        for _, (out,), _, _, _ in late:
            del g.values[out.buffer]
        read = {v.layout for _, _, ins, _, _ in g.members for v in ins if v.buffer not in g.values}
        g.inputs = {key: v for key, v in g.inputs.items() if key in read}

    def _readers(self) -> dict[int, Any]:
        """Who reads a buffer that is read once."""
        if self._reader is None:
            self._reader = {v.buffer: instr for instr in self.instrs for v in instr[2] if v.buffer >= 0 and self.uses[v.buffer] == 1}
        return self._reader

def fuse(instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Mapping[int, int],
         elementwise: Container[str]) -> tuple[list[Any], int, dict[int, tuple[Any, ...]]]:
    """(instructions, commit, groups): groups gives the (op, node) of every member by the number of its instruction.

    buffers: their bytes. fixed: buffers that live outside the arena, which somebody else reads.
    """
    if not any(outs[0].shape for _, outs, _, _, _ in instrs):
        return list(instrs), commit, {}          # scalars only
    used = usage(instrs, len(buffers))
    instrs, commit, made = rows(instrs, commit, buffers, fixed, elementwise, used)
    fuser = _Fuser(instrs, commit, buffers, fixed, elementwise, usage(instrs, len(buffers)) if made else used)
    fuser.run()
    for i, instr in enumerate(fuser.result):
        if id(instr) in made:
            fuser.groups[i] = made[id(instr)]
    return fuser.result + list(instrs[commit:]), len(fuser.result), fuser.groups
