"""Weights of baskets: a weight of two is the basket twice."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders, weighted
from ndpp.errors import InvalidInputError, OtherSettingsError
from ndpp.learning import NDPP, ONDPP, MixtureNDPP, SymmetricDPP
from ndpp.learning.base import BasketModel
from ndpp.learning.batches import pack
from ndpp.learning.classes import find_classes
from ndpp.learning.families import find_patterns
from ndpp.learning.run import TrainingRun
from ndpp.metrics import independent_items
from ndpp.metrics.models import cosines

LISTS = [[0, 1], [0, 1, 2], [2], [3, 4], [], [0, 5], [1, 3, 5], [2, 4]]
TIMES = np.array([2, 1, 3, 1, 2, 4, 1, 2])
ONCE = Baskets.from_lists(LISTS, n_items=6)
REPEATED = ONCE[np.repeat(np.arange(len(ONCE)), TIMES)]
COUNTED = weighted(ONCE, TIMES, "sample_weight")
FAMILIES = [0, 0, 1, 2, 2, 3]
MODELS: dict[str, BasketModel[Any, Any]] = {
    "ndpp": NDPP(rank=4, noise=0.0),
    "ondpp": ONDPP(rank=4, noise=0.0, gamma=0.2),
    "symmetric": SymmetricDPP(rank=4, noise=0.0),
    "mixture": MixtureNDPP(n_missions=3, rank=2, families=None, dtype="float64"),
    "families": MixtureNDPP(n_missions=3, rank=2, families=FAMILIES, dtype="float64"),
}


def objective(model: BasketModel[Any, Any], baskets: Baskets) -> Any:
    patterns = MixtureNDPP._patterns
    with patch.object(
        MixtureNDPP, "_patterns", lambda own, _, run: patterns(own, ONCE, run)
    ):  # states begin at random sets
        (made,) = model._objectives(model._shape(baskets), baskets, baskets, TrainingRun(0)).values()
    made.begin_epoch(made.start)
    return made


@pytest.mark.parametrize("name", MODELS)
def test_the_objective_is_that_of_repeated_baskets(name: str):
    goal, twin = (objective(MODELS[name], baskets) for baskets in (COUNTED, REPEATED))
    at = twin.start
    for step, point in enumerate(
        (at, at._make(1.1 * tensor for tensor in at))
    ):  # then away from where a mixture expands its ties
        own, its = goal.loss(point, np.arange(len(ONCE)), step), twin.loss(point, np.arange(len(REPEATED)), step)
        assert float(own.value) == pytest.approx(float(its.value), rel=1e-12)
        for mine, other in zip(own.gradient, its.gradient):
            torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)
    assert goal.validated(at) == pytest.approx(twin.validated(at), rel=1e-12)
    assert goal.validated(at) != pytest.approx(objective(MODELS[name], ONCE).validated(at), rel=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_batches_are_unbiased(name: str):
    """The mean loss of all batches of equal size is that of all baskets."""
    goal = objective(MODELS[name], COUNTED)
    goal.loss(goal.start, np.arange(2), 0)
    at = goal.start._make(1.1 * tensor for tensor in goal.start)
    parts = [goal.loss(at, which, 1) for which in np.arange(len(ONCE)).reshape(4, 2)]
    whole = goal.loss(at, np.arange(len(ONCE)), 1)
    assert float(torch.stack([part.value for part in parts]).mean()) == pytest.approx(float(whole.value), rel=1e-12)
    for i, gradient in enumerate(whole.gradient):
        mean = torch.stack([part.gradient[i] for part in parts]).mean(0)
        torch.testing.assert_close(mean, gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_of_one_basket_counts_by_its_weight(name: str):
    """Its log Z and ties included, wherever they are expanded; other than by its weight, only penalties differ, which all share."""
    goal, twin = (objective(MODELS[name], baskets) for baskets in (COUNTED, REPEATED))
    at = twin.start._make(1.1 * tensor for tensor in twin.start)
    shared: list[Any] = []
    for begin, basket in ((at, 2), (at, 5), (twin.start, 5)):
        for made in (goal, twin):
            made.begin_epoch(begin)
            made.loss(begin, np.arange(2), 0)
        times = TIMES[basket] / 2  # relative to the mean
        own, its = goal.loss(at, np.array([basket]), 1), twin.loss(at, TIMES[:basket].sum(keepdims=True), 1)
        both = zip((own.value, *own.gradient), (its.value, *its.gradient))
        shared.append([(times * other - mine) / (times - 1) for mine, other in both])
    for other in shared[1:]:
        torch.testing.assert_close(other, shared[0], rtol=1e-8, atol=1e-9)


def test_fits_agree_up_to_the_optimiser():
    """All baskets fit into one batch, so that the steps are the same, too."""
    options: dict[str, Any] = {"validation": ONCE, "validation_weight": TIMES}
    settings: dict[str, Any] = {"rank": 4, "noise": 0.0, "max_epochs": 40, "learning_rate": 0.1, "random_state": 0}
    counted = NDPP(**settings).fit(ONCE, sample_weight=TIMES, **options)
    repeated = NDPP(**settings).fit(REPEATED, **options)
    plain = NDPP(**settings).fit(ONCE, **options)
    chances = [model.law_.inclusion_probabilities() for model in (counted, repeated, plain)]
    assert chances[0] == pytest.approx(chances[1], abs=1e-6)
    assert np.abs(chances[2] - chances[1]).max() > 0.05
    assert counted.baseline_score_ == pytest.approx(repeated.baseline_score_, rel=1e-12)


def test_what_training_begins_with_is_that_of_repeated_baskets():
    assert cosines(COUNTED, extra=1.0, weights=COUNTED.weights).toarray() == pytest.approx(
        cosines(REPEATED, extra=1.0).toarray(), abs=1e-12
    )
    weights = COUNTED.weights
    assert independent_items(ONCE, weights=weights).probabilities == pytest.approx(
        independent_items(REPEATED).probabilities
    )
    assert MixtureNDPP()._shape(weighted(ONCE, 1000 * TIMES, "w")).n_missions == int(1000 * TIMES @ ONCE.sizes // 150)
    one = [find_classes(np.random.default_rng(0), baskets, baskets, 1) for baskets in (COUNTED, REPEATED)]
    assert one[0].log_odds == pytest.approx(one[1].log_odds, abs=1e-5)
    # EM begins at random sets: with one basket, all states begin alike.
    pair = Baskets.from_lists([[0, 1]])
    three = pair[np.zeros(3, int)]
    found = [
        find_patterns(np.random.default_rng(0), data, np.zeros(2, int)).odds
        for data in (weighted(pair, [3], "w"), three)
    ]
    assert found[0] == pytest.approx(found[1])


def test_parts_keep_their_weights():
    assert isinstance(COUNTED, Orders)
    parts = COUNTED.split(2, 0, rng=1)
    assert sorted([*parts.train.weights, *parts.val.weights]) == sorted(TIMES)  # type: ignore[misc]
    assert COUNTED.select(min_size=3).weights.tolist() == [1, 1]  # type: ignore[union-attr]
    assert COUNTED[[]].weights.tolist() == []  # type: ignore[union-attr]
    batch = pack(COUNTED, np.array([1, 4, 0]))
    assert batch.weights is not None
    assert (batch.weights * 2).tolist() == [2, 2, 1]  # the mean weight is two, and the empty basket comes first
    assert batch.entry_weights().tolist() == [1, 1, 0.5, 0.5, 0.5]  # type: ignore[union-attr]


def test_weights_by_the_ids_of_baskets():
    baskets = Baskets.from_lists([["a"], ["b"], ["c"]], basket_ids=[30, 10, 20])
    by_id = pd.Series([1.0, 2.0, 0.0], index=[10, 20, 30])
    assert weighted(baskets, by_id, "w").basket_ids == (10, 20)
    assert weighted(baskets, {"10": 5.0, 20: 1, 30: 2, 99: 7}, "w").weights.tolist() == [2, 5, 1]  # type: ignore[union-attr]
    assert weighted(baskets, pd.Series([1.0, 2.0, 3.0]), "w").weights.tolist() == [1, 2, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "sample_weight must have 8 entries"),
        (-TIMES, "sample_weight must be finite numbers, at least zero"),
        (0 * TIMES, "not all zero"),
        (np.where(TIMES > 1, np.nan, 1.0), "finite"),
        (np.ones((8, 2)), r"one number per basket; got the shape \(8, 2\)"),
        (2.0, r"one number per basket; got the shape \(\)"),
        ({0: 1.0}, "sample_weight lacks 7 of 8 baskets, such as 1"),
    ],
)
def test_bad_weights(weights: Any, message: str):
    with pytest.raises(InvalidInputError, match=message):
        NDPP(rank=4).fit(ONCE, sample_weight=weights)


def test_a_checkpoint_knows_the_weights(tmp_path):
    model = NDPP(rank=4, max_epochs=1, random_state=0, checkpoint=tmp_path / "c").fit(ONCE, sample_weight=TIMES)
    model.fit(ONCE, sample_weight=TIMES, resume=True)
    with pytest.raises(OtherSettingsError, match="another data"):
        model.fit(ONCE, resume=True)


def test_the_weighted_score():
    model = NDPP(rank=4, max_epochs=1, random_state=0).fit(ONCE)
    assert model.score(ONCE, sample_weight=TIMES) == pytest.approx(model.score(REPEATED), rel=1e-12)
