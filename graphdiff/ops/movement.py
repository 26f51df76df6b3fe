"""Movement: ops that rearrange elements without computing. Each is a view when lowered, or copies into a view.

Primitives: reshape, transpose, broadcast_to, slice and its adjoint place, diagonal and its adjoint undiagonal. Everything else
here is composed of them; what joins arrays is in joining, what writes into slices in writing.
"""
from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Dim, dim_max, dim_min, shown, unify
from ..errors import NodeTypeError, OutOfBounds, ShapeError
from ..graph.build import as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import as_shape, broadcast, check_shape, format_shape, nelements, normalize_axes, normalize_axis, spreads, stretches

# -- reshape -------------------------------------------------------------------------------------------------------


def _reshape_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (shape,) = inputs, attrs
    have, want = nelements(x.shape), nelements(shape)
    if have != want and not (isinstance(have, Dim) or isinstance(want, Dim)):
        raise ShapeError(f"cannot reshape {format_shape(x.shape)} ({have} elements) into {format_shape(shape)} ({want} elements)")
    check_shape(shape, x.dtype)
    return shape, x.dtype


RESHAPE = register(OpDef("reshape", "x in C order under another shape", _reshape_infer, lambda x, *, shape: np.reshape(x, shape),
                         attr_names=("shape",), arity=1, family="movement", linear=(0,),
                         vjp=lambda g, node, needs: (reshape_to(g, node.inputs[0].shape),),
                         lower=lambda ctx, node: ctx.reshape(ctx.raw(node.inputs[0]), node.shape)))


def reshape_to(x: Node, shape: tuple[Any, ...]) -> Node:
    """reshape without -1."""
    return x if x.shape == shape else make(RESHAPE, (x,), (shape,))


@public
def reshape(x: Any, *shape: Any, order: str = "C") -> Node:
    """x's elements in C order under another shape; one size may be -1. Sizes may be named.

    Raises ShapeError when the numbers of elements differ. There is no other order than "C".
    """
    _in_c_order(order)
    x = as_node(x)
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, np.ndarray)):
        shape = tuple(shape[0])
    sizes = list(shape)
    unknown = [i for i, s in enumerate(sizes) if isinstance(s, (int, np.integer)) and s == -1]
    if len(unknown) > 1:
        raise ShapeError("only one size can be -1")
    if unknown:
        rest = as_shape([s for i, s in enumerate(sizes) if i != unknown[0]])
        total, known = nelements(x.shape), nelements(rest)
        if isinstance(known, int) and known == 0:
            raise ShapeError(f"cannot find the size for -1 beside a size 0 in {format_shape(tuple(sizes))}")
        if isinstance(total, int) and isinstance(known, int) and total % known:
            raise ShapeError(f"cannot reshape {format_shape(x.shape)} ({total} elements) into {format_shape(tuple(sizes))}")
        sizes[unknown[0]] = total // known
    return reshape_to(x, as_shape(sizes))


def _in_c_order(order: Any) -> None:
    if order != "C":
        raise NodeTypeError(f"order must be 'C', not {order!r}\nhint: reverse the axes before and after, gd.transpose")


# -- transpose -----------------------------------------------------------------------------------------------------

def _transpose_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (axes,) = inputs, attrs
    return tuple([x.shape[a] for a in axes]), x.dtype


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    back = [0] * len(axes)
    for i, a in enumerate(axes):
        back[a] = i
    return tuple(back)


TRANSPOSE = register(OpDef("transpose", "the axes in another order", _transpose_infer, lambda x, *, axes: np.transpose(x, axes),
                           attr_names=("axes",), arity=1, family="movement", linear=(0,), symbol="T",
                           vjp=lambda g, node, needs: (permute(g, _inverse(node._attrs[0])),),
                           lower=lambda ctx, node: ctx.raw(node.inputs[0]).transpose(node._attrs[0])))


def permute(x: Node, axes: Sequence[int]) -> Node:
    axes = tuple(axes)
    return x if axes == tuple(range(len(axes))) else make(TRANSPOSE, (x,), (axes,))


@public
def transpose(x: Any, axes: Any = None) -> Node:
    """Axis i of the result is axis axes[i] of x; None reverses them."""
    x = as_node(x)
    if axes is None:
        return permute(x, range(x.ndim - 1, -1, -1))
    order = normalize_axes(list(axes) if isinstance(axes, (range, np.ndarray)) else axes, x.ndim)
    if len(order) != x.ndim:
        raise ShapeError(f"axes {axes} do not name each of the {x.ndim} axes once")
    return permute(x, order)


permute_dims = transpose


@public
def swapaxes(x: Any, axis1: int, axis2: int) -> Node:
    """x with two axes exchanged."""
    x = as_node(x)
    a, b = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


@public
def moveaxis(x: Any, source: Any, destination: Any) -> Node:
    """x with axes moved to new positions, the others in their order."""
    x = as_node(x)
    src, dst = normalize_axes(source, x.ndim), normalize_axes(destination, x.ndim)
    if len(src) != len(dst):
        raise ShapeError("source and destination name different numbers of axes")
    order = [i for i in range(x.ndim) if i not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return permute(x, order)


@public
def matrix_transpose(x: Any) -> Node:
    """The last two axes exchanged."""
    x = as_node(x)
    if x.ndim < 2:
        raise ShapeError("needs at least two axes")
    return swapaxes(x, -1, -2)


# -- broadcast -----------------------------------------------------------------------------------------------------

def _broadcast_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (shape,) = inputs, attrs
    if not spreads(x.shape, shape):
        raise ShapeError(f"cannot broadcast {format_shape(x.shape)} to {format_shape(shape)}")
    check_shape(shape, x.dtype)
    return shape, x.dtype


BROADCAST_TO = register(OpDef("broadcast_to", "x repeated along new and size-1 axes", _broadcast_infer,
                              lambda x, *, shape: np.broadcast_to(x, shape), attr_names=("shape",), arity=1, family="movement",
                              linear=(0,), vjp=lambda g, node, needs: (sum_to(g, node.inputs[0].shape),),
                              lower=lambda ctx, node: ctx.raw(node.inputs[0]).broadcast(node.shape)))


def expand_to(x: Node, shape: tuple[Any, ...]) -> Node:
    """broadcast_to a shape that is already checked."""
    return x if x.shape == shape else make(BROADCAST_TO, (x,), (shape,))


def _taken_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (sizes, refusal) = inputs, attrs
    shape = list(x.shape)
    for axis, size in sizes:
        have, shape[axis] = shape[axis], size
        if unify(have, size) is None:
            raise ShapeError(refusal.format(axis=axis, have=shown(have), size=shown(size)))
    return tuple(shape), x.dtype


def _taken_vjp(g: Node, node: Node, needs: Any) -> Any:
    sizes, refusal = node._attrs
    back = refusal.format(axis="{axis}", have="{size}", size="{have}")
    return (taken_for(g, {axis: node.inputs[0].shape[axis] for axis, _ in sizes}, back),)


# Only beside sizes with names: where these are numbers (passes/concrete.py) what is left is x.
TAKEN_FOR: OpDef = register(OpDef("taken_for", "x, of whose sizes some are taken for others", _taken_infer, lambda x, *, sizes, refusal: x,
                                  attr_names=("sizes", "refusal"), arity=1, family="movement", linear=(0,), vjp=_taken_vjp,
                                  lower=lambda ctx, node: ctx.raw(node.inputs[0])))


def taken_for(x: Node, sizes: dict[int, Any], refusal: str) -> Node:
    """x with the sizes of some axes taken for others that they may turn out to be, which is checked again when they are numbers. refusal: what
    a ShapeError says if they are not, with places for {axis}, the {size} needed and the one x has ({have})."""
    other = tuple([(axis, size) for axis, size in sizes.items() if x.shape[axis] != size])
    _taken_infer((x,), (other, refusal))            # here, since `make` would call it taken_for
    return make(TAKEN_FOR, (x,), (other, refusal)) if other else x


@public
def broadcast_to(x: Any, shape: Any) -> Node:
    """x broadcast to a shape, by NumPy's rules. Raises ShapeError when it does not fit."""
    return expand_to(as_node(x), as_shape(shape))


@public
def broadcast_arrays(*xs: Any) -> list[Node]:
    """Every operand broadcast to the common shape."""
    nodes = [as_node(x) for x in xs]
    shape = broadcast(*[x.shape for x in nodes])
    return [expand_to(x, shape) for x in nodes]


def sum_to(x: Node, shape: tuple[Any, ...]) -> Node:
    """Undo broadcasting: sum over the axes that `shape` lacks or has as 1."""
    if x.shape == shape:
        return x
    from .reduction import sum_axes
    lead = len(x.shape) - len(shape)
    axes = [*range(lead), *[lead + i for i, n in enumerate(shape) if stretches(n) and x.shape[lead + i] not in (1, n)]]
    x = taken_for(x, {lead + i: n for i, n in enumerate(shape) if not stretches(n)}, "sizes {size} and {have} (axis {axis}) do not broadcast")
    s = sum_axes(x, tuple(axes), False) if axes else x
    summed = [i for i, n in enumerate(shape) if isinstance(n, Dim) and lead + i in axes]
    if not summed:
        return reshape_to(s, shape)
    s = reshape_to(s, tuple([1 if i in summed else n for i, n in enumerate(shape)]))
    return slice_axes(s, (0,) * s.ndim, (1,) * s.ndim, shape)           # of min(n, 1) elements none may be there


# -- slice and place -----------------------------------------------------------------------------------------------

def check_inside(shape: Any, starts: Any, steps: Any, sizes: Any) -> None:
    for axis, (size, a, s, n) in enumerate(zip(shape, starts, steps, sizes, strict=True)):
        # With named sizes this is first known when a function meets real arrays.
        if isinstance(size, int) and isinstance(a, int) and isinstance(n, int) and n:
            last = a + s * (n - 1)
            if n == 1 and s == 1 and not 0 <= a < size:         # x[i]
                raise OutOfBounds(f"index {a if a >= 0 else a - size} is out of bounds for axis {axis} with size {size}")
            if not (0 <= a < size and 0 <= last < size):
                raise ShapeError(f"element {a if not 0 <= a < size else last} of axis {axis} is asked for, which has size {size}")


def _slice_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    check_inside(inputs[0].shape, *attrs)
    return attrs[2], inputs[0].dtype


def index_of(starts: Any, steps: Any, sizes: Any) -> tuple[Any, ...]:
    """Python slices that pick start, start + step, ... size times, also for a negative step."""
    out = []
    for a, s, n in zip(starts, steps, sizes, strict=True):
        if n == 0:
            out.append(builtins.slice(0, 0))
        else:
            stop = a + s * n
            out.append(builtins.slice(a, stop if stop >= 0 else None, s))
    return tuple(out)


def _place_reference(x: Any, *, shape: Any, starts: Any, steps: Any, fill: float) -> Any:
    out = np.full(shape, fill, x.dtype)
    out[index_of(starts, steps, x.shape)] = x
    return out


def _place_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    check_shape(attrs[0], inputs[0].dtype)
    check_inside(attrs[0], attrs[1], attrs[2], inputs[0].shape)
    return attrs[0], inputs[0].dtype


def placed(ctx: Any, x: Any, shape: Any, starts: Any, steps: Any, fill: float) -> Any:
    """A view of an array of `shape` with x in it, and `fill` elsewhere."""
    out = ctx.new(shape, x.dtype)
    around = rims(shape, starts, steps, x.shape)
    # A copy costs as much as writing so many bytes.
    whole = nelements(x.shape) * x.dtype.itemsize < 2048 * len(around or ())
    for part in [out] if around is None or whole else [out.slice(*rim) for rim in around]:
        ctx.fill(part, fill)
    ctx.emit("copy", out.slice(starts, steps, x.shape), [x])
    return out


def _place_lower(ctx: Any, node: Node) -> Any:
    return placed(ctx, ctx.raw(node.inputs[0]), *node._attrs)


def rims(shape: Any, starts: Any, steps: Any, sizes: Any) -> list[tuple[list[int], list[int], list[int]]] | None:
    """What an array of `shape` has round a block of neighbours, as slices that do not overlap; None: what is placed is no such block."""
    if any(abs(s) != 1 for s in steps) or 0 in sizes:
        return None
    rims = []
    begin, extent = [0] * len(shape), list(shape)
    for axis, (size, a, s, n) in enumerate(zip(shape, starts, steps, sizes, strict=True)):
        low = a if s > 0 else a - n + 1
        for first, count in ((0, low), (low + n, size - low - n)):
            if count:
                rims.append(([*begin[:axis], first, *begin[axis + 1:]], [1] * len(shape), [*extent[:axis], count, *extent[axis + 1:]]))
        begin[axis], extent[axis] = low, n
    return rims


SLICE = register(OpDef("slice", "elements start, start + step, ... along every axis", _slice_infer,
                       lambda x, *, starts, steps, sizes: np.asarray(x)[index_of(starts, steps, sizes)],
                       attr_names=("starts", "steps", "sizes"), arity=1, family="movement", linear=(0,), symbol="[:]",
                       vjp=lambda g, node, needs: (place(g, node.inputs[0].shape, node._attrs[0], node._attrs[1]),),
                       lower=lambda ctx, node: ctx.raw(node.inputs[0]).slice(*node._attrs)))
PLACE = register(OpDef("place", "x put at start, start + step, ... of an array of fill values", _place_infer, _place_reference,
                       attr_names=("shape", "starts", "steps", "fill"), arity=1, family="movement",
                       vjp=lambda g, node, needs: (slice_axes(g, node._attrs[1], node._attrs[2], node.inputs[0].shape),),
                       jvp=lambda tangents, node: place(tangents[0], *node._attrs[:3]), lower=_place_lower))


def is_whole(shape: Any, starts: Any, steps: Any, sizes: Any) -> bool:
    """Is a slice all of an array of this shape, in order?"""
    return tuple(sizes) == tuple(shape) and not any(isinstance(a, Dim) or a for a in starts) and all(s == 1 for s in steps)


def slice_axes(x: Node, starts: Any, steps: Any, sizes: Any) -> Node:
    """The slice primitive; every argument one entry an axis, already normalised."""
    starts, steps, sizes = tuple(starts), tuple(steps), tuple(sizes)
    if is_whole(x.shape, starts, steps, sizes):
        return x
    return make(SLICE, (x,), (starts, steps, sizes))


def place(x: Node, shape: Any, starts: Any, steps: Any, fill: float = 0.0) -> Node:
    """The adjoint of slice_axes (with fill = 0)."""
    if is_whole(shape, starts, steps, x.shape):
        return x
    return make(PLACE, (x,), (tuple(shape), tuple(starts), tuple(steps), fill))


def cut(x: Node, axis: int, start: Any, size: Any, step: int = 1) -> Node:
    """A slice along one axis."""
    starts, steps, sizes = [0] * x.ndim, [1] * x.ndim, list(x.shape)
    starts[axis], steps[axis], sizes[axis] = start, step, size
    return slice_axes(x, starts, steps, sizes)


@public
def flip(x: Any, axis: Any = None) -> Node:
    """Elements in reverse order along the axes (all of them by default)."""
    x = as_node(x)
    axes = range(x.ndim) if axis is None else normalize_axes(axis, x.ndim)
    starts, steps = [0] * x.ndim, [1] * x.ndim
    for a in axes:
        starts[a], steps[a] = x.shape[a] - 1, -1
    return slice_axes(x, starts, steps, x.shape) if axes else x


@public
def fliplr(x: Any) -> Node:
    """The second axis reversed."""
    return flip(x, 1)


@public
def flipud(x: Any) -> Node:
    """The first axis reversed."""
    return flip(x, 0)


# -- shapes by reshape ---------------------------------------------------------------------------------------------

@public
def squeeze(x: Any, axis: Any = None) -> Node:
    """x without axes of size 1 (all of them, or those given; an axis of a named size stays unless it is given, whatever the size turns out to be)."""
    x = as_node(x)
    if axis is None:
        axes = [i for i, n in enumerate(x.shape) if stretches(n)]
    elif x.ndim == 0 and isinstance(axis, (int, np.integer)):
        normalize_axis(axis, 1)             # NumPy lets it pass
        return x
    else:
        axes = list(normalize_axes(axis, x.ndim))
        x = taken_for(x, dict.fromkeys(axes, 1), "cannot squeeze axis {axis} of size {have}")
    return reshape_to(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


@public
def expand_dims(x: Any, axis: Any) -> Node:
    """x with new axes of size 1 at the given positions of the result."""
    x = as_node(x)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    where = normalize_axes(axes, x.ndim + len(axes))
    rest = iter(x.shape)
    return reshape_to(x, tuple(1 if i in where else next(rest) for i in range(x.ndim + len(axes))))


@public
def ravel(x: Any, order: str = "C") -> Node:
    """x as one axis, in C order."""
    return reshape(x, -1, order=order)


def at_least(x: Node, n: int) -> Node:
    return reshape_to(x, (1,) * (n - x.ndim) + x.shape) if x.ndim < n else x


@public
def atleast_1d(*xs: Any) -> Any:
    """x with one axis if it has none; several operands give a tuple."""
    out = tuple([at_least(as_node(x), 1) for x in xs])
    return out[0] if len(out) == 1 else out


@public
def atleast_2d(*xs: Any) -> Any:
    """x with two axes at least, new ones of size 1 in front; several operands give a tuple."""
    out = tuple([at_least(as_node(x), 2) for x in xs])
    return out[0] if len(out) == 1 else out


# -- diagonals -----------------------------------------------------------------------------------------------------

def _diagonal_length(n1: Any, n2: Any, offset: int) -> Any:
    return dim_max(dim_min(n1 + builtins.min(offset, 0), n2 - builtins.max(offset, 0)), 0)


def _diagonal_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (x,), (axis1, axis2, offset) = inputs, attrs
    n = _diagonal_length(x.shape[axis1], x.shape[axis2], offset)
    return (*[s for i, s in enumerate(x.shape) if i not in (axis1, axis2)], n), x.dtype


def _undiagonal_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    check_shape(attrs[0], inputs[0].dtype)
    return attrs[0], inputs[0].dtype


def _undiagonal_reference(x: Any, *, shape: Any, axis1: int, axis2: int, offset: int) -> Any:
    out = np.zeros(shape, x.dtype)
    moved = np.moveaxis(out, (axis1, axis2), (-2, -1))
    i = np.arange(x.shape[-1])
    moved[..., i - min(offset, 0), i + max(offset, 0)] = x
    return out


def _undiagonal_lower(ctx: Any, node: Node) -> Any:
    shape, axis1, axis2, offset = node._attrs
    out = ctx.fill(ctx.new(shape, node.dtype), 0)
    ctx.emit("copy", out.diagonal(axis1, axis2, offset), [ctx.raw(node.inputs[0])])
    return out


DIAGONAL = register(OpDef("diagonal", "the diagonal of two axes, as a last axis", _diagonal_infer,
                          lambda x, *, axis1, axis2, offset: np.diagonal(x, offset, axis1, axis2), family="movement",
                          attr_names=("axis1", "axis2", "offset"), arity=1, linear=(0,),
                          vjp=lambda g, node, needs: (make(UNDIAGONAL, (g,), (node.inputs[0].shape, *node._attrs)),),
                          lower=lambda ctx, node: ctx.raw(node.inputs[0]).diagonal(*node._attrs)))
UNDIAGONAL: OpDef = register(OpDef("undiagonal", "x on the diagonal of two axes of zeros", _undiagonal_infer, _undiagonal_reference,
                            attr_names=("shape", "axis1", "axis2", "offset"), arity=1, family="movement", linear=(0,),
                            vjp=lambda g, node, needs: (make(DIAGONAL, (g,), node._attrs[1:]),), lower=_undiagonal_lower))


def whole_diagonal(k: Any) -> int:
    if isinstance(k, (np.bool_, Node)) or not hasattr(k, "__index__"):
        raise NodeTypeError(f"the number of a diagonal is a whole number, not {k!r}")
    return int(k.__index__())


@public
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """The diagonal of two axes as the last axis, as numpy.diagonal."""
    x = as_node(x)
    if x.ndim < 2:
        raise ShapeError("needs at least two axes")
    a, b = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    if a == b:
        raise ShapeError(f"axis1 and axis2 are both {a}")
    return make(DIAGONAL, (x,), (a, b, whole_diagonal(offset)))


@public
def diag(x: Any, k: int = 0) -> Node:
    """The k-th diagonal of a matrix, or a matrix with the vector x on it."""
    x = as_node(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError("needs one or two axes")
    k = whole_diagonal(k)
    n = x.shape[0] + builtins.abs(k)
    return make(UNDIAGONAL, (x,), ((n, n), 0, 1, int(k)))


@public
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Node:
    """The sum along the diagonal, of dtype's elements as by sum."""
    from .reduction import sum
    return sum(diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)
