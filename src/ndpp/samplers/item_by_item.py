"""Exact samples of any law, from its inclusion probabilities alone: one item after another.

Distribution: P(S | given, size), for a law that has no faster way to be drawn from. Exact. The size k is drawn first. In a uniformly random
order of the items of S, the next item after the set J of earlier ones is a with probability P(a ∈ S | J ⊆ S, |S| = k) / (k − |J|).

Cost per sample: that of k inclusion probabilities of all items.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.items.base import look_up_cdf
from ndpp.laws.law import Law
from ndpp.samplers.base import Draw, Engine, Sampler


@dataclass(frozen=True, eq=False)
class ItemByItem(Sampler):
    """What ``law.sample`` draws with if the law offers probabilities alone.

    Attributes
    ----------
    given : array
        Items that are in every set.
    sizes : array
        P(|S| = k), cumulative.
    """

    kernel: Law
    given: IntArray
    sizes: FloatArray = field(repr=False)
    engine: Engine | None = field(default=None, repr=False)

    @classmethod
    def prepare(cls, law: Law, *, size: int | None = None, given: IntArray, exclude: IntArray) -> ItemByItem:
        """Compute the sizes of the sets that contain the given items, and no excluded ones."""
        narrowed = law.exclude(exclude) if len(exclude) else law
        sizes = narrowed.size_distribution(given=given, size=size)
        return cls(narrowed, given, np.cumsum(sizes))

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        size, items = look_up_cdf(self.sizes, rng.random()), self.given.tolist()
        while len(items) < size:
            chances = self.kernel.inclusion_probabilities(size, items)
            chances[items] = 0.0
            items.append(look_up_cdf(np.cumsum(chances), rng.random()))
        return Draw(np.sort(np.array(items, np.int64)), {"proposals": 1, "rejections": 0})

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of a draw, which are what is drawn."""
        return rows
