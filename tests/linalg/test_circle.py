"""The inclusion matrix M: its monitors, and the probabilities it gives."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import oracles
from kernels import AWKWARD, BY_NAME, Case, learned
from ndpp.linalg.coordinates import coordinates
from ndpp.linalg.size_law import inclusion_matrix, node_count, nodes


def test_nodes_are_half_of_a_circle():
    for count in (2, 8, 30):
        t = nodes(2.5, count)
        assert len(t) == count // 2
        np.testing.assert_allclose(np.abs(t), 2.5)
        whole = np.concatenate([t, t.conj()])
        np.testing.assert_allclose(np.sort(np.angle(whole**count)) % (2 * np.pi), np.pi)  # all roots of t^N = −ρ^N
        assert len(np.unique(np.round(whole, 9))) == count


def test_node_count_is_the_smallest_that_folds_nothing():
    law = np.array([0.0, 0.25, 0.0, 0.5, 0.0, 0.25, 0.0])
    assert node_count(law, 3) == 4
    assert node_count(np.array([0.5, 0.0, 0.5]), 0) == 4
    assert (
        node_count(np.array([0.5, 0.0, 0.25, 0.25]), 1) == 6
    )  # any part of the others is too much for an entry of zero
    for count in range(2, node_count(np.full(9, 1 / 9), 4), 2):
        assert any((k - 4) % count == 0 for k in range(9) if k != 4)


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_monitors_and_probabilities(case: Case):
    """tr M = k − |Y|, M q_y = 0, 0 ≤ sym(M) ≤ 1, and q_aᵀMq_a is the enumerated probability."""
    kernel = case.kernel
    Q = kernel.q_rows(np.arange(case.n_items))
    minors = oracles.minors(case.L)
    for given in [Y for k in range(3) for Y in combinations(range(0, case.n_items, 2), k)]:
        inside = oracles.mask_of(given)
        if not minors[np.arange(len(minors)) & inside == inside].any():
            continue
        q = Q[list(given)]
        for size in oracles.possible_sizes(case.L, given):
            if size == len(given):
                continue
            M, fraction = inclusion_matrix(kernel.coordinates, size, q)
            assert 0 < fraction <= 1
            assert np.trace(M) == pytest.approx(size - len(given), abs=1e-10)
            np.testing.assert_allclose(M @ q.T, 0, atol=1e-10)
            np.testing.assert_allclose(q @ M, 0, atol=1e-10)
            values = np.linalg.eigvalsh((M + M.T) / 2)
            assert values[0] >= -1e-10
            assert values[-1] <= 1 + 1e-10
            free = np.setdiff1d(np.arange(case.n_items), given)
            inclusion = np.einsum("ia,ab,ib->i", Q, M, Q)
            expected = oracles.inclusion_probabilities(case.L, size, given)
            np.testing.assert_allclose(inclusion[free], expected[free], atol=1e-10)


def test_nothing_survives_of_a_size_of_probability_zero():
    """A purely skew kernel has even sets only."""
    kernel = BY_NAME["purely skew"].kernel
    for size in (1, 3):
        assert inclusion_matrix(kernel.coordinates, size, np.empty((0, kernel.rank)))[1] < 1e-12


def test_too_few_nodes_give_the_folded_law():
    """The bias of the rule is known: N nodes give the law of |S| ≡ k (mod N). Here against a direct sum."""
    L = BY_NAME["size is rank"].L
    coords = coordinates(np.eye(5), L)
    t = nodes(1.0, 2)
    w = np.array([np.linalg.det(np.eye(5) + t_j * L) for t_j in t]) * t**-1.0
    e = np.exp([oracles.log_ek(L, k) for k in range(6)])
    folded = e[1] - e[3] + e[5]  # half-step angles: neighbours come with alternating sign
    assert w.real.sum() == pytest.approx(folded)
    M, _ = inclusion_matrix(coords, 1, np.zeros((0, 5)))
    assert np.trace(M) == pytest.approx(1, abs=1e-12)


@pytest.mark.data
@pytest.mark.parametrize("name", ["A", "B"])
def test_monitors_on_learned_kernels(name: str):
    kernel = learned(name).kernel
    given = kernel.q_rows(np.array([5, 1000, 3000]))
    for size in (10, 50):
        M, fraction = inclusion_matrix(kernel.coordinates, size, given)
        assert fraction > 1e-3
        assert np.trace(M) == pytest.approx(size - 3, abs=1e-9)
        np.testing.assert_allclose(M @ given.T, 0, atol=1e-9)
        values = np.linalg.eigvalsh((M + M.T) / 2)
        assert values[0] >= -1e-9
        assert values[-1] <= 1 + 1e-9
