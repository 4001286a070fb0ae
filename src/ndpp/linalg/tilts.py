"""Tilts θ under which a number c(S) of a random set is as wanted, or within bounds: one search for all distributions.

With the odds of item i times e^{θ·c_i}, log E e^{θ·c(S)} − θ·b is a convex function of θ. Its gradient is the mean of c(S) under the tilt
minus b, and its matrix of second derivatives the covariance, so its minimum is where the mean is b.

* c_i = 1 counts items, and b is a size. Sets of one size have the same distribution whatever ρ = e^θ, so that computations for a size
  choose the ρ under which it is typical.
* For limits low ≤ c(S) ≤ high, b = low where θ > 0 and b = high where θ < 0. The minimum is that of Chernoff's bound,
  P(low ≤ c(S) ≤ high) ≤ E e^{θ·c(S)} e^{−θ·b}; it has a kink at 0, where θ_j stays if the mean of c_j is within the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from ndpp._stop import look
from ndpp._types import BoolArray, FloatArray, IntArray, NumberArray

TINY = float(np.finfo(np.float64).tiny)
MOST_TILT = 690.0
"""Largest |log ρ|, just within double precision."""
LEAST_VARIANCE = 1e-3
"""Where sizes hardly vary, steps are bounded by ``max_step``."""
MAX_STEPS = 100
"""Maximum number of steps."""
OVERSHOT = 0.9
"""A step went too far if the gap beyond the wanted mean is above this part of the gap before it."""
RIDGE = 1e-6
"""Added to the variances, relative to them, as numbers may be multiples of one another."""
MOST_LOG_FACTOR = 30.0
"""Largest logarithm of a factor e^{θ·c} towards a limit."""
VALUE_RATIO, CHANCE_RATIO = 1.1, 2.0
"""Items whose values and whose mean probabilities differ by up to about these factors are taken together."""

Moments = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]


def solve_tilts(
    moments: Moments,
    low: float | FloatArray,
    high: float | FloatArray,
    start: FloatArray,
    *,
    within: float = 0.3,
    deviations: float = 0.0,
    max_step: float = 3.0,
    unit: float = 0.0,
    least_variance: float = LEAST_VARIANCE,
    least_tilt: float = -MOST_TILT,
    most_tilt: float = MOST_TILT,
    max_steps: int = MAX_STEPS,
) -> FloatArray:
    """Return θ (C, J) under which the means of c are between ``low`` and ``high`` in each of C distributions.

    Newton steps; one that went too far, as the gradient shows, is halved. The last θ of each distribution that ``moments`` is called with
    is the result.

    Parameters
    ----------
    moments : callable
        ``moments(θ, which)`` returns the means (m, J) and the covariances (m, J, J) of c in the distributions at positions ``which``. NaN
        say that a step went too far.
    low, high : float or array
        The wanted means; there is no kink where they are equal. The smallest and the largest possible size would need ρ = 0 and ∞: only
        ``within`` of them is possible.
    start : (C, J) array
        Where to begin.
    within, deviations : float
        A mean is good enough if it differs from what is wanted by no more than ``within``, or by this many standard deviations.
    max_step, least_tilt, most_tilt : float
        Largest step, and bounds of θ.
    unit : float
        If positive, steps are multiples of it, and a distribution is done once the nearest multiple is zero.
    least_variance : float
        A smaller variance counts as this.
    max_steps : int
        Maximum number of steps.
    """
    theta = np.array(start, np.float64)
    bounds = np.stack([np.broadcast_to(np.asarray(bound, np.float64), theta.shape) for bound in (low, high)])
    step, slope, longest = np.zeros_like(theta), np.full(len(theta), np.inf), np.full(len(theta), float(max_step))
    moving = np.arange(len(theta))
    for left in reversed(range(max_steps)):
        look()
        x, (least, most), (mean, covariance) = theta[moving], bounds[:, moving], moments(theta[moving], moving)
        is_exact, side = least == most, np.where(x == 0, 1.0 * (mean < least) - (mean > most), np.sign(x))
        gap = np.where(is_exact | (side > 0), mean - least, np.where(side < 0, mean - most, 0.0 * mean))
        H = _regular(covariance, is_exact | (side != 0), least_variance)
        good = np.abs(gap) <= np.maximum(within, deviations * np.sqrt(np.einsum("cjj->cj", H)))
        too_far = ~((gap * step[moving]).sum(axis=1) <= OVERSHOT * slope[moving])[:, None]
        half = _on_grid(step[moving] / 2, unit, np.trunc)
        ahead = x + _on_grid(_newton(gap, H, longest[moving]), unit, np.round)
        ahead = np.where(is_exact | (ahead * side > 0), ahead, 0.0)
        new = np.where(too_far, x - step[moving] + half, ahead).clip(least_tilt, most_tilt)
        step[moving] = np.where(too_far, half, new - x)
        reach = np.where(too_far, np.abs(half), np.minimum(2 * longest[moving, None], max_step))
        longest[moving] = reach.max(axis=1)
        slope[moving] = np.where(too_far[:, 0], slope[moving] / 2, -(gap * step[moving]).sum(axis=1))
        goes_on = ~good.all(axis=1) & (new != x).any(axis=1)
        moving = moving[goes_on]
        if not len(moving) or not left:
            break
        theta[moving] = new[goes_on]
    return theta


def _regular(covariance: FloatArray, active: BoolArray, least_variance: float) -> FloatArray:
    """Return covariances without the numbers that are not active, and with variances that are not too small."""
    H = np.where(active[:, :, None] & active[:, None], covariance, 0.0)
    places = np.arange(H.shape[1])
    H[:, places, places] = np.maximum(H[:, places, places], least_variance) * (1 + RIDGE * (len(places) > 1))
    return H


def _newton(gap: FloatArray, H: FloatArray, longest: FloatArray) -> FloatArray:
    """Return Newton steps, of at most these lengths; 0 where moments are no numbers."""
    step = -gap / H[:, :, 0] if gap.shape[1] == 1 else -np.linalg.solve(H, gap[:, :, None])[:, :, 0]
    step = np.nan_to_num(step)
    return np.asarray(step * (longest / np.maximum(longest, np.abs(step).max(axis=1, initial=TINY)))[:, None])


def _on_grid(step: FloatArray, unit: float, rounding: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return steps, as multiples of the unit if there is one."""
    return unit * rounding(step / unit) if unit else step


def solve_each(moments: Moments, target: float | FloatArray, start: FloatArray, **options: float) -> FloatArray:
    """Return θ (C,) under which a single number has the wanted mean in each of C distributions; ``options`` as in :func:`solve_tilts`.

    ``moments(θ, which)`` returns means (m,) and variances (m,).
    """

    def of_one_number(theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = moments(theta[:, 0], which)
        return mean[:, None], variance[:, None, None]

    wanted = np.reshape(target, (-1, 1))
    return solve_tilts(of_one_number, wanted, wanted, np.asarray(start)[:, None], **options)[:, 0]  # type: ignore[arg-type]


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

    return float(solve_each(of_one, target, np.array([start]), **options)[0])


def tilt_of_coins(log_odds: FloatArray, target: float) -> float:
    """Return log ρ under which about ``target`` of independent coins with the odds ρ·exp(log_odds) show heads.

    Examples
    --------
    >>> round(tilt_of_coins(np.array([2.0, 2.0]), 1.0), 6)
    -2.0
    """
    return _tilt_of(lambda log_tilt: np.exp(-np.logaddexp(0, -(log_odds + log_tilt))), log_odds, target, within=0.1)


def tilt_to_size(eigenvalues: NumberArray, target: float) -> float:
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
            within=1e-13 * target, least_variance=TINY,
        )  # fmt: skip


def _tilt_of(chances: Callable[[float], NumberArray], log_odds: FloatArray, target: float, **options: float) -> float:
    """Return log ρ for the sum of coins, some of which may have complex chances, in conjugate pairs."""
    # As many coins as wanted have at least even odds.
    place = min(max(int(np.ceil(target)), 1), len(log_odds)) - 1
    start = -float(np.sort(log_odds)[::-1][place])

    def moments(log_tilt: float) -> tuple[float, float]:
        p = chances(log_tilt)
        return float(p.real.sum()), float((p * (1 - p)).real.sum())

    return solve_tilt(moments, target, start, **options)


# -- limits -----------------------------------------------------------------------------------------------------------------------


class TotalCumulants(Protocol):
    """Numbers c_j of several distributions, as :class:`GroupedCoins` has them."""

    @property
    def units(self) -> FloatArray:
        """The largest value of an item in each c_j, 1 where there is none, (J,)."""

    def cumulants(self, theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log E e^{θ·c} of some distributions, with a θ (m, J) for each, and the means and covariances of c under it."""


class GroupedCoins(NamedTuple):
    """Independent items of C distributions, those of similar values together: of group k, ``counts`` (C, K) with probability ``p`` each.

    Counts need not be whole. ``values`` (J, K) are those of an item of each group.
    """

    p: FloatArray
    counts: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, p: FloatArray, values: FloatArray) -> GroupedCoins:
        """Group items of probabilities p (C, n) and values (J, n); means and variances of c_j with equal values stay as they are."""
        which = np.flatnonzero(values.any(axis=0) & (p > 0).any(axis=0))
        if not len(which):
            return cls(np.zeros((len(p), 1)), np.zeros((len(p), 1)), np.zeros((len(values), 1)))
        V, p = values[:, which], p[:, which]
        level = np.round(np.log(np.where(V > 0, V, 1.0)) / np.log(VALUE_RATIO)).astype(np.int32)
        level[V == 0] = np.iinfo(np.int32).min
        popular = np.round(np.log(p.sum(axis=0)) / np.log(CHANCE_RATIO)).astype(np.int32)
        group = np.unique(np.vstack([level, popular]), axis=1, return_inverse=True)[1].reshape(-1)
        order = np.argsort(group, kind="stable")
        p, V, first = p[:, order], V[:, order], np.flatnonzero(np.diff(group[order], prepend=-1))
        weight = p.sum(axis=0)
        total, square = np.add.reduceat(p, first, axis=1), np.add.reduceat(p**2, first, axis=1)
        means = np.add.reduceat(V * weight, first, axis=1) / np.add.reduceat(weight, first)
        each = np.divide(square, total, out=np.zeros_like(total), where=total > 0)
        return cls(each, np.divide(total, each, out=np.zeros_like(total), where=each > 0), means)

    @property
    def units(self) -> FloatArray:
        """The largest value of each c_j."""
        return np.where(self.values.any(axis=1), self.values.max(axis=1, initial=0.0), 1.0)

    def cumulants(self, theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log E e^{θ·c}, means and covariances."""
        p, counts, V = self.p[which], self.counts[which], self.values
        x = theta @ V
        total = 1 + p * np.expm1(x)
        q = p * np.exp(x) / total
        own = counts * q
        covariance = np.stack([(own * (1 - q)) @ (V * v).T for v in V], axis=1)
        return (counts * np.log(total)).sum(axis=1), own @ V.T, covariance


def chances_within(mean: FloatArray, variance: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return about P(low_j ≤ c_j ≤ high_j) for numbers c_j of these moments (C, J), as if they were multiples of Poisson numbers."""
    from scipy.special import gammaincc  # takes half a second to import

    unit = np.divide(variance, mean, out=np.ones_like(mean), where=(mean > 0) & (variance > 0))
    below = np.where(
        high < np.inf, gammaincc(np.where(high < np.inf, high.clip(0.0), 0.0) / unit + 1, mean / unit), 1.0
    )
    short = np.where(low > 0, gammaincc(np.where(low > 0, low, 1.0) / unit, mean / unit), 0.0)
    return np.asarray((below - short).clip(0.0, 1.0))


def chernoff_tilts(
    law: TotalCumulants, low: FloatArray, high: FloatArray, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return θ_c (C, J) that minimises Chernoff's bound of P_c(low ≤ c(S) ≤ high), and log E_c e^{θ_c·c}.

    Steps are in units of the largest values.
    """
    unit, logs = law.units, np.empty(len(start))

    def moments(theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        logs[which], mean, covariance = law.cumulants(theta / unit, which)
        return mean / unit, covariance / np.outer(unit, unit)

    return towards_limits(moments, low / unit, high / unit, start * unit, deviations=0.1) / unit, logs


def towards_limits(
    moments: Moments, low: FloatArray, high: FloatArray, start: FloatArray, **options: float
) -> FloatArray:
    """Return θ towards limits whose values are at most about 1; ``options`` as in :func:`solve_tilts`."""
    bounded = {"within": 0.0, "max_step": 4.0, "least_variance": 1e-6, "least_tilt": -MOST_LOG_FACTOR} | options
    return solve_tilts(moments, low, high, start, most_tilt=MOST_LOG_FACTOR, **bounded)  # type: ignore[arg-type]
