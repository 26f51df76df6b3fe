"""Every elementwise operation, dtype by dtype, against NumPy's function writing into an array that is there.

Contiguous arrays of a thousand and a million elements (of float32 and int64 of ten million, too), with an array or a number as second
operand, conversions between dtypes, divisions by constants, and operands that are strided, turned or broadcast.

    python benchmarks/elementwise_sweep.py                 # everything, some four minutes
    python benchmarks/elementwise_sweep.py 'float64 1e6'   # by name
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from sweep import DTYPES, Row, main, sample

import graphdiff as gd

SIZES = {"1e3": 1000, "1e6": 1_000_000}
LARGE, LARGE_DTYPES = {"1e7": 10_000_000}, ("float32", "int64")
FLOAT_1 = ("sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh "
           "floor ceil rint trunc reciprocal isnan isinf isfinite signbit").split()
ANY_1 = "negative abs sign square logical_not".split()
FLOAT_2 = "divide power fmax fmin arctan2 hypot copysign logaddexp fmod".split()
ANY_2 = ("add subtract multiply maximum minimum remainder floor_divide equal less greater_equal "
         "logical_and logical_or logical_xor").split()
INTEGER_2 = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
NOT_OF_BOOL = {"subtract", "remainder", "floor_divide", "left_shift", "right_shift"}
NUMBERS = {"add": 1, "multiply": 3, "divide": 3, "maximum": 1, "remainder": 7, "floor_divide": 7, "less": 1, "left_shift": 2,
           "right_shift": 2, "bitwise_and": 15, "power": 2, "fmod": 7}
DIVISORS = {"uint8": (1, 2, 7, 10, 128, 200, 255), "int32": (1, 2, 3, 7, 10, 255, -7, 1 << 20), "int64": (1, 2, 3, 7, 10, 255, -7, 1 << 20)}


def is_float(dtype: str) -> bool:
    return dtype.startswith("float")


def _alone(shape: int | tuple[int, ...], dtype: str) -> list[Any]:
    return [sample(shape, dtype)]


def one_operand(name: str, n: int, dtype: str) -> list[Any]:
    """Inside the function's domain."""
    x = sample(n, dtype)
    if name in ("sqrt", "log", "log2", "log10", "log1p", "reciprocal"):
        x = np.abs(x) + x.dtype.type(0.1)
    elif name in ("arcsin", "arccos", "arctanh"):
        x = np.clip(x, -0.99, 0.99)
    elif name == "arccosh":
        x = np.abs(x) + x.dtype.type(1)
    return [x]


def two_operands(name: str, n: int, dtype: str) -> list[Any]:
    x, y = sample(n, dtype), sample(n, dtype, 1)
    if name in ("remainder", "floor_divide") and not is_float(dtype):
        y = y % y.dtype.type(100) + y.dtype.type(1)
    elif name.endswith("shift"):
        y = np.abs(y) % y.dtype.type(8)
    elif name == "power":
        x = np.abs(x)
    return [x, y]


def unary(text: str, n: int, dtype: str) -> Iterator[Row]:
    names = (["logical_not"] if dtype == "bool" else ANY_1) + (FLOAT_1 if is_float(dtype) else ["invert"])
    for name in names:
        yield Row(f"{name} {dtype} {text}", partial(one_operand, name, n, dtype), getattr(gd, name), getattr(np, name), True)


def binary(text: str, n: int, dtype: str) -> Iterator[Row]:
    for name in ANY_2 + (FLOAT_2 if is_float(dtype) else INTEGER_2):
        if dtype == "bool" and name in NOT_OF_BOOL:
            continue
        ours, theirs = getattr(gd, name), getattr(np, name)
        yield Row(f"{name} {dtype} {text}", partial(two_operands, name, n, dtype), ours, theirs, True)
        if name in NUMBERS:
            y = NUMBERS[name] if dtype != "bool" else True
            yield Row(f"{name} {dtype} {text} by {y}", lambda: two_operands("", n, dtype)[:1], *by_number(name, y, dtype), True)


def by_number(name: str, y: int, dtype: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The operation with y for its second operand, in graphdiff and in NumPy."""
    ours, theirs, number = getattr(gd, name), getattr(np, name), np.dtype(dtype).type(y)
    return lambda x: ours(x, float(y) if is_float(dtype) else y), lambda x, **out: theirs(x, number, **out)


def others(text: str, n: int, dtype: str) -> Iterator[Row]:
    """where, clip, and conversions to every other dtype."""
    yield Row(f"where {dtype} {text}", lambda: [sample(n, "bool", 5), sample(n, dtype), sample(n, dtype, 1)], gd.where, np.where)
    if dtype != "bool":
        low, high = (50, 200) if dtype == "uint8" else (-1, 1) if is_float(dtype) else (-1000, 1000)
        yield Row(f"clip {dtype} {text}", lambda: [sample(n, dtype)], lambda x: gd.clip(x, low, high),
                  lambda x, **out: np.clip(x, low, high, **out), True)
    for to in DTYPES:
        if to != dtype:
            astype = methodcaller("astype", to)
            yield Row(f"cast {dtype} to {to} {text}", lambda: [np.abs(sample(n, dtype))], astype, astype)


def divisions() -> Iterator[Row]:
    for dtype, divisors in DIVISORS.items():
        for y in divisors:
            for name in ("floor_divide", "remainder"):
                yield Row(f"{name} {dtype} by {y}", partial(_alone, 1_000_000, dtype), *by_number(name, y, dtype), True)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "x[:, ::2] + x[:, 1::2]": lambda x: x[:, ::2] + x[:, 1::2],
    "x[:, ::3] * x[:, ::3]": lambda x: x[:, ::3] * x[:, ::3],
    "x[:, ::4] * x[:, 1::4]": lambda x: x[:, ::4] * x[:, 1::4],
    "x[::2] + x[1::2]": lambda x: x[::2] + x[1::2],
    "x[::-1] + x": lambda x: x[::-1] + x,
    "x[:, ::-1] + x": lambda x: x[:, ::-1] + x,
    "x.ravel()[::-1] + x.ravel()": lambda x: x.reshape(-1)[::-1] + x.reshape(-1),
    "x.T + x": lambda x: x.T + x,
    "x + x[0]": lambda x: x + x[0],
    "x + x[:, :1]": lambda x: x + x[:, :1],
    "x[1:, 1:] + x[:-1, :-1]": lambda x: x[1:, 1:] + x[:-1, :-1],
}


def views() -> Iterator[Row]:
    for dtype in DTYPES[1:]:
        for name, expression in VIEWS.items():
            yield Row(f"{name} {dtype}", partial(_alone, (1000, 1000), dtype), expression, expression)


def rows() -> Iterator[Row]:
    for text, n in [*SIZES.items(), *LARGE.items()]:
        for dtype in DTYPES if text in SIZES else LARGE_DTYPES:
            for make in (unary, binary, others):
                yield from make(text, n, dtype)
    yield from divisions()
    yield from views()


if __name__ == "__main__":
    sys.exit(main(__doc__, rows()))
