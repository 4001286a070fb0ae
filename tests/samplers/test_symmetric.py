"""Symmetric DPPs: the law by enumeration, the choice of eigenvectors at any spread."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import goodness
import oracles
from kernels import BY_NAME, random_ndpp
from ndpp import LowRankKernel
from ndpp.errors import ImpossibleSizeError, InvalidInputError, InvalidKernelError
from ndpp.items import LeverageTable, Tree
from ndpp.linalg import dominating
from ndpp.samplers.symmetric import EigenvectorLaw, SpectralDPP, decomposed, draw_projection
from scan import Scan

DRAWS = 1_000
"""As many as the negative control needs."""


def law_of(kernel, inner, size=None):
    Q = kernel.q_rows(np.arange(kernel.n_items))
    return oracles.enumerate_law(Q @ inner @ Q.T, size)


def drawn(kernel, inner, size, seed, n_draws=DRAWS, index=Tree):
    dpp, rng = SpectralDPP(*decomposed(inner, size), index.prepare(kernel)), np.random.default_rng(seed)
    return [np.sort(dpp.draw(rng).rows) for _ in range(n_draws)]


@pytest.mark.parametrize(
    ("name", "size"),
    [("symmetric", None), ("symmetric", 1), ("symmetric", 3), ("symmetric", 4), ("one item", None), ("one item", 1)],
)
def test_symmetric_kernels(name, size):
    case = BY_NAME[name]
    draws = drawn(case.kernel, case.kernel.coordinates.B, size, 1)
    goodness.assert_law(draws, oracles.enumerate_law(case.L, size))


def test_law_over_many_draws():
    case = BY_NAME["symmetric"]
    draws = drawn(case.kernel, case.kernel.coordinates.B, 2, 0, 2_000)
    goodness.assert_law(draws, oracles.enumerate_law(case.L, 2))


@pytest.mark.parametrize("size", [None, 2, 5])
@pytest.mark.parametrize("index", [Tree, LeverageTable, Scan])
def test_any_inner_matrix(index, size):
    kernel = BY_NAME["mostly skew"].kernel
    inner = dominating(kernel.coordinates.B)
    goodness.assert_law(drawn(kernel, inner, size, 2, index=index), law_of(kernel, inner, size))


@pytest.mark.parametrize("name", ["duplicate rows", "zero rows", "rank-deficient X", "far from normal"])
def test_awkward_rows(name):
    kernel = BY_NAME[name].kernel
    inner = dominating(kernel.coordinates.B)
    goodness.assert_law(drawn(kernel, inner, 3, 3), law_of(kernel, inner, 3))


def test_size_zero_is_the_empty_set():
    kernel = BY_NAME["symmetric"].kernel
    assert [len(rows) for rows in drawn(kernel, kernel.coordinates.B, 0, 0, 3)] == [0, 0, 0]


def test_law_check_rejects_the_papers_square_root():
    """Negative control: Alg. 3 with U = Ŵ^(−½), as printed, samples the kernel of the inverse."""
    kernel = BY_NAME["generic"].kernel
    inner = dominating(kernel.coordinates.B)
    draws = drawn(kernel, np.linalg.inv(inner), 3, 4)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws, law_of(kernel, inner, 3))


def test_bad_input():
    kernel = BY_NAME["symmetric"].kernel
    with pytest.raises(InvalidKernelError, match="smallest eigenvalue is -1"):
        drawn(kernel, np.diag([1.0, 1.0, 2.0, -1.0]), None, 0)
    with pytest.raises(ImpossibleSizeError, match="at most the rank, 4"):
        drawn(kernel, kernel.coordinates.B, 5, 0)
    with pytest.raises(InvalidInputError, match="size"):
        drawn(kernel, kernel.coordinates.B, -1, 0)


# ---- the choice of eigenvectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 0, 1, 2, 4, 5])
def test_sets_of_eigenvectors(size):
    values = np.array([0.0, 1e-3, 0.5, 0.5, 2.0, 30.0])
    sets = [E for k in range(6) for E in itertools.combinations(range(6), k) if size in (None, k)]
    weight = {E: float(np.prod(values[list(E)])) for E in sets}
    law = {E: w / sum(weight.values()) for E, w in weight.items() if w}
    choice, rng = EigenvectorLaw.prepare(values, size=size), np.random.default_rng(5)
    goodness.assert_law([choice.draw(rng) for _ in range(2_000)], law)
    np.testing.assert_allclose(choice.log_normalizer, np.log(sum(weight.values())), atol=1e-13)


@pytest.mark.parametrize("spread", [0.0, 3.0, 12.0])
def test_log_elementary_symmetric_polynomials_at_any_spread(spread):
    """200 eigenvalues over 10^±spread: neither the values nor the draws see an under- or overflow."""
    rng = np.random.default_rng(6)
    values = 10.0 ** rng.permutation(np.linspace(-spread, spread, 200))
    with mpmath.workdps(60):
        truth = [mpmath.mpf(1)] + [mpmath.mpf(0)] * 200
        for i, value in enumerate(values):
            for k in range(i + 1, 0, -1):
                truth[k] += mpmath.mpf(float(value)) * truth[k - 1]
        truth = [float(mpmath.log(e)) for e in truth]
    for size in (1, 2, 50, 100, 150, 199, 200):
        choice = EigenvectorLaw.prepare(values, size=size)
        assert abs(choice.log_normalizer - truth[size]) <= 1e-12 * max(1.0, abs(truth[size]))
        drawn = choice.draw(rng)
        assert drawn.size == size
        assert (np.diff(drawn) > 0).all()


def test_inclusion_of_eigenvectors_at_a_wide_spread():
    """λ = 10^(−12..12), size 3: P(i ∈ E) = λ_i e_2(others) / e_3, in exact arithmetic."""
    values = 10.0 ** np.arange(-12.0, 13.0, 4.0)
    weight = {E: np.prod([mpmath.mpf(float(values[i])) for i in E]) for E in itertools.combinations(range(7), 3)}
    law = {E: float(w / sum(weight.values())) for E, w in weight.items()}
    choice, rng = EigenvectorLaw.prepare(values, size=3), np.random.default_rng(7)
    goodness.assert_law([choice.draw(rng) for _ in range(20_000)], law)


# ---- projections ----------------------------------------------------------------------------------------------------


def test_projection_of_full_size_and_its_counter():
    """A projection DPP has as many items as directions, here 30 of 40, all distinct."""
    rng = np.random.default_rng(8)
    kernel = LowRankKernel(*random_ndpp(200, 40, rng))
    V = np.linalg.qr(rng.standard_normal((40, 30)))[0]
    for index in (Tree.prepare(kernel), LeverageTable.prepare(kernel)):
        before = V.copy()
        rows, proposals = draw_projection(rng, V, index)
        assert np.unique(rows).size == 30
        assert proposals >= 30
        np.testing.assert_array_equal(V, before)


def test_projection_law_through_inclusion():
    rng = np.random.default_rng(9)
    kernel = LowRankKernel(*random_ndpp(30, 8, rng))
    V = np.linalg.qr(rng.standard_normal((8, 4)))[0]
    index = Tree.prepare(kernel, leaf=1)
    hits = np.zeros((2_000, 30))
    for hit in hits:
        hit[draw_projection(rng, V, index).rows] = 1.0
    goodness.assert_mean(hits, ((kernel.q_rows(np.arange(30)) @ V) ** 2).sum(axis=1))
