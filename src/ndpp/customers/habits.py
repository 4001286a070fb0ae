"""How much a customer's own orders count, fitted on the last baskets of customers.

A customer's chance of item a is p′_a = 1 − (1 − p_a)(1 − α h_a), where p_a is that of the law and h_a = Σ_t u_t 1[a ∈ basket t] /
(Σ_t u_t + κ) over the customer's baskets t, which count u_t = δ^age |basket t|^−γ: one of a hundred items says less about each than one
of three does. δ, κ and α first maximise the likelihood of each item's being in a later basket or not, given the baskets before it:
Σ_a y_a log p′_a + (1 − y_a) log(1 − p′_a), over the last baskets of customers (:class:`Cases`). Only own items change it, so that its value
for all customers takes one pass over their counts. Then other settings are tried, and the one with the best lists is taken: it must gain
more than two standard errors of recall@10 + NDCG@10 on these customers and more than nothing on others, and lose no likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, logit

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import CALENDAR
from ndpp.customers.store import BLOCK, WEEK, Trips

LEAST_CUSTOMERS = 20
"""With fewer customers who came again, habits are not fitted."""
TARGETS = 3
"""Last baskets of each customer that are predicted from those before each of them."""
LISTED = 10
"""Items of the lists by which settings are compared."""
CHANCES = 2**22
"""Chances that are computed at a time (32 MB)."""
EVENNESS = (0.0, 0.25, 0.5, 0.75)
MISSION_PRIORS = (5.0, 2.0, 15.0, 50.0)
"""Baskets of the law's missions that a customer's own begin with."""
SHARPER = [(share, strength) for share in (1.0, 0.25) for strength in (0.0, 0.7, 0.8, 0.9)]
"""Parts of the prior, and least strengths, that are tried for better lists."""
CONTEXTS = ("weekday", "season")
SURE = 1 - 1e-9
GAINS = 1 / np.log2(np.arange(2, LISTED + 2))


class Habits(NamedTuple):
    """How a customer's own orders count.

    ``decay`` is δ, per basket or, ``by_time``, per week; ``prior`` is κ, ``strength`` α and ``evenness`` γ. ``damping`` is that of
    the order of next baskets. ``mission_prior`` is how many baskets of the law's missions a customer's own begin with, None if they do not
    matter; ``gap`` is the usual time between two baskets, in weeks.
    """

    decay: float = 0.95
    by_time: bool = False
    prior: float = 10.0
    strength: float = 0.6
    damping: float = 0.0
    mission_prior: float | None = None
    gap: float = 1.0
    evenness: float = 0.0

    def even(self, evenness: float, sizes: AnyArray, missions: float | None) -> Habits:
        """Return habits with γ in place of 0 and with own missions that begin with so many baskets, both priors in usual baskets."""
        unit = float(self._replace(evenness=evenness).counted(sizes).mean())
        mission_prior = None if missions is None else missions * unit
        return self._replace(prior=self.prior * unit, mission_prior=mission_prior, evenness=evenness)

    def counted(self, sizes: AnyArray) -> FloatArray:
        """Return for how many baskets new ones of these sizes count."""
        return np.maximum(sizes, 1).astype(np.float64) ** -self.evenness

    def shares(self, counts: AnyArray, mass: AnyArray) -> FloatArray:
        """Return α h of items with these decayed counts, of customers with so many baskets."""
        return np.asarray(self.strength * counts / (mass + self.prior), np.float64)

    def raised(self, chances: AnyArray, shares: AnyArray) -> FloatArray:
        """Return p′ from p and α h."""
        return np.asarray(np.minimum(1 - (1 - chances) * (1 - shares), SURE))


class Chances(NamedTuple):
    """What the law says in each case: p of ``own`` items, pair by pair; the best ``others``, (cases, ``LISTED``), and ``their`` p.

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
    def of(cls, trips: Trips, chosen: IntArray) -> Cases:
        """Return the cases of the chosen customers, ascending, all of whom have two baskets or more."""
        number = np.full(int(trips.who.max()) + 1, -1)
        number[chosen] = np.arange(len(chosen))
        trips = trips.take(np.flatnonzero(number[trips.who] >= 0))
        trips = trips._replace(who=number[trips.who])
        n_of = np.bincount(trips.who)
        first, n_items = np.cumsum(n_of) - n_of, trips.baskets.n_items
        target = np.sort(np.concatenate([(first + n_of - k)[n_of > k] for k in range(1, TARGETS + 1)]))
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
        return np.asarray(np.bincount(self.last.who, values) / np.bincount(self.last.who))

    def weights(self, habits: Habits) -> FloatArray:
        """Return δ^age |basket|^−γ of each basket before."""
        ages = self.weeks if habits.by_time else self.baskets
        return np.asarray(habits.decay**ages * habits.counted(self.trips.baskets.sizes)[self.place], np.float64)

    def mass(self, habits: Habits) -> FloatArray:
        """Return Σ_t u_t of each case."""
        return np.asarray(np.bincount(self.case, self.weights(habits), len(self.target)), np.float64)

    def shares(self, habits: Habits) -> FloatArray:
        """Return α h of each pair."""
        counts = np.bincount(self.pairs, self.weights(habits)[self.lines], len(self.owners))
        return habits.shares(counts, self.mass(habits)[self.owners])

    def gains(self, habits: Habits, own: FloatArray) -> FloatArray:
        """Return how much more likely each target is, in nats, than with the chances of own items as they are."""
        p = np.clip(own, 1e-12, SURE)
        raised = habits.raised(p, self.shares(habits))
        gain = np.where(self.bought, np.log(raised / p), np.log1p(-raised) - np.log1p(-p))
        return np.asarray(np.bincount(self.owners, gain, len(self.target)), np.float64)

    def whole(self, habits: Habits, chances: Chances) -> FloatArray:
        """Return the log-likelihood of each target."""
        p = habits.raised(np.clip(chances.own, 1e-12, SURE), self.shares(habits))
        own = np.where(self.bought, np.log(p), np.log1p(-p))
        return np.asarray(chances.rest + np.bincount(self.owners, own, len(self.target)))

    def chances(self, p_of: Callable[[slice], FloatArray]) -> Chances:
        """Return what chances of all items, (cases, n_items) of some cases, say in each case."""
        n, n_items = len(self.target), self.last.baskets.n_items
        listed = min(LISTED, n_items)
        found = Chances(np.empty(len(self.owners)), np.empty((n, listed), np.int64), np.empty((n, listed)), np.empty(n))
        for start in range(0, n, step := max(1, CHANCES // n_items)):
            part = slice(start, min(n, start + step))
            p = np.clip(p_of(part), 0.0, SURE)
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
        best, rank = order[rank < LISTED], rank[rank < LISTED]
        hits = np.isin(owner[best] * self.last.baskets.n_items + item[best], self.wanted)
        recall, gains = (np.bincount(owner[best], hits * value, n) for value in (1.0, GAINS[rank]))
        return recall / sizes, gains / np.cumsum(GAINS)[np.minimum(sizes, LISTED) - 1]

    def own_missions(self, ways: Sequence[Habits], posterior: Callable[[Baskets], FloatArray]) -> list[FloatArray]:
        """Return Σ_t u_t P(component | basket t) of each case, for each of some habits."""
        shape = len(self.target), len(self.trips.who)
        matrices: list[Any] = [
            sparse.csc_array((self.weights(way), (self.case, self.place)), shape=shape) for way in ways
        ]
        sums: list[Any] = [0.0] * len(ways)
        for start in range(0, shape[1], 4 * BLOCK):
            part = slice(start, start + 4 * BLOCK)
            rows = posterior(self.trips.baskets[part])
            sums = [total + matrix[:, part] @ rows for total, matrix in zip(sums, matrices)]
        return sums


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


def fit_habits(cases: Cases, chances: FloatArray, by_time: bool) -> Habits:
    """Return the δ, κ and α that make the targets most likely, with decay by basket or by time."""
    own = chances[cases.items]

    def habits_at(x: FloatArray) -> Habits:
        decay, prior, strength = np.clip(x, -8, 8).tolist()
        return Habits(float(expit(decay)), by_time, float(np.exp(prior)), float(expit(strength)))

    start = np.array([logit(0.95), np.log(5.0), logit(0.7)])
    simplex = start + np.vstack([np.zeros(3), np.eye(3)])
    end = minimize(
        lambda x: -cases.gains(habits_at(x), own).mean(), start, method="Nelder-Mead",
        options={"xatol": 0.05, "fatol": 1e-4, "maxfev": 80, "initial_simplex": simplex},
    )  # fmt: skip
    gaps = cases.weeks[cases.baskets == 0]
    return habits_at(end.x)._replace(gap=float(np.median(gaps)) if cases.trips.times is not None else 1.0)


@dataclass(frozen=True)
class Trial:
    """Cases, and a law by which habits are tried on them: P(a ∈ S), P_c(a ∈ S) and weights of its components.

    ``sums`` are :meth:`Cases.own_missions` of habits by their clock and evenness.
    """

    cases: Cases
    popularity: FloatArray
    inclusions: AnyArray
    weights: AnyArray
    sums: dict[tuple[bool, float], FloatArray] = field(default_factory=dict)
    found: dict[tuple[bool, float, float | None], Chances] = field(default_factory=dict)

    def learn(self, ways: Sequence[Habits], posterior: Callable[[Baskets], FloatArray]) -> None:
        """Look up the missions of all baskets once, for these habits."""
        found = self.cases.own_missions(ways, posterior)
        self.sums.update({(way.by_time, way.evenness): each for way, each in zip(ways, found)})

    def chances(self, habits: Habits) -> Chances:
        """Return what the law says, with own missions if there are any."""
        prior = habits.mission_prior
        key = (habits.by_time, habits.evenness, prior) if prior is not None else (False, 0.0, None)
        if key not in self.found:
            weights = None
            if prior is not None:
                mass = self.cases.mass(habits)
                weights = (self.sums[key[:2]] + prior * self.weights) / (mass + prior)[:, None]
            self.found[key] = self.chances_at(weights)
        return self.found[key]

    def chances_at(self, weights: FloatArray | None) -> Chances:
        """Return what the law says with these weights of components in each case, None for those of the law."""
        if weights is None:
            return self.cases.chances(lambda part: np.tile(self.popularity, (part.stop - part.start, 1)))
        return self.cases.chances(lambda part: weights[part] @ self.inclusions)

    def recall(self, habits: Habits, chances: Chances | None = None) -> FloatArray:
        """Return recall@10 of each customer."""
        return self.cases.by_customer(
            self.cases.listed(habits, self.chances(habits) if chances is None else chances)[0]
        )

    def scores(self, habits: Habits, chances: Chances | None = None) -> tuple[FloatArray, FloatArray]:
        """Return recall@10 + NDCG@10 and the log-likelihood, means over the cases of each customer."""
        cases, chances = self.cases, self.chances(habits) if chances is None else chances
        recall, ndcg = cases.listed(habits, chances)
        return cases.by_customer(recall + ndcg), cases.by_customer(cases.whole(habits, chances))


def best_of(trials: Sequence[Trial], ways: Sequence[Habits]) -> Habits:
    """Return the habits with the best lists in the first trial; the first ones, unless they gain, in the other trial, too."""
    first = [trial.scores(ways[0]) for trial in trials]
    best = max(ways, key=lambda way: float(trials[0].scores(way)[0].mean()))
    changes = [[new - old for new, old in zip(trial.scores(best), each)] for trial, each in zip(trials, first)]
    return (
        best if is_gain(*changes[0][:1], *changes[1][:1]) and not any(is_loss(one[1]) for one in changes) else ways[0]
    )


def is_gain(validation: FloatArray, others: FloatArray) -> bool:
    """Return whether a change gains by more than two standard errors, and on other customers, too."""
    error = validation.std() / np.sqrt(max(1, len(validation)))
    return bool(validation.mean() > 2 * error and others.mean() > 0)


def is_loss(changes: FloatArray) -> bool:
    """Return whether a change loses by more than a standard error."""
    return bool(changes.mean() < -changes.std() / np.sqrt(max(1, len(changes))))


def context_missions(trips: Trips, name: str, posterior: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
    """Return how many times as frequent each mission is on each weekday, or in each season, as on the whole."""
    words, number = np.unique(CALENDAR[name](np.asarray(trips.times)), return_inverse=True)
    out, overall = {}, (posterior.sum(axis=0) + 50 * weights) / (len(posterior) + 50)
    for i, word in enumerate(words.tolist()):
        those = posterior[number == i]
        out[word] = (those.sum(axis=0) + 50 * overall) / (len(those) + 50) / np.maximum(overall, 1e-300)
    return out
