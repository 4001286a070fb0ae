"""One greedy run: a *state* knows the best item to add next, and a single loop adds one after the other.

States differ in what they cost and in how much rounding they bear. Those of :mod:`ndpp.inference.pursuit` work on the rows of X and stop
where rounding could change a step; :class:`Careful` goes on from there, and serves every law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ndpp._types import BoolArray
from ndpp.errors import ZeroProbabilityError
from ndpp.laws.law import Law
from ndpp.laws.scoring import Gains
from ndpp.linalg.operations import Array
from ndpp.linalg.schur import MAX_LOSS

TIE = 2.0**-31
"""A gain that is below the best by at most this part of it counts as equal, and the smallest id is taken."""


class GreedyState(Protocol):
    """What a greedy run has chosen, in a form from which the best next item follows.

    Rows come in groups, nearly always of one. A state of several runs side by side has an array of rows, one of each run, in its place.
    """

    def best(self) -> tuple[Sequence[Array], Sequence[Array]] | None:
        """Return what to add next and its gains; None if nothing has a gain, or if rounding hides what is best."""

    def add(self, group: Sequence[Array]) -> None:
        """Add what :meth:`best` returned."""

    def close(self, group: Sequence[Array]) -> None:
        """Never return this group again."""

    def n_sure(self, gains: Sequence[Array]) -> int:
        """Return how many of the items added stand, the first ones, where these are the gains of all: some states find out at the end."""
        return len(gains)


def extend(
    state: GreedyState, count: int, accepts: Callable[[Sequence[Array]], bool] | None = None
) -> tuple[list[Sequence[Array]], list[Array]]:
    """Add up to ``count`` items, as long as the state is sure; return the groups and their gains. The last may go beyond ``count``."""
    groups: list[Sequence[Array]] = []
    gains: list[Array] = []
    with np.errstate(all="ignore"):  # what is not sure is computed again
        while len(gains) < count and (found := state.best()) is not None:
            group, values = found
            if accepts is not None and not accepts(group):
                state.close(group)
                continue
            groups.append(group)
            gains += values
            if len(gains) < count:
                state.add(group)
        sure = state.n_sure(gains)
    return groups[:sure], gains[:sure]


class Careful(GreedyState):
    """A run of any law from its scores, and of kernels in orthonormal coordinates.

    Gains that have lost too many digits are computed again from scratch, and those within rounding error of zero count as zero. Given items
    that never occur by themselves are first completed, and where no single item has a gain, the best pair is added; with ``singly``, items
    come one at a time instead.
    """

    def __init__(self, law: Law, chosen: list[int], open: BoolArray, window: int | None, *, singly: bool) -> None:
        self.scoring, self.window, self.singly = law._scoring, window, singly
        self.chosen, self.open, self.gains, self.is_begun = list(chosen), open.copy(), None, False
        self.start = () if singly else self.scoring.completion(np.array(last(chosen, window), np.int64), open)

    gains: Gains | None

    def best(self) -> tuple[Sequence[int], Sequence[float]] | None:
        """Return the best item, or pair, and its gain."""
        if self.start:
            return self.start, [np.nan] * len(self.start)
        if not self.open.any():
            return None
        if self.gains is None:
            try:
                self.gains = self.scoring.gains(np.array(last(self.chosen, self.window), np.int64), self.open)
            except ZeroProbabilityError:
                if self.is_begun:  # up to rounding, nothing can follow
                    return None
                raise
        gains = self.gains
        certain = np.where(self.open & (gains.values > gains.noise), gains.values, 0.0)
        top = certain.item(certain.argmax())
        if not gains.is_fresh and gains.noise[self.open].max() > MAX_LOSS * top:
            self.gains = None
            return self.best()
        if top > 0:
            best = int((certain >= top * (1 - TIE)).argmax())
            return (best,), (certain.item(best),)
        pair = () if self.singly else gains.best_pair(self.open)
        return (pair, [0.0] * len(pair)) if pair else None

    def add(self, group: Sequence[int]) -> None:
        """Add items: one more is a small change of the gains; after more than one, or in a window, they are computed anew."""
        self.close(group)
        self.chosen += group
        is_small = len(group) == 1 and self.window is None and self.gains is not None and not self.start
        self.gains = self.gains.after(group[0], self.open) if is_small and self.gains is not None else None
        self.start, self.is_begun = (), True

    def close(self, group: Sequence[int]) -> None:
        """Leave out items."""
        self.open[list(group)] = False


def last(chosen: list[int], window: int | None) -> list[int]:
    """Return the items after which the gain of the next one counts."""
    return chosen if window is None else chosen[max(0, len(chosen) - window + 1) :]
