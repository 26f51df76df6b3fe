"""Transforms on top of both modes: vjp, jacobian, hessian, hvp, custom_gradient, checkpoint."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..diff.forward import jvp, push, transposed_twice
from ..diff.reverse import grad
from ..errors import GradientError, NodeTypeError, ShapeError, compose, located_error
from ..graph.build import INPUT, as_node, calling_back, holds_nodes, make, make_constant, public
from ..graph.node import Node, describe, new_node, next_serial
from ..graph.opdef import OpDef, register
from ..graph.text import copy_node
from ..graph.walk import toposort
from ..ops.creation import zeros, zeros_like
from ..ops.families import cast
from ..ops.joining import concatenate, stack
from ..ops.movement import cut, reshape_to
from ..specs import check_shape, format_shape, has_dims, nelements

_token = itertools.count()


@public
def vjp(y: Any, x: Any, cotangent: Any) -> Any:
    """The product J^T c: the gradient of sum(c * y) with respect to x (a node or a list); zeros where y does not depend on x."""
    return grad(y, x, cotangent=cotangent, unconnected="zero")


@public
def jacobian(y: Any, x: Any, mode: str = "auto") -> Any:
    """All first derivatives of y, of shape y.shape + x.shape and x's dtype, as gradients have it (a list for a list of x); zeros where y
    does not depend on x.

    mode: "reverse" (one sweep an element of y), "forward" (one an element of x), "auto" (the fewer). What the sweeps are made for
    must have known sizes: y in reverse mode, x in forward mode; the other may have named ones. Else a ShapeError.
    """
    if isinstance(y, (list, tuple)):
        raise NodeTypeError(f"y is one node, not a {type(y).__name__}\nhint: [gd.jacobian(a, x) for a in y]")
    y = as_node(y)
    if isinstance(x, (list, tuple)):
        return [jacobian(y, v, mode) for v in x]
    if not isinstance(x, Node):
        raise NodeTypeError(f"can differentiate with respect to a node or a list of nodes, not {type(x).__name__}")
    if mode not in ("auto", "forward", "reverse"):
        raise NodeTypeError(f"mode must be 'auto', 'forward' or 'reverse', not {mode!r}")
    check_shape(y.shape + x.shape, x.dtype)
    if 0 in y.shape or 0 in x.shape:
        return zeros(y.shape + x.shape, x.dtype)
    reverse = mode == "reverse" or (mode == "auto" and not has_dims(y.shape) and (has_dims(x.shape) or y.size <= x.size))
    swept = y if reverse else x
    if has_dims(swept.shape):
        fact = f"neither y, {format_shape(y.shape)}, nor x, {format_shape(x.shape)}, has known sizes"
        if mode != "auto":
            fact = f"mode {mode!r} takes one sweep an element of {'y' if reverse else 'x'}, {format_shape(swept.shape)}, whose size must be known"
        raise ShapeError(f"{fact}\nhint: declare the sizes as numbers; gd.vjp, gd.jvp and gd.hvp give products for named sizes")
    if reverse:
        rows = [grad(part, x, cotangent=make_constant(e), unconnected="zero") for part, e in _elements(y, x)]
        return reshape_to(stack(rows), y.shape + x.shape)
    columns = [jvp(y, x, make_constant(e)) for e in _units(x)]
    return cast(reshape_to(stack([reshape_to(c, (nelements(y.shape),)) for c in columns], axis=1), y.shape + x.shape), x.dtype)


def _elements(y: Node, x: Node) -> Iterator[tuple[Node, Any]]:
    """For every element of y, a node that has it and the unit array that picks it there: y, or a part of what is put together to y.

    The other parts would be swept with a cotangent of zeros: n sweeps over n parts for a system written equation by equation. x is never
    looked into: derivatives are with respect to it as a whole.
    """
    units: dict[tuple[int, ...], list[Any]] = {}
    for k in range(y.size):
        node, at = y, np.unravel_index(k, y.shape)
        while node is not x and node.dtype.kind == "f" and not any(has_dims(part.shape) for part in node.inputs):
            if node.op.name == "concatenate":
                axis = node._attrs[0]
                part = 0
                while at[axis] >= node.inputs[part].shape[axis]:
                    at = (*at[:axis], at[axis] - node.inputs[part].shape[axis], *at[axis + 1:])
                    part += 1
                node = node.inputs[part]
            elif node.op.name == "reshape":
                at = np.unravel_index(np.ravel_multi_index(at, node.shape), node.inputs[0].shape)
                node = node.inputs[0]
            else:
                break
        of_shape = units.get(node.shape)
        if of_shape is None:
            of_shape = units[node.shape] = _units(node)
        yield node, of_shape[int(np.ravel_multi_index(at, node.shape)) if at else 0]


def _units(node: Node) -> list[Any]:
    """The unit arrays of a node's shape."""
    return [np.asarray(e, node.dtype).reshape(node.shape) for e in np.eye(node.size)]


@public
def hessian(y: Any, x: Any) -> Any:
    """All second derivatives of a scalar y, of shape x.shape + x.shape, zeros where y does not depend on x. The sizes of x must be known
    (ShapeError); `hvp` takes named ones."""
    if isinstance(x, (list, tuple)):
        return [[jacobian(g, b) for b in x] for g in grad(y, list(x), unconnected="zero")]
    return jacobian(grad(y, x, unconnected="zero"), x)


@public
def hvp(y: Any, x: Any, v: Any) -> Any:
    """The Hessian of a scalar y times v, without the Hessian: forward over reverse."""
    return jvp(grad(y, x, unconnected="zero"), x, v)


# -- custom gradients ----------------------------------------------------------------------------------------------

class Rule:
    """A user's backward function, hashable by identity, with the name errors show.

    n: how many of the operands after the first are the function's arguments; those behind them it closes over, and backward
    says nothing of them. transparent: the first operand's own nodes are the function's true derivative, so forward mode goes
    through them.
    """

    __slots__ = ("backward", "n", "name", "transparent")

    def __init__(self, backward: Callable[..., Any], name: str, n: int, transparent: bool = False) -> None:
        self.backward, self.name, self.n, self.transparent = backward, name, n, transparent

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


def _same(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return inputs[0].shape, inputs[0].dtype


def _custom_vjp(g: Node, node: Node, needs: Any) -> Any:
    rule: Rule = node._attrs[0]
    xs = node.inputs[1:1 + rule.n]
    for x, need in zip(node.inputs[1 + rule.n:], needs[1 + rule.n:], strict=True):
        if need:
            raise _forgotten(rule, x, node)
    if rule.transparent:
        parts = rule.backward(g, node, *xs)
    else:
        with calling_back():
            parts = rule.backward(g, node, *xs)
    if parts is None:
        raise GradientError(f"the custom gradient {rule.name} returned nothing\nhint: return one node an input; None among several is a zero")
    if isinstance(parts, Node) or not isinstance(parts, (list, tuple)):
        parts = (parts,)
    if len(parts) != len(xs):
        raise GradientError(f"the custom gradient {rule.name} returned {len(parts)} results for {len(xs)} inputs")
    checked: list[Any] = [None]
    for i, (p, x) in enumerate(zip(parts, xs, strict=True)):
        if p is None:
            checked.append(None)
            continue
        p = as_node(p, x.dtype)
        if p.shape != x.shape:
            raise ShapeError(f"the custom gradient {rule.name} returned shape {p.shape} for input {i} of shape {x.shape}")
        if p.dtype != x.dtype:
            raise GradientError(f"the custom gradient {rule.name} returned {p.dtype} for input {i} of {x.dtype}")
        checked.append(p)
    return (*checked, *[None] * (len(node.inputs) - len(checked)))


def _forgotten(rule: Rule, x: Node, node: Node) -> GradientError:
    """The error for a node a custom gradient closes over and a derivative is to flow to: silence would mean zero."""
    while x.op is BARRIER:               # in a checkpoint's second body
        x = x.inputs[0]
    at = node.site
    text = compose(f"the custom gradient of {rule.name!r} gives nothing for {x.label!r}, which its function uses without taking it as an argument",
                   at=None if at is None else (str(at), at.source), rows=[("node", describe(node)), ("closed over", describe(x))],
                   hint="make it an argument of both functions, or use gd.stop_gradient of it inside if it is meant as a constant")
    return located_error(GradientError(text))      # type: ignore[return-value]


def _closed_over(y: Node, given: Sequence[Node], start: int, flowing: bool = True) -> tuple[Node, ...]:
    """What a body uses besides its arguments: nodes older than it (numbered below start), and its own leaves.

    flowing: only what derivatives could flow to.
    """
    seen = {id(x) for x in given}
    stack, found = [y], []
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if flowing and node.dtype.kind != "f":
            continue
        if node.serial < start or node.op.name in ("input", "variable"):
            found.append(node)
        elif not flowing or (node.op.cuts is None and not node.op.zero):
            stack.extend(node.inputs)
    return tuple(sorted(found, key=lambda n: n.serial))


def _custom_jvp(ts: Any, node: Node) -> Any:
    if not node._attrs[0].transparent:
        return transposed_twice(node, ts)
    y, *xs = node.inputs
    along = {x: t for x, t in zip(xs, ts[1:], strict=True) if t is not None}      # f(x, x): one tangent, not two
    tangents = {id(x): t for x, t in along.items()}      # whole ones already: what comes from one to another is in them
    push([y], list(along), tangents)
    return tangents.get(id(y))


CUSTOM = register(OpDef("custom", "the first operand, with a gradient rule of the user's", _same, lambda y, *xs, rule: y,
                        attr_names=("rule",), vjp=_custom_vjp, jvp=_custom_jvp, cost=lambda node: 0, lower=lambda ctx, node: ctx.raw(node.inputs[0])))
BARRIER = register(OpDef("barrier", "x, kept apart from its equals", _same, lambda x, *after, token: x, attr_names=("token",),
                         vjp=lambda g, node, needs: (g, *[None] * (len(node.inputs) - 1)),
                         jvp=lambda ts, node: ts[0] if ts[0] is not None else zeros_like(node), cost=lambda node: 0,
                         lower=lambda ctx, node: ctx.raw(node.inputs[0])))


@public
def custom_gradient(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Node]:
    """A function of nodes with its own derivative: f(*x) is forward(*x), its gradient backward(g, out, *x).

    backward returns one node an input (a bare node for one; None among several for zeros); wrong shapes are a ShapeError that
    names the rule. It is itself differentiated for higher orders; nothing flows through forward's own nodes. A gradient with
    respect to something forward uses without taking it as an argument is a GradientError that names it.
    """
    for what, f in (("forward", forward), ("backward", backward)):
        if not callable(f):
            raise NodeTypeError(f"{what} must be a function of nodes, not {type(f).__name__}")
    name = getattr(forward, "__name__", "function")
    rules: dict[int, Rule] = {}          # one for a number of arguments: equal calls stay equal nodes

    def function(*xs: Any) -> Node:
        nodes = tuple(as_node(x) for x in xs)
        rule = rules.setdefault(len(nodes), Rule(backward, name, len(nodes)))
        start = next_serial()
        y = forward(*nodes)
        if y is None or (isinstance(y, (tuple, list, dict)) and (isinstance(y, dict) or holds_nodes(y))):
            raise NodeTypeError(f"forward must give one node, not {type(y).__name__}\nhint: gd.stack or gd.concatenate make one of several")
        y = as_node(y)
        return make(CUSTOM, (y, *nodes, *_closed_over(y, nodes, start)), (rule,))
    function.__name__ = name
    return public(function)


@public
def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with its intermediates recomputed in the reverse pass instead of kept: less memory, one more forward pass.

    f(*nodes, **options) -> node; values and gradients are the same. Arguments and results may also be tuples, lists and dicts of
    nodes, nested ones too. Several results of one float dtype share one recomputation; others than floats are kept.
    """
    if not callable(f):
        raise NodeTypeError(f"a function of nodes is needed, not {type(f).__name__}")
    name = getattr(f, "__name__", "checkpoint")

    def function(*xs: Any, **options: Any) -> Any:
        nodes: list[Node] = []
        given = _apart(xs, nodes)
        start = next_serial()
        ys: list[Node] = []
        result = _apart(f(*_together(given, nodes), **options), ys)
        if not ys:
            raise NodeTypeError(f"{name} gives no node")
        return _together(result, _checkpointed(ys, tuple(nodes), start, name))
    function.__name__ = name
    return public(function)


def _checkpointed(ys: list[Node], nodes: tuple[Node, ...], start: int, name: str) -> list[Node]:
    """The results of one call; those of one dtype are joined to one, so that one second body gives the gradients of them all."""
    out = list(ys)
    for dtype in dict.fromkeys(y.dtype for y in ys if y.dtype.kind == "f"):
        which = [i for i, y in enumerate(ys) if y.dtype is dtype]
        sizes = [nelements(ys[i].shape) for i in which]
        y = ys[which[0]] if len(which) == 1 else concatenate([reshape_to(ys[i], (n,)) for i, n in zip(which, sizes, strict=True)])
        # Nodes f closes over (weights) are inputs too: their gradients flow through the recomputed body, which ends at them.
        leaves = (*nodes, *_closed_over(y, nodes, start, False))
        kept = make(CUSTOM, (y, *leaves), (Rule(Again(y, leaves), name, len(leaves), True),))
        first: Any = 0
        for i, n in zip(which, sizes, strict=True):
            out[i] = kept if len(which) == 1 else reshape_to(cut(kept, 0, first, n), ys[i].shape)
            first = first + n
    return out


NESTING_LIMIT = 50


def _apart(value: Any, leaves: list[Node], depth: int = 0) -> Any:
    """`value` with the number of its node in the place of each; the nodes go to `leaves`. None stays."""
    if depth > NESTING_LIMIT:
        raise NodeTypeError(f"tuples, lists and dicts nest more than {NESTING_LIMIT} levels")
    if isinstance(value, dict):
        return {k: _apart(v, leaves, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and (depth == 0 or not value or holds_nodes(value)):
        items = [_apart(v, leaves, depth + 1) for v in value]
        return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if value is None:
        return None
    leaves.append(as_node(value))
    return len(leaves) - 1


def _together(value: Any, leaves: Sequence[Node]) -> Any:
    """The reverse of `_apart`, with other nodes."""
    if isinstance(value, dict):
        return {k: _together(v, leaves) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_together(v, leaves) for v in value]
        return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return None if value is None else leaves[value]


class Again:
    """The backward of a checkpoint: the gradient of a second body over the same leaves. Pickles with its nodes."""

    __slots__ = ("leaves", "y")

    def __init__(self, y: Node, leaves: tuple[Node, ...]) -> None:
        self.y, self.leaves = y, leaves

    def __call__(self, g: Node, out: Node, *ins: Node) -> Any:
        # Barriers tied to g keep the second body apart from the first and late enough to be worth it.
        fresh = [make(BARRIER, (x, g), (next(_token),)) for x in ins]
        again = _rebuild(self.y, dict(zip(self.leaves, fresh, strict=True)))
        floats = [x for x in fresh if x.dtype.kind == "f"]
        parts = iter(grad(again, floats, cotangent=g, unconnected="zero"))
        return tuple(next(parts) if x.dtype.kind == "f" else None for x in fresh)

    def __reduce__(self) -> Any:
        # A copy of the body alone: the node that holds this rule is being pickled with all that lies behind the leaves, and
        # its table is not finished, so nothing here may refer to it.
        holes = {x: new_node(INPUT, (), (), x.shape, x.dtype, x._site, None, x.name) for x in self.leaves}
        memo: dict[int, Any] = {}
        y = copy_node(_rebuild(self.y, holes), memo)
        return Again, (y, tuple([copy_node(holes[x], memo) for x in self.leaves]))

    def __deepcopy__(self, memo: Any) -> Again:
        return self                     # nodes and rules are immutable; the leaves stand for the operands only


def _rebuild(y: Node, table: dict[Node, Node]) -> Node:
    """y's body over other leaves."""
    new: dict[Node, Node] = {}
    for node in toposort([y], stop={id(n) for n in table}):
        if node in table:
            new[node] = table[node]
        elif node.inputs:
            # A number of its own: it must come after the leaves put in, which are younger than the node it copies.
            new[node] = new_node(node.op, tuple([new[x] for x in node.inputs]), node._attrs, node.shape, node.dtype, node._site,
                                 node.origin, node.name, node.scope)
        else:
            new[node] = node
    return new[y]
