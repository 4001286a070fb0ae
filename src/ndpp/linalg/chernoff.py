"""Tilts θ under which counts or totals of items are likely to keep within bounds: the minimum of Chernoff's bound.

With b = low where θ > 0 and b = high where θ < 0, P(low ≤ c(S) ≤ high) ≤ A(θ) = E e^{θ·c(S)} e^{−θ·b}.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import gammaincc

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray

MOST_LOG_FACTOR = 30.0
"""Largest logarithm of a factor e^{θ·c}."""
MOST_STEPS, MAX_STEP, HALVINGS = 30, 4.0, 6
"""Newton steps of θ, the largest of them in units of the largest value, and how often one is halved."""
CLOSE, RIDGE = 0.1, 1e-6
"""A mean that differs from its bound by this part of its standard deviation is close enough; a smaller variance counts as this."""
VALUE_RATIO, CHANCE_RATIO = 1.1, 2.0
"""Items whose values and whose mean probabilities differ by up to about these factors are taken together."""


class TotalCumulants(Protocol):
    """Numbers c_j of several distributions, as :class:`GroupedCoins` has them."""

    @property
    def units(self) -> FloatArray:
        """The largest value of an item in each c_j, 1 where there is none, (J,)."""

    def cumulants(self, theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log E e^{θ·c} of some distributions, with a θ (m, J) for each, and the means and covariances of c under it."""


class GroupedCoins(NamedTuple):
    """Independent items of C distributions, those of similar values together: of group k, ``counts`` (C, K) with probability ``p`` each.

    Counts need not be whole. ``values`` (J, K) are those of an item of each group.
    """

    p: FloatArray
    counts: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, p: FloatArray, values: FloatArray) -> GroupedCoins:
        """Group items of probabilities p (C, n) and values (J, n); means and variances of c_j with equal values stay as they are."""
        which = np.flatnonzero(values.any(axis=0) & (p > 0).any(axis=0))
        if not len(which):
            return cls(np.zeros((len(p), 1)), np.zeros((len(p), 1)), np.zeros((len(values), 1)))
        V, p = values[:, which], p[:, which]
        level = np.round(np.log(np.where(V > 0, V, 1.0)) / np.log(VALUE_RATIO)).astype(np.int32)
        level[V == 0] = np.iinfo(np.int32).min
        popular = np.round(np.log(p.sum(axis=0)) / np.log(CHANCE_RATIO)).astype(np.int32)
        group = np.unique(np.vstack([level, popular]), axis=1, return_inverse=True)[1].reshape(-1)
        order = np.argsort(group, kind="stable")
        p, V, first = p[:, order], V[:, order], np.flatnonzero(np.diff(group[order], prepend=-1))
        weight = p.sum(axis=0)
        total, square = np.add.reduceat(p, first, axis=1), np.add.reduceat(p**2, first, axis=1)
        means = np.add.reduceat(V * weight, first, axis=1) / np.add.reduceat(weight, first)
        each = np.divide(square, total, out=np.zeros_like(total), where=total > 0)
        return cls(each, np.divide(total, each, out=np.zeros_like(total), where=each > 0), means)

    @property
    def units(self) -> FloatArray:
        """The largest value of each c_j."""
        return np.where(self.values.any(axis=1), self.values.max(axis=1, initial=0.0), 1.0)

    def cumulants(self, theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log E e^{θ·c}, means and covariances."""
        p, counts, V = self.p[which], self.counts[which], self.values
        x = theta @ V
        total = 1 + p * np.expm1(x)
        q = p * np.exp(x) / total
        own = counts * q
        covariance = np.stack([(own * (1 - q)) @ (V * v).T for v in V], axis=1)
        return (counts * np.log(total)).sum(axis=1), own @ V.T, covariance


def chances_within(mean: FloatArray, variance: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return about P(low_j ≤ c_j ≤ high_j) for numbers c_j of these moments (C, J), as if they were multiples of Poisson numbers."""
    unit = np.divide(variance, mean, out=np.ones_like(mean), where=(mean > 0) & (variance > 0))
    below = np.where(
        high < np.inf, gammaincc(np.where(high < np.inf, high.clip(0.0), 0.0) / unit + 1, mean / unit), 1.0
    )
    short = np.where(low > 0, gammaincc(np.where(low > 0, low, 1.0) / unit, mean / unit), 0.0)
    return np.asarray((below - short).clip(0.0, 1.0))


def chernoff_tilts(
    law: TotalCumulants, low: FloatArray, high: FloatArray, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return θ_c (C, J) that minimises Chernoff's bound of P_c(low ≤ c(S) ≤ high), and the logarithm of the bound.

    log A_c = log E e^{θ·c} − θ·b is convex, with a kink at 0, where θ_j stays if the mean of c_j is within the limit. Newton steps from
    ``start``, projected and halved, for all components at once. ``law`` may be that under ``start``.
    """
    unit = law.units
    low, high, first = low / unit, high / unit, start * unit
    theta, moving = first.copy(), np.arange(len(start))

    def bound(theta: FloatArray, at: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log A, and the means and covariances of c under θ."""
        logs, mean, covariance = law.cumulants((theta - first[at]) / unit, at)
        aim = np.where(theta > 0, low, np.where(theta < 0, high, 0.0))
        return logs - (theta * aim).sum(axis=1), mean / unit, covariance / np.outer(unit, unit)

    value, mean, covariance = bound(theta, moving)
    best = value.copy()
    for _ in range(MOST_STEPS):
        look()
        step, side = _newton(theta[moving], mean, covariance, low, high)
        far = side.any(axis=1)
        moving, step, side = moving[far], step[far], side[far]
        value, mean, covariance = value[far], mean[far], covariance[far]
        left = np.arange(len(moving))
        for _ in range(HALVINGS):  # until it is better
            if not len(left):
                break
            new = (theta[moving[left]] + step[left]).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)
            new = np.where(new * side[left] > 0, new, 0.0)
            found = bound(new, moving[left])
            good = found[0] < value[left]
            theta[moving[left[good]]] = new[good]
            for old, part in zip((value, mean, covariance), found):
                old[left[good]] = part[good]
            left = left[~good]
            step[left] /= 2
        best[moving] = value
        kept = np.delete(np.arange(len(moving)), left)
        moving, value, mean, covariance = moving[kept], value[kept], mean[kept], covariance[kept]
        if not len(moving):
            break
    return theta / unit, best


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
