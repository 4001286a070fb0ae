"""What a recommendation owes to popularity, to the mission and to ties.

The score of an item a for a basket J is a product:

    score = popularity · mission · tie,    popularity = o(a),    mission = Σ_c P(c | J) o_c(a) / o(a),    tie = the rest.

o(a) = P(a)/(1 − P(a)) are the odds of the item in all baskets, o_c(a) those in baskets of component c: the score would be o(a) if items
were independent, and Σ_c P(c | J) o_c(a) if they were so within each component. For :attr:`ndpp.Ranking.CONTINUATION` the scores are
probabilities, and probabilities take the place of odds; :attr:`ndpp.Ranking.LIFT` divides them by P(a), so that the factor of popularity
is one. A kernel is one component, so its missions explain nothing.
"""

from __future__ import annotations

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.answers.prepared import Prepared
from ndpp.answers.records import TiedTo, Why
from ndpp.baskets import Baskets
from ndpp.inference import Ranking, Recommendation
from ndpp.inference.scores import scores_or_nan

MOST = 1 - 1e-12
"""Probabilities are taken to be no larger, so that odds are finite."""


def reasons(
    own: Prepared, basket: IntArray, best: Recommendation, ranking: Ranking, *, ids: bool = False
) -> tuple[Why, ...]:
    """Return the reasons of what is recommended for a basket."""
    chosen, popularity = best.items, _odds(own, own.popularity, best.items, ranking)
    by_component = _shares(own, basket, chosen, ranking)
    expected = by_component.sum(axis=0)
    factors = best.scores, popularity, expected / popularity, best.scores / expected
    because = (_because(own, column) for column in by_component.T)
    ties = _ties(own, basket, chosen, ranking, ids=ids)
    tied_to = (tied[0].item if tied and tied[0].factor > 1 else None for tied in ties)
    columns = (column.tolist() for column in factors)
    return tuple(map(Why, own.names(chosen, ids=ids), *columns, because, tied_to, ties))


def _shares(own: Prepared, basket: IntArray, items: IntArray, ranking: Ranking) -> FloatArray:
    """Return P(c | basket) o_c(a), shape (C, len(items))."""
    posterior = own.law.responsibilities(basket, whole=ranking is Ranking.COMPLETION)
    return np.asarray(posterior[:, None] * _odds(own, own.inclusions, items, ranking))


def _odds(own: Prepared, chances: FloatArray, items: IntArray, ranking: Ranking) -> FloatArray:
    """Return what stands for the probabilities (…, n_items) of some items in scores: odds, or for continuations probabilities."""
    p = chances[..., items]
    if ranking is Ranking.COMPLETION:
        p = np.minimum(p, MOST)
        return np.asarray(p / (1 - p))
    return np.asarray(p / own.popularity[items] if ranking is Ranking.LIFT else p)


def _because(own: Prepared, shares: FloatArray) -> str | None:
    if not own.missions:
        return None
    return max(own.missions, key=lambda mission: float(shares[list(mission.components)].sum())).name


def _ties(own: Prepared, basket: IntArray, items: IntArray, ranking: Ranking, *, ids: bool) -> list[tuple[TiedTo, ...]]:
    """Return, for each item, its ties to each item of the basket alone, strongest first."""
    out: list[list[TiedTo]] = [[] for _ in items]
    kind = Ranking.CONTINUATION if ranking is Ranking.LIFT else ranking  # P(a) cancels in lifts
    singles = Baskets.from_lists(basket[:, None], n_items=own.law.n_items)
    alone = scores_or_nan(own.law, singles, whole=kind.is_whole)[:, items]
    for j, name, scores in zip(basket, own.names(basket, ids=ids), alone):
        if (scores > 0).all():
            factors = scores / _shares(own, np.array([j]), items, kind).sum(axis=0)
            for tied, factor in zip(out, factors.tolist()):
                tied.append(TiedTo(name, factor))
    return [tuple(sorted(tied, key=lambda tie: -tie.factor)) for tied in out]
