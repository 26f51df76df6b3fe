"""Draws the pictures of the README, and a few more, into examples/pictures (or the folder given)."""
import sys
from pathlib import Path

import numpy as np

import graphdiff as gd


def survey():
    """Values forward, adjoints back: the example of Baydin et al. (2018), at (2, 5)."""
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    return gd.trace(y, at={x1: 2.0, x2: 5.0}).draw()


def paired():
    """The same formula as a graph of both passes: what gd.grad adds, beside what it belongs to."""
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    return gd.draw(y, wrt=[x1, x2])


def recurrent(steps=100):
    """A recurrence of 100 steps and its gradient: more than a thousand nodes, each step drawn once."""
    w, u = gd.variable(0.9, "w"), gd.variable(0.5, "u")
    h = gd.variable(0.0, "h0")
    for t in range(steps):
        x = gd.input(f"x{t}")
        with gd.scope(f"step{t}"):
            h = gd.tanh(w * h + u * x)
    return gd.draw(h.named("h"), wrt=[w, u])


def lstm(steps=100, inputs=8, hidden=16):
    """An LSTM unrolled over 100 steps: one cell, and the two states it hands on."""
    rng = np.random.default_rng(0)

    def weight(name, *shape):
        return gd.variable(rng.standard_normal(shape).astype("float32"), name)

    w, u, b = weight("W", inputs, 4 * hidden), weight("U", hidden, 4 * hidden), weight("b", 4 * hidden)
    x = gd.input("x", (steps, 4, inputs), "float32")
    h = c = gd.constant(np.zeros((4, hidden), "float32"))
    for t in range(steps):
        with gd.scope(f"step{t}"):
            z = x[t] @ w + h @ u + b
            i, f, g, o = (z[:, k * hidden:(k + 1) * hidden] for k in range(4))
            c = gd.sigmoid(f) * c + gd.sigmoid(i) * gd.tanh(g)
            h = gd.sigmoid(o) * gd.tanh(c)
    return gd.draw(h)


def lenet():
    """LeNet-5 and its gradient, layers collapsed to fit 40 boxes."""
    rng = np.random.default_rng(0)
    weights = []

    def weight(name, *shape):
        weights.append(gd.variable(rng.standard_normal(shape).astype("float32") * 0.1, name))
        return weights[-1]

    h, label = gd.input("image", (32, 1, 28, 28), "float32"), gd.input("label", (32,), "int64")
    for k, (channels, out, padding) in enumerate(((1, 6, 2), (6, 16, 0)), 1):
        with gd.scope(f"conv{k}"):
            h = gd.relu(gd.conv(h, weight(f"W{k}", out, channels, 5, 5), bias=weight(f"b{k}", out), padding=padding))
            h = gd.max_pool(h, 2)
    h = h.reshape(32, 400)
    for k, (n_in, n_out) in enumerate(((400, 120), (120, 84), (84, 10)), 3):
        with gd.scope(f"dense{k - 2}"):
            h = h @ weight(f"W{k}", n_in, n_out) + weight(f"b{k}", n_out)
            h = gd.relu(h) if n_out > 10 else h
    with gd.scope("loss"):
        loss = -gd.mean(gd.sum(gd.log_softmax(h) * gd.one_hot(label, 10, "float32"), axis=1))
    return gd.draw(loss, wrt=weights, max_nodes=40)


def program():
    """One training step as it runs: fused groups, and the arena over time."""
    rng = np.random.default_rng(0)
    x, t = gd.input("x", (64, 32), "float32"), gd.input("t", (64, 1), "float32")
    w1, w2 = (gd.variable(rng.standard_normal(s).astype("float32"), n) for s, n in (((32, 64), "W1"), ((64, 1), "W2")))
    loss = gd.mean((gd.tanh(x @ w1) @ w2 - t) ** 2)
    d1, d2 = gd.grad(loss, [w1, w2])
    return gd.draw(gd.function([x, t], loss, updates={w1: w1 - 0.1 * d1, w2: w2 - 0.1 * d2}))


PICTURES = (survey, paired, recurrent, lstm, lenet, program)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for make in PICTURES:
        drawing = make()
        drawing.save(folder / f"{make.__name__}.svg")
        print(f"{make.__name__}.svg: {drawing!r}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "examples" / "pictures")
