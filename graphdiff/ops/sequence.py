"""Recurrent layers as users call them: one step (cells) or all steps of a sequence, which are one op each (recurrent)."""
from __future__ import annotations

from typing import Any

from ..dims import unify
from ..dtypes import FLOAT16, FLOAT32, PROMOTE
from ..errors import NodeTypeError, ShapeError
from ..graph.build import make, public
from ..graph.node import Node
from ..specs import format_shape
from .binary import add
from .creation import zeros
from .families import cast, flag, floating
from .linalg import matmul
from .parts import or_zeros, parts
from .recurrent import GRU, LSTM, RNN, gru_gates, gru_shapes, lstm_gates, lstm_shapes, rnn_gates, rnn_shapes


def _together(**given: Any) -> tuple[dict[str, Node | None], Any]:
    """The operands in their common float dtype (float16 as float32), and the dtype of the result."""
    nodes = {k: None if x is None else floating(x) for k, x in given.items()}
    dtype = None
    for x in nodes.values():
        if x is not None:
            dtype = x.dtype if dtype is None else PROMOTE[dtype, x.dtype]
    wide = FLOAT32 if dtype is FLOAT16 else dtype
    return {k: None if x is None else cast(x, wide) for k, x in nodes.items()}, dtype


def _fits(name: str, x: Node | None, shape: tuple[Any, ...]) -> None:
    if x is None:
        return
    if x.ndim != len(shape) or any(unify(a, b) is None for a, b in zip(x.shape, shape, strict=True)):
        raise ShapeError(f"{name} has shape {format_shape(x.shape)}, {format_shape(shape)} is needed")


def _enter(gates: int, steps: int, x: Any, states: dict[str, Any], w: Any, u: Any, biases: dict[str, Any]) -> tuple[Node, dict[str, Node], Any]:
    """The inputs' part of the pre-activations; states, u and further biases in full; the dtype of the result."""
    nodes, dtype = _together(x=x, w=w, u=u, **states, **biases)
    x, w, u = nodes["x"], nodes["w"], nodes["u"]
    if x.ndim != (3 if steps else 2):
        raise ShapeError(f"x has shape {format_shape(x.shape)}, {'[samples, steps, size]' if steps else '[samples, size]'} is needed")
    if u.ndim != 2:
        raise ShapeError(f"u has shape {format_shape(u.shape)}, [size, {f'{gates} size' if gates > 1 else 'size'}] is needed")
    N, H = x.shape[0], u.shape[0]
    _fits("u", u, (H, gates * H))
    _fits("w", w, (x.shape[-1], gates * H))
    for k in biases:
        _fits(k, nodes[k], (gates * H,))
    for k in states:
        _fits(k, nodes[k], (N, H))
        nodes[k] = or_zeros(nodes[k], (N, H), x.dtype)
    z = matmul(x, w)
    if nodes["b"] is not None:
        z = add(z, nodes["b"])
    if nodes.get("b_u", z) is None:
        nodes["b_u"] = zeros((gates * H,), x.dtype)
    return z, nodes, dtype      # type: ignore[return-value]


def _is_relu(activation: Any) -> bool:
    if activation not in ("tanh", "relu"):
        raise NodeTypeError(f"activation is 'tanh' or 'relu', not {activation!r}")
    return bool(activation == "relu")


@public
def rnn_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, *, activation: str = "tanh") -> Node:
    """tanh(x w + h u + b), one step of rnn.

    Shapes: x [N, I], h [N, H] or None for zeros, w [I, H], u [H, H], b [H] -> [N, H]. Dtypes: floats, promoted. Source: Elman 1990.
    """
    with_relu = _is_relu(activation)
    z, k, dtype = _enter(1, 0, x, {"h": h}, w, u, {"b": b})
    return cast(rnn_gates(z, k["h"], k["u"], with_relu), dtype)


@public
def gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, b_u: Any = None) -> Node:
    """One step of gru.

    Shapes: x [N, I], h [N, H] or None for zeros, w [I, 3H], u [H, 3H], b and b_u [3H] -> [N, H]. Dtypes: floats, promoted.
    """
    z, k, dtype = _enter(3, 0, x, {"h": h}, w, u, {"b": b, "b_u": b_u})
    return cast(gru_gates(z, k["h"], k["u"], k["b_u"])[0], dtype)


@public
def lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any = None) -> tuple[Node, Node]:
    """One step of lstm: the new (h, c).

    Shapes: x [N, I], h and c [N, H] or None for zeros, w [I, 4H], u [H, 4H], b [4H] -> [N, H] twice. Dtypes: floats, promoted.
    """
    z, k, dtype = _enter(4, 0, x, {"h": h, "c": c}, w, u, {"b": b})
    h, c = lstm_gates(z, k["h"], k["u"], k["c"])[:2]
    return cast(h, dtype), cast(c, dtype)


@public
def rnn(x: Any, h0: Any, w: Any, u: Any, b: Any = None, *, activation: str = "tanh", reverse: bool = False) -> Node:
    """h of every step, h = tanh(x w + h u + b) (or relu) of the step before; reverse: from the last step to the first.

    Shapes: x [N, T, I], h0 [N, H] or None for zeros, w [I, H], u [H, H], b [H] or None -> [N, T, H]. Dtypes: floats, promoted;
    float16 is computed in float32. Raises ShapeError where sizes differ. Forward mode and second derivatives unroll the steps
    and need T to be an int. Source: Elman 1990.
    """
    with_relu = _is_relu(activation)
    z, k, dtype = _enter(1, 1, x, {"h0": h0}, w, u, {"b": b})
    inputs = (z, k["h0"], k["u"])
    return cast(parts(make(RNN, inputs, (flag(reverse, "reverse"), with_relu)), rnn_shapes(inputs))[0], dtype)


@public
def gru(x: Any, h0: Any, w: Any, u: Any, b: Any = None, b_u: Any = None, *, reverse: bool = False) -> Node:
    """h of every step, h = (1 - z) n + z h of the step before, with r and z = sigmoid(x w + b + h u + b_u) and
    n = tanh(x w + b + r (h u + b_u)); gates in the order r, z, n. reverse: from the last step to the first.

    Shapes: x [N, T, I], h0 [N, H] or None for zeros, w [I, 3H], u [H, 3H], b and b_u [3H] or None -> [N, T, H]. Dtypes: floats,
    promoted; float16 is computed in float32. Raises ShapeError where sizes differ. Forward mode and second derivatives unroll
    the steps and need T to be an int. Source: Cho et al. 2014.
    """
    z, k, dtype = _enter(3, 1, x, {"h0": h0}, w, u, {"b": b, "b_u": b_u})
    inputs = (z, k["h0"], k["u"], k["b_u"])
    return cast(parts(make(GRU, inputs, (flag(reverse, "reverse"),)), gru_shapes(inputs))[0], dtype)


@public
def lstm(x: Any, h0: Any, c0: Any, w: Any, u: Any, b: Any = None, *, reverse: bool = False) -> tuple[Node, Node]:
    """(h, c) of every step, c = f c + i g and h = o tanh(c), with i, f, o = sigmoid and g = tanh of x w + h u + b of the step
    before; gates in the order i, f, g, o. reverse: from the last step to the first.

    Shapes: x [N, T, I], h0 and c0 [N, H] or None for zeros, w [I, 4H], u [H, 4H], b [4H] or None -> [N, T, H] twice. Dtypes:
    floats, promoted; float16 is computed in float32. Raises ShapeError where sizes differ. Forward mode and second derivatives
    unroll the steps and need T to be an int. Source: Hochreiter, Schmidhuber 1997; Gers et al. 2000.
    """
    z, k, dtype = _enter(4, 1, x, {"h0": h0, "c0": c0}, w, u, {"b": b})
    inputs = (z, k["h0"], k["u"], k["c0"])
    h, c, *_ = parts(make(LSTM, inputs, (flag(reverse, "reverse"),)), lstm_shapes(inputs))
    return cast(h, dtype), cast(c, dtype)


__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]
