"""The exact sampler on a CUDA device: the distribution of :mod:`ndpp.samplers.exact`, for many samples at once, by the same routes.

- One size, ``ring`` or ``nodes``: the ladder, plans and monitors of the CPU. Samples with the same number of items use the same circles
  (:mod:`.schedule`). A sample that fails a monitor leaves its group and continues on a circle of its own or, as a last resort, on the CPU
  (:mod:`.run`), so no item is drawn from a distribution in doubt. Samples of many items are kept in eigencoordinates (``ring``,
  :mod:`.coordinates`), those of few by their sides (``nodes``, :mod:`.sides`): each is faster where it is used.
- Any size, ``clock``: the clocks of :mod:`.clock`, which need one real matrix per sample in place of a circle of nodes, and no size in
  advance. Without an eigenbasis, or space for its tables, a size is drawn first, and then the items as for one size.
- A symmetric kernel, ``projection``: its eigenvectors (:mod:`.projections`).

Cost per sample at r = 200 on circles: about 0.1 and 2 GFlop for 10 and 50 items, almost all of it in real matrix products. Memory in
addition to X: rows of Q on the device, a table of 16h bytes per item and circle with h nodes, or of 24r bytes per item for clocks, and 1 to
8 MB per sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray, IntArray
from ndpp.baskets import Baskets
from ndpp.samplers.base import Draws, stream
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.gpu import spectra
from ndpp.samplers.gpu.batches import BatchEngine
from ndpp.samplers.gpu.circles import Circles
from ndpp.samplers.gpu.clock import ClockGroup, Unfinished, clocks_that_fit
from ndpp.samplers.gpu.device_rows import DeviceRows
from ndpp.samplers.gpu.diagonal import Diagonal
from ndpp.samplers.gpu.group import Context
from ndpp.samplers.gpu.kernels.runtime import usable
from ndpp.samplers.gpu.memory import MAX_SAMPLES, free_memory, samples_that_fit
from ndpp.samplers.gpu.projections import Projections
from ndpp.samplers.gpu.proposals import Streams, look_up_cdf
from ndpp.samplers.gpu.run import Run
from ndpp.samplers.gpu.samples import Counters, Samples
from ndpp.samplers.gpu.schedule import PILOT_KEY, Planner, Stage

COUNT_STEP = 1 << 19
"""The step whose random numbers determine the number of items of a sample. Items use the steps below."""
SIDES_UP_TO = 32
"""Largest size whose samples store their sides; those of larger ones do so only without an eigenbasis. On an H200,
sides are faster for 10 items and slower for 50; sizes in between were not timed."""
FREE_SIZE_BATCH = 4
"""Factor for the batch if the size is free: samples are then drawn in groups of one size each, or finish at different times."""


class Drawn(NamedTuple):
    """Rows of the support (S, k), given ones included, after them the number of rows; how many each sample has; counters by name."""

    rows: Tensor
    sizes: Tensor
    counters: dict[str, Tensor]


@dataclass(eq=False)
class ExactEngine(BatchEngine):
    """Draws the samples of one :class:`~ndpp.samplers.Exact` on one device, at most ``max_samples`` in parallel."""

    sampler: Exact
    device: torch.device
    device_rows: DeviceRows
    circles: Circles
    tolerances: Tolerances = field(default_factory=Tolerances)
    max_samples: int = MAX_SAMPLES
    planner: Planner = field(init=False)
    spectra: spectra.Spectra | None = field(init=False)  # if clocks draw

    def __post_init__(self) -> None:
        self.batch_factor = 1 if self.sampler.size is not None else FREE_SIZE_BATCH
        self.planner = Planner(self.context(Streams(PILOT_KEY, self.device)))
        self.spectra = None
        q = self.device_rows.q if self.sampler.size is None and not self.sampler.symmetric else None
        if q is not None and spectra.n_bytes(*q.shape) <= self.circles.memory:
            basis = self.sampler.basis
            self.spectra = None if basis is None else spectra.of_kernel(q, basis, self.device_rows.table)

    @classmethod
    def prepare(cls, sampler: Exact, device: torch.device) -> ExactEngine | None:
        """Copy the rows of Q to the device; return None for a kernel of rank zero, which has nothing to draw."""
        if not sampler.kernel.rank:
            return None
        device_rows = DeviceRows(sampler.kernel, device, sampler.index)
        memory, diagonal, q = free_memory(device) // 4, None, device_rows.q
        stores_sides = (
            sampler.size is None or sampler.size <= SIDES_UP_TO or len(sampler.given) > 0 or sampler.symmetric
        )
        if not stores_sides and q is not None and 2 * q.nbytes <= memory and (device.type == "cpu" or usable(device)):
            basis = sampler.basis
            diagonal = None if basis is None else Diagonal.of(q, basis)
        return cls(sampler, device, device_rows, Circles(sampler.ladder, device_rows, memory, diagonal))

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

    def schedule(self, wanted: int) -> list[Stage]:
        """Return the circles for samples of ``wanted`` items."""
        return self.planner.schedule(wanted)

    def _draws(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Draws:
        """Draw the samples with these consecutive numbers."""
        began, S = time.perf_counter(), len(numbers)
        draw = self._by_clock if self.route == "clock" else self._by_size
        drawn = draw(streams, key, numbers)
        sizes = drawn.sizes.cpu().numpy()
        info: dict[str, AnyArray] = {name: value.cpu().numpy() for name, value in drawn.counters.items()}
        info["rejections"] = info["proposals"] - sizes + len(self.sampler.given)
        info["seconds"] = np.full(S, (time.perf_counter() - began) / S)
        return Draws(self._baskets(drawn.rows, sizes), info)

    def _by_clock(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Drawn:
        """Draw samples of any size; the CPU completes those that fail a monitor."""
        assert self.spectra is not None
        sampler, drawn = self.sampler, []
        given = torch.from_numpy(sampler.given).to(self.device)
        mean = len(given) + float(sampler.size_law @ np.arange(len(sampler.size_law)))
        for part in torch.split(numbers, clocks_that_fit(self.spectra, mean)):
            clocks = ClockGroup(self.spectra, streams, torch.zeros_like(part), part, given)
            clocks.run()
            on_cpu = clocks.complete(partial(self._finish, key, int(part[0])))
            drawn.append((clocks.rows, clocks.n, clocks.proposals, on_cpu))
        every, *others = zip(*drawn)
        width, last = max(rows.shape[1] for rows in every), sampler.kernel.n_rows
        rows = torch.cat([torch.nn.functional.pad(rows, (0, width - rows.shape[1]), value=last) for rows in every])
        sizes, proposals, on_cpu = map(torch.cat, others)
        return Drawn(rows, sizes, {"proposals": proposals, "on_cpu": on_cpu})

    def _finish(self, key: AnyArray, first: int, sample: Unfinished) -> IntArray:
        """Return the rows of a sample that failed a monitor of its clock, from the CPU's; positions count from sample ``first``."""
        clock = Clock.prepare(self.sampler.kernel, index=self.sampler.index)
        return clock.resume(stream(key, first + sample.position), sample.rows, sample.x, sample.bound).rows

    def _by_size(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Drawn:
        """Draw samples in groups with the same number of items."""
        sampler, first = self.sampler, int(numbers[0])
        wanted, given = self._counts(streams, numbers), torch.from_numpy(sampler.given).to(self.device)
        rows = torch.full((len(numbers), int(wanted.max()) + len(given)), sampler.kernel.n_rows, device=self.device)
        counters = Counters.zero(len(numbers), self.device)
        for count in torch.unique(wanted).tolist():
            places = (wanted == count).nonzero()[:, 0]
            rows[places, count : count + len(given)] = given
            if not count:
                continue
            fit, draw = self._drawer(streams, key, count)
            for part in torch.split(places, fit):
                drawn = draw(numbers[part])
                at = drawn.numbers - first
                rows[at, :count] = drawn.rows
                for total, value in zip(counters, drawn.counters):
                    total[at] = value
        return Drawn(rows, wanted + len(given), counters._asdict())

    def _drawer(self, streams: Streams, key: AnyArray, count: int) -> tuple[int, Callable[[Tensor], Samples]]:
        """Return how many samples of ``count`` items fit into memory, and what draws those with given numbers."""
        context, rng = self.context(streams), partial(stream, key)
        if self.route == "projection":
            projections = Projections(context, rng, count)
            return projections.samples_that_fit(self.max_samples), projections.draw
        schedule, run = self.schedule(count), Run(context, rng, self.max_samples)
        stages = [(*stage.circle.halves, stage.stop) for stage in schedule]
        fit = samples_that_fit(
            self.device, self.sampler.kernel.rank, count, stages, self.max_samples,
            keeps_sides=self.route == "nodes",
        )  # fmt: skip
        return fit, partial(run.draw, wanted=count, schedule=schedule)

    def _baskets(self, rows: Tensor, sizes: AnyArray) -> Baskets:
        """Return baskets from rows of the support (S, k); sample i has ``sizes[i]`` of them, then a number above all rows."""
        kernel, kept = self.sampler.kernel, np.arange(rows.shape[1]) < sizes[:, None]
        ids = kernel.catalogue_ids(torch.sort(rows, dim=1).values.cpu().numpy()[kept])
        return Baskets._trusted(np.append(0, np.cumsum(sizes)), ids, kernel.n_items, kernel.labels)

    def _counts(self, streams: Streams, numbers: Tensor) -> Tensor:
        """Return the number of items of each sample in addition to the given ones (S,)."""
        if self.sampler.size is not None:
            return torch.full_like(numbers, self.sampler.size - len(self.sampler.given))
        cdf = torch.from_numpy(np.cumsum(self.sampler.size_law)).to(self.device)
        return look_up_cdf(cdf, streams.uniforms(numbers, COUNT_STEP, 0, 1)[0][:, 0])
