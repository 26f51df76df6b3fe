"""The notebook of the examples: its cells run in order, and what they show is right.

Cells are run here, as IPython runs them (the value of a last expression is shown by its _repr_mimebundle_), so that no kernel is
started and nothing but the standard library is needed.
"""
from __future__ import annotations

import ast
import contextlib
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

import graphdiff as gd

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "seeing.ipynb"


def run(source: str, names: dict) -> tuple[str, object]:
    """(what is printed, the value of the last expression or None)."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def check_bundle(value) -> dict[str, str]:
    bundle = value._repr_mimebundle_()
    assert set(bundle) <= {"text/plain", "text/html", "text/latex", "image/svg+xml"} and bundle["text/plain"]
    if "image/svg+xml" in bundle:
        ET.fromstring(bundle["image/svg+xml"])
    return bundle


def test_notebook_runs_and_shows_the_numbers():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names: dict = {"__name__": "__main__"}
    printed, shown = "", []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None       # stored clean
        text, value = run("".join(cell["source"]), names)
        printed += text
        if hasattr(value, "_repr_mimebundle_"):
            shown.append((type(value).__name__, check_bundle(value)))
        elif value is not None:
            shown.append((type(value).__name__, value))
    kinds = [k for k, _ in shown]
    assert kinds == ["Node", "Trace", "Drawing", "Step", "Trace", "Drawing", "Trace", "Rule", "Explanation", "Function", "list"]
    assert "v-1bar = v-1bar + v1bar/v-1 = 5.5" in shown[1][1]["text/html"] and "v5dot = v4dot = 5.5" in shown[4][1]["text/html"]
    assert "v0 = x2 = 5\nv0bar = v3bar cos v0 = -0.284\n" in printed and "v3bar cos v0 | -0.284" in printed
    assert "Abar += ybar @ B^T" in shown[7][1]["text/plain"] and r"\begin{aligned}" in shown[7][1]["text/latex"]
    assert "saturated" in shown[8][1]["text/plain"] and "<svg" in shown[8][1]["image/svg+xml"]
    np.testing.assert_allclose(shown[10][1], [11.652071455223084, 5.5, 1.7163378145367738], rtol=1e-15)


def test_everything_shows_itself():
    x = gd.input("x", ("n",))
    f = gd.function([x], gd.sum(gd.exp(x) * x))
    assert "<svg" in check_bundle(f)["image/svg+xml"]          # before the sizes are known
    f(np.ones(3))
    assert "<svg" in check_bundle(f)["image/svg+xml"]
    assert "<svg" in check_bundle(gd.exp(x))["image/svg+xml"]
    y = x
    for _ in range(5000):
        y = gd.sin(y)
    assert len(check_bundle(y)["image/svg+xml"]) < 2_000_000
    assert "<svg" in check_bundle(gd.explain(gd.sum(gd.stop_gradient(x)), x))["image/svg+xml"]
