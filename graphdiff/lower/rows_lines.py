"""The lines of an instruction of rows: in which sweep over a row a member runs, and where its value is.

Takes the form of a group, which says of its members what they do and what they read, by numbers, and nothing of buffers: groups of one form,
as the layers of a network are, have the same lines.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .sums import Domain

# The C core's limits (rows.h): lines, registers of each kind.
LINES, NUMBERS = 256, 32
# A row of so many bytes is held in L2 with its like; longer ones only when an operation costs more than memory.
HELD, HELD_COSTLY = 1 << 14, 1 << 18
CHEAP = frozenset(("add", "subtract", "multiply", "zmul", "zmul_either", "divide", "negative", "square", "abs", "maximum", "minimum", "where", "relu",
                   "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "cast", "reciprocal", "sqrt", "sign"))
QUICK = frozenset(("add", "subtract", "multiply", "negative", "square"))
STATS = frozenset(("small", "row"))              # kinds of members that make one value for each row


class Form(NamedTuple):
    """What the lines of a group depend on."""

    domain: Domain
    inputs: int                                  # how many there are
    even: tuple[int, ...]                        # those that are one value for all elements, by -1 - their number
    # (kind, op, dtype, operands, does it leave the group): kinds as in rows_group; operands are numbers of members or -1 - those of inputs
    members: tuple[tuple[str, str, Any, tuple[int, ...], bool], ...]


class Lines(NamedTuple):
    lines: tuple[Any, ...]                       # (op, dtype, result, operands..), or the head of a section: (sweep or stats, kept axes, -1)
    members: tuple[Any, ...]                     # line by line the number of the member, or sweep or stats


class Writer:
    def __init__(self, form: Form) -> None:
        self.domain, n_inputs, self.even, self.members = form
        outs = [i for i, m in enumerate(self.members) if m[4]]
        self.first = len(outs) + n_inputs
        self.number = {i: k for k, i in enumerate(outs)}
        for i in range(n_inputs):
            self.number[-1 - i] = len(outs) + i
        self.uses = [0] * len(self.members)
        for _, _, _, operands, _ in self.members:
            for k in operands:
                if k >= 0:
                    self.uses[k] += 1
        self.ready = self._ready()
        self.sweep = self._sweeps()
        self.held = self._held()
        self.last: dict[int, int] = {}           # of a member: the place, of all lines but heads of sections, of the one that reads it last
        self.at = 0
        self.spare: dict[int, list[int]] = {0: [], NUMBERS: [], 2 * NUMBERS: []}
        self.used = dict.fromkeys(self.spare, 0)
        self.lines: list[Any] = []
        self.places: list[Any] = []

    def _ready(self) -> list[int]:
        """The sweep in which a member can be made first, and values of rows used first."""
        ready: list[int] = []
        for kind, _, _, operands, _ in self.members:
            ready.append(max([ready[k] for k in operands if k >= 0], default=0) + (kind == "row"))
        return ready

    def _sweeps(self) -> list[int]:
        """The sweep of every member: sums as soon as they can be, other work with what reads it first."""
        sweep = self.ready.copy()
        first: dict[int, int] = {}               # of a value or input: the first sweep that reads it
        lone: list[int] = []                     # sums of inputs, taken whenever the array is read anyway
        for i in range(len(sweep) - 1, -1, -1):
            kind, _, _, operands, _ = self.members[i]
            if kind == "small":
                continue
            if kind == "whole":
                mine = first.get(i, sweep[i])
            elif operands[0] < 0 and (kind == "column" or not self.uses[i]):
                lone.append(i)
                continue
            else:
                mine = self.ready[operands[0]] if operands[0] >= 0 else 0
            sweep[i] = mine
            for k in operands:
                if first.get(k, mine) >= mine:
                    first[k] = mine
        for i in lone:
            sweep[i] = first.get(self.members[i][3][0], 0)
        return sweep

    def _held(self) -> set[int]:
        """Values that wait for later sweeps in registers. Outputs are read again where they were written."""
        sweep, members = self.sweep, self.members
        held: set[int] = set()
        for i, (_, _, _, operands, _) in enumerate(members):
            for k in operands:
                if k >= 0 and sweep[i] > sweep[k] and members[k][0] == "whole" and not members[k][4] and k not in held and self._stays(k):
                    held.add(k)
        return held

    def _stays(self, i: int) -> bool:
        """Is it better held for a later sweep than made again? Not one operation on one input and values of rows, which costs no store, nor
        what is cheap where rows are long."""
        _, op, dtype, operands, _ = self.members[i]
        if op in QUICK:
            wide = [k for k in operands if k not in self.even and (k < 0 or self.members[k][0] not in STATS)]
            if len(wide) == 1 and wide[0] < 0:
                return False
        nbytes = self.domain.n * dtype.itemsize
        return bool(nbytes <= HELD or (op not in CHEAP and nbytes <= HELD_COSTLY))

    def _needed(self, sweep: int) -> list[int]:
        """What this sweep computes: for its sums and results, and again what was made before and is not held."""
        need: set[int] = set()
        chosen: list[int] = []
        for i in range(len(self.members) - 1, -1, -1):
            kind, _, _, operands, leaves = self.members[i]
            if kind == "small":
                continue
            at = self.sweep[i]
            if kind != "whole":
                wanted = at == sweep
            elif leaves or i in self.held:
                wanted = at == sweep or (at > sweep and i in need)
            else:
                wanted = i in need
            if wanted:
                chosen.append(i)
                need.update(operands)
        chosen.reverse()
        return chosen

    def _sections(self) -> list[tuple[str, list[int]]]:
        """Sweeps over rows and, between them, work on values of rows, each with its members."""
        top = max([at for at, m in zip(self.sweep, self.members, strict=True) if m[0] != "small"])
        stats: dict[int, list[int]] = {}
        for i, m in enumerate(self.members):
            if m[0] == "small":
                stats.setdefault(min(self.sweep[i], top + 1), []).append(i)
        sections: list[tuple[str, list[int]]] = []
        for sweep in range(top + 2):
            if sweep in stats:
                sections.append(("stats", stats[sweep]))
            if sweep <= top:
                sections.append(("sweep", self._needed(sweep)))
        return sections

    def write(self) -> Lines | None:
        """The lines; None: they, or the registers they need, are more than the core takes."""
        sections = self._sections()
        at = 0
        for _, members in sections:
            for i in members:
                for k in self.members[i][3]:
                    if k >= 0:
                        self.last[k] = at
                at += 1
        for section, members in sections:
            self._section(section, members)
        if len(self.lines) > LINES or max(self.used.values()) > NUMBERS:
            return None
        return Lines(tuple(self.lines), tuple(self.places))

    def _section(self, section: str, members: Sequence[int]) -> None:
        number, first = self.number, self.first
        self.lines.append((section, len(self.domain.kept), -1))
        self.places.append(section)
        self.used[0], self.spare[0] = 0, []
        for k in [k for k, n in number.items() if first <= n < first + NUMBERS]:
            del number[k]
        for i in members:
            kind, op, dtype, operands, _ = self.members[i]
            numbers = [number[k] for k in operands]
            dying = [k for k in dict.fromkeys(operands) if number[k] >= first and self.last.get(k) == self.at]
            if kind in ("whole", "small"):
                self._free(dying, dtype.itemsize)
            to = number.get(i)
            if to is None:
                to = number[i] = self._place(2 * NUMBERS if kind in STATS else NUMBERS if i in self.held else 0)
            self._free(dying, 0)
            self.lines.append(("column_sum" if kind == "column" else op, dtype, to, *numbers))
            self.places.append(i)
            self.at += 1

    def _place(self, kind: int) -> int:
        """A free number of the registers (0), the held ones or the stats."""
        if self.spare[kind]:
            return self.spare[kind].pop()
        self.used[kind] += 1
        return self.first + kind + self.used[kind] - 1

    def _free(self, dying: Sequence[int], same: int) -> None:
        """Numbers of operands that nothing reads any more; same: of that many bytes an element, or (0) of any."""
        for k in dying:
            if k in self.number and (not same or self.members[k][2].itemsize == same):
                number = self.number.pop(k)
                self.spare[(number - self.first) // NUMBERS * NUMBERS].append(number)
