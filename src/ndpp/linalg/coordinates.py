"""Orthonormal coordinates: L = X W Xᵀ = Q B Qᵀ with QᵀQ = I, so that everything about L lives in the small matrix B.

X = Q T by a rank-revealing QR, B = T W Tᵀ. The triangular factor of a small catalogue comes from Householder QR with column
pivoting; that of a tall one from one pass that sums XᵀX by row blocks and a pivoted Cholesky factor, or from a QR of block factors
(TSQR) where XᵀX would square too large a condition number. Q = X·to_q is then made orthonormal to rounding by CholeskyQR steps
(CholeskyQR2: Yamamoto et al., ETNA 2015). Rows of Q come from rows of X: equal rows stay equal, and small ones keep their digits.
Cost O(n d²) time, O(d²) memory beside X and the block at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg as sl
from scipy.linalg.blas import dsyrk, dtrmm, strmm

from ndpp._types import AnyArray, FloatArray
from ndpp.errors import InvalidKernelError
from ndpp.rows import Rows

EPS = float(np.finfo(np.float64).eps)
DENSE_ENTRIES = 4_000_000
"""Up to this many entries of X, Q is formed and kept (32 MB)."""
BLOCK_BYTES = 32 * 2**20
"""Size of a row block in double precision."""
UNEVEN = 20
"""Powers of two between columns of X from which on small catalogues are factored with these brought to one size."""
CACHE_BYTES = 768 * 2**10
"""Size of a row block that stays in a core's own cache while it is worked on."""
MOST_SLACK = 0.03
"""Leverages are computed in single precision, as X is, where this bounds what rounding can take away."""


@dataclass(frozen=True)
class Coordinates:
    """L = Q B Qᵀ, Q = X · to_q.

    Attributes
    ----------
    to_q : (d, r) array
        Turns rows of X into rows of Q.
    B : (r, r) array
        The kernel in these coordinates.
    leverage : (n,) array
        ‖q_a‖², an upper bound on every inclusion probability of item a, whatever the size and the items given. For tall X in single
        precision a bound that exceeds it by at most 3 %: every use of it needs a bound only.
    scale : (r,) array
        Size of each direction: |B_ij| ≤ scale_i · scale_j. Directions may differ by many orders of magnitude.
    noise : (r,) array
        Relative rounding error of each direction that factoring X has left behind.
    dropped : float
        Size of the part of L that was taken for rounding of the rest and dropped.
    Q : (n, r) array or None
        Kept for small catalogues.
    """

    to_q: FloatArray
    B: FloatArray
    leverage: FloatArray
    scale: FloatArray
    noise: FloatArray
    dropped: float
    Q: FloatArray | None

    @property
    def rank(self) -> int:
        """Number of directions r."""
        return len(self.B)


def coordinates(X: AnyArray | Rows, W: AnyArray, *, weights: FloatArray | None = None) -> Coordinates:
    """Return the coordinates of L = X W Xᵀ; raise where its symmetric part is not positive semidefinite.

    ``weights`` are the :func:`schur_weights` of the matrix that W was computed from, if it was: rounding is judged against them.
    """
    W = np.asarray(W)
    if isinstance(X, Rows) and X.size <= DENSE_ENTRIES:
        X = X.read()
    T, to_q = _factor(X)
    weights = schur_weights(np.asarray(W, np.float64)) if weights is None else weights
    B, scale, turn, dropped = _inner(T, np.asarray(W, np.float64), weights, tolerance=_tolerance(X, W))
    if turn is not None:
        T, to_q = turn.T @ T, to_q @ turn
    row_norms = np.linalg.norm(T, axis=1)
    noise = EPS * row_norms.max(initial=0) / np.maximum(row_norms, np.finfo(float).tiny)
    Q = np.asarray(X, np.float64) @ to_q if not isinstance(X, Rows) and X.size <= DENSE_ENTRIES else None
    leverage = np.einsum("ij,ij->i", Q, Q) if Q is not None else _leverage(X, to_q)
    return Coordinates(to_q, B, np.minimum(leverage, 1.0, out=leverage), scale, noise, dropped, Q)


def row_blocks(X: AnyArray | Rows) -> Iterator[slice]:
    """Yield slices of rows that hold about ``BLOCK_BYTES`` each in double precision."""
    rows = max(1, BLOCK_BYTES // (8 * max(1, X.shape[1])))
    for start in range(0, len(X), rows):
        yield slice(start, min(start + rows, len(X)))


def _tolerance(X: AnyArray | Rows, W: AnyArray) -> float:
    """How far below zero rounding of the inputs may push an eigenvalue of the scaled symmetric part."""
    coarsest = max(float(np.finfo(a.dtype).eps) for a in (X, W))
    return 30 * coarsest * max(1, W.shape[0])


def _factor(X: AnyArray | Rows) -> tuple[FloatArray, FloatArray]:
    """Return T, rows from large to small, and to_q with X = (X·to_q)·T and X·to_q orthonormal."""
    if not isinstance(X, Rows) and X.size <= DENSE_ENTRIES:
        norms = _column_scale(np.abs(X).max(axis=0).astype(np.float64))
        norms = norms if np.ptp(np.log2(norms)) > UNEVEN else np.ones_like(norms)
        R, pivot, condition = _pivoted_qr(np.asarray(X, np.float64) / norms, len(X))
    else:
        gram = _gram(X, None)
        norms = _column_scale(np.sqrt(np.diag(gram)))
        R, pivot, condition = _pivoted_cholesky(gram / np.outer(norms, norms))
        if condition > 1e6:  # XᵀX has squared it; the factors of the blocks have not
            R, pivot, condition = _pivoted_qr(_block_factors(X, norms), len(X))
    T, to_q = _unpivot(R, pivot)
    T, to_q = T * norms, to_q / norms[:, None]
    error = EPS * condition**2
    for _ in range(4):
        if error < 1e-12:
            break
        again = _gram(X, to_q)
        upper = sl.cholesky(again)
        to_q, T = sl.solve_triangular(upper, to_q.T, trans="T").T, upper @ T
        error = np.abs(again - np.eye(len(T))).max(initial=0) ** 2
    # Rows of T from large to small, so that B = T W Tᵀ keeps the digits of its small directions.
    turn, R, pivot = sl.qr(T, mode="economic", pivoting=True)
    T, _ = _unpivot(R, pivot)
    return T, to_q @ turn


def _unpivot(R: FloatArray, pivot: AnyArray) -> tuple[FloatArray, FloatArray]:
    """Return T and its right inverse on the pivot columns, for the pivoted triangular factor R = T[:, pivot]."""
    rank, d = R.shape
    T, inverse = np.empty((rank, d)), np.zeros((d, rank))
    T[:, pivot] = R
    inverse[pivot[:rank]] = sl.solve_triangular(R[:, :rank], np.eye(rank))
    return T, inverse


def unit_of(A: AnyArray) -> float:
    """Return the power of two next to the largest entry of A, 1 where there is none: A / unit_of(A) is exact, and of order one."""
    largest = float(np.abs(A).max(initial=0.0))
    return float(np.exp2(np.round(np.log2(largest)))) if largest > 0 else 1.0


def _column_scale(norms: FloatArray) -> FloatArray:
    # Powers of two: dividing by them is exact.
    return np.exp2(np.round(np.log2(np.where(norms > 0, norms, 1.0))))


def _rank(pivots: FloatArray, n: int) -> int:
    """Directions whose pivot is above rounding."""
    if pivots.size == 0 or pivots[0] == 0:
        return 0
    return int(np.sum(pivots > EPS * max(n, len(pivots)) * pivots[0]))


def _blocks(X: AnyArray, dtype: type) -> Iterator[tuple[slice, AnyArray]]:
    """Yield X by small row blocks, in this precision, each written over the one before."""
    rows = max(1, min(len(X), CACHE_BYTES // (np.dtype(dtype).itemsize * X.shape[1])))
    space = np.empty((rows, X.shape[1]), dtype)
    for start in range(0, len(X), rows):
        block = slice(start, min(start + rows, len(X)))
        part = space[: block.stop - start]
        part[:] = X[block]
        yield block, part


def _gram(X: AnyArray | Rows, to_q: FloatArray | None) -> FloatArray:
    """Return (X·to_q)ᵀ(X·to_q) as a sum over row blocks, in double precision whatever X is."""
    if isinstance(X, Rows):
        return sum((part for _, part in X.each(partial(_gram, to_q=to_q))), np.zeros(()))
    width = X.shape[1] if to_q is None else to_q.shape[1]
    total = np.zeros((width, width), order="F")
    for _, part in _blocks(X, np.float64):
        part = part if to_q is None else part @ to_q
        total = dsyrk(1.0, part.T, beta=1.0, c=total, overwrite_c=True)
    return total + np.triu(total, 1).T


def _pivoted_cholesky(gram: FloatArray) -> tuple[FloatArray, AnyArray, float]:
    factor, pivot, rank, _ = sl.lapack.dpstrf(gram, lower=0)
    R = np.triu(factor)[:rank]
    return R, pivot - 1, float(np.linalg.cond(R)) if rank == len(gram) else np.inf


def _pivoted_qr(factor: FloatArray, n: int) -> tuple[FloatArray, AnyArray, float]:
    R, pivot = sl.qr(factor, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = _rank(diagonal, n)
    return R[:rank], pivot, float(diagonal[0] / diagonal[rank - 1]) * np.sqrt(rank) if rank else 1.0


def _block_factors(X: AnyArray | Rows, norms: FloatArray) -> FloatArray:
    """Return R with RᵀR = XᵀX (columns scaled), by QR of one block at a time under the factor so far."""
    R = np.zeros((0, X.shape[1]))
    if isinstance(X, Rows):
        for _, part in X.each(partial(_block_factors, norms=norms)):
            R = sl.qr(np.vstack([R, part]), mode="r", overwrite_a=True)[0][: X.shape[1]]
        return R
    for block in row_blocks(X):
        R = sl.qr(np.vstack([R, np.asarray(X[block], np.float64) / norms]), mode="r", overwrite_a=True)[0][: X.shape[1]]
    return R


def _leverage(X: AnyArray | Rows, to_q: FloatArray) -> FloatArray:
    """Return ‖q_a‖² for every row of X·to_q. Norms do not see a rotation, so a triangular factor of to_q does, at half the price."""
    if isinstance(X, Rows):
        out = np.empty(len(X))
        for block, part in X.each(partial(_leverage, to_q=to_q)):
            out[block] = part
        return out
    R = np.zeros((X.shape[1],) * 2, order="F")
    R[: to_q.shape[1]] = sl.qr(to_q.T, mode="r")[0]  # to_qᵀ = rotation · R
    if X.dtype == np.float32 and (slack := _single_slack(R)) < MOST_SLACK:
        return _leverage_bound(X, to_q, R.astype(np.float32), slack)
    out = np.empty(len(X))
    for block, part in _blocks(X, np.float64):
        q = dtrmm(1.0, R, part.T, overwrite_b=True).T
        np.einsum("ij,ij->i", q, q, out=out[block])
    return out


def _leverage_bound(X: AnyArray, to_q: FloatArray, R: AnyArray, slack: float) -> FloatArray:
    """Return ‖q_a‖² in single precision, raised by the most that rounding can have taken away: leverages need only be a bound."""
    out = np.empty(len(X))
    for block, part in _blocks(X, np.float32):
        q = strmm(1.0, R, part.T, overwrite_b=True).T
        out[block] = np.einsum("ij,ij->i", q, q)
    out *= 1 + slack
    thin = np.flatnonzero(out < 1e-30)  # next to what single precision can hold
    out[thin] = _leverage(X[thin].astype(np.float64), to_q)
    return out


def _single_slack(R: FloatArray) -> float:
    """Return by what part at most ‖R x‖², computed in single precision, may fall short of the truth (1: out of its range)."""
    spread = np.linalg.svd(R, compute_uv=False)
    spread = spread[spread > EPS * len(R) * spread.max(initial=0)]
    if not spread.size or spread[0] > 1e30 or spread[-1] < 1e-30:
        return 1.0
    # Entry i of R x is off by at most d·(eps/2)·Σ|R_ij x_j| ≤ d·(eps/2)·‖R_i‖‖x‖, and ‖x‖ ≤ ‖R x‖ / (smallest singular value).
    error = len(R) * np.finfo(np.float32).eps / 2 * np.linalg.norm(spread) / spread[-1]
    return float(3 * error)  # more than (1 − error)⁻² − 1, with room for the sum of squares, while it is small


def _inner(
    T: FloatArray, W: FloatArray, weights: FloatArray, *, tolerance: float
) -> tuple[FloatArray, FloatArray, FloatArray | None, float]:
    """Return B, the size of each direction, the change of basis that drops what W does not see (None: nothing), and what that dropped."""
    B, scale = congruence(T, W), _direction_scale(T, weights)
    balanced = B / np.outer(scale, scale)
    if len(B):
        lowest = float(sl.eigvalsh((balanced + balanced.T) / 2, subset_by_index=[0, 0])[0])
        if lowest < -tolerance:
            smallest = float(sl.eigvalsh((B + B.T) / 2, subset_by_index=[0, 0])[0])
            raise InvalidKernelError(
                "the symmetric part of L = X W Xᵀ must be positive semidefinite; "
                f"its smallest eigenvalue is {smallest:.6g} (largest entry of L's core: {np.abs(B).max():.3g}). "
                "Make W + Wᵀ positive semidefinite, for instance by LowRankKernel.from_vbd(V, B, D)."
            )
    # For such a matrix the null spaces of B and Bᵀ coincide, so one basis serves both sides.
    left, values, _ = sl.svd(np.hstack([balanced, balanced.T]), full_matrices=False)
    rounding = EPS * max(1, len(B)) * max(1.0, values.max(initial=0))
    keep = int(np.sum(values > 64 * rounding))
    if keep == len(B):
        return B, _direction_scale(T, schur_weights(W)), None, 0.0
    sizes = np.where(values > 4 * rounding, values, 0.0) * np.sum((scale[:, None] * left) ** 2, axis=0)
    basis, dropped = left[:, :keep], float(sizes[keep:].sum())
    core = basis.T @ balanced @ basis
    turn, R, pivot = sl.qr(scale[:, None] * basis, mode="economic", pivoting=True)
    R[:, pivot] = R.copy()
    return congruence(R, core), _direction_scale(R, schur_weights(core)), turn, dropped


def congruence(T: FloatArray, W: FloatArray) -> FloatArray:
    """Return T W Tᵀ, its symmetric and skew parts formed apart: what is purely skew stays so to the last bit."""
    symmetric, skew = T @ ((W + W.T) / 2) @ T.T, T @ ((W - W.T) / 2) @ T.T
    return (symmetric + symmetric.T) / 2 + (skew - skew.T) / 2


def schur_weights(W: FloatArray) -> FloatArray:
    """Return w with |t W t'| ≤ √(Σ t_a² w_a) √(Σ t'_b² w_b): the larger of the row and column sums of |W| (Schur's test), 1 where zero."""
    weight = np.maximum(np.abs(W).sum(axis=0), np.abs(W).sum(axis=1))
    return np.where(weight > 0, weight, 1.0)


def _direction_scale(T: FloatArray, weights: FloatArray) -> FloatArray:
    size = np.sqrt(T**2 @ weights)
    return np.where(size > 0, size, 1.0)
