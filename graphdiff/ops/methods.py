"""Operators and methods of nodes, attached here because nodes know no op. Signatures are ndarray's."""
from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ..dtypes import INT64, asked_dtype
from ..errors import DTypeError, GraphdiffError, NodeTypeError, ShapeError
from ..graph.build import as_node, located, public
from ..graph.node import Node, known_as
from ..specs import normalize_axis
from . import activations, indexing, linalg, moments, scan
from . import binary as b
from . import movement as m
from . import reduction as r
from . import unary as u
from .families import cast
from .joining import concatenate, repeat


def _attach(name: str, value: Any, doc: str | None = None) -> None:
    """Node declares its operators and methods for type checkers; here they are given to it, under their own names."""
    if isinstance(value, FunctionType):
        value.__name__, value.__qualname__ = name, f"Node.{name}"
        value.__doc__ = doc or value.__doc__
    setattr(Node, name, value)


def _forward(f: Any) -> Callable[[Node, Any], Node]:
    """The same function, to be given another name: one that calls it would be a frame more to look through for the user's line."""
    operator = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    operator.__doc__ = f.__doc__
    operator.__wrapped__ = _operator            # type: ignore[attr-defined]        # whose signature it has
    return operator


def _operator(self: Node, other: Any) -> Any: ...


def _reflected(f: Callable[[Any, Any], Node]) -> Callable[[Node, Any], Node]:
    def operator(self: Node, other: Any) -> Node:
        return f(other, self)
    return operator


def _matmul(x: Any, y: Any) -> Node:
    return linalg.matmul(x, y)


def _divmod(x: Any, y: Any) -> tuple[Node, Node]:
    return b.floor_divide(x, y), b.remainder(x, y)


def _and(x: Any, y: Any) -> Node:
    return b.bitwise_and(x, y)


def _power(self: Node, other: Any, modulo: Any = None) -> Node:
    if modulo is not None:
        raise located(NodeTypeError("pow with three arguments is not defined for nodes; write (x ** y) % z"), "power", (self,))
    return b.power(self, other)


@public
def positive(x: Any) -> Node:
    """x itself. As in NumPy, not defined for bool."""
    x = as_node(x)
    if x.dtype.kind == "b":
        raise DTypeError("not defined for bool")
    return x


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": b.add, "sub": b.subtract, "mul": b.multiply, "truediv": b.divide, "floordiv": b.floor_divide, "mod": b.remainder,
    "matmul": _matmul, "and": _and, "or": b.bitwise_or, "xor": b.bitwise_xor, "lshift": b.left_shift, "rshift": b.right_shift,
    "divmod": _divmod,
}
for _name, _f in _BINARY.items():
    _attach(f"__{_name}__", _forward(_f), f"{_name} of the node and another operand; elementwise but for matmul.")
    _attach(f"__r{_name}__", _reflected(_f), f"{_name} of another operand and the node; elementwise but for matmul.")
for _name, _f in {"lt": b.less, "le": b.less_equal, "gt": b.greater, "ge": b.greater_equal, "eq": b.equal, "ne": b.not_equal}.items():
    _attach(f"__{_name}__", _forward(_f), "The comparison, elementwise: a bool node.")
_attach("__hash__", object.__hash__)
_attach("__pow__", _power, "The power, elementwise.")
_attach("__rpow__", _reflected(b.power), "The power, elementwise.")
_attach("__neg__", lambda self: u.negative(self), "-x")
_attach("__pos__", lambda self: positive(self), "x itself; not defined for bool.")
_attach("__abs__", lambda self: u.abs(self), "|x|")
_attach("__invert__", lambda self: u.invert(self), "Every bit the other way; for bool, not x.")
_attach("__round__", lambda self, n=None: _round(self, 0 if n is None else n), "The nearest number with n decimals, ties to even.")


def _round(x: Any, decimals: Any = 0, out: Any = None) -> Node:
    """The nearest number with so many decimals, ties to even; integers to tens, hundreds, ... with negative decimals. out must be None."""
    r.no_out(out)
    x = as_node(x)
    if isinstance(decimals, Node) or not hasattr(decimals, "__index__"):
        raise NodeTypeError(f"decimals must be a whole number, not {decimals!r}")
    decimals = decimals.__index__()
    if x.dtype.kind != "f":
        return x if decimals >= 0 or x.dtype.kind == "b" else _round_whole(x, 10 ** min(-decimals, 19))
    if decimals == 0:
        return u.rint_(x)
    if decimals > 308:          # 10^decimals is no float64; NumPy gives NaN
        return x
    if decimals < -308:
        return x * 0.0
    scale = 10.0 ** decimals
    return u.rint_(x * scale) / scale


_round.__name__ = _round.__qualname__ = "round"
_round = public(_round)


def _round_whole(x: Node, unit: int) -> Node:
    """Integers to the nearest multiple of unit, ties to even multiples, wrapping like all of their arithmetic."""
    wide = cast(x, INT64)
    if unit > 2**62:
        return cast(wide * 0, x.dtype)
    low = b.remainder(wide, unit)
    count = b.floor_divide(wide, unit)
    up = b.logical_or(b.greater(2 * low, unit), b.logical_and(b.equal(2 * low, unit), b.equal(b.remainder(count, 2), 1)))
    return cast((count + cast(up, INT64)) * unit, x.dtype)


def _whole(f: Callable[[Any], Node]) -> Callable[[Any], Node]:
    """Rounding functions leave integers as they are."""
    def function(x: Any) -> Node:
        x = as_node(x)
        return x if x.dtype.kind != "f" else f(x)
    function.__name__ = function.__qualname__ = f.__name__
    function.__doc__ = f.__doc__
    return public(function)


floor, ceil, trunc = _whole(u.floor_), _whole(u.ceil_), _whole(u.trunc_)
rint = u.rint_              # of integers it is float64, in NumPy too
fix, around = trunc, _round


def _getitem(self: Node, index: Any) -> Node:
    """x[index] by NumPy's rules."""
    return indexing.index(self, index)


class At:
    """x.at[index]: functional updates. set replaces, add accumulates duplicates; both give a new node."""

    __slots__ = ("_index", "_node")

    def __init__(self, node: Node, index: Any = None) -> None:
        self._node, self._index = node, index

    def __getitem__(self, index: Any) -> At:
        return At(self._node, index)

    def set(self, value: Any) -> Node:
        """x with the elements at the index replaced; of duplicates the last counts."""
        return indexing.set_at(self._node, self._index, value)

    def add(self, value: Any) -> Node:
        """x with value added at the index; duplicates accumulate."""
        return indexing.add_at(self._node, self._index, value)


known_as(At.set, "x.at[...].set")
known_as(At.add, "x.at[...].add")


def _astype(self: Node, dtype: Any, copy: bool = True) -> Node:
    """The node in another dtype. Float to integer truncates and cuts the derivative. copy means nothing: nodes are immutable."""
    try:
        return cast(self, asked_dtype(dtype))
    except GraphdiffError as error:
        raise located(error, "astype", (self,)) from None


def _method(f: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Node, *args: Any, **kwargs: Any) -> Any:
        return f(self, *args, **kwargs)
    method.__doc__ = f.__doc__
    method.__wrapped__ = f      # type: ignore[attr-defined]       # whose signature is the method's, but for the first operand
    return method


def _transpose_method(self: Node, *axes: Any) -> Node:
    """Axes reversed, or in the order given (as one tuple or several ints)."""
    if not axes or (len(axes) == 1 and axes[0] is None):
        return m.transpose(self)
    return m.transpose(self, axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list, np.ndarray)) else axes)


def _clip(self: Node, min: Any = None, max: Any = None, out: Any = None) -> Node:
    """The node between two bounds, of which one may be None. out must be None."""
    return activations.clip(self, min, max, out)


_METHODS: dict[str, Callable[..., Any]] = {
    "sum": r.sum, "mean": moments.mean, "prod": r.prod, "max": r.max, "min": r.min, "var": moments.var, "std": moments.std,
    "any": r.any, "all": r.all, "argmax": r.argmax, "argmin": r.argmin, "ptp": moments.ptp, "reshape": m.reshape,
    "squeeze": m.squeeze, "swapaxes": m.swapaxes, "ravel": m.ravel, "flatten": m.ravel, "repeat": repeat, "diagonal": m.diagonal,
    "trace": m.trace, "round": _round,
    "dot": linalg.dot, "cumsum": scan.cumsum, "cumprod": scan.cumprod, "sort": scan.sort, "argsort": scan.argsort, "take": indexing.take,
}
for _name, _g in _METHODS.items():
    _attach(_name, _method(_g))
_attach("transpose", _transpose_method)
_attach("clip", _clip)
_attach("astype", _astype)
_attach("copy", lambda self: self, "The node itself: it is immutable.")
_attach("conj", lambda self: self, "The node itself: it is real.")
_attach("conjugate", lambda self: self, "The node itself: it is real.")
_attach("item", lambda self: float(self), "A NodeTypeError that says how to get numbers.")
_attach("tolist", lambda self: self.__array__(), "A NodeTypeError that says how to get numbers.")
_attach("__getitem__", _getitem)
_attach("T", property(lambda self: m.transpose(self), doc="The axes reversed."))
_attach("mT", property(lambda self: m.matrix_transpose(self), doc="The last two axes exchanged."))
_attach("at", property(At, doc="Functional updates: x.at[index].set(v), x.at[index].add(v)."))
_attach("real", property(lambda self: self, doc="The node itself: it is real."))


@public
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Node:
    """Differences of neighbours along an axis, n times; prepend and append are joined to x first."""
    x = as_node(x)
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ShapeError(f"n must be a whole number of at least 0, not {n!r}")
    if n == 0:
        return x
    if x.ndim == 0:
        raise ShapeError("x needs at least one axis")
    axis = normalize_axis(axis, x.ndim)
    parts = [x]
    for first, end in ((True, prepend), (False, append)):
        if end is not None:
            end = as_node(end)
            if end.ndim == 0:
                end = m.broadcast_to(end, (*x.shape[:axis], 1, *x.shape[axis + 1:]))
            parts.insert(0 if first else len(parts), end)
    if len(parts) > 1:
        x = concatenate(parts, axis)
    for _ in range(n):
        if x.shape[axis] == 0:
            break
        before = (slice(None),) * axis
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = b.not_equal(later, earlier) if x.dtype.kind == "b" else b.subtract(later, earlier)
    return x
