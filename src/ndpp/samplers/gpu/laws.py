"""Engines of all distributions, thousands of samples side by side: a component, then S = T ∪ R, and for families a pattern of each.

This is how the CPU draws, too (:mod:`ndpp.samplers.laws`). T comes from the engine of a kernel (:mod:`.exact`), or for mixtures with shared
ties from clocks of all components at once (:mod:`.tied`); R from hits. Sets of one size are proposed in the same way, tilted towards that
size, until one has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.samplers.base import Engine, Sampler
from ndpp.samplers.exact import Exact
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.proposals import Streams, flipped
from ndpp.samplers.gpu.sets import MAX_BATCH, Alone, BatchEngine, Drawn, LawEngine, items_of, look_up_component, union
from ndpp.samplers.gpu.tied import TiedEngine
from ndpp.samplers.laws import ComponentSource, FamilySource, LawSampler, Store, TiedSource
from ndpp.samplers.unions import SizedUnion

COMPONENT_KEY = 0x9E3779B97F4A7C15
"""What tells the random numbers of components from one another."""


def prepare(sampler: Sampler, device: torch.device) -> Engine | None:
    """Return the engine that draws the samples of a prepared sampler on a device; None if there is nothing to draw."""
    if isinstance(sampler, Exact):
        return ExactEngine.prepare(sampler, device)
    assert isinstance(sampler, LawSampler)
    if not len(sampler.cdf):
        return None
    source = sampler.store.make if isinstance(sampler.store, Store) else sampler.store[0]
    if isinstance(source, TiedSource | FamilySource):
        return TiedEngine.prepare(sampler, source, device)
    if isinstance(source, ComponentSource):
        return ComponentEngine(sampler, device, source)
    assert isinstance(source, SizedUnion)
    return UnionEngine.prepare(sampler, source, device)


@dataclass(eq=False)
class UnionEngine(LawEngine):
    """Draws from a kernel with a background: T by the engine of its low-rank part, unless this has rank zero, and R by hits.

    ``items`` (n + 1,) are those of the support, and the number of all.
    """

    sampler: LawSampler
    device: torch.device
    ties: ExactEngine | None
    alone: Alone
    items: Tensor
    size: int | None

    @classmethod
    def prepare(cls, sampler: LawSampler, union: SizedUnion, device: torch.device) -> UnionEngine:
        """Copy the odds of R to the device."""
        ties, alone = union.ties.engine, Alone.of(union.alone.odds[None], device)
        assert ties is None or isinstance(ties, ExactEngine)
        return cls(sampler, device, ties, alone, items_of(union.ties.kernel, device), union.size)

    def propose(self, streams: Streams, key: AnyArray, index: Tensor) -> Drawn:
        """Return a set for each number in the streams."""
        on_cpu = torch.zeros_like(index)
        every = self.items[self.alone.draw(streams, torch.zeros_like(index), index)]
        if self.ties is not None:
            tied = self.ties.drawn(streams, key, index)
            every, on_cpu = torch.cat([tied.ids, every], 1), tied.counters["on_cpu"]
        return Drawn(*union(every, int(self.items[-1])), {"on_cpu": on_cpu})


@dataclass(eq=False)
class ComponentEngine(BatchEngine):
    """Draws from a mixture of any kernels: the samples of each component together, by the component's own engine."""

    sampler: LawSampler
    device: torch.device
    source: ComponentSource
    max_samples: int = MAX_BATCH

    def drawn(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Drawn:
        """Draw the samples with these numbers, which are also their numbers in the streams of their components."""
        which = look_up_component(torch.from_numpy(self.sampler.cdf).to(self.device), streams, numbers)
        found = []
        for c in torch.unique(which).tolist():
            at = (which == c).nonzero()[:, 0]
            found.append((at, self._of_component(c, flipped(key, (c + 1) * COMPONENT_KEY), numbers[at])))
        return Drawn.scattered(found, len(numbers), self.sampler.kernel.n_items)

    def _of_component(self, c: int, key: AnyArray, numbers: Tensor) -> Drawn:
        sampler = self.source(c)
        if isinstance(sampler.engine, BatchEngine):
            return sampler.engine.drawn(Streams(key, self.device), key, numbers)
        draws = sampler._collect(sampler.draw_batch(key, numbers.tolist()))
        sizes = numbers.new_tensor(draws.baskets.sizes)
        ids = numbers.new_full((len(sizes), int(sizes.max())), self.sampler.kernel.n_items)
        ids[torch.arange(ids.shape[1], device=self.device) < sizes[:, None]] = numbers.new_tensor(draws.baskets.indices)
        return Drawn(ids, sizes, {name: numbers.new_tensor(draws.info[name]) for name in ("proposals", "rejections")})
