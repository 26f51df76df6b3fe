"""Tables and pictures as HTML that needs no network.

Every text of the user's goes through html.escape; a page allows no script but a constant one (Content-Security-Policy with
its hash), no handler attributes and no links.
"""
from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..errors import show_name
from ..graph.walk import uncollecting
from .table import HEADS, adjoint_line, cells, check_layout, contribution_line, input_line, last_line, primal_line, tangent_line

ROWS = 5000        # rows of a table in a page: a browser lays out so many at once
FIRST = ' class="first"'

STYLE = """
.gd{color-scheme:light dark;font:14px/1.45 system-ui,sans-serif}
.gd table{border-collapse:collapse;font-family:ui-monospace,monospace;font-size:13px}
.gd td,.gd th{padding:1px 12px;text-align:left;vertical-align:top;border:0;white-space:pre-wrap}
.gd td+td,.gd th+th,.gd .more td{border-left:1px solid #8a949c}
.gd tr.first td{border-top:1px solid #8a949c44}
.gd .adjoint{color:#c8436a}
.gd .tangent{color:#2a86a5}
.gd .bad,.gd .reverse .bad{background:#ff6b6b;color:#14181b}
"""


def is_bad(array: Any) -> bool:
    """Does it hold NaN or Inf?"""
    return array is not None and array.dtype.kind == "f" and not np.isfinite(array).all()


def _bad(array: Any) -> str:
    return " bad" if is_bad(array) else ""


def sides_table(trace: Any, max_rows: int = ROWS) -> str:
    """The two-sided table; a cell that is a step of the stepper carries its number."""
    right: dict[int, list[tuple[int, Any]]] = {}         # numbers of steps, and what arrives
    number = len(trace.rows) + (trace.seed is not None)
    for entry in trace.arrivals():
        right.setdefault(id(entry[1].consumer), []).append((number, entry))
        number += 1
    heads = [h.partition(",")[0] + a for h, a in zip(HEADS, (" ↓", " ↓", " ↑"), strict=True) if trace.forward or h != HEADS[1]]
    out = [f"<table><thead><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr></thead><tbody>"]
    rows = trace.rows
    hidden = max(0, len(rows) - max_rows)
    for i, row in enumerate(rows):
        if hidden and max_rows // 2 <= i < len(rows) - max_rows // 2:
            if i == max_rows // 2:
                out.append(f"<tr><td>… {hidden} rows more</td>{'<td></td>' * (len(heads) - 1)}</tr>")
            continue
        lines: list[tuple[str, int | None, str]] = [
            (contribution_line(*entry), step, _bad(entry[1].sum)) for step, entry in reversed(right.get(id(row.node), ()))]
        if row.node is trace.y and trace.seed is not None:
            lines.append((adjoint_line(row), len(rows), _bad(row.adjoint)))
        told = input_line(row)
        if told is not None:
            lines.insert(0, (told, None, _bad(row.adjoint)))
        elif row.adjoint is not None and not row.contributions and row.node is not trace.y:
            lines.insert(0, (adjoint_line(row), None, ""))
        site = "" if row.site is None else f' title="{escape(show_name(f"{row.site}: {row.site.source}", 160))}"'
        tall = "" if len(lines) < 2 else f' rowspan="{len(lines)}"'
        own = f'<td{tall}{site}><span class="primal{_bad(row.value)}" data-step="{i}">{escape(primal_line(row))}</span></td>'
        if trace.forward:
            told = "" if row.tangent is None else f'<span class="tangent{_bad(row.tangent)}">{escape(tangent_line(row))}</span>'
            own += f"<td{tall}>{told}</td>"
        beside = [f'<td><span class="adjoint{bad}"{"" if step is None else f" data-step={chr(34)}{step}{chr(34)}"}>{escape(text)}</span></td>'
                  for text, step, bad in lines] or ["<td></td>"]
        out.append(f'<tr class="first">{own}{beside[0]}</tr>')
        out += [f'<tr class="more">{cell}</tr>' for cell in beside[1:]]
    out.append(f"<tr><td>{escape(last_line(trace))}</td>{'<td></td>' * (len(heads) - 1)}</tr></tbody></table>")
    if trace.note:
        out.append(f"<p>{escape(trace.note)}</p>")
    return "\n".join(out)


def plain_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Any table; a line whose first or second cell is not empty begins a group."""
    out = [f"<table><thead><tr>{''.join(f'<th>{escape(h)}</th>' for h in heads)}</tr></thead><tbody>"]
    for line in lines:
        first = FIRST if line[0] or line[1:2] not in ([], [""]) else ""
        out.append(f"<tr{first}>{''.join(f'<td>{escape(c)}</td>' for c in line)}</tr>")
    return "\n".join([*out, "</tbody></table>"])


@uncollecting
def table(trace: Any, layout: str = "sides") -> str:
    """A fragment: style and table, no script."""
    check_layout(layout)
    body = sides_table(trace) if layout == "sides" else plain_table(*cells(trace, layout, ROWS))
    return f'<div class="gd"><style>{STYLE}</style>\n{body}\n</div>'


def picture_page(svg: str) -> str:
    """A page that holds one picture."""
    style = "body{margin:1.2em;background:Canvas;color:CanvasText}\n.gd svg{max-width:100%;height:auto}\n"
    return whole_page("graph", svg, style, "")


def whole_page(title: str, body: str, style: str, script: str) -> str:
    """A page with nothing from elsewhere, whose policy allows this script and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allow = f"script-src 'sha256-{digest}'; " if script else ""
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; {allow}style-src \'unsafe-inline\'">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style></head>\n<body><div class=\"gd\">\n{body}\n</div>"
            + (f"\n<script>{script}</script>" if script else "") + "\n</body></html>\n")
