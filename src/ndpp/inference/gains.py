"""Gains: the factor by which each item would multiply det L_Y, for a set Y of chosen items.

The gain of item a is det L_{Y∪a} / det L_Y = L^Y_aa, L^Y = L − L_:Y L_Y⁻¹ L_Y:. All gains are formed in O(n r²) from
coordinates in which the items of Y have been eliminated, large directions first, and follow one more item in O(n r) by
a rank-one update. Both carry an estimate of their rounding error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import EPS
from ndpp.linalg.schur import ROUNDING, Remainder


class Gains(NamedTuple):
    """The gain of every row of the support, and estimates of the rounding errors."""

    values: FloatArray
    noise: FloatArray
    given: Remainder
    is_fresh: bool

    @classmethod
    def fresh(cls, kernel: LowRankKernel, given: Remainder) -> Gains:
        """Compute all gains from the remainder of L. O(n r²)."""
        values, noise = np.empty(kernel.n_rows), np.empty(kernel.n_rows)
        size, relative = len(given.M) + 1, (len(given.M) + 1) * ROUNDING + given.noise
        largest = max(np.abs(given.M).max(initial=0.0), given.magnitudes.max(initial=0.0) / size)
        absolute = ROUNDING * np.linalg.norm(given.to_z)
        for block, Q in kernel.q_blocks():
            Z = Q @ given.to_z
            values[block] = np.einsum("ij,ij->i", Z @ given.M, Z)
            error = np.linalg.norm(Z * relative, axis=1) + absolute
            noise[block] = largest * error * (np.linalg.norm(Z, axis=1) + error)
        return cls(values, noise, given, True)

    def after(self, kernel: LowRankKernel, row: int) -> Gains:
        """Return the gains after adding an item, by a rank-one Schur complement. O(n r)."""
        to_z, M = self.given.to_z, self.given.M
        z = kernel.q_rows(np.array([row]))[0] @ to_z
        u, v = M @ z, z @ M
        pivot = float(z @ u)
        both = kernel.q_times(to_z @ np.column_stack([u, v]))
        change = both[:, 0] * (both[:, 1] / pivot)  # the product alone may overflow
        noise = self.noise + (4 * EPS + self.noise[row] / pivot) * np.abs(change)
        return Gains(self.values - change, noise, self.given._replace(M=M - np.outer(u, v / pivot)), False)
