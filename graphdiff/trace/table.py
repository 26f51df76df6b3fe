"""A trace as a table: text, Markdown, LaTeX, CSV.

Two sides, as in the survey: the primal trace is read down on the left; the adjoint trace is read up on the right, and
what a node gives to its operands stands beside the node. Tangents, when there are any, have a column between. The other
layout has one row a node, with its ledger.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import NAME
from ..errors import NodeTypeError, ShapeError, columns, padded, show_name
from ..graph.walk import uncollecting
from ..specs import format_shape
from .formula import Name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Contribution, Row, Trace

SMALL = 8            # elements of a tensor that is shown in full
SHOWN_ROWS = 1000    # rows of print(trace); to_text() has no limit


def number(value: Any) -> str:
    """A number in at most 3 decimals, or 4 significant digits outside [0.1, 1e6)."""
    return _number(value.item())


def _number(v: float) -> str:
    if type(v) is not float:
        return str(v)
    if v != v:
        return "nan"
    if v in (float("inf"), float("-inf")):
        return "inf" if v > 0 else "-inf"
    if v == int(v) and abs(v) < 1e16:
        return f"{v:.0f}"
    if 0.1 <= abs(v) < 1e6:
        return f"{v:.3f}".rstrip("0").rstrip(".")
    return f"{v:.4g}" if 1e-3 <= abs(v) < 1e6 else f"{v:.3e}"


def short(array: Any) -> str:
    """A value on one line: numbers in full when they are few, else shape, range, mean, norm and the NaN count."""
    a = np.asarray(array)
    if a.ndim == 0:
        return number(a)
    if 0 < a.size <= SMALL and a.ndim <= 3:
        return _nested(a.tolist())
    shape = format_shape(a.shape)
    if a.size == 0:
        return f"{shape} empty"
    if a.dtype.kind == "b":
        return f"{shape} {int(a.sum())} true of {a.size}"
    wide = a.astype(np.float64)
    with np.errstate(all="ignore"):
        nan = int(np.isnan(wide).sum())
        good = wide[~np.isnan(wide)] if nan else wide
        text = shape
        if good.size:
            low, mean, high, norm = good.min(), good.mean(), good.max(), np.sqrt(np.square(good).sum())
            text += f" min {number(low)} mean {number(mean)} max {number(high)} norm {number(norm)}"
    return text + (f" NaN {nan}" if nan else "")


def brief(array: Any) -> str:
    """A value on an edge of a picture: as short(), but of an array with many elements only shape, norm and NaN count."""
    text = short(array)
    head, found, tail = text.partition(" min ")
    return head + tail[tail.rindex(" norm "):] if found else text


def _nested(values: Any) -> str:
    return f"[{', '.join([_nested(v) for v in values])}]" if type(values) is list else _number(values)


def primal_line(row: Row) -> str:
    """v3 = sin v0 = -0.959"""
    return f"{row.name} = {row.formula} = {short(row.value)}"


def tangent_line(row: Row) -> str:
    """v1dot = v-1dot/v-1 = 0.5; '' without a tangent."""
    if row.tangent is None:
        return ""
    told = [row.label.dot().text(), row.tangent_formula, short(row.tangent)]
    return " = ".join(t for t in told if t)


def adjoint_line(row: Row) -> str:
    """v5bar = 1"""
    return f"{row.label.bar().text()} = {short(row.adjoint)}"


def contribution_line(row: Row, c: Contribution, first: bool) -> str:
    """v0bar = v0bar + v2bar v-1 = 1.716"""
    bar = row.label.bar().text()
    return f"{bar} = {'' if first else bar + ' + '}{c.formula} = {short(c.sum)}"


def input_line(row: Row) -> str | None:
    """x1bar = v-1bar = 5.5: the result, beside the input."""
    if row.adjoint is None or row.index is None or row.index > 0 or row.node.name is None:
        return None
    return f"{show_name(row.node.name, 30)}bar = {row.label.bar().text()} = {short(row.adjoint)}"


def sides(trace: Trace, rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """(primal line, lines on its right from top to bottom) of each of some rows."""
    right = trace.given_by()
    out = []
    for row in rows:
        lines = [contribution_line(*entry) for entry in reversed(right.get(id(row.node), ()))]
        if row.node is trace.y and trace.seed is not None:
            lines.append(adjoint_line(row))
        told = input_line(row)
        if told is not None:
            lines.insert(0, told)
        elif row.adjoint is not None and not row.contributions and row.node is not trace.y:
            lines.insert(0, adjoint_line(row))       # connected, and nothing flowed: zero
        out.append((primal_line(row), lines))
    return out


def result_word(trace: Trace) -> str:
    """What the result is called in the last line: by its name if its row is not, else y; another letter where y is something else."""
    name = trace.y.name
    if name is not None and trace[trace.y].name != show_name(name, 30):
        return name
    taken = {r.node.name for r in trace.rows if r.node is not trace.y}
    return next((word for word in ("y", "f", "result") if word not in taken), "the result")


def last_line(trace: Trace) -> str:
    """y = v5 = 11.652"""
    top = trace[trace.y]
    return f"{show_name(result_word(trace), 30)} = {top.name} = {short(top.value)}"


CELL = 78       # columns of a terminal that a cell takes before it goes on below
LAYOUTS = ("sides", "rows")
HEADS = ("Primal trace, read down", "Tangent trace, read down", "Adjoint trace, read up")
COLUMNS = ("index", "name", "formula", "value", "tangent", "adjoint", "from", "contribution", "gives", "sum")


def check_layout(layout: Any) -> None:
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise NodeTypeError(f"layout must be 'sides' or 'rows', not {layout!r}")


def node_cells(row: Row) -> list[list[str]]:
    """The lines of a node where a line is a node: its cells, and a line more for every further contribution (COLUMNS)."""
    own = ["" if row.index is None else str(row.index), row.name, row.formula, short(row.value),
           "" if row.tangent is None else short(row.tangent), "" if row.adjoint is None else short(row.adjoint)]
    ledger = [[c.by, c.formula, short(c.value), short(c.sum)] for c in row.contributions] or [[""] * 4]
    return [(own if i == 0 else [""] * len(own)) + entry for i, entry in enumerate(ledger)]


def cells(trace: Trace, layout: str = "sides", max_rows: int | None = None) -> tuple[list[str], list[list[str]]]:
    """(heads, lines of cells) of a table in either layout; the middle is left out above max_rows rows."""
    check_layout(layout)
    if max_rows is not None and (isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 0):
        raise ShapeError(f"max_rows must be an int, at least 0, or None, not {max_rows!r}")
    rows: Sequence[Row] = trace.rows
    left_out = 0 if max_rows is None else len(rows) - max_rows
    if max_rows is not None and left_out > 0:        # of these nothing is written
        half = max_rows // 2
        left_out = len(rows) - 2 * half
        rows = [*rows[:half], *rows[len(rows) - half:]]
    groups: list[list[list[str]]]
    if layout == "rows":
        heads = list(COLUMNS)
        groups = [node_cells(r) for r in rows]
    else:
        heads = list(HEADS)
        groups = [[[left if i == 0 else "", tangent_line(row) if i == 0 else "", right[i] if i < len(right) else ""]
                   for i in range(max(1, len(right)))] for row, (left, right) in zip(rows, sides(trace, rows), strict=True)]
    if left_out > 0:
        groups.insert(len(rows) // 2, [[f"... {left_out} rows more", *[""] * (len(heads) - 1)]])
    lines = [line for group in groups for line in group]
    if layout == "sides":
        lines.append([last_line(trace), "", ""])
    if not trace.forward:
        k = [h.lower().startswith("tangent") for h in heads].index(True)
        heads.pop(k)
        for line in lines:
            line.pop(k)
    return heads, lines


def _wrapped(line: list[str]) -> list[list[str]]:
    """A line of cells as several, where a cell but the last is too wide: it goes on below, further in."""
    parts = [[cell] if k == len(line) - 1 else _pieces(cell) for k, cell in enumerate(line)]
    return [[p[i] if i < len(p) else "" for p in parts] for i in range(max(len(p) for p in parts))]


def _pieces(cell: str) -> list[str]:
    """A cell in pieces of at most CELL columns, parted at spaces where there are any in the second half of a piece."""
    pieces = []
    while columns(cell) > CELL:
        n = min(len(cell), 2 * CELL)
        while columns(cell[:n]) > CELL:
            n -= 1
        at = cell.rfind(" ", CELL // 2, n + 1)
        n = at if at > 0 else n
        pieces.append(cell[:n].rstrip())
        cell = "    " + cell[n:].lstrip()
    return [*pieces, cell]


@uncollecting
def to_text(trace: Trace, max_rows: int | None = SHOWN_ROWS, layout: str = "sides") -> str:
    """The table in columns."""
    heads, lines = cells(trace, layout, max_rows)
    lines = [part for line in lines for part in _wrapped(line)]
    widths = [max(columns(line[k]) for line in [heads, *lines]) for k in range(len(heads))]
    widths[-1] = len(heads[-1]) + 1
    text = [" | ".join(padded(c, w) for c, w in zip(heads, widths, strict=True)).rstrip(),
            "+".join("-" * (w + (1 if k in (0, len(widths) - 1) else 2)) for k, w in enumerate(widths))]
    text += [" | ".join(padded(c, w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    if trace.note:
        text.append(trace.note)
    return "\n".join(text)


_MARKDOWN = str.maketrans({c: "\\" + c for c in "\\`*_{}[]()#+-!|~$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def _md(text: str) -> str:
    return text.translate(_MARKDOWN)


@uncollecting
def to_markdown(trace: Trace, layout: str = "sides") -> str:
    """The table for Markdown, one line a line of the printed table."""
    heads, body = cells(trace, layout)
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join(":--" for _ in heads) + " |"]
    lines += ["| " + " | ".join(_md(c) for c in line) + " |" for line in body]
    if trace.note:
        lines += ["", _md(trace.note)]
    return "\n".join(lines) + "\n"


_TEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
        "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}


def tex(text: str) -> str:
    """Text outside math mode."""
    return "".join(_TEX.get(c, c) for c in text)


def _tex_value(array: Any) -> str:
    text = short(array)
    mantissa, _, exponent = text.partition("e")
    if exponent.lstrip("+-").isdigit():
        return rf"{mantissa} \times 10^{{{int(exponent)}}}"
    return rf"\text{{{tex(text)}}}" if any(c.isalpha() for c in text) else text.replace(", ", r",\ ")


@uncollecting
def to_latex(trace: Trace, layout: str = "sides") -> str:
    r"""The table for LaTeX: a tabular, formulas in math mode (\text wants amsmath)."""
    check_layout(layout)
    lines = ["% needs \\usepackage{amsmath}"]
    lines += _latex_rows(trace) if layout == "rows" else _latex_sides(trace)
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def _latex_sides(trace: Trace) -> list[str]:
    right = trace.given_by()

    def given(to: Row, c: Contribution, first: bool) -> str:
        bar = to.label.bar().latex()
        return rf"${bar} = {'' if first else bar + ' + '}{c.latex} = {_tex_value(c.sum)}$"

    middle = r" & Tangent trace $\downarrow$" if trace.forward else ""
    lines = [r"\begin{tabular}{l|l" + ("|l}" if trace.forward else "}"),
             rf"Primal trace $\downarrow${middle} & Adjoint trace $\uparrow$ \\", r"\hline"]
    for row in trace.rows:
        beside = [given(*entry) for entry in reversed(right.get(id(row.node), ()))]
        if row.node is trace.y and trace.seed is not None:
            beside.append(rf"${row.label.bar().latex()} = {_tex_value(row.adjoint)}$")
        if input_line(row) is None and row.adjoint is not None and not row.contributions and row.node is not trace.y:
            beside.insert(0, rf"${row.label.bar().latex()} = {_tex_value(row.adjoint)}$")
        elif input_line(row) is not None:
            assert row.node.name is not None
            own = Name(None, row.node.name).bar().latex()
            beside.insert(0, rf"${own} = {row.label.bar().latex()} = {_tex_value(row.adjoint)}$")
        left = rf"${row.label.latex()} = {row.latex} = {_tex_value(row.value)}$"
        if trace.forward:
            told = [row.label.dot().latex(), row.tangent_latex, "" if row.tangent is None else _tex_value(row.tangent)]
            middle = "" if row.tangent is None else f" & ${' = '.join(t for t in told if t)}$"
        lines += [rf"{left if i == 0 else ''}{(middle if i == 0 else '') or (' &' if trace.forward else '')} & "
                  rf"{beside[i] if i < len(beside) else ''} \\" for i in range(max(1, len(beside)))]
    top = trace[trace.y]
    lines.append(rf"${Name(None, result_word(trace)).latex()} = {top.label.latex()} = {_tex_value(top.value)}${' &' if trace.forward else ''} & \\")
    return lines


def _latex_rows(trace: Trace) -> list[str]:
    names = {row.name: row.label.latex() for row in trace.rows}
    keep = [k for k, head in enumerate(COLUMNS) if trace.forward or head != "tangent"]
    lines = [rf"\begin{{tabular}}{{{'l' * len(keep)}}}", " & ".join(COLUMNS[k] for k in keep) + r" \\", r"\hline"]
    for row in trace.rows:
        own = ["" if row.index is None else f"${row.index}$", f"${row.label.latex()}$", f"${row.latex}$", f"${_tex_value(row.value)}$",
               "" if row.tangent is None else f"${_tex_value(row.tangent)}$", "" if row.adjoint is None else f"${_tex_value(row.adjoint)}$"]
        ledger = [[f"${names[c.by]}$", f"${c.latex}$", f"${_tex_value(c.value)}$", f"${_tex_value(c.sum)}$"] for c in row.contributions] or [[""] * 4]
        for i, entry in enumerate(ledger):
            line = (own if i == 0 else [""] * len(own)) + entry
            lines.append(" & ".join(line[k] for k in keep) + r" \\")
    return lines


def _csv_value(array: Any) -> str:
    a = np.asarray(array)
    if a.ndim == 0:
        return repr(a.item())
    return " ".join(repr(v) for v in a.ravel().tolist()) if a.size <= SMALL else short(a)


def _cell(text: str) -> str:
    """Spreadsheets run cells that begin with these."""
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


@uncollecting
def to_csv(trace: Trace, layout: str = "sides") -> str:
    """sides: one line a step of any pass: pass, index, name, formula, from, value, sum, shape, dtype, site. rows: one line a node and
    one more for each further contribution, small arrays in full."""
    import csv
    import io
    check_layout(layout)
    out = io.StringIO()
    w = csv.writer(out, lineterminator="\n")

    def tail(row: Row) -> list[str]:
        return ["x".join(map(str, np.shape(row.value))), NAME[row.node.dtype], "" if row.site is None else _cell(show_name(str(row.site)))]

    if layout == "rows":
        w.writerow([*COLUMNS, "shape", "dtype", "site"])
        for r in trace.rows:
            own = ["" if r.index is None else r.index, _cell(r.name), _cell(r.formula), _csv_value(r.value),
                   "" if r.tangent is None else _csv_value(r.tangent), "" if r.adjoint is None else _csv_value(r.adjoint)]
            ledger = [[_cell(c.by), _cell(c.formula), _csv_value(c.value), _csv_value(c.sum)] for c in r.contributions] or [[""] * 4]
            for i, entry in enumerate(ledger):
                w.writerow([*(own if i == 0 else [""] * len(own)), *entry, *(tail(r) if i == 0 else [""] * 3)])
        return out.getvalue()
    w.writerow(["pass", "index", "name", "formula", "from", "value", "sum", "shape", "dtype", "site"])
    for r in trace.rows:
        w.writerow(["forward", "" if r.index is None else r.index, _cell(r.name), _cell(r.formula), "", _csv_value(r.value), "", *tail(r)])
    for r in trace.rows if trace.forward else ():
        if r.tangent is not None:
            w.writerow(["tangent", "" if r.index is None else r.index, _cell(r.label.dot().text()), _cell(r.tangent_formula), "",
                        _csv_value(r.tangent), "", *tail(r)])
    if trace.seed is not None:
        top = trace[trace.y]
        w.writerow(["reverse", top.index, _cell(top.label.bar().text()), "", "", _csv_value(top.adjoint), _csv_value(top.adjoint), *tail(top)])
    for r, c, _ in trace.arrivals():
        w.writerow(["reverse", "" if r.index is None else r.index, _cell(r.label.bar().text()), _cell(c.formula), _cell(c.by),
                    _csv_value(c.value), _csv_value(c.sum), *tail(r)])
    return out.getvalue()
