"""The command in this process, and models and baskets to try it on."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpp
from command import Done
from ndpp.cli.app import run
from ndpp.datasets import make_kernel, shelf_kernel


@pytest.fixture(autouse=True)
def _short(short_epochs: None) -> None:
    """Train in short epochs, in this process and in those that are forked: how well a model fits is for other tests."""


@pytest.fixture
def call(capsys, monkeypatch):
    """Run the command in this process."""

    def call(*arguments: Any, stdin: str | bytes = "") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        capsys.readouterr()
        # Warnings are printed, as in a process of its own.
        with warnings.catch_warnings(action="default"), pytest.raises(SystemExit) as ended:
            run([str(word) for word in arguments])
        return Done.of(int(ended.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder with a labelled model, one without labels, and baskets of the first."""
    folder = tmp_path_factory.mktemp("models")
    shelf = shelf_kernel()
    ndpp.save(shelf, folder / "shelf.safetensors")
    ndpp.save(make_kernel(60, 8, rng=0), folder / "plain.safetensors")
    ndpp.save(
        ndpp.Mixture([shelf, shelf.exclude([0])], [0.5, 0.5], names=["any", "other"]), folder / "mixture.safetensors"
    )
    ndpp.save(trips(shelf), folder / "trips.safetensors")
    orders = shelf.sample(300, rng=1)
    orders.write(folder / "orders.csv")
    orders.write(folder / "orders.parquet")
    orders.write(folder / "orders.txt")
    (folder / "junk").write_bytes(bytes(range(255, 0, -1)))
    (folder / "none.csv").write_text("basket,item\n")
    (folder / "strange.csv").write_text("basket,item\n0,ale\n")
    (folder / "drawn.json").write_text('{"baskets": [["tea"]]}')
    return folder


def trips(shelf: ndpp.LowRankKernel) -> ndpp.Mixture:
    """A mixture with shared ties: two kinds of breakfast, and dinner."""
    early = np.isin(shelf.labels, ["bread", "rolls", "butter", "jam", "coffee", "tea"])
    odds = [np.where(early, 0.6, 0.1), np.where(early, 0.4, 0.05), np.where(early, 0.1, 0.6)]
    return ndpp.Mixture.tied(odds, shelf.X, (shelf.W - shelf.W.T) / 2, [0.3, 0.3, 0.4], labels=shelf.labels)


@pytest.fixture
def mixture(models) -> Path:
    return models / "trips.safetensors"


@pytest.fixture
def shelf(models) -> Path:
    return models / "shelf.safetensors"


@pytest.fixture
def plain(models) -> Path:
    return models / "plain.safetensors"
