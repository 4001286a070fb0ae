"""The one decomposition B = VΛV⁻¹: functions of B in its layouts, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels import AWKWARD, Case, eighths, skew
from ndpp.linalg import eigen as module
from ndpp.linalg.coordinates import coordinates
from ndpp.linalg.eigen import EigenBasis
from ndpp.linalg.size_law import resolvent

RNG = np.random.default_rng(30)
GENERIC = Case("generic", eighths(RNG, 8, 5), np.diag([1.0, 2.0, 0.5, 0.25, 3.0]) + skew(eighths(RNG, 5, 5)))
SKEW = Case("skew", eighths(RNG, 8, 4), skew(eighths(RNG, 4, 4)))
DEFECTIVE = Case("defective", np.eye(3), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
both = pytest.mark.parametrize("case", [GENERIC, SKEW], ids=str)


def basis_of(case: Case) -> EigenBasis:
    basis = EigenBasis.of(case.kernel.coordinates)
    assert basis is not None
    return basis


@both
def test_real_sides_give_the_resolvent(case):
    basis, coords = basis_of(case), case.kernel.coordinates
    to_left, to_right = basis.to_sides
    assert to_left.shape[1] == coords.rank
    K, conjugates = len(basis.values), int((basis.multiplicity > 1).sum())
    for s in (1.0, 0.1):
        f = s * basis.values / (1 + s * basis.values)
        F = np.diag(np.concatenate([f.real, f.real[:conjugates]]))
        first, second = np.arange(conjugates), K + np.arange(conjugates)
        F[first, second], F[second, first] = f.imag[:conjugates], -f.imag[:conjugates]
        expected = resolvent(coords, np.array([s]))[0][0]
        np.testing.assert_allclose(to_left @ F @ to_right.T, expected, atol=1e-12)


@both
def test_pairs_stand_side_by_side(case):
    basis = basis_of(case)
    K, order = len(basis.values), basis.in_pairs
    assert sorted(order.tolist()) == list(range(basis.to_sides.shape[2]))
    values = basis.values[order % K]
    pairs = 2 * int((basis.multiplicity > 1).sum())
    np.testing.assert_array_equal(values[0:pairs:2], values[1:pairs:2])
    assert np.all(values[pairs:].imag == 0)


def test_several_matrices_at_once():
    """With different numbers of real eigenvalues, and one that is refused."""
    matrices = np.stack([np.diag([1.0, 2.0, 3.0]), DEFECTIVE.W, np.eye(3) + skew(np.ones((3, 3)))])
    basis, agrees = EigenBasis.of_many(matrices, is_skew=False)
    assert agrees.tolist() == [True, False, True]
    for c in (0, 2):
        f = basis.values[c] / (1 + basis.values[c])
        found = ((basis.V[c] * basis.multiplicity[c] * f) @ basis.inverse[c]).real
        np.testing.assert_allclose(found, matrices[c] @ np.linalg.inv(np.eye(3) + matrices[c]), atol=1e-12)


def test_a_skew_matrix_has_orthonormal_eigenvectors():
    basis = basis_of(SKEW)
    np.testing.assert_allclose(basis.V.conj().T @ basis.V, np.eye(len(basis.values)), atol=1e-14)
    np.testing.assert_array_equal(basis.to_sides[0], 2 * basis.to_sides[1])


def test_without_eigenvectors_there_is_no_basis():
    assert EigenBasis.of(DEFECTIVE.kernel.coordinates) is None
    assert EigenBasis.of(coordinates(np.zeros((3, 1)), np.eye(1))) is None


def test_entries_that_are_not_finite_have_no_eigenvectors():
    coords = GENERIC.kernel.coordinates
    assert EigenBasis.of(replace(coords, B=coords.B + np.where(np.eye(coords.rank), 0.0, np.inf))) is None


def test_a_decomposition_that_disagrees_is_refused(monkeypatch):
    decompose = module._of_general

    def wrong(B, ops):
        basis = decompose(B, ops)
        return basis._replace(values=basis.values * (1 + 1e-9))

    monkeypatch.setattr(module, "_of_general", wrong)
    assert EigenBasis.of(GENERIC.kernel.coordinates) is None


def test_most_kernels_have_one():
    have = [EigenBasis.of(case.kernel.coordinates) is not None for case in AWKWARD if case.kernel.rank]
    assert np.mean(have) > 0.7
