"""Optimisers: each turns a loss and parameters into updates, expressions of the same graph, so that a step is one C call.

    opt = gd.optim.Adam(0.001)
    step = gd.function([x, t], loss, updates=opt.updates(loss, layer.parameters()))
"""
from __future__ import annotations

from . import schedules
from .clip import clip_by_norm, clip_by_value, global_norm
from .methods import Adadelta, Adagrad, Adam, AdamW, AMSGrad, GradientDescent, Momentum, NAdam, Nesterov, RMSprop
from .optimizer import Optimizer

__all__ = ["AMSGrad", "Adadelta", "Adagrad", "Adam", "AdamW", "GradientDescent", "Momentum", "NAdam", "Nesterov", "Optimizer", "RMSprop",
           "clip_by_norm", "clip_by_value", "global_norm", "schedules"]
