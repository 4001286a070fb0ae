"""Kernels with a background, L = diag(δ) + X W Xᵀ: odds of every scale, and what ``test_contract`` does not ask of every law."""

from __future__ import annotations

import pickle
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.linalg import block_diag

import ndpp
import oracles
from kernels import AWKWARD, BY_NAME, Case, eighths, pair_blocks, skew
from ndpp import Baskets, LowRankKernel, answers
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    NoConditionalKernelError,
    PrecisionError,
    PrecisionWarning,
    ZeroProbabilityError,
)
from ndpp.inference import greedy_map, next_item_scores
from ndpp.linalg.coordinates import coordinates
from ndpp.linalg.size_law import resolvent
from ndpp.linalg.sizes import SMALL_P, Coins, SizeLaw
from ndpp.samplers import registry
from ndpp.samplers.unions import independent_sizes

TOLERANCE = 1e-10
BACKGROUNDS = {  # squares of powers of two, so that [√Δ X] diag(I, W) [√Δ X]ᵀ = Δ + X W Xᵀ is exact
    "some without": [0.0, 0.25, 0.0, 0.0625, 0.0, 4.0, 1.0, 0.0],
    "all": [0.25, 1.0, 0.0625, 0.25, 1.0, 4.0, 1.0, 2.0**-6],
    "common items": [64.0, 0.0, 1024.0, 0.25, 2.0**20, 16.0, 0.0625, 64.0],
    "rare": [2.0**-10, 2.0**-8, 2.0**-12, 2.0**-8, 0.0, 2.0**-10, 2.0**-6, 2.0**-10],
}
PAIRS = [(case, list(BACKGROUNDS)[(i + j) % 4]) for i, case in enumerate(AWKWARD) for j in (0, 1)]
"""Each awkward kernel with two of the backgrounds."""
twice = pytest.mark.parametrize(("case", "odds"), PAIRS, ids=lambda value: str(value))


def odds_of(case: Case, name: str) -> np.ndarray:
    return np.array(BACKGROUNDS[name][: case.n_items])


@cache
def kernel_of(case: Case, name: str) -> LowRankKernel:
    return LowRankKernel(case.X, case.W, background=odds_of(case, name))


def exact(X: np.ndarray, W: np.ndarray, odds: np.ndarray) -> oracles.ExactLaw:
    """All minors in exact integers; square roots of the odds must be powers of two."""
    return oracles.exact_law(np.hstack([np.diag(np.sqrt(odds)), X]), block_diag(np.eye(len(X)), W))


def dense(case: Case, name: str) -> np.ndarray:
    return case.L + np.diag(odds_of(case, name))


def enumerated(kernel: LowRankKernel, size: int | None = None) -> oracles.Law:
    """The distribution by the kernel's own log-probabilities: in bulk, and a few sets one by one."""
    sets = [S for S in oracles.subsets(kernel.n_items) if size is None or len(S) == size]
    log_probs = kernel.log_dets(Baskets.from_lists(sets, n_items=kernel.n_items)) - kernel.log_normalizer(size)
    for i in range(0, len(sets), 23):
        assert kernel.log_prob(sets[i], size) == pytest.approx(log_probs[i], abs=1e-9)
    return {S: float(np.exp(value)) for S, value in zip(sets, log_probs) if value > -np.inf}


def assert_close(law: oracles.Law, expected: oracles.Law, tolerance: float = TOLERANCE) -> None:
    for S in law.keys() | expected.keys():
        assert law.get(S, 0.0) == pytest.approx(expected.get(S, 0.0), abs=tolerance), S


# ---- against enumeration -------------------------------------------------------------------------------------------------


@twice
def test_probabilities_are_the_enumerated_ones(case: Case, odds: str):
    kernel, L = kernel_of(case, odds), dense(case, odds)
    law = enumerated(kernel)
    assert sum(law.values()) == pytest.approx(1, abs=TOLERANCE)
    assert_close(law, oracles.enumerate_law(L))
    assert (kernel.to_dense() == L).all() or np.allclose(kernel.to_dense(), L, rtol=1e-14)
    sizes = oracles.size_law(L)
    assert kernel.size_distribution() == pytest.approx(sizes[: kernel.max_size + 1], abs=TOLERANCE)
    assert sizes[kernel.max_size + 1 :].sum() < TOLERANCE
    assert kernel.inclusion_probabilities() == pytest.approx(oracles.inclusion_probabilities(L), abs=TOLERANCE)


def test_without_background_on_the_support_the_kernel_is_of_low_rank():
    kernel = LowRankKernel(np.eye(3), np.eye(3), background=[0.0, 1.0, 0.0])
    assert kernel.background is not None
    for rest in (kernel.exclude([1]), kernel.condition([1]), kernel.restrict([0, 2])):
        assert rest.background is None
        assert rest.background is None
        assert rest.rank == 2


@pytest.mark.parametrize("case", ["generic", "purely skew", "zero diagonal"])
def test_queries_against_the_dense_kernel(case: str):
    """The matrix itself; pairs; the greedy run."""
    kernel, L = kernel_of(BY_NAME[case], "some without"), dense(BY_NAME[case], "some without")
    n, minors = len(L), dict(zip(oracles.subsets(len(L)), oracles.minors(L)))
    np.testing.assert_allclose(kernel.to_dense(), L, rtol=1e-14)
    run = greedy_map(kernel, 5, given=[1])
    for k in range(1, 5):
        gains = {a: minors[tuple(sorted((*run[:k].tolist(), a)))] for a in range(n) if a not in run[:k]}
        assert gains[int(run[k])] == pytest.approx(max(gains.values()))
    K = L @ np.linalg.inv(np.eye(n) + L)
    for pair in answers.pairs(kernel, n=3, ids=True).complements:
        a, b = pair.item, pair.other
        assert pair.together == pytest.approx(K[a, a] * K[b, b] - K[a, b] * K[b, a])
        assert pair.lift == pytest.approx(pair.together / (K[a, a] * K[b, b]))


def test_greedy_goes_on_where_no_background_is_left():
    case = BY_NAME["broken pairs"]
    kernel = LowRankKernel(case.X, case.W, background=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    run = greedy_map(kernel, 5).tolist()
    assert run[0] == 6
    assert sorted(run[1:3]) == [2, 3]  # the pair of the largest coupling
    with pytest.raises(ImpossibleSizeError, match="falls between two steps"):
        greedy_map(kernel, 4)
    with pytest.raises(ZeroProbabilityError, match="never occurs by itself"):
        next_item_scores(kernel, [0, 2])


# ---- digits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [-40, -10, 0, 10, 40])
def test_digits_over_many_orders_of_magnitude(power: int):
    """Odds of 4^power, and sets larger than the rank, against exact integers."""
    rng = np.random.default_rng(7)
    X, W = eighths(rng, 7, 3), block_diag(pair_blocks((1.5,)), [[0.5]])
    roots = 2.0 ** np.array([power, power + 2, power - 3, power, 1, power, power + 1])
    kernel, law = LowRankKernel(X, W, background=roots**2), exact(X, W, roots**2)
    sets = oracles.subsets(7)
    for S, expected in list(zip(sets, law.log_minors))[1::5]:
        assert kernel.log_det(S) == pytest.approx(expected, abs=1e-9)
    in_bulk = kernel.log_dets(Baskets.from_lists(sets, n_items=7))
    assert in_bulk == pytest.approx(np.array(law.log_minors), abs=1e-6)
    for size in (1, 4, 6):
        assert kernel.log_normalizer(size) == pytest.approx(float(mpmath.log(law.ek[size])), abs=1e-9)
    expected = np.array(law.inclusion((1,))[4], float)
    assert kernel.inclusion_probabilities(4, [1]) == pytest.approx(expected, abs=1e-8)


def test_one_set_with_backgrounds_at_any_distance():
    """Of the issue's kernel, and of many with odds from 4**-70 to 4**35 or none: the answer, a warning, or an error."""
    kernel = LowRankKernel([[-0.359375, 1.09375], [0.546875, 0.484375]], background=[1e-31, 1.0])
    assert kernel.log_prob([0, 1]) == pytest.approx(-1.1013169791897355, abs=1e-12)
    rng, n_answers, failures = np.random.default_rng(31), 0, []
    for _ in range(60):
        n, d = 4, int(rng.integers(1, 4))
        X, W = eighths(rng, n, d), eighths(rng, d, d)
        W = W @ W.T + W - W.T
        odds = np.where(rng.random(n) < 0.2, 0.0, 4.0 ** rng.integers(-70, 36, n))
        truth, kernel = exact(X, W, odds), LowRankKernel(X, W, background=odds)
        for mask in range(1, 2**n):
            items = [i for i in range(n) if mask >> i & 1]
            try:
                found = kernel.log_det(items)
            except (PrecisionError, PrecisionWarning):
                continue
            n_answers += 1
            if found != pytest.approx(truth.log_minors[mask], abs=1e-7):
                failures.append((X, W, odds, items, found))
    assert not failures
    assert n_answers > 850


@pytest.mark.parametrize("scale", [0.02, 1.0, 300.0])
def test_sizes_of_many_independent_items(scale: float):
    """The size of independent items is Poisson-binomial: convolution, item by item, without cancellation."""
    p = np.random.default_rng(3).beta(0.3, 3.0, 3000) ** 1.5
    odds = scale * p / (1 - p)
    law = np.ones(1)
    for value in odds / (1 + odds):
        law = np.convolve(law, [1 - value, value])
    found = independent_sizes(odds)
    assert found == pytest.approx(law, abs=1e-13)
    assert not found[2999] or scale > 1
    kernel = LowRankKernel(np.zeros((3000, 1)), [[1.0]], background=odds)
    size = int(np.argmax(law)) + 40
    assert kernel.log_normalizer(size) - kernel.log_normalizer() == pytest.approx(np.log(law[size]), rel=1e-9)


def test_sizes_need_no_pass_over_the_items_for_each_node():
    """Light items enter by a power series in p: against the plain sum, for z on the circle and beyond it."""
    rng = np.random.default_rng(5)
    X, odds = rng.standard_normal((400, 6)) / 9, rng.gamma(0.2, 0.3, 400)
    W = np.eye(6) / 2 + skew(rng.standard_normal((6, 6)))
    coords = coordinates(X / np.sqrt(1 + odds)[:, None], W)
    M, p = resolvent(coords, np.ones(1))[0][0], odds / (1 + odds)
    rows = coords.Q * np.sqrt(1 - p)[:, None]
    union = SizeLaw.prepare(M, lambda: [Coins(p[:150], rows[:150]), Coins(p[150:], rows[150:])], 400)
    assert (p > SMALL_P).any()
    assert (p <= SMALL_P).sum() > 200
    K = np.diag(p) + (coords.Q @ M @ coords.Q.T) / np.sqrt(np.outer(1 + odds, 1 + odds))
    for z in (-1.0 + 0j, 1j, 0.3, 4.0):
        expected = np.prod(1 + (z - 1) * np.linalg.eigvals(K))
        assert np.exp(union.log_mean(np.array([z]))[0]) == pytest.approx(expected, rel=1e-10, abs=1e-13)
    mean, variance = union.mean_and_variance()
    assert mean == pytest.approx(np.trace(K))
    assert variance == pytest.approx(np.trace(K - K @ K))
    law, sizes = union.distribution(), np.arange(401)
    assert law @ sizes == pytest.approx(mean)
    assert law @ (sizes - mean) ** 2 == pytest.approx(variance)


# ---- the public face -----------------------------------------------------------------------------------------------------


def test_files_and_pickles(tmp_path):
    X, odds = np.random.default_rng(0).standard_normal((5, 2)), np.array([0.5, 0, 3, 0.1, 0])
    kernel = LowRankKernel(X, np.eye(2), background=odds, labels=list("abcde"))
    ndpp.save(kernel, tmp_path / "m.safetensors")
    for again in (ndpp.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(kernel))):
        assert again.background is not None
        assert again.labels == kernel.labels
        assert (again.to_dense() == kernel.to_dense()).all()
    ndpp.save(kernel.condition([2]).exclude([0]), tmp_path / "rest.safetensors")
    rest = ndpp.load(tmp_path / "rest.safetensors")
    assert rest.support.tolist() == [1, 3, 4]
    assert rest.log_prob([1, 3]) == kernel.condition([2]).exclude([0]).log_prob([1, 3])
    stored = LowRankKernel(np.memmap(tmp_path / "X", np.float64, "w+", shape=(5, 2)), np.eye(2), background=odds)
    ndpp.save(stored, tmp_path / "folder")
    assert (ndpp.load(tmp_path / "folder").background == odds).all()


def test_rows_in_a_file(tmp_path):
    case = BY_NAME["generic"]
    X = np.memmap(tmp_path / "X", np.float64, "w+", shape=case.X.shape)
    X[:] = case.X
    kernel, stored = kernel_of(case, "all"), LowRankKernel(X, case.W, background=odds_of(case, "all"))
    assert stored.inclusion_probabilities(4, [1]) == pytest.approx(kernel.inclusion_probabilities(4, [1]), abs=1e-12)
    assert stored.sample(20, rng=0).to_lists() == kernel.sample(20, rng=0).to_lists()


@pytest.mark.parametrize("name", ["walk", "rejection", "rejection-walk", "cholesky", "clock"])
def test_samplers_of_low_rank_kernels_refuse(name: str):
    kernel = kernel_of(BY_NAME["symmetric"], "all")
    with pytest.raises(InvalidInputError, match=r"needs a low-rank L.*kernel\.sample\(\)"):
        registry.find(name).prepare(kernel, registry.Request(size=3 if registry.find(name).draws(3) else None))


@pytest.mark.parametrize(
    ("background", "message"),
    [
        ([0.5, -1.0, 0.0], "odds ≥ 0; 1 entries are negative, the first, -1, at 1"),
        ([0.5, np.nan, 0.0], "must be finite; 1 of its entries are NaN"),
        ([0.5, np.inf, 0.0], "must be finite"),
        ([0.5, 1.0], "3 odds, one per row of X; got 2"),
        ([[0.5], [1.0], [2.0]], "background must have 2 dimensions|real numbers|shape"),
        ("abc", "real numbers"),
    ],
)
def test_bad_backgrounds(background, message: str):
    with pytest.raises(InvalidInputError, match=message):
        LowRankKernel(np.eye(3), np.eye(3), background=background)


def test_errors_of_sizes_and_given_items():
    kernel = LowRankKernel(np.eye(3)[:, :2], [[0.0, 1.0], [-1.0, 0.0]], background=[0.0, 0.0, 1.0])
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 3"):
        kernel.sample(size=4)
    with pytest.raises(ImpossibleSizeError, match="2 are given, but size is 1: ask for at least 2"):
        kernel.inclusion_probabilities(1, [0, 2])
    with pytest.raises(ImpossibleSizeError, match="no set is larger"):
        kernel.sample(size=4, given=[0, 1, 2])
    with pytest.raises(NoConditionalKernelError):
        kernel.condition([0, 2])
    with pytest.raises(InvalidInputError, match="nothing is left"):
        kernel.condition([0, 1, 2])
    with pytest.raises(ZeroProbabilityError, match="item 1 was given, and it can never occur"):
        kernel.exclude([1]).inclusion_probabilities(given=[1])
    assert kernel.inclusion_probabilities(given=[0, 2]).tolist() == [1.0, 1.0, 1.0]
    assert kernel.sample(3, given=[0, 1, 2], rng=0).to_lists() == [[0, 1, 2]] * 3


def test_one_item():
    kernel = LowRankKernel([[0.5]], [[1.0]], background=[0.75])
    assert np.exp([kernel.log_prob([]), kernel.log_prob([0])]) == pytest.approx([0.5, 0.5])
    assert kernel.sample(3, size=1, rng=0).to_lists() == [[0]] * 3
    assert len(set(kernel.sample(50, rng=0).sizes.tolist())) == 2
