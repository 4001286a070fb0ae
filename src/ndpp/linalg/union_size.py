"""The size of S = T ∪ R, where T is a low-rank NDPP and R holds each item i by itself with probability p_i, independent of T.

T has the marginal kernel with entries q_iᵀ M q_j, and v_i = (1 − p_i)^½ q_i. An item of T brings the factor z / (1 + (z − 1)p_i) to
z^|S|, the others 1 + (z − 1)p_i, so that

    E z^|S| = Π_i (1 + (z − 1)p_i) · det(I + (z − 1) H(z) M),        H(z) = Σ_i v_i v_iᵀ / (1 + (z − 1)p_i).

H takes O(n r²) for each z. *Light* items, those with a small p_i, enter through H(z) = Σ_k (1 − z)^k Σ_i p_i^k v_i v_iᵀ, whose sums are
computed once. The smaller p_i, the fewer terms matter: on the unit circle, |1 − z| ≤ 2, and terms with (2 p_i)^k < ``LEFT_OUT`` are left
out, which changes H by that part of itself at most. The few other items are added one by one. Probabilities are Fourier coefficients on
the unit circle, with an absolute error of a few roundings. They are computed inside a window that a Chernoff bound shows to miss less
than ``MAX_MISSED``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ndpp._types import AnyArray, FloatArray
from ndpp.linalg.circle import nodes
from ndpp.linalg.operations import NUMPY
from ndpp.linalg.scaling import quadratic_forms

SMALL_P = 0.05
"""Items with a larger p are heavy."""
LEFT_OUT = 1e-15
"""Terms of light items below this part of the first one are left out."""
N_TERMS = int(np.ceil(np.log(LEFT_OUT) / np.log(2 * SMALL_P)))
LEAST_P = 0.5 * LEFT_OUT ** (1 / np.arange(1, N_TERMS))
"""The smallest p with which an item has a second, third, … term."""
MAX_MISSED = 1e-17
"""Maximum probability of all sizes outside the window."""
MAX_THETA = 1.8
"""Largest log z of the Chernoff bound, for which the series of the light items converges fast."""


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
    """What E z^|S| is computed from, whatever z.

    ``moments`` are Σ p^(k+1) of the light items, k = 0..N_TERMS−1. ``parts`` (N_TERMS + number of heavy items, r²) are Σ p^k v vᵀM of the
    light items, and v vᵀM of each heavy one.
    """

    heavy_p: FloatArray
    moments: FloatArray
    parts: FloatArray

    @classmethod
    def prepare(cls, marginal: FloatArray, items: Iterable[tuple[FloatArray, FloatArray]]) -> UnionSize:
        """Sum over all items; ``items`` yields their p and rows v, some at a time. O(n r²)."""
        r = len(marginal)
        moments, grams = np.zeros(N_TERMS), np.zeros((N_TERMS, r, r))
        heavy_p, heavy_rows = [np.empty(0)], [np.empty((0, r))]
        for p, rows in items:
            heavy, light = np.split(np.argsort(-p), [np.count_nonzero(p > SMALL_P)])
            heavy_p.append(p[heavy])
            heavy_rows.append(rows[heavy])
            p, rows = p[light], rows[light]
            root, power = np.sqrt(p)[:, None], p.copy()
            for k, least in enumerate((-1.0, *LEAST_P)):
                count = int(np.searchsorted(-p, -least))
                if k:
                    rows[:count] *= root[:count]
                    power[:count] *= p[:count]
                moments[k] += power[:count].sum()
                grams[k] += rows[:count].T @ rows[:count]
        tall = np.concatenate(heavy_rows)
        one_by_one = tall[:, :, None] * (tall @ marginal)[:, None]
        parts = np.concatenate([grams @ marginal, one_by_one]).reshape(N_TERMS + len(tall), r * r)
        return cls(np.concatenate(heavy_p), moments, parts)

    def system(self, z: AnyArray) -> AnyArray:
        """Return I + (z − 1) H(z) M for each z of an array (m,), shape (m, r, r)."""
        r, change = math.isqrt(self.parts.shape[1]), np.asarray(z)[:, None] - 1
        weights = np.hstack([change * (-change) ** np.arange(N_TERMS), change / (1 + change * self.heavy_p)])
        out = np.empty((len(z), r * r), weights.dtype)
        out.real = weights.real @ self.parts
        if np.iscomplexobj(out):
            out.imag = weights.imag @ self.parts
        out[:, :: r + 1] += 1.0
        return out.reshape(len(z), r, r)

    def log_mean(self, z: AnyArray, system: AnyArray | None = None) -> AnyArray:
        """Return log E z^|S| for each z of an array (m,), up to multiples of 2πi."""
        change, k = np.asarray(z, complex) - 1, np.arange(1, N_TERMS + 1)
        light = -(((-change[:, None]) ** k / k) @ self.moments)
        heavy = _log1p(np.multiply.outer(change, self.heavy_p)).sum(axis=1)
        log_abs, log_unit = NUMPY.log_det(self.system(z) if system is None else system)
        return np.asarray(light + heavy + log_unit + log_abs)

    def mean_and_variance(self) -> tuple[float, float]:
        """Return the mean and the variance of |S|: the first derivatives of log E z^|S| at z = 1."""
        p, r = self.heavy_p, math.isqrt(self.parts.shape[1])
        weights = np.stack([np.append(np.eye(N_TERMS)[k], p**k) for k in (0, 1)])
        first, second = (weights @ self.parts).reshape(2, r, r)
        mean = self.moments[0] + p.sum() + np.trace(first)
        bend = self.moments[1] + p @ p + 2 * np.trace(second) + np.einsum("ij,ji->", first, first)
        return float(mean), float(mean - bend)

    def distribution(self) -> SizeDistribution:
        """Return the distribution of |S|."""
        low, count = self.window()
        z = nodes(1.0, count)
        means = np.exp(self.log_mean(z))
        sizes = np.arange(low, low + count)
        probabilities = (means @ z[:, None] ** -sizes.astype(float)).real * 2 / count
        return SizeDistribution(low, probabilities.clip(0.0))

    def inclusions(self, size: int, marginal: FloatArray, items: Iterable[tuple[FloatArray, FloatArray]]) -> FloatArray:
        """Return P(i ∈ S | |S| = size) of all items; ``marginal`` and ``items`` as for :meth:`prepare`.

        With the weights w of the points z, E z^|S| / z^size in units of their sum, u = 1 + (z − 1)p_i and M(z) = M(I + (z − 1)H(z)M)⁻¹, it
        is Σ_z w z (p_i + v_iᵀM(z)v_i / u) / u. For light items, 1/u² = Σ_k (k + 1) (1 − z)^k p_i^k: sums over z come first.
        """
        z, r, k = nodes(1.0, self.window()[1]), len(marginal), np.arange(N_TERMS)
        system = self.system(z)
        log_weights = self.log_mean(z, system) - size * np.log(z)
        weights = np.exp(log_weights - log_weights.real.max())
        weights *= z / weights.real.sum()
        inner = np.linalg.solve(system.swapaxes(1, 2), marginal.T).swapaxes(1, 2)
        terms, flat = weights * (1 - z) ** k[:, None], inner.reshape(len(z), r * r)
        second = (k + 1)[:, None] * terms
        light_inner = (second.real @ flat.real - second.imag @ flat.imag).reshape(N_TERMS, r, r)
        found = [np.empty(0)]
        for p, rows in items:
            out, order = np.empty(len(p)), np.argsort(-p)
            heavy, light = np.split(order, [np.count_nonzero(p > SMALL_P)])
            u = 1 + np.multiply.outer(p[heavy], z - 1)
            forms = np.stack([complex_forms(rows[heavy], M) for M in inner], axis=1)
            out[heavy] = (((p[heavy, None] + forms / u) / u) @ weights).real
            p, rows = p[light], rows[light]
            value = np.polynomial.polynomial.polyval(p, terms.real.sum(axis=1)) * p
            for j, least in enumerate((-1.0, *LEAST_P)):
                count = int(np.searchsorted(-p, -least))
                value[:count] += p[:count] ** j * quadratic_forms(rows[:count], light_inner[j])
            out[light] = value
            found.append(out)
        return np.concatenate(found)

    def window(self) -> tuple[int, int]:
        """Return the first size and an even number of sizes outside of which there is less than ``MAX_MISSED``.

        P(|S| ≥ b) ≤ z^(−b) E z^|S| for every z ≥ 1, and P(|S| ≤ a) ≤ z^(−a) E z^|S| for every z ≤ 1. The z are about the best ones for a
        normal distribution.
        """
        room, variance = np.log(2 / MAX_MISSED), self.mean_and_variance()[1]
        best = min(MAX_THETA, float(np.sqrt(2 * room / max(variance, 1e-3))))
        theta = best * np.array([0.5, 0.65, 0.8, 1.0])
        log_mean = self.log_mean(np.exp(np.concatenate([theta, -theta]))).real
        high = int(np.min((log_mean[:4] + room) / theta)) + 1
        low = max(0, int(np.max(-(log_mean[4:] + room) / theta)))
        return low, 2 * ((high - low) // 2 + 1)


def complex_forms(rows: FloatArray, M: AnyArray) -> AnyArray:
    """Return vᵀMv of every row v, for complex M."""
    return np.asarray(quadratic_forms(rows, M.real) + 1j * quadratic_forms(rows, M.imag))


def _log1p(values: AnyArray) -> AnyArray:
    """Return log(1 + x) of complex numbers to full accuracy for small x, which NumPy's function has for real ones only."""
    a, b = values.real, values.imag
    return np.asarray(0.5 * np.log1p(a * (2 + a) + b * b) + 1j * np.arctan2(b, 1 + a))
