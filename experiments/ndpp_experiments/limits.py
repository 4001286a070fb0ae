"""Beyond the paper: exact samples under limits, against proposals without tilts and against repaired samples.

*Tilted* is what ``law.sample(limits=…)`` does. *Without tilts*, sets are drawn until one keeps the limits: the same distribution, and one
over the probability of the limits as many draws. *Repaired* sets are what is often done instead: a set is drawn, items above a bound are
dropped at random, and missing ones are added greedily, by their probability beside the set. It takes one draw and has another distribution;
how far off it is can be seen on a law small enough to enumerate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.datasets import load_complete_journey
from ndpp.errors import MissingExtraError
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.mixture import Mixture
from ndpp_experiments.groceries import DAIRY, MEAT, VEGETABLES, Goods, load_goods
from ndpp_experiments.plots import Bar, rejections
from ndpp_experiments.record import Finding, Result, Say, number
from ndpp_experiments.timing import Stopwatch

NEGLIGIBLE_P, MAX_DEVIATIONS = 1e-4, 4.0
"""A smaller p-value would show another distribution, and estimates are within this many standard errors of exact values."""
N_SMALL = 9
"""Items of the law that is enumerated."""


class LimitRow(NamedTuple):
    """One list of limits on a large law: P(limits) with its standard error, and seconds per sample; ``prepare_s`` is those to the first."""

    limits: str
    chance: float
    error: float
    exact: float | None
    proposals: float
    proposals_untilted: float
    prepare_s: float
    seconds: float
    seconds_untilted: float
    samples: int


class MethodRow(NamedTuple):
    """A way to draw from a small law under limits: its distance in total variation from the truth, that of its noise, and a p-value."""

    method: str
    samples: int
    distance: float
    noise: float
    p: float
    exact: bool


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Draw under limits from a learned law, or a synthetic one, and from one that is enumerated."""
    name, law, cases = _small_law(seed) if quick else _large_law(seed, say)
    found = [_timed(law, case, limits, 20 if quick else 200, seed) for case, limits in cases.items()]
    say(name)
    methods = _methods(200 if quick else 5000, seed)
    known = [row for row in found if row.exact is not None]
    findings = [
        Finding("P(limits) of accepted proposals and from generating functions, largest difference in standard errors", "",
                number(max(abs(row.chance - (row.exact or 0.0)) / row.error for row in known)),
                all(abs(row.chance - (row.exact or 0.0)) < MAX_DEVIATIONS * row.error for row in known)),
        *(Finding(row.limits, "", f"{number(row.proposals)} proposals, {number(1e3 * row.seconds)} ms; "
                  f"without tilts {number(row.proposals_untilted)}, {number(1e3 * row.seconds_untilted)} ms") for row in found),
        *(Finding(f"{row.method}: total variation from the truth (noise of {row.samples:,} draws)", "",
                  f"{number(row.distance)} ({number(row.noise)}), p = {number(row.p)}",
                  row.p > NEGLIGIBLE_P if row.exact else None) for row in methods),
    ]  # fmt: skip
    bars = [
        Bar(row.limits, series, value, expected=expected)
        for row in found
        for series, value, expected in (
            ("tilted", row.proposals, False),
            ("without tilts", row.proposals_untilted, True),
        )
    ]
    note = "(*) expected, one over the probability of the limits; not run"
    figure = rejections(bars, xlabel="proposals for one sample", note=note)
    return Result({"law": name}, findings, {"": found, "methods": methods}, figure, NOTES)


NOTES = (
    "*Tilted* proposals follow the components of the law with the odds of items times e^{θ·c}, and are accepted so that samples are exact. "
    "Without tilts, a sample takes 1 / P(limits) proposals on average: their number and time are expected values. Prices are "
    "medians of what was paid. *Repaired* sets lose items above a bound at random and get the most probable missing ones.",
)


def _timed(law: Law, case: str, limits: list[Limit], count: int, seed: int) -> LimitRow:
    watch = Stopwatch()
    with watch:
        sampler = law.sampler(limits=limits)
        sampler.sample(1, rng=seed + 2)  # prepares the component that it comes from
    sampler.sample(count, rng=seed + 1)  # prepares the others
    with watch:
        proposals = sampler.sample(count, rng=seed).totals["proposals"] / count
    estimate = sampler.estimate()
    rate, error = estimate.value, estimate.error
    bound = float(np.exp(sampler.log_bound))
    exact = law.probability(limits) if len(limits) == 1 else None
    plain = law.sampler()
    plain.sample(50, rng=seed)
    with watch:
        plain.sample(50, rng=seed + 1)
    untilted = 1 / (rate * bound)
    return LimitRow(
        case, rate * bound, error * bound, exact.value if exact is not None and exact.exact else None, proposals, untilted,
        watch.wall[0], watch.cpu[1] / count, untilted * watch.cpu[2] / 50, count,
    )  # fmt: skip


# -- laws --------------------------------------------------------------------------------------------------------------------


def _synthetic(n_items: int, n_components: int, rank: int, mean_size: float, seed: int) -> Mixture:
    rng = np.random.default_rng(seed)
    odds = rng.gamma(0.5, 1.0, (n_components, n_items))
    X, W = rng.normal(size=(n_items, rank)) / np.sqrt(rank), np.kron(np.eye(rank // 2), [[0.3, 1.0], [-1.0, 0.3]])
    return Mixture.tied(odds * mean_size / n_items * 2, X, W, np.full(n_components, 1 / n_components))


def _small_law(seed: int) -> tuple[str, Law, dict[str, list[Limit]]]:
    law = _synthetic(60, 5, 8, 8.0, seed)
    prices = np.round(np.random.default_rng(seed).uniform(1, 8, 60), 1)
    few, many = list(range(20)), list(range(20, 60))
    return "synthetic mixture, n = 60, 5 components", law, {
        "exactly 5 of 20 items": [Limit(few, 5, 5)],
        "2 of 20 and 1 of 40 items": [Limit(few, 2, 2), Limit(many, 1, 1)],
        "at most 15 dollars": [Limit(prices, most=15.0)],
    }  # fmt: skip


def _large_law(seed: int, say: Say) -> tuple[str, Law, dict[str, list[Limit]]]:
    """Return groceries, as in the demonstration; a synthetic law where their data are missing."""
    try:
        baskets = load_complete_journey()
        goods = load_goods(baskets.labels or ())
    except MissingExtraError:
        return _small_law(seed)
    from ndpp.learning import MixtureNDPP  # needs torch

    train, validation, _ = baskets.split(500, 1000, rng=0)
    model = MixtureNDPP(60, rank=40, families=None, max_epochs=4, random_state=seed)
    law = model.fit(train[:20_000], validation=validation).law_
    say("learned")
    return f"groceries, n = {law.n_items:,}, {len(law.weights)} components", law, cases_of(goods)


def cases_of(goods: Goods) -> dict[str, list[Limit]]:
    """Return limits on groceries, from common to rare."""
    groups = {"dairy": goods.of(*DAIRY), "meat": goods.of(*MEAT), "vegetables": goods.of(*VEGETABLES)}
    groups["others"] = sorted(set(range(len(goods.price))) - {item for own in groups.values() for item in own})

    def exactly(**counts: int) -> list[Limit]:
        return [Limit(groups[name], count, count, name=name) for name, count in counts.items()]

    def budget(dollars: float) -> Limit:
        return Limit(goods.price, most=dollars, name="dollars")

    return {
        "at most 20 dollars": [budget(20)],
        "2 dairy, 1 meat": exactly(dairy=2, meat=1),
        "1 dairy, 1 meat, 2 vegetables": exactly(dairy=1, meat=1, vegetables=2),
        "2 meat, at most 15 dollars": [*exactly(meat=2), budget(15)],
        "3 dairy, 2 meat, 5 vegetables": exactly(dairy=3, meat=2, vegetables=5),
        "2 dairy, 1 meat, 2 vegetables, 3 others": exactly(dairy=2, meat=1, vegetables=2, others=3),
        "exactly 10 meat": exactly(meat=10),
    }


# -- a law that is enumerated ------------------------------------------------------------------------------------------------


def _methods(count: int, seed: int) -> list[MethodRow]:
    law = _synthetic(N_SMALL, 3, 4, 3.0, seed)
    few, prices = Limit([0, 1, 2, 3], 2, 2), np.round(np.random.default_rng(seed).uniform(1, 8, N_SMALL), 1)
    limits = [few, Limit(prices, most=float(np.median(prices) * 4))]
    within = Limits.of(limits, law)
    sets = [np.array(S, np.int64) for k in range(N_SMALL + 1) for S in combinations(range(N_SMALL), k)]
    kept = [sets[i] for i in np.flatnonzero(within.kept_by(Baskets.from_lists(sets, n_items=N_SMALL)))]
    p = np.exp(law.log_probs(Baskets.from_lists(kept, n_items=N_SMALL)))
    truth, rng = {tuple(S.tolist()): float(x) for S, x in zip(kept, p / p.sum())}, np.random.default_rng(seed)
    drawn = law.sample(int(3 * count / p.sum()), rng=seed)
    untilted = (S for S, is_kept in zip(drawn, within.kept_by(drawn)) if is_kept)
    methods: dict[str, tuple[Callable[[], Baskets | list[IntArray]], bool]] = {
        "tilted": (lambda: law.sample(count, limits=limits, rng=seed), True),
        "without tilts": (lambda: [S for S, _ in zip(untilted, range(count))], True),
        "repaired": (lambda: [repaired(law, S, within, rng) for S in law.sample(count, rng=seed)], False),
    }
    return [_judged(name, draw(), truth, exact) for name, (draw, exact) in methods.items()]


def repaired(law: Law, items: IntArray, limits: Limits, rng: np.random.Generator) -> IntArray:
    """Return a set that keeps the limits as far as this can do it: drop items above a bound at random, add the most probable ones."""
    found = rng.permutation(items.tolist()).astype(np.int64).tolist()
    for values, high in zip(limits.values, limits.high):
        while values[found].sum() > high:
            found.pop(next(place for place, item in enumerate(found) if values[item] > 0))
    for j, low in enumerate(limits.low):
        while limits.values[j, found].sum() < low:
            beside = law.inclusion_probabilities(given=found) * (limits.values[j] > 0)
            beside[found] = 0.0
            room = limits.high - limits.totals(np.array(found, np.int64))
            beside[(limits.values > room[:, None]).any(axis=0)] = 0.0
            if not beside.any():
                break
            found.append(int(np.argmax(beside)))
    return np.sort(np.array(found, np.int64))


def _judged(
    method: str, drawn: Baskets | list[IntArray], truth: dict[tuple[int, ...], float], exact: bool
) -> MethodRow:
    counts, n = Counter(tuple(items.tolist()) for items in drawn), len(drawn)
    expected: FloatArray = n * np.array(list(truth.values()))
    seen: FloatArray = np.array([float(counts[S]) for S in truth])
    outside = n - int(seen.sum())  # sets that break the limits
    distance = (float(np.abs(seen - expected).sum()) + outside) / (2 * n)
    noise = float(np.sqrt(2 * expected / np.pi).sum()) / (2 * n)
    order = np.argsort(-expected)
    groups = np.minimum(np.arange(len(order)), max(1, int((expected >= 10).sum())))  # rare sets together
    seen, expected = (np.asarray(np.bincount(groups, values[order]), np.float64) for values in (seen, expected))
    some = expected > 0
    statistic = float(((seen - expected)[some] ** 2 / expected[some]).sum()) if not outside else np.inf
    return MethodRow(method, n, distance, noise, float(chdtrc(some.sum() - 1, statistic)), exact)
