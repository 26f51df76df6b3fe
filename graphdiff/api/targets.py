"""Arrays of the caller's that results are written to: what they must be, and whether a run may write to them directly.

Arrays are compared by the bytes they span, in sorted order: a call with hundreds of results compares no array with every other.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, NodeTypeError, ShapeError
from ..runtime.native import address

Span = tuple[int, int]      # first byte, and the byte behind the last
FEW = 6                     # comparisons of two arrays that take less time than to sort what they span


def in_structure(keys: Any, out: Any, n: int) -> list[Any]:
    """The n arrays of `out`, which has the structure that the outputs were given in (see Function.keys)."""
    if keys is None:
        out = list(out) if isinstance(out, (list, tuple)) and len(out) == 1 else [out]
    elif keys is tuple:
        if not isinstance(out, (list, tuple)):
            raise NodeTypeError(f"out: a list of {n} arrays is needed, not {type(out).__name__}")
        out = list(out)
    else:
        if not isinstance(out, Mapping) or set(out) != set(keys):
            raise NodeTypeError(f"out: a dict with the keys {list(keys)} is needed")
        out = [out[k] for k in keys]
    if len(out) != n:
        raise ShapeError(f"out: {n} arrays needed, {len(out)} given")
    return list(out)


def called(keys: Any, i: int) -> str:
    """What target i is to the caller: keys as of in_structure."""
    return f"out[{i if keys is None or keys is tuple else keys[i]!r}]"


def check_targets(targets: Sequence[Any], specs: Sequence[tuple[tuple[int, ...], Any]], keys: Any = tuple) -> bool:
    """Are all plain contiguous arrays, which a run can write to? Raises where one is not what it must be, or two share memory."""
    plain = True
    for i, (t, (shape, dtype)) in enumerate(zip(targets, specs, strict=True)):
        if type(t) is np.ndarray and t.dtype is dtype and t.shape == shape:
            flags = t.flags
            if flags.c_contiguous and flags.writeable and flags.aligned:
                continue
        plain = _check_odd(called(keys, i), t, shape, dtype) and plain
    check_apart(targets, keys)
    return plain


def _check_odd(name: str, t: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    if not isinstance(t, np.ndarray) or isinstance(t, np.ma.MaskedArray):
        raise NodeTypeError(f"{name}: an array is needed, not {type(t).__name__}")
    if t.dtype != dtype or not t.dtype.isnative:
        raise DTypeError(f"{name}: dtype {t.dtype} given, {dtype.name} needed")
    if t.shape != shape:
        raise ShapeError(f"{name}: shape {list(t.shape)} given, {list(shape)} needed")
    if not t.flags.writeable:
        raise ShapeError(f"{name}: the array is read-only")
    if not t.flags.c_contiguous and _folds(t):
        raise ShapeError(f"{name}: elements of the array share memory with one another")
    return t.flags.c_contiguous and t.flags.aligned and type(t) is np.ndarray


def _folds(a: np.ndarray[Any, Any]) -> bool:
    """Two of its elements share bytes."""
    reach = a.itemsize
    for step, n in sorted((abs(s), n) for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
        if step < reach:                        # not nested: every element has to be looked at
            at = np.zeros(1, np.int64)
            for s, m in zip(a.strides, a.shape, strict=True):
                at = (at[:, None] + s * np.arange(m)).ravel()
            at.sort()
            return bool((np.diff(at) < a.itemsize).any())
        reach = step * (n - 1) + reach
    return False


def _span(a: np.ndarray[Any, Any]) -> Span:
    if not a.size:
        return 0, 0
    if a.flags.c_contiguous:
        first = address(a)
        return first, first + a.nbytes
    first = last = a.__array_interface__["data"][0]
    for step, n in zip(a.strides, a.shape, strict=True):
        if step < 0:
            first += step * (n - 1)
        else:
            last += step * (n - 1)
    return first, last + a.itemsize


def check_apart(targets: Sequence[Any], keys: Any = tuple) -> None:
    """Raise ShapeError if two of them have a byte in common: what they span may meet where their elements do not."""
    if len(targets) < 2:
        return
    spans = sorted([(*_span(t), i) for i, t in enumerate(targets)])
    near: list[tuple[int, int, int]] = []       # those before that reach beyond where the next begins
    for here in spans:
        if near:
            near = [s for s in near if s[1] > here[0]]
            for s in near:
                if np.shares_memory(targets[s[2]], targets[here[2]], max_work=-1):
                    i, j = sorted((s[2], here[2]))
                    raise ShapeError(f"{called(keys, j)} and {called(keys, i)} overlap in memory")
        near.append(here)


def share_memory(targets: Sequence[Any], others: Sequence[Any]) -> bool:
    """Does what one of the targets spans, which are apart from each other, meet what another array does?"""
    if len(targets) * len(others) <= FEW:
        return any(np.may_share_memory(t, a) for t in targets for a in others)
    spans = sorted([_span(t) for t in targets])
    starts, ends, reach = [s[0] for s in spans], [], 0
    for _, end in spans:
        reach = max(reach, end)
        ends.append(reach)                      # the farthest of all that begin no later
    for a in others:
        first, end = _span(a)
        at = bisect_left(starts, end)
        if at and ends[at - 1] > first:
            return True
    return False
