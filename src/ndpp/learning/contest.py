"""Candidates that are trained side by side until the validation baskets say which is best: a mixture with and without families, or starts.

The loop of training is here, with its checkpoints, Ctrl-C and the end of its time, and what it says about that. How long it takes at most
is told before it begins, from steps that are timed on a part of the catalogue, and undone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np

from ndpp._progress import ProgressBar, progress_bar
from ndpp._types import IntArray
from ndpp.errors import TrainingInterruptedWarning
from ndpp.learning.batches import shuffled
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.run import TrainingRun
from ndpp.learning.trainer import Counter, Objective, P, Trainer, TrainingSettings

MAX_LAG = 0.001
"""How far behind the first a candidate may be after an epoch of the pilot, relative to the log-likelihood, to stay in it."""
MIN_LEAD = 0.01
"""How much better the validation log-likelihood with families must be after the pilot. Runs that were closer ended in the other order:
training with families begins better and gains less later (validation baskets of Instacart and of three Amazon categories)."""
TIMED = 4
"""Steps that are timed, after one that is not; the expensive step of a mixture is one in four."""
ENOUGH = 6
"""Epochs that a model has to have: where there is no time for them, a smaller one is better (validation baskets of UK Retail: 400 missions
have log-likelihood −85.9 after two epochs, 100 have −76.9 after nine in the same time, and 400 have −76.4 after six)."""
FINISHING = 3.0
"""Evaluations of the validation baskets that take as long as what comes after training: normalisers in double precision, and the file."""


class Contest(Generic[P]):
    """Trainers by name. After the pilot one goes on alone: the first, unless another is clearly better, or sooner if no other leads.

    Most models have one candidate, which then is all there is to train.
    """

    told = "perhaps with and without families"
    """What several candidates are, in words."""

    def __init__(self, candidates: Mapping[str, Trainer[P]]) -> None:
        self.candidates = dict(candidates)
        self.reached = dict.fromkeys(self.candidates, -np.inf)
        """The best validation log-likelihood of every candidate, also of those that have left."""

    @property
    def lead(self) -> Trainer[P]:
        """The trainer that leads by the best validation log-likelihood so far."""
        return self.candidates[self._leader]

    @property
    def _leader(self) -> str:
        values = {name: trainer.best_value for name, trainer in self.candidates.items()}
        first, best = next(iter(values)), max(values, key=lambda name: values[name])
        return best if values[best] - values[first] > MIN_LEAD * abs(values[first]) else first

    @property
    def ended(self) -> str | None:
        """Why training has ended, after the last drop of the learning rate or the last epoch, or out of time; None if it goes on."""
        if self.lead.has_converged:
            return "converged"
        if len(self.lead.history) >= self.lead.settings.max_epochs:
            return "max_epochs"
        return "minutes" if self.lead.is_out_of_time else None

    def epoch(self, bar: Counter) -> None:
        """Train one epoch of each candidate; after it those behind the first one leave, and after the pilot all but the leader."""
        for trainer in self.candidates.values():
            trainer.epoch(bar)
        self._note()
        is_over = len(self.lead.history) >= self.lead.settings.pilot
        self.candidates = {self._leader: self.lead} if is_over else self._near()

    def _note(self) -> None:
        """Note what the candidates have reached by now."""
        self.reached |= {name: trainer.best_value for name, trainer in self.candidates.items()}

    def _verdict(self) -> str:
        """Return what is said when candidates leave."""
        return ""

    def _near(self) -> dict[str, Trainer[P]]:
        """Return the candidates that stay in the pilot."""
        first = next(iter(self.candidates.values())).best_value
        least = first - MAX_LAG * abs(first)
        return {name: trainer for name, trainer in self.candidates.items() if trainer.best_value >= least}

    def train(self, run: TrainingRun) -> str:
        """Train until the validation log-likelihood no longer rises; return why it ended, as :attr:`NDPP.ended_` does.

        Every epoch writes a checkpoint. Ctrl-C ends training with the best parameters so far, as the end of the time does.
        """
        settings, steps, is_interrupted = self.lead.settings, [self.lead.n_steps] * len(self.candidates), False
        last = settings.max_epochs
        total, left = (int(left_of(steps, done, settings)) for done in (0, len(self.lead.history)))
        try:
            with progress_bar(total, f"epoch 1 of {last}", done=total - left, show=run.progress, left="at most") as bar:
                while self.ended is None:
                    n_before = len(self.candidates)
                    self.epoch(_Steps(self, run, bar))
                    if not self.lead.history:
                        break
                    run.keep(self.state())
                    now = self.lead.history[-1]
                    told = f"epoch {now['epoch']} of {last}, loss {now['loss']:.3f}, validation {now['validation']:.3f}"
                    told += self._verdict() if len(self.candidates) < n_before else ""
                    bar.tell(told, told + self._remaining())
                    run.spoke = time.monotonic()
        except KeyboardInterrupt:
            is_interrupted = True
        for trainer in self.candidates.values():
            if not trainer.history:  # no epoch has been finished
                trainer.validate()
        self._note()
        if not is_interrupted:
            return self.ended or "minutes"
        warnings.warn(
            f"training was interrupted in epoch {len(self.lead.history) + 1}; the best kernel so far is kept "
            f"(validation log-likelihood {self.lead.best_value:.4g})",
            TrainingInterruptedWarning,
            stacklevel=3,  # where fit was called
        )
        return "interrupted"

    def _remaining(self) -> str:
        """Return what a line about an epoch says of time: how long it took, and how long training still takes at most."""
        took = [trainer.history[-1]["seconds"] for trainer in self.candidates.values()]
        told = f", {duration(sum(took))}"
        return told if self.ended else f"{told}; {self.bound(took, len(self.lead.history))}"

    def bound(self, per_epoch: Sequence[float], done: float) -> str:
        """Say how long training goes on at most after ``done`` epochs, if one of each candidate takes so long."""
        left = min(left_of(per_epoch, done, self.lead.settings), self.lead.clock.left())
        return f"at most about {duration(max(0.0, left))} left"

    def state(self) -> Checkpoint:
        """Return a checkpoint: of the one candidate, with its name, or of all, with the name of each before those of its tensors."""
        lead = self.lead.state()
        lead.record["reached"] = self.reached
        if len(self.candidates) == 1:
            return Checkpoint(lead.tensors, lead.record | {"candidate": self._leader})
        parts = {name: trainer.state() for name, trainer in self.candidates.items()}
        tensors = {f"{name}.{key}": tensor for name, part in parts.items() for key, tensor in part.tensors.items()}
        return Checkpoint(tensors, lead.record | {"candidates": {name: part.record for name, part in parts.items()}})

    def restore(self, saved: Checkpoint) -> None:
        """Restore all candidates, or the one that went on alone."""
        parts = saved.candidates()
        if not parts and len(self.candidates) == 1:
            parts = {self._leader: saved}  # version 1 of the format did not name it
        if not parts or not parts.keys() <= self.candidates.keys():
            raise saved.unusable(f"it does not say which of {', '.join(self.candidates)} it continues")
        self.candidates = {name: self.candidates[name] for name in parts}
        self.reached |= saved.record.get("reached", {})
        for name, part in parts.items():
            self.candidates[name].restore(part)


class RandomStarts(Contest[P]):
    """Trainers from several random starts. After the pilot the best goes on alone."""

    told = "from every start"

    @property
    def _leader(self) -> str:
        return max(self.candidates, key=lambda name: self.candidates[name].best_value)

    def _near(self) -> dict[str, Trainer[P]]:
        return self.candidates

    def _verdict(self) -> str:
        return "; reached: " + ", ".join(f"{name} {value:.3f}" for name, value in self.reached.items())


class _Steps:
    """What the steps of an epoch of all candidates advance: the bar, or a line now and then where there is none."""

    def __init__(self, contest: Contest[Any], run: TrainingRun, bar: ProgressBar) -> None:
        self.contest, self.run, self.bar, self.taken, self.began = contest, run, bar, 0, time.monotonic()
        self.done, self.count = len(contest.lead.history), len(contest.candidates)

    def advance(self) -> None:
        """Count one step."""
        self.taken += 1
        self.bar.advance()
        if self.bar.say is None:
            return
        lead, steps = self.contest.lead, self.contest.lead.n_steps * self.count
        each = [(time.monotonic() - self.began) / self.taken * lead.n_steps] * self.count
        self.run.tick(
            f"epoch {self.done + 1} of {lead.settings.max_epochs}: step {self.taken} of {steps}; "
            f"{self.contest.bound(each, self.done + self.taken / steps)}"
        )


def left_of(per_epoch: Sequence[float], done: float, settings: TrainingSettings) -> float:
    """Return the work that is left at most after ``done`` epochs, if an epoch of each candidate takes so much."""
    together = max(0.0, settings.pilot - done) if len(per_epoch) > 1 else 0.0
    return sum(per_epoch) * together + max(per_epoch) * (settings.max_epochs - done - together)


def duration(seconds: float) -> str:
    """Return a duration for people.

    Examples
    --------
    >>> duration(0.2), duration(37.2), duration(372), duration(9000)
    ('0.2 s', '37 s', '6 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.{int(seconds < 9.5)}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Forecast(NamedTuple):
    """Seconds before the first epoch, of an epoch of each of ``n_candidates``, and of an evaluation of the validation baskets."""

    before: float
    epoch: float
    evaluation: float
    n_candidates: int

    @property
    def end(self) -> float:
        """Seconds of what comes after training."""
        return FINISHING * self.evaluation

    def total(self, settings: TrainingSettings, done: int) -> float:
        """Return the seconds from now to the end, at most, after ``done`` epochs."""
        return self.before + left_of([self.epoch] * self.n_candidates, done, settings) + self.end

    def least(self, settings: TrainingSettings) -> float:
        """Return the seconds that a model needs that is worth having: for ``ENOUGH`` epochs of one candidate."""
        return self.before + min(ENOUGH, settings.max_epochs) * self.epoch + self.evaluation + self.end


def measured(
    objective: Objective[P], before: float, n_candidates: int, settings: TrainingSettings, seed: int, n_items: int
) -> Forecast:
    """Return how long training takes, from steps of a trainer that is not used otherwise.

    ``before`` are the seconds before the first epoch, where there may be several candidates. The objective may have a part of the
    ``n_items``: what a step does for each basket takes as long as here, everything else in proportion to the items.
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
    dense, ratio = min(few), n_items / len(trainer.now[0])
    baskets = max(0.0, sum(many) / len(many) - dense)
    renewal = max(0.0, min(first, again - baskets) - dense)
    step = baskets + ratio * (dense + objective.renewed(n_items) * renewal / TIMED)
    sums = min(evaluation, renewal / 3)  # what an evaluation does for all items, of the three products of a renewal
    evaluation += (ratio - 1) * sums
    return Forecast(before, trainer.n_steps * step + objective.evaluations * evaluation, evaluation, n_candidates)


def announce(found: Forecast, told: str, settings: TrainingSettings, run: TrainingRun) -> None:
    """Say how long training takes at most, with candidates as ``told`` in words; keep time for its end."""
    run.epoch_seconds, limit = found.epoch, run.clock.left() + run.clock.reserve
    total = found.total(settings, run.done)
    run.clock.reserve = min(run.clock.reserve + found.evaluation + found.end, run.clock.limit / 2)
    begin = f"start {duration(found.before)}, " if found.before > 1 else ""
    both = f", the first {settings.pilot} {told}" * (found.n_candidates > 1)
    limited = f"; ended after {duration(limit)} with the best so far" if limit < total else ""
    run.say(
        f"at most about {duration(total)}: {begin}{settings.max_epochs - run.done} epochs of {duration(run.epoch_seconds)}{both}; "
        f"fewer if the validation baskets stop gaining{limited}"
    )


def _steps(trainer: Trainer[P], which: IntArray) -> list[float]:
    trainer.objective.begin_epoch(trainer.now)
    return [_step_seconds(trainer, which) for _ in range(TIMED)]


def _step_seconds(trainer: Trainer[P], which: IntArray) -> float:
    began = time.perf_counter()
    float(trainer.take_step(which))  # waits for a GPU
    return time.perf_counter() - began
