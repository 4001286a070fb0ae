"""Absolute value and Youla form of skew matrices; Theorems 1 and 4 of the paper."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.linalg as sl
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from kernels import AWKWARD, BY_NAME, Case, pair_blocks, random_vbd
from ndpp.linalg.skew import dominating, rejection_bound, skew_part, symmetric_part, youla


def turned(sigma: list[float], order: int, seed: int) -> np.ndarray:
    """A skew matrix with these σ, in a random basis."""
    U = np.linalg.qr(np.random.default_rng(seed).standard_normal((order, order)))[0]
    core = np.zeros((order, order))
    core[: 2 * len(sigma), : 2 * len(sigma)] = pair_blocks(sigma)
    return skew_part(U @ core @ U.T)


SKEW = {
    "generic": turned([3.0, 2.0, 0.5], 6, 0),
    "odd order": turned([3.0, 2.0, 0.5], 7, 1),
    "repeated": turned([2.0, 2.0, 2.0, 1.0], 8, 2),
    "repeated and zero": turned([2.0, 2.0], 9, 3),
    "wide": turned([1e6, 1.0, 1e-6], 6, 4),
    "blocks": pair_blocks([1.0, 1.0, 1.0]),
    "zero": np.zeros((4, 4)),
    "zero, odd": np.zeros((3, 3)),
    "order 1": np.zeros((1, 1)),
    "order 2": pair_blocks([2.0]),
}
every_skew = pytest.mark.parametrize("A", SKEW.values(), ids=SKEW.keys())


@every_skew
def test_absolute_value(A: np.ndarray):
    """|A|² = AᵀA, symmetric, positive semidefinite; as the plain square root and the Hermitian route have it."""
    scale = max(np.abs(A).max(), 1e-300)
    absolute = dominating(A)
    np.testing.assert_allclose(absolute, absolute.T, atol=1e-14 * scale)
    np.testing.assert_allclose(absolute @ absolute, A.T @ A, atol=1e-13 * scale**2)
    assert np.linalg.eigvalsh(absolute)[0] >= -1e-13 * scale
    values, vectors = sl.eigh(1j * A)
    np.testing.assert_allclose(absolute, ((vectors * np.abs(values)) @ vectors.conj().T).real, atol=1e-12 * scale)


@every_skew
def test_youla_form(A: np.ndarray):
    sigma, Y, Z = youla(A)
    scale = max(np.abs(A).max(), 1e-300)
    assert len(sigma) == len(A) // 2
    assert np.all(sigma >= 0)
    assert np.all(np.diff(sigma) <= 1e-12 * scale)
    np.testing.assert_allclose((Y * sigma) @ Z.T - (Z * sigma) @ Y.T, A, atol=1e-12 * scale)
    basis = np.hstack([Y, Z])
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-9)


def test_parts():
    A = np.random.default_rng(5).standard_normal((4, 4))
    np.testing.assert_allclose(symmetric_part(A) + skew_part(A), A)
    np.testing.assert_array_equal(symmetric_part(A), symmetric_part(A).T)
    np.testing.assert_array_equal(skew_part(A), -skew_part(A).T)


def assert_dominates(W_hat: np.ndarray, X: np.ndarray, W: np.ndarray) -> None:
    """det (X W Xᵀ)_S ≤ det (X Ŵ Xᵀ)_S for every S, as far as rounding allows. Ŵ is off by 4 d EPS of the norm of W."""
    reach = np.abs(X).sum(axis=1)
    off = 4 * len(W) * oracles.EPS * np.linalg.norm(W, 2) * reach[:, None] * reach
    small, error = oracles.minors_with_rounding(X @ W @ X.T, oracles.product_error(X, W))
    large, other = oracles.minors_with_rounding(X @ W_hat @ X.T, oracles.product_error(X, W_hat) + off)
    assert np.all(small >= -error), "not an NDPP"
    assert np.all(small <= large + error + other)


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_minors_of_the_proposal_dominate(case: Case):
    """Theorem 1: det(L_S) ≤ det((X Ŵ Xᵀ)_S) for every S."""
    assert_dominates(dominating(case.W), case.X, case.W)


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_minors_of_the_proposal_dominate_on_random_kernels(d_sym: int, d_skew: int, seed: int):
    V, B, D = random_vbd(6, d_sym, d_skew, np.random.default_rng(seed))
    X, W = np.hstack([V, B]), sl.block_diag(np.eye(d_sym), D - D.T)
    assert_dominates(dominating(W), X, W)


def test_domination_can_fail():
    """Negative control: without the absolute value of the skew part the theorem is false."""
    A = pair_blocks([1.0])
    assert np.linalg.det(A) > np.linalg.det(symmetric_part(A))
    for name in ("generic", "purely skew", "badly scaled rows"):
        with pytest.raises(AssertionError):
            assert_dominates(symmetric_part(BY_NAME[name].W), BY_NAME[name].X, BY_NAME[name].W)
    for name in ("symmetric", "purely skew"):  # where the largest sets have equal minors
        with pytest.raises(AssertionError):
            assert_dominates((1 - 1e-9) * dominating(BY_NAME[name].W), BY_NAME[name].X, BY_NAME[name].W)


def pairs_given(X: np.ndarray, W: np.ndarray, kept: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, float]:
    """The minors of X W^A Xᵀ and of X Ŵ^A Xᵀ on all pairs of other items, and κ_A, each pair by itself."""
    A = np.array(kept, np.int64)
    W_A = W - W @ X[A].T @ np.linalg.solve(X[A] @ W @ X[A].T, X[A] @ W)
    pairs = [list(pair) for pair in combinations(np.delete(np.arange(len(X)), A), 2)]
    minors, bounds = (
        np.array([np.linalg.det(X[pair] @ M @ X[pair].T) for pair in pairs]) for M in (W_A, dominating(W_A))
    )
    least = min(np.linalg.svd(X[pair] @ (W_A + W_A.T) @ X[pair].T, compute_uv=False)[-1] for pair in pairs)
    return minors, bounds, np.linalg.norm(W_A - W_A.T, 2) / least


@pytest.mark.parametrize("seed", range(4))
def test_proposals_are_within_the_bound_of_theorem_4(seed: int):
    """(1 + σ_max(X)²κ_A)² is at least the expected number of proposals, and the ratio of any one pair, for every A."""
    V, B, D = random_vbd(7, 4 + seed, 2 + seed, np.random.default_rng(seed))
    X, W = np.hstack([V, B]), sl.block_diag(np.eye(4 + seed), D - D.T)
    for k in range(3 + seed):
        for kept in combinations(range(7), k):
            minors, bounds, kappa = pairs_given(X, W, kept)
            found = rejection_bound(X, W, np.array(kept, np.int64))
            assert found.kappa == pytest.approx(kappa, rel=1e-6)
            assert found.sigma_max == pytest.approx(np.linalg.svd(X, compute_uv=False)[0])
            assert found.proposals == pytest.approx((1 + found.sigma_max**2 * found.kappa) ** 2)
            assert bounds.sum() / minors.sum() <= (bounds / minors).max() <= found.proposals * (1 + 1e-9)


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_the_bound_of_theorem_4_holds_on_awkward_kernels(case: Case):
    """Where a pair has a singular symmetric part, it is infinite and says nothing."""
    pairs = [list(pair) for pair in combinations(range(case.n_items), 2)]
    sums = [
        sum(np.linalg.det(L[np.ix_(p, p)]) for p in pairs) for L in (case.X @ dominating(case.W) @ case.X.T, case.L)
    ]
    assert sums[0] <= rejection_bound(case.X, case.W).proposals * sums[1] * (1 + 1e-9)


def test_theorem_4_needs_the_smallest_singular_value_and_not_the_smallest_that_is_not_zero():
    """W = [[1, σ], [−σ, 0]] needs (1 + σ)/σ proposals; with the smallest singular value above zero the bound is (1 + σ)²."""
    X, W = np.eye(2), np.array([[1.0, 0.1], [-0.1, 0.0]])
    proposals = np.linalg.det(dominating(W)) / np.linalg.det(W)
    assert proposals == pytest.approx(11.0)
    assert proposals > (1 + 0.1) ** 2
    assert rejection_bound(X, W).proposals == np.inf
    assert rejection_bound(X, np.eye(2)).proposals == 1.0  # symmetric: nothing is rejected
    assert rejection_bound(X, np.diag([1.0, 0.0])).proposals == 1.0


def test_kappa_alone_depends_on_the_unit_of_x():
    """Table 1 of the paper drops σ_max(X)², but only with it is the bound, as the number of proposals, that of any multiple of X."""
    V, B, D = random_vbd(7, 4, 2, np.random.default_rng(5))
    X, W = np.hstack([V, B]), sl.block_diag(np.eye(4), D - D.T)
    one, scaled = rejection_bound(X, W), rejection_bound(3 * X, W)
    assert scaled.kappa == pytest.approx(one.kappa / 9)
    assert scaled.proposals == pytest.approx(one.proposals)
