"""Before the passes: other leaves, and numbers in the place of named sizes.

A function is compiled for concrete sizes. Everything that was assumed while a graph with named sizes was built is checked
here again, with numbers; the message names the line that assumed it.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dims import Dim
from ..dims import evaluate as evaluate_dim
from ..errors import GraphdiffError, OutOfBounds, ShapeError, compose, located_error
from ..graph.build import CONSTANT, INPUT
from ..graph.node import Node, new_node
from ..graph.walk import toposort
from ..specs import evaluate_shape, has_dims


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
    if node.op.name == "slice" and kind is ShapeError:
        hint = "bounds of a slice that are numbers are clipped to the axis; sizes are not, they must lie inside"
    return located_error(kind(compose(f"{node.op.name}: {error}", at=None if site is None else (str(site), site.source), hint=hint)))


def _checked_shape(node: Node, ins: tuple[Node, ...], attrs: tuple[Any, ...], bindings: Mapping[str, int]) -> tuple[int, ...]:
    try:
        wanted = evaluate_shape(node.shape, bindings)
        shape, _ = node.op.infer(ins, attrs)
        if tuple(shape) != tuple(wanted):
            raise ShapeError(f"sizes assumed equal while building differ: {list(wanted)} expected, {list(shape)} found for "
                             + ", ".join(f"{k}={v}" for k, v in sorted(bindings.items())))
        return tuple(wanted)
    except GraphdiffError as error:
        raise _at(node, error) from None


def concrete(outputs: Sequence[Node], inputs: Sequence[Node], bindings: Mapping[str, int]) -> tuple[list[Node], list[Node]]:
    """The graph with every named size replaced by its number, shapes inferred again.

    What was assumed while building (two named sizes equal, a named size not 1) is checked here: ShapeError names the line.
    """
    new: dict[int, Node] = {}

    def value(a: Any) -> Any:
        if isinstance(a, Dim):
            return evaluate_dim(a, bindings)
        if type(a) is tuple:
            return tuple(value(x) for x in a)
        return a

    for node in toposort([*outputs, *inputs]):
        name = node.op.name
        if node.op.family == "leaf":
            if name == "dim":
                array = np.array(evaluate_dim(node._attrs[0], bindings), np.int64)
                array.flags.writeable = False
                new[id(node)] = new_node(CONSTANT, (), (array,), (), node.dtype, node._site, node.origin, node.name, node.scope,
                                         node.serial)
            elif has_dims(node.shape):
                new[id(node)] = node._replace((), shape=evaluate_shape(node.shape, bindings))
            else:
                new[id(node)] = node
            continue
        ins = tuple([new[id(x)] for x in node.inputs])
        attrs = tuple([value(a) for a in node._attrs])
        new[id(node)] = node._replace(ins, shape=_checked_shape(node, ins, attrs, bindings), attrs=attrs)
    return [new[id(o)] for o in outputs], [new[id(x)] for x in inputs]
