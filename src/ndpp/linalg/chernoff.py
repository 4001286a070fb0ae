"""Tilts θ under which counts or totals of independent items are likely to keep within bounds: the minimum of Chernoff's bound.

With b = low where θ > 0 and b = high where θ < 0, P(low ≤ c(S) ≤ high) ≤ A(θ) = E e^{θ·c(S)} e^{−θ·b}.
"""

from __future__ import annotations

import numpy as np

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray

MOST_LOG_FACTOR = 30.0
"""Largest logarithm of a factor e^{θ·c}."""
MOST_STEPS, MAX_STEP, HALVINGS = 30, 4.0, 6
"""Newton steps of θ, the largest of them in units of the largest value, and how often one is halved."""
CLOSE, RIDGE = 0.02, 1e-6
"""A mean that differs from its bound by this part of its standard deviation is close enough; a smaller variance counts as this."""


def chernoff_tilts(
    p: FloatArray, values: FloatArray, low: FloatArray, high: FloatArray, start: FloatArray | None = None
) -> FloatArray:
    """Return θ_c (C, J) that minimises Chernoff's bound of P_c(low ≤ c(S) ≤ high), c_j(S) = Σ_{i∈S} values_ji, if items come independently.

    Items i come with probability p_ci in distribution c.

    log A_c = Σ_i log(1 + p_ci (e^{θ·c_i} − 1)) − θ·b is convex, with a kink at 0, where θ_j stays if the mean of c_j is within the limit.
    Newton steps, projected and halved, for all components at once. O(C n J²) each. ``p`` may be that under ``start``, to go on from.
    """
    which = np.flatnonzero(values.any(axis=0) & (p > 0).any(axis=0))
    unit = np.where(values[:, which].any(axis=1), values[:, which].max(axis=1, initial=0.0), 1.0)
    V, low, high, p = values[:, which].T / unit, low / unit, high / unit, p[:, which]
    first = np.zeros((len(p), len(low))) if start is None else start * unit
    theta, moving = first.copy(), np.arange(len(p))

    def bound(theta: FloatArray, at: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return log A and the chances of the items under θ."""
        x = (theta - first[at]) @ V.T
        total = 1 + p[at] * np.expm1(x)
        aim = np.where(theta > 0, low, np.where(theta < 0, high, 0.0))
        return np.log(total).sum(axis=1) - (theta * aim).sum(axis=1), p[at] * np.exp(x) / total

    value, q = bound(theta, moving)
    for _ in range(MOST_STEPS):
        look()
        step, side = _newton(
            theta[moving], q @ V, np.stack([(q * (1 - q)) @ (V * v[:, None]) for v in V.T], axis=1), low, high
        )
        far = side.any(axis=1)
        moving, step, side, value, q = moving[far], step[far], side[far], value[far], q[far]
        left = np.arange(len(moving))
        for _ in range(HALVINGS):  # until it is better
            if not len(left):
                break
            new = (theta[moving[left]] + step[left]).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)
            new = np.where(new * side[left] > 0, new, 0.0)
            found, chances = bound(new, moving[left])
            good = found < value[left]
            theta[moving[left[good]]], value[left[good]], q[left[good]] = new[good], found[good], chances[good]
            left = left[~good]
            step[left] /= 2
        moving, value, q = np.delete(moving, left), np.delete(value, left), np.delete(q, left, axis=0)
        if not len(moving):
            break
    return theta / unit


def _newton(
    theta: FloatArray, mean: FloatArray, H: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Newton steps from the means and covariances of c, and the sides of 0 on which θ may be: all 0 where it is good enough."""
    more, less = (theta > 0) | ((theta == 0) & (mean < low)), (theta < 0) | ((theta == 0) & (mean > high))
    gap, active = np.where(more, mean - low, np.where(less, mean - high, 0.0)), more | less
    far = (np.abs(gap) > CLOSE * np.sqrt(np.einsum("cjj->cj", H) + RIDGE)).any(axis=1, keepdims=True)
    H = np.where(active[:, :, None] & active[:, None, :], H, 0.0) + (RIDGE + ~active)[:, :, None] * np.eye(len(low))
    step = np.asarray(-np.linalg.solve(H, gap[:, :, None])[:, :, 0], np.float64)
    step *= np.minimum(1.0, MAX_STEP / np.abs(step).max(axis=1, keepdims=True).clip(MAX_STEP / 2))
    return step, np.asarray((more.astype(np.float64) - less) * far, np.float64)
