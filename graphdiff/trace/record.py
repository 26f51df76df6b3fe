"""gd.trace: run both passes once, keep every value, and say where each came from.

Rows are numbered as in Baydin et al., Automatic differentiation in machine learning: a survey (JMLR 2018), table 3:
inputs v_{1-n} ... v_0, then v_1, v_2, ... level by level. The ledger of an adjoint lists its contributions in the order
in which reverse mode added them (diff/reverse.py), with the sum after each.
"""
from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..diff.forward import push
from ..diff.reverse import connected, sweep
from ..dtypes import read_only
from ..errors import FormatError, GradientError, NodeTypeError, NoRow, ShapeError, show_name
from ..graph.build import CONTEXT, as_node, make_constant, named_input, node_list, public, scalar
from ..graph.node import Node, Origin, Site
from ..graph.opdef import ZERO
from ..graph.walk import toposort
from ..ops.families import cast
from ..passes.concrete import stand_in, substitute
from ..specs import format_shape, has_dims
from .formula import LATEX, LONGEST, NAME, TEXT, Name, Names, Term, formula, inlined, local_rule, tangent_formula, term_formula
from .run import values
from .table import short, tex


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """What one consumer of a node added to the node's adjoint."""

    consumer: Node
    operand: int             # which operand of the consumer the node is
    by: str                  # the consumer's name in the table
    formula: str             # 'v3bar cos v0'
    filled: str              # the same with numbers: '(-1) cos 5'
    latex: str
    value: Any
    sum: Any                 # the adjoint after this contribution


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One node of the trace. Arrays are read-only. `adjoint` is None where no derivative is asked for or flows."""

    index: int | None        # 1-n ... 0 for inputs and variables, 1, 2, ... for operations, None for constants
    name: str
    label: Name
    formula: str             # 'v-1 v0'
    filled: str              # the same with numbers: '2*5'
    latex: str
    value: Any
    adjoint: Any
    contributions: tuple[Contribution, ...]
    site: Site | None
    node: Node
    tangent: Any = None      # forward mode's, where it was asked for
    tangent_formula: str = ""
    tangent_latex: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Step:
    """Where the stepper stands: one value of the forward pass, or one contribution (or the seed) of the reverse pass."""

    number: int
    phase: str               # "forward" or "reverse"
    row: Row                 # the row whose value or adjoint changes
    contribution: Contribution | None
    text: str                # the line of the table

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
        if isinstance(node, str):
            rows = [r for r in self.rows if r.name == node] or [r for r in self.rows if r.node.name == node]
            if len(rows) != 1:
                raise NoRow(f"{'several rows are' if rows else 'no row is'} called {show_name(node)!r}")
            return rows[0]
        try:
            return self._by_node[id(node)]
        except KeyError:
            raise NoRow(f"no row for {node!r}") from None

    def value(self, node: Node) -> Any:
        """The value of any node of the primal graph, constants included."""
        try:
            return self._values[id(node)]
        except KeyError:
            raise KeyError(f"y does not depend on {node!r}") from None

    def adjoint(self, node: Node) -> Any:
        """dy/dnode, or None where none flows."""
        return self[node].adjoint

    # -- the stepper -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> list[Step]:
        """Forward: the rows in order. Reverse: the seed, then every contribution in order of arrival."""
        if self._steps is None:
            from .table import adjoint_line, contribution_line, primal_line
            steps = [Step(i, "forward", r, None, primal_line(r)) for i, r in enumerate(self.rows)]
            if self.seed is not None:
                top = self[self.y]
                steps.append(Step(len(steps), "reverse", top, None, adjoint_line(top)))
                for row, c, first in self.arrivals():
                    steps.append(Step(len(steps), "reverse", row, c, contribution_line(row, c, first)))
            self._steps = steps
        return self._steps

    def arrivals(self) -> list[tuple[Row, Contribution, bool]]:
        """(row, contribution, is it the first?) in the order reverse mode makes them."""
        by_consumer: dict[int, list[tuple[Row, Contribution, bool]]] = {}
        for row in self.rows:
            for k, c in enumerate(row.contributions):
                by_consumer.setdefault(id(c.consumer), []).append((row, c, k == 0))
        out = []
        for row in reversed(self.rows):
            out += sorted(by_consumer.get(id(row.node), ()), key=lambda item: item[1].operand)
        return out

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

    def run_to(self, node: Node | str) -> Step:
        """On to the next step that changes the value or adjoint of a node (or of a row by its name, "v3"); from the start again when
        there is none left."""
        node = self[node].node
        n = len(self.steps)
        for start, stop in ((self._at + 1, n), (0, self._at + 1)):
            for i in range(start, stop):
                if self.steps[i].row.node is self[node].node:
                    self._at = i
                    return self.steps[i]
        raise KeyError(f"no step for {node!r}")

    def restart(self) -> None:
        """Before the first step."""
        self._at = -1

    # -- showing ---------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        from .table import to_text
        return to_text(self)

    def __repr__(self) -> str:
        return f"<trace of {self.y!r}: {len(self.rows)} rows, wrt {len(self.wrt)}>"

    def to_text(self, max_rows: int | None = None, *, layout: str = "sides") -> str:
        """The table; max_rows=None shows all rows. layout: "sides", primal trace left and adjoint trace right, or "rows", one row a
        node with its ledger: who contributed what to its adjoint, in order, and the sum after it."""
        from .table import to_text
        return to_text(self, max_rows, layout)

    def to_markdown(self, *, layout: str = "sides") -> str:
        """A table for Markdown; names are escaped. layout as in to_text."""
        from .table import to_markdown
        return to_markdown(self, layout)

    def to_latex(self, *, layout: str = "sides") -> str:
        """A tabular environment; needs amsmath. layout as in to_text."""
        from .table import to_latex
        return to_latex(self, layout)

    def to_csv(self, *, layout: str = "sides") -> str:
        """Numbers in full. layout: "sides", one line a value and one a contribution, or "rows", a line a node."""
        from .table import to_csv
        return to_csv(self, layout)

    def to_html(self, *, layout: str = "sides") -> str:
        """The table as an HTML fragment without script. layout as in to_text."""
        from .html import table
        return table(self, layout)

    def draw(self, **options: Any) -> Any:
        """The graph with values on its forward edges and adjoints on its reverse edges: a Drawing."""
        from .draw import draw_trace
        return draw_trace(self, **options)

    def save(self, path: Any) -> None:
        """Write by suffix: .html (a page with a stepper) .svg .png .pdf .dot .md .tex .csv .txt."""
        from pathlib import Path
        target = Path(path)
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
            from .render import no_format
            raise FormatError(f"save: {no_format(target)}; there are .html .svg .png .pdf .dot .md .tex "
                              ".csv .txt")
        target.write_text(text, encoding="utf-8", newline="")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.to_text(200), "text/html": self.to_html()}


# -- making one --------------------------------------------------------------------------------------------------------

def trace(y: Any, *args: Any, at: Mapping[Node, Any] | None = None, wrt: Any = None, tangent: Mapping[Node, Any] | None = None,
          **numpy_options: Any) -> Any:
    """Run both passes of y at the given values and keep every value and every contribution: a Trace.

    at: {input: value} for every input y depends on; an interior node may be given instead. wrt: a node or nodes, by
    default every float input and variable. y that is not a scalar is traced as sum(y): its seed is all ones. tangent:
    {node: its tangent} (shaped as the node) adds the tangents of forward mode, a third column. Without `at` this is
    NumPy's trace, the sum along a diagonal: trace(x, offset=0, axis1=0, axis2=1, dtype=None).
    """
    if at is None:
        if args and isinstance(args[0], Mapping):
            raise NodeTypeError("trace: values of inputs go by name: gd.trace(y, at={x: 2.0, ...})")
        if isinstance(y, Node) and y.ndim < 2 and not args and not numpy_options:
            raise NodeTypeError(f"trace: values are needed for the inputs of {y.label!r}: gd.trace(y, at={{x: 2.0, ...}}); without at= this "
                                "is the sum along a diagonal, for two axes or more")
        from ..ops.movement import trace as matrix_trace
        return matrix_trace(y, *args, **numpy_options)
    if args or numpy_options:
        raise NodeTypeError("trace: with at= there are no other arguments but wrt and tangent")
    return _trace(y, at, wrt, tangent)


def _checked(y: Any, at: Mapping[Node, Any], wrt: Any, tangent: Mapping[Node, Any] | None) -> Trace:
    if isinstance(y, (list, tuple, dict)):
        raise NodeTypeError(f"trace: one node is traced, not a {type(y).__name__} of them; trace each, or their sum")
    y = as_node(y)
    if not isinstance(at, Mapping):
        raise NodeTypeError(f"trace: at is a dict {{input: value}}, not {type(at).__name__}")
    for x in at:
        if not isinstance(x, Node):
            raise NodeTypeError(f"trace: the keys of at are nodes, not {type(x).__name__}")
        if x.op.name in ("constant", "variable"):
            raise NodeTypeError(f"trace: {x!r} cannot be given a value: it is a {x.op.name}")
    targets = None if wrt is None else node_list(wrt, "wrt")
    for t in targets or ():
        if t.dtype.kind != "f":
            raise GradientError(f"trace: cannot differentiate with respect to {t.label!r} ({t.spec}): integers and bools have no derivative")
    if tangent is not None and not isinstance(tangent, Mapping):
        raise NodeTypeError(f"trace: tangent is a dict {{node: tangent}}, not {type(tangent).__name__}")
    # Interior nodes with given values become inputs; what the user sees are still the nodes of the user.
    theirs: dict[int, Node] = {}
    feeds: dict[Node, Any] = {}
    replaced = {id(x): stand_in(x) for x in at if x.op.name != "input"}
    new: dict[int, Node] = {}
    if replaced:
        order = toposort([y], stop=replaced)
        new = {id(n): m for n, m in zip(order, substitute(order, replaced), strict=True)}
        theirs = {id(new[id(n)]): n for n in order}
    root = new.get(id(y), y)
    for x, value in at.items():
        feeds[replaced.get(id(x), x)] = value
    order = toposort([root])
    here = {id(n) for n in order}
    if targets is None:
        targets_here = [n for n in order if n.op.name in ("input", "variable") and n.dtype.kind == "f"]
    else:
        targets_here = [replaced.get(id(t), new.get(id(t), t)) for t in targets]
        lost = [t for t in targets_here if id(t) not in here]
        if lost:
            raise GradientError(f"trace: {y.label!r} does not depend on {lost[0].label!r}")
    tangents: dict[int, Any] | None = None
    if tangent is not None:
        tangents = _tangents(root, {replaced.get(id(x), new.get(id(x), x)): v for x, v in tangent.items()}, here, feeds)
    return _record(root, order, targets_here, feeds, theirs, tangents)


_checked.__name__ = "trace"           # as errors call it
_trace = public(_checked)


def _tangents(y: Node, given: Mapping[Any, Any], here: set[int], feeds: dict[Node, Any]) -> dict[int, Any]:
    """id(node) -> its tangent node, or ZERO, for every node of y that moves. Arrays become inputs, with their values in feeds."""
    found: dict[int, Any] = {}
    for x, value in given.items():
        if not isinstance(x, Node):
            raise NodeTypeError(f"trace: the keys of tangent are nodes, not {type(x).__name__}")
        if x.dtype.kind != "f":
            raise GradientError(f"trace: {x.label!r} ({x.spec}) has no tangent: integers and bools have no derivative")
        if id(x) not in here:
            raise GradientError(f"trace: {y.label!r} does not depend on {x.label!r}")
        if isinstance(value, Node):
            if value.shape != x.shape:
                raise ShapeError(f"trace: the tangent of {x.label!r} has shape {format_shape(value.shape)}, the node has {format_shape(x.shape)}")
            found[id(x)] = cast(value, x.dtype)
        else:                           # an input of its own: named sizes are known only with the values
            t = found[id(x)] = named_input(f"tangent of {x.label}", x.shape, x.dtype)
            feeds[t] = value
    before = CONTEXT.now
    try:
        push([y], list(given), found, whole=len(given) == 1)
    finally:
        CONTEXT.now = before
    return found


def _record(y: Node, order: list[Node], targets: Sequence[Node], feeds: dict[Node, Any], theirs: dict[int, Node],
            tangents: dict[int, Any] | None = None) -> Trace:
    note, seed = "", None
    final: dict[int, Any] = {}
    ledger: dict[int, list[Entry]] = {}
    if y.dtype.kind != "f":
        note = f"{y.dtype.name} has no derivative: no adjoints"
    elif targets:
        seed = _seed(y)
        final, ledger = adjoints(y, order, targets, seed)
        if y.shape != ():
            note = "y is not a scalar: the adjoints are those of sum(y)"
    wanted = list(order)
    wanted += [g for g in final.values() if isinstance(g, Node)]
    for entries in ledger.values():
        for _, _, t, total in entries:
            wanted += (t, total)
    wanted += [t for t in (tangents or {}).values() if isinstance(t, Node)]
    arrays = {key: read_only(a) for key, a in values(wanted, feeds).items()}
    note = "\n".join([line for line in (note, _otherwise(y, targets, final, arrays, feeds)) if line])
    numbered = number(order, list(feeds), y)
    labels = names(numbered)
    rows = _rows(numbered, labels, final, ledger, arrays, theirs, tangents)
    by_node = {id(r.node): r for r in rows}
    found = {id(theirs.get(id(n), n)): arrays[id(n)] for n in order}
    seed_value = None if seed is None or id(y) not in final else arrays[id(seed)]
    shown = tuple([theirs.get(id(t), t) for t in targets])
    given = frozenset([id(theirs[id(n)]) for n in feeds if id(n) in theirs])
    return Trace(theirs.get(id(y), y), shown, tuple(rows), seed_value, note, given, tangents is not None, by_node, found, [order, wanted])


def _otherwise(y: Node, targets: Sequence[Node], final: Mapping[int, Any], arrays: Mapping[int, Any], feeds: Mapping[Node, Any]) -> str:
    """What a function gives for the result and its adjoints, where a value here is infinite or NaN and that is not: a table has every
    operation as it is written, a program has stable forms of them."""
    shown = {y.name or "the result": y, **{f"the adjoint of {t.label}": final[id(t)] for t in targets if isinstance(final.get(id(t)), Node)}}
    if all(np.isfinite(arrays[id(n)]).all() for n in shown.values()):
        return ""
    other = values(list(shown.values()), feeds, passes=True)
    found = [f"{name} = {short(other[id(n)])}" for name, n in shown.items() if not np.array_equal(other[id(n)], arrays[id(n)], equal_nan=True)]
    return f"a function gives, by stable forms of what is written here: {', '.join(found)}" if found else ""


def _seed(y: Node) -> Node:
    before = CONTEXT.now
    CONTEXT.now = (y._site, Origin(y, None, "adjoint"), before[2])
    try:
        if y.shape == ():
            return scalar(1.0, y.dtype)
        if has_dims(y.shape):
            from ..ops.creation import ones_like
            return ones_like(y)
        return make_constant(np.ones(y.shape, y.dtype))
    finally:
        CONTEXT.now = before


Entry = tuple[Node, int, Node, Node]          # consumer, operand, contribution, sum so far


def adjoints(y: Node, order: Sequence[Node], targets: Sequence[Node], seed: Node) -> tuple[dict[int, Any], dict[int, list[Entry]]]:
    """(id(node) -> final adjoint or ZERO, id(node) -> its ledger) for every node between the targets and y."""
    reach = connected(order, targets)
    between = [n for n in order if id(n) in reach and n.dtype.kind == "f"]
    ledger: dict[int, list[Entry]] = {}
    before = CONTEXT.now
    try:
        final = sweep(y, between, seed, ledger)
    finally:
        CONTEXT.now = before
    return final, ledger


def number(order: Sequence[Node], first: Sequence[Node], root: Node | None = None) -> list[tuple[Node, int | None]]:
    """Nodes with rows (root always has one), in the order of rows, with their index: leaves first (`first` before others), then level by level.

    Consumers of one node keep the order in which the sweep meets them, so that reading the table upwards is reading
    the contributions in the order in which they were added.
    """
    here = {id(n) for n in order}
    rank = {id(n): i for i, n in enumerate(first)}
    leaves = [n for n in order if n.op.name in ("input", "variable")]
    leaves.sort(key=lambda n: rank.get(id(n), len(rank)))
    out: list[tuple[Node, int | None]] = [(n, None) for n in order if (n.op.name == "constant" and not inlined(n))
                                             or (n is root and inlined(n))]
    out += [(n, i + 1 - len(leaves)) for i, n in enumerate(leaves)]
    level: dict[int, int] = {}
    position = {id(n): i for i, n in enumerate(order)}
    after: dict[int, list[Node]] = {}
    waits = dict.fromkeys(here, 0)
    for n in order:
        level[id(n)] = 1 + max([level[id(x)] for x in n.inputs], default=-1)
        for x in {id(x): x for x in n.inputs}.values():
            after.setdefault(id(x), []).append(n)
            waits[id(n)] += 1
    for follow in [list(f) for f in after.values()]:
        for a, b in pairwise(follow):
            after.setdefault(id(a), []).append(b)
            waits[id(b)] += 1
    heap = [(level[id(n)], position[id(n)], n) for n in order if waits[id(n)] == 0]
    heapq.heapify(heap)
    index = 1
    while heap:
        _, _, n = heapq.heappop(heap)
        if n.op.family != "leaf":
            out.append((n, index))
            index += 1
        for m in after.get(id(n), ()):
            waits[id(m)] -= 1
            if waits[id(m)] == 0:
                heapq.heappush(heap, (level[id(m)], position[id(m)], m))
    return out


def names(numbered: Sequence[tuple[Node, int | None]]) -> dict[int, Name]:
    """id(node) -> its name: a letter, v if no input has such a name, and the index, or the user's name of an interior node when it is unmistakable."""
    count: dict[str, int] = {}
    for n, _ in numbered:
        if n.name is not None:
            count[n.name] = count.get(n.name, 0) + 1
    table: dict[int, Name] = {}
    constants = 0
    # A user's own v1 would be taken for the value of that number.
    theirs = {n.name[0] for n, _ in numbered if n.name is not None and n.op.family == "leaf" and _looks_numbered(n.name)}
    letter, constant = [next((c for c in letters if c not in theirs), letters[0]) for letters in ("vwuts", "ckq")]
    for n, index in numbered:
        word = n.name
        plain = word is not None and count[word] == 1 and bool(word.strip()) and not word.endswith("bar") and not (
            _looks_numbered(word) and word[0] in (letter, constant))
        if n.op.name in ("constant", "dim"):
            constants += 1
            table[id(n)] = Name(None, word if plain else f"{constant}{constants}")  # type: ignore[arg-type]
        elif plain and n.op.family != "leaf":
            table[id(n)] = Name(None, word)                     # type: ignore[arg-type]
        else:
            table[id(n)] = Name(index, letter=letter)
    return table


def _looks_numbered(word: str) -> bool:
    return word[:1].isalpha() and word[1:].lstrip("-").isdigit()


def _rows(numbered: Sequence[tuple[Node, int | None]], labels: dict[int, Name], final: Mapping[int, Any],
          ledger: Mapping[int, list[Entry]], arrays: Mapping[int, Any], theirs: Mapping[int, Node],
          tangents: Mapping[int, Any] | None) -> list[Row]:
    def name_of(n: Node) -> Name | None:
        return labels.get(id(n))

    def number_of(n: Node) -> Name | None:
        """A node's number in the place of its name; large arrays keep their names."""
        return None if id(n) not in labels else _numeral(arrays[id(n)]) or labels[id(n)]

    rules: dict[int, tuple[Node, list[Term | None]]] = {}

    def rule(consumer: Node) -> tuple[Node, list[Term | None]]:
        known = rules.get(id(consumer))
        if known is None:
            known = rules[id(consumer)] = local_rule(consumer, [id(x) in final for x in consumer.inputs])
        return known

    rows = []
    for node, index in numbered:
        adjoint: Any = None
        contributions = []
        g = final.get(id(node))
        if g is ZERO:
            adjoint = read_only(np.zeros_like(arrays[id(node)]))
        elif g is not None:
            adjoint = arrays[id(g)]
            for consumer, k, t, total in ledger.get(id(node), ()):
                stand, terms = rule(consumer)
                term = terms[k]
                bar = labels[id(consumer)].bar()
                told, filled = ["", ""], ""
                if term is not None:
                    told = [term_formula(term, bar, stand, consumer, node, name_of, s) for s in (TEXT, LATEX)]
                    if len(told[0]) > LONGEST:       # LaTeX cannot be cut anywhere: it names the rule
                        told = [show_name(told[0], LONGEST), rf"\ldots\text{{({tex(consumer.op.name)})}}"]
                    gbar = final[id(consumer)]
                    filled = term_formula(term, _numeral(arrays[id(gbar)]) or bar, stand, consumer, node, number_of, TEXT)
                contributions.append(Contribution(theirs.get(id(consumer), consumer), k, labels[id(consumer)].text(), told[0],
                                                  show_name(filled, LONGEST), told[1], arrays[id(t)], arrays[id(total)]))
        label = labels[id(node)]
        filled = ""
        if node.op.family == "leaf":
            own = Name(None, node.name if node.name is not None else "given" if id(node) in theirs else node.op.name)
            text, latex = own.text(), own.latex()
        else:
            text, latex = [formula(node, name_of, s, top=True).text for s in (TEXT, LATEX)]
            filled = show_name(formula(node, number_of, TEXT, top=True).text, LONGEST)
        shown = theirs.get(id(node), node)
        row = Row(index, label.text(), label, text, filled, latex, arrays[id(node)], adjoint, tuple(contributions), shown.site, shown)
        rows.append(row if tangents is None or node.dtype.kind != "f" else _moving(row, node, name_of, tangents, arrays))
    return rows


def _numeral(array: Any) -> Name | None:
    """A value as a word of a formula, negative numbers in brackets; None for arrays that are summarised."""
    text = short(array)
    if (array.ndim and not text.startswith("[")) or len(text) > NAME or "min" in text:
        return None
    return Name(None, f"({text})" if text.startswith("-") else text)


def _moving(row: Row, node: Node, names: Names, tangents: Mapping[int, Any], arrays: Mapping[int, Any]) -> Row:
    """The row with its tangent."""
    t = tangents.get(id(node))
    if t is None or t is ZERO:
        tangent = read_only(np.zeros_like(row.value))
    else:
        tangent = arrays[id(t)]
    text = latex = ""
    if node.op.family != "leaf" and t is not None:
        moved = [isinstance(tangents.get(id(x)), Node) for x in node.inputs]
        text, latex = [tangent_formula(node, names, moved, s) for s in (TEXT, LATEX)]
        if len(text) > LONGEST:
            text, latex = show_name(text, LONGEST), rf"\ldots\text{{({tex(node.op.name)})}}"
    return replace(row, tangent=tangent, tangent_formula=text, tangent_latex=latex)


__all__ = ["Contribution", "Row", "Step", "Trace", "adjoints", "trace"]
