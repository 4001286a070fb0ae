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

PUBLIC = {
    "ndpp": ["Baskets", "LowRankKernel", "greedy_map", "load", "next_item_scores", "recommend", "samplers", "save"],
    "ndpp.samplers": [
        "Exact",
        "Walk",
        "DirectUp",
        "RejectionUp",
        "NaiveUp",
        "RandomSize",
        "Rejection",
        "Cholesky",
        "Clock",
    ],
    "ndpp.learning": ["NDPP", "ONDPP", "SymmetricDPP"],
    "ndpp.metrics": [
        "auc",
        "independent_items",
        "independent_margins",
        "mean_log_likelihood",
        "mean_percentile_rank",
        "precision_at",
    ],
    "ndpp.diagnostics": [
        "diagnose_walk",
        "effective_sample_size",
        "empirical_law",
        "exact_law",
        "psrf",
        "sup_distance",
        "total_variation",
    ],
    "ndpp.datasets": ["load_complete_journey", "load_uk_retail", "make_baskets", "make_kernel", "shelf_kernel"],
    "ndpp.explain": ["popularity", "related", "strongest_pairs"],
    "ndpp.plots": [
        "convergence",
        "embedding_map",
        "pair_graph",
        "popularity",
        "rejections",
        "related",
        "runtimes",
        "size_law",
        "strongest_pairs",
    ],
    "ndpp.experiments.registry": ["EXPERIMENTS", "reproduce"],
    "ndpp.items": ["ItemIndex", "LeverageTable", "Scan", "Tree"],
    "ndpp.rows": ["FileRows", "RowSource", "as_rows"],
    "ndpp.errors": [
        "BudgetExceededError",
        "DeviceError",
        "InvalidInputError",
        "NDPPError",
        "PrecisionError",
        "PrecisionWarning",
    ],
}


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


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_there(module):
    loaded = importlib.import_module(module)
    missing = [name for name in PUBLIC[module] if not hasattr(loaded, name)]
    assert not missing


def test_all_lists_only_what_exists():
    assert all(hasattr(ndpp, name) for name in ndpp.__all__)
    assert len(set(ndpp.__all__)) == len(ndpp.__all__)


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


def cited(citation: str) -> tuple[str, str]:
    """Return version and date of a citation file."""
    fields = dict(re.findall(r'^(version|date-released): "?([^"\n]+)"?$', citation, re.MULTILINE))
    return fields["version"], fields["date-released"]


def test_version_changelog_and_citation_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = cited((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation == released(changelog)
    assert ndpp.__version__ == citation[0]
    assert "\n## Unreleased\n" in changelog[: changelog.index(citation[0])]


def test_the_newest_dated_section_counts():
    assert released("## Unreleased\n\n## 0.2.0 (2027-01-02)\n\n## 0.1.0 (2026-11-15)\n") == ("0.2.0", "2027-01-02")
    with pytest.raises(AssertionError, match="no section"):
        released("## Unreleased\n## 0.2.0\n")


def test_the_address_of_the_repository_is_one():
    """Every file that names it names that of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project["urls"]["Repository"]
    assert f"repository-code: {address}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    form = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
    if not form.exists():
        pytest.skip("the source distribution has no issue forms")
    assert f"url: {address}/security/" in form.read_text(encoding="utf-8")
