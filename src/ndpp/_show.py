"""How results show themselves: data frames, tables of text that fit a screen, and HTML for notebooks, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ndpp._validation import check_choice
from ndpp.errors import MissingExtraError

BACKENDS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}
MOST_ROWS = 20
"""Rows of a table on the screen."""
WIDEST = 40
"""Characters of a name on the screen."""


def to_frame(columns: Mapping[str, Sequence[Any]], backend: str | None) -> Any:
    """Return a data frame of pandas, polars or pyarrow; without a ``backend``, of the first of them that is installed."""
    if backend is None:
        backend = next((name for name in BACKENDS if find_spec(name)), "pandas")
    maker = BACKENDS[check_choice(backend, "backend", tuple(BACKENDS))]
    try:
        module = import_module(backend)
    except ImportError:
        raise MissingExtraError(backend, "data", "to_frame()") from None
    return getattr(module, maker)({name: list(values) for name, values in columns.items()})


def printable(text: str, width: int = WIDEST) -> str:
    """Return a text with control characters escaped, cut to a width.

    Examples
    --------
    >>> printable("tea\\x1b[31m"), printable("a long name", 6)
    ('tea\\\\x1b[31m', 'a lon…')
    """
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def some(labels: Sequence[str] | None) -> str:
    """Return the first of these labels, for a line of text.

    Examples
    --------
    >>> some(["a", "b", "c", "d"]), some(None)
    ('a, b, c, …', 'none')
    """
    if labels is None:
        return "none"
    return ", ".join([*(printable(label, 12) for label in labels[:3]), *(["…"] if len(labels) > 3 else [])])


def _cells(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> tuple[list[list[str]], list[bool], int]:
    """Return the cells of the first lines with the header, which columns are numbers, and how many lines are left out."""
    shown = lines[:MOST_ROWS]
    numeric = [all(isinstance(line[i], int | float | None) for line in shown) for i in range(len(header))]
    cells = [
        [f"{value:.4g}" if isinstance(value, float) else printable(str(value)) for value in line] for line in shown
    ]
    return [list(header), *cells], numeric, len(lines) - len(shown)


def text_table(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Return a table of the first lines, numbers to the right.

    Examples
    --------
    >>> print(text_table(["item", "score"], [["tea", 0.51234], ["milk", 12.0]]))
    item   score
    tea   0.5123
    milk      12
    """
    cells, numeric, more = _cells(header, lines)
    widths = [max(map(len, column)) for column in zip(*cells)]
    adjust = [str.rjust if is_number else str.ljust for is_number in numeric]
    rows = ["  ".join(put(cell, width) for put, cell, width in zip(adjust, line, widths)).rstrip() for line in cells]
    return "\n".join([*rows, *([f"… and {more:,} more"] if more else [])])


def html_table(title: str, header: Sequence[str], lines: Sequence[Sequence[Any]], *, n_lines: int | None = None) -> str:
    """Return a table of the first of ``n_lines`` lines as HTML, everything in it escaped.

    Examples
    --------
    >>> html_table("<b>", ["n"], [[1]])
    '<b>&lt;b&gt;</b><table><tr><th>n</th></tr><tr><td>1</td></tr></table>'
    """
    cells, _, more = _cells(header, lines)
    more = more if n_lines is None else n_lines - (len(cells) - 1)
    rows = [
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) + "</tr>"
        for tag, line in zip(["th", *["td"] * (len(cells) - 1)], cells)
    ]
    rest = f"<p>… and {more:,} more</p>" if more else ""
    head = f"<b>{escape(printable(title, 200))}</b>" if title else ""
    return f"{head}<table>{''.join(rows)}</table>{rest}"
