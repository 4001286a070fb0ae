"""What customers learn from each other, in closed form: which items such a history pulls into the next basket.

V are the leading right singular vectors of the histories h / ‖h‖. With the residuals y_a − p′_a of last baskets, whether item a was in them
minus the chance from habit, least squares give w_a = (Z̃ᵀZ̃ + λ (p̄ / p̄_a) I)⁻¹ Z̃ᵀ(y_a − p′_a): the penalty is larger for rare items.
Z̃ are the centred vectors of customers, p̄_a is the mean of p′_a, and p̄ that of p̄_a, weighted by itself. The last ten baskets of a
customer count 1, ρ, ρ², …: where tastes change, later ones say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray, IntArray, cached_property
from ndpp.customers.cases import N_TARGETS, Cases
from ndpp.customers.fitting import NO_HABITS, Trial, error_of
from ndpp.customers.others import Others
from ndpp.customers.people import Habits, Missions

N_FACTORS = 256
"""Most numbers of a customer's vector."""
N_ROUNDS = 4
"""Rounds of subspace iteration: singular vectors need not be exact, as any V will do."""
MAX_LEARNED = 20_000
"""Most customers whose last baskets are learned from."""
RECENCIES, PENALTIES = (0.6, 0.1, 0.9), (100.0, 30.0, 10.0, 300.0, 1000.0)
"""ρ that are tried with the first λ, and λ that are tried then."""
N_LEARNED = 10
"""Last baskets of each customer that are learned from."""
FEW = 1_500
"""With fewer customers to judge by, the last three baskets of each are predicted, and not the last one alone."""
SHARPER = [(1.0, 0.8), (2.0, 0.8)]
"""Parts of the prior κ, and least strengths α, that are tried then."""

Way: TypeAlias = tuple[Habits, float, float]
"""Habits, ρ and λ."""


class PullSums(NamedTuple):
    """What cases say that count by ρ: Z̃ᵀ(y − p′) in the eigenvectors, the eigenvalues, V Q, z̄ Q, p̄ and the mean of y − p′."""

    targets: FloatArray
    values: FloatArray
    items: FloatArray
    mean: FloatArray
    chances: FloatArray
    rest: FloatArray


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns from cases, from the chances that a law says and habits raise. Decay and evenness are those of ``habits``."""

    trial: Trial
    habits: Habits
    known: dict[tuple[Habits, float], PullSums] = field(default_factory=dict)

    def weights(self, recency: float) -> FloatArray:
        """Return how much each case counts."""
        last = self.trial.cases.last
        later = np.cumsum(np.bincount(last.who))[last.who] - 1 - np.arange(len(last.who))
        return np.asarray(last.weights * recency**later)

    @cached_property
    def counts(self) -> Any:
        """What was bought before each case, as vectors of length one."""
        counts = self.trial.cases.counts(self.habits)
        return sparse.csr_array(sparse.diags_array(1 / np.sqrt(counts.multiply(counts).sum(axis=1))) @ counts)

    @cached_property
    def items(self) -> FloatArray:
        """V, orthonormal, from products in single precision."""
        counts = self.counts.astype(np.float32)
        n_cases, n_items = counts.shape
        found = np.random.default_rng(0).normal(size=(n_items, min(N_FACTORS, n_items, n_cases)))
        for _ in range(N_ROUNDS):
            product = counts.T @ (counts @ found.astype(np.float32))
            found = np.linalg.qr(product.astype(np.float64))[0]
        return found

    @cached_property
    def vectors(self) -> FloatArray:
        """The vector of each case."""
        return np.asarray(self.counts @ self.items)

    def sums(self, habits: Habits, recency: float) -> PullSums:
        """Return what is learned from, for any penalty."""
        cases, own, weights = self.trial.cases, self.trial.chances(habits).own, self.weights(recency)
        by_habit = cases.matrix(habits.raised(own, cases.shares(habits)) - own)
        rest, share = cases.last.baskets.to_csr() - by_habit, weights / weights.sum()
        missions, within = self.trial.mixed(habits)
        usual = (share @ missions) @ within
        mean = share @ self.vectors
        centred = self.vectors - mean
        weighted = weights[:, None] * centred
        values, Q = np.linalg.eigh(centred.T @ weighted)
        targets = Q.T @ (weighted.T @ rest - (weighted.T @ missions) @ within)
        return PullSums(targets, values, self.items @ Q, mean @ Q, share @ by_habit + usual, share @ rest - usual)

    def learned(self, habits: Habits, recency: float, penalty: float) -> Others:
        """Return what others add to the chances from habits."""
        if (habits, recency) not in self.known:
            self.known[habits, recency] = self.sums(habits, recency)
        targets, values, items, mean, chances, rest = self.known[habits, recency]
        scale = penalty * (chances @ chances) / chances.sum()
        pulls = targets / (np.maximum(values, 0.0)[:, None] + scale / np.maximum(chances, 1e-12))
        shift = rest - mean @ pulls
        return Others(items.astype(np.float32), pulls.astype(np.float32), shift.astype(np.float32))


def fit_others(missions: Missions, judges: IntArray, habits: Habits) -> tuple[Habits, Others | None, dict[str, Any]]:
    """Return habits and what customers learn from each other, None if that does not gain; and a report.

    ρ, λ, κ and α are chosen, and what is gained is judged, on the last baskets of customers who are not learned from: more than two
    standard errors of recall@10 + NDCG@10, and no loss of likelihood. Then all customers are learned from.
    """
    again = np.flatnonzero(np.bincount(missions.trips.who) > 1)
    trial = _trial(missions, judges, habits, N_TARGETS if len(judges) < FEW else 1)
    learner = Learner(_trial(missions, _some(np.setdiff1d(again, judges)), habits), habits)
    plain = trial.scores(habits)
    tried: dict[Way, Sequence[FloatArray]] = {}

    def best(ways: Sequence[Way]) -> Way | None:
        """Try some more ways, and return the best of all so far that do not lower the likelihood."""
        for way in ways:
            found = trial.scores(way[0], learner.learned(*way))
            tried[way] = [new - old for new, old in zip(found, plain)]
        able = [way for way, (_, likely, _) in tried.items() if likely.mean() > -error_of(likely)]
        return max(able, key=lambda way: float(tried[way][0].mean()), default=None)

    way = best([(habits, recency, PENALTIES[0]) for recency in RECENCIES])
    if way is not None:
        way = best([(habits, way[1], penalty) for penalty in PENALTIES[1:]]) or way
        others = [
            habits._replace(prior=part * habits.prior, strength=max(least, habits.strength)) for part, least in SHARPER
        ]
        way = best([(one, *way[1:]) for one in others]) or way
    if way is None or tried[way][0].mean() <= 2 * error_of(tried[way][0]):
        return habits, None, {"others": {"kept": False}}
    lists, likely, recall = tried[way]
    found = {
        "recall@10 + NDCG@10": float(lists.mean()),
        "gain": float(likely.mean()),
        "kept": True,
        "way": list(way[1:]),
    }
    recalls = [float((plain[2] + recall).mean()), float(trial.scores(NO_HABITS)[2].mean())]
    whole = Learner(_trial(missions, _some(again), habits), habits)
    return way[0], whole.learned(*way), {"others": found, "recall@10": recalls}


def _trial(missions: Missions, customers: IntArray, habits: Habits, n_targets: int = N_LEARNED) -> Trial:
    """Return cases of customers, with their missions if they matter."""
    trial = Trial(Cases.of(missions.trips, customers, n_targets), missions)
    trial.learn([habits] if habits.mission_prior is not None else [])
    return trial


def _some(customers: IntArray) -> IntArray:
    """Return at most ``MAX_LEARNED`` customers, evenly."""
    return np.asarray(customers[np.linspace(0, len(customers) - 1, min(MAX_LEARNED, len(customers))).astype(int)])
