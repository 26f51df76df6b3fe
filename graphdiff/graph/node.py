"""The node: one operation of the graph, immutable, hashed by identity.

A node knows its op, its inputs, the op's options, its shape and dtype, an optional name, the line of the user's code
that made it (site) and, when differentiation made it, where it comes from (origin). Operators and methods are attached
by `graphdiff.ops.methods`: this module imports no op.
"""
from __future__ import annotations

import itertools
import linecache
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..dtypes import read_only
from ..errors import GraphdiffError, NodeTypeError, NoValue, show_name
from ..specs import format_spec
from .opdef import OpDef

_serial = itertools.count()
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
# Of each piece of code that was met, by id: False for the user's, else the name under which the user calls it, "" where it has none. (A code
# object hashes all of its constants every time: that of a long script costs several times what a node does.)
_inside: dict[int, str | bool] = {}
_met: list[CodeType] = []        # an id is a key only while its object lives
# The table of lines of each piece of code that a Site was asked of, by id: where each begins, and its number. It is walked once, since a node
# may stand in each of the hundred thousand lines of one script.
_lines: dict[int, tuple[CodeType, list[int], list[int]]] = {}
_SHELLS = frozenset(("wrapper", "method", "operator", "rule", "forward", "make"))     # what decorators and tables put around functions
_OP = " "       # the name of functions made from an op's record: theirs is the op's, and that of no helper they call


def next_serial() -> int:
    """A number between those of all nodes made so far and of all to come."""
    return next(_serial)


class Site(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str
    call: str = ""         # the public function of this package that was called there, "" where that is the op itself

    @property
    def source(self) -> str:
        """The text of the line, stripped; '' when the file is gone."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


class Origin(NamedTuple):
    """Where a differentiated node comes from: the adjoint (or tangent) of `primal`, contributed by `consumer`.

    `consumer` is None for the seed and for sums of contributions.
    """

    primal: Any
    consumer: Any
    kind: str              # "adjoint" or "tangent"


# Origin of a tuple of its three, in a third of the time: differentiation makes one for every operand of every node.
origin_of: Callable[[tuple[Any, Any, str]], Origin] = partial(tuple.__new__, Origin)


def capture(name: str = "") -> Any:
    """(code, instruction) of the innermost frame outside this package, and the function called there: cheap now, a Site when
    somebody asks. name: that of the function which asks, where it may be the one."""
    frame: FrameType | None = sys._getframe(2)
    call: str | bool = name
    while frame is not None:
        code = frame.f_code
        inside = _inside.get(id(code))
        if inside is None:
            inside = _public_name(code)
            _note(code, inside)
        if inside is False:
            return code, frame.f_lasti, call
        if inside:
            call = inside
        frame = frame.f_back
    return None


def raised_by_user(error: BaseException) -> Any:
    """As `capture`, of the innermost line of the user's that an error came through on its way to where it was caught: in a callback, which used
    a node as if it were a number; None where there is none."""
    found, step = None, error.__traceback__
    while step is not None:
        if _public_name(step.tb_frame.f_code) is False:
            found = step.tb_frame.f_code, step.tb_lasti, ""
        step = step.tb_next
    return found


def _public_name(code: CodeType) -> str | bool:
    if not code.co_filename.startswith(_PACKAGE):
        # NumPy's own Python code, as np.ones(3).clip(node), stands between the user's line and ours.
        return "" if code.co_filename.startswith(_NUMPY) else False
    name = code.co_name
    return _OP if name == "function" else "" if name in _SHELLS or name[0] in "_<" else name


def _note(code: CodeType, name: str | bool) -> None:
    _met.append(code)
    _inside[id(code)] = name


def known_as(function: Any, name: str) -> None:
    """What messages call a function of this package by, where its own name says little."""
    _note(function.__code__, name)


def resolve(raw: Any) -> Site | None:
    """The Site of what `capture` gave."""
    if raw is None or type(raw) is Site:
        return raw
    code, lasti, call = raw
    known = _lines.get(id(code))
    if known is None:
        table = list(code.co_lines())
        known = _lines[id(code)] = code, [start for start, _, _ in table], [number or code.co_firstlineno for _, _, number in table]
    _, starts, numbers = known
    line = numbers[bisect_right(starts, lasti) - 1]
    return Site(code.co_filename, line, code.co_name, "" if call == _OP else call)


class _Fields:
    """The storage of a node. `new_node` fills one and then turns it into a Node, whose fields cannot be set: guarding
    every store of the constructor would triple the cost of making a node."""

    __slots__ = ("__weakref__", "_attrs", "_site", "dtype", "inputs", "name", "op", "origin", "scope", "serial", "shape")

    op: OpDef
    inputs: tuple[Node, ...]
    shape: tuple[Any, ...]
    dtype: Any
    name: str | None
    origin: Any            # an Origin for what differentiation made, else None
    scope: str             # names of the enclosing gd.scope blocks, joined by /
    serial: float
    _attrs: tuple[Any, ...]
    _site: Any


def new_node(op: OpDef, inputs: tuple[Node, ...], attrs: tuple[Any, ...], shape: tuple[Any, ...], dtype: Any,
             site: Any, origin: Any = None, name: str | None = None, scope: str = "",
             serial: float = -1) -> Node:
    """A node from finished facts; shapes and dtypes are the caller's responsibility.

    serial: the number of the node it replaces, so that it keeps its place in the order; -1: a new number.
    """
    n = _Fields()
    n.op = op
    n.inputs = inputs
    n._attrs = attrs
    n.shape = shape
    n.dtype = dtype
    n._site = site
    n.origin = origin
    n.name = name
    n.scope = scope
    n.serial = next(_serial) if serial < 0 else serial
    n.__class__ = Node
    return n                    # type: ignore[return-value]


class Node(_Fields):
    """One operation of the graph. Made by the functions of graphdiff, never directly."""

    __slots__ = ()

    if TYPE_CHECKING:      # attached by ops/methods.py, which knows the ops
        def __add__(self, other: Any) -> Node: ...
        def __radd__(self, other: Any) -> Node: ...
        def __sub__(self, other: Any) -> Node: ...
        def __rsub__(self, other: Any) -> Node: ...
        def __mul__(self, other: Any) -> Node: ...
        def __rmul__(self, other: Any) -> Node: ...
        def __truediv__(self, other: Any) -> Node: ...
        def __rtruediv__(self, other: Any) -> Node: ...
        def __floordiv__(self, other: Any) -> Node: ...
        def __rfloordiv__(self, other: Any) -> Node: ...
        def __mod__(self, other: Any) -> Node: ...
        def __rmod__(self, other: Any) -> Node: ...
        def __matmul__(self, other: Any) -> Node: ...
        def __rmatmul__(self, other: Any) -> Node: ...
        def __pow__(self, other: Any, modulo: Any = None) -> Node: ...
        def __rpow__(self, other: Any) -> Node: ...
        def __and__(self, other: Any) -> Node: ...
        def __or__(self, other: Any) -> Node: ...
        def __xor__(self, other: Any) -> Node: ...
        def __lshift__(self, other: Any) -> Node: ...
        def __rshift__(self, other: Any) -> Node: ...
        def __lt__(self, other: Any) -> Node: ...
        def __le__(self, other: Any) -> Node: ...
        def __gt__(self, other: Any) -> Node: ...
        def __ge__(self, other: Any) -> Node: ...
        def __neg__(self) -> Node: ...
        def __pos__(self) -> Node: ...
        def __abs__(self) -> Node: ...
        def __invert__(self) -> Node: ...
        def __round__(self, n: int | None = None) -> Node: ...
        def __getitem__(self, index: Any) -> Node: ...
        def astype(self, dtype: Any) -> Node: ...
        def reshape(self, *shape: Any) -> Node: ...
        def transpose(self, *axes: Any) -> Node: ...
        def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node: ...
        def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Node: ...
        def max(self, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node: ...
        def min(self, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Node: ...
        @property
        def T(self) -> Node: ...
        @property
        def mT(self) -> Node: ...
        @property
        def at(self) -> Any: ...

    def __init__(self) -> None:
        raise NodeTypeError("nodes are made by functions: gd.input, gd.constant, gd.variable, or an operation on nodes")

    @property
    def attrs(self) -> MappingProxyType[str, Any]:
        """The options of the op by name, read-only."""
        if self.op.name == "constant":
            return MappingProxyType({"value": self.value})
        return MappingProxyType(dict(zip(self.op.attr_names, self._attrs, strict=True)))

    @property
    def site(self) -> Site | None:
        """File, line and function of the user's code that made this node."""
        site = resolve(self._site)
        object.__setattr__(self, "_site", site)
        return site

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements: an int, or a Dim when a size is named."""
        n: Any = 1
        for s in self.shape:
            n = n * s
        return n

    @property
    def spec(self) -> str:
        """Shape and dtype as text: float32[32, 784]."""
        return format_spec(self.shape, self.dtype)

    @property
    def label(self) -> str:
        """The name if there is one, else the op's name."""
        return show_name(self.name) if self.name is not None else self.op.name

    def named(self, name: str) -> Node:
        """The same node under a name: a new node with the same op, inputs and options."""
        if not isinstance(name, str):
            raise NodeTypeError(self._misuse(f"cannot be named by a {type(name).__name__}", "node.named('text')"))
        return self._replace(self.inputs, name=name)

    def _replace(self, inputs: tuple[Node, ...], *, name: str | None = None, shape: Any = None,
                 attrs: Any = None) -> Node:
        return new_node(self.op, inputs, self._attrs if attrs is None else attrs,
                        self.shape if shape is None else shape, self.dtype, self._site, self.origin,
                        self.name if name is None else name, self.scope, self.serial)

    @property
    def value(self) -> Any:
        """The array of a constant, or a read-only view of a variable's current array."""
        if self.op.name == "constant":
            return read_only(self._attrs[0])
        if self.op.name == "variable":
            return self._attrs[0].view()
        raise NoValue(self._misuse("has no value until a function runs", "gd.evaluate(node, {input: value}) or "
                                         "gd.function(inputs, node)"))

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {show_name(self.name, 30)}"
        site = self.site
        at = "" if site is None else f" at {site}"
        return f"<{self.op.name}{name} {format_spec(self.shape, self.dtype)}{at}>"

    def __format__(self, spec: str) -> str:
        """Text formats are of the repr; those of numbers are a NodeTypeError, since there is no number yet."""
        if "." in spec or spec[-1:] in tuple("bcdeEfFgGnoxX%,_="):
            raise NodeTypeError(self._misuse(f"is symbolic and cannot be formatted by {show_name(spec)!r}: its value exists only when a "
                                             "function runs", "gd.evaluate(node, {input: value}), the result of a function, or gd.trace(node)"))
        return format(repr(self), spec)

    def _misuse(self, problem: str, instead: str) -> str:
        site = self.site
        where = "" if site is None else f" made at {site}"
        return f"node {self.label!r} ({self.spec}){where} {problem}; write {instead} instead"

    def __bool__(self) -> bool:
        instead = "gd.where(condition, a, b), or gd.logical_and / or / not,"
        if self.op.name == "equal":             # what `node in nodes` and nodes.index(node) ask
            instead += " or, to look for a node, any(n is node for n in nodes)"
        raise NodeTypeError(self._misuse("has no truth value: it stands for numbers that exist only when a function runs", instead))

    def __float__(self) -> float:
        raise NodeTypeError(self._misuse("is not a number", "gd.evaluate(node, {input: value})"))

    def __int__(self) -> int:
        raise NodeTypeError(self._misuse("is not a number", "gd.evaluate(node, {input: value}), or node.astype('int64'),"))

    def __index__(self) -> int:
        raise NodeTypeError(self._misuse("cannot be a Python index or size", "gd.take(x, node), or a named dimension,"))

    def __complex__(self) -> complex:
        raise NodeTypeError(self._misuse("is not a number", "gd.evaluate(node, {input: value})"))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise NodeTypeError(self._misuse("cannot become an array before a function runs", "gd.evaluate(node, {input: value}), "
                                         "gd.function(inputs, node), or gd.stack([node, ...]) for a list of nodes,"))

    def __len__(self) -> int:
        if not self.shape:
            raise NodeTypeError(self._misuse("has no axes, so no length", "node.size"))
        n = self.shape[0]
        if not isinstance(n, int):
            raise NodeTypeError(self._misuse(f"has a first size ({n}) that is known only when a function runs", "gd.size(node, 0)"))
        return n

    def __iter__(self) -> Any:
        n = len(self)
        return (self[i] for i in range(n))

    def __contains__(self, item: object) -> bool:
        raise NodeTypeError(self._misuse("cannot be searched before a function runs", "gd.any(node == item)"))

    def __setitem__(self, index: object, value: object) -> None:
        raise NodeTypeError(self._misuse("is immutable", "x = x.at[index].set(value)"))

    def __delitem__(self, index: object) -> None:
        raise NodeTypeError(self._misuse("is immutable", "gd.concatenate([x[:k], x[k + 1:]])"))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "value" and self.op.name == "variable":
            try:
                self._attrs[0].assign(value)
            except GraphdiffError as error:
                from .build import located
                raise located(error, self.label, (self,)) from None
            return
        raise NodeTypeError(self._misuse(f"is immutable: cannot set {name!r}", "node.named(...), or build a new node,"))

    def __delattr__(self, name: str) -> None:
        raise NodeTypeError(self._misuse(f"is immutable: cannot delete {name!r}", "a new node"))

    def __copy__(self) -> Node:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        from .text import reduce_node  # a flat table: pickle itself would recurse through inputs
        return reduce_node(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        from .text import copy_node
        return copy_node(self, memo)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def describe(node: Node) -> tuple[str, str, str]:
    """Name, spec and kind of an operand, as the rows of an error show them; of what was cast to the dtype of another, what was given."""
    if node.op.name == "cast" and node.name is None:
        node = node.inputs[0]
    return node.label, format_spec(node.shape, node.dtype), node.op.name
