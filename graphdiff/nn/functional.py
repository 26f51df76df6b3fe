"""The layers as functions of nodes: what the layer classes call with their own variables.

Convolution, pooling, normalisation, attention and dropout are gd.conv, gd.max_pool, gd.layer_norm, gd.attention,
gd.dropout ... at top level.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node, composed, public
from ..graph.node import Node
from ..ops.attention import attention
from ..ops.creation import zeros
from ..ops.indexing import from_zero, segment_max, segment_mean, segment_sum, take
from ..ops.joining import concatenate
from ..ops.linalg import matmul
from ..ops.moments import mean
from ..ops.movement import broadcast_to, expand_dims, reshape_to, transpose
from ..ops.reduction import max as max_of
from ..ops.reduction import sum
from ..ops.sequence import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from . import activation as activations
from . import checks

__all__ = ["aggregate", "dense", "embedding", "graph_layer", "gru", "gru_cell", "lstm", "lstm_cell", "multi_head_attention", "rnn", "rnn_cell"]

# how to gather: at segments, and over a whole axis
AGGREGATES: dict[str, tuple[Any, Any]] = {"sum": (segment_sum, sum), "mean": (segment_mean, mean), "max": (segment_max, max_of)}


@public
def dense(x: Any, w: Any, b: Any = None, *, activation: Any = None) -> Node:
    """activation(x w + b): x [.., n_in], w [n_in, n_out], b [n_out]."""
    y = matmul(x, w)
    if b is not None:
        y = y + b
    f = activations.find(activation)
    return y if f is None else f(y)


# -- attention ------------------------------------------------------------------------------------------------------------

def _heads(x: Node, heads: int) -> Node:
    """[batch, n, d] -> [batch, heads, n, d / heads]."""
    return transpose(reshape_to(x, (x.shape[0], x.shape[1], heads, x.shape[2] // heads)), (0, 2, 1, 3))


@composed
def multi_head_attention(q: Any, k: Any, v: Any, heads: int, mask: Any = None, *, causal: bool = False) -> Node:
    """Attention of `heads` equal parts of the vectors side by side: q [batch, m, d], k and v [batch, n, d] -> [batch, m, d].

    mask: as in gd.attention, broadcast to [batch, heads, m, n]; one of three axes has no head axis.
    """
    heads = checks.size(heads, "heads")
    q, k, v = as_node(q), as_node(k), as_node(v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3:
            raise ShapeError(f"{name} is {x.spec}, [batch, length, size] is needed")
        if x.shape[2] % heads != 0:
            raise ShapeError(f"{name} has vectors of {x.shape[2]} numbers, which {heads} heads do not divide")
    if mask is not None:
        mask = as_node(mask)
        if mask.ndim == 3:
            mask = reshape_to(mask, (mask.shape[0], 1, mask.shape[1], mask.shape[2]))
    y = attention(_heads(q, heads), _heads(k, heads), _heads(v, heads), mask, causal=causal)
    y = transpose(y, (0, 2, 1, 3))
    return reshape_to(y, (y.shape[0], y.shape[1], y.shape[2] * y.shape[3]))


# -- graphs ---------------------------------------------------------------------------------------------------------------

def aggregation(how: Any) -> tuple[Any, Any]:
    """The two functions of one way to gather, or an error that lists the ways."""
    if not isinstance(how, str) or how not in AGGREGATES:
        raise NodeTypeError(f"how is one of {', '.join(AGGREGATES)}, not {how!r}")
    return AGGREGATES[how]


@public
def aggregate(messages: Any, receivers: Any, n: int, how: str = "sum") -> Node:
    """Messages gathered at their receivers: [edges, d], integers [edges] -> [n, d] by "sum", "mean" or "max".

    A node without messages gets zeros.
    """
    at_segments, _ = aggregation(how)
    messages, receivers = as_node(messages), as_node(receivers)
    y = at_segments(messages, receivers, n)
    if how == "max":
        from ..ops.binary import greater, where
        from ..ops.creation import ones_like
        from ..ops.movement import expand_dims
        has = greater(segment_sum(ones_like(receivers), receivers, n), 0)
        y = where(expand_dims(has, 1), y, 0.0)
    return y


@partial(composed, calls_back=True)
def graph_layer(v: Any, senders: Any, receivers: Any, edge: Callable[[Node], Node], node: Callable[[Node], Node],
                whole: Callable[[Node], Node] | None = None, *, e: Any = None, u: Any = None, how: str = "sum") -> tuple[Node, Node, Any]:
    """(v', e', u'): e' = edge(e, v of the sender, v of the receiver, u), v' = node(v, e' gathered at v, u), u' = whole(u, e', v').

    v [nodes, n], senders and receivers [edges], e [edges, m], u [k]; edge, node and whole are functions of rows of features,
    such as layers; whole None: u' is None. how: "sum", "mean" or "max". Source: Battaglia et al. 2018.
    """
    v = as_node(v)
    parts = [take(v, senders, axis=0), take(v, receivers, axis=0)]
    if e is not None:
        parts.insert(0, as_node(e))
    about = [v]
    if u is not None:
        u = as_node(u)
        parts.append(_repeated(u, parts[0].shape[0]))
        about.append(_repeated(u, v.shape[0]))
    messages = edge(concatenate(parts, -1))
    about.insert(1, aggregate(messages, receivers, v.shape[0], how))
    new = node(concatenate(about, -1))
    if whole is None:
        return new, messages, None
    return new, messages, whole(concatenate([*([] if u is None else [u]), _pooled(messages, how), _pooled(new, how)], -1))


def _repeated(u: Node, n: Any) -> Node:
    return broadcast_to(expand_dims(u, 0), (n, u.shape[0]))


def _pooled(x: Node, how: str) -> Node:
    """[n, d] -> [d]; zeros where there are none, as for a node without messages."""
    if isinstance(x.shape[0], int) and x.shape[0] > 0:
        return aggregation(how)[1](x, axis=0)
    return aggregate(x, zeros((x.shape[0],), "int64"), 1, how)[0]


@public
def embedding(ids: Any, w: Any) -> Node:
    """Rows of w [n, n_out] for ids [..] of 0 .. n - 1 -> [.., n_out]. An id outside is an error when it runs."""
    return take(w, from_zero(as_node(ids)), axis=0)
