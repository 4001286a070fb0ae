"""The exact sampler on a CUDA device: the distribution of :mod:`ndpp.samplers.exact`, for many samples at once, by the same routes.

- One size, ``ring`` or ``nodes``: the ladder, plans and monitors of the CPU. Samples with the same number of items use the same circles
  (:mod:`.schedule`), unless they fail a monitor (:mod:`.run`). Samples of many items are kept in eigencoordinates (``ring``), those of few
  by their sides (``nodes``): each is faster where it is used (:mod:`.states`).
- Any size, ``clock``: the clocks of :mod:`.clock`, which need one real matrix per sample in place of a circle of nodes, and no size in
  advance. Without an eigenbasis, or space for its tables, a size is drawn first, and then the items as for one size.
- A symmetric kernel, ``projection``: its eigenvectors (:class:`Projections`).

Almost all of the cost on circles is in real matrix products. Memory in addition to X: rows of Q on the device, a table of 16h bytes per
item and circle with h nodes, or of 24r bytes per item for clocks, and what each sample holds (:mod:`.memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ndpp._types import KeyArray
from ndpp.errors import PrecisionError
from ndpp.samplers.base import stream
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.plan import Tolerances
from ndpp.samplers.exact.routes import Done
from ndpp.samplers.exact.spectral import Spectrum
from ndpp.samplers.gpu import spectra
from ndpp.samplers.gpu.circles import Circles
from ndpp.samplers.gpu.clock import draw_by_clocks
from ndpp.samplers.gpu.diagonal import Diagonal
from ndpp.samplers.gpu.group import Context, Samples, orthonormal
from ndpp.samplers.gpu.kernels.propose import choose
from ndpp.samplers.gpu.kernels.runtime import usable
from ndpp.samplers.gpu.memory import DeviceRows, free_memory, samples_that_fit
from ndpp.samplers.gpu.proposals import Streams, accept, first_round, look_up_cdf
from ndpp.samplers.gpu.run import GroupRun
from ndpp.samplers.gpu.schedule import PILOT_KEY, Planner
from ndpp.samplers.gpu.sets import BatchEngine, DrawnSets, items_of

MAX_SAMPLES, MAX_OF_ANY_SIZE = 2**16, 2**18
"""Maximum number of samples in parallel: the device is busy with fewer; more would only take memory. If the size is free, a batch has
more: samples are then drawn in groups of one size each, or finish at different times."""
CHOICE_STEP, COUNT_STEP = 1 << 18, 1 << 19
"""The steps whose random numbers choose eigenvectors, and the number of items of a sample. Items use the steps below."""
SIDES_UP_TO = 32
"""Largest size whose samples store their sides; those of larger ones do so only without an eigenbasis. On an H200, both take about as long
for 30 items; fewer are drawn faster with sides, and more without (``docs/gpu-internals.md``)."""


@dataclass(eq=False)
class ExactEngine(BatchEngine):
    """Draws the samples of one :class:`~ndpp.samplers.Exact` on one device."""

    sampler: Exact
    device: torch.device
    device_rows: DeviceRows
    circles: Circles
    tolerances: Tolerances = field(default_factory=Tolerances)
    spectra: spectra.Spectra | None = None  # if clocks draw
    planner: Planner = field(init=False)
    items: Tensor = field(init=False)  # those of the support, and the number of all

    def __post_init__(self) -> None:
        self.max_samples = MAX_OF_ANY_SIZE if self.sampler.size is None else MAX_SAMPLES
        self.planner = Planner(self.context(Streams(PILOT_KEY, self.device)))
        self.items = items_of(self.sampler.kernel, self.device)

    @classmethod
    def prepare(cls, sampler: Exact, device: torch.device) -> ExactEngine | None:
        """Copy the rows of Q to the device; return None for a kernel of rank zero, which has nothing to draw."""
        if not sampler.kernel.rank:
            return None
        rows, memory = DeviceRows(sampler.kernel, device, sampler.index), free_memory(device) // 4
        engine = cls(sampler, device, rows, Circles(sampler.ladder, rows, memory))
        if rows.q is None or sampler.symmetric:
            return engine
        if sampler.size is None:
            basis = sampler.basis if spectra.n_bytes(*rows.q.shape) <= memory else None
            engine.spectra = None if basis is None else spectra.of_kernel(rows.q, basis, rows.table)
        elif sampler.size > SIDES_UP_TO and not len(sampler.given) and (device.type == "cpu" or usable(device)):
            basis = sampler.basis if 2 * rows.q.nbytes <= memory else None
            engine.circles.diagonal = None if basis is None else Diagonal.of(rows.q, basis)
        return engine

    @property
    def route(self) -> str:
        """How samples are drawn, by the names of :attr:`Exact.route`: on circles, "ring" in eigencoordinates and "nodes" with sides."""
        if self.sampler.symmetric:
            return "projection"
        if self.spectra is not None:
            return "clock"
        return "nodes" if self.circles.diagonal is None else "ring"

    def context(self, streams: Streams) -> Context:
        """Return what groups with these streams share."""
        return Context(self.sampler, self.device_rows, self.circles, streams, self.tolerances)

    def drawn(self, streams: Streams, key: KeyArray, numbers: Tensor) -> DrawnSets:
        """Draw the samples with these numbers."""
        given, sampler = torch.from_numpy(self.sampler.given).to(self.device), self.sampler
        if self.spectra is None:
            parts = list(self._by_size(streams, key, numbers, given))
            rows, sizes, counters = DrawnSets.scattered(parts, len(numbers), len(self.items) - 1)
        else:
            rows, sizes, counters = draw_by_clocks(
                self.spectra, streams, torch.zeros_like(numbers), numbers, given,
                lambda _: Clock.prepare(sampler.kernel, index=sampler.index), partial(stream, key),
            )  # fmt: skip
        return DrawnSets(self.items[rows], sizes, counters | {"rejections": counters["proposals"] - sizes + len(given)})

    def _by_size(
        self, streams: Streams, key: KeyArray, numbers: Tensor, given: Tensor
    ) -> Iterator[tuple[Tensor, DrawnSets]]:
        """Yield positions and samples, in groups with the same number of items."""
        context, rng, wanted = self.context(streams), partial(stream, key), self._counts(streams, numbers)
        for count in torch.unique(wanted).tolist():
            if count and self.route == "projection":
                drawer: Projections | GroupRun = Projections(context, rng, count)
            else:
                drawer = GroupRun(context, rng, count, self.planner.schedule(count))
            for part in torch.split((wanted == count).nonzero()[:, 0], min(MAX_SAMPLES, drawer.fit)):
                samples, at = drawer.draw(numbers[part]), torch.empty_like(part)
                at[samples.numbers.argsort()] = part[numbers[part].argsort()]  # samples come in any order
                rows = torch.cat([samples.rows, given.expand(len(part), -1)], 1)
                yield at, DrawnSets(rows, torch.full_like(part, rows.shape[1]), samples.counters)

    def _counts(self, streams: Streams, numbers: Tensor) -> Tensor:
        """Return the number of items of each sample in addition to the given ones (S,)."""
        if self.sampler.size is not None:
            return torch.full_like(numbers, self.sampler.size - len(self.sampler.given))
        cdf = torch.from_numpy(np.cumsum(self.sampler.size_law)).to(self.device)
        return look_up_cdf(cdf, streams.uniform(numbers, COUNT_STEP))


class Projections:
    """Samples of ``wanted`` items of a symmetric kernel, by its eigenvectors: :mod:`ndpp.samplers.exact.spectral` for many samples at once.

    Every sample chooses as many eigenvectors of Z as it wants items, the rows of V (k, r), and draws from the projection onto them. The
    coordinates of an item are y = Vq. With an orthonormal basis E of the coordinates of the items chosen so far,

        P(a is the next item) ∝ ‖y‖² − ‖Ey‖²,

    and items are proposed by leverage, as everywhere. V is never changed, and E has at most k rows of k numbers.

    Monitor, on every proposal: acceptance probabilities lie within [0, 1]. A sample that fails it is drawn on the CPU, from the beginning:
    ``rng(i)`` is the CPU's stream of sample i.
    """

    def __init__(self, context: Context, rng: Callable[[int], np.random.Generator], wanted: int) -> None:
        self.context, self.rng, self.wanted = context, rng, wanted
        sampler, device = context.sampler, context.device_rows.device
        key, coords, given = ("eigenvectors in Q", wanted), sampler.kernel.coordinates, sampler.ladder.given
        spectrum = sampler.ladder.remember(key, lambda: Spectrum.of(coords, given, wanted))
        self.vectors, self.chance, self.heads = (torch.from_numpy(part).to(device) for part in spectrum)

    @property
    def fit(self) -> int:
        """How many samples the memory holds."""
        k, r = self.wanted, self.vectors.shape[1]
        c = max(first_round(r, k), first_round(r, 1))
        numbers = 2 * k * r + c * (2 * r + 4 * k + 8) + 2 * k * k
        return samples_that_fit(self.vectors.device, 8 * numbers)

    def draw(self, numbers: Tensor) -> Samples:
        """Return the samples with these numbers."""
        streams, items, k = self.context.streams, self.context.device_rows, self.wanted
        chosen = choose(self.chance, self.heads, *streams.counters(numbers), CHOICE_STEP)
        samples, V = Samples.begin(numbers, k, k), self.vectors[chosen]
        alive = torch.ones_like(numbers, dtype=torch.bool)
        for n in range(k):
            E = samples.basis[:, :n]

            def probabilities(rows: Tensor, which: Tensor | None, E: Tensor = E) -> Tensor:
                some, basis = (V, E) if which is None else (V[which], E[which])
                y = torch.bmm(some, items.take(rows).mT)
                return y.square().sum(1) - torch.bmm(basis, y).square().sum(1)

            count = first_round(V.shape[2], k - n)
            drawn = accept(
                streams, items.table, numbers, alive.nonzero()[:, 0], n, count, self.context.tolerances.chance,
                probabilities,
            )  # fmt: skip
            alive &= ~drawn.out_of_range
            samples.proposals.add_(drawn.proposals)
            samples.rows[:, n] = drawn.rows
            samples.basis[:, n] = orthonormal(torch.bmm(V, items.take(drawn.rows)[:, :, None])[:, None, :, 0], E)
        for i in (~alive).nonzero()[:, 0].tolist():
            route = self.context.sampler.route_for(k)
            assert route is not None
            done = route.draw(self.rng(int(numbers[i])))
            assert isinstance(done, Done)
            samples.finish(i, done)
        ordered = samples.rows.sort(dim=1).values
        if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
            raise PrecisionError("a projection DPP drew an item twice: its probability is nothing but rounding")
        return samples
