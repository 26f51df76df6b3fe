"""How time grows: with the size of an array, the depth of a network, the number of nodes. `graphdiff bench growth`.

    size     matmul n x n and relu of n numbers, of a bound call
    depth    a network of n dense layers 128-128, batch 32: value and gradients of the weights
    nodes    a chain of n scalar operations: building, differentiating, compiling, running once compiled

Runs are the least wall time of five samples; what happens once (building, differentiating, compiling) is processor time.
Every curve ends with the exponent between its last two points: 1 is linear.
"""
from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import GraphdiffError
from .workload import normal

SIZES = {"matmul": (8, 16, 32, 64, 128, 256, 512, 1024), "relu": (1000, 10_000, 100_000, 1_000_000, 10_000_000),
         "dense layers": (1, 4, 16, 64, 256), "chain": (100, 1000, 10_000, 100_000)}
_UNITS = {"matmul": "n x n", "relu": "numbers", "dense layers": "layers", "chain": "operations"}


def _least(call: Callable[[], Any], seconds: float) -> float:
    """Microseconds of a call: the least of five samples that take `seconds` together."""
    call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    number = max(1, int(seconds / 5 / once))
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter() - start) / number)
    return best * 1e6


def _matmul(n: int, threads: int, seconds: float) -> dict[str, float]:
    import graphdiff as gd
    a, b = gd.input("a", (n, n), "float32"), gd.input("b", (n, n), "float32")
    return {"run": _least(gd.function([a, b], gd.matmul(a, b), threads=threads).bind(normal(n, n), normal(n, n, seed=1)), seconds)}


def _relu(n: int, threads: int, seconds: float) -> dict[str, float]:
    import graphdiff as gd
    x = gd.input("x", (n,), "float32")
    return {"run": _least(gd.function([x], gd.relu(x), threads=threads).bind(normal(n)), seconds)}


def _dense(n: int, threads: int, seconds: float) -> dict[str, float]:
    import graphdiff as gd
    x = gd.input("x", (32, 128), "float32")
    net = gd.nn.Sequential(*[gd.nn.Dense(128, 128, "relu") for _ in range(n)])
    loss = gd.mean(gd.square(net(x, training=True)))
    value = gd.function([x], loss, threads=threads)
    both = gd.function([x], [loss, *gd.grad(loss, net.parameters())], threads=threads)
    batch = normal(32, 128)
    return {"value": _least(value.bind(batch), seconds), "value and gradients": _least(both.bind(batch), seconds)}


def _chain(n: int, threads: int, seconds: float) -> dict[str, float]:
    import graphdiff as gd
    x = y = gd.input("x")
    times = [time.process_time()]
    for i in range(n):
        y = gd.sin(y) if i % 3 == 0 else y * 1.0001 if i % 3 == 1 else y + 0.1
    times.append(time.process_time())
    g = gd.grad(y, x)
    times.append(time.process_time())
    f = gd.function([x], [y, g], threads=threads)
    times.append(time.process_time())
    found = {k: (b - a) * 1e6 for k, a, b in zip(("build", "differentiate", "compile"), times, times[1:], strict=False)}
    found["run"] = _least(f.bind(0.5), seconds)
    return found


_CURVES = {"matmul": _matmul, "relu": _relu, "dense layers": _dense, "chain": _chain}


def measure(curve: str, n: int, threads: int, seconds: float) -> dict[str, float]:
    """Microseconds of one point of a curve, by what was timed."""
    gc.collect()
    return _CURVES[curve](n, threads, seconds)


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """p of time ~ size^p between the last two points."""
    return math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])


def growth(threads: int, seconds: float, sizes: dict[str, Sequence[int]] | None = None) -> list[dict[str, Any]]:
    """Measure and print every curve; one row {"curve", "timed", "unit", "sizes", "us"} for each thing timed."""
    rows = []
    for curve, ns in (SIZES if sizes is None else sizes).items():
        points = [measure(curve, n, threads, seconds) for n in ns]
        print(f"\n{curve + ', ' + _UNITS[curve]:<32}" + "".join(f"{n:>12,}" for n in ns) + f"{'exponent':>10}")
        for timed in points[0]:
            us = [p[timed] for p in points]
            rows.append({"curve": curve, "timed": timed, "unit": _UNITS[curve], "sizes": list(ns), "us": us})
            print(f"{'  ' + timed:<32}" + "".join(f"{_time(t):>12}" for t in us) + f"{exponent(ns, us):>10.2f}", flush=True)
    return rows


def _time(us: float) -> str:
    return f"{us * 1000:.0f} ns" if us < 1 else f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def chart(rows: Sequence[dict[str, Any]], title: str, path: str) -> None:
    """Curves on logarithmic axes, one panel a curve. Raises GraphdiffError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GraphdiffError("--chart needs matplotlib: pip install 'graphdiff[bench]'") from None
    curves = list(dict.fromkeys(r["curve"] for r in rows))
    figure = Figure(figsize=(4 * len(curves), 3.6), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        for r in (r for r in rows if r["curve"] == curve):
            axes.loglog(r["sizes"], r["us"], marker=".", label=r["timed"])
            axes.set_xlabel(r["unit"])
        axes.set_title(curve, fontsize=9)
        axes.set_ylabel("microseconds")
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path)


def run(threads: int, seconds: float, save: str | None, picture: str | None) -> int:
    """`graphdiff bench growth`: table, JSON and chart. Returns 0."""
    import platform

    from ..runtime import native
    from .run import cpu, write
    if threads < 1:
        raise GraphdiffError(f"bench: --threads {threads} must be at least 1")
    machine = {"cpu": cpu(), "isa": native.isa(), "threads": threads, "python": platform.python_version(),
               "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
    title = f"{machine['cpu']}, {machine['isa']}, {threads} thread{'s' if threads > 1 else ''}; float32, chains float64"
    print(title)
    rows = growth(threads, seconds)
    if save:
        write(save, {"machine": machine, "growth": rows})
    if picture:
        chart(rows, title, picture)
        print(f"written: {picture}")
    return 0
