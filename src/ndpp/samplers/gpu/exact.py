"""The exact sampler on a CUDA device: distribution, ladder, plans and monitors of :mod:`ndpp.samplers.exact`, for many samples at once.

Samples with the same number of items use the same circles (:mod:`.schedule`). A sample that fails a monitor leaves its group and continues
on a circle of its own or, as a last resort, on the CPU (:mod:`.run`), so no item is drawn from a distribution in doubt.

Cost per sample at r = 200: about 0.1 and 2 GFlop for 10 and 50 items, almost all of it in real matrix products. Memory in addition to X:
rows of Q on the device, a table of 16h bytes per item and circle with h nodes, and 1 to 8 MB per sample.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.baskets import Baskets
from ndpp.samplers.base import Draws, stream
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.gpu.batches import BatchEngine
from ndpp.samplers.gpu.circles import Circles
from ndpp.samplers.gpu.device_rows import DeviceRows
from ndpp.samplers.gpu.group import Context
from ndpp.samplers.gpu.memory import MAX_SAMPLES, free_memory, samples_that_fit
from ndpp.samplers.gpu.proposals import Streams, look_up_cdf
from ndpp.samplers.gpu.run import Run
from ndpp.samplers.gpu.samples import Counters
from ndpp.samplers.gpu.schedule import PILOT_KEY, Planner, Stage

COUNT_STEP = 1 << 19
"""The step whose random numbers determine the number of items of a sample. Items use the steps below."""
FREE_SIZE_BATCH = 4
"""Factor for the batch if the size is free: samples are then drawn in groups of one size each."""


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

    def __post_init__(self) -> None:
        self.batch_factor = 1 if self.sampler.size is not None else FREE_SIZE_BATCH
        self.planner = Planner(self.context(Streams(PILOT_KEY, self.device)))

    @classmethod
    def prepare(cls, sampler: Exact, device: torch.device) -> ExactEngine | None:
        """Copy the rows of Q to the device; return None for a kernel of rank zero, which has nothing to draw."""
        if not sampler.kernel.rank:
            return None
        device_rows = DeviceRows(sampler.kernel, device, sampler.index)
        return cls(sampler, device, device_rows, Circles(sampler.ladder, device_rows, free_memory(device) // 4))

    def context(self, streams: Streams) -> Context:
        """Return what groups with these streams share."""
        return Context(self.sampler, self.device_rows, self.circles, streams, self.tolerances)

    def schedule(self, wanted: int) -> list[Stage]:
        """Return the circles for samples of ``wanted`` items."""
        return self.planner.schedule(wanted)

    def _draws(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Draws:
        """Draw the samples with these consecutive numbers."""
        began, sampler, first = time.perf_counter(), self.sampler, int(numbers[0])
        wanted = self._counts(streams, numbers)
        given = torch.from_numpy(sampler.given).to(self.device)
        rows = torch.full((len(numbers), int(wanted.max()) + len(given)), sampler.kernel.n_rows, device=self.device)
        counters = Counters.zero(len(numbers), self.device)
        run = Run(self.context(streams), partial(stream, key), self.max_samples)
        for count in torch.unique(wanted).tolist():
            places = (wanted == count).nonzero()[:, 0]
            rows[places, count : count + len(given)] = given
            schedule = self.schedule(count) if count else []
            stages = [(stage.circle.n_nodes, stage.stop) for stage in schedule]
            fit = samples_that_fit(self.device, sampler.kernel.rank, count, stages, self.max_samples)
            for part in torch.split(places, fit) if count else ():
                drawn = run.draw(numbers[part], count, schedule)
                at = drawn.numbers - first
                rows[at, :count] = drawn.rows
                for total, value in zip(counters, drawn.counters):
                    total[at] = value
        counts = wanted.cpu().numpy()
        info: dict[str, AnyArray] = {name: value.cpu().numpy() for name, value in zip(Counters._fields, counters)}
        seconds = np.full(len(numbers), (time.perf_counter() - began) / len(numbers))
        info |= {"rejections": info["proposals"] - counts, "seconds": seconds}
        return Draws(self._baskets(rows, counts + len(given)), info)

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
