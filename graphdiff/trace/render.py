"""Who renders a picture: the system's Graphviz, the executable of the package graphviz-pure, pygraphviz.

Executables get an argument list and the text on stdin, and a time limit: dot can take minutes over a hundred boxes. When it
does, or when there is none, the layout of our own is drawn (layout.py); with Graphviz at hand also as PNG and PDF, since
placing what is laid out already takes no time.
"""
from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import NodeTypeError, show_name

Render = Callable[[str, str, bool, float], bytes]      # (text, form, laid out already?, seconds) -> the file
INSTALL = "Graphviz (apt install graphviz, brew install graphviz, https://graphviz.org/download)"


def path_of(path: Any) -> Path:
    """Where the user wants a file."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise NodeTypeError(f"a path is needed, not {type(path).__name__}")
    return Path(os.fsdecode(path))


def no_format(path: Path) -> str:
    """Why a path does not say how to write it."""
    return f"no format for the suffix {show_name(path.suffix)!r}" if path.suffix else f"{show_name(path.name)!r} has no suffix to say how"


@lru_cache(maxsize=8)
def _executables(path: str) -> tuple[str | None, str | None]:
    del path                                      # the cache key: PATH as it is now
    pure = shutil.which("graphviz-pure")
    if pure is None:
        beside = os.path.join(os.path.dirname(sys.executable), "graphviz-pure")
        pure = beside if os.access(beside, os.X_OK) else None
    return shutil.which("dot"), pure


def renderers() -> list[tuple[str, Render]]:
    """What can be used now, best first."""
    dot, pure = _executables(os.environ.get("PATH", ""))
    out: list[tuple[str, Render]] = []
    for name, program in (("dot", dot), ("graphviz-pure", pure)):
        if program is not None:
            out.append((name, lambda text, form, placed, seconds, program=program:           # type: ignore[misc]
                        _run([program, *(("-Kneato", "-n2") if placed else ()), f"-T{form}"], text, seconds)))
    from importlib.util import find_spec
    if find_spec("pygraphviz") is not None:
        out.append(("pygraphviz", _pygraphviz))
    return out


def renderer() -> str:
    """The renderer that pictures will use, as `graphdiff info` shows it."""
    dot, pure = _executables(os.environ.get("PATH", ""))
    found = renderers()
    if not found:
        return "built-in layout (SVG only; PNG needs Graphviz or graphdiff[viz])"
    name = found[0][0]
    return f"{name} ({dot if name == 'dot' else pure})" if name != "pygraphviz" else name


def _run(command: Sequence[str], text: str, seconds: float) -> bytes:
    import subprocess
    done = subprocess.run(command, input=text.encode("utf-8", "replace"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds,
                          check=True)
    return done.stdout


def _pygraphviz(text: str, form: str, placed: bool, seconds: float) -> bytes:
    del seconds                                   # runs in this process: small pictures only get here
    from importlib import import_module
    pygraphviz = import_module("pygraphviz")
    data = pygraphviz.AGraph(string=text).draw(format=form, prog="neato" if placed else "dot", args="-n2" if placed else "")
    return data if isinstance(data, bytes) else bytes(data, "utf-8")


def attempt(render: Render, text: str, form: str, *, placed: bool = False, seconds: float) -> tuple[bytes | None, bool]:
    """(the bytes or None, was it too slow?): a missing font, an old version or a time limit must not stop the next one."""
    import subprocess
    try:
        return render(text, form, placed, seconds) or None, False
    except subprocess.TimeoutExpired:
        return None, True
    except (OSError, subprocess.SubprocessError, ImportError, ValueError):
        return None, False


def clean(svg: str) -> str:
    """From the <svg> on: XML and DOCTYPE headers would be wrong inside a page."""
    start = svg.find("<svg")
    return svg[start:] if start >= 0 else svg
