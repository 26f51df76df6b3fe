"""What the demo's training step is compared with: the same step written by hand in NumPy, and a clock for both."""
import time

import numpy as np


def numpy_step(x, t, p, v, rate=0.1, momentum=0.9):
    """The same step written by hand in NumPy."""
    w1, b1, w2, b2 = p
    a = x @ w1 + b1
    h = np.maximum(a, 0)
    z = h @ w2 + b2
    e = np.exp(z - z.max(axis=1, keepdims=True))
    s = e / e.sum(axis=1, keepdims=True)
    rows = np.arange(len(t))
    loss = -np.mean(np.log(s[rows, t]))
    dz = s.copy()
    dz[rows, t] -= 1
    dz /= np.float32(len(t))
    dh = (dz @ w2.T) * (a > 0)
    for i, g in enumerate((x.T @ dh, dh.sum(axis=0), h.T @ dz, dz.sum(axis=0))):
        v[i] = momentum * v[i] + g
        p[i] -= rate * v[i]
    return loss


def by_hand(x, t, start):
    """The step as a function of no arguments, with parameters and velocities of its own."""
    p, v = [a.copy() for a in start], [np.zeros_like(a) for a in start]
    return lambda: numpy_step(x, t, p, v)


def side_by_side(**calls):
    """Median microseconds of every call, interleaved, so that all see the same machine."""
    times = {name: [] for name in calls}
    for _ in range(30):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(20):
                call()
            times[name].append((time.perf_counter() - begin) / 20 * 1e6)
    return {name: np.median(samples) for name, samples in times.items()}
