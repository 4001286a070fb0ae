"""The walk on a small catalogue as a table: its transition matrix over all sets of one size, and its law after t steps.

All up-steps have one law, P(pair | A) ∝ det L_{A ∪ pair}, so that one table stands for ``DirectUp``, ``RejectionUp`` and
``NaiveUp`` alike: the last set of a chain of t steps from a uniform start is a draw from u Pᵗ. With the table a million
chains are a multinomial draw, and distances to the true law are known without any noise.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.naive import Naive, minors

MOST_SETS = 5000
"""The table has the square of this many entries, at most."""


class TabledWalk(NamedTuple):
    """Sets of positive probability as bit masks over the rows of the support, their law, and the walk's transition matrix."""

    masks: IntArray
    law: FloatArray
    transition: FloatArray

    def after(self, steps: int, start: FloatArray | None = None) -> FloatArray:
        """Return the law after ``steps`` steps, from a uniform start or from the law ``start``."""
        now = np.full(len(self.law), 1 / len(self.law)) if start is None else start
        for _ in range(steps):
            now = now @ self.transition
        return now

    def at(self, rows: IntArray) -> FloatArray:
        """Return the law that is all at the set with these rows."""
        return (self.masks == (1 << rows).sum()).astype(np.float64)


def tabled_walk(kernel: LowRankKernel, size: int) -> TabledWalk:
    """Return the table of the walk on sets of ``size`` items, two or more. O(m² k²) for m sets.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> walk = tabled_walk(make_kernel(6, 4, rng=0), 3)
    >>> bool(np.allclose(walk.law @ walk.transition, walk.law))
    True
    """
    n = len(kernel.support)
    if math.comb(n, size) > MOST_SETS or size < 2:
        raise InvalidInputError(
            f"a table of sets of {size} out of {n} items is not made: 2 items at least, {MOST_SETS} sets at most"
        )
    sets = np.array(list(combinations(range(n), size)))
    weights = minors(kernel.to_dense()[np.ix_(kernel.support, kernel.support)], sets)
    sets, weights = sets[weights > 0], weights[weights > 0]
    masks = (1 << sets).sum(axis=1)
    kept = np.array([(1 << np.array(keep, np.int64)).sum() for keep in combinations(range(n), size - 2)], np.int64)
    holds = ((masks[:, None] & kept) == kept).astype(np.float64)  # (sets, kept): the kept items are in the set
    reachable = weights @ holds
    up = (holds * weights[:, None] / np.where(reachable > 0, reachable, 1.0)).T
    return TabledWalk(masks, weights / weights.sum(), holds @ up / math.comb(size, 2))


def tabled_random_size(kernel: LowRankKernel) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return all sets as masks, their true law, and that of the walk of random size with k² steps."""
    exact = Naive.prepare(kernel)
    approximate = dict.fromkeys(exact.masks.tolist(), 0.0)
    sizes = np.array([mask.bit_count() for mask in exact.masks.tolist()])
    for size in np.unique(sizes).tolist():
        here = exact.masks[sizes == size]
        share = exact.law[sizes == size].sum()
        if size < 2:  # drawn directly, and exactly
            law = exact.law[sizes == size] / share
        else:
            walk = tabled_walk(kernel, size)
            here, law = walk.masks, walk.after(size**2)
        approximate.update(zip(here.tolist(), (share * law).tolist()))
    return exact.masks, exact.law, np.array([approximate[mask] for mask in exact.masks.tolist()])
