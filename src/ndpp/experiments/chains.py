"""Many chains of a walk, looked at after given numbers of steps, and how far their sets are from exact draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.diagnostics import log_dets
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Walk


def run_chains(
    walk: Walk, n_chains: int, looks: Sequence[int], *, seed: int, starts: Baskets | None = None
) -> list[Baskets]:
    """Return the sets of all chains after each number of steps in ``looks``, which ascend.

    Chains begin at ``starts``, one each, or where the walk was told to begin.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> first, last = run_chains(Walk.prepare(make_kernel(20, 6, rng=0), size=3), 4, [0, 5], seed=0)
    >>> len(first), last.sizes
    (4, array([3, 3, 3, 3]))
    """
    met: list[list[IntArray]] = [[] for _ in looks]
    for c, rng in enumerate(np.random.default_rng([seed, walk.size]).spawn(n_chains)):
        state, done = walk.init(rng, None if starts is None else starts[c]), 0
        for look, sets in zip(looks, met):
            for _ in range(look - done):
                state, _ = walk.step(rng, state)
            done = look
            sets.append(state.items)
    return [Baskets.from_lists(sets, n_items=walk.kernel.n_items) for sets in met]


def log_det_gap(kernel: LowRankKernel, sets: Baskets, exact: FloatArray) -> float:
    """Return |mean log det of the sets − mean of exact draws|, in standard deviations of exact draws."""
    return float(abs(log_dets(kernel, sets).mean() - exact.mean()) / exact.std(ddof=1))


def noise_of_gap(n_sets: int, n_exact: int) -> float:
    """Return the gap that independent exact draws exceed in 5 % of cases."""
    return float(1.96 * np.sqrt(1 / n_sets + 1 / n_exact))


def grid(most: int, *, per_decade: int = 8) -> list[int]:
    """Return 1, 2, … up to ``most``, ever further apart.

    Examples
    --------
    >>> grid(20, per_decade=4)
    [1, 2, 3, 6, 10, 18, 20]
    """
    steps = np.unique(np.round(10 ** np.arange(0, np.log10(most), 1 / per_decade)).astype(int))
    return [*steps[steps < most].tolist(), most]
