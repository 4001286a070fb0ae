"""What training says: how long it takes at most, what a smaller rank would save, and how far it is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np

from ndpp.errors import PrecisionError
from ndpp.learning.batches import shuffled
from ndpp.learning.contest import Contest
from ndpp.learning.objective import Objective, P
from ndpp.learning.trainer import Trainer, TrainingSettings

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
    """Yield lines on how long training takes, and on how long it would with a smaller rank, from some steps that are timed."""
    if contest.ended is not None:
        return
    lead, goals = contest.lead, [trainer.objective for trainer in contest.candidates.values()]
    seconds = [seconds_per_epoch(goal, lead.settings, lead.seed) for goal in goals]
    total, epochs = contest.seconds_left(seconds), lead.settings.max_epochs - len(lead.history)
    both = f", the first {contest.pilot} with and without families" if len(goals) > 1 else ""
    yield (
        f"at most about {duration(total)}: {epochs} epochs of {duration(max(seconds))}{both}; "
        "fewer if the validation baskets stop gaining"
    )
    found = [narrow for goal in goals if total >= WORTH_ASKING and (narrow := goal.narrower()) is not None]
    if len(found) < len(goals):
        return
    try:
        less = contest.seconds_left([seconds_per_epoch(one.objective, lead.settings, lead.seed) for one in found])
    except PrecisionError:
        return
    if less < WORTH_SAYING * total:
        yield f"with rank {found[0].rank} at most about {duration(less)}; {found[0].cost}"


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
