"""The size of S = T ∪ R, where T is a low-rank NDPP and R holds each item i by itself with probability p_i, independent of T.

T has the marginal kernel Q M Qᵀ with QᵀQ = I. An item of T brings the factor z / (1 + (z − 1)p_i) to z^|S|, the others 1 + (z − 1)p_i:

    E z^|S| = Π_i (1 + (z − 1)p_i) · det(I − M + z H(z) M),        H(z) = Σ_i q_i q_iᵀ / (1 + (z − 1)p_i).

H takes O(n r²) for each z. Items with a small p_i (``LIGHT``) enter through Chebyshev moments in p, which are summed once: |z| ≤ 1 keeps
the pole at p = 1/(1 − z) at a distance of ½ or more, so a few moments leave a relative error below 1e-15; the smaller p, the fewer. The few
other items are added one by one. Probabilities are Fourier coefficients on the unit circle, with an absolute error of a few roundings. They
are computed inside a window that a Chernoff bound shows to miss less than MAX_MISSED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from scipy.linalg import block_diag

from ndpp._types import AnyArray, FloatArray
from ndpp.linalg.circle import nodes
from ndpp.linalg.operations import NUMPY

LIGHT = (0.004, 6), (0.05, 10)
"""Items with p up to the last of these bounds are *light*: up to each bound, they enter through so many Chebyshev moments."""
SMALL_P = LIGHT[-1][0]
"""Items with a larger p are heavy."""
MAX_MISSED = 1e-17
"""Maximum probability of all sizes outside the window."""
_POINTS = np.concatenate([bound / 2 * (1 + chebyshev.chebpts1(count)) for bound, count in LIGHT])
_TO_MOMENTS = block_diag(
    *(np.linalg.inv(chebyshev.chebvander(chebyshev.chebpts1(count), count - 1)) for _, count in LIGHT)
)
N_MOMENTS = len(_POINTS)


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
            heavy_p.append(p[p > SMALL_P])
            heavy_q.append(q[p > SMALL_P])
            first, lower = 0, -np.inf
            for bound, count in LIGHT:
                some = (lower < p) & (p <= bound)
                here, rows = slice(first, first + count), q[some]
                basis = chebyshev.chebvander(2 * p[some] / bound - 1, count - 1)
                moments[here] += p[some] @ basis
                for gram, column in zip(grams[here], basis.T):
                    gram += (rows * column[:, None]).T @ rows
                first, lower = first + count, bound
        return cls(marginal, np.concatenate(heavy_p), np.concatenate(heavy_q), moments, grams)

    def system(self, z: AnyArray) -> AnyArray:
        """Return I − M + z H(z) M for each z of an array (m,), shape (m, r, r)."""
        r, change = len(self.marginal), np.asarray(z, complex)[:, None] - 1
        light = (1 / (1 + change * _POINTS)) @ _TO_MOMENTS.T  # of G_t M in H(z) M, where G_t are the grams
        HM = (light @ (self.grams @ self.marginal).reshape(N_MOMENTS, r * r)).reshape(len(z), r, r)
        heavy, tied = 1 / (1 + change * self.heavy_p), self.heavy_q @ self.marginal
        for matrix, weight in zip(HM, heavy) if len(self.heavy_p) else ():
            matrix.real += (self.heavy_q * weight.real[:, None]).T @ tied
            matrix.imag += (self.heavy_q * weight.imag[:, None]).T @ tied
        return np.asarray(np.eye(r) - self.marginal + z[:, None, None] * HM)

    def log_mean(self, z: AnyArray, system: AnyArray | None = None) -> AnyArray:
        """Return log E z^|S| for each z of an array (m,), up to multiples of 2πi."""
        change = np.asarray(z, complex) - 1
        light = _log1p(np.multiply.outer(change, _POINTS)) / _POINTS @ _TO_MOMENTS.T @ self.moments
        heavy = _log1p(np.multiply.outer(change, self.heavy_p)).sum(axis=1)
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


def _log1p(values: AnyArray) -> AnyArray:
    """Return log(1 + x) of complex numbers to full accuracy for small x, which NumPy's function has for real ones only."""
    a, b = values.real, values.imag
    return np.asarray(0.5 * np.log1p(a * (2 + a) + b * b) + 1j * np.arctan2(b, 1 + a))
