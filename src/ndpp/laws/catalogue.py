"""The items that a distribution speaks of, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ndpp._types import IntArray, cached_property
from ndpp._validation import check_choice
from ndpp.errors import InvalidInputError, UnknownLabelError


@dataclass(frozen=True)
class Catalogue:
    """Items 0, 1, … ``n_items`` − 1, with or without labels."""

    n_items: int
    labels: tuple[str, ...] | None = None

    def ids(self, labels: Sequence[str], *, unknown: str = "error") -> IntArray:
        """Return the ids of items named by their labels; ``unknown="skip"`` leaves out those that are not in the catalogue."""
        if self.labels is None:
            raise InvalidInputError("the model has no labels; pass ids, or build it with labels=")
        if isinstance(labels, str):
            raise InvalidInputError(f"expected a list of labels; got {labels!r}. For one item, pass [{labels!r}]")
        new = [label for label in labels if label not in self._id_of]
        if new and check_choice(unknown, "unknown", ("error", "skip")) == "error":
            raise UnknownLabelError(new[0], self.labels)
        return np.array([self._id_of[label] for label in labels if label in self._id_of], np.int64)

    def __contains__(self, item: object) -> bool:
        """Return whether there is such an item, named by its label or its id."""
        return item in self._id_of if isinstance(item, str) else item in range(self.n_items)

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels or ())}
