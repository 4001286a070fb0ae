"""The matrix of test runs: what the short one covers, and how its outcomes are read."""

from __future__ import annotations

import importlib.util
import json
import os
from itertools import combinations, product
from pathlib import Path

import pytest

pytest.importorskip("nox", reason="needs nox: pip install 'ndpp[dev]'")

NOXFILE = Path(__file__).parents[1] / "noxfile.py"


@pytest.fixture(scope="module")
def matrix():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.environ.get("PATH", ""))  # which it extends
        spec = importlib.util.spec_from_file_location("noxfile", NOXFILE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def test_the_short_matrix_covers_what_it_says(matrix, monkeypatch):
    cores = ["A", "B", "C", "D", "E", "F"]
    monkeypatch.setattr(matrix, "PYTHONS", ["3.11", "3.12", "3.13"])
    monkeypatch.setattr(matrix, "CORES", cores)
    runs = matrix.plan(full=False)
    assert len(runs) == len({run.name for run in runs}) == 6
    assert [run.setting.core for run in runs] == cores
    assert {run.python for run in runs} == {"3.11", "3.12", "3.13"}
    assert ("3.11", "newest") in {(run.python, run.versions) for run in runs}
    values = {"versions": ("newest", "lowest"), "features": ("all", "baseline"), "target": ("host", "generic")}
    made = [{"versions": run.versions, **run.setting._asdict()} for run in runs]
    for one, other in combinations(values, 2):
        assert {(run[one], run[other]) for run in made} == set(product(values[one], values[other]))


def test_the_full_matrix_is_the_product(matrix, monkeypatch):
    monkeypatch.setattr(matrix, "PYTHONS", ["3.11", "3.12"])
    monkeypatch.setattr(matrix, "CORES", ["A", "B", "C"])
    runs = matrix.plan(full=True)
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 3 * 2 * 2
    assert {run.name for run in matrix.plan(full=False)} <= {run.name for run in runs}


def test_a_processor_without_known_core_types_has_its_own(matrix, monkeypatch):
    monkeypatch.setattr(matrix, "CORES", [])
    assert {run.setting.core for run in matrix.plan(full=False)} == {"default"}
    assert "OPENBLAS_CORETYPE" not in matrix.variables(matrix.Setting("default", "all", "host"), [], Path("x"))


def test_settings_become_environment_variables(matrix):
    env = matrix.variables(matrix.Setting("Nehalem", "baseline", "generic"), ["AVX2", "FMA3"], Path("cache"))
    assert env["OPENBLAS_CORETYPE"] == "Nehalem"
    assert env["NPY_DISABLE_CPU_FEATURES"] == "AVX2 FMA3"
    assert (env["NUMBA_CPU_NAME"], env["NUMBA_CACHE_DIR"]) == ("generic", "cache")
    env = matrix.variables(matrix.Setting("Nehalem", "all", "host"), ["AVX2"], Path("cache"))
    assert not {"NPY_DISABLE_CPU_FEATURES", "NUMBA_CPU_NAME"} & set(env)


def test_outcomes_are_counted_and_a_run_without_a_record_has_failed(matrix, tmp_path):
    record = tmp_path / "run.xml"
    assert matrix.counts(record) == {"passed": 0, "failed": 1, "passed over": 0}
    record.write_text('<testsuites><testsuite tests="9" failures="2" errors="1" skipped="3"/></testsuites>')
    assert matrix.counts(record) == {"passed": 3, "failed": 3, "passed over": 3}


@pytest.mark.parametrize(
    ("names", "wanted"), [(["torch", "mpmath"], True), (["torch", "nvidia-cublas"], False), (["cuda-toolkit"], False)]
)
def test_torch_is_wanted_without_cuda(matrix, tmp_path, names, wanted):
    report = tmp_path / "torch.json"
    assert not matrix.comes_without_cuda(report)
    report.write_text(json.dumps({"install": [{"metadata": {"name": name}} for name in names]}))
    assert matrix.comes_without_cuda(report) == wanted
