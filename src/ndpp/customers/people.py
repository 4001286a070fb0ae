"""What a law says about customers, from what they bought: their mission weights, factors for their own items, and lists of items.

A customer's chance of item a is p′_a = 1 − (1 − p_a)(1 − α h_a), where p_a is that of the law and h_a = Σ_t u_t 1[a ∈ basket t] /
(Σ_t u_t + κ) over the customer's baskets t, which count u_t = δ^age |basket t|^−γ: one of a hundred items says less about each than one
of three does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray, cached_property
from ndpp.baskets import Baskets
from ndpp.baskets.times import CALENDAR, moment
from ndpp.customers.others import MAX_CHANCE, Others
from ndpp.customers.store import NEVER, WEEK, CustomerCounts, Trips
from ndpp.errors import InvalidInputError
from ndpp.inference.ranking import ZERO_CHANCE, Rule, rounded
from ndpp.inference.recommendation import Recommendation
from ndpp.inference.scores import scores_of_one, scores_or_nan
from ndpp.laws.law import Law
from ndpp.laws.scoring import Best
from ndpp.linalg.logs import shares
from ndpp.linalg.tilts import TINY, solve_each

MAX_FACTOR = 1e9
"""Largest factor."""
MAX_KEPT = 2**28
"""Posteriors that are kept while customers are fitted (1 GB)."""
Time: TypeAlias = str | date | np.datetime64


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

    @classmethod
    def checked(cls, values: Sequence[Any]) -> Habits:
        """Return the habits of a file; raise a ValueError if they are none."""
        made = cls(*values)
        numbers = [value for value in made if value is not None]
        if not (all(0 <= value < np.inf for value in numbers) and 0 < made.decay <= 1 and made.strength <= 1):
            raise ValueError(f"habits are {made}")
        return made

    def even(self, evenness: float, sizes: IntArray, missions: float | None) -> Habits:
        """Return habits with evenness γ and with own missions, None for none; both priors are in units of an average basket."""
        unit = float(self._replace(evenness=evenness).counted(sizes).mean())
        mission_prior = None if missions is None else missions * unit
        return self._replace(prior=self.prior * unit, mission_prior=mission_prior, evenness=evenness)

    def counted(self, sizes: IntArray) -> FloatArray:
        """Return for how many baskets new ones of these sizes count."""
        return np.maximum(sizes, 1).astype(np.float64) ** -self.evenness

    def shares(self, counts: FloatArray, mass: FloatArray) -> FloatArray:
        """Return α h of items with these decayed counts, whose customers have a decayed number of baskets ``mass``."""
        return np.asarray(self.strength * counts / (mass + self.prior), np.float64)

    def raised(self, chances: FloatArray, shares: FloatArray) -> FloatArray:
        """Return p′ from p and α h."""
        return np.asarray(np.minimum(1 - (1 - chances) * (1 - shares), MAX_CHANCE))


def at_time(law: Law, time: Time | None) -> Law:
    """Return a law in the context that follows from a time, such as the weekday, as far as the law depends on it."""
    if time is None:
        return law
    when = np.array([read_time(time)])
    known = {name: str(CALENDAR[name](when)[0]) for name in law.context if name in CALENDAR}
    found: Law = law.at(known, unknown="skip") if known else law
    return found


def timed(rule: Rule, time: Time | None) -> Rule:
    """Return a rule by the laws in that context."""
    return rule._replace(law=at_time(rule.law, time), whole=at_time(rule.whole, time))


def read_time(time: Time) -> np.datetime64:
    """Return a time, in seconds."""
    found: np.datetime64 = moment(time)
    if np.isnat(found):
        raise InvalidInputError(f"must be a time such as 2026-03-01 or 2026-03-01 12:30; got {time!r}", argument="time")
    return found


@dataclass(frozen=True, eq=False)
class People:
    """Some customers at a time, in seconds: what they bought, and how that counts."""

    habits: Habits
    counts: CustomerCounts
    now: int
    others: Others | None = None

    @cached_property
    def fade(self) -> FloatArray:
        """By how much the counts of each customer have decayed since the customer's last order."""
        if not self.habits.by_time:
            return np.ones(len(self.counts.mass))
        last = self.counts.last
        passed = np.maximum(self.now - np.where(last == NEVER, self.now, last), 0)
        return np.asarray(self.habits.decay ** (passed / WEEK))

    @cached_property
    def shares(self) -> FloatArray:
        """α h of each own item."""
        owners = self.counts.owners
        return self.habits.shares(self.counts.counts * self.fade[owners], (self.counts.mass * self.fade)[owners])

    def weights(self, law: Law) -> FloatArray | None:
        """Return the mission weights of each customer, a row each; None if they are those of the law."""
        prior, missions = self.habits.mission_prior, self.counts.missions
        if not prior or missions.shape[1] != len(law.weights):
            return None
        mass = self.counts.mass * self.fade
        found = (missions * self.fade[:, None] + prior * law.weights) / (mass + prior)[:, None]
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def weights_left(self, rule: Rule) -> FloatArray | None:
        """Return the same once some items are out of stock: missions that are likely to hold them, habits included, weigh less."""
        law, whole, gone, n = rule.law, rule.whole, rule.gone, len(self.counts.mass)
        weights, is_out = self.weights(whole), np.isin(self.counts.items, gone)
        if not len(gone) or len(whole.weights) == 1 or (weights is None and self.others is None and not is_out.any()):
            return weights
        each = np.broadcast_to(whole.weights, (n, len(law.weights))) if weights is None else weights
        owners, at = self.counts.owners[is_out], np.searchsorted(gone, self.counts.items[is_out])
        factors, within = np.ones((n, len(gone))), whole.component_inclusions(gone)
        if self.others is not None:
            factors = self.pulls(self._next(whole, weights))[:, gone]
        p = np.einsum("ac,ca->a", each[owners], within[:, at])
        can = p > 0
        owners, at, raised = owners[can], at[can], self.habits.raised(p[can], self.shares[is_out][can])
        factors[owners, at] *= factors_to(raised, each[owners].T, within[:, at])
        found = each * np.divide(law.weights, whole.weights, out=np.zeros_like(law.weights), where=whole.weights > 0)
        for row, own in zip(found, factors):  # as items are raised: one by one within each mission
            logs = -np.log1p(within[:, own != 1] * (own[own != 1] - 1)).sum(axis=1)
            row *= np.exp(logs - logs.max())
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def begun(self, rule: Rule, baskets: Baskets | None, best: Best | None = None) -> FloatArray:
        """Return P(a | basket) of all items, p′ for own ones, a row per customer; without baskets, of those that have not begun."""
        weights = self.weights_left(rule)
        if baskets is None:
            chances = self._next(rule.law, weights)
        else:
            best = best if self.others is None else None
            chances = scores_or_nan(rule.law, baskets, whole=False, best=best, weights=weights)
            self.raise_own(chances)
        if self.others is None:
            return chances
        factors = self.pulls(self._next(rule.whole, self.weights(rule.whole)))
        return np.asarray(factors * chances / (1 - chances + factors * chances))

    def _next(self, law: Law, weights: FloatArray | None) -> FloatArray:
        """Return p′ of all items in baskets that have not begun, a row per customer."""
        every = law.popularity if weights is None else weights @ law.component_inclusions()
        chances = np.array(np.broadcast_to(every, (len(self.counts.mass), law.n_items)))
        self.raise_own(chances)
        return chances

    def bought(self, n_items: int) -> Any:
        """Return the decayed counts of items, (customers, n_items), sparse."""
        own = self.counts
        return sparse.csr_array((own.counts, own.items, own.indptr), shape=(len(own.mass), n_items))

    def pulls(self, chances: FloatArray) -> FloatArray:
        """Return the factors of the odds of items that take p′ of all items, a row per customer, to p″: what others bought next."""
        if self.others is None:
            return np.ones_like(chances)
        moved = self.others.moved(chances, self.bought(chances.shape[1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(moved == chances, 1.0, moved * (1 - chances) / (chances * (1 - moved)))
        return found.clip(1 / MAX_FACTOR, MAX_FACTOR)

    def raise_own(self, chances: FloatArray) -> None:
        """Replace p by p′ for own items in the chances of all items, a row per customer, in place, unless they cannot occur."""
        owners, items = self.counts.owners, self.counts.items
        before = chances[owners, items]
        raised = self.habits.raised(before, self.shares)
        chances[owners, items] = np.where(before > ZERO_CHANCE, raised, before)


@dataclass(frozen=True, eq=False)
class Customer:
    """One customer at a time: a condition on a law, which :meth:`over` states for it.

    ``customers[id]`` and ``customers.person(history=…)`` return one.
    """

    people: People
    time: Time | None = None

    def over(self, law: Law) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the customer's mission weights (C,), and a factor for each item (n,) within every component, whose weights stay.

        Either is None where it changes nothing.
        """
        base, own = at_time(law, self.time), self.people.counts
        mine = self.people.weights(base)
        weights = mine[0] if mine is not None else None if base is law else base.weights
        w, within = base.weights if weights is None else weights, law.component_inclusions(own.items)
        p = w @ within
        can = p > 0
        if not can.any():
            return weights, None
        factors = np.ones(law.n_items)
        if self.people.others is not None:
            chances = (w @ law.component_inclusions())[None]
            self.people.raise_own(chances)
            factors = self.people.pulls(chances)[0]
        raised = self.people.habits.raised(p[can], self.people.shares[can])
        factors[own.items[can]] *= factors_to(raised, w, within[:, can])
        return weights, factors

    def begun(self, rule: Rule, basket: IntArray) -> FloatArray:
        """Return P(a | basket) of all items, p′ for own ones, for a list by a rule."""
        law, now = rule.law, timed(rule, self.time)
        chances: FloatArray = self.people.begun(now, law.one_basket(basket) if len(basket) else None)[0]
        if np.isnan(chances[0]):  # a basket that never occurs: what follows raises, and says why
            chances = scores_of_one(law.under(law.ask(customer=self)), basket, whole=False)
        return chances


def factors_to(wanted: FloatArray, weights: FloatArray, within: FloatArray) -> FloatArray:
    """Return the factors s of items with the chances p_ca ``within`` components for which Σ_c w_c s p_ca / (1 − p_ca + s p_ca) = p′_a."""
    each = np.broadcast_to(np.reshape(weights, (len(weights), -1)), within.shape)  # of all items, or of each

    def moments(log_s: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        own, s = within[:, which], np.exp(log_s)
        chances = s * own / (1 - own + s * own)
        counted = each[:, which] * chances
        return counted.sum(axis=0), (counted * (1 - chances)).sum(axis=0)

    options = {"within": 1e-15, "least_variance": TINY, "least_tilt": 0.0, "most_tilt": np.log(MAX_FACTOR)}
    return np.exp(solve_each(moments, wanted, np.zeros(len(wanted)), **options))


def posterior(law: Law, baskets: Baskets) -> FloatArray:
    """Return P(component | basket) of each basket; the weights for one that the law calls impossible."""
    with np.errstate(divide="ignore"):
        prior = np.log(law.weights)
    logs = prior + law.component_log_probs(baskets)
    logs[np.isneginf(logs).all(axis=1)] = prior  # rounding, or a law of another catalogue
    return shares(logs)


@dataclass(frozen=True, eq=False)
class Missions:
    """P(component | basket) of some orders, each looked up once unless there are too many of them."""

    law: Law
    trips: Trips

    @cached_property
    def table(self) -> tuple[BoolArray, AnyArray]:
        """Which orders have been looked up, and what was found, in single precision; memory is taken where it is written."""
        n = len(self.trips.who)
        return np.zeros(n, bool), np.empty((n, len(self.law.weights)), np.float32)

    def of(self, orders: IntArray) -> AnyArray:
        """Return the posteriors of orders by their places in ``trips``, a row each."""
        baskets = self.trips.baskets
        if len(self.trips.who) * len(self.law.weights) > MAX_KEPT:
            return posterior(self.law, baskets[orders])
        known, rows = self.table
        if len(new := orders[~known[orders]]):
            rows[new], known[new] = posterior(self.law, baskets[new]), True
        return rows[orders]


# -- the best items of many customers, from their own items and the best of all, without a table of all items ----------------------


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
    # As tilts only raise own items, no item but these and the best of all others can be among the best.
    first = np.argsort(-rounded(common), kind="stable")[: rule.n]
    place = np.full(len(p), -1)
    place[first] = np.arange(len(first))
    is_own, among = np.zeros((n, len(first)), bool), place[items] >= 0
    is_own[owners[among], place[items[among]]] = True
    others, at = np.nonzero(~is_own)
    owner, item = np.append(owners, others), np.append(items, first[at])
    keys = np.append(np.where(can[items], chances / unit[items], 0.0), common[first[at]])
    chance = np.append(chances, p[first[at]]) / np.broadcast_to(rule.shown, p.shape)[item]
    order, rank = ranked(owner, rounded(keys), n, item)
    best = order[(rank < rule.n) & (keys[order] > 0)]
    ends = np.cumsum(np.bincount(owner[best], minlength=n)).tolist()
    item, chance = item[best].astype(np.int64), chance[best]
    names = None if labels is None else [labels[a] for a in item.tolist()]
    return [
        Recommendation(item[i:j], chance[i:j], None if names is None else tuple(names[i:j]))
        for i, j in zip([0, *ends], ends)
    ]


def ranked(owner: IntArray, keys: FloatArray, n: int, items: IntArray) -> tuple[IntArray, IntArray]:
    """Return candidates by customer, best first and of equal ones the smaller item, and the rank of each within its customer."""
    order = np.lexsort((items, -keys, owner))
    counts = np.bincount(owner, minlength=n)
    return order, np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
