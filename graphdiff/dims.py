"""Sizes: named dimensions and their arithmetic.

A size is an int or a Dim. A Dim is a polynomial
with integer coefficients over names (each at least 0) and over //, %, max and min of other sizes. It is kept in one
canonical form: equal sizes print, compare and hash equal, and what is constant is an int. A comparison with one answer
for all values of the names has it, any other is a TypeError. A divisor is taken to be nonzero: batch*28 // batch is 28.
Text, degree and depth of an expression are bounded: hostile sizes cost a ShapeError. Messages are one-line facts.
"""
from __future__ import annotations

import operator
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from . import intervals
from .errors import NodeTypeError, ShapeError, show_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from .intervals import Bound, Interval

    Mono: TypeAlias = tuple[tuple["Atom", int], ...]        # atoms and their powers, sorted by text; () is 1
    Poly: TypeAlias = dict[Mono, int]
    Size: TypeAlias = "int | Dim"

NAME_LIMIT = 100                 # characters in the name of a dimension
TEXT_LIMIT = 20_000              # characters in a size expression: about a thousand names added up
DEPTH_LIMIT = 50                 # nesting of // % max min in each other; a chain of strided convolutions has depth 1
DEGREE_LIMIT = 64                # factors in one product: twice the axes of a shape
COEFFICIENT_LIMIT = 2**256       # beyond any product of sizes that occurs; keeps text and arithmetic short
PRODUCT_LIMIT = 100_000          # pairs of terms multiplied at once


# Atoms: what a polynomial is made of.

class Atom:
    """A name, or `op` ("//", "%", "max", "min") of two sizes. Equal when it is written the same."""

    __slots__ = ("depth", "hi", "left", "lo", "names", "op", "right", "text")

    op: str
    left: Size
    right: Size
    text: str
    lo: Bound
    hi: Bound
    depth: int
    names: frozenset[str]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_name_atom, (self.text,)) if self.op == "name" else (_op_atom, (self.op, self.left, self.right))


def _name_atom(name: str) -> Atom:
    atom = Atom()
    atom.op, atom.left, atom.right, atom.text = "name", 0, 0, name
    atom.lo, atom.hi, atom.depth, atom.names = 0, intervals.INF, 0, frozenset((name,))
    return atom


def _op_atom(op: str, left: Size, right: Size) -> Atom:
    atom = Atom()
    atom.op, atom.left, atom.right = op, left, right
    parts = [part for size in (left, right) if isinstance(size, Dim) for part in size.atoms()]
    atom.depth = 1 + max(part.depth for part in parts)
    if atom.depth > DEPTH_LIMIT:
        raise ShapeError(f"a size expression nests more than {DEPTH_LIMIT} divisions, maxima and minima")
    atom.names = frozenset().union(*(part.names for part in parts))
    if op in ("max", "min"):
        atom.text = f"{op}({left}, {right})"
    else:
        atom.text = f"{_operand_text(left)}{op}{_operand_text(right)}"
    atom.lo, atom.hi = intervals.OF[op](bounds(left), bounds(right))
    return atom


def _operand_text(size: Size) -> str:
    """`size` as it stands beside // or %: in brackets unless it is one name, one call or a plain number."""
    if isinstance(size, int):
        return str(size) if size >= 0 else f"({size})"
    mono, coefficient = size.terms[0]
    alone = len(size.terms) == 1 and coefficient == 1 and len(mono) == 1 and mono[0][1] == 1
    return size.text if alone and mono[0][0].op not in ("//", "%") else f"({size.text})"


_OPERATORS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "floor_divide": operator.floordiv, "remainder": operator.mod,
              "divmod": divmod, "divide": operator.truediv, "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
              "greater": operator.gt, "greater_equal": operator.ge}     # by the names of NumPy's functions

AS_VALUE = "as a value in the graph, write gd.size(x, axis)"


class Dim:
    """A size known only when a function meets arrays. Immutable; made by `Dim.name` and by arithmetic.

    == and != say whether two sizes are the same expression, as dict keys and `in` need it: of two that may turn out equal, or of one that may
    turn out to be the number beside it, == is False. <, <=, > and >= of such sizes are a TypeError.

    >>> batch, length = Dim.name("batch"), Dim.name("length")
    >>> batch * 28, (length + 1) // 2, batch * 28 // 28, (length + 1) * 2 - 2 * length
    (batch*28, (length + 1)//2, batch, 2)
    """

    __slots__ = ("hi", "lo", "terms", "text")

    terms: tuple[tuple[Mono, int], ...]   # canonical: highest degree first, then by text; the constant last
    text: str
    lo: Bound
    hi: Bound

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NodeTypeError("a named size is made by Dim.name('batch')")

    @staticmethod
    def name(name: str) -> Dim:
        """The size called `name`, an identifier."""
        if not isinstance(name, str):
            raise NodeTypeError(f"the name of a size must be a str, not {show_name(type(name).__name__)}")
        if len(name) > NAME_LIMIT or not name.isidentifier():
            raise ShapeError(f"{show_name(repr(name))} cannot name a size: a name is letters, digits and _, "
                             f"at most {NAME_LIMIT}, and does not start with a digit")
        return _of_atom(_name_atom(str(name)))   # type: ignore[return-value]

    def names(self) -> frozenset[str]:
        """The names this size depends on."""
        return frozenset().union(*(atom.names for atom in self.atoms()))

    def atoms(self) -> list[Atom]:
        return [atom for mono, _ in self.terms for atom, _ in mono]

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError("a size cannot be changed")

    def __delattr__(self, attribute: str) -> None:
        raise AttributeError("a size cannot be changed")

    # Arithmetic.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **options: Any) -> Any:
        """np.int64(3) * dim is 3 * dim; other functions of NumPy's take numbers."""
        if any(hasattr(x, "__array_ufunc__") and not isinstance(x, (Dim, np.ndarray, np.generic)) for x in inputs):
            return NotImplemented                # theirs to say, as a node's
        way = _OPERATORS.get(ufunc.__name__) if method == "__call__" and not options else None
        inputs = tuple(x.item() if isinstance(x, (np.ndarray, np.generic)) and x.ndim == 0 else x for x in inputs)
        if way is None or any(size_or_none(x) is None for x in inputs):
            if way in (operator.eq, operator.ne):
                return way is operator.ne
            raise NodeTypeError(f"np.{ufunc.__name__} takes numbers, not the size {shown(self)}; {AS_VALUE}")
        return way(*inputs)

    def _operand(self, other: object) -> Size | None:
        if isinstance(other, (float, np.floating)):
            raise NodeTypeError(f"with {other!r} the size {shown(self)} makes no size; {AS_VALUE} and compute with that")
        return size_or_none(other)

    def __add__(self, other: object) -> Size:
        size = self._operand(other)
        if size is None:
            return NotImplemented
        out = dict(self.terms)
        for mono, c in _terms(size):
            out[mono] = out.get(mono, 0) + c
        return _make(out)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return _make({mono: -c for mono, c in self.terms})

    def __pos__(self) -> Dim:
        return self

    def __sub__(self, other: object) -> Size:
        size = self._operand(other)
        return NotImplemented if size is None else self + -size

    def __rsub__(self, other: object) -> Size:
        size = self._operand(other)
        return NotImplemented if size is None else -self + size

    def __mul__(self, other: object) -> Size:
        size = self._operand(other)
        if size is None:
            return NotImplemented
        terms = _terms(size)
        if len(self.terms) * len(terms) > PRODUCT_LIMIT:
            raise ShapeError("a product of size expressions has too many terms")
        out: Poly = {}
        for a, c in self.terms:
            for b, d in terms:
                mono = _mono_mul(a, b)
                out[mono] = out.get(mono, 0) + c * d
        return _make(out)

    __rmul__ = __mul__

    def __pow__(self, power: object) -> Size:
        if not isinstance(power, (int, np.integer)) or isinstance(power, bool):
            self._operand(power)
            return NotImplemented
        if not 0 <= power <= DEGREE_LIMIT:
            raise ShapeError(f"the power of a size is a number from 0 to {DEGREE_LIMIT}")
        out: Size = 1
        for _ in range(power):
            out = out * self
        return out

    def __floordiv__(self, other: object) -> Size:
        size = self._operand(other)
        return NotImplemented if size is None else _floordiv(self, size)

    def __rfloordiv__(self, other: object) -> Size:
        size = self._operand(other)
        return NotImplemented if size is None else _floordiv(size, self)

    def __mod__(self, other: object) -> Size:
        size = self._operand(other)
        return NotImplemented if size is None else _mod(self, size)

    def __rmod__(self, other: object) -> Size:
        size = self._operand(other)
        return NotImplemented if size is None else _mod(size, self)

    def __divmod__(self, other: object) -> tuple[Size, Size]:
        size = self._operand(other)
        return NotImplemented if size is None else (_floordiv(self, size), _mod(self, size))

    def __rdivmod__(self, other: object) -> tuple[Size, Size]:
        size = self._operand(other)
        return NotImplemented if size is None else (_floordiv(size, self), _mod(size, self))

    def __truediv__(self, other: object) -> Size:
        if self._operand(other) is None:
            return NotImplemented
        raise NodeTypeError(f"the size {shown(self)} divides by //, to a size; {AS_VALUE} and divide that")

    __rtruediv__ = __truediv__

    # Comparison.

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Dim) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: object) -> bool:
        return _ask(self, "<", other)

    def __le__(self, other: object) -> bool:
        return _ask(self, "<=", other)

    def __gt__(self, other: object) -> bool:
        return _ask(self, ">", other)

    def __ge__(self, other: object) -> bool:
        return _ask(self, ">=", other)

    def __bool__(self) -> bool:
        if self.lo > 0 or self.hi < 0:
            return True
        raise NodeTypeError(_unknown(f"whether {shown(self)} is zero"))

    def __index__(self) -> int:
        raise NodeTypeError(_unknown(f"the size {shown(self)}"))

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: object) -> Dim:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_terms, (self.terms,)


def bounds(size: Size) -> Interval:
    """The interval `size` lies in whatever its names are."""
    return (size, size) if isinstance(size, int) else (size.lo, size.hi)


# Canonical polynomials.

def size_or_none(x: object) -> Size | None:
    """`x` as a size, or None when it is no whole number (bools are not)."""
    if type(x) is int or isinstance(x, Dim):
        return x
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        return int(x)
    return None


def _terms(size: Size) -> tuple[tuple[Mono, int], ...]:
    return (((), size),) if isinstance(size, int) else size.terms


def _of_atom(atom: Atom) -> Size:
    return _make({((atom, 1),): 1})


def _from_terms(terms: tuple[tuple[Mono, int], ...]) -> Size:
    return _make(dict(terms))


def _order(term: tuple[Mono, int]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Sort key of a term: highest degree first, then by text; the constant comes last."""
    return -sum(power for _, power in term[0]), tuple((atom.text, power) for atom, power in term[0])


def _make(poly: Poly) -> Size:
    """The size of a polynomial: an int when it can have one value only, else a Dim in canonical form."""
    terms = tuple(sorted(((mono, c) for mono, c in poly.items() if c), key=_order))
    lo: Bound = 0
    hi: Bound = 0
    for mono, c in terms:
        if not -COEFFICIENT_LIMIT < c < COEFFICIENT_LIMIT:
            raise ShapeError("a number in a size expression is too large")
        if sum(power for _, power in mono) > DEGREE_LIMIT:
            raise ShapeError(f"a size expression multiplies more than {DEGREE_LIMIT} sizes")
        ends = _mono_bounds(mono, c)
        lo, hi = intervals.add(lo, ends[0]), intervals.add(hi, ends[1])
    if lo == hi:
        return int(lo)
    text = _text(terms)
    if len(text) > TEXT_LIMIT:
        raise ShapeError(f"a size expression is longer than {TEXT_LIMIT} characters: {show_name(text)}")
    dim = object.__new__(Dim)
    for slot, value in (("terms", terms), ("text", text), ("lo", lo), ("hi", hi)):
        object.__setattr__(dim, slot, value)
    return dim


def _mono_bounds(mono: Mono, c: int) -> Interval:
    out: Interval = (c, c)
    for atom, power in mono:
        one = (atom.lo, atom.hi)
        for _ in range(power):
            out = intervals.product(out, one)
    return out


def _mono_mul(a: Mono, b: Mono) -> Mono:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].text))


def _mono_div(a: Mono, b: Mono) -> Mono | None:
    """a / b, or None when b does not divide a."""
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def _text(terms: tuple[tuple[Mono, int], ...]) -> str:
    """Python source of the polynomial, with a positive term in front if there is one: "batch*28 + 1", "5 - length"."""
    first = next((i for i, (_, c) in enumerate(terms) if c > 0), 0)
    out = ""
    for mono, c in (terms[first], *terms[:first], *terms[first + 1:]):
        bare = abs(c) == 1 and len(mono) == 1 and mono[0][1] == 1 and (out or c > 0)
        factors = [mono[0][0].text] if bare else [_factor_text(atom, power) for atom, power in mono]
        if abs(c) != 1 or not mono:
            factors.append(str(abs(c)))
        sign = (" - " if c < 0 else " + ") if out else ("-" if c < 0 else "")
        out += sign + "*".join(factors)
    return out


def _factor_text(atom: Atom, power: int) -> str:
    text = f"({atom.text})" if atom.op in ("//", "%") else atom.text
    return text if power == 1 else f"{text}**{power}"


# Division, remainder, maximum, minimum.

def _op(op: str, left: Size, right: Size) -> Size:
    return _of_atom(_op_atom(op, left, right))


def _floordiv(a: Size, b: Size) -> Size:
    """floor(a / b), simplified by identities that hold for all integers (with b nonzero)."""
    if isinstance(b, int):
        return _floordiv_int(a, b)
    if isinstance(a, int) and a == 0:
        return 0
    exact = _divide(a, b)
    return _op("//", a, b) if exact is None else exact


def _floordiv_int(a: Size, k: int) -> Size:
    if k == 0:
        raise ShapeError(f"size {shown(a)} is divided by zero")
    if isinstance(a, int):
        return a // k
    if k < 0:
        return _floordiv_int(-a, -k)
    whole, rest = {}, {}   # a = whole*k + rest, so a // k = whole + rest // k
    for mono, c in a.terms:
        if c % k == 0 or not mono:
            whole[mono] = c // k
        if c % k and mono:
            rest[mono] = c
    if not rest:   # a constant remainder below k
        return _make(whole)
    g = gcd(k, *rest.values())
    rest = {mono: c // g for mono, c in rest.items()}
    constant = dict(a.terms).get((), 0) % k // g
    k //= g
    sign = 1
    if min(rest.items(), key=_order)[1] < 0:   # floor(-x / k) = -floor((x + k - 1) / k): one form for both
        rest = {mono: -c for mono, c in rest.items()}
        constant, sign = k - 1 - constant, -1
    inner = _sole_atom(rest, "//")
    if inner is not None and isinstance(inner.right, int):   # (x // m + c) // k = (x + c*m) // (m*k)
        quotient = _floordiv_int(inner.left + constant * inner.right, inner.right * k)
    else:
        quotient = _op("//", _make({**rest, (): constant}), k)
    return _make(whole) + sign * quotient


def _sole_atom(poly: Poly, op: str) -> Atom | None:
    """The atom of `op` that is all there is in the polynomial, or None."""
    if len(poly) == 1:
        (mono, c), = poly.items()
        if c == 1 and len(mono) == 1 and mono[0][1] == 1 and mono[0][0].op == op:
            return mono[0][0]
    return None


def _divide(a: Size, b: Dim) -> Size | None:
    """a / b when b divides a as a polynomial, else None: long division by leading terms in graded lexical order."""
    if isinstance(a, int):
        return None
    atoms = sorted({*a.atoms(), *b.atoms()}, key=lambda atom: atom.text)

    def rank(term: tuple[Mono, int]) -> tuple[int, ...]:
        powers = dict(term[0])
        vector = [powers.get(atom, 0) for atom in atoms]
        return (sum(vector), *vector)

    if len(atoms) * len(a.terms) > PRODUCT_LIMIT:
        return None
    lead, lead_c = max(b.terms, key=rank)
    rest, quotient, work = dict(a.terms), {}, 0
    while rest:
        mono, c = max(rest.items(), key=rank)
        factor = _mono_div(mono, lead)
        work += len(atoms) * (len(rest) + len(b.terms))
        if factor is None or c % lead_c or work > PRODUCT_LIMIT:
            return None
        quotient[factor] = c // lead_c
        for other, d in b.terms:
            product = _mono_mul(factor, other)
            left = rest.pop(product, 0) - quotient[factor] * d
            if left:
                rest[product] = left
    return _make(quotient)


def _mod(a: Size, b: Size) -> Size:
    """a % b as Python defines it: the sign of b, and a = (a // b) * b + a % b."""
    if isinstance(b, int):
        return _mod_int(a, b)
    if (isinstance(a, int) and a == 0) or _divide(a, b) is not None:
        return 0
    return _op("%", a, b)


def _mod_int(a: Size, k: int) -> Size:
    if k == 0:
        raise ShapeError(f"size {shown(a)} is divided by zero")
    if isinstance(a, int):
        return a % k
    if k < 0:
        return -_mod_int(-a, -k)
    rest = {mono: c % k for mono, c in a.terms if mono and c % k}
    constant = dict(a.terms).get((), 0) % k
    if not rest:
        return constant
    g = gcd(k, *rest.values())   # (g*x + r) % (g*m) = g * (x % m) + r for r < g
    inner = _make({**{mono: c // g for mono, c in rest.items()}, (): constant // g})
    lo, hi = bounds(inner)
    reduced = inner if lo >= 0 and hi < k // g else _op("%", inner, k // g)
    return g * reduced + constant % g


def dim_max(a: Size, b: Size) -> Size:
    """The larger of two sizes; undecided it stays in the expression: dim_max(length - 1, 0) is max(length - 1, 0)."""
    return _extreme("max", a, b)


def dim_min(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    return _extreme("min", a, b)


def _extreme(op: str, a: Size, b: Size) -> Size:
    lo, hi = bounds(a - b)
    if lo >= 0:
        return a if op == "max" else b
    if hi <= 0:
        return b if op == "max" else a
    a, b = sorted((a, b), key=lambda size: (isinstance(size, int), str(size)))   # numbers last
    if isinstance(b, int) and isinstance(a, Dim):
        # max(max(n - 1, 0) - 1, 0) is max(n - 2, 0): a slice of a slice of ... does not nest.
        constant = dict(a.terms).get((), 0)
        rest = [term for term in a.terms if term[0]]
        if len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1 and rest[0][0][0][1] == 1:
            atom = rest[0][0][0][0]
            if atom.op == op and isinstance(atom.right, int):
                bound = (max if op == "max" else min)(atom.right + constant, b)
                return _extreme(op, atom.left + constant, bound)
    return _op(op, a, b)


# Questions.

def _ask(a: Dim, relation: str, other: object) -> bool:
    b = size_or_none(other)
    if b is None:
        return NotImplemented
    lo, hi = bounds(a - b)
    if relation in (">", "<="):
        yes, no = lo > 0, hi <= 0
    else:
        yes, no = lo >= 0, hi < 0
    if not yes and not no:
        raise NodeTypeError(_unknown(f"whether {shown(a)} {relation} {shown(b)}"))
    return yes if relation in (">", ">=") else no


def _unknown(what: str) -> str:
    return f"{what} is only known when a function runs (gd.size(x, axis) is a size as a node)"


def shown(size: object) -> str:
    """A size in a message: never long, and safe for numbers too long for str()."""
    if isinstance(size, int) and size.bit_length() > 128:
        return f"about {'-' if size < 0 else ''}2**{size.bit_length() - 1}"
    return show_name(str(size))


def unify(a: Size, b: Size) -> Size | None:
    """The size of two axes that must agree, or None when they never can.

    Sizes that may turn out equal are taken to be: the number wins over the expression, else the first.
    """
    if a is b or a == b:
        return a
    difference = a - b
    if isinstance(difference, int) or difference.lo > 0 or difference.hi < 0:
        return None
    constant = dict(difference.terms).get((), 0)
    if constant % gcd(*(c for mono, c in difference.terms if mono)):   # 2*n is never 3
        return None
    return b if isinstance(b, int) else a


def evaluate(size: Size, bindings: Mapping[str, int]) -> int:
    """The number a size is when its names are `bindings`. ShapeError for a missing name or a division by zero."""
    if isinstance(size, int):
        return size
    missing = sorted(size.names() - bindings.keys())
    if missing:
        raise ShapeError(f"size {shown(size)} needs {show_name(missing[0])!r}, which no argument gives")
    return substitute(size, bindings)   # type: ignore[return-value]


def substitute(size: Size, bindings: Mapping[str, Size]) -> Size:
    """`size` with sizes put in the place of some of its names. ShapeError for a division by zero."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for mono, c in size.terms:
        term: Size = c
        for atom, power in mono:
            if atom.op == "name":
                value = bindings[atom.text] if atom.text in bindings else _of_atom(atom)
            else:
                value = _RECOMPUTE[atom.op](substitute(atom.left, bindings), substitute(atom.right, bindings))
            term = term * value**power
        total = total + term
    return total


_RECOMPUTE: dict[str, Callable[[Size, Size], Size]] = {"//": _floordiv, "%": _mod, "max": dim_max, "min": dim_min}
