"""Batches and the training loop: order, sizes, history, early stopping, interruption, losses that are not finite."""
from __future__ import annotations

import numpy as np
import pytest

import graphdiff as gd
from graphdiff.errors import GraphdiffError, NodeTypeError, ShapeError
from graphdiff.training import NotFinite

RNG = np.random.default_rng(3)


# -- batches --------------------------------------------------------------------------------------------------------------

def test_every_sample_once_and_another_order_each_pass():
    xs = np.arange(10.0)
    b = gd.data.batches([xs, 2 * xs], 4, key=1)
    passes = [[tuple(map(np.array, pair)) for pair in b] for _ in range(2)]
    for p in passes:
        assert [len(x) for x, _ in p] == [4, 4, 2]
        np.testing.assert_array_equal(np.sort(np.concatenate([x for x, _ in p])), xs)
        for x, t in p:
            np.testing.assert_array_equal(t, 2 * x)
    assert not np.array_equal(np.concatenate([x for x, _ in passes[0]]), np.concatenate([x for x, _ in passes[1]]))
    again = gd.data.batches([xs, 2 * xs], 4, key=gd.random.key(1))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in again]), np.concatenate([x for x, _ in passes[0]]))


def test_sizes_names_and_order():
    xs = np.arange(10)
    assert [x.tolist() for x, in gd.data.batches([xs], 4, shuffle=False, drop_last=True)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(gd.data.batches(xs, 4)) == 3 and len(gd.data.batches(xs, 4, drop_last=True)) == 2
    first = next(iter(gd.data.batches({"x": xs, "t": -xs}, 3, shuffle=False)))
    assert first["x"].tolist() == [0, 1, 2] and first["t"].tolist() == [0, -1, -2]
    growing = gd.data.batches(xs, gd.optim.schedules.growing_batch(2, 2, 1, 8))
    assert [[len(x) for x, in growing] for _ in range(3)] == [[2] * 5, [4, 4, 2], [8, 2]]


def test_bad_data_is_named():
    with pytest.raises(ShapeError, match="empty"):
        gd.data.batches([np.zeros((0, 3))], 1)
    with pytest.raises(ShapeError, match="larger than the data, 3 samples"):
        gd.data.batches([np.zeros(3)], 4)
    with pytest.raises(ShapeError, match="3, 4 samples"):
        gd.data.batches([np.zeros(3), np.zeros(4)], 1)
    with pytest.raises(ShapeError, match="size"):
        gd.data.batches([np.zeros(3)], 0)
    with pytest.raises(ShapeError, match="no arrays"):
        gd.data.batches([], 1)
    with pytest.raises(NodeTypeError, match="array 0"):
        gd.data.batches([np.array(["a"])], 1)
    with pytest.raises(NodeTypeError, match="key"):
        gd.data.batches([np.zeros(3)], 1, key="seed")


# -- fit ------------------------------------------------------------------------------------------------------------------

def regression(rate=0.1):
    """(step, weight, arrays): t = 3 x."""
    x, t = gd.input("x", ("batch",)), gd.input("t", ("batch",))
    w = gd.variable(0.0, "w")
    loss = gd.losses.mse(w * x, t)
    xs = RNG.standard_normal(50)
    return gd.function([x, t], loss, updates=gd.optim.GradientDescent(rate).updates(loss, [w])), w, [xs, 3 * xs]


def test_fit_learns_and_records(capfd):
    step, w, arrays = regression()
    history = gd.fit(step, gd.data.batches(arrays, 16, key=0), epochs=30, validate=lambda: {"error": abs(float(w.value) - 3)}, progress=True)
    assert abs(float(w.value) - 3) < 1e-3
    assert history.loss.shape == (120,) and history["loss"].shape == history["error"].shape == (30,)
    assert history.stopped == "finished" and history["error"][-1] < 1e-3
    assert "120 steps" in repr(history)
    assert "120/120" in capfd.readouterr().err


def test_dict_batches_and_dict_outputs():
    x, t = gd.input("x", ("batch",)), gd.input("t", ("batch",))
    w = gd.variable(0.0, "w")
    loss = gd.losses.mse(w * x, t)
    step = gd.function([x, t], {"other": w, "loss": loss}, updates=gd.optim.GradientDescent(0.1).updates(loss, [w]))
    xs = RNG.standard_normal(20)
    history = gd.fit(step, gd.data.batches({"t": 3 * xs, "x": xs}, 5), epochs=20, progress=False)
    assert abs(float(w.value) - 3) < 1e-2 and history.loss[0] > history.loss[-1]


def test_early_stopping_puts_back_the_best_weights():
    step, w, arrays = regression()
    scores = iter([5.0, 1.0, 2.0, 3.0, 0.0])
    seen = []

    def validate():
        seen.append(float(w.value))
        return next(scores)
    history = gd.fit(step, gd.data.batches(arrays, 50), epochs=100, validate=validate, patience=2, progress=False)
    assert history.stopped == "patience" and history.best_epoch == 1 and len(history["loss"]) == 4
    assert float(w.value) == seen[1] != seen[3]


def test_the_best_weights_come_back_when_the_epochs_end_first():
    step, w, arrays = regression()
    scores, seen = iter([5.0, 1.0, 2.0]), []

    def validate():
        seen.append(float(w.value))
        return next(scores)
    history = gd.fit(step, gd.data.batches(arrays, 50), epochs=3, validate=validate, patience=9, progress=False)
    assert history.stopped == "finished" and float(w.value) == seen[1]


def test_interruption_leaves_usable_weights_and_history():
    step, w, arrays = regression()
    calls = iter([1.0, 1.0, None])

    def validate():
        value = next(calls)
        if value is None:
            raise KeyboardInterrupt
        return value
    history = gd.fit(step, gd.data.batches(arrays, 25), epochs=100, validate=validate, progress=False)
    assert history.stopped == "interrupted" and len(history.loss) == 6 and np.isfinite(float(w.value))
    assert len(history["loss"]) == len(history["validation"]) == 2
    step(*arrays)


@pytest.mark.parametrize("at", [0, 3, 31, 32, 33, 70])
def test_a_loss_that_is_not_finite_stops_with_the_weights_before(at):
    step, w, arrays = regression()
    good = (arrays[0][:10], arrays[1][:10])
    path = [float(w.value)]
    for _ in range(at):
        step(*good)
        path.append(float(w.value))
    w.value = 0.0
    bad = (good[0], np.where(np.arange(10) == 4, np.nan, good[1]))
    with pytest.raises(GraphdiffError) as caught:
        gd.fit(step, [good] * at + [bad] + [good] * 5, epochs=1, progress=False)
    assert float(w.value) == path[-1]
    text = str(caught.value)
    assert f"step {at} " in text and "test_fit.py" in text and "1 NaN" in text
    assert isinstance(caught.value, ArithmeticError)


def test_a_loader_may_use_one_buffer_for_all_batches():
    step, w, arrays = regression()
    buffer = [a[:10].copy() for a in arrays]

    class Loader:
        def __iter__(self):
            for k in range(4):
                buffer[1][:] = np.nan if k == 3 else arrays[1][:10]
                yield buffer
    expected = []
    for _ in range(3):
        step(arrays[0][:10], arrays[1][:10])
        expected.append(float(w.value))
    w.value = 0.0
    with pytest.raises(GraphdiffError, match="step 3 "):
        gd.fit(step, Loader(), epochs=1, progress=False)
    assert float(w.value) == expected[-1]


def test_weights_that_explode_are_found_at_the_step_that_made_them():
    x = gd.input("x")
    w = gd.variable(1.0, "w")
    loss = gd.sqrt(w) * x      # at w = 0 the gradient is infinite, the loss still 0
    step = gd.function([x], loss, updates={w: w - gd.grad(loss, w)})
    with pytest.raises(GraphdiffError, match="step 1 made weights that are not finite"):
        gd.fit(step, [2.0, 2.0, 2.0], epochs=1, progress=False)
    assert float(w.value) == 0.0


def test_the_history_survives_an_error_of_the_loader_the_step_or_the_validation():
    w = gd.variable(2.0, "w")
    x = gd.input("x")
    step = gd.function([x], gd.square(w - x), updates={w: w - 0.1 * (w - x)})
    calls = []

    class Loader:
        def __iter__(self):
            for i in range(4):
                if len(calls) == 2 and i == 3:
                    raise OSError("disk")
                yield (1.0,)
            calls.append(1)

    with pytest.raises(OSError, match="disk") as caught:
        gd.fit(step, Loader(), epochs=5, validate=lambda: float(w.value), progress=False)
    h = caught.value.history
    assert h.stopped == "failed" and len(h.loss) == 11 and len(h["loss"]) == len(h["validation"]) == 2
    assert h.loss[0] == 1.0 and (np.diff(h.loss) < 0).all() and "history" in caught.value.__notes__[0]

    def broken():
        raise ValueError("no")
    with pytest.raises(ValueError, match="no") as caught:
        gd.fit(step, [1.0] * 3, epochs=2, validate=broken, progress=False)
    assert len(caught.value.history.loss) == 3
    with pytest.raises(GraphdiffError, match="step 2") as caught:
        gd.fit(step, [1.0, 1.0, np.nan], epochs=2, progress=False)
    assert len(caught.value.history.loss) == 2

    class Closed(Exception):
        __slots__ = ()
        def __setattr__(self, name, value):
            raise AttributeError(name)

    def closed():
        raise Closed
    with pytest.raises(Closed):
        gd.fit(step, [1.0], epochs=1, validate=closed, progress=False)


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    step, _, arrays = regression()
    history = gd.fit(step, gd.data.batches(arrays, 10), epochs=3, validate=lambda: 1.0, progress=False)
    history.plot(str(tmp_path / "h.svg"))
    text = (tmp_path / "h.svg").read_text()
    assert text.startswith("<?xml") and len(text) > 3000


def test_bad_arguments_are_named():
    step, _, arrays = regression()
    b = gd.data.batches(arrays, 10)
    with pytest.raises(ShapeError, match="epochs"):
        gd.fit(step, b, epochs=-1)
    with pytest.raises(ShapeError, match="patience needs validate"):
        gd.fit(step, b, epochs=1, patience=2)
    with pytest.raises(ShapeError, match="patience is"):
        gd.fit(step, b, epochs=1, patience=0, validate=lambda: 1.0)
    with pytest.raises(NodeTypeError, match="used up"):
        gd.fit(step, iter(b), epochs=2)
    with pytest.raises(ShapeError, match="no batches"):
        gd.fit(step, [], epochs=2, progress=False)


# -- what callbacks do ------------------------------------------------------------------------------------------------------

def test_validation_may_be_called_loss_and_change_its_names():
    step, _, arrays = regression()
    results = iter([{"loss": 1.0}, {"loss": 2.0, "b": 3.0}, {"b": 1.0}])
    history = gd.fit(step, gd.data.batches(arrays, 10), epochs=3, validate=lambda: next(results), progress=False)
    assert len(history["loss"]) == 3 and history["loss"][0] != 1.0
    np.testing.assert_array_equal(history["validation loss"], [1, 2, np.nan])
    np.testing.assert_array_equal(history["b"], [np.nan, 3, 1])


def test_a_validation_that_is_never_a_number_does_not_undo_the_training():
    step, w, arrays = regression()
    with pytest.warns(RuntimeWarning, match="validate gives nan after epoch"):
        history = gd.fit(step, gd.data.batches(arrays, 10), epochs=9, validate=lambda: float("nan"), patience=3, progress=False)
    assert history.stopped == "patience" and history.best_epoch == -1 and abs(float(w.value) - 3) < 1.0


@pytest.mark.parametrize("change", ["loader", "validate"])
def test_the_weights_before_a_bad_loss_are_right_when_callbacks_change_variables(change):
    x = gd.input("x")
    w, rate = gd.variable(0.0, "w"), gd.variable(0.1, "rate")
    loss = (w - x) ** 2
    step = gd.function([x], loss, updates={w: w - rate * gd.grad(loss, w)})
    shrink = gd.function([], w, updates={w: 0.5 * w})
    seen = []

    class Loader:
        def __iter__(self):
            for k in range(3):
                if change == "loader":
                    rate.value = 0.1 / (k + 1)
                seen.append(float(w.value))
                yield np.nan if len(seen) == 6 else 1.0
    with pytest.raises(GraphdiffError, match="step 5 "):
        gd.fit(step, Loader(), epochs=2, validate=lambda: float(shrink() if change == "validate" else 0.0), progress=False)
    assert float(w.value) == seen[-1]


def test_a_loader_is_asked_once_an_epoch():
    step, _, arrays = regression()
    asked = []

    class Loader:
        def __iter__(self):
            asked.append(1)
            return iter([arrays])
    gd.fit(step, Loader(), epochs=np.int64(3), progress=False)
    assert len(asked) == 3


def test_results_that_are_no_number_are_named():
    step, _, arrays = regression()
    b = gd.data.batches(arrays, 10)
    with pytest.raises(ShapeError, match="what validate gives is None"):
        gd.fit(step, b, epochs=1, validate=lambda: None, progress=False)
    with pytest.raises(ShapeError, match="empty dict"):
        gd.fit(step, b, epochs=1, validate=dict, progress=False)
    with pytest.raises(NodeTypeError, match="batches is something to go over"):
        gd.fit(step, 5, epochs=1)
    x, w = gd.input("x", (3,)), gd.variable(0.0, "w")
    for outputs in ((w - x) ** 2, []):
        with pytest.raises(ShapeError, match="one number is needed"):
            gd.fit(gd.function([x], outputs, updates={w: w + gd.sum(x)}), [np.ones(3)], epochs=1, progress=False)


def test_a_real_interrupt_leaves_usable_weights():
    import subprocess
    import sys
    program = """
import os, signal, threading, time
import numpy as np, graphdiff as gd
signal.signal(signal.SIGINT, signal.default_int_handler)      # a shell's background job ignores it
net = gd.nn.Dense(400, 400, key=1)
x = gd.input("x", ("batch", 400), "float32")
loss = gd.losses.mse(net(x), x)
step = gd.function([x], loss, updates=gd.optim.Adam().updates(loss, net.parameters()))
a = np.ones((64, 400), "float32")
step(a)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
history = gd.fit(step, [a] * 5, epochs=10 ** 6, progress=False)
assert history.stopped == "interrupted" and len(history.loss) >= 5 * len(history["loss"])
assert all(np.isfinite(p.value).all() for p in net.parameters()) and np.isfinite(step(a))
print("usable")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "usable", done.stderr


def test_a_run_with_dropout_has_the_same_bits_for_any_number_of_threads():
    nn, results = gd.nn, []
    xs, ts = RNG.standard_normal((300, 20)).astype("float32"), RNG.integers(0, 5, 300)
    for threads in (1, 2, 3):
        net = nn.Sequential(nn.Dense(20, 200, "relu", key=1), nn.BatchNorm(200), nn.Dropout(0.3, key=2), nn.Dense(200, 5, key=3))
        x, t = gd.input("x", ("batch", 20), "float32"), gd.input("t", ("batch",), "int64")
        loss = gd.losses.cross_entropy(net(x, training=True), t)
        step = gd.function([x, t], loss, updates={**gd.optim.Adam(0.01).updates(loss, net.parameters()), **net.updates()}, threads=threads)
        history = gd.fit(step, gd.data.batches([xs, ts], 128, key=4), epochs=2, progress=False)
        results.append(b"".join(v.value.tobytes() for v in net.variables().values()) + history.loss.tobytes())
    assert results[0] == results[1] == results[2]


def test_a_last_step_that_ruins_the_weights_is_an_error():
    w = gd.variable(np.array(0.0), "w")
    loss = gd.sqrt(w)       # a finite loss, an infinite derivative
    step = gd.function([], loss, updates=gd.optim.GradientDescent(1.0).updates(loss, [w]))
    with pytest.raises(NotFinite, match="the weights are not finite at step 0"):
        gd.fit(step, [()], epochs=1, progress=False)
    assert w.value == 0.0


def test_infinities_that_were_there_before_are_no_error():
    low, w = gd.variable(np.array(-np.inf), "low"), gd.variable(np.array(1.0), "w")
    loss = w * w
    step = gd.function([], loss, updates={**gd.optim.GradientDescent(0.1).updates(loss, [w]), low: low})
    assert gd.fit(step, [()], epochs=3, progress=False).stopped == "finished"


def test_a_step_without_updates_is_refused():
    x = gd.input("x")
    with pytest.raises(gd.errors.NodeTypeError, match="step has no updates"):
        gd.fit(gd.function([x], x * x), [(1.0,)], epochs=1, progress=False)


def test_a_wrong_label_names_the_loss():
    x, t = gd.input("x", (2, 3)), gd.input("t", (2,), "int64")
    f = gd.function([x, t], gd.losses.cross_entropy(x, t))
    with pytest.raises(gd.errors.OutOfBounds, match=r"cross_entropy: .*index 3 .*size 3"):
        f(np.zeros((2, 3)), np.array([0, 3]))


def test_large_batches_are_not_kept_in_numbers(monkeypatch):
    from graphdiff.training import _Weights
    w = gd.variable(np.ones((10, 1)))
    x = gd.input("x", ("n", 10))
    loss = gd.mean(gd.square(x @ w))
    step = gd.function([x], loss, updates={w: w - 0.001 * gd.grad(loss, w)})
    monkeypatch.setattr(_Weights, "nbytes", 10_000)
    most = []
    note = _Weights.note

    def counted(self, batch):
        note(self, batch)
        most.append(len(self.batches))
    monkeypatch.setattr(_Weights, "note", counted)
    gd.fit(step, [(np.ones((100, 10)),)] * 6, epochs=2, progress=False)      # 8,000 bytes each
    assert max(most) == 2 and len(most) == 12
    gd.fit(step, [(np.ones((1, 10)),)] * 100, epochs=1, progress=False)
    assert max(most) == 32


def test_the_bar_counts_steps_where_their_number_is_known(capsys):
    pytest.importorskip("tqdm")
    w = gd.variable(np.ones(1), "w")
    step = gd.function([], gd.sum(w * w), updates={w: w * 0.5})

    class Unknown:
        def __iter__(self):
            return iter([(), ()])
    gd.fit(step, [(), (), ()], epochs=4)
    assert "12/12" in (text := capsys.readouterr().err) and "step" in text
    gd.fit(step, Unknown(), epochs=4)
    assert "4/4" in (text := capsys.readouterr().err) and "epoch" in text
