"""Samples on their way through circles: those of a schedule, and others for the samples whose monitors object."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp.samplers.gpu._group import Group, Seeds
from ndpp.samplers.gpu._streams import Streams

if TYPE_CHECKING:
    from ndpp.samplers.gpu.exact import ExactEngine

WIDER = 2
"""How many times as many nodes samples get that the monitors object to."""


class Seat(NamedTuple):
    """The circle to be on once ``n`` items are chosen."""

    n: int
    circle: tuple[int, int]


class Run:
    """Samples that want the same number of items, from none to all of them; ``rng`` of a sample is for the CPU, should it come to that."""

    def __init__(
        self, engine: ExactEngine, streams: Streams, rng: Callable[[int], np.random.Generator], wanted: int
    ) -> None:
        self.engine, self.streams, self.rng, self.wanted = engine, streams, rng, wanted
        self.arrived: list[Seeds] = []
        self.strays: dict[int, list[Seeds]] = {}
        self.finished: list[Seeds] = []
        self.on_cpu: list[int] = []

    def draw(self, samples: Tensor) -> Seeds:
        """Return them all, complete, in any order; ``on_cpu`` names those that the CPU finished."""
        seeds, seats = self.engine.seeds(samples, self.wanted), self.engine.schedule(self.wanted)
        for seat, stop in zip(seats, [seat.n for seat in seats[1:]] + [self.wanted]):
            if len(seeds.samples):
                seeds = self._segment(seeds, seat, stop)
        return Seeds.join([seeds, *self.finished])

    def _segment(self, seeds: Seeds, seat: Seat, stop: int) -> Seeds:
        """Take samples from one circle of the schedule to the next, strays on circles of their own."""
        self.arrived = [seeds.take(torch.zeros_like(seeds.samples, dtype=torch.bool))]
        rung, count = seat.circle
        more = Seat(0, (rung, min(2 * count, self.engine.full)))
        self._through(seeds, seat, stop, None if seat.n else lambda bad: self._alone(bad, more, stop))
        while self.strays:
            n = min(self.strays)
            # Most have met the bias of few nodes: one wider circle at the same radius, made once, serves them all.
            wide = Seat(n, (rung, min(WIDER * count, self.engine.full)))
            refused = partial(self._planned, n=n, rung=rung, stop=stop)
            for part in self._parts(Seeds.join(self.strays.pop(n)), wide.circle[1], stop):
                self._through(part, wide, stop, refused)
        return Seeds.join(self.arrived)

    def _planned(self, seeds: Seeds, n: int, rung: int, stop: int) -> None:
        """Take strays through on circles planned for each of them."""
        plans = self.engine.circles.plan(seeds.q[:, :n], self.wanted - n, np.full(len(seeds.samples), rung))
        for at, nodes in sorted(set(plans)):
            which = torch.tensor([i for i, plan in enumerate(plans) if plan == (at, nodes)], device=self.engine.device)
            # Twice the nodes of the plan, which is often too coarse: a circle refused costs more than some nodes.
            self._alone(seeds.take(which), Seat(n, (at, min(2 * nodes, self.engine.full))), stop)

    def _alone(self, seeds: Seeds, seat: Seat, stop: int, shifts: tuple[int, ...] = (2, -4, 6)) -> None:
        """Take strays through on a circle of their own; those that it does not suit get more nodes, then other radii, then the CPU."""
        (rung, count), full = seat.circle, self.engine.full
        for part in self._parts(seeds, count, stop):
            if count < full:
                again = Seat(seat.n, (rung, min(2 * count, full)))
                self._through(part, seat, stop, partial(self._alone, seat=again, stop=stop))
            elif shifts:
                again, own = Seat(seat.n, (rung + shifts[0], full)), Seat(seat.n, (rung, full))
                self._through(part, own, stop, partial(self._alone, seat=again, stop=stop, shifts=shifts[1:]))
            else:
                self._finish(part, seat.n)

    def _parts(self, seeds: Seeds, count: int, stop: int) -> list[Seeds]:
        """Return strays in as many parts as the memory asks for on a circle with so many nodes."""
        most = self.engine.batch([(count // 2, stop, max(1, self.wanted - stop + 1))], self.wanted)
        if len(seeds.samples) <= most:
            return [seeds]
        return [seeds.take(part) for part in torch.arange(len(seeds.samples), device=self.engine.device).split(most)]

    def _through(self, seeds: Seeds, seat: Seat, stop: int, refused: Callable[[Seeds], None] | None) -> None:
        """Draw on one circle until ``stop`` items are chosen. Those that the monitors object to become strays, or, at once, ``refused``."""
        engine = self.engine
        group = Group(engine.catalogue, self.streams, engine.tolerances, seeds, seat.n)
        group.seat(engine.circles[seat.circle], engine.power(self.wanted), stop - 1)
        self._leave(group, group.alive, group.weigh(), seat.n, refused)
        while group.n < stop and group.alive.any():
            before = group.alive.clone()
            group.draw()
            # A chance outside [0, 1] would be met again on the same circle with the same items: that circle is refused, too.
            self._leave(group, before, group.alive, group.n - 1, refused if group.n - 1 == seat.n else None)
            if group.n < stop:
                group.condition()
                self._leave(group, group.alive, group.weigh(), group.n)
        self.arrived.append(group.seeds if group.alive.all() else group.seeds.take(group.alive))

    def _leave(
        self, group: Group, before: Tensor, good: Tensor, n: int, to: Callable[[Seeds], None] | None = None
    ) -> None:
        """Let those go that were there before and are not ``good`` now, with the n items they have."""
        bad, group.alive = before & ~good, before & good
        if bad.any():
            seeds = group.seeds.take(bad)
            if to is None:
                self.strays.setdefault(n, []).append(seeds)
            else:
                to(seeds)

    def _finish(self, seeds: Seeds, n: int) -> None:
        """Draw what is missing on the CPU, one sample at a time, from the law given the n items each has."""
        sampler = self.engine.sampler
        for i, index in enumerate(seeds.samples.tolist()):
            rng, start = self.rng(index), sampler.start(self.wanted)
            chosen = seeds.rows[i, :n].cpu().numpy()
            bare = sampler.start(0)._replace(rung=start.rung, rows=chosen, q=sampler.kernel.q_rows(chosen))
            state = sampler._recentre(bare, self.wanted)[0] if n else start
            while len(state.rows) < self.wanted:
                assert sampler.index is not None
                drawn = sampler.index.draw_counted(rng, state.weighed.M)
                seeds.counters.proposals[i] += drawn.proposals
                state = sampler.add(state, int(drawn.rows[0]), self.wanted)
            seeds.rows[i] = torch.from_numpy(state.rows)
            self.on_cpu.append(index)
        self.finished.append(seeds)
