"""The one command that compares: what is missing or of another version is run, what cannot be run is left out with the reason."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
if not PEERS.is_dir():
    pytest.skip("benchmarks are not part of the sdist", allow_module_level=True)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a call of the command that answers with the scripts it would start, in an empty folder."""
    monkeypatch.syspath_prepend(str(PEERS))
    compare = importlib.import_module("compare")
    started: list[str] = []
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    monkeypatch.setattr(compare, "cuda", lambda: "there is no CUDA device")
    monkeypatch.setattr(compare.subprocess, "run", lambda command, **_: started.append(" ".join(command[1:])))
    monkeypatch.delenv("NDPP_DATA", raising=False)

    def call(*arguments: str) -> list[str]:
        started.clear()
        monkeypatch.setattr(sys, "argv", ["compare.py", *arguments])
        compare.main()
        return list(started)

    return call


def test_what_is_due_is_run(run, tmp_path, capsys):
    names = [command.split()[0].rpartition("/")[2] for command in run()]
    assert names == [
        "symmetric.py", "trees.py", "functions.py", "bench_dense.py", "diverse.py", "bench_torch.py", "figures.py"
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert "models is left out: NDPP_DATA must name" in said
    assert "diverse_gpu is left out: there is no CUDA device" in said
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for name, number in (("symmetric", version("ndpp")), ("dense", "0.0.1")):
        (results / f"{name}.json").write_text(json.dumps({"machine": {"versions": {"ndpp": number}}}), encoding="utf-8")
    assert run()[2].split()[0] == "benchmarks/bench_dense.py"
    assert run("symmetric")[0].split()[0] == "benchmarks/peers/symmetric.py"
    assert run("--list") == []
    assert "symmetric     about 1 min, up to date" in capsys.readouterr().out


def test_an_unknown_comparison_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("symmetrical")
    assert "unknown symmetrical; choose from symmetric, trees, functions, nonsymmetric" in capsys.readouterr().err
