"""The only importer of the cffi module: packs programs into the C tables and wraps what C answers."""
from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import TYPE_CHECKING, Any

from ..dtypes import CODE
from ..errors import GraphdiffError, NoMemory, ProgramError
from ..lower.program import FIRST, GROUPS, SECTIONS, Program
from . import _native
from ._native import ffi, lib

OPCODE: dict[str, int] = {ffi.string(lib.gd_op_name(i)).decode(): i for i in range(lib.gd_op_count())}
ELEMENTWISE = frozenset(name for name, code in OPCODE.items() if lib.gd_op_arity(code) >= 0)
OK, MORE, NO_MEMORY, BAD_PROGRAM, OUT_OF_BOUNDS, BAD_VALUE = range(6)


def _call_type() -> Any:
    """csrc/python/call.h: a module of its own that stands in the library of the cffi module."""
    loader = ExtensionFileLoader("graphdiff.runtime._call", _native.__file__)
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module.Call


if TYPE_CHECKING:
    class Call:
        """Runs a job, given by its address, and returns `outputs`. resume(status) goes on with a run that is not done, or raises;
        instead: what is called in the place of running, or None."""
        outputs: Any

        def __init__(self, job: int, outputs: Any, resume: Callable[[int], None], instead: Callable[[], None] | None) -> None: ...
        def __call__(self) -> Any: ...
else:
    Call = _call_type()
run = lib.gd_run_job
proceed = lib.gd_continue_job
from_buffer = ffi.from_buffer
new = ffi.new
NULL = ffi.NULL


def address(array: Any) -> int:
    """Of the first byte of a C-contiguous array."""
    return place(from_buffer(array))


def place(pointer: Any) -> int:
    """The address that a pointer of cffi is."""
    return int(ffi.cast("uintptr_t", pointer))


def isa() -> str:
    """Name of the kernel table in use."""
    return str(ffi.string(lib.gd_isa()).decode())


def isas() -> list[tuple[str, bool]]:
    """(name, this CPU has it) of every compiled kernel table."""
    return [(ffi.string(lib.gd_isa_name(i)).decode(), bool(lib.gd_isa_supported(i))) for i in range(lib.gd_isa_count())]


def peak(dtype: Any, rounds: int) -> float:
    """Floating-point operations done by so many rounds of multiply-adds in registers: time the call for the peak of a core."""
    return float(lib.gd_peak(CODE[dtype], rounds))


def force_isa(name: str) -> None:
    """Use a kernel table by name; GraphdiffError lists what there is."""
    if lib.gd_force_isa(name.encode("ascii", "replace")) != OK:
        have = ", ".join(n for n, ok in isas() if ok)
        raise GraphdiffError(f"GRAPHDIFF_ISA: {name!r} is not available on this machine; it has {have}")


if os.environ.get("GRAPHDIFF_ISA"):
    force_isa(os.environ["GRAPHDIFF_ISA"])


class Handle:
    """A verified C program. Freed with the object."""

    __slots__ = ("c", "n_bases")

    def __init__(self, c: Any, n_bases: int) -> None:
        self.c = c
        self.n_bases = n_bases

    def workspace(self, threads: int) -> Any:
        """A workspace for one call at a time; NoMemory when the arena cannot be had."""
        out = new("gd_workspace **")
        status = lib.gd_workspace_new(self.c, threads, out)
        if status != OK:
            raise NoMemory("no memory for the arena of a graphdiff function")
        return ffi.gc(out[0], lib.gd_workspace_free)

    @property
    def nbytes(self) -> int:
        return int(lib.gd_program_nbytes(self.c))


def arena(workspace: Any) -> Any:
    """The memory of intermediate values of a workspace."""
    return lib.gd_workspace_arena(workspace)


def memory(pointer: Any, nbytes: int) -> Any:
    """So many bytes from a pointer on, as a buffer."""
    return ffi.buffer(ffi.cast("char *", pointer), nbytes)


def order(first: list[int], operands: list[int], nbytes: list[int], flags: bytes, outputs: list[int], least: int) -> tuple[int, Sequence[int] | None, int]:
    """(bytes at once of nodes in the order of their numbers, the order depth first, the bytes of that) as gd_order; without the latter two, None
    and -1, where fewer than `least` are needed."""
    n = len(nbytes)
    tables = array("i", first), array("i", operands), array("q", nbytes), array("i", outputs)
    spec = new("gd_order_spec *")
    spec.n, spec.n_output, spec.least_nbytes = n, len(outputs), least
    buffers = [from_buffer("int32_t[]", tables[0]), from_buffer("int32_t[]", tables[1]) if operands else NULL, from_buffer("int64_t[]", tables[2]),
               from_buffer("int32_t[]", tables[3]), from_buffer("uint8_t[]", flags)]
    spec.first, spec.operand, spec.nbytes, spec.output, spec.flags = buffers
    found, numbers = array("i", bytes(4 * n)), new("int64_t[3]")
    status = lib.gd_order(spec, from_buffer("int32_t[]", found), numbers, numbers + 1, numbers + 2)
    if status == NO_MEMORY:
        raise NoMemory("no memory for the order of a graphdiff program")
    assert status == OK
    count, own, deep = numbers
    return own, None if count < 0 else found[:count], deep


def load(program: Program) -> Handle:
    """Pack, verify and prepare a program. ProgramError says which instruction was refused and why."""
    layouts: dict[Any, int] = {}
    row_lines: dict[int, list[int]] = {}        # by id of the lines: groups of one form have the same (rows_group.py)
    places = program.places
    n_views = 0
    instr_rows: list[int] = []
    arg_rows: list[int] = []
    view_rows: list[int] = []
    dim_rows: list[int] = []
    attr_rows: list[int] = []
    for op, outs, ins, options, _ in program.instrs:
        integers: Sequence[int] = options
        if op == "fused":
            integers = _group_lines(options, outs, ins)
        elif op == "rows":
            if id(options) not in row_lines:
                row_lines[id(options)] = _row_lines(options)
            integers = row_lines[id(options)]
        first = len(arg_rows)
        for v in outs + ins:
            if v.index < 0:
                shape = v.shape
                key = (shape, v.strides)
                at = layouts.get(key)
                if at is None:
                    at = layouts[key] = len(dim_rows)
                    dim_rows += shape
                    dim_rows += v.strides
                b = v.buffer
                if b >= 0:
                    place = places[b]
                    base, offset = (0, place + v.offset) if place >= 0 else (-1 - place, v.offset)
                else:
                    base, offset = -1 - b, v.offset
                view_rows += (base | CODE[v.dtype] << 32, len(shape) | at << 32, offset)
                v.index = n_views
                n_views += 1
            arg_rows.append(v.index)
        instr_rows += (OPCODE[op], len(outs), len(ins), first, len(attr_rows), len(integers))
        if integers:
            attr_rows += integers
    # Made at once: an array that grows by one number after the other takes several times as long.
    instrs, args = array("i", instr_rows), array("i", arg_rows)
    views, dims, attrs = array("q", view_rows), array("q", dim_rows), array("q", attr_rows)
    constants = bytes(program.constants) + b"\0" * 64
    base_nbytes = array("q", [program.arena_nbytes, len(constants), *[b[2] for b in program.bases]])
    base_access = array("i", [1, 0, *[int(b[3]) for b in program.bases]])
    spec = new("gd_program_spec *")
    keep = []

    def table(ctype: str, values: Any) -> Any:
        buffer = from_buffer(ctype, values) if len(values) else NULL
        keep.append((buffer, values))
        return buffer

    spec.instr = ffi.cast("gd_instr *", table("int32_t[]", instrs)) if len(instrs) else NULL
    spec.n_instr = len(program.instrs)
    spec.view = ffi.cast("gd_view *", table("int64_t[]", views)) if len(views) else NULL
    spec.n_view = n_views
    spec.arg, spec.n_arg = table("int32_t[]", args), len(args)
    spec.dim, spec.n_dim = table("int64_t[]", dims), len(dims)
    spec.attr, spec.n_attr = table("int64_t[]", attrs), len(attrs)
    spec.constants, spec.constants_nbytes = table("char[]", constants), len(constants)
    spec.base_nbytes, spec.base_access = table("int64_t[]", base_nbytes), table("int32_t[]", base_access)
    spec.n_base = len(base_nbytes)
    spec.commit = program.commit
    out, fault = new("gd_program **"), new("gd_fault *")
    status = lib.gd_program_new(spec, out, fault)
    if status == NO_MEMORY:
        raise NoMemory("no memory for a graphdiff program")
    if status != OK:
        raise ProgramError(f"the verifier refused instruction {fault.instr}: {reason(fault.what)}\n"
                           + _line(program, fault.instr))
    return Handle(ffi.gc(out[0], lib.gd_program_free), FIRST + len(program.bases))


def _group_lines(lines: Any, outs: Any, ins: Any) -> Any:
    """The lines of a fused group as integers: opcode, dtype, result, three operands or -1; a sum has its number of axes second."""
    flat: list[int] = []
    for op, dtype, *values in lines:
        if op == "sum":
            values.append(len(ins[0].shape) - len(outs[values[0]].shape))
        flat += (OPCODE[op], CODE[dtype], *values, *(-1,) * (4 - len(values)))
    return flat


def _row_lines(lines: Any) -> Any:
    """The same of a group of rows (csrc/core/rows.h): -1 begins a section; a sum of columns has 1 for its second operand."""
    flat: list[int] = []
    for op, dtype, *values in lines:
        if op in SECTIONS:
            flat += (-1, 2 * dtype + (op == "stats"), -1, -1, -1, -1)
        elif op == "column_sum":
            flat += (OPCODE["sum"], CODE[dtype], *values, 1, -1)
        else:
            flat += (OPCODE[op], CODE[dtype], *values, *(-1,) * (4 - len(values)))
    return flat


def _line(program: Program, instr: int) -> str:
    if not 0 <= instr < len(program.instrs):
        return ""
    op, outs, ins, attrs, _ = program.instrs[instr]
    if op in GROUPS:
        attrs = tuple([line[0] for line in attrs])
    return f"  {op} {', '.join(map(program.operand, outs))} <- {', '.join(map(program.operand, ins))} {list(attrs)}"


def reason(what: int) -> str:
    return str(ffi.string(lib.gd_reason(what)).decode())
