"""``ndpp.fit`` and what follows it: orders of any kind, one voice for models and laws, files that the command writes."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import ndpp
from ndpp.baskets.lines import MissingColumnError
from ndpp.errors import InvalidInputError
from ndpp.learning import LiteratureStart

LISTS = [["bread", "butter"], ["bread", "butter", "jam"], ["tea", "milk"], ["tea"], ["milk", "bread"]] * 12
ORDERS = ndpp.Baskets.from_lists(LISTS)
QUICK: dict[str, Any] = {"model": "ndpp", "rank": 4, "max_epochs": 1}


@pytest.fixture
def model() -> Any:
    return ndpp.fit(ORDERS, **QUICK)


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.law_.X, other.law_.X)
    assert one.labels_ == other.labels_


def test_all_kinds_of_orders_give_one_model(model: Any, tmp_path: Path):
    ORDERS.write(tmp_path / "orders.csv", basket="order", item="product")
    ORDERS.write(tmp_path / "orders.parquet", basket="order", item="product")
    frame = pd.DataFrame({"order": ORDERS.to_frame()["basket"], "product": ORDERS.to_frame()["item"]})
    columns: dict[str, Any] = {"basket": "order", "item": "product"}
    for orders in (tmp_path / "orders.csv", str(tmp_path / "orders.parquet"), frame, pl.from_pandas(frame)):
        same(ndpp.fit(orders, **QUICK, **columns), model)
    same(ndpp.fit(LISTS, **QUICK), model)
    with pytest.raises(MissingColumnError, match="no column 'basket'; its columns are 'order', 'product'"):
        ndpp.fit(frame, **QUICK)


def test_validation_is_read_like_the_orders(tmp_path: Path):
    held_out = LISTS[:10]
    ndpp.Baskets.from_lists(held_out).write(tmp_path / "held.csv")
    frame = ndpp.Baskets.from_lists(held_out).to_frame()
    models = [ndpp.fit(ORDERS, **QUICK, validation=X) for X in (held_out, tmp_path / "held.csv", frame)]
    for other in models[1:]:
        same(other, models[0])
        assert other.history_[0]["validation"] == models[0].history_[0]["validation"]


def test_the_models_by_name_and_their_settings():
    names = {"mixture": "MixtureNDPP", "ndpp": "NDPP", "ondpp": "ONDPP", "symmetric": "SymmetricDPP"}
    assert {kind: type(ndpp.fit(LISTS, kind, rank=4, max_epochs=1)).__name__ for kind in names} == names
    assert isinstance(ndpp.fit(LISTS, **QUICK, init="literature").init, LiteratureStart)
    with pytest.raises(InvalidInputError, match="model must be one of mixture, ndpp, ondpp, symmetric; got 'dpp'"):
        ndpp.fit(LISTS, "dpp")
    with pytest.raises(TypeError, match="rnak"):
        ndpp.fit(LISTS, rnak=3)
    with pytest.raises(TypeError, match="items"):  # Baskets.read takes it
        ndpp.fit(LISTS, items="items.txt")


def test_weights_go_through(model: Any):
    weights = np.arange(len(LISTS)) % 3
    weighted = ndpp.fit(LISTS, **QUICK, sample_weight=weights)
    same(weighted, ndpp.NDPP(4, max_epochs=1, random_state=0).fit(ORDERS, None, weights))
    assert weighted.about()["baskets"] == {"number": 40, "dropped": 0, "weight": 60.0}
    assert "weight" not in model.about()["baskets"]


def test_recommend_has_one_signature(model: Any):
    function, method, own = (inspect.signature(one) for one in (ndpp.recommend, model.law_.recommend, model.recommend))
    (_, *expected), of_law, of_model = (list(one.parameters.values()) for one in (function, method, own))
    assert expected == of_law == of_model
    options: dict[str, Any] = {
        "ranking": "lift",
        "candidates": ["jam", "tea"],
        "per_category": ndpp.PerCategory({"jam": 1, "tea": 2}, 1),
    }
    answers = [
        ndpp.recommend(model, ["bread"], 2, **options),
        ndpp.recommend(model.law_, ["bread"], 2, **options),
        model.law_.recommend(["bread"], 2, **options),
        model.recommend(["bread"], 2, **options),
    ]
    assert len({repr(answer) for answer in answers}) == 1
    assert {type(answer) for answer in answers} == {type(answers[0])}


def test_an_estimator_is_a_model_everywhere(model: Any, tmp_path: Path):
    many = ndpp.recommend_many(model, ORDERS[:3], n=2)
    assert repr(many) == repr(ndpp.recommend_many(model.law_, ORDERS[:3], n=2))
    assert repr(ndpp.answers.recommend(model, ["tea"], n=1)) == repr(ndpp.answers.recommend(model.law_, ["tea"], n=1))
    ndpp.save(model, tmp_path / "m.safetensors", metadata={"note": "mine"})
    assert ndpp.load_metadata(tmp_path / "m.safetensors") == {"note": "mine"}
    with pytest.raises(InvalidInputError, match=r"fitted estimator; got NDPP\. Call its fit first"):
        ndpp.save(ndpp.NDPP(), tmp_path / "m.safetensors")


def test_families_by_label(model: Any):
    by_label = {"butter": "breakfast", "bread": "breakfast", "soap": "other"}
    options: dict[str, Any] = {"n_missions": 2, "rank": 2, "max_epochs": 1}
    named = ndpp.fit(LISTS, families=by_label, **options)  # bread, butter, jam, milk, tea
    listed = ndpp.fit(LISTS, families=[0, 0, 1, 2, 3], **options)
    assert isinstance(named.law_, ndpp.FamilyMixture)
    np.testing.assert_array_equal(named.score_samples(ORDERS), listed.score_samples(ORDERS))
    series = ndpp.fit(LISTS, families=pd.Series(by_label), **options)
    np.testing.assert_array_equal(named.score_samples(ORDERS), series.score_samples(ORDERS))
    assert named.about()["settings"]["families"] == by_label == series.about()["settings"]["families"]
