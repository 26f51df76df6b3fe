"""Walks over the graph, all with explicit stacks: a chain of a million nodes is an ordinary graph."""
from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from operator import attrgetter
from typing import Any, ParamSpec, TypeVar

from .node import Node

_SERIAL = attrgetter("serial")
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def uncollected() -> Iterator[None]:
    """The garbage collector stays away: a graph, a program or a table that is being made is many objects and no cycles, and it would only
    walk them again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def uncollecting(function: Callable[P, R]) -> Callable[P, R]:
    """The same as a decorator. (contextlib's own would stand between a function and the user's line.)"""
    @wraps(function)
    def wrapper(*args: P.args, **options: P.kwargs) -> R:
        with uncollected():
            return function(*args, **options)
    return wrapper


def toposort(outputs: Sequence[Node], stop: Any = ()) -> list[Node]:
    """Every node the outputs depend on, inputs before users, each once. Nodes in `stop` (ids) are not entered.

    A node is made after its inputs, so the order in which nodes were made (their serial) is a topological order, and the
    one the user wrote. Passes that replace a node keep its serial.
    """
    seen: set[Node] = set()      # nodes hash by address, so that no two are ever compared; their ids would be numbers to make
    found: list[Node] = []
    stack: list[Node] = []
    add, push, pop, append = seen.add, stack.append, stack.pop, found.append
    for root in outputs:
        if root not in seen:
            add(root)
            push(root)
    while stack:
        node = pop()
        append(node)
        if stop and id(node) in stop:
            continue
        for x in node.inputs:
            if x not in seen:
                add(x)
                push(x)
    found.reverse()              # nearly sorted already: what was found last was made first
    found.sort(key=_SERIAL)
    return found


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
