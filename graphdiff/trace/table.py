"""A trace as a table: text, Markdown, LaTeX, CSV.

Two sides, as in the survey: the primal trace is read down on the left; the adjoint trace is read up on the right, and
what a node gives to its operands stands beside the node.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import show_name
from ..specs import format_shape

if TYPE_CHECKING:
    from .record import Contribution, Row, Trace

SMALL = 8            # elements of a tensor that is shown in full
SHOWN_ROWS = 1000    # rows of print(trace); to_text() has no limit


def number(value: Any) -> str:
    """A number in at most 3 decimals, or 4 significant digits outside [0.1, 1e6)."""
    if value.dtype.kind != "f":
        return str(value.item())
    v = float(value)
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
        return _nested(a)
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


def _nested(a: Any) -> str:
    if a.ndim == 0:
        return number(a)
    return "[" + ", ".join(_nested(x) if x.ndim else number(x) for x in map(np.asarray, a)) + "]"


def primal_line(row: Row) -> str:
    """v3 = sin v0 = -0.959"""
    return f"{row.name} = {row.formula} = {short(row.value)}"


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


def sides(trace: Trace) -> list[tuple[Row, str, list[str]]]:
    """(row, primal line, lines on its right from top to bottom) of every row."""
    right: dict[int, list[str]] = {}
    for row, c, first in trace.arrivals():
        right.setdefault(id(c.consumer), []).append(contribution_line(row, c, first))
    out = []
    for row in trace.rows:
        lines = right.get(id(row.node), [])[::-1]
        if row.node is trace.y and trace.seed is not None:
            lines.append(adjoint_line(row))
        told = input_line(row)
        if told is not None:
            lines.insert(0, told)
        elif row.adjoint is not None and not row.contributions and row.node is not trace.y:
            lines.insert(0, adjoint_line(row))       # connected, and nothing flowed: zero
        out.append((row, primal_line(row), lines))
    return out


def last_line(trace: Trace) -> str:
    """y = v5 = 11.652"""
    top = trace[trace.y]
    name = trace.y.name
    word = "y" if name is None or top.name == show_name(name, 30) else show_name(name, 30)
    return f"{word} = {top.name} = {short(top.value)}"


def to_text(trace: Trace, max_rows: int | None = SHOWN_ROWS) -> str:
    """The two-sided table."""
    rows = sides(trace)
    lines: list[tuple[str, str]] = []
    if max_rows is not None and len(rows) > max_rows:
        half = max_rows // 2
        chosen = [*rows[:half], None, *rows[len(rows) - half:]]
        left_out = len(rows) - 2 * half
    else:
        chosen, left_out = list(rows), 0
    for item in chosen:
        if item is None:
            lines.append((f"... {left_out} rows more", ""))
            continue
        _, left, right = item
        lines += [(left if i == 0 else "", right[i] if i < len(right) else "") for i in range(max(1, len(right)))]
    lines.append((last_line(trace), ""))
    heads = ("Primal trace, read down", "Adjoint trace, read up")
    width = min(max(len(heads[0]), *(len(a) for a, _ in lines)), 78)
    text = [f"{heads[0]:<{width}} | {heads[1]}", "-" * (width + 1) + "+" + "-" * (len(heads[1]) + 2)]
    text += [f"{a:<{width}} | {b}".rstrip() for a, b in lines]
    if trace.note:
        text.append(trace.note)
    return "\n".join(text)


_MARKDOWN = {c: "\\" + c for c in "\\`*_{}[]()#+-!|~$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def _md(text: str) -> str:
    return "".join(_MARKDOWN.get(c, c) for c in text)


def to_markdown(trace: Trace) -> str:
    """The table for Markdown, one line a line of the printed table."""
    lines = ["| Primal trace, read down | Adjoint trace, read up |", "| :-- | :-- |"]
    for _, left, right in sides(trace):
        lines += [f"| {_md(left) if i == 0 else ''} | {_md(right[i]) if i < len(right) else ''} |" for i in range(max(1, len(right)))]
    lines.append(f"| {_md(last_line(trace))} | |")
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


def to_latex(trace: Trace) -> str:
    r"""The table for LaTeX: a tabular of two columns, formulas in math mode (\text wants amsmath)."""
    right: dict[int, list[str]] = {}
    for row, c, first in trace.arrivals():
        bar = row.label.bar().latex()
        right.setdefault(id(c.consumer), []).append(
            rf"${bar} = {'' if first else bar + ' + '}{c.latex} = {_tex_value(c.sum)}$")
    lines = ["% needs \\usepackage{amsmath}", r"\begin{tabular}{l|l}", r"Primal trace $\downarrow$ & Adjoint trace $\uparrow$ \\", r"\hline"]
    for row in trace.rows:
        cells = right.get(id(row.node), [])[::-1]
        if row.node is trace.y and trace.seed is not None:
            cells.append(rf"${row.label.bar().latex()} = {_tex_value(row.adjoint)}$")
        if input_line(row) is not None:
            assert row.node.name is not None
            from .formula import Name
            own = Name(None, row.node.name).bar().latex()
            cells.insert(0, rf"${own} = {row.label.bar().latex()} = {_tex_value(row.adjoint)}$")
        left = rf"${row.label.latex()} = {row.latex} = {_tex_value(row.value)}$"
        lines += [rf"{left if i == 0 else ''} & {cells[i] if i < len(cells) else ''} \\" for i in range(max(1, len(cells)))]
    top = trace[trace.y]
    lines += [rf"$y = {top.label.latex()} = {_tex_value(top.value)}$ & \\", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _csv_value(array: Any) -> str:
    a = np.asarray(array)
    if a.ndim == 0:
        return repr(a.item())
    return " ".join(repr(v) for v in a.ravel().tolist()) if a.size <= SMALL else short(a)


def _cell(text: str) -> str:
    """Spreadsheets run cells that begin with these."""
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


def to_csv(trace: Trace) -> str:
    """One line a step of either pass: pass, index, name, formula, by, value, sum, shape, dtype, site."""
    import csv
    import io
    out = io.StringIO()
    w = csv.writer(out, lineterminator="\n")
    w.writerow(["pass", "index", "name", "formula", "from", "value", "sum", "shape", "dtype", "site"])

    def tail(row: Row) -> list[str]:
        return ["x".join(map(str, np.shape(row.value))), row.node.dtype.name, "" if row.site is None else _cell(show_name(str(row.site)))]

    for r in trace.rows:
        w.writerow(["forward", "" if r.index is None else r.index, _cell(r.name), _cell(r.formula), "", _csv_value(r.value), "", *tail(r)])
    if trace.seed is not None:
        top = trace[trace.y]
        w.writerow(["reverse", top.index, _cell(top.label.bar().text()), "", "", _csv_value(top.adjoint), _csv_value(top.adjoint), *tail(top)])
    for r, c, _ in trace.arrivals():
        w.writerow(["reverse", "" if r.index is None else r.index, _cell(r.label.bar().text()), _cell(c.formula), _cell(c.by),
                    _csv_value(c.value), _csv_value(c.sum), *tail(r)])
    return out.getvalue()
