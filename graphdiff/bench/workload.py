"""What a workload is, and how arrays for it are made."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Workload(NamedTuple):
    """One computation, timed forward (f) and forward with gradients to every array (fb).

    build(m, *arrays, *fixed): one expression in a library's vocabulary m (peers.py).
    forward(*arrays, *fixed), backward(g, *arrays, *fixed) -> [value, *gradients]: by hand in NumPy, the way one would write it.
    columns: the value is [n, k] and every row of it depends on the same row of the arrays; fb is then the value and, for
    each of the k columns, the derivatives to every array: a Jacobian by rows.
    bound: "flops" or "bytes": what limits it, so that the table can name the share of the machine's own peak.
    """

    name: str
    arrays: Callable[[], Sequence[Any]]
    build: Callable[..., Any]
    forward: Callable[..., Any] | None
    backward: Callable[..., Sequence[Any]] | None = None
    fixed: Callable[[], Sequence[Any]] = lambda: ()
    bound: str = ""
    tolerance: float = 2e-4
    columns: bool = False


WORKLOADS: dict[str, Workload] = {}


def add(name: str, arrays: Any, build: Any, forward: Any, backward: Any = None, **facts: Any) -> None:
    if name in WORKLOADS:
        raise ValueError(f"two workloads are called {name!r}")
    WORKLOADS[name] = Workload(name, arrays, build, forward, backward, **facts)


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Standard normal numbers, the same at every run."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
