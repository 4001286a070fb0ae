"""What customers learn from each other, in closed form: which items such a history pulls into the next basket.

V are the leading right singular vectors of the histories h / ‖h‖. With the residuals y_a − p′_a of last baskets, whether item a was in them
minus the chance from habit, least squares give w_a = (Z̃ᵀZ̃ + λ (p̄ / p̄_a) I)⁻¹ Z̃ᵀ(y_a − p′_a): the penalty is larger for rare items.
Z̃ are the centred vectors of customers, p̄_a is the mean of p′_a, and p̄ that of p̄_a, weighted by itself. The last ten baskets of a
customer count 1, ρ, ρ², …: where tastes change, later ones say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray, IntArray, cached_property
from ndpp.customers.cases import N_TARGETS, Cases
from ndpp.customers.fitting import NO_HABITS, Trial, error_of
from ndpp.customers.others import Others
from ndpp.customers.people import Habits
from ndpp.customers.store import Trips
from ndpp.laws.law import Law

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


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns from cases, from the chances that a law says and habits raise. Decay and evenness are those of ``habits``."""

    trial: Trial
    habits: Habits
    recency: float

    @cached_property
    def weights(self) -> FloatArray:
        """How much each case counts."""
        last = self.trial.cases.last
        later = np.cumsum(np.bincount(last.who))[last.who] - 1 - np.arange(len(last.who))
        return np.asarray(last.weights * self.recency**later)

    @cached_property
    def counts(self) -> Any:
        """What was bought before each case, as vectors of length one."""
        counts = self.trial.cases.counts(self.habits)
        return sparse.csr_array(sparse.diags_array(1 / np.sqrt(counts.multiply(counts).sum(axis=1))) @ counts)

    @cached_property
    def items(self) -> FloatArray:
        """V, orthonormal."""
        n_cases, n_items = self.counts.shape
        found = np.random.default_rng(0).normal(size=(n_items, min(N_FACTORS, n_items, n_cases)))
        for _ in range(N_ROUNDS):
            found = np.linalg.qr(self.counts.T @ (self.counts @ found))[0]
        return found

    @cached_property
    def vectors(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """V Q, the mean vector, Z̃ times weights, and the eigenvalues of Z̃ᵀZ̃, in its eigenvectors Q."""
        weights, vectors = self.weights, self.counts @ self.items
        mean = np.average(vectors, axis=0, weights=weights)
        centred = vectors - mean
        values, Q = np.linalg.eigh(centred.T @ (weights[:, None] * centred))
        return self.items @ Q, mean @ Q, (weights[:, None] * centred) @ Q, values

    def learned(self, habits: Habits, penalty: float) -> Others:
        """Return what others add to the chances from habits."""
        cases, own = self.trial.cases, self.trial.chances(habits).own
        raised = habits.raised(own, cases.shares(habits)) - own
        by_habit = sparse.csr_array((raised, (cases.owners, cases.items)), shape=self.counts.shape)
        rest, share = cases.last.baskets.to_csr() - by_habit, self.weights / self.weights.sum()
        missions, within = self.trial.mixed(habits)
        items, mean, centred, values = self.vectors
        usual = (share @ missions) @ within
        chances = share @ by_habit + usual
        scale = penalty * (chances @ chances) / chances.sum()
        targets = centred.T @ rest - (centred.T @ missions) @ within
        pulls = targets / (np.maximum(values, 0.0)[:, None] + scale / np.maximum(chances, 1e-12))
        shift = share @ rest - usual - mean @ pulls
        return Others(items.astype(np.float32), pulls.astype(np.float32), shift.astype(np.float32))


def fit_others(
    law: Law, trips: Trips, judges: IntArray, habits: Habits
) -> tuple[Habits, Others | None, dict[str, Any]]:
    """Return habits and what customers learn from each other, None if that does not gain; and a report.

    ρ, λ, κ and α are chosen, and what is gained is judged, on the last baskets of customers who are not learned from: more than two
    standard errors of recall@10 + NDCG@10, and no loss of likelihood. Then all customers are learned from.
    """
    again = np.flatnonzero(np.bincount(trips.who) > 1)
    trial, before = (
        _trial(law, trips, judges, habits, N_TARGETS if len(judges) < FEW else 1),
        _trial(law, trips, _some(np.setdiff1d(again, judges)), habits),
    )
    plain, learners = trial.scores(habits), {each: Learner(before, habits, each) for each in RECENCIES}
    tried: dict[Way, Sequence[FloatArray]] = {}

    def best(ways: Sequence[Way]) -> Way | None:
        """Try some more ways, and return the best of all so far that do not lower the likelihood."""
        for way in ways:
            found = trial.scores(way[0], learners[way[1]].learned(way[0], way[2]))
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
    whole = Learner(_trial(law, trips, _some(again), habits), habits, way[1])
    return way[0], whole.learned(way[0], way[2]), {"others": found, "recall@10": recalls}


def _trial(law: Law, trips: Trips, customers: IntArray, habits: Habits, n_targets: int = N_LEARNED) -> Trial:
    """Return cases of customers, with their missions if they matter."""
    trial = Trial(Cases.of(trips, customers, n_targets), law)
    trial.learn([habits] if habits.mission_prior is not None else [])
    return trial


def _some(customers: IntArray) -> IntArray:
    """Return at most ``MAX_LEARNED`` customers, evenly."""
    return np.asarray(customers[np.linspace(0, len(customers) - 1, min(MAX_LEARNED, len(customers))).astype(int)])
