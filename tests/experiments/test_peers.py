"""The splits that peers read and the ranks that they write are those of ndpp; a peer that fails is recorded, not dropped."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from ndpp import Baskets, metrics
from ndpp.datasets import make_baskets
from ndpp.metrics.ranking import held_out_ranks, hold_out

PEERS = Path(__file__).resolve().parents[2] / "experiments" / "publish" / "peers"
TRAIN, VALIDATION, TEST = make_baskets(600, 20, mean_size=3.0, rng=0).baskets.split(60, 200, rng=0)


@pytest.fixture
def peers(monkeypatch):
    """The modules ``common`` and ``run`` of experiments/publish/peers."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(PEERS.parent))
    monkeypatch.syspath_prepend(str(PEERS))
    yield importlib.import_module("common"), importlib.import_module("run")
    for name in ("common", "run", "quality", "linear_models"):
        sys.modules.pop(name, None)


@pytest.fixture
def split(peers, tmp_path):
    _, run = peers
    held, tuning = hold_out(TEST, np.random.default_rng(0)), run.each_item(VALIDATION)
    parts = {"validation": run.written(tuning, 1 / tuning.sizes), "test": run.written(held, np.ones(len(held.items)))}
    path = tmp_path / "made.json"
    path.write_text(json.dumps({"n_items": 20, "train": TRAIN.to_lists(), **parts}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "model", [metrics.item_item_cosine(TRAIN), metrics.independent_items(TRAIN)], ids=["cosine", "ties"]
)
def test_peers_rank_the_same_items_in_the_same_way(peers, split, model):
    common, _ = peers
    read = common.read_split(split)
    np.testing.assert_array_equal(read.train.toarray(), TRAIN.to_csr().toarray())
    held = hold_out(TEST, np.random.default_rng(0))

    def scores(rest):
        return np.vstack([model.scores(Baskets.from_lists([row.indices], n_items=20)) for row in rest])

    above, ties = common.ranks(scores, read.test)
    expected = held_out_ranks(model, held)
    np.testing.assert_array_equal(above, expected.above)
    np.testing.assert_array_equal(ties, expected.ties)
    assert expected.ties.any() == (ties.any())


def test_validation_holds_each_item_out_once(peers, split):
    common, _ = peers
    validation = VALIDATION.select(min_size=2)
    read = common.read_split(split).validation
    assert len(read.held) == validation.sizes.sum()
    assert read.weight.sum() == pytest.approx(len(validation))
    whole = read.rest.toarray()
    whole[np.arange(len(read.held)), read.held] += 1
    np.testing.assert_array_equal(whole, np.repeat(validation.to_csr().toarray(), validation.sizes, axis=0))


def test_the_best_setting_on_validation_is_ranked_on_test(peers, split):
    common, _ = peers
    read = common.read_split(split)
    popular = np.asarray(read.train.sum(axis=0), float).ravel()

    def fit(train, *, sign):
        return lambda rest: np.tile(sign * popular, (rest.shape[0], 1))

    found = common.choose("popularity", read, {"sign": (-1, 0, 1)}, {"sign": -1}, fit)
    assert found["settings"] == {"sign": 1}
    assert sorted(one["sign"] for one, _ in found["tried"]) == [-1, 0, 1]
    assert found["validation"] == max(value for _, value in found["tried"])
    expected = held_out_ranks(metrics.independent_items(TRAIN), hold_out(TEST, np.random.default_rng(0)))
    assert found["above"] == expected.above.tolist()


def test_a_peer_that_fails_is_recorded(peers, split, tmp_path, monkeypatch):
    _, run = peers

    def fail(command, **options):
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: No matching distribution found for implicit")

    monkeypatch.setattr(run.venv, "create", lambda *args, **options: None)
    monkeypatch.setattr(run.subprocess, "run", fail)
    (found,) = run.run_peer("implicit", split, tmp_path)
    assert found == {"model": "implicit", "error": "ERROR: No matching distribution found for implicit"}


def test_models_of_ndpp_are_tuned_and_ranked_like_those_of_others(peers, split, tmp_path):
    _, run = peers
    found = {one["model"]: one for one in run.run_peer("linear", split, tmp_path)}
    assert list(found) == ["ItemKNN", "RP3beta", "EASE", "EASE by basket size", "EDLAE by basket size"]
    held = hold_out(TEST, np.random.default_rng(0))
    for name in ("EASE", "EDLAE by basket size"):
        expected = held_out_ranks(metrics.ease(TRAIN, **found[name]["settings"]), held)
        assert found[name]["above"] == expected.above.tolist()
    steps = [found[name]["validation"] for name in ("EASE", "EASE by basket size", "EDLAE by basket size")]
    assert steps[0] > 0.1


def test_only_the_nearest_items_are_kept(peers):
    linear = importlib.import_module("linear_models")
    weights = sparse.csr_array(np.array([[0.0, 3.0, 1.0], [2.0, 0.0, 4.0], [5.0, 6.0, 0.0]]))
    kept = linear.nearest(weights, 1).toarray()
    np.testing.assert_array_equal(kept, [[0.0, 0.0, 0.0], [0.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
    np.testing.assert_array_equal(linear.nearest(weights, 2).toarray(), weights.toarray())


def test_the_difference_to_our_model_is_paired(peers, tmp_path):
    _, run = peers
    held = hold_out(TEST, np.random.default_rng(0))
    models = {"MixtureNDPP": metrics.ease(TRAIN), "ALS": metrics.independent_items(TRAIN), "same": metrics.ease(TRAIN)}
    found = {name: held_out_ranks(model, held) for name, model in models.items()}
    out = run.summary(found)
    assert "behind" not in out["MixtureNDPP"]
    assert out["same"]["behind"] == [0.0, 0.0, 0.0]
    difference = out["MixtureNDPP"]["hit rate@10"][0] - out["ALS"]["hit rate@10"][0]
    assert out["ALS"]["behind"][0] == pytest.approx(difference)
    run.keep_ranks(tmp_path / "made.npz", held, found)
    with np.load(tmp_path / "made.npz") as kept:
        np.testing.assert_array_equal(kept["above_ALS"], found["ALS"].above)
        np.testing.assert_array_equal(kept["items"], held.items)
        np.testing.assert_array_equal(kept["ranks_ALS"], 1 + found["ALS"].above + found["ALS"].ties / 2)


def test_models_of_an_earlier_run_stay(peers, tmp_path, monkeypatch):
    _, run = peers
    monkeypatch.setattr(run, "load", lambda data: Baskets.concat([TRAIN, VALIDATION, TEST]))
    monkeypatch.setattr(run, "N_TEST", 100)
    new = run.compare("made", [], tmp_path, None)
    assert list(new["metrics"]) == ["independent items", "item-item cosine"]
    value, low, high = new["metrics"]["item-item cosine"]["hit rate@10"]
    assert 0 < low <= value <= high <= 1
    old = {"metrics": {"item-item cosine": None, "ALS": {"MPR": [1.0, 1.0, 1.0]}}, "peers": [{"model": "ALS"}]}
    both = run.kept(old, new)
    assert both["metrics"] == new["metrics"] | {"ALS": old["metrics"]["ALS"]}
    assert both["peers"] == old["peers"]
