"""Recommendations: two ways to rank items for a basket, by name, for kernels and mixtures.

:attr:`Ranking.COMPLETION` asks what completes a basket that lacks one item, P(J ∪ a). :attr:`Ranking.CONTINUATION` asks what else a basket
that has begun will hold, P(a ∈ S | J ⊆ S). The second counts all sets that the basket may become.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.inference.scores import check_catalogue, next_item_scores, next_item_scores_many
from ndpp.laws.batched import Form, scores
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture


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
        Number of items.
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
    n = check_count(n, "n", least=1)
    scores = Ranking(ranking).scores(law, basket)
    if candidates is not None:
        allowed = check_items(candidates, law.n_items, "candidates")
        scores[np.setdiff1d(np.arange(law.n_items), allowed)] = 0.0
    best = np.argsort(-scores, kind="stable")[:n]
    best = best[scores[best] > 0]
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

    Kernels score all baskets in stacked products, as in :func:`next_item_scores_many`. Mixtures score one basket after another.
    """
    check_catalogue(law, baskets)
    out, is_scored = np.zeros((len(baskets), law.n_items)), np.zeros(len(baskets), bool)
    if isinstance(law, LowRankKernel):
        out, is_scored = scores(Form.of_marginal(law), baskets)
    for i in np.flatnonzero(~is_scored):
        out[i] = continuation_scores(law, baskets[i])
    return out
