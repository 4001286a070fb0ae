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
from functools import partial
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.items.base import look_up_cdf
from ndpp.laws.background import check_given
from ndpp.laws.families import FamilyMixture
from ndpp.laws.family_sizes import tilts
from ndpp.laws.mixture import MEMORY
from ndpp.laws.patterns import Patterns
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.background import SizedUnion
from ndpp.samplers.mixture import COMPONENT_BYTES, ITEM_BYTES, MixtureSampler, Store


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

    @classmethod
    def prepare(  # type: ignore[override]
        cls,
        mixture: FamilyMixture,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        memory: int = MEMORY,
        device: str | None = None,
        component: int | None = None,
    ) -> FamilySampler:
        """Weigh the components; refuse what cannot be drawn. Parameters as in ``mixture.sample``; ``component`` is a number."""
        mixture = mixture if component is None else mixture.components[component]
        if device not in (None, "cpu"):
            raise InvalidInputError(f"mixtures over families are drawn on the CPU; got device={device!r}")
        excluded, ids = check_items(exclude, mixture, "exclude"), check_items(given, mixture, "given")
        size = None if size is None else check_given(size, len(ids))
        rest = (mixture.exclude(excluded) if len(excluded) else mixture).condition(ids)
        n_kept = max(1, min(len(rest.weights), memory // (COMPONENT_BYTES + ITEM_BYTES * rest.n_items)))
        left, log_tilt, log_mass = None, np.zeros(len(rest.weights)), np.zeros(len(rest.weights))
        touched = rest.touched
        if size is not None:
            left = size - len(ids)
            if left > rest.max_size:
                raise ImpossibleSizeError(f"no set is larger than {rest.max_size + len(ids)} items; got size {size}")
            log_tilt = tilts(rest, left)
            touched = rest.tilted(np.exp(log_tilt))
            log_mass = touched.log_normalizers() - rest.touched.log_normalizers() - left * log_tilt
            log_mass[rest.largest < left] = -np.inf
        weights = rest.weights * np.exp(log_mass - log_mass[rest.weights > 0].max())
        make = partial(_union, rest, touched, left, log_tilt, memory // n_kept)
        return cls(mixture, ids, np.cumsum(weights), Store(make, n_kept))


def _union(
    mixture: FamilyMixture, touched: TiedMixture, size: int | None, log_tilt: FloatArray, memory: int, c: int
) -> FamilyUnion:
    patterns = mixture.patterns.with_odds(mixture.patterns.odds * np.exp(log_tilt[c]))
    some = np.append(mixture.odds[c] * np.expm1(patterns.log_totals), 0.0)
    union = SizedUnion.of(touched.components.tilted(c, 0.0), np.empty(0, np.int64), None, memory)
    return FamilyUnion(union, patterns, some[patterns.slots], patterns.odds / (1 + patterns.odds), size)
