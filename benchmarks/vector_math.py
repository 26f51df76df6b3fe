"""Functions of vector math against libmvec, glibc's vector library: nanoseconds an element of arrays in the L2 cache.

Loops over libmvec are compiled on the spot by the system's C compiler with -ffast-math, which is how GCC is brought to call it; it
promises 4 units in the last place, graphdiff two (tests/test_vector_math.py). Functions that this libmvec lacks show graphdiff alone.
One thread; the two take turns, and the best of all rounds counts. graphdiff runs as a bound call, whose own cost is included.

    python benchmarks/vector_math.py              # everything, about half a minute
    python benchmarks/vector_math.py '^exp'       # by name (a regular expression)
"""
from __future__ import annotations

import argparse
import importlib
import re
import sys
import tempfile
from functools import partial
from typing import Any

import cffi
import numpy as np

import graphdiff as gd
from graphdiff.bench.run import cpu
from graphdiff.bench.worker import microseconds

N = 16384
ROUNDS = 15
# graphdiff's name: C's name, lowest and highest operand
ONE = {
    "exp": ("exp", -20, 20), "expm1": ("expm1", -5, 5), "log": ("log", 0.01, 100), "log1p": ("log1p", -0.9, 100),
    "sin": ("sin", -100, 100), "cos": ("cos", -100, 100), "tan": ("tan", -100, 100), "tanh": ("tanh", -5, 5),
    "sinh": ("sinh", -10, 10), "cosh": ("cosh", -10, 10), "asin": ("asin", -0.99, 0.99), "acos": ("acos", -0.99, 0.99),
    "atan": ("atan", -10, 10), "erf": ("erf", -4, 4), "erfc": ("erfc", -4, 8), "cbrt": ("cbrt", -100, 100),
    "sigmoid": ("", -10, 10), "softplus": ("", -10, 10), "gelu": ("", -5, 5), "lgamma": ("", 0.1, 30), "digamma": ("", 0.1, 30),
}
TWO = {"atan2": ("atan2", -10, 10), "pow": ("pow", 0.1, 10)}
TYPES = {"float32": ("float", "f"), "float64": ("double", "")}


def libmvec(folder: str) -> Any:
    """The compiled loops, or None (said on standard error) without a compiler or libmvec."""
    prototypes, bodies = [], []
    for names, operands in ((ONE, "x[i]"), (TWO, "x[i], y[i]")):
        for c_name, *_ in names.values():
            for c_type, suffix in TYPES.values() if c_name else ():
                head = f"void loop_{c_name}{suffix}(const {c_type} *x, const {c_type} *y, {c_type} *z, long n)"
                prototypes.append(head + ";")
                bodies.append(f"{head} {{ for (long i = 0; i < n; i++) z[i] = {c_name}{suffix}({operands}); }}")
    builder = cffi.FFI()
    builder.cdef("\n".join(prototypes))
    builder.set_source("_mvec_loops", "#include <math.h>\n" + "\n".join(bodies), libraries=["mvec", "m"],
                       extra_compile_args=["-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math"])
    try:
        builder.compile(tmpdir=folder)
    except Exception as error:      # cffi passes on whatever the build tool raises
        print(f"no libmvec here: {error}", file=sys.stderr)
        return None
    sys.path.insert(0, folder)
    return importlib.import_module("_mvec_loops")


def operands(count: int, dtype: str, low: float, high: float) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.uniform(low, high, N).astype(dtype) for _ in range(count)]


def measure(name: str, dtype: str, loops: Any) -> tuple[float, float | None]:
    """Nanoseconds an element of graphdiff and of libmvec (None: not there)."""
    count = 2 if name in TWO else 1
    c_name, low, high = (TWO if name in TWO else ONE)[name]
    arrays = operands(count, dtype, low, high)
    nodes = [gd.input(f"x{i}", (N,), dtype) for i in range(count)]
    function = getattr(gd, name)
    bound = gd.function(nodes, function(*nodes), threads=1).bind(*arrays)
    calls = [bound]
    if loops is not None and c_name:
        c_type, suffix = TYPES[dtype]
        z = np.empty_like(arrays[0])
        pointers = [loops.ffi.cast(f"{c_type} *", a.ctypes.data) for a in (arrays[0], arrays[-1], z)]
        calls.append(partial(getattr(loops.lib, f"loop_{c_name}{suffix}"), *pointers, N))
        calls[1]()
        if not np.allclose(bound(), z, rtol=32 * float(np.finfo(dtype).eps), atol=0):
            raise AssertionError(f"{name} {dtype}: libmvec gives something else")
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            best[k] = min(best[k], microseconds(call, 40))
    ns = [us * 1000 / N for us in best]
    return ns[0], ns[1] if len(ns) > 1 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="functions whose name contains this regular expression")
    options = parser.parse_args()
    print(f"{cpu()}, 1 thread; {N} elements; nanoseconds an element, best of {ROUNDS} interleaved rounds")
    print(f"{'':<20}{'graphdiff':>12}{'libmvec':>12}{'libmvec/ours':>14}")
    with tempfile.TemporaryDirectory() as folder:
        loops = libmvec(folder)
        for dtype in TYPES:
            for name in (*ONE, *TWO):
                if re.search(options.pattern, name):
                    ours, theirs = measure(name, dtype, loops)
                    rest = f"{theirs:>12.3f}{theirs / ours:>14.2f}" if theirs is not None else f"{'-':>12}{'':>14}"
                    print(f"{name + ' ' + dtype:<20}{ours:>12.3f}{rest}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
