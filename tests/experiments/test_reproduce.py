"""All experiments at quick settings, through the public call, in a process of its own: files, numbers, report."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys

import pytest

from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp_experiments import registry
from ndpp_experiments.registry import EXPERIMENTS, reproduce

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'ndpp[plot]'")

CODE = """
import sys
from pathlib import Path
from ndpp_experiments.registry import reproduce
print(reproduce(["all"], Path("out"), quick=True, seed=0, progress=True))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a run of everything leaves in an empty folder, far from the checkout and without data."""
    where = tmp_path_factory.mktemp("reproduce")
    environment = {name: value for name, value in os.environ.items() if name != "NDPP_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=where, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == os.path.join("out", "report.md")
    assert "beyond" in done.stderr
    return where / "out"


def table(folder, name):
    with open(folder / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_leaves_its_files(folder, name):
    record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert record["quick"] is True
    assert record["seed"] == 0
    assert record["machine"]["versions"]["numpy"]
    assert record["findings"]
    assert record["tables"]
    assert record["figures"]
    for file in record["tables"]:
        assert len(table(folder, file)) >= 2
    for file in record["figures"]:
        assert (folder / file).read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (folder / file).with_suffix(".svg").read_bytes()
    failed = [finding for finding in record["findings"] if finding["holds"] is False and not finding["claim"]]
    timed = re.compile("slope|slowest|faster")  # a busy machine may bend these
    assert not [finding for finding in failed if not timed.search(finding["what"] + finding["ours"])]


def test_the_report_tells_of_all(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}" in text
    linked = re.findall(r"\]\(([^)]+)\)", text)
    assert len(linked) > 20
    assert all((folder / link).is_file() for link in linked)
    assert text.count("Seed 0, quick settings") == len(EXPERIMENTS)
    assert "5.11·10^12" not in text  # the quick kernels have no k = 50
    assert "20880" not in text  # the paper's rejections for UK Retail at k = 10: the quick kernel is another one
    assert "files of the learned kernels are missing" in text
    assert (
        "| Theorem 4 | the expected number of proposals is at most (1 + σ_max(X)²κ_A)² | not measured in this folder |"
        in text
    )


def test_numbers_of_figure_1(folder):
    rows = table(folder, "fig1.csv")
    at = {(r["task"], r["sampler"], int(r["samples"]), r["distance"]): float(r["value"]) for r in rows}
    task, last = "k-NDPP, k = 5", 10_000
    full = at[task, "walk of k² steps, enumerated", last, "total variation"]
    short = at[task, "walk of 2 steps, enumerated", last, "total variation"]
    assert full < short / 2  # the control leaves the band
    assert all(r["samples"] and 0 <= float(r["value"]) <= 1 for r in rows)
    assert {r["sampler"] for r in rows} >= {"Exact", "Rejection", "Cholesky", "Clock", "Walk(NaiveUp)"}


def test_proposals_of_figure_2_are_those_of_the_closed_form(folder):
    for row in table(folder, "fig2-n.csv"):
        off = abs(float(row["proposals"]) - float(row["proposals_expected"]))
        assert off < 5 * float(row["proposals_error"])


def test_rejections_of_the_tables_are_expected_values(folder):
    for name in ("table2.csv", "table3.csv"):
        rejections = {(r["task"], r["sampler"]): r["rejections"] for r in table(folder, name)}
        assert float(rejections["k = 10", "Rejection"]) > float(rejections["k = 10", "Walk(RejectionUp)"]) >= 0
        assert rejections["k = 10", "Exact"] == ""


def test_resuming_leaves_out_what_is_done(folder, monkeypatch):
    ran = []
    monkeypatch.setattr(registry.Experiment, "run", lambda self, *args, **settings: ran.append(self.name))
    reproduce(["all"], folder, quick=True, resume=True)
    assert ran == []
    reproduce(["fig2", "fig1"], folder, quick=True, seed=1, resume=True)
    assert ran == ["fig1", "fig2"]  # another seed is another run
    reproduce(["fig1"], folder, quick=True)
    assert ran[2:] == ["fig1"]


def test_what_cannot_be_run_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match="fig1, fig2"):
        reproduce(["fig7"], tmp_path, quick=True)
    with pytest.raises(InvalidInputError, match="no experiment"):
        reproduce([], tmp_path, quick=True)
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"ndpp\[plot\]"):
        reproduce(["fig1"], tmp_path, quick=True)
    assert not list(tmp_path.iterdir())
