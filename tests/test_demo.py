"""The demo runs as a newcomer runs it, and keeps its promises."""
from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_demo_trains_digits_and_draws(tmp_path):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    pytest.importorskip("tqdm", reason="the demo shows a progress bar")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONSAFEPATH", None)            # the demo imports the program that lies beside it
    done = subprocess.run([sys.executable, ROOT / "examples" / "demo.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy .*: ([\d.]+)%", done.stdout)
    assert accuracy and float(accuracy[1]) >= 97
    assert "NumPy by hand" in done.stdout and "training" in done.stderr
    for name in ("demo_trace.svg", "demo_trace.html"):
        assert "<svg" in (tmp_path / name).read_text(encoding="utf-8")


def test_doctests_of_the_package():
    import graphdiff
    from graphdiff import dims, dtypes, errors, specs
    for module in (graphdiff, dims, dtypes, errors, specs):
        failed, tried = doctest.testmod(module)
        assert tried >= 0 and failed == 0
    assert doctest.testmod(graphdiff).attempted >= 4


def test_readme_examples_run(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 2
    for source in blocks:
        done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, timeout=120, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace.html").exists() and (tmp_path / "net.safetensors").exists()
