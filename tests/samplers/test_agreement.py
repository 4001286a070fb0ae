"""Samplers agree, on learned kernels and where the walk fails. But for `Clock`, which `Exact` uses for any size, they share no algorithm.

The learned kernels have n = 3,941 and rank 200. All differences are within four standard errors, widened for their
number: the law of sizes, items in groups of the catalogue, and mean log det.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import comb, gammaln

import goodness
from kernels import learned, pair_blocks
from ndpp import LowRankKernel
from ndpp.diagnostics import compare_samples, compare_with_law, diagnose_chains
from ndpp.samplers import Cholesky, Exact, Walk

N_DRAWS = {Exact: 40, Cholesky: 20}
"""The negative control is noticed in as few as those of Cholesky."""


@cache
def unconstrained(name, sampler, seed):
    return sampler.prepare(learned(name).kernel).sample(N_DRAWS[sampler], rng=seed).baskets


@cache
def of_ten(name):
    return Exact.prepare(learned(name).kernel, size=10).sample(120, rng=4).baskets


def assert_agrees(found):
    assert found.agrees, str(found)


only_A, only_B, both = (pytest.mark.parametrize("name", names) for names in (["A"], ["B"], ["A", "B"]))


@pytest.mark.data
class TestLearned:
    """The samplers share the two kernels: each is asked for one of them, and Exact for both."""

    @pytest.mark.parametrize(("name", "sampler"), [("A", Exact), ("B", Cholesky)])
    def test_unconstrained(self, name, sampler):
        kernel, draws = learned(name).kernel, unconstrained(name, sampler, 1)
        assert_agrees(compare_with_law(kernel, draws))
        if sampler is not Exact:
            assert_agrees(compare_samples(kernel, draws, unconstrained(name, Exact, 1)))

    @both
    def test_of_ten_items(self, name):
        kernel = learned(name).kernel
        assert_agrees(compare_with_law(kernel, of_ten(name), size=10))

    @only_B
    def test_long_walk_of_ten_items(self, name):
        """Ten long chains, their sets 20 steps apart: all but independent on these kernels."""
        kernel = learned(name).kernel
        walk = Walk.prepare(kernel, size=10, start="greedy", thin=20, burn_in=40, chains=10)
        draws = walk.sample(100, rng=3).baskets
        assert_agrees(compare_with_law(kernel, draws, size=10))
        assert_agrees(compare_samples(kernel, draws, of_ten(name)))
        report = diagnose_chains(kernel, draws, n_chains=10)
        assert report.converged, str(report)

    @only_A
    def test_a_tilted_kernel_is_told_apart(self, name):
        """Negative control: rare items likelier."""
        kernel = learned(name).kernel
        inclusion = kernel.inclusion_probabilities()
        tilt = np.where(inclusion > np.median(inclusion), 1.0, 2.0)
        tilted = LowRankKernel(kernel.X * tilt[:, None], kernel.W)
        draws = Exact.prepare(tilted, size=10).sample(60, rng=5).baskets
        assert not compare_with_law(kernel, draws, size=10).agrees
        assert not compare_samples(kernel, draws, of_ten(name)).agrees
        assert not compare_with_law(kernel, Cholesky.prepare(tilted).sample(N_DRAWS[Cholesky], rng=5).baskets).agrees

    @only_B
    def test_a_walk_at_its_start_is_told_apart(self, name):
        """Negative control: the greedy set is not a draw."""
        kernel = learned(name).kernel
        draws = Walk.prepare(kernel, size=10, start="greedy", steps=2).sample(40, rng=6).baskets
        assert not compare_samples(kernel, draws, of_ten(name)).agrees


# ---- the block-pair kernel ⊕ [[ε, 1], [−1, ε]] ----------------------------------------------------------------------

PAIRS, SIZE = 32, 32
START = np.arange(SIZE)  # the first 16 pairs


def block_pairs(epsilon):
    return LowRankKernel(np.eye(2 * PAIRS), pair_blocks((1.0,) * PAIRS) + epsilon * np.eye(2 * PAIRS))


def law_of_complete_pairs(epsilon):
    """P(p complete pairs), p = 0..16: C(m, p) · C(m − p, s) · 2^s · (1 + ε²)^p · ε^s with s = k − 2p singles."""
    p = np.arange(SIZE // 2 + 1)
    s = SIZE - 2 * p
    log_weight = gammaln(PAIRS + 1) - gammaln(p + 1) - gammaln(s + 1) - gammaln(np.maximum(PAIRS - p - s, 0) + 1)
    log_weight += s * np.log(2 * epsilon) + p * np.log1p(epsilon**2)
    weight = np.where(p + s <= PAIRS, np.exp(log_weight - log_weight.max()), 0.0)
    return weight / weight.sum()


def law_among_first(epsilon):
    """P(c complete pairs among the first 16): all sets of p pairs are alike."""
    law = law_of_complete_pairs(epsilon)
    c = np.arange(SIZE // 2 + 1)
    return sum(law[p] * comb(SIZE // 2, c) * comb(PAIRS - SIZE // 2, p - c) / comb(PAIRS, p) for p in range(len(law)))


def complete_pairs(baskets, pairs=slice(None)):
    members = baskets.to_csr().toarray().reshape(len(baskets), PAIRS, 2)
    return np.bincount(members.all(axis=2)[:, pairs].sum(axis=1), minlength=SIZE // 2 + 1)


@pytest.mark.parametrize(("epsilon", "n_draws"), [(0.005, 80), (0.02, 200)])
def test_exact_on_block_pairs(epsilon, n_draws):
    draws = Exact.prepare(block_pairs(epsilon), size=SIZE).sample(n_draws, rng=1).baskets
    goodness.assert_counts(complete_pairs(draws), law_of_complete_pairs(epsilon))
    goodness.assert_counts(complete_pairs(draws, slice(SIZE // 2)), law_among_first(epsilon))
    assert_agrees(compare_with_law(block_pairs(epsilon), draws, size=SIZE))
    report = diagnose_chains(block_pairs(epsilon), draws, n_chains=4)
    assert report.converged, str(report)


def test_the_law_of_complete_pairs_can_fail():
    """Negative control: sets of a kernel with another ε."""
    draws = Exact.prepare(block_pairs(0.05), size=SIZE).sample(60, rng=2).baskets
    p_value, _ = goodness.goodness_of_fit(complete_pairs(draws), law_of_complete_pairs(0.02))
    assert p_value < goodness.ALPHA


def test_k_squared_steps_are_not_enough_on_block_pairs():
    """Pairs move as a whole or not at all: after k² steps some of those of the start were never touched."""
    kernel = block_pairs(0.005)
    draws = Walk.prepare(kernel, size=SIZE, start=START, thin=SIZE, chains=3).sample(3 * SIZE, rng=3).baskets
    report = diagnose_chains(kernel, draws, n_chains=3)
    assert not report.converged
    assert report.psrf.max() > 1.3
    assert report.ess.min() < 20
    assert report.never_left >= 2
    assert "NOT CONVERGED" in str(report)
    assert "never left" in str(report)
    assert not compare_with_law(kernel, draws, size=SIZE).agrees
    p_value, _ = goodness.goodness_of_fit(complete_pairs(draws, slice(SIZE // 2)), law_among_first(0.005))
    assert p_value < goodness.ALPHA
