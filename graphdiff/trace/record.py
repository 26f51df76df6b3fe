"""What a trace holds: rows with values, adjoints and contributions, steps to go through, tables and pictures to show it in (make.py makes it).

Rows are numbered as in Baydin et al., Automatic differentiation in machine learning: a survey (JMLR 2018), table 3:
inputs v_{1-n} ... v_0, then v_1, v_2, ... level by level. The ledger of an adjoint lists its contributions in the order
in which reverse mode added them (diff/reverse.py), with the sum after each.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import FormatError, NodeTypeError, NoRow, show_name
from ..graph.build import located, public
from ..graph.node import Node, Site
from ..graph.walk import toposort
from .formula import LATEX, TEXT, Name
from .table import adjoint_line, contribution_line, primal_line, short
from .written import Written


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """What one consumer of a node added to the node's adjoint."""

    consumer: Node
    operand: int             # which operand of the consumer the node is
    value: Any
    sum: Any                 # the adjoint after this contribution
    _label: Name             # the consumer's
    _here: Node              # the consumer in the graph that was traced, where interior nodes with given values are inputs
    _written: Written

    @property
    def by(self) -> str:
        """The consumer's name in the table."""
        return self._label.text()

    @property
    def formula(self) -> str:
        """'v3bar cos v0'"""
        return self._written.contribution(self._here, self.operand, TEXT)

    @property
    def filled(self) -> str:
        """The same with numbers: '(-1) cos 5'."""
        return self._written.contribution_in_numbers(self._here, self.operand)

    @property
    def latex(self) -> str:
        r"""'\bar{v}_{3}\,\cos v_{0}'"""
        return self._written.contribution(self._here, self.operand, LATEX)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One node of the trace. Arrays are read-only. `adjoint` is None where no derivative is asked for or flows, `tangent`, forward
    mode's, where none was asked for."""

    index: int | None        # 1-n ... 0 for inputs and variables, 1, 2, ... for operations, None for constants
    label: Name
    value: Any
    adjoint: Any
    tangent: Any
    contributions: tuple[Contribution, ...]
    node: Node
    _here: Node              # as in a Contribution
    _written: Written

    @property
    def name(self) -> str:
        """The name in the table: 'v-1'."""
        return self.label.text()

    @property
    def site(self) -> Site | None:
        """The line of the user's code that made the node."""
        return self.node.site

    @property
    def formula(self) -> str:
        """'v-1 v0'"""
        return self._written.value(self._here, TEXT)

    @property
    def filled(self) -> str:
        """The same with numbers: '2*5'."""
        return self._written.value_in_numbers(self._here)

    @property
    def latex(self) -> str:
        r"""'v_{-1}\,v_{0}'"""
        return self._written.value(self._here, LATEX)

    @property
    def tangent_formula(self) -> str:
        """'v-1dot v0 + v0dot v-1'"""
        return self._written.tangent(self._here, TEXT)

    @property
    def tangent_latex(self) -> str:
        r"""'\dot{v}_{-1}\,v_{0}'"""
        return self._written.tangent(self._here, LATEX)


Arrival = tuple[Row, Contribution, bool]         # whose adjoint, what arrives there, and is it the first?


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Step:
    """Where the stepper stands: one value of the forward pass, or one contribution (or the seed) of the reverse pass."""

    number: int
    phase: str               # "forward" or "reverse"
    row: Row                 # the row whose value or adjoint changes
    contribution: Contribution | None

    @property
    def text(self) -> str:
        """The line of the table."""
        if self.phase == "forward":
            return primal_line(self.row)
        c = self.contribution
        return adjoint_line(self.row) if c is None else contribution_line(self.row, c, c is self.row.contributions[0])

    @property
    def node(self) -> Node:
        return self.row.node

    @property
    def value(self) -> Any:
        """The value computed here, or the adjoint as it stands after this step."""
        if self.phase == "forward":
            return self.row.value
        return self.row.adjoint if self.contribution is None else self.contribution.sum

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        """In a terminal: the line of the table, with numbers, and what it comes from."""
        c = self.contribution
        filled = self.row.filled if self.phase == "forward" else "" if c is None else c.filled
        lines = [f"step {self.number + 1}, {self.phase}: {self.text}"]
        if filled and filled not in self.text:
            lines.append(f"  numbers  {filled}")
        if c is not None:
            lines.append(f"  from     {c.by} ({c.consumer.op.name}), which gives {short(c.value)}; the sum is now {short(c.sum)}")
        lines.append(f"  node     {self.node.op.name} {self.node.spec}")
        site = (self.node if c is None else c.consumer).site
        if site is not None:
            lines.append(f"  line     {site}: {show_name(site.source, 100)}")
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self)}


@dataclass(slots=True, eq=False)
class Trace:
    """Both passes of y with every value. Made by gd.trace; printing it gives the two-sided table."""

    y: Node
    wrt: tuple[Node, ...]
    rows: tuple[Row, ...]
    seed: Any                                     # the adjoint of y: 1, or ones; None when y has no derivative
    note: str = ""
    given: frozenset[int] = frozenset()           # ids of interior nodes whose values were given
    forward: bool = False                         # are there tangents?
    _by_node: dict[int, Row] = field(default_factory=dict, repr=False)
    _values: dict[int, Any] = field(default_factory=dict, repr=False)
    _keep: list[Any] = field(default_factory=list, repr=False)
    _steps: list[Step] | None = field(default=None, repr=False)
    _at: int = field(default=-1, repr=False)

    @property
    def order(self) -> list[Node]:
        """The nodes of the primal graph, inputs first, down to the nodes whose values were given."""
        return toposort([self.y], stop=self.given)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NodeTypeError("a trace cannot be pickled or copied: it finds its rows by the nodes themselves; keep a page or a table of it "
                            "(t.save), or trace again")

    # -- values ----------------------------------------------------------------------------------------------------

    def __getitem__(self, node: Node | str) -> Row:
        """The row of a node, or by a name: the table's (v3) or the user's. KeyError when there is none (scalar constants stand in the
        formulas), or when several nodes have the name."""
        try:
            return self._row(node)
        except NoRow as error:
            raise located(error, "trace[...]") from None

    def _row(self, node: Node | str) -> Row:
        if isinstance(node, str):
            rows = [r for r in self.rows if r.name == node] or [r for r in self.rows if r.node.name == node]
            if len(rows) != 1:
                raise NoRow(f"{'several rows are' if rows else 'no row is'} called {show_name(node)!r}")
            return rows[0]
        try:
            return self._by_node[id(node)]
        except KeyError:
            raise NoRow(f"no row for {node!r}") from None

    @public
    def value(self, node: Node) -> Any:
        """The value of any node of the primal graph, constants included."""
        try:
            return self._values[id(node)]
        except KeyError:
            raise NoRow(f"y does not depend on {node!r}") from None

    @public
    def adjoint(self, node: Node) -> Any:
        """dy/dnode, or None where none flows."""
        return self._row(node).adjoint

    # -- the stepper -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> list[Step]:
        """Forward: the rows in order. Reverse: the seed, then every contribution in order of arrival."""
        if self._steps is None:
            steps = [Step(i, "forward", r, None) for i, r in enumerate(self.rows)]
            if self.seed is not None:
                steps.append(Step(len(steps), "reverse", self[self.y], None))
                for row, c, _ in self.arrivals():
                    steps.append(Step(len(steps), "reverse", row, c))
            self._steps = steps
        return self._steps

    def given_by(self) -> dict[int, list[Arrival]]:
        """id(consumer) -> its contributions, in the order in which reverse mode makes them."""
        by_consumer: dict[int, list[Arrival]] = {}
        for row in self.rows:
            for k, c in enumerate(row.contributions):
                by_consumer.setdefault(id(c.consumer), []).append((row, c, k == 0))
        for entries in by_consumer.values():
            entries.sort(key=lambda item: item[1].operand)
        return by_consumer

    def arrivals(self) -> list[Arrival]:
        """All contributions in the order in which reverse mode makes them."""
        by_consumer = self.given_by()
        return [entry for row in reversed(self.rows) for entry in by_consumer.get(id(row.node), ())]

    @property
    def current(self) -> Step | None:
        """The step the stepper stands at; None before the first."""
        return self.steps[self._at] if self._at >= 0 else None

    def step(self) -> Step | None:
        """One step on; at the end, None, and the stepper stays at the last step."""
        if self._at + 1 >= len(self.steps):
            return None
        self._at += 1
        return self.current

    def back(self) -> Step | None:
        """One step back; None when that is before the first."""
        self._at = max(self._at - 1, -1)
        return self.current

    @public
    def run_to(self, node: Node | str) -> Step:
        """On to the next step that changes the value or adjoint of a node (or of a row by its name, "v3"); from the start again when
        there is none left."""
        node = self._row(node).node
        n = len(self.steps)
        for start, stop in ((self._at + 1, n), (0, self._at + 1)):
            for i in range(start, stop):
                if self.steps[i].row.node is node:
                    self._at = i
                    return self.steps[i]
        raise NoRow(f"no step for {node!r}")

    def restart(self) -> None:
        """Before the first step."""
        self._at = -1

    # -- showing ---------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        from .table import to_text
        return to_text(self)

    def __repr__(self) -> str:
        return f"<trace of {self.y!r}: {len(self.rows)} rows, wrt {len(self.wrt)}>"

    @public
    def to_text(self, max_rows: int | None = None, *, layout: str = "sides") -> str:
        """The table; max_rows=None shows all rows. layout: "sides", primal trace left and adjoint trace right, or "rows", one row a
        node with its ledger: who contributed what to its adjoint, in order, and the sum after it."""
        from .table import to_text
        return to_text(self, max_rows, layout)

    @public
    def to_markdown(self, *, layout: str = "sides") -> str:
        """A table for Markdown; names are escaped. layout as in to_text."""
        from .table import to_markdown
        return to_markdown(self, layout)

    @public
    def to_latex(self, *, layout: str = "sides") -> str:
        """A tabular environment; needs amsmath. layout as in to_text."""
        from .table import to_latex
        return to_latex(self, layout)

    @public
    def to_csv(self, *, layout: str = "sides") -> str:
        """Numbers in full. layout: "sides", one line a value and one a contribution, or "rows", a line a node."""
        from .table import to_csv
        return to_csv(self, layout)

    @public
    def to_html(self, *, layout: str = "sides") -> str:
        """The table as an HTML fragment without script. layout as in to_text."""
        from .html import table
        return table(self, layout)

    @public
    def draw(self, **options: Any) -> Any:
        """The graph with values on its forward edges and adjoints on its reverse edges: a Drawing."""
        from .draw import draw_trace
        return draw_trace(self, **options)

    @public
    def save(self, path: Any) -> None:
        """Write by suffix: .html (a page with a stepper) .svg .png .pdf .dot .md .tex .csv .txt."""
        from .render import no_format, path_of
        target = path_of(path)
        suffix = target.suffix.lower()
        if suffix in (".svg", ".png", ".pdf", ".dot", ".gv"):
            self.draw().save(path)
            return
        if suffix in (".html", ".htm"):
            from .page import page
            text = page(self)
        elif suffix == ".md":
            text = self.to_markdown()
        elif suffix == ".tex":
            text = self.to_latex()
        elif suffix == ".csv":
            text = self.to_csv()
        elif suffix == ".txt":
            text = self.to_text() + "\n"
        else:
            raise FormatError(f"save: {no_format(target)}; there are .html .svg .png .pdf .dot .md .tex "
                              ".csv .txt")
        target.write_text(text, encoding="utf-8", newline="")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.to_text(200), "text/html": self.to_html()}
