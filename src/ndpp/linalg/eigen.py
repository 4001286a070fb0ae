"""Coordinates in which B, and with it every function of B, is diagonal: the one decomposition that all samplers use, on any device.

With B = V diag(λ) V⁻¹, an item with row q has two sides, l = qᵀV and r = V⁻¹q, and qᵀ f(B) q' = Σ_k l_k f(λ_k) r'_k. Of two conjugate
eigenvalues one is kept, with l counted twice. A decomposition is compared with resolvents sB(I + sB)⁻¹ that are computed directly. Where
they differ, as they do if B has no well-conditioned eigenvectors, there is no basis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.linalg.scaling import inverted
from ndpp.linalg.size_law import resolvent
from ndpp.linalg.skew import skew_part, youla

TESTED_AT = np.exp([0.0, -4.0, -10.0])
"""Values of s at which a decomposition is tested."""
SPECTRUM_TOLERANCE = 1e-11
"""Largest error of a resolvent from a decomposition, relative to its largest entry; one over the largest condition number of V."""


class EigenBasis(NamedTuple):
    """λ (…, K), how often each counts, V (…, r, K) and V⁻¹ (…, K, r), of one matrix or of several.

    Eigenvalues with a conjugate come first. Of several matrices, those with fewer eigenvalues are filled up with zeros that count zero
    times.
    """

    values: Array
    multiplicity: Array
    V: Array
    inverse: Array

    @property
    def mean(self) -> float:
        """tr B(I + B)⁻¹ of one matrix: the expected number of items."""
        return float(self.multiplicity @ (self.values / (1 + self.values)).real)

    @classmethod
    def of(cls, coords: Coordinates) -> EigenBasis | None:
        """Decompose B; None if the decomposition disagrees with the resolvents. O(r³)."""
        B = coords.B
        if coords.eigenvalues is not None:
            same = np.eye(coords.rank, dtype=complex)
            return cls(coords.eigenvalues.astype(complex), np.ones(coords.rank), same, same)
        if not (B.size and np.isfinite(B).all()):
            return None
        direct = np.concatenate([resolvent(coords, np.array([s]))[0] for s in TESTED_AT])
        basis, agrees = cls.of_many(B[None], is_skew=is_skew(B), resolvents=direct[:, None])
        return cls(*(part[0] for part in basis)) if agrees[0] else None

    @classmethod
    def of_many(
        cls, B: Array, *, is_skew: bool, ops: Operations = NUMPY, resolvents: Array | None = None
    ) -> tuple[EigenBasis, Array]:
        """Decompose matrices B (C, r, r); return their bases, and which of these agree with the resolvents (C,).

        ``is_skew``: they are skew up to rounding, and have orthonormal eigenvectors. ``resolvents``: R(s) at ``TESTED_AT``, if they are
        known, perhaps to more digits than B shows; if only the first of them are, only these are compared.
        """
        basis = _of_skew(B, ops) if is_skew else _of_general(B, ops)
        return basis, basis._agrees(B, ops, resolvents)

    def _agrees(self, B: Array, ops: Operations, resolvents: Array | None) -> Array:
        """Return for which of several matrices the decomposition gives the resolvents."""
        good = self.values[:, :0].real.sum(1) == 0
        n_tests = len(TESTED_AT if resolvents is None else resolvents) if B.shape[1] else 0
        for i, s in enumerate(TESTED_AT[:n_tests].tolist()):
            direct = ops.solve(ops.eye(B.shape[1], B) + s * B, s * B) if resolvents is None else resolvents[i]
            f = s * self.values / (1 + s * self.values)
            left, right = self.V * (self.multiplicity * f)[:, None], self.inverse
            error = left.real @ right.real - left.imag @ right.imag - direct
            good &= ops.largest(abs(error)) <= SPECTRUM_TOLERANCE * ops.largest(abs(direct))
        return good

    @property
    def to_sides(self) -> FloatArray:
        """(2, r, D): makes real l and r of a row of Q, of one matrix. D is the number of all eigenvalues.

        l is stored as (Re, Im) and r as (Re, −Im); only eigenvalues with a conjugate have the second part. If f(λ) = g + ih and
        f(λ*) = g − ih, for complex g and h, which are the real and imaginary part of f(λ) if f is real on the real axis, then

            q_aᵀ f(B) q_b = l·(F r) = (l F)·r,        F (s, t) = (gs + ht, gt − hs),        (x, y) F = (gx − hy, gy + hx).
        """
        columns = self.V * self.multiplicity, self.inverse.T.conj()
        parts = [np.concatenate([part.real, part.imag[:, self.multiplicity > 1]], axis=1) for part in columns]
        return np.ascontiguousarray(np.stack(parts))

    @property
    def in_pairs(self) -> IntArray:
        """The order of the columns of ``to_sides`` in which the two parts of an eigenvalue stand side by side."""
        K, conjugates = len(self.values), int((self.multiplicity > 1).sum())
        pairs = np.stack([np.arange(conjugates), K + np.arange(conjugates)], axis=1)
        return np.concatenate([pairs.ravel(), np.arange(conjugates, K)])


def is_skew(A: AnyArray) -> bool:
    """Return whether A = −Aᵀ to the last bit, as products of skew matrices are that :func:`~ndpp.linalg.scaling.congruence` computes."""
    return bool(np.array_equal(A, -A.T))


def _of_skew(B: Array, ops: Operations) -> EigenBasis:
    """Decompose the skew parts, from the eigenvalues μ > 0 of the Hermitian iB; in NumPy without complex numbers, in half the time."""
    if ops is NUMPY:
        values, Y, Z = (np.stack(part) for part in zip(*(youla(skew_part(one)) for one in B)))
        V = (Z + 1j * Y) / np.sqrt(2)
        return EigenBasis(-1j * values, 0 * values + 2.0, V, V.mT.conj())
    values, V = ops.eigh(1j * ((B - B.mT) / 2))
    first = B.shape[1] - B.shape[1] // 2
    values, V = values[:, first:], V[:, :, first:]
    return EigenBasis(-1j * values, 0 * values + 2.0, V, V.mT.conj())


def _of_general(B: Array, ops: Operations) -> EigenBasis:
    """Decompose any B; the columns that a matrix does not need are zero."""
    every, vectors = np.linalg.eig(ops.numpy(B))
    every, vectors = every.astype(complex), vectors.astype(complex)
    vectors[~(np.linalg.cond(vectors) < 1 / SPECTRUM_TOLERANCE)] = np.eye(B.shape[1])
    inverses = inverted(vectors)
    kept = [np.concatenate([np.flatnonzero(one.imag > 0), np.flatnonzero(one.imag == 0)]) for one in every]
    K = max(map(len, kept))
    values, multiplicity = np.zeros((len(B), K), complex), np.zeros((len(B), K))
    V, inverse = np.zeros((len(B), B.shape[1], K), complex), np.zeros((len(B), K, B.shape[1]), complex)
    for c, some in enumerate(kept):
        k = len(some)
        values[c, :k], multiplicity[c, :k] = every[c, some], np.where(every[c, some].imag > 0, 2.0, 1.0)
        V[c, :, :k], inverse[c, :k] = vectors[c][:, some], inverses[c][some]
    like = B + 0j
    return EigenBasis(
        ops.array(values, like), ops.array(multiplicity, B), ops.array(V, like), ops.array(inverse, like)
    )  # fmt: skip
