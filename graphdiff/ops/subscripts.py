"""Subscripts: an index taken apart by NumPy's rules, into slices and index arrays."""
from __future__ import annotations

import builtins
import itertools
from typing import Any, NamedTuple

import numpy as np

from ..dims import Dim, unify
from ..dtypes import BOOL, INT64
from ..errors import NodeTypeError, OutOfBounds, ShapeError
from ..graph.build import as_node, make_constant, unmasked
from ..graph.node import Node
from ..specs import slice_backward, slice_forward
from .families import cast
from .movement import taken_for


class Parsed:
    """An index taken apart: basic slices per axis of x, then index arrays on some axes of the result."""

    def __init__(self, x: Node, index: Any) -> None:
        items = list(index) if isinstance(index, tuple) else [index]
        x, items = self._masks(x, items)
        self.array = x                        # the array that is indexed, as long as the masks of it
        used = builtins.sum(1 for i in items if i is not None and i is not Ellipsis)
        if builtins.sum(1 for i in items if i is Ellipsis) > 1:
            raise OutOfBounds("an index can have only one ellipsis ('...')")
        if used > x.ndim:
            raise OutOfBounds(f"too many indices: {used} for an array of {x.ndim} axes")
        written = builtins.any(i is Ellipsis for i in items)
        if not written:
            items.append(Ellipsis)
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        fill = x.ndim - used
        items[at:at + 1] = [slice(None)] * fill
        gap = at if written and fill == 0 else len(items)      # an ellipsis that stands for no axis still separates
        # Ints beside index arrays are index arrays: they decide where the gathered axes go.
        arrays = [k for k, i in enumerate(items) if isinstance(i, (Node, np.ndarray))]
        if len(arrays) == 1 and builtins.all(k in arrays or i is None or isinstance(i, slice) for k, i in enumerate(items)):
            (k,) = arrays
            items[k] = as_run(items[k], x.shape[builtins.sum(i is not None for i in items[:k])])
        advanced = builtins.any(isinstance(i, (Node, np.ndarray)) for i in items)
        self.starts: list[Any] = []
        self.steps: list[int] = []
        self.sizes: list[Any] = []
        shape: list[Any] = []                 # of the basic part, with new axes, ints still there as size 1
        self.arrays: list[tuple[int, Node, int]] = []      # (axis of the basic part, index, axis of x)
        drop: list[int] = []
        axis = 0
        places: list[int] = []
        for k, item in enumerate(items):
            if item is None:
                shape.append(1)
                continue
            n = x.shape[axis]
            if isinstance(item, (slice, Run)):
                start, step, size = item if isinstance(item, Run) else _slice(item, n)
                shape.append(size)
            elif isinstance(item, (Node, np.ndarray)) or advanced:
                start, step, size = 0, 1, n
                self.arrays.append((len(shape), index_node(item), axis))
                places.append(k + (k >= gap))
                shape.append(n)
            else:
                start, step, size = _position(item, n, axis), 1, 1
                drop.append(len(shape))
                shape.append(1)
            self.starts.append(start)
            self.steps.append(step)
            self.sizes.append(size)
            axis += 1
        self.shape = tuple(s for j, s in enumerate(shape) if j not in drop)
        self.arrays = [(a - builtins.sum(1 for d in drop if d < a), i, ax) for a, i, ax in self.arrays]
        # Separated by a slice, None or an ellipsis the gathered axes come first; side by side they stay in place.
        self.apart = builtins.any(b - a != 1 for a, b in itertools.pairwise(places))

    @classmethod
    def _masks(cls, x: Node, items: list[Any]) -> tuple[Node, list[Any]]:
        """The array with the sizes of its masks, and the items with lists as arrays and each mask as the positions where it is true, one
        array an axis."""
        items = [cls._item(item) for item in items]
        width = [0 if item is None or item is Ellipsis else item.ndim if _is_mask(item) else 1 for item in items]
        out: list[Any] = []
        sizes: dict[int, Any] = {}
        axis = 0
        for k, item in enumerate(items):
            if _is_mask(item):
                for j, n in enumerate(item.shape):
                    if axis + j >= x.ndim:              # one index too many, which is told below
                        break
                    if unify(x.shape[axis + j], n) is None:
                        raise OutOfBounds(f"boolean index has size {n} along axis {axis + j}, the array has {x.shape[axis + j]}")
                    sizes[axis + j] = n
                out += list(np.nonzero(item))
            else:
                out.append(item)
            axis = builtins.max(axis, x.ndim - builtins.sum(width[k + 1:])) if item is Ellipsis else axis + width[k]
        return taken_for(x, sizes, "boolean index has size {size} along axis {axis}, the array has {have}"), out

    @staticmethod
    def _item(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            item = unmasked(item, "index")
        if isinstance(item, list):
            item = _listed(item) if not _has_node(item) else _stack(item)
            if isinstance(item, np.ndarray) and item.size == 0:
                item = item.astype(np.int64)
        if isinstance(item, (bool, np.bool_)) or (isinstance(item, np.ndarray) and item.dtype == bool and item.ndim == 0):
            raise NodeTypeError("a single bool is not an index\nhint: use gd.where, or x[None] for a new axis")
        if isinstance(item, Node) and item.dtype is BOOL and item.op.name == "constant":
            item = item._attrs[0]
        if isinstance(item, Node) and item.dtype is BOOL:
            raise NodeTypeError("the size of x[mask] depends on the mask's values, which exist only when a function runs"
                                "\nhint: gd.where(mask, x, 0) keeps the shape; x.at[mask].set(v) works; a NumPy mask works too")
        return item


class Run(NamedTuple):
    """Positions start, start + step, ..., so many of them: a view instead of a gather."""

    start: int
    step: int
    size: int


def as_run(item: Any, n: Any) -> Any:
    """Positions that are numbers the same step apart (one or two always are) as what they are; else the item as it is."""
    v = item._attrs[0] if isinstance(item, Node) and item.op.name == "constant" else item
    if not isinstance(v, np.ndarray) or v.ndim != 1 or v.dtype.kind not in "iu" or not v.size or not isinstance(n, int):
        return item
    if (v < -n).any() or (v >= n).any():
        return item
    v = v.astype(np.int64)
    at = np.where(v < 0, v + n, v)
    step = int(at[1] - at[0]) if at.size > 1 else 1
    return Run(int(at[0]), step, at.size) if step and bool((np.diff(at) == step).all()) else item


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == bool


def _listed(item: list[Any]) -> Any:
    try:
        return np.asarray(unmasked(item, "index"))
    except ValueError:
        raise ShapeError("the lists of an index have different lengths") from None


def _has_node(item: Any) -> bool:
    return builtins.any(isinstance(i, Node) or (isinstance(i, list) and _has_node(i)) for i in item)


def _stack(item: list[Any]) -> Node:
    from .joining import stack
    return stack([_stack(i) if isinstance(i, list) else i for i in item])


def index_node(item: Any) -> Node:
    node = as_node(item)
    if node.dtype.kind not in "iu":
        raise NodeTypeError(f"an index must be an integer, a slice, None, ..., or integers or bools in an array, not {node.dtype}")
    return cast(node, INT64) if node.op.name != "constant" else make_constant(node._attrs[0].astype(np.int64))


def _position(item: Any, n: Any, axis: int) -> Any:
    if isinstance(item, Dim):
        return n + item if item.hi is not None and item.hi <= 0 else item      # x[-n], as x[-5]
    try:
        i = item.__index__() if not isinstance(item, float) else None
    except (AttributeError, TypeError):
        i = None
    if i is None:
        raise NodeTypeError(f"an index must be an integer, a slice, None, ... or an array, not {type(item).__name__}")
    if isinstance(n, int):
        if not -n <= i < n:
            raise OutOfBounds(f"index {i} is out of bounds for axis {axis} with size {n}")
        return i % n if n else 0
    return i if i >= 0 else n + i


def _slice(item: slice, n: Any) -> tuple[Any, int, Any]:
    """(start, step, size) of a slice of an axis of size n; with a named n only the plain forms are known."""
    step = 1 if item.step is None else item.step
    if isinstance(step, Node) or isinstance(item.start, Node) or isinstance(item.stop, Node):
        raise NodeTypeError("slice bounds must be numbers\nhint: gd.take(x, indices) takes a node")
    for bound in (item.start, item.stop, step):
        if bound is not None and not isinstance(bound, Dim) and not hasattr(bound, "__index__"):
            raise NodeTypeError(f"slice bounds must be whole numbers, not {type(bound).__name__}")
    step = step.__index__()
    if step == 0:
        raise ShapeError("slice step cannot be zero")
    if isinstance(n, int) and not isinstance(item.start, Dim) and not isinstance(item.stop, Dim):
        r = range(*item.indices(n))
        return (r.start if len(r) else 0), step, len(r)
    start, stop = (b if b is None or isinstance(b, Dim) else b.__index__() for b in (item.start, item.stop))
    start, size = slice_backward(start, stop, n) if step < 0 else slice_forward(start, stop, n)
    return start, step, size if step == 1 else (size + builtins.abs(step) - 1) // builtins.abs(step)
