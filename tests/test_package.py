"""The package as a user meets it: what an import brings along, which names are there, which version it says it is."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ndpp

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
)
"""Packages that list their public names in ``__all__``."""
QUESTIONS = {"recommend": "ndpp.recommend"}
"""The question that ``ndpp.answers`` asks by the name of the function that answers it, to return the answer as a record."""
UNLISTED = {
    "ndpp.baskets.orders": ["Orders"],
    "ndpp_experiments.registry": ["EXPERIMENTS", "reproduce"],
    "ndpp.samplers.registry": ["SAMPLERS", "Request", "SamplerSpec", "Sizes", "Timing", "find", "offered"],
    "ndpp.features": ["Features", "fourier", "nystroem", "pivoted_cholesky"],
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


RENAMED = {
    "ndpp.metrics": {"compare": "compare_models", "Row": "ModelScores"},
    "ndpp.diagnostics": {"compare": "compare_samples", "convergence": "diagnose_chains"},
    "ndpp.plots": {
        "convergence": "ndpp_experiments.plots.convergence_curves",
        "runtimes": "ndpp_experiments.plots.runtimes",
        "popularity": "popularity_chart",
        "related": "related_chart",
        "size_law": "size_distributions",
        "strongest_pairs": "pair_chart",
    },
}


@pytest.mark.parametrize("module", RENAMED)
def test_old_names_work_and_warn(module: str) -> None:
    loaded = importlib.import_module(module)
    for old, new in RENAMED[module].items():
        home, _, new = new.rpartition(".")
        home = home or module
        with pytest.warns(DeprecationWarning, match=rf"{module}\.{old} is now {home}\.{new}"):
            assert getattr(loaded, old) is getattr(importlib.import_module(home), new)
        assert old not in loaded.__all__
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        _ = loaded.nothing


def test_the_warning_for_an_old_name_points_at_its_user():
    with pytest.warns(DeprecationWarning, match="compare is now") as caught:
        exec(compile("from ndpp.metrics import compare", __file__, "exec"), {})
    assert {warning.filename for warning in caught} == {__file__}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ndpp.no_such_name


def test_version_is_that_of_the_installed_distribution():
    assert ndpp.__version__ == importlib.metadata.version("ndpp")


def test_type_hints_are_shipped():
    assert Path(ndpp.__file__).with_name("py.typed").is_file()


def released(changelog: str) -> tuple[str, str]:
    """Return version and date of the newest section of a changelog that has a date."""
    found = re.search(r"^## (\d+\.\d+\.\d+\S*) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    assert found, "no section such as '## 0.1.0 (2026-11-15)'"
    return found[1], found[2]


def test_the_version_is_stated_once_and_the_changelog_agrees():
    assert released((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[0] == ndpp.__version__
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dynamic"]
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


def test_the_experiments_are_found_at_their_old_name():
    registry = importlib.import_module("ndpp_experiments.registry")
    with pytest.warns(DeprecationWarning, match=r"registry\.reproduce is now ndpp_experiments\.registry\.reproduce"):
        assert importlib.import_module("ndpp.experiments.registry").reproduce is registry.reproduce


@pytest.mark.parametrize(("old", "new"), [("related", "related"), ("strongest_pairs", "pairs"), ("atlas", "map_of")])
def test_explanations_are_found_at_their_old_names(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"ndpp\.explain\.{old} is now ndpp\.answers\.{new}"):
        assert getattr(ndpp.explain, old) is getattr(ndpp.answers, new)


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("explain", "reasons", "why=True"),
        ("explain", "popularity", "describe"),
        ("metrics", "SizeClass", "select"),
        ("metrics", "LargestId", "largest-id"),
    ],
)
def test_names_that_are_gone_say_what_to_use(module: str, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=rf"ndpp\.{module}\.{name} is gone; use .*{instead}"):
        getattr(getattr(ndpp, module), name)


def test_symmetric_kernels_are_drawn_by_exact() -> None:
    with pytest.warns(DeprecationWarning, match=r"samplers\.SymmetricTree is now ndpp\.samplers\.Exact"):
        assert ndpp.samplers.SymmetricTree is ndpp.samplers.Exact


@pytest.mark.parametrize(("old", "name"), [("ndpp.kernel", "LowRankKernel"), ("ndpp.io", "save"), ("ndpp.io", "load")])
def test_old_import_paths_work_and_warn(old: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{old}\.{name} is now ndpp\.laws\.\w+\.{name}"):
        found = getattr(importlib.import_module(old), name)
    assert found is getattr(ndpp, name)
    with pytest.raises(AttributeError, match=f"module '{old}' has no attribute 'nothing'"):
        _ = importlib.import_module(old).nothing
