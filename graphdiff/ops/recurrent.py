"""Recurrent layers: all steps of a sequence are one op, with kernels of its own forward and backward.

Each op takes the inputs' part z = x w + b of the pre-activations, made outside by one product for all steps, and walks over
time; its gradient op walks back and gives the cotangent of z, from which those of x, w, b and u follow by one product or
sum each. Their second derivatives and forward mode are those of the unrolled cells (`expand`), which need a known number of steps.
Results are flat (see parts): states, then the gates that are kept for the way back, then the last state. A gradient op takes them as
operand y; as a function it is one of the other operands, and so are its reference, which makes y again, and its derivatives. What it gives
lies like the gates and the last state: cotangents may take their place (lower/inside).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import GradientError
from ..graph.build import make
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import check_shape, nelements
from .binary import add, greater, multiply, where
from .creation import zeros
from .joining import concatenate, stack
from .linalg import matmul
from .movement import cut, matrix_transpose, reshape_to
from .parts import cotangents, flat, flat_size, or_zeros, parts
from .reduction import sum_axes
from .unary import relu, sigmoid, square, tanh

# -- cells: one step, of ordinary ops --------------------------------------------------------------------------------


def _split(p: Node, n: int) -> list[Node]:
    """The n gates of pre-activations [N, n H]."""
    H = p.shape[-1] // n
    return [cut(p, p.ndim - 1, k * H, H) for k in range(n)]


def rnn_gates(z: Node, h: Node, u: Node, with_relu: bool) -> Node:
    p = add(z, matmul(h, u))
    return relu(p) if with_relu else tanh(p)


def gru_gates(z: Node, h: Node, u: Node, b_u: Node) -> tuple[Node, ...]:
    """h, r, z, n and the third block of h u + b_u."""
    zr, zz, zn = _split(z, 3)
    sr, sz, q = _split(add(matmul(h, u), b_u), 3)
    r, k = sigmoid(add(zr, sr)), sigmoid(add(zz, sz))
    n = tanh(add(zn, multiply(r, q)))
    return add(n, multiply(k, h - n)), r, k, n, q


def lstm_gates(z: Node, h: Node, u: Node, c: Node) -> tuple[Node, ...]:
    """h, c, i, f, g, o."""
    i, f, g, o = _split(add(z, matmul(h, u)), 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = add(multiply(f, c), multiply(i, g))
    return multiply(o, tanh(c)), c, i, f, g, o


# -- unrolling -------------------------------------------------------------------------------------------------------

def _order(z: Node, reverse: bool, what: str) -> list[int]:
    T = z.shape[1]
    if not isinstance(T, int):
        raise GradientError(f"forward mode and second derivatives of {what} unroll its steps, and their number {T} is not known"
                            "\nhint: give the time axis as an int")
    return list(range(T - 1, -1, -1) if reverse else range(T))


def _step(x: Node, t: int) -> Node:
    """x[:, t]."""
    return reshape_to(cut(x, 1, t, 1), (x.shape[0], x.shape[2]))


def _along_time(steps: list[Any], empty: tuple[Any, ...], dtype: Any) -> Node:
    return stack(steps, 1) if steps else zeros(empty, dtype)


Step = Callable[..., tuple[Node, ...]]


def _unrolled(z: Node, state: Node, times: list[int], step: Step) -> list[tuple[Node, ...]]:
    """step(z of t, h, c) at every time; element t of the result is what it gave: h first."""
    result: list[Any] = [()] * len(times)
    h, c = state, None
    for t in times:
        result[t] = step(_step(z, t), h, c)
        h, c = result[t][0], result[t][1] if len(result[t]) > 1 else None
    return result


# -- what the three have in common -----------------------------------------------------------------------------------

def _sizes(z: Any, u: Any) -> tuple[Any, Any, Any, Any]:
    """N, T, H and the columns of all gates."""
    return z.shape[0], z.shape[1], u.shape[0], z.shape[2]


def _before(h0: Node, h: Node, reverse: bool) -> Node:
    """[N, T, H]: the state each step started from."""
    T = h.shape[1]
    start = reshape_to(h0, (h0.shape[0], 1, h0.shape[1]))
    if isinstance(T, int) and T > 0:
        return concatenate([cut(h, 1, 1, T - 1), start] if reverse else [start, cut(h, 1, 0, T - 1)], 1)
    return cut(concatenate([h, start], 1), 1, 1, T) if reverse else cut(concatenate([start, h], 1), 1, 0, T)


def _du(before: Node, d: Node) -> Node:
    """The sum over samples and steps of before^T d."""
    rows = before.shape[0] * before.shape[1]
    return matmul(matrix_transpose(reshape_to(before, (rows, before.shape[2]))), reshape_to(d, (rows, d.shape[2])))


def _lower_back(kernel: str, state: int, others: Sequence[int]) -> Callable[..., Any]:
    """Of y the kernel takes the states number `state`, and what was kept. That is where cotangents go if nobody needs it any more."""
    def rule(ctx: Any, node: Node) -> Any:
        out = ctx.new(node.shape, node.dtype)
        y = ctx.view(node.inputs[1])
        states, kept = nelements(node.inputs[0].shape), node.shape[0]
        views = [y.slice((start,), (1,), (size,)) for start, size in ((state * states, states), (y.shape[0] - kept, kept))]
        ctx.emit(kernel, out, [ctx.view(node.inputs[0]), *views, *[ctx.view(node.inputs[k]) for k in others]], [int(a) for a in node._attrs])
        return out
    return rule


def _lower(kernel: str, operands: int) -> Callable[..., Any]:
    """The kernel takes the first `operands` inputs; others are there for the derivative."""
    def rule(ctx: Any, node: Node) -> Any:
        out = ctx.new(node.shape, node.dtype)
        ctx.emit(kernel, out, [ctx.view(x) for x in node.inputs[:operands]], [int(a) for a in node._attrs])
        return out
    return rule


def _flat_infer(shapes: Callable[..., Any]) -> Callable[..., Any]:
    def infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
        shape = (flat_size(shapes(inputs)),)
        return check_shape(shape, inputs[0].dtype), inputs[0].dtype
    return infer


def _cost(times: int) -> Callable[[Node], Any]:
    """Two operations a product of h and u (backward: of gates and u)."""
    def cost(node: Node) -> Any:
        h = next(x for x in node.inputs if x.ndim == 3)
        u = node.inputs[2]
        return 2 * times * h.shape[0] * h.shape[1] * u.shape[0] * u.shape[1]
    return cost


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _times(n: int, reverse: bool) -> Any:
    return range(n - 1, -1, -1) if reverse else range(n)


def _flatten(*xs: Any) -> Any:
    return np.concatenate([np.ravel(x) for x in xs])


def _unflatten(y: Any, *shapes: Any) -> list[Any]:
    ends = np.cumsum([int(np.prod(s)) for s in shapes])
    return [part.reshape(s) for part, s in zip(np.split(y, ends)[:-1], shapes, strict=True)]


# -- RNN -------------------------------------------------------------------------------------------------------------

def rnn_shapes(inputs: Any) -> Any:
    N, T, H, _ = _sizes(inputs[0], inputs[2])
    return ((N, T, H),)


def _rnn_grad_shapes(inputs: Any) -> Any:
    N, T, H = inputs[0].shape
    return (N, T, H), (N, H)


def _rnn_reference(z: Any, h0: Any, u: Any, *, reverse: bool, relu: bool) -> Any:
    h, out = h0, np.zeros(z.shape, np.result_type(z, h0, u))
    for t in _times(z.shape[1], reverse):
        p = z[:, t] + h @ u
        h = out[:, t] = np.where((np.real(p) > 0) | (p != p), p, 0) if relu else np.tanh(p)
    return out.ravel()


def _rnn_grad_reference(gh: Any, y: Any, u: Any, z: Any, h0: Any, *, reverse: bool, relu: bool) -> Any:
    N, T, H = gh.shape
    h = _rnn_reference(z, h0, u, reverse=reverse, relu=relu).reshape(N, T, H)
    dz = np.zeros(h.shape, np.result_type(gh, z, h0, u))
    dh = np.zeros((N, H), dz.dtype)
    for t in _times(T, not reverse):
        dh = dh + gh[:, t]
        dz[:, t] = np.where(np.real(h[:, t]) > 0, dh, 0) if relu else dh * (1 - h[:, t] ** 2)
        dh = dz[:, t] @ u.T
    return _flatten(dz, dh)


def _rnn_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    z, h0, u = inputs
    steps = _unrolled(z, h0, _order(z, attrs[0], "rnn"), lambda zt, h, c: (rnn_gates(zt, h, u, attrs[1]),))
    return flat([_along_time([s[0] for s in steps], z.shape, z.dtype)])


def _rnn_grad_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    gh, _, u, z, h0 = inputs
    order = _order(z, attrs[0], "rnn")
    steps = _unrolled(z, h0, order, lambda zt, h, c: (rnn_gates(zt, h, u, attrs[1]),))
    dz: list[Any] = [None] * len(order)
    dh = zeros(h0.shape, h0.dtype)
    for t in reversed(order):
        dh, h = dh + _step(gh, t), steps[t][0]
        dz[t] = where(greater(h, 0.0), dh, 0.0) if attrs[1] else dh * (1.0 - square(h))
        dh = matmul(dz[t], matrix_transpose(u))
    return flat([_along_time(dz, z.shape, z.dtype), dh])


def _rnn_vjp(g: Node, node: Node, needs: Any) -> Any:
    z, h0, u = node.inputs
    gh = or_zeros(cotangents(g, rnn_shapes(node.inputs))[0], z.shape, z.dtype)
    dz, dh0 = parts(make(RNN_GRAD, (gh, node, u, z, h0), node._attrs), _rnn_grad_shapes((gh,)))
    h = parts(node, rnn_shapes(node.inputs))[0]
    return dz, dh0, _du(_before(h0, h, node._attrs[0]), dz) if needs[2] else None


RNN = register(OpDef("rnn", "h = tanh(z + h u) from step to step, z x, the first h y, u z", _flat_infer(rnn_shapes), _rnn_reference,
                     attr_names=("reverse", "relu"), arity=3, vjp=_rnn_vjp, expand=_rnn_expand, lower=_lower("rnn", 3), cost=_cost(1)))
RNN_GRAD = register(OpDef("rnn_grad", "the cotangents of rnn's z and first h", _flat_infer(_rnn_grad_shapes), _rnn_grad_reference,
                          attr_names=("reverse", "relu"), arity=5, expand=_rnn_grad_expand, lower=_lower("rnn_grad", 3), cost=_cost(1)))


# -- GRU -------------------------------------------------------------------------------------------------------------

def gru_shapes(inputs: Any) -> Any:
    N, T, H, _ = _sizes(inputs[0], inputs[2])
    return (N, T, H), (N, T, 4 * H), (N, H)


def _gru_grad_shapes(inputs: Any) -> Any:
    N, T, H = inputs[0].shape
    return (N, T, 4 * H), (N, H)


def _gru_reference(z: Any, h0: Any, u: Any, b_u: Any, *, reverse: bool) -> Any:
    (N, T, _), H, h = z.shape, u.shape[0], h0
    dtype = np.result_type(z, h0, u, b_u)
    out, gates = np.zeros((N, T, H), dtype), np.zeros((N, T, 4 * H), dtype)
    for t in _times(T, reverse):
        s = h @ u + b_u
        rz = _sigmoid(z[:, t, :2 * H] + s[:, :2 * H])
        r, k, q = rz[:, :H], rz[:, H:], s[:, 2 * H:]
        n = np.tanh(z[:, t, 2 * H:] + r * q)
        h = out[:, t] = n + k * (h - n)
        gates[:, t] = np.concatenate([rz, n, q], 1)
    return _flatten(out, gates, h)


def _gru_grad_reference(gh: Any, y: Any, u: Any, h0: Any, z: Any, b_u: Any, *, reverse: bool) -> Any:
    N, T, H = gh.shape
    h, gates, _ = _unflatten(_gru_reference(z, h0, u, b_u, reverse=reverse), (N, T, H), (N, T, 4 * H), (N, H))
    dtype = np.result_type(gh, z, h0, u, b_u)
    d, dh = np.zeros((N, T, 4 * H), dtype), np.zeros((N, H), dtype)
    for t in _times(T, not reverse):
        r, k, n, q = np.split(gates[:, t], 4, axis=1)
        last = t + 1 if reverse else t - 1
        before = h[:, last] if 0 <= last < T else h0
        dh = dh + gh[:, t]
        dn = dh * (1 - k) * (1 - n * n)
        dk, dr = dh * (before - n) * k * (1 - k), dn * q * r * (1 - r)
        d[:, t] = np.concatenate([dr, dk, dn, dn * r], 1)
        dh = dh * k + np.concatenate([dr, dk, dn * r], 1) @ u.T
    return _flatten(d, dh)


def _gru_steps(z: Node, h0: Node, u: Node, b_u: Node, reverse: bool) -> tuple[list[int], list[tuple[Node, ...]]]:
    order = _order(z, reverse, "gru")
    return order, _unrolled(z, h0, order, lambda zt, h, c: gru_gates(zt, h, u, b_u))


def _gru_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    z, h0, u, last = inputs
    order, steps = _gru_steps(z, h0, u, last, attrs[0])
    h, gates, _ = gru_shapes(inputs)
    dtype = inputs[0].dtype
    return flat([_along_time([s[0] for s in steps], h, dtype), _along_time([concatenate(s[1:], 1) for s in steps], gates, dtype),
                 steps[order[-1]][0] if order else h0])


def _gru_grad_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    gh, _, u, h0, z, b_u = inputs
    order, steps = _gru_steps(z, h0, u, b_u, attrs[0])
    d: list[Any] = [None] * len(order)
    dh = zeros(h0.shape, h0.dtype)
    for at in range(len(order) - 1, -1, -1):
        t = order[at]
        before = steps[order[at - 1]][0] if at else h0
        _, r, k, n, q = steps[t]
        dh = dh + _step(gh, t)
        dn = dh * (1.0 - k) * (1.0 - square(n))
        dk, dr = dh * (before - n) * k * (1.0 - k), dn * q * r * (1.0 - r)
        dq = dn * r
        d[t] = concatenate([dr, dk, dn, dq], 1)
        dh = dh * k + matmul(concatenate([dr, dk, dq], 1), matrix_transpose(u))
    return flat([_along_time(d, _gru_grad_shapes(inputs)[0], z.dtype), dh])


def _of_state(d: Node, axis: int) -> Node:
    """The cotangents of h u + b_u, of those of a step: they are those of z but for the third block, which is the fourth."""
    H = d.shape[axis] // 4
    return concatenate([cut(d, axis, 0, 2 * H), cut(d, axis, 3 * H, H)], axis)


def _gru_vjp(g: Node, node: Node, needs: Any) -> Any:
    z, h0, u, b_u = node.inputs
    shapes = gru_shapes(node.inputs)
    sent, *kept = cotangents(g, shapes)
    if any(k is not None for k in kept):
        return NotImplemented
    gh = or_zeros(sent, shapes[0], z.dtype)
    d, dh0 = parts(make(GRU_GRAD, (gh, node, u, h0, z, b_u), node._attrs), _gru_grad_shapes((gh,)))
    H = u.shape[0]
    du = None
    if needs[2]:                        # two products of what lies apart
        before = _before(h0, parts(node, shapes)[0], node._attrs[0])
        du = concatenate([_du(before, cut(d, 2, 0, 2 * H)), _du(before, cut(d, 2, 3 * H, H))], 1)
    return cut(d, 2, 0, 3 * H), dh0, du, _of_state(sum_axes(d, (0, 1), False), 0) if needs[3] else None


GRU = register(OpDef("gru", "a gated recurrent unit over all steps of x, y the first state, z the weights", _flat_infer(gru_shapes),
                     _gru_reference, attr_names=("reverse",), arity=4, vjp=_gru_vjp, expand=_gru_expand, lower=_lower("gru", 4),
                     cost=_cost(1), source="Cho et al. 2014, with the reset gate after the product"))
GRU_GRAD = register(OpDef("gru_grad", "the cotangents of gru's z, of the third block of h u + b_u, and of the first h", _flat_infer(_gru_grad_shapes),
                          _gru_grad_reference, attr_names=("reverse",), arity=6, expand=_gru_grad_expand,
                          lower=_lower_back("gru_grad", 0, (2, 3)), cost=_cost(1)))


# -- LSTM ------------------------------------------------------------------------------------------------------------

def lstm_shapes(inputs: Any) -> Any:
    N, T, H, _ = _sizes(inputs[0], inputs[2])
    return (N, T, H), (N, T, H), (N, T, 4 * H), (N, H), (N, H)


def _lstm_grad_shapes(inputs: Any) -> Any:
    N, T, H = inputs[0].shape
    return (N, T, 4 * H), (N, H), (N, H)


def _lstm_reference(z: Any, h0: Any, u: Any, c0: Any, *, reverse: bool) -> Any:
    (N, T, G), H, h, c = z.shape, u.shape[0], h0, c0
    dtype = np.result_type(z, h0, u, c0)
    hs, cs, gates = np.zeros((N, T, H), dtype), np.zeros((N, T, H), dtype), np.zeros((N, T, G), dtype)
    for t in _times(T, reverse):
        i, f, g, o = np.split(z[:, t] + h @ u, 4, axis=1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = cs[:, t] = f * c + i * g
        h = hs[:, t] = o * np.tanh(c)
        gates[:, t] = np.concatenate([i, f, g, o], 1)
    return _flatten(hs, cs, gates, h, c)


def _lstm_grad_reference(gh: Any, y: Any, u: Any, c0: Any, gc: Any, z: Any, h0: Any, *, reverse: bool) -> Any:
    N, T, H = gh.shape
    _, cs, gates, _, _ = _unflatten(_lstm_reference(z, h0, u, c0, reverse=reverse), (N, T, H), (N, T, H), (N, T, 4 * H), (N, H), (N, H))
    dz = np.zeros(gates.shape, np.result_type(gh, gc, z, h0, u, c0))
    dh, dc = np.zeros((N, H), dz.dtype), np.zeros((N, H), dz.dtype)
    for t in _times(T, not reverse):
        i, f, g, o = np.split(gates[:, t], 4, axis=1)
        last = t + 1 if reverse else t - 1
        before, k = cs[:, last] if 0 <= last < T else c0, np.tanh(cs[:, t])
        dh = dh + gh[:, t]
        dc = dc + gc[:, t] + dh * o * (1 - k * k)
        dz[:, t] = np.concatenate([dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * k * o * (1 - o)], 1)
        dc, dh = dc * f, dz[:, t] @ u.T
    return _flatten(dz, dh, dc)


def _lstm_steps(z: Node, h0: Node, u: Node, c0: Node, reverse: bool) -> tuple[list[int], list[tuple[Node, ...]]]:
    order = _order(z, reverse, "lstm")
    return order, _unrolled(z, h0, order, lambda zt, h, c: lstm_gates(zt, h, u, c0 if c is None else c))


def _lstm_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    z, h0, u, last = inputs
    order, steps = _lstm_steps(z, h0, u, last, attrs[0])
    h, _, gates, _, _ = lstm_shapes(inputs)
    dtype = inputs[0].dtype
    return flat([_along_time([s[0] for s in steps], h, dtype), _along_time([s[1] for s in steps], h, dtype),
                 _along_time([concatenate(s[2:], 1) for s in steps], gates, dtype), *(steps[order[-1]][:2] if order else (h0, last))])


def _lstm_grad_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    gh, _, u, c0, gc, z, h0 = inputs
    order, steps = _lstm_steps(z, h0, u, c0, attrs[0])
    dz: list[Any] = [None] * len(order)
    dh, dc = zeros(h0.shape, h0.dtype), zeros(h0.shape, h0.dtype)
    for at in range(len(order) - 1, -1, -1):
        t = order[at]
        before = steps[order[at - 1]][1] if at else c0
        _, c, i, f, g, o = steps[t]
        k, dh = tanh(c), dh + _step(gh, t)
        dc = dc + _step(gc, t) + dh * o * (1.0 - square(k))
        dz[t] = concatenate([dc * g * i * (1.0 - i), dc * before * f * (1.0 - f), dc * i * (1.0 - square(g)), dh * k * o * (1.0 - o)], 1)
        dc, dh = dc * f, matmul(dz[t], matrix_transpose(u))
    return flat([_along_time(dz, z.shape, z.dtype), dh, dc])


def _lstm_vjp(g: Node, node: Node, needs: Any) -> Any:
    z, h0, u, c0 = node.inputs
    shapes = lstm_shapes(node.inputs)
    gh, gc, *kept = cotangents(g, shapes)
    if any(k is not None for k in kept):
        return NotImplemented
    gh, gc = or_zeros(gh, shapes[0], z.dtype), or_zeros(gc, shapes[1], z.dtype)
    dz, dh0, dc0 = parts(make(LSTM_GRAD, (gh, node, u, c0, gc, z, h0), node._attrs), _lstm_grad_shapes((gh,)))
    h = parts(node, shapes)[0]
    return dz, dh0, _du(_before(h0, h, node._attrs[0]), dz) if needs[2] else None, dc0


LSTM = register(OpDef("lstm", "long short-term memory over all steps of x, y the first state, z the weights", _flat_infer(lstm_shapes),
                      _lstm_reference, attr_names=("reverse",), arity=4, vjp=_lstm_vjp, expand=_lstm_expand, lower=_lower("lstm", 4),
                      cost=_cost(1), source="Hochreiter, Schmidhuber 1997; Gers et al. 2000"))
LSTM_GRAD = register(OpDef("lstm_grad", "the cotangents of lstm's z, first h and first c", _flat_infer(_lstm_grad_shapes), _lstm_grad_reference,
                           attr_names=("reverse",), arity=7, expand=_lstm_grad_expand, lower=_lower_back("lstm_grad", 1, (2, 3, 4)), cost=_cost(1)))
