"""The tour of `make demo`: both traces of one formula, its picture, and a network trained entirely in C on real digits."""
import numpy as np
from by_hand import by_hand, side_by_side
from sklearn.datasets import load_digits
from tqdm import tqdm

import graphdiff as gd


def survey() -> None:
    """The example of Baydin et al., "Automatic differentiation in machine learning: a survey" (2018), table 3."""
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    trace = gd.trace(y, at={x1: 2.0, x2: 5.0})
    print("y = ln x1 + x1 x2 - sin x2 at (2, 5)\n")
    print(trace)
    trace.draw().save("demo_trace.svg")
    trace.save("demo_trace.html")
    print("\nwritten: demo_trace.svg (forward and adjoint picture), demo_trace.html (the same, with the table)\n")


def network(x, parameters):
    w1, b1, w2, b2 = parameters
    return gd.relu(x @ w1 + b1) @ w2 + b2


def make_step(parameters, rate=0.1, momentum=0.9):
    """One training step: forward, reverse and the update of every parameter in one call."""
    x = gd.input("x", ("batch", 64), "float32")
    t = gd.input("t", ("batch",), "int64")
    log_p = gd.log_softmax(network(x, parameters))
    loss = -gd.mean(gd.sum(log_p * gd.one_hot(t, 10, "float32"), axis=1))
    updates = {}
    for p, g in zip(parameters, gd.grad(loss, parameters), strict=True):
        v = gd.variable(np.zeros(p.shape, "float32"))
        new_v = momentum * v + g
        updates[v], updates[p] = new_v, p - rate * new_v
    return gd.function([x, t], loss, updates=updates, threads=1)


def main() -> None:
    survey()
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    train, test = order[:-360], order[-360:]
    start = [rng.standard_normal((64, 128)) * np.sqrt(2 / 64), np.zeros(128), rng.standard_normal((128, 10)) * np.sqrt(2 / 128), np.zeros(10)]
    start = [a.astype("float32") for a in start]
    parameters = [gd.variable(a, n) for a, n in zip(start, ("w1", "b1", "w2", "b2"), strict=True)]
    step = make_step(parameters)
    epochs, batch = 30, 64
    bar = tqdm(range(epochs), desc="training on 1,437 digits", unit="epoch")
    for _ in bar:
        rng.shuffle(train)
        for i in range(0, len(train), batch):
            rows = train[i:i + batch]
            loss = step(images[rows], labels[rows])
        bar.set_postfix(loss=f"{float(loss):.4f}")
    x = gd.input("x", ("batch", 64), "float32")
    predict = gd.function([x], gd.argmax(network(x, parameters), axis=1))
    accuracy = np.mean(predict(images[test]) == labels[test])
    print(f"test accuracy on 360 digits it has not seen: {accuracy:.2%}")
    rows = train[:batch]
    bound = step.bind(images[rows], labels[rows])
    for name, microseconds in side_by_side(graphdiff=bound, NumPy_by_hand=by_hand(images[rows], labels[rows], start)).items():
        print(f"one step, batch {batch}: {microseconds:7.1f} us  {name.replace('_', ' ')}")
    if accuracy < 0.97:
        raise SystemExit("accuracy below 97 %")


if __name__ == "__main__":
    main()
