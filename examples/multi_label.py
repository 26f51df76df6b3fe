"""Shows: several labels at once with sigmoids: of a handwritten digit, is it even, is it above 4, does it have a loop?"""
import numpy as np
import plotting
from sklearn.datasets import load_digits

import graphdiff as gd

QUESTIONS = ("even", "above 4", "has a loop")


def labels_of(digits):
    return np.stack([digits % 2 == 0, digits > 4, np.isin(digits, [0, 6, 8, 9])], 1)


def main():
    images, digits = load_digits(return_X_y=True)
    images, labels = (images / 16).astype("float32"), labels_of(digits)
    train, test = slice(0, 1437), slice(1437, None)
    net = gd.nn.Sequential(gd.nn.Dense(64, 64, "relu", init="he", key=0), gd.nn.Dense(64, 3, key=1), name="net")
    x, t = gd.input("x", ("batch", 64), "float32"), gd.input("t", ("batch", 3), "bool")
    loss = gd.losses.binary_cross_entropy_with_logits(net(x), t)
    step = gd.function([x, t], loss, updates=gd.optim.Adam(0.003).updates(loss, net.parameters()))
    predict = gd.function([x], net(x) > 0)
    history = gd.fit(step, gd.data.batches([images[train], labels[train]], 64, key=0), epochs=25, progress=False,
                     validate=lambda: {"errors": np.mean(predict(images[test]) != labels[test])})
    right = (predict(images[test]) == labels[test]).mean(0)
    for question, share in zip(QUESTIONS, right, strict=True):
        print(f"{question}: {share:.1%} right on 360 digits it has not seen")

    def draw(axes):
        axes.bar(QUESTIONS, right)
        axes.set_ylim(0.5, 1)
        axes.set_title("share of right answers")
    plotting.save("multi_label.svg", draw)
    gd.draw(loss).save("multi_label_graph.svg")
    return {"right": right, "history": history}


if __name__ == "__main__":
    main()
