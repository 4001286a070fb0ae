"""Mixtures with shared ties on a CUDA device: all components at once, thousands of samples side by side.

A sample is drawn as on the CPU (:mod:`ndpp.samplers.laws`): a component c, then S = T ∪ R. T comes from the clocks of :mod:`.clock`,
and R from hits: each item i is hit Poisson(log(1 + o_i)) times (:class:`~ndpp.samplers.unions.Alone`). Sets of one size are proposed in
the same way, from components tilted towards that size, until one has it.

Memory: about 32r bytes per item and component for the tables, all components if they fit into a third of the memory, and otherwise some
at a time; about 200r bytes per sample and item of T.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import pdtr, pdtrik
from torch import Tensor

from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import BudgetExceededError
from ndpp.samplers.base import Draws, stream
from ndpp.samplers.clock import Clock
from ndpp.samplers.gpu.batches import BatchEngine
from ndpp.samplers.gpu.clock import ClockGroup, Unfinished, clocks_that_fit
from ndpp.samplers.gpu.memory import free_memory
from ndpp.samplers.gpu.proposals import Streams, look_up_cdf
from ndpp.samplers.gpu.spectra import Spectra, n_bytes, prepare
from ndpp.samplers.laws import MAX_PROPOSALS, LawSampler, TiedSource

COMPONENT_STEP, HITS_STEP, ALONE_STEP = 1 << 22, (1 << 22) + 1, (1 << 22) + 2
"""Steps whose random numbers determine the component, the number of hits, and the items hit."""
CPU_KEY = 0xC2B2AE3D27D4EB4F
"""What tells the random numbers of samples that the CPU draws or completes from those on the device."""
ATTEMPT_BIT = 40
"""Proposal j for sample i has the number i + j · 2^40 in the streams."""
MAX_BATCH = 2**17
"""Maximum number of samples in parallel. The device is busy with fewer; with more, fewer moves and launches are needed per sample."""
UNREACHABLE = 2.0**-60
"""Components with a smaller share are left out: no random number of 53 bits leads to them."""


class Proposals(NamedTuple):
    """Sets (S, w) as sorted items, after them the number of items of the catalogue; their sizes, −1 if rejected; which the CPU drew."""

    ids: Tensor
    sizes: Tensor
    on_cpu: Tensor


class SetEngine(BatchEngine):
    """Draws the samples of one sampler on one device from sets that are proposed for many of them at once."""

    sampler: LawSampler

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of items to draw in addition to the given ones, if not any number."""

    @abstractmethod
    def propose(self, streams: Streams, key: AnyArray, index: Tensor) -> Proposals:
        """Return a set for each number in the streams, without the given items."""

    def _draws(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Draws:
        """Draw the samples with these consecutive numbers."""
        began = time.perf_counter()
        given, size = torch.from_numpy(self.sampler.given).to(self.device), self.size
        if size is None:
            drawn, attempts = self.propose(streams, key, numbers), torch.ones_like(numbers)
        else:
            drawn, attempts = self._sized(streams, key, numbers, size)
        sizes = drawn.sizes + len(given)
        ids = torch.cat([drawn.ids, given.expand(len(numbers), -1)], 1).sort(dim=1).values
        inside = torch.arange(ids.shape[1], device=self.device) < sizes[:, None]
        n_items, labels = self.sampler.kernel.n_items, self.sampler.kernel.labels
        ends = np.append(0, np.cumsum(sizes.cpu().numpy()))
        baskets = Baskets._trusted(ends, ids[inside].cpu().numpy(), n_items, labels)
        info: dict[str, AnyArray] = {
            "proposals": attempts.cpu().numpy(),
            "rejections": attempts.cpu().numpy() - 1,
            "on_cpu": drawn.on_cpu.cpu().numpy(),
        }
        return Draws(baskets, info | {"seconds": np.full(len(numbers), (time.perf_counter() - began) / len(numbers))})

    def _sized(self, streams: Streams, key: AnyArray, numbers: Tensor, size: int) -> tuple[Proposals, Tensor]:
        """Return for each sample its first proposal of this size, and how many it took."""
        pending, attempts = torch.arange(len(numbers), device=self.device), torch.zeros_like(numbers)
        found = Proposals(
            numbers.new_empty(len(numbers), size), torch.full_like(numbers, size), torch.zeros_like(numbers)
        )
        tried = 0
        while len(pending):
            if tried >= MAX_PROPOSALS:
                raise BudgetExceededError(
                    f"{tried} sets were proposed for a sample, none of them of the wanted size. Ask for another size, see "
                    "mixture.size_distribution(), or draw from one component",
                    count=tried,
                )
            # Once few samples are left, each makes many proposals at once. Its first success counts, however many are made.
            n_each = max(1, min(self.max_samples // len(pending), tried + 1, MAX_PROPOSALS - tried))
            index = numbers[pending, None] + (torch.arange(tried, tried + n_each, device=self.device) << ATTEMPT_BIT)
            proposed = self.propose(streams, key, index.view(-1))
            good = (proposed.sizes == size).view(-1, n_each)
            done, place = good.any(1), good.int().argmax(1)
            attempts[pending] += torch.where(done, place + 1, n_each)
            at = (torch.arange(len(pending), device=self.device) * n_each + place)[done]
            if len(at):  # otherwise, all sets may be smaller
                found.ids[pending[done]], found.on_cpu[pending[done]] = proposed.ids[at, :size], proposed.on_cpu[at]
            pending, tried = pending[~done], tried + n_each
        return found, attempts


@dataclass(eq=False)
class TiedEngine(SetEngine):
    """Draws the samples of one :class:`~ndpp.samplers.laws.LawSampler` on one device, at most ``max_samples`` in parallel.

    ``components`` are those that can be drawn, ``cdf`` (C,) their weights' sums, ``blocks`` those whose tables are in memory together.
    """

    sampler: LawSampler
    source: TiedSource
    device: torch.device
    q: Tensor
    components: IntArray
    cdf: Tensor
    blocks: list[slice]
    max_samples: int = MAX_BATCH
    _spectra: dict[int, Spectra] = field(default_factory=dict, repr=False)

    @classmethod
    def prepare(cls, sampler: LawSampler, device: torch.device) -> TiedEngine | None:
        """Copy the rows of the ties to the device; return None if there is nothing to draw."""
        if not len(sampler.cdf):
            return None
        source = sampler.store.make
        assert isinstance(source, TiedSource)
        weights = np.diff(sampler.cdf, prepend=0.0)
        components = np.flatnonzero(weights > UNREACHABLE * sampler.cdf[-1])
        ties = source.mixture.base
        q = torch.empty(ties.n_rows, ties.rank, dtype=torch.float64, device=device)
        for block, part in ties.q_blocks():
            q[block] = torch.from_numpy(np.array(part)).to(device)
        fit = max(1, free_memory(device) // 3 // n_bytes(ties.n_rows, ties.rank))
        blocks = [slice(start, min(start + fit, len(components))) for start in range(0, len(components), fit)]
        cdf = torch.from_numpy(np.cumsum(weights[components])).to(device)
        return cls(sampler, source, device, q, components, cdf, blocks)

    @property
    def size(self) -> int | None:
        """Number of items to draw in addition to the given ones, if not any number."""
        return self.source.size

    def spectra(self, block: int) -> Spectra:
        """Return the tables of a block of components; those of the last one used are kept."""
        if block not in self._spectra:
            self._spectra.clear()
            mixture, which = self.source.mixture, self.components[self.blocks[block]]
            log_tilt = 0.0 if self.source.log_tilt is None else self.source.log_tilt[which]
            odds = mixture.tilted_odds(log_tilt, which)
            self._spectra[block] = prepare(self.q, torch.from_numpy(mixture.core).to(self.device), odds)
        return self._spectra[block]

    def propose(self, streams: Streams, key: AnyArray, index: Tensor) -> Proposals:
        """Return a set for each number in the streams, without the given items."""
        which = self.component(streams, index)
        found: list[tuple[Tensor, Proposals]] = []
        for number, block in enumerate(self.blocks):
            positions = ((which >= block.start) & (which < block.stop)).nonzero()[:, 0]
            if len(positions):
                spectra, local = self.spectra(number), which[positions] - block.start
                for part in self._groups(spectra, local):
                    at = positions[part]
                    found.append((at, self._group(spectra, block, streams, key, local[part], index[at])))
        n_items = self.sampler.kernel.n_items
        ids = index.new_full((len(index), max(part.ids.shape[1] for _, part in found)), n_items)
        sizes, on_cpu = torch.empty_like(index), torch.empty_like(index)
        for at, drawn in found:
            ids[at, : drawn.ids.shape[1]], sizes[at], on_cpu[at] = drawn
        return Proposals(ids, sizes, on_cpu)

    def component(self, streams: Streams, index: Tensor) -> Tensor:
        """Return the component of each number in the streams, as a position in ``components``."""
        return look_up_cdf(self.cdf, streams.uniforms(index, COMPONENT_STEP, 0, 1)[0][:, 0])

    def _groups(self, spectra: Spectra, which: Tensor) -> Iterator[Tensor]:
        """Yield positions of samples whose clocks run together, as many as fit into memory."""
        every = torch.arange(len(spectra.eigenvalues), device=self.device)
        f = spectra.factors(every, self.q.new_zeros(len(every)))
        mean = float((spectra.multiplicity * f.real).sum(1)[which].mean())
        more = 60 * float(spectra.alone_rate.max()) + 2000
        yield from torch.split(torch.arange(len(which), device=self.device), clocks_that_fit(spectra, mean, more))

    def _group(
        self, spectra: Spectra, block: slice, streams: Streams, key: AnyArray, which: Tensor, index: Tensor
    ) -> Proposals:
        """Draw samples of the components ``which`` of a block."""
        base, diagonal = self.source.mixture.base, spectra.diagonal[which]
        on_cpu, tied = (~diagonal).long(), torch.full((len(which), 1), spectra.n_rows, device=self.device)
        if self.q.shape[1]:
            clocks, places = ClockGroup(spectra, streams, which[diagonal], index[diagonal]), diagonal.nonzero()[:, 0]
            clocks.run()

            def finish(sample: Unfinished) -> IntArray:
                at = places[sample.position]
                clock = Clock.prepare(self.source.kernel(int(self.components[block][int(which[at])])).ties)
                return clock.resume(self._cpu_stream(key, int(index[at])), sample.rows, sample.x, sample.bound).rows

            on_cpu[diagonal] = clocks.complete(finish)
            tied = tied.expand(-1, clocks.rows.shape[1]).clone()
            tied[diagonal] = clocks.rows
        rows, sizes = _union(torch.cat([tied, self._alone(spectra, streams, which, index)], 1), spectra.n_rows)
        support = torch.from_numpy(np.append(base.support, self.sampler.kernel.n_items)).to(self.device)
        proposals = Proposals(support[rows], sizes, on_cpu)
        return self._on_cpu(proposals, block, key, which, index, ~diagonal) if not diagonal.all() else proposals

    def _alone(self, spectra: Spectra, streams: Streams, which: Tensor, index: Tensor) -> Tensor:
        """Return R of each sample, as rows of the support with repetitions; after them, their number."""
        cdf = torch.from_numpy(_poisson_cdf(spectra.alone_rate.cpu().numpy())).to(self.device)
        uniform = streams.uniforms(index, HITS_STEP, 0, 1)[0]
        hits = torch.searchsorted(cdf[which], uniform, right=True)
        rows, _ = streams.propose(spectra.alone, which * spectra.n_rows, index, ALONE_STEP, 0, max(1, int(hits.max())))
        places = torch.arange(rows.shape[1], device=self.device)
        return torch.where(places < hits, rows - which[:, None] * spectra.n_rows, spectra.n_rows)

    def _on_cpu(
        self, proposals: Proposals, block: slice, key: AnyArray, which: Tensor, index: Tensor, chosen: Tensor
    ) -> Proposals:
        """Replace the chosen samples by the CPU's: their components have no eigenvectors to speak of."""
        ids, sizes, n_items = proposals.ids, proposals.sizes, self.sampler.kernel.n_items
        for at in chosen.nonzero()[:, 0].tolist():
            drawer = self.sampler.store[int(self.components[block][int(which[at])])]
            drawn = drawer.propose(self._cpu_stream(key, int(index[at])))
            items = np.empty(0, np.int64) if drawn is None else np.sort(drawn)
            ids = torch.nn.functional.pad(ids, (0, max(0, len(items) - ids.shape[1])), value=n_items)
            ids[at], sizes[at] = n_items, -1 if drawn is None else len(items)
            ids[at, : len(items)] = torch.from_numpy(items).to(self.device)
        return proposals._replace(ids=ids)

    def _cpu_stream(self, key: AnyArray, index: int) -> np.random.Generator:
        return stream(np.asarray(key, np.uint64) ^ np.array([0, CPU_KEY], np.uint64), index)


def _union(rows: Tensor, n_rows: int) -> tuple[Tensor, Tensor]:
    """Return rows (S, w) sorted, without repetitions and filled up with ``n_rows``, and how many there are."""
    rows = rows.sort(dim=1).values
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = n_rows
    sizes = (rows < n_rows).sum(1)
    return rows.sort(dim=1).values[:, : int(sizes.max())], sizes


def _poisson_cdf(rates: FloatArray) -> FloatArray:
    """Return P(N ≤ k) for k = 0, 1, … up to where all of them are one, of Poisson distributions with these means (C,)."""
    most = int(pdtrik(1 - 1e-16, float(rates.max()))) + 20 if rates.max() > 0 else 0
    cdf = pdtr(np.arange(most + 1), rates[:, None])
    cdf[:, -1] = 1.0
    return np.asarray(cdf)
