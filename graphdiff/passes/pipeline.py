"""The passes in order. Each can be turned off by name; how long each took is kept."""
from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..errors import NodeTypeError
from ..graph.node import Node
from ..graph.walk import toposort
from .linear import linear_sums
from .placed import placed
from .simplify import Ordered, algebra, foldable, merge, replace_constants
from .stable import stable_forms
from .symmetric import symmetric
from .turned import unturned

# Called with nodes, gives their values: running constants is the business of a later stage.
Evaluate = Callable[[Sequence[Node]], list[Any]]


def fold(order: list[Node], outputs: list[Node], evaluate: Evaluate) -> Ordered:
    """Constant subgraphs as constants, computed by the same kernels that would compute them in a call."""
    roots = foldable(order, outputs)
    if not roots:
        return order, outputs
    values = evaluate(roots)
    return replace_constants(order, outputs, {id(r): v for r, v in zip(roots, values, strict=True)})


PASSES: tuple[tuple[str, Callable[..., Ordered]], ...] = (
    ("merge", lambda order, outputs, evaluate: merge(order, outputs)),
    ("algebra", lambda order, outputs, evaluate: placed(*unturned(*symmetric(*algebra(order, outputs))))),
    ("stable_forms", lambda order, outputs, evaluate: linear_sums(*unturned(*stable_forms(order, outputs), summed=True))),
    ("fold", fold),
)
PLANNING = ("fuse", "in_place")   # turned off by name too, but done to instructions, by lowering and the memory plan
NAMES = tuple(name for name, _ in PASSES) + PLANNING


def chosen(passes: Collection[str] | None) -> frozenset[str]:
    """The set of pass names to run: None is all, a collection is exactly those."""
    if passes is None:
        return frozenset(NAMES)
    if isinstance(passes, str):
        passes = (passes,)
    unknown = [p for p in passes if p not in NAMES]
    if unknown:
        raise NodeTypeError(f"passes: no pass is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    return frozenset(passes)


def run_passes(outputs: Sequence[Node], names: frozenset[str], evaluate: Evaluate, times: dict[str, float],
               order: list[Node] | None = None) -> list[Node]:
    """The outputs after every chosen pass; times gets seconds by pass. order: all nodes in running order, if the caller knows it."""
    result = list(outputs)
    order = toposort(result) if order is None else order
    for name, function in PASSES:
        if name in names:
            start = time.perf_counter()
            order, result = function(order, result, evaluate)
            times[name] = times.get(name, 0.0) + time.perf_counter() - start
    return result
