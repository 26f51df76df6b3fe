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

from collections import defaultdict, deque
from collections.abc import Container, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ..dtypes import FLOAT16
from .rows_group import Names, Rows
from .rows_lines import LINES, Form, Lines
from .sums import WIDEST_ALONE, Domain, column_domain, is_middling, row_domain, saves_products
from .view import count

# A group ends when nothing has joined it for so long; what leads to a sum is looked for as far back. In all it looks at no more than SPAN
# instructions: what stays behind is looked at again for the next group, and a program of a thousand blocks would be for every one.
STALE, SPAN = 64, 320
FEWEST, MOST = 4, LINES // 2     # members: fewer are no group that was too large, and no more are looked for


class _Looked(NamedTuple):
    """What became of the instructions at the front of the work, of which some joined a group."""

    looked: int                              # how many they are
    before: list[Any]                        # those that may run before it,
    late: list[Any]                          # and after it
    strangers: list[tuple[int, Any]]         # those that joined as such, each with how many of the late ones are before it
    marks: list[tuple[int, int, int, int, int]]      # when a member joined: looked at, and lengths of these three, and inputs of the group

    def until(self, members: int) -> _Looked:
        """As it was when so many had joined."""
        if members >= len(self.marks):
            return self
        looked, before, late, strangers, _ = self.marks[members - 1]
        return _Looked(looked, self.before[:before], self.late[:late], self.strangers[:strangers], self.marks[:members])


class Finder:
    def __init__(self, instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Mapping[int, int], elementwise: Container[str],
                 used: tuple[list[int], list[int]]) -> None:
        self.buffers, self.fixed, self.elementwise = buffers, fixed, elementwise
        self.uses, self.writes = used
        self.shared = {b for b, n in enumerate(self.writes) if n > 1}      # buffers with several writers
        self.instrs = instrs[:commit]
        self.wanted: dict[int, Domain] = {}     # id of an instruction that a sum of rows needs, or of the sum
        self.lone: dict[int, tuple[Domain, list[Any]]] = {}       # id of a sum alone: what it sums up is made by these
        self.forms: dict[Form, Lines | None] = {}                 # the lines of groups; None: more than the core takes
        self.names = Names()
        # Of sums and of views of values of rows, by id: what they are to groups of a domain, which look at each again and again (Rows).
        self.known: dict[Domain, tuple[dict[int, Any], dict[int, bool]]] = {}
        self.sizes: dict[int, int] = {}          # buffer -> `size` of what makes it; 0 where several do
        self._seeds()

    def size(self, instr: Any) -> int:
        """Elements of what an instruction makes that may join a group: it is elementwise and makes a whole buffer once; else 0. float16 is
        rounded after every operation and stays apart."""
        b = instr[1][0].buffer
        n = self.sizes.get(b)
        if n is None:
            n = self.sizes[b] = self._size(instr)
        return n

    def _size(self, instr: Any) -> int:
        op, (out, *_), ins, _, _ = instr
        b = out.buffer
        if not (op in self.elementwise or op == "cast") or b < 0 or out.offset or self.writes[b] != 1 or not out.contiguous:
            return 0
        n = count(out.shape)
        if n * out.dtype.itemsize != self.buffers[b] or out.dtype is FLOAT16:
            return 0
        for v in ins:
            if v.dtype is FLOAT16:
                return 0
        return n

    def _seeds(self) -> None:
        """Sums of rows that elementwise work of the whole size uses, and what leads to them."""
        readers: defaultdict[int, list[int]] = defaultdict(list)
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
                readers[v.buffer].append(i)
            for v in outs:
                makers[v.buffer] = i
        for i, d in sums:
            if not self._is_used(i, d, readers):
                continue
            size, stack = d.rows * d.n, [i]
            while stack:
                instr = self.instrs[stack.pop()]
                if id(instr) in self.wanted:
                    continue
                self.wanted[id(instr)] = d
                for v in instr[2]:
                    k = makers.get(v.buffer, -1) if v.buffer >= 0 else -1
                    if k >= 0 and i - k < STALE and self.size(self.instrs[k]) == size:
                        stack.append(k)

        for i, d in (*columns, *[(i, d) for i, d in sums if is_middling(d)]):
            j = makers.get(self.instrs[i][2][0].buffer, -1)
            if not 0 <= j < i < j + STALE or id(self.instrs[i]) in self.wanted or id(self.instrs[j]) in self.wanted:
                continue
            chain = saves_products(self.instrs, j, i, d, readers, makers, self.writes, self.fixed, self.size)
            if chain and i < chain[0] + STALE and id(self.instrs[chain[0]]) not in self.wanted:
                self.lone[id(self.instrs[i])] = d, [self.instrs[k] for k in chain]

    def _lone_sum(self, instr: Any, result: list[Any]) -> tuple[Any, Any] | None:
        """A sum of columns or of rows and what makes its operand, which leaves the result or goes behind."""
        domain, chain = self.lone[id(instr)]
        g = Rows(domain, self, WIDEST_ALONE)
        product = chain[-1][1][0].buffer
        begin = max(len(result) - 2 * STALE, 0)
        at = [next((k for k in range(len(result) - 1, begin - 1, -1) if result[k] is m), -1) for m in chain]
        late = [r for r in result[min(at) + 1:] if not any(r is m for m in chain)]
        if min(at) < 0 or any(v.buffer == m[1][0].buffer for m in chain for r in late for v in r[2]) \
                or not all(not g.follows(m) and g.join(m, True) for m in (*chain, instr)):
            return None
        g.again.add(product)
        found = g.written()
        if found is None:
            return None
        for k in reversed(at):
            del result[k]
        result.append(found[0])
        if self.uses[product] > 1:
            result.append(chain[-1])
        return found

    def _is_used(self, i: int, d: Domain, readers: Mapping[int, Sequence[int]]) -> bool:
        stack, seen = [i], {i}
        while stack:
            for v in self.instrs[stack.pop()][1]:
                for j in readers.get(v.buffer, ()):
                    if j in seen or j - i > STALE:
                        continue
                    seen.add(j)
                    n = self.size(self.instrs[j])
                    if n == d.rows * d.n:
                        return True
                    if n == d.rows:
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
            looked, before, late, found = self._largest(work, domain)
            if found is None:
                result.append(work.popleft())
                continue
            for _ in range(looked):
                work.popleft()
            instr, members = found
            result += before
            result.append(instr)
            made[id(instr)] = members
            work.extendleft(reversed(late))
        return result, made

    def _largest(self, work: deque[Any], domain: Domain) -> tuple[int, list[Any], list[Any], Any]:
        """Instructions at the front of the work as a group: how many were looked at, those before it, those after it, it. Of as many members as
        the core's limits leave room for; a quarter of those that were too many, and again: what leads to one sum and back is some 20, and of
        rows that many arrays take part in fewer are in the caches."""
        g = Rows(domain, self)
        all_looked = seen = self._look(work, g)
        members, strangers, inputs = g.members.copy(), g.strangers.copy(), g.inputs.copy()
        while True:
            before, late, found = self._ended(g, seen)
            most = len(g.members) // 4
            if found is not None or not g.beyond or len(g.members) <= FEWEST:
                return seen.looked, before, late, found
            seen = all_looked.until(most)        # what joined is the same as far as that
            _, _, _, n_strangers, n_inputs = all_looked.marks[min(most, len(members)) - 1]
            g = Rows.begun(domain, self, members[:most], strangers[:n_strangers], dict(islice(inputs.items(), n_inputs)), seen.late)

    def _look(self, work: deque[Any], g: Rows) -> _Looked:
        """What joins the group of the instructions at the front of the work, and what does not."""
        before: list[Any] = []
        late: list[Any] = []
        strangers: list[tuple[int, Any]] = []
        marks: list[tuple[int, int, int, int, int]] = []
        after, shared, domain = g.late, self.shared, g.domain
        looked, end = 0, STALE
        for instr in islice(work, SPAN):
            if looked == end:
                break
            looked += 1
            for v in instr[2]:
                if v.buffer in after:            # of most: hence no calls for these
                    break
            else:
                if not shared or not g.writes_late(instr):       # where each buffer has one writer, nothing writes what others do
                    leads = self.wanted.get(id(instr))
                    if g.join(instr, looked == 1 or leads is domain or leads == domain):
                        if g.strangers and g.strangers[-1] is g.members[-1]:
                            strangers.append((len(late), instr))
                        else:
                            end = looked + STALE
                        marks.append((looked, len(before), len(late), len(strangers), len(g.inputs)))
                        if len(marks) >= MOST:
                            break
                        continue
                    if not g.feeds(instr):
                        before.append(instr)
                        continue
            late.append(instr)
            for v in instr[1]:
                after.add(v.buffer)
            if shared:
                g.touch(instr)
        return _Looked(looked, before, late, strangers, marks)

    def _ended(self, g: Rows, seen: _Looked) -> tuple[list[Any], list[Any], Any]:
        """(what runs before the group, what runs after it, the group or None)."""
        before, late = seen.before, seen.late.copy()
        gone = g.drop_strangers() if seen.strangers else ()
        for k, instr in reversed(seen.strangers):
            if instr[1][0].buffer in gone:
                late.insert(k, instr)
        first = [instr for i, instr in enumerate(before) if instr[0] != "sum" or not g.take_early(instr, before[i + 1:])]
        return first + g.drop_lone_columns(), late, g.instruction() if g.members else None


def rows(instrs: Sequence[Any], commit: int, buffers: Sequence[int], fixed: Mapping[int, int], elementwise: Container[str],
         used: tuple[list[int], list[int]]) -> tuple[list[Any], int, dict[int, Any]]:
    """(instructions, commit, members): members gives (op, node) of every line by the id of a new instruction. used: as view.usage."""
    finder = Finder(instrs, commit, buffers, fixed, elementwise, used)
    if not finder.wanted and not finder.lone:
        return list(instrs), commit, {}
    result, made = finder.run()
    return result + list(instrs[commit:]), len(result), made
