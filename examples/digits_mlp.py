"""Shows: a small network on real handwritten digits, the whole training step in one C call; at least 97 % right."""
import numpy as np
from sklearn.datasets import load_digits

import graphdiff as gd


def main():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-360], order[-360:]
    net = gd.nn.Sequential(gd.nn.Dense(64, 128, "relu", init="he", key=0), gd.nn.Dropout(0.2, key=1), gd.nn.Dense(128, 10, key=2))
    x, t = gd.input("x", ("batch", 64), "float32"), gd.input("t", ("batch",), "int64")
    loss = gd.losses.cross_entropy(net(x, training=True), t)
    step = gd.function([x, t], loss, updates={**gd.optim.Adam(0.002).updates(loss, net.parameters()), **net.updates()})
    errors = gd.function([x, t], gd.losses.zero_one(net(x), t))
    history = gd.fit(step, gd.data.batches([images[train], labels[train]], 64, key=3), epochs=40,
                     validate=lambda: {"test errors": errors(images[test], labels[test])})      # looked at, not chosen by
    accuracy = 1 - float(errors(images[test], labels[test]))
    print(f"test accuracy on 360 digits it has not seen: {accuracy:.2%}")
    try:
        history.plot("digits_mlp.svg")
    except gd.errors.GraphdiffError as error:
        print(error)
    gd.draw(loss).save("digits_mlp_graph.svg")
    return {"accuracy": accuracy, "history": history}


if __name__ == "__main__":
    main()
