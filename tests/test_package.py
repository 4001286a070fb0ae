"""The package as a user meets it: what an import brings along, which names are there, which version it says it is."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

import ndpp
from ndpp._types import cached_property
from ndpp.datasets import shelf_kernel
from patience import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("numba", "torch", "sklearn", "matplotlib", "pandas", "polars", "pyarrow", "dask", "rich", "typer")

ROOMS = (
    "samplers",
    "learning",
    "customers",
    "metrics",
    "diagnostics",
    "datasets",
    "answers",
    "plots",
    "items",
    "rows",
    "select",
    "torch",
)
"""Packages that list their public names in ``__all__``."""
QUESTIONS = {"recommend": "ndpp.recommend"}
"""The question that ``ndpp.answers`` asks by the name of the function that answers it, to return the answer as a record."""
UNLISTED = {
    "ndpp.baskets.orders": ["Orders"],
    "ndpp_experiments.registry": ["EXPERIMENTS", "reproduce"],
    "ndpp.samplers.registry": ["SAMPLERS", "Request", "SamplerSpec", "SetSizes", "Timing", "find", "offered"],
    "ndpp.errors": [
        "BudgetExceededError",
        "DeviceError",
        "InvalidInputError",
        "NDPPError",
        "PrecisionError",
        "PrecisionWarning",
    ],
}
"""Public names of modules that have no ``__all__``."""


def modules_after(statement: str, *, depth: int = 1) -> set[str]:
    """Return the modules a fresh interpreter has loaded after ``statement``, those at the top or some levels down."""
    names = f"{{'.'.join(name.split('.')[:{depth}]) for name in sys.modules}}"
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({names})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_is_light():
    loaded = modules_after("import ndpp")
    assert "numpy" in loaded
    assert not loaded & set(HEAVY)


def test_a_question_imports_only_its_command_and_what_it_needs(tmp_path):
    ndpp.save(shelf_kernel(), tmp_path / "shelf.safetensors")
    words = ["recommend", str(tmp_path / "shelf.safetensors"), "--given", "bread", "-o", str(tmp_path / "list.csv")]
    loaded = modules_after(
        f"from contextlib import suppress\nfrom ndpp.cli.app import run\nwith suppress(SystemExit): run({words})",
        depth=3,
    )
    assert (tmp_path / "list.csv").exists()
    assert "ndpp.cli.recommend" in loaded
    unneeded = {
        "numba",
        "scipy.special",
        "scipy.optimize",
        "ndpp.samplers",
        "ndpp.learning",
        "ndpp.cli.fit",
        "ndpp.cli.draw",
    }
    assert not loaded & ((set(HEAVY) - {"rich", "typer"}) | unneeded)


def test_the_check_of_imports_can_fail():
    assert "matplotlib" in modules_after("import ndpp, matplotlib")


@pytest.mark.parametrize("name", ["ndpp", *(f"ndpp.{room}" for room in ROOMS)])
def test_all_lists_only_what_exists_once(name):
    module = importlib.import_module(name)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []
    assert sorted(set(module.__all__)) == sorted(module.__all__)


def test_every_package_that_lists_its_names_is_looked_at():
    found = {
        path.parent.name for path in Path(ndpp.__file__).parent.glob("*/__init__.py") if "__all__" in path.read_text()
    }
    assert found - {"laws", "baskets", "inference"} == set(ROOMS)  # what these three list is in ndpp itself


@pytest.mark.parametrize("module", UNLISTED)
def test_public_names_are_there(module):
    loaded = importlib.import_module(module)
    assert [name for name in UNLISTED[module] if not hasattr(loaded, name)] == []


def public_names(name: str) -> dict[str, object]:
    module = importlib.import_module(name)
    return {public: getattr(module, public) for public in getattr(module, "__all__", UNLISTED.get(name, []))}


def test_no_two_public_things_share_a_name():
    homes: dict[str, dict[int, str]] = {}
    for module in ("ndpp", *(f"ndpp.{room}" for room in ROOMS), *UNLISTED):
        for name, value in public_names(module).items():
            homes.setdefault(name, {})[id(value)] = f"{module}.{name}"
    shared = [sorted(found.values()) for found in homes.values() if len(found) > 1]
    assert shared == [[f"ndpp.answers.{name}", home] for name, home in QUESTIONS.items()]


def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "ndpp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path.stem)
    return found


def test_no_two_classes_share_a_name():
    assert {name: homes for name, homes in classes().items() if len(homes) > 1} == {}


def test_functions_that_people_call_have_at_most_15_parameters():
    """Estimators may have more: each is a number that scikit-learn's searches can set."""
    for module in ("ndpp", *(f"ndpp.{room}" for room in ROOMS), *UNLISTED):
        for name, value in public_names(module).items():
            for function in [value, *vars(value).values()] if inspect.isclass(value) else [value]:
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and function.__name__ != "__init__":
                    words = [word for word in inspect.signature(function).parameters if word not in ("self", "cls")]
                    assert len(words) <= 15, f"{module}.{name}: {function.__name__} takes {len(words)}"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ndpp.no_such_name


def test_properties_of_two_objects_do_not_wait_for_each_other():
    """Each of two threads computes one property of its object, and then another of a second one."""
    both = threading.Barrier(2)

    class Linked:
        def __init__(self, other: Linked | None = None) -> None:
            self.other = other

        @cached_property
        def left(self) -> int:
            return 1 if self.other is None else both.wait(HANG_SECONDS) * 0 + self.other.right

        @cached_property
        def right(self) -> int:
            return 1 if self.other is None else both.wait(HANG_SECONDS) * 0 + self.other.left

    first, second, found = Linked(Linked()), Linked(Linked()), []
    asked = (lambda: found.append(first.left), lambda: found.append(second.right))
    threads = [threading.Thread(target=ask, daemon=True) for ask in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert found == [1, 1]


def test_nothing_takes_the_property_with_the_lock():
    for path in (ROOT / "src" / "ndpp").rglob("*.py"):
        assert path.stem == "_types" or not re.search(
            r"from functools import .*cached_property", path.read_text(encoding="utf-8")
        ), path


def test_version_is_that_of_the_installed_distribution():
    assert ndpp.__version__ == importlib.metadata.version("ndpp") == importlib.metadata.version("ndpp-experiments")


def test_type_hints_are_shipped():
    assert Path(ndpp.__file__).with_name("py.typed").is_file()


def released(changelog: str) -> tuple[str, str]:
    """Return version and date of the newest section of a changelog that has a date."""
    found = re.search(r"^## (\d+\.\d+\.\d+\S*) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    assert found, "no section such as '## 0.1.0 (2026-11-15)'"
    return found[1], found[2]


def test_the_version_is_stated_once_and_the_changelog_agrees():
    assert released((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[0] == ndpp.__version__
    for file in ("pyproject.toml", "experiments/pyproject.toml"):
        assert "version" in tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]["dynamic"]
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_newest_dated_section_counts():
    assert released("## Unreleased\n\n## 0.2.0 (2027-01-02)\n\n## 0.1.0 (2026-11-15)\n") == ("0.2.0", "2027-01-02")
    with pytest.raises(AssertionError, match="no section"):
        released("## Unreleased\n## 0.2.0\n")


def test_the_address_of_the_repository_is_one():
    """Every file that names it names that of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project["urls"]["Repository"]
    assert set(project["urls"]) == {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    assert all(url == address or url.startswith(f"{address}/") for url in project["urls"].values())
    assert f"repository-code: {address}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    form = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
    if not form.exists():
        pytest.skip("the source distribution has no issue forms")
    assert f"url: {address}/security/" in form.read_text(encoding="utf-8")


def test_the_command_imports_the_experiments_only_when_they_are_run():
    loaded = modules_after("from ndpp.cli.app import parser; parser()", depth=2)
    assert {name for name in loaded if name.startswith("ndpp_experiments.")} == {"ndpp_experiments.commands"}
    asked = "from ndpp_experiments.commands import _complete; _complete('fig')"
    assert "ndpp_experiments.registry" in modules_after(asked, depth=2)
