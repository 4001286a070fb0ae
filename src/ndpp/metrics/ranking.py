"""How well a model predicts a held-out item from the rest of its basket: mean percentile rank and precision.

One item of each basket of two or more is held out. All items outside the rest are ranked by their score given the rest;
ties share their mean rank.
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
"""Number of scores in memory at a time."""


class Holdout(ABC):
    """A rule that chooses the item to hold out."""

    @abstractmethod
    def positions(self, rng: np.random.Generator, sizes: IntArray) -> IntArray:
        """Return a position in 0..size−1 for each basket; its items are sorted by id."""


@dataclass(frozen=True)
class RandomHoldout(Holdout):
    """Holds out a uniformly random item."""

    def positions(self, rng: np.random.Generator, sizes: IntArray) -> IntArray:
        """Return uniform positions."""
        return rng.integers(sizes)


@dataclass(frozen=True)
class LargestId(Holdout):
    """Holds out the item with the largest id, as the public code of the literature does.

    Ids often reflect the age or popularity of items, so the results do not apply to items in general.
    """

    def positions(self, rng: np.random.Generator, sizes: IntArray) -> IntArray:
        """Return the last positions."""
        return sizes - 1


class Ranks(NamedTuple):
    """For each basket: candidates above the held-out item, other candidates tied with it, all candidates, basket size.

    Excludes ``n_zero`` baskets whose rest has probability zero.
    """

    above: IntArray
    ties: IntArray
    candidates: IntArray
    sizes: IntArray
    n_zero: int

    @property
    def percentile(self) -> FloatArray:
        """Percentage of candidates ranked at or below the held-out item."""
        return 100 * (self.candidates - self.above - self.ties / 2) / self.candidates

    def in_top(self, k: int) -> FloatArray:
        """Return the probability that the held-out item is among the first k, with ties broken at random."""
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
    """Return the mean percentage of items ranked at or below the held-out item: about 50 by chance, at most 100.

    Baskets of fewer than two items are excluded, and so are those whose rest has probability zero, which ``n_zero``
    counts. The same seed ``rng`` holds out the same items for all models. ``holdout`` is ``RandomHoldout()`` by
    default; published results use ``LargestId()``. The other parameters are those of :func:`mean_log_likelihood`.

    Examples
    --------
    >>> from ndpp.metrics import independent_items
    >>> baskets = Baskets.from_lists([[0, 1], [0, 2], [0, 1, 3]])
    >>> print(mean_percentile_rank(independent_items(baskets), baskets, holdout=LargestId(), n_boot=0))
    MPR 75 on 3 baskets
    """
    rng = np.random.default_rng(rng)
    bootstrap = Bootstrap(level, n_boot, rng)
    ranks = held_out_ranks(kernel, baskets, rng, holdout)
    return mean_estimate("MPR", ranks.percentile, ranks.sizes, bootstrap, n_zero=ranks.n_zero)


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
    """Return how often the held-out item is among the first ``k``, with ties broken at random.

    Parameters as in :func:`mean_percentile_rank`.
    """
    k, rng = check_count(k, "k", least=1), np.random.default_rng(rng)
    bootstrap = Bootstrap(level, n_boot, rng)
    ranks = held_out_ranks(kernel, baskets, rng, holdout)
    return mean_estimate(f"precision@{k}", ranks.in_top(k), ranks.sizes, bootstrap, n_zero=ranks.n_zero)


def held_out_ranks(kernel: Any, baskets: Baskets, rng: np.random.Generator, holdout: Holdout | None = None) -> Ranks:
    """Return the rank of the held-out item of each basket."""
    rule = RandomHoldout() if holdout is None else holdout
    if not isinstance(rule, Holdout):
        raise InvalidInputError(f"holdout must be RandomHoldout() or LargestId(); got {rule!r}")
    baskets = baskets.select(min_size=2)
    where = baskets.indptr[:-1] + rule.positions(rng, baskets.sizes)
    held = baskets.indices[where]
    rest = Baskets(baskets.indptr - np.arange(len(baskets) + 1), np.delete(baskets.indices, where), baskets.n_items)
    step = max(1, CHUNK_SCORES // max(1, baskets.n_items))
    parts = [_count(kernel, rest[i : i + step], held[i : i + step]) for i in range(0, len(rest), step)]
    above, ties, known = np.concatenate([np.empty((0, 3), np.int64), *parts]).T
    known = known > 0
    candidates = baskets.n_items - rest.sizes
    return Ranks(above[known], ties[known], candidates[known], baskets.sizes[known], int(np.sum(~known)))


def _count(kernel: Any, rest: Baskets, held: IntArray) -> IntArray:
    """Return three columns: candidates above the held-out item, others tied with it, and whether the rest is possible."""
    values = scores(kernel, rest)
    own = values[np.arange(len(rest)), held][:, None]
    values[np.repeat(np.arange(len(rest)), rest.sizes), rest.indices] = -np.inf
    return np.column_stack([(values > own).sum(axis=1), (values == own).sum(axis=1) - 1, ~np.isnan(own[:, 0])])
