"""Mixtures with shared ties, of items or of families: all components at once, thousands of samples side by side.

T comes from the clocks of :mod:`.clock`, the patterns of families from :mod:`.families`. Memory: about 32r bytes per item and component for
the tables, all components if they fit into a third of the memory, and otherwise some at a time; about 200r bytes per sample and item of T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray, IntArray
from ndpp.samplers.base import stream
from ndpp.samplers.clock import Clock
from ndpp.samplers.gpu.clock import ClockGroup, clocks_that_fit
from ndpp.samplers.gpu.families import FamilyItems
from ndpp.samplers.gpu.memory import free_memory
from ndpp.samplers.gpu.proposals import Streams, flipped
from ndpp.samplers.gpu.sets import Drawn, LawEngine, hits, items_of, look_up_component, union
from ndpp.samplers.gpu.spectra import Spectra, n_bytes, prepare
from ndpp.samplers.laws import FamilySource, LawSampler, TiedSource

CPU_KEY = 0xC2B2AE3D27D4EB4F
"""What tells the random numbers of samples that the CPU draws or completes from those on the device."""
UNREACHABLE = 2.0**-60
"""Components with a smaller share are left out: no random number of 53 bits leads to them."""


@dataclass(eq=False)
class TiedEngine(LawEngine):
    """Draws from mixtures with shared ties, of items or of families.

    ``components`` are those that can be drawn, ``cdf`` (C,) their weights' sums, ``blocks`` those whose tables are in memory together.
    ``items`` (n + 1,) are those of the support, and the number of all; for families, ``patterns`` draws their items.
    """

    sampler: LawSampler
    device: torch.device
    source: TiedSource
    q: Tensor
    items: Tensor
    components: IntArray
    cdf: Tensor
    blocks: list[slice]
    size: int | None
    patterns: FamilyItems | None
    _spectra: dict[int, Spectra] = field(default_factory=dict, repr=False)

    @classmethod
    def prepare(cls, sampler: LawSampler, source: TiedSource | FamilySource, device: torch.device) -> TiedEngine:
        """Copy the rows of the ties to the device."""
        weights = np.diff(sampler.cdf, prepend=0.0)
        components, patterns, tied = np.flatnonzero(weights > UNREACHABLE * sampler.cdf[-1]), None, source
        if isinstance(tied, FamilySource):
            patterns = FamilyItems.of(tied, components, device)
            tied = TiedSource(tied.touched, None, None, tied.memory)
        ties = tied.mixture.base
        q = torch.empty(ties.n_rows, ties.rank, dtype=torch.float64, device=device)
        for block, part in ties.q_blocks():
            q[block] = torch.from_numpy(np.array(part)).to(device)
        fit = max(1, free_memory(device) // 3 // n_bytes(ties.n_rows, ties.rank))
        blocks = [slice(start, min(start + fit, len(components))) for start in range(0, len(components), fit)]
        cdf = torch.from_numpy(np.cumsum(weights[components])).to(device)
        items = items_of(ties, device)
        return cls(sampler, device, tied, q, items, components, cdf, blocks, source.size, patterns)

    def spectra(self, block: int) -> Spectra:
        """Return the tables of a block of components; those of the last one used are kept."""
        if block not in self._spectra:
            self._spectra.clear()
            mixture, which = self.source.mixture, self.components[self.blocks[block]]
            log_tilt = 0.0 if self.source.log_tilt is None else self.source.log_tilt[which]
            odds = mixture.tilted_odds(log_tilt, which)
            self._spectra[block] = prepare(self.q, torch.from_numpy(mixture.core).to(self.device), odds)
        return self._spectra[block]

    def propose(self, streams: Streams, key: AnyArray, index: Tensor) -> Drawn:
        """Return a set for each number in the streams; of families, those with more than items are wanted are rejected."""
        which, found = look_up_component(self.cdf, streams, index), list[tuple[Tensor, Drawn]]()
        for number, block in enumerate(self.blocks):
            positions = ((which >= block.start) & (which < block.stop)).nonzero()[:, 0]
            if len(positions):
                spectra, local = self.spectra(number), which[positions] - block.start
                for part in self._groups(spectra, local):
                    at = positions[part]
                    found.append((at, self._group(spectra, block, streams, key, local[part], index[at])))
        n_items = int(self.items[-1])
        drawn = Drawn.scattered(found, len(index), n_items)
        if self.patterns is None:
            return drawn
        hopeless = torch.zeros_like(drawn.sizes, dtype=torch.bool) if self.size is None else drawn.sizes > self.size
        touched = torch.where(hopeless[:, None], n_items, drawn.ids)
        ids, sizes = self.patterns.draw(streams, index, which, touched)
        return Drawn(ids, torch.where(hopeless, -1, sizes), drawn.counters)

    def _groups(self, spectra: Spectra, which: Tensor) -> Iterator[Tensor]:
        """Yield positions of samples whose clocks run together, as many as fit into memory."""
        every = torch.arange(len(spectra.eigenvalues), device=self.device)
        f = spectra.factors(every, self.q.new_zeros(len(every)))
        mean = float((spectra.multiplicity * f.real).sum(1)[which].mean())
        more = 60 * float(spectra.alone_rate.max()) + 2000
        yield from torch.split(torch.arange(len(which), device=self.device), clocks_that_fit(spectra, mean, more))

    def _group(
        self, spectra: Spectra, block: slice, streams: Streams, key: AnyArray, which: Tensor, index: Tensor
    ) -> Drawn:
        """Draw samples of the components ``which`` of a block."""

        def clock_of(c: int) -> Clock:
            return Clock.prepare(self.source.kernel(int(self.components[block][c])).ties)

        clocks = ClockGroup(spectra, streams, which, index)
        on_cpu = clocks.run(clock_of, partial(stream, flipped(key, CPU_KEY)))
        apart = hits(spectra.alone, spectra.alone_rate, streams, which, index)
        rows, sizes = union(torch.cat([clocks.rows, apart], 1), spectra.n_rows)
        return Drawn(self.items[rows], sizes, {"on_cpu": on_cpu})
