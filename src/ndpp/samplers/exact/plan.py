"""A circle for the remaining items: the fewest nodes that keep bias and cancellation small.

The rule with N nodes adds the coefficients at left ± N, left ± 2N, … to the one that is wanted, and loses digits if the wanted one is a
small part of the whole. Both follow from the distribution of the remaining size. Below its mean, the upper tail that is folded back is
lighter, and there is nothing below zero to fold: a smaller radius needs fewer nodes at the price of some digits.

The weights of the current circle give this distribution by a Fourier sum; without a circle, it comes from eigenvalues or is modelled by its
mean and variance. The monitors check the result, so a poor plan costs time but not correctness.

CPU and GPU have the same monitors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ndpp._compiled import njit, soon
from ndpp._types import ComplexArray, FloatArray, IntArray
from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.size_law import tilt_for, tilted_law

RUNG_STEP = 0.35
"""Step of the ladder in log ρ. One step changes the mean size by about RUNG_STEP times its variance."""
NODE_COUNTS = np.array(
    [4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256, 384, 512, 1024]
)
"""Numbers of nodes to choose from: few, so that samples share circles."""
MODELLED_BIAS, MODELLED_FRACTION = 1e-12, 1e-3
"""Targets for a new circle if the distribution is modelled."""
NOISE, LEAST = 1e-12, float(np.finfo(float).tiny)
"""Probabilities below these are rounding: of a distribution computed from weights, and of one that is known."""


class Tolerances(NamedTuple):
    """Bounds of the monitors.

    ``trace``: |tr M − number of remaining items|; divided by the number of nodes, this bounds the bias of the rule. ``fraction``: smallest
    surviving fraction; rounding errors are divided by it. ``chance``: how far acceptance probabilities may lie outside [0, 1].
    ``chosen``: largest entry of M q for an item already chosen, which is zero in exact arithmetic.
    """

    trace: float = 2e-8
    fraction: float = 1e-5
    chance: float = PROBABILITY_TOLERANCE
    chosen: float = 1e-6

    def accepts(self, trace_error: Any, fraction: Any) -> Any:
        """Tell whether M may be drawn from; takes numbers, or arrays with one entry per sample."""
        return (trace_error <= self.trace) & (fraction >= self.fraction)


class Targets(NamedTuple):
    """Largest probability that a new circle may fold onto the wanted one, and smallest surviving fraction."""

    bias: float
    fraction: float


PLANNED = Targets(1e-13, 1e-4)
"""If the distribution is known, with a margin for the drift as items are added."""


@njit()
def unbiased_count(rank: int) -> int:
    """Return the smallest even number of nodes for which the rule is unbiased: more than the rank."""
    return 2 * (rank // 2 + 1)


def plan_anew(coords: Coordinates, given: FloatArray, left: int) -> tuple[int, int]:
    """Return the rung and the number of nodes of a circle for ``left`` items in addition to those with rows ``given``."""
    # The rung on which about as many items are expected.
    rung = 2 * (round(math.log(tilt_for(coords, len(given) + left, given)) / RUNG_STEP) // 2)
    law = tilted_law(coords, math.exp(rung * RUNG_STEP), given).law
    steps, count = soon(plan_steps, 100 * law.size)(law, left, LEAST, PLANNED)
    return rung + steps, count or unbiased_count(coords.rank)


def plan_circle(mean: float, variance: float, left: int) -> tuple[float, int]:
    """Return a change of log ρ and an even number of nodes from the mean and variance of the remaining size.

    It is modelled as c·Binomial, with c = 2 if the variance shows that items come in pairs, else 1.
    """
    from scipy.special import gammaln  # a tenth of a second that `import ndpp` need not pay

    pair = 2 if variance > mean else 1
    p = np.clip(1 - variance / (pair * mean), 1e-6, 1 - 1e-6)
    trials = mean / (pair * p)
    shifts = -RUNG_STEP * np.arange(24.0)[:, None]
    log_odds = np.log(p / (1 - p)) + pair * shifts

    def log_law(x: FloatArray) -> FloatArray:
        successes = x / pair
        inside = (successes >= 0) & (successes <= trials)
        successes = np.clip(successes, 0, trials)
        value = (
            gammaln(trials + 1) - gammaln(successes + 1) - gammaln(trials - successes + 1)
            + successes * log_odds - trials * np.log1p(np.exp(log_odds)) - np.log(pair)
        )  # fmt: skip
        return np.where(inside, value, -np.inf)

    here = log_law(np.full((1, 1), float(left)))
    with np.errstate(invalid="ignore"):
        folded = np.maximum(log_law(left + NODE_COUNTS[None, :]), log_law(left - NODE_COUNTS[None, :])) - here
    good = (folded < np.log(MODELLED_BIAS)) & (here > np.log(MODELLED_FRACTION))
    if not good.any():
        return 0.0, int(NODE_COUNTS[-1])
    column = int(np.argmax(good.any(axis=0)))  # the fewest nodes, and with these the most digits
    row = int(np.argmax(np.where(good[:, column], here[:, 0], -np.inf)))
    return float(shifts[row, 0]), int(NODE_COUNTS[column])


def plan_from_moments(rungs: IntArray, mean: FloatArray, variance: FloatArray, left: int) -> list[tuple[int, int]]:
    """Return a rung and a number of nodes for each sample from the result of ``Circles.centre``. Rungs are even, to share circles."""
    plans = (plan_circle(float(m), float(v), left) for m, v in zip(mean, variance))
    return [(2 * ((int(rung) + round(shift / RUNG_STEP)) // 2), count) for rung, (shift, count) in zip(rungs, plans)]


@njit()
def plan_next(log_w: ComplexArray, left: int, targets: Targets) -> tuple[int, int]:
    """Return :func:`plan_steps` from the circle with these weights."""
    return plan_steps(remaining_size_law(log_w, left), left, NOISE, targets)


@njit()
def plan_steps(law: FloatArray, left: int, noise: float, targets: Targets) -> tuple[int, int]:
    """Return a number of rungs and of nodes: the fewest nodes that meet the targets, then the most digits; no nodes if none do."""
    n = law.size
    if not (left < n and law[left] > noise):
        return 0, 0
    log_law, tilted = _extended(law, noise), np.empty(2 * n)
    steps, fewest, best = 0, 0, -np.inf
    for shift in range(8, -26, -2):
        for m in range(2 * n):
            tilted[m] = log_law[m] + shift * RUNG_STEP * (m - left)
        peak, total = tilted.max(), 0.0
        for m in range(2 * n):
            if tilted[m] > peak - 40:
                total += math.exp(tilted[m] - peak)
        fraction = log_law[left] - peak - math.log(total)
        if not fraction > math.log(targets.fraction):
            continue
        for count in NODE_COUNTS[n >= NODE_COUNTS]:
            folded = max(tilted[left + count], tilted[left - count] if left >= count else -np.inf)
            if folded - log_law[left] < math.log(targets.bias):
                if fewest == 0 or count < fewest or (count == fewest and fraction > best):
                    steps, fewest, best = shift, count, fraction
                break
    return steps, fewest


@njit()
def remaining_size_law(log_w: ComplexArray, left: int) -> FloatArray:
    """Return P(m) for m = 0..N − 1 remaining items at the radius of these weights: Re Σ_j w_j exp(−iθ_j(m − left))."""
    half = log_w.size
    if not (half and np.isfinite(log_w.real).all()):
        return np.empty(0)
    law, peak = np.zeros(2 * half), log_w.real.max()
    for j in range(half):
        angle = math.pi * (j + 0.5) / half
        term, turn = np.exp(log_w[j] - peak + 1j * angle * left), np.exp(-1j * angle)
        for m in range(2 * half):
            law[m] += term.real
            term *= turn
    law /= np.abs(law).sum()
    return law


@njit()
def _extended(law: FloatArray, noise: float) -> FloatArray:
    """Return the log-probabilities at 0..2N − 1, extrapolated linearly where rounding hides them: an upper bound if log-concave."""
    known = np.flatnonzero(law > noise)
    first, last = known[0], known[-1]
    log_law = np.log(np.maximum(law[first : last + 1], noise))
    span = min(4, last - first)  # even if possible: some kernels have only sets of even size
    up = max(log_law[span] - log_law[0], 0.0) / max(span, 1)
    down = max(log_law[-1 - span] - log_law[-1], 0.0) / max(span, 1)
    extended = np.empty(2 * law.size)
    for m in range(extended.size):
        inside = log_law[min(max(m, first), last) - first]
        extended[m] = inside - up * max(first - m, 0) - down * max(m - last, 0)
    return extended
