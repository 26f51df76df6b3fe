"""Operations in the forms that benchmarks leave out, against NumPy's own way: axes of one element or of few, index arrays in odd places,
slices written to, views reduced, data in order, gradients by hand, pads, rolls, segments, matrices times themselves, odd batches.

Gradients are timed against the formula one would write in NumPy. Set OPENBLAS_NUM_THREADS=1, or NumPy's large products run on every core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/form_sweep.py                 # everything, a few minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/form_sweep.py '^softmax'      # by name
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sweep import DTYPES, Row, main, sample

import graphdiff as gd

FLOATS = ("float32", "float64")
SOME = ("uint8", "float16", "float32", "float64", "int64")


def row(name: str, shapes: Any, dtype: str, graph: Callable[..., Any], numpy: Callable[..., Any], close: float | None = None) -> Row:
    return Row(f"{name} {dtype}", lambda: [sample(shape, dtype, seed) for seed, shape in enumerate(shapes)], graph, numpy, tolerance=close)


def written(x: Any, at: Any, v: Any, add: bool) -> Any:
    """A copy of x with v at the index."""
    out = x.copy()
    if add:
        out[at] += v
    else:
        out[at] = v
    return out


def slices_written_to() -> Iterator[Row]:
    forms: dict[str, tuple[Any, Any]] = {               # of (300, 300): index, shape of what is put there
        "5": (5, (300,)), "3, 4": ((3, 4), ()), "::2": (slice(None, None, 2), (150, 300)), ":, 7": ((slice(None), 7), (300,)),
        "1:-1, 1:-1": ((slice(1, -1),) * 2, (298, 298)), ":, ::2": ((slice(None), slice(None, None, 2)), (300, 150)), "[3]": ([3], (1, 300)),
        ":, [9]": ((slice(None), [9]), (300, 1)), "[4, 9, 2]": ([4, 9, 2], (3, 300))}
    for name, (at, shape) in forms.items():
        for dtype in SOME:
            for add in (False, True):
                yield row(f"x.at[{name}].{'add' if add else 'set'} (300, 300)", [(300, 300), shape], dtype,
                          lambda x, v, at=at, add=add: x.at[at].add(v) if add else x.at[at].set(v), partial(_written_at, at=at, add=add),
                          1e-2 if dtype == "float16" else None)
    for shape in ((10_000, 2), (1000, 10)):
        for dtype in FLOATS:
            yield row(f"x.at[:, 1].set {shape}", [shape, shape[:1]], dtype, lambda x, v: x.at[:, 1].set(v),
                      partial(_written_at, at=(slice(None), 1), add=False))


def _written_at(x: Any, v: Any, at: Any, add: bool) -> Any:
    return written(x, at, v, add)


def short_axes() -> Iterator[Row]:
    for shape, axis in (((10_000, 1), 1), ((100, 1, 100), 1), ((1, 1000), 0)):
        for dtype in DTYPES:
            yield row(f"sort axis={axis} {shape}", [shape], dtype, partial(gd.sort, axis=axis), partial(np.sort, axis=axis))
            yield row(f"argsort axis={axis} {shape}", [shape], dtype, partial(gd.argsort, axis=axis),
                      lambda x, axis=axis: np.argsort(x, axis=axis, kind="stable"))
            if dtype not in ("bool", "float16"):
                yield row(f"median axis={axis} {shape}", [shape], dtype, partial(gd.median, axis=axis), partial(np.median, axis=axis))
    for shape, axis in (((2, 100_000), 0), ((3, 100_000), 0), ((8, 2, 64, 64), 1), ((8, 3, 64, 64), 1), ((8, 20, 64, 64), 1), ((1000, 1, 50), 1),
                        ((1, 10_000), 0), ((100_000, 2), 1), ((10_000, 20), 1), ((32, 8, 33, 33), 1), ((3000, 33), 1)):
        for dtype in FLOATS:
            for name, f in (("softmax", softmax), ("log_softmax", log_softmax), ("logsumexp", logsumexp)):
                yield row(f"{name} axis={axis} {shape}", [shape], dtype, partial(getattr(gd, name), axis=axis), partial(f, axis=axis),
                          1e-5 if dtype == "float32" else 1e-13)
    for shape, axis in (((10_000, 2, 2), 1), ((1000, 16, 2), 1), ((5000, 4, 3), 1), ((129, 33, 5), 1), ((300, 40), 1)):
        for dtype in DTYPES:
            for name in ("argmax", "argmin"):
                yield row(f"{name} axis={axis} {shape}", [shape], dtype, partial(getattr(gd, name), axis=axis), partial(getattr(np, name), axis=axis))
    for rows in (15, 31, 33, 64, 100):
        for n in (2048, 4097, 16_384):
            for dtype in ("float32", "float64", "int64"):
                for name in ("sum", "prod", "mean", "var") if dtype != "int64" else ("sum",):
                    yield row(f"{name} axis=0 ({rows}, {n})", [(rows, n)], dtype, partial(getattr(gd, name), axis=0),
                              partial(getattr(np, name), axis=0), 1e-3 if dtype == "float32" else 1e-9)


def views_reduced() -> Iterator[Row]:
    """Reductions of what lies apart, turned or in short pieces."""
    for dtype in ("int64", *FLOATS):
        close = 1e-4 if dtype == "float32" else 1e-10
        for shape, order, axes in (((20, 2, 20, 2), (0, 1, 2, 3), (1, 3)), ((40, 4, 40, 4), (0, 1, 2, 3), (1, 3)), ((10_000, 2, 2), (2, 0, 1), (0, 2)),
                                   ((1000, 3, 3), (0, 2, 1), (1, 2)), ((500, 7, 9), (0, 2, 1), (1, 2)), ((50, 60, 70), (2, 0, 1), 1)):
            for name in ("sum", "max"):
                yield row(f"{name} axis={axes} of {order} {shape}", [shape], dtype,
                          lambda x, name=name, order=order, axes=axes: getattr(gd, name)(gd.transpose(x, order), axis=axes),
                          lambda x, name=name, order=order, axes=axes: getattr(np, name)(np.transpose(x, order), axis=axes), close)
        for step in (2, 3, -1):
            for shape in ((1024, 1024), (300, 400)):
                for axis in (None, 0, 1):
                    yield row(f"sum axis={axis} {shape}[:, ::{step}]", [shape], dtype, lambda x, step=step, axis=axis: gd.sum(x[:, ::step], axis=axis),
                              lambda x, step=step, axis=axis: np.sum(x[:, ::step], axis=axis), close)
        for shape in ((1024, 1024), (300, 400), (100, 1000)):
            yield row(f"any(x.T > 9) {shape}", [shape], dtype, lambda x: gd.any(x.T > 9), lambda x: np.any(x.T > 9))
            yield row(f"max(abs(x.T)) axis=1 {shape}", [shape], dtype, lambda x: gd.max(abs(x.T), axis=1), lambda x: np.max(abs(x.T), axis=1))


def in_runs(shape: tuple[int, ...], runs: int, dtype: str) -> list[Any]:
    """Lines of a few rising runs."""
    n = shape[-1]
    x = np.arange(n) % (n // runs + 1)
    return [np.tile((x * 256 // n if dtype == "uint8" else x).astype(dtype), (*shape[:-1], 1)).reshape(shape)]


def ordered() -> Iterator[Row]:
    """Positions, medians and the largest of data with an order of its own."""
    for shape in ((100_000,), (100, 1000), (3, 3000), (20, 300)):
        for runs in (1, 3, 8):
            for dtype in ("uint8", "int32", "int64", *FLOATS):
                make = partial(in_runs, shape, runs, dtype)
                yield Row(f"argsort of {runs} runs {shape} {dtype}", make, gd.argsort, lambda x: np.argsort(x, kind="stable"))
            make = partial(in_runs, shape, runs, "uint8")
            yield Row(f"median of {runs} runs {shape} uint8", make, partial(gd.median, axis=-1), partial(np.median, axis=-1))
            yield Row(f"top_k 1 of {runs} runs {shape} uint8", make, lambda x: gd.top_k(x, 1), lambda x: np.partition(x, -1)[..., -1:])
    for shape in ((300, 33), (1000, 16)):
        yield Row(f"argsort rising {shape} bool", lambda shape=shape: [np.sort(sample(shape, "bool"), axis=-1)], gd.argsort,
                  lambda x: np.argsort(x, kind="stable"))


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x: Any, axis: int) -> Any:
    d = x - x.max(axis, keepdims=True)
    return d - np.log(np.exp(d).sum(axis, keepdims=True))


def logsumexp(x: Any, axis: int) -> Any:
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


def positions(n: int, *of: int) -> list[Any]:
    return [np.random.default_rng(k).integers(0, m, n) for k, m in enumerate(of)]


def indices() -> Iterator[Row]:
    for dtype in SOME:
        for n in (3, 500):
            for shape in ((50, 60, 70), (200, 200, 200)):
                yield Row(f"x[i, :, j] {n} of {shape} {dtype}",
                          lambda n=n, shape=shape, dtype=dtype: [sample(shape, dtype), *positions(n, shape[0], shape[2])],
                          lambda x, i, j: x[i, :, j], lambda x, i, j: x[i, :, j])
            for name, view in (("x.T", lambda x: x.T), ("x[::2]", lambda x: x[::2])):
                yield Row(f"{name}[i, j] {n} of (1000, 1000) {dtype}", lambda n=n, dtype=dtype: [sample((1000, 1000), dtype), *positions(n, 500, 1000)],
                          lambda x, i, j, view=view: view(x)[i, j], lambda x, i, j, view=view: view(x)[i, j])
        for shape in ((10_000, 2), (1000, 10), (3000, 64)):
            for at in ([1], [0, 1], [0, 1, 0]):
                yield row(f"x[:, {at}] {shape}", [shape], dtype, lambda x, at=at: x[:, at], lambda x, at=at: np.ascontiguousarray(x[:, at]))
        for count in (3, 5, 8, 16):
            yield row(f"repeat {count} axis=1 (300, 300)", [(300, 300)], dtype, lambda x, n=count: gd.repeat(x, n, axis=1),
                      lambda x, n=count: np.repeat(x, n, axis=1))
        for mode in ("edge", "reflect", "symmetric", "wrap"):
            for shape in ((300, 300), (3, 1000, 1000)):
                yield row(f"pad {mode} {shape}", [shape], dtype, lambda x, m=mode: gd.pad(x, 2, mode=m), lambda x, m=mode: np.pad(x, 2, mode=m))
        for shape, axes in (((32, 64, 14, 14), (1, 2, 3)), ((1000, 1000), (0, 1))):
            yield row(f"roll axes={axes} {shape}", [shape], dtype, lambda x, a=axes: gd.roll(x, (3,) * len(a), a),
                      lambda x, a=axes: np.roll(x, (3,) * len(a), a))
    for n, classes in ((1000, 100), (64, 32_000), (10_000, 100), (5000, 17)):
        yield Row(f"one_hot {n} of {classes}", lambda n=n, c=classes: positions(n, c), lambda i, c=classes: gd.one_hot(i, c, "float32"),
                  lambda i, c=classes: hot(i, c))
    for dtype in FLOATS:
        for segments in (100, 1000, 100_000):
            for order in ("sorted", "random"):
                yield Row(f"segment_sum {order} 100000 to {segments} {dtype}",
                          lambda s=segments, o=order, dtype=dtype: [sample(100_000, dtype), ids(s, o == "sorted")],
                          lambda x, i, s=segments: gd.segment_sum(x, i, s), lambda x, i, s=segments: np.bincount(i, x, s).astype(x.dtype), tolerance=1e-3)
                yield Row(f"segment_max {order} 100000 to {segments} {dtype}",
                          lambda s=segments, o=order, dtype=dtype: [sample(100_000, dtype), ids(s, o == "sorted")],
                          lambda x, i, s=segments: gd.segment_max(x, i, s), partial(largest, segments=segments))


def ids(segments: int, in_order: bool) -> Any:
    i = np.random.default_rng(0).integers(0, segments, 100_000)
    return np.sort(i) if in_order else i


def largest(x: Any, i: Any, segments: int) -> Any:
    out = np.full(segments, -np.inf, x.dtype)
    np.maximum.at(out, i, x)
    return out


def hot(i: Any, classes: int) -> Any:
    out = np.zeros((len(i), classes), "float32")
    out[np.arange(len(i)), i] = 1
    return out


def gradients() -> Iterator[Row]:
    for dtype in FLOATS:
        for n in (1000, 100_000):
            for p in (3, 4, 1.5):
                yield row(f"gradient of |x|**{p} {n}", [n], dtype, lambda x, p=p: gd.grad(gd.sum(abs(x) ** p), x),
                          lambda x, p=p: np.sign(x) * (p * abs(x) ** (p - 1)), 1e-5 if dtype == "float32" else 1e-12)
            yield row(f"abs(x)**0.5 {n}", [n], dtype, lambda x: abs(x) ** 0.5, lambda x: abs(x) ** 0.5)
            yield row(f"hard_tanh {n}", [n], dtype, gd.hard_tanh, lambda x: np.clip(x, -1, 1))
            yield row(f"gradient of -x x in exp {n}", [n], dtype, lambda x: gd.grad(gd.sum(gd.exp(-x * x)), x), lambda x: -2 * x * np.exp(-x * x),
                      1e-5 if dtype == "float32" else 1e-12)
            yield row(f"difference of the gradients of logaddexp {n}", [n, n, n], dtype, _logaddexp_slopes, _logaddexp_by_hand,
                      1e-4 if dtype == "float32" else 1e-11)
        for shape, p in (((32, 64, 4, 4), 2), ((8, 16, 28, 28), 2), ((4, 3, 33, 33), 3)):
            yield row(f"gradient of avg_pool {p} {shape}", [shape], dtype, lambda x, p=p: gd.grad(gd.sum(gd.avg_pool(x, p) ** 2), x),
                      partial(averaged, p=p), 1e-5 if dtype == "float32" else 1e-12)


def _logaddexp_slopes(x: Any, y: Any, g: Any) -> Any:
    a, b = gd.grad(gd.logaddexp(x, y), [x, y], cotangent=g)
    return a - b


def _logaddexp_by_hand(x: Any, y: Any, g: Any) -> Any:
    s = 1 / (1 + np.exp(y - x))
    return g * s - g * (1 - s)


def averaged(x: Any, p: int) -> Any:
    """The gradient of the sum of squares of averages over p x p windows that lie side by side."""
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // p, p, w // p, p).mean((3, 5))
    return np.repeat(np.repeat(2 * y / (p * p), p, 2), p, 3)


def neighbours_apart() -> Iterator[Row]:
    views = {"::2": np.s_[:, ::2], "::-1": np.s_[:, ::-1], "::3": np.s_[:, ::3], "1:": np.s_[1:, 1:]}
    for n in (256, 1024):
        for name, at in views.items():
            for dtype in FLOATS:
                for op in ("abs", "square", "sqrt", "floor"):
                    yield row(f"{op}(x[:, {name}]) ({n}, {n})", [(n, n)], dtype, lambda x, op=op, at=at: getattr(gd, op)(x[at]),
                              lambda x, op=op, at=at: np.ascontiguousarray(getattr(np, op)(x[at])))
                yield row(f"x.at[:, {name}].add ({n}, {n})", [(n, n), np.empty((n, n))[at].shape], dtype, lambda x, v, at=at: x.at[at].add(v),
                          partial(_written_at, at=at, add=True))
        for name, f in {"|": lambda x, y: x | y, "==": lambda x, y: x == y, "+": lambda x, y: x + y}.items():
            yield row(f"x {name} y ({n}, 1) (1, {n})", [(n, 1), (1, n)], "bool", f, f)


# Operands and which of them lies turned.
ODD_PRODUCTS: tuple[tuple[Any, Any, str], ...] = (
    ((500, 3, 129), (500, 36, 129), "right"), ((9, 255), (100, 25, 255), "right"), ((30, 15, 384), (10, 384), "right"), ((1, 24), (100, 24, 257), ""),
    ((500, 50, 24), (500, 24, 2), ""), ((100, 150, 40), (100, 150, 3), "left"), ((100, 40, 150), (100, 150, 3), ""), ((50, 24), (500, 50, 2), "left"),
    ((99, 5), (500, 24, 99), "both"),
    ((500, 9, 2), (500, 9, 150), "left"), ((257, 21), (150, 257), "both"), ((21, 15), (100, 72, 21), "both"), ((28, 36), (500, 28, 13), "left"),
    ((100, 127, 13), (100, 127, 15), "left"), ((2, 255, 192), (192, 18), ""), ((150, 28), (7, 2, 150), "both"), ((7, 11, 200), (7, 200, 3), ""),
    ((18, 5), (500, 5, 24), ""), ((500, 192, 33), (9, 33), "right"), ((1, 100_000), (100_000, 24), ""), ((2, 500), (500, 500), "right"))
THIN_INTEGERS: tuple[tuple[Any, Any, str], ...] = (
    ((100, 3, 3), (100, 3, 1), ""), ((5, 7, 9, 9), (9, 1), ""), ((150, 28), (7, 2, 150), "both"), ((100, 11, 127), (100, 11, 1), "left"),
    ((150, 127), (150, 2), "left"), ((777, 5), (5, 1), ""), ((64, 4096), (4096, 3), ""), ((2, 4096), (4096, 2), ""), ((64, 64), (64, 64), ""))


def _product(swapaxes: Callable[..., Any], x: Any, y: Any, turned: str) -> Any:
    return (swapaxes(x, -1, -2) if turned in ("left", "both") else x) @ (swapaxes(y, -1, -2) if turned in ("right", "both") else y)


def products() -> Iterator[Row]:
    for dtype in FLOATS:
        close = 1e-3 if dtype == "float32" else 1e-10
        for shape in ((600, 200), (300, 100), (1000, 30)):
            yield row(f"x.T @ x {shape}", [shape], dtype, lambda x: x.T @ x, lambda x: x.T @ x, close)
            yield row(f"x @ x.T {shape[::-1]}", [shape[::-1]], dtype, lambda x: x @ x.T, lambda x: x @ x.T, close)
        for a, b, turned in ODD_PRODUCTS:
            yield row(f"{a}{'^T' if turned in ('left', 'both') else ''} @ {b}{'^T' if turned in ('right', 'both') else ''}", [a, b], dtype,
                      partial(_product, gd.swapaxes, turned=turned), partial(_product, np.swapaxes, turned=turned), close)
        yield row("x[:, ::2] @ y[:, ::2] (777, 10) (5, 2)", [(777, 10), (5, 2)], dtype, lambda x, y: x[:, ::2] @ y[:, ::2],
                  lambda x, y: x[:, ::2] @ y[:, ::2], close)
        for n in (1000, 10_000, 100_000):
            yield row(f"dot(x[::2], y) {n}", [2 * n, n], dtype, lambda x, y: gd.dot(x[::2], y), lambda x, y: np.dot(x[::2], y), close)
            yield row(f"dot(x[::3], y[::3]) {n}", [3 * n, 3 * n], dtype, lambda x, y: gd.dot(x[::3], y[::3]), lambda x, y: np.dot(x[::3], y[::3]), close)
    for dtype in ("int32", "int64", "uint8", "bool"):
        for a, b, turned in THIN_INTEGERS:
            yield row(f"{a}{'^T' if turned in ('left', 'both') else ''} @ {b}{'^T' if turned in ('right', 'both') else ''}", [a, b], dtype,
                      partial(_product, gd.swapaxes, turned=turned), partial(_product, np.swapaxes, turned=turned))
        yield row("dot(x[::2], y) 10000", [20_000, 10_000], dtype, lambda x, y: gd.dot(x[::2], y), lambda x, y: np.dot(x[::2], y))


def rows() -> Iterator[Row]:
    for part in (slices_written_to, short_axes, views_reduced, ordered, indices, gradients, neighbours_apart, products):
        yield from part()


if __name__ == "__main__":
    sys.exit(main(__doc__, rows()))
