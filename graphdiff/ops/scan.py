"""Along one axis: softmax, log_softmax, cumulative sums and products, sorting.

Kernels work on the last axis; lowering moves the axis there as a view, and the result back.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dims import dim_max
from ..dtypes import BOOL, FLOAT16, FLOAT32, INT64, float_of
from ..errors import AxisError, NodeTypeError, ShapeError
from ..graph.build import as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import nelements, normalize_axis
from . import special
from .creation import full, zeros_like
from .families import cast, flag, floating
from .joining import concatenate
from .movement import cut, expand_to, permute, ravel, reshape_to
from .selected import no_out


def _same(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return inputs[0].shape, inputs[0].dtype


def _last(ndim: int, axis: int) -> list[int]:
    """The axis order that puts `axis` last. The others stay in order: kernels take lines that lie side by side together."""
    axis %= ndim
    return [*range(axis), *range(axis + 1, ndim), axis]


def _lower(kernel: str, attrs: Any = None) -> Any:
    """Operands and result with the axis (attrs[0]) last; attrs picks the kernel's integers from the node's."""
    def rule(ctx: Any, node: Node) -> Any:
        order = _last(node.ndim, node._attrs[0])
        dtype = FLOAT32 if node.dtype is FLOAT16 else node.dtype
        ins = [ctx.view(x) for x in node.inputs]
        if kernel in ("softmax", "log_softmax"):
            ins = [ctx.near(v, order) for v in ins]
        out = ctx.new(node.shape, dtype)
        ctx.emit(kernel, out.transpose(order), [v.transpose(order) for v in ins], [] if attrs is None else attrs(node))
        return out
    return rule


def _lower_log_softmax(ctx: Any, node: Node) -> Any:
    if id(node) not in ctx.results and node.dtype is not FLOAT16 and node.size > 0:
        ctx.near(ctx.raw(node.inputs[0]), _last(node.ndim, node._attrs[0]))           # what it is given, before its number is taken
        ctx.made["log_softmax", id(node.inputs[0]), node._attrs] = len(ctx.instrs)
    return _lower("log_softmax")(ctx, node)


def _lower_softmax(ctx: Any, node: Node) -> Any:
    """Beside the log_softmax of the same operand, as in its gradient: the buffer of that gets a second half, which the kernel fills from
    the same exponentials. What is a result of the program would have to be copied out of there, and stays alone."""
    key = "log_softmax", id(node.inputs[0]), node._attrs
    if key not in ctx.made or id(node) in ctx.results:
        return _lower("softmax")(ctx, node)
    number = ctx.made.pop(key)                        # it has one second half to give
    op, (out,), ins, attrs, maker = ctx.instrs[number]
    half = (node.size + 15) // 16 * 16                # both begin a cache line
    ctx.buffers[out.buffer] += half * out.dtype.itemsize
    ctx.instrs[number] = op, (out.with_layout((2, *out.shape), (half, *out.strides)),), ins, attrs, maker
    axis = node._attrs[0]
    first = out.transpose([*range(axis), node.ndim - 1, *range(axis, node.ndim - 1)])        # back from where it is last
    return first.with_layout(first.shape, first.strides, half)


def _flag(position: int) -> Any:
    return lambda node: [int(node._attrs[position])]


# -- softmax -------------------------------------------------------------------------------------------------------

def _softmax_reference(x: Any, *, axis: int) -> Any:
    x = np.asarray(x)
    if x.size == 0:
        return x.copy()
    m = np.max(np.real(x), axis=axis, keepdims=True)
    dead = m == -np.inf
    e = np.exp(x - np.where(dead, 0, m))
    s = np.sum(e, axis=axis, keepdims=True)
    return np.where(dead, 0, e / np.where(dead, 1, s)).astype(e.dtype)


def _log_softmax_reference(x: Any, *, axis: int) -> Any:
    x = np.asarray(x)
    if x.size == 0:
        return x.copy()
    m = np.max(np.real(x), axis=axis, keepdims=True)
    d = x - np.where(m == -np.inf, 0, m)
    r = d - np.log(np.sum(np.exp(d), axis=axis, keepdims=True))
    return np.where(m == -np.inf, -np.inf, r).astype(d.dtype)


def _softmax_vjp(g: Node, node: Node, needs: Any) -> Any:
    """s (g - sum(g s)); entries of weight 0 get 0 whatever g is, and rows where g is 0 whatever s is."""
    from .binary import zmul_either
    from .reduction import sum_axes
    gs = zmul_either(node, g)
    return (gs - zmul_either(node, sum_axes(gs, (node._attrs[0],), True)),)


def _log_softmax_vjp(g: Node, node: Node, needs: Any) -> Any:
    """g - softmax(x) sum(g); where a row is all -inf, and softmax has nothing to share out, nothing flows."""
    from .binary import not_equal, zmul, zmul_either
    from .reduction import sum_axes
    axis = node._attrs[0]
    x = node.inputs[0]
    s = make(SOFTMAX, (x,), (axis,))
    total = sum_axes(g, (axis,), True)
    if isinstance(x.shape[axis], int) and x.shape[axis] == 0:
        return (g,)
    alive = cast(not_equal(sum_axes(s, (axis,), True), 0.0), g.dtype)
    return (zmul(alive, g - zmul_either(s, total)),)


SOFTMAX = register(OpDef("softmax", "e^x / sum(e^x) along an axis", _same, _softmax_reference, attr_names=("axis",), arity=1,
                         vjp=_softmax_vjp, lower=_lower_softmax, cost=lambda n: 5 * n.size, family="reduction"))
LOG_SOFTMAX = register(OpDef("log_softmax", "x - log(sum(e^x)) along an axis", _same, _log_softmax_reference, attr_names=("axis",),
                             arity=1, vjp=_log_softmax_vjp, lower=_lower_log_softmax, cost=lambda n: 5 * n.size, family="reduction"))


@public
def softmax(x: Any, axis: int = -1, temperature: Any = 1) -> Node:
    """e^(x/temperature) / sum(e^(x/temperature)) along an axis. -inf gives 0; a slice of only -inf gives zeros; NaN or +inf gives NaN."""
    x = floating(x)
    if type(temperature) is int and temperature == 1:
        return make(SOFTMAX, (x,), (normalize_axis(axis, x.ndim),))
    if not isinstance(temperature, Node):
        t = np.asarray(temperature)
        if t.dtype.kind not in "iuf" or not np.all(t > 0):
            raise ShapeError(f"temperature must be larger than 0, not {temperature!r}")
    axis = normalize_axis(axis, x.ndim)
    if not isinstance(temperature, Node) and not t.ndim and temperature == 1:
        return make(SOFTMAX, (x,), (axis,))
    y = x / temperature
    if y.dtype is FLOAT16:              # one function, rounded once
        return cast(make(SOFTMAX, (cast(x, FLOAT32) / temperature,), (axis,)), FLOAT16)
    return make(SOFTMAX, (y,), (axis,))


@public
def log_softmax(x: Any, axis: int = -1) -> Node:
    """log(softmax(x)) without its rounding: x - logsumexp(x)."""
    x = floating(x)
    return make(LOG_SOFTMAX, (x,), (normalize_axis(axis, x.ndim),))


# -- cumulative ----------------------------------------------------------------------------------------------------

def _running(f: Any) -> Any:
    def reference(x: Any, *, axis: int, reverse: bool) -> Any:
        x = np.asarray(x)
        if reverse:
            return np.flip(f(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)
        return f(x, axis=axis, dtype=x.dtype)
    return reference


def _recurrence_reference(a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    a, b = np.moveaxis(np.asarray(a), axis, 0), np.moveaxis(np.asarray(b), axis, 0)
    s = np.zeros(b.shape, np.result_type(a, b))
    last = np.zeros(b.shape[1:], s.dtype)
    for i in (range(len(b) - 1, -1, -1) if reverse else range(len(b))):
        last = s[i] = special.zmul(last, a[i]) + b[i]
    return np.moveaxis(s, 0, axis)


def shifted(x: Node, axis: int, reverse: bool, fill: float) -> Node:
    """Element i becomes i + 1's (or i - 1's when reverse), with fill at the open end."""
    n = x.shape[axis]
    edge = full((*x.shape[:axis], 1, *x.shape[axis + 1:]), fill, x.dtype)
    if not isinstance(n, int):         # there may be no element that could be left out, but for the fill itself
        return cut(concatenate([edge, x] if reverse else [x, edge], axis), axis, 0 if reverse else 1, n)
    if reverse:
        return concatenate([edge, cut(x, axis, 0, n - 1)], axis)
    return concatenate([cut(x, axis, 1, n - 1), edge], axis)


def _empty(x: Node, axis: int) -> bool:
    return isinstance(x.shape[axis], int) and x.shape[axis] == 0


def _cumprod_vjp(g: Node, node: Node, needs: Any) -> Any:
    """P_i S_i: the product of the elements before i, and S_i = g_i + x_{i+1} S_{i+1}. Right when elements are 0."""
    from .binary import zmul
    x = node.inputs[0]
    axis, reverse = node._attrs
    if _empty(x, axis):
        return (zeros_like(x),)
    before = shifted(node, axis, not reverse, 1)
    nexts = shifted(x, axis, reverse, 0)
    return (zmul(make(RECURRENCE, (nexts, g), (axis, not reverse)), before),)


def _recurrence_vjp(g: Node, node: Node, needs: Any) -> Any:
    """l_i = g_i + a_{i+1} l_{i+1}: the adjoint of b is l, of a is l_i s_{i-1}."""
    from .binary import zmul_either
    a, b = node.inputs
    axis, reverse = node._attrs
    if _empty(b, axis):
        return (zeros_like(a), zeros_like(b))
    back = make(RECURRENCE, (shifted(a, axis, reverse, 0), g), (axis, not reverse))
    return (zmul_either(back, shifted(node, axis, not reverse, 0)) if needs[0] else None, back)


CUMSUM: OpDef = register(OpDef("cumsum", "running sums along an axis", _same, _running(np.cumsum), attr_names=("axis", "reverse"), arity=1,
                        linear=(0,), vjp=lambda g, node, needs: (make(CUMSUM, (g,), (node._attrs[0], not node._attrs[1])),),
                        lower=_lower("cumsum", _flag(1))))
CUMPROD = register(OpDef("cumprod", "running products along an axis", _same, _running(np.cumprod), attr_names=("axis", "reverse"),
                         arity=1, vjp=_cumprod_vjp, lower=_lower("cumprod", _flag(1))))
RECURRENCE = register(OpDef("recurrence", "s_i = x_i s_{i-1} + y_i along an axis; the product is 0 where s_{i-1} is", _same, _recurrence_reference,
                            attr_names=("axis", "reverse"), arity=2, vjp=_recurrence_vjp, lower=_lower("recurrence", _flag(1))))


def _along(x: Any, axis: int | None) -> tuple[Node, int]:
    x = as_node(x)
    if axis is None or (x.ndim == 0 and isinstance(axis, (int, np.integer))):      # a scalar counts as a vector of one element
        return ravel(x), 0 if axis is None else normalize_axis(axis, 1)
    return x, normalize_axis(axis, x.ndim)


@public
def cumsum(x: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Node:
    """Running sums along an axis (of the flattened operand by default). bool and integers give int64, uint8 as well (NumPy: uint64).
    out must be None."""
    from .reduction import _accumulator, _as_asked
    no_out(out)
    x, axis = _along(x, axis)
    return _as_asked(make(CUMSUM, (_accumulator(x, dtype),), (axis, False)), dtype)


@public
def cumprod(x: Any, axis: int | None = None, dtype: Any = None, out: Any = None, *, reverse: bool = False) -> Node:
    """Running products along an axis, from the end if reverse. The derivative is right when elements are 0. bool and integers give
    int64, uint8 as well (NumPy: uint64). out must be None."""
    from .reduction import _accumulator, _as_asked
    no_out(out)
    x, axis = _along(x, axis)
    return _as_asked(make(CUMPROD, (_accumulator(x, dtype),), (axis, flag(reverse, "reverse"))), dtype)


# -- sorting -------------------------------------------------------------------------------------------------------

def _argsort_reference(x: Any, *, axis: int, descending: bool) -> Any:
    x = np.asarray(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Stable and descending: sort the reversed axis ascending, then reverse positions and order.
    n = x.shape[axis]
    return n - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)


def _sort_vjp(g: Node, node: Node, needs: Any) -> Any:
    from .indexing import scatter_along
    x = node.inputs[0]
    axis, descending = node._attrs
    order = make(ARGSORT, (x,), (axis, descending))
    return (scatter_along(zeros_like(x), order, g, axis),)


def _sort_jvp(ts: Any, node: Node) -> Node:
    from .indexing import gather_along
    return gather_along(ts[0], make(ARGSORT, node.inputs, node._attrs), node._attrs[0])


def _sort_reference(x: Any, *, axis: int, descending: bool) -> Any:
    x = np.asarray(x)
    return np.take_along_axis(x, _argsort_reference(np.real(x), axis=axis, descending=descending), axis)


def _lower_sort(ctx: Any, node: Node) -> Any:
    """One element is in order."""
    return ctx.raw(node.inputs[0]) if node.shape[node._attrs[0]] == 1 else _lower("sort", _flag(1))(ctx, node)


def _lower_argsort(ctx: Any, node: Node) -> Any:
    return ctx.fill(ctx.new(node.shape, INT64), 0) if node.shape[node._attrs[0]] == 1 else _lower("argsort", _flag(1))(ctx, node)


SORT = register(OpDef("sort", "elements along an axis in order, NaN last; the permutation is stable", _same, _sort_reference,
                      attr_names=("axis", "descending"), arity=1, vjp=_sort_vjp, jvp=_sort_jvp, lower=_lower_sort,
                      cost=lambda n: 20 * n.size))
ARGSORT = register(OpDef("argsort", "the stable permutation that sorts an axis", lambda i, a: (i[0].shape, INT64), _argsort_reference,
                         attr_names=("axis", "descending"), arity=1, cuts="its result is a permutation of integers",
                         lower=_lower_argsort, cost=lambda n: 20 * n.size))


def _top_reference(x: Any, *, axis: int, k: int) -> Any:
    return np.take(_sort_reference(x, axis=axis, descending=True), range(k), axis=axis)


def _top_places(node: Node) -> Node:
    axis, k = node._attrs
    return cut(make(ARGSORT, node.inputs, (axis, True)), axis, 0, k)


def _top_vjp(g: Node, node: Node, needs: Any) -> Any:
    from .indexing import scatter_along
    return (scatter_along(zeros_like(node.inputs[0]), _top_places(node), g, node._attrs[0]),)


def _top_jvp(ts: Any, node: Node) -> Node:
    from .indexing import gather_along
    return gather_along(ts[0], _top_places(node), node._attrs[0])


def _lower_top(ctx: Any, node: Node) -> Any:
    """A sort that is told how many of its elements are wanted, so that it need not order the others."""
    axis, k = node._attrs
    if node.inputs[0].shape[axis] == 1:
        return ctx.raw(node.inputs[0]).slice([0] * node.ndim, [1] * node.ndim, node.shape)
    order = _last(node.ndim, axis)
    v = ctx.view(node.inputs[0])
    out = ctx.new(v.shape, FLOAT32 if node.dtype is FLOAT16 else node.dtype)
    ctx.emit("sort", out.transpose(order), [v.transpose(order)], [1, k])
    return out.slice([0] * node.ndim, [1] * node.ndim, node.shape)


TOP = register(OpDef("top", "the k largest elements along an axis, largest first, NaN before them",
                     lambda i, a: ((*i[0].shape[:a[0]], a[1], *i[0].shape[a[0] + 1:]), i[0].dtype), _top_reference,
                     attr_names=("axis", "k"), arity=1, vjp=_top_vjp, jvp=_top_jvp, lower=_lower_top,
                     cost=lambda n: 5 * n.inputs[0].size))


def _ranked_reference(x: Any, *, axis: int, low: int, high: int) -> Any:
    x = np.asarray(x)
    if x.shape[axis] == 0:
        return np.full((*x.shape[:axis], 2, *x.shape[axis + 1:]), np.nan, x.dtype)
    order = _argsort_reference(np.real(x), axis=axis, descending=False)
    found = np.take_along_axis(x, np.take(order, [low, high], axis=axis), axis)
    return np.where(np.any(np.isnan(x), axis=axis, keepdims=True), np.nan, found) if x.dtype.kind in "fc" else found


def _ranked_places(node: Node) -> Node:
    axis, low, high = node._attrs
    order = make(ARGSORT, node.inputs, (axis, False))
    if not isinstance(order.shape[axis], int):
        order = _one_more(order, axis, order.shape[axis])
    return concatenate([cut(order, axis, low, 1), cut(order, axis, high, 1)], axis)


def _ranked_vjp(g: Node, node: Node, needs: Any) -> Any:
    from .indexing import scatter_along
    x, axis = node.inputs[0], node._attrs[0]
    zeros = zeros_like(x)
    if isinstance(x.shape[axis], int):
        return (scatter_along(zeros, _ranked_places(node), g, axis),)
    return (cut(scatter_along(_one_more(zeros, axis, 0), _ranked_places(node), g, axis), axis, 0, x.shape[axis]),)


def _ranked_jvp(ts: Any, node: Node) -> Node:
    from .indexing import gather_along
    t = ts[0]
    return gather_along(t if isinstance(t.shape[node._attrs[0]], int) else _one_more(t, node._attrs[0], 0), _ranked_places(node), node._attrs[0])


def _one_more(x: Node, axis: int, last: Any) -> Node:
    """x with one element more at the end of an axis of a named size, which may turn out to have none."""
    last = cast(as_node(last), x.dtype)
    return concatenate([x, expand_to(last, (*x.shape[:axis], 1, *x.shape[axis + 1:]))], axis)


# Up to the first, networks sort several lines at once, faster than a line is searched; beyond the second, one line would keep
# an interrupt waiting: a sort is done in pieces.
_SEARCHED = (512, 1 << 24)


def _lower_ranked(ctx: Any, node: Node) -> Any:
    axis, low, high = node._attrs
    order = _last(node.ndim, axis)
    v = ctx.view(node.inputs[0]).transpose(order)
    n, last = v.shape[-1], node.ndim - 1
    if n == 1:
        return ctx.raw(node.inputs[0]).broadcast(node.shape)
    if n == 0:
        return ctx.fill(ctx.new(node.shape, v.dtype), np.nan)
    if _SEARCHED[0] < n <= _SEARCHED[1]:
        out = ctx.new(node.shape, v.dtype)
        ctx.emit("ranked", out.transpose(order), [v], [low, high])
        return out
    s = ctx.emit("sort", ctx.new(v.shape, v.dtype), [v], [0])
    shape = (*v.shape[:-1], 2)

    def at(first: int, count: int) -> Any:
        return s.slice([0] * last + [first], [1] * (last + 1), [*v.shape[:-1], count]).broadcast(shape)

    pair = at(low, 1 if low == high else 2)
    if v.dtype.kind == "f":
        top = at(n - 1, 1)
        pair = ctx.map("where", ctx.map("isnan", top, dtype=BOOL), top, pair)
    back = [0] * node.ndim
    for i, a in enumerate(order):
        back[a] = i
    return pair.transpose(back)


RANKED = register(OpDef("ranked", "the elements of two ranks next to each other, or of one twice, along an axis; NaN if there is one",
                        lambda i, a: ((*i[0].shape[:a[0]], 2, *i[0].shape[a[0] + 1:]), i[0].dtype), _ranked_reference,
                        attr_names=("axis", "low", "high"), arity=1, vjp=_ranked_vjp, jvp=_ranked_jvp, lower=_lower_ranked,
                        cost=lambda n: 5 * n.inputs[0].size))


def _check_kind(kind: Any, stable: Any) -> None:
    if stable is not None:
        flag(stable, "stable")
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        raise NodeTypeError(f"kind {kind!r} is not one of quicksort, mergesort, heapsort, stable")


@public
def sort(x: Any, axis: int | None = -1, *, descending: bool = False, kind: Any = None, stable: Any = None) -> Node:
    """Elements along an axis in ascending order, NaN last (descending: the reverse). Equal elements keep their order, whatever kind and
    stable say."""
    _check_kind(kind, stable)
    x = as_node(x)
    if x.ndim == 0 and axis is not None:
        raise AxisError("a scalar has no axis to sort along")
    x, axis = _along(x, axis)
    return make(SORT, (x,), (axis, flag(descending, "descending")))


@public
def argsort(x: Any, axis: int | None = -1, *, descending: bool = False, kind: Any = None, stable: Any = None) -> Node:
    """int64 positions that sort an axis; stable, whatever kind and stable say."""
    _check_kind(kind, stable)
    x, axis = _along(x, axis)
    return make(ARGSORT, (x,), (axis, flag(descending, "descending")))


@public
def top_k(x: Any, k: int, *, axis: int = -1, indices: bool = False) -> Any:
    """The k largest along an axis, largest first; with indices=True (values, int64 positions)."""
    from .indexing import gather_along
    x, indices = as_node(x), flag(indices, "indices")
    axis = normalize_axis(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 0 or (isinstance(n, int) and k > n):
        raise ShapeError(f"k must be between 0 and the axis' size {n}, not {k!r}")
    if not indices and isinstance(n, int):
        return make(TOP, (x,), (axis, int(k)))
    if not indices:                     # values alone sort in half the time
        return cut(make(SORT, (x,), (axis, True)), axis, 0, int(k))
    at = cut(make(ARGSORT, (x,), (axis, True)), axis, 0, int(k))
    return gather_along(x, at, axis), at


@public
def median(x: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Node:
    """The middle value, or the mean of the middle two; NaN if there is one, and of nothing. out must be None; nothing is overwritten."""
    from .reduction import axes_of, is_kept, reduced_shape
    no_out(out)
    flag(overwrite_input, "overwrite_input")
    x = as_node(x)
    axes = axes_of(x, axis)
    kept = [i for i in range(x.ndim) if i not in axes]
    n = nelements(tuple(x.shape[a] for a in axes))
    if isinstance(n, int) and n == 0:
        return full(reduced_shape(x, axes, is_kept(keepdims)), np.nan, float_of(x.dtype))
    flat = reshape_to(permute(x, [*kept, *axes]), (*[x.shape[i] for i in kept], n))
    last = flat.ndim - 1
    if not isinstance(n, int):          # it may be 0, and no integer says so
        flat = floating(flat)
    pair = floating(make(RANKED, (flat,), (last, dim_max((n - 1) // 2, 0), n // 2)))
    low, high = cut(pair, last, 0, 1), cut(pair, last, 1, 1)
    odd = n % 2
    if isinstance(odd, int):
        middle = low if odd else 0.5 * (low + high)
    else:
        from ..graph.build import _dim_node
        from .binary import where
        middle = where(_dim_node(odd), low, 0.5 * (low + high))
    return reshape_to(middle, reduced_shape(x, axes, is_kept(keepdims)))


