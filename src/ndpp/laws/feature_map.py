"""What features of items, such as category and price, say about new items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ndpp._types import FloatArray, IntArray
from ndpp.errors import InvalidInputError


class FeatureMap(NamedTuple):
    """What features of an item say about it: its row of ties is f · ``ties`` (f, d), its log-odds (f, 1) · ``log_odds`` (f + 1, C)."""

    ties: FloatArray
    log_odds: FloatArray

    def of(self, features: Mapping[str, ArrayLike]) -> tuple[FloatArray, FloatArray]:
        """Return the rows of ties (m, d) and the log-odds (C, m) of new items."""
        rows, width = np.empty((len(features), len(self.ties))), len(self.ties)
        for row, (label, vector) in zip(rows, features.items()):
            found = np.asarray(vector.toarray() if hasattr(vector, "toarray") else vector, np.float64).ravel()
            if len(found) != width or not np.isfinite(found).all():
                problem = f"must be {width} finite numbers each, as the model was fitted with; those of {label!r} are {len(found)}"
                raise InvalidInputError(problem, argument="features")
            row[:] = found
        return rows @ self.ties, self.log_odds.T @ np.column_stack([rows, np.ones(len(rows))]).T

    def of_components(self, which: IntArray) -> FeatureMap:
        """Return the same for some of the components."""
        return FeatureMap(self.ties, self.log_odds[:, which])
