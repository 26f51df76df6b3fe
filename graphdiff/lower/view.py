"""Views: where an operand lives and how it is laid out. Reshapes, transposes, slices and broadcasts are only that.

A view names a buffer (a number >= 0: in the arena, placed later; below 0: base -1 - buffer, given from outside), an
offset in bytes, sizes, and strides in elements.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any


@lru_cache(1024)                             # a program has few shapes
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """C-order strides in elements."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(strides))


count: Callable[[Sequence[int]], int] = prod         # elements


def usage(instrs: Sequence[Any], n: int) -> tuple[list[int], list[int]]:
    """How many operands of the instructions read, and how many write, each of the n buffers of the arena."""
    uses, writes = [0] * n, [0] * n
    for _, outs, ins, _, _ in instrs:
        for v in ins:
            b = v.buffer
            if b >= 0:
                uses[b] += 1
        for v in outs:
            b = v.buffer
            if b >= 0:
                writes[b] += 1
    return uses, writes


# Elements of an array, from which on kernels are given a copy of it if it is scattered, which is made box by box: 200 x 30 x 64 float64 with
# its axes reversed are squared in 3800 us row by row, in 800 with the copy. Of rows side by side only those: longer ones gain nothing.
SCATTERED = 1024
SHORT_ROW_NBYTES = 16
SHORT_SIDE = 8                               # of a block that a copy turns: two such sides cost a copy as much as the kernel
TILED = 128, 8                               # a side of matrices that kernels read in tiles as fast as a copy; of 8 bytes an element
CROSSED = 4096                               # elements of an array, from which on lines that others lie across are worth a copy
FEW_LINES = 64                               # RED_SPLIT of csrc/kernels/reduce_plan.h


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Do elements lie side by side in C order? Not when `contiguous_strides` has other strides for an axis of several elements."""
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != step and 0 not in shape:
            return False
        step *= n
    return True


class View:
    """A strided view of a buffer; never changed once made (index caches its row in the packed table; the layout, which fusion asks for again
    and again, is cached too). contiguous: elements lie side by side in C order."""

    __slots__ = ("_layout", "buffer", "contiguous", "dtype", "index", "offset", "shape", "strides")

    def __init__(self, buffer: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any,
                 contiguous: bool | None = None) -> None:
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.index = -1
        if contiguous is None:
            contiguous = strides == contiguous_strides(shape) or _is_contiguous(shape, strides)
        self.contiguous = contiguous
        self._layout: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        where = f"b{self.buffer}" if self.buffer >= 0 else f"base{-1 - self.buffer}"
        return f"{where}+{self.offset} {self.dtype.name}{list(self.shape)} strides {list(self.strides)}"

    @property
    def layout(self) -> tuple[Any, ...]:
        """Equal for views that give the same elements: size-1 axes do not count, nor the shape of a flat view."""
        found = self._layout
        if found is None:
            if self.contiguous:
                found = self.buffer, self.offset, self.dtype, True
            else:
                strides = tuple([s for s, n in zip(self.strides, self.shape, strict=True) if n != 1])
                found = (self.buffer, self.offset, self.dtype, self.shape, strides) if any(strides) else (self.buffer, self.offset, self.dtype, False)
            self._layout = found
        return found

    @property
    def scattered(self) -> bool:
        """Three axes or more that go on from each other nowhere in memory, with rows that are short or whose elements lie apart."""
        if len(self.shape) < 3:
            return False
        axes: list[tuple[int, int]] = []
        for n, s in zip(self.shape, self.strides, strict=True):
            if n == 1:
                continue
            if axes and axes[-1][1] == n * s:
                axes[-1] = (axes[-1][0] * n, s)
            else:
                axes.append((n, s))
        if len(axes) < 3 or count(self.shape) < SCATTERED or not all(s for _, s in axes):
            return False
        n, step = axes[-1]
        if abs(step) == 1:
            return n * self.dtype.itemsize <= SHORT_ROW_NBYTES
        m, least = min(axes, key=lambda axis: abs(axis[1]))
        if max(m, n) < SHORT_SIDE or abs(step) == 2:     # a copy moves blocks of the two: many tiny ones; every other element is read well
            return False
        return abs(axes[-2][1]) != least or min(m, n) < TILED[self.dtype.itemsize == 8]

    @property
    def crossed(self) -> bool:
        """Do neighbours in memory lie along neither of the last two axes?"""
        steps = [abs(s) for n, s in zip(self.shape, self.strides, strict=True) if n > 1]
        return len(steps) > 2 and 0 not in steps and min(steps) < min(steps[-2:]) and count(self.shape) >= CROSSED

    def stored_order(self, kept: int) -> list[int]:
        """The first `kept` axes, those that are closer in memory last if they are fewer lines than a kernel likes: a reduction makes its
        result in this order, and turns it. (any() over axis 0 of 13 x 624 x 2, the other two exchanged: 71 us line by line, 7 so.)"""
        axes = [i for i in range(kept) if self.shape[i] > 1]
        order = sorted(axes, key=lambda i: -abs(self.strides[i]))
        if order == axes or self.shape[order[-1]] >= FEW_LINES or 0 in self.strides or count(self.shape) < SCATTERED:
            return list(range(kept))
        return [*[i for i in range(kept) if self.shape[i] <= 1], *order]

    def with_layout(self, shape: Any, strides: Any, shift: int = 0) -> View:
        offset = self.offset + shift * self.dtype.itemsize if shift else self.offset
        return View(self.buffer, offset, tuple(shape), tuple(strides), self.dtype)

    def transpose(self, axes: Any) -> View:
        """Axis i of the result is axis axes[i] of this view."""
        axes = tuple(axes)
        if axes == tuple(range(len(axes))):
            return self
        return self.with_layout([self.shape[a] for a in axes], [self.strides[a] for a in axes])

    def slice(self, starts: Any, steps: Any, sizes: Any) -> View:
        """Elements start, start + step, ... of every axis. A start outside an empty axis does not move the pointer."""
        # A step of an axis of one element leads nowhere, and may be larger than any stride.
        strides = [s * t if n > 1 else s for n, s, t in zip(sizes, self.strides, steps, strict=True)]
        if 0 in sizes:
            return self.with_layout(sizes, strides)
        return self.with_layout(sizes, strides, sum(a * s for a, s in zip(starts, self.strides, strict=True)))

    def broadcast(self, shape: Any) -> View:
        """NumPy's broadcasting: missing leading axes and axes of size 1 get stride 0."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        if not any(self.strides):                # one value for all
            return View(self.buffer, self.offset, shape, (0,) * len(shape), self.dtype)
        lead = len(shape) - len(self.shape)
        strides = (0,) * lead + tuple([0 if n == 1 and m != 1 else s for n, m, s in zip(self.shape, shape[lead:], self.strides, strict=True)])
        return View(self.buffer, self.offset, shape, strides, self.dtype)

    def diagonal(self, axis1: int, axis2: int, offset: int = 0) -> View:
        """Both axes replaced by one at the end that runs along the diagonal, as numpy.diagonal."""
        n1, n2 = self.shape[axis1], self.shape[axis2]
        n = max(0, min(n1 + min(offset, 0), n2 - max(offset, 0)))
        shift = (max(offset, 0) * self.strides[axis2] - min(offset, 0) * self.strides[axis1]) if n and 0 not in self.shape else 0
        rest = [i for i in range(len(self.shape)) if i not in (axis1, axis2)]
        return self.with_layout([self.shape[i] for i in rest] + [n],
                                [self.strides[i] for i in rest] + [self.strides[axis1] + self.strides[axis2]], shift)

    def reshape(self, shape: Any) -> View | None:
        """The same elements in C order under another shape, or None when that needs a copy."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        if self.contiguous or count(shape) == 0:
            return View(self.buffer, self.offset, shape, contiguous_strides(shape), self.dtype, True)
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[int] = []
        i = j = 0
        new = [n for n in shape if n != 1]
        while j < len(new):
            rows, cols = new[j], old[i][0]
            first, last = i, j
            while rows != cols:                 # smallest groups of axes with the same number of elements
                if rows < cols:
                    j += 1
                    rows *= new[j]
                else:
                    i += 1
                    cols *= old[i][0]
            for k in range(first, i):           # the old axes of a group must be evenly spaced
                if old[k][1] != old[k + 1][0] * old[k + 1][1]:
                    return None
            step = old[i][1]
            group = []
            for k in range(j, last - 1, -1):
                group.append(step)
                step *= new[k]
            strides += reversed(group)
            i, j = i + 1, j + 1
        it = iter(strides)
        full = [next(it) if n != 1 else 0 for n in shape]
        return self.with_layout(shape, full)
