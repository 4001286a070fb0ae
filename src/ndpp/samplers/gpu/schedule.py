"""Which circles the samples use, planned once per number of items, on a few pilot samples with a fixed stream.

A circle suits a number of missing items, so all samples that want the same number of items can share a schedule. Before each item, the
pilots look for a circle with clearly fewer nodes than the current one on which all of them pass the monitors by a wide margin. A schedule
changes times and never results: the monitors watch every sample on every circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ndpp._types import IntArray
from ndpp.samplers.exact.plan import NODE_COUNTS, Tolerances, plan_from_moments, unbiased_count
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.group import Context, Group, Samples
from ndpp.samplers.gpu.proposals import ceiling_pays

PILOT_TOLERANCES = Tolerances(trace=2e-10, fraction=1e-4)
"""Bounds for the pilots: 100 times (trace) and 10 times (fraction) stricter than for samples, so that few samples fail later."""
PILOTS, PILOT_KEY = 16, np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], np.uint64)
"""Number of pilot samples, and the key of their stream."""
SIZES_PER_SCHEDULE = 4
"""If the size is free, this many consecutive sizes share a schedule: planning one takes a second or more."""
ROUNDING = 3e-13
"""What rounding may add to tr M, times the surviving fraction: four times what was seen at rank 200."""
MAX_RATIO = 0.75
"""Pilots move to another circle only if it has at most this fraction of the current number of nodes, unless they must."""
NEGLIGIBLE_WEIGHT = 1e-13
"""Nodes with smaller weights, for all pilots, are dropped."""


class Choice(NamedTuple):
    """How the pilots choose circles; found by timing whole samples on an H200. No draw depends on it."""

    counts: IntArray
    """Numbers of nodes to choose from."""
    least: float
    """Fewest nodes that are tried, as a share of the plan from mean and variance, which is on the safe side."""
    retry_after: int
    """After how many items pilots that found no better circle look again."""
    entry_share: float
    """The share of the pilots' bounds that they must keep on entering a circle, so that they stay for a while; not for the last item."""
    lasts: int
    """A circle must also suit the pilots once they miss this many items fewer: one that they leave at once does not pay."""
    entry_cost: float
    """What entering a circle costs, in items drawn on it: pilots move only if the nodes they are spared are worth as much."""
    min_dropped: int
    """Minimum number of nodes to drop, one of each conjugate pair: every sample on the circle is tested for them."""
    max_edge: float
    """Pilots move on once the last node that is kept has a larger weight."""


WITH_SIDES = Choice(NODE_COUNTS, 1.0, 1, 1.0, 0, 0.0, 8, 1e-10)
IN_COORDINATES = Choice(np.union1d(NODE_COUNTS, [18, 22, 26, 30, 36, 44, 52]), 0.7, 4, 0.3, 5, 8.0, 2, 1e-9)


class Stage(NamedTuple):
    """The circle for samples that have n, …, stop − 1 items and draw the next."""

    n: int
    stop: int
    circle: CircleKey


def stages(starts: Sequence[tuple[int, CircleKey]], wanted: int) -> list[Stage]:
    """Return the stages that start at these numbers of items, in order; of several that start at zero, the last one is used."""
    ends = [n for n, _ in starts[1:]] + [wanted]
    return [Stage(n, stop, circle) for (n, circle), stop in zip(starts, ends) if stop > n]


@dataclass(eq=False)
class Planner:
    """Plans and stores schedules. ``context`` has the stream of the pilots."""

    context: Context
    schedules: dict[int, list[Stage]] = field(default_factory=lambda: {0: []})

    @property
    def choice(self) -> Choice:
        """How circles are chosen."""
        return WITH_SIDES if self.context.circles.diagonal is None else IN_COORDINATES

    def schedule(self, wanted: int) -> list[Stage]:
        """Return the circles for samples of ``wanted`` items."""
        if wanted not in self.schedules:
            sampler, model = self.context.sampler, -(-wanted // SIZES_PER_SCHEDULE) * SIZES_PER_SCHEDULE
            if sampler.size is not None or not (model < len(sampler.size_law) and sampler.size_law[model] > 0):
                model = wanted
            plan = self._plan(wanted) if model == wanted else self.schedule(model)
            # On each circle the number of missing items is that of the model, so a stage starts earlier by the difference.
            self.schedules[wanted] = stages([(max(0, n - model + wanted), circle) for n, _, circle in plan], wanted)
        return self.schedules[wanted]

    def _plan(self, wanted: int) -> list[Stage]:
        sampler, circles = self.context.sampler, self.context.circles
        start = sampler.nodes(wanted).start()
        widest = CircleKey(start.rung, min(2 * start.nodes.Z.shape[1], unbiased_count(sampler.kernel.rank)))
        pilots = Samples.begin(torch.arange(PILOTS, device=circles.device_rows.device), wanted, sampler.kernel.rank)
        group = self._without_negligible(Group(self.context, pilots, 0, circles[widest], wanted))
        starts, tried, good = [(0, group.circle.key)], 0, group.trusted
        for n in range(1, wanted):
            if not good.all():  # such samples need plans of their own
                break
            group.remove(group.draw())
            group.condition()
            good = group.alive
            due = n >= tried + self.choice.retry_after or not _suitable(group, self.choice.max_edge)
            if not due and not ceiling_pays(sampler.kernel.rank, n, wanted - n):
                continue
            centred = circles.centre(pilots.basis[:, :n], wanted - n, group.circle.key.rung)
            circles.centres[wanted, n] = int(np.median(centred[0]))
            if not due:
                continue
            rungs, counts = zip(*plan_from_moments(*centred, wanted - n))
            group = self._on_best_circle(group, sorted(rungs)[PILOTS // 2], max(counts))
            if group.circle.key != starts[-1][1]:
                starts.append((n, group.circle.key))
            tried, good = n, group.alive
        return stages(starts, wanted)

    def _on_best_circle(self, group: Group, rung: int, least: int) -> Group:
        """Return the group on the suitable circle with the fewest nodes, at least ``least``, or on the current one.

        A planned circle may have too few nodes or pass close to a pole; the monitors show whether it is suitable.
        """
        choice, full, rounding = self.choice, unbiased_count(self.context.sampler.kernel.rank), 0.0
        current, now = group.circle.key, group.circle.half
        suitable, left = _suitable(group, choice.max_edge), group.samples.wanted - group.n
        if not suitable:
            group = self._moved(group, CircleKey(rung, full))
            rounding = 2 * float(group.node_weights.trace_error.max())
        most = MAX_RATIO * current.n_nodes if suitable else full
        counts = [int(count) for count in choice.counts if choice.least * min(least, full) <= count <= most]
        counts = counts if suitable else [*counts, full]
        for circle in [CircleKey(rung + shift, count) for count in counts for shift in (0, -2, 2)]:
            group = self._moved(group, circle)
            share = choice.entry_share if left > 1 else 1.0
            if _suitable(group, choice.max_edge, rounding, share) and self._lasts(group):
                group = self._without_negligible(group)
                used = group.circle.half
                pays = used <= MAX_RATIO * now and (now - used) * left >= choice.entry_cost * used
                if pays or not suitable:
                    return group
                break
        return self._moved(group, current)

    def _lasts(self, group: Group) -> bool:
        """Tell whether the circle of a group would suit it with fewer missing items: about what it meets a few items later."""
        samples = group.samples
        fewer = min(self.choice.lasts, samples.wanted - group.n - 1)
        if not fewer:
            return True
        sooner = samples._replace(rows=samples.rows[:, :-fewer], basis=samples.basis[:, :-fewer])
        trial = Group(self.context, sooner, group.n, group.circle, sooner.wanted, group.alive)
        return _suitable(trial, self.choice.max_edge)

    def _without_negligible(self, group: Group) -> Group:
        """Return the group on its circle without the nodes whose weights are negligible for all pilots, if these are many."""
        circle, needed = group.circle.key, group.node_weights.w.abs().amax(0) > NEGLIGIBLE_WEIGHT
        kept = int(needed.nonzero().max()) + 1 if bool(needed.any()) else circle.n_nodes
        if not group.alive.all() or kept > circle.n_nodes // 2 - self.choice.min_dropped:
            return group
        return self._moved(group, circle._replace(kept=kept))

    def _moved(self, group: Group, circle: CircleKey) -> Group:
        samples = group.samples
        return Group(self.context, samples, group.n, self.context.circles[circle], samples.wanted, group.alive)


def _suitable(group: Group, max_edge: float, rounding: float = 0.0, share: float = 1.0) -> bool:
    """Tell whether all samples pass the monitors by a wide margin: this share of the pilots' bounds for errors.

    The share is for a bias, which grows with the items. Rounding, which grows as the fraction falls, may take all of the bound: otherwise
    it would decide by chance which circles are used. ``rounding`` is the error once there are enough nodes for an unbiased rule. More
    nodes cannot reduce it, so it is allowed too, up to a tenth of the bound for samples.
    """
    monitors, bounds = group.node_weights, PILOT_TOLERANCES
    trace = (ROUNDING / monitors.fraction.abs()).clamp(share * bounds.trace, bounds.trace)
    trace = trace.clamp(min=min(rounding, group.context.tolerances.trace / 10))
    passes = (monitors.trace_error <= trace) & (monitors.fraction >= bounds.fraction)
    return bool((passes & (monitors.edge <= share * max_edge)).all())
