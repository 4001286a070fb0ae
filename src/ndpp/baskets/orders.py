"""Orders: baskets with columns, such as who bought each of them, when, where, and how often it counts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ndpp._types import TimeArray, WordArray
from ndpp._validation import by_name, check_choice
from ndpp.baskets import files
from ndpp.baskets.baskets import Baskets, OrderColumns
from ndpp.baskets.files import format_of, read_table
from ndpp.baskets.frames import frame_table
from ndpp.baskets.labels import Rules, check_labels, check_text, many, words_of
from ndpp.baskets.lines import COMPLETION, Columns, MissingColumnError, naming
from ndpp.baskets.times import CALENDAR, moment
from ndpp.errors import InvalidInputError


class Orders(Baskets):
    """Baskets, and who bought each of them when, in which context, and how often it counts.

    Orders are baskets: fits, updates and metrics take them, in their context. A slice, a mask or an integer array returns some of the
    orders, in this order, with their columns.

    Parameters
    ----------
    baskets : Baskets
        Their ``basket_ids`` are the ids of the orders.
    customers : sequence of str, optional
        The customer of each basket; "" for a basket of nobody in particular.
    times : array of datetime64, optional
        The time of each basket. Baskets that are not in order of time are sorted; those of the same time stay in their order.
    context : mapping from str to arrays, optional
        What else is known about each basket, as words, such as the store. Tables hold it, too.
    weights : array of float, optional
        How often each basket counts, as if it were repeated; 0 leaves it out.

    Examples
    --------
    >>> baskets = Baskets.from_lists([["tea", "milk"], ["rye"], ["tea"]])
    >>> orders = Orders(baskets, ["ann", "bob", "ann"], ["2026-03-02", "2026-03-01", "2026-03-09"])
    >>> orders
    <Orders: 3 baskets over 3 items of 2 customers, 2026-03-01 to 2026-03-09>
    >>> orders.customers.tolist()
    ['bob', 'ann', 'ann']
    """

    def __init__(
        self,
        baskets: Baskets,
        customers: ArrayLike | None = None,
        times: ArrayLike | None = None,
        context: Mapping[str, ArrayLike] | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        columns = OrderColumns(
            None if customers is None else np.asarray(customers, str),
            None if times is None else np.asarray(times, "datetime64[s]"),
            None if weights is None else np.asarray(weights, np.float64),
            {name: np.asarray(words, str) for name, words in (context or {}).items()},
        )
        own = {"customers": columns.customers, "times": columns.times, "weights": columns.weights}
        for name, values in {**own, **columns.context}.items():
            if values is not None and values.shape != (len(baskets),):
                raise InvalidInputError(
                    f"must have {len(baskets)} entries, one per basket; got shape {values.shape}", argument=name
                )
        for name, words in columns.context.items():
            check_text({name, *words.tolist()}, f"context {name!r}")
        if columns.weights is not None and not (np.isfinite(columns.weights) & (columns.weights >= 0)).all():
            raise InvalidInputError("must be finite numbers, at least zero", argument="weights")
        if columns.times is not None:
            if np.isnat(columns.times).any():
                raise InvalidInputError("must all be known; some are missing (NaT)", argument="times")
            if (np.diff(columns.times) < np.timedelta64(0)).any():
                order = np.argsort(columns.times, kind="stable")
                baskets, columns = baskets[order], columns.take(order)
        self._set(*baskets._fields, columns.take(slice(None)))

    @property
    def baskets(self) -> Baskets:
        """The baskets alone."""
        return Baskets._trusted(*self._fields)

    @property
    def customers(self) -> WordArray | None:
        """The customer of each basket."""
        return self._columns.customers

    @property
    def times(self) -> TimeArray | None:
        """The time of each basket."""
        return self._columns.times

    @classmethod
    def read(  # type: ignore[override]  # more columns, and no file of labels
        cls,
        source: Any,
        *,
        basket: str | Sequence[str] = "basket",
        item: str = "item",
        customer: str | None = None,
        time: str | None = None,
        context: Sequence[str] = (),
        partial: bool = False,
        labels: Sequence[str] | None = None,
        n_items: int | None = None,
        unknown: str = "error",
        format: str | None = None,
        encoding: str | None = None,
        as_labels: bool | None = None,
        missing: str = "error",
        time_format: str | None = None,
    ) -> Orders:
        """Read order lines, one per item of each basket: a CSV, TSV or Parquet file, or a pandas, polars or pyarrow data frame.

        All lines of a basket must name the same customer, and times within a day, of which the first counts. An order whose lines all
        occur again, as in a file that was appended twice, counts once, with a :class:`~ndpp.errors.DataWarning`. Where no other column is
        wanted, text files with a basket per line, Baskets and lists of baskets are read as well.

        Parameters
        ----------
        source : path, open file, data frame, Orders, Baskets or lists
            Rows may be in any order.
        basket : str or list of str
            The column that names a basket, or several that name it together, such as ``["customer", "date"]``.
        item, customer, time : str
            The columns; without ``customer`` or ``time`` these are not read. A row without a customer is of nobody in particular. Times are
            dates, or text such as 2026-03-01, 1.3.2026 or 3/31/2026 12:30, written in one way in the whole column.
        context : sequence of str
            Further columns, as words; "" where they say nothing. "weekday", "month", "season" (winter begins in December) and "hour" are
            derived from the time if there is no such column.
        partial : bool
            Leave columns of context that are not there out, instead of an error. Without a ``customer``, times are then read only for
            columns that need them.
        labels, n_items
            An existing catalogue: the names of its items, or how many there are, if items are ids.
        unknown : {"error", "skip", "new"}
            What to do about items that are not in the catalogue; "new" appends them to it.
        format, encoding, as_labels, missing
            As in :meth:`ndpp.Baskets.read`.
        time_format : str, optional
            How times are written, such as "%d/%m/%Y %H:%M"; needed where the column leaves open whether the day is first or the month.
        """
        check_choice(unknown, "unknown", ("error", "skip", "new"))
        columns, is_new = Columns.of(basket, item), unknown == "new"
        rules = Rules.of(labels, n_items, is_new or as_labels, "error" if is_new else unknown, missing)
        is_file = isinstance(source, (str, os.PathLike)) or (
            hasattr(source, "read") and not isinstance(source, Baskets)
        )
        if not is_file and not hasattr(source, "columns"):
            if not isinstance(source, Baskets):
                source = Baskets.from_lists(source, n_items=n_items, labels=labels, unknown=rules.unknown)
            found = source if isinstance(source, Orders) else cls(source)
            return found.in_context([name for name in context if not partial or name in found.known])
        time_is_needed = time is not None and (not partial or customer is not None)
        is_plain = customer is None and not time_is_needed and (partial or not context)
        if is_file and is_plain and format_of(source, format) == "text":
            rules = rules._replace(name=files.name_of(source))
            return cls(Baskets._trusted(*files.read(source, "text", columns, rules, encoding).arrays(rules)))
        needed = [name for name in (*columns.names, customer, time if time_is_needed else None) if name is not None]
        also = (*context, COMPLETION, *([] if time is None else [time]))
        advice = naming("basket", "item", *(["customer"] if customer else []), *(["time"] if time else []))
        if is_file:
            table = read_table(source, encoding, format=format, needed=needed, also=also, advice=advice)
        else:
            table = frame_table(source, needed, also, advice=advice)
        rules = rules._replace(name=table.name, exact=table.exact)
        lines = table.order_lines(columns, rules.missing)
        long = lines.long.present(rules, skipped=lines.skipped)
        if is_new and rules.labels is not None:
            new = sorted(set(long.values).difference(rules.labels))
            rules = rules._replace(labels=check_labels((*rules.labels, *new)))
        lines.warn_of_repeats()
        customers = None if customer is None else lines.one_each(customer)
        is_timed = time is not None and time in table.columns
        derived = [name for name in context if name not in table.columns and name in CALENDAR and is_timed]
        known = [name for name in context if name in table.columns or name in derived]
        if not partial and len(known) < len(context):
            lacking = next(name for name in context if name not in known)
            raise MissingColumnError(table.name, lacking, table.header, naming("context", "time"))
        if time is not None and not is_timed and not known:  # a file may hold what follows from times instead of them
            raise MissingColumnError(table.name, time, table.header, advice)
        times = None
        if time is not None and is_timed and (derived or time_is_needed):
            times = lines.times(time, time_format)
        words = {name: CALENDAR[name](np.asarray(times)) if name in derived else lines.one_each(name) for name in known}
        return cls(Baskets._trusted(*long.arrays(rules)), customers, times, words)

    @property
    def known(self) -> tuple[str, ...]:
        """The columns that :meth:`in_context` takes: those of the context, and those that follow from the times."""
        return tuple(dict.fromkeys([*self.context, *(() if self.times is None else CALENDAR)]))

    def split_at(self, time: str | date | np.datetime64) -> tuple[Orders, Orders]:
        """Return the orders before a time, such as "2026-03-01", to fit a model to, and those from then on, to test it on.

        Examples
        --------
        >>> baskets = Baskets.from_lists([["tea", "milk"], ["rye"], ["tea"]])
        >>> orders = Orders(baskets, times=["2026-03-02 09:15", "2026-03-01", "2026-03-09"])
        >>> [len(part) for part in orders.split_at("2026-03-02")]
        [1, 2]
        """
        if self.times is None:
            raise InvalidInputError(
                "these orders have no times to split them by", advice="Read them with {time:'time'}."
            )
        begin = moment(time)
        if np.isnat(begin):
            raise InvalidInputError(
                f"must be a time such as 2026-03-01 or 2026-03-01 12:30; got {time!r}", argument="time"
            )
        return self[self.times < begin], self[self.times >= begin]

    def in_context(self, columns: Sequence[str] | None = None) -> Orders:
        """Return the orders with these columns of context, by default those that were read."""
        chosen = self.context if columns is None else columns
        for name in chosen:
            if name not in self.known:
                raise InvalidInputError(
                    f"names {name!r}, but these orders have {', '.join(self.known) or 'no columns'}", argument="context",
                    advice="Give a mapping from columns to a value per basket, or the orders as Orders or a data frame.",
                )  # fmt: skip
        words = {
            name: self.context[name] if name in self.context else CALENDAR[name](np.asarray(self.times))
            for name in chosen
        }
        return self._trusted(*self._fields, self._columns._replace(context=words))

    def __repr__(self) -> str:
        text = f"<Orders: {many(len(self), 'basket')} over {many(self.n_items, 'item')}"
        if self.customers is not None:
            text += f" of {many(len(np.setdiff1d(self.customers, [''])), 'customer')}"
        if self.times is not None and len(self):
            text += f", {self.times.min().astype('datetime64[D]')} to {self.times.max().astype('datetime64[D]')}"
        text += ", weighted" if self.weights is not None else ""
        return text + "".join(f", by {name}" for name in self.context) + ">"


def weighted(baskets: Baskets, weights: Any, name: str) -> Baskets:
    """Return the baskets with their weights, without those whose weight is zero."""
    if weights is None:
        return baskets
    values = np.asarray(weights) if baskets.basket_ids is None and not isinstance(weights, Mapping) else weights
    if np.ndim(values) != 1 and not isinstance(values, Mapping):
        raise InvalidInputError(f"must be one number per basket; got the shape {np.shape(values)}", argument=name)
    found, has = by_name(values, baskets.basket_ids, len(baskets), name)
    if not has.all():
        lacking = baskets.ids_or_numbers[int(np.argmin(has))]
        raise InvalidInputError(
            f"lacks {np.sum(~has):,} of {len(has):,} baskets, such as {lacking!r}", argument=name,
            advice="Give each a weight, in their order as an array, or by the ids of the baskets.",
        )  # fmt: skip
    array = np.asarray(found, np.float64)
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InvalidInputError("must be finite numbers, at least zero and not all zero", argument=name)
    return Orders(baskets, context=baskets.context, weights=array)[array > 0]


def in_context(baskets: Baskets, context: Any, name: str) -> Baskets:
    """Return the baskets with columns of context, from a mapping or data frame with a value of each column per basket."""
    if context is None:
        return baskets
    if not hasattr(context, "keys") and not hasattr(context, "columns"):
        raise InvalidInputError(
            f"must be a mapping from columns to a value per basket; got {context!r:.60}", argument=name
        )
    values = frame_table(context, (), name=name).columns if hasattr(context, "columns") else context
    columns = {str(column): words_of(values[column]) for column in values}
    for column, words in columns.items():
        if len(words) != len(baskets):
            problem = f"must have {len(baskets):,} values of {column!r}, one per basket; got {len(words):,}"
            raise InvalidInputError(problem, argument=name)
    return Orders(baskets, context=columns, weights=baskets.weights)
