"""The comparison with the published samplers of NDPPs: both sides draw from one kernel, in turns; stand-ins take the peer's place."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ndpp import LowRankKernel

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
if not PEERS.is_dir():
    pytest.skip("benchmarks are not part of the sdist", allow_module_level=True)
pytest.importorskip("torch")

WALK = {
    "tree_based_sampling": "def construct_tree(items, X): return X.shape",
    "kndpp": """
import numpy as np
def kndpp_mcmc(tree, X, W, k, num_walks, rng):
    S = rng.permutation(X.shape[0])[:k]
    assert tree == X.T.shape and len(set(S)) == k
    assert list(rng.choice(S, k - 2, replace=False)) != list(S)  # the next permutation is random
    return S, [int(S[0])] * num_walks
""",
}
EXACT = {
    "tree_sampling": "def construct_tree(items, B): return B.shape",
    "rejection_sampling": """
import torch
def decompose_proposal_dpp(V, B, C):
    assert V.shape[1] == 4 and torch.equal(C, -C.T)
    return torch.ones(8, dtype=V.dtype), torch.cat((V, B), 1), None
def rejection_sampling_ndpp(tree, vectors, values, get_det_L, get_det_Lhat, rng):
    rejections = 0
    while not rng.rand() < get_det_L([0, 1, 2]) / get_det_Lhat([0, 1, 2]):
        rejections += 1
    return [0, 1, 2], rejections
""",
}


@pytest.fixture
def nonsymmetric(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    return importlib.import_module("nonsymmetric")


@pytest.fixture
def kernel(tmp_path):
    rng = np.random.default_rng(0)
    D = rng.standard_normal((4, 4))
    X, W = rng.standard_normal((30, 8)), np.eye(8)
    W[4:, 4:] = D - D.T
    np.savez(tmp_path / "kernel.npz", X=X, W=W)
    return LowRankKernel(X, W)


def written(folder, modules):
    folder.mkdir(parents=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def test_walks_start_together_and_are_counted_with_all_their_steps(nonsymmetric, kernel, tmp_path):
    written(tmp_path / "code", WALK)
    task = nonsymmetric.walking(kernel, 4, 3)
    record = nonsymmetric.compare(
        Path(sys.executable), "walk", str(tmp_path / "code"), tmp_path / "kernel.npz", task, 2
    )
    assert record["seconds"]["peer"] == pytest.approx(16 * np.mean(record["rounds"]["peer"]))
    assert record["seconds"]["Exact"] == pytest.approx(np.mean(record["rounds"]["Exact"]))
    assert record["ratio"]["Walk(RejectionUp)"] == pytest.approx(
        record["seconds"]["peer"] / record["seconds"]["Walk(RejectionUp)"]
    )
    assert set(record["ratio"]) == {"Walk(RejectionUp)", "Walk(DirectUp)", "Exact"}
    starts = [task.start(i)[0] for i in (1, 2)]  # the stand-in returns the first item as its rejections
    assert record["check"]["peer"][0] == pytest.approx(np.mean(starts))


def test_samples_of_any_size(nonsymmetric, kernel, tmp_path):
    code, size = "rejection", 3.0
    written(tmp_path / "code" / "sampling", EXACT)
    task = nonsymmetric.of_any_size(kernel, code, 40)
    record = nonsymmetric.compare(Path(sys.executable), code, str(tmp_path / "code"), tmp_path / "kernel.npz", task, 2)
    assert record["seconds"]["peer"] == pytest.approx(task.units * np.mean(record["rounds"]["peer"]))
    assert task.units > 1 == nonsymmetric.of_any_size(kernel, "cholesky", 40).units
    mean, error = record["check"]["peer"]
    assert abs(mean - size) <= 5 * error
    ours, error = record["check"][nonsymmetric.CODES[code].same]
    assert ours > size + 5 * error  # the stand-ins draw small sets, and it shows


def test_records_replace_those_of_the_same_task(nonsymmetric, tmp_path):
    path = tmp_path / "out.json"
    for kernel, seconds in (("A", 1.0), ("B", 2.0), ("A", 3.0)):
        record = {
            "kernel": kernel,
            "task": "k = 10",
            "code": "walk",
            "seconds": {"peer": seconds},
            "ratio": {},
            "check": {},
        }
        nonsymmetric.save(path, record)
    records = json.loads(path.read_text(encoding="utf-8"))["records"]
    assert [(one["kernel"], one["seconds"]["peer"]) for one in records] == [("B", 2.0), ("A", 3.0)]


def test_code_that_is_not_there_is_refused(nonsymmetric, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nonsymmetric.py"])
    monkeypatch.delenv("NDPP_MCMC_SAMPLING", raising=False)
    monkeypatch.delenv("NONSYMMETRIC_DPP_SAMPLING", raising=False)
    with pytest.raises(SystemExit, match="NDPP_MCMC_SAMPLING and NONSYMMETRIC_DPP_SAMPLING must name"):
        nonsymmetric.main()
    monkeypatch.setenv("NDPP_MCMC_SAMPLING", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^NDPP_MCMC_SAMPLING must name"):
        nonsymmetric.main()
