"""Recommendations: two ways to rank items for a basket, by name, for every law.

:attr:`Ranking.COMPLETION` asks what completes a basket that lacks one item, P(J ∪ a). :attr:`Ranking.CONTINUATION` asks what else a basket
that has begun will hold, P(a ∈ S | J ⊆ S). The second counts all sets that the basket may become.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import ZeroProbabilityError
from ndpp.inference.scores import check_catalogue, next_item_scores, next_item_scores_many, scores_or_nan
from ndpp.laws.batched import Form, scores
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture

SCORES = 2**24
"""Scores in memory at a time (128 MB)."""


class Ranking(StrEnum):
    """What a basket lacks: one item (P(J ∪ a)), or all that is still to come (P(a ∈ S | J ⊆ S))."""

    COMPLETION = "completion"
    CONTINUATION = "continuation"

    def scores(self, law: LowRankKernel | Mixture, basket: Items) -> FloatArray:
        """Return the score of every item for one basket."""
        return next_item_scores(law, basket) if self is Ranking.COMPLETION else continuation_scores(law, basket)

    def scores_many(self, law: LowRankKernel | Mixture, baskets: Baskets) -> FloatArray:
        """Return the scores of many baskets, shape (len(baskets), n_items)."""
        many = next_item_scores_many if self is Ranking.COMPLETION else continuation_scores_many
        return many(law, baskets)

    def scores_or_nan(self, law: LowRankKernel | Mixture, baskets: Baskets) -> FloatArray:
        """Return the scores of many baskets, NaN for those that have probability zero."""
        return (scores_or_nan if self is Ranking.COMPLETION else _continuation_or_nan)(law, baskets)


class Recommendation(NamedTuple):
    """Items, best first, and their scores: the factor by which each would multiply P(basket), or P(a ∈ S | basket ⊆ S)."""

    items: IntArray
    scores: FloatArray


def recommend(
    law: LowRankKernel | Mixture,
    basket: Items,
    *,
    n: int = 10,
    candidates: Items | None = None,
    ranking: Ranking = Ranking.COMPLETION,
) -> Recommendation:
    """Return the ``n`` items with the largest scores, best first; fewer if fewer score above zero.

    For items that go well with each other, too, continue the basket: ``greedy_map(kernel, size, given=basket)``.

    Parameters
    ----------
    law : LowRankKernel or Mixture
        The model.
    basket : items
        What is in the basket.
    n : int
        How many items.
    candidates : items, optional
        The only items to recommend.
    ranking : Ranking
        Whether the basket lacks one item (``Ranking.COMPLETION``) or has only begun (``Ranking.CONTINUATION``).

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> recommend(kernel, [0], n=1)
    Recommendation(items=array([1]), scores=array([5.]))
    >>> recommend(kernel, [0], n=1, ranking=Ranking.CONTINUATION).scores.round(4)
    array([0.8333])
    """
    n, others = check_count(n, "n", least=1), _others(law, candidates)
    scores = Ranking(ranking).scores(law, basket)
    scores[others] = 0.0
    return _best(scores, n)


def recommend_many(
    law: LowRankKernel | Mixture,
    baskets: Baskets,
    *,
    n: int = 10,
    candidates: Items | None = None,
    ranking: Ranking = Ranking.COMPLETION,
) -> list[Recommendation | None]:
    """Return :func:`recommend` of each basket, None for baskets of probability zero: thousands of baskets in a few seconds.

    Parameters as for :func:`recommend`. Scores of some of the baskets are in memory at a time.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> [best.items.tolist() for best in recommend_many(kernel, Baskets.from_lists([[0], [2]]), n=1)]
    [[1], [0]]
    """
    n, others, found = check_count(n, "n", least=1), _others(law, candidates), []
    step = max(1, SCORES // max(1, law.n_items))
    for start in range(0, len(baskets), step):
        scores = Ranking(ranking).scores_or_nan(law, baskets[start : start + step])
        scores[:, others] *= 0.0  # NaN stays
        found += [None if np.isnan(row[0]) else _best(row, n) for row in scores]
    return found


def _others(law: LowRankKernel | Mixture, candidates: Items | None) -> IntArray:
    """Return the items that are no candidates."""
    if candidates is None:
        return np.empty(0, np.int64)
    return np.setdiff1d(np.arange(law.n_items), check_items(candidates, law.n_items, "candidates"))


def _best(scores: FloatArray, n: int) -> Recommendation:
    """Return the n best items that score above zero; ties go to the smaller id."""
    least = np.partition(scores, -n)[-n] if n < len(scores) else 0.0
    best = np.flatnonzero((scores >= least) & (scores > 0))
    best = best[np.argsort(-scores[best], kind="stable")[:n]]
    return Recommendation(best, scores[best])


def continuation_scores(law: LowRankKernel | Mixture, basket: Items) -> FloatArray:
    """Return P(a ∈ S | basket ⊆ S) for every item a of the catalogue: what else a basket that has begun will hold.

    Items of the basket score 0. For what completes a basket that lacks one item, see :func:`next_item_scores`.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> continuation_scores(kernel, [0]).round(4)
    array([0.    , 0.8333, 0.5   ])
    """
    out = law.inclusion_probabilities(given=basket)
    out[check_items(basket, law.n_items, "basket")] = 0.0
    return out


def continuation_scores_many(law: LowRankKernel | Mixture, baskets: Baskets) -> FloatArray:
    """Return :func:`continuation_scores` of each basket, shape (len(baskets), n_items).

    Kernels score all baskets in stacked products, as in :func:`next_item_scores_many`. Mixtures take one basket after the other.
    """
    out = _continuation_or_nan(law, baskets)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        continuation_scores(law, baskets[i])  # raises, and says why
    return out


def _continuation_or_nan(law: LowRankKernel | Mixture, baskets: Baskets) -> FloatArray:
    check_catalogue(law, baskets)
    out, is_scored = np.full((len(baskets), law.n_items), np.nan), np.zeros(len(baskets), bool)
    if isinstance(law, LowRankKernel):
        out, is_scored = scores(Form.of_marginal(law), baskets)
        out[~is_scored] = np.nan
    for i in np.flatnonzero(~is_scored):
        with suppress(ZeroProbabilityError):
            out[i] = continuation_scores(law, baskets[i])
    return out
