"""Orders: baskets of which is known who bought them, and when."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import IO, Any

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp._validation import check_choice, frozen
from ndpp.baskets.baskets import Baskets
from ndpp.baskets.files import Table, name_of, read_table
from ndpp.baskets.frames import frame_columns
from ndpp.baskets.labels import MISSING, Rules, check_labels, many, word_of
from ndpp.baskets.lines import SKIP, Long, MissingColumnError
from ndpp.baskets.weighted import WeightedBaskets
from ndpp.errors import DataWarning, InvalidInputError

WEEKDAYS = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])
MONTHS = np.array(
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
     "December"]
)  # fmt: skip
SEASONS = np.array(["winter", "spring", "summer", "autumn"])
DAY = np.timedelta64(1, "D")
COLUMNS = "Name the columns with {basket}, {item}, {customer} and {time}"


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


@dataclass(frozen=True, eq=False, repr=False)
class Orders:
    """Baskets, and who bought each of them when, in order of time.

    ``orders[i:j]``, a mask or an integer array returns some of the orders.

    Parameters
    ----------
    baskets : Baskets
        Their ``basket_ids`` are the ids of the orders.
    customers : sequence of str, optional
        The customer of each basket; "" for a basket of nobody in particular.
    times : array of datetime64, optional
        The time of each basket. Baskets that are not in order of time are sorted; those of the same time stay in their order.
    context : mapping from str to arrays, optional
        What else is known about each basket, as words, such as the store.

    Examples
    --------
    >>> baskets = Baskets.from_lists([["tea", "milk"], ["rye"], ["tea"]])
    >>> orders = Orders(baskets, ["ann", "bob", "ann"], ["2026-03-02", "2026-03-01", "2026-03-09"])
    >>> orders
    <Orders: 3 baskets over 3 items of 2 customers, 2026-03-01 to 2026-03-09>
    >>> orders.customers.tolist()
    ['bob', 'ann', 'ann']
    """

    baskets: Baskets
    customers: AnyArray | None = None
    times: AnyArray | None = None
    context: Mapping[str, AnyArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        customers, context = self.customers, {name: np.asarray(words, str) for name, words in self.context.items()}
        customers = None if customers is None else np.asarray(customers, str)
        times = None if self.times is None else np.asarray(self.times, "datetime64[s]")
        for name, values in {"customers": customers, "times": times, **context}.items():
            if values is not None and values.shape != (len(self.baskets),):
                raise InvalidInputError(
                    f"must have {len(self.baskets)} entries, one per basket; got shape {values.shape}", argument=name
                )
        if times is not None and np.isnat(times).any():
            raise InvalidInputError("must all be known; some are missing (NaT)", argument="times")
        baskets = self.baskets
        if times is not None and (np.diff(times) < np.timedelta64(0)).any():
            order = np.argsort(times, kind="stable")
            baskets, times = baskets[order], times[order]
            customers = None if customers is None else customers[order]
            context = {name: words[order] for name, words in context.items()}
        found = {"baskets": baskets, "customers": customers, "times": times, "context": context}
        for name, value in found.items():
            object.__setattr__(self, name, frozen(value) if isinstance(value, np.ndarray) else value)

    @classmethod
    def read(
        cls,
        source: str | os.PathLike[str] | IO[Any] | Any,
        *,
        basket: str = "basket",
        item: str = "item",
        customer: str | None = None,
        time: str | None = None,
        context: Sequence[str] = (),
        partial: bool = False,
        labels: Sequence[str] | None = None,
        n_items: int | None = None,
        unknown: str = "error",
        as_labels: bool | None = None,
        missing: str = "error",
        time_format: str | None = None,
        format: str | None = None,
        encoding: str | None = None,
    ) -> Orders:
        """Read order lines, one per item of each basket: a CSV, TSV or Parquet file, or a pandas, polars or pyarrow data frame.

        All lines of a basket must name the same customer, and times within a day, of which the first counts. An order whose lines all
        occur again, as in a file that was appended twice, counts once, with a :class:`~ndpp.errors.DataWarning`.

        Parameters
        ----------
        source : path, open file or data frame
            Rows may be in any order.
        basket, item, customer, time : str
            The columns; without ``customer`` or ``time`` these are not read. A row without a customer is of nobody in particular. Times are
            dates, or text such as 2026-03-01 or 2026-03-01 12:30.
        context : sequence of str
            Further columns, as words; "" where they say nothing. "weekday", "month", "season" (winter begins in December) and "hour" are
            derived from the time if there is no such column.
        partial : bool
            Leave columns of context that are not there out, instead of an error. Times are then read only for columns that need them.
        labels, n_items
            An existing catalogue: the names of its items, or how many there are, if items are ids.
        unknown : {"error", "skip", "new"}
            What to do about items that are not in the catalogue; "new" appends them to it.
        as_labels, missing, format, encoding
            As in :meth:`ndpp.Baskets.read`.
        time_format : str, optional
            How times are written, such as "%d/%m/%Y %H:%M", if not as above.
        """
        check_choice(unknown, "unknown", ("error", "skip", "new"))
        is_file = isinstance(source, (str, os.PathLike)) or hasattr(source, "read")
        name, context = name_of(source) if is_file else "the data frame", tuple(context)
        needed = [column for column in (basket, item, customer, None if partial else time) if column is not None]
        also = (*context, *([time] if partial and time is not None else []))
        if is_file:
            table = read_table(source, encoding, format=format, needed=needed, also=also, advice=COLUMNS)
        else:
            table = Table(frame_columns(source, needed, name, COLUMNS, also))
        table = _present(table, basket, missing, name)
        time = time if time in table.columns else None
        derived = [column for column in context if column not in table.columns]
        for column in derived:
            if (time is None or column not in CALENDAR) and not partial:
                raise MissingColumnError(name, column, list(table.columns), COLUMNS)
        derived = [column for column in derived if time is not None and column in CALENDAR]
        time = time if derived or not partial else None
        rules = Rules.of(
            labels, n_items=n_items, as_labels=True if unknown == "new" else as_labels, missing=missing, name=name, exact=table.exact,
            unknown="error" if unknown == "new" else unknown,
        )  # fmt: skip
        keys = table.columns[basket]
        grouped = Long.grouped(keys, table.columns[item])
        rows = np.asarray(grouped.baskets, np.int64)
        long = grouped.present(rules)
        if unknown == "new" and rules.labels is not None:
            rules = rules._replace(labels=(*rules.labels, *sorted(set(long.values).difference(rules.labels))))
            check_labels(rules.labels)
        _warn_of_repeats(rows, table.columns[item], grouped.ids, name)
        baskets = Baskets._trusted(*long.arrays(rules))
        customers = None if customer is None else _one_each(table, customer, rows, grouped.ids, name)
        known = {
            column: _one_each(table, column, rows, grouped.ids, name) for column in context if column in table.columns
        }
        times = None if time is None else _times(table, time, rows, grouped.ids, name, time_format)
        known |= {column: CALENDAR[column](np.asarray(times)) for column in derived}
        return cls(baskets, customers, times, {column: known[column] for column in context if column in known})

    @property
    def known(self) -> tuple[str, ...]:
        """The columns that :meth:`in_context` takes: those of the context, and those that follow from the times."""
        return tuple(dict.fromkeys([*self.context, *(() if self.times is None else CALENDAR)]))

    def in_context(self, columns: Sequence[str] | None = None) -> Baskets:
        """Return the baskets with columns of context, by default those that were read: fits, updates and metrics take them."""
        chosen = self.context if columns is None else columns
        for name in chosen:
            if name not in self.known:
                there = ", ".join(self.known) or "no columns"
                raise InvalidInputError(f"names {name!r}, but these orders have {there}", argument="context")
        words = {name: self.context[name] if name in self.context else CALENDAR[name](self.times) for name in chosen}
        return WeightedBaskets.of(self.baskets, None, words)

    def __len__(self) -> int:
        return len(self.baskets)

    def __getitem__(self, key: slice | AnyArray | Sequence[int]) -> Orders:
        chosen = np.arange(len(self))[key]
        customers, times = (None if all_ is None else all_[chosen] for all_ in (self.customers, self.times))
        return Orders(
            self.baskets[chosen], customers, times, {name: words[chosen] for name, words in self.context.items()}
        )

    def __repr__(self) -> str:
        text = f"<Orders: {many(len(self), 'basket')} over {many(self.baskets.n_items, 'item')}"
        if self.customers is not None:
            text += f" of {many(len(np.setdiff1d(self.customers, [''])), 'customer')}"
        if self.times is not None and len(self):
            text += f", {self.times[0].astype('datetime64[D]')} to {self.times[-1].astype('datetime64[D]')}"
        return text + "".join(f", by {name}" for name in self.context) + ">"


def _present(table: Table, basket: str, missing: str, name: str) -> Table:
    """Return the rows that name a basket; others are an error, unless they are to be skipped."""
    keys = table.columns[basket]
    absent = {"", None} if missing == "keep" else {None, *MISSING}
    gone = [(key.strip() if isinstance(key, str) else key) in absent for key in keys]
    if not any(gone):
        return table
    if missing != "skip":
        raise InvalidInputError(f"{_place(table, name, gone.index(True))} names no basket", advice=SKIP)
    warnings.warn(f"{name}: skipped {many(sum(gone), 'row')} without a basket", DataWarning, stacklevel=3)
    kept = [i for i, is_gone in enumerate(gone) if not is_gone]
    lines = None if table.lines is None else [table.lines[i] for i in kept]
    return Table({column: [values[i] for i in kept] for column, values in table.columns.items()}, lines, table.exact)


def _place(table: Table, name: str, row: int) -> str:
    """Return what messages call a row."""
    return f"{name}, row {row + 1}" if table.lines is None else f"{name}, line {table.lines[row]}"


def _one_each(table: Table, column: str, rows: IntArray, ids: Sequence[Any], name: str) -> AnyArray:
    """Return the word of a column for each basket; all of its rows must have the same one."""
    words = {value: word_of(value) for value in set(table.columns[column])}
    found = np.array([words[value] for value in table.columns[column]], str)
    first = np.zeros(len(ids), np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    differs = np.flatnonzero(found != found[first][rows])
    if len(differs):
        row = int(differs[0])
        raise InvalidInputError(
            f"{_place(table, name, row)}: basket {ids[rows[row]]!r} has two values of {column!r}, {str(found[first][rows[row]])!r} and "
            f"{str(found[row])!r}; it can have one. Give the two orders different ids."
        )
    return found[first]


def _times(
    table: Table, column: str, rows: IntArray, ids: Sequence[Any], name: str, time_format: str | None
) -> AnyArray:
    """Return the earliest time of each basket, in seconds; its others must be within a day."""
    values = table.columns[column]
    if not isinstance(values, np.ndarray):
        values = np.array([moment(value, time_format) for value in values])
    found = values.astype("datetime64[s]")
    if np.isnat(found).any():
        row = int(np.argmax(np.isnat(found)))
        raise InvalidInputError(
            f"{_place(table, name, row)}: {table.columns[column][row]!r} in column {column!r} is not a time; expected a date such as "
            "2026-03-01 or 2026-03-01 12:30",
            advice="Say how times are written with {time_format}, such as '%d/%m/%Y'",
        )
    first = np.empty(len(ids), found.dtype)
    order = np.argsort(found, kind="stable")[::-1]
    first[rows[order]] = found[order]
    apart = np.flatnonzero(found - first[rows] > DAY)
    if len(apart):
        row = int(apart[0])
        raise InvalidInputError(
            f"{_place(table, name, row)}: basket {ids[rows[row]]!r} has two times, {first[rows[row]]} and {found[row]}, more than a day "
            "apart; it can have one. Give the two orders different ids."
        )
    return first


@lru_cache(2**16)
def moment(value: Any, time_format: str | None = None) -> Any:
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


def _warn_of_repeats(rows: IntArray, items: Sequence[Any], ids: Sequence[Any], name: str) -> None:
    """Warn of baskets whose rows all occur again after those of other baskets."""
    if len(rows) == 0:
        return
    runs = np.bincount(rows[np.append(True, np.diff(rows) != 0)])
    if runs.max() < 2:
        return
    number = {value: i for i, value in enumerate(dict.fromkeys(items))}
    codes = np.array([number[value] for value in items], np.int64)
    pairs, times = np.unique(rows * len(number) + codes, return_counts=True)
    once = np.bincount(pairs[times == 1] // len(number), minlength=len(ids))
    repeated = np.flatnonzero((once == 0) & (runs > 1))
    if len(repeated):
        warnings.warn(
            f"{name}: {many(len(repeated), 'order')}, such as {ids[repeated[0]]!r}, occur twice with the same items; they count once",
            DataWarning,
            stacklevel=3,
        )
