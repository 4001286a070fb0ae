"""What tables say about items: groups, such as categories, factors, and all columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ndpp.baskets.baskets import Baskets
from ndpp.baskets.files import name_of, read_table
from ndpp.baskets.frames import PathOrFile
from ndpp.baskets.labels import MISSING, Rules, encode, many, word_of
from ndpp.baskets.lines import Column, Columns
from ndpp.errors import DataWarning, InvalidInputError, UnknownItemError, UnknownLabelError


def read_groups(
    source: PathOrFile, column: str, n_items: int, labels: Sequence[str] | None, *, encoding: str | None = None
) -> list[str | None]:
    """Return what a column of a table says about each item of a catalogue, None for items that are not in the column ``item``.

    Without ``labels`` the table names items by ids. It may hold products that are not in the catalogue.
    """
    columns = Columns(column, "item")
    advice = f"The file needs the columns 'item' and '{column}'"
    table = read_table(source, encoding, needed=columns, also=(), advice=advice)
    empty = next((row for row, word in enumerate(table.columns[column]) if not word_of(word)), None)
    if empty is not None:
        got = {name: table.columns[name][empty] for name in ("item", column)}
        problem = f"{table.place(empty)}: expected values for the columns 'item' and {column!r}; got {got}"
        raise InvalidInputError(problem, advice="Fill in or drop this line.")
    rules = Rules.of(labels, n_items=None if labels else n_items, as_labels=labels is not None, unknown="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = Baskets._trusted(*table.long(columns, rules).arrays(rules))
    twice = np.flatnonzero(np.bincount(found.indices, minlength=n_items) > 1)
    if len(twice):
        name = int(twice[0]) if labels is None else labels[twice[0]]
        raise InvalidInputError(f"{name_of(source)}: item {name!r} has several {column[:-1]}ies; it can only have one")
    groups: list[str | None] = [None] * n_items
    for name, items in zip(found.ids_or_numbers, found):
        for item in items.tolist():
            groups[item] = str(name)
    return groups


def read_columns(
    source: PathOrFile, n_items: int, labels: Sequence[str] | None, *, encoding: str | None = None
) -> dict[str, list[str | None]]:
    """Return what each column of a table says about each item of a catalogue, None where it says nothing.

    The column ``item`` names the items, without ``labels`` by ids. The table may hold products that are not in the catalogue.
    """
    columns = dict(read_table(source, encoding).columns)
    rows, items = _rows_of(columns.pop("item"), name_of(source), n_items, labels)
    out: dict[str, list[str | None]] = {column: [None] * n_items for column in columns}
    for column, values in columns.items():
        for row, item in zip(rows, items):
            word = "" if values[row] is None else str(values[row]).strip()
            out[column][item] = None if word in MISSING else word
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
    advice, name, out = "The table needs the columns 'item' and 'factor'", name_of(source), dict[int, float]()
    columns = read_table(source, encoding, needed=("item", "factor"), advice=advice).columns
    for row, item in zip(*_rows_of(columns["item"], name, n_items, labels, unknown)):
        word = columns["factor"][row]
        try:
            out[item] = float(word)
        except (TypeError, ValueError):
            out[item] = -1.0
        if not 0 <= out[item] < np.inf:
            such = item if labels is None else labels[item]
            raise InvalidInputError(
                f"{name}: a factor is a number ≥ 0, and 0 for what is out of stock; that of {such!r} is {word!r}"
            )
    return out


def _rows_of(
    names: Column, name: str, n_items: int, labels: Sequence[str] | None, unknown: str | None = None
) -> tuple[list[int], list[int]]:
    """Return the rows of a column of items whose item is in the catalogue, each in one row, and their ids.

    Others are left out, with ``unknown="skip"`` with a warning; with "error" they are one.
    """
    rules = Rules(None if labels is None else tuple(labels), as_labels=labels is not None, missing="skip", name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        words = rules.clean(names)
    rows = np.array([row for row, word in enumerate(words) if word is not None], np.int64)
    items, _ = encode(rules.items([words[row] for row in rows.tolist()]), rules.labels, unknown="skip")
    known = (items >= 0) & (items < n_items)
    if unknown is not None and not known.all():
        new = words[rows[np.argmin(known)]]
        if unknown == "error":
            error: Exception = UnknownItemError(int(new), n_items) if labels is None else UnknownLabelError(new, labels)
            raise InvalidInputError(f"{name}: {error}", advice="Leave such items out with {unknown:'skip'}")
        text = f"{name}: skipped {many(int((~known).sum()), 'unknown item')}, such as {new!r}"
        warnings.warn(text, DataWarning, stacklevel=3)
    elif not known.any():
        there = f"such as {labels[0]!r}" if labels else f"0 to {n_items - 1}"
        raise InvalidInputError(
            f"{name}: none of its {len(items):,} items is in the catalogue, whose items are {there}"
        )
    twice = np.flatnonzero(np.bincount(items[known]) > 1)
    if len(twice):
        such = int(twice[0]) if labels is None else labels[twice[0]]
        raise InvalidInputError(f"{name} names item {such!r} twice; it can have one row")
    return rows[known].tolist(), items[known].tolist()
