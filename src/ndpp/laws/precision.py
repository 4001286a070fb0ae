"""What is said about rounding: one rule for all probabilities and samplers of a kernel."""

from __future__ import annotations

import warnings

import numpy as np

from ndpp._validation import check_count
from ndpp.errors import ImpossibleSizeError, PrecisionError, PrecisionWarning, ZeroProbabilityError

WARN_ERROR, REFUSE_ERROR = 5e-8, 1e-3
"""Relative errors above which a :class:`PrecisionWarning` is given and a :class:`PrecisionError` raised."""
MARGIN = 8.0
"""What one perturbation shows, times this, is taken for the rounding error."""
FREE = "the probabilities of sets of any size"


ADVICE = "Ask for a smaller size, rescale X, or drop its smallest directions."
ADVICE_ON_SIZES = (
    "Ask for a smaller size, an even one if W is nearly skew, or drop small directions of X; rescaling X does not help."
)


def say_precision(error: float, what: str, *, stacklevel: int = 3, advice: str = ADVICE) -> None:
    """Warn or raise if the estimated relative error of ``what`` is too large."""
    if error == np.inf:
        raise PrecisionError(f"{what} are beyond double precision; ask for others, or rescale the distribution")
    if error > REFUSE_ERROR:
        raise PrecisionError(
            f"{what} depend on directions of X or parts of W too small for double precision (relative error about {error:.1g}). {advice}"
        )
    if error > WARN_ERROR:
        warnings.warn(
            f"{what}: small directions of X, or parts of W, leave a relative error of about {error:.1g}",
            PrecisionWarning,
            stacklevel=stacklevel,
        )


def check_given(size: int, n_given: int) -> int:
    """Return the size of sets that contain ``n_given`` items; raise where it is smaller."""
    if check_count(size, "size") < n_given:
        raise ImpossibleSizeError(
            f"size counts the given items; {n_given} are given, but size is {size}: ask for at least {n_given}"
        )
    return size


def never_together(n_given: int) -> ZeroProbabilityError:
    """Return the error for items that never occur together."""
    return ZeroProbabilityError(
        f"the {n_given} given items have probability zero of being in a sample together; give fewer or other items"
    )
