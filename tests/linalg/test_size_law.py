"""The law of the size and log e_k: against enumeration, closed forms and many digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import ndpp
import oracles
from kernels import AWKWARD, Case, pair_blocks, random_ndpp
from ndpp.linalg.coordinates import coordinates
from ndpp.linalg.size_law import law_of_sum, log_elementary, resolvent, rounding_error, tilt_for, tilted_law

every_case = pytest.mark.parametrize("case", AWKWARD, ids=str)


def conjugate_pairs(rng: np.random.Generator, n_real: int, n_pairs: int) -> np.ndarray:
    """Points of the disc |μ − ½| ≤ ½, real or in conjugate pairs."""
    pairs = 0.5 + 0.5 * np.sqrt(rng.random(n_pairs)) * np.exp(1j * np.pi * rng.random(n_pairs))
    return np.concatenate([rng.random(n_real), pairs, pairs.conj()])


def test_law_of_sum_is_the_product_of_its_factors():
    """The product is taken with many digits: in double precision its complex factors would cancel."""
    mu = conjugate_pairs(np.random.default_rng(0), 3, 4)
    expected = [mpmath.mpc(1)]
    with mpmath.workdps(50):
        for m in map(mpmath.mpmathify, mu):
            expected = [(1 - m) * a + m * b for a, b in zip([*expected, 0], [0, *expected])]
    # Each factor rounds a few times, and no term is negative.
    np.testing.assert_allclose(law_of_sum(mu), [float(e.real) for e in expected], atol=4 * len(mu) * oracles.EPS)


def test_law_of_sum_has_no_cancellation():
    """Tails far below rounding keep their relative accuracy: 60 fair pairs that come and go together."""
    mu = np.concatenate([np.full(60, 0.5 + 0.5j), np.full(60, 0.5 - 0.5j)])
    law = law_of_sum(mu)
    np.testing.assert_allclose(law[::2], [float(mpmath.binomial(60, k)) / 2.0**60 for k in range(61)], rtol=1e-12)
    assert np.all(law[1::2] < 1e-15)


@every_case
@pytest.mark.parametrize("tilt", [1e-3, 1.0, 30.0])
def test_tilted_law_and_its_marginal(case: Case, tilt: float):
    law, log_weight, marginal = tilted_law(case.kernel.coordinates, tilt)
    expected = oracles.size_law(case.L * tilt)[: case.kernel.rank + 1]
    np.testing.assert_allclose(law, expected, atol=1e-12)
    assert log_weight == pytest.approx(np.log(oracles.minors(case.L * tilt).sum()), abs=1e-11)
    Q = case.kernel.q_rows(np.arange(case.n_items))
    diagonal = np.einsum("ia,ab,ib->i", Q, marginal, Q)
    np.testing.assert_allclose(diagonal, oracles.inclusion_probabilities(case.L * tilt), atol=1e-12)


@every_case
def test_tilted_law_given_items(case: Case):
    kernel = case.kernel
    for given in [(0,), (case.n_items - 1,), (0, case.n_items - 1)]:
        if len(set(given)) < len(given):
            continue
        law = tilted_law(kernel.coordinates, 1.0, kernel.q_rows(np.array(given)))
        inside = oracles.mask_of(given)
        weights = oracles.minors(case.L)
        weights = np.where(np.arange(len(weights)) & inside == inside, weights, 0.0)
        if weights.sum() == 0:
            assert law.log_weight == -np.inf
        else:
            assert law.log_weight == pytest.approx(np.log(weights.sum()), abs=1e-10)
            expected = oracles.size_law(case.L, given)[len(given) : len(given) + kernel.rank + 1]
            np.testing.assert_allclose(law.law[: len(expected)], expected, atol=1e-10)


@every_case
def test_resolvent_is_the_plain_one(case: Case):
    """R(t) = tB(I + tB)⁻¹ at points of the right half plane and around it."""
    coords = case.kernel.coordinates
    t = np.array([0.3, 0.3j, -0.1 + 0.2j, 5.0 + 1j])
    R, log_det = resolvent(coords, t)
    for R_j, log_j, t_j in zip(R, log_det, t):
        system = np.eye(coords.rank) + t_j * coords.B
        np.testing.assert_allclose(R_j, t_j * coords.B @ np.linalg.inv(system), atol=1e-9)
        log_eigenvalues = np.log(np.linalg.eigvals(system).astype(complex)).sum()
        assert np.exp(1j * log_j.imag) == pytest.approx(np.exp(1j * log_eigenvalues.imag), abs=1e-9)
        assert log_j.real == pytest.approx(log_eigenvalues.real, abs=1e-9)


@pytest.mark.parametrize("spread", [0, 3, 6])
def test_resolvent_of_an_accretive_matrix_is_a_contraction(spread: int):
    """At real t > 0: ‖R‖ ≤ 1, whatever the spread."""
    coords = coordinates(*random_ndpp(40, 20, np.random.default_rng(1), spread=spread))
    R, _ = resolvent(coords, 10.0 ** np.arange(-14, 15, 4.0))
    assert np.linalg.norm(R, 2, axis=(1, 2)).max() <= 1 + 1e-9


@every_case
def test_tilt_gives_the_wanted_mean(case: Case):
    coords = case.kernel.coordinates
    for size in range(1, coords.rank):
        law = tilted_law(coords, tilt_for(coords, size)).law
        assert law @ np.arange(len(law)) == pytest.approx(size, abs=0.5)


@every_case
def test_log_elementary_is_the_exact_one(case: Case):
    for size in range(case.n_items + 2):
        value, error = log_elementary(case.kernel.coordinates, size)
        exact = oracles.mp_log_ek(case.X, case.W, size)
        assert value == pytest.approx(float(exact), abs=1e-11)
        assert error < 1e-11


def test_equal_eigenvalues():
    """L = I: e_k is a binomial coefficient."""
    coords = coordinates(np.eye(200), np.eye(200))
    for size in (*range(0, 200, 13), 199, 200):
        expected = mpmath.log(mpmath.binomial(200, size))
        assert log_elementary(coords, size)[0] == pytest.approx(float(expected), abs=1e-11)


@pytest.mark.parametrize("spread", [1, 6])
def test_real_eigenvalues_over_many_orders(spread: int):
    """A diagonal L, r = 60: the textbook recursion, with 120 digits."""
    s = 10.0 ** np.linspace(spread, -spread, 60)
    with mpmath.workdps(120):
        e = [mpmath.mpf(1)] + [mpmath.mpf(0)] * 60
        for value in s:
            for k in range(60, 0, -1):
                e[k] += mpmath.mpf(float(value)) ** 2 * e[k - 1]
        expected = [float(mpmath.log(v)) for v in e]
    coords = coordinates(np.diag(s), np.eye(60))
    for size in range(1, 61):
        assert log_elementary(coords, size)[0] == pytest.approx(expected[size], rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 0.01])
def test_conjugate_pairs(epsilon: float):
    """⊕ [[ε, 1], [−1, ε]], 100 blocks: (1 + 2εt + (1 + ε²)t²)^100; odd sizes are much rarer than even ones."""
    with mpmath.workdps(80):
        e = [mpmath.mpf(1)]
        for _ in range(100):
            padded = [mpmath.mpf(0), mpmath.mpf(0), *e, mpmath.mpf(0), mpmath.mpf(0)]
            eps = mpmath.mpf(epsilon)
            e = [padded[k + 2] + 2 * eps * padded[k + 1] + (1 + eps**2) * padded[k] for k in range(len(e) + 2)]
        expected = [float(mpmath.log(v)) for v in e]
    coords = coordinates(np.eye(200), epsilon * np.eye(200) + pair_blocks(np.ones(100)))
    for size in (1, 2, 3, 40, 99, 100, 101, 150, 199, 200):
        assert log_elementary(coords, size)[0] == pytest.approx(expected[size], abs=1e-9)


def test_sizes_that_cannot_occur():
    coords = coordinates(np.eye(200), pair_blocks(np.ones(100)))
    assert all(log_elementary(coords, size)[0] == -np.inf for size in range(1, 200, 14))
    assert log_elementary(coords, 200)[0] == pytest.approx(0, abs=1e-11)
    assert log_elementary(coords, 201)[0] == -np.inf
    assert log_elementary(coords, 0) == (0.0, 0.0)


def test_estimate_of_the_error_bounds_it():
    """On kernels of every spread the estimate is above the true error, and not above it by more than a million."""
    for spread in (0, 2, 4, 6):
        for mixed in (True, False):
            X, W = random_ndpp(10, 8, np.random.default_rng(spread), spread=spread, mixed=mixed)
            coords = coordinates(X, W)
            for size in range(1, 9):
                value, estimate = log_elementary(coords, size)
                if value > -np.inf:
                    with mpmath.workdps(80):
                        error = float(abs(mpmath.expm1(mpmath.mpf(value) - oracles.mp_log_ek(X, W, size))))
                    assert error <= 3 * estimate + 1e-14
                    assert estimate < 1e-10 or mixed is False or estimate <= 1e6 * error
            assert rounding_error(coords, 1.0) > 0


def test_tilts_end_where_the_identity_is_lost_in_rounding():
    """W is of rank one but for skew terms of 2⁻³⁰: sets of four items need a tilt at which I + ρB may be singular."""
    w, tiny = np.array([2.0, -3.0, 2.0, -2.0]), 2.0**-30
    skew = tiny * np.array([[0, 2, -3, -1], [-2, 0, 8, -6], [3, -8, 0, 8], [1, 6, -8, 0.0]])
    X = np.random.default_rng(0).normal(size=(6, 4)) * [512.0, 0.0625, 8.0, 0.25]
    kernel = ndpp.LowRankKernel(X, np.outer(w, w) + skew)
    for size in range(1, 5):
        assert tilt_for(kernel.coordinates, size) * kernel.coordinates.scale.min() ** 2 <= 1.001e-3 / oracles.EPS
        log_elementary(kernel.coordinates, size)  # no error of the linear algebra
