"""Rows of a kernel from features of items, from a dense L and from a marginal kernel K or its eigenvectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl
from scipy import sparse

from ndpp._types import AnyArray, FloatArray, RealArray
from ndpp._validation import check_choice, check_matrix, plain_array, real_array
from ndpp.errors import InvalidInputError, InvalidKernelError
from ndpp.laws.precision import REFUSE_ERROR
from ndpp.linalg.coordinates import SMALL
from ndpp.linalg.scaling import EPS

MOST_ENTRIES = 2**28
"""Entries of dense rows made of sparse features (2 GB)."""
CERTAIN_ODDS = 2.0**53
"""Odds of a direction with eigenvalue one of K: 1 − 2⁻⁵³ is the largest number below one."""


def feature_rows(F: Any, quality: Any, similarity: str) -> AnyArray:
    """Return rows X with X Xᵀ = q_i q_j ⟨f_i, f_j⟩, f of norm one for "cosine"; see :meth:`ndpp.LowRankKernel.from_features`."""
    check_choice(similarity, "similarity", ["dot", "cosine"])
    X = check_matrix(_dense_features(F) if sparse.issparse(F) else plain_array(F, "F"), "F")
    if X.size == 0:
        raise InvalidKernelError(f"F must have at least one item and one feature; its shape is {X.shape}")
    factors: RealArray = np.ones(len(X))
    if quality is not None:
        factors = real_array(quality, "quality")
        if factors.shape != (len(X),):
            raise InvalidInputError(
                f"must have shape ({len(X)},), a number per item; got {factors.shape}", argument="quality"
            )
        factors = check_matrix(factors[None], "quality")[0].astype(np.float64)
        if (factors < 0).any():
            i = int(np.argmax(factors < 0))
            raise InvalidInputError(f"must be ≥ 0; that of item {i} is {factors[i]:g}", argument="quality")
    if similarity == "cosine":
        norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
        if not norms.all():
            i = int(np.argmin(norms))
            raise InvalidInputError(
                f"row {i} of F is zero and has no direction", advice='Drop such items, or use similarity="dot".'
            )
        factors = factors / norms
    return X if quality is None and similarity == "dot" else X * factors.astype(X.dtype)[:, None]


def _dense_features(F: Any) -> AnyArray:
    """Return sparse features as dense rows with the same inner products: themselves, or, if there are fewer items, a factor of F Fᵀ."""
    if F.ndim != 2 or F.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"F must be a sparse matrix of real numbers; got one of shape {F.shape} and type {F.dtype}"
        )
    n, d = F.shape
    if min(d, n) * n > MOST_ENTRIES:
        raise InvalidInputError(
            f"F has {n} × {d} entries: its dense rows would take {8e-9 * n * min(n, d):.3g} GB. Reduce its columns first"
        )
    F = F.astype(np.float64).tocsr()
    check_matrix(F.data[None], "the entries of F")
    return F.toarray() if d <= n else symmetric_rows((F @ F.T).toarray(), "F Fᵀ")


class Definite(NamedTuple):
    """A symmetric W that is known to be positive definite."""

    W: FloatArray


def dense_parts(L: Any, name: str = "L") -> tuple[FloatArray, FloatArray | Definite | None]:
    """Return X and W (None: the identity) with L = X W Xᵀ, for a square matrix whose symmetric part is positive semidefinite."""
    L = check_matrix(plain_array(L, name), name)
    if L.shape[0] != L.shape[1] or not len(L):
        raise InvalidInputError(f"{name} must be square; its shape is {L.shape}")
    eps, L = float(np.finfo(L.dtype).eps), L.astype(np.float64)
    symmetric = _symmetrised(L, 16 * eps * np.abs(L).max())
    if symmetric is not None:
        if len(L) > SMALL and _is_regular(symmetric, eps):
            return np.eye(len(L)), Definite(symmetric)
        X = symmetric_rows(symmetric, name, eps)
        is_whole = len(L) > SMALL and 2 * X.shape[1] > len(L)
        return (np.eye(len(L)), symmetric) if is_whole else (X, None)
    lowest = float(sl.eigvalsh((L + L.T) / 2, subset_by_index=[0, 0])[0])
    if lowest < -8 * eps * len(L) * np.abs(L).max():
        raise _not_accretive(name, lowest)
    return np.eye(len(L)), L + max(-lowest, 0.0) * np.eye(len(L))


def _symmetrised(L: FloatArray, tolerance: float) -> FloatArray | None:
    """Return the symmetric part of L, which is L itself if nothing is off; None if entries are off by more than ``tolerance``."""
    if np.array_equal(L, L.T):
        return L
    return (L + L.T) / 2 if np.abs(L - L.T).max() <= tolerance else None


def _is_regular(L: FloatArray, eps: float) -> bool:
    """Return whether L is positive definite beyond rounding, by a Cholesky factor without pivoting, which takes a fraction of the time."""
    try:
        pivots = np.linalg.cholesky(L).diagonal() ** 2
    except np.linalg.LinAlgError:
        return False
    return bool(pivots.min() > len(L) * eps * L.diagonal().max())


def symmetric_rows(L: FloatArray, name: str, eps: float = EPS) -> FloatArray:
    """Return X with X Xᵀ = L, as many columns as its rank: a Cholesky factor with pivoting."""
    tolerance = len(L) * eps * max(float(L.diagonal().max()), 0.0)
    X, left = _pivoted(L, tolerance)
    if L.diagonal().min() < -tolerance or left > 8 * tolerance:
        lowest = float(sl.eigvalsh(L, subset_by_index=[0, 0])[0])
        if lowest < -tolerance:
            raise _not_accretive(name, lowest)
    return X


def _pivoted(L: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
    """Return the columns of a Cholesky factor with pivoting, until no pivot is above ``tolerance``, and the largest entry left of L."""
    # L is symmetric, and Lᵀ has the order of LAPACK.
    factor, pivots, rank, _ = sl.lapack.dpstrf(L.T, lower=1, tol=tolerance)
    pivots, factor = pivots - 1, np.tril(factor[:, :rank])
    rest = pivots[rank:]
    left = L[np.ix_(rest, rest)] - factor[rank:] @ factor[rank:].T
    X = np.zeros((len(L), max(rank, 1)))
    X[pivots, :rank] = factor
    return X, float(np.abs(left).max(initial=0.0))


def _not_accretive(name: str, lowest: float) -> InvalidKernelError:
    return InvalidKernelError(
        f"the symmetric part of {name} must be positive semidefinite; its smallest eigenvalue is {lowest:.6g}. A matrix may define a "
        "point process without that, if all of its principal minors are nonnegative, but such kernels are not supported."
    )


def odds_of_marginal(K: Any, eigenvalues: Any = None) -> tuple[FloatArray, FloatArray | Definite | None]:
    """Return X and W of L = K(I − K)⁻¹; with ``eigenvalues``, K are the eigenvectors."""
    K = check_matrix(plain_array(K, "K"), "K")
    tolerance, K = 8 * len(K) * float(np.finfo(K.dtype).eps), K.astype(np.float64, copy=False)
    if eigenvalues is not None:
        return _odds(K, _chances(K, eigenvalues, min(tolerance, REFUSE_ERROR)))
    if K.shape[0] != K.shape[1] or not len(K):
        raise InvalidInputError(f"K must be square; its shape is {K.shape}")
    symmetric = _symmetrised(K, tolerance)
    if symmetric is not None:
        vectors, values = _eigenvectors(symmetric, tolerance)
        _check_range(values, tolerance)
        rounded = np.where(values > tolerance, values, 0.0)
        return _odds(vectors, np.where(values < 1 - tolerance, rounded, 1.0))
    rest = np.eye(len(K)) - K
    if np.linalg.cond(rest) > 1 / tolerance:
        raise InvalidKernelError(
            "K has an eigenvalue one: its process has no L = K(I − K)⁻¹. Only symmetric K may have such eigenvalues."
        )
    return dense_parts(np.linalg.solve(rest.T, K.T).T, "L = K(I − K)⁻¹")


def _odds(vectors: FloatArray, chances: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return X and W of L = Σ v_i v_iᵀ μ_i / (1 − μ_i) for orthonormal v and μ between 0 and 1."""
    kept = chances > 0
    odds = chances[kept] / np.maximum(1 - chances[kept], 1 / CERTAIN_ODDS)
    return (vectors[:, kept], np.diag(odds)) if kept.any() else (np.zeros((len(vectors), 1)), None)


def _eigenvectors(K: FloatArray, tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Return v and μ of a symmetric K = F Fᵀ: if its rank r is small, from FᵀF = U diag(μ) Uᵀ, v = F U μ^(−½), O(n² r)."""
    F, left = _pivoted(K, tolerance / 8)
    if left > tolerance or 2 * F.shape[1] > len(K):
        values, vectors = np.linalg.eigh(K)
        return vectors, values
    values, turn = np.linalg.eigh(F.T @ F)
    return F @ (turn / np.sqrt(values.clip(tolerance))), values


def _chances(vectors: FloatArray, eigenvalues: Any, tolerance: float) -> FloatArray:
    """Return the eigenvalues that belong to the columns of K; raise unless these are orthonormal to within ``tolerance``."""
    values = real_array(eigenvalues, "eigenvalues")
    if values.shape != vectors.shape[1:]:
        raise InvalidInputError(
            f"must have shape ({vectors.shape[1]},), a number per column of K; got {values.shape}",
            argument="eigenvalues",
        )
    values = check_matrix(values[None], "eigenvalues")[0]
    chances: FloatArray = values.astype(np.float64)
    _check_range(chances, max(tolerance, 8 * float(np.finfo(values.dtype).eps)))
    gram = vectors.T @ vectors
    error = np.abs(gram - np.eye(len(gram)))
    if not error.max(initial=0.0) <= tolerance:
        i, j = np.unravel_index(int(error.argmax()), error.shape)
        raise InvalidKernelError(
            f"eigenvectors must be orthonormal to within {tolerance:.2g}; the product of columns {i} and {j} of K is {gram[i, j]:.6g} and "
            f"not {int(i == j)}. numpy.linalg.eigh and numpy.linalg.qr return orthonormal columns."
        )
    return chances.clip(0.0, 1.0)


def _check_range(values: FloatArray, tolerance: float) -> None:
    """Raise unless all eigenvalues are between 0 and 1, up to rounding."""
    lowest, highest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if not (-tolerance <= lowest and highest <= 1 + tolerance):
        raise InvalidKernelError(
            f"the eigenvalues of a symmetric marginal kernel must be between 0 and 1; those of K are between {lowest:.6g} and {highest:.6g}"
        )
