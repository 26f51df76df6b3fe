"""Sweeps: many small rows, each one of graphdiff's operations against NumPy's own way of doing it.

A row runs graphdiff as a bound call on one thread and NumPy with a result array of its own where the function takes one. Their
results are compared before anything is timed; then both are timed in turn, in several places of memory, and the best of all rounds
counts. A row that comes out slower is timed in more places, both sides alike, before it is listed. A module with rows ends in
`sys.exit(sweep.main(__doc__, rows()))`.
"""
from __future__ import annotations

import argparse
import gc
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import graphdiff as gd
from graphdiff.bench.run import cpu
from graphdiff.bench.worker import microseconds

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")
_SAMPLE_US = 2000                   # long against the clock, short against the disturbances of a machine
_PLACES = 3                         # where arrays of megabytes lie moves a row by a fifth, either way
_MORE_PLACES = 6                    # for rows that come out slower; the best of all places counts for both sides
_SLOWER = 0.95                      # rows below are listed; what is nearer to 1 is within the noise of a quiet machine


class Row(NamedTuple):
    """One line of the table.

    arrays(): the operands. graph(*nodes): the operation in graphdiff. numpy(*arrays): the same in NumPy; with out=True the
    function takes out=. tolerance: relative difference of floats that still counts as equal (None: by the dtype).
    """

    name: str
    arrays: Callable[[], Sequence[Any]]
    graph: Callable[..., Any]
    numpy: Callable[..., Any]
    out: bool = False
    tolerance: float | None = None


def sample(shape: int | tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Normal floats, bytes of every value, integers up to a million, bools; the same at every run."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype == "uint8":
        return random.integers(0, 256, shape).astype(dtype)
    if dtype in ("int32", "int64"):
        return random.integers(-1_000_000, 1_000_000, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def _differs(ours: Any, theirs: Any, tolerance: float | None) -> bool:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return True
    if ours.dtype.kind != "f":
        return not np.array_equal(ours, theirs)
    close = 16 * float(np.finfo(ours.dtype).eps) if tolerance is None else tolerance
    return not np.allclose(ours.astype("float64"), theirs.astype("float64"), rtol=close, atol=close, equal_nan=True)


def _calls(row: Row) -> tuple[Any, Any, str]:
    """graphdiff's call, NumPy's call, and what is wrong with graphdiff's result ('': nothing)."""
    arrays = row.arrays()
    nodes = [gd.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    ours = gd.function(nodes, row.graph(*nodes), threads=1).bind(*arrays)
    expected = row.numpy(*arrays)
    got = ours()
    result = np.asarray(got[0] if isinstance(got, list | tuple) else got)
    wrong = "differs from NumPy's" if _differs(result, np.asarray(expected), row.tolerance) else ""
    out = {"out": np.empty_like(expected)} if row.out else {}
    return ours, partial(row.numpy, *arrays, **out), wrong


def measure(row: Row, rounds: int, below: float = _SLOWER) -> tuple[float, float, str]:
    """Microseconds of graphdiff and of NumPy, the best of interleaved rounds over fresh arrays; or 0, 0 and what is wrong."""
    best = [float("inf")] * 2
    held = []                       # the arrays of earlier places, so that the next ones lie elsewhere
    for place in range(_PLACES + _MORE_PLACES):
        if place >= _PLACES and best[1] >= below * best[0]:
            break
        ours, theirs, wrong = _calls(row)
        if wrong:
            return 0.0, 0.0, wrong
        held.append((ours, theirs))
        calls = [(call, max(1, int(_SAMPLE_US / max(microseconds(call, 2), 0.1)))) for call in (ours, theirs)]
        gc.disable()
        for _ in range(max(1, rounds // _PLACES)):
            for k, (call, number) in enumerate(calls):
                best[k] = min(best[k], microseconds(call, number))
        gc.enable()
    return best[0], best[1], ""


def main(description: str | None, rows: Iterable[Row], argv: Sequence[str] | None = None) -> int:
    """The command line of a sweep: prints the table, then the rows that are slower than NumPy. Returns 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="rows whose name contains this regular expression (default: all)")
    parser.add_argument("--rounds", type=int, default=9,
                        help="rounds of 2 ms for each of the two, in three places of memory, nine for slower rows (default: %(default)s)")
    parser.add_argument("--below", type=float, default=_SLOWER, help="list rows whose ratio is below (default: %(default)s)")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore", RuntimeWarning)     # NumPy's, of overflow and of what is outside the domain
    chosen = [row for row in rows if re.search(options.pattern, row.name)]
    slow, bad = [], 0
    print(f"{cpu()}, 1 thread; NumPy {np.__version__}; microseconds, best of {options.rounds} interleaved rounds")
    print(f"{'':<44}{'graphdiff':>12}{'NumPy':>12}{'NumPy/ours':>12}")
    for row in chosen:
        a, b, wrong = measure(row, options.rounds, options.below)
        line = f"{row.name:<44}" + (wrong or f"{a:>12.2f}{b:>12.2f}{b / a:>12.2f}")
        print(line, flush=True)
        bad += bool(wrong)
        if wrong or b / a < options.below:
            slow.append(line)
    print(f"\n{len(chosen)} rows, {len(slow)} of them below {options.below:g} of NumPy's speed" + (f", {bad} wrong" if bad else ""))
    print("\n".join(slow))
    return 1 if bad else 0
