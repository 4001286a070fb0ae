"""Recommendations: ways to rank items for a basket J, by name, for kernels and mixtures.

:attr:`Ranking.CONTINUATION` asks what else a basket that has begun will contain. Its score is P(a | J) = P(a ∈ S | J ⊆ S), which counts all
sets that the basket may become; items are ordered by P(a | J) / P(a)^γ, so that the list is not the same bestsellers for every basket.
:attr:`Ranking.COMPLETION` asks what completes a basket that lacks one item: the score is P(J ∪ a) / P(J). :attr:`Ranking.LIFT` asks what
goes with this basket rather than with others: the score is P(a | J) / P(a), and items too rare to judge are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, TypedDict, Unpack, cast

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_choice, check_count, check_items, check_values
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.inference.recommendation import Caps, PerCategory, Recommendation, Recommendations
from ndpp.inference.scores import (
    continuation_scores,
    law_under,
    listing_factors,
    next_item_scores,
    scores_of_one,
    scores_or_nan,
)
from ndpp.laws.ask import NO_ITEMS, Conditions, Factors, Whose
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, listed
from ndpp.laws.scoring import Best

DAMPING = 0.2
"""Default for γ, by which popularity counts less in continuations: 0 orders by P(a | J), 1 by lift."""
DEFAULT_SUPPORT = 0.25
"""Lift leaves out items whose P(a) is below this part of the mean over all items that can occur, unless told otherwise."""
TIE_PARTS = 2.0**34
"""Scores that agree to one part in this many count as equal."""
ZERO_SCORE = 1e-30
"""A completion of this score, relative to the best, is none: the square of the rounding of a row."""
USUAL = 0.95
"""Items of which P(a | J) is below this part of P(a) are less likely than usual; others are about as likely, or more."""
ZERO_CHANCE = 1e-13
"""Probabilities up to this are rounding errors of zero, as for a duplicate of an item of the basket."""
SCORES_AT_ONCE = 2**24
"""Scores in memory at a time (128 MB)."""


class Ranking(StrEnum):
    """What to rank by: what else will be in the basket, what one item completes it, or what goes with it in particular."""

    CONTINUATION = "continuation"
    COMPLETION = "completion"
    LIFT = "lift"

    @property
    def meaning(self) -> str:
        """What a score says, in a sentence."""
        return MEANINGS[self]

    @property
    def is_whole(self) -> bool:
        """Whether scores are P(J ∪ a) / P(J), of baskets that lack one item, and not P(a | J)."""
        return self is Ranking.COMPLETION

    def scores(self, law: object, basket: Items | Baskets) -> FloatArray:
        """Return the score of every item for a basket; for many :class:`~ndpp.Baskets`, an array (len(baskets), n_items)."""
        found = next_item_scores(law, basket) if self.is_whole else continuation_scores(law, basket)
        return found / powers(Law.required(law).inclusion_probabilities(), 1.0) if self is Ranking.LIFT else found


MEANINGS = {
    Ranking.CONTINUATION: "Score: the probability that a basket with the given items contains this one, too.",
    Ranking.COMPLETION: "Score: the probability of the basket with the item, divided by that without it.",
    Ranking.LIFT: "Score: how many times as likely the item is in a basket with the given items as in any basket.",
}


def powers(popularity: FloatArray, exponent: float) -> FloatArray:
    """Return P(a)^exponent, 1 for items that never occur."""
    return np.where(popularity > 0, popularity, 1.0) ** exponent


def rounded(keys: FloatArray) -> FloatArray:
    """Return keys times a power of two, equal where they agree to one part in ``TIE_PARTS``."""
    mantissa, exponent = np.frexp(keys)
    return np.asarray(np.ldexp(np.round(mantissa * TIE_PARTS), exponent))


class OrderOptions(TypedDict, total=False):
    """The options of :func:`recommend` that say which items may be listed, and in which order."""

    candidates: Items | None
    exclude: Items
    ranking: Ranking | str
    damping: float
    support: float | None
    staples: bool
    per_category: PerCategory | None
    limits: Limit | Sequence[Limit]


class ListOptions(OrderOptions, total=False):
    """The same, and how many items to list."""

    n: int


class Rule(NamedTuple):
    """How items are ranked and which of them may be listed: what the recommendations for all baskets share.

    Items are ordered by P(a | J) divided by ``unit``, for completions by their scores; ``shown`` is what P(a | J) is divided by to give the
    score that is shown. Items below the ``least`` P(a | J), 0 where all may be listed, are left out, unless the list would be empty.
    Items that are ``gone`` are out of stock; ``whole`` is the law before that, in which a customer's habits are known.
    """

    law: Law
    ranking: Ranking
    n: int
    allowed: BoolArray
    unit: FloatArray
    shown: FloatArray
    least: FloatArray
    caps: Caps | None
    gone: IntArray
    whole: Law

    @classmethod
    def of(
        cls,
        law: Law,
        *,
        n: int = 10,
        candidates: Items | None = None,
        exclude: Items = (),
        ranking: Ranking | str = Ranking.CONTINUATION,
        damping: float = DAMPING,
        support: float | None = None,
        staples: bool = True,
        per_category: PerCategory | None = None,
        limits: Limit | Sequence[Limit] = (),
    ) -> Rule:
        """Check the parameters of :func:`recommend`."""
        ranking, n = Ranking(check_choice(ranking, "ranking", list(Ranking))), check_count(n, "n", least=1)
        if not 0 <= damping <= 1:
            raise InvalidInputError(f"must be between 0 and 1; got {damping}", argument="damping")
        allowed = np.ones(law.n_items, bool)
        if candidates is not None:
            allowed = np.isin(np.arange(law.n_items), check_items(candidates, law, "candidates"))
        allowed[check_items(exclude, law, "exclude")] = False
        unit = shown = np.ones(1)
        least = np.zeros(1) if staples or ranking.is_whole else np.maximum(USUAL * law.popularity, ZERO_CHANCE)
        if ranking is Ranking.LIFT or (ranking is Ranking.CONTINUATION and damping > 0):
            p = law.popularity
            unit = powers(p, 1.0 if ranking is Ranking.LIFT else damping)
        if ranking is Ranking.LIFT:
            shown = unit
            allowed = allowed & (
                p >= (DEFAULT_SUPPORT * p.sum() / max(1, np.count_nonzero(p)) if support is None else support)
            )
        allowed, caps = (allowed, None) if per_category is None else per_category.limit(law, allowed)
        if limits := listed(limits):
            caps = Caps.of(limits, law).joined(caps)
        return cls(law, ranking, n, allowed, unit, shown, least, caps, NO_ITEMS, law)

    def without(self, gone: IntArray, whole: Law) -> Rule:
        """Return the rule for lists without what is out of stock; its law is ``whole`` without these items."""
        allowed = self.allowed & ~np.isin(np.arange(len(self.allowed)), gone)
        return self._replace(allowed=allowed, gone=gone, whole=whole)

    @property
    def meaning(self) -> str:
        """What a score says and, where it is another one, the order."""
        return self.ranking.meaning + " Popular items are ranked a little lower." * (self.unit is not self.shown)

    def best_for(self, basket: IntArray) -> Recommendation:
        """Return the best items for one basket."""
        (found,) = self.best_of_each(self.law.one_basket(basket))
        if found is None:  # what follows raises, and says why
            found = self.best(scores_of_one(self.law, basket, whole=self.ranking.is_whole), basket)
        return found

    def best_of_each(self, baskets: Baskets) -> list[Recommendation | None]:
        """Return the best items for each basket, None for baskets of probability zero. Scores of some baskets are in memory at a time."""
        found: list[Recommendation | None] = []
        step = max(1, SCORES_AT_ONCE // max(1, self.law.n_items))
        best = None if self.caps else Best(self.n, self.allowed, self.unit, self.least)
        for start in range(0, len(baskets), step):
            part = baskets[start : start + step]
            chances = scores_or_nan(self.law, part, whole=self.ranking.is_whole, best=best)
            found += [None if np.isnan(row[0]) else self.best(row, own) for row, own in zip(chances, part)]
        return found

    def best(self, chances: FloatArray, basket: IntArray) -> Recommendation:
        """Return the n best items from P(a | J), or from next-item scores; of keys equal up to rounding, the smaller id comes first."""
        least_chance = ZERO_SCORE * chances.max(initial=0.0) if self.ranking.is_whole else ZERO_CHANCE
        able = self.allowed & (chances > least_chance)
        for among in (able & (chances >= self.least), able) if len(basket) else (able,):
            keys = np.where(among, chances / self.unit, 0.0)
            if self.caps is not None:
                keys = rounded(keys)
                self.caps.apply(keys, basket, self.n)
            if keys.any():
                break
        least = np.partition(keys, -self.n)[-self.n] if self.n < len(keys) else 0.0
        best = np.flatnonzero((keys >= least * (1 - 4 / TIE_PARTS)) & (keys > 0))
        best = best[np.argsort(-rounded(keys[best]), kind="stable")[: self.n]]
        labels = None if self.law.labels is None else tuple(self.law.labels[a] for a in best.tolist())
        return Recommendation(best, (chances / self.shown)[best], labels)


def recommend(  # type: ignore[misc]
    law: object,
    basket: Items,
    n: int = 10,
    *,
    candidates: Items | None = None,
    exclude: Items = (),
    ranking: Ranking | str = Ranking.CONTINUATION,
    damping: float = DAMPING,
    support: float | None = None,
    staples: bool = True,
    unknown: str = "error",
    per_category: PerCategory | None = None,
    limits: Limit | Sequence[Limit] = (),
    **conditions: Unpack[Conditions],
) -> Recommendation:
    """Return the ``n`` best items for a basket, best first; fewer if fewer score above zero.

    By default the score is P(a | J), the probability that a basket with the given items contains this one, too, and the order is that of
    P(a | J) / P(a)^γ with γ = ``damping``: without it, the same bestsellers would lead the lists of most baskets.

    Laws and fitted estimators have it as a method, ``model.recommend(basket)``, with the same parameters. For items that go well with each
    other, too, continue the basket: ``greedy_map(kernel, size, given=basket)``.

    Parameters
    ----------
    law : LowRankKernel, Mixture or fitted estimator
        The model.
    basket : items
        What is in the basket: ids or labels.
    n : int
        Number of items.
    candidates, exclude : items
        The only items to recommend, and items that are not recommended.
    ranking : Ranking or its name
        Whether the basket has only begun (``Ranking.CONTINUATION``) or lacks one item (``Ranking.COMPLETION``), or what goes with this
        basket in particular (``Ranking.LIFT``).
    damping : float
        For continuations: 0 orders by P(a | J), 1 by P(a | J) / P(a).
    support : float, optional
        For lifts: the least P(a) of items to list, since rare items have the largest lifts and the least certain ones. By default a
        quarter of the mean over the items that can occur.
    staples : bool
        For continuations and lifts: whether to list items that are less likely with this basket than in any, P(a | J) < 0.95 P(a), such
        as salt, which is in many recipes and in fewer of those with ginger. Without them the list may be shorter, but not empty.
    unknown : {"error", "skip"}
        What to do about labels of the basket, of ``candidates`` and of ``exclude`` that are not in the catalogue; skipped ones are counted
        in a :class:`~ndpp.errors.DataWarning`.
    per_category : PerCategory, optional
        The maximum number of items per category, including those of the basket, or the categories to recommend from.
    limits : Limit or sequence of Limit
        Upper limits that the basket and all recommendations together keep: the best item that fits, and so on.
    **conditions
        What else is known or wanted, as in ``law.ask``: ``boost``, ``context``, ``mission``, ``customer``, and the ``size`` of the
        whole basket. For a customer the answer is that of ``Customers.recommend``: in baskets that have begun, P(a | J) is raised to p′
        for own items.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> recommend(kernel, [0], n=1)
    item   score
       1  0.8333
    >>> recommend(kernel, [0], n=1, ranking=Ranking.COMPLETION).scores
    array([5.])
    """
    own: Law = Law.required(law)
    if unknown != "error":

        def known(items: Items) -> IntArray:
            return Baskets.from_lists([items], n_items=own.n_items, labels=own.labels, unknown=unknown)[0]

        basket, exclude = known(basket), known(exclude)
        candidates = None if candidates is None else known(candidates)
    ids = check_items(basket, own, "basket")
    own, person, gone, whole = _of_lists(own, ids, ranking, cast(Conditions, {**conditions}), given=ids)
    rule = Rule.of(
        own, n=n, candidates=candidates, exclude=exclude, ranking=ranking, damping=damping, support=support, staples=staples,
        per_category=per_category, limits=limits,
    ).without(gone, whole)  # fmt: skip
    return rule.best_for(ids) if person is None else rule.best(person.begun(rule, ids), ids)


def _of_lists(
    law: Law, held: IntArray, ranking: Ranking | str, said: Conditions, given: IntArray = NO_ITEMS
) -> tuple[Law, Whose | None, IntArray, Law]:
    """Return the law of lists for baskets that hold these items, whose own items are raised, what is out of stock, and the law with it."""
    boost = said.get("boost")
    factors = (
        np.ones(law.n_items) if boost is None or not len(boost) else check_values(boost, law, "boost", default=1.0)
    )
    gone = np.flatnonzero(factors == 0)
    if ranking == Ranking.COMPLETION:  # P(J ∪ a) / P(J) does not depend on what other sets there are
        whole = law_under(law, given, excludes=False, **said)
        return whole, None, gone, whole
    if boost is not None:
        said["boost"] = np.where(factors > 0, factors, 1.0)
    person = None if said.get("size") is not None else said.pop("customer", None)
    whole = law_under(law, given, **said)
    return whole.tilt(listing_factors(np.sign(factors), held)) if len(gone) else whole, person, gone, whole


def recommend_many(
    law: object,
    baskets: Baskets,
    *,
    size: int | None = None,
    boost: Factors | None = None,
    context: Mapping[str, object] | None = None,
    mission: int | str | Sequence[int] | Sequence[str] | None = None,
    customer: Whose | None = None,
    **options: Unpack[ListOptions],
) -> Recommendations[Recommendation]:
    """Return :func:`recommend` of each basket, None for baskets of probability zero: thousands of baskets in a few seconds.

    The result is a list that knows the ``basket_ids`` of the baskets; its ``to_frame()`` can be joined to the orders. ``law`` is a kernel,
    a mixture or a fitted estimator, and the options are those of :func:`recommend`, other than ``unknown``. A customer is that of all the
    baskets; :meth:`ndpp.Customers.recommend_many` takes those of many.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> [best.items.tolist() for best in recommend_many(kernel, Baskets.from_lists([[0], [2]]), n=1)]
    [[1], [0]]
    """
    own: Law = Law.required(law)
    said: Conditions = {"size": size, "boost": boost, "context": context, "mission": mission, "customer": customer}
    order = options.get("ranking", Ranking.CONTINUATION)
    shared, person, gone, whole = _of_lists(own, np.unique(baskets.indices), order, said)
    rule = Rule.of(shared, **options).without(gone, whole)
    if person is None:
        return Recommendations(rule.best_of_each(baskets), baskets.ids_or_numbers)
    found: list[Recommendation | None] = [None] * len(baskets)
    for i, ids in enumerate(baskets):
        with suppress(ZeroProbabilityError):
            found[i] = rule.best(person.begun(rule, ids), ids)
    return Recommendations(found, baskets.ids_or_numbers)
