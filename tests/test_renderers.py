"""Who draws: Graphviz when it is there and in time, the layout of our own otherwise; what is saved, and where."""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest
from drawn import network, read_dot, survey

import graphdiff as gd
from graphdiff.trace import draw as drawing
from graphdiff.trace import render as rendering
from graphdiff.trace.layout import to_placed_dot, to_svg


def test_own_layout_separates_boxes():
    y, parameters = network()
    from graphdiff.trace.layout import _Layered
    for p in (gd.draw(y).picture, gd.draw(y, wrt=parameters).picture):
        lay = _Layered(p)
        rects = [(*lay.point(i), *lay.sizes[i]) for i in range(len(p.boxes))]
        for i, (x, y0, w, h) in enumerate(rects):
            for u, v, a, b in rects[:i]:
                assert abs(x - u) >= (w + a) / 2 - 1e-6 or abs(y0 - v) >= (h + b) / 2 - 1e-6


@pytest.mark.parametrize("direction", ["LR", "TB"])
def test_own_layout_ends_every_edge_on_its_boxes(direction):
    x = gd.input("x")
    y = gd.sin(x * x) ** 2                                          # x * x: two edges forward and two back between the same boxes
    p = gd.trace(y, at={x: 2.0}).draw(direction=direction).picture
    root = ElementTree.fromstring(to_svg(p))
    side, size = ("y", "height") if direction == "LR" else ("x", "width")
    ns = "{http://www.w3.org/2000/svg}"
    box = {g.get("id"): g.find(f"{ns}rect") for g in root.iter(f"{ns}g") if g.get("class", "").startswith("node")}
    ends = []
    for g in root.iter(f"{ns}g"):
        if g.get("class", "").startswith("edge"):
            numbers = [float(v) for v in re.findall(r"-?[\d.]+", g.find(f"{ns}path").get("d"))]
            ends += zip(g.find(f"{ns}title").text.split("->"), (numbers[:2], numbers[-2:]), strict=True)
    assert len(ends) == 2 * len(p.edges) >= 16
    for name, at in ends:
        low = float(box[name].get(side))
        assert low <= at[direction == "LR"] <= low + float(box[name].get(size))


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


def test_pictures_of_the_readme(tmp_path):
    """The script draws what the README shows; the stored files are small, and carry no script and no link."""
    root = pathlib.Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, root / "tools" / "pictures.py", tmp_path], capture_output=True, text=True, timeout=300)
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
