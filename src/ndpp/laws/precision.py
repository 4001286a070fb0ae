"""What is said about rounding: one rule for all probabilities and samplers of a kernel."""

from __future__ import annotations

import warnings
from functools import cached_property

import numpy as np

from ndpp._types import FloatArray
from ndpp._validation import check_count
from ndpp.errors import ImpossibleSizeError, PrecisionError, PrecisionWarning, ZeroProbabilityError
from ndpp.laws.support import ItemRows
from ndpp.linalg import TiltedLaw, rounding_error, tilted_law

WARN_ERROR, REFUSE_ERROR = 5e-8, 1e-3
"""Relative errors above which a :class:`PrecisionWarning` is given and a :class:`PrecisionError` raised."""
FREE = "the probabilities of sets of any size"


class Judged(ItemRows):
    """The distribution of T, the items that come together, and what rounding does to it."""

    @cached_property
    def _law(self) -> TiltedLaw:
        return tilted_law(self.coordinates, 1.0)

    @cached_property
    def _free_error(self) -> float:
        return rounding_error(self.coordinates, 1.0)

    def check_precision(self) -> None:
        """Warn or raise if rounding matters to the distribution of all sets. O(r³), once."""
        say_precision(self._free_error, FREE, stacklevel=4)

    def free_law(self, given: FloatArray | None = None, *, factor: float = 1.0) -> TiltedLaw:
        """Return the distribution of the number of items beside those with rows ``given`` of Q; warn or raise if it is inaccurate.

        The error of what is computed from it is larger by ``factor``. For items that never occur together, it is that of all sets.
        """
        law, error = self._law, self._free_error
        if given is not None and len(given):
            law = tilted_law(self.coordinates, 1.0, given)
            error = rounding_error(self.coordinates, 1.0, given) if law.log_weight > -np.inf else error
        say_precision(factor * error, FREE, stacklevel=4)
        return law


def say_precision(error: float, what: str, *, stacklevel: int = 3) -> None:
    """Warn or raise if the estimated relative error of ``what`` is too large."""
    if error > REFUSE_ERROR:
        raise PrecisionError(
            f"{what} depend on directions of X too small for double precision (relative error about {error:.1g}). "
            "Ask for a smaller size, rescale X, or drop its smallest directions."
        )
    if error > WARN_ERROR:
        warnings.warn(
            f"{what}: the smallest directions of X leave a relative error of about {error:.1g}",
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
