"""The interface of all indexes: draw an item a with probability ∝ q_aᵀ M q_a.

q_a is row a of Q, the kernel's coordinates (L = Q B Qᵀ, orthonormal columns), and M a positive semidefinite matrix of order r. Exact
samplers, tree samplers and the up-steps of the walk all reduce to such draws, with one M after another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from ndpp._types import FloatArray, IntArray
from ndpp._validation import PROBABILITY_TOLERANCE, frozen
from ndpp.errors import InvalidInputError, PrecisionError, ZeroProbabilityError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import quadratic_forms


class ItemDraws(NamedTuple):
    """One row of the kernel's support, or several in the order drawn, and how many rows were proposed to obtain them."""

    rows: IntArray
    proposals: int


class ItemIndex(ABC):
    """An index over the rows of a kernel's Q that draws items for any M. Immutable, so threads may share it."""

    kernel: LowRankKernel

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpickled arrays would be writeable, and code would be compiled again for them.
        vars(self).update(
            {name: frozen(part) if isinstance(part, np.ndarray) else part for name, part in state.items()}
        )

    @abstractmethod
    def draw_counted(
        self, rng: Generator, M: FloatArray, *, bound: float = 1.0, factor: FloatArray | None = None
    ) -> ItemDraws:
        """Draw one row, a with probability ∝ q_aᵀ M q_a, and count the proposals.

        Parameters
        ----------
        rng : numpy.random.Generator
        M : (r, r) array
            Positive semidefinite up to rounding; only its symmetric part matters.
        bound : float
            A number with ``M ⪯ bound · I``. Only an index that draws by rejection uses it.
        factor : (r, p) array, optional
            V with M = V Vᵀ, if known: a weight then costs O(r p) instead of O(r²).
        """

    def draw(self, rng: Generator, M: FloatArray, *, bound: float = 1.0) -> int:
        """Return the row that :meth:`draw_counted` draws."""
        return int(self.draw_counted(rng, M, bound=bound).rows[0])


def row_weights(kernel: LowRankKernel, rows: IntArray, M: FloatArray, factor: FloatArray | None) -> FloatArray:
    """Return q_aᵀ M q_a for these rows of the support, as ‖Vᵀq_a‖² if the factor V of M is given."""
    if factor is None:
        return quadratic_forms(kernel.q_rows(rows), M)
    Q, to_q = kernel.coordinates.Q, kernel.coordinates.to_q
    # If Q is not kept, x_aᵀ(to_q V) is cheaper than the row of Q.
    part = Q[rows] @ factor if Q is not None else kernel.x_rows(rows) @ (to_q @ factor)
    return np.asarray(np.einsum("ij,ij->i", part, part))


def check_query(M: FloatArray, rank: int) -> None:
    """Raise unless ``M`` is of order ``rank``."""
    if M.shape != (rank, rank):
        raise InvalidInputError(f"M must have shape ({rank}, {rank}), the rank of the kernel; it has {M.shape}")


def check_total(total: float) -> None:
    """Raise unless the sum of all weights is a positive number."""
    if not np.isfinite(total):
        raise PrecisionError(f"the weights qᵀMq sum to {total}; M has NaN or infinite entries, or the sum overflows")
    if total <= 0:
        raise ZeroProbabilityError(
            f"no item has a positive weight qᵀMq (they sum to {total:.3g}); there is nothing to draw"
        )


def nonnegative(weights: FloatArray, total: float) -> FloatArray:
    """Return ``weights`` with negative rounding errors set to zero; raise if they are larger than rounding."""
    low = float(weights.min(initial=0.0))
    if not low >= -PROBABILITY_TOLERANCE * total:
        raise PrecisionError(
            f"a weight qᵀMq is {low:.3g}, while all of them sum to {total:.3g}: M is not positive semidefinite. "
            "Either it is not an inclusion matrix, or double precision is not enough to compute it."
        )
    return np.maximum(weights, 0.0)


def invert_cdf(weights: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return an index for each uniform in [0, 1), with probability ∝ its weight; never one of weight zero."""
    return look_up_cdf(np.cumsum(weights), uniforms)


def look_up_cdf(cdf: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return :func:`invert_cdf` of the weights whose sums are ``cdf``."""
    places = np.searchsorted(cdf, uniforms * cdf[-1], side="right")
    # A uniform just below one may round to the total itself; it gets the last index that has any weight.
    return np.asarray(np.minimum(places, np.searchsorted(cdf, cdf[-1], side="left")))
