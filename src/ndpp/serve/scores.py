"""Next-item scores of a kernel that is asked many times: what does not depend on the basket is computed once.

The score of item i for a basket J is L_ii − L_iJ L_J⁻¹ L_Ji. With X W and the diagonal of L in memory it costs O(n d |J|), where
:func:`ndpp.next_item_scores` costs O(n r²). Each score carries a bound of its rounding error; where the bound matters, and for every
other kind of model, the library's own routine answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp._types import BoolArray, FloatArray, IntArray

MOST_ENTRIES = 50_000_000
"""Entries of X up to which it is kept in double precision."""
WORST_CONDITION = 1e8
"""Condition number of L_J beyond which the careful routine is asked."""
ERROR = 64 * float(np.finfo(np.float64).eps)
"""Relative rounding error of the terms of a score, for a condition number of one."""
VISIBLE = 1e-6
"""Share of the best score that rounding may reach."""


class Table(NamedTuple):
    """X, X W, the diagonal of L, its part that is not X W Xᵀ, and which items can occur."""

    X: FloatArray
    XW: FloatArray
    diagonal: FloatArray
    background: FloatArray
    possible: BoolArray

    @classmethod
    def of(cls, kernel: ndpp.LowRankKernel) -> Table:
        """Compute what does not depend on the basket. O(n d²)."""
        X = np.asarray(kernel.X, np.float64)
        XW = X @ np.asarray(kernel.W, np.float64)
        given = getattr(kernel, "background", None)
        background = np.zeros(len(X)) if given is None else np.asarray(given, np.float64)
        possible = np.zeros(len(X), bool)
        possible[kernel.support] = True
        return cls(X, XW, np.einsum("ij,ij->i", XW, X) + background, background, possible)


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model and, if it is a kernel whose X fits into memory, its table."""

    law: Any
    table: Table | None

    @classmethod
    def prepare(cls, law: Any) -> Scorer:
        """Return the scorer of a model."""
        rows = getattr(law, "X", None)
        fits = isinstance(rows, np.ndarray) and rows.size <= MOST_ENTRIES
        return cls(law, Table.of(law) if fits and isinstance(law, ndpp.LowRankKernel) else None)

    def scores(self, basket: IntArray, items: IntArray | None = None) -> FloatArray:
        """Return the scores of these items, or of all, as :func:`ndpp.next_item_scores` does."""
        found = None if self.table is None else _quick(self.table, basket, items)
        if found is not None:
            return found
        careful = ndpp.next_item_scores(self.law, basket)
        return careful if items is None else careful[items]


def _quick(table: Table, basket: IntArray, items: IntArray | None) -> FloatArray | None:
    """Return the scores, or None where rounding may show."""
    X, XW, diagonal, background, possible = table
    if not possible[basket].all():
        return None
    which: Any = slice(None) if items is None else items
    L = XW[basket] @ X[basket].T + np.diag(background[basket])
    sizes = np.sqrt(np.abs(L).max(initial=0.0, axis=1))
    if not (np.all(np.isfinite(L)) and np.all(sizes > 0)):
        return None
    scaled = L / np.outer(sizes, sizes)
    condition = np.linalg.cond(scaled) if len(basket) else 1.0
    if not condition < WORST_CONDITION:
        return None
    columns = (XW[which] @ X[basket].T) / sizes
    terms = columns * np.linalg.solve(scaled, (XW[basket] @ X[which].T) / sizes[:, None]).T
    out = diagonal[which] - terms.sum(axis=1)
    noise = ERROR * condition * (np.abs(diagonal[which]) + np.abs(terms).sum(axis=1))
    out[(out <= noise) | ~possible[which]] = 0.0
    if items is None:
        out[basket] = noise[basket] = 0.0
    return None if np.any(noise > VISIBLE * out.max(initial=0.0)) else out
