"""The exact sampler on a CUDA device: law, ladder, plan and monitors of :mod:`ndpp.samplers.exact`, for many samples at once.

All samples that want the same number of items go through the same circles, planned once on a few samples of a fixed stream.
A sample whose monitors object leaves its group; such samples are planned one by one and grouped anew by circle. One that no
circle on the device suits is finished on the CPU from the items it has, before any item was drawn from a law in doubt. So the
plan changes times and never the law.

Cost of a sample at r = 200: about 0.1 and 2 GFlop for 10 and 50 items, real matrix products almost all; memory beside X: rows
of Q on the device, a table of 16h bytes per item and circle with h nodes, and 1 to 8 MB a sample.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.samplers.base import Draws, stream
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.monitors import COUNTS, Tolerances, unbiased_count
from ndpp.samplers.gpu._accept import candidates
from ndpp.samplers.gpu._batches import baskets_of, in_batches
from ndpp.samplers.gpu._catalogue import Catalogue, free_memory
from ndpp.samplers.gpu._circles import Circles
from ndpp.samplers.gpu._group import Counters, Group, Seeds
from ndpp.samplers.gpu._run import Run, Seat
from ndpp.samplers.gpu._streams import Streams

PLANNED = Tolerances(trace=2e-10, fraction=1e-4)
"""What the samples of a plan keep to, tighter than what the monitors allow, so that they object to few others."""
MOST = 65536
"""Most samples at a time."""
PILOTS, PILOT_KEY = 16, np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], np.uint64)
"""Samples that a schedule is planned on, and their stream."""
SHARED = 4
"""Where the size is free, sizes up to a multiple of this share its schedule: a plan takes a second or more."""
WORTH = 0.75
"""A circle with fewer nodes than this share of the present one is worth moving to."""
COUNT_STEP = 1 << 19
"""The step under which the number of items of a sample is drawn."""


@dataclass(eq=False)
class ExactEngine:
    """Draws the samples of one :class:`~ndpp.samplers.Exact` on one device."""

    sampler: Exact
    device: torch.device
    tolerances: Tolerances
    catalogue: Catalogue
    circles: Circles
    most: int = MOST
    _schedules: dict[int, list[Seat]] = field(default_factory=dict)

    @classmethod
    def prepare(cls, sampler: Exact, device: torch.device) -> ExactEngine | None:
        """Bring the catalogue to the device; None for a kernel of rank zero, which has nothing to draw."""
        if not sampler.kernel.rank:
            return None
        catalogue = Catalogue(sampler.kernel, device, sampler.index)
        circles = Circles(sampler.ladder, catalogue, free_memory(device) // 4)
        return cls(sampler, device, Tolerances(), catalogue, circles)

    # -- many samples ------------------------------------------------------------------------------------------------------------

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time."""
        streams = Streams(key, self.device)
        # Groups of one size are a part of the whole where the size is free: take more at a time.
        times = 1 if self.sampler.size is not None else 4
        return in_batches(self, lambda samples: self._draws(streams, key, samples), first, n_samples, times)

    def _draws(self, streams: Streams, key: AnyArray, samples: Tensor) -> Draws:
        began, sampler = time.perf_counter(), self.sampler
        wanted = self._counts(streams, samples)
        given = torch.from_numpy(sampler.given).to(self.device)
        rows = torch.full((len(samples), int(wanted.max()) + len(given)), sampler.kernel.n_rows, device=self.device)
        counters, on_cpu = Counters.zero(len(samples), self.device), np.zeros(len(samples), np.int64)
        for count in torch.unique(wanted).tolist():
            places = (wanted == count).nonzero()[:, 0]
            rows[places, count : count + len(given)] = given
            for part in places.split(self._batch(count)) if count else ():
                run = Run(self, streams, lambda index: stream(key, index), count)
                drawn = run.draw(samples[part])
                at = drawn.samples - samples[0]
                rows[at, :count] = drawn.rows
                for total, value in zip(counters, drawn.counters):
                    total[at] = value
                on_cpu[np.array(run.on_cpu, np.int64) - int(samples[0])] = 1
        sizes = wanted.cpu().numpy()
        info: dict[str, AnyArray] = {name: value.cpu().numpy() for name, value in zip(Counters._fields, counters)}
        info |= {"rejections": info["proposals"] - sizes, "on_cpu": on_cpu}
        info["seconds"] = np.full(len(samples), (time.perf_counter() - began) / len(samples))
        return Draws(baskets_of(sampler.kernel, rows, sizes + len(given)), info)

    def _counts(self, streams: Streams, samples: Tensor) -> Tensor:
        if self.sampler.size is not None:
            return torch.full_like(samples, self.sampler.size - len(self.sampler.given))
        cdf = torch.from_numpy(np.cumsum(self.sampler.size_law)).to(self.device)
        uniform = streams.uniforms(samples, COUNT_STEP, 0, 1)[0][:, 0]
        return torch.searchsorted(cdf, uniform * cdf[-1], right=True)

    @property
    def full(self) -> int:
        """The number of nodes from which on the rule has no bias."""
        return unbiased_count(self.sampler.kernel.rank)

    def power(self, wanted: int) -> int:
        """Return the power of t whose coefficient is wanted."""
        return len(self.sampler.given) + wanted

    # -- the plan ----------------------------------------------------------------------------------------------------------------

    def schedule(self, wanted: int) -> list[Seat]:
        """Return the circles that samples of ``wanted`` items go through, planned on a few samples of a fixed stream."""
        if wanted not in self._schedules:
            planned = self._planned_for(wanted)
            seats = self._plan(wanted) if planned == wanted else self.schedule(planned)
            # A circle suits a number of items still to come.
            moved = [Seat(max(0, seat.n - planned + wanted), seat.circle) for seat in seats]
            self._schedules[wanted] = [seat for seat, after in zip(moved, [*moved[1:], None]) if not after or after.n]
        return self._schedules[wanted]

    def _planned_for(self, wanted: int) -> int:
        """Return the number of items whose schedule serves: the own one, or where the size is free one that others share."""
        law, shared = self.sampler.size_law, -(-wanted // SHARED) * SHARED
        return shared if self.sampler.size is None and shared < len(law) and law[shared] > 0 else wanted

    def _plan(self, wanted: int) -> list[Seat]:
        start = self.sampler.start(wanted)
        at = start.rung, min(2 * start.nodes.Z.shape[1], self.full)
        seats, streams = [Seat(0, at)], Streams(PILOT_KEY, self.device)
        seeds = self.seeds(torch.arange(PILOTS, device=self.device), wanted)
        group = Group(self.catalogue, streams, self.tolerances, seeds, 0)
        group.seat(self.circles[at], self.power(wanted), wanted)
        good = group.weigh()
        for n in range(1, wanted):
            if not good.all():  # the plan of such samples is their own
                break
            group.draw()
            group.condition()
            good = group.weigh()
            plans = self.circles.plan(group.seeds.q[:, :n], wanted - n, np.full(PILOTS, at[0]))
            rung, least = sorted(rung for rung, _ in plans)[PILOTS // 2], max(count for _, count in plans)
            before, at = at, self._settle(group, at, rung, least)
            if at != before:
                seats.append(Seat(n, at))
            good = group.alive
        return seats

    def _settle(self, group: Group, at: tuple[int, int], rung: int, least: int) -> tuple[int, int]:
        """Seat a group on the circle with the fewest nodes that serves it well, and return which; on the present one if none is better.

        A planned circle may be too coarse, or pass close to a pole; whether it serves shows in the monitors.
        """
        present, rounding = self._serves(group), 0.0
        if not present:
            self._try(group, (rung, self.full))
            rounding = 2 * float(group.error.max())
        most = WORTH * at[1] if present else self.full
        counts = [int(count) for count in COUNTS if min(least, self.full) <= count <= most]
        counts = counts if present else [*counts, self.full]
        for circle in [(rung + shift, count) for count in counts for shift in (0, -2, 2)]:
            self._try(group, circle)
            if self._serves(group, rounding):
                return circle
        self._try(group, at)
        return at

    def _try(self, group: Group, circle: tuple[int, int]) -> None:
        group.seat(self.circles[circle], self.power(group.wanted), group.wanted)
        group.weigh()

    def _serves(self, group: Group, rounding: float = 0.0) -> bool:
        """Tell whether the monitors are far from objecting to any sample, or near by rounding alone, which more nodes do not mend."""
        far = PLANNED._replace(trace=max(PLANNED.trace, min(rounding, self.tolerances.trace / 10)))
        return bool(far.accepts(group.error, group.fraction).all())

    def _batch(self, wanted: int) -> int:
        """Return how many samples go through their schedule side by side."""
        seats = self.schedule(wanted)
        stops = [seat.n for seat in seats[1:]] + [wanted]
        return self.batch(
            [(seat.circle[1] // 2, stop, max(1, wanted - stop + 1)) for seat, stop in zip(seats, stops)], wanted
        )

    def batch(self, stays: list[tuple[int, int, int]], wanted: int) -> int:
        """Return for how many samples there is memory on circles of h nodes until n items are chosen and ``left`` are missing, each."""
        r = self.sampler.kernel.rank
        peak = max(
            h * n * (6 * r + 6 * candidates(r, left) + 12 * n) + 3 * candidates(r, left) * r for h, n, left in stays
        )
        room = 8 * (peak + 2 * wanted * r + 1)
        return int(max(1, min(self.most, 0.8 * free_memory(self.device) // room)))

    def seeds(self, samples: Tensor, wanted: int) -> Seeds:
        """Return samples that have no items yet."""
        S, r = len(samples), self.sampler.kernel.rank
        rows = torch.zeros(S, wanted, dtype=torch.int64, device=self.device)
        q = torch.zeros(S, wanted, r, dtype=torch.float64, device=self.device)
        return Seeds(samples, rows, q, Counters.zero(S, self.device))
