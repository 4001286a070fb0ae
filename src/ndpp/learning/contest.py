"""Training with and without families side by side, until the validation baskets say which is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ndpp._progress import ProgressBar
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.fit import TrainingRun

MARGIN = 0.01
"""How much better the validation log-likelihood with families must be after the pilot. Runs that were closer ended in the other order:
training with families begins better and gains less later (validation baskets of Instacart and of three Amazon categories)."""


class Contest:
    """Runs that are trained side by side for ``pilot`` epochs, after which one goes on alone: the first, unless another is clearly better.

    It has the attributes of the run that leads.
    """

    def __init__(self, runs: Sequence[TrainingRun], pilot: int) -> None:
        self.runs, self.pilot = list(runs), pilot

    @property
    def lead(self) -> TrainingRun:
        """The run that leads by the best validation log-likelihood so far."""
        first, best = self.runs[0], max(self.runs, key=lambda run: run.best_value)
        return best if best.best_value - first.best_value > MARGIN * abs(first.best_value) else first

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lead, name)

    def epoch(self, bar: ProgressBar) -> dict[str, float]:
        """Run one epoch of each run; return the record of the one that leads."""
        for run in self.runs:
            run.epoch(bar)
        if len(self.lead.history) >= self.pilot:
            self.runs = [self.lead]
        return self.lead.history[-1]

    def validate(self) -> float:
        """Return the best validation log-likelihood of the runs."""
        return max(run.validate() for run in self.runs)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint: those of the one run, or of all, with the name of each in front."""
        if len(self.runs) == 1:
            return self.lead.tensors()
        return {f"{_name(run)}.{name}": tensor for run in self.runs for name, tensor in run.tensors().items()}

    def record(self) -> dict[str, Any]:
        """Return the rest of a checkpoint, as JSON can hold it."""
        if len(self.runs) == 1:
            return self.lead.record()
        return self.lead.record() | {"runs": {_name(run): run.record() for run in self.runs}}

    def restore(self, saved: Checkpoint) -> None:
        """Restore the state from a checkpoint: of all runs, or of the one that went on."""
        if "runs" not in saved.record:
            self.runs = [run for run in self.runs if run.now.X.shape == saved.tensors["now.X"].shape]
            self.lead.restore(saved)
            return
        for run in self.runs:
            own = {name: tensor for name, tensor in saved.tensors.items() if name.startswith(f"{_name(run)}.")}
            tensors = {name.removeprefix(f"{_name(run)}."): tensor for name, tensor in own.items()}
            run.restore(Checkpoint(tensors, saved.record["runs"][_name(run)]))


def _name(run: TrainingRun) -> str:
    return type(run).__name__
