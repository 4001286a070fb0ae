"""What a recommendation owes to popularity, to the mission and to ties.

The score of an item a for a basket J is a product:

    score = popularity · mission · tie,    popularity = o(a),    mission = Σ_c P(c | J) o_c(a) / o(a),    tie = the rest.

o(a) = P(a)/(1 − P(a)) are the odds of the item in all baskets, o_c(a) those in baskets of component c: the score would be o(a) if items
were independent, and Σ_c P(c | J) o_c(a) if they were so within each component. For :attr:`ndpp.Ranking.CONTINUATION` the scores are
probabilities, and probabilities take the place of odds; :attr:`ndpp.Ranking.LIFT` divides them by P(a), so that the factor of popularity
is one. A kernel is one component, so its missions explain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.answers.records import Item, Mission, TiedTo, Why, names_of
from ndpp.inference import Ranking, Recommendation
from ndpp.inference.scorer import Scorer

MOST = 1 - 1e-12
"""Probabilities are taken to be no larger, so that odds are finite."""


class Reader(NamedTuple):
    """What the reasons of all baskets share: the scorer, the inclusion probabilities of the components (C, n_items), and the missions."""

    scorer: Scorer
    inclusions: FloatArray
    missions: tuple[Mission, ...]

    def reasons(
        self, basket: IntArray, best: Recommendation, ranking: Ranking, *, ids: bool = False
    ) -> tuple[Why, ...]:
        """Return the reasons of what is recommended for a basket."""
        chosen, law = best.items, self.scorer.law
        popularity = self._odds(law.weights @ self.inclusions, chosen, ranking)
        by_component = self._shares(basket, chosen, ranking)
        expected = by_component.sum(axis=0)
        factors = best.scores, popularity, expected / popularity, best.scores / expected
        because = map(self._because, by_component.T)
        ties = self._ties(basket, chosen, ranking, names_of(law, basket, ids=ids))
        tied_to = (own[0].item if own and own[0].factor > 1 else None for own in ties)
        columns = (column.tolist() for column in factors)
        return tuple(map(Why, names_of(law, chosen, ids=ids), *columns, because, tied_to, ties))

    def _shares(self, basket: IntArray, items: IntArray, ranking: Ranking) -> FloatArray:
        """Return P(c | basket) o_c(a), shape (C, len(items))."""
        posterior = self.scorer.law.responsibilities(basket, whole=ranking is Ranking.COMPLETION)
        return np.asarray(posterior[:, None] * self._odds(self.inclusions, items, ranking))

    def _odds(self, chances: FloatArray, items: IntArray, ranking: Ranking) -> FloatArray:
        """Return what stands for the probabilities (…, n_items) of some items in scores: odds, or for continuations probabilities."""
        p = chances[..., items]
        if ranking is Ranking.COMPLETION:
            p = np.minimum(p, MOST)
            return np.asarray(p / (1 - p))
        return np.asarray(p / (self.scorer.law.weights @ self.inclusions[:, items]) if ranking is Ranking.LIFT else p)

    def _because(self, shares: FloatArray) -> str | None:
        if not self.missions:
            return None
        return max(self.missions, key=lambda mission: float(shares[list(mission.components)].sum())).name

    def _ties(
        self, basket: IntArray, items: IntArray, ranking: Ranking, names: Sequence[Item]
    ) -> list[tuple[TiedTo, ...]]:
        """Return, for each item, its ties to each item of the basket alone, strongest first."""
        out: list[list[TiedTo]] = [[] for _ in items]
        whole = ranking is Ranking.COMPLETION
        kind = Ranking.COMPLETION if whole else Ranking.CONTINUATION  # P(a) cancels in lifts
        for j, name, scores in zip(basket, names, self.scorer.each_alone(basket, whole=whole)[:, items]):
            if (scores > 0).all():
                factors = scores / self._shares(np.array([j]), items, kind).sum(axis=0)
                for own, factor in zip(out, factors.tolist()):
                    own.append(TiedTo(name, factor))
        return [tuple(sorted(own, key=lambda tie: -tie.factor)) for own in out]
