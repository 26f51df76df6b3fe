"""Calling a loaded program: the input gate, result arrays, workspaces, interruption, errors in the user's terms.

Every array passes `Gate.check` before a pointer is taken; `ffi.from_buffer` itself checks nothing.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ..dtypes import BOOL, DTYPES, FLOAT64, INT64, as_dtype, beyond, clean_bools, of_integers, overflows
from ..errors import BadValue, DTypeError, GraphdiffError, NodeTypeError, NoMemory, OutOfBounds, OutOfRange, ShapeError, compose, located_error, show_name
from ..graph.build import call_of, holds_nodes, unmasked
from ..graph.node import Node, describe
from ..graph.opdef import as_written, whereabouts
from ..lower.program import ARENA, CONSTANTS, FIRST, Program
from ..lower.view import View
from ..ops.gathers import written
from ..specs import MEMORY_NBYTES, format_shape, format_spec
from . import native

SLICE_NS = 20_000_000        # Ctrl-C is seen between slices: well under the 100 ms promised
_ndarray = np.ndarray
_empty, _from_buffer, _run = np.empty, native.from_buffer, native.run
_EXACT = 1 << 53            # floats have all integers up to here
_SMALL = 1 << 15            # bytes, and numbers that every float dtype holds
# Of each dtype, those whose values it has.
_WIDENS = {want: frozenset(have for have in DTYPES if have is not BOOL and np.can_cast(have, want, "safe")) for want in DTYPES}
_NO_CODE = frozenset((np.ndarray, float, int, bool))       # converting these runs no code of the caller's


class Gate:
    """What one input must be, and how other arrays are made into it."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, shape: tuple[Any, ...], dtype: Any) -> None:
        self.name = show_name(name)
        self.shape = shape
        self.dtype = dtype

    def check(self, value: Any, *, convert: bool = True, read: bool = True) -> Any:
        """A C-contiguous aligned native array of the declared dtype with the same values, or a clear error.

        Zero-copy when the array already is that. Only shape rank is left to the caller (sizes may be named). read: its elements are
        looked at (not those of an array for results).
        """
        if type(value) is _ndarray and value.dtype is self.dtype:
            flags = value.flags
            if flags.c_contiguous and flags.aligned:
                return self._clean(value, convert) if read and self.dtype is BOOL else value
        if convert and type(value) in _NO_CODE:
            ready = self._quick(value)
            if ready is not None:
                return ready
        return self._convert(value, convert, read)

    def _quick(self, value: Any) -> Any:
        """What `_convert` makes of the usual: another layout, a narrower dtype, a number. None: it has to decide."""
        want = self.dtype
        if type(value) is _ndarray:
            return value.astype(want, "C") if value.dtype in _WIDENS[want] and value.nbytes <= _SMALL else None
        if want.kind == "f" and (type(value) is float or (type(value) is int and -_EXACT <= value <= _EXACT)):
            return np.array(value, want) if want is FLOAT64 or -_SMALL <= value <= _SMALL else None
        return None

    def _convert(self, value: Any, convert: bool, read: bool) -> Any:
        if isinstance(value, Node):
            raise DTypeError(f"argument {self.name}: a node was given where numbers are needed")
        weak = not isinstance(value, (_ndarray, np.generic)) and not hasattr(value, "__array__") and not _is_buffer(value)
        want = self.dtype
        array = self._array(value, weak)
        if weak and array.dtype.kind in "Ou":
            array = self._of_integers(array)
        kind = array.dtype.kind
        if kind not in "biuf" or array.dtype.itemsize > 8 or (array.dtype.kind == "u" and array.dtype.itemsize == 8):
            raise DTypeError(f"argument {self.name}: {show_name(str(array.dtype))} given, {want.name} wanted"
                             + ("; convert complex numbers to their real part first" if kind == "c" else ""))
        have = as_dtype(array.dtype)
        if have is BOOL and read:
            array = self._clean(array, convert)
        if have is not want and not _castable(array, want, weak):
            raise DTypeError(f"argument {self.name}: {_why_not(array, want, weak)}")
        if array.size * want.itemsize > MEMORY_NBYTES:
            raise NoMemory(f"argument {self.name}: {array.size * want.itemsize} bytes, more than this machine has")
        own = isinstance(value, _ndarray)         # of a subclass, such as a memory map, a plain view
        if own and have is want and array.dtype == want and array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
            return array
        if not convert:
            raise DTypeError(f"argument {self.name}: needs a C-contiguous aligned native {want.name} array here, because it would "
                             "have to be converted at every call")
        return np.array(array, want, order="C", copy=True, subok=False)

    # Short, as all functions here with a handler: see Loaded._call_arrays.
    def _array(self, value: Any, weak: bool) -> Any:
        try:
            return np.asarray(unmasked(value, f"argument {self.name}"))
        except (ValueError, OverflowError) as error:
            if not weak:        # raised by the value's own __array__
                raise
            raise DTypeError(f"argument {self.name}: cannot make an array of it: {error}") from None
        except NodeTypeError:                   # of a node in it
            if not holds_nodes(value):
                raise
            raise DTypeError(f"argument {self.name}: a list that holds nodes was given where numbers are needed") from None

    def _of_integers(self, array: Any) -> Any:
        try:
            return of_integers(array, self.dtype)
        except OutOfRange as error:
            raise DTypeError(f"argument {self.name}: {error}") from None

    def _clean(self, array: Any, convert: bool) -> Any:
        clean = clean_bools(array)
        if clean is not array and not convert:
            raise DTypeError(f"argument {self.name}: bytes of bools are 0 or 1 here, because others would have to be converted at every call\n"
                             "  hint    array.view('uint8') != 0")
        return clean

    def wrong_shape(self, shape: tuple[int, ...]) -> ShapeError:
        return ShapeError(f"argument {self.name}: shape {format_shape(shape)} given, {format_shape(self.shape)} wanted")


def _is_buffer(value: Any) -> bool:
    """Does it have memory of a type of its own: a memoryview, an array.array, an array of ctypes?"""
    try:
        with memoryview(value):
            return True
    except (TypeError, ValueError, BufferError):
        return False


def _castable(array: Any, want: Any, weak: bool) -> bool:
    if weak:                                  # Python numbers and lists adapt, if no fraction is lost and they fit
        if array.size == 0:
            return True
        if want.kind == "f":
            return not overflows(array, want)
        low, high = (0, 1) if want.kind == "b" else (np.iinfo(want).min, np.iinfo(want).max)
        return array.dtype.kind in "biu" and low <= int(array.min()) and int(array.max()) <= high
    if want.kind == "f" and array.dtype.kind in "biu":
        return True
    return bool(np.can_cast(array.dtype, want, "safe"))


def _given(node: Node) -> list[tuple[str, tuple[str, str, str]]]:
    """Rows of an error about an index: the arrays and the indices as the caller gave them. What the call itself made, such as the zeros that
    segment_sum adds to, says nothing to anybody."""
    rows = []
    for i, x in enumerate(node.inputs):
        inner = None
        while inner is not x:
            inner = x
            x, _ = written(x)                # those of which none may count from the end
            moved = x.op.name in ("broadcast_to", "reshape") and call_of(x) == call_of(node) and x.site == node.site
            if x.name is None and (moved or x.op.name == "cast"):
                x = x.inputs[0]
        if x.op.name != "constant" or x.site != node.site:
            rows.append(("indices" if i == 1 or node.op.name == "ravel_index" else "operand", describe(x)))
    return rows


def _why_not(array: Any, want: Any, weak: bool) -> str:
    """What an error says of an array that is not castable."""
    if weak and want.kind == "f":
        with np.errstate(all="ignore"):
            odd = array[np.isinf(array.astype(want)) & np.isfinite(array)]
        return f"{odd.flat[0]!s} is beyond what {want.name} holds, which is up to {np.finfo(want).max:.2g}"
    if weak and array.dtype.kind in "biu":
        low = int(array.min())
        return beyond(low if low < 0 and low < (0 if want.kind in "bu" else np.iinfo(want).min) else int(array.max()), want)
    given = "np.asarray(value)" if weak else "array"
    return f"{array.dtype.name} given, {want.name} wanted\n  hint    {given}.astype({want.name!r}) if losing digits is meant"


_LARGE = 1 << 16        # bytes: smaller results come from memory that malloc keeps anyway


def new_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array that begins a cache line, a view of its `base`. NumPy's begin 16 bytes behind one, where each load of 64 bytes needs two lines.

    A large one of NumPy's begins 16 bytes behind the start of a page. A load waits for a store that is not done yet to the same place of
    another page, so that a result which begins up to 256 bytes further on in its page than an operand takes up to twice the time (relu of
    30,000 float32: 5.5 us, else 2.3; x y + z of 100,000: 30 us, else 20). Large ones begin half a page on, where those of NumPy do not.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > MEMORY_NBYTES:
        raise MemoryError
    place, step = (2048 + 64, 4096) if nbytes >= _LARGE else (0, 64)
    owner = np.empty(nbytes + step, np.uint8)
    start = (place - owner.__array_interface__["data"][0]) % step
    return owner[start:start + nbytes].view(dtype).reshape(shape)


def _new_result(shape: tuple[int, ...], dtype: Any) -> list[Any]:
    """[result, buffer its pointer is taken from, owner of its memory]. The result is a view: it cannot be resized."""
    try:
        r = new_array(shape, dtype)
    except MemoryError:
        raise NoMemory(f"no memory for a result, {format_spec(shape, dtype)}") from None
    return [r, native.from_buffer(r), r.base]


def _holders(kept: list[Any]) -> tuple[int, int]:
    """References to a result and to the owner of its memory, which is what views of the result hold."""
    return sys.getrefcount(kept[0]), sys.getrefcount(kept[2])


# What _holders says of a result that only a workspace holds; nothing can be said without the global lock.
_DROPPED = _holders(_new_result((1,), FLOAT64)) if getattr(sys, "_is_gil_enabled", lambda: True)() else (-1, -1)


def _is_free(kept: list[Any], shape: tuple[int, ...], dtype: Any) -> bool:
    """Has the caller dropped the result of an earlier call and left it as it was? New memory costs more than most kernels, each new page a
    fault."""
    if not kept or _holders(kept) != _DROPPED:
        return False
    r = kept[0]
    return bool(r.shape == shape and r.dtype is dtype and r.flags.writeable and r.flags.c_contiguous)


class Workspace:
    """One arena and one array of base pointers: one call at a time."""

    __slots__ = ("bases", "c", "cells", "fault", "job", "keep", "last", "numbers", "spare")

    def __init__(self, loaded: Loaded) -> None:
        self.c = loaded.handle.workspace(loaded.threads)
        self.bases = native.new("void *[]", max(1, loaded.handle.n_bases))
        self.fault = native.new("gd_fault *")
        self.job = native.new("gd_job *", (loaded.handle.c, self.c, self.bases, SLICE_NS, self.fault))
        for number, pointer in loaded.fixed:
            self.bases[number] = pointer
        # A number for a float64 scalar input goes into a double of our own: no array is made.
        self.cells = native.new("double[]", loaded.n_in)
        for i, scalar in enumerate(loaded.scalar):
            if scalar:
                self.bases[FIRST + i] = self.cells + i
        # Scalar results of one dtype are written side by side here and copied out together.
        self.numbers = [np.empty(len(places), dtype) for dtype, places in loaded.numbers]
        self.keep = [[native.from_buffer(a[k:k + 1]) for k in range(len(a))] for a in self.numbers]
        self.place_numbers(loaded)
        # Large results of the last call, in the caches, and of the one before: `y = f(x)` drops the one only when it has the other.
        self.last: dict[int, list[Any]] = {}
        self.spare: dict[int, list[Any]] = {}

    def place_numbers(self, loaded: Loaded) -> None:
        """Point the scalar results at their own memory."""
        first = FIRST + loaded.n_in
        for (_, places), pointers in zip(loaded.numbers, self.keep, strict=True):
            for i, pointer in zip(places, pointers, strict=True):
                self.bases[first + i] = pointer


class Loaded:
    """A program for one set of sizes, ready to be called from any thread."""

    __slots__ = ("all_scalars", "c", "fixed", "gates", "handle", "idle_nbytes", "keep", "large", "locks", "n_in", "numbers", "out_specs", "pick",
                 "pool", "program", "scalar", "shapes", "small", "states", "threads")

    def __init__(self, program: Program, gates: list[Gate], shapes: list[tuple[int, ...]], variables: list[Any], threads: int) -> None:
        self.program = program
        self.handle = native.load(program)
        self.gates = gates
        self.shapes = shapes
        self.threads = threads
        self.n_in = len(gates)
        self.out_specs = [(v.shape, v.dtype) for v in program.outputs]
        self.scalar = [g.dtype is FLOAT64 and s == () for g, s in zip(gates, shapes, strict=True)]
        by_dtype: dict[Any, list[int]] = {}
        for i, (shape, dtype) in enumerate(self.out_specs):
            if shape == ():
                by_dtype.setdefault(dtype, []).append(i)
        self.numbers = list(by_dtype.items())
        # All results are numbers of one dtype: takes them apart from the block they are copied out with (in C, for speed).
        whole = len(by_dtype) == 1 and len(self.numbers[0][1]) == len(self.out_specs)
        self.pick = itemgetter(*[(k, ...) for k in range(len(self.out_specs))]) if whole and len(self.out_specs) > 1 else None
        self.all_scalars = all(self.scalar)
        self.c = self.handle.c
        arrays = [(i, FIRST + self.n_in + i, s, d) for i, (s, d) in enumerate(self.out_specs) if s != ()]
        self.small = [a for a in arrays if math.prod(a[2]) * a[3].itemsize < _LARGE]
        self.large = [a for a in arrays if math.prod(a[2]) * a[3].itemsize >= _LARGE]
        self.idle_nbytes = program.arena_nbytes + 2 * sum([math.prod(s) * d.itemsize for _, _, s, d in self.large])    # of a workspace
        self.fixed = []
        self.states: list[Any] = []      # arrays that a run writes to: of the variables with an update
        self.keep = []
        self.pool: list[Workspace] = []
        first = FIRST + self.n_in + len(self.out_specs)
        for i, storage in enumerate(variables):
            buffer = native.from_buffer(storage.array)
            self.keep.append((buffer, storage))
            self.fixed.append((first + i, buffer))
        unique = {id(s): s for s in variables}
        self.locks = [s.lock for s in sorted(unique.values(), key=lambda s: s.number)]

    def call(self, args: Any, out: Any = None) -> Sequence[Any]:
        """Run on checked or unchecked arguments; returns one array an output."""
        try:
            w = self.pool.pop()
        except IndexError:
            w = Workspace(self)
        if self.all_scalars:
            for a in args:
                if type(a) is not float:
                    break
            else:
                w.cells[0:self.n_in] = args
                if out is None and self.pick is not None and not self.locks:
                    status = _run(w.job)
                    if status:
                        self._more(w, status)
                    results = self.pick(w.numbers[0].copy())
                    self.pool.append(w)      # not in a `finally`, see below: after an error it is simply dropped
                    return results
                args = ()      # they have been placed
        return self._call_arrays(w, args, out)

    # Short, as are all functions here with a `finally`: where it stands beyond instruction 256, CPython (3.11 to 3.13) never
    # leaves it when there is no memory left at all, since it has to make the number of the instruction.
    def _call_arrays(self, w: Workspace, args: Any, out: Any) -> Sequence[Any]:
        try:
            held = self.place(w, args)
            results = self._run_arrays(w) if out is None else self._run_into(w, out)
            del held
            return results
        finally:
            self.pool.append(w)

    def place(self, w: Workspace, args: Any) -> list[Any]:
        """Point at the arguments; the buffers are the caller's to keep, as long as the call and no longer."""
        held: list[Any] = []
        bases, scalar, states = w.bases, self.scalar, self.states
        for i, (a, gate, shape) in enumerate(zip(args, self.gates, self.shapes)):  # noqa: B905 - none, if they have been placed
            given = type(a)
            if scalar[i] and (given is float or given is np.float64):
                w.cells[i] = a
                continue
            a = gate.check(a)
            if given is not _ndarray and given not in _NO_CODE:
                # An __array__ ran, and may have resized what pointers were taken of: first all arguments, then pointers.
                rest = [g.check(b) for g, b in zip(self.gates[i + 1:], args[i + 1:], strict=True)]
                return self.place(w, [*args[:i], a, *rest])
            if a.shape != shape:
                raise gate.wrong_shape(a.shape)
            if states and not a.flags.writeable and self.is_state(a):
                a = a.copy()             # as it is now, whatever the run writes first
            if scalar[i]:
                w.cells[i] = a
            else:
                buffer = _from_buffer(a)
                held.append(buffer)
                bases[FIRST + i] = buffer
        return held

    def is_state(self, a: Any) -> bool:
        """Is it, whole or in part, what a run writes to? Users have read-only views of that."""
        return any(np.may_share_memory(a, s) for s in self.states)

    def _run_arrays(self, w: Workspace) -> list[Any]:
        """Run with results in new arrays, or in large ones of earlier calls that nobody holds any more."""
        bases = w.bases
        results: list[Any] = [None] * len(self.out_specs)
        for i, number, shape, dtype in self.small:
            results[i] = r = _empty(shape, dtype)
            bases[number] = _from_buffer(r)
        for i, number, shape, dtype in self.large:
            kept = w.last.get(i, [])
            if not _is_free(kept, shape, dtype):
                before, kept = kept, w.spare.get(i, [])
                if not _is_free(kept, shape, dtype):
                    kept = _new_result(shape, dtype)
                w.last[i], w.spare[i] = kept, before
            results[i], bases[number] = kept[0], kept[1]
        self.run(w)
        if self.numbers:
            for block, (_, places) in zip(w.numbers, self.numbers, strict=True):
                copy = block.copy()
                for k, i in enumerate(places):
                    results[i] = copy[k, ...]
        return results

    def _run_into(self, w: Workspace, out: Any) -> list[Any]:
        """Run with the results in the caller's arrays, which were checked."""
        try:
            buffers = []
            for r, (shape, _) in zip(out, self.out_specs, strict=True):
                if r.shape != shape:
                    raise ShapeError(f"out: an array of shape {format_shape(shape)} changed to {format_shape(r.shape)} during the call")
                buffers.append(_from_buffer(r))
            first = FIRST + self.n_in
            w.bases[first:first + len(buffers)] = buffers
            self.run(w)
            return list(out)
        finally:
            w.place_numbers(self)

    def run(self, w: Workspace) -> None:
        """Run with the pointers as they are, in slices, holding the locks of the variables."""
        for lock in self.locks:
            lock.acquire()
        try:
            status = _run(w.job)
            if status:
                self._more(w, status)
        finally:
            for lock in self.locks:
                lock.release()

    def _more(self, w: Workspace, status: int) -> None:
        # Ctrl-C, here or before the first line: nothing was committed, and the next call starts afresh.
        while status == native.MORE:
            status = native.proceed(w.job)
        if status != native.OK:
            raise self.error(w, status)

    def error(self, w: Workspace, status: int) -> BaseException:
        f = w.fault
        if status == native.NO_MEMORY:
            return NoMemory("no memory while a graphdiff function ran")
        node = self.program.instrs[f.instr][4] if 0 <= f.instr < len(self.program.instrs) else None
        site = None if node is None else node.site
        what, at = "" if node is None else f"{call_of(node)}: ", None if site is None else (str(site), site.source)
        error: GraphdiffError
        if status == native.OUT_OF_BOUNDS:
            error = OutOfBounds(compose(f"{what}index {as_written(f.value)} is out of bounds for axis {f.axis} with size {f.size}"
                                        f"{self._whereabouts(w)}", at=at, rows=[] if node is None else _given(node)))
        elif status == native.BAD_VALUE:
            rows = [] if node is None else [(f"operand {i}", describe(x)) for i, x in enumerate(node.inputs)]
            error = BadValue(compose(f"{what}integers to negative integer powers are not allowed (exponent {f.value})", at=at, rows=rows))
        else:
            error = GraphdiffError(f"status {status} at instruction {f.instr}")
        return error if at is None else located_error(error)

    def _whereabouts(self, w: Workspace) -> str:
        """Which of the indices of the instruction that failed it was: they are still where it read them."""
        f = w.fault
        op, _, ins, attrs, node = self.program.instrs[f.instr]
        number = f.axis - attrs[-1] if op == "ravel_index" else 1
        operands = () if node is None else node.inputs[-len(ins):] if op == "ravel_index" else node.inputs      # of a gather, its index
        if not 0 <= number < len(ins) or ins[number].dtype is not INT64 or len(operands) != len(ins):
            return ""
        view, shape = ins[number], operands[number].shape
        hits = self._read(w, view) == f.value
        if op in ("gather_along", "scatter_along"):      # the kernel's axis is the last one
            hits = hits.swapaxes(attrs[0], -1)
        if hits.size != math.prod(shape):      # broadcast here
            hits = hits[tuple([slice(0, 1) if s == 0 else slice(None) for s in view.strides])]
        return whereabouts(hits.reshape(shape)) if hits.size == math.prod(shape) else ""

    def _read(self, w: Workspace, view: View) -> Any:
        """What a view of a workspace holds now."""
        base, offset = self.program.where(view)
        start = native.arena(w.c) if base == ARENA else w.bases[base]
        if base == CONSTANTS:
            block = np.frombuffer(bytes(self.program.constants), np.uint8)
        else:
            steps = [(n - 1) * s * view.dtype.itemsize for n, s in zip(view.shape, view.strides, strict=True)]
            block = native.memory(start, offset + sum(s for s in steps if s > 0) + view.dtype.itemsize)
        strides = [s * view.dtype.itemsize for s in view.strides]
        return np.ndarray(view.shape, view.dtype, block, offset, strides) if 0 not in view.shape else np.zeros(view.shape, view.dtype)
