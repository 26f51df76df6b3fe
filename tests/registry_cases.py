"""What the generated tests share: sample points of an op, its analytic continuation, and the check of derivatives.

The oracle of values is the NumPy interpreter; that of derivatives is its complex step: f(x + ih) has the derivative in its
imaginary part, without a difference and so without its error. Functions without a complex extension in NumPy (the gamma and
error functions) are differentiated by mpmath.
"""
from __future__ import annotations

import math

import mpmath
import numpy as np
from counting import checked

import graphdiff as gd
from graphdiff.graph.opdef import REGISTRY, OpDef
from graphdiff.ops import binary, unary
from graphdiff.runtime.reference import reference

STEP = 1e-200           # of the complex step: its square vanishes
FLOATS = ("float64", "float32", "float16")
INTEGERS = ("int64", "int32", "uint8", "bool")

ELEMENTWISE = [n for n, op in REGISTRY.items() if op.family == "elementwise" and n not in ("cast", "where", "int_power")]
SMOOTH = [n for n in ELEMENTWISE if REGISTRY[n].partials is not None]


def _public():
    """op name -> the function that makes its nodes."""
    table = {}
    for module in (unary, binary):
        for f in vars(module).values():
            op = getattr(f, "op", None)
            if isinstance(op, OpDef):
                table[op.name] = f
    return table


PUBLIC = _public()

# Arguments every op is tried at, where they lie in its domain: small, beside 1, large, tiny.
POINTS = (0.7, -0.7, 2.3, -2.3, 1e-8, 20.0)
POSITIVE = (0.7, 2.3, 0.3, 1.6, 0.05, 20.0)
# Operands whose sample points are not POINTS filtered by a finite value: (first, second) lists, paired element by element.
SPECIAL = {
    "power": ((0.7, 2.3, 20.0, 1e-8, 1.5, 0.3, 2.0), (2.3, -0.7, 0.7, 1.2, 3.0, -2.0, 1e-8)),
    "polygamma": ((1.0, 2.0, 3.0, 1.0, 0.0, 4.0), POSITIVE),
    "sinc_derivative": ((1.0, 2.0, 3.0, 1.0, 0.0, 2.0), (0.7, -0.7, 2.3, 1e-8, -2.3, 4.1)),
    "xlogy": ((0.7, -0.7, 2.3, -2.3, 1e-8, 20.0), POSITIVE),
    "fmod": ((0.7, -0.7, 2.3, 20.0, 7.1), (0.41, 0.43, -0.93, 0.73, 2.31)),
    "remainder": ((0.7, -0.7, 2.3, 20.0, 7.1), (0.41, 0.43, -0.93, 0.73, 2.31)),
}
ONLY_POSITIVE = ("lgamma", "digamma")


def points(name: str) -> list[np.ndarray]:
    """Operands (float64, one axis, equal lengths, no kinks) at which the op has a finite value."""
    op = REGISTRY[name]
    if name in SPECIAL:
        return [np.array(a) for a in SPECIAL[name]]
    base = np.array(POSITIVE if name in ONLY_POSITIVE else POINTS)
    extra = np.random.default_rng(5).uniform(0, 1, (op.arity, 6))
    columns = []
    for k in range(op.arity):
        lo, hi = op.domain[k] if k < len(op.domain) else (-2, 2)
        columns.append(np.concatenate([np.roll(base, 2 * k + (k > 0)), lo + (hi - lo) * extra[k]]))
    with np.errstate(all="ignore"):
        fine = np.isfinite(np.asarray(op.reference(*columns), float))
    if name in ("arcsin", "arccos", "arctanh"):
        fine &= np.abs(columns[0]) < 1
    columns = [c[fine] for c in columns]
    assert len(columns[0]) >= 6, name
    return columns


# -- analytic continuations ---------------------------------------------------------------------------------------------

MP = {
    "erf": mpmath.erf, "erfc": mpmath.erfc, "lgamma": lambda x: mpmath.log(mpmath.gamma(x)), "digamma": mpmath.digamma,
    "sinc": mpmath.sincpi, "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_grad": lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x), "exp_neg_square": lambda x: mpmath.exp(-x * x),
    "gaussian": lambda x: mpmath.exp(-x * x / 2),
    "gelu_tanh": lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x ** 3))),
    "polygamma": lambda n, x: mpmath.polygamma(int(n), x),
    "sinc_derivative": lambda n, x: mpmath.diff(lambda t: mpmath.sincpi(t), x, int(n)),
}
# Digits for a numerical derivative to be right to 1e-12 where it is as small as 1e-257 beside a value of 1.
DIGITS = {"erf": 400, "gelu": 250, "gelu_grad": 250, "gelu_tanh": 700}
DISCRETE = {"polygamma": 0, "sinc_derivative": 0}      # the operand that has no derivative


def mp_derivative(name: str, operand: int, xs: list[np.ndarray], order: int) -> np.ndarray:
    """The derivative of an op of MP in one operand, by mpmath."""
    f = MP[name]
    result = []
    with mpmath.workdps(DIGITS.get(name, 60)):
        for row in zip(*xs, strict=True):
            row = [mpmath.mpf(float(v)) for v in row]
            if name in DISCRETE:
                result.append(float(f(row[0] + order, row[1])))
            else:
                result.append(float(mpmath.diff(f, row[operand], order)))
    return np.array(result)


def step(outputs, feeds, node, direction=1.0):
    """The derivative of outputs along `direction` of one input, by the complex step of the reference interpreter."""
    fed = dict(feeds)
    fed[node] = np.asarray(feeds[node], np.complex128) + 1j * STEP * direction
    return [np.imag(v) / STEP if np.iscomplexobj(v) else np.zeros(v.shape) for v in reference(outputs, fed, complex_ok=True)]


# -- structural cases -----------------------------------------------------------------------------------------------------

def draw(shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(0.2, 1.8, shape) * np.where(
        np.random.default_rng([seed + 1, *shape]).random(shape) < 0.5, -1, 1)


def run(outputs, feeds, **options):
    return gd.function(list(feeds), list(outputs), **options)(*feeds.values())


def close(got, want, rtol, what=""):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    scale = np.abs(want).max(initial=0, where=np.isfinite(want))
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * (scale + 1e-300), err_msg=what)
    checked(got.size or 1)


def check_value(y, feeds, rtol=1e-13, want=None):
    """The C program, with all passes and with none, gives the reference interpreter's value (and `want`)."""
    oracle = reference([y], feeds)[0] if want is None else np.asarray(want)
    assert oracle.shape == y.shape
    for passes in (None, ()):
        got = run([y], feeds, passes=passes)[0]
        assert got.dtype == y.dtype
        if got.dtype.kind == "f":
            close(got.astype(float), oracle.astype(float), rtol)
        else:
            assert np.array_equal(got, oracle)
            checked(got.size or 1)


def check_derivatives(y, feeds, orders=(1, 2), rtol=1e-12):
    """Both modes and the adjoint identity against the complex step, order 1 and 2, along fixed random directions."""
    xs = [x for x in feeds if x.dtype.kind == "f"]
    if y.dtype.kind != "f" or not xs:
        return
    ts = [draw(x.shape, 3 + i) for i, x in enumerate(xs)]
    c = draw(y.shape, 2)
    names = [gd.constant(t) for t in ts]
    grads = gd.grad(y, xs, cotangent=gd.constant(c), unconnected="zero")
    tangent = gd.jvp(y, xs, names)
    wants = [sum(part) for part in zip(*[step([y], feeds, x, t) for x, t in zip(xs, ts, strict=True)], strict=True)]
    forward, *reverse = run([tangent, *grads], feeds)
    close(forward, wants[0], rtol, "forward mode")
    _identity(reverse, ts, c, wants[0], rtol, "reverse mode")
    if 2 not in orders:
        return
    # Second order: s = <grad, u>; its derivative along v, by all four orders of the modes.
    us = [draw(x.shape, 11 + i) for i, x in enumerate(xs)]
    s = None
    for g, u in zip(grads, us, strict=True):
        part = gd.sum(g * gd.constant(u))
        s = part if s is None else s + part
    want = sum(step([s], feeds, x, t)[0] for x, t in zip(xs, ts, strict=True))
    scale = sum(np.abs(step([g * gd.constant(u)], feeds, x, t)[0]).sum() for g, u in zip(grads, us, strict=True)
                for x, t in zip(xs, ts, strict=True))
    # Where the second derivative is 0 its terms cancel: some eps of the first one.
    scale += 1e-3 * float(np.abs(c * wants[0]).sum()) + 1e-300
    along = gd.jvp(y, xs, [gd.constant(u) for u in us])
    forward_reverse = gd.jvp(s, xs, names)
    reverse_reverse = gd.grad(s, xs, unconnected="zero")
    forward_forward = gd.sum(gd.jvp(along, xs, names) * gd.constant(c))
    reverse_forward = gd.grad(along, xs, cotangent=gd.constant(c), unconnected="zero")
    n = len(xs)
    a, b, *rest = run([forward_reverse, forward_forward, *reverse_reverse, *reverse_forward], feeds)
    found = {"forward over reverse": a, "forward over forward": b,
             "reverse over reverse": _dot(rest[:n], ts), "reverse over forward": _dot(rest[n:], ts)}
    for mode, value in found.items():
        assert abs(float(value) - float(want)) <= rtol * float(scale), f"{mode}: {value}, complex step {want}"
        checked()


def _dot(arrays, directions):
    return math.fsum(float((a * t).sum()) for a, t in zip(arrays, directions, strict=True))


def _identity(reverse, ts, c, forward, rtol, what):
    left = _dot(reverse, ts)
    right = math.fsum((forward * c).ravel().tolist())
    scale = sum(float(np.abs(r * t).sum()) for r, t in zip(reverse, ts, strict=True)) + 1e-300
    assert abs(left - right) <= rtol * scale, f"{what}: <J'c, t> = {left}, <c, Jt> = {right}"
    checked()


def op_names(outputs):
    from graphdiff.graph.walk import toposort
    return {n.op.name for n in toposort(outputs)}
