"""Nodes as formulas, in text and in LaTeX: the right-hand sides of a trace, and the adjoint rules of ops.

A formula is written in the names of the nodes that have one; what has none is written out, a few levels deep. Text and
LaTeX differ only in a table of templates (`_Text`, `_Latex`).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..diff.reverse import contributions
from ..errors import GradientError, show_name
from ..graph.build import INPUT, making
from ..graph.node import Node, Origin, new_node
from ..graph.opdef import MINUS_ONE, ONE, ZERO
from ..specs import format_shape

DEPTH = 8            # levels of unnamed nodes that are written out; a rule rarely has more
LONGEST = 160        # characters of a formula in a table; the rule itself (gd.rule) shows all of it
NAME = 30            # characters of a user's name in a formula

# How tightly a piece of text holds together: a piece is put in brackets where a tighter one is needed.
TEST, SUM, NEGATION, PRODUCT, CALL, POWER, ATOM = 40, 60, 65, 70, 75, 85, 100


class Piece(NamedTuple):
    """A formula and how tightly it binds. `open_end`: its last factor is a function, so nothing may follow it."""

    text: str
    binds: int = ATOM
    open_end: bool = False


class Name(NamedTuple):
    """What a value is called: a letter with a number, or a user's word; bars count over it for adjoints, dots for tangents."""

    number: int | None
    word: str = ""
    bars: int = 0
    dots: int = 0
    letter: str = "v"

    def bar(self) -> Name:
        """The name of this value's adjoint."""
        return self._replace(bars=self.bars + 1)

    def dot(self) -> Name:
        """The name of this value's tangent."""
        return self._replace(dots=self.dots + 1)

    def text(self) -> str:
        """v-1, v-1bar, loss, lossbar."""
        return (f"{self.letter}{self.number}" if self.number is not None else show_name(self.word, NAME)) + "bar" * self.bars + "dot" * self.dots

    def latex(self) -> str:
        r"""v_{-1}, \bar{v}_{-1}, \mathit{loss}."""
        base = self.letter if self.number is not None else latex_word(self.word)
        for _ in range(self.bars):
            base = rf"\bar{{{base}}}" if self.number is not None else rf"\overline{{{base}}}"
        for _ in range(self.dots):
            base = rf"\dot{{{base}}}"
        return f"{base}_{{{self.number}}}" if self.number is not None else base


_LATEX = {"\\": r"\backslash ", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
          "^": r"\wedge ", "~": r"\sim ", " ": r"\ ", "'": "'", "<": "<", ">": ">"}


def latex_word(word: str) -> str:
    """A user's word in math mode, one letter as it is; every character with a meaning in LaTeX is replaced."""
    shown = show_name(word, NAME)
    if len(shown) == 1 and shown.isascii() and shown.isalpha():
        return shown
    return r"\mathit{" + "".join(_LATEX.get(c, c) for c in shown) + "}"


Names = Callable[[Node], "Name | None"]


class _Text:
    product, equals, dot = " ", " = ", "*"
    tests: ClassVar[dict[str, str]] = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
                                       "logical_and": "and", "logical_or": "or", "matmul": "@"}

    @staticmethod
    def bracket(text: str) -> str: return f"({text})"
    @staticmethod
    def name(name: Name) -> str: return name.text()
    @staticmethod
    def fraction(a: str, b: str) -> str: return f"{a}/{b}"
    @staticmethod
    def power(a: str, b: str) -> str: return f"{a}^{b}"
    @staticmethod
    def word(text: str) -> str: return text


class _Latex(_Text):
    product, dot = r"\,", r"\cdot "
    tests: ClassVar[dict[str, str]] = {
        "equal": "=", "not_equal": r"\neq", "less": "<", "less_equal": r"\leq", "greater": ">", "greater_equal": r"\geq",
        "logical_and": r"\wedge", "logical_or": r"\vee", "matmul": r"\,"}

    @staticmethod
    def bracket(text: str) -> str: return rf"\left({text}\right)"
    @staticmethod
    def name(name: Name) -> str: return name.latex()
    @staticmethod
    def power(a: str, b: str) -> str: return f"{a}^{{{b}}}"
    @staticmethod
    def word(text: str) -> str: return r"\mathrm{" + "".join(_LATEX.get(c, c) for c in text) + "}"


TEXT, LATEX = _Text(), _Latex()


SHOWN = 12           # characters of a constant that are shown where they say exactly what it is


def number_text(value: Any) -> str:
    """A scalar constant as a reader would write it."""
    if isinstance(value, (bool,)) or value.dtype.kind in "biu":
        return str(value)
    exact, value = value, float(value)
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    text = str(exact)
    return text if len(text) <= SHOWN else f"{value:.6g}"


def inlined(node: Node) -> bool:
    """Is the node written as its number instead of having a row of its own? Unnamed scalar constants are."""
    return (node.op.name == "constant" and node.shape == () and node.name is None) or node.op.name == "dim"


def _unbounded(node: Node) -> Node:
    """The x of a derivative's where(isnan(x), x, minimum(maximum(x, -b), b)): such bounds keep infinities out and change no value
    (ops/unary.py)."""
    if node.op.name == "where" and node.origin is not None and node.inputs[0].op.name == "isnan":
        x = node.inputs[1]
        return x if node.inputs[0].inputs[0] is x and _unbounded(node.inputs[2]) is x else node
    if node.op.name == "minimum" and node.origin is not None and node.inputs[0].op.name == "maximum":
        inner, bound = node.inputs
        x, low = inner.inputs
        if all(c.op.name == "constant" and c.shape == () for c in (bound, low)) and low._attrs[0] == -bound._attrs[0]:
            return x
    return node


def formula(node: Node, names: Names, style: Any = TEXT, depth: int = DEPTH, top: bool = False) -> Piece:
    """The node as a formula. top: write the node itself out even though it has a name."""
    node = node if top else _unbounded(node)
    name = None if top else names(node)
    if name is not None:
        return Piece(style.name(name))
    op = node.op.name
    if op == "taken_for":           # the same elements, of whose sizes one is called otherwise
        return formula(node.inputs[0], names, style, depth)
    if op == "constant":
        if node.shape == ():
            text = number_text(node._attrs[0][()])
            return Piece(text, NEGATION if text.startswith("-") else ATOM)
        return _filled(node, style)
    if op == "dim":
        return Piece(style.word(show_name(str(node._attrs[0]), NAME)), SUM)
    if node.op.family == "leaf":
        return Piece(style.name(Name(None, node.name if node.name is not None else op)))
    if depth <= 0:
        return Piece("...")
    if not top and node.op.family == "elementwise" and node.op.reference is not None and all(
            x.op.name == "constant" and x.shape == () and x.name is None for x in node.inputs):
        with np.errstate(all="ignore"):
            array = np.asarray(node.op.reference(*[x._attrs[0] for x in node.inputs], **node.attrs))
        text = number_text(array.astype(node.dtype)[()])
        return Piece(text, NEGATION if text.startswith("-") else ATOM)
    parts = [formula(x, names, style, depth - 1) for x in node.inputs]
    whole = _combine(node, parts, style)
    # v2 = (v1 = 0): a test is told from the equals signs around it.
    return Piece(style.bracket(whole.text)) if top and whole.binds == TEST else whole


def _filled(node: Node, style: Any) -> Piece:
    """A constant array: its number if all elements are equal."""
    array = node._attrs[0]
    if array.size and (array == array.flat[0]).all():
        return Piece(f"[{number_text(array.flat[0])}]" if style is not LATEX else rf"\left[{number_text(array.flat[0])}\right]")
    return Piece(style.word(node.op.name) + format_shape(node.shape))


def _wrapped(p: Piece, binds: int, style: Any) -> str:
    return p.text if p.binds >= binds else style.bracket(p.text)


def product(a: Piece, b: Piece, style: Any = TEXT) -> Piece:
    """a b, with a/c for a (1/c), -b for (-1) b, and a*2 where a number follows."""
    if a.text == "-1" and b.binds >= PRODUCT:
        return Piece("-" + b.text, NEGATION, b.open_end)
    left = a.text if a.binds >= PRODUCT and not a.open_end and a.binds != CALL else style.bracket(a.text)
    one_over = "1/" if style is not LATEX else "1 / "
    if b.binds == PRODUCT and b.text.startswith(one_over):
        return Piece(f"{left}/{b.text[len(one_over):]}", PRODUCT)
    right = b.text if b.binds >= CALL else style.bracket(b.text)
    if right[:1].isdigit() or b.binds == NEGATION:
        return Piece(f"{left}{style.dot}{right}", PRODUCT)
    return Piece(f"{left}{style.product}{right}", PRODUCT, b.binds == CALL or b.open_end)


def _combine(node: Node, parts: list[Piece], style: Any) -> Piece:
    op, name = node.op, node.op.name
    if len(parts) == 2 and (op.family == "elementwise" or name == "matmul"):
        a, b = parts
        if name == "add":
            return Piece(f"{_wrapped(a, SUM, style)} + {_wrapped(b, SUM if b.binds != NEGATION else ATOM, style)}", SUM)
        if name == "subtract":
            return Piece(f"{_wrapped(a, SUM, style)} - {_wrapped(b, PRODUCT, style)}", SUM)
        if name in ("multiply", "zmul", "zmul_either"):
            return product(a, b, style)
        if name == "divide":
            bottom = _wrapped(b, POWER, style)
            top = a.text if a.binds >= PRODUCT and not a.open_end and a.binds != CALL else style.bracket(a.text)
            return Piece(f"{top}/{bottom}" if style is not LATEX else f"{top} / {bottom}", PRODUCT)
        if name in ("power", "int_power"):
            return Piece(style.power(_wrapped(a, ATOM, style), _wrapped(b, ATOM, style)), POWER)
        sign = style.tests.get(name)
        if sign is not None:
            binds = PRODUCT if name == "matmul" else TEST
            return Piece(f"{_wrapped(a, POWER, style)} {sign} {_wrapped(b, POWER, style)}", binds)
    if len(parts) == 1 and op.family == "elementwise":
        a = parts[0]
        if name == "negative":
            return Piece("-" + _wrapped(a, PRODUCT, style), NEGATION)
        if name == "square":
            return Piece(style.power(_wrapped(a, ATOM, style), "2"), POWER)
        if name == "reciprocal":
            bottom = _wrapped(a, POWER, style)
            return Piece(f"1/{bottom}" if style is not LATEX else f"1 / {bottom}", PRODUCT)
        if name == "abs":
            return Piece(f"|{a.text}|" if style is not LATEX else rf"\left|{a.text}\right|")
        if name == "cast":
            return Piece(f"{style.word(node.dtype.name)}({a.text})")
        if style is LATEX and op.latex and name not in ("relu",):
            text = op.latex.format(a.text if "{{{0}}}" in op.latex or "({0})" in op.latex else _wrapped(a, ATOM, style))
            return Piece(text, SUM) if op.latex.endswith(" - 1") else Piece(text, CALL, True)
        word = op.symbol if op.symbol.isalpha() and op.symbol.isascii() else name
        if a.binds >= ATOM:
            return Piece(f"{style.word(word)}{' ' if style is not LATEX else chr(92) + ','}{a.text}", CALL)
        return Piece(f"{style.word(word)}{style.bracket(a.text)}", POWER)
    if name == "transpose" and node._attrs[0] in ((1, 0), None) and len(parts) == 1:
        top = _wrapped(parts[0], ATOM, style)
        return Piece(f"{top}^T" if style is not LATEX else f"{top}^{{T}}", POWER)
    options = ["" if k in ("keepdims",) and not v else f"{k}={_option(v)}" for k, v in zip(op.attr_names, node._attrs, strict=True)]
    arguments = [p.text for p in parts] + [o if style is not LATEX else style.word(o) for o in options if o]
    return Piece(f"{style.word(name)}({', '.join(arguments)})")


def _option(value: Any) -> str:
    """An option of an op; a long one is cut."""
    name = getattr(value, "name", None)
    text = name if isinstance(name, str) else str(value)
    return show_name(text, 40)


class Term(NamedTuple):
    """What a node gives to the adjoint of one operand: `expression` is a node in `g`, or a mark, or None for nothing."""

    expression: Any
    is_partial: bool        # the expression is the local partial derivative, to be multiplied with g


def local_rule(node: Node, needs: Sequence[bool]) -> tuple[Node, list[Term | None]]:
    """(g, one term an operand): the op's own adjoint rule, applied to a stand-in g for the node's adjoint.

    The derivative that ran may be simpler (a factor 1 is left out there); the formula shown is the rule.
    """
    g = new_node(INPUT, (), (), node.shape, node.dtype, node._site, None, None)
    op = node.op
    terms: list[Term | None] = [None] * len(node.inputs)
    if not node.inputs or op.cuts is not None:
        return g, terms
    if op.zero:
        return g, [Term(ZERO, False) if need else None for need in needs]
    with making(node._site, Origin(node, node, "adjoint")):
        if op.partials is not None:
            for i, (partial, need) in enumerate(zip(op.partials, needs, strict=True)):
                if need:
                    terms[i] = Term(partial(*node.inputs, node) if callable(partial) else partial, True)
        else:
            try:
                given = contributions(g, node, tuple(needs))
            except GradientError:           # of steps whose number has a name there is nothing to write down; their adjoint is one kernel
                return g, terms
            for i, (t, need) in enumerate(zip(given, needs, strict=True)):
                if need:
                    terms[i] = Term(ZERO if t is None else t, False)
    return g, terms


def tangent_formula(node: Node, names: Names, moved: Sequence[bool], style: Any = TEXT) -> str:
    """The tangent of a node in the tangents of its operands: 'v-1dot v0 + v0dot v-1'. moved: which operands have one."""
    op = node.op

    def dotted(x: Node) -> Piece:
        name = names(x)
        return Piece(style.name(name.dot())) if name is not None else Piece("...")

    pieces: list[Piece] = []
    if op.linear:
        for i in op.linear:
            if moved[i]:
                parts = [dotted(x) if j == i else formula(x, names, style, DEPTH - 1) for j, x in enumerate(node.inputs)]
                pieces.append(_combine(node, parts, style))
    elif op.partials is not None:
        _, terms = local_rule(node, moved)
        for x, term in zip(node.inputs, terms, strict=True):
            e = None if term is None else term.expression
            if e is None or (isinstance(e, str) and e == ZERO):
                continue
            if isinstance(e, str):
                pieces.append(dotted(x) if e == ONE else Piece("-" + dotted(x).text, NEGATION))
            else:
                pieces.append(product(dotted(x), formula(e, names, style), style))
    elif not op.zero and op.cuts is None:
        arguments = [dotted(x).text for x, m in zip(node.inputs, moved, strict=True) if m]
        return f"{style.word('d')} {style.word(op.name)}{style.bracket(', '.join(arguments))}" if arguments else "0"
    text = pieces[0].text if pieces else "0"
    for p in pieces[1:]:
        text += f" - {p.text[1:]}" if p.binds == NEGATION and p.text.startswith("-") else f" + {_wrapped(p, SUM, style)}"
    return text


def term_formula(term: Term, bar: Name, g: Node, consumer: Node, operand: Node, names: Names, style: Any = TEXT) -> str:
    """A contribution as text: 'v3bar cos v0'."""
    gbar = Piece(style.name(bar))
    e = term.expression
    if e is ZERO or (isinstance(e, str) and e == ZERO):
        return "0"
    if isinstance(e, str):
        piece = product(gbar, Piece("1") if e == ONE else Piece("-1", NEGATION), style)
        assert e in (ONE, MINUS_ONE)
    elif term.is_partial:
        piece = product(gbar, formula(e, names, style), style)
    else:
        piece = formula(e, lambda n: bar if n is g else names(n), style)
    shape = consumer.shape if isinstance(e, str) or term.is_partial else e.shape
    if shape != operand.shape:       # the operand was broadcast: its adjoint is summed back to its shape
        return f"{style.word('sum_to')}({piece.text}, {format_shape(operand.shape)})"
    return piece.text
