"""Exact probabilities under limits whose values are whole multiples of a step: counts of items, prices in cents.

Then c(S) is a whole number of steps, and its distribution is found on a circle as that of the size is (:mod:`ndpp.linalg.sizes`), with z to
the power of the steps of an item in place of z. Several limits, and a size, are the digits of one number: if c_1(S) is below b, then
c_1(S) + b c_2(S) says both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.laws.limits import Limits
from ndpp.linalg.scaling import EPS
from ndpp.linalg.sizes import ROUNDED, SizeLaw

if TYPE_CHECKING:
    from ndpp.laws.law import Law

SCALES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
"""Values have a step if they are whole numbers times one of these, or multiples of the smallest."""
MOST_WORK = 1e10
"""Operations for which probabilities are still computed exactly: some seconds."""
MOST_TOTALS = 10**5
"""Number of different totals of several limits up to which they are computed together."""
MOST_STEPS = 2.0**53
"""Steps of all items together that are still whole numbers."""
LOST_IN_ROUNDING = 1e-8
"""Smaller probabilities are lost in those of other totals, or leave too few digits to condition on."""
NEGLIGIBLE_SHARE = 1e-12
"""Components with a smaller share are left out."""


class Steps(NamedTuple):
    """The steps of all items in one limit, and the first and the last number of them that keeps it."""

    steps: FloatArray
    first: int
    last: float

    @classmethod
    def each_of(cls, limits: Limits, items: IntArray) -> list[Steps] | None:
        """Return the steps of all limits for these items, and none for others; None if the values of one limit have none."""
        possible = np.isin(np.arange(limits.values.shape[1]), items)
        found = [
            cls._of(values * possible, low, high) for values, low, high in zip(limits.values, limits.low, limits.high)
        ]
        return None if None in found else [one for one in found if one is not None]

    @classmethod
    def _of(cls, values: FloatArray, low: float, high: float) -> Steps | None:
        least = np.min(values, where=values > 0, initial=np.inf)
        for scale in (*SCALES, 1 / least):
            scaled = values * scale
            whole = np.round(scaled)
            if (np.abs(scaled - whole) <= 1e-9 * whole).all() and whole.sum() < MOST_STEPS:
                unit = max(1, int(np.gcd.reduce(whole.astype(np.int64))))
                first, last = (bound * scale / unit for bound in (low, high))
                last = np.floor(last)  # one step more is as good as many
                return cls(
                    (whole / unit).clip(0, last + 1), max(0, int(np.ceil(first))) if first > -np.inf else 0, last
                )
        return None

    @property
    def most(self) -> int:
        """The steps of all items together."""
        return int(self.steps.sum())


class Digits(NamedTuple):
    """Several limits as one: the steps of all items, and the number of different totals of each limit."""

    limits: list[Steps]
    steps: FloatArray
    bases: list[int]

    @classmethod
    def of(cls, law: Law, limits: Limits, ids: IntArray, sizes: tuple[int, float] | None) -> Digits | None:
        """Write totals of further items that can occur, and perhaps their number, which is within ``sizes``, as digits of one number.

        None if the values of one limit have no steps, or totals are too many.
        """
        steps = Steps.each_of(limits.beside(ids), law.support)
        if steps is None:
            return None
        if sizes is not None:
            others = np.ones(limits.values.shape[1])
            others[ids] = 0.0
            steps.append(Steps(others, *sizes))
        bases = [one.most + 1 for one in steps]
        if len(steps) > 1 and float(np.prod(bases, dtype=np.float64)) > MOST_TOTALS:
            return None
        units = np.cumprod([1, *bases[:-1]])
        return cls(steps, np.sum([unit * one.steps for unit, one in zip(units, steps)], axis=0), bases)

    def keeping(self, low: int, high: int) -> IntArray:
        """Return the totals from low to high that keep all limits."""
        totals = rest = np.arange(low, high + 1)
        kept = np.ones(len(totals), bool)
        for one, base in zip(self.limits, self.bases):
            digit, rest = (rest % base, rest // base) if len(self.limits) > 1 else (rest, rest)
            kept &= (one.first <= digit) & (digit <= one.last)
        return totals[kept]

    @property
    def keeps_empty(self) -> bool:
        """Whether no further item keeps all limits."""
        return all(one.first <= 0 <= one.last for one in self.limits)


class Total(NamedTuple):
    """What the total of a component is computed from, the items of its groups, and the totals that keep all limits with their chances.

    ``error`` is how far the sum of the chances may be off by rounding.
    """

    law: SizeLaw
    items: IntArray
    kept: IntArray
    chances: FloatArray
    error: float

    @property
    def chance(self) -> float:
        """P_c(limits | given)."""
        return min(1.0, max(0.0, float(self.chances.sum())))

    @classmethod
    def each_of(cls, law: Law, digits: Digits | None, ids: IntArray, posterior: FloatArray) -> dict[int, Total] | None:
        """Return those of the components of a law given items; None if they take too long."""
        parts = None if digits is None else law._parts(ids)
        if digits is None or parts is None:
            return None
        active, moving = np.flatnonzero(posterior > NEGLIGIBLE_SHARE), np.count_nonzero(digits.steps)
        out, work = dict[int, Total](), 0.0
        for c in active.tolist():
            part = parts.at(c, 0.0)
            total = part.totals(digits.steps)
            low, count = total.window()
            rank = len(total.marginal)
            work += count / 2 * (moving + rank + 1) * max(rank, 1) ** 2
            if work * (len(active) if c == active[0] else 1) > MOST_WORK:
                return None
            kept = digits.keeping(low, min(low + count - 1, total.most))
            out[c] = cls(
                total, part.items, kept, total.rounded()[kept], part.error + ROUNDED * float(np.sqrt(len(kept)))
            )
        return out


def sizes_within(law: Law, limits: Limits, ids: IntArray, posterior: FloatArray) -> FloatArray | None:
    """Return P_c(|S| = k | limits, given) for k = len(ids), …, shape (C, …); None if limits have no steps, or too many.

    ``posterior`` is P(c | given).
    """
    digits = Digits.of(law, limits, ids, (int(law.nonempty and not len(ids)), np.inf))
    totals = Total.each_of(law, digits, ids, posterior)
    if digits is None or totals is None:
        return None
    out = np.zeros((len(posterior), digits.bases[-1]))
    for c, total in totals.items():
        np.add.at(out[c], total.kept // int(np.prod(digits.bases[:-1])), total.chances)
    out = out.clip(0.0)
    sums = out.sum(axis=1, keepdims=True)
    return out / np.where(sums > 0, sums, 1.0)


class Totals(NamedTuple):
    """P_c(limits | given, size) of the components, their rounding errors, and what they come from, components left out excepted.

    ``raised`` is by how much the empty set, if it is left out, raises the probabilities of items given the limits.
    """

    chances: FloatArray
    errors: FloatArray
    totals: dict[int, Total]
    raised: FloatArray
    n_items: int

    @classmethod
    def of(cls, law: Law, limits: Limits, ids: IntArray, size: int | None, posterior: FloatArray) -> Totals | None:
        """Return those of a law for limits on sets that contain items and have a size; None if these have no steps, or too many.

        ``posterior`` is P(c | given, size).
        """
        digits = Digits.of(law, limits, ids, None if size is None else (size - len(ids), size - len(ids)))
        totals = Total.each_of(law, digits, ids, posterior)
        if digits is None or totals is None:
            return None
        chances, errors, raised = np.zeros(len(posterior)), np.zeros(len(posterior)), np.ones(len(posterior))
        chances[list(totals)] = [total.chance for total in totals.values()]
        errors[list(totals)] = [total.error for total in totals.values()]
        if size is not None:  # what was found is P_c(limits, size | given)
            with np.errstate(divide="ignore"):
                of_size = np.exp(law._log_masses(ids, size) - law._log_masses(ids, None))
            of_size = of_size if len(ids) else of_size * law.kept
            if 0 < posterior @ chances < LOST_IN_ROUNDING:
                return None
            chances, errors = (
                np.divide(x, of_size, out=np.zeros_like(x), where=of_size > 0) for x in (chances, errors)
            )
            chances = chances.clip(0.0, 1.0)
        elif law.nonempty and not len(ids):
            if law.kept[list(totals)].min(initial=1.0) < LOST_IN_ROUNDING:
                return None
            empty = np.exp(-law.log_normalizers()) if digits.keeps_empty else np.zeros(len(chances))
            some = np.maximum(chances - empty, LOST_IN_ROUNDING**2)  # all that is left may be rounding
            raised, chances, errors = chances / some, np.where(chances > 0, some / law.kept, 0.0), errors / law.kept
        return cls(chances, errors, totals, raised, law.n_items)

    def error(self, posterior: FloatArray) -> float:
        """Return how far P(limits | given, size) may be off by rounding, relative to it."""
        return float((posterior @ self.errors) / max(float(posterior @ self.chances), EPS**2))

    def inclusions(self, c: int) -> FloatArray:
        """Return P_c(a ∈ S | limits, given) of all items; 0 of components that were left out."""
        out = np.zeros(self.n_items)
        if c in self.totals and len(self.totals[c].kept):
            total = self.totals[c]
            out[total.items] = self.raised[c] * total.law.inclusions(*total.kept.tolist())
        return out
