"""What a node costs: a chain of scalar operations built, differentiated, compiled, run and freed, per operation.

    python benchmarks/graph_costs.py [operations ...]

Times are processor time of this process, memory is the growth of the peak resident size.
"""
import resource
import sys
import time

import graphdiff as gd


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(n: int) -> None:
    before = peak()
    x = gd.input("x")
    y = x
    t = [time.process_time()]
    for _ in range(n // 2):
        y = y * 0.99999 + 1e-5
    t.append(time.process_time())
    g = gd.grad(y, x)
    t.append(time.process_time())
    f = gd.function([x], [y, g])
    t.append(time.process_time())
    value, slope = f(2.0)
    t.append(time.process_time())
    used = peak() - before
    instructions = len(f.program.instrs)
    del f, g, y
    t.append(time.process_time())
    names = ("build", "differentiate", "compile", "first run", "free")
    costs = ", ".join(f"{name} {(b - a) / n * 1e6:.2f}" for name, a, b in zip(names, t, t[1:], strict=False))
    print(f"{n:>9} operations ({2 * n} nodes with their constants), us an operation: {costs}; {used / n:.0f} bytes an operation, "
          f"{instructions} instructions; value {float(value):.6f}, slope {float(slope):.6f}")


if __name__ == "__main__":
    for n in [int(a) for a in sys.argv[1:]] or [10_000, 100_000, 1_000_000]:
        measure(n)
