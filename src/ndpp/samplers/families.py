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
from ndpp.items.base import look_up_cdf
from ndpp.laws.families import FamilyMixture
from ndpp.laws.patterns import Patterns
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.background import SizedUnion
from ndpp.samplers.mixture import MixtureSampler


class FamilyUnion(NamedTuple):
    """Sets of one component: families from ``union``, a state of each by ``weights`` (F, K), and items by ``chances`` (n, K)."""

    union: SizedUnion
    patterns: Patterns
    weights: FloatArray
    chances: FloatArray
    size: int | None

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, or None if it does not have the wanted size."""
        families = self.union.propose(rng)
        assert families is not None, "the number of families is not given"
        if self.size is not None and len(families) > self.size:
            return None
        items = [self.pattern(rng, int(g)) for g in families]
        ids = np.concatenate([np.empty(0, np.int64), *items])
        return ids if self.size in (None, len(ids)) else None

    def pattern(self, rng: np.random.Generator, g: int) -> IntArray:
        """Draw items of a family, given that there is one at least: the first of them, and then the later ones independently."""
        members = self.patterns.members[g]
        if len(members) == 1:
            return members
        k = int(look_up_cdf(np.cumsum(self.weights[g]), rng.random(1))[0])
        theta = self.chances[members, k]
        first = int(look_up_cdf(-np.expm1(np.cumsum(np.log1p(-theta))), rng.random(1))[0])
        taken = rng.random(len(members)) < theta
        taken[: first + 1] = False
        taken[first] = True
        return np.asarray(members[taken])


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
        return FamilyUnion(union, patterns, some[patterns.slots], patterns.odds / (1 + patterns.odds), self.size)


@dataclass(frozen=True, eq=False)
class FamilySampler(MixtureSampler):
    """What ``mixture.sample`` draws with if the mixture is one over families.

    Examples
    --------
    >>> import ndpp
    >>> law = ndpp.FamilyMixture([[1.0, 1.0]], [[1.0], [1.0], [1.0]], [0, 0, 1], [0, 1], np.zeros((2, 1)), [[1.0]], [1.0])
    >>> law.sampler(size=2).sample(3, rng=0).baskets.to_lists()
    [[1, 2], [1, 2], [0, 1]]
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
