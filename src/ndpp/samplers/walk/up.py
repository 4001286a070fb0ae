"""The up-step of a walk: given the items kept, A, draw a pair {a, b} with probability ∝ det L_{A ∪ {a, b}}.

An up-step holds only settings (``DirectUp()``, ``RejectionUp()``, ``NaiveUp()``); ``prepare`` computes what depends on
the kernel alone. Here is what always works: :func:`safe_form`, one item at a time, for kept items whose L_A is singular, and
:class:`NaiveUp`, by enumeration of all pairs, for small catalogues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError, PrecisionError, ZeroProbabilityError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.size_law import inclusion_matrix
from ndpp.linalg.sizes import ROUNDED
from ndpp.samplers.naive import dense, weights


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


def safe_form(kernel: LowRankKernel, kept_rows: IntArray, missing: int) -> FloatArray:
    """Return M of one of the ``missing`` items that complete the rows kept, without L_A⁻¹: L_A may be singular. O(r⁴)."""
    size = len(kept_rows) + missing
    M, surviving = inclusion_matrix(kernel.coordinates, size, kernel.q_rows(kept_rows))
    if size > kernel.rank or surviving < ROUNDED:
        raise no_pair()
    if not abs(np.trace(M) - missing) < 1e-6:
        raise PrecisionError(
            f"inclusion probabilities given {len(kept_rows)} items sum to {np.trace(M):.6g}, not to {missing}: "
            "double precision is not enough for this step. Rescale X, or drop its smallest directions."
        )
    return M


@dataclass(frozen=True)
class NaiveUp:
    """Enumerate all pairs, of at most ``max_items`` items: the oracle of the other up-steps. O(n² k³) per step.

    Each minor is computed from scratch, so a singular L_A needs no special care.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> NaiveUp().prepare(kernel, 3).pair(np.random.default_rng(0), np.array([2]))[0]  # 0 and 1 only come together
    array([0, 1])
    """

    max_items: int = 500

    def prepare(self, kernel: LowRankKernel, size: int) -> PreparedNaiveUp:
        """Form the dense kernel."""
        n = len(kernel.support)
        if n > check_count(self.max_items, "max_items"):
            raise InvalidInputError(
                f"NaiveUp enumerates all pairs of items in every step and takes at most {self.max_items} items; this "
                f"kernel has {n}. Use DirectUp or RejectionUp, whose cost does not grow with n, or raise max_items."
            )
        return PreparedNaiveUp(kernel, dense(kernel))


@dataclass(frozen=True, eq=False)
class PreparedNaiveUp:
    """The up-step for one kernel; ``L`` is dense, on the support."""

    kernel: LowRankKernel
    L: FloatArray

    def law(self, kept_rows: IntArray) -> tuple[IntArray, FloatArray]:
        """Return all pairs of other rows, shape (p, 2), and their probabilities."""
        free = np.delete(np.arange(len(self.L)), kept_rows)
        pairs = free[np.column_stack(np.triu_indices(len(free), 1))]
        sets = np.hstack([np.broadcast_to(kept_rows, (len(pairs), len(kept_rows))), pairs])
        values = weights(self.kernel, self.L, [sets])
        if not values.any():
            raise no_pair()
        return pairs, values / values.sum()

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, dict[str, float]]:
        """Draw a pair that completes the rows kept; nothing is rejected."""
        pairs, law = self.law(kept_rows)
        return pairs[rng.choice(len(pairs), p=law)], {"proposals": 1, "rejections": 0}
