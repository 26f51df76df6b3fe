"""What is shown of a graph, and what is made of it, costs in proportion to its nodes: lines of Python are counted, not seconds."""
from __future__ import annotations

import sys

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.graph.walk import toposort


def lines_run(function):
    """(how many lines of Python a call runs, what it gives)."""
    count = 0

    def step(frame, event, argument):
        nonlocal count
        count += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        result = function()
    finally:
        sys.settrace(before)
    return count, result


def script(n):
    """A node in each of n lines of one piece of code."""
    names = {"gd": gd}
    exec(compile("x = gd.input('x')\ny = x\n" + "y = gd.sin(y) + x\n" * (n // 2), "<a long script>", "exec"), names)
    return names["x"], names["y"], 0.5


def layers(n):
    x = gd.input("x", (4,))
    y = x
    for i in range(n // 8):
        with gd.scope(f"layer{i}"):
            y = gd.softmax(y * 2.0 + x) - gd.mean(y)
    return x, gd.sum(y), np.arange(4.0)


def wide(n):
    """Many who use one node, and a sum of them all."""
    x = gd.input("x", (2,))
    return x, gd.sum(gd.stack([x * (1.0 + i) for i in range(n // 3)])), np.arange(2.0)


def towers(n):
    """Many short branches that are added up."""
    x = gd.input("x", (3,))
    total = gd.sum(x)
    for i in range(n // 4):
        total = total + gd.sum(gd.tanh(x * (1.0 + i)))
    return x, total, np.arange(3.0)


def made(x, y, at):
    return gd.function([x], [y, gd.grad(y, x)])


def traced(x, y, at):
    return gd.trace(y, at={x: at})


SHOWN = {
    "compile": lambda x, y, at: lambda: made(x, y, at),
    "program": lambda x, y, at: (lambda f: lambda: str(f.program))(made(x, y, at)),
    "plan": lambda x, y, at: (lambda f: lambda: str(f.plan))(made(x, y, at)),
    "trace": lambda x, y, at: lambda: traced(x, y, at),
    "text": lambda x, y, at: traced(x, y, at).to_text,
    "Markdown": lambda x, y, at: traced(x, y, at).to_markdown,
    "LaTeX": lambda x, y, at: traced(x, y, at).to_latex,
    "HTML": lambda x, y, at: traced(x, y, at).to_html,
    "steps": lambda x, y, at: (lambda t: lambda: [str(s) for s in t.steps])(traced(x, y, at)),
    "draw": lambda x, y, at: lambda: gd.draw(y).dot,
    "draw all": lambda x, y, at: lambda: gd.draw(y, wrt=x, max_nodes=None, fold=False).dot,
    "networkx": lambda x, y, at: lambda: gd.to_networkx(y),
}


@pytest.mark.parametrize("graph", [script, layers, wide, towers], ids=lambda g: g.__name__)
@pytest.mark.parametrize("shown", SHOWN)
def test_work_grows_as_the_graph_does(graph, shown):
    if shown == "networkx":
        pytest.importorskip("networkx")
    SHOWN[shown](*graph(40))()                       # what is imported and looked up once
    few, many = [lines_run(SHOWN[shown](*graph(n)))[0] for n in (160, 640)]
    assert many < 4.8 * few, f"{many / few:.1f} times the lines for 4 times the nodes"
    checked()


def test_printing_a_trace_writes_the_rows_that_it_shows():
    small, large = [gd.trace(y, at={x: at}) for x, y, at in (script(2400), script(9600))]
    few, text = lines_run(lambda: small.to_text(100))
    many, _ = lines_run(lambda: large.to_text(100))
    assert "rows more" in text
    assert many < 4.8 * few and many < 20 * len(large.rows)       # of the others only who gives to whom is looked at
    checked(2)


def test_nodes_of_a_composed_function_have_the_line_of_its_call():
    x = gd.input("x", (4, 6))
    ys = [gd.layer_norm(x, gd.input("w", (6,))), gd.gelu(x), gd.grad(gd.sum(gd.rms_norm(x)), x)]
    made = [n for n in toposort(ys) if n.op.name != "input"]
    line = ys[0].site.line
    assert {(n.site.file, n.site.line) for n in made} == {(__file__, line)}
    assert {n.site.call for n in made if "layer_norm()" in n.scope} == {"layer_norm"}
    checked(2)


def test_nodes_of_a_users_function_that_a_composed_one_calls_have_lines_of_their_own():
    v, ends = gd.input("v", (4, 6)), gd.input("ends", (5,), "int64")

    def edge(a):
        return gd.relu(a) * 2.0

    def node(b):
        return gd.tanh(b)

    nodes, edges, _ = gd.nn.functional.graph_layer(v, ends, ends, edge, node)
    lines = {n.op.name: n.site.line for n in toposort([nodes, edges])}
    assert lines["relu"] == edge.__code__.co_firstlineno + 1 and lines["tanh"] == node.__code__.co_firstlineno + 1
    assert lines["concatenate"] == node.__code__.co_firstlineno + 3
    checked(3)
