"""stable_forms: the one pass that may change bits. It puts the mathematical value in the place of an overflow or a rounding: quotients in
which exponentials cancel and logarithms of their divisors (cancel.py), log(softmax), log(exp(log_softmax)), log1p(exp x), 1 / (1 + exp(-x)),
x - logsumexp(x), x^0.5. Sums of transposes in the order of memory (turned.py) are turned off with it."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..diff.forms import SAME, is_probability, picked
from ..dtypes import BOOL, FLOAT16
from ..graph.build import CONSTANT
from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .cancel import cancelled
from .simplify import Ordered, renewed, sooner


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
    """log(softmax) as log_softmax; log(exp(y)), also of elements that were picked, as y, where y is a logarithm of probabilities."""
    (x,) = node.inputs
    if _is(x, "softmax"):
        return _like(node, "log_softmax", x.inputs, x._attrs)
    picks, e = picked(x)
    if not is_probability(e):
        return None
    y = e.inputs[0]
    picks = [p for p in picks if p.op.name not in SAME]
    for k, p in enumerate(reversed(picks), 1):
        last, inputs = k == len(picks), (y, *p.inputs[1:])
        y = new_node(p.op, inputs, p._attrs, p.shape, p.dtype, node._site, node.origin, node.name if last else None, node.scope,
                     node.serial if last else sooner(node, inputs))
    return y


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
    """1 / (1 + exp(-x)) = sigmoid(x)."""
    denominator = _inverse_of(node)
    if denominator is not None:
        x = _one_plus_exp(denominator)
        if x is not None and _is(x, "negative"):
            return _like(node, "sigmoid", x.inputs)
    return None


def _subtract(node: Node) -> Node | None:
    """x - logsumexp(x, axis, keepdims=True) = log_softmax(x, axis)."""
    x, s = node.inputs
    if _is(s, "broadcast_to"):
        (s,) = s.inputs
    if _is(s, "logsumexp") and s.inputs[0] is x and len(s._attrs[0]) == 1 and s._attrs[1]:
        return _like(node, "log_softmax", (x,), (s._attrs[0][0],))
    return None


NEVER_NEGATIVE = frozenset(("abs", "square", "exp", "exp2", "cosh", "sigmoid", "softplus"))       # nor -0.0


def _power(node: Node) -> Node | None:
    """x^0.5 by a square root, with the values of a power: 0 of -0.0, infinity of -inf; it is rounded once, and costs half. x^3 by two
    products, which together are off by less than a power may be, and cost a tenth."""
    x, y = node.inputs
    exponent = y._attrs[0].reshape(())[()] if _is(y, "constant") and y.size == 1 and x.shape == node.shape else None
    if exponent != 0.5 and (exponent != 3.0 or node.dtype is FLOAT16):
        return None

    def before(op: str, inputs: tuple[Node, ...], dtype: Any) -> Node:
        return new_node(lookup(op), inputs, (), node.shape, dtype, node._site, node.origin, None, node.scope, sooner(node, inputs))

    if exponent == 3.0:
        return _like(node, "multiply", (before("multiply", (x, x), node.dtype), x))
    if x.op.name in NEVER_NEGATIVE:
        return _like(node, "sqrt", (x,))

    def number(value: float) -> Node:
        return new_node(CONSTANT, (), (np.array(value, node.dtype),), (), node.dtype, node._site, node.origin, None, node.scope, sooner(node, (x,)))

    root = before("sqrt", (before("add", (x, number(0.0)), node.dtype),), node.dtype)
    return _like(node, "where", (before("equal", (x, number(-math.inf)), BOOL), number(math.inf), root))


RULES: dict[str, Callable[[Node], Node | None]] = {
    "log": _log, "log1p": _log1p, "reciprocal": _divide, "divide": _divide, "subtract": _subtract, "power": _power,
}


def _added(better: Node, new: dict[int, Node]) -> list[Node]:
    """What a rule made besides its result, in running order; noted in new."""
    made = []
    for x in better.inputs:
        if id(x) not in new:
            made += _added(x, new)
            made.append(new.setdefault(id(x), renewed(x, new)))
    return made


def stable_forms(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Quotients in which exponentials cancel, then every rule of RULES once over the graph. Expects equal nodes to be merged."""
    order, outputs = cancelled(order, outputs)
    # A rule looks at the operands as they were written: its pattern must not be hidden by a rewrite of them. (What rules make is held: a node
    # made after one that was dropped may have its id.)
    found: dict[int, Node] = {}
    for node in order:
        rule = RULES.get(node.op.name)
        better = rule(node) if rule is not None and node.dtype.kind == "f" else None
        if better is not None:
            found[id(node)] = better
    if not found:
        return list(order), list(outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    for node in order:
        better = found.get(id(node))
        if better is not None:
            kept += _added(better, new)
            if id(better) in new:                               # there already
                new[id(node)] = new[id(better)]
                continue
        here = new[id(node)] = renewed(node if better is None else better, new)
        kept.append(here)
    return kept, [new[id(o)] for o in outputs]
