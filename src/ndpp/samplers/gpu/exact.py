"""The exact sampler on a CUDA device: distribution, ladder, plan and monitors of :mod:`ndpp.samplers.exact`, for many samples at once.

All samples that want the same number of items go through the same circles (:mod:`.schedule`). A sample whose monitors object leaves its
group and goes on by a circle of its own, or at last on the CPU (:mod:`.run`), so no item is drawn from a distribution in doubt.

Cost per sample at r = 200: about 0.1 and 2 GFlop for 10 and 50 items, almost all of it real matrix products. Memory in addition to X: rows
of Q on the device, a table of 16h bytes per item and circle with h nodes, and 1 to 8 MB per sample.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.samplers.base import Draws, stream
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.gpu.batches import baskets_of, in_batches
from ndpp.samplers.gpu.catalogue import Catalogue
from ndpp.samplers.gpu.circles import Circles
from ndpp.samplers.gpu.group import Context
from ndpp.samplers.gpu.memory import MOST_SAMPLES, batch_size, free_memory
from ndpp.samplers.gpu.run import Run
from ndpp.samplers.gpu.samples import Counters
from ndpp.samplers.gpu.schedule import PILOT_KEY, Planner, Stage
from ndpp.samplers.gpu.streams import Streams

COUNT_STEP = 1 << 19
"""The step whose random numbers decide how many items a sample has. Items come from the steps below."""
FREE_SIZE_BATCH = 4
"""How many times as many samples are taken at a time if their size is free: they are drawn in groups of one size each."""


@dataclass(eq=False)
class ExactEngine:
    """Draws the samples of one :class:`~ndpp.samplers.Exact` on one device.

    ``most`` samples at most are side by side; it is halved when memory runs out.
    """

    sampler: Exact
    device: torch.device
    catalogue: Catalogue
    circles: Circles
    tolerances: Tolerances = field(default_factory=Tolerances)
    most: int = MOST_SAMPLES
    planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        self.planner = Planner(self.context(Streams(PILOT_KEY, self.device)))

    @classmethod
    def prepare(cls, sampler: Exact, device: torch.device) -> ExactEngine | None:
        """Bring the catalogue to the device; None for a kernel of rank zero, which has nothing to draw."""
        if not sampler.kernel.rank:
            return None
        catalogue = Catalogue(sampler.kernel, device, sampler.index)
        return cls(sampler, device, catalogue, Circles(sampler.ladder, catalogue, free_memory(device) // 4))

    def context(self, streams: Streams) -> Context:
        """Return what all groups share that draw from these streams."""
        return Context(self.sampler, self.catalogue, self.circles, streams, self.tolerances)

    def schedule(self, wanted: int) -> list[Stage]:
        """Return the circles that samples of ``wanted`` items go through."""
        return self.planner.schedule(wanted)

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time."""
        times = 1 if self.sampler.size is not None else FREE_SIZE_BATCH
        return in_batches(self, partial(self._draws, Streams(key, self.device), key), first, n_samples, times)

    def _draws(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Draws:
        """Draw the samples of these numbers, which follow each other."""
        began, sampler, first = time.perf_counter(), self.sampler, int(numbers[0])
        wanted = self._counts(streams, numbers)
        given = torch.from_numpy(sampler.given).to(self.device)
        rows = torch.full((len(numbers), int(wanted.max()) + len(given)), sampler.kernel.n_rows, device=self.device)
        counters, on_cpu = Counters.zero(len(numbers), self.device), np.zeros(len(numbers), np.int64)
        run = Run(self.context(streams), partial(stream, key), self.most)
        for count in torch.unique(wanted).tolist():
            places = (wanted == count).nonzero()[:, 0]
            rows[places, count : count + len(given)] = given
            for part in places.split(self._batch(count)) if count else ():
                drawn = run.draw(numbers[part], count, self.schedule(count))
                at = drawn.samples.numbers - first
                rows[at, :count] = drawn.samples.rows
                for total, value in zip(counters, drawn.samples.counters):
                    total[at] = value
                on_cpu[np.array(drawn.on_cpu, np.int64) - first] = 1
        sizes = wanted.cpu().numpy()
        info: dict[str, AnyArray] = {name: value.cpu().numpy() for name, value in zip(Counters._fields, counters)}
        info |= {"rejections": info["proposals"] - sizes, "on_cpu": on_cpu}
        info["seconds"] = np.full(len(numbers), (time.perf_counter() - began) / len(numbers))
        return Draws(baskets_of(sampler.kernel, rows, sizes + len(given)), info)

    def _counts(self, streams: Streams, numbers: Tensor) -> Tensor:
        """Return how many items each sample wants in addition to the given ones (S,)."""
        if self.sampler.size is not None:
            return torch.full_like(numbers, self.sampler.size - len(self.sampler.given))
        cdf = torch.from_numpy(np.cumsum(self.sampler.size_law)).to(self.device)
        uniform = streams.uniforms(numbers, COUNT_STEP, 0, 1)[0][:, 0]
        return torch.searchsorted(cdf, uniform * cdf[-1], right=True)

    def _batch(self, wanted: int) -> int:
        """Return how many samples go through their schedule side by side."""
        stays = [stage.stay for stage in self.schedule(wanted)]
        return batch_size(self.device, self.sampler.kernel.rank, wanted, stays, self.most)
