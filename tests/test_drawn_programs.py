"""Compiled functions as pictures: instructions, fused groups, the memory map, colours by cost and time."""
from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from drawn import NAMES, leaf, read_dot, survey

import graphdiff as gd
from graphdiff.graph.walk import toposort
from graphdiff.trace import render as rendering
from graphdiff.trace.layout import to_svg
from graphdiff.trace.memory import memory_map


def test_a_function_without_a_program_says_so():
    n = gd.input("n", ("N",))
    f = gd.function([n], gd.exp(n) * 2)
    early = gd.draw(f)
    assert early.picture.legend.startswith("the graph before all passes") and "before all passes" in early.dot and "before all passes" in early.svg
    colored = gd.draw(f, color={f.outputs[0]: 3.0})
    assert "given numbers" in colored.picture.legend and any(b.fill for b in colored.picture.boxes)
    f(np.ones(3))
    assert gd.draw(f).picture.legend == "" and "→ out0" in gd.draw(f).dot


def test_function_is_drawn_as_its_program():
    x1, x2, y = survey()
    f = gd.function([x1, x2], [y, *gd.grad(y, [x1, x2])])
    nodes, _ = read_dot(gd.draw(f).dot)
    labels = " ".join(nodes.values())
    assert "arena[" in labels and "log" in labels and "out2" in labels and "x1: 8 B" in labels
    assert len([1 for v in nodes.values() if re.match(r"\d+: ", v)]) == len(f.program.instrs)      # scalars are not fused
    n = gd.input("n", ("N",))
    g = gd.function([n], gd.exp(n) * 2)
    assert "exp" in gd.draw(g).dot
    g(np.ones(3))
    assert "arena" in gd.draw(g).dot or "out0" in gd.draw(g).dot
    w = gd.variable([1.0, 2.0], "w")
    step = gd.function([n], gd.sum(w), updates={w: w * 0.5})
    step(np.ones(2))
    labels = set(read_dot(gd.draw(step).dot)[0].values())
    assert {"w: 16 B", "w (new)", "out0: 8 B"} <= labels


def training_step():
    x = gd.input("x", (16, 8), "float32")
    w, b = gd.variable(np.ones((8, 8), "float32"), "W"), gd.variable(np.zeros(8, "float32"), "b")
    loss = gd.mean(gd.tanh(x @ w + b) ** 2)
    dw, db = gd.grad(loss, [w, b])
    return gd.function([x], loss, updates={w: w - 0.1 * dw, b: b - 0.1 * db})


def test_memory_map():
    f = training_step()
    m = memory_map(f.program)
    assert m is not None and f"arena {f.program.arena_nbytes / 1000:.3g} KB" in m.title and "without reuse" in m.title
    cells = set()
    for s in m.slots:
        assert 0 <= s.row0 < s.row1 <= len(m.rows) and 0 <= s.column0 < s.column1 <= len(m.columns)
        own = {(r, c) for r in range(s.row0, s.row1) for c in range(s.column0, s.column1)}
        assert not own & cells                                             # no byte holds two things at once
        cells |= own
    assert {s.adjoint for s in m.slots} == {True, False}
    d = gd.draw(f)
    assert "<TABLE" in d.dot and "memory: arena" in d.dot
    root = ElementTree.fromstring(to_svg(d.picture))
    assert len([e for e in root.iter() if e.get("class") == "slot"]) == len(m.slots)
    if rendering.renderers():
        assert "memory: arena" in d.svg and "without reuse" in d.svg
    y = gd.input("q")
    for _ in range(300):
        y = gd.sin(y) + gd.cos(y)
    many = memory_map(gd.function([leaf(y, "q")], [y, *gd.grad(y, [leaf(y, "q")])], passes=()).program)
    assert len(many.slots) <= 48 and "smaller buffers not shown" in many.title
    z = gd.input("z")
    assert memory_map(gd.function([z], z).program) is None and gd.draw(gd.function([z], z)).svg


def test_fused_groups_are_drawn_as_groups():
    """An instruction of several operations: a frame with one box a micro-operation, wired as the program runs them."""
    x, z = gd.input("x", (4,)), gd.input("z", (4,))
    b = gd.sin(x) * z
    c = (b + 2.0).named("c")
    f = gd.function([x, z], [c, gd.max(b)])
    assert [i[0] for i in f.program.instrs] == ["fused", "max"]
    d = gd.draw(f)
    group = [box for box in d.picture.boxes if box.cluster]
    frame, = {box.cluster for box in group}
    assert frame == ("0: 3 fused, float64[4] → out0, arena[0]",) or frame == ("0: 3 fused, float64[4] → arena[0], out0",)
    assert sorted(box.label[0] for box in group) == ["2", "c = +", "sin", "×"]
    ids = {box.label[0]: box.id for box in d.picture.boxes}
    assert len(ids) == len(d.picture.boxes) == 9
    assert {(e.src, e.dst) for e in d.picture.edges} == {(ids[a], ids[b]) for a, b in (
        ("x: 32 B", "sin"), ("z: 32 B", "×"), ("sin", "×"), ("×", "c = +"), ("2", "c = +"), ("×", "1: max"), ("c = +", "out0: 32 B"),
        ("1: max", "out1: 8 B"))}
    assert "subgraph cluster_0 {" in d.dot and "3 fused" in d.dot
    timed = gd.draw(f, color=f.profile(np.ones(4), np.ones(4)))
    assert len({box.fill for box in timed.picture.boxes if box.cluster and box.kind == "op"}) == 1
    unfused = gd.draw(gd.function([x, z], [c, gd.max(b)], passes=()))
    assert not any(box.cluster for box in unfused.picture.boxes)


def test_a_fused_training_step():
    """Every instruction and every micro-operation has its box; nothing is wired to what does not exist."""
    f = training_step()
    d = gd.draw(f)
    p = f.program
    ops = sum(len(p.members(i)) for i in range(len(p.instrs)))
    assert ops == len([b for b in d.picture.boxes if b.kind in ("op", "adjoint")]) and any(i[0] == "fused" for i in p.instrs)
    ids = {b.id for b in d.picture.boxes}
    assert len(ids) == len(d.picture.boxes) and {e.src for e in d.picture.edges} | {e.dst for e in d.picture.edges} == ids
    labels = {b.label[0] for b in d.picture.boxes}
    assert {"x: 512 B", "W: 256 B", "b: 32 B", "W (new)", "b (new)", "out0: 4 B"} <= labels
    small = gd.draw(f, max_nodes=4)
    assert "instructions more" in small.dot


def test_colours():
    x1, x2, y = survey()
    at = {x1: 2.0, x2: 5.0}
    f = gd.function([x1, x2], [y, *gd.grad(y, [x1, x2])])
    value, adjoint = "largest absolute value", "largest absolute adjoint"
    for d, what in ((gd.draw(y, color="cost"), "FLOPs"), (gd.draw(y, color=f.cost()), "FLOPs"), (gd.draw(f, color="cost"), "FLOPs"),
                    (gd.draw(f, color=f.profile(2.0, 5.0)), "nanoseconds"), (gd.draw(y, color=f.profile(2.0, 5.0)), "nanoseconds"),
                    (gd.draw(y, wrt=x1, at=at, color="value"), value), (gd.draw(y, wrt=x1, at=at, color="adjoint"), adjoint),
                    (gd.trace(y, at=at).draw(color="adjoint"), adjoint), (gd.trace(y, at=at).draw(color="value"), value),
                    (gd.draw(y, color={y: 1.0, x1: 3.0}), "given numbers")):
        assert f"colour: {what}" in d.picture.legend and what in d.dot and what in to_svg(d.picture)
        assert any(re.fullmatch("#[0-9a-f]{6}", b.fill) for b in d.picture.boxes)
    boxes = {b.label[0].split(" ")[0]: b.fill for b in gd.trace(y, at=at).draw(color="value").picture.boxes}
    assert boxes["v5"] == "#f48a4e" and boxes["v1"] == "#f7f9fa"          # 11.65 is the largest, ln 2 the smallest
    for bad in ("time", 3, [1], [{"node": y}], {"x": 1.0}):
        with pytest.raises(gd.errors.NodeTypeError, match="color"):
            gd.draw(y, color=bad)
    with pytest.raises(gd.errors.NodeTypeError, match="needs values"):
        gd.draw(y, color="value")


def test_a_box_of_several_nodes_shows_their_sum():
    y, rng = gd.input("x"), np.random.default_rng(0)
    for k in range(300):
        with gd.scope("first" if k < 6 else "rest"):
            y = (gd.sin, gd.cos, gd.tanh, gd.exp, gd.square)[rng.integers(5)](y)
    cost = {n: 1.0 for n in toposort([y]) if n.op.family != "leaf"}
    p = gd.draw(y, max_nodes=20, color=cost).picture
    rest, = [b for b in p.boxes if "rest" in b.label[0]]
    assert rest.label == ("rest", "294 nodes") and rest.fill == "#f48a4e" and "1 (pale) to 294 (dark" in p.legend


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_in_the_memory_map(name):
    """The one label that Graphviz reads as markup: of names there is only escaped text in it."""
    x = gd.input("x", (3,))
    f = gd.function([x], gd.sum(gd.sin(x).named(name)), passes=())
    d = gd.draw(f)
    table = ElementTree.fromstring(d.picture.memory.table())
    assert {e.tag for e in table.iter()} == {"FONT", "TABLE", "TR", "TD"}
    allowed = {"BORDER", "CELLBORDER", "CELLSPACING", "CELLPADDING", "COLSPAN", "ROWSPAN", "ALIGN", "VALIGN", "WIDTH", "HEIGHT", "COLOR", "BGCOLOR",
               "POINT-SIZE", "FIXEDSIZE"}
    assert {k for e in table.iter() for k in e.attrib} <= allowed
    svg = ElementTree.fromstring(to_svg(d.picture))
    assert not {e.tag.rpartition("}")[2] for e in svg.iter()} & {"script", "b", "TABLE", "image", "foreignObject"}
    if shutil.which("dot") is not None:
        done = subprocess.run(["dot", "-Tdot_json"], input=d.dot.encode(), capture_output=True, timeout=60)
        assert done.returncode == 0 and not done.stderr.strip()
