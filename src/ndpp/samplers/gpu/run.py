"""Samples on their way through the circles of a schedule, and what becomes of those that the monitors object to.

Nobody draws an item from a distribution that the monitors do not trust. A sample that they object to leaves its group with the items it
has and becomes part of a task: these samples, this many items, that circle. A task is tried like any other group; whom it does not suit
goes on to the next kind of task:

========== ============================================================ ==================================================
kind       circle                                                       if it does not suit
========== ============================================================ ==================================================
SCHEDULED  that of the schedule                                         WIDENED; OWN if no item is chosen yet
WIDENED    the same radius with twice the nodes: most have met the      OWN, on a circle planned for each sample
           bias of few nodes, and one such circle serves them all
OWN        one of their own                                             OWN with twice the nodes, up to where the rule has
                                                                        no bias; then at two other radii; then ON_CPU
ON_CPU     none: the CPU draws what is missing                          an error
========== ============================================================ ==================================================

A sample that a circle suits at first and that leaves it later is WIDENED again. Everyone who has as many items as the stage asks for
rejoins the others there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp.samplers.exact.monitors import unbiased_count
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.group import Context, Group
from ndpp.samplers.gpu.memory import Stay, batch_size
from ndpp.samplers.gpu.samples import Samples
from ndpp.samplers.gpu.schedule import Stage

WIDER = 2
"""How many times as many nodes a circle gets that does not suit."""
SHIFTS = 2, -4
"""By how many rungs the radius changes once more nodes cannot help: away from a pole that it happens to be close to."""


class Kind(Enum):
    """What a task tries; see the table above."""

    SCHEDULED = "the schedule's circle"
    WIDENED = "more nodes at the same radius"
    OWN = "a circle of their own"
    ON_CPU = "the CPU"


@dataclass(frozen=True, eq=False)
class Task:
    """Samples with n items, and the circle to try with them; for an OWN circle, what the radius may still be changed by."""

    kind: Kind
    samples: Samples
    n: int
    circle: CircleKey
    shifts: tuple[int, ...] = SHIFTS


class Outcome(NamedTuple):
    """What became of a task: who has all items of the stage, who left on the way with n items, and whom the circle does not suit."""

    arrived: Samples
    left: list[tuple[int, Samples]]
    refused: list[Samples]


class Drawn(NamedTuple):
    """Samples that are complete, in any order, and the numbers of those that the CPU finished."""

    samples: Samples
    on_cpu: list[int]


@dataclass(frozen=True, eq=False)
class Run:
    """Draws samples that want the same number of items.

    ``rng(i)`` is the CPU's stream of sample i, used if the CPU must finish it; ``most`` samples at most are side by side.
    """

    context: Context
    rng: Callable[[int], np.random.Generator]
    most: int

    def draw(self, numbers: Tensor, wanted: int, schedule: list[Stage]) -> Drawn:
        """Return the samples of these numbers, with ``wanted`` items each."""
        samples = Samples.begin(numbers, wanted, self.context.sampler.kernel.rank)
        on_cpu: list[Samples] = []
        for stage in schedule:
            if len(samples.numbers):
                samples, complete = self._through(samples, stage)
                on_cpu += complete
        return Drawn(Samples.join([samples, *on_cpu]), [number for part in on_cpu for number in part.numbers.tolist()])

    def _through(self, samples: Samples, stage: Stage) -> tuple[Samples, list[Samples]]:
        """Take samples through a stage; return those that have as many items as it asks for, and those that the CPU completed."""
        queue, waiting = [Task(Kind.SCHEDULED, samples, stage.n, stage.circle)], dict[int, list[Samples]]()
        arrived, complete = list[Samples](), list[Samples]()
        while queue or waiting:
            if not queue:  # those with the fewest items first: others may join them on the way
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
                    queue.extend(
                        piece for again in self._retries(task, part) for piece in self._split(again, stage.stop)
                    )
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

    # -- what to try next --------------------------------------------------------------------------------------------------------

    def _retries(self, task: Task, refused: Samples) -> list[Task]:
        """Return what to try next with the samples that a task's circle does not suit."""
        (rung, n_nodes), n = task.circle, task.n
        if task.kind is Kind.WIDENED:
            return self._planned(refused, n, rung)
        if task.kind is Kind.SCHEDULED or n_nodes < self._full:
            return [Task(Kind.OWN, refused, n, self._wider(task.circle))]
        if task.shifts:
            return [Task(Kind.OWN, refused, n, CircleKey(rung + task.shifts[0], self._full), task.shifts[1:])]
        return [Task(Kind.ON_CPU, refused, n, task.circle)]

    def _planned(self, samples: Samples, n: int, rung: int) -> list[Task]:
        """Return tasks on circles planned for each sample; those with the same plan stay together."""
        plans = self.context.circles.plan(samples.basis[:, :n], samples.wanted - n, np.full(len(samples.numbers), rung))
        tasks = []
        for plan in sorted(set(plans), reverse=True):
            which = torch.tensor([i for i, other in enumerate(plans) if other == plan], device=samples.numbers.device)
            # Twice the nodes of the plan, which often has too few: a circle refused costs more than some nodes.
            tasks.append(Task(Kind.OWN, samples.take(which), n, self._wider(plan)))
        return tasks

    @property
    def _full(self) -> int:
        return unbiased_count(self.context.sampler.kernel.rank)

    def _wider(self, circle: CircleKey) -> CircleKey:
        """Return the circle with more nodes, up to where the rule has no bias."""
        return CircleKey(circle.rung, min(WIDER * circle.n_nodes, self._full))

    def _split(self, task: Task, stop: int) -> list[Task]:
        """Return the task in as many parts as the memory asks for."""
        samples, device = task.samples, task.samples.numbers.device
        if task.kind is Kind.ON_CPU:
            return [task]
        rank, stay = self.context.sampler.kernel.rank, Stay(task.circle.n_nodes, stop)
        size = batch_size(device, rank, samples.wanted, [stay], self.most)
        if len(samples.numbers) <= size:
            return [task]
        parts = torch.arange(len(samples.numbers), device=device).split(size)
        return [Task(task.kind, samples.take(part), task.n, task.circle, task.shifts) for part in parts]

    def _complete_on_cpu(self, task: Task) -> Samples:
        """Draw what is missing on the CPU, one sample at a time, given the items each has."""
        sampler, samples = self.context.sampler, task.samples
        for i, number in enumerate(samples.numbers.tolist()):
            state = sampler.resume(samples.rows[i, : task.n].cpu().numpy(), samples.wanted)
            state, proposals = sampler.complete(self.rng(number), state, samples.wanted)
            samples.counters.proposals[i] += proposals
            samples.rows[i] = torch.from_numpy(state.rows)
        return samples
