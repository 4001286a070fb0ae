"""Magnitudes of matrices, and products that keep symmetric and skew parts exact."""

from __future__ import annotations

import numpy as np

from ndpp._types import AnyArray, FloatArray

EPS = float(np.finfo(np.float64).eps)
NOTHING = -160
"""Power of two by which the magnitude of an exact zero is below all others."""


def power_of_two(values: AnyArray) -> FloatArray:
    """Return the power of two closest to each value, 1 for zero. Dividing by a power of two is exact."""
    return np.asarray(np.exp2(np.round(np.log2(np.where(values > 0, values, 1.0)))))


def unit_of(A: AnyArray) -> float:
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
    symmetric, skew = T @ ((W + W.T) / 2) @ T.T, T @ ((W - W.T) / 2) @ T.T
    return (symmetric + symmetric.T) / 2 + (skew - skew.T) / 2


def quadratic_forms(Q: FloatArray, M: FloatArray) -> FloatArray:
    """Return q_aᵀ M q_a for every row q_a of ``Q``."""
    return np.asarray(np.einsum("ij,ij->i", Q @ M, Q))
