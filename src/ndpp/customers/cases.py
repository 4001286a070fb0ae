"""The last baskets of customers, each with those before it, by which habits are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray, cached_property
from ndpp.baskets import Baskets
from ndpp.customers.others import MAX_CHANCE
from ndpp.customers.people import Habits, ranked
from ndpp.customers.store import BLOCK, WEEK, Trips

N_TARGETS = 3
"""Last baskets of each customer that are predicted from those before each of them."""
N_LISTED = 10
"""Items of the lists by which settings are compared."""
MAX_CHANCES = 2**19
"""Chances that are computed at a time (4 MB): larger arrays would be new memory each time."""
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
    line a basket before and a pair of a case and an item, ``owners`` and ``items``. ``orders`` are the places of ``trips`` among all.
    """

    trips: Trips
    orders: IntArray
    target: IntArray
    case: IntArray
    place: IntArray
    baskets: IntArray
    weeks: FloatArray
    lines: IntArray
    pairs: IntArray
    owners: IntArray
    items: IntArray
    _decayed: dict[tuple[float, bool, float], tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    @classmethod
    def of(cls, trips: Trips, chosen: IntArray, n_targets: int = N_TARGETS) -> Cases:
        """Return the cases of the chosen customers, ascending, all of whom have two baskets or more."""
        number = np.full(int(trips.who.max()) + 1, -1)
        number[chosen] = np.arange(len(chosen))
        orders = np.flatnonzero(number[trips.who] >= 0)
        trips = trips.take(orders)
        baskets = Baskets._trusted(
            trips.baskets.indptr, trips.baskets.indices, trips.baskets.n_items, None
        )  # without ids
        trips = trips._replace(who=number[trips.who], baskets=baskets)
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
        return cls(trips, orders, target, case, place, ages, weeks, lines, pairs, found // n_items, found % n_items)

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

    def decayed(self, habits: Habits) -> tuple[FloatArray, FloatArray]:
        """Return the decayed counts of each pair, and Σ_t u_t of each case; those of the last clock and evenness are kept."""
        key = habits.decay, habits.by_time, habits.evenness
        if key not in self._decayed:
            weights = self.weights(habits)
            counts = np.bincount(self.pairs, weights[self.lines], len(self.owners))
            mass = np.bincount(self.case, weights, len(self.target))
            self._decayed.clear()
            self._decayed[key] = np.asarray(counts, np.float64), np.asarray(mass, np.float64)
        return self._decayed[key]

    def mass(self, habits: Habits) -> FloatArray:
        """Return Σ_t u_t of each case."""
        return self.decayed(habits)[1]

    def shares(self, habits: Habits) -> FloatArray:
        """Return α h of each pair."""
        counts, mass = self.decayed(habits)
        return habits.shares(counts, mass[self.owners])

    def counts(self, habits: Habits) -> Any:
        """Return the decayed counts of items before each target, (cases, n_items), sparse."""
        return self.matrix(self.decayed(habits)[0])

    def matrix(self, values: FloatArray) -> Any:
        """Return values of pairs as a sparse matrix, (cases, n_items)."""
        ends = np.searchsorted(self.owners, np.arange(len(self.target) + 1))
        return sparse.csr_array((values, self.items, ends), shape=(len(self.target), self.last.baskets.n_items))

    def log_likelihood(self, habits: Habits, chances: Chances) -> FloatArray:
        """Return the log-likelihood of each target."""
        p = habits.raised(np.clip(chances.own, 1e-12, MAX_CHANCE), self.shares(habits))
        own = np.where(self.bought, np.log(p), np.log1p(-p))
        return np.asarray(chances.rest + np.bincount(self.owners, own, len(self.target)))

    def parts(self) -> Iterator[slice]:
        """Yield some cases at a time, of which the chances of all items are no more than ``MAX_CHANCES``."""
        n, step = len(self.target), max(1, MAX_CHANCES // self.last.baskets.n_items)
        return (slice(start, min(n, start + step)) for start in range(0, n, step))

    def pairs_of(self, part: slice) -> slice:
        """Return the pairs of some cases."""
        return slice(*np.searchsorted(self.owners, [part.start, part.stop]).tolist())

    def own_chances(self, p_of: Callable[[slice], FloatArray]) -> FloatArray:
        """Return the chances of own items alone, pair by pair."""
        out = np.empty(len(self.owners))
        for part in self.parts():
            own = self.pairs_of(part)
            out[own] = p_of(part)[self.owners[own] - part.start, self.items[own]]
        return np.clip(out, 0.0, MAX_CHANCE)

    def chances(self, p_of: Callable[[slice], FloatArray]) -> Chances:
        """Return what chances of all items, (cases, n_items) of some cases, say in each case."""
        n, n_items = len(self.target), self.last.baskets.n_items
        listed = min(N_LISTED, n_items)
        new = np.setdiff1d(self.wanted, self.owners * n_items + self.items, assume_unique=True)
        found = Chances(np.empty(len(self.owners)), np.empty((n, listed), np.int64), np.empty((n, listed)), np.empty(n))
        for part in self.parts():
            p, own, start = np.clip(p_of(part), 0.0, MAX_CHANCE), self.pairs_of(part), part.start
            at = self.owners[own] - start, self.items[own]
            found.own[own] = p[at]
            p[at] = 0.0
            found.rest[part] = np.log(1 - p).sum(axis=1)
            low, high = np.searchsorted(new, [part.start * n_items, part.stop * n_items])
            case, item = np.divmod(new[low:high], n_items)
            q = p[case - start, item]
            np.add.at(found.rest, case, np.log(np.maximum(q, 1e-12)) - np.log(1 - q))
            best = np.argpartition(-p, listed - 1, axis=1)[:, :listed]
            found.others[part], found.their[part] = best, np.take_along_axis(p, best, axis=1)
        return found

    def listed(self, habits: Habits, chances: Chances) -> tuple[FloatArray, FloatArray]:
        """Return recall@10 and NDCG@10 of each target, for the items with the largest p′."""
        n, sizes = len(self.target), self.last.baskets.sizes
        mine = habits.raised(chances.own, self.shares(habits))
        their = chances.their
        least = their.min(axis=1) if their.shape[1] == N_LISTED else np.zeros(n)
        can = mine >= least[self.owners]  # N_LISTED others are ahead of the rest
        cases, column = np.nonzero(their > 0)
        owner = np.append(self.owners[can], cases)
        item = np.append(self.items[can], chances.others[cases, column])
        order, rank = ranked(owner, np.append(mine[can], their[cases, column]), n, item)
        best, rank = order[rank < N_LISTED], rank[rank < N_LISTED]
        hits = np.isin(owner[best] * self.last.baskets.n_items + item[best], self.wanted)
        recall, gains = (np.bincount(owner[best], hits * value, n) for value in (1.0, GAINS[rank]))
        return recall / sizes, gains / np.cumsum(GAINS)[np.minimum(sizes, N_LISTED) - 1]

    def own_missions(self, ways: Sequence[Habits], posterior: Callable[[IntArray], AnyArray]) -> list[FloatArray]:
        """Return Σ_t u_t P(component | basket t) of each case, for each of some habits."""
        shape = len(self.target), len(self.trips.who)
        matrices = [sparse.csc_array((self.weights(way), (self.case, self.place)), shape=shape) for way in ways]
        sums: list[FloatArray] = [np.zeros(1)] * len(ways)
        for start in range(0, shape[1], 4 * BLOCK):
            part = slice(start, start + 4 * BLOCK)
            rows = posterior(self.orders[part])
            sums = [total + matrix[:, part] @ rows for total, matrix in zip(sums, matrices)]
        return sums
