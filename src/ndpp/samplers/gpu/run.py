"""Takes samples through the circles of a schedule, and tries other circles with samples that fail a monitor.

No item is drawn from a distribution that fails a monitor. A sample that fails one leaves its group with the items it has and becomes part
of a task: these samples, with this many items, on that circle. If the circle is not suitable, the next :class:`Kind` of task follows. A
sample that leaves a circle after drawing items there is WIDENED again. Samples with all items of the stage rejoin the others at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp.samplers.exact.monitors import unbiased_count
from ndpp.samplers.exact.routes import Unfinished
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.group import Context, Group
from ndpp.samplers.gpu.memory import samples_that_fit
from ndpp.samplers.gpu.samples import Samples
from ndpp.samplers.gpu.schedule import Stage

RUNG_SHIFTS = 2, -4
"""Changes of the radius, in rungs, once more nodes cannot help: away from a pole that may be close to the circle."""


class Kind(Enum):
    """What a task tries, and what follows if it fails."""

    SCHEDULED = auto()
    """The circle of the schedule. Then WIDENED, or OWN if no item is chosen yet."""
    WIDENED = auto()
    """Twice the nodes, or those that were dropped: most failures are due to too few, and one such circle serves all samples. Then OWN,
    planned for each sample."""
    OWN = auto()
    """Circles of their own. Then twice the nodes, up to where the rule is unbiased; then two other radii; then ON_CPU."""
    ON_CPU = auto()
    """The CPU draws the missing items, or raises an error."""


@dataclass(frozen=True, eq=False)
class Task:
    """Samples with n items, and the circle to try; ``shifts`` are changes of the radius that are left to try."""

    kind: Kind
    samples: Samples
    n: int
    circle: CircleKey
    shifts: tuple[int, ...] = RUNG_SHIFTS


class Outcome(NamedTuple):
    """Samples with all items of the stage, those that left earlier with n items, and those that the circle does not suit."""

    arrived: Samples
    left: list[tuple[int, Samples]]
    refused: list[Samples]


@dataclass(frozen=True, eq=False)
class Run:
    """Draws samples that want the same number of items, at most ``max_samples`` in parallel.

    ``rng(i)`` is the CPU's stream of sample i, used if the CPU must finish it.
    """

    context: Context
    rng: Callable[[int], np.random.Generator]
    max_samples: int

    def draw(self, numbers: Tensor, wanted: int, schedule: list[Stage]) -> Samples:
        """Return the samples with these numbers, in any order, with ``wanted`` items each."""
        samples, complete = Samples.begin(numbers, wanted, self.context.sampler.kernel.rank), list[Samples]()
        for stage in schedule:
            if len(samples.numbers):
                samples, on_cpu = self._through(samples, stage)
                complete += on_cpu
        return Samples.join([samples, *complete])

    def _through(self, samples: Samples, stage: Stage) -> tuple[Samples, list[Samples]]:
        """Take samples through a stage; return those with all of its items, and those that the CPU completed."""
        queue, waiting = [Task(Kind.SCHEDULED, samples, stage.n, stage.circle)], dict[int, list[Samples]]()
        arrived, complete = list[Samples](), list[Samples]()
        while queue or waiting:
            if not queue:  # fewest items first: others may join them on the way
                n = min(waiting)
                task = Task(Kind.WIDENED, Samples.join(waiting.pop(n)), n, self._wider(stage.circle))
                queue.extend(self._split(task, stage.stop))
            task = queue.pop()
            if task.kind is Kind.ON_CPU:
                complete.append(self._complete_on_cpu(task))
                continue
            outcome = self._try(task, stage.stop)
            arrived.append(outcome.arrived)
            for n, part in outcome.left:
                waiting.setdefault(n, []).append(part)
            for part in outcome.refused:
                if task.kind is Kind.SCHEDULED and task.n:
                    waiting.setdefault(task.n, []).append(part)
                else:
                    for again in self._retries(task, part):
                        queue.extend(self._split(again, stage.stop))
        return Samples.join(arrived), complete

    def _try(self, task: Task, stop: int) -> Outcome:
        """Draw on the task's circle until ``stop`` items are chosen."""
        group = Group(self.context, task.samples, task.n, self.context.circles[task.circle], stop - 1)
        left: list[tuple[int, Samples]] = []
        refused = group.remove(~group.trusted)
        while group.n < stop and group.alive.any():
            gone = group.remove(group.draw())  # with the items they had before
            if group.n - 1 == task.n:  # the same items on the same circle would meet the same probability again
                refused += gone
            else:
                left += [(group.n - 1, part) for part in gone]
            if group.n < stop:
                group.condition()
                left += [(group.n, part) for part in group.remove(~group.trusted)]
        return Outcome(group.samples if group.alive.all() else group.samples.take(group.alive), left, refused)

    def _retries(self, task: Task, refused: Samples) -> list[Task]:
        """Return the next tasks for samples that the circle of a task does not suit."""
        (rung, n_nodes, _), n = task.circle, task.n
        if task.kind is Kind.WIDENED:
            return self._planned(refused, n, rung)
        if task.kind is Kind.SCHEDULED or n_nodes < self._full:
            return [Task(Kind.OWN, refused, n, self._wider(task.circle))]
        if task.shifts:
            return [Task(Kind.OWN, refused, n, CircleKey(rung + task.shifts[0], self._full), task.shifts[1:])]
        return [Task(Kind.ON_CPU, refused, n, task.circle)]

    def _planned(self, samples: Samples, n: int, rung: int) -> list[Task]:
        """Return tasks on circles planned for each sample; samples with the same plan stay together."""
        plans = self.context.circles.plan(samples.basis[:, :n], samples.wanted - n, np.full(len(samples.numbers), rung))
        tasks = []
        for plan in sorted(set(plans), reverse=True):
            which = torch.tensor([i for i, other in enumerate(plans) if other == plan], device=samples.numbers.device)
            # Twice the nodes of the plan, which often has too few: a refused circle costs more than some nodes.
            tasks.append(Task(Kind.OWN, samples.take(which), n, self._wider(plan)))
        return tasks

    @property
    def _full(self) -> int:
        return unbiased_count(self.context.sampler.kernel.rank)

    def _wider(self, circle: CircleKey) -> CircleKey:
        return CircleKey(circle.rung, circle.n_nodes if circle.kept else min(2 * circle.n_nodes, self._full))

    def _split(self, task: Task, stop: int) -> list[Task]:
        """Return the task in parts that fit into memory."""
        samples, device = task.samples, task.samples.numbers.device
        if task.kind is Kind.ON_CPU:
            return [task]
        stages, rank = [(*task.circle.halves, stop)], self.context.sampler.kernel.rank
        keeps, count = self.context.circles.diagonal is None, len(samples.numbers)
        fit = samples_that_fit(device, rank, samples.wanted, stages, self.max_samples, keeps_sides=keeps)
        if count <= fit:
            return [task]
        places = torch.arange(count, device=device)
        return [replace(task, samples=samples.take(places[i : i + fit])) for i in range(0, count, fit)]

    def _complete_on_cpu(self, task: Task) -> Samples:
        samples, nodes = task.samples, self.context.sampler.nodes(task.samples.wanted)
        for i, number in enumerate(samples.numbers.tolist()):
            done = nodes.finish(self.rng(number), Unfinished(samples.rows[i, : task.n].cpu().numpy(), 0))
            samples.counters.proposals[i] += done.proposals
            samples.counters.on_cpu[i] = 1
            samples.rows[i] = torch.from_numpy(done.rows)
        return samples
