"""The up-step of a walk: given the items kept, A, draw a pair {a, b} with probability ∝ det L_{A ∪ {a, b}}.

An up-step holds only settings (``DirectUp()``, ``RejectionUp()``, ``NaiveUp()``); ``prepare`` computes what depends on
the kernel alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ndpp._types import IntArray
from ndpp.errors import PrecisionError, ZeroProbabilityError
from ndpp.items import ItemDraws, ItemIndex
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import inclusion_matrix


class PreparedUp(Protocol):
    """An up-step for one kernel and sets of all sizes. It is immutable, so threads can share it."""

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, Mapping[str, float]]:
        """Return two rows that complete those kept, in ascending order, and counters (``proposals``, ``rejections``, …)."""


class UpStep(Protocol):
    """How a walk puts two items back."""

    def prepare(self, kernel: LowRankKernel, size: int) -> PreparedUp:
        """Compute what depends on the kernel alone, for sets of up to ``size`` items."""


def no_pair() -> ZeroProbabilityError:
    """Return the error for kept items that no pair completes."""
    return ZeroProbabilityError("no pair of items completes those kept: no set of this size contains them")


def draw_safely(rng: np.random.Generator, index: ItemIndex, kept_rows: IntArray, missing: int) -> ItemDraws:
    """Draw one of the ``missing`` items that complete the rows kept, without L_A⁻¹: L_A may be singular. O(r⁴)."""
    kernel = index.kernel
    M, surviving = inclusion_matrix(kernel.coordinates, len(kept_rows) + missing, kernel.q_rows(kept_rows))
    if surviving == 0:
        raise no_pair()
    if not abs(np.trace(M) - missing) < 1e-6:
        raise PrecisionError(
            f"inclusion probabilities given {len(kept_rows)} items sum to {np.trace(M):.6g}, not to {missing}: "
            "double precision is not enough for this step. Rescale X, or drop its smallest directions."
        )
    return index.draw_counted(rng, M)
