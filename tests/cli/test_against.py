"""``ndpp evaluate --against``: two models on the same baskets, and their differences basket by basket."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from ndpp import Baskets, metrics


@pytest.fixture
def test(models):
    return models / "orders.csv"


def values(done, metric):
    assert done.code == 0, done.err
    return {one["model"]: one["value"] for one in done.json["results"] if one["metric"] == metric}


def test_gains_are_over_the_other_model(call, models, shelf, test):
    other = models / "mixture.safetensors"
    done = call("evaluate", shelf, test, "--against", other, "--json")
    assert done.json["base"] == "mixture"
    law, old = ndpp.load(shelf), ndpp.load(other)
    baskets = Baskets.read(test, labels=law.labels)
    found = metrics.compare_models({"model": law, "mixture": old}, baskets, base="mixture", rng=0)
    assert values(done, "hit rate@10 gain") == {"model": found.rows[0].hit_rate_gain.value}
    assert values(done, "log-likelihood gain") == {"model": found.rows[0].gain.value}
    table = call("evaluate", shelf, test, "--against", other).out
    assert "Gains are over mixture, basket by basket." in table
    assert "independent items" not in table


def test_models_of_different_items_are_judged_on_those_they_share(call, models, shelf, test, tmp_path):
    law = ndpp.load(shelf)
    newer = law.add_items({"oat drink": ["tea"]}, 0.05).remove(["jam"])
    ndpp.save(newer, tmp_path / "newer.safetensors")
    done = call("evaluate", shelf, test, "--against", tmp_path / "newer.safetensors", "--json", "--bootstrap", 0)
    labels = [name for name in law.labels if name != "jam"]
    lists = [
        [name for name in basket if name != "jam"]
        for basket in (Baskets.read(test, labels=law.labels).labelled(i) for i in range(300))
    ]
    judged = Baskets.from_lists(lists, labels=labels)
    expected = metrics.compare_models(
        {"model": law.remove(["jam"]), "newer": newer.remove(["oat drink"])}, judged, base="newer", n_boot=0, rng=0
    )
    assert values(done, "MRR") == pytest.approx({row.name: row.reciprocal_rank.value for row in expected.rows})
    assert np.isfinite(list(values(done, "log-likelihood").values())).all()
    told = call("evaluate", shelf, test, "--against", tmp_path / "newer.safetensors", "--bootstrap", 0).out
    assert f"Judged on the 11 items that all models have; the model has {law.n_items}." in told


def test_what_cannot_be_compared(call, models, shelf, plain, test, tmp_path):
    assert "compared by the names of items, and one has none" in call("evaluate", shelf, test, "--against", plain).err
    law = ndpp.load(shelf)
    ndpp.save(
        ndpp.LowRankKernel(law.X[::-1][:-1], law.W, labels=law.labels[::-1][:-1]), tmp_path / "turned.safetensors"
    )
    done = call("evaluate", shelf, test, "--against", tmp_path / "turned.safetensors")
    assert "--against has the items of the model in another order" in done.err
    same = call("evaluate", shelf, test, "--against", shelf, "--against", shelf)
    assert "files of different names" in " ".join(same.err.replace("│", "").split())
