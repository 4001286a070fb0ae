"""Questions to a model, and their answers as records: the one place where the command, the service and notebooks get them from.

``model`` is a law, a fitted estimator, or a :class:`~ndpp.answers.Prepared` law. Items are named by ids or labels; answers name them by
labels, with ``ids=True`` by ids.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.answers import records as r
from ndpp.answers.atlas import draw_map
from ndpp.answers.conditions import Names, Said
from ndpp.answers.heard import Heard
from ndpp.answers.mission import find_missions
from ndpp.answers.prepared import MAPPED, MEMORY, MISSIONS, NamedCustomer, Prepared
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.inference import PerCategory, Ranking, Recommendation, Recommendations
from ndpp.inference.ranking import DAMPING, ListOptions, Rule
from ndpp.inference.scores import scores_of_one, scores_or_nan
from ndpp.laws.law import Law
from ndpp.laws.scoring import Best

PROBABLE = 0.01
"""Missions of a smaller probability are not told."""
MAX_CHANCE = 1 - 1e-12
"""Probabilities are taken to be no larger, so that odds are finite."""


def recommend(
    model: object,
    basket: Names,
    *,
    why: bool = False,
    ids: bool = False,
    n: int = 10,
    ranking: Ranking | str = Ranking.CONTINUATION,
    damping: float | None = None,
    support: float | None = None,
    staples: bool = False,
    per_category: PerCategory | None = None,
    **said: Unpack[Said],
) -> r.Recommended:
    """Return the best items for a basket; with ``why``, what each score owes to what.

    ``n``, ``ranking``, ``damping``, ``support``, ``staples`` and ``per_category`` are those of :func:`ndpp.recommend`, but items that are
    less likely with this basket than in any, such as salt with ginger, are left out by default. What else is ``said`` are conditions
    (``ndpp.answers.conditions.Said``). Candidates, exclusions and limits say what may be listed; context, mission and boost change the
    law. For a ``customer``, or one with this ``history``, the answer is that of :class:`ndpp.Customers`.

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> recommend(shelf_kernel(), ["bread"], n=2, why=True)
    item           score  popularity  mission   ties  because  tied_to   share
    butter         0.615      0.4355        1  1.412     None  bread     0.615
    tomato sauce  0.3174      0.3174        1      1     None  None     0.3174
    """
    heard = Heard.of(model, basket, **said)
    given, person = heard.given, heard.person
    rule = _rule(
        heard, person, damping, n=n, ranking=ranking, support=support, staples=staples, per_category=per_category
    )
    if person is None:
        best = rule.best_for(given)
    elif rule.ranking.is_whole:
        best = rule._replace(law=heard.whole(person)).best_for(given)
    else:
        best = rule.best(person.begun(rule, given), given)
    return _recommended(heard, given, rule, best, person, why=why, ids=ids, skipped=heard.skipped)


def recommend_each(
    model: object,
    baskets: Baskets,
    *,
    why: bool = False,
    ids: bool = False,
    customers: Sequence[str | int] | None = None,
    n: int = 10,
    ranking: Ranking | str = Ranking.CONTINUATION,
    damping: float | None = None,
    support: float | None = None,
    staples: bool = False,
    per_category: PerCategory | None = None,
    **said: Unpack[Said],
) -> Recommendations[r.Recommended]:
    """Return :func:`recommend` of each basket, None for baskets of probability zero: thousands of baskets in a few seconds.

    ``customers`` are the ids of those whose baskets these are. All are ordered alike: as next baskets if all are empty, else as baskets
    that have begun.
    """
    heard = Heard.of(model, np.unique(baskets.indices), **said)
    own = heard.own
    people = [None] * len(baskets) if customers is None else own.each_of(customers)
    someone = next(iter(people), None)
    rule = _rule(
        heard, someone, damping, n=n, ranking=ranking, support=support, staples=staples, per_category=per_category
    )
    if customers is None:
        each = rule.best_of_each(baskets)
    elif rule.ranking.is_whole:
        each = [
            one and rule._replace(law=heard.whole(one)).best_of_each(own.law.one_basket(basket))[0]
            for one, basket in zip(people, baskets)
        ]
    else:
        begun = baskets if len(heard.given) else None
        each = own.people(rule.whole)._by_rule(rule, list(map(str, customers)), begun)
    found = (
        best and _recommended(heard, basket, rule, best, person, why=why, ids=ids)
        for basket, best, person in zip(baskets, each, people)
    )
    return Recommendations(found, baskets.ids_or_numbers)


def why(
    model: object,
    basket: Names,
    item: r.Item,
    *,
    ranking: Ranking | str = Ranking.CONTINUATION,
    ids: bool = False,
    **said: Unpack[Said],
) -> r.Explained:
    """Return what the score of one item for a basket owes to popularity, to the mission and to ties.

    What is ``said`` is as in :func:`recommend`, but for customers; candidates, exclusions and limits have no effect on a score.
    """
    heard, kind = Heard.of(model, basket, **said), Ranking(ranking)
    if heard.person is not None:
        raise TypeError("why takes no customer; recommend(…, why=True) does")
    given, chosen = heard.given, heard.own.ids([item], "item")
    if chosen[0] in given:
        raise InvalidInputError("is in the basket already; explain an item that is not", argument="item")
    if chosen[0] in heard.gone:
        raise ZeroProbabilityError(f"item {item!r} is out of stock, so there is no score to explain")
    law = heard.listing()
    scores = scores_of_one(law, given, whole=kind.is_whole)[chosen]
    if not scores[0] > 0:
        raise ZeroProbabilityError(f"item {item!r} never occurs with this basket, so there is no score to explain")
    if kind is Ranking.LIFT:
        scores = scores / law.popularity[chosen]
    (reason,) = _reasons(heard.own, law, given, Recommendation(chosen, scores), kind, ids=ids)
    return r.Explained(**vars(reason), skipped=heard.skipped)


def _rule(heard: Heard, person: NamedCustomer | None, wanted: float | None, **order: Unpack[ListOptions]) -> Rule:
    """Return how items are ranked beside given ones, and which may be listed; ``wanted`` is the damping."""
    if wanted is None:
        wanted = DAMPING if person is None or len(heard.given) else person.customers.habits.damping
    listed: ListOptions = {**order, "damping": wanted, "candidates": heard.allowed, "limits": heard.limits}
    rule = Rule.of(heard.listing(), **listed)
    return rule if person is None or not len(heard.gone) else rule.without(heard.gone, heard.whole())


def _recommended(
    heard: Heard,
    basket: IntArray,
    rule: Rule,
    best: Recommendation,
    person: NamedCustomer | None,
    *,
    why: bool,
    ids: bool,
    skipped: tuple[r.Item, ...] = (),
) -> r.Recommended:
    items: Sequence[r.Scored]
    own, ranking, usual, total = heard.own, rule.ranking, best, 1.0
    if why and person is not None:
        everybody = scores_of_one(rule.law, basket, whole=ranking.is_whole)
        usual = best._replace(scores=(everybody / rule.shown)[best.items])
        if ranking.is_whole:  # shares of all baskets with one more item: the customer's weigh more
            theirs = np.delete(scores_of_one(heard.whole(person), basket, whole=True), heard.gone)
            total = float(theirs.sum() / everybody.sum())
    if why:
        items = _reasons(own, rule.law, basket, usual, ranking, ids=ids)
    else:
        items = tuple(map(r.Scored, own.names(best.items, ids=ids), best.scores.tolist()))
    if person is not None:
        scores, shares = best.scores.tolist(), [person.bought.get(item, 0.0) for item in best.items.tolist()]
        items = tuple(
            r.WhyOwn(
                **{**vars(one), "score": score, "share": min(1.0, one.share * score / one.score / total)},
                customer=score / one.score,
                usual=share,
            )
            if isinstance(one, r.Why)
            else r.Own(one.item, score, share)
            for one, score, share in zip(items, scores, shares)
        )
    return r.Recommended(ranking.value, rule.meaning, items, skipped, person and person.kind)


def _reasons(
    own: Prepared, law: Law, basket: IntArray, best: Recommendation, ranking: Ranking, *, ids: bool = False
) -> tuple[r.Why, ...]:
    """Return the reasons of what is recommended for a basket: what each score owes to popularity, to the mission and to ties.

    The score of an item a for a basket J is a product:

        score = popularity · mission · tie,    popularity = o(a),    mission = Σ_c P(c | J) o_c(a) / o(a),    tie = the rest.

    o(a) = P(a)/(1 − P(a)) are the odds of the item in all baskets, o_c(a) those in baskets of component c: the score would be o(a) if items
    were independent, and Σ_c P(c | J) o_c(a) if they were so within each component. For :attr:`ndpp.Ranking.CONTINUATION` the scores are
    probabilities, and probabilities take the place of odds; :attr:`ndpp.Ranking.LIFT` divides them by P(a), so that the factor of
    popularity is one. A kernel is one component, so its missions explain nothing.
    """
    chosen, popularity = best.items, _odds(law, law.popularity[best.items], best.items, ranking)
    by_component = _shares(law, basket, chosen, ranking)
    expected = by_component.sum(axis=0)
    factors = best.scores, popularity, expected / popularity, best.scores / expected
    because = (_because(own, column) for column in by_component.T)
    total = scores_of_one(law, basket, whole=True).sum() if ranking is Ranking.COMPLETION and len(chosen) else 1.0
    shares = best.scores / total * (law.popularity[chosen] if ranking is Ranking.LIFT else 1.0)
    ties = _ties(own, law, basket, chosen, ranking, ids=ids)
    tied_to = (tied[0].item if tied and tied[0].factor > 1 else None for tied in ties)
    columns = (column.tolist() for column in factors)
    return tuple(map(r.Why, own.names(chosen, ids=ids), *columns, because, tied_to, shares.tolist(), ties))


def _shares(law: Law, basket: IntArray, items: IntArray, ranking: Ranking) -> FloatArray:
    """Return P(c | basket) o_c(a), shape (C, len(items))."""
    posterior = law.responsibilities(basket, whole=ranking is Ranking.COMPLETION)
    return np.asarray(posterior[:, None] * _odds(law, law.component_inclusions(items), items, ranking))


def _odds(law: Law, p: FloatArray, items: IntArray, ranking: Ranking) -> FloatArray:
    """Return what stands for the probabilities (…, len(items)) of some items in scores: odds, or for continuations probabilities."""
    if ranking is Ranking.COMPLETION:
        p = np.minimum(p, MAX_CHANCE)
        return np.asarray(p / (1 - p))
    return np.asarray(p / law.popularity[items] if ranking is Ranking.LIFT else p)


def _because(own: Prepared, shares: FloatArray) -> str | None:
    if not own.missions:
        return None
    return max(own.missions, key=lambda mission: float(shares[list(mission.components)].sum())).name


def _ties(
    own: Prepared, law: Law, basket: IntArray, items: IntArray, ranking: Ranking, *, ids: bool
) -> list[tuple[r.TiedTo, ...]]:
    """Return, for each item, its ties to each item of the basket alone, strongest first."""
    out: list[list[r.TiedTo]] = [[] for _ in items]
    kind = Ranking.CONTINUATION if ranking is Ranking.LIFT else ranking  # P(a) cancels in lifts
    singles = Baskets.from_lists(basket[:, None], n_items=law.n_items)
    alone = scores_or_nan(law, singles, whole=kind.is_whole, best=Best.among(items, law.n_items))[:, items]
    for j, name, scores in zip(basket, own.names(basket, ids=ids), alone):
        if (scores > 0).all():
            factors = scores / _shares(law, np.array([j]), items, kind).sum(axis=0)
            for tied, factor in zip(out, factors.tolist()):
                tied.append(r.TiedTo(name, factor))
    return [tuple(sorted(tied, key=lambda tie: -tie.factor)) for tied in out]


def complete(
    model: object,
    basket: Names = (),
    *,
    n: int = 1,
    size: int | None = None,
    seed: int | None = None,
    ids: bool = False,
    **said: Unpack[Said],
) -> r.Completed:
    """Return ``n`` exact samples that contain the basket, those of ``law.sample(n, given=basket, size=size, rng=seed, …)``.

    What is ``said`` are conditions (``ndpp.answers.conditions.Said``).
    """
    heard = Heard.of(model, basket, **said)
    seed = secrets.randbelow(2**32) if seed is None else seed
    law, asked = heard.drawing(size)
    drawn: list[list[int]] = law.sampler(memory=MEMORY, **asked).sample(n, rng=seed).baskets.to_lists()
    held = set(heard.given.tolist())
    added = [[item for item in items if item not in held] for items in drawn]
    names = [tuple(tuple(heard.own.names(items, ids=ids)) for items in pair) for pair in zip(drawn, added)]
    kind = None if heard.person is None else heard.person.kind
    return r.Completed(seed, tuple(r.Drawn(*pair) for pair in names), heard.skipped, kind)


def probability(
    model: object,
    basket: Names,
    *,
    unknown: str = "error",
    context: Mapping[str, object] | None = None,
    mission: str | None = None,
    ids: bool = False,
) -> r.Likelihood:
    """Return how likely a basket is, and its probable missions; ``unknown``, ``context`` and ``mission`` are as in :func:`recommend`."""
    heard = Heard.of(model, basket, unknown=unknown, context=context, mission=mission)
    own, law, given = heard.own, heard.in_situation(), heard.given
    sizes = law.size_distribution() if own.sizes is not None and law is not own.law else own.sizes
    size, p = len(given), np.clip(law.popularity, 1e-300, 1 - 1e-12)
    log_prob = float(law.log_prob(given))
    of_size = 0.0 if sizes is None or size >= len(sizes) else float(sizes[size])
    contained, apart = law.log_containment(given), float(np.log(p[given]).sum())
    rest = law.inclusion_probabilities(given=given) if contained > -np.inf else None
    independent = float(np.log1p(-p).sum() + (np.log(p[given]) - np.log1p(-p[given])).sum())
    return r.Likelihood(
        log_prob=_finite(log_prob),
        log_prob_of_size=_finite(log_prob - float(np.log(of_size))) if of_size > 0 else None,
        log_lift=_finite(log_prob - independent),
        contained=_share(np.exp(contained)),
        contained_lift=float(np.exp(contained - apart)),
        contained_size=None if rest is None else float(rest.sum()),
        size=size,
        size_probability=None if sizes is None else _share(of_size),
        at_most=None if sizes is None else _share(sizes[: size + 1].sum()),
        missions=_probable(own, law, given),
        basket=tuple(own.names(given, ids=ids)),
        skipped=heard.skipped,
    )


def _probable(own: Prepared, law: Law, given: IntArray) -> tuple[r.MissionShare, ...]:
    """Return the probable missions of a basket."""
    if not own.missions:
        return ()
    chances: FloatArray = np.asarray(law.responsibilities(given))
    shares = [(float(chances[list(one.components)].sum()), one.name) for one in own.missions]
    return tuple(
        r.MissionShare(name, _share(share)) for share, name in sorted(shares, reverse=True) if share > PROBABLE
    )


def missions(model: object, *, n: int | None = MISSIONS, n_items: int = 6) -> tuple[r.Mission, ...]:
    """Return at most ``n`` missions of a mixture, largest first: its components, similar ones merged.

    With ``n=None`` every component is a mission. Components that have names keep them, as long as they are not merged. A kernel is one
    mission. ``mixture.only(mission.components)`` is the distribution of the baskets of a mission.

    Examples
    --------
    >>> odds = [[3.0, 1.0, 0.1, 0.1], [2.0, 1.5, 0.1, 0.1], [0.1, 0.2, 2.0, 2.0]]
    >>> labels = ["pasta", "pesto", "beer", "crisps"]
    >>> from ndpp import Mixture
    >>> mixture = Mixture.tied(odds, np.zeros((4, 2)), np.zeros((2, 2)), [0.3, 0.3, 0.4], labels=labels)
    >>> for mission in missions(mixture, n=2, n_items=2):
    ...     print(mission)
    pasta and pesto: 60.0% of baskets, 1.4 items on average. Typical: pasta (1.5×), pesto (1.4×)
    beer and crisps: 40.0% of baskets, 1.6 items on average. Typical: beer (2.1×), crisps (2.1×)
    """
    return find_missions((own := Prepared.of(model)).law, n, n_items, own.labels)


def describe(model: object, *, n: int = 5, sizes: bool = True) -> r.Description:
    """Return what there is to know about a model: its shape, sizes, ``n`` most popular items, and missions.

    Without ``sizes`` there is no size distribution, which takes long for hundreds of components.
    """
    own = Prepared.of(model)
    kernel, found, popularity = own.law.as_kernel, own.sizes if sizes else None, own.law.popularity
    best = np.argsort(-popularity, kind="stable")[:n]
    return r.Description(
        n_items=own.law.n_items,
        rank=None if kernel is None else kernel.rank,
        n_components=len(own.law.weights),
        labelled=own.law.labels is not None,
        mean_size=float(popularity.sum()),
        size_distribution=None if found is None else tuple(np.clip(found, 0.0, 1.0).tolist()),
        popular=tuple(map(r.Share, own.names(best), popularity[best].tolist())),
        missions=own.missions,
    )


def sizes(model: object, item: r.Item, *, ids: bool = False) -> r.Sizes:
    """Return how many items the baskets with an item hold; for a mixture of hundreds of components this takes a while.

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> np.round(sizes(shelf_kernel(), "tea").size_distribution[:5], 2).tolist()
    [0.0, 0.1, 0.15, 0.32, 0.22]
    """
    own = Prepared.of(model)
    (a,) = own.ids([item], "item").tolist()
    if own.law.popularity[a] == 0:
        raise ZeroProbabilityError(f"item {own.names([a])[0]!r} never occurs, so no basket contains it")
    found = own.sizes_with(a)
    law = None if found is None else tuple(found.tolist())
    return r.Sizes(own.names([a], ids=ids)[0], _share(own.law.popularity[a]), law)


def map_of(model: object, *, n: int = MAPPED) -> r.Map:
    """Return a map of the ``n`` most popular items: items of a kind are close together. O(n_items · r² + n³).

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> [place.item for place in map_of(shelf_kernel(), n=4).items]
    ['bread', 'butter', 'tomato sauce', 'pasta']
    """
    own = Prepared.of(model)
    return own.map if n == MAPPED else draw_map(own.law, n, own.missions, own.labels)


def search(model: object, query: str = "", *, limit: int = 20, offset: int = 0, ids: bool = False) -> r.Found:
    """Return the items whose names match, by prefix, part or with typing errors; without a query, the most popular items."""
    own = Prepared.of(model)
    items, total = own.index.search(query, limit, offset)
    fields = zip(items, own.names(items, ids=ids), own.law.popularity[items].clip(0.0, 1.0).tolist())
    return r.Found(tuple(r.FoundItem(*one) for one in fields), total)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _share(value: float) -> float:
    return float(min(1.0, max(0.0, value)))
