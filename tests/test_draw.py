"""Pictures: valid DOT and SVG for every name, pairing of both passes, values, styles, networkx."""
from __future__ import annotations

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from drawn import NAMES, read_dot, survey

import graphdiff as gd
from graphdiff.trace import render as rendering
from graphdiff.trace.layout import to_svg

GOLDEN = pathlib.Path(__file__).parent / "golden"


def golden(name, text):
    text = re.sub(r"\w+\.py:\d+", "SITE", text)
    path = GOLDEN / name
    if os.environ.get("GRAPHDIFF_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    assert path.read_text(encoding="utf-8") == text


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


def test_colors_that_are_no_numbers():
    x = gd.input("x")
    for wrong in ("a", None, [1]):
        with pytest.raises(gd.errors.NodeTypeError, match="the values of color are numbers"):
            gd.draw(x * 2.0, color={x: wrong})


def test_pictures_of_arrays_carry_short_labels():
    x, w = gd.input("x", (4, 6)), gd.variable(np.ones((6, 50)), "w")
    y = (gd.tanh(x @ w)[:, 3:40:2] ** 2).sum()
    for d in (gd.trace(y, at={x: np.ones((4, 6))}).draw(), gd.draw(y, wrt=w, at={x: np.ones((4, 6))})):
        labels = [e.label for e in d.picture.edges] + [line for b in d.picture.boxes for line in b.label]
        assert "[4, 6] norm 4.899" in labels and not [s for s in labels if " min " in s or len(s) > 45]
    bad = gd.trace(y, at={x: np.full((4, 6), np.nan)}).draw()
    assert "[4, 6] NaN 24" in [e.label for e in bad.picture.edges]


def test_cost_of_named_sizes_is_not_drawn_as_nothing():
    x, w = gd.input("x", ("batch", 4)), gd.variable(np.ones((4, 3)), "w")
    p = gd.draw(x @ w + (w * 2.0)[0] * w[1], color="cost").picture
    fill = {b.label[0]: b.fill for b in p.boxes if b.kind == "op"}
    assert fill["@"] == "" and fill["×"] and "FLOPs where sizes are known" in p.legend
