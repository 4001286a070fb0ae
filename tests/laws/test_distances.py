"""Entropy and divergence from samples, against enumeration, and what these and the probabilities of pairs refuse."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import ndpp
from goodness import checks_made
from ndpp.errors import ImpossibleSizeError, InvalidInputError, PrecisionWarning, UnknownItemError
from ndpp.laws import moments

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 4))
KERNEL = ndpp.LowRankKernel(X, labels=list("abcdefgh"))
ODDS = np.exp(RNG.standard_normal((2, 8)) - 1)
MIXTURE = ndpp.Mixture.tied(ODDS, X / 2, np.eye(4), [0.4, 0.6], labels=list("abcdefgh"))
OTHER = ndpp.LowRankKernel(1.3 * X[:, ::-1] + 0.2, background=np.full(8, 0.2))


def within(found: moments.Estimate, exact: moments.Estimate) -> bool:
    checks_made["mean"] += 1
    return abs(found.value - exact.value) <= 4.5 * found.error


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("law", [KERNEL, MIXTURE], ids=["kernel", "mixture"])
def test_samples_agree_with_sums(law, size, monkeypatch: pytest.MonkeyPatch):
    exact = law.entropy(size=size), law.kl(OTHER, size=size)
    assert all(one.exact and one.error == 0 for one in exact)
    monkeypatch.setattr(moments, "FEW_ITEMS", 0)
    drawn = law.entropy(1000, 1, size=size), law.kl(OTHER, 1000, 1, size=size)
    for found, wanted in zip(drawn, exact):
        assert not found.exact
        assert 0 < found.error < 0.2
        assert within(found, wanted)
    assert not within(law.restrict(range(5)).entropy(1000, 1, size=size), exact[0])  # a negative control


def test_impossible_sets_are_infinitely_far(monkeypatch: pytest.MonkeyPatch):
    hardly_ever = ndpp.LowRankKernel([[0.0], [0.0], [1.0]], background=[1e-300, 1e-300, 1.0])
    assert hardly_ever.kl(ndpp.LowRankKernel([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).value == np.inf
    assert KERNEL.kl(KERNEL.exclude([2])).value == np.inf
    assert np.isfinite(KERNEL.exclude([2]).kl(KERNEL).value)
    monkeypatch.setattr(moments, "FEW_ITEMS", 0)
    assert KERNEL.kl(KERNEL.exclude([2])) == moments.Estimate(np.inf, 0.0, exact=True)


def test_many_listed_pairs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(moments, "PAIRS", 3)
    pairs = RNG.integers(0, 8, (20, 2))
    np.testing.assert_allclose(
        MIXTURE.pair_probabilities(pairs), MIXTURE.pair_probabilities(range(8))[tuple(pairs.T)], atol=1e-15
    )
    assert MIXTURE.pair_probabilities(np.empty((0, 2), int)).shape == (0,)
    assert MIXTURE.pair_probabilities([]).shape == (0, 0)


@pytest.mark.parametrize("law", [KERNEL, MIXTURE], ids=["kernel", "mixture"])
def test_pairs_of_a_size_cost_a_question_for_each_item(law, monkeypatch: pytest.MonkeyPatch):
    asked, inclusions = [], ndpp.laws.conditioned.Conditioned.inclusion_probabilities

    def counted(self: object, *args: object, **conditions: object) -> object:
        asked.append(conditions)
        return inclusions(self, *args, **conditions)

    monkeypatch.setattr(ndpp.laws.conditioned.Conditioned, "inclusion_probabilities", counted)
    found = law.pair_probabilities(range(8), size=3)
    assert len(asked) == 8
    np.testing.assert_allclose(found, found.T, atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=0), 3 * np.diag(found), atol=1e-13)  # each item is with two others
    one = law.pair_probabilities([[4, 0], [4, 5], [4, 7]], size=3)
    assert len(asked) == 9  # what is shorter: one item, and three others
    np.testing.assert_allclose(one, found[4, [0, 5, 7]], atol=1e-14)


def test_pairs_under_limits_that_have_no_exact_answer():
    limit = ndpp.Limit(dict(enumerate(np.sqrt(np.arange(2.0, 10.0)))), most=5.0)
    with pytest.warns(PrecisionWarning, match="estimated from 1000 samples"):
        found = KERNEL.pair_probabilities(range(8), limits=limit)
    sets = [S for k in range(5) for S in combinations(range(8), k) if sum(np.sqrt(a + 2.0) for a in S) <= 5.0]
    weights = np.exp(KERNEL.log_probs(sets))
    inside = np.array([[a in S for a in range(8)] for S in sets])
    expected = (weights[:, None] * inside).T @ inside / weights.sum()
    assert np.array_equal(found, found.T)
    checks_made["mean"] += 1
    spread = np.sqrt(expected * (1 - expected) / 1000)
    assert (np.abs(found - expected) <= 4.5 * spread + 1e-12).all()
    assert not (np.abs(found.diagonal()[::-1] - expected.diagonal()) <= 4.5 * spread.diagonal()).all()


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: KERNEL.pair_probabilities([[0, 1, 2]]), InvalidInputError, "flat sequence of items, or pairs"),
        (lambda: KERNEL.pair_probabilities([[0, 1], [2]]), InvalidInputError, "flat sequence of items, or pairs"),
        (lambda: KERNEL.pair_probabilities(3), InvalidInputError, "flat sequence of items, or pairs"),
        (lambda: KERNEL.pair_probabilities([0.5, 1.0]), InvalidInputError, "integer item ids or labels"),
        (lambda: KERNEL.pair_probabilities([[0, np.nan]]), InvalidInputError, "integer item ids or labels"),
        (lambda: KERNEL.pair_probabilities([0, 0]), InvalidInputError, "must not repeat an item"),
        (lambda: KERNEL.pair_probabilities([[0, 9]]), UnknownItemError, "unknown item id 9"),
        (lambda: KERNEL.marginal_kernel([0, 9]), UnknownItemError, "unknown item id 9"),
        (lambda: KERNEL.log_probs(ndpp.Baskets.from_lists([[0]], n_items=8), 5), ImpossibleSizeError, "size 5"),
        (lambda: KERNEL.entropy(1), InvalidInputError, "n_samples must be at least 2"),
        (lambda: KERNEL.entropy(size=5), ImpossibleSizeError, "size 5"),
        (lambda: MIXTURE.kl(KERNEL, size=5), ImpossibleSizeError, "size 5"),
        (lambda: KERNEL.kl(X), InvalidInputError, "expected a kernel, a mixture or a fitted estimator"),
        (lambda: KERNEL.kl(ndpp.LowRankKernel(X[:4])), InvalidInputError, "other must have the same items.*8, the other 4"),
        (lambda: KERNEL.kl(ndpp.LowRankKernel(X, labels=list("abcdefgx"))), InvalidInputError, "with other labels"),
    ],
)  # fmt: skip
def test_bad_input(ask, error, message: str):
    with pytest.raises(error, match=message):
        ask()
