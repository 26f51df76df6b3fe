"""Elements of a slice replaced or added to: what x.at[...] is where the index is a number, a slice or an ellipsis along every axis.

The result is a copy with the slice written over it; where nobody else needs x, the memory plan has no copy of it.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.build import make
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from .creation import zeros_like
from .movement import check_inside, index_of, is_whole, slice_axes


def _slice_set_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    x, y = inputs
    starts, steps = attrs
    check_inside(x.shape, starts, steps, y.shape)
    return x.shape, x.dtype


def _slice_set_reference(x: Any, y: Any, *, starts: Any, steps: Any) -> Any:
    out = np.array(x, np.result_type(x, y) if np.iscomplexobj(y) else None)
    out[index_of(starts, steps, np.shape(y))] = y
    return out


def _slice_set_lower(ctx: Any, node: Node) -> Any:
    x, y = (ctx.raw(v) for v in node.inputs)
    starts, steps = node._attrs
    if is_whole(x.shape, starts, steps, y.shape):
        return y
    out = ctx.emit("copy", ctx.new(node.shape, node.dtype), [x])
    ctx.emit("copy", out.slice(starts, steps, y.shape), [y])
    return out


def _slice_set_vjp(g: Node, node: Node, needs: Any) -> Any:
    starts, steps = node._attrs
    y = node.inputs[1]
    return (slice_set(g, zeros_like(y), starts, steps) if needs[0] else None, slice_axes(g, starts, steps, y.shape) if needs[1] else None)


def _slice_set_jvp(tangents: Any, node: Node) -> Node:
    x, y = (zeros_like(v) if t is None else t for t, v in zip(tangents, node.inputs, strict=True))
    return slice_set(x, y, *node._attrs)


SLICE_SET = register(OpDef("slice_set", "x with y at start, start + step, ... along every axis", _slice_set_infer, _slice_set_reference,
                           attr_names=("starts", "steps"), arity=2, family="movement", vjp=_slice_set_vjp, jvp=_slice_set_jvp,
                           lower=_slice_set_lower))


def _slice_add_reference(x: Any, y: Any, *, starts: Any, steps: Any) -> Any:
    out = np.array(x, np.result_type(x, y) if np.iscomplexobj(y) else None)
    out[index_of(starts, steps, np.shape(y))] += y
    return out


def _slice_add_lower(ctx: Any, node: Node) -> Any:
    x, y = (ctx.raw(v) for v in node.inputs)
    out = ctx.new(node.shape, node.dtype)
    part = out.slice(*node._attrs, y.shape)
    if part.strides and abs(part.strides[-1]) != 1 and node.dtype.itemsize < 4:      # no kernel takes these steps: they are gathered once, not twice
        put, new = "copy", [ctx.map("add", x.slice(*node._attrs, y.shape), y)]
    else:
        put, new = "add", [part, y]
    ctx.emit("copy", out, [x])
    ctx.emit(put, part, new)
    return out


def _slice_add_jvp(tangents: Any, node: Node) -> Node:
    x, y = tangents
    return x if y is None else slice_add(zeros_like(node.inputs[0]) if x is None else x, y, *node._attrs)


def _slice_add_vjp(g: Node, node: Node, needs: Any) -> Any:
    starts, steps = node._attrs
    return (g if needs[0] else None, slice_axes(g, starts, steps, node.inputs[1].shape) if needs[1] else None)


SLICE_ADD = register(OpDef("slice_add", "x with y added at start, start + step, ... along every axis", _slice_set_infer, _slice_add_reference,
                           attr_names=("starts", "steps"), arity=2, family="movement", vjp=_slice_add_vjp, jvp=_slice_add_jvp,
                           lower=_slice_add_lower, cost=lambda node: node.inputs[1].size))


def slice_set(x: Node, y: Node, starts: Any, steps: Any) -> Node:
    """x with what slice_axes(x, starts, steps, y.shape) is replaced by y."""
    return make(SLICE_SET, (x, y), (tuple(starts), tuple(steps)))


def slice_add(x: Node, y: Node, starts: Any, steps: Any) -> Node:
    """x with y added to what slice_axes(x, starts, steps, y.shape) is."""
    return x + y if is_whole(x.shape, starts, steps, y.shape) else make(SLICE_ADD, (x, y), (tuple(starts), tuple(steps)))
