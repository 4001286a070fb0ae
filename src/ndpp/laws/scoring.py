"""What inference asks of a distribution: scores of items, gains of greedy runs, and bounds on the weight of a set.

:class:`Scoring` answers for any distribution from its probabilities, set by set. Kernels and mixtures have faster answers, in
:mod:`ndpp.laws.kernel_scoring` and :mod:`ndpp.laws.mixture_scoring`; ``law._scoring`` is the one that belongs to a law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from ndpp._memory import Memory
from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import ZeroProbabilityError


class Best(NamedTuple):
    """How many of the best items matter, which may be among them, the units of their scores, and which of each basket matter besides.

    Items that score less than the ``least`` matter only if all others score 0.
    """

    n: int
    allowed: BoolArray
    unit: FloatArray
    least: FloatArray
    wanted: Sequence[IntArray] | None = None

    @classmethod
    def among(cls, items: IntArray, n_items: int) -> Best:
        """Return that these items alone matter, all of them."""
        return cls(len(items), np.isin(np.arange(n_items), items), np.ones(1), np.zeros(1))


class Factored(NamedTuple):
    """L = X W Xᵀ in memory: X (None: L is W), W in double precision (None: the identity), its magnitudes, and whether it is symmetric."""

    X: AnyArray | None
    W: FloatArray | None = None
    magnitudes: FloatArray | None = None
    is_symmetric: bool = True

    @property
    def rows(self) -> AnyArray:
        """X, the identity where L is W."""
        if self.X is not None:
            return self.X
        assert self.W is not None
        return np.eye(len(self.W))


class Gains:
    """P(Y ∪ a) / P(Y) of every row a of the support, after a set Y, and estimates of rounding errors."""

    is_fresh = True
    """Whether they were computed from Y itself, and not updated item by item."""

    def __init__(self, values: FloatArray, noise: FloatArray) -> None:
        self.values, self.noise = values, noise

    def after(self, row: int, open: BoolArray) -> Gains | None:
        """Return the gains after one more item, where only ``open`` rows matter; None if there is no short way to them.

        These gains may be overwritten.
        """
        return None

    def best_pair(self, open: BoolArray) -> tuple[int, ...]:
        """Return the two open rows that are best together where none has a gain alone; () if there are none."""
        return ()


class Scoring:
    """Scores, gains and bounds of a law."""

    law: Any
    """The law, whose class is built upon this one."""

    def __init__(self, law: Any, memory: Memory | None = None) -> None:
        self.law, self.memory = law, law.memory if memory is None else memory

    def keeping_in(self, memory: Memory) -> Self:
        """Return the same for a law that is part of another, whose memory this is."""
        return type(self)(self.law, memory)

    # -- scores of items -----------------------------------------------------------------------------------------------------

    def next_scores_of(self, ids: IntArray) -> FloatArray:
        """Return P(J ∪ a) / P(J) of every item a for one basket J, 0 for its own items, as carefully as can be.

        A distribution that leaves out the empty set is scored as if it did not. Raises if P(J) = 0.
        """
        law, out = self.law.with_empty(), np.zeros(self.law.n_items)
        others = np.setdiff1d(np.arange(law.n_items), ids)
        log_basket = law.log_prob(ids)
        if log_basket == -np.inf:
            raise impossible(ids)
        out[others] = np.exp(law.log_probs(with_one_more(ids, others, law.n_items)) - log_basket)
        return out

    def next_scores(self, baskets: Baskets) -> FloatArray:
        """Return the same for many baskets in operations that they share, (b, n); NaN for baskets that are to be scored one by one."""
        return np.full((len(baskets), self.law.n_items), np.nan)

    def begun_scores(self, baskets: Baskets, best: Best | None, weights: FloatArray | None) -> FloatArray:
        """Return P(a ∈ S | J ⊆ S) of each basket J and item a, (b, n), the empty set not left out; NaN as in :meth:`next_scores`.

        Items that cannot be among the ``best`` may score 0. ``weights`` are w_c / P_c(S ≠ ∅) where they differ between baskets.
        """
        return np.full((len(baskets), self.law.n_items), np.nan)

    def swap_ratios(self, items: IntArray) -> FloatArray:
        """Return P(S − i + a) / P(S) of all items i of a set S and all a, shape (size, n_items)."""
        law = self.law.with_empty()  # what is left of one item
        rest = Baskets.from_lists([np.delete(items, i).tolist() for i in range(len(items))], n_items=law.n_items)
        scores = self.next_scores(rest)
        for i in np.flatnonzero(np.isnan(scores[:, 0])):
            try:
                scores[i] = self.next_scores_of(rest[i])
            except ZeroProbabilityError:
                scores[i] = 0.0
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nan_to_num(scores * np.exp(law.log_probs(rest) - law.log_prob(items))[:, None]))

    # -- bounds --------------------------------------------------------------------------------------------------------------

    def item_bounds(self) -> FloatArray:
        """Return logarithms u, shape (C, n_items), with P_c(S) / P_c(∅) ≤ Π_{a∈S} exp(u_ca) for every component; infinite if unknown."""
        return np.full((len(self.law._log_weights), self.law.n_items), np.inf)

    def bound(self, given: IntArray, size: int) -> float:
        """Return an upper bound on the log weight of sets of one size that contain the given items; infinite if there is none."""
        law, used = self.law, self.law._log_weights > -np.inf
        logs, left = self.item_bounds()[used], size - len(given)
        largest = logs[:, given].sum(axis=1)
        if left:
            largest = largest + np.partition(np.delete(logs, given, axis=1), -left, axis=1)[:, -left:].sum(axis=1)
        log_weights = (law._log_weights - law.log_normalizers() + law._log_unit)[used]
        return float(np.logaddexp.reduce(log_weights + largest))

    # -- greedy runs ---------------------------------------------------------------------------------------------------------

    def gains(self, rows: IntArray, open: BoolArray) -> Gains:
        """Return the gains of all rows of the support after a set of them; only ``open`` ones matter. Raises if the set never occurs."""
        support = self.law.support
        values = self.next_scores_of(support[rows])[support]
        return Gains(values, np.zeros(len(values)))

    def completion(self, rows: IntArray, open: BoolArray) -> tuple[int, ...]:
        """Return open rows with which given ones that never occur by themselves may occur; () where none are needed."""
        return ()

    def factored(self, rows: IntArray | None) -> Factored | None:
        """Return the kernel of some rows of the support, None for all, as matrices in memory; None if there are no such matrices."""
        return None


def with_one_more(ids: IntArray, others: IntArray, n_items: int) -> Baskets:
    """Return a basket together with each of some other items in turn."""
    return Baskets.from_lists([[*ids.tolist(), a] for a in others.tolist()], n_items=n_items)


def impossible(ids: IntArray) -> ZeroProbabilityError:
    """Return the error for a basket whose scores are undefined."""
    return ZeroProbabilityError(
        f"scores are relative to the basket, and {ids.tolist()} has probability zero: it never occurs by itself. Drop an item, "
        "or use law.inclusion_probabilities(given=…), which tells whether it can be part of a larger set."
    )
