"""Draw an item by computing all weights: the oracle of the other indexes.

Exact. Cost O(n r²) per call, in row blocks, whatever the number of draws. Nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator

from ndpp._types import FloatArray
from ndpp.items.base import ItemDraws, ItemIndex, check_query, check_total, invert_cdf, nonnegative
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import quadratic_forms


@dataclass(frozen=True, eq=False)
class Scan(ItemIndex):
    """All weights, computed again for each M."""

    kernel: LowRankKernel

    @classmethod
    def prepare(cls, kernel: LowRankKernel) -> Scan:
        """Return the index; there is nothing to prepare."""
        return cls(kernel)

    def weights(self, M: FloatArray) -> FloatArray:
        """Return q_aᵀ M q_a for every row of the support."""
        weights = np.empty(self.kernel.n_rows)
        for block, part in self.kernel.q_map(partial(quadratic_forms, M=M)):
            weights[block] = part
        return weights

    def draw_counted(
        self, rng: Generator, M: FloatArray, *, bound: float = 1.0, factor: FloatArray | None = None
    ) -> ItemDraws:
        """Draw a row by inverting the distribution function; see :meth:`ItemIndex.draw_counted`."""
        check_query(M, self.kernel.rank)
        weights = self.weights(M)
        total = float(weights.sum())
        check_total(total)
        return ItemDraws(invert_cdf(nonnegative(weights, total), rng.random(1)), 1)
