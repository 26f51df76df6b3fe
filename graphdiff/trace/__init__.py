"""Looking: traces of both passes with every value, pictures of graphs, explanations of derivatives.

The package has the name of its main function, and importing a module of it binds that name in `graphdiff`; so the
package can be called, and `gd.trace(y, at=...)` works whatever was imported first.
"""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """See graphdiff.trace.make.trace."""
        from .make import trace
        return trace(*args, **options)


sys.modules[__name__].__class__ = _Callable
