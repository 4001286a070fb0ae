"""Sizes of the sets of a mixture over families, component by component.

With item odds z r in place of r, a component's weight of all sets is its generating function: with o_g(z) = Σ_s a_s (Π(1 + z r_is) − 1) and
p = o/(1 + o),

    E z^|S| = Π_g (1 + o_g(z)) · det(I + W A(z)) / Z,        A(z) = Σ_g p_g(z) x_g x_gᵀ.

Probabilities are Fourier coefficients on a circle. For a single size its radius is the one at which that size is most probable, which gives
full relative accuracy; for all sizes it is nearly one. A Chernoff bound shows how many sizes there are to tell apart. O(N F r² + N r³).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import AnyArray, ComplexArray, FloatArray
from ndpp.linalg import nodes
from ndpp.linalg.operations import NUMPY

LOG_RADIUS = 1e-3
"""Off the unit circle, on which 1 + o(z) may have a root."""
ROOM = 40.0
"""−log of the probability of sizes that are left out."""
CHUNK = 64
"""Points z that are processed at a time."""
MAX_TILT, LARGEST = 20.0, 600.0
"""Largest |log z| for a single size, and largest log of the weight of a family."""
THETA = np.array([0.1, 0.3, 0.6, 1.0])
"""Values of log z of the Chernoff bound."""
RANK_TOLERANCE = 1e-17
"""Singular values below this part of the largest are left out."""
GRID = np.linspace(-6, 6, 61)
"""Values of log z from which proposals for sets of one size choose."""


class Point(NamedTuple):
    """What the generating function is made of at some points z: log totals of states (M, m), o (F, m), and I + A W (m, r, r)."""

    log_totals: AnyArray
    odds: AnyArray
    system: AnyArray


class FamilySizes(NamedTuple):
    """Component ``c`` of a :class:`~ndpp.laws.families.FamilyMixture`."""

    mixture: Any
    c: int

    def at(self, z: AnyArray, log_totals: AnyArray | None = None) -> Point:
        """Return the parts of E z^|S| for each z of an array (m,); ``log_totals``, if they are known."""
        patterns, touched = self.mixture.patterns, self.mixture.touched
        log_totals = patterns.log_totals_at(z) if log_totals is None else log_totals
        odds = patterns.by_family(self.mixture.odds[self.c][:, None] * np.expm1(log_totals))
        p = (odds / (1 + odds)).T
        r, m = touched.base.rank, len(z)
        # As functions of z the p are so smooth that a few combinations of them make up all.
        left, values, right = np.linalg.svd(np.concatenate([p.real, p.imag]), full_matrices=False)
        right = right[values > RANK_TOLERANCE * values[0]]
        total = np.zeros((len(right), r * (r + 1) // 2))
        for rows, pairs in touched._pairs():
            total += right[:, rows] @ pairs
        total = (left * values)[:, : len(right)] @ total
        A, upper = np.zeros((m, r, r), complex), np.triu_indices(r)
        A[:, upper[0], upper[1]] = A[:, upper[1], upper[0]] = total[:m] + 1j * total[m:]
        return Point(log_totals, odds, touched._system(A))

    def log_mean(self, z: AnyArray, log_totals: AnyArray | None = None) -> ComplexArray:
        """Return log E z^|S| for each z of an array (m,), up to multiples of 2πi."""
        out = np.empty(len(z), complex)
        for part in _chunks(len(z)):
            point = self.at(z[part], None if log_totals is None else log_totals[:, part])
            log_abs, log_unit = NUMPY.log_det(point.system)
            out[part] = np.log1p(point.odds).sum(axis=0) + log_abs + log_unit
        return np.asarray(out - self.mixture.touched.log_normalizers()[self.c])

    def circle(self, log_radius: float) -> ComplexArray:
        """Return the upper half of a circle of points, enough to tell apart the sizes that matter with item odds times this radius."""
        log_mean = self.log_mean(np.exp(log_radius + np.append(0.0, THETA))).real
        high = np.min((log_mean[1:] - log_mean[0] + ROOM) / THETA)
        count = int(min(high, self.mixture.largest[self.c])) + 1
        return nodes(float(np.exp(log_radius)), count + count % 2)

    def log_at(self, size: int) -> float:
        """Return log P(|S| = size)."""
        if size == 0 or size > self.mixture.largest[self.c]:
            return -float(self.mixture.touched.log_normalizers()[self.c]) if size == 0 else -np.inf
        log_weights = self._weights(size)[1]
        top = log_weights.real.max()
        value = np.exp(log_weights - top).real.mean()
        return float(np.log(value) + top) if value > 0 else -np.inf

    def inclusions(self, size: int) -> FloatArray:
        """Return P(a ∈ S | |S| = size) of every item."""
        mixture, patterns = self.mixture, self.mixture.patterns
        total = np.zeros(mixture.n_items)
        if size == 0:
            return total
        z, log_weights = self._weights(size)
        weights = np.exp(log_weights - log_weights.real.max())
        item, column = np.nonzero(patterns.odds)
        state, r = patterns.slots[patterns.families[item], column], patterns.odds[item, column]
        for part in _chunks(len(z)):
            point, here = self.at(z[part]), z[part]
            N = 2 * mixture.touched.base.ties.coordinates.B @ np.linalg.inv(point.system)
            share = np.empty_like(point.odds)  # P(g ∈ A) / o_g under z r
            for rows, Q in mixture.touched.base.ties.q_blocks():
                forms = np.einsum("ia,mab,ib->im", Q, N, Q, optimize=True)
                share[rows] = (1 + forms / (1 + point.odds[rows])) / (1 + point.odds[rows])
            mass = mixture.odds[self.c][state, None] * np.exp(point.log_totals[state])
            mass *= np.multiply.outer(r, here) / (1 + np.multiply.outer(r, here))
            np.add.at(total, item, ((mass * share[patterns.families[item]]) @ weights[part]).real)
        return np.asarray(total / weights.real.sum())

    def _weights(self, size: int) -> tuple[ComplexArray, ComplexArray]:
        """Return points of a circle on which ``size`` is typical, and log of E z^|S| / z^size there."""
        largest = max(len(items) for items in self.mixture.patterns.members)
        limit = min(MAX_TILT, LARGEST / largest)
        from scipy.optimize import minimize_scalar  # a fifth of the time that importing ndpp would take

        found = minimize_scalar(
            lambda x: float(self.log_mean(np.exp([x]))[0].real - size * x), bounds=(-limit, limit), method="bounded",
            options={"xatol": 0.01},
        )  # fmt: skip
        z = self.circle(float(found.x))
        return z, self.log_mean(z) - size * np.log(z)


def distributions(mixture: Any) -> FloatArray:
    """Return P_c(|S| = k) of all components for k = 0, 1, … up to the largest size, shape (C, largest size + 1)."""
    log_z, length = mixture.touched.log_normalizers(), mixture.max_size + 1
    tilted = [mixture.tilted(np.exp([theta])).log_normalizers() for theta in THETA]
    high = np.min([(log_mean - log_z + ROOM) / theta for log_mean, theta in zip(tilted, THETA)], axis=0)
    count = int(np.minimum(high, mixture.largest).max()) + 1
    z = nodes(float(np.exp(LOG_RADIUS)), count + count % 2)
    sizes, log_totals = np.arange(min(length, 2 * len(z))), mixture.patterns.log_totals_at(z)
    powers, out = z[:, None] ** -sizes.astype(float) / len(z), np.zeros((len(log_z), length))
    for c, row in enumerate(out):
        row[: len(sizes)] = (np.exp(FamilySizes(mixture, c).log_mean(z, log_totals)) @ powers).real
    return out.clip(0.0)


def tilts(mixture: Any, size: int) -> FloatArray:
    """Return log z for each component at which about ``size`` items are expected: a guess, which serves proposals only."""
    some = np.expm1(mixture.patterns.log_totals_at(np.exp(GRID)))
    logs = np.empty((len(mixture.odds), len(GRID)))
    for c, odds in enumerate(mixture.odds):
        logs[c] = np.log1p(mixture.patterns.by_family(odds[:, None] * some)).sum(axis=0)
    untied = np.nan_to_num(np.gradient(logs, GRID, axis=1), nan=np.inf)
    ratio = mixture.component_inclusions().sum(axis=1) / np.maximum(untied[:, len(GRID) // 2], 1e-300)
    return np.asarray(GRID[np.abs(untied * ratio[:, None] - max(size, 0.3)).argmin(axis=1)])


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
