"""Traces: the survey's table, the ledger of adjoints, the stepper, every format, hostile names, explanations and rules."""
from __future__ import annotations

import csv
import html
import html.parser
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.trace.formula import LATEX, formula

GOLDEN = pathlib.Path(__file__).parent / "golden"
HOSTILE = ['"', "\\", "a\\", "\\N", '"]; evil [label="x', "<b>x</b>", "<TABLE>", "<script>alert(1)</script>", "]]>", "</svg><script>",
           "&amp;", "a\nb", "a\rb", "a\0b", "a\u202eb", "\ud800", "\U0001F600", "{a|b}", "->", "node", "graph", "", " ", "x" * 1_000_000,
           "javascript:alert(1)", "%n%s", "${x}", "../../x", "=cmd|' /C calc'!A0", "`a`", "$a_b^c$", "\\input{/etc/passwd}", "|", "--",
           "v1", "xbar", "onload=alert(1)", "' onclick='x"]


def golden(name: str, text: str) -> None:
    """The text is the golden file's; GRAPHDIFF_GOLDEN=1 writes it instead. Lines of this file are left out."""
    text = re.sub(r"\w+\.py:\d+", "SITE", text)
    path = GOLDEN / name
    if os.environ.get("GRAPHDIFF_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    assert rounded(path.read_text(encoding="utf-8")) == rounded(text)


def rounded(text: str) -> str:
    """Numbers to 15 digits: in the last place instruction sets may differ."""
    return re.sub(r"\d+\.\d{14,}", lambda number: f"{float(number[0]):.15g}", text)


def survey():
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    return x1, x2, y, gd.trace(y, at={x1: 2.0, x2: 5.0})


def test_the_last_line_names_the_result_and_nothing_else():
    x, y, f = gd.inputs("x y f")
    t = gd.trace(x * y, at={x: 2.0, y: 3.0})
    assert str(t).splitlines()[-1].split("|")[0].strip() == "f = v1 = 6" and "$f = v_{1} = 6$" in t.to_latex()
    assert "f = v1 = 6" in t.to_html() and "y = v1" not in t.to_html()
    assert "result = v2 = 8" in str(gd.trace(x * y + f, at={x: 2.0, y: 3.0, f: 2.0}))
    assert "y = v0 = 2" in str(gd.trace(y, at={y: 2.0}))
    named = gd.trace((x * 2.0).named("v7"), at={x: 2.0})
    assert "v7 = v1 = 4" in str(named) and r"$\mathit{v7} = v_{1} = 4$" in named.to_latex()


def test_every_format_tells_of_an_adjoint_to_which_nothing_flowed():
    x = gd.input("x")
    y = gd.custom_gradient(lambda q: gd.sin(q), lambda g, out, q: g * 3.0)(x)
    t = gd.trace(y, at={x: 2.0})
    assert "v1bar = 0" in str(t) and "v1bar = 0" in t.to_html() and r"$\bar{v}_{1} = 0$" in t.to_latex()


def test_rows_by_name():
    _, x2, y, t = survey()
    assert t["v3"].formula == "sin v0" and t["x2"].node is x2 and t["v5"].node is y
    assert str(t.run_to("v3")) == "v3 = sin v0 = -0.959" and str(t.run_to("x1")).startswith("v-1bar = v2bar v0")
    for word, why in (("v9", "no row is called 'v9'"), ("", "no row is called")):
        with pytest.raises(KeyError, match=why):
            t.run_to(word)
    p, q = gd.input("x"), gd.input("x")
    with pytest.raises(KeyError, match="several rows are called 'x'"):
        gd.trace(p * q, at={p: 1.0, q: 2.0})["x"]


def test_errors_say_which_value_is_wrong():
    a, w = gd.input("a", (3,)), gd.input("w", ("n", 3))
    with pytest.raises(gd.errors.ShapeError, match=r"argument a: shape \[2\] given, \[3\] wanted"):
        gd.trace((w @ a).sum(), at={w: np.ones((2, 3)), a: [1.0, 2.0]})
    with pytest.raises(gd.errors.ShapeError, match=r"argument tangent of a: shape \[2\] given"):
        gd.trace((w @ a).sum(), at={w: np.ones((2, 3)), a: [1.0, 2.0, 3.0]}, tangent={a: [1.0, 0.0]})
    b = gd.input("b", ("n",))
    with pytest.raises(gd.errors.ShapeError, match=r"size n is 2 elsewhere, but 4 here\n  given   w \[2, 3\], b \[4\]"):
        gd.trace((w.sum() * b).sum(), at={w: np.ones((2, 3)), b: np.ones(4)})
    for several in ([a, w], (a,), {"a": a}):
        with pytest.raises(gd.errors.NodeTypeError, match="one node is traced, not a"):
            gd.trace(several, at={a: [1.0, 2.0, 3.0]})


def test_a_finite_derivative_of_nan_says_where_the_nan_began():
    x, y = gd.inputs("x y")
    e = gd.explain(gd.log(x) * y, x, at={x: -1.0, y: 1.0})
    assert "d multiply / d x: -1, finite and not zero, but v2 itself is nan" in str(e)
    assert "first made by log float64[]" in str(e) and [n.op.name for n in e.marked] == ["log"]


def test_formulas_read_one_way_only():
    x, y = gd.inputs("x y")
    t = gd.trace(gd.where(x == y, x, y), at={x: 2.0, y: 5.0})
    assert "v1 = (v-1 = v0) = False" in str(t) and r"v_{1} = \left(v_{-1} = v_{0}\right) = " in t.to_latex()
    power = gd.trace(x ** (gd.constant(3.0) - 1.0) * y, at={x: 2.0, y: 3.0})
    assert [r.formula for r in power.rows if r.value == 2.0 and r.index == 1] == ["3 - 1"]
    assert formula(y * gd.expm1(x), lambda n: None, LATEX).text == r"y\,\left(e^{x} - 1\right)"
    assert "xbar += ybar (y*0.693147)\n" in str(gd.rule(2 ** x))
    assert r"\mathrm{relu}\,x" in gd.rule(gd.relu(x)).latex and r"\mathrm{sign}\,x" in gd.rule(abs(x)).latex


def test_survey_values():
    x1, x2, y, t = survey()
    assert [r.index for r in t.rows] == [-1, 0, 1, 2, 3, 4, 5]
    assert [r.name for r in t.rows] == ["v-1", "v0", "v1", "v2", "v3", "v4", "v5"]
    assert [r.formula for r in t.rows] == ["x1", "x2", "ln v-1", "v-1 v0", "sin v0", "v1 + v2", "v4 - v3"]
    np.testing.assert_allclose([float(r.value) for r in t.rows], [2, 5, np.log(2), 10, np.sin(5), np.log(2) + 10, 11.652071455223084], rtol=1e-15)
    assert [float(r.adjoint) for r in t.rows] == [5.5, 1.7163378145367738, 1, 1, -1, 1, 1]
    assert float(t.value(y)) == 11.652071455223084
    assert float(t.adjoint(x1)) == 5.5
    ledger = [(c.by, c.formula, float(c.value), float(c.sum)) for c in t[x2].contributions]
    assert ledger[0][:2] == ("v3", "v3bar cos v0") and abs(ledger[0][2] + 0.28366218546322625) < 1e-16
    assert ledger[1] == ("v2", "v2bar v-1", 2.0, 1.7163378145367738)
    assert [(c.by, c.formula, float(c.value), float(c.sum)) for c in t[x1].contributions] == [
        ("v2", "v2bar v0", 5.0, 5.0), ("v1", "v1bar/v-1", 0.5, 5.5)]
    assert t[y].contributions == () and t[y].node is y and t[y].site.file == __file__
    assert not t[y].value.flags.writeable


def test_survey_table_is_golden():
    _, _, _, t = survey()
    golden("trace_survey.txt", str(t) + "\n")
    golden("trace_survey.md", t.to_markdown())
    golden("trace_survey.tex", t.to_latex())
    golden("trace_survey.csv", t.to_csv())
    golden("trace_survey.table.html", t.to_html())
    golden("trace_survey.rows.txt", t.to_text(layout="rows") + "\n")
    golden("trace_survey.rows.md", t.to_markdown(layout="rows"))
    golden("trace_survey.rows.csv", t.to_csv(layout="rows"))


def test_survey_tangents_are_golden():
    # Baydin et al. (2018), table 2: the tangent of y in the direction of x1.
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    t = gd.trace(y, at={x1: 2.0, x2: 5.0}, tangent={x1: 1.0})
    assert [float(r.tangent) for r in t.rows] == [1, 0, 0.5, 5, 0, 5.5, 5.5]
    golden("trace_tangents.txt", f"{t}\n\n{t.to_text(layout='rows')}\n\n{t.to_latex()}\n{t.to_latex(layout='rows')}\n{t.to_csv()}\n{t.to_markdown()}")
    assert 'class="tangent">v5dot = v4dot = 5.5<' in t.to_html()


def test_tangents_of_tensors_equal_forward_mode():
    rng = np.random.default_rng(0)
    x, w = gd.input("x", ("n", 3)), gd.variable(rng.normal(size=(3, 4)), "W")
    h = gd.softmax(gd.relu(x @ w)).named("h")
    y = gd.sum(gd.layer_norm(h) * gd.floor(h + 1.5)) + gd.max(x) + gd.logsumexp(x @ w)
    a, d, e = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    t = gd.trace(y, at={x: a}, tangent={x: d, w: e})
    dx = gd.input("dx", x.shape)
    np.testing.assert_allclose(t[y].tangent, gd.evaluate(gd.jvp(y, [x, w], [dx, gd.constant(e)]), {x: a, dx: d}), rtol=1e-12)
    moving = (t.adjoint(x) * d).sum() + (t.adjoint(w) * e).sum()
    np.testing.assert_allclose(t[y].tangent, moving, rtol=1e-12)
    for r in t.rows:
        if r.node.dtype.kind == "f" and r.node.op.family != "leaf":
            want = gd.evaluate(gd.jvp(r.node, [x, w], [dx, gd.constant(e)]), {x: a, dx: d})
            np.testing.assert_allclose(r.tangent, want, rtol=1e-12, atol=1e-15)
    assert len(t.to_text().splitlines()[0].split("|")) == 3
    with pytest.raises(gd.errors.ShapeError, match="tangent of x"):
        gd.trace(y, at={x: a}, tangent={x: 1.0})
    with pytest.raises(gd.errors.GradientError, match="'other'"):
        gd.trace(y, at={x: a}, tangent={gd.input("other"): 1.0})
    with pytest.raises(gd.errors.NodeTypeError, match="tangent is a dict"):
        gd.trace(y, at={x: a}, tangent=1.0)
    with pytest.raises(gd.errors.NodeTypeError, match="layout"):
        t.to_text(layout="columns")


def tex_is_well_formed(text: str) -> None:
    """Groups, environments, math shifts and column counts of what a trace or rule writes; pdflatex decides where it is installed."""
    bare = re.sub(r"\\[\\{}$&#_%]", "", re.sub(r"(?m)%.*$", "", re.sub(r"\\\\(?![a-zA-Z])", "\n", text.replace("\\%", ""))))
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0, text
    assert depth == 0 and bare.count(r"\left") == bare.count(r"\right") + bare.count(r"\leftarrow"), text
    opened = []
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if word == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name, text
    assert opened == [] and bare.count("$") % 2 == 0
    inside = False
    for piece in re.split(r"(\$)", bare):
        if piece == "$":
            inside = not inside
        elif not inside and "tabular" in text:          # outside math mode ^ and _ are errors
            assert "^" not in piece and "_" not in piece, piece
    columns = re.search(r"\\begin\{tabular\}\{([l|]+)\}", text)
    if columns:
        body = bare[bare.index("\n", bare.index("tabular}")):bare.index(r"\end")]
        for line in body.splitlines():
            assert line.strip() in ("", r"\hline") or line.count("&") == columns.group(1).count("l") - 1, line


def compiled(pieces, tmp_path):
    """pdflatex runs through, in a document with amsmath."""
    if shutil.which("pdflatex") is None:
        return
    source = tmp_path / "t.tex"
    head = "\\documentclass{article}\\usepackage[utf8]{inputenc}\\usepackage{amsmath}\\begin{document}\n"
    source.write_text(head + "\n\n".join(pieces) + "\n\\end{document}\n")
    done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", source.name], cwd=tmp_path, timeout=120,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_latex_compiles(tmp_path):
    x, w = gd.input("x_1 {%}", (2, 3)), gd.variable(np.ones((3, 4)), "W^2")
    h = gd.softmax(gd.relu(x @ w)).named("h&m")
    y = gd.mean(gd.layer_norm(h) * 1e-9) + gd.max(gd.abs(x)) ** 1.5 + gd.sum(gd.where(x > 0, x, -x).astype("float32").astype("float64"))
    t = gd.trace(y, at={x: np.arange(6.0).reshape(2, 3) - 2.5}, tangent={x: np.ones((2, 3))})
    x1, x2 = gd.inputs("x1 x2")
    s = gd.trace(gd.log(x1) + x1 * x2 - gd.sin(x2), at={x1: 2.0, x2: 5.0})
    nan = gd.trace(gd.log(x1), at={x1: -1.0})
    texts = [f(layout=layout) for f in (t.to_latex, s.to_latex, nan.to_latex) for layout in ("sides", "rows")]
    for text in texts:
        tex_is_well_formed(text)
    compiled(texts, tmp_path)
    with pytest.raises(AssertionError):
        tex_is_well_formed("\\begin{tabular}{l|l}\n$a_{1$ & b \\\\\n\\end{tabular}")
    with pytest.raises(AssertionError):
        tex_is_well_formed("\\begin{tabular}{l|l}\n$a_{1}$ \\\\\n\\end{tabular}")


def test_stepper_walks_both_passes():
    _, x2, y, t = survey()
    assert t.current is None and t.back() is None
    lines = []
    while t.step() is not None:
        lines.append(str(t.current))
    assert lines == [
        "v-1 = x1 = 2", "v0 = x2 = 5", "v1 = ln v-1 = 0.693", "v2 = v-1 v0 = 10", "v3 = sin v0 = -0.959", "v4 = v1 + v2 = 10.693",
        "v5 = v4 - v3 = 11.652", "v5bar = 1", "v4bar = v5bar*1 = 1", "v3bar = v5bar*(-1) = -1", "v1bar = v4bar*1 = 1", "v2bar = v4bar*1 = 1",
        "v0bar = v3bar cos v0 = -0.284", "v-1bar = v2bar v0 = 5", "v0bar = v0bar + v2bar v-1 = 1.716", "v-1bar = v-1bar + v1bar/v-1 = 5.5"]
    assert t.current.phase == "reverse" and t.step() is None and float(t.current.value) == 5.5
    assert str(t.back()) == lines[-2]
    golden("step.txt", repr(t.current) + "\n\n" + repr(t.steps[3]) + "\n\n" + repr(t.steps[7]) + "\n")
    t.restart()
    assert t.run_to(x2).text == lines[1] and t.run_to(x2).text == lines[12] and t.run_to(x2).text == lines[14]
    assert t.run_to(y).node is y
    with pytest.raises(KeyError):
        t.run_to(gd.input("other"))


def test_ledger_sums_to_the_gradient_and_in_the_order_it_arrived():
    rng = np.random.default_rng(0)
    for seed in range(40):
        x, w = gd.inputs("x w")
        pool = [x, w]
        for _ in range(15):
            a, b = (pool[i] for i in rng.integers(0, len(pool), 2))
            k = rng.integers(0, 6)
            pool.append([lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: gd.sin(a), lambda a, b: gd.tanh(a) * 0.5,
                         lambda a, b: gd.logaddexp(a, b)][k](a, b))
        y = pool[-1] + pool[-2] * x + w
        at = {x: 0.3, w: -0.7}
        t = gd.trace(y, at=at)
        order = [id(r.node) for r in t.rows]
        for r in t.rows:
            assert all(id(n) in order[:order.index(id(r.node))] for n in r.node.inputs if id(n) in order), seed
            if r.node is y or r.adjoint is None:
                continue
            wanted = gd.evaluate(gd.grad(y, r.node), at)
            assert r.adjoint == wanted
            total = None
            for c in r.contributions:
                total = c.value if total is None else total + c.value
                assert c.sum == total
                assert c.consumer.inputs[c.operand] is r.node
            assert total == r.adjoint
            places = [order.index(id(c.consumer)) for c in r.contributions]
            assert places == sorted(places, reverse=True)       # reading upwards is reading in the order of arrival


def test_ledger_is_what_the_sweep_added():
    # Contributions that are one and the same node, several operands of one consumer, and rules that give nothing.
    x, w = gd.input("x", (3, 3)), gd.input("w", (3, 3))
    h = gd.tanh(x).named("h")
    parts = [h + h, h @ h, gd.concatenate([h, h, h])[:3], h, gd.stop_gradient(h) * h, gd.floor(h)]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    y = gd.sum(total * w)
    rng = np.random.default_rng(3)
    t = gd.trace(y, at={x: rng.normal(size=(3, 3)), w: rng.normal(size=(3, 3))})
    came = [(c.consumer.op.name, c.operand) for c in t[h].contributions]
    assert sorted(came) == sorted([("add", 0), ("add", 1), ("add", 1), ("matmul", 0), ("matmul", 1), ("concatenate", 0), ("concatenate", 1),
                                   ("concatenate", 2), ("multiply", 1)])
    total = 0
    for c in t[h].contributions:
        assert c.consumer.inputs[c.operand] is h
        total = total + c.value
        np.testing.assert_array_equal(c.sum, total)
    np.testing.assert_array_equal(t[h].adjoint, total)


def test_variables_and_constants_carry_their_scope():
    with gd.scope("encoder"):
        w = gd.variable(np.ones(3), "w")
        y = w * np.arange(3.0) + 2.0
    assert [n.scope for n in gd.graph.walk.toposort([y])] == ["encoder"] * 5


def test_gradient_of_a_gradient():
    x = gd.input("x")
    t = gd.trace(gd.grad(gd.sin(x) * x, x), at={x: 0.5})
    assert t.adjoint(x) == pytest.approx(2 * np.cos(0.5) - 0.5 * np.sin(0.5), rel=1e-14)
    assert len(str(t).splitlines()) > 5


def test_tensors_names_variables_constants_and_sizes():
    x = gd.input("x", ("n", 3))
    w = gd.variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "W")
    b = gd.constant([0.5, -0.5])
    h = gd.relu(x @ w + b).named("h")
    y = gd.mean(h * h)
    a = np.arange(6.0).reshape(2, 3) - 2
    t = gd.trace(y, at={x: a})
    assert t[h].name == "h" and [r.name for r in t.rows if r.index is None] == ["c1"]
    assert [r.index for r in t.rows if r.index is not None][:3] == [-1, 0, 1]
    grads = gd.evaluate(gd.grad(y, [x, w]), {x: a})
    assert (t.adjoint(x) == grads[0]).all() and (t.adjoint(w) == grads[1]).all()
    assert t.adjoint(b) is None
    big = gd.input("big", (100, 4))
    text = str(gd.trace(gd.sum(big * big), at={big: np.where(np.arange(400).reshape(100, 4) == 7, np.nan, 1.0)}))
    assert "[100, 4] min 1 mean 1 max 1 norm 19.975 NaN 1" in text


def test_every_kind_of_op_traces_to_its_gradient():
    rng = np.random.default_rng(0)
    x, f = gd.input("x", ("n", 4)), gd.input("f", (5,), "float32")
    im, k = gd.input("im", (2, 3, 6, 6)), gd.input("k", (2, 3, 3, 3))
    at = {x: rng.normal(size=(3, 4)), im: rng.normal(size=(2, 3, 6, 6)), k: rng.normal(size=(2, 3, 3, 3)), f: rng.normal(size=5).astype("f4")}
    cases = [(x, gd.sum(gd.softmax(x) ** 2.0)), (x, gd.sum(gd.layer_norm(x) * x)), (x, gd.mean(x) * gd.logsumexp(x)), (x, gd.sum(gd.attention(x, x, x))),
             (x, gd.sum(x[1] * x[0])), (x, gd.einsum("ij,kj->", x, x)), (im, gd.sum(gd.max_pool(im, 2))), (f, gd.prod(f)), (f, gd.sum(gd.sort(f) * f)),
             (f, gd.sum(f.at[1].set(f[0] * 2))), (f, gd.sum(gd.concatenate([f, f]) ** 2.0)), (f, gd.std(f)), (f, gd.sum(gd.jacobian(gd.sin(f), f))),
             (f, gd.sum(gd.dropout(f, 0.5, gd.random.key(3)))), (k, gd.sum(gd.relu(gd.conv(im, k, padding=1))))]
    for target, y in cases:
        feeds = {target: at[target]} if target is not k else {im: at[im], k: at[k]}
        t = gd.trace(y, at=feeds)
        np.testing.assert_allclose(t.adjoint(target), gd.evaluate(gd.grad(y, target), feeds), rtol=1e-5, atol=1e-12)
        for r in t.rows:
            assert not r.contributions or np.array_equal(r.contributions[-1].sum, r.adjoint)
            assert all(len(c.formula) <= 160 for c in r.contributions)
        for text in (str(t), t.to_latex(), t.to_csv(), t.to_html(), t.draw().dot, gd.draw(y, wrt=target).dot):
            assert text


def test_wrt_interior_values_vectors_and_integers():
    x, z = gd.inputs("x z")
    h = (x * z).named("h")
    y = gd.sin(h) + h
    t = gd.trace(y, at={h: 2.0})
    assert [r.name for r in t.rows] == ["v0", "v1", "v2"] and t[h].value == 2 and t.adjoint(h) == np.cos(2.0) + 1
    t = gd.trace(y, at={x: 1.0, z: 2.0}, wrt=h)
    assert t.adjoint(x) is None and t.adjoint(h) == np.cos(2.0) + 1
    v = gd.input("v", (3,))
    t = gd.trace(gd.exp(v), at={v: [0.0, 1.0, 2.0]})
    assert "sum(y)" in t.note
    np.testing.assert_allclose(t.adjoint(v), np.exp([0.0, 1.0, 2.0]), rtol=1e-15)
    t = gd.trace(gd.floor(x).astype("int64") + 1, at={x: 2.5})
    assert t.seed is None and t.rows[-1].value == 3 and "no derivative" in str(t)
    t = gd.trace(x, at={x: 3.0})
    assert t.adjoint(x) == 1 and "v0 = x = 3" in str(t)


def test_mistakes_are_told():
    x, z = gd.inputs("x z")
    with pytest.raises(gd.errors.NodeTypeError, match="'z'"):
        gd.trace(x * z, at={x: 1.0})
    with pytest.raises(gd.errors.NodeTypeError, match="at="):
        gd.trace(x)
    with pytest.raises(gd.errors.NodeTypeError, match="keys"):
        gd.trace(x, at={"x": 1.0})
    with pytest.raises(gd.errors.GradientError, match="does not depend"):
        gd.trace(gd.sin(x), at={x: 1.0}, wrt=z)
    with pytest.raises(gd.errors.ShapeError, match="argument x"):
        gd.trace(gd.sin(x), at={x: [1.0, 2.0]})


@pytest.mark.parametrize("layout", ["sides", "rows"])
@pytest.mark.parametrize("name", ["image", "画像", "e\u0301clat", "w" * 30])
def test_bars_of_the_printed_table_stand_below_each_other(layout, name):
    """Cells too wide for a column go on below, none of their text is lost, and wide characters take two columns."""
    def wide(text):
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)

    image, kernel = gd.input(name, (1, 1, 5, 5)), gd.input("kernel", (1, 1, 3, 3))
    t = gd.trace(gd.sum(gd.conv(image, kernel, padding="same") * image), at={image: np.ones((1, 1, 5, 5)), kernel: np.ones((1, 1, 3, 3))})
    head, rule, *lines = t.to_text(layout=layout).split("\n")
    assert max(wide(part) for part in rule.split("+")) <= 80
    places = [wide(rule[:i]) for i, c in enumerate(rule) if c == "+"]
    for line in (head, *lines):
        bars = [wide(line[:i]) for i, c in enumerate(line) if line[i:i + 2].rstrip() == "|"]
        assert bars[:len(places)] == places
        checked()
    if layout == "sides":
        left = " ".join(" ".join(line.split(" |")[0] for line in lines).split())
        assert all(f"{row.name} = {row.formula} = " in left for row in t.rows)
        checked(len(t.rows))


def test_without_at_it_is_the_sum_of_a_diagonal():
    a = gd.input("a", (3, 3))
    m = np.arange(9.0).reshape(3, 3)
    assert gd.evaluate(gd.trace(a), {a: m}) == 12
    assert gd.evaluate(gd.trace(a, 1), {a: m}) == 6
    assert gd.evaluate(np.trace(a), {a: m}) == 12
    for y, total in ((np.trace(a, dtype="float32"), 12), (a.trace(1, 0, 1, "float32"), 6), (gd.trace(a, 1, 0, 1, "float32"), 6),
                     (gd.trace(a, dtype="float32"), 12)):
        assert y.dtype == "float32" and gd.evaluate(y, {a: m}) == total
    checked(4)


def test_trace_is_callable_whatever_is_imported_first():
    code = "import graphdiff as gd; gd.draw(gd.input('x')); x = gd.input('x'); print(float(gd.trace(x * x, at={x: 3.0}).adjoint(x)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "6.0"


class _Audit(html.parser.HTMLParser):
    """Collects what a page could run or fetch."""

    def __init__(self):
        super().__init__()
        self.tags, self.found, self.stack = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "br", "link", "img", "input", "hr"):
            self.stack.append(tag)
        for k, v in attrs:
            if k.startswith("on") or k in ("href", "src", "action", "xlink:href", "srcset", "formaction"):
                self.found.append((tag, k, v))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.stack and self.stack[-1] == tag:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, (tag, self.stack[-3:])
        self.stack.pop()


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_in_every_format(name, tmp_path):
    x = gd.input(name)
    with gd.scope(name or "s"):
        h = (gd.sin(x) * 2.0).named(name)
    y = gd.exp(h).named(name)
    t = gd.trace(y, at={x: 0.5})
    text = str(t)
    assert len(text) < 20_000 and "\0" not in text and "\u202e" not in text
    text.encode("utf-8")
    plain = gd.input("plain")
    alike = gd.trace(gd.exp((gd.sin(plain) * 2.0).named("h")).named("y"), at={plain: 0.5})
    for suffix in (".html", ".md", ".tex", ".csv", ".txt", ".dot"):
        t.save(tmp_path / f"t{suffix}")
        assert (tmp_path / f"t{suffix}").stat().st_size < 100_000
    page = (tmp_path / "t.html").read_text(encoding="utf-8")
    audit = _Audit()
    audit.feed(page)
    assert audit.stack == [] and audit.found == [] and audit.tags.count("script") == 1 and "table" in audit.tags
    assert "b" not in audit.tags
    alike.save(tmp_path / "alike.html")
    reference = _Audit()
    reference.feed((tmp_path / "alike.html").read_text(encoding="utf-8"))
    assert set(audit.tags) <= set(reference.tags) | {"a", "polyline", "polygon", "ellipse", "path", "rect"}
    assert "http:" not in re.sub(r"http://www\.w3\.org/\S+", "", page) and "https:" not in page
    rows = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text(encoding="utf-8"))))
    assert len({len(r) for r in rows}) == 1
    assert not any(cell[:1] in ("=", "@", "+") for r in rows for cell in r)
    markdown = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines()}) == 1
    tex = (tmp_path / "t.tex").read_text(encoding="utf-8")
    assert "\\input" not in tex and tex.count("{") - tex.count("\\{") == tex.count("}") - tex.count("\\}")


def test_page_script_is_allowed_by_its_own_policy(tmp_path):
    import base64
    import hashlib
    _, _, _, t = survey()
    t.save(tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text(encoding="utf-8")
    script = page[page.index("<script>") + 8:page.index("</script>")]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in page
    steps = [int(s) for s in re.findall(r'data-step="(\d+)"', page)]
    assert sorted(steps) == list(range(16))
    data = json.loads(html.unescape(re.search(r'<div id="data" hidden>(.*?)</div>', page, re.DOTALL).group(1)))
    assert len(data["rows"]) == 7 and len(data["steps"]) == 16
    assert all(f'<g class="node {kind}" id="{r["box"]}">' in page for r, kind in zip(data["rows"], ["input"] * 2 + ["op"] * 5, strict=True))


def test_save_refuses_unknown_suffixes(tmp_path):
    _, _, _, t = survey()
    with pytest.raises(gd.errors.FormatError, match="suffix"):
        t.save(tmp_path / "t.docx")


def test_deep_graph():
    x = gd.input("x")
    y = x
    for _ in range(3000):
        y = gd.sin(y) + x
    t = gd.trace(y, at={x: 0.1})
    assert len(t[x].contributions) == 3001 and "rows more" in str(t) and len(t.to_text().splitlines()) > 9000


def test_rules():
    a, b = gd.input("A", (2, 3)), gd.input("B", (3, 4))
    x, z = gd.inputs("x z")
    lines = [str(gd.rule(n)) for n in (a @ b, x * z, x / z, gd.sin(x), gd.tanh(x), gd.floor(x), x > z, x, gd.where(x > 0, x, z),
                                       x + gd.input("b", (3,)), gd.sqrt(x), x ** 3.0, gd.sum(a, axis=1))]
    golden("rules.txt", "\n\n".join(lines) + "\n")
    assert gd.rule(a @ b).latex.count("\\mathrel") == 2
    for op_node in (gd.softmax(a), gd.max(a, axis=1), gd.conv(gd.input("i", (1, 1, 5)), gd.input("k", (1, 1, 3)))):
        assert str(gd.rule(op_node))


def test_explain():
    x, z = gd.inputs("x z")
    texts = []
    for y, wrt, at in ((gd.sin(x), z, None), (gd.stop_gradient(x) * 2, x, None), (gd.floor(x) * 2, x, None),
                       (gd.relu(x * z), x, {x: -1.0, z: 2.0}), (gd.sqrt(x - 1) * z, [x, z], {x: 1.0, z: 2.0}),
                       (gd.log(x - 2) * gd.exp(z), z, {x: 1.0, z: 2.0}), (x * z - x * z, x, {x: 1.0, z: 2.0}), (x * z, x, None)):
        e = gd.explain(y, wrt, at=at)
        texts.append(re.sub(r"SITE: .*", "SITE", re.sub(r"\w+\.py:\d+", "SITE", str(e))))
        assert e.draw().dot.startswith("digraph")
    golden("explain.txt", "\n\n".join(texts) + "\n")


CAUSES = {      # cause: (graph of x and z, words of the explanation, op that is marked)
    "no path": (lambda x, z: gd.sin(z), "no path between", None),
    "stop_gradient": (lambda x, z: gd.stop_gradient(x * z) + z, "stop_gradient cuts", "stop_gradient"),
    "integer": (lambda x, z: x.astype("int64").astype("float64") * z, "int64", "cast"),
    "comparison": (lambda x, z: (x > 1).astype("float64") * z, "missing", "greater"),
    "argmax": (lambda x, z: gd.argmax(gd.stack([x, z])).astype("float64") * z, "missing", "argmax"),
    "rounding": (lambda x, z: gd.rint(x) * z, "zero everywhere", "rint"),
    "saturated relu": (lambda x, z: gd.relu(-x) * z, "saturated or flat", "relu"),
    "saturated sigmoid": (lambda x, z: gd.sigmoid(x * 1e4) * z, "saturated or flat", "sigmoid"),
    "exact zero factor": (lambda x, z: gd.sin(x) * (z - 3.0), "multiplies by an exact zero", "multiply"),
    "not chosen": (lambda x, z: gd.maximum(x, z), "another operand was chosen", "maximum"),
    "where": (lambda x, z: gd.where(z > 0, z, gd.exp(x)), "another operand was chosen", "where"),
    "cancels": (lambda x, z: x * z - z * x, "cancel", None),
    "NaN forward": (lambda x, z: gd.square(gd.log(x - 5.0)) * z, "first made by log", "log"),
    "NaN given": (lambda x, z: (x * gd.constant(np.nan)) * z, "in the value given", "multiply"),
    "Inf reverse": (lambda x, z: gd.sqrt(x - 2.0) * z, "All values are finite", "sqrt"),
    "connected": (lambda x, z: x * z, "finite and not zero", None)}


@pytest.mark.parametrize("cause", CAUSES)
def test_explain_names_the_cause(cause):
    x, z = gd.inputs("x z")
    make, words, op = CAUSES[cause]
    y = make(x, z)
    told = gd.explain(y, x, at={x: 2.0, z: 3.0} if cause != "no path" else None)
    assert words in str(told), str(told)
    if op is not None:
        assert op in [n.op.name for n in told.marked] and f"at {os.path.basename(__file__)}:" in str(told)
    drawing = told.draw()
    red = [b for b in drawing.picture.boxes if b.bad]
    assert len(red) == len(told.marked) and all(b.kind == "op" or cause == "cancels" for b in red)
    assert drawing.svg.startswith("<svg") and drawing.dot.startswith("digraph")


def test_explanation_draws_the_path_and_nothing_else():
    x, z = gd.inputs("x z")
    other = z
    for _ in range(300):
        other = gd.sin(other) + z
    cut = gd.stop_gradient(gd.exp(x))
    y = gd.tanh(cut * 2.0) + other
    picture = gd.explain(y, x).draw().picture
    assert [b.label[0] for b in picture.boxes if b.bad] == ["stop_gradient"] or sum(b.bad for b in picture.boxes) == 1
    assert len(picture.boxes) == 6
    deep = gd.stop_gradient(x)
    for _ in range(3000):
        deep = gd.sin(deep)
    told = gd.explain(deep, x)
    assert "more)" in str(told) and len(told.draw().picture.boxes) < 20


def every_op() -> dict[str, gd.Node]:
    """A node of every op in the registry."""
    from registry_cases import PUBLIC

    from graphdiff.graph.build import make
    from graphdiff.graph.opdef import REGISTRY
    from graphdiff.graph.walk import toposort
    from graphdiff.ops import sequence
    a, b, v, k = gd.input("a", (2, 3)), gd.input("b", (2, 3)), gd.input("v", (4,)), gd.random.key(1)
    image, kernel = gd.input("image", (1, 2, 6, 6)), gd.input("kernel", (3, 2, 3, 3))
    i, p, q = gd.input("i", (2,), "int64"), gd.input("p", (2, 3), "int64"), gd.input("q", (2, 3), "bool")
    n = gd.input("n", ("rows", 3))
    double = gd.custom_gradient(lambda x: x * 2.0, lambda g, out, x: g * 2.0)
    carry = gd.checkpoint(lambda x: gd.sin(x) * x)(a)
    conv, pool, avg = gd.conv(image, kernel), gd.max_pool(image, 2), gd.avg_pool(image, 2)
    nodes = [gd.size(n, 0), gd.variable(np.ones(3), "w"), gd.sum(a), gd.mean(a), gd.prod(v), gd.max(a, axis=1), gd.min(a), gd.any(q), gd.all(q),
             gd.argmax(a), gd.argmin(a), gd.logsumexp(a), gd.softmax(a), gd.log_softmax(a), gd.cumsum(v), gd.cumprod(v), gd.sort(v), gd.argsort(v), a
             @ b.T, gd.conv(image, kernel), gd.einsum("ij,kj->ik", a, b), pool, avg, gd.grad(gd.sum(pool), image), gd.grad(gd.sum(conv), [image,
             kernel])[0], gd.grad(gd.sum(conv), kernel), gd.grad(gd.sum(avg), image), gd.random.normal(k, (3,)), gd.random.uniform(k, (3,)),
             gd.random.bernoulli(k, (3,)), gd.dropout(v, 0.5, k), double(v), carry, gd.grad(gd.sum(carry), a), a.reshape(3, 2), a.T, a[0], a[:, 1:],
             v[i], v.at[i].add(1.0), v.at[i].set(0.0), v.at[1:].add(v[:3]), v.at[1:].set(v[:3]), gd.diagonal(a), gd.diag(v),
             gd.roll(v, 1), gd.concatenate([a, b]), gd.broadcast_to(v, (3, 4)),
             gd.stop_gradient(a), gd.take_along_axis(a, p, 1), gd.segment_max(v, gd.input("s", (4,), "int64"), 2), gd.segment_sum(v, gd.input("s",
             (4,), "int64"), 2), gd.grad(gd.sum(gd.sort(v)), v), gd.grad(gd.sum(a[:, 1:]), a), gd.grad(gd.sum(gd.diagonal(a)), a), a[i, i],
             gd.where(q, a, b), a.astype("float32"), a ** 2.0, a ** 5.0, gd.random.split(k), gd.count_nonzero(a), gd.median(v), gd.top_k(v, 2),
             make(REGISTRY["wide_sum"], (p.astype("int32"),), ((0,), False)),
             make(REGISTRY["exact_sum"], (p,), ((0,), False)), make(REGISTRY["recurrence"], (v, v), (0, False)),
             make(REGISTRY["random_bits"], (k,), ((3,), np.dtype("int64"))), gd.squeeze(n, 0)]
    steps = gd.input("steps", (2, 2, 3))
    w, u = [{g: gd.input(f"{name}{g}", (3, 3 * g)) for g in (1, 3, 4)} for name in "wu"]
    layers = [sequence.rnn(steps, None, w[1], u[1]), sequence.gru(steps, None, w[3], u[3]), sequence.lstm(steps, None, None, w[4], u[4])[0]]
    nodes += [gd.grad(gd.sum(gd.attention(a, a, a)), a), *[gd.grad(gd.sum(y), steps) for y in layers], gd.layer_norm(a)]
    found: dict[str, gd.Node] = {}
    for node in nodes:
        for m in toposort([node]):
            if m.dtype.kind == "f" and found.get(m.op.name, m).dtype.kind != "f":      # with a derivative, if there is one
                found[m.op.name] = m
            found.setdefault(m.op.name, m)
    for name, op in REGISTRY.items():
        if name not in found and op.family == "elementwise":
            for operand in (a, p, q):
                try:
                    found[name] = PUBLIC[name](*[operand] * op.arity) if name in PUBLIC else make(op, (operand,) * op.arity)
                    break
                except (TypeError, ValueError):
                    continue
    return found


def test_rules_of_every_op(tmp_path):
    from graphdiff.graph.opdef import REGISTRY
    nodes = every_op()
    assert set(REGISTRY) == set(nodes), sorted(set(REGISTRY) ^ set(nodes))
    latex, texts = [], []
    for name in REGISTRY:
        node = nodes[name]
        card = gd.rule(node)
        text = str(card)
        texts.append(text)
        assert node.spec in text
        for x in node.inputs:
            assert x.spec in text or x.op.name == "constant"
        if node.op.family != "leaf" and node.op.cuts is None and not node.op.zero:
            gains = [line for line in text.splitlines() if " += " in line or "no derivative" in line]
            assert len(gains) >= len({id(x) for x in node.inputs if not (x.op.name == "constant" and x.shape == () and x.name is None)}), text
            assert card.latex.count("+}=") == sum(" += " in line for line in gains)
        tex_is_well_formed(card.latex)
        latex.append(f"${card.latex}$")
        bundle = card._repr_mimebundle_()
        assert bundle["text/plain"] == text and card.latex in bundle["text/latex"]
    compiled(latex, tmp_path)
    golden("rules_all.txt", re.sub(r"token=\d+", "token=0", "\n\n".join(texts) + "\n"))      # a number that depends on the tests before


def test_where_a_function_has_a_stable_form_the_table_says_what_it_gives():
    y = gd.input("y", (2,), "float32")
    loss = -gd.log(gd.softmax(y))[0]
    t = gd.trace(loss, at={y: np.float32([-120, 0])})
    assert np.isinf(t.rows[-1].value)                       # every operation as written
    assert t.note == "a function gives, by stable forms of what is written here: the result = 120, the adjoint of y = [-1, 1]"
    assert t.note in str(t) and t.note in t.to_html()
    assert gd.trace(loss, at={y: np.float32([0, 1])}).note == ""
    x = gd.input("x")
    assert gd.trace(gd.log(x), at={x: 0.0}).note == ""      # infinite in a function as well
    checked(4)


def test_inputs_that_are_called_as_rows_are():
    v1, v2, c1 = gd.inputs("v1 v2 c1")
    trace = gd.trace(gd.log(v1) + v1 * v2 * c1 * 123456.789, at={v1: 2.0, v2: 5.0, c1: 1.0})
    text = str(trace)
    assert "w-2 = v1 = 2" in text and "w-1 = v2 = 5" in text and "v1bar = w-2bar" in text and "123456.789" in text
    assert not re.search(r"\bv3\b|\bv0\b|123457", text)
    w1, w2 = gd.inputs("w1 w2")
    assert "v-1 = w1 = 2" in str(gd.trace(w1 * w2, at={w1: 2.0, w2: 3.0}))
    assert "w1 = " in str(gd.trace((w2 * 2.0).named("w1") + 1.0, at={w2: 3.0}))
    checked(8)


@pytest.mark.parametrize("layer", ["RNN", "GRU", "LSTM"])
def test_steps_whose_number_has_a_name(layer):
    """The rule of such a node cannot be written down; its value and its adjoint are there."""
    x = gd.input("x", (1, "t", 3))
    y = gd.sum(getattr(gd.nn, layer)(3, 4, dtype="float64", key=1)(x))
    at = np.linspace(-1.0, 1.0, 15).reshape(1, 5, 3)
    text = str(gd.trace(y, at={x: at}))
    assert layer.lower() in text and "xbar" in text
    slope = gd.function([x], gd.grad(y, x))(at)
    assert f"norm {np.linalg.norm(slope):.4g}" in text
    checked(2)


def test_sizes_taken_for_others_are_no_step_of_their_own_words():
    """Between named sizes that are to be equal stands an op that says so when they are not: in tables it is the array itself."""
    x, y = gd.input("x", ("n",)), gd.input("y", ("m",))
    loss = gd.losses.mse(x, y)
    t = gd.trace(loss, at={x: np.arange(3.0), y: np.arange(3.0) + 1})
    for text in (str(t), t.to_markdown(), t.to_latex(), t.to_csv()):
        assert "taken_for" not in text and "refusal" not in text
        checked()
    assert "refusal" not in gd.draw(loss).dot
    assert "v1 = v0 = [1, 2, 3]" in str(t) and "v0bar = v1bar = [0.667, 0.667, 0.667]" in str(t)
