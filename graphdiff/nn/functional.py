"""The layers as functions of nodes: what the layer classes call with their own variables.

Convolution, pooling, normalisation, attention and dropout are gd.conv, gd.max_pool, gd.layer_norm, gd.attention,
gd.dropout ... at top level.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node, composed, public
from ..graph.node import Node
from ..ops.attention import attention
from ..ops.indexing import segment_max, segment_mean, segment_sum, take
from ..ops.linalg import matmul
from ..ops.movement import concatenate, reshape_to, transpose
from ..ops.sequence import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from . import activation as activations
from . import checks

__all__ = ["aggregate", "dense", "gru", "gru_cell", "lstm", "lstm_cell", "multi_head_attention", "rnn", "rnn_cell"]


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

_AGGREGATES = {"sum": segment_sum, "mean": segment_mean, "max": segment_max}


@public
def aggregate(messages: Any, receivers: Any, n: int, how: str = "sum") -> Node:
    """Messages gathered at their receivers: [edges, d], integers [edges] -> [n, d] by "sum", "mean" or "max".

    A node without messages gets zeros.
    """
    if how not in _AGGREGATES:
        raise NodeTypeError(f"how is one of {', '.join(_AGGREGATES)}, not {how!r}")
    messages, receivers = as_node(messages), as_node(receivers)
    y = _AGGREGATES[how](messages, receivers, n)
    if how == "max":
        from ..ops.binary import greater, where
        from ..ops.movement import expand_dims, ones_like
        has = greater(segment_sum(ones_like(receivers), receivers, n), 0)
        y = where(expand_dims(has, 1), y, 0.0)
    return y


def gathered(nodes: Node, senders: Any, receivers: Any, edges: Node | None) -> Sequence[Node]:
    """Per edge: its own features, those of its sender and of its receiver."""
    parts = [take(nodes, senders, axis=0), take(nodes, receivers, axis=0)]
    return parts if edges is None else [edges, *parts]


def joined(parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else concatenate(list(parts), -1)
