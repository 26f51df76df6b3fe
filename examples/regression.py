"""Shows: linear, logistic and softmax regression on real data; the linear one against the least-squares solution."""
import numpy as np
import plotting
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

import graphdiff as gd


def standard(x):
    return (x - x.mean(0)) / x.std(0)


def train(loss, parameters, rate, steps):
    step = gd.function([], loss, updates=gd.optim.Nesterov(rate, 0.9).updates(loss, parameters))
    return [float(step()) for _ in range(steps)]


def linear():
    x, t = load_diabetes(return_X_y=True)
    x, t = standard(x), (t - t.mean()) / t.std()
    w = gd.variable(np.zeros(10), "w")
    losses = train(gd.losses.mse(x @ w, t), [w], 0.05, 8000)
    exact = np.linalg.lstsq(x, t, rcond=None)[0]
    return losses, float(np.abs(w.value - exact).max())


def logistic():
    x, t = load_breast_cancer(return_X_y=True)
    x = standard(x)
    w, b = gd.variable(np.zeros(30), "w"), gd.variable(0.0, "b")
    z = x @ w + b
    losses = train(gd.losses.binary_cross_entropy_with_logits(z, gd.constant(t)) + 0.001 * gd.losses.l2(w), [w, b], 0.1, 300)
    return losses, float(np.mean((gd.evaluate(z, {}) > 0) == t))


def softmax():
    x, t = load_iris(return_X_y=True)
    x = standard(x)
    w, b = gd.variable(np.zeros((4, 3)), "w"), gd.variable(np.zeros(3), "b")
    z = x @ w + b
    loss = gd.losses.cross_entropy(z, gd.constant(t))
    losses = train(loss, [w, b], 0.1, 500)
    return losses, float(1 - gd.evaluate(gd.losses.zero_one(z, gd.constant(t)), {})), loss


def main():
    curves = {}
    curves["linear (diabetes)"], gap = linear()
    print(f"linear regression, 442 patients: largest distance to the least-squares weights {gap:.1e}")
    curves["logistic (breast cancer)"], accuracy = logistic()
    print(f"logistic regression, 569 tumours: {accuracy:.1%} right on the training data")
    curves["softmax (iris)"], three, loss = softmax()
    print(f"softmax regression, 150 irises: {three:.1%} right on the training data")

    def draw(axes):
        for name, losses in curves.items():
            axes.loglog(np.arange(1, len(losses) + 1), losses, label=name)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.legend()
    plotting.save("regression.svg", draw)
    gd.draw(loss).save("regression_graph.svg")
    return {"gap": gap, "logistic": accuracy, "softmax": three}


if __name__ == "__main__":
    main()
