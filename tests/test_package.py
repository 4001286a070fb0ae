"""The package as a user meets it: what an import brings along, which names are there, which version it says it is."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ndpp

HEAVY = ("numba", "torch", "sklearn", "matplotlib", "pandas", "polars", "pyarrow", "dask", "rich", "typer")

ROOMS = ("samplers", "learning", "metrics", "diagnostics", "datasets", "plots", "items", "rows", "linalg")
"""Packages that list their public names in ``__all__``."""
UNLISTED = {
    "ndpp.explain": ["popularity", "related", "strongest_pairs"],
    "ndpp.experiments.registry": ["EXPERIMENTS", "reproduce"],
    "ndpp.samplers.registry": ["SAMPLERS", "Request", "SamplerSpec", "Sizes", "Timing", "find", "offered"],
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


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
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
    assert found == set(ROOMS)


@pytest.mark.parametrize("module", UNLISTED)
def test_public_names_are_there(module):
    loaded = importlib.import_module(module)
    assert [name for name in UNLISTED[module] if not hasattr(loaded, name)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ndpp.no_such_name


def test_version_is_that_of_the_installed_distribution():
    assert ndpp.__version__ == importlib.metadata.version("ndpp")


def test_type_hints_are_shipped():
    assert Path(ndpp.__file__).with_name("py.typed").is_file()
