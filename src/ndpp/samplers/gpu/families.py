"""The items of many families on a device, given that each of them has one at least, as on the CPU (:mod:`ndpp.samplers.unions`).

The patterns of families are independent of each other, and the random numbers of one are a function of seed, sample and family.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import IntArray
from ndpp.samplers.gpu.kernels.propose import MASK, philox, unit
from ndpp.samplers.gpu.proposals import Streams
from ndpp.samplers.laws import FamilySource

FAMILY_STEP = 1 << 23
"""First of the steps whose random numbers determine patterns: one per family. Families use the steps below."""
GROWTH, MAX_ENTRIES = 4, 2**26
"""Families whose numbers of items differ by at most this factor are drawn together; and the largest number of entries of an array."""


class FamilyItems(NamedTuple):
    """Draws the items of families for C components.

    ``weights`` (C, M + 1) are those of the states of touched families, ``slots`` (F, K) the states of each family, ``odds`` (n + 1, K)
    those of the items and of none, and ``scale`` (C,) what a component multiplies them by. ``members`` are families (G,) of about the same
    number of items, and their items (G, width), filled up with n.
    """

    weights: Tensor
    slots: Tensor
    odds: Tensor
    scale: Tensor
    members: list[tuple[Tensor, ...]]

    @classmethod
    def of(cls, source: FamilySource, components: IntArray, device: torch.device) -> FamilyItems:
        """Copy the odds of states and items to the device."""
        patterns, scale = source.mixture.patterns, np.exp(source.log_tilt[components])
        some = source.mixture.odds[components] * np.expm1(patterns.log_totals_at(scale)).T
        parts = np.pad(some, ((0, 0), (0, 1))), patterns.slots, np.pad(patterns.odds, ((0, 1), (0, 0))), scale
        weights, slots, odds, scales = (torch.from_numpy(np.array(part)).to(device) for part in parts)
        members = [tuple(torch.from_numpy(part).to(device) for part in both) for both in _by_width(patterns.members)]
        return cls(weights, slots, odds, scales, members)

    def draw(self, streams: Streams, index: Tensor, which: Tensor, touched: Tensor) -> tuple[Tensor, Tensor]:
        """Return items (S, w) of the families ``touched`` (S, m) by samples of these components, filled up with n; and their numbers."""
        sample, place = (touched < len(self.slots)).nonzero().unbind(1)
        owners, items = [sample[:0]], [sample[:0]]
        for part, own, taken in self._patterns(streams, index[sample], which[sample], touched[sample, place]):
            row, column = taken.nonzero().unbind(1)
            owners.append(sample[part[row]])
            items.append(own[row, column])
        owner, order = torch.sort(torch.cat(owners), stable=True)
        sizes = torch.bincount(owner, minlength=len(index))
        ids = index.new_full((len(index), int(sizes.max())), len(self.odds) - 1)
        first = sizes.cumsum(0) - sizes
        ids[owner, torch.arange(len(owner), device=index.device) - first[owner]] = torch.cat(items)[order]
        return ids, sizes

    def _patterns(
        self, streams: Streams, index: Tensor, which: Tensor, families: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield positions (P,) of families, one for each of the numbers ``index``, their items (P, width), and which of these come.

        As on the CPU: a state, the first item that comes, and the later ones independently of each other.
        """
        for members, items in self.members:
            position = torch.full_like(self.slots[:, 0], -1)
            position[members] = torch.arange(len(members), device=index.device)
            width, here = items.shape[1], (position[families] >= 0).nonzero()[:, 0]
            for part in torch.split(here, max(1, MAX_ENTRIES // (width + 1))):
                g, c = families[part], which[part]
                first, second = _uniforms(streams, index[part], g, width + 1)
                own, sums = items[position[g]], self.weights[c[:, None], self.slots[g]].cumsum(1)
                state = _look_up(sums, first[:, 0])
                odds = self.odds[own, state[:, None]] * self.scale[c, None]
                begins = _look_up(-torch.expm1(-torch.log1p(odds).cumsum(1)), second[:, 0])[:, None]
                places = torch.arange(width, device=index.device)
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
