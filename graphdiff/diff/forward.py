"""Forward mode: carry the tangent of every node from the inputs to the result, from the same records as reverse mode.

Elementwise ops use their partials, linear ops are applied to the tangents; an op that states only a vjp is transposed
twice: the vjp is linear in its cotangent, so differentiating it in the cotangent gives the jvp.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

from ..errors import GradientError, NodeTypeError, ShapeError
from ..graph.build import CONTEXT, INPUT, as_node, make, public
from ..graph.node import Node, Origin, new_node
from ..graph.opdef import MINUS_ONE, ONE, ZERO
from ..graph.walk import toposort
from ..ops.binary import add
from ..ops.creation import zeros_like
from ..ops.families import cast
from ..ops.movement import expand_to
from ..ops.unary import negative
from ..specs import format_shape
from .reverse import _check_float, expanded, formed, picked, sweep, times


@public
def jvp(y: Any, x: Any, tangent: Any) -> Any:
    """The derivative of y along a direction: J t, by forward mode.

    x: a node or a list of nodes; tangent: nodes, arrays or numbers of the same shapes. Zeros where y does not depend on x. If one of x
    depends on another, its tangent is the given one and what the other's makes of it: J is the transpose of what grad has.
    """
    single = not isinstance(y, (list, tuple))
    ys = [as_node(y)] if single else [as_node(v) for v in y]
    if not isinstance(x, (Node, list, tuple)):
        raise NodeTypeError(f"can differentiate with respect to a node or a list of nodes, not {type(x).__name__}")
    if not isinstance(x, Node) and not isinstance(tangent, (list, tuple)):
        raise NodeTypeError(f"a list of {len(x)} nodes needs a list of tangents, not {type(tangent).__name__}")
    xs = [x] if isinstance(x, Node) else list(x)
    given = [tangent] if isinstance(x, Node) else list(tangent)
    if len(xs) != len(given):
        raise NodeTypeError(f"{len(xs)} nodes to differentiate along, {len(given)} tangents")
    tangents: dict[int, Any] = {}
    for node, t in zip(xs, given, strict=True):
        if not isinstance(node, Node):
            raise NodeTypeError(f"can differentiate with respect to nodes only, not {type(node).__name__}")
        _check_float(node, "with respect to ")
        t = as_node(t, node.dtype)
        if t.shape != node.shape:
            raise ShapeError(f"tangent has shape {format_shape(t.shape)}, {node.label!r} has {format_shape(node.shape)}")
        t = cast(t, node.dtype)
        tangents[id(node)] = add(tangents[id(node)], t) if id(node) in tangents else t
    for v in ys:
        _check_float(v, "")
    _pushed(ys, xs, tangents)
    results = [tangents.get(id(v)) for v in ys]
    out = [zeros_like(v) if t is None or t is ZERO else t for t, v in zip(results, ys, strict=True)]
    return out[0] if single else out


def _pushed(ys: Sequence[Node], xs: Sequence[Node], tangents: dict[int, Any]) -> None:
    before = CONTEXT.now
    try:
        push(ys, xs, tangents, whole=len(xs) == 1)
    finally:
        CONTEXT.now = before


def push(ys: Sequence[Node], xs: Sequence[Node], tangents: dict[int, Any], whole: bool = True, stop: Collection[int] = ()) -> None:
    """Fill `tangents` (id -> node, ZERO, or absent) for every node between xs and ys.

    whole: those of xs are all there is; else what one of xs makes of another's is added to the one that is given. stop: ids of nodes
    behind which there is no x.
    """
    # What lies behind the xs is not looked at if they are whole. (In a row of checkpoints every one would walk all before it.)
    ids = {id(x) for x in xs}
    order = toposort(ys, stop=ids.union(stop) if whole else stop)
    given = {} if whole else {k: tangents.pop(k) for k in ids}
    scope = CONTEXT.now[2]
    order, reach, forms = formed(order, xs, "tangent")
    for node in order:
        key = id(node)
        if key not in reach or key in tangents:
            continue
        op, own = node.op, given.get(key, ZERO)
        if forms and key in forms:
            form = forms[key]
            parts = [own, tangents.get(id(form.other), ZERO)]
            if form.passed:             # their own tangents; what they have of others is in that of the form
                mine = {id(x): given[id(x)] for x in form.passed}
                push([node], form.passed, mine, len(mine) == 1, stop=(id(form.leaf),))
                parts.append(mine.get(key, ZERO))
            CONTEXT.now = (node._site, Origin(node, None, "tangent"), scope)
            parts = [t for t in parts if t is not ZERO]
            tangents[key] = reduce(add, parts) if parts else ZERO
            continue
        ts = [tangents.get(id(x)) for x in node.inputs]
        ts = [None if t is ZERO else t for t in ts]
        if op.zero or op.cuts is not None or all(t is None for t in ts):
            tangents[key] = own
            continue
        CONTEXT.now = (node._site, Origin(node, None, "tangent"), scope)
        t = _tangent(node, ts)
        if t is ZERO or t is None:
            tangents[key] = own
            continue
        t = cast(t if t.shape == node.shape else expand_to(t, node.shape), node.dtype)
        tangents[key] = t if own is ZERO else add(own, t)


def _tangent(node: Node, ts: list[Any]) -> Any:
    op = node.op
    total: Any = None
    if op.linear:
        for i in op.linear:
            if ts[i] is not None:
                part = make(op, tuple([ts[i] if j == i else x for j, x in enumerate(node.inputs)]), node._attrs)
                total = part if total is None else add(total, part)
        return ZERO if total is None else total
    if op.partials is not None:
        for t, partial in zip(ts, op.partials, strict=True):
            if t is None:
                continue
            if callable(partial):
                partial = partial(*node.inputs, node)
            if partial is ZERO:
                continue
            part = t if partial is ONE else negative(t) if partial is MINUS_ONE else picked(t, partial) if op.picks else times(t, partial)
            total = part if total is None else add(total, part)
        return ZERO if total is None else total
    if op.jvp is not None:
        return op.jvp(ts, node)
    if op.expand is not None:
        own, y = expanded(node)
        tangents = {id(x): t for x, t in zip(own, ts, strict=True) if t is not None}
        push([y], [x for x in own if id(x) in tangents], tangents)
        return tangents.get(id(y))
    return transposed_twice(node, ts)


def _untied(total: Node, v: Node, t: Node) -> Node:
    """total with its barriers tied to t where they were tied to something made of v: a tie is an order, not a value."""
    order = toposort([total])
    if all(n.op.name != "barrier" for n in order):
        return total
    depends = {id(v)}
    new: dict[int, Node] = {}
    for n in order:
        xs = n.inputs
        if n.op.name == "barrier":
            xs = (xs[0], *[t if id(x) in depends else x for x in xs[1:]])
            if id(xs[0]) in depends:
                depends.add(id(n))
        elif any(id(x) in depends for x in xs):
            depends.add(id(n))
        fresh = tuple([new.get(id(x), x) for x in xs])
        # A number of its own: t may be younger than the node it ties.
        new[id(n)] = n if all(a is b for a, b in zip(fresh, n.inputs, strict=True)) else new_node(
            n.op, fresh, n._attrs, n.shape, n.dtype, n._site, n.origin, n.name, n.scope)
    return new[id(total)]


def transposed_twice(node: Node, ts: list[Any]) -> Any:
    """J t as the derivative of v -> J^T v, which is linear, against t."""
    v = new_node(INPUT, (), (), node.shape, node.dtype, node._site, None, "cotangent")
    needs = tuple([t is not None for t in ts])
    parts = node.op.vjp(v, node, needs)      # type: ignore[misc]
    total: Any = None
    for part, t in zip(parts, ts, strict=True):
        if t is None or part is None or part is ZERO:
            continue
        back = sweep(part, [v], t).get(id(v))
        if back is None or back is ZERO:
            continue
        total = back if total is None else add(total, back)
    if total is None:
        return ZERO
    total = _untied(total, v, next(t for t in ts if t is not None))
    if any(n is v for n in toposort([total])):
        raise GradientError(f"forward mode: the derivative rule of {node.op.name} is not linear in its cotangent")
    return total
