"""Attention, in blocks: an op with kernels of its own forward and backward, whose memory grows with the lengths, not their product.

The op keeps the maximum of every query's scores and the inverse of the sum of their exponentials beside the result (flat, see
parts), from which the gradient op makes the weights again. Forward mode and the second derivative are those of the composed form.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import BOOL, FLOAT16, FLOAT32
from ..errors import DTypeError, ShapeError
from ..graph.build import as_node, composed, make, make_constant
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import broadcast, check_memory, check_shape, format_shape, nelements, stretches
from .binary import equal, less_equal, logical_and, maximum, where, zmul
from .creation import ones
from .families import cast, flag, floating, pair
from .linalg import matmul
from .movement import expand_to, matrix_transpose, reshape_to
from .parts import cotangents, flat, flat_size, or_zeros, parts
from .reduction import any as any_of
from .reduction import max as max_of
from .reduction import sum_axes
from .scan import cumsum, softmax
from .unary import exp, sqrt

# -- the op and its gradient -----------------------------------------------------------------------------------------
# attention(q [.., m, d], k [.., n, d], v [.., n, e], mask [.., m, n] or nothing), all with the same leading sizes
# attention_grad(q, k, v, g [.., m, e], y, mask or nothing), y what attention gave
# inside: matrices in results lie as [.., m, heads, e], the last leading axis inside of the rows. Where heads were cut from
# rows, their results are put together to rows again, and that is then a view.


def _stored(shape: Any, inside: bool) -> Any:
    """The shape of a matrix as it lies in a result."""
    return (*shape[:-3], shape[-2], shape[-3], shape[-1]) if inside else shape


def _turned(x: Any, inside: bool) -> Any:
    """A matrix as it lies in a result, or back; of nodes and of arrays."""
    return x.swapaxes(-2, -3) if inside else x


def _is_from_rows(x: Node) -> bool:
    """Heads [.., heads, m, d] that are a turned [.., m, heads, d]."""
    n = x.ndim
    return x.op == "transpose" and tuple(x._attrs[0]) == (*range(n - 3), n - 2, n - 3, n - 1)


def _shapes(q: Any, v: Any, inside: bool = False) -> Any:
    """The result, as it lies there, the maxima and the inverse sums."""
    return _stored((*q.shape[:-1], v.shape[-1]), inside), q.shape[:-1], q.shape[:-1]


def _check_sizes(q: Node, k: Node, v: Node) -> None:
    """Sizes with a name are known only when a function runs: looked at again then."""
    if unify(q.shape[-1], k.shape[-1]) is None:
        raise ShapeError(f"q has vectors of {q.shape[-1]} elements, k of {k.shape[-1]}")
    if unify(k.shape[-2], v.shape[-2]) is None:
        raise ShapeError(f"there are {k.shape[-2]} keys and {v.shape[-2]} values")


def _infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    q, k, v, *mask = inputs
    _check_sizes(q, k, v)
    for look in mask:
        if unify(look.shape[-2], q.shape[-2]) is None or unify(look.shape[-1], k.shape[-2]) is None:
            raise ShapeError(f"the mask has shape {format_shape(look.shape)}, there are {q.shape[-2]} queries and {k.shape[-2]} keys")
    return check_shape((flat_size(_shapes(q, v)),), q.dtype), q.dtype


def _grad_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return check_shape((flat_size([x.shape for x in inputs[:3]]),), inputs[0].dtype), inputs[0].dtype


def _reference_scores(q: Any, k: Any, mask: Any, causal: bool) -> Any:
    """Scores, -inf where hidden, and whether anything can be seen by whom."""
    m, n = q.shape[-2], k.shape[-2]
    look = np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], n))
    if causal:
        look = look & np.tri(m, n, dtype=bool)
    s = q @ np.swapaxes(k, -1, -2) * np.asarray(1 / math.sqrt(max(q.shape[-1], 1)), q.dtype.type(0).real.dtype)
    return np.where(look, s, s.dtype.type(-np.inf))


def _reference(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool, inside: bool) -> Any:
    s = _reference_scores(q, k, mask, causal)
    with np.errstate(divide="ignore", invalid="ignore"):
        dead = np.max(np.real(s), axis=-1, keepdims=True, initial=-np.inf) == -np.inf
        top = np.take_along_axis(s, np.argmax(np.real(s), -1, keepdims=True), -1) if s.shape[-1] else np.zeros(dead.shape, s.dtype)
        w = np.exp(s - np.where(dead, 0, top))
        total = np.sum(w, axis=-1, keepdims=True)
        y = np.where(dead, 0, w @ v / np.where(dead, 1, total))
        kept = np.where(dead, np.inf, top), np.where(dead, 0, 1 / np.where(dead, 1, total))
    return np.concatenate([_turned(y, inside).ravel(), *[x.ravel() for x in kept]]).astype(np.result_type(q, k, v), copy=False)


def _grad_reference(q: Any, k: Any, v: Any, g: Any, y: Any, mask: Any = None, *, causal: bool, inside: bool) -> Any:
    """y is not read: as a function, it is one of the other operands."""
    s = _reference_scores(q, k, mask, causal)
    with np.errstate(invalid="ignore", over="ignore"):
        top = np.max(np.real(s), axis=-1, keepdims=True, initial=-np.inf)
        w = np.exp(s - np.where(top == -np.inf, 0, top))
        w = np.where(top == -np.inf, 0, w / np.where(top == -np.inf, 1, np.sum(w, axis=-1, keepdims=True)))
        t = np.where(w == 0, 0, w * (g @ np.swapaxes(v, -1, -2)))
    t = (t - w * np.sum(t, -1, keepdims=True)) * np.asarray(1 / math.sqrt(max(q.shape[-1], 1)), q.dtype.type(0).real.dtype)
    dq, dk, dv = t @ k, np.swapaxes(t, -1, -2) @ q, np.swapaxes(w, -1, -2) @ g
    return np.concatenate([_turned(x, inside).ravel() for x in (dq, dk, dv)]).astype(np.result_type(q, k, v, g), copy=False)


def _scale(q: Node) -> Any:
    """1 / sqrt(d), a number or a node."""
    d = q.shape[-1]
    if isinstance(d, int):
        return 1.0 / math.sqrt(d) if d else 1.0
    return 1.0 / sqrt(cast(maximum(as_node(d), 1), q.dtype))


def _scores(q: Node, k: Node, mask: Node | None, causal: bool) -> Node:
    """q k^T / sqrt(d), -inf where hidden: the n x n matrix that the op never has."""
    s = matmul(q, matrix_transpose(k)) * _scale(q)
    look = _past(q.shape[-2], k.shape[-2]) if causal else None
    if mask is not None:
        look = mask if look is None else logical_and(mask, look)
    return s if look is None else where(look, s, -np.inf)


def _expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    q, k, v, *mask = inputs
    s = _scores(q, k, mask[0] if mask else None, attrs[0])
    top = max_of(s, -1, keepdims=True, initial=-np.inf)
    dead = equal(top, -np.inf)
    total = sum_axes(exp(s - where(dead, 0.0, top)), (s.ndim - 1,), True)
    return flat([_turned(matmul(softmax(s, axis=-1), v), attrs[1]), where(dead, np.inf, top), where(dead, 0.0, 1.0 / total)])


def _grad_expand(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
    q, k, v, g, _, *mask = inputs
    w = softmax(_scores(q, k, mask[0] if mask else None, attrs[0]), axis=-1)
    t = zmul(w, matmul(g, matrix_transpose(v)))
    t = (t - w * sum_axes(t, (t.ndim - 1,), True)) * _scale(q)
    return flat([_turned(x, attrs[1]) for x in (matmul(t, k), matmul(matrix_transpose(t), q), matmul(matrix_transpose(w), g))])


def _vjp(g: Node, node: Node, needs: Any) -> Any:
    q, k, v, *mask = node.inputs
    inside = node._attrs[1]
    shapes = _shapes(q, v, inside)
    sent, *kept = cotangents(g, shapes)
    if any(x is not None for x in kept):
        return NotImplemented
    g = _turned(or_zeros(sent, shapes[0], node.dtype), inside)
    grads = parts(make(ATTENTION_GRAD, (q, k, v, g, node, *mask), node._attrs), [_stored(x.shape, inside) for x in (q, k, v)])
    return (*[_turned(x, inside) if need else None for x, need in zip(grads, needs[:3], strict=True)], *[None] * len(mask))


def _lower(kernel: str) -> Any:
    def rule(ctx: Any, node: Node) -> Any:
        out = ctx.new(node.shape, node.dtype)
        ctx.emit(kernel, out, [ctx.view(x) for x in node.inputs], [int(a) for a in node._attrs])
        return out
    return rule


def _cost(products: int) -> Any:
    """FLOPs of pairs of products with queries and values, and of a softmax, 5 an element as its own, of the scores."""
    def cost(node: Node) -> Any:
        q, k, v = node.inputs[:3]
        return nelements(q.shape[:-1]) * k.shape[-2] * (products * (q.shape[-1] + v.shape[-1]) + 5)
    return cost


ATTENTION = register(OpDef("attention", "softmax(x y^T / sqrt(d)) z", _infer, _reference, attr_names=("causal", "inside"), vjp=_vjp, expand=_expand,
                           lower=_lower("attention"), cost=_cost(2), source="Vaswani et al. 2017; in blocks: Dao et al. 2022"))
ATTENTION_GRAD = register(OpDef("attention_grad", "the cotangents of attention's queries x, keys y and values z", _grad_infer, _grad_reference,
                                attr_names=("causal", "inside"), expand=_grad_expand, lower=_lower("attention_grad"), cost=_cost(5)))


# -- public ----------------------------------------------------------------------------------------------------------

@composed
def attention(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False) -> Node:
    """softmax(q k^T / sqrt(d)) v.

    Shapes: q [.., m, d], k [.., n, d], v [.., n, e] -> [.., m, e]; leading axes broadcast. mask: bool, broadcasts to
    [.., m, n], True = may look. causal: query i may look at keys 0 .. i. Dtypes: floats; float16 is computed in float32.
    A query that may look at nothing gives zeros and has zero gradients. Keys and values nobody may look at, and queries
    that may look at nothing, have no influence at all, not even when they hold NaN. Raises ShapeError and DTypeError (mask
    not bool). Source: Vaswani et al. 2017.
    """
    q, k = pair(q, k)
    q, v = pair(q, v)
    k = cast(k, q.dtype)
    q, k, v = floating(q), floating(k), floating(v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim < 2:
            raise ShapeError(f"{name} has shape {format_shape(x.shape)}, [.., length, size] is needed")
    _check_sizes(q, k, v)
    dtype = q.dtype
    if dtype is FLOAT16:
        q, k, v = cast(q, FLOAT32), cast(k, FLOAT32), cast(v, FLOAT32)
    m, n = q.shape[-2], k.shape[-2]
    mask = _mask(mask, m, n)
    if mask is not None:
        q, k, v = _only_seen(q, k, v, logical_and(mask, _past(m, n)) if causal else mask)
    elif causal and not (isinstance(m, int) and isinstance(n, int) and n <= m):
        seen = less_equal(cumsum(ones((n, 1), "int64"), 0), as_node(m))
        k, v = where(seen, k, 0.0), where(seen, v, 0.0)
    batch = broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2], *([] if mask is None else [mask.shape[:-2]]))
    inputs = [expand_to(x, (*batch, *x.shape[-2:])) for x in (q, k, v)]
    if mask is not None:           # a size that it has as a number beside a named one is looked at when a function runs
        sizes = [size if stretches(have) else unify(have, size) for have, size in zip(mask.shape[-2:], (m, n), strict=True)]
        inputs.append(expand_to(mask, (*batch, *sizes)))
    inside = _is_from_rows(inputs[0])
    y = make(ATTENTION, tuple(inputs), (flag(causal, "causal"), inside))
    return cast(_turned(parts(y, _shapes(inputs[0], inputs[2], inside))[0], inside), dtype)


def _mask(mask: Any, m: Any, n: Any) -> Node | None:
    """Who may look at whom, as a bool node with at least two axes; None: everybody at everything."""
    if mask is None:
        return None
    look = as_node(mask)
    if look.dtype is not BOOL:
        hint = "mask == 0, if it is what is added to the scores: 0 or -inf" if look.dtype.kind == "f" else "mask != 0"
        raise DTypeError(f"the mask is {look.dtype}, bool is needed: True = may look\nhint: {hint}")
    if look.ndim < 2:
        look = reshape_to(look, (1,) * (2 - look.ndim) + look.shape)
    for size, have, what in ((m, look.shape[-2], "queries"), (n, look.shape[-1], "keys")):
        if not stretches(have) and unify(have, size) is None:
            raise ShapeError(f"the mask has shape {format_shape(look.shape)}, there are {size} {what}")
    return look


def _past(m: Any, n: Any) -> Node:
    """[m, n], True where the key is not after the query."""
    if isinstance(m, int) and isinstance(n, int):
        check_memory((m, n), BOOL)
        return make_constant(np.tri(m, n, dtype=bool))
    rows, columns = cumsum(ones((m, 1), "int64"), 0), cumsum(ones((1, n), "int64"), 1)
    return less_equal(columns, rows)


def _only_seen(q: Node, k: Node, v: Node, look: Node) -> tuple[Node, Node, Node]:
    """Zeros in the place of queries that may look at nothing and of keys and values nobody may look at.

    Their scores are masked anyway; zeros keep a NaN or an infinity in them out of the products of both passes.
    """
    if look.op.name == "constant":
        value = look._attrs[0]
        looks, seen = value.any(-1, keepdims=True), np.swapaxes(value.any(-2, keepdims=True), -1, -2)
        return _keep(q, looks), _keep(k, seen), _keep(v, seen)
    keys = matrix_transpose(any_of(look, -2, keepdims=True))
    return where(any_of(look, -1, keepdims=True), q, 0.0), where(keys, k, 0.0), where(keys, v, 0.0)


def _keep(x: Node, flags: Any) -> Node:
    """x where the constant flags [.., length, 1] hold, else 0."""
    return x if flags.all() else where(flags, x, 0.0)


__all__ = ["attention"]
