"""The last baskets of customers, each with those before it, by which habits are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import BoolArray, FloatArray, IntArray, cached_property
from ndpp.baskets import Baskets
from ndpp.customers.others import MAX_CHANCE
from ndpp.customers.people import Habits, ranked
from ndpp.customers.store import BLOCK, WEEK, Trips

N_TARGETS = 3
"""Last baskets of each customer that are predicted from those before each of them."""
N_LISTED = 10
"""Items of the lists by which settings are compared."""
MAX_CHANCES = 2**22
"""Chances that are computed at a time (32 MB)."""
GAINS = 1 / np.log2(np.arange(2, N_LISTED + 2))
"""What an item of a list counts for NDCG, by its rank."""


class Chances(NamedTuple):
    """What the law says in each case: p of ``own`` items, pair by pair; the best ``others``, (cases, ``N_LISTED``), and ``their`` p.

    ``rest`` is the log-likelihood of all items that are not own.
    """

    own: FloatArray
    others: IntArray
    their: FloatArray
    rest: FloatArray


@dataclass(frozen=True)
class Cases:
    """The last baskets of some customers, each with those before it: case i is basket ``target[i]`` of ``trips``.

    Each basket before one has a ``case``, a place in ``trips`` and two ages, in baskets and in weeks, at the time of the target; each
    line a basket before and a pair of a case and an item, ``owners`` and ``items``.
    """

    trips: Trips
    target: IntArray
    case: IntArray
    place: IntArray
    baskets: IntArray
    weeks: FloatArray
    lines: IntArray
    pairs: IntArray
    owners: IntArray
    items: IntArray

    @classmethod
    def of(cls, trips: Trips, chosen: IntArray, n_targets: int = N_TARGETS) -> Cases:
        """Return the cases of the chosen customers, ascending, all of whom have two baskets or more."""
        number = np.full(int(trips.who.max()) + 1, -1)
        number[chosen] = np.arange(len(chosen))
        trips = trips.take(np.flatnonzero(number[trips.who] >= 0))
        trips = trips._replace(who=number[trips.who])
        n_of = np.bincount(trips.who)
        first, n_items = np.cumsum(n_of) - n_of, trips.baskets.n_items
        target = np.sort(np.concatenate([(first + n_of - k)[n_of > k] for k in range(1, n_targets + 1)]))
        n_before = target - first[trips.who[target]]
        case = np.repeat(np.arange(len(target)), n_before)
        ages = np.cumsum(n_before)[case] - 1 - np.arange(len(case))
        place = target[case] - 1 - ages
        weeks = np.zeros(len(case))
        if trips.times is not None:
            weeks = (trips.times[target][case] - trips.times[place]).astype(np.int64) / WEEK
        before = trips.baskets[place]
        lines = np.repeat(np.arange(len(case)), before.sizes)
        found, pairs = np.unique(case[lines] * n_items + before.indices, return_inverse=True)
        return cls(trips, target, case, place, ages, weeks, lines, pairs, found // n_items, found % n_items)

    @cached_property
    def last(self) -> Trips:
        """The baskets that are predicted."""
        return self.trips.take(self.target)

    @cached_property
    def wanted(self) -> IntArray:
        """Cases and items of the targets, as one number each."""
        return (
            np.repeat(np.arange(len(self.target)), self.last.baskets.sizes) * self.last.baskets.n_items
            + self.last.baskets.indices
        )

    @cached_property
    def bought(self) -> BoolArray:
        """Whether the item of each pair is in the target."""
        return np.isin(self.owners * self.last.baskets.n_items + self.items, self.wanted)

    def by_customer(self, values: FloatArray) -> FloatArray:
        """Return the mean of values over the cases of each customer."""
        who, weights = self.last.who, self.last.weights
        return np.asarray(np.bincount(who, values * weights) / np.bincount(who, weights))

    def weights(self, habits: Habits) -> FloatArray:
        """Return δ^age |basket|^−γ of each basket before, times its weight."""
        ages = self.weeks if habits.by_time else self.baskets
        counted = self.trips.weights * habits.counted(self.trips.baskets.sizes)
        return np.asarray(habits.decay**ages * counted[self.place], np.float64)

    def mass(self, habits: Habits) -> FloatArray:
        """Return Σ_t u_t of each case."""
        return np.asarray(np.bincount(self.case, self.weights(habits), len(self.target)), np.float64)

    def shares(self, habits: Habits) -> FloatArray:
        """Return α h of each pair."""
        counts = np.bincount(self.pairs, self.weights(habits)[self.lines], len(self.owners))
        return habits.shares(np.asarray(counts, np.float64), self.mass(habits)[self.owners])

    def counts(self, habits: Habits) -> Any:
        """Return the decayed counts of items before each target, (cases, n_items), sparse."""
        counts = np.bincount(self.pairs, self.weights(habits)[self.lines], len(self.owners))
        return sparse.csr_array(
            (counts, (self.owners, self.items)), shape=(len(self.target), self.last.baskets.n_items)
        )

    def log_likelihood(self, habits: Habits, chances: Chances) -> FloatArray:
        """Return the log-likelihood of each target."""
        p = habits.raised(np.clip(chances.own, 1e-12, MAX_CHANCE), self.shares(habits))
        own = np.where(self.bought, np.log(p), np.log1p(-p))
        return np.asarray(chances.rest + np.bincount(self.owners, own, len(self.target)))

    def chances(self, p_of: Callable[[slice], FloatArray]) -> Chances:
        """Return what chances of all items, (cases, n_items) of some cases, say in each case."""
        n, n_items = len(self.target), self.last.baskets.n_items
        listed = min(N_LISTED, n_items)
        found = Chances(np.empty(len(self.owners)), np.empty((n, listed), np.int64), np.empty((n, listed)), np.empty(n))
        for start in range(0, n, step := max(1, MAX_CHANCES // n_items)):
            part = slice(start, min(n, start + step))
            p = np.clip(p_of(part), 0.0, MAX_CHANCE)
            low, high = np.searchsorted(self.owners, [part.start, part.stop])
            at = self.owners[low:high] - start, self.items[low:high]
            found.own[low:high] = p[at]
            y = np.asarray(self.last.baskets[part].to_csr().toarray(), bool)
            p[at], y[at] = 0.0, False
            found.rest[part] = np.where(y, np.log(np.maximum(p, 1e-12)), np.log1p(-p)).sum(axis=1)
            best = np.argpartition(-p, listed - 1, axis=1)[:, :listed]
            found.others[part], found.their[part] = best, np.take_along_axis(p, best, axis=1)
        return found

    def listed(self, habits: Habits, chances: Chances) -> tuple[FloatArray, FloatArray]:
        """Return recall@10 and NDCG@10 of each target, for the items with the largest p′."""
        n, sizes = len(self.target), self.last.baskets.sizes
        mine = habits.raised(chances.own, self.shares(habits))
        cases, column = np.nonzero(chances.their > 0)
        owner = np.append(self.owners, cases)
        item = np.append(self.items, chances.others[cases, column])
        order, rank = ranked(owner, np.append(mine, chances.their[cases, column]), n, item)
        best, rank = order[rank < N_LISTED], rank[rank < N_LISTED]
        hits = np.isin(owner[best] * self.last.baskets.n_items + item[best], self.wanted)
        recall, gains = (np.bincount(owner[best], hits * value, n) for value in (1.0, GAINS[rank]))
        return recall / sizes, gains / np.cumsum(GAINS)[np.minimum(sizes, N_LISTED) - 1]

    def own_missions(self, ways: Sequence[Habits], posterior: Callable[[Baskets], FloatArray]) -> list[FloatArray]:
        """Return Σ_t u_t P(component | basket t) of each case, for each of some habits."""
        shape = len(self.target), len(self.trips.who)
        matrices = [sparse.csc_array((self.weights(way), (self.case, self.place)), shape=shape) for way in ways]
        sums: list[FloatArray] = [np.zeros(1)] * len(ways)
        for start in range(0, shape[1], 4 * BLOCK):
            part = slice(start, start + 4 * BLOCK)
            rows = posterior(self.trips.baskets[part])
            sums = [total + matrix[:, part] @ rows for total, matrix in zip(sums, matrices)]
        return sums
