"""Shows: the gradient of a layer's weights is (dL/dh) h_prev^T; the full Jacobian gives the same at D times the cost."""
import time

import numpy as np
import plotting

import graphdiff as gd


def both(d):
    """The two recipes for dL/dW of h = tanh(W h_prev), L = h . c, as functions of W and h_prev."""
    w, h_prev = gd.input("W", (d, d)), gd.input("h_prev", (d,))
    c = np.cos(np.arange(d))
    h = gd.tanh(w @ h_prev)
    loss = h @ c
    recipe = gd.outer(gd.grad(loss, h) * (1 - h * h), h_prev)
    jacobian = gd.jacobian(h, w)                       # d x d x d numbers
    full = gd.einsum("i,ijk->jk", gd.grad(loss, h), jacobian)
    return gd.function([w, h_prev], recipe), gd.function([w, h_prev], full), gd.function([w, h_prev], gd.grad(loss, w)), loss


def microseconds(f, *args):
    f(*args)
    samples = []
    for _ in range(5):
        start = time.perf_counter()
        f(*args)
        samples.append((time.perf_counter() - start) * 1e6)
    return min(samples)


def main():
    rng = np.random.default_rng(0)
    sizes, times, gap = (8, 16, 32, 64), {"layer recipe": [], "full Jacobian": [], "gd.grad": []}, 0.0
    for d in sizes:
        w, h = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d)
        functions = both(d)[:3]
        a, b, c = (f(w, h) for f in functions)
        gap = max(gap, float(np.abs(a - b).max()), float(np.abs(a - c).max()))
        for name, f in zip(times, functions, strict=True):
            times[name].append(microseconds(f, w, h))
        print(f"D = {d:3}: " + ", ".join(f"{name} {t[-1]:8.1f} us" for name, t in times.items()))
    print(f"largest difference between the three: {gap:.1e}")

    def draw(axes):
        for name, t in times.items():
            axes.loglog(sizes, t, "o-", label=name)
        axes.set_xlabel("D")
        axes.set_ylabel("us")
        axes.legend()
    plotting.save("layer_recipe.svg", draw)
    gd.draw(both(8)[3]).save("layer_recipe_graph.svg")
    return {"gap": gap, "times": times}


if __name__ == "__main__":
    main()
