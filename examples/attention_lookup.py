"""Shows: attention is a lookup one can differentiate: in a table with orthogonal keys, lookup(e3) = v3 and
lookup(e3 + 2 e5) = v3 + 2 v5; softmax makes it choose; learned projections find out what to look for."""
import numpy as np
import plotting

import graphdiff as gd


def main():
    rng = np.random.default_rng(0)
    keys, values = np.eye(6), rng.standard_normal((6, 4))
    q = gd.input("q", (6,))
    lookup = gd.function([q], (q @ keys.T) @ values)                      # the linear form
    e = np.eye(6)
    one, two = lookup(e[2]), lookup(e[2] + 2 * e[4])
    print("lookup(e3) - v3:", np.abs(one - values[2]).max(), "  lookup(e3 + 2 e5) - v3 - 2 v5:", np.abs(two - values[2] - 2 * values[4]).max())
    soft = gd.function([q], gd.attention(q[None], gd.constant(keys), gd.constant(values))[0])
    sharp = np.abs(soft(1000 * e[2]) - values[2]).max()
    print(f"with softmax, a sharp question: {sharp:.1e} from v3; a vague one (q = 0) gives the mean of all: "
          f"{np.abs(soft(np.zeros(6)) - values.mean(0)).max():.1e}")
    # Learned: each row holds 8 cards (which, number); asked for one card, answer its number.
    layer = gd.nn.MultiHeadAttention(16, 1, key=1, dtype="float64")
    head = gd.nn.Dense(16, 1, key=2, dtype="float64")
    cards, ask, t = gd.input("cards", ("n", 8, 16)), gd.input("ask", ("n", 1, 16)), gd.input("t", ("n",))
    loss = gd.losses.mse(head(layer(ask, cards))[:, 0, 0], t)
    step = gd.function([cards, ask, t], loss, updates=gd.optim.Adam(0.01).updates(loss, [*layer.parameters(), *head.parameters()]))

    def sample(n=64):
        which, number = np.argsort(rng.random((n, 8)), 1), rng.uniform(-1, 1, (n, 8))
        table = np.concatenate([np.eye(8)[which] * 3, np.zeros((n, 8, 7)), number[..., None]], 2)
        k = rng.integers(0, 8, n)
        question = np.concatenate([np.eye(8)[which[np.arange(n), k]] * 3, np.zeros((n, 8))], 1)[:, None]
        return table, question, number[np.arange(n), k]
    losses = [float(step(*sample())) for _ in range(500)]
    print(f"learned lookup: mean squared error {losses[0]:.3f} -> {np.mean(losses[-20:]):.5f}")

    def draw(axes):
        axes.semilogy(losses)
        axes.set_xlabel("step")
        axes.set_title("a lookup learned by attention: squared error")
    plotting.save("attention_lookup.svg", draw)
    gd.draw(loss).save("attention_lookup_graph.svg")
    return {"one": one - values[2], "two": two - values[2] - 2 * values[4], "sharp": sharp, "loss": float(np.mean(losses[-20:]))}


if __name__ == "__main__":
    main()
