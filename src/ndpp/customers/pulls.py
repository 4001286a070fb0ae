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

from ndpp._types import AnyArray, FloatArray, IntArray, cached_property
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
    recencies: tuple[float, ...] = RECENCIES
    start: FloatArray | None = None
    """The V of most of these customers, if it is known, to begin from."""
    known: dict[tuple[Habits, float], PullSums] = field(default_factory=dict)

    @cached_property
    def later(self) -> IntArray:
        """How many baskets of the same customer are predicted after that of each case."""
        who = self.trial.cases.last.who
        return np.asarray(np.cumsum(np.bincount(who))[who] - 1 - np.arange(len(who)))

    @cached_property
    def own(self) -> FloatArray:
        """The chances of own items without habits, whose strength and prior do not change them."""
        weights, within = self.trial.mixed(self.habits)
        return self.trial.cases.own_chances(lambda part: np.asarray(weights[part] @ within, np.float64))

    @cached_property
    def counts(self) -> Any:
        """What was bought before each case, as vectors of length one, in single precision."""
        counts = self.trial.cases.counts(self.habits)
        return sparse.csr_array(
            sparse.diags_array(1 / np.sqrt(counts.multiply(counts).sum(axis=1))) @ counts, dtype=np.float32
        )

    @cached_property
    def items(self) -> FloatArray:
        """V, orthonormal, from products in single precision."""
        counts = self.counts
        n_cases, n_items = counts.shape
        found, rounds = self.start, 1
        if found is None:
            found, rounds = np.random.default_rng(0).normal(size=(n_items, min(N_FACTORS, n_items, n_cases))), N_ROUNDS
        for _ in range(rounds):
            product = counts.T @ (counts @ found.astype(np.float32))
            found = np.linalg.qr(product.astype(np.float64))[0]
        return found

    @cached_property
    def vectors(self) -> AnyArray:
        """The vector of each case, and a 1."""
        vectors = self.counts @ self.items.astype(np.float32)
        return np.hstack([vectors, np.ones((len(vectors), 1), np.float32)])

    def learn(self, habits: Habits) -> None:
        """Sum up what is learned from, for each ρ and any penalty: cases of one age count by the same power of ρ."""
        cases, (missions, within) = self.trial.cases, self.trial.mixed(habits)
        by_habit = cases.matrix(habits.raised(self.own, cases.shares(habits)) - self.own)
        rest = cases.last.baskets.to_csr() - by_habit
        each = rest.astype(np.float32), missions.astype(np.float32), by_habit.astype(np.float32)
        sums: dict[float, list[FloatArray]] = {}
        for age in range(int(self.later.max()) + 1):
            at = np.flatnonzero(self.later == age)
            vectors = self.vectors[at]
            weighted = vectors * cases.last.weights[at, None].astype(np.float32)
            own_sums = [one[at].T @ weighted[:, start:] for one, start in zip(each, (0, 0, -1))]
            for recency in self.recencies:
                found = sums.setdefault(recency, [np.zeros(1)] * 4)
                found[:] = (total + recency**age * one for total, one in zip(found, [vectors.T @ weighted, *own_sums]))
        for recency, (squares, rests, of_missions, habitual) in sums.items():
            mass, mean = squares[-1, -1], squares[:-1, -1] / squares[-1, -1]
            by_mission = within.T @ of_missions
            targets, usual = rests - by_mission, by_mission[:, -1] / mass
            values, Q = np.linalg.eigh(squares[:-1, :-1] - mass * np.outer(mean, mean))
            self.known[habits, recency] = PullSums(
                Q.T @ (targets[:, :-1] - np.outer(targets[:, -1], mean)).T, values, self.items @ Q, mean @ Q,
                habitual[:, 0] / mass + usual, targets[:, -1] / mass,
            )  # fmt: skip

    def learned(self, habits: Habits, recency: float, penalty: float) -> Others:
        """Return what others add to the chances from habits."""
        if (habits, recency) not in self.known:
            self.learn(habits)
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
    whole = Learner(_trial(missions, _some(again), habits), habits, (way[1],), learner.items)
    return way[0], whole.learned(*way), {"others": found, "recall@10": recalls}


def _trial(missions: Missions, customers: IntArray, habits: Habits, n_targets: int = N_LEARNED) -> Trial:
    """Return cases of customers, with their missions if they matter."""
    trial = Trial(Cases.of(missions.trips, customers, n_targets), missions)
    trial.learn([habits] if habits.mission_prior is not None else [])
    return trial


def _some(customers: IntArray) -> IntArray:
    """Return at most ``MAX_LEARNED`` customers, evenly."""
    return np.asarray(customers[np.linspace(0, len(customers) - 1, min(MAX_LEARNED, len(customers))).astype(int)])
