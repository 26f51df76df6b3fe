"""The bank of cases from public bug reports of systems like this one, when it is there.

The bank is no part of this repository: it is looked for where GRAPHDIFF_CASES says, else in ../shared/cases beside it.
"""
import importlib
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from counting import checked

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("GRAPHDIFF_CASES") or ROOT.parent / "shared" / "cases")

# Cases this library answers differently on purpose.
EXCEPTIONS = {
    "einsum_repeated_output_label_error": "wants an error for 'i->ii'; a repeated output label is defined here: a diagonal is filled",
}


def _load():
    if not (FOLDER / "bank.py").is_file():
        return None, None, None
    sys.path.insert(0, str(FOLDER))
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True         # the folder is not ours to write to
    try:
        return tuple(importlib.import_module(name) for name in ("bank", "run_bank", "adapter_gd"))
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(FOLDER))


BANK, RUN, ADAPTER = _load()
CASES = [] if BANK is None else [c for c in BANK.CASES if not c["held_out"]]
ABSENT = pytest.mark.skip(reason=f"no bank of cases at {FOLDER}")


@pytest.mark.skipif(BANK is None, reason=f"no bank of cases at {FOLDER}")
def test_the_bank_is_whole():
    assert len(CASES) >= 188
    assert not set(EXCEPTIONS) - {c["id"] for c in CASES}


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in CASES] or [pytest.param(None, marks=ABSENT)])
def test_case(case):
    if case["heavy"] and os.environ.get("GRAPHDIFF_LONG", "") in ("", "0"):
        pytest.skip("gigabytes: set GRAPHDIFF_LONG=1")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outcome, text = RUN.run_case(ADAPTER, case)
    if case["id"] in EXCEPTIONS:
        assert outcome == "wrong" and text.startswith("no error"), EXCEPTIONS[case["id"]]
        return
    assert outcome == "ok", f"{case['title']} ({case['source']}, {case['level']}): {text}"
    checked()


def test_a_repeated_output_label_fills_a_diagonal():
    import graphdiff as gd
    x = gd.input("x", (3,))
    y = gd.einsum("i->ii", x)
    at = {x: [1.0, 2.0, 3.0]}
    assert gd.evaluate(y, at).tolist() == np.diag([1.0, 2.0, 3.0]).tolist()
    assert gd.evaluate(gd.grad(y, x, cotangent=np.arange(9.0).reshape(3, 3)), at).tolist() == [0.0, 4.0, 8.0]
