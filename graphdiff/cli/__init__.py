"""The command line: graphdiff trace | bench | info."""
from __future__ import annotations

from .main import main

__all__ = ["main"]
