"""The exceptions, and the composer of their messages.

Every error the library raises on purpose is a GraphdiffError and also the builtin a NumPy user would catch
(ValueError, TypeError, IndexError, OverflowError, MemoryError). A message says what failed, where the user's code built it, what was seen and, when
it is certain, what to write instead; `compose` lays these out the same way everywhere. Inner layers raise one-line
facts; the layers that know names and source lines wrap them. All exceptions hold one string, so they pickle.
"""
from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    Cells: TypeAlias = str | Sequence[str]


class GraphdiffError(Exception):
    """Root of every error graphdiff raises on purpose."""


class ShapeError(GraphdiffError, ValueError):
    """Sizes that do not fit each other, or that no array can have."""


class GradientError(GraphdiffError, ValueError):
    """A derivative that does not exist, is not connected, or has no rule yet."""


class ProgramError(GraphdiffError, ValueError):
    """A program the verifier refuses."""


class FormatError(GraphdiffError, ValueError):
    """Bytes or text that are not what they claim to be."""


class DTypeError(GraphdiffError, TypeError):
    """An element type that is not supported here."""


class NodeTypeError(GraphdiffError, TypeError):
    """A value of a kind that cannot be used here, or a node used as if it were a number."""


class NoValue(NodeTypeError, AttributeError):
    """A value that is not there before a function runs; an AttributeError too, so that hasattr understands it."""


class NoRow(GraphdiffError, KeyError):
    """A step that a trace does not have."""

    __str__ = Exception.__str__          # a KeyError shows its text in quotes


class OutOfBounds(GraphdiffError, IndexError):
    """An index outside its axis."""


class BadValue(GraphdiffError, ValueError):
    """A number that an operation refuses."""


class OutOfRange(GraphdiffError, OverflowError):
    """A number that its dtype cannot hold."""


class NoMemory(GraphdiffError, MemoryError):
    """More memory than the machine has or gives."""


class NotANumber(ShapeError, NodeTypeError):
    """Something else where a number of some range is needed: both errors, since callers catch the one of a number outside, too."""


class AxisError(ShapeError, OutOfBounds):
    """An axis number outside the shape; like NumPy's, both a ValueError and an IndexError."""


def located_error(error: GraphdiffError) -> GraphdiffError:
    """Marks an error whose message already names the user's line, so that no outer layer adds another."""
    error.located = True      # type: ignore[attr-defined]
    return error


LABEL_WIDTH = 6   # the column of labels in a message; "right" and a space more
SOURCE_LIMIT = 100   # characters of one cell: a spec of 32 axes still fits, a minified source line does not


def compose(what: str, *, at: Cells | None = None, rows: Iterable[tuple[str, Cells]] = (),
            hint: str | None = None) -> str:
    """The text of an error: `what`, then indented and aligned lines for `at`, each row, and `hint`.

    `what` is used as it is (put names through `show_name`). `at` and the text of a row are a string, or several strings
    set in columns: the columns of all rows line up. A hint may have several lines.

    >>> print(compose("matmul: inner sizes differ: 784 and 10", at=("train.py:41", "logits = x @ w"),
    ...               rows=[("left", ("x", "float32[32, 784]")), ("right", ("weight", "float32[10, 784]"))]))
    matmul: inner sizes differ: 784 and 10
      at      train.py:41   logits = x @ w
      left    x        float32[32, 784]
      right   weight   float32[10, 784]
    """
    lines = [] if at is None else [("at", _columns([_cells(at)])[0])]
    rows = list(rows)
    texts = _columns([_cells(text) for _, text in rows])
    lines += [(one_line(label, 30), text) for (label, _), text in zip(rows, texts, strict=True)]
    if hint is not None:
        first, *more = hint.split("\n")
        lines += [("hint", first), *(("", line) for line in more)]
    width = max([LABEL_WIDTH, *(columns(label) for label, _ in lines)])
    return "\n".join([what, *(f"  {padded(label, width)}  {text}".rstrip() for label, text in lines)])


def show_name(name: str, limit: int = 60) -> str:
    """`name` fit to be shown: on one line, nothing invisible, at most `limit` (at least 2) characters.

    Control, bidirectional and other unprintable characters and lone surrogates become escapes such as \\n and \\u202e;
    a longer name ends in an ellipsis; the empty name is ''. Backslashes stay. Markup (HTML, DOT) is not escaped.
    """
    return one_line(name, limit) if name else "''"


def one_line(text: str, limit: int) -> str:
    """`text` without control characters, which become escapes, and with an ellipsis at its end when it is longer than `limit`."""
    if len(text) <= limit and text.isprintable():
        return text
    pieces: list[str] = []
    used = keep = 0   # the first `keep` pieces leave room for the ellipsis
    for char in text[:limit + 1]:
        piece = char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        used += len(piece)
        if used > limit:
            return "".join(pieces[:keep]) + "…"
        pieces.append(piece)
        if used < limit:
            keep = len(pieces)
    return "".join(pieces)


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes: two for a wide character (UAX 11), none for an accent that is put on the one before."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(c) in "WF" else 0 if combining(c) else 1 for c in text)


def padded(text: str, width: int) -> str:
    """`text` and spaces up to so many columns."""
    return text + " " * (width - columns(text))


def _cells(text: Cells) -> list[str]:
    return [one_line(cell, SOURCE_LIMIT) for cell in ([text] if isinstance(text, str) else text)]


def _columns(table: list[list[str]]) -> list[str]:
    """Each row of cells as one string, three spaces between columns, all but the last cell of a row padded."""
    count = max((len(row) for row in table), default=0)
    widths = [max((columns(row[i]) for row in table if len(row) > i + 1), default=0) for i in range(count)]
    return ["   ".join([*(padded(cell, width) for cell, width in zip(row[:-1], widths, strict=False)), *row[-1:]])
            for row in table]
