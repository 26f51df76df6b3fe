"""What all optimisers share: parameters and groups, step count, learning rates, clipping, state.

A method (methods.py) is one function: from a parameter, its gradient and its state to the new values.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..diff.reverse import gradients_of
from ..dtypes import FLOAT16, FLOAT32, FLOAT64, is_number, outside
from ..errors import FormatError, GradientError, NodeTypeError, ShapeError, show_name
from ..graph.build import as_node, placed, public
from ..graph.node import Node
from ..graph.state import variable
from ..ops.families import cast
from ..specs import format_shape
from .clip import clipped, positive


class Optimizer:
    """Base of the methods. `updates` gives what gd.function(updates=...) takes.

    learning_rate: a number, a scalar node (such as an input), or a schedule (a function of the step node).
    weight_decay: adds weight_decay * w to each gradient (the derivative of an L2 term); AdamW decays apart from the gradient.
    clip_norm, clip_value: clip_by_norm over all gradients of a group, clip_by_value; value first.
    """

    slots: tuple[str, ...] = ()      # names of the arrays of a parameter's shape that the method keeps

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = placed(cls.__init__)  # type: ignore[method-assign]

    @placed
    def __init__(self, learning_rate: Any, *, weight_decay: float = 0.0, clip_norm: Any = None, clip_value: Any = None,
                 **unknown: Any) -> None:
        if unknown:
            raise NodeTypeError(f"there is no option {show_name(next(iter(unknown)))!r}")
        self.learning_rate = _rate(learning_rate)
        self.weight_decay = _decay(weight_decay)
        self.clip_norm, self.clip_value = positive(clip_norm, "clip_norm"), positive(clip_value, "clip_value")
        self.step = variable(np.array(0, np.int64), "step")
        self._slots: dict[Node, dict[str, Node]] = {}      # by parameter, in the order they were met

    # -- one step ---------------------------------------------------------------------------------------------------------

    @public
    def updates(self, loss: Node | None, parameters: Any, *, gradients: Sequence[Node] | None = None) -> dict[Node, Node]:
        """New values of the parameters and of the optimiser's own state, for gd.function(updates=...).

        parameters: a list of variables, or of groups, each a dict with "parameters" and, where they differ,
        "learning_rate", "weight_decay", "clip_norm" and "clip_value". gradients: given ones instead of those of the loss,
        in the order of all parameters. Raises GradientError, naming it, when the loss does not depend on a parameter.
        """
        groups = _groups(parameters)
        every = [p for g in groups for p in g["parameters"]]
        if gradients is None:
            if loss is None:
                raise NodeTypeError("a loss is needed, or gradients=")
            if not isinstance(loss, Node):
                raise NodeTypeError(f"the loss is a node, not {type(loss).__name__}")
            if loss.shape != ():
                raise GradientError(f"the loss has shape {format_shape(loss.shape)}, one number is needed\nhint: gd.mean(loss) or gd.sum(loss)")
            gradients = gradients_of(loss, every, "updates", "leave it out of the parameters")
        if len(gradients) != len(every):
            raise ShapeError(f"{len(gradients)} gradients for {len(every)} parameters")
        gradients = [_gradient(g, p) for g, p in zip(gradients, every, strict=True)]
        new: dict[Node, Node] = {}
        t = self.step + 1      # the number of this step, from 1
        place = 0
        for group in groups:
            mine = group["parameters"]
            gs = list(gradients[place:place + len(mine)])
            place += len(mine)
            decay = _decay(group.get("weight_decay", self.weight_decay))
            by_norm, by_value = (positive(group.get(key, mine), key) for key, mine in (("clip_norm", self.clip_norm), ("clip_value", self.clip_value)))
            gs = list(clipped(gs, by_norm, by_value))
            rate = self._rate_node(_rate(group.get("learning_rate", self.learning_rate)))
            for w, g in zip(mine, gs, strict=True):
                x, g = cast(w, _wide(w)), cast(g, _wide(w))
                if decay and not self.decoupled:
                    g = g + decay * x
                state = self._state(w)
                value, changed = self.rule(x, g, state, _as(rate, x), t)
                if decay and self.decoupled:
                    value = value - _as(rate, x) * (decay * x)
                new[w] = cast(value, w.dtype)
                for name, node in changed.items():
                    new[state[name]] = node
        new.update(self.shared(t))
        new[self.step] = t
        return new

    decoupled = False

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        """(new value of w, new values of its state) at step t, which counts from 1."""
        raise NotImplementedError

    def shared(self, t: Node) -> dict[Node, Node]:
        """New values of state that all parameters share."""
        return {}

    def _rate_node(self, rate: Any) -> Any:
        return _rate(rate(self.step), "what the schedule gives") if callable(rate) and not isinstance(rate, Node) else rate

    def _state(self, w: Node) -> dict[str, Node]:
        state = self._slots.get(w)
        if state is None:
            zeros = np.zeros(w.shape, _wide(w))
            state = self._slots[w] = {name: variable(zeros, f"{w.name or 'parameter'}.{name}") for name in self.slots}
        return state

    # -- state ------------------------------------------------------------------------------------------------------------

    def _named(self) -> dict[str, Node]:
        named = {"step": self.step}
        for i, (w, state) in enumerate(self._slots.items()):
            for name, v in state.items():
                named[f"{i}.{w.name or 'parameter'}.{name}"] = v
        return named

    def state(self) -> dict[str, Any]:
        """Copies of everything the optimiser remembers, by name: for saving. Parameters are the layers' own."""
        return {name: np.array(v.value) for name, v in self._named().items()}

    @public
    def load_state(self, arrays: Mapping[str, Any]) -> None:
        """Put a saved state back, after `updates` has been called with the same parameters. All or nothing: FormatError when
        names or shapes differ."""
        named = self._named()
        if set(named) != set(arrays):
            odd = sorted(set(named) ^ set(arrays))[:3]
            raise FormatError(f"this state belongs to other parameters; it differs at {', '.join(show_name(str(n)) for n in odd)}")
        values = {name: np.asarray(arrays[name]) for name in named}
        for name, v in named.items():
            if values[name].shape != v.shape or values[name].dtype != v.dtype:
                raise FormatError(f"{show_name(name)} is {values[name].dtype}{list(values[name].shape)}, "
                                  f"{v.dtype}{list(v.shape)} is needed")
        for name, v in named.items():
            v._attrs[0].assign(values[name])


def _groups(parameters: Any) -> list[dict[str, Any]]:
    if not isinstance(parameters, (Node, Mapping, Iterable)):
        raise NodeTypeError(f"a list of variables is needed, such as layer.parameters(), not {type(parameters).__name__}")
    items = [parameters] if isinstance(parameters, (Node, Mapping)) else list(parameters)
    groups: list[dict[str, Any]] = []
    plain: list[Node] = []
    for item in items:
        if isinstance(item, Mapping):
            known = {"parameters", "learning_rate", "weight_decay", "clip_norm", "clip_value"}
            odd = set(item) - known
            if odd or "parameters" not in item:
                raise NodeTypeError(f"a group has \"parameters\" and some of {sorted(known - {'parameters'})}, not {sorted(item)}")
            ps = item["parameters"]
            groups.append({**item, "parameters": [ps] if isinstance(ps, Node) else list(ps)})
        else:
            plain.append(item)
    if plain or not groups:
        groups.insert(0, {"parameters": plain})
    seen: set[int] = set()
    for group in groups:
        for p in group["parameters"]:
            if not isinstance(p, Node) or p.op.name != "variable":
                raise NodeTypeError(f"a parameter is a variable, not {p!r}")
            if p.dtype.kind != "f":
                raise NodeTypeError(f"{p.label} is {p.dtype}; parameters are floats")
            if id(p) in seen:
                raise ShapeError(f"{p.label} is given twice")
            seen.add(id(p))
    if not seen:
        raise ShapeError("there are no parameters")
    return groups


def _as(rate: Any, w: Node) -> Any:
    """A rate in the parameter's dtype; numbers are weak anyway."""
    return cast(rate, w.dtype) if isinstance(rate, Node) else rate


def _wide(w: Node) -> Any:
    """The dtype of a parameter's step and state: squares of float16 gradients would overflow, and eps is 0 there."""
    return FLOAT32 if w.dtype is FLOAT16 else w.dtype


def _gradient(g: Any, p: Node) -> Node:
    if g is None:
        raise GradientError(f"{p.label} has no gradient: None was given")
    g = as_node(g)
    if g.shape != p.shape:
        raise ShapeError(f"the gradient of {p.label} is {g.spec}, {format_shape(p.shape)} is needed")
    return g


def _rate(rate: Any, what: str = "learning_rate") -> Any:
    if isinstance(rate, Node):
        if rate.shape != ():
            raise ShapeError(f"{what}: a scalar node is needed, not {rate.spec}")
        return rate
    if callable(rate):
        return rate
    if not is_number(rate) or not 0 <= rate < float("inf"):
        raise outside(rate, f"{what} is a number, at least 0, a node or a schedule, not {rate!r}")
    return float(rate)


def _decay(value: Any) -> float:
    if not is_number(value) or not 0 <= value < float("inf"):
        raise outside(value, f"weight_decay is a number, at least 0, not {value!r}")
    return float(value)


def fraction(value: Any, what: str) -> float:
    """A number in [0, 1), such as a decay rate."""
    if not is_number(value) or not 0 <= value < 1:
        raise outside(value, f"{what} is a number from 0 to below 1, not {value!r}")
    return float(value)


def not_negative(value: Any, what: str) -> float:
    """A finite number of at least 0, such as eps."""
    if not is_number(value) or not 0 <= value < float("inf"):
        raise outside(value, f"{what} is a finite number, at least 0, not {value!r}")
    return float(value)


def steps_as_float(t: Node) -> Node:
    return cast(as_node(t), FLOAT64)


