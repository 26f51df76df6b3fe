"""Curves as SVG for the examples; without matplotlib (pip install 'graphdiff[plot]') they print that they are left out."""
from collections.abc import Callable
from typing import Any


def save(name: str, draw: Callable[[Any], None], size: tuple[float, float] = (6, 4)) -> None:
    """draw(axes) on a figure written as `name` in the current folder."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"not drawn without matplotlib: {name}")
        return
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.add_subplot())
    figure.savefig(name)
    print(f"written: {name}")
