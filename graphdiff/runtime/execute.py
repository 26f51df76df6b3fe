"""Calling a loaded program: the input gate, result arrays, workspaces, interruption, errors in the user's terms.

Every array passes `Gate.check` before a pointer is taken; `ffi.from_buffer` itself checks nothing.
"""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..dtypes import FLOAT64, as_dtype
from ..errors import DTypeError, GraphdiffError, OutOfBounds, ShapeError, compose, show_name
from ..graph.node import Node, describe
from ..lower.program import FIRST, Program
from ..specs import format_shape
from . import native

SLICE_NS = 20_000_000        # Ctrl-C is seen between slices: well under the 100 ms promised
_ndarray = np.ndarray
_NO_CODE = frozenset((np.ndarray, float, int, bool))       # converting these runs no code of the caller's


def memory_cap() -> int:
    """Bytes one converted input may take: the machine's memory. Broadcast views can claim far more than exists."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 1 << 40


_CAP = memory_cap()


class Gate:
    """What one input must be, and how other arrays are made into it."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, shape: tuple[Any, ...], dtype: Any) -> None:
        self.name = show_name(name)
        self.shape = shape
        self.dtype = dtype

    def check(self, value: Any, *, convert: bool = True) -> Any:
        """A C-contiguous aligned native array of the declared dtype with the same values, or a clear error.

        Zero-copy when the array already is that. Only shape rank is left to the caller (sizes may be named).
        """
        if type(value) is _ndarray and value.dtype is self.dtype:
            flags = value.flags
            if flags.c_contiguous and flags.aligned:
                return value
        return self._convert(value, convert)

    def _convert(self, value: Any, convert: bool) -> Any:
        if isinstance(value, Node):
            raise DTypeError(f"argument {self.name}: a node was given where numbers are needed")
        if isinstance(value, np.ma.MaskedArray):
            raise DTypeError(f"argument {self.name}: masked arrays are not supported; use .filled(value)")
        weak = not isinstance(value, (_ndarray, np.generic)) and not hasattr(value, "__array__")
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError) as error:
            raise DTypeError(f"argument {self.name}: cannot make an array of it: {error}") from None
        kind = array.dtype.kind
        want = self.dtype
        if kind not in "biuf" or array.dtype.itemsize > 8 or (array.dtype.kind == "u" and array.dtype.itemsize == 8):
            raise DTypeError(f"argument {self.name}: {show_name(str(array.dtype))} given, {want.name} wanted"
                             + ("; convert complex numbers to their real part first" if kind == "c" else ""))
        have = as_dtype(array.dtype)
        if have is not want and not _castable(array, want, weak):
            raise DTypeError(f"argument {self.name}: {array.dtype.name} given, {want.name} wanted\n"
                             f"  hint    array.astype({want.name!r}) if losing digits is meant")
        if array.size * want.itemsize > _CAP:
            raise MemoryError(f"argument {self.name}: {array.size * want.itemsize} bytes, more than this machine has")
        ready = (array is value and have is want and array.dtype == want and array.flags.c_contiguous and array.flags.aligned
                 and array.dtype.isnative)
        if ready and type(array) is _ndarray:
            return array
        if not convert:
            raise DTypeError(f"argument {self.name}: needs a C-contiguous aligned native {want.name} array here, because it would "
                             "have to be converted at every call")
        return np.array(array, want, order="C", copy=True, subok=False)

    def wrong_shape(self, shape: tuple[int, ...]) -> ShapeError:
        return ShapeError(f"argument {self.name}: shape {format_shape(shape)} given, {format_shape(self.shape)} wanted")


def _castable(array: Any, want: Any, weak: bool) -> bool:
    if weak:                                  # Python numbers and lists adapt, if no fraction is lost and they fit
        if want.kind == "f" or array.size == 0:
            return True
        low, high = (0, 1) if want.kind == "b" else (np.iinfo(want).min, np.iinfo(want).max)
        return array.dtype.kind in "biu" and low <= int(array.min()) and int(array.max()) <= high
    if want.kind == "f" and array.dtype.kind in "biu":
        return True
    return bool(np.can_cast(array.dtype, want, "safe"))


class Workspace:
    """One arena and one array of base pointers: one call at a time."""

    __slots__ = ("bases", "c", "fault", "keep", "scalars", "staged")

    def __init__(self, loaded: Loaded) -> None:
        self.c = loaded.handle.workspace(loaded.threads)
        self.bases = native.new("void *[]", max(1, loaded.handle.n_bases))
        self.fault = native.new("gd_fault *")
        self.keep: list[Any] = [None] * loaded.handle.n_bases
        for number, pointer in loaded.fixed:
            self.bases[number] = pointer
        # A Python number for a float64 scalar input goes into a double of our own: no array is made.
        self.scalars = [native.new("double *") if s else None for s in loaded.scalar]
        self.staged = [False] * len(self.scalars)


class Loaded:
    """A program for one set of sizes, ready to be called from any thread."""

    __slots__ = ("fixed", "gates", "handle", "keep", "locks", "n_in", "out_specs", "pool", "program", "scalar", "shapes", "threads")

    def __init__(self, program: Program, gates: list[Gate], shapes: list[tuple[int, ...]], variables: list[Any], threads: int) -> None:
        self.program = program
        self.handle = native.load(program)
        self.gates = gates
        self.shapes = shapes
        self.threads = threads
        self.n_in = len(gates)
        self.out_specs = [(v.shape, v.dtype) for v in program.outputs]
        self.scalar = [g.dtype is FLOAT64 and s == () for g, s in zip(gates, shapes, strict=True)]
        self.fixed = []
        self.keep = []
        self.pool: list[Workspace] = []
        first = FIRST + self.n_in + len(self.out_specs)
        for i, storage in enumerate(variables):
            buffer = native.from_buffer(storage.array)
            self.keep.append((buffer, storage))
            self.fixed.append((first + i, buffer))
        unique = {id(s): s for s in variables}
        self.locks = [s.lock for s in sorted(unique.values(), key=lambda s: s.number)]

    def take(self) -> Workspace:
        try:
            return self.pool.pop()
        except IndexError:
            return Workspace(self)

    def call(self, args: Any, out: Any = None) -> list[Any]:
        """Run on checked or unchecked arguments; returns one array an output."""
        w = self.take()
        try:
            bases, keep = w.bases, w.keep
            gates, shapes, scalars, staged = self.gates, self.shapes, w.scalars, w.staged
            number = FIRST
            for i, a in enumerate(args):
                cell = scalars[i]
                if cell is not None and type(a) is float:
                    cell[0] = a
                    if not staged[i]:
                        bases[number] = cell
                        staged[i] = True
                else:
                    given = type(a)
                    a = gates[i].check(a)
                    if given not in _NO_CODE:
                        # An __array__ ran, and may have resized what pointers were taken of: first all arguments, then pointers.
                        rest = [g.check(b) for g, b in zip(gates[i + 1:], args[i + 1:], strict=True)]
                        return self.call([*args[:i], a, *rest], out)
                    if a.shape != shapes[i]:
                        raise gates[i].wrong_shape(a.shape)
                    buffer = native.from_buffer(a)
                    bases[number] = keep[number] = buffer
                    staged[i] = False
                number += 1
            results = []
            if out is None:
                for shape, dtype in self.out_specs:
                    r = np.empty(shape, dtype)
                    bases[number] = keep[number] = native.from_buffer(r)
                    results.append(r)
                    number += 1
            else:
                for r, (shape, _) in zip(out, self.out_specs, strict=True):
                    if r.shape != shape:
                        raise ShapeError(f"out: an array of shape {format_shape(shape)} changed to {format_shape(r.shape)} during the call")
                    bases[number] = keep[number] = native.from_buffer(r)
                    results.append(r)
                    number += 1
            self.run(w)
            return results
        finally:
            self.pool.append(w)

    def run(self, w: Workspace) -> None:
        """Run with the pointers as they are, in slices, holding the locks of the variables."""
        locks = self.locks
        for lock in locks:
            lock.acquire()
        try:
            status = native.run(self.handle.c, w.c, w.bases, SLICE_NS, w.fault)
            if status:
                self._more(w, status)
        finally:
            for lock in locks:
                lock.release()

    def _more(self, w: Workspace, status: int) -> None:
        try:
            while status == native.MORE:
                status = native.run(self.handle.c, w.c, w.bases, SLICE_NS, w.fault)
        except BaseException:
            native.lib.gd_restart(w.c)       # Ctrl-C: nothing was committed, the next call starts afresh
            raise
        if status != native.OK:
            raise self.error(w, status)

    def error(self, w: Workspace, status: int) -> BaseException:
        f = w.fault
        if status == native.NO_MEMORY:
            return MemoryError("no memory while a graphdiff function ran")
        node = self.program.instrs[f.instr][4] if 0 <= f.instr < len(self.program.instrs) else None
        at, rows = None, []
        what = "" if node is None else f"{node.op.name}: "
        if node is not None:
            site = node.site
            at = None if site is None else (str(site), site.source)
            rows = [(f"operand {i}", describe(x)) for i, x in enumerate(node.inputs)]
        if status == native.OUT_OF_BOUNDS:
            return OutOfBounds(compose(f"{what}index {f.value} is out of bounds for axis {f.axis} with size {f.size}", at=at, rows=rows))
        if status == native.BAD_VALUE:
            error: type[GraphdiffError] = DTypeError if node is None or node.op.name != "int_power" else ShapeError
            del error
            return GraphdiffValueError(compose(f"{what}integers to negative integer powers are not allowed (exponent {f.value})",
                                               at=at, rows=rows))
        return GraphdiffError(f"status {status} at instruction {f.instr}")


class GraphdiffValueError(GraphdiffError, ValueError):
    """A value an op refuses, found while running."""
