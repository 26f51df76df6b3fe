"""A group of instructions over rows (rows): what joins it, and then the lines of the one instruction that it becomes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .sums import LINKS, WIDEST, Domain, is_still, runs_along
from .view import View, contiguous_strides, count

if TYPE_CHECKING:
    from .rows import Finder

# The C core's limits (rows.h): operands, lines, registers of each kind.
OPERANDS, LINES, NUMBERS = 32, 256, 32
# A row of so many bytes is held in L2 with its like; longer ones only when an operation costs more than memory.
HELD, HELD_COSTLY = 1 << 14, 1 << 18
CHEAP = frozenset(("add", "subtract", "multiply", "zmul", "zmul_either", "divide", "negative", "square", "abs", "maximum", "minimum", "where", "relu",
                   "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "cast", "reciprocal", "sqrt", "sign"))
QUICK = frozenset(("add", "subtract", "multiply", "negative", "square"))


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


class Rows:
    """A group being made."""

    def __init__(self, domain: Domain, finder: Finder, widest: int = WIDEST) -> None:
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
        self.beyond = False                      # is it beyond the core's limits?

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
        """The instruction and its members line by line; None where it is not worth it or beyond the core's limits (then `beyond`)."""
        users = [m for m in self.members if m.kind == "whole" and any(k in self.small for k in m.operands)]
        sums = sum([m.kind in ("row", "column") for m in self.members])
        if not users or (sums == 1 and any(m.instr[0] not in LINKS for m in users)):
            return None
        if self.domain.turned and not all(k[0] == "small" or is_still(v) or runs_along(v) for k, v in self.inputs.items()):
            return None
        return Writer(self).instruction()


class Writer:
    """The lines of a group: in which sweep a member runs, and where its value is."""

    def __init__(self, g: Rows) -> None:
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
        g.beyond = len(self.outs) + len(g.inputs) > OPERANDS
        if not whole or g.beyond or not self.outs:
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
        g.beyond = len(self.lines) > LINES or max(self.used.values()) > NUMBERS
        if g.beyond:
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
