"""Every public function called with what it does not take: a result, or an error of this library's that names the user's line, here this file.

The arguments are drawn from WRONG, one at a time beside fitting ones and all at random; the functions are those the package lists, so that a new
one is called before anyone writes a test of it.
"""
import inspect
import os
import random

import numpy as np
import pytest
from counting import checked

import graphdiff as gd
from graphdiff.errors import DTypeError, FormatError, GraphdiffError, NodeTypeError, NoRow, ShapeError

HERE = os.path.basename(__file__)
X, V, S = gd.input("x", (2, 3)), gd.input("v", (3,)), gd.input("s")
IDX, N, B = gd.input("i", (2,), "int64"), gd.input("n", ("n", 3)), gd.input("b", (2, 3), "bool")
W = gd.variable(np.ones(3), "w")


class Thing:
    pass


WRONG = [None, "abc", "", "/no/such/place", "ij,jk->ik", "same", "edge", "mean", "float16", b"abc", Thing(), -1, 0, 1, 2, 1.5, float("nan"), float("inf"),
         2**70, -2**70, True, 1j, np.int64(3), np.float32, int, lambda *a: a, Ellipsis, slice(1, 2), range(3), {1}, {}, {"a": 1}, {X: np.ones((2, 3))},
         [], [1, 2], [-1, -1], (0, 1), (0, 0), (2**40, 2**40), [[1, 2], [3]], [[[1.0]], 2], ["a"], np.ones((2, 2)), np.ones(5), np.ones(0),
         np.array([None, Thing()], object), np.array(["a", "b"]), np.array([7, -9]), np.array([np.nan, 1]), np.datetime64("2020-01-01"),
         np.ma.masked_array([1, 2], [0, 1]), X, V, S, IDX, N, B, W, N.shape[0], gd.random.key(1), gd.input("image", (1, 2, 6, 6)),
         gd.input("kernel", (3, 2, 3, 3)), gd.input("a", ("a", "b")), gd.input("u", (3,), "uint8"), gd.input("e", (0, 3)), [X, X], [X, V], [[X], [V]], {X}]
SKIPPED = ("Node", "Dim", "Function", "scope")          # types that no user makes, and a context
MODULES = {"gd": gd, "gd.nn": gd.nn, "gd.losses": gd.losses, "gd.optim": gd.optim, "gd.data": gd.data, "gd.random": gd.random,
           "gd.nn.init": gd.nn.init, "gd.optim.schedules": gd.optim.schedules}


def functions():
    for place, module in MODULES.items():
        for name in getattr(module, "__all__", None) or [k for k in dir(module) if not k.startswith("_")]:
            f = getattr(module, name)
            ours = getattr(f, "__module__", "").startswith("graphdiff") and (place in ("gd", "gd.nn") or f.__module__.endswith(place[3:]))
            if callable(f) and ours and name not in SKIPPED and not isinstance(f, np.dtype) and (hasattr(module, "__all__") or hasattr(f, "__wrapped__")):
                yield f"{place}.{name}", f


FUNCTIONS = dict(functions())


def refused_well(f, args, options):
    try:
        with np.errstate(all="ignore"):
            f(*args, **options)
    except GraphdiffError as error:
        assert HERE in str(error), (args, options, str(error))
    checked()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_arguments_give_an_error_at_the_users_line(name):
    f = FUNCTIONS[name]
    parameters = inspect.signature(f).parameters.values()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in places if p.default is p.empty]
    named = [p for p in parameters if p.kind == p.KEYWORD_ONLY]
    always = {p.name: 1 for p in named if p.default is p.empty}
    for wrong in WRONG:
        refused_well(f, [wrong] * max(len(needed), 1), always)
        for i in range(len(needed)):
            refused_well(f, [wrong if j == i else X for j in range(len(needed))], always)
        for p in [*places[len(needed):], *named]:
            refused_well(f, [X] * len(needed), {**always, p.name: wrong})
    draw = random.Random(name)
    for _ in range(40):
        options = {p.name: draw.choice(WRONG) for p in [*places[len(needed):], *named] if draw.random() < 0.3 or p.name in always}
        refused_well(f, draw.choices(WRONG, k=len(needed)), options)


METHODS = [k for k in dir(gd.Node) if (not k.startswith("_") or k in ("__getitem__", "__matmul__", "__pow__", "__rsub__", "__divmod__", "__lshift__"))
           and callable(getattr(gd.Node, k))]


@pytest.mark.parametrize("name", METHODS)
def test_wrong_arguments_of_a_nodes_methods(name):
    draw = random.Random(name)
    parameters = list(inspect.signature(getattr(gd.Node, name)).parameters.values())[1:]
    for _ in range(100):
        node = draw.choice([X, V, S, IDX, N, B])
        args, options = [], {}
        for p in parameters:
            if p.kind == p.VAR_POSITIONAL:
                args += draw.choices(WRONG, k=draw.randint(0, 3))
            elif p.default is p.empty and p.kind != p.VAR_KEYWORD:
                args.append(draw.choice(WRONG))
            elif p.kind != p.VAR_KEYWORD and draw.random() < 0.4:
                options[p.name] = draw.choice(WRONG)
        refused_well(getattr(node, name), args, options)


TRACE = gd.trace(gd.sum(X * X), at={X: np.ones((2, 3))})
DRAWING = gd.draw(X * 2.0)
SHRINKING = gd.data.batches(np.ones(4), lambda epoch: 2 - 3 * epoch)
next(iter(SHRINKING))                  # the first epoch
DENSE = gd.nn.Dense(3, 2, dtype="float64")


class NoTraining(gd.nn.Layer):
    def forward(self, x):
        return x


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda: gd.rule(3), NodeTypeError, "rule: a node is needed, not int"),
    (lambda: gd.to_networkx(X, at=3), NodeTypeError, "to_networkx: at is a dict"),
    (lambda: gd.data.batches(np.ones(4), 9), ShapeError, "batches: a batch of 9 is larger than the data, 4 samples"),
    (lambda: gd.data.batches([np.ones(4), np.ones(3)], 2), ShapeError, "batches: the arrays have 4, 3 samples"),
    (lambda: gd.data.batches(np.ones(4), 2, key=gd.constant(np.inf)), NodeTypeError, "batches: the key is an int or gd.random.key(int), not float64[]"),
    (lambda: list(SHRINKING), ShapeError, "batches: a size is a whole number"),
    (lambda: gd.fit(lambda x: 1.0, [1], epochs=-1), ShapeError, "fit: epochs is a whole number, at least 0, not -1"),
    (lambda: gd.fit(lambda x: None, [1], epochs=1), ShapeError, "fit: the step's first result, the loss, is None, one number is needed"),
    (lambda: gd.fit(lambda x: 1.0, [1], epochs=1, validate=dict), ShapeError, "fit: validate gives an empty dict"),
    (lambda: gd.fit(lambda x: 1.0, [], epochs=1), ShapeError, "fit: there are no batches"),
    (lambda: gd.nn.save("net.npz", 3), NodeTypeError, "save: a layer or a dict of arrays is needed, not int"),
    (lambda: gd.nn.load("net.txt"), FormatError, "load: net.txt: the suffix is"),
    (lambda: gd.nn.Flatten(3), NodeTypeError, "flatten: name is a str, not int"),
    (lambda: gd.optim.GradientDescent(-1), ShapeError, "GradientDescent: learning_rate is a number, at least 0"),
    (lambda: DENSE(V, training=2), NodeTypeError, "dense: training is True or False, not 2"),
    (lambda: DENSE(V, False), NodeTypeError, "dense: training is given by name"),
    (lambda: DENSE(V, mask=1), NodeTypeError, "dense: got an unexpected keyword argument 'mask'"),
    (lambda: NoTraining()(V), NodeTypeError, "notraining: NoTraining.forward has no parameter `training`"),
    (lambda: TRACE["q"], NoRow, "trace[...]: no row is called 'q'"), (lambda: TRACE.adjoint(V), NoRow, "adjoint: no row for"),
    (lambda: TRACE.value(V), NoRow, "value: y does not depend on"), (lambda: TRACE.run_to("q"), NoRow, "run_to: no row is called 'q'"),
    (lambda: TRACE.to_text(layout=np.ones(2)), NodeTypeError, "to_text: layout must be 'sides' or 'rows'"),
    (lambda: TRACE.to_text("3"), ShapeError, "to_text: max_rows must be an int, at least 0, or None, not '3'"),
    (lambda: TRACE.save(3), NodeTypeError, "save: a path is needed, not int"), (lambda: TRACE.save("t.doc"), FormatError, "save: no format for"),
    (lambda: DRAWING.save([]), NodeTypeError, "save: a path is needed, not list"),
    (lambda: DRAWING.render(3), NodeTypeError, "render: a form is a str, not int"),
    (lambda: gd.explain(gd.sum(X), X).draw(at=3), NodeTypeError, "draw: picture() got an unexpected keyword argument 'at'"),
    (lambda: gd.function([N], N).program, NodeTypeError, "program: this function has named sizes"),
    (lambda: setattr(W, "value", [[1, 2], [3]]), DTypeError, "w: value: cannot make an array of a list"),
    (lambda: pow(X, 2, 3), NodeTypeError, "power: pow with three arguments"),
    (lambda: gd.split(V, np.ma.masked_array([1, 2], [0, 1])), DTypeError, "split: the positions: masked arrays are not supported"),
    (lambda: gd.split(N, 2**70), ShapeError, "split: the number of sections must be from 1 to")])
def test_errors_name_the_function_the_argument_and_the_line(call, kind, message):
    with pytest.raises(kind) as info:
        call()
    assert str(info.value).startswith(message) and HERE in str(info.value)
    checked(2)


def test_rounding_to_more_digits_than_there_are():
    y = [gd.round(IDX, -2**70), gd.round(IDX, -19), gd.round(IDX, -18), gd.round(IDX, 2**70)]
    wants = [0, 0], [0, 0], [10**18, -9 * 10**18], [5 * 10**17 + 1, -(2**63)]
    for got, want in zip(gd.function([IDX], y)([5 * 10**17 + 1, -(2**63)]), wants, strict=True):
        np.testing.assert_array_equal(got, want)
        checked()
