"""Gains: what each item would multiply det L_Y by, for a set Y of items already in.

The gain of item a is det L_{Y∪a} / det L_Y = L^Y_aa, L^Y = L − L_:Y L_Y⁻¹ L_Y:. All gains are formed in O(n r²) from
coordinates in which the items of Y have been eliminated, large directions first, and follow one more item in O(n r) by
a rank-one update. Both carry an estimate of their rounding error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as sl

from ndpp._types import FloatArray
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import Coordinates

EPS = float(np.finfo(np.float64).eps)
ROW_ERROR = 16 * EPS
"""Absolute rounding error of a row of Q."""


class Given(NamedTuple):
    """What eliminating k items from L = Z C Zᵀ leaves: L^Y_ab = z_a M z_bᵀ with z_a = q_a · to_z.

    Z = Q · scale, C = balanced B. ``null`` spans, in terms of q_a, what the items cannot do alone: it is empty unless
    det L_Y = 0, and then to_z and M mean nothing.
    """

    to_z: FloatArray
    M: FloatArray
    noise: FloatArray
    null: FloatArray


def eliminate(coords: Coordinates, q: FloatArray) -> Given | None:
    """Return what is left of L given items with these rows of Q; None where the rows are dependent."""
    k, r, scale = len(q), coords.rank, coords.scale
    C = coords.B / np.outer(scale, scale)
    Z = q * scale
    if k > r or np.any(np.linalg.norm(q, axis=1) <= ROW_ERROR):
        return None
    norms = np.linalg.norm(Z, axis=1, keepdims=True)
    if k == 0:
        return Given(np.diag(scale), C, coords.noise, np.empty((r, 0)))
    # Columns differ by orders of magnitude. Pivots are taken in the large ones, so that small ones keep their digits.
    R, pivot = sl.qr(Z / norms, mode="r", pivoting=True)
    columns = np.linalg.norm(Z / norms, axis=0)[pivot[:k]]
    if np.any(np.abs(np.diag(R)) <= (64 * k * EPS + coords.noise[pivot[:k]]) * columns):
        return None
    E = sl.solve_triangular(R[:, :k], R[:, k:])
    F = np.zeros((k, r))
    F[:, pivot[:k]], F[:, pivot[k:]] = np.eye(k), E
    middle = F @ C @ F.T
    left, values, _ = sl.svd(middle)
    singular = values <= 64 * k * EPS * (np.abs(F) @ np.abs(C) @ np.abs(F).T).max()
    if singular.any():
        return Given(np.empty((r, 0)), np.empty((0, 0)), np.empty(0), scale[:, None] * (C @ (F.T @ left[:, singular])))
    free = pivot[k:]
    M = C - (C @ F.T) @ np.linalg.solve(middle, F @ C)
    to_z = np.zeros((r, r - k))
    to_z[pivot[:k]], to_z[free, np.arange(r - k)] = -E, 1.0
    return Given(scale[:, None] * to_z, M[np.ix_(free, free)], coords.noise[free], np.empty((r, 0)))


class Gains(NamedTuple):
    """The gain of every row of the support, given some, and how far rounding may have carried it."""

    values: FloatArray
    noise: FloatArray
    given: Given
    is_fresh: bool

    @classmethod
    def fresh(cls, kernel: LowRankKernel, given: Given) -> Gains:
        """Form all gains from what is left of L. O(n r²)."""
        values, noise = np.empty(kernel.n_rows), np.empty(kernel.n_rows)
        size, relative = np.abs(given.M).max(initial=0.0), 16 * (len(given.M) + 1) * EPS + given.noise
        absolute = ROW_ERROR * np.linalg.norm(given.to_z)
        for block, Q in kernel.q_blocks():
            Z = Q @ given.to_z
            values[block] = np.einsum("ij,ij->i", Z @ given.M, Z)
            error = np.linalg.norm(Z * relative, axis=1) + absolute
            noise[block] = size * error * (np.linalg.norm(Z, axis=1) + error)
        return cls(values, noise, given, True)

    def after(self, kernel: LowRankKernel, row: int) -> Gains:
        """Add one item: Schur complement by rank one. O(n r)."""
        to_z, M = self.given.to_z, self.given.M
        z = kernel.q_rows(np.array([row]))[0] @ to_z
        u, v = M @ z, z @ M
        pivot = float(z @ u)
        both = kernel.q_times(to_z @ np.column_stack([u, v]))
        change = both[:, 0] * (both[:, 1] / pivot)  # the product alone may be out of range
        noise = self.noise + (4 * EPS + self.noise[row] / pivot) * np.abs(change)
        return Gains(self.values - change, noise, self.given._replace(M=M - np.outer(u, v / pivot)), False)
