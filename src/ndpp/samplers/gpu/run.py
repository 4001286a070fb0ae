"""Takes samples through the circles of a schedule, and tries other circles with samples that fail a monitor.

No item is drawn from a distribution that fails a monitor. A sample that fails one leaves its group with the items it has, and tries in
order:

1. The circle of the stage with twice the nodes, or with those that were dropped: most failures are due to too few, and one such circle
   serves all samples. A sample without items goes on with 3.
2. A circle planned for the sample.
3. Twice the nodes, up to where the rule is unbiased; then two other radii.
4. The CPU, which draws the missing items, or raises an error.

A sample that leaves a circle after drawing items there begins again with 1. Samples with all items of the stage rejoin the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp.samplers.exact.plan import plan_from_moments, unbiased_count
from ndpp.samplers.exact.routes import Unfinished
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.group import Context, Group, Samples
from ndpp.samplers.gpu.memory import bytes_per_sample, samples_that_fit
from ndpp.samplers.gpu.schedule import Stage

RUNG_SHIFTS = 2, -4
"""Changes of the radius, in rungs, once more nodes cannot help: away from a pole that may be close to the circle."""


class Task(NamedTuple):
    """Samples with n items and the circle to try, or the CPU (None); the step above after it; changes of the radius that are left."""

    samples: Samples
    n: int
    circle: CircleKey | None
    after: int = 3
    shifts: tuple[int, ...] = RUNG_SHIFTS


@dataclass(frozen=True, eq=False)
class GroupRun:
    """Draws samples of ``wanted`` items. ``rng(i)`` is the CPU's stream of sample i, used if the CPU must finish it."""

    context: Context
    rng: Callable[[int], np.random.Generator]
    wanted: int
    schedule: list[Stage]

    @property
    def fit(self) -> int:
        """How many samples the memory holds."""
        return self._fit(self.schedule)

    def _fit(self, schedule: list[Stage]) -> int:
        circles, rank = self.context.circles, self.context.sampler.kernel.rank
        stages = [(*stage.circle.halves, stage.stop) for stage in schedule]
        n_bytes = bytes_per_sample(rank, self.wanted, stages, keeps_sides=circles.diagonal is None)
        return samples_that_fit(circles.device_rows.device, n_bytes)

    def draw(self, numbers: Tensor) -> Samples:
        """Return the samples with these numbers, in any order."""
        samples, complete = Samples.begin(numbers, self.wanted, self.context.sampler.kernel.rank), list[Samples]()
        for stage in self.schedule:
            if len(samples.numbers):
                samples, on_cpu = self._through(samples, stage)
                complete += on_cpu
        return Samples.join([samples, *complete])

    def _through(self, samples: Samples, stage: Stage) -> tuple[Samples, list[Samples]]:
        """Take samples through a stage; return those with all of its items, and those that the CPU completed."""
        queue = [Task(samples, stage.n, stage.circle, 1 if stage.n else 3)]
        arrived, complete, waiting = list[Samples](), list[Samples](), dict[int, list[Samples]]()
        while queue or waiting:
            if not queue:  # fewest items first: others may join them on the way
                n = min(waiting)
                queue = self._split(Task(Samples.join(waiting.pop(n)), n, self._wider(stage.circle), 2), stage.stop)
            task = queue.pop()
            if task.circle is None:
                complete.append(self._complete_on_cpu(task))
                continue
            done, left = self._try(task, task.circle, stage.stop)
            arrived.append(done)
            for n, part in left:
                if n > task.n or task.after == 1:
                    waiting.setdefault(n, []).append(part)
                else:
                    for again in self._retries(task._replace(samples=part), task.circle):
                        queue += self._split(again, stage.stop)
        return Samples.join(arrived), complete

    def _try(self, task: Task, circle: CircleKey, stop: int) -> tuple[Samples, list[tuple[int, Samples]]]:
        """Draw on a circle until ``stop`` items are chosen; return samples with all of them, and those that left with n."""
        group = Group(self.context, task.samples, task.n, self.context.circles[circle], stop - 1)
        left = [(task.n, part) for part in group.remove(~group.trusted)]
        while group.n < stop and group.alive.any():
            left += [(group.n - 1, part) for part in group.remove(group.draw())]  # with the items they had before
            if group.n < stop:
                group.condition()
                left += [(group.n, part) for part in group.remove(~group.trusted)]
        return group.samples if group.alive.all() else group.samples.take(group.alive), left

    def _retries(self, task: Task, circle: CircleKey) -> list[Task]:
        """Return what comes next for samples that the circle of their task does not suit."""
        if task.after == 2:
            return self._planned(task, circle.rung)
        if circle.n_nodes < self._full or circle.kept:
            return [task._replace(circle=self._wider(circle))]
        if task.shifts:
            return [task._replace(circle=CircleKey(circle.rung + task.shifts[0], self._full), shifts=task.shifts[1:])]
        return [task._replace(circle=None)]

    def _planned(self, task: Task, rung: int) -> list[Task]:
        """Return tasks on circles planned for each sample; samples with the same plan stay together."""
        samples, n, left, tasks = task.samples, task.n, self.wanted - task.n, []
        plans = plan_from_moments(*self.context.circles.centre(samples.basis[:, :n], left, rung), left)
        for plan in sorted(set(plans), reverse=True):
            which = torch.tensor([i for i, other in enumerate(plans) if other == plan], device=samples.numbers.device)
            # Twice the nodes of the plan, which often has too few: a refused circle costs more than some nodes.
            tasks.append(Task(samples.take(which), n, self._wider(CircleKey(*plan))))
        return tasks

    @property
    def _full(self) -> int:
        return unbiased_count(self.context.sampler.kernel.rank)

    def _wider(self, circle: CircleKey) -> CircleKey:
        return CircleKey(circle.rung, circle.n_nodes if circle.kept else min(2 * circle.n_nodes, self._full))

    def _split(self, task: Task, stop: int) -> list[Task]:
        """Return the task in parts that fit into memory."""
        if task.circle is None:
            return [task]
        fit, numbers = self._fit([Stage(task.n, stop, task.circle)]), task.samples.numbers
        places = torch.split(torch.arange(len(numbers), device=numbers.device), fit)
        return [task._replace(samples=task.samples.take(some)) for some in places]

    def _complete_on_cpu(self, task: Task) -> Samples:
        samples, nodes = task.samples, self.context.sampler.nodes(self.wanted)
        for i, number in enumerate(samples.numbers.tolist()):
            begun = Unfinished(samples.rows[i, : task.n].cpu().numpy(), 0)
            samples.finish(i, nodes.finish(nodes.target, self.rng(number), begun))
        return samples
