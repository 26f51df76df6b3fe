"""The formulas of a trace, written when somebody reads them: a trace of a hundred thousand nodes has more of them than anybody looks at,
and writing one costs several times what computing its value does.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import show_name
from ..graph.node import Node
from .formula import LONGEST, NAME, TEXT, Name, Term, formula, local_rule, tangent_formula, term_formula
from .table import short, tex


class Written:
    """What the formulas of one trace are made of: names of nodes, their values, their adjoints and tangents, by id(node)."""

    __slots__ = ("arrays", "final", "labels", "last", "tangents", "theirs")

    def __init__(self, labels: Mapping[int, Name], final: Mapping[int, Any], arrays: Mapping[int, Any], theirs: Mapping[int, Node],
                 tangents: Mapping[int, Any] | None) -> None:
        self.labels, self.final, self.arrays, self.theirs, self.tangents = labels, final, arrays, theirs, tangents or {}
        self.last: tuple[Node, tuple[Node, list[Term | None]]] | None = None      # a consumer and its rule, which serves all operands

    def name_of(self, node: Node) -> Name | None:
        return self.labels.get(id(node))

    def number_of(self, node: Node) -> Name | None:
        """A node's number in the place of its name; large arrays keep their names."""
        label = self.labels.get(id(node))
        return None if label is None else numeral(self.arrays[id(node)]) or label

    def rule(self, consumer: Node) -> tuple[Node, list[Term | None]]:
        last = self.last                         # the object once: another thread may replace it
        if last is None or last[0] is not consumer:
            last = self.last = consumer, local_rule(consumer, [id(x) in self.final for x in consumer.inputs])
        return last[1]

    # -- values ----------------------------------------------------------------------------------------------------

    def value(self, node: Node, style: Any) -> str:
        """The right-hand side of a row: 'v-1 v0'; of a leaf what the user calls it."""
        if node.op.family == "leaf":
            name = node.name if node.name is not None else "given" if id(node) in self.theirs else node.op.name
            return str(style.name(Name(None, name)))
        return formula(node, self.name_of, style, top=True).text

    def value_in_numbers(self, node: Node) -> str:
        """The same with numbers: '2*5'."""
        return "" if node.op.family == "leaf" else show_name(formula(node, self.number_of, TEXT, top=True).text, LONGEST)

    # -- contributions ---------------------------------------------------------------------------------------------

    def contribution(self, consumer: Node, operand: int, style: Any) -> str:
        """What a consumer gives to the adjoint of an operand: 'v3bar cos v0'."""
        stand, terms = self.rule(consumer)
        term = terms[operand]
        if term is None:
            return ""

        def told(style: Any) -> str:
            return term_formula(term, self.labels[id(consumer)].bar(), stand, consumer, consumer.inputs[operand], self.name_of, style)

        text = told(TEXT)
        if len(text) > LONGEST:                 # LaTeX cannot be cut anywhere: it names the rule
            return show_name(text, LONGEST) if style is TEXT else rf"\ldots\text{{({tex(consumer.op.name)})}}"
        return text if style is TEXT else told(style)

    def contribution_in_numbers(self, consumer: Node, operand: int) -> str:
        """The same with numbers: '(-1) cos 5'."""
        stand, terms = self.rule(consumer)
        term = terms[operand]
        if term is None:
            return ""
        bar = numeral(self.arrays[id(self.final[id(consumer)])]) or self.labels[id(consumer)].bar()
        return show_name(term_formula(term, bar, stand, consumer, consumer.inputs[operand], self.number_of, TEXT), LONGEST)

    # -- tangents --------------------------------------------------------------------------------------------------

    def tangent(self, node: Node, style: Any) -> str:
        """The tangent of a node in those of its operands: 'v-1dot v0 + v0dot v-1'; '' where none is computed."""
        if node.op.family == "leaf" or self.tangents.get(id(node)) is None:
            return ""
        moved = [isinstance(self.tangents.get(id(x)), Node) for x in node.inputs]
        text = tangent_formula(node, self.name_of, moved, TEXT)
        if len(text) > LONGEST:
            return show_name(text, LONGEST) if style is TEXT else rf"\ldots\text{{({tex(node.op.name)})}}"
        return text if style is TEXT else tangent_formula(node, self.name_of, moved, style)


def numeral(array: Any) -> Name | None:
    """A value as a word of a formula, negative numbers in brackets; None for arrays that are summarised."""
    text = short(array)
    if (array.ndim and not text.startswith("[")) or len(text) > NAME or "min" in text:
        return None
    return Name(None, f"({text})" if text.startswith("-") else text)
