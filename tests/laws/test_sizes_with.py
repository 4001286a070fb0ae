"""Sizes of the sets that hold an item, against all sets of small laws, one by one."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest

import ndpp
from ndpp.datasets import shelf_kernel
from ndpp.laws import hooks
from ndpp.linalg import sizes

SKEW = [[0.0, 1.0], [-1.0, 0.0]]


def tied() -> ndpp.Mixture:
    """Three components; one item is nearly always in, one never."""
    rng = np.random.default_rng(0)
    odds = np.exp(rng.normal(-1, 1, (3, 9)))
    odds[:, 2], odds[:, 5] = 30.0, 0.0
    return ndpp.Mixture.tied(odds, rng.normal(size=(9, 2)), SKEW, [0.5, 0.3, 0.2])


def families() -> ndpp.FamilyMixture:
    rng, members, states = np.random.default_rng(0), np.arange(9) // 3, np.repeat(np.arange(3), 2)
    return ndpp.FamilyMixture(
        rng.gamma(1.0, 0.5, size=(3, 6)), np.tile([0.3, 4.0], (9, 1)), members, states, rng.normal(size=(3, 2)), SKEW,
        weights=[0.5, 0.3, 0.2],
    )  # fmt: skip


def with_background() -> ndpp.LowRankKernel:
    rng = np.random.default_rng(1)
    return ndpp.LowRankKernel(rng.normal(size=(9, 3)), np.eye(3), background=rng.gamma(1.0, 0.5, 9))


LAWS = {
    "kernel": lambda: ndpp.LowRankKernel(shelf_kernel().X[:9], shelf_kernel().W),
    "skew": lambda: ndpp.LowRankKernel(np.random.default_rng(2).normal(size=(9, 2)), SKEW),
    "background": with_background,
    "mixture": lambda: ndpp.Mixture([with_background(), with_background().exclude([3])], [0.4, 0.6]),
    "tied": tied,
    "families": families,
}


@pytest.mark.parametrize("name", list(LAWS))
def test_sizes_given_one_item_are_those_of_all_sets(name: str):
    law: Any = LAWS[name]()
    sets = list(chain.from_iterable(combinations(range(9), k) for k in range(10)))
    chances = np.exp(law.log_probs(ndpp.Baskets.from_lists(sets, n_items=9)))
    expected = np.zeros((9, 10))
    for one, chance in zip(sets, chances / chances.sum()):
        expected[list(one), len(one)] += chance
    total = expected.sum(axis=1, keepdims=True)
    expected /= np.where(total > 0, total, 1.0)
    items = [7, 0, 2, 5]  # in this order
    found = law.sizes_with(items)
    assert found.shape[0] == 4
    np.testing.assert_allclose(np.pad(found, ((0, 0), (0, 10)))[:, :10], expected[items], atol=1e-5)
    np.testing.assert_allclose(law.sizes_with(range(9))[2], found[2], atol=1e-12)


def test_components_of_negligible_posterior_and_light_groups_do_not_matter(monkeypatch):
    """The items of a shop: most of them rare, some in one component only."""
    rng = np.random.default_rng(3)
    odds = np.exp(rng.normal(-4, 1.5, (4, 200)))
    odds[1:, :50] *= 1e-12
    law = ndpp.Mixture.tied(odds, 0.3 * rng.normal(size=(200, 4)), np.kron(np.eye(2), SKEW), np.full(4, 0.25))
    found = law.sizes_with(range(200))
    monkeypatch.setattr(hooks, "NEGLIGIBLE_FOR_SIZES", 0.0)
    monkeypatch.setattr(sizes, "SMALL_P", 0.0)
    np.testing.assert_allclose(law.sizes_with(range(200)), found, atol=1e-5)
    mean = found @ np.arange(found.shape[1])
    expected = [law.inclusion_probabilities(given=[a]).sum() for a in (0, 60, 199)]
    np.testing.assert_allclose(mean[[0, 60, 199]], expected, rtol=1e-4)
