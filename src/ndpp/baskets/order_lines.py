"""Order lines: the columns of a table, one row per item of each basket, and what they say about the baskets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.baskets.labels import many, word_of
from ndpp.baskets.lines import Columns, ColumnTable, Long
from ndpp.errors import DataWarning, InvalidInputError

WEEKDAYS = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])
MONTHS = np.array(
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
     "December"]
)  # fmt: skip
SEASONS = np.array(["winter", "spring", "summer", "autumn"])
DAY = np.timedelta64(1, "D")


def _since(times: AnyArray, unit: str, modulus: int, first: int = 0) -> IntArray:
    """Return the number of days, months or hours since the beginning of 1970, plus ``first``, modulo some number."""
    return np.asarray((times.astype(f"datetime64[{unit}]").astype(np.int64) + first) % modulus)


CALENDAR: dict[str, Callable[[AnyArray], AnyArray]] = {
    "weekday": lambda times: WEEKDAYS[_since(times, "D", 7, 3)],  # 1 January 1970 was a Thursday
    "month": lambda times: MONTHS[_since(times, "M", 12)],
    "season": lambda times: SEASONS[_since(times, "M", 12, 1) // 3],
    "hour": lambda times: _since(times, "h", 24).astype(str),
}
"""What the time of an order says about its circumstances, in words."""


class OrderLines(NamedTuple):
    """The rows of a table that name a basket, in long form, and the basket of each of them."""

    table: ColumnTable
    long: Long
    rows: IntArray

    @classmethod
    def of(cls, table: ColumnTable, columns: Columns, missing: str) -> tuple[OrderLines, int]:
        """Return the rows that name a basket, and how many others were skipped."""
        named, skipped = table.naming(columns.basket, missing)
        long = named.grouped(columns)
        return cls(named, long, np.asarray(long.baskets, np.int64)), skipped

    def one_each(self, column: str) -> AnyArray:
        """Return the word of a column for each basket; all of its rows must have the same one."""
        words = {value: word_of(value) for value in set(self.table.columns[column])}
        found = np.array([words[value] for value in self.table.columns[column]], str)
        first = np.zeros(self.long.n_baskets, np.int64)
        first[self.rows[::-1]] = np.arange(len(self.rows))[::-1]
        differs = np.flatnonzero(found != found[first][self.rows])
        if len(differs):
            row = int(differs[0])
            raise self._contradiction(
                row, f"two values of {column!r}, {str(found[first][self.rows[row]])!r} and {str(found[row])!r}"
            )
        return found[first]

    def times(self, column: str, time_format: str | None) -> AnyArray:
        """Return the earliest time of each basket, in seconds; its others must be within a day."""
        values = self.table.columns[column]
        if not isinstance(values, np.ndarray):
            values = np.array([moment(value, time_format) for value in values])
        found = values.astype("datetime64[s]")
        if np.isnat(found).any():
            row = int(np.argmax(np.isnat(found)))
            raise InvalidInputError(
                f"{self.table.place(row)}: {self.table.columns[column][row]!r} in column {column!r} is not a time; expected a date such as "
                "2026-03-01 or 2026-03-01 12:30",
                advice="Say how times are written with {time_format}, such as '%d/%m/%Y'",
            )
        first = np.empty(self.long.n_baskets, found.dtype)
        order = np.argsort(found, kind="stable")[::-1]
        first[self.rows[order]] = found[order]
        apart = np.flatnonzero(found - first[self.rows] > DAY)
        if len(apart):
            row = int(apart[0])
            times = f"two times, {first[self.rows[row]]} and {found[row]}, more than a day apart"
            raise self._contradiction(row, times)
        return first

    def _contradiction(self, row: int, has: str) -> InvalidInputError:
        basket = self.long.ids[self.rows[row]]
        return InvalidInputError(
            f"{self.table.place(row)}: basket {basket!r} has {has}; it can have one. Give the two orders different ids."
        )

    def warn_of_repeats(self) -> None:
        """Warn of baskets whose rows all occur again after those of other baskets."""
        items = self.long.values
        if len(self.rows) == 0:
            return
        runs = np.bincount(self.rows[np.append(True, np.diff(self.rows) != 0)])
        if runs.max() < 2:
            return
        number = {value: i for i, value in enumerate(dict.fromkeys(items))}
        codes = np.array([number[value] for value in items], np.int64)
        pairs, times = np.unique(self.rows * len(number) + codes, return_counts=True)
        once = np.bincount(pairs[times == 1] // len(number), minlength=self.long.n_baskets)
        repeated = np.flatnonzero((once == 0) & (runs > 1))
        if len(repeated):
            warnings.warn(
                f"{self.table.name}: {many(len(repeated), 'order')}, such as {self.long.ids[repeated[0]]!r}, occur twice with the same "
                "items; they count once",
                DataWarning,
                stacklevel=3,
            )


@lru_cache(2**16)
def moment(value: object, time_format: str | None = None) -> np.datetime64:
    """Return a time without its zone, the hour on the clock of the shop; NaT if it cannot be read."""
    try:
        if isinstance(value, str):
            text = value.strip()
            value = datetime.fromisoformat(text) if time_format is None else datetime.strptime(text, time_format)
        if isinstance(value, datetime):
            value = value.replace(tzinfo=None)
        return np.datetime64(value, "s") if isinstance(value, (date, np.datetime64)) else np.datetime64("NaT")  # type: ignore[call-overload,unused-ignore]
    except ValueError:
        return np.datetime64("NaT")
