"""Next baskets: how orders are divided, measures and methods against small examples by hand, and the quick run."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp import Mixture
from ndpp_experiments import next_basket, next_basket_rivals
from ndpp_experiments.next_basket import Personal, sequence_orders, synthetic_orders
from ndpp_experiments.next_basket_rivals import Histories, best_ids, measured, tuned

# The last basket of each is to be predicted, but not that of "short".
SHOP = {"ann": [[0, 1], [0], [2, 0], [3]], "bob": [[1], [1, 2], [0]], "short": [[3], [3]], "cem": [[2], [2, 3], [1]]}


@pytest.fixture
def histories():
    return Histories.of(sequence_orders(SHOP), rng=0)


def test_the_last_basket_is_apart_and_nothing_else_is_lost(histories):
    assert histories.counts.tolist() == [3, 2, 2]  # ann, bob, cem
    assert histories.last.to_lists() == [[3], [0], [1]]
    assert histories.train.to_lists() == [[0, 1], [0], [0, 2], [1], [1, 2], [2], [2, 3], [3], [3]]
    assert histories.age.tolist() == [2, 1, 0, 1, 0, 1, 0]
    assert histories.popularity.tolist() == pytest.approx([3 / 9, 3 / 9, 4 / 9, 3 / 9])
    assert sorted([*histories.validation, *histories.test]) == [0, 1, 2]
    assert not set(histories.validation) & set(histories.test)
    assert histories.names.tolist() == ["ann", "bob", "cem"]
    assert histories.orders.customers.tolist() == ["ann"] * 3 + ["bob"] * 2 + ["short"] * 2 + ["cem"] * 2


def test_the_last_basket_of_nobody_changes_a_score(histories):
    other = Histories.of(sequence_orders({**SHOP, "ann": [*SHOP["ann"][:-1], [1, 2]]}), rng=0)
    law, everyone = Mixture.tied(np.full((2, 4), 0.5), np.eye(4), np.zeros((4, 4)), [0.5, 0.5]), np.arange(3)
    for mine, its in zip(next_basket.methods(Personal(law, histories)), next_basket.methods(Personal(law, other))):
        np.testing.assert_array_equal(
            mine.scores(histories, everyone, **mine.start), its.scores(other, everyone, **its.start)
        )


def test_measures_by_hand():
    wanted = np.array([[1, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], bool)
    recall, ndcg, hit = measured(np.array([[2, 0, 1], [0, 1, 2], [0, 1, 2]]), wanted, 2)
    assert recall.tolist() == [0.5, 0.0]  # of whom nothing is wanted does not count
    assert ndcg.tolist() == pytest.approx([(1 / np.log2(3)) / (1 + 1 / np.log2(3)), 0.0])
    assert hit.tolist() == [1.0, 0.0]
    assert best_ids(np.array([[0.1, 0.5, 0.5, 0.2], [0.0, 0.0, 0.0, 0.0]]), 3).tolist() == [[1, 2, 3], [0, 1, 2]]


def test_simple_methods_by_hand(histories):
    ann = np.array([0])
    assert next_basket_rivals.own_bestsellers(histories, ann)[0] == pytest.approx([1, 1 / 3, 1 / 3, 0])
    assert best_ids(next_basket_rivals.both(histories, ann), 4)[0].tolist() == [0, 2, 1, 3]  # 2 sells better than 1
    assert best_ids(next_basket_rivals.bestsellers(histories, ann), 1)[0].tolist() == [2]


def test_tifu_knn_by_hand(histories):
    weights = next_basket_rivals.group_weights(np.array([5, 1]), 2, 0.5, 0.1)
    assert weights.tolist() == pytest.approx([0.025 * 0.5 * 2 / 2, 0.025, 0.125 / 3, 0.25 / 3, 0.5 / 3, 1.0])
    settings = {"groups": 2, "within": 0.5, "between": 0.5, "neighbours": 1, "own": 0.25}
    # Groups of ann: [0, 1], then [0] and [2, 0]; of bob: [1], [1, 2]; of cem: [2], [2, 3].
    ann = np.array([0.25 + 0.125 + 0.25, 0.25, 0.25, 0.0])
    bob, cem = np.array([0, 0.25 + 0.5, 0.5, 0]), np.array([0, 0, 0.25 + 0.5, 0.5])
    assert np.linalg.norm(ann - bob) < np.linalg.norm(ann - cem)
    found = next_basket_rivals.tifu_knn(histories, np.array([0]), **settings)
    assert found[0] == pytest.approx(0.25 * ann + 0.75 * bob)
    found = next_basket_rivals.tifu_knn(histories, np.array([0]), **{**settings, "neighbours": 2})
    assert found[0] == pytest.approx(0.25 * ann + 0.375 * (bob + cem))


def test_up_cf_by_hand(histories):
    # Items bought: ann 0, 1, 2; bob 1, 2; cem 2, 3. The last basket of each: [0, 2], [1, 2], [2, 3].
    similar = np.array([1.0, 2 / (3**0.75 * 2**0.25), 1 / (3**0.75 * 2**0.25)])
    frequencies = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
    settings = {"recent": 1, "asymmetry": 0.75, "locality": 5, "similar_by": "items"}
    found = next_basket_rivals.up_cf(histories, np.array([0]), **settings)[0]
    assert found / found[0] == pytest.approx(similar**5 @ frequencies)
    whole = next_basket_rivals.up_cf(histories, np.array([2]), **{**settings, "recent": 10**6, "locality": 1000})[0]
    assert whole / whole[2] == pytest.approx([0, 0, 1, 0.5], abs=1e-6)  # only cem is like cem


def test_ours_are_the_lists_of_customers(histories):
    law = Mixture.tied(
        np.array([[4.0, 1.0, 0.25, 0.25], [0.25, 0.25, 1.0, 4.0]]), np.eye(4), np.zeros((4, 4)), [0.5, 0.5],
        labels=[str(a) for a in range(4)],
    )  # fmt: skip
    shop = Personal(law, histories)
    for user, name in enumerate(["ann", "bob", "cem"]):
        found = best_ids(shop.scores(histories, np.array([user])), 4)[0]
        assert found.tolist() == shop.customers.next_basket(name, n=4).items.tolist()


def test_the_search_finds_the_best_of_a_grid(histories):
    def scores(_, users, *, first, second):
        return np.tile([4.0, 3.0, 2.0, 1.6 * first + second], (len(users), 1))

    ann = np.array([0])  # who buys item 3
    grid, start = {"first": (0, 1, 2), "second": (1, 0)}, {"first": 0, "second": 0}
    assert tuned(scores, histories, grid, start, ann) == ({"first": 2, "second": 1}, pytest.approx(2.0), 6)


def test_the_quick_run_knows_habits():
    orders = synthetic_orders(40, 12, 0)
    assert len(set(orders.customers)) == 40
    result = next_basket.measure(quick=True, seed=0, say=lambda text: None)
    at = {(row.method, row.listed): row for row in result.tables[""]}
    ours, crowd = at[next_basket.OURS, "all items"], at["bestsellers", "all items"]
    assert ours.recall_10 > crowd.recall_10 + 2 * crowd.ahead_error
    assert crowd.ahead_by == pytest.approx(ours.recall_10 - crowd.recall_10)
    assert len(result.tables[""]) == 6 * len(next_basket.LISTS)
    assert all(row.personal > row.plain for row in result.tables["within"])
