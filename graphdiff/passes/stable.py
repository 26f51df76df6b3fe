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


Factors = list[tuple[Node, bool]]        # what a product is made of; True: it divides


def _factors(node: Node, depth: int = 4) -> Factors:
    """A tree of products and quotients of one shape, taken apart in order; a factor may be smaller, and is then repeated."""
    parts: Factors = []
    bottom = _inverse_of(node)
    if bottom is not None:
        return [(bottom, True)]
    if depth == 0 or node.op.name not in ("zmul", "multiply", "divide"):
        return [(node, False)]
    for k, x in enumerate(node.inputs):
        if k == 1 and _is(node, "divide"):
            parts.append((x, True))
        else:
            parts += _factors(x, depth - 1) if x.shape == node.shape else [(x, False)]
    return parts


def _times(factors: Factors, like: Node) -> Node:
    """The product of the factors in the shape and dtype of `like`."""
    product: Node | None = None
    for f, divides in factors:
        f = _like(f, "reciprocal", (f,)) if divides else f
        product = f if product is None else new_node(lookup("zmul"), (product, f), (), like.shape, like.dtype, like._site, like.origin,
                                                     None, like.scope, like.serial)
    product = scalar(1.0, like.dtype) if product is None else product
    return product if product.shape == like.shape else _like(like, "broadcast_to", (product,), (like.shape,))


def _kept(s: Node) -> tuple[Any, ...]:
    """The shape of a reduction's result with its axes, of size 1."""
    return tuple(1 if i in s._attrs[0] else n for i, n in enumerate(s.inputs[0].shape))


def _softmax_of(e: Node, s: Node) -> Node | None:
    """exp(x) / s, where e = exp(x) and s is its sum over axes."""
    if not (_is(e, "exp") and _is(s, "sum") and s.inputs[0] is e and e.dtype is s.dtype):
        return None
    (x,), axes = e.inputs, s._attrs[0]
    if len(axes) == 1:
        return _like(e, "softmax", (x,), (axes[0],))
    whole = _like(s, "logsumexp", (x,), (axes, True))._replace((x,), shape=_kept(s))
    return _like(e, "exp", (_like(e, "subtract", (x, whole)),))


def _share(f: Node, d: Node) -> Factors | None:
    """f / d, element by element: softmax by itself, exp(x) / (1 + exp(x)), and sum(t exp(x)) / sum(exp(x)) of forward mode."""
    if _is(f, "softmax"):
        return [] if d is f else None
    if _is(f, "exp"):
        return [(_like(f, "sigmoid", f.inputs), False)] if _one_plus_exp(d) is f.inputs[0] else None
    if not (_is(d, "sum") and d._attrs == f._attrs and d.inputs[0].shape == f.inputs[0].shape):
        return None
    parts = _factors(f.inputs[0])
    for k, (e, divides) in enumerate(parts):
        weight = None if divides else _softmax_of(e, d)
        if weight is not None:
            return [(f._replace((_times([*parts[:k], *parts[k + 1:], (weight, False)], f.inputs[0]),)), False)]
    return None


def _spread_share(e: Node, wide: Node) -> Factors | None:
    """e = exp(x) times g / sum(exp(x)), which was repeated over the axes of the sum, as reverse mode does it: g, repeated, and softmax."""
    if not (_is(e, "exp") and _is(wide, "broadcast_to") and wide.shape == e.shape):
        return None
    (narrow,) = wide.inputs
    chain, inner = [wide], narrow
    while _is(inner, "reshape"):
        chain.append(inner)
        (inner,) = inner.inputs
    parts = _factors(inner)
    for k, (s, under) in enumerate(parts):
        weight = _softmax_of(e, s) if under and s.shape == inner.shape else None
        # Only over the axes of the sum: a square array can also be divided by the sums of its rows along the columns.
        if weight is None or (1,) * (len(e.shape) - len(narrow.shape)) + narrow.shape != _kept(s):
            continue
        rest = parts[:k] + parts[k + 1:]
        if not rest:
            return [(weight, False)]
        g = _times(rest, inner)
        for link in reversed(chain):
            g = link._replace((g,))
        return [(g, False), (weight, False)]
    return None


_QUOTIENTS = frozenset(("exp", "softmax", "divide", "reciprocal"))


def _product(node: Node) -> Node | None:
    """A factor and what it is divided by, anywhere in a product, as the share that they are (_share, _spread_share)."""
    if node.inputs[0].op.name not in _QUOTIENTS and node.inputs[1].op.name not in _QUOTIENTS:
        return None
    factors = _factors(node)
    for i, (f, divides) in enumerate(factors):
        if divides or f.op.name not in ("exp", "softmax", "sum"):
            continue
        for j, (d, under) in enumerate(factors):
            share = _share(f, d) if under else _spread_share(f, d)
            if share is not None:
                return _times([*(x for n, x in enumerate(factors) if n not in (i, j)), *share], node)
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
