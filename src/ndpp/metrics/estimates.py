"""What a metric returns: a value, how sure it is, and how it depends on the size of the basket.

Intervals are percentile bootstraps over baskets: they say how the value would differ on other baskets of the same kind,
not how it would differ for a model trained anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError

RESAMPLED = 2_000_000
"""Numbers that are resampled at a time."""


class SizeClass(NamedTuple):
    """The value over the baskets of ``least`` to ``most`` items, and how many there are."""

    least: int
    most: int
    value: float
    n: int


@dataclass(frozen=True)
class Estimate:
    """A metric on a set of baskets. ``float(estimate)`` is its value.

    Attributes
    ----------
    name : str
        Of the metric.
    value : float
        The metric over ``n`` baskets; NaN if there are none.
    low, high : float
        Bootstrap interval of the level ``level``; NaN where none was asked for.
    level : float
        Of the interval, such as 0.95.
    n : int
        Number of baskets that count.
    n_zero : int
        Number of baskets to which the model gives probability zero. They do not count, but in AUC.
    by_size : tuple of SizeClass
        The metric over baskets of 0, 1, 2, 3–4, 5–8, 9–16, … items, as far as there are any.
    """

    name: str
    value: float
    low: float
    high: float
    level: float
    n: int
    n_zero: int
    by_size: tuple[SizeClass, ...]

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        text = f"{self.name} {self.value:.4g}"
        if np.isfinite(self.low):
            text += f" ({self.level:.0%} interval {self.low:.4g} to {self.high:.4g})"
        zero = f", {self.n_zero} more of probability zero" if self.n_zero else ""
        return f"{text} on {self.n} baskets{zero}"


class Bootstrap(NamedTuple):
    """How to make an interval: its level, the number of resamples, and a source of randomness."""

    level: float
    n_boot: int
    rng: np.random.Generator

    def checked(self) -> Bootstrap:
        """Return this record if it makes sense."""
        check_count(self.n_boot, "n_boot")
        if not 0 < self.level < 1:
            raise InvalidInputError(f"level must lie between 0 and 1, such as 0.95; got {self.level}")
        return self

    def interval(self, statistic: Callable[[IntArray], FloatArray], n: int) -> tuple[float, float]:
        """Return the interval of a statistic of n baskets.

        ``statistic`` takes an array of shape (resamples, n), whose rows say which baskets were drawn, and returns a
        value for each row.
        """
        if not (n and self.n_boot):
            return np.nan, np.nan
        at_once = max(1, RESAMPLED // n)
        counts = [min(at_once, self.n_boot - done) for done in range(0, self.n_boot, at_once)]
        values = np.concatenate([statistic(self.rng.integers(n, size=(count, n))) for count in counts])
        low, high = np.quantile(values, [(1 - self.level) / 2, (1 + self.level) / 2])
        return float(low), float(high)


def mean_estimate(name: str, values: FloatArray, sizes: IntArray, n_zero: int, bootstrap: Bootstrap) -> Estimate:
    """Return the mean of one value per basket."""
    value = float(values.mean()) if len(values) else np.nan
    low, high = bootstrap.interval(lambda drawn: values[drawn].mean(axis=1), len(values))
    classes = by_size(sizes, lambda chosen: float(values[chosen].mean()))
    return Estimate(name, value, low, high, bootstrap.level, len(values), n_zero, classes)


def by_size(sizes: IntArray, value: Callable[[IntArray], float]) -> tuple[SizeClass, ...]:
    """Return the classes of sizes that occur, each with the value over the numbers of its baskets."""
    edges = 2 ** np.arange(-1, 64, dtype=float)  # 0 | 1 | 2 | 3–4 | 5–8 | …
    classes = np.searchsorted(edges, sizes)
    out = []
    for i in np.unique(classes):
        chosen = np.flatnonzero(classes == i)
        least, most = (0, 0) if i == 0 else (int(edges[i - 1]) + 1, int(edges[i]))
        out.append(SizeClass(least, most, value(chosen), len(chosen)))
    return tuple(out)
