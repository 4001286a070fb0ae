"""The leverage table draws the law of the scan, and the scan that of enumeration."""

from __future__ import annotations

import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

import goodness
import oracles
from kernels import BY_NAME, random_ndpp
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, InvalidInputError, PrecisionError, ZeroProbabilityError
from ndpp.items import LeverageTable
from ndpp.items import table as table_module
from ndpp.items.base import look_up_cdf
from ndpp.items.table import alias_table
from scan import Scan

INDEXES = {"scan": Scan.prepare, "table": LeverageTable.prepare}
every_index = pytest.mark.parametrize("prepare", INDEXES.values(), ids=INDEXES)


DRAWS = 2_000
"""More than the negative control needs."""


def drawn(index, M, rng, n_draws):
    return np.array([index.draw(rng, M) for _ in range(n_draws)])


def counts(index, M, rng, n_draws=DRAWS):
    return np.bincount(drawn(index, M, rng, n_draws), minlength=index.kernel.coordinates.leverage.size)


def psd(rank, rng, directions=None):
    """A random positive semidefinite M ⪯ I of the given rank."""
    V = np.linalg.qr(rng.standard_normal((rank, rank)))[0][:, : directions or rank]
    return (V * rng.uniform(0.01, 1.0, V.shape[1])) @ V.T


def inclusion_matrix(kernel, size, items):
    """M with q_aᵀMq_a = P(a ∈ S | items ⊆ S, |S| = size), summed over all sets T of size − 1: det L_{T ∪ a} is
    quadratic in q_a, and its coefficients are determinants bordered by B instead."""
    B = kernel.coordinates.B
    Q = kernel.q_rows(np.arange(kernel.n_items))
    M = np.zeros_like(B)
    for T in combinations([a for a in range(kernel.n_items) if a not in items], size - 1 - len(items)):
        rows = Q[[*items, *T]]
        blocks = np.empty((*B.shape, size, size))
        blocks[:, :, :-1, :-1] = rows @ B @ rows.T
        blocks[:, :, :-1, -1] = (rows @ B).T[None, :, :]
        blocks[:, :, -1, :-1] = (B @ rows.T)[:, None, :]
        blocks[:, :, -1, -1] = B
        M += np.linalg.det(blocks)
    return M * (size - len(items)) / np.trace(M)


@pytest.fixture(scope="module")
def kernel():
    return LowRankKernel(*random_ndpp(37, 6, np.random.default_rng(0)))


@every_index
@pytest.mark.parametrize(
    ("name", "size", "items"),
    [
        ("generic", 5, ()),
        ("generic", 5, (3,)),
        ("generic", 6, (3, 0, 6, 7)),
        ("purely skew", 4, (1, 2)),
        ("broken pairs", 5, (0, 2)),
        ("duplicate rows", 4, (0,)),
        ("zero rows", 3, (1,)),
        ("rank-deficient X", 3, (2, 5)),
        ("one item", 1, ()),
        ("two items", 2, (1,)),
    ],
)
def test_inclusion_matrices_are_drawn_as_enumerated(prepare, name, size, items):
    case = BY_NAME[name]
    law = oracles.inclusion_probabilities(case.L, size, items)
    law[list(items)] = 0.0
    M = inclusion_matrix(case.kernel, size, items)
    goodness.assert_counts(counts(prepare(case.kernel), M, np.random.default_rng(1)), law / law.sum())


@every_index
@pytest.mark.parametrize("n", [1, 7, 37, 1000])
@pytest.mark.parametrize("directions", [1, None])
def test_law_is_that_of_the_weights(prepare, n, directions):
    rng = np.random.default_rng(n)
    kernel = LowRankKernel(*random_ndpp(n, 6, rng))
    M = psd(kernel.rank, rng, min(directions or n, kernel.rank))
    weights = np.einsum("ia,ab,ib->i", *(kernel.q_rows(np.arange(n)), M, kernel.q_rows(np.arange(n))))
    goodness.assert_counts(counts(prepare(kernel), M, rng, 2 * DRAWS), weights / weights.sum())


@every_index
def test_successive_draws_are_independent(prepare):
    """As pairs, they follow the product law."""
    rng = np.random.default_rng(2)
    kernel = LowRankKernel(*random_ndpp(5, 3, rng))
    M = psd(3, rng)
    p = Scan.prepare(kernel).weights(M)
    rows = drawn(prepare(kernel), M, rng, 4 * DRAWS)
    pairs = np.bincount(rows[::2] * 5 + rows[1::2], minlength=25)
    goodness.assert_counts(pairs, np.outer(p, p).ravel() / p.sum() ** 2)


@every_index
def test_only_the_symmetric_part_counts(prepare, kernel):
    rng = np.random.default_rng(3)
    M, skew = psd(6, rng), rng.standard_normal((6, 6))
    weights = Scan.prepare(kernel).weights(M)
    goodness.assert_counts(counts(prepare(kernel), M + skew - skew.T, rng), weights / weights.sum())


@every_index
def test_restricted_kernels_are_drawn_by_rows_of_the_support(prepare, kernel):
    rng = np.random.default_rng(4)
    part = kernel.restrict(np.arange(0, 37, 2))
    M = psd(part.rank, rng)
    weights = Scan.prepare(part).weights(M)
    assert weights.size == 19
    goodness.assert_counts(counts(prepare(part), M, rng), weights / weights.sum())


@every_index
def test_inputs_are_untouched_and_draws_repeat(prepare, kernel):
    M = psd(6, np.random.default_rng(5))
    before = M.copy()
    M.setflags(write=False)
    index = prepare(kernel)
    first, second = (drawn(index, M, np.random.default_rng(6), 50) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(M, before)


def test_what_an_index_holds_cannot_be_written(kernel):
    index = LeverageTable.prepare(kernel)
    arrays = [value for name, value in vars(index).items() if isinstance(value, np.ndarray) and name != "leverage"]
    assert len(arrays) == 2
    assert not any(array.flags.writeable for array in arrays)


@every_index
def test_bad_queries_are_refused(prepare, kernel):
    index, rng = prepare(kernel), np.random.default_rng(7)
    with pytest.raises(InvalidInputError, match=r"shape \(6, 6\)"):
        index.draw(rng, np.eye(5))
    with pytest.raises(ZeroProbabilityError, match="nothing to draw"):
        index.draw(rng, np.zeros((6, 6)))
    with pytest.raises(PrecisionError):
        index.draw(rng, np.full((6, 6), np.nan))
    q = kernel.q_rows(np.argmax(kernel.coordinates.leverage, keepdims=True))[0]
    with pytest.raises(PrecisionError):  # the weight of one item is negative, in whatever basis
        drawn(index, np.eye(6) - 1.9 * np.outer(q, q) / (q @ q), rng, 1000)


# ---- leverage table -------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@hypothesis_given(st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=60).filter(any))
def test_alias_table_holds_the_law(weights):
    weights = np.array(weights)
    threshold, alias = alias_table(weights)
    assert threshold.min() >= 0
    assert threshold.max() <= 1 + 1e-12
    law = (threshold + np.bincount(alias, 1 - threshold, len(weights))) / len(weights)
    # Up to n roundings each of the sum of the weights, of what is left of a full cell, and of the aliases added here.
    np.testing.assert_allclose(
        law, weights / weights.sum(), rtol=0, atol=1.5 * (len(weights) + 2) * np.finfo(float).eps
    )
    assert (law[weights == 0] == 0).all(), "what has weight zero must never be drawn"


def test_a_copy_from_another_process_is_read_only_too(kernel):
    """Numba compiles for read-only arrays, and would compile again, for seconds, for arrays that can be written."""
    prepared = LeverageTable.prepare(kernel)
    copy = pickle.loads(pickle.dumps(prepared))
    for name, part in vars(prepared).items():
        if isinstance(part, np.ndarray):
            assert not part.flags.writeable
            assert not getattr(copy, name).flags.writeable
            np.testing.assert_array_equal(getattr(copy, name), part)
    rows = [drawn(one, np.eye(6), np.random.default_rng(13), 50).tolist() for one in (prepared, copy)]
    assert rows[0] == rows[1]


def test_proposals_follow_the_leverages():
    kernel = BY_NAME["zero rows"].kernel
    table = LeverageTable.prepare(kernel)
    rows = table_module.look_up(table.threshold, table.alias, np.random.default_rng(14).random((2, 50_000)))
    goodness.assert_counts(np.bincount(rows, minlength=8), table.leverage / table.leverage.sum())
    assert not np.isin(rows, [0, 4, 7]).any()


@pytest.mark.parametrize(("scale", "bound"), [(1.0, 1.0), (1.0, 3.0), (50.0, 50.0)])
def test_proposals_are_counted_and_match_the_acceptance_rate(kernel, scale, bound):
    """The mean number of proposals is bound · r / tr M."""
    rng = np.random.default_rng(15)
    M = psd(6, rng)
    table = LeverageTable.prepare(kernel)
    proposals = [table.draw_counted(rng, scale * M, bound=bound).proposals for _ in range(3000)]
    goodness.assert_mean(proposals, bound * 6 / (scale * np.trace(M)))


def test_table_refuses_what_its_bound_does_not_cover(kernel):
    table, rng = LeverageTable.prepare(kernel), np.random.default_rng(16)
    with pytest.raises(PrecisionError, match="leverage"):
        drawn(table, 1.001 * np.eye(6), rng, 100)
    assert table.draw_counted(rng, 1.001 * np.eye(6), bound=1.001).row in range(37)
    with pytest.raises(InvalidInputError, match="bound"):
        table.draw_counted(rng, np.eye(6), bound=0.0)


def test_compiled_proposals_equal_plain():
    """Also for a uniform next to one, whose product with the number of cells may round up to that number."""
    rng = np.random.default_rng(19)
    threshold, alias = table_module.alias_table(rng.random(37))
    uniforms = rng.random((2, 400))
    cells = (uniforms[0] * 37).astype(int)
    plain = np.where(uniforms[1] < threshold[cells], cells, alias[cells])
    rows = table_module.look_up(threshold, alias, uniforms)
    np.testing.assert_array_equal(rows, plain)
    assert (rows != cells).any()
    assert (rows == cells).any()
    last = table_module.look_up(threshold, alias, np.array([[1.0], [0.0]]))
    np.testing.assert_array_equal(last, [36])


def test_compiled_judging_equals_plain():
    """The first proposal that its coin accepts, and the range of chances seen on the way; NaN is reported at once."""
    rng = np.random.default_rng(18)
    Q, M, places = rng.standard_normal((50, 6)) / 4, psd(6, rng), rng.integers(0, 50, 90)
    coins, ceiling = rng.random(90), np.full(90, 2.0)
    chances = np.einsum("ia,ab,ib->i", Q[places], M, Q[places]) / ceiling
    hits = np.flatnonzero(coins < chances)
    assert 3 < len(hits) < 90
    for start, hit in zip([0, *(hits[:-1] + 1)], hits):
        accepted, *extremes = table_module.accept(Q, places[start:], M, coins[start:], ceiling[start:])
        assert accepted == hit - start
        seen = chances[start : hit + 1]
        np.testing.assert_allclose(extremes, [min(0.5, seen.min()), max(0.5, seen.max())])
    none, *extremes = table_module.accept(Q, places, M, np.ones(90), ceiling)
    assert none == -1
    np.testing.assert_allclose(extremes, [min(0.5, chances.min()), max(0.5, chances.max())])
    M[0, 1] = M[1, 0] = np.nan
    assert np.isnan(table_module.accept(Q, places, M, coins, ceiling)[1:]).all()


def test_budget_error_carries_the_count(kernel):
    table = LeverageTable.prepare(kernel, budget=20)
    with pytest.raises(BudgetExceededError, match=r"1e\+05 proposals are needed on average") as caught:
        table.draw(np.random.default_rng(17), 1e-5 * np.eye(6))
    assert caught.value.count == 20


def test_inverted_cdf_never_returns_a_place_of_weight_zero():
    weights = np.array([0.0, 1.0, 0.0, 2.0, 0.0])
    uniforms = np.array([0.0, 1 / 3 - 1e-12, 1 / 3 + 1e-12, np.nextafter(1.0, 0.0)])
    assert [look_up_cdf(np.cumsum(weights), uniform) for uniform in uniforms] == [1, 1, 3, 3]


def test_inverted_cdf_of_weights_so_small_that_the_product_rounds_up_to_the_total():
    least = np.nextafter(0.0, 1.0)
    assert 0.75 * least == least
    assert look_up_cdf(np.cumsum([0.0, least, 0.0]), 0.75) == 1
