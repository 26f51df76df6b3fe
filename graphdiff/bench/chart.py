"""A bar chart of a benchmark run: how many times as long as graphdiff each peer takes, one group of bars a row."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import GraphdiffError


def bars(rows: Sequence[dict[str, Any]], machine: dict[str, Any], path: str) -> None:
    """Write the chart to `path`; its suffix says the format. Raises GraphdiffError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GraphdiffError("--chart needs matplotlib: pip install 'graphdiff[bench]'") from None
    rows = [r for r in rows if "graphdiff" in r["median_us"] and len(r["median_us"]) > 1]
    peers = [n for n in machine["versions"] if n != "graphdiff"]
    figure = Figure(figsize=(9, 1.2 + 0.13 * len(rows) * (len(peers) + 1)), layout="constrained")
    axes = figure.add_subplot()
    step = len(peers) + 1
    for k, peer in enumerate(peers):
        places = [i * step + k for i, r in enumerate(rows) if peer in r["median_us"]]
        ratios = [r["median_us"][peer] / r["median_us"]["graphdiff"] for r in rows if peer in r["median_us"]]
        axes.barh(places, [x - 1 for x in ratios], left=1, height=0.9, label=f"{peer} {machine['versions'][peer]}")
    axes.set_yticks([i * step + (len(peers) - 1) / 2 for i in range(len(rows))], [r["name"] for r in rows], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.margins(y=0.005)
    axes.set_xlabel("time of the peer / time of graphdiff (right of 1: graphdiff is faster)")
    axes.set_title(f"{machine['cpu']}, {machine['threads']} thread(s)", fontsize=9)
    axes.legend(fontsize=7, loc="lower right")
    figure.savefig(path)
