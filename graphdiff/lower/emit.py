"""Lowering: a walk over scheduled nodes that makes instructions over views.

Elementwise nodes become the kernel of the same name over broadcast views; other ops say themselves how they are lowered
(`OpDef.lower`), through the Lowering object they are given. All sizes are ints here.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import FLOAT16, FLOAT32, FLOAT64
from ..errors import GraphdiffError
from ..graph.build import located
from ..graph.node import Node
from ..plan.memory import is_same, plan_memory
from .commit import update_in_place
from .fuse import fuse
from .hot import one_hot
from .inside import made_inside, made_over
from .program import CONSTANTS, FIRST, Program
from .view import FEW_LINES, View, contiguous_strides, count


class Lowering:
    """What an op's lower rule may do: look at operands, make buffers, append instructions."""

    def __init__(self) -> None:
        self.instrs: list[Any] = []
        self.buffers: list[int] = []
        self.constants = bytearray()
        self.known: dict[Any, View] = {}
        self.views: dict[int, View] = {}
        self.copies: dict[Any, View] = {}        # of scattered views
        self.keep: list[Any] = []
        self.node: Node | None = None
        self.results: set[int] = set()           # nodes that are outputs of the program
        self.made: dict[Any, int] = {}           # numbers of instructions that another op may widen, by what they make

    def raw(self, node: Node) -> View:
        """The view of an operand as it is stored."""
        return self.views[id(node)]

    def view(self, node: Node) -> View:
        """The view of an operand as kernels take it: float16 as float32."""
        v = self.views[id(node)]
        return self.cast(v, FLOAT32) if v.dtype is FLOAT16 else v

    def new(self, shape: Any, dtype: Any) -> View:
        """A fresh C-contiguous buffer."""
        if not shape:
            self.buffers.append(dtype.itemsize)
            return View(len(self.buffers) - 1, 0, (), (), dtype, True)
        shape = tuple(shape)
        self.buffers.append(count(shape) * dtype.itemsize)
        return View(len(self.buffers) - 1, 0, shape, contiguous_strides(shape), dtype, True)

    def emit(self, op: str, out: View, ins: Sequence[View], attrs: Sequence[int] = ()) -> View:
        """Append one instruction; returns out."""
        self.instrs.append((op, (out,), tuple(ins), tuple(attrs), self.node))
        return out

    def copy(self, v: View) -> View:
        """A contiguous copy."""
        return self.emit("copy", self.new(v.shape, v.dtype), [v])

    def contiguous(self, v: View) -> View:
        return v if v.contiguous else self.copy(v)

    def near(self, v: View, order: Sequence[int] | None = None) -> View:
        """v, or a copy of it in whose order elementwise kernels are fast; one for all who read the same. order: of the axes as a kernel
        takes them that works along lines of the last one, which may be apart if other lines lie beside them."""
        if v.contiguous or not (v.scattered if order is None else v.transpose(order).crossed):
            return v
        if order is not None and 1 < count(v.shape[order[-1] + 1:]) < FEW_LINES:     # the copy has few lines side by side
            return v
        key = (v.buffer, v.offset, v.shape, v.strides, v.dtype)
        if key not in self.copies:
            self.copies[key] = self.copy(v)
        return self.copies[key]

    def reshape(self, v: View, shape: Any) -> View:
        """A view under another shape, copied when it must be."""
        r = v.reshape(shape)
        if r is None:
            r = self.copy(v).reshape(shape)
        assert r is not None
        return r

    def cast(self, v: View, dtype: Any) -> View:
        return v if v.dtype is dtype else self.emit("cast", self.new(v.shape, dtype), [v])

    def fill(self, out: View, value: Any) -> View:
        """Every element of out becomes value."""
        return self.emit("copy", out, [self.constant(np.asarray(value, out.dtype)).broadcast(out.shape)])

    def map(self, op: str, *ins: View, dtype: Any = None) -> View:
        """An elementwise kernel over broadcast operands, into a fresh buffer."""
        shape = np.broadcast_shapes(*[v.shape for v in ins])
        out = self.new(shape, ins[-1].dtype if dtype is None else dtype)
        return self.emit(op, out, [v.broadcast(shape) for v in ins])

    def constant(self, array: Any) -> View:
        """A view of a constant; equal small ones (by bits) are stored once."""
        key: Any = (array.dtype, array.shape, array.tobytes()) if array.nbytes <= 64 else id(array)
        known = self.known.get(key)
        if known is not None:
            return known
        self.keep.append(array)              # an id is a key only while its object lives
        align = 8 if array.nbytes <= 16 else 64
        offset = (len(self.constants) + align - 1) // align * align
        self.constants += b"\0" * (offset - len(self.constants)) + array.tobytes()
        v = View(-1 - CONSTANTS, offset, array.shape, contiguous_strides(array.shape), array.dtype)
        self.known[key] = v
        return v


def _lower_map(ctx: Lowering, node: Node) -> View:
    shape = node.shape
    views = ctx.views
    ins = []
    for x in node.inputs:
        v = views[id(x)]
        ins.append(v.broadcast(shape) if v.shape != shape else v if v.contiguous else ctx.near(v))
    out = ctx.new(shape, node.dtype)
    name = node.op.name
    if name == "multiply" and node.inputs[0] is node.inputs[1] and node.dtype in (FLOAT32, FLOAT64):
        name, ins = "square", ins[:1]        # the same bits, and sums of squares are told
    ctx.instrs.append((name, (out,), tuple(ins), (), node))
    return out


def _lower_cast(ctx: Lowering, node: Node) -> View:
    return ctx.cast(ctx.raw(node.inputs[0]), node.dtype)


def _lower_int_power(ctx: Lowering, node: Node) -> View:
    """A small constant exponent is a chain of products: integers wrap, so the bits are those of the general kernel."""
    y = node.inputs[1]
    if y.op.name == "constant" and y.size == 1 and 1 < (n := int(y._attrs[0].item())) < 64:
        square = ctx.raw(node.inputs[0]).broadcast(node.shape)
        out = None
        while n:
            if n & 1:
                out = square if out is None else ctx.emit("multiply", ctx.new(node.shape, node.dtype), [out, square])
            n >>= 1
            if n:
                square = ctx.emit("multiply", ctx.new(node.shape, node.dtype), [square, square])
        assert out is not None
        return out
    return ctx.emit("int_power", ctx.new(node.shape, node.dtype), [ctx.raw(x).broadcast(node.shape) for x in node.inputs])


_RULES: dict[str, Callable[..., View]] = {"map": _lower_map, "cast": _lower_cast, "int_power": _lower_int_power}


def _lowered(ctx: Lowering, node: Node) -> View:
    rule = node.op.lower
    try:
        return _lower_map(ctx, node) if rule == "map" else rule(ctx, node) if callable(rule) else _RULES[rule](ctx, node)
    except GraphdiffError as error:
        raise located(error, node.op.name, node.inputs) from None


def _needed(instrs: Sequence[Any], fixed: Mapping[int, int]) -> list[Any]:
    """Without instructions of which nobody reads a result: what is read of it elsewhere is an empty slice."""
    read = set(fixed)
    kept = []
    for instr in reversed(instrs):
        for v in instr[1]:
            if v.buffer < 0 or v.buffer in read:
                kept.append(instr)
                for w in instr[2]:
                    read.add(w.buffer)
                break
    kept.reverse()
    return kept


def lower(order: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]],
          elementwise: Any, *, in_place: bool = True, fused: bool = False, times: dict[str, float] | None = None) -> Program:
    """The program of scheduled nodes: inputs and outputs in the caller's order, then variables as they appear.

    Outputs see the old values of variables; the updates are written after the commit mark. fused: elementwise instructions
    are grouped. times: gets the seconds that took.
    """
    ctx = Lowering()
    ctx.results = {id(o) for o in outputs}
    bases: list[tuple[str, str, int, bool]] = []

    def outside(kind: str, name: str, node: Node, writable: bool) -> View:
        bases.append((kind, name, count(node.shape) * node.dtype.itemsize, writable))
        return View(-1 - FIRST - (len(bases) - 1), 0, node.shape, contiguous_strides(node.shape), node.dtype)

    input_views = [outside("input", f"in{i}", x, False) for i, x in enumerate(inputs)]
    output_views = [outside("output", f"out{i}", o, True) for i, o in enumerate(outputs)]
    variables: dict[int, View] = {}
    for x, v in zip(inputs, input_views, strict=True):
        ctx.views[id(x)] = v
    written = {id(v) for v, _ in updates}
    for variable, _ in updates:
        if id(variable) not in variables:
            variables[id(variable)] = outside("variable", f"var{len(variables)}", variable, True)
    for node in order:
        key = id(node)
        if key in ctx.views:
            continue
        name = node.op.name
        if name == "constant":
            ctx.views[key] = ctx.constant(node._attrs[0])
            continue
        if name == "variable":
            if key not in variables:
                variables[key] = outside("variable", f"var{len(variables)}", node, False)
            ctx.views[key] = variables[key]
            continue
        ctx.node = node
        view = _lowered(ctx, node)
        if view.dtype is not node.dtype:
            view = ctx.cast(view, node.dtype)
        ctx.views[key] = view
    ctx.node = None
    fixed: dict[int, int] = {}
    for out, node in zip(output_views, outputs, strict=True):
        view = ctx.views[id(node)]
        whole = view.buffer >= 0 and view.offset == 0 and ctx.buffers[view.buffer] == count(node.shape) * node.dtype.itemsize
        if whole and view.contiguous and view.buffer not in fixed:
            fixed[view.buffer] = out.buffer        # the producer writes straight into the caller's array
        else:
            ctx.emit("copy", out, [view])
    staged = []
    changing = {ctx.views[id(x)].buffer for x in order if id(x) in written} if written else set()        # of variables, below 0
    for variable, new in updates:
        view = ctx.views[id(new)]
        if view.buffer in changing and view is not ctx.views.get(id(variable)):
            view = ctx.copy(view)                  # reads a variable that is about to change
        staged.append(view)
    commit = len(ctx.instrs)
    for (variable, _), view in zip(updates, staged, strict=True):
        if view is not ctx.views.get(id(variable)):
            ctx.emit("copy", variables[id(variable)], [view])
    before = len(ctx.instrs)
    instrs = _needed(ctx.instrs, fixed)
    commit -= before - len(instrs)             # none behind the mark: they write to variables
    groups: dict[int, tuple[Any, ...]] = {}
    if fused:
        start = time.perf_counter()
        instrs, commit, groups = fuse(instrs, commit, ctx.buffers, fixed, elementwise)
        instrs, commit, groups = one_hot(instrs, commit, groups, ctx.buffers, fixed, ctx.constants)
        if times is not None:
            times["fuse"] = times.get("fuse", 0.0) + time.perf_counter() - start
    if in_place and updates:
        instrs, commit, groups = update_in_place(instrs, commit, groups, ctx.buffers, fixed, elementwise,
                                                 {v.buffer for v in input_views})
    if in_place:
        instrs = made_inside(made_over(instrs, ctx.buffers, fixed), commit, ctx.buffers, fixed)
    places, arena_nbytes = plan_memory(instrs, ctx.buffers, fixed, elementwise, in_place=in_place)
    instrs, commit, groups = _without_copies(instrs, commit, groups, ctx.buffers, places)
    program = Program(instrs, ctx.buffers, ctx.constants, bases, input_views, output_views, commit, groups=groups)
    program.places, program.arena_nbytes = places, arena_nbytes
    return program


def _without_copies(instrs: Sequence[Any], commit: int, groups: Mapping[int, Any], nbytes: Sequence[int],
                    places: Sequence[int]) -> tuple[list[Any], int, dict[int, Any]]:
    """(instructions, commit, groups) without those that copy a buffer to where it is."""
    kept = [i for i, (op, outs, ins, _, _) in enumerate(instrs)
            if not (op == "copy" and outs[0].buffer >= 0 <= ins[0].buffer and places[outs[0].buffer] == places[ins[0].buffer]
                    and is_same(outs[0], ins[0], nbytes))]
    if len(kept) == len(instrs):
        return list(instrs), commit, dict(groups)
    return [instrs[i] for i in kept], sum(i < commit for i in kept), {k: groups[i] for k, i in enumerate(kept) if i in groups}
