"""The memory map of a program: which bytes of the arena hold what, and when.

Time runs to the right, one column an instruction or several in which nothing changes; offsets run down. A buffer is a
rectangle from the instruction that makes it to the last that touches it; where it is written over in place, the next one
follows without a gap. Small buffers are left out when there are too many for one picture.
"""
from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from ..errors import show_name
from ..graph.node import Node
from ..lower.program import GROUPS

MOST = 48                # buffers in one map: more rows and columns than fit on a page otherwise
UNIT, LOW, HIGH = 22.0, 13.0, 52.0     # points: width of a column, least and largest height of a row
CHARACTER = 5.2          # points a character at size 9


def show_nbytes(n: int) -> str:
    """1 B, 75.3 KB, 2 MB: powers of 1000."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"


@dataclass(slots=True)
class Slot:
    """One buffer: rows and columns [first, last) of the grid."""

    row0: int
    row1: int
    column0: int
    column1: int
    text: str
    tip: str
    adjoint: bool


@dataclass(slots=True)
class Map:
    """Slots on a grid: `rows` are heights in points with the offset of each, `columns` the first instruction of each."""

    title: str
    rows: list[tuple[float, int]]
    columns: list[tuple[float, str]]
    slots: list[Slot]

    @property
    def width(self) -> float:
        return sum(c[0] for c in self.columns)

    @property
    def height(self) -> float:
        return sum(r[0] for r in self.rows)

    def table(self, legend: str = "") -> str:
        """An HTML-like label of Graphviz; texts are escaped. legend: a line above."""
        from .dot import COLORS, GROUP_COLOR, TEXT_COLOR, markup
        n = len(self.columns)
        out = ['<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">']
        out += [f'<TR><TD COLSPAN="{n + 1}" ALIGN="LEFT">{markup(text)}</TD></TR>' for text in (legend, self.title) if text]
        out.append("<TR><TD></TD>")
        for width, text in self.columns:
            out.append(f'<TD WIDTH="{width:.0f}" ALIGN="LEFT"><FONT POINT-SIZE="8">{markup(text)}</FONT></TD>')
        out.append("</TR>")
        taken: dict[tuple[int, int], Slot] = {}
        for s in self.slots:
            for r in range(s.row0, s.row1):
                for c in range(s.column0, s.column1):
                    taken[r, c] = s
        for r, (height, offset) in enumerate(self.rows):
            out.append(f'<TR><TD ALIGN="RIGHT" VALIGN="TOP" HEIGHT="{height:.0f}"><FONT POINT-SIZE="8">{offset}</FONT></TD>')
            for c in range(n):
                slot = taken.get((r, c))
                if slot is None:
                    out.append("<TD></TD>")
                elif (slot.row0, slot.column0) == (r, c):
                    fill, border = COLORS["adjoint" if slot.adjoint else "memory"]
                    out.append(f'<TD ROWSPAN="{slot.row1 - r}" COLSPAN="{slot.column1 - c}" BORDER="1" COLOR="{border}" BGCOLOR="{fill}" '
                               f'FIXEDSIZE="FALSE"><FONT COLOR="{TEXT_COLOR}" POINT-SIZE="9">{markup(self.fitting(slot))}</FONT></TD>')
            out.append("</TR>")
        return f'<FONT COLOR="{GROUP_COLOR}">{"".join(out)}</TABLE></FONT>'

    def fitting(self, slot: Slot) -> str:
        """As much of a slot's text as its rectangle holds."""
        room = int((sum(c[0] for c in self.columns[slot.column0:slot.column1]) - 4) / CHARACTER)
        if not slot.text.strip():
            return "\u00a0"            # Graphviz takes no text without a character
        if len(slot.text) <= room:
            return slot.text
        word = slot.text.split(" ")[0]
        return word if len(word) <= room else word[:max(1, room - 1)] + ("…" if room > 1 else "")

    def svg(self, left: float, top: float) -> str:
        """The same as SVG elements from a point on."""
        from .dot import COLORS, GROUP_COLOR, TEXT_COLOR
        xs, ys = [left + 46.0], [top + 34.0]
        for width, _ in self.columns:
            xs.append(xs[-1] + width)
        for height, _ in self.rows:
            ys.append(ys[-1] + height)
        out = [f'<g class="memory"><text x="{left:.1f}" y="{top + 12:.1f}" fill="{GROUP_COLOR}">{escape(self.title)}</text>']
        small = f'font-size="8" fill="{GROUP_COLOR}"'
        out += [f'<text x="{xs[i]:.1f}" y="{top + 28:.1f}" {small}>{escape(text)}</text>' for i, (_, text) in enumerate(self.columns)]
        out += [f'<text x="{xs[0] - 4:.1f}" y="{ys[i] + 9:.1f}" text-anchor="end" {small}>{offset}</text>' for i, (_, offset) in enumerate(self.rows)]
        for s in self.slots:
            fill, border = COLORS["adjoint" if s.adjoint else "memory"]
            x, y, w, h = xs[s.column0], ys[s.row0], xs[s.column1] - xs[s.column0], ys[s.row1] - ys[s.row0]
            out.append(f'<g class="slot"><title>{escape(s.tip)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{fill}" '
                       f'stroke="{border}"/><text x="{x + w / 2:.1f}" y="{y + h / 2 + 3:.1f}" font-size="9" text-anchor="middle" '
                       f'fill="{TEXT_COLOR}">{escape(self.fitting(s))}</text></g>')
        out.append("</g>")
        return "\n".join(out)


def memory_map(program: Any) -> Map | None:
    """The map of a program; None when it uses no arena."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    makers: dict[int, tuple[str, Any]] = {}
    for i, (op, outs, ins, lines, node) in enumerate(program.instrs):
        for v in (*outs, *ins):
            if v.buffer >= 0:
                first.setdefault(v.buffer, i)
                last[v.buffer] = i
        for number, v in enumerate(outs):
            if v.buffer >= 0 and v.buffer not in makers:
                makers[v.buffer] = op, node
                if op in GROUPS:               # which of its operations writes this output
                    makers[v.buffer] = next(m for line, m in zip(lines[::-1], program.members(i)[::-1], strict=True) if line[2] == number)
    found = [b for b in first if program.places[b] >= 0 and program.buffers[b] and program.arena_nbytes]
    if not found:
        return None
    shown = sorted(sorted(found, key=lambda b: -program.buffers[b])[:MOST], key=lambda b: (first[b], b))
    left_out = len(found) - len(shown)
    # Where one buffer ends in the instruction that writes over it in place, its column ends before that instruction.
    begins = {(program.places[b], first[b]) for b in shown}
    times: dict[int, tuple[int, int]] = {}
    for b in shown:
        end = last[b] + 1
        if last[b] > first[b] and (program.places[b], last[b]) in begins:
            end = last[b]
        times[b] = (first[b], end)
    marks = sorted({t for pair in times.values() for t in pair} | {0, len(program.instrs)})
    edges = sorted({e for b in shown for e in (program.places[b], program.places[b] + program.buffers[b])})
    columns = [(UNIT, str(a)) for a in marks[:-1]]
    largest = max(b - a for a, b in pairwise(edges))
    rows = [(max(LOW, HIGH * (b - a) / largest), a) for a, b in pairwise(edges)]
    slots: list[Slot] = []
    taken: set[tuple[int, int]] = set()
    for b in shown:
        r0, r1 = bisect_left(edges, program.places[b]), bisect_left(edges, program.places[b] + program.buffers[b])
        c0, c1 = bisect_left(marks, times[b][0]), bisect_left(marks, times[b][1])
        while c0 < c1 and any((r, c0) in taken for r in range(r0, r1)):       # partly written over: what is still its own
            c0 += 1
        while c0 < c1 and any((r, c) in taken for r in range(r0, r1) for c in range(c0, c1)):
            c1 -= 1
        if c0 == c1:
            continue
        taken |= {(r, c) for r in range(r0, r1) for c in range(c0, c1)}
        op, node = makers.get(b, ("?", None))
        name = show_name(node.name, 24) if isinstance(node, Node) and node.name else op
        size = show_nbytes(program.buffers[b])
        tip = f"{name}, {size}: arena[{program.places[b]}] from instruction {first[b]} to {last[b]}"
        slots.append(Slot(r0, r1, c0, c1, f"{name} {size}", tip, isinstance(node, Node) and node.origin is not None))
    total = sum(program.buffers[b] for b in found)
    title = (f"memory: arena {show_nbytes(program.arena_nbytes)}" + (f", {show_nbytes(total)} without reuse" if total > program.arena_nbytes else "")
             + "; instructions to the right, offsets down" + (f"; {left_out} smaller buffers not shown" if left_out else ""))
    return Map(title, rows, columns, slots)
