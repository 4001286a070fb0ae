"""Kernels from features, dense matrices and marginal kernels: their laws against enumeration, and what they refuse."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import sparse

import goodness
from ndpp.errors import InvalidInputError, InvalidKernelError, NDPPError
from ndpp.laws.kernel import LowRankKernel

SETS = [S for k in range(6) for S in combinations(range(5), k)]


def assert_law(kernel: LowRankKernel, L: np.ndarray, atol: float = 1e-12) -> None:
    """P(S) = det L_S / det(I + L) for every set, and its inclusion probabilities."""
    minors = np.array([np.linalg.det(L[np.ix_(S, S)]) for S in SETS])
    wanted = minors / np.linalg.det(np.eye(5) + L)
    np.testing.assert_allclose([np.exp(kernel.log_prob(S)) for S in SETS], wanted, atol=atol)
    inclusion = [sum(p for S, p in zip(SETS, wanted) if a in S) for a in range(5)]
    np.testing.assert_allclose(kernel.inclusion_probabilities(), inclusion, atol=atol)


@pytest.fixture
def F() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5, 3))


def test_features(F: np.ndarray):
    q = np.array([1.0, 2.0, 0.5, 0.0, 3.0])
    unit = F / np.linalg.norm(F, axis=1)[:, None]
    for kind in (np.asarray, sparse.csr_array, sparse.coo_matrix, np.float32):
        atol = 1e-6 if kind is np.float32 else 1e-12
        assert_law(LowRankKernel.from_features(kind(F)), F @ F.T, atol)
        assert_law(LowRankKernel.from_features(kind(F), q), np.outer(q, q) * (F @ F.T), atol)
        assert_law(LowRankKernel.from_features(kind(F), q, "cosine"), np.outer(q, q) * (unit @ unit.T), atol)
    wide = sparse.random(5, 40, density=0.2, rng=np.random.default_rng(1), format="csc")
    assert_law(LowRankKernel.from_features(wide), (wide @ wide.T).toarray())
    assert LowRankKernel.from_features(wide).X.shape[1] <= 5


def test_tensors(F: np.ndarray):
    torch = pytest.importorskip("torch")
    assert_law(LowRankKernel.from_features(torch.from_numpy(F), torch.ones(5)), F @ F.T)
    assert_law(LowRankKernel(torch.from_numpy(F)), F @ F.T)
    assert_law(LowRankKernel.from_dense(torch.from_numpy(F @ F.T)), F @ F.T)
    with pytest.raises(InvalidInputError, match=r"F must be a tensor without gradients.*F\.detach"):
        LowRankKernel.from_features(torch.from_numpy(F).requires_grad_())
    with pytest.raises(InvalidInputError, match="dense tensor or a SciPy sparse matrix"):
        LowRankKernel.from_features(torch.from_numpy(F).to_sparse())


def test_dense(F: np.ndarray):
    D = np.random.default_rng(2).standard_normal((5, 5))
    for L in (F @ F.T, np.eye(5), np.eye(5) + D - D.T, D @ D.T + 1e-3 * (D - D.T), np.diag([1.0, 0, 2, 0, 3])):
        assert_law(LowRankKernel.from_dense(L), L)
    assert LowRankKernel.from_dense(F @ F.T).X.shape == (5, 3)
    assert LowRankKernel.from_dense(np.zeros((5, 5))).size_distribution().tolist() == [1.0]
    points = np.random.default_rng(3).standard_normal((60, 2))
    rbf = np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=2))
    for kind in (np.float64, np.float32):
        np.testing.assert_allclose(
            LowRankKernel.from_dense(rbf.astype(kind)).to_dense(), rbf, atol=60 * np.finfo(kind).eps
        )


def test_dense_in_single_precision():
    """The symmetric part of a matrix of small rank is positive semidefinite up to its own rounding."""
    rng = np.random.default_rng(7)
    for n in range(2, 6):
        for _ in range(10):
            F, D = rng.standard_normal((n, n - 1)), rng.standard_normal((n, n))
            L = (F @ F.T + D - D.T).astype(np.float32)
            weights = np.array(
                [np.linalg.det(L[np.ix_(S, S)].astype(float)) for k in range(n + 1) for S in combinations(range(n), k)]
            )
            found = LowRankKernel.from_dense(L).log_probs(
                [list(S) for k in range(n + 1) for S in combinations(range(n), k)]
            )
            np.testing.assert_allclose(np.exp(found), weights / weights.sum(), atol=1e-5)


def test_marginal():
    rng = np.random.default_rng(4)
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    D = rng.standard_normal((5, 5))
    skew = np.eye(5) + D - D.T
    for K in ((turn * [0.9, 0.5, 0.2, 0.0, 0.0]) @ turn.T, skew @ np.linalg.inv(np.eye(5) + skew), np.zeros((5, 5))):
        assert_law(LowRankKernel.from_marginal(K), K @ np.linalg.inv(np.eye(5) - K))


def turned(n: int, r: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(5).standard_normal((n, r)))[0]


def law_of_projections(U: np.ndarray, values: list[float]) -> dict[tuple[int, ...], float]:
    """Every column is chosen with its chance, and S has the distribution of the projection onto those: no odds."""
    law = dict.fromkeys(SETS, 0.0)
    for chosen in product([False, True], repeat=len(values)):
        chance = np.prod([p if is_in else 1 - p for p, is_in in zip(values, chosen)])
        V = U[:, list(chosen)]
        for S in SETS:
            if len(S) == V.shape[1]:
                law[S] += chance * np.linalg.det(V[list(S)]) ** 2
    return law


@pytest.mark.parametrize("is_decomposed", [False, True])
@pytest.mark.parametrize(
    "values", [[1, 1], [1, 1, 0.5, 0.3], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0.9, 0.2, 1e-6], [1, 1 - 1e-9]]
)
def test_projections(values: list[float], is_decomposed: bool):
    """K, or its eigenvectors and eigenvalues, some of them one: probabilities of sets, items and sizes, with conditions."""
    U, ones = turned(5, len(values)), values.count(1)
    K = (U * np.array(values, float)) @ U.T
    kernel = LowRankKernel.from_marginal(*((U, values) if is_decomposed else (K,)))
    law, close = law_of_projections(U, values), {"abs": 1e-10, "rel": 0}
    for S in SETS:
        assert np.exp(kernel.log_prob(S)) == pytest.approx(law[S], **close)
        contained = sum(p for T, p in law.items() if set(S) <= set(T))
        assert contained == pytest.approx(np.linalg.det(K[np.ix_(S, S)]), **close)
    sizes = [sum(law[S] for S in SETS if len(S) == k) for k in range(6)]
    np.testing.assert_allclose(np.pad(kernel.size_distribution(), (0, 5))[:6], sizes, atol=1e-10)
    np.testing.assert_allclose(kernel.inclusion_probabilities(), np.diag(K), atol=1e-10)
    for size, given in ((None, (3,)), (len(values), ()), (max(ones, 1), (2,))):
        kept = {S: p for S, p in law.items() if set(given) <= set(S) and size in (None, len(S))}
        if sum(kept.values()) > 1e-3:
            kept = {S: p / sum(kept.values()) for S, p in kept.items()}
            wanted = [sum(p for S, p in kept.items() if a in S) for a in range(5)]
            np.testing.assert_allclose(kernel.inclusion_probabilities(size, given), wanted, atol=1e-9)
            draws = kernel.sample(1000, size=size, given=given, rng=0)
            goodness.assert_law(draws, {S: p for S, p in kept.items() if p > 1e-15})
    assert kernel.sample(50, rng=0).sizes.min() >= ones


def test_eigenvectors_of_many_items():
    """Without a matrix of all pairs of items, in double and single precision."""
    U = turned(100_000, 3)
    assert LowRankKernel.from_marginal(U[:, :0], []).size_distribution().tolist() == [1.0]
    for kind in (np.float64, np.float32):
        kernel = LowRankKernel.from_marginal(U.astype(kind), np.array([1, 0.5, 1], kind))
        np.testing.assert_allclose(kernel.size_distribution(), [0, 0, 0.5, 0.5], atol=1e-6)
        np.testing.assert_allclose(kernel.inclusion_probabilities(), U**2 @ [1, 0.5, 1], atol=1e-6)


def test_a_matrix_of_small_rank_is_as_good_as_its_eigenvectors():
    """A factor of K with few columns in place of all eigenvectors."""
    U, values = turned(40, 6), [1, 1, 0.7, 0.2, 1e-3, 1e-9]
    matrix, vectors = LowRankKernel.from_marginal((U * values) @ U.T), LowRankKernel.from_marginal(U, values)
    assert matrix.rank == vectors.rank == 6
    np.testing.assert_allclose(matrix.size_distribution(), vectors.size_distribution(), atol=1e-12)
    np.testing.assert_allclose(matrix.inclusion_probabilities(), vectors.inclusion_probabilities(), atol=1e-12)
    sets = [S for k in (3, 4) for S in combinations(range(8), k)]
    np.testing.assert_allclose(np.exp(matrix.log_probs(sets)), np.exp(vectors.log_probs(sets)), rtol=1e-8)


def test_rescale(F: np.ndarray):
    D = np.random.default_rng(6).standard_normal((3, 3))
    delta = [0.1, 0.0, 2.0, 0.3, 0.0]
    kernels = (LowRankKernel(F), LowRankKernel(F, np.eye(3) + D - D.T), LowRankKernel(F, background=delta))
    for kernel in (*kernels, kernels[0].exclude([1])):
        for size in (0.01, 1, 2.9):
            scaled = kernel.rescale(size)
            assert scaled.inclusion_probabilities().sum() == pytest.approx(size, rel=1e-9)
            ratio = scaled.to_dense()[0, 0] / kernel.to_dense()[0, 0]
            np.testing.assert_allclose(scaled.to_dense(), ratio * kernel.to_dense(), rtol=1e-12, atol=1e-15)
        for size in (0, -1, kernel.max_size, np.nan, True, "2"):
            with pytest.raises(InvalidInputError, match="expected_size must be a number above 0"):
                kernel.rescale(size)
    wanted = LowRankKernel.from_features(F, expected_size=2)
    np.testing.assert_allclose(wanted.to_dense(), LowRankKernel(F).rescale(2).to_dense())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda F: LowRankKernel.from_features(np.where(F > 1, np.nan, F)), "F must be finite"),
        (lambda F: LowRankKernel.from_features(sparse.csr_array(np.where(F > 1, np.inf, F))), "the entries of F must be finite"),
        (lambda F: LowRankKernel.from_features(F * [[0], [1], [1], [1], [1]], similarity="cosine"), "row 0 of F is zero"),
        (lambda F: LowRankKernel.from_features(F, [1, 1, -2, 1, 1]), "quality must be ≥ 0; that of item 2 is -2"),
        (lambda F: LowRankKernel.from_features(F, [1, 1]), "quality must have shape"),
        (lambda F: LowRankKernel.from_features(F, np.ones((5, 1))), r"quality must have shape \(5,\), a number per item; got \(5, 1\)"),
        (lambda F: LowRankKernel.from_features(F, [1, 1, np.nan, 1, 1]), "quality must be finite"),
        (lambda F: LowRankKernel.from_features(F, list("abcde")), "quality must be an array of real numbers"),
        (lambda F: LowRankKernel.from_dense(sparse.csr_array(F @ F.T)), r"L must be a matrix.*sparse.*L\.toarray"),
        (lambda F: LowRankKernel.from_marginal(sparse.eye_array(3)), r"K must be a matrix.*K\.toarray"),
        (lambda F: LowRankKernel.from_features(F[0]), "F must have 2 dimensions"),
        (lambda F: LowRankKernel.from_features(F[:0]), "at least one item"),
        (lambda F: LowRankKernel.from_features(F, similarity="rbf"), "similarity must be one of dot, cosine"),
        (lambda F: LowRankKernel.from_features(sparse.csr_array(F * 1j)), "sparse matrix of real numbers"),
        (lambda F: LowRankKernel.from_features(sparse.csr_array((40_000, 40_000))), "would take 12.8 GB"),
        (lambda F: LowRankKernel.from_features([["a", "b"]]), "F must be a matrix of real numbers"),
        (lambda F: LowRankKernel.from_dense(F), "L must be square"),
        (lambda F: LowRankKernel.from_dense(-F @ F.T), "smallest eigenvalue is -"),
        (lambda F: LowRankKernel.from_dense([[0.0, 1.0], [1.0, 0.0]]), "smallest eigenvalue is -1"),
        (lambda F: LowRankKernel.from_dense([[1.0, -4.0], [0.0, 1.0]]), "such kernels are not supported"),  # a P0 matrix
        (lambda F: LowRankKernel.from_dense(F @ F.T * np.nan), "L must be finite"),
        (lambda F: LowRankKernel.from_marginal(2 * np.eye(3)), "between 0 and 1; those of K are between 2 and 2"),
        (lambda F: LowRankKernel.from_marginal(-0.1 * np.eye(3)), "between 0 and 1"),
        (lambda F: LowRankKernel.from_marginal([[1.0, 0.5], [0.0, 0.5]]), "K has an eigenvalue one"),
        (lambda F: LowRankKernel.from_marginal(F), "K must be square"),
        (lambda F: LowRankKernel.from_marginal([[0.0, 1.0], [1.0, 0.0]]), "between -1 and 1"),
        (lambda F: LowRankKernel.from_marginal(F, np.ones(3)), "orthonormal to within .* columns"),
        (lambda F: LowRankKernel.from_marginal(2 * np.eye(3), np.ones(3)), r"columns 0 and 0 of K is 4 and not 1.*numpy\.linalg\.eigh"),
        (lambda F: LowRankKernel.from_marginal(np.ones((3, 2)) / 3**0.5, [1, 1]), "columns 0 and 1 of K is 1 and not 0"),
        (lambda F: LowRankKernel.from_marginal(np.eye(2, 3), np.ones(3)), "columns 2 and 2 of K is 0 and not 1"),
        (lambda F: LowRankKernel.from_marginal(np.eye(3), [1, 2, 0]), "between 0 and 1; those of K are between 0 and 2"),
        (lambda F: LowRankKernel.from_marginal(np.eye(3), [1, 0]), r"eigenvalues must have shape \(3,\), a number per column of K"),
        (lambda F: LowRankKernel.from_marginal(np.eye(3), [1, np.nan, 0]), "eigenvalues must be finite"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_clear_error(F: np.ndarray, build, message: str):
    with pytest.raises((InvalidInputError, InvalidKernelError, NDPPError), match=message):
        build(F)
