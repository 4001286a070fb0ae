"""One component of a law, given some items: what its sizes, totals and inclusions follow from, whatever the law.

A component is the union of T, a low-rank NDPP, and of items, or families of items, that come by themselves (:mod:`ndpp.linalg.sizes`). In
the coordinates of T its marginal kernel is q_iᵀ N q_j. So N and the groups say all: the distribution of the number of items, of totals of
their values, both together with an item, and with all odds multiplied by ρ for a size that is rare. The error of N is checked here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.laws.precision import FREE, say_precision
from ndpp.linalg.scaling import EPS
from ndpp.linalg.sizes import ROUNDED, Coins, Groups, SizeLaw, Stepped
from ndpp.linalg.tilts import solve_tilt

DERIVATIVE = 10.0
"""A probability is a derivative of log Z, whose error is larger by about this."""


class Part(NamedTuple):
    """A component with the odds of its items multiplied by ρ, given some items.

    Attributes
    ----------
    marginal : (r, r) array
        N.
    groups : callable
        Yields the items, or families of them, some at a time.
    items : array
        The items of the catalogue in the order of the groups, ascending.
    largest : int
        No set has more further items.
    log_tilt, log_weight : float
        log ρ, and log of the weight of all sets relative to the empty one.
    error : float
        An estimate of the error of ``log_weight``.
    known : array, optional
        P(|S| = k), if there is a better way to it.
    """

    marginal: FloatArray
    groups: Callable[[], Iterable[Groups]]
    items: IntArray
    largest: int
    log_tilt: float
    log_weight: float
    error: float
    known: FloatArray | None = None

    @property
    def sizes(self) -> SizeLaw:
        """The distribution of the number of further items."""
        say_precision(DERIVATIVE * self.error, FREE, stacklevel=5)
        return SizeLaw.prepare(self.marginal, self.groups, self.largest)

    def size_distribution(self) -> FloatArray:
        """Return P(|S| = k) for k = 0..largest."""
        if self.known is None:
            return self.sizes.distribution()
        say_precision(self.error, FREE, stacklevel=5)
        return self.known

    def joint(self, ids: IntArray) -> tuple[int, FloatArray]:
        """Return a first size k, and P(a ∈ S, |S| = k) of some items, ascending, for the sizes from it on."""
        return joint_sizes(self.sizes, self.places(ids))

    def totals(self, steps: FloatArray) -> SizeLaw:
        """Return the distribution of the total of further items; item i adds ``steps[i]``."""
        say_precision(DERIVATIVE * self.error, FREE, stacklevel=5)
        own = steps[self.items]

        def stepped() -> Iterator[Stepped]:
            at = 0
            for groups in self.groups():
                yield Stepped(groups, own[at : at + groups.n_items])
                at += groups.n_items

        return SizeLaw.prepare(self.marginal, stepped, int(own.sum()), float(own.max(initial=1.0)))

    def places(self, ids: IntArray) -> IntArray:
        """Return where these items are in the order of the groups."""
        return np.searchsorted(self.items, ids)


class Parts(NamedTuple):
    """All components of a law given some items.

    ``at(c, log_tilt)`` is component c with all odds times ρ. ``starts(size)`` guesses, for each component, the log ρ under which ``size``
    further items are expected.
    """

    at: Callable[[int, float], Part]
    starts: Callable[[int], FloatArray]
    max_step: float = 10.0

    def sized(self, c: int, size: int, start: float) -> SizedPart:
        """Return component c with the odds multiplied so that about ``size`` further items are expected."""
        found: SizedPart | None = None

        def moments(log_tilt: float) -> tuple[float, float]:
            nonlocal found
            part = self.at(c, log_tilt)
            found = SizedPart(part, part.sizes)
            return found.law.mean_and_variance()

        solve_tilt(moments, size, start, deviations=0.3, max_step=self.max_step)
        assert found is not None
        return found


NOTHING_LEFT = Part(
    np.empty((0, 0)), lambda: [Coins(np.empty(0), np.empty((0, 0)))], np.empty(0, np.int64), 0, 0.0, 0.0, 0.0
)
"""What is left of a component if all items are given."""
ALL_GIVEN = Parts(lambda c, log_tilt: NOTHING_LEFT, lambda size: np.empty(0))


class SizedPart(NamedTuple):
    """A component with the odds multiplied so that about the wanted number of items is expected."""

    part: Part
    law: SizeLaw

    def _log_shares(self, sizes: IntArray) -> FloatArray:
        """Return log of what turns weights of these sizes under the raised odds into those under the odds as they were."""
        return np.asarray(self.part.log_weight - sizes * self.part.log_tilt)

    def size_distribution(self) -> FloatArray:
        """Return P(|S| = k) with the odds as they were, under which all sets but the empty one are rare."""
        chances = self.law.distribution()
        weights = np.where(chances > ROUNDED, chances, 0.0)
        weights *= np.exp(self._log_shares(np.arange(len(weights))))
        weights[0] = 1.0
        lost = ROUNDED * np.exp(float(self._log_shares(np.array(1)))) if weights[1] == 0 else 0.0
        say_precision(lost / weights[1:].sum(), FREE, stacklevel=6)
        return np.asarray(weights / weights.sum())

    def joint(self, ids: IntArray) -> tuple[int, FloatArray]:
        """Return a first size k, and P(a ∈ S, |S| = k) of some items with the odds as they were, for the sizes from it on."""
        low, found = joint_sizes(self.law, self.part.places(ids))
        found[:, self.law.distribution()[low : low + found.shape[1]] <= ROUNDED] = 0.0
        shares = np.exp(self._log_shares(np.arange(low, low + found.shape[1])))
        return low, np.asarray(found * shares * self.size_distribution()[0])

    def log_weight_of(self, size: int) -> tuple[float, float]:
        """Return log of the weight, with the odds as they were, of all sets of one size, and its error: that of the sum of all sizes."""
        chances = self.law.distribution()
        if chances[size] <= ROUNDED:  # possible, as all sizes are, but lost in rounding
            return -np.inf, np.inf
        value = float(np.log(chances[size]) + self._log_shares(np.array(size)))
        return value, (abs(float(chances.sum()) - 1) + EPS) / float(chances[size])


def joint_sizes(law: SizeLaw, places: IntArray) -> tuple[int, FloatArray]:
    """Return a first size k, and P(a ∈ S, |S| = k) of some items for the sizes from it on: 0 for k = 0."""
    low, found = law.joint(places)
    found[:, : int(low == 0)] = 0.0
    return low, found
