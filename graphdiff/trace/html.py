"""A trace or a picture as one HTML page that needs no network.

Every text of the user's goes through html.escape; the script is a constant of this file, and the page allows no other
(Content-Security-Policy with its hash), no handler attributes and no links.
"""
from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Any

from ..errors import show_name
from .table import adjoint_line, contribution_line, input_line, last_line, primal_line

ROWS = 2000        # rows of a table in a page
FIRST = ' class="first"'

STYLE = """
.gd{color-scheme:light dark;font:14px/1.45 system-ui,sans-serif}
.gd table{border-collapse:collapse;font-family:ui-monospace,monospace;font-size:13px}
.gd td,.gd th{padding:1px 12px;text-align:left;vertical-align:top;border:0;white-space:pre-wrap}
.gd td+td,.gd th+th{border-left:1px solid #8a949c}
.gd tr.first td{border-top:1px solid #8a949c44}
.gd .adjoint{color:#c8436a}
.gd .bad{background:#ff6b6b;color:#14181b}
"""
PAGE_STYLE = """
body{margin:1.2em;background:Canvas;color:CanvasText}
.gd .wait{opacity:.18}
.gd .now{outline:2px solid #e8a200;outline-offset:-1px;border-radius:3px}
.gd svg{max-width:100%;height:auto}
.gd svg .now{outline:3px solid #e8a200;outline-offset:2px}
.gd nav{margin:.6em 0;display:flex;gap:.5em;align-items:center}
.gd button{font:inherit;padding:.15em .8em}
"""
SCRIPT = """
(function () {
  "use strict";
  var lines = Array.from(document.querySelectorAll("[data-step]"));
  lines.sort(function (a, b) { return a.dataset.step - b.dataset.step; });
  var at = lines.length, told = document.getElementById("told");
  function show() {
    document.querySelectorAll(".now").forEach(function (e) { e.classList.remove("now"); });
    lines.forEach(function (e, i) { e.classList.toggle("wait", i > at); });
    var line = lines[at];
    if (line) {
      line.classList.add("now");
      line.scrollIntoView({ block: "nearest" });
      var box = line.dataset.box && document.getElementById(line.dataset.box);
      if (box) { box.classList.add("now"); }
    }
    told.textContent = at < 0 ? "start" : !line ? "all " + lines.length + " steps"
      : "step " + (at + 1) + " of " + lines.length + ": " + line.textContent;
  }
  function go(where) { at = Math.max(-1, Math.min(lines.length, where)); show(); }
  document.getElementById("start").addEventListener("click", function () { go(-1); });
  document.getElementById("back").addEventListener("click", function () { go(at - 1); });
  document.getElementById("next").addEventListener("click", function () { go(at >= lines.length ? 0 : at + 1); });
  document.getElementById("end").addEventListener("click", function () { go(lines.length); });
  document.addEventListener("keydown", function (e) {
    if (e.key === "ArrowRight" || e.key === "ArrowDown") { go(at >= lines.length ? 0 : at + 1); e.preventDefault(); }
    if (e.key === "ArrowLeft" || e.key === "ArrowUp") { go(at - 1); e.preventDefault(); }
  });
  show();
}());
"""


def _bad(array: Any) -> str:
    import numpy as np
    return " bad" if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all() else ""


def _table(trace: Any, boxes: dict[int, str]) -> str:
    """The table; a cell that is a step of the stepper carries its number and the id of its box."""
    right: dict[int, list[tuple[str, int | None, str, str]]] = {}
    number = len(trace.rows)
    if trace.seed is not None:
        top = trace[trace.y]
        right.setdefault(id(top.node), []).append((adjoint_line(top), number, boxes.get(id(top.node), ""), _bad(top.adjoint)))
        number += 1
    for row, c, first in trace.arrivals():
        right.setdefault(id(c.consumer), []).append((contribution_line(row, c, first), number, boxes.get(id(row.node), ""), _bad(c.sum)))
        number += 1
    out = ['<table><thead><tr><th>Primal trace, read down ↓</th><th>Adjoint trace, read up ↑</th></tr></thead><tbody>']
    rows = trace.rows
    hidden = max(0, len(rows) - ROWS)
    for i, row in enumerate(rows):
        if hidden and ROWS // 2 <= i < len(rows) - ROWS // 2:
            if i == ROWS // 2:
                out.append(f"<tr><td>… {hidden} rows more</td><td></td></tr>")
            continue
        lines = right.get(id(row.node), [])[::-1]
        told = input_line(row)
        if told is not None:
            lines.insert(0, (told, None, "", _bad(row.adjoint)))
        site = "" if row.site is None else f' title="{escape(show_name(f"{row.site}: {row.site.source}", 160))}"'
        for k in range(max(1, len(lines))):
            box = boxes.get(id(row.node), "")
            left = "<td></td>"
            if k == 0:
                left = (f'<td{site}><span class="primal{_bad(row.value)}" data-step="{i}" data-box="{box}">'
                        f"{escape(primal_line(row))}</span></td>")
            cell = ""
            if k < len(lines):
                text, step, box, bad = lines[k]
                data = "" if step is None else f' data-step="{step}" data-box="{box}"'
                cell = f'<span class="adjoint{bad}"{data}>{escape(text)}</span>'
            out.append(f'<tr{FIRST if k == 0 else ""}>{left}<td>{cell}</td></tr>')
    out.append(f"<tr><td>{escape(last_line(trace))}</td><td></td></tr></tbody></table>")
    if trace.note:
        out.append(f"<p>{escape(trace.note)}</p>")
    return "\n".join(out)


def table(trace: Any) -> str:
    """A fragment: style and table, no script."""
    return f'<div class="gd"><style>{STYLE}</style>\n{_table(trace, {})}\n</div>'


def page(trace: Any) -> str:
    """The page with picture, table and stepper."""
    from .draw import draw_trace
    drawing = draw_trace(trace)
    boxes: dict[int, str] = {}
    if not drawing.picture.hidden:           # boxes and nodes correspond one to one, in the same order
        for box, node in zip(drawing.picture.boxes, trace.order, strict=True):
            boxes[id(node)] = box.id
    title = f"trace of {show_name(trace.y.name, 60)}" if trace.y.name else "trace"
    body = (f"<h1>{escape(title)}</h1>\n<nav><button id=\"start\">⏮ start</button><button id=\"back\">◀ back</button>"
            f"<button id=\"next\">next ▶</button><button id=\"end\">end ⏭</button> <span id=\"told\"></span></nav>\n"
            f"{drawing.svg}\n{_table(trace, boxes)}")
    return _page(title, body, SCRIPT)


def picture_page(svg: str) -> str:
    """A page that holds one picture."""
    return _page("graph", svg, "")


def _page(title: str, body: str, script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allow = f"script-src 'sha256-{digest}'; " if script else ""
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; {allow}style-src \'unsafe-inline\'">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}{PAGE_STYLE}</style></head>\n<body><div class=\"gd\">\n{body}\n</div>"
            + (f"\n<script>{script}</script>" if script else "") + "\n</body></html>\n")
