"""gd.to_networkx: the graph as a networkx.DiGraph."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dtypes import NAME
from ..errors import NodeTypeError
from ..graph.build import node_list, public
from ..graph.node import Node
from ..graph.walk import toposort, uncollecting


@public
@uncollecting
def to_networkx(y: Any, *, at: Any = None) -> Any:
    """A DiGraph whose nodes are the graphdiff nodes themselves, with attributes op, shape, dtype, name, value, site, scope.

    y: a node or a list of nodes, or a Trace, whose values are taken. value: an array for constants, variables and traced
    nodes, else None. at: {input: value} gives every node its value. Edges run from operand to user; `operands` is the tuple
    of operand numbers (a node used twice by one consumer is one edge).
    """
    import networkx
    table: Any = {}
    if not isinstance(y, Node) and hasattr(y, "rows") and hasattr(y, "y"):
        table, y = y._values, y.y
    outputs = node_list(y, "y")
    order = toposort(outputs)
    if at is not None:
        if not isinstance(at, Mapping):
            raise NodeTypeError(f"at is a dict {{input: array}}, not of type {type(at).__name__}")
        from .run import values
        table = values(order, at)
    g = networkx.DiGraph()
    for n in order:
        value = table.get(id(n))
        if value is None and n.op.name in ("constant", "variable"):
            value = n.value
        site = n.site
        g.add_node(n, op=n.op.name, shape=n.shape, dtype=NAME[n.dtype], name=n.name, value=value, site=None if site is None else str(site),
                   scope=n.scope, adjoint=n.origin is not None and n.origin.kind == "adjoint")
        operands: dict[Node, list[int]] = {}
        for k, x in enumerate(n.inputs):
            operands.setdefault(x, []).append(k)
        for x, ks in operands.items():
            g.add_edge(x, n, operands=tuple(ks))
    return g
