"""Samples of a kernel function: their law, whatever the approximation; what is refused; what draws depend on."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

import goodness
import oracles
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError, InvalidKernelError, PrecisionError
from ndpp.samplers import FromFunction, from_function
from ndpp.samplers.points import Pivoted, PointKernel

DRAWS = 800


def gaussian(A, B, *, width=1.0, height=1.0):
    return height * np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / (2 * width**2))


def linear(A, B):
    return A @ B.T


def points_of(n, dim=2, seed=3):
    return np.random.default_rng(seed).normal(size=(n, dim))


SEVEN = points_of(7)
TALL = partial(gaussian, height=4.0)


def unequal(A, B):
    return gaussian(A, B) * np.exp(A[:, :1] + B[:, 0])


# -- the law ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "size", "max_rank"),
    [
        (gaussian, None, 0),
        (gaussian, None, 2),
        (TALL, None, 512),
        (linear, None, 1),
        (gaussian, 2, 0),
        (gaussian, 3, 2),
        (TALL, 4, 512),
        (linear, 2, 512),
    ],
)
def test_law(function, size, max_rank):
    """Nothing known of L beside its diagonal, or little, or all: the sets follow the same law."""
    sampler = FromFunction.prepare(function, SEVEN, size=size, max_rank=max_rank)
    assert sampler.rank <= max_rank
    draws = sampler.sample(DRAWS, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(function(SEVEN, SEVEN), size))
    np.testing.assert_array_equal(draws.info["rejections"], draws.info["proposals"] - 1)


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("times", [1.5, 5.0])
def test_law_and_proposals_for_every_number_of_points(size, times, monkeypatch):
    """Few points σ cost proposals, as many as e^{r(e^{s/r} − 1) − s} Z(C)/Z(L) says, and nothing else."""
    monkeypatch.setattr(from_function, "_cheapest_mean", lambda s, n, size: times * s)
    sampler = FromFunction.prepare(TALL, SEVEN, size=size)
    assert sampler.rank == 7
    np.testing.assert_allclose(sampler.least_proposals, sampler.most_proposals, rtol=1e-6)  # C is L
    draws = sampler.sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(TALL(SEVEN, SEVEN), size))
    goodness.assert_mean(draws.info["proposals"], sampler.least_proposals)


@pytest.mark.parametrize("size", [None, 2])
def test_proposals_of_a_poor_approximation(size):
    sampler = FromFunction.prepare(TALL, SEVEN, size=size, max_rank=1)
    L = TALL(SEVEN, SEVEN)
    log_z = np.linalg.slogdet(np.eye(7) + L)[1] if size is None else oracles.log_ek(sampler.tangent.tilt * L, size)
    expected = sampler.least_proposals * np.exp(sampler.tangent.log_weight - log_z)
    assert sampler.least_proposals < expected < sampler.most_proposals
    goodness.assert_mean(sampler.sample(DRAWS, rng=3).info["proposals"], expected)


def test_law_check_rejects_proposals_that_are_all_accepted(monkeypatch):
    """Negative control: without the acceptance test, the sets are those of L̃."""
    monkeypatch.setattr(from_function, "log_weight", lambda L, size: 0.0)
    monkeypatch.setattr(FromFunction, "_checked", lambda self, chance: 1.0 if chance else 0.0)
    monkeypatch.setattr(from_function, "_cheapest_mean", lambda s, n, size: s)
    draws = FromFunction.prepare(unequal, SEVEN, max_rank=0).sample(2 * DRAWS, rng=1)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(unequal(SEVEN, SEVEN)))


@pytest.mark.parametrize("size", [None, 2])
def test_law_check_rejects_points_of_other_chances(size, monkeypatch):
    """Negative control: all points are as likely in σ, and weighted as if they were not."""
    monkeypatch.setattr(FromFunction, "_checked", lambda self, chance: min(chance, 1.0))
    sampler = FromFunction.prepare(unequal, SEVEN, size=size, max_rank=2)
    draws = replace(sampler, threshold=np.ones(7)).sample(DRAWS, rng=1)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(unequal(SEVEN, SEVEN), size))


@pytest.mark.parametrize(("size", "height"), [(None, 1.0), (4, 1.0)])
def test_agrees_with_the_matrix(size, height):
    """Items and sizes of 200 points, far more than are ever evaluated together."""
    points, function = points_of(200), partial(gaussian, height=height)
    kernel = LowRankKernel.from_dense(function(points, points))
    sampler = FromFunction.prepare(function, points, size=size)
    draws = sampler.sample(300, rng=0)
    assert draws.info["points"].mean() < 200
    groups = np.argsort(points[:, 0]).argsort() // 10
    inside = np.array([np.bincount(groups[items], minlength=20) for items in draws.baskets])
    goodness.assert_mean(inside, np.bincount(groups, kernel.inclusion_probabilities(size)))
    if size is None:
        law = kernel.size_distribution()
        goodness.assert_counts(np.bincount(draws.baskets.sizes, minlength=len(law)), law / law.sum())


def test_the_tangent_is_above_every_matrix():
    """No chance is above one, for points that have nothing to do with those that C is made from."""
    points = points_of(40)
    for size in (None, 1, 5, 12):
        for max_rank in (0, 5, 20):
            sampler = FromFunction.prepare(TALL, points, size=size, max_rank=max_rank)
            for seed in range(20):
                _, L, log_factor = sampler.propose_points(np.random.default_rng(seed))
                assert from_function.log_weight(L, size) + log_factor <= 1e-9


def test_pivoted_cholesky_is_below_the_matrix():
    kernel = PointKernel.of(gaussian, points_of(60), None, None)
    L, found = gaussian(kernel.points, kernel.points), Pivoted.begin(kernel)
    for rank in (1, 7, 30):
        found = found.extended(kernel, rank)
        E = L - found.F.T @ found.F
        assert len(found.F) == rank
        np.testing.assert_allclose(E.diagonal(), found.residual, atol=1e-12)
        assert np.linalg.eigvalsh(E).min() > -1e-12


# -- points, functions and diagonals ---------------------------------------------------------------------------------------------------


def test_functions_of_scikit_learn_and_their_diagonal():
    pytest.importorskip("sklearn")
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    from sklearn.metrics.pairwise import rbf_kernel

    plain = FromFunction.prepare(gaussian, SEVEN, size=3).sample(5, rng=0).baskets.to_lists()
    assert (
        FromFunction.prepare(partial(rbf_kernel, gamma=0.5), SEVEN, size=3).sample(5, rng=0).baskets.to_lists() == plain
    )
    assert FromFunction.prepare(RBF(), SEVEN, size=3).sample(5, rng=0).baskets.to_lists() == plain
    noisy = FromFunction.prepare(
        RBF() + WhiteKernel(0.5), SEVEN, size=2
    )  # whose values for two arrays leave out the noise
    np.testing.assert_allclose(noisy.kernel.block(np.arange(7)), gaussian(SEVEN, SEVEN) + 0.5 * np.eye(7), atol=1e-12)


def test_a_diagonal_of_your_own_is_that_of_the_matrix():
    draws = FromFunction.prepare(linear, SEVEN, size=4, diagonal=(SEVEN**2).sum(axis=1) + 0.5).sample(DRAWS, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(linear(SEVEN, SEVEN) + 0.5 * np.eye(7), 4))


def test_points_of_any_kind():
    def overlap(A, B):
        return np.array([[len(set(a) & set(b)) for b in B] for a in A], float)

    words = ["ab", "bc", "cd", "abcd"]
    named = FromFunction.prepare(overlap, words, size=2, labels=words).sample(20, rng=0).baskets
    assert named.labels == tuple(words)
    sparse = csr_array(np.abs(SEVEN).round(1))
    assert FromFunction.prepare(lambda A, B: linear(A, B).toarray(), sparse, size=2).sample(
        3, rng=0
    ).baskets.sizes.tolist() == [2, 2, 2]


def test_draws_depend_on_the_seed_and_the_index_alone():
    sampler = FromFunction.prepare(gaussian, points_of(50), size=4)
    whole = sampler.sample(8, rng=5).baskets.to_lists()
    assert sampler.sample(8, rng=5, n_jobs=2).baskets.to_lists() == whole
    assert sampler.sample(3, rng=5, first=5).baskets.to_lists() == whole[5:]
    again = FromFunction.prepare(gaussian, points_of(50), size=4)
    assert again.sample(8, rng=5).baskets.to_lists() == whole


def test_empty_sets():
    assert FromFunction.prepare(gaussian, SEVEN, size=0).sample(2, rng=0).baskets.to_lists() == [[], []]
    assert FromFunction.prepare(linear, np.zeros((3, 2))).sample(2, rng=0).baskets.to_lists() == [[], []]


def test_points_that_coincide_are_never_drawn_together():
    twice = np.concatenate([SEVEN[:3], SEVEN[:3]])
    draws = FromFunction.prepare(gaussian, twice, size=3).sample(50, rng=0)
    assert all(len({i % 3 for i in items}) == 3 for items in draws.baskets.to_lists())


# -- refusals --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda A, B: gaussian(A, B) * (1 + (A[:, :1] > B[:, 0])), "is not symmetric: f(x, y) is"),
        (lambda A, B: -gaussian(A, B), "the diagonal must be 40 finite numbers ≥ 0"),
        (lambda A, B: np.sqrt(((A[:, None] - B[None]) ** 2).sum(axis=2)), "above √(f(x, x) f(y, y)) = 0"),
        (lambda A, B: 1 - ((A[:, None] - B[None]) ** 2).sum(axis=2), "not positive semidefinite"),
        (lambda A, B: gaussian(A, B) ** -1, "not positive semidefinite"),
    ],
)
@pytest.mark.parametrize("size", [None, 3])
def test_functions_that_are_no_kernels_are_refused(function, problem, size):
    points = points_of(40)
    pattern = "|".join(map(re.escape, problem.split("|")))
    with pytest.raises(InvalidKernelError, match=pattern):
        FromFunction.prepare(function, points, size=size).sample(50, rng=0)


def test_a_chance_above_one_is_proof():
    """The diagonal and single columns look right; the matrix of the points has a negative eigenvalue."""
    L = np.eye(8) + 0.3
    L[0, 1] = L[1, 0] = 1.2
    L[0, 2] = L[2, 0] = -1.2
    assert np.linalg.eigvalsh(L).min() < -0.1

    def looked_up(A, B):
        return L[np.ix_(A[:, 0], B[:, 0])]

    for size in (None, 3):
        with pytest.raises(InvalidKernelError, match="not positive semidefinite"):
            FromFunction.prepare(looked_up, np.arange(8)[:, None], size=size, max_rank=0).sample(200, rng=0)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda A, B: gaussian(A, B)[0], "must return a matrix of real numbers of shape (7, 7)"),
        (lambda A, B: gaussian(A, B) + 1j, "and type complex128"),
        (
            lambda A, B: gaussian(A, B) * np.where(np.arange(len(A)) == 4, np.nan, 1.0)[:, None],
            "it is nan for the points 4 and 0",
        ),
        (np.ones((7, 7)), "must be a function of two arrays of points"),
    ],
)
def test_values_that_are_no_matrix_are_refused(function, problem):
    with pytest.raises(InvalidInputError, match=re.escape(problem)):
        FromFunction.prepare(function, SEVEN)


def test_sizes_that_cannot_occur():
    with pytest.raises(ImpossibleSizeError, match="no set has 8 points: there are 7"):
        FromFunction.prepare(gaussian, SEVEN, size=8)
    with pytest.raises(
        ImpossibleSizeError, match="no set of 3 points has positive probability: the rank of their kernel is 2"
    ):
        FromFunction.prepare(linear, SEVEN, size=3)
    with pytest.raises(PrecisionError, match="digits of the function that double precision does not have"):
        FromFunction.prepare(partial(gaussian, width=30.0), points_of(200), size=14)


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match="diagonal must be 7 finite numbers"):
        FromFunction.prepare(gaussian, SEVEN, diagonal=np.ones(3))
    with pytest.raises(InvalidInputError, match="must be an array of points"):
        FromFunction.prepare(gaussian, np.empty((0, 2)))
    with pytest.raises(InvalidInputError, match="max_proposals"):
        FromFunction.prepare(gaussian, SEVEN, max_proposals=0)
    with pytest.raises(InvalidInputError, match="labels must be 7 names"):
        FromFunction.prepare(gaussian, SEVEN, labels=["one"])


def test_hopeless_functions_are_refused():
    """Before the first proposal if too few points can be evaluated together, after some if C is too far from L."""
    with pytest.raises(BudgetExceededError, match=r"at least 10\^\d+\.\d proposals are expected.*from_dense") as caught:
        FromFunction.prepare(partial(gaussian, width=1e-3), points_of(9000), max_rank=0, diagonal=np.ones(9000))
    assert caught.value.count == 0
    sampler = FromFunction.prepare(partial(gaussian, height=1e4), points_of(100), max_rank=2, max_proposals=40)
    with pytest.raises(
        BudgetExceededError, match=r"proposals were all rejected; .* expected per draw.*max_rank"
    ) as caught:
        sampler.sample(1, rng=0)
    assert caught.value.count == from_function.CHECKED_AFTER


def test_budget_error_carries_the_partial_result():
    sampler = FromFunction.prepare(TALL, SEVEN, size=3, max_rank=0, max_proposals=3)
    with pytest.raises(BudgetExceededError, match="3 proposals were all rejected") as caught:
        sampler.sample(300, rng=0)
    assert caught.value.count == 3
    assert 0 < len(caught.value.partial) < 300
