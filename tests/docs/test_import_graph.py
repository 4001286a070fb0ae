"""The picture of the imports, and the table of floors, show the imports and the floors as they are."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def import_graph():
    pytest.importorskip("grimp", reason="grimp, which reads the imports, is not installed; import-linter brings it")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments" / "publish"))
        return importlib.import_module("import_graph")


@pytest.fixture(scope="module")
def imports(import_graph):
    return import_graph.read_imports()


def edges_in(text: str) -> set[tuple[str, ...]]:
    """Return the edges that a picture lists."""
    return {
        tuple(line.split(" -> "))
        for line in ElementTree.fromstring(text).find(f"{SVG}metadata").text.split("\n")
        if line
    }


def lines_in(text: str) -> set[tuple[str, ...]]:
    """Return the edges that a picture draws."""
    return {tuple(path.get("id").split(".")) for path in ElementTree.fromstring(text).iter(f"{SVG}path")}


def reachable(edges: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return who imports whom, by way of others or not."""
    more = edges | {(a, d) for a, b in edges for c, d in edges if b == c}
    return edges if more == edges else reachable(more)


def test_the_picture_lists_the_imports_of_now(import_graph, imports):
    listed = edges_in(import_graph.TO.read_text(encoding="utf-8"))
    assert listed == imports.edges, "the imports have changed: run python experiments/publish/import_graph.py"
    assert {("cli", "samplers"), ("samplers", "items"), ("laws", "linalg")} <= listed


def test_lines_lead_to_all_that_is_imported(import_graph, imports):
    lowest = set(imports.floors[-1])
    upper = {(a, b) for a, b in imports.edges if b not in lowest}
    lines = lines_in(import_graph.TO.read_text(encoding="utf-8"))
    assert lines <= upper
    assert reachable(lines) == reachable(upper)


@pytest.mark.parametrize("edge", [("linalg", "_show"), ("answers", "rows")])
def test_another_import_is_noticed(import_graph, imports, edge):
    assert edge not in imports.edges
    changed = imports._replace(edges=imports.edges | {edge})
    text = import_graph.svg(changed)
    assert edges_in(text) == changed.edges
    assert edges_in(text) != edges_in(import_graph.TO.read_text(encoding="utf-8"))


def test_an_import_that_is_gone_is_noticed(import_graph, imports):
    text = import_graph.svg(imports._replace(edges=imports.edges - {("samplers", "items")}))
    assert ("samplers", "items") not in edges_in(text) | lines_in(text)


def test_a_cycle_is_an_error(import_graph, imports):
    with pytest.raises(ValueError, match="cycle"):
        import_graph.svg(imports._replace(edges=imports.edges | {("laws", "samplers")}))


def test_the_page_has_the_floors_of_the_contract(imports):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = {
        int(number): set(re.findall(r"`(\w+)`", cell))
        for number, cell in re.findall(r"^\| (\d+) \| (.*?) \|", page, re.M)
    }
    assert table == {len(imports.floors) - i: set(floor) for i, floor in enumerate(imports.floors)}
