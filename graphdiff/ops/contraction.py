"""How an einsum is lowered: in which order its operands are multiplied, how they are laid out for that, and by which kernels.

A pairwise step is a batch of products of matrices, as the operands lie if that is good, a product of elements, or a sum. What is read again
and again is laid out first, so that neighbours in memory are needed together.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import FLOAT16, INT64
from ..errors import ShapeError
from ..graph.node import Node
from ..specs import nelements

_NO_LIMIT = 2**62                                            # elements of an intermediate result: never in the way
# A matrix of so many bytes is not copied for the sum of its products with one that lies turned (1000 x 1000 float64: 2.4 ms, so 1.9; 4 MB take
# the same, and what stays in a cache is copied sooner); sides that a sum reads in tiles (lower/fuse.py).
_FAR_NBYTES, _TILED = 4 << 20, range(16, 12289)


@lru_cache(maxsize=1024)
def terms_of(equation: str) -> tuple[tuple[str, ...], str]:
    left, out = equation.split("->")
    return tuple(left.split(",")), out


def sizes_of(terms: Sequence[str], shapes: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Label -> size. ShapeError names a label that has two."""
    sizes: dict[str, Any] = {}
    first: dict[str, int] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for label, n in zip(term, shape, strict=True):
            if label not in sizes:
                sizes[label], first[label] = n, k
                continue
            both = unify(sizes[label], n)
            if both is None:
                raise ShapeError(f"label {label} has length {sizes[label]} in operand {first[label]} and {n} in operand {k}")
            sizes[label] = both
    return sizes


def _sweep(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int] | None:
    """Of three operands, an array and a vector along its last axis, which is summed, if the other one is a vector along another axis
    that is summed: one sweep over the array as it lies, and little is left for the other. The outer product of both, which
    costs about as much (unless that axis is short), leaves axes that do not merge."""
    terms, out = terms_of(equation)
    whole = max(range(3), key=lambda k: len(terms[k]))
    term = terms[whole]
    others = [k for k in range(3) if k != whole]
    if len(term) < 3 or any(len(terms[k]) != 1 or terms[k] not in term or terms[k] in out for k in others) or shapes[whole][-1] < 8:
        return None
    last = [k for k in others if terms[k] == term[-1]]
    return (min(whole, last[0]), max(whole, last[0])) if len(last) == 1 else None


def _path(equation: str, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Pairs of positions to contract, in numpy.einsum_path's way: the result of a step goes to the end of the list."""
    n = len(shapes)
    if n <= 2:
        return [(0, 1)] * (n - 1)
    along = _sweep(equation, shapes) if n == 3 else None
    if along is not None:
        return [along, (0, 1)]
    dummies = [np.broadcast_to(np.empty(()), shape) for shape in shapes]
    steps = np.einsum_path(equation, *dummies, optimize=("optimal" if n <= 5 else "greedy", _NO_LIMIT))[0][1:]
    pairs = []
    names = list(range(n))              # operands and results under fixed names, in the order of the list
    for step in steps:
        first, *more = [names[i] for i in step]
        for other in more:              # three and more at once: one after the other
            i, j = sorted((names.index(first), names.index(other)))
            pairs.append((i, j))
            del names[j], names[i]
            first = n = n + 1
            names.append(first)
    return pairs


def cost(node: Node) -> Any:
    """Two operations for every product of a pairwise step; with named sizes the bound of one product over all labels."""
    terms, out = terms_of(node._attrs[0])
    sizes = sizes_of(terms, [x.shape for x in node.inputs])

    def volume(labels: Any) -> Any:
        total: Any = 1
        for label in labels:
            total = total * sizes[label]
        return total
    if not all(isinstance(n, int) for n in sizes.values()):
        return len(terms) * volume(sizes)
    total, rest = 0, list(terms)
    for i, j in _path(node._attrs[0], [x.shape for x in node.inputs]):
        b, a = rest.pop(j), rest.pop(i)
        both = dict.fromkeys(a + b)
        keep = set(out).union(*rest)
        new = "".join([label for label in both if label in keep])
        total += volume(both) * (2 if len(new) < len(both) else 1)
        rest.append(new)
    return total + (volume(rest[0]) if len(rest[0]) > len(out) else 0)


class _Part:
    """A partial result: a view and the label of each of its axes."""

    __slots__ = ("labels", "view")

    def __init__(self, view: Any, labels: str) -> None:
        self.view, self.labels = view, labels

    def order(self, labels: str) -> Any:
        """The view with its axes as in `labels`."""
        return self.view.transpose([self.labels.index(label) for label in labels])

    def along(self, ctx: Any, labels: str) -> Any:
        """The same with an axis of size 1 for a label it does not have, ready to broadcast; copied where an elementwise kernel would
        be slow: of many axes, or where it is read again and again across the lines it lies in."""
        mine = "".join([label for label in labels if label in self.labels])
        view = self.order(mine)
        have = ctx.copy(view) if len(mine) < len(labels) and _innermost(self) not in mine[-1:] else ctx.near(view)
        return have.reshape([self.size(label) if label in self.labels else 1 for label in labels])

    def size(self, label: str) -> int:
        return self.view.shape[self.labels.index(label)]

    def merges(self, labels: str) -> bool:
        """Can these axes be one axis, in this order, without a copy?"""
        v = self.order(labels)
        return v.reshape([nelements(v.shape)]) is not None


def lower(ctx: Any, node: Node) -> Any:
    terms, out = terms_of(node._attrs[0])
    parts = [_Part(ctx.view(x), term) for x, term in zip(node.inputs, terms, strict=True)]
    path = _path(node._attrs[0], [x.shape for x in node.inputs])
    for k, (i, j) in enumerate(path):
        b, a = parts.pop(j), parts.pop(i)
        keep = set(out).union(*[p.labels for p in parts])
        both = "".join(dict.fromkeys(a.labels + b.labels))
        want = out if not parts else "".join([label for label in both if label in keep])
        partner = _partner(path[k + 1:], parts)
        if partner is not None and set(want) == set(both):
            want = _ready(want, partner.labels, set(out).union(*[p.labels for p in parts if p is not partner]))
        parts.append(_pair(ctx, a, b, want))
    return _sum_to(ctx, parts[0], out).order(out)


def _partner(path: Sequence[tuple[int, int]], parts: Sequence[_Part]) -> _Part | None:
    """What the result that goes to the end of `parts` is multiplied with, unless that is a result as well."""
    there: list[_Part | None] = [*parts, None]
    at = len(parts)                     # of that result
    for i, j in path:
        if at in (i, j):
            return there[i if at == j else j]
        del there[j], there[i]
        there.append(None)
        at -= 2
    return None


def _ready(labels: str, partner: str, keep: set[str]) -> str:
    """An order of labels that a product with `partner` reads as matrices, one behind the other."""
    summed = [label for label in labels if label in partner and label not in keep]
    alone = [label for label in labels if label not in partner]
    if not summed or not alone:
        return labels
    return "".join([label for label in labels if label in partner and label in keep] + alone + summed)


def _sum_to(ctx: Any, p: _Part, keep: str) -> _Part:
    """Sum over the labels that are not in `keep`. Small integers and bools are summed in int64, then wrapped back."""
    dtype = p.view.dtype
    if dtype.kind != "f" and not set(p.labels) <= set(keep):
        p = _Part(ctx.cast(p.view, INT64), p.labels)
    while True:
        lying = _lying(p)
        gone = [label for label in lying if label not in keep]
        if not gone:
            return _Part(ctx.cast(p.view, dtype), p.labels)
        # Those that lie apart are summed up one run after the other, the inner one first, so that memory is read in order. Results are
        # small next to that. (A sum of sums of float16 would be rounded twice.)
        k = len(lying)
        while k > 0 and dtype is not FLOAT16 and lying[k - 1] in keep:
            k -= 1
        run = k
        while run > 0 and lying[run - 1] not in keep:
            run -= 1
        gone = list(lying[run:k]) or gone
        left = [label for label in lying if label not in gone]
        view = p.order("".join(left + gone))
        p = _Part(ctx.emit("sum", ctx.new(view.shape[:len(left)], view.dtype), [view], [len(gone)]), "".join(left))


def _pair(ctx: Any, a: _Part, b: _Part, want: str) -> _Part:
    """The product of two parts, summed over the labels that are not wanted; axes in the order of `want` where possible."""
    a, b = _sum_to(ctx, a, want + b.labels), _sum_to(ctx, b, want + a.labels)
    summed = "".join([label for label in a.labels if label in b.labels and label not in want])
    if not summed:
        return _Part(ctx.map("multiply", a.along(ctx, want), b.along(ctx, want)), want)
    across = _across(a, b, want)
    if across is not None:
        return _sum_to(ctx, _Part(ctx.map("multiply", a.along(ctx, across), b.along(ctx, across)), across), want)
    a, b = _in_matrices(ctx, a, b, want), _in_matrices(ctx, b, a, want)
    if want and want[-1] in a.labels and want[-1] not in b.labels:
        a, b = b, a                     # the last axis of the result belongs to the columns: rows are written in one piece
    batch = "".join([label for label in want if label in a.labels and label in b.labels])
    rows = "".join([label for label in want if label in a.labels and label not in b.labels])
    columns = "".join([label for label in want if label in b.labels and label not in a.labels])
    summed = _best(summed, a, b)
    each, columns = _before(b, rows, summed, columns)
    shared = len(batch)
    batch += each
    sizes = {label: p.size(label) for p in (a, b) for label in p.labels}

    def shape(*groups: str) -> list[Any]:
        return [sizes[label] for label in batch] + [nelements(tuple([sizes[label] for label in group])) for group in groups]

    left = ctx.reshape(a.order(batch[:shared] + rows + summed),
                       [n if k < shared or k >= len(batch) else 1 for k, n in enumerate(shape(rows, summed))]).broadcast(shape(rows, summed))
    right = ctx.reshape(b.order(batch + summed + columns), shape(summed, columns))
    out = _Part(ctx.new([sizes[label] for label in want], left.dtype), want)
    target = out.order(batch + rows + columns).reshape(shape(rows, columns))
    if target is None:                  # rows and columns are interleaved in the result: it is a permuted view
        labels = batch + rows + columns
        out = _Part(ctx.new([sizes[label] for label in labels], left.dtype), labels)
        target = out.view.reshape(shape(rows, columns))
    ctx.emit("matmul", target, [left, right])
    return out


def _innermost(p: _Part) -> str:
    """The label whose elements lie closest."""
    steps = [(abs(s), label) for s, n, label in zip(p.view.strides, p.view.shape, p.labels, strict=True) if n > 1 and s]
    return min(steps)[1] if steps else ""


def _across(a: _Part, b: _Part, want: str) -> str | None:
    """Where one part has all labels and neighbours in memory belong to different sums: its labels in the order they lie. Products
    of single elements, summed up in that order, read every line once; as matrices they would be read a line for every element. Or where all
    is summed up of two large matrices, one of which would be copied."""
    if a.view.dtype is FLOAT16:                             # its products would be rounded
        return None
    if not want and a.view.dtype.kind == "f" and len(a.labels) == 2 and nelements(a.view.shape) * a.view.dtype.itemsize > _FAR_NBYTES \
            and _lying(a) == _lying(b)[::-1] and all(n in _TILED for n in a.view.shape):
        return _lying(a)
    if set(a.labels) < set(b.labels) or (set(a.labels) == set(b.labels) and b.view.contiguous):
        a, b = b, a
    if not set(b.labels) <= set(a.labels):
        return None
    inner = _innermost(a)
    if not inner or inner not in want or inner not in b.labels:
        return None
    return _lying(a)


def _lying(p: _Part) -> str:
    steps = sorted(zip([-abs(s) for s in p.view.strides], range(len(p.labels)), p.labels, strict=True))
    return "".join([label for _, _, label in steps])


def _in_matrices(ctx: Any, p: _Part, other: _Part, want: str) -> _Part:
    """p, or a copy of it, so that neighbours in memory belong to the same matrix and not to different ones of a batch."""
    inner = _innermost(p)
    if inner not in want or inner not in other.labels:
        return p
    batch = [label for label in p.labels if label in want and label in other.labels]
    order = "".join(batch + [label for label in p.labels if label not in batch])
    return _Part(ctx.copy(p.order(order)), order)


def _before(b: _Part, rows: str, summed: str, columns: str) -> tuple[str, str]:
    """Of a vector by the middle of an array, the columns before that: product after product as the array lies, instead of columns
    that do not merge. And those that are left."""
    before = "" if rows or b.labels[-1] not in columns else b.labels[:min(b.labels.index(label) for label in summed)]
    each = "".join([label for label in columns if label in before])
    return each, "".join([label for label in columns if label not in each])


def _best(summed: str, a: _Part, b: _Part) -> str:
    """The order of the summed labels that merges without a copy in most operands."""
    orders = ["".join([label for label in p.labels if label in summed]) for p in (a, b)]
    return max(orders, key=lambda order: a.merges(order) + b.merges(order))
