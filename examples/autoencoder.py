"""Shows: a linear autoencoder learns the span of the top principal components; a non-linear one with the same bottleneck
reconstructs digits better."""
import numpy as np
import plotting
from sklearn.datasets import load_digits

import graphdiff as gd

K = 3      # numbers in the bottleneck


def train(encode, decode, x, parameters, rate, steps):
    loss = gd.losses.mse(decode(encode(gd.constant(x))), x)
    opt = gd.optim.Adam(gd.optim.schedules.cosine(rate, steps))
    step = gd.function([], loss, updates=opt.updates(loss, parameters))
    for _ in range(steps):
        value = step()
    return float(value), loss


def main():
    x = load_digits().data / 16
    x = (x - x.mean(0))[:600]
    _, s, vt = np.linalg.svd(x, full_matrices=False)
    best = float((s[K:] ** 2).sum() / x.size)      # what the top K components leave
    enc = gd.nn.Dense(64, K, bias=False, key=1, dtype="float64", name="encoder")
    dec = gd.nn.Dense(K, 64, bias=False, key=2, dtype="float64", name="decoder")
    linear, _ = train(enc, dec, x, [*enc.parameters(), *dec.parameters()], 0.03, 600)
    q = np.linalg.qr(dec.w.value.T)[0]
    angle = float(np.linalg.svd(vt[:K] @ q)[1].min())      # cosine of the largest angle between the two subspaces
    print(f"left over by {K} principal components {best:.5f}, by the linear autoencoder {linear:.5f}")
    print(f"cosine of the largest angle between their subspaces: {angle:.5f}")
    deep_e = gd.nn.Sequential(gd.nn.Dense(64, 48, "tanh", key=3, dtype="float64"), gd.nn.Dense(48, K, key=4, dtype="float64"), name="encoder")
    deep_d = gd.nn.Sequential(gd.nn.Dense(K, 48, "tanh", key=5, dtype="float64"), gd.nn.Dense(48, 64, key=6, dtype="float64"), name="decoder")
    deep, loss = train(deep_e, deep_d, x, [*deep_e.parameters(), *deep_d.parameters()], 0.01, 1000)
    print(f"left over by the non-linear autoencoder {deep:.5f}")
    codes = gd.evaluate(deep_e(gd.constant(x)), {})

    def draw(axes):
        axes.scatter(codes[:, 0], codes[:, 1], c=load_digits().target[:600], cmap="tab10", s=8)
        axes.set_title("two of the three numbers a digit is squeezed into; colours: which digit")
    plotting.save("autoencoder.svg", draw)
    gd.draw(loss).save("autoencoder_graph.svg")
    return {"best": best, "linear": linear, "angle": angle, "deep": deep}


if __name__ == "__main__":
    main()
