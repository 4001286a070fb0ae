"""Empirical mixing time against k by the potential scale reduction factor: 100 chains, n = 100 … 3,200, d = 20 [Han22, App. A.5].

The mixing time is the number of steps after which the factor of log det L_S, over all chains and from their uniform starts on, stays
below 1.1. The factor is that of tensorflow-probability, which the paper used: (C + 1)/C · R̂² − (N − 1)/(C N) for C chains of N draws.
R̂ is computed at every step from running sums, over all draws so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray
from ndpp.datasets import make_kernel
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Walk
from ndpp_experiments.chains import run_chains
from ndpp_experiments.claims import Claim
from ndpp_experiments.plots import Curve, Panel, convergence_curves, fitted_slope
from ndpp_experiments.record import Finding, Result, Say, grouped

THRESHOLD = 1.1
FULL = (100, 200, 400, 800, 1600, 3200), 20, tuple(range(2, 21, 2)), 100
"""Catalogues, rank, sizes and number of chains."""
LINEAR = 0.5, 1.5
"""Exponents of k that count as linear, for mixing times from 6 to 100 steps."""


class MixingTime(NamedTuple):
    """The mixing time at one n and k, None if the chains were too short to show it."""

    n: int
    k: int
    chains: int
    steps_run: int
    mixing_time: int | None


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Run chains for every n and k; fit a line through the mixing times of each n."""
    n_items, rank, sizes, chains = ((50, 200), 8, (2, 3, 4), 8) if quick else FULL
    found: list[MixingTime] = []
    for n in n_items:
        kernel = make_kernel(n, rank, rng=seed)
        for k in sizes:
            steps = 20 + (12 if quick else 8) * k
            curve = running_psrf(_log_dets(kernel, k, chains, steps, seed=seed))
            found.append(MixingTime(n, k, chains, steps, mixing_time(factor(curve, chains))))
        say(f"n = {n}: mixing times {[time.mixing_time for time in found if time.n == n]}")
    settings = {"n": n_items, "d": rank, "k": sizes, "chains": chains, "threshold": THRESHOLD}
    # Of each n: sizes and mixing times, as far as the chains were long enough.
    reached = [(time.n, time.k, time.mixing_time) for time in found if time.mixing_time is not None]
    by_n = {n: [(k, steps) for _, k, steps in own] for n, own in grouped(reached, lambda point: point[0]).items()}
    return Result(settings, _findings(by_n, rank), {"": found}, convergence_curves([_panel(by_n)]), NOTES)


NOTES = (
    "The paper names neither the functional nor the threshold; here they are log det and 1.1. At k = 2 a step is an exact draw. The "
    "paper plots k up to 30 at d = 20, but a kernel of rank d has no set of more than d items (det L_S = 0), so here k ends at d. "
    "Below that the growth is nearly linear, as the paper says; at k = d mixing is faster again.",
    "A factor below 1.1 says that chains from different starts have the same spread of log det. It does not prove convergence: on "
    "kernels of tight pairs there is none (see *Beyond the paper*).",
)


def _log_dets(kernel: LowRankKernel, k: int, chains: int, steps: int, *, seed: int) -> FloatArray:
    """Return log det along independent chains from uniform starts, of shape (chains, steps + 1)."""
    sets = run_chains(Walk.prepare(kernel, size=k), chains, range(steps + 1), seed=seed)
    return np.column_stack([kernel.log_dets(here) for here in sets])


def running_psrf(values: FloatArray) -> FloatArray:
    """Return R̂ of the first two, three, … draws of all chains. O(chains · draws).

    Examples
    --------
    >>> from ndpp.diagnostics import psrf
    >>> values = np.random.default_rng(0).standard_normal((4, 50))
    >>> bool(np.isclose(running_psrf(values)[-1], psrf(values)))
    True
    """
    values = values - values.mean()
    count = np.arange(1, values.shape[1] + 1)
    sums, squares = np.cumsum(values, axis=1), np.cumsum(values**2, axis=1)
    means = (sums / count)[:, 1:]
    count = count[1:]
    within = ((squares[:, 1:] - count * means**2) / (count - 1)).mean(axis=0)
    return np.asarray(np.sqrt((count - 1) / count + means.var(axis=0, ddof=1) / within))


def factor(curve: FloatArray, n_chains: int) -> FloatArray:
    """Return tensorflow-probability's potential scale reduction factor from R̂ of the first two, three, … draws."""
    n_draws = np.arange(2, len(curve) + 2)
    return (n_chains + 1) / n_chains * curve**2 - (n_draws - 1) / (n_chains * n_draws)


def mixing_time(curve: FloatArray) -> int | None:
    """Return the first number of steps from which on the factor stays below the threshold, None if it does not.

    Examples
    --------
    >>> mixing_time(np.array([2.0, 1.05, 1.2, 1.09, 1.05]))
    4
    """
    above = np.flatnonzero(~(curve < THRESHOLD))
    last = above[-1] + 1 if above.size else 0
    return int(last) + 1 if last < len(curve) else None  # entry 0 is after one step


def _panel(by_n: dict[int, list[tuple[int, int]]]) -> Panel:
    curves = [Curve(f"n = {n:,}", *zip(*own)) for n, own in by_n.items()]
    return Panel("Steps until the factor stays below 1.1", "size k", "steps", curves, log=False)


def _findings(by_n: dict[int, list[tuple[int, int]]], rank: int) -> list[Finding]:
    found = []
    for n, own in by_n.items():
        k, steps = np.array(own, float).T
        line = np.polyfit(k, steps, 1)
        fit = np.corrcoef(k, steps)[0, 1] ** 2 if len(k) > 2 else 1.0
        text = f"{line[0]:.1f}·k {line[1]:+.1f}, R² = {fit:.2f}; {int(steps[-1])} steps at k = {int(k[-1])}"
        inner = [(size, own_steps) for size, own_steps in own if 6 <= size < rank]
        slope = fitted_slope(*zip(*inner)) if len(inner) > 2 else None
        text += f"; k^{slope:.2f} for 6 ≤ k < d" if slope is not None else ""
        holds = None if slope is None else LINEAR[0] <= slope <= LINEAR[1]
        found.append(Finding(f"n = {n:,}: mixing time", "linear in k", text, holds, Claim.LINEAR_MIXING))
    within = [steps <= k**2 for own in by_n.values() for k, steps in own if k >= 8]
    text = f"{sum(within)} of {len(within)} settings with k ≥ 8"
    return [
        *found,
        Finding("mixing time at most k²", "k² is enough", text, all(within) if within else None, Claim.K_SQUARED),
    ]
