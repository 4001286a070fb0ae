"""Habits are fitted on the last baskets of customers.

δ, κ and α first maximise the likelihood of each item's being in a later basket or not, given the baskets before it:
Σ_a y_a log p′_a + (1 − y_a) log(1 − p′_a), over the last baskets of customers (:class:`~ndpp.customers.cases.Cases`). Only own items change
it, so that its value for all customers takes one pass over their counts. Then other settings are tried, and the one with the best lists is
taken: it must gain more than two standard errors of recall@10 + NDCG@10 on these customers and more than nothing on others, and lose no
likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.customers.cases import Cases, Chances
from ndpp.customers.others import Others
from ndpp.customers.people import Habits, Missions
from ndpp.customers.store import Trips
from ndpp.laws.law import Law

MIN_CUSTOMERS = 20
"""With fewer customers who came again, habits are not fitted."""
MAX_CUSTOMERS, MAX_ORDERS = 4_000, 60_000
"""Customers on whose last baskets habits are fitted, and others on whom they are tried; fewer if these have more orders."""
EVENNESS = (0.0, 0.25, 0.5, 0.75)
"""γ that are tried."""
MISSION_PRIORS = (5.0, 2.0, 15.0, 50.0)
"""Baskets of the law's missions that a customer's own begin with."""
SHARPER = [(share, strength) for share in (1.0, 0.25) for strength in (0.0, 0.7, 0.8, 0.9)]
"""Parts of the prior, and least strengths, that are tried for better lists."""
NO_HABITS = Habits(strength=0.0)


def halves(trips: Trips, fraction: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return customers who came again, in two parts: those on whom habits are fitted, about this fraction, and others."""
    n_of = np.bincount(trips.who)
    shuffled = rng.permutation(np.flatnonzero(n_of > 1))
    n = min(max(1, round(fraction * len(shuffled))), len(shuffled) - 1)
    first, second = (
        np.sort(part[: max(1, np.searchsorted(np.cumsum(n_of[part]), MAX_ORDERS))])
        for part in (shuffled[:n][:MAX_CUSTOMERS], shuffled[n:][:MAX_CUSTOMERS])
    )
    return first, second


def fit_habits(missions: Missions, *parts: IntArray) -> tuple[Habits, dict[str, Any]]:
    """Return habits that suit the customers of the first part, and a report on what those of the second gain."""
    trials = [Trial(Cases.of(missions.trips, part), missions) for part in parts]
    habits = _most_likely(trials, missions.trips.times is not None)
    if habits.mission_prior is not None:
        unit = habits.mission_prior / MISSION_PRIORS[0]
        habits = best_of(trials, [habits._replace(mission_prior=prior * unit) for prior in MISSION_PRIORS])
    prior, strength = habits.prior, habits.strength
    sharper = [habits._replace(prior=share * prior, strength=max(least, strength)) for share, least in SHARPER]
    habits = best_of(trials, sharper)
    return habits, {"fitted": True, "customers": [len(part) for part in parts], **_report(trials[1], habits)}


def _most_likely(trials: Sequence[Trial], has_times: bool) -> Habits:
    """Return the best habits by basket or by time, of each evenness, with or without own missions; the likeliest first."""
    clocks = [likeliest(trials[0], by_time) for by_time in (False, True)[: 1 + has_times]]
    clocks.sort(key=lambda habits: -trials[0].scores(habits)[1].mean())
    sizes = trials[0].cases.trips.baskets.sizes
    priors = (None, MISSION_PRIORS[0]) if len(trials[0].law.weights) > 1 else (None,)
    ways = [clock.even(gamma, sizes, prior) for prior in priors for clock in clocks for gamma in EVENNESS]
    for trial in trials:
        trial.learn([way for way in ways if way.mission_prior is not None])
    return best_of(trials, ways)


def _report(trial: Trial, habits: Habits) -> dict[str, Any]:
    """Return what customers gain by habits, and by missions of their own."""
    found: dict[str, Any] = {}
    lists, likely, recall = trial.scores(habits)
    _, likely_without, recall_without = trial.scores(NO_HABITS)
    if len(trial.law.weights) > 1:
        others, likely_then, _ = trial.scores(habits._replace(mission_prior=None))
        found["own missions"] = {
            "gain": float((likely - likely_then).mean()),
            "recall@10 + NDCG@10": float((lists - others).mean()),
            "kept": habits.mission_prior is not None,
        }
    found["gain"] = float((likely - likely_without).mean())
    found["recall@10"] = [float(recall.mean()), float(recall_without.mean())]
    return found


def likeliest(trial: Trial, by_time: bool) -> Habits:
    """Return the δ, κ and α that make the targets most likely, with decay by basket or by time."""
    from scipy.optimize import minimize  # takes half a second to import
    from scipy.special import expit, logit

    cases, chances = trial.cases, trial.chances(NO_HABITS)

    def habits_at(x: FloatArray) -> Habits:
        decay, prior, strength = np.clip(x, -8, 8).tolist()
        return Habits(float(expit(decay)), by_time, float(np.exp(prior)), float(expit(strength)))

    start = np.array([logit(0.95), np.log(5.0), logit(0.7)])
    simplex = start + np.vstack([np.zeros(3), np.eye(3)])
    end = minimize(
        lambda x: -np.average(cases.log_likelihood(habits_at(x), chances), weights=cases.last.weights), start, method="Nelder-Mead",
        options={"xatol": 0.05, "fatol": 1e-4, "maxfev": 80, "initial_simplex": simplex},
    )  # fmt: skip
    gaps = cases.weeks[cases.baskets == 0]
    return habits_at(end.x)._replace(gap=float(np.median(gaps)) if cases.trips.times is not None else 1.0)


@dataclass(frozen=True)
class Trial:
    """Cases, and missions by which habits are tried on them. ``sums`` are :meth:`Cases.own_missions` of habits by clock and evenness."""

    cases: Cases
    missions: Missions
    sums: dict[tuple[bool, float], FloatArray] = field(default_factory=dict)
    found: dict[tuple[bool, float, float | None], Chances] = field(default_factory=dict)
    scored: dict[Habits, tuple[FloatArray, FloatArray, FloatArray]] = field(default_factory=dict)

    @property
    def law(self) -> Law:
        """The law of the missions."""
        return self.missions.law

    def learn(self, ways: Sequence[Habits]) -> None:
        """Look up the missions of all baskets once, for these habits, if there are any."""
        found = self.cases.own_missions(ways, self.missions.of) if ways else []
        self.sums.update({(way.by_time, way.evenness): each for way, each in zip(ways, found)})

    def mixed(self, habits: Habits) -> tuple[FloatArray, FloatArray]:
        """Return weights of missions in each case, and chances of all items in each; p of everybody as one mission, without own ones."""
        if (prior := habits.mission_prior) is None:
            return np.ones((len(self.cases.target), 1), np.float32), self.law.popularity[None]
        sums = self.sums[habits.by_time, habits.evenness] + prior * self.law.weights.astype(np.float32)
        return sums / (self.cases.mass(habits) + prior)[:, None], self.law.component_inclusions().astype(np.float32)

    def chances(self, habits: Habits) -> Chances:
        """Return what the law says, with own missions if there are any."""
        prior = habits.mission_prior
        key = (habits.by_time, habits.evenness, prior) if prior is not None else (False, 0.0, None)
        if key not in self.found:
            weights, within = self.mixed(habits)
            self.found[key] = self.cases.chances(lambda part: weights[part] @ within)
        return self.found[key]

    def moved(self, habits: Habits, others: Others) -> Chances:
        """Return p″ of all items: what others say beside the law and habits."""
        cases, (weights, within) = self.cases, self.mixed(habits)
        shares, counts = cases.shares(habits), cases.counts(habits)

        def p_of(part: slice) -> FloatArray:
            chances = np.asarray(weights[part] @ within, np.float64)
            own = cases.pairs_of(part)
            at = cases.owners[own] - part.start, cases.items[own]
            chances[at] = habits.raised(chances[at], shares[own])
            return others.moved(chances, counts[part])

        return cases.chances(p_of)

    def scores(self, habits: Habits, others: Others | None = None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return recall@10 + NDCG@10, the log-likelihood, and recall@10, means over the cases of each customer."""
        if others is not None:
            return self._scores(NO_HABITS, self.moved(habits, others))
        if habits not in self.scored:
            self.scored[habits] = self._scores(habits, self.chances(habits))
        return self.scored[habits]

    def _scores(self, habits: Habits, chances: Chances) -> tuple[FloatArray, FloatArray, FloatArray]:
        cases = self.cases
        recall, ndcg = cases.listed(habits, chances)
        likely = cases.log_likelihood(habits, chances)
        return cases.by_customer(recall + ndcg), cases.by_customer(likely), cases.by_customer(recall)


def best_of(trials: Sequence[Trial], ways: Sequence[Habits]) -> Habits:
    """Return the habits with the best lists in the first trial; the first ones, unless they gain, in the other trial, too.

    They must gain more than two standard errors, on other customers more than nothing, and cost no likelihood.
    """
    best = max(ways, key=lambda way: float(trials[0].scores(way)[0].mean()))
    changes = [[new - old for new, old in zip(trial.scores(best), trial.scores(ways[0]))] for trial in trials]
    first, second = changes[0][0], changes[1][0]
    gains = first.mean() > 2 * error_of(first) and second.mean() > 0
    loses = any(likely.mean() < -error_of(likely) for _, likely, _ in changes)
    return best if gains and not loses else ways[0]


def error_of(values: FloatArray) -> float:
    """Return the standard error of the mean."""
    return float(values.std() / np.sqrt(max(1, len(values))))
