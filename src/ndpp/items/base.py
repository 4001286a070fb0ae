"""The one question every index answers: draw an item a with probability ∝ q_aᵀ M q_a.

q_a is the a-th row of Q, the kernel's coordinates (``L = Q B Qᵀ``, orthonormal columns), and M a positive
semidefinite matrix of order r. Exact samplers, tree samplers and the up-steps of the walk all reduce to this
question, asked with one M after another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import PROBABILITY_TOLERANCE, check_count
from ndpp.errors import InvalidInputError, PrecisionError, ZeroProbabilityError
from ndpp.linalg import quadratic_forms

if TYPE_CHECKING:
    from ndpp.laws.kernel import LowRankKernel


class ItemDraws(NamedTuple):
    """Rows of the kernel's support, in the order drawn, and how many rows were proposed to get them."""

    rows: IntArray
    proposals: int


class ItemIndex(ABC):
    """Something prepared once for a kernel's Q that then draws items for any M. Immutable, so threads may share it."""

    kernel: LowRankKernel

    @abstractmethod
    def draw_counted(
        self,
        rng: np.random.Generator,
        M: FloatArray,
        n_draws: int = 1,
        *,
        bound: float = 1.0,
        factor: FloatArray | None = None,
    ) -> ItemDraws:
        """Draw ``n_draws`` independent rows, row a with probability ∝ q_aᵀ M q_a, and count the proposals.

        Parameters
        ----------
        rng : numpy.random.Generator
        M : (r, r) array
            Positive semidefinite up to rounding; only its symmetric part counts.
        n_draws : int
            How many rows.
        bound : float
            A number with ``M ⪯ bound · I``. Only an index that draws by rejection needs it.
        factor : (r, p) array, optional
            V with M = V Vᵀ, where it is known: single items then cost O(r p) and not O(r²).
        """

    def draw(self, rng: np.random.Generator, M: FloatArray, n_draws: int = 1, *, bound: float = 1.0) -> IntArray:
        """Draw ``n_draws`` independent rows of the support, row a with probability ∝ q_aᵀ M q_a."""
        return self.draw_counted(rng, M, n_draws, bound=bound).rows


def row_weights(kernel: LowRankKernel, rows: IntArray, M: FloatArray, factor: FloatArray | None) -> FloatArray:
    """Return q_aᵀ M q_a for these rows of the support; from ‖Vᵀq_a‖² where the factor V of M is given."""
    if factor is None:
        return quadratic_forms(kernel.q_rows(rows), M)
    Q, to_q = kernel.coordinates.Q, kernel.coordinates.to_q
    # Q is not kept for tall X: x_aᵀ(to_q V) is cheaper than the row of Q itself.
    part = Q[rows] @ factor if Q is not None else kernel.x_rows(rows) @ (to_q @ factor)
    return np.einsum("ij,ij->i", part, part)


def check_query(M: FloatArray, rank: int, n_draws: int) -> None:
    """Raise unless ``M`` is of order ``rank`` and ``n_draws`` a count."""
    if M.shape != (rank, rank):
        raise InvalidInputError(f"M must have shape ({rank}, {rank}), the rank of the kernel; it has {M.shape}")
    check_count(n_draws, "n_draws")


def check_total(total: float) -> None:
    """Raise unless the weights of all items together are a positive number."""
    if not np.isfinite(total):
        raise PrecisionError(
            f"the weights qᵀMq sum to {total}; M holds NaN or infinite entries, or overflows when summed"
        )
    if total <= 0:
        raise ZeroProbabilityError(
            f"M gives no item a positive weight (they sum to {total:.3g}): there is nothing to draw"
        )


def nonnegative(weights: FloatArray, total: float) -> FloatArray:
    """Return ``weights`` with rounding below zero removed; raise where it exceeds what rounding explains."""
    low = float(weights.min(initial=0.0))
    if not low >= -PROBABILITY_TOLERANCE * total:
        raise PrecisionError(
            f"a weight qᵀMq came out as {low:.3g} where all of them sum to {total:.3g}: M is not positive "
            "semidefinite. Either it is not an inclusion matrix, or double precision could not carry its computation."
        )
    return np.maximum(weights, 0.0)


def invert_cdf(weights: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return for each uniform in [0, 1) the place it falls in; a place of weight zero is never returned."""
    cdf = np.cumsum(weights)
    places = np.searchsorted(cdf, uniforms * cdf[-1], side="right")
    # A uniform next to one may round to the total itself: give it the last place that has any weight.
    return np.minimum(places, np.searchsorted(cdf, cdf[-1], side="left"))
