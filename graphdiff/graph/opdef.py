"""What an op is: one record a kind of operation, and the registry of all of them.

A record holds every fact about an op; code elsewhere asks the record and never lists op names. This module knows no
op: families in `graphdiff.ops` register theirs. An op without an answer to "what is your derivative?" cannot be
registered; the three answers are a rule (partials, vjp or linear), `zero` (connected, derivative 0) and `cuts` (not
differentiable, because ...).
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REGISTRY: dict[str, OpDef] = {}

# Partial derivatives that are not nodes: multiplying by them is a sign, or nothing at all.
ONE = "one"
MINUS_ONE = "minus one"
ZERO = "zero"

# Far below every axis: an index less this much (wrapping) is out of bounds, and `as_written` adds it again.
NEVER = 1 << 61


def as_written(index: int) -> int:
    """The index the user gave, of one that was found out of bounds: NEVER may have been taken from it.

    Right for the negative ones down to -2**61, and for those that a NaN made an integer becomes, near -2**63.
    """
    if -2 * NEVER <= index < -NEVER:
        return index + NEVER
    wrapped = index + NEVER - 2**64
    return wrapped if -2**63 <= wrapped < -2**63 + 2**40 else index


def whereabouts(hits: Any) -> str:
    """Which of several indices an error is about: the first hit of a NumPy array of bools that has their shape. Axes of one element
    tell nothing."""
    if hits.size < 2 or not hits.any():
        return ""
    flat, at = int(hits.argmax()), []
    for n in reversed(hits.shape):
        if n != 1:
            at.append(flat % n)
        flat //= n
    return f" (at {at[::-1]} of the indices)"


@dataclass(frozen=True, eq=False, slots=True)
class OpDef:
    """The record of one op. Node tuples are called inputs, the tuple of option values attrs."""

    name: str
    formula: str                                  # one line, in the letters x, y, z for the operands
    infer: Callable[..., Any]                     # infer(inputs, attrs) -> (shape, dtype); raises one-line facts
    reference: Callable[..., Any] | None          # reference(*arrays, **attrs) -> array: the NumPy oracle
    attr_names: tuple[str, ...] = ()
    arity: int | None = None                      # None: any number of operands
    family: str = "structural"                    # elementwise, reduction, movement, indexing, structural, leaf

    # derivative: exactly one of these
    partials: tuple[Any, ...] | None = None       # elementwise: (x, y, ..., out) -> node | ONE | MINUS_ONE | ZERO, one each
    vjp: Callable[..., Any] | None = None         # vjp(g, node, needs) -> one node or None per input; needs: bools
    expand: Callable[..., Any] | None = None      # expand(inputs, attrs) -> the same value of other ops: without a rule, or vjp is NotImplemented
    zero: bool = False                            # connected, derivative zero everywhere
    cuts: str | None = None                       # why there is none

    picks: bool = False                           # partials are numbers that pick: where one is 0 nothing flows, were the cotangent infinite
    linear: tuple[int, ...] = ()                  # operands in which the op is (multi)linear: gives forward mode
    jvp: Callable[..., Any] | None = None         # jvp(tangents, node) -> node, when neither partials nor linear serve

    lower: Callable[..., Any] | str = "map"       # "map": the elementwise kernel of the same name; else lower(ctx, node)
    cost: Callable[..., Any] | None = None        # cost(node) -> FLOPs; None: one per output element, none of ops that move elements
    symbol: str = ""                              # label in pictures, when shorter than the name
    latex: str = ""                               # the same for LaTeX, with {0}, {1} for operands
    domain: tuple[tuple[float, float], ...] = ()  # where tests sample each float operand; default (-2, 2)
    analytic: Callable[..., Any] | None = None    # the reference continued to complex numbers, when NumPy's is not
    ulp: float = 2.0                              # promised accuracy of the elementwise kernel
    source: str = ""                              # where the formula comes from, when it is not plain calculus

    def flops(self, node: Any) -> Any:
        """FLOPs of a node of this op, closed form: an int, or a Dim where sizes are named."""
        if self.cost is not None:
            return self.cost(node)
        return 0 if self.family in ("movement", "indexing") else node.size

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<op {self.name}: {self.formula}>"

    # An op compares and hashes like its name, so that node.op == "add" reads as it should.
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return lookup, (self.name,)


def lookup(name: str) -> OpDef:
    """The op registered under `name`; KeyError names it."""
    try:
        return REGISTRY[name]
    except KeyError:
        raise KeyError(f"no op is called {name!r}") from None


def register(op: OpDef) -> OpDef:
    """Add a record to the registry, once. Refuses an op without exactly one answer about its derivative."""
    answers = [op.partials is not None, op.vjp is not None or op.expand is not None, op.zero, op.cuts is not None]
    if sum(answers) != 1:
        raise ValueError(f"op {op.name!r} must state exactly one of partials, vjp (or expand), zero, cuts")
    if op.name in REGISTRY:
        raise ValueError(f"op {op.name!r} is defined twice")
    REGISTRY[op.name] = op
    return op
