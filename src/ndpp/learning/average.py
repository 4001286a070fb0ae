"""Averages of fits: several mixtures learned from the same baskets, with other starts and other families, as one law.

P(S) = Σ_m w_m P_m(S), with weights by which the validation baskets are most probable. What all fits have learned stays, and what one of
them has learned by chance counts less.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.laws.mixture import Mixture
from ndpp.learning import checkpoint as checkpoints
from ndpp.learning.base import BasketModel
from ndpp.learning.run import Deadline, TrainingRun
from ndpp.learning.trainer import TrainingSettings
from ndpp.linalg.logs import shares

Member = TypeVar("Member", bound=BasketModel[Any, Any])
EQUAL, ROUNDS = 30.0, 100
"""Validation baskets that are added in favour of equal weights, and rounds of EM."""


def fit_each(
    members: Sequence[Member],
    shape: Any,
    training: Baskets,
    held_out: Baskets,
    settings: TrainingSettings,
    run: TrainingRun,
) -> Sequence[Member]:
    """Fit models, each in its part of the time; return them, fewer after Ctrl-C or where no time is left."""
    if run.path is not None and run.saved is checkpoints.FRESH:
        for path in further_checkpoints(run.path):  # of an earlier run
            path.unlink()
    for k, member in enumerate(members):
        own = _part_of(run, k, len(members))
        if k and own.saved is checkpoints.FRESH and run.clock.left() <= 0:
            return members[:k]
        run.say(f"fit {k + 1} of {len(members)}")
        member._train(shape, training, held_out, settings, own)
        if member.ended_ == "interrupted":
            return members[: k + 1]
    return members


def keep_average(model: BasketModel[Any, Any], members: Sequence[BasketModel[Any, Any]], held_out: Baskets) -> None:
    """Give a model the average of fitted ones, with the record of their training."""
    values = np.stack([member.law_.log_probs(held_out) for member in members], axis=1)
    weights = fit_weights(values, held_out.weights)
    model.law_ = Mixture.pooled([member.law_ for member in members], weights) if len(members) > 1 else members[0].law_
    reached = np.logaddexp.reduce(values + np.log(weights), axis=1)
    model.validation_score_ = float(np.average(reached, weights=held_out.weights))
    model.reached_ = {f"fit {k + 1}": member.validation_score_ for k, member in enumerate(members)}
    model.history_ = [{"fit": k + 1, **record} for k, member in enumerate(members) for record in member.history_]
    model.n_iter_, model.ended_, model.in_time_ = len(model.history_), members[-1].ended_, members[0].in_time_


def further_checkpoints(path: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoints of the fits after the first, whose own is at ``path``."""
    return list(takewhile(Path.exists, (_checkpoint(path, k) for k in count(1))))


def _checkpoint(path: str | os.PathLike[str], k: int) -> Path:
    first = Path(path)
    return first.with_name(f"{first.stem}.{k + 1}{first.suffix}")


def _part_of(run: TrainingRun, k: int, n_fits: int) -> TrainingRun:
    """Return the run of fit k, with a part of the time; those after the first have a seed and a checkpoint of their own."""
    clock, path, saved = Deadline(run.clock.left() / (n_fits - k)), None, checkpoints.FRESH
    if k == 0:
        return replace(run, clock=clock)
    if run.path is not None:
        path = _checkpoint(run.path, k)
        if run.saved is not checkpoints.FRESH and path.exists():
            saved = checkpoints.read(path)
    return replace(
        run, seed=int(np.random.default_rng([run.seed, k]).integers(2**62)), clock=clock, path=path, saved=saved
    )


def fit_weights(values: FloatArray, counts: FloatArray | None = None) -> FloatArray:
    """Return the weights of fits under which baskets are most probable, drawn towards equal ones.

    ``values`` (baskets, fits) are the log-likelihoods of the baskets under each fit, and ``counts`` say how often each basket counts.

    Examples
    --------
    >>> fit_weights(np.log([[0.2, 0.1]] * 1000 + [[0.1, 0.4]] * 500)).round(2)
    array([0.55, 0.45])
    """
    counts = np.ones(len(values)) if counts is None else counts
    weights = np.full(values.shape[1], 1 / values.shape[1])
    for _ in range(ROUNDS):
        total = counts @ shares(values + np.log(weights)) + EQUAL / len(weights)
        weights = total / total.sum()
    return weights
