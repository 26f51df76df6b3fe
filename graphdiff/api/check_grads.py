"""check_grads: derivatives of the compiled program against the NumPy reference interpreter, and the name of a wrong rule.

The oracle is the complex step of the reference: f(x + ih) has the derivative in its imaginary part, without a difference and
so without its error. Where an op on the path has no complex reference (the gamma and error functions) it is a fourth-order
central difference of the same interpreter, with its own tolerance. When a derivative disagrees, every node on the path is
checked alone, with fresh operands, and the first whose own rule is wrong is named.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..diff.forward import jvp
from ..diff.reverse import connected, grad
from ..errors import BadValue, GradientError, NodeTypeError, compose, located_error
from ..graph.build import INPUT, as_node, node_list, public
from ..graph.node import Node, describe, new_node
from ..graph.walk import toposort
from ..ops.binary import add, multiply
from ..ops.reduction import sum as sum_nodes
from ..passes.concrete import stand_in, substitute
from ..runtime.execute import Gate
from ..runtime.reference import reference_values
from .function import function

STEP = 1e-200                # of the complex step: its square vanishes beside every number
HIGHEST = 10                 # order; each differentiates the gradient of the one before
FEW = 16                     # elements up to which the gradient is compared one by one
MODES = ("forward", "reverse")
# Relative tolerance by the narrowest float on the path: against the complex step (float64: what API.md promises; the others:
# a few hundred roundings), and against the central difference (its truncation and rounding errors at the step beside it).
EXACT = {"float64": 1e-9, "float32": 1e-3, "float16": 1e-1}
CENTRAL = {"float64": (1e-6, 1e-3), "float32": (2e-2, 2e-2), "float16": (2e-1, 1e-1)}


@public
def check_grads(outputs: Any, wrt: Any, at: Any, order: int = 2, modes: Any = MODES) -> None:
    """Check the derivatives of outputs with respect to wrt at one point; None when they are right.

    outputs, wrt: a float node or a list of them (wrt may be interior nodes and variables); at: {node: array} with a value for
    every input the outputs need, or a list of arrays, one a node of wrt. Interior nodes and variables keep the value they have
    unless at gives one. Derivatives of the compiled program, along fixed random directions, agree with the complex step of the
    NumPy reference to 1e-9 (float32 1e-3, float16 1e-1), relative to the sum of the magnitudes of their terms; where the
    reference has no complex form, with central differences to 1e-6 (2e-2, 2e-1). order 2 repeats the check on random
    projections of the gradient. modes: "forward", "reverse" or both.

    At a kink the convention (NUMERICS.md) is not a limit of differences: check beside it. stop_gradient is respected; a
    custom gradient that means to differ from its function's derivative is reported.
    The rules' own use of stop_gradient is not: a rule right to first order only fails order 2.
    Raises GradientError that names the node (op, line, operands) whose rule is wrong.
    """
    ys = [as_node(y) for y in outputs] if isinstance(outputs, (list, tuple)) else [as_node(outputs)]
    xs = node_list(wrt, "wrt")
    modes = (modes,) if isinstance(modes, str) else modes
    if not isinstance(modes, (tuple, list)) or not modes or any(m not in MODES for m in modes):
        raise NodeTypeError(f"modes are 'forward' and 'reverse', not {modes!r}")
    if isinstance(order, bool) or not isinstance(order, (int, np.integer)) or not 1 <= order <= HIGHEST:
        raise NodeTypeError(f"order must be a whole number from 1 to {HIGHEST}, not {order!r}")
    for n in [*ys, *xs]:
        if n.dtype.kind != "f":
            raise GradientError(f"{n.label!r} ({n.spec}) has no derivative: integers and bools have none")
    feeds = _point(ys, xs, at)
    _check(ys, xs, feeds, int(order), modes, np.random.default_rng(20240229), 1)


def _point(ys: Sequence[Node], xs: Sequence[Node], at: Any) -> dict[Node, Any]:
    """A value for every input and every node of xs."""
    if isinstance(at, Mapping):
        pairs = list(at.items())
    elif isinstance(at, (list, tuple)) and len(xs) != 1:
        if len(at) != len(xs):
            raise NodeTypeError(f"at has {len(at)} values for {len(xs)} nodes of wrt")
        pairs = list(zip(xs, at, strict=True))
    else:
        one = isinstance(at, (list, tuple)) and len(at) == 1 and xs[0].ndim == np.ndim(at[0])
        pairs = [(xs[0], at[0] if one else at)] if xs else []
    feeds: dict[Node, Any] = {}
    for n, value in pairs:
        if not isinstance(n, Node):
            raise NodeTypeError(f"the keys of at are nodes, not {type(n).__name__}")
        gate = Gate(n.label, n.shape, n.dtype)
        feeds[n] = gate.check(value)
        if feeds[n].ndim != n.ndim or any(isinstance(a, int) and a != b for a, b in zip(n.shape, feeds[n].shape, strict=True)):
            raise gate.wrong_shape(feeds[n].shape)
        if n.dtype.kind == "f" and not np.isfinite(feeds[n]).all():
            raise BadValue(f"at: {n.label} holds NaN or infinities, where no difference tells a derivative")
    missing = [n for n in toposort([*ys, *xs], stop={id(n) for n in feeds}) if n.op == "input" and n not in feeds]
    if missing:
        raise NodeTypeError(f"at gives no value for input {missing[0].label!r}\nhint: at={{node: array}} with every input the outputs need")
    # A node of wrt is varied by itself: it gets the value it has at the point.
    values = reference_values([x for x in xs if x not in feeds], feeds)
    return {**feeds, **{x: np.asarray(values[x], x.dtype) for x in xs if x not in feeds}}


def _hole(like: Node, name: str) -> Node:
    """An input of the shape and dtype of a node."""
    return new_node(INPUT, (), (), like.shape, like.dtype, like._site, None, name)


def _run(nodes: Sequence[Node], feeds: Mapping[Node, Any]) -> list[Any]:
    """The compiled program's values; variables and constants that are fed are overridden too."""
    held = {id(n): stand_in(n) for n in feeds if n.op.family == "leaf" and n.op != "input"}
    roots = substitute(nodes, held) if held else list(nodes)
    return list(function([held.get(id(n), n) for n in feeds], roots)(*feeds.values()))


def _narrowest(nodes: Sequence[Node]) -> str:
    return min([n.dtype for n in nodes if n.dtype.kind == "f"], key=lambda d: d.itemsize).name


def _random(rng: Any, like: Any) -> Any:
    """Magnitudes from 0.5 to 1.5 and both signs: no direction is lost."""
    return (rng.uniform(0.5, 1.5, like.shape) * rng.choice([-1.0, 1.0], like.shape)).astype(like.dtype)


def _axes(like: Any) -> list[Any]:
    return [np.asarray(e, like.dtype).reshape(like.shape) for e in np.eye(like.size)] if like.size > 1 else []


def _complex_step(ys: Sequence[Node], x: Node, v: Any, feeds: Mapping[Node, Any]) -> list[Any] | None:
    """Derivatives of ys along v at x by the complex step, or None where a reference on the path has no complex form."""
    fed = {**feeds, x: feeds[x].astype(np.complex128) + 1j * STEP * v.astype(np.float64)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            values = reference_values(ys, fed, complex_ok=True)
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        return None
    with np.errstate(all="ignore"):
        return [np.imag(values[y]) / STEP if np.iscomplexobj(values[y]) else np.zeros(values[y].shape) for y in ys]


def _central(ys: Sequence[Node], x: Node, v: Any, feeds: Mapping[Node, Any], step: float) -> list[Any]:
    """The same by a central difference of order four. Nodes through which no derivative flows keep their value."""
    still = [n for n in toposort(ys, stop={id(n) for n in feeds}) if n.inputs and (n.op.zero or n.op.cuts is not None)]
    base = reference_values(still, feeds) if still else {}
    fed = {**feeds, **{n: base[n] for n in still}}

    def f(k: int) -> list[Any]:
        values = reference_values(ys, {**fed, x: feeds[x].astype(np.float64) + k * step * v.astype(np.float64)}, complex_ok=True)
        return [values[y].astype(np.float64) for y in ys]
    with np.errstate(all="ignore"):
        return [(8 * (b - c) - (a - d)) / (12 * step) for a, b, c, d in zip(f(2), f(1), f(-1), f(-2), strict=True)]


def _is_kink(y: Node, x: Node, v: Any, feeds: Mapping[Node, Any], rtol: float, step: float) -> bool:
    """Do differences to both sides disagree, or none settle, or is one of them no number? Then none tells a derivative.

    Of a smooth function half the step halves what is left between the sides, and between one step and the next.
    """
    def f(h: float) -> Any:
        at = feeds[x].astype(np.float64) + h * v.astype(np.float64)
        return np.asarray(reference_values([y], {**feeds, x: at}, complex_ok=True)[y], np.float64)
    with np.errstate(all="ignore"):
        here, steps = f(0), (step, step / 2, step / 4)
        before, after = [[(f(sign * h) - here) / (sign * h) for h in steps] for sign in (-1, 1)]
        if not np.isfinite([*before, *after]).all():
            return True
        least = 30 * rtol * _magnitude(here, *before, *after)
        gap, next_gap = (np.abs(b - a) for b, a in zip(before[:2], after[:2], strict=True))
        moves = [(np.abs(side[0] - side[1]), np.abs(side[1] - side[2])) for side in (before, after)]
        return any(bool(((small > 0.75 * large) & (small > least)).any()) for large, small in ((gap, next_gap), *moves))


def _differs(got: Any, want: Any, scale: Any, rtol: float) -> bool:
    """Whether two derivatives disagree beyond rounding; equal infinities and two NaNs agree."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= rtol * scale + 1e-300)
    return not same.all()


def _magnitude(*arrays: Any) -> float:
    return max([float(np.abs(a).max(initial=0.0, where=np.isfinite(a))) for a in arrays])


def _unstopped(ys: Sequence[Node], feeds: Mapping[Node, Any]) -> list[Node]:
    """ys without the stop_gradients that a derivative rule made: what the user stops is constant by intent, a rule that stops
    hides a part of its own derivative."""
    new: dict[Node, Node] = {}
    for n in toposort(ys, stop={id(f) for f in feeds}):
        if n in feeds or not n.inputs:
            new[n] = n
        elif n.op == "stop_gradient" and n.origin is not None:
            new[n] = new[n.inputs[0]]
        else:
            new[n] = n if all(new[x] is x for x in n.inputs) else n._replace(tuple([new[x] for x in n.inputs]))
    return [new[y] for y in ys]


class _Claims:
    """The derivatives a set of rules claims, beside the oracles: built once, asked per output and wrt."""

    def __init__(self, ys: Sequence[Node], xs: Sequence[Node], feeds: Mapping[Node, Any], modes: Sequence[str], rng: Any) -> None:
        self.ys, self.xs, self.modes = ys, xs, modes
        values = reference_values(ys, feeds)
        self.u = [_random(rng, np.asarray(values[y], y.dtype)) for y in ys]
        self.v = [_random(rng, feeds[x]) for x in xs]
        # A projection of the gradient may hide a small error: a few more directions, every axis when they are few.
        self.more = [_axes(feeds[x]) if feeds[x].size <= FEW else [_random(rng, feeds[x]) for _ in range(2)] for x in xs]
        us, vs = [_hole(y, "cotangent") for y in ys], [_hole(x, "tangent") for x in xs]
        self.feeds = {**feeds, **dict(zip(us, self.u, strict=True)), **dict(zip(vs, self.v, strict=True))}
        self.total = _sum([sum_nodes(multiply(u, y)) for u, y in zip(us, ys, strict=True)])
        self.gradient = grad(self.total, list(xs), unconnected="zero") if "reverse" in modes else []
        self.pushed = [jvp(list(ys), x, v) for x, v in zip(xs, vs, strict=True)] if "forward" in modes else []
        # What the next order differentiates: one scalar a mode.
        self.next = []
        if self.gradient:
            self.next.append(_sum([sum_nodes(multiply(g, v)) for g, v in zip(self.gradient, vs, strict=True)]))
        if self.pushed:
            self.next.append(_sum([sum_nodes(multiply(u, p)) for row in self.pushed for u, p in zip(us, row, strict=True)]))

    @property
    def nodes(self) -> list[Node]:
        return [*self.gradient, *[p for row in self.pushed for p in row]]

    def wrong(self, values: Sequence[Any], oracle: Callable[[Node, Any], list[Any]], rtol: float) -> tuple[str, int, float, float] | None:
        """(mode, number of the wrt, claimed, found) of the first disagreement."""
        m, n = len(self.xs), len(self.ys)
        for j, (x, v) in enumerate(zip(self.xs, self.v, strict=True)):
            if v.size == 0:
                continue
            if self.gradient:
                for w in (v, *self.more[j]):
                    with np.errstate(all="ignore"):
                        terms = [u * d for u, d in zip(self.u, oracle(x, w), strict=True)]
                        want = float(np.sum([np.sum(t) for t in terms]))
                        part = np.where(w == 0, 0.0, np.asarray(values[j], np.float64) * w)
                        scale = sum(float(np.sum(np.abs(t), where=np.isfinite(t))) for t in (part, *terms))
                        if _differs(part.sum(), want, scale, rtol):
                            return "reverse", j, float(part.sum()), want
            if self.pushed:
                row = values[len(self.gradient) + j * n:len(self.gradient) + (j + 1) * n]
                for p, d in zip(row, oracle(x, v), strict=True):
                    if _differs(p, d, _magnitude(p, d), rtol):
                        k = int(np.argmax(np.abs(np.nan_to_num(np.asarray(p, np.float64) - d, nan=np.inf))))
                        return "forward", j, float(np.ravel(p)[k]), float(np.ravel(d)[k])
        assert len(values) == len(self.gradient) + m * n * bool(self.pushed)
        return None


def _sum(nodes: Sequence[Node]) -> Node:
    total = nodes[0]
    for n in nodes[1:]:
        total = add(total, n)
    return total


def _check(ys: Sequence[Node], xs: Sequence[Node], feeds: dict[Node, Any], order: int, modes: Sequence[str], rng: Any, now: int) -> None:
    """One order: claims of the program against the oracle; then the next order on the projections."""
    if not ys or not xs:
        return
    claims = _Claims(ys, xs, feeds, modes, rng)
    values = _run(claims.nodes, claims.feeds)
    path = _path(ys, xs)
    kind = _narrowest([*path, *xs, *ys])
    found = _verdict(claims, values, claims.feeds, kind)
    if found is not None:
        _accuse(claims, values, found, path, kind, now)
    if order > now:
        _check(claims.next, xs, claims.feeds, order, modes, rng, now + 1)


def _verdict(claims: _Claims, values: Sequence[Any], feeds: Mapping[Node, Any], kind: str, ys: Any = None,
             where: Callable[[Node], Any] = lambda x: x) -> tuple[str, int, float, float] | None:
    """The first disagreement with the complex step, where there is one, else with the central difference."""
    ys = claims.ys if ys is None else ys
    ys = _unstopped(ys, feeds)
    known: dict[Any, Any] = {}

    def exact(x: Node, v: Any) -> Any:
        key = x, id(v)                 # the directions live as long as claims
        if key not in known:
            known[key] = _complex_step(ys, where(x), v, feeds)
        return known[key]
    rtol, step = CENTRAL[kind]

    def central(x: Node, v: Any) -> list[Any]:
        return _central(ys, where(x), v, feeds, step)
    pairs = list(zip(claims.xs, claims.v, strict=True))
    if all(exact(x, v) is not None for x, v in pairs):
        found = claims.wrong(values, exact, EXACT[kind])
        if found is None:
            return None
        # A reference may take complex numbers and yet not continue its function to them. Then the two oracles disagree, and
        # the difference is the one that says what the function does.
        if all(not _differs(a, b, _magnitude(a, b), 10 * rtol) for x, v in pairs for a, b in zip(exact(x, v), central(x, v), strict=True)):
            return found
    return claims.wrong(values, central, rtol)


def _opaque(node: Node) -> bool:
    """Whether the derivative is the user's own rule. (A checkpoint's is that of its body, whose nodes are looked at first.)"""
    return node.op == "custom" and not node._attrs[0].transparent


def _path(ys: Sequence[Node], xs: Sequence[Node]) -> list[Node]:
    """The nodes with a derivative between xs and ys, in running order; bodies of custom gradients belong to their node."""
    order = toposort(ys)
    reach = connected(order, xs)
    given = {id(x) for x in xs}
    inside: set[int] = {id(y) for y in ys}
    for node in reversed(order):          # from ys down along operands derivatives flow to
        if id(node) in inside and id(node) not in given:
            inside.update(id(x) for x in (node.inputs[1:] if _opaque(node) else node.inputs))
    return [n for n in order if id(n) in inside and id(n) in reach and id(n) not in given and n.inputs and not n.op.zero]


def _accuse(claims: _Claims, values: Sequence[Any], found: tuple[str, int, float, float], path: Sequence[Node], kind: str,
            now: int) -> None:
    """Raise the error: the node whose own rule is wrong, else the node the program computes wrong, else the totals."""
    mode, j, got, want = found
    x = claims.xs[j]
    total = f"{mode} mode, order {now}, with respect to {x.label!r}: {got!r} along a random direction, not {want!r}"
    feeds = claims.feeds
    base = reference_values([*claims.nodes, *claims.ys, *path], feeds)
    kink: Node | None = None
    # A custom gradient is judged first: its body's nodes are right, and its users' are too.
    for node in sorted(path, key=lambda n: 0 if _opaque(n) else 1 if n.op != "custom" else 2):
        if _opaque(node):
            given = {id(i) for i in node.inputs[1:]}
            inside = {id(n) for n in toposort([node.inputs[0]], stop=given)} - given
            if id(x) in inside:
                raise _error(f"check_grads: the custom gradient of {node._attrs[0].name!r} gives nothing for {x.label!r}, which its function "
                             f"uses without taking it as an argument; seen in {total}", node)
        bad = _alone(node, base, feeds, claims.modes)
        if bad is None:
            continue
        how, operand, claimed, real = bad
        if node.op != "custom" and _at_a_kink(node, base):
            kink = node if kink is None else kink
            continue
        rule = f"the custom gradient of {node._attrs[0].name!r}" if node.op == "custom" else f"the derivative rule of {node.op.name}"
        raise _error(f"check_grads: {rule} is wrong in operand {operand} ({how} mode): alone it gives {claimed!r}, its reference "
                     f"{real!r}; seen in {total}", node)
    if kink is not None:
        raise _error(f"check_grads: {kink.op.name} is at a kink, or at the edge of its domain or beyond, at this point, where no difference tells "
                     f"a derivative: check beside it; seen in {total}", kink)
    plain = [base[n] for n in claims.nodes]
    if _verdict(claims, plain, feeds, kind) is None:
        order = [n for n in toposort(claims.nodes) if n.inputs and n.dtype.kind == "f"]
        for node, a in zip(order, _run(order, feeds), strict=True):
            b = np.asarray(base[node], np.float64)
            if _differs(a, b, _magnitude(a, b), EXACT[kind]):
                raise _error(f"check_grads: the program computes {node.op.name} differently from its reference; seen in {total}", node)
        raise _error(f"check_grads: the optimised program differs from the reference of the same derivative; seen in {total}", claims.ys[0])
    # Terms that cancel leave the rounding of what they were: relative to the largest number on the way, it is nothing.
    largest = _magnitude(*[np.asarray(base[n], np.float64) for n in base if n.dtype.kind == "f"])
    if not _differs(got, want, largest, EXACT[kind] / 100):
        return
    raise _error(f"check_grads: wrong derivative, though every rule on the path is right alone at this point (a kink, or lost digits?): "
                 f"{total}", claims.ys[0])


def _error(what: str, node: Node) -> GradientError:
    site = node.site
    rows = [("node", describe(node)), *[(f"operand {i}", describe(x)) for i, x in enumerate(node.inputs[node.op == "custom":])]]
    return located_error(GradientError(compose(what, at=None if site is None else (str(site), site.source), rows=rows)))   # type: ignore[return-value]


def _copy(node: Node) -> tuple[Node, dict[Node, Node]]:
    """The node of inputs of its own, and these by its operands."""
    holes = {x: _hole(x, x.label) for x in node.inputs}
    return new_node(node.op, tuple([holes[x] for x in node.inputs]), node._attrs, node.shape, node.dtype, node._site, None, node.name), holes


def _alone(node: Node, base: Mapping[Node, Any], feeds: Mapping[Node, Any], modes: Sequence[str]) -> tuple[str, int, float, float] | None:
    """(mode, operand, claimed, found) when the node's own rule disagrees with its reference at these operands, else None."""
    copy, holes = _copy(node)
    custom = node.op == "custom"
    # The derivative a custom gradient stands for is that of its body, with its operands varied.
    operands = dict.fromkeys(x for x in (node.inputs[1:] if custom else node.inputs) if x.dtype.kind == "f")
    fed = {**feeds, **{h: np.asarray(base[x], x.dtype) for x, h in holes.items()}}
    if custom:
        fed.update({x: np.asarray(base[x], x.dtype) for x in operands})
    body, where = ([node.inputs[0]], {holes[x]: x for x in operands}) if custom else ([copy], {})
    for x in operands:
        try:
            claims = _Claims([copy], [holes[x]], fed, modes, np.random.default_rng(7))
            values = _run(claims.nodes, claims.feeds)
        except GradientError:
            continue                       # an operand without a derivative
        found = _verdict(claims, values, claims.feeds, _narrowest([node, *operands]), body, lambda h: where.get(h, h))
        if found is not None:
            mode, _, got, want = found
            start = 1 if custom else 0
            return mode, _position(node, x, start), got, want
    return None


def _at_a_kink(node: Node, base: Mapping[Node, Any]) -> bool:
    """Does a node have no derivative at its operands, by differences of its reference to both sides of each?"""
    copy, holes = _copy(node)
    fed = {h: np.asarray(base[x], x.dtype) for x, h in holes.items()}
    rtol, step = CENTRAL[_narrowest([node, *[x for x in holes if x.dtype.kind == "f"]])]
    rng = np.random.default_rng(7)
    return any(_is_kink(copy, h, w, fed, rtol, step) for x, h in holes.items() if x.dtype.kind == "f" and x.size
               for w in (_random(rng, fed[h]), *(_axes(fed[h]) if x.size <= FEW else ())))


def _position(node: Node, x: Node, start: int) -> int:
    return next(i for i, y in enumerate(node.inputs) if y is x and i >= start) - start
