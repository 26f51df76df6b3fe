"""Nodes as a flat table and back: pickling and copying without recursion."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .node import Node, Origin, Site, new_node
from .opdef import lookup
from .walk import toposort


def dump_nodes(outputs: Sequence[Node]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """(rows, positions of the outputs). A row names its inputs by position, inputs before users."""
    order = toposort(outputs)
    at = {id(n): i for i, n in enumerate(order)}
    rows = []
    for n in order:
        site, o = n.site, n.origin
        origin = None
        if o is not None:
            origin = (at.get(id(o.primal), -1), -1 if o.consumer is None else at.get(id(o.consumer), -1), o.kind)
        rows.append((n.op.name, tuple(at[id(x)] for x in n.inputs), n._attrs, n.shape, n.dtype.str,
                     None if site is None else tuple(site), origin, n.name))
    return rows, [at[id(o)] for o in outputs]


def _canonical(a: Any) -> Any:
    """An option as this process spells it: pickle makes new np.dtype objects, and ours are compared by identity."""
    from ..dtypes import as_dtype
    if isinstance(a, np.dtype):
        return as_dtype(a)
    return np.asarray(a).view(as_dtype(a.dtype)) if isinstance(a, np.ndarray) else a


def load_nodes(table: tuple[list[tuple[Any, ...]], list[int]]) -> list[Node]:
    """The nodes of `dump_nodes`, new objects."""
    from ..dtypes import as_dtype
    rows, outputs = table
    nodes: list[Node] = []
    later = []
    for name, inputs, attrs, shape, dtype, site, origin, label in rows:
        for a in attrs:
            if hasattr(a, "flags"):
                a.flags.writeable = False
        attrs = tuple([_canonical(a) for a in attrs])
        node = new_node(lookup(name), tuple(nodes[i] for i in inputs), attrs, shape, as_dtype(dtype),
                        None if site is None else Site(*site), None, label)
        if origin is not None and origin[0] >= 0:
            later.append((node, origin))
        nodes.append(node)
    for node, (primal, consumer, kind) in later:
        object.__setattr__(node, "origin", Origin(nodes[primal], nodes[consumer] if consumer >= 0 else None, kind))
    return [nodes[i] for i in outputs]
