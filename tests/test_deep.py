"""Deep and wide graphs at the default recursion limit, at linear cost."""
from __future__ import annotations

import math
import sys
import threading

import numpy as np
import pytest
from counting import checked

import graphdiff as gd


def chain(n):
    x = gd.input("x")
    y = x
    for _ in range(n // 2):
        y = y * 0.99999 + 1e-5
    g = gd.grad(y, x)
    f = gd.function([x], [y, g])
    value, slope = f(2.0)
    want = math.exp(n // 2 * math.log1p(-1e-5))
    assert abs(float(slope) - want) < 1e-8 * want
    assert abs(float(value) - (1 + want)) < 1e-8
    assert len(repr(y)) < 500 and len(str(g)) < 500
    checked(4)
    del f, g, y


def test_chain_of_100_000_operations():
    assert sys.getrecursionlimit() <= 3000
    chain(100_000)


@pytest.mark.long
def test_chain_of_a_million_operations():
    chain(1_000_000)


def test_a_small_stack_is_enough():
    threading.stack_size(256 * 1024)
    try:
        failed = []

        def work():
            try:
                chain(20_000)
            except BaseException as error:
                failed.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not failed, failed
    finally:
        threading.stack_size(0)


def test_doubling_64_times_is_linear():
    x = gd.input("x")
    y = x
    for _ in range(64):
        y = y + y
    g = gd.grad(y, x)
    h = gd.grad(g * x * x, x)
    value, slope, second = gd.function([x], [y, g, h])(1.5)
    assert (float(value), float(slope), float(second)) == (1.5 * 2.0**64, 2.0**64, 2.0**64 * 3.0)
    checked(3)


def test_one_node_with_many_users():
    x = gd.input("x")
    terms = [x * float(k) for k in range(30_000)]
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + ([terms[-1]] if len(terms) % 2 else [])
    total = sum(range(30_000))
    value, slope = gd.function([x], [terms[0], gd.grad(terms[0], x)])(2.0)
    assert float(value) == 2.0 * total and float(slope) == total
    checked(2)


def test_pickle_of_a_deep_graph():
    import pickle
    x = gd.input("x")
    y = x
    for _ in range(5000):
        y = y * 0.999 + 0.001
    f = gd.function([x], y)
    assert pickle.loads(pickle.dumps(f))(2.0) == f(2.0)
    nodes = pickle.loads(pickle.dumps(y))
    assert nodes.op == "add" and np.isfinite(float(f(2.0)))
    checked(2)
