"""What both indexes share: checks of M and of the weights q_aᵀ M q_a, and the inverse of a distribution function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpp._compiled import jitable
from ndpp._types import FloatArray
from ndpp._validation import PROBABILITY_TOLERANCE, frozen
from ndpp.errors import InvalidInputError, PrecisionError, ZeroProbabilityError


class ReadOnly:
    """Arrays that no one can write, so that threads may share them; in a copy from another process, too."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpickled arrays would be writeable, and code would be compiled again for them.
        vars(self).update(
            {name: frozen(part) if isinstance(part, np.ndarray) else part for name, part in state.items()}
        )


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


@jitable(error_model="numpy")
def look_up_cdf(cdf: FloatArray, uniform: float) -> int:
    """Return an index with probability ∝ its weight, given the sums of all weights and a uniform in [0, 1); never one of weight zero."""
    place = np.searchsorted(cdf, uniform * cdf[-1], side="right")
    # A uniform just below one may round to the total itself; it gets the last index that has any weight.
    return int(min(place, np.searchsorted(cdf, cdf[-1])))
