"""A group of instructions over rows (rows): what joins it, and the one instruction that it becomes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .rows_lines import Form, Writer
from .sums import LINKS, WIDEST, Domain, is_still, runs_along
from .view import View, contiguous_strides, count

if TYPE_CHECKING:
    from .rows import Finder

UNKNOWN: Any = object()                          # of a form that no group had yet
OPERANDS = 32                                    # the C core's limit (rows.h)


def _unturned(v: View, order: Sequence[int]) -> View:
    """The view of which v is the one with axes in `order`."""
    back = [0] * len(order)
    for i, a in enumerate(order):
        back[a] = i
    return v.transpose(back)


def _is_spread(v: View, d: Domain) -> bool:
    """Is it one value for each row, the same for all elements of the row?"""
    if v.shape != d.shape or v.offset:
        return False
    strides = dict(zip(d.kept, d.kept_strides, strict=True))
    return all(s == strides.get(i, 0) for i, (s, n) in enumerate(zip(v.strides, v.shape, strict=True)) if n != 1)


class Names:
    """Numbers below 0 of views, as operands of whole or of small members: the same for views of the same elements. All groups of a program
    have them in common, so that they are looked up by the view, which lives as long as its instruction."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}        # by layout, and whether it is an operand of small members
        self.of: tuple[dict[int, int], dict[int, int]] = {}, {}       # by id of the view
        self.keep: list[View] = []               # an id is a key only while its object lives
        self.even: set[int] = set()              # numbers of those that are one value for all elements
        self.few: set[int] = set()               # of operands of small members

    def whole(self, v: View) -> int:
        """The number of an operand of whole members."""
        known = self.of[0].get(id(v))
        return self._find(v, False) if known is None else known

    def small(self, v: View) -> int:
        """The number of an operand of small members."""
        known = self.of[1].get(id(v))
        return self._find(v, True) if known is None else known

    def _find(self, v: View, small: bool) -> int:
        key = (v.layout, small)
        name = self.numbers.get(key)
        if name is None:
            name = self.numbers[key] = -1 - len(self.numbers)
            if small:
                self.few.add(name)
            if is_still(v):
                self.even.add(name)
        self.of[small][id(v)] = name
        self.keep.append(v)
        return name


class _Member(NamedTuple):
    kind: str                                    # "whole", "small", "row" (a sum), "column" (a sum)
    instr: Any
    operands: tuple[int, ...]                    # buffers of the group, or numbers below 0 of inputs
    made: int                                    # the buffer of what it makes


# A member of a tuple of its four, in a third of the time: one is made for every instruction that a group tries.
_member_of: Callable[[tuple[str, Any, tuple[int, ...], int]], _Member] = partial(tuple.__new__, _Member)


class Rows:
    """A group being made."""

    def __init__(self, domain: Domain, finder: Finder, widest: int = WIDEST) -> None:
        self.domain = domain
        self.widest = widest                     # elements of a row whose columns may be summed up
        self.finder = finder
        self.size = domain.rows * domain.n
        self.is_straight = domain.order == tuple(range(len(domain.order)))
        self.members: list[_Member] = []
        self.whole: set[int] = set()             # buffers of what members make of the whole size,
        self.small: set[int] = set()             # and of a value for each row
        self.inputs: dict[int, View] = {}        # number -> view in the order of the rows' axes; of small ones over the kept axes
        self.even = finder.names.even
        self.few = finder.names.few
        self.sums, self.spread = finder.known.setdefault(domain, ({}, {}))
        self.late: set[int] = set()              # buffers of what must run after the group
        self.again: set[int] = set()             # buffers that are made again elsewhere: nothing of them leaves the group
        self.touched: set[int] = set()           # buffers with several writers that the group or what is late uses
        self.strangers: list[_Member] = []       # members that shared nothing with it when they joined, or only with such members
        self.apart: set[int] = set()             # what they make and read, and no other member
        self.beyond = False                      # is it beyond the core's limits?

    @classmethod
    def begun(cls, domain: Domain, finder: Finder, members: Sequence[_Member], strangers: Sequence[_Member], inputs: dict[int, View],
              late: Sequence[Any]) -> Rows:
        """The group as it was when the last of some members had joined, of one that more have joined since. late: what runs after it."""
        g = cls(domain, finder)
        g.members, g.strangers, g.inputs = list(members), list(strangers), inputs
        odd = {id(m) for m in strangers}
        for m in members:
            (g.whole if m.kind == "whole" else g.late if m.kind == "column" else g.small).add(m.made)
            if id(m) in odd:
                g.apart.update([k for k in (m.made, *m.operands) if k not in g.even])
            elif m.kind != "small":
                g.apart.difference_update(m.operands)
        g.late.update([v.buffer for instr in late for v in instr[1]])
        if finder.shared:
            for instr in (*[m.instr for m in members], *late):
                g.touch(instr)
        return g

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

    def _whole(self, v: View, flat: bool, new: dict[int, View]) -> int | None:
        """What a whole operand that is no whole value of the group is called, or None. flat: it may have another shape. Inputs go to new."""
        d = self.domain
        if v.buffer in self.small:
            key = id(v)
            if key not in self.spread:
                self.spread[key] = _is_spread(v, d)
            return v.buffer if self.spread[key] else None
        if v.shape != d.shape and not flat:
            return None
        name = self.finder.names.whole(v)
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
        known, near = False, not self.members    # near: it shares something with members that are no strangers
        for v in ins:
            name: int | None = v.buffer
            if name not in self.whole:
                name = self._whole(v, flat, new)
                if name is None:
                    return False
                shares = name >= 0 or (name in self.inputs and name not in self.even)
            elif v.offset or not v.contiguous:
                return False
            else:
                shares = True
            names.append(name)
            if shares:
                known = True
                near = near or name not in self.apart
        if not known and not wanted:
            return False
        if new:
            self.inputs.update(new)
        self.whole.add(out.buffer)
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
        for v in ins:
            if v.buffer in small:
                break
        else:
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
            name = self.finder.names.small(v)
            names.append(name)
            if name not in self.inputs:
                new[name] = View(v.buffer, v.offset, d.kept_shape, d.kept_strides if v.contiguous else (0,) * len(d.kept_shape), v.dtype)
        if new:
            self.inputs.update(new)
        small.add(out.buffer)
        self._add("small", instr, names)
        return True

    def _summed(self, instr: Any) -> tuple[bool, View] | None:
        """(does it sum up columns, not rows; what it sums up, with the axes of the domain) of a sum that may join; else None."""
        _, (out,), (v, *_), _, node = instr
        d = self.domain
        if node is None or node.op.name != "sum" or node.inputs[0].shape != d.shape or v.dtype is not d.dtype \
                or self.finder.writes[out.buffer] != 1 or out.buffer < 0:
            return None
        axes = node._attrs[0]
        order, column = d.order, False
        if axes != d.axes:
            order = (*[i for i in range(len(d.shape)) if i not in axes], *axes)
            summed = {a for a in axes if d.shape[a] != 1}
            column = summed == d.long_kept
            if not (column or summed == d.long_axes):
                return None
        if v.shape != d.sizes(order):
            return None
        return column, v if order == d.order and self.is_straight else _unturned(v, order)

    def _take_sum(self, instr: Any, wanted: bool) -> bool:
        out = instr[1][0]
        key = id(instr)
        if key not in self.sums:
            self.sums[key] = self._summed(instr)
        found = self.sums[key]
        if found is None:
            return False
        column, v = found
        if v.buffer in self.small or (column and self.domain.n > self.widest):
            return False
        new: dict[int, View] = {}
        name: int | None = v.buffer
        if name not in self.whole:
            name = self._whole(v, False, new)
        elif v.offset or not v.contiguous:
            return False
        if name is None or not (wanted or column or name >= 0 or name in self.inputs) or (column and name in self.even):
            return False
        if new:
            self.inputs.update(new)
        self.apart.discard(name)
        if column:
            self.late.add(out.buffer)            # what uses it runs after the group
        else:
            self.small.add(out.buffer)
        self._add("column" if column else "row", instr, [name])
        return True

    def _add(self, kind: str, instr: Any, names: Sequence[int]) -> _Member:
        m = _member_of((kind, instr, tuple(names), instr[1][0].buffer))
        self.members.append(m)
        if self.finder.shared:
            self.touch(instr)
        return m

    def touch(self, instr: Any) -> None:
        shared = self.finder.shared
        self.touched.update([v.buffer for v in (*instr[1], *instr[2]) if v.buffer in shared])

    def take_early(self, instr: Any, after: Sequence[Any]) -> bool:
        """Into the group: a sum of rows that came before the group read what it sums up. after: what came before the group later on. What a
        member reads as an input, the group can't make."""
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
        names = {m.made: {k for k in (m.made, *m.operands) if k not in self.even} for m in self.strangers}
        while met := [b for b in names if not names[b] <= self.apart]:
            for b in met:
                self.apart -= names.pop(b)
        gone = set(names)
        if gone:
            self.members = [m for m in self.members if m.made not in gone]
            self.whole -= gone
            read = {k for m in self.members for k in m.operands}
            self.inputs = {k: v for k, v in self.inputs.items() if k in read}
        return gone

    # -- the instruction ---------------------------------------------------------------------------------------------

    def instruction(self) -> tuple[Any, Any] | None:
        """The instruction and its members line by line; None where it is not worth it or beyond the core's limits (then `beyond`)."""
        users = [m for m in self.members if m.kind == "whole" and not self.small.isdisjoint(m.operands)]
        if not users:
            return None
        sums = sum([m.kind in ("row", "column") for m in self.members])
        if sums == 1 and any(m.instr[0] not in LINKS for m in users):
            return None
        if self.domain.turned and not all(k in self.few or is_still(v) or runs_along(v) for k, v in self.inputs.items()):
            return None
        return self.written()

    def written(self) -> tuple[Any, Any] | None:
        """The same, whether it is worth it or not."""
        f, members, again = self.finder, self.members, self.again
        uses = dict.fromkeys([m.made for m in members], 0)      # by members
        for m in members:
            for k in m.operands:
                if k >= 0:
                    uses[k] += 1
        outs = [m for m in members if m.kind == "column" or m.made in f.fixed or (f.uses[m.made] > uses[m.made] and m.made not in again)]
        self.beyond = len(outs) + len(self.inputs) > OPERANDS
        if self.beyond or not outs:
            return None
        small = [k for k in self.inputs if k in self.few]
        inputs = [*small, *[k for k in self.inputs if k not in self.few]]
        if len(small) == len(inputs):
            return None
        if self.domain.turned and any(m.kind != "small" and m.kind != "row" for m in outs):
            return None                          # these arrays, which have the last axis, are in the order of memory
        number = {k: -1 - i for i, k in enumerate(inputs)}
        number.update({m.made: i for i, m in enumerate(members)})
        leave = {m.made for m in outs}
        lines = [(kind, instr[0], instr[1][0].dtype, tuple([number[k] for k in operands]), made in leave) for kind, instr, operands, made in members]
        form = Form(self.domain, len(inputs), tuple([number[k] for k in inputs if k in self.even]), tuple(lines))
        found = f.forms.get(form, UNKNOWN)       # asked once: it hashes all that the form holds
        if found is UNKNOWN:
            found = f.forms[form] = Writer(form).write()
        self.beyond = found is None
        if found is None:
            return None
        done = tuple([(i, None) if isinstance(i, str) else (members[i].instr[0], members[i].instr[4]) for i in found.members])
        views = tuple([self._out(m) for m in outs])
        return ("rows", views, tuple([self.inputs[k] for k in inputs]), found.lines, members[-1].instr[4]), done

    def _out(self, m: _Member) -> View:
        (v,), d = m.instr[1], self.domain
        if m.kind == "whole":
            v = v if v.shape == d.shape else v.with_layout(d.shape, d.strides)
            return v if self.is_straight else v.transpose(d.order)
        return v.with_layout(d.row_shape, contiguous_strides(d.row_shape)) if m.kind == "column" else v.with_layout(d.kept_shape, d.kept_strides)
