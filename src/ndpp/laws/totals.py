"""Exact probabilities under one limit whose values are whole multiples of a step: counts of items, prices in cents.

Then c(S) is a whole number of steps, and its distribution is found on a circle as that of the size is (:mod:`ndpp.linalg.sizes`), with z to
the power of the steps of an item in place of z.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.laws.limits import Limits
from ndpp.linalg.sizes import SizeLaw, Stepped

DECIMALS = (0, 1, 2)
"""Places after the point of values that have a step."""
MOST_WORK = 1e10
"""Operations for which probabilities are still computed exactly: some seconds."""
ROUNDING = 1e-8
"""Smaller probabilities are lost in those of other totals, or leave too few digits to condition on."""
NEGLIGIBLE = 1e-12
"""Components with a smaller share are left out."""


class Steps(NamedTuple):
    """The steps of all items, and the first and the last number of them that keeps the limit."""

    steps: FloatArray
    first: int
    last: float

    @classmethod
    def of(cls, limits: Limits) -> Steps | None:
        """Return the steps of one limit; None if its values have none."""
        for decimals in DECIMALS:
            scaled = limits.values[0] * 10**decimals
            whole = np.round(scaled)
            if (np.abs(scaled - whole) <= 1e-9 * np.maximum(whole, 1.0)).all():
                unit = max(1, int(np.gcd.reduce(whole.astype(np.int64))))
                low, high = (float(bound[0]) * 10**decimals / unit for bound in (limits.low, limits.high))
                return cls(whole / unit, max(0, int(np.ceil(low))) if low > -np.inf else 0, np.floor(high))
        return None


Total: TypeAlias = tuple[SizeLaw, IntArray]
"""The distribution of c(S) in a component, and the items of its groups."""


class Totals(NamedTuple):
    """P_c(limit | given) of the components, and what their distributions come from, those left out excepted.

    ``raised`` is by how much the empty set, if it is left out, raises the probabilities of items given the limit.
    """

    chances: FloatArray
    laws: dict[int, Total]
    range: Steps
    raised: FloatArray

    @classmethod
    def of(cls, law: Any, limits: Limits, ids: IntArray, posterior: FloatArray) -> Totals | None:
        """Return those of a law for one limit on items beside the given ones; None if it has no steps, or too many."""
        wanted = Steps.of(limits) if len(limits) == 1 else None
        if wanted is None:
            return None
        active, moving = np.flatnonzero(posterior > NEGLIGIBLE), np.count_nonzero(wanted.steps)
        chances, laws, work = np.zeros(len(posterior)), dict[int, Total](), 0.0
        for c, (found, items) in zip(active.tolist(), law._total_laws(ids, wanted.steps, active)):
            low, count = found.window()
            rank = len(found.marginal)
            work += count / 2 * (moving + rank) * rank**2
            if work * (len(active) if c == active[0] else 1) > MOST_WORK:
                return None
            first, last = max(low, wanted.first), int(min(low + count - 1, found.most, wanted.last))
            if first <= last:
                chances[c] = min(1.0, float(found.distribution()[first : last + 1].sum()))
            laws[c] = found, items
        raised = np.ones(len(chances))
        if law.nonempty and not len(ids):
            empty = np.exp(-law.log_normalizers()) if wanted.first <= 0 <= wanted.last else 0.0
            some = np.maximum(chances - empty, ROUNDING**2)  # all that is left may be rounding
            raised, chances = chances / some, np.where(chances > 0, some / law.kept, 0.0)
        return cls(chances, laws, wanted, raised)

    def inclusions(self, c: int, n_items: int) -> FloatArray:
        """Return P_c(a ∈ S | limit, given) of all items."""
        (law, items), out = self.laws[c], np.zeros(n_items)
        low, count = law.window()
        last = int(min(low + count - 1, law.most, self.range.last))
        out[items] = self.raised[c] * law.inclusions(max(low, self.range.first), last)
        return out


def stepped(blocks: Iterable[Any], steps: FloatArray) -> Iterator[Stepped]:
    """Yield groups of one item each with the steps of these items."""
    at = 0
    for groups in blocks:
        yield Stepped(groups, steps[at : at + len(groups.rows)])
        at += len(groups.rows)
