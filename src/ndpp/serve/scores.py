"""Next-item scores of a model that is asked many times: what does not depend on the basket is computed once.

The score of item i for a basket J is L_ii − L_iJ L_J⁻¹ L_Ji. With X W and the diagonal of L in memory it costs O(n d |J|), or O(n |J|²)
if the rows and columns of J's items are kept from earlier requests; :func:`ndpp.next_item_scores` costs O(n r²). Each score carries a
bound of its rounding error; where the bound matters, and for every other kind of model, the library's own routine answers.

The score of a mixture with shared ties is that of its ties, a kernel, times the popularity of the item given the basket.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

import ndpp
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.laws.law import NEGLIGIBLE_POSTERIOR
from ndpp.laws.tied import TiedMixture

MOST_ENTRIES = 50_000_000
"""Entries of X up to which it is kept in double precision."""
KEPT_BYTES = 128 * 2**20
"""Bytes of rows and columns of L that are kept, of the items asked for last."""
WORST_CONDITION = 1e8
"""Condition number of L_J beyond which the careful routine is asked."""
ERROR = 64 * float(np.finfo(np.float64).eps)
"""Relative rounding error of the terms of a score, for a condition number of one."""
VISIBLE = 1e-6
"""Share of the best score that rounding may reach."""


class KernelTable:
    """X, X W, the diagonal of L, its part that is not X W Xᵀ, and which items can occur; rows and columns of L that were asked for."""

    def __init__(self, kernel: ndpp.LowRankKernel) -> None:
        self.X: FloatArray = np.asarray(kernel.X, np.float64)
        self.XW: FloatArray = self.X @ np.asarray(kernel.W, np.float64)
        given = getattr(kernel, "background", None)
        self.background: FloatArray = np.zeros(len(self.X)) if given is None else np.asarray(given, np.float64)
        self.diagonal: FloatArray = np.einsum("ij,ij->i", self.XW, self.X) + self.background
        self.possible: BoolArray = np.zeros(len(self.X), bool)
        self.possible[kernel.support] = True
        self._kept: OrderedDict[int, tuple[FloatArray, FloatArray]] = OrderedDict()
        self._most = KEPT_BYTES // (16 * len(self.X))
        self._lock = threading.Lock()

    def lines(self, basket: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return L_iJ and L_Ji for all items i, each of shape (|J|, n). O(n d) for each item that was not asked for lately."""
        with self._lock:
            found = {j: self._kept[j] for j in basket.tolist() if j in self._kept}
            for j in found:
                self._kept.move_to_end(j)
        missing = [j for j in basket.tolist() if j not in found]
        if missing:
            columns, lines = self.X[missing] @ self.XW.T, self.XW[missing] @ self.X.T
            found |= {j: (columns[i], lines[i]) for i, j in enumerate(missing)}
            with self._lock:
                self._kept |= {j: (columns[i].copy(), lines[i].copy()) for i, j in enumerate(missing)}
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        pairs = [found[j] for j in basket.tolist()]
        empty = np.empty((0, len(self.X)))
        return np.array([a for a, _ in pairs] or empty), np.array([b for _, b in pairs] or empty)

    def parts(self, basket: IntArray, items: IntArray | None) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return L_J, L_iJ and L_Ji (|J| rows each) and L_ii for these items i, or for all."""
        X, XW = self.X[basket], self.XW[basket]
        L = XW @ X.T + np.diag(self.background[basket])
        if items is None:
            return L, *self.lines(basket), self.diagonal
        return L, X @ self.XW[items].T, XW @ self.X[items].T, self.diagonal[items]


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model and, if it is a kernel or a mixture with shared ties whose X fits into memory, its table."""

    law: Any
    table: KernelTable | None

    @classmethod
    def prepare(cls, law: Any) -> Scorer:
        """Return the scorer of a model."""
        kernel = law.base if isinstance(law, TiedMixture) else law
        rows = getattr(kernel, "X", None)
        fits = isinstance(rows, np.ndarray) and rows.size <= MOST_ENTRIES
        return cls(law, KernelTable(kernel) if fits and isinstance(kernel, ndpp.LowRankKernel) else None)

    def scores(self, basket: IntArray, items: IntArray | None = None) -> FloatArray:
        """Return the scores of these items, or of all, as :func:`ndpp.next_item_scores` does."""
        found = None if self.table is None else _quick(self.table, basket, items)
        if found is not None and isinstance(self.law, TiedMixture):
            posterior = self.law.responsibilities(basket, whole=True)
            probable = np.flatnonzero(posterior > NEGLIGIBLE_POSTERIOR)
            odds = self.law.odds[probable] if items is None else self.law.odds[np.ix_(probable, items)]
            return np.asarray(found * (posterior[probable] @ odds))
        if found is not None:
            return found
        careful = ndpp.next_item_scores(self.law, basket)
        return careful if items is None else careful[items]


def _quick(table: KernelTable, basket: IntArray, items: IntArray | None) -> FloatArray | None:
    """Return the scores, or None where rounding may show."""
    if not table.possible[basket].all():
        return None
    L, columns, lines, diagonal = table.parts(basket, items)
    own, most = np.diag(L), np.abs(L).max(initial=0.0, axis=1)
    sizes = np.sqrt(np.where(own > 1e-9 * most, own, most))[:, None]  # a purely skew kernel has no diagonal
    if not (np.all(np.isfinite(L)) and np.all(sizes > 0)):
        return None
    scaled = L / sizes / sizes.T
    condition = np.linalg.cond(scaled) if len(basket) else 1.0
    if not condition < WORST_CONDITION:
        return None
    terms = (columns / sizes) * np.linalg.solve(scaled, lines / sizes)
    out = diagonal - terms.sum(axis=0)
    noise = ERROR * condition * (np.abs(diagonal) + np.abs(terms).sum(axis=0))
    out[(out <= noise) | ~(table.possible if items is None else table.possible[items])] = 0.0
    if items is None:
        out[basket] = noise[basket] = 0.0
    return None if np.any(noise > VISIBLE * out.max(initial=0.0)) else out
