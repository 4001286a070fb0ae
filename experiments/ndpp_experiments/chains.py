"""Many chains of a walk, recorded after given numbers of steps, and the distance of their sets from exact draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Walk


def run_chains(
    walk: Walk, n_chains: int, steps: Sequence[int], *, seed: int, starts: Baskets | None = None
) -> list[Baskets]:
    """Return the sets of all chains after each of these numbers of steps, in ascending order.

    Chain i starts at ``starts[i]``, or by default where the walk was prepared to start.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> first, last = run_chains(Walk.prepare(make_kernel(20, 6, rng=0), size=3), 4, [0, 5], seed=0)
    >>> len(first), last.sizes
    (4, array([3, 3, 3, 3]))
    """
    reached: list[list[IntArray]] = [[] for _ in steps]
    for c, rng in enumerate(np.random.default_rng([seed, walk.size]).spawn(n_chains)):
        state, done = walk.init(rng, None if starts is None else starts[c]), 0
        for wanted, sets in zip(steps, reached):
            for _ in range(wanted - done):
                state, _ = walk.step(rng, state)
            done = wanted
            sets.append(state.items)
    return [Baskets.from_lists(sets, n_items=walk.kernel.n_items) for sets in reached]


def log_det_gap(kernel: LowRankKernel, sets: Baskets, exact: FloatArray) -> float:
    """Return |mean log det of the sets − mean of exact draws|, in standard deviations of the exact draws."""
    return float(abs(kernel.log_dets(sets).mean() - exact.mean()) / exact.std(ddof=1))


def noise_of_gap(n_sets: int, n_exact: int) -> float:
    """Return the gap that independent exact draws exceed with probability 5 %."""
    return float(1.96 * np.sqrt(1 / n_sets + 1 / n_exact))
