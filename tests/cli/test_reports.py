"""fit, info, evaluate, diagnose, bench and reproduce: what they tell is what the library says."""

from __future__ import annotations

import csv
import io
import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import ndpp
from ndpp import metrics
from ndpp.cli.deliver import BasketOutput
from ndpp.cli.options import Writing
from ndpp.diagnostics import diagnose_walk
from ndpp.samplers import Exact, Walk
from ndpp_experiments import bench, registry


def test_info_of_a_model(call, shelf):
    kernel = ndpp.load(shelf)
    found = call("info", shelf, "--json").json
    assert (found["items"], found["rank"], found["labels"]) == (12, kernel.rank, True)
    assert found["size_law"] == pytest.approx(kernel.size_distribution().tolist())
    shown = call("info", shelf).out
    assert "Most frequent: bread (47.0%)" in shown
    assert f"{kernel.size_distribution()[2]:.1%}  ███" in shown


@pytest.mark.parametrize("name", ["orders.csv", "orders.txt", "orders.parquet"])
def test_info_of_baskets(call, models, name):
    found = call("info", models / name, "--json").json
    assert (found["kind"], found["baskets"], found["items"], found["labels"]) == ("baskets", 300, 12, True)
    assert sum(found["size_shares"]) == pytest.approx(1)


def test_info_of_numbers_that_are_names(call):
    codes = "85123 71053\n84406\n"
    assert call("info", "-", "--json", stdin=codes).json["items"] == 3
    assert call("info", "-", "--ids", "--json", stdin=codes).json["items"] == 85124


def test_fit_shows_the_baseline_beside_the_score(call, models, tmp_path):
    pytest.importorskip("torch")
    kernel = ndpp.load(models / "shelf.safetensors")
    baskets = ndpp.Baskets.read(models / "orders.csv", labels=kernel.labels)
    baskets[:200].write(tmp_path / "train.csv")
    baskets[200:].write(tmp_path / "other.csv")
    words = ["fit", tmp_path / "train.csv", "-o", tmp_path / "m.safetensors", "--validation", tmp_path / "other.csv"]
    words += ["--rank", 6, "--max-epochs", 2]
    told = call(*words, "--json").json
    train, other = (ndpp.Baskets.read(tmp_path / name, labels=kernel.labels) for name in ("train.csv", "other.csv"))
    expected = metrics.mean_log_likelihood(metrics.independent_items(train), other, n_boot=0).value
    assert told["independent_log_likelihood"] == pytest.approx(expected)
    header, _, line, _ = call(*words).out.splitlines()
    assert header.split("   ")[-1].strip() == "of independent items"
    assert float(line.split()[-1]) == pytest.approx(expected, rel=1e-3)


def test_evaluation_is_that_of_the_library(call, models, shelf, tmp_path):
    kernel = ndpp.load(shelf)
    baskets = ndpp.Baskets.read(models / "orders.csv", labels=kernel.labels)
    expected = metrics.compare_models(
        {
            "model": kernel, "independent items": metrics.independent_items(baskets),
            "item-item cosine": metrics.item_item_cosine(baskets), "EASE": metrics.ease(baskets),
        },
        baskets, n_boot=50, rng=3,
    )  # fmt: skip
    words = ["evaluate", shelf, models / "orders.csv", "--train", models / "orders.csv", "--bootstrap", 50, "--seed", 3]
    told = call(*words, "--json").json
    found = told["results"]
    assert (told["base"], told["n_impossible"], told["n_held_out"]) == ("independent items", 0, expected.n_held_out)
    values = [estimate for row in expected.rows for estimate in row.estimates]
    assert [(row["metric"], row["value"], row["low"]) for row in found] == [(e.name, e.value, e.low) for e in values]
    shown = call(*words).out
    assert [line.split("  ")[0] for line in shown.splitlines()].count("independent items") == 2
    assert "hit rate@10 gain" in shown
    assert "Gains are over independent items, basket by basket.\n± is half the width of a 95% interval.\n" in shown
    assert call(*words, "-o", tmp_path / "r.csv").out == ""
    assert len((tmp_path / "r.csv").read_text(encoding="utf-8").splitlines()) == 1 + len(found)
    assert call(*words, "-o", tmp_path / "r.json").out == ""
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["results"] == found
    assert call(*words, "-o", tmp_path / "r.txt").out == ""
    assert (tmp_path / "r.txt").read_text(encoding="utf-8") == shown


def test_a_mixture_is_evaluated_like_a_kernel(call, models, shelf, tmp_path):
    """The mixture of a kernel with itself is that kernel."""
    twice = tmp_path / "twice.safetensors"
    ndpp.save(ndpp.Mixture([ndpp.load(shelf)] * 2, [0.5, 0.5]), twice)
    words = [models / "orders.csv", "--train", models / "orders.csv", "--bootstrap", 0, "--json"]
    kernel, mixture = (call("evaluate", path, *words).json["results"] for path in (shelf, twice))
    assert [row["metric"] for row in kernel] == [row["metric"] for row in mixture]
    for one, other in zip(kernel, mixture):
        likely = "log" in one["metric"]  # rounding breaks ties between items, and so changes ranks a little
        assert one["value"] == pytest.approx(
            other["value"], rel=1e-6 if likely else 0.01, abs=1e-9 if likely else 0.005
        )
    assert {row["metric"] for row in mixture if row["model"] == "model"} >= {
        "log P(size)",
        "log P(items | size)",
        "MRR",
    }


def test_validation_baskets_choose_the_penalty_of_ease(call, models, shelf, tmp_path):
    kernel = ndpp.load(shelf)
    baskets = ndpp.Baskets.read(models / "orders.csv", labels=kernel.labels)
    baskets[:200].write(tmp_path / "train.csv")
    baskets[200:].write(tmp_path / "validation.csv")
    model = metrics.ease(baskets[:200], validation=baskets[200:])
    assert model.penalty != metrics.ease(baskets[:200]).penalty
    expected = metrics.mean_percentile_rank(model, baskets, rng=0, n_boot=0)
    words = [
        "evaluate",
        shelf,
        models / "orders.csv",
        "--bootstrap",
        0,
        "--json",
        "--validation",
        tmp_path / "validation.csv",
    ]
    found = call(*words, "--train", tmp_path / "train.csv").json["results"]
    values = {row["metric"]: row["value"] for row in found if row["model"] == "EASE"}
    assert values["MPR"] == pytest.approx(expected.value)
    assert "need --train" in call(*words).err


def test_a_catalogue_too_large_for_ease(call, models, shelf, monkeypatch):
    monkeypatch.setattr("ndpp.metrics.regression.MAX_ITEMS", 11)
    done = call("evaluate", shelf, models / "orders.csv", "--train", models / "orders.csv", "--bootstrap", 0)
    assert "EASE is left out: it takes the square of 12 items in memory." in done.out
    assert "item-item cosine" in done.out


def test_baskets_that_the_model_cannot_have_are_counted(call, plain):
    baskets = "0 3\n1 2\n" + " ".join(map(str, range(ndpp.load(plain).rank + 2))) + "\n"
    words = ["evaluate", plain, "-", "--bootstrap", 0]
    said = "1 baskets have probability zero under a model and count for none, except in AUC (model: 1)."
    assert said in call(*words, stdin=baskets).out
    found = call(*words, "--json", stdin=baskets).json
    assert (found["n_impossible"], found["n_unranked"]) == (1, 1)
    assert {row["n"] for row in found["results"] if row["metric"] != "AUC"} == {2}


def test_without_training_baskets_the_floor_is_the_model_without_ties(call, shelf):
    drawn = call("sample", shelf, "-n", 400, "--seed", 0).out
    found = call("evaluate", shelf, "-", "--json", "--bootstrap", 0, stdin=drawn).json["results"]
    likely = {row["model"]: row["value"] for row in found if row["metric"] == "log-likelihood"}
    assert likely["model"] > likely["independent items (the model's own)"] + 0.2
    assert all(row["low"] is None for row in found)


def test_margins_keep_the_frequencies(shelf):
    kernel = ndpp.load(shelf)
    floor = metrics.independent_margins(kernel)
    np.testing.assert_allclose(floor.probabilities, kernel.inclusion_probabilities())


def test_diagnosis_says_whether_a_walk_converged(call, shelf):
    good = call("diagnose", shelf, "-k", 3, "-n", 100, "--json").json
    assert good["converged"]
    assert good["steps"] == 9
    done = call("diagnose", shelf, "-k", 3, "-n", 100, "--steps", 0)
    assert done.code == 0
    assert "NOT CONVERGED: do not trust this walk" in done.out
    assert "compared with the kernel: The distributions differ" in done.out


def test_a_walk_is_diagnosed_on_sets_of_two_at_least(shelf):
    with pytest.raises(ndpp.errors.InvalidInputError, match="at least two items"):
        diagnose_walk(Walk.prepare(ndpp.load(shelf), size=1))


def test_bench_gives_ratios(call, plain):
    found = call("bench", plain, "--size", 3, "--seconds", 0.01, "--json").json
    assert [row["sampler"] for row in found["timings"]] == ["exact", "walk", "rejection-walk", "rejection"]
    assert found["timings"][0]["ratio"] == 1
    shown = call("bench", "--items", 50, "--rank", 4, "--any-size", "--seconds", 0).out
    assert "cholesky" in shown
    assert "50 items, rank 4, baskets of any size." in shown


def test_a_sampler_that_refuses_is_told(shelf):
    def refuse() -> Exact:
        return Exact.prepare(ndpp.load(shelf), size=99)

    refused, ready = bench.measure({"a": refuse, "b": lambda: Exact.prepare(ndpp.load(shelf))}, seconds=0.0)
    assert "no set is larger" in refused.note
    assert refused.seconds is None
    assert (ready.ratio, ready.n_samples) == (1.0, 1)


def test_experiments_are_listed_and_run(call, tmp_path, monkeypatch):
    assert [row["name"] for row in call("reproduce", "--list", "--json").json["experiments"]] == list(
        registry.EXPERIMENTS
    )
    asked = {}

    def reproduce(names, output, **options):
        asked.update(options, names=list(names), output=output)
        return output / "report.md"

    monkeypatch.setattr(registry, "reproduce", reproduce)
    done = call("reproduce", "fig1", "psrf", "--quick", "-o", tmp_path, "--seed", 3, "--resume")
    assert asked == {
        "names": ["fig1", "psrf"], "output": tmp_path, "quick": True, "seed": 3, "progress": False, "resume": True,
    }  # fmt: skip
    assert str(tmp_path / "report.md") in done.out


def test_labels_cannot_command_the_terminal(call, tmp_path):
    """Escape sequences and marks that reorder a line are shown, not obeyed; JSON escapes what it must, as always."""
    labels = ["tea\x1b[2J", "pea\u202e", "\x9b31mbread"]
    ndpp.save(ndpp.LowRankKernel(np.eye(3), np.eye(3), labels=labels), tmp_path / "m")
    for words in (["info", tmp_path / "m"], ["recommend", tmp_path / "m", "--given", "tea\x1b[2J"]):
        done = call(*words)
        assert not set("\x1b\x9b\u202e") & set(done.out)
        assert r"\u202e" in done.out
        assert r"\x9b31mbread" in done.out
    error = call("recommend", tmp_path / "m", "--given", "tee\x1b").err
    assert "\x1b" not in error
    assert r"tee\x1b" in error


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_baskets_on_a_terminal_are_escaped_too(monkeypatch):
    for screen, expected in ((Screen(), "a\\x1b[2J b\n"), (io.StringIO(), "a\x1b[2J b\n")):
        monkeypatch.setattr(sys, "stdout", screen)
        BasketOutput(Writing(), ("a\x1b[2J", "b")).write([[0, 1]], {})
        assert screen.getvalue() == expected


@pytest.mark.parametrize(
    "words",
    [
        ["recommend", "SHELF", "--given", "bread", "--why"],
        ["recommend", "SHELF", "FILE"],
        ["related", "SHELF"],
        ["related", "SHELF", "tea"],
        ["evaluate", "SHELF", "FILE", "--bootstrap", "0"],
        ["diagnose", "SHELF", "-k", "2", "-n", "40", "--seed", "0"],
        ["info", "SHELF"],
        ["info", "FILE"],
    ],
    ids=" ".join,
)
def test_every_table_as_parquet(call, models, tmp_path, words):
    names = {"SHELF": models / "shelf.safetensors", "FILE": models / "orders.csv"}
    asked = [names.get(word, word) for word in words]
    for name in ("table.csv", "table.parquet"):
        assert call(*asked, "-o", tmp_path / name).code in (0, 1), name
    text = list(csv.reader(io.StringIO((tmp_path / "table.csv").read_text(encoding="utf-8"))))
    table = pq.read_table(tmp_path / "table.parquet")
    assert (table.column_names, table.num_rows) == (text[0], len(text) - 1)
    for line, record in zip(text[1:], zip(*table.to_pydict().values())):
        for cell, value in zip(line, record):
            assert cell == ("" if value is None else str(value)) or float(cell) == pytest.approx(float(value), rel=1e-5)
