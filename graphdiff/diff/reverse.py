"""Reverse mode: walk the graph from the result to its leaves and add the adjoint of every node on the way.

For each node, outputs first: sum what its consumers contributed, then ask its op for the contributions to its inputs.
The cross-cutting steps stand here and nowhere else: broadcasting is undone, an exactly zero cotangent stays zero
(zmul), contributions are added in the order in which they arrive.
"""
from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from ..errors import GradientError, NodeTypeError, ShapeError, compose, located_error, show_name
from ..graph.build import CONTEXT, VARIABLE, as_node, make, public, scalar
from ..graph.node import Node, Origin, describe, origin_of
from ..graph.opdef import MINUS_ONE, ONE, ZERO
from ..graph.walk import toposort, uncollected
from ..ops.binary import add, multiply, zmul, zmul_either
from ..ops.creation import zeros_like
from ..ops.families import cast
from ..ops.movement import RESHAPE, sum_to
from ..ops.unary import negative
from ..specs import format_shape
from .forms import MADE_OF, Better, better


@public
def grad(y: Any, wrt: Any, *, cotangent: Any = None, unconnected: str = "raise") -> Any:
    """The gradient of y with respect to a node, or to each of a list of nodes.

    y: a float node, a scalar unless `cotangent` (y's shape) is given; the result is that of sum(cotangent * y). wrt: any nodes of
    the graph, interior ones too; what changes nothing, as x.reshape(x.shape) or x[:], is x itself. Each gradient has its node's shape
    and dtype. unconnected: what to do where y does not depend on a node: "raise" a GradientError that names the node that cuts the
    path, or give "zero".
    """
    single = isinstance(wrt, Node)
    if not single and not isinstance(wrt, (list, tuple)):
        raise NodeTypeError(f"can differentiate with respect to a node or a list of nodes, not {type(wrt).__name__}")
    targets: list[Node] = [wrt] if single else list(wrt)
    if isinstance(y, (list, tuple)):
        raise NodeTypeError(f"y is one node, not a {type(y).__name__}\nhint: the gradient of a sum: gd.grad(a + b, x)")
    y = as_node(y)
    if unconnected not in ("raise", "zero"):
        raise NodeTypeError(f"unconnected must be 'raise' or 'zero', not {unconnected!r}")
    for t in targets:
        if not isinstance(t, Node):
            raise NodeTypeError(f"can differentiate with respect to nodes only, not {type(t).__name__}")
        _check_float(t, "with respect to ")
    _check_float(y, "")
    results = gradients_of(y, targets, "grad", 'unconnected="zero" gives zeros instead' if unconnected == "raise" else None, cotangent)
    return results[0] if single else results


def gradients_of(y: Node, targets: list[Node], caller: str, hint: str | None, cotangent: Any = None) -> list[Node]:
    """The gradient of y with respect to each target. hint: what to do where y does not depend on one, a GradientError; None: zeros then."""
    adjoints = _adjoints(y, targets, cotangent)
    results = []
    for t in targets:
        a = adjoints.get(id(t))
        if a is None and hint is not None:
            raise located_error(GradientError(_why_unconnected(y, t, caller, hint)))
        results.append(zeros_like(t) if a is None or a is ZERO else a)
    return results


def _adjoints(y: Node, targets: list[Node], cotangent: Any) -> dict[int, Any]:
    before = CONTEXT.now
    try:
        with uncollected():
            return sweep(y, targets, _seed(y, cotangent))
    finally:
        CONTEXT.now = before


def _check_float(node: Node, what: str) -> None:
    if node.dtype.kind != "f":
        raise GradientError(f"cannot differentiate {what}{node.label!r} ({node.spec}): integers and bools have no derivative"
                            "\nhint: astype('float64') makes a float node")


def _seed(y: Node, cotangent: Any) -> Node:
    """The adjoint of y itself."""
    CONTEXT.now = (y._site, Origin(y, None, "adjoint"), CONTEXT.now[2])
    if cotangent is None:
        if y.shape != ():
            raise GradientError(f"{y.label!r} has shape {format_shape(y.shape)}; the gradient of a scalar is defined"
                                "\nhint: gd.grad(gd.sum(y), x), or give cotangent= of y's shape, or gd.jacobian(y, x)")
        return scalar(1.0, y.dtype)
    g = as_node(cotangent, y.dtype)
    if g.shape != y.shape:
        raise ShapeError(f"cotangent has shape {format_shape(g.shape)}, {y.label!r} has {format_shape(y.shape)}")
    if g.dtype.kind != "f" and isinstance(cotangent, Node):
        raise GradientError(f"cotangent is {g.dtype}, a float is needed")
    return cast(g, y.dtype)


def connected(order: Sequence[Node], targets: Sequence[Node]) -> set[int]:
    """Ids of the nodes of `order` from which a target can be reached along differentiable edges."""
    reach = {id(t) for t in targets}
    _reached(order, reach)
    return reach


def _reached(order: Sequence[Node], reach: set[int]) -> None:
    for node in order:
        if node.op.cuts is None and node.dtype.kind == "f" and id(node) not in reach:
            for x in node.inputs:
                if id(x) in reach:
                    reach.add(id(node))
                    break


def formed(order: list[Node], targets: Sequence[Node], kind: str) -> tuple[list[Node], set[int], dict[int, Better]]:
    """The order, with what some nodes are differentiated as in the place of themselves; ids of what reaches a target; and these by id."""
    reach = connected(order, targets)
    if all(node.op.name not in MADE_OF for node in order):
        return order, reach, {}
    before = CONTEXT.now
    order, forms = better(order, reach, {id(t) for t in targets}, kind)
    CONTEXT.now = before
    if forms:
        _reached(order, reach)
    return order, reach, forms


def _send(sums: dict[int, Any], x: Node, t: Any) -> None:
    """Add a contribution, or ZERO, to what x was sent before."""
    old = sums.get(id(x))
    sums[id(x)] = t if old is None or old is ZERO else old if t is ZERO else add(old, t)


def sweep(y: Node, targets: Sequence[Node], seed: Any, ledger: dict[int, list[Any]] | None = None, stop: Collection[int] = ()) -> dict[int, Any]:
    """id(target) -> its adjoint node, or ZERO when it is connected but nothing flows; unconnected ones are absent.

    ledger, when given, is filled: id(node) -> [(consumer, operand, contribution, sum so far), ...] in order of arrival; every node is
    differentiated as it is written then. stop: ids of nodes behind which there is no target.
    """
    order = toposort([y], stop=stop)
    order, reach, forms = formed(order, targets, "adjoint") if ledger is None else (order, connected(order, targets), {})
    wanted = {id(t) for t in targets}
    pending: dict[int, Any] = {id(y): seed} if id(y) in reach else {}
    result: dict[int, Any] = {}
    aside: dict[int, Any] = {}              # what targets are sent that a form passes by: theirs, and nothing to what they are made of
    context, scope = CONTEXT, CONTEXT.now[2]
    for node in reversed(order):
        key = id(node)
        g = pending.pop(key, None)
        if g is None:
            continue
        if key in wanted:
            result[key] = g
        op = node.op
        inputs = node.inputs
        if not inputs or op.cuts is not None:
            continue
        if forms and key in forms:
            form = forms[key]
            context.now = (node._site, Origin(form.other, node, "adjoint"), scope)
            _send(pending, form.other, g)           # it may be a node of the user's, to which others contribute
            if form.passed:
                sent = sweep(node, form.passed, g, stop=(id(form.leaf),))
                for x in form.passed:
                    if id(x) in sent:
                        context.now = (node._site, Origin(x, node, "adjoint"), scope)
                        _send(aside, x, sent[id(x)])
            continue
        if g is ZERO or op.zero or 0 in node.shape:             # from no elements nothing comes
            for x in inputs:
                if id(x) in reach:
                    pending.setdefault(id(x), ZERO)
            continue
        site = node._site
        partials = op.partials
        if partials is not None:
            for i, (x, partial) in enumerate(zip(inputs, partials, strict=True)):
                k = id(x)
                if k not in reach:
                    continue
                context.now = (site, origin_of((x, node, "adjoint")), scope)
                if callable(partial):
                    partial = partial(*inputs, node)
                if partial is ONE:
                    t = g
                elif partial is MINUS_ONE:
                    t = negative(g)
                elif partial is ZERO:
                    pending.setdefault(k, ZERO)
                    continue
                else:
                    # What the partial is made of is a cotangent itself where zmul's second factor is concerned: either 0 is a 0.
                    silent = op == "zmul_either" or (op == "zmul" and i == 1)
                    t = picked(g, partial) if op.picks else times(g, partial, zmul_either if silent else zmul)
                if t.shape != x.shape:
                    t = sum_to(t, x.shape)
                old = pending.get(k)
                pending[k] = total = t if old is None or old is ZERO else add(old, t)
                if ledger is not None:
                    ledger.setdefault(k, []).append((node, i, t, total))
            continue
        needs = tuple([id(x) in reach for x in inputs])
        context.now = (site, origin_of((node, node, "adjoint")), scope)
        parts = contributions(g, node, needs)
        for i, (x, need, t) in enumerate(zip(inputs, needs, parts, strict=True)):
            if not need:
                continue
            k = id(x)
            if t is None or t is ZERO:
                pending.setdefault(k, ZERO)
                continue
            context.now = (site, origin_of((x, node, "adjoint")), scope)
            if t.shape != x.shape:
                t = sum_to(t, x.shape)
            t = cast(t, x.dtype)
            old = pending.get(k)
            pending[k] = total = t if old is None or old is ZERO else add(old, t)
            if ledger is not None:
                ledger.setdefault(k, []).append((node, i, t, total))
    for x in targets if aside else ():
        if id(x) in aside:
            context.now = (x._site, Origin(x, None, "adjoint"), scope)
            _send(result, x, aside.pop(id(x)))
    return result


def contributions(g: Node, node: Node, needs: tuple[bool, ...]) -> Sequence[Any]:
    """What a node with cotangent g sends to each of its inputs, by its op's vjp, or by that of its expansion."""
    op = node.op
    if op.vjp is not None:
        parts: Any = op.vjp(g, node, needs)
        if parts is not NotImplemented:
            return parts
    before = CONTEXT.now
    own, y = expanded(node)
    adjoints = sweep(y, [x for x, need in zip(own, needs, strict=True) if need], g)
    CONTEXT.now = before
    return [adjoints.get(id(x)) for x in own]


def expanded(node: Node) -> tuple[list[Node], Node]:
    """The node as an expression of other ops, over nodes of its own in the place of its inputs.

    The inputs themselves would not do: one of them may depend on another, or be given twice.
    """
    assert node.op.expand is not None      # no rule of any other kind: the registry has seen to it
    own = [make(RESHAPE, (x,), (x.shape,)) for x in node.inputs]
    return own, node.op.expand(tuple(own), node._attrs)


def picked(g: Node, p: Node) -> Node:
    """g p where p is a number that picks (OpDef.picks): sqrt(relu(x)) has the slope 0 below 0, although sqrt's is infinite at 0."""
    if g.op.name == "constant" and g.shape == () and math.isfinite(g._attrs[0][()]):
        return times(g, p)
    return zmul(p, g)


def times(g: Node, p: Node, product: Any = zmul) -> Node:
    """g p with the strong zero: an exactly zero cotangent stays zero whatever p is. A finite constant needs no select.

    product: zmul, or zmul_either where p is a cotangent too. In d(zmul(c, q)), c may be 0 because a slice, a `where` or a kink
    left this element out, and what arrives for q may be infinite there: neither tells of a slope.
    """
    if p.op.name == "constant" and p.shape == ():
        value = p._attrs[0][()]
        if math.isfinite(value) and (value != 0 or product is zmul):
            if value == 1:
                return g
            return multiply(g, p)
    if g.op.name == "constant" and g.shape == () and g._attrs[0] == 1:
        return p
    return product(g, p)


def _why_unconnected(y: Node, target: Node, caller: str, hint: str) -> str:
    """The message for a target without a gradient, with the node that cuts every path if there is a path at all."""
    order = toposort([y])
    depends = {id(target)}
    cutter = None
    live = {id(target)}
    for node in order:
        hit = [x for x in node.inputs if id(x) in depends]
        if not hit:
            continue
        depends.add(id(node))
        if any(id(x) in live for x in hit):
            if node.op.cuts is not None or node.dtype.kind != "f":
                cutter = node                   # the last one, behind which no path goes on
            else:
                live.add(id(node))
    site = target.site
    path = target._attrs[0].path if target.op is VARIABLE else ""
    name = f"{target.label!r} ({show_name(path, 200)})" if path and path != target.name else repr(target.label)
    if id(y) not in depends:
        return compose(f"{caller}: {y.label!r} does not depend on {name}",
                       rows=[("of", describe(y)), ("wrt", describe(target))],
                       at=None if site is None else (str(site), site.source), hint=hint)
    assert cutter is not None
    at = cutter.site
    reason = cutter.op.cuts or "its result is an integer or a bool"
    return compose(f"{caller}: no derivative flows from {y.label!r} to {name}: {cutter.op.name} cuts the path ({reason})",
                   at=None if at is None else (str(at), at.source), rows=[("wrt", describe(target)), ("cut by", describe(cutter))],
                   hint=hint)


