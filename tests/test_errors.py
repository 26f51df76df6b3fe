"""Exceptions: what they are also, that they pickle, and the layout of messages."""
import copy
import importlib
import pickle
import pkgutil

import numpy as np
import pytest
from counting import checked
from hypothesis import given
from hypothesis import strategies as st

import graphdiff
import graphdiff as gd
from graphdiff import errors
from graphdiff.errors import compose, show_name

TREE = {
    "ShapeError": (ValueError,), "GradientError": (ValueError,), "ProgramError": (ValueError,),
    "FormatError": (ValueError,), "DTypeError": (TypeError,), "NodeTypeError": (TypeError,),
    "OutOfBounds": (IndexError,), "OutOfRange": (OverflowError,), "BadValue": (ValueError,), "NoMemory": (MemoryError,),
    "AxisError": (ValueError, IndexError, errors.ShapeError, errors.OutOfBounds),
    "NotANumber": (ValueError, TypeError, errors.ShapeError, errors.NodeTypeError),
    "NoValue": (TypeError, AttributeError), "NoRow": (KeyError,),
}


def test_the_tree_is_complete():
    found = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert found == {"GraphdiffError", *TREE}


@pytest.mark.parametrize("name", TREE)
def test_exception_is_also_the_builtin(name):
    cls = getattr(errors, name)
    assert issubclass(cls, (errors.GraphdiffError,)) and all(issubclass(cls, base) for base in TREE[name])


@pytest.mark.parametrize("name", ["GraphdiffError", *TREE])
def test_exception_pickles(name):
    error = getattr(errors, name)(compose("what", hint="do"))
    for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(twin) is type(error) and str(twin) == str(error) == "what\n  hint    do"


def test_columns_of_wide_characters_and_accents_line_up():
    text = compose("f", rows=[("left", ("画像", "a")), ("right", ("e\u0301", "b")), ("x", ("abc", "c"))])
    assert text.split("\n")[1:] == ["  left    画像   a", "  right   e\u0301      b", "  x       abc    c"]


def test_compose_is_the_layout_of_the_design():
    text = compose("matmul: inner sizes differ: left has 784 (axis 1), right has 10 (axis 0)",
                   at=("train.py:41", "logits = x @ w"),
                   rows=[("left", ("x", "float32[32, 784]", "input")),
                         ("right", ("w", "float32[10, 784]", "variable"))],
                   hint="x @ w.T has shape [32, 10]")
    assert text == """\
matmul: inner sizes differ: left has 784 (axis 1), right has 10 (axis 0)
  at      train.py:41   logits = x @ w
  left    x   float32[32, 784]   input
  right   w   float32[10, 784]   variable
  hint    x @ w.T has shape [32, 10]"""


def test_compose_aligns_columns_and_long_labels():
    assert compose("f", at="here", rows=[("operand 10", ("long name", "a")), ("b", ("x", "b", "c"))],
                   hint="one\ntwo") == """\
f
  at          here
  operand 10  long name   a
  b           x           b   c
  hint        one
              two"""


def test_the_last_cell_of_a_row_widens_no_column():
    assert compose("f", rows=[("a", ("x", "a long last cell")), ("b", ("y", "c", "d"))]) == """\
f
  a       x   a long last cell
  b       y   c   d"""


def test_compose_alone_is_what():
    assert compose("f: fact") == "f: fact"
    assert compose("f", rows=iter([("a", "b")])) == "f\n  a       b"
    assert compose("f", rows=[("a", ())]) == "f\n  a"


def test_compose_keeps_hostile_text_on_its_line():
    text = compose("f", at=("x.py:1", "a\nb"), rows=[("r\n", "n\r\x00\u2028\u202e" + "y" * 10**6)])
    assert text.count("\n") == 2 and len(text) < 300 and len(text.splitlines()) == 3
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(("name", "shown"), [
    ("w", "w"), ("", "''"), ("a\\", "a\\"), ("größe", "größe"), ("a\nb\r", "a\\nb\\r"), ("\x00", "\\x00"),
    ("\u202etxt", "\\u202etxt"), ("\ud800", "\\ud800"), ("\U000e0001", "\\U000e0001"), ("🙂", "🙂"),
    ("a\u00a0b", "a\\xa0b"),
    ('"]; evil [label="x', '"]; evil [label="x'), ("x" * 60, "x" * 60), ("x" * 61, "x" * 59 + "…"),
    ("x" * 58 + "\n", "x" * 58 + "\\n"), ("x" * 59 + "\n", "x" * 59 + "…"), ("\n" * 40, "\\n" * 29 + "…"),
])
def test_show_name(name, shown):
    assert show_name(name) == shown


@given(st.text(alphabet=st.characters(), max_size=80), st.integers(2, 70))
def test_show_name_is_one_short_printable_line(name, limit):
    shown = show_name(name, limit)
    assert shown and len(shown) <= limit and shown.isprintable()
    shown.encode("utf-8")   # no lone surrogate is left


def test_show_name_of_a_megabyte_is_quick():
    assert show_name("\x00" * 10**6) == "\\x00" * 14 + "…"


def test_every_exception_of_the_package_is_of_the_tree_says_what_it_is_and_has_a_name_of_its_own():
    found = {}
    for module in pkgutil.walk_packages(graphdiff.__path__, "graphdiff."):
        if module.name.endswith(("__main__", "_native")) or ".bench" in module.name:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, Exception) and value.__module__.startswith("graphdiff"):
                assert found.setdefault(value.__name__, value) is value, f"two classes are called {name}"
                assert issubclass(value, errors.GraphdiffError) and (value.__doc__ or "").endswith("."), value
    assert {"GraphdiffError", *TREE} <= set(found)
    assert all(getattr(graphdiff.errors, name) is found[name] and found[name].__module__ == "graphdiff.errors" for name in TREE)


def test_operands_of_two_dtypes_have_their_own_names():
    """What is brought to the dtype of the other is shown as it was given."""
    x, w = gd.input("pixels", (3, 4), "float32"), gd.variable(np.zeros((5, 2)), "weights")
    for build in (lambda: x @ w, lambda: w @ x, lambda: x + w, lambda: x ** w, lambda: gd.maximum(w, x), lambda: gd.einsum("ij,jk->ik", x, w),
                  lambda: gd.where(x > 0, x, w), lambda: gd.concatenate([x, w]), lambda: gd.hypot(x, w)):
        with pytest.raises(errors.ShapeError) as caught:
            build()
        text = str(caught.value)
        assert "pixels float32[3, 4] input" in " ".join(text.split()) and "weights float64" in " ".join(text.split()) and " cast" not in text, text
        checked()


def test_operands_are_named_where_named_sizes_turn_out_not_to_fit():
    x, z = gd.input("rows", ("b", 4)), gd.input("offsets", ("c",))
    for build in (lambda: x.sum(1) + z, lambda: z @ x, lambda: gd.einsum("ij,i->j", x, z), lambda: gd.stack([z, x[:, 0]]),
                  lambda: gd.where(z > 0, z, x[:, 1])):
        f = gd.function([x, z], build())
        with pytest.raises(errors.ShapeError) as caught:
            f(np.ones((3, 4)), np.ones(2))
        assert "offsets" in str(caught.value) and "build in" not in str(caught.value).splitlines()[0], str(caught.value)
        assert "\n  at " in str(caught.value) and "test_errors.py" in str(caught.value)
        checked()


@pytest.mark.parametrize(("call", "argument"), [
    (lambda x: x + "a", "the right operand: dtype <U1"), (lambda x: np.array(["b"]) * x, "the left operand: dtype <U1"),
    (lambda x: gd.maximum(x, np.ones(3, complex)), "the right operand: dtype complex128"), (lambda x: x @ "a", "y: dtype <U1"),
    (lambda x: gd.kron(x, "a"), "y: dtype <U1"), (lambda x: gd.full((2,), "a"), "fill_value: dtype <U1"),
    (lambda x: gd.pad(np.ones(3, complex), 1, mode="edge"), "x: dtype complex128"),
])
def test_an_operand_of_no_dtype_of_ours_is_named(call, argument):
    with pytest.raises(errors.DTypeError) as caught:
        call(gd.input("x", (3,)))
    assert argument in str(caught.value) and "test_errors.py" in str(caught.value)
    checked()
