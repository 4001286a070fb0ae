"""Samplers of kernels with a background, S = T ∪ R (:mod:`.unions`), also as components of a mixture whose own sampler rejects too much.

Sets of one size may be rare however odds are tilted, as those of odd sizes are if W is nearly skew. :class:`SizedUnion` chooses the number
of items of T and of R first, which does not matter to it; where both its rules reject too much, items are drawn one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ndpp._types import IntArray
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.precision import check_given
from ndpp.samplers.base import Sampler, with_engine
from ndpp.samplers.item_by_item import ItemByItem
from ndpp.samplers.proposer import MAX_EXPECTED, Asked, Proposer, all_given, of_component
from ndpp.samplers.unions import SizedUnion


def prepare_background(kernel: LowRankKernel, asked: Asked) -> Sampler:
    """Prepare a kernel; item by item for sets of a size that would take more than ``MAX_EXPECTED`` proposals on average."""
    narrowed, size = kernel.exclude(asked.exclude), asked.size
    ids = narrowed.catalogue_ids(narrowed.rows_of(asked.given, "given"))

    def union() -> SizedUnion | None:
        rest, tied = narrowed.given_alone(ids)
        if rest is None:
            return None
        alone = np.setdiff1d(ids, tied)
        left = None if size is None else size - len(alone)
        return SizedUnion.prepare(kernel, rest, tied, alone, left, asked.memory.budget, asked.device)

    if size is not None:
        check_given(size, len(ids))
    found = asked.memory.remember(("union", *asked.key), union)
    if found is None:
        return all_given(kernel, ids, size)
    if found.expected > MAX_EXPECTED and asked.device is not None:  # the CPU has another rule
        return prepare_background(kernel, asked._replace(device=None))
    if found.expected > MAX_EXPECTED:
        return ItemByItem.prepare(kernel, size=size, given=asked.given, exclude=asked.exclude)
    made = Proposer(kernel, found.given, np.zeros(1), found, expected_proposals=found.expected)
    return with_engine(made, asked.device)


@dataclass(frozen=True, eq=False)
class SizedComponents:
    """Drawers of sets of one size: each component by itself, as a kernel, or item by item if it has families; nothing is rejected."""

    laws: Sequence[Law]
    asked: Asked

    def __getitem__(self, c: int) -> FurtherOfSampler:
        asked = of_component(self.asked, c)

        def make() -> Sampler:
            law = self.laws[c]
            if law.as_kernel is not None:
                return prepare_background(law.as_kernel, asked)
            return ItemByItem.prepare(law, size=asked.size, given=asked.given, exclude=asked.exclude)

        return FurtherOfSampler(asked.memory.remember(("sampler", *asked.key), make), asked.given)


@dataclass(frozen=True, eq=False)
class FurtherOfSampler:
    """What a sampler draws, without the given items."""

    sampler: Sampler
    given: IntArray

    def propose(self, rng: np.random.Generator) -> IntArray:
        """Return the further items of a set."""
        return np.setdiff1d(self.sampler.draw(rng).rows, self.given)
