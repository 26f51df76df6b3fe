"""linear: in gradients, the sum of a matrix product along an axis of one operand is a product with that operand's sum.

    sum(g @ w, axis=0)             is   sum(g, axis=0) @ w
    sum(-(g @ w + h), axis=0)      is   -(sum(g, axis=0) @ w + sum(h, axis=0))

Such is the gradient of what was spread over the rows of a product: of an offset, of the means of a mixture. One row is multiplied then
instead of all, if nothing else reads the product. The sum is rounded in another order, so that this is a part of stable_forms. It
is done to float64 alone, whose sums of cotangents do not come near the largest number there is. Shapes are numbers.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..dtypes import FLOAT64
from ..graph.node import Node, new_node
from ..graph.opdef import lookup
from .simplify import Ordered, renewed

_TERMS = frozenset(("add", "negative", "subtract"))
_NEAR = 1 / 1024        # the number of a sum differs by so much from that of the node it stands before, or behind
_MOST = 8               # nodes of a sum's terms that are looked at


def _is_sum(node: Node) -> bool:
    return (node.op.name == "sum" and node.origin is not None and node.dtype is FLOAT64 and not node._attrs[1]
            and (node.inputs[0].op.name == "matmul" or node.inputs[0].op.name in _TERMS))


def _lacks(x: Node, axes: Sequence[int], ndim: int) -> bool:
    """Is an operand of a node of `ndim` axes the same along all these of them?"""
    at = [a - ndim + x.ndim for a in axes]
    return all(a < 0 or x.shape[a] == 1 for a in at)


def _summed(node: Node, axes: tuple[int, ...]) -> int | None:
    """The operand of a matrix product that can be summed along these axes in its place; None: there is none."""
    if node.op.name != "matmul":
        return None
    a, b = node.inputs
    if a.ndim < 2 or b.ndim < 2:
        return None
    rows, columns = node.ndim - 2, node.ndim - 1
    batch = [x for x in axes if x < rows]
    if columns not in axes and _lacks(b, batch, node.ndim) and not _lacks(a, axes, node.ndim):
        return 0
    if rows not in axes and _lacks(a, batch, node.ndim) and not _lacks(b, axes, node.ndim):
        return 1
    return None


def _terms(x: Node, uses: Mapping[int, int]) -> list[Node]:
    """What is added up to x by nodes that nothing else reads (uses: how often nodes are read); none if that is too much."""
    found: list[Node] = []
    stack = [x]
    for _ in range(_MOST):
        if not stack:
            return found
        x = stack.pop()
        if x.op.name in _TERMS and uses.get(id(x), 1) == 1 and all(y.shape == x.shape for y in x.inputs):
            stack += x.inputs
        else:
            found.append(x)
    return []


class _Sums:
    """The nodes that take the place of a sum."""

    def __init__(self, new: Mapping[int, Node], uses: Mapping[int, int]) -> None:
        self.new, self.uses = new, uses
        self.made: list[Node] = []
        self.sums: dict[tuple[int, tuple[int, ...]], Node] = {}

    def node(self, op: str, inputs: Sequence[Node], attrs: tuple[Any, ...], shape: tuple[int, ...], like: Node, serial: float | None = None) -> Node:
        self.made.append(new_node(lookup(op), tuple(inputs), attrs, shape, like.dtype, like._site, like.origin, None, like.scope,
                                  like.serial if serial is None else serial))
        return self.made[-1]

    def reshaped(self, x: Node, shape: tuple[int, ...], like: Node) -> Node:
        return x if x.shape == shape else self.node("reshape", (x,), (shape,), shape, like)

    def total(self, x: Node, axes: tuple[int, ...], like: Node, serial: float) -> Node:
        """sum(x, axes); the same node for the same sum."""
        key = (id(x), axes)
        if key not in self.sums:
            self.sums[key] = self.node("sum", (x,), (axes, False), tuple([n for a, n in enumerate(x.shape) if a not in axes]), like, serial)
        return self.sums[key]

    def summed(self, node: Node, axes: tuple[int, ...]) -> int | None:
        return _summed(node, axes) if self.uses[id(node)] == 1 else None

    def saves(self, node: Node) -> bool:
        """Is a product saved if the sum is made of others?"""
        return any(self.summed(t, node._attrs[0]) is not None for t in _terms(node.inputs[0], self.uses))

    def term(self, node: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        """sum(node, axes), of this shape."""
        k = self.summed(node, axes)
        if k is None:
            return self.total(self.new[id(node)], axes, node, node.serial + _NEAR)
        x, other = self.new[id(node.inputs[k])], self.new[id(node.inputs[1 - k])]
        own = tuple([a - node.ndim + x.ndim for a in axes if a - node.ndim + x.ndim >= 0])
        own = tuple([a for a in own if x.shape[a] != 1])
        total = self.total(x, own, node, max(node.serial - _NEAR, (x.serial + node.serial) / 2))
        total = self.reshaped(total, tuple([1 if a in own else n for a, n in enumerate(x.shape)]), node)
        pair = (total, other) if k == 0 else (other, total)
        product = self.node("matmul", pair, node._attrs, tuple([1 if a in axes else n for a, n in enumerate(node.shape)]), node)
        return self.reshaped(product, shape, node)

    def added(self, node: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        """sum(node, axes), term by term, those made first before others."""
        self.sums.clear()
        terms = {id(t): self.term(t, axes, shape) for t in sorted(_terms(node, self.uses), key=lambda t: t.serial)}

        def combined(x: Node) -> Node:
            return terms[id(x)] if id(x) in terms else self.node(x.op.name, [combined(y) for y in x.inputs], (), shape, x)

        return combined(node)


def linear_sums(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Sums of products as products of sums, where that saves a matrix product."""
    if not any(any(t.op.name == "matmul" for t in _terms(node.inputs[0], {})) for node in order if node.op.name == "sum" and _is_sum(node)):
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
    sums = _Sums(new, uses)
    for node in order:
        if _is_sum(node) and uses[id(node)] and sums.saves(node):
            new[id(node)] = sums.added(node.inputs[0], node._attrs[0], node.shape)
            kept += sums.made
            sums.made = []
        else:
            new[id(node)] = renewed(node, new)
            kept.append(new[id(node)])
    return kept, [new[id(o)] for o in outputs]
