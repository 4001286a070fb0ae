"""The walk on a small catalogue, enumerated: its transition matrix over all sets of one size, and its distribution after t steps.

Every up-step draws from P(pair | A) ∝ det L_{A ∪ pair}, so one matrix describes ``DirectUp``, ``RejectionUp`` and ``NaiveUp``: the
last set of a chain of t steps from a uniform start has the distribution u Pᵗ. With the matrix, a million chains are one multinomial
draw, and distances to the true distribution are known without noise.
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

MAX_SETS = 5000
"""Largest number of sets; the transition matrix has the square of it."""


class EnumeratedWalk(NamedTuple):
    """Sets of positive probability as bit masks over the rows of the support, their distribution, and the transition matrix."""

    masks: IntArray
    law: FloatArray
    transition: FloatArray

    def after(self, steps: int, start: FloatArray | None = None) -> FloatArray:
        """Return the distribution after ``steps`` steps, from the distribution ``start`` or else a uniform one."""
        now = np.full(len(self.law), 1 / len(self.law)) if start is None else start
        for _ in range(steps):
            now = now @ self.transition
        return now

    def at(self, rows: IntArray) -> FloatArray:
        """Return the distribution concentrated on one set, given by its rows."""
        return np.asarray(self.masks == (1 << rows).sum(), np.float64)


def enumerate_walk(kernel: LowRankKernel, size: int) -> EnumeratedWalk:
    """Return the walk on sets of ``size`` ≥ 2 items. O(m² k²) for m sets.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> walk = enumerate_walk(make_kernel(6, 4, rng=0), 3)
    >>> bool(np.allclose(walk.law @ walk.transition, walk.law))
    True
    """
    n = len(kernel.support)
    if math.comb(n, size) > MAX_SETS or size < 2:
        raise InvalidInputError(
            f"expected sets of at least 2 items and at most {MAX_SETS} sets to enumerate; got sets of {size} out of {n} items"
        )
    sets = np.array(list(combinations(range(n), size)))
    weights = minors(kernel.to_dense()[np.ix_(kernel.support, kernel.support)], sets)[0]
    sets, weights = sets[weights > 0], weights[weights > 0]
    masks = (1 << sets).sum(axis=1)
    smaller = np.array([(1 << np.array(rows, np.int64)).sum() for rows in combinations(range(n), size - 2)], np.int64)
    contains = ((masks[:, None] & smaller) == smaller).astype(np.float64)  # (sets, smaller sets)
    reachable = weights @ contains
    up = (contains * weights[:, None] / np.where(reachable > 0, reachable, 1.0)).T
    return EnumeratedWalk(masks, weights / weights.sum(), contains @ up / math.comb(size, 2))


def enumerate_random_size(kernel: LowRankKernel) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return all sets as masks, their true distribution, and that of the walk of random size after k² steps."""
    exact = Naive.prepare(kernel)
    approximate = dict.fromkeys(exact.masks.tolist(), 0.0)
    sizes = np.array([mask.bit_count() for mask in exact.masks.tolist()])
    for size in np.unique(sizes).tolist():
        masks, law = exact.masks[sizes == size], exact.law[sizes == size]
        if size >= 2:  # smaller sets are drawn exactly
            walk = enumerate_walk(kernel, size)
            masks, law = walk.masks, law.sum() * walk.after(size**2)
        approximate.update(zip(masks.tolist(), law.tolist()))
    return exact.masks, exact.law, np.array([approximate[mask] for mask in exact.masks.tolist()])
