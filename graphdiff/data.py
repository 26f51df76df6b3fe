"""Mini-batches of arrays."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from .errors import NodeTypeError, ShapeError
from .graph.build import located, placed, public, unmasked
from .ops.families import flag


class Batches:
    """Goes over arrays in mini-batches, once for every `iter`; each time in another order when shuffling.

    The order depends on the key and the number of the pass alone. Batches are tuples in the order of the arrays (a dict's
    values for a dict give dicts). The last one is smaller when the size does not divide the data, unless drop_last.
    """

    @partial(placed, name=lambda _: "batches")
    def __init__(self, arrays: Any, size: int | Callable[[int], int], *, key: int = 0, shuffle: bool = True, drop_last: bool = False) -> None:
        self.names = list(arrays) if isinstance(arrays, Mapping) else None
        items = list(arrays.values()) if isinstance(arrays, Mapping) else list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
        self.arrays = [np.asarray(unmasked(a, f"array {i}")) for i, a in enumerate(items)]
        if not self.arrays:
            raise ShapeError("there are no arrays")
        for i, a in enumerate(self.arrays):
            if a.ndim == 0 or a.dtype.kind not in "biuf":
                raise NodeTypeError(f"array {i} is {a.dtype}{list(a.shape)}; numbers with a first axis are needed")
        lengths = [len(a) for a in self.arrays]
        if len(set(lengths)) != 1:
            raise ShapeError(f"the arrays have {', '.join(map(str, lengths))} samples; they must have as many")
        if lengths[0] == 0:
            raise ShapeError("the data set is empty")
        self.n = lengths[0]
        self.size, self.shuffle, self.drop_last = size, flag(shuffle, "shuffle"), flag(drop_last, "drop_last")
        self.key = _seed(key)
        self.epoch = 0
        self._size(0)

    def _size(self, epoch: int) -> int:
        size = self.size(epoch) if callable(self.size) else self.size
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise located(ShapeError(f"a size is a whole number, at least 1, not {size!r}"), "batches")
        if size > self.n:
            raise located(ShapeError(f"a batch of {size} is larger than the data, {self.n} samples"), "batches")
        return int(size)

    def __len__(self) -> int:
        """Number of batches of the next pass."""
        size = self._size(self.epoch)
        return self.n // size if self.drop_last else -(-self.n // size)

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        size = self._size(epoch)
        order = np.random.default_rng((self.key, epoch)).permutation(self.n) if self.shuffle else None
        stop = self.n - self.n % size if self.drop_last else self.n
        for start in range(0, stop, size):
            pick: Any = slice(start, start + size) if order is None else order[start:start + size]
            parts = [a[pick] for a in self.arrays]
            yield tuple(parts) if self.names is None else dict(zip(self.names, parts, strict=True))


def _seed(key: Any) -> int:
    """An int seed, or a constant key of gd.random.key."""
    attrs = getattr(key, "_attrs", None)
    if attrs is not None:
        if key.op.name != "constant":
            raise NodeTypeError("the key is an int or gd.random.key(int); other keys are known only when a function runs")
        if key.shape != (2,) or key.dtype.kind not in "iu":
            raise NodeTypeError(f"the key is an int or gd.random.key(int), not {key.spec}")
        low, high = (int(v) for v in attrs[0])
        return high << 32 | low
    if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
        raise NodeTypeError(f"the key is an int or gd.random.key(int), not {type(key).__name__}")
    return int(key) & 0xFFFFFFFFFFFFFFFF


@public
def batches(arrays: Any, size: int | Callable[[int], int], *, key: int = 0, shuffle: bool = True, drop_last: bool = False) -> Batches:
    """Mini-batches of arrays with one first axis: for x, t in gd.data.batches([xs, ts], 64, key=0).

    size: samples in a batch, or a function of the epoch (optim.schedules.growing_batch). key: an int or gd.random.key(int).
    Functions whose inputs have a named first size take the smaller last batch too. Raises ShapeError for an empty data set,
    arrays of several lengths, and a batch larger than the data.
    """
    return Batches(arrays, size, key=key, shuffle=shuffle, drop_last=drop_last)


__all__ = ["Batches", "batches"]
