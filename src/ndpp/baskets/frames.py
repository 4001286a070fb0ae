"""Baskets in data frames and Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ndpp._atomic import replacing
from ndpp.baskets.lines import NAME_COLUMNS, ColumnTable, Long, check_columns
from ndpp.baskets.times import Column
from ndpp.errors import InvalidInputError, needing

if TYPE_CHECKING:
    from narwhals import DataFrame, Series

PathOrFile: TypeAlias = str | os.PathLike[str] | IO[Any]
EXACT = {b"ndpp": b"exact names"}
"""Metadata of a Parquet file with names that would be read otherwise without it."""


def _values(column: Series[Any], name: str) -> list[Any]:
    """Return the values of a column, None where they are missing, and integers that a gap made floats as integers."""
    if column.dtype.is_nested():
        raise InvalidInputError(f"column {name!r} must hold single values; it holds {column.dtype}")
    values: list[Any] = column.to_list()
    if column.dtype.is_float() or column.null_count():
        values = [None if gone or value != value else value for gone, value in zip(column.is_null().to_list(), values)]
    if column.dtype.is_float() and all(value is None or value.is_integer() for value in values):
        values = [None if value is None else int(value) for value in values]
    return values


def from_onehot(frame: object, basket: str | None) -> tuple[Long, list[str]]:
    """Return the long form of a data frame with a column per item and perhaps one of basket ids, and the items' names."""
    table = _narwhals(frame)
    check_columns([] if basket is None else [basket], table.columns, "the data frame")
    ids = None if basket is None else _values(table[basket], basket)
    names = [name for name in table.columns if name != basket]
    columns = [np.asarray(table[name].to_numpy()) for name in names]
    for name, column in zip(names, columns):
        if column.dtype.kind not in "biuf" or not ((column == 0) | (column == 1)).all():
            raise InvalidInputError(
                f"column {name!r} must hold only 0 and 1, or true and false. "
                "A long table goes to `Baskets.from_frame(frame, basket=…, item=…)`."
            )
    holders = [np.flatnonzero(column) for column in columns]
    items = np.repeat(np.arange(len(columns)), list(map(len, holders)))
    return Long(np.concatenate([*holders, np.empty(0, np.int64)]), len(table), items, ids), list(map(str, names))


def frame_table(
    frame: object, needed: Sequence[str], also: Sequence[str] | None = None, *, name: str = "the data frame", advice: str = NAME_COLUMNS
) -> ColumnTable:  # fmt: skip
    """Return the ``needed`` columns of a data frame, which must hold single values, and those of others, ``also`` or all, that do.

    A column is a list, one of times an array of datetime64, by the clock of their zone.
    """
    import narwhals as nw

    table = _narwhals(frame)
    check_columns(needed, table.columns, name, advice)
    others = (column for column in table.columns if also is None or column in also)
    plain = dict.fromkeys([*needed, *(column for column in others if not table[column].dtype.is_nested())])
    columns: dict[str, Column] = {}
    for column in plain:
        own = table[column]
        is_time = own.dtype == nw.Datetime
        columns[column] = np.asarray(own.dt.replace_time_zone(None).to_numpy()) if is_time else _values(own, column)
    return ColumnTable(name, table.columns, columns)


def parquet_columns(source: PathOrFile) -> list[str]:
    """Return the columns of a Parquet file."""
    with needs_pyarrow("Reading Parquet").parquet.ParquetFile(source) as file:
        return list(file.schema_arrow.names)


def read_parquet(
    source: PathOrFile, needed: Sequence[str], also: Sequence[str] | None, *, name: str, advice: str
) -> ColumnTable:
    """Return the ``needed`` columns of a Parquet file, and those of others, ``also`` or all, that are there."""
    pyarrow = needs_pyarrow("Reading Parquet")
    if isinstance(source, (str, os.PathLike)) and not Path(source).exists():
        raise FileNotFoundError(f"no such file: {name}")
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            there = file.schema_arrow.names
            check_columns(needed, there, name, advice)
            table = file.read(columns=[one for one in there if also is None or one in {*needed, *also}])
            table.validate(full=True)  # text that is not UTF-8 would fail only when it is looked at
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInputError(f"{name} is not a readable Parquet file: {reason}") from None
    exact = EXACT.items() <= (table.schema.metadata or {}).items()
    return frame_table(table, needed, also, name=name, advice=advice)._replace(header=there, exact=exact)


def write_parquet(
    target: PathOrFile, header: Sequence[str], records: Iterable[Sequence[Any]], *, exact: bool = False
) -> None:
    """Write a table of numbers, booleans and text, any of which may be None; a column of several kinds is text.

    ``exact`` says to :func:`read_parquet` that names are as they are meant.
    """
    pyarrow = needs_pyarrow("Writing Parquet")
    names = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    arrays = []
    for column in list(zip(*records)) or [()] * len(header):
        values = [value.item() if isinstance(value, np.generic) else value for value in column]
        kinds = {type(value) for value in values if value is not None} or {int}
        kind = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else str
        if kind not in names or kind is str:
            kind, values = str, [None if value is None else str(value) for value in values]
        arrays.append(pyarrow.array(values, names[kind]))
    with replacing(target) if isinstance(target, (str, os.PathLike)) else nullcontext(target) as where:
        table = pyarrow.table(arrays, names=list(header), metadata=EXACT if exact else None)
        pyarrow.parquet.write_table(table, where)


def _narwhals(frame: object) -> DataFrame[Any]:
    import narwhals as nw

    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidInputError(
            f"expected a pandas, polars or pyarrow table in memory; got {type(frame).__name__}. "
            "Collect a lazy one first."
        ) from None


def needs_pyarrow(purpose: str) -> Any:
    """Return pyarrow, with Parquet; raise if it is not installed."""
    with needing("pyarrow", "data", purpose):
        import pyarrow
        import pyarrow.parquet
    return pyarrow
