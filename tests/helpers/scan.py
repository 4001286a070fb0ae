"""Draw an item by computing all weights: the oracle of the other indexes.

Exact. Cost O(n r²) per call, in row blocks, whatever the number of draws. Nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator

from ndpp._types import FloatArray
from ndpp.items.base import check_query, check_total, look_up_cdf, nonnegative
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import quadratic_forms


@dataclass(frozen=True, eq=False)
class Scan:
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

    def draw(self, rng: Generator, M: FloatArray) -> int:
        """Draw a row by inverting the distribution function."""
        check_query(M, self.kernel.rank)
        weights = self.weights(M)
        total = float(weights.sum())
        check_total(total)
        return look_up_cdf(np.cumsum(nonnegative(weights, total)), rng.random())
