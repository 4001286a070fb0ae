"""Context: weights of the components given what else is known about a basket, such as the store and the weekday.

With the value x_f of each column f of context, w_c(x) ∝ w_c exp(Σ_f β_f[x_f, c]); the components themselves do not depend on it. Columns
of which nothing is known, and values that were not learned, add 0.

Conditioning, tilts and leaving out the empty set multiply the weight of component c by a number that does not depend on the other
weights, and then normalise. So all of these commute with the choice of a context, and what is made of a mixture keeps its β.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, cached_property
from ndpp._validation import check_choice, frozen
from ndpp.baskets.labels import word_of
from ndpp.errors import InvalidInputError, similar
from ndpp.linalg.logs import log_shares

MOST_SHIFT = 100.0
"""Largest |β|: a weight times e^100 is as good as certain."""
LISTED = 8
"""Values of a column that are listed."""


class Gain(NamedTuple):
    """What a column gains: log-likelihood per validation basket, beyond the columns kept before it; None if there was no time to tell."""

    column: str
    n_values: int
    gain: float | None
    error: float
    """The standard error of the gain."""
    kept: bool
    strength: float | None = None
    """λ, by which β was shrunk; None if none was tried."""

    def __str__(self) -> str:
        if self.gain is None:
            return f"{self.column} dropped: there was no time to judge it"
        done = "kept" if self.kept else "dropped"
        return f"{self.column} {done}: {self.gain:+.4f} ± {self.error:.4f} log-likelihood per basket, {self.n_values} values"


@dataclass(frozen=True, eq=False)
class Gate:
    """β of the columns of context: ``shifts`` has a row for each value of the first column, of the second, …; shape (values, C)."""

    levels: Mapping[str, tuple[str, ...]]
    shifts: FloatArray

    def __post_init__(self) -> None:
        if not self.levels or not all(self.levels.values()) or "" in self.levels:
            raise InvalidInputError("context should have columns with a name, and values in each of them")
        for name, words in self.levels.items():
            if len(set(words)) < len(words) or "" in words:
                raise InvalidInputError(f"the values of context {name!r} should be different words, none of them empty")
        shifts, n_levels = np.asarray(self.shifts), sum(map(len, self.levels.values()))
        if shifts.ndim != 2 or len(shifts) != n_levels or shifts.dtype.kind != "f":
            raise InvalidInputError(
                f"gate should have a row of numbers for each of the {n_levels} values of context; it is {shifts.shape}, {shifts.dtype}"
            )
        if not (np.abs(shifts) <= MOST_SHIFT).all():  # NaN is not
            raise InvalidInputError(f"gate should be numbers between −{MOST_SHIFT:g} and {MOST_SHIFT:g}")
        object.__setattr__(self, "shifts", frozen(shifts.astype(np.float64)))

    def of(self, which: IntArray) -> Gate:
        """Return the same for some of the components."""
        return Gate(self.levels, self.shifts[:, which])

    def without(self, columns: Container[str]) -> Gate | None:
        """Return the other columns; None if there is none."""
        left = {name: words for name, words in self.levels.items() if name not in columns}
        rows = [row for name in left for row in self._rows[name].values()]
        return Gate(left, self.shifts[rows]) if left else None

    @cached_property
    def _rows(self) -> dict[str, dict[str, int]]:
        numbers = iter(range(len(self.shifts)))
        return {name: {word: next(numbers) for word in words} for name, words in self.levels.items()}

    def rows(self, context: Mapping[str, Iterable[Any]], n_baskets: int, *, unknown: str = "error") -> IntArray:
        """Return the row of each value, by column and basket, −1 where there is none; raise if that may not be."""
        strict = check_choice(unknown, "unknown", ("error", "skip")) == "error"
        found = []
        for name, values in context.items():
            own, words = self._rows.get(name, {}), list(map(word_of, values))
            if len(words) != n_baskets:
                raise InvalidInputError(
                    f"must have {n_baskets} values of {name!r}, one per basket; got {len(words)}", argument="context"
                )
            if strict and not own:
                raise InvalidInputError(
                    f"{name!r} is not a column of context of this model; it has {some_of(list(self.levels))}"
                )
            found.append([own.get(word, -1) for word in words])
            if strict and -1 in found[-1]:
                raise _new_value(name, words[found[-1].index(-1)], list(own))
        return np.array(found, np.int64).reshape(len(context), n_baskets)

    def log_weights(self, log_weights: FloatArray, rows: IntArray) -> FloatArray:
        """Return log w_c(x) of many contexts, given by their rows; shape (contexts, C)."""
        shifts = np.vstack([self.shifts, np.zeros(self.shifts.shape[1])])
        return log_shares(log_weights + shifts[rows].sum(axis=0))


def _new_value(name: str, word: str, known: Sequence[str]) -> InvalidInputError:
    close = similar(word, known)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"the model knows {some_of(known)}"
    return InvalidInputError(f"unknown {name} {word!r}; {hint}", advice="{unknown:'skip'} takes the plain weights.")


def some_of(words: Sequence[str]) -> str:
    """Return the first words of many in one line."""
    more = f", … ({len(words)} in all)" if len(words) > LISTED else ""
    return ", ".join(map(repr, words[:LISTED])) + more
