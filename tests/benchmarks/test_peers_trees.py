"""The comparison of spanning trees with DPPy: both sides draw from one graph, in turns; stand-ins take the place of the libraries."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
if not PEERS.is_dir():
    pytest.skip("benchmarks are not part of the sdist", allow_module_level=True)
STAND_INS = {
    "networkx/__init__.py": """
def grid_2d_graph(rows, columns):
    return rows * columns

def convert_node_labels_to_integers(graph):
    return graph
""",
    "dppy/__init__.py": "",
    "dppy/exotic_dpps.py": """
class Path:
    def __init__(self, n):
        self.n = n

    def degree(self):
        return [(node, 1 if node in (0, self.n - 1) else 2) for node in range(self.n)]

class UST:
    def __init__(self, graph):
        print("noise that must not reach the answers")
        self.graph, self.list_of_samples = graph, []

    def flush_samples(self):
        self.list_of_samples = []

    def sample(self, random_state=None):
        self.list_of_samples.append(Path(self.graph))
""",
}


def test_both_sides_are_timed_and_their_trees_judged(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    for name, text in STAND_INS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    trees = importlib.import_module("trees")
    record = trees.compare(Path(sys.executable), side=4, rounds=3, trees=(40, 5))
    assert (record["nodes"], record["edges"]) == (16, 24)
    assert record["ratio"] == pytest.approx(record["seconds"]["dppy"] / record["seconds"]["ndpp"])
    assert {name: len(rounds) for name, rounds in record["rounds"].items()} == {
        "ndpp": 3,
        "ndpp, weighted": 3,
        "dppy": 3,
    }
    (ours, error), theirs = record["mean leaves and its standard error"].values()
    assert theirs == [2.0, 0.0]  # the stand-in draws a path
    assert ours > 2 + 5 * error
    weights = trees.weighted(trees.grid(4))
    assert (weights != weights.T).nnz == 0
    assert weights.nnz == trees.grid(4).nnz
