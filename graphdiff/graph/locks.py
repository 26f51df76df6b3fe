"""Locks that a forked child can take: one that another thread of the parent held would stay held for ever.

The child has one thread, the one that forked. What the others did under a lock is lost with them; only a variable whose
new value was being written in that very moment may hold parts of both.
"""
from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_all: weakref.WeakSet[Any] = weakref.WeakSet()


def renewed(lock: Any) -> Any:
    """The lock, freed in every forked child unless the thread that forked holds it."""
    _all.add(lock)
    return lock


def _after_fork() -> None:
    for lock in list(_all):
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork") and hasattr(threading.Lock(), "_at_fork_reinit"):
    os.register_at_fork(after_in_child=_after_fork)
