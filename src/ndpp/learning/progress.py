"""What training says: how long it takes at most, what a smaller rank would save, and how far it is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np

from ndpp.errors import PrecisionError
from ndpp.learning.batches import shuffled
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.contest import Contest
from ndpp.learning.objective import P
from ndpp.learning.trainer import Trainer

TIMED = 4
"""Steps that are timed, after one that is not; the expensive step of a mixture is one in four."""
WORTH_ASKING = 10.0
"""Seconds of training below which a smaller rank is not considered."""
WORTH_SAYING = 0.9
"""Share of the time above which a smaller rank is not mentioned."""


def remaining(contest: Contest[P]) -> str:
    """Return what a line about an epoch says of time: how long it took, and how long training still takes at most."""
    took = [trainer.history[-1]["seconds"] for trainer in contest.candidates.values()]
    left = contest.seconds_left(took)
    goes_on = left and contest.ended is None
    return f", {duration(sum(took))}" + (f"; at most about {duration(left)} left" if goes_on else "")


def estimates(contest: Contest[P]) -> Iterator[str]:
    """Yield lines on how long training takes, and on how long it would with a smaller rank; some steps are timed, and undone."""
    if contest.ended is not None:
        return
    trainers, epochs = list(contest.candidates.values()), contest.lead.settings.max_epochs - len(contest.lead.history)
    seconds = [seconds_per_epoch(trainer) for trainer in trainers]
    total = contest.seconds_left(seconds)
    both = f", the first {contest.pilot} with and without families" if len(trainers) > 1 else ""
    yield (
        f"at most about {duration(total)}: {epochs} epochs of {duration(max(seconds))}{both}; "
        "fewer if the validation baskets stop gaining"
    )
    if total < WORTH_ASKING:
        return
    found = [narrow for trainer in trainers if (narrow := trainer.objective.narrower()) is not None]
    if len(found) < len(trainers):
        return
    try:
        smaller = [Trainer(narrow.objective, contest.lead.settings, contest.lead.seed) for narrow in found]
        less = contest.seconds_left([seconds_per_epoch(trainer) for trainer in smaller])
    except PrecisionError:
        return
    if less < WORTH_SAYING * total:
        yield f"with rank {found[0].rank} at most about {duration(less)}; {found[0].cost}"


def seconds_per_epoch(trainer: Trainer[P]) -> float:
    """Return how long an epoch takes, from some steps, which are then undone."""
    tensors, record, _ = trainer.state()
    saved = Checkpoint({name: tensor.clone() for name, tensor in tensors.items()}, record)
    which, took = next(shuffled(trainer.rng, trainer.objective.n_baskets, trainer.batch_size)), []
    with warnings.catch_warnings(action="ignore"):
        trainer.objective.begin_epoch(trainer.now)
        for _ in range(1 + TIMED):
            began = time.perf_counter()
            float(trainer.take_step(which))  # waits for a GPU
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        trainer.objective.log_probs(trainer.now)
        evaluation = time.perf_counter() - began
    trainer.restore(saved)
    return float(trainer.n_steps * np.mean(took[1:]) + trainer.objective.evaluations * evaluation)


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
