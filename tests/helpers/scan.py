"""Draw an item by computing all weights: the oracle of the other indexes.

Exact. Cost O(n r²) per call, in row blocks, whatever the number of draws. Nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator

from ndpp._types import FloatArray
from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.items.base import check_total, look_up_cdf
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
        if M.shape != (self.kernel.rank,) * 2:
            raise InvalidInputError(f"M must have shape {(self.kernel.rank,) * 2}; it has {M.shape}")
        weights = self.weights(M)
        total = float(weights.sum())
        check_total(total)
        if not weights.min() >= -PROBABILITY_TOLERANCE * total:
            raise PrecisionError("M is not positive semidefinite")
        return look_up_cdf(np.cumsum(np.maximum(weights, 0.0)), rng.random())
