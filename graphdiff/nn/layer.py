"""What all layers share: a name, parameters and state found in the attributes, a scope around every application."""
from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import GraphdiffError, NodeTypeError, ShapeError, show_name
from ..graph.build import as_node, located, placed
from ..graph.node import Node
from ..graph.state import variable
from ..scope import scope

_count = itertools.count(1)
VAR_KEYWORDS = 8      # of a code object's flags: inspect.CO_VARKEYWORDS, whose module is slow to import


NAME_LIMIT = 100       # characters of a layer's name, which opens messages and titles boxes


class _Calls(threading.local):
    """The application under way: how deep its layers are nested, and a number that no other application of this process has."""

    depth = 0
    number: object = None
    drops = 0       # dropout layers met in it so far


_calls = _Calls()


@functools.cache
def _takes_training(forward: Any) -> bool:
    code = getattr(forward, "__code__", None)      # without one, nobody knows
    if code is None or code.co_flags & VAR_KEYWORDS:
        return True
    return "training" in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]


class Layer:
    """Base of the layers. A subclass sets variables and other layers as attributes and defines `forward(x, training)`.

    Attributes that are variables are parameters, except those made with `self.state(...)`: they are saved, but an optimiser
    does not touch them. What lists, tuples and dicts hold counts too, nested ones as well. A layer used twice shares its variables.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = placed(cls.__init__, str.lower)  # type: ignore[method-assign]

    @functools.partial(placed, name=str.lower)
    def __init__(self, name: str | None = None) -> None:
        if name is not None and not isinstance(name, str):
            raise NodeTypeError(f"name is a str, not {type(name).__name__}")
        if name is not None and (len(name) > NAME_LIMIT or not name.isprintable()):
            raise ShapeError(f"name is one line of at most {NAME_LIMIT} characters, not {show_name(name)}")
        self.name = name or type(self).__name__.lower()
        self._state: list[Node] = []
        self._pending: dict[Node, Node] = {}
        self._call: object = None      # the application that _pending belongs to
        self._drops = 0                # places of dropouts in training calls of this layer since updates() was asked

    # -- for subclasses ---------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **options: Any) -> Any:
        """The graph of one application: forward(x, ..., training=...)."""
        raise NotImplementedError

    def parameter(self, value: Any, name: str) -> Node:
        return variable(value, f"{self.name}.{name}")

    def state(self, value: Any, name: str) -> Node:
        """A variable that belongs to the layer and is not trained."""
        v = variable(value, f"{self.name}.{name}")
        self._state.append(v)
        return v

    def rename(self, name: str) -> None:
        """Another name, for the layer's own variables as well: messages say which of two layers they mean."""
        for _, v in self._own():
            if v.name is not None and v.name.startswith(f"{self.name}."):
                object.__setattr__(v, "name", f"{name}{v.name[len(self.name):]}")      # nodes are immutable; a label changes nothing
        self.name = name

    def later(self, v: Node, value: Node) -> None:
        """Ask for a new value of a state variable after a training step."""
        self._pending[v] = value

    def latest(self, v: Node) -> Node:
        """The value of a state variable as far as this application has brought it: a layer may stand in a network twice."""
        return self._pending.get(v, v)

    def place(self) -> int:
        """How many times `place` was asked before in the application under way, and in those of the same layer since its updates()
        were asked for: two dropouts of one key must not drop the same, nor a network that stands twice in a training step."""
        _calls.drops += 1
        return _calls.drops - 1

    # -- for users --------------------------------------------------------------------------------------------------------

    def __call__(self, x: Any, *args: Any, training: bool = False, **options: Any) -> Any:
        """The layer applied to x. training: dropout drops, batch norm uses and gathers this batch's statistics."""
        if "name" not in vars(self):
            raise self._refusal(f"{type(self).__name__}.__init__ does not call super().__init__() first")
        if not isinstance(training, bool):
            raise self._refusal(f"training is True or False, not {training!r}")
        if not _takes_training(type(self).forward):
            raise self._refusal(f"{type(self).__name__}.forward has no parameter `training`: def forward(self, x, training)")
        if _calls.depth == 0:
            _calls.number, _calls.drops = object(), self._drops
        if training:
            if self._call is not _calls.number:
                self._call, self._pending = _calls.number, {}
        _calls.depth += 1
        try:
            with scope(self.name):
                return self.forward(x if isinstance(x, (tuple, list)) else as_node(x), *args, training=training, **options)
        except GraphdiffError as error:
            raise located(error, self.name, (x,)) from None
        except TypeError as error:
            if "multiple values for argument 'training'" in str(error):
                raise self._refusal("training is given by name: layer(x, training=True)") from None
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise self._refusal(str(error).partition("() ")[2]) from None         # the call did not fit
        finally:
            _calls.depth -= 1
            if _calls.depth == 0:
                self._drops = _calls.drops

    def _refusal(self, fact: str) -> GraphdiffError:
        return located(NodeTypeError(fact), vars(self).get("name") or type(self).__name__.lower())

    def parameters(self) -> list[Node]:
        """The variables an optimiser changes, each once, in the order they were set.

        Two Dense layers in different parts of a network may both have a dense.w: from here on messages add the path of a variable.
        """
        found = self._variables()
        for path, v, _ in found:
            v._attrs[0].path = f"{self.name}.{path}"
        return [v for _, v, trained in found if trained]

    def updates(self) -> dict[Node, Node]:
        """What the last training call asks gd.function(updates=...) to write: running averages, key counters."""
        found: dict[Node, Node] = {}
        for layer in self._layers():
            found.update(layer._pending)
            layer._drops = 0
        return found

    def variables(self) -> dict[str, Node]:
        """Every variable, trained or not, by its path: for saving."""
        found: dict[str, Node] = {}
        for path, v, _ in self._variables():
            if path in found:
                raise ShapeError(f"{self.name}: two variables have the path {show_name(path)}; a dict's keys may hold no dots")
            found[path] = v
        return found

    def __repr__(self) -> str:
        import math
        n = sum(math.prod(p.shape) for p in self.parameters())
        return f"<{type(self).__name__} {self.name}: {n} parameters>"

    # -- walking ----------------------------------------------------------------------------------------------------------

    def _own(self) -> list[tuple[str, Node]]:
        return [(path, v) for path, v in self._held() if isinstance(v, Node) and v.op.name == "variable"]

    def _children(self) -> Iterator[tuple[str, Layer]]:
        return ((path, v) for path, v in self._held() if isinstance(v, Layer))

    def _held(self) -> Iterator[tuple[str, Any]]:
        """What the attributes hold, and the lists, tuples and dicts in them, by path."""
        stack = [(key, value) for key, value in reversed(vars(self).items()) if key not in _PRIVATE]
        seen: set[int] = set()
        while stack:
            path, value = stack.pop()
            if isinstance(value, (list, tuple, Mapping)) and id(value) not in seen:
                seen.add(id(value))
                items: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
                stack += [(f"{path}.{k}", item) for k, item in reversed(list(items))]
            else:
                yield path, value

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
            state = {id(v) for v in layer._state}
            for key, v in layer._own():
                if id(v) not in seen:
                    seen.add(id(v))
                    found.append((path + key, v, id(v) not in state))
        return found


_PRIVATE = ("_state", "_pending", "_call", "_drops")


def unique_seed() -> int:
    """The number of layers made so far without a key: two such layers of one program differ, two runs do not."""
    return next(_count)
