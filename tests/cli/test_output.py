"""Tables are laid out by hand, which takes no time for thousands of lines: as rich would have done it."""

from __future__ import annotations

import csv
import io

import pytest
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ndpp._show import Table, printable
from ndpp.cli import guard
from ndpp.cli.output import NUMERIC, Report, cell, lines_of

REPORTS = {
    "numbers and names": Report({}, Table(("item", "score"), [("tea", 0.5), ("tomato sauce", 12345), ("ale", None)])),
    "wide letters": Report({}, Table(("item", "n"), [("茶", 1), ("café ☕", 22), ("[bold]x", 3)])),
    "one column": Report({}, Table(("report",), [("a.md",), ("b",)])),
    "another table is shown": Report(
        {}, Table(("a",), [(1,)]), Table(("b", "c"), [(True, "x")]), ["note", "", "two\nlines"]
    ),
    "notes alone": Report({}, Table((), []), notes=["", "\nnothing"]),
}


def by_rich(report: Report) -> list[str]:
    """The lines of a report with one table for people, laid out by rich."""
    page = io.StringIO()
    console = Console(file=page, width=1000, legacy_windows=False)
    header, lines = report.shown or report.table
    if lines:
        out = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name, values in zip(header, zip(*lines)):
            is_numeric = all(isinstance(value, NUMERIC) for value in values)
            out.add_column(Text(name), justify="right" if is_numeric else "left")
        for line in lines:
            out.add_row(*(Text(printable(cell(value))) for value in line))
        console.print(out)
    for note in report.notes:
        console.print(Text(printable(note)))
    return [line.rstrip() for line in page.getvalue().splitlines()]


@pytest.mark.parametrize("name", REPORTS)
def test_lines_are_those_of_rich(name):
    assert [line.rstrip() for line in lines_of(REPORTS[name])] == by_rich(REPORTS[name])


def test_a_table_holds_any_name():
    names = ["a\rb", "\r", "a\nb", '"', ",", " a", "tea"]
    text = Table(("item", "score"), [(name, 0.5) for name in names]).to_csv()
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == ["item", *names]
    assert text.endswith("\ntea,0.5\n")


def test_deprecations_of_libraries_are_not_for_users(capsys):
    guard._show("'parseString' deprecated", DeprecationWarning, "pyparsing.py", 1)
    guard._show("--epochs is now called --max-epochs", FutureWarning, "fit.py", 1)
    assert capsys.readouterr().err == "ndpp: warning: --epochs is now called --max-epochs\n"
