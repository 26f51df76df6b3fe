"""Runs benchmarks: results compared before anything is timed, libraries interleaved, medians with spread, a table and JSON."""
from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _again_with_threads(threads: int) -> None:
    """NumPy's libraries read their thread count when they load: start again with it set."""
    if os.environ.get(_THREADS[0]) != str(threads) or os.environ.get(_THREADS[1]) != str(threads):
        environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        os.execve(sys.executable, [sys.executable, "-m", "graphdiff", *sys.argv[1:]], environment)


def _microseconds(call: Any, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number * 1e6


def _number(call: Any, seconds: float) -> int:
    """Calls of about seconds / 10."""
    once = max(_microseconds(call, 1), 0.05)
    return max(1, int(seconds * 1e5 / once))


def compare(mine: Any, theirs: Sequence[Any], tolerance: float) -> str:
    """'' when the results agree within tolerance of their largest element, else what differs."""
    import numpy as np
    mine = list(mine) if isinstance(mine, (tuple, list)) else [mine]
    if len(mine) != len(theirs):
        return f"{len(mine)} results against {len(theirs)}"
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        b = np.asarray(b)
        if a.shape != b.shape:
            return f"result {i}: shape {a.shape} against {b.shape}"
        scale = float(np.max(np.abs(b))) if b.size else 0.0
        worst = float(np.max(np.abs(a.astype("float64") - b))) if b.size else 0.0
        if not worst <= tolerance * (scale + 1):
            return f"result {i}: differs by {worst:.2g}"
    return ""


def run(names: Sequence[str], against: Sequence[str], threads: int, save: str | None, seconds: float) -> int:
    """Time every workload whose name contains one of `names`; prints a table, optionally writes JSON."""
    _again_with_threads(threads)
    import numpy as np

    import graphdiff as gd

    from ..runtime import native
    from .workloads import WORKLOADS
    unknown = [a for a in against if a != "numpy"]
    if unknown:
        print(f"not measured here yet: {', '.join(unknown)}", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    machine = {"cpu": _cpu(), "isa": native.isa(), "threads": threads, "python": platform.python_version(), "numpy": np.__version__,
               "graphdiff": gd.__version__}
    print(f"{machine['cpu']}, {machine['isa']}, {threads} thread{'s' if threads > 1 else ''}, NumPy {np.__version__}")
    print(f"{'':<36}{'graphdiff':>12}{'numpy':>12}{'ratio':>8}   spread")
    for name, make in WORKLOADS.items():
        if names and not any(n in name for n in names):
            continue
        mine, theirs = make(threads)
        wrong = compare(mine(), theirs(), 2e-4)
        if wrong:
            print(f"{name:<36}NOT TIMED, results disagree: {wrong}")
            rows.append({"name": name, "error": wrong})
            continue
        counts = _number(mine, seconds), _number(theirs, seconds)
        samples: tuple[list[float], list[float]] = ([], [])
        for _ in range(9):
            for k, call in enumerate((mine, theirs)):
                samples[k].append(_microseconds(call, counts[k]))
        a, b = (statistics.median(s) for s in samples)
        spread = max((max(s) - min(s)) / statistics.median(s) for s in samples)
        print(f"{name:<36}{_time(a):>12}{_time(b):>12}{b / a:>7.2f}x   {spread:.0%}", flush=True)
        rows.append({"name": name, "graphdiff_us": a, "numpy_us": b, "ratio": b / a, "graphdiff_samples_us": samples[0],
                     "numpy_samples_us": samples[1]})
    if save:
        with open(save, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "rows": rows}, file, indent=1)
        print(f"written: {save}")
    return 1 if any("error" in r for r in rows) else 0


def _time(us: float) -> str:
    return f"{us * 1000:.0f} ns" if us < 1 else f"{us:.2f} us" if us < 1000 else f"{us / 1000:.2f} ms"


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
