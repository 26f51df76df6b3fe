"""Runs benchmarks: results compared before anything is timed, libraries interleaved, medians with spread, a table and JSON."""
from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..errors import GraphdiffError

_ROUNDS = 9
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Freed memory stays with the process: results of peers then cost no page faults after the first call.
_WARM = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"


# Where NumPy computes what is timed; elsewhere only the results that others are compared with.
_BY_NUMPY = ("numpy", "autograd", "pytensor")


class Library:
    """A process that runs one library."""

    def __init__(self, name: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.pipe, theirs = context.Pipe()
        from .worker import serve
        self.process = context.Process(target=serve, args=(theirs, name, threads), daemon=True)
        # inherited; threads of NumPy's would spin on after the comparison, on the cores of the library
        os.environ["OPENBLAS_NUM_THREADS"] = str(threads if name in _BY_NUMPY else 1)
        self.process.start()
        theirs.close()
        self.version = str(self.ask()[1])

    def ask(self, *message: Any) -> Any:
        if message:
            self.pipe.send(message)
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            raise GraphdiffError(f"bench: the process of {self.name} ended") from None

    def close(self) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.terminate()


def _environment(threads: int, warm: bool) -> None:
    """What the processes of the libraries inherit: how many threads, and how memory is kept."""
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} intra_op_parallelism_threads={threads}"
    if warm:
        os.environ["GLIBC_TUNABLES"] = _WARM
    if threads < (os.cpu_count() or 1) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])      # JAX has no other way of being held to one


def names_of(wanted: Sequence[str]) -> list[str]:
    """Workloads and training steps whose name contains one of the words; all when there are none."""
    from . import contractions, models, streams  # noqa: F401  they fill WORKLOADS
    from .steps import STEPS
    from .workload import WORKLOADS
    names = [*WORKLOADS, *STEPS]
    found = [n for n in names if not wanted or any(w in n for w in wanted)]
    if not found:
        raise GraphdiffError(f"bench: no benchmark is called like {', '.join(wanted)}; there are: {', '.join(names)}")
    return found


def _libraries(against: Sequence[str]) -> list[str]:
    from .peers import MAKERS, installed
    chosen = ["graphdiff"]
    for name in against:
        if name not in MAKERS and name != "numpy":
            raise GraphdiffError(f"bench: {name!r} is not a peer; there are numpy, {', '.join(MAKERS)}")
        if name != "numpy" and not installed(name):
            print(f"not installed, left out: {name} (pip install 'graphdiff[bench]')", file=sys.stderr)
        elif name not in chosen:
            chosen.append(name)
    return chosen


def _kinds(name: str) -> tuple[str, ...]:
    """The rows of a benchmark: "f" for the value, "fb" with gradients, "step" for a training step."""
    from .workload import WORKLOADS
    if name not in WORKLOADS:
        return ("step",)
    w = WORKLOADS[name]
    return (*(["f"] if w.forward is not None else []), *(["fb"] if w.backward is not None else []))


def _row(libraries: list[Library], name: str, kind: str, seconds: float) -> dict[str, Any]:
    """One row: every library that has the words for it and agrees with NumPy, timed in turn."""
    row: dict[str, Any] = {"name": f"{name} {kind}", "samples_us": {}, "notes": {}, "memory_bytes": {}}
    able = []
    for library in list(libraries):
        try:
            trouble, why, memory = library.ask("row", name, kind, seconds / _ROUNDS)
        except GraphdiffError as error:
            if library.name == "graphdiff":
                raise
            print(f"    {error} at {name}; it is left out from here on")
            libraries.remove(library)
            continue
        if trouble:
            row["notes"][library.name] = f"{trouble}: {why}"
        else:
            able.append(library)
            if memory:
                row["memory_bytes"][library.name] = memory
            row["samples_us"][library.name] = []
    if "graphdiff" not in row["samples_us"]:
        able = []
    for _ in range(_ROUNDS):
        for library in able:
            row["samples_us"][library.name].append(library.ask("sample"))
    row["median_us"] = {n: statistics.median(s) for n, s in row["samples_us"].items() if s}
    row["best_us"] = {n: min(s) for n, s in row["samples_us"].items() if s}
    return row


def _limits(threads: int) -> dict[str, float]:
    """This machine's own peaks, measured now: GFLOP/s of multiply-adds of one core, GB/s of a copy from memory."""
    import numpy as np

    import graphdiff as gd

    from ..dtypes import FLOAT32, FLOAT64
    from ..runtime import native
    limits = {}
    for key, dtype in (("f32_gflops", FLOAT32), ("f64_gflops", FLOAT64)):
        best = 0.0
        for _ in range(10):
            start = time.perf_counter()
            flops = native.peak(dtype, 200_000)
            best = max(best, flops / (time.perf_counter() - start))
        limits[key] = best / 1e9 * threads
    x = gd.input("x", (32, 1 << 20), "float32")
    call = gd.function([x], -x, threads=threads).bind(np.zeros((32, 1 << 20), "float32"))
    best = 0.0
    for _ in range(6):
        start = time.perf_counter()
        call()
        best = max(best, 2 * 4 * (32 << 20) / (time.perf_counter() - start))
    limits["copy_gbytes"] = best / 1e9
    return limits


def _share(name: str, kind: str, us: float, limits: dict[str, float]) -> str:
    """Share of the machine's own peak: of multiply-adds, or of the copying speed by the bytes that must move at least."""
    from .worker import demand
    from .workload import WORKLOADS
    w = WORKLOADS.get(name)
    if w is None or not w.bound:
        return ""
    amount, itemsize = demand(w, kind == "fb")
    if w.bound == "bytes":
        return f"{amount / us / 1e3 / limits['copy_gbytes']:.0%} of copy"
    return f"{amount / us / 1e3 / limits['f64_gflops' if itemsize == 8 else 'f32_gflops']:.0%} of peak"


def run(names: Sequence[str], against: Sequence[str], threads: int, save: str | None, seconds: float, *, warm: bool = False,
        chart: str | None = None) -> int:
    """Time every workload whose name contains one of `names`, forward and with gradients, against the peers.

    seconds: time per row and library. warm: keep freed memory in every process. Prints a table; `save` writes JSON, `chart` a
    bar chart (matplotlib). Returns 1 when a result of graphdiff's disagreed with NumPy's, else 0.
    """
    if threads < 1:
        raise GraphdiffError(f"bench: --threads {threads} must be at least 1")
    chosen, peers = names_of(names), _libraries(against)
    _environment(threads, warm)
    import numpy as np

    from ..runtime import native
    limits = _limits(threads)
    libraries = [Library(n, threads) for n in peers]
    machine = {"cpu": cpu(), "isa": native.isa(), "threads": threads, "python": platform.python_version(), "numpy": np.__version__,
               "warm_memory": warm, "versions": {x.name: x.version for x in libraries}, "limits": limits,
               "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
    print(f"{machine['cpu']}, {machine['isa']}, {threads} thread{'s' if threads > 1 else ''}"
          f"{', memory kept warm' if warm else ''}; medians of {_ROUNDS} interleaved samples")
    print(", ".join(f"{x.name} {x.version}" for x in libraries))
    print(f"peak {limits['f32_gflops']:.0f} / {limits['f64_gflops']:.0f} GFLOP/s (float32 / float64), copy {limits['copy_gbytes']:.0f} GB/s")
    print(f"{'':<32}" + "".join(f"{x.name:>14}" for x in libraries) + f"{'best/ours':>11}  spread  of the machine")
    rows = []
    try:
        for name in chosen:
            for kind in _kinds(name):
                row = _row(libraries, name, kind, seconds)
                ours = row["median_us"].get("graphdiff")
                if ours is not None:
                    row["machine_share"] = _share(name, kind, ours, limits)
                rows.append(row)
                _print(row, libraries)
    finally:
        for x in libraries:
            x.close()
    if save:
        write(save, {"machine": machine, "rows": rows})
    if chart:
        from .chart import bars
        bars(rows, machine, chart)
        print(f"written: {chart}")
    return 1 if any(r["notes"].get("graphdiff", "").startswith("wrong") for r in rows) else 0


def write(path: str, results: dict[str, Any]) -> None:
    """Save results as JSON, and say so."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    print(f"written: {path}")


def _print(row: dict[str, Any], libraries: Sequence[Library]) -> None:
    medians = row["median_us"]
    ours = medians.get("graphdiff")
    cells = "".join(f"{_time(medians[x.name]) if x.name in medians else row['notes'].get(x.name, '').partition(':')[0][:7]:>14}"
                    for x in libraries)
    others = [v for n, v in medians.items() if n != "graphdiff"]
    ratio = f"{min(others) / ours:>10.2f}x" if ours and others else f"{'':>11}"
    spread = max(((max(s) - min(s)) / statistics.median(s) for s in row["samples_us"].values() if s), default=0.0)
    print(f"{row['name']:<32}{cells}{ratio}{spread:>7.0%}  {row.get('machine_share', '')}", flush=True)
    if row["memory_bytes"]:
        print("    memory of a step, MB: " + ", ".join(f"{n} {_memory(m)}" for n, m in row["memory_bytes"].items()))
    for n, why in row["notes"].items():
        if why.startswith("wrong"):
            print(f"    {n} NOT TIMED, its results disagree with NumPy's: {why[7:]}")


def _memory(m: dict[str, int]) -> str:
    """Growth of the resident set over a step, and what the program asks for where it says."""
    return " ".join(f"{m[k] / 2 ** 20:.1f}{text}" for k, text in (("growth", ""), ("planned", " planned")) if k in m)


def _time(us: float) -> str:
    return f"{us * 1000:.0f} ns" if us < 1 else f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms"


def cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
