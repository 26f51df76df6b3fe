"""State: the array behind a variable, and the lock under which calls that share it take turns."""
from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from ..dtypes import as_dtype, clean_bools, of_integers, overflows, read_only
from ..errors import DTypeError, NodeTypeError, OutOfRange, ShapeError
from .build import VARIABLE, check_name, checked_array, leaf, public, unmasked
from .locks import renewed
from .node import Node

_number = itertools.count()


class Storage:
    """Owns one C-ordered array for as long as the variable lives; its memory never moves."""

    __slots__ = ("__weakref__", "array", "assigned", "lock", "number", "path", "shown")

    def __init__(self, array: Any) -> None:
        self.array = array.view(as_dtype(array.dtype))      # pickle makes new dtype objects
        self.shown = read_only(self.array)
        self.lock = renewed(threading.RLock())
        self.assigned = 0                # how often a value was put in from outside
        self.number = next(_number)      # locks are taken in this order, so two calls cannot wait for each other
        self.path = ""                   # where in a network it stands, for messages: several may have one name

    def view(self) -> Any:
        """The array as users see it, read-only for good."""
        return self.shown.view()

    def assign(self, value: Any) -> None:
        """Copy a new value in. Shape and dtype must be the variable's (integers that fit and Python numbers are converted)."""
        try:
            new = np.asarray(unmasked(value, "value"))
        except ValueError as error:
            raise DTypeError(f"value: cannot make an array of a {type(value).__name__}: {error}") from None
        if new.dtype.kind == "b":
            new = clean_bools(new)
        weak = type(value) in (float, int, list, tuple)
        if weak:
            try:
                new = of_integers(new, self.array.dtype)
            except OutOfRange as error:
                raise DTypeError(f"value: {error}") from None
        whole = new.dtype.kind in "iu" and self.array.dtype.kind in "iu"
        if new.dtype.kind == "O" or not (np.can_cast(new.dtype, self.array.dtype, "same_kind") or (weak and whole)):
            raise DTypeError(f"value: cannot store {new.dtype} in a variable of {self.array.dtype}\nhint: cast it with astype")
        if new.dtype.kind == "f" and new.dtype.itemsize > self.array.dtype.itemsize and not weak:
            raise DTypeError(f"value: {new.dtype} into {self.array.dtype} would lose digits\nhint: value.astype({self.array.dtype.name!r})")
        if new.shape != self.array.shape:
            raise ShapeError(f"value: shape {list(new.shape)} given, the variable has {list(self.array.shape)}")
        if whole and new.size and not np.can_cast(new.dtype, self.array.dtype, "safe"):
            info = np.iinfo(self.array.dtype)
            if int(new.min()) < info.min or int(new.max()) > info.max:
                raise DTypeError(f"value: {int(new.min())} to {int(new.max())} given, {self.array.dtype} holds {info.min} to {info.max}")
        if self.array.dtype.kind == "f" and overflows(new, self.array.dtype):
            raise DTypeError(f"value: some elements are beyond what {self.array.dtype} holds")
        self._store(new)

    def _store(self, new: Any) -> None:
        with self.lock:
            self.array[...] = new
            self.assigned += 1

    def __reduce__(self) -> Any:
        return Storage, (self.array.copy(),)


@public
def variable(value: Any, name: str | None = None) -> Node:
    """A variable with an initial value (copied). `v.value` is a read-only view; `v.value = array` sets it.

    Dtype and shape are the value's; integers of other widths become int64. Raises DTypeError for objects and text.
    """
    if isinstance(value, Node):
        raise NodeTypeError("a variable starts from an array, not from a node\nhint: gd.evaluate(node, {...}) gives one")
    check_name(name)
    array = checked_array(value, "value")
    return leaf(VARIABLE, Storage(array), array.shape, array.dtype, name)
