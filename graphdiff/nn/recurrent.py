"""RNN, GRU, LSTM: cells and whole sequences, batch first. Gates: GRU r, z, n; LSTM i, f, g, o."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import NodeTypeError, ShapeError
from ..graph.build import as_node
from ..graph.node import Node
from . import checks
from . import functional as F
from .init import make, split
from .layer import Layer


class _Recurrent(Layer):
    """Variables of a recurrent layer: w [n_in, gates n_hidden] for the input, u [n_hidden, gates n_hidden] for the state, b."""

    gates = 1
    activations: tuple[Any, ...] = (None, "tanh")      # None is tanh; the gates have sigmoids of their own

    def __init__(self, n_in: int, n_hidden: int, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, recurrent_init: Any = "orthogonal") -> None:
        super().__init__(name)
        if not (activation is None or isinstance(activation, str)) or activation not in self.activations:
            raise NodeTypeError(f"activation is {' or '.join(repr(a) for a in self.activations)}, not {activation!r}")
        self.activation = activation or "tanh"
        self.n_in, self.n_hidden = checks.size(n_in, "n_in"), checks.size(n_hidden, "n_hidden")
        dtype = checks.floating(dtype)
        keys = split(key, 2 * self.gates)
        self.w = self.parameter(_blocks(init, keys[:self.gates], (self.n_in, self.n_hidden), dtype), "w")
        self.u = self.parameter(_blocks(recurrent_init, keys[self.gates:], (self.n_hidden, self.n_hidden), dtype), "u")
        self.b = self.parameter(self._bias(dtype), "b") if checks.flag(bias, "bias") else None

    def _bias(self, dtype: Any) -> Any:
        return np.zeros(self.gates * self.n_hidden, dtype)

    def _sequence(self, x: Any) -> Node:
        x = as_node(x)
        if x.ndim != 3:
            raise ShapeError(f"{self.name}: the input is {x.spec}, [batch, time, {self.n_in}] is needed")
        checks.features(x, -1, self.n_in, self.name)
        return x


def _blocks(how: Any, keys: list[Node], shape: tuple[int, int], dtype: Any) -> Any:
    """One matrix a gate, side by side, each initialised as a matrix of its own. A ready array is taken whole."""
    if not isinstance(how, str) and not callable(how):
        return make(how, None, (shape[0], shape[1] * len(keys)), dtype)
    return np.concatenate([make(how, k, shape, dtype) for k in keys], axis=1)


def _open_gate(n: int, dtype: Any) -> Any:
    """Biases of an LSTM: 1 for the forget gate, which keeps the memory at first, else 0."""
    b = np.zeros(4 * n, dtype)
    b[n:2 * n] = 1
    return b


class RNN(_Recurrent):
    """h = activation(x w + h u + b): x [batch, time, n_in] -> every h [batch, time, n_hidden]. Source: Elman 1990."""

    activations = (None, "tanh", "relu")

    def __init__(self, n_in: int, n_hidden: int, activation: str | None = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, recurrent_init: Any = "orthogonal", reverse: bool = False) -> None:
        super().__init__(n_in, n_hidden, activation, bias, init, key, dtype, name, recurrent_init=recurrent_init)
        self.reverse = checks.flag(reverse, "reverse")

    def forward(self, x: Any, h0: Any = None, *, training: bool) -> Node:
        return F.rnn(self._sequence(x), h0, self.w, self.u, self.b, activation=self.activation, reverse=self.reverse)


class GRU(_Recurrent):
    """Gated recurrent unit: x [batch, time, n_in] -> every h [batch, time, n_hidden]. r resets inside the state's product,
    as in cuDNN and PyTorch: n = tanh(x w_n + b_n + r (h u_n + c_n)). Source: Cho et al. 2014."""

    gates = 3

    def __init__(self, n_in: int, n_hidden: int, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, recurrent_init: Any = "orthogonal", reverse: bool = False) -> None:
        super().__init__(n_in, n_hidden, activation, bias, init, key, dtype, name, recurrent_init=recurrent_init)
        self.c = self.parameter(np.zeros(3 * self.n_hidden, checks.floating(dtype)), "c") if checks.flag(bias, "bias") else None
        self.reverse = checks.flag(reverse, "reverse")

    def forward(self, x: Any, h0: Any = None, *, training: bool) -> Node:
        return F.gru(self._sequence(x), h0, self.w, self.u, self.b, self.c, reverse=self.reverse)


class LSTM(_Recurrent):
    """Long short-term memory: x [batch, time, n_in] -> every h [batch, time, n_hidden]; `states=True` in the call gives (h, c).

    The forget gate's bias starts at 1 (Jozefowicz et al. 2015). Source: Hochreiter, Schmidhuber 1997; Gers et al. 2000.
    """

    gates = 4

    def __init__(self, n_in: int, n_hidden: int, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, recurrent_init: Any = "orthogonal", reverse: bool = False) -> None:
        super().__init__(n_in, n_hidden, activation, bias, init, key, dtype, name, recurrent_init=recurrent_init)
        self.reverse = checks.flag(reverse, "reverse")

    def _bias(self, dtype: Any) -> Any:
        return _open_gate(self.n_hidden, dtype)

    def forward(self, x: Any, h0: Any = None, c0: Any = None, *, states: bool = False, training: bool) -> Any:
        h, c = F.lstm(self._sequence(x), h0, c0, self.w, self.u, self.b, reverse=self.reverse)
        return (h, c) if states else h


class RNNCell(_Recurrent):
    """One step of RNN: (x [batch, n_in], h [batch, n_hidden]) -> h."""

    activations = (None, "tanh", "relu")

    def forward(self, x: Any, h: Any, *, training: bool) -> Node:
        return F.rnn_cell(x, h, self.w, self.u, self.b, activation=self.activation)


class GRUCell(_Recurrent):
    """One step of GRU: (x, h) -> h."""

    gates = 3

    def __init__(self, n_in: int, n_hidden: int, activation: Any = None, bias: bool = True, init: Any = "glorot", key: Any = None,
                 dtype: Any = "float32", name: str | None = None, *, recurrent_init: Any = "orthogonal") -> None:
        super().__init__(n_in, n_hidden, activation, bias, init, key, dtype, name, recurrent_init=recurrent_init)
        self.c = self.parameter(np.zeros(3 * self.n_hidden, checks.floating(dtype)), "c") if checks.flag(bias, "bias") else None

    def forward(self, x: Any, h: Any, *, training: bool) -> Node:
        return F.gru_cell(x, h, self.w, self.u, self.b, self.c)


class LSTMCell(_Recurrent):
    """One step of LSTM: (x, h, c) -> (h, c)."""

    gates = 4

    def _bias(self, dtype: Any) -> Any:
        return _open_gate(self.n_hidden, dtype)

    def forward(self, x: Any, h: Any, c: Any, *, training: bool) -> Any:
        return F.lstm_cell(x, h, c, self.w, self.u, self.b)
