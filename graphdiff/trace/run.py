"""Values of every node asked for, by one program of the C core without any pass: what is shown is what was computed."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import NodeTypeError, ShapeError, compose, show_name
from ..graph.build import CONSTANT, INPUT
from ..graph.node import Node, new_node
from ..graph.walk import toposort
from ..lower.emit import lower
from ..plan.schedule import schedule
from ..runtime.execute import Gate, Loaded
from ..runtime.native import ELEMENTWISE
from ..specs import Dim, evaluate, evaluate_shape, has_dims, match_shapes


def substitute(outputs: Sequence[Node], table: Mapping[int, Node]) -> dict[int, Node]:
    """id(node) -> the node with the nodes of `table` (by id) replaced, for everything the outputs depend on."""
    new: dict[int, Node] = {}
    for node in toposort(outputs, stop=table):
        if id(node) in table:
            new[id(node)] = table[id(node)]
        elif any(new[id(x)] is not x for x in node.inputs):
            new[id(node)] = node._replace(tuple([new[id(x)] for x in node.inputs]))
        else:
            new[id(node)] = node
    return new


def stand_in(node: Node) -> Node:
    """An input with an interior node's shape, dtype and name."""
    return new_node(INPUT, (), (), node.shape, node.dtype, node._site, None, node.name, node.scope)


def values(nodes: Sequence[Node], at: Mapping[Node, Any]) -> dict[int, Any]:
    """id(node) -> its array. `at`: values of inputs. Raises as a function would: missing inputs, wrong shapes or dtypes."""
    inputs = list(at)
    known = {id(x) for x in inputs}
    missing = [n for n in toposort(nodes) if n.op.name == "input" and id(n) not in known]
    if missing:
        names = ", ".join(repr(show_name(n.name or "")) for n in missing[:5])
        site = missing[0].site
        raise NodeTypeError(compose(f"trace: no value is given for input {names}", at=None if site is None else (str(site), site.source),
                                    hint="gd.trace(y, at={x: value, ...}) with every input that y depends on"))
    gates = [Gate(x.name if x.name is not None else f"number {i}", x.shape, x.dtype) for i, x in enumerate(inputs)]
    arrays = [g.check(a) for g, a in zip(gates, at.values(), strict=True)]
    for g, a in zip(gates, arrays, strict=True):
        if len(g.shape) != a.ndim:
            raise g.wrong_shape(a.shape)
    bindings: dict[str, int] = {}
    match_shapes([(g.shape, a.shape) for g, a in zip(gates, arrays, strict=True)], bindings)
    unique = list({id(n): n for n in nodes}.values())
    outputs, leaves = unique, inputs
    if any(has_dims(n.shape) for n in toposort(unique)) or any(n.op.name == "dim" for n in toposort(unique)):
        new = _concrete([*unique, *inputs], bindings)
        outputs, leaves = [new[id(n)] for n in unique], [new[id(n)] for n in inputs]
    order = schedule(outputs)
    program = lower(order, leaves, outputs, [], ELEMENTWISE)
    variables = [n._attrs[0] for n in order if n.op.name == "variable"]
    loaded = Loaded(program, gates, [x.shape for x in leaves], variables, 1)
    return {id(n): a for n, a in zip(unique, loaded.call(arrays), strict=True)}


def _concrete(nodes: Sequence[Node], bindings: Mapping[str, int]) -> dict[int, Node]:
    """id(node) -> the node with every named size replaced by its number."""
    new: dict[int, Node] = {}

    def value(a: Any) -> Any:
        if isinstance(a, Dim):
            return evaluate(a, bindings)
        return tuple([value(x) for x in a]) if type(a) is tuple else a

    for node in toposort(nodes):
        if node.op.name == "dim":
            array = np.array(evaluate(node._attrs[0], bindings), np.int64)
            array.flags.writeable = False
            new[id(node)] = new_node(CONSTANT, (), (array,), (), node.dtype, node._site, node.origin, node.name)
            continue
        shape = evaluate_shape(node.shape, bindings)
        if node.op.family == "leaf":
            new[id(node)] = node if shape == node.shape else node._replace((), shape=shape)
            continue
        inputs = tuple([new[id(x)] for x in node.inputs])
        attrs = tuple([value(a) for a in node._attrs])
        found, _ = node.op.infer(inputs, attrs)
        if tuple(found) != tuple(shape):
            site = node.site
            raise ShapeError(compose(f"{node.op.name}: sizes assumed equal while building differ: {list(shape)} and {list(found)}",
                                     at=None if site is None else (str(site), site.source)))
        new[id(node)] = node._replace(inputs, shape=tuple(shape), attrs=attrs)
    return new
