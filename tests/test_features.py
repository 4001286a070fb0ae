"""Features of points against the similarity itself: what is missed, what is exact, and what is refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ndpp import features
from ndpp.errors import NDPPError

POINTS = np.random.default_rng(0).standard_normal((40, 3))


def similarity(x: np.ndarray, kernel: str, gamma: float) -> np.ndarray:
    apart = x[:, None] - x[None]
    return {
        "rbf": lambda: np.exp(-gamma * (apart**2).sum(axis=2)),
        "laplacian": lambda: np.exp(-gamma * np.abs(apart).sum(axis=2)),
        "linear": lambda: x @ x.T,
    }[kernel]()


def test_random_features_are_unbiased_and_within_their_error():
    K = similarity(POINTS, "rbf", 0.4)
    found = [features.fourier(POINTS, 100, gamma=0.4, rng=seed) for seed in range(200)]
    entries = np.array([one.F @ one.F.T for one in found])
    np.testing.assert_allclose(entries.mean(axis=0), K, atol=0.05)
    np.testing.assert_allclose(entries[:, np.arange(40), np.arange(40)], 1.0)
    above = (np.abs(entries - K) > found[0].error).mean(axis=0)
    assert above.max() <= features.CHANCE
    assert features.fourier(POINTS, 400, rng=0).error == pytest.approx(found[0].error / 2)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
@pytest.mark.parametrize("method", [features.nystroem, features.pivoted_cholesky])
def test_what_columns_miss_is_bounded_and_has_the_stated_diagonal(method, kernel: str):
    K = similarity(POINTS, kernel, 0.4)
    for rank in (1, 2, 10, 40):
        options = {"rng": 1} if method is features.nystroem else {}
        found = method(POINTS, rank, kernel=kernel, gamma=0.4, **options)
        missed = K - found.F @ found.F.T
        assert np.linalg.eigvalsh(missed)[0] > -1e-9
        np.testing.assert_allclose(missed.diagonal(), found.residual, atol=1e-9)
        np.testing.assert_allclose(missed[found.points], 0, atol=1e-7)
        assert np.abs(missed - np.diag(missed.diagonal())).max() <= found.error + 1e-7
        law = found.kernel()
        np.testing.assert_allclose(law.to_dense().diagonal(), K.diagonal(), atol=1e-9)
    if kernel != "linear":
        np.testing.assert_allclose(found.F @ found.F.T, K, atol=1e-6)


def test_the_greedy_choice_of_points_misses_less():
    x = np.random.default_rng(2).standard_normal((300, 2))
    greedy = features.pivoted_cholesky(x, 20)
    assert greedy.error < min(features.nystroem(x, 20, rng=seed).error for seed in range(5))
    assert features.pivoted_cholesky(x, 300, tolerance=0.1).residual.max() <= 0.1


def test_the_kernel_has_the_law_of_its_matrix():
    """By enumeration: L = q_i q_j (F Fᵀ)_ij with the diagonal of the similarity."""
    x, q = POINTS[:5], np.array([1.0, 0.5, 2.0, 1.0, 3.0])
    found = features.nystroem(x, 2, gamma=0.4, rng=0)
    L = np.outer(q, q) * (found.F @ found.F.T + np.diag(found.residual))
    kernel = found.kernel(q)
    np.testing.assert_allclose(L.diagonal(), q**2)
    np.testing.assert_allclose(kernel.to_dense(), L, atol=1e-12)
    total = np.linalg.det(np.eye(5) + L)
    for S in [S for k in range(6) for S in combinations(range(5), k)]:
        assert np.exp(kernel.log_prob(S)) == pytest.approx(np.linalg.det(L[np.ix_(S, S)]) / total, abs=1e-10)
    assert found.kernel(q, background=False).background is None
    assert found.kernel(q, expected_size=1.5).inclusion_probabilities().sum() == pytest.approx(1.5)


def test_all_points_alike_leave_one_column():
    for found in (features.nystroem(np.ones((6, 2)), 3, rng=0), features.pivoted_cholesky(np.ones((6, 2)), 3)):
        assert found.F.shape == (6, 1)
        assert found.error < 1e-7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: features.fourier(POINTS, 3), "rank must be even"),
        (lambda: features.nystroem(POINTS, 41), "rank must be"),
        (lambda: features.nystroem(POINTS, 4, kernel="poly"), "kernel must be one of rbf, laplacian, linear"),
        (lambda: features.pivoted_cholesky(POINTS, 4, gamma=-1), "gamma must be a number above 0"),
        (lambda: features.pivoted_cholesky(POINTS[:0], 4), "at least one row"),
        (lambda: features.fourier(POINTS * np.nan, 4), "points must be finite"),
    ],
)
def test_bad_input_gets_a_clear_error(call, message: str):
    with pytest.raises(NDPPError, match=message):
        call()
