"""Movement: ops that rearrange elements without computing. Each is a view when lowered, or copies into a view.

Primitives: reshape, transpose, broadcast_to, slice and its adjoint place, concatenate, diagonal and its adjoint
undiagonal. Everything else here is composed of them.
"""
from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Dim, dim_max, dim_min
from ..dtypes import BOOL, FLOAT64, INT64, PROMOTE, as_dtype, converted, weak
from ..errors import GraphdiffError, NodeTypeError, OutOfBounds, ShapeError
from ..graph.build import as_node, make, make_constant, public, scalar
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import as_shape, broadcast, check_memory, check_shape, format_shape, nelements, normalize_axes, normalize_axis, slice_forward, stretches
from .families import cast, flag

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
    if len(x.shape) > len(shape) or broadcast(x.shape, shape) != shape:
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
    s = sum_axes(x, tuple(axes), False) if axes else x
    summed = [i for i, n in enumerate(shape) if isinstance(n, Dim) and lead + i in axes]
    if not summed:
        return reshape_to(s, shape)
    s = reshape_to(s, tuple([1 if i in summed else n for i, n in enumerate(shape)]))
    return slice_axes(s, (0,) * s.ndim, (1,) * s.ndim, shape)           # of min(n, 1) elements none may be there


# -- slice and place -----------------------------------------------------------------------------------------------

def _slice_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    for axis, (size, a, s, n) in enumerate(zip(inputs[0].shape, *attrs, strict=True)):
        # With named sizes this is first known when a function meets real arrays.
        if isinstance(size, int) and isinstance(a, int) and isinstance(n, int) and n:
            last = a + s * (n - 1)
            if n == 1 and s == 1 and not 0 <= a < size:         # x[i]
                raise OutOfBounds(f"index {a if a >= 0 else a - size} is out of bounds for axis {axis} with size {size}")
            if not (0 <= a < size and 0 <= last < size):
                raise ShapeError(f"element {a if not 0 <= a < size else last} of axis {axis} is asked for, which has size {size}")
    return attrs[2], inputs[0].dtype


def _index(starts: Any, steps: Any, sizes: Any) -> tuple[Any, ...]:
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
    out[_index(starts, steps, x.shape)] = x
    return out


def _place_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    check_shape(attrs[0], inputs[0].dtype)
    return attrs[0], inputs[0].dtype


def _place_lower(ctx: Any, node: Node) -> Any:
    shape, starts, steps, fill = node._attrs
    x = ctx.raw(node.inputs[0])
    out = ctx.fill(ctx.new(shape, node.dtype), fill)
    ctx.emit("copy", out.slice(starts, steps, x.shape), [x])
    return out


SLICE = register(OpDef("slice", "elements start, start + step, ... along every axis", _slice_infer,
                       lambda x, *, starts, steps, sizes: np.asarray(x)[_index(starts, steps, sizes)],
                       attr_names=("starts", "steps", "sizes"), arity=1, family="movement", linear=(0,), symbol="[:]",
                       vjp=lambda g, node, needs: (place(g, node.inputs[0].shape, node._attrs[0], node._attrs[1]),),
                       lower=lambda ctx, node: ctx.raw(node.inputs[0]).slice(*node._attrs)))
PLACE = register(OpDef("place", "x put at start, start + step, ... of an array of fill values", _place_infer, _place_reference,
                       attr_names=("shape", "starts", "steps", "fill"), arity=1, family="movement",
                       vjp=lambda g, node, needs: (slice_axes(g, node._attrs[1], node._attrs[2], node.inputs[0].shape),),
                       jvp=lambda tangents, node: place(tangents[0], *node._attrs[:3]), lower=_place_lower))


def slice_axes(x: Node, starts: Any, steps: Any, sizes: Any) -> Node:
    """The slice primitive; every argument one entry an axis, already normalised."""
    starts, steps, sizes = tuple(starts), tuple(steps), tuple(sizes)
    if sizes == x.shape and not any(isinstance(a, Dim) or a for a in starts) and all(s == 1 for s in steps):
        return x
    return make(SLICE, (x,), (starts, steps, sizes))


def place(x: Node, shape: Any, starts: Any, steps: Any, fill: float = 0.0) -> Node:
    """The adjoint of slice_axes (with fill = 0)."""
    if tuple(shape) == x.shape and not any(isinstance(a, Dim) or a for a in starts) and all(s == 1 for s in steps):
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


@public
def roll(x: Any, shift: Any, axis: Any = None) -> Node:
    """Elements moved `shift` places along the axis, those that fall off come back at the other end. Several shifts and axes go
    together in pairs; one of either goes with each of the other."""
    x = as_node(x)
    if axis is None:
        return reshape_to(roll(reshape(x, -1), shift, 0), x.shape)
    axes = [normalize_axis(a, x.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    for s in shifts:
        if isinstance(s, Node) or not (hasattr(s, "__index__") or isinstance(s, Dim)):
            raise NodeTypeError(f"shift must be whole numbers, not {s!r}")
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        raise ShapeError(f"{len(shifts)} shifts do not fit {len(axes)} axes")
    count = builtins.max(len(shifts), len(axes)) if shifts and axes else 0
    total: dict[int, Any] = {}          # an axis given twice is moved by the sum of its shifts
    for i in range(count):
        a, s = axes[i % len(axes)], shifts[i % len(shifts)]
        total[a] = total.get(a, 0) + (s if isinstance(s, Dim) else s.__index__())
    for a, s in total.items():
        n = x.shape[a]
        if isinstance(n, int) and n == 0:
            continue
        k = s % dim_max(n, 1)           # a named size may turn out to be 0
        if isinstance(k, int) and k == 0:
            continue
        x = concatenate([cut(x, a, n - k, k), cut(x, a, 0, n - k)], a)
    return x


# -- concatenate ---------------------------------------------------------------------------------------------------

def _concatenate_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    (axis,) = attrs
    first = inputs[0]
    total: Any = 0
    for i, x in enumerate(inputs):
        if len(x.shape) != len(first.shape):
            raise ShapeError(f"operand 0 has {len(first.shape)} axes, operand {i} has {len(x.shape)}")
        for a, (n, m) in enumerate(zip(first.shape, x.shape, strict=True)):
            if a != axis and n != m and isinstance(n, int) and isinstance(m, int):
                raise ShapeError(f"sizes differ along axis {a}: operand 0 has {n}, operand {i} has {m}")
        total = total + x.shape[axis]
    shape = (*first.shape[:axis], total, *first.shape[axis + 1:])
    check_shape(shape, first.dtype)
    return shape, first.dtype


def _concatenate_vjp(g: Node, node: Node, needs: Any) -> Any:
    (axis,) = node._attrs
    out, start = [], 0
    for x, need in zip(node.inputs, needs, strict=True):
        n = x.shape[axis]
        out.append(cut(g, axis, start, n) if need else None)
        start = start + n
    return tuple(out)


def _concatenate_jvp(tangents: Any, node: Node) -> Node:
    parts = [zeros_like(x) if t is None else t for t, x in zip(tangents, node.inputs, strict=True)]
    return make(CONCATENATE, tuple(parts), node._attrs)


def _concatenate_lower(ctx: Any, node: Node) -> Any:
    (axis,) = node._attrs
    out = ctx.new(node.shape, node.dtype)
    starts, ones = [0] * node.ndim, [1] * node.ndim
    for x in node.inputs:
        v = ctx.raw(x)
        if v.shape[axis]:
            ctx.emit("copy", out.slice(starts, ones, v.shape), [v])
        starts[axis] += v.shape[axis]
    return out


CONCATENATE = register(OpDef("concatenate", "operands one after the other along an axis", _concatenate_infer,
                             lambda *xs, axis: np.concatenate(xs, axis), attr_names=("axis",), family="movement",
                             vjp=_concatenate_vjp, jvp=_concatenate_jvp, lower=_concatenate_lower))


def _same_dtype(xs: Sequence[Any], dtype: Any = None) -> list[Node]:
    like = next((x.dtype for x in xs if isinstance(x, Node)), None)
    nodes = [as_node(x, like) for x in xs]
    if not nodes:
        raise ShapeError("needs at least one operand")
    if dtype is not None:
        return [cast(x, as_dtype(dtype)) for x in nodes]
    dtype = nodes[0].dtype
    for x in nodes[1:]:
        dtype = PROMOTE[dtype, x.dtype]
    return [cast(x, dtype) for x in nodes]


def _operands(xs: Any) -> list[Any]:
    if isinstance(xs, Node):
        return list(xs)
    return list(xs)


def _several(xs: Any) -> Any:
    """What is joined: a sequence, or an array or node, along its first axis."""
    if isinstance(xs, (list, tuple)) or (isinstance(xs, (Node, np.ndarray)) and xs.ndim):
        return xs
    try:
        return list(xs)
    except TypeError:
        raise NodeTypeError(f"a list of operands is needed, not {type(xs).__name__}") from None


@public
def concatenate(xs: Any, axis: int | None = 0, *, dtype: Any = None) -> Node:
    """Operands joined along an existing axis; None flattens them first. Other sizes must agree (ShapeError names the axis).

    dtype: of the result; the operands' common one by default.
    """
    nodes = _same_dtype(_operands(_several(xs)), dtype)
    if axis is None:
        nodes, axis = [reshape(x, -1) for x in nodes], 0
    if nodes[0].ndim == 0:
        raise ShapeError("zero-dimensional operands cannot be joined\nhint: gd.stack([...]) makes a new axis")
    axis = normalize_axis(axis, nodes[0].ndim)
    return nodes[0] if len(nodes) == 1 else make(CONCATENATE, tuple(nodes), (axis,))


concat = concatenate


@public
def stack(xs: Any, axis: int = 0, *, dtype: Any = None) -> Node:
    """Operands of one shape joined along a new axis. dtype: as for concatenate."""
    nodes = _same_dtype(_operands(_several(xs)), dtype)
    for i, x in enumerate(nodes):
        if x.shape != nodes[0].shape and all(isinstance(n, int) for n in (*x.shape, *nodes[0].shape)):
            raise ShapeError(f"all operands must have one shape: operand 0 has {format_shape(nodes[0].shape)}, "
                             f"operand {i} has {format_shape(x.shape)}")
    axis = normalize_axis(axis, nodes[0].ndim + 1)
    return concatenate([expand_dims(x, axis) for x in nodes], axis)


def _at_least(x: Node, n: int) -> Node:
    return reshape_to(x, (1,) * (n - x.ndim) + x.shape) if x.ndim < n else x


@public
def vstack(xs: Any, *, dtype: Any = None) -> Node:
    """Rows on top of each other."""
    return concatenate([_at_least(as_node(x), 2) for x in _several(xs)], 0, dtype=dtype)


@public
def hstack(xs: Any, *, dtype: Any = None) -> Node:
    """Side by side: along the second axis, or the first of vectors."""
    nodes = [_at_least(as_node(x), 1) for x in _several(xs)]
    return concatenate(nodes, 0 if nodes and nodes[0].ndim == 1 else 1, dtype=dtype)


@public
def dstack(xs: Any) -> Node:
    """Along the third axis."""
    nodes = []
    for x in _several(xs):
        x = _at_least(as_node(x), 1)
        nodes.append(reshape_to(x, (1, *x.shape, 1)) if x.ndim == 1 else reshape_to(x, (*x.shape, 1)) if x.ndim == 2 else x)
    return concatenate(nodes, 2)


@public
def column_stack(xs: Any) -> Node:
    """Vectors as columns of a matrix."""
    nodes = []
    for x in _several(xs):
        x = as_node(x)
        nodes.append(reshape_to(x, (nelements(x.shape), 1)) if x.ndim < 2 else x)
    return concatenate(nodes, 1)


MAX_PARTS = 10**6            # every part is a node of its own


def _positions(at: Any) -> list[Any]:
    """Where to split: whole numbers and sizes."""
    places = list(at) if isinstance(at, (list, tuple, range, np.ndarray)) and np.ndim(at) == 1 else None
    if places is None or not all(isinstance(i, Dim) or (hasattr(i, "__index__") and not isinstance(i, Node)) for i in places):
        raise NodeTypeError(f"a number of sections or a list of positions, whole numbers, is needed, not {at!r}")
    return places


@public
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """Parts along an axis: at the given positions, or so many nearly equal ones."""
    x = as_node(x)
    axis = normalize_axis(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        k = int(indices_or_sections)
        if not 0 < k <= MAX_PARTS:
            raise ShapeError(f"the number of sections must be from 1 to {MAX_PARTS}, not {k}")
        sizes = [(n + k - 1 - i) // k for i in range(k)]
        edges = list(itertools.accumulate(sizes, initial=0))
    elif isinstance(n, int):
        edges = [0, *[i if isinstance(i, Dim) else builtins.slice(None, int(i)).indices(n)[1] for i in _positions(indices_or_sections)], n]
    else:
        bounds = [0, *[i if isinstance(i, Dim) else int(i) for i in _positions(indices_or_sections)], None]
        return [cut(x, axis, *slice_forward(a, b, n)) for a, b in itertools.pairwise(bounds)]
    return [cut(x, axis, a, b - a if isinstance(b - a, Dim) else max(0, b - a)) for a, b in itertools.pairwise(edges)]


@public
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """As array_split, but a number of sections must divide the size."""
    x = as_node(x)
    n = x.shape[normalize_axis(axis, x.ndim)]
    if isinstance(indices_or_sections, (int, np.integer)) and indices_or_sections > 0:
        if isinstance(n, int) and n % indices_or_sections:
            raise ShapeError(f"{n} elements along axis {axis} do not divide into {indices_or_sections} equal parts")
        if not isinstance(n, int):          # the reshape is where a size that does not divide is found
            axis, k = normalize_axis(axis, x.ndim), int(indices_or_sections)
            rows = reshape_to(x, (*x.shape[:axis], k, n // k, *x.shape[axis + 1:]))
            return [reshape_to(cut(rows, axis, i, 1), (*x.shape[:axis], n // k, *x.shape[axis + 1:])) for i in range(k)]
    return array_split(x, indices_or_sections, axis)


# -- shapes by reshape ---------------------------------------------------------------------------------------------

@public
def squeeze(x: Any, axis: Any = None) -> Node:
    """x without axes of size 1 (all of them, or those named)."""
    x = as_node(x)
    if axis is None:
        axes = [i for i, n in enumerate(x.shape) if stretches(n)]
    elif x.ndim == 0 and isinstance(axis, (int, np.integer)):
        normalize_axis(axis, 1)             # NumPy lets it pass
        return x
    else:
        axes = list(normalize_axes(axis, x.ndim))
        for a in axes:
            if isinstance(x.shape[a], int) and x.shape[a] != 1:
                raise ShapeError(f"cannot squeeze axis {a} of size {x.shape[a]}")
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


@public
def atleast_1d(*xs: Any) -> Any:
    """x with one axis if it has none; several operands give a tuple."""
    out = tuple([_at_least(as_node(x), 1) for x in xs])
    return out[0] if len(out) == 1 else out


@public
def atleast_2d(*xs: Any) -> Any:
    """x with two axes at least, new ones of size 1 in front; several operands give a tuple."""
    out = tuple([_at_least(as_node(x), 2) for x in xs])
    return out[0] if len(out) == 1 else out


def _times(r: Any) -> Any:
    """How often something is repeated: a number or a size."""
    if isinstance(r, Dim):
        return r
    if isinstance(r, Node) or not hasattr(r, "__index__"):
        raise NodeTypeError(f"repeats are whole numbers, not {r!r}")
    if r < 0:
        raise ShapeError(f"repeats must not be negative: {r}")
    return int(r.__index__())


@public
def tile(x: Any, reps: Any) -> Node:
    """x repeated reps[i] times along axis i."""
    x = as_node(x)
    reps = tuple([_times(r) for r in ((reps,) if np.ndim(reps) == 0 else reps)])
    n = max(x.ndim, len(reps))
    x = _at_least(x, n)
    reps = (1,) * (n - len(reps)) + reps
    spread: list[Any] = []
    for size, r in zip(x.shape, reps, strict=True):
        spread += [r, size]
    lifted = reshape_to(x, tuple(v for size in x.shape for v in (1, size)))
    return reshape_to(expand_to(lifted, tuple(spread)), tuple(size * r for size, r in zip(x.shape, reps, strict=True)))


@public
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Node:
    """Every element `repeats` times in a row along an axis; None flattens first. An array gives each its own number."""
    x = as_node(x)
    if axis is None or (x.ndim == 0 and isinstance(axis, (int, np.integer))):      # a scalar counts as a vector of one element
        x, axis = reshape(x, -1), 0 if axis is None else normalize_axis(axis, 1)
    axis = normalize_axis(axis, x.ndim)
    if not isinstance(repeats, (Node, Dim)) and np.size(repeats) == 1:
        repeats = np.asarray(repeats).reshape(())[()]
    if np.ndim(repeats) == 0:
        r = _times(repeats)
        lifted = reshape_to(x, (*x.shape[:axis + 1], 1, *x.shape[axis + 1:]))
        wide = expand_to(lifted, (*x.shape[:axis + 1], r, *x.shape[axis + 1:]))
        return reshape_to(wide, (*x.shape[:axis], x.shape[axis] * r, *x.shape[axis + 1:]))
    from .indexing import take
    counts = np.asarray(repeats)
    if counts.shape != (x.shape[axis],) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ShapeError(f"repeats must be {x.shape[axis]} whole numbers >= 0")
    check_memory((builtins.sum(counts.tolist()),), INT64)
    return take(x, np.repeat(np.arange(len(counts)), counts), axis=axis)


def _pairs(value: Any, ndim: int, what: str, one: str) -> list[Any]:
    """(before, after) for every axis."""
    if not isinstance(value, Node):
        try:
            return np.broadcast_to(np.asarray(value), (ndim, 2)).tolist()
        except (ValueError, TypeError):
            pass
    raise ShapeError(f"{what} is {one}, (before, after), or one such pair for each of {ndim} axes, not {value!r}")


@public
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Node:
    """x with elements added before and after along every axis, as numpy.pad.

    pad_width: an int, (before, after), or one pair an axis. mode: constant, edge, reflect, symmetric or wrap.
    """
    x = as_node(x)
    width = _pairs(pad_width, x.ndim, "pad_width", "an int")
    numbers = np.asarray(pad_width).reshape(-1).tolist()
    if any(type(n) is not int for n in numbers):
        raise NodeTypeError(f"pad widths must be whole numbers, not {pad_width!r}")
    if any(n < 0 for n in numbers):
        raise ShapeError("pad widths must not be negative")
    if mode == "constant":
        shape = tuple(n + a + b for n, (a, b) in zip(x.shape, width, strict=True))
        if np.asarray(constant_values).dtype.kind not in "biuf":
            raise NodeTypeError(f"constant_values must be numbers, not {constant_values!r}")
        if np.ndim(constant_values) == 0:
            fill = float(constant_values) if x.dtype.kind == "f" else int(constant_values)
            weak(fill, x.dtype)         # raises where the dtype cannot hold it
            return place(x, shape, [a for a, _ in width], [1] * x.ndim, fill)
        values = _pairs(constant_values, x.ndim, "constant_values", "a number")
        for axis, (a, b) in enumerate(width):
            parts = [full((*x.shape[:axis], n, *x.shape[axis + 1:]), v, x.dtype) for n, v in zip((a, b), values[axis], strict=True)]
            x = concatenate([parts[0], x, parts[1]], axis)
        return x
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise NodeTypeError(f"mode {mode!r} is not one of constant, edge, reflect, symmetric, wrap")
    from .indexing import take
    for axis, (a, b) in enumerate(width):
        if a or b:
            n = x.shape[axis]
            if not isinstance(n, int):
                raise ShapeError(f"mode {mode!r} needs a known size along axis {axis}, not {n}")
            if n == 0:
                raise ShapeError(f"mode {mode!r} cannot extend axis {axis} of size 0")
            check_memory((n + a + b,), INT64)
            x = take(x, np.pad(np.arange(n), (a, b), mode=mode), axis=axis)      # type: ignore[call-overload]
    return x


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


@public
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """The diagonal of two axes as the last axis, as numpy.diagonal."""
    x = as_node(x)
    if x.ndim < 2:
        raise ShapeError("needs at least two axes")
    a, b = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    if a == b:
        raise ShapeError(f"axis1 and axis2 are both {a}")
    return make(DIAGONAL, (x,), (a, b, _whole_diagonal(offset)))


@public
def diag(x: Any, k: int = 0) -> Node:
    """The k-th diagonal of a matrix, or a matrix with the vector x on it."""
    x = as_node(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError("needs one or two axes")
    k = _whole_diagonal(k)
    n = x.shape[0] + builtins.abs(k)
    return make(UNDIAGONAL, (x,), ((n, n), 0, 1, int(k)))


@public
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """The sum along the diagonal."""
    from .reduction import sum
    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


def _offset(k: Any, n: int, m: int) -> int:
    """The number k of a diagonal of an n by m matrix; one far outside is as good as the nearest one outside."""
    return builtins.max(-n - 1, builtins.min(m + 1, _whole_diagonal(k)))


def _whole_diagonal(k: Any) -> int:
    if isinstance(k, (np.bool_, Node)) or not hasattr(k, "__index__"):
        raise NodeTypeError(f"the number of a diagonal is a whole number, not {k!r}")
    return int(k.__index__())


def _triangle(x: Node, k: int, lower: bool) -> Node:
    from .binary import greater_equal, where
    if x.ndim == 0:
        raise ShapeError("an array of at least one axis is needed")
    n, m = x.shape[-1 if x.ndim == 1 else -2], x.shape[-1]      # of a vector, every row is the vector
    zero, k = scalar(0, x.dtype), _whole_diagonal(k)
    if not (isinstance(n, int) and isinstance(m, int)):
        below = greater_equal(_count(n, (n, 1)) + (k if lower else k - 1), _count(m, (1, m)))
    else:
        check_memory((n, m), BOOL)
        below = make_constant(np.tri(n, m, _offset(k if lower else k - 1, n, m), dtype=bool))
    return where(below, x, zero) if lower else where(below, zero, x)


@public
def tril(x: Any, k: int = 0) -> Node:
    """x with the elements above the k-th diagonal set to 0; of a vector, the matrix whose rows it is."""
    return _triangle(as_node(x), k, True)


@public
def triu(x: Any, k: int = 0) -> Node:
    """x with the elements below the k-th diagonal set to 0; of a vector, the matrix whose rows it is."""
    return _triangle(as_node(x), k, False)


# -- constants -----------------------------------------------------------------------------------------------------

@public
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """Every element fill_value; sizes may be named."""
    if isinstance(fill_value, Node):
        value = fill_value if dtype is None else cast(fill_value, as_dtype(dtype))
    else:
        value = as_node(fill_value) if dtype is None else scalar(fill_value, as_dtype(dtype))
    return expand_to(value, as_shape(shape))


@public
def zeros(shape: Any, dtype: Any = "float64") -> Node:
    """Zeros; sizes may be named."""
    return full(shape, 0, dtype)


@public
def ones(shape: Any, dtype: Any = "float64") -> Node:
    """Ones; sizes may be named."""
    return full(shape, 1, dtype)


empty = zeros


@public
def zeros_like(x: Any, dtype: Any = None, *, shape: Any = None) -> Node:
    """Zeros of x's shape and dtype, where others are not given."""
    return full_like(x, 0, dtype, shape=shape)


@public
def ones_like(x: Any, dtype: Any = None, *, shape: Any = None) -> Node:
    """Ones of x's shape and dtype, where others are not given."""
    return full_like(x, 1, dtype, shape=shape)


@public
def full_like(x: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Node:
    """fill_value in x's shape and dtype, where others are not given."""
    x = as_node(x)
    return full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype)


def _count(n: Any, shape: Any) -> Node:
    """0, 1, .. n - 1, in a shape with one axis of size n and others of size 1."""
    from .scan import cumsum
    axis = next(i for i, s in enumerate(shape) if not isinstance(s, int) or s != 1) if n != 1 or isinstance(n, Dim) else 0
    return cumsum(ones(shape, "int64"), axis) - 1


@public
def arange(*args: Any, start: Any = None, stop: Any = None, step: Any = None, dtype: Any = None) -> Node:
    """numpy.arange as a constant, (stop), (start, stop) or (start, stop, step), which may also be given by name; of a named size, 0
    to size - 1 counted when a function runs."""
    args = _bounds(args, start, stop, step)
    if len(args) == 1 and isinstance(args[0], Dim):
        n = _count(args[0], (args[0],))
        return n if dtype is None else cast(n, as_dtype(dtype))
    a = _ranged(args)
    return make_constant(converted(a, as_dtype(a.dtype if dtype is None else dtype)))


def _ranged(args: tuple[Any, ...]) -> Any:
    if any(isinstance(v, Node) for v in args):
        raise NodeTypeError("bounds must be numbers, the length of an array is part of its shape")
    if len(args) == 3 and args[2] == 0:
        raise ShapeError("the step is 0")
    try:
        _check_range(args)
        return np.arange(*args)
    except GraphdiffError:
        raise
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{error}") from None


def _bounds(args: tuple[Any, ...], start: Any, stop: Any, step: Any) -> tuple[Any, ...]:
    """What is given by name put in its place; a single bound is where the range stops."""
    places = [start, stop, step]
    for i, v in enumerate(args[:3]):
        if places[i] is not None:
            raise NodeTypeError(f"{('start', 'stop', 'step')[i]} is given twice")
        places[i] = v
    start, stop, step = places
    if stop is None and args:
        start, stop = None, start
    if stop is None or len(args) > 3:
        raise NodeTypeError("takes one to three bounds: stop, or start, stop and step")
    return (stop,) if start is None and step is None else (0 if start is None else start, stop, 1 if step is None else step)


def _check_range(args: tuple[Any, ...]) -> None:
    """Is there memory for numpy.arange(*args)? Arguments that it refuses are left to it."""
    if not 1 <= len(args) <= 3 or not builtins.all(isinstance(v, (int, float, np.number)) for v in args):
        return
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if start == start and stop == stop and step and builtins.abs(start) != np.inf and builtins.abs(stop) != np.inf:
        if builtins.all(isinstance(v, int) for v in (start, stop, step)):
            length = -((start - stop) // step)
            for v in (start, stop):
                weak(v, INT64)
        else:
            length = builtins.int((float(stop) - float(start)) / float(step))
        check_memory((builtins.max(length, 0),), FLOAT64)


def _bound(value: Any, what: str) -> Any:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise NodeTypeError(f"{what} must be a number or an array of numbers, not {value!r}")
    return value if type(value) in (int, float) else array


@public
def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0) -> Any:
    """numpy.linspace as a constant: start and stop are numbers. retstep: (the node, the distance between its elements)."""
    if isinstance(start, Node) or isinstance(stop, Node):
        raise NodeTypeError("start and stop must be numbers, not nodes\nhint: start + (stop - start) * gd.linspace(0, 1, num)")
    start, stop = [_bound(v, what) for v, what in ((start, "start"), (stop, "stop"))]
    axis = normalize_axis(axis, 1 + len(np.broadcast_shapes(np.shape(start), np.shape(stop))))
    if isinstance(num, (Node, bool)) or not hasattr(num, "__index__") or num < 0:
        raise ShapeError(f"num must be a whole number, at least 0, not {num!r}")
    check_memory((num.__index__(), *np.broadcast_shapes(np.shape(start), np.shape(stop))), FLOAT64)
    values, step = np.linspace(start, stop, num, endpoint=flag(endpoint, "endpoint"), retstep=True, axis=axis)
    node = make_constant(values.astype(FLOAT64 if dtype is None else as_dtype(dtype)))
    return (node, step) if flag(retstep, "retstep") else node


@public
def eye(n: Any, m: Any = None, k: int = 0, dtype: Any = "float64") -> Node:
    """Ones on the k-th diagonal, as a constant (of a named size, made when a function runs)."""
    m = n if m is None else m
    if isinstance(n, Dim) or isinstance(m, Dim):
        from .binary import equal
        return cast(equal(_count(n, (n, 1)) + k, _count(m, (1, m))), as_dtype(dtype))
    if not (hasattr(n, "__index__") and hasattr(m, "__index__")) or n < 0 or m < 0:
        raise ShapeError(f"sizes must be whole numbers, at least 0, not {n!r} and {m!r}")
    n, m = check_memory((n.__index__(), m.__index__()), as_dtype(dtype))
    return make_constant(np.eye(n, m, _offset(k, n, m), dtype=as_dtype(dtype)))


@public
def identity(n: int, dtype: Any = "float64") -> Node:
    """The matrix with ones on its diagonal, as a constant."""
    return eye(n, dtype=dtype)


@public
def size(x: Any, axis: int | None = None) -> Node:
    """The number of elements, or the size along an axis, as an int64 node (also when sizes are named)."""
    from ..dtypes import INT64
    from ..graph.build import _dim_node
    x = as_node(x)
    n = nelements(x.shape) if axis is None else x.shape[normalize_axis(axis, x.ndim)]
    return scalar(n, INT64) if isinstance(n, int) else _dim_node(n)
