"""Engines of all distributions, thousands of samples side by side: a component, then S = T ∪ R, and for families a pattern of each.

This is how the CPU draws, too (:mod:`ndpp.samplers.proposer`). T comes from the engine of a kernel (:mod:`.exact`), or for mixtures with
shared ties from clocks (:mod:`.clock`) of all components at once; R from hits. Sets of one size are proposed in the same way, tilted
towards that size, until one has it.

The patterns of families are independent of each other, and the random numbers of one are a function of seed, sample and family. Memory of
mixtures with shared ties: about 32r bytes per item and component for the tables, all components if they fit into a third of the memory, and
otherwise some at a time; about 200r bytes per sample and item of T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._memory import Memory
from ndpp._types import FloatArray, IntArray, KeyArray
from ndpp.laws.patterns import Patterns
from ndpp.laws.precision import WARN_ERROR
from ndpp.laws.shared import SharedTies
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.base import Engine, Sampler, stream
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.gpu.clock import draw_by_clocks
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.kernels.propose import MASK, philox, unit
from ndpp.samplers.gpu.limits import LimitedEngine
from ndpp.samplers.gpu.memory import free_memory, rows_of
from ndpp.samplers.gpu.proposals import Streams, flipped, look_up_cdf
from ndpp.samplers.gpu.sets import (
    AloneTables,
    BatchEngine,
    DrawnSets,
    LawEngine,
    items_of,
    look_up_component,
    union,
)
from ndpp.samplers.gpu.spectra import Spectra, n_bytes, of_components
from ndpp.samplers.kernels import ComponentSamplers
from ndpp.samplers.limited_ties import LimitedDrawers, limited_ties
from ndpp.samplers.limits import LimitedLaws
from ndpp.samplers.proposer import Proposer
from ndpp.samplers.shared import TiedDrawers
from ndpp.samplers.unions import SizedUnion

COMPONENT_KEY = 0x9E3779B97F4A7C15
"""What tells the random numbers of components from one another."""
CPU_KEY = 0xC2B2AE3D27D4EB4F
"""What tells the random numbers of samples that the CPU draws or completes from those on the device."""
FAMILY_STEP = 1 << 23
"""First of the steps whose random numbers determine patterns: one per family. Families use the steps below."""
GROWTH, MAX_ENTRIES = 4, 2**26
"""Families whose numbers of items differ by at most this factor are drawn together; and the largest number of entries of an array."""
UNREACHABLE = 2.0**-60
"""Components with a smaller share are left out: no random number of 53 bits leads to them."""


def prepare(sampler: Sampler, device: torch.device) -> Engine | None:
    """Return the engine that draws the samples of a prepared sampler on a device; None if there is nothing to draw."""
    if isinstance(sampler, Exact):
        return ExactEngine.prepare(sampler, device)
    assert isinstance(sampler, Proposer)
    if not len(sampler.log_weights):
        return None
    drawers = sampler.drawers
    if isinstance(drawers, LimitedLaws):
        return None  # the CPU draws
    if isinstance(drawers, LimitedDrawers):
        return _limited(sampler, drawers, device)
    if isinstance(drawers, ComponentSamplers):
        parts = ComponentEngine.prepare(sampler, device)
        return LimitedEngine.prepare(sampler, sampler, parts) if sampler.is_tilted else parts
    assert sampler.left is None  # engines draw from mixtures without the excluded items
    if isinstance(drawers, TiedDrawers):
        tilted = TiltedMixture.of(drawers)
        # What is left beside given items may be rounding, which the CPU draws around.
        is_lost = len(drawers.ids) > 0 and float(tilted.mixture.touched._state.errors.max()) > WARN_ERROR
        return None if is_lost else TiedEngine.prepare(sampler, tilted, device)
    union = drawers[0]
    assert isinstance(union, SizedUnion)
    return UnionEngine.prepare(sampler, union, device)


def _limited(sampler: Proposer, drawers: LimitedDrawers, device: torch.device) -> LimitedEngine | None:
    """Return the engine of a mixture with shared ties under limits; None if all items are given, which leaves nothing to draw."""
    ids, parts, rest = sampler.given, drawers.parts, sampler
    mixture = parts.mixture
    if mixture.patterns is None and len(ids) == mixture.base.n_rows:
        return None
    if len(ids):  # the engine draws from the mixture given them, under what they leave of the limits
        rest = limited_ties(mixture.condition(ids), sampler.limits.beside(ids), ids[:0], Memory(parts.memory.budget))
        assert isinstance(rest.drawers, LimitedDrawers)
        drawers = rest.drawers
    return LimitedEngine.prepare(sampler, rest, TiedEngine.prepare(rest, TiltedMixture.within(rest, drawers), device))


@dataclass(eq=False)
class UnionEngine(LawEngine):
    """Draws from a kernel with a background: T by the engine of its low-rank part, unless this has rank zero, and R by hits.

    ``items`` (n + 1,) are those of the support, and the number of all.
    """

    sampler: Proposer
    device: torch.device
    ties: ExactEngine | None
    alone: AloneTables
    items: Tensor
    size: int | None

    @classmethod
    def prepare(cls, sampler: Proposer, union: SizedUnion, device: torch.device) -> UnionEngine:
        """Copy the odds of R to the device."""
        ties, alone = union.ties.engine, AloneTables.of(union.alone.odds[None], device)
        assert ties is None or isinstance(ties, ExactEngine)
        return cls(sampler, device, ties, alone, items_of(union.ties.kernel, device), union.size)

    def propose(self, streams: Streams, key: KeyArray, index: Tensor) -> DrawnSets:
        """Return a set for each number in the streams."""
        on_cpu = torch.zeros_like(index)
        every = self.items[self.alone.draw(streams, torch.zeros_like(index), index)]
        if self.ties is not None:
            tied = self.ties.drawn(streams, key, index)
            every, on_cpu = torch.cat([tied.ids, every], 1), tied.counters["on_cpu"]
        return DrawnSets(*union(every, int(self.items[-1])), {"on_cpu": on_cpu})


@dataclass(eq=False)
class ComponentEngine(BatchEngine):
    """Draws from a mixture of any kernels: the samples of each component together, by the component's own engine.

    ``cdf`` (C,) are the sums of the weights of the ``components``.
    """

    sampler: Proposer
    device: torch.device
    components: IntArray
    cdf: Tensor

    @classmethod
    def prepare(cls, sampler: Proposer, device: torch.device) -> ComponentEngine:
        """Copy the weights to the device."""
        cdf = torch.from_numpy(sampler.cdf).to(device)
        return cls(sampler, device, np.arange(len(cdf)), cdf)

    def drawn(self, streams: Streams, key: KeyArray, numbers: Tensor) -> DrawnSets:
        """Draw the samples with these numbers, which are also their numbers in the streams of their components."""
        which, found = look_up_component(self.cdf, streams, numbers), list[tuple[Tensor, DrawnSets]]()
        for c in torch.unique(which).tolist():
            at = (which == c).nonzero()[:, 0]
            found.append((at, self._of_component(c, flipped(key, (c + 1) * COMPONENT_KEY), numbers[at])))
        return DrawnSets.scattered(found, len(numbers), self.sampler.kernel.n_items)

    propose = drawn

    def _of_component(self, c: int, key: KeyArray, numbers: Tensor) -> DrawnSets:
        assert isinstance(self.sampler.drawers, ComponentSamplers)
        sampler = self.sampler.drawers[c]
        if isinstance(sampler.engine, BatchEngine):
            return sampler.engine.drawn(Streams(key, self.device), key, numbers)
        draws = sampler._collect(sampler.draw_batch(key, numbers.tolist()))
        sizes = numbers.new_tensor(draws.baskets.sizes)
        ids = numbers.new_full((len(sizes), int(sizes.max())), self.sampler.kernel.n_items)
        ids[torch.arange(ids.shape[1], device=self.device) < sizes[:, None]] = numbers.new_tensor(draws.baskets.indices)
        return DrawnSets(
            ids, sizes, {name: numbers.new_tensor(draws.info[name]) for name in ("proposals", "rejections")}
        )


class TiltedMixture(NamedTuple):
    """A mixture given items, its components tilted towards limits c_j(S) ≤ ``room`` (J,) on further items, a wanted size among them.

    ``rows`` are the rows of ties, of items or of families, with the odds of their components times e^{θ_c·c_i}, ``theta`` (C, J) and
    ``values`` (J, n); ``weights`` (C,) is how often components are proposed. A GPU draws thousands of samples at a time from all
    components, so that all of them are conditioned and tilted first.
    """

    mixture: SharedTies
    rows: TiedMixture
    theta: FloatArray
    values: FloatArray
    room: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, begun: TiedDrawers) -> TiltedMixture:
        """Choose tilts towards the wanted number of items, if there is one."""
        rest, size = begun.parts.mixture.condition(begun.ids), begun.left
        if size is None:
            n, C = rest.n_items, len(rest.weights)
            return cls(rest, rest.touched, np.zeros((C, 0)), np.zeros((0, n)), np.zeros(0), rest._free_weights)
        log_tilt = rest.tilts(size)
        tilted = rest.tilted(log_tilt)
        beyond = (rest.log_rows(log_tilt) - tilted.log_rows(0.0)).sum(axis=1)  # odds too large for double precision
        log_mass = tilted.log_normalizers() + beyond - rest.log_normalizers() - size * log_tilt
        log_mass[rest.largest < size] = -np.inf
        weights = rest._free_weights * np.exp(log_mass - log_mass[rest.weights > 0].max())
        ones = np.ones((1, rest.n_items))
        return cls(rest, tilted, log_tilt[:, None], ones, np.array([float(size)]), weights)

    @classmethod
    def within(cls, sampler: Proposer, drawers: LimitedDrawers) -> TiltedMixture:
        """Return the components as they were tilted for limits; the factors of unfit items are those of one more limit."""
        tilts, mixture, at = drawers.tilts, drawers.parts.mixture, drawers.is_tilted
        known = at & tilts.components.is_known  # others are never proposed
        odds = np.where(known[:, None], tilts.components.odds, mixture.touched.odds)
        rows = TiedMixture(odds, mixture.touched.base, mixture.weights)
        assert sampler.left is not None  # it has limits
        theta = np.column_stack([sampler.left.theta, at.astype(np.float64)])
        weights = np.diff(sampler.cdf, prepend=0.0)
        return cls(
            mixture, rows, theta, np.vstack([tilts.values, tilts.unfit]), np.append(drawers.room, np.inf), weights
        )

    def factors(self, which: IntArray) -> FloatArray:
        """Return e^{θ_c·c_i} of some components, shape (components, n)."""
        return np.asarray(np.exp(self.theta[which] @ self.values))


class FamilyItems(NamedTuple):
    """Draws the items of families for C components.

    ``weights`` (C, M + 1) are those of the states of touched families, ``slots`` (F, K) the states of each family, ``odds`` (n + 1, K)
    those of the items and of none, which a component multiplies by e^{θ·c}, ``theta`` (C, J), ``values`` (n + 1, J). ``members`` are
    families (G,) of about the same number of items, and their items (G, width), filled up with n.
    """

    weights: Tensor
    slots: Tensor
    odds: Tensor
    theta: Tensor
    values: Tensor
    members: list[tuple[Tensor, ...]]

    @classmethod
    def of(cls, patterns: Patterns, source: TiltedMixture, components: IntArray, values: Tensor) -> FamilyItems:
        """Copy the odds of states and items to the device."""
        device, some = values.device, []
        for c in components.tolist():
            logs = patterns.log_totals_at(source.factors(np.array([c])).T)[:, 0]
            some.append(np.append(source.mixture.odds[c] * np.expm1(logs), 0.0))
        parts = np.array(some), patterns.slots, np.pad(patterns.odds, ((0, 1), (0, 0))), source.theta[components]
        weights, slots, items, theta = (torch.from_numpy(np.array(part)).to(device) for part in parts)
        members = [tuple(torch.from_numpy(part).to(device) for part in both) for both in _by_width(patterns.members)]
        return cls(weights, slots, items, theta, values, members)

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
                state = look_up_cdf(sums, first[:, :1])
                odds = self.odds[own, state] * torch.exp((self.theta[c, None] * self.values[own]).sum(2))
                begins = look_up_cdf(-torch.expm1(-torch.log1p(odds).cumsum(1)), second[:, :1])
                places = torch.arange(width, device=index.device)
                yield part, own, (places == begins) | (places > begins) & (first[:, 1:] < odds / (1 + odds))


@dataclass(eq=False)
class TiedEngine(LawEngine):
    """Draws from mixtures with shared ties, of items or of families.

    ``components`` are those that can be drawn, ``cdf`` (C,) their weights' sums, ``blocks`` those whose tables are in memory together.
    ``items`` (n + 1,) are those of the support, and the number of all, ``values`` (n + 1, J) and ``room`` (J,) what limits say of them; for
    families, ``patterns`` draws their items.
    """

    sampler: Proposer
    device: torch.device
    source: TiltedMixture
    q: Tensor
    items: Tensor
    components: IntArray
    cdf: Tensor
    blocks: list[slice]
    size: int | None
    values: Tensor
    room: Tensor
    patterns: FamilyItems | None = None
    _tables: dict[int, tuple[Spectra, AloneTables]] = field(default_factory=dict, repr=False)

    @classmethod
    def prepare(cls, sampler: Proposer, source: TiltedMixture, device: torch.device) -> TiedEngine:
        """Copy the rows of the ties to the device."""
        weights, ties, patterns = source.weights, source.rows.base, source.mixture.patterns
        components = np.flatnonzero(weights > UNREACHABLE * weights.sum())
        fit = max(1, free_memory(device) // 3 // n_bytes(ties.n_rows, ties.rank))
        blocks = [slice(start, min(start + fit, len(components))) for start in range(0, len(components), fit)]
        size = sampler.drawers.left if isinstance(sampler.drawers, TiedDrawers) else None
        cdf, values, room = (
            torch.from_numpy(part).to(device)
            for part in (np.cumsum(weights[components]), np.pad(source.values.T, ((0, 1), (0, 0))), source.room)
        )
        q, items = rows_of(ties, device), items_of(ties, device)
        made = cls(sampler, device, source, q, items, components, cdf, blocks, size, values, room)
        if patterns is not None:
            made.patterns = FamilyItems.of(patterns, source, components, values)
        return made

    def tables(self, block: int) -> tuple[Spectra, AloneTables]:
        """Return what draws T and R of a block of components; that of the last one used is kept."""
        if block not in self._tables:
            self._tables.clear()
            rows, which = self.source.rows, self.components[self.blocks[block]]
            odds = rows.tilted_odds(0.0, which)
            spectra = of_components(self.q, torch.from_numpy(np.array(rows.core)).to(self.device), odds)
            self._tables[block] = spectra, AloneTables.of(odds, self.device)
        return self._tables[block]

    def propose(self, streams: Streams, key: KeyArray, index: Tensor) -> DrawnSets:
        """Return a set for each number in the streams; those that do not leave room within the limits may be rejected."""
        which, found = look_up_component(self.cdf, streams, index), list[tuple[Tensor, DrawnSets]]()
        for number, block in enumerate(self.blocks):
            at = ((which >= block.start) & (which < block.stop)).nonzero()[:, 0]
            if len(at):
                found.append((at, self._of_block(number, streams, key, which[at] - block.start, index[at])))
        drawn = DrawnSets.scattered(found, len(index), int(self.items[-1]))
        if self.patterns is None:
            return drawn
        hopeless = (drawn.sizes < 0) | (drawn.sizes > (self.size if self.size is not None else len(self.items)))
        touched = torch.where(hopeless[:, None], int(self.items[-1]), drawn.ids)
        ids, sizes = self.patterns.draw(streams, index, which, touched)
        return DrawnSets(ids, torch.where(hopeless, -1, sizes), drawn.counters)

    def _of_block(self, block: int, streams: Streams, key: KeyArray, which: Tensor, index: Tensor) -> DrawnSets:
        """Draw samples of the components ``which`` of a block: R first, and T, which costs most, only if R leaves room."""
        (spectra, alone), components = self.tables(block), self.components[self.blocks[block]]

        def clock_of(c: int) -> Clock:
            return Clock.prepare(self.source.rows.single(int(components[c])).low_rank)

        apart, sizes = union(alone.draw(streams, which, index), spectra.n_rows)
        if self.patterns is None:
            fits = (self.values[self.items[apart]].sum(1) <= self.room).all(1)
        else:  # every family has an item at least
            fits = torch.ones_like(sizes, dtype=torch.bool) if self.size is None else sizes <= self.size
        some, on_cpu = fits.nonzero()[:, 0], torch.zeros_like(sizes)
        rows, sizes = apart.new_full((len(index), 0), spectra.n_rows), torch.where(fits, sizes, -1)
        if len(some):
            rng = partial(stream, flipped(key, CPU_KEY))
            ties = draw_by_clocks(spectra, streams, which[some], index[some], index[:0], clock_of, rng)
            both, sizes[some] = union(torch.cat([ties.ids, apart[some]], 1), spectra.n_rows)
            rows = apart.new_full((len(index), both.shape[1]), spectra.n_rows)
            rows[some], on_cpu[some] = both, ties.counters["on_cpu"]
        return DrawnSets(self.items[rows], sizes, {"on_cpu": on_cpu})


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
