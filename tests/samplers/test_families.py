"""Samples of mixtures over families against enumeration."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import reduce
from itertools import combinations

import numpy as np
import pytest

import goodness
import oracles
from families import CASES, N, law_of, mixed, plain
from kernels import BY_NAME
from ndpp import FamilyMixture
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, ZeroProbabilityError
from ndpp.samplers import components as module
from ndpp.samplers import proposer, shared, unions
from ndpp.samplers.family_parts import FamilyParts
from ndpp.samplers.shared import TiedParts


@pytest.mark.parametrize(
    "name", ["several", "purely skew", "states in any order", "one family", "zero odds", "in nearly every basket"]
)
def test_sets_of_any_size(name: str):
    goodness.assert_law(law_of(name).sample(800, rng=1), mixed(name))


@pytest.mark.parametrize("name", ["several", "badly scaled rows", "one family", "zero odds"])
def test_sets_of_one_size(name: str):
    size = 2 if name in ("zero odds", "one family") else 3
    expected = mixed(name, lambda S: len(S) == size)
    goodness.assert_law(law_of(name).sample(450, size=size, rng=2), expected)


@pytest.mark.parametrize(("given", "exclude", "size"), [((2, 0), (4,), None), ((3,), (0,), 3)])
def test_given_and_excluded_items(given: tuple[int, ...], exclude: tuple[int, ...], size: int | None):
    draws = law_of("several").sample(500, given=given, exclude=exclude, size=size, rng=3)
    expected = mixed("several", lambda S: set(given) <= set(S) and not set(exclude) & set(S) and size in (None, len(S)))
    goodness.assert_law(draws, expected)


def test_one_component():
    goodness.assert_law(law_of("several").sample(800, component=1, rng=4), plain("several")[0][1])


def test_a_draw_depends_on_seed_and_index_alone():
    for size in (None, 3):
        sampler = law_of("several").sampler(size=size)
        whole = sampler.sample(40, rng=5).baskets.to_lists()
        assert sampler.sample(40, rng=5, n_jobs=2).baskets.to_lists() == whole
        assert sampler.sample(3, rng=5, first=17).baskets.to_lists() == whole[17:20]
        assert pickle.loads(pickle.dumps(sampler)).sample(7, rng=5).baskets.to_lists() == whole[:7]
        forgetful = law_of("several").sampler(size=size, memory=1)
        assert len(forgetful.drawers.parts.memory) <= 1
        assert forgetful.sample(12, rng=5).baskets.to_lists() == whole[:12]


def test_errors():
    law = law_of("zero odds")
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 5 items; got size 6"):
        law.sample(size=6)
    with pytest.raises(ImpossibleSizeError, match="2 are given, but size is 1: ask for at least 2"):
        law.sample(size=1, given=[1, 2])
    with pytest.raises(ZeroProbabilityError):
        law.sample(given=[0])
    several = law_of("several")
    assert several.sample(2, given=range(N), rng=0).to_lists() == [list(range(N))] * 2
    assert several.sample(2, exclude=range(N), rng=0).to_lists() == [[], []]
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 6"):
        several.sample(given=range(N), size=7)


def test_control_a_family_that_is_touched_shows_an_item(monkeypatch: pytest.MonkeyPatch):
    """Items of the families drawn without the condition that there is one follow another law."""

    def unconditioned(self, rng: np.random.Generator, families: np.ndarray) -> np.ndarray:
        own = self.cumulated[families]
        state = (own <= rng.random((len(families), 1)) * own[:, -1:]).sum(axis=1)
        pair, items = self.patterns.items_of(families)
        return items[rng.random(len(items)) < -np.expm1(-self.log_rest[items, state[pair]])]

    monkeypatch.setattr(FamilyParts, "items_of", unconditioned)
    with pytest.raises(AssertionError):
        goodness.assert_law(law_of("several").sample(800, rng=1), mixed("several"))


def test_control_ties_are_between_families():
    """With the determinant over the items of a set, each with the row of its family, the law is another."""
    case, ties = CASES["one component"], BY_NAME["generic"]
    X = ties.X[case.families]
    G, weights = np.eye(N) + X @ ties.W @ X.T, {}
    families = np.eye(3) + ties.X[:3] @ ties.W @ ties.X[:3].T
    for S, p in mixed("one component").items():
        A = sorted({case.families[i] for i in S})
        weights[S] = p * np.linalg.det(G[np.ix_(S, S)]) / np.linalg.det(families[np.ix_(A, A)])
    wrong: oracles.Law = {S: float(w / sum(weights.values())) for S, w in weights.items()}
    draws = law_of("one component").sample(3000, rng=1)
    goodness.assert_law(draws, mixed("one component"))
    with pytest.raises(AssertionError):
        goodness.assert_law(draws, wrong)


@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
def test_sizes_that_would_take_too_many_proposals_are_drawn_item_by_item():
    """Families that hardly ever come, and then with all their items, have hardly any set of one item."""
    odds, families = np.full((1, 4), 1e-12), np.repeat(np.arange(4), 5)
    law = FamilyMixture(odds, np.ones((20, 1)), families, range(4), np.zeros((4, 1)), [[0.0]], [1.0])
    sampler = law.sampler(size=1)
    assert sampler.drawers.expected(sampler.cdf) > proposer.MAX_EXPECTED
    assert law.sample(2, size=1, rng=0).sizes.tolist() == [1, 1]
    cdf, drawers = sampler.drawers.checked(sampler.cdf)
    exact = replace(sampler, log_weights=np.log(cdf), drawers=drawers)
    goodness.assert_law(exact.sample(300, rng=1).baskets, {(i,): 1 / 20 for i in range(20)})


# -- families of which all items come or none --------------------------------------------------------------------------------


def all_or_none(n_families: int = 8, size: int = 30, odds: float = 1e4, touched: float = 1e-6) -> FamilyMixture:
    """Families that are hardly ever touched, and then with all their items."""
    rng = np.random.default_rng(0)
    log_odds = np.log(touched) + rng.normal(size=(2, n_families)) - size * np.log1p(odds)
    X, B = 0.5 * rng.normal(size=(n_families, 3)), rng.normal(size=(3, 3))
    families, item_odds = np.repeat(np.arange(n_families), size), np.full((n_families * size, 1), odds)
    return FamilyMixture(np.exp(log_odds), item_odds, families, range(n_families), X, np.eye(3) + B - B.T, [0.3, 0.7])


def of_families(law: FamilyMixture, count: int) -> oracles.Law:
    """The distribution of ``count`` whole families; sets of as many items that touch more of them have less than 1e-30 of it."""
    G, totals = np.eye(len(law.base.X)) + law.base.X @ law.base.W @ law.base.X.T, np.exp(law.log_normalizers())
    weights: oracles.Law = {}
    for A in combinations(range(len(G)), count):
        logs = np.log(law.odds[:, A]) + law.n_items // len(G) * np.log(law.patterns.odds[0, 0])
        weights[A] = float(np.linalg.det(G[np.ix_(A, A)]) * (law.weights * np.exp(logs.sum(axis=1)) / totals).sum())
    return {A: weight / sum(weights.values()) for A, weight in weights.items()}


def families_drawn(sampler, n_samples: int) -> list[np.ndarray]:
    """Draw sets, all of them of whole families, as families."""
    baskets, patterns = sampler.sample(n_samples, rng=3).baskets, sampler.kernel.patterns
    found = [np.unique(patterns.families[basket]) for basket in baskets]
    assert all(np.array_equal(basket, patterns.items_of(own)[1]) for basket, own in zip(baskets, found))
    return found


def test_sizes_that_need_a_fine_tilt_are_drawn():
    """With tilts on the usual grid they would take more than 10,000 proposals."""
    law = all_or_none()
    sampler = law.sampler(size=180)
    assert sampler.drawers.expected(sampler.cdf) > proposer.MAX_EXPECTED
    assert law.sample(1, size=180, rng=0).sizes.tolist() == [180]
    cdf, begun = sampler.drawers.finer
    assert begun.expected(cdf) < 10
    weights = np.log(np.diff(cdf, prepend=0.0))
    finer = replace(sampler, log_weights=weights, drawers=begun)
    goodness.assert_law(families_drawn(finer, 450), of_families(law, 6))
    wrong = replace(finer, log_weights=weights[::-1])  # a negative control: the weights of the components exchanged
    with pytest.raises(AssertionError):
        goodness.assert_law(families_drawn(wrong, 450), of_families(law, 6))


def test_items_by_themselves_are_drawn_with_a_fine_tilt(monkeypatch: pytest.MonkeyPatch):
    """With tilts on the usual grid alone, hardly any set of families that come by themselves has three of them."""
    law, size = all_or_none(6, 20, 1e6, 0.2), 60
    assert law.size_distribution()[size] > 0.1
    none, store = np.arange(0), TiedParts(law, law.memory.within(2**28))
    assert store.counts(0, 0, size, none).tilted_chance(size, none) < 1e-9
    assert store.counts(0, 0, size, none, True).tilted_chance(size, none) > 0.1
    monkeypatch.setattr(unions, "SIZED_BUDGET", 1000)
    goodness.assert_law(families_drawn(law.sampler(size=size), 400), of_families(law, 3))
    monkeypatch.setattr(module, "RARE", 0.0)
    with pytest.raises((AssertionError, BudgetExceededError)):
        goodness.assert_law(families_drawn(law.sampler(size=size), 400), of_families(law, 3))


def test_the_chance_of_whole_families_keeps_its_digits():
    """With a tilt on the usual grid it was rounded to zero, and sets of families that all come by themselves never came."""
    law, none = all_or_none(touched=0.2), np.arange(0)
    odds = law.touched.odds[0]
    expected = reduce(np.convolve, np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1))[4] / (1 + 1e-4) ** 120
    coarse, fine = (
        TiedParts(law, law.memory.within(2**28)).counts(0, 0, 120, none, is_fine) for is_fine in (False, True)
    )
    assert coarse.tilted_chance(120, none) < module.ROUNDING
    assert fine.untilted(fine.tilted_chance(120, none), 120, none) == pytest.approx(expected, rel=1e-9)


# -- given items of families that bring many others --------------------------------------------------------------------------


def test_given_families_that_bring_many_items_take_few_proposals(monkeypatch: pytest.MonkeyPatch):
    """Components are tilted to fewer items, so that small sets with one of them are drawn soon, and by the same distribution."""
    rng, n_large, n_families = np.random.default_rng(0), 14, 9
    families = np.append(np.zeros(n_large, np.int64), np.arange(1, n_families))
    item_odds = np.where(families == 0, 1.2, 1.0)[:, None] * rng.uniform(0.8, 1.25, size=(len(families), 1))
    state_odds = rng.uniform(0.1, 0.4, size=(3, n_families)) * np.append(1e-4, np.ones(n_families - 1))
    X, B = 0.5 * rng.normal(size=(n_families, 3)), rng.normal(size=(3, 3))
    law = FamilyMixture(state_odds, item_odds, families, range(n_families), X, np.eye(3) + B - B.T, [0.2, 0.3, 0.5])
    sets = [(0, *others) for others in combinations(range(1, len(families)), 2)]
    weights = np.exp([law.log_prob(items) for items in sets])
    draws = law.sampler(size=3, given=[0]).sample(1500, rng=1)
    goodness.assert_law(draws.baskets, dict(zip(sets, weights / weights.sum())))
    monkeypatch.setattr(shared, "FURTHER", ())
    law.memory.within(0)
    before = law.sampler(size=3, given=[0]).sample(10, rng=1)
    assert before.info["proposals"].mean() > 10 * draws.info["proposals"].mean()
