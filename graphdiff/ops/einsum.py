"""Einstein summation: numpy.einsum in full, as one graph op.

The public function brings an equation to a normal form: an ellipsis gets letters of its own, an index repeated inside an
operand is a diagonal, one repeated in the result an undiagonal, an axis of size 1 that stretches is dropped. What is
left for the op are operands and a result of distinct labels, which is closed under differentiation. The order of pairwise
products is chosen when the op is lowered, when all sizes are known.
"""
from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import FLOAT16, FLOAT32, PROMOTE, asked_dtype
from ..errors import DTypeError, NodeTypeError, ShapeError, show_name
from ..graph.build import CONSTANT, as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register
from ..specs import check_shape, nelements, stretches
from .contraction import cost, lower, sizes_of, terms_of
from .families import cast
from .movement import BROADCAST_TO, UNDIAGONAL, diagonal, expand_to, permute, reshape_to, taken_for

LETTERS = string.ascii_uppercase + string.ascii_lowercase    # the alphabet of numpy.einsum, in the order of implicit outputs


# -- the op --------------------------------------------------------------------------------------------------------

def _infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    terms, out = terms_of(attrs[0])
    sizes = sizes_of(terms, [x.shape for x in inputs])
    shape = tuple([sizes[label] for label in out])
    check_shape(shape, inputs[0].dtype)
    return shape, inputs[0].dtype


def _reference(*xs: Any, equation: str) -> Any:
    """numpy.einsum; float16 is added up in float32."""
    arrays = [np.asarray(x).astype(FLOAT32) if np.asarray(x).dtype == FLOAT16 else np.asarray(x) for x in xs]
    return np.einsum(equation, *arrays, optimize=len(arrays) > 2)


def _vjp(g: Node, node: Node, needs: Any) -> Any:
    """For each operand the einsum of g with the others; a label that only this operand has is a broadcast axis."""
    terms, out = terms_of(node._attrs[0])
    result: list[Any] = []
    for k, (x, need) in enumerate(zip(node.inputs, needs, strict=True)):
        if not need:
            result.append(None)
            continue
        others = [(t, y) for j, (t, y) in enumerate(zip(terms, node.inputs, strict=True)) if j != k]
        known = set(out).union(*[t for t, _ in others])
        term = terms[k]
        target = "".join([label for label in term if label in known])
        part = contract([out, *[t for t, _ in others]], [g, *[y for _, y in others]], target)
        shape = tuple([n if label in known else 1 for label, n in zip(term, x.shape, strict=True)])
        result.append(expand_to(reshape_to(part, shape), x.shape))
    return tuple(result)


def _varying(x: Node, term: str) -> tuple[Node, str]:
    """x without the axes along which it only repeats."""
    if x.op is not BROADCAST_TO:
        return x, term
    (y,) = x.inputs
    lead = x.ndim - y.ndim
    keep = [a for a in range(lead, x.ndim) if y.shape[a - lead] == x.shape[a]]
    return reshape_to(y, tuple([x.shape[a] for a in keep])), "".join([term[a] for a in keep])


def contract(terms: Sequence[str], nodes: Sequence[Node], out: str) -> Node:
    """The op on operands of distinct labels, for derivatives.

    A cotangent is often the same number all along some axes (the gradient of a sum): such axes leave the operand. If no
    other operand has the label, the sum over it is a product with its length.
    """
    slim = [_varying(x, term) for x, term in zip(nodes, terms, strict=True)]
    sizes = sizes_of(terms, [x.shape for x in nodes])
    held = {label for _, term in slim for label in term}
    lost = [n for label, n in sizes.items() if label not in held and label not in out]
    # A length of 0 times infinity is not the sum of nothing; float16 sums are wider than its products.
    if held == set(sizes) or not all(isinstance(n, int) and n > 0 for n in lost) or (lost and nodes[0].dtype is FLOAT16):
        return _contract(terms, nodes, out)
    slim = [(x, term) for x, term in slim if term or not _is_one(x)] or slim[:1]
    y = _contract([term for _, term in slim], [x for x, _ in slim], "".join([label for label in out if label in held]))
    times = nelements(tuple(lost))
    if times != 1:
        from .binary import multiply
        y = multiply(y, times)
    y = reshape_to(y, tuple([sizes[label] if label in held else 1 for label in out]))
    return expand_to(y, tuple([sizes[label] for label in out]))


def _is_one(x: Node) -> bool:
    """Is it the constant 1, without axes?"""
    return x.op is CONSTANT and x.shape == () and bool(x._attrs[0] == 1)


def _contract(terms: Sequence[str], nodes: Sequence[Node], out: str) -> Node:
    """A mere permutation is a transpose; products summed across their last axis are a sum of columns, which reads memory in order."""
    if len(nodes) == 1 and len(terms[0]) == len(out):
        return permute(nodes[0], [terms[0].index(label) for label in out])
    if len(nodes) == 2 and _is_across(terms, out) and nodes[0].dtype is not FLOAT16:       # its products would be rounded
        from .binary import multiply
        from .reduction import sum as sum_
        first, second = terms
        x, y = nodes[0], permute(nodes[1], [second.index(label) for label in first])
        if x.shape == y.shape:
            total = sum_(multiply(x, y), tuple([k for k, label in enumerate(first) if label not in out]))
            kept = [label for label in first if label in out]
            return cast(permute(total, [kept.index(label) for label in out]), x.dtype)
    return make(EINSUM, tuple(nodes), (",".join(terms) + "->" + out,))


def _is_across(terms: Sequence[str], out: str) -> bool:
    """Do both operands have all labels, some of them summed, but neither its last? As products these would be of one row and one
    column each, from elements that lie apart."""
    first, second = terms
    return len(set(first)) > len(out) > 0 and set(first) == set(second) and first[-1] in out and second[-1] in out


def _jvp(tangents: Any, node: Node) -> Node:
    """Linear in every operand: the sum over operands of the einsum with the tangent in its place."""
    from .binary import add
    total: Any = None
    for k, t in enumerate(tangents):
        if t is not None:
            part = make(EINSUM, tuple([t if j == k else x for j, x in enumerate(node.inputs)]), node._attrs)
            total = part if total is None else add(total, part)
    return total


EINSUM = register(OpDef("einsum", "the sum of products over labelled axes", _infer, _reference, attr_names=("equation",),
                        vjp=_vjp, jvp=_jvp, lower=lower, cost=cost, symbol="Σ∏"))


# -- the public function -------------------------------------------------------------------------------------------

def _from_lists(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """The form einsum(x, [0, 1], y, [1, 2], [0, 2]) as an equation and its operands."""
    def letters(labels: Any) -> str:
        if not isinstance(labels, (list, tuple, np.ndarray)):
            raise NodeTypeError(f"expected a list of labels after an operand, not {type(labels).__name__}")
        out = []
        for label in labels:
            if label is Ellipsis:
                out.append("...")
            elif isinstance(label, (int, np.integer)) and not isinstance(label, bool) and 0 <= label < len(LETTERS):
                out.append(LETTERS[int(label)])
            else:
                raise NodeTypeError(f"a label is a number from 0 to {len(LETTERS) - 1} or Ellipsis, not {show_name(repr(label))}")
        return "".join(out)

    n = len(operands) // 2
    if not n:
        raise NodeTypeError("needs an equation and operands, or operands each followed by a list of labels")
    equation = ",".join([letters(labels) for labels in operands[1:2 * n:2]])
    if len(operands) % 2:
        equation += "->" + letters(operands[-1])
    return equation, list(operands[:2 * n:2])


def _split(equation: str, count: int) -> tuple[list[str], str | None]:
    """The terms and the output of an equation, checked character by character."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        rest = term.replace("...", "", 1)
        for char in rest:
            if char not in LETTERS:
                raise ShapeError(f"{show_name(equation)!r} holds {show_name(char)!r}: a label is one letter, "
                                 "axes left open are '...'")
    if len(terms) != count:
        raise ShapeError(f"{show_name(equation)!r} has subscripts for {len(terms)} operands, {count} given")
    return terms, right if arrow else None


def _spell_out(terms: list[str], out: str | None, shapes: list[tuple[Any, ...]]) -> tuple[list[str], str]:
    """Letters in the place of ellipses, aligned at their right end, and the implicit output: them, then single labels."""
    used = set("".join(terms) + (out or ""))
    widths = []
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        count = len(term.replace("...", ""))
        if count > len(shape) or ("..." not in term and count != len(shape)):
            raise ShapeError(f"operand {k} has {len(shape)} axes, its subscripts {term!r} name {count}")
        widths.append(len(shape) - count if "..." in term else 0)
    free = [c for c in reversed(LETTERS) if c not in used]
    width = max(widths, default=0)
    if width > len(free):
        raise ShapeError(f"more than {len(LETTERS)} different labels")
    dots = "".join(free[:width])
    spelled = [term.replace("...", dots[width - w:]) for term, w in zip(terms, widths, strict=True)]
    if out is None:
        named = "".join(terms).replace(".", "")
        single = sorted([c for c in set(named) if named.count(c) == 1], key=LETTERS.index)
        return spelled, dots + "".join(single)
    if "..." not in out and width:
        raise ShapeError("an operand has an ellipsis, the output has none"
                         "\nhint: write '...' in the output too, or sum those axes by name")
    for c in out.replace("...", ""):
        if c not in "".join(terms):
            raise ShapeError(f"label {c} of the output is in no operand")
    return spelled, out.replace("...", dots)


def _take_diagonals(x: Node, term: str, k: int) -> tuple[Node, str]:
    """A label repeated inside an operand: the diagonal of its axes."""
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            i = term.index(label)
            j = term.index(label, i + 1)
            n = unify(x.shape[i], x.shape[j])
            if n is None:
                raise ShapeError(f"label {label} has lengths {x.shape[i]} and {x.shape[j]} in operand {k}")
            x = diagonal(taken_for(x, {i: n, j: n}, f"label {label} has lengths {{have}} and {{size}} in operand {k}"), 0, i, j)
            term = term[:i] + term[i + 1:j] + term[j + 1:] + label
    return x, term


def _drop_ones(nodes: list[Node], terms: list[str]) -> tuple[list[Node], list[str]]:
    """Axes of size 1 whose label is longer in another operand are dropped: multiplying by them broadcasts."""
    named = [(label, n) for x, term in zip(nodes, terms, strict=True) for label, n in zip(term, x.shape, strict=True)]
    some, long = {label for label, n in named if n != 1}, {label for label, n in named if not stretches(n)}
    for k, (x, term) in enumerate(zip(nodes, terms, strict=True)):
        keep = [not (label in some if n == 1 else stretches(n) and label in long) for label, n in zip(term, x.shape, strict=True)]
        if not all(keep):
            nodes[k] = reshape_to(x, tuple([n for n, kept in zip(x.shape, keep, strict=True) if kept]))
            terms[k] = "".join([label for label, kept in zip(term, keep, strict=True) if kept])
    return nodes, terms


def _put_on_diagonals(y: Node, distinct: str, out: str) -> Node:
    """A label repeated in the output: y on the diagonal of its axes, zeros beside it."""
    labels = distinct
    for label in dict.fromkeys(out):
        for _ in range(out.count(label) - 1):
            i = labels.index(label)
            rest = [a for a in range(y.ndim) if a != i]
            n = y.shape[i]
            shape = (*[y.shape[a] for a in rest], n, n)
            y = make(UNDIAGONAL, (permute(y, [*rest, i]),), (shape, len(rest), len(rest) + 1, 0))
            labels = "".join([labels[a] for a in rest]) + label + label
    order, taken = [], set()
    for label in out:
        a = next(a for a, c in enumerate(labels) if c == label and a not in taken)
        taken.add(a)
        order.append(a)
    return permute(y, order)


def _check_options(optimize: Any, order: Any, casting: Any) -> None:
    """What NumPy takes, for all that order and optimize have no effect."""
    path = isinstance(optimize, (list, tuple)) and len(optimize) > 0 and optimize[0] in ("einsum_path", "greedy", "optimal")
    if not path and optimize not in (None, True, False, "greedy", "optimal"):
        raise NodeTypeError(f"optimize is True, False, 'greedy', 'optimal' or a path of numpy.einsum_path, not {optimize!r}")
    if order not in ("C", "F", "A", "K"):
        raise NodeTypeError(f"order is 'C', 'F', 'A' or 'K', not {order!r}")
    if casting not in ("no", "equiv", "safe", "same_kind", "unsafe"):
        raise NodeTypeError(f"casting is 'no', 'equiv', 'safe', 'same_kind' or 'unsafe', not {casting!r}")


@public
def einsum(*operands: Any, dtype: Any = None, out: Any = None, optimize: Any = True, order: str = "K",
           casting: str = "safe") -> Node:
    """numpy.einsum: sums of products over labelled axes, einsum("ij,jk->ik", x, y) or einsum(x, [0, 1], y, [1, 2], [0, 2]).

    Without "->" the output is the axes under an ellipsis, then the labels that occur once, in alphabetical order. A label
    repeated in an operand takes its diagonal, one repeated in the output writes a diagonal among zeros (NumPy refuses
    that). An axis of size 1 stretches. Dtypes: all, promoted; sums stay in that dtype (integers wrap). Linear in every operand.
    dtype: that of operands and result; casting: what operands may be cast to it, as in numpy.can_cast.
    The order of products is chosen for the sizes; optimize and order are accepted and without effect.
    Raises DTypeError where casting forbids dtype, ShapeError naming the label and both lengths, or the operand whose axes its subscripts do not fit.
    """
    if out is not None:
        raise NodeTypeError("a node cannot be written into an array (out=)")
    _check_options(optimize, order, casting)
    if not operands:
        raise NodeTypeError("needs an equation and operands, or operands each followed by a list of labels")
    if isinstance(operands[0], str):
        equation, given = operands[0], list(operands[1:])
    else:
        equation, given = _from_lists(operands)
    if not given:
        raise NodeTypeError("needs at least one operand")
    like = next((x.dtype for x in given if isinstance(x, Node)), None)
    nodes = [as_node(x, like) for x in given]
    common = nodes[0].dtype
    for x in nodes[1:]:
        common = PROMOTE[common, x.dtype]
    if dtype is not None:
        common = asked_dtype(dtype)
        for k, x in enumerate(nodes):
            if hasattr(given[k], "dtype") and not np.can_cast(x.dtype, common, casting):   # type: ignore[arg-type]
                raise DTypeError(f"operand {k} is {x.dtype}, which is not cast to dtype={common.name!r} by casting={casting!r}"
                                 f"\nhint: astype({common.name!r}) if that is meant")
    nodes = [cast(x, common) for x in nodes]
    terms, result = _spell_out(*_split(equation, len(nodes)), [x.shape for x in nodes])
    for k, x in enumerate(nodes):
        nodes[k], terms[k] = _take_diagonals(x, terms[k], k)
    nodes, terms = _drop_ones(nodes, terms)
    distinct = "".join(dict.fromkeys(result))
    same = len(nodes) == 1 and terms[0] == distinct
    y = nodes[0] if same else _contract(terms, nodes, distinct)
    return y if distinct == result else _put_on_diagonals(y, distinct, result)


__all__ = ["EINSUM", "contract", "einsum"]
