"""Scores of a law that is asked many times: what does not depend on the basket is computed once.

Both rankings of a kernel are A_ii − A_iJ A_J⁻¹ A_Ji: with A = L the score of item i as the next one of a basket J, and with the
marginal kernel A = K the probability P(i ∈ S | J ⊆ S) (see :mod:`ndpp.laws.batched`). With the rows and the diagonal of A in memory this
costs O(n r |J|), or O(n |J|²) if the rows and columns of J's items are kept from earlier questions; the routines for a single basket cost
O(n r²). Each score has a bound of its rounding error. Where the bound matters, and for mixtures, those routines answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.inference.ranking import Ranking, continuation_scores
from ndpp.inference.scores import next_item_scores
from ndpp.laws.batched import Form
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture

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
    """A law, and the tables of its rankings if it is a kernel whose rows fit into memory. Threads may share it."""

    def __init__(self, law: LowRankKernel | Mixture) -> None:
        self.law = law
        rows = getattr(law, "X", None)
        self.has_tables = isinstance(rows, np.ndarray) and rows.size <= MOST_ENTRIES

    @cached_property
    def _completion(self) -> Table:
        return Table(Form.of_kernel(self.law))  # type: ignore[arg-type]

    @cached_property
    def _continuation(self) -> Table:
        return Table(Form.of_marginal(self.law))  # type: ignore[arg-type]

    def scores(self, basket: Items, *, whole: bool = False) -> FloatArray:
        """Return P(a ∈ S | basket ⊆ S) as :func:`ndpp.continuation_scores`, with ``whole`` scores as :func:`ndpp.next_item_scores`."""
        ids = check_items(basket, self.law, "basket")
        if self.has_tables:
            found = (self._completion if whole else self._continuation).scores(ids)
            if found is not None:
                return found if whole else found.clip(max=1.0)
        return (next_item_scores if whole else continuation_scores)(self.law, ids)

    def each_alone(self, items: IntArray, *, whole: bool = False) -> FloatArray:
        """Return :meth:`scores` of the baskets of one item each, one row per item; NaN for items that never occur alone."""
        alone = Baskets.from_lists(items[:, None].tolist(), n_items=self.law.n_items)
        ranking = Ranking.COMPLETION if whole else Ranking.CONTINUATION
        if not self.has_tables or not len(items):
            return ranking.scores_or_nan(self.law, alone)
        table = self._completion if whole else self._continuation
        found = [(i, table.scores(one)) for i, one in enumerate(alone)]
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
