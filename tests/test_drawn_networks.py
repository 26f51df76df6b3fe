"""Pictures of networks: calls of composed functions as one box, one adjoint box for a primal one, no strips."""
from __future__ import annotations

import pickle
import re
import shutil

import numpy as np
import pytest
from drawn import read_dot

import graphdiff as gd
from graphdiff import nn
from graphdiff.graph.walk import toposort
from graphdiff.trace.draw import WIDE
from graphdiff.trace.layout import extent


def lenet():
    x, t = gd.input("x", (8, 1, 28, 28), "float32"), gd.input("t", (8,), "int64")
    net = nn.Sequential(nn.Conv(1, 6, 5), gd.tanh, nn.MaxPool(2), nn.Conv(6, 16, 5), gd.tanh, nn.MaxPool(2), nn.Flatten(), nn.Dense(256, 120),
                        gd.tanh, nn.Dense(120, 84), gd.tanh, nn.Dense(84, 10))
    y = net(x)
    return net, y, gd.losses.cross_entropy(y, t)


def block():
    x, t = gd.input("x", (2, 16, 32), "float32"), gd.input("t", (2, 16, 32), "float32")
    net = nn.Sequential(nn.Residual(nn.Sequential(nn.LayerNorm(32), nn.MultiHeadAttention(32, 4))),
                        nn.Residual(nn.Sequential(nn.LayerNorm(32), nn.Dense(32, 128, activation=gd.gelu), nn.Dense(128, 32))))
    y = net(x)
    return net, y, gd.losses.mse(y, t)


def firsts(d):
    return [b.label[0] for b in d.picture.boxes]


@pytest.mark.parametrize("make", [lenet, block])
def test_networks_are_no_strips(make):
    net, y, loss = make()
    forward, both = gd.draw(y), gd.draw(loss, wrt=net.parameters())
    assert len(forward.picture.boxes) <= 45 and len(both.picture.boxes) <= 80
    for d in (forward, both):
        assert d.picture.direction == "TB" and extent(d.picture)[0] <= WIDE
        read_dot(d.dot)
        if shutil.which("dot") is not None:
            width = float(re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+)', d.svg)[1])
            assert width < 1.2 * WIDE
    assert sum(1 for b in both.picture.boxes if b.label[0].startswith("d/d") and b.output) == len(net.parameters())
    assert gd.draw(y, direction="RL").picture.direction == "RL" and gd.draw(y, fold=False).picture.direction == "LR"
    ids = {b.id for b in both.picture.boxes}
    assert {e.src for e in both.picture.edges} | {e.dst for e in both.picture.edges} <= ids


def test_a_call_is_one_box():
    net, y, loss = block()
    d = gd.draw(y)
    names = firsts(d)
    assert names.count("layer_norm") == 2 and names.count("multi_head_attention") == 1 and "reciprocal" not in names
    box = next(b for b in d.picture.boxes if b.label[0] == "layer_norm")
    assert box.label[1] == "float32[2, 16, 32]" and box.kind == "op" and box.cluster[-1] == "layernorm"
    assert {b.label[0] for b in d.picture.boxes if b.kind == "variable" and b.cluster == box.cluster} == {"gamma", "beta"}    # without "layernorm."
    assert not any(b.kind == "constant" for b in d.picture.boxes)                # eps, the number of elements: the call's own
    opened = gd.draw(y, expand=["layer_norm"])
    assert "layer_norm" not in firsts(opened) and any(b.cluster[-1:] == ("layer_norm",) for b in opened.picture.boxes)
    assert "multi_head_attention" in firsts(opened)
    assert "layer_norm" not in firsts(gd.draw(y, fold=False)) and len(gd.draw(y, max_nodes=None).picture.boxes) == len(toposort([y]))
    both = firsts(gd.draw(loss, wrt=net.parameters()))
    assert both.count("layer_norm (adjoint)") == 2 and both.count("mse (adjoint)") == 1 and both.count("mse") == 1
    assert not any("()" in part for b in opened.picture.boxes for part in (*b.cluster, *b.label))


def test_two_calls_stay_two_boxes():
    x = gd.input("x", (4,))
    y = gd.elu(gd.elu(x)) + gd.elu(x)
    d = gd.draw(y)
    assert sorted(firsts(d)) == ["+", "elu", "elu", "elu", "x"] and len(d.picture.edges) == 5
    again = pickle.loads(pickle.dumps(y))
    assert firsts(gd.draw(again)) == firsts(d)
    assert not {n.scope for n in toposort([again]) if n.scope} & {n.scope for n in toposort([y])}     # calls read from a file are others
    assert sorted(firsts(gd.draw([y, again]))) == ["+", "+", *["elu"] * 6, "x", "x"]
    assert "clip" not in firsts(gd.draw(gd.clip(x, max=1.0))) and "clip" in firsts(gd.draw(gd.clip(x, 0.0, 1.0)))     # one op is no group
    assert "loss = mse" in firsts(gd.draw(gd.losses.mse(x, y).named("loss")))


def test_a_call_between_values():
    x = gd.input("x", (3,))
    y = gd.sum(gd.elu(x * 2.0))
    d = gd.draw(y, at={x: np.array([1.0, 2.0, -3.0])})
    names = {b.id: b.label[0] for b in d.picture.boxes}
    texts = {(names[e.src], names[e.dst]): e.label for e in d.picture.edges}
    assert texts[next(k for k in texts if k[1] == "elu")].startswith("[2") and "-0.99" in texts[next(k for k in texts if k[0] == "elu")]
    t = gd.trace(y, at={x: np.array([1.0, 2.0, -3.0])}).draw()
    assert len(t.picture.boxes) == len(toposort([y])) and not any(b.cluster for b in t.picture.boxes)       # a trace shows every step
    assert not any(b.label[0] == "elu" for b in gd.draw(y, style="variables").picture.boxes)


def test_what_is_not_finite_inside_of_a_call_is_seen():
    x = gd.input("x", (3,))
    y = gd.sum(gd.elu(x))
    assert any(b.bad for b in gd.draw(y, at={x: np.array([1.0, np.inf, 0.0])}).picture.boxes if b.label[0] == "elu")


def test_expand_names_a_scope():
    _, y, _ = block()
    for bad, there in (("nope", "layernorm"), ("Dense", "dense")):
        with pytest.raises(gd.errors.NodeTypeError, match=f"expand names '{bad}'.*{there}"):
            gd.draw(y, expand=[bad])
    with pytest.raises(gd.errors.NodeTypeError, match=r"'nope'.*none"):
        gd.draw(gd.sin(gd.input("x")), expand="nope")
    x = gd.input("x", (3,))
    f = gd.function([x], gd.elu(x) * gd.elu(2.0 * x))
    with pytest.raises(gd.errors.NodeTypeError, match=r"'nope'.*elu"):
        gd.draw(f, expand="nope")
    assert gd.draw(f, expand="elu").dot == gd.draw(f).dot                        # instructions are in no scope
    assert firsts(gd.draw(y, expand="sequential/residual2")).count("layer_norm") == 1


def test_many_layers_with_calls():
    """Repeated blocks that hold calls: the box of a call is drawn once as the rest of its block is."""
    x = gd.input("x", (4, 8))
    y = z = x
    w = gd.variable(np.ones((8, 8)), "W")
    for k in range(30):
        with gd.scope(f"block{k}"):
            y = y + gd.layer_norm(gd.tanh(y @ w))
        z = z + gd.layer_norm(gd.tanh(z @ w))
    for net, group in ((y, "block0 … block29  × 30"), (z, "× ")):
        p = gd.draw(net).picture
        call = [b for b in p.boxes if b.label[0] == "layer_norm"]
        assert len(p.boxes) <= 14 and len(call) <= 2
        assert any(part.startswith(group) for b in call for part in b.cluster)
        small = gd.draw(gd.sum(net), wrt=w, max_nodes=8).picture
        assert len(small.boxes) <= 8
