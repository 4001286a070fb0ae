"""Times as people write them, what they say in words, and how a whole column of them is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from ndpp._types import AnyArray, IntArray, TimeArray, WordArray
from ndpp.errors import InvalidInputError

Column: TypeAlias = Sequence[Any] | AnyArray
"""The values of a column, None where they are missing; times are an array of datetime64."""
WEEKDAYS = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])
MONTHS = np.array(
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
     "December"]
)  # fmt: skip
SEASONS = np.array(["winter", "spring", "summer", "autumn"])
DAY = np.timedelta64(1, "D")
EXAMPLE = "2026-03-01 or 2026-03-01 12:30"
_PARTS = re.compile(r"(?P<date>.*?)(?P<gap>,? +|T)(?P<clock>\d{1,2}:\d\d.*)")
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I:%M:%S%p")
_DATES = (
    "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%Y-%m-%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y",
    "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y",  # nobody writes the month first with dots
    "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y",
)  # fmt: skip


def _since(times: TimeArray, unit: str, modulus: int, first: int = 0) -> IntArray:
    """Return the number of days, months or hours since the beginning of 1970, plus ``first``, modulo some number."""
    return np.asarray((times.astype(f"datetime64[{unit}]").astype(np.int64) + first) % modulus)


CALENDAR: dict[str, Callable[[TimeArray], WordArray]] = {
    "weekday": lambda times: WEEKDAYS[_since(times, "D", 7, 3)],  # 1 January 1970 was a Thursday
    "month": lambda times: MONTHS[_since(times, "M", 12)],
    "season": lambda times: SEASONS[_since(times, "M", 12, 1) // 3],
    "hour": lambda times: _since(times, "h", 24).astype(str),
}
"""What the time of an order says about its circumstances, in words."""


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


def written(values: Iterable[object], what: str) -> str | None:
    """Return the format of these times, which are all written in one way; None for that of ISO, or if it is not known.

    Where day and month could be exchanged, the error asks which is first.

    Examples
    --------
    >>> written(["1/11/2000", "13/11/2000"], "the column")
    '%d/%m/%Y'
    """
    texts = list(dict.fromkeys(value.strip() for value in values if isinstance(value, str)))
    if not texts or not np.isnat(moment(texts[0])):
        return None
    parts = _PARTS.fullmatch(texts[0])
    clocks = [""] if parts is None else [parts["gap"] + clock for clock in _CLOCKS]
    found = [one + clock for one in _DATES for clock in clocks if not np.isnat(moment(texts[0], one + clock))]
    for text in texts:  # up to the first that only one format can read, or none
        if len(found) > 1:
            found = [one for one in found if not np.isnat(moment(text, one))] or found[:1]
    if len(found) > 1:  # the same times are no question, such as 1/1/2000
        found = list({tuple(moment(text, one) for text in texts): one for one in reversed(found)}.values())[::-1]
    if len(found) > 1:
        raise InvalidInputError(
            f"{what} holds times such as {texts[0]!r}, in which the day may be first or the month",
            advice=f"Say which with {{time_format:{found[0]!r}}} or {{time_format:{found[1]!r}}}",
        )
    return found[0] if found else None


def moments(values: Column, time_format: str | None, what: str) -> TimeArray:
    """Return the times of a column, in seconds; NaT for those that cannot be read. ``what`` is what messages call it."""
    if isinstance(values, np.ndarray):
        return np.asarray(values.astype("datetime64[s]"))
    how = written(values, what) if time_format is None else time_format
    return np.array([moment(value, how) for value in values], "datetime64[s]")
