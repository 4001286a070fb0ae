"""Magnitudes of matrices, and products that keep symmetric and skew parts exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetri

from ndpp._types import FloatArray, IntArray, RealArray
from ndpp.errors import PrecisionError

SINGULAR = "a matrix is singular in double precision: scales of X, W or odds are too far apart; rescale them, or ask for other sets"
EPS = float(np.finfo(np.float64).eps)
ROUNDING = 16 * EPS
"""Relative rounding error of a few sums of products; per item, what a pivot or singular value may differ from zero by (:mod:`.schur`)."""
LAPACK_BLOCK = 64
"""Columns that LAPACK eliminates at a time."""
NOTHING = -160
"""Power of two by which the magnitude of an exact zero is below all others."""


def power_of_two(values: RealArray) -> FloatArray:
    """Return the power of two closest to each value, 1 for zero. Dividing by a power of two is exact."""
    return np.asarray(np.exp2(np.round(np.log2(np.where(values > 0, values, 1.0)))))


def unit_of(A: RealArray) -> float:
    """Return the power of two closest to the largest entry of A: A / unit_of(A) is exact and of order one."""
    return float(power_of_two(np.abs(A).max(initial=0.0)))


def entry_magnitudes(W: FloatArray) -> FloatArray:
    """Return m with |t W t'| ≤ √(Σ t_a² m_a) √(Σ t'_b² m_b): the larger of the row and column sums of |W| (Schur's test).

    Where these are zero, m is far below the others: what is multiplied by zero has no rounding error.
    """
    magnitudes = np.maximum(np.abs(W).sum(axis=0), np.abs(W).sum(axis=1))
    positive = magnitudes[magnitudes > 0]
    return np.where(magnitudes > 0, magnitudes, np.ldexp(positive.min(), NOTHING) if positive.size else 1.0)


def congruence(T: FloatArray, W: FloatArray) -> FloatArray:
    """Return T W Tᵀ from its symmetric and skew parts, so that the product of a purely skew W is skew to the last bit."""
    none, parts = np.zeros((len(T), len(T))), ((W + W.T) / 2, (W - W.T) / 2)
    symmetric, skew = (T @ part @ T.T if part.any() else none for part in parts)
    return (symmetric + symmetric.T) / 2 + (skew - skew.T) / 2


def rounding_of(d: int) -> float:
    """Return the relative rounding error to expect of T W Tᵀ, W of order d: two sums of d products each, up to ``ROUNDING``."""
    return min(ROUNDING, max(d, 2) * EPS)


def is_symmetric(W: RealArray, magnitudes: FloatArray) -> bool:
    """Return whether W is symmetric up to rounding: |W_ij − W_ji| ≤ min(d, 16)·ε·√(m_i m_j).

    m are the magnitudes of its rows, the row sums of |W|, or those of the terms that the W of a conditional was computed from. A skew part
    within this bound is no larger than the rounding errors that every probability of the kernel is judged for. A larger one counts,
    however small it is.
    """
    if np.array_equal(W, W.T):
        return True
    skew, m = np.asarray(W, np.float64), np.sqrt(magnitudes)
    return bool(np.all(np.abs(skew - skew.T) <= rounding_of(len(skew)) * m[:, None] * m))


def unit_columns(X: Any) -> IntArray | None:
    """Return where the rows of X have their ones, if they are different rows of the identity, so that L is a part of W; None if not."""
    if not isinstance(X, np.ndarray) or not 0 < len(X) <= X.shape[1] or np.count_nonzero(X[0]) != 1:
        return None
    columns = X.argmax(axis=1)
    is_unit = np.count_nonzero(X) == len(X) and (X[np.arange(len(X)), columns] == 1).all()
    return columns if is_unit and len(set(columns.tolist())) == len(X) else None


def used_columns(W: RealArray) -> IntArray:
    """Return the columns of X that X W Xᵀ depends on."""
    return np.flatnonzero(W.any(axis=0) | W.any(axis=1))


def inverted(A: FloatArray) -> FloatArray:
    """Return the inverses of regular matrices (…, r, r); raise if rounding makes one of them singular."""
    try:
        return np.asarray(np.linalg.inv(A))
    except np.linalg.LinAlgError:
        raise PrecisionError(SINGULAR) from None


def inverses(systems: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the inverses of matrices (m, r, r), and log |det|, from one elimination each.

    Rows may differ in scale by many orders of magnitude: each is divided by its largest entry first.

    Examples
    --------
    >>> inverse, log_det = inverses(np.array([[[2.0, 0.0], [0.0, 1e200]]]))
    >>> np.diagonal(inverse[0]).tolist(), float(log_det[0]) == float(np.log(2) + np.log(1e200))
    ([0.5, 1e-200], True)
    """
    scale = np.abs(systems).max(axis=2, initial=0.0).clip(np.finfo(float).tiny)
    out, log_det = systems / scale[:, :, None], np.log(scale).sum(axis=1)
    for i, one in enumerate(out if out.size else ()):
        # In the order of LAPACK, the transpose is changed in place.
        eliminated, pivots, singular = dgetrf(one.T, overwrite_a=True)
        if singular:
            raise PrecisionError(SINGULAR)
        log_det[i] += np.log(np.abs(eliminated.diagonal())).sum()
        dgetri(eliminated, pivots, lwork=LAPACK_BLOCK * len(one), overwrite_lu=True)
    out /= scale[:, None, :]
    return out, log_det


def quadratic_forms(Q: FloatArray, M: FloatArray) -> FloatArray:
    """Return q_aᵀ M q_a for every row q_a of ``Q``; a vector M is a diagonal matrix."""
    if M.ndim == 1:
        return np.asarray((Q * Q) @ M)
    return np.asarray(np.einsum("ij,ij->i", Q @ M, Q))
