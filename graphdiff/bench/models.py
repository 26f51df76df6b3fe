"""Workloads in float64: logistic regression, a Gaussian mixture, and the Jacobian of a camera's projection."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .streams import _sigmoid
from .workload import add, normal

# -- logistic regression: 10,000 samples of 100 numbers -------------------------------------------------------------------


def _logistic_back(g: Any, w: Any, b: Any, x: Any, t: Any) -> list[Any]:
    margin = t * (x @ w + b)
    slope = _sigmoid(-margin) * t * (-g / len(t))
    return [np.mean(np.logaddexp(0, -margin)), slope @ x, slope.sum()]


add("logreg_10000x100_f64", lambda: [normal(100, dtype="float64") / 10, np.array(0.1)],
    lambda m, w, b, x, t: m.mean(m.softplus(-t * (m.matmul(x, w) + b))),      # labels are -1 and 1
    lambda w, b, x, t: np.mean(np.logaddexp(0, -t * (x @ w + b))), _logistic_back,
    fixed=lambda: [normal(10_000, 100, dtype="float64", seed=1), np.sign(normal(10_000, dtype="float64", seed=2))])


# -- Gaussian mixture: 1000 points of 10 numbers, 25 components ------------------------------------------------------------
# The negative log likelihood. Component k has the inverse Cholesky factor exp(diagonal[k]) on the diagonal and the lower part
# of factor[k] below it, as in the benchmark of Srajer, Kukelova, Fitzgibbon 2018 (without its prior).

_N, _D, _K = 1000, 10, 25
_CONSTANT = _N * _D / 2 * math.log(2 * math.pi)


def _mixture_loss(m: Any, alphas: Any, means: Any, diagonal: Any, factor: Any, x: Any, mask: Any) -> Any:
    c = x - means[:, None, :]
    z = m.matmul(c, (factor * mask).swapaxes(1, 2)) + c * m.exp(diagonal)[:, None, :]
    score = (alphas + m.sum(diagonal, axis=1))[:, None] - 0.5 * m.sum(z * z, axis=2)
    return _N * m.logsumexp(alphas, axis=0) - m.sum(m.logsumexp(score, axis=0)) + _CONSTANT


def _log_sum(x: Any) -> Any:
    top = x.max(axis=0)
    return top + np.log(np.exp(x - top).sum(axis=0))


def _mixture(alphas: Any, means: Any, diagonal: Any, factor: Any, x: Any, mask: Any) -> tuple[Any, ...]:
    c, q, f = x - means[:, None], np.exp(diagonal)[:, None], factor * mask
    z = c @ f.swapaxes(1, 2) + c * q
    score = (alphas + diagonal.sum(1))[:, None] - 0.5 * (z * z).sum(2)
    top = _log_sum(score)
    return _N * _log_sum(alphas) - top.sum() + _CONSTANT, c, q, f, z, score, top


def _mixture_back(g: Any, alphas: Any, means: Any, diagonal: Any, factor: Any, x: Any, mask: Any) -> list[Any]:
    y, c, q, f, z, score, top = _mixture(alphas, means, diagonal, factor, x, mask)
    p = np.exp(score - top) * g
    gz = p[:, :, None] * z
    shares, weights = p.sum(1), np.exp(alphas - _log_sum(alphas))
    return [y, g * _N * weights - shares, -(gz @ f + gz * q).sum(1), (gz * c).sum(1) * q[:, 0] - shares[:, None],
            gz.swapaxes(1, 2) @ c * mask]


add("gmm_n1000_d10_k25_f64",
    lambda: [normal(_K, dtype="float64"), normal(_K, _D, dtype="float64", seed=1), normal(_K, _D, dtype="float64", seed=2) / 4,
             normal(_K, _D, _D, dtype="float64", seed=3) / 4],
    _mixture_loss, lambda *arrays: _mixture(*arrays)[0], _mixture_back,
    fixed=lambda: [normal(_N, _D, dtype="float64", seed=4), np.tril(np.ones((_D, _D)), -1)])


# -- bundle adjustment: 500 points, each seen by a camera of its own ------------------------------------------------------------
# Rotation vector, translation, lens (focal length and two terms of radial distortion), point: 2 residuals and their
# derivatives to 12 numbers a point (the camera of Snavely, Seitz, Szeliski 2006).

def _columns(x: Any) -> list[Any]:
    return [x[:, i] for i in range(3)]


def _reprojection(m: Any, rotation: Any, translation: Any, lens: Any, point: Any, seen: Any) -> Any:
    (r0, r1, r2), (t0, t1, t2), (f, k1, k2), (x0, x1, x2) = (_columns(a) for a in (rotation, translation, lens, point))
    squared = r0 * r0 + r1 * r1 + r2 * r2
    angle = m.sqrt(squared)
    c = m.cos(angle)
    a = m.sin(angle) / angle
    along = (r0 * x0 + r1 * x1 + r2 * x2) * ((1.0 - c) / squared)
    depth = x2 * c + (r0 * x1 - r1 * x0) * a + r2 * along + t2
    u = -(x0 * c + (r1 * x2 - r2 * x1) * a + r0 * along + t0) / depth
    v = -(x1 * c + (r2 * x0 - r0 * x2) * a + r1 * along + t1) / depth
    radius = u * u + v * v
    scale = f * (1.0 + radius * (k1 + k2 * radius))
    return m.stack([scale * u - seen[:, 0], scale * v - seen[:, 1]], axis=1)


def _reprojection_rows(_: Any, r: Any, t: Any, lens: Any, x: Any, seen: Any) -> list[Any]:
    """Residuals [n, 2]; the first one's derivatives to the four arrays, then the second one's."""
    squared = (r * r).sum(1)[:, None]
    angle = np.sqrt(squared)
    c, a = np.cos(angle), np.sin(angle) / angle
    b = (1 - c) / squared
    along, across = (r * x).sum(1)[:, None], np.cross(r, x)
    p = x * c + across * a + r * along * b + t
    uv = -p[:, :2] / p[:, 2:]
    radius = (uv * uv).sum(1)[:, None]
    f, k1, k2 = lens[:, :1], lens[:, 1:2], lens[:, 2:]
    distortion = 1 + radius * (k1 + k2 * radius)
    # The rotated point moves with the rotation vector along three ways: through cos, sin / angle and (1 - cos) / angle^2
    turned = -x * a + across * (c - a) / squared + r * along * (a - 2 * b) / squared
    results = [f * distortion * uv - seen]
    for i in range(2):
        slope = 2 * f * (k1 + 2 * k2 * radius) * uv[:, i:i + 1] * uv      # of residual i to u and v
        slope[:, i] += (f * distortion)[:, 0]
        gp = np.concatenate([-slope / p[:, 2:], -(slope * uv).sum(1)[:, None] / p[:, 2:]], axis=1)
        along_g = (gp * r).sum(1)[:, None]
        gr = r * (gp * turned).sum(1)[:, None] + np.cross(x, gp) * a + gp * along * b + x * along_g * b
        gx = gp * c + np.cross(gp, r) * a + r * along_g * b
        results += [gr, gp, np.concatenate([distortion, f * radius, f * radius * radius], axis=1) * uv[:, i:i + 1], gx]
    return results


add("ba_jacobian_p500_f64",
    lambda: [normal(500, 3, dtype="float64") / 4, normal(500, 3, dtype="float64", seed=1) + np.array([0, 0, -8.0]),
             normal(500, 3, dtype="float64", seed=2) / 10 + np.array([2.0, 0, 0]), normal(500, 3, dtype="float64", seed=3)],
    _reprojection, lambda *arrays: _reprojection_rows(None, *arrays)[0], _reprojection_rows,
    fixed=lambda: [normal(500, 2, dtype="float64", seed=4)], columns=True)
