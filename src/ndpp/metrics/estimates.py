"""The result of a metric: a value, a bootstrap interval, and the value for each class of basket sizes.

Percentile bootstrap over baskets: the interval shows how the value varies between samples of baskets, not between
models trained anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
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

    def intervals(self, values: FloatArray) -> FloatArray:
        """Return the interval of the mean of each column, shape (2, columns); NaN without values or resamples.

        All columns share the resamples.
        """
        n = len(values)
        if not (n and self.n_boot):
            return np.full((2, values.shape[1]), np.nan)
        at_once = max(1, CHUNK_VALUES // n)
        counts = [min(at_once, self.n_boot - done) for done in range(0, self.n_boot, at_once)]
        means = np.concatenate([self._times(count, n) @ values / n for count in counts])
        return np.asarray(np.quantile(means, [(1 - self.level) / 2, (1 + self.level) / 2], axis=0))

    def _times(self, count: int, n: int) -> FloatArray:
        """Return how often each of ``n`` baskets is in each of ``count`` resamples."""
        drawn = self.rng.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        return np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n).astype(np.float64)


def mean_estimate(name: str, values: FloatArray, sizes: IntArray, bootstrap: Bootstrap) -> Estimate:
    """Return the mean of one value per basket. Values of −inf are excluded and counted in ``n_zero``."""
    possible = values > -np.inf
    column = Column(name, values, int(np.sum(~possible)))
    (found,) = mean_estimates([column.at(possible)], sizes[possible], bootstrap)
    return found


class Column(NamedTuple):
    """One value per basket; −inf for the ``n_zero`` baskets that the model cannot have."""

    name: str
    values: FloatArray
    n_zero: int

    def at(self, chosen: BoolArray) -> Column:
        """Return the values of some baskets."""
        return self._replace(values=self.values[chosen])


def difference(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return first − second, −inf where either is."""
    with np.errstate(invalid="ignore"):
        return np.where((first > -np.inf) & (second > -np.inf), first - second, -np.inf)


def mean_estimates(columns: Sequence[Column], sizes: IntArray, bootstrap: Bootstrap) -> list[Estimate]:
    """Return the means of columns of finite values, with intervals from the same resamples."""
    table = np.stack([column.values for column in columns], axis=1) if columns else np.empty((len(sizes), 0))
    edges = 2 ** np.arange(-1, 64, dtype=float)  # 0 | 1 | 2 | 3–4 | 5–8 | …
    index = np.searchsorted(edges, sizes)
    classes = [((0, 0) if i == 0 else (int(edges[i - 1]) + 1, int(edges[i])), index == i) for i in np.unique(index)]
    out = []
    for (name, values, n_zero), (low, high) in zip(columns, bootstrap.intervals(table).T.tolist()):
        by_size = tuple(SizeClass(*ends, float(values[inside].mean()), int(inside.sum())) for ends, inside in classes)
        value = float(values.mean()) if len(values) else np.nan
        out.append(Estimate(name, value, low, high, bootstrap.level, len(values), n_zero, by_size))
    return out
