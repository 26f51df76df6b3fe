"""Every example runs, is short, draws something, and shows what it says."""
from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
pytest.importorskip("sklearn", reason="the data come with scikit-learn")


def survey_trace(r):
    assert r["y"] == 11.652071455223084 and r["d1"] == 5.5 and abs(r["d2"] - 1.7163378145367738) < 1e-15


def descent(r):
    assert abs(r["path"][1] - 0.44) < 1e-12 and abs(r["path"][2] - 0.70000832) < 1e-12 and abs(r["path"][3] - 1.07675) < 1e-5
    assert abs(r["path"][100] - 1.443000468) < 1e-9
    assert abs(r["root"] + 1) < 1e-6


def xor(r):
    assert np.abs(r["w"]).max() < 1e-9 and abs(r["b"] - 0.5) < 1e-9
    np.testing.assert_array_equal(r["by_hand"], [0, 1, 1, 0])
    np.testing.assert_array_equal(r["trained"] > 0.5, [False, True, True, False])


def piecewise(r):
    np.testing.assert_array_equal(r["values"], [0, 1, 1, 3, 2, 1, 0, 0, 0])
    assert r["error"] < 0.1


def regression(r):
    assert r["gap"] < 1e-10 and r["logistic"] > 0.97 and r["softmax"] > 0.95


def multi_label(r):
    assert (r["right"] > 0.88).all()


def autoencoder(r):
    assert r["linear"] < r["best"] * 1.01 and r["angle"] > 0.99 and r["deep"] < 0.6 * r["best"]


def digits_mlp(r):
    assert r["accuracy"] >= 0.97


def digits_conv(r):
    assert r["accuracy"] >= 0.985


def attention_lookup(r):
    assert not np.any(r["one"]) and np.abs(r["two"]).max() < 1e-14 and r["sharp"] < 1e-12 and r["loss"] < 0.01


def characters(r):
    assert r["first"] > 3 and r["last"] < 1.0 and r["written"].startswith("beautiful is better than ugly.\nexplicit is")


def lstm_sequence(r):
    assert r["last"] < 0.02


def graph_layer(r):
    assert r["right"] >= 28


def layer_recipe(r):
    assert r["gap"] < 1e-12


def cost_of_backprop(r):
    assert all(2 < ratio < 4.5 for ratio in r["ratios"]) and 0.9 < r["growth"] < 1.2


def tensors(r):
    assert all(np.abs(c).max() < 1e-13 for c in r["checks"]) and r["fits"][2] < 1e-10 < 1e-3 < r["fits"][1]
    np.testing.assert_array_equal(r["slope"], np.eye(4))


CHECKS = {f.__name__: f for f in (survey_trace, descent, xor, piecewise, regression, multi_label, autoencoder, digits_mlp, digits_conv,
                                  attention_lookup, characters, lstm_sequence, graph_layer, layer_recipe, cost_of_backprop, tensors)}
ELSEWHERE = {"demo", "by_hand", "plotting"}      # tested in test_demo.py, and helpers


def test_every_example_is_checked():
    assert {p.stem for p in FOLDER.glob("*.py")} == set(CHECKS) | ELSEWHERE
    assert all(len(p.read_text(encoding="utf-8").splitlines()) < 80 for p in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_example(name, tmp_path, monkeypatch, capsys):
    path = FOLDER / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 80 and source.startswith('"""Shows: ')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    for module in ("plotting", "this"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    result = runpy.run_path(str(path))["main"]()
    CHECKS[name](result)
    assert capsys.readouterr().out.strip()
    drawn = list(tmp_path.glob("*.svg"))
    assert drawn and all("<svg" in p.read_text(encoding="utf-8") for p in drawn)
