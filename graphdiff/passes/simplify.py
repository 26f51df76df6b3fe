"""Exact simplification: merge equal nodes, fold constants, drop what is dead, algebra that keeps every bit.

Nothing here changes a result: x*0, x-x and log(exp x) stay. Constants are told apart by dtype and bits.

A pass takes and returns (nodes in running order, outputs). Nodes that have become dead may stay in the order: `schedule`
drops them, once, at the end; walking the graph again after every pass would cost more than the passes.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8
from ..graph.build import CONSTANT
from ..graph.node import Node, new_node
from ..ops.movement import is_whole

FOLD_LIMIT = 1 << 16       # elements: a folded constant is stored in the program
VIEWS = frozenset(("broadcast_to", "diagonal", "reshape", "slice", "transpose"))
PRODUCTS = frozenset(("conv", "conv_input", "conv_weight", "einsum", "matmul"))


Ordered = tuple[list[Node], list[Node]]


def merge(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """One node for equal ops on equal operands. A barrier's attrs hold a token, so barriers stay apart."""
    table: dict[Any, Node] = {}
    new: dict[Node, Node] = {}               # of nodes that another one takes the place of
    kept: list[Node] = []
    keep = kept.append
    for node in order:
        name = node.op.name
        inputs = node.inputs
        if name == "constant":
            value = node._attrs[0]
            key: Any = (id(node.dtype), node.shape, value.tobytes()) if value.nbytes <= 1024 else id(value)
        elif name == "input":
            keep(node)
            continue
        elif name == "variable":
            key = ("variable", id(node._attrs[0]))
        else:
            for x in inputs:
                if x in new:
                    inputs = tuple([new.get(y, y) for y in inputs])
                    break
            attrs = node._attrs
            if attrs and float in map(type, attrs):
                attrs = tuple([a.hex() if type(a) is float else a for a in attrs])       # 0.0 == -0.0, but they are two fills
            key = (name, attrs, *map(id, inputs))
        known = table.get(key)
        if known is None:
            known = table[key] = node if inputs is node.inputs else node._replace(inputs)
            keep(known)
        if known is not node:
            new[node] = known
    return kept, [new.get(o, o) for o in outputs]


def sooner(node: Node, inputs: Sequence[Node]) -> float:
    """A serial for what is made of some nodes and stands before one: nodes of one serial may come in any order."""
    return (max([x.serial for x in inputs]) + node.serial) / 2


def laid_out(order: Sequence[Node]) -> set[int]:
    """Ids of the nodes that a product reads, itself or views of them: the order in which a product of few rows adds goes by how its
    operands lie, so that no pass may put a view in the place of an array or the other way round."""
    seen: set[int] = set()
    for node in reversed(order):
        if node.op.name in PRODUCTS or (node.op.name in VIEWS and id(node) in seen):
            seen.update([id(x) for x in node.inputs])
    return seen


def _scalar(node: Node) -> Any:
    """The number that a constant of one element, or the broadcast of one, holds everywhere; else None."""
    while node.op.name in ("broadcast_to", "reshape"):
        node = node.inputs[0]
    if node.op is CONSTANT and node._attrs[0].size == 1:
        return node._attrs[0].reshape(())[()]
    return None


def _zmul(node: Node) -> Node | None:
    """zmul(1, p) = p, zmul(g, 1) = g; a finite constant factor needs no select."""
    g, p = node.inputs
    if _scalar(g) == 1 and p.shape == node.shape:
        return p
    value = _scalar(p)
    if value is not None and np.isfinite(value):
        if value == 1 and g.shape == node.shape:
            return g
        from ..graph.opdef import lookup
        return new_node(lookup("multiply"), node.inputs, (), node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                        node.serial)
    return None


def _zmul_either(node: Node) -> Node | None:
    """As zmul; a constant 0 stays where it is."""
    x, y = node.inputs
    if _scalar(x) == 1 and y.shape == node.shape:
        return y
    return None if _scalar(y) == 0 else _zmul(node)


def _multiply(node: Node) -> Node | None:
    """x 1 = x, 1 x = x: exact for every value."""
    x, y = node.inputs
    if _scalar(y) == 1 and x.shape == node.shape:
        return x
    if _scalar(x) == 1 and y.shape == node.shape:
        return y
    return None


def _divide(node: Node) -> Node | None:
    x, y = node.inputs
    return x if _scalar(y) == 1 and x.shape == node.shape else None


def _negative(node: Node) -> Node | None:
    """-(-x) = x."""
    (x,) = node.inputs
    return x.inputs[0] if x.op.name == "negative" else None


def _signed(x: Node) -> tuple[bool, tuple[str, int, int] | int]:
    """Is x a negative, or a product with one factor that is; and of what."""
    name = x.op.name
    if name == "negative":
        minus, of = _signed(x.inputs[0]) if x.inputs[0].op.name in ("multiply", "zmul") else (True, 0)
        return True, id(x.inputs[0]) if minus else of
    if name in ("multiply", "zmul"):
        a, b = x.inputs
        first, second = a.op.name == "negative", b.op.name == "negative"
        if first != second:
            return True, (name, id(a.inputs[0] if first else a), id(b.inputs[0] if second else b))
        return False, (name, id(a), id(b))
    return False, id(x)


def _doubled(node: Node, x: Node, y: Node) -> Node | None:
    """p - (-p) = 2 p and (-p) - p = -2 p, bit for bit, also where the sign is a factor's: the gradient of -x x is two of them."""
    if x.dtype not in (FLOAT32, FLOAT64) or x.shape != node.shape or y.shape != node.shape:
        return None
    (minus, of), (other, same) = _signed(x), _signed(y)
    if minus == other or of != same:
        return None
    p, factor = (x.inputs[0], -2.0) if x.op.name == "negative" else (x, 2.0)
    from ..graph.opdef import lookup
    constant = new_node(CONSTANT, (), (np.array(factor, x.dtype),), (), x.dtype, node._site, node.origin, None, node.scope, node.serial - 0.5)
    return new_node(lookup("multiply"), (p, constant), (), node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                    node.serial)


def _add(node: Node) -> Node | None:
    """x + (-y) = (-y) + x = x - y, bit for bit: one operation less."""
    x, y = node.inputs
    if x.op.name == "negative":
        x, y = y, x
    if y.op.name != "negative":
        return None
    from ..graph.opdef import lookup
    return new_node(lookup("subtract"), (x, y.inputs[0]), (), node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                    node.serial)


def _subtract(node: Node) -> Node | None:
    """x - 0.0 = x, also for x = -0.0 (x + 0.0 is not)."""
    x, y = node.inputs
    value = _scalar(y)
    if value is not None and value == 0 and not np.signbit(float(value)) and x.shape == node.shape:
        return x
    return _doubled(node, x, y)


def _slice_set(node: Node) -> Node | None:
    """What surrounds the new elements is one number: it need not be there before it is overwritten. They may be all there are."""
    x, y = node.inputs
    starts, steps = node._attrs
    if is_whole(node.shape, starts, steps, y.shape):
        return y
    value = _scalar(x)
    if value is None:
        return None
    from ..graph.opdef import lookup
    return new_node(lookup("place"), (y,), (node.shape, *node._attrs, value.item()), node.shape, node.dtype, node._site, node.origin, node.name,
                    node.scope, node.serial)


def _place(node: Node) -> Node | None:
    """All elements, where they are."""
    (x,) = node.inputs
    _, starts, steps, *_ = node._attrs
    return x if is_whole(node.shape, starts, steps, x.shape) else None


def _concatenate(node: Node) -> Node | None:
    """One array and others without elements."""
    return next((x for x in node.inputs if x.shape == node.shape and x.dtype is node.dtype), None)


def _same_shape(node: Node) -> Node | None:
    """reshape and broadcast to the shape it has."""
    (x,) = node.inputs
    return x if x.shape == node.shape else None


def _reshape(node: Node) -> Node | None:
    (x,) = node.inputs
    if x.shape == node.shape:
        return x
    if x.op.name == "reshape":
        return node._replace(x.inputs)
    return None


def _transpose(node: Node) -> Node | None:
    (x,) = node.inputs
    axes = node._attrs[0]
    if axes == tuple(range(len(axes))):
        return x
    if x.op.name == "transpose":
        inner = tuple(x._attrs[0][a] for a in axes)
        if inner == tuple(range(len(inner))):
            return x.inputs[0]
        return node._replace(x.inputs, attrs=(inner,))
    return None


def _sum(node: Node) -> Node | None:
    """The sum of what was just made int64: bools are counted, small integers added up as they are."""
    (x,) = node.inputs
    kernel = _WIDE.get(x.inputs[0].dtype) if x.op.name == "cast" and x.dtype is INT64 else None
    if kernel is None:
        return None
    from ..graph.opdef import lookup
    return new_node(lookup(kernel), x.inputs, node._attrs, node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                    node.serial)


def _tested(node: Node) -> Node | None:
    """isnan, isinf and isfinite of integers and bools, which they read as floats."""
    (x,) = node.inputs
    if x.op.name != "cast" or x.inputs[0].dtype.kind == "f" or x.dtype is FLOAT16:        # 65536 is beyond that
        return None
    answer = np.asarray(node.op.name == "isfinite")
    answer.flags.writeable = False
    serial = sooner(node, node.inputs) if node.shape else node.serial
    number = new_node(CONSTANT, (), (answer,), (), node.dtype, node._site, node.origin, None, node.scope, serial)
    if not node.shape:
        return number
    from ..graph.opdef import lookup
    return new_node(lookup("broadcast_to"), (number,), (node.shape,), node.shape, node.dtype, node._site, node.origin, node.name, node.scope,
                    node.serial)


_WIDE = {BOOL: "count_nonzero", UINT8: "wide_sum", INT32: "wide_sum"}
RULES: dict[str, Callable[[Node], Node | None]] = {
    "add": _add, "zmul": _zmul, "zmul_either": _zmul_either, "multiply": _multiply, "divide": _divide, "negative": _negative, "subtract": _subtract,
    "broadcast_to": _same_shape, "reshape": _reshape, "transpose": _transpose, "slice_set": _slice_set,
    "place": _place, "concatenate": _concatenate, "sum": _sum, "isnan": _tested, "isinf": _tested, "isfinite": _tested,
}


def renewed(node: Node, new: dict[int, Node]) -> Node:
    """The node over the replacements of its inputs; itself when they are unchanged."""
    for x in node.inputs:
        if new[id(x)] is not x:
            return node._replace(tuple([new[id(y)] for y in node.inputs]))
    return node


def _moves(node: Node, better: Node) -> bool:
    """May the replacement lie otherwise? Not a view of what the node was a view of, but for a reshape, which copies where it must."""
    if node.op.name not in VIEWS:
        return better.op.name in VIEWS
    return node.op.name == "reshape" and better is not node.inputs[0] and better.inputs[0].op.name in VIEWS


def algebra(order: Sequence[Node], outputs: Sequence[Node]) -> Ordered:
    """Every rule of RULES, inputs first, until a node no longer changes."""
    new: dict[Node, Node] = {}               # of nodes that another one takes the place of
    kept: list[Node] = []
    keep, get = kept.append, RULES.get
    fixed: set[int] | None = None            # these two are looked for when a rule is about to do something that they tell about
    constants: set[Node] | None = None
    for node in order:
        here = node
        for x in node.inputs:
            if x in new:
                here = node._replace(tuple([new.get(y, y) for y in node.inputs]))
                break
        rule = get(here.op.name)
        better = None if rule is None else rule(here)
        if better is None:
            keep(here)
            if here is not node:
                new[node] = here
            continue
        operands = here.inputs
        while better is not None:
            if _moves(here, better):
                if fixed is None:
                    fixed = laid_out(order)
                if id(node) in fixed:
                    break
            here = better
            rule = get(here.op.name)
            better = None if rule is None else rule(here)
        if here is not node:
            new[node] = here
        for x in operands:
            if here is x:
                break
        else:
            if here is node or here.serial == node.serial:      # not one of the nodes that exist already
                for x in here.inputs:
                    if x.op is CONSTANT:
                        if constants is None:
                            constants = {n for n in order if n.op is CONSTANT}
                        if x not in constants:                  # a rule made it
                            constants.add(x)
                            keep(x)
                keep(here)
    return kept, [new.get(o, o) for o in outputs]


def foldable(order: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The largest constant subgraphs worth folding: nodes that depend on constants only and are used by others."""
    constant: set[Node] = set()
    computed: set[Node] = set()              # those of them that are no constants themselves
    for node in order:
        inputs = node.inputs
        if inputs:
            for x in inputs:
                if x not in constant:
                    break
            else:
                if node.op.name not in ("barrier", "stop_gradient"):
                    constant.add(node)
                    computed.add(node)
        elif node.op is CONSTANT:
            constant.add(node)
    if not computed:
        return []
    roots: dict[int, Node] = {}
    for node in order:
        if node.inputs and node not in computed:
            for x in node.inputs:
                if x in computed:
                    roots[id(x)] = x
    for o in outputs:
        if o in computed:
            roots[id(o)] = o
    # The broadcast of a constant is a view; folded it would be memory to read.
    wanted = {id(o) for o in outputs}
    fixed = laid_out(order) if any(r.op.name in VIEWS for r in roots.values()) else set()
    for r in list(roots.values()):
        base = r
        while id(base) not in wanted and (base.op.name == "broadcast_to" or (base.op.name in VIEWS and id(base) in fixed)):
            base = base.inputs[0]
        if base is not r:
            del roots[id(r)]
            if base.op is not CONSTANT:
                roots[id(base)] = base
    return [r for r in roots.values() if isinstance(r.size, int) and r.size <= FOLD_LIMIT]


def replace_constants(order: Sequence[Node], outputs: Sequence[Node], values: dict[int, Any]) -> Ordered:
    """Folded nodes (by id) as constants that keep their line and name."""
    new: dict[Node, Node] = {}               # of nodes that another one takes the place of
    kept: list[Node] = []
    for node in order:
        here = node
        if id(node) in values:
            array = values[id(node)]
            array.setflags(write=False)
            here = new_node(CONSTANT, (), (array,), node.shape, node.dtype, node._site, node.origin, node.name, node.scope, node.serial)
        else:
            for x in node.inputs:
                if x in new:
                    here = node._replace(tuple([new.get(y, y) for y in node.inputs]))
                    break
        if here is not node:
            new[node] = here
        kept.append(here)
    return kept, [new.get(o, o) for o in outputs]
