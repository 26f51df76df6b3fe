"""The methods, each with its published update and defaults. g: gradient, w: parameter, t: number of the step from 1."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graph.node import Node
from ..graph.state import variable
from ..ops.binary import maximum, power
from ..ops.families import cast, flag
from ..ops.unary import sqrt, square
from .optimizer import Optimizer, fraction, not_negative, steps_as_float


class GradientDescent(Optimizer):
    """w - rate g."""

    def __init__(self, learning_rate: Any = 0.01, **options: Any) -> None:
        super().__init__(learning_rate, **options)

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        return w - rate * g, {}


class Momentum(Optimizer):
    """v = momentum v - rate g, w + v (Polyak 1964). averaged=True: v = momentum v + (1 - momentum) g, w - rate v."""

    slots = ("velocity",)

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.9, *, averaged: bool = False, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.momentum, self.averaged = fraction(momentum, "momentum"), flag(averaged, "averaged")

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        m = self.momentum
        if self.averaged:
            v = m * state["velocity"] + (1.0 - m) * g
            return w - rate * v, {"velocity": v}
        v = m * state["velocity"] - rate * g
        return w + v, {"velocity": v}


class Nesterov(Optimizer):
    """v = momentum v - rate g, w + momentum v - rate g: Nesterov's accelerated gradient (1983), in the form of Sutskever et al.
    2013 in which the gradient is taken where the parameters are."""

    slots = ("velocity",)

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.9, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.momentum = fraction(momentum, "momentum")

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        v = self.momentum * state["velocity"] - rate * g
        return w + (self.momentum * v - rate * g), {"velocity": v}


class Adagrad(Optimizer):
    """s = s + g^2, w - rate g / (sqrt(s) + eps). Source: Duchi, Hazan, Singer 2011."""

    slots = ("squares",)

    def __init__(self, learning_rate: Any = 0.01, eps: float = 1e-10, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.eps = not_negative(eps, "eps")

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        s = state["squares"] + square(g)
        return w - rate * g / (sqrt(s) + self.eps), {"squares": s}


class Adadelta(Optimizer):
    """s = rho s + (1 - rho) g^2, d = sqrt(u + eps) / sqrt(s + eps) g, u = rho u + (1 - rho) d^2, w - rate d.
    Source: Zeiler 2012 (rate 1)."""

    slots = ("squares", "steps")

    def __init__(self, learning_rate: Any = 1.0, rho: float = 0.95, eps: float = 1e-6, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.rho, self.eps = fraction(rho, "rho"), not_negative(eps, "eps")

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        s = self.rho * state["squares"] + (1.0 - self.rho) * square(g)
        d = sqrt(state["steps"] + self.eps) / sqrt(s + self.eps) * g
        u = self.rho * state["steps"] + (1.0 - self.rho) * square(d)
        return w - rate * d, {"squares": s, "steps": u}


class RMSprop(Optimizer):
    """s = rho s + (1 - rho) g^2, w - rate g / (sqrt(s) + eps). Source: Tieleman, Hinton 2012 (lecture 6.5)."""

    slots = ("squares",)

    def __init__(self, learning_rate: Any = 0.001, rho: float = 0.9, eps: float = 1e-8, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.rho, self.eps = fraction(rho, "rho"), not_negative(eps, "eps")

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        s = self.rho * state["squares"] + (1.0 - self.rho) * square(g)
        return w - rate * g / (sqrt(s) + self.eps), {"squares": s}


class Adam(Optimizer):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
    Source: Kingma, Ba 2015, with both corrections taken out of the quotient as at the end of its section 2."""

    slots: tuple[str, ...] = ("mean", "squares")

    def __init__(self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.beta1, self.beta2, self.eps = fraction(beta1, "beta1"), fraction(beta2, "beta2"), not_negative(eps, "eps")

    def _moments(self, g: Node, state: Mapping[str, Node]) -> tuple[Node, Node]:
        m = self.beta1 * state["mean"] + (1.0 - self.beta1) * g
        v = self.beta2 * state["squares"] + (1.0 - self.beta2) * square(g)
        return m, v

    def _corrections(self, t: Node, dtype: Any) -> tuple[Node, Node]:
        """1 / (1 - b1^t) and c = sqrt(1 - b2^t): two scalars a step, computed in float64.

        Since sqrt(v / c^2) + eps is (sqrt(v) + eps c) / c, no element needs to be divided by a correction: a division costs
        as much as ten multiplications.
        """
        n = steps_as_float(t)
        return cast(1.0 / (1.0 - power(self.beta1, n)), dtype), cast(sqrt(1.0 - power(self.beta2, n)), dtype)

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        m, v = self._moments(g, state)
        k, c = self._corrections(t, w.dtype)
        return w - (rate * k * c) * m / (sqrt(v) + self.eps * c), {"mean": m, "squares": v}


class AdamW(Adam):
    """Adam, and w - rate weight_decay w apart from the gradient. Source: Loshchilov, Hutter 2019."""

    decoupled = True

    def __init__(self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
                 weight_decay: float = 0.01, **options: Any) -> None:
        super().__init__(learning_rate, beta1, beta2, eps, weight_decay=weight_decay, **options)


class AMSGrad(Adam):
    """Adam with the largest v so far in the place of v, corrected as in Adam. Source: Reddi, Kale, Kumar 2018, whose algorithm 2
    is corrected=False."""

    slots = ("mean", "squares", "largest")

    def __init__(self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, *,
                 corrected: bool = True, **options: Any) -> None:
        super().__init__(learning_rate, beta1, beta2, eps, **options)
        self.corrected = flag(corrected, "corrected")

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        m, v = self._moments(g, state)
        top = maximum(state["largest"], v)
        new = {"mean": m, "squares": v, "largest": top}
        if not self.corrected:
            return w - rate * m / (sqrt(top) + self.eps), new
        k, c = self._corrections(t, w.dtype)
        return w - (rate * k * c) * m / (sqrt(top) + self.eps * c), new


class NAdam(Adam):
    """Adam with Nesterov's momentum: the mean is mu' m / (1 - P mu') + (1 - mu) g / (1 - P), with mu = b1 (1 - 0.96^(t decay) / 2),
    mu' the next one and P their product so far. Source: Dozat 2016."""

    def __init__(self, learning_rate: Any = 0.002, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
                 momentum_decay: float = 0.004, **options: Any) -> None:
        super().__init__(learning_rate, beta1, beta2, eps, **options)
        self.momentum_decay = not_negative(momentum_decay, "momentum_decay")
        self.product = variable(1.0, "momentum product")

    def _mu(self, t: Any) -> Any:
        return self.beta1 * (1.0 - 0.5 * power(0.96, t * self.momentum_decay))

    def rule(self, w: Node, g: Node, state: Mapping[str, Node], rate: Any, t: Node) -> tuple[Node, dict[str, Node]]:
        m, v = self._moments(g, state)
        n = steps_as_float(t)
        now, then = self._mu(n), self._mu(n + 1.0)
        product = self.product * now
        of_mean, of_gradient = cast(then / (1.0 - product * then), w.dtype), cast((1.0 - now) / (1.0 - product), w.dtype)
        _, c = self._corrections(t, w.dtype)
        return w - (rate * c) * (of_mean * m + of_gradient * g) / (sqrt(v) + self.eps * c), {"mean": m, "squares": v}

    def shared(self, t: Node) -> dict[Node, Node]:
        return {self.product: self.product * self._mu(steps_as_float(t))}

    def _named(self) -> dict[str, Node]:
        return {**super()._named(), "momentum product": self.product}
