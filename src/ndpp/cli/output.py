"""Results out: tables for people, JSON and CSV for machines; progress on standard error."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ndpp._atomic import replacing
from ndpp._json import to_json
from ndpp._progress import ProgressBar, progress_bar
from ndpp.experiments.record import to_csv

Row = dict[str, Any]
WIDE = 1000
"""Columns of what is no terminal: nothing is wrapped or cut."""


class Report(NamedTuple):
    """A result: everything as JSON, rows for CSV, rows as people should see them (if not those), and sentences."""

    data: Mapping[str, Any]
    rows: Sequence[Row]
    shown: Sequence[Row] | None = None
    notes: Sequence[str] = ()


def emit(report: Report, output: Path | None, *, as_json: bool) -> None:
    """Print a report, or write it to a file, as JSON or CSV if its suffix says so."""
    suffix = "" if output is None else output.suffix.lower()
    if as_json or suffix == ".json":
        text = to_json(report.data) + "\n"
    elif suffix == ".csv":
        text = to_csv(report.rows)
    elif output is None and sys.stdout.isatty():
        _print(report, Console(file=sys.stdout))
        return
    else:
        page = io.StringIO()
        _print(report, Console(file=page, width=WIDE, legacy_windows=False))
        text = "".join(line.rstrip() + "\n" for line in page.getvalue().splitlines())
    if output is None:
        sys.stdout.write(text)
        return
    with replacing(output) as path:
        path.write_text(text, encoding="utf-8", newline="\n")


def _print(report: Report, console: Console) -> None:
    rows = report.rows if report.shown is None else report.shown
    if rows:
        console.print(table(rows))
    for note in report.notes:
        console.print(Text(note), soft_wrap=not console.is_terminal)


def table(rows: Sequence[Row]) -> Table:
    """Return a table with a column per key; columns of numbers are set to the right."""
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float | np.number | None) for row in rows)
        out.add_column(Text(name), justify="right" if numeric else "left")
    for row in rows:
        out.add_row(*(Text(cell(row[name])) for name in rows[0]))  # no name of an item is markup
    return out


def cell(value: Any) -> str:
    """Return a value as a person reads it.

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


def write_json_rows(file: IO[str], head: Mapping[str, Any], rows: Iterable[Sequence[Any]]) -> None:
    """Write one JSON object, the baskets last and one a line as they come; it is whole once they are all there."""
    file.write(to_json(head)[:-1] + ', "baskets": [')
    for i, row in enumerate(rows):
        file.write((",\n" if i else "\n") + to_json(list(row)))
    file.write("\n]}\n")


def progress(total: int, what: str, *, done: int = 0, show: bool = True) -> AbstractContextManager[ProgressBar]:
    """Return a progress bar, which is shown if standard error is a terminal."""
    return progress_bar(total, what, done=done, show=show and Console(stderr=True).is_interactive, keep=False)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error, if that is a terminal, that something is going on; call what is given to say what."""
    console = Console(stderr=True)
    if not console.is_interactive:
        yield lambda text: None
        return
    with console.status(what) as status:
        yield lambda text: status.update(text)
