"""Parameters of layers on disk: .safetensors or .npz, no pickle.

The safetensors format is eight bytes with the length of a JSON header (little-endian), the header (name -> dtype, shape,
offsets) and the arrays' bytes. Reading trusts nothing: sizes, offsets and names are checked before an array is made.
"""
from __future__ import annotations

import itertools
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import FormatError, NodeTypeError, show_name
from ..graph.build import public, unmasked
from .layer import Layer

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
_number = itertools.count()
_NAMES = {np.dtype(v): k for k, v in _DTYPES.items()}
_CHECK = "crc32"                 # of a .safetensors file's header and bytes, in its metadata: other readers pass it by
_HEADER_LIMIT = 100_000_000      # bytes: the limit of the format's own library


def _path(path: Any, what: str) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise NodeTypeError(f"{what}: a path is needed first, not {type(path).__name__}")
    return os.fsdecode(path)


@public
def save(path: Any, layer: Layer | Mapping[str, Any]) -> None:
    """Write a layer's variables (running averages and counters too), or a dict of arrays such as an optimiser's state.

    The suffix says the format. The file is written beside the target and moved into place: an old one is never half replaced.
    """
    arrays = _arrays(layer)
    path = _path(path, "save")
    write = {".safetensors": _write_safetensors, ".npz": _write_npz}.get(_suffix(path))
    if write is None:
        raise FormatError(f"save: {show_name(path)}: the suffix is .safetensors or .npz")
    unfinished = f"{path}.unfinished-{os.getpid()}-{next(_number)}"
    try:
        file = open(unfinished, "xb")      # two threads, or what a killed process left, have other names
    except OSError as error:               # of a folder that is not there or not the caller's
        raise OSError(error.errno, error.strerror, path) from None
    try:
        with file:
            write(file, arrays)
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


@public
def load(path: Any, layer: Layer | None = None) -> dict[str, Any]:
    """The arrays of a file by name; put into the layer's variables when one is given, all or none.

    Raises FormatError for a damaged file, and when names, shapes or dtypes are not the layer's.
    """
    if layer is not None and not isinstance(layer, Layer):
        raise NodeTypeError(f"load: a layer is needed, not {type(layer).__name__}; without one the arrays are returned")
    path = _path(path, "load")
    read = {".safetensors": _read_safetensors, ".npz": _read_npz}.get(_suffix(path))
    if read is None:
        raise FormatError(f"load: {show_name(path)}: the suffix is .safetensors or .npz")
    arrays = read(path)
    if layer is not None:
        variables = layer.variables()
        odd = sorted(set(variables) ^ set(arrays))
        if odd:
            raise FormatError(f"load: {show_name(path)} is of another layer; it differs at {', '.join(show_name(n) for n in odd[:3])}")
        for name, v in variables.items():
            a = arrays[name]
            if a.shape != v.shape or a.dtype != v.dtype:
                raise FormatError(f"load: {show_name(name)} is {a.dtype}{list(a.shape)} in the file, {v.dtype}{list(v.shape)} in the layer")
        for name, v in variables.items():
            v._attrs[0].assign(arrays[name])
    return arrays


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _arrays(layer: Any) -> dict[str, Any]:
    if isinstance(layer, Layer):
        return {name: v.value for name, v in layer.variables().items()}
    if not isinstance(layer, Mapping):
        raise NodeTypeError(f"save: a layer or a dict of arrays is needed, not {type(layer).__name__}")
    arrays = {}
    for name, value in layer.items():
        if not isinstance(name, str):
            raise NodeTypeError(f"save: a name is a str, not {show_name(repr(name))}")
        a = np.asarray(unmasked(value, f"save: {show_name(name)}"))
        if name == "__metadata__":
            raise FormatError("save: no array can be called __metadata__, which means something else in .safetensors files")
        if a.dtype.newbyteorder("<") not in _NAMES:
            raise NodeTypeError(f"save: {show_name(name)} is {a.dtype}; float16 to float64, int32, int64, uint8 and bool can be saved")
        arrays[name] = a
    return arrays


def _write_npz(file: Any, arrays: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(file, "w") as archive:      # np.savez would take an array called "file" for its own argument
        for name, a in arrays.items():
            if "\0" in name:      # zip ends the name there
                raise FormatError(f"save: {show_name(name)} cannot be a name in an .npz file")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(a).reshape(a.shape), allow_pickle=False)


def _read_npz(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:      # opened here: NumPy leaves a damaged file open
        try:
            arrays: dict[str, Any] = {}
            with zipfile.ZipFile(file) as archive:      # np.load takes "a.npy" for "a", and gives bytes for what is no array
                if _counted(file) not in (len(archive.infolist()), 0xffff):
                    raise FormatError(f"load: {show_name(path)} is damaged: its directory names fewer arrays than it has")
                for entry in archive.infolist():
                    name = entry.filename.removesuffix(".npy")
                    if name == entry.filename or name in arrays:
                        raise FormatError(f"load: {show_name(path)}: {show_name(entry.filename)} is no array, or occurs twice")
                    with archive.open(entry) as member:
                        a = np.lib.format.read_array(member, allow_pickle=False)
                    arrays[name] = a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))
            return arrays
        except FormatError:
            raise
        except Exception as error:      # zipfile and NumPy raise many kinds for damaged files
            raise FormatError(f"load: {show_name(path)} is damaged: {type(error).__name__}: {error}") from None


def _counted(file: Any) -> int:
    """How many members the end of a zip file says it has; 0xffff in those of more. zipfile does not compare what it finds with it."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 0x10016))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    return int.from_bytes(tail[end + 10:end + 12], "little")


def _write_safetensors(file: Any, arrays: Mapping[str, Any]) -> None:
    header: dict[str, Any] = {}
    place = 0
    parts = []
    for name, a in arrays.items():
        dtype = a.dtype.newbyteorder("<")
        a = np.ascontiguousarray(a, dtype).reshape(a.shape)
        header[name] = {"dtype": _NAMES[dtype], "shape": list(a.shape), "data_offsets": [place, place + a.nbytes]}
        place += a.nbytes
        parts.append(a)
    check = zlib.crc32(_as_json(header))
    for a in parts:
        check = zlib.crc32(a.data, check)
    text = _as_json({"__metadata__": {_CHECK: f"{check:08x}"}, **header})
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for a in parts:
        file.write(a.tobytes())


def _read_safetensors(path: str) -> dict[str, Any]:
    def wrong(what: str) -> FormatError:
        return FormatError(f"load: {show_name(path)} is damaged: {what}")
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise wrong("its header does not fit")
        try:
            header = json.loads(file.read(length), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise wrong(f"its header is not JSON ({error})") from None
        data = file.read()
    if not isinstance(header, dict):
        raise wrong("its header is not an object")
    metadata = header.pop("__metadata__", None)
    if isinstance(metadata, dict) and _CHECK in metadata and metadata[_CHECK] != f"{zlib.crc32(data, zlib.crc32(_as_json(header))):08x}":
        raise wrong("its checksum is that of other contents")
    arrays: dict[str, Any] = {}
    spans = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"} or not isinstance(entry["dtype"], str):
            raise wrong(f"the entry of {show_name(name)} is not understood")
        if entry["dtype"] not in _DTYPES:
            raise FormatError(f"load: {show_name(path)}: {show_name(name)} is {show_name(entry['dtype'])}, which is not supported; "
                              f"{', '.join(_DTYPES)} are")
        shape, offsets = entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers) or len(offsets) != 2 or len(shape) > 32 or \
                math.prod(n or 1 for n in shape) >= 1 << 59:      # bytes NumPy can count, in an empty array too
            raise wrong(f"the sizes of {show_name(name)} are not numbers")
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        start, stop = offsets
        if stop > len(data) or stop - start != math.prod(shape) * dtype.itemsize:
            raise wrong(f"the bytes of {show_name(name)} do not fit")
        if dtype.kind == "b" and any(b > 1 for b in data[start:stop]):
            raise wrong(f"{show_name(name)} holds bytes that are not bool")
        spans.append((start, stop))
        arrays[name] = np.frombuffer(data, dtype, math.prod(shape), start).reshape(shape).astype(dtype.newbyteorder("="))
    place = 0
    for start, stop in sorted(spans):
        if start != place:
            raise wrong("its arrays overlap or leave bytes between them")
        place = stop
    if place != len(data):
        raise wrong("bytes are left over")
    return arrays


def _as_json(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
