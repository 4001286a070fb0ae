"""The up-step by rejection: pairs ∝ det L_{A ∪ {a, b}}, whatever A."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import goodness
import oracles
from kernels import BY_NAME, Case, eighths, learned, skew
from ndpp import LowRankKernel
from ndpp._compiled import interpreted
from ndpp._validation import frozen
from ndpp.errors import BudgetExceededError, PrecisionError, ZeroProbabilityError
from ndpp.items import LeverageTable
from ndpp.items.table import look_up, seed_words
from ndpp.linalg.scaling import unit_of
from ndpp.linalg.skew import dominating
from ndpp.samplers.exact.spectral import ProjectedItems
from ndpp.samplers.rejection import minor_ratio
from ndpp.samplers.walk import up_rejection
from ndpp.samplers.walk.up_rejection import PreparedRejectionUp, RejectionUp, absolute_root, pair_ratio


def pair_weights(case, kept):
    """det L_{A ∪ {a, b}} for all a, b, as a symmetric matrix."""
    minors = oracles.minors(case.L)
    W = np.zeros((case.n_items,) * 2)
    for a, b in combinations(sorted(set(range(case.n_items)) - set(kept)), 2):
        W[a, b] = W[b, a] = minors[oracles.mask_of((*kept, a, b))]
    return W


def pair_law(case, kept):
    W = pair_weights(case, kept)
    return {(a, b): 2 * W[a, b] / W.sum() for a, b in combinations(range(case.n_items), 2) if W[a, b]}


def draw_pairs(up, kept, n_draws, seed):
    rng, kept = np.random.default_rng(seed), np.array(kept, np.int64)
    draws = [up.pair(rng, kept) for _ in range(n_draws)]
    return [rows for rows, _ in draws], np.array([info["proposals"] for _, info in draws])


def step_of(up, kept):
    return up._step(up.kernel.q_rows(np.array(kept, np.int64)))


def has_pairs(kernel, kept):
    """Whether some pair completes these rows, which have a regular minor, and not by rounding alone."""
    q, B = kernel.q_rows(np.array(kept, np.int64)), kernel.coordinates.B
    if len(kept) and np.linalg.cond(q @ B @ q.T) > 1e6:
        return False
    inner = B - B @ q.T @ np.linalg.solve(q @ B @ q.T, q @ B)
    return np.trace(inner) ** 2 - np.sum(inner * inner.T) > 1e-9 * np.linalg.norm(inner) ** 2


def matrices(step):
    """B^A and its bound."""
    p, m = step.n_symmetric, len(step.gram)
    S, R, (Y, Z) = step.columns[:, :p], step.columns[:, p:m], np.hsplit(step.columns[:, m:], 2)
    return S @ S.T + Y @ Z.T - Z @ Y.T, S @ S.T + R @ R.T


def all_symmetric(step):
    """The step of the bound itself: every proposal is accepted."""
    m = len(step.gram)
    return step._replace(columns=np.ascontiguousarray(step.columns[:, :m]), n_symmetric=m)


def change_steps(monkeypatch, change):
    original = PreparedRejectionUp._step
    monkeypatch.setattr(PreparedRejectionUp, "_step", lambda up, given: change(original(up, given)))


DRAWS = 400
"""As many as the negative controls need."""


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("generic", (0, 5)),
        ("generic", ()),
        ("ondpp", (1, 2, 3)),
        ("symmetric", (4,)),
        ("purely skew", (0, 1)),
        ("mostly skew", (2, 7)),
        ("two items", ()),
        ("zero diagonal", (3, 4)),
        ("duplicate rows", (0, 2)),
        ("zero rows", (1,)),
        ("rank-deficient X", (3, 1)),
        ("far from normal", (2, 0)),
    ],
)
def test_law_and_closed_form(name, kept, remembered):
    case = BY_NAME[name]
    up = RejectionUp().prepare(case.kernel, len(kept) + 2)
    pairs, proposals = draw_pairs(up, kept, DRAWS, 1)
    goodness.assert_law(pairs, pair_law(case, kept))
    goodness.assert_mean(proposals, up.expected_proposals(np.array(kept, np.int64)))


@pytest.mark.parametrize("columns", ["as they are", "chosen independently"])
def test_law_over_many_draws(columns):
    """10,000 pairs for one A, whose decompositions are done once, as they are for all proposals of a step.

    Negative control: two columns of the factor are chosen independently. They overlap, so this is not the distribution proposed.
    """
    case, rng, kept = BY_NAME["generic"], np.random.default_rng(2), (3, 6)
    up = RejectionUp().prepare(case.kernel)
    step = step_of(up, kept)
    if columns == "chosen independently":
        square = np.diag(np.diag(step.gram))
        minors = np.diag(square) * np.trace(square) - np.diag(square) ** 2
        step = step._replace(gram=square, cdf=np.cumsum(minors))
    pairs = [up.propose(seed_words(rng), step, 1000)[0] for _ in range(10_000)]
    if columns == "chosen independently":
        with pytest.raises(AssertionError, match="do not follow the law"):
            goodness.assert_law(pairs, pair_law(case, kept))
    else:
        goodness.assert_law(pairs, pair_law(case, kept))


@pytest.mark.parametrize(
    ("name", "kept"), [("generic", (0, 5)), ("mostly skew", (2, 7)), ("symmetric", (4,)), ("purely skew", ())]
)
@pytest.mark.parametrize("at_once", [1, 256])
def test_compiled_proposals_are_those_of_the_plain_loop(name, kept, at_once, monkeypatch):
    monkeypatch.setattr(up_rejection, "AT_ONCE", at_once)
    kernel = BY_NAME[name].kernel
    up = RejectionUp().prepare(kernel)
    compiled, proposals = draw_pairs(up, kept, 200, 12)
    monkeypatch.setattr(up_rejection, "_propose", interpreted(up_rejection._propose))
    plain, counted = draw_pairs(up, kept, 200, 12)
    np.testing.assert_array_equal(compiled, plain)
    np.testing.assert_array_equal(proposals, counted)


def test_rows_that_are_not_in_memory_give_the_same_pairs(monkeypatch):
    case = BY_NAME["mostly skew"]
    kept = draw_pairs(RejectionUp().prepare(case.kernel), (2, 7), 50, 13)
    monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
    kernel = LowRankKernel(case.X, case.W)
    assert kernel.coordinates.Q is None
    fetched = draw_pairs(RejectionUp().prepare(kernel), (2, 7), 50, 13)
    np.testing.assert_array_equal(kept[0], fetched[0])
    np.testing.assert_array_equal(kept[1], fetched[1])


@pytest.mark.parametrize(
    "name", ["generic", "ondpp", "symmetric", "purely skew", "mostly skew", "far from normal", "zero diagonal"]
)
def test_factors_give_the_matrices_of_an_elimination(name):
    """B^A, its bound, the acceptance of every pair and the closed form, against an elimination and dense minors, for every A."""
    kernel = BY_NAME[name].kernel
    up, Q = RejectionUp().prepare(kernel), kernel.q_rows(np.arange(8))
    compared = 0
    for kept in (A for k in range(min(4, kernel.rank - 1)) for A in combinations(range(8), k)):
        q, step = Q[list(kept)], step_of(up, kept) if has_pairs(kernel, kept) else None
        if step is None:
            continue
        compared += 1
        inner = up.B - up.B @ q.T @ np.linalg.solve(q @ up.B @ q.T, q @ up.B)
        bound = dominating(inner)
        size = np.abs(bound).max()
        for found, expected in zip(matrices(step), (inner, bound)):
            np.testing.assert_allclose(found, expected, atol=1e-10 * size)
        for a, b in combinations(sorted(set(range(8)) - set(kept)), 2):
            if np.linalg.det(Q[[a, b]] @ bound @ Q[[a, b]].T) > 1e-6 * size**2:
                ratio = pair_ratio(Q[a], Q[b], step.columns, step.n_symmetric)
                assert ratio == pytest.approx(minor_ratio(Q[[a, b]], inner, bound), abs=1e-8)
    assert compared > 10


@pytest.mark.parametrize(("rank", "pairs"), [(7, 3), (8, 4), (12, 2), (5, 1), (4, 0)])
@pytest.mark.parametrize("deficient", [False, True])
def test_the_root_of_the_absolute_value(rank, pairs, deficient):
    F = np.random.default_rng(14).standard_normal((rank, 2 * pairs)) * np.logspace(0, -6, 2 * pairs)
    if deficient and pairs:
        F[:, -1] = F[:, 0]
    Y, Z = np.hsplit(F, 2)
    R = absolute_root(F)
    assert R.shape == F.shape
    np.testing.assert_allclose(R @ R.T, dominating(Y @ Z.T - Z @ Y.T), atol=1e-14)


@pytest.mark.parametrize(("name", "kept"), [("generic", ()), ("mostly skew", (2, 7)), ("ondpp", (1, 2, 3))])
def test_law_check_rejects_a_missing_acceptance_test(name, kept, remembered, monkeypatch):
    """Negative control: the first proposal is taken."""
    case = BY_NAME[name]
    change_steps(monkeypatch, all_symmetric)
    pairs, proposals = draw_pairs(RejectionUp().prepare(case.kernel), kept, DRAWS, 4)
    assert (proposals == 1).all()
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(pairs, pair_law(case, kept))


def test_expected_proposals_are_the_ratio_of_pair_sums():
    case, kept = BY_NAME["ondpp"], (1, 4)
    up = RejectionUp().prepare(case.kernel)
    Q = case.kernel.q_rows(np.arange(8))
    unit = unit_of(case.kernel.coordinates.scale) ** 2  # what a step takes L to be of order one by
    L_hat, L_A = unit * Q @ matrices(step_of(up, kept))[1] @ Q.T, case.L[np.ix_(kept, kept)]
    e_2 = pair_weights(case, kept).sum() / 2 / np.linalg.det(L_A)
    np.testing.assert_allclose(L_hat[list(kept)], 0, atol=1e-12 * np.abs(L_hat).max())  # rounding of the rest, no more
    others = np.delete(np.arange(8), kept)
    expected = np.exp(oracles.log_ek(L_hat[np.ix_(others, others)], 2)) / e_2
    np.testing.assert_allclose(up.expected_proposals(np.array(kept)), expected, rtol=1e-11)


def test_theorem_1_holds_for_every_conditional():
    """det L^A_S ≤ det L̂^A_S for all A and all S, on a kernel whose parts mix."""
    case = BY_NAME["mostly skew"]
    up, Q = RejectionUp().prepare(case.kernel), case.kernel.q_rows(np.arange(8))
    for kept in (A for k in range(4) for A in combinations(range(8), k)):
        low, high = (Q @ matrix @ Q.T for matrix in matrices(step_of(up, kept)))
        others = sorted(set(range(8)) - set(kept))
        for S in (list(S) for k in (1, 2, 3) for S in combinations(others, k)):
            block = high[np.ix_(S, S)]
            rounding = 1e-11 * np.prod(np.linalg.norm(block, axis=1))
            assert np.linalg.det(low[np.ix_(S, S)]) <= np.linalg.det(block) + rounding


# ---- singular L_A ---------------------------------------------------------------------------------------------------


def without_own_minors():
    """Items 0 and 1 have L_{01} = 0, and come with two of the others, ∝ (det of their coupling)²."""
    coupling, rest = (
        eighths(np.random.default_rng(16), 2, 4),
        np.eye(4) + skew(eighths(np.random.default_rng(17), 4, 4)),
    )
    return Case("no minors of their own", np.eye(6), np.block([[np.zeros((2, 2)), coupling], [-coupling.T, rest]]))


@pytest.mark.parametrize(
    ("case", "kept"),
    [(BY_NAME["zero diagonal"], (0,)), (BY_NAME["singular L_A"], (0, 1)), (without_own_minors(), (0, 1))],
    ids=str,
)
def test_singular_sets_kept_are_completed_without_rejection(case, kept, remembered):
    up = RejectionUp().prepare(case.kernel)
    pairs, proposals = draw_pairs(up, kept, DRAWS, 5)
    goodness.assert_law(pairs, pair_law(case, kept))
    assert (proposals == 1).all()
    assert up.expected_proposals(np.array(kept)) == 1.0


@pytest.mark.parametrize("epsilon", [0.0, 1e-14, 1e-10, 1e-7, 1e-5])
def test_nearly_singular_sets_kept(epsilon, remembered):
    """L = ⊕ [[ε, 1], [−1, ε]], A = one item of each of two pairs: the pair that completes it is nearly certain."""
    case = BY_NAME["block pairs"]
    case = type(case)("pairs", case.X, case.W + (epsilon - 1 / 8) * np.eye(8))
    up, kept, rng = RejectionUp().prepare(case.kernel), np.array([0, 2]), np.random.default_rng(6)
    assert {tuple(up.pair(rng, kept)[0].tolist()) for _ in range(50)} == {(1, 3)}


def test_sets_that_nothing_completes_are_refused():
    rng = np.random.default_rng(7)
    duplicates = RejectionUp().prepare(BY_NAME["duplicate rows"].kernel)
    with pytest.raises(ZeroProbabilityError, match="completes"):
        duplicates.pair(rng, np.array([0, 5]))
    with pytest.raises(ZeroProbabilityError, match="completes"):
        duplicates.pair(rng, np.array([0, 1, 2, 3]))
    broken = RejectionUp().prepare(BY_NAME["broken pairs"].kernel)
    with pytest.raises(ZeroProbabilityError, match="completes"):
        broken.pair(rng, np.array([0, 2, 4]))


# ---- budget, seeds, real kernels ------------------------------------------------------------------------------------


def test_a_step_beyond_its_budget_is_refused_with_the_figure():
    kernel = BY_NAME["block pairs"].kernel
    with pytest.raises(BudgetExceededError, match=r"5\.87 proposals on average, above its budget of 3") as caught:
        RejectionUp(budget=3).prepare(kernel).pair(np.random.default_rng(8), np.array([0, 1]))
    assert caught.value.count == 0


@pytest.mark.parametrize("at_once", [7, 256])
def test_budget_error_carries_the_count(at_once, monkeypatch):
    def without_minors(step):
        columns = step.columns[:, : len(step.gram)]
        nothing = np.zeros((len(columns), 100 + -columns.shape[1] % 4))
        return step._replace(columns=np.hstack([columns, nothing]), n_symmetric=0)

    change_steps(monkeypatch, without_minors)
    monkeypatch.setattr(up_rejection, "AT_ONCE", at_once)
    up, rng = RejectionUp(budget=20).prepare(BY_NAME["generic"].kernel), np.random.default_rng(9)
    with pytest.raises(BudgetExceededError, match="20 pairs were proposed") as caught:
        up.pair(rng, np.array([0, 5]))
    assert caught.value.count == 20
    other = np.random.default_rng(9)
    seed_words(other)  # a step takes these, however many pairs it proposes
    assert rng.random() == other.random()


def test_what_rounding_cannot_explain_is_refused():
    """The checks of every draw: probabilities of items that are NaN or above one, an item drawn twice, an acceptance above one."""
    up, rng = RejectionUp().prepare(BY_NAME["generic"].kernel), np.random.default_rng(15)
    step, table = step_of(up, (0, 5)), up.index

    def propose(step=step, index=table):
        return replace(up, index=index).propose(seed_words(rng), step, 1000)

    assert propose()[1] >= 1
    large = step.columns.copy()
    large[:, len(step.gram) :] *= 10
    with pytest.raises(PrecisionError, match="acceptance of a proposed set"):
        propose(step._replace(columns=large))
    with pytest.raises(PrecisionError, match="acceptance of an item"):
        propose(step._replace(columns=step.columns * np.nan))
    with pytest.raises(PrecisionError, match="acceptance of an item"):
        [propose(index=replace(table, leverage=frozen(table.leverage / 3))) for _ in range(200)]
    with pytest.raises(BudgetExceededError, match="2 items were proposed by their leverage"):
        [propose(index=replace(table, budget=2)) for _ in range(200)]


def test_an_item_that_is_drawn_twice_is_refused():
    up = RejectionUp().prepare(BY_NAME["generic"].kernel)
    with pytest.raises(PrecisionError, match="drew an item twice"):
        ProjectedItems(np.array([3, 3]), 2, 9, 0.5).check(up.index)


def test_same_seed_same_pair_and_inputs_untouched():
    up, kept = RejectionUp().prepare(BY_NAME["generic"].kernel), np.array([5, 0])
    first, second = (up.pair(np.random.default_rng(10), kept) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]
    assert first[0][0] < first[0][1]
    np.testing.assert_array_equal(kept, [5, 0])


@pytest.mark.data
@pytest.mark.parametrize("name", ["A", "B"])
def test_learned_kernels_match_the_closed_form(name):
    """Proposals of steps from ten items drawn by leverage, divided by their expectation, average to one."""
    kernel, rng = learned(name).kernel, np.random.default_rng(11)
    up, table, ratios = RejectionUp().prepare(kernel), LeverageTable.prepare(kernel), []
    for _ in range(40):
        kept = np.unique(look_up(table.threshold, table.alias, rng.random((2, 8))))
        ratios.append(up.pair(rng, kept)[1]["proposals"] / up.expected_proposals(kept))
    goodness.assert_mean(ratios, 1.0)
