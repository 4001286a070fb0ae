"""Sizes of the sets of a mixture over families, component by component.

With item odds z r in place of r, a component's weight of all sets is its generating function: with o_g(z) = Σ_s a_s (Π(1 + z r_is) − 1) and
p = o/(1 + o),

    E z^|S| = Π_g (1 + o_g(z)) · det(I + W A(z)) / Z,        A(z) = Σ_g p_g(z) x_g x_gᵀ.

Probabilities are Fourier coefficients on a circle. For a single size its radius is the one at which that size is most probable, which gives
full relative accuracy; for all sizes it is nearly one. A Chernoff bound shows how many sizes there are to tell apart. O(N F r² + N r³).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import AnyArray, ComplexArray, FloatArray, IntArray
from ndpp.linalg import nodes
from ndpp.linalg.operations import NUMPY
from ndpp.linalg.scaling import EPS
from ndpp.linalg.union_size import complex_forms

LOG_RADIUS = 1e-3
"""Off the unit circle, on which 1 + o(z) may have a root."""
ROOM = 40.0
"""−log of the probability of sizes that are left out."""
CHUNK = 64
"""Points z, and families, that are processed at a time."""
MAX_TILT, LARGEST = 20.0, 600.0
"""Largest |log z| for a single size, and largest log of the weight of a family."""
THETA = np.array([0.1, 0.3, 0.6, 1.0])
"""Values of log z of the Chernoff bound."""
TERMS = 32
"""Families whose p(z) needs more powers of z are added one by one."""
ROUNDED = 64 * EPS
"""Relative rounding error of p(z): smaller coefficients are left out."""
NEGLIGIBLE = 1e-17
"""Coefficients with smaller contributions to I + A(z) W are left out."""
SHARED = 1.1
"""Components whose numbers of sizes differ by less than this factor share their points z."""
GRID = np.linspace(-6, 6, 61)
"""Values of log z from which proposals for sets of one size choose."""


class FamilySizes(NamedTuple):
    """Component ``c`` of a :class:`~ndpp.laws.families.FamilyMixture`."""

    mixture: Any
    c: int

    def odds(self, some: AnyArray) -> AnyArray:
        """Return o(z) of all families, shape (F, m), from the weights of the non-empty sets of the states (M, m)."""
        return np.asarray(self.mixture.patterns.by_family(self.mixture.odds[self.c][:, None] * some))

    def systems(self, z: AnyArray, odds: AnyArray) -> Iterator[tuple[slice, AnyArray]]:
        """Yield I + A(z) W, shape (m', r, r), for some z at a time: real ones, or the upper half of a circle."""
        Q, QW = self.mixture.touched.sides
        r, p = Q.shape[1], odds / (1 + odds)
        powers, terms, heavy = _expansion(z, p, np.linalg.norm(Q, axis=1) * np.linalg.norm(QW, axis=1))
        light = np.empty((terms.shape[1], r * r))
        for matrix, column in zip(light, terms.T):
            rows = np.flatnonzero(column)
            matrix[:] = ((Q[rows] * column[rows, None]).T @ QW[rows]).ravel()
        for part in _chunks(len(z)):
            out = _product(powers[part], light)
            for few in (heavy[i : i + CHUNK] for i in range(0, len(heavy), CHUNK)):
                out += _product(p[few, part].T, (Q[few, :, None] * QW[few, None]).reshape(len(few), r * r))
            out[:, :: r + 1] += 1.0
            yield part, out.reshape(len(out), r, r)

    def log_mean(self, z: AnyArray, some: AnyArray | None = None) -> ComplexArray:
        """Return log E z^|S| for real z or the upper half of a circle, up to multiples of 2πi; ``some`` as in :meth:`odds`, if known."""
        odds = self.odds(self._some(z) if some is None else some)
        out = np.asarray(np.log1p(odds).sum(axis=0), complex)
        for part, system in self.systems(z, odds):
            log_abs, log_unit = NUMPY.log_det(system)
            out[part] += log_abs + log_unit
        return np.asarray(out - self.mixture.touched.log_normalizers()[self.c])

    def _some(self, z: AnyArray) -> AnyArray:
        return np.asarray(np.expm1(self.mixture.patterns.log_totals_at(z)))

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
        Q = mixture.touched.sides[0]
        some = self._some(z)
        odds = self.odds(some)
        for part, system in self.systems(z, odds):
            inner = mixture.touched.core @ np.linalg.inv(system)
            forms = np.stack([complex_forms(Q, M) for M in inner], axis=1)
            share = (1 + forms / (1 + odds[:, part])) / (1 + odds[:, part])  # P(g ∈ A) / o_g under z r
            mass = mixture.odds[self.c][state, None] * (1 + some[state, part])
            mass *= np.multiply.outer(r, z[part]) / (1 + np.multiply.outer(r, z[part]))
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
    counts = np.minimum(high, mixture.largest) + 1
    # Components with about as many sizes share a circle.
    steps, out = np.ceil(np.log(counts) / np.log(SHARED)).astype(int), np.zeros((len(log_z), length))
    for step in np.unique(steps):
        members = np.flatnonzero(steps == step)
        z = nodes(float(np.exp(LOG_RADIUS)), 2 * int(counts[members].max() // 2 + 1))
        sizes, some = np.arange(min(length, 2 * len(z))), np.expm1(mixture.patterns.log_totals_at(z))
        powers = z[:, None] ** -sizes.astype(float) / len(z)
        for c in members.tolist():
            out[c, : len(sizes)] = (np.exp(FamilySizes(mixture, c).log_mean(z, some)) @ powers).real
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


def _expansion(z: AnyArray, p: AnyArray, size: FloatArray) -> tuple[AnyArray, FloatArray, IntArray]:
    """Return functions of z (m, K), coefficients (F, K) and some numbers of families: p is their product for the other families.

    On a circle the functions are the first powers of z/|z|. Families that need higher ones are the ones that are returned. Coefficients
    that rounding explains, or that are negligible with matrices of this ``size``, are zero.
    """
    if not np.iscomplexobj(z):
        return np.eye(len(z)), p, np.empty(0, np.int64)
    powers = (z / abs(z))[:, None] ** np.arange(2 * len(z))
    terms = (p.real @ powers.real + p.imag @ powers.imag) / len(z)
    values = np.abs(terms)
    terms[(values <= ROUNDED * values.max(axis=1, keepdims=True)) | (values * size[:, None] <= NEGLIGIBLE)] = 0.0
    heavy = terms[:, TERMS:].any(axis=1)
    terms[heavy] = 0.0
    return powers[:, :TERMS], terms[:, :TERMS], np.flatnonzero(heavy)


def _product(left: AnyArray, right: FloatArray) -> AnyArray:
    """Return left @ right without making the second a complex matrix."""
    if not np.iscomplexobj(left):
        return left @ right
    out = np.empty((len(left), right.shape[1]), complex)
    out.real, out.imag = left.real @ right, left.imag @ right
    return out


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
