"""Random graphs from a seed: what the test of passes, threads and derivatives draws from, and what a regression file names."""
from __future__ import annotations

import numpy as np

import graphdiff as gd
from graphdiff.graph.opdef import REGISTRY

SIZES = (0, 1, 2, 3, 7, 17)
ODD = (np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 1e308, -1.0, 1.0, 2.0)
UNARY = ("negative", "abs", "sign", "square", "relu", "reciprocal", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "arctan", "sigmoid",
         "softplus", "floor", "rint", "isnan", "logical_not")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "zmul", "copysign", "less", "equal", "logical_and", "hypot",
          "remainder", "floor_divide")
# Ops whose kernels may differ from NumPy in the last places; everything else must agree bit by bit.
ROUNDED = {"sum", "prod", "softmax", "logsumexp", "cumsum", "matmul", "log_softmax", "einsum", "cumprod", "recurrence"} | {
    n for n, op in REGISTRY.items() if op.family == "elementwise" and op.ulp and op.cuts is None}
# Their result jumps: after a rounded value the oracle may land on the other side.
JUMPS = {"sign", "floor", "rint", "isnan", "logical_not", "less", "equal", "logical_and", "remainder", "floor_divide", "argmax", "argsort", "sort",
         "max", "min", "maximum", "minimum", "copysign", "fmax", "zmul"}


class Builder:
    """Grows one graph: a pool of nodes, from which operands are drawn again and again (30 % of the time a recent one)."""

    def __init__(self, seed: int, wild: bool, floats: tuple[str, ...] = ("float64",)) -> None:
        self.rng = np.random.default_rng(seed)
        self.wild = wild
        self.floats = floats
        self.sizes = list(self.rng.choice(SIZES if wild else SIZES[1:], 2))
        self.pool: list[gd.Node] = []
        self.feeds: dict[gd.Node, np.ndarray] = {}
        for i in range(int(self.rng.integers(1, 4))):
            self.leaf(f"x{i}")

    def shape(self):
        return tuple(int(self.rng.choice([1, *self.sizes])) for _ in range(int(self.rng.integers(0, 4))))

    def values(self, shape, dtype):
        rng = self.rng
        a = rng.standard_normal(shape) * rng.choice([0.5, 1.0, 3.0])
        if self.wild and rng.random() < 0.4:
            mask = rng.random(shape) < 0.3
            a = np.where(mask, rng.choice(ODD, shape), a)
        with np.errstate(all="ignore"):
            return a.astype(dtype)

    def leaf(self, name):
        shape = self.shape()
        dtype = str(self.rng.choice(self.floats))
        x = gd.input(name, shape, dtype)
        self.pool.append(x)
        self.feeds[x] = self.values(shape, dtype)

    def pick(self, kind=None):
        pool = self.pool if kind is None else [n for n in self.pool if n.dtype.kind == kind]
        if self.rng.random() < 0.7:
            pool = pool[-6:]
        return pool[int(self.rng.integers(len(pool)))]

    def constant(self, dtype):
        value = float(self.rng.choice(ODD)) if self.wild else float(self.rng.choice([0.0, 1.0, -0.0, 0.5, 2.0, -1.5]))
        with np.errstate(all="ignore"):
            return gd.constant(np.array(value).astype(dtype))

    def step(self):
        """One more node; None when what was drawn does not fit."""
        rng = self.rng
        kind = rng.choice(["unary", "binary", "reduce", "move", "index", "heavy", "where", "cast"], p=[0.26, 0.3, 0.1, 0.14, 0.06, 0.06, 0.05, 0.03])
        x = self.pick("f")
        try:
            y = getattr(self, str(kind))(x)
        except gd.errors.GraphdiffError:
            return
        if y is not None and isinstance(y.size, int) and y.size <= 4000 and y.ndim <= 4:
            self.pool.append(y)

    def unary(self, x):
        return getattr(gd, str(self.rng.choice(UNARY)))(x)

    def binary(self, x):
        y = self.constant(x.dtype) if self.rng.random() < 0.25 else self.pick("f")
        if self.rng.random() < 0.5:
            x, y = y, x
        return getattr(gd, str(self.rng.choice(BINARY)))(x, y)

    def reduce(self, x):
        name = str(self.rng.choice(["sum", "prod", "max", "min", "mean", "any", "argmax", "logsumexp"]))
        axis = None if x.ndim == 0 or self.rng.random() < 0.3 else int(self.rng.integers(x.ndim))
        return getattr(gd, name)(x, axis=axis, keepdims=bool(self.rng.random() < 0.5))

    def move(self, x):
        rng = self.rng
        match int(rng.integers(8)):
            case 0:
                return gd.transpose(x, tuple(int(a) for a in rng.permutation(x.ndim)))
            case 1:
                return gd.reshape(x, (-1,)) if x.size else None
            case 2:
                return gd.flip(x)
            case 3:
                return gd.concatenate([x, self.pick("f")], axis=0)
            case 4:
                return x[::2] if x.ndim else x[None]
            case 5:
                return gd.expand_dims(x, int(rng.integers(x.ndim + 1)))
            case 6:
                return gd.broadcast_to(x, (2, *x.shape))
            case _:
                return gd.pad(x, 1, constant_values=float(rng.choice([0.0, -0.0, 1.0])))

    def index(self, x):
        n = x.shape[0] if x.ndim else 0
        if not n:
            return None
        i = self.rng.integers(-n, n, int(self.rng.integers(0, 5)))
        match int(self.rng.integers(4)):
            case 0:
                return x[i]
            case 1:
                return x[int(self.rng.integers(-n, n))]
            case 2:
                return x.at[i].add(self.constant(x.dtype))
            case _:
                return x.at[1:].set(self.constant(x.dtype))

    def heavy(self, x):
        match int(self.rng.integers(6)):
            case 0:
                return gd.softmax(x) if x.ndim else None
            case 1:
                return gd.cumsum(x, axis=0) if x.ndim else None
            case 2:
                return gd.sort(x) if x.ndim else None
            case 3:
                return gd.matmul(x, self.pick("f"))
            case 4:
                return gd.einsum("...i,...i->...", x, x) if x.ndim else None
            case _:
                return gd.cumprod(x, axis=0) if x.ndim else None

    def where(self, x):
        return gd.where(self.pick() > 0, x, self.pick("f"))

    def cast(self, x):
        return x.astype(str(self.rng.choice(self.floats)))


def graph(seed: int, *, wild: bool, floats: tuple[str, ...] = ("float64",), nodes: int | None = None):
    """(outputs, feeds): a graph of 1 to 40 nodes; outputs are its last node, a few others, and the inputs nobody used."""
    b = Builder(seed, wild, floats)
    for _ in range(int(b.rng.integers(1, 41)) if nodes is None else nodes):
        b.step()
    extra = [b.pool[int(i)] for i in b.rng.integers(0, len(b.pool), 2)]
    return [b.pool[-1], *extra], b.feeds
