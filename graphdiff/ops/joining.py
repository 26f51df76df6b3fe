"""Arrays joined, split, repeated, moved round and padded: concatenate is a primitive, the others are composed of it and of slices."""
from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Dim, dim_max
from ..dtypes import INT64, PROMOTE, asked_dtype, weak
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import as_node, make, public, unmasked
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import check_memory, check_shape, format_shape, nelements, normalize_axis, slice_forward
from .creation import arange, full, zeros_like
from .families import cast
from .movement import at_least, cut, expand_dims, expand_to, place, reshape, reshape_to, taken_for
from .runs import MOST_BLOCKS, Runs, few_blocks, straight, take_runs

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
        want = asked_dtype(dtype)
        for i, x in enumerate(nodes):
            if not np.can_cast(x.dtype, want, "same_kind"):
                raise DTypeError(f"operand {i} is {x.dtype}, which dtype={want.name!r} does not hold\nhint: astype({want.name!r}) if that is meant")
        return [cast(x, want) for x in nodes]
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


@public
def vstack(xs: Any, *, dtype: Any = None) -> Node:
    """Rows on top of each other."""
    return concatenate([at_least(as_node(x), 2) for x in _several(xs)], 0, dtype=dtype)


@public
def hstack(xs: Any, *, dtype: Any = None) -> Node:
    """Side by side: along the second axis, or the first of vectors."""
    nodes = [at_least(as_node(x), 1) for x in _several(xs)]
    return concatenate(nodes, 0 if nodes and nodes[0].ndim == 1 else 1, dtype=dtype)


@public
def dstack(xs: Any) -> Node:
    """Along the third axis."""
    nodes = []
    for x in _several(xs):
        x = at_least(as_node(x), 1)
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
    at = unmasked(at, "the positions") if isinstance(at, (list, tuple, np.ndarray)) else at
    places = list(at) if isinstance(at, (list, tuple, range, np.ndarray)) and np.ndim(at) == 1 else None
    if places is None or not all(isinstance(i, Dim) or (hasattr(i, "__index__") and not isinstance(i, Node)) for i in places):
        raise NodeTypeError(f"a number of sections or a list of positions, whole numbers, is needed, not {at!r}")
    return places


def _sections(k: Any) -> int:
    if not 0 < k <= MAX_PARTS:
        raise ShapeError(f"the number of sections must be from 1 to {MAX_PARTS}, not {k}")
    return int(k)


@public
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """Parts along an axis: at the given positions, or so many nearly equal ones."""
    x = as_node(x)
    return _parts(x, indices_or_sections, normalize_axis(axis, x.ndim))


def _parts(x: Node, indices_or_sections: Any, axis: int) -> list[Node]:
    n = x.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        k = _sections(indices_or_sections)
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
    axis = normalize_axis(axis, x.ndim)
    if isinstance(indices_or_sections, (int, np.integer)):
        n, k = x.shape[axis], _sections(indices_or_sections)
        x = taken_for(x, {axis: n // k * k}, f"{{have}} elements along axis {{axis}} do not divide into {k} equal parts")
        if not isinstance(n, int):
            return [cut(x, axis, i * (n // k), n // k) for i in range(k)]
    return _parts(x, indices_or_sections, axis)


# -- rolls, repeats and edges ----------------------------------------------------------------------------------------

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
    runs: list[Runs] = [((0, 1, n),) for n in x.shape]
    for a, s in total.items():
        n = x.shape[a]
        k = s % dim_max(n, 1)           # a named size may turn out to be 0
        if isinstance(k, Dim) or k:
            runs[a] = ((n - k, 1, k), (0, 1, n - k))
    return take_runs(x, tuple(runs))


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
    x = at_least(x, n)
    reps = (1,) * (n - len(reps)) + reps
    x, reps = _in_two_steps(x, reps)
    return _repeated(x, reps)


# A row takes some ns to copy, however short it is: up to so many bytes, and repeated so often, a few of them are first made one.
SHORT_NBYTES, OFTEN = 40, 12


def _in_two_steps(x: Node, reps: tuple[Any, ...]) -> tuple[Node, tuple[Any, ...]]:
    """x with its innermost repeated rows some times longer, and what is left to repeat, where they are short: ((10000, 3) float32 by 50 along
    the last axis takes 1,800 us in one step, 400 in two)."""
    axis = builtins.max([i for i, r in enumerate(reps) if isinstance(r, Dim) or r != 1], default=-1)
    if axis < 0:
        return x, reps
    r, row = reps[axis], nelements(x.shape[axis:])
    if isinstance(r, Dim) or isinstance(row, Dim) or r < OFTEN or row < 2 or row * x.dtype.itemsize > SHORT_NBYTES:
        return x, reps
    few = next((k for k in (4, 5, 6, 3, 7, 2) if r % k == 0), 1)
    return _repeated(x, tuple([few if i == axis else 1 for i in range(x.ndim)])), (*reps[:axis], r // few, *reps[axis + 1:])


def _repeated(x: Node, reps: tuple[Any, ...]) -> Node:
    """x, reps[i] times along axis i."""
    spread: list[Any] = []
    lifted: list[Any] = []
    for size, r in zip(x.shape, reps, strict=True):
        if isinstance(r, Dim) or r != 1:
            spread.append(r)
            lifted.append(1)
        spread.append(size)
        lifted.append(size)
    return reshape_to(expand_to(reshape_to(x, tuple(lifted)), tuple(spread)), tuple(size * r for size, r in zip(x.shape, reps, strict=True)))


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
    counts = counts.astype(np.int64) if counts.size == 0 else counts       # of an empty list: float64
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
    grown = {axis: x.shape[axis] + a + b for axis, (a, b) in enumerate(width)}
    runs: list[Runs] = [((0, 1, n),) for n in x.shape]
    for axis, (a, b) in enumerate(width):
        if a or b:
            x = taken_for(x, {axis: dim_max(x.shape[axis], 1)}, f"mode {mode!r} cannot extend axis {{axis}} of size {{have}}")
            n = x.shape[axis]
            runs[axis] = ((0, 1, n),)
            more, at = (_around if isinstance(n, int) else _around_named)(n, a, b, mode)
            x, runs = _extended(x, runs, axis, more, at)
    return taken_for(take_runs(x, tuple(runs)), grown, "")


def _around(n: int, before: int, after: int, mode: str) -> tuple[Runs | None, Any]:
    """What an axis is padded to, as runs of its positions (None: there were too many) and as one array of them."""
    check_memory((n + before + after,), INT64)
    at = np.pad(np.arange(n), (before, after), mode=mode)      # type: ignore[call-overload]
    if np.count_nonzero(np.diff(at, 2)) > MOST_BLOCKS:
        return None, at
    return (*straight(at[:before]), (0, 1, n), *straight(at[before + n:])), at


def _around_named(n: Any, before: int, after: int, mode: str) -> tuple[Runs | None, Any]:
    """The same of a named size, at least 1. How often a reflection turns depends on it: only edges are runs."""
    from .binary import minimum, remainder
    if mode == "edge":
        return tuple([run for run in ((0, 0, before), (0, 1, n), (n - 1, 0, after)) if not isinstance(run[2], int) or run[2]]), None
    period = n if mode == "wrap" else 2 * n if mode == "symmetric" else dim_max(2 * n - 2, 1)
    at = remainder(arange(n + before + after) - before, as_node(period))
    return None, at if mode == "wrap" else minimum(at, as_node(2 * n - 1 if mode == "symmetric" else period) - at)


def _extended(x: Node, runs: list[Runs], axis: int, more: Runs | None, at: Any) -> tuple[Node, list[Runs]]:
    """x and the runs of all its axes, `axis` of them now `more`; where that is None its positions `at` are taken one by one."""
    if more is not None:
        new = [*runs[:axis], more, *runs[axis + 1:]]
        if few_blocks(new):
            return x, new
    x = take_runs(x, tuple(runs))
    whole: list[Runs] = [((0, 1, m),) for m in x.shape]
    if more is not None:
        return x, [*whole[:axis], more, *whole[axis + 1:]]
    from .indexing import take
    x = take(x, at, axis=axis)
    return x, [((0, 1, m),) for m in x.shape]
