"""Output of results: tables for people, JSON, CSV and Parquet for programs; progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich import table as tables
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ndpp._atomic import write_text
from ndpp._progress import ProgressBar, progress_bar
from ndpp._show import Table, aligned, called, in_full, printable, to_json
from ndpp.baskets.frames import write_parquet
from ndpp.errors import needing

NUMERIC = int | float | np.number | None
"""What is aligned to the right."""
GAP = "   "
"""Between columns."""


SAFE = ContextVar("safe", default=False)
"""Whether no cell of a CSV file begins like a formula."""
FORMULAS = tuple("=+-@\t\r")
"""What spreadsheets take for the beginning of a formula."""


def plain(value: Any) -> Any:
    """Return a cell as CSV has it: with --safe, text that begins like a formula has an apostrophe before it."""
    return f"'{value}" if SAFE.get() and isinstance(value, str) and value.startswith(FORMULAS) else value


class Report(NamedTuple):
    """A result: ``data`` for JSON, ``table`` for CSV and Parquet, ``shown`` for people if that is another table or several, and notes."""

    data: Mapping[str, Any]
    table: Table
    shown: Table | list[Table] | None = None
    notes: Sequence[str] = ()


def emit(report: Report, output: Path | None, *, as_json: bool) -> None:
    """Print a report or write it to a file, as JSON, CSV or Parquet if its suffix says so."""
    suffix = "" if output is None else output.suffix.lower()
    if as_json or suffix == ".json":
        text = to_json(report.data) + "\n"
    elif suffix == ".parquet" and output is not None:
        write_parquet(output, *report.table.with_names())
        return
    elif suffix == ".csv":
        header, lines = report.table.with_names()
        text = Table(header, [list(map(plain, line)) for line in lines]).to_csv()
    elif output is None and sys.stdout.isatty():
        _print(report, Console(file=sys.stdout))
        return
    else:
        text = "".join(line.rstrip() + "\n" for line in _lines(report))
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)


def _tables(report: Report) -> Iterator[tuple[list[list[str]], list[bool]]]:
    """Yield the header and lines of each table for people that has any, as text, and which columns are aligned to the right."""
    for header, lines in report.shown if isinstance(report.shown, list) else [report.shown or report.table]:
        if lines:
            rows = (header, *([cell(value) for value in line] for line in lines))
            numeric = [all(isinstance(value, NUMERIC) for value in values) for values in zip(*lines)]
            yield [[printable(text) for text in row] for row in rows], numeric


def _lines(report: Report) -> Iterator[str]:
    """Yield what :func:`_print` prints where there is no terminal, without waiting for rich to lay out thousands of lines."""
    for i, (rows, numeric) in enumerate(_tables(report)):
        if i:
            yield ""
        widths = [max(map(cell_len, column)) for column in zip(*rows)]
        header, *lines = aligned(rows, numeric, gap=GAP, width=cell_len)
        yield from (header, "─" * (sum(widths) + len(GAP) * (len(widths) - 1)), *lines)
    for note in report.notes:
        yield printable(note)


def _print(report: Report, console: Console) -> None:
    for i, ((header, *lines), numeric) in enumerate(_tables(report)):
        if i:
            console.print()
        out = tables.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name, right in zip(header, numeric):
            out.add_column(Text(name), justify="right" if right else "left")
        for line in lines:
            out.add_row(*map(Text, line))  # as Text, since an item name is not markup
        console.print(out)
    for note in report.notes:
        console.print(Text(printable(note)), soft_wrap=not console.is_terminal)


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
    return in_full(value)


def template(name: str) -> Any:
    """Return the template of a page."""
    with needing("jinja2", "cli", "A page"):
        import jinja2
    loader = jinja2.PackageLoader("ndpp.cli", "page")
    pages = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    pages.filters["shown"] = lambda item: printable(called(item))
    return pages.get_template(name)


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
