"""Ops that are not elementwise: values against the NumPy interpreter, both modes and two orders against its complex step.

A table of small instances; the last test asks whether every op of the registry stands in it.
"""
import numpy as np
import pytest
from counting import checked
from registry_cases import check_derivatives, check_value, draw, op_names

import graphdiff as gd
from graphdiff.graph.build import make
from graphdiff.graph.opdef import REGISTRY
from graphdiff.ops import indexing, movement, reduction, runs, scan, sequence, writing

CASES = []       # (id, build, shapes of the float64 operands)
SEEN = set()


def case(name, build, *shapes):
    CASES.append(pytest.param(build, shapes, id=name))


# -- reductions: every axis tuple, kept and dropped -------------------------------------------------------------------------
REDUCTIONS = ("sum", "prod", "max", "min", "mean", "var", "std", "logsumexp", "ptp", "norm")
for _name in REDUCTIONS:
    for _axis in (None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)):
        for _keep in (False, True):
            if _name == "norm" and isinstance(_axis, tuple) and len(_axis) != 2:
                continue
            if _name == "norm" and _axis is None and _keep:
                continue
            case(f"{_name}-{_axis}-{_keep}", lambda x, n=_name, a=_axis, k=_keep: getattr(gd, n)(x, axis=a, keepdims=k), (2, 3, 4))
    case(f"{_name}-vector", lambda x, n=_name: getattr(gd, n)(x), (7,))
    case(f"{_name}-transposed", lambda x, n=_name: getattr(gd, n)(x.T, axis=0), (3, 5))
    case(f"{_name}-strided", lambda x, n=_name: getattr(gd, n)(x[::-2], axis=1), (5, 3))
    case(f"{_name}-one", lambda x, n=_name: getattr(gd, n)(x, axis=0), (1, 2))
for _name in ("sum", "prod", "mean", "max", "min", "logsumexp"):
    case(f"{_name}-scalar", lambda x, n=_name: getattr(gd, n)(x), ())
    case(f"{_name}-no axes", lambda x, n=_name: getattr(gd, n)(x, axis=()), (2, 2))
for _name in ("sum", "prod"):
    case(f"{_name}-nothing", lambda x, n=_name: getattr(gd, n)(x, axis=1), (2, 0))
    case(f"{_name}-of empty rows", lambda x, n=_name: getattr(gd, n)(x, axis=1), (0, 2))
for _name in ("argmax", "argmin", "any", "all", "count_nonzero"):
    for _axis in (None, 0, -1):
        case(f"{_name}-{_axis}", lambda x, n=_name, a=_axis: getattr(gd, n)(x, axis=a), (3, 4))
for _axes in ((0, 1), (0,), (1,), ()):
    case(f"exact_sum-{_axes}", lambda x, a=_axes: make(reduction.EXACT_SUM, ((8.0 * x).astype("int32"),), (a, False)).astype("int64"), (3, 4))
    case(f"wide_sum-{_axes}", lambda x, a=_axes: make(reduction.WIDE_SUM, ((8.0 * x).astype("int32"),), (a, False)), (3, 4))
case("average", lambda x, w: gd.average(x, axis=0, weights=w * w + 1.0), (3, 2), (3, 2))
case("var-ddof", lambda x: gd.var(x, axis=0, ddof=1), (4, 2))
case("median", lambda x: gd.median(x, axis=0), (5, 2))
case("ranked-two", lambda x: make(scan.RANKED, (x,), (0, 2, 3)), (5, 2))
case("ranked-one", lambda x: make(scan.RANKED, (x,), (1, 1, 1)), (2, 4))
case("median-even", lambda x: gd.median(x), (2, 3))

# -- movement ---------------------------------------------------------------------------------------------------------------
case("reshape", lambda x: gd.reshape(x, (3, -1)), (2, 6))
case("reshape-of transposed", lambda x: gd.reshape(x.T, (4, 3)), (3, 4))
case("reshape-scalar", lambda x: gd.reshape(x, ()), (1, 1))
case("transpose", lambda x: gd.transpose(x, (2, 0, 1)), (2, 3, 4))
case("swapaxes", lambda x: gd.swapaxes(x, 0, 2), (2, 3, 4))
case("moveaxis", lambda x: gd.moveaxis(x, (0, 1), (-1, 0)), (2, 3, 4))
case("broadcast_to", lambda x: gd.broadcast_to(x, (4, 2, 3)), (2, 1))
case("broadcast_to-scalar", lambda x: gd.broadcast_to(x, (2, 3)), ())
case("taken_for", lambda x: make(movement.TAKEN_FOR, (x,), (((0, 2),), "")) * x, (2, 3))
case("slice", lambda x: x[1:4:2, ::-1], (5, 3))
case("slice-none-ellipsis", lambda x: x[None, ..., 1, ::2], (2, 3, 4))
case("slice-empty", lambda x: x[3:3], (5, 2))
case("slice-of slice", lambda x: x[::-1][1:][::2], (7,))
case("place", lambda x: movement.place(x, (7, 4), (1, 3), (2, -1)), (3, 2))
case("run of positions", lambda x: x[:, [3, 1]] * x[:, np.array([-1])] + gd.take(x, [0, 2], axis=1), (3, 4))
case("run of small positions", lambda x: x[np.array([3, 1, 2], "uint8")] + x[np.array([1, 2, 3], "int8")] + x[np.array([299, 298, 297], "int16")][::-1],
     (300,))
case("slice_set", lambda x, y: writing.slice_set(x, y, (1, 3), (2, -1)), (7, 4), (3, 2))
case("slice_set-whole", lambda x, y: writing.slice_set(x, y, (0, 0), (1, 1)), (2, 3), (2, 3))
case("slice_set-nothing", lambda x, y: writing.slice_set(x, y, (3, 0), (1, 1)), (5, 2), (0, 2))
case("slice_add", lambda x, y: writing.slice_add(x, y, (1, 3), (2, -1)), (7, 4), (3, 2))
case("slice_add-whole", lambda x, y: writing.slice_add(x, y, (0,), (1,)), (4,), (4,))
case("place-ones", lambda x: movement.place(x, (5,), (1,), (1,), 1.0), (3,))
case("concatenate", lambda x, y: gd.concatenate([x, y, x], axis=1), (2, 3), (2, 1))
case("concatenate-flat", lambda x, y: gd.concatenate([x, y], axis=None), (2, 3), (2,))
case("concatenate-empty", lambda x, y: gd.concatenate([x, y]), (0, 3), (2, 3))
case("stack", lambda x, y: gd.stack([x, y], axis=-1), (2, 3), (2, 3))
case("hstack-vstack", lambda x, y: gd.vstack([gd.hstack([x, y]), gd.hstack([y, x])]), (2, 3), (2, 3))
case("dstack", lambda x, y: gd.dstack([x, y]), (2, 3), (2, 3))
case("column_stack", lambda x, y: gd.column_stack([x, y]), (3,), (3, 2))
case("split", lambda x: gd.split(x, 3)[1] * gd.array_split(x, 4)[0][:2], (6, 2))
case("flip", lambda x: gd.flip(x, 0) * gd.fliplr(x), (2, 3))
case("roll", lambda x: gd.roll(x, 2, axis=1) + gd.roll(x, -1), (2, 5))
case("roll-two", lambda x: gd.roll(x, (1, -2), axis=(0, 1)), (3, 4))
case("roll-three", lambda x: gd.roll(x, (1, -2, 4), axis=(2, 0, 1)), (3, 2, 4))
case("runs", lambda x: runs.take_runs(x, (((1, 1, 2), (2, -1, 3)), ((0, 0, 3), (1, 1, 1)))), (3, 2))
case("runs-of nothing", lambda x: runs.take_runs(x, (((0, 1, 0), (1, 0, 0)), ((0, 1, 2), (1, -1, 2)))), (3, 2))
case("tile", lambda x: gd.tile(x, (2, 1, 3)), (2, 2))
case("tile-often", lambda x: gd.tile(x, (2, 14, 1)), (2, 2, 1))
case("repeat", lambda x: gd.repeat(x, 3, axis=0), (2, 2))
case("repeat-each", lambda x: gd.repeat(x, [1, 0, 2], axis=1), (2, 3))
case("pad", lambda x: gd.pad(x, ((1, 2), (0, 1)), constant_values=0.5), (2, 3))
for _mode in ("edge", "reflect", "symmetric", "wrap"):
    case(f"pad-{_mode}", lambda x, m=_mode: gd.pad(x, ((1, 2), (2, 1)), mode=m), (4, 3))
    case(f"pad-{_mode} by more than there is", lambda x, m=_mode: gd.pad(x, ((3, 5), (0, 0), (1, 0)), mode=m), (2, 1, 2))
    case(f"pad-{_mode} of one", lambda x, m=_mode: gd.pad(x, 40, mode=m), (1, 2))
case("diagonal", lambda x: gd.diagonal(x, 1, 0, 2), (3, 2, 4))
case("diag", lambda x: gd.diag(x, -1), (3,))
case("trace", lambda x: gd.trace_of(x), (3, 4))
case("tril-triu", lambda x: gd.tril(x, -1) + 2.0 * gd.triu(x, 1), (4, 3))
case("squeeze-expand", lambda x: gd.expand_dims(gd.squeeze(x, 1), (0, 3)), (2, 1, 3))
case("broadcast_arrays", lambda x, y: gd.sum(gd.stack(gd.broadcast_arrays(x, y)), axis=0), (3, 1), (2,))
case("stop_gradient", lambda x: x * gd.stop_gradient(x * x), (3,))

# -- indexing ---------------------------------------------------------------------------------------------------------------
case("take", lambda x: gd.take(x, np.array([[2, 0], [-1, 2]]), axis=0), (3, 2))
case("take-axis 1", lambda x: gd.take(x, np.array([1, 1, 0]), axis=1), (2, 3, 2))
case("take-flat", lambda x: gd.take(x, np.array([5, 0])), (2, 3))
case("take_along_axis", lambda x: gd.take_along_axis(x, np.array([[1, 0], [2, 2]]), axis=1), (2, 3))
case("index-array", lambda x: x[np.array([0, 2, 0])], (3, 2))
case("index-two arrays", lambda x: x[np.array([0, 2, 0]), np.array([1, 1, 1])], (3, 2))
case("index-array and slice", lambda x: x[::2, np.array([1, 0]), None], (4, 3))
case("index-separated arrays", lambda x: x[np.array([0, 1]), :, np.array([2, 0])], (2, 3, 4))
case("index-outer", lambda x: x[np.ix_([0, 2], [1, 0])], (3, 2))
case("index-bool", lambda x: x[np.array([True, False, True])], (3, 2))
case("index-bool matrix", lambda x: x[np.array([[True, False], [False, True], [True, True]])], (3, 2))
case("set", lambda x, v: x.at[1:3].set(v), (4, 2), (2, 2))
case("set-broadcast", lambda x, v: x.at[:, 0].set(v), (4, 2), ())
case("set-array", lambda x, v: x.at[np.array([2, 0, 3])].set(v), (4, 2), (3, 2))
case("set-run", lambda x, v: x.at[np.array([2, 0])].set(v), (4, 2), (2, 2))
case("add", lambda x, v: x.at[np.array([2, 0, 2])].add(v), (4, 2), (3, 2))
case("add-slice", lambda x, v: x.at[::2].add(v), (4, 2), (2, 2))
case("index-computed", lambda x: x[gd.argsort(x[:2, 0]), gd.argmax(x, axis=1)[:2]], (4, 3))
case("set-node index", lambda x, v: x.at[gd.constant(np.array([2, 0])), gd.constant(np.array([1, 1]))].add(v), (4, 2), (2,))
case("set-few", lambda x, v: x.at[np.array([1, 0]), :, np.array([30, 2])].set(v), (2, 2, 41), (2, 2))
case("set-few twice", lambda x, v: x.at[:, gd.constant(np.array([1, 1])), :, np.array([30, 30])].set(v), (2, 2, 1, 41), (1,))
case("add-few twice", lambda x, v: x.at[np.array([[1], [1]]), :, gd.constant(np.array([30]))].add(v), (2, 2, 41), (2, 1, 2))
case("set-bool", lambda x, v: x.at[np.array([True, False, True])].set(v), (3,), ())
case("scatter_along", lambda x, v: indexing.scatter_along(x, gd.constant(np.array([[1, 1], [2, 0]])), v, 1), (2, 3), (2, 2))
case("segment_sum", lambda x: gd.segment_sum(x, np.array([1, 0, 1, 3]), 4), (4, 2))
case("segment_mean", lambda x: gd.segment_mean(x, np.array([1, 0, 1, 3]), 4)[np.array([0, 1, 3])], (4, 2))
case("segment_max", lambda x: gd.segment_max(x, np.array([1, 0, 1, 2]), 3), (4, 2))
case("one_hot", lambda x: gd.one_hot(np.array([1, 0, 3]), 4) @ x, (4, 2))

# -- contractions -----------------------------------------------------------------------------------------------------------
for _a, _b in [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 2)), ((5, 2, 3), (3, 2)), ((2, 3), (5, 3, 2)),
               ((2, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 3)), ((1, 3), (3, 1)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((17, 9), (9, 33))]:
    case(f"matmul-{_a}-{_b}", gd.matmul, _a, _b)
case("matmul-transposed", lambda x, y: x.T @ y.T, (3, 2), (4, 3))
case("dot", gd.dot, (2, 3, 4), (4, 2))
case("inner-outer", lambda x, y: gd.inner(x, y) * gd.outer(x, y), (3,), (3,))
case("tensordot", lambda x, y: gd.tensordot(x, y, axes=((0, 2), (1, 0))), (2, 3, 4), (4, 2))
case("kron", gd.kron, (2, 2), (1, 3))
case("vdot", gd.vdot, (2, 3), (2, 3))
for _equation, *_shapes in [("ik,kj->ij", (2, 3), (3, 4)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("i->ii", (3,)), ("ij->ji", (2, 3)), ("ij->", (2, 3)),
                            ("i,j->ij", (2,), (3,)), ("ij,j", (2, 3), (3,)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("ikl,klj->ij", (2, 3, 2), (3, 2, 2)),
                            ("i,j,k->ijk", (2,), (3,), (2,)), ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)), ("...ij,...jk->...ik", (2, 2, 3), (3, 2)),
                            ("ij,ij->j", (2, 3), (2, 3)), ("iij,jk->ki", (2, 2, 3), (3, 2)), ("i,i,i->i", (3,), (3,), (3,)), ("ij,kl->", (2, 2), (2, 3)),
                            ("abc,cd,be->ade", (2, 2, 3), (3, 2), (2, 2)), (",i->i", (), (3,)), ("ij->i", (2, 0))]:
    case(f"einsum-{_equation}", lambda *xs, e=_equation: gd.einsum(e, *xs), *_shapes)

# -- softmax family, scans, order -------------------------------------------------------------------------------------------
for _axis in (-1, 0, 1):
    case(f"softmax-{_axis}", lambda x, a=_axis: gd.softmax(x, axis=a), (2, 3, 4))
    case(f"log_softmax-{_axis}", lambda x, a=_axis: gd.log_softmax(x, axis=a), (2, 3, 4))
    case(f"cumsum-{_axis}", lambda x, a=_axis: gd.cumsum(x, axis=a), (2, 3, 4))
    case(f"cumprod-{_axis}", lambda x, a=_axis: gd.cumprod(x, axis=a), (2, 3, 4))
    case(f"cumprod-reverse-{_axis}", lambda x, a=_axis: gd.cumprod(x, axis=a, reverse=True), (2, 3, 4))
    case(f"sort-{_axis}", lambda x, a=_axis: gd.sort(x, axis=a), (2, 3, 4))
case("softmax-temperature", lambda x, t: gd.softmax(x, temperature=t * t + 0.5), (2, 3), ())
case("softmax-one", lambda x: gd.softmax(x), (3, 1))
case("softmax-of transposed", lambda x: gd.softmax(x.T), (3, 4))
case("cumsum-flat", lambda x: gd.cumsum(x), (2, 3))
case("cumsum-empty", lambda x: gd.cumsum(x, axis=1), (2, 0))
for _reverse in (False, True):
    case(f"recurrence-{_reverse}", lambda x, y, r=_reverse: make(scan.RECURRENCE, (x, y), (1, r)), (2, 5), (2, 5))
case("sort-descending", lambda x: gd.sort(x, descending=True), (7,))
case("argsort", lambda x: gd.take_along_axis(x, gd.argsort(x, axis=0), axis=0) * gd.argsort(x).astype("float64"), (4, 3))
case("top_k", lambda x: gd.top_k(x, 2), (3, 5))
case("top_k-first-axis", lambda x: gd.top_k(x, 3, axis=0), (4, 2))

# -- convolution and pooling, 1 to 3 axes ---------------------------------------------------------------------------------
case("conv-1d", lambda x, w: gd.conv(x, w), (2, 2, 7), (3, 2, 3))
case("conv-1d-options", lambda x, w: gd.conv(x, w, stride=2, padding=((2, 1),), dilation=2), (1, 2, 9), (2, 2, 3))
case("conv-2d-bias", lambda x, w, b: gd.conv(x, w, bias=b, padding="same"), (2, 2, 4, 5), (3, 2, 3, 2), (3,))
case("conv-2d-groups", lambda x, w: gd.conv(x, w, groups=2, stride=(2, 1), padding=1), (1, 4, 5, 4), (2, 2, 3, 3))
case("conv-2d-depthwise", lambda x, w: gd.conv(x, w, groups=3), (1, 3, 4, 4), (3, 1, 2, 2))
case("conv-3d", lambda x, w: gd.conv(x, w, stride=(1, 2, 1), dilation=(1, 1, 2)), (1, 2, 3, 4, 5), (2, 2, 2, 2, 2))
case("conv_transpose-1d", lambda x, w: gd.conv_transpose(x, w, stride=2, output_padding=1), (1, 2, 4), (2, 3, 3))
case("conv_transpose-2d", lambda x, w, b: gd.conv_transpose(x, w, bias=b, padding=1, dilation=2), (1, 2, 4, 3), (2, 1, 2, 3), (1,))
case("conv_transpose-3d-groups", lambda x, w: gd.conv_transpose(x, w, groups=2), (1, 2, 2, 2, 2), (2, 1, 2, 2, 2))
case("max_pool-1d", lambda x: gd.max_pool(x, 2), (1, 2, 6))
case("max_pool-2d", lambda x: gd.max_pool(x, (3, 2), stride=(2, 1), padding=(1, 1)), (1, 2, 5, 4))
case("max_pool-2d-dilated", lambda x: gd.max_pool(x, 2, stride=1, dilation=2, ceil_mode=True), (1, 1, 5, 5))
case("max_pool-3d", lambda x: gd.max_pool(x, 2), (1, 1, 4, 2, 4))
case("avg_pool-1d", lambda x: gd.avg_pool(x, 3, stride=2, padding=1), (1, 2, 6))
case("avg_pool-2d", lambda x: gd.avg_pool(x, (2, 3), stride=1, padding=1, count_include_pad=False), (1, 2, 3, 4))
case("avg_pool-2d-ceil", lambda x: gd.avg_pool(x, 2, stride=2, ceil_mode=True), (1, 1, 5, 3))
case("avg_pool-3d", lambda x: gd.avg_pool(x, 2), (1, 1, 2, 4, 2))

# -- layers -----------------------------------------------------------------------------------------------------------------
case("layer_norm", lambda x, g, b: gd.layer_norm(x, g, b), (3, 5), (5,), (5,))
case("batch_norm", lambda x, g, b: gd.batch_norm(x, g, b), (4, 3), (3,), (3,))
case("rms_norm", lambda x, g: gd.rms_norm(x, g), (3, 5), (5,))
case("group_norm", lambda x, g, b: gd.group_norm(x, 2, g, b), (2, 4, 3), (4,), (4,))
case("attention", gd.attention, (2, 3, 4), (2, 5, 4), (2, 5, 3))
case("attention-causal", lambda q, k, v: gd.attention(q, k, v, causal=True), (3, 4), (3, 4), (3, 2))
case("attention-mask", lambda q, k, v: gd.attention(q, k, v, np.array([[True, False, True], [False, False, False]])), (2, 4), (3, 4), (3, 2))
case("attention-heads", lambda q, k, v: gd.attention(*[x.swapaxes(1, 2) for x in (q, k, v)], causal=True).swapaxes(1, 2), (1, 3, 2, 4), (1, 4, 2, 4),
     (1, 4, 2, 3))
case("rnn", lambda *xs: sequence.rnn(*xs), (2, 4, 3), (2, 2), (3, 2), (2, 2), (2,))
case("gru", lambda *xs: sequence.gru(*xs), (2, 3, 2), (2, 2), (2, 6), (2, 6), (6,), (6,))
case("lstm", lambda *xs: gd.concatenate(sequence.lstm(*xs), -1), (2, 3, 2), (2, 2), (2, 2), (2, 8), (2, 8), (8,))
for _name in ("leaky_relu", "elu", "selu", "celu", "hard_tanh"):
    case(f"activation-{_name}", lambda x, n=_name: getattr(gd, n)(x), (3, 4))
case("clip", lambda x: gd.clip(x, -0.9, 0.8), (3, 4))
case("where", lambda x, y: gd.where(x > y, x * y, gd.exp(y)), (2, 3), (3,))
case("where-broadcast", lambda x, y: gd.where(np.array([[True], [False]]), x, y), (3,), ())
case("checkpoint", lambda x: gd.checkpoint(lambda v: gd.sin(v) * gd.exp(v))(x), (3,))
case("checkpoint-two", lambda x, y: gd.checkpoint(lambda v, w: gd.sin(v) * w * gd.exp(x))(x, y), (3,), (3,))
case("custom", lambda x: gd.custom_gradient(lambda v: v * v * v, lambda g, out, v: 3.0 * g * v * v)(x), (3,))
case("dim", lambda x: x * gd.size(x), (3,))


@pytest.mark.parametrize("build, shapes", CASES)
def test_case(build, shapes):
    arrays = [draw(s, 20 + i) for i, s in enumerate(shapes)]
    xs = [gd.input(f"x{i}", s) for i, s in enumerate(shapes)]
    feeds = dict(zip(xs, arrays, strict=True))
    y = build(*xs)
    check_value(y, feeds, rtol=2e-13)
    check_derivatives(y, feeds)
    if y.dtype.kind == "f":
        SEEN.update(op_names(gd.grad(y, xs, cotangent=np.ones(y.shape), unconnected="zero")))
    SEEN.update(op_names([y]))


def test_random_ops_match_their_reference():
    key = gd.random.key(7)
    for y in (gd.random.uniform(key, (5, 3)), gd.random.uniform(key, (4,), dtype="float32"), gd.random.bernoulli(key, (9,), 0.3),
              gd.random.split(key, 3), gd.random.fold_in(key, 5)):
        check_value(y, {}, rtol=0)
        SEEN.update(op_names([y]))
    normal = gd.random.normal(key, (6,))
    check_value(normal, {}, rtol=1e-14)
    SEEN.update(op_names([normal]))


def test_uniform_numbers_of_float16_are_all_that_there_are_below_1():
    u = gd.evaluate(gd.random.uniform(gd.random.key(3), (200_000,), "float16"), {})
    assert u.dtype == np.float16 and u.min() == 0 and u.max() == np.float16(1 - 2.0 ** -11)
    assert len(np.unique(u)) == 2048 and abs(u.astype("float64").mean() + 2.0 ** -12 - 0.5) < 0.003
    checked(2)


def test_every_op_of_the_registry_is_in_the_table():
    """Runs last in this file; alone it has nothing to look at."""
    if len(SEEN) < 30:
        pytest.skip("the table has not run")
    structural = {n for n, op in REGISTRY.items() if op.family not in ("elementwise", "leaf")}
    assert not structural - SEEN, sorted(structural - SEEN)
    checked(len(structural))
