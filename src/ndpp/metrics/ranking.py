"""How well the rest of a basket tells the item that was held out: mean percentile rank and precision.

From each basket of two or more items one is held out; all items that are not in the rest are ranked by their score
given the rest. Items of equal score share their mean rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.metrics.estimates import Bootstrap, Estimate, mean_estimate
from ndpp.metrics.models import scores

CHUNK_SCORES = 8_000_000
"""Scores that are in memory at a time."""


class Holdout(ABC):
    """Which item of a basket is held out."""

    @abstractmethod
    def positions(self, rng: np.random.Generator, sizes: IntArray) -> IntArray:
        """Return a position in 0..size−1 for each basket, whose items are sorted by id."""


@dataclass(frozen=True)
class RandomHoldout(Holdout):
    """Each item of the basket with the same probability."""

    def positions(self, rng: np.random.Generator, sizes: IntArray) -> IntArray:
        """Return a uniform position for each basket."""
        return rng.integers(sizes)


@dataclass(frozen=True)
class LargestId(Holdout):
    """The item with the largest id: what public code of the literature does, and so what published figures rest on.

    Ids often follow the age or popularity of items, so that its figures say little about items in general.
    """

    def positions(self, rng: np.random.Generator, sizes: IntArray) -> IntArray:
        """Return the last position of each basket."""
        return sizes - 1


class Ranks(NamedTuple):
    """For each basket: candidates above the held-out item, others that tie with it, all candidates, the basket's size.

    ``n_zero`` baskets are not among them: their rest has probability zero.
    """

    above: IntArray
    ties: IntArray
    candidates: IntArray
    sizes: IntArray
    n_zero: int

    @property
    def percentile(self) -> FloatArray:
        """100 × the part of candidates ranked at or below the held-out item."""
        return 100 * (self.candidates - self.above - self.ties / 2) / self.candidates

    def in_top(self, k: int) -> FloatArray:
        """Probability that the held-out item is among the first k, ties being broken at random."""
        return np.clip((k - self.above) / (self.ties + 1), 0.0, 1.0)


def mean_percentile_rank(
    kernel: Any,
    baskets: Baskets,
    *,
    holdout: Holdout | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    rng: RngLike = None,
) -> Estimate:
    """Return 100 × the mean part of items ranked at or below the one held out: 50 for a blind ranking, 100 at best.

    Baskets of fewer than two items do not count. Those whose rest has probability zero are left out, and counted in
    ``n_zero``.

    Parameters
    ----------
    kernel : LowRankKernel, fitted estimator or baseline
        The model.
    baskets : Baskets
        Baskets that it was not fitted on.
    holdout : Holdout, optional
        ``RandomHoldout()`` by default; ``LargestId()`` is the rule behind published figures.
    level, n_boot : float, int
        Of the bootstrap interval; ``n_boot=0`` for none.
    rng : anything ``numpy.random.default_rng`` takes
        For holding out and for the bootstrap. With the same seed, all models have the same items held out.

    Examples
    --------
    >>> from ndpp.metrics import independent_items
    >>> baskets = Baskets.from_lists([[0, 1], [0, 2], [0, 1, 3]])
    >>> print(mean_percentile_rank(independent_items(baskets), baskets, holdout=LargestId(), n_boot=0))
    MPR 75 on 3 baskets
    """
    rng = np.random.default_rng(rng)
    bootstrap = Bootstrap(level, n_boot, rng).checked()
    ranks = held_out_ranks(kernel, baskets, rng, holdout)
    return mean_estimate("MPR", ranks.percentile, ranks.sizes, ranks.n_zero, bootstrap)


def precision_at(
    kernel: Any,
    baskets: Baskets,
    k: int = 10,
    *,
    holdout: Holdout | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    rng: RngLike = None,
) -> Estimate:
    """Return how often the item held out is among the first ``k``, ties being broken at random.

    Parameters as in :func:`mean_percentile_rank`.
    """
    k, rng = check_count(k, "k", least=1), np.random.default_rng(rng)
    bootstrap = Bootstrap(level, n_boot, rng).checked()
    ranks = held_out_ranks(kernel, baskets, rng, holdout)
    return mean_estimate(f"precision@{k}", ranks.in_top(k), ranks.sizes, ranks.n_zero, bootstrap)


def held_out_ranks(kernel: Any, baskets: Baskets, rng: np.random.Generator, holdout: Holdout | None = None) -> Ranks:
    """Return how the item held out of each basket ranks, given the rest."""
    rule = RandomHoldout() if holdout is None else holdout
    if not isinstance(rule, Holdout):
        raise InvalidInputError(f"holdout must be RandomHoldout() or LargestId(); got {rule!r}")
    baskets = baskets.select(min_size=2)
    where = baskets.indptr[:-1] + rule.positions(rng, baskets.sizes)
    held = baskets.indices[where]
    rest = Baskets(baskets.indptr - np.arange(len(baskets) + 1), np.delete(baskets.indices, where), baskets.n_items)
    step = max(1, CHUNK_SCORES // max(1, baskets.n_items))
    parts = [_count(kernel, rest[i : i + step], held[i : i + step]) for i in range(0, len(rest), step)]
    above, ties = np.concatenate([np.empty((0, 2)), *parts]).T
    known = ~np.isnan(above)
    return Ranks(
        above[known].astype(np.int64),
        ties[known].astype(np.int64),
        (baskets.n_items - rest.sizes)[known],
        baskets.sizes[known],
        int(np.sum(~known)),
    )


def _count(kernel: Any, rest: Baskets, held: IntArray) -> FloatArray:
    """Return two columns: how many candidates score above the held-out item, and how many others tie with it."""
    values = scores(kernel, rest)
    own = values[np.arange(len(rest)), held][:, None]
    values[np.repeat(np.arange(len(rest)), rest.sizes), rest.indices] = -np.inf
    counts = np.column_stack([(values > own).sum(axis=1), (values == own).sum(axis=1) - 1.0])
    counts[np.isnan(own[:, 0])] = np.nan
    return counts
