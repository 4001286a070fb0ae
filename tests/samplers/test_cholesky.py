"""The one-pass sampler: its law by enumeration, without drawing and by drawing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import goodness
import oracles
from kernels import AWKWARD, BY_NAME, skew
from ndpp import LowRankKernel
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.samplers import cholesky
from ndpp.samplers.cholesky import Cholesky, decide


def plain_decide(G, uniforms):
    """One item at a time, each a full rank-one update: the twin of the compiled loop."""
    K, taken = np.array(G), []
    for i, u in enumerate(uniforms):
        p = K[i, i]
        taken.append(u < p)
        K = K - np.outer(K[:, i], K[i]) / (p if taken[-1] else p - 1)
    return np.array(taken, bool)


@pytest.mark.parametrize("case", AWKWARD, ids=str)
@pytest.mark.parametrize("block", [1, 3, 64])
def test_blocks_agree_with_one_item_at_a_time(case, block):
    """The same uniforms give the same set, whatever the blocks."""
    kernel, sampler = case.kernel, Cholesky.prepare(case.kernel, block=block)
    Q = kernel.q_rows(np.arange(case.n_items))
    for seed in range(20):
        uniforms = np.random.default_rng(seed).random(case.n_items)
        expected = np.flatnonzero(plain_decide(Q @ sampler.marginal @ Q.T, uniforms))
        assert sampler.draw(np.random.default_rng(seed)).rows.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "name", ["zero diagonal", "broken pairs", "singular L_A", "badly scaled rows", "far from normal"]
)
def test_probabilities_multiply_to_those_of_sets(name):
    """Every outcome, forced; the product of its items' probabilities is P(S)."""
    case = BY_NAME[name]
    Q, law = case.kernel.q_rows(np.arange(case.n_items)), oracles.enumerate_law(case.L)
    G = Q @ Cholesky.prepare(case.kernel).marginal @ Q.T
    for outcome in product((False, True), repeat=case.n_items):
        K, chance = G, 1.0
        for i, inside in enumerate(outcome):
            p = K[i, i]
            chance *= p if inside else 1 - p
            if chance < 1e-13:
                break
            K = K - np.outer(K[:, i], K[i]) / (p if inside else p - 1)
        assert chance == pytest.approx(law.get(tuple(np.flatnonzero(outcome).tolist()), 0.0), abs=1e-10)


DRAWS = 3_000
"""As many as the negative control needs."""


def test_law():
    case = BY_NAME["mostly skew"]
    draws = Cholesky.prepare(case.kernel, block=5).sample(DRAWS, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_law_check_rejects_a_kernel_that_is_not_updated(monkeypatch):
    """Negative control: items are independent coins with the right marginals."""
    case = BY_NAME["mostly skew"]
    monkeypatch.setattr(cholesky, "decide", lambda G, uniforms: (uniforms < np.diag(G), 0.0))
    draws = Cholesky.prepare(case.kernel).sample(DRAWS, rng=2)
    with pytest.raises(AssertionError):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_probabilities_outside_their_range_are_refused():
    taken, worst = decide(np.array([[1.5, 0.0], [0.0, 0.5]]), np.array([0.5, 0.9]))
    assert (taken.tolist(), worst) == ([True, False], 0.5)
    sampler = Cholesky(BY_NAME["generic"].kernel, 9 * np.eye(7), 64)
    with pytest.raises(PrecisionError, match=r"outside \[0, 1\]"):
        sampler.draw(np.random.default_rng(0))


def test_a_larger_catalogue():
    """n = 2,000 in many blocks: sizes and counts of items in quarters of the catalogue have their exact means."""
    rng = np.random.default_rng(3)
    kernel = LowRankKernel(rng.standard_normal((2_000, 6)) / 20, np.eye(6) + skew(np.ones((6, 6)).cumsum(axis=1)))
    draws = Cholesky.prepare(kernel).sample(120, rng=4)
    goodness.assert_mean(draws.baskets.sizes, kernel.inclusion_probabilities().sum())
    quarters = draws.baskets.to_csr().toarray().reshape(120, 4, 500).sum(axis=2)
    goodness.assert_mean(quarters, kernel.inclusion_probabilities().reshape(4, 500).sum(axis=1))


def test_bad_block():
    with pytest.raises(InvalidInputError, match="block"):
        Cholesky.prepare(BY_NAME["generic"].kernel, block=0)
