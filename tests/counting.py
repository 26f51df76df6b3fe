"""How many checks ran: tests call `checked(n)` after n comparisons, and every passed test counts as one more.

The numbers of every test file are compared with checks.txt at the end of a run (see conftest): a test that silently stops
testing makes its number fall.
"""
from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()
SHOWN: list[str] = []    # lines that the end of the run shows
current = [""]        # the file whose test runs now; set by conftest


def checked(n: int = 1) -> None:
    """n comparisons were made."""
    COUNTS[current[0]] += n
