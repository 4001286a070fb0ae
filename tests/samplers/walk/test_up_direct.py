"""The up-steps without rejection of pairs, direct and naive: pairs ∝ det L_{A ∪ {a, b}}, whatever A."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import combinations

import numpy as np
import pytest

import goodness
import oracles
from kernels import AWKWARD, BY_NAME, Case, learned, pair_blocks, random_ndpp
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, InvalidInputError, ZeroProbabilityError
from ndpp.items import ItemDraw, LeverageTable
from ndpp.linalg.scaling import quadratic_forms
from ndpp.linalg.schur import MAX_LOSS
from ndpp.linalg.size_law import inclusion_matrix
from ndpp.samplers.walk import up_direct
from ndpp.samplers.walk.up import NaiveUp
from ndpp.samplers.walk.up_direct import (
    DirectUp,
    choose,
    condition,
    first_form,
    first_probabilities,
    second_form,
    second_probabilities,
)

SPREAD = [Case(f"spread 10^±{s}", *random_ndpp(7, 5, np.random.default_rng(s), spread=s)) for s in (1, 2, 3)]


@dataclass(frozen=True, eq=False)
class Forced:
    """A table that returns the rows it is told to, and remembers the forms it was asked with."""

    rows: list[int] = field(default_factory=list)
    seen: list[np.ndarray] = field(default_factory=list)

    def draw_counted(self, rng, M):
        self.seen.append(M)
        return ItemDraw(self.rows.pop(0), 1)


def drawing_from(index, kernel, size):
    """The up-step with another table, which is asked for forms."""
    return replace(DirectUp().prepare(kernel, size), index=index, factors=None)


def pair_weights(minors, n, kept):
    """det L_{A ∪ {a, b}} for all a, b, as a symmetric matrix."""
    W = np.zeros((n, n), dtype=object if isinstance(minors, tuple) else float)
    for a, b in combinations(sorted(set(range(n)) - set(kept)), 2):
        W[a, b] = W[b, a] = minors[oracles.mask_of((*kept, a, b))]
    return W


def pair_law(case, kept):
    W = pair_weights(oracles.minors(case.L), case.n_items, kept)
    return {(a, b): 2 * W[a, b] / W.sum() for a, b in combinations(range(case.n_items), 2) if W[a, b]}


def completable(case):
    """Every set A that two items can complete, with the weights of the pairs, exact where L is badly scaled."""
    minors = oracles.exact_law(case.X, case.W).minors if case in SPREAD else oracles.minors(case.L)
    for k in range(max(0, min(case.n_items, case.kernel.rank) - 1)):
        for kept in combinations(range(case.n_items), k):
            weights = pair_weights(minors, case.n_items, kept)
            if weights.any():
                yield np.array(kept, np.int64), (weights / weights.sum()).astype(float)


def draw_pairs(up, kept, n_draws, seed):
    rng = np.random.default_rng(seed)
    return [up.pair(rng, np.array(kept, np.int64))[0] for _ in range(n_draws)]


# ---- the law, without drawing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*AWKWARD, *SPREAD], ids=str)
def test_both_items_for_every_set_kept(case):
    """What the up-step asks its index for, against enumeration, for every other A: L_A regular, ill-conditioned, singular."""
    kernel, Q, fallbacks = case.kernel, case.kernel.q_rows(np.arange(case.n_items)), 0
    for kept, weights in [*completable(case)][::2]:
        marginal, up = weights.sum(axis=1), drawing_from(None, kernel, len(kept) + 2)
        for a in np.flatnonzero(marginal > 1e-3)[::2]:
            b = int(np.argmax(weights[a]))
            index = Forced([int(a), b])
            rows, info = replace(up, index=index).pair(None, kept)
            fallbacks += info["fallbacks"]
            first, second = (quadratic_forms(Q, M) for M in index.seen)
            assert rows.tolist() == sorted((a, b))
            np.testing.assert_allclose(first, 2 * marginal, atol=2e-8, err_msg=f"A = {kept}")
            np.testing.assert_allclose(second, weights[a] / marginal[a], atol=2e-7, err_msg=f"A = {kept}, {a}")
    if str(case) in ("broken pairs", "singular L_A", "zero diagonal"):
        assert fallbacks > 0
    if str(case) in ("generic", "symmetric", "block pairs"):
        assert fallbacks == 0


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_naive_law_for_every_set_kept(case):
    up = NaiveUp().prepare(case.kernel, case.kernel.rank)
    for kept, weights in completable(case):
        pairs, law = up.law(kept)
        np.testing.assert_allclose(law, 2 * weights[tuple(pairs.T)], atol=1e-10, err_msg=f"A = {kept}")


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_weights_are_those_of_the_forms(case):
    """The block-wise weights of the leverage table against the matrices they stand for."""
    kernel, every = case.kernel, np.arange(case.n_items)
    up, Q = DirectUp().prepare(kernel, 2), case.kernel.q_rows(every)
    for kept, weights in completable(case):
        given = condition(up.B, Q[kept])
        if given.loss > MAX_LOSS:
            continue
        M = first_form(given)
        np.testing.assert_allclose(np.trace(M), 2, atol=1e-6)
        np.testing.assert_allclose(first_probabilities(up.factors, given, every), quadratic_forms(Q, M), atol=1e-8)
        chosen = choose(given, Q[np.argmax(weights.sum(axis=1))])
        if chosen.loss <= MAX_LOSS:
            M = second_form(given, chosen)
            np.testing.assert_allclose(np.trace(M), 1, atol=1e-6)
            np.testing.assert_allclose(
                second_probabilities(up.factors, given, chosen, every), quadratic_forms(Q, M), atol=1e-7
            )


@pytest.mark.data
@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("size", [10, 50])
def test_forms_on_a_learned_kernel(name, size):
    """The first form against the contour rule, and between 0 and I, where L is far larger than what A leaves of it."""
    kernel = learned(name).kernel
    rng, leverage = np.random.default_rng(0), kernel.coordinates.leverage
    kept = rng.choice(len(leverage), size - 2, replace=False, p=leverage / leverage.sum())
    given = condition(kernel.coordinates.B, kernel.q_rows(kept))
    assert given.loss < MAX_LOSS
    M = first_form(given)
    expected = inclusion_matrix(kernel.coordinates, size, kernel.q_rows(kept))[0]
    assert np.abs(M + M.T - expected - expected.T).max() < 1e-9
    values = np.linalg.eigvalsh((M + M.T) / 2)
    assert values[0] > -1e-9
    assert values[-1] < 1 + 1e-9


# ---- the law, by drawing ------------------------------------------------------------------------------------------

DRAWS = 1_000
"""As many as the negative controls need."""


def test_law_over_many_draws():
    case, kept = BY_NAME["mostly skew"], (2, 6)
    goodness.assert_law(draw_pairs(DirectUp().prepare(case.kernel, 4), kept, DRAWS, 1), pair_law(case, kept))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("generic", ()), ("purely skew", (0, 1)), ("broken pairs", (0, 2)), ("singular L_A", (0, 1)), ("two items", ())],
)
def test_law_where_it_is_awkward(name, kept, remembered):
    case = BY_NAME[name]
    for seed, up in enumerate((DirectUp(), NaiveUp())):
        goodness.assert_law(draw_pairs(up.prepare(case.kernel, len(kept) + 2), kept, 500, seed), pair_law(case, kept))


def test_large_catalogues_keep_no_factors(monkeypatch):
    """Where Q is not stored the forms are, and the law is the same."""
    case = BY_NAME["generic"]
    monkeypatch.setattr(import_module("ndpp.linalg.coordinates"), "DENSE_ENTRIES", 0)
    up = DirectUp().prepare(LowRankKernel(case.X, case.W), 4)
    assert up.factors is None
    goodness.assert_law(draw_pairs(up, (0, 5), DRAWS, 5), pair_law(case, (0, 5)))


def test_law_check_rejects_a_wrong_first_item(monkeypatch):
    """Negative control: the first item is drawn from B^A, as if it came alone."""
    case = BY_NAME["mostly skew"]
    monkeypatch.setattr(
        up_direct,
        "first_probabilities",
        lambda factors, given, rows: (
            np.einsum("ij,jk,ik->i", factors.Q[rows], given.inner, factors.Q[rows]) / given.trace
        ),
    )
    pairs = draw_pairs(DirectUp().prepare(case.kernel, 4), (2, 6), DRAWS, 6)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(pairs, pair_law(case, (2, 6)))


def test_law_check_rejects_a_second_item_drawn_like_the_first(monkeypatch):
    """Negative control: the second item does not know of the first."""
    case = BY_NAME["mostly skew"]
    monkeypatch.setattr(
        up_direct,
        "second_probabilities",
        lambda factors, given, chosen, rows: first_probabilities(factors, given, rows) / 2,
    )
    pairs = [pair for pair in draw_pairs(DirectUp().prepare(case.kernel, 4), (2, 6), DRAWS, 7) if pair[0] != pair[1]]
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(pairs, pair_law(case, (2, 6)))


# ---- what it counts and refuses -----------------------------------------------------------------------------------


def test_proposals_agree_with_the_closed_form():
    """An item is accepted out of r/2 and r proposals on average."""
    kernel = BY_NAME["generic"].kernel
    up, rng = DirectUp().prepare(kernel, 4), np.random.default_rng(8)
    proposals = [up.pair(rng, np.array([0, 5]))[1]["item_proposals"] for _ in range(2_000)]
    goodness.assert_mean(proposals, 1.5 * kernel.rank)


def test_nearly_singular_pairs_are_told_apart():
    """⊕ [[ε, 1], [−1, ε]] with broken pairs kept: the law holds on both sides of the limit of the fast route."""
    for epsilon in (1e-2, 1e-5, 1e-9, 1e-12):
        L = pair_blocks((1.0, 1.0, 1.0)) + epsilon * np.eye(6)
        kernel = LowRankKernel(np.eye(6), L)
        index = Forced([1, 3])
        drawing_from(index, kernel, 4).pair(None, np.array([0, 2]))
        weights = pair_weights(oracles.minors(L), 6, (0, 2))
        np.testing.assert_allclose(
            quadratic_forms(np.eye(6), index.seen[0]), 2 * weights.sum(axis=1) / weights.sum(), atol=1e-8
        )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("up", [DirectUp(), NaiveUp()], ids=["DirectUp", "NaiveUp"])
@pytest.mark.parametrize(("name", "kept"), [("duplicate rows", (0, 5)), ("zero rows", (0, 1))])
def test_a_set_that_nothing_completes(name, kept, up):
    with pytest.raises(ZeroProbabilityError, match="completes"):
        up.prepare(BY_NAME[name].kernel, 4).pair(np.random.default_rng(0), np.array(kept))


def test_a_budget_that_is_spent():
    kernel = BY_NAME["generic"].kernel
    up = replace(DirectUp().prepare(kernel, 2), index=LeverageTable.prepare(kernel, budget=1))
    with pytest.raises(BudgetExceededError, match="budget") as caught:
        draw_pairs(up, (), 100, 9)
    assert caught.value.count >= 1


def test_naive_refuses_large_catalogues():
    with pytest.raises(InvalidInputError, match="DirectUp"):
        NaiveUp().prepare(LowRankKernel(np.ones((501, 1)), np.eye(1)), 1)
