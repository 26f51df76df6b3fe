"""Products of matrices: the op matmul, and dot, vdot, inner, outer, tensordot, kron made of it.

The op takes operands of equally many axes, at least two; vectors become matrices by reshape, so the graph shows what
is multiplied. Products add in the kernel's own fixed order and follow IEEE inside their sums.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import FLOAT16, FLOAT32
from ..errors import NodeTypeError, ShapeError
from ..graph.build import located, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import broadcast, check_shape, format_shape, nelements, normalize_axes
from .binary import multiply
from .families import pair
from .movement import permute, reshape_to, sum_to, swapaxes, taken_for

# -- the op --------------------------------------------------------------------------------------------------------


def _inner_sizes(left: Any, axis1: int, right: Any, axis2: int) -> str:
    return f"inner sizes differ: left has {left} (axis {axis1}), right has {right} (axis {axis2})"


def _batch(a: Node, b: Node) -> tuple[Any, ...]:
    try:
        return broadcast(a.shape[:-2], b.shape[:-2])
    except ShapeError as error:
        raise ShapeError(f"leading axes: {error}") from None


def _check_batch(a: Node, b: Node, given: tuple[Node, Node]) -> None:
    try:
        _batch(a, b)
    except ShapeError as error:
        raise located(error, "matmul", given) from None


def _matmul_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    a, b = inputs
    if unify(a.shape[-1], b.shape[-2]) is None:
        raise ShapeError(_inner_sizes(a.shape[-1], a.ndim - 1, b.shape[-2], b.ndim - 2))
    shape = (*_batch(a, b), a.shape[-2], b.shape[-1])
    check_shape(shape, a.dtype)
    return shape, a.dtype


def _matmul_reference(x: Any, y: Any) -> Any:
    """numpy.matmul; float16 is added up in float32."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype == FLOAT16:
        x, y = x.astype(FLOAT32), y.astype(FLOAT32)
    return np.matmul(x, y)


def _once(x: Node) -> bool:
    """All leading axes are written as 1: one matrix for a whole batch."""
    return all(isinstance(n, int) and n == 1 for n in x.shape[:-2])


def _matmul_vjp(g: Node, node: Node, needs: Any) -> Any:
    """g b^T and a^T g, summed where an operand was broadcast.

    One matrix for a whole batch gets its sum over the batch inside the product: no batch of products is ever stored.
    """
    a, b = node.inputs
    batch, m, n, k = node.shape[:-2], a.shape[-2], b.shape[-1], a.shape[-1]
    count = nelements(batch)
    da = db = None
    if needs[0]:
        if _once(a) and not _once(b):
            order = (len(batch), *range(len(batch)), len(batch) + 1)
            full = b if b.shape[:-2] == batch else _widen(b, batch)
            flat = make(MATMUL, (reshape_to(permute(g, order), (m, count * n)),
                                 reshape_to(permute(full, (*range(len(batch)), len(batch) + 1, len(batch))), (count * n, k))))
            da = reshape_to(flat, a.shape)
        else:
            da = sum_to(make(MATMUL, (g, swapaxes(b, -1, -2))), a.shape)
    if needs[1]:
        if _once(b) and not _once(a):
            full = a if a.shape[:-2] == batch else _widen(a, batch)
            flat = make(MATMUL, (permute(reshape_to(full, (count * m, k)), (1, 0)), reshape_to(g, (count * m, n))))
            db = reshape_to(flat, b.shape)
        else:
            db = sum_to(make(MATMUL, (swapaxes(a, -1, -2), g)), b.shape)
    return da, db


def _widen(x: Node, batch: tuple[Any, ...]) -> Node:
    from .movement import expand_to
    return expand_to(x, (*batch, *x.shape[-2:]))


# Products of a matrix with its own transpose of which half is computed: from so many rows on; rows of a panel at least, and the most
# panels; terms of a sum (fewer cost less than the copies; more would be cut into pieces, of which all rows are).
_TWICE, _PANEL, _PANELS, _TERMS = 96, 8, 25, (16, 4096)
_FEW = 64                    # elements that a copy takes longer for than a product saves


def _is_own_transpose(a: Any, b: Any) -> bool:
    n, terms = a.shape[-2:]
    return bool(a.buffer == b.buffer and a.offset == b.offset and len(a.shape) == len(b.shape) == 2 and b.shape == (terms, n)
                and b.strides == (a.strides[1], a.strides[0]) and n >= _TWICE and _TERMS[0] <= terms <= _TERMS[1] and a.dtype.kind == "f")


def _symmetric(ctx: Any, a: Any, b: Any) -> Any:
    """a b where b is a^T: panels of rows up to the diagonal, which have the bits of the whole, and their other sides copied."""
    n, terms = a.shape
    panel = -(-n // (_PANEL * min(_PANELS, terms // 8))) * _PANEL
    out = ctx.emit("matmul", ctx.new((n, n), a.dtype), [a, b], [panel])
    for start in range(panel, n, panel):
        here = min(panel, n - start)
        ctx.emit("copy", out.slice([0, start], [1, 1], [start, here]), [out.slice([start, 0], [1, 1], [here, start]).transpose([1, 0])])
    return out


def _together(ctx: Any, v: Any) -> Any:
    """v, or a copy of it where neither rows nor columns of its matrices have neighbours in memory: kernels would read them one by one."""
    if nelements(v.shape) < _FEW:
        return v
    steps = [s for n, s in zip(v.shape[-2:], v.strides[-2:], strict=True) if n > 1]
    return ctx.copy(v) if steps and 1 not in steps and 0 not in v.strides else v


def _matmul_lower(ctx: Any, node: Node) -> Any:
    a, b = (ctx.view(x) for x in node.inputs)
    batch = node.shape[:-2]
    if _is_own_transpose(a, b):
        a = _together(ctx, a)
        return _symmetric(ctx, a, a.transpose([1, 0]))
    if node.shape[-2:] != (1, 1):               # single sums read what lies apart as it lies
        a, b = _together(ctx, a), _together(ctx, b)
    return ctx.emit("matmul", ctx.new(node.shape, a.dtype),
                    [a.broadcast(batch + a.shape[-2:]), b.broadcast(batch + b.shape[-2:])])


MATMUL = register(OpDef("matmul", "x y, the matrix product", _matmul_infer, _matmul_reference, arity=2,
                        vjp=_matmul_vjp, linear=(0, 1), lower=_matmul_lower, symbol="@", latex=r"{0} \, {1}",
                        cost=lambda node: 2 * node.size * node.inputs[0].shape[-1]))


# -- matmul --------------------------------------------------------------------------------------------------------

def _hint(x: Node, y: Node) -> str:
    """Transposed products that fit, when both operands have names or places to be called by."""
    if x.ndim < 2 or y.ndim < 2 or x.shape[:-2] != y.shape[:-2]:
        return ""
    names = [n.name if n.name is not None and n.name.isidentifier() else side for n, side in ((x, "left"), (y, "right"))]
    t = "T" if x.ndim == 2 else "mT"
    (p, q), (r, s) = x.shape[-2:], y.shape[-2:]
    fits = []
    if q == s:
        fits.append(f"{names[0]} @ {names[1]}.{t} has shape {format_shape((*x.shape[:-2], p, r))}")
    if p == r:
        fits.append(f"{names[0]}.{t} @ {names[1]} has shape {format_shape((*x.shape[:-2], q, s))}")
    if not fits and p == s:
        fits.append(f"{names[1]} @ {names[0]} has shape {format_shape((*x.shape[:-2], r, q))}")
    return "\nhint: " + ", ".join(fits) if fits else ""


@public
def matmul(x: Any, y: Any) -> Node:
    """The matrix product x @ y over the last two axes, by NumPy's rules.

    Shapes: [.., m, k] @ [.., k, n] -> [.., m, n], leading axes broadcast; a vector counts as a row on the left and as a
    column on the right, and that axis is left out of the result. Dtypes: all; integers wrap, bool is "or of ands".
    Raises ShapeError when inner sizes or leading axes do not fit, or for an operand without axes.
    """
    x, y = pair(x, y)
    if x.ndim == 0 or y.ndim == 0:
        raise located(ShapeError("an operand without axes is a scalar, not a matrix\nhint: x * y"), "matmul", (x, y))
    axis = max(y.ndim - 2, 0)
    if unify(x.shape[-1], y.shape[axis]) is None:
        raise located(ShapeError(_inner_sizes(x.shape[-1], x.ndim - 1, y.shape[axis], axis) + _hint(x, y)), "matmul", (x, y))
    if x.ndim == y.ndim == 2:
        return make(MATMUL, (x, y))
    a = reshape_to(x, (1, *x.shape)) if x.ndim == 1 else x
    b = reshape_to(y, (*y.shape, 1)) if y.ndim == 1 else y
    ndim = max(a.ndim, b.ndim)
    a = reshape_to(a, (1,) * (ndim - a.ndim) + a.shape)
    b = reshape_to(b, (1,) * (ndim - b.ndim) + b.shape)
    _check_batch(a, b, (x, y))
    out = make(MATMUL, (a, b))
    shape = out.shape
    if y.ndim == 1:
        shape = shape[:-1]
    if x.ndim == 1:
        shape = (*shape[:-2], shape[-1]) if y.ndim > 1 else shape[:-1]
    return reshape_to(out, shape)


# -- made of matmul ------------------------------------------------------------------------------------------------

@public
def dot(x: Any, y: Any) -> Node:
    """numpy.dot: the sum over the last axis of x and the last but one of y (the only one of a vector).

    Shapes: [.., k] and [.., k, n] -> x's other axes, then y's: with more than two axes this is not matmul. A scalar multiplies.
    """
    x, y = pair(x, y)
    if x.ndim == 0 or y.ndim == 0:
        return multiply(x, y)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y)
    return _contract(x, (x.ndim - 1,), y, (max(y.ndim - 2, 0),))


@public
def vdot(x: Any, y: Any) -> Node:
    """The sum of x y over all elements, both flattened; their numbers of elements must agree."""
    x, y = pair(x, y)
    return matmul(reshape_to(x, (nelements(x.shape),)), reshape_to(y, (nelements(y.shape),)))


@public
def inner(x: Any, y: Any) -> Node:
    """The sum over the last axis of both: x's other axes, then y's. A scalar multiplies."""
    x, y = pair(x, y)
    if x.ndim == 0 or y.ndim == 0:
        return multiply(x, y)
    return _contract(x, (x.ndim - 1,), y, (y.ndim - 1,))


@public
def outer(x: Any, y: Any) -> Node:
    """All products of an element of x and one of y, both flattened: shape [x.size, y.size]."""
    x, y = pair(x, y)
    return multiply(reshape_to(x, (nelements(x.shape), 1)), reshape_to(y, (1, nelements(y.shape))))


def _two(axes: Any) -> Any:
    try:
        first, second = axes
    except (TypeError, ValueError):
        raise NodeTypeError("axes is a number or two lists of axes") from None
    return first, second


@public
def tensordot(x: Any, y: Any, axes: Any = 2) -> Node:
    """The sum over pairs of axes: x's other axes, then y's.

    axes: n for the last n axes of x with the first n of y (0 gives the outer product), or two lists of axes of equal
    length. Raises ShapeError naming the axes whose sizes differ.
    """
    x, y = pair(x, y)
    if isinstance(axes, (int, np.integer)) and not isinstance(axes, bool):
        n = int(axes)
        if not 0 <= n <= min(x.ndim, y.ndim):
            raise ShapeError(f"axes={n} needs operands with at least {n} axes; they have {x.ndim} and {y.ndim}" if n >= 0
                             else f"axes must not be negative: {n}")
        return _contract(x, tuple(range(x.ndim - n, x.ndim)), y, tuple(range(n)))
    first, second = _two(axes)
    left = normalize_axes(tuple(np.atleast_1d(first).tolist()), x.ndim)
    right = normalize_axes(tuple(np.atleast_1d(second).tolist()), y.ndim)
    if len(left) != len(right):
        raise ShapeError(f"axes names {len(left)} axes of the left operand and {len(right)} of the right")
    return _contract(x, left, y, right)


def _contract(x: Node, left: tuple[int, ...], y: Node, right: tuple[int, ...]) -> Node:
    """The sum over the axes left[i] of x and right[i] of y, as one matrix product."""
    sizes = [unify(x.shape[i], y.shape[j]) for i, j in zip(left, right, strict=True)]
    for i, j, n in zip(left, right, sizes, strict=True):
        if n is None:
            raise ShapeError(f"summed sizes differ: left has {x.shape[i]} (axis {i}), right has {y.shape[j]} (axis {j})")
    x = taken_for(x, dict(zip(left, sizes, strict=True)), "summed sizes differ: left has {have} (axis {axis}), right has {size}")
    y = taken_for(y, dict(zip(right, sizes, strict=True)), "summed sizes differ: left has {size}, right has {have} (axis {axis})")
    rows = [i for i in range(x.ndim) if i not in left]
    columns = [j for j in range(y.ndim) if j not in right]
    over = tuple(x.shape[i] for i in left)
    kept, others = tuple(x.shape[i] for i in rows), tuple(y.shape[j] for j in columns)
    a = reshape_to(permute(x, (*rows, *left)), (nelements(kept), nelements(over)))
    b = reshape_to(permute(y, (*right, *columns)), (nelements(tuple(y.shape[j] for j in right)), nelements(others)))
    return reshape_to(make(MATMUL, (a, b)), kept + others)


@public
def kron(x: Any, y: Any) -> Node:
    """The Kronecker product: y scaled by every element of x, as blocks. The operand with fewer axes gets leading ones."""
    x, y = pair(x, y)
    ndim = max(x.ndim, y.ndim)
    p = (1,) * (ndim - x.ndim) + x.shape
    q = (1,) * (ndim - y.ndim) + y.shape
    left: list[Any] = []
    right: list[Any] = []
    for m, n in zip(p, q, strict=True):
        one = 1 in (m, n)                   # an axis of one of them only is one axis of the product
        left += [m] if one else [m, 1]
        right += [n] if one else [1, n]
    return reshape_to(multiply(reshape_to(x, tuple(left)), reshape_to(y, tuple(right))), tuple(m * n for m, n in zip(p, q, strict=True)))


__all__ = ["MATMUL", "dot", "inner", "kron", "matmul", "outer", "tensordot", "vdot"]
