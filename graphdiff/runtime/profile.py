"""Time per instruction, attributed to nodes and lines."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..lower.program import FIRST
from . import native
from .execute import Loaded, Workspace


def profile(loaded: Loaded, args: Sequence[Any]) -> list[dict[str, Any]]:
    """One row an instruction, slowest first: ns, op, node, site, nodes (more than one where operations are fused). Variables with an update
    are afterwards what they were before."""
    w = Workspace(loaded)
    held = loaded.place(w, args)
    results = [native.from_buffer(np.full(s, 0, d)) for s, d in loaded.out_specs]      # written to: no instruction waits for their pages
    first = FIRST + loaded.n_in
    w.bases[first:first + len(results)] = results
    times = native.new("int64_t[]", max(1, len(loaded.program.instrs)))
    for lock in loaded.locks:
        lock.acquire()
    try:
        before = [state.copy() for state in loaded.states]
        status = native.lib.gd_run_profiled(loaded.handle.c, w.c, w.bases, times, w.fault)
        for state, values in zip(loaded.states, before, strict=True):
            state[...] = values
    finally:
        for lock in loaded.locks:
            lock.release()
    del held
    if status != native.OK:
        raise loaded.error(w, status)
    program = loaded.program
    rows = [{"ns": int(times[i]), "op": op, "node": node, "site": None if node is None else node.site, "nodes": program.nodes(i)}
            for i, (op, _, _, _, node) in enumerate(program.instrs)]
    return sorted(rows, key=lambda r: -r["ns"])
