"""Multi-head attention with learned projections."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph.build import as_node
from ..graph.node import Node
from ..ops.linalg import matmul
from . import activation as activations
from . import checks
from . import functional as F
from .init import make, split
from .layer import Layer


class MultiHeadAttention(Layer):
    """Projections of queries, keys and values, attention in `heads` parts, projection of the result.

    Call: layer(x) for self-attention; layer(x, context) for keys and values from elsewhere; mask and causal as in
    gd.attention. x [batch, m, n] -> [batch, m, n]. Long sequences never make the m x m matrix of weights when no mask is a
    variable of the graph. Source: Vaswani et al. 2017.
    """

    def __init__(self, n: int, heads: int, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, n_context: int | None = None) -> None:
        super().__init__(name)
        self.n, self.heads = checks.size(n, "n"), checks.size(heads, "heads")
        if self.n % self.heads:
            raise ShapeError(f"{heads} heads do not divide vectors of {n} numbers")
        source = self.n if n_context is None else checks.size(n_context, "n_context")
        self.n_context = source
        self.activation = activations.find(activation)
        dtype = checks.floating(dtype)
        keys = split(key, 4)
        for part, n_in, k in (("q", self.n, keys[0]), ("k", source, keys[1]), ("v", source, keys[2]), ("o", self.n, keys[3])):
            setattr(self, f"w_{part}", self.parameter(make(init, k, (n_in, self.n), dtype), f"w_{part}"))
            setattr(self, f"b_{part}", self.parameter(np.zeros(self.n, dtype), f"b_{part}") if checks.flag(bias, "bias") else None)

    def _project(self, x: Node, part: str) -> Node:
        y = matmul(x, getattr(self, f"w_{part}"))
        b = getattr(self, f"b_{part}")
        return y if b is None else y + b

    def forward(self, x: Node, context: Any = None, mask: Any = None, *, causal: bool = False, training: bool) -> Node:
        x = as_node(x)
        if x.ndim != 3:
            raise ShapeError(f"{self.name}: the input is {x.spec}, [batch, length, {self.n}] is needed")
        checks.features(x, -1, self.n, self.name)
        source = x if context is None else as_node(context)
        checks.features(source, -1, self.n_context, self.name, "input" if source is x else "context")
        y = F.multi_head_attention(self._project(x, "q"), self._project(source, "k"), self._project(source, "v"), self.heads, mask,
                                   causal=causal)
        y = self._project(y, "o")
        return y if self.activation is None else self.activation(y)
