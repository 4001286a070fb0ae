"""How much a customer's own orders count, fitted on the last baskets of customers.

A customer's chance of item a is p′_a = 1 − (1 − p_a)(1 − α h_a), where p_a is that of the law and h_a = Σ_t δ^age 1[a ∈ basket t] /
(Σ_t δ^age + κ) over the customer's baskets t. δ, κ and α maximise the likelihood of each item's being in the last basket or not, given the
baskets before it: Σ_a y_a log p′_a + (1 − y_a) log(1 − p′_a). Only own items change it, so that its value for all customers takes one
pass over their counts. What is kept beyond that must gain more than two standard errors on half of the customers, and more than
nothing on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, xlogy

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray
from ndpp.baskets.orders import CALENDAR
from ndpp.customers.store import WEEK, Trips

LEAST_CUSTOMERS = 20
"""With fewer customers who came again, habits are not fitted."""
MOST_BASKETS = 20_000
"""Baskets whose missions are looked at to see whether a customer's own missions, weekdays or seasons matter."""
MISSION_PRIORS = (3.0, 10.0, 30.0, 100.0)
"""Baskets of the law's missions that a customer's own begin with."""
CONTEXTS = ("weekday", "season")
SURE = 1 - 1e-9


class Habits(NamedTuple):
    """How a customer's own orders count.

    ``decay`` is δ, per basket or, ``by_time``, per week; ``prior`` is κ and ``strength`` α. ``damping`` is γ of the order of next baskets.
    ``mission_prior`` is how many baskets of the law's missions a customer's own begin with, None if they do not matter; ``gap`` is the
    usual time between two baskets, in weeks.
    """

    decay: float = 0.95
    by_time: bool = False
    prior: float = 10.0
    strength: float = 0.6
    damping: float = 0.0
    mission_prior: float | None = None
    gap: float = 1.0

    def shares(self, counts: AnyArray, mass: AnyArray) -> FloatArray:
        """Return α h of items with these decayed counts, of customers with so many baskets."""
        return np.asarray(self.strength * counts / (mass + self.prior), np.float64)

    def raised(self, chances: AnyArray, shares: AnyArray) -> FloatArray:
        """Return p′ from p and α h."""
        return np.asarray(np.minimum(1 - (1 - chances) * (1 - shares), SURE))


@dataclass(frozen=True)
class Cases:
    """The baskets before the last one of some customers, and which of their items are in the last.

    Each basket has a customer and two ages, in baskets and in weeks, for counts at the time of the last basket; each line a basket and a
    pair of a customer and an item.
    """

    before: Trips
    last: Trips
    baskets: IntArray
    weeks: FloatArray
    lines: IntArray
    pairs: IntArray
    owners: IntArray
    items: IntArray
    targets: IntArray

    @classmethod
    def of(cls, trips: Trips, chosen: IntArray, most_baskets: int | None = None) -> Cases:
        """Return the cases of the chosen customers, ascending, all of whom have two baskets or more; so many that there are few enough."""
        n_of = np.bincount(trips.who)[chosen]
        if most_baskets is not None:
            chosen = chosen[: max(1, int(np.searchsorted(np.cumsum(n_of), most_baskets)))]
        number = np.full(int(trips.who.max()) + 1, -1)
        number[chosen] = np.arange(len(chosen))
        trips = trips.take(np.flatnonzero(number[trips.who] >= 0))
        trips = trips._replace(who=number[trips.who])
        ends = np.cumsum(np.bincount(trips.who)) - 1
        is_before = np.ones(len(trips.who), bool)
        is_before[ends] = False
        before, last = trips.take(np.flatnonzero(is_before)), trips.take(ends)
        weeks = np.zeros(len(before.who))
        if before.times is not None and last.times is not None:
            weeks = (last.times[before.who] - before.times).astype(np.int64) / WEEK
        lines = np.repeat(np.arange(len(before.who)), before.baskets.sizes)
        found, pairs = np.unique(
            before.who[lines] * trips.baskets.n_items + before.baskets.indices, return_inverse=True
        )
        targets = np.repeat(last.who, last.baskets.sizes) * trips.baskets.n_items + last.baskets.indices
        return cls(
            before, last, ends[before.who] - 1 - np.flatnonzero(is_before), weeks, lines, pairs, found // trips.baskets.n_items,
            found % trips.baskets.n_items, targets,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.last.who)

    @cached_property
    def bought(self) -> BoolArray:
        """Whether the item of each pair is in the last basket."""
        return np.isin(self.owners * self.last.baskets.n_items + self.items, self.targets)

    def weights(self, habits: Habits) -> FloatArray:
        """Return δ^age of each basket."""
        return np.asarray(habits.decay ** (self.weeks if habits.by_time else self.baskets), np.float64)

    def shares(self, habits: Habits) -> FloatArray:
        """Return α h of each pair."""
        weights = self.weights(habits)
        counts = np.bincount(self.pairs, weights[self.lines], len(self.owners))
        return habits.shares(counts, np.bincount(self.before.who, weights, len(self))[self.owners])

    def gains(self, habits: Habits, chances: FloatArray) -> FloatArray:
        """Return how much more likely each customer's last basket is, in nats, than with the chances of all, (n_items,)."""
        p, y = np.clip(chances[self.items], 1e-12, SURE), self.bought
        raised = habits.raised(p, self.shares(habits))
        gain = np.where(y, np.log(raised / p), np.log1p(-raised) - np.log1p(-p))
        return np.bincount(self.owners, gain, len(self))

    def whole(self, habits: Habits, chances: FloatArray) -> FloatArray:
        """Return the log-likelihood of each customer's last basket with chances of their own, (customers, n_items)."""
        raised = np.clip(chances, 1e-12, SURE)
        raised[self.owners, self.items] = habits.raised(raised[self.owners, self.items], self.shares(habits))
        y = self.last.baskets.to_csr().toarray()
        return np.asarray((xlogy(y, raised) + xlogy(1 - y, 1 - raised)).sum(axis=1))

    def recall(self, habits: Habits, chances: FloatArray, n: int = 10) -> FloatArray:
        """Return which part of each customer's last basket is among the first n by p′ / p^γ, or by p′ with chances of their own."""
        width = self.last.baskets.n_items
        if chances.ndim == 2:
            keys = chances.copy()
            keys[self.owners, self.items] = habits.raised(keys[self.owners, self.items], self.shares(habits))
            found = np.argpartition(-keys, min(n, width - 1), axis=1)[:, :n] + width * np.arange(len(self))[:, None]
            return np.asarray(np.isin(found, self.targets).sum(axis=1) / self.last.baskets.sizes)
        unit = np.where(chances > 0, chances, 1.0) ** habits.damping
        mine = habits.raised(chances[self.items], self.shares(habits)) / unit[self.items]
        first = np.argsort(-chances / unit, kind="stable")[:n]
        owner, item, key = without_own(self.owners, self.items, mine, first, (chances / unit)[first], len(self))
        order, rank = ranked(owner, key, len(self), item)
        best = order[rank < n]
        hits = np.isin(owner[best] * width + item[best], self.targets)
        return np.bincount(owner[best], hits, len(self)) / self.last.baskets.sizes


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


def fit_habits(cases: Cases, chances: FloatArray, times: bool) -> Habits:
    """Return the δ, κ and α that make the last baskets most likely, with decay by basket or, if there are ``times``, by time."""

    def habits_at(x: FloatArray, by_time: bool) -> Habits:
        return Habits(float(expit(x[0])), by_time, float(np.exp(x[1])), float(expit(x[2])))

    found = []
    for by_time in (False, True) if times else (False,):
        start = np.array([logit(0.95), np.log(5.0), logit(0.7)])
        options = {
            "xatol": 0.02,
            "fatol": 1e-5,
            "maxfev": 120,
            "initial_simplex": start + np.vstack([np.zeros(3), np.eye(3)]),
        }
        end = minimize(
            lambda x, by_time=by_time: -cases.gains(habits_at(np.clip(x, -8, 8), by_time), chances).mean(), start,
            method="Nelder-Mead", options=options,
        )  # fmt: skip
        found.append((end.fun, habits_at(np.clip(end.x, -8, 8), by_time)))
    gaps = cases.weeks[cases.baskets == 0]
    return min(found, key=lambda pair: pair[0])[1]._replace(gap=float(np.median(gaps)) if times else 1.0)


def is_gain(validation: FloatArray, others: FloatArray) -> bool:
    """Return whether a change gains by more than two standard errors, and on other customers, too."""
    error = validation.std() / np.sqrt(max(1, len(validation)))
    return bool(validation.mean() > 2 * error and others.mean() > 0)


def is_loss(changes: FloatArray) -> bool:
    """Return whether a change loses by more than a standard error."""
    return bool(changes.mean() < -changes.std() / np.sqrt(max(1, len(changes))))


def own_missions(cases: Cases, habits: Habits, posterior: FloatArray, weights: FloatArray, prior: float) -> FloatArray:
    """Return the mission weights of each customer, from those of the law and the posterior of each basket before the last."""
    decayed, who = cases.weights(habits), cases.before.who
    total = np.zeros((len(cases), len(weights)))
    np.add.at(total, who, decayed[:, None] * posterior)
    return np.asarray((total + prior * weights) / (np.bincount(who, decayed, len(total)) + prior)[:, None])


def context_missions(trips: Trips, name: str, posterior: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
    """Return how many times as frequent each mission is on each weekday, or in each season, as on the whole."""
    words, number = np.unique(CALENDAR[name](np.asarray(trips.times)), return_inverse=True)
    out, overall = {}, (posterior.sum(axis=0) + 50 * weights) / (len(posterior) + 50)
    for i, word in enumerate(words.tolist()):
        those = posterior[number == i]
        out[word] = (those.sum(axis=0) + 50 * overall) / (len(those) + 50) / np.maximum(overall, 1e-300)
    return out
