"""What files say about items: lists of them, and tables of groups, such as categories, of factors, and of anything else."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ndpp._types import IntArray
from ndpp.baskets.files import format_of, name_of, read_lines, read_table, unquoted
from ndpp.baskets.frames import PathOrFile
from ndpp.baskets.labels import Rules, encode, many, word_of
from ndpp.baskets.lines import ColumnTable, MissingColumnError
from ndpp.errors import DataWarning, InvalidInputError, UnknownItemError, UnknownLabelError


def read_items(
    source: PathOrFile,
    n_items: int,
    labels: Sequence[str] | None,
    *,
    encoding: str | None = None,
    unknown: str = "error",
) -> IntArray:
    """Return the items of a file, ascending: one per line of a text file, or the column ``item`` of a table."""
    if format_of(source, None) == "text":
        words = [unquoted(line.strip()) for line in read_lines(source, encoding) if line.strip()]
        table = ColumnTable(name_of(source), ("item",), {"item": words})
    else:
        advice = "A list of items is the column 'item' of a table, or a text file with an item per line"
        table = read_table(source, encoding, also=(), advice=advice)
    return np.unique(np.array(_rows_of(table, n_items, labels, unknown, is_repeated=True)[1], np.int64))


def read_groups(
    source: PathOrFile, column: str, n_items: int, labels: Sequence[str] | None, *, encoding: str | None = None
) -> list[str | None]:
    """Return what a column of a table says about each item of a catalogue, None for items that are not in the column ``item``.

    Without ``labels`` the table names items by ids. It may hold products that are not in the catalogue.
    """
    advice = f"The file needs the columns 'item' and '{column}'"
    table = read_table(source, encoding, needed=("item", column), also=(), advice=advice)
    for row, both in enumerate(zip(table.columns["item"], table.columns[column])):
        if "" in map(word_of, both):
            problem = f"{table.place(row)}: expected values for the columns 'item' and {column!r}; got {both}"
            raise InvalidInputError(problem, advice="Fill in or drop this line.")
    groups: list[str | None] = [None] * n_items
    for row, item in zip(*_rows_of(table, n_items, labels, is_repeated=True)):
        word = word_of(table.columns[column][row])
        if groups[item] not in (None, word):
            name = item if labels is None else labels[item]
            raise InvalidInputError(f"{table.name}: item {name!r} has several {column[:-1]}ies; it can only have one")
        groups[item] = word
    return groups


def read_columns(
    source: PathOrFile, n_items: int, labels: Sequence[str] | None, *, item: str = "item", encoding: str | None = None
) -> dict[str, list[str | None]]:
    """Return what each column of a table says about each item of a catalogue, None where it says nothing.

    The column ``item``, or one of that name, has the items, without ``labels`` by ids. The table may hold products that are not in the
    catalogue.
    """
    try:
        table = read_table(source, encoding, needed=(item,))
    except MissingColumnError:
        table, item = read_table(source, encoding), "item"
    table = table._replace(columns={**table.columns, "item": table.columns[item]})
    rows, items = _rows_of(table, n_items, labels)
    out: dict[str, list[str | None]] = {
        column: [None] * n_items for column in table.columns if column not in ("item", item)
    }
    for column, words in out.items():
        for row, one in zip(rows, items):
            words[one] = word_of(table.columns[column][row]) or None
    return out


def read_factors(
    source: PathOrFile,
    n_items: int,
    labels: Sequence[str] | None,
    *,
    encoding: str | None = None,
    unknown: str = "error",
) -> dict[int, float]:
    """Return the numbers ≥ 0 in the column ``factor`` of a table, by item; ``unknown="skip"`` leaves out unknown items and counts them."""
    advice, out = "The table needs the columns 'item' and 'factor'", dict[int, float]()
    table = read_table(source, encoding, needed=("item", "factor"), advice=advice)
    for row, item in zip(*_rows_of(table, n_items, labels, unknown)):
        word = table.columns["factor"][row]
        try:
            out[item] = float(word)
        except (TypeError, ValueError):
            out[item] = -1.0
        if not 0 <= out[item] < np.inf:
            such = item if labels is None else labels[item]
            raise InvalidInputError(
                f"{table.name}: a factor is a number ≥ 0, and 0 for what is out of stock; that of {such!r} is {word!r}"
            )
    return out


def _rows_of(
    table: ColumnTable, n_items: int, labels: Sequence[str] | None, unknown: str | None = None, *, is_repeated: bool = False
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return the rows of a table whose item is in the catalogue, and their ids; it can have one row, unless it may be repeated.

    Others are left out, with ``unknown="skip"`` with a warning; with "error" they are one.
    """
    name = table.name
    rules = Rules(None if labels is None else tuple(labels), as_labels=labels is not None, missing="skip", name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        words = rules.clean(table.columns["item"])
    rows = np.array([row for row, word in enumerate(words) if word is not None], np.int64)
    items, _ = encode(rules.items([words[row] for row in rows.tolist()]), rules.labels, unknown="skip")
    known = (items >= 0) & (items < n_items)
    if unknown is not None and not known.all():
        new = words[rows[np.argmin(known)]]
        if unknown == "error":
            error: Exception = UnknownItemError(int(new), n_items) if labels is None else UnknownLabelError(new, labels)
            raise InvalidInputError(f"{name}: {error}", advice="Leave such items out with {unknown:'skip'}")
        n_new = len({words[row] for row in rows[~known].tolist()})
        text = f"{name}: skipped {many(n_new, 'unknown item')}, such as {new!r}"
        warnings.warn(text, DataWarning, stacklevel=3)
    elif not known.any():
        there = f"such as {labels[0]!r}" if labels else f"0 to {n_items - 1}"
        raise InvalidInputError(
            f"{name}: none of its {len(items):,} items is in the catalogue, whose items are {there}"
        )
    twice = np.flatnonzero(np.bincount(items[known]) > 1)
    if len(twice) and not is_repeated:
        such = int(twice[0]) if labels is None else labels[twice[0]]
        raise InvalidInputError(f"{name} names item {such!r} twice; it can have one row")
    return rows[known].tolist(), items[known].tolist()
