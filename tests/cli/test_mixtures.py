"""Every command takes a mixture as it takes a kernel, and says what only a mixture has: missions and ties."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import ndpp
from command import run
from ndpp import answers
from ndpp.cli.output import cell


@pytest.fixture(params=["trips", "mixture"])
def model(models, request):
    """A mixture with shared ties, and one of kernels without anything in common."""
    return models / f"{request.param}.safetensors"


def test_samples_are_those_of_the_library(call, model):
    law = ndpp.load(model)
    for options, words in (({}, []), ({"size": 3}, ["--size", 3]), ({"given": [2]}, ["--given", 2])):
        drawn = call("sample", model, "-n", 8, "--seed", 5, "--ids", "--json", *words).json["baskets"]
        assert drawn == law.sample(8, rng=5, **options).to_lists()


def test_excluded_items_are_not_drawn(call, model):
    drawn = call("sample", model, "-n", 40, "--seed", 5, "-x", "bread,tea", "--json").json["baskets"]
    assert any(drawn)
    assert not any({"bread", "tea"} & set(basket) for basket in drawn)


def test_one_mission(call, mixture):
    law = ndpp.load(mixture)
    found = answers.missions(law)
    for i, mission in enumerate(found, 1):
        words = ["sample", mixture, "-n", 8, "--seed", 5, "--ids", "--json", "--mission"]
        drawn = call(*words, i).json
        assert drawn["baskets"] == law.sample(8, mission=mission.components, rng=5).to_lists()
        assert call(*words, mission.name).json["baskets"] == drawn["baskets"]


def test_completions_are_exact_samples(call, model):
    law = ndpp.load(model)
    done = call("complete", model, "-g", 3, "-k", 4, "-n", 6, "--seed", 9, "--ids", "--json")
    assert [sorted(basket) for basket in done.json["baskets"]] == law.sample(6, size=4, given=[3], rng=9).to_lists()
    half = call("complete", model, "-", "--add", 1, "--seed", 0, "--json", stdin="tea\t\nbread\tbutter\n").json[
        "baskets"
    ]
    assert [len(basket) for basket in half] == [2, 3]


def test_the_greedy_basket(call, model):
    law = ndpp.load(model)
    found = call("map", model, "--size", 4, "--given", "tea", "--json").json
    assert found["baskets"] == [[law.labels[i] for i in ndpp.greedy_map(law, 4, given=law.ids(["tea"]))]]
    assert found["log_prob"] == [pytest.approx(law.log_prob(law.ids(found["baskets"][0])))]
    assert "log_det" not in found


@pytest.mark.parametrize("ranking", list(ndpp.Ranking))
def test_recommendations_in_bulk_are_those_of_each(call, model, models, ranking, tmp_path):
    law = ndpp.load(model)
    baskets = ndpp.Baskets.read(models / "orders.csv", labels=law.labels)[:20]
    baskets.write(tmp_path / "some.csv")
    words = ["recommend", model, tmp_path / "some.csv", "-n", 3, "--ranking", ranking, "-x", "jam"]
    found = call(*words, "--json").json
    assert found["ranking"] == ranking
    others = np.setdiff1d(np.arange(law.n_items), law.ids(["jam"]))
    for basket, rows in zip(baskets, found["recommendations"], strict=True):
        best = ndpp.recommend(law, basket, n=3, candidates=others, ranking=ranking, staples=False)
        assert [row["item"] for row in rows] == [law.labels[i] for i in best.items]
        assert [row["score"] for row in rows] == pytest.approx(best.scores.tolist())
    assert call(*words, "-o", tmp_path / "best.csv").code == 0
    lines = (tmp_path / "best.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + sum(map(len, found["recommendations"]))


def test_the_ranking_is_named(call, model):
    shown = call("recommend", model, "-g", "bread", "--ranking", "completion").out
    assert shown.endswith("Score: the probability of the basket with the item, divided by that without it.\n")
    shown = call("recommend", model, "-g", "bread", "-n", 3, "--ranking", "lift").out
    assert shown.endswith("how many times as likely the item is in a basket with the given items as in any basket.\n")
    shown = call("recommend", model, "-g", "bread", "-n", 3, "--ranking", "continuation").out
    score = "Score: the probability that a basket with the given items contains this one, too."
    assert shown.endswith(f"{score} Popular items are ranked a little lower.\n")
    assert call("recommend", model, "-g", "bread", "-n", 3).out == shown
    assert call("recommend", model, "-g", "bread", "-n", 3, "--damping", "0").out.endswith(f"{score}\n")


def test_short_lists_say_what_is_left_out(call, models):
    words = "recommend", models / "trips.safetensors", "-g", "bread"
    shown = [call(*words, *more).out for more in ((), ("--staples",), ("--ranking", "completion"), ("-n", 3))]
    assert ["With --staples, items that are less likely than usual" in text for text in shown] == [True] + 3 * [False]
    assert "pesto" in shown[1]
    assert "pesto" not in shown[0]


@pytest.mark.parametrize("ranking", list(ndpp.Ranking))
@pytest.mark.parametrize("name", ["trips", "mixture", "shelf"])
def test_reasons_multiply_to_the_score(call, models, name, ranking, tmp_path):
    model = models / f"{name}.safetensors"
    words = ["recommend", model, "-", "-n", 3, "--why", "--ranking", ranking]
    found = call(*words, "--json", stdin="bread\tjam\ntea\t\n").json["recommendations"]
    assert [len(rows) for rows in found] == [3, 3]
    for row in found[0] + found[1]:
        assert row["popularity"] * row["mission"] * row["ties"] == pytest.approx(row["score"])
        assert (row["because"] is None) == (name == "shelf")
        assert row["tied_to"] in ("bread", "jam", "tea", None)
    if name == "shelf":
        assert {row["mission"] for row in found[0]} == {1.0}
    assert call(*words, "-o", tmp_path / "why.csv", stdin="bread\tjam\ntea\t\n").code == 0
    with open(tmp_path / "why.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["basket", "rank", "item", "score", "popularity", "mission", "ties", "because", "tied_to", "share"]
    assert len(rows) == 6


def test_info_lists_the_missions(call, mixture):
    law = ndpp.load(mixture)
    found = call("info", mixture, "--json").json
    assert (found["kind"], found["components"], found["items"]) == ("mixture", 3, 12)
    assert found["size_law"] == pytest.approx(law.size_distribution().tolist())
    assert [one["share"] for one in found["missions"]] == pytest.approx([0.4, 0.3, 0.3])
    shown = call("info", mixture).out
    for i, mission in enumerate(answers.missions(law), 1):
        assert f"  {i}  {mission}\n" in shown


def test_info_leaves_out_what_takes_long(call, mixture, monkeypatch):
    law = ndpp.load(mixture)
    monkeypatch.setattr("ndpp.cli.info.QUICK", 0)
    found = call("info", mixture, "--json").json
    assert found["size_law"] is None
    assert found["mean_size"] == pytest.approx(law.inclusion_probabilities().sum())
    assert "--sizes computes it" in call("info", mixture).out
    assert call("info", mixture, "--sizes", "--json").json["size_law"] == pytest.approx(
        law.size_distribution().tolist()
    )


@pytest.fixture(scope="module")
def fitted(models, tmp_path_factory):
    """A mixture that the command has learned, and what it printed, for people and for programs."""
    pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")
    folder = tmp_path_factory.mktemp("fitted")
    words = [
        "fit",
        models / "orders.csv",
        "-o",
        folder / "model.safetensors",
        "--missions",
        3,
        "--max-epochs",
        2,
        "--jobs",
        1,
    ]
    return folder / "model.safetensors", [run(folder, *words, *more) for more in ([], ["--json"])]


def test_fit_learns_a_mixture_by_default(fitted):
    path, (shown, printed) = fitted
    law, found = ndpp.load(path), printed.json
    assert shown.code == 0
    assert isinstance(law, ndpp.Mixture)
    assert (found["model"], found["components"], len(law.weights)) == ("MixtureNDPP", 3, 3)
    assert [one["name"] for one in found["missions"]] == [one.name for one in answers.missions(law)]
    assert found["independent_log_likelihood"] < 0 > found["validation_log_likelihood"]
    assert ndpp.load_metadata(path)["independent_log_likelihood"] == found["independent_log_likelihood"]
    header, _, line, missions = shown.out.splitlines()
    assert header.split("   ")[-1] == "of independent items"
    assert line.split()[-2:] == [cell(found[f"{kind}_log_likelihood"]) for kind in ("validation", "independent")]
    assert missions.startswith(f"3 components, grouped into 3 missions: {found['missions'][0]['name']} (")


def test_a_fitted_mixture_scores_at_once(fitted):
    """The normalizers are in the file: nothing is computed for all components before the first score."""
    law = ndpp.load(fitted[0])
    ndpp.recommend(law, [0], ranking="completion")
    assert "_state" not in vars(law)


def test_evaluation(call, model, models):
    law = ndpp.load(model)
    baskets = ndpp.Baskets.read(models / "orders.csv", labels=law.labels)
    found = call("evaluate", model, models / "orders.csv", "--bootstrap", 0, "--json").json["results"]
    assert found[0]["model"] == "model"
    assert found[0]["value"] == pytest.approx(law.log_probs(baskets).mean())


def test_impossible_baskets_are_counted(call, tmp_path):
    apart = ndpp.Mixture.tied([[1, 1, 0, 0], [0, 0, 1, 1]], np.zeros((4, 2)), np.zeros((2, 2)), [0.5, 0.5])
    ndpp.save(apart, tmp_path / "apart.safetensors")
    done = call("recommend", tmp_path / "apart.safetensors", "-", "--json", stdin="0 2\n0\n3\n")
    assert [[row["item"] for row in rows] for rows in done.json["recommendations"]] == [[], [1], [2]]
    assert done.err == "ndpp: warning: 1 of 3 baskets have probability zero; nothing is recommended for them\n"
    assert call("recommend", tmp_path / "apart.safetensors", "-g", "0,2").code == 1


def test_a_prepared_model_is_the_same_model(call, models, tmp_path):
    trips, prepared = models / "trips.safetensors", tmp_path / "prepared.safetensors"
    done = call("prepare", trips, "-o", prepared)
    assert done.code == 0
    words = ["-n", 8, "--size", 3, "--seed", 5, "--json"]
    assert call("sample", prepared, *words).json["baskets"] == call("sample", trips, *words).json["baskets"]
    assert ndpp.load_metadata(prepared) == ndpp.load_metadata(trips)
    refused = call("prepare", models / "shelf.safetensors", "-o", tmp_path / "x.safetensors")
    assert refused.code == 1
    assert "this model needs nothing" in refused.err
    assert "would be overwritten" in call("prepare", trips, "-o", trips).err
