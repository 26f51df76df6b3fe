"""symmetric: a product with a symmetric matrix that is the transpose of another one is that one.

    x.T @ x, and what is computed elementwise from such and numbers, is S:    (S @ x.T).T  is  x @ S

where that is computed too: as of the gradient of a function of x.T @ x, whose two products it is. Every bit stays, for an element of
either is the same sum of the same products: of 16 rows or fewer it need not be (few rows are summed in lanes where the other matrix lies
along them), so these are left alone.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Node, new_node
from .simplify import Ordered, renewed
from .turned import single

FEW = 16                # rows: csrc/kernels/gemm_t.inc


def _is_turned(x: Node) -> bool:
    return x.op.name == "transpose" and x._attrs[0] == (1, 0)


def _is_own_product(x: Node) -> bool:
    """z.T @ z or z @ z.T"""
    if x.op.name != "matmul" or x.ndim != 2:
        return False
    a, b = x.inputs
    return (_is_turned(a) and a.inputs[0] is b) or (_is_turned(b) and b.inputs[0] is a)


def _symmetric(order: Sequence[Node]) -> set[int]:
    """Ids of the matrices that are known to be."""
    known: set[int] = set()
    for node in order:
        if _is_own_product(node):
            known.add(id(node))
        elif known and node.op.family == "elementwise" and node.ndim == 2:
            matrices = [x for x in node.inputs if single(x) is None]
            if matrices and all(id(x) in known for x in matrices):
                known.add(id(node))
    return known


def _same_products(order: Sequence[Node], known: set[int]) -> dict[int, Node]:
    """id of a transpose of a product: the product that it equals."""
    products = {(id(n.inputs[0]), id(n.inputs[1])): n for n in order if n.op.name == "matmul" and n.ndim == 2}

    def turned(x: Node) -> Node | None:
        return x if id(x) in known else x.inputs[0] if _is_turned(x) else None

    same: dict[int, Node] = {}
    for node in order:
        if not _is_turned(node) or node.inputs[0].op.name != "matmul" or not all(isinstance(n, int) and n > FEW for n in node.shape):
            continue
        a, b = [turned(x) for x in node.inputs[0].inputs]
        other = products.get((id(b), id(a))) if a is not None and b is not None else None
        if other is not None and other is not node.inputs[0]:
            same[id(node)] = other
    return same


def symmetric(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """The outputs without the second product."""
    if not any(_is_own_product(node) for node in order if node.op.name == "matmul"):
        return list(order), list(outputs)
    known = _symmetric(order)
    same = _same_products(order, known) if known else {}
    if not same:
        return list(order), list(outputs)
    new: dict[int, Node] = {}
    kept: list[Node] = []
    for node in order:
        other = same.get(id(node))
        if id(node) in new:
            continue
        if other is None:
            new[id(node)] = renewed(node, new)
        elif id(other) in new:
            new[id(node)] = new[id(other)]
            continue
        else:                           # the other one stands further on: it is computed here, of what this one was computed of
            new[id(node)] = new[id(other)] = new_node(other.op, tuple([new[id(x)] for x in other.inputs]), other._attrs, node.shape, node.dtype,
                                                      node._site, node.origin, node.name, node.scope, node.serial)
        kept.append(new[id(node)])
    return kept, [new[id(o)] for o in outputs]
