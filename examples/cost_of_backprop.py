"""Shows: the gradient of k layers costs a small multiple of their value and grows linearly in k, where a derivative of every
layer by every weight, made from the front, would grow quadratically."""
import time

import numpy as np
import plotting

import graphdiff as gd

M = 48


def network(k):
    x = gd.input("x", (M,))
    ws = [gd.variable(np.random.default_rng(i).standard_normal((M, M)) / np.sqrt(M), f"w{i}") for i in range(k)]
    h = x
    for w in ws:
        h = gd.tanh(w @ h)
    return x, ws, gd.sum(h)


def microseconds(call, rounds=30):
    call()
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e6)
    return min(samples)


def main():
    depths, rows = (4, 8, 16, 32, 64), []
    for k in depths:
        x, ws, y = network(k)
        value, both = gd.function([x], y, threads=1), gd.function([x], [y, *gd.grad(y, ws)], threads=1)
        work = [sum(r["flops"] for r in f.cost()) for f in (value, both)]
        at = np.ones(M)
        rows.append((microseconds(value.bind(at)), microseconds(both.bind(at)), *work))
        print(f"k = {k:3}: value {rows[-1][0]:7.1f} us, value and gradient {rows[-1][1]:7.1f} us; operations {work[0]:8} and {work[1]:8}, "
              f"ratio {work[1] / work[0]:.2f}")
    ratios = [r[3] / r[2] for r in rows]
    growth = rows[-1][3] / rows[0][3] / (depths[-1] / depths[0])      # 1: linear in k

    def draw(axes):
        axes.loglog(depths, [r[0] for r in rows], "o-", label="value")
        axes.loglog(depths, [r[1] for r in rows], "o-", label="value and gradient")
        axes.loglog(depths, [rows[0][1] * (k / depths[0]) ** 2 for k in depths], "k:", label="quadratic growth")
        axes.set_xlabel("layers")
        axes.set_ylabel("us")
        axes.legend()
    plotting.save("cost_of_backprop.svg", draw)
    _, ws, y = network(2)
    gd.draw(y, wrt=ws).save("cost_of_backprop_graph.svg")
    return {"ratios": ratios, "growth": growth}


if __name__ == "__main__":
    main()
