"""Exact samples of a mixture over families, unconstrained or of one size.

Law: that of :class:`~ndpp.laws.families.FamilyMixture`, given items and exclusions allowed. Exact. A component is drawn, then the families
that the set touches, from the component's kernel over families, and then for each of them a state and a non-empty set of its items. Given
items leave a mixture of the same kind, so only that one is drawn from.

Sets of one size come as those of a mixture with shared ties: item odds are multiplied by ρ_c, with which about that size is expected, and a
set is accepted if it has that size. Component c is proposed with probability ∝ w_c ρ_c^(−k) Z_c(ρ_c) / Z_c.

Cost of a sample: that of its families from their kernel, and of O(1) for each of them, whatever n and the number of components.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.laws.families import FamilyMixture
from ndpp.laws.patterns import Patterns
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.background import SizedUnion
from ndpp.samplers.mixture import MixtureSampler


class FamilyUnion(NamedTuple):
    """Sets of one component: families from ``union``, a state of each by its cumulative weights (F, K), and items by their odds.

    ``log_rest`` (n, K) is log(1 + r): minus the logarithm of the probability that an item does not come.
    """

    union: SizedUnion
    patterns: Patterns
    cumulated: FloatArray
    log_rest: FloatArray
    size: int | None

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, or None if it does not have the wanted size. Families that are tied, which cost most, are drawn last."""
        apart = self.union.alone.draw(rng)
        items = self.items_of(rng, apart)
        if self.size is not None and len(items) > self.size:
            return None
        tied = np.setdiff1d(self.union.ties.draw(rng).rows, apart)
        if self.size is not None and len(items) + len(tied) > self.size:
            return None
        ids = np.concatenate([items, self.items_of(rng, tied)])
        return ids if self.size in (None, len(ids)) else None

    def items_of(self, rng: np.random.Generator, families: IntArray) -> IntArray:
        """Draw items of each family, given that there is one at least: the first of them, and then the later ones independently."""
        if not len(families):
            return families
        own = self.cumulated[families]
        state = (own <= (rng.random(len(families)) * own[:, -1])[:, None]).sum(axis=1)
        pair, items = self.patterns.items_of(families)
        log_rest = self.log_rest[items, state[pair]]
        ends = np.flatnonzero(np.diff(pair, append=len(families)))
        total = np.cumsum(log_rest)
        none_yet = total - np.append(0.0, total[ends[:-1]])[pair]  # −log P(none up to this item)
        sought = rng.random(len(families)) * -np.expm1(-none_yet[ends])
        is_before = -np.expm1(-none_yet) <= sought[pair]
        is_before[ends] = False  # whatever rounding says, the last item is the first to come if no other is
        is_first = ~is_before & np.append(True, is_before[:-1] | (np.diff(pair) > 0))
        later = ~is_before & ~is_first & (-np.expm1(-log_rest) > rng.random(len(items)))
        return np.asarray(items[is_first | later])


class FamilySource(NamedTuple):
    """Makes what draws from a component: with item odds ρ_c r, sets of ``size`` items; ``touched`` is the mixture of their families."""

    mixture: FamilyMixture
    touched: TiedMixture
    size: int | None
    log_tilt: FloatArray
    memory: int

    def __call__(self, c: int) -> FamilyUnion:
        """Return what draws from component c."""
        patterns = self.mixture.patterns.with_odds(self.mixture.patterns.odds * np.exp(self.log_tilt[c]))
        some = np.append(self.mixture.odds[c] * np.expm1(patterns.log_totals), 0.0)
        union = SizedUnion.of(self.touched.single(c), np.empty(0, np.int64), None, self.memory)
        cumulated = np.cumsum(some[patterns.slots], axis=1)
        return FamilyUnion(union, patterns, cumulated, np.log1p(patterns.odds), self.size)


@dataclass(frozen=True, eq=False)
class FamilySampler(MixtureSampler):
    """What ``mixture.sample`` draws with if the mixture is one over families.

    Examples
    --------
    >>> import ndpp
    >>> law = ndpp.FamilyMixture([[1.0, 1.0]], [[1.0], [1.0], [1.0]], [0, 0, 1], [0, 1], np.zeros((2, 1)), [[1.0]], [1.0])
    >>> law.sampler(size=2).sample(3, rng=0).baskets.to_lists()
    [[0, 2], [1, 2], [0, 2]]
    """

    _engine: ClassVar[str] = "ndpp.samplers.gpu.families:FamilyEngine"

    @classmethod
    def _source(
        cls, mixture: FamilyMixture, size: int | None, log_tilt: FloatArray | None, memory: int
    ) -> FamilySource:
        touched = mixture.touched if log_tilt is None else mixture.tilted(np.exp(log_tilt))
        return FamilySource(
            mixture, touched, size, np.zeros(len(mixture.odds)) if log_tilt is None else log_tilt, memory
        )
