"""The least picture that shows a derivation: paths through the nodes in question, their operands, and nothing else."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import NodeTypeError, show_name
from ..graph.node import Node
from .picture import Box, Edge, Labels, Picture, kind_of, tip

SHOWN = 12        # nodes of a path that are drawn; the middle of a longer one is one box


def path(y: Node, x: Node) -> list[Node]:
    """A shortest way from y down to x, both included; [y, x] when there is none."""
    came: dict[int, Node | None] = {id(y): None}
    level = [y]
    while level and id(x) not in came:
        below = []
        for n in level:
            for m in n.inputs:
                if id(m) not in came:
                    came[id(m)] = n
                    below.append(m)
        level = below
    if id(x) not in came:
        return [y, x]
    out = [x]
    while (above := came[id(out[-1])]) is not None:
        out.append(above)
    return out[::-1]


def picture(y: Node, targets: Sequence[Node], marked: Sequence[Node], trace: Any = None, *, direction: str = "LR") -> Picture:
    """Boxes of the paths y - marked - target and of the operands of what is marked (red); with values and adjoints of a trace."""
    if direction not in ("LR", "TB", "RL", "BT"):
        raise NodeTypeError(f"draw: direction must be one of LR, TB, RL, BT, not {direction!r}")
    keep: dict[int, Node] = {}
    gaps: list[tuple[Node, Node, int]] = []           # (from, to, nodes between)

    def add(way: Sequence[Node]) -> None:
        if len(way) > SHOWN:
            half = SHOWN // 2
            gaps.append((way[-half], way[half - 1], len(way) - SHOWN))
            way = [*way[:half], *way[-half:]]
        keep.update((id(n), n) for n in way)

    keep[id(y)] = y
    for t in targets:
        keep[id(t)] = t
        through = [m for m in marked if _depends(m, t)]
        for m in through:
            add(path(y, m))
            add(path(m, t))
        if not through and _depends(y, t):
            add(path(y, t))
    for m in marked:
        if id(m) not in keep:
            add(path(y, m))
        keep.update((id(x), x) for x in m.inputs)
    order = sorted(keep.values(), key=lambda n: n.serial)
    red = {id(m) for m in marked}
    rows = {} if trace is None else {id(r.node): r for r in trace.rows}
    labels = Labels("operations", {})
    ids = {id(n): f"n{i}" for i, n in enumerate(order)}
    out = Picture(direction=direction)
    for n in order:
        row = rows.get(id(n))
        out.boxes.append(Box(ids[id(n)], labels.of(n) if row is None else _lines(row), kind_of(n), tip(n), (), None, n is y, id(n) in red))
    for n in order:
        for x in dict.fromkeys(n.inputs):
            if id(x) in ids:
                out.edges.append(Edge(ids[id(x)], ids[id(n)], "forward", ""))
        row = rows.get(id(n))
        for c in () if row is None else row.contributions:
            if id(c.consumer) in ids:
                out.edges.append(Edge(ids[id(c.consumer)], ids[id(n)], "adjoint", show_name(_short(c.value), 40)))
    seen = set()
    for low, high, count in gaps:
        if (id(low), id(high)) in seen:
            continue
        seen.add((id(low), id(high)))
        box = Box(f"n{len(out.boxes)}", (f"… {count} nodes more",), "summary", "left out")
        at = next(i for i, b in enumerate(out.boxes) if b.id == ids[id(high)])
        out.boxes.insert(at, box)
        out.hidden += count
        out.edges += [Edge(ids[id(low)], box.id), Edge(box.id, ids[id(high)])]
    return out


def _short(value: Any) -> str:
    from .table import brief
    return brief(value)


def _lines(row: Any) -> tuple[str, ...]:
    lines = [f"{row.name} = {row.formula}", f"= {_short(row.value)}"]
    if row.adjoint is not None:
        lines.append(f"{row.label.bar().text()} = {_short(row.adjoint)}")
    return tuple([show_name(line, 60) for line in lines])


def _depends(n: Node, t: Node) -> bool:
    way = path(n, t)
    return n is t or any(x is t for x in way[-2].inputs)


__all__ = ["path", "picture"]
