"""Tables of any length, read in blocks: CSV (plain, gzip, zip) through pyarrow, Excel workbooks through openpyxl.

Text that is not UTF-8 is taken for Latin-1, in which some copies of the public files are written. A long table,
(basket, item) a row, is numbered as it comes: 16 bytes a row and a dictionary of the distinct names.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import DataNotFoundError, InvalidInputError, MissingExtraError

MAX_ROWS = 100
"""Baskets of more rows are dropped, as in the literature."""
BLOCK_BYTES, BLOCK_ROWS = 2**24, 50_000
"""How much of a CSV file, and of a workbook, is in memory at a time."""

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
    keep: Callable[[FloatArray], Any] | None = None,
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
        Which rows count, as a function of their numbers; all, without such a column.
    header : sequence of str, optional
        Names of the columns of a file that does not begin with them.
    delimiter : str
        What stands between values.
    """
    pa = _pyarrow()
    there = header or read_header(path)
    known = [name for name in (title, number) if name is not None and name in there]
    baskets: dict[bytes, int] = {}
    items: dict[bytes, int] = {}
    titles: dict[int, str] = {}
    parts: list[tuple[IntArray, IntArray]] = []
    wanted = {name: name != number for name in (basket, item, *known)}
    for rows in _blocks(path, wanted, there, named=header is None, delimiter=delimiter):
        rows = rows.filter(pa.compute.and_(rows[basket].is_valid(), rows[item].is_valid()))
        if keep is not None and number in known:
            rows = rows.filter(pa.array(keep(rows[number].to_numpy(zero_copy_only=False))))
        parts.append((_number(baskets, rows[basket]), _number(items, rows[item])))
        if title in known:
            ids, first = np.unique(parts[-1][1][_numpy(rows[title].is_valid())], return_index=True)
            texts = rows[title].drop_null().take(pa.array(first)).to_pylist()
            titles = dict(zip(ids.tolist(), map(_text, texts))) | titles
    if not items:
        raise InvalidInputError(f"{path} holds no row that counts; expected values in columns {basket!r} and {item!r}")
    of_basket, of_item = map(np.concatenate, zip(*parts))
    return LongTable(of_basket, of_item, list(map(_text, items)), titles)


def read_header(path: PathLike) -> list[str]:
    """Return the names of the columns."""
    with _opened(path) as (name, source):
        if name.endswith(".xlsx"):
            return [str(value) for value in next(_workbook(source), ())]
        with _csv_reader(name, source, {}, None, ",") as reader:
            return list(reader.schema.names)


def read_column(path: PathLike, name: str) -> Iterator[str]:
    """Yield the values of a column of text."""
    for rows in _blocks(path, {name: True}, read_header(path)):
        yield from map(_text, rows[name].drop_null().to_pylist())


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


def _blocks(
    path: PathLike, wanted: Mapping[str, bool], there: Sequence[str], *, named: bool = True, delimiter: str = ","
) -> Iterator[Any]:
    """Yield record batches of the wanted columns, bytes where the value is true, else numbers.

    ``there`` are the names of all columns; the file begins with them if ``named``.
    """
    pa = _pyarrow()
    if missing := [name for name in wanted if name not in there]:
        raise InvalidInputError(
            f"{path} has no column {missing[0]!r}; its columns are {', '.join(map(repr, there))}. "
            "Pass the original file, with its line of names."
        )
    types = {name: pa.binary() if text else pa.float64() for name, text in wanted.items()}
    with _opened(path) as (name, source):
        if not name.endswith(".xlsx"):
            with _csv_reader(name, source, types, None if named else there, delimiter) as reader:
                yield from reader
            return
        rows = _workbook(source)
        next(rows)
        places = [there.index(column) for column in wanted]
        while block := list(islice(rows, BLOCK_ROWS)):
            columns = ([_cell(row[place], text) for row in block] for place, text in zip(places, wanted.values()))
            yield pa.record_batch(dict(zip(wanted, map(pa.array, columns, types.values()))))


@contextmanager
def _opened(path: PathLike) -> Iterator[tuple[str, Any]]:
    """Give the name of a file and what to read it from; of a zip archive, its largest member."""
    if not os.path.isfile(path):
        raise DataNotFoundError(f"no such file: {str(path)!r}. Pass the path of the original data file.")
    if Path(path).suffix.lower() != ".zip":
        yield Path(path).name.lower(), os.fspath(path)
        return
    try:
        archive = zipfile.ZipFile(path)
        largest = max(archive.infolist(), key=lambda member: member.file_size)
    except (zipfile.BadZipFile, ValueError) as reason:
        raise InvalidInputError(f"{path} is not a zip archive of a data file: {reason}. Fetch it again.") from None
    with archive, archive.open(largest) as member:
        name = largest.filename.lower()
        # A workbook is read back and forth, which a compressed stream is slow at.
        yield name, io.BytesIO(member.read()) if name.endswith(".xlsx") else member


@contextmanager
def _csv_reader(
    name: str, source: Any, types: Mapping[str, Any], header: Sequence[str] | None, delimiter: str
) -> Iterator[Any]:
    pa = _pyarrow()
    try:
        with pa.csv.open_csv(
            source,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, column_names=header),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if delimiter == "," else False, newlines_in_values=delimiter == ","
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=types, include_columns=list(types), strings_can_be_null=True, null_values=[""]
            ),
        ) as reader:
            yield reader
    except pa.ArrowException as reason:
        raise InvalidInputError(f"{name} is not a table that can be read: {reason}") from None


def _workbook(source: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of the first sheet of a workbook."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError(
            "openpyxl", "data", "Reading an Excel workbook (a CSV export needs no such package)"
        ) from None
    book = openpyxl.load_workbook(source, read_only=True, data_only=True)
    try:
        yield from book.worksheets[0].iter_rows(values_only=True)
    finally:
        book.close()


def _cell(value: Any, text: bool) -> bytes | float | None:
    if value is None or value == "":
        return None
    if not text:
        return float(value)
    # A column of codes holds numbers where a code is made of digits only.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).encode()


def _number(known: dict[bytes, int], column: Any) -> IntArray:
    """Return the numbers of the values of a column; new values get the next ones."""
    encoded = column.dictionary_encode()
    numbers = [known.setdefault(value, len(known)) for value in encoded.dictionary.to_pylist()]
    return np.asarray(numbers, np.int64)[_numpy(encoded.indices)]


def _numpy(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
    except ImportError:
        raise MissingExtraError("pyarrow", "data", "Reading the original files of a data set") from None
    return pyarrow
