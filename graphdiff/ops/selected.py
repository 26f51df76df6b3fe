"""What NumPy's reductions take beside axes: where= (a mask of the elements that count), initial= (a number that takes part), out=.

A masked element is replaced by one that changes nothing, by `where`: it gets no cotangent, be it infinite or NaN.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import BOOL, PROMOTE, weak
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import scalar
from ..graph.node import Node
from ..specs import broadcast, format_shape
from .families import argument
from .joining import concatenate
from .movement import expand_to

NONE: Any = np._NoValue      # NumPy's own "not given"


def no_out(out: Any) -> None:
    """A node cannot be written into an array. What stands in the place of out is often the keepdims of another signature."""
    if out is not None and out is not NONE:
        hint = "\nhint: keepdims is given by name, as in keepdims=True" if isinstance(out, (bool, np.bool_)) else ""
        raise NodeTypeError(f"out: a node cannot be written into an array{hint}")


def mask_of(where: Any, x: Node) -> Node | None:
    """The mask in x's shape; None where every element counts."""
    if where is NONE or where is True or (isinstance(where, np.bool_) and where):
        return None
    mask = argument(where, "where")
    if mask.dtype.kind not in "biu":
        raise DTypeError(f"where must be a mask of bools, not {mask.dtype}")
    if mask.dtype is not BOOL:
        from .binary import not_equal
        mask = not_equal(mask, 0)
    try:
        fits = broadcast(mask.shape, x.shape) == x.shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"where has shape {format_shape(mask.shape)}, which does not stretch to x's {format_shape(x.shape)}")
    return expand_to(mask, x.shape)


def masked(x: Node, where: Any, neutral: Any) -> Node:
    """x with `neutral` where the mask is False."""
    mask = mask_of(where, x)
    if mask is None:
        return x
    from .binary import where as choose
    return choose(mask, x, neutral)


def first_of(initial: Any, dtype: Any) -> Node | None:
    """initial as a scalar of the result's dtype; None where there is none. It is never cut to fit, as NumPy does it."""
    if initial is None or initial is NONE:
        return None
    if isinstance(initial, (float, int)) and not isinstance(initial, np.generic):
        if weak(initial, dtype) is not dtype:
            raise DTypeError(f"initial is {initial!r}, the result {dtype}")
        return scalar(initial, dtype)
    node = argument(initial, "initial")
    if node.shape != ():
        raise ShapeError(f"initial is one number, not {node.spec}")
    if PROMOTE[node.dtype, dtype] is not dtype:
        raise DTypeError(f"initial is {node.dtype}, the result {dtype}\nhint: use astype")
    from .families import cast
    return cast(node, dtype)


def extended(x: Node, axes: tuple[int, ...], first: Node) -> Node:
    """x with `first` at the end of every axis to reduce whose size is named: it may turn out to be 0."""
    for axis in axes:
        if not isinstance(x.shape[axis], int):
            x = concatenate([x, expand_to(first, (*x.shape[:axis], 1, *x.shape[axis + 1:]))], axis)
    return x
