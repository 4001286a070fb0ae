"""The result of a metric: a value and a bootstrap interval.

Percentile bootstrap over baskets: the interval shows how the value varies between samples of baskets, not between
models trained anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from ndpp._types import FloatArray, RngLike
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError

CHUNK_VALUES = 2_000_000
"""Number of resampled values in memory at a time."""


@dataclass(frozen=True)
class Metric:
    """A metric over ``n`` baskets. ``float(estimate)`` is its value, NaN if ``n`` is 0.

    ``low`` and ``high`` are the bootstrap interval of a ``level`` such as 0.95, NaN without resamples. ``n_zero`` counts the baskets of
    probability zero under the model; they are excluded, except from AUC.
    """

    name: str
    value: float
    low: float
    high: float
    level: float
    n: int
    n_zero: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        text = f"{self.name} {self.value:.4g}"
        if np.isfinite(self.low):
            text += f" ({self.level:.0%} interval {self.low:.4g} to {self.high:.4g})"
        zero = f", {self.n_zero} more of probability zero" if self.n_zero else ""
        return f"{text} on {self.n} baskets{zero}"


class Resampling(TypedDict, total=False):
    """The options of :class:`Bootstrap`."""

    level: float
    n_boot: int
    rng: RngLike


@dataclass
class Bootstrap:
    """The level of an interval, the number of resamples, and a source of randomness."""

    level: float = 0.95
    n_boot: int = 1000
    rng: RngLike = None

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.rng)
        check_count(self.n_boot, "n_boot")
        if not 0 < self.level < 1:
            raise InvalidInputError(f"must lie between 0 and 1, such as 0.95; got {self.level}", argument="level")

    def intervals(self, values: FloatArray) -> FloatArray:
        """Return the interval of the mean of each column, shape (2, columns); NaN without values or resamples.

        All columns share the resamples.
        """
        n = len(values)
        if not (n and self.n_boot):
            return np.full((2, values.shape[1]), np.nan)
        at_once = max(1, CHUNK_VALUES // n)
        counts = [min(at_once, self.n_boot - done) for done in range(0, self.n_boot, at_once)]
        columns = np.ascontiguousarray(
            values.T
        )  # one by one: the mean of one depends on no other, not even its rounding
        parts = (self._times(count, n) for count in counts)
        means = np.concatenate([np.stack([times @ column for column in columns], axis=1) for times in parts]) / n
        return np.asarray(np.quantile(means, [(1 - self.level) / 2, (1 + self.level) / 2], axis=0))

    def _times(self, count: int, n: int) -> FloatArray:
        """Return how often each of ``n`` baskets is in each of ``count`` resamples."""
        drawn = self.generator.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        return np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n).astype(np.float64)


class PerBasket(NamedTuple):
    """One value per basket; −inf for the ``n_zero`` baskets that the model cannot have."""

    name: str
    values: FloatArray
    n_zero: int


def mean_estimate(name: str, values: FloatArray, bootstrap: Bootstrap) -> Metric:
    """Return the mean of one value per basket. Values of −inf are excluded and counted in ``n_zero``."""
    possible = values > -np.inf
    (found,) = mean_estimates([PerBasket(name, values[possible], int(np.sum(~possible)))], bootstrap)
    return found


def mean_estimates(columns: Sequence[PerBasket], bootstrap: Bootstrap) -> list[Metric]:
    """Return the means of columns of finite values, with intervals from the same resamples."""
    if not columns:
        return []
    bounds = bootstrap.intervals(np.stack([column.values for column in columns], axis=1))
    means = [float(values.mean()) if len(values) else np.nan for _, values, _ in columns]
    return [
        Metric(name, mean, low, high, bootstrap.level, len(values), n_zero)
        for (name, values, n_zero), mean, (low, high) in zip(columns, means, bounds.T.tolist())
    ]


def difference(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return first − second, −inf where either is."""
    with np.errstate(invalid="ignore"):
        return np.where((first > -np.inf) & (second > -np.inf), first - second, -np.inf)
