"""gd.fit: a plain training loop with progress, validation, early stopping and history."""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .api.function import Function
from .errors import GraphdiffError, NodeTypeError, ShapeError, show_name
from .graph.build import located


class NotFinite(GraphdiffError, ArithmeticError):
    """The loss became NaN or infinite; the weights are those before the step that found it."""


class History:
    """What a run recorded: `loss`, one number a step; `epochs`, per epoch the mean loss and what `validate` gave, as arrays."""

    def __init__(self) -> None:
        self.loss: Any = np.zeros(0)
        self.epochs: dict[str, Any] = {}
        self.stopped = "finished"      # or "patience", "interrupted", "failed"
        self.best_epoch = -1

    def __getitem__(self, name: str) -> Any:
        return self.epochs[name]

    def __repr__(self) -> str:
        last = ", ".join(f"{k} {v[-1]:.4g}" for k, v in self.epochs.items() if len(v))
        return f"<history of {len(self.loss)} steps, {self.stopped}: {last}>"

    def plot(self, path: str | None = None) -> Any:
        """The curves as a matplotlib figure; written to `path` when given. Raises GraphdiffError without matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise GraphdiffError("history.plot needs matplotlib: pip install matplotlib") from None
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        n = len(next(iter(self.epochs.values()), ()))
        at = (np.arange(n) + 1) * (len(self.loss) / max(1, n))
        axes.plot(np.arange(len(self.loss)), self.loss, linewidth=0.6, alpha=0.5, label="loss of a step")
        for name, values in self.epochs.items():
            axes.plot(at, values, marker=".", label=name if name != "loss" else "loss of an epoch")
        axes.set_xlabel("step")
        axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure


def _number(result: Any) -> float:
    """The loss: the result itself, the first of several, or what is called "loss"."""
    if isinstance(result, Mapping):
        result = result["loss"] if "loss" in result else next(iter(result.values()), None)
    elif isinstance(result, (tuple, list)):
        result = result[0] if result else None
    return _scalar(result, "the step's first result, the loss,")


def _scalar(value: Any, what: str) -> float:
    a = np.asarray(value)
    if a.size != 1 or a.dtype.kind not in "biuf":
        raise located(ShapeError(f"{what} is {'None' if value is None else f'{a.dtype}{list(a.shape)}'}, one number is needed"), "fit")
    return float(a.reshape(()))


def _scores(result: Any) -> dict[str, float]:
    """What `validate` gave, by name; "loss" is the name of the training loss already."""
    if not isinstance(result, Mapping):
        return {"validation": _scalar(result, "what validate gives")}
    if not result:
        raise located(ShapeError("validate gives an empty dict, at least one number is needed"), "fit")
    return {"validation loss" if k == "loss" else str(k): _scalar(v, f"validate's {show_name(str(k))}") for k, v in result.items()}


def _call(step: Callable[..., Any], batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return step(**batch)
    return step(*batch) if isinstance(batch, (tuple, list)) else step(batch)


def _kept(batch: Any) -> Any:
    """The batch as it is now: a loader may write the next one into the same arrays."""
    if isinstance(batch, Mapping):
        return {k: np.array(v) for k, v in batch.items()}
    return tuple(np.array(v) for v in batch) if isinstance(batch, (tuple, list)) else np.array(batch)


def _nbytes(batch: Any) -> int:
    arrays = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple) else (batch,)
    return sum(a.nbytes for a in arrays)


def _variables(step: Function) -> list[Any]:
    """The storages of all variables a step reads or writes."""
    from .graph.walk import toposort
    roots = [*step.outputs, *[n for pair in step.updates for n in pair]]
    return [n._attrs[0] for n in toposort(roots) if n.op.name == "variable"]


class _Weights:
    """The variables a step writes, and a way back: a copy now and then, and the batches since.

    Steps give the same bits when they are repeated, so a copy every so many steps is enough, or after so many bytes of batches.
    """

    every = 32
    nbytes = 64 << 20

    def __init__(self, step: Any) -> None:
        self.step = step
        self.storages = [v._attrs[0] for v, _ in step.updates] if isinstance(step, Function) else []
        self.read = _variables(step) if isinstance(step, Function) else []
        self.copied = self.copy()
        self.batches: list[Any] = []
        self.kept = 0                   # bytes of the batches
        self.seen = [s.assigned for s in self.read]
        self.sound = self.finite()      # a variable may hold infinities on purpose

    def copy(self) -> list[Any]:
        return [s.array.copy() for s in self.storages]

    def put(self, arrays: list[Any]) -> None:
        for s, a in zip(self.storages, arrays, strict=True):
            s.assign(a)

    def finite(self) -> bool:
        return all(s.array.dtype.kind != "f" or bool(np.isfinite(s.array).all()) for s in self.storages)

    def note(self, batch: Any) -> None:
        """Before every step."""
        full = len(self.batches) >= self.every or self.kept >= self.nbytes
        if (full and self.finite()) or self.seen != [s.assigned for s in self.read]:
            self.afresh()
        self.batches.append(_kept(batch))
        self.kept += _nbytes(self.batches[-1])

    def afresh(self) -> None:
        """From now on repeat from here: others may have changed a variable, as a loader that sets the learning rate does."""
        self.batches = []      # first: a batch may be as large as all weights
        self.kept, self.copied, self.seen = 0, self.copy(), [s.assigned for s in self.read]

    def back(self) -> tuple[int, Any]:
        """Back to before the first step since the copy that made a loss or a weight not finite: (how many steps, its batch)."""
        self.put(self.copied)
        for i, batch in enumerate(self.batches):
            before = self.copy()
            loss = _number(_call(self.step, batch))
            if not (math.isfinite(loss) and self.finite()):
                self.put(before)
                return len(self.batches) - i, batch
        raise GraphdiffError("fit: a step gave another loss when it was repeated")


class _Bar:
    """A bar of steps when the number of batches is known, else of epochs; without tqdm, nothing."""

    def __init__(self, batches: Any, epochs: int, progress: bool) -> None:
        self.bar: Any = None
        self.steps = hasattr(batches, "__len__")
        if progress:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self.bar = tqdm(total=epochs * len(batches) if self.steps else epochs, unit="step" if self.steps else "epoch", leave=True)

    def begin(self, batches: Any, left: int) -> None:
        """An epoch begins, one of `left`: it may have more batches than the one before."""
        if self.bar is not None and self.steps:
            self.bar.total = self.bar.n + left * len(batches)

    def step(self) -> None:
        if self.bar is not None and self.steps:
            self.bar.update()

    def epoch(self, columns: Mapping[str, list[float]]) -> None:
        if self.bar is not None:
            self.bar.set_postfix({k: f"{v[-1]:.4g}" for k, v in columns.items()}, refresh=False)      # a line an epoch would cost more than the epoch
            if not self.steps:
                self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _check(step: Any, batches: Any, epochs: Any, validate: Any, patience: Any) -> None:
    if isinstance(epochs, bool) or not isinstance(epochs, (int, np.integer)) or epochs < 0:
        raise ShapeError(f"epochs is a whole number, at least 0, not {epochs!r}")
    if patience is not None and (isinstance(patience, bool) or not isinstance(patience, (int, np.integer)) or patience < 1):
        raise ShapeError(f"patience is a whole number, at least 1, not {patience!r}")
    if patience is not None and validate is None:
        raise ShapeError("patience needs validate=, which says what is better")
    if validate is not None and not callable(validate):
        raise NodeTypeError(f"validate is a function without arguments, not {type(validate).__name__}")
    if not callable(step):
        raise NodeTypeError(f"step is a function, not {type(step).__name__}")
    if isinstance(step, Function) and not step.updates:
        raise NodeTypeError("step has no updates, so that nothing would be trained: gd.function(inputs, loss, updates=optimizer.updates(...))")
    if not isinstance(batches, Iterable):
        raise NodeTypeError(f"batches is something to go over, such as gd.data.batches, not {type(batches).__name__}")
    if isinstance(batches, Iterator):
        raise NodeTypeError("batches is an iterator, which is used up after one epoch; give gd.data.batches or a list")


def fit(step: Callable[..., Any], batches: Iterable[Any], *, epochs: int, validate: Callable[[], Any] | None = None,
        patience: int | None = None, progress: bool = True) -> History:
    """Call `step` on every batch, `epochs` times over; returns the history.

    step: a gd.function with updates=, whose first result (or "loss") is the loss of the step. batches: gd.data.batches, or
    anything that can be gone over again. validate: called after every epoch, without arguments; gives a number (smaller is
    better; NaN is not, and gives a warning) or a dict of numbers, the first of which counts. patience: stop after so many epochs
    without a better one; at the end, whether or not the patience ran out, the weights of the best epoch are put back.
    progress: a bar, when tqdm is installed (graphdiff[progress]).

    To find the step that spoiled the weights, up to 32 batches or 64 MB of them are kept at a time.

    A NaN or infinite loss raises NotFinite: the weights are then those before the step, and the message names the first node
    that is not finite. Ctrl-C ends the run with the history so far, which may lack the last step, and the weights as they are,
    not those of the best epoch (a step is all or nothing). Any other error, of the loader, the step or `validate`, passes on,
    and has the history so far as its attribute `history`.
    """
    try:
        _check(step, batches, epochs, validate, patience)
    except GraphdiffError as error:
        raise located(error, "fit") from None
    history = History()
    losses: list[float] = []
    columns: dict[str, list[float]] = {"loss": []}
    weights = _Weights(step)
    best, best_weights, waited = math.inf, weights.copied, 0
    bar = _Bar(batches, epochs, progress)
    try:
        for epoch in range(epochs):
            first = len(losses)
            bar.begin(batches, epochs - epoch)
            for batch in batches:
                weights.note(batch)
                loss = _number(_call(step, batch))
                if not math.isfinite(loss):
                    raise NotFinite(_explanation(step, weights, f"the loss is {loss}", epoch, len(losses)))
                losses.append(loss)
                bar.step()
            if len(losses) == first:
                raise located(ShapeError("there are no batches"), "fit")
            if weights.sound and not weights.finite():      # the last loss was that of the weights before
                raise NotFinite(_explanation(step, weights, "the weights are not finite", epoch, len(losses) - 1))
            mean = sum(losses[first:]) / (len(losses) - first)
            result: Any = None if validate is None else validate()      # may be interrupted: all columns grow together
            columns["loss"].append(mean)
            if validate is not None:
                named = _scores(result)
                weights.afresh()      # validate may have changed variables by functions of its own
                for name in {**columns, **named}:
                    if name != "loss":      # one number an epoch in every column, NaN where there was none
                        columns.setdefault(name, [math.nan] * epoch).append(named.get(name, math.nan))
                score = next(iter(named.values()))
                if math.isnan(score):
                    warnings.warn(f"fit: validate gives nan after epoch {epoch}, which counts as no better", RuntimeWarning, stacklevel=2)
                if score < best:
                    best, best_weights, waited, history.best_epoch = score, weights.copy(), 0, epoch
                else:
                    waited += 1
            bar.epoch(columns)
            if patience is not None and waited >= patience:
                history.stopped = "patience"
                break
        if patience is not None and waited and history.best_epoch >= 0:
            weights.put(best_weights)
    except KeyboardInterrupt:
        history.stopped = "interrupted"
    except BaseException as error:
        history.stopped = "failed"
        _attach(history, error)
        raise
    finally:
        bar.close()
        history.loss = np.array(losses)
        history.epochs = {k: np.array(v) for k, v in columns.items()}
    return history


def _attach(history: History, error: BaseException) -> None:
    """Hours of training must not be lost with one unreadable file: whoever catches the error finds what was recorded."""
    try:
        error.history = history      # type: ignore[attr-defined]
        error.add_note("fit: what was recorded until then is the error's attribute `history` (sys.last_value.history in a shell)")
    except Exception:                # an exception class may refuse attributes
        return


def _explanation(step: Any, weights: _Weights, what: str, epoch: int, number: int) -> str:
    text = f"fit: {what} at step {number} (epoch {epoch})"
    if not isinstance(step, Function):
        return f"{text}; step is not a gd.function, so nothing was put back"
    ago, batch = weights.back()
    if ago > 1:
        text += f"; step {number - ago + 1} made weights that are not finite"
    text += "; the weights are those before that step"
    bad = _first_bad(step, batch)
    return text if bad is None else f"{text}\n  first   {bad}"


def _first_bad(step: Function, batch: Any) -> str | None:
    """The first node whose value is not finite, with its line: both passes are run again, every value kept."""
    from .graph.walk import toposort
    from .trace.run import values as values_of
    values = list(batch.values()) if isinstance(batch, Mapping) else list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if isinstance(batch, Mapping):
        by_name = {x.name: batch[x.name] for x in step.inputs if x.name in batch}
        values = [by_name[x.name] for x in step.inputs]
    nodes = [n for n in toposort([*step.outputs, *[new for _, new in step.updates]]) if n.dtype.kind == "f" and n.op.name != "constant"]
    found = values_of(nodes, dict(zip(step.inputs, values, strict=True)))
    for node in nodes:
        value = found[id(node)]
        if not np.isfinite(value).all():
            site = node.site
            where = "" if site is None else f"   {site}   {site.source}"
            kind = f"{node.op.name} {show_name(node.name)}" if node.name else node.op.name
            return f"{kind} {node.spec} has {int(np.isnan(value).sum())} NaN and {int(np.isinf(value).sum())} infinite of {value.size}{where}"
    return None


__all__ = ["History", "NotFinite", "fit"]
