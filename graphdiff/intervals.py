"""Intervals a size lies in whatever its names are: (lowest, highest), ints or infinite."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Bound: TypeAlias = int | float                          # an int, or plus or minus infinity
    Interval: TypeAlias = tuple[Bound, Bound]

INF = float("inf")

# Infinite ends need care: 0 * inf is 0 here, and a large int and a float must never meet in arithmetic (OverflowError).

def add(a: Bound, b: Bound) -> Bound:
    return a if abs(a) == INF else b if abs(b) == INF else a + b


def times(a: Bound, b: Bound) -> Bound:
    if a == 0 or b == 0:
        return 0
    if abs(a) == INF or abs(b) == INF:
        return INF if (a > 0) == (b > 0) else -INF
    return a * b


def _over(a: Bound, k: Bound) -> Bound:
    return a if abs(a) == INF else a // k


def product(a: Interval, b: Interval) -> Interval:
    ends = [times(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _floordiv(a: Interval, b: Interval) -> Interval:
    if b[0] == b[1]:   # a positive int
        return _over(a[0], b[0]), _over(a[1], b[0])
    if b[0] < 0:
        return -INF, INF
    return min(a[0], 0), (a[1] if a[1] >= 0 else -1)   # the divisor is at least 1 wherever this has a value


def _mod(a: Interval, b: Interval) -> Interval:
    if b[0] < 0:
        return -INF, INF
    top = max(add(b[1], -1), 0)
    return 0, (min(top, a[1]) if a[0] >= 0 else top)


OF: dict[str, Callable[[Interval, Interval], Interval]] = {
    "//": _floordiv,
    "%": _mod,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}
