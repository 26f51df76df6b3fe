"""A training step in each library: the losses of steps.py, the update, and the state in between."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .peers import Missing, Peer, _Words
from .steps import Step


class Training(NamedTuple):
    """call(): one step, returns its loss when the new weights are there. again(): the same with memory to work in not yet
    touched, for measuring. planned: bytes that the compiled program asks for beside weights and batch, where it says: the
    arena of graphdiff, temporaries and new results of JAX, whose allocator keeps them, so that no growth shows."""

    call: Callable[[], Any]
    again: Callable[[], Callable[[], Any]]
    planned: int | None = None


SLOTS = {"descent": 0, "momentum": 1, "adam": 2}


def rule(xp: Any, method: str, rate: float, w: Any, g: Any, state: Sequence[Any], t: Any) -> tuple[Any, Sequence[Any]]:
    """(new weight, new state) in the words of NumPy or JAX; t: number of the step from 1."""
    if method == "descent":
        return w - rate * g, ()
    if method == "momentum":
        v = 0.9 * state[0] - rate * g
        return w + v, (v,)
    m, v = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * (g * g)
    c1, c2 = 1 - 0.9 ** t, 1 - 0.999 ** t
    return w - rate / c1 * m / (xp.sqrt(v / c2) + 1e-8), (m, v)


def numpy(step: Step, weights: Sequence[Any], batch: Sequence[Any]) -> Training:
    values = [w.copy() for w in weights]
    state: list[Any] = [tuple(np.zeros_like(w) for _ in range(SLOTS[step.method])) for w in weights]
    count = 0

    def call() -> Any:
        nonlocal count
        count += 1
        loss, gradients = step.by_hand(values, *batch)
        for i, g in enumerate(gradients):
            values[i], state[i] = rule(np, step.method, step.rate, values[i], g, state[i], count)
        return loss
    return Training(call, lambda: call)


def compiled(step: Step, weights: Sequence[Any], batch: Sequence[Any], threads: int) -> Any:
    """The step as a gd.function of the batch, which gives the loss."""
    import graphdiff as gd
    inputs = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(batch)]
    loss, parameters = step.net(*inputs)
    for p, w in zip(parameters, weights, strict=True):
        p.value = w
    optimizer = {"descent": gd.optim.GradientDescent, "momentum": gd.optim.Momentum, "adam": gd.optim.Adam}[step.method](step.rate)
    return gd.function(inputs, loss, updates=optimizer.updates(loss, parameters), threads=threads)


def graphdiff(step: Step, weights: Sequence[Any], batch: Sequence[Any], threads: int) -> Training:
    f = compiled(step, weights, batch, threads)
    return Training(f.bind(*batch), lambda: f.bind(*batch), f.plan.arena_nbytes)


def torch(peer: Peer, step: Step, weights: Sequence[Any], batch: Sequence[Any], compile: bool) -> Training:
    import torch as th
    import torch.nn.functional as F

    def recurrent(f: Any, states: int) -> Any:
        def run(x: Any, w: Any, u: Any, b: Any, c: Any = None) -> Any:
            h = x.new_zeros(1, len(x), len(u))
            flat = [w.t(), u.t(), b, x.new_zeros(len(b)) if c is None else c]
            return f(x, [h] * states if states > 1 else h, flat, True, 1, 0.0, True, False, True)[0]
        return run
    m = _Words(peer.words, dense=lambda x, w, b: F.linear(x, w.t(), b), mse=F.mse_loss, lstm=recurrent(th.lstm, 2), gru=recurrent(th.gru, 1),
               conv_bias=lambda x, w, b, padding: F.conv2d(x, w, b, padding=padding))
    values = [th.from_numpy(w.copy()).requires_grad_() for w in weights]
    data = [th.from_numpy(a) for a in batch]
    # fused: the fastest of PyTorch's own forms of these updates on a CPU
    optimizer: Any = (th.optim.Adam(values, lr=step.rate, fused=True) if step.method == "adam" else
                      th.optim.SGD(values, lr=step.rate, momentum=0.9 if step.method == "momentum" else 0.0, fused=True))

    def loss(*values: Any) -> Any:
        return step.loss(m, values, *data)
    f = th.compile(loss) if compile else loss

    def call() -> Any:
        y = f(*values)
        y.backward()
        optimizer.step()
        optimizer.zero_grad()      # here, so that gradients count in the memory of every step
        return y.detach()
    return Training(call, lambda: call)


def jax(peer: Peer, step: Step, weights: Sequence[Any], batch: Sequence[Any]) -> Training:
    import jax as jx
    import jax.numpy as jnp
    from jax import lax

    def lstm(x: Any, w: Any, u: Any, b: Any) -> Any:
        def one(state: Any, xw: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(xw + h @ u, 4, axis=1)
            c = jx.nn.sigmoid(f) * c + jx.nn.sigmoid(i) * jnp.tanh(g)
            h = jx.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        h = jnp.zeros((len(x), len(u)), x.dtype)
        return lax.scan(one, (h, h), (x @ w + b).swapaxes(0, 1))[1].swapaxes(0, 1)

    def gru(x: Any, w: Any, u: Any, b: Any, c: Any) -> Any:
        def one(h: Any, xw: Any) -> Any:
            (xr, xz, xn), (hr, hz, hn) = jnp.split(xw, 3, axis=1), jnp.split(h @ u + c, 3, axis=1)
            z, n = jx.nn.sigmoid(xz + hz), jnp.tanh(xn + jx.nn.sigmoid(xr + hr) * hn)
            h = n + z * (h - n)
            return h, h
        return lax.scan(one, jnp.zeros((len(x), len(u)), x.dtype), (x @ w + b).swapaxes(0, 1))[1].swapaxes(0, 1)
    m = _Words(peer.words, dense=lambda x, w, b: x @ w + b, mse=lambda y, t: jnp.mean((y - t) ** 2), lstm=lstm, gru=gru,
               conv_bias=lambda x, w, b, padding: peer.words.conv(x, w, padding=padding) + b.reshape(1, -1, 1, 1))
    data = [jnp.asarray(a) for a in batch]
    method, rate = step.method, step.rate

    def advance(values: Any, state: Any, t: Any, data: Any) -> Any:
        loss, gradients = jx.value_and_grad(lambda w: step.loss(m, w, *data))(values)
        new = [rule(jnp, method, rate, w, g, s, t.astype(w.dtype)) for w, g, s in zip(values, gradients, state, strict=True)]
        return loss, [w for w, _ in new], [s for _, s in new], t + 1
    run = jx.jit(advance, donate_argnums=(0, 1, 2))
    kept: Any = ([jnp.array(w) for w in weights], [tuple(jnp.zeros_like(w) for _ in range(SLOTS[method])) for w in weights], jnp.array(1))
    needs = run.lower(*kept, data).compile().memory_analysis()

    def call() -> Any:
        nonlocal kept
        loss, *kept = jx.block_until_ready(run(*kept, data))
        return loss
    return Training(call, lambda: call, needs.temp_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes)


def pytensor(peer: Peer, step: Step, weights: Sequence[Any], batch: Sequence[Any]) -> Training:
    import pytensor as pt
    import pytensor.tensor as tt
    from pytensor.tensor import special
    m = _Words(peer.words, dense=lambda x, w, b: x @ w + b, mse=lambda y, t: tt.mean((y - t) ** 2),
               cross_entropy=lambda x, t: -tt.mean(special.log_softmax(x, axis=1)[np.arange(len(batch[1])), t]))
    values = [pt.shared(w.copy()) for w in weights]
    data = [tt.tensor(dtype=a.dtype, shape=a.shape) for a in batch]
    loss = step.loss(m, values, *data)
    count = pt.shared(np.float32(1))
    updates: Any = [(count, count + np.float32(1))]
    for v, g, w in zip(values, pt.grad(loss, values), weights, strict=True):
        slots = [pt.shared(np.zeros_like(w)) for _ in range(SLOTS[step.method])]
        new, state = rule(tt, step.method, step.rate, v, g, slots, count)
        updates += [(v, tt.cast(new, "float32")), *((a, tt.cast(b, "float32")) for a, b in zip(slots, state, strict=True))]
    f = pt.function(data, loss, updates=updates, trust_input=True)
    return Training(lambda: f(*batch), lambda: lambda: f(*batch))


def train(library: str, peer: Peer | None, step: Step, weights: Sequence[Any], batch: Sequence[Any], threads: int) -> Training:
    """The step in a library by name. Raises Missing where the library has no words for it."""
    if peer is None:
        return numpy(step, weights, batch)
    if library == "graphdiff":
        return graphdiff(step, weights, batch, threads)
    if library in ("torch", "torch.compile"):
        return torch(peer, step, weights, batch, library == "torch.compile")
    if library == "jax":
        return jax(peer, step, weights, batch)
    if library == "pytensor":
        return pytensor(peer, step, weights, batch)
    raise Missing("no training step is written for it")


def growth(call: Callable[[], Any]) -> int | None:
    """Bytes by which the resident set of this process grows at most during a call, freed memory having been given back to the
    system before. Linux counts pages in batches: right to about half a megabyte. None elsewhere."""
    import ctypes
    import gc
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")      # the peak starts anew from here
        before = _status("VmRSS:")
        call()
        return max(0, _status("VmHWM:") - before)
    except (OSError, AttributeError):
        return None


def _status(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


LOSSES = 3


def losses(training: Training) -> list[float]:
    """Of the first steps."""
    return [float(np.asarray(training.call())) for _ in range(LOSSES)]


def disagreement(mine: Sequence[float], theirs: Sequence[float], tolerance: float) -> str:
    """'' when the losses of all steps agree, relative to their size, else the first that does not."""
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if not abs(a - b) <= tolerance * abs(b):
            return f"loss of step {i + 1}: {a:.6g} against {b:.6g}"
    return ""
