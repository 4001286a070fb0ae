"""Kernels of the paper's recipe: learned on one machine, packed, and kept on another."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import ndpp.metrics
from ndpp.laws.files import load, load_metadata
from ndpp_experiments import kernels, table2

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The script, with a small data set for the paper's."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "publish"))
    script = importlib.import_module("published")
    mini = kernels.DataSet("Recipe", 4, 2.0, "mini", penalties=(0.03, 0.2), n_test=20)
    (tmp_path / "mini.baskets").write_text("0 1\n1 2\n0 1 2\n3\n" * 30)
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("NDPP_DATA", str(tmp_path))
    for name, value in {"RANK": 4, "N_VALIDATION": 20}.items():
        monkeypatch.setattr(kernels, name, value)
    for module in (script, kernels):
        monkeypatch.setattr(module, "PAPER", (mini,))
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    for name, value in {"SIZES": (2, None), "RESULTS": tmp_path / "results"}.items():
        monkeypatch.setattr(script, name, value)
    yield script
    sys.modules.pop("published")


@pytest.mark.parametrize("whole", [2, 7000], ids=["half precision", "single precision"])
def test_what_was_learned_is_kept(published, tmp_path, monkeypatch, whole):
    monkeypatch.setattr(published, "WHOLE", whole)
    jobs = published.jobs(["mini"])
    assert [job.name for job in jobs[:2]] == ["Recipe NDPP", "Recipe ONDPP"]
    assert (
        sum(job.row.model == "ndpp" for job in jobs) == sum("gamma" not in v for v in published.VARIANTS.values()) + 1
    )
    other = next(job for job in jobs if job.variant == "another split and start")
    found = [published.work(job, tmp_path, np.inf, 5, {"max_epochs": 6}) for job in (*jobs[:2], other)]
    assert [record["variant"] for record in found] == ["", "", "another split and start"]
    assert [record["seed"] for record in found] == [0, 0, 1]
    assert all(set(record["log10_proposals"]) == {"2", "any"} for record in found)
    published.pack(found, tmp_path, tmp_path)
    (tmp_path / "published.json").write_text(json.dumps({"machine": {}, "kernels": found}))
    assert kernels.missing(orthogonal=False, seed=0) == ["Recipe"]
    published.keep(tmp_path)
    assert kernels.missing(orthogonal=False, seed=0) == kernels.missing(orthogonal=True, seed=0) == []
    assert (tmp_path / "results" / "published.json").is_file()
    for record in found[:2]:
        path = tmp_path / "cache" / f"mini-{record['kind']}-4-0-published.safetensors"
        kept, made = load(path), load(tmp_path / record["file"])
        np.testing.assert_allclose(kept.X, made.X, rtol=1e-3 if whole == 2 else 1e-6)
        assert load_metadata(path)["test"] == record["test"]


def test_a_fit_does_not_begin_too_late(published, tmp_path):
    with pytest.raises(TimeoutError, match="no time"):
        published.work(published.jobs(["mini"])[0], tmp_path, 0.0, 5, {})


def test_tables_say_which_kernels_are_missing(published, monkeypatch):
    monkeypatch.setattr(table2, "kernels", lambda **_: [])
    monkeypatch.setattr(table2, "runtime_table", lambda named, of_paper, notes, **_: notes)
    *_, said = table2.measure(quick=False, seed=0, say=lambda _: None)
    assert said.startswith("Kernels of the paper's recipe are missing for Recipe: ")
    assert table2.measure(quick=True, seed=0, say=lambda _: None) == table2.NOTES


def test_both_recipes_meet_the_same_baskets(published, tmp_path, monkeypatch):
    found = [published.work(job, tmp_path, np.inf, 5, {"max_epochs": 6}) for job in published.jobs(["mini"])[:2]]
    published.pack(found, tmp_path, tmp_path)
    (tmp_path / "published.json").write_text(json.dumps({"machine": {}, "kernels": found}))
    published.keep(tmp_path)
    quality, holdouts = (importlib.import_module(name) for name in ("quality", "holdouts"))
    monkeypatch.setitem(quality.DATA, "mini", quality.Data(4))
    for name, value in {"cache_folder": published.cache_folder, "N_VALIDATION": 20}.items():
        monkeypatch.setattr(holdouts, name, value)
    data, chosen = kernels.PAPER[0], [(holdouts.INDEPENDENT, ""), ("NDPP", "the paper's recipe"), ("NDPP", "ours")]
    records = [holdouts.work(data, kind, recipe, tmp_path) for kind, recipe in chosen]
    assert [record["n_test"] for record in records] == [20] * 3
    train, _, test = quality.load("mini").split(20, 20, rng=0)
    for rule, name in holdouts.RULES.items():
        right = ndpp.metrics.mean_percentile_rank(
            ndpp.metrics.independent_items(train), test, holdout=rule, rng=0, n_boot=0
        )
        assert records[0]["metrics"][name][0] == pytest.approx(right.value)
    assert records[0]["metrics"]["MPR"] != records[0]["metrics"]["MPR, largest id"]
    likely = [record["metrics"]["log-likelihood"][0] for record in records]
    kept = load(tmp_path / "cache" / "mini-ndpp-4-0-published.safetensors")
    assert likely[1] == pytest.approx(kept.log_probs(test).mean())
    assert (tmp_path / "mini-ndpp-4-0.safetensors").is_file()
    for name in ("holdouts", "quality"):
        sys.modules.pop(name)
