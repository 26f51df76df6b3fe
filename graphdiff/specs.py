"""Sizes and shapes: named dimensions, their arithmetic, broadcasting, and the checks every shape passes.

A size is an int or a Dim, a shape a tuple of sizes; nothing else enters (`as_shape` is the gate). A Dim is a polynomial
with integer coefficients over names (each at least 0) and over //, %, max and min of other sizes. It is kept in one
canonical form: equal sizes print, compare and hash equal, and what is constant is an int. A comparison with one answer
for all values of the names has it, any other is a TypeError. A divisor is taken to be nonzero: batch*28 // batch is 28.
Text, degree and depth of an expression are bounded: hostile sizes cost a ShapeError. Messages are one-line facts.
"""
from __future__ import annotations

import operator
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import AxisError, NodeTypeError, ShapeError, show_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    Bound: TypeAlias = int | float                          # an int, or plus or minus infinity
    Mono: TypeAlias = tuple[tuple["Atom", int], ...]        # atoms and their powers, sorted by text; () is 1
    Poly: TypeAlias = dict[Mono, int]
    Size: TypeAlias = "int | Dim"
    Shape: TypeAlias = tuple[Size, ...]

MAX_NDIM = 32                    # axes of a shape (half of NumPy 2's 64), and room for any real network
MAX_NBYTES = 2**63 - 1           # of one array: sizes, strides and byte offsets are int64_t in the C core
NAME_LIMIT = 100                 # characters in the name of a dimension
TEXT_LIMIT = 20_000              # characters in a size expression: about a thousand names added up
DEPTH_LIMIT = 50                 # nesting of // % max min in each other; a chain of strided convolutions has depth 1
DEGREE_LIMIT = 64                # factors in one product: twice the axes of a shape
COEFFICIENT_LIMIT = 2**256       # beyond any product of sizes that occurs; keeps text and arithmetic short
PRODUCT_LIMIT = 100_000          # pairs of terms multiplied at once
INF = float("inf")


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
    atom.lo, atom.hi, atom.depth, atom.names = 0, INF, 0, frozenset((name,))
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
    atom.lo, atom.hi = _BOUNDS[op](_bounds(left), _bounds(right))
    return atom


def _operand_text(size: Size) -> str:
    """`size` as it stands beside // or %: in brackets unless it is one name, one call or a plain number."""
    if isinstance(size, int):
        return str(size) if size >= 0 else f"({size})"
    mono, coefficient = size.terms[0]
    alone = len(size.terms) == 1 and coefficient == 1 and len(mono) == 1 and mono[0][1] == 1
    return size.text if alone and mono[0][0].op not in ("//", "%") else f"({size.text})"


# Bounds: the interval a size lies in whatever the names are. Infinite ends need care: 0 * inf is 0 here, and a large
# int and a float must never meet in arithmetic (OverflowError).

def _bounds(size: Size) -> tuple[Bound, Bound]:
    return (size, size) if isinstance(size, int) else (size.lo, size.hi)


def _add(a: Bound, b: Bound) -> Bound:
    return a if abs(a) == INF else b if abs(b) == INF else a + b


def _mul(a: Bound, b: Bound) -> Bound:
    if a == 0 or b == 0:
        return 0
    if abs(a) == INF or abs(b) == INF:
        return INF if (a > 0) == (b > 0) else -INF
    return a * b


def _div(a: Bound, k: Bound) -> Bound:
    return a if abs(a) == INF else a // k


def _mul_bounds(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    ends = [_mul(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _floordiv_bounds(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    if b[0] == b[1]:   # a positive int
        return _div(a[0], b[0]), _div(a[1], b[0])
    if b[0] < 0:
        return -INF, INF
    return min(a[0], 0), (a[1] if a[1] >= 0 else -1)   # the divisor is at least 1 wherever this has a value


def _mod_bounds(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    if b[0] < 0:
        return -INF, INF
    top = max(_add(b[1], -1), 0)
    return 0, (min(top, a[1]) if a[0] >= 0 else top)


_BOUNDS: dict[str, Callable[[tuple[Bound, Bound], tuple[Bound, Bound]], tuple[Bound, Bound]]] = {
    "//": _floordiv_bounds,
    "%": _mod_bounds,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}


class Dim:
    """A size known only when a function meets arrays. Immutable; made by `Dim.name` and by arithmetic.

    >>> batch, length = Dim.name("batch"), Dim.name("length")
    >>> batch * 28, (length + 1) // 2, batch * 28 // 28, (length + 1) * 2 - 2 * length
    (batch*28, (length + 1)//2, batch, 2)
    """

    __slots__ = ("hi", "lo", "terms", "text")
    __array_ufunc__ = None   # np.int64(3) * dim comes to __rmul__

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
            raise ShapeError(f"{show_name(name)!r} cannot name a size: a name is letters, digits and _, "
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

    def __add__(self, other: object) -> Size:
        size = _size(other)
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
        size = _size(other)
        return NotImplemented if size is None else self + -size

    def __rsub__(self, other: object) -> Size:
        size = _size(other)
        return NotImplemented if size is None else -self + size

    def __mul__(self, other: object) -> Size:
        size = _size(other)
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
        if not isinstance(power, int) or isinstance(power, bool):
            return NotImplemented
        if not 0 <= power <= DEGREE_LIMIT:
            raise ShapeError(f"the power of a size is a number from 0 to {DEGREE_LIMIT}")
        out: Size = 1
        for _ in range(power):
            out = out * self
        return out

    def __floordiv__(self, other: object) -> Size:
        size = _size(other)
        return NotImplemented if size is None else _floordiv(self, size)

    def __rfloordiv__(self, other: object) -> Size:
        size = _size(other)
        return NotImplemented if size is None else _floordiv(size, self)

    def __mod__(self, other: object) -> Size:
        size = _size(other)
        return NotImplemented if size is None else _mod(self, size)

    def __rmod__(self, other: object) -> Size:
        size = _size(other)
        return NotImplemented if size is None else _mod(size, self)

    def __divmod__(self, other: object) -> tuple[Size, Size]:
        size = _size(other)
        return NotImplemented if size is None else (_floordiv(self, size), _mod(self, size))

    def __rdivmod__(self, other: object) -> tuple[Size, Size]:
        size = _size(other)
        return NotImplemented if size is None else (_floordiv(size, self), _mod(size, self))

    def __truediv__(self, other: object) -> Size:
        if _size(other) is None:
            return NotImplemented
        raise NodeTypeError(f"the size {_shown(self)} divides by //, to a size; "
                            "as a value in the graph, write gd.size(x, axis) and divide that")

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
        raise NodeTypeError(_unknown(f"whether {_shown(self)} is zero"))

    def __index__(self) -> int:
        raise NodeTypeError(_unknown(f"the size {_shown(self)}"))

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


# Canonical polynomials.

def _size(x: object) -> Size | None:
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
        lo, hi = _add(lo, ends[0]), _add(hi, ends[1])
    if lo == hi:
        return int(lo)
    text = _text(terms)
    if len(text) > TEXT_LIMIT:
        raise ShapeError(f"a size expression is longer than {TEXT_LIMIT} characters: {show_name(text)}")
    dim = object.__new__(Dim)
    for slot, value in (("terms", terms), ("text", text), ("lo", lo), ("hi", hi)):
        object.__setattr__(dim, slot, value)
    return dim


def _mono_bounds(mono: Mono, c: int) -> tuple[Bound, Bound]:
    out: tuple[Bound, Bound] = (c, c)
    for atom, power in mono:
        one = (atom.lo, atom.hi)
        for _ in range(power):
            out = _mul_bounds(out, one)
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
        raise ShapeError(f"size {_shown(a)} is divided by zero")
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
        raise ShapeError(f"size {_shown(a)} is divided by zero")
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
    lo, hi = _bounds(inner)
    reduced = inner if lo >= 0 and hi < k // g else _op("%", inner, k // g)
    return g * reduced + constant % g


def dim_max(a: Size, b: Size) -> Size:
    """The larger of two sizes; undecided it stays in the expression: dim_max(length - 1, 0) is max(length - 1, 0)."""
    return _extreme("max", a, b)


def dim_min(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    return _extreme("min", a, b)


def _extreme(op: str, a: Size, b: Size) -> Size:
    lo, hi = _bounds(a - b)
    if lo >= 0:
        return a if op == "max" else b
    if hi <= 0:
        return b if op == "max" else a
    a, b = sorted((a, b), key=lambda size: (isinstance(size, int), str(size)))   # numbers last
    return _op(op, a, b)


# Questions.

def _ask(a: Dim, relation: str, other: object) -> bool:
    b = _size(other)
    if b is None:
        return NotImplemented
    lo, hi = _bounds(a - b)
    if relation in (">", "<="):
        yes, no = lo > 0, hi <= 0
    else:
        yes, no = lo >= 0, hi < 0
    if not yes and not no:
        raise NodeTypeError(_unknown(f"whether {_shown(a)} {relation} {_shown(b)}"))
    return yes if relation in (">", ">=") else no


def _unknown(what: str) -> str:
    return f"{what} is only known when a function runs (gd.size(x, axis) is a size as a node)"


def _shown(size: object) -> str:
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
        raise ShapeError(f"size {_shown(size)} needs {show_name(missing[0])!r}, which no argument gives")
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


def match(size: Size, value: int, bindings: dict[str, int]) -> None:
    """Make `size` equal `value`: bind its one unknown name in `bindings`, or check; ShapeError when it cannot be.

    A name is solved for where the size is a*name + b once the other names are known, `a` a number.
    """
    left = substitute(size, bindings)
    if isinstance(left, int):
        if left != value:
            raise ShapeError(_mismatch(size, value, bindings, left))
        return
    solved = _linear(left)
    if solved is None:
        raise ShapeError(f"{_shown(size)} = {_shown(value)} does not tell {', '.join(sorted(left.names()))}")
    name, a, b = solved
    count, remainder = divmod(value - b, a)
    if remainder or count < 0:
        raise ShapeError(f"{_shown(size)} cannot be {_shown(value)} for any {show_name(name)}")
    bindings[name] = count


def match_shapes(pairs: Iterable[tuple[Shape, tuple[int, ...]]], bindings: dict[str, int]) -> None:
    """Match declared shapes with the real ones, in an order that finds every name: ("n*m",) may come before ("n",)."""
    waiting: list[tuple[Size, int]] = []
    for shape, real in pairs:
        if len(shape) != len(real):
            raise ShapeError(f"expected shape {format_shape(shape)}, not {format_shape(real)}")
        waiting += zip(shape, real, strict=True)
    while waiting:
        later = []
        for size, value in waiting:
            left = substitute(size, bindings)
            if isinstance(left, int) or _linear(left) is not None:
                match(size, value, bindings)
            else:
                later.append((size, value))
        if len(later) == len(waiting):
            match(*later[0], bindings)   # raises: this size cannot be solved
        waiting = later


def _linear(dim: Dim) -> tuple[str, int, int] | None:
    """(name, a, b) when dim is a*name + b, else None."""
    mono, a = dim.terms[0]
    if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].op != "name" or any(m for m, _ in dim.terms[1:]):
        return None
    return mono[0][0].text, a, dict(dim.terms).get((), 0)


def _mismatch(size: Size, value: int, bindings: Mapping[str, int], left: int) -> str:
    if isinstance(size, int):
        return f"expected size {_shown(size)}, not {_shown(value)}"
    names = sorted(size.names() & bindings.keys())[:4]
    known = ", ".join(f"{show_name(name)} = {_shown(bindings[name])}" for name in names)
    told = f" ({known})" if _linear(size) != (size.text, 1, 0) else ""
    return f"size {_shown(size)} is {_shown(left)} elsewhere{told}, but {_shown(value)} here"


# Shapes.

def as_shape(x: object) -> Shape:
    """A shape from a size or a sequence of sizes; a size is a whole number >= 0, a Dim, or a name.

    >>> as_shape(3), as_shape("batch"), as_shape(("batch", 784)), as_shape([np.int64(2), 0])
    ((3,), (batch,), (batch, 784), (2, 0))
    """
    if isinstance(x, np.ndarray):
        if x.ndim > 1:
            raise NodeTypeError(f"an array with {x.ndim} axes is not a shape")
        x = list(x) if x.ndim else x[()]   # the elements are judged as NumPy scalars: floats and bools are refused
    if isinstance(x, (str, int, float, np.generic)) or hasattr(type(x), "__index__"):
        return (_as_size(x),)
    if not isinstance(x, (tuple, list, range)):
        raise NodeTypeError(f"a shape is a size or a tuple of sizes, not {show_name(type(x).__name__)}")
    if len(x) > MAX_NDIM:
        raise ShapeError(f"a shape has at most {MAX_NDIM} axes, not {len(x)}")
    return tuple([_as_size(size) for size in x])


def _index(x: object) -> int | None:
    """`x` as an int by __index__, or None. What a node says of itself there passes."""
    try:
        return operator.index(x)   # type: ignore[arg-type]
    except NodeTypeError:
        raise
    except TypeError:
        return None


def _as_size(x: object) -> Size:
    if isinstance(x, str):
        return Dim.name(x)
    size = _size(x)
    if size is None and not isinstance(x, (bool, float, np.generic)):
        size = _index(x)
    if size is None:
        raise NodeTypeError(f"a size is a whole number, a Dim or a name, not {show_name(type(x).__name__)}")
    lo, hi = _bounds(size)
    if hi < 0:
        raise ShapeError(f"a size cannot be negative: {_shown(size)}")
    if lo > MAX_NBYTES:
        raise ShapeError(f"a size must be below 2**63, not {_shown(size)}")
    return size


def check_shape(shape: Shape, dtype: np.dtype[Any]) -> Shape:
    """`shape` itself if an array of `dtype` can have it, else ShapeError. Nothing is allocated.

    At most 32 axes, no negative size, and the product of the nonzero numbers and the item size fits 2**63 - 1: zeros do
    not excuse the rest, since strides are made of it. Named sizes are checked when they are known.
    """
    if len(shape) > MAX_NDIM:
        raise ShapeError(f"a shape has at most {MAX_NDIM} axes, not {len(shape)}")
    nbytes = dtype.itemsize
    for axis, size in enumerate(shape):
        if _bounds(size)[1] < 0:
            raise ShapeError(f"a size cannot be negative: {_shown(size)} (axis {axis}) in {format_shape(shape)}")
        if isinstance(size, int) and size:
            nbytes *= size
        if nbytes > MAX_NBYTES:
            raise ShapeError(f"{format_spec(shape, dtype)} is too large: the nonzero sizes make over 2**63 - 1 bytes")
    return shape


def broadcast(*shapes: Shape) -> Shape:
    """The common shape of operands, by NumPy's rules; ShapeError when there is none.

    A named size against 1 is the named size; against any other it is taken to be equal, as in `unify`, and
    `check_broadcast` holds it to that when the names are known.
    """
    if len(shapes) == 2:   # nearly every call
        a, b = shapes
        if a is b or a == b or not b:
            return a
        return _broadcast_pair(a, b, shapes) if a else b
    out: Shape = ()
    for shape in shapes:
        if shape and out != shape:
            out = _broadcast_pair(out, shape, shapes)
    return out


def _broadcast_pair(a: Shape, b: Shape, shapes: tuple[Shape, ...]) -> Shape:
    extra = len(a) - len(b)
    if extra > 0 and a[extra:] == b:   # a bias
        return a
    out = list(a[:extra] if extra > 0 else b[:-extra] if extra < 0 else ())
    for i, (m, n) in enumerate(zip(a[max(extra, 0):], b[max(-extra, 0):], strict=True), len(out)):
        size = n if m == 1 else m if n == 1 or m == n else unify(m, n)
        if size is None:
            raise ShapeError(f"{_and(shapes)} do not broadcast: sizes {_shown(m)} and {_shown(n)} "
                             f"(axis {i - max(len(a), len(b))})")
        out.append(size)
    return tuple(out)


def check_broadcast(shapes: Iterable[Shape], bindings: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers of broadcast(*shapes) under `bindings`; ShapeError where sizes taken to be equal are not.

    A named size does not stretch: if it turns out to be 1 beside a 5, that is an error, since the graph (and every
    derivative in it) was built for equal sizes. Only an axis written as 1 stretches.
    """
    shapes = tuple(shapes)
    out: list[int] = []
    for axis in range(-max((len(shape) for shape in shapes), default=0), 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis and shape[axis] != 1]
        values = [evaluate(size, bindings) for size in sizes]
        for size, value in zip(sizes, values, strict=True):
            if value != values[0]:
                raise ShapeError(f"{_and(shapes)} do not broadcast here: {_told(sizes[0], values[0])}, "
                                 f"{_told(size, value)} (axis {axis}); only an axis declared as 1 stretches")
        out.append(values[0] if values else 1)
    return tuple(out)


def _told(size: Size, value: int) -> str:
    return f"{_shown(size)} is {_shown(value)}" if isinstance(size, Dim) else f"the other {_shown(value)}"


def _and(shapes: tuple[Shape, ...]) -> str:
    texts = [format_shape(shape) for shape in shapes[:4]] + (["..."] if len(shapes) > 4 else [])
    return "shapes " + ", ".join(texts[:-1]) + " and " + texts[-1]


def nelements(shape: Shape) -> Size:
    """The product of the sizes; 1 for ()."""
    return prod(shape)


def has_dims(shape: Shape) -> bool:
    """Is any size not a number?"""
    return any(isinstance(size, Dim) for size in shape)


def evaluate_shape(shape: Shape, bindings: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers a shape is when its names are `bindings`; ShapeError when one is negative."""
    if not has_dims(shape):
        return shape   # type: ignore[return-value]
    out = tuple([evaluate(size, bindings) for size in shape])
    for size, value in zip(shape, out, strict=True):
        if value < 0:
            raise ShapeError(f"size {_shown(size)} in {format_shape(shape)} is negative: {_shown(value)}")
    return out


def format_shape(shape: Shape) -> str:
    """As in "[32, batch]"; "[]" for a scalar."""
    return f"[{', '.join([_shown(size) for size in shape])}]"


def format_spec(shape: Shape, dtype: np.dtype[Any]) -> str:
    """As in "float32[32, 784]"."""
    return dtype.name + format_shape(shape)


# Axes.

def normalize_axis(axis: object, ndim: int, what: str = "") -> int:
    """`axis` counted from the front; AxisError outside [-ndim, ndim). `what`, if any, opens the message."""
    number = None if isinstance(axis, (bool, np.bool_)) else _index(axis)
    if number is None:
        raise NodeTypeError(f"{_opening(what)}an axis is a whole number, not {show_name(type(axis).__name__)}")
    if not -ndim <= number < ndim:
        raise AxisError(f"{_opening(what)}axis {_shown(number)} is out of bounds for array of dimension {ndim}")
    return number + ndim if number < 0 else number


def normalize_axes(axis: object, ndim: int, what: str = "") -> tuple[int, ...]:
    """One axis, several or None (all) as a tuple counted from the front, in the order given; no axis twice."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (normalize_axis(axis, ndim, what),)
    axes = tuple([normalize_axis(one, ndim, what) for one in axis])
    if len(set(axes)) != len(axes):
        twice = next(one for i, one in enumerate(axes) if one in axes[:i])
        raise ShapeError(f"{_opening(what)}axis {twice} is given twice")
    return axes


def _opening(what: str) -> str:
    return f"{what}: " if what else ""
