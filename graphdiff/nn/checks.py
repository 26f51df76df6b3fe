"""Arguments of layers."""
from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..ops.families import flag as flag
from ..specs import format_spec, index_or_none


def size(value: Any, what: str, least: int = 1) -> int:
    n = index_or_none(value)
    if n is None or isinstance(value, bool):
        raise NodeTypeError(f"{what} is a whole number, not {value!r}")
    if n < least:
        raise ShapeError(f"{what} is at least {least}, not {value!r}")
    return n


def sizes(value: Any, n: int, what: str, least: int = 1) -> tuple[int, ...]:
    """n sizes: one for all, or one each."""
    if isinstance(value, (tuple, list)):
        if len(value) != n:
            raise ShapeError(f"{what} has {len(value)} numbers, {n} are needed")
        return tuple(size(v, what, least) for v in value)
    return (size(value, what, least),) * n


def floating(dtype: Any) -> Any:
    d = as_dtype(dtype)
    if d.kind != "f":
        raise DTypeError(f"dtype is a float, not {d}")
    return d


def features(x: Any, axis: int, n: int, layer: str, what: str = "input") -> None:
    """x has n numbers along the axis; a clear error names the layer, and what x is to it, otherwise."""
    if not hasattr(x, "ndim"):
        raise NodeTypeError(f"{layer}: the {what} is a node or an array, not a {type(x).__name__}")
    if x.ndim < (axis + 1 if axis >= 0 else -axis) or (isinstance(x.shape[axis], int) and x.shape[axis] != n):
        raise ShapeError(f"{layer}: the {what} is {format_spec(x.shape, x.dtype)}, {n} numbers are needed along axis {axis}")
