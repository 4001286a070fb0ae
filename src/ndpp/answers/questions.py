"""Questions to a model, and their answers as records: the one place where the command, the service and notebooks get them from.

``model`` is a law, a fitted estimator, or a :class:`~ndpp.answers.Prepared` law. Items are named by ids or labels; answers name them by
labels, with ``ids=True`` by ids.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.answers import records as r
from ndpp.answers.draws import Check, Wanted, go_on
from ndpp.answers.prepared import Prepared
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.explain import Pair, Reason, strongest_pairs
from ndpp.explain import related as related_to
from ndpp.inference import PerCategory, Ranking, Recommendation
from ndpp.inference import recommend_many as best_of_many
from ndpp.inference.ranking import DAMPING, Rule

MOST_POPULAR = 1000
"""Items whose pairs are searched, unless told otherwise; the search takes the square of their number."""
PROBABLE = 0.01
"""Missions of a smaller probability are not told."""


def recommend(
    model: Any,
    basket: Any,
    *,
    n: int = 10,
    ranking: str = Ranking.CONTINUATION,
    damping: float = DAMPING,
    support: float | None = None,
    candidates: Any = None,
    exclude: Any = (),
    per_category: PerCategory | None = None,
    why: bool = False,
    ids: bool = False,
) -> r.Recommended:
    """Return the ``n`` best items for a basket; see :func:`ndpp.recommend`. With ``why``, what each score owes to what.

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> recommend(shelf_kernel(), ["bread"], n=2, why=True)
    item           score  popularity  mission   ties  because  tied_to
    butter         0.615      0.4355        1  1.412     None  bread
    tomato sauce  0.3174      0.3174        1      1     None  None
    """
    own = Prepared.of(model)
    rule = _rule(own, n, ranking, damping, support, _candidates(own, candidates, exclude), per_category)
    given = own.ids(basket)
    best = rule.best(own.scorer.scores(given, whole=rule.ranking is Ranking.COMPLETION))
    return _recommended(own, given, best, rule.ranking, why=why, ids=ids)


def recommend_many(
    model: Any,
    baskets: Baskets,
    *,
    n: int = 10,
    ranking: str = Ranking.CONTINUATION,
    damping: float = DAMPING,
    support: float | None = None,
    candidates: Any = None,
    exclude: Any = (),
    per_category: PerCategory | None = None,
    why: bool = False,
    ids: bool = False,
) -> list[r.Recommended | None]:
    """Return :func:`recommend` of each basket, None for baskets of probability zero."""
    own, kind = Prepared.of(model), Ranking(ranking)
    options: dict[str, Any] = {"ranking": kind, "damping": damping, "support": support, "per_category": per_category}
    found = best_of_many(own.law, baskets, n=n, candidates=_candidates(own, candidates, exclude), **options)
    return [best and _recommended(own, basket, best, kind, why=why, ids=ids) for basket, best in zip(baskets, found)]


def why(model: Any, basket: Any, item: r.Item, *, ranking: str = Ranking.CONTINUATION, ids: bool = False) -> r.Why:
    """Return what the score of one item for a basket owes to popularity, to the mission and to ties."""
    own, kind = Prepared.of(model), Ranking(ranking)
    given, chosen = own.ids(basket), own.ids([item], "item")
    if chosen[0] in given:
        raise InvalidInputError("is in the basket already; explain an item that is not", argument="item")
    scores = own.scorer.scores(given, whole=kind is Ranking.COMPLETION)[chosen]
    if not scores[0] > 0:
        raise ZeroProbabilityError(f"item {item!r} never occurs with this basket, so there is no score to explain")
    if kind is Ranking.LIFT:
        scores = scores / own.popularity[chosen]
    (found,) = own.reader.reasons(given, Recommendation(chosen, scores), kind)
    return _why(own, found, ids=ids)


def _rule(own: Prepared, n: int, ranking: str, damping: float, support: float | None, *limits: Any) -> Rule:
    candidates, per_category = limits
    options: dict[str, Any] = {"ranking": Ranking(ranking), "damping": damping, "support": support}
    return Rule.of(own.law, n=n, candidates=candidates, per_category=per_category, popularity=own.popularity, **options)


def _candidates(own: Prepared, candidates: Any, exclude: Any) -> IntArray | None:
    """Return the candidates without the excluded items; None for all items."""
    never = own.ids(exclude, "exclude")
    if candidates is None:
        return np.setdiff1d(np.arange(own.law.n_items), never) if len(never) else None
    return np.setdiff1d(own.ids(candidates, "candidates"), never)


def _recommended(
    own: Prepared, basket: IntArray, best: Recommendation, ranking: Ranking, *, why: bool, ids: bool
) -> r.Recommended:
    items: Sequence[r.Scored]
    if why:
        items = [_why(own, one, ids=ids) for one in own.reader.reasons(basket, best, ranking)]
    else:
        items = [r.Scored(*one) for one in zip(own.names(best.items, ids=ids), best.scores.tolist())]
    return r.Recommended(ranking.value, ranking.meaning, tuple(items))


def _why(own: Prepared, one: Reason, *, ids: bool) -> r.Why:
    item, *tied = own.names([one.item, *(tie.item for tie in one.ties)], ids=ids)
    ties = tuple(r.TiedTo(name, float(np.exp(tie.log_factor))) for name, tie in zip(tied, one.ties))
    strongest = ties[0].item if ties and one.ties[0].log_factor > 0 else None
    popularity, mission, tie = np.exp([one.popularity, one.mission, one.tie]).tolist()
    return r.Why(item, one.score, popularity, mission, tie, one.because, strongest, ties)


def complete(
    model: Any,
    basket: Any = (),
    *,
    n: int = 1,
    size: int | None = None,
    candidates: Any = None,
    exclude: Any = (),
    seed: int | None = None,
    ids: bool = False,
    check: Check = go_on,
) -> r.Completed:
    """Return ``n`` exact samples that contain the basket, those of ``law.sample(n, given=basket, rng=seed)``.

    ``check`` is called every few baskets and may raise to stop.
    """
    own = Prepared.of(model)
    seed = secrets.randbelow(2**32) if seed is None else seed
    given, never = own.ids(basket), own.ids(exclude, "exclude")
    both = np.intersect1d(given, never)
    if both.size:
        name = own.names(both[:1])[0]
        raise InvalidInputError(f"{name!r} is in the basket and in exclude; it can be in one of them")
    only = None if candidates is None else own.ids(candidates, "candidates")
    drawn = own.drawer.draw(Wanted(given, never, only, size), n, seed, check)
    held = set(given.tolist())
    added = [[item for item in items if item not in held] for items in drawn]
    names = [tuple(tuple(own.names(items, ids=ids)) for items in pair) for pair in zip(drawn, added)]
    return r.Completed(seed, tuple(r.Drawn(*pair) for pair in names))


def probability(model: Any, basket: Any) -> r.Likelihood:
    """Return how likely a basket is, and its probable missions."""
    own = Prepared.of(model)
    given, sizes = own.ids(basket), own.sizes
    size, p = len(given), np.clip(own.popularity[given], 1e-300, 1 - 1e-12)
    log_prob = float(own.law.log_prob(given))
    of_size = 0.0 if sizes is None or size >= len(sizes) else float(sizes[size])
    independent = own.log_absent + float(np.log(p).sum() - np.log1p(-p).sum())
    return r.Likelihood(
        log_prob=_finite(log_prob),
        log_prob_of_size=_finite(log_prob - float(np.log(of_size))) if of_size > 0 else None,
        log_lift=_finite(log_prob - independent),
        size=size,
        size_probability=None if sizes is None else _share(of_size),
        at_most=None if sizes is None else _share(sizes[: size + 1].sum()),
        missions=_probable(own, given),
    )


def _probable(own: Prepared, given: IntArray) -> tuple[r.MissionShare, ...]:
    """Return the probable missions of a basket, at most five."""
    if not own.missions:
        return ()
    chances: FloatArray = np.asarray(own.law.responsibilities(given))
    shares = [(float(chances[list(one.components)].sum()), one.name) for one in own.missions]
    probable = sorted(shares, reverse=True)[:5]
    return tuple(r.MissionShare(name, _share(share)) for share, name in probable if share > PROBABLE)


def related(model: Any, item: r.Item, *, n: int = 10, popular: int | None = None, ids: bool = False) -> r.Related:
    """Return up to ``n`` complements and substitutes of an item, of the ``popular`` most popular items if given.

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> [one.other for one in related(shelf_kernel(), "bread", n=2).complements]
    ['butter', 'jam']
    """
    own = Prepared.of(model)
    (number,) = own.ids([item], "item").tolist()
    name = own.names([number])[0]
    found = related_to(own.law, name, n=n, least_probability=_least(own, popular), found=own.found)
    kinds = _relations(own, (found.complements, found.substitutes), ids=ids)
    return r.Related(own.names([number], ids=ids)[0], _share(found.item.probability), *kinds)


def pairs(model: Any, *, n: int = 10, popular: int = MOST_POPULAR, ids: bool = False) -> r.Pairs:
    """Return up to ``n`` pairs of complements and of substitutes among the ``popular`` most popular items."""
    own = Prepared.of(model)
    found = strongest_pairs(own.law, n=n, least_probability=_least(own, popular), found=own.found)
    return r.Pairs(min(popular, own.law.n_items), *_relations(own, found, ids=ids))


def _least(own: Prepared, popular: int | None) -> float:
    """Return the probability of the least popular of these items."""
    return 0.0 if popular is None else float(np.sort(own.popularity)[-min(popular, own.law.n_items)])


def _relations(own: Prepared, found: Sequence[Sequence[Pair]], *, ids: bool) -> list[tuple[r.Relation, ...]]:
    """Return complements and substitutes as records."""
    kinds = []
    for kind, pairs in zip(("complement", "substitute"), found):
        relations = []
        for pair in pairs:
            item, other = own.names([pair.first.item, pair.second.item], ids=ids)
            numbers = pair.lift, pair.by_missions, pair.tie, _share(pair.together), pair.correlation
            relations.append(r.Relation(kind, item, other, *numbers))
        kinds.append(tuple(relations))
    return kinds


def describe(model: Any, *, n: int = 5, sizes: bool = True) -> r.Description:
    """Return what there is to know about a model: its shape, sizes, ``n`` most popular items, and missions.

    Without ``sizes`` there is no size distribution, which takes long for hundreds of components.
    """
    own = Prepared.of(model)
    found = own.sizes if sizes else None
    best = np.argsort(-own.popularity, kind="stable")[:n]
    return r.Description(
        n_items=own.law.n_items,
        rank=getattr(own.law, "rank", None),
        n_components=len(own.law.weights),
        labelled=own.law.labels is not None,
        mean_size=float(own.popularity.sum()),
        size_distribution=None if found is None else tuple(np.clip(found, 0.0, 1.0).tolist()),
        popular=tuple(map(r.Share, own.names(best), own.popularity[best].tolist())),
        missions=tuple(
            r.Mission(
                one.name,
                _share(one.share),
                one.mean_size,
                tuple(r.Typical(own.names([i.item])[0], _share(i.probability), i.lift) for i in one.items),
            )
            for one in own.missions
        ),
    )


def map_of(model: Any) -> r.Map:
    """Return a map of the most popular items; see :func:`ndpp.explain.atlas`."""
    own = Prepared.of(model)
    items, places = own.atlas
    names = own.names([one.item for one in items])
    return r.Map(tuple(r.Place(*one) for one in zip(names, (_share(i.probability) for i in items), *zip(*places))))


def search(model: Any, query: str = "", *, limit: int = 20, offset: int = 0, ids: bool = False) -> r.Found:
    """Return the items whose names match, by prefix, part or with typing errors; without a query, the most popular items."""
    own = Prepared.of(model)
    items, total = own.index.search(query, limit, offset)
    fields = zip(items, own.names(items, ids=ids), own.popularity[items].clip(0.0, 1.0).tolist())
    return r.Found(tuple(r.FoundItem(*one) for one in fields), total)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _share(value: Any) -> float:
    return float(min(1.0, max(0.0, value)))
