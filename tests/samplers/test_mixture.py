"""Samples of mixtures against enumeration."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import goodness
from mixtures import ODDS, dense, enumerate_mixture, general, tied
from ndpp import FamilyMixture, LowRankKernel, Mixture
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError, ZeroProbabilityError
from ndpp.samplers import proposer as module
from ndpp.samplers.components import FurtherItems

every = pytest.mark.parametrize("odds", ODDS)


@pytest.mark.parametrize("kind", [tied, general])
@every
def test_sets_of_any_size(odds: str, kind):
    draws = kind(odds, "generic").sampler().sample(600, rng=1)
    goodness.assert_law(draws.baskets, enumerate_mixture(*dense(odds, "generic")))


@pytest.mark.parametrize("kind", [tied, general])
@pytest.mark.parametrize(("odds", "size"), [("several", 3), ("disjoint items", 2), ("in nearly every basket", 4)])
def test_sets_of_one_size(odds: str, size: int, kind):
    draws = kind(odds, "purely skew").sampler(size=size).sample(400, rng=2)
    expected = enumerate_mixture(*dense(odds, "purely skew"), lambda S: len(S) == size)
    goodness.assert_law(draws.baskets, expected)


@pytest.mark.parametrize("kind", [tied, general])
@pytest.mark.parametrize(("given", "exclude", "size"), [((2, 0), (4,), None), ((3,), (0,), 3)])
def test_given_and_excluded_items(given: tuple[int, ...], exclude: tuple[int, ...], size: int | None, kind):
    draws = kind("several", "generic").sample(600, given=given, exclude=exclude, size=size, rng=3)
    expected = enumerate_mixture(
        *dense("several", "generic"),
        lambda S: set(given) <= set(S) and not set(exclude) & set(S) and size in (None, len(S)),
    )
    goodness.assert_law(draws, expected)


def test_one_component():
    mixture, (kernels, _) = tied("several", "generic"), dense("several", "generic")
    goodness.assert_law(mixture.sample(800, component=1, rng=4), enumerate_mixture([kernels[1]], [1.0]))


def test_a_draw_depends_on_seed_and_index_alone():
    """Not on workers, nor on which components are kept."""
    for size in (None, 3):
        sampler = tied("several", "generic").sampler(size=size)
        whole = sampler.sample(40, rng=5).baskets.to_lists()
        assert sampler.sample(40, rng=5, n_jobs=2).baskets.to_lists() == whole
        assert sampler.sample(3, rng=5, first=17).baskets.to_lists() == whole[17:20]
        assert pickle.loads(pickle.dumps(sampler)).sample(7, rng=5).baskets.to_lists() == whole[:7]
        forgetful = tied("several", "generic").sampler(size=size, memory=1)
        assert len(forgetful.drawers.parts.memory) <= 1
        assert forgetful.sample(12, rng=5).baskets.to_lists() == whole[:12]


def test_errors(monkeypatch: pytest.MonkeyPatch):
    mixture = tied("disjoint items", "generic")
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 2 items; got size 3"):
        mixture.sample(size=3)
    with pytest.raises(ImpossibleSizeError, match="2 are given, but size is 1: ask for at least 2"):
        mixture.sample(size=1, given=[0, 1])
    with pytest.raises(ZeroProbabilityError):
        mixture.sample(given=[0, 2])
    with pytest.raises(InvalidInputError, match="device must be None, 'cpu', 'cuda' or 'cuda:1'; got 'gpu'"):
        mixture.sample(device="gpu")
    every = tied("one mission", "generic")
    assert every.sample(2, given=range(6), rng=0).to_lists() == [list(range(6))] * 2
    with pytest.raises(ImpossibleSizeError, match="all 6 items are given"):
        every.sample(given=range(6), size=7)
    sampler = every.sampler(size=3)
    monkeypatch.setattr(module, "MAX_PROPOSALS", 5)
    monkeypatch.setattr(FurtherItems, "propose", lambda self, rng: None)
    with pytest.raises(BudgetExceededError, match="none of them of the wanted size") as raised:
        sampler.sample(1, rng=0)
    assert raised.value.count == 5


def test_control_components_are_not_weighed_by_the_size():
    """Sets of one size of components drawn by their plain weights follow another law."""
    mixture = Mixture.tied([[3.0] * 4, [0.05, 0.1, 0.2, 0.4]], np.zeros((4, 1)), [[1.0]], [0.5, 0.5])
    each = [mixture.sample(1000, size=1, component=c, rng=6).to_lists() for c in (0, 1)]
    kernels = [np.diag(odds) for odds in mixture.odds]
    expected = enumerate_mixture(kernels, [0.5, 0.5], lambda S: len(S) == 1)
    goodness.assert_law(mixture.sample(300, size=1, rng=7), expected)
    with pytest.raises(AssertionError):
        goodness.assert_law([*each[0], *each[1]], expected)


def test_mixtures_of_kernels_without_background():
    kernel = LowRankKernel(np.eye(3), np.eye(3))
    draws = Mixture([kernel, kernel.exclude([0])], [0.5, 0.5]).sample(300, size=2, rng=8)
    # Each pair has 1/8 in the first component, and {1, 2} has 1/4 in the second.
    goodness.assert_law(draws, {(0, 1): 1 / 5, (0, 2): 1 / 5, (1, 2): 3 / 5})


@pytest.mark.parametrize("spread", [1.5, 6.0])
@pytest.mark.parametrize("families", [False, True])
def test_extreme_sizes_are_proposed_as_often_as_common_ones(spread: float, families: bool):
    rng, n, d = np.random.default_rng(3), 90, 8
    skew = rng.normal(size=(d, d))
    W, weights = np.eye(d) + skew - skew.T, [0.5, 0.3, 0.2]
    if families:
        of = np.arange(n) // 3
        odds, item_odds = np.exp(rng.normal(-2, spread, (3, 60))), np.exp(rng.normal(-1, spread, (n, 2)))
        X = rng.normal(size=(30, d)) / 2
        law = FamilyMixture(odds, item_odds, of, np.repeat(np.arange(30), 2), X, W, weights)
    else:
        law = Mixture.tied(np.exp(rng.normal(-2, spread, (3, n))), rng.normal(size=(n, d)) / 2, W, weights)
    for size in (1, 2, n // 2, n - 2, n - 1, n):
        draws = law.sampler(size=size).sample(5, rng=0)
        assert (draws.baskets.sizes == size).all()
        assert draws.info["proposals"].mean() < 60, size
