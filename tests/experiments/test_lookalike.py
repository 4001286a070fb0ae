"""The classifier two-sample test: features against a plain loop, an AUC of one half where nothing differs, and controls that differ."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ndpp import Baskets, metrics
from ndpp.datasets import make_baskets
from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp_experiments import lookalike
from ndpp_experiments.lookalike import FEATURES, basket_features, classifier_test

pytest.importorskip("sklearn")

MADE = make_baskets(4000, 32, n_pairs=8, complement_lift=4.0, mean_size=3.0, rng=0)
REFERENCE, REAL = MADE.baskets[:3000], MADE.baskets[3000:]


def independent(n, rng):
    chances = metrics.independent_items(REFERENCE).probabilities
    return Baskets.from_csr(np.random.default_rng(rng).random((n, 32)) < chances)


def plain_features(basket, reference):
    n, out = len(reference), [len(basket)]
    X = reference.to_csr().toarray()
    frequency = [np.log((X[:, a].sum() + 0.5) / (n + 1)) for a in basket]
    lifts, unseen = [], []
    for i, a in enumerate(basket):
        for j in range(i + 1, len(basket)):
            both = int((X[:, a] & X[:, basket[j]]).sum())
            lifts.append(np.log((both + 0.5) / (n + 1)) - frequency[i] - frequency[j])
            unseen.append(both == 0)
    for values in (frequency, lifts):
        out += [np.mean(values), min(values), max(values)] if values else [np.nan] * 3
    return [*out, np.mean(unseen) if unseen else np.nan]


@pytest.mark.parametrize("at_once", [2_000_000, 7])
def test_features_against_a_plain_loop(monkeypatch, at_once):
    monkeypatch.setattr(lookalike, "PAIRS_AT_ONCE", at_once)
    reference = REFERENCE[:40]
    baskets = Baskets.from_lists([*REAL[:60], [], [3], [0, 1]], n_items=32)
    expected = [plain_features(basket, reference) for basket in baskets]
    assert len(FEATURES) == len(expected[0])
    np.testing.assert_allclose(basket_features(baskets, reference), expected, rtol=1e-12)
    assert np.nanmax(basket_features(baskets, reference)[:, 7]) > 0


def test_samples_of_the_true_kernel_cannot_be_told_apart():
    found = classifier_test(REAL, MADE.kernel.sample(1000, rng=0), REFERENCE, n_folds=3, level=0.99, rng=0)
    assert found.low < 0.5 < found.high
    assert 0.44 < found.auc < 0.56
    assert all(feature.auc < 0.55 for feature in found.features)


def test_independent_items_give_themselves_away():
    """The same frequencies and nearly the same sizes: only the pairs differ."""
    found = classifier_test(REAL, independent(1000, rng=1), REFERENCE, n_folds=3, rng=0)
    assert found.low > 0.55
    assert "log-lift" in found.features[0].name
    assert (found.n_real, found.n_sampled) == (1000, 1000)
    assert f"{found.features[0].name} alone" in str(found)


def test_other_sizes_and_other_items_give_themselves_away():
    larger = Baskets.from_lists([{*one, *other} for one, other in zip(REAL[:500], REAL[500:])], n_items=32)
    found = classifier_test(REAL, larger, REFERENCE, n_folds=2, rng=0)
    assert found.features[0].name == "size"
    assert found.low > 0.7
    shifted = Baskets.from_lists([(basket + 7) % 32 for basket in REAL], n_items=32)
    assert classifier_test(REAL, shifted, REFERENCE, n_folds=2, rng=0).low > 0.7


def test_unequal_numbers_and_the_same_seed():
    drawn = MADE.kernel.sample(300, rng=0)
    first, second, other = (classifier_test(REAL[:500], drawn, REFERENCE, n_folds=2, rng=seed) for seed in (4, 4, 5))
    assert first == second != other
    assert first.low < 0.55


def test_baskets_without_pairs():
    ones = Baskets.from_lists([[i % 32] for i in range(60)], n_items=32)
    found = classifier_test(ones, ones, REFERENCE, rng=0)
    assert {feature.auc for feature in found.features} == {0.5}


def test_wrong_input(monkeypatch):
    with pytest.raises(InvalidInputError, match="share one catalogue; they have 32, 31 and 32 items"):
        classifier_test(REAL, Baskets.from_lists([[0]] * 9, n_items=31), REFERENCE)
    with pytest.raises(InvalidInputError, match=r"at least n_folds=5 of each kind; got 3000 reference, 4 real"):
        classifier_test(REAL[:4], REAL, REFERENCE)
    with pytest.raises(InvalidInputError, match="got 0 reference"):
        classifier_test(REAL, REAL, REFERENCE[:0])
    with pytest.raises(InvalidInputError, match="n_folds"):
        classifier_test(REAL, REAL, REFERENCE, n_folds=1)
    with pytest.raises(InvalidInputError, match="level"):
        classifier_test(REAL, REAL, REFERENCE, level=95)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ndpp\[learn\]'"):
        classifier_test(REAL, REAL, REFERENCE)
