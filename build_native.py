"""What the extension module graphdiff.runtime._native is made of: setup.py and cffi read `ffi` from here.

Runs when the package is built: needs cffi, and neither NumPy nor graphdiff itself.
The environment variable GRAPHDIFF_CFLAGS is added to the compiler's and the linker's flags, which is how the
sanitizer builds are made.
"""

import os
import shlex
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).parent  # relative while setup.py runs, as setuptools wants its sources
CSRC = ROOT / "csrc"
HEADER = CSRC / "include" / "graphdiff.h"


def declarations(header: str) -> str:
    """The header without preprocessor lines: cffi parses C declarations only."""
    return "\n".join(line for line in header.splitlines() if not line.startswith("#"))


def flags(text: str) -> list[str]:
    """One flag a line; lines that start with # are comments."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


extra = shlex.split(os.environ.get("GRAPHDIFF_CFLAGS", ""))

ffi = FFI()
ffi.cdef(declarations(HEADER.read_text(encoding="utf-8")))
ffi.set_source(
    "graphdiff.runtime._native",
    '#include "graphdiff.h"\n#include "../python/call.h"',  # both found from include/
    sources=sorted(str(path) for folder in ("core", "isa") for path in (CSRC / folder).glob("*.c")),
    depends=sorted(str(p) for p in CSRC.rglob("*") if p.suffix in {".h", ".inc", ".def"} or p.name == "flags.txt"),
    include_dirs=[str(HEADER.parent)],
    # Python's own flags say -g, which makes the library several times larger; a later -g in GRAPHDIFF_CFLAGS wins.
    extra_compile_args=[*flags((CSRC / "flags.txt").read_text(encoding="utf-8")), "-g0", *extra],
    extra_link_args=["-pthread", *extra],
    libraries=["m"],
)
