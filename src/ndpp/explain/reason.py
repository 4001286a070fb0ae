"""What a recommendation owes to popularity, to the mission and to ties.

The score of an item a for a basket J is a product, and its logarithm a sum:

    score = popularity · mission · tie,    popularity = o(a),    mission = Σ_c P(c | J) o_c(a) / o(a),    tie = the rest.

o(a) = P(a)/(1 − P(a)) are the odds of the item in all baskets, o_c(a) those in baskets of component c: the score would be o(a) if items
were independent, and Σ_c P(c | J) o_c(a) if they were so within each component. For :attr:`ndpp.Ranking.CONTINUATION` the scores are
probabilities, and probabilities take the place of odds; :attr:`ndpp.Ranking.LIFT` divides them by P(a), so that the factor of popularity
is one. A kernel is one component, so its missions explain nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.explain._law import Inclusions, label_of, law_of
from ndpp.explain.mission import Mission, missions
from ndpp.inference import PerCategory, Ranking, Recommendation, recommend, recommend_many
from ndpp.inference.ranking import DAMPING
from ndpp.inference.scorer import Scorer

MOST = 1 - 1e-12
"""Probabilities are taken to be no larger, so that odds are finite."""


class Tie(NamedTuple):
    """An item of the basket, and the logarithm of the tie factor if it were the whole basket."""

    item: int
    label: str
    log_factor: float


class Reason(NamedTuple):
    """Why an item is recommended: log score = popularity + mission + tie. ``print`` shows the factors.

    ``because`` is the mission that contributes most, None for a kernel; ``ties`` are the ties to single items of the basket, strongest
    first.
    """

    item: int
    label: str
    score: float
    popularity: float
    mission: float
    tie: float
    because: str | None
    ties: tuple[Tie, ...]

    def __str__(self) -> str:
        parts = [f"popularity {np.exp(self.popularity):.3g}"]
        if self.because is not None:
            parts.append(f"mission ×{np.exp(self.mission):.3g} ({self.because})")
        strongest = f" ({self.ties[0].label})" if self.ties and self.ties[0].log_factor > 0 else ""
        parts.append(f"ties ×{np.exp(self.tie):.3g}{strongest}")
        return f"{self.label}: {self.score:.3g} = " + ", ".join(parts)


def reasons(
    model: Any,
    basket: Items,
    *,
    n: int = 5,
    candidates: Items | None = None,
    ranking: Ranking = Ranking.CONTINUATION,
    damping: float = DAMPING,
    support: float | None = None,
    per_category: PerCategory | None = None,
) -> tuple[Reason, ...]:
    """Return why the ``n`` best items for a basket are recommended, best first.

    ``model`` is a kernel, a mixture or a fitted estimator; other parameters as in :func:`ndpp.recommend`.

    Examples
    --------
    >>> from ndpp import Mixture
    >>> odds, X = [[1.0, 0.5, 0.1], [0.1, 0.1, 1.0]], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    >>> mixture = Mixture.tied(odds, X, [[0.0, 1.0], [-1.0, 0.0]], [0.5, 0.5], labels=["pasta", "pesto", "beer"])
    >>> found = reasons(mixture, [0], n=1)[0]
    >>> print(found)
    pesto: 0.451 = popularity 0.263, mission ×1.44 (pasta and pesto), ties ×1.19 (pasta)
    >>> bool(np.isclose(np.log(found.score), found.popularity + found.mission + found.tie))
    True
    """
    law = law_of(model)
    options: dict[str, Any] = {"ranking": ranking, "damping": damping, "support": support}
    best = recommend(law, basket, n=n, candidates=candidates, per_category=per_category, **options)
    return Reader.of(law).reasons(check_items(basket, law, "basket"), best, Ranking(ranking))


def reasons_many(
    model: Any,
    baskets: Baskets,
    *,
    n: int = 5,
    candidates: Items | None = None,
    ranking: Ranking = Ranking.CONTINUATION,
    damping: float = DAMPING,
    support: float | None = None,
    per_category: PerCategory | None = None,
) -> list[tuple[Reason, ...] | None]:
    """Return :func:`reasons` of each basket, None for baskets of probability zero."""
    law = law_of(model)
    options: dict[str, Any] = {"ranking": ranking, "damping": damping, "support": support}
    found = recommend_many(law, baskets, n=n, candidates=candidates, per_category=per_category, **options)
    reader = Reader.of(law)
    return [best and reader.reasons(basket, best, Ranking(ranking)) for basket, best in zip(baskets, found)]


class Reader(NamedTuple):
    """What the reasons of all baskets share."""

    scorer: Scorer
    found: Inclusions
    missions: tuple[Mission, ...]

    @classmethod
    def of(cls, law: Any) -> Reader:
        """Return the reader of a law. A kernel has no missions."""
        return cls(Scorer(law), Inclusions.of(law), missions(law) if len(law.weights) > 1 else ())

    def reasons(self, basket: IntArray, best: Recommendation, ranking: Ranking) -> tuple[Reason, ...]:
        """Return the reasons of what is recommended for a basket."""
        chosen, scores = best.items, best.scores
        popularity = np.log(self._odds(self.found.overall[None], chosen, ranking))[0]
        by_component = self._shares(basket, chosen, ranking)
        expected = np.log(by_component.sum(axis=0))
        ties = self._ties(basket, chosen, ranking)
        parts = zip(
            scores.tolist(), popularity.tolist(), (expected - popularity).tolist(), (np.log(scores) - expected).tolist()
        )
        because = [self._because(column) for column in by_component.T]
        labels = [label_of(self.scorer.law, item) for item in chosen.tolist()]
        return tuple(
            Reason(item, label, *own, why, tied)
            for item, label, own, why, tied in zip(chosen.tolist(), labels, parts, because, ties)
        )

    def _shares(self, basket: IntArray, items: IntArray, ranking: Ranking) -> FloatArray:
        """Return P(c | basket) o_c(a), shape (C, len(items))."""
        posterior = self.scorer.law.responsibilities(basket, whole=ranking is Ranking.COMPLETION)
        return np.asarray(posterior[:, None] * self._odds(self.found.by_component, items, ranking))

    def _odds(self, chances: FloatArray, items: IntArray, ranking: Ranking) -> FloatArray:
        """Return what stands for the probabilities (rows, n_items) of some items in scores: odds, or for continuations probabilities."""
        p = chances[:, items]
        if ranking is Ranking.COMPLETION:
            p = np.minimum(p, MOST)
            return np.asarray(p / (1 - p))
        return np.asarray(p / self.found.overall[items] if ranking is Ranking.LIFT else p)

    def _because(self, shares: FloatArray) -> str | None:
        if not self.missions:
            return None
        return max(self.missions, key=lambda mission: float(shares[list(mission.components)].sum())).name

    def _ties(self, basket: IntArray, items: IntArray, ranking: Ranking) -> list[tuple[Tie, ...]]:
        """Return, for each item, its ties to each item of the basket alone, strongest first."""
        out: list[list[Tie]] = [[] for _ in items]
        whole = ranking is Ranking.COMPLETION
        kind = Ranking.COMPLETION if whole else Ranking.CONTINUATION  # P(a) cancels in lifts
        for j, scores in zip(basket.tolist(), self.scorer.each_alone(basket, whole=whole)[:, items]):
            if (scores > 0).all():
                factors = np.log(scores) - np.log(self._shares(np.array([j]), items, kind).sum(axis=0))
                for own, factor in zip(out, factors.tolist()):
                    own.append(Tie(j, label_of(self.scorer.law, j), factor))
        return [tuple(sorted(own, key=lambda tie: -tie.log_factor)) for own in out]
