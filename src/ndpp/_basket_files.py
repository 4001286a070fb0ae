"""Files of baskets as rows of words: plain text, CSV and Parquet. What the words mean is the business of ``baskets``."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from ndpp._files import replacing
from ndpp.errors import InvalidInputError, MissingExtraError

PathOrFile: TypeAlias = str | os.PathLike[str] | IO[Any]

FORMATS = ("text", "csv", "tsv", "parquet")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")  # 007 is a code, not a number
_NUMBERS = re.compile(r"[-0-9, ]*")


class Long(NamedTuple):
    """Long form: entry i says that basket ``baskets[i]`` (numbered from 0) holds ``values[i]``."""

    baskets: list[int]
    n_baskets: int
    values: list[Any]


def format_of(path: PathOrFile, file_format: str | None) -> str:
    """Return the name of the format: as told, or by the suffix (``.gz`` aside), or text."""
    if file_format is None:
        name = Path(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else Path("")
        return _SUFFIXES.get((name.with_suffix("") if name.suffix == ".gz" else name).suffix.lower(), "text")
    if file_format not in FORMATS:
        raise InvalidInputError(f"format must be one of {', '.join(FORMATS)}; got {file_format!r}")
    return file_format


def name_of(source: PathOrFile) -> str:
    """Return what to call a file in a message."""
    return str(source) if isinstance(source, (str, os.PathLike)) else str(getattr(source, "name", "the open file"))


def read_text(source: PathOrFile) -> str:
    """Return the whole text of a file, plain or gzip; line ends become ``\\n`` only where the reader asks."""
    try:
        if isinstance(source, (str, os.PathLike)):
            data: str | bytes = Path(source).read_bytes()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            elif Path(source).suffix == ".gz" and data:
                raise gzip.BadGzipFile("it does not begin like a gzip file")
        else:
            data = source.read()
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
        raise InvalidInputError(
            f"{name_of(source)} is not a whole gzip file ({reason}). Copy or download it again."
        ) from None
    except UnicodeDecodeError as reason:
        raise InvalidInputError(
            f"{name_of(source)} must be UTF-8 text; {reason}. Convert it, or name its format."
        ) from None
    if not text:
        raise InvalidInputError(
            f"{name_of(source)} is empty; expected at least one basket (a blank line is an empty basket)"
        )
    return text


def read_lines(source: PathOrFile) -> list[str]:
    """Return the lines of a text file, without their ends."""
    lines = read_text(source).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def split_lines(lines: Sequence[str]) -> list[list[str]]:
    """Return the words of each line. Words lie between tabs if the file has any, else commas if it has any, else spaces."""
    if all(map(_NUMBERS.fullmatch, lines)):
        return [line.replace(",", " ").split() for line in lines]
    separator = next((mark for mark in "\t," if any(mark in line for line in lines)), None)
    if separator is None:
        return [line.split() for line in lines]
    return [[word for part in line.split(separator) if (word := part.strip())] for line in lines]


def all_integers(words: Iterable[str]) -> bool:
    """Tell whether every word is a whole number as Python writes it."""
    return all(map(_INTEGER.fullmatch, set(words)))


def read_csv(source: PathOrFile, *, basket: str, item: str, delimiter: str) -> Long:
    """Return the long form of a CSV file with a header. A row without an item makes its basket exist and adds nothing."""
    rows = csv.reader(io.StringIO(read_text(source), newline=""), delimiter=delimiter)
    header = next(rows, [])
    columns = check_columns([name.strip() for name in header], basket, item, name_of(source))
    names: list[str] = []
    values: list[str] = []
    for row in rows:
        if not row:
            continue
        if len(row) <= max(columns) or not row[columns[0]]:
            raise InvalidInputError(
                f"{name_of(source)}, line {rows.line_num}: expected a row with columns {header}; got {row}. "
                "Repair or drop this line."
            )
        names.append(row[columns[0]])
        values.append(row[columns[1]])
    return number(names, values, [value == "" for value in values])


def check_columns(there: Sequence[str], basket: str, item: str, what: str) -> tuple[int, int]:
    """Return where the basket and item columns are, or say which columns there are."""
    missing = [name for name in (basket, item) if name not in there]
    if missing:
        raise InvalidInputError(
            f"{what} has no column {missing[0]!r}; its columns are {', '.join(map(repr, there))}. Name them with basket=… and item=…"
        )
    return there.index(basket), there.index(item)


def number(names: Sequence[Any], values: Sequence[Any], missing: Sequence[bool]) -> Long:
    """Return a long form whose baskets are numbered as they first appear; missing values are left out, their baskets are not."""
    numbers: dict[Any, int] = {}
    baskets = [numbers.setdefault(name, len(numbers)) for name in names]
    kept = [i for i, gone in enumerate(missing) if not gone]
    return Long([baskets[i] for i in kept], len(numbers), [values[i] for i in kept])


def read_parquet(source: PathOrFile, *, basket: str, item: str) -> Any:
    """Return the two columns of a Parquet file as a pyarrow table."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "data", "Reading Parquet") from None
    if isinstance(source, (str, os.PathLike)) and not Path(source).exists():
        raise FileNotFoundError(f"no such file: {name_of(source)}")
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            check_columns(file.schema_arrow.names, basket, item, name_of(source))
            return file.read(columns=[basket, item])
    except (pyarrow.ArrowException, OSError) as reason:
        raise InvalidInputError(f"{name_of(source)} is not a readable Parquet file: {reason}") from None


@contextmanager
def text_writer(target: PathOrFile) -> Iterator[IO[str]]:
    """Open ``target`` for text, gzip if its suffix says so; it changes only if everything could be written."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    with replacing(target) as path, open(path, "wb") as raw:
        # No name and no time inside: the same baskets give the same bytes.
        zipped: Any = (
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if Path(target).suffix == ".gz" else nullcontext(raw)
        )
        with zipped as data, io.TextIOWrapper(data, encoding="utf-8", newline="") as text:
            yield text


def write_text(target: PathOrFile, rows: Iterable[Sequence[str]], words: Sequence[str]) -> None:
    """Write one row a line, with spaces between its words, or tabs if any of ``words`` (all that may occur) has a space or comma."""
    for word in words:
        if word != word.strip() or not {"\n", "\r", "\t"}.isdisjoint(word):
            raise InvalidInputError(
                f"a text file cannot hold the label {word!r} (tab, line end, or space at an end); write CSV or Parquet"
            )
    separator = " " if all(len(word.split()) == 1 and "," not in word for word in words) else "\t"
    with text_writer(target) as file:
        for row in rows:
            # A lone word with spaces in it needs the mark that shows what separates.
            file.write(separator.join(row) + ("\t" if separator == "\t" and len(row) == 1 else "") + "\n")


def write_csv(target: PathOrFile, rows: Iterable[Sequence[Any]], *, basket: str, item: str, delimiter: str) -> None:
    """Write the long form; an empty basket is a row without an item."""
    with text_writer(target) as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow((basket, item))
        for i, row in enumerate(rows):
            writer.writerows((i, value) for value in (row if len(row) else ("",)))


def write_parquet(target: PathOrFile, rows: Iterable[Sequence[Any]], kind: type, *, basket: str, item: str) -> None:
    """Write the long form; an empty basket is a row whose item is null."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "data", "Writing Parquet") from None
    pairs = [(i, value) for i, row in enumerate(rows) for value in (row if len(row) else (None,))]
    table = pyarrow.table(
        {
            basket: pyarrow.array([i for i, _ in pairs], pyarrow.int64()),
            item: pyarrow.array([value for _, value in pairs], pyarrow.string() if kind is str else pyarrow.int64()),
        }
    )
    if not isinstance(target, (str, os.PathLike)):
        pyarrow.parquet.write_table(table, target)
        return
    with replacing(target) as path:
        pyarrow.parquet.write_table(table, path)
