"""Shows: no linear model computes XOR, one hidden layer does, and training finds such a layer."""
import numpy as np
import plotting

import graphdiff as gd

X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float64")
T = np.array([0.0, 1.0, 1.0, 0.0])


def least_squares():
    """The best linear model by gradient descent: w = 0, b = 1/2."""
    w, b = gd.variable([0.7, -0.3], "w"), gd.variable(0.0, "b")
    loss = gd.losses.mse(X @ w + b, T)
    step = gd.function([], loss, updates=gd.optim.GradientDescent(0.5).updates(loss, [w, b]))
    for _ in range(500):
        step()
    return np.array(w.value), float(b.value)


def by_hand():
    h = gd.relu(X @ np.ones((2, 2)) + np.array([0.0, -1.0]))
    return gd.evaluate(h @ np.array([1.0, -2.0]), {})


def trained(seed=4):
    net = gd.nn.Sequential(gd.nn.Dense(2, 8, "tanh", key=seed, dtype="float64"), gd.nn.Dense(8, 1, key=seed + 1, dtype="float64"))
    x = gd.input("x", ("n", 2))
    z = net(x)[:, 0]
    loss = gd.losses.binary_cross_entropy_with_logits(net(gd.constant(X))[:, 0], T)
    step = gd.function([], loss, updates=gd.optim.Adam(0.05).updates(loss, net.parameters()))
    losses = [float(step()) for _ in range(300)]
    return gd.function([x], gd.sigmoid(z)), losses, loss


def main():
    w, b = least_squares()
    print(f"best linear model: w = {np.round(w, 6)}, b = {b:.6f}: it says 1/2 everywhere")
    print("relu(X W1 + b1) w2 with W1 = 1, b1 = (0, -1), w2 = (1, -2):", by_hand())
    predict, losses, loss = trained()
    p = predict(X)
    print("trained 2-8-1:", np.round(p, 3), f"loss {losses[0]:.3f} -> {losses[-1]:.5f}")
    grid = np.stack(np.meshgrid(*[np.linspace(-0.5, 1.5, 101)] * 2), -1)

    def draw(axes):
        axes.contourf(grid[..., 0], grid[..., 1], predict(grid.reshape(-1, 2)).reshape(101, 101), 20, cmap="RdBu")
        axes.scatter(X[:, 0], X[:, 1], c=T, cmap="gray", edgecolors="white")
        axes.set_title("what the trained network says between the four points")
    plotting.save("xor.svg", draw)
    gd.draw(loss).save("xor_graph.svg")
    return {"w": w, "b": b, "by_hand": by_hand(), "trained": p, "loss": losses[-1]}


if __name__ == "__main__":
    main()
