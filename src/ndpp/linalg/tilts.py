"""The tilt ρ under which a random set has a given expected size: one search for all distributions.

Sets of one size have the same distribution under ρL as under L, whatever ρ > 0, so that computations for a size choose the ρ under which
this size is typical. The expected size increases with log ρ, and its derivative is the variance: safeguarded Newton steps find ρ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray

MOST_TILT = 690.0
"""Largest |log ρ|, just within double precision."""
LEAST_VARIANCE = 1e-3
"""Where sizes hardly vary, steps are bounded by ``max_step``."""
MOST_STEPS = 100
"""Steps that are taken."""


def solve_tilts(
    moments: Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]],
    target: float | FloatArray,
    start: FloatArray,
    *,
    within: float = 0.3,
    deviations: float = 0.0,
    max_step: float = 3.0,
    unit: float = 0.0,
    least_variance: float = LEAST_VARIANCE,
) -> FloatArray:
    """Return log ρ under which about ``target`` items are expected of each of several distributions.

    Parameters
    ----------
    moments : callable
        ``moments(log_tilt, which)`` returns the means and the variances of the distributions at positions ``which``.
    target : float or array
        The expected size, of all distributions or of each. The smallest and the largest possible size would need ρ = 0 and ∞: only
        ``within`` of them is possible.
    start : array
        Where to begin, one log ρ for each distribution.
    within, deviations : float
        A mean is good enough if it differs from the target by no more than ``within``, or by this many standard deviations.
    max_step : float
        Largest step.
    unit : float
        If positive, steps are multiples of it, and a distribution is done once the nearest multiple is zero.
    least_variance : float
        A smaller variance counts as this.
    """
    x = np.array(start, np.float64)
    wanted = np.broadcast_to(np.asarray(target, np.float64), x.shape)
    low, high = np.full_like(x, -np.inf), np.full_like(x, np.inf)
    moving = np.arange(len(x))
    for _ in range(MOST_STEPS):
        look()
        mean, variance = moments(x[moving], moving)
        excess, spread = mean - wanted[moving], np.maximum(variance, least_variance)
        step = np.nan_to_num(np.clip(-excess / spread, -max_step, max_step))
        if unit:
            step = unit * np.round(step / unit)
        far = (np.abs(excess) > np.maximum(within, deviations * np.sqrt(spread))) & (step != 0)
        moving, step = moving[far], step[far]
        low[moving] = np.where(step > 0, x[moving], low[moving])
        high[moving] = np.where(step < 0, x[moving], high[moving])
        apart = high[moving] - low[moving] > 1.5 * unit  # otherwise there is no multiple between them
        moving, step = moving[apart], step[apart]
        if not len(moving):
            break
        x[moving] = _between(x[moving] + step, low[moving], high[moving], unit).clip(-MOST_TILT, MOST_TILT)
    return x


def _between(x: FloatArray, low: FloatArray, high: FloatArray, unit: float) -> FloatArray:
    """Return x where it lies between the bounds, and their middle, a multiple of the unit away from them, where it does not."""
    inside = (low + unit / 2 < x) & (x < high - unit / 2)
    with np.errstate(invalid="ignore"):
        half = (high - low) / 2
        middle = low + (unit * np.floor(half / unit + 1e-9) if unit else half)
    return np.where(inside, x, middle)


def solve_tilt(
    moments: Callable[[float], tuple[float, float]], target: float, start: float = 0.0, **options: float
) -> float:
    """Return log ρ under which about ``target`` items are expected of one distribution; ``options`` are those of :func:`solve_tilts`.

    ``moments(log_tilt)`` returns its mean and its variance. The last log ρ that it is called with is the result.

    Examples
    --------
    >>> poisson = lambda log_tilt: (2 * np.exp(log_tilt), 2 * np.exp(log_tilt))
    >>> round(solve_tilt(poisson, 6.0, within=1e-9) / float(np.log(3.0)), 6)
    1.0
    """

    def of_one(log_tilt: FloatArray, _: IntArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = moments(float(log_tilt[0]))
        return np.array([mean]), np.array([variance])

    return float(solve_tilts(of_one, target, np.array([start]), **options)[0])


def tilt_of_coins(log_odds: FloatArray, target: float) -> float:
    """Return log ρ under which about ``target`` of independent coins with the odds ρ·exp(log_odds) show heads.

    Examples
    --------
    >>> round(tilt_of_coins(np.array([2.0, 2.0]), 1.0), 6)
    -2.0
    """
    return _tilt_of(lambda log_tilt: np.exp(-np.logaddexp(0, -(log_odds + log_tilt))), log_odds, target, within=0.1)


def tilt_to_size(eigenvalues: AnyArray, target: float) -> float:
    """Return log ρ with Σ Re ρλ/(1 + ρλ) = target, to almost all digits.

    Examples
    --------
    >>> round(float(tilt_to_size(np.array([1e-3, 1e-3j, -1e-3j]), 1.5) + np.log(1e-3)), 9)
    0.0
    """
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(np.abs(eigenvalues))
        phases = np.exp(-1j * np.angle(eigenvalues))
        return _tilt_of(
            lambda log_tilt: 1 / (1 + phases * np.exp(-(logs + log_tilt))), logs, target,
            within=1e-13 * target, least_variance=np.finfo(float).tiny,
        )  # fmt: skip


def _tilt_of(chances: Callable[[float], AnyArray], log_odds: FloatArray, target: float, **options: float) -> float:
    """Return log ρ for the sum of coins, some of which may have complex chances, in conjugate pairs."""
    # As many coins as wanted have at least even odds.
    place = min(max(int(np.ceil(target)), 1), len(log_odds)) - 1
    start = -float(np.sort(log_odds)[::-1][place])

    def moments(log_tilt: float) -> tuple[float, float]:
        p = chances(log_tilt)
        return float(p.real.sum()), float((p * (1 - p)).real.sum())

    return solve_tilt(moments, target, start, **options)
