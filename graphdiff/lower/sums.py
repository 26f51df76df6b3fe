"""Sums that become instructions of rows (rows.py): which there are, of rows or of columns, and when one of columns alone is worth it."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..dtypes import FLOAT32, FLOAT64
from .view import View, contiguous_strides, count

# Shorter rows are not worth a call each, longer ones are more than the C core takes (rows.h); more than so many elements of lanes
# for every column do not stay in cache: that is slower than sums by themselves where sums of rows are taken, too (ALONE: where they are not,
# four rows are added to lanes at once, which saves more than the lanes cost; var along axis 0 of 100 x 16384 float64: 3370 us, so 2100).
SHORTEST, LONGEST, WIDEST, WIDEST_ALONE = 16, 1 << 20, 8192, 65536
# Sums of columns alone, of an array that would take the place of its operands in a core's caches: at least so many rows and columns
# (APART: where rows do not follow each other in memory, so that each is a call), and bytes; and bytes where it is made twice. (Sums of
# squares of 256 x 256 float64: 9.7 us, of an array of squares 19; softmax along axis 0 with its gradient, which makes an array twice,
# float32: of 1200 KB 0.96 of the time without, of 4 MB 1.12.)
TALL, WIDE, WIDE_APART, LARGE, LARGE_TWICE = 64, 8, 128, 1 << 17, 1 << 21
# A group with sums is done row by row, and a row takes about 40 ns whatever its length: many rows of fewer bytes are better
# summed up by an instruction of their own, which does several at once. Of arrays larger than a cache, writing and reading
# them once more weighs more.
SHORT_ROW, SHORT_ROW_FAR, FAR, FEW_ROWS = 4096, 512, 4 << 20, 8
# Of rows of so many bytes or more, an instruction of rows makes what it sums up itself (ONCE: where an operand is a row that is the same for
# all, which is copied for each of a batch). (Sums of squares of 1000 x 64 float32: 9 us, of an array of squares 11.5; of 50000 x 100
# float32 910 instead of 1880.)
LEAST_ROW, LEAST_ROW_ONCE = 256, 400
# Arrays of which two or three fit in the last cache, but not all of a large group: one operation after the other finds
# its operands there, and a group that only shares one of them with what joins would push them out. Measured with 32 MiB.
CROWD = 24 << 20
# What the core does to tiles in registers, where a value of a row costs nothing; other operations take it as a block that is
# filled with it, which is only worth while when several sums save passes over memory.
LINKS = frozenset(("add", "subtract", "multiply", "zmul", "zmul_either", "divide", "negative", "square"))


class Domain(NamedTuple):
    """Arrays of `shape` cut into rows along `axes`, the dtype of sums, and what follows from these. Made by `domain`."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: Any
    kept: tuple[int, ...]                # the other axes
    order: tuple[int, ...]               # kept axes, then those of a row
    kept_shape: tuple[int, ...]
    row_shape: tuple[int, ...]
    rows: int                            # how many there are
    n: int                               # elements of a row
    long_kept: frozenset[int]            # axes without those of size 1
    long_axes: frozenset[int]
    turned: bool                         # do the rows lack the last axis?
    strides: tuple[int, ...]             # of an array that is contiguous, and of one value for each row
    kept_strides: tuple[int, ...]

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        return tuple([self.shape[a] for a in axes])


@lru_cache(256)                              # a program has few
def domain(shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any) -> Domain:
    kept = tuple([i for i in range(len(shape)) if i not in axes])
    kept_shape, row_shape = (tuple([shape[a] for a in some]) for some in (kept, axes))
    long = [i for i, n in enumerate(shape) if n != 1]
    return Domain(shape, axes, dtype, kept, (*kept, *axes), kept_shape, row_shape, count(kept_shape), count(row_shape),
                  frozenset(long).intersection(kept), frozenset(long).intersection(axes), bool(long) and long[-1] in kept,
                  contiguous_strides(shape), contiguous_strides(kept_shape))


def row_domain(instr: Any) -> Domain | None:
    """The rows that an instruction sums up; None if they are none or too short or long."""
    op, _, (v, *_), _, node = instr
    if op != "sum" or node is None or node.op.name != "sum" or v.dtype not in (FLOAT32, FLOAT64):
        return None
    d = domain(node.inputs[0].shape, node._attrs[0], v.dtype)
    if not SHORTEST <= d.n <= LONGEST or d.rows <= 1 or v.shape != d.kept_shape + d.row_shape or (d.turned and not runs_along(v)):
        return None
    return d


def runs_along(v: View) -> bool:
    """Does memory run along the last axis?"""
    return next((s for s, n in zip(reversed(v.strides), reversed(v.shape), strict=True) if n != 1), 0) == 1


def column_domain(instr: Any) -> Domain | None:
    """The rows of an array, if it is large, of which an instruction sums up the columns."""
    _, _, (v, *_), _, node = instr
    if node is None or node.op.name != "sum" or v.dtype not in (FLOAT32, FLOAT64):
        return None
    shape, axes = node.inputs[0].shape, node._attrs[0]
    long = [i for i, n in enumerate(shape) if n != 1]
    summed = [i for i in long if i in axes]
    if not summed or summed == long or summed != long[:len(summed)]:
        return None
    d = domain(shape, tuple([i for i in range(len(shape)) if i not in axes]), v.dtype)
    return d if WIDE <= d.n <= WIDEST_ALONE and d.rows >= TALL and d.rows * d.n * v.dtype.itemsize >= LARGE else None


def is_middling(d: Domain) -> bool:
    """Rows too short for a fused group, or just long enough, and long enough for the lanes of several rows not to be what takes the time."""
    row = d.n * d.dtype.itemsize
    far = d.rows * row > FAR
    return not d.turned and d.rows > FEW_ROWS and LEAST_ROW <= row < (SHORT_ROW_FAR + 1 if far else SHORT_ROW)


def is_still(v: View) -> bool:
    for s, n in zip(v.strides, v.shape, strict=True):
        if s and n != 1:
            return False
    return True


def _is_along(v: View, d: Domain) -> bool:
    """Elements lie in the order of the rows, or are the same for all of a row or for all rows; others would have to be gathered."""
    if v.contiguous or v.shape != d.shape:
        return v.contiguous
    steps = contiguous_strides(d.row_shape)
    row = [(v.strides[a], s) for a, s in zip(d.axes, steps, strict=True) if d.shape[a] != 1]
    return all(s == 0 for s, _ in row) or (_is_row(v, d) and all(s == want for s, want in row))


def _is_row(v: View, d: Domain) -> bool:
    """The same elements for all rows?"""
    return v.shape == d.shape and not any(v.strides[a] for a in d.kept if d.shape[a] != 1)


def saves_products(instrs: Sequence[Any], j: int, i: int, d: Domain, readers: Mapping[int, Sequence[int]], makers: Mapping[int, int],
                   writes: Sequence[int], fixed: Collection[int], size: Callable[[Any], int]) -> list[int]:
    """What is better done in the sum i, of columns or of rows, than that it has an array: instruction j, which is done again in what else reads
    it, or one before it, that only j reads, and j; or nothing. size: as Finder.size."""
    by_rows = set(instrs[i][4]._attrs[0]) == set(d.axes)
    row_nbytes = d.n * d.dtype.itemsize

    def fits(v: View) -> bool:
        """Of a sum of rows, an operand that is neither gathered nor filled."""
        return v.contiguous or (_is_row(v, d) and row_nbytes >= LEAST_ROW_ONCE)

    def linked(n: int) -> bool:
        op, (out, *_), ins, _, _ = instrs[n]
        whole = [v for v in ins if not is_still(v)]
        return op in LINKS and out.buffer not in fixed and size(instrs[n]) > 0 and all(_is_along(v, d) for v in whole) \
            and (not by_rows or all(fits(v) for v in ins)) \
            and all(v.dtype is d.dtype and (v.buffer < 0 or writes[v.buffer] == 1) for v in (*ins, out)) \
            and (d.n >= WIDE_APART or all(v.contiguous or _is_row(v, d) for v in whole))

    def before(n: int) -> list[int]:
        """Elementwise instructions that make operands, of the size of the array, for n alone."""
        found = [makers.get(v.buffer, -1) for v in instrs[n][2] if v.buffer >= 0 and len(readers[v.buffer]) == 1]
        return [k for k in found if k >= 0 and size(instrs[k]) == d.rows * d.n]

    others = [k for k in readers[instrs[j][1][0].buffer] if k != i]
    if not linked(j) or any(k < i or size(instrs[k]) != d.rows * d.n for k in others):
        return []
    chain = [*before(j), j]
    if len(chain) > 1 and (len(chain) > 2 or others or not linked(chain[0]) or before(chain[0])):
        return []                                # more of them: better one group before the sum
    whole = [v for v in instrs[chain[0]][2] if not is_still(v)]
    # arrays that would have to stay for it, in the place of the one that is saved
    dying = sum([v.buffer >= 0 and v.buffer not in fixed and max(readers[v.buffer]) == chain[0] for v in whole])
    nbytes = d.rows * row_nbytes
    return chain if dying < 2 and (not others or (nbytes >= LARGE_TWICE and nbytes * len(whole) <= CROWD)) else []
