"""Samples under limits, thousands side by side: proposals of the engine of tilted components, accepted as on the CPU.

The acceptance is that of :mod:`ndpp.samplers.limits`. Proposal j for sample i is a function of seed, i and j, and the first one that is
accepted counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray, KeyArray
from ndpp.samplers.base import stream_key
from ndpp.samplers.gpu.kernels.propose import uniforms
from ndpp.samplers.gpu.proposals import Streams
from ndpp.samplers.gpu.sets import MAX_BATCH, BatchEngine, DrawnSets, first_accepted, look_up_component
from ndpp.samplers.proposer import CHECKED_AFTER, MAX_LIMITED_PROPOSALS, PILOT_PROPOSALS, Pilot, Proposer, given_up

ACCEPT_STEP = (1 << 22) + 3
"""The step whose random numbers accept sets."""


@dataclass(eq=False)
class LimitedEngine(BatchEngine):
    """Draws the samples of a :class:`~ndpp.samplers.Proposer` under limits.

    ``parts`` proposes sets of its ``components``, whose ``theta`` and ``bound`` are (C, J); ``values`` (n + 1, J) are those of the items
    and of none, and the limits on further items ``low`` and ``high`` (J,).
    """

    sampler: Proposer
    device: torch.device
    parts: Any
    theta: Tensor
    bound: Tensor
    values: Tensor
    low: Tensor
    high: Tensor
    max_samples: int = MAX_BATCH

    @classmethod
    def prepare(cls, sampler: Proposer, rest: Proposer, parts: Any) -> LimitedEngine:
        """Copy limits and tilts to the device of the engine that proposes; ``rest`` has those beside the given items."""
        left, at = rest.left, parts.components
        assert left is not None  # it has limits
        limits = left.limits
        padded = np.pad(limits.values.T, ((0, 1), (0, 0)))
        arrays = left.theta[at], left.bound[at], padded, limits.low, limits.high
        theta, bound, values, low, high = (torch.from_numpy(part).to(parts.device) for part in arrays)
        return cls(sampler, parts.device, parts, theta, bound, values, low, high)

    def drawn(self, streams: Streams, key: KeyArray, numbers: Tensor) -> DrawnSets:
        """Draw the samples with these numbers."""

        def propose(index: Tensor) -> tuple[DrawnSets, Tensor]:
            proposed, chances = self.proposed(streams, key, index)
            return proposed, uniforms(*streams.counters(index), ACCEPT_STEP, 0, 1)[0][:, 0] < chances.prod(1)

        def check(tried: int) -> None:
            if tried >= CHECKED_AFTER:
                self.sampler.check_expected(self.pilot)
            if tried >= MAX_LIMITED_PROPOSALS:
                raise given_up(tried, within_limits=True)

        n_items = self.sampler.kernel.n_items
        found, attempts = first_accepted(numbers, self.max_samples, propose, check, n_items)
        given = torch.from_numpy(self.sampler.given).to(self.device).expand(len(numbers), -1)
        counters = {**found.counters, "proposals": attempts, "rejections": attempts - 1}
        return DrawnSets(torch.cat([found.ids, given], 1), found.sizes + given.shape[1], counters)

    def proposed(self, streams: Streams, key: KeyArray, index: Tensor) -> tuple[DrawnSets, Tensor]:
        """Return a set for each number in the streams, and the chances (S, J) that each limit accepts it, 0 where it is broken."""
        drawn, which = self.parts.propose(streams, key, index), look_up_component(self.parts.cdf, streams, index)
        totals = self.values[drawn.ids].sum(1)
        kept = (self.low <= totals) & (totals <= self.high) & (drawn.sizes >= 0)[:, None]
        return drawn, torch.exp(torch.where(kept, -self.theta[which] * (totals - self.bound[which]), -torch.inf))

    @cached_property
    def pilot(self) -> Pilot:
        """What some proposals show, in a stream of their own."""
        key, parts = stream_key(0), count()
        streams = Streams(key, self.device)

        def propose() -> FloatArray:
            first = PILOT_PROPOSALS * next(parts)
            index = torch.arange(first, first + PILOT_PROPOSALS, device=self.device)
            return np.asarray(self.proposed(streams, key, index)[1].cpu())

        return Pilot.run(len(self.sampler.limits), propose)
