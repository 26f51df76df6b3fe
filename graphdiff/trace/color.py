"""Boxes coloured by a number: cost, time, the size of values or of adjoints.

The scale runs from near-white through yellow to orange; near-black text is readable on all of it (contrast 7 or more),
and it darkens evenly, so that it survives a black-and-white printer. It is logarithmic when the numbers span more than
two decades.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import GraphdiffError, NodeTypeError, show_name
from ..graph.node import Node

STOPS = ((0.0, (0xF7, 0xF9, 0xFA)), (0.5, (0xFF, 0xDF, 0x80)), (1.0, (0xF4, 0x8A, 0x4E)))


class Colors:
    """Numbers of nodes, to be shown as the colour of their boxes. A box of several nodes shows their sum, or the largest."""

    def __init__(self, numbers: Mapping[int, float], what: str, *, add: bool = True) -> None:
        self.numbers, self.what, self.add = numbers, what, add

    def paint(self, picture: Any, members: Mapping[str, Sequence[Node]]) -> None:
        """Fill the boxes of a picture; members: id of a box -> its nodes."""
        totals: dict[str, float] = {}
        for name, nodes in members.items():
            own = [self.numbers[id(n)] for n in nodes if id(n) in self.numbers]
            if own:
                totals[name] = sum(own) if self.add else max(own, key=abs)
        scale = Scale(totals.values(), self.what)
        for b in picture.boxes:
            if b.id in totals:
                b.fill = scale.fill(totals[b.id])
        picture.legend = scale.legend


class Scale:
    """fill(number) -> '#rrggbb'; `legend` says what the ends mean."""

    def __init__(self, numbers: Iterable[float], what: str) -> None:
        finite = [abs(v) for v in numbers if math.isfinite(v)]
        positive = [v for v in finite if v > 0]
        self.low, self.high = min(finite, default=0.0), max(finite, default=0.0)
        self.log = bool(positive) and self.high > 100 * min(positive)
        if self.log:
            self.low = min(positive)
        self.legend = f"colour: {what}, {self.low:.3g} (pale) to {self.high:.3g} (dark{', logarithmic' if self.log else ''})"

    def fill(self, number: float) -> str:
        v = abs(number)
        if not math.isfinite(v):
            return ""
        if self.high <= self.low:
            t = 1.0 if v else 0.0
        elif self.log:
            t = 0.0 if v <= self.low else math.log(v / self.low) / math.log(self.high / self.low)
        else:
            t = (v - self.low) / (self.high - self.low)
        t = min(1.0, max(0.0, t))
        for (a, first), (b, second) in pairwise(STOPS):
            if t <= b:
                s = (t - a) / (b - a)
                return "#" + "".join(f"{round(x + s * (y - x)):02x}" for x, y in zip(first, second, strict=True))
        return ""


def node_numbers(order: Sequence[Node], color: Any) -> tuple[dict[int, float], str]:
    """(id(node) -> number, what it is) for color="cost", rows of f.cost() or f.profile(), or {node: number}."""
    if isinstance(color, str):
        if color != "cost":
            raise NodeTypeError(f"draw: color must be 'cost', 'value' or 'adjoint' with at=, rows of f.cost() or of f.profile(...), or a dict "
                                f"{{node: number}}, not {show_name(color)!r}")
        costs = {id(n): _flops(n) for n in order if n.op.family != "leaf"}
        known = {i: flops for i, flops in costs.items() if flops is not None}
        return known, "FLOPs" if len(known) == len(costs) else "FLOPs where sizes are known"
    if isinstance(color, Mapping):
        if not all(isinstance(n, Node) for n in color):
            raise NodeTypeError("draw: the keys of color are nodes")
        try:
            return {id(n): float(v) for n, v in color.items()}, "given numbers"
        except (TypeError, ValueError) as error:
            raise NodeTypeError(f"draw: the values of color are numbers: {show_name(str(error), 120)}") from None
    rows, unit, what = _rows(color)
    out: dict[int, float] = {}
    by_serial: dict[int, float] = {}
    for r in rows:
        nodes = _nodes(r)
        for n in nodes:            # a fused group's time, in equal parts
            number = math.ceil(n.serial)
            by_serial[number] = by_serial.get(number, 0.0) + float(r[unit]) / len(nodes)
    for n in order:                # passes replace nodes; what replaces one keeps its number, and what leads to that has a fraction less
        if (number := math.ceil(n.serial)) in by_serial:
            out[id(n)] = by_serial[number]
    return out, what


def instruction_numbers(f: Any, color: Any) -> tuple[dict[int, float], str]:
    """(instruction -> number, what it is) for a compiled function."""
    program = f.program
    count = range(len(program.instrs))
    if isinstance(color, (str, Mapping)):
        numbers, what = node_numbers([n for i in count for n in program.nodes(i)], color)
        return {i: sum([numbers.get(id(n), 0.0) for n in program.nodes(i)]) for i in count if program.nodes(i)}, what
    rows, unit, what = _rows(color)
    # Rows name an op and nodes: instructions with the same ones share their number.
    totals: dict[Any, float] = {}
    for r in rows:
        key = (r.get("op"), tuple([n.serial for n in _nodes(r)]))
        totals[key] = totals.get(key, 0.0) + float(r[unit])
    sharing: dict[Any, list[int]] = {}
    for i in count:
        sharing.setdefault((program.instrs[i][0], tuple([n.serial for n in program.nodes(i)])), []).append(i)
    return {i: totals[key] / len(group) for key, group in sharing.items() if key in totals for i in group}, what


def _rows(color: Any) -> tuple[list[Any], str, str]:
    rows = list(color) if isinstance(color, (list, tuple)) else None
    if rows is None or not all(isinstance(r, Mapping) and "node" in r for r in rows):
        raise NodeTypeError("draw: color must be 'cost', rows of f.cost() or of f.profile(...), or a dict {node: number}, "
                            f"not {type(color).__name__}")
    for unit, what in (("ns", "nanoseconds"), ("flops", "FLOPs"), ("nbytes", "bytes")):
        if all(unit in r for r in rows):
            return rows, unit, what
    raise NodeTypeError("draw: rows of color have neither 'ns' nor 'flops'")


def _nodes(row: Any) -> tuple[Node, ...]:
    nodes = row.get("nodes") or (row["node"],)
    return tuple([n for n in nodes if n is not None])


def _flops(node: Node) -> float | None:
    try:
        return float(node.op.flops(node))
    except (GraphdiffError, TypeError, ValueError):
        return None                # a named size: known when a function runs


def magnitude(array: Any) -> float:
    """The largest absolute value of an array; 0 for an empty one, inf where it holds NaN or Inf."""
    import numpy as np
    a = np.asarray(array)
    if a.size == 0 or a.dtype.kind not in "fiub":
        return 0.0
    if a.dtype.kind == "f" and not np.isfinite(a).all():
        return math.inf
    return float(np.abs(a.astype("float64")).max())
