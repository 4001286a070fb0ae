"""Rejection from a symmetric proposal: the law, Theorem 1, the closed form of its cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

import goodness
import oracles
from kernels import BY_NAME, learned, random_ndpp, skew
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError
from ndpp.linalg.skew import dominating
from ndpp.samplers import rejection
from ndpp.samplers.rejection import Rejection

DRAWS = 1_000
"""As many as show a missing acceptance test; ``MANY``, of few sets, show one that is a little wrong."""
MANY = 5_000


def test_law_over_many_draws():
    case = BY_NAME["two items"]
    sampler = Rejection.prepare(case.kernel)
    draws = sampler.sample(MANY, rng=0)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))
    goodness.assert_mean(draws.info["proposals"], sampler.expected_proposals)
    np.testing.assert_array_equal(draws.info["rejections"], draws.info["proposals"] - 1)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("generic", None),
        ("generic", 5),
        ("purely skew", 4),
        ("zero rows", 4),
        ("singular W", None),
        ("far from normal", None),
    ],
)
def test_law_and_closed_form(name, size):
    case = BY_NAME[name]
    sampler = Rejection.prepare(case.kernel, size=size)
    draws = sampler.sample(DRAWS if size is None else 600, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size))
    goodness.assert_mean(draws.info["proposals"], sampler.expected_proposals)


@pytest.mark.parametrize("size", [None, 3])
def test_law_check_rejects_a_missing_acceptance_test(size, monkeypatch):
    """Negative control: every proposal is taken."""
    case = BY_NAME["generic"]
    monkeypatch.setattr(rejection, "minor_ratio", lambda Q, B, B_hat: 1.0)
    draws = Rejection.prepare(case.kernel, size=size).sample(DRAWS, rng=3)
    assert draws.totals["rejections"] == 0
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size))


def test_law_check_rejects_a_lenient_acceptance_test(monkeypatch):
    """Negative control: a proposal of ratio ½ is taken with probability 0.57."""
    case, true = BY_NAME["two items"], rejection.minor_ratio
    monkeypatch.setattr(rejection, "minor_ratio", lambda Q, B, B_hat: true(Q, B, B_hat) ** 0.8)
    draws = Rejection.prepare(case.kernel).sample(MANY, rng=3)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_expected_proposals_are_the_ratio_of_normalizers():
    case = BY_NAME["generic"]
    Q = case.kernel.q_rows(np.arange(8))
    L_hat = Q @ dominating(case.kernel.coordinates.B) @ Q.T
    whole = np.linalg.det(np.eye(8) + L_hat) / np.linalg.det(np.eye(8) + case.L)
    np.testing.assert_allclose(Rejection.prepare(case.kernel).expected_proposals, whole, rtol=1e-12)
    of_size = np.exp(oracles.log_ek(L_hat, 3) - oracles.log_ek(case.L, 3))
    np.testing.assert_allclose(Rejection.prepare(case.kernel, size=3).expected_proposals, of_size, rtol=1e-12)


def test_symmetric_kernels_reject_nothing():
    draws = Rejection.prepare(BY_NAME["symmetric"].kernel).sample(300, rng=4)
    assert draws.totals["rejections"] == 0


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
)
def test_theorem_1_minors_never_exceed_those_of_the_proposal(seed, n, d, symmetric, skewness):
    """det(X W Xᵀ)_S ≤ det(X Ŵ Xᵀ)_S for all S, X and W with W + Wᵀ ⪰ 0 of any rank."""
    rng = np.random.default_rng(seed)
    X, G = rng.standard_normal((n, d)), rng.standard_normal((d, rng.integers(0, d + 1)))
    W = symmetric * (G @ G.T) + skewness * skew(rng.standard_normal((d, d)))
    assert_dominates(X, W, dominating(W))


def assert_dominates(X, W, W_hat):
    for S in map(list, oracles.subsets(len(X))):
        block = X[S] @ W_hat @ X[S].T
        # Rounding of a determinant is relative to the product of its rows, not to itself.
        rounding = 1e-12 * np.prod(np.linalg.norm(block, axis=1))
        assert np.linalg.det(X[S] @ W @ X[S].T) <= np.linalg.det(block) + rounding


def test_theorem_1_is_tight_where_the_parts_do_not_mix():
    """W = Diag(I, skew): equality at |S| = d. The paper says so of every W^A, but [[1, 1], [−1, 1]] has 2 < 4."""
    rng = np.random.default_rng(7)
    W = block_diag(np.eye(2), skew(rng.standard_normal((4, 4))))
    np.testing.assert_allclose(np.linalg.det(W), np.linalg.det(dominating(W)))
    mixed = np.array([[1.0, 1.0], [-1.0, 1.0]])
    np.testing.assert_allclose([np.linalg.det(mixed), np.linalg.det(dominating(mixed))], [2.0, 4.0])


def test_theorem_1_can_fail():
    """Negative control: half of |skew| does not dominate."""
    W = np.array([[0.1, 1.0], [-1.0, 0.1]])
    with pytest.raises(AssertionError):
        assert_dominates(np.eye(2), W, dominating(W) - np.eye(2) / 2)


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_hopeless_kernels_are_refused_before_the_first_proposal():
    rng = np.random.default_rng(5)
    X, W = random_ndpp(300, 60, rng)
    kernel = LowRankKernel(X, W + 30 * skew(rng.standard_normal((60, 60))))
    with pytest.raises(BudgetExceededError, match=r"10\^\d+.*max_proposals = 1e\+06.*Exact.*Walk") as caught:
        Rejection.prepare(kernel, size=20)
    assert caught.value.count == 0
    assert Rejection.prepare(kernel, size=20, max_proposals=1e30).expected_proposals > 1e6


@pytest.mark.data
@pytest.mark.parametrize(("name", "expected"), [("A", 4.6e5), ("B", 1.6e12)])
def test_learned_kernels_have_the_published_figure(name, expected):
    """The figures were taken with |skew| in the coordinates of X; in orthonormal ones they differ by a few per cent."""
    kernel = learned(name).kernel
    np.testing.assert_allclose(Rejection.prepare(kernel, max_proposals=1e15).expected_proposals, expected, rtol=0.06)


def test_budget_error_carries_the_count_and_the_partial_result(monkeypatch):
    case = BY_NAME["generic"]
    sampler = Rejection.prepare(case.kernel)
    monkeypatch.setattr(rejection, "BUDGET_FACTOR", 8 / sampler.max_proposals)
    with pytest.raises(BudgetExceededError, match="8 proposals were all rejected") as caught:
        sampler.sample(2_000, rng=6)
    assert caught.value.count == 8
    done = caught.value.partial
    assert 0 < len(done) < 2_000
    assert done.info["proposals"].max() <= 8


def test_bad_input():
    kernel = BY_NAME["purely skew"].kernel
    with pytest.raises(ImpossibleSizeError, match="even size"):
        Rejection.prepare(kernel, size=3)
    with pytest.raises(ImpossibleSizeError):
        Rejection.prepare(kernel, size=5)
    with pytest.raises(InvalidInputError, match="size"):
        Rejection.prepare(kernel, size=-1)
    with pytest.raises(InvalidInputError, match="max_proposals"):
        Rejection.prepare(kernel, max_proposals=0)
