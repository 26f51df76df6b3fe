"""The stepper page in a browser: keys and clicks, and what the page then shows, against the numbers of the trace."""
from __future__ import annotations

import time
from pathlib import Path

import browser
import numpy as np
import pytest
from test_trace import HOSTILE

import graphdiff as gd

WHY_NOT = browser.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def chrome():
    window = browser.Browser(1280, 860)
    try:
        yield window
    finally:
        window.close()


@pytest.fixture
def page(chrome, tmp_path):
    """page(trace) opens its file; at the end nothing may stand on the console."""
    def show(trace, name="trace.html") -> browser.Browser:
        path = Path(tmp_path) / name
        trace.save(path)
        chrome.open(path)
        return chrome
    chrome.resize(1280, 860)
    chrome.media(False)
    yield show
    assert chrome.log() == []


def survey():
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    return x1, x2, gd.trace(y, at={x1: 2.0, x2: 5.0})


def big(n=2000):
    rng = np.random.default_rng(0)
    pool = list(gd.inputs("a b"))
    at = {pool[0]: 0.3, pool[1]: 0.7}
    for _ in range(n):
        p, q = pool[-1], pool[-1 - int(rng.integers(1, min(len(pool), 8)))]
        pool.append([p + q, gd.sin(p), p - q, gd.tanh(p), p * q][int(rng.integers(0, 5))])
    return gd.trace(pool[-1], at=at)


def math_of(window):
    return window.text("#step .math").split("\n")


def test_every_step_shows_the_line_of_the_trace(page):
    _, _, t = survey()
    window = page(t)
    assert window.text("#told") == "start, 16 steps"
    for i, step in enumerate(t.steps):
        window.press("right")
        assert window.text("#told") == f"step {i + 1} of 16, {step.phase}"
        assert window.text("td .now") == step.text
        shown = math_of(window)
        left, right = step.text.split(" = ")[0], step.text.rsplit(" = ", 1)[1]
        assert shown[0].startswith(left + " = ") and shown[-1] == "= " + right
        box = window.run("return document.querySelector('#view g.node.now').id")
        assert window.run("return document.querySelectorAll('#view g.node.now').length") == 1
        assert window.run("const d = JSON.parse(document.getElementById('data').textContent); return d.rows[d.steps[arguments[0]].row].box", i) == box
        waiting = window.run("return Array.from(document.querySelectorAll('td [data-step].wait')).map(e => +e.dataset.step).sort((a, b) => a - b)")
        assert waiting == list(range(i + 1, 16))
    window.press("right")
    assert window.text("#told").startswith("step 16 of 16")
    for i in range(14, -1, -1):
        window.press("left")
        assert window.text("td .now") == t.steps[i].text
    window.press("left", "left")
    assert window.text("#told").startswith("start") and window.text("td .now") is None


def test_formulas_with_numbers_inputs_and_contributions(page):
    _, _, t = survey()
    window = page(t)
    window.press("right", "right", "right", "right")
    assert math_of(window) == ["v2 = v-1 v0", "= 2*5", "= 10"]
    parts = window.text("#step .parts")
    assert "v-1 = 2" in " ".join(parts.split()) and "v0 = 5" in " ".join(parts.split()) and "v4 = v1 + v2" in " ".join(parts.split())
    window.press("end", "left")
    assert math_of(window) == ["v0bar = v0bar + v2bar v-1", "= -0.284 + 1*2", "= 1.716"]
    told = " ".join(window.text("#step .parts").split())
    assert "v3 gives -0.284, sum -0.284" in told and "v2 gives 2, sum 1.716" in told
    assert "return" not in told and "y = gd.log(x1) + x1 * x2 - gd.sin(x2)" in told and "test_page.py:" in told
    lit = window.run("return document.querySelectorAll('#view g.edge.adjoint.now').length")
    assert lit == 1


def test_play_pause_buttons_slider_and_table(page):
    _, _, t = survey()
    window = page(t)
    window.run("document.getElementById('speed').value = '30'")
    window.press("space")
    end = time.monotonic() + 30
    while not window.text("#told").startswith("step 16 of 16") and time.monotonic() < end:
        time.sleep(0.05)
    assert window.text("#told") == "step 16 of 16, reverse"
    end = time.monotonic() + 10
    while window.text("#play") != "▶ play" and time.monotonic() < end:
        time.sleep(0.05)
    assert window.text("#play") == "▶ play"
    window.click("#start")
    window.click("#next")
    window.click("#next")
    assert window.text("td .now") == t.steps[1].text
    window.click("#back")
    assert window.text("td .now") == t.steps[0].text
    window.click("#end")
    assert window.text("td .now") == t.steps[-1].text
    window.run("const e = document.getElementById('where'); e.value = 5; e.dispatchEvent(new Event('input'))")
    assert window.text("td .now") == t.steps[4].text
    window.click("td [data-step='12']")
    assert window.text("td .now") == t.steps[12].text
    window.press("space")
    assert window.text("#play") == "⏸ pause"
    window.press("left")
    assert window.text("#play") == "▶ play"


def test_hover_click_run_to_and_search(page):
    x1, x2, t = survey()
    window = page(t)
    box = {r.name: window.run("return JSON.parse(document.getElementById('data').textContent).rows.find(r => r.name === arguments[0]).box", r.name)
           for r in t.rows}
    assert len(set(box.values())) == 7 and window.run("return document.getElementById('tip').hidden")
    window.hover(f"#{box['v3']} rect")
    assert window.text("#tip") == "v3 = -0.959\nfloat64[]\nv3bar = -1"
    window.click(f"#{box['v-1']} rect")
    assert "x1, x2 = gd.inputs" in window.text("#step") and "v-1bar = 5.5" in window.text("#chosen")
    expected = []
    for _ in range(3):
        expected.append(str(t.run_to(x1)))
        window.press("r")
        assert window.text("td .now") == expected[-1]
    assert len(set(expected)) == 3
    t.restart()
    window.press("home", "escape")
    window.press("/")
    window.press("x", "2")
    assert "v0 = x2" in window.text("#found")
    assert window.run("return document.querySelector('#view g.node.hit').id") == box["v0"]
    window.press("enter")
    assert window.text("td .now") == str(t.run_to(x2))
    window.click(f"#{box['v4']} rect", times=2)
    assert window.text("td .now") == "v4 = v1 + v2 = 10.693"


def test_pan_and_zoom(page):
    _, _, t = survey()
    window = page(t)
    look = "return document.querySelector('#view svg').dataset.look.split(' ').map(Number)"
    window.press("0")
    whole = window.run(look)
    window.wheel("#view svg", -400)
    near = window.run(look)
    assert near[2] < whole[2] * 0.8 and near[3] < max(whole[3], whole[2])
    window.drag("#view", 60, 40)
    moved = window.run(look)
    assert moved[0] < near[0] and moved[1] < near[1] and moved[2:] == pytest.approx(near[2:])
    window.press("-", "-", "-", "-", "-", "-")
    assert window.run(look)[2] > near[2]
    window.press("0")
    assert window.run(look) == whole
    window.click("#in")
    assert window.run(look)[2] != whole[2]
    window.click("#fit")
    assert window.run(look) == whole


def test_tensors_tangents_bad_values_and_a_gradient_of_a_gradient(page):
    rng = np.random.default_rng(0)
    x, w = gd.input("x", (4, 3)), gd.variable(rng.normal(size=(3, 5)), "W")
    loss = gd.mean(gd.softmax(gd.relu(x @ w).named("h")) ** 2.0).named("loss")
    t = gd.trace(loss, at={x: rng.normal(size=(4, 3))}, tangent={w: np.ones((3, 5))})
    window = page(t)
    assert window.text("h1") == "trace of loss"
    for step in t.steps:
        window.press("right")
        assert " ".join(window.text("td .now").split()) == " ".join(step.text.split())
    assert window.run("return document.querySelectorAll('td span.tangent').length") == len([r for r in t.rows if r.tangent is not None])
    z = gd.input("z")
    t = gd.trace(gd.grad(gd.sqrt(z) * z, z), at={z: 0.0})
    window = page(t, "grad.html")
    window.press("end")
    assert window.text("td .now") == t.steps[-1].text
    assert window.run("return document.querySelectorAll('td span.bad').length") > 0


def test_two_thousand_nodes_stay_responsive(page):
    t = big()
    assert len(t.rows) >= 2000
    window = page(t)
    assert window.run("return document.querySelectorAll('#view g.node').length") >= len(t.rows)
    window.press("end")
    assert window.text("td .now") == t.steps[-1].text
    at = len(t.steps) // 2
    window.run("const e = document.getElementById('where'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))", at)
    assert window.text("td .now") == t.steps[at - 1].text
    seconds = window.run("""const t = performance.now();
        for (let i = 0; i < 20; i++) { document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'})); document.body.getBoundingClientRect(); }
        return (performance.now() - t) / 20 / 1000""")
    assert window.text("td .now") == t.steps[at + 19].text
    assert seconds < 1.0          # a few hundredths on an idle machine; a person waits at most a few tenths
    inside = window.run("""const a = document.querySelector('#view g.node.now').getBoundingClientRect();
        const b = document.querySelector('#view').getBoundingClientRect();
        return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom""")
    assert inside


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1280, 860), (390, 844)])
def test_legible_in_both_modes_and_sizes(page, chrome, width, height, dark):
    chrome.resize(width, height)
    chrome.media(dark)
    _, _, t = survey()
    window = page(t)
    window.press("right", "right")
    assert window.run("return document.documentElement.scrollWidth <= window.innerWidth")
    ratio = window.run("""function lum(c) { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => { x /= 255; return x <= 0.03928 ? x / 12.92 :
            Math.pow((x + 0.055) / 1.055, 2.4); }); return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; }
        const canvas = arguments[0] ? 'rgb(20, 24, 27)' : 'rgb(255, 255, 255)';
        return ['#told', '#step .math', 'td span.primal', 'td span.adjoint'].map(s => { const a = lum(getComputedStyle(document.querySelector(s)).color),
            b = lum(canvas); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); })""", dark)
    assert min(ratio) >= 4.5, ratio          # WCAG 2.1, level AA
    for name in ("#next", "#play", "#find", "#step .math"):
        assert window.run("const r = document.querySelector(arguments[0]).getBoundingClientRect(); return r.width > 8 && r.left >= 0 && "
                          "r.right <= window.innerWidth", name), name


def test_hostile_names_are_text_and_nothing_else(page):
    names = [n for n in HOSTILE if len(n) < 1000] + ["<img src=x onerror=alert(1)>", "x" * 1_000_000]
    xs = [gd.input(n) for n in names]
    total = gd.cos(xs[0])
    for n, x in zip(names, xs, strict=True):
        with gd.scope(n or "s"):
            total = (total + gd.sin(x)).named(n)
    t = gd.trace(total, at=dict.fromkeys(xs, 0.5))
    window = page(t)
    tags = set(window.run("return Array.from(document.querySelectorAll('*')).map(e => e.tagName.toLowerCase())"))
    assert tags <= {"html", "head", "meta", "title", "style", "body", "div", "header", "h1", "h2", "span", "nav", "button", "select", "option", "input",
                    "main", "section", "table", "thead", "tbody", "tr", "th", "td", "p", "script", "svg", "g", "defs", "marker", "path", "rect",
                    "text", "ul", "li", "code", "b"}
    assert window.run("return document.querySelectorAll('script').length") == 1
    assert window.run("""return Array.from(document.querySelectorAll('*')).flatMap(e => Array.from(e.attributes)).filter(a =>
        a.name.startsWith('on') || ['href', 'src', 'action', 'xlink:href', 'srcset'].includes(a.name)).length""") == 0
    assert window.run("return performance.getEntriesByType('resource').length") == 0
    window.press("end")
    assert " ".join(window.text("td .now").split()) == " ".join(t.steps[-1].text.split())
    for word in ("<", "script", "&", "\\"):
        window.press("/")
        window.press(*word)
        assert window.run("return document.querySelectorAll('#found button').length") >= 1
        window.press("escape")
    shown = window.run("return Array.from(document.querySelectorAll('td')).map(e => e.textContent).join(' ')")
    assert "<script>alert(1)</script>" in shown and "\u202e" not in shown and "\0" not in shown
