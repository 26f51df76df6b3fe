"""Layers: small callables that own variables. `layer(x, training=False)` builds the graph of one application.

    net = gd.nn.Sequential(gd.nn.Dense(64, 128, activation="relu"), gd.nn.Dense(128, 10))
    net.parameters()      # variables, for an optimiser
    net.updates()         # running averages and key counters of the last training call, for gd.function(updates=...)

The functional form of every layer is a function at top level (gd.conv, gd.layer_norm, gd.attention ...) or in `functional`.
"""
from __future__ import annotations

from . import functional, init
from .attention import MultiHeadAttention
from .container import Flatten, Residual, Sequential
from .conv import AvgPool, Conv, ConvTranspose, MaxPool
from .dense import Dense, Dropout, Embedding
from .graph import GraphLayer
from .layer import Layer
from .norm import BatchNorm, GroupNorm, LayerNorm, RMSNorm
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .save import load, save

__all__ = ["GRU", "LSTM", "RNN", "AvgPool", "BatchNorm", "Conv", "ConvTranspose", "Dense", "Dropout", "Embedding", "Flatten", "GRUCell",
           "GraphLayer", "GroupNorm", "LSTMCell", "Layer", "LayerNorm", "MaxPool", "MultiHeadAttention", "RMSNorm", "RNNCell", "Residual",
           "Sequential", "functional", "init", "load", "save"]
