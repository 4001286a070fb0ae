"""The size of S = T ∪ R, where T is a low-rank NDPP and R holds each item i by itself with probability p_i, independent of T.

T has the marginal kernel Q M Qᵀ with QᵀQ = I. An item of T brings the factor z / (1 + (z − 1)p_i) to z^|S|, the others 1 + (z − 1)p_i:

    E z^|S| = Π_i (1 + (z − 1)p_i) · det(I − M + z H(z) M),        H(z) = Σ_i q_i q_iᵀ / (1 + (z − 1)p_i).

H takes O(n r²) for each z. Items with p_i ≤ SMALL_P enter through Chebyshev moments in p, which are summed once: |z| ≤ 1 keeps the pole at
p = 1/(1 − z) at a distance of ½ or more, so N_MOMENTS moments leave a relative error below 1e-15. The few other items are added one by one.
Probabilities are Fourier coefficients on the unit circle, with an absolute error of a few roundings. They are computed inside a window
that a Chernoff bound shows to miss less than MAX_MISSED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from ndpp._types import AnyArray, FloatArray
from ndpp.linalg.circle import nodes
from ndpp.linalg.operations import NUMPY

SMALL_P, N_MOMENTS = 0.05, 10
"""Items with p up to this are *light*: they enter through so many Chebyshev moments. The others are *heavy*."""
MAX_MISSED = 1e-17
"""Maximum probability of all sizes outside the window."""
_POINTS = SMALL_P / 2 * (1 + chebyshev.chebpts1(N_MOMENTS))
_TO_MOMENTS = np.linalg.inv(chebyshev.chebvander(chebyshev.chebpts1(N_MOMENTS), N_MOMENTS - 1))


class SizeDistribution(NamedTuple):
    """P(|S| = low + j) = probabilities[j]; all other sizes together have less than ``MAX_MISSED``."""

    low: int
    probabilities: FloatArray

    def at(self, size: int) -> float:
        """Return P(|S| = size)."""
        inside = self.low <= size < self.low + len(self.probabilities)
        return float(self.probabilities[size - self.low]) if inside else 0.0

    def spread(self, length: int) -> FloatArray:
        """Return the distribution as an array over 0..length−1."""
        out = np.zeros(length)
        part = self.probabilities[: max(0, length - self.low)]
        out[self.low : self.low + len(part)] = part
        return out


class UnionSize(NamedTuple):
    """What E z^|S| is computed from, whatever z. ``moments`` (N_MOMENTS,) and ``grams`` (N_MOMENTS, r, r) are of the light items."""

    marginal: FloatArray
    heavy_p: FloatArray
    heavy_q: FloatArray
    moments: FloatArray
    grams: FloatArray

    @classmethod
    def prepare(cls, marginal: FloatArray, parts: Iterable[tuple[FloatArray, FloatArray]]) -> UnionSize:
        """Sum over all items; ``parts`` yields their p and rows q, some at a time. O(n r²)."""
        r = len(marginal)
        moments, grams = np.zeros(N_MOMENTS), np.zeros((N_MOMENTS, r, r))
        heavy_p, heavy_q = [np.empty(0)], [np.empty((0, r))]
        for p, q in parts:
            light = p <= SMALL_P
            heavy_p.append(p[~light])
            heavy_q.append(q[~light])
            basis = chebyshev.chebvander(2 * p[light] / SMALL_P - 1, N_MOMENTS - 1)
            moments += p[light] @ basis
            for gram, column in zip(grams, basis.T):
                gram += (q[light] * column[:, None]).T @ q[light]
        return cls(marginal, np.concatenate(heavy_p), np.concatenate(heavy_q), moments, grams)

    def system(self, z: AnyArray) -> AnyArray:
        """Return I − M + z H(z) M for each z of an array (m,), shape (m, r, r)."""
        H = np.stack([self._gram(partial(_factor, z=value)) for value in np.asarray(z, complex)])
        return np.eye(len(self.marginal)) - self.marginal + z[:, None, None] * (H @ self.marginal)

    def log_mean(self, z: AnyArray, system: AnyArray | None = None) -> AnyArray:
        """Return log E z^|S| for each z of an array (m,), up to multiples of 2πi."""
        change = np.asarray(z, complex) - 1
        light = np.log1p(np.multiply.outer(change, _POINTS)) / _POINTS @ _TO_MOMENTS.T @ self.moments
        heavy = np.log1p(np.multiply.outer(change, self.heavy_p)).sum(axis=1)
        log_abs, log_unit = NUMPY.log_det(self.system(z) if system is None else system)
        return np.asarray(light + heavy + log_unit + log_abs)

    def mean_and_variance(self) -> tuple[float, float]:
        """Return the mean and the variance of |S|: tr K and tr(K − K²) for K = diag(p) + (1 − p)^½ Q M Qᵀ (1 − p)^½."""
        light = _TO_MOMENTS @ np.stack([np.ones(N_MOMENTS), _POINTS], axis=1)
        alone, squares = self.moments @ light + [self.heavy_p.sum(), self.heavy_p @ self.heavy_p]
        tied, both = self._gram(lambda p: 1 - p) @ self.marginal, self._gram(lambda p: p * (1 - p)) @ self.marginal
        mean = alone + np.trace(tied)
        return float(mean), float(mean - squares - 2 * np.trace(both) - np.einsum("ij,ji->", tied, tied))

    def _gram(self, weight: Callable[[FloatArray], AnyArray]) -> AnyArray:
        """Return Σ q qᵀ weight(p) over all items."""
        light = np.tensordot(_TO_MOMENTS @ weight(_POINTS), self.grams, 1)
        return light + (self.heavy_q * weight(self.heavy_p)[:, None]).T @ self.heavy_q

    def distribution(self) -> SizeDistribution:
        """Return the distribution of |S|."""
        low, count = self.window()
        z = nodes(1.0, count)
        means = np.exp(self.log_mean(z))
        sizes = np.arange(low, low + count)
        probabilities = (means @ z[:, None] ** -sizes.astype(float)).real * 2 / count
        return SizeDistribution(low, probabilities.clip(0.0))

    def window(self) -> tuple[int, int]:
        """Return the first size and an even number of sizes outside of which there is less than ``MAX_MISSED``.

        P(|S| ≥ b) ≤ z^(−b) E z^|S| for every z ≥ 1, and P(|S| ≤ a) ≤ z^(−a) E z^|S| for every z ≤ 1.
        """
        theta = np.array([0.1, 0.3, 0.6, 1.0, 1.4])
        log_mean = self.log_mean(np.exp(np.concatenate([theta, -theta]))).real
        room = np.log(2 / MAX_MISSED)
        high = int(np.min((log_mean[:5] + room) / theta)) + 1
        low = max(0, int(np.max(-(log_mean[5:] + room) / theta)))
        return low, 2 * ((high - low) // 2 + 1)


def _factor(p: FloatArray, z: complex) -> AnyArray:
    return 1 / (1 + (z - 1) * p)
