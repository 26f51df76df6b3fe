"""Schedules: functions of the step count that give a learning rate, as a node when the step is one, else as a number.

    gd.optim.Adam(gd.optim.schedules.warmup(gd.optim.schedules.cosine(0.001, 1000), 100))

Steps count from 0. Batch-size schedules are functions of the epoch, for `gd.data.batches`.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..dtypes import FLOAT64, is_number, outside
from ..errors import NodeTypeError, ShapeError
from ..graph.build import public
from ..graph.node import Node
from ..ops.binary import maximum, minimum, power, where
from ..ops.families import cast
from ..ops.methods import floor
from ..ops.unary import cos

Schedule = Callable[[Any], Any]      # made as partials of functions of this module, so that an optimiser can be pickled


class _Nodes:
    """NumPy's words for nodes."""

    minimum, maximum, power, where = staticmethod(minimum), staticmethod(maximum), staticmethod(power), staticmethod(where)
    cos, floor = staticmethod(cos), staticmethod(floor)


def _words(step: Any) -> tuple[Any, Any]:
    """(the step as a float, where minimum, floor, cos ... come from)."""
    return (cast(step, FLOAT64), _Nodes) if isinstance(step, Node) else (float(step), np)


def _rate(value: Any, what: str = "rate") -> float:
    if not is_number(value) or not (math.isfinite(value) and value >= 0):
        raise outside(value, f"{what} is a finite number, at least 0, not {value!r}")
    return float(value)


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise outside(value, f"{what} is a whole number, at least 1, not {value!r}")
    return int(value)


def _constant(rate: float, step: Any) -> float:
    return rate


@public
def constant(rate: float) -> Schedule:
    """The same rate at every step."""
    return partial(_constant, _rate(rate))


def _piecewise(values: list[float], boundaries: list[int], step: Any) -> Any:
    t, m = _words(step)
    rate: Any = values[0]
    for value, boundary in zip(values[1:], boundaries, strict=True):
        rate = m.where(t >= boundary, value, rate)
    return rate if isinstance(step, Node) else float(rate)


@public
def piecewise(rates: list[float], boundaries: list[int]) -> Schedule:
    """rates[i] from boundaries[i - 1] on; one boundary less than rates, ascending."""
    if not isinstance(rates, (list, tuple)) or not isinstance(boundaries, (list, tuple)):
        raise NodeTypeError("needs a list of rates and a list of boundaries")
    values = [_rate(r) for r in rates]
    boundaries = [_count(b, "a boundary") for b in boundaries]
    if len(boundaries) != len(values) - 1 or any(b <= a for a, b in itertools.pairwise(boundaries)):
        raise ShapeError("needs ascending boundaries, one less than rates")
    return partial(_piecewise, values, boundaries)


def _step_decay(rate: float, factor: float, every: int, step: Any) -> Any:
    t, m = _words(step)
    return rate * m.power(factor, m.floor(t / every))


@public
def step_decay(rate: float, factor: float, every: int) -> Schedule:
    """rate factor^floor(step / every)."""
    rate, factor, every = _rate(rate), _rate(factor, "factor"), _count(every, "every")
    return partial(_step_decay, rate, factor, every)


def _exponential(rate: float, factor: float, steps: int, step: Any) -> Any:
    t, m = _words(step)
    return rate * m.power(factor, t / steps)


@public
def exponential(rate: float, factor: float, steps: int = 1) -> Schedule:
    """rate factor^(step / steps)."""
    rate, factor, steps = _rate(rate), _rate(factor, "factor"), _count(steps, "steps")
    return partial(_exponential, rate, factor, steps)


def _inverse_time(rate: float, decay: float, step: Any) -> Any:
    t, _ = _words(step)
    return rate / (1.0 + decay * t)


@public
def inverse_time(rate: float, decay: float) -> Schedule:
    """rate / (1 + decay step): Robbins and Monro's condition holds (sum of rates infinite, of squares finite)."""
    rate, decay = _rate(rate), _rate(decay, "decay")
    return partial(_inverse_time, rate, decay)


def _polynomial(rate: float, steps: int, final: float, power: float, step: Any) -> Any:
    t, m = _words(step)
    return final + (rate - final) * m.power(1.0 - m.minimum(t / steps, 1.0), power)


@public
def polynomial(rate: float, steps: int, final: float = 0.0, power: float = 1.0) -> Schedule:
    """From rate to final along (1 - step / steps)^power; final from then on."""
    rate, final, steps, power = _rate(rate), _rate(final, "final"), _count(steps, "steps"), _rate(power, "power")
    if power == 0:
        raise ShapeError("power is a number above 0, not 0: the rate would never change")
    return partial(_polynomial, rate, steps, final, power)


@public
def linear(rate: float, steps: int, final: float = 0.0) -> Schedule:
    """From rate to final in equal steps; final from then on."""
    return polynomial(rate, steps, final)


def _cosine(rate: float, steps: int, final: float, step: Any) -> Any:
    t, m = _words(step)
    return final + (0.5 * (rate - final)) * (1.0 + m.cos(math.pi * m.minimum(t / steps, 1.0)))


@public
def cosine(rate: float, steps: int, final: float = 0.0) -> Schedule:
    """Half a cosine from rate to final; final from then on. Source: Loshchilov, Hutter 2017 (SGDR), without restarts."""
    rate, final, steps = _rate(rate), _rate(final, "final"), _count(steps, "steps")
    return partial(_cosine, rate, steps, final)


def _warmup(later: Schedule, steps: int, step: Any) -> Any:
    t, m = _words(step)
    rest = m.maximum(t - steps, 0.0)
    rate = later(rest if isinstance(step, Node) else float(rest)) * m.minimum((t + 1.0) / steps, 1.0)
    return rate if isinstance(step, Node) else float(rate)


@public
def warmup(schedule: Schedule | float, steps: int) -> Schedule:
    """The rate grows in equal steps to the schedule's first; then the schedule runs from its start. Source: Goyal et al. 2017."""
    steps = _count(steps, "steps")
    later = schedule if callable(schedule) and not isinstance(schedule, Node) else constant(schedule)
    return partial(_warmup, later, steps)


# -- batch sizes ----------------------------------------------------------------------------------------------------------

def _growing_batch(size: int, factor: float, every: int, maximum: int, epoch: int) -> int:
    try:
        return max(1, int(min(maximum, size * factor ** (epoch // every))))
    except OverflowError:       # of the power
        return maximum


@public
def growing_batch(size: int, factor: float, every: int, maximum: int) -> Callable[[int], int]:
    """Batch size of an epoch: size factor^floor(epoch / every), at most maximum. Source: Smith et al. 2018."""
    size, every, maximum, factor = _count(size, "size"), _count(every, "every"), _count(maximum, "maximum"), _rate(factor, "factor")
    return partial(_growing_batch, size, factor, every, maximum)
