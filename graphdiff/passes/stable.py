"""stable_forms: the one pass that may change bits. It puts the mathematical value in the place of an overflow or a
rounding: log(softmax), log(sum(exp)), log(1 + exp x), 1 / (1 + exp(-x)), x - logsumexp(x), and the derivative
exp(x) / (1 + exp(x)) that reverse mode makes of the third."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed


def _is(node: Node, name: str) -> bool:
    return node.op.name == name


def _one(node: Node) -> bool:
    return node.op.name == "constant" and node.shape == () and node._attrs[0] == 1


def _like(node: Node, op: str, inputs: tuple[Node, ...], attrs: tuple[Any, ...] = ()) -> Node:
    return new_node(lookup(op), inputs, attrs, node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                    node.serial)


def _one_plus_exp(node: Node) -> Node | None:
    """x when the node is 1 + exp(x)."""
    if not _is(node, "add"):
        return None
    a, b = node.inputs
    if _one(a) and _is(b, "exp"):
        return b.inputs[0]
    if _one(b) and _is(a, "exp"):
        return a.inputs[0]
    return None


def _log(node: Node) -> Node | None:
    (x,) = node.inputs
    if _is(x, "softmax"):
        return _like(node, "log_softmax", x.inputs, x._attrs)
    if _is(x, "sum") and _is(x.inputs[0], "exp") and x.inputs[0].dtype is node.dtype:
        return _like(node, "logsumexp", x.inputs[0].inputs, x._attrs)
    inner = _one_plus_exp(x)
    return None if inner is None else _like(node, "softplus", (inner,))


def _log1p(node: Node) -> Node | None:
    (x,) = node.inputs
    return _like(node, "softplus", x.inputs) if _is(x, "exp") else None


def _inverse_of(node: Node) -> Node | None:
    """y when the node is 1 / y."""
    if _is(node, "reciprocal"):
        return node.inputs[0]
    if _is(node, "divide") and _one(node.inputs[0]):
        return node.inputs[1]
    return None


def _divide(node: Node) -> Node | None:
    """1 / (1 + exp(-x)) = sigmoid(x); exp(x) / (1 + exp(x)) = sigmoid(x)."""
    denominator = _inverse_of(node)
    if denominator is not None:
        x = _one_plus_exp(denominator)
        if x is not None and _is(x, "negative"):
            return _like(node, "sigmoid", x.inputs)
        return None
    if _is(node, "divide"):
        top, bottom = node.inputs
        x = _one_plus_exp(bottom)
        if x is not None and _is(top, "exp") and top.inputs[0] is x:
            return _like(node, "sigmoid", (x,))
    return None


def _product(node: Node) -> Node | None:
    """(1 / (1 + exp x)) exp x = sigmoid(x), also with a cotangent in front."""
    g, e = node.inputs
    bottom = _inverse_of(e)
    if bottom is not None and g.op.name in ("zmul", "multiply") and _is(g.inputs[1], "exp"):
        x = g.inputs[1].inputs[0]            # forward mode: (t exp x) (1 / (1 + exp x))
        if _one_plus_exp(bottom) is x:
            return _like(node, "zmul", (g.inputs[0], _like(e, "sigmoid", (x,))))
    if not _is(e, "exp"):
        return None
    x = e.inputs[0]
    bottom = _inverse_of(g)
    if bottom is not None and _one_plus_exp(bottom) is x:
        return _like(node, "sigmoid", (x,))
    if g.op.name in ("zmul", "multiply"):
        c, inverse = g.inputs
        bottom = _inverse_of(inverse)
        if bottom is not None and _one_plus_exp(bottom) is x:
            return _like(node, "zmul", (c, _like(inverse, "sigmoid", (x,))))
    return None


def _subtract(node: Node) -> Node | None:
    """x - logsumexp(x, axis, keepdims=True) = log_softmax(x, axis)."""
    x, s = node.inputs
    if _is(s, "broadcast_to"):
        (s,) = s.inputs
    if _is(s, "logsumexp") and s.inputs[0] is x and len(s._attrs[0]) == 1 and s._attrs[1]:
        return _like(node, "log_softmax", (x,), (s._attrs[0][0],))
    return None


RULES: dict[str, Callable[[Node], Node | None]] = {
    "log": _log, "log1p": _log1p, "reciprocal": _divide, "divide": _divide, "zmul": _product, "multiply": _product,
    "subtract": _subtract,
}


def stable_forms(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Every rule of RULES once over the graph. Expects equal nodes to be merged."""
    rules = RULES
    new: dict[int, Node] = {}
    kept: list[Node] = []
    for node in order:
        here = renewed(node, new)
        # A rule looks at the operands as they were written: its pattern must not be hidden by a rewrite of them.
        rule = rules.get(node.op.name)
        if rule is not None and node.dtype.kind == "f":
            better = rule(node)
            if better is not None:
                here = better._replace(tuple([_renew(x, new, kept) for x in better.inputs]))
        new[id(node)] = here
        kept.append(here)
    return kept, [new[id(o)] for o in outputs]


def _renew(node: Node, new: dict[int, Node], kept: list[Node]) -> Node:
    """The rewritten twin of an operand; an operand a rule has just made is rebuilt over rewritten ones."""
    known = new.get(id(node))
    if known is None:
        known = node._replace(tuple([new[id(x)] for x in node.inputs]))
        kept.append(known)
    return known
