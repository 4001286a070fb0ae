"""Candidates that are trained side by side until the validation baskets say which is better: a mixture with and without families.

The loop of training is here, with its checkpoints and Ctrl-C, and what it says: how long it takes at most, what a smaller rank would save.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic

import numpy as np

from ndpp._progress import ProgressBar, progress_bar
from ndpp.errors import PrecisionError, TrainingInterruptedWarning
from ndpp.learning import checkpoint
from ndpp.learning.batches import shuffled
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.trainer import RATE_DROPS, Objective, P, Trainer, TrainingSettings

PILOT = 3
"""Epochs for which all candidates are trained."""
MARGIN = 0.01
"""How much better the validation log-likelihood with families must be after the pilot. Runs that were closer ended in the other order:
training with families begins better and gains less later (validation baskets of Instacart and of three Amazon categories)."""
TIMED = 4
"""Steps that are timed, after one that is not; the expensive step of a mixture is one in four."""
LESS = "it fits as well or worse, more so in large catalogues"
"""What a smaller rank costs, as far as it was measured (docs/learning.md)."""
WORTH_ASKING = 10.0
"""Seconds of training below which a smaller rank is not considered."""
WORTH_SAYING = 0.9
"""Share of the time above which a smaller rank is not mentioned."""


class Contest(Generic[P]):
    """Trainers by name. After ``PILOT`` epochs one goes on alone: the first, unless another is clearly better.

    Most models have one candidate, which then is all there is to train.
    """

    def __init__(self, candidates: Mapping[str, Trainer[P]]) -> None:
        self.candidates = dict(candidates)

    @property
    def lead(self) -> Trainer[P]:
        """The trainer that leads by the best validation log-likelihood so far."""
        return self.candidates[self._leader]

    @property
    def _leader(self) -> str:
        values = {name: trainer.best_value for name, trainer in self.candidates.items()}
        first, best = next(iter(values)), max(values, key=lambda name: values[name])
        return best if values[best] - values[first] > MARGIN * abs(values[first]) else first

    @property
    def pilot(self) -> int:
        """Epochs for which all candidates are trained, at most."""
        return min(PILOT, self.lead.settings.max_epochs)

    @property
    def ended(self) -> str | None:
        """Why training has ended, after the last drop of the learning rate or the last epoch; None if it goes on."""
        if self.lead.drops > RATE_DROPS:
            return "converged"
        return "max_epochs" if len(self.lead.history) >= self.lead.settings.max_epochs else None

    def epoch(self, bar: ProgressBar) -> None:
        """Run one epoch of each candidate; after the last one of the pilot only the leader stays."""
        for trainer in self.candidates.values():
            trainer.epoch(bar)
        if len(self.lead.history) >= self.pilot:
            self.candidates = {self._leader: self.lead}

    def train(
        self,
        *,
        made_with: Mapping[str, Any],
        path: str | os.PathLike[str] | None = None,
        progress: bool | Callable[[str], None] = False,
    ) -> str:
        """Train until the validation log-likelihood no longer rises; return why it ended: "converged", "max_epochs" or "interrupted".

        Every epoch writes a checkpoint to ``path`` that includes ``made_with``. Ctrl-C ends training with the best
        parameters so far.
        """
        total, done = (self._steps_until(epoch) for epoch in (self.lead.settings.max_epochs, len(self.lead.history)))
        try:
            with progress_bar(total, "epoch 1", done=done, show=progress, left="at most") as bar:
                while self.ended is None:
                    self.epoch(bar)
                    if path is not None:
                        state = self.state()
                        checkpoint.write(path, state.tensors, {**state.record, "made_with": dict(made_with)})
                    now = self.lead.history[-1]
                    told = f"epoch {now['epoch']}, loss {now['loss']:.3f}, validation {now['validation']:.3f}"
                    bar.tell(told, told + self._remaining())
        except KeyboardInterrupt:
            if not self.lead.history:
                for trainer in self.candidates.values():
                    trainer.validate()
            warnings.warn(
                f"training was interrupted in epoch {len(self.lead.history) + 1}; the best kernel so far is kept "
                f"(validation log-likelihood {self.lead.best_value:.4g})",
                TrainingInterruptedWarning,
                stacklevel=3,  # where fit was called
            )
            return "interrupted"
        assert self.ended is not None
        return self.ended

    def _steps_until(self, epoch: int) -> int:
        """Return how many steps the first epochs take, of all candidates together."""
        return self.lead.n_steps * (epoch + (len(self.candidates) - 1) * min(epoch, self.pilot))

    def seconds_left(self, per_epoch: Sequence[float]) -> float:
        """Return how long training goes on at most, if an epoch of each candidate takes so long."""
        first, last = len(self.lead.history), self.lead.settings.max_epochs
        together = max(0, self.pilot - first)
        return float(sum(per_epoch) * together + max(per_epoch) * (last - first - together))

    def _remaining(self) -> str:
        """Return what a line about an epoch says of time: how long it took, and how long training still takes at most."""
        took = [trainer.history[-1]["seconds"] for trainer in self.candidates.values()]
        left = self.seconds_left(took)
        goes_on = left and self.ended is None
        return f", {duration(sum(took))}" + (f"; at most about {duration(left)} left" if goes_on else "")

    def estimates(self) -> Iterator[str]:
        """Yield lines on how long training takes, and on how long it would with a smaller rank, from some steps that are timed."""
        if self.ended is not None:
            return
        lead, goals = self.lead, [trainer.objective for trainer in self.candidates.values()]
        seconds = [seconds_per_epoch(goal, lead.settings, lead.seed) for goal in goals]
        total, epochs = self.seconds_left(seconds), lead.settings.max_epochs - len(lead.history)
        both = f", the first {self.pilot} with and without families" if len(goals) > 1 else ""
        yield (
            f"at most about {duration(total)}: {epochs} epochs of {duration(max(seconds))}{both}; "
            "fewer if the validation baskets stop gaining"
        )
        found = [narrow for goal in goals if total >= WORTH_ASKING and (narrow := goal.narrower()) is not None]
        if len(found) < len(goals):
            return
        try:
            less = self.seconds_left([seconds_per_epoch(one, lead.settings, lead.seed) for one in found])
        except PrecisionError:
            return
        if less < WORTH_SAYING * total:
            before = lead.objective.n_baskets
            lost = before - found[0].n_baskets
            cost = f"it would drop {lost:,} of {before:,} baskets, which are larger" if lost else LESS
            yield f"with rank {found[0].rank} at most about {duration(less)}; {cost}"

    def state(self) -> Checkpoint:
        """Return a checkpoint: of the one candidate, with its name, or of all, with the name of each before those of its tensors."""
        lead = self.lead.state()
        if len(self.candidates) == 1:
            return Checkpoint(lead.tensors, lead.record | {"candidate": self._leader})
        parts = {name: trainer.state() for name, trainer in self.candidates.items()}
        tensors = {f"{name}.{key}": tensor for name, part in parts.items() for key, tensor in part.tensors.items()}
        return Checkpoint(tensors, lead.record | {"candidates": {name: part.record for name, part in parts.items()}})

    def restore(self, saved: Checkpoint) -> None:
        """Restore all candidates, or the one that went on alone."""
        parts, name = saved.record.get("candidates"), saved.record.get("candidate")
        if parts is not None and parts.keys() == self.candidates.keys():
            for name, trainer in self.candidates.items():
                trainer.restore(saved.part(name)._replace(record=parts[name]))
            return
        if name is None and len(self.candidates) == 1:
            name = self._leader  # version 1 of the format did not name it
        if name not in self.candidates:
            raise saved.unusable(f"it does not say which of {', '.join(self.candidates)} it continues")
        self.candidates = {name: self.candidates[name]}
        self.lead.restore(saved)


def seconds_per_epoch(objective: Objective[P], settings: TrainingSettings, seed: int) -> float:
    """Return how long an epoch takes, from some steps of a trainer that is not used otherwise."""
    saved, trainer, took = objective.state(), Trainer(objective, settings, seed), []
    which = next(shuffled(trainer.rng, objective.n_baskets, trainer.batch_size))
    with warnings.catch_warnings(action="ignore"):
        objective.begin_epoch(trainer.now)
        for _ in range(1 + TIMED):
            began = time.perf_counter()
            float(trainer.take_step(which))  # waits for a GPU
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        objective.log_probs(trainer.now)
        evaluation = time.perf_counter() - began
    objective.restore(saved)
    return float(trainer.n_steps * np.mean(took[1:]) + objective.evaluations * evaluation)


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
