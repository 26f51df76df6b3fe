"""gd.scope: names for groups of nodes, for pictures."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import NodeTypeError
from .graph.build import CONTEXT


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Nodes made inside belong to a group of this name; scopes nest."""
    if not isinstance(name, str):
        raise NodeTypeError(f"scope: a name is a str, not {type(name).__name__}")
    before = CONTEXT.scope
    CONTEXT.scope = f"{before}/{name}" if before else name
    try:
        yield
    finally:
        CONTEXT.scope = before
