"""Scores, lists and greedy sets under conditions, against all sets of a law."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import ndpp
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law

N = 6
SETS = [list(S) for size in range(N + 1) for S in combinations(range(N), size)]
BOOST = {1: 3.0, 2: 0.0, 0: 0.0}


def laws() -> dict[str, Law]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    kernel = ndpp.LowRankKernel(X, background=np.full(N, 0.3))
    plain = ndpp.LowRankKernel(rng.standard_normal((N, 4)))
    tied = ndpp.Mixture.tied(rng.uniform(0, 1, (3, N)), X / 2, np.eye(3), [0.5, 0.3, 0.2], names=["a", "b", "c"])
    mixture = ndpp.Mixture([kernel, plain], [0.6, 0.4])
    found = {"kernel": kernel, "plain": plain, "tied": tied, "mixture": mixture}
    return found | {"tied, not empty": tied.without_empty(), "kernel, not empty": kernel.without_empty()}


@pytest.fixture(params=laws())
def law(request: pytest.FixtureRequest) -> Law:
    return laws()[request.param]


def boosted(law: Law, basket: list[int]) -> np.ndarray:
    """P(S) of all sets with boosted items; what the basket holds is never out of stock."""
    factor = [1.0 if a in basket and BOOST.get(a) == 0 else BOOST.get(a, 1.0) for a in range(N)]
    weights = np.exp(law.log_probs(SETS)) * [np.prod([factor[a] for a in S]) for S in SETS]
    return np.asarray(weights / weights.sum())


def contained(p: np.ndarray, basket: list[int], size: int | None = None) -> np.ndarray:
    """P(a ∈ S | basket ⊆ S) of all items, 0 for those of the basket, by summation."""
    holds = np.array([set(basket) <= set(S) and (size is None or len(S) == size) for S in SETS])
    found = np.array([p[holds & np.array([a in S for S in SETS])].sum() for a in range(N)]) / p[holds].sum()
    found[basket] = 0.0
    return found


@pytest.mark.parametrize("basket", [[], [3], [0, 3]], ids=str)
def test_scores_and_lists_with_a_boost(law: Law, basket: list[int]):
    p = boosted(law, basket)
    wanted = contained(p, basket)
    np.testing.assert_allclose(ndpp.continuation_scores(law, basket, boost=BOOST), wanted, atol=1e-9)
    sized = ndpp.continuation_scores(law, basket, boost=BOOST, size=3)
    np.testing.assert_allclose(sized, contained(p, basket, 3), atol=1e-8)
    if basket or not law.nonempty:
        whole = p[SETS.index(basket)]
        ratios = [0.0 if a in basket else p[SETS.index(sorted([*basket, a]))] / whole for a in range(N)]
        np.testing.assert_allclose(ndpp.next_item_scores(law, basket, boost=BOOST), ratios, atol=1e-9)
    wanted[4] = 0.0
    order = [a for a in np.argsort(-wanted, kind="stable")[:3].tolist() if wanted[a] > 1e-12]
    assert ndpp.recommend(law, basket, 3, boost=BOOST, exclude=[4], damping=0.0).items.tolist() == order


def test_many_baskets_are_each_of_them(law: Law):
    """One of them holds an item that is out of stock for the others."""
    lists = [[3], [0, 3], [1]]
    many = ndpp.recommend_many(law, ndpp.Baskets.from_lists(lists, n_items=N), n=3, boost=BOOST, damping=0.0)
    for basket, found in zip(lists, many):
        assert found is not None
        assert found.items.tolist() == ndpp.recommend(law, basket, 3, boost=BOOST, damping=0.0).items.tolist()


def test_greedy_and_best_sets(law: Law):
    p = boosted(law, [0])
    allowed = [i for i, S in enumerate(SETS) if len(S) == 3 and 0 in S and 5 not in S]
    best = ndpp.best_set(law, 3, given=[0], boost=BOOST, exclude=[5], n_samples=10)
    assert best.items.tolist() == SETS[max(allowed, key=lambda i: p[i])]
    run = ndpp.greedy_map(law, 3, given=[0], boost=BOOST, exclude=[5]).tolist()
    assert run[0] == 0
    assert run[1] == max((1, 3, 4), key=lambda a: p[SETS.index([0, a])])


def test_missions_and_what_is_given():
    law = laws()["tied"]
    for asked in (ndpp.continuation_scores, ndpp.next_item_scores):
        np.testing.assert_allclose(asked(law, [3], mission="b"), asked(law.only([1]), [3]), atol=1e-12)
    assert ndpp.greedy_map(law, 3, mission="b").tolist() == ndpp.greedy_map(law.only([1]), 3).tolist()
    with pytest.raises(InvalidInputError, match="basket itself"):
        ndpp.recommend(law, [3], given=[1])
