"""gd.explain: why a derivative is zero, missing or not a number. gd.rule: the adjoint rule of one node."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..diff.reverse import connected
from ..errors import NodeTypeError, columns, padded, show_name
from ..graph.build import as_node, node_list, public
from ..graph.node import Node
from ..graph.opdef import ZERO
from ..graph.walk import toposort
from .formula import LATEX, TEXT, Name, local_rule, term_formula
from .table import contribution_line, primal_line, short, tex


class Rule:
    """How a node's adjoint is handed to its operands. print(rule) is text, `.latex` the same for LaTeX."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lines, self._latex = _rule_lines(node)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)

    @property
    def latex(self) -> str:
        """One line an operand, aligned at the equals signs; needs amsmath."""
        body = " \\\\\n".join(self._latex)
        return f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/latex": f"${self.latex}$"}


@public
def rule(node: Any) -> Rule:
    """The adjoint rule of a node with its shapes: what each operand's adjoint gains."""
    if not isinstance(node, Node):
        raise NodeTypeError(f"a node is needed, not {type(node).__name__}")
    return Rule(node)


def _letters(node: Node) -> tuple[dict[int, Name], Name]:
    """Names for a rule: the operands' own where they are clear, else x, y, z as in the op's formula; the result's."""
    table: dict[int, Name] = {}
    taken: set[str] = set()
    for x in node.inputs:
        if id(x) in table or (x.op.name == "constant" and x.shape == () and x.name is None):
            continue
        word = x.name if x.name is not None and x.name.strip() and x.name not in taken else next(
            c for c in ("x", "y", "z", "u", "w", "a", "b", "c", *(f"x{i}" for i in range(len(node.inputs) + 1))) if c not in taken)
        taken.add(word)
        table[id(x)] = Name(None, word)
    own = node.name if node.name is not None and node.name.strip() and node.name not in taken else next(
        c for c in ("y", "z", "v", "out", "result", "result_") if c not in taken)
    return table, Name(None, own)


def _rule_lines(node: Node) -> tuple[list[str], list[str]]:
    from .formula import formula
    table, own = _letters(node)

    def names(n: Node) -> Name | None:
        return own if n is node else table.get(id(n))

    def inner(n: Node) -> Name | None:
        return table.get(id(n))

    if node.op.family == "leaf":
        word = "" if node.name is None else " " + show_name(node.name, 60)
        return ([f"{node.op.name}{word} {node.spec}: {node.op.formula}", f"no rule: {node.op.cuts}"],
                [rf"{own.latex()} &: \text{{{tex(node.spec)}}}", rf"&\text{{no rule: {tex(node.op.cuts or '')}}}"])
    text = [f"{own.text()} = {formula(node, inner, TEXT, top=True).text}   ({node.op.name}: {node.op.formula})"]
    latex = [f"{own.latex()} &= {formula(node, inner, LATEX, top=True).text}"]
    shown = {id(x): x for x in node.inputs if id(x) in table}
    latex += [rf"{n.latex()} &: \text{{{tex(x.spec)}}}" for x, n in [*((x, table[i]) for i, x in shown.items()), (node, own)]]
    width = max([columns(own.text()), *[columns(n.text()) for n in table.values()]])
    text += [f"  {padded(table[i].text(), width)}  {x.spec}" for i, x in shown.items()]
    text.append(f"  {padded(own.text(), width)}  {node.spec}")
    if node.op.cuts is not None:
        return [*text, f"no derivative: {node.op.cuts}"], [*latex, rf"&\text{{no derivative: {tex(node.op.cuts)}}}"]
    if node.op.zero:
        return [*text, "the derivative is zero everywhere; the operands count as connected"], [*latex, r"&\text{the derivative is zero everywhere}"]
    g, terms = local_rule(node, [x.dtype.kind == "f" for x in node.inputs])
    for x, term in zip(node.inputs, terms, strict=True):
        name = table.get(id(x))
        if name is None:
            continue
        if term is None:
            text.append(f"{name.text()}: no derivative ({x.dtype.name})")
            continue
        text.append(f"{name.bar().text()} += {term_formula(term, own.bar(), g, node, x, names)}")
        latex.append(rf"{name.bar().latex()} &\mathrel{{+}}= {term_formula(term, own.bar(), g, node, x, names, LATEX)}")
    if node.op.source:
        text.append(f"source: {node.op.source}")
    return text, latex


class Explanation:
    """Why the derivative is as it is: print it, or `.draw()` the part of the graph it speaks of."""

    def __init__(self, text: str, y: Node, wrt: Sequence[Node], marked: Sequence[Node], trace: Any = None) -> None:
        self.text = text
        self.y = y
        self.wrt = tuple(wrt)
        self.marked = tuple(dict.fromkeys(marked))      # the nodes the text speaks of: what cuts, or where NaN begins
        self.trace = trace

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    @public
    def draw(self, **options: Any) -> Any:
        """A Drawing of the paths from the targets through the nodes the text speaks of, which are red, to y; nothing else. With
        values and adjoints when they were given. direction: as in gd.draw."""
        from .draw import Drawing
        from .minimal import picture
        return Drawing(picture(self.y, self.wrt, self.marked, self.trace, **options))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "image/svg+xml": self.draw().svg}


@public
def explain(y: Any, wrt: Any, *, at: Mapping[Node, Any] | None = None) -> Explanation:
    """Say why dy/dwrt is zero, missing or not a number.

    y: a node. wrt: a node or a list of nodes. at: {input: value}: with values, zeros and NaN are traced to the node where
    they begin. Returns an Explanation: text and .draw().
    """
    y = as_node(y)
    targets = node_list(wrt, "wrt")
    texts: list[str] = []
    marked: list[Node] = []
    trace = None
    if at is not None:
        from .make import trace as make_trace
        here = {id(n) for n in toposort([y])}
        live = [t for t in targets if id(t) in here and t.dtype.kind == "f"]
        trace = make_trace(y, at=at, wrt=live)
    for t in targets:
        text, nodes = _one(y, t, trace)
        texts.append(text)
        marked += nodes
    return Explanation("\n\n".join(texts), y, targets, marked, trace)


def _told(node: Node) -> str:
    site = node.site
    name = "" if node.name is None else f" {show_name(node.name, 40)}"
    return f"{node.op.name}{name} {node.spec}" + ("" if site is None else f" at {site}: {show_name(site.source, 80)}")


def _one(y: Node, t: Node, trace: Any) -> tuple[str, list[Node]]:
    head = f"d {show_name(y.label, 40)} / d {show_name(t.label, 40)}"
    if y.dtype.kind != "f":
        return f"{head}: missing. {y.label} is {y.dtype.name}; only floats have derivatives", [y]
    if t.dtype.kind != "f":
        return f"{head}: missing. {t.label} is {t.dtype.name}; only floats have derivatives", [t]
    order = toposort([y])
    depends = {id(t)}
    for n in order:
        if any(id(x) in depends for x in n.inputs):
            depends.add(id(n))
    if id(y) not in depends:
        return f"{head}: missing. {y.label} does not depend on {t.label}: there is no path between them", []
    way = "\n  path: " + _path_text(y, t)
    reach = connected(order, [t])
    if id(y) not in reach:
        cutters = [n for n in order if id(n) in depends and id(n) not in reach and any(id(x) in reach for x in n.inputs)]
        lines = [f"{head}: missing. Every path is cut:" + "".join(f"\n  path: {_path_text(y, t, c)}" for c in cutters[:1])]
        lines += [f"  {_told(n)}\n    {n.op.cuts or f'its result is {n.dtype.name}, which has no derivative'}" for n in cutters]
        return "\n".join(lines), cutters
    live = _alive(order, reach, y)
    if id(t) not in live:
        zeros = [n for n in order if id(n) in reach and n.op.zero and any(id(x) in reach for x in n.inputs)]
        lines = [f"{head}: zero everywhere. Every path goes through an op whose derivative is zero:"
                 + "".join(f"\n  path: {_path_text(y, t, z)}" for z in zeros[:1])]
        return "\n".join([*lines, *(f"  {_told(n)}" for n in zeros)]), zeros
    cut = [n for n in order if id(n) in depends and id(n) not in reach and any(id(x) in reach for x in n.inputs)]
    note = "".join(f"\n  not counted, since it has no derivative: {_told(n)}" for n in cut[:5])
    if trace is None:
        return f"{head}: connected{way}{note}\n  give at={{input: value}} to trace zeros and NaN to where they begin", []
    return _with_values(head + ":", t, trace, note)


def _path_text(y: Node, t: Node, through: Node | None = None) -> str:
    """y <- ... <- t, by a shortest path; a long one without its middle."""
    from .minimal import path
    nodes = path(y, t) if through is None else path(y, through)[:-1] + path(through, t)
    words = [show_name(n.label, 30) for n in nodes]
    if len(words) > 9:
        words = [*words[:4], f"({len(words) - 8} more)", *words[-4:]]
    return " <- ".join(words)


def _alive(order: Sequence[Node], reach: set[int], y: Node) -> set[int]:
    """Ids of nodes to which something can flow back from y by the rules alone: ops with derivative zero stop it."""
    live = {id(y)}
    for n in reversed(order):
        if id(n) not in live or n.op.zero or n.op.cuts is not None:
            continue
        rules = n.op.partials
        for i, x in enumerate(n.inputs):
            if id(x) in reach and not (rules is not None and isinstance(rules[i], str) and rules[i] == ZERO):
                live.add(id(x))
    return live


def _finite(a: Any) -> bool:
    return a.dtype.kind != "f" or bool(np.isfinite(a).all())


def _with_values(head: str, t: Node, trace: Any, note: str) -> tuple[str, list[Node]]:
    row = trace[t]
    value = row.adjoint
    if value is None:
        return f"{head} nothing flows{note}", []
    if not _finite(value):
        text, nodes = _first_bad(trace)
        return f"{head} {short(value)}. {text}{note}", nodes
    if value.size and not value.any():
        return _zero(head, row, trace, note)
    top = trace[trace.y]
    if not _finite(top.value):
        text, nodes = _first_bad(trace)
        return f"{head} {short(value)}, finite and not zero, but {top.name} itself is {short(top.value)}. {text}{note}", nodes
    return f"{head} {short(value)}, finite and not zero{note}", []


def _operands(trace: Any, node: Node) -> str:
    return "".join(f"\n    with {primal_line(trace[x])}" for x in dict.fromkeys(node.inputs) if id(x) in trace._by_node)


def _first_bad(trace: Any) -> tuple[str, list[Node]]:
    """Where NaN or Inf begins in each pass. The forward pass runs first: a bad value there is the cause of bad adjoints."""
    texts, nodes = [], []
    for r in trace.rows:
        if not _finite(r.value):
            given = r.node.op.family == "leaf" or id(r.node) in trace.given
            where = f"it is so in the value given, {_told(r.node)}" if given else f"first made by {_told(r.node)}"
            texts.append(f"The forward pass holds NaN or Inf: {where}\n    {primal_line(r)}{'' if given else _operands(trace, r.node)}")
            nodes.append(r.node)
            break
    else:
        texts.append("All values are finite")
    for r, c, first in trace.arrivals():
        if not _finite(c.value) or not _finite(c.sum):
            texts.append(f"The reverse pass first makes NaN or Inf in the rule of {_told(c.consumer)}\n"
                         f"    {contribution_line(r, c, first)}\n    with {trace[c.consumer].label.bar().text()} = {short(trace[c.consumer].adjoint)}"
                         f"{_operands(trace, c.consumer)}")
            nodes.append(c.consumer)
            break
    return "\n  ".join(texts), nodes


def _why_zero(consumer: Node, operand: int, trace: Any) -> str:
    """What made a contribution zero, in words, where the op's rule tells it."""
    name = consumer.op.name
    others = [x for i, x in enumerate(consumer.inputs) if i != operand and x.dtype.kind == "f"]
    if consumer.op.zero:
        return "its derivative is zero everywhere"
    if name in ("maximum", "minimum", "fmax", "fmin", "where", "max", "min", "max_pool", "segment_max"):
        return "another operand was chosen"
    bilinear = name in ("multiply", "zmul", "zmul_either") or (operand in consumer.op.linear and len(consumer.op.linear) > 1)
    if bilinear and any(not trace.value(x).any() for x in others):
        return "it multiplies by an exact zero"
    if consumer.op.family == "elementwise" and len(consumer.inputs) == 1:
        return "its slope is zero there: it is saturated or flat"
    return "its local derivative is zero there"


def _zero(head: str, row: Any, trace: Any, note: str) -> tuple[str, list[Node]]:
    """From the target towards y: the consumers at which a nonzero adjoint became zero."""
    seen: set[int] = set()
    stack = [row]
    blame: list[tuple[Any, Any]] = []
    while stack:
        r = stack.pop()
        if id(r.node) in seen:
            continue
        seen.add(id(r.node))
        if len(r.contributions) > 1 and any(c.value.any() for c in r.contributions):
            blame.append((r, None))
            continue
        for c in r.contributions:
            consumer = trace[c.consumer]
            if consumer.adjoint is not None and consumer.adjoint.any():
                blame.append((r, c))
            else:
                stack.append(consumer)
    lines = [f"{head} zero at these values."]
    nodes = []
    for r, c in blame[:10]:
        if c is None:
            lines.append(f"  the contributions to {r.name} cancel: " + ", ".join(f"{x.formula} = {short(x.value)}" for x in r.contributions))
            nodes.append(r.node)
        else:
            nodes.append(c.consumer)
            lines.append(f"  {_told(c.consumer)}\n    has a nonzero adjoint and hands on zero: {_why_zero(c.consumer, c.operand, trace)}\n"
                         f"    {contribution_line(r, c, True)}")
            lines += [f"    with {primal_line(trace[x])}" for x in dict.fromkeys(c.consumer.inputs) if id(x) in trace._by_node]
    if not blame:
        lines.append("  nothing flows: ops on the way have derivative zero, such as "
                     + ", ".join(sorted({n.op.name for n in trace.order if n.op.zero}) or ["none"]))
    return "\n".join(lines) + note, nodes


__all__ = ["Explanation", "Rule", "explain", "rule"]
