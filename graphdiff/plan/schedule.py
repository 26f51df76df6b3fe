"""The order in which nodes run."""
from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Node
from ..graph.walk import toposort


def schedule(outputs: Sequence[Node]) -> list[Node]:
    """Nodes in running order: depth first from the outputs, so that a value is used soon after it is made."""
    return toposort(outputs)
