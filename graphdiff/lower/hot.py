"""one_hot: labels compared with 0, 1, 2, ... along a new last axis, which a kernel does by writing zeros, and a one for each label.

Looks at what fusion has left: where the comparison is part of something larger, it stays there, and is never in memory.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import BOOL, INT64
from .program import CONSTANTS
from .view import View, contiguous_strides, count, usage


def _counts(v: View, constants: bytes | bytearray) -> bool:
    """Is it 0, 1, 2, ... along the last axis, the same along all others?"""
    if v.buffer != -1 - CONSTANTS or v.strides[-1] != 1 or any(s for s, n in zip(v.strides[:-1], v.shape[:-1], strict=True) if n != 1):
        return False
    n = v.shape[-1]
    return np.array_equal(np.frombuffer(constants, np.int64, n, v.offset), np.arange(n))


def _labels(a: View, b: View, constants: bytes | bytearray) -> View | None:
    """The labels as one line, if one of two operands of a comparison is that and the other one counts."""
    if a.dtype is not INT64 or b.dtype is not INT64 or len(a.shape) < 1 or a.shape[-1] < 2 or 0 in a.shape:
        return None
    for x, y in ((a, b), (b, a)):
        if x.strides[-1] == 0 and _counts(y, constants):
            return x.with_layout(x.shape[:-1], x.strides[:-1]).reshape((count(x.shape[:-1]),))
    return None


def _match(instr: Any, constants: bytes | bytearray) -> Any:
    """The instruction that does the same from the labels, or None."""
    op, outs, ins, attrs, node = instr
    if op == "fused":
        if len(ins) != 2 or len(outs) != 1 or len(attrs) != 2 or attrs[0][0] != "equal" or set(attrs[0][3:]) != {1, 2}:
            return None
        if attrs[1][0] != "cast" or attrs[0][1] is not BOOL or attrs[1][2:] != (0, attrs[0][2]):
            return None
        a, b = ins
    elif op == "equal":
        a, b = ins
    else:
        return None
    out = outs[0]
    labels = _labels(a, b, constants) if out.shape == a.shape == b.shape and out.contiguous else None
    if labels is None:
        return None
    shape = (labels.shape[0], out.shape[-1])
    return "one_hot", (out.with_layout(shape, contiguous_strides(shape)),), (labels,), (), node


def one_hot(instrs: Sequence[Any], commit: int, groups: Mapping[int, tuple[Any, ...]], buffers: Sequence[int], fixed: Mapping[int, int],
            constants: bytes | bytearray) -> tuple[list[Any], int, dict[int, tuple[Any, ...]]]:
    """(instructions, commit, groups) with the kernel in the place of comparisons, and of conversions of what they make."""
    found = {i: m for i, instr in enumerate(instrs[:commit]) if (m := _match(instr, constants)) is not None}
    if not found:
        return list(instrs), commit, dict(groups)
    members = {i: groups[i] for i in groups}
    uses, writes = usage(instrs, len(buffers))
    made = {m[1][0].buffer: i for i, m in found.items() if (b := m[1][0].buffer) >= 0 and uses[b] == writes[b] == 1 and b not in fixed}
    gone = set()
    for i, (op, outs, ins, _, node) in enumerate(instrs[:commit]):
        if op == "cast" and ins[0].buffer in made and outs[0].contiguous and ins[0].contiguous and count(ins[0].shape) == count(outs[0].shape):
            first = made[ins[0].buffer]
            _, (hot,), labels, _, owner = found[first]
            if count(hot.shape) != count(outs[0].shape):
                continue
            found[i] = "one_hot", (outs[0].with_layout(hot.shape, hot.strides),), labels, (), node
            members[i] = (*members.get(first, (("equal", owner),)), ("cast", node))
            gone.add(first)
    kept = [i for i in range(len(instrs)) if i not in gone]
    return ([found.get(i, instrs[i]) for i in kept], sum(i < commit for i in kept), {k: members[i] for k, i in enumerate(kept) if i in members})
