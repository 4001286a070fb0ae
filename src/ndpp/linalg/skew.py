"""Skew-symmetric matrices: absolute value and Youla form.

A real skew A has A = Σ_j σ_j (y_j z_jᵀ − z_j y_jᵀ) with orthonormal y, z and σ ≥ 0 (Youla, 1961). A tridiagonal form turns this
into a singular value decomposition, right to rounding for repeated and zero σ alike; a general eigensolver on A is not.
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


def skew_absolute(A: FloatArray) -> FloatArray:
    """Return |A| = (AᵀA)^½ of a skew-symmetric A, a symmetric positive semidefinite matrix.

    Examples
    --------
    >>> import numpy as np
    >>> skew_absolute(np.array([[0.0, 3.0], [-3.0, 0.0]]))
    array([[3., 0.],
           [0., 3.]])
    """
    sigma, Y, Z = youla(A)
    root = np.hstack([Y, Z]) * np.sqrt(np.tile(sigma, 2))
    return root @ root.T


def youla(A: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return σ (descending), Y and Z with A = Y diag(σ) Zᵀ − Z diag(σ) Yᵀ for a skew-symmetric A; ⌊r/2⌋ values, orthonormal columns."""
    # In a skew tridiagonal form even and odd coordinates only see each other, through a bidiagonal C = U diag(σ) Vᵀ.
    # Real, a third of the cost of eigh(iA), and orthonormal where σ is zero or repeated.
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
    """Return sym(A) + |skew(A)|, whose minors bound those of A under any X · Xᵀ [Han22, Thm. 1]."""
    return symmetric_part(A) + skew_absolute(skew_part(A))
