"""The best items of many customers from their own items and the best of all, without a table of all items."""

from __future__ import annotations

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.customers.people import People
from ndpp.inference.ranking import ZERO_CHANCE, Rule, rounded
from ndpp.inference.recommendation import Recommendation


def best_sparse(
    rule: Rule, people: People, p: FloatArray, labels: tuple[str, ...] | None
) -> list[Recommendation | None]:
    """Return the best items of each customer, if p are the chances of items for everybody."""
    own = people.counts
    owners, items, n = own.owners, own.items, len(own.mass)
    chances = people.habits.raised(p[items], people.shares)
    unit = np.broadcast_to(rule.unit, p.shape)
    can = rule.allowed & (p > ZERO_CHANCE)
    common = np.where(can, p / unit, 0.0)
    first = np.argsort(-rounded(common), kind="stable")[: rule.n]
    owner, item, keys = without_own(
        owners, items, np.where(can[items], chances / unit[items], 0.0), first, common[first], n
    )
    chance = np.append(chances, p[item[len(items) :]]) / np.broadcast_to(rule.shown, p.shape)[item]
    order, rank = ranked(owner, rounded(keys), n, item)
    best = order[(rank < rule.n) & (keys[order] > 0)]
    ends = np.cumsum(np.bincount(owner[best], minlength=n)).tolist()
    item, chance = item[best].astype(np.int64), chance[best]
    names = None if labels is None else [labels[a] for a in item.tolist()]
    return [
        Recommendation(item[i:j], chance[i:j], None if names is None else tuple(names[i:j]))
        for i, j in zip([0, *ends], ends)
    ]


def without_own(
    owners: IntArray, items: IntArray, keys: FloatArray, first: IntArray, first_keys: FloatArray, n: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return customers, items and keys of all candidates: the own items of n customers, and the ``first`` of all that are none of these.

    As tilts only raise own items, no other item can be among the best, if ``first`` are as many as these.
    """
    place = np.full(max(items.max(initial=0), first.max(initial=0)) + 1, -1)
    place[first] = np.arange(len(first))
    is_own = np.zeros((n, len(first)), bool)
    among = place[items] >= 0
    is_own[owners[among], place[items[among]]] = True
    owner, at = np.nonzero(~is_own)
    return np.append(owners, owner), np.append(items, first[at]), np.append(keys, first_keys[at])


def ranked(owner: IntArray, keys: FloatArray, n: int, items: IntArray) -> tuple[IntArray, IntArray]:
    """Return candidates by customer, best first and of equal ones the smaller item, and the rank of each within its customer."""
    order = np.lexsort((items, -keys, owner))
    counts = np.bincount(owner, minlength=n)
    return order, np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
