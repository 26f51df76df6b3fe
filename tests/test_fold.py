"""Folding: equal scopes and blocks drawn once, budgets kept, 10,000 nodes in time."""
from __future__ import annotations

import contextlib
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from counting import checked
from drawn import leaf, network, read_dot

import graphdiff as gd
from graphdiff.graph.walk import toposort
from graphdiff.trace.fold import Fold
from graphdiff.trace.layout import to_svg
from graphdiff.trace.scopes import homes


def test_scopes_become_groups_and_collapse():
    y, parameters = network()
    d = gd.draw(y)
    assert d.dot.count("subgraph cluster_") == 3 and '"layer1"' in d.dot
    assert all(b.cluster for b in d.picture.boxes if b.kind == "variable")       # weights stand in the layer that uses them
    small = gd.draw(y, wrt=parameters, max_nodes=30)
    assert len(small.picture.boxes) <= 30 and any("layer1" in b.label[0] and "node" in b.label[1] for b in small.picture.boxes if len(b.label) > 1)
    read_dot(small.dot)
    ElementTree.fromstring(to_svg(small.picture))
    with gd.scope("outer"), gd.scope("inner"):
        z = gd.sin(gd.input("q"))
    assert gd.draw(z).dot.count("subgraph cluster_") == 2


def test_text_stands_clear_of_the_lines_of_a_collapsed_box():
    y, _ = network()
    d = gd.draw(y, max_nodes=6)
    names = {b.id for b in d.picture.boxes if b.kind == "summary"}
    lines = [s for s in d.dot.splitlines() if s.split("[")[0].strip() in names and " -> " not in s]
    assert len(lines) == len(names) > 0 and all('shape=box3d, margin="0.14,0.11"' in s for s in lines)


def test_repeated_blocks_fold():
    x = gd.input("x")
    y = x
    for _ in range(300):
        y = gd.sin(y) * 0.9 + x
    d = gd.draw(y)
    assert len(d.picture.boxes) < 20 and "× " in d.dot and any(e.kind == "carry" for e in d.picture.edges)
    both = gd.draw(y, wrt=x)
    assert len(both.picture.boxes) < 60
    cut = gd.draw(y, fold=False, max_nodes=50)
    assert len(cut.picture.boxes) == 50 and "nodes more" in cut.dot
    assert len(gd.draw(y, max_nodes=None).picture.boxes) == 1201
    assert len(gd.draw(y, fold=False, max_nodes=1).picture.boxes) == 1
    for p in (d.picture, both.picture, cut.picture):
        ElementTree.fromstring(to_svg(p))
        assert {e.src for e in p.edges} | {e.dst for e in p.edges} <= {b.id for b in p.boxes}


def test_reverse_edges_of_a_folded_trace_follow_the_forward_pass():
    x = gd.input("x")
    y = x
    for _ in range(300):
        y = gd.sin(y) * 1.01
    p = gd.trace(y, at={x: 1.0}).draw().picture
    forward = {(e.src, e.dst) for e in p.edges if e.kind == "forward"}
    assert p.hidden > 500 and any(e.kind == "carry" for e in p.edges)
    back = [e for e in p.edges if e.kind == "adjoint"]
    assert {(e.dst, e.src) for e in back} <= forward              # no way round through the next repetition: columns stay in order
    assert [e.label for e in back].count("") == len(back) - 1     # one number would not be true of 299 steps
    place = {b.id: i for i, b in enumerate(p.boxes)}
    assert all(place[e.src] < place[e.dst] for e in p.edges if e.kind == "forward")


def test_ten_thousand_nodes():
    x = gd.input("x")
    y = x
    for _ in range(5000):
        y = y * 0.999 + 0.001
    start = time.process_time()
    text = gd.draw(y, fold=False, max_nodes=None).dot
    seconds = time.process_time() - start
    nodes, edges = read_dot(text)
    assert len(edges) == 20000 and len(nodes) == 20001
    assert seconds < 60                       # 0.6 s on the build machine: this finds only what is quadratic
    assert gd.draw(y, fold=False, max_nodes=None).svg.startswith("<svg")


def stack(blocks, width=8, scoped=True, bias=None):
    """Blocks of one structure; block `bias` has one op more."""
    x = gd.input("x", (4, width), "float32")
    y = x
    for k in range(blocks):
        with gd.scope(f"block{k}"):
            w = gd.variable(np.full((width, width), k, "float32"), f"W{k}")
            with gd.scope("inner"):
                y = gd.tanh(y @ w)
            if k == bias:
                y = y * 0.5
            y = gd.sin(y) + y
    return x, y


def test_equal_scopes_are_drawn_once():
    _, y = stack(60)
    d = gd.draw(y)
    p = d.picture
    assert {b.cluster[0] for b in p.boxes if b.cluster} == {"block0 … block59  × 60"}
    assert sorted(b.label[0] for b in p.boxes) == ["+", "@", "W0 … W59", "sin", "tanh", "x"]
    assert [(e.kind, e.label) for e in p.edges].count(("carry", "next")) == 1
    assert p.hidden == 5 * 59 and "folded" in repr(d)
    assert len(gd.draw(y, fold=False, max_nodes=1000).picture.boxes) == len(gd.draw(y, max_nodes=None).picture.boxes) == 301
    odd = gd.draw(stack(60, bias=7)[1]).picture                      # what differs is drawn apart
    assert {b.cluster[0] for b in odd.boxes if b.cluster} == {"block0 … block59  × 59", "block7"}
    open_one = gd.draw(y, expand="block7").picture
    assert {b.cluster[0] for b in open_one.boxes if b.cluster} == {"block0 … block59  × 59", "block7"}
    assert any(b.cluster == ("block7", "inner") for b in open_one.boxes)
    with pytest.raises(gd.errors.NodeTypeError, match="expand"):
        gd.draw(y, expand=3)


def test_small_pictures_are_not_folded():
    _, y = stack(3)
    assert gd.draw(y).picture.hidden == 0
    _, y = stack(30)                                                 # 151 nodes: fewer than max_nodes, but the same thing 30 times
    assert len(gd.draw(y).picture.boxes) == 6
    assert len(gd.draw(y, fold=False).picture.boxes) == 151
    t = gd.trace(y, at={leaf(y, "x"): np.ones((4, 8), "float32")})
    assert t.draw().picture.hidden == 0                              # values differ from block to block


def test_both_passes_of_equal_scopes():
    x, y = stack(60)
    p = gd.draw(gd.mean(y), wrt=x).picture
    assert len(p.boxes) < 60
    folded = [b for b in p.boxes if b.cluster and b.cluster[0] == "block0 … block59  × 60"]
    assert {b.kind for b in folded} == {"op", "variable", "adjoint", "constant"} or {b.kind for b in folded} == {"op", "variable", "adjoint"}
    for b in folded:
        if b.kind == "adjoint" and b.anchor is not None:
            assert next(c for c in p.boxes if c.id == b.anchor).cluster[:1] in (b.cluster[:1], ())
    ElementTree.fromstring(to_svg(p))


def test_scopes_collapse_to_the_budget():
    x = gd.input("x", (4,))
    y = x
    for k in range(40):
        with gd.scope(f"part{chr(97 + k % 26)}{k}x"):
            for _ in range(k + 2):
                y = gd.sin(y) if k % 2 else gd.cos(y)
    for budget in (60, 100, 300):
        boxes = gd.draw(y, max_nodes=budget).picture.boxes
        assert len(boxes) <= budget and any(len(b.label) > 1 and "nodes" in b.label[1] for b in boxes)
    opened = gd.draw(y, max_nodes=100, expand=["partn39x"]).picture
    assert sum(1 for b in opened.boxes if b.cluster == ("partn39x",)) == 41
    one = gd.draw(y, max_nodes=1).picture
    assert len(one.boxes) == 1 and "nodes more" in one.boxes[0].label[0]


def lstm(steps, scoped):
    d, m = 3, 4
    w, u, b = gd.variable(np.ones((d, 4 * m)), "W"), gd.variable(np.ones((m, 4 * m)), "U"), gd.variable(np.ones(4 * m), "b")
    x = gd.input("x", (steps, 2, d))
    h = c = gd.constant(np.zeros((2, m)))
    for t in range(steps):
        with gd.scope(f"step{t}") if scoped else contextlib.nullcontext():
            z = x[t] @ w + h @ u + b
            i, f, g, o = (z[:, k * m:(k + 1) * m] for k in range(4))
            c = gd.sigmoid(f) * c + gd.sigmoid(i) * gd.tanh(g)
            h = gd.sigmoid(o) * gd.tanh(c)
    return x, h, [w, u, b]


@pytest.mark.parametrize("scoped", [True, False])
def test_unrolled_lstm(scoped):
    """100 steps: one cell, its two states handed on, the three weights once; both passes within the budget."""
    _, h, parameters = lstm(100, scoped)
    p = gd.draw(h).picture
    assert len(p.boxes) <= (24 if scoped else 48)
    assert {e.kind for e in p.edges} == {"forward", "carry"}
    assert sum(1 for b in p.boxes if b.kind == "variable") == 3
    carried = {(e.src, e.dst) for e in p.edges if e.kind == "carry"}
    assert len(carried) >= 2
    label = "step0 … step99  × 100" if scoped else "× "
    assert any(label in part for b in p.boxes for part in b.cluster)
    both = gd.draw(gd.mean(h), wrt=parameters).picture
    assert len(both.boxes) <= 200
    assert sum(1 for b in both.boxes if b.label[0].startswith("d/d")) == 3
    for b in both.boxes:
        assert b.anchor is None or b.anchor in {c.id for c in both.boxes}


def test_repeats_with_inputs_of_their_own():
    y = gd.input("h")
    for k in range(200):
        y = gd.tanh(y + gd.input(f"x{k}"))
    p = gd.draw(y).picture
    assert len(p.boxes) < 8 and any("× 199" in part for b in p.boxes for part in b.cluster)


def test_scopes_of_leaves():
    """A variable made outside lives where its users do; one that two layers share lives outside of both."""
    x, w, v = gd.input("x"), gd.variable(1.0, "w"), gd.variable(2.0, "v")
    with gd.scope("a"):
        with gd.scope("b"):
            p = x * w * v
        with gd.scope("c"):
            q = p * v
    home = homes(toposort([q]))
    assert home[id(w)] == ("a", "b") and home[id(v)] == ("a",) and home[id(x)] == () and home[id(p)] == ("a", "b")
    g = gd.grad(q, w)
    assert homes(toposort([q, g]))[id(g)] == ("a", "b")


def test_ten_thousand_nodes_in_time():
    """A readable picture: with repeats, with scopes, with neither."""
    rng = np.random.default_rng(0)
    chains = []
    x = gd.input("x")
    y = x
    for _ in range(5000):
        y = gd.sin(y) * 0.999
    chains.append(y)
    y = x
    for k in range(100):
        with gd.scope(f"layer{k}"):
            for _ in range(100):
                y = gd.sin(y) if rng.random() < 0.5 else gd.cos(y) + x
    chains.append(y)
    y, ops = x, (gd.sin, gd.cos, gd.tanh, gd.exp, lambda v: v + x, lambda v: v * x)
    for _ in range(10_000):
        y = ops[rng.integers(6)](y)
    chains.append(y)
    for y in chains:
        for options in ({}, {"wrt": x}):
            start = time.process_time()
            d = gd.draw(y, **options)
            svg = d.svg
            seconds = time.process_time() - start
            assert len(d.picture.boxes) <= 200 and svg.startswith("<svg")
            assert seconds < 60                       # under 2 s each on the build machine: this finds only what is quadratic
    assert Fold([]).active is False


def test_repeats_inside_of_equal_scopes():
    """Blocks inside a block: what stood for the other scopes is itself drawn by another node, and collapses with its scope."""
    x = gd.input("x", (4, 8))
    y = x
    for k in range(30):
        with gd.scope(f"block{k}"):
            with gd.scope("heads"):
                y = gd.sum(gd.stack([gd.tanh(gd.exp(gd.sin(y) @ gd.variable(np.ones((8, 8)), f"W{h}"))) for h in range(6)]), axis=0)
            y = gd.cos(y)
    p = gd.draw(y).picture
    assert {b.cluster for b in p.boxes} == {(), ("block0 … block29  × 30",), ("block0 … block29  × 30", "heads"),
                                            ("block0 … block29  × 30", "heads", "× 6")} and len(p.boxes) < 30
    small = gd.draw(y, max_nodes=8).picture
    assert sorted(b.label[0] for b in small.boxes) == ["cos", "heads", "x"]


def test_gradients_of_a_folded_loop_have_their_names():
    """What is left over of the loop's adjoint, the gradients themselves, is not drawn by the steps, nor are constants boxed as if they were some."""
    u0, k = gd.input("u0", (12,)), gd.input("k", (12,))
    u = u0
    for _ in range(10):
        f = 0.5 * (k[1:] + k[:-1])
        flow = gd.pad(f * (u[1:] - u[:-1]), 1)
        u = u + 0.1 * (flow[1:] - flow[:-1])
    p = gd.draw(gd.sum(u ** 4), wrt=[u0, k]).picture
    labels = [b.label[0] for b in p.boxes]
    assert labels.count("d/du0") == labels.count("d/dk") == 1
    groups = {}
    for b in p.boxes:
        groups.setdefault(tuple(b.cluster), set()).add(b.kind)
    assert len(groups) == 2 and all("op" in kinds for kinds in groups.values()), groups
    checked(2)
