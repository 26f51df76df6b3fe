"""Dense, Dropout, Embedding."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import is_number, outside
from ..errors import DTypeError
from ..graph.build import as_node
from ..graph.node import Node
from ..ops import random
from ..ops.linalg import matmul
from . import activation as activations
from . import checks, init
from . import functional as F
from .init import make
from .layer import Layer


class Dense(Layer):
    """activation(x w + b): x [.., n_in] -> [.., n_out]. w [n_in, n_out], b [n_out] starts at 0."""

    def __init__(self, n_in: int, n_out: int, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None) -> None:
        super().__init__(name)
        self.n_in, self.n_out = checks.size(n_in, "n_in"), checks.size(n_out, "n_out")
        self.activation = activations.find(activation)
        dtype = checks.floating(dtype)
        self.w = self.parameter(make(init, key, (self.n_in, self.n_out), dtype), "w")
        self.b = self.parameter(np.zeros(self.n_out, dtype), "b") if checks.flag(bias, "bias") else None

    def forward(self, x: Node, training: bool) -> Node:
        checks.features(x, -1, self.n_in, self.name)
        y = matmul(x, self.w)
        if self.b is not None:
            y = y + self.b
        return y if self.activation is None else self.activation(y)


class Dropout(Layer):
    """While training, elements are 0 with probability p and the rest divided by 1 - p; otherwise x itself.

    The mask comes from the key, the number of training steps (a counter in `updates()`) and the place among the dropouts of the
    outermost layer that is called, so it is the same for any number of threads, and another at every step, when the function
    has `layer.updates()` among its updates. A network that is called again before its `updates()` are asked for (two views of a
    batch in one step) drops others each time. Calls outside of any layer are each the first in their place: two dropouts of one
    key then drop the same elements; give each a key of its own. Source: Srivastava et al. 2014.
    """

    def __init__(self, p: float = 0.5, *, key: Any = None, name: str | None = None) -> None:
        super().__init__(name)
        if not is_number(p) or not 0 <= p <= 1:
            raise outside(p, f"p is a number from 0 to 1, not {p!r}")
        self.p = float(p)
        self.key = init.as_key(key)
        if self.key.op.name == "variable":      # saved, but no parameter
            self._state.append(self.key)
        self.counter = self.state(np.array(0, np.int64), "counter")

    def forward(self, x: Node, training: bool) -> Node:
        if not training or self.p == 0:
            return x
        self.later(self.counter, self.counter + 1)
        key = random.fold_in(self.key, self.counter)
        place = self.place()
        return random.dropout(x, self.p, random.fold_in(key, place) if place else key)


class Embedding(Layer):
    """Rows of a table: ids [..] integers -> [.., n_out]. An id outside 0 .. n - 1 is an error when it runs."""

    def __init__(self, n: int, n_out: int, *, init: Any = "normal", key: Any = None, dtype: Any = "float32", name: str | None = None) -> None:
        super().__init__(name)
        self.n, self.n_out = checks.size(n, "n"), checks.size(n_out, "n_out")
        self.w = self.parameter(make(init, key, (self.n, self.n_out), checks.floating(dtype)), "w")

    def forward(self, x: Any, training: bool) -> Node:
        ids = as_node(x)
        if ids.dtype.kind not in "iu":
            raise DTypeError(f"{self.name}: ids are {ids.dtype}, integers are needed")
        return F.embedding(ids, self.w)


