"""The comparison of libraries that choose diverse items: what runs is timed and judged, what does not says why."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
if not PEERS.is_dir():
    pytest.skip("benchmarks are not part of the sdist", allow_module_level=True)
STAND_IN = """
from types import SimpleNamespace

class Strategy:
    DPP = "dpp"

def diversify(X, scores, k, strategy, diversity):
    return SimpleNamespace(indices=range(k))
"""


def test_methods_are_timed_and_their_sets_judged(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    (tmp_path / "pyversity.py").write_text(STAND_IN, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    diverse = importlib.import_module("diverse")
    here = Path(sys.executable)
    pythons = {"NumPy": here, "ndpp": here, "pyversity": here, "apricot": "apricot could not be installed"}
    _, record = diverse.compare(pythons, tmp_path, n=200, d=8, ks=[2, 4], limit=60.0, slow=[])
    found = record["methods"]
    assert record["k"] == 4
    assert found["ndpp"]["log det"] == pytest.approx(found["NumPy"]["log det"], abs=1e-4)
    assert (
        found["pyversity"]["log det"] < found["ndpp"]["log det"] - 1
    )  # the stand-in takes the first items, and it shows
    assert found["ndpp"]["seconds"] > 0
    assert found["apricot"] == {"skipped": "apricot could not be installed"}


def test_what_takes_too_long_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    diverse = importlib.import_module("diverse")
    slow: list[tuple] = []
    options = {"d": 8, "ks": [4], "limit": 0.001, "slow": slow}
    (record,) = diverse.compare({"ndpp": Path(sys.executable)}, tmp_path, n=100, **options)
    assert record["methods"]["ndpp"] == {"skipped": "took more than 0.001 s"}
    (record,) = diverse.compare({"ndpp": Path(sys.executable)}, tmp_path, n=200, **options)
    assert record["methods"]["ndpp"] == {"skipped": "took too long with 100 × 8"}
    large = diverse.chosen_by("apricot", Path(sys.executable), tmp_path, 100_000, [10], 1.0)
    assert large == [{"skipped": "would need a matrix of 80 GB"}]
