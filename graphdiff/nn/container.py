"""Layers made of layers."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node
from ..graph.node import Node
from ..ops.movement import reshape_to
from ..specs import nelements
from .layer import Layer


def _apply(step: Any, x: Any, training: bool) -> Any:
    return step(x, training=training) if isinstance(step, Layer) else step(x)


def _checked(step: Any, what: str) -> Any:
    if not callable(step):
        raise NodeTypeError(f"{what} is a layer or a function of a node, not {type(step).__name__}")
    return step


class Sequential(Layer):
    """Layers and functions one after the other: Sequential(Dense(2, 8), gd.relu, Dense(8, 1))."""

    def __init__(self, *steps: Layer | Callable[[Any], Any], name: str | None = None) -> None:
        super().__init__(name)
        self.steps = [_checked(s, f"step {i}") for i, s in enumerate(steps)]
        taken: dict[str, int] = {}
        for i, s in enumerate(self.steps):      # two of one kind have names of their own in pictures and messages
            if isinstance(s, Layer) and not any(s is other for other in self.steps[:i]):
                n = taken[s.name] = taken.get(s.name, 0) + 1
                if n > 1 and s.name == type(s).__name__.lower():
                    s.rename(f"{s.name}{n}")

    def forward(self, x: Any, training: bool) -> Any:
        for step in self.steps:
            x = _apply(step, x, training)
        return x

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, i: int) -> Any:
        return self.steps[i]


class Residual(Layer):
    """x + inner(x): a skip connection. shortcut: applied to x on its way round, where the sizes differ. Source: He et al. 2016."""

    def __init__(self, inner: Layer | Callable[[Any], Any], shortcut: Layer | Callable[[Any], Any] | None = None,
                 name: str | None = None) -> None:
        super().__init__(name)
        self.inner = _checked(inner, "inner")
        self.shortcut = None if shortcut is None else _checked(shortcut, "shortcut")

    def forward(self, x: Any, training: bool) -> Node:
        y = _apply(self.inner, x, training)
        around = x if self.shortcut is None else _apply(self.shortcut, x, training)
        if y.shape != around.shape:
            raise ShapeError(f"{self.name}: the inner layer gives {y.spec}, the way round {around.spec}; give a shortcut that fits")
        return around + y


class Flatten(Layer):
    """[N, ..] -> [N, all the rest]."""

    def forward(self, x: Node, training: bool) -> Node:
        x = as_node(x)
        if x.ndim < 1:
            raise ShapeError(f"{self.name}: the input is {x.spec}, a first axis is needed")
        return reshape_to(x, (x.shape[0], nelements(x.shape[1:])))
