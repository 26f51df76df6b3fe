"""The layers as functions of nodes: what the layer classes call with their own variables.

Convolution, pooling, normalisation, attention and dropout are gd.conv, gd.max_pool, gd.layer_norm, gd.attention,
gd.dropout ... at top level.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node, public
from ..graph.node import Node
from ..ops.activations import attention
from ..ops.indexing import segment_max, segment_mean, segment_sum, take
from ..ops.linalg import matmul
from ..ops.movement import concatenate, reshape_to, stack, transpose, zeros
from ..ops.unary import relu, sigmoid, tanh
from . import activation as activations

__all__ = ["aggregate", "dense", "gru", "gru_cell", "lstm", "lstm_cell", "multi_head_attention", "rnn", "rnn_cell"]


@public
def dense(x: Any, w: Any, b: Any = None, *, activation: Any = None) -> Node:
    """activation(x w + b): x [.., n_in], w [n_in, n_out], b [n_out]."""
    y = matmul(x, w)
    if b is not None:
        y = y + b
    f = activations.find(activation)
    return y if f is None else f(y)


# -- recurrent ------------------------------------------------------------------------------------------------------------

@public
def rnn_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, *, activation: str = "tanh") -> Node:
    """activation(x w + h u + b), activation "tanh" or "relu"."""
    return _rnn_step(_plus(matmul(x, w), b), as_node(h), as_node(u), activation)


def _rnn_step(xw: Node, h: Node, u: Node, activation: str) -> Node:
    if activation not in ("tanh", "relu"):
        raise NodeTypeError(f"activation is 'tanh' or 'relu', not {activation!r}")
    return (tanh if activation == "tanh" else relu)(xw + matmul(h, u))


@public
def gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, b_u: Any = None) -> Node:
    """r, z = s(..), n = tanh(x w_n + b_n + r (h u_n + b_u_n)), (1 - z) n + z h. Gates side by side: r, z, n."""
    return _gru_step(_plus(matmul(x, w), b), as_node(h), as_node(u), b_u)


def _gru_step(xw: Node, h: Node, u: Node, b_u: Any) -> Node:
    n = h.shape[-1]
    hu = _plus(matmul(h, u), b_u)
    r, z = sigmoid(xw[:, :n] + hu[:, :n]), sigmoid(xw[:, n:2 * n] + hu[:, n:2 * n])
    new = tanh(xw[:, 2 * n:] + r * hu[:, 2 * n:])
    return new + z * (h - new)


@public
def lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any = None) -> tuple[Node, Node]:
    """c = s(f) c + s(i) tanh(g), h = s(o) tanh(c); returns (h, c). Gates side by side: i, f, g, o."""
    return _lstm_step(_plus(matmul(x, w), b), as_node(h), as_node(c), as_node(u))


def _lstm_step(xw: Node, h: Node, c: Node, u: Node) -> tuple[Node, Node]:
    n = h.shape[-1]
    a = xw + matmul(h, u)
    i, f, g, o = sigmoid(a[:, :n]), sigmoid(a[:, n:2 * n]), tanh(a[:, 2 * n:3 * n]), sigmoid(a[:, 3 * n:])
    c = f * c + i * g
    return o * tanh(c), c


def _plus(y: Node, b: Any) -> Node:
    return y if b is None else y + b


def _start(x: Any, h0: Any, u: Any) -> tuple[Node, Any, list[int]]:
    """(input, first state, steps in order), all checked."""
    x, u = as_node(x), as_node(u)
    if x.ndim != 3:
        raise ShapeError(f"x is {x.spec}, [batch, time, size] is needed")
    if not isinstance(x.shape[1], int):
        raise ShapeError(f"the number of steps must be known, not {x.shape[1]}")
    first = zeros((x.shape[0], u.shape[0]), x.dtype) if h0 is None else as_node(h0)
    return x, first, list(range(x.shape[1]))


@public
def rnn(x: Any, h0: Any, w: Any, u: Any, b: Any = None, *, activation: str = "tanh", reverse: bool = False) -> Node:
    """rnn_cell along a sequence: x [batch, time, n_in], h0 [batch, n] or None -> every h [batch, time, n]."""
    x, h, steps = _start(x, h0, u)
    xw, u = _plus(matmul(x, w), b), as_node(u)
    found: dict[int, Node] = {}
    for t in reversed(steps) if reverse else steps:
        h = found[t] = _rnn_step(xw[:, t], h, u, activation)
    return stack([found[t] for t in steps], 1) if steps else zeros((x.shape[0], 0, u.shape[0]), x.dtype)


@public
def gru(x: Any, h0: Any, w: Any, u: Any, b: Any = None, b_u: Any = None, *, reverse: bool = False) -> Node:
    """gru_cell along a sequence: x [batch, time, n_in], h0 [batch, n] or None -> every h [batch, time, n]."""
    x, h, steps = _start(x, h0, u)
    xw, u = _plus(matmul(x, w), b), as_node(u)
    found: dict[int, Node] = {}
    for t in reversed(steps) if reverse else steps:
        h = found[t] = _gru_step(xw[:, t], h, u, b_u)
    return stack([found[t] for t in steps], 1) if steps else zeros((x.shape[0], 0, u.shape[0]), x.dtype)


@public
def lstm(x: Any, h0: Any, c0: Any, w: Any, u: Any, b: Any = None, *, reverse: bool = False) -> tuple[Node, Node]:
    """lstm_cell along a sequence: x [batch, time, n_in], h0 and c0 [batch, n] or None -> every h and c [batch, time, n]."""
    x, h, steps = _start(x, h0, u)
    c = zeros((x.shape[0], as_node(u).shape[0]), x.dtype) if c0 is None else as_node(c0)
    xw, u = _plus(matmul(x, w), b), as_node(u)
    hs: dict[int, Node] = {}
    cs: dict[int, Node] = {}
    for t in reversed(steps) if reverse else steps:
        h, c = hs[t], cs[t] = _lstm_step(xw[:, t], h, c, u)
    if not steps:
        empty = zeros((x.shape[0], 0, u.shape[0]), x.dtype)
        return empty, empty
    return stack([hs[t] for t in steps], 1), stack([cs[t] for t in steps], 1)


# -- attention ------------------------------------------------------------------------------------------------------------

def _heads(x: Node, heads: int) -> Node:
    """[batch, n, d] -> [batch, heads, n, d / heads]."""
    return transpose(reshape_to(x, (x.shape[0], x.shape[1], heads, x.shape[2] // heads)), (0, 2, 1, 3))


@public
def multi_head_attention(q: Any, k: Any, v: Any, heads: int, mask: Any = None, *, causal: bool = False) -> Node:
    """Attention of `heads` equal parts of the vectors side by side: q [batch, m, d], k and v [batch, n, d] -> [batch, m, d].

    mask: as in gd.attention, broadcast to [batch, heads, m, n]; one of three axes has no head axis.
    """
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
