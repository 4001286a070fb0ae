"""Tables of any length, read row by row: CSV (plain, gzip, zip), and Excel workbooks through openpyxl.

Text that is not UTF-8 is taken for Latin-1, in which some copies of the public files are written. A long table,
(basket, item) a row, is numbered as it comes: 16 bytes a row and a dictionary of the distinct names.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from ndpp._types import IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.lines import BadLineError, records
from ndpp.errors import DataNotFoundError, InvalidInputError, MissingExtraError

MAX_ROWS = 100
"""Baskets of more rows are dropped, as in the literature."""

PathLike = str | os.PathLike[str]


class LongTable(NamedTuple):
    """Basket ``baskets[i]`` holds item ``items[i]``, both numbered as they first appear.

    ``labels`` are the items' codes, ``titles`` the longer names of those that have one.
    """

    baskets: IntArray
    items: IntArray
    labels: list[str]
    titles: dict[int, str]


def read_long(
    path: PathLike,
    *,
    basket: str,
    item: str,
    title: str | None = None,
    number: str | None = None,
    keep: Callable[[float], bool] | None = None,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
) -> LongTable:
    """Return a long table.

    Parameters
    ----------
    path : path
        The file.
    basket, item : str
        Two columns that must be there; a row in which either is empty does not count.
    title, number : str, optional
        Two columns that may be missing: an item's longer name, and a number for ``keep``.
    keep : callable, optional
        Which rows count, as a function of their number; all, without such a column.
    header : sequence of str, optional
        Names of the columns of a file that does not begin with them.
    delimiter : str
        What stands between values.
    """
    there = list(header or read_header(path))
    titled, numbered = title in there, keep is not None and number in there
    wanted = [basket, item, str(title) if titled else item, str(number) if numbered else item]
    baskets: dict[str, int] = {}
    items: dict[str, int] = {}
    titles: dict[int, str] = {}
    of_basket, of_item = array("q"), array("q")
    for line, (name, code, text, value) in _rows(path, wanted, there, named=header is None, delimiter=delimiter):
        if not (name and code) or (numbered and keep and not keep(_float(value, path, line))):
            continue
        of_basket.append(baskets.setdefault(name, len(baskets)))
        of_item.append(place := items.setdefault(code, len(items)))
        if titled and text and place not in titles:
            titles[place] = _text(text)
    if not items:
        raise InvalidInputError(f"{path} holds no row that counts; expected values in columns {basket!r} and {item!r}")
    return LongTable(np.array(of_basket), np.array(of_item), list(map(_text, items)), titles)


def read_header(path: PathLike) -> list[str]:
    """Return the names of the columns."""
    with _opened(path, ",") as rows:
        return [_text(name) for name in next(rows, (1, []))[1]]


def read_column(path: PathLike, name: str) -> Iterator[str]:
    """Yield the values of a column of text."""
    return (_text(value) for _, value in _rows(path, [name], read_header(path)) if value)


def assemble(table: LongTable, labels: Sequence[str], *, whole_catalogue: bool = False) -> Baskets:
    """Return the baskets of up to ``MAX_ROWS`` rows, repeats merged.

    The catalogue is made of the items left in them or, with ``whole_catalogue``, of all items of the table.
    """
    small = np.bincount(table.baskets) <= MAX_ROWS
    ones = np.ones(len(table.items), np.int8)  # at most MAX_ROWS of them are summed
    counts = sparse.csr_array((ones, (table.baskets, table.items)), shape=(len(small), len(labels)))[small]
    held = np.arange(len(labels)) if whole_catalogue else np.unique(counts.indices)
    return Baskets.from_csr(counts[:, held] > 0, labels=distinct([labels[i] for i in held.tolist()]))


def distinct(labels: Sequence[str]) -> list[str]:
    """Return the labels on one line each; where two are the same, the later one gets its number added."""
    seen: set[str] = set()
    out = []
    for i, label in enumerate(" ".join(label.split()) or "(no name)" for label in labels):
        while label in seen:
            label = f"{label} [{i}]"
        seen.add(label)
        out.append(label)
    return out


def _rows(
    path: PathLike, wanted: Sequence[str], there: Sequence[str], *, named: bool = True, delimiter: str = ","
) -> Iterator[tuple[int, Any]]:
    """Yield the values of the wanted columns, or the one value, "" where there is none, with the number of the line.

    ``there`` are the names of all columns; the file begins with them if ``named``.
    """
    if missing := [name for name in wanted if name not in there]:
        raise InvalidInputError(
            f"{path} has no column {missing[0]!r}; its columns are {', '.join(map(repr, there))}. "
            "Pass the original file, with its line of names."
        )
    pick = itemgetter(*map(there.index, wanted))
    with _opened(path, delimiter) as rows:
        for line, row in islice(rows, int(named), None):
            if len(row) != len(there):
                raise BadLineError(str(path), line, f"expected {len(there)} values, one per column; got {len(row)}")
            yield line, pick(row)


@contextmanager
def _opened(path: PathLike, delimiter: str) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Give the rows of a file, with their lines; of a zip archive, those of its largest member. Text is as in Latin-1."""
    if not os.path.isfile(path):
        raise DataNotFoundError(f"no such file: {str(path)!r}. Pass the path of the original data file.")
    try:
        with ExitStack() as stack:
            name, source = Path(path).name.lower(), cast(Any, stack.enter_context(open(path, "rb")))
            if name.endswith(".zip"):
                archive = stack.enter_context(zipfile.ZipFile(source))
                largest = max(archive.infolist(), key=lambda member: member.file_size, default=None)
                if largest is None:
                    raise zipfile.BadZipFile("it is empty")
                name, source = largest.filename.lower(), stack.enter_context(archive.open(largest))
            elif name.endswith(".gz"):
                source = stack.enter_context(gzip.open(source))
            if name.endswith(".xlsx"):
                yield _workbook(source)
                return
            if source.peek(3)[:3] == codecs.BOM_UTF8:
                source.read(3)
            lines = stack.enter_context(io.TextIOWrapper(source, encoding="latin-1", newline=""))
            yield records(lines, str(path), delimiter=delimiter, quoted=delimiter == ",")
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as reason:
        raise InvalidInputError(f"{path} is not a whole archive of a data file: {reason}. Fetch it again.") from None


def _workbook(source: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the first sheet of a workbook."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError(
            "openpyxl", "data", "Reading an Excel workbook (a CSV export needs no such package)"
        ) from None
    # A workbook is read back and forth, which a compressed stream is slow at.
    book = openpyxl.load_workbook(io.BytesIO(source.read()), read_only=True, data_only=True)
    try:
        for line, row in enumerate(book.worksheets[0].iter_rows(values_only=True), 1):
            yield line, [_cell(value) for value in row]
    finally:
        book.close()


def _cell(value: Any) -> str:
    # A column of codes holds numbers where a code is made of digits only.
    text = "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return text.encode().decode("latin-1")


def _float(value: str, path: PathLike, line: int) -> float:
    try:
        return float(value or "nan")
    except ValueError:
        raise BadLineError(str(path), line, f"expected a number; got {_text(value)!r}") from None


def _text(value: str) -> str:
    """Return text that was read as Latin-1 as what it is: UTF-8, if it can be that."""
    try:
        return value if value.isascii() else value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value
