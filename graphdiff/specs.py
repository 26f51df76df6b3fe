"""Shapes: tuples of sizes, broadcasting, the checks every shape passes, and the names that real sizes give.

A size is an int or a Dim (dims.py); nothing else enters a shape (`as_shape` is the gate). Messages are one-line facts.
"""
from __future__ import annotations

import operator
import os
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .dims import Dim, bounds, dim_max, dim_min, evaluate, shown, size_or_none, substitute, unify
from .errors import AxisError, NodeTypeError, NoMemory, ShapeError, show_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from .dims import Size

    Shape: TypeAlias = tuple[Size, ...]

MAX_NDIM = 32                    # axes of a shape (half of NumPy 2's 64), and room for any real network
MAX_NBYTES = 2**63 - 1           # of one array: sizes, strides and byte offsets are int64_t in the C core


# Shapes.

def as_shape(x: object) -> Shape:
    """A shape from a size or a sequence of sizes; a size is a whole number >= 0, a Dim, or a name.

    >>> as_shape(3), as_shape("batch"), as_shape(("batch", 784)), as_shape([np.int64(2), 0])
    ((3,), (batch,), (batch, 784), (2, 0))
    """
    if not isinstance(x, (tuple, list, range)):
        if isinstance(x, np.ndarray):           # its elements are judged as NumPy scalars: floats and bools are refused
            if x.ndim > 1:
                raise NodeTypeError(f"an array with {x.ndim} axes is not a shape")
            x = x if x.ndim else x[()]
        if not isinstance(x, np.ndarray):
            if isinstance(x, (str, int, float, np.generic)) or hasattr(type(x), "__index__"):
                return (_as_size(x),)
            raise NodeTypeError(f"a shape is a size or a tuple of sizes, not {show_name(type(x).__name__)}")
    if len(x) > MAX_NDIM:
        raise ShapeError(f"a shape has at most {MAX_NDIM} axes, not {len(x)}")
    return tuple([_as_size(size) for size in x])


def index_or_none(x: object) -> int | None:
    """`x` as an int by __index__, or None. What a node says of itself there passes."""
    try:
        return operator.index(x)   # type: ignore[arg-type]
    except NodeTypeError:
        raise
    except TypeError:
        return None


def _as_size(x: object) -> Size:
    if isinstance(x, str):
        return Dim.name(x)
    size = size_or_none(x)
    if size is None and not isinstance(x, (bool, float, np.generic)):
        size = index_or_none(x)
    if size is None:
        raise NodeTypeError(f"a size is a whole number, a Dim or a name, not {show_name(type(x).__name__)}")
    lo, hi = bounds(size)
    if hi < 0:
        raise ShapeError(f"a size cannot be negative: {shown(size)}")
    if lo > MAX_NBYTES:
        raise ShapeError(f"a size must be below 2**63, not {shown(size)}")
    return size


def check_shape(shape: Shape, dtype: np.dtype[Any]) -> Shape:
    """`shape` itself if an array of `dtype` can have it, else ShapeError. Nothing is allocated.

    At most 32 axes, no negative size, and the product of the nonzero numbers and the item size fits 2**63 - 1: zeros do
    not excuse the rest, since strides are made of it. Named sizes are checked when they are known.
    """
    if len(shape) > MAX_NDIM:
        raise ShapeError(f"a shape has at most {MAX_NDIM} axes, not {len(shape)}")
    nbytes = dtype.itemsize
    for axis, size in enumerate(shape):
        if (size if isinstance(size, int) else size.hi) < 0:
            raise ShapeError(f"a size cannot be negative: {shown(size)} (axis {axis}) in {format_shape(shape)}")
        if isinstance(size, int) and size:
            nbytes *= size
        if nbytes > MAX_NBYTES:
            raise ShapeError(f"{format_spec(shape, dtype)} is too large: the nonzero sizes make over 2**63 - 1 bytes")
    return shape


def memory_cap() -> int:
    """Bytes one array may take: the machine's memory. Broadcast views and sizes can claim far more than exists."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 1 << 40


MEMORY_NBYTES = memory_cap()


def check_memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """`check_shape` of an array that is made at once, such as a constant; NoMemory when the machine cannot hold it."""
    check_shape(shape, dtype)
    if prod(shape) * dtype.itemsize > MEMORY_NBYTES:
        raise NoMemory(f"{format_spec(shape, dtype)} takes {prod(shape) * dtype.itemsize} bytes, more than this machine has")
    return shape


def broadcast(*shapes: Shape) -> Shape:
    """The common shape of operands, by NumPy's rules; ShapeError when there is none.

    A named size against 1 is the named size; against any other it is taken to be equal, as in `unify`, and
    `check_broadcast` holds it to that when the names are known. A size that is 1 at most, such as the min(n, 1) of x[:1],
    is taken for 1.
    """
    if len(shapes) == 2:   # nearly every call
        a, b = shapes
        if a is b or a == b or not b:
            return a
        return _broadcast_pair(a, b, shapes) if a else b
    out: Shape = ()
    for shape in shapes:
        if shape and out != shape:
            out = _broadcast_pair(out, shape, shapes)
    return out


def spreads(a: Shape, shape: Shape) -> bool:
    """Can an array of shape `a` be broadcast to `shape`? Sizes that may turn out equal are taken to be, as in `broadcast`."""
    if len(a) > len(shape):
        return False
    try:
        return all(unify(m, n) is not None for m, n in zip(broadcast(a, shape), shape, strict=True))
    except ShapeError:
        return False


def stretches(size: Size) -> bool:
    """Is an axis of this size repeated beside a longer one? Of 1, and of named sizes those that are 1 at most."""
    return size == 1 if isinstance(size, int) else size.hi <= 1


def _broadcast_pair(a: Shape, b: Shape, shapes: tuple[Shape, ...]) -> Shape:
    extra = len(a) - len(b)
    if extra > 0 and a[extra:] == b:   # a bias
        return a
    if not extra:                      # nearly all others, as a row by its mean
        same = [n if m == 1 else m if n == 1 or m == n else None for m, n in zip(a, b, strict=True)]
        if None not in same:
            return tuple(same)      # type: ignore[arg-type]
    out = list(a[:extra] if extra > 0 else b[:-extra] if extra < 0 else ())
    for i, (m, n) in enumerate(zip(a[max(extra, 0):], b[max(-extra, 0):], strict=True), len(out)):
        size = n if m == 1 else m if n == 1 or m == n else n if stretches(m) and not stretches(n) else m if stretches(n) else unify(m, n)
        if size is None:
            raise ShapeError(f"{_and(shapes)} do not broadcast: sizes {shown(m)} and {shown(n)} "
                             f"(axis {i - max(len(a), len(b))})")
        out.append(size)
    return tuple(out)


def check_broadcast(shapes: Iterable[Shape], bindings: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers of broadcast(*shapes) under `bindings`; ShapeError where sizes taken to be equal are not.

    A named size does not stretch: if it turns out to be 1 beside a 5, that is an error, since the graph (and every
    derivative in it) was built for equal sizes. Only an axis written as 1, or that can be no more, stretches.
    """
    shapes = tuple(shapes)
    out: list[int] = []
    for axis in range(-max((len(shape) for shape in shapes), default=0), 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis and shape[axis] != 1]
        values = [evaluate(size, bindings) for size in sizes]
        if any(not stretches(size) for size in sizes):
            kept = [i for i, size in enumerate(sizes) if not (stretches(size) and values[i] == 1)]
            sizes, values = [sizes[i] for i in kept], [values[i] for i in kept]
        for size, value in zip(sizes, values, strict=True):
            if value != values[0]:
                raise ShapeError(f"{_and(shapes)} do not broadcast here: {_told(sizes[0], values[0])}, "
                                 f"{_told(size, value)} (axis {axis}); only an axis declared as 1 stretches")
        out.append(values[0] if values else 1)
    return tuple(out)


def _told(size: Size, value: int) -> str:
    return f"{shown(size)} is {shown(value)}" if isinstance(size, Dim) else f"the other {shown(value)}"


def _and(shapes: tuple[Shape, ...]) -> str:
    texts = [format_shape(shape) for shape in shapes[:4]] + (["..."] if len(shapes) > 4 else [])
    return "shapes " + ", ".join(texts[:-1]) + " and " + texts[-1]


def nelements(shape: Shape) -> Size:
    """The product of the sizes; 1 for ()."""
    return prod(shape)


def has_dims(shape: Shape) -> bool:
    """Is any size not a number?"""
    for size in shape:
        if isinstance(size, Dim):
            return True
    return False


def evaluate_shape(shape: Shape, bindings: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers a shape is when its names are `bindings`; ShapeError when one is negative."""
    if not has_dims(shape):
        return shape   # type: ignore[return-value]
    out = tuple([evaluate(size, bindings) for size in shape])
    for size, value in zip(shape, out, strict=True):
        if value < 0:
            raise ShapeError(f"size {shown(size)} in {format_shape(shape)} is negative: {shown(value)}")
    return out


def format_shape(shape: Shape) -> str:
    """As in "[32, batch]"; "[]" for a scalar."""
    return f"[{', '.join([shown(size) for size in shape])}]"


def format_spec(shape: Shape, dtype: np.dtype[Any]) -> str:
    """As in "float32[32, 784]"."""
    return dtype.name + format_shape(shape)


# Axes.

def normalize_axis(axis: object, ndim: int, what: str = "") -> int:
    """`axis` counted from the front; AxisError outside [-ndim, ndim). `what`, if any, opens the message."""
    number = None if isinstance(axis, (bool, np.bool_)) else index_or_none(axis)
    if number is None:
        raise NodeTypeError(f"{_opening(what)}an axis is a whole number, not {show_name(type(axis).__name__)}")
    if not -ndim <= number < ndim:
        raise AxisError(f"{_opening(what)}axis {shown(number)} is out of bounds for array of dimension {ndim}")
    return number + ndim if number < 0 else number


def normalize_axes(axis: object, ndim: int, what: str = "") -> tuple[int, ...]:
    """One axis, several or None (all) as a tuple counted from the front, in the order given; no axis twice."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (normalize_axis(axis, ndim, what),)
    axes = tuple([normalize_axis(one, ndim, what) for one in axis])
    if len(set(axes)) != len(axes):
        twice = next(one for i, one in enumerate(axes) if one in axes[:i])
        raise ShapeError(f"{_opening(what)}axis {twice} is given twice")
    return axes


def _opening(what: str) -> str:
    return f"{what}: " if what else ""


# Slices.

def slice_forward(start: Any, stop: Any, n: Any) -> tuple[Any, Any]:
    """(first, how many) of [start:stop] of a named size n; the bounds are ints, sizes or None.

    Numbers are clipped as Python does it: [:1] has min(n, 1) elements, and stretches (see `broadcast`). Sizes are taken to lie
    inside; whoever slices checks that when they are known.
    """
    if isinstance(start, Dim) or isinstance(stop, Dim):
        first = n + start if isinstance(start, int) and start < 0 else 0 if start is None else start
        end = n + stop if isinstance(stop, int) and stop < 0 else n if stop is None else stop
        return first, max(end - first, 0) if isinstance(end - first, int) else end - first
    start = 0 if start is None else start
    if stop is None or (start < 0) == (stop < 0):
        most = -start if stop is None and start < 0 else None if stop is None else max(stop - start, 0)
        first = n + start if start < 0 else start
        if most == 0:
            return 0, 0
        there = (n if start < 0 else dim_max(n - start, 0)) if stop is None or stop >= 0 else dim_max(n + stop, 0)
        return (dim_max(first, 0) if start < 0 else start), there if most is None else dim_min(there, most)
    if stop < 0:
        return start, dim_max(n + stop - start, 0)
    first = dim_max(n + start, 0)
    return first, dim_max(dim_min(n, stop) - first, 0)


def slice_backward(start: Any, stop: Any, n: Any) -> tuple[Any, Any]:
    """(first, how many) of [start:stop:-1] of a named size."""
    if isinstance(start, Dim) or isinstance(stop, Dim):
        raise ShapeError(f"the bounds of a slice with a negative step of an axis of size {n} must be numbers")
    last = n - 1
    first = last if start is None else dim_min(start, last) if start >= 0 else dim_max(n + start, -1)
    end = -1 if stop is None else dim_min(stop, last) if stop >= 0 else dim_max(n + stop, -1)
    if end == -1:
        return first, first + 1
    return first, dim_max(first - end, 0)


# Names found from real sizes.

def match(size: Size, value: int, bindings: dict[str, int]) -> None:
    """Make `size` equal `value`: bind its one unknown name in `bindings`, or check; ShapeError when it cannot be.

    A name is solved for where the size is a*name + b once the other names are known, `a` a number.
    """
    left = substitute(size, bindings)
    if isinstance(left, int):
        if left != value:
            raise ShapeError(_mismatch(size, value, bindings, left))
        return
    solved = _linear(left)
    if solved is None:
        raise ShapeError(f"{shown(size)} = {shown(value)} does not tell {', '.join(sorted(left.names()))}")
    name, a, b = solved
    count, remainder = divmod(value - b, a)
    if remainder or count < 0:
        raise ShapeError(f"{shown(size)} cannot be {shown(value)} for any {show_name(name)}")
    bindings[name] = count


def match_shapes(pairs: Iterable[tuple[Shape, tuple[int, ...]]], bindings: dict[str, int], names: Sequence[str] = ()) -> None:
    """Match declared shapes with the real ones, in an order that finds every name: ("n*m",) may come before ("n",).

    names: of the arguments, for the message of a ShapeError.
    """
    at = [0]                     # the argument it is at. (The handler stands early, as everywhere: runtime/execute.py says why.)
    try:
        _match_all(pairs, bindings, at)
    except ShapeError as error:
        raise ShapeError(f"argument {names[at[0]]}: {error}") if names else error from None


def _match_all(pairs: Iterable[tuple[Shape, tuple[int, ...]]], bindings: dict[str, int], at: list[int]) -> None:
    waiting: list[tuple[Size, int, int]] = []
    for at[0], (shape, real) in enumerate(pairs):
        if len(shape) != len(real):
            raise ShapeError(f"expected shape {format_shape(shape)}, not {format_shape(real)}")
        waiting += [(size, value, at[0]) for size, value in zip(shape, real, strict=True)]
    while waiting:
        later = []
        for size, value, at[0] in waiting:
            left = substitute(size, bindings)
            if isinstance(left, int) or _linear(left) is not None:
                match(size, value, bindings)
            else:
                later.append((size, value, at[0]))
        if len(later) == len(waiting):
            size, value, at[0] = later[0]
            match(size, value, bindings)   # raises: this size cannot be solved
        waiting = later


def _linear(dim: Dim) -> tuple[str, int, int] | None:
    """(name, a, b) when dim is a*name + b, else None."""
    mono, a = dim.terms[0]
    if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].op != "name" or any(m for m, _ in dim.terms[1:]):
        return None
    return mono[0][0].text, a, dict(dim.terms).get((), 0)


def _mismatch(size: Size, value: int, bindings: Mapping[str, int], left: int) -> str:
    if isinstance(size, int):
        return f"expected size {shown(size)}, not {shown(value)}"
    names = sorted(size.names() & bindings.keys())[:4]
    known = ", ".join(f"{show_name(name)} = {shown(bindings[name])}" for name in names)
    told = f" ({known})" if _linear(size) != (size.text, 1, 0) else ""
    return f"size {shown(size)} is {shown(left)} elsewhere{told}, but {shown(value)} here"
