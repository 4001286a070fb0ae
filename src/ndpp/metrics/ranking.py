"""How well a model predicts a held-out item from the rest of its basket: percentile rank, hit rate, reciprocal rank, NDCG.

One item of each basket of two or more is held out. All items outside the rest are ranked by their score given the rest. Among
items with the same score, every order is equally likely, and each metric is its mean over these orders. The same seed holds out
the same items for all models and all metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, Unpack, get_args

import numpy as np
from scipy.special import digamma

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp._validation import check_choice, check_count
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.laws.law import Law
from ndpp.metrics.estimates import Bootstrap, Metric, Resampling, mean_estimate
from ndpp.metrics.models import check_baskets, scores

CHUNK_SCORES = 8_000_000
"""Number of scores in memory at a time."""


Holdout: TypeAlias = Literal["random", "largest-id"]
"""Which item is held out. The public code of the literature holds out the one with the largest id. Ids often reflect the age or popularity
of items, so such results do not apply to items in general."""


class RankOptions(Resampling, total=False):
    """The options of metrics of ranks: what is held out, and those of :class:`~ndpp.metrics.estimates.Bootstrap`."""

    holdout: Holdout


class HeldOut(NamedTuple):
    """Baskets of two items or more without one item each, these items, and the sizes of the whole baskets."""

    rest: Baskets
    items: IntArray
    sizes: IntArray


class Ranks(NamedTuple):
    """For each basket: candidates above the held-out item, other candidates tied with it, all candidates.

    ``is_ranked`` is false, and every metric −inf, where the rest of the basket has probability zero.
    """

    above: IntArray
    ties: IntArray
    candidates: IntArray
    is_ranked: BoolArray

    def percentile(self) -> FloatArray:
        """Return the percentage of candidates ranked at or below the held-out item."""
        return self._where_ranked(100 * (self.candidates - self.above - self.ties / 2) / self.candidates)

    def in_top(self, k: int) -> FloatArray:
        """Return the probability that the held-out item is among the first k."""
        return self._where_ranked(np.clip((self._most(k) - self.above) / (self.ties + 1), 0.0, 1.0))

    def reciprocal(self) -> FloatArray:
        """Return the mean of 1 / rank."""
        return self._where_ranked((digamma(self.above + self.ties + 2) - digamma(self.above + 1)) / (self.ties + 1))

    def discounted(self, k: int) -> FloatArray:
        """Return the mean of 1 / log₂(1 + rank), zero beyond rank k: the NDCG@k of a single relevant item."""
        k = self._most(k)
        total = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
        first, last = np.minimum(self.above, k), np.minimum(self.above + self.ties + 1, k)
        return self._where_ranked((total[last] - total[first]) / (self.ties + 1))

    def _most(self, k: int) -> int:
        """Return k, or a rank that is beyond all candidates, too."""
        return min(k, int(self.candidates.max(initial=0)) + 1)

    def _where_ranked(self, values: FloatArray) -> FloatArray:
        return np.where(self.is_ranked, values, -np.inf)


def mean_percentile_rank(kernel: object, baskets: Baskets, **options: Unpack[RankOptions]) -> Metric:
    """Return the mean percentage of items ranked at or below the held-out item: about 50 by chance, at most 100.

    Baskets of fewer than two items are excluded, and so are those whose rest has probability zero, which ``n_zero``
    counts. The same seed ``rng`` holds out the same items for all models and metrics. ``holdout`` is "random" by
    default; published results use "largest-id". The other parameters are those of :func:`mean_log_likelihood`.

    Examples
    --------
    >>> from ndpp.metrics import independent_items
    >>> baskets = Baskets.from_lists([[0, 1], [0, 2], [0, 1, 3]])
    >>> print(mean_percentile_rank(independent_items(baskets), baskets, holdout="largest-id", n_boot=0))
    MPR 75 on 3 baskets
    """
    return _mean_over_ranks("MPR", Ranks.percentile, kernel, baskets, **options)


def hit_rate_at(kernel: object, baskets: Baskets, k: int = 10, **options: Unpack[RankOptions]) -> Metric:
    """Return how often the held-out item is among the first ``k``.

    Some papers call this precision@k. Parameters as in :func:`mean_percentile_rank`.
    """
    k = check_count(k, "k", least=1)
    return _mean_over_ranks(f"hit rate@{k}", lambda ranks: ranks.in_top(k), kernel, baskets, **options)


def hit_rate_scorer(k: int = 10, *, rng: int = 0) -> Callable[..., float]:
    """Return :func:`hit_rate_at` as ``scoring=`` of scikit-learn's searches, with baskets of an impossible rest as misses.

    The same items are held out for all models, as ``rng`` says. The steps of a pipeline prepare the baskets before an item is held out.

    Examples
    --------
    >>> from ndpp.metrics import independent_items
    >>> baskets = Baskets.from_lists([[0, 1], [0, 2], [0, 1]])
    >>> hit_rate_scorer(1)(independent_items(baskets), baskets)
    0.6666666666666666
    """
    return partial(_hit_rate, k=check_count(k, "k", least=1), rng=rng)


def _hit_rate(model: Any, X: Any, y: object = None, *, k: int, rng: int) -> float:
    """Return the share of hits; X is whatever an estimator or a pipeline takes."""
    while (steps := getattr(model, "steps", None)) is not None:
        X, model = model[:-1].transform(X) if len(steps) > 1 else X, model[-1]
    law = Law.of(model)
    if law is not None and not isinstance(X, Baskets):
        if getattr(X, "shape", None) is not None:
            X = Baskets.from_csr(X, labels=law.labels)
        else:
            X = Baskets.from_lists(X, n_items=law.n_items, labels=law.labels)
    hits = held_out_ranks(model, hold_out(X, np.random.default_rng(rng))).in_top(k)
    return float(np.maximum(hits, 0.0).mean()) if len(hits) else 0.0


def mean_reciprocal_rank(kernel: object, baskets: Baskets, **options: Unpack[RankOptions]) -> Metric:
    """Return the mean of 1 / rank of the held-out item. Parameters as in :func:`mean_percentile_rank`."""
    return _mean_over_ranks("MRR", Ranks.reciprocal, kernel, baskets, **options)


def ndcg_at(kernel: object, baskets: Baskets, k: int = 10, **options: Unpack[RankOptions]) -> Metric:
    """Return the mean of 1 / log₂(1 + rank) of the held-out item, with zero for ranks beyond ``k``.

    Parameters as in :func:`mean_percentile_rank`.
    """
    k = check_count(k, "k", least=1)
    return _mean_over_ranks(f"NDCG@{k}", lambda ranks: ranks.discounted(k), kernel, baskets, **options)


def _mean_over_ranks(
    name: str,
    value: Callable[[Ranks], FloatArray],
    kernel: object,
    baskets: Baskets,
    holdout: Holdout = "random",
    **resampling: Unpack[Resampling],
) -> Metric:
    bootstrap = Bootstrap(**resampling)
    held = hold_out(baskets, bootstrap.generator, holdout)
    return mean_estimate(name, value(held_out_ranks(kernel, held)), bootstrap)


def hold_out(baskets: Baskets, rng: np.random.Generator, holdout: Holdout = "random") -> HeldOut:
    """Hold one item of each basket of two or more out."""
    baskets = check_baskets(baskets).select(min_size=2)
    is_random = check_choice(holdout, "holdout", get_args(Holdout)) == "random"
    return without(baskets, rng.integers(baskets.sizes) if is_random else baskets.sizes - 1)


def without(baskets: Baskets, positions: IntArray) -> HeldOut:
    """Hold the item at a position of each basket out."""
    where = baskets.indptr[:-1] + positions
    rest = Baskets(baskets.indptr - np.arange(len(baskets) + 1), np.delete(baskets.indices, where), baskets.n_items)
    return HeldOut(Orders(rest, context=baskets.context), baskets.indices[where], baskets.sizes)


def held_out_ranks(kernel: object, held: HeldOut) -> Ranks:
    """Return the rank of the held-out item of each basket."""
    n_items = held.rest.n_items
    step = max(1, CHUNK_SCORES // max(1, n_items))
    parts = [_count(kernel, held.rest[i : i + step], held.items[i : i + step]) for i in range(0, len(held.rest), step)]
    above, ties, known = np.concatenate([np.empty((0, 3), np.int64), *parts]).T
    return Ranks(above, ties, n_items - held.rest.sizes, known > 0)


def _count(kernel: object, rest: Baskets, held: IntArray) -> IntArray:
    """Return three columns: candidates above the held-out item, others tied with it, and whether the rest is possible."""
    values = scores(kernel, rest)
    own = values[np.arange(len(rest)), held][:, None]
    values[np.repeat(np.arange(len(rest)), rest.sizes), rest.indices] = -np.inf
    is_known = ~np.isnan(own[:, 0])  # a NaN equals nothing, not even itself
    return np.column_stack([(values > own).sum(axis=1), (values == own).sum(axis=1) - is_known, is_known])
