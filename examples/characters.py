"""Shows: a small transformer that learns a text letter by letter (the Zen of Python, which every Python carries) and writes
on from a beginning."""
import codecs
import contextlib
import io

import numpy as np

import graphdiff as gd

nn = gd.nn
LENGTH, D = 32, 48


def zen():
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13").lower()


class Block(nn.Layer):
    """Attention and a small network, each beside a skip connection."""

    def __init__(self, key):
        super().__init__("block")
        self.norm1, self.norm2 = nn.LayerNorm(D, name="norm1"), nn.LayerNorm(D, name="norm2")
        self.attention = nn.MultiHeadAttention(D, 4, key=key, name="attention")
        self.mlp = nn.Sequential(nn.Dense(D, 2 * D, "gelu", key=key + 1), nn.Dense(2 * D, D, key=key + 2), name="mlp")

    def forward(self, x, training):
        x = x + self.attention(self.norm1(x), causal=True)
        return x + self.mlp(self.norm2(x))


class Model(nn.Layer):
    def __init__(self, letters):
        super().__init__("model")
        self.letters, self.places = nn.Embedding(letters, D, key=1, name="letters"), nn.Embedding(LENGTH, D, key=2, name="places")
        self.blocks = [Block(10), Block(20)]
        self.out = nn.Dense(D, letters, key=3, name="out")

    def forward(self, ids, training):
        x = self.letters(ids) + self.places(gd.constant(np.arange(LENGTH)))
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def main(steps=400):
    text = zen()
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(c) for c in text])
    model = Model(len(alphabet))
    ids, after = gd.input("ids", ("batch", LENGTH), "int64"), gd.input("after", ("batch", LENGTH), "int64")
    loss = gd.losses.cross_entropy(model(ids), after)
    opt = gd.optim.AdamW(gd.optim.schedules.warmup(gd.optim.schedules.cosine(0.004, steps), 20), clip_norm=1.0)
    step = gd.function([ids, after], loss, updates=opt.updates(loss, model.parameters()))
    rng, losses = np.random.default_rng(0), []
    for _ in range(steps):
        start = rng.integers(0, len(codes) - LENGTH - 1, 32)[:, None] + np.arange(LENGTH)
        losses.append(float(step(codes[start], codes[start + 1])))
    print(f"loss a letter: {losses[0]:.2f} at first (chance {np.log(len(alphabet)):.2f}), {np.mean(losses[-20:]):.3f} at last")
    following = gd.function([ids], gd.argmax(model(ids)[:, -1], axis=1))
    written = "beautiful is better than ugly.\ne"
    while len(written) < 120:
        window = np.array([[alphabet.index(c) for c in written[-LENGTH:]]])
        written += alphabet[int(following(window)[0])]
    print(f"it writes on: {written!r}")
    gd.draw(loss).save("characters_graph.svg")
    return {"first": losses[0], "last": float(np.mean(losses[-20:])), "written": written}


if __name__ == "__main__":
    main()
