"""Recommendations: ways to rank items for a basket, by name, for kernels and mixtures.

:attr:`Ranking.COMPLETION` asks what completes a basket that lacks one item, P(J ∪ a). :attr:`Ranking.CONTINUATION` asks what else a basket
that has begun will hold, P(a ∈ S | J ⊆ S). The second counts all sets that the basket may become. :attr:`Ranking.LIFT` divides it by
P(a ∈ S): what goes with this basket rather than with others, however popular it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ndpp._show import html_table, text_table, to_frame
from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.inference.scores import (
    check_catalogue,
    each_or_nan,
    next_item_scores,
    next_item_scores_many,
    scores_or_nan,
)
from ndpp.laws.batched import Form
from ndpp.laws.begun import Begun, parts
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture
from ndpp.laws.shared import SharedTies

TIE = 2.0**34
"""Scores that agree to one part in this many count as equal."""
SCORES = 2**24
"""Scores in memory at a time (128 MB)."""


class Ranking(StrEnum):
    """What a basket lacks: one item (P(J ∪ a)), or all that is still to come (P(a ∈ S | J ⊆ S), or as a multiple of P(a ∈ S))."""

    COMPLETION = "completion"
    CONTINUATION = "continuation"
    LIFT = "lift"

    def scores(self, law: LowRankKernel | Mixture, basket: Items) -> FloatArray:
        """Return the score of every item for one basket."""
        if self is Ranking.COMPLETION:
            return next_item_scores(law, basket)
        return continuation_scores(law, basket) / self._unit(law)

    def scores_many(self, law: LowRankKernel | Mixture, baskets: Baskets) -> FloatArray:
        """Return the scores of many baskets, shape (len(baskets), n_items)."""
        if self is Ranking.COMPLETION:
            return next_item_scores_many(law, baskets)
        return continuation_scores_many(law, baskets) / self._unit(law)

    def scores_or_nan(
        self, law: LowRankKernel | Mixture, baskets: Baskets, *, best: tuple[int, BoolArray] | None = None
    ) -> FloatArray:
        """Return the scores of many baskets, NaN for those that have probability zero.

        Where only the ``best`` so many of some items matter, those of other items may be 0.
        """
        if self is Ranking.COMPLETION:
            return scores_or_nan(law, baskets)
        unit = self._unit(law)
        return _continuation_or_nan(law, baskets, best and (*best, unit)) / unit

    def _unit(self, law: LowRankKernel | Mixture) -> FloatArray:
        """Return what P(a ∈ S | J ⊆ S) is a multiple of: 1, or P(a ∈ S) where it is positive."""
        if self is not Ranking.LIFT:
            return np.ones(1)
        overall = law.inclusion_probabilities()
        return np.where(overall > 0, overall, 1.0)


class Recommendation(NamedTuple):
    """Items, best first, and their scores, as the :class:`Ranking` defines them.

    ``labels`` are the names of the items, if they have any.
    """

    items: IntArray
    scores: FloatArray
    labels: tuple[str, ...] | None = None

    def _columns(self) -> dict[str, list[Any]]:
        names = self.items.tolist() if self.labels is None else list(self.labels)
        return {"item": names, "score": self.scores.tolist()}

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas, polars or pyarrow with a row per item."""
        return to_frame(self._columns(), backend)

    def __repr__(self) -> str:
        columns = self._columns()
        return text_table(list(columns), list(zip(*columns.values())))

    def _repr_html_(self) -> str:
        columns = self._columns()
        return html_table("Recommendation", list(columns), list(zip(*columns.values())))


class Recommendations(list[Recommendation | None]):
    """A recommendation per basket, None for baskets of probability zero; ``basket_ids`` are those of the baskets."""

    def __init__(self, found: Iterable[Recommendation | None], basket_ids: Sequence[int | str]) -> None:
        super().__init__(found)
        self.basket_ids = basket_ids

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas, polars or pyarrow with the columns basket, rank, item and score."""
        header, lines = self._table()
        return to_frame(dict(zip(header, zip(*lines) if lines else [()] * len(header))), backend)

    def _table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        lines = [
            (i, rank, *line)
            for i, one in zip(self.basket_ids, self)
            if one is not None
            for rank, line in enumerate(zip(*one._columns().values()), 1)
        ]
        return ["basket", "rank", "item", "score"], lines

    def __repr__(self) -> str:
        return text_table(*self._table())

    def _repr_html_(self) -> str:
        return html_table(f"Recommendations for {len(self):,} baskets", *self._table())


class PerCategory(NamedTuple):
    """At most ``most`` recommendations from each category: the ranked list, without what exceeds the limit of its category.

    ``category_of`` has the category of each item of the catalogue. What is in the basket does not count.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(4), np.diag([4.0, 3.0, 2.0, 1.0]))
    >>> recommend(kernel, [], n=3, per_category=PerCategory(["dairy", "dairy", "dairy", "bread"], 2)).items
    array([0, 1, 3])
    """

    category_of: Sequence[Hashable]
    most: int

    def limit(self, n_items: int) -> _Limit:
        """Return the limit for scores of a catalogue."""
        if len(self.category_of) != n_items:
            problem = f"must have a category for each of {n_items} items; got {len(self.category_of)}"
            raise InvalidInputError(problem, argument="category_of")
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in self.category_of], np.int64)
        counts = np.bincount(codes)
        place = np.arange(n_items) - np.repeat(np.cumsum(counts) - counts, counts)  # within the category
        return _Limit(codes, place >= check_count(self.most, "most", least=1))


class _Limit(NamedTuple):
    """The number of each item's category; and where, in order of category and score, items exceed the limit."""

    codes: IntArray
    exceeds: BoolArray

    def apply(self, scores: FloatArray) -> None:
        """Set the scores of items that exceed the limit to zero; of equal scores, the smaller id counts first."""
        scores[np.lexsort((-scores, self.codes))[self.exceeds]] = 0.0


def recommend(
    law: LowRankKernel | Mixture,
    basket: Items,
    *,
    n: int = 10,
    candidates: Items | None = None,
    ranking: Ranking = Ranking.COMPLETION,
    unknown: str = "error",
    per_category: PerCategory | None = None,
) -> Recommendation:
    """Return the ``n`` items with the largest scores, best first; fewer if fewer score above zero.

    For items that go well with each other, too, continue the basket: ``greedy_map(kernel, size, given=basket)``.

    Parameters
    ----------
    law : LowRankKernel or Mixture
        The model.
    basket : items
        What is in the basket: ids or labels.
    n : int
        Number of items.
    candidates : items, optional
        The only items to recommend.
    ranking : Ranking
        Whether the basket lacks one item (``Ranking.COMPLETION``) or has only begun (``Ranking.CONTINUATION``), and whether to leave out
        how popular items are in all baskets (``Ranking.LIFT``). Rare items have the largest lifts; ``candidates`` may leave them out.
    unknown : {"error", "skip"}
        What to do about labels of the basket that are not in the catalogue; skipped ones are counted in a
        :class:`~ndpp.errors.DataWarning`.
    per_category : PerCategory, optional
        Recommend at most so many items of each category.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> recommend(kernel, [0], n=1)
    item  score
       1      5
    >>> recommend(kernel, [0], n=1, ranking=Ranking.CONTINUATION).scores.round(4)
    array([0.8333])
    """
    n, others = check_count(n, "n", least=1), _others(law, candidates)
    if unknown != "error":
        basket = Baskets.from_lists([basket], n_items=law.n_items, labels=law.labels, unknown=unknown)[0]
    limit = per_category and per_category.limit(law.n_items)
    scores = Ranking(ranking).scores(law, basket)
    scores[others] = 0.0
    return _best(law, scores, n, limit)


def recommend_many(
    law: LowRankKernel | Mixture,
    baskets: Baskets,
    *,
    n: int = 10,
    candidates: Items | None = None,
    ranking: Ranking = Ranking.COMPLETION,
    per_category: PerCategory | None = None,
) -> Recommendations:
    """Return :func:`recommend` of each basket, None for baskets of probability zero: thousands of baskets in a few seconds.

    The result is a list that knows the ``basket_ids`` of the baskets; its ``to_frame()`` can be joined to the orders. Parameters as
    for :func:`recommend`. Scores of some of the baskets are in memory at a time.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> [best.items.tolist() for best in recommend_many(kernel, Baskets.from_lists([[0], [2]]), n=1)]
    [[1], [0]]
    """
    n, others = check_count(n, "n", least=1), _others(law, candidates)
    found: list[Recommendation | None] = []
    step, limit = max(1, SCORES // max(1, law.n_items)), per_category and per_category.limit(law.n_items)
    best = None if limit else (n, ~np.isin(np.arange(law.n_items), others))
    for start in range(0, len(baskets), step):
        some = baskets[start : start + step]
        scores = Ranking(ranking).scores_or_nan(law, some, best=best)
        scores[:, others] *= 0.0  # NaN stays
        found += [None if np.isnan(row[0]) else _best(law, row, n, limit) for row in scores]
    return Recommendations(found, baskets.ids_or_numbers)


def _others(law: LowRankKernel | Mixture, candidates: Items | None) -> IntArray:
    """Return the items that are no candidates."""
    if candidates is None:
        return np.empty(0, np.int64)
    return np.setdiff1d(np.arange(law.n_items), check_items(candidates, law, "candidates"))


def _best(law: LowRankKernel | Mixture, scores: FloatArray, n: int, limit: _Limit | None) -> Recommendation:
    """Return the n best items that score above zero; of scores that are equal up to rounding, the smaller id comes first."""
    if limit is not None:
        limit.apply(scores)
    least = np.partition(scores, -n)[-n] if n < len(scores) else 0.0
    best = np.flatnonzero((scores >= least * (1 - 4 / TIE)) & (scores > 0))
    mantissa, exponent = np.frexp(scores[best])
    best = best[np.argsort(-np.ldexp(np.round(mantissa * TIE), exponent), kind="stable")[:n]]
    labels = None if law.labels is None else tuple(law.labels[a] for a in best.tolist())
    return Recommendation(best, scores[best], labels)


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
    out[check_items(basket, law, "basket")] = 0.0
    return out


def continuation_scores_many(law: LowRankKernel | Mixture, baskets: Baskets) -> FloatArray:
    """Return :func:`continuation_scores` of each basket, shape (len(baskets), n_items).

    Kernels score all baskets in stacked products, as in :func:`next_item_scores_many`. Mixtures with shared ties do so component by
    component (``ndpp.laws.begun``), with an error of at most 1e-12 for components that are left out, and other mixtures score one
    basket after another. For the best items only, :func:`recommend_many` is several times as fast.
    """
    out = _continuation_or_nan(law, baskets)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        continuation_scores(law, baskets[i])  # raises, and says why
    return out


def _continuation_or_nan(
    law: LowRankKernel | Mixture, baskets: Baskets, best: tuple[int, BoolArray, FloatArray] | None = None
) -> FloatArray:
    """Return the scores; where only the ``best`` so many of some items matter, in these units, those of others may be 0."""
    check_catalogue(law, baskets)
    if not isinstance(law, SharedTies):
        return each_or_nan(law, baskets, continuation_scores, Form.of_marginal)
    out = np.empty((len(baskets), law.n_items))
    for part in parts(law, baskets):
        begun = Begun(law, baskets[part])
        out[part] = begun.scores() if best is None else begun.best(*best)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        with suppress(ZeroProbabilityError):
            out[i] = continuation_scores(law, baskets[i])
    return out
