"""Scores of a law that is asked many times: what does not depend on the basket is computed once.

Both rankings of a kernel are A_ii − A_iJ A_J⁻¹ A_Ji: with A = L the score of item i as the next one of a basket J, and with the
marginal kernel A = K the probability P(i ∈ S | J ⊆ S) (see :mod:`ndpp.laws.batched`). With the rows and the diagonal of A in memory this
costs O(n r |J|), or O(n |J|²) if the rows and columns of J's items are kept from earlier questions; the routines for a single basket cost
O(n r²). Each score has a bound of its rounding error. Where the bound matters, and for other laws, those routines answer.

The next-item scores of a mixture with shared ties follow from those of its ties, which are a kernel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.inference.ranking import Ranking, Rule, continuation_scores
from ndpp.inference.recommendation import Recommendation
from ndpp.inference.scores import bulk_scores, next_item_scores
from ndpp.laws.batched import Form
from ndpp.laws.law import Law

MOST_ENTRIES = 25_000_000
"""Entries of X up to which the rows of A are kept."""
KEPT_BYTES = 128 * 2**20
"""Bytes of rows and columns of A that are kept, of the items asked for last."""
WORST_CONDITION = 1e8
"""Condition number of A_J beyond which the careful routine is asked."""
ERROR = 64 * float(np.finfo(np.float64).eps)
"""Relative rounding error of the terms of a score, for a condition number of one."""
VISIBLE = 1e-6
"""Share of the best score that rounding may reach."""


class Scorer:
    """A law, and the tables of its rankings if it, or what its components share, is a kernel whose rows fit into memory.

    Threads may share it.
    """

    def __init__(self, law: Law) -> None:
        self.law: Any = law
        base, rows = getattr(law, "base", None), getattr(law, "X", None)
        self._base = None if base is None else Scorer(base)
        self.has_tables = isinstance(rows, np.ndarray) and rows.size <= MOST_ENTRIES

    @cached_property
    def _completion(self) -> Table:
        return Table(Form.of_kernel(self.law))

    @cached_property
    def _continuation(self) -> Table:
        return Table(Form.of_marginal(self.law))

    def _quick(self, ids: IntArray, *, whole: bool) -> FloatArray | None:
        """Return the scores from tables, None where there are none and where rounding may show."""
        if self.has_tables:
            found = (self._completion if whole else self._continuation).scores(ids)
            return found if found is None or whole else found.clip(max=1.0)
        if self._base is None or not whole:
            return None
        scores = bulk_scores(self.law, self._one(ids), self._base._each)[0]
        return None if np.isnan(scores[0]) else scores

    def _each(self, _: Law, baskets: Baskets) -> FloatArray:
        scores = [self.scores(basket, whole=True) for basket in baskets]
        return np.reshape(scores, (len(baskets), self.law.n_items))

    def _one(self, ids: IntArray) -> Baskets:
        return Baskets.from_lists([ids], n_items=self.law.n_items)

    def scores(self, basket: Items, *, whole: bool = False) -> FloatArray:
        """Return P(a ∈ S | basket ⊆ S) as :func:`ndpp.continuation_scores`, with ``whole`` scores as :func:`ndpp.next_item_scores`."""
        ids = check_items(basket, self.law, "basket")
        found = self._quick(ids, whole=whole)
        return (next_item_scores if whole else continuation_scores)(self.law, ids) if found is None else found

    def best(self, rule: Rule, basket: IntArray) -> Recommendation:
        """Return the best items for a basket; without tables, only items are scored that may be among them."""
        whole = rule.ranking is Ranking.COMPLETION
        found = self._quick(basket, whole=whole)
        if found is None:
            found = rule.chances_or_nan(self._one(basket))[0]
        return rule.best(self.scores(basket, whole=whole) if np.isnan(found[0]) else found)

    def each_alone(self, items: IntArray, *, whole: bool = False) -> FloatArray:
        """Return :meth:`scores` of the baskets of one item each, one row per item; NaN for items that never occur alone."""
        alone = Baskets.from_lists(items[:, None].tolist(), n_items=self.law.n_items)
        ranking = Ranking.COMPLETION if whole else Ranking.CONTINUATION
        if not self.has_tables or not len(items):
            return ranking.scores_or_nan(self.law, alone)
        found = [(i, self._quick(one, whole=whole)) for i, one in enumerate(alone)]
        careful = [ranking.scores_or_nan(self.law, alone[[i]])[0] if row is None else row for i, row in found]
        return np.stack(careful)


class Table:
    """The rows of A = diag(own) + Z core Zᵀ, the diagonal and the size of its terms; rows and columns of A that were asked for lately."""

    def __init__(self, form: Form) -> None:
        kernel, factor = form.kernel, form.factor
        self.possible: BoolArray = np.zeros(kernel.n_items, bool)
        self.possible[kernel.support] = True
        self.Z: FloatArray = np.zeros((kernel.n_items, len(form.core)))
        for block, Q in kernel.q_blocks():
            self.Z[kernel.support[block]] = np.sqrt(factor[block])[:, None] * Q
        self.own: FloatArray = np.zeros(kernel.n_items)
        self.own[kernel.support] = factor * form.diagonal
        self.Z_core: FloatArray = self.Z @ form.core
        self.diagonal: FloatArray = np.einsum("ij,ij->i", self.Z_core, self.Z) + self.own
        self.terms: FloatArray = np.einsum("ij,ij->i", np.abs(self.Z_core), np.abs(self.Z)) + self.own
        self._kept: OrderedDict[int, tuple[FloatArray, FloatArray]] = OrderedDict()
        self._most = KEPT_BYTES // (16 * len(self.Z))
        self._lock = threading.Lock()

    def lines(self, basket: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return A_iJ and A_Ji for all items i, each of shape (|J|, n). O(n r) for each item that was not asked for lately."""
        with self._lock:
            found = {j: self._kept[j] for j in basket.tolist() if j in self._kept}
            for j in found:
                self._kept.move_to_end(j)
        missing = [j for j in basket.tolist() if j not in found]
        if missing:
            columns, lines = self.Z[missing] @ self.Z_core.T, self.Z_core[missing] @ self.Z.T
            found |= {j: (columns[i], lines[i]) for i, j in enumerate(missing)}
            with self._lock:
                self._kept |= {j: (columns[i].copy(), lines[i].copy()) for i, j in enumerate(missing)}
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        pairs = [found[j] for j in basket.tolist()]
        empty = np.empty((0, len(self.Z)))
        return np.array([a for a, _ in pairs] or empty), np.array([b for _, b in pairs] or empty)

    def scores(self, basket: IntArray) -> FloatArray | None:
        """Return A_ii − A_iJ A_J⁻¹ A_Ji of every item, 0 for those of the basket; None where rounding may show."""
        if not self.possible[basket].all():
            return None
        A = self.Z_core[basket] @ self.Z[basket].T + np.diag(self.own[basket])
        own, most = np.diag(A), np.abs(A).max(initial=0.0, axis=1)
        sizes = np.sqrt(np.where(own > 1e-9 * most, own, most))[:, None]  # a purely skew kernel has no diagonal
        if not (np.all(np.isfinite(A)) and np.all(sizes > 0)):
            return None
        scaled = A / sizes / sizes.T
        condition = np.linalg.cond(scaled) if len(basket) else 1.0
        if not condition < WORST_CONDITION:
            return None
        columns, lines = self.lines(basket)
        terms = (columns / sizes) * np.linalg.solve(scaled, lines / sizes)
        out = self.diagonal - terms.sum(axis=0)
        noise = ERROR * condition * (self.terms + np.abs(terms).sum(axis=0))
        out[(out <= noise) | ~self.possible] = 0.0
        out[basket] = noise[basket] = 0.0
        return None if np.any(noise > VISIBLE * out.max(initial=0.0)) else out
