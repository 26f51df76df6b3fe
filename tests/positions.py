"""Positions of sorted lines, checked against NumPy's stable ones."""
from __future__ import annotations

from typing import Any

import numpy as np
from counting import checked

import graphdiff as gd


def check_positions(x: Any, threads: int = 1) -> None:
    """Both orders along the last axis, and of lines that lie across."""
    n = gd.input("n", x.shape, x.dtype.name)
    up, down, across = gd.function([n], [gd.argsort(n), gd.argsort(n, descending=True), gd.argsort(n.T, axis=0)], threads=threads)(x)
    want = np.argsort(x, axis=-1, kind="stable")
    assert np.array_equal(up, want)
    assert np.array_equal(down, x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1))
    assert np.array_equal(across, want.T)
    checked(3)
