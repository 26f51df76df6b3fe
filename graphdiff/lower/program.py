"""The flat program: instructions over views, and its listing, one line an instruction."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..dtypes import NAME
from ..graph.node import Node
from ..graph.walk import uncollecting
from .view import View

ARENA, CONSTANTS, FIRST = 0, 1, 2       # enum gd_base
GROUPS = frozenset(("fused", "rows"))   # instructions of several operations, a line each
SECTIONS = frozenset(("sweep", "stats"))    # lines of rows that begin a section


@dataclass(slots=True)
class Program:
    """Instructions are (kernel name, output views, input views, integers, node they belong to).

    A fused group is one instruction: its integers are lines (op, dtype, result, operands..) and its node is that of its last
    operation; `nodes` gives all. A group of rows is the same (rows.py), with lines that begin a section: (sweep or stats,
    number of kept axes, -1).
    """

    instrs: list[tuple[str, tuple[View, ...], tuple[View, ...], tuple[Any, ...], Node | None]]
    buffers: list[int]                              # bytes of every arena buffer
    constants: bytearray
    bases: list[tuple[str, str, int, bool]]         # (kind, name, bytes, writable) from base FIRST on
    inputs: list[View]
    outputs: list[View]
    commit: int = 0                                 # first instruction that is never interrupted
    places: list[int] = field(default_factory=list)     # buffer -> arena offset, or -1 - base when it lives outside
    arena_nbytes: int = 0
    groups: dict[int, tuple[tuple[str, Node | None], ...]] = field(default_factory=dict)    # instruction -> (op, node) of its members

    def members(self, number: int) -> tuple[tuple[str, Node | None], ...]:
        """The operations of an instruction in running order, each with the node it belongs to (None: moving memory)."""
        op, _, _, _, node = self.instrs[number]
        return self.groups.get(number, ((op, node),))

    def nodes(self, number: int) -> tuple[Node, ...]:
        """The nodes an instruction computes."""
        return tuple(dict.fromkeys([node for _, node in self.members(number) if node is not None]))

    def base_name(self, number: int) -> str:
        return ("arena", "constants")[number] if number < FIRST else self.bases[number - FIRST][1]

    def where(self, view: View) -> tuple[int, int]:
        """(base, byte offset) of a view, once memory is planned."""
        if view.buffer < 0:
            return -1 - view.buffer, view.offset
        place = self.places[view.buffer]
        return (ARENA, place + view.offset) if place >= 0 else (-1 - place, view.offset)

    def operand(self, view: View) -> str:
        base, offset = self.where(view)
        name = "a" if base == ARENA else "c" if base == CONSTANTS else self.base_name(base)
        text = f"{name}[{offset}]" if base <= CONSTANTS or offset else name
        layout = "" if view.contiguous else ":" + ",".join(str(s) for s in view.strides)
        return f"{text}:{NAME[view.dtype]}{list(view.shape)}{layout}" if view.shape else f"{text}:{NAME[view.dtype]}"

    @uncollecting
    def __str__(self) -> str:
        lines = [f"program  {len(self.instrs)} instructions, arena {self.arena_nbytes} bytes, "
                 f"constants {len(self.constants)} bytes"]
        for i, (op, outs, ins, attrs, node) in enumerate(self.instrs):
            if i == self.commit and i < len(self.instrs):
                lines.append("  -- commit --")
            head = f"{i:4}  {op:<14} {', '.join(map(self.operand, outs))} <- {', '.join(map(self.operand, ins))}"
            if op in GROUPS:
                lines += [head, *self._lines(i)]
            else:
                lines.append(head + (f" {list(attrs)}" if attrs else "") + _site(node))
        return "\n".join(lines)

    def _lines(self, number: int) -> list[str]:
        """A line an operation of a group. o0, i0: the group's outputs and inputs in the order above; r0: a register; of rows,
        h0: a register that holds a row for later sweeps, s0: one value a row."""
        group, outs, ins, attrs, _ = self.instrs[number]
        first, registers = len(outs), len(outs) + len(ins)

        def name(k: int) -> str:
            kind, at = divmod(k - registers, 32) if group == "rows" else (0, k - registers)
            return f"o{k}" if k < first else f"i{k - first}" if k < registers else f"{'rhs'[kind]}{at}"

        rows = []
        for (op, dtype, to, *operands), (_, node) in zip(attrs, self.members(number), strict=True):
            if op in SECTIONS:
                rows.append(f"      {op}")
                continue
            result = f"{NAME[dtype]} " if op == "cast" else ""
            axes = f" {[len(ins[0].shape) - len(outs[to].shape)]}" if op == "sum" and group == "fused" else ""
            rows.append(f"        {name(to):<3} = {op} {result}{', '.join(map(name, operands))}{axes}{_site(node)}")
        return rows

    __repr__ = __str__


def _site(node: Node | None) -> str:
    return "" if node is None or node.site is None else f"   ; {node.site}"
