"""NumPy's protocols: np.exp(node), np.einsum(..., node) and ndarray @ node build nodes.

A NumPy function is answered by graphdiff's function of the same name; one that has none is a TypeError that says so.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import NodeTypeError
from ..graph.build import located
from ..graph.node import Node

_UFUNCS = {"absolute": "abs", "true_divide": "divide", "mod": "remainder", "conjugate": "positive",
           "invert": "invert", "bitwise_not": "invert", "positive": "positive"}
_OPTIONS = {"vecdot": ("axis",)}       # of ufuncs that have some of their own
_REDUCE = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
           "logaddexp": "logsumexp"}
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod"}


_NO_VALUE: Any = np._NoValue       # NumPy's own "not given"


def _lookup(name: str) -> Any:
    import graphdiff
    function = getattr(graphdiff, name, None)
    return function if callable(function) else None


def _array_ufunc(self: Node, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """np.exp(node) and the like: the function of the same name here."""
    name = ufunc.__name__
    out = kwargs.pop("out", None)
    if out is not None:
        raise located(NodeTypeError(f"np.{name}: a node cannot be written into an array (out=)"), f"np.{name}", inputs)
    for option, harmless in (("where", True), ("dtype", None), ("casting", "same_kind"), ("order", "K"), ("subok", True)):
        if option in kwargs and kwargs[option] is harmless:
            kwargs.pop(option)
    table = {"__call__": _UFUNCS, "reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {})
    target = table.get(name, name if method == "__call__" else "")
    if name == "fabs" and method == "__call__" and not kwargs:
        x = inputs[0] if inputs[0].dtype.kind == "f" else inputs[0].astype("float64")
        return _lookup("abs")(x)
    if name == "divmod" and method == "__call__" and not kwargs:
        return _lookup("floor_divide")(*inputs), _lookup("remainder")(*inputs)
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
    """np.sum(node) and the like: the function of the same name here."""
    name = func.__name__
    if getattr(func, "__module__", "") == "numpy.lib.scimath":       # complex where the real function is NaN
        raise located(NodeTypeError(f"np.emath.{name} has no counterpart for nodes: they are real"), f"np.emath.{name}", args)
    if name in ("shape", "ndim") and len(args) == 1:
        return getattr(args[0], name)
    function = _lookup(name)
    if getattr(func, "__module__", "") == "numpy.linalg" and name in ("trace", "diagonal"):
        # Of the last two axes there, of the first two in numpy itself.
        kwargs = {"axis1": -2, "axis2": -1, **kwargs}
    if function is None:
        where, hint = getattr(func, "__module__", "numpy").removeprefix("numpy").lstrip("."), ""
        if where == "linalg":
            hint = "\nhint: there are products and norms here, no decompositions and no solving of equations"
        what = f"np.{where}.{name}" if where in ("linalg", "fft", "random") else f"np.{name}"
        raise located(NodeTypeError(f"{what} has no counterpart for nodes{hint}"), what, ())
    args, kwargs = _without_out(func, args, kwargs)
    if name == "reshape":              # sizes one by one are the method's way, not that of NumPy's function
        args, kwargs = _as_reshape(*args, **kwargs)
    return function(*args, **kwargs)


def _as_reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> tuple[Any, Any]:
    """np.reshape(a, shape, order) as gd.reshape takes it. A node is never a view of another, so a copy is as good as none."""
    return (a, shape), {"order": order}


def _without_out(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A call of NumPy's without an out that is None; what stands behind it goes by name."""
    if len(args) > 2:
        from inspect import signature
        names = [p.name for p in signature(func).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        at = names.index("out") if "out" in names else len(args)
        if at < len(args) <= len(names):
            args, kwargs = args[:at], {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}
    out = kwargs.get("out")
    if out is not None:
        raise located(NodeTypeError("out: a node cannot be written into an array"), f"np.{func.__name__}", args)
    return args, {k: v for k, v in kwargs.items() if k != "out" and v is not _NO_VALUE}


for _function, _public in ((_array_ufunc, "__array_ufunc__"), (_array_function, "__array_function__")):
    _function.__name__, _function.__qualname__ = _public, f"Node.{_public}"
Node.__array_ufunc__ = _array_ufunc      # type: ignore[attr-defined]
Node.__array_function__ = _array_function      # type: ignore[attr-defined]
Node.__array_priority__ = 1000.0      # type: ignore[attr-defined]
