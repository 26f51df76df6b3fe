"""The seven dtypes, and promotion held against NumPy itself."""
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiff import dtypes
from graphdiff.dtypes import DTYPES, as_dtype, code, float_of, is_bool, is_float, is_int, itemsize, promote, weak
from graphdiff.errors import DTypeError

HEADER = Path(__file__).parent.parent / "csrc" / "include" / "graphdiff.h"
NAMES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


def test_the_seven_in_order():
    assert [dtype.name for dtype in DTYPES] == NAMES
    assert all(dtype.isnative and as_dtype(dtype) is dtype for dtype in DTYPES)


def test_code_is_the_enum_of_the_header():
    rows = re.findall(r"GD_([A-Z0-9]+) = (\d)", HEADER.read_text().split("enum gd_dtype {")[1].split("}")[0])
    assert {name.lower(): int(number) for name, number in rows} == {dtype.name: code(dtype) for dtype in DTYPES}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_as_dtype_gives_the_one_canonical_object(dtype):
    spellings = [dtype, dtype.type, dtype.name, dtype.str, dtype.char, dtype.newbyteorder(">"), dtype.newbyteorder("<"),
                 dtype.newbyteorder().str, pickle.loads(pickle.dumps(dtype)), np.dtype(dtype, metadata={"a": 1})]
    assert all(as_dtype(x) is dtype for x in spellings)


@pytest.mark.parametrize(("x", "name"), [
    (bool, "bool"), (int, "int64"), (float, "float64"), ("float", "float64"), ("int", "int64"), ("half", "float16"),
    ("single", "float32"), ("double", "float64"), ("longlong", "int64"), ("?", "bool"), (">f8", "float64"),
    *[(kind, "int64") for kind in ("int8", "int16", "uint16", "uint32", ">i2", np.int8, np.uint32, np.longlong)],
])
def test_as_dtype_aliases(x, name):
    assert as_dtype(x) is as_dtype(name) and as_dtype(x).name == name


@pytest.mark.parametrize("x", [
    "uint64", np.uint64, ">u8", "complex64", np.complex128, complex, "O", object, "U5", str, bytes, "S", "M8[s]", "m8",
    "f4,f4", "(2,)f4", [("a", "f4")], {"names": ["a"], "formats": ["f4"]}, np.dtype([("a", "f4")]), "V8",
    *([np.longdouble] if np.dtype(np.longdouble).itemsize > 8 else []),
    None, 1, 1.0, b"f4", "", "float33", "(2,", "f4," * 10**5, "\ud800", "a\nb", np.zeros(3), np.float32(1), type, Path,
])
def test_as_dtype_refuses(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DTypeError) as info:
            as_dtype(x)
    assert isinstance(info.value, TypeError) and len(str(info.value)) < 250 and "\n" not in str(info.value)


@pytest.mark.parametrize(("x", "part"), [
    ("uint64", "dtype uint64 is not supported: int64"), (np.complex64,
                                                         "dtype complex64 is not supported; the dtypes are bool"),
    ("float33", "'float33' is not a dtype"), (None, "a value of type NoneType is not a dtype"),
    (object, "dtype object"),
])
def test_refusal_names_the_dtype(x, part):
    with pytest.raises(DTypeError, match=re.escape(part)):
        as_dtype(x)


@pytest.mark.parametrize("a", DTYPES, ids=str)
@pytest.mark.parametrize("b", DTYPES, ids=str)
def test_promote_is_numpys(a, b):
    assert promote(a, b) is as_dtype(np.result_type(a, b)) and promote(a, b).name == np.result_type(a, b).name
    assert (np.ones(1, a) + np.ones(1, b)).dtype == promote(a, b)


INTEGERS = [0, 1, -1, 127, 255, 256, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**63 - 1, 2**63, -2**63, -2**63 - 1,
            10**30, 10**400]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [True, False, *INTEGERS, 0.5, 1e300, float("nan"), float("inf"), -0.0],
                         ids=lambda v: repr(v) if len(repr(v)) < 40 else "huge")
def test_weak_is_numpys(dtype, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")   # a float16 overflow to inf
        try:
            want = (np.ones(2, dtype) + value).dtype
        except OverflowError:
            with pytest.raises(OverflowError):
                weak(value, dtype)
            return
    assert weak(value, dtype) is as_dtype(want) and weak(value, dtype).name == want.name


@given(st.integers(-2**70, 2**70), st.sampled_from(["uint8", "int32", "int64"]))
def test_weak_integer_range(value, name):
    info = np.iinfo(name)
    if info.min <= value <= info.max:
        assert weak(value, as_dtype(name)).name == name
    else:
        with pytest.raises(OverflowError, match=f"out of bounds for {name}"):
            weak(value, as_dtype(name))


def test_weak_of_an_unprintable_integer_names_its_bits():
    with pytest.raises(OverflowError, match="of 50001 bits out of bounds for uint8"):
        weak(2**50000, dtypes.UINT8)


def test_numpy_scalars_are_not_weak():
    assert weak(np.float64(1), dtypes.FLOAT32) is dtypes.FLOAT64
    assert weak(np.float32(1), dtypes.FLOAT16) is dtypes.FLOAT32
    assert weak(np.int8(1), dtypes.UINT8) is dtypes.INT64
    assert weak(np.bool_(True), dtypes.UINT8) is dtypes.UINT8
    with pytest.raises(DTypeError):
        weak(np.complex64(1), dtypes.FLOAT32)


@pytest.mark.parametrize("value", [1j, None, "1", [1]])
def test_weak_refuses_other_values(value):
    with pytest.raises(DTypeError, match=r"not (complex|NoneType|str|list)"):
        weak(value, dtypes.FLOAT32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kinds(dtype):
    assert [is_bool(dtype), is_int(dtype), is_float(dtype)].count(True) == 1
    assert is_float(dtype) == np.issubdtype(dtype, np.floating) and is_int(dtype) == np.issubdtype(dtype, np.integer)
    assert itemsize(dtype) == np.zeros(1, dtype).nbytes
    quotient = (np.ones(1, dtype) / np.ones(1, dtype)).dtype
    assert float_of(dtype) == quotient   # for bool and uint8 too; only exp and the like differ (NumPy: float16)
