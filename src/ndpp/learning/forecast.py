"""How long training takes at most, told before it begins: from steps that are timed on a part of the catalogue, and undone."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from ndpp._types import IntArray
from ndpp.errors import PrecisionError
from ndpp.learning.batches import shuffled
from ndpp.learning.contest import PILOT, duration
from ndpp.learning.run import TrainingRun
from ndpp.learning.trainer import Objective, P, Trainer, TrainingSettings

TIMED = 4
"""Steps that are timed, after one that is not; the expensive step of a mixture is one in four."""
FINISHING = 3.0
"""Evaluations of the validation baskets that take as long as what comes after training: normalisers in double precision, and the file."""
COST_OF_LESS_RANK = "it fits as well or worse, more so in large catalogues"
"""What a smaller rank costs, as far as it was measured (docs/fitting.md)."""
WORTH_ASKING = 10.0
"""Seconds of training below which a smaller rank is not considered."""
WORTH_SAYING = 0.9
"""Share of the time above which a smaller rank is not mentioned."""


class Forecast(NamedTuple):
    """Seconds of an epoch, of one evaluation of the validation baskets, and of what comes before the first epoch."""

    epoch: float
    evaluation: float
    start: float = 0.0
    pilots: int = 1
    """Candidates that may be trained in the first epochs."""

    def total(self, settings: TrainingSettings, done: int) -> float:
        """Return how long training takes at most, after ``done`` epochs."""
        twice = (self.pilots - 1) * max(0, min(PILOT, settings.max_epochs) - done)
        return self.start + self.epoch * (settings.max_epochs - done + twice) + FINISHING * self.evaluation

    @property
    def reserve(self) -> float:
        """Seconds that the end takes: one evaluation, and what comes after it."""
        return (1 + FINISHING) * self.evaluation


def forecast(objective: Objective[P], settings: TrainingSettings, seed: int, n_items: int | None = None) -> Forecast:
    """Return how long an epoch takes, from some steps of a trainer that is not used otherwise.

    With ``n_items`` it is that of a larger catalogue, of which the objective has a part: what a step does for each basket takes as long as
    here, everything else in proportion to the items.
    """
    saved, trainer = objective.state(), Trainer(objective, settings, seed)
    which = next(shuffled(trainer.rng, objective.n_baskets, trainer.batch_size))
    with warnings.catch_warnings(action="ignore"):
        _step_seconds(trainer, which[:1])
        (first, *few), (again, *many) = (_steps(trainer, part) for part in (which[:1], which))
        began = time.perf_counter()
        objective.log_probs(trainer.now)
        evaluation = time.perf_counter() - began
    objective.restore(saved)
    dense, ratio = min(few), 1.0 if n_items is None else n_items / len(trainer.now[0])
    baskets = max(0.0, sum(many) / len(many) - dense)
    renewal = max(0.0, min(first, again - baskets) - dense)
    step = baskets + ratio * (dense + objective.renewed(n_items) * renewal / TIMED)
    sums = min(evaluation, renewal / 3)  # what an evaluation does for all items, of the three products of a renewal
    evaluation += (ratio - 1) * sums
    return Forecast(trainer.n_steps * step + objective.evaluations * evaluation, evaluation)


def _steps(trainer: Trainer[P], which: IntArray) -> list[float]:
    trainer.objective.begin_epoch(trainer.now)
    return [_step_seconds(trainer, which) for _ in range(TIMED)]


def _step_seconds(trainer: Trainer[P], which: IntArray) -> float:
    began = time.perf_counter()
    float(trainer.take_step(which))  # waits for a GPU
    return time.perf_counter() - began


def lines(
    found: Forecast, objective: Objective[P], settings: TrainingSettings, run: TrainingRun, done: int, n_items: int
) -> Iterator[str]:
    """Yield lines on how long training takes, and on how long it would with a smaller rank."""
    total, epochs = found.total(settings, done), settings.max_epochs - done
    begin = f"start {duration(found.start)}, " if found.start > 1 else ""
    twice = (
        f", the first {min(PILOT, settings.max_epochs)} perhaps with and without families" if found.pilots > 1 else ""
    )
    limit = run.clock.left() + run.clock.reserve
    limited = f"; ended after {duration(limit)} with the best so far" if limit < total else ""
    yield (
        f"at most about {duration(total)}: {begin}{epochs} epochs of {duration(found.epoch)}{twice}; "
        f"fewer if the validation baskets stop gaining{limited}"
    )
    narrow = objective.narrower() if total >= WORTH_ASKING and not limited else None
    if narrow is None:
        return
    try:
        less = forecast(narrow, settings, run.seed, n_items)._replace(start=found.start, pilots=found.pilots)
    except PrecisionError:
        return
    if less.total(settings, done) < WORTH_SAYING * total:
        before = objective.n_baskets
        lost = before - narrow.n_baskets
        cost = f"it would drop {lost:,} of {before:,} baskets, which are larger" if lost else COST_OF_LESS_RANK
        yield f"with rank {narrow.rank} at most about {duration(less.total(settings, done))}; {cost}"
