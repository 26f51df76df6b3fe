"""Arguments, and what each command prints. Exit status 0, or 2 with one clear message."""
from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from itertools import islice

from .. import __version__
from ..errors import FormatError, GraphdiffError

_MINUS = "\0"            # no argument of a process can hold it


def _options_last(arguments: Sequence[str]) -> list[str]:
    """The arguments of trace with its options behind the others: argparse takes positional ones in one place only."""
    options: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for a in left:
        if a == "--":                            # what follows is not looked at
            return [*options, *rest, a, *left]
        if a in ("--wrt", "--save"):
            options += [a, *islice(left, 1)]
        else:
            (options if a in ("-h", "--help") or a.startswith(("--wrt=", "--save=")) else rest).append(a)
    return rest + options


def main(argv: Sequence[str] | None = None) -> int:
    """The command `graphdiff`."""
    parser = argparse.ArgumentParser(prog="graphdiff", description="Explicit compute graphs and their derivatives.")
    parser.add_argument("--version", action="version", version=f"graphdiff {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    trace = commands.add_parser("trace", help="print both traces of an expression",
                                description='graphdiff trace "log(x1) + x1*x2 - sin(x2)" x1=2 x2=5 [--wrt x1] [--save trace.html]')
    trace.add_argument("expression")
    trace.add_argument("values", nargs="*", metavar="name=value")
    trace.add_argument("--wrt", action="append", help="differentiate with respect to this input only (may be repeated)")
    trace.add_argument("--save", metavar="FILE", help="write the trace too; the suffix says how: .html .svg .png .pdf .md .tex .csv .txt .dot")
    bench = commands.add_parser("bench", help="time kernels side by side with NumPy")
    bench.add_argument("names", nargs="*", metavar="NAME", help="benchmarks whose name contains one of these; all by default. "
                       "growth: how graphdiff's time grows with sizes, depth and nodes")
    bench.add_argument("--against", default="numpy", help="comma-separated, where installed: numpy, autograd, torch, torch.compile, jax, "
                       "pytensor, casadi, numexpr; all: every one but torch.compile")
    bench.add_argument("--threads", type=int, default=1)
    bench.add_argument("--save", metavar="FILE", help="write the results as JSON")
    bench.add_argument("--seconds", type=float, default=0.3, help="time per benchmark and library")
    bench.add_argument("--warm", action="store_true", help="keep freed memory in every process: peers' results then cost no page faults")
    bench.add_argument("--chart", metavar="FILE", help="write a bar chart, .svg, .png or .pdf (needs matplotlib)")
    commands.add_parser("info", help="version, instruction sets, threads, renderer")
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["trace"]:
        # An expression may begin with a minus; argparse takes only what begins otherwise for one.
        arguments[1:] = [_MINUS + a if a.startswith("-") and a != "-h" and a.partition("=")[0] not in ("--help", "--wrt", "--save", "--") else a
                         for a in _options_last(arguments[1:])]
    options = parser.parse_args(arguments)
    try:
        if options.command == "trace":
            status = _trace(options)
            sys.stdout.flush()
            return status
        if options.command == "bench":
            for path in filter(None, (options.save, options.chart)):       # said before minutes of measuring, not after
                if not os.path.isdir(os.path.dirname(path) or "."):
                    raise FileNotFoundError(f"{path}: there is no such directory")
            if options.chart and os.path.splitext(options.chart)[1] not in (".svg", ".png", ".pdf"):
                raise FormatError(f"--chart {options.chart}: .svg, .png or .pdf")
            if not 0 < options.seconds < math.inf:
                raise FormatError(f"--seconds {options.seconds}: a positive number")
            if options.names == ["growth"]:
                from ..bench.growth import run as growth
                return growth(options.threads, options.seconds, options.save, options.chart)
            from ..bench.peers import MAKERS
            from ..bench.run import run
            everyone = ["numpy", *[name for name in MAKERS if name != "torch.compile"]]
            against = everyone if options.against == "all" else options.against.split(",")
            return run(options.names, against, options.threads, options.save, options.seconds, warm=options.warm, chart=options.chart)
        return _info()
    except BrokenPipeError:                      # graphdiff trace ... | head: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())       # nor may the interpreter complain as it ends
        return 141
    except (GraphdiffError, OSError) as error:
        print(f"graphdiff {options.command}: {error}", file=sys.stderr)
        return 2


def _trace(options: argparse.Namespace) -> int:
    import graphdiff as gd

    from ..graph.walk import toposort
    from ..trace.make import trace as run_trace
    from .expression import parse
    at, names = {}, {}
    for item in [v.removeprefix(_MINUS) for v in options.values]:
        name, equals, text = item.partition("=")
        if not equals or not name.isidentifier():
            raise FormatError(f"{item!r} is not name=value")
        if name in names:
            raise FormatError(f"{name!r} is given twice")
        try:
            value = float(text)
        except ValueError:
            raise FormatError(f"{text!r} is not a number in {item!r}") from None
        if math.isinf(value) and any(c.isdigit() for c in text):
            raise FormatError(f"{text!r} in {item!r} is beyond the largest float64; inf says infinity")
        names[name] = gd.input(name)
        at[names[name]] = value
    y = parse(options.expression.removeprefix(_MINUS), names)
    wrt = None
    if options.wrt:
        unknown = [w for w in options.wrt if w not in names]
        if unknown:
            raise FormatError(f"--wrt {unknown[0]}: no such input")
        reached = set(toposort([y]))
        idle = [w for w in options.wrt if names[w] not in reached]
        if idle:
            raise FormatError(f"--wrt {idle[0]}: the expression does not depend on it")
        wrt = [names[w] for w in options.wrt]
    trace = run_trace(y, at=at, wrt=wrt)
    print(trace)
    if options.save:
        trace.save(options.save)
        print(f"written: {options.save}")
    return 0


def _info() -> int:
    import platform

    import numpy as np

    import graphdiff as gd

    from ..api.function import _cores
    from ..runtime import native
    print(f"graphdiff  {gd.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, {platform.machine()}")
    names = [f"{n}{' (active)' if n == native.isa() else '' if ok else ' (not on this CPU)'}" for n, ok in native.isas()]
    print(f"kernels    {', '.join(names)}")
    print(f"threads    {_cores()}")
    try:
        from ..trace.draw import renderer
        print(f"renderer   {renderer()}")
    except ImportError:
        print("renderer   none")
    return 0
