"""The training loop: epochs, checkpoints, what it says, and Ctrl-C."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ndpp._progress import progress_bar
from ndpp.errors import TrainingInterruptedWarning
from ndpp.learning import checkpoint
from ndpp.learning.contest import Contest
from ndpp.learning.objective import P
from ndpp.learning.progress import remaining


def train(
    contest: Contest[P],
    *,
    made_with: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[str], None] = False,
) -> str:
    """Train until the validation log-likelihood no longer rises; return why it ended: "converged", "max_epochs" or "interrupted".

    Every epoch writes a checkpoint to ``path`` that includes ``made_with``. Ctrl-C ends training with the best
    parameters so far.
    """
    total, done = (
        contest.steps_until(epoch) for epoch in (contest.lead.settings.max_epochs, len(contest.lead.history))
    )
    try:
        with progress_bar(total, "epoch 1", done=done, show=progress, left="at most") as bar:
            while contest.ended is None:
                contest.epoch(bar)
                if path is not None:
                    state = contest.state()
                    checkpoint.write(path, state.tensors, {**state.record, "made_with": dict(made_with)})
                now = contest.lead.history[-1]
                told = f"epoch {now['epoch']}, loss {now['loss']:.3f}, validation {now['validation']:.3f}"
                bar.tell(told, told + remaining(contest))
    except KeyboardInterrupt:
        if not contest.lead.history:
            contest.validate()
        warnings.warn(
            f"training was interrupted in epoch {len(contest.lead.history) + 1}; the best kernel so far is kept "
            f"(validation log-likelihood {contest.lead.best_value:.4g})",
            TrainingInterruptedWarning,
            stacklevel=3,  # where fit was called
        )
        return "interrupted"
    assert contest.ended is not None
    return contest.ended
