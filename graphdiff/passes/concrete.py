"""Before the passes: other leaves, and numbers in the place of named sizes.

A function is compiled for concrete sizes. Everything that was assumed while a graph with named sizes was built is checked
here again, with numbers; the message names the line that assumed it.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..dims import Dim, bounds
from ..dims import evaluate as evaluate_dim
from ..errors import GraphdiffError, OutOfBounds, ShapeError, compose, located_error
from ..graph.build import CONSTANT, INPUT, SLICING, call_of, operand_rows
from ..graph.node import Node, new_node
from ..graph.walk import toposort
from ..specs import evaluate_shape, has_dims


def has_named_sizes(nodes: Collection[Node]) -> bool:
    """Is any size of these not a number?"""
    return "dim" in {n.op.name for n in nodes} or any(map(has_dims, {n.shape for n in nodes}))       # few are distinct


def stand_in(node: Node) -> Node:
    """An input that overrides an interior node."""
    return new_node(INPUT, (), (), node.shape, node.dtype, node._site, None, node.name, node.scope, node.serial)


def substitute(outputs: Sequence[Node], table: dict[int, Node]) -> list[Node]:
    new: dict[int, Node] = {}
    for node in toposort(outputs, stop=table):
        if id(node) in table:
            new[id(node)] = table[id(node)]
        elif any(new[id(x)] is not x for x in node.inputs):
            new[id(node)] = node._replace(tuple([new[id(x)] for x in node.inputs]))
        else:
            new[id(node)] = node
    return [new[id(o)] for o in outputs]


def _at(node: Node, error: GraphdiffError) -> GraphdiffError:
    site = node.site
    kind = type(error) if isinstance(error, OutOfBounds) else ShapeError
    hint = None
    if node.op.name in ("slice", "place", "slice_set", "slice_add") and kind is ShapeError and site is not None and site.call == SLICING:
        hint = "bounds of a slice that are numbers are clipped to the axis; sizes are not, they must lie inside"
    return located_error(kind(compose(f"{call_of(node)}: {error}", at=None if site is None else (str(site), site.source),
                                      rows=operand_rows([_as_given(x, node) for x in node.inputs]) if kind is ShapeError else (), hint=hint)))


def _as_given(x: Node, node: Node) -> Node:
    """An operand before the call that made the node gave it another shape or dtype."""
    while x.op.name in ("cast", "reshape") and x.name is None and str(x.site) == str(node.site):
        x = x.inputs[0]
    return x


def _checked(node: Node, ins: tuple[Node, ...], bindings: Mapping[str, int]) -> Node:
    """A node on other inputs, its options and shape as numbers and inferred again."""
    attrs = tuple([_number(a, bindings) for a in node._attrs])
    wanted = evaluate_shape(node.shape, bindings)
    shape, _ = node.op.infer(ins, attrs)
    if node.op.name == "taken_for":         # checked; what is left is x
        return ins[0]
    if tuple(shape) != tuple(wanted):
        raise ShapeError(f"sizes assumed equal while building differ: {list(wanted)} expected, {list(shape)} found for "
                         + ", ".join(f"{k}={v}" for k, v in sorted(bindings.items())))
    if node.op.family == "elementwise" or node.op.name == "broadcast_to":
        _check_stretched(node, ins, wanted)
    return node._replace(ins, shape=tuple(wanted), attrs=attrs)


def _check_stretched(node: Node, ins: tuple[Node, ...], wanted: Sequence[int]) -> None:
    """A size with a name that was taken for another's may not turn out to be 1 beside it: the value could be computed, but the derivative does
    not sum over that axis. (What has one element at most, as x[:1], was not taken for another's.)"""
    for x, now in zip(node.inputs, ins, strict=True):
        first = len(wanted) - len(now.shape)
        for i, n in enumerate(now.shape):
            if n == 1 and wanted[first + i] != 1 and bounds(x.shape[i])[1] > 1:
                raise ShapeError(f"size {x.shape[i]} was taken for {node.shape[first + i]} while building, but is 1 beside {wanted[first + i]}")


def _number(a: Any, bindings: Mapping[str, int]) -> Any:
    if isinstance(a, Dim):
        return evaluate_dim(a, bindings)
    if type(a) is tuple:
        return tuple([_number(x, bindings) for x in a])
    return a


def _constant(node: Node, array: Any) -> Node:
    array.flags.writeable = False
    return new_node(CONSTANT, (), (array,), array.shape, node.dtype, node._site, node.origin, node.name, node.scope, node.serial)


def _known_empty(outputs: Sequence[Node], bindings: Mapping[str, int]) -> dict[int, Node]:
    """The derivatives that have no element, as constants: a rule may take the first element of what turns out to have none."""
    empty = {}
    for node in toposort(outputs) if 0 in bindings.values() else ():
        if node.origin is not None and node.op.family != "leaf" and has_dims(node.shape):
            try:
                shape = evaluate_shape(node.shape, bindings)
            except ShapeError:      # below such a one, or reported when its turn comes
                continue
            if 0 in shape:
                empty[id(node)] = _constant(node, np.zeros(shape, node.dtype))
    return empty


def _as_numbers(node: Node, new: Mapping[int, Node], bindings: Mapping[str, int]) -> Node:
    """A node with its inputs exchanged and every named size as its number; what is wrong with it names its line."""
    try:
        if node.op.family != "leaf":
            return _checked(node, tuple([new[id(x)] for x in node.inputs]), bindings)
        if node.op.name == "dim":
            return _constant(node, np.array(evaluate_dim(node._attrs[0], bindings), np.int64))
        if has_dims(node.shape):
            return node._replace((), shape=evaluate_shape(node.shape, bindings))
    except GraphdiffError as error:
        raise _at(node, error) from None
    return node


def concrete(outputs: Sequence[Node], inputs: Sequence[Node], bindings: Mapping[str, int]) -> tuple[list[Node], list[Node]]:
    """The graph with every named size replaced by its number, shapes inferred again.

    What was assumed while building (two named sizes equal, a named size not 1) is checked here: ShapeError names the line.
    """
    new = _known_empty(outputs, bindings)
    for node in toposort([*outputs, *inputs], stop=dict(new)):
        if id(node) not in new:
            new[id(node)] = _as_numbers(node, new, bindings)
    return [new[id(o)] for o in outputs], [new[id(x)] for x in inputs]
