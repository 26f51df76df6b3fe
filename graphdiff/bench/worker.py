"""One library in one process of its own: builds workloads, checks them against NumPy, times samples when asked.

Libraries with threads spin while they wait, and starve each other inside one process; in processes of their own, asked in
turn, they are interleaved and undisturbed. The messages are tuples over a pipe; `serve` answers until the pipe closes.
"""
from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any

from .peers import COLUMNS, MAKERS, Missing, as_numpy, graphdiff
from .steps import STEPS
from .trainers import disagreement, growth, losses, train
from .trainers import numpy as by_hand_step
from .workload import WORKLOADS, Workload, normal


def data(w: Workload, gradients: bool) -> tuple[Sequence[Any], Sequence[Any], Any]:
    """Arrays, fixed arrays and the cotangent of a workload: None when only the value is wanted, COLUMNS for a Jacobian."""
    import numpy as np
    arrays, fixed = list(w.arrays()), list(w.fixed())
    if not gradients:
        return arrays, fixed, None
    if w.columns:
        return arrays, fixed, COLUMNS
    assert w.forward is not None
    y = np.asarray(w.forward(*arrays, *fixed))
    return arrays, fixed, np.asarray(normal(*y.shape, seed=99), y.dtype)


def by_hand(w: Workload, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Any:
    """The workload in NumPy, as a call."""
    if cotangent is None:
        if w.forward is None:
            raise Missing("no NumPy form")
        forward = w.forward
        return lambda: forward(*arrays, *fixed)
    if w.backward is None:
        raise Missing("no NumPy form of the gradients")
    backward = w.backward
    return lambda: backward(cotangent, *arrays, *fixed)


def demand(w: Workload, gradients: bool) -> tuple[float, int]:
    """What a row asks of the machine: floating-point operations of the graph, or the bytes of every array in and out once;
    and the item size in bytes."""
    import numpy as np

    import graphdiff as gd

    from .peers import graphdiff_words
    arrays, fixed, _ = data(w, False)
    xs = [gd.input(f"x{i}", np.shape(a), a.dtype) for i, a in enumerate(arrays)]
    constants = [gd.input(f"c{i}", a.shape, a.dtype) for i, a in enumerate(fixed)]
    y = w.build(graphdiff_words(), *xs, *constants)
    itemsize = arrays[0].dtype.itemsize
    inputs, outputs = [*xs, *constants], [y]
    if gradients:
        g = gd.input("g", y.shape, y.dtype)
        inputs.append(g)
        outputs += gd.grad(y, xs, cotangent=g)
    if w.bound == "bytes":
        return float(sum(n.size * n.dtype.itemsize for n in (*inputs, *outputs))), itemsize
    return float(sum(r["flops"] for r in gd.function(inputs, outputs).cost())), itemsize


def compare(mine: Sequence[Any], theirs: Sequence[Any], tolerance: float) -> str:
    """'' when the results agree within tolerance of their largest element, else what differs."""
    import numpy as np
    if len(mine) != len(theirs):
        return f"{len(mine)} results against {len(theirs)}"
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if a.shape != b.shape:
            return f"result {i}: shape {a.shape} against {b.shape}"
        scale = float(np.max(np.abs(b), initial=0.0))
        worst = float(np.max(np.abs(a.astype("float64") - b), initial=0.0))
        if not worst <= tolerance * (scale + 1e-3):
            return f"result {i}: differs by {worst:.2g} of {scale:.2g}"
    return ""


def microseconds(call: Any, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number * 1e6


def _prepare(library: str, peer: Any, name: str, gradients: bool) -> tuple[Any, str, str]:
    """(call, "", "") or (None, "missing" or "wrong", why)."""
    w = WORKLOADS[name]
    try:
        arrays, fixed, cotangent = data(w, gradients)
        reference = by_hand(w, arrays, fixed, cotangent)
        call = reference if library == "numpy" else peer.call(w.build, arrays, fixed, cotangent)
        wrong = "" if library == "numpy" else compare(as_numpy(call()), as_numpy(reference()), w.tolerance)
    except Missing as error:
        return None, "missing", str(error)
    except Exception as error:      # a peer that fails must not end the run; its words stand in the table
        return None, "missing", f"{type(error).__name__}: {error}"[:200]
    return (None, "wrong", wrong) if wrong else (call, "", "")


def _prepare_step(library: str, peer: Any, name: str, threads: int) -> tuple[Any, str, str, dict[str, int]]:
    """(call, "", "", bytes of memory) or (None, "missing" or "wrong", why, {})."""
    step = STEPS[name]
    weights, batch = step.weights(), step.batch()
    try:
        training = train(library, peer, step, weights, batch, threads)
        mine = losses(training)
        wrong = "" if peer is None else disagreement(mine, losses(by_hand_step(step, weights, batch)), step.tolerance)
        memory = {"growth": growth(training.again()), "planned": training.planned}
    except Missing as error:
        return None, "missing", f"no word for {error}", {}
    except Exception as error:
        return None, "missing", f"{type(error).__name__}: {error}"[:200], {}
    if wrong:
        return None, "wrong", wrong, {}
    return training.call, "", "", {k: v for k, v in memory.items() if v is not None}


def serve(pipe: Any, library: str, threads: int) -> None:
    """Answers ("row", name, "f", "fb" or "step", seconds a sample) by (trouble, why, memory) and ("sample",) by microseconds."""
    import numpy as np

    from . import contractions, models, streams  # noqa: F401  they fill WORKLOADS
    peer = None if library == "numpy" else graphdiff(threads) if library == "graphdiff" else MAKERS[library](threads)
    pipe.send(("ready", np.__version__ if peer is None else peer.version))
    call: Any = None
    number = 1
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if message[0] == "row":
            call = None
            gc.collect()
            memory: dict[str, int] = {}
            if message[2] == "step":
                call, trouble, why, memory = _prepare_step(library, peer, message[1], threads)
            else:
                call, trouble, why = _prepare(library, peer, message[1], message[2] == "fb")
            if call is not None:
                microseconds(call, 2)
                once = max(min(microseconds(call, 1) for _ in range(3)), 0.02)
                number = max(1, int(message[3] * 1e6 / once))
            pipe.send((trouble, why, memory))
        elif message[0] == "sample":
            gc.disable()
            pipe.send(microseconds(call, number))
            gc.enable()
