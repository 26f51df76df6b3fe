"""Pictures: valid DOT and SVG for every name, pairing of both passes, folding, renderers, networkx."""
from __future__ import annotations

import contextlib
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.trace import draw as drawing
from graphdiff.trace import render as rendering
from graphdiff.trace.fold import Fold, homes
from graphdiff.trace.layout import to_placed_dot, to_svg
from graphdiff.trace.memory import memory_map

GOLDEN = pathlib.Path(__file__).parent / "golden"
NAMES = ['"', "\\", "a\\", "\\N", '"]; evil [label="x', "<b>x</b>", "<TABLE>", "<script>alert(1)</script>", "]]>", "</svg><script>", "&amp;", "a\nb",
         "a\rb", "a\0b", "a\u202eb", "\ud800", "\U0001F600", "{a|b}", "->", "node", "graph", "", "x" * 1_000_000, "javascript:alert(1)", "%n%s",
         "${x}", "../../x", "a:b", "::", "end", "digraph", "a;b", "tab\tnl\nline", "n\u00e4me \u03b1", "\\N \\G \\l", "1", "None"]


def read_dot(text):
    """{id: label}, [(from, to)] by the words and strings of the text alone; a stray or unfinished string is an error."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|->|[A-Za-z0-9_.\-]+|\S', text, re.S)
    assert all(t != '"' for t in tokens)
    nodes, edges, i = {}, [], 0
    while i < len(tokens):
        if re.fullmatch(r"n\d+", tokens[i]):
            if tokens[i + 1] == "->":
                edges.append((tokens[i], tokens[i + 2]))
                i += 2
            elif tokens[i + 1:i + 4] == ["[", "label", "="]:       # the invisible edge between a pair has no label
                nodes[tokens[i]] = tokens[i + 4][1:-1]
        i += 1
    return nodes, edges


def golden(name, text):
    text = re.sub(r"\w+\.py:\d+", "SITE", text)
    path = GOLDEN / name
    if os.environ.get("GRAPHDIFF_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    assert path.read_text(encoding="utf-8") == text


def survey():
    x1, x2 = gd.inputs("x1 x2")
    return x1, x2, gd.log(x1) + x1 * x2 - gd.sin(x2)


def network():
    x = gd.input("x", (32, 8), "float32")
    h, parameters = x, []
    for k in range(3):
        with gd.scope(f"layer{k}"):
            w, b = gd.variable(np.ones((8, 8), "float32"), f"W{k}"), gd.variable(np.zeros(8, "float32"), f"b{k}")
            h = gd.relu(h @ w + b)
            parameters += [w, b]
    return gd.mean(h * h), parameters


def test_golden_dot():
    x1, x2, y = survey()
    golden("draw_survey.dot", gd.draw(y).dot)
    golden("draw_survey_both.dot", gd.draw(y, wrt=[x1, x2]).dot)
    golden("draw_survey_variables.dot", gd.draw(y, wrt=[x1, x2], style="variables").dot)
    golden("draw_survey_trace.dot", gd.trace(y, at={x1: 2.0, x2: 5.0}).draw().dot)
    golden("draw_survey.svg", to_svg(gd.draw(y).picture))


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_names(name):
    x = gd.input(name)
    with gd.scope(name):
        y = (gd.sin(x) * 2.0).named(name)
    d = gd.draw(y)
    nodes, edges = read_dot(d.dot)
    assert len(nodes) == 4 and len(edges) == 3 and {v for e in edges for v in e} <= set(nodes)
    assert len(d.dot) < 10_000
    if name.isalnum() and name.isascii() and len(name) < 50:
        assert any(name in label for label in nodes.values())
    for svg in (to_svg(d.picture), d.svg, gd.draw(y, wrt=x, style="variables").svg):
        root = ElementTree.fromstring(svg)          # well-formed
        tags = {e.tag.rpartition("}")[2] for e in root.iter()}
        assert not tags & {"script", "b", "TABLE", "foreignObject", "image", "use", "style"}
        for e in root.iter():
            for k, v in e.attrib.items():
                assert not k.lower().startswith("on") and ("javascript" not in v.lower() or k.endswith("title"))
                assert not k.endswith("href") or v.startswith("#")
        assert "\u202e" not in svg and "\0" not in svg


@pytest.mark.skipif(not rendering.renderers(), reason="no Graphviz here")
def test_labels_survive_graphviz():
    for name in ("&amp;", "\\N", 'say "hi"', "a\\", "<b>x</b>", "näme α", "{a|b}"):
        svg = gd.draw(gd.sin(gd.input(name))).svg
        texts = [e.text for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text")]
        assert name in texts


def test_input_alone_and_outputs_twice():
    x = gd.input("x", (2,))
    nodes, edges = read_dot(gd.draw([x]).dot)
    assert len(nodes) == 1 and not edges
    y = gd.sin(x)
    nodes, edges = read_dot(gd.draw([y, y, x]).dot)
    assert len(nodes) == 2 and edges == [("n0", "n1")]
    assert gd.draw([]).svg


def test_both_passes_are_paired():
    x1, x2, y = survey()
    p = gd.draw(y, wrt=[x1, x2]).picture
    adjoint = [b for b in p.boxes if b.kind == "adjoint"]
    assert len(p.boxes) - len(adjoint) == 7 and all(b.anchor for b in adjoint)
    boxes = {b.id: b for b in p.boxes}
    assert all(boxes[b.anchor].kind != "adjoint" for b in adjoint)
    assert {e.kind for e in p.edges} == {"forward", "adjoint", "use"}
    assert sum(any("d/d" in line for line in b.label) for b in adjoint) == 2
    second = gd.draw(gd.grad(y, x2), wrt=x2).picture
    assert all(b.anchor in {c.id for c in second.boxes} for b in second.boxes if b.anchor)


def test_trace_picture_has_values_on_both_kinds_of_edges():
    x1, x2, y = survey()
    p = gd.trace(y, at={x1: 2.0, x2: 5.0}).draw().picture
    forward = [e.label for e in p.edges if e.kind == "forward"]
    reverse = [e.label for e in p.edges if e.kind == "adjoint"]
    assert sorted(forward) == sorted(["2", "2", "5", "5", "0.693", "10", "10.693", "-0.959"])
    assert sorted(reverse) == sorted(["1", "-1", "1", "1", "-0.284", "5", "2", "0.5"])
    assert not any(b.bad for b in p.boxes)
    t = gd.trace(gd.log(x1 - 3) * x2, at={x1: 2.0, x2: 5.0})
    assert any(b.bad for b in t.draw().picture.boxes) and "#ff6b6b" in t.draw().dot and "#ff6b6b" in to_svg(t.draw().picture)


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


def test_ten_thousand_nodes():
    x = gd.input("x")
    y = x
    for _ in range(5000):
        y = y * 0.999 + 0.001
    start = time.perf_counter()
    text = gd.draw(y, fold=False, max_nodes=None).dot
    seconds = time.perf_counter() - start
    nodes, edges = read_dot(text)
    assert len(edges) == 20000 and len(nodes) == 20001
    assert seconds < 10                       # 0.6 s on the build machine; a loaded one must not fail
    assert gd.draw(y, fold=False, max_nodes=None).svg.startswith("<svg")


def test_shared_nodes_once():
    y = gd.input("x")
    for _ in range(60):
        y = y + y
    nodes, edges = read_dot(gd.draw(y).dot)
    assert len(nodes) == 61 and len(edges) == 120


def test_styles_directions_and_mistakes():
    x1, _, y = survey()
    assert "v-1 = x1" in gd.draw(y, style="variables").dot and "ln v-1" in gd.draw(y, style="variables").dot
    for direction in ("LR", "TB", "RL", "BT"):
        d = gd.draw(y, wrt=x1, direction=direction)
        assert f"rankdir={direction}" in d.dot
        ElementTree.fromstring(to_svg(d.picture))
    for bad in ({"style": "x"}, {"direction": "up"}, {"max_nodes": 0}, {"max_nodes": 2.5}):
        with pytest.raises(gd.errors.GraphdiffError):
            gd.draw(y, **bad)
    with pytest.raises(gd.errors.NodeTypeError):
        gd.draw(3)


def test_own_layout_separates_boxes():
    y, parameters = network()
    from graphdiff.trace.layout import _Layered
    for p in (gd.draw(y).picture, gd.draw(y, wrt=parameters).picture):
        lay = _Layered(p)
        rects = [(*lay.point(i), *lay.sizes[i]) for i in range(len(p.boxes))]
        for i, (x, y0, w, h) in enumerate(rects):
            for u, v, a, b in rects[:i]:
                assert abs(x - u) >= (w + a) / 2 - 1e-6 or abs(y0 - v) >= (h + b) / 2 - 1e-6


def test_save_and_renderers(tmp_path, monkeypatch):
    _, _, y = survey()
    d = gd.draw(y)
    for suffix in (".dot", ".svg", ".html"):
        d.save(tmp_path / f"g{suffix}")
    assert (tmp_path / "g.svg").read_text().startswith("<svg") and "<svg" in (tmp_path / "g.html").read_text()
    if rendering.renderers():
        d.save(tmp_path / "g.png")
        assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(gd.errors.FormatError):
        d.save(tmp_path / "g.bmp")
    assert set(d._repr_mimebundle_()) == {"text/plain", "image/svg+xml"}
    monkeypatch.setattr(rendering, "renderers", list)
    own = gd.draw(y)
    assert own.svg == to_svg(own.picture) and "built-in" in drawing.renderer()
    with pytest.raises(gd.errors.FormatError, match=r"install Graphviz \(apt install graphviz.*DOT text is in .*h\.dot"):
        own.save(tmp_path / "h.png")
    assert (tmp_path / "h.dot").read_text(encoding="utf-8") == own.dot and not (tmp_path / "h.png").exists()
    (tmp_path / "mine.dot").write_text("graph of my own")
    with pytest.raises(gd.errors.FormatError, match="install"):
        own.save(tmp_path / "mine.pdf")
    assert (tmp_path / "mine.dot").read_text() == "graph of my own"

    def broken(text, form, placed, seconds):
        raise OSError("no")
    monkeypatch.setattr(rendering, "renderers", lambda: [("dot", broken)])
    assert gd.draw(y).svg == to_svg(own.picture)
    with pytest.raises(gd.errors.FormatError, match="failed with dot"):
        own.save(tmp_path / "h.pdf")


def test_a_slow_dot_is_not_waited_for(tmp_path, monkeypatch):
    """dot over its time limit: the SVG is our own; PNG is drawn from our own positions by the program that is there."""
    _, _, y = survey()
    asked = []

    def slow(text, form, placed, seconds):
        asked.append((form, placed, seconds))
        if not placed:
            raise subprocess.TimeoutExpired("dot", seconds)
        return b"picture of " + text[:7].encode()
    monkeypatch.setattr(rendering, "renderers", lambda: [("dot", slow), ("graphviz-pure", slow)])
    d = gd.draw(y)
    assert d.svg == to_svg(d.picture)
    assert d.render("png") == b"picture of digraph"
    assert asked == [("svg", False, drawing.SECONDS), ("png", True, drawing.SAVE_SECONDS)]
    assert drawing.SECONDS < 5                      # the promise for 10,000 nodes


@pytest.mark.skipif(os.name != "posix", reason="a program that sleeps is a shell script here")
def test_time_limit_ends_a_real_program(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ.get('PATH', '')}")
    monkeypatch.setattr(drawing, "SECONDS", 0.3)
    _, _, y = survey()
    start = time.perf_counter()
    d = gd.draw(y)
    assert d.svg == to_svg(d.picture) and time.perf_counter() - start < 10


def test_path_without_dot(tmp_path, monkeypatch):
    """Without the system's Graphviz, SVG comes from what pip installed, or from us; never an exception."""
    monkeypatch.setenv("PATH", str(tmp_path))
    _, _, y = survey()
    d = gd.draw(y)
    ElementTree.fromstring(d.svg)
    assert all(name != "dot" for name, _ in rendering.renderers())
    for name, render in rendering.renderers():
        if name == "graphviz-pure":
            data, _ = rendering.attempt(render, d.dot, "png", seconds=60)
            assert data is not None and data.startswith(b"\x89PNG")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_own_positions_drawn_by_graphviz():
    y, parameters = network()
    d = gd.draw(y, wrt=parameters)
    text = to_placed_dot(d.picture)
    nodes, edges = read_dot(text)
    assert len(nodes) == len(d.picture.boxes) and edges == [(e.src, e.dst) for e in d.picture.edges]
    for form, first in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        data, slow = rendering.attempt(rendering.renderers()[0][1], text, form, placed=True, seconds=60)
        assert not slow and data is not None and data.startswith(first)


def unquoted(label):
    """The text of a label as dot -Tdot_json gives it: line breaks and backslashes still escaped, entities too."""
    parts = re.split(r"(\\n|\\\\)", label)
    return html.unescape("".join("\n" if p == "\\n" else "\\" if p == "\\\\" else p for p in parts))


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_graphviz_reads_what_was_meant(name):
    """Nodes, edges, labels and groups of `dot -Tdot_json` are those of the picture, whatever the names are."""
    x = gd.input(name, (2,))
    w = gd.variable([1.0, 2.0], name)
    with gd.scope(name):
        y = gd.sum(gd.sin(x * w)).named(name)
    for d in (gd.draw(y), gd.draw(y, wrt=x), gd.draw(y, style="variables"), gd.trace(y, at={x: [1.0, 2.0]}).draw(),
              gd.draw(gd.function([x], y, updates={w: w * 0.5}))):
        done = subprocess.run(["dot", "-Tdot_json"], input=d.dot.encode(), capture_output=True, timeout=60)
        assert done.returncode == 0 and not done.stderr.strip(), done.stderr[:500]
        read = json.loads(done.stdout)
        groups = read.get("_subgraph_cnt", 0)
        objects = read["objects"]
        found = {o["name"]: unquoted(o["label"]) for o in objects[groups:]}
        assert found == {b.id: "\n".join(b.label) for b in d.picture.boxes}
        by_number = {o["_gvid"]: o["name"] for o in objects[groups:]}
        edges = [(by_number[e["tail"]], by_number[e["head"]]) if e.get("dir") != "back" else (by_number[e["head"]], by_number[e["tail"]])
                 for e in read.get("edges", []) if e.get("style") != "invis"]
        assert sorted(edges) == sorted([(e.src, e.dst) for e in d.picture.edges])
        clusters = [unquoted(o["label"]) for o in objects[:groups] if o["name"].startswith("cluster")]
        assert sorted(clusters) == sorted({path[:k]: path[k - 1] for b in d.picture.boxes for path in [b.cluster]
                                           for k in range(1, len(path) + 1)}.values())
        assert not any(key in o for o in objects for key in ("URL", "href", "image", "shapefile", "target"))


def test_saving_follows_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("../../x", "../x.svg", "/tmp/x", "a/b", "${HOME}"):
        y = gd.sin(gd.input(name)).named(name)
        gd.draw(y).save(inside / "g.svg")
        gd.draw(y).save("inside/g.dot")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["g.dot", "g.svg", "inside"]


def test_networkx():
    x1, x2, y = survey()
    g = gd.to_networkx(y)
    assert g.number_of_nodes() == 7 and g.number_of_edges() == 8
    assert g.nodes[y]["op"] == "subtract" and g.nodes[x1]["name"] == "x1" and g.nodes[x1]["shape"] == () and g.nodes[x1]["dtype"] == "float64"
    assert g.nodes[y]["value"] is None
    assert gd.to_networkx(y, at={x1: 2.0, x2: 5.0}).nodes[y]["value"] == 11.652071455223084
    assert gd.to_networkx(gd.trace(y, at={x1: 2.0, x2: 5.0})).nodes[y]["value"] == 11.652071455223084
    z = x1 * x1
    assert gd.to_networkx(z).edges[x1, z]["operands"] == (0, 1)
    c = gd.constant([1.0, 2.0])
    assert (gd.to_networkx(c + 1).nodes[c]["value"] == [1, 2]).all()


# -- folding -------------------------------------------------------------------------------------------------------------

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


def leaf(y, name):
    from graphdiff.graph.walk import toposort
    return next(n for n in toposort([y]) if n.name == name)


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
    from graphdiff.graph.walk import toposort
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
    """A readable picture in under 5 seconds: with repeats, with scopes, with neither."""
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
            start = time.perf_counter()
            d = gd.draw(y, **options)
            svg = d.svg
            seconds = time.perf_counter() - start
            assert len(d.picture.boxes) <= 200 and svg.startswith("<svg")
            assert seconds < 15                       # under 2 s each on the build machine; a loaded one must not fail
    assert Fold([]).active is False


# -- values and colours --------------------------------------------------------------------------------------------------

def test_paired_picture_with_values():
    x1, x2, y = survey()
    p = gd.draw(y, wrt=[x1, x2], at={x1: 2.0, x2: 5.0}).picture
    assert sorted(e.label for e in p.edges if e.kind == "forward") == sorted(["2", "2", "5", "5", "0.693", "10", "10.693", "-0.959"])
    back = [e.label for e in p.edges if e.kind == "adjoint"]
    assert "0.5" in back and "-0.284" in back and "-1" in back
    assert not any(b.bad for b in p.boxes)
    bad = gd.draw(gd.log(x1 - 3) * x2, wrt=x2, at={x1: 2.0, x2: 5.0})
    assert sum(b.bad for b in bad.picture.boxes) == 2 and "#ff6b6b" in bad.dot
    with pytest.raises(gd.errors.NodeTypeError, match="no value is given for input 'x2'"):
        gd.draw(y, at={x1: 2.0})
    with pytest.raises(gd.errors.NodeTypeError, match="at is a dict"):
        gd.draw(y, at=[1.0])


def test_pairs_stand_side_by_side():
    """In the DOT text and in our own layout: the adjoint of an input is in the input's column, and next to it."""
    from graphdiff.trace.layout import _Layered
    x1, x2, y = survey()
    d = gd.draw(y, wrt=[x1, x2])
    heads = d.picture.heads()
    boxes = {b.id: b for b in d.picture.boxes}
    names = {boxes[a].label[0]: boxes[b].label[0] for a, b in heads.items()}
    assert names["x1"] == "d/dx1 = +" and names["x2"] == "d/dx2 = +"
    for a, b in heads.items():
        assert re.search(rf"rank=same; {a} \[.*; {b} \[.*;.* {a} -> {b} \[style=invis", d.dot)
    lay = _Layered(d.picture)
    place = {b.id: i for i, b in enumerate(d.picture.boxes)}
    for a, b in heads.items():
        i, j = place[a], place[b]
        assert lay.layer[i] == lay.layer[j]
        column = lay.columns[lay.layer[i]]
        assert column.index(j) == column.index(i) + 1
    for e in d.picture.edges:                        # the reverse pass runs against the forward pass
        step = lay.layer[place[e.dst]] - lay.layer[place[e.src]]
        assert step > 0 if e.kind == "forward" else step <= 0 or e.kind == "use"


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


def test_text_is_readable_on_every_fill():
    """Contrast by the WCAG formula: text on fills at least 5, edges and group labels on white and on black at least 3."""
    from graphdiff.trace import color, dot

    def luminance(text):
        parts = [int(text[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    def contrast(a, b):
        high, low = sorted((luminance(a), luminance(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    scale = color.Scale([0.0, 1.0], "x")
    fills = [c[0] for c in dot.COLORS.values()] + [scale.fill(k / 20) for k in range(21)]
    assert all(contrast(f, dot.TEXT_COLOR) >= 5 for f in fills)
    for c in (*dot.EDGES.values(), dot.GROUP_COLOR):
        assert contrast(c, "#ffffff") >= 2.5 and contrast(c, "#0d1117") >= 3
    lights = [luminance(scale.fill(k / 20)) for k in range(21)]
    assert lights == sorted(lights, reverse=True)                          # darker means more, on a black-and-white printer too


# -- programs ------------------------------------------------------------------------------------------------------------

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
    f = gd.function([x, z], [c, gd.sum(b)])
    assert [i[0] for i in f.program.instrs] == ["fused", "sum"]
    d = gd.draw(f)
    group = [box for box in d.picture.boxes if box.cluster]
    frame, = {box.cluster for box in group}
    assert frame == ("0: 3 fused, float64[4] → out0, arena[0]",) or frame == ("0: 3 fused, float64[4] → arena[0], out0",)
    assert sorted(box.label[0] for box in group) == ["2", "c = +", "sin", "×"]
    ids = {box.label[0]: box.id for box in d.picture.boxes}
    assert len(ids) == len(d.picture.boxes) == 9
    assert {(e.src, e.dst) for e in d.picture.edges} == {(ids[a], ids[b]) for a, b in (
        ("x: 32 B", "sin"), ("z: 32 B", "×"), ("sin", "×"), ("×", "c = +"), ("2", "c = +"), ("×", "1: sum"), ("c = +", "out0: 32 B"),
        ("1: sum", "out1: 8 B"))}
    assert "subgraph cluster_0 {" in d.dot and "3 fused" in d.dot
    timed = gd.draw(f, color=f.profile(np.ones(4), np.ones(4)))
    assert len({box.fill for box in timed.picture.boxes if box.cluster and box.kind == "op"}) == 1
    unfused = gd.draw(gd.function([x, z], [c, gd.sum(b)], passes=()))
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


def test_pictures_of_the_readme(tmp_path):
    """The script draws what the README shows; the stored files are small, and carry no script and no link."""
    root = pathlib.Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, root / "examples" / "pictures.py", tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    drawn = {p.name for p in tmp_path.iterdir()}
    shown = re.findall(r"!\[[^\]]*\]\(examples/pictures/(\w+\.svg)\)", (root / "README.md").read_text(encoding="utf-8"))
    assert len(shown) >= 2 and set(shown) <= drawn
    for name in drawn:
        stored = root / "examples" / "pictures" / name
        assert 5_000 < stored.stat().st_size < 100_000
        for path in (stored, tmp_path / name):
            tags = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(path.read_text(encoding="utf-8")).iter()}
            assert not tags & {"script", "image", "foreignObject"} and "text" in tags
