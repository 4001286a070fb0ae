from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="mutants are run by POSIX means")

import mutation
from mutation import Mutant, drawn_mutants, mutants_of, mutated

SOURCE = Path(__file__).parents[2] / "src"

CODE = '''
"""A docstring with 1 < 2 and -1."""
from typing import TypeVar

import numpy as np

LIMIT = 3


@decorated(cache=True)
def größe(A: Literal[1] | None, λ: int = 0) -> Literal[2]:
    """Return 1 + 1."""
    total = 0.5
    total += λ
    if λ <= 100 and not A:
        raise ValueError("more than 1", 1 + λ)
    np.minimum(A, -λ, out=A)
    return (A.T @ (A - 2)).real, total if True else λ
'''


def changes(code: str) -> set[tuple[str, str]]:
    return {(mutant.old, mutant.new) for mutant in mutants_of("m.py", code)}


def test_every_kind_of_change_is_made_and_nothing_else():
    assert changes(CODE) == {
        ("0", "1"),
        ("0.5", "1.5"),
        ("total += λ", "pass"),
        ("<=", "<"),
        ("and", "or"),
        ("not ", ""),
        ("np.minimum(A, -λ, out=A)", "pass"),
        ("minimum", "maximum"),
        ("-", ""),
        (".T", ""),
        ("-", "+"),
        ("2", "3"),
        ("real", "imag"),
        ("total if True else λ", "λ if True else total"),
        ("(A.T @ (A - 2)).real, total if True else λ", "total if True else λ, (A.T @ (A - 2)).real"),
        ("True", "False"),
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [("a == b", "a != b"), ("a is b", "a is not b"), ("a in b", "a not in b"), ("a // b", "a / b"), ("a**b", "a*b"),
     ("a & b", "a | b"), ("a * (b)", "a / (b)"), ("(a) or b", "(a) and b"), ("a.conj()", "a"), ("max(a)", "min(a)"),
     ("f('left')", 'f("right")'), ("not (a)", "(a)"), ("-(a)", "(a)"), ("(a @ b).T", "(a @ b)")],
)  # fmt: skip
def test_operators(old: str, new: str):
    assert new in {mutated(mutant, old) for mutant in mutants_of("m.py", old)}


def test_only_the_piece_changes_and_the_outcome_is_python_of_another_meaning():
    code = (SOURCE / "ndpp" / "samplers" / "rejection.py").read_text(encoding="utf-8")
    found, before = mutants_of("rejection.py", code), ast.dump(ast.parse(code))
    assert len(found) > 20
    for mutant in found:
        new = mutated(mutant, code)
        assert new is not None
        assert ast.dump(ast.parse(new)) != before, mutant
        assert len(new) - len(code) == len(mutant.new) - len(mutant.old)
        assert sum(a != b for a, b in zip(code.splitlines(), new.splitlines())) == 1


def test_a_line_that_moved_is_found_by_its_text_and_the_nearest_is_taken():
    mutant = Mutant("m.py", 1, 4, "1", "2", "a = 1")
    assert mutated(mutant, "\n\na = 1\nb = 3\na = 1\n") == "\n\na = 2\nb = 3\na = 1\n"
    assert mutated(mutant, "a = 1  # new\n") is None


def test_code_that_moved_to_another_file_is_found_if_it_is_there_only_once(tmp_path: Path):
    mutant, folder = Mutant("ndpp/items/old.py", 1, 4, "1", "2", "a = 1"), tmp_path / "ndpp" / "items"
    (folder / "new").mkdir(parents=True)
    assert mutation.home_of(mutant, tmp_path) is None
    (folder / "new" / "a.py").write_text("a = 1\n")
    assert mutation.home_of(mutant, tmp_path) == folder / "new" / "a.py"
    (folder / "b.py").write_text("a = 1\n")
    assert mutation.home_of(mutant, tmp_path) is None
    (folder / "old.py").write_text("a = 1\n")
    assert mutation.home_of(mutant, tmp_path) == folder / "old.py"


def test_the_draw_is_that_of_the_seed_and_spread_over_the_files():
    few, many = drawn_mutants(SOURCE, 40, 0), drawn_mutants(SOURCE, 72, 0)
    assert few != drawn_mutants(SOURCE, 40, 1)
    assert set(few) < set(many)
    files = {mutant.file for mutant in many}
    assert len(files) > 30
    assert not any(file.startswith(mutation.UNTOUCHED) for file in files)


def test_tests_named_after_the_module_run_first():
    tests, mutant = SOURCE.parent / "tests", Mutant("ndpp/linalg/skew.py", 1, 0, "", "", "")
    files = mutation.files_to_run(tests, mutant, everything=False)
    assert files == ["tests/linalg/test_skew.py", "tests/samplers/test_contract.py"]
    everything = mutation.files_to_run(tests, mutant, everything=True)
    assert everything[0] == files[0]
    assert len(everything) == len(set(everything)) > len(files)
    assert set(everything) == set(mutation.files_to_run(tests, None, everything=True))
    unnamed = mutation.files_to_run(tests, mutant._replace(file="ndpp/samplers/exact/eigenring.py"), everything=False)
    assert (
        unnamed[0] == "tests/samplers/exact/test_eigenchain.py"
    )  # it imports the module, and no file is named after that
    assert "tests/samplers/exact/test_exact.py" in unnamed  # named after its package
    several = mutation.files_to_run(tests, mutant._replace(file="ndpp/laws/mixture.py"), everything=False)
    named = {path for path in several if path.endswith("/test_mixture.py")}
    assert set(several[: len(named)]) == named
    assert {
        "tests/laws/test_mixture.py",
        "tests/samplers/gpu/test_mixture.py",
        "tests/samplers/test_mixture.py",
    } <= named


def test_compiled_code_of_callers_is_forgotten(tmp_path: Path):
    several = "from ndpp.linalg import (\n    other,\n    low,\n)"
    for name, code in {"low": "", "_high": several, "higher": "import ndpp.linalg._high", "other": "import os"}.items():
        (tmp_path / f"{name}.py").write_text(code)
        (tmp_path / "__pycache__").mkdir(exist_ok=True)
        (tmp_path / "__pycache__" / f"{name}.f-3.py311.nbi").touch()
    mutation.forget_compiled(tmp_path, tmp_path / "low.py")
    assert [path.name for path in tmp_path.glob("__pycache__/*")] == ["other.f-3.py311.nbi"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package with one function, and a test that checks half of it."""
    code = "def clipped(x):\n    low = max(x, 0)\n    return min(low, 4)\n\n\ndef forever(n):\n    while n > 0:\n        n -= 1\n"
    (tmp_path / "src/ndpp/linalg").mkdir(parents=True)
    (tmp_path / "src/ndpp/__init__.py").write_text("")
    (tmp_path / "src/ndpp/linalg/__init__.py").write_text("")
    (tmp_path / "src/ndpp/linalg/clip.py").write_text(code)
    (tmp_path / "tests/linalg").mkdir(parents=True)
    test = "from ndpp.linalg.clip import clipped, forever\n\n\ndef test_low():\n    assert clipped(-1) == 0\n    forever(3)\n"
    (tmp_path / "tests/linalg/test_clip.py").write_text(test)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return tmp_path


def outcomes(project: Path, mutants: list[Mutant]) -> list[dict]:
    given, output = project / "mutants.json", project / "results.json"
    given.write_text(json.dumps([mutant._asdict() for mutant in mutants]))
    light = "import sys, mutation; mutation.HEAVY = (); sys.exit(mutation.main())"  # this project needs none of them
    command = [sys.executable, "-c", light, "run", given, "-o", output, "--all", "--seconds", "2"]
    folders = ["--source", project / "src", "--tests", project / "tests"]
    where = Path(mutation.__file__).parent
    done = subprocess.run([*command, *folders], capture_output=True, text=True, cwd=where)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.read_text())


def test_killed_survived_hung_and_gone(project: Path):
    file = "ndpp/linalg/clip.py"
    killed = Mutant(file, 2, 10, "max", "min", "    low = max(x, 0)")
    survivor = Mutant(file, 3, 20, "4", "5", "    return min(low, 4)")
    hung = Mutant(file, 8, 8, "n -= 1", "pass", "        n -= 1")
    gone = Mutant(file, 3, 4, "x", "y", "    x = 1")
    results = outcomes(project, [killed, survivor, hung, gone])
    assert [(result["outcome"], result["by"]) for result in results] == [
        ("killed", "tests/linalg/test_clip.py::test_low"), ("survived", ""), ("killed", "time"), ("gone", ""),
    ]  # fmt: skip
    assert "max(x, 0)" in (project / "src" / file).read_text()  # never in place


def test_compare(project: Path, capsys: pytest.CaptureFixture[str]):
    def compared(before: str, after: list[str]) -> int:
        record = Mutant("m.py", 1, 0, "1", "2", "1")._asdict() | {"by": "", "seconds": 0}
        (project / "a").write_text(json.dumps([record | {"outcome": before}]))
        (project / "b").write_text(json.dumps([record | {"outcome": outcome} for outcome in after]))
        return mutation.compare(argparse.Namespace(before=project / "a", after=project / "b"))

    assert compared("killed", ["killed"]) == compared("survived", ["survived"]) == compared("survived", ["killed"]) == 0
    assert compared("killed", ["survived"]) == compared("killed", ["gone"]) == compared("killed", []) == 1
    assert "1 killed before and not after" in capsys.readouterr().out
