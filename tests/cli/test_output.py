"""Tables without a terminal are laid out by hand, which takes no time for thousands of lines: as rich would have done it."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from ndpp._show import Table
from ndpp.cli import guard
from ndpp.cli.output import Report, _lines, _print

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
