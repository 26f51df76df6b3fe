"""gd.trace: run both passes once, keep every value, and say where each came from."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..diff.forward import push
from ..diff.reverse import connected, sweep
from ..dtypes import read_only
from ..errors import GradientError, NodeTypeError, ShapeError
from ..graph.build import CONTEXT, as_node, make_constant, named_input, node_list, public, scalar
from ..graph.node import Node, Origin
from ..graph.opdef import ZERO
from ..graph.walk import toposort, uncollected
from ..ops.families import cast
from ..passes.concrete import stand_in, substitute
from ..specs import format_shape, has_dims
from .formula import Name
from .numbering import names, number
from .record import Contribution, Row, Step, Trace
from .run import values
from .table import short
from .written import Written


@public
def trace(y: Any, *args: Any, at: Mapping[Node, Any] | None = None, wrt: Any = None, tangent: Mapping[Node, Any] | None = None,
          **numpy_options: Any) -> Any:
    """Run both passes of y at the given values and keep every value and every contribution: a Trace.

    at: {input: value} for every input y depends on; an interior node may be given instead. wrt: a node or nodes, by
    default every float input and variable. y that is not a scalar is traced as sum(y): its seed is all ones. tangent:
    {node: its tangent} (shaped as the node) adds the tangents of forward mode, a third column. Without `at` this is
    NumPy's trace, the sum along a diagonal: trace(x, offset=0, axis1=0, axis2=1, dtype=None).
    """
    if at is None:
        if args and isinstance(args[0], Mapping):
            raise NodeTypeError("trace: values of inputs go by name: gd.trace(y, at={x: 2.0, ...})")
        if isinstance(y, Node) and y.ndim < 2 and not args and not numpy_options:
            raise NodeTypeError(f"trace: values are needed for the inputs of {y.label!r}: gd.trace(y, at={{x: 2.0, ...}}); without at= this "
                                "is the sum along a diagonal, for two axes or more")
        from ..ops.movement import trace as matrix_trace
        return matrix_trace(y, *args, **numpy_options)
    if args or numpy_options:
        raise NodeTypeError("trace: with at= there are no other arguments but wrt and tangent")
    return _checked(y, at, wrt, tangent)


def _checked(y: Any, at: Mapping[Node, Any], wrt: Any, tangent: Mapping[Node, Any] | None) -> Trace:
    if isinstance(y, (list, tuple, dict)):
        raise NodeTypeError(f"trace: one node is traced, not a {type(y).__name__} of them; trace each, or their sum")
    y = as_node(y)
    if not isinstance(at, Mapping):
        raise NodeTypeError(f"trace: at is a dict {{input: value}}, not {type(at).__name__}")
    for x in at:
        if not isinstance(x, Node):
            raise NodeTypeError(f"trace: the keys of at are nodes, not {type(x).__name__}")
        if x.op.name in ("constant", "variable"):
            raise NodeTypeError(f"trace: {x!r} cannot be given a value: it is a {x.op.name}")
    targets = None if wrt is None else node_list(wrt, "wrt")
    for t in targets or ():
        if t.dtype.kind != "f":
            raise GradientError(f"trace: cannot differentiate with respect to {t.label!r} ({t.spec}): integers and bools have no derivative")
    if tangent is not None and not isinstance(tangent, Mapping):
        raise NodeTypeError(f"trace: tangent is a dict {{node: tangent}}, not {type(tangent).__name__}")
    # Interior nodes with given values become inputs; what the user sees are still the nodes of the user.
    theirs: dict[int, Node] = {}
    feeds: dict[Node, Any] = {}
    replaced = {id(x): stand_in(x) for x in at if x.op.name != "input"}
    new: dict[int, Node] = {}
    if replaced:
        order = toposort([y], stop=replaced)
        new = {id(n): m for n, m in zip(order, substitute(order, replaced), strict=True)}
        theirs = {id(new[id(n)]): n for n in order}
    root = new.get(id(y), y)
    for x, value in at.items():
        feeds[replaced.get(id(x), x)] = value
    order = toposort([root])
    here = {id(n) for n in order}
    if targets is None:
        targets_here = [n for n in order if n.op.name in ("input", "variable") and n.dtype.kind == "f"]
    else:
        targets_here = [replaced.get(id(t), new.get(id(t), t)) for t in targets]
        lost = [t for t in targets_here if id(t) not in here]
        if lost:
            raise GradientError(f"trace: {y.label!r} does not depend on {lost[0].label!r}")
    tangents: dict[int, Any] | None = None
    if tangent is not None:
        tangents = _tangents(root, {replaced.get(id(x), new.get(id(x), x)): v for x, v in tangent.items()}, here, feeds)
    with uncollected():
        return _record(root, order, targets_here, feeds, theirs, tangents)


def _tangents(y: Node, given: Mapping[Any, Any], here: set[int], feeds: dict[Node, Any]) -> dict[int, Any]:
    """id(node) -> its tangent node, or ZERO, for every node of y that moves. Arrays become inputs, with their values in feeds."""
    found: dict[int, Any] = {}
    for x, value in given.items():
        if not isinstance(x, Node):
            raise NodeTypeError(f"trace: the keys of tangent are nodes, not {type(x).__name__}")
        if x.dtype.kind != "f":
            raise GradientError(f"trace: {x.label!r} ({x.spec}) has no tangent: integers and bools have no derivative")
        if id(x) not in here:
            raise GradientError(f"trace: {y.label!r} does not depend on {x.label!r}")
        if isinstance(value, Node):
            if value.shape != x.shape:
                raise ShapeError(f"trace: the tangent of {x.label!r} has shape {format_shape(value.shape)}, the node has {format_shape(x.shape)}")
            found[id(x)] = cast(value, x.dtype)
        else:                           # an input of its own: named sizes are known only with the values
            t = found[id(x)] = named_input(f"tangent of {x.label}", x.shape, x.dtype)
            feeds[t] = value
    before = CONTEXT.now
    try:
        push([y], list(given), found, whole=len(given) == 1)
    finally:
        CONTEXT.now = before
    return found


def _record(y: Node, order: list[Node], targets: Sequence[Node], feeds: dict[Node, Any], theirs: dict[int, Node],
            tangents: dict[int, Any] | None = None) -> Trace:
    note, seed = "", None
    final: dict[int, Any] = {}
    ledger: dict[int, list[Entry]] = {}
    if y.dtype.kind != "f":
        note = f"{y.dtype.name} has no derivative: no adjoints"
    elif targets:
        seed = _seed(y)
        final, ledger = adjoints(y, order, targets, seed)
        if y.shape != ():
            note = "y is not a scalar: the adjoints are those of sum(y)"
    wanted = list(order)
    wanted += [g for g in final.values() if isinstance(g, Node)]
    for entries in ledger.values():
        for _, _, t, total in entries:
            wanted += (t, total)
    wanted += [t for t in (tangents or {}).values() if isinstance(t, Node)]
    arrays = {key: read_only(a) for key, a in values(wanted, feeds).items()}
    note = "\n".join([line for line in (note, _otherwise(y, targets, final, arrays, feeds)) if line])
    numbered = number(order, list(feeds), y)
    labels = names(numbered)
    rows = _rows(numbered, labels, final, ledger, arrays, theirs, tangents)
    by_node = {id(r.node): r for r in rows}
    found = {id(theirs.get(id(n), n)): arrays[id(n)] for n in order}
    seed_value = None if seed is None or id(y) not in final else arrays[id(seed)]
    shown = tuple([theirs.get(id(t), t) for t in targets])
    given = frozenset([id(theirs[id(n)]) for n in feeds if id(n) in theirs])
    return Trace(theirs.get(id(y), y), shown, tuple(rows), seed_value, note, given, tangents is not None, by_node, found, [order, wanted])


def _otherwise(y: Node, targets: Sequence[Node], final: Mapping[int, Any], arrays: Mapping[int, Any], feeds: Mapping[Node, Any]) -> str:
    """What a function gives for the result and its adjoints, where a value here is infinite or NaN and that is not: a table has every
    operation as it is written, a program has stable forms of them."""
    shown = {y.name or "the result": y, **{f"the adjoint of {t.label}": final[id(t)] for t in targets if isinstance(final.get(id(t)), Node)}}
    if all(np.isfinite(arrays[id(n)]).all() for n in shown.values()):
        return ""
    other = values(list(shown.values()), feeds, passes=True)
    found = [f"{name} = {short(other[id(n)])}" for name, n in shown.items() if not np.array_equal(other[id(n)], arrays[id(n)], equal_nan=True)]
    return f"a function gives, by stable forms of what is written here: {', '.join(found)}" if found else ""


def _seed(y: Node) -> Node:
    before = CONTEXT.now
    CONTEXT.now = (y._site, Origin(y, None, "adjoint"), before[2])
    try:
        if y.shape == ():
            return scalar(1.0, y.dtype)
        if has_dims(y.shape):
            from ..ops.creation import ones_like
            return ones_like(y)
        return make_constant(np.ones(y.shape, y.dtype))
    finally:
        CONTEXT.now = before


Entry = tuple[Node, int, Node, Node]          # consumer, operand, contribution, sum so far


def adjoints(y: Node, order: Sequence[Node], targets: Sequence[Node], seed: Node) -> tuple[dict[int, Any], dict[int, list[Entry]]]:
    """(id(node) -> final adjoint or ZERO, id(node) -> its ledger) for every node between the targets and y."""
    reach = connected(order, targets)
    between = [n for n in order if id(n) in reach and n.dtype.kind == "f"]
    ledger: dict[int, list[Entry]] = {}
    before = CONTEXT.now
    try:
        final = sweep(y, between, seed, ledger)
    finally:
        CONTEXT.now = before
    return final, ledger


def _rows(numbered: Sequence[tuple[Node, int | None]], labels: dict[int, Name], final: Mapping[int, Any],
          ledger: Mapping[int, list[Entry]], arrays: Mapping[int, Any], theirs: Mapping[int, Node],
          tangents: Mapping[int, Any] | None) -> list[Row]:
    written = Written(labels, final, arrays, theirs, tangents)
    rows = []
    for node, index in numbered:
        key = id(node)
        value = arrays[key]
        adjoint = tangent = None
        contributions: tuple[Contribution, ...] = ()
        g = final.get(key)
        if g is ZERO:
            adjoint = read_only(np.zeros_like(value))
        elif g is not None:
            adjoint = arrays[id(g)]
            contributions = tuple([Contribution(theirs.get(id(consumer), consumer), k, arrays[id(t)], arrays[id(total)], labels[id(consumer)],
                                                consumer, written) for consumer, k, t, total in ledger.get(key, ())])
        if tangents is not None and node.dtype.kind == "f":
            t = tangents.get(key)
            tangent = read_only(np.zeros_like(value)) if t is None or t is ZERO else arrays[id(t)]
        rows.append(Row(index, labels[key], value, adjoint, tangent, contributions, theirs.get(key, node), node, written))
    return rows


__all__ = ["Contribution", "Row", "Step", "Trace", "adjoints", "trace"]
