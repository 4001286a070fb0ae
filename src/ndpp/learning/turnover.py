"""Items that enter a law or leave it when it is updated, and orders over the items of a law."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.baskets.labels import many, places
from ndpp.errors import DataWarning, InvalidInputError
from ndpp.inference import continuation_scores
from ndpp.laws.law import Law
from ndpp.laws.similar import similar_items
from ndpp.metrics.models import occurrences

N_LIKE, MAX_LIKE_ORDERS = 5, 200
"""Number of items that a new one is like, and maximum number of orders that they are found from."""
MAX_LOG_LIFT = 5.0
"""Log-lifts of an item in one order are clipped to ± this."""
MAX_SHARE = 0.9
"""Largest share of the orders that an item enters with."""


def names_of(law: Law) -> list[Any]:
    """Return the names of the items; their ids if they have none."""
    return list(range(law.n_items) if law.labels is None else law.labels)


def over(baskets: Baskets, law: Law) -> Baskets:
    """Return the baskets without items that the law does not have, over its items; without those that have no other."""
    made = baskets._placed(places(baskets.labels or range(baskets.n_items), names_of(law)), law.labels, law.n_items)
    kept: Baskets = made[(made.sizes > 0) | (baskets.sizes == 0)]
    return kept


def possible(law: Law, baskets: Baskets) -> Baskets:
    """Return the baskets that the law can have: a kernel has none that are larger than its rank."""
    kept = baskets.select(max_size=law.max_size)
    if len(kept) < len(baskets):
        warnings.warn(
            f"left out {many(len(baskets) - len(kept), 'order')} of more than {law.max_size} items",
            DataWarning,
            stacklevel=4,
        )
    if not len(kept):
        raise InvalidInputError(f"all orders have more than {law.max_size} items, the most that the model can have")
    return kept


def items_entered(
    law: Law, orders: Baskets, least_orders: int | None, like: Mapping[str, Any] | None
) -> tuple[Law, Baskets, tuple[str, ...]]:
    """Return the law with the new items that enough orders have, the orders over its items, and the other new items.

    None enter if ``least_orders`` is None.
    """
    counts = occurrences(orders, orders.weights)
    new = np.arange(law.n_items, orders.n_items)
    is_frequent = np.zeros(len(new), bool)
    if least_orders is not None:
        is_frequent = counts[new] >= check_count(least_orders, "least_orders", least=1)
    skipped = tuple(orders.labels[i] for i in new[~is_frequent]) if orders.labels else ()
    if skipped:
        warnings.warn(
            f"left {many(len(skipped), 'new item')} out, such as {skipped[0]!r}, "
            + ("since the catalogue stays as it is" if least_orders is None else f"of which there are fewer than {least_orders} orders"),
            DataWarning, stacklevel=3,
        )  # fmt: skip
    if is_frequent.any():
        assert orders.labels is not None
        own = {orders.labels[i]: int(i) for i in new[is_frequent]}
        given = {label: items for label, items in (like or {}).items() if items is not None}
        found = {label: given[label] if label in given else _alike(law, orders, i) for label, i in own.items()}
        popularity = {label: min(MAX_SHARE, counts[i] / orders.total_weight) for label, i in own.items()}
        law = law.add_items(found, popularity, keep="shares")
    return law, possible(law, over(orders, law)), skipped


def _alike(law: Law, orders: Baskets, item: int) -> dict[str, float]:
    """Return the items that the law expects in the place of a new one, beyond their popularity, with weights."""
    assert orders.labels is not None
    owner = np.repeat(np.arange(len(orders)), orders.sizes)
    beside = over(orders[owner[orders.indices == item][:MAX_LIKE_ORDERS]], law)
    if not len(beside):  # it comes alone, or with other new ones: like those of similar names
        return similar_items(law, [orders.labels[item]], n=N_LIKE)[orders.labels[item]]
    usual = np.log(law.inclusion_probabilities().clip(1e-300))
    lifts = (np.log(continuation_scores(law, beside).clip(1e-300)) - usual).clip(-MAX_LOG_LIFT, MAX_LOG_LIFT)
    lifts[np.repeat(np.arange(len(beside)), beside.sizes), beside.indices] = 0.0  # what is there says nothing
    lift = lifts.mean(axis=0)
    best = np.argsort(-lift, kind="stable")[:N_LIKE]
    names = names_of(law)
    return {names[i]: float(np.exp(lift[i] - lift[best[0]])) for i in best.tolist()}


def items_left(
    law: Law, orders: Baskets, before: Mapping[str, int], drop: Iterable[str | int], drop_after: int | None
) -> tuple[Law, Baskets, dict[str, int]]:
    """Return the law and the orders without items that leave, and in how many updates each of the others was not sold."""
    sold = np.bincount(orders.indices, minlength=law.n_items) > 0
    unsold = {str(name): before.get(str(name), 0) + 1 for name, is_sold in zip(names_of(law), sold) if not is_sold}
    gone: list[Any] = list(drop)
    if drop_after is not None:
        most = check_count(drop_after, "drop_after", least=1)
        gone += [name for name in names_of(law) if unsold.get(str(name), 0) >= most]
    if not gone:
        return law, orders, unsold
    rest = law.remove(gone)
    names, kept = set(map(str, names_of(rest))), over(orders, rest)
    if not len(kept):
        raise InvalidInputError("must leave something to learn from; no order has an item that stays", argument="drop")
    return rest, kept, {name: n for name, n in unsold.items() if name in names}


def young_levels(
    law: Law, orders: Baskets, young: Mapping[str, float], entered: Sequence[str]
) -> tuple[Law, dict[str, float]]:
    """Return the law with items of which it has seen few orders at their mean popularity since they entered, and how many there were.

    Pseudo-orders would hold them where they were on their first night.
    """
    place, n = {name: i for i, name in enumerate(law.labels or ())}, orders.total_weight
    counts, factors = occurrences(orders, orders.weights), {}
    known = {name: weight for name, weight in young.items() if name in place}
    chances = law.inclusion_probabilities() if known else np.empty(0)
    for name, weight in known.items():
        p = chances[place[name]]
        mean = np.clip((weight * p + counts[place[name]]) / (weight + n), 1e-9, 1 - 1e-9)
        factors[name] = mean * (1 - p) / (p * (1 - mean))
    seen = {name: weight + n for name, weight in {**known, **dict.fromkeys(entered, 0.0)}.items() if name in place}
    return (law.tilt(factors) if factors else law), seen
