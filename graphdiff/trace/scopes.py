"""Where nodes live in a picture: their scopes, and for adjoint nodes those of the nodes they belong to."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..graph.build import called
from ..graph.node import Node

Path = tuple[str, ...]


def is_adjoint(node: Node) -> bool:
    """Was the node made by differentiation?"""
    return node.origin is not None and node.origin.kind == "adjoint"


def primal_of(node: Node, within: Mapping[int, Any]) -> Node | None:
    """The primal node beside which an adjoint node is drawn; None when it is not in the picture."""
    steps = 0
    while node.origin is not None and steps < 100:
        node, steps = node.origin.primal, steps + 1
    return node if steps and id(node) in within else None


def homes(order: Sequence[Node]) -> dict[int, Path]:
    """id(node) -> the scopes it is drawn in, outermost first. Variables and constants made outside every scope live where all
    their users do. Adjoint nodes live with their primal; what a consumer gives to a shared variable lives with the consumer."""
    here = {id(n): n for n in order}
    paths: dict[str, Path] = {"": ()}
    home: dict[int, Path] = {}
    if not any(n.scope for n in order):
        return {id(n): () for n in order}
    for n in order:
        path = paths.get(n.scope)
        if path is None:
            path = paths[n.scope] = tuple(n.scope.split("/"))
        home[id(n)] = path
    shared: dict[int, Path] = {}
    for n in order:
        if is_adjoint(n):
            continue
        for x in n.inputs:
            if x.op.name in ("variable", "constant") and not x.scope:
                old = shared.get(id(x))
                shared[id(x)] = home[id(n)] if old is None else _common(old, home[id(n)])
    home.update(shared)
    for n in order:
        if not is_adjoint(n):
            continue
        primal = primal_of(n, here)
        if primal is None:
            continue
        home[id(n)] = home[id(primal)]
        consumer = None if n.origin is None else n.origin.consumer
        if primal.op.family == "leaf" and consumer is not None and id(consumer) in here and not is_adjoint(consumer):
            home[id(n)] = home[id(consumer)]
    return home


def _common(a: Path, b: Path) -> Path:
    if a == b:
        return a
    k = 0
    while k < len(a) and k < len(b) and a[k] == b[k]:
        k += 1
    return a[:k]


def unnumbered(path: Path) -> Path:
    """A path in which all calls of one function are called the same."""
    return tuple([called(part) or part for part in path])


def stem(word: str) -> str:
    """A name without the number at its end: block3 and block4 have the same."""
    return word.rstrip("0123456789").rstrip("_-. ")
