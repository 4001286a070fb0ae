"""What drawing an item shares with other draws: a check of weights, and the inverse of a distribution function."""

from __future__ import annotations

import numpy as np

from ndpp._compiled import jitable
from ndpp._types import FloatArray
from ndpp.errors import PrecisionError, ZeroProbabilityError


def check_total(total: float) -> None:
    """Raise unless the sum of all weights is a positive number."""
    if not np.isfinite(total):
        raise PrecisionError(f"the weights qᵀMq sum to {total}; M has NaN or infinite entries, or the sum overflows")
    if total <= 0:
        raise ZeroProbabilityError(
            f"no item has a positive weight qᵀMq (they sum to {total:.3g}); there is nothing to draw"
        )


@jitable(error_model="numpy")
def look_up_cdf(cdf: FloatArray, uniform: float) -> int:
    """Return an index with probability ∝ its weight, given the sums of all weights and a uniform in [0, 1); never one of weight zero."""
    place = np.searchsorted(cdf, uniform * cdf[-1], side="right")
    if (
        place == cdf.size
    ):  # a uniform just below one may round to the total itself; it gets the last index that has any weight
        place = np.searchsorted(cdf, cdf[-1])
    return int(place)
