"""What a law says about customers, from what they bought: their mission weights, and factors for their own items."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TypeAlias

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.baskets.order_lines import CALENDAR, moment
from ndpp.customers.habits import Habits
from ndpp.customers.store import NEVER, WEEK, CustomerCounts
from ndpp.errors import InvalidInputError
from ndpp.inference.ranking import ZERO_CHANCE
from ndpp.laws.law import Law

MAX_LOG_FACTOR = np.log(1e9)
"""Largest logarithm of a factor."""
Time: TypeAlias = str | date | np.datetime64


def at_time(law: Law, time: Time | None) -> Law:
    """Return a law in the context that follows from a time, such as the weekday, as far as the law depends on it."""
    if time is None:
        return law
    when = np.array([read_time(time)])
    known = {name: str(CALENDAR[name](when)[0]) for name in law.context if name in CALENDAR}
    found: Law = law.at(known, unknown="skip") if known else law
    return found


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

    @cached_property
    def fade(self) -> FloatArray:
        """By how much the counts of each customer have decayed since the customer's last order."""
        if not self.habits.by_time:
            return np.ones(len(self.counts.mass))
        last = self.counts.last
        passed = np.where(last == NEVER, 0, np.maximum(self.now - np.where(last == NEVER, self.now, last), 0))
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
        weights, items, factors = self.tilts(law)
        if not len(items):
            return weights, None
        every = np.ones(law.n_items)
        every[items] = factors
        return weights, every

    def tilts(self, law: Law) -> tuple[FloatArray | None, IntArray, FloatArray]:
        """Return the mission weights, None for those of the law, the own items that can occur, and their factors s.

        These are the ones for which Σ_c w_c s p_ca / (1 − p_ca + s p_ca) = p′_a.
        """
        base, counts, habits = at_time(law, self.time), self.people.counts, self.people.habits
        own = self.people.weights(base)
        weights = None if own is None and base is law else base.weights if own is None else own[0]
        if not len(counts.items):
            return weights, np.empty(0, np.int64), np.empty(0)
        w, within = base.weights if weights is None else weights, law.component_inclusions()[:, counts.items]
        can = w @ within > 0
        items, within, shares = counts.items[can].astype(np.int64), within[:, can], self.people.shares[can]
        p = w @ within
        raised = habits.raised(p, shares)
        if len(w) == 1:
            return weights, items, raised * (1 - p) / (p * (1 - raised))
        low, high = np.zeros(len(items)), np.full(len(items), MAX_LOG_FACTOR)
        for _ in range(60):  # bisection of log s
            s = np.exp((low + high) / 2)
            is_low = w @ (s * within / (1 - within + s * within)) < raised
            low, high = np.where(is_low, (low + high) / 2, low), np.where(is_low, high, (low + high) / 2)
        return weights, items, np.exp((low + high) / 2)
