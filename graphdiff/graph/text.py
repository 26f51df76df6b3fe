"""Nodes as flat tables and back: pickling and copying without recursion.

Pickle meets nodes one by one, a list of them too. Each node it has not met yet brings a table of itself and of those nodes
below it that no earlier table of the same pickle holds; pickle remembers tables, so one pickle holds every node once and
nodes keep their identity towards each other.
"""
from __future__ import annotations

import copy
import threading
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .build import renumbered
from .node import Node, Origin, Site, new_node
from .opdef import lookup
from .walk import toposort


class _Live(threading.local):
    """id(node) -> the table that holds it, for as long as a pickler keeps the table alive."""

    def __init__(self) -> None:
        self.tables: WeakValueDictionary[int, Table] = WeakValueDictionary()


class Table:
    """Rows of nodes, inputs before users. Operands are positions: first the nodes of other tables, then the rows."""

    __slots__ = ("__weakref__", "at", "nodes", "others")

    def __init__(self, root: Node) -> None:
        self.at: dict[int, int]
        live = _LIVE.tables
        order = toposort([root], stop=live)
        known = [n for n in order if id(n) in live]
        fresh = [n for n in order if id(n) not in live]
        self.others = [(live[id(n)], live[id(n)].at[id(n)]) for n in known]
        self.nodes = [*known, *fresh]
        self.at = {id(n): i for i, n in enumerate(self.nodes)}
        for n in fresh:
            live[id(n)] = self

    def __reduce__(self) -> Any:
        return _load, (self.others, [self._row(n) for n in self.nodes[len(self.others):]])

    def _row(self, n: Node) -> tuple[Any, ...]:
        at = self.at
        site, o = n.site, n.origin
        origin = None
        if o is not None:
            origin = (at.get(id(o.primal), -1), -1 if o.consumer is None else at.get(id(o.consumer), -1), o.kind)
        return (n.op.name, tuple([at[id(x)] for x in n.inputs]), n._attrs, n.shape, n.dtype.str,
                None if site is None else tuple(site), origin, n.name, n.scope)


_LIVE = _Live()


class _Loaded:
    """The nodes of a table that was read."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes


def reduce_node(node: Node) -> Any:
    """What Node.__reduce_ex__ returns."""
    table = _LIVE.tables.get(id(node))
    if table is None:
        table = Table(node)
    return _nth, (table, table.at[id(node)])


def _nth(table: _Loaded, position: int) -> Node:
    return table.nodes[position]


def _canonical(a: Any) -> Any:
    """An option as this process spells it: pickle makes new np.dtype objects, and ours are compared by identity."""
    from ..dtypes import as_dtype
    if isinstance(a, np.dtype):
        return as_dtype(a)
    if isinstance(a, np.ndarray):
        a = np.asarray(a).view(as_dtype(a.dtype))
        a.flags.writeable = False
    return a


def _load(others: list[tuple[_Loaded, int]], rows: list[tuple[Any, ...]]) -> _Loaded:
    from ..dtypes import as_dtype
    nodes = [table.nodes[position] for table, position in others]
    later = []
    calls: dict[str, str] = {}
    for name, inputs, attrs, shape, dtype, site, origin, label, scope in rows:
        node = new_node(lookup(name), tuple([nodes[i] for i in inputs]), tuple([_canonical(a) for a in attrs]), shape, as_dtype(dtype),
                        None if site is None else Site(*site), None, label, renumbered(scope, calls))
        if origin is not None and origin[0] >= 0:
            later.append((node, origin))
        nodes.append(node)
    for node, (primal, consumer, kind) in later:
        object.__setattr__(node, "origin", Origin(nodes[primal], nodes[consumer] if consumer >= 0 else None, kind))
    return _Loaded(nodes)


_SHARED = (int, float, str, bool, tuple, np.dtype, np.ndarray)       # immutable; constants' arrays are read-only


def copy_node(root: Node, memo: dict[int, Any]) -> Node:
    """A deep copy of the graph below a node; `memo` (copy.deepcopy's) keeps nodes and variables shared with other copies."""
    fresh = [n for n in toposort([root], stop=memo) if id(n) not in memo]
    for n in fresh:
        attrs = tuple([a if isinstance(a, _SHARED) else copy.deepcopy(a, memo) for a in n._attrs])
        memo[id(n)] = new_node(n.op, tuple([memo[id(x)] for x in n.inputs]), attrs, n.shape, n.dtype, n._site, None, n.name, n.scope)
    for n in fresh:
        o = n.origin
        if o is not None and id(o.primal) in memo:
            object.__setattr__(memo[id(n)], "origin", Origin(memo[id(o.primal)], memo.get(id(o.consumer)), o.kind))
    memo.setdefault(id(memo), []).append(fresh)       # deepcopy's own way to keep ids valid
    return memo[id(root)]
