"""Tables, their long form, with a row per item of each basket, what order lines say about baskets, and a CSV reader for error messages."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import numpy as np

from ndpp._types import IntArray, TimeArray, WordArray
from ndpp.baskets.labels import MISSING, Rules, check_basket_ids, check_ids, check_n_items, encode, many, word_of
from ndpp.baskets.times import DAY, EXAMPLE, Column, moments
from ndpp.errors import DataWarning, InvalidInputError

SKIP = "Fill in the missing values, or leave such rows out with {missing:'skip'}"


def naming(*arguments: str) -> str:
    """Return the advice to name other columns by these arguments."""
    *others, last = [f"{{{one}}}" for one in arguments]
    return f"Name the right ones with {', '.join(others)} and {last}"


NAME_COLUMNS = naming("basket", "item")
COMPLETION = "completion"
"""The column that tells several completions of one basket apart."""
Fields: TypeAlias = tuple[IntArray, IntArray, int, tuple[str, ...] | None, tuple[int | str, ...] | None]
"""Those of :class:`ndpp.Baskets`: starts, items, how many items there are, their labels, and ids of baskets."""


class BadLineError(InvalidInputError):
    """Line ``line`` of the file ``name`` cannot be read."""

    def __init__(self, name: str, line: int, reason: str, *, advice: str = "Repair or drop this line.") -> None:
        self.name, self.line = name, line
        super().__init__(f"{name}, line {line}: {reason}", advice=advice)


class MissingColumnError(InvalidInputError):
    """A table has no column ``column``; its columns are ``there``."""

    def __init__(self, what: str, column: str, there: Sequence[str], advice: str = NAME_COLUMNS) -> None:
        self.column, self.there = column, tuple(there)
        super().__init__(
            f"{what} has no column {column!r}; its columns are {', '.join(map(repr, there))}", advice=advice
        )


def check_columns(names: Iterable[str], there: Sequence[str], what: str, advice: str = NAME_COLUMNS) -> None:
    """Raise with the list of columns if a table lacks one of these."""
    for name in names:
        if name not in there:
            raise MissingColumnError(what, name, there, advice)


class Columns(NamedTuple):
    """The names of the columns of a table in long form; several columns may name a basket together."""

    basket: tuple[str, ...] = ("basket",)
    item: str = "item"

    @classmethod
    def of(cls, basket: str | Sequence[str], item: str) -> Columns:
        """Return the columns, checked."""
        names = (basket,) if isinstance(basket, str) else tuple(basket)
        if not names or len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
            raise InvalidInputError(f"must be a column, or a list of different ones; got {basket!r}", argument="basket")
        return cls(names, item)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return *self.basket, self.item


class ColumnTable(NamedTuple):
    """Columns of the table ``name``, whose columns are ``header``, and the line of each row in its file, None if there are no lines.

    ``exact`` says that names are as they are meant (:class:`~ndpp.baskets.labels.Rules`).
    """

    name: str
    header: Sequence[str]
    columns: Mapping[str, Column]
    lines: Sequence[int] | None = None
    exact: bool = False

    def place(self, row: int) -> str:
        """Return what messages call a row."""
        return f"{self.name}, row {row + 1}" if self.lines is None else f"{self.name}, line {self.lines[row]}"

    def keys(self, name: str) -> Sequence[Hashable]:
        """Return the values of a column as keys of baskets."""
        values = self.columns[name]
        return values.astype("datetime64[s]").tolist() if isinstance(values, np.ndarray) else values

    def without(self, gone: Sequence[bool]) -> ColumnTable:
        """Return the table without the rows that are ``gone``."""
        kept = [i for i, is_gone in enumerate(gone) if not is_gone]
        found = {
            name: values[kept] if isinstance(values, np.ndarray) else [values[i] for i in kept]
            for name, values in self.columns.items()
        }
        return self._replace(columns=found, lines=None if self.lines is None else [self.lines[i] for i in kept])

    def order_lines(self, columns: Columns, missing: str) -> OrderLines:
        """Return the rows that name a basket; others are an error, unless they are to be skipped.

        Rows of a file of several completions per basket are baskets of their own.
        """
        absent = {"", None} if missing == "keep" else {None, *MISSING}
        lacking = {
            name: [(key.strip() if isinstance(key, str) else key) in absent for key in self.keys(name)]
            for name in columns.basket
        }
        gone, table = [any(row) for row in zip(*lacking.values())], self
        if any(gone):
            if missing != "skip":
                row = gone.index(True)
                column = next(name for name, missed in lacking.items() if missed[row])
                problem = f"{self.place(row)} names no basket; column {column!r} must name a basket in every row"
                raise InvalidInputError(problem, advice=SKIP)
            table = self.without(gone)
        keys = [table.keys(name) for name in columns.basket]
        if list(self.header) == [*columns.basket, COMPLETION, columns.item, "added"]:
            keys.append(table.keys(COMPLETION))
        rows = keys[0] if len(keys) == 1 else zip(*keys)
        return OrderLines(table, Long.grouped(rows, len(columns.basket), table.columns[columns.item]), sum(gone))

    def long(self, columns: Columns, rules: Rules) -> Long:
        """Return the long form of the rows that have an item."""
        lines = self.order_lines(columns, rules.missing)
        return lines.long.present(rules._replace(exact=self.exact, name=self.name), skipped=lines.skipped)


def _word(key: Hashable) -> str:
    """Return a part of a basket's id; a time at midnight is a date."""
    text = str(key).strip()
    return text.removesuffix(" 00:00:00") if isinstance(key, datetime) else text


class Long(NamedTuple):
    """Long form: basket number ``baskets[i]`` out of ``n_baskets`` holds ``values[i]``. ``ids`` names the baskets."""

    baskets: IntArray
    n_baskets: int
    values: Column
    ids: Sequence[object] | None = None

    @classmethod
    def grouped(cls, keys: Iterable[Hashable], width: int, values: Column) -> Long:
        """Return the long form of rows with these keys, with baskets numbered as they first appear.

        The id of a basket is its key, or the first part of one; of several parts, the ``width`` first.
        """
        numbers: dict[Hashable, int] = {}
        baskets = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        parts = (key if isinstance(key, tuple) else (key,) for key in numbers)
        ids = [key[0] if width == 1 else ", ".join(map(_word, key[:width])) for key in parts]
        return cls(baskets, len(numbers), values, ids)

    def present(self, rules: Rules, *, skipped: int = 0) -> Long:
        """Return the rows that have an item, as ids or as names without blanks at their ends.

        A row without an item stands for an empty basket if it is the only row of its basket. Elsewhere it is an error, unless
        such rows are skipped; ``skipped`` rows have been already.
        """
        values, rows = rules.clean(self.values), self.baskets
        gone = np.array([value is None for value in values], bool)
        lost = gone if self.ids is None else gone & (np.bincount(rows)[rows] > 1)
        if lost.any() and rules.missing != "skip":
            number = int(rows[np.argmax(lost)])
            name = number if self.ids is None else self.ids[number]
            raise InvalidInputError(
                f"{rules.name}: an item of basket {name!r} is missing, one of {lost.sum():,}", advice=SKIP
            )
        if skipped := skipped + int(lost.sum()):
            text = f"{rules.name}: skipped {many(skipped, 'row')} with a missing value"
            warnings.warn(text, DataWarning, stacklevel=4)
        there = [value for value in values if value is not None] if gone.any() else values
        return self._replace(baskets=rows[~gone], values=rules.items(there))

    def arrays(self, rules: Rules) -> Fields:
        """Return the fields of :class:`ndpp.Baskets`; rows may be in any order and repeat an item."""
        ids, names = encode(self.values, rules.labels, unknown=rules.unknown)
        n_items, rows = rules.n_items, self.baskets
        if n_items is None and names is None:
            n_items = int(ids.max()) + 1 if ids.size else 0
        n_items = check_n_items(n_items, names)
        known = (ids >= 0) & (ids < n_items)
        if rules.unknown == "skip" and not known.all():
            new, within = {self.values[i] for i in np.flatnonzero(~known).tolist()}, len(np.unique(rows[~known]))
            warnings.warn(
                f"{rules.name}: skipped {many(len(new), 'unknown item')}, such as {min(new)!r}: "
                f"{np.sum(~known):,} of {len(ids):,} entries, in {many(within, 'basket')}",
                DataWarning,
                stacklevel=3,
            )
            rows, ids = rows[known], ids[known]
        check_ids(ids, n_items)
        order = np.lexsort((ids, rows))
        rows, ids = rows[order], ids[order]
        first = np.ones(len(ids), bool)
        first[1:] = (np.diff(rows) != 0) | (np.diff(ids) != 0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=self.n_baskets))])
        return indptr, ids[first], n_items, names, check_basket_ids(self.ids, self.n_baskets)


class OrderLines(NamedTuple):
    """The rows of a table that name a basket, and their long form."""

    table: ColumnTable
    long: Long
    skipped: int
    """How many rows name no basket."""

    def one_each(self, column: str) -> WordArray:
        """Return the word of a column for each basket; all of its rows must have the same one."""
        words = {value: word_of(value) for value in set(self.table.columns[column])}
        found = np.array([words[value] for value in self.table.columns[column]], str)
        first = np.zeros(self.long.n_baskets, np.int64)
        first[self.long.baskets[::-1]] = np.arange(len(self.long.baskets))[::-1]
        differs = np.flatnonzero(found != found[first][self.long.baskets])
        if len(differs):
            row = int(differs[0])
            raise self._contradiction(
                row, f"two values of {column!r}, {str(found[first][self.long.baskets[row]])!r} and {str(found[row])!r}"
            )
        return found[first]

    def times(self, column: str, time_format: str | None) -> TimeArray:
        """Return the earliest time of each basket, in seconds; its others must be within a day."""
        values = self.table.columns[column]
        found = moments(values, time_format, f"{self.table.name}: column {column!r}")
        if np.isnat(found).any():
            row = int(np.argmax(np.isnat(found)))
            raise InvalidInputError(
                f"{self.table.place(row)}: {values[row]!r} in column {column!r} is not a time, or not written as the others; "
                f"expected a date such as {EXAMPLE}",
                advice="Say how times are written with {time_format:'%d/%m/%Y'} or the like",
            )
        first = np.empty(self.long.n_baskets, found.dtype)
        order = np.argsort(found, kind="stable")[::-1]
        first[self.long.baskets[order]] = found[order]
        apart = np.flatnonzero(found - first[self.long.baskets] > DAY)
        if len(apart):
            row = int(apart[0])
            times = f"two times, {first[self.long.baskets[row]]} and {found[row]}, more than a day apart"
            raise self._contradiction(row, times)
        return first

    def _contradiction(self, row: int, has: str) -> InvalidInputError:
        basket = None if self.long.ids is None else self.long.ids[self.long.baskets[row]]
        return InvalidInputError(
            f"{self.table.place(row)}: basket {basket!r} has {has}; it can have one. Give the two orders different ids."
        )

    def warn_of_repeats(self) -> None:
        """Warn of baskets whose rows all occur again after those of other baskets."""
        rows, items, ids = self.long.baskets, self.long.values, self.long.ids
        runs = np.bincount(rows[np.diff(rows, prepend=-1) != 0])
        if ids is None or runs.max(initial=0) < 2:
            return
        number = {value: i for i, value in enumerate(dict.fromkeys(items))}
        codes = np.array([number[value] for value in items], np.int64)
        pairs, times = np.unique(rows * len(number) + codes, return_counts=True)
        once = np.bincount(pairs[times == 1] // len(number), minlength=self.long.n_baskets)
        repeated = np.flatnonzero((once == 0) & (runs > 1))
        if len(repeated):
            warnings.warn(
                f"{self.table.name}: {many(len(repeated), 'order')}, such as {ids[repeated[0]]!r}, occur twice with the same items; they "
                "count once",
                DataWarning,
                stacklevel=3,
            )


def records(
    lines: Iterable[str], name: str, *, delimiter: str = ",", quoted: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its first line. ``name`` is what errors call the file.

    Examples
    --------
    >>> list(records(["a,b\\n", "\\n", '1,"two\\n', 'lines"\\n'], "the file"))
    [(1, ['a', 'b']), (3, ['1', 'two\\nlines'])]
    """
    ended = False

    def lines_until_end() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    rows = csv.reader(lines_until_end(), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    line = 1
    try:
        for row in rows:
            if ended:  # the reader requested another line in the middle of this row
                raise BadLineError(name, line, 'an opening quote (") is never closed')
            if row:
                yield line, row
            line = rows.line_num + 1
    except csv.Error as reason:  # a field of more than 128 kB
        raise BadLineError(name, line, f'{reason}; perhaps an opening quote (") is never closed') from None
