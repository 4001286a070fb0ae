"""What training says: how long it takes at most, what a smaller rank would save, and how far it is.

A run is a :class:`~ndpp.learning.fit.TrainingRun`, or a :class:`~ndpp.learning.contest.Contest` of several.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ndpp.errors import PrecisionError
from ndpp.learning.batches import shuffled
from ndpp.learning.checkpoint import Checkpoint

TIMED = 4
"""Steps that are timed, after one that is not; the expensive step of a mixture is one in four."""
WORTH_ASKING = 10.0
"""Seconds of training below which a smaller rank is not considered."""
WORTH_SAYING = 0.9
"""Share of the time above which a smaller rank is not mentioned."""


LESS = "it fits as well or worse, more so in large catalogues"
"""What a smaller rank costs, as far as it was measured (docs/learning.md)."""


def epochs_run(run: Any, last: int) -> int:
    """Return how many epochs of single runs the first ``last`` epochs are."""
    return int(last + (len(run.runs) - 1) * min(last, run.pilot))


def seconds_left(run: Any, per_epoch: Sequence[float]) -> float:
    """Return how long training goes on at most, if an epoch of each run takes so long."""
    first, last = len(run.history), run.settings.max_epochs
    together = max(0, min(last, run.pilot) - first)
    return sum(per_epoch) * together + max(per_epoch) * (last - first - together)


def remaining(run: Any, ended: str | None) -> str:
    """Return what a line about an epoch says of time: how long it took, and how long training still takes at most."""
    took = [one.history[-1]["seconds"] for one in run.runs]
    left = seconds_left(run, took)
    return f", {duration(sum(took))}" + (f"; at most about {duration(left)} left" if left and ended is None else "")


def estimates(run: Any, narrower: Callable[[Any], tuple[int, Any, str] | None]) -> Iterator[str]:
    """Yield lines on how long training takes, and on how long it would with a smaller rank.

    Some steps of each run are timed, and undone. ``narrower`` returns a rank, such a run and what else it would cost, or None.
    """
    epochs = run.settings.max_epochs - len(run.history)
    if epochs <= 0 or run.ended is not None:
        return
    seconds = [seconds_per_epoch(one) for one in run.runs]
    total = seconds_left(run, seconds)
    both = f", the first {run.pilot} with and without families" if len(run.runs) > 1 else ""
    yield (
        f"at most about {duration(total)}: {epochs} epochs of {duration(max(seconds))}{both}; "
        "fewer if the validation baskets stop gaining"
    )
    if total < WORTH_ASKING:
        return
    found = [narrower(one) for one in run.runs]
    try:
        less = [seconds_per_epoch(one[1]) for one in found if one is not None]
    except PrecisionError:
        return
    if len(less) == len(found) and found[0] is not None and seconds_left(run, less) < WORTH_SAYING * total:
        rank, _, cost = found[0]
        yield f"with rank {rank} at most about {duration(seconds_left(run, less))}; {cost}"


def seconds_per_epoch(run: Any) -> float:
    """Return how long an epoch of a single run takes, from some steps, which are then undone."""
    saved = Checkpoint({name: tensor.clone() for name, tensor in run.tensors().items()}, run.record())
    which, scales, took = next(shuffled(run.rng, len(run.baskets), run.batch_size)), run._noise_scales(), []
    with warnings.catch_warnings(action="ignore"):
        for _ in range(1 + TIMED):
            began = time.perf_counter()
            float(run._step(run.pack(which), scales))  # waits for a GPU
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        run.log_probs(run.now, run.validation)
        evaluation = time.perf_counter() - began
    run.restore(saved)
    return float(run.n_steps * np.mean(took[1:]) + run.evaluations * evaluation)


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
