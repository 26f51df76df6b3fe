"""Making nodes: the one door through which every operation enters the graph.

`make` runs the op's shape rule, notes the user's line, and turns a rule's one-line complaint into a located error.
`as_node` lifts arrays and Python numbers. `making` sets where nodes come from while differentiation or a pass builds
them, so that a derived node names the user's line of the node it belongs to.
"""
from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..dtypes import BOOL, DTYPES, FLOAT64, INT64, as_dtype, clean_bools, weak
from ..errors import BadValue, DTypeError, GraphdiffError, NodeTypeError, OutOfRange, compose, one_line
from ..specs import as_shape, check_memory, check_shape
from .node import Node, capture, describe, new_node, raised_by_user, resolve
from .opdef import OpDef, register

P = ParamSpec("P")
R = TypeVar("R")


FACT_LIMIT = 500        # characters of a line of an error


class _Context(threading.local):
    """Where new nodes come from: site (None: the caller's line), origin, and the name of the enclosing gd.scope ("" outside).

    One attribute for the three: each access to what is a thread's own costs a hundredth of making a node.
    """

    now: tuple[Any, Any, str] = (None, None, "")
    calling_back = False        # a function of the user's builds nodes for differentiation: their place is set, that of an error is its own line


CONTEXT = _Context()


@contextmanager
def calling_back() -> Iterator[None]:
    """Errors of nodes made inside are at the line that makes them, whatever place the nodes have."""
    before, CONTEXT.calling_back = CONTEXT.calling_back, True
    try:
        yield
    finally:
        CONTEXT.calling_back = before


@contextmanager
def making(site: Any, origin: Any = None) -> Iterator[None]:
    """Nodes made inside belong to `site` and `origin`."""
    before = CONTEXT.now
    CONTEXT.now = (site, origin, before[2])
    try:
        yield
    finally:
        CONTEXT.now = before


def make(op: OpDef, inputs: tuple[Node, ...], attrs: tuple[Any, ...] = ()) -> Node:
    """A new node: shape and dtype by the op's rule, errors located at the user's line.

    Raises ShapeError or DTypeError naming the op, the line and every operand.
    """
    try:
        shape, dtype = op.infer(inputs, attrs)
    except GraphdiffError as error:
        raise located(error, op.name, inputs) from None
    site, origin, scope = CONTEXT.now
    return new_node(op, inputs, attrs, shape, dtype, capture() if site is None else site, origin, None, scope)


def leaf(op: OpDef, attr: Any, shape: tuple[Any, ...], dtype: Any, name: str | None = None) -> Node:
    """A new node without inputs and with one attribute."""
    site, origin, scope = CONTEXT.now
    return new_node(op, (), (attr,), shape, dtype, capture() if site is None else site, origin, name, scope)


SLICING = "x[...]"          # what messages call indexing
UNSAID = frozenset(("add_at", "gather", "set_at"))      # what indexing is made of, beside the name of the call: no names of the user's


def located(error: Any, what: str, inputs: tuple[Any, ...] = ()) -> Any:
    """The same error with the op's name, the user's line and the operands; an already located one is left alone."""
    if getattr(error, "located", False):
        return error
    raw = raised_by_user(error)
    if raw is not None:                             # in a callback: what called it has other operands
        inputs = ()
    elif CONTEXT.now[0] is None or CONTEXT.calling_back:
        raw = capture()
    else:
        raw = CONTEXT.now[0]
    site = resolve(raw)
    nodes = [x for x in inputs if isinstance(x, Node)]
    fact, _, hint = str(error).replace("\n  hint    ", "\nhint: ").partition("\nhint: ")
    fact = "\n".join([one_line(line, FACT_LIMIT) for line in fact.split("\n")])      # it may quote an argument of any length
    call = "" if site is None else site.call        # the user called that, and it called `what`
    fact = fact.removeprefix(f"{what}: ")
    what = SLICING if what == "index" else what
    fact = fact if call and what in UNSAID else f"{what}: {fact}"
    text = compose(fact if not call or fact.startswith(f"{call}: ") else f"{call}: {fact}", at=None if site is None else (str(site), site.source),
                   rows=operand_rows(nodes), hint=hint or None)
    new = type(error)(text)
    new.located = True
    return new


def operand_rows(nodes: Sequence[Node]) -> list[tuple[str, tuple[str, str, str]]]:
    """The rows of an error that name the operands."""
    labels = ("left", "right") if len(nodes) == 2 else tuple(f"operand {i}" for i in range(len(nodes))) if len(nodes) > 2 else ("operand",)
    return [(label, describe(x)) for label, x in zip(labels, nodes, strict=False)]


# Where the code of this package and of NumPy stands.
_OURS = tuple(os.path.join(path, "") for path in (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(np.__file__)))

# What NumPy calls operands that are x, y, xs, n and m here, whatever the function: np.sum(a=...), np.stack(arrays=...).
NUMPYS_NAMES = {"a": "x", "arr": "x", "ary": "x", "array": "x", "m": "x", "v": "x", "A": "x", "b": "y", "arrays": "xs", "tup": "xs",
                "N": "n", "M": "m"}


def _renamed(function: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """The options with NumPy's names of operands replaced by this function's, or None where none is such a name."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    odd = {k for k in options if k not in names and NUMPYS_NAMES.get(k) in names}
    if not odd or any(NUMPYS_NAMES[k] in options for k in odd):
        return None
    return {NUMPYS_NAMES[k] if k in odd else k: v for k, v in options.items()}


def _better(error: Exception, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a public function does about an error: raise a located one, raise it as it is, or be called again with these options."""
    if isinstance(error, GraphdiffError):
        return error if getattr(error, "located", False) else located(_of_dtype(error, function, args, options), function.__name__, args)
    if isinstance(error, OverflowError):        # of a number for NumPy or for a C integer
        return located(OutOfRange(str(error)), function.__name__, args)
    here = error.__traceback__
    if here is None or here.tb_next is not None or isinstance(error, ValueError):
        return _of_arguments(error, function, args, options)
    renamed = _renamed(function, options)
    # The call itself did not fit: a wrong keyword, too many or too few arguments.
    return located(NodeTypeError(str(error).partition("() ")[2] or str(error)), function.__name__, args) if renamed is None else renamed


def _given(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> list[tuple[str, Any]]:
    """The arguments of a call with their names."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[:code.co_argcount]
    return [*zip([*names, *["an argument"] * len(args)], args, strict=False), *options.items()]


def _of_dtype(error: GraphdiffError, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> GraphdiffError:
    """An error about a dtype that one argument alone has, with the name of that argument."""
    if not isinstance(error, DTypeError):
        return error
    odd = [name for name, value in _given(function, args, options) if isinstance(value, str | bytes | np.ndarray)
           and (dtype := np.asarray(value).dtype).kind not in "biuf" and f"dtype {dtype} " in str(error)]
    return type(error)(f"{odd[0]}: {error}") if len(odd) == 1 and not str(error).startswith(odd[0]) else error


def _of_arguments(error: Exception, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A TypeError or ValueError that Python or NumPy raised over an argument, as one of ours that says which arguments are neither nodes
    nor numbers nor text. What the caller's own code raised, a callback for instance, stays as it is."""
    frame = error.__traceback__
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(_OURS):
            return error
        frame = frame.tb_next
    given = _given(function, args, options)
    odd = [f"{name} is of type {type(value).__name__}" for name, value in given if not isinstance(value, (Node, int, float, str, type(None)))]
    text = f"{error}: {', '.join(odd)}" if odd else str(error)
    kind = BadValue if isinstance(error, ValueError) else NodeTypeError
    return located(kind(text), function.__name__, args)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions that check arguments before they make nodes: locates what they raise."""
    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (GraphdiffError, OverflowError, TypeError, ValueError) as error:
            better = _better(error, function, args, kwargs)
            if better is error:
                raise
            if isinstance(better, Exception):
                raise better from None
        return wrapper(*args, **better)
    return wrapper


def placed(init: Callable[..., None], name: Callable[[str], str] = str) -> Callable[..., None]:
    """An __init__ whose errors of ours name the class and the line that makes one of it."""
    @wraps(init)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        try:
            init(self, *args, **options)
        except GraphdiffError as error:
            raise located(error, name(type(self).__name__)) from None
    return __init__


def _leaf(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    raise AssertionError("leaves are not made through infer")


CALL = "()"                 # in a scope's name: a call of a composed function, and its number
_calls = itertools.count(1)


def composed(function: Callable[P, R], *, calls_back: bool = False) -> Callable[P, R]:
    """Decorator of public functions that are written in terms of others: what one call builds is a scope of its own, such as
    `gelu()7`. Calls are numbered, so that two of them in one place stay two boxes of a picture. calls_back: it calls functions of the
    user's, whose nodes have lines of their own; else the line is that of the call, looked for once."""
    inner = public(function)
    own = function.__name__
    name = own + CALL

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        context = CONTEXT
        before = context.now
        site, origin, scope = before
        if site is None and not calls_back:
            site = capture(own)
        context.now = (site, origin, f"{scope}/{name}{next(_calls)}" if scope else f"{name}{next(_calls)}")
        try:
            return inner(*args, **kwargs)
        finally:
            context.now = before
    return wrapper


def called(part: str) -> str | None:
    """The function whose call a part of a scope is; None for scopes of other kinds."""
    name, mark, number = part.rpartition(CALL)
    return name if mark and number.isdecimal() else None


def call_of(node: Node) -> str:
    """The public function whose call made a node: cross_entropy for what is a gather_along; the op where nothing else is known."""
    for part in node.scope.split("/") if node.scope else ():
        name = called(part)
        if name is not None:
            return name
    site = node.site
    while (site is None or not site.call) and node.origin is not None and node.origin.consumer is not None:
        node = node.origin.consumer         # whose derivative it is
    return site.call if site is not None and site.call else node.op.name


def renumbered(scope: str, known: dict[str, str]) -> str:
    """A scope that was read from a file, with numbers of calls that nobody here has; `known` holds those given already."""
    if CALL not in scope:
        return scope
    parts = []
    for part in scope.split("/"):
        name = called(part)
        parts.append(part if name is None else known.setdefault(part, f"{name}{CALL}{next(_calls)}"))
    return "/".join(parts)


INPUT = register(OpDef("input", "given by the caller", _leaf, None, family="leaf", cuts="an input depends on nothing",
                       lower="leaf"))
CONSTANT = register(OpDef("constant", "a fixed array", _leaf, None, attr_names=("value",), family="leaf",
                          cuts="a constant depends on nothing", lower="leaf"))
VARIABLE = register(OpDef("variable", "an array that persists between calls", _leaf, None, attr_names=("storage",),
                          family="leaf", cuts="a variable depends on nothing", lower="leaf"))


def check_name(name: Any) -> None:
    """A node's name: text, and not that of a dtype, which gd.input takes in this place."""
    if name is not None and not isinstance(name, str):
        hint = "\nhint: give an array of the dtype" if isinstance(name, (type, np.dtype)) else ""
        raise NodeTypeError(f"a name is a str, not {type(name).__name__}{hint}")
    if name is not None and name in [d.name for d in DTYPES]:
        raise NodeTypeError(f"{name!r} stands where the name is\nhint: give an array of that dtype: np.array(value, {name!r})")


def make_constant(array: np.ndarray[Any, Any], name: str | None = None) -> Node:
    """A constant from an array that is canonical in dtype and that nobody else writes to."""
    array.setflags(write=False)
    return leaf(CONSTANT, array, array.shape, array.dtype, name)


def scalar(value: Any, dtype: Any) -> Node:
    """A 0-d constant of the given dtype. Raises OutOfRange for a Python integer the dtype cannot hold."""
    try:
        array = np.array(value, dtype)
    except OverflowError:
        weak(value, dtype)      # raises, with a sentence of ours
        raise
    array.setflags(write=False)         # a fifth of what `flags.writeable` costs
    site, origin, scope = CONTEXT.now   # as `leaf`, without a call: every second node of a chain is such a number
    return new_node(CONSTANT, (), (array,), (), dtype, capture() if site is None else site, origin, None, scope)


def checked_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """`value` as a fresh C-ordered array of one of the seven dtypes; objects, text, dates and complex are refused."""
    if isinstance(value, Node):
        raise NodeTypeError(f"{what}: a node was given where an array is needed")
    try:
        array = np.asarray(unmasked(value, what))
    except (ValueError, OverflowError) as error:
        raise DTypeError(f"{what}: cannot make an array of a {type(value).__name__}: {error}") from None
    except NodeTypeError:                   # of a node in it
        if not holds_nodes(value):
            raise
        array = np.asarray(None)
    if array.dtype.kind == "O":
        _check_objects(value, array, what)
    if array.dtype.kind == "O" and array.shape == () and not isinstance(value, np.ndarray):
        raise DTypeError(f"{what}: a value of type {type(value).__name__} is neither a node nor a number nor an array")
    dtype = as_dtype(array.dtype)
    check_memory(array.shape, dtype)
    if dtype is BOOL:
        array = clean_bools(array)
    return np.array(array, dtype, order="C", copy=True, subok=False)


def _check_objects(value: Any, array: Any, what: str) -> None:
    """Raise for what is known among things that are no numbers."""
    from ..dims import AS_VALUE, Dim
    if holds_nodes(value):
        raise NodeTypeError(f"{what}: a list that holds nodes is not an array\nhint: gd.stack([...]) joins nodes")
    if isinstance(value, int):
        weak(value, INT64)
    sizes = [v for v in array.reshape(-1)[:1000] if isinstance(v, Dim)]
    if sizes:
        raise NodeTypeError(f"{what}: the size {sizes[0]} is known only when a function runs; {AS_VALUE}")


def _holds(value: Any, kind: type) -> bool:
    """Is there one of a kind among the first thousand elements of a list, tuple or dict, and of those in it?"""
    stack, seen = [value], 0
    while stack and seen < 1000:
        item = stack.pop()
        seen += 1
        if isinstance(item, kind):
            return True
        if isinstance(item, (list, tuple)):
            stack.extend(item[:100])
        elif isinstance(item, dict):
            stack.extend(list(item.values())[:100])
    return False


def holds_nodes(value: Any) -> bool:
    """Is there a node among the first thousand elements of a list, tuple or dict, and of those in it?"""
    return _holds(value, Node)


def unmasked(value: Any, what: str) -> Any:
    """The value, which may be no masked array, nor hold or become one: NumPy drops the mask without a word."""
    found = value
    if not isinstance(value, (Node, np.ndarray, int, float)):
        if hasattr(type(value), "__array__"):
            found = value = np.asanyarray(value)
        elif _holds(value, np.ma.MaskedArray):
            found = np.ma.masked
    if isinstance(found, np.ma.MaskedArray):
        raise DTypeError(f"{what}: masked arrays are not supported; use .filled(value)")
    return value


def as_node(value: Any, like: Any = None) -> Node:
    """A node for an operand: nodes as they are, arrays as constants, Python numbers as constants of a weak dtype.

    `like` is the dtype a Python number adapts to (NumPy 2 rules); None means none.
    """
    if isinstance(value, Node):
        return value
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        dtype = weak(value, like) if like is not None else FLOAT64 if kind is float else BOOL if kind is bool else weak(value, BOOL)
        return scalar(value, dtype)
    from ..dims import Dim
    if isinstance(value, Dim):
        return _dim_node(value)
    return make_constant(checked_array(value, "operand"))


def node_list(value: Any, what: str) -> list[Node]:
    """The nodes of `what`: one, or a list or another collection of them. NodeTypeError for anything else."""
    if isinstance(value, Node):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, np.ndarray)):
        nodes = list(value)
        strange = [n for n in nodes if not isinstance(n, Node)]
        if not strange:
            return nodes
        value = strange[0]
    raise NodeTypeError(f"{what} is a node or a list of nodes, not {type(value).__name__}")


def _dim_infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return (), as_dtype("int64")


DIM = register(OpDef("dim", "a size, as a number", _dim_infer, lambda *, dim: np.array(dim, "int64"), attr_names=("dim",),
                     arity=0, family="leaf", cuts="a size is an integer", lower="dim"))


def _dim_node(dim: Any) -> Node:
    return make(DIM, (), (dim,))


def named_input(name: str, shape: Any = (), dtype: Any = "float64") -> Node:
    """An input of the graph; sizes are ints or names. Raises ShapeError for impossible sizes."""
    if not isinstance(name, str):
        raise NodeTypeError(f"input: a name is a str, not {type(name).__name__}")
    try:
        if isinstance(shape, (str, type, np.dtype)) and (not isinstance(shape, str) or shape in [d.name for d in DTYPES]):
            raise NodeTypeError(f"{shape!r} stands where the shape is\nhint: gd.input(name, shape, dtype): () is the shape of a number")
        canonical = as_dtype(dtype)
        sizes = as_shape(shape)
        check_shape(sizes, canonical)
    except GraphdiffError as error:
        raise located(error, "input") from None
    site, _, scope = CONTEXT.now
    return new_node(INPUT, (), (), sizes, canonical, capture() if site is None else site, None, name, scope)
