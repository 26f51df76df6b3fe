"""Peers: the same workload in the words of NumPy, autograd, PyTorch, JAX, PyTensor, numexpr and CasADi.

A workload says once what it computes, `build(m, *xs)`, in the vocabulary m of a library: m.exp, m.matmul, m.conv ... A
library that lacks a word sits the row out (Missing). NumPy has no derivatives, so its forward + reverse is written by hand
in the workload. Each `Peer.call` returns a function of no arguments that computes everything anew and waits for the result.
Results are arrays with memory of their own: where PyTorch's gradient is only an expanded view, its row includes writing it.
"""
from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Call = Callable[[], Any]
COLUMNS = "columns"      # in the place of a cotangent: one reverse pass for each column of the value


class Missing(Exception):
    """This library has no word for something the workload needs."""


class Peer(NamedTuple):
    name: str
    version: str
    # call(build, arrays, fixed, cotangent, COLUMNS or None): value, or value and gradients to the arrays
    call: Callable[[Any, Sequence[Any], Sequence[Any], Any], Call]
    words: Any      # the vocabulary m


class _Words:
    """A vocabulary: the given functions, then the attributes of the modules in turn."""

    def __init__(self, *modules: Any, **words: Any) -> None:
        self._modules = modules
        self.__dict__.update(words)

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise Missing(name)


def _seeds(y: Any, cotangent: Any) -> list[Any]:
    """The cotangents of all reverse passes, as NumPy arrays."""
    if cotangent is not COLUMNS:
        return [cotangent]
    import numpy as np
    seeds = [np.zeros(y.shape) for _ in range(y.shape[1])]
    for k, seed in enumerate(seeds):
        seed[:, k] = 1
    return seeds


def _padding(p: int, n: int) -> list[tuple[int, int]]:
    return [(p, p)] * n


# -- graphdiff ------------------------------------------------------------------------------------------------------------

def graphdiff_words() -> Any:
    import graphdiff as gd

    def cross_entropy(x: Any, t: Any) -> Any:
        return -gd.mean(gd.take_along_axis(gd.log_softmax(x), t[:, None], axis=1))

    return _Words(gd, take=lambda x, i: gd.take(x, i, axis=0), transpose=gd.matrix_transpose, cross_entropy=cross_entropy)


def graphdiff(threads: int, bound: bool = True) -> Peer:
    """bound: f.bind, whose results live in arrays of its own; else f(...), whose results are new arrays."""
    import graphdiff as gd
    m = graphdiff_words()

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        xs = [gd.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        constants = [gd.input(f"c{i}", a.shape, a.dtype) for i, a in enumerate(fixed)]
        y = build(m, *xs, *constants)
        inputs, outputs, values = [*xs, *constants], [y], [*arrays, *fixed]
        if cotangent is COLUMNS:
            outputs += [g for k in range(y.shape[1]) for g in gd.grad(gd.sum(y[:, k]), xs)]
        elif cotangent is not None:
            g = gd.input("g", cotangent.shape, cotangent.dtype)
            outputs += gd.grad(y, xs, cotangent=g)
            inputs.append(g)
            values.append(cotangent)
        f = gd.function(inputs, outputs, threads=threads)
        if bound:
            return f.bind(*values)
        return lambda: f(*values)
    return Peer("graphdiff", gd.__version__, call, m)


# -- autograd -------------------------------------------------------------------------------------------------------------

def autograd(threads: int) -> Peer:
    from importlib.metadata import version

    import autograd.numpy as anp
    import autograd.scipy.special as special
    from autograd import make_vjp

    def softmax(x: Any, axis: int = -1) -> Any:
        e = anp.exp(x - anp.max(x, axis=axis, keepdims=True))
        return e / anp.sum(e, axis=axis, keepdims=True)

    def sigmoid(x: Any) -> Any:
        return 0.5 * (anp.tanh(0.5 * x) + 1)

    def layer_norm(x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
        c = x - anp.mean(x, axis=-1, keepdims=True)
        return c / anp.sqrt(anp.mean(c * c, axis=-1, keepdims=True) + eps) * gamma + beta

    def batch_norm(x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
        c = x - anp.mean(x, axis=(0, 2, 3), keepdims=True)
        shape = (1, -1, 1, 1)
        return (c / anp.sqrt(anp.mean(c * c, axis=(0, 2, 3), keepdims=True) + eps) * anp.reshape(gamma, shape)
                + anp.reshape(beta, shape))

    m = _Words(anp, softmax=softmax, sigmoid=sigmoid, relu=lambda x: anp.maximum(x, 0), layer_norm=layer_norm, batch_norm=batch_norm,
               softplus=lambda x: anp.logaddexp(0.0, x), logsumexp=special.logsumexp,
               gelu=lambda x: 0.5 * x * (1 + special.erf(x * 0.7071067811865476)), take=lambda x, i: x[i],
               cross_entropy=lambda x, t: anp.mean(special.logsumexp(x, axis=1) - x[anp.arange(len(t)), t]))

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        def f(*xs: Any) -> Any:
            return build(m, *xs, *fixed)
        if cotangent is None:
            return lambda: f(*arrays)
        both = make_vjp(f, tuple(range(len(arrays))))

        def run() -> Any:
            vjp, y = both(*arrays)
            return [y, *(g for c in _seeds(y, cotangent) for g in vjp(c))]
        return run
    return Peer("autograd", version("autograd"), call, m)


# -- PyTorch --------------------------------------------------------------------------------------------------------------

def torch(threads: int, compiled: bool = False) -> Peer:
    import torch as th
    import torch.nn.functional as F
    th.set_num_threads(threads)

    def conv(x: Any, w: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        return (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3](x, w, stride=stride, padding=padding, groups=groups)

    def transposed(x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        return (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.dim() - 3](x, w, stride=stride, padding=padding)

    def written(x: Any) -> Any:
        """The gradient of a sum is an expanded view of the cotangent: no array until somebody writes it out."""
        return x.contiguous() if 0 in x.stride() else x

    def total(x: Any, axis: Any = None) -> Any:
        return th.sum(x) if axis is None else th.sum(x, dim=axis)

    m = _Words(th, sum=total, stack=lambda xs, axis: th.stack(xs, dim=axis), softplus=F.softplus,
               logsumexp=lambda x, axis: th.logsumexp(x, dim=axis), conv=conv, conv_transpose=transposed, max_pool=F.max_pool2d,
               softmax=lambda x, axis=-1: th.softmax(x, dim=axis), gelu=F.gelu,
               take=lambda x, i: F.embedding(i, x), layer_norm=lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b),
               batch_norm=lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True),
               cross_entropy=F.cross_entropy, sort=lambda x: th.sort(x, stable=True)[0], transpose=lambda x: x.mT,
               attention=lambda q, k, v, causal=False: F.scaled_dot_product_attention(q, k, v, is_causal=causal))

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        constants = [th.from_numpy(a) for a in fixed]

        def f(*xs: Any) -> Any:
            return build(m, *xs, *constants)
        g = f if not compiled else th.compile(f)
        xs = [th.from_numpy(a.copy()).requires_grad_(cotangent is not None) for a in arrays]
        if cotangent is None:
            def value() -> Any:
                with th.inference_mode():
                    return g(*xs)
            return value
        if cotangent is COLUMNS:
            def rows() -> Any:
                y = g(*xs)
                return [y, *(d for k in range(y.shape[1]) for d in th.autograd.grad(y[:, k].sum(), xs, retain_graph=k + 1 < y.shape[1]))]
            return rows
        seed = th.from_numpy(cotangent)

        def both() -> Any:
            y = g(*xs)
            return [y, *map(written, th.autograd.grad(y, xs, seed))]
        return both
    return Peer("torch.compile" if compiled else "torch", th.__version__, call, m)


# -- JAX ------------------------------------------------------------------------------------------------------------------

def jax(threads: int) -> Peer:
    import jax as jx
    import jax.numpy as jnp
    from jax import lax
    jx.config.update("jax_enable_x64", True)
    jx.config.update("jax_platforms", "cpu")
    letters = {3: ("NCH", "OIH"), 4: ("NCHW", "OIHW"), 5: ("NCDHW", "OIDHW")}

    def conv(x: Any, w: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        data, kernel = letters[x.ndim]
        return lax.conv_general_dilated(x, w, (stride,) * (x.ndim - 2), _padding(padding, x.ndim - 2),
                                        dimension_numbers=(data, kernel, data), feature_group_count=groups)

    def transposed(x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        data, kernel = letters[x.ndim]
        flipped = jnp.flip(jnp.swapaxes(w, 0, 1), tuple(range(2, w.ndim)))
        return lax.conv_general_dilated(x, flipped, (1,) * (x.ndim - 2), [(k - 1 - padding,) * 2 for k in w.shape[2:]],
                                        lhs_dilation=(stride,) * (x.ndim - 2), dimension_numbers=(data, kernel, data))

    def max_pool(x: Any, k: int) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, k, k), (1, 1, k, k), "VALID")

    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta

    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        axes, shape = (0, 2, 3), (1, -1, 1, 1)
        return ((x - x.mean(axes, keepdims=True)) * lax.rsqrt(x.var(axes, keepdims=True) + 1e-5) * gamma.reshape(shape)
                + beta.reshape(shape))

    def cross_entropy(x: Any, t: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(jx.nn.log_softmax(x), t[:, None], axis=1))

    def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
        return jx.nn.softmax(s, axis=-1) @ v

    m = _Words(jnp, jx.nn, conv=conv, conv_transpose=transposed, max_pool=max_pool, layer_norm=layer_norm, batch_norm=batch_norm,
               gelu=lambda x: jx.nn.gelu(x, approximate=False), take=lambda x, i: jnp.take(x, i, axis=0), cross_entropy=cross_entropy,
               softmax=jx.nn.softmax, relu=jx.nn.relu, transpose=lambda x: x.swapaxes(-1, -2), attention=attention)

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        xs, constants = [jnp.asarray(a) for a in arrays], [jnp.asarray(a) for a in fixed]

        def f(*values: Any) -> Any:
            return build(m, *values)
        if cotangent is None:
            value = jx.jit(lambda xs, constants: f(*xs, *constants))
            return lambda: jx.block_until_ready(value(xs, constants))
        seed = None if cotangent is COLUMNS else jnp.asarray(cotangent)

        def pair(xs: Any, constants: Any, seed: Any) -> Any:
            y, vjp = jx.vjp(lambda *xs: f(*xs, *constants), *xs)
            return [y, *(g for c in ([seed] if seed is not None else _seeds(y, COLUMNS)) for g in vjp(c))]
        both = jx.jit(pair)
        return lambda: jx.block_until_ready(both(xs, constants, seed))
    return Peer("jax", jx.__version__, call, m)


# -- PyTensor -------------------------------------------------------------------------------------------------------------

def pytensor(threads: int) -> Peer:
    import pytensor as pt
    import pytensor.tensor as tt
    from pytensor.tensor import special

    def einsum(equation: str, *xs: Any) -> Any:
        return tt.einsum(equation, *xs)

    m = _Words(tt, einsum=einsum, softmax=lambda x, axis=-1: special.softmax(x, axis=axis), relu=lambda x: tt.maximum(x, 0),
               take=lambda x, i: x[i], transpose=lambda x: x.swapaxes(-1, -2))

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        xs = [tt.tensor(dtype=a.dtype, shape=a.shape) for a in arrays]
        constants = [tt.constant(a) for a in fixed]
        y = build(m, *xs, *constants)
        outputs, inputs, values = [y], list(xs), list(arrays)
        if cotangent is COLUMNS:
            outputs += [g for k in range(y.type.shape[1]) for g in pt.grad(y[:, k].sum(), xs, disconnected_inputs="ignore")]
        elif cotangent is not None:
            g = tt.tensor(dtype=cotangent.dtype, shape=cotangent.shape)
            outputs += pt.grad(None, xs, known_grads={y: g}, disconnected_inputs="ignore")
            inputs.append(g)
            values.append(cotangent)
        f = pt.function(inputs, outputs, on_unused_input="ignore", trust_input=True)
        return lambda: f(*values)
    return Peer("pytensor", pt.__version__, call, m)


# -- CasADi: graphs of scalars -------------------------------------------------------------------------------------------

def casadi(threads: int) -> Peer:
    import casadi as ca
    import numpy as np
    m = _Words(ca, stack=lambda xs, axis: ca.horzcat(*xs))

    def buffered(f: Any, arrays: Sequence[Any], outs: Sequence[Any], results: Any) -> Call:
        """With prepared buffers: the cheapest way to call a function of CasADi."""
        buffer, run = f.buffer()
        for i, a in enumerate(arrays):
            buffer.set_arg(i, memoryview(a))
        for i, a in enumerate(outs):
            buffer.set_res(i, memoryview(a))
        alive = f, buffer, arrays      # run() reads their memory and does not hold them

        def again() -> Any:
            run()
            return results if alive else None
        return again

    def by_rows(build: Any, arrays: Sequence[Any], fixed: Sequence[Any]) -> Call:
        """The graph of one row, mapped over all."""
        every = [*arrays, *fixed]
        xs = [ca.SX.sym(f"x{i}", 1, a.shape[1]) for i, a in enumerate(every)]
        y = build(m, *xs)
        outputs = [y, *(ca.jtimes(y[k], x, ca.SX(1), True) for k in range(y.shape[1]) for x in xs[:len(arrays)])]
        outs = [np.zeros((len(arrays[0]), o.shape[1])) for o in outputs]
        return buffered(ca.Function("f", xs, outputs).map(len(arrays[0])), every, outs, outs)

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        if cotangent is COLUMNS:
            return by_rows(build, arrays, fixed)
        if any(a.ndim for a in arrays) or fixed or any(a.dtype != np.float64 for a in arrays):
            raise Missing("arrays")
        xs = [ca.SX.sym(f"x{i}") for i in range(len(arrays))]
        y = build(m, *xs)
        outputs = [y] if cotangent is None else [y, *(ca.jtimes(y, x, ca.SX(float(cotangent)), True) for x in xs)]
        outs = [np.zeros(1) for _ in outputs]
        return buffered(ca.Function("f", xs, outputs), [np.array([float(a)]) for a in arrays], outs, [a[0:1].reshape(()) for a in outs])
    return Peer("casadi", ca.__version__, call, m)


# -- numexpr: one elementwise expression, as text -------------------------------------------------------------------------

class _Text:
    """A part of an expression: what numexpr has for a graph."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __neg__(self) -> _Text:
        return _Text(f"(-{self.text})")


def _infix(symbol: str, swapped: bool) -> Callable[[_Text, Any], _Text]:
    def operation(x: _Text, y: Any) -> _Text:
        other = y.text if isinstance(y, _Text) else repr(y)
        return _Text(f"({other} {symbol} {x.text})" if swapped else f"({x.text} {symbol} {other})")
    return operation


for _name, _symbol in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("pow", "**")):
    setattr(_Text, f"__{_name}__", _infix(_symbol, False))
    setattr(_Text, f"__r{_name}__", _infix(_symbol, True))


def numexpr(threads: int) -> Peer:
    import numexpr as ne
    ne.set_num_threads(threads)

    def function(name: str) -> Callable[[_Text], _Text]:
        return lambda x: _Text(f"{name}({x.text})")

    m = _Words(**{f: function(f) for f in ("exp", "log", "log1p", "sin", "tan", "tanh", "sinh", "arctan")},
               relu=lambda x: _Text(f"where({x.text} > 0, {x.text}, 0)"), sigmoid=lambda x: _Text(f"(1 / (1 + exp(-{x.text})))"))

    def call(build: Any, arrays: Sequence[Any], fixed: Sequence[Any], cotangent: Any) -> Call:
        if cotangent is not None:
            raise Missing("derivatives")
        y = build(m, *(_Text(f"x{i}") for i in range(len(arrays))))
        if not isinstance(y, _Text):
            raise Missing("more than one expression")
        values = {f"x{i}": a for i, a in enumerate(arrays)}
        ne.evaluate(y.text, values)
        return lambda: ne.re_evaluate(values)
    return Peer("numexpr", ne.__version__, call, m)


MAKERS: dict[str, Callable[[int], Peer]] = {"autograd": autograd, "torch": torch, "torch.compile": lambda threads: torch(threads, True),
                                            "jax": jax, "pytensor": pytensor, "casadi": casadi, "numexpr": numexpr}
PACKAGES = {"torch.compile": "torch"}


def installed(name: str) -> bool:
    return importlib.util.find_spec(PACKAGES.get(name, name)) is not None


def as_numpy(result: Any) -> list[Any]:
    """Results of any library as NumPy arrays."""
    import numpy as np
    parts = list(result) if isinstance(result, (list, tuple)) else [result]
    return [np.asarray(p.detach() if hasattr(p, "detach") else p) for p in parts]
