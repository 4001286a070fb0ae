"""Skew-symmetric matrices: absolute value and Youla form.

A real skew A has A = Σ_j σ_j (y_j z_jᵀ − z_j y_jᵀ) with orthonormal y, z and σ ≥ 0 (Youla, 1961). iA is Hermitian, so its
eigendecomposition gives both, to rounding, for repeated and zero σ alike; a general eigensolver on A does not.
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
    # A skew tridiagonal form has even and odd coordinates that only see each other, through a bidiagonal C = U diag(σ) Vᵀ:
    # |A| is then U diag(σ) Uᵀ on the even ones and V diag(σ) Vᵀ on the odd ones. Real, and a third of the cost of eigh(iA).
    if len(A) < 2:
        return np.zeros_like(A)
    tridiagonal, turn = sl.hessenberg(A, calc_q=True)
    above = np.diag(tridiagonal, 1)
    C = np.zeros(((len(A) + 1) // 2, len(A) // 2))
    np.fill_diagonal(C, above[::2])
    np.fill_diagonal(C[1:], -above[1::2])
    U, sigma, Vt = np.linalg.svd(C, full_matrices=False)
    root = np.hstack([turn[:, ::2] @ U, turn[:, 1::2] @ Vt.T]) * np.sqrt(np.tile(sigma, 2))
    return root @ root.T


def youla(A: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return σ (descending), Y and Z with A = Y diag(σ) Zᵀ − Z diag(σ) Yᵀ for a skew-symmetric A; ⌊r/2⌋ values, orthonormal columns."""
    values, vectors = sl.eigh(1j * A)
    half = len(A) // 2
    sigma, positive = values[::-1][:half], vectors[:, ::-1][:, :half]
    # An eigenvector x + iy of iA for σ > 0 gives A x = σ y and A y = −σ x; ‖x‖ = ‖y‖ = 1/√2.
    return np.maximum(sigma, 0.0), np.sqrt(2) * positive.imag, np.sqrt(2) * positive.real


def dominating(A: FloatArray) -> FloatArray:
    """Return sym(A) + |skew(A)|, whose minors bound those of A under any X · Xᵀ [Han22, Thm. 1]."""
    return symmetric_part(A) + skew_absolute(skew_part(A))
