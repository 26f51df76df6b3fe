"""Shows: a piecewise linear function written as one hidden layer of relus, and a curve fitted by such a layer."""
import numpy as np
import plotting

import graphdiff as gd


def exact():
    """relu(x) - relu(x-1) + 2 relu(x-2) - 3 relu(x-3) + relu(x-6): each kink is one unit, its coefficient the change of slope."""
    x = gd.input("x", ("n",))
    kinks, slopes = np.array([0.0, 1.0, 2.0, 3.0, 6.0]), np.array([1.0, -1.0, 2.0, -3.0, 1.0])
    return gd.function([x], gd.relu(x[:, None] - kinks) @ slopes)


def fitted(target, units=60, steps=4000):
    """A hidden layer of relus with random kinks, trained on a curve."""
    xs = np.linspace(-3, 3, 200)[:, None]
    net = gd.nn.Sequential(gd.nn.Dense(1, units, "relu", key=1, dtype="float64"), gd.nn.Dense(units, 1, key=2, dtype="float64"))
    rng = np.random.default_rng(0)
    net[0].w.value, net[0].b.value = rng.choice([-1.0, 1.0], (1, units)), rng.uniform(-3, 3, units)      # kinks all over [-3, 3]
    x = gd.input("x", ("n", 1))
    loss = gd.losses.mse(net(gd.constant(xs)), target(xs))
    opt = gd.optim.Adam(gd.optim.schedules.cosine(0.02, steps))
    step = gd.function([], loss, updates=opt.updates(loss, net.parameters()))
    for _ in range(steps):
        step()
    return gd.function([x], net(x)), xs, net(x)


def main():
    f = exact()
    values = f(np.arange(9.0))
    print("at 0..8:", values)

    def target(x):
        return np.sin(2 * x) + 0.3 * x
    g, xs, node = fitted(target)
    error = float(np.abs(g(xs) - target(xs)).max())
    print(f"60 relus against sin 2x + 0.3 x on [-3, 3]: largest error {error:.4f}")

    def draw(axes):
        x = np.linspace(0, 8, 400)
        axes.plot(x, f(x), label="five relus, exactly")
        axes.plot(xs, target(xs), "k:", label="a curve")
        axes.plot(xs, g(xs), label="60 relus, trained")
        axes.legend()
    plotting.save("piecewise.svg", draw)
    gd.draw(node).save("piecewise_graph.svg")
    return {"values": values, "error": error}


if __name__ == "__main__":
    main()
