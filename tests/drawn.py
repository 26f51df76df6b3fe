"""What the tests of pictures share: small graphs, and a reader of DOT text that knows nothing but words and strings."""
from __future__ import annotations

import re

import numpy as np

import graphdiff as gd
from graphdiff.graph.walk import toposort

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


def leaf(y, name):
    """The input or variable of that name."""
    return next(n for n in toposort([y]) if n.name == name)
