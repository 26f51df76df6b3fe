"""A compiled function as a picture: what runs after all passes, which nodes share an instruction, and where results live.

An instruction that came from one node is a box; one that came from several (a fused group) is a group of boxes, one a
micro-operation. Edges follow the memory that instructions read and write. The arena over time is drawn below.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import GraphdiffError, show_name
from ..graph.node import Node
from ..graph.walk import toposort
from ..lower.program import GROUPS, SECTIONS
from ..specs import format_shape
from .fold import Fold, shown_of
from .memory import memory_map, show_nbytes
from .picture import Box, Edge, Picture, build, symbol
from .scopes import is_adjoint


class _Program:
    """Builds the picture: boxes by key, writers by memory."""

    def __init__(self, f: Any, direction: str, max_nodes: int | None, fold: bool, fills: Mapping[int, str]) -> None:
        self.program = f.program
        self.fills = fills
        self.picture = Picture(direction=direction)
        self.ids: dict[Any, str] = {}
        self.edges: set[tuple[str, str]] = set()
        self.writers: dict[Any, list[str]] = {}
        inputs = [x.label for x in f.inputs]
        variables = _variables(f)
        self.bases: dict[int, tuple[str, str, int]] = {}
        counts: dict[str, int] = {}
        for i, (kind, name, nbytes, _) in enumerate(self.program.bases):
            k = counts[kind] = counts.get(kind, -1) + 1
            known = inputs if kind == "input" else [v.label for v in variables] if kind == "variable" else []
            self.bases[2 + i] = kind, show_name(known[k], 40) if k < len(known) and known[k] != kind else name, nbytes
        n = len(self.program.instrs)
        self.shown = set(range(n))
        if max_nodes is not None and n > max_nodes:
            max_nodes = shown_of(n, max_nodes) if fold else max_nodes
            front = max_nodes // 2
            self.shown = {*range(front), *range(n - (max_nodes - front), n)}
            self.picture.hidden = n - len(self.shown)

    def box(self, key: Any, label: tuple[str, ...], kind: str, tip: str, cluster: tuple[str, ...] = (), fill: str = "") -> str:
        name = self.ids.get(key)
        if name is None:
            name = self.ids[key] = f"n{len(self.ids)}"
            self.picture.boxes.append(Box(name, label, kind, show_name(tip, 200), cluster, fill=fill))
        return name

    def edge(self, a: str, b: str) -> None:
        if a != b and (a, b) not in self.edges:
            self.edges.add((a, b))
            self.picture.edges.append(Edge(a, b))

    def key(self, view: Any) -> Any:
        return ("buffer", view.buffer) if view.buffer >= 0 else ("base", -1 - view.buffer)

    def place(self, view: Any) -> str:
        base, offset = self.program.where(view)
        return f"arena[{offset}]" if base == 0 else "constants" if base == 1 else self.bases[base][1]

    def external(self, base: int) -> str:
        kind, name, nbytes = self.bases[base]
        return self.box(("base", base), (f"{name}: {show_nbytes(nbytes)}",), "variable" if kind == "variable" else "input",
                        "argument" if kind == "input" else kind)

    def sources(self, view: Any, frame: tuple[str, ...] = ()) -> list[str]:
        """Boxes of what wrote the memory a view reads. A constant has a box in every frame that reads it."""
        found = self.writers.get(self.key(view))
        if found is not None:
            return found
        base, _ = self.program.where(view)
        if base == 1:
            return [self.box(("constant", view.offset, frame), (_constant(self.program, view),), "constant", "constant", frame)]
        return [self.external(base)] if base >= 2 and view.buffer < 0 else []

    def instruction(self, i: int) -> None:
        op, outs, ins, attrs, node = self.program.instrs[i]
        if i in self.shown and op in GROUPS:
            self.group(i)
            return
        if i not in self.shown:
            me = self.box("cut", (f"… {self.picture.hidden:,} instructions more",), "summary", "left out")
        else:
            spec = f"{outs[0].dtype.name}{format_shape(outs[0].shape)}" if outs else ""
            tip = f"instruction {i}" + (f" {list(attrs)}" if attrs else "") + ("" if node is None or node.site is None else f" at {node.site}")
            kind = "adjoint" if node is not None and is_adjoint(node) else "op"
            name = "" if node is None or node.name is None else f" {show_name(node.name, 30)}"
            me = self.box(("instr", i), (f"{i}: {op}{name}", f"{spec} → {', '.join(map(self.place, outs))}"), kind, tip, fill=self.fills.get(i, ""))
        for v in ins:
            for s in self.sources(v):
                self.edge(s, me)
        for v in outs:
            self.wrote(v, me)

    def group(self, i: int) -> None:
        """A fused group, or one of rows: one box a micro-operation inside a frame, wired as its lines say (lower/program.py): a
        number is an output, an input or a register, which holds what was last written to it."""
        kind, outs, ins, lines, _ = self.program.instrs[i]
        members = self.program.members(i)
        spec = f"{outs[0].dtype.name}{format_shape(outs[0].shape)}"
        size = sum([op not in SECTIONS for op, _ in members])
        frame = (f"{i}: {size} {'in rows' if kind == 'rows' else 'fused'}, {spec} → {', '.join(map(self.place, outs))}",)
        first, registers = len(outs), len(outs) + len(ins)
        held: dict[int, str] = {}
        for k, ((_, _, to, *operands), (op, node)) in enumerate(zip(lines, members, strict=True)):
            if op in SECTIONS:
                continue
            own = node if node is not None and node.op.name == op else None       # a cast or copy made on the way has the op of no node
            word = op if own is None else symbol(own) if own.name is None else f"{show_name(own.name, 30)} = {symbol(own)}"
            site = "" if node is None or node.site is None else f" at {node.site}"
            me = self.box(("micro", i, k), (word,), "adjoint" if node is not None and is_adjoint(node) else "op", f"instruction {i}, {op}{site}",
                          frame, self.fills.get(i, ""))
            for number in operands:
                if first <= number < registers:
                    for s in self.sources(ins[number - first], frame):
                        self.edge(s, me)
                else:
                    self.edge(held[number], me)
            held[to] = me
        for number, v in enumerate(outs):
            self.wrote(v, held[number])

    def wrote(self, view: Any, me: str) -> None:
        """Remember who wrote a piece of memory; a part of a buffer leaves its other writers known."""
        key = self.key(view)
        whole = view.buffer >= 0 and int(np.prod(view.shape)) * view.dtype.itemsize == self.program.buffers[view.buffer]
        if whole or key not in self.writers:
            self.writers[key] = [me]
        elif me not in self.writers[key]:
            self.writers[key].append(me)

    def results(self) -> None:
        """What leaves the program: the caller's arrays, and the new values of variables."""
        real: dict[int, list[str]] = {}
        for key, who in self.writers.items():
            base = key[1] if key[0] == "base" else -1 - self.program.places[key[1]]
            if base >= 2:
                real.setdefault(base, []).extend(who)
        for base, (kind, name, nbytes) in self.bases.items():
            if kind == "output" or (kind == "variable" and base in real):
                me = self.box(("result", base), (f"{name}: {show_nbytes(nbytes)}" if kind == "output" else f"{name} (new)",), "memory",
                              "result" if kind == "output" else "written as the last step of the call")
                for s in real.get(base, ()):
                    self.edge(s, me)


def _variables(f: Any) -> list[Node]:
    """The variables of a program in the order of their bases: those that are updated, then others as they appear. Passes keep
    the order but may drop some; then only the updated ones are known for certain."""
    updated = [v for v, _ in f.updates]
    known = {id(v) for v in updated}
    order = toposort([*f.outputs, *[n for _, n in f.updates]], stop={id(x) for x in f.inputs})
    found = updated + [n for n in order if n.op.name == "variable" and id(n) not in known]
    sizes = [nbytes for kind, _, nbytes, _ in f.program.bases if kind == "variable"]
    return found if [n.value.nbytes for n in found] == sizes else updated


def function_picture(f: Any, *, direction: str, max_nodes: int | None, fold: bool, style: str, expand: Any = (), color: Any = None) -> Picture:
    """Instructions, and the memory they read and write: what runs, after all passes."""
    from .color import Colors, Scale, instruction_numbers, node_numbers
    try:
        program = f.program
    except GraphdiffError:             # named sizes, never called: there is no program yet
        drawn = [*f.outputs, *[n for _, n in f.updates]]
        colors = None if color is None else Colors(*node_numbers(toposort(drawn), color))
        graph = build(drawn, direction=direction, fold=fold, max_nodes=max_nodes, style=style, expand=expand, colors=colors)
        graph.legend = "the graph before all passes; its program is made at the first call, which tells the sizes" + (
            f"; {graph.legend}" if graph.legend else "")
        return graph
    if expand:
        Fold(toposort([*f.outputs, *[n for _, n in f.updates]]), fold=False, max_nodes=None, expand=expand)     # refuses names of no scope
    fills: dict[int, str] = {}
    legend = ""
    if color is not None:
        numbers, what = instruction_numbers(f, color)
        scale = Scale(numbers.values(), what)
        fills, legend = {i: scale.fill(v) for i, v in numbers.items()}, scale.legend
    maker = _Program(f, direction, max_nodes, fold, fills)
    for v in program.inputs:
        maker.external(-1 - v.buffer)
    for i in range(len(program.instrs)):
        maker.instruction(i)
    maker.results()
    maker.picture.memory = memory_map(program)
    maker.picture.legend = legend
    return maker.picture


def _constant(program: Any, view: Any) -> str:
    if view.shape == () or all(s == 0 for s in view.strides):
        from .formula import number_text
        size = view.dtype.itemsize
        return number_text(np.frombuffer(bytes(program.constants[view.offset:view.offset + size]), view.dtype)[0])
    return f"constant {format_shape(view.shape)}"
