"""File formats of baskets: text, CSV and Parquet. :mod:`ndpp.baskets.labels` interprets the words in them.

What is written is read back the same. Text has one basket per line; names that a line cannot hold, or that would be read otherwise, are
written as JSON strings. A table with names that would be read otherwise says that names are exact: Parquet in its metadata, CSV by quotes
around the names of all columns but the first, which other programs do not see.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._atomic import replacing
from ndpp._validation import check_choice
from ndpp.baskets.frames import PathOrFile, parquet_columns, read_parquet, write_parquet
from ndpp.baskets.labels import MISSING, SURROGATES, Rules, is_plain
from ndpp.baskets.lines import (
    COMPLETION,
    NAME_COLUMNS,
    BadLineError,
    Columns,
    ColumnTable,
    Long,
    check_columns,
    records,
)
from ndpp.errors import InvalidInputError

FORMATS = ("text", "csv", "tsv", "parquet")
DELIMITERS = {"csv": ",", "tsv": "\t"}
LONGEST_FIELD = 131_072
"""The longest name that the CSV reader of Python accepts."""
NAME_FORMAT = "Name its format with {format}"
Rows: TypeAlias = Iterable[Sequence[Any]]
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_NUMBERS = re.compile(r"[-0-9, ]*")
_NO_LINE_HOLDS = re.compile(r'^["\ufeff]|[\t\n\r\0]')
_NO_FIELD_HOLDS = re.compile(r'[",;\t|\r\n]')


def format_of(path: PathOrFile, format: str | None) -> str:
    """Return the format: the given one, or the one of the suffix (ignoring ``.gz``), or text."""
    if format is None:
        name = Path(path) if isinstance(path, (str, os.PathLike)) else Path()
        return _SUFFIXES.get((name.with_suffix("") if name.suffix == ".gz" else name).suffix.lower(), "text")
    return check_choice(format, "format", FORMATS)


def read(source: PathOrFile, format: str | None, columns: Columns, rules: Rules, encoding: str | None) -> Long:
    """Return the long form of a file."""
    kind = format_of(source, format)
    if kind == "text":
        return read_text(source, columns, rules._replace(name=name_of(source)), encoding)
    table = read_table(source, encoding, format=kind, needed=columns.names, also=[COMPLETION], advice=NAME_COLUMNS)
    return table.long(columns, rules)


class Manner(NamedTuple):
    """How a file is read: its format, what separates words or columns, None in Parquet, and the columns, none in text."""

    format: str
    separator: str | None
    columns: tuple[str, ...] = ()


def manner(source: PathOrFile, format: str | None, columns: Iterable[str], encoding: str | None) -> Manner:
    """Return how a file with these columns is read."""
    kind = format_of(source, format)
    if kind == "parquet":
        return Manner(kind, None, tuple(parquet_columns(source)))
    if kind == "text":
        return Manner(kind, _separator(read_lines(source, encoding), ()) or " ")
    text = _table_text(source, encoding)
    mark, _ = _dialect(text, columns, DELIMITERS[kind])
    _, header = next(records(io.StringIO(text, newline=""), name_of(source), delimiter=mark))
    return Manner(kind, mark, tuple(word.strip() for word in header))


def read_lines(source: PathOrFile, encoding: str | None = None) -> list[str]:
    """Return the lines of a text file, without line ends."""
    lines = _read(source, encoding).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def read_text(source: PathOrFile, columns: Columns, rules: Rules, encoding: str | None) -> Long:
    """Return one basket per line. Tabs separate words if the file has any, else what :func:`_separator` says."""
    if columns != Columns():
        raise InvalidInputError(
            f"{rules.name} is read as text, one basket per line, which has no columns {' and '.join(map(repr, columns.names))}",
            advice="If it is a table, name its format with {format:'csv'}",
        )
    lines = read_lines(source, encoding)
    first = {word.strip() for word in re.split(r"[,;|\t]", lines[0])} if lines else set()
    if first.issuperset(columns.names) and not set(rules.labels or ()).issuperset(columns.names):
        raise InvalidInputError(
            f"{rules.name} is read as text, one basket per line, but begins with the header of a table: {lines[0][:100]!r}",
            advice="Name its format with {format:'csv'}",
        )
    separator = _separator(lines, rules.labels or ())
    if separator == "," and all(map(_NUMBERS.fullmatch, lines)):
        rows = [line.replace(",", " ").split() for line in lines]  # "1, 2 3": numbers contain no spaces
    elif separator is None:
        rows = [line.split() for line in lines]
    else:
        rows = [[word for part in line.split(separator) if (word := part.strip())] for line in lines]
    absent = rules.missing_words
    words = ["" if word in absent else unquoted(word) for word in chain.from_iterable(rows)]
    owners = np.repeat(np.arange(len(rows)), list(map(len, rows)))
    return Long(owners, len(rows), words).present(rules._replace(exact=True))


def _separator(lines: Sequence[str], known: Iterable[str]) -> str | None:
    """Return the tab if there is one or, of commas, semicolons and bars, what most lines have; None for spaces.

    A semicolon or bar that is in a ``known`` name separates nothing.
    """
    in_names = {mark for name in known for mark in ";|" if mark in name}
    counts = {mark: sum(mark in line for line in lines) for mark in ",;|" if mark not in in_names}
    most = "\t" if any("\t" in line for line in lines) else max(counts, key=counts.__getitem__)
    return most if counts.get(most, 1) else None


def _needs_quotes(word: str) -> bool:
    """Return whether a line of text can hold a word only in quotes."""
    return not is_plain(word) or _NO_LINE_HOLDS.search(word) is not None


def _quoted(word: str) -> str:
    """Return a word as a line of text can hold it."""
    return json.dumps(word, ensure_ascii=False) if _needs_quotes(word) else word


def unquoted(word: str) -> str:
    """Return a word of a line of text without the quotes of a JSON string."""
    if len(word) > 1 and word[0] == word[-1] == '"':
        try:
            return str(json.loads(word))
        except ValueError:
            pass
    return word


def read_table(
    source: PathOrFile,
    encoding: str | None = None,
    *,
    format: str | None = None,
    needed: Sequence[str] = ("item",),
    also: Sequence[str] | None = None,
    advice: str = "The table needs a column 'item', a row per item",
) -> ColumnTable:
    """Return the columns of a Parquet, TSV or CSV file with a header; a file whose suffix says nothing is CSV.

    These are the ``needed`` ones and those of others, ``also`` or all, that are there. If it lacks a needed one, the error gives the
    ``advice``.
    """
    kind, name = format_of(source, format), name_of(source)
    if kind == "parquet":
        return read_parquet(source, needed, also, name=name, advice=advice)
    text = _table_text(source, encoding)
    delimiter, exact = _dialect(text, needed, DELIMITERS.get(kind, ","))
    rows = records(io.StringIO(text, newline=""), name, delimiter=delimiter)
    header = [word.strip() for word in next(rows, (1, [""]))[1]]
    check_columns(needed, header, name, advice)
    wanted = [i for i, word in enumerate(header) if also is None or word in {*needed, *also}]
    twice = Counter(header[i] for i in wanted).most_common(1)[0]
    if twice[1] > 1:
        raise InvalidInputError(f"{name} has two columns {twice[0]!r}; give them different names")
    found, lines = [list[str]() for _ in wanted], array("q")
    for line, row in rows:
        if len(row) <= wanted[-1]:
            raise BadLineError(name, line, f"expected values for the columns {header}; got {row}")
        for values, i in zip(found, wanted):
            values.append(row[i])
        lines.append(line)
    return ColumnTable(name, header, {header[i]: values for i, values in zip(wanted, found)}, lines, exact)


def _table_text(source: PathOrFile, encoding: str | None) -> str:
    """Return the text of a CSV or TSV file, with a blank line in place of the first if it tells Excel the delimiter."""
    return re.sub(r"\Asep=.(?=[\r\n])", "", _read(source, encoding))


def _dialect(text: str, columns: Iterable[str], default: str) -> tuple[str, bool]:
    """Return the delimiter and whether names are exact.

    It is ``default`` or the first one with which the header has these columns, else the one with which it has most.
    """
    header = next((line for line in io.StringIO(text, newline="") if line.strip()), "")

    def names(mark: str) -> set[str]:
        return {name.strip() for name in next(csv.reader([header], delimiter=mark), [])}

    def has_both(mark: str) -> bool:
        return set(columns) <= names(mark)

    marks = dict.fromkeys(default + ",;\t|")
    mark = next(filter(has_both, marks), max(marks, key=lambda mark: len(names(mark))))
    return mark, re.fullmatch(rf'[^"{mark}]+({re.escape(mark)}"[^"{mark}]+")+\s*', header) is not None


def check_names(kind: str, names: Iterable[str]) -> None:
    """Raise if files of this format cannot hold one of these names, before anything is written."""
    for name in names:
        if SURROGATES.search(name):
            raise InvalidInputError(
                f"no file can hold the label {name!r}: surrogates not allowed",
                advice="Write ids with {as_labels:False}.",
            )
        if kind in DELIMITERS and ("\0" in name or len(name) >= LONGEST_FIELD):
            raise InvalidInputError(
                f"a {kind} file cannot hold the label {name[:80]!r}: it has a NUL or is longer than {LONGEST_FIELD - 1:,}",
                advice="Write text or Parquet, or ids with {as_labels:False}.",
            )


def write(
    target: PathOrFile,
    rows: Rows,
    ids: Iterable[Any],
    columns: Columns,
    kind: str,
    words: Sequence[str],
    beside: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Write baskets of item ids or names, with these basket ids; ``words`` are all names that can occur.

    Tables also have columns ``beside`` them, with a word for each basket.
    """
    if kind == "text":
        write_text(target, rows, words)
    else:
        more = zip(*beside.values()) if beside else repeat(())
        records = (
            (i, value, *(word or None for word in known))
            for i, row, known in zip(ids, rows, more)
            for value in (row or (None,))
        )
        check_names(kind, {str(word) for known in (beside or {}).values() for word in known})
        write_table(target, (*columns.names, *(beside or ())), records, kind, words)


def write_text(target: PathOrFile, rows: Rows, words: Sequence[str]) -> None:
    """Write one row per line, separated by spaces, or by tabs if any of ``words``, all that can occur, has a separator."""
    check_names("text", words)
    plain = all(len(word.split()) == 1 and not set(word) & set(",;|") and not _needs_quotes(word) for word in words)
    separator, quoted = " " if plain else "\t", cache(_quoted)
    with writer(target) as file:
        for row in rows:
            # A tab after a single word shows that a space in it does not separate words.
            line = separator.join(map(str, row) if plain else map(quoted, row))
            file.write(line + ("\t" if not plain and len(row) == 1 else "") + "\n")


def write_table(target: PathOrFile, header: Sequence[str], table: Rows, kind: str, words: Sequence[str]) -> None:
    """Write records as CSV, TSV or Parquet; None is an empty field. ``words`` are all names that can occur."""
    check_names(kind, words)
    if len(set(header)) < len(header) or not all(name and name == name.strip() for name in header):
        raise InvalidInputError(f"columns must have different names without blanks at their ends; got {list(header)}")
    exact = not all(map(is_plain, words))
    if kind == "parquet":
        write_parquet(target, header, table, exact=exact)
        return
    if exact and any(map(_NO_FIELD_HOLDS.search, header)):
        raise InvalidInputError(f"names with blanks at their ends need columns with simple names; got {list(header)}")
    special = re.compile(rf'["\r\n{DELIMITERS[kind]}]|^\s|\s$')

    @lru_cache(2**16, typed=True)
    def field(value: object) -> str:
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return '"' + text.replace('"', '""') + '"' if special.search(text) else text

    mark = DELIMITERS[kind]
    with writer(target) as file:
        file.write(
            mark.join([header[0], *(f'"{name}"' for name in header[1:])] if exact else map(field, header)) + "\n"
        )
        for record in table:
            file.write(mark.join(map(field, record)) + "\n")


def check_table_ids(basket_ids: Sequence[Any]) -> None:
    """Raise if two baskets have the same id, which a table would take for one basket, or if an id would be read as a missing one."""
    names = Counter(map(str, basket_ids))
    absent = next((name for name in names if name.strip() in MISSING), None)
    if absent is not None:
        raise InvalidInputError(f"{absent!r} cannot be the id of a basket in a table: it stands for a missing value")
    if len(names) < len(basket_ids):
        name, times = names.most_common(1)[0]
        raise InvalidInputError(
            f"a table cannot tell baskets of one id apart; {name!r} occurs {times} times. "
            "Write text, or give the baskets other basket_ids."
        )


def name_of(source: PathOrFile) -> str:
    """Return what messages call a file."""
    return str(source) if isinstance(source, (str, os.PathLike)) else str(getattr(source, "name", "the open file"))


def _read(source: PathOrFile, encoding: str | None) -> str:
    """Return the whole text of a file, plain or gzip."""
    name, data = name_of(source), b""
    try:
        if isinstance(source, (str, os.PathLike)):
            raw = Path(source).read_bytes()
            if raw.startswith(b"PK\x03\x04"):
                raise InvalidInputError(
                    f"{name} must be text; it is a spreadsheet or some other zip archive. Save the sheet as CSV."
                )
            zipped = raw[:2] == b"\x1f\x8b" or (raw and Path(source).suffix == ".gz")
            data = gzip.decompress(raw) if zipped else raw
        else:
            data = source.read()
        text = data.decode(encoding or "utf-8") if isinstance(data, bytes) else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
        raise InvalidInputError(f"{name} is not a complete gzip file: {reason}. Download it again.") from None
    except UnicodeError as reason:
        likely = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
        raise InvalidInputError(
            f"{name} must be {encoding or 'UTF-8'} text: {reason}",
            advice=f"Name its encoding, for example {{encoding:{likely!r}}}, or its format with {{format}}",
        ) from None
    except LookupError:
        raise InvalidInputError(f"must name a text encoding; got {encoding!r}", argument="encoding") from None
    text = text.removeprefix("\ufeff")
    if not text:
        raise InvalidInputError(f"{name} is empty; expected at least one line (a blank one is an empty basket)")
    if "\0" in text:
        raise InvalidInputError(f"{name} must be text; it holds binary data", advice=NAME_FORMAT)
    return str(text)


@contextmanager
def writer(target: PathOrFile) -> Iterator[IO[str]]:
    """Open ``target`` for text, compressed if it ends in .gz; it is replaced only if all of it could be written."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    with replacing(target) as path, open(path, "wb") as raw:
        # Without a name and a time in its header, the file depends on the baskets alone.
        zipped: Any = gzip.GzipFile("", "wb", 6, raw, 0) if Path(target).suffix == ".gz" else nullcontext(raw)
        with zipped as data, io.TextIOWrapper(data, encoding="utf-8", newline="") as text:
            yield text
