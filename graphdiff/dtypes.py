"""The seven element types, and which type an operation gives.

A dtype is one of the seven canonical, native `np.dtype` objects in DTYPES, in the order of enum gd_dtype in
csrc/include/graphdiff.h. Everything from outside goes through `as_dtype` once; after that the tables here are one
dictionary lookup. Promotion is NumPy 2's: between arrays `promote`, between an array and a Python number `weak`.
"""
from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DTypeError, NotANumber, OutOfRange, ShapeError, show_name

if TYPE_CHECKING:
    from typing import TypeAlias

    DType: TypeAlias = np.dtype[Any]

BOOL: DType = np.dtype(np.bool_)
UINT8: DType = np.dtype(np.uint8)
INT32: DType = np.dtype(np.int32)
INT64: DType = np.dtype(np.int64)
FLOAT16: DType = np.dtype(np.float16)
FLOAT32: DType = np.dtype(np.float32)
FLOAT64: DType = np.dtype(np.float64)

DTYPES: tuple[DType, ...] = (BOOL, UINT8, INT32, INT64, FLOAT16, FLOAT32, FLOAT64)   # the order of enum gd_dtype
CODE: dict[DType, int] = {dtype: i for i, dtype in enumerate(DTYPES)}
NAME: dict[DType, str] = {dtype: dtype.name for dtype in DTYPES}     # NumPy makes the text anew, at the cost of a node

# What as_dtype answers at once: the seven by object, by NumPy type and by name, Python's types, and the integers that
# become int64. A dtype of another byte order, or an alias such as "f4", takes the slow way round and ends here too.
_KNOWN: dict[Any, DType] = {
    **{key: dtype for dtype in DTYPES for key in (dtype, dtype.type, dtype.name)},
    bool: BOOL, int: INT64, float: FLOAT64,
    **{np.dtype(t): INT64 for t in (np.int8, np.int16, np.uint16, np.uint32)},
}

PROMOTE: dict[tuple[DType, DType], DType] = {(a, b): _KNOWN[np.promote_types(a, b)] for a in DTYPES for b in DTYPES}

# NumPy computes x // y, x % y, x ** y and shifts of two bools in int8.
TWO_BOOLS = "not defined for two bools: NumPy computes it in int8, which is none of the dtypes here\nhint: x.astype('int64')"

_INT_RANGE = {UINT8: (0, 2**8 - 1), INT32: (-2**31, 2**31 - 1), INT64: (-2**63, 2**63 - 1)}
_ALIAS_LIMIT = 32   # no name of a dtype is longer; keeps NumPy's parser of "f4,f4,..." away from hostile text


def as_dtype(x: object) -> DType:
    """The canonical dtype for a name, a NumPy or Python type or an np.dtype in any byte order; or DTypeError.

    int8, int16, uint16 and uint32 give int64, which holds all their values. uint64 does not fit and is refused.

    >>> as_dtype("float32"), as_dtype(float), as_dtype(">f8"), as_dtype(np.int16)
    (dtype('float32'), dtype('float64'), dtype('float64'), dtype('int64'))
    """
    try:
        return _KNOWN[x]
    except (KeyError, TypeError):   # TypeError: x cannot be hashed
        pass
    found = None
    if isinstance(x, (np.dtype, type)) or (isinstance(x, str) and len(x) <= _ALIAS_LIMIT):
        try:
            found = np.dtype(x)
            return _KNOWN[found.newbyteorder("=")]
        except Exception:   # NumPy answers bad names with TypeError, ValueError, SyntaxError and more; all mean: no
            pass
    raise DTypeError(_refusal(x, found))


def asked_dtype(dtype: Any) -> DType:
    """The dtype a caller asks a result in: exactly that, or a DTypeError (an int8 would silently be an int64)."""
    found = as_dtype(dtype)
    if found != np.dtype(dtype).newbyteorder("="):
        raise DTypeError(f"dtype={dtype!r} is not one of bool, uint8, int32, int64, float16, float32, float64")
    return found


def overflows(array: Any, want: DType) -> bool:
    """Is a finite element infinite as a `want`, which is a float?"""
    if want is FLOAT64 or array.dtype == want or array.dtype.kind == "b":
        return False
    with np.errstate(all="ignore"):
        return bool((np.isinf(array.astype(want)) & np.isfinite(array)).any())


def of_integers(array: Any, want: DType) -> Any:
    """What NumPy makes of Python integers beyond int64, objects or uint64, as float64 where a float is wanted; anything else as it is.
    OutOfRange where they fit into nothing that is wanted."""
    if array.dtype.kind not in "Ou" or array.dtype.itemsize < 8:
        return array
    numbers = array.reshape(-1).tolist()
    if any(not isinstance(n, (int, float)) for n in numbers) or (want.kind != "f" and any(isinstance(n, float) for n in numbers)):
        return array
    for n in numbers:
        weak(n, want)
    return array.astype(FLOAT64)


def clean_bools(array: Any) -> Any:
    """A bool array whose bytes are 0 and 1: itself, or a copy of one that holds others, as a view of flags is. Kernels compute with
    the bytes, and NumPy takes any but 0 for True."""
    raw = array.view(np.uint8)
    return array if raw.size == 0 or np.maximum.reduce(raw, axis=None) <= 1 else raw != 0


def code(dtype: DType) -> int:
    """The number of `dtype` in enum gd_dtype."""
    return CODE[dtype]


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation between two arrays, as np.result_type(a, b).

    >>> promote(INT32, FLOAT32)
    dtype('float64')
    """
    return PROMOTE[a, b]


def weak(value: object, dtype: DType) -> DType:
    """The dtype of an operation between a Python number and an array of `dtype`, as NumPy 2: only its kind counts.

    An integer that the type cannot hold is OutOfRange, an OverflowError. A NumPy scalar is not weak: its dtype is promoted.

    >>> weak(2, FLOAT32), weak(0.5, FLOAT32), weak(0.5, INT64), weak(True, UINT8), weak(3, BOOL)
    (dtype('float32'), dtype('float32'), dtype('float64'), dtype('uint8'), dtype('int64'))
    """
    if type(value) is float and dtype.kind == "f":      # most of them, and the rest costs as much as a node's line
        return dtype
    if isinstance(value, np.generic):   # before float: np.float64 is a subclass of it
        return PROMOTE[as_dtype(value.dtype), dtype]
    if isinstance(value, bool):
        return dtype
    if isinstance(value, float):
        return float_of(dtype)
    if not isinstance(value, int):
        raise DTypeError(f"expected a bool, an int or a float, not {show_name(type(value).__name__)}")
    if dtype.kind == "f":
        try:
            float(value)   # beyond float64's range an error; a smaller float type turns it into inf, as in NumPy
        except OverflowError:
            raise OutOfRange(beyond(value, FLOAT64)) from None
        return dtype
    dtype = INT64 if dtype.kind == "b" else dtype
    low, high = _INT_RANGE[dtype]
    if not low <= value <= high:
        raise OutOfRange(beyond(value, dtype))
    return dtype


def beyond(value: int, dtype: DType) -> str:
    """What an error says of a Python integer that a dtype cannot hold."""
    shown = value if value.bit_length() <= 128 else f"of {value.bit_length()} bits"
    low, high = (0, 1) if dtype is BOOL else _INT_RANGE.get(dtype, ("-1.8e308", "1.8e308"))
    return f"Python integer {shown} out of bounds for {dtype.name} ({low} to {high})"


def converted(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """`array` in another dtype; a number that an integer dtype cannot hold, NaN too, is OutOfRange and not wrapped."""
    if dtype in _INT_RANGE and array.dtype.kind in "iuf" and array.size:
        low, high = _INT_RANGE[dtype]
        bad = array[~((array >= low) & (array < high + 1 if array.dtype.kind == "f" else array <= high))]
        if bad.size:
            raise OutOfRange(f"{bad.flat[0]} is out of bounds for {dtype.name} ({low} to {high})")
    return array.astype(dtype)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory as an array whose flag `writeable` cannot be set: a view of an array could become what its owner is."""
    return np.asarray(memoryview(array).toreadonly())      # type: ignore[arg-type]


def float_of(dtype: DType) -> DType:
    """The dtype of a result that is never an integer (true division, exp): a float type is kept, others give float64.

    NumPy gives float16 for exp of bool and uint8 (and float64 for their quotient); eleven bits surprise, so not here.
    """
    return dtype if dtype.kind == "f" else FLOAT64


def is_float(dtype: DType) -> bool:
    """float16, float32, float64: the types that have derivatives."""
    return dtype.kind == "f"


def is_int(dtype: DType) -> bool:
    """uint8, int32, int64 (not bool)."""
    return dtype.kind in "iu"


def is_bool(dtype: DType) -> bool:
    return dtype.kind == "b"


def itemsize(dtype: DType) -> int:
    """Bytes of one element."""
    return dtype.itemsize


def _refusal(x: object, found: DType | None) -> str:
    names = ", ".join(dtype.name for dtype in DTYPES)
    if found is None:
        shown = repr(show_name(x)) if isinstance(x, str) else f"a value of type {show_name(type(x).__name__)}"
        return f"{shown} is not a dtype; the dtypes are {names}"
    if found == np.uint64:
        return "dtype uint64 is not supported: int64 cannot hold its larger values; cast to int64 where they fit"
    return f"dtype {show_name(str(found))} is not supported; the dtypes are {names}"


def is_number(value: Any) -> bool:
    """A real number, Python's or NumPy's, but no bool."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def outside(value: Any, text: str) -> ShapeError:
    """The error for a value that is no number of the range it must be in: of another class where it is no number at all."""
    return (ShapeError if is_number(value) else NotANumber)(text)
