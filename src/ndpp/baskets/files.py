"""File formats of baskets: text, CSV, Parquet and data frames. :mod:`ndpp.baskets.labels` interprets the words in them."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._atomic import replacing
from ndpp._types import IntArray
from ndpp.baskets.lines import BadLineError, records
from ndpp.errors import InvalidInputError, MissingExtraError

PathOrFile: TypeAlias = str | os.PathLike[str] | IO[Any]

FORMATS = ("text", "csv", "tsv", "parquet")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_NUMBERS = re.compile(r"[-0-9, ]*")
NAME_FORMAT = "Name its format with {format}"


class Long(NamedTuple):
    """Long form: basket number ``baskets[i]`` out of ``n_baskets`` holds ``values[i]``."""

    baskets: Sequence[int] | IntArray
    n_baskets: int
    values: Any


class Columns(NamedTuple):
    """The names of the columns of a table in long form."""

    basket: str
    item: str

    def find(self, there: Sequence[str], what: str) -> tuple[int, int]:
        """Return the positions of the two columns; raise with the list of columns if one is missing."""
        for name in self:
            if name not in there:
                raise InvalidInputError(
                    f"{what} has no column {name!r}; its columns are {', '.join(map(repr, there))}",
                    advice="Name the right ones with {basket} and {item}",
                )
        return there.index(self.basket), there.index(self.item)


COLUMNS = Columns("basket", "item")
"""The default names."""


def format_of(path: PathOrFile, format: str | None) -> str:
    """Return the format: the given one, or the one of the suffix (ignoring ``.gz``), or text."""
    if format is None:
        name = Path(path) if isinstance(path, (str, os.PathLike)) else Path()
        return _SUFFIXES.get((name.with_suffix("") if name.suffix == ".gz" else name).suffix.lower(), "text")
    if format not in FORMATS:
        raise InvalidInputError(f"must be one of {', '.join(FORMATS)}; got {format!r}", argument="format")
    return format


def read_lines(source: PathOrFile) -> list[str]:
    """Return the lines of a text file, without line ends."""
    lines = _read(source).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def read_text(source: PathOrFile, columns: Columns = COLUMNS) -> Long:
    """Return one basket per line. Tabs separate words if the file has any, else commas if it has any, else spaces."""
    if columns != COLUMNS:
        raise InvalidInputError(
            f"{_name(source)} is read as text, one basket per line, which has no columns {' and '.join(map(repr, columns))}",
            advice=NAME_FORMAT,
        )
    lines = read_lines(source)
    separator = next((mark for mark in "\t," if any(mark in line for line in lines)), None)
    if separator == "," and all(map(_NUMBERS.fullmatch, lines)):
        rows = [line.replace(",", " ").split() for line in lines]  # "1, 2 3": numbers contain no spaces
    elif separator is None:
        rows = [line.split() for line in lines]
    else:
        rows = [[word for part in line.split(separator) if (word := part.strip())] for line in lines]
    return Long([i for i, row in enumerate(rows) for _ in row], len(rows), list(chain.from_iterable(rows)))


def read_csv(source: PathOrFile, columns: Columns, delimiter: str) -> Long:
    """Return the long form of a CSV file with a header; an empty field is a missing item."""
    text = _read(source)
    rows = records(io.StringIO(text, newline=""), _name(source), delimiter=_delimiter(text, columns, delimiter))
    header = [name.strip() for name in next(rows, (1, [""]))[1]]
    basket, item = columns.find(header, _name(source))
    names: list[str] = []
    values: list[str] = []
    for line, row in rows:
        if len(row) <= max(basket, item) or not row[basket]:
            raise BadLineError(_name(source), line, f"expected values for the columns {header}; got {row}")
        names.append(row[basket])
        values.append(row[item])
    return _number(names, values, [not value for value in values])


def _delimiter(text: str, columns: Columns, default: str) -> str:
    """Return the delimiter: ``default``, or the first one with which the header has both columns."""
    header = next((line for line in io.StringIO(text, newline="") if line.strip()), "")
    for mark in default + ",;\t|":
        if set(columns) <= {name.strip() for name in next(csv.reader([header], delimiter=mark), [])}:
            return mark
    return default


def read_parquet(source: PathOrFile, columns: Columns) -> Any:
    """Return the two columns of a Parquet file as a pyarrow table."""
    pyarrow = _pyarrow("Reading Parquet")
    if isinstance(source, (str, os.PathLike)) and not Path(source).exists():
        raise FileNotFoundError(f"no such file: {_name(source)}")
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            columns.find(file.schema_arrow.names, _name(source))
            return file.read(columns=list(columns))
    except (pyarrow.ArrowException, OSError) as reason:
        raise InvalidInputError(f"{_name(source)} is not a readable Parquet file: {reason}") from None


def from_frame(frame: Any, columns: Columns) -> Long:
    """Return the long form of a data frame in long form."""
    table = _narwhals(frame)
    columns.find(table.columns, "the data frame")
    baskets, items = table[columns.basket], table[columns.item]
    if baskets.is_null().any():
        raise InvalidInputError(
            f"column {columns.basket!r} must name a basket in every row; drop the rows where it is missing"
        )
    missing, values = items.is_null().to_list(), items.to_list()
    if items.dtype.is_float() and all(gone or value.is_integer() for gone, value in zip(missing, values)):
        values = [0 if gone else int(value) for gone, value in zip(missing, values)]  # pandas' integers with gaps
    return _number(baskets.to_list(), values, missing)


def from_onehot(frame: Any) -> tuple[Long, list[str]]:
    """Return the long form of a data frame with a column per item, and the columns' names."""
    table = _narwhals(frame)
    columns = [np.asarray(table[name].to_numpy()) for name in table.columns]
    for name, column in zip(table.columns, columns):
        if column.dtype.kind not in "biuf" or not ((column == 0) | (column == 1)).all():
            raise InvalidInputError(
                f"column {name!r} must hold only 0 and 1, or true and false. "
                "A long table goes to `Baskets.from_frame(frame, basket=…, item=…)`."
            )
    holders = [np.flatnonzero(column) for column in columns]
    ids = np.repeat(np.arange(len(columns)), list(map(len, holders)))
    return Long(np.concatenate([*holders, np.empty(0, np.int64)]), len(table), ids), list(map(str, table.columns))


def write(
    target: PathOrFile,
    rows: Iterable[Sequence[Any]],
    labels: Sequence[str] | None,
    *,
    format: str | None = None,
    columns: Columns = COLUMNS,
) -> None:
    """Write rows of ids or, if there are ``labels``, of labels, in the given format or that of the suffix."""
    kind = format_of(target, format)
    if kind == "text":
        write_text(target, (list(map(str, row)) for row in rows), labels or ())
    elif kind == "parquet":
        write_parquet(target, rows, columns, int if labels is None else str)
    else:
        write_csv(target, rows, columns, "\t" if kind == "tsv" else ",")


def write_text(target: PathOrFile, rows: Iterable[Sequence[str]], words: Sequence[str]) -> None:
    """Write one row per line, separated by spaces, or by tabs if any of ``words``, all that can occur, has a space or comma."""
    for word in words:
        if word != word.strip() or not {"\n", "\r", "\t"}.isdisjoint(word):
            raise InvalidInputError(
                f"a text file cannot hold the label {word!r} (tab, line end, or space at an end)",
                advice="Write CSV or Parquet, or ids with {as_labels:False}.",
            )
    separator = " " if all(len(word.split()) == 1 and "," not in word for word in words) else "\t"
    with _writer(target) as file:
        for row in rows:
            # A tab after a single word shows that a space in it does not separate words.
            file.write(separator.join(row) + ("\t" if separator == "\t" and len(row) == 1 else "") + "\n")


def write_csv(target: PathOrFile, rows: Iterable[Sequence[Any]], columns: Columns, delimiter: str) -> None:
    """Write the long form; an empty basket is a row without an item."""
    with _writer(target) as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(columns)
        for i, row in enumerate(rows):
            writer.writerows((i, value) for value in (row or ("",)))


def write_parquet(target: PathOrFile, rows: Iterable[Sequence[Any]], columns: Columns, kind: type) -> None:
    """Write the long form; an empty basket is a row whose item is null."""
    pyarrow = _pyarrow("Writing Parquet")
    pairs = [(i, value) for i, row in enumerate(rows) for value in (row or (None,))]
    baskets = pyarrow.array([i for i, _ in pairs], pyarrow.int64())
    items = pyarrow.array([value for _, value in pairs], pyarrow.string() if kind is str else pyarrow.int64())
    table = pyarrow.table({columns.basket: baskets, columns.item: items})
    with replacing(target) if isinstance(target, (str, os.PathLike)) else nullcontext(target) as where:
        pyarrow.parquet.write_table(table, where)


def _number(names: Sequence[Any], values: Sequence[Any], missing: Sequence[bool]) -> Long:
    """Return the long form, with baskets numbered as they first appear. Missing values are dropped, their baskets are not."""
    numbers: dict[Any, int] = {}
    baskets = [numbers.setdefault(name, len(numbers)) for name in names]
    kept = [i for i, gone in enumerate(missing) if not gone]
    return Long([baskets[i] for i in kept], len(numbers), [values[i] for i in kept])


def _narwhals(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidInputError(
            f"expected a pandas, polars or pyarrow table in memory; got {type(frame).__name__}. "
            "Collect a lazy one first."
        ) from None


def _name(source: PathOrFile) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else str(getattr(source, "name", "the open file"))


def _read(source: PathOrFile) -> str:
    """Return the whole text of a file, plain or gzip."""
    try:
        if isinstance(source, (str, os.PathLike)):
            raw = Path(source).read_bytes()
            if raw.startswith(b"PK\x03\x04"):
                raise InvalidInputError(
                    f"{_name(source)} must be text; it is a spreadsheet or some other zip archive. Save the sheet as CSV."
                )
            zipped = raw[:2] == b"\x1f\x8b" or (raw and Path(source).suffix == ".gz")
            data = gzip.decompress(raw) if zipped else raw
        else:
            data = source.read()
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
        raise InvalidInputError(f"{_name(source)} is not a complete gzip file: {reason}. Download it again.") from None
    except UnicodeDecodeError as reason:
        raise InvalidInputError(
            f"{_name(source)} must be UTF-8 text: {reason}. Convert it, or name its format."
        ) from None
    if not text:
        raise InvalidInputError(
            f"{_name(source)} is empty; expected at least one line (a blank one is an empty basket)"
        )
    if "\0" in text:
        raise InvalidInputError(f"{_name(source)} must be text; it holds binary data", advice=NAME_FORMAT)
    return text


@contextmanager
def _writer(target: PathOrFile) -> Iterator[IO[str]]:
    """Open ``target`` for text, compressed if it ends in .gz; it is replaced only if all of it could be written."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    with replacing(target) as path, open(path, "wb") as raw:
        # Without a name and a time in its header, the file depends on the baskets alone.
        zipped: Any = gzip.GzipFile("", "wb", 6, raw, 0) if Path(target).suffix == ".gz" else nullcontext(raw)
        with zipped as data, io.TextIOWrapper(data, encoding="utf-8", newline="") as text:
            yield text


def _pyarrow(purpose: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "data", purpose) from None
    return pyarrow
