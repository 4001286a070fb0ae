"""Recommendations and the greedy run under limits."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import ndpp
from law_table import BASES, KINDS, Kind, entries
from ndpp import Limit
from ndpp.errors import ImpossibleLimitError, InvalidInputError
from ndpp.inference.ranking import Rule

EVEN, ODD = [0, 2, 4], [1, 3, 5]
PRICES = np.array([2.5, 1.1, 3.2, 0.7, 1.9, 4.0])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_recommendations_keep_upper_limits_with_the_basket(kind: Kind):
    law = entries(kind, BASES[0])[0].law
    ranked = ndpp.recommend(law, [0], n=6)
    limits = [Limit(PRICES, most=7.0), Limit(EVEN, most=2)]
    found = ndpp.recommend(law, [0], n=6, limits=limits)
    kept, spent, evens = [], PRICES[0], 1
    for a in ranked.items.tolist():
        if spent + PRICES[a] <= 7.0 and evens + (a in EVEN) <= 2:
            kept, spent, evens = [*kept, a], spent + PRICES[a], evens + (a in EVEN)
    assert found.items.tolist() == kept
    assert 0 < len(kept) < len(ranked.items)
    (many,) = ndpp.recommend_many(law, ndpp.Baskets.from_lists([[0]], n_items=6), n=6, limits=limits)
    assert many.items.tolist() == kept
    assert (
        law.recommend([0], n=2, limits=limits[0]).items.tolist()
        == ndpp.recommend(law, [0], n=2, limits=limits[:1]).items.tolist()
    )
    assert not len(ndpp.recommend(law, [0, 2], limits=Limit(range(6), most=1)).items)  # there is no room already


def test_items_that_are_equal_up_to_rounding_fit_in_the_order_of_their_ids():
    rule = Rule.of(ndpp.LowRankKernel(np.eye(4)), ranking="completion", limits=Limit([0, 1], most=1))
    chances = np.array([0.5 * (1 - 2.0**-50), 0.5, 0.25, 0.5 * (1 + 2.0**-50)])
    assert rule.best(chances, np.empty(0, np.int64)).items.tolist() == [0, 3, 2]


def test_what_no_list_can_promise():
    law = entries(KINDS[0], BASES[0])[0].law
    with pytest.raises(
        InvalidInputError, match=r"limits can only bound recommendations from above.*'even'.*sample, greedy_map"
    ):
        ndpp.recommend(law, [], limits=Limit(EVEN, least=1, name="even"))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_greedy_run_keeps_limits(kind: Kind):
    """Every step takes the best item with which a set that keeps the limits is still possible, by enumeration."""
    law = entries(kind, BASES[0])[0].law
    for limits, given, size in [
        ([Limit(EVEN, 2, 2)], [], 3),
        ([Limit(EVEN, 1, 1), Limit(PRICES, most=5.0)], [3], 3),
        ([Limit(ODD, least=2), Limit(PRICES, 3.0, 9.0)], [], 3),
    ]:
        values = np.array([limit.over(law) for limit in limits])
        bounds = [(limit.least or 0, np.inf if limit.most is None else limit.most) for limit in limits]

        def keeps(S: tuple[int, ...], values=values, bounds=bounds) -> bool:
            return all(low - 1e-9 <= v[list(S)].sum() <= high + 1e-9 for v, (low, high) in zip(values, bounds))

        sets = [set(S) for S in combinations(range(6), size) if keeps(S) and set(given) <= set(S)]
        chosen = list(given)
        while len(chosen) < size:
            gains = ndpp.next_item_scores(law, chosen)
            able = [a for a in range(6) if a not in chosen and gains[a] > 0 and any({*chosen, a} <= S for S in sets)]
            chosen.append(max(able, key=lambda a: (gains[a], -a)))
        assert ndpp.greedy_map(law, size, given=given, limits=limits).tolist() == chosen
    with pytest.raises(ImpossibleLimitError, match="together"):
        ndpp.greedy_map(law, 3, limits=[Limit(EVEN, 2, 2), Limit(ODD, 2, 2)])
