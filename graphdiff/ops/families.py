"""What elementwise ops share: promotion of operands, the shape rule, and the functions made from a record.

A record states each partial derivative once; `diff` turns it into both modes. An op's public function promotes its
operands by NumPy 2's rules (Python numbers are weak) and makes casts visible as nodes of their own.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import BOOL, FLOAT64, INT64, PROMOTE, TWO_BOOLS, as_dtype, float_of, is_number, weak
from ..errors import BadValue, DTypeError, GraphdiffError, NodeTypeError, OutOfRange, show_name
from ..graph.build import as_node, located, make, public, scalar
from ..graph.node import Node
from ..graph.opdef import ZERO, OpDef, register
from ..specs import broadcast, check_shape

NUMBER = (float, int, bool)
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "an operand that was not given"})()


Unary = Callable[[Any], Node]           # the public function of an elementwise op
Binary = Callable[[Any, Any], Node]


def _infer_same(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    first = inputs[0]
    shape = first.shape
    for x in inputs:
        if x.shape != shape:
            return check_shape(broadcast(*[y.shape for y in inputs]), first.dtype), first.dtype
    return shape, first.dtype


def _infer_unary(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    x = inputs[0]
    return x.shape, x.dtype


def _infer_binary(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    x, y = inputs
    a, b = x.shape, y.shape
    if a == b or not b:
        return a, x.dtype
    if not a:
        return b, x.dtype
    return check_shape(broadcast(a, b), x.dtype), x.dtype


def _infer_test(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return _infer_same(inputs, attrs)[0], BOOL


def _infer_cast(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    x, dtype = inputs[0], attrs[0]
    return x.shape if dtype.itemsize <= x.dtype.itemsize else check_shape(x.shape, dtype), dtype


def _cast_vjp(g: Node, node: Node, needs: Any) -> Any:
    return (cast(g, node.inputs[0].dtype),)


CAST = register(OpDef("cast", "x as another dtype", _infer_cast, lambda x, *, dtype: np.asarray(x).astype(dtype),
                      attr_names=("dtype",), arity=1, family="elementwise", vjp=_cast_vjp, linear=(0,), lower="cast"))


def cast(x: Node, dtype: Any) -> Node:
    """x in another dtype; x itself when it has it already."""
    return x if x.dtype is dtype else make(CAST, (x,), (dtype,))


def lift(x: Any, what: str) -> Node:
    """The operand of the function `what` as a node, or an error that names the function and the user's line."""
    if isinstance(x, Node):
        return x
    if x is MISSING:
        raise misfit(what, 1, 0)
    try:
        return as_node(x)
    except GraphdiffError as error:
        raise located(error, what) from None


def misfit(what: str, needed: int, given: int, options: dict[str, Any] | None = None) -> Exception:
    """The error for a call with a wrong number of operands or an option that does not exist.

    Elementwise functions take `*more, **options` and look themselves: a decorator around each would make building a third slower.
    """
    fact = f"takes {needed} operand{'s' if needed != 1 else ''}, {given} given"
    if options:
        fact = f"got an unexpected keyword argument {show_name(next(iter(options)))!r}"
    error: Exception = located(NodeTypeError(fact), what)
    return error


def operands(a: Any, b: Any, what: str, names: tuple[str, str] = ("the left operand", "the right operand")) -> tuple[Node, Node]:
    """`pair` for the function `what`: an operand it cannot take is an error that names the function and the user's line."""
    try:
        return pair(a, b)
    except GraphdiffError as error:
        if b is MISSING:
            raise misfit(what, 2, 0 if a is MISSING else 1) from None
        if isinstance(error, OutOfRange) or (isinstance(error, DTypeError) and isinstance(a, Node) is not isinstance(b, Node)):
            error = type(error)(f"{names[isinstance(a, Node)]}: {error}")
        raise located(error, what, (a, b)) from None


def reals(a: Any, b: Any, what: str) -> tuple[Node, Node]:
    """`operands` of a function of floats: beside integers a whole number is a float64, whatever their dtype can hold."""
    try:
        return pair(a, b)
    except OutOfRange:
        x, number = (a, b) if isinstance(a, Node) else (b, a)
        if not isinstance(x, Node) or x.dtype.kind == "f" or number.bit_length() > 1023:
            return operands(a, b, what)
    except GraphdiffError:
        return operands(a, b, what)
    x, y = cast(x, FLOAT64), scalar(float(number), FLOAT64)
    return (x, y) if isinstance(a, Node) else (y, x)


def compared(a: Any, b: Any, what: str) -> tuple[Node, Node]:
    """`operands` of a comparison: a whole number beyond the other's dtype is larger or smaller than all of it, as in NumPy."""
    try:
        return pair(a, b)
    except OutOfRange:
        x, number = (a, b) if isinstance(a, Node) else (b, a)
        if not isinstance(x, Node):
            return operands(a, b, what)
    except GraphdiffError:
        return operands(a, b, what)
    if -2**63 <= number < 2**63:
        x, y = cast(x, INT64), scalar(number, INT64)
    else:
        x, y = cast(x, FLOAT64), scalar(np.copysign(np.inf, 1 if number > 0 else -1), FLOAT64)
    return (x, y) if isinstance(a, Node) else (y, x)


def pair(a: Any, b: Any) -> tuple[Node, Node]:
    """Two operands as nodes of one dtype."""
    if isinstance(a, Node):
        if isinstance(b, Node):
            pass
        elif type(b) is float and a.dtype.kind == "f":          # most of them
            return a, scalar(b, a.dtype)
        elif type(b) in NUMBER:
            dtype = weak(b, a.dtype)
            return cast(a, dtype), scalar(b, dtype)
        else:
            b = as_node(b, a.dtype)
    elif isinstance(b, Node):
        if type(a) in NUMBER:
            dtype = weak(a, b.dtype)
            return scalar(a, dtype), cast(b, dtype)
        a = as_node(a, b.dtype)
    else:
        a, b = as_node(a), as_node(b)
    if a.dtype is b.dtype:
        return a, b
    dtype = PROMOTE[a.dtype, b.dtype]
    return cast(a, dtype), cast(b, dtype)


def flag(value: Any, what: str) -> bool:
    """An option that is True or False (or 1 or 0): text or a list in its place is an argument that slipped."""
    if not isinstance(value, (bool, np.bool_)) and not (isinstance(value, int) and value in (0, 1)):
        raise NodeTypeError(f"{what} must be True or False, not {value!r}")
    return bool(value)


def number(value: Any, what: str, least: float = -math.inf, *, above: float = -math.inf) -> float:
    """An option that is a finite number of at least `least`, larger than `above`: not NaN, text or a bool."""
    if not is_number(value):
        raise NodeTypeError(f"{what} must be a number, not {value!r}")
    if not (math.isfinite(value) and value >= least and value > above):
        need = f" of at least {least:g}" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""
        raise BadValue(f"{what} must be a finite number{need}, not {value!r}")
    return float(value)


def slope(value: Any, what: str) -> Any:
    """A factor of an activation: a node or an array as it is; a number that is no bool and not NaN, else an error."""
    if isinstance(value, (Node, np.ndarray)):
        return value
    if not is_number(value):
        raise NodeTypeError(f"{what} must be a number, an array or a node, not {value!r}")
    if math.isnan(value):
        raise BadValue(f"{what} must be a number, not {value!r}")
    return value


def argument(value: Any, what: str, like: Any = None) -> Node:
    """An operand as a node; what cannot be one is an error that names the argument."""
    try:
        return as_node(value, like)
    except GraphdiffError as error:
        raise type(error)(f"{what}: {error}") from None


def floating(x: Any) -> Node:
    """One operand as a node of a float dtype."""
    x = as_node(x)
    return x if x.dtype.kind == "f" else cast(x, FLOAT64)


def _doc(op: OpDef) -> str:
    lines = [f"{op.formula}", "", "Shapes: any; operands broadcast.",
             f"Accuracy: {op.ulp:g} ULP." if op.ulp else "Accuracy: correctly rounded."]
    if op.source:
        lines.append(f"Source: {op.source}.")
    return "\n".join(lines)


def _finish(function: Callable[..., Any], op: OpDef, doc: str | None) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "graphdiff"       # where it is public: pickles find it there
    function.__doc__ = doc or _doc(op)
    function.op = op          # type: ignore[attr-defined]
    function.__wrapped__ = _one if op.arity == 1 else _two          # type: ignore[attr-defined]   # what signatures and help show
    return function


def _one(x: Any) -> Any: ...


def _two(x: Any, y: Any) -> Any: ...


def unary(name: str, formula: str, reference: Callable[..., Any], partial: Any = None, *, kind: str = "float",
          of_bool: Callable[[Node], Node] | None = None, doc: str | None = None, **facts: Any) -> Callable[[Any], Node]:
    """Register an elementwise op of one operand and return its public function.

    kind: "float" (integers become float64 first), "any" (every number), "int" (integers and bool), "test" (gives bool).
    of_bool: what a bool gives where the kind is "any"; without it bools are refused.
    """
    if partial is not None:
        facts["partials"] = (partial,)
    op = register(OpDef(name, formula, _infer_test if kind in ("test", "ftest") else _infer_unary, reference, arity=1,
                        family="elementwise", **facts))

    if kind in ("float", "ftest"):
        def function(x: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 1, 1 + len(more), options)
            if not isinstance(x, Node):
                x = lift(x, name)
            if x.dtype.kind != "f":
                x = cast(x, FLOAT64)
            return make(op, (x,))
    elif kind == "any":
        def function(x: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 1, 1 + len(more), options)
            x = lift(x, name)
            if x.dtype is BOOL:
                if of_bool is None:
                    raise located(DTypeError("not defined for bool"), name, (x,))
                return of_bool(x)
            return make(op, (x,))
    elif kind == "int":
        def function(x: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 1, 1 + len(more), options)
            x = lift(x, name)
            if x.dtype.kind == "f":
                raise located(DTypeError(f"defined for integers and bool, not {x.dtype}"), name, (x,))
            return make(op, (x,))
    else:
        def function(x: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 1, 1 + len(more), options)
            return make(op, (lift(x, name),))
    return _finish(function, op, doc)


def binary(name: str, formula: str, reference: Callable[..., Any], partials: tuple[Any, Any] | None = None, *,
           kind: str = "float", bools: bool = True, doc: str | None = None, **facts: Any) -> Callable[[Any, Any], Node]:
    """Register an elementwise op of two operands and return its public function; kinds as for `unary`.

    bools=False: NumPy refuses two bools or computes them in int8, and the op refuses them.
    """
    if partials is not None:
        facts["partials"] = partials
    op = register(OpDef(name, formula, _infer_test if kind == "test" else _infer_binary, reference, arity=2,
                        family="elementwise", **facts))

    if kind == "float":
        def function(x: Any = MISSING, y: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 2, 2 + len(more), options)
            x, y = reals(x, y, name)
            if x.dtype.kind != "f":
                x, y = cast(x, FLOAT64), cast(y, FLOAT64)
            return make(op, (x, y))
    elif kind == "int":
        def function(x: Any = MISSING, y: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 2, 2 + len(more), options)
            x, y = operands(x, y, name)
            if x.dtype.kind == "f":
                raise located(DTypeError(f"defined for integers and bool, not {x.dtype}"), name, (x, y))
            if x.dtype is BOOL and not bools:
                raise located(DTypeError(TWO_BOOLS), name, (x, y))
            return make(op, (x, y))
    elif kind == "test":
        def function(x: Any = MISSING, y: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 2, 2 + len(more), options)
            return make(op, compared(x, y, name))
    elif bools:
        def function(x: Any = MISSING, y: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 2, 2 + len(more), options)
            return make(op, operands(x, y, name))
    else:
        def function(x: Any = MISSING, y: Any = MISSING, *more: Any, **options: Any) -> Node:
            if more or options:
                raise misfit(name, 2, 2 + len(more), options)
            x, y = operands(x, y, name)
            if x.dtype is BOOL:
                raise located(DTypeError("not defined for two bools\nhint: use logical_xor or astype('int64')" if name == "subtract" else TWO_BOOLS),
                              name, (x, y))
            return make(op, (x, y))
    return _finish(function, op, doc)


__all__ = ["BOOL", "CAST", "FLOAT64", "ZERO", "as_dtype", "binary", "cast", "float_of", "floating", "lift", "operands", "pair", "public", "unary"]
