"""Coordinates in which B, and with it every resolvent R(s) = sB(I + sB)⁻¹, is diagonal, and the items' rows in them.

With B = V diag(λ) V⁻¹, an item has two sides, l_a = q_aᵀV and r_a = V⁻¹q_a. Of two conjugate eigenvalues one is kept, with l counted
twice, and everything is real: l is stored as (Re, Im) and r as (Re, −Im). These eigenvalues come first, and only they have the second
part, so that a side has as many entries as B has eigenvalues. If f(λ) = g + ih and f(λ*) = g − ih, for complex g and h, which are the
real and imaginary part of f(λ) if f is real on the real axis, then

    q_aᵀ f(B) q_b = l·(F r) = (l F)·r,        F (s, t) = (gs + ht, gt − hs),        (x, y) F = (gx − hy, gy + hx).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit
from ndpp._types import AnyArray, ComplexArray, FloatArray, IntArray
from ndpp.items import ItemIndex, LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import resolvent
from ndpp.rows.scaled import Scaled

TESTED_AT = np.exp([0.0, -4.0, -10.0])
"""Values of s at which a decomposition is tested."""
SPECTRUM_TOLERANCE = 1e-11
"""Largest error of a resolvent from the decomposition, relative to its largest entry."""


class Eigen(NamedTuple):
    """λ (K,), those with a conjugate first, how often each counts, V (r, K) and V⁻¹ (K, r)."""

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
        kept = np.concatenate([np.flatnonzero(values.imag > 0), np.flatnonzero(values.imag == 0)])
        inverse = np.linalg.inv(V)
        multiplicity = np.where(values[kept].imag > 0, 2.0, 1.0)
        return cls(values[kept].astype(complex), multiplicity, V[:, kept], inverse[kept])

    def agrees(self, kernel: LowRankKernel) -> bool:
        """Return whether resolvents computed from the decomposition are those computed directly."""
        f = TESTED_AT[:, None] * self.values
        f /= 1 + f
        mine = np.einsum("ak,sk,kb->sab", self.V * self.multiplicity, f, self.inverse).real
        direct = np.concatenate([resolvent(kernel.coordinates, np.array([s]))[0] for s in TESTED_AT])
        largest = np.abs(direct).max(axis=(1, 2))
        return bool((np.abs(mine - direct).max(axis=(1, 2)) <= SPECTRUM_TOLERANCE * largest).all())

    def packed(self, columns: ComplexArray) -> FloatArray:
        """Return complex columns (…, K) as real ones, without imaginary parts of real eigenvalues."""
        return np.ascontiguousarray(np.concatenate([columns.real, columns.imag[:, self.multiplicity > 1]], axis=1))


class EigenRows(NamedTuple):
    """The sides of all items of a kernel, as its eigenvalues and rows to compute them from.

    l and r of an item are its row of ``rows`` (n, d), times its factor, times ``to_left`` and ``to_right`` (d, D). If ``to_right`` is
    empty, as it is if B is skew, r is half of l. If both are empty, the row holds l and r themselves, one after the other. If ``rows`` is
    empty, rows of Q are fetched from a store. ``in_q`` (2, r, D) makes l and r of a row of Q.
    """

    values: ComplexArray
    multiplicity: FloatArray
    rows: AnyArray
    factors: FloatArray
    to_left: FloatArray
    to_right: FloatArray
    in_q: FloatArray

    @classmethod
    def of(cls, index: ItemIndex | None) -> EigenRows | None:
        """Decompose the kernel of a leverage table; None for other indexes or if the decomposition disagrees with the kernel.

        O(r³), and O(n r²) if Q is kept.
        """
        if type(index) is not LeverageTable:
            return None
        kernel = index.kernel
        eigen, coords, X, one = Eigen.of(kernel.coordinates.B), kernel.coordinates, kernel._factor, np.ones(1)
        if eigen is None or not eigen.agrees(kernel):
            return None
        in_q = np.stack([eigen.packed(eigen.V * eigen.multiplicity), eigen.packed(eigen.inverse.T.conj())])
        left, right = in_q
        make = partial(cls, eigen.values, eigen.multiplicity)
        if coords.Q is not None:
            return make(np.concatenate([coords.Q @ left, coords.Q @ right], axis=1), one, left[:0], left[:0], in_q)
        if isinstance(X, Scaled):
            one, X = X.factors, X.source
        to_right = right[:0] if np.array_equal(left, 2 * right) else right
        if not isinstance(X, np.ndarray):
            return make(np.empty((0, 1)), np.ones(1), left, to_right, in_q)
        return make(X, one, coords.to_q @ left, coords.to_q @ to_right if len(to_right) else to_right, in_q)

    def sides(self, kernel: LowRankKernel, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return l and r of items, shapes (m, D)."""
        if not len(self.rows):
            x = kernel.q_rows(which)
        else:
            x = self.rows[which] * (self.factors if self.factors.size == 1 else self.factors[which, None])
        if not len(self.to_left):
            left, right = np.split(x, 2, axis=1)
            return np.ascontiguousarray(left), np.ascontiguousarray(right)
        left = x @ self.to_left
        return left, x @ self.to_right if len(self.to_right) else left / 2


@njit(error_model="numpy")
def fetch(which: IntArray, eigen: EigenRows, left: FloatArray, right: FloatArray) -> None:
    """Write l and r of items with rows in memory into left and right, shapes (m, D)."""
    n, D, d = which.size, left.shape[1], eigen.rows.shape[1]
    if len(eigen.to_left) == 0:
        for i in range(n):
            for k in range(D):
                left[i, k], right[i, k] = eigen.rows[which[i], k], eigen.rows[which[i], D + k]
        return
    x = np.empty((n, d))
    for i in range(n):
        a = which[i]
        scale = eigen.factors[a] if eigen.factors.size > 1 else eigen.factors[0]
        for k in range(d):
            x[i, k] = scale * eigen.rows[a, k]
    np.dot(x, eigen.to_left, left)
    if len(eigen.to_right):
        np.dot(x, eigen.to_right, right)
    else:
        for i in range(n):
            for k in range(D):
                right[i, k] = left[i, k] / 2


@njit(fastmath={"contract"}, error_model="numpy")
def apply_right(g: FloatArray, K: int, right: FloatArray, out: FloatArray) -> None:
    """Write F r for a real part of F, stored as (g, h), K and D − K of them."""
    for k in range(g.size - K):
        a, b, s, t = g[k], g[K + k], right[k], right[K + k]
        out[k], out[K + k] = a * s + b * t, a * t - b * s
    for k in range(g.size - K, K):
        out[k] = g[k] * right[k]


@njit(fastmath={"contract"}, error_model="numpy")
def apply_left(g: FloatArray, K: int, left: FloatArray, out: FloatArray) -> None:
    """Write l F for a real part of F, stored as (g, h), K and D − K of them."""
    for k in range(g.size - K):
        a, b, x, y = g[k], g[K + k], left[k], left[K + k]
        out[k], out[K + k] = a * x - b * y, a * y + b * x
    for k in range(g.size - K, K):
        out[k] = g[k] * left[k]
