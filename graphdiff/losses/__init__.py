"""Losses and distances, as plain functions of nodes: stable, from logits where that matters.

Every loss takes `reduction`: "mean" (over all samples, the default), "sum" or "none" (one value a sample).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dims import unify
from ..dtypes import FLOAT16, FLOAT32, FLOAT64, is_number, outside
from ..errors import DTypeError, NodeTypeError, ShapeError
from ..graph.build import as_node, composed, node_list
from ..graph.node import Node
from ..ops import moments
from ..ops import reduction as reduce
from ..ops.binary import divide, equal, greater, less, logical_and, multiply, not_equal, subtract, where, xlogy, zmul
from ..ops.families import cast, floating, pair
from ..ops.gradient import stop_gradient
from ..ops.indexing import from_zero, take_along_axis
from ..ops.movement import expand_dims, squeeze, taken_for
from ..ops.scan import log_softmax
from ..ops.unary import abs as absolute
from ..ops.unary import isfinite, relu, softplus, square
from ..specs import format_shape, normalize_axis

__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "hinge", "kl", "l1", "l2", "lp", "mae", "mse", "nll", "total_variation",
           "zero_one"]


def _reduce(per_sample: Node, reduction: str) -> Node:
    if reduction == "mean":
        return moments.mean(per_sample)
    if reduction == "sum":
        return reduce.sum(per_sample)
    if reduction == "none":
        return per_sample
    raise ShapeError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")


def _same(a: Any, b: Any, names: tuple[str, str]) -> tuple[Node, Node]:
    """Two operands of one float dtype and one shape: losses do not broadcast, which hides mistakes."""
    a, b = pair(a, b)
    a, b = floating(a), floating(b)
    if a.ndim != b.ndim or any(unify(m, n) is None for m, n in zip(a.shape, b.shape, strict=True)):
        raise ShapeError(f"{names[0]} has shape {format_shape(a.shape)}, {names[1]} has {format_shape(b.shape)}")
    sizes = dict(enumerate([unify(m, n) for m, n in zip(a.shape, b.shape, strict=True)]))
    return (taken_for(a, sizes, f"{names[0]}: {{have}} elements along axis {{axis}}, {names[1]}: {{size}}"),
            taken_for(b, sizes, f"{names[0]}: {{size}} elements along axis {{axis}}, {names[1]}: {{have}}"))


@composed
def mse(prediction: Any, target: Any, *, reduction: str = "mean") -> Node:
    """Mean squared error, (prediction - target)^2. Both of one shape (ShapeError). "none": every element."""
    p, t = _same(prediction, target, ("the prediction", "the target"))
    if p.dtype is FLOAT16 and reduction == "mean":          # a square may be beyond float16 where the mean is not
        return cast(moments.mean(square(cast(p, FLOAT32) - cast(t, FLOAT32))), FLOAT16)
    return _reduce(square(p - t), reduction)


@composed
def mae(prediction: Any, target: Any, *, reduction: str = "mean") -> Node:
    """Mean absolute error, |prediction - target|; derivative 0 where they are equal. Both of one shape (ShapeError)."""
    p, t = _same(prediction, target, ("the prediction", "the target"))
    return _reduce(absolute(p - t), reduction)


@composed
def lp(p: Any, q: Any, order: Any = 2.0, *, axis: int = -1, reduction: str = "mean") -> Node:
    """The L^order distance (sum |p - q|^order)^(1/order) along an axis; order at least 1, or inf. Derivative 0 where p = q.

    Shapes: p and q alike, [.., n] -> one distance a row. Raises ShapeError for other orders or shapes.
    """
    p, q = _same(p, q, ("p", "q"))
    if not is_number(order) or not order >= 1:
        raise outside(order, f"order is a number, at least 1, not {order!r}")
    d = p - q if order == 2 else absolute(p - q)         # a square has no kink where one difference is 0
    if order == float("inf"):
        return _reduce(moments.norm(d, order, axis), reduction)
    if order == 1:
        return _reduce(reduce.sum(d, axis=axis), reduction)
    # In units of the largest difference, where powers neither overflow nor vanish; the distance does not depend on the unit.
    top = stop_gradient(moments.norm(d, float("inf"), axis, True))
    unit = where(logical_and(greater(top, 0.0), isfinite(top)), top, 1.0)
    return _reduce(squeeze(unit, axis) * moments.norm(divide(d, unit), order, axis), reduction)


@composed
def total_variation(p: Any, q: Any, *, axis: int = -1, reduction: str = "mean") -> Node:
    """Total variation distance of discrete distributions: half of sum |p - q| along an axis."""
    p, q = _same(p, q, ("p", "q"))
    return _reduce(multiply(0.5, reduce.sum(absolute(p - q), axis=axis)), reduction)


@composed
def kl(p: Any, q: Any, *, axis: int = -1, reduction: str = "mean") -> Node:
    """Kullback-Leibler divergence sum p log(p / q) along an axis: 0 log 0 = 0, and +inf where q = 0 < p.

    Shapes: p and q alike, probabilities along the axis. Source: Kullback, Leibler 1951.
    """
    p, q = _same(p, q, ("p", "q"))
    empty = equal(p, 0.0)
    terms = where(empty, 0.0, subtract(xlogy(p, where(empty, 1.0, p)), xlogy(p, where(empty, 1.0, q))))
    return _reduce(reduce.sum(terms, axis=axis), reduction)


def _labels(scores: Node, labels: Node, axis: int) -> Node:
    """Integer labels as indices that gather refuses when they are out of range, negative ones too."""
    expected = (*scores.shape[:axis], *scores.shape[axis + 1:])
    if labels.ndim != len(expected) or any(unify(m, n) is None for m, n in zip(labels.shape, expected, strict=True)):
        raise ShapeError(f"labels have shape {format_shape(labels.shape)}, {format_shape(expected)} is needed beside scores of "
                         f"{format_shape(scores.shape)}")
    return from_zero(taken_for(labels, dict(enumerate(expected)), "labels have {have} elements along axis {axis}, the scores have {size}"))


def _picked(log_probabilities: Node, labels: Node, axis: int) -> Node:
    return squeeze(take_along_axis(log_probabilities, expand_dims(_labels(log_probabilities, labels, axis), axis), axis), axis)


@composed
def nll(log_probabilities: Any, labels: Any, *, axis: int = -1, reduction: str = "mean") -> Node:
    """Negative log likelihood: minus the log probability of each label.

    Shapes: log_probabilities [.., classes], labels [..] integers from 0. Raises ShapeError, DTypeError (labels not integers);
    when it runs, OutOfBounds for a label that is no class.
    """
    x, t = floating(log_probabilities), as_node(labels)
    if t.dtype.kind not in "iu":
        raise DTypeError(f"labels are {t.dtype}, integers are needed")
    return _reduce(-_picked(x, t, normalize_axis(axis, x.ndim)), reduction)


@composed
def cross_entropy(logits: Any, target: Any, *, axis: int = -1, label_smoothing: Any = 0.0, reduction: str = "mean") -> Node:
    """Cross entropy of softmax(logits): -log_softmax(logits)[label], or -sum target log_softmax(logits) for probabilities.

    Shapes: logits [.., classes]; target either integer labels [..] from 0, or probabilities of the logits' shape.
    label_smoothing s: the target becomes (1 - s) target + s / classes. Raises ShapeError, DTypeError; when it runs,
    OutOfBounds for a label that is no class. Gradient: softmax - target.
    """
    z, t = floating(logits), as_node(target)
    axis = normalize_axis(axis, z.ndim)
    if not is_number(label_smoothing) or not 0 <= label_smoothing <= 1:
        raise outside(label_smoothing, f"label_smoothing is a number from 0 to 1, not {label_smoothing!r}")
    logs = log_softmax(z, axis=axis)
    if t.dtype.kind in "iu":
        per_sample = -_picked(logs, t, axis)
    elif t.dtype.kind == "f":
        if t.ndim == z.ndim - 1:
            raise DTypeError(f"the target is {t.spec}, without an axis of classes: labels are integers\nhint: target.astype('int64')")
        z, t = _same(z, t, ("the logits", "the target"))
        t = cast(t, logs.dtype)
        impossible = logical_and(equal(t, 0.0), equal(logs, -float("inf")))      # 0 log 0 = 0: a class ruled out by both
        per_sample = -reduce.sum(multiply(t, where(impossible, 0.0, logs)), axis=axis)
    else:
        raise DTypeError(f"the target is {t.dtype}: integer labels or float probabilities are needed")
    if label_smoothing:
        per_sample = (1.0 - label_smoothing) * per_sample - label_smoothing * moments.mean(logs, axis=axis)
    return _reduce(per_sample, reduction)


@composed
def binary_cross_entropy_with_logits(logits: Any, target: Any, *, reduction: str = "mean") -> Node:
    """softplus(z) - z target, which is -target log s(z) - (1 - target) log s(-z) without overflow. Gradient: s(z) - target.

    Infinite logits are certain: 0 where the target says the same, else infinite. Shapes: alike (ShapeError); target:
    probabilities, integers 0 and 1, or bool.
    """
    t = as_node(target)
    z = floating(logits)
    z, t = _same(z, cast(t, z.dtype) if t.dtype.kind != "f" else t, ("the logits", "the target"))
    # With a = |z|: softplus(-a) + a (1 - target, or target for z < 0), a product with a strong zero. The sign is no function
    # of z here, so the derivative at 0 is that of either side; and nothing cancels where z and the target agree.
    negative = less(z, 0.0)
    a = where(negative, -z, z)
    return _reduce(softplus(-a) + zmul(where(negative, t, 1.0 - t), a), reduction)


@composed
def hinge(scores: Any, target: Any, *, margin: Any = 1.0, axis: int = -1, reduction: str = "mean") -> Node:
    """Hinge loss. Target -1 or 1 of the scores' shape: max(0, margin - target score). Integer labels [..] beside scores
    [.., classes]: max(0, margin + best other score - score of the label).

    Derivative at the corner: 0 (relu's). Source: Crammer, Singer 2001 for several classes.
    """
    s, t = floating(scores), as_node(target)
    if not isinstance(margin, Node) and not (is_number(margin) and 0 <= margin < float("inf")):
        raise outside(margin, f"margin is a finite number of at least 0, or a node, not {margin!r}")
    if t.ndim == s.ndim:
        if t.op.name == "constant" and not (np.abs(t._attrs[0]) == 1).all():
            raise ShapeError("the target of hinge is -1 or 1 everywhere; labels 0 and 1 are 2 t - 1")
        s, t = _same(s, cast(t, s.dtype), ("the scores", "the target"))
        return _reduce(relu(margin - t * s), reduction)
    if t.dtype.kind not in "iu":
        raise DTypeError(f"labels are {t.dtype}, integers are needed")
    axis = normalize_axis(axis, s.ndim)
    from ..ops.indexing import one_hot
    from ..ops.movement import moveaxis
    mine = _picked(s, t, axis)
    hot = moveaxis(one_hot(t, s.shape[axis], dtype=s.dtype), -1, axis)
    others = reduce.max(where(greater(hot, 0.0), -float("inf"), s), axis=axis)
    return _reduce(relu(margin + others - mine), reduction)


@composed
def zero_one(scores: Any, target: Any, *, axis: int = -1, reduction: str = "mean") -> Node:
    """The share of wrong predictions: 1 where argmax(scores) differs from the label. It has no derivative.

    Shapes: scores [.., classes] and integer labels [..]; or predictions and labels of one shape, both integers. A label that
    is no class counts as a wrong prediction.
    """
    s, t = as_node(scores), as_node(target)
    if s.dtype.kind == "f":
        s = reduce.argmax(s, axis=axis)
    if s.ndim != t.ndim or any(unify(m, n) is None for m, n in zip(s.shape, t.shape, strict=True)):
        raise ShapeError(f"predictions have shape {format_shape(s.shape)}, labels {format_shape(t.shape)}")
    return _reduce(cast(not_equal(s, t), FLOAT64), reduction)


def _total(parameters: Any, what: str, f: Callable[[Node], Node]) -> Node:
    """Sum of f over every entry of every parameter."""
    nodes = node_list(parameters, "parameters")
    if not nodes:
        raise NodeTypeError(f"{what} takes nodes: a parameter or a list of at least one")
    first, *rest = (reduce.sum(f(p)) for p in nodes)
    return sum(rest, start=first)


@composed
def l1(parameters: Any) -> Node:
    """L1 regulariser: the sum of |w| over a parameter or a list of them; derivative 0 at 0."""
    return _total(parameters, "l1", absolute)


@composed
def l2(parameters: Any) -> Node:
    """L2 regulariser: the sum of w^2 over a parameter or a list of them."""
    return _total(parameters, "l2", square)
