"""Ids and labels of items: whether a word in a file is an id, a label or missing, and what happens to unknown ones."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import AnyArray, IntArray, WordArray
from ndpp._validation import check_choice, check_count
from ndpp.errors import DataWarning, InvalidInputError, UnknownItemError, UnknownLabelError

LARGEST_ID = 2**31 - 1
"""Larger integers are taken for product codes rather than positions in a catalogue."""
MISSING = frozenset(["", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NULL", "null"])
"""Words for a missing value, unless the catalogue has an item of that name, ``missing="keep"``, or the file says that names are exact."""

SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no encoding of a file has."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,99})")  # 007 is a code, not a number


class Rules(NamedTuple):
    """How words become items; see :meth:`ndpp.Baskets.read` for the fields. ``name`` is what messages call the source.

    ``exact`` names are as they are meant: blanks at their ends belong to them, and only an empty one is missing.
    """

    labels: tuple[str, ...] | None = None
    n_items: int | None = None
    as_labels: bool | None = None
    unknown: str = "error"
    missing: str = "error"
    name: str = "the data"
    exact: bool = False

    @classmethod
    def of(
        cls, labels: Sequence[str] | None, n_items: int | None = None, as_labels: bool | None = None,
        unknown: str = "error", missing: str = "error", name: str = "the data",
    ) -> Rules:  # fmt: skip
        """Return the rules, checked."""
        check_choice(unknown, "unknown", ("error", "skip"))
        check_choice(missing, "missing", ("error", "skip", "keep"))
        return cls(check_labels(labels), n_items, as_labels, unknown, missing, name)

    @property
    def missing_words(self) -> frozenset[str]:
        """Words that stand for a missing item."""
        return frozenset([""]) if self.exact or self.missing == "keep" else MISSING.difference(self.labels or ())

    def clean(self, values: Sequence[Any] | AnyArray) -> list[Any]:
        """Return the values with names stripped of blanks at their ends, unless they are exact, and None for what is missing.

        A name of the catalogue stays as it is, and a name that lacks only the blanks of one in the catalogue stands for it.
        """
        known = frozenset(self.labels or ())
        taken = known | MISSING
        padded = {name: label for label in self.labels or () if (name := label.strip()) not in taken}
        distinct = {value for value in values if isinstance(value, str)}
        words = {value: value if self.exact or value in known else value.strip() for value in distinct}
        if names := [value for value, word in words.items() if word and word != value]:
            text = f"{self.name}: removed blanks at the ends of {many(len(names), 'name')}, such as {min(names)!r}"
            warnings.warn(text, DataWarning, stacklevel=3)
        words = {value: padded.get(word, word) for value, word in words.items()}
        absent = dict.fromkeys(self.missing_words)
        clean = {value: absent.get(word, word) for value, word in words.items()}
        return [clean[value] if isinstance(value, str) else None if value != value else value for value in values]

    def items(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return integers if the values are ids, else strings."""
        distinct = set(values)
        wrong = next((value for value in distinct if not is_integer(value)), None)
        if wrong is not None:
            if self.as_labels is False:
                raise InvalidInputError(f"item ids must be whole numbers; got {wrong!r}")
            return values
        if self.as_labels or (self.as_labels is None and self._are_labels({str(value) for value in distinct})):
            return [str(value) for value in values]
        return [int(value) for value in values]

    def _are_labels(self, numbers: set[str]) -> bool:
        """Return whether whole numbers are labels: unless a catalogue says that they can only be positions in it."""
        if self.labels is None:
            return self.n_items is None
        if not numbers or not numbers <= set(self.labels):
            return False
        if max(map(int, numbers)) < len(self.labels):
            raise InvalidInputError(
                "the whole numbers in this file may be ids or labels",
                advice="Choose with {as_labels:False} or {as_labels:True}.",
            )
        return True


def is_plain(name: str) -> bool:
    """Return whether a name is read as it is where names may have blanks at their ends, and be missing."""
    return name == name.strip() and name not in MISSING


def check_labels(
    labels: Sequence[str] | None, count: int | None = None, *, name: str = "labels", of: str = "item"
) -> tuple[str, ...] | None:
    """Return the labels as a tuple of distinct, nonempty strings, as many as ``count``; messages call them ``name``."""
    if labels is None:
        return None
    if isinstance(labels, str) or not all(isinstance(label, str) and label for label in labels):
        raise InvalidInputError(f"{name} must be a sequence of nonempty strings, one for each {of}")
    names = tuple(map(str, labels))
    check_text(names, name)
    if len(set(names)) != len(names):
        label, times = Counter(names).most_common(1)[0]
        raise InvalidInputError(f"{name} must be distinct; {label!r} occurs {times} times")
    if count is not None and len(names) != count:
        raise InvalidInputError(f"{name} must be {count} names, one per {of}; got {len(names)}")
    return names


def check_text(words: Iterable[str], name: str) -> None:
    """Raise unless files can hold all words; messages call them ``name``."""
    if lone := next((word for word in words if SURROGATES.search(word)), None):
        raise InvalidInputError(
            f"{name} must be text that files can hold; {lone!r} has half of a character, a surrogate"
        )


def check_basket_ids(ids: Iterable[Any] | None, n_baskets: int) -> tuple[int | str, ...] | None:
    """Return one id per basket: all integers, or else all text."""
    if ids is None:
        return None
    found: tuple[Any, ...] = tuple(ids)
    whole = all(isinstance(i, (int, np.integer)) and abs(int(i)) < 2**63 for i in found)
    found = tuple(map(int if whole else str, found))
    if len(found) != n_baskets:
        raise InvalidInputError(f"basket_ids must be {n_baskets}, one per basket; got {len(found)}")
    if "" in found:
        raise InvalidInputError("basket_ids must not be empty strings")
    if not whole:
        check_text(found, "basket_ids")
    return found


def check_n_items(n_items: int | None, labels: tuple[str, ...] | None) -> int:
    """Return the number of items, which must be that of ``labels`` if there are any."""
    if labels is None:
        return check_count(n_items, "n_items")
    if n_items is not None and n_items != len(labels):
        raise InvalidInputError(
            f"n_items must be the number of labels, {len(labels)}; got {n_items}. "
            "Pass the labels of the whole catalogue."
        )
    return len(labels)


def check_ids(ids: IntArray, n_items: int) -> None:
    """Raise unless every id is a position in a catalogue of ``n_items``."""
    low, high = (int(ids.min()), int(ids.max())) if ids.size else (0, -1)
    if low < 0 or high >= n_items:
        advice = "Pass n_items= or labels= of the whole catalogue."
        raise UnknownItemError(low if low < 0 else high, n_items, advice=advice)
    if high > LARGEST_ID:
        raise _not_an_id(high)


def encode(
    values: Sequence[Any] | AnyArray, labels: tuple[str, ...] | None, *, unknown: str
) -> tuple[IntArray, tuple[str, ...] | None]:
    """Return the ids of ``values`` and the labels: the given ones or, if values are strings, all that occur, sorted.

    If ``unknown`` is "skip", the id of an unknown label is −1.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values.astype(np.int64), labels
    kinds = set(map(type, values))
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        try:
            return np.fromiter(values, np.int64, len(values)), labels
        except OverflowError:
            raise _not_an_id(max(values, key=abs)) from None
    if not all(issubclass(kind, str) for kind in kinds):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidInputError(f"items must be all integers (ids) or all strings (labels); got {names}")
    if labels is None:
        distinct = set(values)
        numbers = all(map(is_integer, distinct))
        labels = check_labels(sorted(distinct, key=(lambda word: (int(word), word)) if numbers else None))
    ids = places(values, labels or ())
    if unknown == "error" and (ids < 0).any():
        raise UnknownLabelError(values[int(np.argmin(ids))], labels or ())
    return ids, labels


def places(names: Iterable[object], catalogue: Iterable[object]) -> IntArray:
    """Return the position of each name in a catalogue, −1 for those that it lacks."""
    place = {name: i for i, name in enumerate(catalogue)}
    return np.array([place.get(name, -1) for name in names], np.int64)


def _not_an_id(code: int) -> InvalidInputError:
    return InvalidInputError(
        f"item ids must be positions in a catalogue, up to {LARGEST_ID}; got {code}",
        advice="Product codes are labels: pass them as strings, or read them with {as_labels:True}.",
    )


def many(count: int, noun: str) -> str:
    """Return how many there are of something.

    Examples
    --------
    >>> many(1, "row"), many(1234, "row")
    ('1 row', '1,234 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def is_integer(value: object) -> bool:
    """Return whether a value is an integer, or a word that is one."""
    if isinstance(value, str):
        return _INTEGER.fullmatch(value) is not None
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def word_of(value: object) -> str:
    """Return a value of context as a word, "" where it says nothing."""
    word = "" if value is None else str(value).strip()
    return "" if word in MISSING else word


def words_of(values: Iterable[object]) -> WordArray:
    """Return the values of context of many baskets as words."""
    return np.array([word_of(value) for value in values], dtype=str)
