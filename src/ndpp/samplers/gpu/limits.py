"""Samples under limits, thousands side by side: proposals of the engine of tilted components, accepted as on the CPU.

The acceptance is that of :mod:`ndpp.samplers.limits`. Proposal j for sample i is a function of seed, i and j, and the first one that is
accepted counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray, IntArray, KeyArray, cached_property
from ndpp.samplers.base import stream_key
from ndpp.samplers.gpu.proposals import Streams
from ndpp.samplers.gpu.sets import DrawnSets, LawEngine, look_up_component
from ndpp.samplers.proposer import CHECKED_AFTER, MAX_LIMITED_PROPOSALS, PILOT_PROPOSALS, Pilot, Proposer, given_up

ACCEPT_STEP = (1 << 22) + 3
"""The step whose random numbers accept sets."""


class Proposing(Protocol):
    """The engine of a mixture, which proposes sets of some of its components; ``cdf`` (C,) are the sums of their weights."""

    device: torch.device
    components: IntArray
    cdf: Tensor

    def propose(self, streams: Streams, key: KeyArray, index: Tensor) -> DrawnSets:
        """Return a set for each number in the streams, without the given items; some may be rejected."""


@dataclass(eq=False)
class LimitedEngine(LawEngine):
    """Draws the samples of a :class:`~ndpp.samplers.Proposer` under limits.

    ``parts`` proposes sets of its ``components``, whose ``theta`` and ``bound`` are (C, J); ``values`` (n + 1, J) are those of the items
    and of none, and the limits on further items ``low`` and ``high`` (J,).
    """

    sampler: Proposer
    device: torch.device
    parts: Proposing
    theta: Tensor
    bound: Tensor
    values: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def prepare(cls, sampler: Proposer, rest: Proposer, parts: Proposing) -> LimitedEngine:
        """Copy limits and tilts to the device of the engine that proposes; ``rest`` has those beside the given items."""
        left, at = rest.left, parts.components
        assert left is not None  # it has limits
        limits = left.limits
        padded = np.pad(limits.values.T, ((0, 1), (0, 0)))
        arrays = left.theta[at], left.bound[at], padded, limits.low, limits.high
        theta, bound, values, low, high = (torch.from_numpy(np.array(part)).to(parts.device) for part in arrays)
        return cls(sampler, parts.device, parts, theta, bound, values, low, high)

    def propose(self, streams: Streams, key: KeyArray, index: Tensor) -> DrawnSets:
        """Return a set for each number in the streams, without the given items."""
        return self.parts.propose(streams, key, index)

    def accept(self, streams: Streams, index: Tensor, proposed: DrawnSets) -> Tensor:
        """Return which of the sets that were proposed for numbers in the streams are accepted."""
        return streams.uniform(index, ACCEPT_STEP) < self.chances(streams, index, proposed).prod(1)

    def check(self, tried: int) -> None:
        """Refuse draws that need too many proposals."""
        if tried >= CHECKED_AFTER:
            self.sampler.check_expected(self.pilot)
        if tried >= MAX_LIMITED_PROPOSALS:
            raise given_up(tried, within_limits=True)

    def chances(self, streams: Streams, index: Tensor, proposed: DrawnSets) -> Tensor:
        """Return the chances (S, J) that each limit accepts the sets that were proposed for these numbers, 0 where it is broken."""
        which, totals = look_up_component(self.parts.cdf, streams, index), self.values[proposed.ids].sum(1)
        kept = (self.low <= totals) & (totals <= self.high) & (proposed.sizes >= 0)[:, None]
        return torch.exp(torch.where(kept, -self.theta[which] * (totals - self.bound[which]), -torch.inf))

    @cached_property
    def pilot(self) -> Pilot:
        """What some proposals show, in a stream of their own; raises if no set keeps the limits."""
        self.sampler.check_possible()
        key, parts = stream_key(0), count()
        streams = Streams(key, self.device)

        def propose() -> FloatArray:
            first = PILOT_PROPOSALS * next(parts)
            index = torch.arange(first, first + PILOT_PROPOSALS, device=self.device)
            return np.asarray(self.chances(streams, index, self.propose(streams, key, index)).cpu())

        return Pilot.run(len(self.sampler.limits), propose)
