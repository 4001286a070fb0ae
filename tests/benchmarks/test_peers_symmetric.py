"""The comparison with DPPy: both sides draw from one kernel, in turns; a stand-in takes the place of the library."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
if not PEERS.is_dir():
    pytest.skip("benchmarks are not part of the sdist", allow_module_level=True)
STAND_IN = """
import numpy as np

class FiniteDPP:
    def __init__(self, kind, *, L_gram_factor):
        print("noise that must not reach the answers")
        self.n, self.list_of_samples = L_gram_factor.shape[1], []

    def flush_samples(self):
        self.list_of_samples = []

    def sample_exact_k_dpp(self, size, mode="GS", random_state=None):
        print("more of it")
        self.list_of_samples.append(random_state.permutation(self.n)[:size])
"""


def test_both_sides_are_timed_and_their_sets_judged(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    (tmp_path / "dppy").mkdir()
    (tmp_path / "dppy" / "__init__.py").touch()
    (tmp_path / "dppy" / "finite_dpps.py").write_text(STAND_IN, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    symmetric = importlib.import_module("symmetric")
    record = symmetric.compare(Path(sys.executable), tmp_path, n=60, rank=8, size=4, rounds=3, sets=(40, 40))
    assert record["ratio"] == pytest.approx(min(record["dppy"].values()) / record["ndpp"])
    assert set(record["dppy"]) == {"GS", "GS_bis"}
    assert record["with preparation"]["ndpp"] > record["ndpp"]
    assert record["with preparation"]["dppy"] > 0
    (ours, _), (theirs, error) = record["mean log det and its standard error"].values()
    assert theirs < ours - 5 * error  # the stand-in draws at random, and it shows
    limited = symmetric.compare(Path(sys.executable), tmp_path, n=60, rank=8, size=4, rounds=1, sets=(4, 400), limit=2)
    assert limited["kept"] == pytest.approx(0.038, abs=0.02)  # 2 of 6 items in a random set of 4 of 60
