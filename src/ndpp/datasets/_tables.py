"""Tables of any length, read row by row: CSV (plain, gzip, zip), and Excel workbooks through openpyxl.

Lines that are not UTF-8 are read as Latin-1, the encoding of some copies of the public files. A long table has a row per
(basket, item). Baskets and items are numbered as they appear, in 16 bytes per row and a dictionary of the names.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy import sparse

from ndpp.baskets import Baskets
from ndpp.baskets.lines import BadLineError, MissingColumnError, records
from ndpp.errors import DataNotFoundError, InvalidInputError, needing

MAX_ROWS = 100
"""Baskets of more rows are dropped, as in the literature."""

PathLike = str | os.PathLike[str]


def read_long(
    path: PathLike,
    *,
    basket: str,
    item: str,
    title: str | None = None,
    number: str | None = None,
    label: Callable[[str, str], str] = lambda code, title: code,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
    whole_catalogue: bool = False,
) -> Baskets:
    """Read a long table with the columns ``basket`` and ``item``, and optionally ``title`` and ``number``.

    Rows without a basket or an item are skipped, and so are rows whose number is not positive. ``label`` makes the label
    of an item from its code and title. ``header`` names the columns of a file without a header. Baskets of more than
    ``MAX_ROWS`` rows are dropped, but with ``whole_catalogue`` their items stay in the catalogue.
    """
    baskets: dict[str, int] = {}
    items: dict[str, int] = {}
    titles: dict[str, str] = {}
    of_basket, of_item = array("q"), array("q")
    rows = read_columns(path, (basket, item), (title, number), header=header, delimiter=delimiter)
    for line, (name, code, text, value) in rows:
        if not (name and code) or (value is not None and not _float(value, path, line) > 0):
            continue
        of_basket.append(baskets.setdefault(name, len(baskets)))
        of_item.append(items.setdefault(code, len(items)))
        if text:
            titles.setdefault(code, text)
    if not items:
        raise InvalidInputError(f"{path} has no usable row; expected values in columns {basket!r} and {item!r}")
    small = np.bincount(of_basket) <= MAX_ROWS
    ones = np.ones(len(of_item), np.int8)  # sums of at most MAX_ROWS
    counts = sparse.csr_array((ones, (of_basket, of_item)), shape=(len(baskets), len(items)))[small]
    held = np.arange(len(items)) if whole_catalogue else np.unique(counts.indices)
    labels = [label(code, titles.get(code, "")) for code in items]
    return Baskets.from_csr(counts[:, held] > 0, labels=distinct(labels[i] for i in held.tolist()))


def read_columns(
    path: PathLike,
    required: Sequence[str],
    optional: Sequence[str | None] = (),
    *,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield line numbers and the values of the columns, None for an optional column that is missing."""
    with _opened(path, delimiter) as rows:
        there = header or [name.removeprefix("\ufeff") for name in next(rows, (1, []))[1]]
        if missing := [name for name in required if name not in there]:
            raise MissingColumnError(str(path), missing[0], there, "Pass the original file, with its header.")
        pick = itemgetter(*(there.index(name) if name in there else -1 for name in (*required, *optional)))
        for line, row in rows:
            if len(row) != len(there):
                raise BadLineError(str(path), line, f"expected {len(there)} values, one per column; got {len(row)}")
            yield line, pick([*row, None])


def distinct(labels: Iterable[str]) -> list[str]:
    """Return labels without line breaks; a duplicate gets its position appended."""
    seen: dict[str, None] = {}
    for i, label in enumerate(" ".join(label.split()) or "(no name)" for label in labels):
        while label in seen:
            label = f"{label} [{i}]"
        seen[label] = None
    return list(seen)


@contextmanager
def _opened(path: PathLike, delimiter: str) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Give the rows of a file with their line numbers; of a zip archive, those of its largest member."""
    if not os.path.isfile(path):
        raise DataNotFoundError(f"no such file: {str(path)!r}. Pass the path of the original data file.")
    try:
        with ExitStack() as stack:
            name = Path(path).name.lower()
            source: IO[bytes] | gzip.GzipFile = stack.enter_context(open(path, "rb"))
            if name.endswith(".zip"):
                archive = stack.enter_context(zipfile.ZipFile(source))
                largest = max(archive.infolist(), key=lambda member: member.file_size, default=None)
                if largest is None:
                    raise zipfile.BadZipFile("it is empty")
                name, source = largest.filename.lower(), stack.enter_context(archive.open(largest))
            elif name.endswith(".gz"):
                source = stack.enter_context(gzip.open(source))
            lines = map(_decoded, source)
            plain = records(lines, str(path), delimiter=delimiter, quoted=delimiter == ",")
            yield _workbook(source) if name.endswith(".xlsx") else plain
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as reason:
        raise InvalidInputError(f"{path} is not a complete archive: {reason}. Download it again.") from None


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _workbook(source: IO[bytes] | gzip.GzipFile) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the first sheet of a workbook."""
    with needing("openpyxl", "data", "Reading an Excel workbook (unlike a CSV export)"):
        import openpyxl
    # In memory, since openpyxl seeks, which is slow in a compressed stream.
    book = openpyxl.load_workbook(io.BytesIO(source.read()), read_only=True, data_only=True)
    try:
        for line, row in enumerate(book.worksheets[0].iter_rows(values_only=True), 1):
            yield line, [_cell(value) for value in row]
    finally:
        book.close()


def _cell(value: object) -> str:
    # In a column of codes, codes made of digits are stored as numbers.
    return "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _float(value: str, path: PathLike, line: int) -> float:
    try:
        return float(value or "nan")
    except ValueError:
        raise BadLineError(str(path), line, f"expected a number; got {value!r}") from None
