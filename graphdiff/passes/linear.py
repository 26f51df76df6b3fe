"""linear: in gradients, the sum of what is linear in an operand is made of that operand's sum.

    sum(g @ w, axis=0)               is   sum(g, axis=0) @ w
    sum(-(g @ w + g * s), axis=0)    is   -(sum(g, axis=0) @ w + sum(g, axis=0) * s)

Such is the gradient of what was spread over the rows of a product: of an offset, of the means of a mixture. One row is multiplied then
instead of all, if nothing else reads the product. The sum is rounded in another order, so that this is a part of stable_forms. It
is done to sums that differentiation has made: those of cotangents do not come near the largest number there is, as an operand of a
model may. Shapes are numbers.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..dtypes import FLOAT32, FLOAT64
from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed

_TERMS = frozenset(("add", "negative", "subtract"))
_SCALED = frozenset(("multiply", "zmul"))
_BEFORE = 1 / 1024      # so much less is the number of a sum than that of the first node that reads it
_MOST = 8               # nodes of a sum's terms that are looked at


def _is_sum(node: Node) -> bool:
    return (node.op.name == "sum" and node.origin is not None and node.dtype in (FLOAT32, FLOAT64) and not node._attrs[1]
            and (node.inputs[0].op.name == "matmul" or node.inputs[0].op.name in _TERMS))


def _lacks(x: Node, axes: Sequence[int], ndim: int) -> bool:
    """Is an operand of a node of `ndim` axes the same along all these of them?"""
    at = [a - ndim + x.ndim for a in axes]
    return all(a < 0 or x.shape[a] == 1 for a in at)


def _source(x: Node) -> Node:
    return x.inputs[0] if x.op.name == "broadcast_to" else x


def _linear(node: Node, axes: tuple[int, ...]) -> int | None:
    """The operand of a product that can be summed along these axes in place of the node; None: there is none."""
    a, b = node.inputs if len(node.inputs) == 2 else (None, None)
    if a is None or b is None:
        return None
    if node.op.name in _SCALED:
        for k, (x, other) in enumerate(((a, b), (b, a))):
            if x.shape == node.shape and _lacks(_source(other), axes, node.ndim):
                return k
        return None
    if node.op.name != "matmul" or a.ndim < 2 or b.ndim < 2:
        return None
    rows, columns = node.ndim - 2, node.ndim - 1
    batch = [x for x in axes if x < rows]
    if columns not in axes and _lacks(b, batch, node.ndim) and not _lacks(a, axes, node.ndim):
        return 0
    if rows not in axes and _lacks(a, batch, node.ndim) and not _lacks(b, axes, node.ndim):
        return 1
    return None


class _Sums:
    """The nodes that take the place of a sum."""

    def __init__(self, new: Mapping[int, Node]) -> None:
        self.new = new
        self.made: list[Node] = []
        self.sums: dict[tuple[int, tuple[int, ...]], Node] = {}

    def node(self, op: str, inputs: Sequence[Node], attrs: tuple[Any, ...], shape: tuple[int, ...], like: Node, serial: float | None = None) -> Node:
        self.made.append(new_node(lookup(op), tuple(inputs), attrs, shape, like.dtype, like._site, like.origin, None, like.scope,
                                  like.serial if serial is None else serial))
        return self.made[-1]

    def reshaped(self, x: Node, shape: tuple[int, ...], like: Node) -> Node:
        return x if x.shape == shape else self.node("reshape", (x,), (shape,), shape, like)

    def total(self, x: Node, axes: tuple[int, ...], like: Node) -> Node:
        """sum(x, axes); the same node for the same sum, as the first term that reads it needs it."""
        key = (id(x), axes)
        if key not in self.sums:
            kept = tuple([n for a, n in enumerate(x.shape) if a not in axes])
            self.sums[key] = self.node("sum", (x,), (axes, False), kept, like, max(like.serial - _BEFORE, (x.serial + like.serial) / 2))
        return self.sums[key]

    def term(self, node: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        """sum(node, axes), of this shape, of a term that _linear knows."""
        k = _linear(node, axes)
        assert k is not None
        x, other = self.new[id(node.inputs[k])], self.new[id(_source(node.inputs[1 - k]))]
        own = tuple([a - node.ndim + x.ndim for a in axes if a - node.ndim + x.ndim >= 0])
        own = tuple([a for a in own if x.shape[a] != 1])
        total = self.total(x, own, node)
        if node.op.name == "matmul":
            total = self.reshaped(total, tuple([1 if a in own else n for a, n in enumerate(x.shape)]), node)
            rows = tuple([1 if a in axes else n for a, n in enumerate(node.shape)])
            pair = (total, other) if k == 0 else (other, total)
            return self.reshaped(self.node("matmul", pair, node._attrs, rows, node), shape, node)
        total = self.reshaped(total, shape, node)
        at = [a - node.ndim + other.ndim for a in axes]
        other = self.reshaped(other, tuple([n for a, n in enumerate(other.shape) if a not in at]), node)
        return self.node(node.op.name, (total, other) if k == 0 else (other, total), (), shape, node)

    def added(self, node: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        """sum(node, axes) of all terms of a node."""
        self.sums.clear()
        terms = {id(t): self.term(t, axes, shape) for t in sorted(_terms(node), key=lambda t: t.serial)}

        def combined(x: Node) -> Node:
            return terms[id(x)] if id(x) in terms else self.node(x.op.name, [combined(y) for y in x.inputs], (), shape, x)

        return combined(node)


def _terms(x: Node, uses: Mapping[int, int] | None = None) -> list[Node]:
    """What is added up to x; none if that is too much, or something else (uses: how often nodes are read) reads it."""
    found: list[Node] = []
    stack = [x]
    for _ in range(_MOST):
        if not stack:
            return found
        x = stack.pop()
        if uses is not None and uses[id(x)] != 1:
            return []
        if x.op.name in _TERMS:
            if any(y.shape != x.shape for y in x.inputs):
                return []
            stack += x.inputs
        else:
            found.append(x)
    return []


def _is_saved(node: Node, uses: Mapping[int, int]) -> bool:
    """Is a product saved if the sum is made of others, and nothing else needed?"""
    terms, axes = _terms(node.inputs[0], uses), node._attrs[0]
    return any(t.op.name == "matmul" for t in terms) and all(_linear(t, axes) is not None for t in terms)


def linear_sums(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Sums of products as products of sums, where that saves a matrix product."""
    if not any(_is_sum(node) and any(t.op.name == "matmul" for t in _terms(node.inputs[0])) for node in order):
        return list(order), list(outputs)
    uses = {id(node): 0 for node in order}
    for o in outputs:
        uses[id(o)] += 1
    for node in reversed(order):
        if uses[id(node)]:                          # what is dead reads nothing
            for x in node.inputs:
                uses[id(x)] += 1
    new: dict[int, Node] = {}
    kept: list[Node] = []
    sums = _Sums(new)
    for node in order:
        if _is_sum(node) and uses[id(node)] and _is_saved(node, uses):
            new[id(node)] = sums.added(node.inputs[0], node._attrs[0], node.shape)
            kept += sums.made
            sums.made = []
        else:
            new[id(node)] = renewed(node, new)
            kept.append(new[id(node)])
    return kept, [new[id(o)] for o in outputs]
