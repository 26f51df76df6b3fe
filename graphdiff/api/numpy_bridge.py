"""NumPy's protocols: np.exp(node), np.einsum(..., node) and ndarray @ node build nodes.

A NumPy function is answered by graphdiff's function of the same name; one that has none is a TypeError that says so.
"""
from __future__ import annotations

from typing import Any

from ..errors import NodeTypeError
from ..graph.build import located
from ..graph.node import Node

_UFUNCS = {"absolute": "abs", "true_divide": "divide", "mod": "remainder", "conjugate": "positive",
           "invert": "invert", "bitwise_not": "invert", "positive": "positive", "fabs": "abs"}
_OPTIONS = {"vecdot": ("axis",)}       # of ufuncs that have some of their own
_REDUCE = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
           "logaddexp": "logsumexp"}
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod"}


def _lookup(name: str) -> Any:
    import graphdiff
    function = getattr(graphdiff, name, None)
    return function if callable(function) else None


def _array_ufunc(self: Node, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    name = ufunc.__name__
    out = kwargs.pop("out", None)
    if out is not None:
        raise located(NodeTypeError(f"np.{name}: a node cannot be written into an array (out=)"), f"np.{name}", inputs)
    for option, harmless in (("where", True), ("dtype", None), ("casting", "same_kind"), ("order", "K"), ("subok", True)):
        if option in kwargs and kwargs[option] is harmless:
            kwargs.pop(option)
    table = {"__call__": _UFUNCS, "reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {})
    target = table.get(name, name if method == "__call__" else "")
    function = _lookup(target) if target else None
    if method == "reduce":
        kwargs = {k: v for k, v in kwargs.items() if v is not None or k == "axis"}
        kwargs.setdefault("axis", 0)
    elif method == "accumulate" and len(inputs) == 1:
        kwargs.setdefault("axis", 0)
    if function is None:
        what = f"np.{name}" + ("" if method == "__call__" else f".{method}")
        raise located(NodeTypeError(f"{what} has no counterpart for nodes"), what, inputs)
    unknown = [k for k in kwargs if k not in _OPTIONS.get(name, ())]
    if method == "__call__" and unknown:
        raise located(NodeTypeError(f"np.{name}: {', '.join(f'{k}=' for k in unknown)} is not supported for nodes"), f"np.{name}", inputs)
    return function(*inputs, **kwargs)


def _array_function(self: Node, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    name = func.__name__
    if name in ("shape", "ndim") and len(args) == 1:
        return getattr(args[0], name)
    function = _lookup(name)
    if getattr(func, "__module__", "") == "numpy.linalg" and name in ("trace", "diagonal"):
        # Of the last two axes there, of the first two in numpy itself.
        kwargs = {"axis1": -2, "axis2": -1, **kwargs}
    if function is None:
        raise located(NodeTypeError(f"np.{name} has no counterpart for nodes"), f"np.{name}", ())
    if kwargs.get("out", args) is None:       # as if it were not there
        kwargs = {k: v for k, v in kwargs.items() if k != "out"}
    return function(*args, **kwargs)


Node.__array_ufunc__ = _array_ufunc      # type: ignore[attr-defined]
Node.__array_function__ = _array_function      # type: ignore[attr-defined]
Node.__array_priority__ = 1000.0      # type: ignore[attr-defined]
