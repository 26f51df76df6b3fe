"""stable_forms: the one pass that may change bits. It puts the mathematical value in the place of an overflow or a
rounding: log(softmax), log(sum(exp)), log(1 + exp x), 1 / (1 + exp(-x)), x - logsumexp(x), and what both modes make of the
derivatives of the first three: s / s, exp(x) / sum(exp(x)) and exp(x) / (1 + exp(x)), with cotangents or tangents between."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.build import scalar
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


def _factors(node: Node, depth: int = 4) -> list[tuple[Node, bool]]:
    """What a tree of products and quotients is made of, in order; True: it divides."""
    if depth and node.op.name in ("zmul", "multiply"):
        return _factors(node.inputs[0], depth - 1) + _factors(node.inputs[1], depth - 1)
    bottom = _inverse_of(node)
    if bottom is not None:
        return [(bottom, True)]
    if depth and _is(node, "divide"):
        return [*_factors(node.inputs[0], depth - 1), (node.inputs[1], True)]
    return [(node, False)]


def _times(factors: list[tuple[Node, bool]], like: Node) -> Node | None:
    """The product of the factors; None for none of them."""
    product: Node | None = None
    for f, divides in factors:
        if divides:
            f = _like(f, "reciprocal", (f,))
        product = f if product is None else new_node(lookup("zmul"), (product, f), (), like.shape, like.dtype, like._site, like.origin,
                                                     like.name, like.scope, like.serial)
    return product


def _softmax_of(e: Node, s: Node) -> Node | None:
    """softmax(x) where e = exp(x) and s = sum(e) along one axis, or all of several at once."""
    if not (_is(e, "exp") and _is(s, "sum") and s.inputs[0] is e and e.dtype is s.dtype):
        return None
    (x,), axes = e.inputs, s._attrs[0]
    if len(axes) == 1:
        return _like(e, "softmax", (x,), (axes[0],))
    whole = _like(s, "logsumexp", (x,), (axes, True))
    whole = whole._replace((x,), shape=tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
    return _like(e, "exp", (_like(e, "subtract", (x, whole)),))


def _unspread(node: Node) -> tuple[list[Node], Node]:
    """The reshapes and repetitions that a node is made by, and what they are made of."""
    chain = []
    while node.op.name in ("broadcast_to", "reshape"):
        chain.append(node)
        (node,) = node.inputs
    return chain, node


def _shared_out(node: Node, factors: list[tuple[Node, bool]], i: int) -> Node | None:
    """Reverse mode: exp(x), factor i, times what was divided by sum(exp(x)) before it was spread over the elements."""
    e = factors[i][0]
    for j, (f, divides) in enumerate(factors):
        chain, inner = ([], f) if divides else _unspread(f)
        if not chain:
            continue
        parts = _factors(inner)
        for k, (s, under) in enumerate(parts):
            weight = _softmax_of(e, s) if under else None
            if weight is None:
                continue
            rest = _times(parts[:k] + parts[k + 1:], inner)
            others = [f for n, f in enumerate(factors) if n not in (i, j)]
            if rest is not None and not _one(rest):
                for link in reversed(chain):
                    rest = link._replace((rest,))
                others.append((rest, False))
            return _times([*others, (weight, False)], node)
    return None


def _product(node: Node) -> Node | None:
    """(1 / (1 + exp x)) exp x = sigmoid(x); s / s = 1 for s = softmax(x); exp(x) / sum(exp(x)) = softmax(x): of any factors of a product."""
    factors = _factors(node)
    for i, (f, divides) in enumerate(factors):
        if divides:
            continue
        for j, (bottom, under) in enumerate(factors):
            rest = [f for n, f in enumerate(factors) if n not in (i, j)]
            if under and _is(f, "softmax") and bottom is f:
                one = _like(node, "broadcast_to", (scalar(1.0, node.dtype),), (node.shape,))
                return _times(rest, node) if rest else one
            if under and _is(f, "exp") and _one_plus_exp(bottom) is f.inputs[0]:
                return _times([*rest, (_like(f, "sigmoid", f.inputs), False)], node)
            if under and _is(f, "sum"):
                tangent = _tangent_share(f, bottom)
                if tangent is not None:
                    return _times([*rest, (tangent, False)], node)
        if _is(f, "exp"):
            better = _shared_out(node, factors, i)
            if better is not None:
                return better
    return None


def _tangent_share(top: Node, bottom: Node) -> Node | None:
    """Forward mode: sum(t exp(x)) / sum(exp(x)) = sum(t softmax(x))."""
    if not (_is(bottom, "sum") and bottom._attrs == top._attrs):
        return None
    parts = _factors(top.inputs[0])
    for k, (e, divides) in enumerate(parts):
        weight = None if divides else _softmax_of(e, bottom)
        if weight is not None:
            inner = _times([*parts[:k], *parts[k + 1:], (weight, False)], top.inputs[0])
            assert inner is not None
            return top._replace((inner,))
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
    made: list[Node] = []                # what rules made stays alive: `new` goes by id
    for node in order:
        here = renewed(node, new)
        # A rule looks at the operands as they were written: its pattern must not be hidden by a rewrite of them.
        rule = rules.get(node.op.name)
        if rule is not None and node.dtype.kind == "f":
            better = rule(node)
            if better is not None:
                known = new.get(id(better))
                here = _remade(better, new, kept, made, node.serial, 0) if known is None else known
        new[id(node)] = here
        kept.append(here)
    return kept, [new[id(o)] for o in outputs]


def _renew(node: Node, new: dict[int, Node], kept: list[Node], made: list[Node], serial: float, depth: int) -> Node:
    """The rewritten twin of an operand; operands a rule has just made are rebuilt over rewritten ones."""
    known = new.get(id(node))
    if known is None:
        known = _remade(node, new, kept, made, serial, depth)
        kept.append(known)
        made.append(node)
        new[id(node)] = known
    return known


def _remade(node: Node, new: dict[int, Node], kept: list[Node], made: list[Node], serial: float, depth: int) -> Node:
    """What a rule made, over rewritten operands. Serials are the order: at `depth` below the node of the given serial, which is replaced,
    they lie between it and the one before."""
    inputs = tuple([_renew(x, new, kept, made, serial, depth + 1) for x in node.inputs])
    return new_node(node.op, inputs, node._attrs, node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                    serial - 1 + 1 / (1 + depth) if depth else serial)
