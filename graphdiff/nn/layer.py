"""What all layers share: a name, parameters and state found in the attributes, a scope around every application."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import NodeTypeError
from ..graph.build import as_node
from ..graph.node import Node
from ..graph.state import variable
from ..scope import scope

_count = itertools.count(1)


class Layer:
    """Base of the layers. A subclass sets variables and other layers as attributes and defines `forward(x, training)`.

    Attributes that are variables are parameters, except those made with `self.state(...)`: they are saved, but an optimiser
    does not touch them. Lists and tuples of layers count too. A layer used twice shares its variables.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not isinstance(name, str):
            raise NodeTypeError(f"name is a str, not {type(name).__name__}")
        self.name = name or type(self).__name__.lower()
        self._state: set[int] = set()
        self._pending: dict[Node, Node] = {}

    # -- for subclasses ---------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **options: Any) -> Any:
        """The graph of one application: forward(x, ..., training=...)."""
        raise NotImplementedError

    def parameter(self, value: Any, name: str) -> Node:
        return variable(value, f"{self.name}.{name}")

    def state(self, value: Any, name: str) -> Node:
        """A variable that belongs to the layer and is not trained."""
        v = variable(value, f"{self.name}.{name}")
        self._state.add(id(v))
        return v

    def later(self, v: Node, value: Node) -> None:
        """Ask for a new value of a state variable after a training step."""
        self._pending[v] = value

    # -- for users --------------------------------------------------------------------------------------------------------

    def __call__(self, x: Any, *args: Any, training: bool = False, **options: Any) -> Any:
        """The layer applied to x. training: dropout drops, batch norm uses and gathers this batch's statistics."""
        if not isinstance(training, bool):
            raise NodeTypeError(f"{self.name}: training is True or False, not {training!r}")
        with scope(self.name):
            if training:
                self._pending = {}
            return self.forward(x if isinstance(x, (tuple, list)) else as_node(x), *args, training=training, **options)

    def parameters(self) -> list[Node]:
        """The variables an optimiser changes, each once, in the order they were set."""
        return [v for _, v, trained in self._variables() if trained]

    def updates(self) -> dict[Node, Node]:
        """What the last training call asks gd.function(updates=...) to write: running averages, key counters."""
        found: dict[Node, Node] = {}
        for layer in self._layers():
            found.update(layer._pending)
        return found

    def variables(self) -> dict[str, Node]:
        """Every variable, trained or not, by its path: for saving."""
        return {path: v for path, v, _ in self._variables()}

    def __repr__(self) -> str:
        import math
        n = sum(math.prod(p.shape) for p in self.parameters())
        return f"<{type(self).__name__} {self.name}: {n} parameters>"

    # -- walking ----------------------------------------------------------------------------------------------------------

    def _own(self) -> list[tuple[str, Node]]:
        return [(key, v) for key, v in vars(self).items() if isinstance(v, Node) and v.op.name == "variable"]

    def _children(self) -> Iterator[tuple[str, Layer]]:
        for key, value in vars(self).items():
            items: Any = enumerate(value) if isinstance(value, (list, tuple)) else value.items() if isinstance(value, Mapping) else ()
            if isinstance(value, Layer):
                yield key, value
            for k, item in items:
                if isinstance(item, Layer):
                    yield f"{key}.{k}", item

    def _layers(self) -> list[Layer]:
        """This layer and all below, each once."""
        return [layer for _, layer in self._paths()]

    def _paths(self) -> list[tuple[str, Layer]]:
        found: list[tuple[str, Layer]] = []
        seen: set[int] = set()
        stack: list[tuple[str, Layer]] = [("", self)]
        while stack:
            path, layer = stack.pop()
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            found.append((path, layer))
            stack += [(f"{path}{key}.", child) for key, child in reversed(list(layer._children()))]
        return found

    def _variables(self) -> list[tuple[str, Node, bool]]:
        found, seen = [], set()
        for path, layer in self._paths():
            for key, v in layer._own():
                if id(v) not in seen:
                    seen.add(id(v))
                    found.append((path + key, v, id(v) not in layer._state))
        return found


def unique_seed() -> int:
    """The number of layers made so far without a key: two such layers of one program differ, two runs do not."""
    return next(_count)
