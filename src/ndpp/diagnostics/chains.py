"""Have chains mixed, and how many independent draws are they worth?

R-hat [Gelman & Rubin, Statistical Science 7, 1992] compares the variance between chains with the variance within them.
The effective sample size sums the joint autocorrelation of all chains until noise dominates, by Geyer's initial monotone
sequence [Geyer, Statistical Science 7, 1992] over split chains [Vehtari et al., Bayesian Analysis 16, 2021].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.fft

from ndpp._types import FloatArray
from ndpp.errors import InvalidInputError


def autocorrelation(x: Any) -> FloatArray:
    """Return the autocorrelation of a series at lags 0..n−1, along the last axis. O(n log n).

    ρ_t = Σ_i (x_i − x̄)(x_{i+t} − x̄) / Σ_i (x_i − x̄)²; a constant series has ρ_t = 1.

    Examples
    --------
    >>> autocorrelation([1.0, -1.0, 1.0, -1.0])
    array([ 1.  , -0.75,  0.5 , -0.25])
    """
    covariance = _autocovariance(np.asarray(x, np.float64))
    variance = covariance[..., :1]
    return np.divide(covariance, variance, out=np.ones_like(covariance), where=variance > 0)


def psrf(chains: Any, *, split: bool = False) -> FloatArray:
    """Return the potential scale reduction factor R̂ of each functional, close to 1 for chains that have mixed.

    With C chains of N draws, W the mean of their variances (over N − 1) and V the variance of their means (over C − 1),

        R̂ = √( ((N − 1)/N · W + V) / W ),

    1 for equal constant chains, infinity for different constants. ``split`` treats each half of a chain as a chain,
    which also detects drift; it drops the middle draw of an odd number. tensorflow-probability, which the paper used,
    computes (C + 1)/C · R̂² − (N − 1)/(C·N) instead.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mixed = rng.standard_normal((4, 1000))
    >>> psrf(mixed).round(2), psrf(mixed + np.arange(4)[:, None]).round(2)
    (np.float64(1.0), np.float64(1.66))
    """
    values = _check_chains(chains)
    values = split_chains(values) if split else values
    if values.shape[0] < 2 or values.shape[1] < 2:
        raise InvalidInputError(
            f"R-hat needs at least two chains of two draws; got {values.shape[0]} of {values.shape[1]}. "
            "Run more chains, or pass split=True"
        )
    n_draws = values.shape[1]
    within = values.var(axis=1, ddof=1).mean(axis=0)
    within = np.where((np.ptp(values, axis=1) == 0).all(axis=0), 0.0, within)  # without rounding errors
    between = values.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt((n_draws - 1) / n_draws + between / within)
    return np.where(np.ptp(values, axis=(0, 1)) == 0, 1.0, found)[()]


def effective_sample_size(chains: Any) -> FloatArray:
    """Return the number of independent draws whose mean would be as precise as that of the chains.

    C·N / τ with τ = −1 + 2 Σ_t ρ̂_t. The estimate ρ̂_t includes the variance between the split chains; pairs of lags are
    summed while they are positive, and made monotone. Alternating chains can be worth more than C·N draws; τ is bounded
    below by 1 / log₁₀(C·N). A constant functional has C·N. Needs at least eight draws per chain.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> walk = np.empty((4, 2000))
    >>> walk[:, 0] = rng.standard_normal(4)
    >>> for t in range(1, 2000):  # ρ_t = 0.9^t, so τ = 19
    ...     walk[:, t] = 0.9 * walk[:, t - 1] + np.sqrt(0.19) * rng.standard_normal(4)
    >>> bool(300 < effective_sample_size(walk) < 550)  # 8000 / 19 = 421
    True
    """
    values = _check_chains(chains)
    if values.shape[1] < 8:
        raise InvalidInputError(
            f"effective sample size needs at least eight draws per chain; got {values.shape[1]}. Run the chains longer"
        )
    columns = split_chains(values).reshape(2 * values.shape[0], values.shape[1] // 2, -1)
    found = np.array([_effective(columns[:, :, j]) for j in range(columns.shape[2])])
    return found.reshape(values.shape[2:])


def split_chains(values: FloatArray) -> FloatArray:
    """Return the first and last halves of all chains as separate chains."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, values.shape[1] - half :]])


def _effective(values: FloatArray) -> float:
    """Return the effective sample size of chains of one functional, shape (C, N)."""
    if np.ptp(values) == 0:
        return float(values.size)
    n_chains, n_draws = values.shape
    covariance = _autocovariance(values).mean(axis=0)
    within = covariance[0] * n_draws / (n_draws - 1)
    total = covariance[0] + (values.mean(axis=1).var(ddof=1) if n_chains > 1 else 0.0)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    last = max(n_draws - 3, 2)  # later autocovariances are too noisy; the first pair of lags always counts
    sums = rho[: last - last % 2].reshape(-1, 2).sum(axis=1)
    stop = int(np.argmax(sums <= 0)) if np.any(sums <= 0) else len(sums)
    tau = -1 + 2 * np.minimum.accumulate(sums[:stop]).sum()
    tau += max(rho[2 * stop], 0.0)  # the even lag after the last pair
    return values.size / max(float(tau), 1 / math.log10(values.size))


def _autocovariance(x: FloatArray) -> FloatArray:
    """Return Σ_i (x_i − x̄)(x_{i+t} − x̄) / n at all lags t, along the last axis."""
    n = x.shape[-1]
    centred = x - x.mean(axis=-1, keepdims=True)
    centred[np.ptp(x, axis=-1) == 0] = 0.0
    length = scipy.fft.next_fast_len(2 * n, real=True)
    spectrum = scipy.fft.rfft(centred, length)
    return np.asarray(scipy.fft.irfft(np.abs(spectrum) ** 2, length)[..., :n] / n)


def _check_chains(chains: Any) -> FloatArray:
    values = np.asarray(chains, np.float64)
    if values.ndim not in (2, 3):
        raise InvalidInputError(
            f"chains must have shape (n_chains, n_draws) or (n_chains, n_draws, n_functionals); got {values.shape}"
        )
    if not np.isfinite(values).all():
        raise InvalidInputError("chains must be finite; some values are NaN or infinite. Drop those draws first")
    return values
