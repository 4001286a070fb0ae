"""Sums and shares of numbers that are given by their logarithms.

``scipy.special`` has them, too, but takes half a second to import, which every command would wait for.
"""

from __future__ import annotations

import numpy as np

from ndpp._types import AnyArray, FloatArray


def log_sum(values: AnyArray) -> float:
    """Return log Σ exp of the values, −inf if all of them are."""
    top = float(np.max(values))
    return top + float(np.log(np.exp(values - top).sum())) if top > -np.inf else -np.inf


def log_row_sums(values: AnyArray) -> FloatArray:
    """Return log Σ exp of every row of a matrix, −inf where all of it is."""
    top = values.max(axis=1, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(top[:, 0] + np.log(np.exp(values - top).sum(axis=1)))


def log_shares(values: AnyArray) -> FloatArray:
    """Return the logarithms of every row of exp(values), divided by its sum."""
    return np.asarray(values - log_row_sums(values)[:, None])


def shares(values: AnyArray) -> FloatArray:
    """Return every row of exp(values), divided by its sum."""
    return np.asarray(np.exp(log_shares(values)))


def logit(p: FloatArray) -> FloatArray:
    """Return the logarithms of odds, infinite for probabilities of 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


def log1p(z: AnyArray) -> AnyArray:
    """Return log(1 + z); for complex numbers, as exactly as for others, which NumPy's is not."""
    if not np.iscomplexobj(z):
        return np.asarray(np.log1p(z))
    from scipy.special import log1p as exact

    return np.asarray(exact(z))


def log_peak(v: FloatArray) -> FloatArray:
    """Return log e^(−v) I₀(v), v ≥ 0, or for large v a bound of it that is hardly larger."""
    small, large = np.minimum(v, 500.0), np.maximum(v, 500.0)
    return np.where(v < 500, np.log(np.i0(small)) - small, np.log1p(1 / (7 * large)) - np.log(2 * np.pi * large) / 2)
