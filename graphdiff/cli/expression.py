"""A small expression parser for the command line: numbers, names, + - * / ** ( ), and elementwise functions. No eval.

Bounds: 10,000 characters, nesting 100, so that hostile text costs nothing. Errors point at the column.
"""
from __future__ import annotations

from typing import Any, NoReturn

from ..errors import FormatError
from ..graph.node import Node

MAX_LENGTH, MAX_DEPTH = 10_000, 100
FUNCTIONS = ("log exp sin cos tan sqrt tanh sinh cosh arcsin arccos arctan abs sigmoid softplus relu erf log1p expm1 square gelu silu "
             "maximum minimum arctan2 hypot power").split()
_ALIASES = {"ln": "log", "max": "maximum", "min": "minimum", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
_BINARY = {"+": (10, "add"), "-": (10, "subtract"), "*": (20, "multiply"), "/": (20, "divide"), "**": (40, "power"), "^": (40, "power")}
_SIGN = 30          # -x**2 is -(x**2), 2*-x works


class Parser:
    """One expression. `names` maps what the user may write to nodes."""

    def __init__(self, text: str, names: dict[str, Node]) -> None:
        if len(text) > MAX_LENGTH:
            raise FormatError(f"the expression has {len(text)} characters, more than {MAX_LENGTH}")
        self.text, self.names, self.at, self.depth = text, names, 0, 0

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        first = max(0, at - 60)
        shown = "".join(c if c.isprintable() else "?" for c in self.text[first:first + 120])
        raise FormatError(f"column {at + 1}: {what}\n  {shown}\n  {' ' * (at - first)}^")

    def peek(self) -> str:
        text = self.text
        while self.at < len(text) and text[self.at] in " \t\n":
            self.at += 1
        if text.startswith("**", self.at):
            return "**"
        return text[self.at] if self.at < len(text) else ""

    def parse(self) -> Any:
        value = self.expression(0)
        if self.peek():
            self.fail(f"unexpected {self.peek()!r}")
        return value

    def expression(self, level: int) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH}")
        left = self.operand()
        while True:
            sign = self.peek()
            binding, name = _BINARY.get(sign, (-1, ""))
            if binding <= level and not (binding == 40 and level == 40):
                break
            self.at += len(sign)
            right = self.expression(binding if binding != 40 else _SIGN - 1)
            left = self.apply(name, left, right)
        self.depth -= 1
        return left

    def operand(self) -> Any:
        c = self.peek()
        start = self.at
        if c == "(":
            self.at += 1
            value = self.expression(0)
            if self.peek() != ")":
                self.fail("a ) is missing", start)
            self.at += 1
            return value
        if c in ("-", "+") and c:
            self.at += 1
            value = self.expression(_SIGN)
            return value if c == "+" else (-value)
        if c.isdigit() or c == ".":
            return self.number()
        if c.isalpha() or c == "_":
            while self.at < len(self.text) and self.text[start:self.at + 1].isidentifier():
                self.at += 1
            return self.name(self.text[start:self.at], start)
        if not c:
            self.fail("the expression ends where a value is needed")
        self.fail(f"unexpected {c!r}")

    def number(self) -> float:
        start, text = self.at, self.text
        while self.at < len(text) and (text[self.at].isdigit() or text[self.at] == "."):
            self.at += 1
        if self.at < len(text) and text[self.at] in "eE":
            end = self.at + 1 + (self.at + 1 < len(text) and text[self.at + 1] in "+-")
            if end < len(text) and text[end].isdigit():
                while end < len(text) and text[end].isdigit():
                    end += 1
                self.at = end
        try:
            return float(text[start:self.at])
        except ValueError:
            self.fail(f"{text[start:self.at]!r} is not a number", start)

    def name(self, name: str, start: int) -> Any:
        if self.peek() != "(":
            if name in self.names:
                return self.names[name]
            if name in ("pi", "e"):
                import math
                return math.pi if name == "pi" else math.e
            if _ALIASES.get(name, name) in FUNCTIONS:
                self.fail(f"{name} is a function: write {name}(...)", start)
            self.fail(f"{name!r} has no value; give {name}=NUMBER after the expression", start)
        function = _ALIASES.get(name, name)
        if function not in FUNCTIONS:
            self.fail(f"{name!r} is not a function here; there are {', '.join(FUNCTIONS)}", start)
        self.at += 1
        args = [self.expression(0)]
        while self.peek() == ",":
            self.at += 1
            args.append(self.expression(0))
        if self.peek() != ")":
            self.fail("a ) is missing", start)
        self.at += 1
        return self.apply(function, *args, at=start)

    def apply(self, name: str, *args: Any, at: int | None = None) -> Any:
        import graphdiff
        try:
            return getattr(graphdiff, name)(*args)
        except TypeError as error:
            text = str(error).split("\n")[0]            # perhaps with the name of a caller in front, which is this program's
            self.fail(text[max(text.find(f"{name}: "), 0):], at)


def parse(text: str, names: dict[str, Node]) -> Node:
    """The node of an expression over named inputs. Raises FormatError that points at the column."""
    from ..graph.build import as_node
    return as_node(Parser(text, names).parse())
