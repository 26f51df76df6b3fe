"""A trace as one page to step through: picture, table, and a panel that says what each step does.

The page is self-contained: stepper.css and stepper.js are read from beside this file and written into it, and what the
script shows comes as JSON in a hidden element, as escaped text, so that no name of the user's is ever markup or script.
"""
from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from ..errors import show_name
from .html import is_bad, sides_table, whole_page
from .table import short, tangent_line

PICTURED = 6000      # nodes of a graph that is drawn whole; the picture of a larger one is folded, and its boxes are not steps
TEXT = 200           # characters of a text in the panel

BODY = """<header><h1>{title}</h1><span id="told" role="status" aria-live="polite"></span>
<nav><button id="start" title="Home">|◀ start</button><button id="back" title="left arrow">◀ back</button>\
<button id="next" title="right arrow">next ▶</button><button id="end" title="End">end ▶|</button><button id="play" title="space">▶ play</button>\
<select id="speed" aria-label="pace"><option value="1500">slow</option><option value="700" selected>steady</option><option value="200">fast</option>\
<option value="30">flying</option></select>\
<input id="where" type="range" min="0" max="{steps}" value="0" aria-label="step">\
<span class="find"><input id="find" type="search" placeholder="find a node ( / )" aria-label="find a node" autocomplete="off">\
<span id="found"></span></span></nav>
</header>
<main><div id="view">{picture}
<div class="tools"><button id="in" title="+">+</button><button id="out" title="-">−</button><button id="fit" title="0">fit</button></div></div>
<section id="step"></section>
<div id="side">{table}</div></main>
<div id="tip" hidden></div>
<div id="data" hidden>{data}</div>"""


def page(trace: Any) -> str:
    """The page. Works from disk without network; without script it is a picture and a table."""
    from .draw import draw_trace
    from .layout import to_svg
    whole = len(trace.order) <= PICTURED
    picture = draw_trace(trace, fold=not whole, max_nodes=None if whole else 200).picture
    for e in picture.edges:                 # the page tells values where the pointer rests: a shape is enough here
        e.label = _brief(e.label)
    for b in picture.boxes:
        b.label = tuple([_brief(line) for line in b.label])
    boxes: dict[int, str] = {}
    if whole:                               # boxes and nodes correspond one to one, in the same order
        for box, node in zip(picture.boxes, trace.order, strict=True):
            boxes[id(node)] = box.id
    name = show_name(trace.y.name, 60) if trace.y.name else ""
    title = f"trace of {name}" if name else "trace"
    data = json.dumps(content(trace, boxes, title), separators=(",", ":"))
    body = BODY.format(title=escape(title), steps=len(trace.steps), picture=to_svg(picture), table=sides_table(trace), data=escape(data))
    here = Path(__file__).parent
    return whole_page(title, body, (here / "stepper.css").read_text(encoding="utf-8"), (here / "stepper.js").read_text(encoding="utf-8"))


def _brief(label: str) -> str:
    """A label without the summary of an array, but for its shape and its NaN."""
    head, found, tail = label.partition(" norm ")
    return head + (" NaN" if " NaN " in tail else "") if found and head.endswith("]") else label


def content(trace: Any, boxes: dict[int, str], title: str) -> dict[str, Any]:
    """What the script shows: a record a row and a record a step, all of it text."""
    number = {id(r.node): i for i, r in enumerate(trace.rows)}
    rows = []
    for r in trace.rows:
        node, site = r.node, r.site
        given = id(node) in trace.given
        rows.append({
            "name": r.name, "own": "" if node.name is None else show_name(node.name, 60), "bar": r.label.bar().text(),
            "op": "given" if given else node.op.name, "formula": show_name(r.formula, TEXT), "filled": r.filled, "value": short(r.value),
            "spec": node.spec, "adjoint": None if r.adjoint is None else short(r.adjoint), "tangent": tangent_line(r),
            "inputs": [] if given else [number[id(x)] for x in node.inputs if id(x) in number], "box": boxes.get(id(node), ""),
            "bad": is_bad(r.value) or is_bad(r.adjoint), "site": "" if site is None else show_name(str(site), TEXT),
            "source": "" if site is None else show_name(site.source, TEXT)})
    steps = []
    sums: dict[int, str] = {}
    for s in trace.steps:
        row = number[id(s.row.node)]
        if s.phase == "forward":
            steps.append({"pass": s.phase, "row": row})
            continue
        c = s.contribution
        if c is None:
            steps.append({"pass": s.phase, "row": row, "by": -1, "sum": short(s.row.adjoint)})
            continue
        before = sums.get(row)
        sums[row] = short(c.sum)
        steps.append({"pass": s.phase, "row": row, "by": number[id(c.consumer)], "first": before is None, "before": before or "",
                      "formula": c.formula, "filled": c.filled, "value": short(c.value), "sum": sums[row]})
    return {"title": title, "rows": rows, "steps": steps}


__all__ = ["page"]
