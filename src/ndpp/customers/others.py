"""What customers buy next by what other customers with such a history bought next: a linear model of low rank.

A customer's vector is v = Vᵀh / ‖h‖, the mean of the factors of what was bought, where h are the decayed counts. Item a then has the
chance p″_a = p′_a + c_a + v·w_a. :mod:`ndpp.customers.pulls` learns V, c and w.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.inference.ranking import ZERO_CHANCE

LEAST = 0.2
"""The part of a chance that is left, however rarely such customers buy the item."""
MAX_CHANCE = 1 - 1e-9
"""Largest chance of an item: its log-odds stay finite."""


class Others(NamedTuple):
    """Item factors V (n, k), pulls of customers' vectors on items (k, n), and c (n,)."""

    items: AnyArray
    pulls: AnyArray
    shift: AnyArray

    def moved(self, chances: FloatArray, counts: Any) -> FloatArray:
        """Return p″ from p′ and the counts of what was bought, a row per customer; p′ where these are empty or an item cannot be."""
        norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1), np.float64))
        vectors = (counts @ self.items) / np.where(norms > 0, norms, 1.0)[:, None]
        change = np.where(norms > 0, 1.0, 0.0)[:, None] * (vectors @ self.pulls + self.shift)
        return np.where(chances > ZERO_CHANCE, np.clip(chances + change, LEAST * chances, MAX_CHANCE), chances)

    def placed(self, place: IntArray, n_items: int) -> Others:
        """Return the same with the item ``place[a]`` instead of a, if that is not −1; other items do not matter."""
        kept, found = (
            place >= 0,
            Others(*(np.zeros(shape) for shape in ((n_items, len(self.pulls)), (len(self.pulls), n_items), n_items))),
        )
        found.items[place[kept]], found.shift[place[kept]] = self.items[kept], self.shift[kept]
        found.pulls[:, place[kept]] = self.pulls[:, kept]
        return found
