"""Skew-symmetric matrices: absolute value and Youla form.

A real skew A is Σ_j σ_j (y_j z_jᵀ − z_j y_jᵀ) with orthonormal y, z and σ ≥ 0 (Youla, 1961). In a tridiagonal form this is a singular
value decomposition, accurate also for repeated and zero σ, which a general eigensolver is not.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as sl

from ndpp._types import FloatArray


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
