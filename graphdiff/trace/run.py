"""Values of every node asked for, by one program of the C core without any pass: what is shown is what was computed."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import NodeTypeError, ShapeError, compose, located_error, show_name
from ..graph.node import Node
from ..graph.walk import toposort
from ..lower.emit import lower
from ..passes.concrete import concrete, has_named_sizes
from ..passes.pipeline import chosen, run_passes
from ..plan.schedule import schedule
from ..runtime.execute import Gate, Loaded
from ..runtime.native import ELEMENTWISE
from ..runtime.native import order as find_order
from ..specs import match_shapes


def _constants(nodes: Sequence[Node]) -> list[Any]:
    program = lower(schedule(nodes, find_order), [], list(nodes), [], ELEMENTWISE)
    return list(Loaded(program, [], [], [], 1).call(()))


def values(nodes: Sequence[Node], at: Mapping[Node, Any], passes: bool = False) -> dict[int, Any]:
    """id(node) -> its array. `at`: values of inputs. passes: after all passes, as a function has them. Raises as a function would: missing
    inputs, wrong shapes or dtypes."""
    inputs = list(at)
    known = {id(x) for x in inputs}
    order = toposort(nodes)
    missing = [n for n in order if n.op.name == "input" and id(n) not in known]
    if missing:
        names = ", ".join(repr(show_name(n.name or "")) for n in missing[:5])
        site = missing[0].site
        raise located_error(NodeTypeError(compose(
            f"trace: no value is given for input {names}", at=None if site is None else (str(site), site.source),
            hint="gd.trace(y, at={x: value, ...}) with every input that y depends on")))
    gates = [Gate(x.name if x.name is not None else f"number {i}", x.shape, x.dtype) for i, x in enumerate(inputs)]
    arrays = [g.check(a) for g, a in zip(gates, at.values(), strict=True)]
    for g, a in zip(gates, arrays, strict=True):
        if len(g.shape) != a.ndim or any(isinstance(size, int) and size != real for size, real in zip(g.shape, a.shape, strict=True)):
            raise g.wrong_shape(a.shape)
    bindings: dict[str, int] = {}
    try:
        match_shapes([(g.shape, a.shape) for g, a in zip(gates, arrays, strict=True)], bindings,
                     [g.name for g in gates])
    except ShapeError as error:
        seen = ", ".join(f"{show_name(g.name, 40)} {list(a.shape)}" for g, a in zip(gates, arrays, strict=True))
        raise ShapeError(f"trace: {error}\n  given   {seen}") from None
    unique = list({id(n): n for n in nodes}.values())
    outputs, leaves = unique, inputs
    if has_named_sizes([*inputs, *order]):
        outputs, leaves = concrete(unique, inputs, bindings)
    if passes:
        outputs = run_passes(outputs, chosen(None), _constants, {})
    order = schedule(outputs, find_order)
    program = lower(order, leaves, outputs, [], ELEMENTWISE)
    variables = [n._attrs[0] for n in order if n.op.name == "variable"]
    loaded = Loaded(program, gates, [x.shape for x in leaves], variables, 1)
    return {id(n): a for n, a in zip(unique, loaded.call(arrays), strict=True)}

