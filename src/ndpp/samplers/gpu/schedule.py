"""Which circles samples go through: planned once for each number of items, on a few samples of a fixed stream.

A circle suits a number of items still to come, so all samples that want the same number of items can share a schedule. The pilots draw
their items; before each, they look for a circle with clearly fewer nodes than the present one that their monitors are content with by a
wide margin. A schedule changes times and never results: the monitors watch every sample on every circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ndpp.samplers.exact.monitors import COUNTS, Tolerances, unbiased_count
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.group import Context, Group
from ndpp.samplers.gpu.memory import Stay
from ndpp.samplers.gpu.samples import Samples

PLANNED = Tolerances(trace=2e-10, fraction=1e-4)
"""What the monitors of the pilots must show: a hundred times (trace) and ten times (fraction) stricter than what they allow, so that they
object to few samples later."""
PILOTS, PILOT_KEY = 16, np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], np.uint64)
"""How many samples a schedule is planned on, and the key of their stream."""
SHARED = 4
"""If the size is free, sizes up to a multiple of this share its schedule: planning one takes a second or more."""
WORTH = 0.75
"""A circle with at most this share of the present number of nodes is worth moving to."""


class Stage(NamedTuple):
    """The circle that samples are on while they have n, …, stop − 1 items and draw the next."""

    n: int
    stop: int
    circle: CircleKey

    @property
    def stay(self) -> Stay:
        """What the memory of this stage depends on."""
        return Stay(self.circle.n_nodes, self.stop)


def stages(starts: Sequence[tuple[int, CircleKey]], wanted: int) -> list[Stage]:
    """Return the stages that begin at these numbers of items, in order; of several that begin at zero the last one counts."""
    ends = [n for n, _ in starts[1:]] + [wanted]
    return [Stage(n, stop, circle) for (n, circle), stop in zip(starts, ends) if stop > n]


@dataclass(eq=False)
class Planner:
    """Plans schedules, and keeps them. ``context`` has the stream of the pilots."""

    context: Context
    schedules: dict[int, list[Stage]] = field(default_factory=dict)

    def schedule(self, wanted: int) -> list[Stage]:
        """Return the circles that samples of ``wanted`` items go through."""
        if wanted not in self.schedules:
            model = self._model_size(wanted)
            plan = self._plan(wanted) if model == wanted else self.schedule(model)
            # The same number of items is still to come on a circle, so its stage begins that much earlier.
            self.schedules[wanted] = stages([(max(0, n - model + wanted), circle) for n, _, circle in plan], wanted)
        return self.schedules[wanted]

    def _model_size(self, wanted: int) -> int:
        """Return the number of items whose schedule serves ``wanted``: if the size is free, one that others share."""
        sampler, shared = self.context.sampler, -(-wanted // SHARED) * SHARED
        possible = shared < len(sampler.size_law) and sampler.size_law[shared] > 0
        return shared if sampler.size is None and possible else wanted

    def _plan(self, wanted: int) -> list[Stage]:
        sampler, circles = self.context.sampler, self.context.circles
        start = sampler.start(wanted)
        at = CircleKey(start.rung, min(2 * start.nodes.Z.shape[1], unbiased_count(sampler.kernel.rank)))
        starts = [(0, at)]
        pilots = Samples.begin(torch.arange(PILOTS, device=circles.catalogue.device), wanted, sampler.kernel.rank)
        group = Group(self.context, pilots, 0, circles[at], wanted)
        good = group.trusted
        for n in range(1, wanted):
            if not good.all():  # a plan for such samples would be their own
                break
            group.remove(group.draw())
            group.condition()
            plans = circles.plan(pilots.basis[:, :n], wanted - n, np.full(PILOTS, at.rung))
            middle, least = sorted(plan.rung for plan in plans)[PILOTS // 2], max(plan.n_nodes for plan in plans)
            group, best = self._on_best_circle(group, at, middle, least)
            if best != at:
                starts.append((n, best))
            at, good = best, group.alive
        return stages(starts, wanted)

    def _on_best_circle(self, group: Group, present: CircleKey, rung: int, least: int) -> tuple[Group, CircleKey]:
        """Return the group on the circle with the fewest nodes that suits it, and which; on the present one if none is better.

        A planned circle may have too few nodes, or pass close to a pole; whether it suits shows in the monitors.
        """
        full, suited, rounding = unbiased_count(self.context.sampler.kernel.rank), _suits(group), 0.0
        if not suited:
            group = self._moved(group, CircleKey(rung, full))
            rounding = 2 * float(group.weights.trace_error.max())
        most = WORTH * present.n_nodes if suited else full
        counts = [int(count) for count in COUNTS if min(least, full) <= count <= most]
        counts = counts if suited else [*counts, full]
        for circle in [CircleKey(rung + shift, count) for count in counts for shift in (0, -2, 2)]:
            group = self._moved(group, circle)
            if _suits(group, rounding):
                return group, circle
        return self._moved(group, present), present

    def _moved(self, group: Group, circle: CircleKey) -> Group:
        return Group(
            self.context, group.samples, group.n, self.context.circles[circle], group.samples.wanted, group.alive
        )


def _suits(group: Group, rounding: float = 0.0) -> bool:
    """Tell whether the monitors are far from objecting to any sample.

    ``rounding`` is the error with so many nodes that the rule has no bias: near that more nodes mend nothing, so it is allowed too, up to
    a tenth of what the monitors allow.
    """
    limit = PLANNED._replace(trace=max(PLANNED.trace, min(rounding, group.context.tolerances.trace / 10)))
    return bool(limit.accepts(group.weights.trace_error, group.weights.fraction).all())
