"""The bits of a result: the same at the second call, in a fresh process, and for every number of threads."""
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG
from counting import checked
from random_graphs import graph

import graphdiff as gd

GRAPHS = 200 if LONG else 60
THREADS = (1, 2, 3, 4, 8)
HERE = Path(__file__).parent


def build(seed):
    """A random graph with its gradients; every fifth one with arrays large enough for several threads."""
    if seed % 5 == 4:
        rng = np.random.default_rng(seed)
        n, m = (int(k) for k in rng.integers(200, 700, 2))
        dtype = ("float32", "float64")[seed // 5 % 2]
        x, w = gd.input("x", (n, m), dtype), gd.input("w", (m, 40), dtype)
        h = gd.tanh(x @ w)
        y = [gd.logsumexp(h * gd.sum(x, 1, keepdims=True)), gd.mean(gd.exp(-gd.square(x))), gd.sum(gd.sort(h, 0)[: n // 2]),
             gd.sum(gd.cumsum(x, 0) * gd.softmax(x, 1))][seed // 5 % 4]
        feeds = {x: rng.standard_normal((n, m)).astype(dtype), w: rng.standard_normal((m, 40)).astype(dtype)}
        return [y, *gd.grad(y, [x, w], unconnected="zero")], feeds
    outputs, feeds = graph(seed, wild=seed % 2 == 0, floats=("float64", "float32"))
    y = outputs[0]
    if y.dtype.kind == "f":
        outputs = [*outputs, *gd.grad(y, list(feeds), cotangent=gd.ones_like(y), unconnected="zero")]
    return outputs, feeds


def digest(results):
    """NaNs are one value: which payload survives an addition is not promised."""
    h = hashlib.sha256()
    for r in results:
        h.update(f"{r.dtype}{r.shape}".encode())
        h.update((np.where(np.isnan(r), np.asarray(np.nan, r.dtype), r) if r.dtype.kind == "f" else r).tobytes())
    return h.hexdigest()


def digests(threads):
    found = []
    for seed in range(GRAPHS):
        outputs, feeds = build(seed)
        found.append(digest(gd.function(list(feeds), outputs, threads=threads)(*feeds.values())))
    return found


@pytest.fixture(scope="module")
def alone():
    return digests(1)


def test_the_graphs_differ(alone):
    assert len(set(alone)) > 0.95 * GRAPHS      # a digest that sees nothing would find everything equal


def test_a_second_call_and_any_number_of_threads_give_the_same_bits(alone):
    for seed, want in enumerate(alone):
        outputs, feeds = build(seed)
        for threads in THREADS:
            f = gd.function(list(feeds), outputs, threads=threads)
            for call in range(2):
                assert digest(f(*feeds.values())) == want, (seed, threads, call)
                checked()


@pytest.mark.parametrize("hashing", ["0", "12345"])
def test_a_fresh_process_gives_the_same_bits(alone, hashing):
    """The order of sets of strings depends on PYTHONHASHSEED; no result does."""
    env = {**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    code = f"import test_bits; print(*test_bits.digests({3 if hashing == '0' else 1}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == alone
    checked(GRAPHS)
