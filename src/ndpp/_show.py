"""How results show themselves: JSON, data frames, CSV, tables of text that fit a screen, and HTML for notebooks, without scripts."""

from __future__ import annotations

import csv
import io
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from ndpp._validation import check_choice
from ndpp.errors import needing

BACKENDS = ("pandas", "polars", "pyarrow")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal would obey or cannot show: control characters, marks that reorder a line, halves of characters."""
SHOWN_ROWS = 20
"""Rows of a table on the screen."""
NAME_WIDTH = 40
"""Characters of a name on the screen."""


class NamedLabel(str):
    """The label of an item, with the name that people read in its place, and its picture: everything else takes it for the label.

    Examples
    --------
    >>> milk = NamedLabel("4710908", "Whole milk")
    >>> milk == "4710908", called(milk), in_full(milk), called("tea")
    (True, 'Whole milk', 'Whole milk (4710908)', 'tea')
    """

    __slots__ = ("name", "picture")
    name: str
    picture: str | None

    def __new__(cls, label: str, name: str, picture: str | None = None) -> NamedLabel:
        """Return the label, with a name, which is the label again where there is a picture alone."""
        made = super().__new__(cls, label)
        made.name, made.picture = name, picture
        return made

    def __getnewargs__(self) -> tuple[str, str, str | None]:  # type: ignore[override]
        return str(self), self.name, self.picture

    def __deepcopy__(self, memo: object) -> NamedLabel:
        return self


def called(item: object) -> str:
    """Return what people call an item: its name, where it has one."""
    return item.name if isinstance(item, NamedLabel) else str(item)


def has_name(item: object) -> TypeGuard[NamedLabel]:
    """Return whether an item has a name that is not its label."""
    return isinstance(item, NamedLabel) and item.name != item


def in_full(value: object) -> str:
    """Return a value as tables for people have it: an item by its name and its label."""
    return f"{value.name} ({value})" if has_name(value) else str(value)


def labels_in(value: object) -> dict[str, NamedLabel]:
    """Return all items with a name or a picture in dictionaries and lists, by label."""
    if isinstance(value, NamedLabel):
        return {str(value): value}
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return {label: one for part in parts if not isinstance(part, float | int) for label, one in labels_in(part).items()}


def with_names(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer with the names of its items, and with their pictures, by label, if any of them has one."""
    found = labels_in(data)
    names = {label: one.name for label, one in found.items() if has_name(one)}
    pictures = {label: one.picture for label, one in found.items() if one.picture}
    return {**data, **({"names": names} if names else {}), **({"pictures": pictures} if pictures else {})}


class Table(NamedTuple):
    """Column names and the lines below them."""

    header: Sequence[str]
    lines: Sequence[Sequence[object]]

    def with_names(self) -> Table:
        """Return the table with the names of items in a column of their own beside that of their labels.

        Examples
        --------
        >>> Table(["item", "score"], [[NamedLabel("4710908", "Whole milk"), 0.5], ["tea", 0.4]]).with_names().header
        ['item', 'name', 'score']
        """
        header: list[str] = []
        columns: list[Sequence[object]] = []
        for title, values in zip(self.header, zip(*self.lines)):
            header.append(title)
            columns.append(values)
            if any(map(has_name, values)):
                header.append("name" if title == "item" else f"{title}_name")
                columns.append([value.name if has_name(value) else None for value in values])
        return Table(header, list(zip(*columns))) if len(header) > len(self.header) else self

    def to_csv(self) -> str:
        """Return the table as CSV, with six significant digits.

        Examples
        --------
        >>> print(Table(["n", "seconds", "slope"], [[10, 0.12345678, None]]).to_csv())
        n,seconds,slope
        10,0.123457,
        <BLANKLINE>
        """
        text = io.StringIO()
        plain, quoted = (
            csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
        )
        for line in (self.header, *self.lines):
            fields = [f"{value:.6g}" if isinstance(value, float | np.floating) else value for value in line]
            # Until Python 3.13 a carriage return alone did not make the writer quote, but the reader takes it for the end of a line.
            (quoted if any("\r" in str(field) for field in fields) else plain).writerow(fields)
        return text.getvalue()


class Shown:
    """Base class of what shows itself as a table, and becomes a data frame."""

    @abstractmethod
    def table(self) -> tuple[list[str], list[tuple[object, ...]]]:
        """Return the names of columns, and rows."""

    def to_frame(self, backend: str | None = None) -> Any:
        """Return the table as a data frame of pandas, polars or pyarrow."""
        header, rows = Table(*self.table()).with_names()
        return to_frame(dict(zip(header, zip(*rows) if rows else [()] * len(header))), backend)

    def __repr__(self) -> str:
        return text_table(*self.table())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, *self.table())


def plain(value: object) -> object:
    """Convert NumPy values and dataclasses to types that ``json`` knows: the argument ``default`` of ``json.dumps``.

    Examples
    --------
    >>> json.dumps({"a": np.arange(2), "b": np.float32(0.5)}, default=plain)
    '{"a": [0, 1], "b": 0.5}'
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def to_json(value: object) -> str:
    """Return strict JSON, with null for numbers that are not finite, and with the names of items, if they have any, as ``names``.

    Examples
    --------
    >>> to_json({"a": np.float64("nan"), "b": (np.int64(3), "ä")})
    '{"a": null, "b": [3, "ä"]}'
    """
    value = with_names(value) if isinstance(value, Mapping) else value
    finite = json.loads(json.dumps(value, default=plain), parse_constant=lambda word: None)
    return json.dumps(finite, ensure_ascii=False, allow_nan=False)


def to_frame(columns: Mapping[str, Sequence[object]], backend: str | None) -> Any:
    """Return a data frame of pandas, polars or pyarrow; without a ``backend``, of the first of them that is installed."""
    import narwhals as nw

    name = check_choice(backend or next(filter(find_spec, BACKENDS), "pandas"), "backend", BACKENDS)
    with needing(name, "data", "to_frame()"):
        package = import_module(name)
    return nw.from_dict({name: list(values) for name, values in columns.items()}, backend=package).to_native()


def printable(text: str, width: int | None = None) -> str:
    """Return a text with the characters escaped that a terminal would obey or cannot show, and cut to a width.

    Examples
    --------
    >>> printable("tea\\x1b[31m, 茶"), printable("a long name", 6)
    ('tea\\\\x1b[31m, 茶', 'a lon…')
    """
    text = CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


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


def _cells(header: Sequence[str], lines: Sequence[Sequence[object]]) -> tuple[list[list[str]], list[bool], int]:
    """Return the cells of the first lines with the header, which columns are numbers, and how many lines are left out."""
    shown = lines[:SHOWN_ROWS]
    numeric = [all(isinstance(line[i], int | float | None) for line in shown) for i in range(len(header))]
    cells = [
        [f"{value:.4g}" if isinstance(value, float) else printable(in_full(value), NAME_WIDTH) for value in line]
        for line in shown
    ]
    return [list(header), *cells], numeric, len(lines) - len(shown)


def text_table(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Return a table of the first lines, numbers to the right.

    Examples
    --------
    >>> print(text_table(["item", "score"], [["tea", 0.51234], ["milk", 12.0]]))
    item   score
    tea   0.5123
    milk      12
    """
    cells, numeric, more = _cells(header, lines)
    return "\n".join([*aligned(cells, numeric), *([f"… and {more:,} more"] if more else [])])


def aligned(
    cells: Sequence[Sequence[str]], to_right: Sequence[bool], *, gap: str = "  ", width: Callable[[str], int] = len
) -> Iterator[str]:
    """Yield lines of cells in columns, some of them aligned to the right; ``width`` is that of a text on the screen."""
    widths = [max(map(width, column)) for column in zip(*cells)]
    for line in cells:
        pads = [" " * (most - width(cell)) for cell, most in zip(line, widths)]
        yield gap.join(pad + cell if right else cell + pad for cell, pad, right in zip(line, pads, to_right)).rstrip()


def html_table(
    title: str, header: Sequence[str], lines: Sequence[Sequence[object]], *, n_lines: int | None = None
) -> str:
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
