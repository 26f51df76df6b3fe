"""The benchmark command: workloads agree with their NumPy forms, disagreement is reported and not timed, errors are clear."""
from __future__ import annotations

import json

import numpy as np
import pytest

from graphdiff.bench import contractions, growth, models, streams, trainers  # noqa: F401  they fill WORKLOADS
from graphdiff.bench.peers import Missing, graphdiff
from graphdiff.bench.run import names_of, run
from graphdiff.bench.steps import STEPS
from graphdiff.bench.worker import by_hand, compare, data, demand
from graphdiff.bench.workload import WORKLOADS
from graphdiff.errors import GraphdiffError

_LARGE = {n for n in WORKLOADS if any(t in n for t in ("1e7", "_2048", "32768", "matmul_1024", "56_64c3", "1024x64"))}


@pytest.mark.parametrize("name", [n for n in WORKLOADS if n not in _LARGE])
def test_workload_agrees_with_its_numpy_form(name):
    w = WORKLOADS[name]
    for gradients in (False, True) if w.backward is not None else (False,):
        arrays, fixed, cotangent = data(w, gradients)
        mine = graphdiff(1).call(w.build, arrays, fixed, cotangent)()
        theirs = by_hand(w, arrays, fixed, cotangent)()
        mine, theirs = ([np.asarray(a) for a in (r if isinstance(r, (list, tuple)) else [r])] for r in (mine, theirs))
        assert compare(mine, theirs, w.tolerance) == ""
        if w.bound:
            amount, itemsize = demand(w, gradients)
            assert amount > 0 and itemsize == arrays[0].dtype.itemsize


def test_matmul_demands_its_multiplications():
    assert demand(WORKLOADS["matmul_64"], False) == (2 * 64 ** 3, 4)
    assert demand(WORKLOADS["relu_1e3"], False) == (8000, 4)


def test_results_that_disagree_are_found():
    a = [np.ones(3)]
    assert compare(a, [np.ones(3)], 1e-4) == ""
    assert "differs" in compare(a, [np.array([1, 1, 1.1])], 1e-4)
    assert "differs" in compare([np.array([1, np.nan, 1])], [np.ones(3)], 1e-4)
    assert "shape" in compare(a, [np.ones((3, 1))], 1e-4)
    assert "2 results" in compare([*a, *a], a, 1e-4)


def test_table_and_json(tmp_path, capfd, monkeypatch):
    import os
    if hasattr(os, "sched_setaffinity"):
        before = os.sched_getaffinity(0)
        monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)      # this process goes on to other tests
        assert before
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS", "XLA_FLAGS"):
        monkeypatch.setenv(variable, "1")
    path = tmp_path / "r.json"
    assert run(["baydin"], ["numpy"], 1, str(path), 0.01) == 0
    printed = capfd.readouterr().out
    assert "baydin_f64 f " in printed and "baydin_f64 fb" in printed and "GFLOP/s" in printed
    saved = json.loads(path.read_text())
    assert [r["name"] for r in saved["rows"]] == ["baydin_f64 f", "baydin_f64 fb"]
    assert all(len(r["samples_us"][n]) == 9 and r["median_us"][n] > 0 for r in saved["rows"] for n in ("graphdiff", "numpy"))
    assert saved["machine"]["limits"]["f32_gflops"] > 0


def test_expressions_of_numexpr_say_the_workload():
    from graphdiff.bench.peers import numexpr
    for name in ("relu_1e3", "chain3_1e3", "exp_1e5_f32", "pow_1e5_f64"):
        w = WORKLOADS[name]
        arrays, fixed, _ = data(w, False)
        assert compare([numexpr(1).call(w.build, arrays, fixed, None)()], [by_hand(w, arrays, fixed, None)()], w.tolerance) == ""
    with pytest.raises(Missing):
        numexpr(1).call(w.build, arrays, fixed, arrays[0])


def test_bad_arguments_are_named():
    with pytest.raises(GraphdiffError, match="no benchmark is called like nonsense"):
        names_of(["nonsense"])
    with pytest.raises(GraphdiffError, match="'tensorflow' is not a peer"):
        run(["baydin"], ["tensorflow"], 1, None, 0.01)
    with pytest.raises(GraphdiffError, match="--threads 0"):
        run(["baydin"], ["numpy"], 0, None, 0.01)
    from graphdiff.bench.peers import graphdiff_words
    with pytest.raises(Missing, match="no_such_function"):
        graphdiff_words().no_such_function  # noqa: B018

@pytest.mark.parametrize("name", list(STEPS))
def test_training_step_agrees_with_its_numpy_form(name):
    step = STEPS[name]
    weights, batch = step.weights(), step.batch()
    theirs = trainers.losses(trainers.numpy(step, weights, batch))
    training = trainers.train("graphdiff", graphdiff(1), step, weights, batch, 1)
    assert trainers.disagreement(trainers.losses(training), theirs, step.tolerance) == ""
    # The updates move the loss by far more than the tolerance, or the comparison would not see a wrong gradient.
    assert abs(theirs[-1] - theirs[0]) > 50 * step.tolerance * theirs[0]
    assert training.planned > 0


@pytest.mark.parametrize("name", ["xor_2_8_1_descent", "mlp_784_512_256_10_adam"])
def test_a_wrong_gradient_shows_in_the_losses(name):
    step = STEPS[name]
    weights, batch = step.weights(), step.batch()
    right = trainers.losses(trainers.numpy(step, weights, batch))

    def wrong(*args):
        loss, gradients = step.by_hand(*args)
        return loss, [-g for g in gradients]
    assert "loss of step 2" in trainers.disagreement(trainers.losses(trainers.numpy(step._replace(by_hand=wrong), weights, batch)), right,
                                                     step.tolerance)


def test_memory_of_a_call_is_measured():
    if trainers.growth(lambda: None) is None:
        pytest.skip("the system does not say")
    assert trainers.growth(lambda: np.ones(4_000_000)) > 24e6 > 4e6 > trainers.growth(lambda: None)


def test_growth_curves(tmp_path, capsys):
    rows = growth.growth(1, 0.001, {"matmul": (8, 16), "dense layers": (1, 2), "chain": (30, 60)})
    assert [(r["curve"], r["timed"]) for r in rows] == [
        ("matmul", "run"), ("dense layers", "value"), ("dense layers", "value and gradients"),
        *(("chain", t) for t in ("build", "differentiate", "compile", "run"))]
    assert all(len(r["us"]) == 2 and min(r["us"]) > 0 for r in rows)
    assert "chain, operations" in capsys.readouterr().out
    assert growth.exponent((10, 100, 1000), (5, 7, 700)) == pytest.approx(2)
    pytest.importorskip("matplotlib")
    growth.chart(rows, "title", str(tmp_path / "g.svg"))
    assert (tmp_path / "g.svg").read_text().count("microseconds") == 3
