"""Output of results: tables for people, JSON, CSV and Parquet for programs; progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.console import Console

from ndpp._atomic import write_text
from ndpp._progress import ProgressBar, progress_bar
from ndpp._show import Table, aligned, printable, to_json
from ndpp.baskets.frames import write_parquet

NUMERIC = int | float | np.number | None
"""What is aligned to the right."""
GAP = "   "
"""Between columns."""


class Report(NamedTuple):
    """A result: ``data`` for JSON, ``table`` for CSV and Parquet, ``shown`` for people if that is another table or several, and notes."""

    data: Mapping[str, Any]
    table: Table
    shown: Table | list[Table] | None = None
    notes: Sequence[str] = ()


def emit(report: Report, output: Path | None, *, as_json: bool) -> None:
    """Print a report or write it to a file, as JSON, CSV or Parquet if its suffix says so."""
    suffix = "" if output is None else output.suffix.lower()
    if suffix == ".parquet" and output is not None and not as_json:
        write_parquet(output, *report.table)
        return
    if as_json or suffix == ".json":
        text = to_json(report.data) + "\n"
    elif suffix == ".csv":
        text = report.table.to_csv()
    else:
        text = "".join(line.rstrip() + "\n" for line in lines_of(report))
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)


def lines_of(report: Report) -> Iterator[str]:
    """Yield the lines of the tables for people that have any, with a line between two of them, and of the notes."""
    tables = report.shown if isinstance(report.shown, list) else [report.shown or report.table]
    for i, (names, values) in enumerate(table for table in tables if table.lines):
        if i:
            yield ""
        cells = [[printable(cell(value)) for value in line] for line in (names, *values)]
        numeric = [all(isinstance(value, NUMERIC) for value in column) for column in zip(*values)]
        header, *lines = aligned(cells, numeric, gap=GAP, width=cell_len)
        width = sum(max(map(cell_len, column)) + len(GAP) for column in zip(*cells)) - len(GAP)
        yield from (header, "─" * width, *lines)
    yield from map(printable, report.notes)


def cell(value: object) -> str:
    """Return a value as text: numbers with four digits.

    Examples
    --------
    >>> cell(0.000123456), cell(1234567), cell(1234.5678), cell(None)
    ('0.0001235', '1,234,567', '1,235', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1000 <= abs(float(value)) < 1e6 else f"{value:.4g}"
    return str(value)


def progress(total: int, what: str, *, show: bool = True) -> AbstractContextManager[ProgressBar]:
    """Return a progress bar, shown if standard error is a terminal."""
    return progress_bar(total, what, show=show and Console(stderr=True).is_interactive, keep=False)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on standard error if it is a terminal; yields a function that changes its text."""
    console = Console(stderr=True)
    if not console.is_interactive:
        yield lambda text: None
        return
    with console.status(what) as status:
        yield lambda text: status.update(text)
