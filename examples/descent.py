"""Shows: gradient descent in one variable, step by step, and a root of an equation found by descending on its square."""
import numpy as np
import plotting

import graphdiff as gd


def descend(f, start, rate, steps):
    """The path of w <- w - rate f'(w); each step is one call that also writes w."""
    w = gd.variable(float(start), "w")
    y = f(w)
    step = gd.function([], y, updates={w: w - rate * gd.grad(y, w)})
    path = [float(w.value)]
    for _ in range(steps):
        step()
        path.append(float(w.value))
    return path


def quartic(x):
    return x**4 - x**3 - 2.0 * x**2 + 3.0


def main():
    path = descend(quartic, 2.0, 0.13, 100)
    print("x^4 - x^3 - 2x^2 + 3 from 2:", ", ".join(f"{p:.9g}" for p in path[1:4]), "...", f"{path[-1]:.9f}")
    # x^5 - x^4 - x = -1 is (x - 1)^2 (x + 1) (x^2 + 1) = 0: descend on the square of the difference.
    root = descend(lambda x: (x**5 - x**4 - x + 1.0) ** 2, -1.2, 0.005, 400)[-1]
    print(f"a root of x^5 - x^4 - x = -1: {root:.6f}")

    def draw(axes):
        xs = np.linspace(-1.6, 2.1, 200)
        axes.plot(xs, quartic(xs))
        axes.plot(path, [quartic(p) for p in path], "o-", markersize=3, linewidth=0.6)
        axes.set_title("descent on $x^4 - x^3 - 2x^2 + 3$ from 2")
    plotting.save("descent.svg", draw)
    x = gd.input("x")
    gd.draw(quartic(x), wrt=[x]).save("descent_graph.svg")
    return {"path": path, "root": root}


if __name__ == "__main__":
    main()
