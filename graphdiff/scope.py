"""gd.scope: names for groups of nodes, for pictures."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from .errors import NodeTypeError
from .graph.build import CONTEXT, located


def scope(name: str) -> AbstractContextManager[None]:
    """Nodes made inside belong to a group of this name; scopes nest."""
    if not isinstance(name, str):
        raise located(NodeTypeError(f"a name is a str, not {type(name).__name__}"), "scope")
    return _inside(name)


@contextmanager
def _inside(name: str) -> Iterator[None]:
    before = CONTEXT.now
    site, origin, scope = before
    CONTEXT.now = (site, origin, f"{scope}/{name}" if scope else name)
    try:
        yield
    finally:
        CONTEXT.now = before
