"""Runs: blocks of an array copied side by side into one result, which is what rolls and padding by what is there already are.

Along every axis the result has one run of positions after the other, each of them (start, step, size) with a step of 1, -1 or 0: a block for
every combination of runs is copied where it belongs, and nothing is written twice.
"""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ..graph.build import make
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import check_shape
from .creation import zeros
from .movement import check_inside, cut
from .writing import slice_add

MOST_BLOCKS = 32                     # of a result: 3 axes that grow at both ends have 27, and each takes 0.1 us to start with

Runs = tuple[tuple[Any, Any, Any], ...]


def _infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (runs,) = inputs, attrs
    for axis, parts in enumerate(runs):
        for start, step, size in parts:
            check_inside(x.shape[:axis + 1], [0] * axis + [start], [1] * axis + [step], [0] * axis + [size])
    shape = tuple([sum([size for _, _, size in parts[1:]], parts[0][2]) for parts in runs])
    return check_shape(shape, x.dtype), x.dtype


def _reference(x: Any, *, runs: Any) -> Any:
    for axis, parts in enumerate(runs):
        x = np.take(x, np.concatenate([start + step * np.arange(size) for start, step, size in parts]).astype(np.int64), axis)
    return x


def _lower(ctx: Any, node: Node) -> Any:
    (runs,) = node._attrs
    x, out = ctx.raw(node.inputs[0]), ctx.new(node.shape, node.dtype)
    placed = []
    for parts in runs:
        ends = itertools.accumulate([size for _, _, size in parts])
        placed.append([(end - size, start, step, size) for end, (start, step, size) in zip(ends, parts, strict=True) if size])
    for block in itertools.product(*placed):
        at, starts, steps, sizes = zip(*block, strict=True)
        ctx.emit("copy", out.slice(at, [1] * node.ndim, sizes), [x.slice(starts, steps, sizes)])
    return out


def _whole(runs: Runs, n: Any) -> bool:
    return len(runs) == 1 and runs[0] == (0, 1, n)


def turned_back(runs: Runs, n: Any) -> Runs | None:
    """The runs that undo these, where they are all there is or its two ends exchanged."""
    if _whole(runs, n):
        return runs
    if len(runs) == 2 and runs[1][:2] == (0, 1) and runs[0] == (runs[1][2], 1, n - runs[1][2]):
        return ((runs[0][2], 1, runs[1][2]), (0, 1, runs[0][2]))
    return None


def _added(g: Node, axis: int, runs: Runs, n: Any) -> Node:
    """Every run of g along an axis added where it was taken from."""
    from .reduction import sum_axes
    total: Node | None = None
    starts, steps = [0] * g.ndim, [1] * g.ndim
    parts = []
    at: Any = 0
    for run in runs:
        part = cut(g, axis, at, run[2])
        at = at + run[2]
        if total is None and run == (0, 1, n):
            total = part
        elif run[2] != 0:
            parts.append((run, part))
    if total is None:
        total = zeros((*g.shape[:axis], n, *g.shape[axis + 1:]), g.dtype)
    for (start, step, size), part in parts:
        starts[axis], steps[axis] = start, step or 1
        total = slice_add(total, sum_axes(part, (axis,), True) if step == 0 and size != 1 else part, starts, steps)
    return total


def _vjp(g: Node, node: Node, needs: Any) -> Any:
    (x,), (runs,) = node.inputs, node._attrs
    back = [turned_back(parts, n) for parts, n in zip(runs, x.shape, strict=True)]
    g = take_runs(g, tuple([b or ((0, 1, n),) for b, n in zip(back, g.shape, strict=True)]))
    for axis, (parts, undone) in enumerate(zip(runs, back, strict=True)):
        if undone is None:
            g = _added(g, axis, parts, x.shape[axis])
    return (g,)


RUNS = register(OpDef("runs", "x at runs of positions along every axis", _infer, _reference, attr_names=("runs",), arity=1, family="movement",
                      linear=(0,), vjp=_vjp, lower=_lower))


def take_runs(x: Node, runs: tuple[Runs, ...]) -> Node:
    """x at runs of positions along every axis, each a (start, step, size)."""
    return x if all(_whole(parts, n) for parts, n in zip(runs, x.shape, strict=True)) else make(RUNS, (x,), (runs,))


def straight(at: Any) -> Runs:
    """An array of positions as runs."""
    runs = []
    while len(at):
        step = int(at[1] - at[0]) if len(at) > 1 else 1
        size = 1
        if -1 <= step <= 1:
            apart = np.flatnonzero(np.diff(at) != step)
            size = int(apart[0]) + 1 if apart.size else len(at)
        runs.append((int(at[0]), step if size > 1 else 1, size))
        at = at[size:]
    return tuple(runs)


def few_blocks(runs: list[Runs]) -> bool:
    return math.prod([len(parts) for parts in runs]) <= MOST_BLOCKS
