"""Tables without a terminal are laid out by hand, which takes no time for thousands of lines: as rich would have done it."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

import ndpp
from ndpp._show import Table
from ndpp.cli import guard
from ndpp.cli.files import kind_of
from ndpp.cli.output import Report, _lines, _print
from ndpp.customers.store import FORMAT

REPORTS = {
    "numbers and names": Report({}, Table(("item", "score"), [("tea", 0.5), ("tomato sauce", 12345), ("ale", None)])),
    "wide letters": Report({}, Table(("item", "n"), [("茶", 1), ("café ☕", 22), ("[bold]x", 3)])),
    "one column": Report({}, Table(("report",), [("a.md",), ("b",)])),
    "another table is shown": Report(
        {}, Table(("a",), [(1,)]), Table(("b", "c"), [(True, "x")]), ["note", "", "two\nlines"]
    ),
    "notes alone": Report({}, Table((), []), notes=["", "\nnothing"]),
}


@pytest.mark.parametrize("name", REPORTS)
def test_plain_lines_are_those_of_rich(name):
    page = io.StringIO()
    _print(REPORTS[name], Console(file=page, width=1000, legacy_windows=False))
    expected = [line.rstrip() for line in page.getvalue().splitlines()]
    assert [line.rstrip() for line in _lines(REPORTS[name])] == expected


def test_a_table_holds_any_name():
    names = ["a\rb", "\r", "a\nb", '"', ",", " a", "tea"]
    text = Table(("item", "score"), [(name, 0.5) for name in names]).to_csv()
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == ["item", *names]
    assert text.endswith("\ntea,0.5\n")


def test_deprecations_of_libraries_are_not_for_users(capsys):
    guard._show("'parseString' deprecated", DeprecationWarning, "pyparsing.py", 1)
    guard._show("--epochs is now called --max-epochs", FutureWarning, "fit.py", 1)
    assert capsys.readouterr().err == "ndpp: warning: --epochs is now called --max-epochs\n"


def test_names_that_spreadsheets_take_for_formulas(call, tmp_path):
    names, model, drawn, out = ["=1+1", "@x", "tea"], tmp_path / "m.safetensors", tmp_path / "b.csv", tmp_path / "r.csv"
    ndpp.save(ndpp.LowRankKernel(np.eye(3), labels=names), model)
    for safe in ([], ["--safe"]):
        assert call("sample", model, "-n", 20, "--seed", 0, "-o", drawn, *safe).code == 0
        assert call("recommend", model, "-g", "tea", "-o", out, *safe).code == 0
        shown = {f"'{name}" if safe else name for name in names[:2]}
        for path in (drawn, out):
            cells = {cell for row in csv.reader(path.read_text().splitlines()) for cell in row}
            assert {cell for cell in cells if cell.strip("'")[:1] in ("=", "@")} == shown


@pytest.mark.parametrize(
    ("there", "arguments"),
    [
        ("shelf.safetensors", ["sample", "plain.safetensors", "-n", 2]), ("junk", ["sample", "plain.safetensors"]),
        ("shelf.safetensors", ["recommend", "mixture.safetensors", "-g", "tea"]), ("drawn.json", ["prepare", "mixture.safetensors"]),
        ("orders.parquet", ["sample", "plain.safetensors", "--to", "csv"]), ("orders.parquet", ["prepare", "mixture.safetensors"]),
        ("orders.csv", ["sample", "plain.safetensors", "--to", "parquet"]),
        ("orders.txt", ["items", "shelf.safetensors", "--rename", "none.csv"]),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_not_overwritten(call, models, monkeypatch, there, arguments):
    monkeypatch.chdir(models)
    before = (models / there).read_bytes()
    done = call(*arguments, "-o", there)
    assert done.code == 1
    assert "would overwrite" in done.err
    assert (models / there).read_bytes() == before


@pytest.mark.parametrize("kind", ["customers", "a model"])
def test_a_file_is_known_by_a_header_of_any_length(tmp_path, kind):
    """The fields of the header are in any order, so that the one that tells may be its last."""
    fields = {"report": "x" * 9000, "format": FORMAT if kind == "customers" else "ndpp"}
    header = json.dumps({"__metadata__": fields}).encode()
    (tmp_path / "file").write_bytes(len(header).to_bytes(8, "little") + header)
    assert kind_of(tmp_path / "file") == kind
