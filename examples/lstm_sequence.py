"""Shows: an LSTM remembers: of a long sequence of random numbers two are marked, and the sum of the two is asked for (the
adding problem of Hochreiter and Schmidhuber 1997). A guess without memory has the error 1/6."""
import numpy as np
import plotting

import graphdiff as gd

T = 30


def sample(rng, n):
    numbers, marks = rng.random((n, T)), np.zeros((n, T))
    for half, row in ((slice(0, T // 2), 0), (slice(T // 2, T), T // 2)):
        marks[np.arange(n), row + rng.integers(0, half.stop - half.start, n)] = 1
    return np.stack([numbers, marks], 2).astype("float32"), (numbers * marks).sum(1).astype("float32")


def main(steps=900):
    lstm, out = gd.nn.LSTM(2, 32, key=1), gd.nn.Dense(32, 1, key=2)
    x, t = gd.input("x", ("n", T, 2), "float32"), gd.input("t", ("n",), "float32")
    loss = gd.losses.mse(out(lstm(x)[:, -1])[:, 0], t)
    opt = gd.optim.Adam(0.01, clip_norm=1.0)
    step = gd.function([x, t], loss, updates=opt.updates(loss, [*lstm.parameters(), *out.parameters()]))
    rng = np.random.default_rng(0)
    losses = [float(step(*sample(rng, 64))) for _ in range(steps)]
    last = float(np.mean(losses[-50:]))
    print(f"{T} steps, error of a constant guess {1 / 6:.3f}; after {steps} batches {last:.4f}")

    def draw(axes):
        axes.semilogy(losses)
        axes.axhline(1 / 6, color="black", linewidth=0.8, linestyle=":")
        axes.set_xlabel("step")
        axes.set_title("sum of the two marked numbers: squared error")
    plotting.save("lstm_sequence.svg", draw)
    gd.draw(loss).save("lstm_sequence_graph.svg")
    return {"last": last}


if __name__ == "__main__":
    main()
