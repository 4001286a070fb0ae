"""Mixtures over families on a CUDA device: the families of many samples by :mod:`.mixture`, and then the items of each.

Given its component, a sample's families follow a mixture with shared ties, and the patterns of the families are independent of each other
(:mod:`ndpp.samplers.laws`). The random numbers of a pattern are a function of seed, sample and family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray, IntArray
from ndpp.samplers.gpu.kernels.propose import MASK, philox, unit
from ndpp.samplers.gpu.mixture import MAX_BATCH, Proposals, SetEngine, TiedEngine
from ndpp.samplers.gpu.proposals import Streams
from ndpp.samplers.laws import FamilySource, LawSampler, Store, TiedSource

FAMILY_STEP = 1 << 23
"""First of the steps whose random numbers determine patterns: one per family. Families use the steps below."""
GROWTH, MAX_ENTRIES = 4, 2**26
"""Families whose numbers of items differ by at most this factor are drawn together; and the largest number of entries of an array."""


@dataclass(eq=False)
class FamilyEngine(SetEngine):
    """Draws the samples of one :class:`~ndpp.samplers.laws.LawSampler` on one device, at most ``max_samples`` in parallel.

    ``weights`` (C, M + 1) are those of the states of touched families for the components of ``touched``, ``slots`` (F, K) the states of
    each family, ``odds`` (n + 1, K) those of the items and of none, and ``scale`` (C,) what a component multiplies them by. ``members`` are
    families (G,) of about the same number of items, and their items (G, width), filled up with n.
    """

    sampler: LawSampler
    source: FamilySource
    device: torch.device
    touched: TiedEngine
    weights: Tensor
    slots: Tensor
    odds: Tensor
    scale: Tensor
    members: list[tuple[Tensor, Tensor]]
    max_samples: int = MAX_BATCH

    @classmethod
    def prepare(cls, sampler: LawSampler, device: torch.device) -> FamilyEngine | None:
        """Copy the odds of states and items to the device; return None if there is nothing to draw."""
        source = sampler.store.make
        assert isinstance(source, FamilySource)
        store = Store(TiedSource(source.touched, None, None, source.memory), sampler.store.most)
        none: IntArray = np.empty(0, np.int64)
        touched = TiedEngine.prepare(LawSampler(source.touched, none, sampler.cdf, store), device)
        if touched is None:
            return None
        patterns, scale = source.mixture.patterns, np.exp(source.log_tilt[touched.components])
        some = source.mixture.odds[touched.components] * np.expm1(patterns.log_totals_at(scale)).T
        weights, slots, odds, scales = (
            torch.from_numpy(np.array(part)).to(device)
            for part in (np.pad(some, ((0, 0), (0, 1))), patterns.slots, np.pad(patterns.odds, ((0, 1), (0, 0))), scale)
        )
        members = [tuple(torch.from_numpy(part).to(device) for part in both) for both in _by_width(patterns.members)]
        return cls(sampler, source, device, touched, weights, slots, odds, scales, members)  # type: ignore[arg-type]

    @property
    def size(self) -> int | None:
        """Number of items to draw in addition to the given ones, if not any number."""
        return self.source.size

    def propose(self, streams: Streams, key: AnyArray, index: Tensor) -> Proposals:
        """Return a set for each number in the streams, without the given items; those with more families than items are rejected."""
        drawn, n_items = self.touched.propose(streams, key, index), len(self.odds) - 1
        hopeless = torch.zeros_like(drawn.sizes, dtype=torch.bool) if self.size is None else drawn.sizes > self.size
        sample, place = ((drawn.ids < len(self.slots)) & ~hopeless[:, None]).nonzero().unbind(1)
        which, families = self.touched.component(streams, index), drawn.ids[sample, place]
        owners, items = [sample[:0]], [sample[:0]]
        for part, own, taken in self._patterns(streams, index[sample], which[sample], families):
            row, column = taken.nonzero().unbind(1)
            owners.append(sample[part[row]])
            items.append(own[row, column])
        owner, order = torch.sort(torch.cat(owners), stable=True)
        sizes = torch.bincount(owner, minlength=len(index))
        ids = index.new_full((len(index), int(sizes.max())), n_items)
        first = sizes.cumsum(0) - sizes
        ids[owner, torch.arange(len(owner), device=self.device) - first[owner]] = torch.cat(items)[order]
        return Proposals(ids, torch.where(hopeless, -1, sizes), drawn.on_cpu)

    def _patterns(
        self, streams: Streams, index: Tensor, which: Tensor, families: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield positions (P,) of families, one for each of the numbers ``index``, their items (P, width), and which of these come.

        As on the CPU: a state, the first item that comes, and the later ones independently of each other.
        """
        for members, items in self.members:
            position = torch.full_like(self.slots[:, 0], -1)
            position[members] = torch.arange(len(members), device=self.device)
            width, here = items.shape[1], (position[families] >= 0).nonzero()[:, 0]
            for part in torch.split(here, max(1, MAX_ENTRIES // (width + 1))):
                g, c = families[part], which[part]
                first, second = _uniforms(streams, index[part], g, width + 1)
                own, state = (
                    items[position[g]],
                    _look_up(self.weights[c[:, None], self.slots[g]].cumsum(1), first[:, 0]),
                )
                odds = self.odds[own, state[:, None]] * self.scale[c, None]
                begins = _look_up(-torch.expm1(-torch.log1p(odds).cumsum(1)), second[:, 0])[:, None]
                places = torch.arange(width, device=self.device)
                yield part, own, (places == begins) | (places > begins) & (first[:, 1:] < odds / (1 + odds))


def _by_width(members: list[IntArray]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield families of similar numbers of items, and their items, filled up with the number of all items."""
    counts = np.array([len(own) for own in members])
    least, n_items = 0, int(counts.sum())
    while least < counts.max():
        width = max(1, GROWTH * least)
        some = np.flatnonzero((counts > least) & (counts <= width))
        if len(some):
            items = np.full((len(some), int(counts[some].max())), n_items)
            for row, g in zip(items, some.tolist()):
                row[: counts[g]] = members[g]
            yield some, items
        least = width


def _uniforms(streams: Streams, index: Tensor, families: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return two uniforms for each of ``count`` places, for these numbers and families, shapes (P, count)."""
    counter, key = streams.counters(index)
    place, step = torch.arange(count, device=index.device), (FAMILY_STEP + families)[:, None]
    a, b, c, d = philox((place, step, counter[:, None] & MASK, counter[:, None] >> 32 & MASK), key)
    return unit(a, b), unit(c, d)


def _look_up(cdf: Tensor, uniforms: Tensor) -> Tensor:
    """Return an index for each uniform (P,), by the sums of weights in its row of ``cdf`` (P, m)."""
    total = cdf[:, -1:]
    return torch.minimum((cdf <= uniforms[:, None] * total).sum(1), (cdf < total).sum(1))
