"""Coordinates in which B, and with it every resolvent R(s) = sB(I + sB)⁻¹, is diagonal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import ComplexArray, FloatArray
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import resolvent

TESTED_AT = np.exp([0.0, -4.0, -10.0])
"""Values of s at which a decomposition is tested."""
SPECTRUM_TOLERANCE = 1e-11
"""Largest error of a resolvent from the decomposition, relative to its largest entry."""


class Eigen(NamedTuple):
    """λ (K,), how often each counts, V (r, K) and V⁻¹ (K, r)."""

    values: ComplexArray
    multiplicity: FloatArray
    V: ComplexArray
    inverse: ComplexArray

    @classmethod
    def of(cls, B: FloatArray) -> Eigen | None:
        """Decompose B; None if its eigenvectors are too close to dependent. A skew B has orthonormal ones."""
        if np.array_equal(B, -B.T):
            values, V = np.linalg.eigh(1j * B)
            values, V = -1j * values[values > 0], V[:, values > 0]
            return cls(values, np.full(len(values), 2.0), V, V.conj().T)
        values, V = np.linalg.eig(B)
        if not np.linalg.cond(V) < 1 / SPECTRUM_TOLERANCE:
            return None
        kept = values.imag >= 0
        inverse = np.linalg.inv(V)
        return cls(values[kept], np.where(values[kept].imag > 0, 2.0, 1.0), V[:, kept], inverse[kept])

    def agrees(self, kernel: LowRankKernel) -> bool:
        """Return whether resolvents computed from the decomposition are those computed directly."""
        f = TESTED_AT[:, None] * self.values
        f /= 1 + f
        mine = np.einsum("ak,sk,kb->sab", self.V * self.multiplicity, f, self.inverse).real
        direct = np.concatenate([resolvent(kernel.coordinates, np.array([s]))[0] for s in TESTED_AT])
        largest = np.abs(direct).max(axis=(1, 2))
        return bool((np.abs(mine - direct).max(axis=(1, 2)) <= SPECTRUM_TOLERANCE * largest).all())
