"""Products against NumPy's: batches, skinny matrices, integers, einsum over its whole language, and what is made of products.

NumPy's side is the fastest of its own ways: einsum with and without a path, and into an array that is there (`out=`) or a new one.
Products of matrices of all sizes stand in array_sweep.py. Set OPENBLAS_NUM_THREADS=1, or NumPy's large products run on every core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/product_sweep.py                    # everything, some minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/product_sweep.py '^einsum bij.*f32' # by name
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from array_sweep import both, operands, product, tolerance
from sweep import Row, main

import graphdiff as gd
from graphdiff.bench.worker import microseconds

BATCHES: tuple[tuple[Any, Any], ...] = (
    ((1000, 8, 8), (1000, 8, 1)), ((1000, 1, 8), (1000, 8, 8)), ((1000, 1, 8), (1000, 8, 1)), ((1000, 2, 2), (1000, 2, 2)),
    ((1000, 8, 8), (1000, 8, 8)), ((1000, 5, 7), (1000, 7, 3)), ((100, 16, 16), (100, 16, 16)), ((100, 1, 64), (100, 64, 64)),
    ((100, 64, 64), (100, 64, 1)), ((30, 100, 100), (30, 100, 100)), ((16, 1, 64), (64, 64)), ((16, 20, 64), (64, 64)), ((64, 64), (16, 64, 20)),
    ((10, 1, 20, 30), (5, 30, 40)), ((8, 12, 64, 32), (8, 12, 32, 64)), ((8, 12, 64, 64), (8, 12, 64, 32)), ((500, 3, 4), (4, 4)),
    ((500, 32, 32), (32,)), ((200, 30, 1), (200, 1, 30)))
SKINNY: tuple[tuple[Any, Any], ...] = (
    ((64, 3), (3, 256)), ((3, 1000), (1000, 3)), ((1000, 3), (3, 1000)), ((1, 1000), (1000, 5)), ((5, 1000), (1000, 1)), ((1000, 1), (1, 1000)),
    ((1000, 2), (2, 1000)), ((100, 1), (1, 100)), ((1000, 1000), (1000, 2)), ((1000, 1000), (1000, 16)), ((10_000, 4), (4, 4)),
    ((10_000, 10), (10, 1)), ((10_000, 3), (3, 3)), ((3, 10_000), (10_000, 3)), ((4, 4), (4, 10_000)), ((16, 100_000), (100_000, 1)),
    *[((m, n), (n, n)) for m in (2, 3, 5, 8, 16) for n in (100, 500, 1000)])
INTEGERS: tuple[tuple[Any, Any], ...] = (
    ((4, 4), (4, 4)), ((16, 16), (16, 16)), ((100, 100), (100, 100)), ((300, 300), (300, 300)), ((500, 500), (500,)), ((500,), (500, 500)),
    ((1000, 4, 4), (1000, 4, 4)), ((100, 16, 16), (100, 16, 16)), ((64, 3), (3, 256)), ((1000, 1), (1, 1000)), ((1000,), (1000,)), ((3, 1000), (1000, 3)))
# Sizes of a label; where several are named with an equation, each is a row.
EINSUMS: dict[str, tuple[int, ...]] = {
    "ij,jk->ik": (4, 16, 64, 128, 500), "ij,kj->ik": (4, 16, 64, 128, 500), "ji,jk->ik": (4, 16, 64, 128, 500), "ij,jk->ki": (8, 128),
    "i,i->": (8, 100, 100_000), "ij,ij->": (8, 100, 1000), "ij->ji": (8, 100, 1000), "ij->": (8, 100, 1000), "ii->i": (8, 100, 1000),
    "ii->": (8, 100, 1000), "ij->i": (8, 100, 1000), "ij->j": (8, 100, 1000), "ijk,ik->ij": (8, 64, 128), "bij,bjk->bik": (4, 16, 64),
    "bij,bkj->bik": (4, 16, 64), "bji,bjk->bik": (4, 16, 64), "i,j->ij": (8, 100, 1000), "ij,j->i": (8, 100, 1000), "ij,i->j": (8, 100, 1000),
    "i,ij,j->": (8, 100, 1000), "ij,jk,kl->il": (8, 64, 200), "ijkl->klij": (4, 8, 24), "ijkl->kl": (4, 8, 24), "ijkl->ij": (4, 8, 24),
    "ijkl->ik": (4, 8, 24), "ijkl->": (4, 24), "bhqd,bhkd->bhqk": (4, 8, 24), "bhqk,bhkd->bhqd": (4, 8, 24), "bqhd,bkhd->bhqk": (4, 8, 24),
    "ijk,ljm->iklm": (4, 8, 20), "...ij,...jk->...ik": (4, 16, 64), "ij,ij->i": (8, 100, 1000), "ij,ij->j": (8, 100, 1000),
    "ij,ij->ij": (8, 100, 1000), "a,ab,abc->c": (8, 30, 100), "ijk->kji": (8, 30, 100), "ijk,k->ij": (8, 30, 100), "ijk,j->ik": (8, 30, 100),
    "ijkl,k->ijl": (8, 24),
    "ijk,j->ki": (8, 100),
    "ij,ik,il->jkl": (8, 30), "ijk,jil->kl": (8, 20, 60), "iij->j": (8, 100), "ij,ji->": (8, 100, 1000), "ij,jk->": (8, 100), "i,->i": (8, 1000)}
EINSUM_AXES = {"...ij": 3, "...jk": 3, "": 0}          # of terms that do not have one letter an axis


def fastest(*ways: Callable[..., Any]) -> Callable[..., Any]:
    """The way that is fastest on the arrays it is called with first (into a result that is there, as a sweep calls it later)."""
    best: list[Callable[..., Any]] = []

    def call(*xs: Any, **out: Any) -> Any:
        if not out:
            return ways[0](*xs)
        if not best:
            number = max(1, int(1000 / max(microseconds(partial(ways[0], *xs, **out), 2), 0.1)))
            best.append(min(ways, key=lambda way: min(microseconds(partial(way, *xs, **out), number) for _ in range(3))))
        return best[0](*xs, **out)

    return call


def rearranged(equation: str, x: Any, out: Any = None) -> Any:
    """The elements of a view, in C order as graphdiff's are: in the order of the view, as np.empty_like has it, all that NumPy would do
    for a transpose is to copy an array as it lies."""
    view = np.einsum(equation, x)
    if out is None:
        return np.ascontiguousarray(view)
    np.copyto(out, view)
    return out


def einsums() -> Iterator[Row]:
    for equation, sizes in EINSUMS.items():
        terms = equation.split("->")[0].split(",")
        for n in sizes:
            shapes = [(n,) * EINSUM_AXES.get(t, len(t)) for t in terms]
            view = len(terms) == 1 and len(set(equation.split("->")[1])) == len(set(terms[0]))    # NumPy's new array would be none
            ways: list[Callable[..., Any]] = [partial(np.einsum, equation), partial(np.einsum, equation, optimize=True)]
            if view:
                ways = [partial(rearranged, equation), *ways]
            else:
                ways.append(lambda *xs, out, equation=equation: np.einsum(equation, *xs, optimize=True))
            for dtype in ("float32", "float64", *(["int64"] if n < 200 else [])):
                yield Row(f"einsum {equation} {n} {dtype}", partial(operands, *shapes, dtype=dtype), partial(gd.einsum, equation),
                          fastest(*ways), True, tolerance(dtype, 256 * n * n))
    for n in (8, 1000):
        for dtype in ("float32", "float64"):
            yield Row(f"einsum i->ii {n} {dtype}", partial(operands, (n,), dtype=dtype), partial(gd.einsum, "i->ii"), np.diag)


def matrices() -> Iterator[Row]:
    for dtype in ("float32", "float64"):
        for a, b in BATCHES + SKINNY:
            for turned in ("", "left", "right"):
                if (turned == "left" and len(a) == 1) or (turned == "right" and len(b) == 1):
                    continue
                yield product(a, b, turned, dtype)
    for dtype in ("int32", "int64"):
        for a, b in INTEGERS:
            yield product(a, b, "", dtype)
            if len(b) == 2:
                yield product(a, b, "right", dtype)


def made_of_products() -> Iterator[Row]:
    cases: dict[str, tuple[list[Any], Callable[..., Any]]] = {}
    for n in (4, 16, 100, 10_000, 1_000_000):
        cases[f"dot {n}"] = [n, n], lambda m, x, y: m.dot(x, y)
        cases[f"vdot {n}"] = [n, n], lambda m, x, y: m.vdot(x, y)
        cases[f"inner {n}"] = [n, n], lambda m, x, y: m.inner(x, y)
    for n in (4, 30, 200, 1000):
        cases[f"outer {n}"] = [n, n], lambda m, x, y: m.outer(x, y)
    for n in (4, 16, 100, 500):
        cases[f"dot {n} x {n}"] = [(n, n), (n, n)], lambda m, x, y: m.dot(x, y)
        cases[f"vdot {n} x {n}"] = [(n, n), (n, n)], lambda m, x, y: m.vdot(x, y)
        cases[f"inner {n} x {n}"] = [(n, n), (n, n)], lambda m, x, y: m.inner(x, y)
        cases[f"trace {n}"] = [(n, n)], lambda m, x: m.trace(x)
    for n in (4, 16, 60):
        cases[f"dot of blocks {n}"] = [(n, n, n), (n, n)], lambda m, x, y: m.dot(x, y)
        cases[f"tensordot 1 {n}"] = [(n, n, n), (n, n)], lambda m, x, y: m.tensordot(x, y, 1)
        cases[f"tensordot 2 {n}"] = [(n, n, n), (n, n, n)], lambda m, x, y: m.tensordot(x, y, 2)
        cases[f"tensordot (0, 1) {n}"] = [(n, n, n), (n, n)], lambda m, x, y: m.tensordot(x, y, ([0], [1]))
        cases[f"tensordot (0, 2), (1, 0) {n}"] = [(n, n, n), (n, n, n)], lambda m, x, y: m.tensordot(x, y, ([0, 2], [1, 0]))
    for a, b in (((4, 4), (4, 4)), ((30, 30), (30, 30)), ((8, 8), (100, 100)), ((100, 100), (3, 3)), ((100,), (100,)), ((300, 2), (2, 300))):
        cases[f"kron {a} {b}"] = [a, b], lambda m, x, y: m.kron(x, y)
    for name, (shapes, f) in cases.items():
        for dtype in ("float32", "float64", "int64"):
            yield both(name, shapes, dtype, f, tolerance(dtype, 1_000_000))
    for dtype in ("float32", "float64"):
        for ord in (None, 1, np.inf, "fro"):
            for n in (8, 100, 1000):
                yield Row(f"norm of a matrix ord={ord} {n} {dtype}", partial(operands, (n, n), dtype=dtype), partial(gd.norm, ord=ord),
                          partial(np.linalg.norm, ord=ord), tolerance=1e-4 if dtype == "float32" else 1e-12)
        for ord in (None, 1, 2, 3, np.inf, -np.inf, 0):
            for n in (8, 100, 100_000):
                yield Row(f"norm of a vector ord={ord} {n} {dtype}", partial(operands, (n,), dtype=dtype), partial(gd.norm, ord=ord),
                          partial(np.linalg.norm, ord=ord), tolerance=1e-4 if dtype == "float32" else 1e-12)


def rows() -> Iterator[Row]:
    for part in (matrices, einsums, made_of_products):
        yield from part()


if __name__ == "__main__":
    sys.exit(main(__doc__, rows()))
