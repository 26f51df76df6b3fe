"""Walks over the graph, all with explicit stacks: a chain of a million nodes is an ordinary graph."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .node import Node


def toposort(outputs: Sequence[Node], stop: Any = ()) -> list[Node]:
    """Every node the outputs depend on, inputs before users, each once. Nodes in `stop` (ids) are not entered.

    Depth first in the order the operands are written, so what belongs together stays together.
    """
    order: list[Node] = []
    done: set[int] = set()
    stack: list[Any] = []
    push, pop, append = stack.append, stack.pop, order.append
    for root in outputs:
        if id(root) in done:
            continue
        push(root)
        while stack:
            item = stack[-1]
            key = id(item)
            if key in done:
                pop()
                continue
            ready = True
            if key not in stop:
                for x in reversed(item.inputs):
                    if id(x) not in done:
                        push(x)
                        ready = False
            if ready:
                pop()
                done.add(key)
                append(item)
    return order


def users(order: Iterable[Node]) -> dict[int, list[Node]]:
    """id(node) -> the nodes of `order` that use it, once per use."""
    table: dict[int, list[Node]] = {}
    for node in order:
        for x in node.inputs:
            table.setdefault(id(x), []).append(node)
    return table


def rewrite(outputs: Sequence[Node], rule: Callable[[Node], Node]) -> list[Node]:
    """The outputs with `rule` applied to every node, inputs first; a node whose inputs stay is passed as it is."""
    order = toposort(outputs)
    new: dict[int, Node] = {}
    for node in order:
        inputs = node.inputs
        for x in inputs:
            if new[id(x)] is not x:
                node_in = node._replace(tuple([new[id(y)] for y in inputs]))
                break
        else:
            node_in = node
        new[id(node)] = rule(node_in)
    return [new[id(o)] for o in outputs]
