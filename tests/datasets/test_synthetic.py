"""Synthetic kernels and baskets: the recipe is followed, and what is planted is there."""

from __future__ import annotations

import numpy as np
import pytest

import goodness
from ndpp.datasets import make_baskets, make_kernel
from ndpp.errors import InvalidInputError


def test_make_kernel_follows_the_recipe():
    kernel = make_kernel(20_000, 8, rng=0)
    assert (kernel.n_items, kernel.X.shape, kernel.rank) == (20_000, (20_000, 8), 8)
    np.testing.assert_allclose(kernel.X.var(axis=0), 2 / 8, rtol=0.05)
    np.testing.assert_allclose(kernel.X.mean(axis=0), 0, atol=0.02)
    np.testing.assert_array_equal(kernel.W[:4, :4], np.eye(4))
    np.testing.assert_array_equal(kernel.W[4:, 4:], -kernel.W[4:, 4:].T)
    assert not kernel.W[:4, 4:].any()
    assert not kernel.W[4:, :4].any()


def test_entries_of_d_are_standard_normal():
    skew = np.concatenate([make_kernel(40, 40, rng=seed).W[20:, 20:][np.triu_indices(20, 1)] for seed in range(20)])
    assert skew.var() == pytest.approx(2, rel=0.1)  # D_ij − D_ji


def test_make_kernel_is_repeatable_and_in_the_wanted_precision():
    once, again, other = (make_kernel(50, 6, rng=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(once.X, again.X)
    assert not np.array_equal(once.X, other.X)
    single = make_kernel(50, 6, rng=1, dtype=np.float32)
    assert single.X.dtype == np.float32
    assert single.X.var() == pytest.approx(1 / 3, rel=0.2)


@pytest.mark.parametrize(("arguments", "message"), [((0, 4), "n_items"), ((5, 3), "even"), ((5, 0), "rank")])
def test_make_kernel_refuses(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        make_kernel(*arguments)


def test_make_kernel_refuses_other_precisions():
    with pytest.raises(InvalidInputError, match="float32"):
        make_kernel(5, 2, dtype=np.int64)


def test_planted_pairs_are_in_the_kernel():
    made = make_baskets(0, 30, n_pairs=4, complement_lift=2.5, substitute_lift=0.1, rng=3)
    p = made.kernel.inclusion_probabilities()
    assert p.sum() == pytest.approx(3.0)
    assert p.max() / p.min() < 4
    for pairs, lift in ((made.complements, 2.5), (made.substitutes, 0.1)):
        for a, b in pairs:
            assert made.kernel.inclusion_probabilities(given=[a])[b] == pytest.approx(lift * p[b])
    free = np.setdiff1d(np.arange(30), np.concatenate([made.complements, made.substitutes]))
    np.testing.assert_allclose(made.kernel.inclusion_probabilities(given=free[:1])[free[1:]], p[free[1:]])
    assert len(np.unique([made.complements, made.substitutes])) == 16


def test_planted_pairs_are_in_the_baskets():
    made = make_baskets(40_000, 30, n_pairs=4, rng=0)
    matrix = made.baskets.to_csr().toarray().astype(float)
    p, together = matrix.mean(axis=0), matrix.T @ matrix / len(matrix)
    lift = together / np.outer(p, p)
    assert (lift[tuple(made.complements.T)] > 2.5).all()
    assert (lift[tuple(made.substitutes.T)] < 0.4).all()
    free = np.setdiff1d(np.arange(30), np.concatenate([made.complements, made.substitutes]))
    others = lift[np.ix_(free, free)][np.triu_indices(len(free), 1)]
    assert ((others > 0.7) & (others < 1.4)).all()


@pytest.mark.parametrize("substitute_lift", [0.0, 0.3])
def test_baskets_follow_the_law_of_the_kernel(substitute_lift):
    made = make_baskets(20_000, 5, n_pairs=1, mean_size=0.8, substitute_lift=substitute_lift, rng=1)
    sets = [tuple(np.flatnonzero([i >> a & 1 for a in range(5)])) for i in range(32)]
    law = {items: np.exp(made.kernel.log_prob(items)) for items in sets}
    goodness.assert_law(made.baskets.to_lists(), law)


def test_make_baskets_is_repeatable():
    assert make_baskets(50, rng=5).baskets == make_baskets(50, rng=5).baskets
    assert make_baskets(50, rng=5).baskets != make_baskets(50, rng=6).baskets


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_items": 10, "n_pairs": 3}, "n_pairs"),
        ({"complement_lift": 0.9}, "complement_lift"),
        ({"substitute_lift": 1.0}, "substitute_lift"),
        ({"mean_size": 0.0}, "mean_size"),
        ({"mean_size": 20.0}, "smaller lift"),
        ({"n_baskets": -1}, "n_baskets"),
    ],
)
def test_make_baskets_refuses(options, message):
    with pytest.raises(InvalidInputError, match=message):
        make_baskets(**{"n_baskets": 10, "rng": 0} | options)
