"""Operations on whole arrays against NumPy's: reductions, sorts, scans, movement, indexing, norms, pooling, products.

Shapes are chosen where implementations differ: few long lines and many short ones, along and across memory, a handful of
elements, operands that lie transposed. NumPy's products write into an array that is there (`out=`). Set OPENBLAS_NUM_THREADS=1,
or NumPy's large products run on every core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/array_sweep.py                # everything, some minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/array_sweep.py '^matmul.*f32' # by name
"""
from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from sweep import DTYPES, Row, main, sample

import graphdiff as gd

SHAPES = ((1_000_000,), (1000, 1000), (100, 100), (10_000, 10), (10, 100_000), (16,), (8, 8))
BLOCKS: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...] = (        # and the axes of them that are reduced
    ((3, 1000, 300), (0, 1, 2, (0, 1), (1, 2))), ((50, 60, 70), (0, 1, 2, (0, 2))), ((1000, 8, 16), (0, 1, 2, (0, 1), (0, 2))), ((1000, 3), (0, 1)))
LAYOUTS: dict[str, Callable[[Any], Any]] = {"": lambda x: x, "[:, ::2]": lambda x: x[:, ::2], ".T": lambda x: x.T}
ONE_AXIS = {"argmax", "argmin"}
REDUCTIONS = "sum mean prod max min ptp any all argmax argmin count_nonzero var std median".split()
FLOATS_ONLY = {"prod", "var", "std"}                  # of integers: products overflow, moments are those of float64
SORTED = ((7,), (30,), (1000,), (100_000,), (300, 30), (100, 16), (100, 100), (50, 500), (20, 1000), (4, 4000), (1, 100_000), (1000, 8))
SIZES = (1, 2, 3, 4, 7, 8, 16, 17, 31, 64, 100, 256)


def operands(*shapes: Any, dtype: str) -> list[Any]:
    return [sample(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def tolerance(dtype: str, n: int) -> float | None:
    """Of sums of n products: both libraries round in an order of their own."""
    return 4 * n ** 0.5 * float(np.finfo(dtype).eps) + 1e-12 if dtype.startswith("float") else None


def both(name: str, shapes: Any, dtype: str, f: Callable[..., Any], close: float | None = None) -> Row:
    """A row of an expression f(module, *operands) that both libraries take."""
    return Row(f"{name} {dtype}", partial(operands, *shapes, dtype=dtype), partial(f, gd), partial(f, np), tolerance=close)


def reduction(name: str, shape: tuple[int, ...], axis: Any, layout: str, dtype: str) -> Iterator[Row]:
    """A row, or none where NumPy computes something else."""
    real = dtype.startswith("float")
    if (name in FLOATS_ONLY and not real) or (dtype == "bool" and name in ("ptp", "median")):
        return
    if dtype in ("bool", "uint8") and name in ("sum", "mean", "average"):
        return                                        # NumPy's sum of bytes is unsigned: another dtype than ours
    if dtype == "float16" and name in ("sum", "var", "std"):
        return                                        # NumPy rounds partial sums to float16: its results are far off
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    n = math.prod(shape[a] for a in axes)
    close = 2e-2 if dtype == "float16" else 1e-4 if dtype == "float32" and n > 100 else tolerance(dtype, n)
    yield both(f"{name} axis={axis} {shape}{layout}", [shape], dtype, lambda m, x: getattr(m, name)(LAYOUTS[layout](x), axis=axis), close)


def reductions() -> Iterator[Row]:
    for dtype in DTYPES:
        for name in REDUCTIONS:
            for shape in SHAPES:
                for axis in (None,) if len(shape) == 1 else (None, 0, 1):
                    yield from reduction(name, shape, axis, "", dtype)
        if dtype in ("uint8", "float16"):
            continue
        for name in [*REDUCTIONS, "average"]:
            for blocks, axes in BLOCKS:
                for axis in axes:
                    if not (name in ONE_AXIS and isinstance(axis, tuple)):
                        yield from reduction(name, blocks, axis, "", dtype)
            for layout in ("[:, ::2]", ".T"):
                for axis in (None, 0, 1):
                    yield from reduction(name, (300, 400), axis, layout, dtype)


def sort_last(m: Any, x: Any) -> Any:
    return m.sort(x, axis=-1)


def ordered(kind: str, shape: Any, dtype: str) -> Any:
    """Data with an order of its own, line after line."""
    n, random = math.prod(shape), np.random.default_rng(1)
    x = np.arange(n)
    if kind == "organ pipe":
        x = np.minimum(x, x[::-1])
    elif kind == "eight runs":
        x = x % max(2, n // 8)
    elif kind == "nearly sorted":
        x[random.integers(0, n, n // 100)] = random.integers(0, n, n // 100)
    elif kind == "falling":
        x = np.sort(random.integers(0, 10**6, n))[::-1]
    return (x % 256 if dtype == "uint8" else x % 2 if dtype == "bool" else x).reshape(shape).astype(dtype)


def scans_and_sorts() -> Iterator[Row]:
    for dtype in DTYPES[1:]:
        for shape in ((1_000_000,), (1000, 1000), (100, 100), (3, 1000, 300), (10, 300, 100)):
            for axis in range(len(shape)):
                if dtype not in ("uint8", "float16"):
                    yield both(f"cumsum axis={axis} {shape}", [shape], dtype, lambda m, x, axis=axis: m.cumsum(x, axis=axis),
                               1e-2 if dtype == "float32" else 1e-9)
                    if dtype != "int64":              # NumPy's of int32 are int64
                        yield both(f"cumprod axis={axis} {shape}", [shape], dtype, lambda m, x, axis=axis: m.cumprod(x, axis=axis),
                                   1e-2 if dtype == "float32" else 1e-9)
        for shape in SORTED:
            yield both(f"sort {shape}", [shape], dtype, sort_last)
            yield Row(f"argsort {shape} {dtype}", partial(operands, shape, dtype=dtype), gd.argsort, lambda x: np.argsort(x, kind="stable"))
        yield both("sort axis=0 (100, 1000)", [(100, 1000)], dtype, lambda m, x: m.sort(x, axis=0))
        yield Row(f"argsort axis=0 (100, 1000) {dtype}", partial(operands, (100, 1000), dtype=dtype), lambda x: gd.argsort(x, axis=0),
                  lambda x: np.argsort(x, axis=0, kind="stable"))
        for shape in ((1000,), (100_000,), (100, 100)):
            yield Row(f"top_k 5 {shape} {dtype}", partial(operands, shape, dtype=dtype), lambda x: gd.top_k(x, 5),
                      lambda x: np.sort(x, axis=-1)[..., :-6:-1])
        if dtype in ("float16", "uint8"):
            continue
        for kind in ("rising", "falling", "organ pipe", "eight runs", "nearly sorted"):
            for shape in ((100_000,), (100, 1000), (300, 33), (1000, 16)):
                yield Row(f"argsort {kind} {shape} {dtype}", partial(lambda *a: [ordered(*a)], kind, shape, dtype), gd.argsort,
                          lambda x: np.argsort(x, kind="stable"))
    for dtype in ("bool", "uint8"):
        for shape in ((100_000,), (100, 1000), (300, 33)):
            for kind in ("random", "rising", "equal"):
                make = {"random": partial(operands, shape, dtype=dtype), "rising": partial(lambda *a: [np.sort(ordered(*a), axis=-1)], "", shape, dtype),
                        "equal": partial(lambda *a: [np.zeros(*a)], shape, dtype)}[kind]
                yield Row(f"argsort {kind} {shape} {dtype}", make, gd.argsort, lambda x: np.argsort(x, kind="stable"))
    for dtype in DTYPES[1:]:
        yield both("median of one (1000, 1)", [(1000, 1)], dtype, lambda m, x: m.median(x, axis=1))


MOVES: dict[str, tuple[int, Callable[..., Any]]] = {
    "stack": (2, lambda m, x, y, a: m.stack([x, y], axis=a)),
    "stack of 3": (3, lambda m, x, y, z, a: m.stack([x, y, z], axis=a)),
    "concatenate": (2, lambda m, x, y, a: m.concatenate([x, y], axis=a)),
    "concatenate of 3": (3, lambda m, x, y, z, a: m.concatenate([x, y, z], axis=a)),
    "split": (1, lambda m, x, a: m.split(x, 2, axis=a)[1]),
    "flip": (1, lambda m, x, a: m.flip(x, axis=a)),
    "roll": (1, lambda m, x, a: m.roll(x, 3, axis=a)),
    "repeat": (1, lambda m, x, a: m.repeat(x, 2, axis=a)),
}
WHOLE_MOVES: dict[str, Callable[..., Any]] = {
    "flip": lambda m, x: m.flip(x),
    "roll": lambda m, x: m.roll(x, 3),
    "pad": lambda m, x: m.pad(x, 1),
    "tile": lambda m, x: m.tile(x, (2, 2)),
    "tril": lambda m, x: m.tril(x),
    "triu": lambda m, x: m.triu(x),
    "diagonal": lambda m, x: m.diagonal(x),
    "rot90": lambda m, x: m.rot90(x),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, -1),
    "swapaxes": lambda m, x: m.swapaxes(x, 0, 1),
    "ravel turned": lambda m, x: m.ravel(m.swapaxes(x, -1, -2)),
    "broadcast rows": lambda m, x: m.broadcast_to(x[:1], x.shape),
    "broadcast columns": lambda m, x: m.broadcast_to(x[..., :1], x.shape),
}
APART: dict[str, Callable[[Any], Any]] = {"[:, ::2]": lambda x: x[:, ::2], "[:, ::-1]": lambda x: x[:, ::-1], "[1:, 1:]": lambda x: x[1:, 1:]}
TURNED = ((60, 70, 80), (8, 300, 200), (300, 200, 3), (300, 4, 200), (64, 64, 64), (1024, 512))


def moved(name: str, shapes: Any, dtype: str, f: Callable[..., Any]) -> Row:
    """A row whose result is an array of its own: where NumPy returns a view, its copy in C order."""
    def numpy(*xs: Any) -> Any:
        y = f(np, *xs)
        return np.array(y, order="C") if y.base is not None and np.may_share_memory(y, xs[0]) else y

    return Row(f"{name} {dtype}", partial(operands, *shapes, dtype=dtype), partial(f, gd), numpy)


def movement() -> Iterator[Row]:
    for dtype in DTYPES:
        for shape in ((500, 500), (40, 50, 60)):
            for name, (n, f) in MOVES.items():
                for a in range(-1, len(shape) - 1):
                    yield moved(f"{name} axis={a} {shape}", [shape] * n, dtype, partial(f, a=a))
            for name, g in WHOLE_MOVES.items():
                yield moved(f"{name} {shape}", [shape], dtype, g)
        for shape in TURNED:
            for order in list(permutations(range(len(shape))))[1:]:
                yield moved(f"transpose {order} {shape}", [shape], dtype, lambda m, x, order=order: m.transpose(x, order))
        for n in (5, 8, 16, 32):
            yield moved(f"repeat {n} axis=-1 (300, 300)", [(300, 300)], dtype, lambda m, x, n=n: m.repeat(x, n, axis=-1))
        for shape in ((8, 16, 32, 4), (7, 6, 5, 4, 3)):
            yield moved(f"transpose {shape}", [shape], dtype, lambda m, x: m.transpose(x))
        for n, shape in ((16, (256, 1)), (10, (100, 1))):
            yield moved(f"concatenate axis=1 {n} of {shape}", [shape] * n, dtype, lambda m, *xs: m.concatenate(xs, axis=1))
        for name, view in APART.items():
            for shape in ((1024, 1024), (256, 256)):
                yield both(f"abs {name} {shape}", [shape], dtype,
                           lambda m, x, view=view, name="logical_not" if dtype == "bool" else "abs": getattr(m, name)(view(x)))
                for to in ("bool", "float32", "float64"):
                    if to != dtype:
                        yield both(f"astype {to} {name} {shape}", [shape], dtype, lambda m, x, view=view, to=to: view(x).astype(to))
                if dtype == "bool":
                    yield both(f"any axis=1 {name} {shape}", [shape], dtype, lambda m, x, view=view: m.any(view(x), axis=1))
        yield both("maximum (8, 8, 8, 8) (8, 1, 8, 1)", [(8, 8, 8, 8), (8, 1, 8, 1)], dtype, lambda m, x, y: m.maximum(x, y))
        for small in ((500, 1), (500, 20)):
            yield moved(f"concatenate axis=1 (500, 500) {small}", [(500, 500), small, (500, 3)], dtype, lambda m, *xs: m.concatenate(xs, axis=1))
        for n in (3, 30):
            yield moved(f"concatenate axis=0 {n} of ({n},)", [(n,)] * n, dtype, lambda m, *xs: m.concatenate(xs))
        if dtype != "bool":
            yield both("diff (500, 500)", [(500, 500)], dtype, lambda m, x: m.diff(x))
            for n in (30, 1000):
                yield both(f"outer {n}", [n, n], dtype, lambda m, x, y: m.outer(x, y))


def places(n: int, shape: Any) -> Any:
    return np.random.default_rng(3).integers(0, n, shape)


def added(x: Any, i: Any, v: Any) -> Any:
    out = x.copy()
    np.add.at(out, i, v)
    return out


def hot(i: Any, classes: int, dtype: str) -> Any:
    out = np.zeros((i.size, classes), dtype)
    out[np.arange(i.size), i] = 1
    return out


def indexing() -> Iterator[Row]:
    """Each: the array's shape, the size of the axis that is indexed, the shapes of indices, and the expression."""
    cases: dict[str, tuple[Any, int, list[Any], Callable[..., Any]]] = {
        "take 16 of 1000": (1000, 1000, [16], lambda m, x, i: m.take(x, i, axis=0)),
        "take 1e5 of 1e5": (100_000, 100_000, [100_000], lambda m, x, i: m.take(x, i, axis=0)),
        "take rows": ((1000, 64), 1000, [500], lambda m, x, i: m.take(x, i, axis=0)),
        "take columns": ((500, 500), 500, [100], lambda m, x, i: m.take(x, i, axis=1)),
        "x[i, j]": ((500, 500), 500, [10_000, 10_000], lambda m, x, i, j: x[i, j]),
        "take_along_axis": ((500, 500), 500, [(500, 500)], lambda m, x, i: m.take_along_axis(x, i, axis=1)),
        "take_along_axis axis=0": ((500, 500), 500, [(500, 500)], lambda m, x, i: m.take_along_axis(x, i, axis=0)),
        "take_along_axis of one": ((1000, 10), 10, [(1000, 1)], lambda m, x, i: m.take_along_axis(x, i, axis=1)),
        "take clip": (10_000, 10_050, [10_000], lambda m, x, i: m.take(x, i - 20, mode="clip")),
        "take wrap": (10_000, 10_050, [10_000], lambda m, x, i: m.take(x, i - 20, mode="wrap")),
        "x[i, :, j]": ((50, 60, 70), 50, [500, 500], lambda m, x, i, j: x[i, :, j]),
        "x.T[i, j]": ((300, 400), 300, [500, 500], lambda m, x, i, j: x.T[i, j]),
        "x[:, [0, 2, 5]]": ((1000, 10), 10, [], lambda m, x: x[:, [0, 2, 5]]),
        "where of mask": ((500, 500), 2, [(500, 500)], lambda m, x, i: m.where(i > 0, x, x[0])),
    }
    for dtype in DTYPES:
        for name, (shape, n, at, f) in cases.items():
            yield Row(f"{name} {dtype}", lambda shape=shape, n=n, at=at, dtype=dtype: [sample(shape, dtype), *[places(n, a) for a in at]],
                      partial(f, gd), partial(f, np))
    for dtype in ("int64", "float32", "float64"):
        for shape, n in ((1000, 100), (100_000, 100_000), ((1000, 64), 500)):
            rest = () if isinstance(shape, int) else shape[1:]
            arrays = partial(lambda shape, n, rest, dtype: [sample(shape, dtype), places(1000, n), sample((n, *rest), dtype, 1)], shape, n, rest, dtype)
            yield Row(f".at[].add {n} to {shape} {dtype}", arrays, lambda x, i, v: x.at[i].add(v), added, tolerance=1e-3)
            yield Row(f"segment_sum {n} to {shape} {dtype}", lambda arrays=arrays: arrays()[1:], lambda i, v: gd.segment_sum(v, i, 1000),
                      lambda i, v, rest=rest: added(np.zeros((1000, *rest), v.dtype), i, v), tolerance=1e-3)
    for dtype in ("bool", "float32", "float64"):
        for n, classes in ((1000, 10), (5000, 17), (1000, 100), (100, 1000), (10_000, 100), (1, 100_000)):
            yield Row(f"one_hot {n} of {classes} {dtype}", lambda n=n, classes=classes: [places(classes, n)],
                      lambda i, c=classes, dtype=dtype: gd.one_hot(i, c, dtype), partial(hot, classes=classes, dtype=dtype))


def largest_of_windows(x: Any, p: int) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // p, p, w // p, p).max(axis=(3, 5))


def norms_and_pooling() -> Iterator[Row]:
    for dtype in ("float32", "float64"):
        for shape, axis in (((1_000_000,), None), ((1000, 1000), 1), ((1000, 1000), 0)):
            yield Row(f"norm axis={axis} {shape} {dtype}", partial(operands, shape, dtype=dtype), lambda x, axis=axis: gd.norm(x, axis=axis),
                      lambda x, axis=axis: np.linalg.norm(x, axis=axis), tolerance=1e-4 if dtype == "float32" else 1e-12)
        for p, shape in ((7, (16, 64, 7, 7)), (8, (16, 64, 8, 8)), (2, (8, 16, 32, 32))):
            yield Row(f"max_pool {p} {shape} {dtype}", partial(operands, shape, dtype=dtype), lambda x, p=p: gd.max_pool(x, p),
                      partial(largest_of_windows, p=p))


def products() -> Iterator[Row]:
    """Every eleventh of all shapes of SIZES, dense and with either operand transposed; vectors; batches."""
    shapes: list[tuple[Any, Any]] = [((m, k), (k, n)) for m in SIZES for k in SIZES for n in SIZES][::11]
    shapes += [((n, n), (n,)) for n in (8, 64, 256, 1000)] + [((n,), (n, n)) for n in (8, 64, 256, 1000)]
    shapes += [((64, 64, 64), (64, 64, 64)), ((1000, 3, 3), (1000, 3, 3)), ((1000, 4, 4), (1000, 4, 4)), ((1000, 4, 4), (1000, 4, 1))]
    for dtype in ("float32", "float64"):
        for a, b in shapes:
            for turned in ("", "left", "right"):
                if (turned == "left" and len(a) == 1) or (turned == "right" and len(b) == 1):
                    continue
                yield product(a, b, turned, dtype)


def product(a: Any, b: Any, turned: str, dtype: str) -> Row:
    """x @ y; the operand that is `turned` is stored with its last two axes exchanged."""
    def stored(shape: Any, side: str) -> Any:
        return (*shape[:-2], shape[-1], shape[-2]) if turned == side else shape

    def f(m: Any, x: Any, y: Any, **out: Any) -> Any:
        return m.matmul(m.swapaxes(x, -1, -2) if turned == "left" else x, m.swapaxes(y, -1, -2) if turned == "right" else y, **out)

    name = f"matmul {a} {b}{f' {turned} turned' if turned else ''} {dtype}"
    return Row(name, partial(operands, stored(a, "left"), stored(b, "right"), dtype=dtype), partial(f, gd), partial(f, np), len(a) + len(b) > 2,
               tolerance(dtype, 256 * a[-1]))


LARGE = (4000, 2500)                                  # 40 MB of float32: beyond caches


def large() -> Iterator[Row]:
    for dtype in ("float32", "float64"):
        for name in "sum max argmax any mean std".split():
            for axis in (None, 0, 1):
                yield from reduction(name, LARGE, axis, "", dtype)
        yield both(f"cumsum axis=1 {LARGE}", [LARGE], dtype, lambda m, x: m.cumsum(x, axis=1), 1e-2 if dtype == "float32" else 1e-9)
        for n in (1_000_000, 4_000_000):
            yield both(f"sort ({n},)", [(n,)], dtype, sort_last)
            yield Row(f"argsort ({n},) {dtype}", partial(operands, (n,), dtype=dtype), gd.argsort, lambda x: np.argsort(x, kind="stable"))
        for name in ("stack", "concatenate", "flip", "roll", "repeat"):
            count, f = MOVES[name]
            for a in (0, 1):
                yield moved(f"{name} axis={a} {LARGE}", [LARGE] * count, dtype, partial(f, a=a))
        for name in ("pad", "tile", "tril", "ravel turned", "broadcast columns"):
            yield moved(f"{name} {LARGE}", [LARGE], dtype, WHOLE_MOVES[name])
        yield Row(f"take rows {LARGE} {dtype}", lambda dtype=dtype: [sample(LARGE, dtype), places(4000, 4000)], lambda x, i: gd.take(x, i, axis=0),
                  lambda x, i: np.take(x, i, axis=0))


def rows() -> Iterator[Row]:
    for part in (reductions, scans_and_sorts, movement, indexing, norms_and_pooling, products, large):
        yield from part()


if __name__ == "__main__":
    sys.exit(main(__doc__, rows()))
