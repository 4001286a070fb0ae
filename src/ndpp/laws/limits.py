"""Limits on sets of items: a least and a most number of items of a group, or a least and a most total of their values.

A :class:`Limit` is what people write. :class:`Limits` are several of them on the items of one distribution: c_j(S) = Σ_{i∈S} c_ji in
[low_j, high_j], where S includes the items that are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp._validation import Catalogued, check_items, check_values, frozen
from ndpp.baskets import Baskets
from ndpp.errors import ImpossibleLimitError, InvalidInputError

MANY_ITEMS, LEVELS = 3000, 100
"""With more items, values that are not whole numbers are rounded to this many levels to see whether limits contradict each other."""
LEAST_VALUE, MOST_VALUE = 1e-100, 1e100
"""Values of items whose squares are still numbers."""
MOST_NODES = 1000
"""Branches of a search after which it stays open whether whole items keep limits."""
SLACK = 1e-9
"""Sums of values count as equal to a bound if they differ by this part of it: 0.1 + 0.2 is at most 0.3."""


@dataclass(frozen=True, eq=False)
class Limit:
    """Bounds on the number of items of a group in a set, or on a total of values: ``least ≤ Σ_{i∈S} value_i ≤ most``.

    Parameters
    ----------
    values : list of items, mapping, array or pandas Series
        A list, tuple or set of ids or labels: each of these items counts one. Otherwise the value ≥ 0 of every item, such as its price:
        a mapping from ids or labels, a Series with them as its index (items that are missing count 0), or an array over all items.
    least, most : float, optional
        Inclusive bounds; at least one is required. If they are equal, the total is exactly this number.
    name : str, optional
        What messages call it.

    Examples
    --------
    >>> import ndpp
    >>> Limit(["milk", "cheese"], least=1, most=2, name="dairy")
    <Limit 'dairy': at least 1 and at most 2 of 2 items>
    >>> kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3), labels=["milk", "cheese", "wine"])
    >>> kernel.sample(3, limits=[Limit({"milk": 1.2, "cheese": 3.5, "wine": 8.0}, least=9, most=9.5)], rng=0).to_lists()
    [[0, 2], [0, 2], [0, 2]]
    """

    values: Any
    least: float | None = None
    most: float | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if hasattr(self.values, "copy"):
            object.__setattr__(self, "values", self.values.copy())
        for what, bound in (("least", self.least), ("most", self.most)):
            is_number = isinstance(bound, Real) and not isinstance(bound, bool)
            if bound is not None and not (is_number and np.isfinite(bound) and bound >= 0):
                raise InvalidInputError(f"of {self} must be a finite number ≥ 0, or None; got {bound!r}", argument=what)
        if self.least is None and self.most is None:
            raise InvalidInputError(f"{self} has no bound; give it least= or most=, or both")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ImpossibleLimitError(f"{self} contradicts itself: least is above most", limits=(self.text,))

    @property
    def counts(self) -> bool:
        """Whether items are counted, and not their values added."""
        return isinstance(self.values, (str, list, tuple, set, frozenset, range))

    @property
    def text(self) -> str:
        """The limit in words: its name, if it has one, and its bounds."""
        both = (("at least", self.least), ("at most", self.most))
        bounds = " and ".join(f"{word} {bound:g}" for word, bound in both if isinstance(bound, Real))
        if self.least == self.most and self.least is not None:
            bounds = f"exactly {self.least:g}"
        what = f"{bounds} of {len(self.values)} items" if self.counts else f"a total of {bounds}"
        return what if self.name is None else f"{self.name!r}: {what}"

    def __repr__(self) -> str:
        return f"<Limit {self.text}>"

    def over(self, law: Catalogued) -> FloatArray:
        """Return the value of every item of a law."""
        argument = "values of a limit" if self.name is None else f"values of the limit {self.name!r}"
        if not self.counts:
            return check_values(self.values, law, argument, default=0.0)
        out = np.zeros(law.n_items)
        out[check_items(list(self.values), law, argument)] = 1.0
        return out


def listed(limits: Limit | Iterable[Limit] | None) -> list[Limit]:
    """Return one limit, several, which may come from a generator, or none as a list."""
    return [limits] if isinstance(limits, Limit) else list(limits or ())


@dataclass(frozen=True)
class Estimate:
    """A number, or one of each item: ``value``, its standard ``error``, and whether it is ``exact``, but for rounding."""

    value: Any
    error: Any
    exact: bool

    def __float__(self) -> float:
        return float(self.value)

    @classmethod
    def of_hits(cls, total: Any, squares: Any, n: int, most: float = 1.0) -> Estimate:
        """Return the mean of n values from 0 to ``most``, given their sum and that of their squares.

        All of them may be alike, which does not make them certain: the error is that with two more values at either end, which is what
        Agresti and Coull (1998) do for frequencies.
        """
        mean = (total + 2 * most) / (n + 4)
        return cls(total / n, np.sqrt(((squares + 2 * most**2) / (n + 4) - mean**2) / n), exact=False)


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits on the sets of one catalogue: ``values`` (J, n), bounds ``low`` and ``high`` (J,), infinite where there is none, and texts."""

    values: FloatArray
    low: FloatArray
    high: FloatArray
    texts: tuple[str, ...]
    records: tuple[Limit, ...]

    def __post_init__(self) -> None:
        vars(self).update(values=frozen(self.values), low=frozen(self.low), high=frozen(self.high))

    @classmethod
    def of(cls, limits: Limit | Iterable[Limit], law: Catalogued, size: int | None = None) -> Limits:
        """Return limits on the items of a law, and, with ``size``, on their number."""
        chosen = listed(limits)
        if not chosen and size is None:
            return NO_LIMITS
        for limit in chosen:
            if not isinstance(limit, Limit):
                raise InvalidInputError(
                    f"must be a list of ndpp.Limit; got a {type(limit).__name__}", argument="limits"
                )
        if size is not None:
            chosen.append(Limit(range(law.n_items), least=size, most=size, name="size"))
        values = np.array([limit.over(law) for limit in chosen]).reshape(len(chosen), law.n_items)
        if ((values > 0) & ((values < LEAST_VALUE) | (values > MOST_VALUE))).any():
            raise InvalidInputError(
                f"must have values from {LEAST_VALUE:g} to {MOST_VALUE:g}, or zero; choose another unit",
                argument="limits",
            )
        low = np.array([-np.inf if limit.least is None else limit.least * (1 - SLACK) for limit in chosen])
        high = np.array([np.inf if limit.most is None else limit.most * (1 + SLACK) for limit in chosen])
        return cls(values, low, high, tuple(limit.text for limit in chosen), tuple(chosen))

    def __len__(self) -> int:
        return len(self.texts)

    def kept_by(self, baskets: Baskets) -> BoolArray:
        """Return which baskets keep all limits."""
        totals = baskets.to_csr().astype(np.float64) @ self.values.T
        return np.asarray(((self.low <= totals) & (totals <= self.high)).all(axis=1))

    def joined(self, other: Limits) -> Limits:
        """Return these limits and others."""
        if not len(self) or not len(other):
            return self if len(self) else other
        values = np.concatenate([self.values, other.values])
        low, high = np.append(self.low, other.low), np.append(self.high, other.high)
        return Limits(values, low, high, self.texts + other.texts, self.records + other.records)

    def totals(self, ids: IntArray) -> FloatArray:
        """Return c_j of a set."""
        return np.asarray(self.values[:, ids].sum(axis=1)) if len(self) else np.empty(0)

    def beside(self, ids: IntArray) -> Limits:
        """Return the limits on further items beside given ones; raise if these break one."""
        given = self.totals(ids)
        for text, total, high in zip(self.texts, given, self.high):
            if total > high:
                raise ImpossibleLimitError(
                    f"the given items break the limit {text}: they come to {total:g} already", limits=(text,)
                )
        values, low, high = self.values.copy(), self.low - given, self.high - given
        values[:, ids] = 0.0
        bounds = zip(self.texts, values, low.tolist(), high.tolist())
        records = tuple(Limit(row, max(a, 0.0), None if b == np.inf else b, name=text) for text, row, a, b in bounds)
        return replace(self, values=values, low=low, high=high, records=records)

    @property
    def fitting(self) -> BoolArray:
        """Which items may be in a set: none whose value alone is above a bound."""
        return np.asarray((self.values <= self.high[:, None]).all(axis=0))

    def reach(self, possible: BoolArray, most: int) -> FloatArray:
        """Return the largest c_j of sets of at most ``most`` of the possible items."""
        left = np.where(possible & self.fitting, self.values, 0.0)
        if np.count_nonzero(possible) > most:
            left = -np.partition(-left, most - 1, axis=1)[:, :most] if most > 0 else left[:, :0]
        return np.asarray(left.sum(axis=1))

    def check(self, possible: BoolArray, most: int) -> None:
        """Raise if a linear programme shows that no set of at most ``most`` of the possible items keeps the limits."""
        for text, found, low in zip(self.texts, self.reach(possible, most), self.low):
            if found < low:
                raise ImpossibleLimitError(
                    f"the limit {text} cannot be reached: the items that are left come to {found:g} at most. "
                    "Ask for less, or allow more items",
                    limits=(text,),
                )
        everything = list(range(len(self)))
        if len(self) > 1 and (self.low > 0).any() and not self._is_feasible(everything, possible, most):
            guilty = list(everything)
            for j in everything:  # leave out all that the contradiction does without
                rest = [i for i in guilty if i != j]
                if not self._is_feasible(rest, possible, most):
                    guilty = rest
            texts = tuple(self.texts[j] for j in guilty)
            raise ImpossibleLimitError(f"no set keeps these limits together: {'; '.join(texts)}", limits=texts)

    def check_whole(self, law: Catalogued, size: int | None, given: IntArray, excluded: IntArray) -> None:
        """Raise if no set of this size, with given items and without excluded ones, keeps the limits: by an integer programme."""
        limits, possible = Limits.of(self.records, law, size).beside(given), np.ones(law.n_items, bool)
        possible[given] = possible[excluded] = False
        if not limits._is_feasible(range(len(limits)), possible, law.n_items, whole=True):
            raise ImpossibleLimitError(
                f"no set keeps these limits together: {'; '.join(self.texts)}", limits=self.texts
            )

    def can_hold(self, ids: IntArray, possible: BoolArray, most: int) -> bool:
        """Return whether a set of these and possible items, at most ``most`` in all, may keep the limits, by a linear programme."""
        try:
            self.beside(ids).check(possible, most - len(ids))
        except ImpossibleLimitError:
            return False
        return True

    def _is_feasible(self, which: Sequence[int], possible: BoolArray, most: int, *, whole: bool = False) -> bool:
        rows = self.values[which][:, possible & self.fitting]
        units = rows.max(axis=1, initial=0.0)
        units[units == 0] = 1.0
        rows, low, high = rows / units[:, None], self.low[which] / units, self.high[which] / units
        if (known := _counts_fit(rows, low, high, most)) is not None:
            return known
        from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

        above, below = np.isfinite(high), np.isfinite(low)
        step = np.zeros((len(rows), 1))
        if rows.shape[1] > MANY_ITEMS:
            # Items of about the same values are one variable: bounds see what is best for them.
            step[:, 0] = np.where((rows != np.round(rows)).any(axis=1), rows.max(axis=1, initial=0.0) / LEVELS, 0.0)
            rows = np.where(step > 0, step * np.floor(rows / np.where(step > 0, step, 1.0)), rows)
        columns, counts = np.unique(rows, axis=1, return_counts=True)
        A = np.vstack([columns[above], -(columns + step)[below], np.ones((1, columns.shape[1]))])
        b = np.concatenate([high[above], -low[below], [most]])
        if not columns.shape[1]:
            return bool((b >= 0).all())
        found = milp(
            np.zeros(len(counts)), constraints=LinearConstraint(A, ub=b), bounds=Bounds(0, counts),
            integrality=np.full(len(counts), int(whole)), options={"node_limit": MOST_NODES} if whole else {},
        )  # fmt: skip
        return bool(found.status != 2)  # 2: infeasible


NO_LIMITS = Limits(np.empty((0, 0)), np.empty(0), np.empty(0), (), ())


def _counts_fit(rows: FloatArray, low: FloatArray, high: FloatArray, most: int) -> bool | None:
    """Return whether at most ``most`` items can be chosen such that the counts of disjoint groups, or of all items, are within bounds.

    None if values are not 0 and 1, or groups overlap.
    """
    is_all = rows.all(axis=1)
    groups = rows[~is_all]
    if not ((rows == 0) | (rows == 1)).all() or (groups.sum(axis=0) > 1).any():
        return None
    least, room = np.ceil(low).clip(0.0), np.floor(np.minimum(high, rows.sum(axis=1)))
    free = np.count_nonzero(~groups.any(axis=0))
    largest = min(most, room[is_all].min(initial=np.inf), room[~is_all].sum() + free)
    return bool((least <= room).all() and max(least[~is_all].sum(), least[is_all].max(initial=0.0)) <= largest)
