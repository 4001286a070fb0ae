"""Skew-symmetric matrices: absolute value and Youla form; the symmetric bound of a kernel, and how often it rejects.

A real skew A is Σ_j σ_j (y_j z_jᵀ − z_j y_jᵀ) with orthonormal y, z and σ ≥ 0 (Youla, 1961). In a tridiagonal form this is a singular
value decomposition, accurate also for repeated and zero σ, which a general eigensolver is not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as sl

from ndpp._types import FloatArray, IntArray
from ndpp.linalg.scaling import ROUNDING
from ndpp.linalg.schur import condition_inner


def skew_part(A: FloatArray) -> FloatArray:
    """Return (A − Aᵀ)/2."""
    return (A - A.T) / 2


def symmetric_part(A: FloatArray) -> FloatArray:
    """Return (A + Aᵀ)/2."""
    return (A + A.T) / 2


def youla(A: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return σ (descending), Y and Z with A = Y diag(σ) Zᵀ − Z diag(σ) Yᵀ for a skew-symmetric A; ⌊r/2⌋ values, orthonormal columns."""
    # A skew tridiagonal form couples even coordinates with odd ones only, by a bidiagonal matrix C = U diag(σ) Vᵀ.
    # This is real, costs a third of eigh(iA), and gives orthonormal columns where σ is zero or repeated.
    if len(A) < 2:
        return np.zeros(0), np.zeros((len(A), 0)), np.zeros((len(A), 0))
    tridiagonal, turn = sl.hessenberg(A, calc_q=True)
    above = np.diag(tridiagonal, 1)
    C = np.zeros(((len(A) + 1) // 2, len(A) // 2))
    np.fill_diagonal(C, above[::2])
    np.fill_diagonal(C[1:], -above[1::2])
    U, sigma, Vt = np.linalg.svd(C, full_matrices=False)
    return sigma, turn[:, ::2] @ U, turn[:, 1::2] @ Vt.T


def dominating(A: FloatArray) -> FloatArray:
    """Return sym(A) + |skew(A)|, whose minors bound those of A under any X · Xᵀ [Han22, Thm. 1]; |K| is (KᵀK)^½.

    Examples
    --------
    >>> dominating(np.array([[0.0, 3.0], [-3.0, 0.0]]))
    array([[3., 0.],
           [0., 3.]])
    """
    sigma, Y, Z = youla(skew_part(A))
    root = np.hstack([Y, Z]) * np.sqrt(np.tile(sigma, 2))
    return symmetric_part(A) + root @ root.T


class RejectionBound(NamedTuple):
    """κ_A and σ_max(X) of a conditional kernel [Han22, Def. 3]."""

    kappa: float
    sigma_max: float

    @property
    def proposals(self) -> float:
        """(1 + σ_max(X)² κ_A)², at least the expected number of proposals of the paper's up-step [Han22, Thm. 4]."""
        return (1 + self.sigma_max**2 * self.kappa) ** 2


def rejection_bound(X: FloatArray, W: FloatArray, kept: IntArray | None = None) -> RejectionBound:
    """Return κ_A = σ_max(W^A − W^Aᵀ) / min_Y σ_min([X (W^A + W^Aᵀ) Xᵀ]_Y) over the pairs Y of rows not ``kept``; det L_A ≠ 0.

    κ_A is infinite if the symmetric part of any pair is singular up to rounding, and zero if W^A is symmetric. Dense: O(n² d).

    Examples
    --------
    >>> bound = rejection_bound(np.eye(2), np.array([[1.0, 3.0], [-3.0, 1.0]]))  # W^A − W^Aᵀ has the singular value 6
    >>> float(bound.kappa), float(bound.proposals)
    (3.0, 16.0)
    """
    kept = np.zeros(0, np.int64) if kept is None else kept
    W = condition_inner(W, X[kept])[0] if len(kept) else W
    rest, largest = np.delete(X, kept, axis=0), float(np.linalg.norm(X, 2))
    G = rest @ (W + W.T) @ rest.T
    i, j = np.triu_indices(len(G), 1)
    mean, half = (G[i, i] + G[j, j]) / 2, (G[i, i] - G[j, j]) / 2
    least = np.where((low := mean - np.hypot(half, G[i, j])) > len(W) * ROUNDING * mean, low, 0.0).min(initial=np.inf)
    skewness = float(np.linalg.norm(W - W.T, 2))
    return RejectionBound(skewness and (skewness / float(least) if least else np.inf), largest)
