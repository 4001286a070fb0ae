"""The result of a metric: a value, a bootstrap interval, and the value for each class of basket sizes.

Percentile bootstrap over baskets: the interval shows how the value varies between samples of baskets, not between
models trained anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError

CHUNK_VALUES = 2_000_000
"""Number of resampled values in memory at a time."""


class SizeClass(NamedTuple):
    """The metric over the ``n`` baskets of ``least`` to ``most`` items."""

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
        Name of the metric.
    value : float
        The metric over ``n`` baskets; NaN if ``n`` is 0.
    low, high, level : float
        Bootstrap interval and its level, such as 0.95; the interval is NaN without resamples.
    n : int
        Number of baskets included.
    n_zero : int
        Number of baskets with probability zero under the model. They are excluded, except from AUC.
    by_size : tuple of SizeClass
        The metric over the baskets of 0, 1, 2, 3–4, 5–8, 9–16, … items.
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


@dataclass(frozen=True)
class Bootstrap:
    """The level of an interval, the number of resamples, and a source of randomness."""

    level: float
    n_boot: int
    rng: np.random.Generator

    def __post_init__(self) -> None:
        check_count(self.n_boot, "n_boot")
        if not 0 < self.level < 1:
            raise InvalidInputError(f"level must lie between 0 and 1, such as 0.95; got {self.level}")

    def interval(self, values: FloatArray) -> tuple[float, float]:
        """Return the interval of the mean; NaN without values or resamples."""
        n = len(values)
        if not (n and self.n_boot):
            return np.nan, np.nan
        at_once = max(1, CHUNK_VALUES // n)
        counts = [min(at_once, self.n_boot - done) for done in range(0, self.n_boot, at_once)]
        means = [values[self.rng.integers(n, size=(count, n))].mean(axis=1) for count in counts]
        low, high = np.quantile(np.concatenate(means), [(1 - self.level) / 2, (1 + self.level) / 2])
        return float(low), float(high)


def mean_estimate(
    name: str, values: FloatArray, sizes: IntArray, bootstrap: Bootstrap, *, n_zero: int | None = None
) -> Estimate:
    """Return the mean of one value per basket. Values of −inf are excluded; ``n_zero`` defaults to their number."""
    possible = values > -np.inf
    n_zero = int(np.sum(~possible)) if n_zero is None else n_zero
    values, sizes = values[possible], sizes[possible]
    value = float(values.mean()) if len(values) else np.nan
    low, high = bootstrap.interval(values)
    edges = 2 ** np.arange(-1, 64, dtype=float)  # 0 | 1 | 2 | 3–4 | 5–8 | …
    index, by_size = np.searchsorted(edges, sizes), []
    for i in np.unique(index):
        inside = values[index == i]
        least, most = (0, 0) if i == 0 else (int(edges[i - 1]) + 1, int(edges[i]))
        by_size.append(SizeClass(least, most, float(inside.mean()), len(inside)))
    return Estimate(name, value, low, high, bootstrap.level, len(values), n_zero, tuple(by_size))
