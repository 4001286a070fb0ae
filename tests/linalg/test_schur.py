"""Minors, Schur complements and conditioning, against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from kernels import AWKWARD, Case, random_ndpp
from ndpp.linalg.scaling import entry_magnitudes
from ndpp.linalg.schur import (
    ROUNDING,
    condition_inner,
    condition_on,
    condition_or_zero,
    eliminate,
    judged_minor,
    log_det_or_zero,
    rank_one_condition,
    schur_complement,
)
from ndpp.linalg.size_law import resolvent


def test_schur_complement_is_that_of_the_block_matrix():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((7, 7)) + 3 * np.eye(7)
    S = schur_complement(A[3:, 3:], A[3:, :3], A[:3, :3], A[:3, 3:])
    np.testing.assert_allclose(np.linalg.inv(S), np.linalg.inv(A)[3:, 3:], atol=1e-12)
    assert np.linalg.slogdet(A)[1] == pytest.approx(np.linalg.slogdet(A[:3, :3])[1] + np.linalg.slogdet(S)[1])


@pytest.mark.parametrize("stack", [(), (4,)])
def test_conditioning_at_once_and_item_by_item(stack: tuple[int, ...]):
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((*stack, 6, 6)) + 1j * rng.standard_normal((*stack, 6, 6))
    rows = rng.standard_normal((3, 6))
    at_once, log_det = condition_on(Z, rows)
    step, total = Z, np.zeros(stack, complex)
    for q in rows:
        step, pivot = rank_one_condition(step, q)
        total = total + np.log(pivot)
    np.testing.assert_allclose(at_once, step, atol=1e-10)
    np.testing.assert_allclose(np.exp(log_det), np.exp(total), rtol=1e-10)
    np.testing.assert_allclose(at_once @ rows.T, 0, atol=1e-10)
    np.testing.assert_allclose(rows @ at_once, 0, atol=1e-10)


def test_conditioning_on_rows_that_nearly_coincide():
    """Only their span counts: (q, q + δ) and (q, δ/|δ|) give one result, the log determinants differ by 2 log |δ|."""
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((6, 6)) + 3 * np.eye(6)
    q, direction = rng.standard_normal((2, 6))
    for delta in (1e-3, 1e-6):
        near, log_near = condition_on(Z, np.vstack([q, q + delta * direction]))
        far, log_far = condition_on(Z, np.vstack([q, direction]))
        np.testing.assert_allclose(near, far, atol=1e-14 / delta)
        assert log_near.real == pytest.approx(log_far.real + 2 * np.log(delta), abs=1e-14 / delta)
    assert condition_on(Z, np.vstack([q, q]))[1].real == -np.inf


def test_conditioning_on_nothing():
    Z = np.eye(3)
    same, log_det = condition_on(Z, np.zeros((0, 3)))
    np.testing.assert_array_equal(same, Z)
    assert log_det == 0


@pytest.mark.parametrize("spread", [0, 3, 6])
@pytest.mark.parametrize("mixed", [True, False])
def test_log_minor_against_exact_ones(spread: int, mixed: bool):
    """A set loses the digits that its rows lack and no more; rows of very different sizes do no harm.

    A factorisation is that of rows off by about k d EPS of their norms, and a determinant of k such rows changes by that
    over the smallest singular value of the rows, scaled to one.
    """
    X, W = random_ndpp(10, 8, np.random.default_rng(spread), spread=spread, mixed=mixed)
    X *= 2.0 ** np.arange(-20, 20, 4)[:, None]
    exact, magnitudes = oracles.exact_law(X, W), entry_magnitudes(W)
    unit = X * np.sqrt(magnitudes)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    for S in oracles.subsets(10):
        if 0 < len(S) <= 4:
            true = exact.log_minors[oracles.mask_of(S)]
            rounding = 4 * oracles.EPS * (len(S) * 8 / np.linalg.svdvals(unit[list(S)])[-1] + abs(true))
            assert judged_minor(X[list(S)], W, magnitudes=magnitudes)[0] == pytest.approx(true, abs=rounding, rel=0)


def test_log_minor_of_dependent_rows_is_minus_infinity():
    X, W = random_ndpp(6, 4, np.random.default_rng(2))
    magnitudes = entry_magnitudes(W)
    assert judged_minor(np.zeros((0, 4)), W, magnitudes=magnitudes)[0] == 0
    for rows in (
        np.vstack([X[0], X[0]]),
        np.vstack([X[0], X[1], 0.3 * X[0] - 0.7 * X[1]]),
        np.vstack([X[0], 1e-9 * X[0]]),
        np.vstack([X[0], 0 * X[1]]),
        X[:5],
    ):
        assert judged_minor(rows, W, magnitudes=magnitudes)[0] == -np.inf
    nearly = np.vstack([X[0], X[0] * (1 + 1e-9 * np.arange(4))])
    assert judged_minor(nearly, W, magnitudes=magnitudes)[0] > -np.inf


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_log_minor_of_many_rows_of_which_one_depends_on_the_others(seed: int):
    """Rounding grows with the number of rows, and so does what is taken for it."""
    rng = np.random.default_rng(seed)
    X, W = random_ndpp(40, 48, rng)
    magnitudes = entry_magnitudes(W)
    assert judged_minor(X, W, magnitudes=magnitudes)[0] > -np.inf
    X[-1] = rng.standard_normal(39) @ X[:-1]
    assert judged_minor(X, W, magnitudes=magnitudes)[0] == -np.inf


def test_log_minor_of_a_skew_kernel():
    """Odd minors of a skew matrix are zero, however large its entries."""
    rng = np.random.default_rng(3)
    K = rng.standard_normal((5, 5)) * 1e6
    K = K - K.T
    magnitudes = entry_magnitudes(K)
    for k in range(1, 6):
        value = judged_minor(np.eye(5)[:k], K, magnitudes=magnitudes)[0]
        assert (value == -np.inf) == (k % 2 == 1)
        if k % 2 == 0:
            assert value == pytest.approx(np.linalg.slogdet(K[:k, :k])[1])


def test_log_det_or_zero():
    assert log_det_or_zero(np.zeros((0, 0))) == 0
    assert log_det_or_zero(np.array([[2.0]])) == pytest.approx(np.log(2))
    assert log_det_or_zero(np.ones((2, 2))) == -np.inf
    assert log_det_or_zero(np.diag([1.0, -1.0])) == -np.inf


@pytest.mark.parametrize("k", [2, 20])
def test_a_singular_value_is_zero_up_to_the_bound_of_its_rounding(k: int):
    """At the bound, in any basis, a determinant is zero; at four times the bound it is what it is."""
    rng = np.random.default_rng(k)
    turns = np.linalg.qr(rng.standard_normal((2, k, k)))[0]
    turns[0, :, 0] *= np.linalg.det(turns[0]) * np.linalg.det(turns[1])
    for values, zero in ((k * ROUNDING / 2, True), (4 * k * ROUNDING, False)):
        core = turns[0] @ np.diag([*np.ones(k - 1), values]) @ turns[1]
        assert (log_det_or_zero(core) == -np.inf) == zero
    assert log_det_or_zero(core) == pytest.approx(np.log(values), abs=0.5)


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_all_eliminations_agree_on_what_is_singular_and_on_what_is_left(case: Case):
    """A set with det L_Y = 0 has no remainder; for every other one, all routines give the gains of dense algebra."""
    kernel, minors = case.kernel, oracles.minors(case.L)
    X, W, magnitudes = case.X, np.asarray(case.W), entry_magnitudes(case.W)
    R, masks = resolvent(kernel.coordinates, np.ones(1))[0][0], np.arange(len(minors))
    for Y in oracles.subsets(case.n_items):
        if not 0 < len(Y) <= 3:
            continue
        q, inside = kernel.q_rows(np.array(Y)), oracles.mask_of(Y)
        rest, is_zero = eliminate(kernel.coordinates, q), minors[inside] == 0
        assert (judged_minor(X[list(Y)], W, magnitudes=magnitudes)[0] == -np.inf) == is_zero
        assert (rest is None or rest.null.size > 0) == is_zero
        chance = minors[masks & inside == inside].sum() / minors.sum()
        with np.errstate(divide="ignore"):
            assert condition_or_zero(R, q)[1] == pytest.approx(np.log(chance), abs=1e-6)
        if is_zero or rest is None:
            continue
        gains = [minors[inside | 1 << a] / minors[inside] if not inside >> a & 1 else 0.0 for a in range(case.n_items)]
        tolerance = 1e-9 * max(1.0, np.abs(case.L).max() ** 2 / minors[inside])
        Z = kernel.q_rows(np.arange(case.n_items)) @ rest.to_z
        np.testing.assert_allclose(np.einsum("ij,ij->i", Z @ rest.M, Z), gains, atol=tolerance)
        np.testing.assert_allclose(
            np.einsum("ij,ij->i", X @ condition_inner(W, X[list(Y)])[0], X), gains, atol=tolerance
        )
