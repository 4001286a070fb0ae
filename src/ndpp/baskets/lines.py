"""Tables, the long form, one row per item of each basket, and a CSV reader that knows line numbers, for error messages."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.baskets.labels import MISSING, Rules, check_basket_ids, check_ids, check_n_items, encode, many
from ndpp.errors import DataWarning, InvalidInputError

SKIP = "Fill in the missing values, or leave such rows out with {missing:'skip'}"
NAME_COLUMNS = "Name the right ones with {basket} and {item}"
COMPLETION = "completion"
"""The column that tells several completions of one basket apart."""
Column: TypeAlias = Sequence[Any] | AnyArray
"""The values of a column, None where they are missing; times are an array of datetime64."""


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
    """The names of the columns of a table in long form."""

    basket: str = "basket"
    item: str = "item"


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

    def naming(self, basket: str, missing: str) -> tuple[ColumnTable, int]:
        """Return the rows that name a basket, and how many others were skipped; others are an error, unless they are to be skipped."""
        absent = {"", None} if missing == "keep" else {None, *MISSING}
        gone = [(key.strip() if isinstance(key, str) else key) in absent for key in self.keys(basket)]
        if not any(gone):
            return self, 0
        if missing != "skip":
            problem = (
                f"{self.place(gone.index(True))} names no basket; column {basket!r} must name a basket in every row"
            )
            raise InvalidInputError(problem, advice=SKIP)
        kept = [i for i, is_gone in enumerate(gone) if not is_gone]
        columns = {name: [values[i] for i in kept] for name, values in self.columns.items()}
        lines = None if self.lines is None else [self.lines[i] for i in kept]
        return self._replace(columns=columns, lines=lines), len(gone) - len(kept)

    def keys(self, name: str) -> Sequence[Hashable]:
        """Return the values of a column as keys of baskets."""
        values = self.columns[name]
        return values.astype("datetime64[s]").tolist() if isinstance(values, np.ndarray) else values

    def grouped(self, columns: Columns) -> Long:
        """Return the long form of the rows; those of a file of several completions per basket are baskets of their own."""
        keys: Iterable[Hashable] = self.keys(columns.basket)
        if list(self.header) == [columns.basket, COMPLETION, columns.item, "added"]:
            keys = zip(keys, self.columns[COMPLETION])
        return Long.grouped(keys, self.columns[columns.item])

    def long(self, columns: Columns, rules: Rules) -> Long:
        """Return the long form of the rows that have an item."""
        table, skipped = self.naming(columns.basket, rules.missing)
        return table.grouped(columns).present(rules._replace(exact=self.exact, name=self.name), skipped=skipped)


class Long(NamedTuple):
    """Long form: basket number ``baskets[i]`` out of ``n_baskets`` holds ``values[i]``. ``ids`` names the baskets."""

    baskets: Sequence[int] | IntArray
    n_baskets: int
    values: Any
    ids: Any = None

    @classmethod
    def grouped(cls, keys: Iterable[Hashable], values: Column) -> Long:
        """Return the long form of rows with these keys, with baskets numbered as they first appear.

        The id of a basket is its key, or the first part of one.
        """
        numbers: dict[Hashable, int] = {}
        baskets = [numbers.setdefault(key, len(numbers)) for key in keys]
        ids = [key[0] if isinstance(key, tuple) else key for key in numbers]
        return cls(baskets, len(numbers), values, ids)

    def present(self, rules: Rules, *, skipped: int = 0) -> Long:
        """Return the rows that have an item, as ids or as names without blanks at their ends.

        A row without an item stands for an empty basket if it is the only row of its basket. Elsewhere it is an error, unless
        such rows are skipped; ``skipped`` rows have been already.
        """
        values, rows = rules.clean(self.values), np.asarray(self.baskets, np.int64)
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

    def arrays(
        self, rules: Rules
    ) -> tuple[IntArray, IntArray, int, tuple[str, ...] | None, tuple[int | str, ...] | None]:
        """Return the fields of :class:`ndpp.Baskets`; rows may be in any order and repeat an item."""
        ids, names = encode(self.values, rules.labels, unknown=rules.unknown)
        n_items, rows = rules.n_items, np.asarray(self.baskets, np.int64)
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
