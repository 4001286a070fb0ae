"""Candidates that are trained side by side, until the validation baskets say which is better: a mixture with and without families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from ndpp._progress import ProgressBar
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.objective import P
from ndpp.learning.trainer import Trainer

PILOT = 3
"""Epochs for which all candidates are trained."""
MARGIN = 0.01
"""How much better the validation log-likelihood with families must be after the pilot. Runs that were closer ended in the other order:
training with families begins better and gains less later (validation baskets of Instacart and of three Amazon categories)."""


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
        """Why training has ended, None if it goes on."""
        done = len(self.lead.history) >= self.lead.settings.max_epochs
        return self.lead.ended or ("max_epochs" if done else None)

    def epoch(self, bar: ProgressBar) -> None:
        """Run one epoch of each candidate; after the last one of the pilot only the leader stays."""
        for trainer in self.candidates.values():
            trainer.epoch(bar)
        if len(self.lead.history) >= self.pilot:
            self.candidates = {self._leader: self.lead}

    def validate(self) -> None:
        """Validate all candidates as they are."""
        for trainer in self.candidates.values():
            trainer.validate()

    def steps_until(self, epoch: int) -> int:
        """Return how many steps the first epochs take, of all candidates together."""
        return self.lead.n_steps * (epoch + (len(self.candidates) - 1) * min(epoch, self.pilot))

    def seconds_left(self, per_epoch: Sequence[float]) -> float:
        """Return how long training goes on at most, if an epoch of each candidate takes so long."""
        first, last = len(self.lead.history), self.lead.settings.max_epochs
        together = max(0, self.pilot - first)
        return float(sum(per_epoch) * together + max(per_epoch) * (last - first - together))

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
