"""A group of instructions over rows (rows): what joins it, and then the lines of the one instruction that it becomes."""
from __future__ import annotations

from collections.abc import Collection, Sequence
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


class _Member(NamedTuple):
    kind: str                                    # "whole", "small", "row" (a sum), "column" (a sum)
    instr: Any
    operands: tuple[int, ...]                    # buffers of the group, or numbers below 0 of inputs
    made: int                                    # the buffer of what it makes


class Rows:
    """A group being made."""

    def __init__(self, domain: Domain, finder: Finder, widest: int = WIDEST) -> None:
        self.domain = domain
        self.widest = widest                     # elements of a row whose columns may be summed up
        self.finder = finder
        self.size = domain.rows * domain.n
        self.is_straight = domain.order == tuple(range(len(domain.order)))
        self.members: list[_Member] = []
        self.whole: dict[int, int] = {}          # buffer -> the sweep in which it can be made first
        self.small: dict[int, int] = {}          # buffer -> the sweep in which it can be used first
        self.inputs: dict[int, View] = {}        # number -> view in the order of the rows' axes; of small ones over the kept axes
        self.numbers: dict[Any, int] = {}        # the number of what has a layout, as an operand of whole or of small members
        self.even: set[int] = set()              # numbers of those that are one value for all elements
        self.few: set[int] = set()               # of small ones
        self.late: set[int] = set()              # buffers of what must run after the group
        self.again: set[int] = set()             # buffers that are made again elsewhere: nothing of them leaves the group
        self.touched: set[int] = set()           # buffers with several writers that the group or what is late uses
        self.strangers: list[_Member] = []       # members that shared nothing with it when they joined, or only with such members
        self.apart: set[int] = set()             # what they make and read, and no other member
        self.beyond = False                      # is it beyond the core's limits?

    # -- what may join -----------------------------------------------------------------------------------------------

    def follows(self, instr: Any) -> bool:
        """Does it need what runs after the group, or write where that or the group reads or writes?"""
        late = self.late
        for v in instr[2]:
            if v.buffer in late:
                return True
        return self.writes_late(instr)

    def writes_late(self, instr: Any) -> bool:
        """Does it write where the group or what runs after it reads or writes?"""
        for v in instr[1]:
            if v.buffer in self.late or v.buffer in self.touched:
                return True
        return False

    def feeds(self, instr: Any) -> bool:
        """Does it need a value of the group?"""
        for v in instr[2]:
            if v.buffer in self.whole or v.buffer in self.small:
                return True
        return False

    def join(self, instr: Any, wanted: bool) -> bool:
        """Into the group if it can be, of what does not follow it; wanted: even if it shares nothing with it yet."""
        if instr[0] == "sum":
            return self._take_sum(instr, wanted)
        size = self.finder.size(instr)
        if size == self.size:
            return self._take_whole(instr, wanted)
        return size == self.domain.rows and self._take_small(instr)

    def _input(self, v: View, small: bool) -> int:
        """The number of an operand that the group does not make: the same for views of the same elements."""
        key = (v.layout, small)
        name = self.numbers.get(key)
        if name is None:
            name = self.numbers[key] = -1 - len(self.numbers)
            if small:
                self.few.add(name)
            if is_still(v):
                self.even.add(name)
        return name

    def _whole(self, v: View, flat: bool, new: dict[int, View]) -> int | None:
        """What a whole operand that is no whole value of the group is called, or None. flat: it may have another shape. Inputs go to new."""
        d = self.domain
        if v.buffer in self.small:
            strides = dict(zip(d.kept, d.kept_strides, strict=True))
            moves = [(i, s) for i, (s, n) in enumerate(zip(v.strides, v.shape, strict=True)) if n != 1]
            same = v.shape == d.shape and not v.offset and all(s == strides.get(i, 0) for i, s in moves)
            return v.buffer if same else None
        if v.shape != d.shape and not flat:
            return None
        name = self._input(v, False)
        if name not in self.inputs:
            if v.shape != d.shape:
                v = View(v.buffer, v.offset, d.shape, d.strides if v.contiguous else (0,) * len(d.shape), v.dtype)
            new[name] = v if self.is_straight else v.transpose(d.order)
        return name

    def _take_whole(self, instr: Any, wanted: bool) -> bool:
        _, (out,), ins, _, _ = instr
        flat = out.shape != self.domain.shape
        if flat and not all(v.contiguous or is_still(v) for v in ins):
            return False
        new: dict[int, View] = {}
        names: list[int] = []
        known, near, ready = False, not self.members, 0          # near: it shares something with members that are no strangers
        for v in ins:
            name: int | None = v.buffer
            at = self.whole.get(v.buffer)
            if at is None:
                name = self._whole(v, flat, new)
                if name is None:
                    return False
                shares = name >= 0 or (name in self.inputs and name not in self.even)
                at = self.small[name] if name >= 0 else 0
            elif v.offset or not v.contiguous:
                return False
            else:
                shares = True
            names.append(name)
            if shares:
                known = True
                near = near or name not in self.apart
            if at > ready:
                ready = at
        if not known and not wanted:
            return False
        self.inputs.update(new)
        self.whole[out.buffer] = ready
        m = self._add("whole", instr, names)
        if not near:
            self.strangers.append(m)
            self.apart.update([k for k in (m.made, *names) if k not in self.even])
        elif self.apart:
            self.apart.difference_update(names)
        return True

    def _take_small(self, instr: Any) -> bool:
        _, (out,), ins, _, _ = instr
        d, small = self.domain, self.small
        if not any(v.buffer in small for v in ins):
            return False
        names: list[int] = []
        new: dict[int, View] = {}
        for v in ins:
            if v.buffer in small:
                if v.offset or not v.contiguous or count(v.shape) != d.rows:
                    return False
                names.append(v.buffer)
                continue
            if v.buffer in self.whole or not (v.contiguous or is_still(v)):
                return False
            names.append(self._input(v, True))
            if names[-1] not in self.inputs:
                new[names[-1]] = View(v.buffer, v.offset, d.kept_shape, d.kept_strides if v.contiguous else (0,) * len(d.kept_shape), v.dtype)
        self.inputs.update(new)
        small[out.buffer] = max([small.get(k, 0) for k in names])
        self._add("small", instr, names)
        return True

    def _take_sum(self, instr: Any, wanted: bool) -> bool:
        _, (out,), (v, *_), _, node = instr
        d = self.domain
        if node is None or node.op.name != "sum" or node.inputs[0].shape != d.shape or v.dtype is not d.dtype \
                or self.finder.writes[out.buffer] != 1 or out.buffer < 0 or v.buffer in self.small:
            return False
        axes = node._attrs[0]
        order, column = d.order, False
        if axes != d.axes:
            order = (*[i for i in range(len(d.shape)) if i not in axes], *axes)
            summed = {a for a in axes if d.shape[a] != 1}
            column = summed == d.long_kept
            if not (column or summed == d.long_axes) or (column and d.n > self.widest):
                return False
        if v.shape != d.sizes(order):
            return False
        if order != d.order or not self.is_straight:
            v = _unturned(v, order)
        new: dict[int, View] = {}
        name: int | None = v.buffer
        if name not in self.whole:
            name = self._whole(v, False, new)
        elif v.offset or not v.contiguous:
            return False
        if name is None or not (wanted or column or name >= 0 or name in self.inputs) or (column and name in self.even):
            return False
        self.inputs.update(new)
        self.apart.discard(name)
        if column:
            self.late.add(out.buffer)            # what uses it runs after the group
        else:
            self.small[out.buffer] = self.whole.get(name, 0) + 1
        self._add("column" if column else "row", instr, [name])
        return True

    def _add(self, kind: str, instr: Any, names: Sequence[int]) -> _Member:
        m = _Member(kind, instr, tuple(names), instr[1][0].buffer)
        self.members.append(m)
        if self.finder.shared:
            self.touch(instr)
        return m

    def is_stranger(self, m: _Member) -> bool:
        return bool(self.strangers) and self.strangers[-1] is m

    def touch(self, instr: Any) -> None:
        shared = self.finder.shared
        self.touched.update([v.buffer for v in (*instr[1], *instr[2]) if v.buffer in shared])

    def take_early(self, instr: Any, after: Sequence[Any]) -> bool:
        """Into the group: a sum of rows that came before the group read what it sums up. after: what came before the group later on. What a
        member reads as an input, the group can't make."""
        if instr[0] != "sum":
            return False
        made = instr[1][0].buffer
        read = any(v.buffer == made for v in self.inputs.values())
        return (not read and not any(v.buffer == made for other in after for v in (*other[2], *other[1]))
                and not self.follows(instr) and self.join(instr, False))

    def drop_lone_columns(self) -> list[Any]:
        """Sums of columns of arrays that nothing else of the group reads: taken out and returned, to run before."""
        columns = [m for m in self.members if m.kind == "column" and m.operands[0] < 0]
        if not columns:
            return []
        read = {k for m in self.members if m.kind != "column" for k in m.operands}
        lone = [m for m in columns if m.operands[0] not in read]
        if lone:
            self.members = [m for m in self.members if m not in lone]
            for m in lone:
                self.inputs.pop(m.operands[0], None)
        return [m.instr for m in lone]

    def drop_strangers(self) -> set[int]:
        """What joined because it leads to a sum, and has met neither that nor another one, nor the first member, is taken out, to run after the
        group: the buffers. (Of a chain of norms the derivatives of their activations, which read what is there: each is one with its own norm.)"""
        rest, met = self.strangers, True
        while rest and met:
            before = len(rest)
            for m in rest:
                names = [k for k in (m.made, *m.operands) if k not in self.even]
                if not self.apart.issuperset(names):
                    self.apart.difference_update(names)
            rest = [m for m in rest if m.made in self.apart]
            met = len(rest) < before
        gone = {m.made for m in rest}
        if gone:
            self.members = [m for m in self.members if m.made not in gone]
            for b in gone:
                del self.whole[b]
            read = {k for m in self.members for k in m.operands}
            self.inputs = {k: v for k, v in self.inputs.items() if k in read}
        return gone

    # -- the instruction ---------------------------------------------------------------------------------------------

    def instruction(self) -> tuple[Any, Any] | None:
        """The instruction and its members line by line; None where it is not worth it or beyond the core's limits (then `beyond`)."""
        small = self.small
        users = [m for m in self.members if m.kind == "whole" and not small.keys().isdisjoint(m.operands)]
        if not users:
            return None
        sums = sum([m.kind in ("row", "column") for m in self.members])
        if sums == 1 and any(m.instr[0] not in LINKS for m in users):
            return None
        if self.domain.turned and not all(k in self.few or is_still(v) or runs_along(v) for k, v in self.inputs.items()):
            return None
        return Writer(self).instruction()


class Writer:
    """The lines of a group: in which sweep a member runs, and where its value is."""

    def __init__(self, g: Rows) -> None:
        self.g = g
        fixed, uses = g.finder.fixed, g.finder.uses
        self.uses = mine = {m.made: 0 for m in g.members}        # by members
        for m in g.members:
            for k in m.operands:
                if k >= 0:
                    mine[k] += 1
        self.outs = [m for m in g.members if uses[m.made] > mine[m.made] or m.kind == "column" or m.made in fixed]
        if g.again:
            self.outs = [m for m in self.outs if m.kind == "column" or m.made in fixed or m.made not in g.again]
        self.leaves = {m.made for m in self.outs}
        self.sweep = self._sweeps()
        self.held = self._held()
        self.number: dict[int, int] = {}
        self.first = len(self.outs) + len(g.inputs)
        self.last: dict[int, int] = {}           # of a value: the place, of all lines but heads of sections, of the one that reads it last
        self.at = 0
        self.spare: dict[int, list[int]] = {0: [], NUMBERS: [], 2 * NUMBERS: []}
        self.used = dict.fromkeys(self.spare, 0)
        self.lines: list[Any] = []
        self.members: list[Any] = []

    def _sweeps(self) -> dict[int, int]:
        """The sweep of every member, by its buffer: sums as soon as they can be, other work with what reads it first."""
        whole, small = self.g.whole, self.g.small
        sweep: dict[int, int] = {}
        first: dict[int, int] = {}               # of a value or input: the first sweep that reads it
        lone: list[_Member] = []                 # sums of inputs, taken whenever the array is read anyway
        for m in reversed(self.g.members):
            kind, _, operands, b = m
            if kind == "small":
                sweep[b] = small[b]
                continue
            if kind == "whole":
                mine = first.get(b, whole[b])
            elif operands[0] < 0 and (kind == "column" or not self.uses[b]):
                lone.append(m)
                continue
            else:
                mine = whole.get(operands[0], 0)
            sweep[b] = mine
            for k in operands:
                if first.get(k, mine) >= mine:
                    first[k] = mine
        for m in lone:
            sweep[m.made] = first.get(m.operands[0], 0)
        return sweep

    def _held(self) -> set[int]:
        """Values that wait for later sweeps in registers. Outputs are read again where they were written."""
        sweep = self.sweep
        held: set[int] = set()
        makers: dict[int, _Member] = {}
        for m in self.g.members:
            kind, _, operands, b = m
            for k in operands:
                if k in makers and sweep[b] > sweep[k] and k not in held and self._stays(makers[k]):
                    held.add(k)
            if kind == "whole" and b not in self.leaves:
                makers[b] = m
        return held

    def _stays(self, m: _Member) -> bool:
        """Is it better held for a later sweep than made again? Not one operation on one input and values of rows, which costs no store, nor
        what is cheap where rows are long."""
        g = self.g
        op, (out,), _, _, _ = m.instr
        if op in QUICK:
            wide = [k for k in m.operands if k not in g.small and k not in g.even]
            if len(wide) == 1 and wide[0] < 0:
                return False
        nbytes = g.domain.n * out.dtype.itemsize
        return bool(nbytes <= HELD or (op not in CHEAP and nbytes <= HELD_COSTLY))

    def _needed(self, sweep: int) -> list[_Member]:
        """What this sweep computes: for its sums and results, and again what was made before and is not held."""
        need: set[int] = set()
        chosen: list[_Member] = []
        for m in reversed(self.g.members):
            kind, _, operands, b = m
            if kind == "small":
                continue
            at = self.sweep[b]
            if kind != "whole":
                wanted = at == sweep
            elif b in self.leaves or b in self.held:
                wanted = at == sweep or (at > sweep and b in need)
            else:
                wanted = b in need
            if wanted:
                chosen.append(m)
                need.update(operands)
        chosen.reverse()
        return chosen

    def _place(self, kind: int) -> int:
        """A free number of the registers (0), the held ones or the stats."""
        if self.spare[kind]:
            return self.spare[kind].pop()
        self.used[kind] += 1
        return self.first + kind + self.used[kind] - 1

    def _free(self, dying: Collection[int], *, same: int) -> None:
        """Numbers of operands that nothing reads any more; same: of that many bytes an element, or (0) of any."""
        for k in dying:
            if k in self.number and (not same or self.nbytes[k] == same):
                number = self.number.pop(k)
                self.spare[(number - self.first) // NUMBERS * NUMBERS].append(number)

    def instruction(self) -> tuple[Any, Any] | None:
        g = self.g
        small = [k for k in g.inputs if k in g.few]
        whole = [k for k in g.inputs if k not in g.few]
        g.beyond = self.first > OPERANDS
        if not whole or g.beyond or not self.outs:
            return None
        if g.domain.turned and any(m.kind != "small" and m.kind != "row" for m in self.outs):
            return None                          # these arrays, which have the last axis, are in the order of memory
        for i, m in enumerate(self.outs):
            self.number[m.made] = i
        for i, k in enumerate((*small, *whole)):
            self.number[k] = len(self.outs) + i
        self.nbytes = {m.made: m.instr[1][0].dtype.itemsize for m in g.members}
        sections = self._sections()
        at = 0
        for _, members in sections:
            for m in members:
                for k in m.operands:
                    if k >= 0:
                        self.last[k] = at
                at += 1
        for kind, members in sections:
            self._section(kind, members)
        g.beyond = len(self.lines) > LINES or max(self.used.values()) > NUMBERS
        if g.beyond:
            return None
        last = g.members[-1].instr[4]
        views = tuple([self._out(m) for m in self.outs])
        inputs = tuple([g.inputs[k] for k in (*small, *whole)])
        return ("rows", views, inputs, tuple(self.lines), last), tuple(self.members)

    def _sections(self) -> list[tuple[str, list[_Member]]]:
        """Sweeps over rows and, between them, work on values of rows, each with its members."""
        top = max([self.sweep[m.made] for m in self.g.members if m.kind != "small"])
        stats: dict[int, list[_Member]] = {}
        for m in self.g.members:
            if m.kind == "small":
                stats.setdefault(min(self.sweep[m.made], top + 1), []).append(m)
        sections: list[tuple[str, list[_Member]]] = []
        for sweep in range(top + 2):
            if sweep in stats:
                sections.append(("stats", stats[sweep]))
            if sweep <= top:
                sections.append(("sweep", self._needed(sweep)))
        return sections

    def _section(self, section: str, members: Sequence[_Member]) -> None:
        number, first, last, at = self.number, self.first, self.last, self.at
        self.lines.append((section, len(self.g.domain.kept), -1))
        self.members.append((section, None))
        self.used[0], self.spare[0] = 0, []
        for k in [k for k, n in number.items() if first <= n < first + NUMBERS]:
            del number[k]
        for kind, (op, (out,), _, _, node), operands, b in members:
            numbers = [number[k] for k in operands]
            dying = {k for k, n in zip(operands, numbers) if n >= first and last.get(k) == at}      # noqa: B905
            if dying and kind in ("whole", "small"):
                self._free(dying, same=out.dtype.itemsize)
            to = number.get(b)
            if to is None:
                to = number[b] = self._place(2 * NUMBERS if kind in ("small", "row") else NUMBERS if b in self.held else 0)
            if dying:
                self._free(dying, same=0)
            self.lines.append(("column_sum" if kind == "column" else op, out.dtype, to, *numbers))
            self.members.append((op, node))
            at += 1
        self.at = at

    def _out(self, m: _Member) -> View:
        g = self.g
        (v,), d = m.instr[1], g.domain
        if m.kind == "whole":
            v = v if v.shape == d.shape else v.with_layout(d.shape, d.strides)
            return v if g.is_straight else v.transpose(d.order)
        return v.with_layout(d.row_shape, contiguous_strides(d.row_shape)) if m.kind == "column" else v.with_layout(d.kept_shape, d.kept_strides)
