"""Samples of kernels with a background: S = T ∪ R against enumeration, with controls that must fail."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter

import numpy as np
import pytest
from scipy.special import expit

import goodness
import oracles
from kernels import BY_NAME, Case
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, ImpossibleSizeError
from ndpp.samplers import Exact, Proposer, unions
from ndpp.samplers.exact import eigenchain, eigenclock
from ndpp.samplers.unions import Alone, SizedAlone, SizedUnion, tilts_of_counts

ODDS = np.array([0.0, 0.5, 0.0, 0.125, 3.0, 1.0, 0.25, 0.0])
CASES = ["generic", "purely skew", "zero diagonal", "duplicate rows", "badly scaled rows", "broken pairs", "one item"]


def kernel_of(case: Case, odds: np.ndarray = ODDS) -> LowRankKernel:
    return LowRankKernel(case.X, case.W, background=odds[: case.n_items])


def dense(case: Case, odds: np.ndarray = ODDS) -> np.ndarray:
    return case.L + np.diag(odds[: case.n_items])


@pytest.mark.parametrize("name", CASES)
def test_sets_of_any_size(name: str):
    case = BY_NAME[name]
    draws = kernel_of(case).sampler().sample(1_000, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(dense(case)))
    assert (draws.info["proposals"] == 1).all()


@pytest.mark.parametrize("is_disjoint", [False, True])
@pytest.mark.parametrize("name", ["generic", "purely skew", "zero diagonal", "broken pairs", "one item"])
def test_sets_of_one_size(name: str, is_disjoint: bool, monkeypatch: pytest.MonkeyPatch):
    """Both rules, and as many proposals as expected."""
    case = BY_NAME[name]
    size = (case.n_items + 1) // 2
    if not is_disjoint:
        monkeypatch.setattr(unions, "disjoint_parts", lambda *_: None)
    sampler = kernel_of(case).sampler(size=size)
    assert (sampler.drawers.n_tied is not None) == is_disjoint
    draws = sampler.sample(700, rng=2)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(dense(case), size))
    goodness.assert_mean(draws.info["proposals"], sampler.expected_proposals)


def test_the_better_rule_is_chosen():
    """T and R hardly ever stay apart where items are in nearly every basket."""
    odds = np.array([200.0, 300.0, 150.0, 400.0, 0.1, 0.2, 0.1, 0.3])
    case = BY_NAME["generic"]
    X = case.X * np.sqrt(odds)[:, None] * 0.9
    L = X @ case.W @ X.T + np.diag(odds)
    sampler = LowRankKernel(X, case.W, background=odds).sampler(size=5)
    assert sampler.drawers.n_tied is None
    goodness.assert_law(sampler.sample(600, rng=3).baskets, oracles.enumerate_law(L, 5))


@pytest.mark.parametrize(
    ("given", "exclude", "size"),
    [
        ((1, 4), (3,), None),
        ((0,), (5,), None),
        ((5, 1, 3), (7,), 5),
        ((0, 2), (), 3),
    ],
)
@pytest.mark.parametrize("name", ["purely skew", "zero diagonal"])
def test_given_and_excluded_items(name: str, given: tuple[int, ...], exclude: tuple[int, ...], size: int | None):
    """Items 0, 2 and 7 have no background, and alone no weight: given such items, there is no kernel for the rest."""
    case = BY_NAME[name]
    draws = kernel_of(case).sample(700, size=size, given=given, exclude=exclude, rng=4)
    goodness.assert_law(draws, oracles.enumerate_law(dense(case), size, given, exclude))


def test_a_draw_depends_on_seed_and_index_alone():
    kernel = kernel_of(BY_NAME["generic"])
    for size in (None, 3):
        sampler = kernel.sampler(size=size)
        whole = sampler.sample(40, rng=5).baskets.to_lists()
        assert sampler.sample(40, rng=5, n_jobs=2).baskets.to_lists() == whole
        assert sampler.sample(3, rng=5, first=17).baskets.to_lists() == whole[17:20]
        assert kernel.sample(7, size=size, rng=5).to_lists() == whole[:7]
        compiled = [function.signatures for function in (eigenclock._run, eigenchain._run)]
        assert pickle.loads(pickle.dumps(sampler)).sample(7, rng=5).baskets.to_lists() == whole[:7]
        assert [function.signatures for function in (eigenclock._run, eigenchain._run)] == compiled


def test_independent_items_alone():
    """Items of all kinds: never, rarely, in half of all baskets, in nearly all. Hits on one item do not make it come twice."""
    odds = np.array([0.0, 1e-9, 0.3, 1.0, 1.5, 50.0, 1e300])
    alone, rng = Alone.prepare(odds), np.random.default_rng(6)
    draws = [np.sort(alone.draw(rng)) for _ in range(2000)]
    assert all((np.diff(rows) > 0).all() for rows in draws)
    goodness.assert_law(draws, oracles.enumerate_law(np.diag(np.minimum(odds, 1e12))))
    sized = [alone.draw_sized(rng, 3) for _ in range(300)]
    goodness.assert_law(sized, oracles.enumerate_law(np.diag(np.minimum(odds, 1e12)), 3))


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_a_number_of_independent_items(size: int):
    """Whatever is usual, the number is typical under some tilt; weights are the products of the odds."""
    odds, rng = np.array([0.0, 1e-30, 0.3, 1.0, 1.5, 4.0, 1e300]), np.random.default_rng(7)
    alone = SizedAlone.prepare(odds, np.arange(7))
    found = [alone.draw_sized(rng, size) for _ in range(600)]
    goodness.assert_law(found, oracles.enumerate_law(np.diag(np.minimum(odds, 1e12)), size))
    if size in (2, 4):  # a negative control
        with pytest.raises(AssertionError):
            goodness.assert_law(found, oracles.enumerate_law(np.diag(np.sqrt(np.minimum(odds, 1e12))), size))


def test_numbers_of_many_independent_items_are_never_rare():
    """Hardly ever more than a few standard deviations of sets are drawn, for similar and for most uneven odds."""
    rng = np.random.default_rng(8)
    for odds in (np.full(5000, 1e-9), 10.0 ** rng.uniform(-30, 30, 5000), 1e-3 / np.arange(1, 5001) ** 2):
        counts = np.array([1, 2, 10, 100, 2500, 4999, 5000])
        for log_tilt, count in zip(tilts_of_counts(np.sort(odds), counts), counts):
            p = expit(log_tilt + np.log(odds))
            assert abs(p.sum() - count) < max(1.0, np.sqrt((p * (1 - p)).sum()))


def test_cost_does_not_grow_with_the_catalogue():
    """O(|R|) random numbers for R, whatever the number of items."""
    for n in (10**3, 10**6):
        alone = Alone.prepare(np.full(n, 20.0 / n))
        assert alone.rate == pytest.approx(20, rel=0.02)
        assert len(alone.frequent) == 0
        assert 5 < len(alone.draw(np.random.default_rng(0))) < 45


def test_budgets(monkeypatch: pytest.MonkeyPatch):
    kernel = kernel_of(BY_NAME["generic"])
    sampler = kernel.sampler(size=4)
    monkeypatch.setattr(SizedUnion, "propose", lambda self, rng: None)
    with pytest.raises(BudgetExceededError, match="none of them of the wanted size") as raised:
        sampler.sample(1, rng=0)
    assert raised.value.count > 50
    monkeypatch.setattr(unions, "SIZED_BUDGET", 10)
    with pytest.raises(BudgetExceededError, match="none of 7 items"):
        Alone.prepare(np.full(8, 1e-3)).draw_sized(np.random.default_rng(0), 7)
    with pytest.raises(ImpossibleSizeError):
        kernel.sampler(size=9)


# ---- controls: what must be found out --------------------------------------------------------------------------------------


def test_control_background_left_out():
    case = BY_NAME["generic"]
    draws = Exact.prepare(LowRankKernel(case.X, case.W)).sample(1_000, rng=1)
    with pytest.raises(AssertionError):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(dense(case)))


def test_control_ties_not_rescaled():
    """T must come from rows x / √(1 + δ): with rows x the law is another one."""
    case = BY_NAME["generic"]
    kernel = kernel_of(case)
    proposal = kernel.sampler().drawers[0]
    wrong = dataclasses.replace(proposal, ties=Exact.prepare(LowRankKernel(case.X, case.W)))
    sampler = Proposer(kernel, np.empty(0, np.int64), np.zeros(1), (wrong,), expected_proposals=1.0)
    with pytest.raises(AssertionError):
        goodness.assert_law(sampler.sample(1_000, rng=1).baskets, oracles.enumerate_law(dense(case)))


def test_control_disjointness_not_checked():
    """Of T and R that meet, a set of fewer items is left; filled up by further independent items it has the wrong law."""
    case, size = BY_NAME["purely skew"], 4
    parts = kernel_of(case).sampler(size=size).drawers
    rng, found = np.random.default_rng(1), Counter()
    while found.total() < 500:
        m = int(np.searchsorted(parts.n_tied, rng.random() * parts.n_tied[-1], side="right"))
        rows = set(parts.ties.draw_rows(rng, m).tolist())
        rows |= set(parts.alone.draw_sized(rng, size - m).tolist())
        while len(rows) < size:
            rows |= set(parts.alone.draw_sized(rng, 1).tolist())
        found[tuple(sorted(rows))] += 1
    with pytest.raises(AssertionError):
        goodness.assert_law(found, oracles.enumerate_law(dense(case), size))
