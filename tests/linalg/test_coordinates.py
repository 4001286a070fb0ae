"""Orthonormal coordinates: L = Q B Qᵀ, by one factorisation or by row blocks, in any scale."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from kernels import AWKWARD, Case, random_ndpp
from ndpp.errors import InvalidKernelError
from ndpp.linalg import factor
from ndpp.linalg.coordinates import Coordinates, coordinates
from ndpp.linalg.factor import row_blocks
from ndpp.linalg.scaling import EPS
from ndpp.linalg.size_law import log_elementary, rounding_error

module = sys.modules["ndpp.linalg.coordinates"]  # the package's attribute of that name is the function

SPREAD = [
    Case(f"10^±{s}, {mixed=}", *random_ndpp(40, 12, np.random.default_rng(s), spread=s, mixed=mixed))
    for s in (1, 3, 6)
    for mixed in (True, False)
]


@pytest.fixture(params=["whole", "by blocks"])
def by_blocks(request, monkeypatch) -> None:
    """Run a test twice: with X as one matrix, and as a tall one that is never held as a whole."""
    if request.param == "by blocks":
        monkeypatch.setattr(module, "DENSE_ENTRIES", 0)
        monkeypatch.setattr(factor, "BLOCK_BYTES", 8 * 40)


def check(case: Case, coords: Coordinates) -> None:
    """Q is orthonormal, up to the noise of each direction, and gives L back."""
    Q = case.X @ coords.to_q
    tolerance = 1e-12 + 100 * np.maximum(coords.noise[:, None], coords.noise)
    assert np.all(np.abs(Q.T @ Q - np.eye(coords.rank)) <= tolerance)
    np.testing.assert_allclose(Q @ coords.B @ Q.T, case.L, atol=1e-11 * np.abs(case.L).max())
    np.testing.assert_allclose(coords.leverage, np.minimum((Q**2).sum(axis=1), 1), atol=float(tolerance.max()))
    assert np.all(np.abs(coords.B) <= np.outer(coords.scale, coords.scale) * (1 + 1e-10))
    assert coords.scale.shape == coords.noise.shape == (coords.rank,)


@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_kernel_is_given_back(case: Case):
    coords = coordinates(case.X, case.W)
    assert coords.rank == np.linalg.matrix_rank(case.L)
    check(case, coords)


@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("case", SPREAD, ids=str)
def test_spread_directions_survive(case: Case):
    coords = coordinates(case.X, case.W)
    assert coords.rank == 12
    check(case, coords)


@pytest.mark.parametrize("case", SPREAD, ids=str)
def test_blocks_agree_with_the_whole(case: Case, monkeypatch):
    """Same law, whichever way: eigenvalues of B do not depend on the basis."""
    whole = coordinates(case.X, case.W)
    monkeypatch.setattr(module, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(factor, "BLOCK_BYTES", 8 * 12 * 7)
    blocks = coordinates(case.X, case.W)
    assert whole.Q is not None
    assert blocks.Q is None
    noise = 100 * max(whole.noise.max(), blocks.noise.max())
    np.testing.assert_allclose(blocks.leverage, whole.leverage, atol=noise)
    for size in range(1, 13):
        (one, one_error), (other, other_error) = log_elementary(whole, size), log_elementary(blocks, size)
        assert one == pytest.approx(other, abs=3 * (one_error + other_error))


@pytest.mark.usefixtures("by_blocks")
def test_equal_rows_stay_equal_and_zero_rows_zero():
    X, W = random_ndpp(30, 6, np.random.default_rng(1), spread=2)
    X[7], X[20] = X[3], 0
    to_q = coordinates(X, W).to_q
    Q = X @ to_q
    rounding = 6 * np.finfo(float).eps * (np.abs(X[3]) @ np.abs(to_q))  # BLAS may treat rows in different ways
    assert (np.abs(Q[7] - Q[3]) <= rounding).all()
    assert not Q[20].any()


@pytest.mark.usefixtures("by_blocks")
def test_single_precision_is_read_exactly():
    X, W = random_ndpp(30, 6, np.random.default_rng(2))
    single = X.astype(np.float32)
    found, wanted = coordinates(single, W), coordinates(single.astype(np.float64), W)
    np.testing.assert_array_equal(found.B, wanted.B)
    np.testing.assert_array_equal(found.to_q, wanted.to_q)


@pytest.mark.parametrize("condition", [1.0, 30.0, 3000.0, 1e5])
def test_leverages_of_tall_single_precision_are_bounds(condition: float, monkeypatch):
    """Never below the truth and little above, down to rows that single precision cannot square."""
    monkeypatch.setattr(module, "DENSE_ENTRIES", 0)
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((20_000, 12)) * np.geomspace(1, 1 / condition, 12)).astype(np.float32)
    X[7], X[8:20] = 0, X[8:20] * np.float32(1e-25)
    coords = coordinates(X, np.eye(12))
    truth = np.sum((X.astype(np.float64) @ coords.to_q) ** 2, axis=1)
    assert np.all(coords.leverage >= truth * (1 - 1e-12))
    assert np.all(coords.leverage <= truth * (1 + module.MAX_SLACK + 1e-6))


@pytest.mark.usefixtures("by_blocks")
def test_kernels_whose_symmetric_part_is_negative_are_refused():
    X, W = random_ndpp(30, 6, np.random.default_rng(3))
    lowest = np.linalg.eigvalsh((W + W.T) / 2)[0]
    coordinates(X, W - 0.99 * lowest * np.eye(6))
    with pytest.raises(InvalidKernelError, match=r"smallest eigenvalue is -"):
        coordinates(X, W - 1.01 * lowest * np.eye(6))


def test_validity_is_that_of_the_kernel_and_not_of_its_inner_matrix():
    """W may be negative where X has no items."""
    W = np.diag([1.0, 1.0, -1.0])
    X = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 0.0]])
    assert coordinates(X, W).rank == 2
    with pytest.raises(InvalidKernelError):
        coordinates(np.vstack([X, [0.0, 0.0, 0.1]]), W)


def test_small_negative_direction_beside_large_ones_is_refused():
    """Positive semidefinite is judged direction by direction, so that a small one cannot hide."""
    with pytest.raises(InvalidKernelError):
        coordinates(np.diag([1e6, 1.0]), np.diag([1.0, -1.0]))


def test_rounding_of_the_inputs_is_forgiven():
    """A singular symmetric part stored in single precision has eigenvalues slightly below zero."""
    rng = np.random.default_rng(4)
    V = rng.standard_normal((6, 3))
    W = (V @ V.T).astype(np.float32)
    assert np.linalg.eigvalsh(W.astype(np.float64))[0] < 0
    coordinates(rng.standard_normal((20, 6)).astype(np.float32), W)


def test_single_precision_of_X_forgives_no_negative_inner_matrix():
    """Whether L is valid depends on W alone if W is positive semidefinite, however X is stored."""
    X, W = np.eye(100, dtype=np.float32), np.eye(100)
    W[0, 1] = W[1, 0] = 1 + 3e-4
    with pytest.raises(InvalidKernelError, match="smallest eigenvalue"):
        coordinates(X, W)
    W[0, 1] = W[1, 0] = 1 + 1e-7
    coordinates(X, W)


def test_row_blocks_cover_every_row_once(monkeypatch):
    monkeypatch.setattr(factor, "BLOCK_BYTES", 8 * 3 * 5)
    X = np.zeros((23, 3))
    rows = np.concatenate([np.arange(23)[block] for block in row_blocks(X)])
    assert rows.tolist() == list(range(23))
    assert max(block.stop - block.start for block in row_blocks(X)) == 5


def test_small_blocks_cover_every_row_once_and_fit_the_cache(monkeypatch):
    monkeypatch.setattr(factor, "CACHE_BYTES", 8 * 3 * 5)
    X = np.arange(69.0).reshape(23, 3)
    parts = [(block, part.copy()) for block, part in factor.cached_blocks(X, np.float64)]
    assert [block.start for block, _ in parts] == list(range(0, 23, 5))
    np.testing.assert_array_equal(np.vstack([part for _, part in parts]), X)


def test_what_is_dropped_as_rounding_counts_as_an_error():
    """Two items that differ by little more than rounding: their difference is dropped, and the error is at least as large."""
    difference = 100 * EPS
    coords = coordinates(np.eye(2), np.array([[1.0, 1 - difference], [1 - difference, 1.0]]))
    assert coords.rank == 1
    assert coords.core.rank == 2
    assert difference / 2 <= rounding_error(coords, 1.0) <= 10 * difference
    for W in (np.ones((2, 2)), np.eye(2)):
        assert rounding_error(coordinates(np.eye(2), W), 1.0) < 20 * EPS


def test_directions_of_X_that_are_dropped_count_as_errors():
    """Two items that differ by one rounding error, which W magnifies to all of L = I."""
    d = EPS
    X, W = np.array([[1.0, 1.0], [1.0, 1.0 + d]]), np.array([[(1 + d) ** 2 + 1, -(2 + d)], [-(2 + d), 2]]) / d**2
    coords = coordinates(X, W)
    assert coords.core.rank == 2
    assert rounding_error(coords, 1.0) > 0.1


def test_a_slightly_negative_eigenvalue_counts_as_noise():
    """It is taken as an error of the inputs, also where the skew part keeps its direction."""
    W = np.array([[-1e-6, 1.0], [-1.0, -1e-6]], np.float32)
    found = coordinates(np.eye(2), W)
    assert found.B.shape == (2, 2)
    assert (found.noise >= 4e-7).all()
    assert (found.core.noise >= 4e-7).all()
