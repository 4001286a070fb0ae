"""The notebooks run from top to bottom, and what they say is so."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NAMES = ["baskets", "diversity", "from_dppy", "limits"]


def cells(name: str, kind: str) -> list[dict]:
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell | {"source": "".join(cell["source"])} for cell in notebook["cells"] if cell["cell_type"] == kind]


def run(name: str) -> dict:
    """Run the cells of a notebook in one namespace, and return it."""
    transform = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager().transform_cell
    names: dict = {}
    for i, cell in enumerate(cells(name, "code")):
        exec(compile(transform(cell["source"]), f"{name}, code cell {i}", "exec", dont_inherit=True), names)
    return names


def test_all_are_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_opens_in_colab_and_shows_its_results(name: str):
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    repository = project["urls"]["Repository"]
    path = repository.removeprefix("https://github.com/")
    assert (
        f"(https://colab.research.google.com/github/{path}/blob/main/notebooks/{name}.ipynb)"
        in cells(name, "markdown")[0]["source"]
    )
    install, *others = cells(name, "code")
    assert f"@ git+{repository}" in install["source"]
    assert install["outputs"] == []
    assert sum(bool(cell["outputs"]) for cell in others) >= 5
    outputs = [output for cell in others for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"execute_result", "stream"}  # no errors
    assert all(output.get("name") != "stderr" for output in outputs)  # no warnings


@pytest.mark.usefixtures("short_epochs")
def test_baskets(capsys: pytest.CaptureFixture):
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    names = run("baskets")
    assert all("pasta" in names["drawn"].labelled(i) for i in range(4))
    assert set(names["drawn"].sizes) == {5}


def test_limits(capsys: pytest.CaptureFixture):
    names = run("limits")
    chances, total, drawn, samples = (names[name] for name in ("chances", "total", "drawn", "samples"))
    assert set(drawn) <= set(chances)
    p = np.array(list(chances.values())) / total
    found = np.array([drawn[s] for s in chances]) / len(samples)
    assert np.all(np.abs(found - p) < 6 * np.sqrt(p * (1 - p) / len(samples)) + 1e-3)
    estimate = names["shelf"].probability(names["limits"])
    assert abs(estimate.value - total) < 6 * estimate.error + 1e-12


def test_diversity(capsys: pytest.CaptureFixture):
    names = run("diversity")
    topic, scores = names["topic"], names["scores"]
    by_score = np.argsort(-scores)[:10]
    assert len(set(topic[names["first"]])) > len(set(topic[by_score]))
    assert not set(names["first"]) & set(names["second"])
    assert np.bincount(topic[names["ruled"]]).max() <= 2
    assert names["best"].log_weight <= names["best"].bound


def test_from_dppy(capsys: pytest.CaptureFixture):
    names = run("from_dppy")
    shelf, bread, butter = (names[name] for name in ("shelf", "bread", "butter"))
    assert shelf.inclusion_probabilities(given=[bread])[butter] > shelf.inclusion_probabilities()[butter]
