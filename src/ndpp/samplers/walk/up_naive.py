"""The up-step of a walk by enumeration of all pairs: the oracle of the others.

Law: exactly ∝ det L_{A ∪ {a, b}}. Each of these minors is computed from scratch, so a singular L_A needs no special
care. Cost: O(n² k³) per step; only for small catalogues.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import unit_of
from ndpp.samplers.naive import MAX_ERROR, minors, weights
from ndpp.samplers.walk.up import no_pair

CHUNK = 1 << 22
"""Maximum number of matrix entries formed at once."""


@dataclass(frozen=True)
class NaiveUp:
    """Enumerate all pairs, of at most ``max_items`` items.

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
        L = kernel.to_dense()[np.ix_(kernel.support, kernel.support)]
        return PreparedNaiveUp(kernel, L / unit_of(L))


@dataclass(frozen=True, eq=False)
class PreparedNaiveUp:
    """The up-step for one kernel; ``L`` is dense, on the support, scaled to order one."""

    kernel: LowRankKernel
    L: FloatArray

    def law(self, kept_rows: IntArray) -> tuple[IntArray, FloatArray]:
        """Return all pairs of other rows, shape (p, 2), and their probabilities."""
        free = np.delete(np.arange(len(self.L)), kept_rows)
        pairs = free[np.column_stack(np.triu_indices(len(free), 1))]
        sets = np.hstack([np.broadcast_to(kept_rows, (len(pairs), len(kept_rows))), pairs])
        chunks = np.array_split(sets, max(1, sets.size * sets.shape[1] // CHUNK))
        values, errors = np.concatenate([minors(self.L, chunk) for chunk in chunks], axis=1)
        if (
            not errors.sum() <= MAX_ERROR * values.sum()
        ):  # so close to dependent that minors of the dense L are rounding
            values = weights(self.kernel, sets)
        if not values.any():
            raise no_pair()
        return pairs, values / values.sum()

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, dict[str, float]]:
        """Draw a pair that completes the rows kept; nothing is rejected."""
        pairs, law = self.law(kept_rows)
        return pairs[rng.choice(len(pairs), p=law)], {"proposals": 1, "rejections": 0}
