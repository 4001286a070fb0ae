"""Ids and labels of items, and whether a word in a file is an id or a label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ndpp._types import IntArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError, UnknownItemError, UnknownLabelError

LARGEST_ID = 2**31 - 1
"""Larger integers are taken for product codes rather than positions in a catalogue."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")  # 007 is a code, not a number


def check_labels(labels: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the labels as a tuple of distinct, nonempty strings."""
    if labels is None:
        return None
    if isinstance(labels, str) or not all(isinstance(label, str) and label for label in labels):
        raise InvalidInputError("labels must be a sequence of nonempty strings, one for each item")
    names = tuple(map(str, labels))
    if len(set(names)) != len(names):
        label, times = Counter(names).most_common(1)[0]
        raise InvalidInputError(f"labels must be distinct; {label!r} occurs {times} times")
    return names


def check_n_items(n_items: Any, labels: tuple[str, ...] | None) -> int:
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


def encode(values: Any, labels: tuple[str, ...] | None) -> tuple[IntArray, tuple[str, ...] | None]:
    """Return the ids of ``values`` and the labels: the given ones or, if values are strings, all that occur, sorted."""
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
    labels = check_labels(sorted(set(values))) if labels is None else labels
    ids = {label: i for i, label in enumerate(labels or ())}
    try:
        return np.fromiter(map(ids.__getitem__, values), np.int64, len(values)), labels
    except KeyError as unknown:
        raise UnknownLabelError(unknown.args[0], labels or ()) from None


def interpret(words: list[str], labels: Sequence[str] | None, as_labels: bool | None) -> list[Any]:
    """Return the words of a file as integers if they are ids, else as they are."""
    numeric = _all_integers(words)
    if as_labels is False and not numeric:
        wrong = next(word for word in words if not _all_integers([word]))
        raise InvalidInputError(f"item ids must be whole numbers; got {wrong!r}")
    if as_labels or not numeric:
        return words
    ids = [int(word) for word in words]
    if as_labels is None and labels is not None and words and set(words) <= set(labels):
        if max(ids) < len(labels):
            raise InvalidInputError(
                "the whole numbers in this file may be ids or labels",
                advice="Choose with {as_labels:False} or {as_labels:True}.",
            )
        return words
    return ids


def _not_an_id(code: int) -> InvalidInputError:
    return InvalidInputError(
        f"item ids must be positions in a catalogue, up to {LARGEST_ID}; got {code}",
        advice="Product codes are labels: pass them as strings, or read them with {as_labels:True}.",
    )


def _all_integers(words: Iterable[str]) -> bool:
    return all(map(_INTEGER.fullmatch, set(words)))
