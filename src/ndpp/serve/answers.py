"""Answers: what a model says to a request, and when to give up. Plain functions, in threads; nothing here knows of HTTP."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from ndpp._types import IntArray
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.serve import schemas as s
from ndpp.serve.draws import Wanted
from ndpp.serve.model import Served
from ndpp.serve.work import Stop

Answer = dict[str, Any]
ZERO = 1e-12
"""Correlations up to this size are rounding."""


def recommend(model: Served, ask: s.RecommendAsk, stop: Stop) -> Answer:
    """Return the items with the best scores."""
    basket = model.ids(ask.basket)
    if ask.by == "next":
        scores = model.scorer.scores(basket)
    elif ask.explain:
        raise InvalidInputError(
            'goes with "by": "next" alone; inclusion probabilities are no products', argument="explain"
        )
    else:
        scores = model.law.inclusion_probabilities(given=basket)
    scores = np.array(scores)
    scores[basket] = 0.0
    scores[model.ids(ask.exclude, "exclude")] = 0.0
    if ask.candidates is not None:
        allowed = np.zeros(len(scores), bool)
        allowed[model.ids(ask.candidates, "candidates")] = True
        scores[~allowed] = 0.0
    n = min(ask.n, len(scores))
    head = np.argpartition(-scores, n - 1)[:n]
    best = head[np.lexsort((head, -scores[head]))]
    best = best[scores[best] > 0]
    rows: list[Answer] = [
        {"item": name, "score": score} for name, score in zip(model.names(best, ids=ask.ids), scores[best].tolist())
    ]
    if ask.explain:
        for row, own in zip(rows, _factors(model, basket, best, stop)):
            row["because"] = _reasons(model, basket, own, ids=ask.ids)
    return {"items": rows}


def explain(model: Served, ask: s.ExplainAsk, stop: Stop) -> Answer:
    """Return what the score of an item owes to each item of the basket: the score with it over the score without it."""
    basket, item = model.ids(ask.basket), model.ids([ask.item], "item")
    if item[0] in basket:
        raise InvalidInputError("is in the basket already; explain an item that is not", argument="item")
    nothing = basket[:0]
    return {
        "item": model.names(item, ids=ask.ids)[0],
        "score": float(model.scorer.scores(basket, item)[0]),
        "alone": float(model.scorer.scores(nothing, item)[0]),
        "because": _reasons(model, basket, _factors(model, basket, item, stop)[0], ids=ask.ids),
    }


def _factors(model: Served, basket: IntArray, items: IntArray, stop: Stop) -> list[list[float | None]]:
    """Return, for each item, its score over its score without each item of the basket; None where that is undefined."""
    scores = model.scorer.scores(basket, items)
    columns: list[list[float | None]] = []
    for j in range(len(basket)):
        stop.check()
        try:
            without = model.scorer.scores(np.delete(basket, j), items)
        except ZeroProbabilityError:  # of the smaller basket: kernels may have sets of even size only
            without = np.zeros(len(items))
        columns.append(
            [a / b if b > 0 and np.isfinite(a / b) else None for a, b in zip(scores.tolist(), without.tolist())]
        )
    return [[column[i] for column in columns] for i in range(len(items))]


def _reasons(model: Served, basket: IntArray, factors: list[float | None], *, ids: bool) -> list[Answer]:
    order = sorted(range(len(basket)), key=lambda j: -(factors[j] or 0.0))
    names = model.names(basket, ids=ids)
    return [{"item": names[j], "factor": factors[j]} for j in order]


def complete(model: Served, ask: s.CompleteAsk, stop: Stop) -> Answer:
    """Return exact samples that contain the basket."""
    return _drawn(model, ask, model.ids(ask.basket), stop)


def sample(model: Served, ask: s.DrawAsk, stop: Stop) -> Answer:
    """Return exact samples."""
    return _drawn(model, ask, np.empty(0, np.int64), stop)


def _drawn(model: Served, ask: s.DrawAsk, given: IntArray, stop: Stop) -> Answer:
    seed = secrets.randbelow(2**32) if ask.seed is None else ask.seed
    exclude = model.ids(ask.exclude, "exclude")
    both = np.intersect1d(given, exclude)
    if both.size:
        name = model.names(both[:1])[0]
        raise InvalidInputError(f"{name!r} is in the basket and in exclude; it can be in one of them")
    candidates = None if ask.candidates is None else model.ids(ask.candidates, "candidates")
    baskets = model.drawer.draw(Wanted(given, exclude, candidates, ask.size), ask.n, seed, stop)
    held = set(given.tolist())
    shown = [
        {
            "items": model.names(items, ids=ask.ids),
            "added": model.names([i for i in items if i not in held], ids=ask.ids),
        }
        for items in baskets
    ]
    return {"seed": seed, "baskets": shown}


def probability(model: Served, ask: s.ProbabilityAsk, stop: Stop) -> Answer:
    """Return how likely the basket is."""
    basket = model.ids(ask.basket)
    size, p = len(basket), np.clip(model.popularity[basket], 1e-300, 1 - 1e-12)
    log_prob = float(model.law.log_prob(basket))
    sizes = model.sizes
    of_size = 0.0 if sizes is None or size >= len(sizes) else float(sizes[size])
    independent = model.log_absent + float(np.log(p).sum() - np.log1p(-p).sum())
    chances = np.asarray(model.law.responsibilities(basket)) if model.missions else np.empty(0)
    shares = [(float(chances[list(mission.components)].sum()), mission.name) for mission in model.missions]
    probable = [(share, name) for share, name in sorted(shares, reverse=True)[:5] if share > 0.01]
    return {
        "log_prob": _finite(log_prob),
        "log_prob_of_size": _finite(log_prob - float(np.log(of_size))) if of_size > 0 else None,
        "log_lift": _finite(log_prob - independent),
        "size": size,
        "size_probability": None if sizes is None else _share(of_size),
        "at_most": None if sizes is None else _share(sizes[: size + 1].sum()),
        "missions": [{"name": name, "probability": _share(share)} for share, name in probable],
    }


def related(model: Served, item: s.Item, n: int, stop: Stop, *, ids: bool) -> Answer:
    """Return complements and substitutes: P(b | a) for every b, against P(b). The correlation ranks (see ``ndpp.explain``)."""
    chosen = model.ids([item], "item")
    a, p = int(chosen[0]), model.popularity
    if p[a] <= 0:
        raise ZeroProbabilityError(f"item {item!r} never occurs, so nothing goes with it or instead of it")
    given = model.law.inclusion_probabilities(given=chosen)
    covariance = p[a] * (given - p)
    spread = np.sqrt(np.maximum(p * (1 - p), 0.0))
    sizes = spread * spread[a]
    correlation = np.divide(covariance, sizes, out=np.zeros_like(p), where=sizes > 0)
    correlation[a] = 0.0
    order = np.argsort(-correlation, kind="stable")
    answer: Answer = {"item": model.names([a], ids=ids)[0], "probability": _share(p[a])}
    for kind, side, sign in (("complements", order[:n], 1), ("substitutes", order[::-1][:n], -1)):
        chosen = side[sign * correlation[side] > ZERO]
        names, numbers = model.names(chosen, ids=ids), (p[chosen], given[chosen], correlation[chosen])
        answer[kind] = [
            {
                "item": name,
                "probability": _share(own),
                "together": _share(p[a] * chance),
                "lift": chance / own,
                "correlation": value,
            }
            for name, own, chance, value in zip(names, *(values.tolist() for values in numbers))
        ]
    return answer


def items(model: Served, query: str, limit: int, offset: int, stop: Stop, *, ids: bool) -> Answer:
    """Return the items whose names match."""
    found = model.index.search(query, limit, offset)
    names = model.names(found.items, ids=ids)
    chances = model.popularity[found.items].tolist()
    rows = [{"id": i, "item": name, "probability": p} for i, name, p in zip(found.items, names, chances)]
    return {"items": rows, "total": found.total}


def describe(model: Served, stop: Stop) -> Answer:
    """Return what there is to know about the model."""
    return {
        "name": model.name,
        "checksum": model.checksum,
        "n_items": model.n_items,
        "rank": model.rank,
        "labelled": model.labels is not None,
        "mean_size": float(model.popularity.sum()),
        "size_distribution": None if model.sizes is None else np.clip(model.sizes, 0.0, 1.0).tolist(),
        "missions": [
            {
                "name": mission.name,
                "share": _share(mission.share),
                "mean_size": mission.mean_size,
                "items": model.names([one.item for one in mission.items]),
                "lifts": [one.lift for one in mission.items],
            }
            for mission in model.missions
        ],
    }


def atlas(model: Served, stop: Stop) -> Answer:
    """Return the map of the catalogue."""
    found = model.atlas
    chances = model.popularity[found.items].tolist()
    return {"items": model.names(found.items), "probabilities": chances, "places": found.places}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _share(value: Any) -> float:
    return float(min(1.0, max(0.0, value)))
