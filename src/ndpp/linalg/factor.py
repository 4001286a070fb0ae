"""Factors of X: T and to_q with X = (X·to_q)·T and orthonormal columns of X·to_q.

A small X is factored by Householder QR with column pivoting. A tall one is read in row blocks: one pass sums XᵀX, whose pivoted
Cholesky factor is T. If XᵀX squares too large a condition number, a QR of the blocks' triangular factors (TSQR) takes its place.
CholeskyQR steps then make X·to_q orthonormal to rounding (CholeskyQR2: Yamamoto et al., ETNA 2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import scipy.linalg as sl
from scipy.linalg.blas import dsyrk

from ndpp._types import FloatArray, IntArray, RealArray
from ndpp.linalg.scaling import EPS, power_of_two
from ndpp.rows import Rows

BLOCK_BYTES = 32 * 2**20
"""Bytes of a row block in double precision."""
CACHE_BYTES = 768 * 2**10
"""Bytes of a row block that stays in a core's own cache while it is worked on."""
UNEVEN = 20
"""If columns of a small X differ by more powers of two than this, they are scaled to one magnitude before the QR."""
UNEVEN_WEIGHTS = 10
"""If the weights of columns differ by more powers of two than this, the rows of T are ordered by weighted size."""
CONDITION_OF_GRAM = 1e6
"""Condition number of X above which XᵀX has lost half of the digits or more."""


def factor(
    X: RealArray | Rows, *, dense: bool, weights: FloatArray | float = 1.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return T, its rows ordered from large to small, to_q, and the rows of T that were dropped as rounding.

    ``dense`` means that X is a small array. ``weights`` are how much the columns of X matter: rows of T are ordered by T · weights.
    """
    lost = np.zeros((0, X.shape[1]))
    if dense:
        norms = power_of_two(np.abs(X).max(axis=0).astype(np.float64))
        norms = norms if np.ptp(np.log2(norms)) > UNEVEN else np.ones_like(norms)
        R, pivot, condition, lost = _pivoted_qr(np.asarray(X, np.float64) / norms, len(X))
    else:
        gram = _gram(X, None)
        norms = power_of_two(np.sqrt(np.diag(gram)))
        R, pivot, condition = _pivoted_cholesky(gram / np.outer(norms, norms))
        if condition > CONDITION_OF_GRAM:
            R, pivot, condition, lost = _pivoted_qr(_block_factors(X, norms), len(X))
    T, to_q = _unpivot(R, pivot)
    T, to_q = T * norms, to_q / norms[:, None]
    error = EPS * condition**2  # how far the columns of X·to_q are from orthonormal; a step squares it
    for _ in range(4):
        if error < 1e-12:
            break
        again = _gram(X, to_q)
        upper = sl.cholesky(again)
        to_q, T = sl.solve_triangular(upper, to_q.T, trans="T").T, upper @ T
        error = np.abs(again - np.eye(len(T))).max(initial=0) ** 2
    # With large rows of T first, B = T W Tᵀ keeps the digits of its small directions.
    unit = power_of_two(np.broadcast_to(weights, X.shape[1]))
    unit = unit if np.ptp(np.log2(unit)) > UNEVEN_WEIGHTS else np.ones_like(unit)
    turn, R, pivot = sl.qr(T * unit, mode="economic", pivoting=True)
    T[:, pivot] = R
    return T / unit, to_q @ turn, lost * norms


def row_blocks(X: RealArray | Rows) -> Iterator[slice]:
    """Yield slices of rows that hold about ``BLOCK_BYTES`` each in double precision."""
    rows = max(1, BLOCK_BYTES // (8 * max(1, X.shape[1])))
    for start in range(0, len(X), rows):
        yield slice(start, min(start + rows, len(X)))


def cached_blocks(X: RealArray, dtype: type) -> Iterator[tuple[slice, RealArray]]:
    """Yield X in row blocks of about ``CACHE_BYTES``, converted to ``dtype``. Each block overwrites the one before."""
    rows = max(1, min(len(X), CACHE_BYTES // (np.dtype(dtype).itemsize * X.shape[1])))
    space = np.empty((rows, X.shape[1]), dtype)
    for start in range(0, len(X), rows):
        block = slice(start, min(start + rows, len(X)))
        part = space[: block.stop - start]
        part[:] = X[block]
        yield block, part


def _unpivot(R: FloatArray, pivot: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return T and its right inverse on the pivot columns, for the pivoted triangular factor R = T[:, pivot]."""
    rank, d = R.shape
    T, inverse = np.empty((rank, d)), np.zeros((d, rank))
    T[:, pivot] = R
    inverse[pivot[:rank]] = sl.solve_triangular(R[:, :rank], np.eye(rank))
    return T, inverse


def _gram(X: RealArray | Rows, to_q: FloatArray | None) -> FloatArray:
    """Return (X·to_q)ᵀ(X·to_q) in double precision."""
    if isinstance(X, Rows):
        return sum((part for _, part in X.each(partial(_gram, to_q=to_q))), np.zeros(()))
    width = X.shape[1] if to_q is None else to_q.shape[1]
    total = np.zeros((width, width), order="F")
    for _, part in cached_blocks(X, np.float64):
        part = part if to_q is None else part @ to_q
        total = dsyrk(1.0, part.T, beta=1.0, c=total, overwrite_c=True)
    return total + np.triu(total, 1).T


def _pivoted_cholesky(gram: FloatArray) -> tuple[FloatArray, IntArray, float]:
    upper, pivot, rank, _ = sl.lapack.dpstrf(gram, lower=0)
    R = np.triu(upper)[:rank]
    return R, pivot - 1, float(np.linalg.cond(R)) if rank == len(gram) else np.inf


def _pivoted_qr(A: FloatArray, n: int) -> tuple[FloatArray, IntArray, float, FloatArray]:
    """Return R without the rows that are rounding, the pivots, a condition number, and those rows; A stands for n rows."""
    R, pivot = sl.qr(A, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int(np.sum(diagonal > EPS * max(n, len(diagonal)) * diagonal.max(initial=0)))
    lost = np.zeros((len(diagonal) - rank, A.shape[1]))
    lost[:, pivot] = R[rank : len(diagonal)]
    return R[:rank], pivot, float(diagonal[0] / diagonal[rank - 1]) * np.sqrt(rank) if rank else 1.0, lost


def _block_factors(X: RealArray | Rows, norms: FloatArray) -> FloatArray:
    """Return R with RᵀR = XᵀX, columns divided by ``norms``: QR of one block at a time, stacked under the factor so far."""
    R = np.zeros((0, X.shape[1]))
    if isinstance(X, Rows):
        parts = (part for _, part in X.each(partial(_block_factors, norms=norms)))
    else:
        parts = (np.asarray(X[block], np.float64) / norms for block in row_blocks(X))
    for part in parts:
        R = sl.qr(np.vstack([R, part]), mode="r", overwrite_a=True)[0][: X.shape[1]]
    return R
