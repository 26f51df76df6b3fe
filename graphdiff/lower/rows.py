"""Rows: sums of rows and the elementwise work around them become one instruction, done to a row while it is in cache.

A normalisation and its gradient sum up rows, use the sums element by element, sum again, and so on. Unfused, every sum is an
array written and read once more. Here all of it is one instruction of sections: a sweep over a row's elements, operations on
its sums, another sweep. What a later sweep needs of an earlier one is held where rows are short, and computed again where
they are long. Sums of columns (the gradients of scales and shifts) are taken on the way. Bits are those of the members.

Rows may be any axes that include the last: those of a layer, or all but the channels of an image. Or others, along which the memory of all
operands runs: of a matrix that is transposed, the columns.

Sums of columns without sums of rows (sum(x * y, axis=0)) are such an instruction, too, where they save an array of products or of what two
operations make: it is made again for whoever else reads it. So are sums of rows by themselves, of a middling length (sums.py).
"""
from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from ..dtypes import FLOAT16
from .sums import LINKS, WIDEST, WIDEST_ALONE, Domain, column_domain, is_middling, is_still, row_domain, runs_along, saves_products
from .view import View, contiguous_strides, count, usage

# The C core's limits (rows.h): operands, lines, registers of each kind.
OPERANDS, LINES, NUMBERS = 32, 256, 32
# A row of so many bytes is held in L2 with its like; longer ones only when an operation costs more than memory.
HELD, HELD_COSTLY = 1 << 14, 1 << 18
CHEAP = frozenset(("add", "subtract", "multiply", "zmul", "zmul_either", "divide", "negative", "square", "abs", "maximum", "minimum", "where", "relu",
                   "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "cast", "reciprocal", "sqrt", "sign"))
QUICK = frozenset(("add", "subtract", "multiply", "negative", "square"))
# A group ends when nothing has joined it for so long; what leads to a sum is looked for as far back. In all it looks at no more than SPAN
# instructions: what stays behind is looked at again for the next group, and a program of a thousand blocks would be for every one.
STALE, SPAN = 64, 320


def _unturned(v: View, order: Sequence[int]) -> View:
    """The view of which v is the one with axes in `order`."""
    back = [0] * len(order)
    for i, a in enumerate(order):
        back[a] = i
    return v.transpose(back)


def _key(v: View) -> tuple[Any, ...]:
    """Equal for views of the same elements."""
    return v.buffer, v.offset, v.dtype, tuple([s if n != 1 else 0 for s, n in zip(v.strides, v.shape, strict=True)])


class _Member(NamedTuple):
    kind: str                                    # "whole", "small", "row" (a sum), "column" (a sum)
    instr: Any
    operands: tuple[Any, ...]                    # buffers of the group, or keys of inputs


class _Rows:
    """A group being made."""

    def __init__(self, domain: Domain, finder: _Finder, widest: int = WIDEST) -> None:
        self.domain = domain
        self.widest = widest                     # elements of a row whose columns may be summed up
        self.dtype = domain.dtype                # of all sums
        self.finder = finder
        self.order = (*domain.kept, *domain.axes)
        self.kept = domain.sizes(domain.kept)
        self.row = domain.sizes(domain.axes)
        self.rows, self.n = count(self.kept), count(self.row)
        self.members: list[_Member] = []
        self.whole: dict[int, int] = {}          # buffer -> the sweep in which it can be made first
        self.small: dict[int, int] = {}          # buffer -> the sweep in which it can be used first
        self.inputs: dict[Any, View] = {}        # key -> view in the order of the rows' axes; of small ones over the kept axes
        self.late: set[int] = set()              # buffers of what must run after the group
        self.again: set[int] = set()             # buffers that are made again elsewhere: nothing of them leaves the group
        self.touched: set[int] = set()           # buffers with several writers that the group or what is late uses

    # -- what may join -----------------------------------------------------------------------------------------------

    def take(self, instr: Any, wanted: bool) -> bool:
        """Into the group if it can be; wanted: even if it shares nothing with it yet."""
        if any(v.buffer in self.late for v in (*instr[2], *instr[1])) or any(v.buffer in self.touched for v in instr[1]):
            return False
        if instr[0] == "sum":
            return self._take_sum(instr, wanted)
        if not self.finder.fusable(instr):
            return False
        size = count(instr[1][0].shape)
        if size == self.rows * self.n:
            return self._take_whole(instr, wanted)
        return size == self.rows and self._take_small(instr)

    def _whole(self, v: View, flat: bool, new: dict[Any, View]) -> Any:
        """The name of a whole operand, or None. Inputs go to new."""
        d = self.domain
        if v.buffer in self.whole:
            return v.buffer if v.contiguous and not v.offset else None
        if v.buffer in self.small:
            strides = dict(zip(d.kept, contiguous_strides(self.kept), strict=True))
            moves = [(i, s) for i, (s, n) in enumerate(zip(v.strides, v.shape, strict=True)) if n != 1]
            same = v.shape == d.shape and not v.offset and all(s == strides.get(i, 0) for i, s in moves)
            return v.buffer if same else None
        if v.shape != d.shape:
            if not flat:
                return None
            v = v.with_layout(d.shape, contiguous_strides(d.shape) if v.contiguous else (0,) * len(d.shape))
        key = "whole", *_key(v)
        if key not in self.inputs:
            new[key] = v.transpose(self.order)
        return key

    def _take_whole(self, instr: Any, wanted: bool) -> bool:
        _, (out,), ins, _, _ = instr
        flat = all(v.contiguous or is_still(v) for v in ins)
        new: dict[Any, View] = {}
        if out.shape != self.domain.shape and not flat:
            return False
        names = [self._whole(v, flat, new) for v in ins]
        if None in names:
            return False
        known = any(not isinstance(k, tuple) or (k in self.inputs and not is_still(self.inputs[k])) for k in names)
        if not known and not wanted:
            return False
        self.inputs.update(new)
        self.whole[out.buffer] = max([self.whole.get(k, self.small.get(k, 0)) for k in names])
        self._add("whole", instr, names)
        return True

    def _take_small(self, instr: Any) -> bool:
        _, (out,), ins, _, _ = instr
        if not any(v.buffer in self.small for v in ins):
            return False
        names: list[Any] = []
        new = {}
        for v in ins:
            if v.buffer in self.small:
                if v.offset or not v.contiguous or count(v.shape) != self.rows:
                    return False
                names.append(v.buffer)
                continue
            if v.buffer in self.whole or not (v.contiguous or is_still(v)):
                return False
            flat = v.with_layout(self.kept, contiguous_strides(self.kept) if v.contiguous else (0,) * len(self.kept))
            names.append(("small", *_key(flat)))
            new[names[-1]] = flat
        self.inputs.update(new)
        self.small[out.buffer] = max([self.small.get(k, 0) for k in names])
        self._add("small", instr, names)
        return True

    def _take_sum(self, instr: Any, wanted: bool) -> bool:
        _, (out,), (v, *_), _, node = instr
        d = self.domain
        if node is None or node.op.name != "sum" or node.inputs[0].shape != d.shape or v.dtype is not self.dtype \
                or self.finder.writes[out.buffer] != 1 or out.buffer < 0 or v.buffer in self.small:
            return False
        axes = {a for a in node._attrs[0] if d.shape[a] != 1}
        order = [*[i for i in range(len(d.shape)) if i not in node._attrs[0]], *node._attrs[0]]
        column = axes == {a for a in d.kept if d.shape[a] != 1}
        if v.shape != d.sizes(order) or not (column or axes == {a for a in d.axes if d.shape[a] != 1}) or (column and self.n > self.widest):
            return False
        new: dict[Any, View] = {}
        name = self._whole(_unturned(v, order), False, new)
        if name is None or not (wanted or column or not isinstance(name, tuple) or name in self.inputs):
            return False
        if not column:
            self.small[out.buffer] = self.whole.get(name, 0) + 1
            self.inputs.update(new)
        elif isinstance(name, tuple) and is_still(_unturned(v, order)):
            return False
        else:
            self.inputs.update(new)
            self.late.add(out.buffer)            # what uses it runs after the group
        self._add("column" if column else "row", instr, [name])
        return True

    def _add(self, kind: str, instr: Any, names: Sequence[Any]) -> None:
        self.members.append(_Member(kind, instr, tuple(names)))
        self.touch(instr)

    def touch(self, instr: Any) -> None:
        writes = self.finder.writes
        self.touched.update([v.buffer for v in (*instr[1], *instr[2]) if v.buffer >= 0 and writes[v.buffer] > 1])

    def take_early(self, instr: Any, after: Sequence[Any]) -> bool:
        """Into the group: a sum of rows that came before the group read what it sums up. after: what came before the group later on. What a
        member reads as an input, the group can't make."""
        made = instr[1][0].buffer
        read = any(v.buffer == made for v in self.inputs.values())
        return (instr[0] == "sum" and not read and not any(v.buffer == made for other in after for v in (*other[2], *other[1]))
                and self.take(instr, False))

    def leave(self, instr: Any) -> bool:
        """It has not joined: must it run after the group?"""
        outs, ins = instr[1], instr[2]
        after = any(v.buffer in self.late or v.buffer in self.whole or v.buffer in self.small for v in ins) \
            or any(v.buffer in self.touched or v.buffer in self.late for v in outs)
        if after:
            self.late.update([v.buffer for v in outs])
            self.touch(instr)
        return after

    def drop_lone_columns(self) -> list[Any]:
        """Sums of columns of arrays that nothing else of the group reads: taken out and returned, to run before."""
        read = {k for m in self.members if m.kind != "column" for k in m.operands}
        lone = [m for m in self.members if m.kind == "column" and isinstance(m.operands[0], tuple) and m.operands[0] not in read]
        if lone:
            self.members = [m for m in self.members if m not in lone]
            for m in lone:
                self.inputs.pop(m.operands[0], None)
        return [m.instr for m in lone]

    # -- the instruction ---------------------------------------------------------------------------------------------

    def instruction(self) -> tuple[Any, Any] | None:
        """The instruction and its members line by line; None where it is not worth it or beyond the core's limits."""
        users = [m for m in self.members if m.kind == "whole" and any(k in self.small for k in m.operands)]
        sums = sum([m.kind in ("row", "column") for m in self.members])
        if not users or (sums == 1 and any(m.instr[0] not in LINKS for m in users)):
            return None
        if self.domain.turned and not all(k[0] == "small" or is_still(v) or runs_along(v) for k, v in self.inputs.items()):
            return None
        return _Writer(self).instruction()


class _Writer:
    """The lines of a group: in which sweep a member runs, and where its value is."""

    def __init__(self, g: _Rows) -> None:
        self.g = g
        self.uses: dict[int, int] = {}           # by members
        for m in g.members:
            for k in m.operands:
                if not isinstance(k, tuple):
                    self.uses[k] = self.uses.get(k, 0) + 1
        f = g.finder
        self.outs = [m for m in g.members if m.kind == "column" or self.made(m) in f.fixed
                     or (f.uses[self.made(m)] > self.uses.get(self.made(m), 0) and self.made(m) not in g.again)]
        self.sweep = self._sweeps()
        self.held = self._held()
        self.number: dict[Any, int] = {}
        self.first = len(self.outs) + len(g.inputs)
        self.last: dict[int, tuple[int, int]] = {}
        self.spare: dict[int, list[int]] = {0: [], NUMBERS: [], 2 * NUMBERS: []}
        self.used = dict.fromkeys(self.spare, 0)
        self.lines: list[Any] = []
        self.members: list[Any] = []

    @staticmethod
    def made(m: _Member) -> int:
        return int(m.instr[1][0].buffer)

    def _sweeps(self) -> dict[int, int]:
        """The sweep of every member, by its buffer: sums as soon as they can be, other work with what reads it first."""
        g = self.g
        sweep: dict[int, int] = {}
        first: dict[Any, int] = {}               # of a value or input: the first sweep that reads it
        for m in reversed(g.members):
            b = self.made(m)
            if m.kind == "small":
                sweep[b] = g.small[b]
                continue
            ready = g.whole.get(m.operands[0], 0) if m.kind != "whole" else g.whole[b]
            lone = m.kind == "column" or (m.kind == "row" and not self.uses.get(b))
            if lone and isinstance(m.operands[0], tuple):
                continue                         # whenever the array is read anyway
            sweep[b] = first.get(b, ready) if m.kind == "whole" else ready
            for k in m.operands:
                first[k] = min(first.get(k, sweep[b]), sweep[b])
        for m in g.members:
            if self.made(m) not in sweep:
                sweep[self.made(m)] = first.get(m.operands[0], 0)
        return sweep

    def _held(self) -> set[int]:
        """Values that wait for later sweeps in registers. Outputs are read again where they were written."""
        g = self.g
        outs = {self.made(m) for m in self.outs}
        held = set()
        makers = {self.made(m): m for m in g.members if m.kind == "whole"}
        for m in g.members:
            for k in m.operands:
                if k in makers and k not in outs and self.sweep[self.made(m)] > self.sweep[k] and not self._is_quick(makers[k]):
                    out = makers[k].instr[1][0]
                    nbytes = g.n * out.dtype.itemsize
                    if nbytes <= HELD or (makers[k].instr[0] not in CHEAP and nbytes <= HELD_COSTLY):
                        held.add(k)
        return held

    def _is_quick(self, m: _Member) -> bool:
        """Is it as quick to make again as to read? One operation on one input and values of rows, which costs no store."""
        g = self.g
        wide = [k for k in m.operands if k not in g.small and not (isinstance(k, tuple) and is_still(g.inputs[k]))]
        return m.instr[0] in QUICK and len(wide) == 1 and isinstance(wide[0], tuple)

    def _needed(self, sweep: int) -> set[int]:
        """What this sweep computes: for its sums and results, and again what was made before and is not held."""
        g = self.g
        outs = {self.made(m) for m in self.outs}
        need: set[Any] = set()
        chosen: set[int] = set()
        for m in reversed(g.members):
            b = self.made(m)
            if m.kind == "small":
                continue
            mine = self.sweep[b] == sweep
            root = mine and (m.kind != "whole" or b in outs or b in self.held)
            if not root and not (m.kind == "whole" and b in need and (mine or not (self.sweep[b] < sweep and (b in outs or b in self.held)))):
                continue
            chosen.add(b)
            need.update(m.operands)
        return chosen

    def _place(self, kind: int) -> int:
        """A free number of the registers (0), the held ones or the stats."""
        if self.spare[kind]:
            return self.spare[kind].pop()
        self.used[kind] += 1
        return self.first + kind + self.used[kind] - 1

    def _free(self, m: _Member, at: tuple[int, int], *, same: int) -> None:
        """Numbers of operands that nothing reads any more; same: of that many bytes an element, or (0) of any."""
        for k in set(m.operands):
            if self.last.get(k) == at and k in self.number and self.number[k] >= self.first and (not same or self.nbytes[k] == same):
                number = self.number.pop(k)
                self.spare[(number - self.first) // NUMBERS * NUMBERS].append(number)

    def instruction(self) -> tuple[Any, Any] | None:
        g = self.g
        top = max(self.sweep[self.made(m)] for m in g.members if m.kind != "small")
        small = [k for k in g.inputs if k[0] == "small"]
        whole = [k for k in g.inputs if k[0] == "whole"]
        if not whole or len(self.outs) + len(g.inputs) > OPERANDS or not self.outs:
            return None
        if g.domain.turned and any(m.kind != "small" and m.kind != "row" for m in self.outs):
            return None                          # these arrays, which have the last axis, are in the order of memory
        for i, m in enumerate(self.outs):
            self.number[self.made(m)] = i
        for i, k in enumerate((*small, *whole)):
            self.number[k] = len(self.outs) + i
        self.nbytes = {self.made(m): m.instr[1][0].dtype.itemsize for m in g.members}
        sections: list[tuple[str, list[_Member]]] = []
        for sweep in range(top + 1):
            stats = [m for m in g.members if m.kind == "small" and self.sweep[self.made(m)] == sweep]
            if stats:
                sections.append(("stats", stats))
            chosen = self._needed(sweep)
            sections.append(("sweep", [m for m in g.members if self.made(m) in chosen]))
        rest = [m for m in g.members if m.kind == "small" and self.sweep[self.made(m)] > top]
        if rest:
            sections.append(("stats", rest))
        for s, (_, members) in enumerate(sections):
            for i, m in enumerate(members):
                for k in m.operands:
                    if not isinstance(k, tuple):
                        self.last[k] = s, i
        for s, (kind, members) in enumerate(sections):
            self._section(s, kind, members)
        if len(self.lines) > LINES or max(self.used.values()) > NUMBERS:
            return None
        last = next(m.instr[4] for m in reversed(g.members))
        views = tuple([self._out(m) for m in self.outs])
        inputs = tuple([g.inputs[k] for k in (*small, *whole)])
        return ("rows", views, inputs, tuple(self.lines), last), tuple(self.members)

    def _section(self, s: int, kind: str, members: Sequence[_Member]) -> None:
        g = self.g
        self.lines.append((kind, len(g.kept), -1))
        self.members.append((kind, None))
        self.used[0], self.spare[0] = 0, []
        for k in [k for k, n in self.number.items() if self.first <= n < self.first + NUMBERS]:
            del self.number[k]
        for i, m in enumerate(members):
            op, (out,), _, _, node = m.instr
            operands = [self.number[k] for k in m.operands]
            b = out.buffer
            if m.kind in ("whole", "small"):
                self._free(m, (s, i), same=out.dtype.itemsize)
            to = self.number.get(b)
            if to is None:
                to = self._place(2 * NUMBERS if m.kind in ("small", "row") else NUMBERS if b in self.held else 0)
                self.number[b] = to
            self._free(m, (s, i), same=0)
            self.lines.append(("column_sum" if m.kind == "column" else op, out.dtype, to, *operands))
            self.members.append((op, node))

    def _out(self, m: _Member) -> View:
        g = self.g
        (v,) = m.instr[1]
        if m.kind == "whole":
            return v.with_layout(g.domain.shape, contiguous_strides(g.domain.shape)).transpose(g.order)
        shape = g.row if m.kind == "column" else g.kept
        return v.with_layout(shape, contiguous_strides(shape))


class _Finder:
    def __init__(self, instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Mapping[int, int], elementwise: Container[str]) -> None:
        self.buffers, self.fixed, self.elementwise = buffers, fixed, elementwise
        self.uses, self.writes = usage(instrs, len(buffers))
        self.instrs = instrs[:commit]
        self.wanted: dict[int, Domain] = {}     # id of an instruction that a sum of rows needs, or of the sum
        self.lone: dict[int, tuple[Domain, list[Any]]] = {}       # id of a sum alone: what it sums up is made by these
        self._seeds()

    def fusable(self, instr: Any) -> bool:
        """Elementwise, and makes a whole buffer once; float16 is rounded after every operation and stays apart."""
        op, (out, *_), ins, _, _ = instr
        b = out.buffer
        if not (op in self.elementwise or op == "cast") or b < 0 or out.offset or self.writes[b] != 1 or not out.contiguous:
            return False
        if out.dtype is FLOAT16 or any(v.dtype is FLOAT16 for v in ins):
            return False
        return bool(count(out.shape) * out.dtype.itemsize == self.buffers[b])

    def _seeds(self) -> None:
        """Sums of rows that elementwise work of the whole size uses, and what leads to them."""
        readers: dict[int, list[int]] = {}
        makers: dict[int, int] = {}
        sums, columns = [], []
        for i, instr in enumerate(self.instrs):
            if instr[0] != "sum":
                continue
            if (d := row_domain(instr)) is not None:
                sums.append((i, d))
            elif (d := column_domain(instr)) is not None:
                columns.append((i, d))
        if not sums and not columns:
            return
        for i, (_, outs, ins, _, _) in enumerate(self.instrs):
            for v in ins:
                readers.setdefault(v.buffer, []).append(i)
            for v in outs:
                makers[v.buffer] = i
        for i, d in sums:
            if not self._is_used(i, d, readers):
                continue
            stack = [i]
            while stack:
                j = stack.pop()
                if id(self.instrs[j]) in self.wanted:
                    continue
                self.wanted[id(self.instrs[j])] = d
                for v in self.instrs[j][2]:
                    k = makers.get(v.buffer, -1) if v.buffer >= 0 else -1
                    if k >= 0 and i - k < STALE and count(self.instrs[k][1][0].shape) == count(d.shape) and self.fusable(self.instrs[k]):
                        stack.append(k)

        for i, d in (*columns, *[(i, d) for i, d in sums if is_middling(d)]):
            j = makers.get(self.instrs[i][2][0].buffer, -1)
            if not 0 <= j < i < j + STALE or id(self.instrs[i]) in self.wanted or id(self.instrs[j]) in self.wanted:
                continue
            chain = saves_products(self.instrs, j, i, d, readers, makers, self.writes, self.fixed, self.fusable)
            if chain and i < chain[0] + STALE and id(self.instrs[chain[0]]) not in self.wanted:
                self.lone[id(self.instrs[i])] = d, [self.instrs[k] for k in chain]

    def _lone_sum(self, instr: Any, result: list[Any]) -> tuple[Any, Any] | None:
        """A sum of columns or of rows and what makes its operand, which leaves the result or goes behind."""
        domain, chain = self.lone[id(instr)]
        g = _Rows(domain, self, WIDEST_ALONE)
        product = chain[-1][1][0].buffer
        begin = max(len(result) - 2 * STALE, 0)
        at = [next((k for k in range(len(result) - 1, begin - 1, -1) if result[k] is m), -1) for m in chain]
        late = [r for r in result[min(at) + 1:] if not any(r is m for m in chain)]
        if min(at) < 0 or any(v.buffer == m[1][0].buffer for m in chain for r in late for v in r[2]) \
                or not all(g.take(m, True) for m in (*chain, instr)):
            return None
        g.again.add(product)
        found = _Writer(g).instruction()
        if found is None:
            return None
        for k in reversed(at):
            del result[k]
        result.append(found[0])
        if self.uses[product] > 1:
            result.append(chain[-1])
        return found

    def _is_used(self, i: int, d: Domain, readers: Mapping[int, Sequence[int]]) -> bool:
        rows, size = count(d.sizes(d.kept)), count(d.shape)
        stack, seen = [i], {i}
        while stack:
            for v in self.instrs[stack.pop()][1]:
                for j in readers.get(v.buffer, ()):
                    instr = self.instrs[j]
                    if j in seen or j - i > STALE or not self.fusable(instr):
                        continue
                    seen.add(j)
                    n = count(instr[1][0].shape)
                    if n == size:
                        return True
                    if n == rows:
                        stack.append(j)
        return False

    def run(self) -> tuple[list[Any], dict[int, Any]]:
        """(instructions, members line by line by the id of a new instruction)."""
        work = deque(self.instrs)
        result: list[Any] = []
        made: dict[int, Any] = {}
        while work:
            domain = self.wanted.pop(id(work[0]), None)
            if domain is None:
                instr = work.popleft()
                lone = self._lone_sum(instr, result) if id(instr) in self.lone else None
                if lone is None:
                    result.append(instr)
                else:
                    made[id(lone[0])] = lone[1]
                continue
            taken, before, late, found = self._stream(work, domain)
            if found is None:
                result.append(taken[0])
                work.extendleft(reversed(taken[1:]))
                continue
            instr, members = found
            result += before
            result.append(instr)
            made[id(instr)] = members
            work.extendleft(reversed(late))
        return result, made

    def _stream(self, work: deque[Any], domain: Domain) -> tuple[list[Any], list[Any], list[Any], Any]:
        """Instructions from the front of the work as a group: all that were taken, those before it, those after it, it."""
        g = _Rows(domain, self)
        taken: list[Any] = []
        before: list[Any] = []
        late: list[Any] = []
        idle = 0
        while work and idle < STALE and len(taken) < SPAN and len(g.members) < LINES // 2:
            instr = work.popleft()
            taken.append(instr)
            if g.take(instr, len(taken) == 1 or self.wanted.get(id(instr)) == domain):
                idle = 0
                continue
            idle += 1
            (late if g.leave(instr) else before).append(instr)
        first = [instr for i, instr in enumerate(before) if not g.take_early(instr, before[i + 1:])]
        return taken, first + g.drop_lone_columns(), late, g.instruction() if g.members else None


def rows(instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Mapping[int, int],
         elementwise: Container[str]) -> tuple[list[Any], int, dict[int, Any]]:
    """(instructions, commit, members): members gives (op, node) of every line by the id of a new instruction."""
    finder = _Finder(instrs, commit, buffers, fixed, elementwise)
    if not finder.wanted and not finder.lone:
        return list(instrs), commit, {}
    result, made = finder.run()
    return result + list(instrs[commit:]), len(result), made
