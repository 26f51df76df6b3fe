"""A layer of a graph network: edges, nodes and a global vector are updated in turn."""
from __future__ import annotations

from functools import partial
from typing import Any

from ..dims import unify
from ..errors import DTypeError, ShapeError
from ..graph.build import as_node
from ..graph.node import Node
from ..ops.indexing import from_zero
from . import checks, init
from . import functional as F
from .dense import Dense
from .layer import Layer


class GraphLayer(Layer):
    """e' = f(e, sender, receiver, u), v' = g(v, e' gathered at v, u), u' = h(u, e' and v' of the whole graph), each one Dense.

    Call: layer(v, senders, receivers, e=None, u=None) -> (v', e', u'), u' None without `n_global`. v [nodes, n_node],
    senders and receivers [edges] integers, e [edges, n_edge], u [n_global]. how: "sum", "mean" or "max" gathers.
    Source: Battaglia et al. 2018.
    """

    def __init__(self, n_node: int, n_out: int, activation: Any = "relu", bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, n_edge: int = 0, n_global: int = 0, how: str = "sum") -> None:
        super().__init__(name)
        F.aggregation(how)
        self.how = how
        self.n_node, self.n_out = checks.size(n_node, "n_node"), checks.size(n_out, "n_out")
        self.n_edge, self.n_global = checks.size(n_edge, "n_edge", 0), checks.size(n_global, "n_global", 0)
        keys = _split(key, 3)
        facts = (activation, bias, init)
        self.edge = Dense(self.n_edge + 2 * self.n_node + self.n_global, self.n_out, *facts, keys[0], dtype, "edge")
        self.node = Dense(self.n_node + self.n_out + self.n_global, self.n_out, *facts, keys[1], dtype, "node")
        self.globals = Dense(self.n_global + 2 * self.n_out, self.n_out, *facts, keys[2], dtype, "global") if self.n_global else None

    def forward(self, x: Any, senders: Any, receivers: Any, e: Any = None, u: Any = None, *, training: bool) -> tuple[Node, Node, Any]:
        v, senders, receivers = as_node(x), as_node(senders), as_node(receivers)
        if v.ndim != 2:
            raise ShapeError(f"{self.name}: nodes are {v.spec}, [nodes, {self.n_node}] is needed")
        checks.features(v, 1, self.n_node, self.name)
        for name, index in (("senders", senders), ("receivers", receivers)):
            if index.dtype.kind not in "iu":
                raise DTypeError(f"{self.name}: {name} are {index.dtype}, integers are needed")
            if index.ndim != 1:
                raise ShapeError(f"{self.name}: {name} are {index.spec}, one axis is needed")
        if unify(senders.shape[0], receivers.shape[0]) is None:
            raise ShapeError(f"{self.name}: there are {senders.shape[0]} senders and {receivers.shape[0]} receivers")
        senders, receivers = from_zero(senders), from_zero(receivers)
        if (e is None) != (self.n_edge == 0) or (u is None) != (self.n_global == 0):
            raise ShapeError(f"{self.name}: edges have {self.n_edge} features and the graph {self.n_global}; e or u is missing or too much")
        if e is not None:
            e = as_node(e)
            if e.ndim != 2 or unify(e.shape[0], senders.shape[0]) is None:
                raise ShapeError(f"{self.name}: e is {e.spec}, [{senders.shape[0]}, {self.n_edge}] is needed")
            checks.features(e, 1, self.n_edge, self.name)
        if u is not None:
            u = as_node(u)
            if u.ndim != 1 or unify(u.shape[0], self.n_global) is None:
                raise ShapeError(f"{self.name}: u is {u.spec}, [{self.n_global}] is needed")
        whole = None if self.globals is None else partial(self.globals, training=training)
        return F.graph_layer(v, senders, receivers, partial(self.edge, training=training), partial(self.node, training=training), whole,
                             e=e, u=u, how=self.how)


_split = init.split
