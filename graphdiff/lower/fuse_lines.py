"""The one instruction that a group of elementwise instructions becomes (fuse): its lines, and where their values are."""
from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from .view import View, contiguous_strides

if TYPE_CHECKING:
    from .fuse import Group

# Of one value, these two cost little more than one of them (loops.c).
TWO = {"sigmoid": "sigmoid_grad", "tanh": "tanh_grad", "sin": "cos", "sigmoid_grad": "sigmoid", "tanh_grad": "tanh", "cos": "sin"}


def _shaped(v: View, shape: tuple[int, ...]) -> View:
    """A view of a member as one of the group's shape."""
    if v.shape == shape:
        return v
    if v.contiguous:
        return View(v.buffer, v.offset, shape, contiguous_strides(shape), v.dtype, True)
    return View(v.buffer, v.offset, shape, (0,) * len(shape), v.dtype)


def tail(shape: tuple[int, ...], row: int) -> int:
    """How many last axes have `row` elements, or -1. Leading axes of size 1 among them do not count."""
    n = 1
    for i in range(len(shape) - 1, -1, -1):
        n *= shape[i]
        if n == row:
            return len(shape) - i
        if n > row:
            break
    return -1


def side_by_side(members: Sequence[Any]) -> Sequence[Any]:
    """Functions of one value that one loop does follow each other (TWO; sigmoid(x), -x and sigmoid(-x)): the later ones move up."""
    if sum([m[0] in TWO for m in members]) < 2:
        return members
    waiting: dict[Any, int] = {}
    minus: dict[int, int] = {}
    together: dict[int, tuple[int, ...]] = {}        # the first of those in running order -> all of them, as the loop has them
    for i, (op, outs, ins, _, _) in enumerate(members):
        if op == "negative":
            minus[outs[0].buffer] = i
        other = TWO.get(op)
        if other is not None:
            first = waiting.pop((other, ins[0].layout), None)
            if first is None:
                waiting[op, ins[0].layout] = i
            else:
                together[first] = first, i
    moved = {i for some in together.values() for i in some}
    for (op, _), i in waiting.items():
        turned = minus.get(members[i][2][0].buffer) if op == "sigmoid" else None
        first = None if turned is None else waiting.get((op, members[turned][2][0].layout))
        if turned is not None and first is not None and not moved & {first, turned, i}:       # of a chain x, -x, -(-x) two
            together[min(first, turned)] = first, turned, i
            moved.update((first, turned, i))
    if not together:
        return members
    order = []
    for i, m in enumerate(members):
        if i in together:
            order += [members[k] for k in together[i]]
        elif i not in moved:
            order.append(m)
    return order


def fused(g: Group, members: Sequence[Any], fixed: Container[int]) -> tuple[Any, int]:
    """The instruction that does the members in this order, and how many registers it needs. Its attrs are lines (op, dtype of
    the result, number of the result, numbers of the operands): outputs count first, then inputs, then registers. The output
    of a sum lacks the axes that it adds up."""
    shape = (g.n,) if g.shape is None else g.shape
    outs = [m[1][0] for m in members if g.pending.get(m[1][0].buffer, 1) or m[1][0].buffer in fixed]
    axes = tail(shape, g.row) if g.row else 0
    number: dict[Any, int] = {v.buffer: i for i, v in enumerate(outs)}
    first = len(outs)
    for key in g.inputs:
        number[key] = first
        first += 1
    values = g.values
    last: dict[int, int] = {}
    for i, m in enumerate(members):
        for v in m[2]:
            last[v.buffer] = i
    spare: list[int] = []
    used = first
    lines = []
    for i, (op, (out,), ins, _, _) in enumerate(members):
        operands: list[int] = []
        dying: dict[int, View] = {}
        for v in ins:
            b = v.buffer
            if b in values:
                k = number[b]
                if k >= first and last[b] == i:
                    dying[k] = v
            else:
                k = number[v.layout]
            operands.append(k)
        size = out.dtype.itemsize
        for k, v in dying.items():
            if v.dtype.itemsize == size:     # an operation may write over an operand element by element
                spare.append(k)
        to = number.get(out.buffer)
        if to is None:
            if spare:
                to = spare.pop()
            else:
                to, used = used, used + 1
            number[out.buffer] = to
        for k, v in dying.items():
            if v.dtype.itemsize != size:
                spare.append(k)
        lines.append((op, out.dtype, to, *operands))
    inputs = tuple([_shaped(v, shape) for v in g.inputs.values()])
    views = tuple([_shaped(v, shape) for v in outs])
    if g.row:
        kept = shape[:len(shape) - axes]
        sums = {m[1][0].buffer for m in members if m[0] == "sum"}
        views = tuple([v.with_layout(kept, contiguous_strides(kept)) if v.buffer in sums else w for v, w in zip(outs, views, strict=True)])
    return ("fused", views, inputs, tuple(lines), g.members[-1][4]), used - first
